"""The schedule of a run, were one event delayed, started earlier, put after another one, or given to somebody else.

Exact where agents do not read the clock: every event keeps its duration, and begins as long after its causes and its agent's
event before as it did. Decides what each operator keeps, and what a schedule decides of a run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import msgspec

from analysis.counterfactual.recorded import Intervention, Replayed, check_operator, counterfactual_of, in_both, refuse
from analysis.counterfactual.waiting import Schedule, rewired, schedule_of, unit_of, upstream
from analysis.model import Agent, Event, Trace
from analysis.orchestration.cost import Baseline, BaselineKey, baseline_key
from analysis.orchestration.metrics import metrics
from analysis.orchestration.paths import longest_paths
from analysis.orchestration.timing import Span, Timing, timing

OPERATORS = ("delay", "advance", "serialise", "parallelise")

#: The metrics that a schedule decides; all others stay as they are, for no event's content changes.
_DECIDED = (
    "q_parallel_self", "q_parallel_useful", "q_parallel_baseline", "q_orchestration", "work_s", "span_s", "makespan_s",
    "parallelism", "schedule_quality", "utilisation_slot", "imbalance",
)  # fmt: skip


def delay(event_id: str, x: float, *, unit: str = "s") -> Intervention:
    """Let an event begin `x` later than it could: in seconds, or without a clock in `events` or `tokens`. 0 is the identity."""
    return Intervention("delay", event_id, {"x": x, "unit": unit})


def advance(event_id: str) -> Intervention:
    """Let an event begin as soon as its causes and its agent's event before it are done: no waiting in between."""
    return Intervention("advance", event_id)


def serialise(event_id: str, *, after: str) -> Intervention:
    """Let an event begin only when another one, and all inside that, has ended."""
    return Intervention("serialise", event_id, {"after": after})


def parallelise(event_id: str) -> Intervention:
    """Let a second agent like its own do an event, so that it waits for its causes alone."""
    return Intervention("parallelise", event_id)


def slacks(timed: Timing) -> dict[str, float]:
    """Return by event id how much later it could begin without the run ending later, in seconds or steps.

    Delaying an event by x makes the makespan longer by max(0, x - slack), exactly. Unlike `Timing.slack`, which says what
    the longest path leaves, the recorded waiting of later events is kept, so that this is what the run left.

    >>> from analysis.model import Source
    >>> rows = [("plan", (), 0, 1), ("a", ("plan",), 1, 11), ("b", ("plan",), 1, 3), ("join", ("a", "b"), 11, 12)]
    >>> events = [Event(event_id=i, agent_id=i, kind="act", parents=p, t_start_s=s, t_end_s=e) for i, p, s, e in rows]
    >>> run = Trace(trace_id="t", world="recorded", source=Source(format="x"), events=tuple(events), clock="relative")
    >>> slacks(timing(run))
    {'plan': 0.0, 'a': 0.0, 'b': 8.0, 'join': 0.0}
    >>> [what_if(run, delay("b", x)).delta_q["makespan_s"] for x in (8, 9)]
    [0.0, 1.0]
    """
    schedule = schedule_of(timed)
    starts, ends = schedule.play()
    after, latest, unit = schedule.after(), max(ends, default=0), unit_of(timed)
    free = [(latest - starts[node] - after[node]) / unit for node in schedule.first]
    return {event.event_id: slack for event, slack in zip(timed.graph.events, free, strict=True)}


