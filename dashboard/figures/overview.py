"""Figures of the overview: where traces stand in quality, and what they consist of."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from dashboard import safe
from dashboard.figures import FAINT, KIND_COLORS

#: Below this a quality counts as bad, from the other it counts as good; the one click to good work, bad orchestration uses them.
BAD, GOOD = 0.5, 0.8
_OUTCOMES = {"passed": ("#0072B2", "circle"), "failed": ("#D55E00", "x"), "no outcome": ("#8C8C8C", "diamond-open")}


def quality_map(points: pd.DataFrame) -> go.Figure:
    """Draw where traces stand: their own work against their orchestration, by outcome.

    Parameters
    ----------
    points : columns trace_id, task_text, passed, q_work, q_orchestration, variant, n_all

    Returns
    -------
    A figure whose marks carry `customdata = [trace_id]`.
    """
    figure = go.Figure()
    states = points["passed"].map({True: "passed", False: "failed"}).fillna("no outcome")
    for state, (color, symbol) in _OUTCOMES.items():
        rows = points[states == state]
        if rows.empty:
            continue
        hover = [
            f"{safe.plotly_text(row.trace_id, 80)}<br>{safe.plotly_text(row.task_text or '', 80)}<br>"
            f"q_work {row.q_work:.2f}, q_orchestration {row.q_orchestration:.2f} ({safe.plotly_text(row.variant or '', 80)})"
            for row in rows.itertuples()
        ]
        figure.add_scatter(
            x=rows["q_orchestration"], y=rows["q_work"], mode="markers", name=state, customdata=rows[["trace_id"]].to_numpy(),
            marker={"color": color, "symbol": symbol, "size": 8, "opacity": 0.7},
            text=hover, hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    n_all = int(points["n_all"].iloc[0]) if len(points) else 0
    note = f"{len(points):,} of {n_all:,} traces that have both" if n_all else "No trace has both numbers yet."
    figure.add_shape(type="rect", x0=0, x1=BAD, y0=GOOD, y1=1.0, line={"width": 1, "dash": "dot", "color": FAINT}, layer="below")
    return figure.update_layout(
        title={"text": "Good work, bad orchestration?", "subtitle": {"text": note}},
        xaxis={"title": "q_orchestration (share)", "range": [-0.03, 1.05], "zeroline": False},
        yaxis={"title": "q_work (share)", "range": [-0.05, 1.08], "zeroline": False},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        height=420,
        margin={"t": 70, "b": 90, "l": 10, "r": 10},
    )


def kinds_by_format(events: pd.DataFrame) -> go.Figure:
    """Draw how many events of each kind the traces of each format hold.

    Parameters
    ----------
    events : columns format, kind, n_events
    """
    figure = go.Figure()
    totals = events.groupby("format")["n_events"].sum().sort_values()
    for kind, color in KIND_COLORS.items():
        rows = events[events["kind"] == kind].set_index("format")["n_events"].reindex(totals.index).fillna(0)
        if not rows.sum():
            continue
        share = (rows / totals).to_list()
        names = [safe.plotly_text(str(name)) for name in totals.index]
        hover = [f"{int(n):,} {kind} events of {int(total):,}" for n, total in zip(rows, totals, strict=True)]
        figure.add_bar(
            x=share,
            y=names,
            orientation="h",
            name=kind,
            marker_color=color,
            text=hover,
            textposition="none",
            hovertemplate="%{text}",
        )
    return figure.update_layout(
        title="What do the traces consist of?",
        barmode="stack",
        xaxis={"title": "share of events", "tickformat": ".0%", "range": [0, 1]},
        yaxis={"title": None},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "traceorder": "normal"},
        height=170 + 44 * max(len(totals), 3),
        margin={"t": 50, "b": 120, "l": 10, "r": 10},
    )
