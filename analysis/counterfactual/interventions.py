"""What can be changed in the plan of a run: when, how results are merged, what is told, who does it, when the run ends.

Decides which changes make sense at a step, what parameters they take and which invariant each keeps (`differing` checks it). An
inserted step is named as a planner would have named it, so that it draws as it would have there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, get_args

import msgspec
import numpy as np
from msgspec.structs import replace

from analysis.counterfactual.plan import (
    Aggregate,
    Answer,
    AnyStep,
    Communicate,
    Delegate,
    Plan,
    Stop,
    Strategy,
    Verify,
    When,
    Write,
    named_steps,
    with_inserted,
    with_step,
    without_step,
)  # fmt: skip
from analysis.counterfactual.recorded import Intervention
from analysis.errors import ReplayError
from analysis.model import Trace

#: The parameters of each operator; those that are not named take none.
_TAKES = {
    "delay": ("x", "until"), "advance": ("without",), "aggregate": ("strategy",), "insert-message": ("to", "message_type"),
    "assign": ("to",),
}  # fmt: skip
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
_DELAY_S = 5.0


class Operator(NamedTuple):
    """What an operator is about, what it keeps, and what has to be run again to know what it did."""

    family: str
    keeps: str
    cost: str


OPERATORS = {
    "delay": Operator("timing", "who does the step and what is asked; it begins later, or with one result more", "schedule"),
    "advance": Operator("timing", "who does the step and what is asked; it begins earlier, or with one result less", "schedule"),
    "aggregate": Operator("aggregation", "all results that are merged; how they are put together changes", "merge"),
    "insert-message": Operator("communication", "all other steps; the receiver waits for one message more", "downstream"),
    "remove-message": Operator("communication", "all other steps; what waited for it waits for its causes", "downstream"),
    "assign": Operator("assignment", "split, package and all steps; another of the same component does it", "one subtask"),
    "stop-earlier": Operator("stop", "all that began before; the latest result of then is returned", "truncation"),
    "stop-later": Operator("stop", "all that began before; the work goes on instead of ending", "more work"),
}  # fmt: skip


def plan_of(trace: Trace) -> Plan:
    """Return the plan that a trace was made by; raises ReplayError where it does not hold one."""
    said = trace.extra.get("run")
    if not isinstance(said, dict) or "plan" not in said:
        hint = "a recorded run can be replayed on its schedule and re-scored, no more"
        raise ReplayError(trace.trace_id, "the trace does not say by which plan it was made", hint=hint)
    try:
        return msgspec.convert(said["plan"], Plan)
    except msgspec.ValidationError as error:
        raise ReplayError(f"{trace.trace_id}: extra.run.plan", "a field does not have its shape", got=str(error)) from None


def step_of(plan: Plan, event_id: str) -> AnyStep | None:
    """Return the step that an event belongs to; a step's further events have its id and a suffix."""
    ids = {step.step_id: step for step in plan.steps}
    name = event_id
    while name not in ids and "." in name:
        name = name.rpartition(".")[0]
    return ids.get(name)


def edited(plan: Plan, one: Intervention) -> Plan:
    """Return the plan with one decision changed; raises ReplayError, which says why it cannot be changed so."""
    if one.operator not in OPERATORS:
        raise ReplayError("operator", "no such operator on a plan", got=one.operator, expected=", ".join(OPERATORS))
    if all(step.step_id != one.event_id for step in plan.steps):
        _refuse(plan, one, "the plan has no such step", hint="`counterpoint show TRACE_ID` lists the events")
    if unknown := sorted(one.parameters.keys() - set(_TAKES.get(one.operator, ()))):
        known = ", ".join(_TAKES.get(one.operator, ())) or "none"
        _refuse(plan, one, "no such parameter", got=unknown[0], hint=f"it takes {known}")
    return _EDITS[one.operator](plan, one, plan.step(one.event_id))


def refusal(plan: Plan, one: Intervention) -> str | None:
    """Return why a decision cannot be changed so, None where it can."""
    try:
        edited(plan, one)
    except ReplayError as error:
        return str(error)
    return None


