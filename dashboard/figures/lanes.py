"""Who did what, when: one lane an agent, one mark an event, lines from causes to effects.

Hides how events that overlap in one lane are kept apart and which events are drawn where there are too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import FAINT, KIND_COLORS, KIND_SHAPES, NO_AGENT, SELECTED, ids_of, kind_of
from dashboard.safe import plotly_text

MAX_MARKS = 2_000
MAX_EDGES = 1_500
_MAX_ROWS = 6  # rows in a lane; more overlap in the last
_LANE = 0.76  # of the distance between two lanes
_OUTLINE = {"color": "#6b7680", "width": 1}
_POINT = 0.004  # of the axis: what is shorter is drawn as a point


class _Drawn(NamedTuple):
    event_id: str
    kind: str
    lane: int
    start: float
    end: float
    y: float
    thickness: float
    parents: list[str]
    hover: str


_Tie = tuple[_Drawn, _Drawn]  # cause, effect


def lanes(
    events: pd.DataFrame, agents: pd.DataFrame, *, axis: Literal["time", "order"] = "time", selected: str | None = None
) -> go.Figure:
    """Draw the events of one trace, one lane an agent, in time or in order.

    Parameters
    ----------
    events : event_id, kind, action, agent_id, targets, parents (JSON lists), order, t_start_s, t_end_s
    agents : agent_id, component
    axis : `time` draws a bar from start to end, in seconds since the first event; `order` a mark at `order`
    selected : the event to ring, with lines to its causes and effects

    Returns
    -------
    A figure whose marks carry `customdata = [event_id]`, so that a click can be read. At most 2,000 events
    and 1,500 lines are drawn, around the selected event; the subtitle says how many of how many.
    """
    if events.empty:
        return _empty("This trace has no events.")
    placed = _placed(events, axis)
    if placed.empty:
        return _empty(f"None of the {len(events):,} events has a time; draw them by order.")
    agents = agents.reindex(columns=["agent_id", "component"])
    window = _window(placed, selected)
    names = _lane_names(window, agents)
    drawn = _drawn(window, agents, names, axis)
    strong, faint = _ties(drawn, selected)
    figure = go.Figure([*_lines(strong, faint), *_marks(drawn), *_ring(drawn, selected)])
    return _laid_out(figure, names, axis, _subtitle(len(drawn), len(placed), len(events), len(strong) + len(faint)))


def _placed(events: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Return the events that have a place on the axis, with `x0` and `x1`, from left to right."""
    if axis == "order":
        start = end = events["order"].astype(float)
    else:
        start = events["t_start_s"].fillna(events["t_end_s"]).astype(float)
        end = events["t_end_s"].astype(float).fillna(start)
        start, end = start - start.min(), end - start.min()
    placed = events.assign(x0=start, x1=end.clip(lower=start))
    return placed[start.notna()].sort_values(["x0", "order"], kind="stable")


