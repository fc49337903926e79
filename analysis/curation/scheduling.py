"""Refinements of an order that are ours, not published: cycles of coupling, boundaries, continuity and diversity.

Each takes row numbers in their present order and returns them in another; rows that lack what it goes by keep their places.
Each leaves an order alone that already has what it guarantees, and equal rows in their sequence.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from analysis.curation.published import Indices, fold

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_DECIMALS = 9  # of stored scores


def among(order: Indices, has: Mask, arrange: Callable[[Indices], Indices]) -> Indices:
    """Return the order in which the rows that `has` marks are arranged anew on the places they hold together."""
    places = np.flatnonzero(has[order])
    found = order.copy()
    found[places] = arrange(order[places])
    return found


def cyclic(order: Indices, bits: Floats, n_cycles: int) -> Indices:
    """Return the rows going from loose to tight coupling `n_cycles` times, each time over the whole range.

    The rows sorted by bits are dealt to the cycles in turn, a fold with a layer for each cycle, so that the cycles hold
    equally many rows of each number of bits, within one. Applied again it changes nothing where all bits differ.

    >>> cyclic(np.arange(6), np.array([0.0, 0.4, 1.0, 1.4, 2.0, np.nan]), 2).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return among(order, ~np.isnan(bits), lambda rows: fold(rows[np.argsort(bits[rows], kind="stable")], n_cycles))


def interface(shares: Mapping[str, float], least: float) -> str | None:
    """Return the two components with the largest shares of a squared residual, where the second has at least `least` of it.

    None where the residual sits inside one component, is spread over many, or is none. Equal shares go by name.

    >>> interface({"planner": 0.03, "coder": 0.05, "tester": 0.02}, 0.25), interface({"planner": 0.1, "coder": 0.01}, 0.25)
    ('coder | planner', None)
    """
    total = sum(shares.values())
    largest = sorted(shares, key=lambda name: (-shares[name], name))[:2]
    if total <= 0 or len(largest) < 2 or shares[largest[1]] < least * total:
        return None
    return " | ".join(sorted(largest))


def sharpened(order: Indices, scores: Floats, interfaces: Sequence[str | None], *, share: float) -> Indices:
    """Return the order in which each interface begins with its lowest scores and ends with its highest.

    The m rows of an interface keep the places p_1 < … < p_m they hold together. The first round(share·m) of these get its
    lowest scores, ascending; the last round(share·m), of the others, its highest, ascending; the rest stay in sequence
    between them. So wherever the residual lies between the same two components, learning starts on what they agree about.

    >>> sharpened(np.arange(6), np.array([5.0, 9, 0, 3, 1, 7]), ["a", None, "a", "a", "a", "a"], share=0.2).tolist()
    [2, 1, 0, 3, 4, 5]
    """
    codes = _codes(interfaces)
    codes[np.isnan(scores)] = -1
    for code in range(int(codes.max(initial=-1)) + 1):
        order = among(order, codes == code, lambda rows: _low_to_high(rows, scores, share))
    return order


def continuous(order: Indices, scores: Floats, max_jump: float) -> Indices:
    """Return the order in which no two neighbours with a score differ by more than `max_jump`, moving few rows and not far.

    Runs of rows joined by a jump that is too large are sorted, up or down as the row before them is nearer, and grow by
    their neighbours until no such jump is left. Rows outside these runs do not move; a row moves less than its run is
    long. Where scores leave a gap wider than `max_jump`, the bound is the widest gap: no order has less.

    >>> scores = np.array([0.1, 0.2, 0.9, 0.3, 0.6, 0.7])
    >>> continuous(np.arange(6), scores, 0.35).tolist()
    [0, 1, 3, 4, 2, 5]
    """
    return among(order, ~np.isnan(scores), lambda rows: _smoothed(rows, scores, max_jump))


def diverse(order: Indices, modes: Sequence[str | None], window: int) -> Indices:
    """Return the order in which no window of rows with a mode has more of one mode than its share + 1.

    The rows that have a mode are taken in consecutive windows of w; each whole one holds at most floor(w·n_m/n) + 1 of the
    n_m rows of mode m among the n, which can always be had. Each window takes the earliest rows that its quotas let in; rows
    of a mode keep their sequence; a mode that later windows could not hold is taken early.

    >>> diverse(np.arange(8), list("aaaabbbb"), 4).tolist()
    [0, 1, 2, 4, 3, 5, 6, 7]
    """
    codes = _codes(modes)
    return among(order, codes >= 0, lambda rows: _dealt(rows, codes[rows], window))


