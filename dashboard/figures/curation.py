"""Figures of a curation: the way through its gates, what it changed, how much coherence is enough, whether batches hold.

Hides how a funnel is laid out: each way as wide as the traces that take it, what leaves below what stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import FAINT, SELECTED
from dashboard.figures.modes import both_ends
from dashboard.safe import plotly_text

MAX_NAMES = 15
#: Okabe and Ito; an outcome has a word beside its colour everywhere.
OUTCOMES = {"kept": "#009E73", "masked": "#56B4E9", "queued": "#E69F00", "dropped": "#D55E00"}
ALL = ("", "")  # the mark of the whole input in a funnel
_BEFORE, _AFTER, _GATE = "#8C8C8C", "#0072B2", "#0072B2"
_TEXT = "%{text}<extra></extra>"
_LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
_MARGIN = {"t": 70, "b": 90, "l": 10, "r": 10}
_HALF, _GAP, _THINNEST = 0.025, 0.07, 0.004  # half a bar, in columns; between ways, and the least width of one, in shares
_CURVE = np.linspace(0, 1, 25)

Key = tuple[str, str]  # a gate is (its place, ""), what leaves it (its place, outcome), what stays ("", outcome)


class _Bar(NamedTuple):
    x: float
    top: float
    n: int
    name: str
    color: str


def funnel(steps: pd.DataFrame, *, selected: Key = ALL) -> go.Figure:
    """Draw the ways of all traces through the gates to what became of them; a click gives `customdata = [place, outcome]`.

    Parameters
    ----------
    steps : place and gate (missing at the start), next_place and next_gate (missing at the end), final, n
    selected : what is marked
    """
    links = _links(steps)
    total = sum(n for source, _, n in links if source == ALL)
    bars = _bars(links, {str(p): str(g) for p, g in zip(steps["next_place"], steps["next_gate"], strict=True)}, total)
    figure = go.Figure()
    used = {key: bar.top for key, bar in bars.items()} | {("in", *key): bar.top for key, bar in bars.items()}
    for source, target, n in links:
        width = n / total
        is_stream = not target[1]
        color = "rgba(0,114,178,0.28)" if is_stream else _faded(OUTCOMES[target[1]])
        ways = (used[source], used["in", *target], max(width, _THINNEST))
        figure.add_scatter(**_ribbon(bars[source].x, bars[target].x, *ways), fillcolor=color)
        if is_stream:
            middle = (ways[0] + ways[1] - width) / 2
            where = {"x": (bars[source].x + bars[target].x) / 2, "y": middle}
            figure.add_annotation(**where, text=f"{n:,}", showarrow=False)
        used[source] -= width
        used["in", *target] -= width
    _add_bars(figure, bars, total, selected)
    lowest = min(bar.top - bar.n / total for bar in bars.values())
    return figure.update_layout(
        title={"text": "Where do traces leave, and what stays?",
               "subtitle": {"text": "as wide as there are traces · click a gate or an end for its traces"}},
        xaxis={"visible": False, "range": [-0.35, max(bar.x for bar in bars.values()) + 0.45], "fixedrange": True},
        yaxis={"visible": False, "range": [lowest - 0.2, 1.22], "fixedrange": True},
        hovermode="closest", hoverdistance=-1, clickmode="event+select", dragmode="pan", showlegend=False,
        height=460, margin=_MARGIN | {"b": 10},
    )  # fmt: skip


def residual_change(found: Mapping[str, Any]) -> go.Figure:
    """Draw how normalised residuals are distributed before and after; `found` is `residual_norm` of a report's distributions."""
    figure = go.Figure()
    said = []
    middles = (np.array(found["edges"])[:-1] + np.array(found["edges"])[1:]) / 2
    for name, color, pattern in (("before", _BEFORE, ""), ("after", _AFTER, "/")):
        part = found[name]
        said.append(f"{name}: n {part['n']:,}" + ("" if part["mean"] is None else f", mean {part['mean']:.3f}"))
        if not part["n"]:
            continue
        hover = [f"{name}: {n:,} of {part['n']:,} traces at {m - 0.025:.2f} to {m + 0.025:.2f}"
                 for m, n in zip(middles, part["counts"], strict=True)]  # fmt: skip
        figure.add_bar(
            x=middles, y=np.array(part["counts"]) / part["n"], name=name, text=hover, textposition="none", hovertemplate=_TEXT,
            marker={"color": color, "pattern": _hatched(pattern)},
        )  # fmt: skip
    return figure.update_layout(
        title={"text": "How incoherent is what stays?", "subtitle": {"text": f"traces with tied claims, {' · '.join(said)}"}},
        xaxis={"title": "residual_norm (share of ε*max)", "range": [0, 1]},
        yaxis={"title": "share of traces", "tickformat": ".0%", "rangemode": "tozero"},
        barmode="group", bargap=0.1, legend=_LEGEND, height=330, margin=_MARGIN,
    )  # fmt: skip


