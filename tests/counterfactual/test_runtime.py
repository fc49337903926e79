"""What is planned is what happens, what happens is what the trace says, and what is changed changes only what comes after it."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from analysis.counterfactual.agents.decisions import rows_of
from analysis.counterfactual.agents.protocol import Agent, Request, Response
from analysis.counterfactual.agents.simulated import Component, Simulated
from analysis.counterfactual.clock import RealClock
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.packages import package_of
from analysis.counterfactual.plan import (
    Aggregate,
    AnyStep,
    Communicate,
    Delegate,
    Plan,
    Spawn,
    check,
    with_inserted,
    with_step,
    without_step,
)  # fmt: skip
from analysis.counterfactual.planning import plan_for
from analysis.counterfactual.record import plain
from analysis.counterfactual.runs import Budget, Job, jobs_of, recipes, replay, run_job, run_many
from analysis.counterfactual.runtime import Trial, execute, with_answers
from analysis.counterfactual.tasks.shapes import SHAPES
from analysis.counterfactual.teams import ready_teams
from analysis.errors import BusyError, TaskError, TeamError
from analysis.model import Event, Trace, decode, encode
from analysis.orchestration.difficulty import d_orch, features
from analysis.orchestration.graph import event_graph
from analysis.orchestration.measure import Metric
from analysis.orchestration.metrics import metrics
from analysis.orchestration.timing import timing
from tests.counterfactual.players import FIRST, PERFECT, Wrong, agents_of, planned, played, task_of, team

TEAMS = ready_teams()
#: A coder whose wrong sources end quickly, so that they are quickly judged.
CODER = {**PERFECT, "faults": {"performance": 0.0}}
TELL = Communicate(
    step_id="new", agent_id="@give:top", after=("give:top",), to=("@give:left",), message_type="interface", part="top"
)


def _values(trace: Trace) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics(trace)}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_is_as_hard_as_its_task_was_built_and_without_mistakes_every_quality_is_one(shape: str, judge: Judge) -> None:
    task = task_of(shape)
    trace = played(team(layout="hierarchical"), task, judge)
    assert features(trace, timing(trace)) == SHAPES[shape].features
    found = _values(trace)
    assert found["d_orch"].value == d_orch(SHAPES[shape].features)
    expected = {"q_split": 1, "q_aggregate": 1, "q_work": 1, "q_split_hidden_dependency": 0, "q_split_redundancy": 0}
    assert {name: found[name].value for name in expected} == expected
    assert trace.outcome.passed is True
    assert trace.task.requirements == task.requirements


def test_checks_and_messages_add_rounds_of_messages_and_nothing_else(judge: Judge) -> None:
    checked = team({"tester": PERFECT}, layout="hierarchical", verifier="tester", n_repairs=1)
    trace = played(checked, task_of("tree-2x3-crossed-2"), judge)
    assert features(trace, timing(trace)) == SHAPES["tree-2x3-crossed-2"].features._replace(comm_rounds=1)
    assert [event.final_state for event in trace.events if event.kind == "stop"] == ["solved"]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("hidden dependency", {"q_split_solvable": 3 / 4, "q_split_complete": 1, "q_split_hidden_dependency": 1 / 4}),
        ("missing part", {"q_split_solvable": 1, "q_split_complete": 3 / 4, "q_split_hidden_dependency": 0}),
        ("repeated part", {"q_split_solvable": 1, "q_split_complete": 1, "q_split_redundancy": 1 / 5}),
        ("same part", {"q_split_solvable": 1, "q_split_complete": 1 / 4, "q_split_redundancy": 3 / 4}),
    ],
)
def test_a_planted_fault_of_the_split_is_what_q_split_shows(way: str, expected: dict[str, float], judge: Judge) -> None:
    trace = played(team({"planner": {**PERFECT, "splits": {way: 1.0}}}, split="asked"), task_of("diamond"), judge)
    found = _values(trace)
    assert {name: found[name].value for name in expected} == pytest.approx(expected)
    assert found["q_split"].value == pytest.approx(expected["q_split_solvable"] * expected["q_split_complete"])


def test_a_wrong_part_fails_alone_and_takes_no_other_with_it(judge: Judge) -> None:
    task, crew = task_of("diamond"), team()
    trace = played(crew, task, judge, agents={**agents_of(crew), "coder": Wrong("top")})
    assert {s.subtask_id: (s.passes_alone, s.passes_upstream) for s in trace.subtasks} == {
        "top": (False, False), "left": (True, True), "right": (True, True), "join": (True, True),
    }  # fmt: skip
    assert [c.subtask_id for c in trace.candidates if (c.n_passed or 0) < (c.n_tests or 0) and c.subtask_id] == ["top"]


def test_an_unfaithful_merge_is_what_q_aggregate_shows(judge: Judge) -> None:
    found = _values(played(team({"planner": {**PERFECT, "fidelity": 0.0}}), task_of("fan-4"), judge))
    assert (found["q_aggregate"].value, found["q_split"].value, found["q_work"].value) == (0, 1, 1)


@pytest.mark.parametrize(("competence", "share"), [(1.0, 1.0), (0.0, 0.0)])
def test_competence_one_passes_everything_and_zero_nothing(competence: float, share: float, judge: Judge) -> None:
    crew = team({"coder": {**CODER, "competence": competence, "effects": {"difficulty": -3.0}}})
    traces = [played(crew, task_of(shape), judge, trial=Trial(7, n)) for shape in ("chain-3", "fan-4", "diamond") for n in (1, 2)]
    candidates = [c.n_passed == c.n_tests for trace in traces for c in trace.candidates if c.subtask_id]
    assert np.mean(candidates) == np.mean([trace.outcome.passed for trace in traces]) == share


def _jobs() -> list[Job]:
    return jobs_of(recipes("diamond", 1, seed=7), list(TEAMS.values()), n_trials=1, seed=7)


@pytest.mark.parametrize("job", _jobs(), ids=lambda job: job.team.name)
def test_a_replay_from_the_trace_alone_gives_the_same_bytes(job: Job, judge: Judge) -> None:
    line = encode(run_job(job, judge))
    assert encode(decode(line)) == line
    assert encode(replay(decode(line), judge)) == line
    assert encode(replay(decode(line), judge, trial=Trial(8, 1))) != line


@pytest.mark.parametrize("job", _jobs(), ids=lambda job: job.team.name)
def test_times_are_whole_milliseconds_causes_come_first_and_agents_do_one_thing_at_a_time(job: Job, judge: Judge) -> None:
    trace = run_job(job, judge)
    assert event_graph(trace).repairs == ()
    at = {event.event_id: event for event in trace.events}
    for event in trace.events:
        assert all(round(t * 1000) / 1000 == t for t in _span(event))
        assert all(_span(at[parent])[1] <= _span(event)[0] for parent in (*event.parents, *event.merge_points))
    for agent in trace.agents:
        mine = [_span(event) for event in trace.events if event.agent_id == agent.agent_id]
        assert all(before[1] <= after[0] for before, after in pairwise(mine))
    assert {event.basis for event in trace.events} == {"explicit"}
    assert (trace.world, trace.clock, trace.groups.condition) == ("simulated", "relative", job.team.name)


def _span(event: Event) -> tuple[float, float]:
    assert event.t_start_s is not None
    assert event.t_end_s is not None
    return event.t_start_s, event.t_end_s


def _downstream(traces: tuple[Trace, Trace], first: str) -> set[str]:
    """The events that a change of one step can reach: by causes, and by each agent's order, in either run."""
    reached: set[str] = set()
    for trace in traces:
        graph = event_graph(trace)
        hit = {n for n, event in enumerate(graph.events) if event.event_id == first}
        for n, _ in enumerate(graph.events):
            if hit & set(graph.causes[n]) or graph.before[n] in hit:
                hit.add(n)
        reached |= {graph.events[n].event_id for n in hit}
    return reached


