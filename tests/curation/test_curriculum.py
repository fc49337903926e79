"""D_req, stages and schedules against C22, C23 and C33 of the reference, and the laws that hold whatever the numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from analysis.curation.curriculum.pass_tables import read_pass_table
from analysis.curation.curriculum.requirement import d_partial, d_req, rank_correlations
from analysis.curation.curriculum.schedule import (
    Schedule,
    effective_sample_size,
    family_weights,
    forgetting,
    kernel_weights,
    learnability,
    nearest,
    next_target,
)
from analysis.curation.curriculum.stages import STAGES, median_reference, stage_of
from analysis.streams import stream

PASS_RATES = Path(__file__).resolve().parents[3] / "shared/benchmarks/pass-rates"
SHARES = st.floats(0, 1)
STORED = st.integers(0, 1_000).map(lambda n: n / 1_000)  # difficulty is compared as it is stored, in few decimals


@pytest.mark.parametrize(
    ("n_passed", "n", "expected"),
    [
        (0, 8, (0.9444, 0.738, 1.000)), (3, 8, (0.6111, 0.295, 0.881)), (8, 8, (0.0556, 0.000, 0.262)),
        (25, 100, (0.7475, 0.659, 0.827)),
    ],
)  # fmt: skip
def test_d_req_is_that_of_c22(n_passed: int, n: int, expected: tuple[float, float, float]) -> None:
    found = d_req(n_passed, n)
    assert found is not None
    assert found[:3] == pytest.approx(expected, abs=6e-4)
    assert found.n == n


def test_without_attempts_there_is_no_difficulty_and_more_passes_than_attempts_are_refused() -> None:
    assert d_req(0, 0) is None
    with pytest.raises(ValueError, match="9 passes of 8 attempts"):
        d_req(9, 8)


@given(n=st.integers(1, 300), share=SHARES)
def test_passing_once_more_is_easier_and_the_interval_holds_the_value(n: int, share: float) -> None:
    n_passed = round(share * (n - 1))
    harder, easier = d_req(n_passed, n), d_req(n_passed + 1, n)
    assert harder is not None
    assert easier is not None
    assert easier.value < harder.value
    assert 0 <= harder.low < harder.value < harder.high <= 1  # type: ignore[operator]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_jeffreys_interval_holds_the_truth_about_as_often_as_it_says(p: float) -> None:
    """Summed over all outcomes of 50 attempts, not drawn."""
    held = 0.0
    for n_passed in range(51):
        found = d_req(n_passed, 50)
        assert found is not None
        held += binom.pmf(n_passed, 50, p) * (found.low <= 1 - p <= found.high)  # type: ignore[operator]
    assert 0.92 < held < 0.98


def test_tests_passed_rank_tasks_that_no_attempt_solves() -> None:
    assert d_partial([0.9, 0.7]) == pytest.approx(0.2)
    assert d_partial([0.0, 0.0]) == 1.0
    assert d_partial([]) is None


def test_stages_are_those_of_c23_and_ties_go_low() -> None:
    pairs = ((0.2, 0.2), (0.8, 0.2), (0.2, 0.8), (0.8, 0.8), (0.5, 0.5))
    found = [STAGES.index(stage_of(*pair, tau_r=0.5, tau_o=0.5)) + 1 for pair in pairs]
    assert found == [1, 2, 3, 4, 1]


@given(tasks=st.lists(st.tuples(STORED, STORED), min_size=8, max_size=60), tau=st.tuples(STORED, STORED))
def test_stages_partition_the_tasks(tasks: list[tuple[float, float]], tau: tuple[float, float]) -> None:
    stages = [stage_of(hard, orch, tau_r=tau[0], tau_o=tau[1]) for hard, orch in tasks]
    counts = Counter(stages)
    assert sum(counts[stage] for stage in STAGES) == len(tasks)
    n_hard = sum(hard > tau[0] for hard, _ in tasks)
    assert counts["individual"] + counts["integrated"] == n_hard
    reference = median_reference(tasks, of="tasks", version="v")
    assert reference is not None
    assert sum(hard > reference.tau_r for hard, _ in tasks) <= len(tasks) / 2


def test_a_reference_is_named_and_needs_eight_pairs() -> None:
    pairs = [(n / 10, n / 20) for n in range(9)]
    found = median_reference(pairs, of="tasks", version="v7")
    assert found is not None
    assert (found.name, found.version, found.tau_r, found.tau_o) == ("medians of 9 tasks", "v7", 0.4, 0.2)
    assert median_reference(pairs[:7], of="tasks", version="v7") is None


def test_kernel_weights_by_hand() -> None:
    """D = 0.2 and 0.6, centre 0.2, h = 0.2: K = 1 and exp(-2); eps = 0.1."""
    near = 0.05 + 0.9 / (1 + np.exp(-2))
    found = kernel_weights([0.2, 0.6], 0.0, Schedule(m0=0.2, m1=0.8, h=0.2, eps=0.1))
    assert found.tolist() == pytest.approx([near, 1 - near])
    halfway = kernel_weights([0.2, 0.8], 0.5, Schedule(m0=0.2, m1=0.8, h=0.2, eps=0.1))
    assert halfway.tolist() == pytest.approx([0.5, 0.5])


@given(
    d=st.lists(SHARES, min_size=1, max_size=40), u=SHARES, m0=SHARES, m1=SHARES, h=st.floats(0.001, 1), eps=SHARES
)  # fmt: skip
def test_weights_sum_to_one_keep_the_floor_and_bound_the_effective_size(
    d: list[float], u: float, m0: float, m1: float, h: float, eps: float
) -> None:
    weights = kernel_weights(d, u, Schedule(m0, m1, h, eps))
    assert weights.sum() == pytest.approx(1)
    assert weights.min() >= eps / len(d) * (1 - 1e-12)
    assert 1 - 1e-9 <= effective_sample_size(weights) <= len(d) + 1e-9


def test_a_schedule_outside_its_bounds_is_refused_and_no_task_has_no_weight() -> None:
    for u, schedule in ((1.2, Schedule()), (0.5, Schedule(h=0.0)), (0.5, Schedule(eps=1.5))):
        with pytest.raises(ValueError, match="lie in"):
            kernel_weights([0.5], u, schedule)
    assert kernel_weights([], 0.5, Schedule()).tolist() == []
    assert effective_sample_size([]) == 0.0


def test_what_always_passes_or_fails_has_nothing_to_learn_from() -> None:
    found = learnability([0.5, 0.9, 0.0, 1.0])
    assert found is not None
    assert found.tolist() == pytest.approx([0.25 / 0.34, 0.09 / 0.34, 0, 0])
    assert learnability([0.0, 1.0]) is None


def test_family_weights_by_hand() -> None:
    """p = 5.5/11 = 1/2 and 10.5/11: p (1 - p) = 0.25 and 0.043388; floor 0.1 over two families."""
    found = family_weights({"half": (5, 10), "solved": (10, 10)})
    spread = 0.25 + 10.5 * 0.5 / 121
    assert found == pytest.approx({"half": 0.05 + 0.9 * 0.25 / spread, "solved": 0.05 + 0.9 * (10.5 * 0.5 / 121) / spread})
    assert family_weights({}) == {}


@given(counts=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=20), floor=SHARES)
def test_family_weights_sum_to_one_and_keep_the_floor(counts: list[tuple[int, int]], floor: float) -> None:
    families = {str(n): (min(c, m), max(c, m)) for n, (c, m) in enumerate(counts)}
    weights = list(family_weights(families, floor=floor).values())
    assert sum(weights) == pytest.approx(1)
    assert min(weights) >= floor / len(families) * (1 - 1e-12)


def test_the_target_moves_as_in_c33_and_stays_in_its_bounds() -> None:
    assert [next_target(50, reward) for reward in (0.7, 0.2, 0.5)] == pytest.approx([68.997, 23.148, 50], abs=1e-3)
    assert (next_target(95, 1.0), next_target(5, 0.0)) == (100, 0)
    assert nearest([10, 60, 40, 90], 50, 3) == [1, 2, 0]


def test_forgetting_compares_each_round_with_the_first_over_shared_tasks() -> None:
    first = {f"t{n}": (4, 4) for n in range(10)}
    second = {f"t{n}": (2, 4) for n in range(10)} | {"new": (0, 4)}
    found = forgetting([first, second, {"other": (1, 2)}], rng=stream(1, "forgetting"))
    assert [None if one.rate is None else one.rate.value for one in found] == [1.0, pytest.approx(20 / 44), 0.5]
    changes = [one.change for one in found]
    assert changes[0] is not None
    assert changes[0][:3] == (0, 0, 0)
    assert changes[1] == (-0.5, -0.5, -0.5, 10)
    assert changes[2] is None


def test_ranks_are_compared_over_shared_tasks_only() -> None:
    easy_first = [(f"t{n}", "a", n / 10) for n in range(6)]
    hard_first = [(f"t{n}", "b", 1 - n / 10) for n in range(6)]
    apart = [(f"u{n}", "c", n / 10) for n in range(6)]
    rows = pd.DataFrame([*easy_first, *hard_first, *apart], columns=["task_id", "model", "d_req"])
    found = rank_correlations(rows)
    assert found.loc["a", "b"] == pytest.approx(-1)
    assert found[["a", "b"]].loc["c"].isna().all()


@pytest.mark.parametrize(
    ("file", "n_attempts", "size", "expected"),
    [
        ("evalperf_task_pass_counts.csv.gz", None, (118, 34), (0.54, 0.16, 0.87)),
        ("lcb_self_repair_pass_at_1.csv.gz", 10, (713, 17), (0.72, 0.40, None)),
    ],
)  # fmt: skip
def test_models_disagree_on_real_tasks_as_far_as_the_reference_says(
    file: str, n_attempts: int | None, size: tuple[int, int], expected: tuple[float, float, float | None]
) -> None:
    if not (PASS_RATES / file).exists():
        pytest.skip(f"real pass rates are not here: {PASS_RATES}")
    rows = pd.DataFrame(read_pass_table(PASS_RATES / file, n_attempts=n_attempts))
    rows["d_req"] = [found.value for c, n in zip(rows["n_passed"], rows["n"], strict=True) if (found := d_req(c, n))]
    assert (rows["task_id"].nunique(), rows["model"].nunique()) == size
    found = rank_correlations(rows).to_numpy()
    pairs = found[np.triu_indices_from(found, 1)]
    for value, reported in zip((pairs.mean(), pairs.min(), pairs.max()), expected, strict=True):
        assert reported is None or value == pytest.approx(reported, abs=0.006)
