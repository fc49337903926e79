"""Figures of patterns: families by size and lift, the lifts of one item or of two over all metrics.

Hides how metrics of different units share a figure: each row has a scale of its own, and its numbers beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.orchestration.measure import METRICS
from dashboard.figures import FAINT, SELECTED
from dashboard.safe import plotly_text

#: Okabe and Ito; a verdict has a symbol too. Filled where the adjusted p is at most 5 %.
_VERDICTS = {
    "better with it": ("#009E73", "triangle-up"),
    "worse with it": ("#D55E00", "x"),
    "neither is better": ("#0072B2", "diamond"),
    "the interval holds 0": ("#8C8C8C", "circle"),
}
_SIDES = {"A": ("#0072B2", "circle", -0.16), "B": ("#E69F00", "square", 0.16)}
_ALPHA = 0.05
_TEXT = "%{text}<extra></extra>"
_LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
_MARGIN = {"t": 70, "b": 90, "l": 10, "r": 10}


def family_overview(families: pd.DataFrame, *, metric: str, selected: str | None = None) -> go.Figure:
    """Draw how many runs each family has and what its runs differ in; a click gives `customdata = [family_id]`.

    Parameters
    ----------
    families : family_id, name, n_members, member_share and, of `metric`: lift, low, high, better, with_mean, without_mean,
        n_with, n_without, p_adjusted, reason; NaN where there is no lift
    selected : family_id of the one whose bar stands out
    """
    places = list(range(len(families)))
    is_share = _is_share(metric)
    figure = make_subplots(cols=2, shared_yaxes=True, column_widths=[0.42, 0.58], horizontal_spacing=0.03)
    colors = [SELECTED if name == selected else "#56B4E9" for name in families["family_id"]]
    figure.add_bar(
        x=families["n_members"].tolist(), y=places, orientation="h", marker={"color": colors}, showlegend=False,
        text=[f"{n:,} · {share:.0%}" for n, share in zip(families["n_members"], families["member_share"], strict=True)],
        textposition="auto", customdata=[[name] for name in families["family_id"]],
        hovertemplate="%{x:,} runs; a click shows the family<extra></extra>", row=1, col=1,
    )  # fmt: skip
    scale = 100.0 if is_share else 1.0
    rows = families.assign(
        place=places, x=scale * families["lift"], x_low=scale * families["low"], x_high=scale * families["high"],
        hover=[_hover(row) for row in families.to_dict("records")],
        verdict=[_verdict(*row) for row in families[["better", "low", "high"]].itertuples(index=False)],
    )  # fmt: skip
    _add_verdicts(figure, rows[rows["low"].notna()], row=1, col=2)
    for row in rows[rows["low"].isna()].itertuples():
        said = str(row.reason or "no interval") if pd.isna(row.lift) else f"{scale * row.lift:.3g}, no interval: {row.reason}"
        figure.add_annotation(
            x=0, y=row.place, xref="x2 domain", yref="y2", xanchor="left", showarrow=False, font={"size": 12}, opacity=0.75,
            align="left", text=_folded(said, 48),
        )  # fmt: skip
    unit = "percentage points" if is_share else METRICS[metric.split(" (")[0]].unit if metric.split(" (")[0] in METRICS else ""
    figure.update_xaxes(title="runs", col=1)
    figure.update_xaxes(
        title=plotly_text(f"{metric}{f', {unit}' if unit else ''}", 60), zeroline=True, zerolinewidth=2, col=2
    )  # fmt: skip
    names = [_folded(name, 44) for name in families["name"]]
    figure.update_yaxes(tickvals=places, ticktext=names, range=[len(places) - 0.5, -0.5], showgrid=False, zeroline=False)
    note = "right: mean of the family minus mean of all others, 95 % interval; filled marks: adjusted p ≤ 5 %"
    return figure.update_layout(
        title={"text": "How many runs work so, and what goes with it?", "subtitle": {"text": note}},
        height=180 + 46 * max(len(families), 2), legend=_LEGEND, margin=_MARGIN, clickmode="event+select", dragmode="pan",
    )  # fmt: skip


def forest(lifts: pd.DataFrame, *, title: str) -> go.Figure:
    """Draw the lifts of one pattern or family over all metrics, with their intervals.

    Parameters
    ----------
    lifts : the rows of `value.lifts` of one item; those without an interval are left out
    """
    rows, metrics = _scaled(lifts)
    figure = go.Figure()
    verdicts = [_verdict(*row) for row in rows[["better", "low", "high"]].itertuples(index=False)]
    _add_verdicts(figure, rows.assign(verdict=verdicts))
    return _as_forest(figure, rows, metrics, title=title, note="with it minus without it", row_px=36)


def two_families(first: pd.DataFrame, second: pd.DataFrame) -> go.Figure:
    """Draw the lifts of two families under each other; both are `value.lifts` rows, each against all other runs."""
    rows, metrics = _scaled(pd.concat([first.assign(side="A"), second.assign(side="B")], ignore_index=True))
    offset = rows["side"].map({side: offset for side, (*_, offset) in _SIDES.items()}).astype(float)
    rows = rows.assign(place=rows["place"].astype(float) + offset)
    figure = go.Figure()
    for side, (color, symbol, _) in _SIDES.items():
        part = rows[rows["side"] == side]
        if len(part):
            figure.add_trace(_interval(part, {"color": color, "symbol": _symbols(part, symbol), "size": 11}, name=side))
    title = "What goes with either family?"
    return _as_forest(figure, rows, metrics, title=title, note="each family minus all other runs", row_px=48)


def _is_share(metric: str) -> bool:
    name = metric.split(" (")[0]
    return name == "passed" or (name in METRICS and METRICS[name].unit in ("share", "difference"))


def _scaled(lifts: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return what can be drawn with its place among the metrics, and scaled so that the widest of a metric ends at 1."""
    rows = lifts[lifts["low"].notna()]
    metrics = sorted(set(rows["metric"]))
    reach = rows[["lift", "low", "high"]].abs().max(axis=1).groupby(rows["metric"]).transform("max")
    scale = np.where(reach > 0, 1 / reach.where(reach > 0, 1), 1.0)
    return rows.assign(
        place=[metrics.index(metric) for metric in rows["metric"]], x=scale * rows["lift"], x_low=scale * rows["low"],
        x_high=scale * rows["high"], hover=[_hover(row) for row in rows.to_dict("records")],
    ), metrics  # fmt: skip


