"""The drawings of the page Add data: a job while it runs and when it is done, and the form that lets teams run.

Hides which command a form becomes, and what its result looks like.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard import jobs, loading, safe, selection, tables

EVERY_SHAPE = "all shapes in turn"


def draw_run_form(location: str) -> None:
    """Draw the form that lets teams of simulated agents do tasks of the built-in bank, and start it as a job."""
    shapes, teams = loading.shapes_and_teams()
    st.caption(
        "No model is called: the agents are simulated, and their programs are judged in the sandbox. A single agent does every "
        "task too, as the baseline."
    )
    with st.form("add_data.run", border=True):
        shape = st.selectbox("Tasks", [EVERY_SHAPE, *shapes], key="add_data.shape")
        meanings = "; ".join(f"{name}: {about}" for name, about in teams.items())
        chosen = st.multiselect(
            "Teams", list(teams), default=list(teams)[:2], key="add_data.teams", help=safe.markdown(meanings, 3000)
        )
        counts = st.columns(3)
        n_tasks = counts[0].number_input("Number of tasks", 1, 1000, 6, key="add_data.n_tasks")
        n_trials = counts[1].number_input("Trials of each team on each task", 1, 100, 3, key="add_data.n_trials")
        seed = counts[2].number_input("Seed", 0, 2**31, 7, key="add_data.seed")
        if not st.form_submit_button("Run", icon=":material/play_arrow:"):
            return
    if not chosen:
        st.error("Choose at least one team.", icon=":material/error:")
        return
    folder = jobs.new_folder(location)
    tasks = f"{n_tasks}" if shape == EVERY_SHAPE else f"{shape}:{n_tasks}"
    arguments = ["run", "--tasks", tasks, "--trials", f"{n_trials}", "--seed", f"{seed}", "--out", str(folder / "runs.jsonl")]
    arguments += [part for name in chosen for part in ("--team", name)]
    title = f"Run {len(chosen)} teams on {n_tasks} tasks, {n_trials} trials each"
    selection.put(job=jobs.start(location, title, [*arguments, "--analyze"], job_id=folder.name))
    st.rerun()


def draw_runs(result: dict[str, Any]) -> None:
    """Draw what teams did in a job: how many runs, and how often each team passed."""
    said = f"{result['made']:,} runs made, {result['there']:,} were there, {result['left']:,} left; {result['tokens']:,} tokens."
    st.success(said, icon=":material/check:")
    columns = {"team": "Team", "runs": "Runs", "passed": "Passed", "tokens_mean": "Tokens a run"}
    tables.show(pd.DataFrame(result["teams"], columns=list(columns)), key="teams", columns=columns)


def draw_report(report: dict[str, Any]) -> None:
    """The load report: what came in, what did not and why, what to do next."""
    counts = {"New": "traces", "Updated": "updated", "Unchanged": "unchanged", "Waiting for their runs": "waiting"}
    with st.container(horizontal=True):
        for label, name in counts.items():
            st.metric(label, f"{report[name]:,}", border=True, width=180)
        st.metric("Files skipped", f"{len(report['skipped']):,}", border=True, width=180)
    if report["traces"] or report["updated"] or report["unchanged"]:
        with st.container(horizontal=True):
            selection.link("overview", "See what stands out")
            selection.link("traces", "Browse the traces")
    files = [{**f, "problems": sum(p["n"] for p in f["problems"])} for f in report["files"]]
    if files:
        st.subheader("Files read")
        columns = {"file": "File", "format": "Format", "records": "Records", "traces": "Traces", "problems": "Problems"}
        tables.show(pd.DataFrame(files), key="files", columns=columns)
    problems = [{"file": f["file"], **p} for f in report["files"] for p in f["problems"]]
    problems += [{"file": s["file"], "severity": "skipped", "message": s["reason"], "n": 1} for s in report["skipped"]]
    if problems:
        st.subheader("What to know about them")
        wanted = ["severity", "file", "record", "trace_id", "message", "got", "expected", "hint", "n"]
        rows = pd.DataFrame(problems).reindex(columns=wanted).fillna("")
        names = ["Severity", "File", "Record", "Trace", "Problem", "Got", "Expected", "What to do", "n"]
        tables.show(rows, key="problems", columns=dict(zip(wanted, names, strict=True)))


def draw_job(location: str, job_id: str) -> None:
    """One job: its progress while it runs, its report when it is done."""
    job = jobs.state(location, job_id)
    st.subheader(safe.markdown(job.title))
    if job.state != "running":
        if job.state == "done" and job.result is not None:
            report: dict[str, Any] = job.result if isinstance(job.result, dict) else {}
            if "teams" in report:
                draw_runs(report)
            if stages := report.get("stages"):
                done = [f"{s['stage']} {s['n_done']:,} traces ({s['n_kept']:,} were up to date)" for s in stages]
                st.success(safe.markdown(f"Analysed: {', '.join(done)}.", 1000), icon=":material/check:")
            report = report.get("import") or report
            if "files" in report:
                draw_report(report)
            elif report:
                selection.link("overview", "See what stands out")
            else:
                st.success(f"{len(job.result):,} patterns.", icon=":material/check:")
                selection.link("patterns", "See the patterns")
        elif job.state == "cancelled":
            st.warning("Cancelled. Nothing unfinished was added; start it again to have the rest.", icon=":material/cancel:")
        else:
            st.error(safe.markdown(job.text), icon=":material/error:")
        return

    @st.fragment(run_every="0.5s")
    def progress() -> None:
        now = jobs.state(location, job_id)
        if now.state != "running":
            st.rerun()
        st.progress(now.share, text=safe.markdown(now.text))
        if st.button("Cancel", key="add_data.cancel", icon=":material/cancel:"):
            jobs.cancel(location, job_id)

    progress()
    st.caption("This goes on when the page is closed; its address finds it again.")
