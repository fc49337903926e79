"""Is a difference more than chance, when hundreds of patterns are looked at? A permutation test over all of them at once.

Decides what is shuffled (values, within strata), what counts as extreme, and how often the most extreme of all patterns
would be so by chance. Hidden here: exact tables for outcomes of 0 and 1, and how all shuffles become one matrix product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

#: Up to this p_adjusted a difference is significant.
ALPHA = 0.05

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
Sparse = Any  # scipy.sparse.csr_array, items × traces

_CHUNK = 4_000_000  # numbers shuffled at a time
_TIES = 1e-9  # two statistics nearer than this, relatively, are equal
_MIN_EXCEEDING = 10  # shuffles beyond an item's statistic from which on its own shuffles say how rare it is

_Score = Callable[[Floats], Floats]


class Chance(NamedTuple):
    """How surprising the sums of all items are, for one column of values.

    p : shape (n_items,), two-sided; NaN where no shuffle can change the item's sum
    p_adjusted : the probability that some item is as extreme by chance (family-wise); NaN as above
    threshold : up to this p an item is significant at 5 % among all; None where p does not come from exact tables
    """

    p: Floats
    p_adjusted: Floats
    threshold: float | None


def westfall_young(
    occurrences: Sparse, values: Floats, *, strata: Ints, rng: np.random.Generator, n_permutations: int = 1_000
) -> list[Chance]:
    """Test for every item whether the runs with it have other values than the rest, for each column of values.

    Parameters
    ----------
    occurrences : scipy.sparse CSR of zeros and ones, shape (n_items, n_traces)
    values : shape (n_traces, n_columns), finite. A column of only zeros and ones is tested exactly
    strata : the stratum of each trace, shape (n_traces,); values are shuffled within strata only
    rng : used through `random()` alone

    Returns
    -------
    One `Chance` a column.

    Notes
    -----
    Westfall & Young 1993, single step: values are shuffled, and the most extreme of all items in each shuffle gives the
    distribution that p_adjusted = (1 + shuffles as extreme) / (1 + shuffles) is read from; so items that occur together cost
    little. Zeros and ones: p is Fisher's exact test (with strata the exact distribution of the summed counts), extreme is the
    smallest p. Other values: extreme is the largest distance from the mean under shuffling in standard deviations; p is the
    share of the item's own shuffles, and where fewer than 10 reach it, of the shuffles of all items.
    """
    n = occurrences.shape[1]
    codes = np.unique(strata, return_inverse=True)[1] if n else np.zeros(0, np.intp)
    by_stratum = np.argsort(codes, kind="stable")
    codes, values = codes[by_stratum], values[by_stratum]
    held = occurrences[:, by_stratum].astype(np.float64)
    counts = _counts(held, codes)
    columns = [_column(values[:, k], codes, counts) for k in range(values.shape[1])]
    observed = [score((held @ column)[:, None])[:, 0] for column, score, _ in columns]
    seen = [_Seen.empty(len(found)) for found in observed]
    for order in _orders(codes, rng, n_permutations):
        for k, (column, score, is_exact) in enumerate(columns):
            scores = score(held @ column[order.T])
            seen[k] = seen[k].with_most(scores) if is_exact else seen[k].with_most(scores).with_counts(scores, observed[k])
    return [_chance(found, past, is_exact) for found, past, (_, _, is_exact) in zip(observed, seen, columns, strict=True)]


class _Seen(NamedTuple):
    """What is kept of shuffles: the most extreme score in each, and how many scores, own or any item's, reach each item's."""

    most: list[Floats]
    n_own: Ints
    n_any: Ints

    @staticmethod
    def empty(n_items: int) -> _Seen:
        return _Seen([], np.zeros(n_items, np.intp), np.zeros(n_items, np.intp))

    def with_most(self, scores: Floats) -> _Seen:
        return self._replace(most=[*self.most, scores.max(axis=0, initial=-np.inf)])

    def with_counts(self, scores: Floats, observed: Floats) -> _Seen:
        bar = observed - _TIES * abs(observed)
        order = np.argsort(bar)
        at_least = np.searchsorted(bar[order], scores.ravel(), side="right")
        reached = np.bincount(at_least, minlength=len(bar) + 1)[::-1].cumsum()[::-1][1:]
        n_any = np.empty_like(self.n_any)
        n_any[order] = reached
        return _Seen(self.most, self.n_own + (scores >= bar[:, None]).sum(axis=1), self.n_any + n_any)


def _chance(observed: Floats, seen: _Seen, is_exact: bool) -> Chance:
    moves = np.isfinite(observed)
    most = np.sort(np.concatenate(seen.most)) if seen.most else np.zeros(0)
    n = len(most)
    bar = observed - _TIES * abs(observed)
    adjusted = np.where(moves, (1 + n - np.searchsorted(most, bar)) / (1 + n), np.nan)
    if is_exact:
        rank = int(ALPHA * (1 + n)) - 1  # so many shuffles may be as extreme and p_adjusted still be 5 %
        threshold = -float(most[n - 1 - rank]) if 0 <= rank < n and moves.any() else None
        return Chance(np.where(moves, -observed, np.nan), adjusted, threshold)
    own, pooled = (1 + seen.n_own) / (1 + n), (1 + seen.n_any) / (1 + n * max(1, int(moves.sum())))
    return Chance(np.where(moves, np.where(seen.n_own < _MIN_EXCEEDING, np.minimum(own, pooled), own), np.nan), adjusted, None)


def _orders(codes: Ints, rng: np.random.Generator, n_permutations: int) -> Iterator[Ints]:
    """Yield shuffles within strata, shape (so many, n_traces), of traces that stand stratum by stratum."""
    size = max(1, _CHUNK // max(1, len(codes)))
    for start in range(0, n_permutations, size):
        yield np.argsort(codes + rng.random((min(size, n_permutations - start), len(codes))), axis=1)


def _counts(held: Sparse, codes: Ints) -> Sparse:
    """Return how often each item occurs in each stratum, shape (n_items, n_strata)."""
    from scipy import sparse

    n_strata = int(codes.max(initial=-1)) + 1
    member = sparse.csr_array((np.ones(len(codes)), (np.arange(len(codes)), codes)), shape=(len(codes), n_strata))
    return (held @ member).tocsr()


def _column(values: Floats, codes: Ints, counts: Sparse) -> tuple[Floats, _Score, bool]:
    """Return the values to sum, how extreme a sum is (-inf where it cannot move), and whether that is minus an exact p."""
    size = np.bincount(codes, minlength=counts.shape[1]).astype(np.float64)
    total = np.bincount(codes, values, minlength=counts.shape[1]).astype(np.float64)
    centred = values - (total / np.maximum(size, 1))[codes]
    spread = np.bincount(codes, centred**2, minlength=counts.shape[1])
    scale = np.ptp(values) if len(values) else 0.0
    spread[spread <= (1e-12 * scale) ** 2 * size] = 0
    moving = counts.copy()
    moving.data = counts.data * (size[counts.indices] - counts.data)
    variance = moving @ (spread / np.maximum(size * (size - 1), 1))
    if np.isin(values, (0, 1)).all():
        return values, _exact(counts, size, total, variance > 0), True
    root = np.sqrt(np.where(variance > 0, variance, 1))[:, None]
    fixed = np.where(variance > 0, 0, -np.inf)[:, None]
    return centred, lambda sums: abs(sums) / root + fixed, False


def _exact(counts: Sparse, size: Floats, total: Floats, moves: Flags) -> _Score:
    """Return minus the two-sided p of a count, looked up; tables of all items stand one behind the other."""
    tables: dict[Hashable, int] = {}
    parts: list[Floats] = []
    start = np.zeros(counts.shape[0], np.intp)
    length = 0
    for item in np.flatnonzero(moves).tolist():
        of_item = slice(counts.indptr[item], counts.indptr[item + 1])
        strata, n_held = counts.indices[of_item], counts.data[of_item]
        certain = (total[strata] == size[strata]) | (total[strata] == 0) | (n_held == size[strata])
        least = int(np.minimum(n_held, total[strata])[certain].sum())
        draws = Counter(zip(size[strata][~certain].astype(int).tolist(), total[strata][~certain].astype(int).tolist(),
                            n_held[~certain].astype(int).tolist(), strict=True))  # fmt: skip
        key = (least, tuple(sorted(draws.items())))
        if key not in tables:
            table = np.concatenate([np.ones(least), _two_sided(draws)])
            tables[key] = length
            parts.append(table)
            length += len(table)
        start[item] = tables[key]
    flat = np.concatenate(parts) if parts else np.zeros(0)

    def score(sums: Floats) -> Floats:
        found: Floats = np.full(sums.shape, -np.inf)
        found[moves] = -flat[start[moves, None] + np.rint(sums[moves]).astype(np.intp)]
        return found

    return score


def _two_sided(draws: Mapping[tuple[int, int, int], int]) -> Floats:
    """Return for each count from 0 on the probability of all counts that are no likelier; a draw is (size, hits, drawn)."""
    likely = np.ones(1)
    for (size, n_hits, n_drawn), times in draws.items():
        power = _hypergeometric(size, n_hits, n_drawn)
        while times:
            likely = np.convolve(likely, power) if times % 2 else likely
            times //= 2
            power = np.convolve(power, power) if times else power
    order = np.argsort(likely, kind="stable")
    tail = likely[order].cumsum()
    up_to = np.searchsorted(likely[order], likely * (1 + 1e-7), side="right")
    two_sided: Floats = np.minimum(1.0, tail[up_to - 1])
    return two_sided


def _hypergeometric(size: int, n_hits: int, n_drawn: int) -> Floats:
    """Return the probability of 0, 1, ... hits among so many drawn; scipy's function takes 50 times as long."""
    from scipy.special import gammaln

    k = np.arange(min(n_hits, n_drawn) + 1)
    n_rest = size - n_hits - n_drawn + k  # those neither hit nor drawn; fewer than none cannot be
    ways = [n_hits, size - n_hits, n_drawn, size - n_drawn]
    cells = [k, n_hits - k, n_drawn - k, np.maximum(n_rest, 0), np.array(size)]
    log_p = sum(gammaln(np.array(n) + 1) for n in ways) - sum(gammaln(cell + 1) for cell in cells)
    likely: Floats = np.where(n_rest >= 0, np.exp(log_p), 0.0)
    return likely