def interventions(
    plan: Plan, *, operators: Sequence[str] = tuple(OPERATORS), k: int | None = None, rng: np.random.Generator
) -> list[Intervention]:
    """Return changes that can be made to a plan: all, or k of them, taken in turn from the families in random order.

    `operators` may name operators or whole families (timing, aggregation, communication, assignment, stop).
    """
    if unknown := [o for o in operators if o not in OPERATORS and o not in {about.family for about in OPERATORS.values()}]:
        known = dict.fromkeys([*[about.family for about in OPERATORS.values()], *OPERATORS])
        raise ReplayError("operator", "no such operator", got=unknown[0], expected=", ".join(known))
    wanted = [name for name, about in OPERATORS.items() if name in operators or about.family in operators]
    found = [one for one in _candidates(plan) if one.operator in wanted and refusal(plan, one) is None]
    if k is None:
        return found
    families: dict[str, list[Intervention]] = {}
    for n in np.argsort(rng.random(len(found)), kind="stable"):
        families.setdefault(OPERATORS[found[n].operator].family, []).append(found[n])
    turns = sorted([(n, place, one) for place, ones in enumerate(families.values()) for n, one in enumerate(ones)],
                   key=lambda turn: turn[:2])  # fmt: skip
    chosen = {(one.operator, one.event_id, one.key) for _, _, one in turns[:k]}
    return [one for one in found if (one.operator, one.event_id, one.key) in chosen]


def _refuse(plan: Plan, one: Intervention, why: str, got: str = "", hint: str = "") -> NoReturn:
    raise ReplayError(f"step {one.event_id} of the plan of {plan.team}", f"{one.operator}: {why}", got=got, hint=hint)


def _kind(plan: Plan, one: Intervention, step: AnyStep, kinds: tuple[type[Any], ...], what: str) -> None:
    if not isinstance(step, kinds):
        _refuse(plan, one, what, got=type(step).__name__.lower())


def _later(plan: Plan, one: Intervention, step: AnyStep) -> Plan:
    if (until := one.parameters.get("until")) is not None:
        _kind(plan, one, step, (Aggregate,), "only a merge can wait for one result more")
        assert isinstance(step, Aggregate)
        if until in step.of or not isinstance(plan_step := _known(plan, one, until), Write):
            _refuse(plan, one, "no result that the merge does without", got=str(until))
        if step.step_id in _upstream(plan, until):
            _refuse(plan, one, "the result itself waits for the merge", got=plan_step.step_id)
        return with_step(plan, replace(step, after=(*step.after, until), of=(*step.of, until)))
    x = one.parameters.get("x", _DELAY_S)
    if not isinstance(x, int | float) or not 0 <= x < float("inf"):
        _refuse(plan, one, "the delay is no number of seconds from 0 up", got=str(x))
    return with_step(plan, replace(step, delay_s=step.delay_s + x))


def _earlier(plan: Plan, one: Intervention, step: AnyStep) -> Plan:
    without = one.parameters.get("without")
    if without is None:
        if step.delay_s == 0:
            _refuse(plan, one, "the step begins as soon as its causes have ended")
        return with_step(plan, replace(step, delay_s=0.0))
    _kind(plan, one, step, (Aggregate, Write), "only a merge or a piece of work can begin before a result is in")
    if without not in step.after:
        _refuse(plan, one, "it does not wait for that", got=str(without))
    rest = tuple([name for name in step.after if name != without])
    if isinstance(step, Aggregate):
        of = tuple([name for name in step.of if name != without])
        if not of or of == step.of or not rest:
            _refuse(plan, one, "nothing would be left to merge", got=str(without))
        return with_step(plan, replace(step, after=rest, of=of))
    if not isinstance(_known(plan, one, without), Write | Aggregate):
        _refuse(plan, one, "it is no result", got=str(without))
    return with_step(plan, replace(step, after=rest))


def _merged_otherwise(plan: Plan, one: Intervention, step: AnyStep) -> Plan:
    _kind(plan, one, step, (Aggregate,), "the step merges nothing")
    assert isinstance(step, Aggregate)
    strategy = one.parameters.get("strategy")
    if strategy not in STRATEGIES:
        _refuse(plan, one, f"the strategy is none of {', '.join(STRATEGIES)}", got=str(strategy))
    if strategy == step.strategy:
        _refuse(plan, one, "it is merged so as it is", got=str(strategy))
    return with_step(plan, replace(step, strategy=strategy))


