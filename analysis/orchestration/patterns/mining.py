"""What a set of pattern graphs has in common: all frequent connected patterns, where they occur, which of them say it all.

Decides how much is too much: a pattern that fits a trace in very many ways, more patterns than anyone reads. What is cut
for it is said in words and marked on the patterns it concerns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy import sparse

from analysis.errors import CounterpointError
from analysis.orchestration.patterns import engines
from analysis.orchestration.patterns.canonical import Codes, Edge, Type, id_of, is_connected
from analysis.orchestration.patterns.corpus import Corpus, Ints, corpus_of
from analysis.orchestration.patterns.graphs import PatternGraph
from analysis.orchestration.patterns.ordered import search_ordered
from analysis.orchestration.patterns.search import Found, Limits, search

MAX_PATTERNS = 100_000
MAX_EDGES = 20


@dataclass(frozen=True)
class Pattern:
    """A connected graph that occurs in at least as many traces as was asked for.

    pattern_id : hash of the minimum DFS code; equal across runs, corpora and machines
    nodes : label of each node, in the order of the code
    edges : (source, target, label), positions in `nodes`, in the order of the code
    support, support_share : in how many traces it occurs, and in which share of them
    closed : no pattern found with one edge more has the same support
    maximal : no pattern found has one edge more
    is_approximate : embeddings of a smaller pattern inside it were cut, so that the support may be too low
    """

    pattern_id: str
    nodes: tuple[str, ...]
    edges: tuple[tuple[int, int, str], ...]
    support: int
    support_share: float
    closed: bool
    maximal: bool
    is_approximate: bool

    @property
    def n_nodes(self) -> int:
        """How many nodes it has."""
        return len(self.nodes)

    @property
    def n_edges(self) -> int:
        """How many edges it has."""
        return len(self.edges)


@dataclass(frozen=True)
class Mined:
    """What was found in a set of pattern graphs, and where.

    trace_ids : of the graphs, in their order
    patterns : by support (largest first), then fewer edges first, then by id
    occurrences : bool, shape (n_patterns, n_graphs)
    examples : for each pattern an int32 array, shape (support, n_nodes): one embedding in each graph it occurs in, as
        positions of the graph's nodes; rows in the order of the row of `occurrences`
    min_support : the least number of graphs
    is_approximate : embeddings or patterns were cut, so that supports may be too low and patterns may be missing
    notes : in words, what was cut and what there was nothing of
    """

    trace_ids: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    occurrences: sparse.csr_array
    examples: tuple[Ints, ...]
    min_support: int
    is_approximate: bool
    notes: tuple[str, ...]

    def events(self, n: int, at: int, graph: PatternGraph) -> tuple[tuple[str, ...], ...]:
        """Return for each node of the n-th pattern the events of the at-th graph, which is `graph`, that it stands for.

        Raises
        ------
        LookupError
            If the pattern does not occur there.
        """
        row = self.occurrences.indices[self.occurrences.indptr[n] : self.occurrences.indptr[n + 1]]
        k = int(np.searchsorted(row, at))
        if k == len(row) or row[k] != at:
            raise LookupError(f"{self.patterns[n].pattern_id} does not occur in {graph.trace_id}")
        return tuple([graph.event_ids[node] for node in self.examples[n][k].tolist()])


def mine(
    graphs: Sequence[PatternGraph],
    *,
    min_support: int | float,
    max_edges: int = 5,
    max_embeddings_per_graph: int = 20_000,
    directed: bool = True,
    ordered: bool = False,
) -> Mined:
    """Return all connected patterns that occur in enough graphs, complete up to what `notes` name.

    The order of the graphs, their nodes and edges makes no difference, unless something had to be cut: then the first
    embeddings in the order of the nodes stay. Time grows with the graphs and the patterns, and is bounded for each graph.

    min_support : a whole number of graphs, or a share of them (a float, rounded up, and 2 graphs at the least)
    max_edges : of a pattern, 1 to 20
    max_embeddings_per_graph : of one pattern, after which the others in that graph are left out
    directed : whether the direction of edges counts
    ordered : whether the order of edges in time counts; then each edge of a pattern touches an earlier one

    Raises
    ------
    CounterpointError
        If one of these numbers cannot be.

    Examples
    --------
    >>> edges = ((0, 1, "delegation"), (0, 2, "delegation"))
    >>> graph = PatternGraph("a", ("lead", "work", "work"), edges, (("1",), ("2",), ("3",)))
    >>> mined = mine([graph, graph], min_support=2)
    >>> [(pattern.nodes, pattern.support, pattern.closed) for pattern in mined.patterns]
    [(('lead', 'work'), 2, False), (('lead', 'work', 'work'), 2, True)]
    >>> mined.occurrences.toarray().tolist(), mined.events(1, 0, graph)
    ([[True, True], [True, True]], (('1',), ('2',), ('3',)))
    """
    limits = _limits(len(graphs), min_support, max_edges, max_embeddings_per_graph)
    if ordered and not directed:
        raise CounterpointError("ordered", "the order in time goes with directed edges only", got="directed = False")
    corpus = corpus_of(graphs, min_support=limits.min_support, directed=directed)
    walk = search_ordered(corpus, limits) if ordered else search(corpus, limits)
    found = list(islice(walk, MAX_PATTERNS + 1))
    is_too_many = len(found) > MAX_PATTERNS
    return _mined(graphs, corpus, found[:MAX_PATTERNS], limits, is_ordered=ordered, is_too_many=is_too_many)


def _limits(n_graphs: int, min_support: int | float, max_edges: int, max_embeddings: int) -> Limits:
    if isinstance(min_support, float):
        if not 0 < min_support <= 1:
            raise CounterpointError("min_support", "no share of the traces", got=str(min_support), expected="above 0, at most 1")
        min_support = max(2, math.ceil(min_support * n_graphs - 1e-9))
    if not 1 <= max_edges <= MAX_EDGES:
        raise CounterpointError("max_edges", "out of range", got=str(max_edges), expected=f"1 to {MAX_EDGES}")
    for name, value in (("min_support", min_support), ("max_embeddings_per_graph", max_embeddings)):
        if value < 1:
            raise CounterpointError(name, "out of range", got=str(value), expected="at least 1")
    return Limits(min_support, max_edges, max_embeddings)


def _mined(
    graphs: Sequence[PatternGraph], corpus: Corpus, found: list[Found], limits: Limits, *, is_ordered: bool, is_too_many: bool
) -> Mined:
    ids = [("o" if is_ordered else "") + id_of(one.code, corpus.types) for one in found]
    order = sorted(range(len(found)), key=lambda n: (-len(found[n].graphs), len(found[n].code), ids[n]))
    closed, maximal = _marks(corpus, found, limits, is_ordered=is_ordered)
    patterns = tuple(
        [
            Pattern(
                ids[n],
                *_drawn(found[n].code, corpus.types),
                support=len(found[n].graphs),
                support_share=len(found[n].graphs) / len(graphs),
                closed=closed[n],
                maximal=maximal[n],
                is_approximate=found[n].is_approximate,
            )
            for n in order
        ]
    )
    rows = [found[n].graphs for n in order]
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.concatenate([np.zeros(0, np.int32), *rows])
    shape = len(found), len(graphs)
    return Mined(
        trace_ids=tuple([graph.trace_id for graph in graphs]),
        patterns=patterns,
        occurrences=sparse.csr_array((np.ones(len(columns), bool), columns, ends), shape=shape),
        examples=tuple([_local(corpus, found[n]) for n in order]),
        min_support=limits.min_support,
        is_approximate=is_too_many or any(one.is_cut for one in found),
        notes=tuple(_notes(graphs, found, limits, is_too_many=is_too_many)),
    )


def _drawn(code: Sequence[Edge], types: Sequence[Type]) -> tuple[tuple[str, ...], tuple[tuple[int, int, str], ...]]:
    """Return the labels of the nodes and the edges of a code."""
    nodes: dict[int, str] = {}
    edges = []
    for i, j, kind in code:
        here, words, there = types[kind]
        nodes.update({i: here, j: there})
        label = words[:-1] if words.endswith((">", "<")) else words
        edges.append((j, i, label) if words.endswith("<") else (i, j, label))
    return tuple([nodes[n] for n in range(len(nodes))]), tuple(edges)


def _local(corpus: Corpus, one: Found) -> Ints:
    local: Ints = (one.examples - corpus.starts[one.graphs, None]).astype(np.int32)
    return local


def _marks(corpus: Corpus, found: Sequence[Found], limits: Limits, *, is_ordered: bool) -> tuple[list[bool], list[bool]]:
    """Return which patterns are closed and which are maximal, by looking each one's smaller patterns up."""
    number = {one.code: n for n, one in enumerate(found)}
    closed, maximal = [True] * len(found), [True] * len(found)
    engine = engines.engine_for(sum([len(one.code) for one in found]))
    codes = Codes(engine, engine.given(corpus.reverse), len(corpus.types), limits.max_edges)
    for one in found:
        for smaller in _in_order(one.code, corpus) if is_ordered else _smaller(one.code, codes):
            n = number.get(smaller)
            if n is not None:
                maximal[n] = False
                closed[n] = closed[n] and len(found[n].graphs) > len(one.graphs)
    return closed, maximal


