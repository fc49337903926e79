"""The recorded schedule of a run as a network: how long each piece of work took, and how long it waited before.

Decides that the waiting after an event's last cause, and after its agent's event before, belongs to the event. So playing an
unchanged network gives the recorded run, to the microsecond. Hidden here: events inside others, which are taken apart.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from graphlib import TopologicalSorter

import msgspec

from analysis.orchestration.paths import Network, clock_network, step_network
from analysis.orchestration.timing import Timing


@dataclass(frozen=True)
class Schedule:
    """A network with the waiting before each node; times in microseconds, or in steps.

    lasting : how long each node takes, which for an opaque event is no work
    first, last : of each event the nodes it begins and ends with; exits : the node with which all inside it has ended
    """

    network: Network
    lasting: list[int]
    waits: list[int]
    first: list[int]
    last: list[int]
    exits: list[int]

    def ready(self, node: int, ends: list[int]) -> int:
        """Return when all that a node waits for has ended."""
        return max([ends[cause] for cause in (*self.network.causal[node], *self.network.serial[node])], default=0)

    def play(self) -> tuple[list[int], list[int]]:
        """Return start and end of every node."""
        starts, ends = [0] * len(self.lasting), [0] * len(self.lasting)
        for node in self.network.order:
            starts[node] = self.ready(node, ends) + self.waits[node]
            ends[node] = starts[node] + self.lasting[node]
        return starts, ends

    def after(self) -> list[int]:
        """Return how long it takes from the start of each node to the last end that hangs on it."""
        found = [0] * len(self.lasting)
        for node in reversed(self.network.order):
            found[node] += self.lasting[node]
            for cause in (*self.network.causal[node], *self.network.serial[node]):
                found[cause] = max(found[cause], self.waits[node] + found[node])
        return found


def unit_of(timed: Timing) -> float:
    """Return how many of a schedule's units a second has, or a step."""
    return 1e6 if timed.basis_of_time == "clock" else 1.0


def schedule_of(timed: Timing) -> Schedule:
    """Return the network of a run with the waiting before each node, so that playing it gives the run."""
    graph, n_events = timed.graph, len(timed.graph.events)
    if timed.basis_of_time != "clock":
        network = step_network(graph, [round(own) for own in timed.own])
        nodes = list(range(n_events))
        return Schedule(network, network.weights, [0] * n_events, nodes, nodes, nodes)
    # Opaque events may be no work, but they took their time: those after them began no earlier.
    working = [event if event.kind else msgspec.structs.replace(event, kind="act") for event in graph.events]
    network = clock_network(dataclasses.replace(graph, events=tuple(working)), timed.nesting)
    pieces = network.by_owner(n_events)
    has_exit = [until > end for until, end in zip(timed.nesting.until_us, graph.end_us, strict=True)]
    first, exits = [nodes[0] for nodes in pieces], [nodes[-1] for nodes in pieces]
    last = [nodes[-2] if beyond else nodes[-1] for nodes, beyond in zip(pieces, has_exit, strict=True)]
    lasting = network.weights
    is_work = [graph.events[owner].kind is not None for owner in network.owners]
    network.weights = [weight if works else 0 for weight, works in zip(lasting, is_work, strict=True)]
    schedule = Schedule(network, lasting, [0] * len(lasting), first, last, exits)
    _wait(schedule, timed)
    return schedule


def _wait(schedule: Schedule, timed: Timing) -> None:
    """Set the waiting before each node, so that every event begins and ends when it did."""
    pinned = {node: end - schedule.lasting[node] for node, end in zip(schedule.last, timed.graph.end_us, strict=True)}
    pinned |= dict(zip(schedule.first, timed.graph.start_us, strict=True))
    ends = [0] * len(schedule.lasting)
    for node in schedule.network.order:
        ready = schedule.ready(node, ends)
        start = pinned.get(node, ready)
        schedule.waits[node] = start - ready
        ends[node] = start + schedule.lasting[node]


def rewired(schedule: Schedule, causal: list[tuple[int, ...]], serial: list[tuple[int, ...]]) -> Schedule:
    """Return the schedule with other edges into its nodes; they must not go in a circle."""
    order = list(TopologicalSorter({n: (*causal[n], *serial[n]) for n in range(len(causal))}).static_order())
    network = Network(schedule.network.weights, schedule.network.owners, causal, serial, order)
    return dataclasses.replace(schedule, network=network)


def upstream(network: Network, node: int) -> set[int]:
    """Return the node and all that it waits for."""
    found: set[int] = set()
    todo = [node]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += [*network.causal[at], *network.serial[at]]
    return found
