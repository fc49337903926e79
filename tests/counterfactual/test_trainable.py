"""Policies: the optimum is the one worked out by hand and by another library, and choices stay where nothing changed for them."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression

from analysis.counterfactual.agents.decisions import Recorder, Row, options_of, rows, rows_of
from analysis.counterfactual.agents.protocol import Purpose, Request, Response, Seen
from analysis.counterfactual.agents.simulated import Component, Simulated
from analysis.counterfactual.agents.trainable import Policy, Trained, load, save
from analysis.counterfactual.tasks.bank import load_bank
from analysis.counterfactual.tasks.compose import ComposedTask, compose
from analysis.counterfactual.tasks.programs import program, sources
from analysis.counterfactual.tasks.shapes import SHAPES
from analysis.errors import TeamError, TraceError
from analysis.model import Source, Trace
from analysis.streams import stream

STOPS: tuple[Purpose, ...] = ("stop",)


@pytest.fixture(scope="module")
def task() -> ComposedTask:
    return compose(load_bank(), SHAPES["chain-3"], rng=stream(7, "compose", "chain-3"))


def row(choice: str, **options: dict[str, float]) -> Row:
    return Row(component="c", purpose="stop", options=options, choice=choice)


def ask(task: ComposedTask | str, purpose: Purpose, *, trial: int = 1, **fields: Any) -> Request:
    return Request(purpose=purpose, seed=3, key=("t", trial, "a", "s"), agent_id="a", component="c", task=task, **fields)


COIN = {"heads": {"h": 1.0}, "tails": {}}


def test_without_a_hold_the_chances_are_the_weighted_shares() -> None:
    tosses = [row("heads", **COIN)] * 3 + [row("tails", **COIN)]
    fitted = Policy(purposes=STOPS).fit(tosses, l2=1e-9)
    assert fitted.weights["h"] == pytest.approx(math.log(3), abs=1e-7)
    assert fitted.chances(COIN)["heads"] == pytest.approx(0.75, abs=1e-8)
    weighted = Policy(purposes=STOPS).fit([row("heads", **COIN), row("tails", **COIN)], [0.5, 2.0], l2=1e-9)
    assert weighted.chances(COIN)["heads"] == pytest.approx(0.2, abs=1e-7)


def test_with_a_hold_the_optimum_is_where_the_pulls_are_equal() -> None:
    tosses = [row("heads", **COIN)] * 3 + [row("tails", **COIN)]
    by_hand = brentq(lambda x: 3 - 4 / (1 + math.exp(-x)) - 2.0 * x, 0, 3)
    assert Policy(purposes=STOPS).fit(tosses, l2=2.0).weights == {"h": round(by_hand, 9)}
    held = brentq(lambda x: 3 - 4 / (1 + math.exp(-x)) - 2.0 * (x - 5), 0, 9)
    assert Policy(purposes=STOPS, weights={"h": 5.0}).fit(tosses, l2=2.0).weights == {"h": round(held, 9)}


def test_three_options_of_their_own_come_to_their_shares() -> None:
    options = {name: {name: 1.0} for name in "abc"}
    drawn = [row(name, **options) for name, n in (("a", 5), ("b", 3), ("c", 2)) for _ in range(n)]
    assert Policy(purposes=STOPS).fit(drawn, l2=1e-8).chances(options) == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2}, abs=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_two_options_are_a_logistic_regression(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(60, 3)), rng.random(60) * 2
    y = rng.random(60) < 1 / (1 + np.exp(-x @ np.array([1.0, -2.0, 0.0])))
    peer = LogisticRegression(C=1 / 0.7, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(x, y, sample_weight=w)
    given = [
        row("yes" if chosen else "no", yes={f"x{n}": float(value) for n, value in enumerate(values)}, no={})
        for values, chosen in zip(x, y, strict=True)
    ]
    fitted = Policy(purposes=STOPS).fit(given, w.tolist(), l2=0.7)
    assert [fitted.weights[f"x{n}"] for n in range(3)] == pytest.approx(peer.coef_[0].tolist(), abs=1e-6)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Row], list[float], float]:
    number = st.floats(-3, 3).map(lambda x: round(x, 3))
    features = st.dictionaries(st.sampled_from(["f", "g", "h"]), number, max_size=3)
    drawn, weights = [], []
    for _ in range(draw(st.integers(1, 8))):
        options = draw(st.dictionaries(st.sampled_from("abcd"), features, min_size=2, max_size=4))
        drawn.append(row(draw(st.sampled_from(sorted(options))), **options))
        weights.append(draw(st.sampled_from([0.0, 0.25, 1.0, 7.0])))
    return drawn, weights, draw(st.sampled_from([0.01, 1.0, 10.0]))


@settings(max_examples=80, deadline=None)
@given(problems(), st.integers(0, 2**30))
def test_no_other_weights_do_better(problem: tuple[list[Row], list[float], float], seed: int) -> None:
    drawn, weights, l2 = problem
    fitted = Policy(purposes=STOPS).fit(drawn, weights, l2=l2)

    def worth(policy: Policy) -> float:
        return policy.log_likelihood(drawn, weights) - l2 / 2 * math.fsum(x * x for x in policy.weights.values())

    assert fitted.log_likelihood(drawn, weights) >= Policy(purposes=STOPS).log_likelihood(drawn, weights) - 1e-9
    rng = np.random.default_rng(seed)
    for size in (1.0, 0.1, 0.001):
        moved = {name: x + size * float(rng.normal()) for name, x in fitted.weights.items()}
        assert worth(msgspec.structs.replace(fitted, weights=moved)) <= worth(fitted) + 1e-9


@settings(max_examples=60, deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_order_and_rows_of_no_weight_change_no_byte(problem: tuple[list[Row], list[float], float], random: Any) -> None:
    drawn, weights, l2 = problem
    fitted = Policy(purposes=STOPS).fit(drawn, weights, l2=l2)
    pairs = [(one, w) for one, w in zip(drawn, weights, strict=True) if w > 0]
    random.shuffle(pairs)
    turned = [msgspec.structs.replace(one, options=dict(reversed(one.options.items()))) for one, _ in pairs]
    others = [msgspec.structs.replace(one, purpose="verify") for one in drawn]
    again = Policy(purposes=STOPS).fit([*others, *turned], [9.0] * len(others) + [w for _, w in pairs], l2=l2)
    assert msgspec.json.encode(again) == msgspec.json.encode(fitted)


def test_a_weight_of_two_is_the_row_twice() -> None:
    heads, tails = row("heads", **COIN), row("tails", **COIN)
    assert Policy(purposes=STOPS).fit([heads, tails], [2.0, 1.0]) == Policy(purposes=STOPS).fit([heads, heads, tails])


@pytest.mark.parametrize(
    ("weights", "l2", "choice"), [([-1.0], 1.0, "heads"), ([math.nan], 1.0, "heads"), ([], 1.0, "heads"), ([1.0], 0.0, "heads"),
                                  ([1.0], 1.0, "edge")],
)  # fmt: skip
def test_what_cannot_be_fitted_is_refused(weights: list[float], l2: float, choice: str) -> None:
    with pytest.raises(ValueError, match=r"a fit needs|is none of its options"):
        Policy(purposes=STOPS).fit([row(choice, **COIN)], weights, l2=l2)


def test_a_policy_comes_back_from_its_file(tmp_path: Path) -> None:
    policy = Policy(purposes=("stop", "verify"), weights={"b": 0.1, "a": -2.0}, temperature=0.5)
    save(policy, tmp_path / "one.json")
    save(msgspec.structs.replace(policy, weights={"a": -2.0, "b": 0.1}), tmp_path / "two.json")
    assert load(tmp_path / "one.json") == policy
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    for text, problem in (
        ('{"format": "counterpoint-policy/2", "purposes": []}', "Invalid enum value 'counterpoint-policy/2'"),
        ('{"purposes": ["stop"], "temperature": -1}', "Expected `float` >= 0.0"), ("{", "truncated"),
    ):  # fmt: skip
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(TeamError, match=f"bad.json: not a policy .*({problem})"):
            load(tmp_path / "bad.json")
    with pytest.raises(TeamError, match="the file cannot be read"):
        load(tmp_path / "none.json")


class Says:
    """An agent that always answers the same."""

    def __init__(self, response: Response) -> None:
        self.response = response

    def act(self, request: Request) -> Response:
        return self.response


LEANS = Policy(purposes=("assign",), weights={"assign/a/always": 1.0, "assign/b/always": 0.5})


def assigned(policy: Policy, options: tuple[str, ...], trial: int) -> str | None:
    return Trained(policy, Says(Response())).act(ask("x", "assign", trial=trial, options=options, part="p")).choice


def test_choices_come_as_often_as_their_chances() -> None:
    n = 4000
    counts = Counter(assigned(LEANS, ("a", "b", "c"), trial) for trial in range(n))
    total = math.e + math.exp(0.5) + 1
    for name, power in (("a", math.e), ("b", math.exp(0.5)), ("c", 1.0)):
        p = power / total
        assert abs(counts[name] / n - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_a_new_option_draws_choices_to_itself_alone_and_order_does_not_matter() -> None:
    moved = 0
    for trial in range(500):
        before, after = assigned(LEANS, ("a", "b", "c"), trial), assigned(LEANS, ("d", "c", "b", "a"), trial)
        assert after in (before, "d")
        moved += after == "d"
    assert 0 < moved < 500


def test_a_heavier_option_draws_choices_to_itself_alone() -> None:
    heavier = msgspec.structs.replace(LEANS, weights={**LEANS.weights, "assign/c/always": 1.5})
    pairs = [(assigned(LEANS, ("a", "b", "c"), trial), assigned(heavier, ("a", "b", "c"), trial)) for trial in range(500)]
    assert all(after in (before, "c") for before, after in pairs)
    assert any(after != before for before, after in pairs)


def test_at_temperature_0_the_heaviest_option_is_taken_and_of_equals_the_first_by_name() -> None:
    cold = msgspec.structs.replace(LEANS, temperature=0.0)
    assert {assigned(cold, options, trial) for options in (("b", "a"), ("a", "b")) for trial in range(20)} == {"a"}
    assert {assigned(cold, ("d", "c"), trial) for trial in range(20)} == {"c"}


def test_who_writes_hands_in_what_the_policy_chose(task: ComposedTask) -> None:
    function = task.node("p2").function
    wrong = function.variants[0]
    request = ask(task, "write", part="p2", options=("reference", *[variant.variant_id for variant in function.variants]))
    right = Trained(Policy(purposes=("write",), weights={"write/reference/always": 50.0}), Simulated(Component(competence=0.0)))
    assert (right.act(request).choice, right.act(request).program) == ("reference", function.reference)
    faulty = Policy(purposes=("write",), weights={f"write/{wrong.fault}/always": 50.0})
    bad = Trained(faulty, Simulated(Component(competence=1.0)))
    answer = bad.act(request)
    assert answer.choice in {variant.variant_id for variant in function.variants if variant.fault == wrong.fault}
    assert (answer.program, answer.claims) == (function.source(answer.choice), ())
    own = Trained(Policy(purposes=("stop",)), Simulated(Component(competence=1.0)))
    assert own.act(request) == Simulated(Component(competence=1.0)).act(request)


def candidates(task: ComposedTask, n_failed: dict[str, int]) -> tuple[Seen, ...]:
    return tuple([
        Seen(
            kind="candidate", event_id=f"e{part}", agent_id="b", part=part, program=source, n_tests=9,
            n_passed=9 - n_failed.get(part, 0),
        )
        for part, source in sources(task).items()
    ])  # fmt: skip


def test_a_verifier_learns_to_reject_what_fails(task: ComposedTask) -> None:
    seen = [candidates(task, {"p1": a, "p2": b, "p3": c}) for a in (0, 4) for b in (0, 1) for c in (0, 9)]
    requests = [ask(task, "verify", trial=n, seen=one, options=("p1", "p2", "p3")) for n, one in enumerate(seen)]
    truth = [Response(rejected=tuple(s.part or "" for s in one if s.n_passed != 9)) for one in seen]
    taught = [found for request, response in zip(requests, truth, strict=True) for found in rows(request, response)]
    assert len(taught) == 24
    fitted = Policy(purposes=("verify",), temperature=0.0).fit(taught, l2=0.01)
    verifier = Trained(fitted, Simulated(Component(sensitivity=0.5, specificity=0.5)))
    assert [verifier.act(request).rejected for request in requests] == [response.rejected for response in truth]
    assert verifier.act(requests[-1]).text == "I reject p1, p2, p3."


def test_an_aggregator_leaves_out_what_the_policy_does(task: ComposedTask) -> None:
    policy = Policy(purposes=("aggregate",), weights={"aggregate/leave out/fails": 99.0, "aggregate/leave out/always": -50.0})
    request = ask(task, "aggregate", seen=candidates(task, {"p2": 3}), options=("p1", "p2", "p3"))
    answer = Trained(policy, Simulated(Component())).act(request)
    kept = {part: source for part, source in sources(task).items() if part != "p2"}
    assert (answer.rejected, answer.program) == (("p2",), program(task, kept))


def test_each_part_is_decided_by_a_draw_of_its_own(task: ComposedTask) -> None:
    verifier = Trained(Policy(purposes=("verify",)), Says(Response()))
    seen = candidates(task, {})
    found = [verifier.act(ask(task, "verify", trial=n, seen=seen, options=("p1", "p2"))).rejected for n in range(400)]
    counts = Counter(found)
    assert counts.keys() == {(), ("p1",), ("p2",), ("p1", "p2")}
    assert all(abs(n / 400 - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 400) for n in counts.values())
    alone = [verifier.act(ask(task, "verify", trial=n, seen=seen, options=("p2",))).rejected for n in range(400)]
    assert alone == [tuple(part for part in one if part == "p2") for one in found]


def test_an_answer_with_an_error_stays_and_teaches_nothing(task: ComposedTask) -> None:
    request = ask(task, "stop", options=("stop", "go on"))
    failed = Response(error="no answer in 3 tries")
    assert Trained(Policy(purposes=STOPS), Says(failed)).act(request) == failed
    assert rows(request, failed) == []
    assert rows(ask(task, "stop", options=("stop",)), Response(choice="stop")) == []
    assert rows(request, Response(choice="wait")) == []


def test_features_know_parts_only_by_what_holds_of_them(task: ComposedTask) -> None:
    verdict = Seen(kind="verdict", event_id="v", agent_id="b", rejected=("p1",))
    request = ask(task, "verify", seen=(*candidates(task, {"p1": 3}), verdict), options=("p1", "p2", "whole"))
    found = {about: options["reject"] for about, options in options_of(request).items()}
    assert found["p1"] == {
        "verify/reject/always": 1.0, "verify/reject/log_parts": round(math.log(3), 9),
        "verify/reject/n_seen": round(math.log(3), 9),
        "verify/reject/rejected": 1.0, "verify/reject/tested": 1.0, "verify/reject/share_failed": round(1 / 3, 9),
        "verify/reject/fails": 1.0,
    }  # fmt: skip
    assert found["p2"].keys() == {f"verify/reject/{name}" for name in ("always", "log_parts", "n_seen", "accepted", "tested")}
    assert "verify/reject/rejected" in found["whole"]
    kinds = options_of(ask(task, "plan", options=("by part", "missing part:p1", "missing part:p2")))[""]
    assert kinds["missing part:p1"] == kinds["missing part:p2"]
    assert set(kinds["by part"]) == {"plan/by part/always", "plan/by part/log_parts"}


def test_a_recorder_changes_nothing_and_its_rows_come_back_from_a_trace(task: ComposedTask) -> None:
    seen = candidates(task, {"p3": 2})
    requests = [
        ask(task, "verify", trial=2, seen=seen, options=("p1", "p2", "p3")),
        ask(task, "stop", seen=seen, options=("stop", "go on")),
    ]  # fmt: skip
    agent = Simulated(Component())
    there, back = Recorder(agent), Recorder(agent)
    assert [there.act(request) for request in requests] == [agent.act(request) for request in requests]
    for request in reversed(requests):
        back.act(request)
    assert there.rows() == back.rows()
    about = [(one.purpose, one.about) for one in there.rows()]
    assert about == [("stop", ""), ("verify", "p1"), ("verify", "p2"), ("verify", "p3")]
    run = {"decisions": msgspec.to_builtins(there.rows())}
    trace = Trace(trace_id="x", world="simulated", source=Source(format="counterpoint"), extra={"run": run})
    assert rows_of(trace) == there.rows()
    assert rows_of(msgspec.structs.replace(trace, extra={})) == []
    with pytest.raises(TraceError, match="x: the decisions of the run cannot be read"):
        rows_of(msgspec.structs.replace(trace, extra={"run": {"decisions": [{"purpose": 3}]}}))
