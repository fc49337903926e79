"""Folding a drawn run: own work in a row to one node, branches that differ in nothing but their number to one branch.

Decides what is too much detail. What folds is the same whatever order the nodes come in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_MAX_ROUNDS = 20


class Drawn(NamedTuple):
    """Nodes and edges while they are folded.

    edges : (source, target, label); every source stands before its target
    members : for each node the positions of the events it stands for
    """

    labels: list[str]
    edges: list[tuple[int, int, str]]
    members: list[list[int]]


def fold_work(drawn: Drawn, is_work: Sequence[bool], agents: Sequence[str | None]) -> Drawn:
    """Join a node to the one before it where both are like work of one agent and no other edge leaves the first or enters it."""
    n_out = Counter([edge[0] for edge in drawn.edges])
    n_in = Counter([edge[1] for edge in drawn.edges])
    head = list(range(len(drawn.labels)))
    for source, target, _ in sorted(drawn.edges, key=lambda edge: edge[1]):
        is_alone = n_out[source] == n_in[target] == 1 and is_work[source] and is_work[target]
        if is_alone and agents[source] == agents[target] and drawn.labels[source] == drawn.labels[target]:
            head[target] = head[source]
    return _quotient(drawn, head, drawn.labels)


def fold_siblings(drawn: Drawn) -> Drawn:
    """Join all nodes that no walk along the edges, forwards or backwards, tells apart; a label says how many there were.

    The coarsest such partition (bisimulation both ways): it sees the set of what a node leads to, not how often.
    """
    classes = _classes(drawn)
    first: dict[int, int] = {}
    head = [first.setdefault(number, n) for n, number in enumerate(classes)]
    size = Counter(head)
    words = {1: "", 2: " · x2"}
    labels = [label + words.get(size[head[n]], " · xmany") for n, label in enumerate(drawn.labels)]
    return _quotient(drawn, head, labels)


def _classes(drawn: Drawn) -> list[int]:
    number: dict[object, int] = {}
    colour: list[int] = [number.setdefault(label, len(number)) for label in drawn.labels]
    into: list[list[tuple[int, str]]] = [[] for _ in colour]
    out: list[list[tuple[int, str]]] = [[] for _ in colour]
    for source, target, label in drawn.edges:
        into[target].append((source, label))
        out[source].append((target, label))
    places = range(len(colour))
    for _ in range(_MAX_ROUNDS):
        down = _swept(colour, into, places)
        up = _swept(colour, out, places[::-1])
        number = {}
        refined = [number.setdefault(pair, len(number)) for pair in zip(down, up, strict=True)]
        if len(number) == len(set(colour)):
            break
        colour = refined
    return colour


def _swept(colour: Sequence[int], edges: Sequence[Sequence[tuple[int, str]]], places: Sequence[int]) -> list[int]:
    number: dict[object, int] = {}
    found = [0] * len(colour)
    for n in places:
        seen = frozenset([(found[other], label) for other, label in edges[n]])
        found[n] = number.setdefault((colour[n], seen), len(number))
    return found


def _quotient(drawn: Drawn, head: Sequence[int], labels: Sequence[str]) -> Drawn:
    """Return the graph of the heads. `head` of a node is the first one of those it is joined with."""
    place = {n: k for k, n in enumerate(dict.fromkeys(sorted(head)))}
    members: list[list[int]] = [[] for _ in place]
    for n, first in enumerate(head):
        members[place[first]].extend(drawn.members[n])
    joined = {(place[head[a]], place[head[b]], label): None for a, b, label in drawn.edges if head[a] != head[b]}
    return Drawn([labels[n] for n in place], list(joined), members)