def what_if(
    trace: Trace, intervention: Intervention, *, baseline: Mapping[BaselineKey, Baseline] | None = None,
    timed: Timing | None = None,
) -> Replayed:  # fmt: skip
    """Return the run under a changed schedule, with what the schedule decides: makespan, span, q_parallel and the like.

    Parameters
    ----------
    intervention : made by `delay`, `advance`, `serialise` or `parallelise`
    baseline : what single agents did, by world and task, for q_parallel_baseline
    timed : the run's timing, where it is at hand

    Raises
    ------
    ReplayError
        Where the schedule does not say: an event without a duration, seconds without a clock, an order that goes in a
        circle, or an operator that needs an agent's answer. Its text gives the reason.

    Notes
    -----
    The run begins when it began: delaying its first event makes it longer. Delaying and advancing leave the span as it is,
    since waiting is no work. `log_q_parallel_self` adds up over changes, so take differences there.
    """
    check_operator(trace, intervention, OPERATORS)
    timed = timed or timing(trace)
    schedule, at = schedule_of(timed), timed.graph.position[intervention.event_id]
    if timed.basis_of_time == "clock" and not timed.graph.is_timed[at]:
        refuse(trace, intervention, "nobody knows how long the event took")
    changed = _CHANGES[intervention.operator](_Asked(trace, intervention, timed, schedule, at))
    before, after = schedule.play(), changed.play()
    moved = _moved(schedule, before, after)
    events = _events(timed, intervention, moved)
    other = _retimed(timed, changed, events, after)
    has_clock = timed.basis_of_time == "clock"
    made = counterfactual_of(
        trace, intervention, clock=trace.clock if has_clock else None,
        agents=_agents(trace, intervention, timed.graph.events[at]),
        events=tuple([events[timed.graph.position[event.event_id]] for event in trace.events]),
    )  # fmt: skip
    q, q_counterfactual = in_both(_measured(trace, timed, baseline), _measured(made, other, _same(trace, made, baseline)))
    ids = [event.event_id for event in timed.graph.events]
    return Replayed(
        intervention=intervention, trace=made, q=q, q_counterfactual=q_counterfactual,
        downstream=tuple([ids[n] for n in moved if n != at]),
        n_without_duration=len(ids) - sum(timed.graph.is_timed) if has_clock else 0,
        notes=() if has_clock else (f"by steps: there is no clock, and time is counted in {timed.unit}",),
    )  # fmt: skip


class _Asked(NamedTuple):
    trace: Trace
    intervention: Intervention
    timed: Timing
    schedule: Schedule
    at: int

    def refuse(self, why: str, got: str = "") -> NoReturn:
        refuse(self.trace, self.intervention, why, got=got)


def _delayed(asked: _Asked) -> Schedule:
    x, unit = asked.intervention.parameters.get("x"), asked.intervention.parameters.get("unit", "s")
    if not isinstance(x, int | float) or not math.isfinite(x) or x < 0:
        asked.refuse("the delay is no number from 0 up", got=str(x))
    if unit != asked.timed.unit:
        n_timed, n = sum(asked.timed.graph.is_timed), len(asked.timed.graph.events)
        clock = "there is no clock" if unit == "s" else "there is a clock"
        asked.refuse(f"{clock}, {n_timed} of {n} events have a duration, and time is counted in {asked.timed.unit}", got=unit)
    return _with_wait(asked, asked.schedule.waits[asked.schedule.first[asked.at]] + round(x * unit_of(asked.timed)))


def _advanced(asked: _Asked) -> Schedule:
    node = asked.schedule.first[asked.at]
    if not asked.schedule.network.causal[node]:
        asked.refuse(_NO_CAUSE)
    if asked.schedule.waits[node] == 0:
        asked.refuse("the event begins as early as its causes and its agent allow")
    return _with_wait(asked, 0)


def _with_wait(asked: _Asked, wait: int) -> Schedule:
    waits = list(asked.schedule.waits)
    waits[asked.schedule.first[asked.at]] = wait
    return dataclasses.replace(asked.schedule, waits=waits)


def _serialised(asked: _Asked) -> Schedule:
    graph, schedule, name = asked.timed.graph, asked.schedule, asked.intervention.parameters.get("after")
    after = graph.position.get(name or "")
    if after is None:
        asked.refuse("the trace has no event to come after", got=str(name))
    if asked.timed.basis_of_time == "clock" and not graph.is_timed[after]:
        asked.refuse(f"nobody knows how long {name} took")
    node, wanted = schedule.first[asked.at], schedule.exits[after]
    if after == asked.at or node in upstream(schedule.network, wanted):
        asked.refuse(f"{name} itself waits for the event, or runs inside it")
    if wanted in upstream(schedule.network, node):
        asked.refuse(f"the event waits for {name} as it is")
    causal = list(schedule.network.causal)
    causal[node] = (*causal[node], wanted)
    return rewired(schedule, causal, schedule.network.serial)


def _parallelised(asked: _Asked) -> Schedule:
    timed, schedule, at = asked.timed, asked.schedule, asked.at
    if timed.graph.events[at].agent_id is None:
        asked.refuse("the event names no agent")
    hosts = timed.nesting.hosts
    if hosts[at] or any(at in around for around in hosts):
        asked.refuse("the event runs inside another one, or others inside it")
    node = schedule.first[at]
    if not schedule.network.causal[node]:
        asked.refuse(_NO_CAUSE)
    if not (mine := schedule.network.serial[node]):
        asked.refuse("its agent had nothing to do before it, so that it waits for its causes alone")
    # What came after it in the agent's order now comes after what was before it.
    serial = [tuple([m for n in nodes for m in (mine if n == node else (n,))]) for nodes in schedule.network.serial]
    serial[node] = ()
    return rewired(schedule, schedule.network.causal, serial)