def _smaller(code: tuple[Edge, ...], codes: Codes) -> Iterator[tuple[Edge, ...]]:
    """Yield the minimum codes of the connected patterns with one edge less."""
    yield code[:-1]
    for n in range(len(code) - 1):
        rest = code[:n] + code[n + 1 :]
        place: dict[int, int] = {}
        edges = [(place.setdefault(i, len(place)), place.setdefault(j, len(place)), kind) for i, j, kind in rest]
        if is_connected([edge[:2] for edge in edges], len(place)):
            yield codes.minimum(edges, len(place))


def _in_order(code: tuple[Edge, ...], corpus: Corpus) -> Iterator[tuple[Edge, ...]]:
    """Yield the codes of the patterns of ordered edges with one edge less, each edge of which touches an earlier one."""
    for n in range(len(code)):
        place: dict[int, int] = {}
        edges: list[Edge] = []
        for i, j, kind in code[:n] + code[n + 1 :]:
            is_swapped = place[i] > place.get(j, len(code) + 1) if i in place else j in place or kind != corpus.low[kind]
            if edges and i not in place and j not in place:
                break
            if is_swapped:
                i, j, kind = j, i, int(corpus.reverse[kind])
            edges.append((place.setdefault(i, len(place)), place.setdefault(j, len(place)), kind))
        if len(edges) == len(code) - 1:
            yield tuple(edges)


def _notes(graphs: Sequence[PatternGraph], found: Sequence[Found], limits: Limits, *, is_too_many: bool) -> Iterator[str]:
    if not graphs:
        yield "There are no traces, so there are no patterns."
    elif len(graphs) < limits.min_support:
        yield f"A pattern must occur in {limits.min_support} traces, and there are only {len(graphs)}."
    elif not found:
        yield f"No two connected events recur in {limits.min_support} of {len(graphs)} traces."
    if is_too_many:
        yield f"There are more than {MAX_PATTERNS:,} patterns; the search ended there. Ask for a larger support or fewer edges."
    if n_approximate := sum([one.is_cut or one.is_approximate for one in found]):
        yield (
            f"{n_approximate} of {len(found)} patterns fit one trace in more than {limits.max_embeddings:,} ways; the other ways"
            " were left out there, so what contains them may occur more often than counted."
        )
    yield from [graph.note for graph in graphs if graph.note]
