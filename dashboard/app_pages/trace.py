"""Trace: who did what, when and why, in this one run?"""

from __future__ import annotations

import streamlit as st

from analysis.errors import UnknownNameError
from dashboard import details, loading, network, notes, safe, selection, tables
from dashboard.figures.lanes import lanes

VIEWS = {"lanes": "Lanes", "graph": "Graph", "events": "Events", "claims": "Claims and labels", "record": "Record and problems"}
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

details.draw_header(trace)
events, agents = loading.rows(version, "events", trace.trace_id), loading.rows(version, "agents", trace.trace_id)
ids = [event.event_id for event in trace.events]
view = selection.choose("view", "View", VIEWS)
selected = selection.get("event")
if selected not in ids:
    if selected:
        st.warning(safe.markdown(f"This trace has no event {selected}."), icon=":material/search_off:")
    selected = ids[0] if ids else None


def draw_lanes() -> str | None:
    """The lane chart; returns the event that was clicked."""
    has_clock = bool(events["t_start_s"].notna().any()) if len(events) else False
    by_time = has_clock and selection.choose("axis", "Axis", {"time": "By time", "order": "By order"}) == "time"
    if not has_clock and ids:
        st.caption("The source has no times, so events stand in their order.")
    figure = lanes(events, agents, axis="time" if by_time else "order", selected=selected)
    key = f"trace.lanes.{trace.trace_id}.{by_time}"
    clicked = st.plotly_chart(figure, key=key, on_select="rerun", selection_mode="points")
    points = [point["customdata"] for point in clicked["selection"]["points"] if point.get("customdata")]
    return str(points[0][0]) if points else None


def draw_table() -> str | None:
    """The events as a table; returns the one that was selected."""
    rows = details.event_rows(trace)
    chosen = tables.show(rows, key="events", columns=details.EVENT_COLUMNS, select="single-row", height=620)
    return ids[chosen[0]] if chosen else None


if view == "graph":
    nodes, edges, caption = network.orchestration_graph(events, agents)
    st.caption(safe.markdown(caption))
    html = network.orchestration_html(nodes, edges, dark=st.context.theme.type == "dark", height_px=560)
    st.iframe(network.data_url(html), height=580, alt="Orchestration graph; the events view holds the same as a table")
elif view == "claims":
    details.draw_claims(trace)
elif view == "record":
    details.draw_record(version, trace)
else:
    main, side = st.columns([3, 2], gap="medium")
    with main:
        picked = draw_lanes() if view == "lanes" else draw_table()
    # A click counts once: the view remembers its last pick, so that Previous and Next can move on from it.
    if picked and st.session_state.get("trace.picked") != (view, picked):
        st.session_state["trace.picked"] = (view, picked)
        selection.put(event=picked)
        st.rerun()
    with side:
        if selected is None:
            st.info("This trace holds no events: its source stated none.", icon=":material/info:")
        else:
            details.draw_event(trace, ids.index(selected))
            notes.draw(version, trace.trace_id, selected)
st.subheader("Tags and notes on this trace")
notes.draw(version, trace.trace_id)
