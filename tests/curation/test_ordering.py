"""Published orders come out as published; whatever a policy asks for is a permutation, and measured as the paper measures."""

from __future__ import annotations

from time import process_time

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curation.ordering import Marks, Ordering, is_permutation, order, order_metrics
from analysis.streams import stream

STR_40 = [*range(11), *range(11, 29, 3), *range(12, 28, 3), *range(13, 29, 3), *range(29, 40)]
SAW_40 = [*range(10), 10, 12, 14, 15, 13, 11, *range(16, 24), 24, 26, 28, 29, 27, 25, *range(30, 40)]


def ordered(n: int, **fields: object) -> list[int]:
    return order(range(n), range(n), msgspec.convert(fields, Ordering), rng=stream(0, "order"))


@pytest.mark.parametrize(
    ("n", "fields", "expected"),
    [
        (10, {"method": "fo", "layers": 2}, [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]),
        (10, {"method": "fo", "layers": 3}, [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]),
        (10, {"method": "fo"}, [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]),
        (10, {"method": "zig", "layers": 2}, [0, 2, 4, 6, 8, 9, 7, 5, 3, 1]),
        (10, {"method": "zig", "layers": 3}, [0, 3, 6, 9, 7, 4, 1, 2, 5, 8]),
        (20, {"method": "str"}, [0, 1, 2, 3, 4, 5, 6, 9, 12, 7, 10, 13, 8, 11, 14, 15, 16, 17, 18, 19]),
        (20, {"method": "saw"}, [0, 1, 2, 3, 4, 5, 7, 8, 6, 9, 10, 11, 13, 14, 12, 15, 16, 17, 18, 19]),
        (40, {"method": "str"}, STR_40),
        (40, {"method": "saw"}, SAW_40),
        (12, {"method": "saw", "sections": 4, "radius": 0.25, "layers": 2}, [0, 2, 4, 5, 3, 1, 6, 8, 7, 9, 11, 10]),
        (9, {"method": "saw", "sections": 1}, list(range(9))),
        (9, {"method": "str", "radius": 0.0}, list(range(9))),
        (0, {"method": "saw"}, []),
        (1, {"method": "zig"}, [0]),
        (4, {"method": "fo", "direction": "descending", "layers": 2}, [3, 1, 2, 0]),
    ],
)
def test_orders_are_those_of_the_paper(n: int, fields: dict[str, object], expected: list[int]) -> None:
    assert ordered(n, **fields) == expected


def test_borders_and_radii_are_rounded_half_to_even() -> None:
    # 9 rows: the border lies at 4.5 -> 4; a radius of 9 / 6 = 1.5 -> 2 reaches from row 2 to row 6.
    assert ordered(9, method="str", sections=2, radius=1 / 6, layers=2) == [0, 1, 2, 4, 3, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("method", "layers", "expected"),
    [
        ("sorted", None, (1, 19, 0.5, 18.5, 2.00)),
        ("fo", 3, (17, 85, 1.5, 15.5, 28.00)),
        ("zig", 3, (3, 53, 1.5, 15.5, 12.88)),
        ("str", None, (5, 39, 0.5, 18.5, 3.68)),
        ("saw", None, (3, 27, 0.5, 18.5, 2.00)),
    ],
)
def test_metrics_of_an_order_are_those_of_the_paper(method: str, layers: int | None, expected: tuple[float, ...]) -> None:
    found = order_metrics(ordered(20, method=method, layers=layers), window=5)
    assert found == pytest.approx(expected)


def test_an_order_without_scores_has_no_metrics_and_one_row_has_no_jump() -> None:
    assert order_metrics([None, float("nan")]) is None
    assert order_metrics([0.3, None]) == (0.0, 0.0, 0.3, 0.3, 0.0)


@pytest.mark.parametrize(
    ("sides", "front", "back"),
    [("low-high", {0, 1}, {18, 19}), ("high-low", {18, 19}, {0, 1})],
)
def test_seg_draws_front_and_back_from_the_ends(sides: str, front: set[int], back: set[int]) -> None:
    found = ordered(20, method="seg", sides=sides)
    assert (set(found[:2]), set(found[-2:])) == (front, back)
    assert sorted(found[2:-2]) == list(range(2, 18))
    assert found[2:-2] != list(range(2, 18))


