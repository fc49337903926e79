"""Outcomes as quotes: what is a fact, from when on, and what it is held against."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from analysis import readers
from analysis.coherence import residuals
from analysis.coherence.couplings import default_couplings, relations_for
from analysis.coherence.verdicts import comparable, tied, verdict_claims
from analysis.model import Candidate, Claim, Event, Outcome, Relation, Source, Subtask, Trace
from analysis.readers import Fragment


def trace(format: str = "counterpoint", **fields: object) -> Trace:
    return Trace(trace_id="t", world="recorded", source=Source(format=format), **fields)  # type: ignore[arg-type]


def claim(proposition: str, p: float, *, turn: int | None = None, component: str = "Orchestrator", **fields: object) -> Claim:
    name = f"{component}.{proposition}.{turn}"
    return Claim(claim_id=name, component=component, proposition=proposition, p=p, turn=turn, **fields)  # type: ignore[arg-type]


def stated(of: Trace) -> dict[str, float]:
    return {fact.proposition: fact.p for fact in verdict_claims(of)}


def final(of: Trace) -> tuple[float | None, list[str]]:
    facts, relations = tied(of, of.claims, default_couplings())
    (level,) = residuals([*of.claims, *facts], [*of.relations, *relations], np.random.default_rng(0))
    return level.final.residual, [violation.relation for violation in level.final.violated or ()]


def test_what_the_source_states_becomes_facts_and_nothing_else_does() -> None:
    full = trace(
        events=(Event(event_id="e1", turn=1), Event(event_id="e2", turn=3)),
        outcome=Outcome(passed=True, n_tests_passed=6, n_tests=7),
        candidates=(
            Candidate(candidate_id="c1", event_id="e1", subtask_id="parser", n_passed=1, n_tests=2),
            Candidate(candidate_id="c2", event_id="gone", n_passed=2, n_tests=2),
            Candidate(candidate_id="c3"),
        ),
        subtasks=(Subtask(subtask_id="fix-1", passes_alone=False), Subtask(subtask_id="b")),
    )
    fields = {"kind": "verdict", "basis": "derived", "level": "component"}
    tests = {"component": "tests", **fields}
    tried = {"rule": "candidate-tests", **tests}
    assert verdict_claims(full) == (
        Claim(claim_id="v:passed", component="outcome", proposition="passed", p=1.0, turn=3, rule="outcome-passed", **fields),
        Claim(claim_id="v:tests", proposition="tests_ok", p=0.0, turn=3, rule="outcome-tests", **tests),
        Claim(claim_id="v:candidate:c1", proposition="parser_tests_ok", p=0.0, turn=1, event_id="e1", **tried),
        Claim(claim_id="v:candidate:c2", proposition="c2_tests_ok", p=1.0, turn=3, event_id="gone", **tried),
        Claim(claim_id="v:subtask:fix-1", proposition="fix-1_ok", p=0.0, turn=3, rule="subtask-passes-alone", **tests),
    )
    assert verdict_claims(trace()) == ()


@pytest.mark.parametrize(("n_passed", "n_tests"), [(None, 3), (3, None), (0, 0), (4, 3)])
def test_counts_that_say_nothing_or_cannot_be_right_state_nothing(n_passed: int | None, n_tests: int | None) -> None:
    of = trace(
        outcome=Outcome(n_tests_passed=n_passed, n_tests=n_tests),
        candidates=(Candidate(candidate_id="c", n_passed=n_passed, n_tests=n_tests),),
    )
    assert stated(of) == {}


def test_a_score_without_a_verdict_is_no_verdict() -> None:
    assert stated(trace(outcome=Outcome(score=5.0, score_scale=(1.0, 5.0)))) == {}


def test_a_false_claim_of_success_is_off_by_one_over_root_two_and_named() -> None:
    of = trace("whowhen", claims=(claim("request_satisfied", 1.0, turn=4),), outcome=Outcome(passed=False))
    residual, violated = final(of)
    assert residual == pytest.approx(0.707107, abs=1e-6)
    assert violated == ["implies(request_satisfied, passed)"]


def test_not_satisfied_yet_is_not_held_against_the_end() -> None:
    said = [claim("request_satisfied", p, turn=n) for n, p in enumerate((0.0, 0.0, 1.0), 1)]
    of = trace("whowhen", claims=tuple(said), outcome=Outcome(passed=True))
    facts, relations = tied(of, of.claims, default_couplings())
    (level,) = residuals([*said, *facts], relations, np.random.default_rng(0))
    assert [(turn.turn, turn.residual) for turn in level.turns] == [(1, 0.0), (2, 0.0), (3, 0.0)]
    failed = trace("whowhen", claims=tuple(said), outcome=Outcome(passed=False))
    facts, relations = tied(failed, said, default_couplings())
    (level,) = residuals([*said, *facts], relations, np.random.default_rng(0))
    assert [turn.residual for turn in level.turns] == pytest.approx([0.0, 0.0, 0.707107], abs=1e-6)


def test_a_success_that_was_claimed_and_taken_back_is_no_false_claim() -> None:
    said = (claim("request_satisfied", 1.0, turn=1), claim("request_satisfied", 0.0, turn=2))
    assert final(trace("whowhen", claims=said, outcome=Outcome(passed=False))) == (0.0, [])


def test_a_run_cut_off_unsatisfied_may_pass() -> None:
    of = trace("whowhen", claims=(claim("request_satisfied", 0.0, turn=1),), outcome=Outcome(passed=True))
    assert final(of) == (0.0, [])


def test_a_ledger_that_sees_a_loop_and_progress_contradicts_itself() -> None:
    of = trace("whowhen", claims=(claim("in_loop", 1.0, turn=1), claim("progress_being_made", 1.0, turn=1)))
    residual, violated = final(of)
    assert residual == pytest.approx(0.707107, abs=1e-6)
    assert violated == ["implies(in_loop, ~progress_being_made)"]


@pytest.mark.parametrize(
    ("goes_on", "passed", "expected"), [(0, False, 0.707107), (0, True, 0.0), (1, False, 0.0), (1, True, 0.0)]
)
def test_a_planner_that_stops_says_that_the_run_passes(goes_on: float, passed: bool, expected: float) -> None:
    of = trace("marble", claims=(claim("continue_needed", goes_on, turn=1),), outcome=Outcome(passed=passed))
    assert final(of)[0] == pytest.approx(expected, abs=1e-6)


def test_a_verdict_meets_the_test_report_and_through_it_the_outcome() -> None:
    """A tester says the tests pass; the report says so too; the run failed: 1, 1 and 0 on one truth are sqrt(2/3) apart."""
    of = trace(claims=(claim("tests_ok", 1.0),), outcome=Outcome(passed=False, n_tests_passed=3, n_tests=3))
    assert final(of)[0] == pytest.approx(0.816497, abs=1e-6)


def test_a_forecast_is_no_contradiction_of_what_came_true() -> None:
    of = trace(claims=(claim("tests_ok", 0.8),), outcome=Outcome(passed=True, n_tests_passed=3, n_tests=3))
    assert tied(of, of.claims, default_couplings()) == ((), ())
    assert final(of) == (0.0, [])


def test_a_forecast_keeps_facts_off_that_it_reaches_through_relations() -> None:
    own = (Relation(relation_id="r", formula="iff(solved, tests_ok & review_ok)"),)
    said = (claim("solved", 0.9), claim("review_ok", 1.0))
    of = trace(claims=said, relations=own, outcome=Outcome(n_tests_passed=0, n_tests=3))
    assert comparable(verdict_claims(of), said, own) == ()
    sure = (claim("solved", 1.0), claim("review_ok", 1.0))
    assert [fact.proposition for fact in comparable(verdict_claims(of), sure, own)] == ["tests_ok"]


def test_forecasts_of_another_level_and_placeholders_do_not_count() -> None:
    of = trace(outcome=Outcome(n_tests_passed=0, n_tests=3))
    verdict = claim("tests_ok", 1.0, component="tester")
    for other in (claim("tests_ok", 0.9, level="final"), claim("tests_ok", 0.5, is_placeholder=True), claim("tests_ok", 1.7)):
        assert len(comparable(verdict_claims(of), [verdict, other], ())) == 1


def test_where_nobody_claims_anything_there_are_no_claims_and_no_residual() -> None:
    of = trace(outcome=Outcome(passed=True, n_tests_passed=2, n_tests=3))
    assert len(verdict_claims(of)) == 2
    assert tied(of, (), default_couplings()) == ((), ())
    assert residuals([], [], np.random.default_rng(0)) == []


def test_claims_read_out_of_texts_count_as_those_of_the_trace() -> None:
    of = trace(outcome=Outcome(n_tests_passed=0, n_tests=3))
    facts, _ = tied(of, [claim("tests_ok", 1.0)], default_couplings())
    assert [fact.claim_id for fact in facts] == ["v:tests"]


def test_the_order_of_claims_changes_nothing() -> None:
    said = [claim("request_satisfied", 1.0, turn=2), claim("in_loop", 0.0, turn=2), claim("progress_being_made", 1.0, turn=2)]
    of = trace("whowhen", claims=tuple(said), outcome=Outcome(passed=False, n_tests_passed=1, n_tests=1))
    expected = tied(of, said, default_couplings())
    for seed in range(5):
        random.Random(seed).shuffle(said)
        assert tied(of, said, default_couplings()) == expected


def _real(folder: Path) -> list[Trace]:
    parts: dict[str, list[Fragment]] = {}
    for path in sorted(folder.glob("*.json")):
        source = readers.open_source(path, path.name)
        assert isinstance(source, readers.Source)
        family, kind = readers.recognise(source)
        for item in readers.read(source, family, kind):
            assert isinstance(item, Fragment)
            parts.setdefault(item.trace_id, []).append(item)
    return [family.assemble(trace_id, found).trace for trace_id, found in parts.items()]


def test_eleven_of_42_real_ledgers_end_with_a_false_claim_of_success(shared_traces: Path) -> None:
    found: Counter[str] = Counter()
    for of in _real(shared_traces / "whowhen" / "hand-crafted"):
        facts, relations = tied(of, of.claims, default_couplings())
        if relations:
            found["tied"] += 1
            (level,) = residuals([*of.claims, *facts], relations, np.random.default_rng(0))
            violated = {violation.relation for violation in level.final.violated or ()}
            found.update(relation.rule or "" for relation in relations if relation.formula in violated)
    assert found == {"tied": 42, "ledger-satisfied": 11, "ledger-loop": 2}


def test_real_records_of_runs_without_claims_get_none(shared_traces: Path) -> None:
    of = _real(shared_traces / "whowhen" / "algorithm-generated")[:20]
    assert {stated(one).get("passed") for one in of} == {0.0}
    assert [tied(one, one.claims, default_couplings()) for one in of] == [((), ())] * len(of)
    assert [relations_for(one, one.claims, default_couplings()) for one in of] == [()] * len(of)
