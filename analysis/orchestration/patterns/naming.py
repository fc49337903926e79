"""What a graph of a run or a pattern is called: how it delegates, works, talks and merges, in words read off its structure.

Decides the words and when each holds. Names are for people: two structures may share one, ids tell them apart. Hidden here:
how labels are read, and that everything is counted along the graph once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis.model import PAYLOAD

_DELEGATES = frozenset({"delegate", "spawn"})
_WORKS = frozenset({"act", "communicate"})
_TIMES = {"x2": 2, "xmany": 3}
_ROLES = frozenset({"lead", "sublead", "worker", "peer", "solo", "outside"})
_MODES = frozenset({"parallel", "sequential"})
_SHARE_IN_ROW = 0.8  # of what is done, on one path: it is done one after the other
_LONG = 10  # messages, each in reply to another


def structure_name(labels: Sequence[str], edges: Sequence[tuple[int, int, str]]) -> str:
    """Return what a graph is called. Linear in nodes and edges.

    Delegation and work are sequential where at least 80 % of them lie on one path, parallel where no path holds more than
    one of them, in rounds between that. Aggregation is hierarchical where merged results are merged again without a
    delegation between.

    >>> labels = ["delegate · lead", "act · worker", "act · worker", "aggregate · lead", "stop · lead"]
    >>> structure_name(labels, [(0, 1, "delegation"), (0, 2, "delegation"), (1, 3, "return"), (2, 3, "return"), (3, 4, "own")])
    'one delegation → parallel work → aggregation → stop'
    """
    nodes = [_read(label) for label in labels]
    sources: list[list[int]] = [[] for _ in nodes]
    for source, target, _ in edges:
        sources[target].append(source)
    graph = _Graph(nodes, sources, _ordered(len(nodes), edges))
    phrases = list(_phrases(graph))
    return " → ".join(phrases) if phrases else f"{len(nodes)} step{'s' * (len(nodes) != 1)}"


class _Node(NamedTuple):
    kind: str
    role: str
    times: int
    words: tuple[str, ...]


class _Graph(NamedTuple):
    nodes: list[_Node]
    sources: list[list[int]]
    order: list[int]

    def total(self, kinds: frozenset[str]) -> int:
        """How many nodes are of these kinds."""
        return sum([node.times for node in self.nodes if node.kind in kinds])

    def longest(self, kinds: frozenset[str], *, ends: frozenset[str] = frozenset(), is_close: bool = False) -> int:
        """The most nodes of these kinds on one path that `ends` cut; close ones follow each other directly."""
        best = [0] * len(self.nodes)
        for n in self.order:
            kind = self.nodes[n].kind
            before = max([best[source] for source in self.sources[n]], default=0)
            best[n] = before + 1 if kind in kinds else 0 if kind in ends or is_close else before
        return max(best, default=0)


def _phrases(graph: _Graph) -> Iterator[str]:
    kinds = {node.kind for node in graph.nodes}
    led = frozenset({"delegate"} if "delegate" in kinds else {"spawn"})
    if kinds & _DELEGATES:
        through = " through sub-leads" if any(node.role == "sublead" for node in graph.nodes) else ""
        yield _done(graph, led, "delegation", "one delegation") + through
    n_replies = graph.longest(frozenset({"communicate"}), is_close=True)
    if n_replies > 2:
        yield "long exchange of messages" if n_replies > _LONG else "exchange of messages"
    elif kinds & _WORKS:
        yield _done(graph, _WORKS, "work", "work")
    if "aggregate" in kinds:
        yield _aggregation(graph)
    if "stop" in kinds:
        yield "stop"


def _done(graph: _Graph, kinds: frozenset[str], word: str, single: str) -> str:
    total, in_row = graph.total(kinds), graph.longest(kinds)
    if total == 1:
        return single
    if in_row >= _SHARE_IN_ROW * total:
        return f"sequential {word}"
    return f"parallel {word}" if in_row == 1 else f"parallel {word} in rounds"


def _aggregation(graph: _Graph) -> str:
    merges = frozenset({"aggregate"})
    strategies = sorted({word for node in graph.nodes if node.kind == "aggregate" for word in node.words})
    how = f" ({', '.join(strategies)})" if strategies else ""
    if graph.longest(merges, ends=_DELEGATES) > 1:
        return f"hierarchical aggregation{how}"
    return f"aggregation in rounds{how}" if graph.longest(merges) > 1 else f"aggregation{how}"


def _read(label: str) -> _Node:
    words = label.split(" · ")
    kind = next((word for word in words if word in PAYLOAD), "")
    role = next((word for word in words if word in _ROLES), "")
    times = next((_TIMES[word] for word in words if word in _TIMES), 1)
    known = {kind, role, *_TIMES, *_MODES}
    return _Node(kind, role, times, tuple([word for word in words if word not in known]))


def _ordered(n_nodes: int, edges: Sequence[tuple[int, int, str]]) -> list[int]:
    targets: list[list[int]] = [[] for _ in range(n_nodes)]
    n_open = [0] * n_nodes
    for source, target, _ in edges:
        targets[source].append(target)
        n_open[target] += 1
    order = [n for n in range(n_nodes) if n_open[n] == 0]
    for n in order:
        for target in targets[n]:
            n_open[target] -= 1
            if n_open[target] == 0:
                order.append(target)
    return order
