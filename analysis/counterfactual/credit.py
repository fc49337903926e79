"""From what other decisions would have come to, to the credit of the one taken: signs, baselines, scales, and how true it is.

Decides the one sign convention: `delta_q` is the counterfactual minus the run, `credit` is what the event taken was worth, and
so its negative. Credit is scaled within a kind of event, never over all events and never by the length of a trace.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from analysis.estimation import Estimate, cluster_bootstrap

Floats = npt.NDArray[np.float64]

#: Beyond so many standard deviations a credit tells of its scale, not of its event.
MAX_SCALED = 3.0


def leave_one_out(q: Sequence[float], n: Sequence[float] | None = None) -> Floats:
    """Return for each of several alternatives at one decision its Q minus the mean of the others, weighted by replays.

    Credit of C3 (Chen et al. 2026, arXiv 2603.06859): q_j - (sum_k n_k q_k - n_j q_j) / (sum_k n_k - n_j); 0 for an
    alternative that has no others. With equal weights they add up to 0.

    >>> leave_one_out([1.0, 0.4, 0.6]).round(2).tolist()
    [0.5, -0.4, -0.1]
    """
    values = np.asarray(q, dtype=np.float64)
    weights = np.ones(len(values)) if n is None else np.asarray(n, dtype=np.float64)
    others = weights.sum() - weights
    others_total = (weights * values).sum() - weights * values
    return np.where(others > 0, values - others_total / np.where(others > 0, others, 1.0), 0.0)


def standardised(values: Sequence[float], kinds: Sequence[Hashable]) -> Floats:
    """Return each value in standard deviations from the mean of its kind, clipped to ±3; 0 where a kind does not vary.

    Over all kinds at once a kind that is good on average would look good whatever it does (Feng et al. 2026, Dr. MAS,
    arXiv 2602.08847).

    >>> standardised([0.9, 0.8, 1.0, 0.1, 0.3], ["plan", "plan", "plan", "code", "code"]).round(3).tolist()
    [0.0, -1.225, 1.225, -1.0, 1.0]
    """
    found = np.zeros(len(values))
    given = np.asarray(values, dtype=np.float64)
    for kind in dict.fromkeys(kinds):
        is_mine = np.array([other == kind for other in kinds])
        spread = given[is_mine].std()
        # Values that are alike differ by rounding alone.
        if spread > 1e-12 * max(1.0, float(abs(given[is_mine]).max())):
            found[is_mine] = (given[is_mine] - given[is_mine].mean()) / spread
    return np.clip(found, -MAX_SCALED, MAX_SCALED)


def fidelity(
    credit: Sequence[float], held_out: Sequence[float], tasks: Sequence[Hashable], *, rng: np.random.Generator
) -> Estimate | None:
    """Return how well credit orders events as fresh replays do: Spearman's rank correlation, with an interval over tasks.

    Parameters
    ----------
    credit, held_out : credit of the same events, from two blocks of seeds
    tasks : the task of each event; whole tasks are drawn

    Returns
    -------
    In [-1, 1], 0 where either is constant; None for no event at all. The best that is published has 0.27 (C3).

    >>> fidelity([0.1, 0.5, 0.3], [0.2, 0.9, 0.1], ["a", "b", "c"], rng=np.random.default_rng(1)).value
    0.5
    """
    x, y = np.asarray(credit, dtype=np.float64), np.asarray(held_out, dtype=np.float64)
    return cluster_bootstrap(lambda weights: _spearman(x, y, weights.astype(np.intp)), tasks, rng=rng)


def _spearman(x: Floats, y: Floats, counts: npt.NDArray[np.intp]) -> float:
    ranks = [_ranks(np.repeat(values, counts)) for values in (x, y)]
    a, b = (rank - rank.mean() for rank in ranks)
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread else 0.0


def _ranks(values: Floats) -> Floats:
    """Return the rank of each value, equal ones sharing their mean."""
    _, place, n = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(n) - (n - 1) / 2)[place]
