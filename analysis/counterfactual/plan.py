"""Orchestration plans as data: who does what after what, so that one decision can be changed and the rest stays.

Decides which steps there are and what makes a plan sound. A step's id is its lineage: draws belong to it, so it keeps its
name when others come or go. An agent written `@step` is whoever does that step; so a changed delegation takes the work along.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import msgspec

from analysis.counterfactual.agents.protocol import Response
from analysis.errors import TeamError

Piece = Literal["nl", "scenarios", "signatures", "domain_model"]
Strategy = Literal["parallel", "sequential", "hierarchical", "vote", "best-by-tests"]
Checking = Literal["tests", "reading", "echo"]

#: What steps last on a virtual clock that nobody is asked for, in seconds; a plan may say otherwise.
DURATIONS_S = {"spawn": 0.4, "delegate": 0.35, "tests": 1.5, "report": 0.2, "choose": 0.5}


class Member(msgspec.Struct, frozen=True):
    """An agent of the team, its component, and who spawns it (nobody, of the one that has the task)."""

    agent_id: str
    component: str
    parent_id: str | None = None


class Split(msgspec.Struct, frozen=True):
    """A subtask: the parts it covers, and those whose results it is said to need."""

    subtask_id: str
    covers: tuple[str, ...]
    needs: tuple[str, ...] = ()


class When(msgspec.Struct, frozen=True):
    """Holds if that verification ran and rejected the part; without a part, if it rejected anything."""

    step_id: str
    part: str | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What all steps have.

    agent_id : who does it
    after : the steps that cause it; it begins when all have ended or will not happen
    when : it happens only if this holds
    delay_s : how much later than it could it begins
    answers : what the agent answered in another run, taken in order instead of asking it
    """

    step_id: str
    agent_id: str
    after: tuple[str, ...] = ()
    when: When | None = None
    delay_s: float = 0.0
    answers: tuple[Response, ...] = ()


class Think(Step, frozen=True, tag="think"):
    """Own work on the task as a whole: how to go about it."""


class Spawn(Step, frozen=True, tag="spawn"):
    """Start agents, all at once."""

    members: tuple[str, ...]
    task_split: str = ""


class Delegate(Step, frozen=True, tag="delegate"):
    """Hand subtasks to an agent with a context package; `shares` are steps whose results go with it."""

    to: str
    subtasks: tuple[str, ...]
    package: tuple[Piece, ...] = ()
    shares: tuple[str, ...] = ()


class Write(Step, frozen=True, tag="write"):
    """Write a part: as delegated in the step `on`, which is then reported to, or as the agent's own.

    n_tries : with `runs_tests`, how often at most until its tests pass
    """

    part: str
    subtask_id: str | None = None
    on: str | None = None
    reports: bool = True
    runs_tests: bool = False
    n_tries: int = 1


class Communicate(Step, frozen=True, tag="communicate"):
    """Send one message, about a part where one is named."""

    to: tuple[str, ...]
    message_type: str
    part: str | None = None


class Aggregate(Step, frozen=True, tag="aggregate"):
    """Make one program of the results of the steps `of`."""

    strategy: Strategy
    of: tuple[str, ...]


class Answer(Step, frozen=True, tag="answer"):
    """Put own parts together: what a single agent does instead of merging."""

    of: tuple[str, ...]


class Verify(Step, frozen=True, tag="verify"):
    """Judge the result of the step `of`, by its tests, by reading, or by repeating what was said; tell the verdict to `to`."""

    of: str
    how: Checking
    to: str


class Stop(Step, frozen=True, tag="stop"):
    """End the run with the latest result of the steps `of`; `asked`, the agent may decide to go on."""

    of: tuple[str, ...]
    condition: str = "all parts are in"
    asked: bool = False


AnyStep = Think | Spawn | Delegate | Write | Communicate | Aggregate | Answer | Verify | Stop