def _unlike(one: Trace, other: Trace) -> set[str]:
    """The events that differ in anything but their place in the list."""
    rows = [{e.event_id: msgspec.structs.replace(e, order=0) for e in trace.events} for trace in (one, other)]
    return {name for name in rows[0].keys() | rows[1].keys() if rows[0].get(name) != rows[1].get(name)}


@pytest.mark.parametrize("number", range(1, 9))
def test_an_inserted_message_changes_only_what_is_downstream_of_it(number: int, judge: Judge) -> None:
    crew = team({"coder": {**CODER, "competence": 0.6, "effects": {"interface": 2.0, "blind": -1.0}}}, upstream="blind")
    task, trial = task_of("diamond"), Trial(7, number)
    plan = planned(crew, task, trial)
    changed = with_inserted(plan, TELL, before=("write:left",))
    one, other = (execute(p, task, agents_of(crew), trial=trial, judge=judge) for p in (plan, changed))
    unlike = _unlike(one, other)
    assert "new" in unlike
    assert unlike <= _downstream((one, other), "new")
    assert {"write:right", "write:right.report", "plan", "spawn"}.isdisjoint(unlike)
    back = execute(without_step(changed, "new"), task, agents_of(crew), trial=trial, judge=judge)
    assert back.events == one.events


