"""Execute an orchestration plan over agents and record everything as a trace.

Decides which step is ready, which will not happen, and where a stop cuts the run. Every draw belongs to a step and never to
the order of execution: a changed step changes itself and what comes after it, and an unchanged plan gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from analysis.counterfactual.agents.protocol import Agent, Response
from analysis.counterfactual.clock import Clock, Lap, Offer, VirtualClock, Watch
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.performing import Done, Run, Trial, perform
from analysis.counterfactual.plan import AnyStep, Plan, Stop, check, named_steps
from analysis.counterfactual.record import trace_of
from analysis.counterfactual.tasks.compose import ComposedTask
from analysis.errors import TeamError
from analysis.model import Trace

__all__ = ["Trial", "execute", "with_answers"]


def execute(
    plan: Plan, task: ComposedTask, agents: Mapping[str, Agent], *, trial: Trial, judge: Judge, clock: Clock | None = None
) -> Trace:
    """Execute a plan and return the trace, whose `extra["run"]` holds plan, seed and trial.

    Parameters
    ----------
    agents : by component
    trial : the seed and the number of the run; the same give the same run, on a virtual clock byte for byte
    judge : runs programs in the sandbox, each once
    clock : virtual by default; with a real one agents work side by side, the world is `live`, and `extra["run"]` also holds
        when it began (`began_s`, since 1970) and what agents said (`answers`), so that a replay can begin where it differs

    An answer with an error leaves a hole: its event carries the error, what needed it goes on without, and a run without a
    result has not passed.

    Raises TeamError where the plan cannot be executed, SandboxError where programs cannot be run.
    """
    check(plan)
    if plan.task_id != task.task_id:
        raise TeamError(f"plan of {plan.team}", "the plan is for another task", got=plan.task_id, expected=task.task_id)
    if missing := sorted({member.component for member in plan.members} - set(agents)):
        raise TeamError(f"plan of {plan.team}", "a component has nobody who plays it", got=missing[0])
    run, used = Run(plan, task, agents, trial, judge), clock or VirtualClock()
    try:
        _play(run, used)
    finally:
        used.close()
    done = [found for step in plan.steps if (found := run.settled.get(step.step_id)) is not None and found.moments]
    trace = trace_of(run, done, world="simulated" if used.began_s is None else "live")
    if used.began_s is None:
        return trace
    answers = {one.step.step_id: msgspec.json.decode(msgspec.json.encode(one.answers)) for one in done if one.answers}
    return msgspec.structs.replace(trace, extra={"run": {**trace.extra["run"], "began_s": used.began_s, "answers": answers}})


def with_answers(plan: Plan, trace: Trace, *, but: frozenset[str] | set[str]) -> Plan:
    """Return the plan with what agents answered in a live run, so that only the steps `but` are asked again.

    Every step downstream of a change belongs to `but`; of a simulated run nothing was kept, since asking again gives the same.
    """
    known = trace.extra["run"].get("answers", {})
    steps = [
        msgspec.structs.replace(step, answers=msgspec.convert(known[step.step_id], tuple[Response, ...]))
        if step.step_id in known and step.step_id not in but
        else step
        for step in plan.steps
    ]
    return msgspec.structs.replace(plan, steps=tuple(steps))


def _play(run: Run, clock: Clock) -> None:
    """Offer steps as they become ready, until nothing is left or a stop ends the run."""
    waiting = {place: set(named_steps(step)) for place, step in enumerate(run.plan.steps)}
    end: Lap | None = None
    fresh: list[str] = []
    while True:
        _settle(run, waiting, fresh, clock)
        ran = clock.next(None if end is None else end.end_s)
        if ran is None:
            break
        done = ran[1]
        run.settled[done.step.step_id] = done
        fresh = [done.step.step_id]
        if isinstance(done.step, Stop) and not done.goes_on and end is None:
            end = done.last.lap
    if end is not None:
        _cut(run, end)


def _settle(run: Run, waiting: dict[int, set[str]], fresh: list[str], clock: Clock) -> None:
    """Offer what is ready now that the `fresh` steps are settled, and pass over what will not happen, which settles it."""
    while True:
        for names in waiting.values():
            names.difference_update(fresh)
        fresh = []
        for place in [place for place, names in waiting.items() if not names]:
            step = run.plan.steps[place]
            del waiting[place]
            if _happens(run, step):
                clock.offer(_offer(run, place, step))
            else:
                run.settled[step.step_id] = None
                fresh.append(step.step_id)
        if not fresh:
            return


def _happens(run: Run, step: AnyStep) -> bool:
    if step.when is None:
        return True
    verdict = run.settled[step.when.step_id]
    if verdict is None:
        return False
    return bool(verdict.rejected) if step.when.part is None else step.when.part in verdict.rejected


def _offer(run: Run, place: int, step: AnyStep) -> Offer:
    ends = [cause.last.lap.end_s for cause in run.causes(named_steps(step))]

    def do(watch: Watch) -> Done:
        return perform(run, step, watch)

    return Offer(place, run.plan.actor(step.agent_id), max(ends, default=0.0) + step.delay_s, do)


def _cut(run: Run, end: Lap) -> None:
    """Take away what would have begun after the run was over: an agent at work still ends its piece, and hands in nothing."""
    for name, done in run.settled.items():
        if done is None or isinstance(done.step, Stop):
            continue
        kept = tuple([m for m in done.moments if m.lap.start_s < end.end_s or m.lap.end_s <= end.start_s])
        if len(kept) < len(done.moments):
            run.settled[name] = Done(done.step, done.agent_id, kept, answers=done.answers)
