"""Figures of training: how many rows each target takes, and how a run goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.safe import plotly_text

_TAKEN, _REFUSED = "#0072B2", "#E69F00"
_LINES = ("#0072B2", "#D55E00")
_LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "traceorder": "normal"}
_TEXT = "%{text}<extra></extra>"
#: What a trainer logs, as questions: unit and the names of the numbers.
PANELS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Does the loss fall?": ("loss", ("loss", "eval_loss")),
    "Does the reward rise?": ("reward", ("reward",)),
    "Is the better arm told from the other?": ("margin of rewards", ("rewards/margins",)),
    "How much does event credit count?": ("λ", ("orch/weight",)),
    "How much of it is paid twice?": ("share, cosine", ("orch/paid_twice_share", "orch/paid_twice_cosine")),
    "How large are the steps?": ("learning rate", ("learning_rate",)),
}


def taken(given: Mapping[str, tuple[int, str]], refused: pd.DataFrame) -> go.Figure:
    """Draw which share of what each target is given it takes.

    Parameters
    ----------
    given : target -> how much it is given, at least 1, and of what: rows or pairs
    refused : target, reason, n
    """
    n_refused = refused.groupby("target")["n"].sum().reindex(list(given), fill_value=0)
    n_given = pd.Series({name: n for name, (n, _) in given.items()})
    figure = go.Figure()
    for word, counts, color, shape in (("taken", n_given - n_refused, _TAKEN, ""), ("refused", n_refused, _REFUSED, "/")):
        figure.add_bar(
            x=counts / n_given, y=list(map(plotly_text, given)), orientation="h", name=word, textposition="none",
            text=[f"{counts[name]:,} of {n:,} {what} {word}" for name, (n, what) in given.items()], hovertemplate=_TEXT,
            marker={"color": color, "pattern": {"shape": shape, "fgcolor": "rgba(255,255,255,0.55)", "fillmode": "overlay"}},
        )  # fmt: skip
    return figure.update_layout(
        title="How much of what it is given does each target take?", barmode="stack", height=150 + 30 * len(given),
        xaxis={"title": "share of its rows or pairs", "tickformat": ".0%", "range": [0, 1]}, yaxis={"autorange": "reversed"},
        legend=_LEGEND, margin={"t": 50, "b": 80, "l": 10, "r": 20},
    )  # fmt: skip


def steps_of(metrics: Sequence[Mapping[str, float]], n_steps_entry: int | None) -> list[int] | None:
    """Return the step of each entry, by the share of the data it has seen; None where the trainer does not tell that.

    A run that was gone on with repeats the steps after its checkpoint, so that entries cannot be counted.

    >>> steps_of([{"epoch": 0.2}, {"epoch": 0.4}, {"epoch": 0.4}], 5)
    [5, 10, 10]
    """
    seen = [entry.get("epoch", 0.0) for entry in metrics]
    if n_steps_entry is None or not all(seen):
        return None
    return [round(epoch / seen[0] * n_steps_entry) for epoch in seen]


def curves(metrics: Sequence[Mapping[str, float]], steps: Sequence[int] | None) -> go.Figure:
    """Draw what a trainer logged, a panel a question.

    Parameters
    ----------
    metrics : an entry each time it logged
    steps : the step of each entry; None draws them in their order
    """
    logged = pd.DataFrame(list(metrics), dtype=float)
    panels = [(question, unit, [name for name in names if name in logged]) for question, (unit, names) in PANELS.items()]
    panels = [panel for panel in panels if panel[2]]
    n_rows = max(1, -(-len(panels) // 2))
    height = 260 * n_rows + 60
    figure = make_subplots(n_rows, 2, subplot_titles=[panel[0] for panel in panels], vertical_spacing=95 / height)
    at, title = (list(range(1, len(logged) + 1)), "entry of the log") if steps is None else (list(steps), "step")
    logged = logged.set_axis(at)
    for k, (_, unit, names) in enumerate(panels):
        where = {"row": k // 2 + 1, "col": k % 2 + 1}
        for color, name in zip(_LINES, names, strict=False):
            values = logged[name].dropna()
            figure.add_scatter(
                x=values.index, y=values, name=name, mode="lines+markers" if len(values) < 30 else "lines",
                line={"color": color, "dash": "solid" if name == names[0] else "dot"}, showlegend=len(names) > 1,
                hovertemplate=f"{title} %{{x}}: %{{y:.4g}}<extra>{plotly_text(name)}</extra>", **where,
            )  # fmt: skip
        figure.update_xaxes(title=title, **where)
        figure.update_yaxes(title=unit, exponentformat="power", **where)
    return figure.update_layout(legend=_LEGEND, height=height, margin={"t": 40, "b": 80, "l": 10, "r": 20}, hovermode="x")
