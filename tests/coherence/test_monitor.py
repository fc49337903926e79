"""Monitoring of ε*: the published composed stream, worked streams, what is left out, the sentences."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from analysis.coherence.cliques import Quote, tie
from analysis.coherence.monitor import Reading, grown, monitor
from analysis.coherence.relations import parse
from analysis.errors import TraceError
from analysis.sequential import confidence_sequence, log_betting, log_envelope, log_paired

FORMULAS = {"neg": "exactly_one({0}, {1})", "and": "iff({2}, {0} & {1})", "or": "iff({2}, {0} | {1})"}


def quoted(*residuals: float | None, n_quotes: int = 2, n_samples: int | None = 8) -> list[Reading]:
    """Readings of that many traces, all with as many quotes and samples."""
    return [Reading(residual=residual, n_quotes=n_quotes, n_samples=n_samples) for residual in residuals]


def normed(*residuals: float | None) -> list[Reading]:
    return [Reading(residual_norm=residual) for residual in residuals]


def composed_stream(folder: Path) -> list[Reading]:
    """The published composed run: each coordinate of a bet is quoted by a model drawn at random, four times over.

    Each model's forecast is coherent alone. A bet is left out where a model drawn for it has fewer outcomes than the first.
    """
    arrays = np.load(folder / "master_combined.npz")
    relations = np.array(json.loads((folder / "master_combined.json").read_text(encoding="utf-8"))["relations"]).reshape(4, -1)
    n_bets = relations.shape[1]
    forecasts, sizes = arrays["forecast__JCD"].reshape(4, n_bets, -1), arrays["clique_sizes"].reshape(4, n_bets)
    rng = np.random.default_rng(0)
    bets: list[tuple[str, list[float]]] = []
    for bet in list(range(n_bets)) * 4:
        kind, size = str(relations[0, bet]), int(sizes[0, bet])
        if kind == "equal":
            continue
        owners = rng.integers(0, 4, size=size)
        if kind != "partition" or (sizes[owners, bet] >= size).all():
            bets.append((kind, forecasts[owners, bet, np.arange(size)].tolist()))
    residuals = np.zeros(len(bets))
    for kind, size in sorted({(kind, len(quotes)) for kind, quotes in bets}):
        names = "abcdefgh"[:size]
        formula = FORMULAS.get(kind, f"exactly_one({', '.join(names)})").format(*names)
        (clique,) = tie([Quote(name, name, 0.5) for name in names], [parse(formula)])
        rows = [n for n, (other, quotes) in enumerate(bets) if (other, len(quotes)) == (kind, size)]
        residuals[rows] = clique.project(np.array([bets[n][1] for n in rows])).upper
    return [
        Reading(residual=float(residual), n_quotes=len(quotes), n_samples=8)
        for residual, (_, quotes) in zip(residuals, bets, strict=True)
    ]


@pytest.fixture(scope="module")
def published(shared_traces: Path) -> list[Reading]:
    folder = shared_traces / "compositional" / "figures"
    if not (folder / "master_combined.npz").is_file():
        pytest.skip(f"the published arrays are not here: {folder}")
    return composed_stream(folder)


def test_the_published_stream_is_the_one_of_the_paper(published: list[Reading]) -> None:
    residuals = np.array([reading.residual for reading in published])
    envelope = np.mean([(reading.n_quotes or 0) / 32 for reading in published])
    assert len(published) == 1_767
    assert (residuals.mean(), (residuals**2).mean(), envelope) == pytest.approx((0.0819, 0.01916, 0.08494), abs=5e-5)


def test_the_envelope_of_the_published_stream_never_crosses_and_ends_where_the_paper_says(published: list[Reading]) -> None:
    found = monitor(published, mu0=0.01, alpha=1e-4)
    assert found.envelope is not None
    assert found.envelope.crossed_at is None
    assert math.exp(found.envelope.log_e[-1]) == pytest.approx(2.018e-4, abs=5e-8)
    squares, n_quotes = np.array([(reading.residual or 0.0, reading.n_quotes or 0) for reading in published]).T
    for bet in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0):
        assert log_envelope(squares**2, n_quotes, 8, bets=[bet]).max() < math.log(1e4)


@pytest.mark.parametrize(("mu0", "crossed_at"), [(0.0025, 83), (0.004, 121), (0.005, 158), (0.006, 583), (0.01, None)])
def test_betting_finds_the_published_stream(published: list[Reading], mu0: float, crossed_at: int | None) -> None:
    found = monitor(published, mu0=mu0, alpha=1e-4)
    assert found.betting.crossed_at == crossed_at
    assert found.mean == pytest.approx(0.00767, abs=5e-6)


def test_the_published_stream_in_words(published: list[Reading]) -> None:
    assert monitor(published, mu0=0.0025, alpha=1e-4).text == (
        "There is evidence that the mean of ε*² per quote is above 0.0025: E reached 10,000 (1/alpha) after 83 of 1,767 traces. "
        "Over all of them that mean is 0.00767. The envelope form did not get there."
    )


def test_a_stream_is_measured_per_quote_or_by_its_norm() -> None:
    per_quote = monitor(quoted(0.2, 0.4, 0.6), mu0=0.05, alpha=0.05)
    assert per_quote.betting.log_e == pytest.approx(log_betting([0.02, 0.08, 0.18], mu0=0.05))
    assert per_quote.envelope is not None
    assert per_quote.envelope.log_e == pytest.approx(log_envelope([0.04, 0.16, 0.36], 2, 8))
    norm = monitor(normed(0.2, 0.4, 0.6), mu0=0.05, alpha=0.05, scale="norm")
    assert norm.betting.log_e == pytest.approx(log_betting([0.04, 0.16, 0.36], mu0=0.05))
    assert (norm.mean, norm.scale) == (pytest.approx(0.56 / 3), "norm")


def test_traces_without_a_residual_are_left_out_and_counted() -> None:
    found = monitor(quoted(0.2, None, 0.4, None), mu0=0.05, alpha=0.05)
    whole = monitor(quoted(0.2, 0.4), mu0=0.05, alpha=0.05)
    assert (found.used, found.n_missing) == ((0, 2), 2)
    assert (found.betting, found.envelope, found.mean) == (whole.betting, whole.envelope, whole.mean)
    assert found.text.endswith("Left out: 2 traces without a residual.")


def test_a_trace_without_what_the_scale_takes_is_left_out() -> None:
    mixed = [Reading(residual=0.2, n_quotes=2), Reading(residual_norm=0.5), Reading(residual=0.3)]
    assert monitor(mixed, mu0=0.1, alpha=0.05).used == (0,)
    assert monitor(mixed, mu0=0.1, alpha=0.05, scale="norm").used == (1,)


@pytest.mark.parametrize("n_samples", [None, 0])
def test_without_sample_counts_there_is_no_envelope_and_it_says_why(n_samples: int | None) -> None:
    found = monitor([*quoted(0.2), *quoted(0.4, n_samples=n_samples)], mu0=0.05, alpha=0.05)
    assert found.envelope is None
    assert found.reasons == {"envelope": "the number of quotes or of samples is not known for 1 of 2 traces"}
    assert found.text == (
        "There is not enough evidence that the mean of ε*² per quote is above 0.05: E was at most 1 over 2 traces, "
        "20 (1/alpha) is needed. Over all of them that mean is 0.05. "
        "There is no envelope form: the number of quotes or of samples is not known for 1 of 2 traces."
    )


@pytest.mark.parametrize("stream", [[], quoted(None)])
def test_without_residuals_there_is_nothing_to_monitor(stream: list[Reading]) -> None:
    found = monitor(stream, mu0=0.05, alpha=0.05)
    assert (found.mean, found.envelope, found.betting.log_e, found.betting.crossed_at) == (None, None, (0.0,), None)
    assert found.reasons.keys() == {"mean", "envelope"}
    assert found.text.startswith("Nothing to monitor: no trace has a residual on this scale")


def test_a_strong_enough_stream_crosses_by_the_envelope_too() -> None:
    found = monitor(quoted(*[1.0] * 30, n_samples=32), mu0=0.05, alpha=0.05)
    assert found.envelope is not None
    assert found.text.endswith(f"The envelope form got there after {found.envelope.crossed_at}.")


def test_the_largest_residual_of_all_may_come_rounded_up() -> None:
    found = monitor(quoted(1.732050808, n_quotes=3), mu0=0.05, alpha=0.05)
    assert found.mean == 1.0


@pytest.mark.parametrize("residual", [1.5, -0.1, math.nan])
def test_an_impossible_residual_is_refused(residual: float) -> None:
    with pytest.raises(TraceError, match=r"trace 1 of the stream: not a possible residual \(got .*, expected .* 0 to 1.41421\)"):
        monitor(quoted(0.1, residual), mu0=0.05, alpha=0.05)
    with pytest.raises(TraceError, match=r"trace 0 of the stream: .*, expected a number from 0 to 1\)"):
        grown(normed(0.1), normed(residual), alpha=0.05)


def test_impossible_settings_are_refused_even_without_residuals() -> None:
    with pytest.raises(TraceError, match="mu0"):
        monitor([], mu0=1.5, alpha=0.05)
    with pytest.raises(TraceError, match="alpha"):
        monitor([], mu0=0.5, alpha=0.0)
    with pytest.raises(TraceError, match="alpha"):
        grown([], [], alpha=5)
    with pytest.raises(TraceError, match="expected at least one quote"):
        monitor(quoted(0.0, n_quotes=0), mu0=0.5, alpha=0.05)


def test_growth_is_found_and_told() -> None:
    found = grown(normed(*[0.1] * 60), normed(*[0.5] * 60), alpha=0.05)
    assert found.betting.log_e == pytest.approx(log_paired([0.4] * 60))
    assert found.betting.crossed_at == 18
    assert found.difference is not None
    value, low, high, n = found.difference
    assert (value, n) == (pytest.approx(0.4), 60)
    bounds = [2 * float(bound[-1]) - 1 for bound in confidence_sequence([0.7] * 60, alpha=0.05)]
    assert (low, high) == pytest.approx(bounds)
    assert bounds[0] < 0.4 < bounds[1]
    assert found.text == (
        "There is evidence that ε* grew: E reached 20 (1/alpha) after 18 of 60 pairs. On average normalised ε* is 0.4 larger "
        f"after than before (with probability 0.95 the difference is from {low:.3g} to {high:.3g})."
    )


def test_a_fall_is_no_growth() -> None:
    found = grown(normed(*[0.5] * 60), normed(*[0.1] * 60), alpha=0.05)
    assert found.betting.log_e == (0.0,) * 61
    assert found.text.startswith(
        "There is not enough evidence that ε* grew: E was at most 1 over 60 pairs, 20 (1/alpha) is needed. On average normalised "
        "ε* is 0.4 smaller after than before"
    )


def test_pairs_are_by_place_and_everything_left_out_is_counted() -> None:
    before = normed(0.1, None, 0.3, 0.4)
    after = normed(0.2, 0.5, None, 0.8, 0.9, None)
    found = grown(before, after, alpha=0.05)
    assert (found.n_pairs, found.n_missing, found.n_unpaired) == (2, 3, 3)
    assert found.difference is not None
    assert found.difference.value == pytest.approx((0.1 + 0.4) / 2)
    assert found.text.endswith("Left out: 3 without a residual, 3 without a partner.")


def test_a_stream_that_is_longer_says_so() -> None:
    found = grown(normed(0.1), normed(0.2, 0.3), alpha=0.05)
    assert found.text.endswith("Left out: 0 without a residual, 1 without a partner.")


def test_growth_per_quote_compares_lengths() -> None:
    found = grown(quoted(0.2), quoted(0.4, n_quotes=8), alpha=0.05, scale="per_quote")
    assert found.difference is not None
    assert found.difference.value == pytest.approx(0.4 / math.sqrt(8) - 0.2 / math.sqrt(2))
    assert "On average ε* / √(number of quotes) is" in found.text


def test_without_pairs_there_is_nothing_to_compare() -> None:
    found = grown(normed(0.1, None), normed(None, 0.2), alpha=0.05)
    assert (found.n_pairs, found.difference, found.n_unpaired) == (0, None, 2)
    assert found.text == "Nothing to compare: no pair of traces has a residual on both sides."


def test_iterations_that_are_alike_rarely_look_grown() -> None:
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(200):
        before, after = (normed(*rng.beta(1, 3, 100)) for _ in range(2))
        alarms += grown(before, after, alpha=0.05).betting.crossed_at is not None
    assert alarms <= 10
