"""Groups of points and how far they can be trusted: k-means, its split-half stability, a shuffled null, agreement.

It hides how a group is found. Own k-means rather than a library's: its sums run in one order, so the same seed gives the
same bytes whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.floating]
Labels = npt.NDArray[np.intp]

_MAX_ROUNDS = 60
_SHIFT = 1e-4  # centres that move less have arrived
_N_STARTS = 3


def k_means(points: Matrix, k: int, rng: np.random.Generator, *, n_starts: int = _N_STARTS) -> Matrix:
    """Return k centres with the least sum of squared distances among a few starts (Lloyd 1982).

    Parameters
    ----------
    points : shape (n, d), with n >= k
    rng : chooses the first centres, far apart (k-means++, Arthur & Vassilvitskii 2007); used through `random()` alone
    """
    found = [settled(points, _spread_out(points, k, rng)) for _ in range(n_starts)]
    return min(found, key=lambda centres: _left(points, centres))


def settled(points: Matrix, centres: Matrix) -> Matrix:
    """Return the centres after they moved to the means of their points until they rest."""
    for _ in range(_MAX_ROUNDS):
        mine = np.zeros((len(points), len(centres)), dtype=points.dtype)
        mine[np.arange(len(points)), _label(points, centres)] = 1
        counts = mine.sum(axis=0)[:, None]
        moved = np.where(counts > 0, (mine.T @ points) / np.maximum(counts, 1), centres)
        shift, centres = float(np.abs(moved - centres).max()), moved
        if shift < _SHIFT:
            break
    return centres


def nearest(points: Matrix, centres: Matrix) -> tuple[Labels, npt.NDArray[np.float64]]:
    """Return the nearest centre of each point, and the distance to it.

    >>> [a.tolist() for a in nearest(np.array([[0.0], [1.0], [5.0]]), np.array([[0.0], [4.0]]))]
    [[0, 0, 1], [0.0, 1.0, 1.0]]
    """
    label = _label(points, centres)
    return label, np.linalg.norm(points - centres[label], axis=1).astype(np.float64)


def adjusted_rand(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return how far two partitions agree: 1 if they are the same, 0 as by chance (Hubert & Arabie 1985).

    >>> adjusted_rand([0, 0, 1, 1], [5, 5, 3, 3]), adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1])
    (1.0, -0.5)
    """
    a, b = (np.unique(np.asarray(given), return_inverse=True)[1] for given in (first, second))
    counts = (np.bincount(a * (b.max(initial=0) + 1) + b), np.bincount(a), np.bincount(b))
    both, rows, columns = (int((n * (n - 1)).sum()) for n in counts)
    n_pairs = len(a) * (len(a) - 1)
    above, below = 2 * (both * n_pairs - rows * columns), (rows + columns) * n_pairs - 2 * rows * columns
    return above / below if below else 1.0


def stabilities(points: Matrix, ks: Sequence[int], rng: np.random.Generator, *, n_splits: int) -> dict[int, float]:
    """Return for each k how well the groups of one random half foretell those of the other, as a mean adjusted Rand index.

    Each half is grouped by itself; its centres sort the points of the other half (Tibshirani & Walther 2005).
    """
    found: dict[int, list[float]] = {k: [] for k in ks}
    for _ in range(n_splits):
        order = np.argsort(rng.random(len(points)), kind="stable")
        one, other = points[order[: len(points) // 2]], points[order[len(points) // 2 :]]
        for k in ks:
            foretold = _label(other, k_means(one, k, rng))
            found[k].append(adjusted_rand(foretold, _label(other, k_means(other, k, rng))))
    return {k: float(np.mean(values)) for k, values in found.items()}


def shuffled(profiles: Matrix, rng: np.random.Generator) -> Matrix:
    """Return profiles whose cells are permuted over the rows, each by itself, and whose rows again sum to 1.

    Every cell keeps its values; only what goes with what is lost.
    """
    order = np.argsort(rng.random(profiles.shape), axis=0, kind="stable")
    mixed = np.take_along_axis(profiles, order, axis=0)
    total = mixed.sum(axis=1, keepdims=True)
    return mixed / np.where(total > 0, total, 1)


def jaccards(points: Matrix, centres: Matrix, rng: np.random.Generator, *, n_draws: int) -> npt.NDArray[np.float64]:
    """Return for each group its mean largest Jaccard index with a group of subsamples of 80 % (Hennig 2007)."""
    k = len(centres)
    whole = _label(points, centres)
    best = np.zeros((n_draws, k))
    for draw in range(n_draws):
        rows = np.argsort(rng.random(len(points)), kind="stable")[: int(0.8 * len(points))]
        again = _label(points[rows], k_means(points[rows], k, rng, n_starts=1))
        both = np.bincount(whole[rows] * k + again, minlength=k * k).reshape(k, k).astype(np.float64)
        either = both.sum(axis=1, keepdims=True) + both.sum(axis=0) - both
        best[draw] = np.divide(both, either, out=np.zeros_like(both), where=either > 0).max(axis=1)
    means: npt.NDArray[np.float64] = best.mean(axis=0)
    return means


def dense_groups(points: Matrix, *, n_axes: int = 6) -> Labels:
    """Return the groups that HDBSCAN finds on the first principal axes; -1 for points in no group (Campello et al. 2013)."""
    from sklearn.cluster import HDBSCAN

    centred = points - points.mean(axis=0)
    axes = np.linalg.eigh(centred.T.astype(np.float64) @ centred)[1][:, ::-1][:, :n_axes]
    smallest = max(10, len(points) // 60)
    labels: Labels = HDBSCAN(min_cluster_size=smallest, min_samples=5, copy=True).fit_predict(centred @ axes)
    return labels


def _label(points: Matrix, centres: Matrix) -> Labels:
    labels: Labels = np.argmin((centres**2).sum(axis=1) - 2 * (points @ centres.T), axis=1)
    return labels


def _spread_out(points: Matrix, k: int, rng: np.random.Generator) -> Matrix:
    chosen = [int(rng.random() * len(points))]
    square = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    for _ in range(k - 1):
        total = np.cumsum(square, dtype=np.float64)
        chosen.append(min(int(np.searchsorted(total, rng.random() * total[-1], side="right")), len(points) - 1))
        square = np.minimum(square, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen].copy()


def _left(points: Matrix, centres: Matrix) -> float:
    """Return the sum of squared distances to the nearest centres, less a constant of the points."""
    return float(((centres**2).sum(axis=1) - 2 * (points @ centres.T)).min(axis=1).sum(dtype=np.float64))
