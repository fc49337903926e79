"""What a batch of replays must get right before it is believed: changes that do nothing, and changes whose effect is known.

Identity and an unused branch must give exactly 0; runs of agents without mistakes must lose, and gain, exactly 1 by one result
in the merge; and pairs whose sides are drawn by lot must show nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from analysis.counterfactual.agents.simulated import Component
from analysis.counterfactual.differing import Changed
from analysis.counterfactual.effects import effects
from analysis.counterfactual.interventions import edited
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import METRICS, Arms, Pair, Replayer, pair_frame, pair_of, pair_seed
from analysis.counterfactual.plan import Aggregate, Communicate, Member, with_step
from analysis.counterfactual.planning import plan_for
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Recipe
from analysis.counterfactual.runtime import Trial, execute
from analysis.counterfactual.teams import Team, simulated
from analysis.model import Trace, encode
from analysis.streams import uniform

IDENTITY, UNUSED, LOSS, GAIN, PERMUTED = "identity", "unused-branch", "planted-loss", "planted-gain", "permuted-labels"
REPLAYED = (IDENTITY, UNUSED, LOSS, GAIN)
#: What a planted change does to the integrated pass.
PLANTED = {LOSS: -1.0, GAIN: 1.0}
#: How improbable lots may make what they show; a sound batch fails so often.
ALPHA = 0.001
_SHIFT_S = 0.001
_PERFECT = Component(competence=1.0, sensitivity=1.0, specificity=1.0, fidelity=1.0)
_TEAM = Team(name="planted", about="Makes no mistakes.", components={"planner": _PERFECT, "coder": _PERFECT})


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a batch got one of them right, from how many pairs, and in a sentence what came out."""

    name: str
    ok: bool
    n: int
    note: str


def control_pair(replayer: Replayer, judge: Judge, name: str, *, seed: int, number: int) -> Pair:
    """Return a pair of a control in `REPLAYED`; identity counts a change where a single byte of the traces differs."""
    trace, plan = replayer.trace, replayer.plan
    first = plan.steps[0].step_id
    fresh, of_pair = frozenset([step.step_id for step in plan.steps]), pair_seed(seed, "control", number, trace)
    if name == IDENTITY:
        runs = [replayer.run(plan, fresh, of_pair) for _ in "ab"]
    elif name == UNUSED:
        # A message is short: a branch that outlasts the run would make it longer.
        spare = Communicate(step_id="unused", agent_id="spare", to=("spare",), message_type="status")
        members = (*plan.members, Member("spare", plan.members[0].component))
        branched = replace(plan, members=members, steps=(*plan.steps, spare))
        late = with_step(branched, replace(spare, delay_s=_SHIFT_S))
        runs = [replayer.run(one, fresh, of_pair) for one in (branched, late)]
    else:
        runs = _planted(replayer, judge, Trial(of_pair))
        if name == GAIN:
            runs.reverse()
    control, other = runs
    changed = Changed((), ()) if encode(control) == encode(other) else Changed(("unused",), ())
    arms = Arms(control=control, counterfactual=other, changed=changed)
    pair = pair_of(trace, Intervention(name, first), arms, block="control", number=number, fresh=fresh)
    is_free = name in PLANTED and trace.world == "live"  # simulated agents, where models are paid
    return replace(pair, cost_tokens=0) if is_free else pair


def _planted(replayer: Replayer, judge: Judge, trial: Trial) -> list[Trace]:
    """Return a run of agents without mistakes on the trace's task, and one whose merge does without its last result."""
    task, agents = msgspec.convert(replayer.trace.extra["run"]["task"], Recipe).task(), simulated(_TEAM)
    plan = plan_for(_TEAM, task, trial=trial, agents=agents)
    merge = plan.step("merge")
    assert isinstance(merge, Aggregate)
    short = edited(plan, Intervention("advance", "merge", {"without": merge.of[-1]}))
    return [execute(one, task, agents, trial=trial, judge=judge) for one in (plan, short)]


def judged(pairs: Sequence[Pair], *, seed: int) -> list[Control]:
    """Return whether the controls among the pairs came out right, and whether lots on the others show nothing."""
    found = []
    for name in REPLAYED:
        mine = [pair for pair in pairs if pair.operator == name]
        deltas = [pair.q_counterfactual["passed"] - pair.q["passed"] for pair in mine]
        if name in PLANTED:
            wrong = [delta for delta in deltas if delta != PLANTED[name]]
            note = f"{PLANTED[name]:+g} was planted, and {len(deltas) - len(wrong)} of {len(deltas)} pairs found it"
        else:
            wrong = [1.0 for pair in mine if pair.q != pair.q_counterfactual or (name == IDENTITY and pair.n_changed)]
            note = f"{len(mine) - len(wrong)} of {len(mine)} pairs are exactly alike"
        found.append(Control(name=name, ok=bool(mine) and not wrong, n=len(mine), note=note))
    return [*found, _permuted([pair for pair in pairs if pair.operator not in REPLAYED], seed)]


def _permuted(pairs: Sequence[Pair], seed: int) -> Control:
    """Draw the sides of every pair by lot: no operator may then do anything."""
    frame = pair_frame(pairs)
    frame = frame[frame["metric"] == METRICS[0]]
    if frame.empty:
        return Control(name=PERMUTED, ok=True, n=0, note="there are no pairs yet")
    keys = zip(frame["trace_id"], frame["event_id"], frame["operator"], frame["parameters"], frame["seed_block"], frame["number"],
               strict=True)  # fmt: skip
    is_turned = [uniform(seed, "permuted", *map(str, key)) < 0.5 for key in keys]
    turned = frame.assign(
        q=frame["q_counterfactual"].where(is_turned, frame["q"]),
        q_counterfactual=frame["q"].where(is_turned, frame["q_counterfactual"]),
    )
    table = effects(turned, by=("operator",), seed=seed)
    p = min(1.0, float(table["p"].min()) * len(table))
    note = f"sides drawn by lot: the least p of {len(table)} operators is {p:.2g} after Bonferroni"
    return Control(name=PERMUTED, ok=p >= ALPHA, n=len(frame), note=note)
