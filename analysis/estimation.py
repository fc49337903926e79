"""Estimates with their intervals: shares, means, pass@k, anything over runs that are clustered in tasks.

Each function names the source of its formula. What cannot be estimated is None, never a default;
randomness comes in as a generator, of which only `random()` is used, so a seed gives the same interval everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_N_DRAWS = 2_000  # the end points of a 95 % interval then rest on 50 draws each
MIN_FINITE_SHARE = 0.95  # where more draws than the rest have no value, the others say little of the spread

Weights = npt.NDArray[np.float64]


class Estimate(NamedTuple):
    """A value with its interval and how much it rests on; no interval where there is too little to take one from."""

    value: float
    low: float | None
    high: float | None
    n: int


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Return the unbiased pass@k of `n` samples of which `c` are correct; None for fewer samples than `k`.

    1 - C(n-c, k) / C(n, k), in whole numbers (Chen et al. 2021, arXiv 2107.03374). With n < k the estimator does not
    exist, though common implementations return 1.

    >>> pass_at_k(10, 3, 1), pass_at_k(10, 8, 3), pass_at_k(3, 1, 5)
    (0.3, 1.0, None)
    """
    if not 0 <= c <= n or k < 1:
        raise ValueError(f"pass@k of {c} correct samples out of {n}, k = {k}")
    if n < k:
        return None
    n_ways = math.comb(n, k)
    return (n_ways - math.comb(n - c, k)) / n_ways


def wilson(n_hits: int, n: int, *, level: float = 0.95) -> Estimate | None:
    """Return the share `n_hits / n` with its score interval (Wilson 1927); None for n = 0.

    The hits count as independent of each other.

    >>> share = wilson(8, 10)
    >>> share.value, round(share.low, 4), round(share.high, 4)
    (0.8, 0.4902, 0.9433)
    """
    if n == 0:
        return None
    z, p = _z(level), n_hits / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    radius = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Estimate(p, max(0.0, min(p, centre - radius)), min(1.0, max(p, centre + radius)), n)


def mean(values: Sequence[float], *, level: float = 0.95) -> Estimate | None:
    """Return the mean with its normal interval, mean ± z s / √n; None without values, no interval for a single one.

    For independent values and n of about 20 or more (Miller 2024, arXiv 2411.00640); else use `cluster_bootstrap`.

    >>> centre = mean([1.0, 2.0, 3.0])
    >>> centre.value, round(centre.low, 4), round(centre.high, 4)
    (2.0, 0.8684, 3.1316)
    """
    n = len(values)
    if n == 0:
        return None
    centre = math.fsum(values) / n
    if n == 1:
        return Estimate(centre, None, None, 1)
    radius = _z(level) * math.sqrt(math.fsum((x - centre) ** 2 for x in values) / (n - 1) / n)
    return Estimate(centre, centre - radius, centre + radius, n)


def cluster_bootstrap(
    statistic: Callable[[Weights], float],
    clusters: Sequence[Hashable],
    *,
    rng: np.random.Generator,
    n_draws: int = _N_DRAWS,
    level: float = 0.95,
) -> Estimate | None:
    """Return a statistic of rows with its percentile interval, drawing whole clusters with replacement.

    Parameters
    ----------
    statistic : takes how often each row is drawn, shape (n_rows,), and gives one number, NaN where it has none.
        With two arms in one row set both are drawn together, so that a difference stays paired.
    clusters : the cluster, mostly the task, of each row; each its own makes the ordinary bootstrap
    rng : used through `random()` alone
    n_draws, level : how many draws; the share of them that the interval holds

    Returns
    -------
    The statistic of the rows as they are, with n = number of clusters; None where it has no value. No interval for
    fewer than two clusters, or where more than 5 % of the draws have no value.

    Notes
    -----
    Rows within a cluster are kept together and not drawn again: Field & Welsh 2007 (JRSS-B 69), Miller 2024.

    Examples
    --------
    >>> passed, tokens = np.array([1.0, 0.0]), np.array([10.0, 30.0])
    >>> cluster_bootstrap(lambda w: (w @ passed) / (w @ tokens), ["a", "b"], rng=np.random.default_rng(1))
    Estimate(value=0.025, low=0.0, high=0.1, n=2)
    """
    names: dict[Hashable, int] = {}
    member = np.array([names.setdefault(name, len(names)) for name in clusters], dtype=np.intp)
    n = len(names)
    value = float(statistic(np.ones(len(member)))) if n else math.nan
    if not math.isfinite(value):
        return None
    if n < 2:
        return Estimate(value, None, None, n)
    drawn: list[float] = []
    for _ in range(n_draws):
        counts = np.bincount((rng.random(n) * n).astype(np.intp), minlength=n)
        drawn.append(float(statistic(counts[member].astype(np.float64))))
    finite = [x for x in drawn if math.isfinite(x)]
    if len(finite) < MIN_FINITE_SHARE * n_draws:
        return Estimate(value, None, None, n)
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, float(low), float(high), n)


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Return for each p its q: the share of false finds to expect where everything up to this q is believed.

    Benjamini & Hochberg 1995 (JRSS-B 57), for tests that are independent or positively dependent. None and NaN stay None.

    >>> benjamini_hochberg([0.01, None, 0.04, 0.03])
    [0.03, None, 0.04, 0.04]
    """
    tested = sorted([(p, n) for n, p in enumerate(p_values) if p is not None and not math.isnan(p)], reverse=True)
    found: list[float | None] = [None] * len(p_values)
    least = 1.0
    for rank, (p, n) in zip(range(len(tested), 0, -1), tested, strict=True):
        least = min(least, p * len(tested) / rank)
        found[n] = least
    return found


def benjamini_yekutieli(p_values: Sequence[float | None]) -> list[float | None]:
    """Return for each p its q, as `benjamini_hochberg` does, however the tests depend on each other.

    Benjamini & Yekutieli 2001 (Annals of Statistics 29): sum 1/k times as large. None and NaN stay None.

    >>> benjamini_yekutieli([0.01, None, 0.02])
    [0.03, None, 0.03]
    """
    found = benjamini_hochberg(p_values)
    factor = math.fsum([1 / k for k in range(1, sum(q is not None for q in found) + 1)])
    return [None if q is None else min(1.0, q * factor) for q in found]


def _z(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
