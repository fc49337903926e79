"""The nearest coherent point to quotes over one connected set of relations, with a proof of how near it is.

It hides the route: closed form, listed worlds, junction tree, or a search with an oracle; `polytope` chooses by size.
Every route gives marginals that some distribution over the admitted worlds has, and lower <= distance <= upper.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from analysis.coherence import closed
from analysis.coherence.relations import names_of
from analysis.coherence.wolfe import nearest_rows
from analysis.coherence.worlds import Shape, worlds
from analysis.errors import RelationError

#: A residual counts as positive above this; what is smaller is rounding of some solver.
POSITIVE = 1e-6
MAX_SCOPE = 64  # names in one rule, while worlds are listed
MAX_VARIABLES = 1_000

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


class View(NamedTuple):
    """What of the marginals is compared with quotes: coordinate j is z[plus] - factor * z[minus], times √weight.

    `minus` is -1 for a plain proposition; for one that is quoted as b if a, `plus` is (a and b), `minus` is a, `factor`
    the quote, and the coordinate, the gain of a bet that is called off unless a, is compared with 0.
    """

    plus: Indices
    minus: Indices
    factor: Floats
    weight: Floats

    @property
    def is_plain(self) -> bool:
        """True without conditional quotes, where each coordinate is one marginal."""
        return bool((self.minus < 0).all())

    def coordinates(self, marginals: Floats) -> Floats:
        """Return the weighted coordinates (B, d) of marginals (B, n)."""
        plain = marginals[:, self.plus]
        if not self.is_plain:
            plain = plain - np.where(self.minus < 0, 0.0, self.factor) * marginals[:, np.maximum(self.minus, 0)]
        return np.asarray(plain * np.sqrt(self.weight))

    def slopes(self, coordinates: Floats, n: int) -> Floats:
        """Return the gradient over n marginals (n,) of slopes (d,) over the coordinates: the transpose."""
        scaled = coordinates * np.sqrt(self.weight)
        total: Floats = np.bincount(self.plus, scaled, n).astype(float)
        is_conditional = self.minus >= 0
        return np.asarray(total - np.bincount(self.minus[is_conditional], (scaled * self.factor)[is_conditional], n), float)


class Found(NamedTuple):
    """Marginals (B, n) of the nearest coherent points, and bounds of their weighted distances (B,)."""

    marginals: Floats
    lower: Floats
    upper: Floats
    method: str


class Polytope(Protocol):
    """All coherent marginals of the variables `kept`, by one of the routes."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The variables, in the order of the marginals."""

    @property
    def n_worlds(self) -> int | None:
        """The number of admitted 0/1 rows over `kept`; None where they were not counted."""

    def project(self, view: View, targets: Floats) -> Found:
        """Return the nearest points to the rows of `targets` (B, d), which stand in the coordinates of `view`."""


class Closed(NamedTuple):
    """A polytope whose projection has a closed form."""

    kept: tuple[int, ...]
    body: closed.Body

    @property
    def n_worlds(self) -> int:
        """The 0/1 points of the body."""
        return self.body.n_worlds

    def project(self, view: View, targets: Floats) -> Found:
        """Project by formula; the bound is the least value of the gradient over the body's 0/1 points."""
        scale = np.sqrt(view.weight)
        body = closed.Body(self.body.kind, self.body.flipped[view.plus])
        quotes = targets / scale
        near = closed.project(body, quotes, view.weight)
        slopes = view.weight * (near - quotes)
        gaps = (slopes * near).sum(axis=1) - closed.lowest(body, slopes)
        marginals = np.empty_like(near)
        marginals[:, view.plus] = near
        return Found(marginals, *interval((near - quotes) * scale, gaps), f"closed form ({body.kind})")


class Listed(NamedTuple):
    """A polytope given by the list of its 0/1 points (m, n)."""

    kept: tuple[int, ...]
    points: Floats

    @property
    def n_worlds(self) -> int:
        """The number of points."""
        return len(self.points)

    def project(self, view: View, targets: Floats) -> Found:
        """Project by Wolfe's algorithm over the listed worlds."""
        vertices = view.coordinates(self.points)
        if view.is_plain and len(view.plus) == len(self.kept):
            near, gaps = nearest_rows(vertices, targets)
            marginals = np.empty_like(near)
            marginals[:, view.plus] = near / np.sqrt(view.weight)
        else:
            marginals, near, gaps = self._with_witness(vertices, targets)
        return Found(marginals, *interval(near - targets, gaps), "Wolfe over listed worlds")

    def _with_witness(self, vertices: Floats, targets: Floats) -> tuple[Floats, Floats, Floats]:
        """Project with all marginals of one distribution that attains the point, also those no coordinate shows."""
        from analysis.coherence.wolfe import nearest_listed

        marginals, near, gaps = np.empty((len(targets), len(self.kept))), np.empty_like(targets), np.empty(len(targets))
        for row, target in enumerate(targets):
            found = nearest_listed(vertices, target)
            marginals[row] = found.weights @ self.points[list(found.chosen)]
            near[row], gaps[row] = found.point, found.gap
        return marginals, near, gaps


def interval(away: Floats, gaps: Floats) -> tuple[Floats, Floats]:
    """Return (lower, upper) of the distance: the length of `away` (B, d), and what the duality gap leaves of it.

    x = p - q with gap <x, p> - min <x, v> puts the hull beyond the hyperplane at distance (|x|² - gap) / |x| from q.
    """
    upper = np.sqrt((away * away).sum(axis=1))
    lower = np.divide(upper * upper - np.maximum(gaps, 0.0), upper, out=np.zeros_like(upper), where=upper > 0)
    return np.clip(lower, 0.0, upper), upper


def has_points(body: Polytope) -> bool:
    """Return whether the 0/1 points are few enough to be listed one by one."""
    return isinstance(body, Listed) or (isinstance(body, Closed) and body.n_worlds <= 4096)


def points_of(body: Polytope) -> Floats:
    """Return the 0/1 points (m, n) of a polytope that has them listed, or few enough to list."""
    if isinstance(body, Closed):
        return closed.points(body.body)
    assert isinstance(body, Listed)  # ask `has_points` first
    return body.points


@lru_cache(maxsize=1024)
def polytope(shape: Shape, kept: tuple[int, ...]) -> Polytope:
    """Return the coherent marginals of the variables `kept`, by the cheapest route that is exact.

    Raises
    ------
    RelationError
        If no world is admitted.
    """
    if not shape.couplings:
        body = closed.body_of(shape.rules, kept)
        if body is not None:
            return Closed(kept, body)
    listed = worlds(shape, kept) if not shape.couplings and _is_narrow(shape) else None
    if listed is None:
        from analysis.coherence.large import large_polytope

        return large_polytope(shape, kept)
    if not len(listed):
        raise RelationError("relations", "no world satisfies all of them")
    return Listed(kept, listed.astype(float))


def is_satisfiable(shape: Shape) -> bool:
    """Return whether any world is admitted (and, with linear couplings, any distribution over the worlds)."""
    if not shape.couplings and closed.body_of(shape.rules, range(shape.n)) is not None:
        return True
    if not shape.couplings and _is_narrow(shape) and (found := worlds(shape, (), limit=20_000)) is not None:
        return len(found) > 0
    from analysis.coherence.large import is_satisfiable_large

    return is_satisfiable_large(shape)


def _is_narrow(shape: Shape) -> bool:
    """Whether worlds can be listed variable by variable: each step looks at whole rules, so wide ones are for the tree."""
    return shape.n <= MAX_VARIABLES and all(sum(1 for _ in names_of(rule)) <= MAX_SCOPE for rule in shape.rules)
