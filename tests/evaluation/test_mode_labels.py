"""Modes beside labels: the verdict of an annotator, the agreement by hand, its interval, and when there is none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.evaluation.mode_labels import LabelAgreement, label_agreement


def members(modes: str) -> pd.DataFrame:
    return pd.DataFrame({"trace_id": [f"t{n:03d}" for n in range(len(modes))], "mode_id": list(modes)})


def labels(*rows: tuple[int, str, str | None, str | None, bool | None]) -> pd.DataFrame:
    columns = ["trace_id", "annotator", "category", "agent_id", "is_root_cause"]
    return pd.DataFrame([(f"t{n:03d}", *rest) for n, *rest in rows], columns=columns)


def categories(values: str, annotator: str = "eve") -> pd.DataFrame:
    return labels(*((n, annotator, value, None, None) for n, value in enumerate(values) if value != "-"))


def found(modes: str, given: pd.DataFrame, seed: int = 0) -> list[LabelAgreement]:
    return label_agreement(members(modes), given, np.random.default_rng(seed))


def facts(agreement: LabelAgreement) -> dict[str, Any]:
    return {name: getattr(agreement, name) for name in ("annotator", "what", "n", "n_modes", "n_values", "value", "reason")}


def test_the_same_partition_is_one_and_its_interval_too() -> None:
    (agreement,) = found("m" * 10 + "n" * 10, categories("x" * 10 + "y" * 10))
    assert (agreement.value, agreement.low, agreement.high, agreement.n) == (1.0, 1.0, 1.0, 20)
    assert str(agreement) == "modes and the category by eve: 1.00 (1.00 to 1.00, 20 traces), above chance"


def test_the_agreement_by_hand() -> None:
    """Two halves crossed evenly: no information at all. By chance it would be E, so that (0 - E) / (log 2 - E) is below 0."""
    (agreement,) = found("m" * 6 + "n" * 6, categories("xxxyyy" * 2))
    ways = [math.comb(6, k) ** 2 / math.comb(12, 6) for k in range(7)]
    expected = 0.0
    for k, p in enumerate(ways):  # k of the six m are x
        cells = [k, 6 - k, 6 - k, k]
        expected += p * sum(c / 12 * math.log(12 * c / 36) for c in cells if c)
    assert agreement.value == pytest.approx((0 - expected) / (math.log(2) - expected), abs=1e-6)
    assert "not told from chance" in str(agreement)


@pytest.mark.parametrize("n_seeds", [2, pytest.param(5, marks=pytest.mark.soak)])
def test_the_interval_of_independent_labels_holds_zero(n_seeds: int) -> None:
    """Drawn with replacement it would not: traces drawn twice agree with themselves."""
    rng = np.random.default_rng(1)
    held = []
    for seed in range(n_seeds):
        modes, values = ("".join(rng.choice(list(names), 120)) for names in ("abcdefgh", "stuvwxyz"))
        (agreement,) = found(modes, categories(values), seed)
        assert agreement.low is not None
        assert agreement.high is not None
        held.append(agreement.low <= 0 <= agreement.high)
        assert agreement.low <= agreement.value <= agreement.high  # type: ignore[operator]
    assert all(held)


def test_each_annotator_is_asked_for_the_category_and_for_the_agent_alone() -> None:
    given = pd.concat([
        categories("x" * 10 + "y" * 10, "adam"),
        labels(*((n, "eve", None, "Web" if n % 2 else "web", None) for n in range(12))),
        labels((0, "grader", None, None, None)),
    ])  # fmt: skip
    assert [facts(agreement) for agreement in found("m" * 10 + "n" * 10, given)] == [
        {"annotator": "adam", "what": "category", "n": 20, "n_modes": 2, "n_values": 2, "value": 1.0, "reason": ""},
        {"annotator": "eve", "what": "responsible agent", "n": 12, "n_modes": 2, "n_values": 1, "value": None,
         "reason": "all 12 traces have one value: nothing can agree or differ"},
    ]  # fmt: skip


def test_the_root_cause_is_the_verdict_and_without_one_labels_must_agree() -> None:
    rows = [(n, "eve", "x" if n < 10 else "y", None, None) for n in range(20)]
    rows[0] = (0, "eve", "other", None, False)
    given = labels(*rows, (0, "eve", "x", None, True), (1, "eve", "X", None, None), (2, "eve", "y", None, None))
    (agreement,) = found("m" * 10 + "n" * 10, given)
    assert (agreement.n, agreement.value) == (19, 1.0)  # trace 2 has two verdicts and counts for none


def test_traces_without_a_mode_or_a_label_are_left_out() -> None:
    given = pd.concat([categories("x" * 10 + "y" * 10), labels((77, "eve", "z", None, None))])
    (agreement,) = found("m" * 10 + "n" * 6, given)
    assert (agreement.n, agreement.n_values) == (16, 2)


@pytest.mark.parametrize(
    ("modes", "values", "reason"),
    [
        ("mn" * 4, "xy" * 4, "8 traces have both, and at least 10 are needed"),
        ("mn" * 10, "x" + "-" * 19, "1 trace has both, and at least 10 are needed"),
        ("m" * 12, "xy" * 6, "all 12 traces have one mode: nothing can agree or differ"),
    ],
)
def test_where_there_is_no_value_it_says_why(modes: str, values: str, reason: str) -> None:
    (agreement,) = found(modes, categories(values))
    assert (agreement.value, agreement.low, agreement.high, agreement.reason) == (None, None, None, reason)
    assert str(agreement) == f"modes and the category by eve: {reason}"


def test_a_verdict_too_rare_for_halves_has_no_interval() -> None:
    (agreement,) = found("m" * 11 + "n", categories("x" * 11 + "y"))
    assert (agreement.value, agreement.low, agreement.high) == (1.0, None, None)
    assert str(agreement).endswith("1.00 (12 traces, too few of a kind for an interval)")


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2)]])
def test_the_order_of_rows_does_not_matter_and_one_is_never_passed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    modes, values = ("".join(rng.choice(list(names), 25)) for names in ("abc", "xyz"))
    mixed = categories(values).sample(frac=1, random_state=seed)
    (agreement,) = found(modes, categories(values))
    assert [agreement] == found(modes, mixed)
    assert agreement.value is not None
    assert agreement.value < 1


def test_without_labels_there_is_nothing_to_compare_with() -> None:
    assert found("mn" * 10, labels()) == []