def share_change(counts: Mapping[str, Mapping[str, int]], *, title: str) -> go.Figure:
    """Draw the share of each name among all traces and among those that stay, the most frequent first.

    Parameters
    ----------
    counts : before, after -> name -> traces
    """
    totals = {when: max(1, sum(names.values())) for when, names in counts.items()}
    names = sorted(counts["before"], key=lambda name: (-counts["before"][name], name))[:MAX_NAMES]
    figure = go.Figure()
    for when, color, pattern in (("after", _AFTER, "/"), ("before", _BEFORE, "")):
        mine = [counts[when].get(name, 0) for name in names]
        figure.add_bar(
            x=[n / totals[when] for n in mine], y=list(range(len(names))), orientation="h", name=when, textposition="none",
            text=[f"{plotly_text(name)}<br>{when}: {n:,} of {totals[when]:,}" for name, n in zip(names, mine, strict=True)],
            hovertemplate=_TEXT, marker={"color": color, "pattern": _hatched(pattern)},
        )  # fmt: skip
    hidden = len(counts["before"]) - len(names)
    rest = f" · {hidden:,} rarer ones are not drawn" if hidden else ""
    said = f"before: {sum(counts['before'].values()):,} traces · after: {sum(counts['after'].values()):,}{rest}"
    return figure.update_layout(
        title={"text": title, "subtitle": {"text": said}},
        xaxis={"title": "share of traces", "tickformat": ".0%", "rangemode": "tozero"},
        yaxis=_named(names), legend=_LEGEND | {"traceorder": "reversed"}, height=190 + 34 * max(len(names), 3), margin=_MARGIN,
    )  # fmt: skip


