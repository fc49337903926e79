"""The qualities against cases worked out by hand: C7 and C10 to C15 of the reference, and what is absent, and why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.model import Candidate, Outcome, Subtask, Task, Trace
from analysis.orchestration.measure import Metric
from analysis.orchestration.metrics import metrics
from analysis.orchestration.quality import aggregate_metrics, split_metrics, work_by_agent
from analysis.orchestration.timing import timing
from tests.orchestration.runs import event, run, runs
from tests.orchestration.test_timing import padded


def named(trace: Trace, **given: Any) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics(trace, **given)}


def value(trace: Trace, name: str) -> float | None:
    return named(trace)[name].value


# q_work


def offered(candidate_id: str, n_passed: int | None, n_tests: int | None, **fields: Any) -> Candidate:
    return Candidate(candidate_id=candidate_id, n_passed=n_passed, n_tests=n_tests, **fields)


def test_q_work_is_the_pass_rate_of_the_last_candidate_of_each_own_subtask() -> None:
    trace = run(
        event("a1", "a"), event("a2", "a"), event("b1", "b"),
        subtasks=(Subtask(subtask_id="s", agent_id="a"), Subtask(subtask_id="t", agent_id="b")),
        candidates=(
            offered("late", 4, 4, event_id="a2", subtask_id="s"), offered("early", 0, 4, event_id="a1", subtask_id="s"),
            offered("other", 1, 2, event_id="b1", agent_id="b", subtask_id="t"), offered("whole", 0, 9, event_id="b1"),
        ),
    )  # fmt: skip
    by_agent = work_by_agent(trace, timing(trace))
    assert {agent: (m.value, m.variant, m.n) for agent, m in by_agent.items()} == {"a": (1, "tests", 4), "b": (0.5, "tests", 2)}
    whole = named(trace)["q_work"]
    assert (whole.value, whole.variant, whole.n) == (pytest.approx(5 / 6), "tests", 6)
    assert whole.low == pytest.approx(0.4365, abs=5e-4)
    assert whole.high == pytest.approx(0.9699, abs=5e-4)


def test_without_tests_q_work_is_the_share_of_subtasks_that_pass_alone() -> None:
    trace = run(
        event("a1", "a", error="x"),
        subtasks=tuple(Subtask(subtask_id=str(k), agent_id="a", passes_alone=k > 0) for k in range(4)),
    )
    assert (named(trace)["q_work"].value, named(trace)["q_work"].variant) == (0.75, "subtasks")


def test_without_subtasks_q_work_is_the_share_of_own_steps_without_error() -> None:
    rows = [
        event("1", "a"),
        event("2", "a", error="timeout"),
        event("3", "a", action="input"),
        event("4", "a", kind="communicate", error="x"),
        event("5", "b"),
    ]
    trace = run(*rows)
    assert (named(trace)["q_work"].value, named(trace)["q_work"].variant, named(trace)["q_work"].n) == (
        pytest.approx(2 / 3),
        "acts",
        3,
    )
    assert {agent: m.value for agent, m in work_by_agent(trace, timing(trace)).items()} == {"a": 0.5, "b": 1}


def test_without_own_work_q_work_is_absent() -> None:
    trace = run(event("1", "a", kind="communicate"))
    reason = "no tests of own subtasks and no `act` events"
    assert named(trace)["q_work"] == Metric("q_work", None, "", 0, None, None, reason)
    assert work_by_agent(trace, timing(trace))["a"].reason == reason


def test_the_variant_of_one_agent_is_not_that_of_another() -> None:
    trace = run(event("1", "a"), event("2", "b"), candidates=(offered("c", 1, 2, agent_id="a"),))
    assert {agent: (m.value, m.variant) for agent, m in work_by_agent(trace, timing(trace)).items()} == {
        "a": (0.5, "tests"),
        "b": (1, "acts"),
    }


# q_parallel


def test_c7_padding_raises_the_speed_up_but_neither_the_useful_one_nor_the_one_over_a_single_agent() -> None:
    from analysis.orchestration.cost import baselines

    alone = run(event("all", "solo", 0, 6), trace_id="alone", task=Task(task_id="t"))
    team = padded()
    trace = run(*team.events, is_ordered=False, task=Task(task_id="t"))
    found = named(trace, baseline=baselines([alone, trace]))
    assert [
        (found[f"q_parallel_{kind}"].value, found[f"q_parallel_{kind}"].variant) for kind in ("self", "useful", "baseline")
    ] == [
        (3, "clock"),
        (1, "clock"),
        (1, "clock, quality not known"),
    ]
    assert found["utilisation_act"].value == pytest.approx(1 / 3)


def test_without_a_clock_the_speed_up_says_so() -> None:
    trace = run(event("p", "lead"), event("a", "a", after=["p"]), event("b", "b", after=["p"]))
    assert (named(trace)["q_parallel_self"].value, named(trace)["q_parallel_self"].variant) == (1.5, "events")
    assert named(trace)["q_parallel_useful"].reason == "no stop or aggregate event says what the run came to"
    assert named(trace)["work_s"].reason == "no clock: 0 of 3 events have a duration"


def test_a_run_that_took_no_time_has_no_speed_up() -> None:
    found = named(run(event("a", "x", 1, 1), event("b", "y", 1, 1)))["q_parallel_self"]
    assert (found.value, found.reason) == (None, "it would divide by zero: nothing took any time or tokens")


# q_split


def split(requirements: int, *subtasks: tuple[str, bool | None, bool | None]) -> dict[str, Metric]:
    rows = tuple(
        Subtask(subtask_id=str(k), covers=tuple(covers), passes_alone=alone, passes_upstream=upstream)
        for k, (covers, alone, upstream) in enumerate(subtasks)
    )
    task = Task(requirements=tuple(str(k + 1) for k in range(requirements)))
    return {metric.name.removeprefix("q_split_"): metric for metric in split_metrics(run(subtasks=rows, task=task))}


def values(found: dict[str, Metric]) -> dict[str, float | None]:
    return {name: metric.value for name, metric in found.items()}


def test_c10_q_split() -> None:
    found = split(6, ("12", True, None), ("23", True, None), ("4", True, None), ("5", False, None))
    assert values(found) == {
        "solvable": 0.75, "complete": pytest.approx(5 / 6), "q_split": pytest.approx(0.625), "redundancy": pytest.approx(1 / 6),
        "hidden_dependency": None,
    }  # fmt: skip
    assert found["hidden_dependency"].reason == "of no subtask is it known whether it passes alone and with its true inputs"
    assert {name: metric.n for name, metric in found.items() if metric.value} == {
        "solvable": 4,
        "complete": 6,
        "q_split": 4,
        "redundancy": 4,
    }


def test_c11_a_perfect_split_and_one_with_a_hidden_dependency() -> None:
    fine = split(4, ("1", True, True), ("2", True, True), ("3", True, True), ("4", True, True))
    assert values(fine) == {"solvable": 1, "complete": 1, "q_split": 1, "redundancy": 0, "hidden_dependency": 0}
    hidden = split(4, ("1", True, True), ("2", True, True), ("3", True, True), ("4", False, True))
    assert values(hidden) == {"solvable": 0.75, "complete": 1, "q_split": 0.75, "redundancy": 0, "hidden_dependency": 0.25}


def test_c12_a_trivial_split_is_flagged_and_none_at_all_is_absent() -> None:
    trivial = split(1, ("1", True, True))
    assert (trivial["q_split"].value, trivial["q_split"].variant) == (1, "trivial")
    assert {metric.reason for metric in split(3).values()} == {"the trace states no subtasks"}
    no_units = split(0, ("", True, True), ("", True, True))
    assert (no_units["q_split"].value, no_units["q_split"].reason) == (None, "the task states no requirement units")
    assert no_units["solvable"].value == 1


def test_units_that_the_task_does_not_have_are_not_covered() -> None:
    assert split(2, ("19", True, True), ("1", True, True))["complete"].value == 0.5


# q_aggregate


def merged(parts: list[float], whole: float, kind: str | None) -> dict[str, tuple[float | None, str]]:
    return {
        m.name.removeprefix("q_aggregate").removeprefix("_"): (m.value, m.variant) for m in aggregate_metrics(parts, whole, kind)
    }


def test_c13_composition() -> None:
    found = merged([0.8, 0.6, 0.9], 0.6, "composition")
    assert found == {
        "": (1, "composition, min"), "max": (pytest.approx(0.6667, abs=5e-5), "max"), "min": (1, "min"),
        "independent": (pytest.approx(1.3889, abs=5e-5), "composition, independent"),
    }  # fmt: skip


def test_c14_alternatives() -> None:
    found = merged([0.5, 0.4, 0.3], 0.62, "alternatives")
    assert found[""] == (pytest.approx(1.24), "alternatives, max")
    assert found["independent"] == (pytest.approx(0.7848, abs=5e-5), "alternatives, independent")


def test_c15_all_parts_zero() -> None:
    nothing = list(aggregate_metrics([0.0, 0.0], 0.0, "alternatives"))
    assert {m.reason for m in nothing} == {"0 / 0: the whole fails as its parts do, so the merge cannot be judged"}
    wonder = list(aggregate_metrics([0.0, 0.0], 0.1, "alternatives"))
    assert {m.reason for m in wonder} == {"infinite: the whole passes (0.1) though its parts do not"}
    assert all(m.value is None for m in (*nothing, *wonder))


def test_an_unknown_merge_kind_leaves_the_forms_that_need_none() -> None:
    found = {m.name: m for m in aggregate_metrics([0.5, 1.0], 0.5, "partition-quote")}
    assert (found["q_aggregate_max"].value, found["q_aggregate_min"].value) == (0.5, 1)
    assert found["q_aggregate"].reason == "the merge kind is 'partition-quote', neither composition nor alternatives"
    assert found["q_aggregate_independent"].value is None


def merging(*candidates: Candidate, kind: str = "composition", **fields: Any) -> Metric:
    rows = [
        event("a", "a"), event("b", "b"), event("m1", "lead", kind="aggregate", merge_kind=kind, merge_points=("a", "b")),
        event("b2", "b"), event("m2", "lead", kind="aggregate", merge_kind=kind, merge_points=("m1", "b2")),
    ]  # fmt: skip
    return named(run(*rows, candidates=candidates, **fields))["q_aggregate"]


def test_a_merge_of_a_merge_takes_the_latest_candidate_of_each_part() -> None:
    parts = [
        offered("1", 2, 2, event_id="a", subtask_id="s"),
        offered("2", 0, 2, event_id="b", subtask_id="t"),
        offered("3", 2, 2, event_id="b2", subtask_id="t"),
    ]
    found = merging(*parts, offered("w", 5, 5, event_id="m2"))
    assert (found.value, found.n, found.variant) == (1, 2, "composition, min")
    assert merging(*parts[:2], offered("w", 4, 5, event_id="m2")).reason.startswith("0 / 0")


def test_several_samples_of_a_part_give_its_pass_at_1() -> None:
    parts = [offered(f"a{k}", 2 - (k > 2), 2, event_id="a", subtask_id="s") for k in range(4)]
    found = merging(*parts, offered("w", 5, 5, event_id="m2"), kind="alternatives")
    assert found.value == pytest.approx(1 / 0.75)


def test_the_outcome_stands_in_for_an_untested_whole() -> None:
    part = offered("1", 2, 2, event_id="a", subtask_id="s")
    assert merging(part, outcome=Outcome(passed=True)).value == 1
    assert merging(part).reason == "neither the whole nor the run was tested"


def test_why_a_merge_cannot_be_judged() -> None:
    assert merging().reason == "no candidate stands at an event that was merged"
    assert merging(offered("1", None, None, event_id="a", subtask_id="s")).reason == "1 of 1 merged parts have no tests"
    assert named(run(event("a", "a")))["q_aggregate"].reason == "no aggregate event"


# The axis of orchestration


def whole_team(**fields: Any) -> Trace:
    rows = [
        event("p", "lead", 0, 2, kind="delegate", targets=("a", "b")),
        event("a", "a", 2, 6, after=["p"]),
        event("b", "b", 2, 6, after=["p"]),
        event("m", "lead", 6, 8, kind="aggregate", merge_kind="composition", merge_points=("a", "b")),
        event("s", "lead", 8, 8, kind="stop", after=["m"]),
    ]
    return run(*rows, **fields)


def test_q_orchestration_is_the_mean_of_what_is_present() -> None:
    bare = named(whole_team())["q_orchestration"]
    assert (bare.value, bare.variant, bare.n) == (pytest.approx(12 / (3 * 8)), "parallel (useful, clock)", 1)
    subtasks = (
        Subtask(subtask_id="s", covers=("1",), passes_alone=True),
        Subtask(subtask_id="t", covers=("2",), passes_alone=False),
    )
    candidates = (offered("1", 2, 2, event_id="a", subtask_id="s"), offered("w", 3, 3, event_id="m"))
    full = named(whole_team(task=Task(requirements=("1", "2")), subtasks=subtasks, candidates=candidates))["q_orchestration"]
    assert (full.value, full.n) == (pytest.approx((0.5 + 0.5 + 1) / 3), 3)
    assert full.variant == "parallel (useful, clock) + split + aggregate"


def test_a_merge_of_alternatives_that_beats_its_parts_counts_as_one() -> None:
    samples = [offered(str(k), k, 1, event_id="a") for k in range(2)]
    rows = [event("a", "a"), event("m", "b", kind="aggregate", merge_kind="alternatives", merge_points=("a",))]
    found = named(run(*rows, candidates=(*samples, offered("w", 1, 1, event_id="m"))))
    assert found["q_aggregate"].value == 2
    assert (found["q_orchestration"].value, found["q_orchestration"].n) == (pytest.approx((0.5 + 1) / 2), 2)


def test_q_orchestration_takes_all_work_where_use_cannot_be_told() -> None:
    found = named(run(event("a", "a", 0, 4), event("b", "b", 0, 2)))["q_orchestration"]
    assert (found.value, found.variant) == (pytest.approx(6 / 8), "parallel (self, clock)")


def test_a_single_agent_has_no_orchestration_to_judge() -> None:
    assert named(run(event("a", "a", 0, 4)))["q_orchestration"].reason == "fewer than two agents act"


def test_where_nothing_is_known_q_orchestration_is_absent() -> None:
    found = named(run(event("a", "a", 0, 4), event("b", "b", 0, 2), *[event(str(k), None, 0, 2) for k in range(3)]))[
        "q_orchestration"
    ]
    assert (found.value, found.reason) == (None, "neither q_parallel nor q_split nor q_aggregate is known")


@given(runs(), st.booleans())
def test_q_orchestration_lies_between_zero_and_one_and_own_work_never_enters(trace: Trace, passes: bool) -> None:
    worked = run(*trace.events, is_ordered=False, candidates=(offered("c", int(passes), 1, agent_id="a"),))
    found, other = named(worked)["q_orchestration"], named(run(*trace.events, is_ordered=False))["q_orchestration"]
    assert found == other
    assert found.value is None or 0 <= found.value <= 1 + 1e-9
