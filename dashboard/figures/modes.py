"""Figures of failure modes: which failures are alike, what a mode's profile is, where it occurs, how two modes differ.

Hides which traces of many are drawn, and which cells of many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis.coherence.modes.profiles import BORDER
from dashboard.figures import FAINT
from dashboard.safe import plotly_text

MAX_POINTS = 5_000
MAX_CELLS = 14
MAX_VALUES = 8
#: The column of `shares` that holds the mean over all profiles.
ALL = "all"
#: Okabe and Ito; seven colours and eight shapes tell 56 modes apart.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
_FIRST, _SECOND = COLORS[0], COLORS[5]
_TEXT = "%{text}<extra></extra>"
_LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
_MARGIN = {"t": 70, "b": 60, "l": 10, "r": 10}


def mode_map(points: pd.DataFrame, modes: pd.DataFrame) -> go.Figure:
    """Draw where traces stand on the two axes along which profiles differ most; `customdata = [trace_id]`.

    Parameters
    ----------
    points : trace_id, mode_id, x, y, passed, domain; at most `MAX_POINTS` are drawn, chosen by the hash of their id
    modes : mode_id, name, is_firm (None where it was not measured), in the order of their colours; the marks of
        modes that are not firm are hollow
    """
    figure = go.Figure()
    shown = drawn(points)
    outcomes = shown["passed"].map({True: "passed", False: "failed"}).fillna("no outcome")
    for n, mode in enumerate(modes.itertuples()):
        is_loose = mode.is_firm is False
        name = plotly_text(both_ends(mode.name, 46)) + (" (not firm)" if is_loose else "")
        rows = shown[shown["mode_id"] == mode.mode_id]
        hover = [
            f"{plotly_text(trace_id, 80)}<br>{plotly_text(mode.name, 80)}<br>{outcome}, {plotly_text(domain or 'no domain', 40)}"
            for trace_id, outcome, domain in zip(
                rows["trace_id"], outcomes[rows.index], rows["domain"].astype(object).where(rows["domain"].notna(), None),
                strict=True,
            )
        ]  # fmt: skip
        figure.add_scatter(
            x=rows["x"], y=rows["y"], mode="markers", customdata=rows[["trace_id"]].to_numpy(), text=hover, hovertemplate=_TEXT,
            name=name, marker=_marker(n, is_loose=is_loose),
        )  # fmt: skip
    note = f"{len(shown):,} of {len(points):,} traces, drawn by the hash of their id" if len(shown) < len(points) else ""
    quiet = {"showticklabels": False, "zeroline": False, "title": None}
    return figure.update_layout(
        title={"text": "Which failures are alike?", "subtitle": {"text": note or "near each other: profiles that are alike"}},
        xaxis=quiet, yaxis=quiet, legend={"itemsizing": "constant"}, showlegend=True, dragmode="lasso", clickmode="event+select",
        height=max(420, 120 + 20 * len(modes)), margin=_MARGIN | {"b": 20},
    )  # fmt: skip


def drawn(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points that are drawn, in their order: those whose ids hash lowest, so that it is no matter of their order."""
    if len(points) <= MAX_POINTS:
        return points
    hashes = pd.util.hash_array(points["trace_id"].to_numpy(dtype=object))
    return points.iloc[np.sort(np.argsort(hashes, kind="stable")[:MAX_POINTS])]


def both_ends(name: str, most: int) -> str:
    """Return a name with its middle left out where it is too long: names of modes begin and end alike, but rarely both.

    >>> both_ends("errors of the tool, stopped: error", 15)
    'errors …: error'
    """
    keep = (most - 1) // 2
    return name if len(name) <= most else f"{name[:keep]}…{name[-keep:]}"