_CHANGES = {"delay": _delayed, "advance": _advanced, "serialise": _serialised, "parallelise": _parallelised}
_NO_CAUSE = "the event names no cause, so nobody knows what else it waited for"
_Played = tuple[list[int], list[int]]


def _moved(schedule: Schedule, before: _Played, after: _Played) -> dict[int, tuple[int, int]]:
    """Return by how much start and end of an event moved, for every event of which either did."""
    shifts = {
        n: (after[0][first] - before[0][first], after[1][last] - before[1][last])
        for n, (first, last) in enumerate(zip(schedule.first, schedule.last, strict=True))
    }
    return {n: shift for n, shift in shifts.items() if any(shift)}


def _events(timed: Timing, intervention: Intervention, moved: Mapping[int, tuple[int, int]]) -> list[Event]:
    """Return all events as they are in the changed run, in the order of the graph; by steps none has a time."""
    events, at = list(timed.graph.events), timed.graph.position[intervention.event_id]
    if timed.basis_of_time == "clock":
        for n, shift in moved.items():
            times = (events[n].t_start_s, events[n].t_end_s)
            start, end = (t if t is None else t + by / 1e6 for t, by in zip(times, shift, strict=True))
            events[n] = msgspec.structs.replace(events[n], t_start_s=start, t_end_s=end)
    else:
        events = [msgspec.structs.replace(event, t_start_s=None, t_end_s=None) for event in events]
    if intervention.operator == "serialise":
        parents = tuple(dict.fromkeys((*events[at].parents, intervention.parameters["after"])))
        events[at] = msgspec.structs.replace(events[at], parents=parents)
    if intervention.operator == "parallelise":
        events[at] = msgspec.structs.replace(events[at], agent_id=_twin(events[at]))
    return events


def _twin(event: Event) -> str:
    return f"{event.agent_id}+{event.event_id}"[-512:]


def _agents(trace: Trace, intervention: Intervention, event: Event) -> tuple[Agent, ...]:
    """Return the team, with the second agent where one was added."""
    if intervention.operator != "parallelise":
        return trace.agents
    mine = [agent for agent in trace.agents if agent.agent_id == event.agent_id]
    like = mine[0] if mine else Agent(agent_id=event.agent_id or "", component=event.agent_id or "")
    return (*trace.agents, msgspec.structs.replace(like, agent_id=_twin(event)))


def _retimed(timed: Timing, changed: Schedule, events: Sequence[Event], played: _Played) -> Timing:
    """Return the timing of the changed run; what an event does of its own stays, so that waiting never counts as work."""
    unit, n_events = unit_of(timed), len(events)
    graph = dataclasses.replace(timed.graph, events=tuple(events))
    schedule = [Span(played[0][f] / unit, played[1][e] / unit) for f, e in zip(changed.first, changed.last, strict=True)]
    paths = longest_paths(changed.network, n_events)
    began = min(timed.graph.start_us, default=0) if timed.basis_of_time == "clock" else 0
    return dataclasses.replace(
        timed, graph=graph, schedule=tuple(schedule), span=paths.span / unit, span_causal=paths.span_causal / unit,
        makespan=(max(played[1], default=0) - began) / unit,
        busy={agent: sum([paths.own[n] for n in places]) / unit for agent, places in graph.by_agent.items()},
    )  # fmt: skip


def _same(trace: Trace, made: Trace, baseline: Mapping[BaselineKey, Baseline] | None) -> dict[BaselineKey, Baseline]:
    """Return the baseline of the run as that of the changed one, which is of another world but made of the same parts."""
    known = (baseline or {}).get(baseline_key(trace))
    return {} if known is None else {baseline_key(made): known}


def _measured(trace: Trace, timed: Timing, baseline: Mapping[BaselineKey, Baseline] | None) -> dict[str, float | None]:
    found: dict[str, float | None] = {"passed": None if trace.outcome.passed is None else float(trace.outcome.passed)}
    values = {metric.name: metric.value for metric in metrics(trace, baseline=baseline, timed=timed)}
    found |= {name: values[name] for name in _DECIDED}
    speed_up = values["q_parallel_self"]
    return found | {"log_q_parallel_self": math.log(speed_up) if speed_up else None}
