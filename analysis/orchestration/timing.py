"""How long a run's work took, how long it had to take, and which events decided that.

One definition of duration: `t_end_s - t_start_s` on the trace's own clock, in seconds, read to the microsecond, less
the time in which something that the event started (or its agent did meanwhile) was running. Differences need no zone;
times of different traces are never compared. Hidden here: how nested events are taken apart so that no second counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from analysis.model import Trace
from analysis.orchestration.graph import EventGraph, event_graph
from analysis.orchestration.nesting import Nesting, nesting, not_nested
from analysis.orchestration.paths import clock_network, longest_paths, step_network

Basis = Literal["clock", "events", "tokens"]

#: With fewer events that have a duration (or tokens, or an agent), most of the work would be missing from every sum.
MIN_KNOWN_SHARE = 0.5


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
    own : exclusive time of each event, by position in the graph; nothing for an opaque one, whose work nobody knows
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
    def are_agents_known(self) -> bool:
        """Whether at least half of the events name their agent."""
        return len(self.graph.events) - self.n_nameless >= MIN_KNOWN_SHARE * len(self.graph.events)

    @property
    def utilisation_slot(self) -> float | None:
        """Busy time / (agents that act × makespan): the efficiency of the team; None where most events name no agent."""
        room = len(self.busy) * self.makespan
        return sum(self.busy.values()) / room if room and self.are_agents_known else None

    @property
    def utilisation_time(self) -> float | None:
        """Busy time / time alive, summed over agents; None where most events name no agent."""
        alive = sum([span.end - span.start for span in self.alive.values()])
        return sum(self.busy.values()) / alive if alive and self.are_agents_known else None

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
        """Busy time of the busiest agent / mean over the agents that act, 1 is even; None where most events name no agent."""
        total = sum(self.busy.values())
        return max(self.busy.values()) * len(self.busy) / total if total and self.are_agents_known else None


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
    basis, weights = _basis(graph)
    nested = nesting(graph) if basis == "clock" else not_nested(graph)
    network = clock_network(graph, nested) if basis == "clock" else step_network(graph, weights)
    paths = longest_paths(network, len(graph.events))
    starts, ends = (graph.start_us, graph.end_us) if basis == "clock" else (paths.start, paths.end)
    unit = 1e6 if basis == "clock" else 1.0
    schedule = tuple([Span(start / unit, end / unit) for start, end in zip(starts, ends, strict=True)])
    useful, reason = _useful(graph, nested)
    ids = [event.event_id for event in graph.events]
    return Timing(
        graph=graph,
        nesting=nested,
        basis_of_time=basis,
        n_known=sum([weight > 0 for weight in weights]) if basis != "clock" else sum(graph.is_timed),
        own=tuple([own / unit for own in paths.own]),
        schedule=schedule,
        work=sum(paths.own) / unit,
        span=paths.span / unit,
        span_causal=paths.span_causal / unit,
        makespan=(max(ends, default=0) - min(starts, default=0)) / unit,
        slack={event_id: slack / unit for event_id, slack in zip(ids, paths.slack, strict=True)},
        drag={event_id: drag / unit for event_id, drag in zip(ids, paths.drag, strict=True) if drag is not None},
        n_without_drag=paths.drag.count(None),
        critical_path=tuple([ids[n] for n in paths.critical]),
        busy={agent: sum([paths.own[n] for n in places]) / unit for agent, places in graph.by_agent.items()},
        alive=_alive(graph, schedule),
        useful=useful,
        useful_reason=reason,
    )


def _basis(graph: EventGraph) -> tuple[Basis, list[int]]:
    """Return the basis of time and, without a clock, what each event counts."""
    enough = MIN_KNOWN_SHARE * len(graph.events)
    if graph.events and sum(graph.is_timed) >= enough:
        return "clock", []
    tokens = [event.output_tokens or 0 for event in graph.events]
    if any(tokens) and sum([event.output_tokens is not None for event in graph.events]) >= enough:
        return "tokens", tokens
    return "events", [int(event.kind is not None) for event in graph.events]


def _alive(graph: EventGraph, schedule: Sequence[Span]) -> dict[str, Span]:
    """From the end of the event that spawned an agent, where that is known, to the agent's last event."""
    spawned: dict[str, float] = {}
    for n, event in enumerate(graph.events):
        for target in event.targets if event.kind == "spawn" else ():
            spawned.setdefault(target, schedule[n].end)
    alive = {}
    for agent, places in graph.by_agent.items():
        first = schedule[places[0]].start
        last = max([schedule[n].end for n in places])
        alive[agent] = Span(min(first, spawned.get(agent, first)), last)
    return alive


def _useful(graph: EventGraph, nested: Nesting) -> tuple[frozenset[int] | None, str]:
    """Return the events from which the result was reached and that did not fail: no failed call, no tried one before it."""
    stops = [n for n, event in enumerate(graph.events) if event.kind == "stop"]
    ends = stops or [n for n, event in enumerate(graph.events) if event.kind == "aggregate"]
    if not ends:
        return None, "no stop or aggregate event says what the run came to"
    if not graph.causes[ends[-1]] and len(graph.events) > 1:
        return None, "the event that ends the run names no causes"
    inside: list[list[int]] = [[] for _ in graph.events]
    for n, caller in enumerate(nested.caller):
        if caller is not None:
            inside[caller].append(n)
    reached: set[int] = set()
    todo = [ends[-1]]
    while todo:
        n = todo.pop()
        if n not in reached:
            reached.add(n)
            todo += graph.causes[n]
            todo += inside[n]  # what a span called returned to it
    return frozenset([n for n in reached if not _failed(graph, n)]), ""


def _failed(graph: EventGraph, n: int) -> bool:
    if graph.events[n].error is not None:
        return True
    if graph.events[n].action != "tool_call":
        return False
    results = [graph.events[m] for m in graph.effects[n] if graph.events[m].action == "tool_result"]
    return bool(results) and all(result.error is not None for result in results)
