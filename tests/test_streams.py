"""Keyed randomness: what a draw depends on, and what it does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.streams import pick, stream, uniform, whole

KEYS = st.lists(st.text() | st.integers(), max_size=4).map(tuple)
LAST = 1 - 2**-53  # the largest number below 1 that is drawn


def test_the_numbers_are_the_same_on_every_machine() -> None:
    assert uniform(7, "coder", "duration", 3) == 0.7419887338595178
    assert stream(7, "x").random(3).tolist() == [0.888017822873164, 0.9905182832584493, 0.7218192596591172]


@given(st.integers(), KEYS)
def test_the_same_key_draws_the_same_whatever_was_drawn_between(seed: int, key: tuple[str | int, ...]) -> None:
    one, many = uniform(seed, *key), stream(seed, *key).random(5)
    uniform(seed, *key, "other")
    stream(seed, *key, "other").random(100)
    assert uniform(seed, *key) == one
    assert np.array_equal(stream(seed, *key).random(5), many)


@given(KEYS, KEYS)
def test_different_keys_draw_differently(a: tuple[str | int, ...], b: tuple[str | int, ...]) -> None:
    assert (uniform(7, *a) == uniform(7, *b)) == (a == b)
    assert (stream(7, *a).random() == stream(7, *b).random()) == (a == b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("a", "bc"), ("ab", "c")),
        (("a", "b"), ("ab",)),
        ((1,), ("1",)),
        ((1, 2), (12,)),
        (("s1:a",), ("a",)),
        (("i1;",), (1,)),
        (("",), ()),
        ((-1,), (1,)),
        (("\ud800",), ("\ud801",)),
    ],
)
def test_parts_of_a_key_keep_their_borders_and_types(a: tuple[str | int, ...], b: tuple[str | int, ...]) -> None:
    assert uniform(7, *a) != uniform(7, *b)
    assert stream(7, *a).random() != stream(7, *b).random()


def test_the_seed_is_no_part_of_the_key() -> None:
    assert uniform(1, 2) != uniform(12)
    assert uniform(1, 2) != uniform(2, 1)


def test_keyed_draws_are_spread_evenly() -> None:
    draws = np.array([uniform(0, "spread", n) for n in range(10_000)])
    counts, _ = np.histogram(draws, bins=10, range=(0, 1))
    assert counts.min() > 850  # a tenth is 1,000, with a standard deviation of 30
    assert counts.max() < 1150
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.05


def test_a_draw_is_a_multiple_of_two_to_the_minus_53() -> None:
    for u in (uniform(3, "grid"), stream(3, "grid").random()):
        assert 0 <= u < 1
        assert (u * 2**53).is_integer()


@given(st.integers(-1000, 1000), st.integers(0, 2**40))
def test_whole_numbers_reach_both_ends_and_no_further(low: int, width: int) -> None:
    assert whole(0.0, low, low + width) == low
    assert whole(LAST, low, low + width) == low + width


@given(st.lists(st.integers(), min_size=1))
def test_the_first_and_the_last_option_can_be_picked(options: list[int]) -> None:
    assert pick(0.0, options) == options[0]
    assert pick(LAST, options) == options[-1]


def test_options_are_equally_likely() -> None:
    drawn = [pick(uniform(0, "options", n), "abc") for n in range(3000)]
    assert all(900 < drawn.count(option) < 1100 for option in "abc")


def test_a_key_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="Unknown format code 'd'"):
        uniform(7, 0.5)  # type: ignore[arg-type]
