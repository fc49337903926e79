"""How each kind of step is done: what its agent is asked, what runs in the sandbox, and which events come of it.

A step reads only what its causes came to, so that it can run beside others. A step's first event has the step's own id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from analysis.counterfactual.agents.protocol import Agent, Purpose, Request, Response, Seen, joined
from analysis.counterfactual.clock import Lap, Watch
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.merging import Offered, folds, gathered, latest, preferred
from analysis.counterfactual.packages import FULL, package_of
from analysis.counterfactual.plan import (
    Aggregate,
    Answer,
    AnyStep,
    Communicate,
    Delegate,
    Plan,
    Spawn,
    Stop,
    Think,
    Verify,
    Write,
)  # fmt: skip
from analysis.counterfactual.tasks.compose import ComposedTask
from analysis.model import ContextPackage, Kind

WHOLE = "whole"
#: From here on an agent that nobody checked calls its task solved.
_SURE = 0.9


class Trial(NamedTuple):
    """What luck a run has: the seed, and its number among the runs of one team on one task."""

    seed: int
    number: int = 1


class Moment(NamedTuple):
    """An event to be: its fields, when it happened, what was claimed in it, and of alternatives, which one was kept."""

    event_id: str
    kind: Kind
    lap: Lap
    fields: dict[str, Any]
    claims: tuple[tuple[str, float], ...] = ()
    kept: str | None = None


@dataclass(frozen=True)
class Done:
    """What a step came to.

    offered : the sources that it hands on, by part
    program : the whole program that it made
    answers : what its agent said, in order
    """

    step: AnyStep
    agent_id: str
    moments: tuple[Moment, ...] = ()
    offered: tuple[Offered, ...] = ()
    program: str | None = None
    rejected: tuple[str, ...] = ()
    goes_on: bool = False
    answers: tuple[Response, ...] = ()

    @property
    def last(self) -> Moment:
        """Its last event, which is the cause of what comes after."""
        return self.moments[-1]


@dataclass
class Run:
    """A run while it happens: what is given, and what the steps so far came to; None for those that did not happen."""

    plan: Plan
    task: ComposedTask
    agents: Mapping[str, Agent]
    trial: Trial
    judge: Judge
    settled: dict[str, Done | None] = field(default_factory=dict)

    @cached_property
    def package(self) -> ContextPackage:
        """All that can be handed over of the task: what one has before it who was delegated nothing."""
        return package_of(self.task, self.task.requirements, FULL)

    def causes(self, names: Iterable[str]) -> list[Done]:
        """Return the steps of these names that happened; one that did not is replaced by its own causes."""
        found: dict[str, Done] = {}
        for name in names:
            done = self.settled[name]
            for cause in [done] if done is not None else self.causes(self.plan.step(name).after):
                found[cause.step.step_id] = cause
        return list(found.values())

    def heard(self, names: Iterable[str]) -> list[Done]:
        """Return the causes, and in place of a decision to go on what it was based on, which still is known."""
        found: list[Done] = []
        for cause in self.causes(names):
            found += self.heard(cause.step.after) if cause.goes_on else [cause]
        return found

    def happened(self, names: Iterable[str]) -> list[Done]:
        """Return the steps of these names that happened."""
        return [done for name in names if (done := self.settled[name]) is not None]


@dataclass
class Doing:
    """One step while it is done."""

    run: Run
    step: AnyStep
    watch: Watch
    moments: list[Moment] = field(default_factory=list)
    answers: list[Response] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.agent_id = self.run.plan.actor(self.step.agent_id)
        self.component = next(m.component for m in self.run.plan.members if m.agent_id == self.agent_id)

    def ask(
        self, purpose: Purpose, *, part: str | None = None, seen: Sequence[Seen] = (), options: Sequence[str] = (),
        package: ContextPackage | None = None, attempt: int = 0,
    ) -> Response:  # fmt: skip
        """Ask the step's agent, unless it was asked in another run; the draws belong to the step and not to the order."""
        if len(self.answers) < len(self.step.answers):
            answer = self.step.answers[len(self.answers)]
        else:
            task, (seed, number) = self.run.task, self.run.trial
            answer = self.run.agents[self.component].act(Request(
                purpose=purpose, seed=seed, key=(task.task_id, number, self.agent_id, self.step.step_id, purpose),
                agent_id=self.agent_id, component=self.component, task=task, part=part, seen=tuple(seen),
                package=package or self.run.package, options=tuple(options), attempt=attempt,
            ))  # fmt: skip
        self.answers.append(answer)
        return answer

    def put(self, kind: Kind, suffix: str = "again", *, of: Response | None = None, lasts_s: float = 0.0, **fields: Any) -> str:
        """Add an event and return its id: what an agent answered, or what lasts as long as stated and nobody is asked for."""
        event_id = f"{self.step.step_id}.{suffix}" if self.moments else self.step.step_id
        if of is not None:
            fields = {"content": of.text or None, "error": of.error, "claims": of.claims, **fields}
            fields |= {"input_tokens": of.input_tokens, "output_tokens": of.output_tokens}
        claims, kept = fields.pop("claims", ()), fields.pop("kept", None)
        lap = self.watch.lap(lasts_s) if of is None else self.watch.lap(of.duration_s, is_answer=True)
        self.moments.append(Moment(event_id, kind, lap, fields, claims, kept))
        return event_id

    def seen(self, part: str | None = None, shares: Iterable[str] = ()) -> list[Seen]:
        """Return what reached the agent from the step's causes and from what a delegation passed on."""
        taken = next((p.takes for p in self.run.task.shape.parts if p.name == part), ())
        causes = [*self.run.heard(self.step.after), *self.run.happened(shares)]
        return [seen for cause in causes for seen in _seen_of(cause, taken)]

    def tests(self, suffix: str, what: str, n_passed: int, n_tests: int) -> None:
        """Add the call and the answer of a test run."""
        self.put("act", f"{suffix}.call", action="tool_call", name="tests", content=f"run the tests of {what}")
        lasts_s = self.run.plan.lasts_s("tests")
        content = f"{n_passed} of {n_tests} tests pass"
        self.put("act", f"{suffix}.result", lasts_s=lasts_s, action="tool_result", name="tests", content=content)

    def done(self, **came_to: Any) -> Done:
        """Return what the step came to."""
        return Done(self.step, self.agent_id, tuple(self.moments), answers=tuple(self.answers), **came_to)


