"""The drawings of the page Add data: a job while it runs and when it is done, and the form that lets teams run.

Hides which command a form becomes, and what its result looks like. Keys of models are never asked for: they are in the
environment of the server, and the form says where.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from analysis.counterfactual.teams import Team, read_team
from analysis.errors import TeamError
from dashboard import jobs, loading, safe, selection, tables

EVERY_SHAPE = "all shapes in turn"
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\.(toml|json)")
_N_TOKENS = 100_000


def draw_run_form(location: str) -> None:
    """Draw the form that lets teams do tasks of the built-in bank, and start it as a job."""
    shapes, teams = loading.shapes_and_teams()
    st.caption(
        "The ready teams are simulated: no model is called, and their programs are judged in the sandbox. A team file of your "
        "own may name models; what they answer is kept, so that a job that goes on pays for nothing twice. A single simulated "
        "agent does every task too, as the baseline, unless a model takes part."
    )
    uploads = st.file_uploader(
        "Team files of your own (TOML), with the policies that they name (JSON)", ["toml", "json"], accept_multiple_files=True,
        key="add_data.team_files",
    )  # fmt: skip
    files = {upload.name: upload.getvalue() for upload in uploads}
    own = _teams_in(files)
    for team in own.values():
        _draw_models(team)
    is_live = any(team.live for team in own.values())
    with st.form("add_data.run", border=True):
        shape = st.selectbox("Tasks", [EVERY_SHAPE, *shapes], key="add_data.shape")
        meanings = "; ".join(f"{name}: {about}" for name, about in teams.items())
        chosen = st.multiselect(
            "Ready teams", list(teams), default=list(teams)[:2], key="add_data.teams", help=safe.markdown(meanings, 3000)
        )
        counts = st.columns(4 if is_live else 3)
        n_tasks = counts[0].number_input("Number of tasks", 1, 1000, 6, key="add_data.n_tasks")
        n_trials = counts[1].number_input("Trials of each team on each task", 1, 100, 3, key="add_data.n_trials")
        seed = counts[2].number_input("Seed", 0, 2**31, 7, key="add_data.seed")
        n_tokens = counts[3].number_input("Tokens at most", 1, 10**9, _N_TOKENS, key="add_data.n_tokens") if is_live else None
        if not st.form_submit_button("Run", icon=":material/play_arrow:"):
            return
    if not chosen and not own:
        st.error("Choose at least one team.", icon=":material/error:")
        return
    folder = jobs.new_folder(location)
    inbox = _keep(folder, files)
    tasks = f"{n_tasks}" if shape == EVERY_SHAPE else f"{shape}:{n_tasks}"
    arguments = ["run", "--tasks", tasks, "--trials", f"{n_trials}", "--seed", f"{seed}", "--out", str(folder / "runs.jsonl")]
    arguments += [part for name in (*chosen, *[str(inbox / name) for name in own]) for part in ("--team", name)]
    title = f"Run {len(chosen) + len(own)} teams on {n_tasks} tasks, {n_trials} trials each"
    _start(location, folder, title, [*arguments, "--analyze"], n_tokens)


def _teams_in(files: Mapping[str, bytes]) -> dict[str, Team]:
    """Return the teams that uploaded files state, by file; what is wrong with one is said in its place."""
    found: dict[str, Team] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inbox = _keep(folder, files)
        for file in files:
            if _FILE_NAME.fullmatch(file) is None:
                st.error(safe.markdown(f"{file}: rename it, with letters, digits, - and _ only"), icon=":material/error:")
            elif file.endswith(".toml"):
                try:
                    found[file] = read_team(inbox / file)
                except TeamError as error:
                    st.error(safe.markdown(str(error).replace(f"{inbox}/", "")), icon=":material/error:")
    return found


def _keep(folder: Path, files: Mapping[str, bytes]) -> Path:
    inbox = folder / "teams"
    inbox.mkdir()
    for name, content in files.items():
        if _FILE_NAME.fullmatch(name):
            (inbox / name).write_bytes(content)
    return inbox


def _draw_models(team: Team) -> None:
    """Say which models a team asks, and where the server must have their keys."""
    for component, end in team.live.items():
        said = f"{team.name}: {component} is the model {end.model} at {end.base_url}."
        if end.key_env is None:
            st.info(safe.markdown(f"{said} No key is sent to it.", 1000), icon=":material/lock_open:")
        elif os.environ.get(end.key_env):
            there = f"Its key is in the environment variable {end.key_env} of this server, and is sent there."
            st.info(safe.markdown(f"{said} {there}", 1000), icon=":material/key:")
        else:
            gone = f"Its key is not here: start the server with it in the environment variable {end.key_env}."
            st.warning(safe.markdown(f"{said} {gone}", 1000), icon=":material/key_off:")


def _start(location: str, folder: Path, title: str, arguments: Sequence[str], n_tokens: int | None) -> None:
    """Start a job, or one that ended early again, in the same folder, where what models answered is kept."""
    facts = {"title": title, "arguments": list(arguments), "n_tokens": n_tokens}
    (folder / "arguments.json").write_text(json.dumps(facts), encoding="utf-8")
    (folder / "cancelled").unlink(missing_ok=True)
    budget = [] if n_tokens is None else ["--budget", f"{n_tokens}"]
    selection.put(job=jobs.start(location, title, [*arguments, *budget], job_id=folder.name))
    st.rerun()


def _draw_going_on(location: str, job_id: str) -> None:
    """Offer to go on with runs that are left, where the job was one of teams."""
    folder = jobs.folder_of(location, job_id)
    if not (folder / "arguments.json").exists():
        return
    facts = json.loads((folder / "arguments.json").read_text(encoding="utf-8"))
    n_tokens: int | None = facts["n_tokens"]
    if n_tokens is not None:
        n_tokens = st.number_input("Tokens at most, with those already spent", 1, 10**9, 2 * n_tokens, key="add_data.more_tokens")
    if st.button("Go on", key="add_data.go_on", icon=":material/resume:"):
        _start(location, folder, facts["title"], facts["arguments"], n_tokens)


def draw_runs(location: str, job_id: str, result: dict[str, Any]) -> None:
    """Draw what teams did in a job: how many runs, how often each team passed, and what is left."""
    said = f"{result['made']:,} runs made, {result['there']:,} were there, {result['left']:,} left; {result['tokens']:,} tokens."
    st.success(said, icon=":material/check:")
    if models := result.get("models"):
        st.caption(f"Models so far: {models['n_calls']:,} calls, {models['tokens']:,} tokens.")
    columns = {
        "team": "Team", "world": "World", "n": "Runs", "passed": "Passed", "rate": "Pass rate", "low": "95 % from", "high": "to",
        "tokens_mean": "Tokens a run",
    }  # fmt: skip
    tables.show(pd.DataFrame(result["teams"], columns=list(columns)), key="teams", columns=columns)
    if result["left"]:
        st.warning(
            safe.markdown(f"{result['left']:,} runs are left: {'; '.join(result.get('why', []))}", 1000), icon=":material/pause:"
        )
        _draw_going_on(location, job_id)


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
                draw_runs(location, job_id, report)
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
            _draw_going_on(location, job_id)
        else:
            st.error(safe.markdown(job.text), icon=":material/error:")
            _draw_going_on(location, job_id)
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