def profile(shares: pd.DataFrame, mode_id: str) -> go.Figure:
    """Draw the mean profile of one mode beside that of all, the cells that tell it apart most on top.

    Parameters
    ----------
    shares : a row a cell, a column a mode id and one `ALL`: mean shares, each column sums to 1
    """
    cells = _telling(shares, mode_id, ALL)
    names = _cell_names(cells)
    figure = go.Figure()
    for column, name, color in ((ALL, "all profiles", FAINT), (mode_id, "this mode", _FIRST)):  # the last is drawn on top
        hover = [f"{cell}<br>{name}: {share:.1%}" for cell, share in zip(names, cells[column], strict=True)]
        figure.add_bar(
            x=cells[column], y=list(range(len(names))), orientation="h", name=name, marker_color=color,
            hovertext=hover, hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    return figure.update_layout(
        title={"text": "What makes it a mode?", "subtitle": {"text": f"mean share of each cell{_left_out(cells, shares)}"}},
        xaxis={"title": "share of a profile", "tickformat": ".0%"}, yaxis=_rows_axis(names), barmode="group",
        legend=_LEGEND | {"traceorder": "reversed"}, height=180 + 30 * max(len(names), 2), margin=_MARGIN | {"b": 90},
    )  # fmt: skip


def two_modes(shares: pd.DataFrame, a: str, b: str, *, names: Mapping[str, str]) -> go.Figure:
    """Draw two modes cell by cell, what differs most on top; `shares` as for `profile`."""
    cells = _telling(shares, a, b)
    labels = _cell_names(cells)
    figure = go.Figure()
    for place, (one, other) in enumerate(zip(cells[a], cells[b], strict=True)):
        line: dict[str, Any] = {"mode": "lines", "line": {"color": FAINT, "width": 3}, "showlegend": False, "hoverinfo": "skip"}
        figure.add_scatter(x=[one, other], y=[place, place], **line)
    for side, (mode_id, color, symbol) in {"A": (a, _FIRST, "circle"), "B": (b, _SECOND, "square")}.items():
        figure.add_scatter(
            x=cells[mode_id], y=list(range(len(labels))), mode="markers", name=f"{side}: {plotly_text(names[mode_id], 60)}",
            marker={"color": color, "symbol": symbol, "size": 10}, hovertemplate=_TEXT,
            text=[f"{cell}<br>{side}: {share:.1%}" for cell, share in zip(labels, cells[mode_id], strict=True)],
        )  # fmt: skip
    return figure.update_layout(
        title={"text": "How do the two differ?", "subtitle": {"text": f"mean share of each cell{_left_out(cells, shares)}"}},
        xaxis={"title": "share of a profile", "tickformat": ".0%", "rangemode": "tozero"}, yaxis=_rows_axis(labels),
        legend=_LEGEND, height=200 + 30 * max(len(labels), 2), margin=_MARGIN | {"b": 110},
    )  # fmt: skip


def spread(rows: pd.DataFrame, *, called: str = "this mode") -> go.Figure:
    """Draw which share of a mode's traces has each value of each fact, with its interval, beside the share of all profiles.

    Parameters
    ----------
    rows : fact, value, n, n_mode, share, low, high, share_of_all; at most `MAX_VALUES` a fact are drawn, the most frequent;
        what is not known of any trace is left out and said
    called : the name of the mode in the figure
    """
    is_blank = (rows["value"] == "not known") & (rows["share_of_all"] == 1)
    blank, rows = rows.loc[is_blank, "fact"].tolist(), rows[~is_blank]
    kept = rows.sort_values(["fact", "n"], ascending=[True, False], kind="stable").groupby("fact", sort=False).head(MAX_VALUES)
    names = [f"{plotly_text(row.fact)}: {plotly_text(str(row.value), 40)}" for row in kept.itertuples()]
    hover = [
        f"{name}: {row.n:,} of {row.n_mode:,}, {row.share:.0%} ({row.low:.0%} to {row.high:.0%}); of all {row.share_of_all:.0%}"
        for name, row in zip(names, kept.itertuples(), strict=True)
    ]
    figure, places = go.Figure(), list(range(len(names)))
    figure.add_bar(
        x=kept["share"], y=places, orientation="h", name=f"{called}, 95 % interval", marker_color=_FIRST, hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>", text=[f"{n:,}" for n in kept["n"]], textposition="inside",
        insidetextanchor="start",
        error_x={"type": "data", "array": kept["high"] - kept["share"], "arrayminus": kept["share"] - kept["low"],
                 "color": COLORS[1]},
    )  # fmt: skip
    marker = {"symbol": "diamond", "size": 10, "color": _SECOND, "line": {"width": 1, "color": "white"}}
    figure.add_scatter(
        x=kept["share_of_all"], y=places, mode="markers", name="all profiles", marker=marker, text=hover, hovertemplate=_TEXT
    )
    left_out = f" · {len(kept):,} of {len(rows):,} values, the most frequent" if len(kept) < len(rows) else ""
    left_out += f" · {' and '.join(blank)} not known" if blank else ""
    note = f"share of its traces; the number is their count{left_out}"
    return figure.update_layout(
        title={"text": f"Where does {called} occur?", "subtitle": {"text": note}},
        xaxis={"title": "share of traces", "tickformat": ".0%", "range": [0, 1.02]}, yaxis=_rows_axis(names),
        legend=_LEGEND, height=180 + 34 * max(len(names), 2), margin=_MARGIN | {"b": 90},
    )  # fmt: skip


def _marker(n: int, *, is_loose: bool) -> dict[str, Any]:
    shape = SHAPES[n % len(SHAPES)] + ("-open" if is_loose else "")
    return {"color": COLORS[n % len(COLORS)], "symbol": shape, "size": 8, "opacity": 0.5 if is_loose else 0.75}


def _telling(shares: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Return the cells in which two columns differ most, and what either has of them."""
    cells = shares.loc[(shares[one] > 0) | (shares[other] > 0), [one, other]]
    order = (cells[one] - cells[other]).abs().sort_values(ascending=False, kind="stable").index
    return cells.loc[order[:MAX_CELLS]]


def _cell_names(cells: pd.DataFrame) -> list[str]:
    return [plotly_text(str(cell).replace(BORDER, ", "), 60) for cell in cells.index]


def _rows_axis(names: list[str]) -> dict[str, Any]:
    """Rows at whole numbers, the first on top: two that are cut to the same words stay two."""
    return {"tickvals": list(range(len(names))), "ticktext": names, "autorange": "reversed"}


def _left_out(cells: pd.DataFrame, shares: pd.DataFrame) -> str:
    return f" · {len(cells):,} of {len(shares):,} cells, what differs most on top" if len(cells) < len(shares) else ""
