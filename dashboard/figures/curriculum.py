"""Figures of the curriculum: where tasks stand, which stages each model has, what is drawn when, how alike models rank tasks.

Hides that tasks with the same numbers are one mark: with few attempts most of them coincide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis.curation.curriculum.stages import STAGES, Reference
from dashboard.figures import FAINT, SELECTED
from dashboard.figures.modes import both_ends
from dashboard.safe import plotly_text

MAX_MODELS = 40
MAX_PLACES = 3_000
#: Okabe and Ito; a stage has a symbol and a pattern too.
LOOKS = {
    "warmup": ("#009E73", "circle", ""), "individual": ("#0072B2", "square", "/"),
    "orchestration": ("#E69F00", "diamond", "\\"), "integrated": ("#D55E00", "triangle-up", "x"),
    "no stage": ("#8C8C8C", "circle", "."),
}  # fmt: skip
_MEANINGS = {
    "warmup": "easy, simple to lead", "individual": "hard, simple to lead", "orchestration": "easy, hard to lead",
    "integrated": "hard, hard to lead",
}  # fmt: skip
_TEXT = "%{text}<extra></extra>"
_LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "traceorder": "normal"}
_MARGIN = {"t": 70, "b": 90, "l": 10, "r": 10}
_LISTED = 5


def places_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a stage with their `place`: a text that tasks with the same numbers share."""
    staged = rows[rows["stage"].notna()].reset_index(drop=True)
    numbers = zip(staged["d_orch"], staged["d_req"], staged["n"], strict=True)
    return staged.assign(place=[f"{orch:.6f}|{hard:.6f}|{n}" for orch, hard, n in numbers])


def difficulty_map(rows: pd.DataFrame, reference: Reference, *, selected: str | None = None) -> go.Figure:
    """Draw where tasks stand, with the stages as quadrants; a click gives `customdata = [place]`.

    Parameters
    ----------
    rows : as from `places_of`; those predicted are hollow
    reference : whose thresholds divide the stages
    selected : the place whose interval is drawn
    """
    places = _places(rows)
    shown = places.head(MAX_PLACES)
    figure = go.Figure()
    for stage in STAGES:
        for is_predicted in (False, True):
            part = shown[(shown["stage"] == stage) & (shown["is_predicted"] == is_predicted)]
            if len(part):
                _add_places(figure, part, stage, is_predicted=is_predicted)
    chosen = shown[(shown["place"] == selected) & shown["low"].notna()].head(1)
    if len(chosen):
        error = {"type": "data", "array": chosen["high"] - chosen["d_req"], "arrayminus": chosen["d_req"] - chosen["low"]}
        figure.add_scatter(
            x=chosen["d_orch"], y=chosen["d_req"], mode="markers", name="95 % interval", hoverinfo="skip",
            marker={"size": 16, "symbol": "circle-open", "color": SELECTED, "line": {"width": 3}},
            error_y=error | {"color": SELECTED, "thickness": 2.5, "width": 9},
        )  # fmt: skip
    right = _add_quadrants(figure, reference, float(places["d_orch"].max() if len(places) else 0))
    left_out = f" · {len(shown):,} of {len(places):,} places, where most tasks stand" if len(shown) < len(places) else ""
    return figure.update_layout(
        title={"text": "Which tasks are hard, and in which way?",
               "subtitle": {"text": f"larger: more tasks and models at one place{left_out}"}},
        xaxis={"title": "d_orch: leading the team (0 = one agent)", "range": [-0.02, right], "zeroline": False},
        yaxis={"title": "d_req: the task (1 = never solved)", "range": [-0.04, 1.07], "zeroline": False},
        legend=_LEGEND, height=470, margin=_MARGIN, clickmode="event+select", dragmode="pan", hovermode="closest",
    )  # fmt: skip


