"""Simulated agents are as skilled, candid and quick as their component declares; the same request has the same answer."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.counterfactual.agents.protocol import Request, Response, Seen
from analysis.counterfactual.agents.simulated import Component, Simulated, moved, p_right
from analysis.counterfactual.packages import package_of
from analysis.counterfactual.tasks.compose import ComposedTask
from analysis.counterfactual.tasks.programs import program, sources
from analysis.estimation import wilson
from analysis.model import ContextPackage
from tests.counterfactual.players import task_of

TASK = task_of("diamond")
N = 1500


def _request(purpose: str, number: int = 1, **fields: Any) -> Request:
    key = (TASK.task_id, number, "coder-1", "step", purpose)
    return msgspec.convert(
        {"purpose": purpose, "seed": 7, "key": key, "agent_id": "coder-1", "component": "coder", "task": TASK, **fields},
        Request, from_attributes=True,
    )  # fmt: skip


def _answers(component: Component, purpose: str, n: int = N, **fields: Any) -> list[Response]:
    agent, request = Simulated(component), _request(purpose, **fields)
    return [agent.act(msgspec.structs.replace(request, key=(*request.key, k))) for k in range(n)]


def _is_near(n_hits: int, n: int, p: float) -> bool:
    """Whether a count agrees with a probability, but for one chance in 10,000."""
    interval = wilson(n_hits, n, level=0.9999)
    assert interval is not None
    return interval.low <= p <= interval.high


@pytest.mark.parametrize("competence", [0.0, 0.3, 0.85, 1.0])
def test_the_share_of_right_sources_is_the_competence(competence: float) -> None:
    answers = _answers(Component(competence=competence), "write", part="top")
    function = TASK.node("top").function
    assert _is_near(sum(answer.choice == "reference" for answer in answers), N, competence)
    assert all(answer.program == function.source(None if answer.choice == "reference" else answer.choice) for answer in answers)


def test_wrong_sources_have_the_faults_that_are_likely() -> None:
    function = TASK.node("top").function
    kinds = {variant.variant_id: variant.fault for variant in function.variants}
    only = function.variants[0].fault
    none = dict.fromkeys(["off-by-one", "edge-case", "type", "performance", "misread-spec"], 0.0)
    answers = _answers(msgspec.convert({"competence": 0.0, "faults": {**none, only: 1.0}}, Component), "write", 100, part="top")
    assert {kinds[answer.choice or ""] for answer in answers} == {only}


def _upstream(part: str) -> tuple[Seen, ...]:
    takes = next(place.takes for place in TASK.shape.parts if place.name == part)
    return tuple([Seen(kind="upstream", event_id="e", agent_id="a", part=name, program="") for name in takes])


@pytest.mark.parametrize(
    ("effect", "fields"),
    [
        ("nl", {"package": ContextPackage(nl="words")}),
        ("scenarios", {"package": ContextPackage(scenarios=("f(1) is 2",))}),
        ("signatures", {"package": ContextPackage(signatures=("f(n: int) -> int",))}),
        ("domain_model", {"package": ContextPackage(domain_model="p1 = f(n)")}),
        ("upstream", {"part": "join", "seen": _upstream("join")}),
        ("feedback", {"seen": (Seen(kind="verdict", event_id="e", agent_id="a"),)}),
        ("blind", {"part": "join"}),
    ],
)
def test_each_piece_of_context_moves_the_chance_by_its_log_odds(effect: str, fields: dict[str, Any]) -> None:
    request = msgspec.structs.replace(_request("write", part="top"), **fields)
    bare = msgspec.structs.replace(_request("write", part="top"))
    component = Component(competence=0.5, effects={effect: 1.0})
    assert p_right(component, request) == pytest.approx(1 / (1 + math.exp(-1)))
    assert p_right(component, bare) == 0.5


def test_an_interface_counts_only_if_all_that_is_taken_was_told() -> None:
    told = [Seen(kind="message", event_id=name, agent_id="a", part=name, message_type="interface") for name in ("left", "right")]
    component = Component(competence=0.5, effects={"interface": 1.0, "blind": -1.0})
    chances = [p_right(component, _request("write", part="join", seen=tuple(told[:n]))) for n in range(3)]
    assert chances == pytest.approx([moved(0.5, -1), moved(0.5, -1), moved(0.5, 1)])


def test_difficulty_and_domain_move_the_chance() -> None:
    function = TASK.node("top").function
    component = Component(competence=0.5, effects={"difficulty": -2.0}, domains={function.domain: 0.5})
    expected = moved(0.5, 0.5 - 2 * function.difficulty)
    assert p_right(component, _request("write", part="top")) == pytest.approx(expected)


@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1))
def test_a_choice_changes_only_towards_what_became_likelier(seed: int, p: float, q: float) -> None:
    low, high = (
        Simulated(Component(competence=c)).act(msgspec.structs.replace(_request("write", part="top"), seed=seed)).choice
        for c in sorted((p, q))
    )
    assert high in (low, "reference")


def _claimed(component: Component) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What it claims of its sources in many cases of various difficulty, and whether they are right."""
    answers = [answer for part in TASK.requirements for answer in _answers(component, "write", part=part)]
    claims = np.array([answer.claims[0][1] for answer in answers])
    return claims, np.array([answer.choice == "reference" for answer in answers], dtype=float)