def test_a_changed_assignment_takes_the_work_along_and_leaves_the_draws_of_others(judge: Judge) -> None:
    crew, task = TEAMS["parallel"], task_of("fan-4")
    plan = planned(crew, task)
    give = plan.step("give:p1")
    assert isinstance(give, Delegate)
    changed = with_step(plan, msgspec.structs.replace(give, to="coder-2"))
    one, other = (execute(p, task, agents_of(crew), trial=Trial(7), judge=judge) for p in (plan, changed))
    wrote = {event.event_id: event.agent_id for event in other.events if event.event_id.startswith("write:")}
    assert (wrote["write:p1"], wrote["write:p1.report"]) == ("coder-2", "coder-2")
    assert _unlike(one, other) <= _downstream((one, other), "give:p1") | {"spawn"}


def test_a_delay_moves_what_waits_for_it_and_no_draw(judge: Judge) -> None:
    crew, task = TEAMS["serial-collapse"], task_of("chain-3")
    plan = planned(crew, task)
    changed = with_step(plan, msgspec.structs.replace(plan.step("give:p2"), delay_s=5.0))
    one, other = (execute(p, task, agents_of(crew), trial=Trial(7), judge=judge) for p in (plan, changed))
    moved = {a.event_id: round(_span(b)[0] - _span(a)[0], 3) for a, b in zip(one.events, other.events, strict=True)}
    late = {"give:p2", "write:p2", "write:p2.report", "give:p3", "write:p3", "write:p3.report", "merge", "stop"}
    assert moved == {event.event_id: 5.0 if event.event_id in late else 0.0 for event in one.events}
    assert other.outcome == one.outcome


def test_a_stop_cuts_what_had_not_begun_and_lets_what_ran_end(judge: Judge) -> None:
    trace = played(TEAMS["stops-too-early"], task_of("fan-8"), judge)
    stop = next(event for event in trace.events if event.kind == "stop")
    assert all(_span(event)[0] < _span(stop)[1] for event in trace.events)
    handed_in = {c.event_id for c in trace.candidates if c.subtask_id}
    assert handed_in <= {event.event_id for event in trace.events if event.action == "return"}
    assert trace.outcome.passed is False


@pytest.mark.parametrize(("strategy", "n_merges", "deepest"), [("parallel", 1, 1), ("sequential", 7, 7), ("hierarchical", 7, 3)])
def test_strategies_merge_the_same_in_their_own_ways(strategy: str, n_merges: int, deepest: int, judge: Judge) -> None:
    crew, task = team(), task_of("fan-8")
    plan = planned(crew, task)
    merge = plan.step("merge")
    assert isinstance(merge, Aggregate)
    changed = with_step(plan, msgspec.convert({**msgspec.to_builtins(merge), "strategy": strategy}, AnyStep))
    trace = execute(changed, task, agents_of(crew), trial=Trial(7), judge=judge)
    merges = {event.event_id: event for event in trace.events if event.kind == "aggregate"}
    depth: dict[str, int] = {}
    for name, event in merges.items():
        depth[name] = 1 + max(depth.get(point, 0) for point in event.merge_points)
    assert (len(merges), max(depth.values()), trace.outcome.passed) == (n_merges, deepest, True)
    assert _values(trace)["q_aggregate"].value == 1


