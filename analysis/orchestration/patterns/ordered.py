"""Frequent patterns whose edges have an order in time, which no two of them share.

A pattern is the sequence of its edges, each touching an earlier one, its nodes numbered as they come up; so its code is
the only one and needs no test (Zong et al. 2015, "Behavior query discovery in system-generated temporal graphs"). Unlike
the patterns of `search`, these tell apart how parallel work interleaved.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.orchestration.patterns.canonical import Edge
from analysis.orchestration.patterns.corpus import Corpus, Ints, Longs
from analysis.orchestration.patterns.search import STEPS_PER_EMBEDDING, Found, Limits, first_few, firsts


def search_ordered(corpus: Corpus, limits: Limits) -> Iterator[Found]:
    """Yield all frequent patterns of ordered edges, each once. The corpus is directed; `times` is the order."""
    node = np.repeat(np.arange(len(corpus.graph_of), dtype=np.int32), np.diff(corpus.offsets))
    for kind in np.flatnonzero(corpus.low == np.arange(len(corpus.low))).tolist():
        places = np.flatnonzero(corpus.kinds == kind)
        rows = np.column_stack([node[places], corpus.neighbours[places], corpus.times[places]])
        kept = rows[first_few(corpus.graph_of[rows[:, 0]], limits.max_embeddings)]
        yield from _grown(corpus, limits, ((0, 1, kind),), kept, (False, len(kept) < len(rows)))


def _grown(corpus: Corpus, limits: Limits, code: tuple[Edge, ...], rows: Ints, cuts: tuple[bool, bool]) -> Iterator[Found]:
    """Yield a pattern and what grows out of it. `rows`: its nodes and the time of its last edge, graph after graph."""
    graphs = corpus.graph_of[rows[:, 0]]
    first = firsts(graphs)
    kept = _within_budget(corpus, rows, graphs, STEPS_PER_EMBEDDING * limits.max_embeddings)
    is_last = len(code) == limits.max_edges
    is_cut = cuts[1] or (not is_last and not kept.all())
    yield Found(code, graphs[first], rows[first, :-1], cuts[0], is_cut)
    if is_last:
        return
    keys, grown = _extended(corpus, rows[kept])
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(np.diff(keys[order], append=-1)) + 1
    n_nodes, n_types = rows.shape[1] - 1, len(corpus.types)
    begin = 0
    for end in ends.tolist():
        these = grown[order[begin:end]]
        graphs = corpus.graph_of[these[:, 0]]
        if len(firsts(graphs)) >= limits.min_support:
            pair, kind = divmod(int(keys[order[begin]]), n_types)
            edge = (*divmod(pair, n_nodes + 1), kind)
            few = these[first_few(graphs, limits.max_embeddings)]
            known = few if edge[1] == n_nodes else np.delete(few, n_nodes, axis=1)
            yield from _grown(corpus, limits, (*code, edge), known, (is_cut, is_cut or len(few) < len(these)))
        begin = end


def _within_budget(corpus: Corpus, rows: Ints, graphs: Ints, n_most: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which rows to grow so that in no graph more edges than so many, and those of one row, are looked at."""
    nodes = rows[:, :-1]
    n_edges = (corpus.offsets[nodes + 1] - corpus.offsets[nodes]).sum(axis=1, dtype=np.int64)
    before = np.cumsum(n_edges) - n_edges
    begins = firsts(graphs)
    since = before - np.repeat(before[begins], np.diff(begins, append=len(graphs)))
    kept: np.ndarray[tuple[int], np.dtype[np.bool_]] = since <= n_most
    return kept


def _extended(corpus: Corpus, rows: Ints) -> tuple[Longs, Ints]:
    """Return the key of every extension by a later edge, and its nodes, with the other end of the edge, and its time."""
    n_nodes, n_types = rows.shape[1] - 1, len(corpus.types)
    keys, grown = [], []
    for n in range(n_nodes):
        begins = corpus.offsets[rows[:, n]]
        n_edges = corpus.offsets[rows[:, n] + 1] - begins
        row = np.repeat(np.arange(len(rows)), n_edges)
        at = np.arange(len(row)) - np.repeat(np.cumsum(n_edges) - n_edges - begins, n_edges)
        is_later = corpus.times[at] > rows[row, -1]
        row, at = row[is_later], at[is_later]
        is_met = rows[row, :-1] == corpus.neighbours[at, None]
        other = np.where(is_met.any(axis=1), is_met.argmax(axis=1), n_nodes)
        kept = other > n  # an edge between two nodes of the pattern is seen from both
        row, at, other = row[kept], at[kept], other[kept]
        keys.append((n * (n_nodes + 1) + other) * n_types + corpus.kinds[at])
        grown.append(np.column_stack([rows[row, :-1], corpus.neighbours[at], corpus.times[at]]))
    return np.concatenate(keys).astype(np.int64), np.concatenate(grown).astype(np.int32)
