"""Observed pairs: one factor differs and no other, worked value C30, counts, and that nothing is called an effect of a log."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.counterfactual.observed import observed_effects, observed_pairs, stated_factors

FACTORS = ["topology", "model", "limit"]


def runs(*rows: tuple[str, str | None, str | None, str | None, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["task", *FACTORS, "score"])


def seen(frame: pd.DataFrame) -> list[tuple[str, str, str, str, str, float]]:
    found = observed_pairs(frame, factors=FACTORS, metrics=["score"])
    levels = [json.loads(text) for text in found["parameters"]]
    delta = found["q_counterfactual"] - found["q"]
    return [(row.task, row.operator, level["from"], level["to"], row.context, d)
            for row, level, d in zip(found.itertuples(), levels, delta, strict=True)]  # fmt: skip


def test_a_pair_differs_in_one_factor_alone() -> None:
    frame = runs(
        ("t", "tree", "small", "5", 1.0), ("t", "tree", "large", "5", 3.0), ("t", "star", "large", "5", 4.0),
        ("u", "tree", "small", "5", 2.0), ("u", "star", "large", "5", 9.0), ("v", "star", "small", "5", 9.0),
    )  # fmt: skip
    assert seen(frame) == [
        ("t", "topology", "star", "tree", "model=large, limit=5", -1.0),
        ("t", "model", "large", "small", "topology=tree, limit=5", -2.0),
    ]


def test_runs_of_the_same_settings_are_averaged_and_numbers_come_in_their_order() -> None:
    frame = runs(("t", "tree", "m", "20", 1.0), ("t", "tree", "m", "20", 2.0), ("t", "tree", "m", "3", 4.0))
    assert seen(frame) == [("t", "limit", "3", "20", "topology=tree, model=m", -2.5)]


def test_what_nobody_states_is_the_same_in_both_but_never_what_differs() -> None:
    frame = runs(
        ("t", "tree", None, "5", 1.0), ("t", "tree", "m", "5", 2.0), ("t", "star", None, "5", 4.0), ("t", "star", None, None, 9.0)
    )
    assert seen(frame) == [("t", "topology", "star", "tree", "limit=5", -3.0)]


def test_worlds_are_not_paired_with_each_other() -> None:
    frame = runs(("t", "tree", "m", "5", 1.0), ("t", "star", "m", "5", 2.0)).assign(world=["live", "simulated"])
    assert seen(frame) == []
    assert len(observed_effects(frame, factors=FACTORS, metrics=["score"])) == 0


def c30(n: int) -> pd.DataFrame:
    """Hard tasks spawn 9 times of 10, easy ones once; on average each task does what its kind does."""
    rows = []
    for k in range(n):
        for kind, p_spawn, reward in (("hard", 0.9, (0.3, 0.5)), ("easy", 0.1, (0.9, 0.85))):
            n_spawn = round(10 * p_spawn)
            rows += [(f"{kind}{k}", is_spawn, reward[is_spawn]) for is_spawn in [1] * n_spawn + [0] * (10 - n_spawn)]
    return pd.DataFrame(rows, columns=["task", "spawn", "passed"])


def test_c30_what_runs_with_a_decision_have_over_runs_without_has_the_wrong_sign_and_pairs_within_tasks_have_not() -> None:
    frame = c30(10)
    naive = frame[frame["spawn"] == 1]["passed"].mean() - frame[frame["spawn"] == 0]["passed"].mean()
    assert naive == pytest.approx(-0.305)
    (row,) = observed_effects(frame, factors=["spawn"], metrics=["passed"]).to_dict("records")
    assert (row["factor"], row["level_a"], row["level_b"], row["evidence"]) == ("spawn", "0", "1", "observational")
    assert row["delta_q"] == pytest.approx(0.075)
    assert (row["n"], row["n_tasks"], row["n_contexts"]) == (20, 20, 1)
    assert row["low"] < 0.075 < row["high"]


def test_a_missing_metric_is_counted_and_columns_say_what_a_row_is() -> None:
    frame = runs(*[(f"t{n}", t, "m", "5", math.nan if n == 0 else n + (t == "tree")) for n in range(9) for t in ("star", "tree")])
    table = observed_effects(frame, factors=FACTORS, metrics=["score"])
    assert list(table.columns[:7]) == ["factor", "level_a", "level_b", "metric", "world", "evidence", "n_contexts"]
    (row,) = table.to_dict("records")
    assert (row["n"], row["n_missing"], row["delta_q"], row["how"]) == (8, 1, 1.0, "alike")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_the_order_of_runs_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "task": rng.choice(["t", "u", "v"], 20), "topology": rng.choice(["a", "b"], 20), "model": rng.choice(["m", "n"], 20),
        "limit": "5", "score": rng.choice([0.0, 0.5, 1.0], 20),
    })  # fmt: skip
    tables = [observed_effects(f, factors=FACTORS, metrics=["score"]) for f in (frame, frame.iloc[rng.permutation(20)])]
    pd.testing.assert_frame_equal(*[table.reset_index(drop=True) for table in tables])


def test_conditions_state_their_factors() -> None:
    found = stated_factors(["topology=graph, model=gpt-4o, limit=5", "topology=tree, method=cot"])
    assert found.to_dict("records") == [
        {"topology": "graph", "model": "gpt-4o", "limit": "5", "method": None},
        {"topology": "tree", "model": None, "limit": None, "method": "cot"},
    ]
