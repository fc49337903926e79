"""The lanes put every event where and when it happened, and say what they leave out."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from dashboard.figures import KIND_COLORS, KIND_SHAPES, SELECTED
from dashboard.figures.lanes import MAX_EDGES, MAX_MARKS, lanes

COLUMNS = ["event_id", "kind", "agent_id", "parents", "order", "t_start_s", "t_end_s"]
AGENTS = pd.DataFrame({"agent_id": ["idle", "lead", "a"], "component": ["idle", "planner", "a"]})


def frame(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """Return an events frame of (event_id, kind, agent_id, parents, t_start_s, t_end_s), in this order."""
    events = pd.DataFrame(
        [(i, kind, agent, json.dumps(parents), n, start, end) for n, (i, kind, agent, parents, start, end) in enumerate(rows)],
        columns=COLUMNS,
    )
    return events.assign(action="call", targets=None)


RUN = frame(
    ("d", "delegate", "lead", [], 1000.0, None),
    ("w", "act", "a", ["d"], 1001.0, 1005.0),
    ("n", "act", "a", ["w"], 1002.0, 1003.0),
    ("e", "stop", "lead", ["n"], 1010.0, 1010.0),
)


def bars(figure: go.Figure) -> dict[str, tuple[float, float, float, float]]:
    """Return event -> (start, duration, y, thickness)."""
    return {
        event[0]: (base, x, y, width)
        for trace in figure.data
        if trace.type == "bar"
        for event, base, x, y, width in zip(trace.customdata, trace.base, trace.x, trace.y, trace.width, strict=True)
    }


def points(figure: go.Figure) -> dict[str, tuple[float, float, str]]:
    """Return event -> (x, y, symbol), without the ring around the selected one."""
    return {
        event[0]: (x, y, trace.marker.symbol)
        for trace in figure.data
        if trace.type == "scatter" and trace.mode == "markers" and trace.marker.symbol != "circle-open"
        for event, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    }


def lines(figure: go.Figure, color: str | None = None) -> list[tuple[float, float]]:
    """Return (x of the cause, x of the effect) of the lines, of the selected event's or of the others."""
    chosen = [
        t for t in figure.data if t.type == "scatter" and t.mode == "lines" and (t.line.color == SELECTED) == (color == SELECTED)
    ]
    return [pair for trace in chosen for pair in zip(trace.x[::3], trace.x[1::3], strict=True)]


def test_time_counts_from_the_first_event_and_bars_last_as_long_as_their_events() -> None:
    figure = lanes(RUN, AGENTS, axis="time")
    assert bars(figure) == {
        "w": (1.0, 4.0, pytest.approx(1 - 0.19), pytest.approx(0.342)),
        "n": (2.0, 1.0, pytest.approx(1 + 0.19), pytest.approx(0.342)),
    }
    assert points(figure) == {"d": (0.0, 0.0, "square"), "e": (10.0, 0.0, "star")}
    assert figure.layout.xaxis.title.text == "seconds since the run began"
    assert figure.layout.title.text == "Who did what, when?"
    assert figure.layout.title.subtitle.text == "4 events"


def test_order_draws_a_mark_at_each_place() -> None:
    figure = lanes(RUN, AGENTS, axis="order")
    assert points(figure) == {"d": (0, 0, "square"), "w": (1, 1, "hexagon"), "n": (2, 1, "hexagon"), "e": (3, 0, "star")}
    assert bars(figure) == {}
    assert figure.layout.xaxis.title.text == "event order"


def test_lanes_run_from_who_enters_first_down_to_who_never_acts() -> None:
    figure = lanes(RUN, AGENTS, axis="order")
    assert figure.layout.yaxis.ticktext == ("lead", "a", "idle")
    assert figure.layout.yaxis.range == (2.5, -0.5)
    assert figure.layout.yaxis.title.text == "agent"


def test_each_kind_has_its_color_its_shape_and_one_entry_in_the_legend() -> None:
    rows = [(kind, kind, "lead", [], float(n), n + 0.9) for n, kind in enumerate(KIND_COLORS)]
    rows += [(f"{kind}-point", kind, "a", [], float(n), None) for n, kind in enumerate(KIND_COLORS)]
    figure = lanes(frame(*rows), AGENTS, axis="time")
    marks = [trace for trace in figure.data if trace.type == "bar" or trace.mode == "markers"]
    assert {(t.name, t.marker.color) for t in marks} == set(KIND_COLORS.items())
    assert {t.name: t.marker.symbol for t in marks if t.type == "scatter"} == {k: s[0] for k, s in KIND_SHAPES.items()}
    listed = sorted((t.legendrank, t.name) for t in marks if t.showlegend is not False)
    assert [name for _, name in listed] == list(KIND_COLORS)


def test_a_missing_or_unknown_kind_is_opaque_and_a_missing_agent_has_a_lane() -> None:
    figure = lanes(frame(("x", None, None, [], None, None), ("y", "party", "a", [], None, None)), AGENTS, axis="order")
    assert [trace.name for trace in figure.data if trace.mode == "markers"] == ["opaque"]
    assert figure.layout.yaxis.ticktext == ("(no agent)", "a", "idle", "lead")