def perform(run: Run, step: AnyStep, watch: Watch) -> Done:
    """Do a step and return what it came to."""
    return _HOW[type(step)](Doing(run, step, watch), step)


def _seen_of(cause: Done, taken: Sequence[str]) -> list[Seen]:
    where: dict[str, Any] = {"event_id": cause.last.event_id, "agent_id": cause.agent_id}
    text, claims = cause.last.fields.get("content") or "", cause.last.claims
    match cause.step:
        case Communicate() as step:
            return [Seen(kind="message", text=text, part=step.part, message_type=step.message_type, claims=claims, **where)]
        case Verify():
            return [Seen(kind="verdict", text=text, rejected=cause.rejected, claims=claims, **where)]
        case Write() | Aggregate() | Answer():
            upstream = [Seen(kind="upstream", part=o.part, program=o.source, **where) for o in cause.offered if o.part in taken]
            if upstream:
                return upstream
            part = cause.step.part if isinstance(cause.step, Write) else None
            program = cause.program if part is None else next((o.source for o in cause.offered), None)
            return [Seen(kind="report", text=text, part=part, program=program, claims=claims, **where)]
    return []


def _think(doing: Doing, step: Think) -> Done:
    doing.put("act", of=joined(step.answers or (doing.ask("plan"),)), action="model_call")
    return doing.done()


def _spawn(doing: Doing, step: Spawn) -> Done:
    plan, members = doing.run.plan, tuple([doing.run.plan.actor(name) for name in step.members])
    given: dict[str, dict[str, None]] = {}
    for other in plan.steps:
        if isinstance(other, Delegate):
            given.setdefault(plan.actor(other.to), {}).update(dict.fromkeys(other.subtasks))
    doing.put(
        "spawn", lasts_s=plan.lasts_s("spawn"), content=f"I start {', '.join(members)}.", targets=members,
        task_split=step.task_split or None, assignment={name: ", ".join(given[name]) for name in members if name in given},
    )  # fmt: skip
    return doing.done()


def _delegate(doing: Doing, step: Delegate) -> Done:
    plan = doing.run.plan
    parts = parts_of(plan, step)
    shared = f" What is known so far: {', '.join(step.shares)}." if step.shares else ""
    doing.put(
        "delegate", lasts_s=plan.lasts_s("delegate"), targets=(plan.actor(step.to),),
        content=f"{plan.actor(step.to)}, please write {', '.join(parts)}.{shared}",
        context_package=package_of(doing.run.task, parts, step.package, needs=_needs_of(plan, step)),
    )  # fmt: skip
    return doing.done()


def parts_of(plan: Plan, step: Delegate) -> tuple[str, ...]:
    """Return the parts that a delegation hands over."""
    return tuple(dict.fromkeys([part for s in plan.subtasks if s.subtask_id in step.subtasks for part in s.covers]))


