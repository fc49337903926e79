"""Product structure: how strongly relations couple the components, in bits, and the worst they can do together.

Components that are coherent alone are coherent together for all quotes exactly if the joint worlds are all combinations
of the components' own: |V| = Π |V_a|. The test is joint; that every pair passes it proves nothing (XOR).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from analysis.coherence.cliques import Clique

MAX_CORNERS = 2**16


class Coupling(NamedTuple):
    """The joint test over the components of one clique. `bits` are log2(Π |V_a| / |V|), 0 for a product.

    `dependent_pairs` are the pairs of components that are coupled without the others; a clique without any can still be
    no product.
    """

    n_worlds: int
    n_worlds_of: dict[str, int]
    bits: float
    dependent_pairs: tuple[tuple[str, str], ...]

    @property
    def is_product(self) -> bool:
        """True if coherent components are always coherent together."""
        return math.prod(self.n_worlds_of.values()) == self.n_worlds


def coupling(clique: Clique) -> Coupling | None:
    """Return how the components of a clique are coupled; None where the worlds were not counted.

    >>> from analysis.coherence.cliques import Quote
    >>> from analysis.coherence.relations import parse
    >>> three = [Quote(name, name, 0.5) for name in "abc"]
    >>> found = coupling(Clique(three, [parse("iff(c, a ^ b)")]))
    >>> found.n_worlds, found.bits, found.dependent_pairs
    (4, 1.0, ())
    """
    own = {name: _n_worlds(clique, (name,)) for name in clique.components}
    joint = clique.polytope.n_worlds if clique.is_plain else None
    counted = {name: n for name, n in own.items() if n is not None}
    if joint is None or len(counted) < len(own):
        return None
    bits = sum(map(math.log2, counted.values())) - math.log2(joint)
    pairs = combinations(clique.components, 2) if len(counted) <= 64 else ()
    dependent = tuple((a, b) for a, b in pairs if _n_worlds(clique, (a, b)) != counted[a] * counted[b])
    is_product = math.prod(counted.values()) == joint
    return Coupling(joint, counted, 0.0 if is_product else max(bits, 0.0), dependent)


def coupling_max(clique: Clique) -> float | None:
    """Return the largest distance that coherent components can have together; None where there are too many corners.

    Distance is convex, so the maximum over products of coherent quotes is attained where every component is at one of its
    worlds.
    """
    parts = [(mask, _own_points(clique, mask)) for name in range(len(clique.components)) for mask in [clique.owners == name]]
    corners: list[tuple[np.ndarray, np.ndarray]] = [(mask, points) for mask, points in parts if points is not None]
    if len(corners) < len(parts) or math.prod(len(points) for _, points in corners) > MAX_CORNERS:
        return None
    rows = np.empty((math.prod(len(points) for _, points in corners), len(clique.quotes)))
    for row, chosen in zip(rows, product(*(points for _, points in corners)), strict=True):
        for (mask, _), own in zip(corners, chosen, strict=True):
            row[mask] = own
    return float(clique.project(rows).upper.max())


def _n_worlds(clique: Clique, names: Sequence[str]) -> int | None:
    part = clique.of(names)
    return part.polytope.n_worlds if part.is_plain else None


def _own_points(clique: Clique, mask: np.ndarray) -> np.ndarray | None:
    part = Clique([quote for quote, own in zip(clique.quotes, mask, strict=True) if own], clique.relations)
    return part.points