def _codes(names: Sequence[Hashable | None]) -> Indices:
    """Return a number for each name, in the order of their first appearance; -1 for None, and for NaN, which frames hold."""
    numbers: dict[Hashable, int] = {}
    given = [None if name != name else name for name in names]
    return np.array([-1 if name is None else numbers.setdefault(name, len(numbers)) for name in given], dtype=np.intp)


def _low_to_high(block: Indices, scores: Floats, share: float) -> Indices:
    n_end = min(round(share * len(block)), len(block) // 2)
    ranked = np.argsort(scores[block], kind="stable")
    middle = np.sort(ranked[n_end : len(block) - n_end])
    found: Indices = block[np.concatenate([ranked[:n_end], middle, ranked[len(block) - n_end :]])]
    return found


def _smoothed(rows: Indices, scores: Floats, max_jump: float) -> Indices:
    if len(rows) < 2:
        return rows
    values = scores[rows]
    bound = round(max(max_jump, float(np.diff(np.sort(values)).max())), _DECIMALS)
    order = starts = np.arange(len(rows))
    while (too_far := np.flatnonzero(np.round(np.abs(np.diff(values[order])), _DECIMALS) > bound)).size:
        starts = _grown(starts, too_far, len(rows))
        order = _sorted_runs(values, starts)
    return rows[order]


def _grown(starts: Indices, too_far: Indices, n: int) -> Indices:
    """Return where runs start after each that holds a jump, or ends in one, has taken in as many rows as it had.

    It takes those behind it, at the end of all rows those before it. Doubling keeps the rounds few; a run that another has
    just taken in waits for the next round, so that no more grow together than must.
    """
    runs = np.unique(np.searchsorted(starts, too_far, side="right") - 1)
    lengths = np.diff(np.append(starts, n))[runs]
    kept = np.ones(n, dtype=np.bool_)
    end = 0
    for start, length in zip(starts[runs].tolist(), lengths.tolist(), strict=True):
        if start >= end:
            end = start + 2 * length
            kept[max(0, min(start, n - 2 * length)) + 1 : end] = False
    remaining: Indices = starts[kept[starts]]
    return remaining


def _sorted_runs(values: Floats, starts: Indices) -> Indices:
    """Return the order in which each run is sorted, beginning at the end that is nearer to where the run before it ended."""
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    signs = np.ones(len(starts))
    last = float(low[0])
    for n, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        rises = abs(least - last) <= abs(most - last)
        signs[n] = 1.0 if rises else -1.0
        last = most if rises else least
    run = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(values))))
    return np.lexsort((signs[run] * values, run))


def _dealt(rows: Indices, modes: Indices, window: int) -> Indices:
    counts = np.bincount(modes)
    quotas = (counts * window // max(len(rows), 1) + 1).tolist()
    waiting = [deque(np.flatnonzero(modes == mode).tolist()) for mode in range(len(counts))]
    n_windows, n_rest = divmod(len(rows), window)
    found: list[int] = []
    for n_later in reversed(range(n_windows)):
        found += _window(waiting, quotas, window, n_later, n_rest)
    found += sorted(place for queue in waiting for place in queue)
    return rows[found]


def _window(waiting: Sequence[deque[int]], quotas: Sequence[int], window: int, n_later: int, n_rest: int) -> list[int]:
    """Take the places of one window off the queues of the modes, and return them in their sequence.

    First those that neither the `n_later` windows to come nor the rest after them can hold, then the earliest.
    """
    excess = [max(0, len(queue) - quota * n_later) for queue, quota in zip(waiting, quotas, strict=True)]
    room = list(quotas)
    taken = _earliest(waiting, list(map(min, excess, quotas)), sum(excess) - n_rest)
    for _, mode in taken:
        room[mode] -= 1
    taken += _earliest(waiting, room, window - len(taken))
    return sorted(place for place, _ in taken)


def _earliest(waiting: Sequence[deque[int]], room: list[int], n: int) -> list[tuple[int, int]]:
    """Take the `n` earliest places off the queues, of each mode as many as there is room for, with their modes."""
    if n <= 0:
        return []
    heads = [(queue[0], mode) for mode, queue in enumerate(waiting) if queue and room[mode] > 0]
    heapq.heapify(heads)
    found: list[tuple[int, int]] = []
    while heads and len(found) < n:
        place, mode = heads[0]
        found.append((place, mode))
        waiting[mode].popleft()
        room[mode] -= 1
        if waiting[mode] and room[mode] > 0:
            heapq.heapreplace(heads, (waiting[mode][0], mode))
        else:
            heapq.heappop(heads)
    return found
