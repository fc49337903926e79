"""Figures of the overview."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from dashboard import safe
from dashboard.figures import KIND_COLORS


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