def _window(placed: pd.DataFrame, selected: str | None) -> pd.DataFrame:
    at = placed["event_id"].tolist().index(selected) if selected in set(placed["event_id"]) else 0
    first = max(0, min(at - MAX_MARKS // 2, len(placed) - MAX_MARKS))
    return placed.iloc[first : first + MAX_MARKS]


def _lane_names(window: pd.DataFrame, agents: pd.DataFrame) -> list[str]:
    """Return the agents from top to bottom: as they enter, then those that never act."""
    acting = window["agent_id"].fillna(NO_AGENT)
    return list(dict.fromkeys([*acting, *agents["agent_id"]]))


def _drawn(window: pd.DataFrame, agents: pd.DataFrame, names: list[str], axis: str) -> list[_Drawn]:
    lane_of = {name: n for n, name in enumerate(names)}
    component_of = dict(zip(agents["agent_id"], agents["component"], strict=True))
    rows = list(window.assign(agent_id=window["agent_id"].fillna(NO_AGENT)).itertuples(index=False))
    lane = [lane_of[row.agent_id] for row in rows]
    places = _rows(lane, [(row.x0, row.x1) for row in rows])
    return [
        _Drawn(
            event_id=row.event_id,
            kind=kind_of(row.kind),
            lane=n,
            start=row.x0,
            end=row.x1,
            y=n + y,
            thickness=thickness,
            parents=ids_of(row.parents),
            hover=_hover(row, component_of.get(row.agent_id), axis),
        )
        for row, n, (y, thickness) in zip(rows, lane, places, strict=True)
    ]


def _rows(lane: Sequence[int], spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return (offset from the middle of the lane, thickness): what overlaps in a lane gets rows of its own."""
    busy_until: dict[int, list[float]] = {}
    row_of = []
    for n, (start, end) in zip(lane, spans, strict=True):
        ends = busy_until.setdefault(n, [])
        free = next((row for row, until in enumerate(ends) if until <= start), min(len(ends), _MAX_ROWS - 1))
        ends[free : free + 1] = [end]
        row_of.append(free)
    return [
        ((row + 0.5) / len(busy_until[n]) * _LANE - _LANE / 2, _LANE / len(busy_until[n]))
        for n, row in zip(lane, row_of, strict=True)
    ]


def _hover(row: Any, component: str | None, axis: str) -> str:
    role = "" if component in (None, row.agent_id) else f" ({component})"
    seconds = f"{row.x0:.2f} s to {row.x1:.2f} s ({row.x1 - row.x0:.2f} s)" if row.x1 > row.x0 else f"{row.x0:.2f} s, no duration"
    targets = ", ".join(ids_of(row.targets))
    lines = [
        f"{kind_of(row.kind)}: {row.action}" if isinstance(row.action, str) else kind_of(row.kind),
        f"by {row.agent_id}{role}" + (f" to {targets}" if targets else ""),
        seconds if axis == "time" else f"order {row.order:.0f}",
        f"event {row.event_id}",
    ]
    return "<br>".join(plotly_text(line, 80) for line in lines)


def _marks(drawn: list[_Drawn]) -> list[Any]:
    """Return bars and, over them, points; one trace of each a kind, which share one entry of the legend."""
    width = max(event.end for event in drawn) - min(event.start for event in drawn)
    bars = [event for event in drawn if event.end - event.start > _POINT * width]
    points = [event for event in drawn if event.end - event.start <= _POINT * width]
    in_points = {event.kind for event in points}
    kinds = list(reversed(KIND_COLORS))  # the decisions last, over the work
    bars_of = [(kind, [event for event in bars if event.kind == kind]) for kind in kinds]
    points_of = [(kind, [event for event in points if event.kind == kind]) for kind in kinds]
    return [
        *(_bars(kind, events, showlegend=kind not in in_points) for kind, events in bars_of if events),
        *(_points(kind, events) for kind, events in points_of if events),
    ]


def _bars(kind: str, events: list[_Drawn], *, showlegend: bool) -> Any:
    return go.Bar(
        base=[event.start for event in events],
        x=[event.end - event.start for event in events],
        y=[event.y for event in events],
        width=[event.thickness * 0.9 for event in events],
        orientation="h",
        marker={"color": KIND_COLORS[kind], "line": _OUTLINE},
        showlegend=showlegend,
        **_of_kind(kind),
        **_told(events),
    )


def _points(kind: str, events: list[_Drawn]) -> Any:
    return go.Scatter(
        x=[event.start for event in events],
        y=[event.y for event in events],
        mode="markers",
        marker={"color": KIND_COLORS[kind], "symbol": KIND_SHAPES[kind][0], "size": 11, "line": _OUTLINE},
        **_of_kind(kind),
        **_told(events),
    )


def _of_kind(kind: str) -> dict[str, Any]:
    return {
        "name": kind,
        "legendgroup": kind,
        "legendrank": list(KIND_COLORS).index(kind),
    }


def _told(events: list[_Drawn]) -> dict[str, Any]:
    ids, texts = [[event.event_id] for event in events], [event.hover for event in events]
    unfaded = {"marker": {"opacity": 1}}  # a click must not fade the rest
    return {"customdata": ids, "hovertext": texts, "hoverinfo": "text", "unselected": unfaded}


def _ties(drawn: list[_Drawn], selected: str | None) -> tuple[list[_Tie], list[_Tie]]:
    """Return the ties of the selected event, and the others that cross lanes."""
    of = {event.event_id: event for event in drawn}
    ties = [(of[parent], event) for event in drawn for parent in event.parents if parent in of]
    strong = [tie for tie in ties if selected in (tie[0].event_id, tie[1].event_id)]
    faint = [tie for tie in ties if tie[0].lane != tie[1].lane and selected not in (tie[0].event_id, tie[1].event_id)]
    return strong, faint


def _lines(strong: list[_Tie], faint: list[_Tie]) -> list[Any]:
    strong = strong[:MAX_EDGES]
    return [
        _line(faint[: MAX_EDGES - len(strong)], {"color": FAINT, "width": 1}),
        _line(strong, {"color": SELECTED, "width": 2.5}),
    ]


def _line(ties: list[_Tie], style: dict[str, Any]) -> Any:
    x = [value for cause, effect in ties for value in (min(cause.end, effect.start), effect.start, None)]
    y = [value for cause, effect in ties for value in (cause.y, effect.y, None)]
    return go.Scatter(x=x, y=y, mode="lines", line=style, hoverinfo="skip", showlegend=False)


def _ring(drawn: list[_Drawn], selected: str | None) -> list[Any]:
    events = [event for event in drawn if event.event_id == selected]
    marker = {"symbol": "circle-open", "size": 20, "color": SELECTED, "line": {"width": 3}}
    x, y = [event.start for event in events], [event.y for event in events]
    ring = go.Scatter(x=x, y=y, mode="markers", marker=marker, showlegend=False, **_told(events))
    return [ring] if events else []


def _subtitle(n_drawn: int, n_placed: int, n_events: int, n_ties: int) -> str:
    parts = [f"{n_drawn:,} of {n_events:,} events drawn" if n_drawn < n_events else f"{n_events:,} events"]
    if n_drawn < n_placed:
        parts.append("select an event to see those around it")
    if n_placed < n_events:
        parts.append(f"{n_events - n_placed:,} without a time")
    if n_ties > MAX_EDGES:
        parts.append(f"{MAX_EDGES:,} of {n_ties:,} lines from cause to effect drawn")
    return "; ".join(parts)


def _laid_out(figure: go.Figure, names: list[str], axis: str, subtitle: str) -> go.Figure:
    figure.update_layout(
        title={"text": "Who did what, when?", "subtitle": {"text": subtitle}},
        height=min(200 + 34 * len(names), 3_000),
        margin={"t": 80, "b": 110},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "title": {"text": ""}},
        hovermode="closest",
        barmode="overlay",
        uirevision="lanes",
        xaxis={"title": {"text": "seconds since the run began" if axis == "time" else "event order"}, "zeroline": False},
        yaxis={
            "title": {"text": "agent"},
            "tickvals": list(range(len(names))),
            "ticktext": [plotly_text(name, 28) for name in names],
            "range": [len(names) - 0.5, -0.5],
            "zeroline": False,
            "automargin": True,
        },
    )
    return figure


def _empty(why: str) -> go.Figure:
    note = {"text": why, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "font": {"size": 15}}
    return go.Figure().update_layout(
        title={"text": "Who did what, when?"}, annotations=[note], height=220, xaxis={"visible": False}, yaxis={"visible": False}
    )