@pytest.mark.parametrize("strategy", ["parallel", "sequential", "hierarchical"])
def test_only_the_last_merge_of_all_claims_something_of_the_whole(strategy: str, judge: Judge) -> None:
    crew = team({"coder": CODER}, layout="hierarchical", upstream="waits", strategy=strategy)
    trace = played(crew, task_of("tree-3x2"), judge)
    merges = [event.event_id for event in trace.events if event.kind == "aggregate"]
    assert len({name for name in merges if name.startswith("merge:")}) > 1
    assert [claim.event_id for claim in trace.claims if claim.proposition == "parts_ok"] == [merges[-1]]


@pytest.mark.parametrize("strategy", ["best-by-tests", "vote"])
def test_of_alternatives_only_the_one_that_was_kept_is_claimed_to_be_right(strategy: str, judge: Judge) -> None:
    crew, task = team({"coder": {**CODER, "competence": 0.5}}, n_alternatives=3, strategy=strategy), task_of("fan-4")
    trace = played(crew, task, judge)
    agent = {event.event_id: event.agent_id for event in trace.events}
    choices = [event.content or "" for event in trace.events if event.merge_kind == "alternatives"]
    kept = [choice.partition(" for ")[2].rstrip(".").split(" I keep that of ") for choice in choices]
    claims = [[claim.proposition, agent[claim.event_id or ""]] for claim in trace.claims if claim.component == "coder"]
    assert sorted(claims) == sorted([[f"{part}_ok", name] for part, name in kept])
    assert len(kept) == len(task.requirements)


def test_the_tests_choose_a_right_alternative_and_a_vote_what_most_wrote(judge: Judge) -> None:
    task = task_of("fan-4")
    coder = {**CODER, "competence": 0.5}
    passed: dict[str, int] = {}
    for strategy in ("best-by-tests", "vote"):
        crew = team({"coder": coder}, n_alternatives=3, strategy=strategy)
        traces = [played(crew, task, judge, trial=Trial(7, n)) for n in range(1, 11)]
        for trace in traces:
            chosen = [c for c in trace.candidates if c.event_id and c.event_id.startswith("merge") and c.subtask_id]
            offered = [c for c in trace.candidates if c.event_id and c.event_id.startswith("write")]
            assert (len(chosen), len(offered)) == (4, 12)
            best = {s: max(c.n_passed or 0 for c in offered if c.subtask_id == s) for s in task.requirements}
            if strategy == "best-by-tests":
                assert {c.subtask_id: c.n_passed for c in chosen} == best
        passed[strategy] = sum(bool(trace.outcome.passed) for trace in traces)
    assert passed["best-by-tests"] > passed["vote"]


def test_a_repair_replaces_what_was_rejected_and_only_that(judge: Judge) -> None:
    crew = team({"coder": {**PERFECT, "competence": 0.0, "effects": {}}, "tester": PERFECT}, verifier="tester", n_repairs=2)
    trace = played(crew, task_of("diamond"), judge, agents={**agents_of(crew), "coder": Wrong("top")})
    given = [event.event_id for event in trace.events if event.kind == "delegate"]
    assert given == ["give:top", "give:left", "give:right", "give:join", "give:top:2", "give:top:3"]
    assert [e.event_id for e in trace.events if e.kind in ("aggregate", "stop")] == ["merge", "merge:2", "merge:3", "stop"]
    right = played(crew, task_of("diamond"), judge, agents={**agents_of(crew), "coder": agents_of(team())["coder"]})
    assert [e.event_id for e in right.events if e.kind == "delegate"] == given[:4]


