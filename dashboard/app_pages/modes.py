"""Failure modes: which kinds of failure come back, how far is that to be trusted, and which traces show them?"""

from __future__ import annotations

import streamlit as st

from analysis.coherence.modes.profiles import Source
from dashboard import jobs, loading, modes, selection

VIEWS = {"map": "All modes", "mode": "One mode", "compare": "Two modes", "labels": "Beside annotators"}
version = loading.version()
if not loading.n_traces(version):
    st.info("The workspace is empty.", icon=":material/info:")
    selection.link("add_data", "Add data")
    st.stop()


def offer_analysis(text: str) -> None:
    """Say what is missing, beside the button that works it out."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(text, icon=":material/pending:")
        if st.button("Analyse now", type="primary", icon=":material/play_arrow:", key="modes.analyse"):
            selection.go("add_data", job=jobs.start(version.location, "Analyse", ["analyze"]))


if not loading.n_rows(version, "mode_runs"):
    offer_analysis("Failure modes are not worked out yet.")
    st.stop()
if n_waiting := loading.n_not_analysed(version):
    offer_analysis(f"{n_waiting:,} traces came in since: they are in no mode yet.")
with st.container(horizontal=True, horizontal_alignment="distribute"):
    chosen = selection.choose("source", "Source of the profiles", {str(name): words for name, words in modes.SOURCES.items()})
    view = selection.choose("view", "View", VIEWS)
source: Source = "residual" if chosen == "residual" else "orchestration"
run, found = loading.mode_run(version, source), modes.told(loading.modes(version, source))
if view == "map" or found.empty:
    modes.draw_standing(version, source, run, found)
if found.empty:
    st.stop()
if view == "mode":
    modes.draw_mode(version, source, found)
elif view == "compare":
    modes.draw_two(version, source, found)
elif view == "labels":
    modes.draw_labels(version, source)
else:
    modes.draw_all(version, source, found)
