"""Curate: which traces become training data, why each of them or not, what that changes, and what only a person can decide?"""

from __future__ import annotations

import streamlit as st

from dashboard import curation, jobs, loading, policies, reviewing, safe, selection
from dashboard.loading import curation as stored

VIEWS = {"policy": "Policy", "funnel": "Funnel", "change": "Before and after", "review": "Review"}
#: Stages that gates go by -> what gates make of a trace for which one has not run.
NOT_RUN = {
    "quality": "a gate by a metric does with them what its field unknown says",
    "residuals": "they count as traces without tied claims, which the gates coherence and hedging pass",
}
version = loading.version()
if not loading.n_traces(version):
    st.info("The workspace is empty.", icon=":material/info:")
    selection.link("add_data", "Add data")
    st.stop()
not_run = {stage: n for stage in NOT_RUN if (n := loading.n_without(version, stage))}
if missing := [f"The stage {stage} has not run for {n:,} traces: {NOT_RUN[stage]}." for stage, n in not_run.items()]:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(safe.markdown(" ".join(missing), 600), icon=":material/pending:")
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
