"""The keys of the whole page: `/` filter, `j` and `k` through the events, `k d e` to review, `?` what there is.

A key presses a button that is there to be seen, so that nothing can be done by key alone.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_listen = st.components.v2.component("counterpoint_keys", js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8"))

KEYS = {
    "/": "go to the filter; from elsewhere, to Traces",
    "j, k": "next and previous event, in Lanes and Events",
    "n, p": "next and previous event of the same kind",
    "k, d, e": "in Review, on Curate: keep, drop, edit the trace that waits; j or n: the next one",
    "], [": "next and previous trace of the filtered list",
    "arrows, + - 0": "in the swim-lane: walk along and across lanes, zoom, fit",
    "Esc": "leave a field, close a window",
    "?": "this list",
}


def draw() -> None:
    """Listen for keys, and draw the button that says which there are."""
    _listen(key="app.listen")
    if st.sidebar.button("Keys", key="app.keys", type="tertiary", icon=":material/keyboard:"):
        _explain()


@st.dialog("Keys")
def _explain() -> None:
    st.table({"Key": list(KEYS), "What it does": list(KEYS.values())})
