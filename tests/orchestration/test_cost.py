"""What a run cost and what single agents did: C20 of the reference, nested tokens, gains at unequal quality, answers."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from analysis.model import Event, Groups, Outcome, Task, Trace
from analysis.orchestration.cost import Baseline, baselines, n_tokens, own_tokens, task_key, token_efficiency, unanswered
from analysis.orchestration.measure import Metric
from analysis.orchestration.metrics import metrics
from analysis.orchestration.timing import timing
from tests.orchestration.runs import event, run


def named(trace: Trace, **given: Any) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics(trace, **given)}


def spending(name: str, tokens: int, passed: bool | None) -> Trace:
    return run(event("a", "x", output_tokens=tokens), trace_id=name, task=Task(task_id=name), outcome=Outcome(passed=passed))


def test_c20_token_efficiency_of_runs_is_a_ratio_of_sums() -> None:
    both = [spending("1", 10_000, True), spending("2", 30_000, False)]
    found = token_efficiency(both, rng=np.random.default_rng(0))
    assert (found.value, found.n, found.variant) == (0.025, 2, "ratio of sums")
    assert (found.low, found.high) == (0, pytest.approx(0.1))
    alone = [named(trace)["token_efficiency"].value for trace in both]
    assert alone == [0.1, 0]
    assert sum(alone) / 2 == 0.05


def test_runs_without_outcome_or_tokens_do_not_enter_token_efficiency() -> None:
    rows = [spending("1", 10_000, True), spending("2", 5_000, None), run(event("a", "x"), outcome=Outcome(passed=True))]
    assert token_efficiency(rows, rng=np.random.default_rng(0)).n == 1
    nothing = token_efficiency(rows[1:], rng=np.random.default_rng(0))
    assert (nothing.value, nothing.reason) == (None, "no run has both a known outcome and tokens")


def steps(n: int) -> list[Event]:
    return [event(f"e{k}", "ab"[k % 2]) for k in range(n)]


def test_c20_overhead_and_efficiency_in_steps() -> None:
    """27.7 turns against 7.2: ten times the steps give the same ratios; of all runs 46.3 % pass."""
    alone = Baseline(n_runs=1, n_outcomes=0, p_passed=None, makespan={}, tokens=None, n_steps=72)
    found = named(run(*steps(277), task=Task(task_id="t"), outcome=Outcome(passed=True)), baseline={("recorded", "t"): alone})
    assert found["overhead_steps_rate"].value == pytest.approx(2.847, abs=5e-4)
    assert 0.463 * (found["step_efficiency"].value or 0) == pytest.approx(0.1203, abs=5e-5)


def solo(trial: int, *, passed: bool | None, seconds: float | None, tokens: int | None) -> Trace:
    rows = [event("a", "solo", 0 if seconds else None, seconds, output_tokens=tokens), event("r", "solo", action="tool_result")]
    return run(*rows, trace_id=f"solo {trial}", task=Task(task_id="t"), outcome=Outcome(passed=passed))


def test_the_baseline_is_the_mean_of_the_runs_by_one_agent() -> None:
    team = run(event("a", "x", 0, 1), event("b", "y", 0, 1), task=Task(task_id="t"))
    runs = [
        solo(1, passed=True, seconds=4, tokens=100),
        solo(2, passed=False, seconds=8, tokens=None),
        solo(3, passed=None, seconds=None, tokens=300),
        team,
    ]
    mean = Baseline(n_runs=3, n_outcomes=2, p_passed=0.5, makespan={"clock": 6, "tokens": 300}, tokens=200, n_steps=1)
    assert baselines(runs) == {("recorded", "t"): mean}


def test_runs_without_a_task_or_without_an_agent_are_no_baseline() -> None:
    assert baselines([run(event("a", "x")), run(event("a"), task=Task(task_id="t")), run(task=Task(task_id="t"))]) == {}


def test_the_group_names_the_task_before_its_id_does() -> None:
    trace = run(task=Task(task_id="t"), groups=Groups(task="g"))
    assert (task_key(trace), task_key(run(task=Task(task_id="t"))), task_key(run())) == ("g", "t", None)


def team(passed: bool | None) -> Trace:
    rows = [event("a", "x", 0, 3, output_tokens=150), event("b", "y", 0, 3, output_tokens=150)]
    return run(*rows, task=Task(task_id="t"), outcome=Outcome(passed=passed))


@pytest.mark.parametrize(
    ("passed", "gain", "note"), [(True, 0.5, ""), (False, -0.5, ", at lower quality"), (None, None, ", quality not known")]
)
def test_a_gain_says_whether_quality_is_equal(passed: bool | None, gain: float | None, note: str) -> None:
    known = baselines([solo(1, passed=True, seconds=4, tokens=100), solo(2, passed=False, seconds=8, tokens=300)])
    found = named(team(passed), baseline=known)
    assert (found["gain_passed"].value, found["gain_passed"].n) == (gain, 2)
    assert (found["q_parallel_baseline"].value, found["q_parallel_baseline"].variant) == (2, "clock" + note)
    assert (found["overhead_tokens_rate"].value, found["overhead_tokens_rate"].variant) == (0.5, "input + output tokens" + note)
    beside = {name: found[f"baseline_{name}"].value for name in ("passed", "makespan_s", "tokens")}
    assert beside == {"passed": 0.5, "makespan_s": 6, "tokens": 200}


def test_a_run_is_measured_against_single_agents_of_its_own_world_only() -> None:
    """A recorded team that took 300 tokens: of the single agents one was recorded with 100, one simulated with 900."""
    made_up = msgspec.structs.replace(solo(2, passed=False, seconds=8, tokens=900), world="simulated")
    known = baselines([solo(1, passed=True, seconds=4, tokens=100), made_up])
    assert {key: (found.n_runs, found.tokens) for key, found in known.items()} == {
        ("recorded", "t"): (1, 100), ("simulated", "t"): (1, 900),
    }  # fmt: skip
    assert named(team(True), baseline=known)["baseline_tokens"].value == 100
    alone = named(team(True), baseline=baselines([made_up]))
    assert (alone["gain_passed"].value, alone["gain_passed"].reason) == (
        None, "no run of the task by a single agent in this world"
    )  # fmt: skip


def test_without_a_baseline_gains_are_absent_and_so_are_those_of_the_baseline_itself() -> None:
    gains = (
        "gain_passed",
        "q_parallel_baseline",
        "overhead_tokens_rate",
        "overhead_steps_rate",
        "step_efficiency",
        "baseline_passed",
    )
    assert {named(team(True))[name].reason for name in gains} == {"no run of the task by a single agent in this world"}
    alone = solo(1, passed=True, seconds=4, tokens=100)
    assert {named(alone, baseline=baselines([alone]))[name].reason for name in gains} == {"this run is itself by a single agent"}


def test_makespans_of_different_bases_are_never_compared() -> None:
    known = baselines([solo(1, passed=True, seconds=None, tokens=100)])
    found = named(team(True), baseline=known)
    assert found["q_parallel_baseline"].reason == "the runs by single agents have no clock time"
    assert found["baseline_makespan_s"].reason == "no run by a single agent has a clock"


def test_a_baseline_survives_its_way_through_json() -> None:
    known = baselines([solo(1, passed=True, seconds=4, tokens=100)])
    assert msgspec.convert(msgspec.to_builtins(known["recorded", "t"]), Baseline) == known["recorded", "t"]


# Tokens


def nested_tokens(outer: int | None, *inner: int | None) -> tuple[int | None, ...]:
    rows = [event("agent", "x", 0, 10, output_tokens=outer)]
    rows += [event(f"call {k}", "x", 1 + k, 2 + k, after=["agent"], output_tokens=tokens) for k, tokens in enumerate(inner)]
    return own_tokens(timing(run(*rows)))


def test_a_span_that_includes_the_tokens_of_its_calls_counts_only_the_rest() -> None:
    assert nested_tokens(100, 100) == (0, 100)
    assert nested_tokens(130, 60, 40) == (30, 60, 40)


def test_a_span_with_fewer_tokens_than_its_calls_does_not_include_them() -> None:
    assert nested_tokens(50, 60, 40) == (50, 60, 40)
    assert nested_tokens(None, 60, None) == (None, 60, None)


def test_three_levels_that_repeat_one_count_are_counted_once() -> None:
    rows = [
        event("a", "x", 0, 10, output_tokens=100),
        event("b", "x", 1, 9, after=["a"], output_tokens=100),
        event("c", "x", 2, 8, after=["b"], input_tokens=90, output_tokens=10),
    ]
    timed = timing(run(*rows))
    assert own_tokens(timed) == (0, 0, 100)
    assert n_tokens(timed) == 100


def test_calls_side_by_side_of_one_agent_each_keep_their_tokens() -> None:
    timed = timing(run(event("a", "x", 0, 5, output_tokens=100), event("b", "x", 1, 4, output_tokens=80)))
    assert n_tokens(timed) == 180


def test_overhead_is_the_share_of_tokens_that_decisions_take() -> None:
    kinds = ["spawn", "delegate", "communicate", "aggregate", "stop", "act", None]
    found = named(run(*[event(str(k), "x", kind=kind, output_tokens=10) for k, kind in enumerate(kinds)]))
    assert found["overhead_rate"].value == pytest.approx(50 / 70)
    assert (found["tokens"].value, found["n_steps"].value, found["n_agents"].value) == (70, 6, 1)


def test_without_tokens_no_token_metric() -> None:
    found = named(run(event("a", "x"), outcome=Outcome(passed=True)))
    assert {found[name].reason for name in ("tokens", "overhead_rate", "token_efficiency")} == {"no event states tokens"}
    assert named(run(event("a", "x", output_tokens=5)))["token_efficiency"].reason == "the outcome is not known"


# Answers


def waiting(*events: Event) -> list[str]:
    timed = timing(run(*events))
    return [timed.graph.events[n].event_id for n in unanswered(timed)]


def delegate(name: str, agent: str, *targets: str, **fields: Any) -> Event:
    return event(name, agent, kind="delegate", targets=targets, **fields)


def test_an_answer_is_addressed_to_another_agent_or_causes_what_another_does() -> None:
    assert waiting(delegate("d", "lead", "w"), event("a", "w", after=["d"])) == ["d"]
    assert waiting(delegate("d", "lead", "w"), event("a", "w", after=["d"], targets=("lead",))) == []
    assert waiting(delegate("d", "lead", "w"), event("a", "w", after=["d"]), event("m", "lead", after=["a"])) == []
    assert waiting(event("a", "w", targets=("lead",)), delegate("d", "lead", "w")) == ["d"]


def test_work_within_the_delegating_call_is_an_answer() -> None:
    assert waiting(event("d", "lead", 0, 9, kind="delegate", targets=("w",)), event("a", "w", 1, 8, after=["d"])) == []
    assert waiting(event("d", "lead", 0, 9, kind="delegate", targets=("w",)), event("a", "w", 1, 12, after=["d"])) == ["d"]


def test_failed_delegations_and_those_to_nobody_else_wait_for_nothing() -> None:
    assert waiting(delegate("d", "lead", "w", error="no such agent"), delegate("e", "lead"), delegate("f", "lead", "lead")) == []


def test_finish_rate() -> None:
    rows = [delegate("d", "lead", "v"), delegate("e", "lead", "w"), event("a", "v", after=["d"], targets=("lead",))]
    found = named(run(*rows))["finish_rate"]
    assert (found.value, found.n) == (0.5, 2)
    assert named(run(event("a", "x")))["finish_rate"].reason == "no delegation names another agent"
