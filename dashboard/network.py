"""The orchestration graph of one trace: what it shows at which size, and a self-contained page that draws it.

Hides how a long trace is collapsed, where the nodes stand, and how pyvis is kept from the network, from
markup in labels and from the page around it.
"""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import networkx as nx
import pandas as pd

from analysis.orchestration.patterns.folding import Drawn, fold_siblings
from dashboard.figures import KIND_COLORS, KIND_SHAPES, NO_AGENT, ids_of, kind_of
from dashboard.safe import line

MAX_NODES = 60
_DX, _DY = 125.0, 100.0  # between two columns and two rows of events
_ASPECT = 2.2  # width of the frame over its height
_DEPTH = 8  # agents above each other; more stand in rings
_WORDS = 20  # edges with their kinds in words; more have only their number
_TIES = ("spawn", "delegate", "communicate", "aggregate")
_FOLDED = 12  # steps of a pattern that are drawn one by one
#: What an edge of a pattern says: its colour in words, and the kind of event that has the same.
_SAYS = {
    "delegation": ("blue", "delegate"), "message": ("light blue", "communicate"), "aggregation": ("green", "aggregate"),
    "return": ("purple", "opaque"), "own": ("grey", None),
}  # fmt: skip
_IN_WORDS = "orange spawn, blue delegate, light blue communicate, green aggregate"

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'none'; "
    "form-action 'none'; base-uri 'none'"
)
_HEAD = (
    f'<head><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    "<style>html,body{margin:0;overflow:hidden}center{display:none}#mynetwork{border:0!important}</style>"
)
_EXTERNAL = re.compile(r"<link\b[^>]*>|<script\b[^>]*\bsrc=[^>]*>\s*</script>")
_THEMES = {
    False: {"page": "#ffffff", "text": "#1f2933", "edge": "#7b8794", "node": "#0b6e99", "border": "#4a5560"},
    True: {"page": "#14181c", "text": "#e6eaee", "edge": "#8b98a5", "node": "#3d9ac4", "border": "#a9b4be"},
}
_OPTIONS = {
    "physics": {"enabled": False},
    "interaction": {"dragNodes": True, "hover": False, "keyboard": {"enabled": True, "bindToWindow": False}},
    "edges": {"smooth": {"enabled": True, "type": "curvedCW", "roundness": 0.08}, "arrows": {"to": {"scaleFactor": 0.6}}},
    "nodes": {"borderWidth": 1, "font": {"multi": False}},
}


class Node(NamedTuple):
    """An event (its `kind` says how it looks) or, with `kind` None, an agent or component; x to the right, y down."""

    label: str
    kind: str | None
    size: float
    x: float
    y: float


class Edge(NamedTuple):
    """A tie between two nodes, by their places in the list; it stands for `n` events, most of them of one `kind`."""

    source: int
    target: int
    kind: str | None = None
    label: str = ""
    n: int = 1


class Graph(NamedTuple):
    """What to draw, and what it stands for in words."""

    nodes: list[Node]
    edges: list[Edge]
    caption: str


def orchestration_graph(events: pd.DataFrame, agents: pd.DataFrame) -> Graph:
    """Return the graph of one trace, small enough to read.

    Up to 60 events are drawn one by one, tied by their causes. More are collapsed to their agents, more than
    60 agents to their components, tied by what they spawned, delegated, said and merged; more than 60
    components to the 60 with most events.

    Parameters
    ----------
    events : event_id, kind, action, agent_id, targets, parents (JSON lists), order
    agents : agent_id, component
    """
    if events.empty:
        return Graph([], [], "This trace has no events.")
    ordered = events.sort_values("order", kind="stable").reset_index(drop=True)
    if len(ordered) <= MAX_NODES:
        return _by_event(ordered)
    return _by_agent(ordered, dict(zip(*(agents.reindex(columns=[c])[c] for c in ("agent_id", "component")), strict=True)))