def _as_forest(figure: go.Figure, rows: pd.DataFrame, metrics: list[str], *, title: str, note: str, row_px: int) -> go.Figure:
    """Return the figure with its axes, and the numbers of each row to the right of it."""
    for row in rows.to_dict("records"):
        figure.add_annotation(
            x=1, xref="paper", xanchor="left", y=row["place"], showarrow=False, text=_numbers(row), font={"size": 11}, xshift=6
        )  # fmt: skip
    ticks = {"tickvals": list(range(len(metrics))), "ticktext": [_metric_name(metric) for metric in metrics]}
    return figure.update_layout(
        title={"text": plotly_text(title, 90), "subtitle": {"text": f"{note}, 95 % interval; filled marks: adjusted p ≤ 5 %"}},
        xaxis={"title": "less ← 0 → more, each row on its own scale", "range": [-1.1, 1.1], "tickvals": [0], "ticktext": ["0"],
               "zeroline": True, "zerolinewidth": 2},
        yaxis={**ticks, "range": [len(metrics) - 0.5, -0.5], "zeroline": False, "gridcolor": FAINT},
        height=190 + row_px * max(len(metrics), 2), legend=_LEGEND, margin=_MARGIN | {"r": 170},
    )  # fmt: skip


def _numbers(row: dict[str, Any]) -> str:
    """A difference with its interval, in percentage points where it is one of shares."""
    scale, unit = (100, " points") if _is_share(row["metric"]) else (1, "")
    lift, low, high = (scale * row[name] for name in ("lift", "low", "high"))
    return f"{lift:+.3g}{unit} ({low:.3g} to {high:.3g})"


def _add_verdicts(figure: go.Figure, rows: pd.DataFrame, **cell: int) -> None:
    for verdict, (color, symbol) in _VERDICTS.items():
        part = rows[rows["verdict"] == verdict]
        if len(part):
            marker = {"color": color, "symbol": _symbols(part, symbol), "size": 11, "line": {"width": 2, "color": color}}
            figure.add_trace(_interval(part, marker, name=verdict), **cell)


def _interval(rows: pd.DataFrame, marker: dict[str, Any], *, name: str) -> Any:
    spread = {"array": (rows["x_high"] - rows["x"]).tolist(), "arrayminus": (rows["x"] - rows["x_low"]).tolist()}
    return go.Scatter(
        x=rows["x"].tolist(), y=rows["place"].tolist(), mode="markers", name=name, marker=marker, text=rows["hover"].tolist(),
        hovertemplate=_TEXT, error_x={"symmetric": False, "color": marker["color"], **spread},
    )  # fmt: skip


def _symbols(rows: pd.DataFrame, symbol: str) -> list[str]:
    """Filled where chance is unlikely; a cross, which has no inside, is thin where it is not."""
    faint = {"x": "x-thin"}.get(symbol, f"{symbol}-open")
    return [symbol if p <= _ALPHA else faint for p in rows["p_adjusted"].fillna(1.0)]


def _verdict(better: object, low: float, high: float) -> str:
    if pd.isna(low) or low <= 0 <= high:
        return "the interval holds 0"
    if better not in ("higher", "lower"):
        return "neither is better"
    return "better with it" if (low > 0) == (better == "higher") else "worse with it"


def _hover(row: dict[str, Any]) -> str:
    """What a difference rests on; nothing where there is none."""
    if pd.isna(row["lift"]):
        return ""
    lines = [
        f"with it {row['with_mean']:.4g} ({row['n_with']:,.0f} runs), without it {row['without_mean']:.4g} "
        f"({row['n_without']:,.0f} runs)",
        f"difference {row['lift']:.4g}"
        + ("" if pd.isna(row["low"]) else f", 95 % interval {row['low']:.4g} to {row['high']:.4g}"),
        "no p: nothing to compare with" if pd.isna(row["p_adjusted"]) else f"adjusted p {row['p_adjusted']:.2g}",
    ]
    if "matched" in row and pd.notna(row["matched"]):
        lines.append(f"within {row['n_pairs']:,.0f} cells of equal {row['matched_by']}: {row['matched']:.4g}")
    if row["reason"]:
        lines.append(str(row["reason"]))
    return "<br>".join([_folded(text, 80) for text in lines])


def _metric_name(metric: str) -> str:
    name, _, variant = metric.partition(" (")
    return plotly_text(name, 40) + (f"<br><sup>{plotly_text(variant.removesuffix(')'), 44)}</sup>" if variant else "")


def _folded(text: str, width: int) -> str:
    """Return a text in lines of about `width` letters, broken between words."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "<br>".join([plotly_text(part, 2 * width) for part in lines])
