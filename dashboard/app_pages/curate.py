"""Curate: which traces become training data, why each of them or not, what that changes, and what only a person can decide?"""

from __future__ import annotations

import streamlit as st

from dashboard import curation, jobs, loading, policies, reviewing, selection
from dashboard.loading import curation as stored

VIEWS = {"policy": "Policy", "funnel": "Funnel", "change": "Before and after", "review": "Review"}
version = loading.version()
if not loading.n_traces(version):
    st.info("The workspace is empty.", icon=":material/info:")
    selection.link("add_data", "Add data")
    st.stop()
if n_waiting := loading.n_not_analysed(version):
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(f"{n_waiting:,} traces are not analysed: gates know nothing of them.", icon=":material/pending:")
        if st.button("Analyse now", icon=":material/play_arrow:", key="curate.analyse"):
            selection.go("add_data", job=jobs.start(version.location, "Analyse", ["analyze"]))
names = list(stored.saved(version))
with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    view = selection.choose("view", "View", VIEWS if names else {"policy": "Policy"})
    name = selection.choose("dataset", "Data set", {name: f"data set {name}" for name in names}) if view != "policy" else ""
if view == "policy":
    policies.draw(version)
else:
    curation.draw_head(version, name)
    {"funnel": curation.draw_funnel, "change": curation.draw_change, "review": reviewing.draw}[view](version, name)
    st.divider()
    selection.link("export", f"Next: export and train on {name}", dataset=name)
