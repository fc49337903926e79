"""Each refinement guarantees what it says, leaves an order alone that already has it, and moves nothing it does not go by."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curation.ordering import order_metrics
from analysis.curation.scheduling import continuous, cyclic, diverse, interface, sharpened

scores_of = st.lists(st.floats(0, 1).map(lambda x: round(x, 9)), min_size=1, max_size=40)
modes_of = st.lists(st.sampled_from("aaaaabbbcd"), min_size=1, max_size=60)


def shuffled(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n)


def jumps(scores: np.ndarray, order: np.ndarray) -> float:
    return float(np.abs(np.diff(scores[order])).max(initial=0.0))


# Cycles of coupling


def test_each_cycle_goes_from_loose_to_tight_over_the_whole_range() -> None:
    bits = np.array([2, 0, 1, 0.5, 2.5, 1.5])
    # sorted: 0 (row 1), 0.5 (3), 1 (2), 1.5 (5), 2 (0), 2.5 (4), dealt to two cycles
    assert cyclic(np.arange(6), bits, 2).tolist() == [1, 2, 0, 3, 5, 4]
    assert order_metrics(bits[[1, 2, 0, 3, 5, 4]], window=3) == pytest.approx((2 - 0.5, 5.5, 0, 2.5, 2 / 3))


@given(st.lists(st.sampled_from([0.0, 0.4, 1.0, 2.0]), min_size=1, max_size=50), st.integers(1, 5), st.integers(0, 5))
def test_cycles_hold_equally_many_rows_of_each_coupling(bits: list[float], n_cycles: int, seed: int) -> None:
    found = np.array(bits)[cyclic(shuffled(len(bits), seed), np.array(bits), n_cycles)]
    lengths = [len(range(n, len(bits), n_cycles)) for n in range(n_cycles)]
    cycles = np.split(found, np.cumsum(lengths)[:-1])
    assert all((np.diff(cycle) >= 0).all() for cycle in cycles)
    for level in set(bits):
        counts = [(cycle == level).sum() for cycle in cycles]
        assert max(counts) - min(counts) <= 1


@given(st.lists(st.floats(0, 9), min_size=1, max_size=30, unique=True), st.integers(1, 5))
def test_cycles_of_cycles_are_the_same_where_all_bits_differ(bits: list[float], n_cycles: int) -> None:
    once = cyclic(np.arange(len(bits)), np.array(bits), n_cycles)
    assert (cyclic(once, np.array(bits), n_cycles) == once).all()


# Boundaries of interfaces


def test_a_residual_between_two_components_has_an_interface() -> None:
    assert interface({"b": 0.4, "a": 0.4, "c": 0.2}, 0.25) == "a | b"
    assert interface({"b": 0.75, "a": 0.25}, 0.25) == "a | b"
    assert interface({"b": 0.76, "a": 0.24}, 0.25) is None
    assert interface({"a": 1.0}, 0.25) is None
    assert interface({"a": 0.0, "b": 0.0}, 0.25) is None
    assert interface(dict.fromkeys("abcde", 0.2), 0.25) is None


def test_each_interface_begins_with_its_lowest_and_ends_with_its_highest() -> None:
    scores = np.array([0.5, 0.9, 0.4, 0.1, 0.3, 0.8, 0.2, 0.7, 0.6, 0.0])
    names = ["x", "y", "x", "x", "y", "x", "y", "x", None, None]
    # x stands at 0 2 3 5 7 with .5 .4 .1 .8 .7: its lowest, 3, comes first, its highest, 5, last. y: 1 4 6 -> 6 4 1.
    found = sharpened(np.arange(10), scores, names, share=1 / 3)
    assert found.tolist() == [3, 6, 2, 0, 4, 7, 1, 5, 8, 9]


@given(scores_of, st.data(), st.floats(0, 0.5), st.integers(0, 5))
def test_sharpening_twice_is_sharpening_once(scores: list[float], data: st.DataObject, share: float, seed: int) -> None:
    names = data.draw(st.lists(st.sampled_from(["x", "y", None]), min_size=len(scores), max_size=len(scores)))
    values = np.round(np.array(scores), 1)  # with ties
    given_order = shuffled(len(values), seed)
    once = sharpened(given_order, values, names, share=share)
    assert (sharpened(once, values, names, share=share) == once).all()
    assert [names[row] for row in once] == [names[row] for row in given_order]
    for name in ("x", "y"):
        mine = [values[row] for row in once if names[row] == name]
        n_end = min(round(share * len(mine)), len(mine) // 2)
        assert mine[:n_end] == sorted(mine)[:n_end]
        assert mine[len(mine) - n_end :] == sorted(mine)[len(mine) - n_end :]


# Continuity


def test_a_jump_is_bridged_by_the_rows_beside_it() -> None:
    scores = np.array([0.0, 0.1, 0.5, 0.3, 0.2, 0.25])
    # 0.1 -> 0.5 is too far: both are joined, then grow by what stands behind them until the way up has no gap.
    found = continuous(np.arange(6), scores, 0.25)
    assert scores[found].tolist() == [0.0, 0.1, 0.2, 0.3, 0.5, 0.25]


def test_an_order_without_a_jump_is_left_alone() -> None:
    scores = np.array([0.3, 0.1, 0.2, 0.4, 0.4])
    assert continuous(np.arange(5), scores, 0.2).tolist() == [0, 1, 2, 3, 4]


@given(scores_of, st.floats(0.001, 1).map(lambda x: round(x, 9)), st.integers(0, 5))
def test_no_jump_exceeds_the_bound_or_the_widest_gap(scores: list[float], max_jump: float, seed: int) -> None:
    values = np.array(scores)
    given_order = shuffled(len(values), seed)
    found = continuous(given_order, values, max_jump)
    assert sorted(found) == sorted(given_order)
    widest = np.diff(np.sort(values)).max(initial=0.0)
    assert jumps(values, found) <= max(max_jump, widest) + 1e-9
    assert (continuous(found, values, max_jump) == found).all()


def test_many_rows_move_only_as_far_as_the_bound_demands() -> None:
    scores = np.random.default_rng(0).random(20_000).round(9)
    moved = {}
    for bound in (1.0, 0.5, 0.1, 0.02):
        found = continuous(np.arange(20_000), scores, bound)
        assert jumps(scores, found) <= bound + 1e-9
        moved[bound] = float(np.median(np.abs(np.argsort(found) - np.arange(20_000))))
    assert moved[1.0] == 0
    assert moved[0.5] < moved[0.1] < moved[0.02] < 1_000


# Diversity


def test_a_window_takes_the_earliest_rows_that_its_quotas_let_in() -> None:
    # 4 of 8 rows each: a window of 4 holds at most 4 · 4 // 8 + 1 = 3 of a mode.
    assert diverse(np.arange(8), list("aaaabbbb"), 4).tolist() == [0, 1, 2, 4, 3, 5, 6, 7]
    assert diverse(np.arange(8), list("abababab"), 4).tolist() == list(range(8))


@given(modes_of, st.integers(2, 8), st.integers(0, 5))
def test_no_whole_window_holds_more_of_a_mode_than_its_share_and_one(modes: list[str], window: int, seed: int) -> None:
    given_order = shuffled(len(modes), seed)
    found = diverse(given_order, modes, window)
    n_of = Counter(modes)
    for start in range(0, len(modes) - window + 1, window):
        for mode, n in Counter(modes[row] for row in found[start : start + window]).items():
            assert n <= n_of[mode] * window // len(modes) + 1
    for mode in n_of:
        assert [row for row in found if modes[row] == mode] == [row for row in given_order if modes[row] == mode]
    assert (diverse(found, modes, window) == found).all()


def test_modes_that_stand_in_blocks_are_spread_over_all_windows() -> None:
    found = diverse(np.arange(1000), ["a"] * 500 + ["b"] * 300 + ["c"] * 200, 10)
    counts = [Counter("a" if row < 500 else "b" if row < 800 else "c" for row in found[n : n + 10]) for n in range(0, 1000, 10)]
    assert {mode: max(count[mode] for count in counts) for mode in "abc"} == {"a": 6, "b": 4, "c": 3}


def test_rows_without_a_mode_keep_their_places() -> None:
    modes = ["a", None, "a", "a", None, "b", float("nan"), "b", "b"]
    found = diverse(np.arange(9), modes, 2)
    assert [found[n] for n in (1, 4, 6)] == [1, 4, 6]
