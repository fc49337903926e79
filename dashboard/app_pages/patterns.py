"""Patterns: which ways of working recur, and which of them go with good and with bad runs?"""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from analysis.orchestration.patterns.graphs import LABELLINGS
from dashboard import jobs, loading, patterns, safe, selection

MEANINGS = {
    "roles": "kind of step and role of the agent", "kinds": "kind of step only", "components": "kind of step and component",
    "actions": "kind of step, action and role", "decisions": "roles, with strategy and stop condition",
    "shapes": "roles, equal branches counted as 1, 2 or many",
}  # fmt: skip
VIEWS = {"families": "Families", "patterns": "Patterns", "worse": "Anti-patterns", "two": "Two families", "library": "Library"}
version = loading.version()
n_traces = loading.n_traces(version)
if not n_traces:
    st.info("The workspace is empty.", icon=":material/info:")
    selection.link("add_data", "Add data")
    st.stop()


def draw_options(run: dict[str, Any] | None) -> None:
    """What to mine for; a job does it, and later analyses keep to it."""
    before = json.loads(run["labelling"])["name"] if run else "roles"
    with st.form("patterns.options", border=False):
        names = list(LABELLINGS)
        labelling = st.selectbox(
            "What is told apart", names, index=names.index(before) if before in names else 0, key="patterns.labelling",
            format_func=lambda name: f"{name}: {MEANINGS.get(name, '')}",
        )  # fmt: skip
        least = st.number_input(
            "In at least this share of the traces", 0.001, 1.0, run["min_support"] if run else 0.1, 0.01, format="%.3f"
        )
        most = st.number_input("Edges at most", 1, 20, int(run["max_edges"]) if run else 5)
        ordered = st.checkbox("The order of edges in time counts", bool(run["ordered"]) if run else False)
        if st.form_submit_button("Mine", icon=":material/play_arrow:"):
            options = ["--labelling", labelling, "--min-support", f"{least:g}", "--max-edges", f"{most:d}"]
            command = ["mine", *options, *(["--ordered"] if ordered else [])]
            selection.go("add_data", job=jobs.start(version.location, "Mine patterns", command))


run = loading.pattern_run(version)
if run is None:
    st.info("Patterns are not mined yet.", icon=":material/pending:")
    if st.button("Analyse now", type="primary", icon=":material/play_arrow:", key="patterns.analyse"):
        selection.go("add_data", job=jobs.start(version.location, "Analyse", ["analyze"]))
    draw_options(None)
    st.stop()

with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    view = selection.choose("view", "View", VIEWS)
    mined = f"{json.loads(run['labelling'])['name']}, {run['min_support']:.3g} of runs or more, up to {run['max_edges']} edges"
    with st.popover(f"Mined: {safe.markdown(mined + ', in order' * run['ordered'])}", icon=":material/tune:"):
        draw_options(run)
if run["n_graphs"] != n_traces:
    st.warning(
        f"Mined over {run['n_graphs']:,} runs, and there are {n_traces:,} now. Mine again to take in the others.",
        icon=":material/sync_problem:",
    )
for note in json.loads(run["notes"]):
    st.caption(safe.markdown(note, 600))
if view == "worse":
    patterns.draw_worse(version)
elif view == "two":
    patterns.draw_two(version)
else:
    draw = {"families": patterns.draw_families, "patterns": patterns.draw_patterns, "library": patterns.draw_library}[view]
    draw(version, run)