@pytest.mark.parametrize(("stops_at", "rounds"), [(0.0, 1), (0.5, 3), (1.0, 3)])
def test_a_lead_that_is_asked_ends_the_run_when_it_is_sure_enough(stops_at: float, rounds: int, judge: Judge) -> None:
    crew = team({"planner": {**PERFECT, "stops_at": stops_at}, "tester": PERFECT}, verifier="tester", n_repairs=2, stop="asked")
    wrong = {**agents_of(crew), "coder": Wrong("top")}
    trace = played(crew, task_of("diamond"), judge, agents=wrong)
    ends = [e.event_id for e in trace.events if e.event_id.startswith("stop")]
    assert ends == ["stop:1", "stop:2", "stop"][:rounds]
    assert [e.kind for e in trace.events if e.event_id in ends] == [*["act"] * (rounds - 1), "stop"]
    assert sum(e.kind == "aggregate" for e in trace.events) == rounds
    right = played(crew, task_of("diamond"), judge)
    expected = ["stop:1", "stop"] if stops_at == 1.0 else ["stop:1"]
    assert [e.event_id for e in right.events if e.event_id.startswith("stop")] == expected
    assert [e.final_state for e in right.events if e.kind == "stop"] == ["solved"]


def test_a_lead_that_is_asked_chooses_the_strategy(judge: Judge) -> None:
    trace = played(team(strategy="asked"), task_of("fan-4"), judge)
    assert [e.strategy for e in trace.events if e.kind == "aggregate"] == ["parallel"]


def test_a_worker_that_runs_its_tests_tries_again_until_they_pass(judge: Judge) -> None:
    crew = team({"coder": {**CODER, "competence": 0.5}}, n_tries=4)
    trace = played(crew, task_of("fan-4"), judge)
    for part in trace.task.requirements:
        mine = [e for e in trace.events if e.event_id.split(".")[0] == f"write:{part}"]
        n_tried = sum(e.action == "model_call" for e in mine)
        results = [e.content or "" for e in mine if e.action == "tool_result"]
        is_good = [text.split(" of ")[0] == text.split(" of ")[1].split()[0] for text in results]
        assert len(results) == n_tried <= 4
        assert is_good[:-1] == [False] * (n_tried - 1)
        assert is_good[-1] or n_tried == 4


def _pairs_needed(judge: Judge, change: str) -> dict[str, float]:
    """Variance of the paired difference with keyed streams / with independent seeds, by what is measured."""
    coder = {**CODER, "competence": 0.7, "effects": {"interface": 1.5}, "seconds": {"message": 0.5}}
    crew, task = team({"coder": coder, "planner": {**PERFECT, "fidelity": 0.9}}, upstream="blind"), task_of("diamond")
    plan = planned(crew, task)
    changed = {
        "insert": with_inserted(plan, TELL, before=("write:top", "write:left")),
        "delay": with_step(plan, msgspec.structs.replace(plan.step("give:right"), delay_s=1.0)),
        "identity": plan,
    }[change]
    agents = agents_of(crew)

    def measured(which: Plan, seed: int) -> list[float]:
        trace = execute(which, task, agents, trial=Trial(seed), judge=judge)
        timed = timing(trace)
        return [float(bool(trace.outcome.passed)), math.log(timed.work / timed.makespan), timed.makespan]

    seeds = range(120)
    before = np.array([measured(plan, seed) for seed in seeds])
    keyed = np.array([measured(changed, seed) for seed in seeds]) - before
    independent = np.array([measured(changed, 10**6 + seed) for seed in seeds]) - before
    ratios = keyed.var(axis=0, ddof=1) / independent.var(axis=0, ddof=1)
    return dict(zip(("passed", "log q_parallel", "makespan"), ratios.tolist(), strict=True))


def test_keyed_streams_need_at_most_a_third_of_the_pairs_of_independent_seeds(judge: Judge) -> None:
    assert max(_pairs_needed(judge, "insert").values()) < 1 / 3
    delayed = _pairs_needed(judge, "delay")
    assert delayed["passed"] == 0
    assert max(delayed.values()) < 1 / 3
    assert set(_pairs_needed(judge, "identity").values()) == {0}