@pytest.mark.parametrize("insight", [0.0, 0.5])
def test_claims_without_bias_are_calibrated_and_have_the_brier_score_that_follows(insight: float) -> None:
    claims, right = _claimed(Component(competence=0.8, effects={"difficulty": -3.0}, insight=insight))
    for claim in np.unique(claims):
        at = right[claims == claim]
        assert _is_near(int(at.sum()), len(at), float(claim)) or abs(at.mean() - claim) <= 0.01
    brier, expected = np.mean((claims - right) ** 2), np.mean(claims * (1 - claims))
    assert brier == pytest.approx(expected, abs=0.01)
    assert claims.mean() == pytest.approx(right.mean(), abs=0.015)


def test_insight_lowers_the_brier_score_and_bias_raises_it_as_planted() -> None:
    def brier(**fields: float) -> float:
        claims, right = _claimed(Component(competence=0.7, **fields))  # type: ignore[arg-type]
        return float(np.mean((claims - right) ** 2))

    sure = moved(0.7, 2.0)
    assert brier() == pytest.approx(0.21, abs=0.01)
    assert brier(bias=2.0) == pytest.approx(0.7 * (1 - sure) ** 2 + 0.3 * sure**2, abs=0.01)
    unnoticed = 0.7 / (0.7 + 0.15)
    assert brier(insight=0.5) == pytest.approx(0.85 * unnoticed * (1 - unnoticed), abs=0.01)


def test_probabilities_are_stated_as_often_as_declared() -> None:
    answers = _answers(Component(states=0.3), "write", part="top")
    assert _is_near(sum(bool(answer.claims) for answer in answers), N, 0.3)


def _seen(task: ComposedTask, wrong: str | None = None) -> tuple[Seen, ...]:
    chosen = {wrong: task.node(wrong).function.variants[0].variant_id} if wrong else {}
    texts = sources(task, chosen)
    whole = Seen(kind="candidate", event_id="m", agent_id="planner", program=program(task, texts))
    return (whole, *[Seen(kind="candidate", event_id=p, agent_id="a", part=p, program=text) for p, text in texts.items()])


def test_a_verifier_rejects_what_is_wrong_and_accepts_what_is_right_as_often_as_declared() -> None:
    component = Component(sensitivity=0.8, specificity=0.9)
    answers = _answers(component, "verify", seen=_seen(TASK, "left"))
    assert _is_near(sum("left" in answer.rejected for answer in answers), N, 0.8)
    assert _is_near(sum("right" in answer.rejected for answer in answers), N, 0.1)


def test_tests_of_the_whole_are_never_misread() -> None:
    def with_tests(seen: tuple[Seen, ...], n_passed: int) -> tuple[Seen, ...]:
        return (msgspec.structs.replace(seen[0], n_passed=n_passed, n_tests=12), *seen[1:])

    blind = Component(sensitivity=0.0, specificity=0.0)
    assert {answer.rejected for answer in _answers(blind, "verify", 50, seen=with_tests(_seen(TASK), 12))} == {()}
    timid = Component(sensitivity=0.0, specificity=1.0)
    assert {answer.rejected for answer in _answers(timid, "verify", 50, seen=with_tests(_seen(TASK), 3))} == {("whole",)}


