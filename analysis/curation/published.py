"""Orders of a curriculum exactly as Dai et al. (2026, arXiv 2605.30334) give them: FO, ZIG, SEG, STR, SAW, JIT.

All take row numbers that are sorted already and return them in another order. Sizes are rounded half to even, as published.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.intp]


def fold(rows: Indices, n_layers: int = 5) -> Indices:
    """Return every `n_layers`-th row from the first on, then every one from the second on, and so on (FO).

    >>> fold(np.arange(10), 3).tolist()
    [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    """
    return np.concatenate([rows[layer::n_layers] for layer in range(n_layers)])


def zigzag(rows: Indices, n_layers: int = 5) -> Indices:
    """Return the layers of `fold`, every other one from its end (ZIG).

    >>> zigzag(np.arange(10), 3).tolist()
    [0, 3, 6, 9, 7, 4, 1, 2, 5, 8]
    """
    return np.concatenate([rows[layer::n_layers][:: -1 if layer % 2 else 1] for layer in range(n_layers)])


def sections(rows: Indices, n_sections: int, ratio: float, n_layers: int, *, returns: bool) -> Indices:
    """Return the rows with those around each border of sections spread over one another (STR; with `returns` SAW).

    Borders lie at k/n_sections of the rows, k = 1 .. n_sections - 1; the rows no further than ratio·n from one are folded,
    or zigzagged where the way `returns`. Windows that overlap begin where the last one ended.

    >>> sections(np.arange(12), 4, 0.25, 2, returns=True).tolist()
    [0, 2, 4, 5, 3, 1, 6, 8, 7, 9, 11, 10]
    """
    n, cursor = len(rows), 0
    radius = round(n * ratio)
    parts = []
    for k in range(1, n_sections):
        border = round(n * k / n_sections)
        low, high = max(cursor, border - radius), min(n, border + radius)
        parts += [rows[cursor:low], (zigzag if returns else fold)(rows[low:high], n_layers)]
        cursor = high
    return np.concatenate([*parts, rows[cursor:]])


def ends(
    rows: Indices, shares: tuple[float, float] = (0.1, 0.1), sides: str = "low-high", *, rng: np.random.Generator
) -> Indices:
    """Return a front and a back drawn from the ends of the rows, the rest between them, each of the three shuffled (SEG).

    `sides` says which end the front and the back come from; from the same one, both are drawn together and then divided.

    >>> found = ends(np.arange(20), rng=np.random.default_rng(1))
    >>> sorted(found[:2].tolist()), sorted(found[-2:].tolist())
    ([0, 1], [18, 19])
    """
    n = len(rows)
    n_front = round(n * shares[0])
    n_back = min(round(n * shares[1]), n - n_front)
    front_side, back_side = sides.split("-")
    if front_side == back_side:
        n_both = n_front + n_back
        both = rows[:n_both] if front_side == "low" else rows[n - n_both :]
        middle = rows[n_both:] if front_side == "low" else rows[: n - n_both]
        both = _shuffled(both, rng)
        front, back = both[:n_front], both[n_front:]
    elif front_side == "low":
        front, middle, back = np.split(rows, [n_front, n - n_back])
    else:
        back, middle, front = np.split(rows, [n_back, n - n_front])
    return np.concatenate([_shuffled(part, rng) for part in (front, middle, back)])


def jitter(rows: Indices, window: int, *, rng: np.random.Generator) -> Indices:
    """Return the rows shuffled inside consecutive windows of `window`; nothing changes for 1 or less (JIT, applied last)."""
    if window <= 1:
        return rows
    return rows[np.lexsort((rng.random(len(rows)), np.arange(len(rows)) // window))]


def _shuffled(rows: Indices, rng: np.random.Generator) -> Indices:
    return rows[np.argsort(rng.random(len(rows)), kind="stable")]
