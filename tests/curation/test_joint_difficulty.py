"""Joint difficulty and predicted difficulty: forms by hand, planted truths found, and no answer where there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curation.curriculum.attempts import Attempts, TaskFeatures
from analysis.curation.curriculum.joint import JointFit, Tried, fit_joint, joint_difficulty
from analysis.curation.curriculum.predictor import predict_difficulty
from analysis.curation.curriculum.stages import Joint, Reference
from analysis.streams import stream

SHARES = st.floats(0, 1)
NO_FIT = JointFit(refusal="too few")


def reference(joint: Joint, weights: tuple[float, float] = (0.5, 0.5)) -> Reference:
    return Reference(name="n", version="v", tau_r=0.5, tau_o=0.5, joint=joint, weights=weights)


def corpus(seed: int, *, n_tasks: int = 40, b3: float = 0.0, spread: float = 0.8) -> list[Tried]:
    """Six cells a task, eight attempts each; tasks are unlike each other beyond their difficulty."""
    rng = np.random.default_rng(seed)
    cells = []
    for task in range(n_tasks):
        hard, luck = rng.random(), rng.normal(0, spread)
        for _ in range(6):
            orch = rng.random()
            p_fail = 1 / (1 + math.exp(-(-2 + 2.5 * hard + 1.5 * orch + b3 * hard * orch + luck)))
            cells.append(Tried(f"t{task:02d}", 8, int((rng.random(8) >= p_fail).sum()), float(orch)))
    return cells


def test_forms_of_joint_difficulty_by_hand() -> None:
    assert joint_difficulty(0.2, 0.6, reference("linear"), NO_FIT) == pytest.approx(0.4)
    assert joint_difficulty(0.2, 0.6, reference("linear", (0.9, 0.3)), NO_FIT) == pytest.approx(0.3)
    assert joint_difficulty(0.2, 0.6, reference("max"), NO_FIT) == 0.6
    assert joint_difficulty(0.2, 0.6, reference("noisy-or"), NO_FIT) == pytest.approx(0.68)
    assert joint_difficulty(0.2, 0.6, reference("fitted"), NO_FIT) is None
    fit = JointFit(coefficients=(-1.0, 2.0, 1.0, 3.0))
    assert joint_difficulty(0.2, 0.6, reference("fitted"), fit) == pytest.approx(1 / (1 + math.exp(1 - 0.4 - 0.6 - 0.36)))


@given(a=SHARES, b=SHARES)
def test_the_forms_are_ordered_and_lie_in_the_unit_interval(a: float, b: float) -> None:
    linear, most, either = (joint_difficulty(a, b, reference(form), NO_FIT) for form in ("linear", "max", "noisy-or"))
    assert 0 <= linear <= most <= either + 1e-12 <= 1 + 2e-12  # type: ignore[operator]


def test_an_interaction_that_is_there_is_found_and_one_that_is_not_rarely() -> None:
    with_it = [fit_joint(corpus(seed, n_tasks=80, b3=4.0, spread=0.3), rng=stream(seed, "halves")) for seed in range(10)]
    without = [fit_joint(corpus(seed), rng=stream(seed, "halves")) for seed in range(60)]
    assert sum(fit.p_interaction < 0.05 for fit in with_it) >= 6  # type: ignore[operator]
    assert all(fit.coefficients[3] > 0 for fit in with_it)  # type: ignore[index]
    assert sum(fit.p_interaction < 0.05 for fit in without) <= 8  # type: ignore[operator]


def test_the_same_attempts_and_seed_give_the_same_fit_over_one_half_of_the_attempts() -> None:
    first, second = (fit_joint(corpus(3), rng=stream(3, "halves")) for _ in range(2))
    assert first == second
    assert (first.n_tasks, first.n_attempts) == (40, 40 * 6 * 4)


@pytest.mark.parametrize(
    ("cells", "refusal"),
    [
        (corpus(1, n_tasks=19), "19 tasks were tried twice or more, and at least 20 are needed"),
        ([cell._replace(n=1, n_passed=0) for cell in corpus(1)], "0 tasks were tried twice or more"),
        ([cell._replace(n_passed=8) for cell in corpus(1)], "0 of the rarer outcome, and at least 10 are needed"),
        ([cell._replace(d_orch=0.3) for cell in corpus(1)], "d_req or d_orch hardly varies"),
        ([cell._replace(n_passed=8 * (cell.d_orch < 0.5)) for cell in corpus(1)], "the difficulties part passes from failures"),
    ],
)
def test_a_fit_is_refused_with_its_reason(cells: list[Tried], refusal: str) -> None:
    found = fit_joint(cells, rng=stream(1, "halves"))
    assert found.coefficients is None
    assert (found.refusal or "").startswith(refusal)


def tried(seed: int, *, effect: float) -> tuple[list[Attempts], dict[str, TaskFeatures]]:
    """Sixty tasks by two models, ten attempts each; long tasks are harder by `effect`."""
    rng = np.random.default_rng(seed)
    cells, features = [], {}
    for task in range(60):
        length, depth = int(rng.integers(50, 2_000)), int(rng.integers(0, 4))
        features[f"t{task:02d}"] = TaskFeatures(length, depth, depth, 2 * depth)
        for model, skill in (("strong", 1.0), ("weak", -1.0)):
            p = 1 / (1 + math.exp(-(skill - effect * (math.log1p(length) - 6.5) + rng.normal(0, 0.5))))
            cells.append(Attempts(f"t{task:02d}", model, 10, int((rng.random(10) < p).sum()), "live attempts"))
    return cells, features


def test_features_that_tell_something_predict_tasks_that_were_not_tried() -> None:
    cells, features = tried(1, effect=2.0)
    features |= {"short": TaskFeatures(60, 1, 1, 2), "long": TaskFeatures(1_900, 1, 1, 2)}
    wanted = [("short", "weak"), ("long", "weak"), ("short", "strong"), ("long", "nobody"), ("bare", "weak")]
    found = predict_difficulty(cells, wanted, features=features, rng=stream(1, "gain"))
    assert found.refusal is None
    assert found.log_loss < found.base_log_loss  # type: ignore[operator]
    assert found.low > 0  # type: ignore[operator]
    assert set(found.d_req) == {("short", "weak"), ("long", "weak"), ("short", "strong")}
    assert found.d_req["short", "strong"] < found.d_req["short", "weak"] < found.d_req["long", "weak"]


def test_features_that_tell_nothing_predict_nothing() -> None:
    cells, features = tried(2, effect=0.0)
    found = predict_difficulty(cells, [("t00", "weak")], features=features, rng=stream(2, "gain"))
    assert (found.d_req, found.refusal) == ({}, "features of the task foretell no more than each model's own pass rate")
    assert found.base_log_loss is not None
    few = predict_difficulty(cells[:20], [("t00", "weak")], features=features, rng=stream(2, "gain"))
    assert few.refusal == "10 tried tasks have features, and at least 20 are needed"
    lost = [cell._replace(n_passed=0) for cell in cells]
    alike = predict_difficulty(lost, [("t00", "weak")], features=features, rng=stream(2, "gain"))
    assert (alike.d_req, alike.refusal) == ({}, "all attempts ended alike")
