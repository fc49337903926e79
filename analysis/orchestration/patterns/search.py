"""The complete search for frequent connected patterns: grow minimum DFS codes edge by edge (Yan & Han 2002, "gSpan").

Hidden here: how embeddings are kept. Of those that differ only in the order of equal branches one is kept; those of a
pattern that is not grown any more are not kept at all, but for one a graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.orchestration.patterns import engines
from analysis.orchestration.patterns.canonical import Codes, Edge
from analysis.orchestration.patterns.corpus import Corpus, Ints
from analysis.orchestration.patterns.engines import Engine

STEPS_PER_EMBEDDING = 64  # edges looked at in one graph for each embedding that may be kept there


class Limits(NamedTuple):
    """What is looked for: the least number of graphs, most edges, most embeddings kept of one pattern in one graph."""

    min_support: int
    max_edges: int
    max_embeddings: int


class Found(NamedTuple):
    """A frequent pattern.

    graphs, examples : where it occurs, and one embedding in each of these graphs, as nodes of the corpus
    is_approximate : it may occur in more graphs, since embeddings of a smaller pattern inside it were cut
    is_cut : embeddings of it or of a smaller one were cut, so that larger ones may be missing
    """

    code: tuple[Edge, ...]
    graphs: Ints
    examples: Ints
    is_approximate: bool
    is_cut: bool


class _Pattern(NamedTuple):
    """A pattern that may grow.

    embeddings : shape (n, n_nodes), those of one graph after each other
    path : the right-most path; along : types of the edges on it
    n_open : how many of its nodes, from the root on, may grow
    back : key of the last edge, where that leads back, else -1
    is_cut : whether embeddings are missing
    """

    code: tuple[Edge, ...]
    embeddings: Ints
    path: tuple[int, ...]
    along: tuple[int, ...]
    n_open: int
    back: int
    is_cut: bool


class _Growth(NamedTuple):
    """An extension that makes a minimum code; `twins` are the first nodes of two equal branches at its end, or -1."""

    key: int
    code: tuple[Edge, ...]
    path: tuple[int, ...]
    along: tuple[int, ...]
    n_open: int
    back: int
    twins: tuple[int, int]
    n_embeddings: int
    support: int


def search(corpus: Corpus, limits: Limits, engine: Engine | None = None) -> Iterator[Found]:
    """Yield all frequent connected patterns with at least one edge, each once.

    engine : where the loops run; None lets the amount of work decide
    """
    yield from _Search(corpus, limits, engine or engines.engine_for(0), is_fixed=engine is not None).all()


class _Search:
    """What the search has at hand: the loops, the corpus as they take it, and room for codes."""

    def __init__(self, corpus: Corpus, limits: Limits, engine: Engine, *, is_fixed: bool) -> None:
        self.corpus, self.limits, self.is_fixed = corpus, limits, is_fixed
        n_edges = np.diff(corpus.offsets).astype(np.int64)
        self.n_met = int(1 + (n_edges**2).sum() / max(1, n_edges.sum()))  # edges at the node that an edge leads to, on average
        here = [words[0] for words in corpus.types]
        first = {label: n for n, label in reversed(list(enumerate(here)))}
        self.begin_of = [first[label] for label in here]  # the first type that the label of a type has
        self.n_kinds = max(Counter(here).values(), default=0)
        self.n_looks = 0
        self._take_up(engine)

    def all(self) -> Iterator[Found]:
        corpus = self.corpus
        node = np.repeat(np.arange(len(corpus.graph_of), dtype=np.int32), np.diff(corpus.offsets))
        sortable = corpus.kinds.astype(np.int16) if len(corpus.types) < 2**15 else corpus.kinds  # numpy sorts 16 bits by radix
        order = np.argsort(sortable, kind="stable")
        ends = np.cumsum(np.bincount(corpus.kinds, minlength=len(corpus.types))).tolist()
        edges = _appended(node.take(order)[:, None], corpus.neighbours.take(order))
        for kind in np.flatnonzero(corpus.low == np.arange(len(corpus.low))).tolist():
            embeddings = edges[ends[kind - 1] if kind else 0 : ends[kind]]
            kept = first_few(corpus.graph_of.take(embeddings[:, 0]), self.limits.max_embeddings)
            pattern = _Pattern(((0, 1, kind),), embeddings[kept], (0, 1), (kind,), 2, -1, len(embeddings[kept]) < len(embeddings))
            yield from self._grown(pattern, is_approximate=False)

    def _take_up(self, engine: Engine) -> None:
        corpus = self.corpus
        self.engine = engine
        self.given = [engine.given(a) for a in (corpus.offsets, corpus.neighbours, corpus.kinds, corpus.low, corpus.graph_of)]
        self.codes = Codes(engine, engine.given(corpus.reverse), len(corpus.types), self.limits.max_edges)

    def _grown(self, pattern: _Pattern, *, is_approximate: bool) -> Iterator[Found]:
        """Yield a pattern and what grows out of it."""
        graphs = self.corpus.graph_of.take(pattern.embeddings[:, 0])
        first = firsts(graphs)
        found = Found(pattern.code, graphs.take(first), pattern.embeddings.take(first, axis=0), is_approximate, pattern.is_cut)
        if len(pattern.code) == self.limits.max_edges:
            yield found
            return
        self.n_looks += len(pattern.embeddings) * pattern.n_open * self.n_met
        if not self.is_fixed and self.engine is engines.PLAIN and self.n_looks > engines.ENOUGH:
            self._take_up(engines.compiled())
        begins = self._begins(pattern)
        walk = self._walk(pattern, begins)
        growths, is_stopped = self._frequent(pattern, begins, walk)
        is_cut = pattern.is_cut or is_stopped
        yield found if is_cut == pattern.is_cut else found._replace(is_cut=True)
        is_last = len(pattern.code) + 1 == self.limits.max_edges
        for growth, origin, new, is_over in self._filled(pattern, growths, walk=walk, is_last=is_last):
            embeddings = pattern.embeddings.take(origin, axis=0)
            if growth.back < 0:
                embeddings = _appended(embeddings, new)
            grown = growth.path, growth.along, growth.n_open, growth.back, is_cut or (is_over and not is_last)
            yield from self._grown(_Pattern(growth.code, embeddings, *grown), is_approximate=is_cut)

    def _walk(self, pattern: _Pattern, begins: list[int]) -> tuple[Any, ...]:
        """Return what both loops over the extensions of a pattern take."""
        n_nodes = pattern.embeddings.shape[1]
        slots = [-1] * n_nodes
        for slot, node in enumerate(pattern.path):
            slots[node] = slot
        given = self.engine.given
        return (
            given(pattern.embeddings.ravel()), n_nodes, given(np.array(pattern.path, np.int32)),
            given(np.array([*pattern.along, -1], np.int32)), pattern.n_open, pattern.code[0][2],
            STEPS_PER_EMBEDDING * self.limits.max_embeddings,
            *self.given, self.n_kinds, given(np.array(slots, np.int32)), given(np.array(begins, np.int32)),
        )  # fmt: skip

    def _begins(self, pattern: _Pattern) -> list[int]:
        """Return for each node of the right-most path the first type that its label has."""
        end = int(self.corpus.reverse[pattern.along[-1]])
        return [self.begin_of[kind] for kind in (*pattern.along, end)]

    def _frequent(self, pattern: _Pattern, begins: list[int], walk: tuple[Any, ...]) -> tuple[list[_Growth], bool]:
        """Return the frequent extensions whose codes are minimal, and whether embeddings were left out for their number."""
        n_keys = 2 * len(pattern.path) * self.n_kinds
        tally = self.engine.room(3 * n_keys + 1, 0)
        self.engine.count_growths(*walk, tally)
        keys = (np.asarray(tally[n_keys : 2 * n_keys]) >= self.limits.min_support).nonzero()[0].tolist()
        if keys:
            for n, edge in enumerate(pattern.code):
                self.codes.put(n, edge)
        growths = [self._growth(pattern, begins, key, (int(tally[key]), int(tally[n_keys + key]))) for key in keys]
        return [growth for growth in growths if growth], bool(tally[-1])

    def _growth(self, pattern: _Pattern, begins: list[int], key: int, counts: tuple[int, int]) -> _Growth | None:
        """Return the extension with this key, where its code is minimal."""
        path, along, n_nodes = pattern.path, pattern.along, pattern.embeddings.shape[1]
        slot, kind = divmod(key, self.n_kinds)
        if slot < len(path):
            kind += begins[-1]
            seen = int(self.corpus.reverse[kind])
            is_tree = slot == len(path) - 2 and seen == along[slot]
            if key <= pattern.back or is_tree or seen < along[slot]:
                return None
            edge, back = (path[-1], path[slot], kind), key
        else:
            slot = 2 * len(path) - 1 - slot
            kind += begins[slot]
            edge, back = (path[slot], n_nodes, kind), -1
            path, along, n_nodes = (*path[: slot + 1], n_nodes), (*along[:slot], kind), n_nodes + 1
        self.codes.put(len(pattern.code), edge)
        if not self.codes.is_minimum(len(pattern.code) + 1, n_nodes):
            return None
        slot, first, second = self.codes.twins()
        n_open, twins = (slot + 1, (first, second)) if slot >= 0 else (len(path), (-1, -1))
        return _Growth(key, (*pattern.code, edge), path, along, n_open, back, twins, *counts)

    def _filled(
        self, pattern: _Pattern, growths: list[_Growth], *, walk: tuple[Any, ...], is_last: bool
    ) -> Iterator[tuple[_Growth, Ints, Ints, bool]]:
        """Yield with each extension which embeddings were extended and by which nodes, and whether any were cut."""
        if not growths:
            return
        given, room = self.engine.given, self.engine.room
        cap = 1 if is_last else self.limits.max_embeddings
        starts = [0, *accumulate([min(growth.n_embeddings, cap * growth.support) for growth in growths])]
        place = np.full(2 * len(pattern.path) * self.n_kinds, -1, np.int32)
        place[[growth.key for growth in growths]] = range(len(growths))
        twins = np.array([(-1, -1) if is_last else growth.twins for growth in growths], np.int32)
        ends, held, held_in, over = given(np.array(starts[:-1])), *[room(len(growths), n) for n in (0, -1, 0)]
        origin, new = room(starts[-1], 0), room(starts[-1], 0)
        chosen = given(place), given(twins.ravel()), room(len(growths), cap)
        self.engine.fill_growths(*walk, *chosen, ends, held, held_in, origin, new, over)
        origins, news = np.asarray(origin, np.int32), np.asarray(new, np.int32)
        for n, growth in enumerate(growths):
            part = slice(starts[n], int(ends[n]))
            yield growth, origins[part], news[part], bool(over[n])


def _appended(embeddings: Ints, new: Ints) -> Ints:
    grown = np.empty((len(new), embeddings.shape[1] + 1), np.int32)  # several times as fast as column_stack
    grown[:, :-1] = embeddings
    grown[:, -1] = new
    return grown


def firsts(graphs: Ints) -> npt.NDArray[np.int64]:
    """Return the places of those of equal numbers, which follow each other, that come first."""
    is_first = np.empty(len(graphs), bool)
    is_first[:1] = True
    np.not_equal(graphs[1:], graphs[:-1], out=is_first[1:])
    return is_first.nonzero()[0]


def first_few(graphs: Ints, n_most: int) -> slice | npt.NDArray[np.int64]:
    """Return the places of those of equal numbers, which follow each other, that are among the first so many."""
    if len(graphs) <= n_most:
        return slice(None)
    begins = firsts(graphs)
    since = np.arange(len(graphs)) - np.repeat(begins, np.diff(begins, append=len(graphs)))
    return (since < n_most).nonzero()[0]