def _told(plan: Plan, one: Intervention, step: AnyStep) -> Plan:
    """Let whoever a delegation goes to tell the writer of another step its interface, before that begins."""
    _kind(plan, one, step, (Delegate,), "a message is sent after a delegation, by whom it goes to")
    assert isinstance(step, Delegate)
    to = _known(plan, one, one.parameters.get("to"))
    _kind(plan, one, to, (Write,), "a message goes to whoever writes a part")
    sender, receiver = plan.actor(step.to), plan.actor(to.agent_id)
    name = f"tell:{step.step_id.partition(':')[2]}:{to.step_id.partition(':')[2]}"
    if sender == receiver:
        _refuse(plan, one, "an agent need not tell itself", got=sender)
    if any(other.step_id == name for other in plan.steps):
        _refuse(plan, one, "it is told as it is", got=name)
    if to.step_id in _upstream(plan, step.step_id):
        _refuse(plan, one, "the receiver is done before the message could be sent", got=to.step_id)
    part = next((part for split in plan.subtasks if split.subtask_id in step.subtasks for part in split.covers), None)
    said = Communicate(
        step_id=name, agent_id=f"@{step.step_id}", after=(step.step_id,), to=(to.agent_id,), part=part,
        message_type=one.parameters.get("message_type", "interface"),
    )  # fmt: skip
    return with_inserted(plan, said, before=(to.step_id,))


def _untold(plan: Plan, one: Intervention, step: AnyStep) -> Plan:
    _kind(plan, one, step, (Communicate,), "the step sends no message")
    steps = [
        replace(other, after=tuple(dict.fromkeys([*[n for n in other.after if n != step.step_id], *step.after])))
        if step.step_id in other.after else other
        for other in plan.steps
    ]  # fmt: skip
    return without_step(replace(plan, steps=tuple(steps)), step.step_id)


def _assigned(plan: Plan, one: Intervention, step: AnyStep) -> Plan:
    _kind(plan, one, step, (Delegate,), "the step assigns nothing")
    assert isinstance(step, Delegate)
    component = {member.agent_id: member.component for member in plan.members}
    now, to = plan.actor(step.to), one.parameters.get("to")
    if to not in component:
        _refuse(plan, one, "no such agent is in the team", got=str(to))
    if to == now:
        _refuse(plan, one, "it is assigned so as it is", got=now)
    if component[to] != component[now]:
        _refuse(plan, one, f"another component would do it than {component[now]}", got=component[to])
    return with_step(plan, replace(step, to=to))


def _ended(plan: Plan, one: Intervention, step: AnyStep) -> Plan:
    """Let the last stop come right after a step, and take away what would have come after that."""
    stop = _last_stop(plan, one)
    before = _upstream(plan, step.step_id)
    of = tuple([name for name in stop.of if name in before])
    if isinstance(step, Stop):
        if not step.asked or step is stop:
            _refuse(plan, one, "the run ends there as it is")
        return _without_after(with_step(plan, replace(step, asked=False)), step.step_id, keep=stop.step_id)
    if not of:
        _refuse(plan, one, "there is nothing to hand in by then")
    if stop.after == (step.step_id,):
        _refuse(plan, one, "the run ends there as it is")
    return _without_after(with_step(plan, replace(stop, after=(step.step_id,), of=of)), step.step_id, keep=stop.step_id)


def _without_after(plan: Plan, step_id: str, *, keep: str) -> Plan:
    kept = [step for step in plan.steps if step.step_id in (step_id, keep) or step_id not in _upstream(plan, step.step_id)]
    names = {step.step_id for step in kept}
    steps = [
        replace(step, of=tuple([name for name in step.of if name in names]), after=tuple([n for n in step.after if n in names])
                or (step_id,)) if isinstance(step, Stop) else step
        for step in kept
    ]  # fmt: skip
    return replace(plan, steps=tuple(steps))


