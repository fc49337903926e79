"""Figures: frames in, Plotly figures out, no streamlit. Here stands what they and the graph share: how a kind looks.

overview    what the traces of a workspace consist of

Colours follow Okabe and Ito, told apart by colour-blind readers, on white and on black; each kind has a shape too.
"""

from __future__ import annotations

import json

KIND_COLORS = {
    "spawn": "#E69F00",
    "delegate": "#0072B2",
    "communicate": "#56B4E9",
    "aggregate": "#009E73",
    "stop": "#D55E00",
    "act": "#8C8C8C",
    "opaque": "#CC79A7",
}
#: The shape of each kind, as vis-network calls it.
KIND_SHAPES = {
    "spawn": "triangle",
    "delegate": "square",
    "communicate": "dot",
    "aggregate": "diamond",
    "stop": "star",
    "act": "hexagon",
    "opaque": "triangleDown",
}
SELECTED = "#D6249F"  # what is selected, and what it is tied to
FAINT = "rgba(128,128,128,0.45)"  # ties that are only background
NO_AGENT = "(no agent)"


def kind_of(cell: object) -> str:
    """Return the key in `KIND_COLORS` of an event's `kind`: a missing one is opaque."""
    return cell if isinstance(cell, str) and cell in KIND_COLORS else "opaque"


def ids_of(cell: object) -> list[str]:
    """Return the ids in a cell that holds a JSON list, such as an event's `parents`; a missing cell holds none.

    >>> ids_of('["e1", "e2"]'), ids_of(None)
    (['e1', 'e2'], [])
    """
    return [str(member) for member in json.loads(cell)] if isinstance(cell, str) and cell else []
