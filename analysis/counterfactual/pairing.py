"""One pair of replays: a run with one decision changed and one without, from the same prefix and with the same draws after it.

Decides what the prefix is: all steps that had begun before the changed one did; they keep the luck that they had, or the
answers, where they are models'. All others draw, or are asked, under the pair's seed, in both runs alike, so that a model
that is told the same in both is asked once. What each metric came to is read here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from analysis.counterfactual.agents.protocol import Agent, Request, Response
from analysis.counterfactual.differing import Changed, compared
from analysis.counterfactual.effects import PAIRS
from analysis.counterfactual.interventions import edited, plan_of, step_of
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.plan import Aggregate, Communicate, Delegate, Plan, Spawn, Stop
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Recipe, replay
from analysis.counterfactual.runtime import Trial, execute, with_answers
from analysis.counterfactual.teams import Team, simulated, team_of
from analysis.errors import ReplayError, UnansweredError
from analysis.model import Trace
from analysis.orchestration.metrics import metrics
from analysis.streams import uniform

if TYPE_CHECKING:
    import pandas as pd

#: What is measured of both runs of a pair, the integrated pass first.
METRICS = ("passed", "q_parallel_self", "q_work", "q_aggregate", "tokens", "makespan_s")


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """What one pair came to.

    parameters : of the operator, as JSON
    seed_block, number : which of a study's seeds it had
    q, q_counterfactual : by metric; without those that a run does not have
    n_changed : events in which the two runs differ
    cost_tokens, cost_s : of the events of both runs after the prefix; what a model was asked once for both counts twice
    """

    trace_id: str
    task: str
    event_id: str
    event_kind: str
    operator: str
    parameters: str
    seed_block: str
    number: int
    q: dict[str, float]
    q_counterfactual: dict[str, float]
    n_changed: int
    cost_tokens: int
    cost_s: float
    world: str = "simulated"
    evidence: str = "interventional"


class Arms(msgspec.Struct, frozen=True, kw_only=True):
    """Both runs of a pair, and where they differ."""

    control: Trace
    counterfactual: Trace
    changed: Changed


def replayable(trace: Trace) -> Plan:
    """Return the plan by which a trace can be run again; ReplayError where it holds none, or what its models said is not kept."""
    plan = plan_of(trace)
    if trace.world == "live" and "answers" in trace.extra["run"]:
        return plan
    if trace.world != "simulated":
        hint = "only runs that `counterpoint run` made are executed again here"
        raise ReplayError(trace.trace_id, "its agents would have to be asked again", got=trace.world, hint=hint)
    return plan


def team_in(trace: Trace) -> Team:
    """Return the team that made a run, as its trace holds it; raises TeamError where it does not."""
    return team_of(trace.extra["run"].get("team", {}), f"{trace.trace_id}: extra.run.team")


class Replayer:
    """Makes pairs of one trace that is `replayable`; controls with the same prefix and seed are run once.

    `agents` by component are those of the run; of a live one they have to be given. Live runs go on a virtual clock, on which
    an answer lasts as long as it took.
    """

    def __init__(self, trace: Trace, judge: Judge, *, agents: Mapping[str, Agent] | None = None) -> None:
        self.trace, self.plan, self._judge = trace, replayable(trace), judge
        if agents is None and trace.world == "live":
            hint = "study them with `counterpoint effects`, which asks the models of the run"
            raise ReplayError(trace.trace_id, "its models would have to be asked again", hint=hint)
        self._agents = agents or simulated(team_in(trace))
        self._controls: dict[tuple[frozenset[str], int], Trace] = {}

    def run(self, plan: Plan, fresh: frozenset[str], seed: int) -> Trace:
        """Return the run by a plan; the prefix keeps its luck, all else, with the steps `fresh`, has that of a seed.

        Raises UnansweredError where a model gives no answer, BudgetSpent and EndpointError where it cannot be asked.
        """
        kept = frozenset([step.step_id for step in self.plan.steps]) - fresh
        agents = {name: _Lucky(agent, seed, kept) for name, agent in self._agents.items()}
        if self.trace.world != "live":
            return replay(self.trace, self._judge, plan=plan, agents=agents)
        said = self.trace.extra["run"]
        task, trial = msgspec.convert(said["task"], Recipe).task(), Trial(said["seed"], said["trial"])
        made = execute(with_answers(plan, self.trace, but=fresh), task, agents, trial=trial, judge=self._judge)
        if lost := [
            event.error for event in made.events if event.error and not event.content and not _is_of(event.event_id, kept)
        ]:
            raise UnansweredError(self.trace.trace_id, "a model gave no answer", got=lost[0])
        return msgspec.structs.replace(made, world="live")

    def control(self, fresh: frozenset[str], seed: int) -> Trace:
        """Return the run by its own plan."""
        if (fresh, seed) not in self._controls:
            if self._controls and next(iter(self._controls))[1] != seed:
                self._controls.clear()
            self._controls[fresh, seed] = self.run(self.plan, fresh, seed)
        return self._controls[fresh, seed]

    def arms(self, one: Intervention, seed: int) -> Arms:
        """Return both runs of a pair; raises ReplayError where the decision cannot be changed so, or more than it changed."""
        fresh = fresh_steps(self.trace, self.plan, one.event_id)
        control, other = self.control(fresh, seed), self.run(edited(self.plan, one), fresh, seed)
        return Arms(control=control, counterfactual=other, changed=compared(self.plan, control, other, one))

    def pair(self, one: Intervention, *, seed: int, block: str, number: int) -> Pair:
        """Return what one pair came to; the seed is made of the study's, the block, the number and the trace."""
        arms = self.arms(one, pair_seed(seed, block, number, self.trace))
        fresh = fresh_steps(self.trace, self.plan, one.event_id)
        return pair_of(self.trace, one, arms, block=block, number=number, fresh=fresh)