def motif(labels: Sequence[str], edges: Sequence[tuple[int, int, str]]) -> Graph:
    """Return the graph of a pattern or of a typical run, one row a role.

    More than 12 steps are folded: those that nothing but their number tells apart are one node, `× n`. At most the first 60
    nodes are drawn.

    Parameters
    ----------
    labels : of each step, its kind first, then what else it is told apart by, ` · ` between
    edges : source, target, label; without cycles
    """
    if not labels:
        return Graph([], [], "There are no steps to draw.")
    layers = _layers(len(labels), [edge[:2] for edge in edges])
    at = {node: n for n, node in enumerate(node for members in layers for node in members)}
    steps = Drawn([labels[node] for node in at], [(at[a], at[b], word) for a, b, word in edges], [[n] for n in range(len(at))])
    drawn = fold_siblings(steps) if len(labels) > _FOLDED else steps
    kept = [edge for edge in drawn.edges if max(edge[:2]) < MAX_NODES]
    parts = [steps.labels[members[0]].partition(" · ") for members in drawn.members[:MAX_NODES]]
    column = {node: n for n, members in enumerate(_layers(len(parts), [edge[:2] for edge in kept])) for node in members}
    places = _lane_places([column[n] for n in range(len(parts))], [rest for *_, rest in parts])
    in_words = len({word for *_, word in kept}) > 1 and len(kept) <= _WORDS
    nodes = [
        Node(_step_name(kind, rest, len(members)), kind_of(kind), 18, *place)
        for (kind, _, rest), members, place in zip(parts, drawn.members, places, strict=False)
    ]
    ties = [Edge(a, b, _SAYS.get(word, ("", None))[1], word if in_words else "") for a, b, word in kept]
    said = [_counted(len(labels), "step"), _counted(len(edges), "edge")]
    if drawn is not steps:
        said.append(f"those that only their number tells apart drawn as one: {_counted(len(drawn.members), 'node')}")
    said += [f"only the first {MAX_NODES} drawn"] * (len(drawn.members) > MAX_NODES)
    words = [f"{color} {word}" for word, (color, _) in _SAYS.items() if not in_words and any(word == edge[2] for edge in kept)]
    said += [f"edges: {', '.join(words)}"] if words else []
    return Graph(nodes, ties, "; ".join([", ".join(said[:2]), *said[2:], "one row a role, causes to the left of effects"]))


def orchestration_html(nodes: list[Node], edges: list[Edge], *, dark: bool, height_px: int) -> str:
    """Return the graph as one HTML page that fetches nothing; equal input gives equal bytes.

    Embed it through `data_url` only, so that it has an origin of its own.
    """
    from pyvis.network import Network

    theme = _THEMES[dark]
    net = Network(f"{int(height_px)}px", "100%", directed=True, bgcolor=theme["page"], cdn_resources="in_line")
    net.options = _OPTIONS
    # Filled by hand: `add_edge` compares with every edge before it, and titles are where pyvis takes HTML.
    net.nodes = [_vis_node(n, node, theme) for n, node in enumerate(nodes)]
    net.edges = [_vis_edge(edge, theme) for edge in edges]
    html: str = _EXTERNAL.sub("", net.generate_html(notebook=False))
    return "<!doctype html>" + html.replace("<head>", _HEAD, 1)


def data_url(html: str) -> str:
    """Return the page as an address for `st.iframe`: a frame from a data URL cannot reach the page around it."""
    return "data:text/html;charset=utf-8;base64," + base64.b64encode(html.encode()).decode()


def _by_event(events: pd.DataFrame) -> Graph:
    at = {event_id: n for n, event_id in enumerate(events["event_id"])}
    edges = [Edge(at[p], n) for n, parents in enumerate(events["parents"]) for p in ids_of(parents) if p in at and at[p] != n]
    agent = events["agent_id"].fillna(NO_AGENT).tolist()
    kinds = [kind_of(kind) for kind in events["kind"]]
    places = _lane_places(_generations(len(events), edges), agent)
    nodes = [Node(f"{kind}\n{line(name, 12)}", kind, 18, *place) for kind, name, place in zip(kinds, agent, places, strict=True)]
    ties = f"{len(edges):,} causal links" if edges else "none names its cause, so they stand in their order"
    return Graph(nodes, edges, f"{_counted(len(events), 'event')}, {ties}; one row an agent, causes to the left of effects")


