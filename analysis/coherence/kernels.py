"""Wolfe's min-norm-point over a list of vertices, compiled. Imported only where many rows are projected.

The same steps as `wolfe.nearest`, on plain loops; vertices come transposed so that the innermost loop runs over them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy"}


@njit(**_OPTIONS)
def _solve(gram, factor, u, k, first):  # type: ignore[no-untyped-def]
    """Solve gram[:k, :k] u = 1 by Cholesky, rows before `first` factored already; False for affinely dependent points."""
    for i in range(first, k):
        for j in range(i + 1):
            s = gram[i, j]
            for t in range(j):
                s -= factor[i, t] * factor[j, t]
            if i > j:
                factor[i, j] = s * factor[j, j]
            elif s <= 1e-14:
                return False
            else:
                factor[i, i] = 1 / np.sqrt(s)
    for i in range(k):
        s = 1.0
        for t in range(i):
            s -= factor[i, t] * u[t]
        u[i] = s * factor[i, i]
    for i in range(k - 1, -1, -1):
        s = u[i]
        for t in range(i + 1, k):
            s -= factor[t, i] * u[t]
        u[i] = s * factor[i, i]
    return True


@njit(**_OPTIONS)
def _add(vertices, q, chosen, gram, k, new, n):  # type: ignore[no-untyped-def]
    """Put vertex `new` into place k of the chosen ones, and its row of 1 + (v_i - q) . (v_j - q) into the lower triangle."""
    chosen[k] = new
    for i in range(k + 1):
        s = 1.0
        for c in range(n):
            s += (vertices[c, chosen[i]] - q[c]) * (vertices[c, new] - q[c])
        gram[k, i] = s


@njit(**_OPTIONS)
def _shrink(lam, u, chosen, gram, old, k):  # type: ignore[no-untyped-def]
    """Go from lam towards u until a weight is 0; drop what is 0; return how many are left."""
    step = 1.0
    for i in range(k):
        if u[i] <= 1e-13 and lam[i] > u[i]:
            step = min(step, lam[i] / (lam[i] - u[i]))
    least = 0
    for i in range(k):
        lam[i] += step * (u[i] - lam[i])
        if lam[i] < lam[least]:
            least = i
    left = 0
    for i in range(k):
        if lam[i] > 1e-13 and i != least:
            lam[left] = lam[i]
            chosen[left] = chosen[i]
            old[left] = i
            for j in range(left + 1):
                gram[left, j] = gram[i, old[j]]  # rows only move up, so the source still stands
            left += 1
    return left


@njit(**_OPTIONS)
def _begin(vertices, q, lam, chosen, gram, scores, n, k):  # type: ignore[no-untyped-def]
    """Start from the k vertices chosen before, or from the nearest one; return how many are chosen."""
    if k > 0:
        total = 0.0
        for i in range(k):
            _add(vertices, q, chosen, gram, i, chosen[i], n)
            total += lam[i]
        for i in range(k):
            lam[i] = lam[i] / total if total > 0 else 1.0 / k
        return k
    m = vertices.shape[1]
    scores[:m] = 0.0
    for c in range(n):
        for i in range(m):
            d = vertices[c, i] - q[c]
            scores[i] += d * d
    _add(vertices, q, chosen, gram, 0, np.argmin(scores[:m]), n)
    lam[0] = 1.0
    return 1


@njit(**_OPTIONS)
def _descend(lam, chosen, gram, factor, u, old, k, first):  # type: ignore[no-untyped-def]
    """Go to the affine minimiser of the chosen ones, dropping some until it lies inside their hull; 0 where that fails.

    The factor's rows before `first` are those of the step before.
    """
    while True:
        total = 0.0
        if not _solve(gram, factor, u, k, first):
            k -= 1
            first = 0
            for i in range(k):
                total += lam[i]
            if total <= 0:
                return 0
            for i in range(k):
                lam[i] /= total
            continue
        for i in range(k):
            total += u[i]
        inside = True
        for i in range(k):
            u[i] /= total
            inside = inside and u[i] > 1e-13
        if inside:
            lam[:k] = u[:k]
            return k
        k = _shrink(lam, u, chosen, gram, old, k)
        first = 0


@njit(**_OPTIONS)
def _best(vertices, q, p, lam, chosen, scores, n, k):  # type: ignore[no-untyped-def]
    """Fill p with the mixture of the chosen ones; return the vertex furthest towards q, and the duality gap."""
    m = vertices.shape[1]
    scores[:m] = 0.0
    value = 0.0
    for c in range(n):
        s = 0.0
        for i in range(k):
            s += lam[i] * vertices[c, chosen[i]]
        p[c] = s
        g = s - q[c]
        value += g * s
        for i in range(m):
            scores[i] += g * vertices[c, i]
    best = 0
    for i in range(1, m):
        if scores[i] < scores[best]:
            best = i
    return best, value - scores[best]


@njit(**_OPTIONS)
def _nearest(vertices, q, tolerance, p, lam, chosen, gram, factor, u, scores, old, n, k):  # type: ignore[no-untyped-def]
    """Fill p; return the duality gap and the number chosen. With k > 0 it starts from the vertices chosen before."""
    room = lam.shape[0]
    k = _begin(vertices, q, lam, chosen, gram, scores, n, k)
    gap, first, length = 0.0, 0, np.inf
    for _ in range(100 * room + 1000):
        k = _descend(lam, chosen, gram, factor, u, old, k, first)
        if k == 0:
            return -1.0, 0
        best, gap = _best(vertices, q, p, lam, chosen, scores, n, k)
        now = 0.0
        for c in range(n):
            now += (p[c] - q[c]) ** 2
        # Each step shortens p - q; where rounding says otherwise, it is as near as numbers allow.
        if gap <= tolerance or k == room or now >= length:
            break
        length = now
        known = False
        for i in range(k):
            known = known or chosen[i] == best
        if known:
            break
        _add(vertices, q, chosen, gram, k, best, n)
        lam[k] = 0.0
        first = k
        k += 1
    return gap, k


@njit(**_OPTIONS)
def _rows(vertices, quotes, tolerance, points, gaps, is_chained):  # type: ignore[no-untyped-def]
    n, m = vertices.shape
    room = n + 2
    lam, u, scores = np.empty(room), np.empty(room), np.empty(m)
    chosen, old = np.empty(room, np.int64), np.empty(room, np.int64)
    gram, factor = np.empty((room, room)), np.empty((room, room))
    k = 0
    for b in range(len(quotes)):
        gap, k = _nearest(
            vertices, quotes[b], tolerance, points[b], lam, chosen, gram, factor, u, scores, old, n, k if is_chained else 0
        )
        if gap < 0 or gap > tolerance:  # a start from the row before that went wrong: again, from nothing
            gap, k = _nearest(vertices, quotes[b], tolerance, points[b], lam, chosen, gram, factor, u, scores, old, n, 0)
        gaps[b] = gap


@njit(**_OPTIONS)
def project_rows(vertices, quotes, tolerance, points, gaps, is_chained):  # type: ignore[no-untyped-def]
    """Fill the nearest points and the gaps of all rows, one after the other; `is_chained` starts each from the last."""
    _rows(vertices, quotes, tolerance, points, gaps, is_chained)


@njit(parallel=True, **_OPTIONS)
def project_rows_parallel(vertices, quotes, tolerance, points, gaps, n_chunks):  # type: ignore[no-untyped-def]
    """The same in chunks over all cores; thread start-up costs milliseconds, so for large batches only."""
    n_rows = len(quotes)
    for chunk in prange(n_chunks):
        low, high = chunk * n_rows // n_chunks, (chunk + 1) * n_rows // n_chunks
        _rows(vertices, quotes[low:high], tolerance, points[low:high], gaps[low:high], False)


@njit(**_OPTIONS)
def subset_distances(vertices, q, tolerance, members, squares):  # type: ignore[no-untyped-def]
    """Fill squares[s] with the squared distance of the coordinates `members[s]` alone to the vertices seen on them.

    Neighbouring subsets should differ by few coordinates: each search starts from the vertices of the one before.
    """
    n, m = vertices.shape
    room = n + 2
    lam, u, scores = np.empty(room), np.empty(room), np.empty(m)
    chosen, old = np.empty(room, np.int64), np.empty(room, np.int64)
    gram, factor = np.empty((room, room)), np.empty((room, room))
    seen, part, p = np.empty((n, m)), np.empty(n), np.empty(n)
    k = 0
    for s in range(len(members)):
        d = 0
        for c in range(n):
            if members[s, c]:
                seen[d] = vertices[c]
                part[d] = q[c]
                d += 1
        squares[s] = 0.0
        if d == 0:
            continue
        gap, k = _nearest(seen, part, tolerance, p, lam, chosen, gram, factor, u, scores, old, d, min(k, d + 1))
        if gap < 0 or gap > tolerance:
            gap, k = _nearest(seen, part, tolerance, p, lam, chosen, gram, factor, u, scores, old, d, 0)
        for c in range(d):
            squares[s] += (p[c] - part[c]) ** 2