def pair_seed(seed: int, block: str, number: int, trace: Trace) -> int:
    """Return the seed of a pair, the same for all decisions of a trace."""
    return int(uniform(seed, "pair", block, number, trace.trace_id) * 2**53)


def pair_of(trace: Trace, one: Intervention, arms: Arms, *, block: str, number: int, fresh: frozenset[str]) -> Pair:
    """Return what a pair of runs came to; what its prefix cost was spent before."""
    plan = plan_of(trace)
    kept = frozenset([step.step_id for step in plan.steps]) - fresh
    later = [e for run in (arms.control, arms.counterfactual) for e in run.events if not _is_of(e.event_id, kept)]
    return Pair(
        trace_id=trace.trace_id, task=trace.task.task_id or trace.trace_id, event_id=one.event_id,
        event_kind=kind_of(plan, one.event_id), world=trace.world,
        operator=one.operator, parameters=one.key, seed_block=block, number=number, q=q_of(arms.control),
        q_counterfactual=q_of(arms.counterfactual), n_changed=len(arms.changed.events),
        cost_tokens=sum([(e.input_tokens or 0) + (e.output_tokens or 0) for e in later]),
        cost_s=round(sum([(e.t_end_s or 0.0) - (e.t_start_s or 0.0) for e in later]), 3),
    )  # fmt: skip


def pair_frame(pairs: Sequence[Pair]) -> pd.DataFrame:
    """Return one row a pair and metric, as `effects` takes them, with the number of the pair."""
    import pandas as pd

    rows = [
        (p.trace_id, p.task, p.event_id, p.event_kind, p.operator, p.parameters, name, p.q.get(name, math.nan),
         p.q_counterfactual.get(name, math.nan), p.seed_block, p.world, p.evidence, float(p.cost_tokens), p.number)
        for p in pairs for name in METRICS if name in p.q or name in p.q_counterfactual
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=[*PAIRS, "number"])


def q_of(trace: Trace) -> dict[str, float]:
    """Return the metrics of `METRICS` that a run has."""
    values: dict[str, Any] = {metric.name: metric.value for metric in metrics(trace)}
    values["passed"] = trace.outcome.passed
    return {name: float(values[name]) for name in METRICS if values[name] is not None}


def kind_of(plan: Plan, step_id: str) -> str:
    """Return the kind of event that a step makes, whether or not it happens in a run."""
    step = step_of(plan, step_id)
    return type(step).__name__.lower() if isinstance(step, Spawn | Delegate | Communicate | Aggregate | Stop) else "act"


def fresh_steps(trace: Trace, plan: Plan, event_id: str) -> frozenset[str]:
    """Return the steps that began with an event or later, or not at all; all of them where it did not happen."""
    first: dict[str, int] = {}
    for n, event in enumerate(trace.events):
        if (step := step_of(plan, event.event_id)) is not None:
            first.setdefault(step.step_id, n)
    at = first.get(event_id, -1)
    return frozenset([step.step_id for step in plan.steps if first.get(step.step_id, len(trace.events)) >= at])


def _is_of(event_id: str, steps: frozenset[str]) -> bool:
    """Whether an event belongs to one of these steps."""
    names = [event_id[:n] for n, letter in enumerate(event_id) if letter == "."]
    return bool(steps & {event_id, *names})


class _Lucky:
    """An agent that draws from another seed, but for steps that keep what they had."""

    def __init__(self, agent: Agent, seed: int, kept: frozenset[str]) -> None:
        self._agent, self._seed, self._kept = agent, seed, kept

    def act(self, request: Request) -> Response:
        """Answer a request; the fourth part of its key is the step."""
        if request.key[3] not in self._kept:
            request = msgspec.structs.replace(request, seed=self._seed)
        return self._agent.act(request)
