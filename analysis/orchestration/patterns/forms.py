"""When two whole graphs are one: a canonical form of a graph without cycles, equal for equal graphs and only for them.

Decides identity of runs. Hidden here: nodes are told apart by what leads to them and what they lead to, until nothing more
is told apart; parts that do not touch after that are put in order each by itself, so that parallel work costs nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analysis.orchestration.patterns.corpus import Graph

_BUDGET = 2_000_000  # nodes looked at while parts that look alike are told apart, a few seconds


class _Links(NamedTuple):
    """The edges of a graph seen from each node, and its nodes with causes first."""

    into: list[list[tuple[int, bytes]]]
    out: list[list[tuple[int, bytes]]]
    order: list[int]


class _OverBudget(Exception):
    pass


def canonical_form(graph: Graph) -> str:
    """Return a text that is the same for two graphs exactly if they differ in the order of their nodes and edges alone.

    It starts with `f`. Where telling alike parts apart takes too long, it starts with `w` instead, and then different graphs
    may have the same text (never equal graphs different ones).

    Raises
    ------
    ValueError
        If the graph has a cycle.

    Examples
    --------
    >>> from analysis.orchestration.patterns.graphs import PatternGraph
    >>> a = PatternGraph("a", ("lead", "work", "check"), ((0, 1, "x"), (0, 2, "x")), ())
    >>> b = PatternGraph("b", ("check", "work", "lead"), ((2, 1, "x"), (2, 0, "x")), ())
    >>> canonical_form(a) == canonical_form(b)
    True
    """
    links = _links(graph)
    colours = _refined([_hash(label.encode()) for label in graph.labels], links, links.order)
    try:
        return "f" + _certificate(colours, links, links.order, [_BUDGET]).hex()
    except _OverBudget:
        return "w" + _hash(*sorted(colours.values())).hex()


def _hash(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(4))
        digest.update(part)
    return digest.digest()


def _links(graph: Graph) -> _Links:
    n_nodes = len(graph.labels)
    links = _Links([[] for _ in range(n_nodes)], [[] for _ in range(n_nodes)], [])
    for source, target, label in dict.fromkeys(graph.edges):
        links.into[target].append((source, label.encode()))
        links.out[source].append((target, label.encode()))
    n_missing = [len(into) for into in links.into]
    ready = [n for n in range(n_nodes) if not n_missing[n]]
    while ready:
        n = ready.pop()
        links.order.append(n)
        for target, _ in links.out[n]:
            n_missing[target] -= 1
            if not n_missing[target]:
                ready.append(target)
    if len(links.order) < n_nodes:
        raise ValueError("the graph has a cycle")
    return links


def _refined(start: Mapping[int, bytes] | Sequence[bytes], links: _Links, nodes: Sequence[int]) -> dict[int, bytes]:
    """Return colours so that nodes of one colour have neighbours of the same colours. `nodes`: causes first.

    What is not among the nodes is left out of account.
    """
    colours = {n: start[n] for n in nodes}
    n_colours = len(set(colours.values()))
    while True:
        down = _swept(colours, links.into, nodes)
        up = _swept(colours, links.out, reversed(nodes))
        colours = {n: _hash(down[n], up[n]) for n in nodes}
        if len(set(colours.values())) == n_colours:
            return colours
        n_colours = len(set(colours.values()))


def _swept(colours: Mapping[int, bytes], edges: Sequence[Sequence[tuple[int, bytes]]], nodes: Iterable[int]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for n in nodes:
        seen = sorted([found[other] + label for other, label in edges[n] if other in found])
        found[n] = _hash(colours[n], *seen)
    return found


def _certificate(colours: Mapping[int, bytes], links: _Links, nodes: Sequence[int], budget: list[int]) -> bytes:
    """Return a text that tells these nodes with their colours, which `_refined` has found, from all others but equal ones."""
    cells: dict[bytes, list[int]] = defaultdict(list)
    for n in nodes:
        cells[colours[n]].append(n)
    several = [n for n in nodes if len(cells[colours[n]]) > 1]
    parts = [_part(colours, links, part, budget) for part in _apart(colours, links, several, cells)]
    return _hash(*sorted(colours.values()), b"parts", *sorted(parts))


def _part(colours: Mapping[int, bytes], links: _Links, part: Sequence[int], budget: list[int]) -> bytes:
    """Return the text of one part: the least of those that come of marking each node of one colour in turn."""
    size = Counter([colours[n] for n in part])
    if len(size) == len(part):
        place = {colour: b"%d" % k for k, colour in enumerate(sorted(size))}
        edges = [
            place[colours[n]] + b">" + place[colours[other]] + b":" + label
            for n in part
            for other, label in links.out[n]
            if other in colours and colours[other] in place
        ]
        return _hash(*sorted(size), b"edges", *sorted(edges))
    marked = min([colour for colour in size if size[colour] > 1], key=lambda colour: (size[colour], colour))
    found = []
    for chosen in [n for n in part if colours[n] == marked]:
        budget[0] -= len(part)
        if budget[0] < 0:
            raise _OverBudget
        told = {n: _hash(colours[n], b"marked") if n == chosen else colours[n] for n in part}
        found.append(_certificate(_refined(told, links, part), links, part, budget))
    return min(found)


def _apart(
    colours: Mapping[int, bytes], links: _Links, nodes: Sequence[int], cells: Mapping[bytes, Sequence[int]]
) -> list[list[int]]:
    """Return the nodes in parts, each with causes first. Edges that join all of one colour to all of another join no parts."""
    within = set(nodes)
    part = {n: n for n in nodes}

    def root(n: int) -> int:
        while part[n] != n:
            part[n] = part[part[n]]
            n = part[n]
        return n

    for n in nodes:
        met = Counter([(colours[other], label) for other, label in links.out[n] if other in within])
        for other, label in links.out[n]:
            if other in within and met[colours[other], label] < len(cells[colours[other]]):
                part[root(n)] = root(other)
    found: dict[int, list[int]] = {}
    for n in nodes:
        found.setdefault(root(n), []).append(n)
    return list(found.values())