def test_a_line_runs_from_cause_to_effect_between_lanes_and_never_backwards() -> None:
    figure = lanes(RUN, AGENTS, axis="time")
    assert lines(figure) == [(0.0, 1.0), (3.0, 10.0)]
    assert lines(figure, SELECTED) == []
    assert lines(lanes(RUN, AGENTS, axis="time", selected="n")) == [(0.0, 1.0)]


def test_the_selected_event_has_a_ring_and_lines_to_its_causes_and_effects() -> None:
    figure = lanes(RUN, AGENTS, axis="time", selected="n")
    assert lines(figure, SELECTED) == [(2.0, 2.0), (3.0, 10.0)]
    [ring] = [
        trace
        for trace in figure.data
        if trace.type == "scatter" and trace.mode == "markers" and trace.marker.symbol == "circle-open"
    ]
    assert (ring.marker.symbol, ring.x, ring.customdata) == ("circle-open", (2.0,), (["n"],))


def test_the_hover_says_who_what_when() -> None:
    figure = lanes(RUN.assign(targets=['["a"]', None, None, None]), AGENTS, axis="time")
    hover = {
        event[0]: text
        for trace in figure.data
        if trace.customdata
        for event, text in zip(trace.customdata, trace.hovertext, strict=True)
    }
    assert hover["d"] == "delegate: call<br>by lead (planner) to a<br>0.00 s, no duration<br>event d"
    assert hover["w"] == "act: call<br>by a<br>1.00 s to 5.00 s (4.00 s)<br>event w"


def test_names_from_the_trace_are_text() -> None:
    hostile = "<b onclick=x>%{customdata}</b>"
    agents = pd.DataFrame({"agent_id": [hostile], "component": [hostile]})
    figure = lanes(frame((hostile, "act", hostile, [], None, None)).assign(action=hostile), agents, axis="order")
    [mark] = [trace for trace in figure.data if trace.mode == "markers"]
    assert mark.hovertemplate is None
    assert "%{" not in mark.hovertext[0]
    assert "<b " not in mark.hovertext[0] + figure.layout.yaxis.ticktext[0]
    assert mark.customdata == ([hostile],)


def test_events_without_a_time_are_counted_and_a_lone_end_is_a_point() -> None:
    figure = lanes(
        frame(("a", "act", "a", [], 5.0, 7.0), ("b", "act", "a", [], None, 6.0), ("c", "act", "a", [], None, None)), AGENTS
    )
    assert figure.layout.title.subtitle.text == "2 of 3 events drawn; 1 without a time"
    assert bars(figure).keys() == {"a"}
    assert points(figure)["b"][0] == 1.0


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (pd.DataFrame(), "This trace has no events."),
        (RUN.assign(t_start_s=None, t_end_s=None), "None of the 4 events has a time; draw them by order."),
    ],
)
def test_nothing_to_draw_says_why(events: pd.DataFrame, why: str) -> None:
    figure = lanes(events, pd.DataFrame(), axis="time")
    assert [note.text for note in figure.layout.annotations] == [why]
    assert figure.data == ()


def many(n: int, n_parents: int = 1) -> pd.DataFrame:
    rows = [(f"e{k}", "act", f"a{k % 2}", [f"e{p}" for p in range(max(0, k - n_parents), k)], None, None) for k in range(n)]
    return frame(*rows)


@pytest.mark.parametrize(("selected", "first"), [(None, 0), ("e0", 0), ("e1500", 500), ("e2499", 500)])
def test_of_too_many_events_those_around_the_selected_one_are_drawn(selected: str | None, first: int) -> None:
    figure = lanes(many(2_500), AGENTS, axis="order", selected=selected)
    assert sorted(x for x, _, _ in points(figure).values()) == list(range(first, first + MAX_MARKS))
    assert figure.layout.title.subtitle.text.startswith("2,000 of 2,500 events drawn; select an event to see those around it")


def test_of_too_many_lines_those_of_the_selected_event_are_drawn_first() -> None:
    figure = lanes(many(1_000, n_parents=4), AGENTS, axis="order", selected="e900")
    assert len(lines(figure, SELECTED)) == 8
    assert len(lines(figure)) == MAX_EDGES - 8
    # Of each event's causes 1 and 3 places before it are in the other lane; those within its lane are not drawn.
    assert figure.layout.title.subtitle.text == "1,000 events; 1,500 of 2,000 lines from cause to effect drawn"


def test_what_overlaps_in_a_lane_gets_rows_of_its_own_up_to_six() -> None:
    rows = [(f"e{n}", "act", "a", [], float(n), 100.0) for n in range(8)]
    drawn = bars(lanes(frame(*rows), AGENTS, axis="time"))
    assert len({y for _, _, y, _ in drawn.values()}) == 6
    assert all(-0.5 < y < 0.5 for _, _, y, _ in drawn.values())


def test_the_input_is_left_alone_and_equal_input_gives_equal_figures() -> None:
    before, agents_before = RUN.copy(), AGENTS.copy()
    assert lanes(RUN, AGENTS, axis="time") == lanes(RUN, AGENTS, axis="time")
    pd.testing.assert_frame_equal(RUN, before)
    pd.testing.assert_frame_equal(AGENTS, agents_before)


def test_no_webgl() -> None:
    assert {trace.type for trace in lanes(RUN, AGENTS, axis="time", selected="n").data} == {"bar", "scatter"}
