"""Pattern graphs as arrays: what the miner walks over.

Decides the order of edge types, from which the order of DFS codes follows; it is the order of the labels as text, and so
the same in every corpus. Hidden here: how a type too rare to be part of any frequent pattern is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

_LARGEST_TABLE = 10_000_000


class Graph(Protocol):
    """What the miner needs of a graph."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each node."""

    @property
    def edges(self) -> tuple[tuple[int, int, str], ...]:
        """Source, target and label of each edge."""


@dataclass(frozen=True)
class Corpus:
    """The frequent edges of many graphs, each seen from both its ends.

    starts : where the nodes of each graph begin, shape (n_graphs + 1,)
    graph_of : the graph of each node
    types : label here, edge and direction, label there, as text; sorted. Seen from the source the direction is ">"
    reverse : which type an edge has seen from its other end
    low : the lesser of both
    offsets, neighbours, kinds, times : per node the edges at it, those of the greatest `low` first: the other end, the type
        seen from here, and the edge's place in its graph
    """

    starts: Longs
    graph_of: Ints
    types: tuple[tuple[str, str, str], ...]
    reverse: Ints
    low: Ints
    offsets: Ints
    neighbours: Ints
    kinds: Ints
    times: Ints

    @property
    def n_graphs(self) -> int:
        """How many graphs there are, those without an edge among them."""
        return len(self.starts) - 1


def corpus_of(graphs: Sequence[Graph], *, min_support: int, directed: bool) -> Corpus:
    """Return the edges of the types that occur in at least so many graphs. Equal edges count once.

    Raises
    ------
    ValueError
        If an edge leads from a node to itself.
    """
    starts = np.concatenate([[0], np.cumsum([len(graph.labels) for graph in graphs], dtype=np.int64)])
    names, labels = _numbered(list(chain.from_iterable([graph.labels for graph in graphs])))
    n_edges = np.array([len(graph.edges) for graph in graphs], np.int64)
    source, target, edge_names, kind = _columns([graph.edges for graph in graphs], np.repeat(starts[:-1], n_edges))
    if (source == target).any():
        raise ValueError("an edge leads from a node to itself; a pattern graph has none such")
    times = np.arange(len(source), dtype=np.int32)
    if not directed:
        source, target = np.minimum(source, target), np.maximum(source, target)
    kept = _first_of_each((source * len(labels) + target) * max(1, len(edge_names)) + kind)
    source, target, kind, times = source[kept], target[kept], kind[kept], times[kept]
    graph_of = np.repeat(np.arange(len(graphs), dtype=np.int32), np.diff(starts))
    n_ways = 2 if directed else 1
    here = (labels[source] * len(edge_names) + kind) * n_ways * len(names) + labels[target]
    there = ((labels[target] * len(edge_names) + kind) * n_ways + n_ways - 1) * len(names) + labels[source]
    frequent = _frequent(np.minimum(here, there), graph_of[source], min_support=min_support)
    source, target, times = source[frequent], target[frequent], times[frequent]
    codes, (here, there) = _ranked(here[frequent], there[frequent])
    reverse = np.zeros(len(codes), np.int32)
    reverse[here], reverse[there] = there, here
    low = np.minimum(reverse, np.arange(len(codes), dtype=np.int32))
    offsets, columns = _by_node(len(labels), source, target, here, there, low, times)
    return Corpus(starts, graph_of, _worded(codes, names, edge_names, n_ways), reverse, low, offsets, *columns)


def _numbered(words: list[str]) -> tuple[list[str], Longs]:
    names = sorted(set(words))
    number = {name: n for n, name in enumerate(names)}
    return names, np.fromiter(map(number.__getitem__, words), np.int64, len(words))


def _columns(edges: Sequence[tuple[tuple[int, int, str], ...]], shift: Longs) -> tuple[Longs, Longs, list[str], Longs]:
    """Return source, target, the names of the kinds and the kind of every edge."""

    def column(n: int) -> Iterator[Any]:
        return map(itemgetter(n), chain.from_iterable(edges))

    source, target = (np.fromiter(column(n), np.int64, len(shift)) + shift for n in (0, 1))
    names = sorted(set(column(2)))
    number = {name: n for n, name in enumerate(names)}
    return source, target, names, np.fromiter(map(number.__getitem__, column(2)), np.int64, len(shift))


def _first_of_each(keys: Longs) -> Longs:
    """Return the places of the first of all equal keys, by key."""
    order = np.argsort(keys, kind="stable")
    is_first = np.ones(len(keys), bool)
    is_first[1:] = np.diff(keys[order]) > 0
    return order[is_first]


def _frequent(keys: Longs, graph: Ints, *, min_support: int) -> npt.NDArray[np.bool_]:
    """Return which edges have a key that occurs in enough graphs; edges of one graph follow each other."""
    order = np.argsort(keys, kind="stable")
    ranked, graphs = keys[order], graph[order]
    if not len(keys):
        return np.zeros(0, bool)
    is_new_key = np.concatenate([[True], np.diff(ranked) > 0])
    is_new = is_new_key | np.concatenate([[True], np.diff(graphs) != 0])
    number = np.cumsum(is_new_key) - 1
    support = np.bincount(number, is_new)
    found = np.zeros(len(keys), bool)
    found[order] = support[number] >= min_support
    return found


def _ranked(here: Longs, there: Longs) -> tuple[Longs, tuple[Ints, Ints]]:
    codes = np.unique(np.concatenate([np.unique(here), np.unique(there)]))
    if len(codes) and codes[-1] > _LARGEST_TABLE:
        return codes, (np.searchsorted(codes, here).astype(np.int32), np.searchsorted(codes, there).astype(np.int32))
    rank = np.zeros(int(codes[-1]) + 1 if len(codes) else 0, np.int32)
    rank[codes] = np.arange(len(codes))
    return codes, (rank[here], rank[there])


def _by_node(
    n_nodes: int, source: Longs, target: Longs, here: Ints, there: Ints, low: Ints, times: Ints
) -> tuple[Ints, tuple[Ints, Ints, Ints]]:
    node = np.concatenate([source, target]).astype(np.int32)
    kinds = np.concatenate([here, there])
    order = np.argsort(node.astype(np.int64) * (len(low) + 1) - low[kinds], kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=n_nodes))]).astype(np.int32)
    neighbours = np.concatenate([target, source]).astype(np.int32)[order]
    return offsets, (neighbours, kinds[order], np.concatenate([times, times])[order])


def _worded(codes: Longs, names: Sequence[str], edge_names: Sequence[str], n_ways: int) -> tuple[tuple[str, str, str], ...]:
    found = []
    for code in codes.tolist():
        rest, there = divmod(code, len(names))
        rest, way = divmod(rest, n_ways)
        here, kind = divmod(rest, len(edge_names))
        found.append((names[here], edge_names[kind] + (("", "") if n_ways == 1 else (">", "<"))[way], names[there]))
    return tuple(found)
