"""How a run that has ended becomes a trace: its events in the order in which they began, what was handed in and how it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal

import msgspec

from analysis.counterfactual.merging import Offered
from analysis.counterfactual.performing import Done, Moment, Run
from analysis.counterfactual.plan import Aggregate, Answer, Stop, Verify, Write
from analysis.model import Agent, Candidate, Claim, Event, Groups, Outcome, Relation, Source, Subtask, Task, Trace

Level = Literal["component", "pre-aggregation", "final"]


def trace_of(run: Run, done: Sequence[Done], *, world: Literal["simulated", "live"]) -> Trace:
    """Return the trace of a run; `done` are the steps that happened, in the order of the plan."""
    plan, task, (seed, number) = run.plan, run.task, run.trial
    events = _events(run, done)
    whole = _whole(run, done)
    claims = tuple(_claims(run, done, {event.event_id: event for event in events}))
    return Trace(
        trace_id=f"counterpoint:{task.task_id}-{plan.team}-s{seed}-{number}",
        world=world,
        source=Source(format="counterpoint"),
        task=Task(task_id=task.task_id, text=task.text, domain="software", requirements=task.requirements),
        agents=tuple([Agent(agent_id=m.agent_id, component=m.component, parent_id=m.parent_id) for m in plan.members]),
        events=events,
        subtasks=tuple(_subtasks(run, done)),
        candidates=tuple(_candidates(run, done)),
        claims=claims,
        relations=_relations(run, {claim.proposition for claim in claims}),
        outcome=whole,
        groups=Groups(task=task.task_id, condition=plan.team, trial=str(number)),
        clock="relative",
        extra={"run": {"seed": seed, "trial": number, "plan": plain(plan)}},
    )


def plain(record: msgspec.Struct) -> dict[str, Any]:
    """Return a record as JSON values, without the fields that have their defaults."""
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(_without_defaults(record)))
    return values


def _without_defaults(value: object) -> object:
    # msgspec's own `omit_defaults` goes by identity: a number that was read or sent to another process would stay.
    match value:
        case msgspec.Struct(__struct_config__=config):
            tag = {} if config.tag is None else {config.tag_field: config.tag}
            held = {name: (getattr(value, name), default) for name, default in _defaults(type(value))}
            return tag | {name: _without_defaults(own) for name, (own, default) in held.items() if own != default}
        case dict():
            return {name: _without_defaults(one) for name, one in value.items()}
        case list() | tuple():
            return [_without_defaults(one) for one in value]
    return value


@cache
def _defaults(record: type[msgspec.Struct]) -> tuple[tuple[str, object], ...]:
    fields = msgspec.structs.fields(record)
    return tuple([(f.name, f.default if f.default_factory is msgspec.NODEFAULT else f.default_factory()) for f in fields])


def _events(run: Run, done: Sequence[Done]) -> tuple[Event, ...]:
    rows: list[tuple[float, Moment, str, tuple[str, ...]]] = []
    for one in done:
        parents = tuple([cause.last.event_id for cause in run.causes(one.step.after) if cause.moments])
        for moment in one.moments:
            rows.append((moment.lap.start_s, moment, one.agent_id, parents))
            parents = (moment.event_id,)
    rows.sort(key=lambda row: row[0])
    turns: dict[str, tuple[int, str]] = {}
    events = []
    for order, (_, moment, agent_id, parents) in enumerate(rows):
        came = [turns[name] for name in (*parents, *moment.fields.get("merge_points", ())) if name in turns]
        turn = max([before + (other != agent_id) for before, other in came], default=0)
        turns[moment.event_id] = (turn, agent_id)
        events.append(Event(
            event_id=moment.event_id, kind=moment.kind, agent_id=agent_id, parents=parents, order=order, turn=turn,
            t_start_s=moment.lap.start_s, t_end_s=moment.lap.end_s, **moment.fields,
        ))  # fmt: skip
    return tuple(events)


def handed_in(done: Sequence[Done]) -> Iterator[Offered]:
    """Yield what was written and handed in, and what was chosen among alternatives, in the order of the plan."""
    for one in done:
        at = {moment.event_id for moment in one.moments}
        if isinstance(one.step, Write | Aggregate):
            yield from (offered for offered in one.offered if offered.event_id in at)


def _candidates(run: Run, done: Sequence[Done]) -> Iterator[Candidate]:
    for n, offered in enumerate(handed_in(done), 1):
        verdict = run.judge.part(run.task, offered.part, offered.source)
        yield Candidate(
            candidate_id=f"c{n}", event_id=offered.event_id, agent_id=offered.agent_id, program=offered.source,
            subtask_id=offered.subtask_id or offered.part, n_passed=verdict.n_passed, n_tests=verdict.n_cases,
        )  # fmt: skip
    for one in done:
        if isinstance(one.step, Aggregate | Answer) and one.program is not None and one.moments:
            verdict = run.judge.whole(run.task, one.program)
            yield Candidate(
                candidate_id=f"whole:{one.step.step_id}", event_id=one.last.event_id, program=one.program,
                n_passed=verdict.n_passed, n_tests=verdict.n_cases,
            )  # fmt: skip


def _subtasks(run: Run, done: Sequence[Done]) -> Iterator[Subtask]:
    """Yield the split; of each subtask the last sources count."""
    owner: dict[str, str] = {}
    latest: dict[str, dict[str, str]] = {}
    for one in done:
        if isinstance(one.step, Write) and one.step.subtask_id is not None:
            owner[one.step.subtask_id] = one.agent_id
            latest.setdefault(one.step.subtask_id, {}).update({o.part: o.source for o in one.offered})
    for split in run.plan.subtasks:
        passed = _passes(run, split.covers, split.needs, latest.get(split.subtask_id, {}))
        yield Subtask(
            subtask_id=split.subtask_id, agent_id=owner.get(split.subtask_id), covers=split.covers, needs=split.needs,
            text="; ".join([run.task.node(part).function.statement for part in split.covers]),
            passes_alone=passed[0], passes_upstream=passed[1],
        )  # fmt: skip


def _passes(
    run: Run, covers: Sequence[str], needs: Sequence[str], sources: dict[str, str]
) -> tuple[bool, bool] | tuple[None, None]:
    """Whether the sources pass alone, and with their true inputs; a part that nobody wrote is not known to do either."""
    if set(covers) - set(sources):
        return None, None
    upstream = all(run.judge.part(run.task, part, sources[part]).passed for part in covers)
    takes = {name for place in run.task.shape.parts if place.name in covers for name in place.takes}
    if not upstream or takes <= {*covers, *needs}:
        return upstream, upstream
    return all(run.judge.alone(run.task, part, sources, needs).passed for part in covers), upstream


def _whole(run: Run, done: Sequence[Done]) -> Outcome:
    stops = [one for one in done if isinstance(one.step, Stop) and not one.goes_on]
    results = stops[:1] or [one for one in done if isinstance(one.step, Aggregate | Answer)][-1:]
    program = results[0].program if results else None
    n_tests = len(run.task.nodes[0].cases)
    if program is None:
        return Outcome(passed=False, score=0.0, score_scale=(0.0, 1.0), n_tests_passed=0, n_tests=n_tests, source="no result")
    verdict = run.judge.whole(run.task, program)
    return Outcome(
        passed=verdict.passed, score=round(verdict.n_passed / n_tests, 4), score_scale=(0.0, 1.0), n_tests=n_tests,
        n_tests_passed=verdict.n_passed, source="sandbox, unsafe" if verdict.is_unsafe else "sandbox",
    )  # fmt: skip


def _claims(run: Run, done: Sequence[Done], events: dict[str, Event]) -> Iterator[Claim]:
    component = {member.agent_id: member.component for member in run.plan.members}
    unkept = _unkept(done)
    said = [(moment, one) for one in done if not _hands_in_at(one, unkept) for moment in one.moments if moment.claims]
    rows: list[dict[str, Any]] = []
    for moment, one in sorted(said, key=lambda pair: events[pair[0].event_id].order):
        level: Level = "final" if isinstance(one.step, Stop) else "component"
        if isinstance(one.step, Aggregate):
            level = "pre-aggregation"
        turn = events[moment.event_id].turn
        where = {"component": component[one.agent_id], "event_id": moment.event_id, "turn": turn, "level": level}
        rows += [{**where, "proposition": name, "p": p} for name, p in moment.claims]
    yield from (Claim(claim_id=f"q{n}", **row) for n, row in enumerate(rows, 1))


def _unkept(done: Sequence[Done]) -> set[str]:
    """Return the events that handed in an alternative which the last choice did not keep: `p1_ok` is about the kept one."""
    found: set[str] = set()
    for moment in [moment for one in done for moment in one.moments if moment.kept is not None]:
        found = (found | set(moment.fields["merge_points"])) - {moment.kept}
    return found


def _hands_in_at(one: Done, events: set[str]) -> bool:
    return isinstance(one.step, Write) and any(offered.event_id in events for offered in one.offered)


def _relations(run: Run, claimed: set[str]) -> tuple[Relation, ...]:
    """Return what ties the propositions: parts, whole, checks and plan; none where nothing was claimed."""
    if not claimed:
        return ()
    formulas = {"parts": f"iff(parts_ok, {' & '.join([f'{part}_ok' for part in run.task.requirements])})"}
    if any(isinstance(step, Verify) for step in run.plan.steps):
        formulas["checks"] = "iff(solved, checks_pass)"
    formulas["plan"] = "implies(solved, plan_ok)"
    return tuple([Relation(relation_id=name, formula=formula) for name, formula in formulas.items()])
