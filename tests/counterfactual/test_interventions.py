"""A decision that is changed changes what it says it does, keeps what it says it keeps, and reaches only what comes after it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from analysis.counterfactual.differing import compared
from analysis.counterfactual.interventions import OPERATORS, edited, interventions, plan_of, refusal, step_of
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import Replayer, fresh_steps, replayable
from analysis.counterfactual.plan import Aggregate, Communicate, Delegate, Plan, Stop, Write, check
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Job, recipes, replay, run_job
from analysis.counterfactual.teams import Team, ready_teams
from analysis.errors import ReplayError
from analysis.model import Event, Source, Trace
from tests.counterfactual.players import PERFECT, planned, task_of, team

TEAMS = ready_teams()


def ran(of: Team, judge: Judge, shape: str = "diamond", seed: int = 7) -> Trace:
    """Return a run of a team that can be replayed."""
    return run_job(Job(recipes(shape, 1, seed=7)[0], of, 1, seed), judge)


def plan_of_team(name: str, shape: str = "diamond") -> Plan:
    """Return the plan of a ready team."""
    return planned(TEAMS[name], task_of(shape))


def _others(plan: Plan, *names: str) -> dict[str, Any]:
    return {step.step_id: step for step in plan.steps if step.step_id not in names}


@pytest.mark.parametrize("name", ["single", "parallel", "hierarchical", "stops-too-early"])
def test_every_change_reaches_only_what_comes_after_it(name: str, judge: Judge) -> None:
    trace = ran(TEAMS[name], judge)
    replayer = Replayer(trace, judge)
    found = interventions(replayer.plan, k=14, rng=np.random.default_rng(1))
    assert found
    for n, one in enumerate(found):
        arms = replayer.arms(one, seed=n)  # raises where more differs
        sides = [{e.event_id: e for e in run.events} for run in (arms.control, arms.counterfactual)]
        starts = [side[one.event_id].t_start_s or 0.0 for side in sides if one.event_id in side]
        before = [
            {i: (e.t_start_s, e.t_end_s, e.content, e.agent_id) for i, e in side.items() if (e.t_start_s or 0) < min(starts)}
            for side in sides if starts
        ]  # fmt: skip
        assert not starts or before[0] == before[1]
        assert check(edited(replayer.plan, one))


def test_a_prefix_keeps_the_luck_it_had_and_what_comes_after_it_has_fresh_luck(judge: Judge) -> None:
    trace = ran(TEAMS["parallel"], judge)
    replayer = Replayer(trace, judge)
    fresh = fresh_steps(trace, replayer.plan, "merge")
    assert {"merge", "stop"} <= fresh
    assert not {"plan", "write:top", "write:join"} & fresh
    runs = [replayer.control(fresh, seed) for seed in range(3)]
    kept = [[e for e in run.events if not {e.event_id, e.event_id.partition(".")[0]} & fresh] for run in runs]
    was = [e for e in trace.events if not {e.event_id, e.event_id.partition(".")[0]} & fresh]
    assert [[msgspec.structs.replace(e, order=0) for e in events] for events in kept] == 3 * [
        [msgspec.structs.replace(e, order=0) for e in was]
    ]
    assert len({run.events[-1].t_end_s for run in runs}) == 3


def test_a_delay_keeps_all_but_the_time_of_one_step(judge: Judge) -> None:
    trace = ran(team(upstream="blind"), judge)
    plan, one = plan_of(trace), Intervention("delay", "merge", {"x": 2.5})
    changed = edited(plan, one)
    assert _others(changed, "merge") == _others(plan, "merge")
    assert changed.step("merge") == msgspec.structs.replace(plan.step("merge"), delay_s=2.5)
    other = replay(trace, judge, plan=changed)
    assert (other.events[-1].t_end_s or 0) - (trace.events[-1].t_end_s or 0) == pytest.approx(2.5, abs=1e-9)
    assert compared(plan, trace, other, one).events == ("merge", "stop")


def test_a_merge_waits_for_one_result_more_or_less_and_the_two_undo_each_other() -> None:
    plan = plan_of_team("parallel")
    less = edited(plan, Intervention("advance", "merge", {"without": "write:join"}))
    merge = less.step("merge")
    assert isinstance(merge, Aggregate)
    assert merge.of == merge.after == ("write:top", "write:left", "write:right")
    assert edited(less, Intervention("delay", "merge", {"until": "write:join"})) == plan


def test_another_strategy_merges_the_same_results() -> None:
    plan = plan_of_team("parallel")
    changed = edited(plan, Intervention("aggregate", "merge", {"strategy": "sequential"}))
    assert changed.step("merge") == msgspec.structs.replace(plan.step("merge"), strategy="sequential")
    assert _others(changed, "merge") == _others(plan, "merge")


def test_a_message_more_is_one_that_a_team_which_tells_would_have_sent() -> None:
    told, blind = planned(team(upstream="told"), task_of("diamond")), planned(team(upstream="blind"), task_of("diamond"))
    one = Intervention("insert-message", "give:top", {"to": "write:left"})
    changed = edited(blind, one)
    said = changed.step("tell:top:left")
    assert said == told.step("tell:top:left")
    assert isinstance(said, Communicate)
    assert changed.step("write:left").after == (*blind.step("write:left").after, "tell:top:left")
    assert _others(changed, "tell:top:left", "write:left") == _others(blind, "write:left")


def test_who_waited_for_a_message_waits_for_its_causes_instead() -> None:
    plan = plan_of_team("chatty")
    changed = edited(plan, Intervention("remove-message", "status:top:2"))
    assert changed.step("status:top:3").after == ("status:top:1",)
    assert _others(changed, "status:top:3") == _others(plan, "status:top:2", "status:top:3")


def test_work_goes_along_with_an_assignment(judge: Judge) -> None:
    trace = ran(team(upstream="waits"), judge)
    one = Intervention("assign", "give:left", {"to": "coder-4"})
    other = replay(trace, judge, plan=edited(plan_of(trace), one))
    who = [{e.event_id: e.agent_id for e in run.events} for run in (trace, other)]
    assert (who[0]["write:left"], who[1]["write:left"]) == ("coder-2", "coder-4")
    assert who[0].keys() == who[1].keys()
    assert {name for name in who[0] if who[0][name] != who[1][name]} == {"write:left", "write:left.report"}
    assert "give:left" in compared(plan_of(trace), trace, other, one).events


def test_an_earlier_stop_hands_in_what_was_there_and_nothing_after_it_happens() -> None:
    plan = plan_of_team("parallel")
    changed = edited(plan, Intervention("stop-earlier", "merge"))
    stop = changed.step("stop")
    assert isinstance(stop, Stop)
    assert (stop.after, stop.of) == (("merge",), ("merge",))
    gone = {step.step_id for step in plan.steps} - {step.step_id for step in changed.steps}
    assert gone == {name for name in gone if name.startswith("check") or name.endswith(":2")} != set()


def test_a_later_stop_is_the_round_that_a_team_which_mends_once_more_would_have() -> None:
    twice = msgspec.structs.replace(TEAMS["parallel"], n_repairs=2)
    changed = edited(plan_of_team("parallel"), Intervention("stop-later", "stop"))
    wanted = planned(twice, task_of("diamond"))
    for name in ("give:left:3", "write:left:3"):
        mine, theirs = changed.step(name), wanted.step(name)
        assert isinstance(mine, Delegate | Write)
        assert msgspec.structs.replace(mine, after=(), when=None) == msgspec.structs.replace(theirs, after=(), when=None)
    stop = changed.step("stop")
    assert isinstance(stop, Stop)
    assert stop.of == ("merge", "merge:2", "merge:3")


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (Intervention("teleport", "merge"), "no such operator on a plan (got teleport"),
        (Intervention("delay", "nowhere"), "delay: the plan has no such step"),
        (Intervention("delay", "merge", {"x": -1}), "the delay is no number of seconds from 0 up (got -1)"),
        (Intervention("delay", "write:top", {"until": "write:left"}), "only a merge can wait for one result more (got write)"),
        (Intervention("delay", "merge", {"until": "write:top"}), "no result that the merge does without (got write:top)"),
        (Intervention("advance", "merge"), "the step begins as soon as its causes have ended"),
        (Intervention("advance", "merge", {"without": "plan"}), "it does not wait for that (got plan)"),
        (Intervention("aggregate", "write:top", {"strategy": "vote"}), "the step merges nothing (got write)"),
        (Intervention("aggregate", "merge", {"strategy": "parallel"}), "it is merged so as it is (got parallel)"),
        (Intervention("aggregate", "merge", {"strategy": "prayer"}), "the strategy is none of parallel"),
        (Intervention("insert-message", "give:top", {"to": "write:left"}), "it is told as it is (got tell:top:left)"),
        (Intervention("insert-message", "give:top", {"to": "write:top"}), "an agent need not tell itself (got coder-1)"),
        (Intervention("insert-message", "give:top"), "a parameter names no step of the plan (got None)"),
        (Intervention("remove-message", "merge"), "the step sends no message (got aggregate)"),
        (Intervention("assign", "give:top", {"to": "coder-1"}), "it is assigned so as it is (got coder-1)"),
        (Intervention("assign", "give:top", {"to": "tester"}), "another component would do it than coder (got tester)"),
        (Intervention("assign", "give:top", {"to": "nobody"}), "no such agent is in the team (got nobody)"),
        (Intervention("stop-earlier", "write:top"), "there is nothing to hand in by then"),
        (Intervention("stop-earlier", "stop"), "the run ends there as it is"),
        (Intervention("stop-later", "merge"), "the step ends nothing (got aggregate)"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_is_refused_with_the_reason(one: Intervention, why: str) -> None:
    said = refusal(plan_of_team("parallel"), one)
    assert said is not None
    assert why in said


def test_a_run_that_nobody_checks_has_nothing_to_go_on_with() -> None:
    said = refusal(plan_of_team("stops-too-early"), Intervention("stop-later", "stop"))
    assert said is not None
    assert said.endswith("stop-later: nobody checks the result, so nobody would know what to go on with")


def test_an_asked_stop_can_be_made_sure_or_passed_over() -> None:
    plan = planned(team({"tester": PERFECT}, verifier="tester", n_repairs=1, stop="asked"), task_of("diamond"))
    sure = edited(plan, Intervention("stop-earlier", "stop:1")).step("stop:1")
    assert isinstance(sure, Stop)
    assert not sure.asked
    assert "stop:1" not in _others(edited(plan, Intervention("stop-later", "stop:1")))


def test_a_replay_that_reached_further_is_refused(judge: Judge) -> None:
    trace, other = (ran(TEAMS["parallel"], judge, seed=seed) for seed in (7, 8))
    with pytest.raises(ReplayError, match=r"delay changed what does not come after it \(got plan"):
        compared(plan_of(trace), trace, other, Intervention("delay", "merge"))


def test_recordings_and_live_runs_are_refused(judge: Judge) -> None:
    recorded = Trace(trace_id="t", world="recorded", source=Source(format="x"), events=(Event(event_id="a", kind="act"),))
    with pytest.raises(ReplayError, match="t: the trace does not say by which plan it was made - a recorded run can be"):
        replayable(recorded)
    live = msgspec.structs.replace(ran(TEAMS["single"], judge), world="live")
    with pytest.raises(ReplayError, match=r"would have to be asked again \(got live\) - only runs that `counterpoint run` made"):
        replayable(live)


def test_a_few_changes_come_from_all_families_and_the_same_each_time() -> None:
    plan = plan_of_team("parallel")
    drawn = [interventions(plan, k=5, rng=np.random.default_rng(3)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert {OPERATORS[one.operator].family for one in drawn[0]} == {about.family for about in OPERATORS.values()}
    assert len(interventions(plan, rng=np.random.default_rng(3))) > 50
    only = interventions(plan, operators=("stop", "assign"), rng=np.random.default_rng(3))
    assert {one.operator for one in only} == {"stop-earlier", "stop-later", "assign"}
    with pytest.raises(ReplayError, match=r"no such operator \(got prayer, expected timing, aggregation"):
        interventions(plan, operators=("prayer",), rng=np.random.default_rng(3))


def test_an_event_belongs_to_the_step_whose_id_it_begins_with() -> None:
    plan = plan_of_team("parallel")
    found = [step_of(plan, name) for name in ("write:top.report", "check.tests.call", "merge", "nowhere.report")]
    assert [step and step.step_id for step in found] == ["write:top", "check", "merge", None]


def test_a_parameter_that_an_operator_does_not_take_is_refused() -> None:
    plan = planned(team(), task_of("diamond"))
    step = next(step.step_id for step in plan.steps if isinstance(step, Aggregate))
    with pytest.raises(ReplayError, match=r"delay: no such parameter \(got y\) - it takes x, until"):
        edited(plan, Intervention("delay", step, {"y": 3}))
