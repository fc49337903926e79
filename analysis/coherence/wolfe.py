"""Wolfe's min-norm-point: the nearest point of a hull of vertices, exact and with a certificate.

It hides which engine runs: plain numpy for a few rows (the first answer needs no compiler), faces learned from solved
rows for many, the compiled kernels once the work pays for loading them. All agree to 1e-12. P. Wolfe, Finding the
nearest point in a polytope, Math. Programming 11 (1976).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

TOLERANCE = 1e-14  # of the duality gap, per unit of squared size
ENOUGH = 1_500  # rows solved in numpy, after which loading the compiled kernels pays
_PARALLEL_FROM = 50_000
_EPSILON = 1e-13

Floats = npt.NDArray[np.float64]


class Nearest(NamedTuple):
    """The nearest points (B, d) and their gaps (B,): squared distance minus gap bounds it from below by <x, v - q>."""

    points: Floats
    gaps: Floats


class Hull(NamedTuple):
    """A point of a hull known through its oracle, what it is made of, and the proven least distance of the hull."""

    point: Floats
    lower: float
    vertices: Floats
    weights: Floats


class _Engine:
    """Counts what numpy has solved, so that the switch depends on the work done and never on a clock."""

    n_solved = 0


def nearest_rows(vertices: Floats, quotes: Floats) -> Nearest:
    """Return the points of conv(vertices) nearest to each row of `quotes`; vertices are (m, d), quotes (B, d)."""
    if _is_compiled_due(len(quotes), vertices.shape[1]):
        return nearest_rows_compiled(vertices, quotes)
    return nearest_rows_numpy(vertices, quotes)


def subset_squares(vertices: Floats, quote: Floats, members: npt.NDArray[np.bool_]) -> Floats:
    """Return the squared distance of some coordinates of a quote to the vertices seen on them, for each row of `members`.

    `members` are (S, d); neighbouring rows should differ little.
    """
    squares = np.zeros(len(members))
    if _is_compiled_due(len(members), vertices.shape[1]):
        from analysis.coherence import kernels

        kernels.subset_distances(np.ascontiguousarray(vertices.T), quote, tolerance(vertices), members, squares)
        return squares
    for number, mask in enumerate(members):
        if mask.any():
            found = nearest_listed(vertices[:, mask], quote[mask])
            squares[number] = ((found.point - quote[mask]) ** 2).sum()
    return squares


def _is_compiled_due(n_rows: int, n_coordinates: int) -> bool:
    """Whether so many rows are work for the compiled kernels; of few coordinates, numpy learns the faces quickly."""
    expected = n_rows if n_coordinates > 6 else min(n_rows, ENOUGH // 8)
    return _Engine.n_solved + expected > ENOUGH


def nearest_rows_compiled(vertices: Floats, quotes: Floats) -> Nearest:
    """Do `nearest_rows` in the compiled kernels, which are loaded at the first call (compiled once a machine)."""
    from analysis.coherence import kernels

    _Engine.n_solved = ENOUGH + 1
    transposed, rows = np.ascontiguousarray(vertices.T, dtype=float), np.ascontiguousarray(quotes, dtype=float)
    points, gaps = np.empty_like(rows), np.empty(len(rows))
    # Where neighbours differ in few coordinates, as coalitions do, each search starts from the end of the one before.
    is_chained = len(rows) > 1 and np.count_nonzero(rows[1:] != rows[:-1]) < rows.size / 3
    if len(rows) >= _PARALLEL_FROM and not is_chained:
        kernels.project_rows_parallel(transposed, rows, tolerance(vertices), points, gaps, 64)
    else:
        kernels.project_rows(transposed, rows, tolerance(vertices), points, gaps, is_chained)
    return Nearest(points, gaps)


def nearest_rows_numpy(vertices: Floats, quotes: Floats) -> Nearest:
    """Do `nearest_rows` in numpy: projection is affine on each face, so faces of solved rows are tried on the others."""
    points, gaps = np.empty_like(quotes, dtype=float), np.empty(len(quotes))
    todo = np.arange(len(quotes))
    learned: set[tuple[int, ...]] = set()
    are_faces_few = True
    while len(todo):
        sample, todo = todo[: max(16, len(todo) // 32)], todo[max(16, len(todo) // 32) :]
        fresh = []
        for row in sample:
            found = nearest_listed(vertices, quotes[row])
            points[row], gaps[row], chosen = found.point, found.gap, tuple(sorted(found.chosen))
            if chosen not in learned:
                learned.add(chosen)
                fresh.append(chosen)
        n_todo = len(todo)
        if n_todo < 64 or not are_faces_few:
            continue
        for chosen in fresh:
            todo = _try_face(vertices, list(chosen), quotes, todo, points=points, gaps=gaps)
        are_faces_few = n_todo - len(todo) > 4 * len(fresh)
    return Nearest(points, gaps)


def tolerance(vertices: Floats) -> float:
    """Return the gap at which the search ends: rounding of a scalar product over these vertices."""
    size = float(np.abs(vertices).max(initial=0.0))
    return TOLERANCE * max(1.0, size * size * len(vertices.T) / 8)


def _try_face(
    vertices: Floats, chosen: list[int], quotes: Floats, todo: npt.NDArray[np.intp], *, points: Floats, gaps: Floats
) -> npt.NDArray[np.intp]:
    """Project the rows on one face and keep those for which that is the answer; return the rows still to do."""
    if not len(todo):
        return todo
    origin, directions = vertices[chosen[0]], vertices[chosen[1:]] - vertices[chosen[0]]
    away = quotes[todo] - origin
    shares = away @ np.linalg.pinv(directions) if len(directions) else np.zeros((len(todo), 0))
    inside = (shares >= 0).all(axis=1) & (shares.sum(axis=1) <= 1)
    rows = todo[inside]
    near = origin + shares[inside] @ directions
    slopes = near - quotes[rows]
    gap = (slopes * near).sum(axis=1) - (slopes @ vertices.T).min(axis=1)
    good = gap <= tolerance(vertices)
    points[rows[good]], gaps[rows[good]] = near[good], gap[good]
    left = np.ones(len(todo), bool)
    left[np.flatnonzero(inside)[good]] = False
    return todo[left]


class Chosen(NamedTuple):
    """A nearest point: the indices of the vertices it is made of, their weights, the point, the gap."""

    chosen: tuple[int, ...]
    weights: Floats
    point: Floats
    gap: float


def nearest_listed(vertices: Floats, quote: Floats) -> Chosen:
    """Return the point of conv(vertices) nearest to one quote, in numpy, with the weights of its vertices."""
    _Engine.n_solved += 1
    moved = vertices - quote
    chosen = [int(np.argmin((moved * moved).sum(axis=1)))]
    weights = np.ones(1)
    limit, length = tolerance(vertices), np.inf
    while True:
        x = weights @ moved[chosen]
        scores = moved @ x
        best = int(np.argmin(scores))
        gap = float(x @ x - scores[best])
        # Each step shortens x; where rounding says otherwise, the search has come as near as numbers allow.
        if gap <= limit or best in chosen or x @ x >= length:
            break
        length = float(x @ x)
        kept, weights = _affine_descent(moved[[*chosen, best]], np.append(weights, 0.0))
        chosen = [number for number, stays in zip([*chosen, best], kept, strict=True) if stays]
    return Chosen(tuple(chosen), weights, weights @ vertices[chosen], gap)


def nearest_by_oracle(
    quote: Floats, lowest: Callable[[Floats], tuple[Floats, float]], *, gap: float = 1e-12, max_steps: int = 2_000
) -> Hull:
    """Return the point nearest to `quote` in a hull known only through its oracle.

    `lowest(slopes)` returns a vertex with small `slopes . v`, and a proven lower bound of it over all vertices. The search
    ends at the relative gap `gap`, or where the oracle has nothing new to say; the bound is proven wherever it ends.
    """
    vertices = lowest(-quote)[0][None, :].astype(float)
    weights, lower = np.ones(1), 0.0
    for _ in range(max_steps):
        point = weights @ vertices
        slopes = point - quote
        length = float(np.linalg.norm(slopes))
        vertex, bound = lowest(slopes)
        left = max(float(slopes @ point) - bound, 0.0)
        lower = max(lower, (length * length - left) / length if length > 0 else 0.0)
        if left <= gap * max(1.0, length * length) or (vertices == vertex).all(axis=1).any():
            return Hull(point, lower, vertices, weights)
        grown = np.vstack([vertices, vertex])
        kept, weights = _affine_descent(grown - quote, np.append(weights, 0.0))
        vertices = grown[kept]
    return Hull(weights @ vertices, lower, vertices, weights)


def _affine_descent(moved: Floats, weights: Floats) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Go to the point nearest to the origin among the affine combinations, dropping vertices that would weigh less than 0.

    Returns which of the vertices are kept, and their weights.
    """
    kept = np.arange(len(moved))
    gram = moved @ moved.T + 1.0
    while True:
        try:
            target = np.linalg.solve(gram[np.ix_(kept, kept)], np.ones(len(kept)))
        except np.linalg.LinAlgError:
            target = np.linalg.lstsq(gram[np.ix_(kept, kept)], np.ones(len(kept)), rcond=None)[0]
        target = target / target.sum()
        if target.min() > _EPSILON:
            break
        low = (target <= _EPSILON) & (weights > target)
        step = min(1.0, float((weights[low] / (weights[low] - target[low])).min(initial=1.0)))
        weights = weights + step * (target - weights)
        stays = weights > _EPSILON
        stays[int(np.argmin(weights))] = False
        kept, weights = kept[stays], weights[stays]
        weights = weights / weights.sum()
    mask = np.zeros(len(moved), bool)
    mask[kept] = True
    return mask, target