def test_runs_go_on_after_a_crash_and_the_file_has_the_same_bytes(tmp_path: Path) -> None:
    teams = [TEAMS[name] for name in ("single", "chatty")]
    jobs = jobs_of(recipes("fan-4", 1, seed=7) + recipes("chain-3", 1, seed=7), teams, n_trials=2, seed=7)
    whole, cut, wide = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl", tmp_path / "wide.jsonl"
    shown: list[float] = []
    report = run_many(jobs, whole, progress=lambda share, _: shown.append(share))
    assert (report.n_made, report.n_there, report.n_left, shown[-1]) == (8, 0, 0, 1)
    lines = whole.read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(lines[:3]) + lines[3][:100])
    report = run_many(jobs, cut)
    assert (report.n_made, report.n_there) == (5, 3)
    run_many(jobs, wide, workers=2)
    assert cut.read_bytes() == wide.read_bytes() == whole.read_bytes()
    assert [decode(line).trace_id for line in lines] == [job.trace_id for job in jobs]
    assert run_many(jobs, whole).n_made == 0


def test_a_file_is_written_by_one_call_at_a_time_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    jobs = jobs_of(recipes("chain-3", 1, seed=7), [TEAMS["single"]], n_trials=1, seed=7)
    out = tmp_path / "runs.jsonl"
    holds = (
        "import time\nfrom pathlib import Path\nfrom analysis.processes import alone\n"
        f"Path({str(out)!r}).touch()\nwith alone(Path({str(out)!r})):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", holds], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BusyError) as error:
            run_many(jobs, out)
        assert str(error.value) == (
            f"{out}: another process, it is not known which, writes here - wait until it ends, or give another --out"
        )
        assert run_many(jobs, tmp_path / "other.jsonl").n_made == 1
        other.kill()
    assert run_many(jobs, out).n_made == 1
    assert run_many(jobs, out).n_there == 1


def test_a_spent_budget_begins_no_new_run(tmp_path: Path) -> None:
    jobs = jobs_of(recipes("chain-3", 1, seed=7), [TEAMS["single"]], n_trials=4, seed=7)
    one = run_many(jobs[:1], tmp_path / "one.jsonl").n_tokens
    report = run_many(jobs, tmp_path / "some.jsonl", budget=Budget(tokens=one + 1))
    assert (report.n_made, report.n_left, report.why, report.spent) == (2, 2, ("the budget is spent",), None)
    assert run_many(jobs, tmp_path / "none.jsonl", budget=Budget(seconds=0)).n_made == 0


def test_a_file_that_holds_runs_of_another_team_or_no_runs_is_refused(tmp_path: Path) -> None:
    jobs = jobs_of(recipes("chain-3", 1, seed=7), [TEAMS["single"]], n_trials=1, seed=7)
    out = tmp_path / "runs.jsonl"
    run_many(jobs, out)
    other = msgspec.structs.replace(TEAMS["single"], about="another one")
    with pytest.raises(TeamError, match=r"runs.jsonl:1: a run of another team of the same name \(got single\) - rename"):
        run_many(jobs_of(recipes("chain-3", 1, seed=7), [other], n_trials=1, seed=7), out)
    out.write_text("no JSON\n")
    with pytest.raises(TeamError, match=r"runs\.jsonl:1: the line is no trace"):
        run_many(jobs, out)


def test_a_trace_that_cannot_be_run_again_says_why(judge: Judge) -> None:
    trace = run_job(_jobs()[0], judge)
    with pytest.raises(TeamError, match="does not say how it was made"):
        replay(msgspec.structs.replace(trace, extra={}), judge)
    said = trace.extra["run"]
    changed = {**said, "task": {**said["task"], "number": 5}}
    with pytest.raises(TaskError, match="the recipe now gives another task"):
        replay(msgspec.structs.replace(trace, extra={"run": changed}), judge)


