"""Which worlds the relations admit: numbering of propositions, enumeration, and the smallest set that contradicts itself.

A world is a 0/1 row over the variables of a `Shape`. The module hides how worlds are listed without going through 2^n.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from analysis.coherence.relations import Linear, Node, bounds, names_of

MAX_WORLDS = 200_000

Worlds = npt.NDArray[np.bool_]
Item = TypeVar("Item")


class Shape(NamedTuple):
    """Relations over the variables 0 … n-1, whatever they are called; equal shapes share all that is computed for them."""

    n: int
    rules: tuple[Node, ...]
    couplings: tuple[Linear, ...] = ()


def worlds(shape: Shape, keep: Collection[int], *, limit: int = MAX_WORLDS) -> Worlds | None:
    """Return the admitted worlds over the variables `keep` (m x len(keep), in order); None where more than `limit` arise.

    Variables come in one by one, rows that a rule already refutes go, and a variable that is not kept goes as soon as no
    rule needs it: linear in the rows, not in 2^n.

    >>> a, b = Node("name", (0,)), Node("name", (1,))
    >>> worlds(Shape(2, (Node("implies", (a, b)),)), (0, 1)).astype(int).tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    scopes = [frozenset(names_of(rule)) for rule in shape.rules]
    kept = frozenset(keep)
    order = _order(shape.n, scopes)
    place = {v: step for step, v in enumerate(order)}
    last_use = dict(place)
    by_variable: dict[int, list[int]] = {v: [] for v in order}
    for number, scope in enumerate(scopes):
        for v in scope:
            by_variable[v].append(number)
            last_use[v] = max(last_use[v], *(place[u] for u in scope))
    columns: dict[int, npt.NDArray[np.bool_]] = {}
    n_rows = 1
    for step, v in enumerate(order):
        columns = {u: np.concatenate([column, column]) for u, column in columns.items()}
        columns[v] = np.repeat([False, True], n_rows)
        n_rows *= 2
        stays = np.ones(n_rows, bool)
        for number in by_variable[v]:
            stays &= bounds(shape.rules[number], columns)[1]
        columns = {u: column[stays] for u, column in columns.items()}
        done = [u for u in columns if u not in kept and last_use[u] <= step]
        columns, n_rows = _dropped(columns, done, int(stays.sum()))
        if n_rows > limit:
            return None
    found = np.stack([columns[v] for v in sorted(kept)], axis=1) if kept else np.zeros((n_rows, 0), bool)
    return found[np.lexsort(found.T[::-1])] if kept else found


def _dropped(
    columns: dict[int, npt.NDArray[np.bool_]], done: Sequence[int], n_rows: int
) -> tuple[dict[int, npt.NDArray[np.bool_]], int]:
    if not done or n_rows == 0:
        return columns, n_rows
    rest = [u for u in columns if u not in done]
    if not rest:
        return {}, min(n_rows, 1)
    rows = np.unique(np.packbits(np.stack([columns[u] for u in rest], axis=1), axis=1), axis=0)
    bits = np.unpackbits(rows, axis=1, count=len(rest)).astype(bool)
    return dict(zip(rest, bits.T, strict=True)), len(bits)


def _order(n: int, scopes: Sequence[frozenset[int]]) -> list[int]:
    """Return the variables so that those of one rule stand together: rule after touching rule, breadth first."""
    rules_of: dict[int, list[int]] = {}
    for number, scope in enumerate(scopes):
        for v in scope:
            rules_of.setdefault(v, []).append(number)
    order: dict[int, None] = {}
    seen = [False] * len(scopes)
    for first in range(len(scopes)):
        queue = [] if seen[first] else [first]
        seen[first] = True
        for number in queue:
            for v in sorted(scopes[number]):
                order.setdefault(v)
                for other in rules_of[v]:
                    if not seen[other]:
                        seen[other] = True
                        queue.append(other)
    for v in range(n):
        order.setdefault(v)
    return list(order)


def minimal(items: Sequence[Item], is_enough: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Return the items left when each is dropped in its order if the rest is still enough; for a monotone `is_enough`.

    Whole blocks are tried first, which drops what one by one would drop: k log(n / k) calls for k items left.

    >>> minimal([1, 2, 3, 4], lambda left: sum(left) >= 6)
    [3, 4]
    """
    left = list(range(len(items)))

    def shrink(block: list[int]) -> None:
        nonlocal left
        rest = [i for i in left if i not in set(block)]
        if is_enough([items[i] for i in rest]):
            left = rest
        elif len(block) > 1:
            half = len(block) // 2
            shrink(block[:half])
            shrink(block[half:])

    if left:
        shrink(left)
    return [items[i] for i in left]