def test_a_planner_splits_as_its_chances_say() -> None:
    options = ("by part", "hidden dependency:left", "hidden dependency:right", "missing part:top", "same part")
    answers = _answers(Component(splits={"hidden dependency": 0.3, "missing part": 0.1}), "plan", options=options)
    for option, p in zip(options, (0.6, 0.15, 0.15, 0.1, 0.0), strict=True):
        assert _is_near(sum(answer.choice == option for answer in answers), N, p)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("by part",), "I split it by part."),
        (("hidden dependency:join",), "I did not say what join builds on."),
        (("missing part:left",), "I left out left."),
        (("repeated part:left",), "I gave out left twice."),
        (("same part",), "I gave out top only."),
        (("vote",), "I choose vote."),
    ],
)
def test_a_planner_says_what_it_did_to_the_task(options: tuple[str, ...], said: str) -> None:
    answer = _answers(Component(), "plan", 1, options=options)[0]
    assert answer.text == f"The task has 4 parts: top, left, right, join. {said}"


def test_a_merge_is_as_faithful_as_declared_and_what_it_loses_is_missing() -> None:
    seen = _seen(TASK)
    answers = _answers(Component(fidelity=0.9, crowding=0.5), "aggregate", seen=seen)
    lost = [answer for answer in answers if answer.rejected]
    assert _is_near(len(lost), N, 1 - moved(0.9, -0.5 * 2))
    assert all(answer.program == seen[0].program for answer in answers if not answer.rejected)
    assert all(f"def {TASK.node(answer.rejected[0]).function.function_id}(" not in (answer.program or "") for answer in lost)
    assert {answer.rejected[0] for answer in lost} == set(TASK.requirements)


@pytest.mark.parametrize(("sure", "choice"), [(0.9, "stop"), (0.4, "go on")])
def test_who_is_asked_whether_to_stop_goes_by_how_sure_it_is(sure: float, choice: str) -> None:
    seen = (Seen(kind="verdict", event_id="e", agent_id="a", claims=(("checks_pass", sure),)),)
    assert {a.choice for a in _answers(Component(), "stop", 5, seen=seen, options=("stop", "go on"))} == {choice}
    assert {a.choice for a in _answers(Component(), "stop", 5, seen=seen, options=("stop",))} == {"stop"}


def test_an_assignment_favours_the_first_as_often_as_declared() -> None:
    answers = _answers(Component(favours=0.6), "assign", part="top", options=("a", "b", "c", "d"))
    assert _is_near(sum(answer.choice == "a" for answer in answers), N, 0.6 + 0.4 / 4)


def test_durations_are_whole_milliseconds_around_what_is_declared() -> None:
    answers = _answers(Component(seconds={"write": 2.0}), "write", part="top")
    times = np.array([answer.duration_s for answer in answers])
    assert (np.round(times * 1000) / 1000 == times).all()
    assert times.min() >= 1.0
    assert times.max() < 2.0 * (0.5 + 1 / 0.3)
    assert 2.0 < np.median(times) < 2.5


def test_more_context_costs_more_tokens() -> None:
    few = Simulated(Component()).act(_request("write", part="top"))
    many = Simulated(Component()).act(_request("write", part="top", package=package_of(TASK, ["top"], ["nl", "scenarios"])))
    assert few.input_tokens == 120
    assert (many.input_tokens or 0) > 120


def test_the_same_request_has_the_same_answer_and_another_key_another_one() -> None:
    agent = Simulated(Component())
    assert agent.act(_request("write", part="top")) == agent.act(_request("write", part="top"))
    assert len({agent.act(_request("write", number, part="top")).duration_s for number in range(20)}) == 20
    attempts = [msgspec.structs.replace(_request("write", part="top"), attempt=n) for n in range(5)]
    assert len({agent.act(request).duration_s for request in attempts}) == 5


def test_a_plain_prompt_is_an_error_and_not_an_answer() -> None:
    answer = Simulated(Component()).act(msgspec.structs.replace(_request("answer"), task="How many ships?"))
    assert answer == Response(error="a simulated agent has no answer to a plain prompt")
