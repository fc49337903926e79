"""A plateau is found where there is one, hardly ever cut short where there is none to cut, and refused on too little data."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.curation.dose import Dose, dose_response
from analysis.streams import stream


def simulated(seed: int, *, n_tasks: int = 60, n_each: int = 4, threshold: float = 2.0, drop: float = 0.0) -> Dose:
    """Runs of tasks that differ in how often they are done; beyond a threshold of the residual `drop` less often."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(n_tasks), n_each)
    residual = (0.5 * rng.random(n_tasks)[task] + 0.5 * rng.random(len(task))).round(9)
    p = 0.5 + 0.4 * rng.random(n_tasks)[task] - drop * (residual > threshold)
    return dose_response(residual, rng.random(len(task)) < p, task.tolist(), rng=stream(seed, "dose"))


def test_bins_have_equally_many_runs_and_never_divide_a_tie() -> None:
    residual = [0.0] * 50 + [0.1 * n for n in range(1, 11) for _ in range(5)]
    found = dose_response(residual, [1] * 70 + [0] * 30, list(range(100)), rng=stream(0, "dose"), n_bins=5)
    assert found.bins[["low", "high", "n"]].to_numpy() == pytest.approx(np.array([(0, 0, 50), (0.1, 0.4, 20), (0.5, 1.0, 30)]))
    assert found.bins["outcome"].tolist() == [1.0, 1.0, 0.0]
    # Wilson: 50 of 50 hits leave 50 / (50 + 1.96²) open at the lower end.
    assert found.bins["outcome_low"][0] == pytest.approx(50 / (50 + 1.959964**2))
    assert found.bins["outcome_high"][0] == 1.0
    assert (found.plateau, found.worsens) == (pytest.approx(0.4), True)
    assert found.bins["is_plateau"].tolist() == [True, True, False]


def test_the_sentence_says_where_it_worsens_by_how_much_and_on_what_it_rests() -> None:
    residual = [0.1] * 40 + [0.5] * 40
    outcome = [1] * 36 + [0] * 4 + [1] * 8 + [0] * 32
    found = dose_response(residual, outcome, list(range(80)), rng=stream(0, "dose"))
    assert found.sentence == (
        "Outcome worsens beyond a residual_norm of 0.1: 0.90 (0.77 to 0.96) up to there, 0.20 (0.10 to 0.35) above "
        "(80 runs of 80 tasks, one-sided p = 0.001)."
    )


def test_the_fitted_curve_pools_what_rises() -> None:
    residual = np.repeat([0.1, 0.2, 0.3], 20)
    outcome = [1] * 10 + [0] * 10 + [1] * 16 + [0] * 4 + [1] * 4 + [0] * 16
    found = dose_response(residual, outcome, list(range(60)), rng=stream(0, "dose"))
    assert found.bins["outcome"].tolist() == [0.5, 0.8, 0.2]
    assert found.bins["fitted"].tolist() == pytest.approx([0.65, 0.65, 0.2])


def test_a_better_outcome_is_no_worsening() -> None:
    found = dose_response([0.1] * 30 + [0.2] * 30, [0] * 30 + [1] * 30, list(range(60)), rng=stream(0, "dose"))
    assert (found.worsens, found.plateau) == (False, 0.2)
    assert found.sentence.startswith("No worsening of the outcome is seen up to the largest residual_norm, 0.2 (60 runs")


def test_runs_of_one_task_do_not_count_as_many() -> None:
    """Of 21 tasks one fails, thirty times over, at a high residual: the failure could as well have met any of the 21."""
    residual = np.concatenate([np.tile([0.1, 0.5], 20), np.full(30, 0.5)])
    outcome = np.concatenate([np.ones(40), np.zeros(30)])
    tasks = [*np.repeat(np.arange(20), 2).tolist(), *[20] * 30]
    apart = dose_response(residual, outcome, list(range(70)), rng=stream(0, "dose"))
    together = dose_response(residual, outcome, tasks, rng=stream(0, "dose"))
    assert apart.bins["p"][1] == 0.001
    assert together.bins["p"][1] == pytest.approx(1 / 21, abs=3 * (1 / 21 * 20 / 21 / 1000) ** 0.5)


def test_graded_outcomes_have_intervals_of_means() -> None:
    found = dose_response([0.1] * 30 + [0.2] * 30, [0.25, 0.75] * 30, [None] * 60, rng=stream(0, "dose"))
    radius = 1.959964 * 0.25 * (30 / 29) ** 0.5 / 30**0.5
    assert found.bins["outcome_low"].tolist() == pytest.approx([0.5 - radius] * 2)
    assert found.n_tasks == 60


@pytest.mark.parametrize(
    ("residual", "outcome", "tasks", "text"),
    [
        ([], [], [], "Not enough data: 0 runs of 0 tasks have both a residual and an outcome; 40 runs of 8 tasks are needed."),
        ([0.1, None] * 30, [1] * 60, [*range(60)], "Not enough data: 30 runs of 30 tasks"),
        ([0.1, 0.2] * 30, [1, 0, 1] * 20, ["a"] * 60, "Not enough data: 60 runs of 1 tasks"),
        ([0.1, 0.2] * 30, [1] * 60, [*range(60)], "Nothing to learn from: all 60 runs have the same outcome."),
        ([0.0] * 60, [1, 0] * 30, [*range(60)], "Nothing to compare: nearly all of 60 runs have the same residual_norm."),
    ],
)
def test_where_nothing_can_be_said_a_sentence_says_why(residual: list, outcome: list, tasks: list, text: str) -> None:
    found = dose_response(residual, outcome, tasks, rng=stream(0, "dose"))
    assert found.sentence.startswith(text)
    assert (found.plateau, found.worsens) == (None, None)


def test_the_same_stream_gives_the_same_result() -> None:
    first, again = simulated(3), simulated(3)
    assert first.bins.equals(again.bins)
    assert first.sentence == again.sentence


def test_a_threshold_is_found() -> None:
    found = [simulated(seed, n_tasks=150, threshold=0.6, drop=0.45) for seed in range(10)]
    assert all(one.worsens for one in found)
    assert np.median([one.plateau for one in found]) == pytest.approx(0.6, abs=0.06)


@pytest.mark.parametrize(("n_tasks", "n_each"), [(12, 10), (60, 4)])
def test_a_plateau_is_seldom_cut_where_nothing_worsens(n_tasks: int, n_each: int) -> None:
    n = 120
    n_cut = sum(bool(simulated(seed, n_tasks=n_tasks, n_each=n_each).worsens) for seed in range(n))
    assert n_cut / n <= 0.05 + 3 * (0.05 * 0.95 / n) ** 0.5


@pytest.mark.soak
@pytest.mark.parametrize(("n_tasks", "n_each"), [(8, 10), (12, 10), (60, 4), (200, 1)])
def test_the_level_holds_over_many_simulations(n_tasks: int, n_each: int) -> None:
    n = 1_000
    n_cut = sum(bool(simulated(seed, n_tasks=n_tasks, n_each=n_each).worsens) for seed in range(n))
    assert n_cut / n <= 0.05 + 3 * (0.05 * 0.95 / n) ** 0.5


@pytest.mark.soak
def test_the_true_plateau_is_seldom_cut_where_outcome_worsens_beyond() -> None:
    n = 300
    found = [simulated(seed, n_tasks=150, threshold=0.6, drop=0.45) for seed in range(n)]
    assert sum(one.plateau < 0.5 for one in found if one.plateau is not None) / n <= 0.05 + 3 * (0.05 * 0.95 / n) ** 0.5
