"""Which changes of a schedule need no replay, because they change nothing or the same as another one.

Exact, as the schedule is: nothing is dropped that could make the run shorter or longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.schedule import slacks
from analysis.counterfactual.waiting import Schedule, schedule_of, upstream
from analysis.model import Trace
from analysis.orchestration.timing import Timing, timing


class Pruned(NamedTuple):
    """What is worth replaying, and what is not: with the reason, or with the one it is a double of."""

    kept: tuple[Intervention, ...]
    dropped: tuple[tuple[Intervention, str], ...]


def prune(trace: Trace, interventions: Iterable[Intervention], *, timed: Timing | None = None) -> Pruned:
    """Drop, exactly, what cannot change the makespan and what is a double of another one.

    Dropped are delays within the slack, earlier starts of events that have slack, an order that holds anyway, repetitions,
    and the same change at an event that stands in for another: alike in kind, time, causes and effects, and the only one of
    its agent. Others are kept, whether or not they can be replayed.
    """
    timed = timed or timing(trace)
    schedule, free = schedule_of(timed), slacks(timed)
    kept: list[Intervention] = []
    dropped: list[tuple[Intervention, str]] = []
    seen: dict[tuple[object, ...], str] = {}
    for one in interventions:
        reason, looks = _idle(one, timed, schedule, free), (one.operator, one.key, _likeness(one, timed))
        if not reason and looks in seen:
            reason = f"the same as at {seen[looks]}"
        seen.setdefault(looks, one.event_id)
        if reason:
            dropped.append((one, reason))
        else:
            kept.append(one)
    return Pruned(tuple(kept), tuple(dropped))


def _idle(one: Intervention, timed: Timing, schedule: Schedule, free: Mapping[str, float]) -> str:
    slack = free.get(one.event_id)
    if slack is None:
        return ""
    if one.operator == "delay" and one.parameters.get("unit") == timed.unit and one.parameters["x"] <= slack:
        return f"0, exactly: the event has {slack:g} {timed.unit} of slack"
    if one.operator == "advance" and slack > 0:
        return f"0, exactly: the run does not wait for the event, which has {slack:g} {timed.unit} of slack"
    at = timed.graph.position[one.event_id]
    if one.operator == "advance" and schedule.waits[schedule.first[at]] == 0:
        return "0, exactly: the event begins as early as its causes and its agent allow"
    after = timed.graph.position.get(one.parameters.get("after", ""))
    if one.operator != "serialise" or after is None:
        return ""
    if schedule.exits[after] in upstream(schedule.network, schedule.first[at]):
        return f"0, exactly: the event waits for {one.parameters['after']} as it is"
    return ""


def _likeness(one: Intervention, timed: Timing) -> object:
    """Return what events that can stand in for each other share; the event's own id where nothing can."""
    graph = timed.graph
    at = graph.position.get(one.event_id)
    if at is None or one.operator not in ("delay", "advance") or timed.basis_of_time != "clock":
        return one.event_id
    event = graph.events[at]
    if event.agent_id is None or len(graph.by_agent[event.agent_id]) > 1 or timed.nesting.hosts[at]:
        return one.event_id
    return (event.kind, graph.start_us[at], graph.end_us[at], graph.is_timed[at], graph.causes[at], graph.effects[at])
