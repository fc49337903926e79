"""Two runs side by side, event under event, and the differences of two groups with their intervals.

Hides which events share a column, what is left out where there is too much, and how metrics of different units share a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.figures import FAINT, NO_AGENT, SELECTED
from dashboard.safe import plotly_text

MAX_PLACES = 1_500
MAX_LANES = 40

#: Colour (Okabe and Ito), marker and line of each status.
_LOOKS = {
    "same": ("#8C8C8C", "circle", "solid"),
    "changed": ("#E69F00", "diamond", "solid"),
    "moved": ("#56B4E9", "square", "dash"),
    "dropped": ("#D55E00", "x", "solid"),
    "added": ("#009E73", "triangle-up", "solid"),
}
_VERDICTS = {
    "B is better": ("#009E73", "triangle-up"),
    "B is worse": ("#D55E00", "x"),
    "the interval holds 0": ("#8C8C8C", "circle"),
}
_HALF = 0.2  # from the middle of a lane to the row of either run
_TEXT = "%{text}<extra></extra>"
_LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}


def side_by_side(
    places: pd.DataFrame,
    agents: Sequence[tuple[str | None, str | None]],
    *,
    axis: Literal["order", "time"] = "order",
    selected: int | None = None,
) -> go.Figure:
    """Draw two aligned runs, one lane for each two agents that belong together, the first run in the upper row of each.

    Parameters
    ----------
    places : status, differs, kind, action; event_id, agent_id, lane, order, start_s, each with `_a` and `_b`; a click on an
        event gives its index as `customdata`
    agents : the agents of each lane in the two runs, None where a run has none
    axis : `order` puts what belongs together into one column, `time` every event at its seconds since its run began
    selected : the index of the place to ring

    Returns
    -------
    A figure of at most 1,500 places in 40 lanes; where there is more, what differs goes first, and the subtitle says so.
    """
    drawn = _drawn(places)
    xs = _columns(drawn) if axis == "order" else {side: drawn[f"start_s_{side}"] for side in "ab"}
    shown = sorted({int(lane) for side in "ab" for lane in drawn[f"lane_{side}"].dropna()})
    row_of = {lane: n for n, lane in enumerate(shown)}
    marks = pd.concat([_marks(drawn, side, xs[side], row_of) for side in "ab"], ignore_index=True)
    figure = go.Figure([*_lines(marks), *_points(marks), *_ring(marks, selected)])
    named = [_lane_name(*agents[lane]) for lane in shown]
    left_out = f" · {len(drawn):,} of {len(places):,} places drawn, what differs first" if len(drawn) < len(places) else ""
    return figure.update_layout(
        title={"text": "What differs?", "subtitle": {"text": f"in each lane the first run above, the second below{left_out}"}},
        xaxis={"title": "place, like under like" if axis == "order" else "seconds since the run began", "zeroline": False},
        yaxis={
            "tickvals": list(range(len(shown))), "ticktext": named, "range": [len(shown) - 0.4, -0.6],
            "zeroline": False, "showgrid": False,
        },
        shapes=[
            {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": n - 0.5, "y1": n + 0.5, "line_width": 0,
             "fillcolor": "rgba(128,128,128,0.09)", "layer": "below"}
            for n in range(0, len(shown), 2)
        ],
        height=170 + min(46 * max(len(shown), 2), 760),
        legend=_LEGEND, margin={"t": 70, "b": 90, "l": 10, "r": 10}, hovermode="closest", dragmode="pan",
    )  # fmt: skip


def forest(table: pd.DataFrame) -> go.Figure:
    """Draw the differences of two groups with their intervals, of metrics for which one direction is better.

    Parameters
    ----------
    table : name, variant, unit, better, mean_a, mean_b, difference, low, high, n_tasks_both, how, q. Shares, and metrics that
        are differences themselves, are drawn in percentage points, the others in percent of the first group's mean, if it is
        not zero; what has no interval is left to the table.
    """
    rows = table[table["low"].notna() & (table["better"] != "neither")]
    is_share = rows["unit"].isin(["share", "difference"])
    panels = [
        ("difference, in percentage points", rows[is_share], rows[is_share]["mean_a"] * 0 + 1),
        ("difference, in % of A's mean", rows[~is_share & (rows["mean_a"] != 0)], rows["mean_a"].abs()),
    ]
    panels = [(title, part, scale.reindex(part.index)) for title, part, scale in panels if len(part)]
    figure = make_subplots(cols=max(1, len(panels)), horizontal_spacing=0.24)
    seen: set[str] = set()
    for n, (title, part, scale) in enumerate(panels, start=1):
        names = [_metric_name(*metric) for metric in zip(part["name"], part["variant"], strict=True)]
        verdicts = pd.Series([_verdict(*row) for row in zip(part["better"], part["low"], part["high"], strict=True)])
        for verdict, (color, symbol) in _VERDICTS.items():
            at = [k for k, found in enumerate(verdicts) if found == verdict]
            if at:
                figure.add_trace(_interval(part.iloc[at], scale.iloc[at], [names[k] for k in at], verdict, color, symbol), 1, n)
                figure.data[-1].showlegend = verdict not in seen
                seen.add(verdict)
        figure.update_xaxes(title=title, ticksuffix=" %" if "%" in title else "", zeroline=True, zerolinewidth=2, col=n)
        figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], col=n)
    height = 150 + 30 * max([len(part) for _, part, _ in panels], default=2)
    heading = {"text": "B minus A", "subtitle": {"text": "mean difference with 95 % interval; the table has all metrics"}}
    return figure.update_layout(title=heading, height=height, legend=_LEGEND, margin={"t": 70, "b": 90, "l": 10, "r": 10})


def _drawn(places: pd.DataFrame) -> pd.DataFrame:
    differs = places["status"] != "same"
    lanes = places["lane_a"].fillna(places["lane_b"])
    if lanes.nunique() > MAX_LANES:
        busiest = differs.groupby(lanes).sum().sort_values(ascending=False, kind="stable").index[:MAX_LANES]
        is_kept = (places["lane_a"].isin(busiest) | places["lane_a"].isna()) & (
            places["lane_b"].isin(busiest) | places["lane_b"].isna()
        )
        places = places[is_kept]
    if len(places) > MAX_PLACES:
        rank = places["status"].map({"changed": 1, "same": 2}).fillna(0)  # what was done and what was not comes first
        first = rank.sort_values(kind="stable").index[:MAX_PLACES]
        places = places[places.index.isin(first)]
    return places


def _columns(places: pd.DataFrame) -> dict[str, pd.Series]:
    """Return a column for either event of each place: the same one, unless it moved."""
    keys: dict[str, dict[int, tuple[float, ...]]] = {"a": {}, "b": {}}
    for index, order in places["order_a"].dropna().items():
        keys["a"][index] = (order, 0)
    last = -1.0
    in_place = places["status"].isin(["same", "changed"])
    for index, order in places["order_b"].dropna().sort_values().items():
        last = float(places.at[index, "order_a"]) if in_place[index] else last
        keys["b"][index] = (last, 0) if in_place[index] else (last, 1, order)
    number = {key: n for n, key in enumerate(sorted({*keys["a"].values(), *keys["b"].values()}))}
    return {side: pd.Series({i: float(number[key]) for i, key in found.items()}, dtype=float) for side, found in keys.items()}


def _marks(places: pd.DataFrame, side: str, x: pd.Series, row_of: dict[int, int]) -> pd.DataFrame:
    """Return one row an event of a run: place, status, x, y, hover."""
    there = places[places[f"event_id_{side}"].notna()]
    offset = -_HALF if side == "a" else _HALF
    marks = pd.DataFrame(
        {
            "place": there.index,
            "status": there["status"],
            "x": x.reindex(there.index),
            "y": [row_of[int(lane)] + offset for lane in there[f"lane_{side}"]],
            "hover": [_hover(row, side) for row in there.to_dict("records")],
        }
    )
    return marks[marks["x"].notna()]


def _hover(row: dict[str, Any], side: str) -> str:
    what = row["kind"] + (f": {row['action']}" if isinstance(row["action"], str) else "")
    run = "first" if side == "a" else "second"
    lines = [
        row["status"] + (f" ({row['differs']})" if row["differs"] else ""),
        f"{what} by {row[f'agent_id_{side}'] or NO_AGENT}",
        f"event {row[f'event_id_{side}']} of the {run} run",
    ]
    return "<br>".join([plotly_text(line, 90) for line in lines])


def _lines(marks: pd.DataFrame) -> list[Any]:
    """Return a line between the two events of each place, all of a status in one trace."""
    lines = []
    for status, (color, _, dash) in _LOOKS.items():
        pairs = marks[marks["status"] == status].groupby("place")
        ends = [list(zip(pair["x"], pair["y"], strict=True)) for _, pair in pairs if len(pair) == 2]
        if not ends:
            continue
        points = [point for (first, second) in ends for point in (first, second, (None, None))]
        line = {"color": FAINT if status == "same" else color, "width": 1.5 if status == "same" else 2, "dash": dash}
        xs, ys = zip(*points, strict=True)
        lines.append(go.Scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False, legendgroup=status))
    return lines


def _points(marks: pd.DataFrame) -> list[Any]:
    points = []
    for status, (color, symbol, _) in _LOOKS.items():
        rows = marks[marks["status"] == status]
        if len(rows):
            points.append(
                go.Scatter(
                    x=rows["x"].tolist(), y=rows["y"].tolist(), mode="markers", name=status, legendgroup=status,
                    marker={"symbol": symbol, "color": color, "size": 8 if status == "same" else 11},
                    customdata=[[int(place)] for place in rows["place"]], text=rows["hover"].tolist(), hovertemplate=_TEXT,
                )
            )  # fmt: skip
    return points


def _ring(marks: pd.DataFrame, selected: int | None) -> list[Any]:
    rows = marks[marks["place"] == selected]
    marker = {"symbol": "circle-open", "size": 22, "color": SELECTED, "line": {"width": 2.5}}
    ring = go.Scatter(
        x=rows["x"].tolist(), y=rows["y"].tolist(), mode="markers", marker=marker, hoverinfo="skip", showlegend=False
    )
    return [ring] if len(rows) else []


def _lane_name(first: str | None, second: str | None) -> str:
    if first is None and second is None:
        return NO_AGENT
    if first is None or second is None:
        return plotly_text(f"{first or second} (only in {'A' if second is None else 'B'})", 40)
    return plotly_text(first if first == second else f"{first} | {second}", 40)


def _metric_name(name: str, variant: str) -> str:
    return plotly_text(name, 40) + (f"<br><sup>{plotly_text(variant, 44)}</sup>" if variant else "")


def _verdict(better: str, low: float, high: float) -> str:
    if low <= 0 <= high:
        return "the interval holds 0"
    return "B is better" if (low > 0) == (better == "higher") else "B is worse"


def _interval(part: pd.DataFrame, scale: pd.Series, names: list[str], verdict: str, color: str, symbol: str) -> Any:
    x, low, high = (100 * part[column] / scale for column in ("difference", "low", "high"))
    hover = [
        f"A {row['mean_a']:.4g}, B {row['mean_b']:.4g}<br>difference {row['difference']:.4g}, 95 % interval {row['low']:.4g} to "
        f"{row['high']:.4g}<br>{row['how']}, {row['n_tasks_both']} tasks in both, q {row['q']:.2g}"
        for row in part.to_dict("records")
    ]
    return go.Scatter(
        x=x.tolist(), y=names, mode="markers", name=verdict, legendgroup=verdict, text=hover, hovertemplate=_TEXT,
        marker={"color": color, "symbol": symbol, "size": 11},
        error_x={"symmetric": False, "array": (high - x).tolist(), "arrayminus": (x - low).tolist(), "color": color},
    )  # fmt: skip