def _needs_of(plan: Plan, step: Delegate) -> tuple[str, ...]:
    return tuple(dict.fromkeys([name for s in plan.subtasks if s.subtask_id in step.subtasks for name in s.needs]))


def _write(doing: Doing, step: Write) -> Done:
    run = doing.run
    given = run.plan.step(step.on) if step.on else None
    seen, package = doing.seen(step.part), None
    if isinstance(given, Delegate):
        seen = doing.seen(step.part, given.shares)
        package = package_of(run.task, (step.part,), given.package, needs=_needs_of(run.plan, given))
    options = ("reference", *[variant.variant_id for variant in run.task.node(step.part).function.variants])
    is_reported = given is not None and step.reports
    for attempt in range(step.n_tries if step.runs_tests else 1):
        answer = doing.ask("write", part=step.part, seen=seen, options=options, package=package, attempt=attempt)
        said: dict[str, Any] = {"content": answer.program or answer.text or None, "claims": () if is_reported else answer.claims}
        doing.put("act", f"{attempt + 1}", of=answer, action="model_call", **said)
        if not step.runs_tests or answer.program is None:
            break
        verdict = run.judge.part(run.task, step.part, answer.program)
        doing.tests(f"{attempt + 1}", step.part, verdict.n_passed, verdict.n_cases)
        if verdict.passed:
            break
        seen = [*seen, Seen(
            kind="candidate", event_id=doing.moments[-1].event_id, agent_id=doing.agent_id, part=step.part, text=verdict.failure,
            program=answer.program, n_passed=verdict.n_passed, n_tests=verdict.n_cases,
        )]  # fmt: skip
    if given is not None and step.reports:
        doing.put(
            "act", "report", lasts_s=run.plan.lasts_s("report"), action="return", targets=(run.plan.actor(given.agent_id),),
            content=answer.text or None, claims=answer.claims,
        )  # fmt: skip
    if answer.program is None:
        return doing.done()
    at, who = doing.moments[-1].event_id, doing.agent_id
    return doing.done(offered=(Offered(step.part, answer.program, at, who, step.subtask_id, answer.claims),))


def _communicate(doing: Doing, step: Communicate) -> Done:
    plan, package = doing.run.plan, None
    given = plan.step(step.agent_id[1:]) if step.agent_id.startswith("@") else None
    if isinstance(given, Delegate):  # who was handed a part tells of that, and knows no more
        package = package_of(doing.run.task, parts_of(plan, given), given.package, needs=_needs_of(plan, given))
    answer = doing.ask("message", part=step.part, seen=doing.seen(), options=(step.message_type,), package=package)
    targets = tuple([plan.actor(name) for name in step.to])
    doing.put("communicate", of=answer, targets=targets, message_type=step.message_type)
    return doing.done()


def _aggregate(doing: Doing, step: Aggregate) -> Done:
    inputs = doing.run.happened(step.of)
    is_of_all = any(isinstance(other, Stop) and step.step_id in other.of for other in doing.run.plan.steps)
    if step.strategy in ("vote", "best-by-tests"):
        groups = _chosen(doing, step, gathered([done.offered for done in inputs]))
    else:
        groups = latest([(done.last.event_id, list(done.offered)) for done in inputs])
    handed_on = {one.part: one for _, group in groups for one in group}
    program: str | None = None
    pairs = folds(step.strategy, len(groups))
    for n, places in enumerate(pairs):
        parts = [one for k in places for one in groups[k][1]]
        answer = doing.ask("aggregate", seen=[o.seen() for o in parts], options=tuple([o.part for o in parts]), attempt=n)
        is_whole = is_of_all and n == len(pairs) - 1  # an inner merge says nothing of the whole
        event_id = doing.put(
            "aggregate", f"{n + 1}", of=answer, strategy=step.strategy, merge_kind="composition",
            merge_points=tuple(dict.fromkeys([groups[k][0] for k in places])), claims=answer.claims if is_whole else (),
        )  # fmt: skip
        program = answer.program
        groups.append((event_id, [one for one in parts if one.part not in answer.rejected]))
    return doing.done(offered=tuple(handed_on.values()), program=program)


