"""Curriculum: which tasks are hard for which model, which are hard to lead a team through, and what to train on when?"""

from __future__ import annotations

import streamlit as st

from dashboard import curriculum, jobs, loading, safe, selection
from dashboard.loading import curriculum as stored

VIEWS = {"map": "Difficulty", "schedule": "Schedule", "models": "Between them", "tables": "Pass tables"}
version = loading.version()


def offer(text: str) -> None:
    """Say what is missing, beside the button that works it out."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(text, icon=":material/pending:")
        if st.button("Analyse now", type="primary", icon=":material/play_arrow:", key="curriculum.analyse"):
            selection.go("add_data", job=jobs.start(version.location, "Analyse", ["analyze"]))


run, rows = stored.difficulty_run(version), stored.difficulty(version)
if not loading.n_traces(version) and rows.empty:
    st.info("The workspace is empty. Traces give difficulty where tasks are tried more than once.", icon=":material/info:")
    selection.link("add_data", "Add data")
    curriculum.draw_pass_tables(version)
    st.stop()
if run is None:
    offer("Difficulty is not worked out yet.")
    st.stop()
if n_waiting := loading.n_not_analysed(version):
    offer(f"{n_waiting:,} traces are not analysed: they may not count here yet.")
reference = stored.reference(version)
with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    known = rows[rows["d_req"].notna()]["model"].value_counts()
    names = {str(name): str(name) for name in known.index}
    model = selection.choose("model", "Model or condition", {"": "All models or conditions", **names})
    view = selection.choose("view", "View", VIEWS)
    with st.popover("Thresholds", icon=":material/tune:"):
        curriculum.draw_reference(version, reference)
st.caption(
    "Model or condition: the models that the agents of a run state; where they state none, what the run was made under, such as "
    "a team or a subset."
)
if view == "schedule":
    curriculum.draw_schedule(version, rows, model)
elif view == "models":
    curriculum.draw_models(version, rows)
elif view == "tables":
    curriculum.draw_pass_tables(version)
else:
    curriculum.draw_map(rows, run, reference, model)
if rows.empty:
    st.caption(safe.markdown("No run has both a task and a model or condition, so there is nothing to count."))
