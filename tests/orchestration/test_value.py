"""What patterns are worth: hand-made tables, exact tests, error rates over shuffles, and what cannot be said."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from analysis.estimation import cluster_bootstrap
from analysis.orchestration.patterns.chance import ALPHA, Chance, westfall_young
from analysis.orchestration.patterns.value import ASSOCIATION, anti_patterns, lifts, metric_table


def held(*rows: Any) -> sparse.csr_array:
    return sparse.csr_array(np.array(rows, dtype=bool))


def runs(n: int, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns, index=[f"t{k:04}" for k in range(n)])


def one_row(occurrences: Any, table: pd.DataFrame, **given_values: Any) -> dict[str, Any]:
    row: dict[str, Any] = lifts(["a"], held(occurrences), table=table, **given_values).iloc[0].to_dict()
    return row


def chance(occurrences: sparse.csr_array, values: Any, strata: Any = None, *, seed: int = 0, n: int = 199) -> Chance:
    column = np.asarray(values, dtype=float)[:, None]
    codes = np.zeros(len(column), np.intp) if strata is None else np.asarray(strata)
    return westfall_young(occurrences, column, strata=codes, rng=np.random.default_rng(seed), n_permutations=n)[0]


def random_patterns(rng: np.random.Generator, n_items: int, n_traces: int) -> sparse.csr_array:
    """Patterns that overlap as real ones do: each is a part of one of a few."""
    wide = rng.random((max(1, n_items // 4), n_traces)) < rng.uniform(0.15, 0.6, (max(1, n_items // 4), 1))
    return sparse.csr_array(wide[rng.integers(len(wide), size=n_items)] & (rng.random((n_items, n_traces)) < 0.85))


def test_a_two_by_two_table_by_hand() -> None:
    table = runs(8, passed=[1.0, 1, 1, 0, 1, 0, 0, 0])
    row = one_row([1, 1, 1, 1, 0, 0, 0, 0], table)
    assert (row["n_with"], row["n_without"], row["with_mean"], row["without_mean"]) == (4, 4, 0.75, 0.25)
    assert (row["lift"], row["ratio"], row["better"], row["evidence"]) == (0.5, 3.0, "higher", "observational")
    # C(4,k)C(4,4-k)/C(8,4) = 1, 16, 36, 16, 1 of 70: as unlikely as 3 are 0, 1, 3 and 4
    assert row["p"] == pytest.approx(34 / 70)
    assert row["q_value"] == row["p"]
    assert row["reason"] == "on one side there are 4 tasks; 5 are needed for an interval"
    assert math.isnan(row["low"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60))
def test_without_strata_p_is_fishers_exact_test(pairs: list[tuple[bool, bool]]) -> None:
    with_, passed = (np.array(side) for side in zip(*pairs, strict=True))
    p = chance(held(with_), passed, n=1).p[0]
    if len({*with_}) == 1 or len({*passed}) == 1:
        assert math.isnan(p)
        return
    cells = [[np.sum(with_ & passed), np.sum(with_ & ~passed)], [np.sum(~with_ & passed), np.sum(~with_ & ~passed)]]
    assert p == pytest.approx(stats.fisher_exact(cells).pvalue, rel=1e-9)


def test_a_large_table_is_fishers_too() -> None:
    rng = np.random.default_rng(1)
    passed = rng.random(4_000) < 0.3
    with_ = rng.random(4_000) < np.where(passed, 0.25, 0.2)
    cells = [[np.sum(with_ & passed), np.sum(with_ & ~passed)], [np.sum(~with_ & passed), np.sum(~with_ & ~passed)]]
    assert chance(held(with_), passed, n=1).p[0] == pytest.approx(stats.fisher_exact(cells).pvalue, rel=1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_with_strata_p_counts_every_shuffle_within_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    strata = np.repeat([0, 1, 2], (4, 3, 3))
    passed, with_ = rng.random(10) < 0.5, rng.random(10) < 0.5
    sums: dict[int, int] = {}
    for parts in itertools.product(*(itertools.permutations(passed[strata == s]) for s in range(3))):
        count = int(np.concatenate(parts)[with_].sum())
        sums[count] = sums.get(count, 0) + 1
    mine = sums[int(passed[with_].sum())]
    expected = sum(n for n in sums.values() if n <= mine) / sum(sums.values())
    p = chance(held(with_), passed, strata, n=1).p[0]
    assert math.isnan(p) if len(sums) == 1 else p == pytest.approx(expected)


def test_the_smallest_p_of_one_item_is_its_own() -> None:
    rng = np.random.default_rng(0)
    passed, with_ = rng.random(60) < 0.5, rng.random(60) < 0.4
    found = chance(held(with_), passed, n=20_000)
    assert found.p_adjusted[0] == pytest.approx(found.p[0], abs=0.01)


def test_other_values_are_tested_by_shuffling() -> None:
    values = np.array([9.0, 8, 7, 1, 2, 3, 4, 5])
    found = chance(held([1, 1, 1, 0, 0, 0, 0, 0]), values, n=20_000)
    # Of the 56 ways to take 3 of 8, only these lie 9.4 from the mean of 14.6: the three smallest sum to 6, 8.6 away.
    assert found.p[0] == pytest.approx(1 / 56, abs=0.003)
    assert found.threshold is None


def test_beyond_its_own_shuffles_the_shuffles_of_all_items_tell_rare_from_very_rare() -> None:
    rng = np.random.default_rng(3)
    patterns = random_patterns(rng, 200, 400).toarray()
    values = rng.normal(size=400) + 1.5 * patterns[0]
    found = chance(sparse.csr_array(patterns), values, n=199)
    assert found.p[0] < 1 / 2_000  # 199 shuffles of one item could say 1 / 200 at best
    assert found.p_adjusted[0] == pytest.approx(1 / 200)


def rejections(n_shuffles: int, *, is_binary: bool, has_strata: bool, seed: int) -> int:
    rng = np.random.default_rng(seed)
    patterns = random_patterns(rng, 40, 150)
    values = (rng.random(150) < 0.4).astype(float) if is_binary else rng.exponential(size=150)
    strata = np.repeat(np.arange(30), 5) if has_strata else np.zeros(150, np.intp)
    hits = 0
    for k in range(n_shuffles):
        order = np.argsort(strata + rng.random(150))
        hits += bool(np.nanmin(chance(patterns, values[order], strata, seed=k, n=199).p_adjusted) <= ALPHA)
    return hits


@pytest.mark.parametrize(("is_binary", "has_strata"), [(True, False), (True, True), (False, False), (False, True)])
def test_shuffled_labels_are_rejected_as_often_as_they_may_be(is_binary: bool, has_strata: bool) -> None:
    low, high = stats.binom.ppf([0.025, 0.975], 120, ALPHA)
    assert (0 if is_binary else low) <= rejections(120, is_binary=is_binary, has_strata=has_strata, seed=5) <= high


@pytest.mark.soak
@pytest.mark.parametrize(("is_binary", "has_strata"), [(True, False), (True, True), (False, False), (False, True)])
def test_shuffled_labels_are_rejected_as_often_as_they_may_be_over_many(is_binary: bool, has_strata: bool) -> None:
    low, high = stats.binom.ppf([0.025, 0.975], 2_000, ALPHA)
    assert low <= rejections(2_000, is_binary=is_binary, has_strata=has_strata, seed=11) <= high


@pytest.mark.parametrize("seed", range(5))
def test_no_pattern_that_bonferroni_finds_is_lost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    patterns = random_patterns(rng, 120, 500)
    dense = patterns.toarray()
    passed = rng.random(500) < 0.35 + 0.25 * dense[0] - 0.2 * dense[1]
    found = chance(patterns, passed, n=999)
    by_bonferroni, significant = found.p <= ALPHA / 120, found.p_adjusted <= ALPHA
    assert not (by_bonferroni & ~significant).any()
    assert significant.sum() >= by_bonferroni.sum() > 0
    assert found.threshold is not None
    assert found.threshold >= ALPHA / 120
    assert (significant == (found.p <= found.threshold * (1 + 1e-9))).all()


def test_tasks_are_drawn_for_the_interval() -> None:
    rng = np.random.default_rng(2)
    task = np.repeat(np.arange(60), 4)
    with_ = rng.random(240) < 0.4
    values = rng.normal(size=60)[task] + 0.5 * with_ + rng.normal(size=240)
    row = one_row(with_, runs(240, task=task.astype(str), m=values))
    expected = cluster_bootstrap(
        lambda w: float((w @ (values * with_)) / (w @ with_) - (w @ (values * ~with_)) / (w @ ~with_)),
        task.tolist(),
        rng=np.random.default_rng(1),
    )
    assert expected is not None
    assert row["lift"] == pytest.approx(expected.value)
    width = (expected.high or 0) - (expected.low or 0)
    assert row["low"] == pytest.approx(expected.low, abs=width / 12)
    assert row["high"] == pytest.approx(expected.high, abs=width / 12)
    assert math.isnan(row["ratio"])


def test_matched_runs_share_task_and_condition() -> None:
    table = runs(8, task=list("aaaabbcc"), condition=list("xxyyxxyy"), m=[5.0, 1, 10, 7, 4, 2, 9, 9])
    row = one_row([1, 0, 1, 0, 0, 1, 1, 1], table)
    assert (row["n_pairs"], row["matched_by"]) == (3, "task and condition")
    assert row["matched"] == pytest.approx((4 + 3 - 2) / 3)


def test_where_no_condition_repeats_runs_of_one_task_are_matched() -> None:
    table = runs(6, task=list("aabbcc"), condition=list("xyxyxy"), m=[5.0, 1, 10, 7, 4, 2])
    row = one_row([1, 0, 1, 0, 1, 0], table)
    assert (row["n_pairs"], row["matched_by"], row["matched"]) == (3, "task", 3.0)


def test_a_confounded_task_does_not_make_a_pattern_significant() -> None:
    # Hard tasks never pass and mostly have the pattern; within a task it makes no difference.
    task, hard = np.repeat(np.arange(40), 6), np.repeat(np.arange(40) % 2, 6).astype(bool)
    rng = np.random.default_rng(4)
    with_ = rng.random(240) < np.where(hard, 0.8, 0.2)
    passed = np.where(hard, 0.0, (rng.random(240) < 0.9).astype(float))
    row = one_row(with_, runs(240, task=task.astype(str), passed=passed))
    assert row["lift"] < -0.3
    assert row["p_adjusted"] > 0.1
    assert abs(row["matched"]) < 0.1
    assert 100 < row["n_tested"] < 240  # not the runs of tasks in which all or none have it


def test_a_difference_that_turns_round_among_runs_of_one_task_is_said() -> None:
    # Runs of easy tasks mostly have the pattern; in every task the run with it is the worse one.
    ease = np.repeat(np.arange(30), 4) / 5
    with_ = np.tile([1, 0, 0, 0], 30) | (np.repeat(np.arange(30) >= 15, 4) & (np.arange(120) % 4 < 3))
    row = one_row(with_, runs(120, task=np.repeat(np.arange(30), 4).astype(str), m=ease - 0.5 * with_))
    assert row["low"] > 0.5
    assert (row["matched"], row["n_pairs"], row["n_tested"]) == (pytest.approx(-0.5), 30, 120)
    assert row["reason"] == "matched runs differ the other way: which runs have it says more than having it"


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_the_order_of_runs_and_items_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    patterns = random_patterns(rng, 6, 40).toarray()
    table = runs(40, task=rng.integers(0, 12, 40).astype(str), passed=(rng.random(40) < 0.5) * 1.0, m=rng.normal(size=40))
    table.loc[table.index[rng.random(40) < 0.2], "m"] = math.nan
    first = lifts(list("abcdef"), held(*patterns), table=table, n_permutations=50)
    rows, columns = rng.permutation(6), rng.permutation(40)
    items = ["abcdef"[k] for k in rows]
    again = lifts(items, held(*patterns[rows][:, columns]), table=table.iloc[columns], n_permutations=50)
    order = ["metric", "item"]
    pd.testing.assert_frame_equal(
        first.sort_values(order).reset_index(drop=True), again.sort_values(order).reset_index(drop=True), rtol=1e-12
    )


def test_patterns_that_always_occur_together_are_worth_the_same() -> None:
    rng = np.random.default_rng(0)
    first, other = rng.random((2, 50)) < 0.5
    rows = lifts(["a", "b", "c"], held(first, other, first), table=runs(50, passed=(rng.random(50) < 0.5) * 1.0))
    values = rows.drop(columns="item")
    pd.testing.assert_series_equal(values.loc[0], values.loc[2], check_names=False)
    assert values.loc[0, "p"] != values.loc[1, "p"]


@pytest.mark.parametrize(
    ("values", "with_", "reason"),
    [
        ([math.nan] * 4, [1, 1, 0, 0], "no run has a value"),
        ([math.nan, 1, math.nan, math.nan], [1, 1, 0, 0], "only one run has a value; there is nothing to compare it with"),
        ([0.0, 0, 0, 0], [1, 1, 0, 0], "all 4 runs have the same value, 0"),
        ([0.0, 1, math.nan, 0], [1, 1, 1, 1], "every run that has a value has it"),
        ([0.0, 1, math.nan, 0], [0, 0, 1, 0], "no run that has a value has it"),
    ],
)
def test_what_cannot_be_said_is_a_sentence(values: list[float], with_: list[int], reason: str) -> None:
    row = one_row(with_, runs(4, passed=values))
    assert row["reason"] == reason
    assert all(math.isnan(row[name]) for name in ("low", "high", "p", "p_adjusted", "q_value", "matched"))


def test_what_never_differs_within_a_task_is_not_tested() -> None:
    table = runs(20, task=list("aabbccddeeffgghhiijj"), passed=[1.0, 0] * 10)
    row = one_row([1, 1, 0, 0] * 5, table)
    assert math.isnan(row["p"])
    assert row["reason"].startswith("no two runs of one task differ")
    assert row["low"] <= row["lift"] == 0 <= row["high"]


def test_without_runs_or_items_or_metrics_there_are_no_rows() -> None:
    assert len(lifts([], sparse.csr_array((0, 3), dtype=bool), table=runs(3, passed=[1.0, 0, 1]))) == 0
    assert lifts(["a"], sparse.csr_array((1, 0), dtype=bool), table=runs(0, passed=[]))["reason"].tolist() == [
        "no run has a value"
    ]
    assert len(lifts(["a"], held([1, 0]), table=runs(2, task=["a", "b"]))) == 0
    with pytest.raises(ValueError, match=r"occurrences of shape \(1, 2\) for 1 items and 3 runs"):
        lifts(["a"], held([1, 0]), table=runs(3, passed=[1.0, 0, 1]))


def test_anti_patterns_are_significantly_worse_in_the_direction_of_the_metric() -> None:
    rng = np.random.default_rng(0)
    bad, good, none = rng.random((3, 400)) < 0.4
    passed = rng.random(400) < 0.5 - 0.3 * bad + 0.3 * good
    table = runs(400, passed=passed * 1.0, span_s=rng.random(400) + 2 * bad, n_agents=rng.random(400) + 2 * bad)
    rows = lifts(["bad", "good", "none"], held(bad, good, none), table=table)
    found = anti_patterns(rows)
    assert set(zip(found["item"], found["metric"], strict=True)) == {("bad", "passed"), ("bad", "span_s")}
    assert anti_patterns(rows, metric="passed")["item"].tolist() == ["bad"]


def test_the_caption_says_association() -> None:
    assert "association" in ASSOCIATION
    assert "not known" in ASSOCIATION


def test_a_table_of_runs_comes_from_the_rows_of_a_workspace() -> None:
    traces = pd.DataFrame(
        [("b", "t", None, True, None), ("a", None, None, None, 0.5)],
        columns=["trace_id", "task_id", "condition", "passed", "score"],
    ).astype({"passed": "boolean"})
    metrics = pd.DataFrame(
        [("a", "depth", "", 2.0), ("a", "q_work", "acts", 0.5), ("b", "q_work", "tests", 1.0), ("b", "width", "", math.nan)],
        columns=["trace_id", "name", "variant", "value"],
    )
    table = metric_table(traces, metrics)
    assert table.columns.tolist() == ["task", "condition", "passed", "score", "depth", "q_work (acts)", "q_work (tests)"]
    assert table.index.tolist() == ["a", "b"]
    assert table["q_work (acts)"].tolist()[0] == 0.5
    assert table["passed"].tolist()[1] == 1.0
    assert math.isnan(table["passed"].tolist()[0])


def test_where_every_run_has_it_there_is_no_mean_without_it() -> None:
    values = [math.sqrt(k) for k in range(50)]  # their sums in one order and in another differ in the last digit
    row = one_row([1] * 50, runs(50, residual=values))
    assert math.isnan(row["without_mean"])
    assert math.isnan(row["lift"])
    assert row["reason"] == "every run that has a value has it"


def test_of_no_patterns_none_is_worse() -> None:
    assert anti_patterns(lifts([], sparse.csr_array((0, 4), dtype=bool), table=runs(4))).empty
