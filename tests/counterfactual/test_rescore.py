"""Recorded candidates scored anew: other merges of the same alternatives, earlier ends of the same run, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.rescore import STRATEGIES, aggregate, rescore, stop_earlier, stop_points
from analysis.errors import ReplayError
from analysis.model import Candidate, Outcome, Trace
from tests.orchestration.runs import event, run


def candidate(name: str, at: str, n_passed: int | None, program: str | None = None, **fields: Any) -> Candidate:
    return Candidate(candidate_id=name, event_id=at, n_passed=n_passed, n_tests=fields.pop("of", 4), program=program, **fields)


def ensemble(*given: tuple[int, str | None], kept: int = 0, merge: dict[str, Any] | None = None, **fields: Any) -> Trace:
    """Some agents answer one after the other, a merge keeps one of the answers, and the run stops."""
    writers = [event(f"w{n}", f"a{n}", n, n + 1, after=["go"]) for n in range(1, len(given) + 1)]
    names = tuple([e.event_id for e in writers])
    points = {"kind": "aggregate", "merge_kind": "alternatives", "merge_points": names, "strategy": "keep one", **(merge or {})}
    events = [event("go", "lead", 0, 1, kind="delegate"), *writers, event("m", "lead", 9, 10, after=names, **points)]
    offered = [candidate(f"c{n}", f"w{n}", passed, text) for n, (passed, text) in enumerate(given, 1)]
    n_passed = given[kept][0] if given else 0
    whole = candidate("whole", "m", n_passed)
    outcome = Outcome(passed=n_passed == 4, n_tests_passed=n_passed, n_tests=4)
    end = event("s", "lead", 10, 11, kind="stop", after=["m"])
    return run(*events, end, **{"candidates": (*offered, whole), "outcome": outcome, **fields})


def repair(*given: int, **fields: Any) -> Trace:
    """One agent hands in one whole result after the other, with 5 tokens of thought before each, and stops with the last."""
    events, offered = [], []
    for n, n_passed in enumerate(given, 1):
        before = [f"m{n - 1}"] if n > 1 else []
        events.append(event(f"t{n}", "lead", 2 * n, 2 * n + 1, after=before, output_tokens=5))
        events.append(event(f"m{n}", "lead", 2 * n + 1, 2 * n + 2, after=[f"t{n}"], kind="aggregate"))
        offered.append(candidate(f"whole{n}", f"m{n}", n_passed))
    events.append(event("s", "lead", 2 * len(given) + 2, 2 * len(given) + 3, after=[f"m{len(given)}"], kind="stop"))
    outcome = Outcome(passed=given[-1] == 4, n_tests_passed=given[-1], n_tests=4)
    return run(*events, **{"candidates": tuple(offered), "outcome": outcome, **fields})


THREE = ensemble((1, "x"), (4, "y"), (2, "x"))


@pytest.mark.parametrize(
    ("strategy", "picked", "rate"),
    [("first", "c1", 0.25), ("last", "c3", 0.5), ("vote", "c1", 0.25), ("best-by-tests", "c2", 1.0)],
)
def test_a_merge_by_another_rule_returns_another_candidate(strategy: str, picked: str, rate: float) -> None:
    found = rescore(THREE, aggregate("m", strategy))
    assert found.q == {"passed": 0.0, "tests_rate": 0.25}
    assert found.q_counterfactual == {"passed": float(rate == 1), "tests_rate": rate}
    assert found.delta_q["tests_rate"] == rate - 0.25
    assert (found.trace.outcome.source, found.trace.outcome.passed) == (f"candidate {picked}", rate == 1)
    assert [e.strategy for e in found.trace.events if e.kind == "aggregate"] == [strategy]
    assert found.downstream == ("s",)


def test_a_merge_that_picks_by_its_judges_tests_says_so() -> None:
    assert rescore(THREE, aggregate("m", "best-by-tests")).notes == (
        "picked by the tests that judge it: at best this can be reached",
    )
    assert rescore(THREE, aggregate("m", "vote")).notes == ()


def test_the_changed_merge_carries_what_it_picked() -> None:
    whole = next(c for c in rescore(THREE, aggregate("m", "last")).trace.candidates if c.candidate_id == "whole")
    assert (whole.event_id, whole.program, whole.n_passed) == ("m", "x", 2)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=6), st.data())
def test_no_rule_beats_the_best_and_of_equals_the_earliest_is_kept(passed: list[int], data: st.DataObject) -> None:
    trace = ensemble(*[(n, "same") for n in passed], kept=data.draw(st.integers(0, len(passed) - 1)))
    rates = {strategy: rescore(trace, aggregate("m", strategy)).q_counterfactual["tests_rate"] for strategy in STRATEGIES}
    assert rates["best-by-tests"] == max(passed) / 4
    assert rates["first"] == rates["vote"] == passed[0] / 4
    assert rates["last"] == passed[-1] / 4


def test_stopping_earlier_returns_the_latest_result_and_not_the_best() -> None:
    trace = repair(1, 4, 2, 3)
    assert stop_points(trace) == ("m1", "m2", "m3", "m4")
    curve = {name: rescore(trace, stop_earlier(name)) for name in ("m1", "t2", "m2", "m3")}
    assert {name: found.q_counterfactual["tests_rate"] for name, found in curve.items()} == {
        "m1": 0.25,
        "t2": 0.25,
        "m2": 1.0,
        "m3": 0.5,
    }
    assert {name: found.delta_q["tokens"] for name, found in curve.items()} == {"m1": -15, "t2": -10, "m2": -10, "m3": -5}
    assert curve["m2"].delta_q["makespan_s"] == -5
    assert curve["m2"].downstream == ("t3", "m3", "t4", "m4", "s")


def test_a_run_cut_short_ends_with_a_stop_of_our_own() -> None:
    made = rescore(repair(1, 4, 2), stop_earlier("m2")).trace
    assert [e.event_id for e in made.events] == ["t1", "m1", "t2", "m2", "m2+stop"]
    end = made.events[-1]
    assert (end.kind, end.basis, end.rule, end.parents, end.t_start_s, end.t_end_s) == (
        "stop",
        "synthetic",
        "stop-earlier",
        ("m2",),
        6,
        6,
    )
    assert [c.candidate_id for c in made.candidates] == ["whole1", "whole2"]
    assert made.outcome.passed is True


def test_what_another_agent_made_counts_only_once_it_is_known() -> None:
    events = [
        event("a", "x", 0, 1),
        event("b", "y", 2, 3),
        event("c", "y", 3, 4, after=["a"]),
        event("s", "y", 5, 6, kind="stop", after=["c"]),
    ]
    trace = run(*events, candidates=(candidate("w", "a", 4),), outcome=Outcome(passed=True))
    with pytest.raises(ReplayError, match="no tested result for the whole task was known there by then"):
        rescore(trace, stop_earlier("b"))
    assert rescore(trace, stop_earlier("c")).delta_q["passed"] == 0


UNTESTED = ensemble((1, "x"), (2, "y"), candidates=(), outcome=Outcome())
PARTS = ensemble((1, "x"), (2, "y"), merge={"merge_kind": "composition"})


@pytest.mark.parametrize(
    ("trace", "one", "text"),
    [
        (PARTS, aggregate("m", "vote"), "parts of a whole, which would have to be put together and tested again"),
        (UNTESTED, aggregate("m", "vote"), "0 candidates stand at the events that it merges, and a choice needs two"),
        (ensemble((1, "x")), aggregate("m", "first"), "1 candidates stand"),
        (ensemble((1, "x"), (2, None)), aggregate("m", "vote"), "nobody recorded what candidate c2 says"),
        (THREE, aggregate("m", "oracle"), r"the strategy is none of best-by-tests, vote, first, last \(got oracle\)"),
        (THREE, aggregate("w1", "vote"), r"the event merges nothing \(got act\)"),
        (THREE, Intervention("stop-later", "m"), "nobody recorded what the agents would have done next"),
        (THREE, Intervention("delay", "m"), "not one of those replayed here"),
        (repair(1, 2), stop_earlier("s"), "the run stopped at s, which is not later"),
        (repair(1, 2), stop_earlier("t1"), "no tested result for the whole task was known there by then"),
        (UNTESTED, stop_earlier("w1"), "no candidate for the whole task was tested"),
        (repair(4, 2, outcome=Outcome(passed=True, n_tests_passed=4, n_tests=4)), stop_earlier("m1"),
         "the run came to 4 of 4 tests, not to its latest whole result whole2"),
        (ensemble((1, "x"), (2, "y"), outcome=Outcome(passed=True)), aggregate("m", "last"),
         "it made 1 of 4 tests, and the run came to a pass: something else was returned"),
    ],
)  # fmt: skip
def test_what_the_candidates_do_not_say_is_refused_with_the_reason(trace: Trace, one: Intervention, text: str) -> None:
    with pytest.raises(ReplayError, match=text):
        rescore(trace, one)


def test_candidates_tested_otherwise_than_the_run_answer_another_question() -> None:
    short = tuple([msgspec.structs.replace(c, n_tests=2) if c.event_id == "w1" else c for c in THREE.candidates])
    with pytest.raises(ReplayError, match="the run was judged by 4 tests and candidate c1 by 2 tests"):
        rescore(msgspec.structs.replace(THREE, candidates=short), aggregate("m", "last"))


def test_a_result_that_somebody_works_on_with_cannot_be_exchanged() -> None:
    more = event("edit", "lead", 10, 12, after=["m"])
    trace = msgspec.structs.replace(THREE, events=(*THREE.events, msgspec.structs.replace(more, order=99)))
    with pytest.raises(ReplayError, match="edit works on with the result, and nobody recorded its answer"):
        rescore(trace, aggregate("m", "last"))


def test_the_same_result_is_the_identity() -> None:
    assert set(rescore(THREE, aggregate("m", "first")).delta_q.values()) == {0.0}
