"""Diversity: the oracles of the Vendi score, of the effective sample size, and the curve against coherence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curation import diversity
from analysis.curation.diversity import curve, effective_size, features, vendi
from tests.curation.frames import frame

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_equal_rows_are_one_and_orthogonal_rows_are_all(n: int) -> None:
    assert vendi(np.repeat([[0.6, 0.8]], n, axis=0), rng=RNG) == pytest.approx(1)
    assert vendi(np.eye(n), rng=RNG) == pytest.approx(n)


def test_two_groups_are_two_and_unequal_ones_the_exponential_of_their_entropy() -> None:
    assert vendi(np.repeat(np.eye(2), 5, axis=0), rng=RNG) == pytest.approx(2)
    shares = np.array([0.9, 0.1])
    assert vendi(np.repeat(np.eye(2), [9, 1], axis=0), rng=RNG) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert vendi(np.zeros((0, 3)), rng=RNG) is None


def test_the_small_matrix_gives_the_score_of_the_kernel() -> None:
    rows = RNG.random((40, 7))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(rows @ rows.T / 40)
    values = values[values > 1e-12]
    assert vendi(rows, rng=RNG) == pytest.approx(np.exp(-(values * np.log(values)).sum()))


def test_more_rows_and_features_than_the_kernel_takes_are_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diversity, "MAX_ROWS", 20)
    assert vendi(np.eye(50), rng=np.random.default_rng(1)) == pytest.approx(20)
    assert vendi(np.repeat([np.eye(50)[0]], 50, axis=0), rng=np.random.default_rng(1)) == pytest.approx(1)


def test_the_likeness_of_two_runs_is_the_share_of_features_that_agree() -> None:
    rows = frame(4, mode=["a", "a", "b", None], d_orch=[0.1, 0.1, 0.1, np.nan])
    vectors = features(rows, ["mode", "d_orch"])
    assert (vectors @ vectors.T)[0] == pytest.approx([1, 1, 0.5, 0])
    assert (vectors**2).sum(axis=1) == pytest.approx(1)
    assert features(rows, []).shape == (4, 1)


@given(st.lists(st.floats(0, 10), max_size=20))
def test_the_effective_size_lies_between_one_and_all(weights: list[float]) -> None:
    size = effective_size(np.array(weights))
    assert size == 0 or 1 - 1e-6 <= size <= len(weights) + 1e-6
    assert effective_size(np.full(8, 0.3)) == pytest.approx(8)


def test_the_curve_rises_from_the_most_coherent_to_all_that_is_known() -> None:
    residual = np.array([0.0, 0.0, 0.4, np.nan])
    vectors = features(frame(4, mode=["a", "a", "b", "c"]), ["mode"])
    rows = curve(residual, np.ones(4), vectors, rng=RNG)
    assert [(row["threshold"], row["kept_share"], row["n"], row["residual_mean"], row["ess"]) for row in rows] == [
        (0.0, 0.666666667, 2, 0.0, 2.0), (0.4, 1.0, 3, 0.133333333, 3.0),
    ]  # fmt: skip
    shares = np.array([2, 1]) / 3
    assert [row["vendi"] for row in rows] == pytest.approx([1, np.exp(-(shares * np.log(shares)).sum())], abs=1e-6)
    assert curve(np.array([np.nan]), np.ones(1), np.ones((1, 1)), rng=RNG) == []
