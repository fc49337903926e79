"""Where the patterns of a library occur in other runs.

Decides what an occurrence is, the same as for the miner. Hidden here: the search for a small graph in a large one, and when
it gives up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from analysis.orchestration.patterns.families import family_ids
from analysis.orchestration.patterns.graphs import PatternGraph
from analysis.orchestration.patterns.library import Edge, Entry, Library

_MAX_STEPS = 200_000  # nodes that are tried for one pattern in one graph


class Matches(NamedTuple):
    """Where patterns of a library occur.

    occurrences : scipy.sparse CSR, bool, shape (n_patterns, n_graphs)
    undecided : (pattern id, trace id) where the search was given up; it counts as not occurring
    """

    occurrences: Any
    undecided: tuple[tuple[str, str], ...]


def match(library: Library, graphs: Sequence[PatternGraph]) -> Matches:
    """Return in which graphs, made with the labelling of the library, its patterns occur.

    A pattern occurs where its nodes can be placed on different nodes of equal label, so that all its edges are there with
    their labels; other edges may lie between. The same as what the miner counts.
    """
    from scipy import sparse

    plans = [_plan(entry) for entry in library.patterns]
    found: list[tuple[int, int]] = []
    undecided: list[tuple[str, str]] = []
    for column, graph in enumerate(graphs):
        index = _index(graph)
        for row, (entry, plan) in enumerate(zip(library.patterns, plans, strict=True)):
            placed = _placed(plan, index)
            if placed is None:
                undecided.append((entry.pattern_id, graph.trace_id))
            elif placed:
                found.append((row, column))
    rows, columns = zip(*found, strict=True) if found else ((), ())
    shape = (len(library.patterns), len(graphs))
    return Matches(sparse.csr_array((np.ones(len(found), bool), (rows, columns)), shape=shape), tuple(undecided))


def match_families(library: Library, graphs: Sequence[PatternGraph]) -> Any:
    """Return which graphs have the form of the medoid of which family, scipy CSR, bool, shape (n_families, n_graphs)."""
    from scipy import sparse

    row = {entry.family_id: n for n, entry in enumerate(library.families)}
    found = [(row[name], column) for column, name in enumerate(family_ids(graphs)) if name in row]
    rows, columns = zip(*found, strict=True) if found else ((), ())
    return sparse.csr_array((np.ones(len(found), bool), (rows, columns)), shape=(len(row), len(graphs)))


def embedding(entry: Entry, graph: PatternGraph) -> tuple[int, ...] | None:
    """Return one occurrence of a pattern: for each of its nodes the node of the graph that it is placed on.

    None where it does not occur, or the search was given up. The edges of a pattern in order of time, whose id starts with
    `o`, follow each other in the graph as they do in the pattern.

    >>> graph = PatternGraph("t", ("act", "lead", "act"), ((1, 2, "x"),), (("e1",), ("e2",), ("e3",)))
    >>> embedding(Entry("p", "", ("act", "lead"), ((1, 0, "x"),), 1, 1.0), graph)
    (2, 1)
    """
    plan = _plan(entry)
    time = {edge: n for n, edge in reversed(list(enumerate(graph.edges)))}

    def is_in_order(placed: Sequence[int]) -> bool:
        at = dict(zip(plan.nodes, placed, strict=True))
        times = [time[at[source], at[target], label] for source, target, label in entry.edges]
        return all(earlier < later for earlier, later in pairwise(times))

    placed = _placed(plan, _index(graph), is_in_order if entry.pattern_id.startswith("o") else None)
    if not placed:
        return None
    return tuple([node for _, node in sorted(zip(plan.nodes, placed, strict=True))])


_Way = tuple[bool, str]  # is the edge followed forwards, and its label


class _Index(NamedTuple):
    """A graph to search in: its nodes by label, what each node leads to, how often each kind of edge occurs."""

    by_label: Mapping[str, Sequence[int]]
    label: Sequence[str]
    beside: Sequence[Mapping[_Way, frozenset[int]]]
    edges: Counter[tuple[str, str, str]]


class _Step(NamedTuple):
    """The next node of a pattern: its label, and its edges to the nodes placed before it."""

    label: str
    ties: tuple[tuple[int, _Way], ...]


class _Plan(NamedTuple):
    """The nodes of a pattern in the order in which they are placed, and what its edges are like."""

    nodes: tuple[int, ...]
    steps: tuple[_Step, ...]
    edges: Counter[tuple[str, str, str]]


def _index(graph: PatternGraph) -> _Index:
    by_label: dict[str, list[int]] = defaultdict(list)
    for n, label in enumerate(graph.labels):
        by_label[label].append(n)
    beside: list[dict[_Way, set[int]]] = [defaultdict(set) for _ in graph.labels]
    for source, target, label in graph.edges:
        beside[source][True, label].add(target)
        beside[target][False, label].add(source)
    frozen = [{way: frozenset(nodes) for way, nodes in ways.items()} for ways in beside]
    return _Index(by_label, graph.labels, frozen, _kinds(graph.labels, graph.edges))


def _kinds(labels: Sequence[str], edges: Sequence[Edge]) -> Counter[tuple[str, str, str]]:
    return Counter((labels[source], label, labels[target]) for source, target, label in dict.fromkeys(edges))


def _plan(entry: Entry) -> _Plan:
    """Return the nodes in an order in which each but the first has an edge to an earlier one."""
    ties: list[list[tuple[int, _Way]]] = [[] for _ in entry.nodes]  # (other node, how one comes from it)
    for source, target, label in dict.fromkeys(entry.edges):
        ties[target].append((source, (True, label)))
        ties[source].append((target, (False, label)))
    order = [max(range(len(ties)), key=lambda n: len(ties[n]))]
    while len(order) < len(ties):
        left = [n for n in range(len(ties)) if n not in order]
        order.append(max(left, key=lambda n: sum(other in order for other, _ in ties[n])))
    place = {n: k for k, n in enumerate(order)}
    steps = [
        _Step(entry.nodes[n], tuple([(place[other], way) for other, way in ties[n] if place[other] < place[n]])) for n in order
    ]
    return _Plan(tuple(order), tuple(steps), _kinds(entry.nodes, entry.edges))


def _placed(plan: _Plan, index: _Index, fits: Callable[[Sequence[int]], bool] | None = None) -> list[int] | None:
    """Return where the nodes of the pattern can be placed; [] if nowhere, None if that took too many steps to find out."""
    if not plan.edges <= index.edges:
        return []
    placed: list[int] = []
    tries: list[Iterator[int]] = [iter(index.by_label[plan.steps[0].label])]
    for _ in range(_MAX_STEPS):
        node = next(tries[-1], None)
        if node is None:
            tries.pop()
            if not tries:
                return []
            placed.pop()
            continue
        placed.append(node)
        if len(placed) == len(plan.steps):
            if fits is None or fits(placed):
                return placed
            placed.pop()
            continue
        tries.append(iter(_next(plan.steps[len(placed)], placed, index)))
    return None


def _next(step: _Step, placed: Sequence[int], index: _Index) -> list[int]:
    empty: frozenset[int] = frozenset()
    near = frozenset.intersection(*[index.beside[placed[other]].get(way, empty) for other, way in step.ties])
    return sorted([node for node in near if index.label[node] == step.label and node not in placed])
