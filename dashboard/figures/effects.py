"""Figures of counterfactual studies: what each kind of change did, what stopping elsewhere costs, evidence as it arrives.

Decides the words and colours of a credit, and why a row has no interval; evidences and worlds never share a panel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.counterfactual.effects import N_LEAST
from analysis.orchestration.measure import METRICS
from dashboard.figures import FAINT, SELECTED
from dashboard.safe import plotly_text

Verdict = Literal["helped", "hurt", "no effect", "not judged"]

#: How a number was come by, in words.
EVIDENCE = {
    "interventional": "both runs executed again with the same draws",
    "simulated": "worked out of the recording; nothing was executed",
    "observational": "from logs alone; other things may differ too",
}
HELPED, HURT, NEUTRAL = "#009E73", "#D55E00", "#8C8C8C"  # Okabe and Ito
_TEXT = "%{text}<extra></extra>"
_LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
#: Titles of panels stand at the left, where the eye comes from the title of the figure.
_PANEL = {"x": 0, "xanchor": "left", "font": {"size": 13}}
_MARGIN = {"t": 105, "b": 90, "l": 10, "r": 20}
#: What lies on the other side of the difference -> how that looks.
_LOOKS = {
    "better": (HELPED, "triangle-up"),
    "worse": (HURT, "x"),
    "the interval holds 0": (NEUTRAL, "circle"),
    "neither way is better": ("#0072B2", "diamond"),
    "no interval": (NEUTRAL, "circle-open"),
}


def verdict_of(credit: float, better: str) -> Verdict:
    """Return what the decision taken did to a metric: where lower is better, a credit above 0 hurt.

    >>> verdict_of(0.5, "higher"), verdict_of(0.5, "lower"), verdict_of(0.0, "lower"), verdict_of(0.5, "neither")
    ('helped', 'hurt', 'no effect', 'not judged')
    """
    if credit == 0:
        return "no effect"
    if better == "neither":
        return "not judged"
    return "helped" if (credit > 0) == (better == "higher") else "hurt"


def color_of(verdict: Verdict, share: float) -> str:
    """Return the colour of a credit: the further from grey, the larger its share, in [0, 1], of the largest one.

    >>> color_of("helped", 1.0), color_of("no effect", 0.0)
    ('#009e73', '#8c8c8c')
    """
    full = {"helped": HELPED, "hurt": HURT}.get(verdict, NEUTRAL)
    weight = 0.35 + 0.65 * min(1.0, share) if full != NEUTRAL else 0.0
    parts = [(int(NEUTRAL[n : n + 2], 16), int(full[n : n + 2], 16)) for n in (1, 3, 5)]
    return "#" + "".join([f"{round(grey + weight * (color - grey)):02x}" for grey, color in parts])


def why_no_interval(row: Mapping[str, Any]) -> str:
    """Return why a row of effects has no interval; empty where it has one."""
    if not _is_missing(row["low"]):
        return ""
    if not row["n"]:
        return "no pair has it in both runs"
    if row["how"] == "alike":
        return f"no interval: all {row['unit']} alike" if row["delta_q"] else "no pair differs"
    if row["unit"] == "tasks":
        return f"no interval: {row['n_tasks']} tasks, {N_LEAST} needed"
    return f"no interval: one task, {row['n']} of {N_LEAST} pairs"


def forest(rows: pd.DataFrame, metric: str, *, title: str, selected: list[str] | None = None) -> go.Figure:
    """Draw differences with their intervals, a panel for each evidence and world; a click gives `customdata`, the row's key.

    Parameters
    ----------
    rows : label, key (list of texts), delta_q, low, high, n, n_tasks, how, unit, evidence, world, better; the largest
        differences are drawn first, rows without one left out
    selected : the key of the row to ring
    """
    rows = rows[rows["delta_q"].notna()].sort_values("delta_q", key=lambda cells: -cells.abs(), kind="stable")
    parts = list(_sections(rows))
    heights = [len(part) + 1.2 for _, part in parts]
    figure = make_subplots(
        rows=max(1, len(parts)), shared_xaxes=True, row_heights=heights or None, subplot_titles=[name for name, _ in parts],
        vertical_spacing=min(0.12, 50 / (110 + 34 * sum(heights))) if len(parts) > 1 else 0,
    )  # fmt: skip
    seen: set[str] = set()
    for n, (_, part) in enumerate(parts, 1):
        part = part.reset_index(drop=True)
        looks = [_look(row) for row in part.to_dict("records")]
        for look in _LOOKS:
            if at := [k for k, found in enumerate(looks) if found == look]:
                figure.add_trace(_intervals(part.iloc[at], look, is_first=look not in seen), n, 1)
                seen.add(look)
        if ring := [k for k, key in enumerate(part["key"]) if key == selected]:
            figure.add_trace(_ring(float(part["delta_q"].iloc[ring[0]]), ring[0]), n, 1)
        figure.update_yaxes(
            tickvals=list(range(len(part))), ticktext=[_label(row) for row in part.to_dict("records")],
            range=[len(part) - 0.4, -0.6], showgrid=False, zeroline=False, row=n,
        )  # fmt: skip
    better = str(rows["better"].iloc[0]) if len(rows) else "neither"
    is_observed = set(rows["evidence"]) == {"observational"}
    sides = "second level - first" if is_observed else "ΔQ, changed - unchanged"
    figure.update_xaxes(zeroline=True, zerolinewidth=2, zerolinecolor=FAINT, rangemode="tozero")
    figure.update_xaxes(title=f"{sides}: {plotly_text(_named(metric))}", row=max(1, len(parts)))
    figure.update_annotations(_PANEL)
    what = "the second level goes with the better" if is_observed else "the change does better than the decision taken"
    return figure.update_layout(
        title={"text": title, "subtitle": {"text": f"{_sides(metric, better, what)}; bars are 95 % intervals"}},
        height=round(210 + 36 * sum(heights)), legend=_LEGEND, margin=_MARGIN, hovermode="closest", clickmode="event+select",
        dragmode="pan",
    )  # fmt: skip


def stop_curve(cells: pd.DataFrame, events: pd.DataFrame, *, gain: str, cost: str) -> go.Figure:
    """Draw what ending a run elsewhere gains against what it costs, a panel for each evidence and world.

    Parameters
    ----------
    cells : label, evidence, world, n, and of gain and of cost delta_q, low, high with `_gain` and `_cost`
    events : single decisions: evidence, world, delta_q_gain, delta_q_cost, hover
    """
    parts = list(_sections(cells))
    figure = make_subplots(cols=max(1, len(parts)), subplot_titles=[name for name, _ in parts], horizontal_spacing=0.12)
    for n, (_, part) in enumerate(parts, 1):
        mine = events[(events["evidence"] == part["evidence"].iloc[0]) & (events["world"] == part["world"].iloc[0])]
        single = go.Scatter(
            x=mine["delta_q_cost"], y=mine["delta_q_gain"], mode="markers", name="one decision", legendgroup="one",
            showlegend=n == 1, marker={"color": FAINT, "size": 7}, text=[plotly_text(text) for text in mine["hover"]],
            hovertemplate=_TEXT,
        )  # fmt: skip
        figure.add_trace(single, 1, n)
        for trace in _means(part, is_first=n == 1):
            figure.add_trace(trace, 1, n)
    figure.update_xaxes(title=f"Δ {plotly_text(_named(cost))}: left of 0 it is saved", zeroline=True, zerolinecolor=FAINT)
    figure.update_yaxes(title=f"Δ {plotly_text(_named(gain))}", zeroline=True, zerolinecolor=FAINT, col=1)
    figure.update_annotations(_PANEL if len(parts) == 1 else {"font": {"size": 13}})
    return figure.update_layout(
        title={
            "text": "What would stopping earlier or later have cost or gained?",
            "subtitle": {"text": "mean over tasks, with 95 % intervals where there are enough; 0, 0 is the run as it was"},
        },
        height=500, legend=_LEGEND, margin=_MARGIN, hovermode="closest",
    )  # fmt: skip


def arrival(found: pd.DataFrame, *, title: str, unit: str) -> go.Figure:
    """Draw the mean difference as it arrives, and the band that holds it at all times at once.

    Parameters
    ----------
    found : n, delta_q, low, high, as `analysis.counterfactual.effects.arriving` gives them
    unit : what arrives, such as tasks
    """
    figure = go.Figure()
    n = found["n"].tolist()
    figure.add_scatter(
        x=n + n[::-1], y=found["high"].tolist() + found["low"].tolist()[::-1], fill="toself", fillcolor="rgba(0,114,178,0.18)",
        mode="none", name="holds the mean with 95 %, whenever one looks", hoverinfo="skip",
    )  # fmt: skip
    figure.add_scatter(
        x=n, y=found["delta_q"], mode="lines+markers", name="mean so far", line={"color": "#0072B2", "width": 2},
        text=[f"{row.n} {unit}: {row.delta_q:+.3f}, {row.low:+.3f} to {row.high:+.3f}" for row in found.itertuples()],
        hovertemplate=_TEXT,
    )  # fmt: skip
    figure.add_hline(y=0, line={"color": FAINT})
    return figure.update_layout(
        title={"text": title}, xaxis={"title": f"{unit} so far", "rangemode": "tozero", "dtick": max(1, len(n) // 8)},
        yaxis={"title": "Δ passed, changed - unchanged", "range": [-1.05, 1.05]}, height=340, legend=_LEGEND,
        margin=_MARGIN | {"t": 50},
    )  # fmt: skip


def _sections(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for (evidence, world), part in rows.groupby(["evidence", "world"], sort=True):
        yield plotly_text(f"{evidence}, {world} runs: {EVIDENCE.get(str(evidence), '')}", 130), part


def _named(metric: str) -> str:
    unit = METRICS[metric].unit if metric in METRICS else "share" if metric == "passed" else ""
    return f"{metric} ({unit})" if unit and unit != metric else metric


def _sides(metric: str, better: str, what: str) -> str:
    if better == "neither":
        return f"no value of {plotly_text(metric)} is better than another"
    side = "right" if better == "higher" else "left"
    return f"{better} {plotly_text(metric)} is better: {side} of 0 {what}"


def _look(row: Mapping[str, Any]) -> str:
    if _is_missing(row["low"]):
        return "no interval"
    if row["low"] <= 0 <= row["high"]:
        return "the interval holds 0"
    if row["better"] == "neither":
        return "neither way is better"
    return "better" if (row["low"] > 0) == (row["better"] == "higher") else "worse"


def _label(row: Mapping[str, Any]) -> str:
    why = why_no_interval(row)
    counts = [f"{row['n']:,} pairs", f"{row['n_tasks']:,} task{'' if row['n_tasks'] == 1 else 's'}", why]
    said = ", ".join([text for text in counts if text])
    return f"{plotly_text(row['label'], 60)}<br><span style='font-size:10.5px'>{said}</span>"


def _intervals(part: pd.DataFrame, look: str, *, is_first: bool) -> Any:
    color, symbol = _LOOKS[look]
    x, low, high = part["delta_q"], part["low"].astype(float), part["high"].astype(float)
    hover = [
        f"{plotly_text(row['label'], 60)}<br>difference {row['delta_q']:+.4g}<br>"
        + (f"95 % interval {row['low']:+.4g} to {row['high']:+.4g}" if look != "no interval" else why_no_interval(row))
        for row in part.to_dict("records")
    ]
    return go.Scatter(
        x=x.tolist(), y=part.index.tolist(), mode="markers", name=look, legendgroup=look, showlegend=is_first, text=hover,
        customdata=part["key"].tolist(), hovertemplate=_TEXT, marker={"color": color, "symbol": symbol, "size": 12},
        error_x={
            "symmetric": False, "array": (high - x).tolist(), "arrayminus": (x - low).tolist(), "color": color,
            "visible": look != "no interval",
        },
    )  # fmt: skip


def _ring(x: float, y: int) -> Any:
    marker = {"symbol": "circle-open", "size": 22, "color": SELECTED, "line": {"width": 2.5}}
    return go.Scatter(x=[x], y=[y], mode="markers", marker=marker, hoverinfo="skip", showlegend=False)


def _means(part: pd.DataFrame, *, is_first: bool) -> Iterator[Any]:
    """Yield the line through the run as it was, and a mark a cell."""
    line = sorted([(0.0, 0.0), *zip(part["delta_q_cost"], part["delta_q_gain"], strict=True)])
    xs, ys = zip(*line, strict=True)
    yield go.Scatter(x=xs, y=ys, mode="lines", line={"color": FAINT, "dash": "dot"}, hoverinfo="skip", showlegend=False)
    marker = {"symbol": "cross-thin-open", "size": 16, "color": NEUTRAL, "line": {"width": 2}}
    yield go.Scatter(x=[0], y=[0], mode="markers", marker=marker, name="the run as it was", showlegend=is_first, hoverinfo="name")
    colors = ("#0072B2", "#E69F00", "#CC79A7", "#56B4E9", "#009E73")
    for n, row in enumerate(part.sort_values("delta_q_cost", kind="stable").to_dict("records")):
        color, label = colors[n % len(colors)], plotly_text(row["label"], 60)
        said = f"Δ cost {row['delta_q_cost']:+.4g}, Δ gain {row['delta_q_gain']:+.4g}"
        yield go.Scatter(
            x=[row["delta_q_cost"]], y=[row["delta_q_gain"]], mode="markers", name=f"{label}: {row['n']:,} pairs",
            marker={"color": color, "size": 13, "symbol": "diamond"}, text=[f"{label}<br>{said}"], hovertemplate=_TEXT,
            error_x=_bars(row, "cost", color), error_y=_bars(row, "gain", color),
        )  # fmt: skip


def _bars(row: Mapping[str, Any], side: str, color: str) -> dict[str, Any]:
    middle, low, high = (row[f"{name}_{side}"] for name in ("delta_q", "low", "high"))
    if _is_missing(low):
        return {"visible": False}
    return {"symmetric": False, "array": [high - middle], "arrayminus": [middle - low], "color": color}


def _is_missing(value: Any) -> bool:
    return value is None or math.isnan(value)
