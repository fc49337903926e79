"""Graphs as points: what surrounds each node, counted (Weisfeiler-Lehman), for all graphs of a corpus at once.

Decides how alike two graphs are. Hidden here: 64-bit colours that depend neither on the order of nodes, edges or graphs nor
on what else is in the corpus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.orchestration.patterns.graphs import PatternGraph

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Colours = npt.NDArray[np.uint64]

_OUT, _IN, _OWN = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))


class Joined(NamedTuple):
    """Many graphs as one: the nodes of each stand together, in the order of the graphs.

    graph : of each node
    colour : of each node, from its label
    source, target, edge_colour : of each edge
    """

    n_graphs: int
    graph: Ints
    colour: Colours
    source: Ints
    target: Ints
    edge_colour: Colours


def joined(graphs: Sequence[PatternGraph]) -> Joined:
    """Return the graphs as arrays."""
    sizes = np.array([len(graph.labels) for graph in graphs], np.intp)
    n_edges = np.array([len(graph.edges) for graph in graphs], np.intp)
    shift = np.repeat(np.cumsum(sizes) - sizes, n_edges)
    edges = list(chain.from_iterable([graph.edges for graph in graphs]))
    source, target = (np.fromiter(map(itemgetter(end), edges), np.intp, len(edges)) + shift for end in (0, 1))
    labels = list(chain.from_iterable([graph.labels for graph in graphs]))
    of_node = np.repeat(np.arange(len(graphs)), sizes)
    return Joined(len(graphs), of_node, _coloured(labels), source, target, _coloured(list(map(itemgetter(2), edges))))


def wl_features(graphs: Joined, *, n_rounds: int = 2) -> Any:
    """Return how often each neighbourhood of 0 to `n_rounds` steps occurs in each graph, scipy CSR (n_graphs, n_features).

    Edges count with their label and direction. Shervashidze et al. 2011 (JMLR 12), colours hashed instead of numbered: the
    colour of a node is a sum over its neighbours, which does not depend on their order. Two neighbourhoods are one by chance
    with a probability of 2^-40.
    """
    from scipy import sparse

    rounds = [graphs.colour]
    spread = _spreader(graphs)
    for _ in range(n_rounds):
        rounds.append(spread(rounds[-1]))
    colour, place = _sorted(np.concatenate(rounds))
    row = np.tile(graphs.graph, n_rounds + 1)[place]
    is_column, is_entry = _is_new(colour), _is_new(colour) | _is_new(row)
    entry = np.flatnonzero(is_entry)
    starts = np.append(np.cumsum(is_entry)[is_column] - 1, len(entry))
    count = np.diff(np.append(entry, len(row))).astype(np.float64)
    return sparse.csc_array((count, row[entry], starts), shape=(graphs.n_graphs, len(starts) - 1)).tocsr()


def embed(features: Any, *, weights: Ints | None = None, n_components: int = 16) -> Floats:
    """Return graphs as unit vectors that lie near each other where they share neighbourhoods, shape (n_graphs, n_components).

    Square roots of the counts, rows of unit length, the largest singular vectors; a graph without nodes is zero. Neighbourhoods
    that occur in one run only are left out: they say nothing of likeness; `weights` says how many runs a graph stands for. The
    same bytes for the same rows in the same order.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    runs = np.ones(features.shape[0]) if weights is None else np.asarray(weights, dtype=float)
    n_runs = np.bincount(features.indices, np.repeat(runs, np.diff(features.indptr)), minlength=features.shape[1])
    shared = features[:, n_runs > 1].sqrt()
    if shared.shape[1] == 0:
        return np.zeros((features.shape[0], 1))
    rows = normalize(shared)
    if min(shared.shape) <= n_components:
        dense: Floats = rows.toarray()
        return dense
    vectors: Floats = normalize(TruncatedSVD(n_components, random_state=0).fit_transform(rows))
    return vectors


def _coloured(labels: Sequence[str]) -> Colours:
    names = sorted(set(labels))
    number = {name: n for n, name in enumerate(names)}
    codes = np.fromiter(map(number.__getitem__, labels), np.intp, len(labels))
    digests = [hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in names]
    return np.array([int.from_bytes(digest, "little") for digest in digests], np.uint64)[codes]


def _mixed(x: Colours) -> Colours:
    """Return each number scrambled so that sums of them collide by chance only (the last step of MurmurHash3)."""
    x = x ^ (x >> np.uint64(33))
    x = x * np.uint64(0xFF51AFD7ED558CCD)
    x = x ^ (x >> np.uint64(33))
    x = x * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def _spreader(graphs: Joined) -> Any:
    """Return the function from the colours of nodes to those one step wider."""
    n = len(graphs.colour)
    sides = []
    for here, there, salt in ((graphs.source, graphs.target, _OUT), (graphs.target, graphs.source, _IN)):
        order = np.argsort(here, kind="stable")
        at, first = np.unique(here[order], return_index=True)
        sides.append((at, first, there[order], _mixed(graphs.edge_colour[order] ^ salt)))

    def spread(colour: Colours) -> Colours:
        wider = colour * _OWN
        for at, first, there, edge in sides:
            if len(at):
                wider[at] += np.add.reduceat(_mixed(colour[there] + edge), first)
        return _mixed(wider) if n else wider

    return spread


def _sorted(colours: Colours) -> tuple[Colours, Ints]:
    """Return the upper bits of the colours in ascending order, and the place of each; equal ones by place.

    Colour and place share a number, because sorting numbers takes a fifth of the time of sorting places by them.
    """
    n_bits = np.uint64(max(1, len(colours)).bit_length())
    mask = (np.uint64(1) << n_bits) - np.uint64(1)
    packed = np.sort((colours & ~mask) | np.arange(len(colours), dtype=np.uint64))
    return packed & ~mask, (packed & mask).astype(np.intp)


def _is_new(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where a value differs from the one before."""
    found = np.ones(len(values), dtype=bool)
    found[1:] = values[1:] != values[:-1]
    return found
