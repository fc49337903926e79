"""E-processes and confidence sequences: worked values, exact expectations over all outcomes, false alarms, power."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from analysis.errors import TraceError
from analysis.sequential import (
    confidence_sequence,
    crossing,
    e_benjamini_hochberg,
    log_betting,
    log_envelope,
    log_paired,
    log_two_sample,
    mixture_radius,
)

Floats = npt.NDArray[np.float64]
UNIT = hnp.arrays(np.float64, st.integers(0, 30), elements=st.floats(0, 1))
SIGNED = hnp.arrays(np.float64, st.integers(0, 30), elements=st.floats(-1, 1))
MU0 = st.floats(0.001, 0.999)


def reached(log_e: Floats, alpha: float) -> Floats:
    """Whether each stream, one a row, ever reached 1/alpha."""
    return np.asarray(log_e.max(axis=-1) >= -math.log(alpha))


def outcomes(values: tuple[float, ...], n: int) -> Floats:
    """Every stream of n values, one a row."""
    return np.array(list(product(values, repeat=n)))


# Worked values of the reference.


@pytest.mark.parametrize(
    ("bet", "n_samples", "n_quotes", "square", "factor"), [(1.0, 8, 2, 0.1, 0.916219), (0.5, 8, 3, 0.25, 1.031743)]
)
def test_o39_factor_of_the_envelope(bet: float, n_samples: int, n_quotes: int, square: float, factor: float) -> None:
    assert np.exp(log_envelope([square], n_quotes, n_samples, bets=[bet])) == pytest.approx([1.0, factor], abs=5e-7)


def test_o39_the_best_bet_for_an_excess_of_0_0375_is_0_15() -> None:
    bets = np.round(np.arange(0.01, 0.5, 0.01), 2)
    growth = [log_envelope([2 / 32 + 0.0375], 2, 8, bets=[bet])[-1] for bet in bets]
    assert bets[np.argmax(growth)] == 0.15


def test_the_envelope_averages_its_bets() -> None:
    one, other = (log_envelope([0.1, 0.4], 2, 8, bets=[bet]) for bet in (0.1, 2.0))
    both = log_envelope([0.1, 0.4], 2, 8, bets=[0.1, 2.0])
    assert np.exp(both) == pytest.approx((np.exp(one) + np.exp(other)) / 2, abs=1e-15)


def test_c31_wins_draws_and_losses() -> None:
    assert np.exp(log_paired([1, 0, -1], bet=0.5)) == pytest.approx([1, 1.5, 1.5, 0.75])
    wins = log_paired([1] * 8, bet=0.5)
    assert np.exp(wins[7:]) == pytest.approx([17.0859375, 25.62890625])
    assert crossing(wins, alpha=0.05) == 8
    mixed = log_paired([1, 1, 0, 1, -1, 1, 1, 1, 0, 1, 1, 1], bet=0.5)
    assert math.exp(mixed[-1]) == pytest.approx(19.2217, abs=5e-5)
    assert crossing(mixed, alpha=0.05) is None


def test_betting_by_hand() -> None:
    # mu0 0.1, x 0.5: no bet first; then m - mu0 = 0.4/2, v = 0.0025/2, lam = 0.2/0.04125; then 0.8/3, 0.0025/3, no cap at 5.
    second, third = 0.2 / 0.04125, (0.8 / 3) / (0.0025 / 3 + (0.8 / 3) ** 2)
    factors = [1.0, 1.0, 1 + second * 0.4, 1 + third * 0.4]
    assert log_betting([0.5, 0.5, 0.5], mu0=0.1) == pytest.approx(np.cumsum(np.log(factors)), abs=1e-12)
    # A bet never exceeds 1/(2 mu0): 0.1/2 over 0.0025/2 + 0.05² is 13.3, the cap at mu0 0.5 is 1.
    assert log_betting([0.6, 0.6], mu0=0.5)[-1] == pytest.approx(math.log(1.1), abs=1e-12)


def test_paired_bets_by_hand() -> None:
    # After D = 0.2: mean 0.1, variance 0.25/2, lam 0.1/0.135, above the cap of 0.5.
    assert log_paired([0.2, 1.0])[-1] == pytest.approx(math.log(1.5), abs=1e-12)
    # After D = 0.1: mean 0.05, lam 0.05/0.1275.
    assert log_paired([0.1, 1.0])[-1] == pytest.approx(math.log(1 + 0.05 / 0.1275), abs=1e-12)


def test_confidence_sequence_by_hand() -> None:
    # x = 0.5: lam = min(1/2, sqrt(2 ln 40 / (0.25 ln 2))) = 1/2; no deviation, so radius = ln 40 / 0.5, wider than [0, 1].
    low, high = confidence_sequence([0.5], alpha=0.05)
    assert (low.tolist(), high.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    # x = 1, 0, 1, 0, ... written out with sums.
    x, alpha = [1.0, 0.0] * 100, 0.05
    mean, variance, total, centre, loss, past = 0.5, 0.25, 0.0, 0.0, 0.0, 0.25
    for t, value in enumerate(x, 1):
        lam = min(0.5, math.sqrt(2 * math.log(2 / alpha) / (variance * t * math.log(1 + t))))
        total, centre = total + lam, centre + lam * value
        loss += 4 * (value - mean) ** 2 * (-math.log(1 - lam) - lam) / 4
        mean = (0.5 + sum(x[:t])) / (t + 1)
        past += (value - mean) ** 2
        variance = past / (t + 1)
    low, high = confidence_sequence(x, alpha=alpha)
    radius = (math.log(2 / alpha) + loss) / total
    assert (low[-1], high[-1]) == pytest.approx((centre / total - radius, centre / total + radius), abs=1e-12)


def test_mixture_radius_by_hand_and_where_rho_is_best() -> None:
    assert mixture_radius(4, alpha=0.1, sigma=2.0, rho=1.0) == pytest.approx([2 * math.sqrt(5 * math.log(500)) / 4])
    rho = np.arange(5.0, 20.0, 0.1)
    radius = [mixture_radius(82, alpha=0.05, sigma=1.0, rho=r)[0] for r in rho]
    assert rho[np.argmin(radius)] == pytest.approx(10.0, abs=0.11)


def test_e_bh_by_hand() -> None:
    # m = 4, alpha 0.05: thresholds 80, 40, 26.7, 20 for the 1st to 4th greatest. 30 > 26.7 takes 45 and 60 with it.
    q = e_benjamini_hochberg([math.log(e) for e in (30, 1, 60, 45)])
    assert q == pytest.approx([4 / 90, 1.0, 4 / 90, 4 / 90])
    assert e_benjamini_hochberg([math.log(20), None]) == pytest.approx([0.05, None])
    assert e_benjamini_hochberg([5_000.0, -5_000.0]) == [0.0, 1.0]
    assert e_benjamini_hochberg([]) == []


# What makes them e-processes: expectations over all outcomes, by counting.


@pytest.mark.parametrize("p", [0.3, 0.1])
def test_betting_never_gains_on_average_under_its_null(p: float) -> None:
    x = outcomes((0.0, 1.0), 12)
    weights = np.prod(np.where(x == 1, p, 1 - p), axis=1)
    e = np.exp(log_betting(x, mu0=0.3))
    expected = weights @ e
    assert (np.diff(expected) <= 1e-12).all()
    assert expected[-1] == pytest.approx(1.0, abs=1e-12) if p == 0.3 else expected[-1] < 1
    assert weights @ reached(log_betting(x, mu0=0.3), 0.2) <= 0.2


def test_betting_holds_where_each_value_depends_on_those_before() -> None:
    # After a 1 the next is 1 with probability mu0, after a 0 with half of it: never above mu0 given the past.
    x, mu0 = outcomes((0.0, 1.0), 12), 0.4
    p = np.where(np.concatenate([np.ones((len(x), 1)), x[:, :-1]], axis=1) == 1, mu0, mu0 / 2)
    weights = np.prod(np.where(x == 1, p, 1 - p), axis=1)
    log_e = log_betting(x, mu0=mu0)
    assert weights.sum() == pytest.approx(1)
    assert (np.diff(weights @ np.exp(log_e)) <= 1e-12).all()
    assert weights @ reached(log_e, 0.2) <= 0.2


def test_betting_is_a_supermartingale_after_every_past() -> None:
    # Not only on average over all pasts: from each past the mean of the next E, at the null's border, is the E now.
    x, mu0 = outcomes((0.0, 1.0), 8), 0.3
    now = log_betting(x, mu0=mu0)[:, -1]
    lost, won = (log_betting(np.column_stack([x, np.full(len(x), v)]), mu0=mu0)[:, -1] for v in (0.0, 1.0))
    assert (1 - mu0) * np.exp(lost) + mu0 * np.exp(won) == pytest.approx(np.exp(now), rel=1e-12)


@pytest.mark.parametrize("bet", [None, 0.3, 0.9])
@pytest.mark.parametrize("two_sided", [False, True])
def test_paired_differences_never_gain_on_average_under_their_null(bet: float | None, two_sided: bool) -> None:
    d = outcomes((-1.0, 0.0, 1.0), 8)
    weights = np.prod(np.array([0.25, 0.5, 0.25])[(d + 1).astype(int)], axis=1)
    log_e = log_paired(d, bet=bet, two_sided=two_sided)
    assert weights @ np.exp(log_e) == pytest.approx(np.ones(9), abs=1e-12)
    assert weights @ reached(log_e, 0.1) <= 0.1


def test_two_samples_never_gain_on_average_where_they_are_alike() -> None:
    x = outcomes((0.0, 1.0), 5)
    p = np.prod(np.where(x == 1, 0.3, 0.7), axis=1)
    before, after = np.repeat(x, len(x), axis=0), np.tile(x, (len(x), 1))
    expected = np.outer(p, p).ravel() @ np.exp(log_two_sample(before, after))
    assert expected == pytest.approx(np.ones(6), abs=1e-12)


def test_the_envelope_never_gains_on_average_from_coherent_samples() -> None:
    # Two components quote a and not-a, means of 4 yes-or-no samples with p and 1 - p: ε² = (q1 + q2 - 1)² / 2.
    n_samples = 4
    hits = np.arange(n_samples + 1)
    for p in (0.5, 0.2):
        one, other = (np.array([math.comb(n_samples, c) * q**c * (1 - q) ** (n_samples - c) for c in hits]) for q in (p, 1 - p))
        squares = ((hits[:, None] + hits[None, :]) / n_samples - 1).ravel() ** 2 / 2
        weights = np.outer(one, other).ravel()
        assert weights @ squares <= 2 / (4 * n_samples)
        streams = np.array(list(product(range(len(squares)), repeat=2)))
        expected = np.prod(weights[streams], axis=1) @ np.exp(log_envelope(squares[streams], 2, n_samples))
        assert (np.diff(expected) < 0).all()


@pytest.mark.parametrize("p", [0.02, 0.5, 0.9])
def test_the_confidence_sequence_covers_over_all_outcomes(p: float) -> None:
    x = outcomes((0.0, 1.0), 14)
    weights = np.prod(np.where(x == 1, p, 1 - p), axis=1)
    low, high = confidence_sequence(x, alpha=0.2)
    assert weights @ ((low <= p) & (p <= high)).all(axis=1) >= 0.8


# False alarms, coverage and power, by simulation.


def null_streams(rng: np.random.Generator, n_runs: int, n: int) -> list[Floats]:
    """Streams at the border of "mean at most 0.05": rarely 1, always near 0.05, now and then large."""
    return [(rng.random((n_runs, n)) < 0.05).astype(float), rng.beta(10, 190, (n_runs, n)), rng.beta(0.2, 3.8, (n_runs, n))]


@pytest.mark.parametrize("n_runs", [400, pytest.param(20_000, marks=pytest.mark.soak)])
def test_false_alarms_of_betting_are_at_most_alpha(n_runs: int) -> None:
    for x in null_streams(np.random.default_rng(5), n_runs, 500):
        for alpha in (0.05, 0.2):
            assert reached(log_betting(x, mu0=0.05), alpha).mean() <= alpha


@pytest.mark.parametrize("n_runs", [400, pytest.param(20_000, marks=pytest.mark.soak)])
def test_false_alarms_of_paired_differences_are_at_most_alpha(n_runs: int) -> None:
    rng = np.random.default_rng(6)
    for x in null_streams(rng, n_runs, 500):
        log_e = log_two_sample(x, rng.permuted(x, axis=0))
        assert reached(log_e, 0.05).mean() <= 0.05


def test_peeking_at_a_t_test_rejects_a_true_null_five_times_too_often_and_the_e_process_does_not() -> None:
    d = np.random.default_rng(7).choice([-1.0, 0.0, 1.0], size=(4_000, 200), p=[0.15, 0.7, 0.15])
    n = np.arange(1, 201)
    mean = np.cumsum(d, axis=1) / n
    error = np.sqrt((np.cumsum(d**2, axis=1) / n - mean**2)[:, 9:] / (n[9:] - 1))
    t = np.divide(mean[:, 9:], error, out=np.zeros_like(error), where=error > 0)
    assert (t > 1.65).any(axis=1).mean() > 0.25
    assert reached(log_paired(d, bet=0.3), 0.05).mean() < 0.041


@pytest.mark.parametrize("n_runs", [300, pytest.param(5_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("p", [0.05, 0.5])
def test_confidence_sequence_covers_at_every_time(n_runs: int, p: float) -> None:
    x = (np.random.default_rng(8).random((n_runs, 1_000)) < p).astype(float)
    low, high = confidence_sequence(x, alpha=0.05)
    assert ((low <= p) & (p <= high)).all(axis=1).mean() >= 0.95
    assert (high - low)[:, -1].max() < 0.14  # and is of use: a fixed-sample 95 % interval at p = 0.5 has width 0.062


def test_normal_mixture_covers_at_every_time() -> None:
    x = np.random.default_rng(9).normal(size=(1_000, 500))
    n = np.arange(1, 501)
    radius = mixture_radius(n, alpha=0.05, sigma=1.0, rho=10.0)
    assert (np.abs(np.cumsum(x, axis=1) / n) <= radius).all(axis=1).mean() >= 0.95


@pytest.mark.parametrize(("bet", "power", "median_stop"), [(0.3, 0.93, 150), (0.5, 0.81, 136)])
def test_power_at_a_mean_of_one_tenth(bet: float, power: float, median_stop: int) -> None:
    d = np.random.default_rng(10).choice([-1.0, 0.0, 1.0], size=(6_000, 400), p=[0.1, 0.7, 0.2])
    hit = log_paired(d, bet=bet) >= math.log(20)
    stop = np.where(hit.any(axis=1), hit.argmax(axis=1), 401)  # a run that never stops counts as later than all
    assert hit.any(axis=1).mean() == pytest.approx(power, abs=0.015)
    assert np.median(stop) == pytest.approx(median_stop, abs=6)


def test_power_without_choosing_a_bet_is_near_that_of_the_best_one() -> None:
    d = np.random.default_rng(11).choice([-1.0, 0.0, 1.0], size=(4_000, 400), p=[0.1, 0.7, 0.2])
    assert reached(log_paired(d), 0.05).mean() > 0.8


# Laws.


@given(UNIT, MU0, st.integers(0, 30))
def test_the_past_never_changes(x: Floats, mu0: float, n: int) -> None:
    n = min(n, len(x))
    assert (log_betting(x, mu0=mu0)[: n + 1] == log_betting(x[:n], mu0=mu0)).all()
    for whole, part in zip(confidence_sequence(x, alpha=0.1), confidence_sequence(x[:n], alpha=0.1), strict=True):
        assert (whole[: n + 1] == part).all()


@given(SIGNED, st.integers(0, 30), st.booleans())
def test_the_past_of_differences_never_changes(d: Floats, n: int, two_sided: bool) -> None:
    n = min(n, len(d))
    assert (log_paired(d, two_sided=two_sided)[: n + 1] == log_paired(d[:n], two_sided=two_sided)).all()


@given(UNIT, MU0)
def test_evidence_starts_at_1_is_finite_and_loses_at_most_half_a_step(x: Floats, mu0: float) -> None:
    for log_e in (log_betting(x, mu0=mu0), log_paired(2 * x - 1), log_envelope(x, 2, 8)):
        assert log_e[0] == pytest.approx(0, abs=1e-15)
        assert len(log_e) == len(x) + 1
        assert np.isfinite(log_e).all()
    assert (np.diff(log_betting(x, mu0=mu0)) >= math.log(0.5) - 1e-9).all()


@given(SIGNED)
def test_two_sided_evidence_is_the_same_for_the_mirror_image(d: Floats) -> None:
    both = log_paired(d, two_sided=True)
    assert both == pytest.approx(log_paired(-d, two_sided=True), abs=1e-12)
    assert both == pytest.approx(np.logaddexp(log_paired(d), log_paired(-d)) - math.log(2), abs=1e-12)


@given(UNIT)
def test_bounds_of_the_complement_are_the_complement_of_the_bounds(x: Floats) -> None:
    low, high = confidence_sequence(x, alpha=0.05)
    mirrored_low, mirrored_high = confidence_sequence(1 - x, alpha=0.05)
    assert low == pytest.approx(1 - mirrored_high, abs=1e-9)
    assert high == pytest.approx(1 - mirrored_low, abs=1e-9)


@given(hnp.arrays(np.float64, (3, 7), elements=st.floats(0, 1)), MU0)
def test_many_streams_at_once_are_each_stream_alone(x: Floats, mu0: float) -> None:
    assert (log_betting(x, mu0=mu0) == [log_betting(row, mu0=mu0) for row in x]).all()
    assert (log_envelope(x, 2, 8) == [log_envelope(row, 2, 8) for row in x]).all()
    assert (log_paired(x) == [log_paired(row) for row in x]).all()
    low, high = confidence_sequence(x, alpha=0.1)
    alone = [confidence_sequence(row, alpha=0.1) for row in x]
    assert (low == [one[0] for one in alone]).all()
    assert (high == [one[1] for one in alone]).all()


@given(SIGNED, st.floats(0, 0.99))
def test_the_order_does_not_matter_to_a_constant_bet(d: Floats, bet: float) -> None:
    assert log_paired(d, bet=bet)[-1] == pytest.approx(log_paired(d[::-1], bet=bet)[-1], abs=1e-9)


def test_a_stream_at_the_border_of_the_null_is_no_evidence() -> None:
    assert log_betting([0.1] * 50, mu0=0.1) == pytest.approx(np.zeros(51), abs=1e-12)
    assert log_paired([0.0] * 50).tolist() == [0.0] * 51


def test_two_samples_stop_with_the_shorter_and_keep_what_they_have() -> None:
    before, after = [0.1, 0.2, 0.3], [0.9, 0.9, 0.9, 0.9, 0.9]
    assert log_two_sample(before, after) == pytest.approx(log_paired([0.8, 0.7, 0.6]))
    assert (log_two_sample(before, after) == log_two_sample([*before, 0.4], after)[:4]).all()
    assert log_two_sample([], after).tolist() == [0.0]


def test_evidence_of_a_long_stream_does_not_overflow() -> None:
    log_e = log_betting(np.ones(100_000), mu0=0.01)
    assert log_e[-1] == pytest.approx(100_000 * math.log(1 + 0.99 / 0.99), rel=1e-3)  # the bet tends to 1/(1 - mu0)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=12), st.randoms())
def test_e_bh_does_not_depend_on_the_order_and_picks_what_its_rule_says(log_e: list[float], random: object) -> None:
    q = e_benjamini_hochberg(log_e)
    order = list(range(len(log_e)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert e_benjamini_hochberg([log_e[n] for n in order]) == [q[n] for n in order]
    for alpha in (0.05, 0.3):
        ranked = sorted(log_e, reverse=True)
        n_picked = max((k for k, e in enumerate(ranked, 1) if e >= math.log(len(log_e) / (k * alpha))), default=0)
        assert sum(value is not None and value <= alpha for value in q) == n_picked


# The edge.


@pytest.mark.parametrize("value", [1.7, -0.1, math.nan, math.inf])
def test_a_value_that_is_no_probability_is_refused(value: float) -> None:
    with pytest.raises(TraceError, match=r"value 1 of a stream: outside its range \(got .*, expected a number from 0 to 1\)"):
        log_betting([0.2, value], mu0=0.1)
    with pytest.raises(TraceError, match="value 0, 1 of a stream"):
        confidence_sequence([[0.2, value]], alpha=0.1)
    with pytest.raises(TraceError, match="value 1 of a stream"):
        log_two_sample([0.1, 0.1], [0.2, value])


def test_a_difference_outside_its_range_is_refused() -> None:
    with pytest.raises(TraceError, match=r"got -1.2, expected a number from -1 to 1"):
        log_paired([-1.2])


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(TraceError, match=r"mu0: outside its range \(got 0, expected a number above 0 and below 1\)"):
        log_betting([0.1], mu0=0.0)
    with pytest.raises(TraceError, match=r"bet: .* \(got 1.0, expected a number from 0 to below 1\)"):
        log_paired([0.1], bet=1.0)
    with pytest.raises(TraceError, match=r"alpha: outside its range \(got 1, "):
        crossing(np.zeros(3), alpha=1.0)
    with pytest.raises(TraceError, match=r"got 0, expected a number from 1 up"):
        log_envelope([0.1], 2, 0)
    with pytest.raises(TraceError, match=r"got inf, expected a number from 0 up"):
        log_envelope([math.inf], 2, 8)
    with pytest.raises(TraceError, match=r"sigma: outside its range \(got -1, expected a number above 0\)"):
        mixture_radius(3, alpha=0.1, sigma=-1.0)
    with pytest.raises(TraceError, match=r"log E: not a number"):
        e_benjamini_hochberg([0.0, math.nan])


def test_nothing_is_changed_that_is_passed_in() -> None:
    x = np.array([0.1, 0.7, 0.2])
    x.flags.writeable = False
    for log_e in (log_betting(x, mu0=0.1), log_paired(x), log_two_sample(x, x), log_envelope(x, 2, 8)):
        assert log_e.shape == (4,)
    assert confidence_sequence(x, alpha=0.1)[0].shape == (4,)
