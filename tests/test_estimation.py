"""Estimates: values known by hand, coverage by simulation, and what cannot be estimated."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.estimation import Estimate, benjamini_hochberg, cluster_bootstrap, mean, pass_at_k, wilson


def ends(found: Estimate | None) -> tuple[float, float]:
    """The interval of an estimate that has one."""
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [
        (10, 3, 1, 0.3), (10, 3, 5, 0.916667), (5, 1, 2, 0.4), (5, 1, 5, 1.0), (20, 1, 10, 0.5), (100, 25, 5, 0.770754),
        (10, 3, 8, 1.0), (4, 0, 1, 0.0),
    ],
)  # fmt: skip
def test_c21_pass_at_k(n: int, c: int, k: int, value: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(value, abs=5e-7)


def test_c21_with_fewer_samples_than_k_there_is_no_pass_at_k() -> None:
    assert pass_at_k(3, 1, 5) is None
    assert pass_at_k(3, 3, 5) is None


def test_pass_at_k_is_unbiased_and_the_plug_in_is_not() -> None:
    p, n, k = 0.3, 10, 5
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    truth = 1 - (1 - p) ** k
    assert sum(w * (pass_at_k(n, c, k) or 0) for c, w in enumerate(weights)) == pytest.approx(truth, abs=1e-12)
    assert sum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(weights)) < truth - 0.02


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_pass_at_k_of_impossible_counts_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=rf"pass@k of {c} correct samples out of {n}, k = {k}"):
        pass_at_k(n, c, k)


def test_wilson_interval_by_hand() -> None:
    # z² = 3.8415: (0.5 + 3.8415/8) / (1 + 3.8415/4) = 0.5 ± 1.96 / 1.9604 * sqrt(0.25/4 + 3.8415/64)
    assert wilson(2, 4) == pytest.approx(Estimate(0.5, 0.150039, 0.849961, 4), abs=1e-6)
    assert wilson(0, 0) is None


def test_wilson_stays_inside_zero_and_one_at_the_ends() -> None:
    assert wilson(0, 5) == pytest.approx(Estimate(0.0, 0.0, 0.434482, 5), abs=1e-6)
    assert wilson(5, 5) == pytest.approx(Estimate(1.0, 0.565518, 1.0, 5), abs=1e-6)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_mirrors(counts: tuple[int, int]) -> None:
    k, n = counts
    found, mirrored = wilson(k, n), wilson(n - k, n)
    low, high = ends(found)
    assert 0 <= low <= k / n <= high <= 1
    assert (low, high) == pytest.approx((1 - ends(mirrored)[1], 1 - ends(mirrored)[0]), abs=1e-12)


def test_mean_interval_by_hand() -> None:
    assert mean([1.0, 2.0, 3.0]) == pytest.approx(
        Estimate(2.0, 2 - 1.959964 / math.sqrt(3), 2 + 1.959964 / math.sqrt(3), 3), abs=1e-6
    )
    assert mean([4.0]) == Estimate(4.0, None, None, 1)
    assert mean([]) is None


def _mean_of(values: np.ndarray) -> object:
    return lambda weights: float((weights @ values) / weights.sum())


def test_a_single_cluster_has_a_value_and_no_interval() -> None:
    found = cluster_bootstrap(_mean_of(np.array([1.0, 3.0])), ["t", "t"], rng=np.random.default_rng(0))
    assert found == Estimate(2.0, None, None, 1)


def test_without_rows_or_without_a_value_there_is_no_estimate() -> None:
    assert cluster_bootstrap(lambda weights: 1.0, [], rng=np.random.default_rng(0)) is None
    assert cluster_bootstrap(lambda weights: math.nan, ["a", "b"], rng=np.random.default_rng(0)) is None


def test_draws_without_a_value_take_the_interval_with_them() -> None:
    # Of two clusters a quarter of the draws holds only the first, where the ratio divides by zero.
    above, below = np.array([1.0, 1.0]), np.array([0.0, 1.0])

    def ratio(weights: np.ndarray) -> float:
        return float(weights @ above / (weights @ below)) if weights @ below else math.nan

    assert cluster_bootstrap(ratio, ["a", "b"], rng=np.random.default_rng(0)) == Estimate(2.0, None, None, 2)


def test_runs_of_one_task_are_drawn_together() -> None:
    values = np.repeat([0.0, 1.0, 0.0, 1.0], 50)
    tasks = np.repeat(["a", "b", "c", "d"], 50)
    clustered = cluster_bootstrap(_mean_of(values), list(tasks), rng=np.random.default_rng(1))
    loose = cluster_bootstrap(_mean_of(values), list(range(200)), rng=np.random.default_rng(1))
    assert clustered == Estimate(0.5, 0.0, 1.0, 4)
    assert ends(loose)[0] > 0.4


def test_arms_of_one_row_set_are_drawn_together() -> None:
    task = np.arange(20.0)
    difference = cluster_bootstrap(
        lambda w: float((w @ (task + 1)) / w.sum() - (w @ task) / w.sum()), list(range(20)), rng=np.random.default_rng(2)
    )
    assert difference == pytest.approx(Estimate(1, 1, 1, 20))


def test_same_seed_same_interval() -> None:
    values = np.array([random.Random(3).random() for _ in range(30)])
    found = [cluster_bootstrap(_mean_of(values), list(range(30)), rng=np.random.default_rng(5)) for _ in range(2)]
    assert found[0] == found[1]


def test_bootstrap_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(200):
        sample = rng.random(40)
        found = cluster_bootstrap(_mean_of(sample), list(range(40)), rng=rng, n_draws=300, level=0.9)
        low, high = ends(found)
        hits += low <= 0.5 <= high
    assert 165 <= hits <= 194  # 180 expected; three standard deviations are 13


def test_c34_benjamini_hochberg_rejects_the_first_three() -> None:
    p = [0.001, 0.008, 0.012, 0.041, 0.042, 0.06, 0.074, 0.205, 0.212, 0.5]
    adjusted = benjamini_hochberg(p)
    assert [q is not None and q <= 0.05 for q in adjusted] == [True] * 3 + [False] * 7
    assert adjusted[:3] == pytest.approx([0.01, 0.04, 0.04])