class _Slow:
    """Takes its time, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def act(self, request: Request) -> Response:
        """Answer right after a while."""
        self.asked.append(request.purpose)
        if request.purpose == "write":
            time.sleep(0.3)
        return msgspec.structs.replace(Simulated(msgspec.convert(PERFECT, Component)).act(request), duration_s=0.0)


def test_on_a_real_clock_agents_work_side_by_side_and_what_they_said_is_not_asked_again(judge: Judge) -> None:
    crew, task, slow = team(), task_of("fan-4"), _Slow()
    agents: dict[str, Agent] = {"planner": slow, "coder": slow}
    plan = planned(crew, task)
    trace = execute(plan, task, agents, trial=Trial(7), judge=judge, clock=RealClock())
    timed = timing(trace)
    assert (trace.world, trace.clock, trace.outcome.passed) == ("live", "relative", True)
    assert timed.makespan < 1.0 < 1.2 < timed.work
    assert _span(trace.events[0])[0] == 0
    assert abs(trace.extra["run"]["began_s"] - time.time()) < 60
    slow.asked.clear()
    again = with_answers(plan, decode(encode(trace)), but={"write:p2", "merge", "stop"})
    other = execute(again, task, agents, trial=Trial(7), judge=judge, clock=RealClock())
    assert sorted(slow.asked) == ["aggregate", "stop", "write"]
    assert (other.outcome, other.candidates) == (trace.outcome, trace.candidates)


class _Kept:
    """Answers at once what took a while when it was asked first."""

    def act(self, request: Request) -> Response:
        """Answer right."""
        took_s = 0.2 if request.purpose in ("plan", "assign") else 0.0
        return msgspec.structs.replace(Simulated(msgspec.convert(PERFECT, Component)).act(request), duration_s=took_s)


def test_on_a_real_clock_answers_that_are_kept_last_as_long_as_they_did(judge: Judge) -> None:
    crew, task, began_s = team(assignment="asked"), task_of("chain-3"), time.perf_counter()
    clock = RealClock()
    agents: dict[str, Agent] = {"planner": _Kept(), "coder": _Kept()}
    trace = execute(plan_for(crew, task, trial=FIRST, agents=agents), task, agents, trial=FIRST, judge=judge, clock=clock)
    plan = trace.events[0]
    assert (plan.event_id, plan.t_start_s) == ("plan", 0.0)
    assert 0.8 <= (plan.t_end_s or 0) < 1.1  # one answer about the split, three about who gets what
    assert time.perf_counter() - began_s < 2
    assert all((event.t_start_s or 0) >= 0.8 for event in trace.events[1:])


@pytest.mark.parametrize(
    ("fields", "n"), [({}, 1), ({"split": "asked"}, 1), ({"assignment": "asked"}, 5), ({"strategy": "asked"}, 2)]
)
def test_what_the_lead_was_asked_before_the_plan_is_the_first_event_with_all_its_tokens(
    fields: dict[str, Any], n: int, judge: Judge
) -> None:
    crew, task = team(**fields), task_of("fan-4")
    noted = {name: _Noted(agent) for name, agent in agents_of(crew).items()}
    trace = played(crew, task, judge, agents=noted)
    first, asked = trace.events[0], noted["planner"].answers[:n]
    assert (first.event_id, first.kind, first.action) == ("plan", "act", "model_call")
    assert first.input_tokens == sum(answer.input_tokens or 0 for answer in asked)
    assert first.output_tokens == sum(answer.output_tokens or 0 for answer in asked)
    assert _span(first) == pytest.approx((0, sum(answer.duration_s for answer in asked)))
    assert [claim.proposition for claim in trace.claims if claim.event_id == "plan"] == ["plan_ok"]
    answers = [answer for one in noted.values() for answer in one.answers]
    assert sum(event.output_tokens or 0 for event in trace.events) == sum(answer.output_tokens or 0 for answer in answers)


class _Noted:
    """An agent as it is, whose answers are kept."""

    def __init__(self, other: Agent) -> None:
        self._other, self.answers = other, list[Response]()

    def act(self, request: Request) -> Response:
        """Answer as the other does."""
        self.answers.append(self._other.act(request))
        return self.answers[-1]


def test_who_tells_others_of_its_part_knows_what_was_handed_to_it_and_no_more(judge: Judge) -> None:
    told: dict[str, Request] = {}

    class Asked:
        def act(self, request: Request) -> Response:
            if request.purpose == "message":
                told[request.part or ""] = request
            return Simulated(msgspec.convert(PERFECT, Component)).act(request)

    crew, task = team(upstream="told", package=["signatures"]), task_of("chain-3")
    played(crew, task, judge, agents={**agents_of(crew), "coder": Asked()})
    assert told.keys() == {"p1", "p2"}
    assert told["p2"].package == package_of(task, ["p2"], ["signatures"], needs=["p1"])


@pytest.mark.parametrize("name", ["overconfident-planner", "best-of-three", "dominant-agent"])
def test_recorded_choices_change_nothing_else_and_a_replay_with_them_gives_the_same_bytes(name: str, judge: Judge) -> None:
    (job,) = jobs_of(recipes("diamond", 1, seed=7), [TEAMS[name]], n_trials=1, seed=7)
    plain, noted = run_job(job, judge), run_job(job, judge, records=True)
    run = dict(noted.extra["run"])
    assert run.pop("decisions")
    assert msgspec.structs.replace(noted, extra={"run": run}) == plain
    line = encode(noted)
    assert encode(replay(decode(line), judge)) == line
    assert {row.component for row in rows_of(decode(line))} <= set(job.team.roles)


class _Mute:
    def act(self, request: Request) -> Response:
        """Fail, as an endpoint does that does not answer."""
        return Response(error="timeout after 30 s")


def test_an_agent_that_does_not_answer_leaves_a_hole_and_the_run_goes_on(judge: Judge) -> None:
    crew, task = team(), task_of("fan-4")
    plan = planned(crew, task)
    trace = execute(plan, task, {"planner": agents_of(crew)["planner"], "coder": _Mute()}, trial=Trial(7), judge=judge)
    assert [event.error for event in trace.events if event.action == "model_call"][1:] == ["timeout after 30 s"] * 4
    assert trace.outcome.source == "sandbox"
    assert (trace.outcome.passed, [c.subtask_id for c in trace.candidates]) == (False, [None])
    assert {s.passes_alone for s in trace.subtasks} == {None}


def _faulty() -> list[tuple[Plan, str]]:
    plan = planned(team(), task_of("fan-4"))
    give, spawn = plan.step("give:p1"), plan.step("spawn")
    assert isinstance(give, Delegate)
    assert isinstance(spawn, Spawn)
    edit = msgspec.structs.replace
    return [
        (edit(plan, steps=(*plan.steps, give)), "give:p1: a step of this id stands there twice"),
        (with_step(plan, edit(give, after=("gone",))), r"give:p1: it names a step that is not there \(got gone\)"),
        (with_step(plan, edit(give, to="nobody")), r"it names an agent that is not in the team \(got nobody\)"),
        (with_step(plan, edit(give, subtasks=("p9",))), r"give:p1: it names a subtask that is not there \(got p9\)"),
        (with_step(plan, edit(give, delay_s=-1.0)), r"give:p1: it cannot begin before its causes \(got delay_s = -1.0\)"),
        (with_step(plan, edit(spawn, after=("give:p1",))), "it waits for itself, through the steps it comes after"),
    ]


@pytest.mark.parametrize(("plan", "words"), _faulty(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_plan_that_cannot_be_executed_is_refused_with_its_step(plan: Plan, words: str) -> None:
    with pytest.raises(TeamError, match=f"plan of test: .*{words}"):
        check(plan)


def test_a_record_is_written_without_its_defaults_also_where_they_were_read_or_sent() -> None:
    for crew in TEAMS.values():
        for record in (crew, planned(crew, task_of("tree-2x3"))):
            short, whole = plain(record), msgspec.json.decode(msgspec.json.encode(record))
            assert len(msgspec.json.encode(short)) < len(msgspec.json.encode(whole))
            assert msgspec.convert(short, type(record)) == msgspec.convert(whole, type(record)) == record
            assert plain(msgspec.convert(whole, type(record))) == plain(pickle.loads(pickle.dumps(record))) == short


def test_a_plan_survives_json() -> None:
    for crew in TEAMS.values():
        plan = planned(crew, task_of("tree-2x3"))
        assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan == check(plan)
