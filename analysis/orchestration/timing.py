"""How long a run's work took, how long it had to take, and which events decided that.

One definition of duration: `t_end_s - t_start_s` on the trace's own clock, in seconds, read to the microsecond, less
the time in which something that the event started (or its agent did meanwhile) was running. Differences need no zone;
times of different traces are never compared. Hidden here: how nested events are taken apart so that no second counts twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from analysis.model import Trace
from analysis.orchestration.graph import EventGraph, event_graph
from analysis.orchestration.nesting import Nesting, nesting

Basis = Literal["clock", "events", "tokens"]

#: With fewer events that have a duration (or tokens), most of the work would be missing from every sum.
MIN_KNOWN_SHARE = 0.5
#: Node visits spent on the drag of events that enclose others, each of which needs a pass of its own; about a second.
_MAX_VISITS = 2_000_000


class Span(NamedTuple):
    """From when to when, in units of the basis."""

    start: float
    end: float


@dataclass(frozen=True)
class Timing:
    """Times of one trace, in units of `basis_of_time`: seconds, events (each counts one) or output tokens.

    Without a clock there is no schedule to observe: the times are then those of the earliest possible one, in which every
    event starts as soon as its causes and the agent's event before it are done, and makespan equals span.

    nesting : which event runs inside which; nothing does without a clock
    own : exclusive time of each event, by position in the graph
    schedule : when each event ran, by position in the graph
    work, span, span_causal, makespan : all exclusive time; the longest path through causes and each agent's order; the
        same through causes alone; from the first start to the last end
    slack : by event id, how much later it could start without the span growing
    drag : by event id, how much shorter the span were if the event took no time; without those of events that enclose
        others beyond the first few, which take too long to work out (`n_without_drag`)
    critical_path : event ids of one longest path, in order
    busy, alive : by agent, its exclusive time; from the end of its spawning (else its first event) to its last event
    useful : positions of the events whose result reached the end of the run and that did not fail; None where
        `useful_reason` says why that cannot be told
    n_known : events whose duration, or tokens, are known
    """

    graph: EventGraph
    nesting: Nesting
    basis_of_time: Basis
    own: tuple[float, ...]
    schedule: tuple[Span, ...]
    work: float
    span: float
    span_causal: float
    makespan: float
    slack: dict[str, float]
    drag: dict[str, float]
    n_without_drag: int
    critical_path: tuple[str, ...]
    busy: dict[str, float]
    alive: dict[str, Span]
    useful: frozenset[int] | None
    useful_reason: str
    n_known: int

    @property
    def unit(self) -> str:
        """The unit of all times."""
        return "s" if self.basis_of_time == "clock" else self.basis_of_time

    @property
    def work_s(self) -> float | None:
        """Exclusive time of all events; None without a clock."""
        return self.work if self.basis_of_time == "clock" else None

    @property
    def span_s(self) -> float | None:
        """The longest path; None without a clock."""
        return self.span if self.basis_of_time == "clock" else None

    @property
    def makespan_s(self) -> float | None:
        """From the first start to the last end; None without a clock."""
        return self.makespan if self.basis_of_time == "clock" else None

    @property
    def slack_s(self) -> dict[str, float]:
        """Slack by event id; empty without a clock."""
        return self.slack if self.basis_of_time == "clock" else {}

    @property
    def drag_s(self) -> dict[str, float]:
        """Drag by event id; empty without a clock."""
        return self.drag if self.basis_of_time == "clock" else {}

    @cached_property
    def n_nameless(self) -> int:
        """Events that name no agent."""
        return sum([event.agent_id is None for event in self.graph.events])

    @property
    def utilisation_slot(self) -> float | None:
        """Work / (agents that act × makespan): the efficiency of the team; None where an event names no agent."""
        room = len(self.busy) * self.makespan
        return self.work / room if room and not self.n_nameless else None

    @property
    def utilisation_time(self) -> float | None:
        """Busy time / time alive, summed over agents."""
        alive = sum([span.end - span.start for span in self.alive.values()])
        return sum(self.busy.values()) / alive if alive else None

    @property
    def utilisation_act(self) -> float | None:
        """Useful own work (`act` events) of sub-agents / all of it, in events."""
        done = self.sub_agent_acts
        return sum([n in self.useful for n in done]) / len(done) if done and self.useful is not None else None

    @cached_property
    def sub_agent_acts(self) -> tuple[int, ...]:
        """Positions of own work by agents that another agent spawned or delegated to."""
        events = self.graph.events
        led = {target for e in events if e.kind in ("spawn", "delegate") for target in e.targets if target != e.agent_id}
        return tuple([n for n, event in enumerate(events) if event.kind == "act" and event.agent_id in led])

    @property
    def imbalance(self) -> float | None:
        """Busy time of the busiest agent / mean over the agents that act; 1 is even."""
        total = sum(self.busy.values())
        return max(self.busy.values()) * len(self.busy) / total if total else None


def timing(trace: Trace) -> Timing:
    """Return work, span, slack, drag, utilisations and the like of a trace, on its clock where it has one.

    The basis is the clock where at least half of the events have a duration; else output tokens where at least half of the
    events have them; else events, each of which counts one (an opaque event none). Work, span and drag: Kelley & Walker
    1959, Brent 1974, Blumofe & Leiserson 1999; an agent does one thing at a time, so that the work per agent never
    exceeds the time there is.

    >>> from analysis.model import Event, Source
    >>> events = [("plan", (), 0, 1), ("a", ("plan",), 1, 7), ("b", ("plan",), 1, 3), ("join", ("a", "b"), 7, 9)]
    >>> rows = [Event(event_id=i, agent_id=i, kind="act", parents=p, t_start_s=s, t_end_s=e) for i, p, s, e in events]
    >>> run = Trace(trace_id="t", world="recorded", source=Source(format="x"), events=tuple(rows), clock="relative")
    >>> found = timing(run)
    >>> found.work_s, found.span_s, found.makespan_s, found.slack_s["b"], found.drag_s["a"], found.critical_path
    (11.0, 9.0, 9.0, 4.0, 4.0, ('plan', 'a', 'join'))
    """
    graph = event_graph(trace)
    basis, n_known = _basis(graph)
    nested = nesting(graph, on_clock=basis == "clock")
    network = _clock_network(graph, nested) if basis == "clock" else _step_network(graph, basis)
    unit = 1e6 if basis == "clock" else 1.0
    own = _by_event(graph, network)
    heads = _heads(network, network.causes)
    length = max([head + weight for head, weight in zip(heads, network.weights, strict=True)], default=0)
    causal = [head + weight for head, weight in zip(_heads(network, network.causal), network.weights, strict=True)]
    tails = _tails(network)
    schedule = _schedule(graph, network, heads, basis)
    drag, n_without = _drag(network, heads, tails, length)
    busy, alive = _agents(graph, own, schedule)
    useful, reason = _useful(graph, nested)
    ids = [event.event_id for event in graph.events]
    slack = _slack(network, heads, tails, length)
    return Timing(
        graph=graph,
        nesting=nested,
        basis_of_time=basis,
        own=tuple([x / unit for x in own]),
        schedule=tuple([Span(a / unit, b / unit) for a, b in schedule]),
        work=sum(own) / unit,
        span=length / unit,
        span_causal=max(causal, default=0) / unit,
        makespan=(max([b for _, b in schedule], default=0) - min([a for a, _ in schedule], default=0)) / unit,
        slack={ids[n]: x / unit for n, x in enumerate(slack)},
        drag={ids[n]: x / unit for n, x in enumerate(drag) if x is not None},
        n_without_drag=n_without,
        critical_path=tuple([ids[n] for n in _critical(network, heads, length)]),
        busy={agent: x / unit for agent, x in busy.items()},
        alive={agent: Span(a / unit, b / unit) for agent, (a, b) in alive.items()},
        useful=useful,
        useful_reason=reason,
        n_known=n_known,
    )