def _generations(n_events: int, edges: list[Edge]) -> list[int]:
    """Return the column of each event: the length of the longest chain of causes before it."""
    if not edges:
        return list(range(n_events))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n_events))
    graph.add_edges_from((edge.source, edge.target) for edge in edges if edge.source < edge.target)  # a later cause is no cause
    layer = {node: n for n, members in enumerate(nx.topological_generations(graph)) for node in members}
    return [layer[node] for node in range(n_events)]


def _layers(n_nodes: int, pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the nodes by the length of the longest chain before them."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from(pairs)
    return [sorted(members) for members in nx.topological_generations(graph)]


def _step_name(kind: str, rest: str, n: int) -> str:
    return f"{kind}\n{line(rest, 24)}".rstrip() + (f" × {n:,}" if n > 1 else "")


def _lane_places(column: list[int], agent: list[str]) -> list[tuple[float, float]]:
    """Return x, y: columns from left to right, a lane an agent, events of one agent and column above each other."""
    stacked: Counter[tuple[int, str]] = Counter()
    depth = []
    for key in zip(column, agent, strict=True):
        depth.append(stacked[key])
        stacked[key] += 1
    lane: dict[str, int] = {}
    n_rows = 0
    for name in dict.fromkeys(agent):
        lane[name] = n_rows
        n_rows += max(n for (_, other), n in stacked.items() if other == name)
    width = _band(max(column) + 1, n_rows)
    dx = round(max(_DX, min(2 * _DX, _ASPECT * _DY * n_rows / width)), 1)
    return [
        (dx * (c % width), _DY * (lane[name] + d + c // width * (n_rows + 1)))
        for c, name, d in zip(column, agent, depth, strict=True)
    ]


def _band(n_columns: int, n_rows: int) -> int:
    """Return after how many columns to go on below, so that the whole is drawn as large as possible."""

    def zoom(n_bands: int) -> float:
        return min(_ASPECT / (math.ceil(n_columns / n_bands) * _DX), 1 / (n_bands * (n_rows + 1) * _DY))

    return math.ceil(n_columns / max(range(1, n_columns + 1), key=zoom))


def _by_agent(events: pd.DataFrame, component_of: dict[str, str]) -> Graph:
    acting = events["agent_id"].fillna(NO_AGENT).tolist()
    ties = list(_ties(events, acting))
    counts = dict.fromkeys([*acting, *(name for tie in ties for name in tie[1:]), *component_of], 0) | Counter(acting)
    caption = f"{len(events):,} events shown as {_counted(len(counts), 'agent')}"
    if len(counts) > MAX_NODES:
        role = {name: component_of.get(name) or name for name in counts}
        caption = f"{len(events):,} events of {len(counts):,} agents shown as {_counted(len(set(role.values())), 'component')}"
        ties = [(kind, role[source], role[target]) for kind, source, target in ties]
        counts = dict.fromkeys(role.values(), 0) | Counter(role[name] for name in acting)
    kept = set(sorted(counts, key=lambda name: -counts[name])[:MAX_NODES])
    if len(kept) < len(counts):
        lost = sum(n for name, n in counts.items() if name not in kept)
        caption += f", of which only the {MAX_NODES} with most events are drawn; the others have {_counted(lost, 'event')}"
    names = [name for name in counts if name in kept]
    edges = _merged(ties, names)
    if len(edges) > _WORDS:
        caption += f"; an edge counts events, in the colour of their most frequent kind: {_IN_WORDS}"
    most = max(counts.values())
    nodes = [
        Node(f"{line(name, 24)}\n{_counted(counts[name], 'event')}", None, 10 + 20 * math.sqrt(counts[name] / most), *place)
        for name, place in zip(names, _tree_places(len(names), edges), strict=True)
    ]
    return Graph(nodes, edges, caption)


def _ties(events: pd.DataFrame, acting: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, from, to) of every decision between agents; an aggregation takes from the agents of its causes."""
    agent_of = dict(zip(events["event_id"], acting, strict=True))
    for kind, agent, targets, parents in zip(events["kind"], acting, events["targets"], events["parents"], strict=True):
        if kind == "aggregate":
            yield from ((kind, agent_of[parent], agent) for parent in ids_of(parents) if agent_of.get(parent, agent) != agent)
        elif kind in _TIES:
            yield from ((kind, agent, target) for target in ids_of(targets))


def _merged(ties: list[tuple[str, str, str]], names: list[str]) -> list[Edge]:
    at = {name: n for n, name in enumerate(names)}
    counts: dict[tuple[int, int], Counter[str]] = {}
    for kind, source, target in ties:
        if source in at and target in at:
            counts.setdefault((at[source], at[target]), Counter())[kind] += 1
    in_words = len(counts) <= _WORDS
    return [
        Edge(*pair, kinds.most_common(1)[0][0], _edge_label(kinds, in_words=in_words), kinds.total())
        for pair, kinds in sorted(counts.items())
    ]


def _edge_label(kinds: Counter[str], *, in_words: bool) -> str:
    return ", ".join(f"{kind} {kinds[kind]:,}" for kind in _TIES if kinds[kind]) if in_words else f"{kinds.total():,}"


def _tree_places(n_nodes: int, edges: list[Edge]) -> list[tuple[float, float]]:
    """Return x, y: who is first on the left (or in the middle, where many follow), then whom it reaches, and so on."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from((edge.source, edge.target) for edge in edges)
    step: dict[int, int] = {}
    for root in range(n_nodes):
        for n, members in enumerate(nx.bfs_layers(graph, root) if root not in step else ()):
            step.update({node: n for node in members if node not in step})
    layers = [[node for node in range(n_nodes) if step[node] == n] for n in range(max(step.values()) + 1)]
    most = max(len(layer) for layer in layers)
    if most > _DEPTH:
        radius = max(420.0, 26.0 * most) * max(1, len(layers) - 1)
        return [(1.8 * radius * x, radius * y) for _, (x, y) in sorted(nx.shell_layout(graph, layers, rotate=0).items())]
    middle = {node: len(layer) / 2 for layer in layers for node in layer}
    row = {node: n for layer in layers for n, node in enumerate(layer)}
    return [(430.0 * step[node], 140.0 * (row[node] - middle[node])) for node in range(n_nodes)]


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _vis_node(n: int, node: Node, theme: dict[str, str]) -> dict[str, Any]:
    color = KIND_COLORS[node.kind] if node.kind else theme["node"]
    return {
        "id": f"n{n}",
        "label": "\n".join(line(part, 40) for part in node.label.split("\n")),
        "shape": KIND_SHAPES[node.kind] if node.kind else "dot",
        "size": round(node.size, 1),
        "x": round(node.x, 1),
        "y": round(node.y, 1),
        "color": {"background": color, "border": theme["border"], "highlight": {"background": color, "border": theme["text"]}},
        "font": {"color": theme["text"], "size": 21, "strokeWidth": 3, "strokeColor": theme["page"]},
    }


def _vis_edge(edge: Edge, theme: dict[str, str]) -> dict[str, Any]:
    return {
        "from": f"n{edge.source}",
        "to": f"n{edge.target}",
        "label": edge.label,
        "arrows": "to",
        "width": round(1 + math.log2(edge.n), 1),
        "color": {"color": KIND_COLORS[edge.kind] if edge.kind else theme["edge"], "highlight": theme["text"]},
        "font": {"color": theme["text"], "size": 17, "strokeWidth": 5, "strokeColor": theme["page"]},
    }
