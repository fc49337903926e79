"""Which changes of a schedule or a plan need no replay, because they change nothing or the same as another one.

Exact: nothing is dropped that could make a recorded run shorter or longer, or change what a run by a plan is expected to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from analysis.counterfactual.interventions import edited
from analysis.counterfactual.merging import folds
from analysis.counterfactual.plan import Aggregate, AnyStep, Plan, Write
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.schedule import slacks
from analysis.counterfactual.waiting import Schedule, schedule_of, upstream
from analysis.model import Trace
from analysis.orchestration.timing import Timing, timing

_AGENTS = ("agent_id", "to", "members", "parent_id")  # fields of a plan that name agents


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


def prune_plan(plan: Plan, interventions: Iterable[Intervention]) -> Pruned:
    """Drop what leaves a plan as it is in all that agents do, and what makes the same of it as another one.

    Strategies are the same where no part has alternatives and results are put together in the same order; plans are the same
    where agents of one component have changed places throughout.
    """
    kept: list[Intervention] = []
    dropped: list[tuple[Intervention, str]] = []
    seen = {_meant(plan): "it leaves all as it is"}
    for one in interventions:
        meant = _meant(edited(plan, one))
        if meant in seen:
            dropped.append((one, seen[meant]))
        else:
            kept.append(one)
            seen[meant] = f"the same as {one.operator} {one.key} at {one.event_id}"
    return Pruned(tuple(kept), tuple(dropped))


def _meant(plan: Plan) -> bytes:
    """Return a plan with strategies as the merges they make, and agents named after their component as they come in."""
    component = {member.agent_id: member.component for member in plan.members}
    doers = [agent for step in plan.steps for agent in _doers(plan, step)]
    names = {agent: f"{component[agent]} {n}" for n, agent in enumerate(dict.fromkeys([*doers, *sorted(component)]))}

    def renamed(value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: renamed(inner, name) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            inner = [renamed(one, field) for one in value]
            return sorted(inner) if field == "members" else inner
        return names.get(value, value) if field in _AGENTS else value

    steps = [renamed(msgspec.to_builtins(step)) | _merges(plan, step) for step in plan.steps]
    members = sorted([sorted(renamed(msgspec.structs.asdict(member)).items(), key=str) for member in plan.members], key=str)
    return msgspec.json.encode([steps, members])


def _doers(plan: Plan, step: AnyStep) -> list[str]:
    """Return who does a step and to whom it is addressed; whom a spawn starts is told by what they do."""
    to = getattr(step, "to", ())
    return [plan.actor(agent) for agent in (step.agent_id, *([to] if isinstance(to, str) else to))]


def _merges(plan: Plan, step: AnyStep) -> dict[str, Any]:
    """Return what the strategy of a merge comes to where every part comes from one step alone."""
    if not isinstance(step, Aggregate):
        return {}
    parts = [written.part for name in step.of if isinstance(written := plan.step(name), Write)]
    return {"strategy": folds(step.strategy, len(parts))} if len({*parts}) == len(step.of) else {}


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
