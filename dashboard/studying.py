"""The drawings around a study that is still to come: what can be replayed here, the form that starts it, evidence as it arrives.

Hides which command a form becomes, and where the pairs of a study under way lie.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import streamlit as st

from analysis.counterfactual.interventions import OPERATORS
from analysis.counterfactual.study import pairs_so_far
from dashboard import jobs, safe, selection, tables
from dashboard.figures import effects as figures
from dashboard.loading import Version
from dashboard.loading import effects as studies

FAMILIES = tuple(dict.fromkeys([about.family for about in OPERATORS.values()]))
REPLAYABLE = {
    "format": "Format", "world": "World", "n_traces": "Traces", "n_executable": "Can be executed again",
    "n_recorded": "Replayed as recorded only",
}  # fmt: skip
BY_TASK = {
    "operator": "Change", "n": "Tasks", "delta_q": "ΔQ in passed", "low": "From", "high": "To", "e_value": "E",
    "is_found": "E ≥ 20",
}  # fmt: skip
BY_DECISION = {
    "operator": "Change", "parameters": "How", "event_id": "Event", "n": "Pairs", "delta_q": "ΔQ in passed", "low": "From",
    "high": "To", "e_value": "E", "is_found": "E ≥ 20", "trace_id": "Trace",
}  # fmt: skip
_TITLE = re.compile(r"Study (?P<name>.+), seed (?P<seed>\d+)(?P<race>, with a budget)?")
_ANYTIME = (
    "One may look and stop at any time: From and To hold the mean at all times at once with 95 %, and E, what a bet against "
    '"no effect" has made of 1, ever reaches 20 with at most 5 % if there is none. It takes 15 values that all agree, or more.'
)


def running(location: str) -> list[jobs.Job]:
    """Return the studies that are under way, newest first."""
    return [job for job in jobs.all_jobs(location) if _TITLE.fullmatch(job.title) and job.state == "running"]


def draw_nothing_yet() -> None:
    """Say what a study does, where there is none."""
    st.info("No study was made here yet. Start one below.", icon=":material/call_split:")
    st.markdown(
        "A study takes runs, changes one decision in each (when a step begins, how results are merged, who is told what, who "
        "does what, when to stop) and lets the rest happen again, with and without the change and with the same luck. The "
        "difference is ΔQ; what the decision taken was worth, its credit, is −ΔQ."
    )


def draw_form(version: Version) -> None:
    """Draw which traces a study can be made of, and the form that starts it as a job."""
    filter = selection.write("filter", "Which traces", placeholder="condition:chatty passed:no", help="As on Traces")
    counts = studies.replayable(version, filter)
    n_traces, n_executable = int(counts["n_traces"].sum()), int(counts["n_executable"].sum())
    st.markdown(
        f"**{n_traces:,} traces** fit. **{n_executable:,}** were made by `counterpoint run` and can be executed again (evidence "
        f"interventional); **{n_traces - n_executable:,}** can only be replayed on their recorded schedule and candidates "
        "(evidence simulated)."
    )
    if counts.loc[counts["world"] == "live", "n_executable"].any():
        st.caption("Models of live runs are asked again from the changed decision on, which costs; give a budget.")
    with st.expander("By format"):
        rows = counts.assign(n_recorded=counts["n_traces"] - counts["n_executable"])
        tables.show(rows, key="replayable", columns=REPLAYABLE)
    with st.form("effects.study", border=True):
        meanings = "; ".join([f"{name} ({about.family}) keeps {about.keeps}" for name, about in OPERATORS.items()])
        chosen = st.multiselect(
            "Kinds of change", FAMILIES, default=FAMILIES, key="study.operators", help=safe.markdown(meanings, 3000)
        )
        sizes = st.columns(4)
        n_decisions = sizes[0].number_input("Decisions of each trace", 1, 1000, 5, key="study.decisions")
        n_pairs = sizes[1].number_input("Pairs of each, screening", 1, 1000, 4, key="study.pairs")
        n_chosen = sizes[2].number_input("Decisions to confirm", 0, 10_000, 20, key="study.chosen")
        n_confirm = sizes[3].number_input("Pairs of each, confirming", 0, 1000, 16, key="study.confirm")
        rest = st.columns(4)
        unit = rest[0].selectbox("Budget in", ["none", "tokens", "seconds"], key="study.unit")
        amount = rest[1].number_input("Begin no new pair after", 1, 10**12, 100_000, key="study.budget")
        seed = rest[2].number_input("Seed", 0, 2**31, 0, key="study.seed")
        name = rest[3].text_input("Name", "effects", key="study.name", help="A study of the same name is replaced").strip()
        if not st.form_submit_button("Start", type="primary", icon=":material/play_arrow:"):
            return
    wrong = _wrong(version.location, name, chosen, n_traces)
    if wrong:
        st.error(safe.markdown(wrong), icon=":material/error:")
        return
    arguments = ["effects", "--filter", filter, "--decisions", f"{n_decisions}", "--pairs", f"{n_pairs}", "--seed", f"{seed}",
                 "--chosen", f"{n_chosen}", "--confirm", f"{n_confirm}", "--name", name]  # fmt: skip
    arguments += [part for family in chosen for part in ("--operators", family)]
    arguments += [] if unit == "none" else ["--budget", f"{amount}{'s' if unit == 'seconds' else ''}"]
    job_id = jobs.new_folder(version.location).name
    arguments += ["--out", str(_pairs_file(version.location, job_id, name))]
    title = f"Study {name}, seed {seed}" + (", with a budget" if unit != "none" else "")
    selection.put(job=jobs.start(version.location, title, arguments, job_id=job_id))
    st.rerun()


def draw_job(location: str, job: jobs.Job) -> None:
    """Draw a study under way with the evidence that is there, or what became of it."""
    st.subheader(safe.markdown(job.title, 160))
    said = _TITLE.fullmatch(job.title)
    if said is None:
        st.info("This job is no study; Add data shows it.", icon=":material/info:")
        return
    if job.state == "running":
        file, is_race = _pairs_file(location, job.job_id, said["name"]), said["race"] is not None
        _draw_progress(location, job.job_id, file, int(said["seed"]), is_race=is_race)
    elif job.state == "done":
        left = f", {job.result['left']:,} left for want of budget" if job.result["left"] else ""
        made = f"{job.result['made']:,} pairs made, {job.result['there']:,} were there{left}; {job.result['effects']:,} effects."
        if job.result["is_sound"]:
            st.success(safe.markdown(made), icon=":material/check:")
        else:
            st.error(safe.markdown(f"{made} It fails its controls: do not believe it."), icon=":material/dangerous:")
        if st.button(safe.markdown(f"See what {said['name']} found", 120), icon=":material/call_split:", key="study.see"):
            selection.stay(study=said["name"])
    elif job.state == "cancelled":
        again = "Cancelled. Nothing was stored; starting it again under its name and seed goes on from the pairs that are made."
        st.warning(again, icon=":material/cancel:")
    else:
        st.error(safe.markdown(job.text, 600), icon=":material/error:")


@st.fragment(run_every="1s")
def _draw_progress(location: str, job_id: str, file: Path, seed: int, *, is_race: bool) -> None:
    job = jobs.state(location, job_id)
    if job.state != "running":
        st.rerun()
    st.progress(job.share, text=safe.markdown(job.text))
    if st.button("Cancel", key="study.cancel", icon=":material/cancel:"):
        jobs.cancel(location, job_id)
    pairs = pairs_so_far(file, seed)
    st.caption(f"{len(pairs):,} pairs so far. This goes on when the page is closed; its address finds it again.")
    if is_race:
        st.caption("Decisions race for the budget by what they did so far, so that only their fresh pairs can be believed.")
    elif by_task := studies.arriving_by_task(pairs):
        _draw_by_task(by_task)
    decisions = studies.arriving_by_decision(pairs)
    if len(decisions):
        st.markdown("##### Decisions under confirmation, the surest first")
        decisions["e_value"] = [_e_value(log_e) for log_e in decisions["log_e"]]
        tables.show(decisions, key="arriving-decisions", columns=BY_DECISION, height=300)


def _draw_by_task(by_task: dict[str, pd.DataFrame]) -> None:
    """The first round of the screening: one value a task for each operator, the surest one drawn."""
    last = pd.DataFrame([{"operator": operator, **found.iloc[-1].to_dict()} for operator, found in by_task.items()])
    last["e_value"] = [_e_value(log_e) for log_e in last["log_e"]]
    drawn = str(last.loc[last["log_e"].idxmax(), "operator"])
    left, right = st.columns(2, gap="medium")
    with left:
        title = f"Does {safe.plotly_text(drawn)} change passed? Evidence as it arrives"
        figure = figures.arrival(by_task[drawn], title=title, unit="tasks")
        st.plotly_chart(figure, key="study.arrival", config={"displayModeBar": False})
    with right:
        tables.show(last, key="arriving-tasks", columns=BY_TASK, height=min(38 + 35 * len(last), 300))
        st.caption(f"First round of the screening, one value a task: the mean over its decisions. {safe.markdown(_ANYTIME, 600)}")


def _wrong(location: str, name: str, chosen: list[str], n_traces: int) -> str:
    """Return why a study cannot be started so; empty where it can."""
    if not name or not chosen:
        return "Give the study a name and at least one kind of change."
    if not n_traces:
        return "No trace fits the filter. Take a term out of it."
    if any((said := _TITLE.fullmatch(job.title)) and said["name"] == name for job in running(location)):
        return f"A study called {name} is under way. Wait for it, cancel it, or take another name."
    return ""


def _pairs_file(location: str, job_id: str, name: str) -> Path:
    """Where the pairs of a study are: beside its jobs, so that another one of its name goes on with them."""
    return jobs.folder_of(location, job_id).parent / f"study-{safe.file_slug(name)}.jsonl"


def _e_value(log_e: float) -> float:
    return math.exp(min(log_e, 700.0))
