"""The gate of batches: every batch holds, the worst leave, nobody leaves without need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curation.batches import Batches, filled

RESIDUALS = st.lists(st.sampled_from([np.nan, 0.0, 0.05, 0.2, 0.5, 0.9]), max_size=60)


def test_the_share_goes_evenly_or_at_once() -> None:
    evenly, at_once = (
        Batches(ratio_first=0.2, ratio_last=0.8),
        Batches(ratio_first=0.2, ratio_last=0.8, shape="step", step_at=0.5),
    )
    assert [evenly.ratio_at(t) for t in (0.0, 0.5, 1.0)] == pytest.approx([0.2, 0.5, 0.8])
    assert [at_once.ratio_at(t) for t in (0.0, 0.49, 0.5, 1.0)] == [0.2, 0.2, 0.8, 0.8]


def test_the_worst_leave_and_the_next_come_in() -> None:
    # First batch: 0.9 leaves, 0.3 comes and leaves too, then a coherent row comes: [0.2, 0.0, 0.0].
    found = filled(
        Batches(size=3, tau=0.1, ratio_first=0.6, ratio_last=0.6), np.array([0.9, 0.2, 0.0, 0.3, 0.0, np.nan]), np.zeros(6, bool)
    )
    assert found.stays.tolist() == [False, True, True, False, True, True]
    assert [(row["n"], row["n_tied"], row["ratio"], row["n_left"]) for row in found.batches] == [
        (3, 3, 0.666666667, 2),
        (1, 0, None, 0),
    ]


def test_what_a_person_kept_stays_and_the_batch_says_that_it_misses() -> None:
    found = filled(Batches(size=2, ratio_first=1, ratio_last=1), np.array([0.9, 0.8]), np.array([True, False]))
    assert (found.stays.tolist(), found.batches[0]["holds"]) == ([True, False], False)


def test_size_0_makes_no_demand() -> None:
    assert filled(Batches(), np.array([0.9]), np.zeros(1, bool)) == (np.array([True]), ())


@given(RESIDUALS, st.integers(1, 9), st.floats(0, 1), st.floats(0, 1))
def test_every_batch_holds_and_only_incoherent_rows_leave(values: list[float], size: int, first: float, last: float) -> None:
    policy, residual = Batches(size=size, tau=0.1, ratio_first=first, ratio_last=last), np.array(values, float)
    found = filled(policy, residual, np.zeros(len(residual), bool))
    assert all(row["holds"] and row["n"] <= size for row in found.batches)
    assert (residual[~found.stays] > policy.tau).all()
    kept = residual[found.stays]
    assert sum(row["n"] for row in found.batches) == len(kept)
    start = 0
    for row in found.batches:
        batch = kept[start : start + row["n"]]
        start += row["n"]
        tied = batch[np.isfinite(batch)]
        assert row["ratio"] == (round(float((tied <= policy.tau).mean()), 9) if len(tied) else None)


@given(RESIDUALS, st.integers(1, 9), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_never_keeps_more(values: list[float], size: int, one: float, other: float) -> None:
    residual = np.array(values, float)
    n = [filled(Batches(size=size, ratio_first=r, ratio_last=r), residual, np.zeros(len(values), bool)).stays.sum()
         for r in sorted((one, other))]  # fmt: skip
    assert n[1] <= n[0]
