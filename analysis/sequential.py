"""Evidence that may be looked at after every observation: e-processes, confidence sequences, e-BH.

An e-process starts at 1 and, while its null hypothesis holds, has an expectation of at most 1 whenever one stops; so it
reaches 1/alpha with probability at most alpha (Ville 1939), however often one looks. All of them come as log E, column t
after t observations and column 0 before any; reject where log E >= log(1/alpha). How bets are placed is hidden here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from analysis.errors import TraceError

Floats = npt.NDArray[np.float64]

_LARGEST_BET = 0.5  # of what a bet may at most be, so that no single observation loses more than half
_PRIOR_VARIANCE = 0.0025  # of one imagined residual, (0.05)²
_PRIOR_PAIR_VARIANCE = 0.25  # of one imagined difference
_ENVELOPE_BETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def log_betting(x: npt.ArrayLike, *, mu0: float) -> Floats:
    """Return log E against "the mean of each x, given those before it, is at most mu0", for x in [0, 1].

    E_t = prod (1 + lam_s (x_s - mu0)), where lam_s, in [0, 1/(2 mu0)], is (m - mu0) / (v + (m - mu0)²) for mean m and
    variance v of the values before s, with one imagined value mu0 of variance 0.0025: Waudby-Smith & Ramdas 2024 (JRSS-B
    86). The values may depend on each other and need not be alike.

    Parameters
    ----------
    x : shape (..., n), one stream along the last axis
    mu0 : in (0, 1), chosen before looking

    Returns
    -------
    log E, shape (..., n + 1)

    Raises
    ------
    TraceError
        If a value is no number in [0, 1], or mu0 is none inside.

    Examples
    --------
    >>> log_betting([0.5, 0.5, 0.5], mu0=0.1).round(3)
    array([0.   , 0.   , 1.078, 1.988])
    """
    _check("mu0", mu0, 0.0, 1.0)
    d = _stream(x, 0.0, 1.0) - mu0
    return _wealth(_plug_in(d, _PRIOR_VARIANCE, _LARGEST_BET / mu0), d)


def log_paired(d: npt.ArrayLike, *, bet: float | None = None, two_sided: bool = False) -> Floats:
    """Return log E against "the mean of each difference, given those before it, is at most 0", for d in [-1, 1].

    E_t = prod (1 + lam_s d_s); lam is `bet`, in [0, 1), or by default mean / (variance + mean²) of the differences before,
    in [0, 0.5], with one imagined difference 0 of variance 1/4. Two-sided, against "the mean is 0": the average of this E
    and that of -d.

    Shape (..., n) in, (..., n + 1) out; TraceError for a value outside its range.

    >>> np.exp(log_paired([1, 0, -1, 1], bet=0.5)).round(3)
    array([1.   , 1.5  , 1.5  , 0.75 , 1.125])
    """
    if bet is not None and not 0 <= bet < 1:
        raise TraceError("bet", "not a bet on differences in [-1, 1]", got=str(bet), expected="a number from 0 to below 1")
    d = _stream(d, -1.0, 1.0)
    log_e = _paired(d, bet)
    return np.logaddexp(log_e, _paired(-d, bet)) - math.log(2) if two_sided else log_e


def log_two_sample(before: npt.ArrayLike, after: npt.ArrayLike, *, bet: float | None = None) -> Floats:
    """Return log E against "values after have, on average, not more than values before", for values in [0, 1].

    The t-th value of one stream is paired with the t-th of the other, and the differences go to `log_paired`. That is
    valid where in each pair the expected difference, given the pairs before, is at most 0: two streams whose means do not
    change, or one task run twice, which also removes what is due to the task. What the longer stream has over
    waits for its partner, so no pair ever changes while the streams grow.

    Shapes (..., n) and (..., k) in, (..., min(n, k) + 1) out; TraceError for a value outside [0, 1].

    >>> log_two_sample([0.1, 0.1, 0.9], [0.6, 0.6]).shape
    (3,)
    """
    x, y = _stream(before, 0.0, 1.0), _stream(after, 0.0, 1.0)
    n = min(x.shape[-1], y.shape[-1])
    return log_paired(y[..., :n] - x[..., :n], bet=bet)


def log_envelope(
    squares: npt.ArrayLike, n_quotes: npt.ArrayLike, n_samples: npt.ArrayLike, *, bets: Sequence[float] = _ENVELOPE_BETS
) -> Floats:
    """Return log E against "the quotes are means of samples whose expectation is coherent", from squared residuals.

    E_t(lam) = prod exp(lam (ε_s² - m_s / (4 K_s)) - lam² m_s / (2 K_s)), averaged over the `bets` lam (Kotawala 2026, arXiv
    2605.30335). It takes the largest variance that samples in [0, 1] can have, so it rarely rejects: use `log_betting`
    to find something, this to compare with the paper.

    Parameters
    ----------
    squares : ε² of each state, shape (..., n), not negative
    n_quotes : m, how many quotes each state has: all that its owners quote, not only those that are composed
    n_samples : K, the least number of samples behind any of them; shapes that broadcast to that of `squares`
    bets : positive, chosen before looking

    Returns
    -------
    log E, shape (..., n + 1)

    Examples
    --------
    >>> np.exp(log_envelope([0.1], 2, 8, bets=[1.0])).round(6)
    array([1.      , 0.916219])
    """
    e = _stream(squares, 0.0, math.inf)
    m, k = _stream(n_quotes, 1.0, math.inf), _stream(n_samples, 1.0, math.inf)
    lam = _stream(bets, 0.0, math.inf)
    factors = [one * (e - m / (4 * k)) - one**2 * m / (2 * k) for one in lam]
    logs = [_started(np.cumsum(factor, axis=-1), 0.0) for factor in factors]
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - math.log(len(lam)), dtype=np.float64)


def confidence_sequence(x: npt.ArrayLike, *, alpha: float) -> tuple[Floats, Floats]:
    """Return bounds that hold the mean of x, in [0, 1], after every number of observations at once.

    With probability at least 1 - alpha no column misses the common conditional mean of the values: the predictable
    empirical Bernstein sequence of Waudby-Smith & Ramdas 2024 (theorem 2). For differences in [-1, 1] pass (d + 1) / 2.
    The greatest lower and the least upper bound so far hold together, too.

    Shape (..., n) in, (low, high), each (..., n + 1), out, from (0, 1) before any observation; TraceError for a value
    outside its range.

    >>> low, high = confidence_sequence([0.2, 0.3] * 200, alpha=0.05)
    >>> low[[0, 40, 400]].round(3), high[[0, 40, 400]].round(3)
    (array([0.   , 0.063, 0.23 ]), array([1.   , 0.437, 0.27 ]))
    """
    _check("alpha", alpha, 0.0, 1.0)
    x = _stream(x, 0.0, 1.0)
    t = np.arange(1, x.shape[-1] + 1)
    log_odds = math.log(2 / alpha)
    mean = (0.5 + np.cumsum(x, axis=-1)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2, axis=-1)) / (t + 1)
    mean_before, variance_before = _started(mean, 0.5)[..., :-1], _started(variance, 0.25)[..., :-1]
    lam = np.minimum(_LARGEST_BET, np.sqrt(2 * log_odds / (variance_before * t * np.log1p(t))))
    loss = (x - mean_before) ** 2 * (-np.log1p(-lam) - lam)
    total = np.cumsum(lam, axis=-1)
    centre, radius = np.cumsum(lam * x, axis=-1) / total, (log_odds + np.cumsum(loss, axis=-1)) / total
    return _started(np.maximum(centre - radius, 0.0), 0.0), _started(np.minimum(centre + radius, 1.0), 1.0)


def mixture_radius(n: npt.ArrayLike, *, alpha: float, sigma: float, rho: float = 1.0) -> Floats:
    """Return how far the mean of n values may lie from the true one, at every n at once, for noise no wider than normal.

    sigma sqrt((n + rho) log((n + rho) / (rho alpha²))) / n, two-sided: the normal mixture of Howard et al. 2021 (Annals of
    Statistics 49). `sigma`: sub-Gaussian scale of one value, (b - a) / 2 for values in [a, b]. `rho`, chosen before
    looking: no other makes the radius at n = 8.2 rho smaller (for alpha 0.05; at n = 11.7 rho for 0.01).

    >>> mixture_radius([10, 82, 1000], alpha=0.05, sigma=0.5, rho=10.0).round(4)
    array([0.5781, 0.1676, 0.0518])
    """
    _check("alpha", alpha, 0.0, 1.0)
    _check("sigma", sigma, 0.0, math.inf)
    _check("rho", rho, 0.0, math.inf)
    n = _stream(n, 1.0, math.inf)
    return np.asarray(sigma * np.sqrt((n + rho) * np.log((n + rho) / (rho * alpha**2))) / n, dtype=np.float64)


def e_benjamini_hochberg(log_e: Sequence[float | None]) -> list[float | None]:
    """Return for each log E its q: the share of false finds to expect where everything up to this q is believed.

    q <= alpha picks the k greatest E for the greatest k whose k-th is at least m / (k alpha): Wang & Ramdas 2022 (JRSS-B
    84), however the tests depend on each other and whenever each was stopped. None stays None and is not counted.

    >>> e_benjamini_hochberg([math.log(80), None, math.log(50), math.log(2)])
    [0.03, None, 0.03, 0.5]
    """
    tested = sorted((value, n) for n, value in enumerate(log_e) if value is not None)
    if any(math.isnan(value) for value, _ in tested):
        raise TraceError("log E", "not a number", got="nan", expected="log E, or None where nothing was tested")
    found: list[float | None] = [None] * len(log_e)
    least = 1.0
    for rank, (value, n) in zip(range(len(tested), 0, -1), tested, strict=True):
        least = min(least, len(tested) / rank * math.exp(min(-value, 700.0)))
        found[n] = least
    return found


def crossing(log_e: Floats, *, alpha: float) -> int | None:
    """Return after how many observations log E first reached log(1/alpha); None where it never did.

    >>> crossing(log_paired([1.0] * 9, bet=0.5), alpha=0.05)
    8
    """
    _check("alpha", alpha, 0.0, 1.0)
    reached = np.flatnonzero(log_e >= -math.log(alpha))
    return int(reached[0]) if reached.size else None


def _paired(d: Floats, bet: float | None) -> Floats:
    return _wealth(_plug_in(d, _PRIOR_PAIR_VARIANCE, _LARGEST_BET) if bet is None else np.full_like(d, bet), d)


def _plug_in(d: Floats, prior_variance: float, largest: float) -> Floats:
    """The bet on each value of `d`, best for mean and variance of those before it; none where that mean is not above 0."""
    n = np.arange(1, d.shape[-1] + 1)
    total = np.cumsum(d, axis=-1)
    mean = total / (n + 1)
    variance = (prior_variance + np.cumsum((d - total / n) ** 2, axis=-1)) / (n + 1)
    return _started(np.clip(mean / (variance + mean**2), 0.0, largest), 0.0)[..., :-1]


def _wealth(bets: Floats, d: Floats) -> Floats:
    return _started(np.cumsum(np.log1p(bets * d), axis=-1), 0.0)


def _started(values: Floats, first: float) -> Floats:
    return np.concatenate([np.full((*values.shape[:-1], 1), first), values], axis=-1)


def _stream(values: npt.ArrayLike, low: float, high: float) -> Floats:
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    wrong = ~((array >= low) & (array <= high) & np.isfinite(array))
    if wrong.any():
        place = ", ".join(str(n) for n in np.argwhere(wrong)[0])
        expected = f"a number from {low:g}" + (f" to {high:g}" if math.isfinite(high) else " up")
        raise TraceError(f"value {place} of a stream", "outside its range", got=f"{array[wrong][0]:g}", expected=expected)
    return array


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low < value < high:
        expected = f"a number above {low:g}" + (f" and below {high:g}" if math.isfinite(high) else "")
        raise TraceError(name, "outside its range", got=f"{value:g}", expected=expected)