def stages_by_model(rows: pd.DataFrame, *, selected: str = "") -> go.Figure:
    """Draw the share of each stage among the tasks of each model, easiest on top.

    Parameters
    ----------
    rows : model, stage (missing: no stage); models with some task in a stage are drawn, at most 40, those with most such tasks
    selected : the model whose name stands out
    """
    stages = rows["stage"].astype(object).where(rows["stage"].notna(), "no stage")
    counts = pd.crosstab(rows["model"], stages).reindex(columns=list(LOOKS), fill_value=0)
    n_models, n_staged = len(counts), counts[list(STAGES)].sum(axis=1)
    counts = counts.loc[n_staged[n_staged > 0].sort_values(ascending=False, kind="stable").index[:MAX_MODELS]]
    shares = counts.div(counts.sum(axis=1), axis=0)
    counts = counts.loc[shares.sort_values(list(STAGES), ascending=False, kind="stable").index]
    names = [plotly_text(both_ends(str(model), 30)) for model in counts.index]
    ticks = [f"<b>{name}</b>" if model == selected else name for model, name in zip(counts.index, names, strict=True)]
    figure = go.Figure()
    for stage, (color, _, pattern) in LOOKS.items():
        if not counts[stage].any():
            continue
        share = shares.loc[counts.index, stage]
        hover = [f"{name}<br>{n:,} of {total:,} tasks: {stage}"
                 for name, n, total in zip(names, counts[stage], counts.sum(axis=1), strict=True)]  # fmt: skip
        figure.add_bar(
            x=share, y=list(range(len(names))), orientation="h", name=stage, text=hover, textposition="none", hovertemplate=_TEXT,
            marker={"color": color, "pattern": _hatched(pattern)}, showlegend=False,
        )  # fmt: skip
    left_out = f" · {len(names):,} of {n_models:,} models or conditions" if len(names) < n_models else ""
    grey = ", grey: in no stage" if counts["no stage"].any() else ""
    return figure.update_layout(
        title={"text": "Which stages does each one face?",
               "subtitle": {"text": f"colours as beside{grey}{left_out}"}},
        xaxis={"title": "share of tasks", "tickformat": ".0%", "range": [0, 1]}, barmode="stack",
        yaxis={"tickvals": list(range(len(names))), "ticktext": ticks, "range": [len(names) - 0.5, -0.5], "showgrid": False},
        height=max(470, 160 + 20 * len(names)), margin=_MARGIN | {"b": 60},
    )  # fmt: skip


def mass_by_stage(mass: pd.DataFrame) -> go.Figure:
    """Draw which share of the draws each stage has over progress.

    Parameters
    ----------
    mass : a row a progress in [0, 1] (index), a column a stage; rows sum to 1
    """
    figure = go.Figure()
    for stage in STAGES:
        color, _, pattern = LOOKS[stage]
        figure.add_scatter(
            x=mass.index, y=mass[stage], name=stage, mode="lines", stackgroup="stages", line={"color": color, "width": 1},
            fillcolor=color, fillpattern=_hatched(pattern), hovertemplate="%{y:.1%}<extra>" + stage + "</extra>",
        )  # fmt: skip
    return figure.update_layout(
        title={"text": "What is drawn when?", "subtitle": {"text": "share of the draws that each stage has"}},
        xaxis={"title": "progress of training (0 = first batch, 1 = last)", "range": [0, 1]},
        yaxis={"title": "share of draws", "tickformat": ".0%", "range": [0, 1]},
        legend=_LEGEND, height=400, margin=_MARGIN, hovermode="x unified",
    )  # fmt: skip


def effective_tasks(sizes: pd.Series, n_tasks: int) -> go.Figure:
    """Draw as how many equally likely tasks the draws count, over progress (the index of `sizes`)."""
    figure = go.Figure()
    figure.add_scatter(
        x=sizes.index, y=sizes, mode="lines", line={"color": "#56B4E9", "width": 3}, showlegend=False,
        hovertemplate="at progress %{x:.2f} as many as %{y:.1f} tasks<extra></extra>",
    )  # fmt: skip
    figure.add_hline(y=n_tasks, line={"dash": "dash", "color": FAINT}, annotation_text=f"all {n_tasks:,} tasks")
    return figure.update_layout(
        title={"text": "How many tasks carry a batch?", "subtitle": {"text": "effective sample size of the weights"}},
        xaxis={"title": "progress of training", "range": [0, 1]}, yaxis={"title": "tasks", "range": [0, 1.12 * n_tasks]},
        height=400, margin=_MARGIN,
    )  # fmt: skip


def family_weights(weights: Mapping[str, float], families: pd.DataFrame) -> go.Figure:
    """Draw how often runs of each family would be drawn, the most first.

    Parameters
    ----------
    weights : family_id -> weight, which sum to 1
    families : family_id, name, n_passed, n
    """
    known = families.set_index("family_id")
    ordered = sorted(weights, key=lambda family_id: (-weights[family_id], family_id))
    names = [plotly_text(both_ends(str(known.loc[family_id, "name"]), 46)) for family_id in ordered]
    said = [f"{known.loc[i, 'n_passed']:,} of {known.loc[i, 'n']:,} pass" for i in ordered]
    figure = go.Figure()
    figure.add_bar(
        x=[weights[family_id] for family_id in ordered], y=list(range(len(names))), orientation="h", text=said,
        textposition="auto", marker_color="#56B4E9", hovertemplate="%{x:.1%} of the draws, %{text}<extra></extra>",
    )  # fmt: skip
    alike = {"text": "all alike", "yanchor": "bottom"}
    figure.add_vline(x=1 / len(weights), line={"dash": "dash", "color": FAINT}, annotation=alike)
    return figure.update_layout(
        title={"text": "Which ways of working can still be learned from?",
               "subtitle": {"text": "weight of a family of runs: most where half of them pass, and a floor for all"}},
        xaxis={"title": "share of draws", "tickformat": ".0%", "rangemode": "tozero"},
        yaxis={"tickvals": list(range(len(names))), "ticktext": names, "range": [len(names) - 0.5, -0.5], "showgrid": False},
        height=190 + 34 * max(len(names), 2), margin=_MARGIN | {"b": 60},
    )  # fmt: skip


