"""Figures of coherence: how residuals are spread, which component and turn they come from, what a repair changes.

Hides that a click on a heat map tells nothing (squares that cannot be seen stand over its cells) and how many cells fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis.coherence.projection import POSITIVE
from dashboard.figures import FAINT, SELECTED
from dashboard.safe import plotly_text

MAX_CELLS = 5_000
MAX_COMPONENTS = 24
#: Okabe and Ito; a level has a dash too.
_LEVELS = {"component": ("#0072B2", "solid"), "pre-aggregation": ("#E69F00", "dash"), "final": ("#009E73", "dot"),
           "team": ("#CC79A7", "dashdot")}  # fmt: skip
#: Column -> what the rule is called, and how it looks.
_RULES = {
    "energy": ("energy", "#0072B2", "circle"), "shapley": ("Shapley, free game", "#E69F00", "diamond"),
    "shapley_replace": ("Shapley, replace game", "#CC79A7", "square"),
}  # fmt: skip
_BEFORE, _AFTER = "#D55E00", "#009E73"
_TEXT = "%{text}<extra></extra>"
_LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
_MARGIN = {"t": 70, "b": 90, "l": 10, "r": 10}


def residual_spread(residuals: pd.DataFrame, value: str, *, name: str) -> go.Figure:
    """Draw which share of the traces has at most so large a residual, one line a level.

    Parameters
    ----------
    residuals : columns trace_id, level and `value`; rows without a value are left out and counted
    value, name : the column that is drawn, and what the axis calls it
    """
    figure = go.Figure()
    for level, (color, dash) in _LEVELS.items():
        values = np.sort(residuals.loc[residuals["level"] == level, value].dropna().to_numpy(dtype=float))
        if not len(values):
            continue
        shares = np.arange(1, len(values) + 1) / len(values)
        xs, ys = np.concatenate([[0.0], values]), np.concatenate([[0.0], shares])
        positive = (values > POSITIVE).mean()
        label = f"{level}: n {len(values):,}, positive {positive:.0%}, median {np.median(values):.3f}"
        figure.add_scatter(
            x=xs, y=ys, mode="lines", line={"shape": "hv", "color": color, "dash": dash, "width": 2.5}, name=label,
            hovertemplate="%{y:.0%} have at most %{x:.4f}<extra>" + level + "</extra>",
        )  # fmt: skip
    n_absent = int(residuals[value].isna().sum())
    note = f"{n_absent:,} levels without a value" if n_absent else "every level that was quoted has a value"
    return figure.update_layout(
        title={"text": "How incoherent are the teams, by level of claims?", "subtitle": {"text": note}},
        xaxis={"title": name, "rangemode": "tozero"},
        yaxis={"title": "share of traces", "range": [0, 1.02], "tickformat": ".0%"},
        legend=_LEGEND | {"orientation": "v"}, height=420, margin=_MARGIN | {"b": 140}, hovermode="closest",
    )  # fmt: skip


def cells_of(attribution: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return component × turn as a table of `value`: the components with most of it on top, turns in their order.

    Above `MAX_CELLS` cells the weakest components are summed into one row, and turns are summed in groups of neighbours.
    """
    cells = attribution.assign(turn=attribution["turn"].fillna(-1)).pivot_table(
        index="component", columns="turn", values=value, aggfunc="sum", fill_value=0.0
    )
    cells = cells.loc[cells.abs().sum(axis=1).sort_values(ascending=False, kind="stable").index]
    cells.columns = ["–" if turn < 0 else f"{int(turn)}" for turn in cells.columns]
    if len(cells) > MAX_COMPONENTS and cells.size > MAX_CELLS:
        rest = cells.iloc[MAX_COMPONENTS - 1 :].sum().to_frame(f"{len(cells) - MAX_COMPONENTS + 1} others").T
        cells = pd.concat([cells.iloc[: MAX_COMPONENTS - 1], rest])
    if cells.size > MAX_CELLS:
        size = -(-cells.size // MAX_CELLS)
        groups = np.arange(cells.shape[1]) // size
        names = [f"{cells.columns[g * size]}–{cells.columns[min((g + 1) * size, cells.shape[1]) - 1]}" for g in np.unique(groups)]
        cells = cells.T.groupby(groups).sum().T.set_axis(names, axis=1)
    return cells


def heat_map(
    cells: pd.DataFrame, *, title: str, subtitle: str, is_signed: bool, selected: tuple[str, str] | None = None
) -> go.Figure:
    """Draw component × turn; a click gives `customdata = [component, turn]`.

    Parameters
    ----------
    cells : as `cells_of` gives them
    is_signed : whether values below 0 mean a repair, so that 0 has a colour of its own
    selected : (component, turn) to mark
    """
    values = cells.to_numpy(dtype=float)
    bound = float(np.abs(values).max(initial=0.0)) or 1.0
    names = [plotly_text(str(name), 40) for name in cells.index]
    turns = [str(turn) for turn in cells.columns]
    heat = go.Heatmap(
        z=values, hoverinfo="skip", zmin=-bound if is_signed else 0.0, zmax=bound, xgap=1, ygap=1,
        colorscale="RdBu_r" if is_signed else "Oranges", colorbar={"title": {"text": "ε*² "}, "thickness": 12},
    )  # fmt: skip
    rows, columns = (grid.ravel() for grid in np.mgrid[0 : values.shape[0], 0 : values.shape[1]])
    place = [n for n, (r, c) in enumerate(zip(rows, columns, strict=True)) if (str(cells.index[r]), turns[c]) == selected]
    cover = go.Scatter(
        x=columns, y=rows, mode="markers", showlegend=False, selectedpoints=place or None,
        marker={"size": 18, "symbol": "square-open", "opacity": 0, "line": {"width": 3}},
        # The browser marks what is clicked by itself: a click redraws nothing.
        selected={"marker": {"opacity": 1, "color": SELECTED}}, unselected={"marker": {"opacity": 0}},
        customdata=[[str(cells.index[r]), turns[c]] for r, c in zip(rows, columns, strict=True)],
        text=[f"{names[r]}, turn {turns[c]}: {values[r, c]:.4f}" for r, c in zip(rows, columns, strict=True)],
        hovertemplate=_TEXT,
    )  # fmt: skip
    figure = go.Figure([heat, cover])
    step = max(1, len(turns) // 25)
    return figure.update_layout(
        title={"text": title, "subtitle": {"text": subtitle}},
        xaxis={
            "title": "turn", "tickvals": list(range(0, len(turns), step)), "ticktext": turns[::step], "showgrid": False,
            "range": [-0.5, len(turns) - 0.5],
        },
        yaxis={
            "tickvals": list(range(len(names))), "ticktext": names, "range": [len(names) - 0.5, -0.5], "showgrid": False,
        },
        # Without a bound the nearest square is meant, so that a click anywhere in a cell counts.
        hovermode="closest", hoverdistance=-1,
        height=190 + min(34 * max(len(names), 2), 620), margin=_MARGIN | {"b": 50}, clickmode="event+select", dragmode="pan",
    )  # fmt: skip


def shares(attribution: pd.DataFrame) -> go.Figure:
    """Draw what each component contributes to ε*² by three rules, and the range over all orders of the free game.

    Parameters
    ----------
    attribution : the rows of the last state: component, energy, shapley, shapley_replace, order_low, order_high
    """
    rows = attribution.sort_values("energy", ascending=False, kind="stable").head(MAX_COMPONENTS)
    names = [plotly_text(str(name), 40) for name in rows["component"]]
    figure = go.Figure()
    ranged = rows["order_low"].notna()
    if ranged.any():
        middle = (rows["order_low"] + rows["order_high"]) / 2
        figure.add_scatter(
            x=middle, y=names, mode="markers", name="range over all orders",
            marker={"size": 12, "symbol": "line-ew-open", "color": FAINT},
            error_x={"type": "data", "array": (rows["order_high"] - middle), "thickness": 8, "width": 0, "color": FAINT},
            text=[f"{low:.4f} to {high:.4f}" for low, high in zip(rows["order_low"], rows["order_high"], strict=True)],
            hovertemplate=_TEXT,
        )  # fmt: skip
    for rule, (title, color, symbol) in _RULES.items():
        if rows[rule].notna().any():
            marker = {"color": color, "symbol": symbol, "size": 10}
            figure.add_scatter(x=rows[rule], y=names, mode="markers", name=title, marker=marker, hovertemplate="%{x:.4f}")
    note = "parts of ε*², which they sum to; where the rules disagree, blame is not unique"
    return figure.update_layout(
        title={"text": "Who does the residual come from?", "subtitle": {"text": note}},
        xaxis={"title": "part of ε*²", "rangemode": "tozero"}, yaxis={"autorange": "reversed"},
        legend=_LEGEND, height=170 + 36 * max(len(names), 2), margin=_MARGIN,
    )  # fmt: skip


def repair(quoted: Mapping[str, float], repaired: Mapping[str, float]) -> go.Figure:
    """Draw each quote before and after the smallest repair, what moves most on top; at most 40 of them."""
    moved = sorted(quoted, key=lambda name: (-abs(repaired[name] - quoted[name]), name))[:40]
    names = [plotly_text(name, 50) for name in moved]
    figure = go.Figure()
    for name, label in zip(moved, names, strict=True):
        figure.add_scatter(
            x=[quoted[name], repaired[name]], y=[label, label], mode="lines", line={"color": FAINT, "width": 3},
            showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    for title, values, color, symbol in (("quoted", quoted, _BEFORE, "x"), ("repaired", repaired, _AFTER, "circle")):
        figure.add_scatter(
            x=[values[name] for name in moved], y=names, mode="markers", name=title,
            marker={"color": color, "symbol": symbol, "size": 10}, hovertemplate="%{y}: %{x:.4f}<extra>" + title + "</extra>",
        )  # fmt: skip
    left_out = f" · {len(moved):,} of {len(quoted):,} quotes, what moves most" if len(moved) < len(quoted) else ""
    return figure.update_layout(
        title={"text": "What would make it coherent?", "subtitle": {"text": f"the smallest change of the quotes{left_out}"}},
        xaxis={"title": "probability", "range": [-0.03, 1.03]}, yaxis={"autorange": "reversed"},
        legend=_LEGEND, height=170 + 30 * max(len(names), 2), margin=_MARGIN,
    )  # fmt: skip


def evidence(log_e: Mapping[str, Sequence[float]], *, threshold: float, null: str) -> go.Figure:
    """Draw log E of e-processes over the traces of a stream, and the line above which the null is rejected.

    Parameters
    ----------
    log_e : name of a process -> log E after each trace
    threshold : log(1 / alpha)
    null : what is tested, in words
    """
    figure = go.Figure()
    for (name, values), color in zip(log_e.items(), ("#0072B2", "#E69F00"), strict=False):
        xs = list(range(1, len(values) + 1))
        figure.add_scatter(x=xs, y=list(values), mode="lines", name=name, line={"color": color, "width": 2})
    figure.add_hline(y=threshold, line={"dash": "dash", "color": _BEFORE}, annotation_text="rejected above")
    return figure.update_layout(
        title={"text": "Does incoherence exceed what is tolerated?", "subtitle": {"text": null}},
        xaxis={"title": "traces so far"}, yaxis={"title": "log E"}, legend=_LEGEND, height=380, margin=_MARGIN,
    )  # fmt: skip