def _chosen(doing: Doing, step: Aggregate, offered: Sequence[Offered]) -> list[tuple[str, list[Offered]]]:
    """Choose one of the alternatives for each part; each choice is a merge of its own."""
    run, by_part = doing.run, dict[str, list[Offered]]()
    for one in offered:
        by_part.setdefault(one.part, []).append(one)
    scores: dict[str, int] = {}
    rivals = [one for ones in by_part.values() if len(ones) > 1 for one in ones]
    if step.strategy == "best-by-tests" and rivals:
        verdicts = [run.judge.part(run.task, one.part, one.source) for one in rivals]
        scores = {one.event_id: verdict.n_passed for one, verdict in zip(rivals, verdicts, strict=True)}
        n_tests = sum([verdict.n_cases for verdict in verdicts])
        doing.tests("tests", f"{len(rivals)} alternatives", sum(scores.values()), n_tests)
    groups = []
    for part, ones in by_part.items():
        best, event_id = preferred(ones, scores), ones[0].event_id
        if len(ones) > 1:
            event_id = doing.put(
                "aggregate", part, lasts_s=run.plan.lasts_s("choose"), strategy=step.strategy,
                merge_kind="alternatives", merge_points=tuple([one.event_id for one in ones]),
                content=f"Of {len(ones)} alternatives for {part} I keep that of {best.agent_id}.", kept=best.event_id,
            )  # fmt: skip
        groups.append((event_id, [best._replace(event_id=event_id)]))
    return groups


def _answer(doing: Doing, step: Answer) -> Done:
    offered = [one for _, group in latest([("", list(done.offered)) for done in doing.run.happened(step.of)]) for one in group]
    answer = doing.ask("answer", seen=[one.seen() for one in offered])
    doing.put("act", of=answer, action="model_call")
    return doing.done(offered=tuple(offered), program=answer.program)


def _verify(doing: Doing, step: Verify) -> Done:
    run, to = doing.run, (doing.run.plan.actor(step.to),)
    target = next(iter(run.causes([step.of])))
    said = target.last.fields.get("content") or ""
    if step.how == "echo":
        claims = tuple([("checks_pass", p) for _, p in target.last.claims[:1]])
        lasts_s = run.plan.lasts_s("report")
        doing.put("communicate", lasts_s=lasts_s, targets=to, message_type="verdict", content=said or None, claims=claims)
        return doing.done()
    seen = [one.seen() for one in target.offered]
    whole = Seen(kind="candidate", event_id=target.last.event_id, agent_id=target.agent_id, program=target.program, text=said,
                 claims=target.last.claims)  # fmt: skip
    if step.how == "tests" and target.program is not None:
        verdict = run.judge.whole(run.task, target.program)
        doing.tests("tests", "the whole", verdict.n_passed, verdict.n_cases)
        parts = [run.judge.part(run.task, one.part, one.source) for one in target.offered]
        seen = [one.seen(v.n_passed, v.n_cases) for one, v in zip(target.offered, parts, strict=True)]
        whole = msgspec.structs.replace(whole, n_passed=verdict.n_passed, n_tests=verdict.n_cases)
    answer = doing.ask("verify", seen=[whole, *seen], options=(*[one.part for one in target.offered], WHOLE))
    if step.how == "reading":
        doing.put("act", of=answer, action="model_call", claims=())
        lasts_s = run.plan.lasts_s("report")
        doing.put("communicate", "verdict", lasts_s=lasts_s, targets=to, message_type="verdict", content=answer.text or None,
                  claims=answer.claims)  # fmt: skip
    else:
        doing.put("communicate", "verdict", of=answer, targets=to, message_type="verdict")
    return doing.done(rejected=answer.rejected)


def _stop(doing: Doing, step: Stop) -> Done:
    seen = doing.seen()
    answer = doing.ask("stop", seen=seen, options=("stop", "go on") if step.asked else ("stop",))
    if step.asked and answer.choice == "go on":
        doing.put("act", of=answer, action="model_call")
        return doing.done(goes_on=True)
    doing.put("stop", of=answer, condition=step.condition, final_state=_final_state(answer, seen))
    results = doing.run.happened(step.of)
    return doing.done(program=results[-1].program if results else None)


def _final_state(answer: Response, seen: Sequence[Seen]) -> str:
    """What the agent takes the run for: as the last verdict says, else as sure as it is."""
    verdicts = [one for one in seen if one.kind == "verdict"]
    if verdicts:
        return "failed" if verdicts[-1].rejected else "solved"
    sure = dict(answer.claims).get("solved", 0.5)
    return "solved" if sure >= _SURE else "failed" if sure <= 1 - _SURE else "unchecked"


_HOW: dict[type, Callable[[Doing, Any], Done]] = {
    Think: _think, Spawn: _spawn, Delegate: _delegate, Write: _write, Communicate: _communicate, Aggregate: _aggregate,
    Answer: _answer, Verify: _verify, Stop: _stop,
}  # fmt: skip
