"""Longest paths through a network of work: where each piece can start, which decide the length, how much they cost.

A node is a piece of one event's own work; an event with others inside is taken apart into the pieces before, between and
after them, so that every edge leads forward in time. Hidden here: that taking apart, and how drag is found in one sweep.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from analysis.orchestration.graph import EventGraph
from analysis.orchestration.nesting import Nesting

#: Node visits spent on the drag of events in several pieces, each of which needs a pass of its own; about half a second.
_MAX_VISITS = 2_000_000


@dataclass
class Network:
    """Nodes with weights and the edges into them; `owners` are positions of events.

    causal, serial : for each node those that caused it; those that its agent had to do before it
    order : all nodes, causes first
    """

    weights: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    causal: list[tuple[int, ...]] = field(default_factory=list)
    serial: list[tuple[int, ...]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def add(self, owner: int, weight: int, *, causal: tuple[int, ...] = (), serial: tuple[int, ...] = ()) -> int:
        """Add a node and return its number."""
        self.weights.append(weight)
        self.owners.append(owner)
        self.causal.append(causal)
        self.serial.append(serial)
        return len(self.weights) - 1

    def by_owner(self, n_owners: int) -> list[list[int]]:
        """Return the nodes of each event."""
        found: list[list[int]] = [[] for _ in range(n_owners)]
        for node, owner in enumerate(self.owners):
            found[owner].append(node)
        return found


def step_network(graph: EventGraph, weights: Sequence[int]) -> Network:
    """Return a network of one node an event, of the given weights, in the order of the graph."""
    places = list(range(len(weights)))
    serial: list[tuple[int, ...]] = [() if before is None else (before,) for before in graph.before]
    return Network(list(weights), places, list(graph.causes), serial, places)


def clock_network(graph: EventGraph, nested: Nesting) -> Network:
    """Return the network of a run on its clock. No path is longer than the run, since every edge leads forward in time.

    The own time of an opaque event, which nobody knows to be work, counts nothing.
    """
    inside: dict[int, list[int]] = {}
    for n, hosts in enumerate(nested.hosts):
        for host in hosts:
            inside.setdefault(host, []).append(n)
    network = Network()
    ends: list[int] = []
    around = _Around({}, {})
    exits: dict[int, int] = {}
    for n, hosts in enumerate(nested.hosts):
        ended = tuple([ends[cause] for cause in graph.causes[n] if cause not in hosts])
        causal, serial = (*around.entries.get(n, ()), *ended), tuple([ends[done] for done in nested.ended[n]])
        node = network.add(n, graph.end_us[n] - graph.start_us[n], causal=causal, serial=serial)
        exits[n] = node
        if n in inside:
            node, exits[n] = _take_apart(n, inside[n], network=network, graph=graph, until=nested.until_us, around=around)
        ends.append(node)
    for node, awaited in around.joins.items():
        network.causal[node] = (*network.causal[node], *[exits[inner] for inner in awaited])
    for node, owner in enumerate(network.owners):
        if graph.events[owner].kind is None:
            network.weights[node] = 0
    network.order = _topological(network)
    return network


class _Around(NamedTuple):
    """How events hang on to the pieces of those around them."""

    entries: dict[int, list[int]]  # event -> the pieces it starts after
    joins: dict[int, list[int]]  # piece -> the events that it waits for, and for all inside them


def _take_apart(
    n: int, inside: Sequence[int], *, network: Network, graph: EventGraph, until: Sequence[int], around: _Around
) -> tuple[int, int]:
    """Add the pieces of event `n` after its first one; return the piece it ends with, and the one all inside ends with."""
    node = len(network.weights) - 1
    cursor, end = graph.start_us[n], graph.end_us[n]
    network.weights[node] = graph.start_us[inside[0]] - cursor
    running: list[int] = []
    for inner in inside:
        start = graph.start_us[inner]
        if running and start >= cursor:
            node = _piece(n, start - cursor, after=node, waits_for=running, network=network, around=around)
            running = []
        around.entries.setdefault(inner, []).append(node)
        running.append(inner)
        cursor = max(cursor, until[inner])
    outliving = [inner for inner in running if until[inner] > end]
    done = [inner for inner in running if until[inner] <= end]
    node = _piece(n, max(0, end - cursor), after=node, waits_for=done, network=network, around=around)
    if not outliving:
        return node, node
    return node, _piece(n, 0, after=node, waits_for=outliving, network=network, around=around)


def _piece(n: int, weight: int, *, after: int, waits_for: Sequence[int], network: Network, around: _Around) -> int:
    node = network.add(n, weight, causal=(after,))
    around.joins[node] = list(waits_for)
    return node


def _topological(network: Network) -> list[int]:
    n_nodes = len(network.weights)
    effects: list[list[int]] = [[] for _ in range(n_nodes)]
    n_missing = [0] * n_nodes
    for node in range(n_nodes):
        for cause in (*network.causal[node], *network.serial[node]):
            effects[cause].append(node)
            n_missing[node] += 1
    ready = [node for node in range(n_nodes - 1, -1, -1) if n_missing[node] == 0]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for effect in effects[node]:
            n_missing[effect] -= 1
            if n_missing[effect] == 0:
                ready.append(effect)
    return order


class Paths(NamedTuple):
    """What the longest paths say of each event, by position, in the units of the weights.

    own, start, end : weight of all its nodes; earliest start of the first and end of the last of them
    span, span_causal : length of the longest path; of the longest one through causes alone
    slack : how much later the event could start without the span growing
    drag : how much shorter the span were without the event's weight; None where not worked out
    critical : the events of one longest path, in order
    """

    own: list[int]
    start: list[int]
    end: list[int]
    span: int
    span_causal: int
    slack: list[int]
    drag: list[int | None]
    critical: list[int]


def longest_paths(network: Network, n_events: int) -> Paths:
    """Return slack, drag and the like of every event (critical path method, Kelley & Walker 1959). Linear, but for sorting."""
    heads, tails = _heads(network), _tails(network)
    ends = [head + weight for head, weight in zip(heads, network.weights, strict=True)]
    span = max(ends, default=0)
    alone = [head + weight for head, weight in zip(_heads(network, is_causal=True), network.weights, strict=True)]
    pieces = network.by_owner(n_events)
    working = [[node for node in nodes if network.weights[node]] or nodes for nodes in pieces]
    slack = [span - max([heads[node] + tails[node] for node in nodes]) for nodes in working]
    return Paths(
        own=[sum([network.weights[node] for node in nodes]) for nodes in pieces],
        start=[min([heads[node] for node in nodes]) for nodes in pieces],
        end=[max([ends[node] for node in nodes]) for nodes in pieces],
        span=span,
        span_causal=max(alone, default=0),
        slack=slack,
        drag=_drag(network, working, slack=slack, heads=heads, tails=tails),
        critical=_critical(network, working, heads, ends),
    )


def _heads(network: Network, *, is_causal: bool = False, without: frozenset[int] = frozenset()) -> list[int]:
    """Return when each node can start at the earliest, its agent's order heeded or not; the nodes `without` take no time."""
    weights = [0 if node in without else weight for node, weight in enumerate(network.weights)] if without else network.weights
    found = [0] * len(weights)
    for node in network.order:
        start = 0
        for cause in network.causal[node]:
            if (end := found[cause] + weights[cause]) > start:
                start = end
        if not is_causal:
            for cause in network.serial[node]:
                if (end := found[cause] + weights[cause]) > start:
                    start = end
        found[node] = start
    return found