def _gone_on(plan: Plan, one: Intervention, step: AnyStep) -> Plan:
    """Let a run go on: past a stop that the agent may decide on, or with one more round of what the last check rejects."""
    _kind(plan, one, step, (Stop,), "the step ends nothing")
    assert isinstance(step, Stop)
    if step.asked:
        return without_step(plan, step.step_id)
    checks = [plan.step(name) for name in step.after]
    if not checks or not isinstance(check := checks[0], Verify):
        _refuse(plan, one, "nobody checks the result, so nobody would know what to go on with")
    number, last = len(step.of) + 1, plan.step(step.of[-1])
    work = [w for w in plan.steps if isinstance(w, Write) and w.on and w.when is None and "/" not in w.step_id]
    if not work or not isinstance(last, Aggregate):
        _refuse(plan, one, "nothing was delegated that could be done again")
    again: list[AnyStep] = []
    for first in work:
        give, name = plan.step(first.on or ""), first.step_id.partition(":")[2]
        assert isinstance(give, Delegate)
        when, shares = When(check.step_id, first.part), [n for n in first.after if isinstance(plan.step(n), Write | Aggregate)]
        again.append(replace(give, step_id=f"give:{name}:{number}", agent_id=last.agent_id, to=f"@{first.on}", when=when,
                             after=(check.step_id,), shares=(check.step_id, *shares), delay_s=0.0))  # fmt: skip
        again.append(replace(first, step_id=f"write:{name}:{number}", agent_id=f"@give:{name}:{number}", when=when, reports=True,
                             on=f"give:{name}:{number}", after=(f"give:{name}:{number}",), delay_s=0.0))  # fmt: skip
    written = tuple([new.step_id for new in again if isinstance(new, Write)])
    merge = replace(last, step_id=f"merge:{number}", after=(check.step_id, *written), of=(*last.of, *written), delay_s=0.0,
                    when=When(check.step_id))  # fmt: skip
    end = replace(step, after=(merge.step_id,), of=(*step.of, merge.step_id))
    at = plan.steps.index(step)
    return replace(plan, steps=(*plan.steps[:at], *again, merge, end, *plan.steps[at + 1 :]))


_EDITS: dict[str, Callable[[Plan, Intervention, Any], Plan]] = {
    "delay": _later, "advance": _earlier, "aggregate": _merged_otherwise, "insert-message": _told, "remove-message": _untold,
    "assign": _assigned, "stop-earlier": _ended, "stop-later": _gone_on,
}  # fmt: skip


def _known(plan: Plan, one: Intervention, name: object) -> AnyStep:
    if all(step.step_id != name for step in plan.steps):
        _refuse(plan, one, "a parameter names no step of the plan", got=str(name))
    return plan.step(str(name))


def _last_stop(plan: Plan, one: Intervention) -> Stop:
    stops = [step for step in plan.steps if isinstance(step, Stop) and not step.asked]
    if not stops:
        _refuse(plan, one, "the plan ends nowhere")
    return stops[-1]


def _upstream(plan: Plan, step_id: str) -> set[str]:
    """Return a step and all that it waits for."""
    found: set[str] = set()
    todo = [step_id]
    while todo:
        if (name := todo.pop()) not in found:
            found.add(name)
            todo += named_steps(plan.step(name))
    return found


def _candidates(plan: Plan) -> Iterator[Intervention]:
    """Yield what may be worth trying at each step, in the order of the plan; some of it cannot be done."""
    awaited = {name for step in plan.steps if isinstance(step, Aggregate) for name in step.of}
    for step in plan.steps:
        name = step.step_id
        if isinstance(step, Delegate | Write | Aggregate | Communicate):
            yield Intervention("delay", name, {"x": _DELAY_S})
            yield Intervention("advance", name)
        match step:
            case Aggregate():
                missing = [w.step_id for w in plan.steps if isinstance(w, Write) and not {w.step_id} & awaited and w.when is None]
                yield from [Intervention("delay", name, {"until": other}) for other in missing]
                yield from [Intervention("advance", name, {"without": other}) for other in step.of]
                yield from [Intervention("aggregate", name, {"strategy": strategy}) for strategy in STRATEGIES]
                yield Intervention("stop-earlier", name)
            case Write():
                yield from [Intervention("advance", name, {"without": other}) for other in step.after if other != step.on]
            case Delegate():
                yield from [Intervention("assign", name, {"to": member.agent_id}) for member in plan.members]
                yield from [Intervention("insert-message", name, {"to": other}) for other in _builds_on(plan, step)]
            case Communicate():
                yield Intervention("remove-message", name)
            case Verify() | Answer():
                yield Intervention("stop-earlier", name)
            case Stop():
                yield from (Intervention("stop-earlier", name), Intervention("stop-later", name))


def _builds_on(plan: Plan, given: Delegate) -> list[str]:
    """Return the steps that write what needs a part that was handed over."""
    covers = {part for split in plan.subtasks if split.subtask_id in given.subtasks for part in split.covers}
    builders = {split.subtask_id for split in plan.subtasks if covers & set(split.needs)}
    return [step.step_id for step in plan.steps if isinstance(step, Write) and step.subtask_id in builders and step.when is None]
