"""Trace: who did what, when and why, in this one run?"""

from __future__ import annotations

import streamlit as st

from analysis.errors import UnknownNameError
from dashboard import details, loading, network, notes, safe, selection, swimlane, tables
from dashboard.loading.effects import credit_lanes

VIEWS = {
    "lanes": "Lanes", "graph": "Graph", "events": "Events", "quality": "Findings and metrics", "claims": "Claims and coherence",
    "record": "Record",
}  # fmt: skip
version = loading.version()
wanted = selection.get("trace")
if wanted is None:
    found = loading.traces_page(version, "", "trace_id", False, 50, 0)
    if found.empty:
        st.info("The workspace is empty.", icon=":material/info:")
        selection.link("add_data", "Add data")
        st.stop()
    st.info("No trace is chosen yet. Choose one here, or find it on Traces.", icon=":material/info:")
    headings = {"trace_id": "Trace", "task_text": "Task", "n_events": "Events"}
    if chosen := tables.show(found, key="choose", columns=headings, select="single-row"):
        selection.go("trace", trace=found["trace_id"].iloc[chosen[0]])
    selection.link("traces", "Find a trace")
    st.stop()
try:
    trace = loading.trace(version, wanted)
except UnknownNameError as error:
    st.error(safe.markdown(str(error)), icon=":material/error:")
    selection.link("traces", "Find a trace", filter=wanted)
    st.stop()

details.draw_header(version, trace)
ids = [event.event_id for event in trace.events]
view = selection.choose("view", "View", VIEWS)
selected = selection.get("event")
if selected is not None and selected not in ids:
    st.warning(safe.markdown(f"This trace has no event {selected}."), icon=":material/search_off:")
    selected = None
marked = details.draw_pattern(version, trace) if view in ("lanes", "events") else []


def pick(position: int | None) -> None:
    """Put what was picked in the lanes into the address."""
    selection.put(event=ids[position] if position is not None and position < len(ids) else None)


def draw_lanes() -> None:
    """The lanes; what is selected and shown in them is in the address when the page runs next."""
    axis = selection.choose("axis", "Axis", {"time": "By time", "order": "By order"}) if trace.clock is not None else "order"
    by_credit = details.choose_credit(version, trace.trace_id)
    swimlane.draw(
        credit_lanes(version, trace.trace_id, *by_credit) if by_credit else loading.lanes(version, trace.trace_id),
        selected=ids.index(selected) if selected is not None else None,
        axis=axis,
        shown=selection.interval(),
        marked=marked,
        on_pick=pick,
        on_show=selection.put_interval,
    )


def draw_table() -> None:
    """The events as a table."""
    chosen = tables.show(details.event_rows(trace), key="events", columns=details.EVENT_COLUMNS, select="single-row", height=620)
    # A row counts once: the page remembers the last one, so that Previous and Next can move on from it.
    if chosen and st.session_state.get("trace.row") != (trace.trace_id, chosen[0]):
        st.session_state["trace.row"] = (trace.trace_id, chosen[0])
        pick(chosen[0])
        st.rerun()


if view == "graph":
    events, agents = loading.rows(version, "events", trace.trace_id), loading.rows(version, "agents", trace.trace_id)
    nodes, edges, caption = network.orchestration_graph(events, agents)
    st.caption(safe.markdown(caption))
    html = network.orchestration_html(nodes, edges, dark=st.context.theme.type == "dark", height_px=560)
    st.iframe(network.data_url(html), height=580, alt="Orchestration graph; the events view holds the same as a table")
elif view == "quality":
    details.draw_quality(version, trace)
elif view == "claims":
    details.draw_claims(version, trace)
elif view == "record":
    details.draw_record(version, trace)
elif not ids:
    st.info("This trace holds no events: its source stated none.", icon=":material/info:")
else:
    main, side = st.columns([3, 2], gap="medium")
    with main:
        if view == "lanes":
            draw_lanes()
        else:
            draw_table()
    with side:
        if selected is None:
            st.caption("Nothing is selected; this is how the run begins.")
        shown = selected or ids[0]
        details.draw_event(trace, ids.index(shown), loading.times(version, trace.trace_id))
        details.draw_credit(version, trace.trace_id, shown)
        notes.draw(version, trace.trace_id, shown)
st.subheader("Tags and notes on this trace")
notes.draw(version, trace.trace_id)