def _tails(network: Network) -> list[int]:
    """Return the length of the longest path from the start of each node on."""
    after = [0] * len(network.weights)
    for node in reversed(network.order):
        length = after[node] = after[node] + network.weights[node]
        for cause in (*network.causal[node], *network.serial[node]):
            if length > after[cause]:
                after[cause] = length
    return after


def _critical(network: Network, working: Sequence[Sequence[int]], heads: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Walk back from the earliest event that ends last, always to the earliest cause that explains the start.

    An event that the path enters only where it does nothing, before or between what runs inside it, is not on it.
    """
    span = max(ends, default=0)
    at = min([node for node, end in enumerate(ends) if end == span], key=lambda node: network.owners[node], default=None)
    path: list[int] = []
    while at is not None:
        owner, start = network.owners[at], heads[at]
        if network.weights[at] or not network.weights[working[owner][0]]:
            path.append(owner)
        causes = [cause for cause in (*network.causal[at], *network.serial[at]) if ends[cause] == start]
        at = min(causes, key=lambda node: network.owners[node], default=None)
    return list(dict.fromkeys(reversed(path)))


def _drag(
    network: Network, working: Sequence[Sequence[int]], *, slack: Sequence[int], heads: Sequence[int], tails: Sequence[int]
) -> list[int | None]:
    span = max(tails, default=0)
    around = _around(network, heads, tails)
    n_passes = _MAX_VISITS // max(1, len(network.weights))
    found: list[int | None] = []
    for nodes, loose in zip(working, slack, strict=True):
        if loose or not any(network.weights[node] for node in nodes):
            found.append(0)
        elif len(nodes) == 1:
            found.append(min(network.weights[nodes[0]], span - around[nodes[0]]))
        elif n_passes > 0:
            n_passes -= 1
            gone = frozenset(nodes)
            shorter = _heads(network, without=gone)
            found.append(span - max([h + (0 if n in gone else network.weights[n]) for n, h in enumerate(shorter)]))
        else:
            found.append(None)
    return found


def _around(network: Network, heads: Sequence[int], tails: Sequence[int]) -> list[int]:
    """Return for each node the length of the longest path that does not pass it.

    In the order of the nodes such a path ends before it, starts after it, or has an edge that leaps over it.
    """
    weights, order = network.weights, network.order
    found = [0] * len(weights)
    best = 0
    for node in order:
        found[node] = best
        best = max(best, heads[node] + weights[node])
    best = 0
    for node in reversed(order):
        found[node] = max(found[node], best)
        best = max(best, tails[node])
    place = [0] * len(order)
    for k, node in enumerate(order):
        place[node] = k
    leaps: dict[int, list[int]] = {}  # from each node, where those of its edges lead to that pass others
    for node in order:
        for cause in (*network.causal[node], *network.serial[node]):
            if place[node] > place[cause] + 1:
                leaps.setdefault(cause, []).append(node)
    open_leaps: list[tuple[int, int]] = []  # (minus the length, place where it lands), longest first
    for k, node in enumerate(order):
        while open_leaps and open_leaps[0][1] <= k:
            heapq.heappop(open_leaps)
        if open_leaps:
            found[node] = max(found[node], -open_leaps[0][0])
        for landing in leaps.get(node, ()):
            heapq.heappush(open_leaps, (-(heads[node] + weights[node] + tails[landing]), place[landing]))
    return found
