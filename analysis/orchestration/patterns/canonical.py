"""Equal up to renaming: the minimum DFS code of a pattern, from which its id is made.

Decides what an id is: the hash of the minimum DFS code with its labels as text, so that it is the same in every corpus,
run and machine. Hidden here: the room that the search for the code needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from analysis.orchestration.patterns.corpus import corpus_of
from analysis.orchestration.patterns.engines import PLAIN, Engine

Edge = tuple[int, int, int]  # from, to (numbers of nodes), type seen from the first
Type = tuple[str, str, str]  # label here, edge and direction, label there


@dataclass
class Codes:
    """Finds minimum DFS codes of patterns with at most so many edges, over types with these `reverse` types."""

    engine: Engine
    reverse: Any
    n_types: int
    max_edges: int
    n_rows: int = 64
    pattern: list[Any] = field(init=False)  # from, to and type of each edge put in
    code: list[Any] = field(init=False)  # the same of the code that is found
    scratch: list[Any] = field(init=False)
    found: Any = field(init=False)

    def __post_init__(self) -> None:
        self.pattern, self.code = ([self.engine.room(self.max_edges, 0) for _ in range(3)] for _ in range(2))
        self.found = self.engine.room(3, -1)
        self._make_room()

    def put(self, n: int, edge: Edge) -> None:
        """Take `edge` as the n-th of the pattern."""
        source, target, kind = self.pattern
        source[n], target[n], kind[n] = edge

    def is_minimum(self, n_edges: int, n_nodes: int) -> bool:
        """Return whether the edges put in are a minimum DFS code; `twins` then tells of its end."""
        return self._run(n_edges, n_nodes, is_test=True) == 1

    def twins(self) -> tuple[int, int, int]:
        """Return where on the right-most path two equal branches end the code, and their first nodes; -1 where none do."""
        slot, first, second = self.found
        return int(slot), int(first), int(second)

    def minimum(self, edges: Sequence[Edge], n_nodes: int) -> tuple[Edge, ...]:
        """Return the minimum DFS code of a connected pattern."""
        for n, edge in enumerate(edges):
            self.put(n, edge)
        self._run(len(edges), n_nodes, is_test=False)
        return tuple([(int(i), int(j), int(kind)) for _, i, j, kind in zip(edges, *self.code, strict=False)])

    def _run(self, n_edges: int, n_nodes: int, *, is_test: bool) -> int:
        while True:
            sizes = n_edges, n_nodes, self.reverse, self.n_types, is_test
            verdict = self.engine.minimum_code(*self.pattern, *sizes, *self.code, *self.scratch, self.found)
            if verdict >= 0:
                return verdict
            self.n_rows *= 4
            self._make_room()

    def _make_room(self) -> None:
        n_nodes = self.max_edges + 1
        self.scratch = [self.engine.room(n, 0) for n in (n_nodes, n_nodes, self.n_rows * n_nodes, self.n_rows * n_nodes)]


class _Lone(msgspec.Struct, frozen=True):
    labels: tuple[str, ...]
    edges: tuple[tuple[int, int, str], ...]


def pattern_id(nodes: Sequence[str], edges: Sequence[tuple[int, int, str]], *, directed: bool = True) -> str:
    """Return the id of a connected pattern, whatever order its nodes and edges come in.

    nodes : label of each node; edges : (source, target, label)

    Raises
    ------
    ValueError
        If the pattern has no edge, an edge from a node to itself, or is not connected.

    Examples
    --------
    >>> star = pattern_id(["spawn", "act", "act"], [(0, 1, "delegation"), (0, 2, "delegation")])
    >>> star == pattern_id(["act", "spawn", "act"], [(1, 2, "delegation"), (1, 0, "delegation")])
    True
    >>> star == pattern_id(["act", "spawn", "act"], [(1, 2, "delegation"), (0, 1, "delegation")])
    False
    """
    if not edges or not is_connected([edge[:2] for edge in edges], len(nodes)):
        raise ValueError("a pattern is connected and has at least one edge")
    given = dict.fromkeys([edge if directed else (min(edge[:2]), max(edge[:2]), edge[2]) for edge in edges])
    corpus = corpus_of([_Lone(tuple(nodes), tuple(given))], min_support=1, directed=directed)
    number = {words: n for n, words in enumerate(corpus.types)}
    way = ">" if directed else ""
    found = [(a, b, number[nodes[a], label + way, nodes[b]]) for a, b, label in given]
    codes = Codes(PLAIN, corpus.reverse.tolist(), len(corpus.types), len(found))
    return id_of(codes.minimum(found, len(nodes)), corpus.types)


def id_of(code: Sequence[Edge], types: Sequence[Type]) -> str:
    """Return the id of a pattern with this minimum DFS code."""
    text = msgspec.json.encode([(i, j, *types[kind]) for i, j, kind in code])
    return "p" + hashlib.blake2b(text, digest_size=8).hexdigest()


def is_connected(pairs: Sequence[tuple[int, int]], n_nodes: int) -> bool:
    """Return whether edges between these nodes connect all of them."""
    reached = {pairs[0][0]} if pairs else set()
    left = list(pairs)
    while left:
        rest = [pair for pair in left if pair[0] not in reached and pair[1] not in reached]
        if len(rest) == len(left):
            return False
        reached.update([node for pair in left if pair not in rest for node in pair])
        left = rest
    return len(reached) == n_nodes
