"""The parts of a comparison: two runs event by event, two groups metric by metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
import pandas as pd
import streamlit as st

from analysis.model import Event, Trace
from analysis.orchestration.alignment import STATUSES, Alignment
from dashboard import jobs, loading, safe, selection, tables
from dashboard.figures import compare as figures
from dashboard.loading import Version

PLACES = {
    "status": "Status", "differs": "What differs", "kind": "Kind", "action": "Action", "agent_id_a": "Agent in A",
    "agent_id_b": "Agent in B", "content_a": "Text in A", "content_b": "Text in B", "duration_s_delta": "Duration (s), B - A",
    "drag_s_delta": "Drag (s), B - A", "input_tokens_delta": "Tokens in, B - A", "output_tokens_delta": "Tokens out, B - A",
    "error_a": "Error in A", "error_b": "Error in B", "event_id_a": "Event in A", "event_id_b": "Event in B",
}  # fmt: skip
METRICS = {
    "name": "Metric", "value_a": "A", "value_b": "B", "difference": "B - A", "better": "Better", "unit": "Unit",
    "variant": "Variant", "reason": "Why absent",
}  # fmt: skip
GROUPS = {
    "name": "Metric", "variant": "Variant", "difference": "B - A", "low": "Low", "high": "High", "unit": "Unit", "q": "q",
    "how": "How", "n_tasks_both": "Tasks in both", "mean_a": "Mean A", "low_a": "Low A", "high_a": "High A",
    "median_a": "Median A", "mean_b": "Mean B", "low_b": "Low B", "high_b": "High B", "median_b": "Median B",
    "n_a": "Runs A", "n_b": "Runs B", "n_tasks_a": "Tasks A", "n_tasks_b": "Tasks B", "p": "p", "reason": "Why no difference",
}  # fmt: skip
Axis = Literal["order", "time"]
MAX_Q = 0.05  # what is counted as found


def draw_run(run: Trace) -> None:
    """Draw the way to one run, saying what it was and how it ended."""
    outcome = {True: "passed", False: "failed", None: "no outcome"}[run.outcome.passed]
    named = [f"{word}{value}" for word, value in (("", run.groups.condition), ("trial ", run.groups.trial)) if value]
    facts = [outcome, *named, f"{len(run.events):,} events", f"{len(run.agents):,} agents"]
    selection.link("trace", " · ".join(facts), trace=run.trace_id)


def draw_pair(version: Version, a: Trace, b: Trace) -> None:
    """Draw two runs side by side: the counts, the figure, the metrics, the place that is selected, the rows."""
    compared = loading.comparison(version, a.trace_id, b.trace_id)
    for caution in _cautions(a, b):
        st.warning(safe.markdown(caution), icon=":material/warning:")
    draw_alignment(compared, a, b, numbers=lambda: _draw_metrics(version, a, b))


def draw_alignment(
    compared: tuple[Alignment, pd.DataFrame],
    a: Trace,
    b: Trace,
    *,
    numbers: Callable[[], object],
    is_stored: bool = True,
    axis: Axis = "order",
) -> None:
    """Draw what two runs differ in, event by event.

    Parameters
    ----------
    compared : the alignment of the two runs, and the rows of it
    numbers : draws what is told beside the figure
    is_stored : whether the runs are in the workspace, so that their events can be linked to
    axis : along which events are drawn at first
    """
    alignment, places = compared
    if places.empty:
        st.info("Neither run holds any events: there is nothing to align.", icon=":material/info:")
        return
    if not alignment.n_both:
        said = "No event of one run has a counterpart in the other: their agents have other roles, or do other things."
        st.info(said, icon=":material/info:")
    counts = [f"**{n:,}** {safe.markdown(status)}" for status, n in reversed(alignment.counts.items())]
    meanings = "; ".join(f"{status}: {meaning}" for status, meaning in STATUSES.items())
    st.markdown(" · ".join(counts), help=safe.markdown(f"Events. {meanings}", 600))
    selected = _selected(places)
    drawing, beside = st.columns([4, 3], gap="medium")
    with drawing:
        _draw_figure(places, list(alignment.agents), selected, axis)
    with beside:
        numbers()
    if selected is not None:
        _draw_place(a, b, places.loc[selected], is_stored=is_stored)
    st.subheader("Differences, event by event")
    which = selection.choose("rows", "Rows", {"differing": "What differs", "all": "All events"})
    rows = places if which == "all" else places[places["status"] != "same"]
    if rows.empty:
        st.caption("None: the two runs are alike in every event, its text, its causes and its agent.")
        return
    chosen = tables.show(rows.reset_index(drop=True), key="compare-events", columns=PLACES, select="single-row", height=420)
    _pick("rows", int(rows.index[chosen[0]]) if chosen else None)


def draw_groups(version: Version, first: str, second: str) -> None:
    """Draw the differences between the runs that fit two filters: the outcome in a sentence, the figure, all metrics."""
    empty = [name for name, filter in (("A", first), ("B", second)) if not loading.n_traces(version, filter)]
    if empty:
        text = f"No run fits the filter of group {' and of group '.join(empty)}. Take a term out of it."
        st.info(safe.markdown(text), icon=":material/filter_alt_off:")
        return
    table = loading.groups(version, first, second)
    st.markdown(_outcome(table.iloc[0]))
    for caution in loading.group_cautions(version, first, second):
        st.warning(safe.markdown(caution), icon=":material/warning:")
    st.caption(
        "Evidence: observational. These are logs; what differs between the groups may have other causes than what names them."
    )
    if table["low"].notna().any():
        st.plotly_chart(figures.forest(table), key="compare.forest", config={"displayModeBar": False})
    else:
        st.info("Not enough samples for any interval; the table says what each metric lacks.", icon=":material/data_alert:")
    st.subheader("All metrics")
    if n_tested := int(table["q"].notna().sum()):
        found = f"{int((table['q'] <= MAX_Q).sum()):,} of {n_tested:,} differences stand at q ≤ {MAX_Q:.2f}"
        st.caption(
            f"{safe.markdown(found)} (Benjamini and Hochberg, over all of them). Intervals are 95 %, from tasks drawn anew; each "
            "task counts once."
        )
    known_first = table.iloc[table["difference"].isna().argsort(kind="stable")].reset_index(drop=True)
    tables.show(known_first, key="compare-groups", columns=GROUPS, height=520)


def _outcome(row: pd.Series) -> str:
    """The pass rates of two groups in a sentence."""
    sides = []
    for name, group in (("A", "a"), ("B", "b")):
        counted = f"{row[f'n_{group}']:,} runs of {row[f'n_tasks_{group}']:,} tasks"
        mean = row[f"mean_{group}"]
        sides.append(f"**{name}** {'no outcome known' if pd.isna(mean) else f'**{mean:.0%}** passed, {counted}'}")
    text = " · ".join(sides)
    if pd.isna(row["difference"]):
        return f"{text} · {safe.markdown(row['reason'])}"
    how = f"paired within {row['n_tasks_both']:,} tasks" if row["how"] == "paired" else "unpaired, of the two means"
    interval = f"95 % interval {100 * row['low']:+.0f} to {100 * row['high']:+.0f}"
    return f"{text} · difference **{100 * row['difference']:+.0f}** points, {interval}, {how}"


def _cautions(a: Trace, b: Trace) -> list[str]:
    found = ["This is one run beside itself."] if a.trace_id == b.trace_id else []
    tasks = [run.groups.task or run.task.task_id for run in (a, b)]
    if tasks[0] != tasks[1]:
        found.append(f"The runs are about different tasks: A {tasks[0] or 'unknown'}, B {tasks[1] or 'unknown'}.")
    if a.world != b.world:
        found.append(f"The runs are of different worlds: A {a.world}, B {b.world}.")
    return found


def _selected(places: pd.DataFrame) -> int | None:
    text = selection.get("place") or ""
    return int(text) if text.isdecimal() and int(text) in places.index else None


def _draw_figure(places: pd.DataFrame, agents: list[tuple[str | None, str | None]], selected: int | None, first: Axis) -> None:
    axis: Axis = "order"
    if places["start_s_a"].notna().any() and places["start_s_b"].notna().any():
        names = {"order": "Like under like", "time": "By time"}
        axis = "time" if selection.choose("axis", "Axis", {first: names[first], **names}) == "time" else "order"
    figure = figures.side_by_side(places, agents, axis=axis, selected=selected)
    clicked = st.plotly_chart(figure, key=f"compare.figure.{axis}", on_select="rerun", selection_mode="points")
    points = [point["customdata"] for point in clicked["selection"]["points"] if point.get("customdata")]
    _pick("figure", int(points[0][0]) if points else None)


def _pick(source: str, place: int | None) -> None:
    """Put what was picked into the address, once: a table and a figure go on reporting what was picked before."""
    if place is not None and st.session_state.get(f"compare.picked.{source}") != place:
        st.session_state[f"compare.picked.{source}"] = place
        selection.put(place=str(place))
        st.rerun()


def _draw_metrics(version: Version, a: Trace, b: Trace) -> None:
    rows = loading.two_metrics(version, a.trace_id, b.trace_id)
    if rows.empty:
        st.info("These runs are not analysed yet: they have no metrics.", icon=":material/pending:")
        if st.button("Analyse now", type="primary", icon=":material/play_arrow:", key="compare.analyse"):
            selection.go("add_data", job=jobs.start(version.location, "Analyse", ["analyze"]))
        return
    tables.show(rows, key="compare-metrics", columns=METRICS, height=430)


def _draw_place(a: Trace, b: Trace, place: pd.Series, *, is_stored: bool) -> None:
    """The two events of a place in full, side by side."""
    differs = [name for name in place["differs"].split(", ") if name]
    what = f"{place['kind']}, {place['status']}{': ' if differs else ''}{', '.join(differs)}"
    st.markdown("#### " + safe.markdown(what, 160))
    for column, run, side in zip(st.columns(2, gap="medium"), (a, b), "ab", strict=True):
        with column:
            event = next((event for event in run.events if event.event_id == place[f"event_id_{side}"]), None)
            if event is None:
                st.caption(f"Run {side.upper():s} has no such event.")
                continue
            label = f"{side.upper()}: {event.agent_id or 'no agent'}, {event.event_id}"
            if is_stored:
                selection.link("trace", label, trace=run.trace_id, event=event.event_id)
            else:
                st.markdown(f"**{safe.markdown(label, 120)}**")
            for name in differs:
                if name in _SHOWN:
                    st.text(safe.line(f"{_SHOWN[name]}: {_worded(event, name)}"))
            if event.content:
                safe.text_block(event.content, key=f"compare.text.{side}")
            else:
                st.caption("This event has no text of its own.")


#: What can differ besides the text, as a reader calls it.
_SHOWN = {
    "causes": "waits for", "targets": "to", "agent": "by", "name": "name", "error": "error", "task_split": "task split",
    "assignment": "assignment", "context_package": "context package", "message_type": "message type", "strategy": "strategy",
    "merge_kind": "merge kind", "condition": "condition", "final_state": "final state",
}  # fmt: skip


def _worded(event: Event, name: str) -> str:
    if name == "causes":
        return ", ".join((*event.parents, *event.merge_points)) or "nothing"
    if name == "targets":
        return ", ".join(event.targets) or "nobody"
    value = event.agent_id if name == "agent" else event.payload.get(name, getattr(event, name))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode() if value else "none"