def model_map(correlations: pd.DataFrame) -> go.Figure:
    """Draw the rank correlation of difficulty between models that have one, at most 40, by name."""
    known = correlations.index[correlations.notna().sum() > 1]
    shown = correlations.loc[known[:MAX_MODELS], known[:MAX_MODELS]]
    names = [plotly_text(both_ends(str(model), 30)) for model in shown.index]
    values = shown.to_numpy(dtype=float)
    hover = [
        [f"{a} and {b}: " + ("too few shared tasks, or all equally hard" if np.isnan(v) else f"{v:.2f}")
         for b, v in zip(names, line, strict=True)]
        for a, line in zip(names, values, strict=True)
    ]  # fmt: skip
    figure = go.Figure(go.Heatmap(
        z=values, x=list(range(len(names))), y=list(range(len(names))), text=hover, hovertemplate=_TEXT, zmin=-1, zmax=1,
        colorscale="RdBu_r", xgap=1, ygap=1, colorbar={"title": {"text": "ρ "}, "thickness": 12},
    ))  # fmt: skip
    axis: dict[str, Any] = {"tickvals": list(range(len(names))), "ticktext": names, "showgrid": False}
    left_out = f", {len(names):,} of {len(correlations):,} models or conditions" if len(names) < len(correlations) else ""
    return figure.update_layout(
        title={"text": "Do models or conditions find the same tasks hard?",
               "subtitle": {"text": f"Spearman's ρ of d_req over shared tasks{left_out}"}},
        xaxis=axis | {"tickangle": -60}, yaxis=axis | {"autorange": "reversed"},
        height=300 + min(22 * max(len(names), 6), 640), margin=_MARGIN | {"b": 160},
    )  # fmt: skip


def _hatched(shape: str) -> dict[str, Any]:
    return {"shape": shape, "fgcolor": "rgba(255,255,255,0.55)", "fillmode": "overlay", "size": 5}


def _places(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a place, those of most tasks first: its numbers, how many stand there, which they are."""
    named = rows.assign(is_predicted=rows["source"] == "predicted", who=rows["task_id"] + ", " + rows["model"])
    keys = ["place", "stage", "is_predicted", "d_orch", "d_req", "n"]
    found = named.groupby(keys, sort=True).agg(
        low=("low", "first"), high=("high", "first"), size=("who", "size"), who=("who", lambda names: list(names)[:_LISTED])
    )
    return found.reset_index().sort_values("size", ascending=False, kind="stable").reset_index(drop=True)


def _add_places(figure: go.Figure, part: pd.DataFrame, stage: str, *, is_predicted: bool) -> None:
    color, symbol, _ = LOOKS[stage]
    figure.add_scatter(
        x=part["d_orch"], y=part["d_req"], mode="markers", name=f"{stage}, predicted" if is_predicted else stage,
        customdata=part[["place"]].to_numpy(), text=[_hover(row) for row in part.to_dict("records")], hovertemplate=_TEXT,
        marker={
            "color": color, "symbol": symbol + "-open" * is_predicted, "size": 10 + 4 * np.sqrt(part["size"] - 1).clip(upper=6),
            "opacity": 0.75, "line": {"width": 1},
        },
    )  # fmt: skip


def _hover(place: Mapping[Any, Any]) -> str:
    interval = "no interval" if pd.isna(place["low"]) else f"{place['low']:.2f} to {place['high']:.2f}"
    attempts = "predicted" if place["is_predicted"] else f"{place['n']:,} attempts"
    who = [plotly_text(name, 70) for name in place["who"]]
    more = [f"and {place['size'] - len(who):,} more"] if place["size"] > len(who) else []
    return "<br>".join([f"d_req {place['d_req']:.3f} ({interval}; {attempts}), d_orch {place['d_orch']:.3f}", *who, *more])


def _add_quadrants(figure: go.Figure, reference: Reference, most: float) -> float:
    """Draw the thresholds and name the four stages in their corners; return where the x axis ends."""
    right = min(1.03, max(1.15 * most, 1.6 * reference.tau_o, 0.3))
    line = {"dash": "dash", "width": 1.5, "color": FAINT}
    figure.add_vline(x=reference.tau_o, line=line)
    figure.add_hline(y=reference.tau_r, line=line)
    corners = zip(STAGES, ((0, 0), (0, 1), (1, 0), (1, 1)), strict=True)
    for stage, (x, y) in corners:
        figure.add_annotation(
            x=x, y=y, xref="paper", yref="paper", xanchor="right" if x else "left", yanchor="top" if y else "bottom",
            text=f"<b>{stage}</b> {_MEANINGS[stage]}", showarrow=False, font={"size": 12}, opacity=0.8,
        )  # fmt: skip
    return right
