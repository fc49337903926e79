"""Compare: what differs between two runs of a task, or between two groups of runs?"""

from __future__ import annotations

import streamlit as st

from analysis.errors import UnknownNameError
from analysis.model import Trace
from dashboard import comparing, loading, safe, selection, tables

RUNS = {
    "condition": "Condition", "trial": "Trial", "passed": "Passed", "score": "Score", "n_agents": "Agents", "n_events": "Events",
    "makespan_s": "Makespan (s)", "trace_id": "Trace", "task_text": "Task",
}  # fmt: skip
version = loading.version()


def draw_runs() -> None:
    """Two runs; their ids stand in the address, are written here or chosen from a table."""
    labels = {"a": "First run (A)", "b": "Second run (B)"}
    runs: dict[str, Trace] = {}
    is_wrong = False
    for column, (name, label) in zip(st.columns(2, gap="medium"), labels.items(), strict=True):
        with column:
            wanted = selection.write(name, label, placeholder="a trace id, or the end of one")
            try:
                if wanted:
                    runs[name] = loading.trace(version, wanted)
                    comparing.draw_run(runs[name])
            except UnknownNameError as error:
                st.error(safe.markdown(str(error)), icon=":material/error:")
                is_wrong = True
    if len(runs) == 2:
        comparing.draw_pair(version, runs["a"], runs["b"])
    elif not is_wrong:
        draw_choice("b" if "a" in runs else "a", next(iter(runs.values()), None))


def draw_choice(which: str, other: Trace | None) -> None:
    """The runs that can be put beside the other one."""
    rows = loading.comparable(version, other.trace_id if other else None)
    if other is None:
        say = "Choose the first of two runs here, or write its id above. Tasks that were run more than once come first."
    elif rows["is_same_task"].any():
        say = "Choose the second run; these are the other runs of this task."
    else:
        say = "No other run is about this task. Choose any other one; what the two teams did can be aligned all the same."
    st.info(say, icon=":material/info:")
    if chosen := tables.show(rows, key=f"compare-{which}", columns=RUNS, select="single-row", height=430):
        selection.put(**{which: rows["trace_id"].iloc[chosen[0]]})
        st.rerun()


def draw_groups() -> None:
    """Two groups of runs; their filters stand in the address, are written here or suggested."""
    labels = {"fa": "Group A", "fb": "Group B"}
    filters = {}
    for column, (name, label) in zip(st.columns(2, gap="medium"), labels.items(), strict=True):
        with column:
            filters[name] = selection.write(name, label, placeholder="condition:parallel  model:large  date>=2026-03-01")
    if all(filters.values()):
        comparing.draw_groups(version, filters["fa"], filters["fb"])
        return
    st.info("Write a filter for each group, as on Traces, or take one of these pairs.", icon=":material/info:")
    for found in loading.group_suggestions(version):
        label = f"{found.first} against {found.second}: {found.reason}"
        selection.link("compare", label, view="groups", fa=found.first, fb=found.second)


if not loading.n_traces(version):
    st.info("The workspace is empty.", icon=":material/info:")
    selection.link("add_data", "Add data")
    st.stop()
views = {"traces": "Two runs", "groups": "Two groups"}
if selection.choose("view", "What to compare", views) == "traces":
    draw_runs()
else:
    draw_groups()