def budget_change(blocks: Sequence[Mapping[str, Any]], n_blocks: int) -> go.Figure:
    """Draw the share of the budget of each block of components before and after it moves, the most tightly coupled first."""
    shown = blocks[:MAX_NAMES]
    names = [" + ".join(block["components"]) or "nothing tied" for block in shown]
    figure = go.Figure()
    for row, block in enumerate(shown):
        figure.add_scatter(
            x=[block["share_before"], block["share_after"]], y=[row, row], mode="lines", line={"color": FAINT, "width": 3},
            showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    for name, key, color, symbol in (("before", "share_before", _BEFORE, "circle"), ("after", "share_after", _AFTER, "diamond")):
        figure.add_scatter(
            x=[block[key] for block in shown], y=list(range(len(shown))), mode="markers", name=name,
            marker={"color": color, "symbol": symbol, "size": 11}, text=[_told(block) for block in shown], hovertemplate=_TEXT,
        )  # fmt: skip
    rest = f" · {len(shown):,} of {n_blocks:,} blocks" if len(shown) < n_blocks else ""
    return figure.update_layout(
        title={"text": "Where does scrutiny go?",
               "subtitle": {"text": f"with synthesis and replay; the most tightly coupled first{rest}"}},
        xaxis={"title": "share of the budget", "tickformat": ".0%", "rangemode": "tozero"},
        yaxis=_named(names), legend=_LEGEND, height=190 + 30 * max(len(shown), 3), margin=_MARGIN,
    )  # fmt: skip


def diversity_curve(curve: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Draw what a threshold on the residual would leave of coherence and of diversity, a point a tenth of the traces."""
    figure = go.Figure()
    for key, name, color, symbol in (("vendi", "different runs (Vendi)", _AFTER, "circle"),
                                     ("ess", "effective sample size of the weights", "#E69F00", "diamond")):  # fmt: skip
        hover = [f"threshold {row['threshold']:.3f} keeps {row['n']:,} traces ({row['kept_share']:.0%})<br>mean residual_norm "
                 f"{row['residual_mean']:.3f}, {name} {row[key]:.1f}" for row in curve]  # fmt: skip
        figure.add_scatter(
            x=[row["residual_mean"] for row in curve], y=[row[key] for row in curve], mode="lines+markers", name=name, text=hover,
            hovertemplate=_TEXT, marker={"color": color, "symbol": symbol, "size": 9}, line={"color": color},
            yaxis="y2" if key == "ess" else "y",
        )  # fmt: skip
    n = curve[-1]["n"] if curve else 0
    return figure.update_layout(
        title={"text": "What does coherence cost in diversity?",
               "subtitle": {"text": f"a stricter threshold on residual_norm, from the left; n {n:,} with tied claims"}},
        xaxis={"title": "mean residual_norm of what a threshold leaves", "rangemode": "tozero"},
        yaxis={"title": "different runs", "rangemode": "tozero"},
        yaxis2={"title": "equally weighted rows", "overlaying": "y", "side": "right", "rangemode": "tozero", "showgrid": False,
                "tickformat": ".0f"},
        legend=_LEGEND, height=380, margin=_MARGIN, hovermode="closest",
    )  # fmt: skip


def dose_response(bins: Sequence[Mapping[str, Any]], *, plateau: float | None) -> go.Figure:
    """Draw the outcome of runs by their residual with 95 % intervals, the falling curve through it and where the plateau ends."""
    x = [row["residual_norm"] for row in bins]
    low = [row["outcome"] - (row["outcome"] if row["outcome_low"] is None else row["outcome_low"]) for row in bins]
    high = [(row["outcome"] if row["outcome_high"] is None else row["outcome_high"]) - row["outcome"] for row in bins]
    figure = go.Figure()
    figure.add_scatter(
        x=x, y=[row["fitted"] for row in bins], mode="lines", name="best falling curve", line={"color": FAINT, "width": 3},
        hoverinfo="skip",
    )  # fmt: skip
    figure.add_scatter(
        x=x, y=[row["outcome"] for row in bins], mode="markers", name="mean with 95 % interval", hovertemplate=_TEXT,
        text=[f"residual_norm {b['low']:.3f} to {b['high']:.3f}: outcome {b['outcome']:.2f}, n {b['n']:,}" for b in bins],
        marker={"color": _AFTER, "size": 9}, error_y={"type": "data", "array": high, "arrayminus": low, "color": _AFTER},
    )  # fmt: skip
    if plateau is not None:
        figure.add_vline(x=plateau, line={"dash": "dash", "color": SELECTED}, annotation_text="plateau up to here")
    return figure.update_layout(
        title={"text": "How much coherence is enough?",
               "subtitle": {"text": f"{sum(row['n'] for row in bins):,} runs with a residual and an outcome; an association"}},
        xaxis={"title": "residual_norm (share of ε*max)", "rangemode": "tozero"},
        yaxis={"title": "outcome (share passed)", "range": [-0.03, 1.05], "tickformat": ".0%"},
        legend=_LEGEND, height=380, margin=_MARGIN, hovermode="closest",
    )  # fmt: skip


def batch_ratios(batches: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Draw the share of coherent traces of each batch beside the least share that the policy asks for."""
    figure = go.Figure()
    xs = [row["batch"] + 1 for row in batches]
    figure.add_scatter(
        x=xs, y=[row["required"] for row in batches], mode="lines", name="asked for, ρ",
        line={"color": FAINT, "width": 3, "shape": "hv"}, hovertemplate="batch %{x}: at least %{y:.0%}<extra></extra>",
    )  # fmt: skip
    for name, holds, color, symbol in (
        ("holds", True, OUTCOMES["kept"], "circle"),
        ("misses it", False, OUTCOMES["dropped"], "x"),
    ):
        rows = [row for row in batches if row["holds"] == holds and row["ratio"] is not None]
        if rows:
            figure.add_scatter(
                x=[row["batch"] + 1 for row in rows], y=[row["ratio"] for row in rows], mode="markers", name=name,
                marker={"color": color, "symbol": symbol, "size": 8}, hovertemplate=_TEXT,
                text=[f"batch {row['batch'] + 1}: {row['ratio']:.0%} of {row['n_tied']:,} with tied claims are coherent; "
                      f"{row['n_left']:,} left it" for row in rows],
            )  # fmt: skip
    n_loose = sum(row["ratio"] is None for row in batches)
    said = f"{len(batches):,} batches" + (f", {n_loose:,} without tied claims" if n_loose else "")
    return figure.update_layout(
        title={"text": "Is every batch coherent enough?", "subtitle": {"text": said}},
        xaxis={"title": "batch, in the order of training"},
        yaxis={"title": "coherent, of traces with tied claims", "tickformat": ".0%", "range": [-0.03, 1.05]},
        legend=_LEGEND, height=340, margin=_MARGIN, hovermode="closest",
    )  # fmt: skip


def _links(steps: pd.DataFrame) -> list[tuple[Key, Key, int]]:
    """The ways between marks, of one mark those that go on first, the widest on top, and what is dropped last."""
    order = ["", *OUTCOMES]
    links = []
    for step in steps.itertuples():
        source = ALL if pd.isna(step.place) else (f"{step.place:.0f}", "")
        if pd.notna(step.next_place):
            target = (f"{step.next_place:.0f}", "")
        else:
            target = ("" if step.final in ("kept", "masked") else source[0], str(step.final))
        links.append((source, target, int(step.n)))
    return sorted(links, key=lambda link: (order.index(link[1][1]), -link[2], link[0]))


def _bars(links: Sequence[tuple[Key, Key, int]], gates: Mapping[str, str], total: int) -> dict[Key, _Bar]:
    """Where each mark stands: gates in their order on the stream, what leaves one just behind and below it."""
    names = {f"{float(place):.0f}": gate for place, gate in gates.items() if place not in ("nan", "None", "<NA>")}
    x = {place: n + 1.0 for n, place in enumerate(sorted(names, key=int))} | {"": 0.0}
    bars = {ALL: _Bar(0.0, 1.0, total, "all traces", _BEFORE)}
    for place, name in names.items():
        n = sum(n for _, target, n in links if target == (place, ""))
        passing = sum(n for source, target, n in links if not target[1] and x[source[0]] < x[place] < x[target[0]])
        bars[place, ""] = _Bar(x[place], 1.0 - passing / total - (_GAP if passing else 0.0), n, name, _GATE)
    top, end = 1.0, len(names) + 1.0
    for outcome in ("kept", "masked"):
        if n := sum(n for _, target, n in links if target == ("", outcome)):
            bars["", outcome] = _Bar(end, top, n, outcome, OUTCOMES[outcome])
            top -= n / total + _GAP
    for place in names:
        gone = bars[place, ""].top - sum(n for source, target, n in links if source == (place, "") and target[0] != place) / total
        for outcome in ("queued", "dropped"):
            if n := sum(n for _, target, n in links if target == (place, outcome)):
                gone -= _GAP
                bars[place, outcome] = _Bar(x[place] + 0.55, gone, n, outcome, OUTCOMES[outcome])
                gone -= n / total
    return bars


def _add_bars(figure: go.Figure, bars: Mapping[Key, _Bar], total: int, selected: Key) -> None:
    """Draw the bars with their names: those of the stream above, what leaves it below."""
    for key, bar in bars.items():
        bottom = bar.top - max(bar.n / total, _THINNEST)
        color = SELECTED if key == selected and key != ALL else bar.color
        figure.add_shape(
            type="rect",
            x0=bar.x - _HALF,
            x1=bar.x + _HALF,
            y0=bottom,
            y1=bar.top,
            fillcolor=color,
            line={"width": 0},
            layer="above",
        )
        words = plotly_text(bar.name, 60)
        if key[1]:
            beside = {"y": (bar.top + bottom) / 2, "yanchor": "middle", "xanchor": "left", "xshift": 8}
            figure.add_annotation(x=bar.x, text=f"{bar.n:,} {words}", showarrow=False, **beside)
        else:
            above = {"y": bar.top + 0.02, "yanchor": "bottom", "text": words.replace(" ", "<br>")}
            figure.add_annotation(x=bar.x, showarrow=False, **above)
    figure.add_scatter(
        x=[bar.x for bar in bars.values()], y=[bar.top - bar.n / total / 2 for bar in bars.values()], mode="markers",
        marker={"size": 14, "opacity": 0}, customdata=[list(key) for key in bars], hovertemplate=_TEXT,
        text=[f"{plotly_text(bar.name, 60)}: {bar.n:,} of {total:,} traces ({bar.n / total:.1%})" for bar in bars.values()],
    )  # fmt: skip


def _ribbon(x0: float, x1: float, y0: float, y1: float, width: float) -> dict[str, Any]:
    """The outline of a way from the top y0 at x0 to the top y1 at x1."""
    x = x0 + _HALF + (x1 - x0 - 2 * _HALF) * _CURVE
    top: npt.NDArray[np.float64] = y0 + (y1 - y0) * (3 * _CURVE**2 - 2 * _CURVE**3)
    return {
        "x": np.concatenate([x, x[::-1]]), "y": np.concatenate([top, top[::-1] - width]), "mode": "lines", "fill": "toself",
        "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip


def _named(names: Sequence[str]) -> dict[str, Any]:
    """An axis of names, the first on top."""
    texts = [plotly_text(both_ends(name, 42)) for name in names]
    return {"tickvals": list(range(len(names))), "ticktext": texts, "range": [len(names) - 0.5, -0.5], "showgrid": False}


def _told(block: Mapping[str, Any]) -> str:
    bits = "not counted" if block["coupling_bits"] is None else f"{block['coupling_bits']:.2f} bits"
    verdict = {True: "passes the joint test", False: "fails the joint test", None: "not tested"}[block["passes_joint"]]
    names = plotly_text(" + ".join(block["components"]) or "nothing tied", 120)
    return (
        f"{names}<br>{block['n_traces']:,} traces, coupling {bits}, {verdict}"
        f"<br>share {block['share_before']:.1%} → {block['share_after']:.1%}"
    )


def _hatched(shape: str) -> dict[str, Any]:
    return {"shape": shape, "fgcolor": "rgba(255,255,255,0.55)", "fillmode": "overlay", "size": 5}


def _faded(color: str) -> str:
    r, g, b = (int(color[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({r},{g},{b},0.38)"