@pytest.mark.parametrize(("sides", "drawn"), [("low-low", {0, 1, 2, 3, 4, 5}), ("high-high", {14, 15, 16, 17, 18, 19})])
def test_seg_from_one_end_draws_front_and_back_together(sides: str, drawn: set[int]) -> None:
    found = ordered(20, method="seg", sides=sides, front_share=0.2, back_share=0.1)
    assert set(found[:4]) | set(found[-2:]) == drawn
    assert set(found[:4]) not in ({0, 1, 2, 3}, {14, 15, 16, 17})


def test_jitter_shuffles_inside_windows_only_and_last() -> None:
    found = ordered(10, method="sorted", jitter_window=4)
    assert [set(found[:4]), set(found[4:8]), set(found[8:])] == [{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}]
    assert found != list(range(10))
    assert ordered(10, method="sorted", jitter_window=1) == list(range(10))


def test_equal_scores_keep_the_order_in_which_they_come() -> None:
    rng = stream(0, "ties")
    for direction in ("ascending", "descending"):
        assert order("abcd", [1, 1, 1, 1], Ordering(method="sorted", direction=direction), rng=rng) == list("abcd")


def test_rows_without_a_score_keep_their_places() -> None:
    found = order("abcde", [3, None, 2, float("nan"), 1], Ordering(method="sorted"), rng=stream(0, "x"))
    assert found == list("ebcda")


def test_an_id_that_stands_twice_for_another_is_no_permutation() -> None:
    assert is_permutation(["a", "b", "b"], ["b", "a", "b"])
    assert not is_permutation(["a", "b", "b"], ["a", "a", "b"])


def test_a_front_and_a_back_of_more_than_all_rows_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"front_share \+ back_share is 1.2, more than all rows"):
        msgspec.convert({"front_share": 0.7, "back_share": 0.5}, Ordering)


policies = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["none", "sorted", "fo", "zig", "seg", "str", "saw"]),
        "direction": st.sampled_from(["ascending", "descending"]),
        "layers": st.none() | st.integers(1, 6),
        "sections": st.none() | st.integers(1, 5),
        "radius": st.none() | st.floats(0, 1),
        "front_share": st.floats(0, 0.5),
        "back_share": st.floats(0, 0.5),
        "sides": st.sampled_from(["low-high", "high-low", "low-low", "high-high"]),
        "n_cycles": st.integers(0, 4),
        "boundary_share": st.floats(0, 0.5),
        "max_jump": st.none() | st.floats(0.01, 1),
        "diversity_window": st.integers(0, 6),
        "jitter_window": st.integers(0, 6),
    }
)
marked = st.lists(
    st.tuples(
        st.none() | st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.9]),
        st.none() | st.sampled_from([0.0, 1.0, 1.5]),
        st.none() | st.sampled_from("xyz"),
        st.none() | st.sampled_from("mno"),
    ),
    max_size=30,
)


@given(policies, marked, st.integers(0, 3))
def test_every_policy_gives_a_permutation_and_the_same_again(fields: dict[str, object], rows: list[tuple], seed: int) -> None:
    policy = msgspec.convert(fields, Ordering)
    ids = [f"t{n // 2}" for n in range(len(rows))]
    scores, *marks = ([row[n] for row in rows] for n in range(4))
    first, again = (order(ids, scores, policy, rng=stream(seed, "jit"), marks=Marks(*marks)) for _ in range(2))
    assert is_permutation(ids, first)
    assert first == again


def test_a_hundred_thousand_rows_are_ordered_in_time() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    names = [f"m{mode}" for mode in rng.integers(0, 40, n).tolist()]
    marks = Marks(rng.integers(0, 6, n).tolist(), names, names)
    policy = Ordering(n_cycles=4, boundary_share=0.1, max_jump=0.02, diversity_window=20, jitter_window=8)
    start = process_time()
    found = order(range(n), rng.random(n).tolist(), policy, rng=rng, marks=marks)
    assert process_time() - start < 3
    assert is_permutation(range(n), found)