class Plan(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A team, a split of the task, and the steps; their order tells those apart that could begin at once."""

    team: str
    task_id: str
    members: tuple[Member, ...]
    subtasks: tuple[Split, ...]
    steps: tuple[AnyStep, ...]
    durations_s: dict[str, float] = {}

    @cached_property
    def _by_id(self) -> dict[str, AnyStep]:
        return {step.step_id: step for step in self.steps}

    def step(self, step_id: str) -> AnyStep:
        """Return a step; raises TeamError where there is none of this id."""
        if step_id not in self._by_id:
            raise TeamError(f"plan of {self.team}", "no such step", got=step_id)
        return self._by_id[step_id]

    def actor(self, agent: str) -> str:
        """Return the agent that an entry names: itself, or for `@step` whoever does that step, or gets that delegation."""
        for _ in self.steps:
            if not agent.startswith("@"):
                break
            step = self.step(agent[1:])
            agent = step.to if isinstance(step, Delegate) else step.agent_id
        return agent

    def lasts_s(self, what: str) -> float:
        """Return how long a step lasts that nobody is asked for."""
        return self.durations_s.get(what, DURATIONS_S[what])


def named_steps(step: AnyStep) -> tuple[str, ...]:
    """Return the ids of the steps that this one needs settled: its causes, its condition, and whose results it takes."""
    more: tuple[str, ...] = ()
    match step:
        case Aggregate() | Answer() | Stop():
            more = step.of
        case Verify():
            more = (step.of,)
        case Delegate():
            more = step.shares
        case Write():
            more = (step.on,) if step.on else ()
    return tuple(dict.fromkeys([*step.after, *([step.when.step_id] if step.when else []), *more]))


def with_step(plan: Plan, step: AnyStep) -> Plan:
    """Return the plan with this step in place of the one of the same id."""
    plan.step(step.step_id)
    return msgspec.structs.replace(plan, steps=tuple([step if s.step_id == step.step_id else s for s in plan.steps]))


def with_inserted(plan: Plan, step: AnyStep, *, before: tuple[str, ...]) -> Plan:
    """Return the plan with a new step that also causes the steps `before`; it stands before the first of them."""
    place = min([n for n, s in enumerate(plan.steps) if s.step_id in before], default=len(plan.steps))
    steps = [msgspec.structs.replace(s, after=(*s.after, step.step_id)) if s.step_id in before else s for s in plan.steps]
    return msgspec.structs.replace(plan, steps=(*steps[:place], step, *steps[place:]))


def without_step(plan: Plan, step_id: str) -> Plan:
    """Return the plan without a step; what nothing else causes is caused by its causes."""
    gone = plan.step(step_id)
    steps = []
    for step in plan.steps:
        if step.step_id == step_id:
            continue
        after = tuple([name for name in step.after if name != step_id])
        steps.append(msgspec.structs.replace(step, after=after or (gone.after if step.after else ())))
    return msgspec.structs.replace(plan, steps=tuple(steps))


def check(plan: Plan) -> Plan:
    """Return the plan if it can be executed; raises TeamError, which names the step and what is wrong with it."""
    for place, problem, got in _faults(plan):
        raise TeamError(f"plan of {plan.team}" + (f": {place}" if place else ""), problem, got=got)
    return plan


def _faults(plan: Plan) -> Iterator[tuple[str, str, str]]:
    ids = Counter([step.step_id for step in plan.steps])
    members = {member.agent_id for member in plan.members}
    subtasks = {split.subtask_id for split in plan.subtasks}
    for step in plan.steps:
        where = step.step_id
        if ids[where] > 1:
            yield where, "a step of this id stands there twice", ""
        for name in (*named_steps(step), *[agent[1:] for agent in _agents(step) if agent.startswith("@")]):
            if name not in ids:
                yield where, "it names a step that is not there", name
        for agent in _agents(step):
            if (actor := plan.actor(agent)) not in members:
                yield where, "it names an agent that is not in the team", actor
        if unknown := sorted(_subtasks(step) - subtasks):
            yield where, "it names a subtask that is not there", unknown[0]
        if step.delay_s < 0:
            yield where, "it cannot begin before its causes", f"delay_s = {step.delay_s}"
    if circle := _in_circle(plan):
        yield circle, "it waits for itself, through the steps it comes after", ""


def _subtasks(step: AnyStep) -> set[str]:
    match step:
        case Delegate():
            return set(step.subtasks)
        case Write(subtask_id=str(name)):
            return {name}
    return set()


def _agents(step: AnyStep) -> tuple[str, ...]:
    match step:
        case Spawn():
            return (step.agent_id, *step.members)
        case Communicate():
            return (step.agent_id, *step.to)
        case Delegate() | Verify():
            return (step.agent_id, step.to)
    return (step.agent_id,)


def _in_circle(plan: Plan) -> str | None:
    """Return a step on or behind a circle of steps that wait for each other."""
    place = {step.step_id: n for n, step in enumerate(plan.steps)}
    needs = [{place[name] for name in named_steps(step)} for step in plan.steps]
    ready = [n for n, needed in enumerate(needs) if not needed]
    settled: set[int] = set()
    while ready:
        n = heapq.heappop(ready)
        settled.add(n)
        for m, needed in enumerate(needs):
            if n in needed and needed <= settled:
                heapq.heappush(ready, m)
    return next((step.step_id for n, step in enumerate(plan.steps) if n not in settled), None)
