"""The counterfactual data set: a decision as it was taken and as it might have been, and what the difference did.

Decides which effects become rows and what each shows of its decision: the pair of runs is made once more, with the seeds of its
study, and both sides are put as a model would be asked and would answer (`asking`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from analysis.counterfactual.agents.ledger import Ledger
from analysis.counterfactual.agents.protocol import Agent, Request, Response
from analysis.counterfactual.asking import Asked, choosing, deciding, decision_of
from analysis.counterfactual.effects import better_of
from analysis.counterfactual.interventions import OPERATORS, STRATEGIES, edited
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.packages import FULL, package_of
from analysis.counterfactual.pairing import Arms, Replayer, pair_seed, team_in
from analysis.counterfactual.performing import parts_of
from analysis.counterfactual.plan import Aggregate, Communicate, Delegate, Plan
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Recipe
from analysis.counterfactual.scheduled import what_if
from analysis.counterfactual.study import CONFIRM
from analysis.counterfactual.teams import Team, players, simulated
from analysis.errors import ReplayError
from analysis.model import Event, Trace

Message = dict[str, Any]
_KEYS = ("trace_id", "event_id", "operator", "parameters", "metric", "world", "evidence")


class PairRow(msgspec.Struct, frozen=True, kw_only=True):
    """One counterfactual (o, o'): the messages before the event, the event's own in either arm, and the effect."""

    pair_id: str
    trace_id: str
    task_id: str
    event_id: str
    event_kind: str
    operator: str
    parameters: str
    metric: str
    agent: str
    prompt: list[Message]
    original: list[Message]
    counterfactual: list[Message]
    delta_q: float
    credit: float
    better: str
    low: float | None
    high: float | None
    n: int
    evidence: str
    world: str
    seed_block: str
    confirmed: bool
    split: str


def preferred(row: PairRow) -> bool | None:
    """Return whether the counterfactual was better than what was done; None where its interval covers 0 or nothing is better."""
    if row.better not in ("higher", "lower") or row.low is None or row.high is None or row.low <= 0 <= row.high:
        return None
    return (row.delta_q > 0) == (row.better == "higher")


def pair_rows_of(
    traces: Iterable[Trace], effect_rows: Iterable[Mapping[str, Any]], *, judge: Judge, seed: int, ledger: Ledger | None = None,
    only_confirmed: bool = True, told: Callable[[str], None] = lambda text: None,
) -> list[PairRow]:  # fmt: skip
    """Return a row for each effect of a study on these traces, in the order of trace, event, change and metric.

    Parameters
    ----------
    effect_rows : of the table `effects`; of a decision on fresh seeds and in the screening, the fresh seeds count
    judge, seed : what its pairs were judged with, and the seed of the study
    ledger : of the study, from which models of live runs answer again; they are asked, and paid, for what it does not hold
    only_confirmed : leave out what fresh seeds did not confirm, and so all that was never executed
    told : hears why a decision is left out, where its pair cannot be made again

    Raises SandboxError where programs cannot be run, BudgetSpent and EndpointError where models cannot be asked.
    """
    by_id, changes = {trace.trace_id: trace for trace in traces}, dict[tuple[str, ...], list[Mapping[str, Any]]]()
    for row in _kept(effect_rows, only_confirmed):
        if row["trace_id"] in by_id:
            changes.setdefault(tuple([row[key] for key in (*_KEYS[:4], "evidence", "seed_block")]), []).append(row)
    found: list[PairRow] = []
    for (name, event_id, operator, parameters, evidence, block), rows in sorted(changes.items(), key=lambda item: item[0]):
        trace, one = by_id[name], Intervention(operator, event_id, msgspec.json.decode(parameters))
        try:
            asked = _asked(trace, one, seed, block, judge, ledger) if evidence == "interventional" else _recorded(trace, one)
        except ReplayError as error:
            told(str(error))
            continue
        found += [_row(row, asked) for row in sorted(rows, key=lambda row: str(row["metric"]))]
    return found


def _kept(rows: Iterable[Mapping[str, Any]], only_confirmed: bool) -> Iterator[Mapping[str, Any]]:
    """Yield one row of each effect, that of the fresh seeds where there is one."""
    best: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in rows:
        key = tuple([row[name] for name in _KEYS])
        is_known = row["delta_q"] is not None and math.isfinite(row["delta_q"]) and row["event_id"] is not None
        if is_known and (row["confirmed"] or not only_confirmed) and (key not in best or row["seed_block"] == CONFIRM):
            best[key] = row
    yield from best.values()


def _row(row: Mapping[str, Any], asked: Asked) -> PairRow:
    named = [str(row[name]) for name in (*_KEYS, "seed_block")]
    return PairRow(
        pair_id=hashlib.blake2b("\n".join(named).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest(),
        trace_id=row["trace_id"], task_id=row["task"], event_id=row["event_id"], event_kind=row["event_kind"],
        operator=row["operator"], parameters=row["parameters"], metric=row["metric"], agent=asked.agent, prompt=asked.prompt,
        original=asked.original, counterfactual=asked.counterfactual, delta_q=row["delta_q"], credit=0.0 - row["delta_q"],
        better=better_of(row["metric"]), low=_known(row["low"]), high=_known(row["high"]), n=row["n"], evidence=row["evidence"],
        world=row["world"], seed_block=row["seed_block"], confirmed=row["confirmed"], split="",
    )  # fmt: skip


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


class _Noted:
    """An agent whose requests are kept."""

    def __init__(self, agent: Agent, requests: list[Request]) -> None:
        self._agent, self._requests = agent, requests

    def act(self, request: Request) -> Response:
        """Answer a request."""
        self._requests.append(request)
        return self._agent.act(request)


def _asked(trace: Trace, one: Intervention, seed: int, block: str, judge: Judge, ledger: Ledger | None) -> Asked:
    """Return a decision of a run that is executed again, by the first of its pairs."""
    team, requests = team_in(trace), list[Request]()
    if trace.world == "live" and ledger is None:
        raise ReplayError(trace.trace_id, "its models would have to be asked again, and there is no ledger of what they said")
    agents = players(team, ledger) if ledger is not None else simulated(team)
    replayer = Replayer(trace, judge, agents={name: _Noted(agent, requests) for name, agent in agents.items()})
    arms = replayer.arms(one, pair_seed(seed, block, 0, trace))
    match OPERATORS[one.operator].family:
        case "assignment":
            return _assigned(trace, replayer.plan, one, team, arms)
        case "aggregation":
            return _merged(trace, replayer.plan, one, team)
        case "stop":
            return _ended(one, team, requests)
        case "communication":
            return _told(replayer.plan, edited(replayer.plan, one), arms)
    return _timed(one, arms)


def _request(trace: Trace, plan: Plan, agent: str, **fields: Any) -> Request:
    """Return a request as a plan is made with it."""
    task = msgspec.convert(trace.extra["run"]["task"], Recipe).task()
    component = next(member.component for member in plan.members if member.agent_id == agent)
    package = package_of(task, task.requirements, FULL)
    return Request(seed=0, key=(), agent_id=agent, component=component, task=task, package=package, **fields)


def _assigned(trace: Trace, plan: Plan, one: Intervention, team: Team, arms: Arms) -> Asked:
    step = plan.step(one.event_id)
    assert isinstance(step, Delegate)
    agent, now, to = plan.actor(step.agent_id), plan.actor(step.to), str(one.parameters["to"])
    component = {member.agent_id: member.component for member in plan.members}
    rivals = tuple([name for name, what in component.items() if what == component[now]])
    request = _request(trace, plan, agent, purpose="assign", part=parts_of(plan, step)[0], options=rivals)
    return choosing(request, (now, to), end=team.live.get(component[agent]))


def _merged(trace: Trace, plan: Plan, one: Intervention, team: Team) -> Asked:
    step = plan.step(one.event_id)
    assert isinstance(step, Aggregate)
    request = _request(trace, plan, plan.actor(step.agent_id), purpose="plan", options=STRATEGIES)
    return choosing(request, (step.strategy, str(one.parameters["strategy"])), end=team.live.get(request.component))


def _ended(one: Intervention, team: Team, requests: list[Request]) -> Asked:
    """Return whether the run ends: as asked in the run that ends there, which is the other one where it was to end earlier."""
    stops = [request for request in requests if request.purpose == "stop"]
    if one.operator == "stop-later":
        stops = [request for request in stops if request.key[3] == one.event_id][:1]
    if not stops:
        raise ReplayError(f"event {one.event_id}", f"{one.operator}: the run of this pair did not get there")
    options = ("stop", "go on")
    request = msgspec.structs.replace(stops[-1], options=options)
    choices = (options[0], options[1]) if one.operator == "stop-later" else (options[1], options[0])
    return choosing(request, choices, end=team.live.get(request.component))


def _told(plan: Plan, other: Plan, arms: Arms) -> Asked:
    """Return whether a message is sent, by whoever sends it in the run that has it."""
    ids = [{step.step_id: step for step in one.steps} for one in (plan, other)]
    (name,) = ids[0].keys() ^ ids[1].keys()
    step = ids[0].get(name) or ids[1][name]
    assert isinstance(step, Communicate)
    events = [_event(run, name) for run in (arms.control, arms.counterfactual)]
    run, sent = (arms.control, events[0]) if events[0] else (arms.counterfactual, events[1])
    if sent is None or sent.agent_id is None:
        raise ReplayError(f"event {name}", "the run of this pair did not get there")
    decisions = [decision_of(event, words=True) for event in events]
    return deciding(run, sent.agent_id, name, (decisions[0], decisions[1]))


def _timed(one: Intervention, arms: Arms) -> Asked:
    before, after = (_event(run, one.event_id) for run in (arms.control, arms.counterfactual))
    if before is None or before.agent_id is None:
        raise ReplayError(f"event {one.event_id}", "the run of this pair did not get there")
    return deciding(arms.control, before.agent_id, one.event_id, (decision_of(before), decision_of(after)))


def _recorded(trace: Trace, one: Intervention) -> Asked:
    """Return a decision of a run that is replayed on its schedule, or re-scored."""
    other, before = what_if(trace, one).trace, _event(trace, one.event_id)
    assert before is not None  # else it could not be replayed
    agent = before.agent_id or "agent"
    if one.operator == "stop-earlier":
        later = [event for event in trace.events if event.order > before.order and event.agent_id == before.agent_id]
        goes_on = decision_of(later[0] if later else None)
        return deciding(trace, agent, one.event_id, (goes_on, {"decision": "stop"}), is_after=True)
    began_s = min([event.t_start_s for event in trace.events if event.t_start_s is not None], default=0.0)
    sides = [decision_of(event, began_s=began_s) for event in (before, _event(other, one.event_id))]
    return deciding(trace, agent, one.event_id, (sides[0], sides[1]))


def _event(run: Trace, event_id: str) -> Event | None:
    return next((event for event in run.events if event.event_id == event_id), None)
