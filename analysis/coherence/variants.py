"""Other distances than plain ε*: canonical, less noise, weighted, ratio form, log score. Never mixed with it in one chart.

Each takes a clique and names what it measures; the geometry stays what the relations say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.coherence.cliques import Clique, Projections, Quote
from analysis.coherence.relations import Linear, tied_literals
from analysis.coherence.wolfe import nearest_by_oracle

MAX_FACE = 512  # coordinates of a clique whose active face is worked out
NOISE_UNKNOWN = "noise_unknown: the number of samples behind a quote is not known"

Floats = npt.NDArray[np.float64]


class Weighted(NamedTuple):
    """A projection in a weighted norm: its own length, the plain length of the same repair, the repaired quotes."""

    distance: float
    plain_distance: float
    near: tuple[float, ...]


def weighted(clique: Clique, weights: Sequence[float]) -> Weighted:
    """Return the root of the least weighted sum of squares, one positive weight for each quote.

    >>> from analysis.coherence.relations import parse
    >>> two = Clique([Quote("x", "a", 0.6), Quote("y", "b", 0.6)], [parse("exactly_one(a, b)")])
    >>> found = weighted(two, [4, 1])
    >>> round(found.distance, 6), round(found.plain_distance, 6), [round(p, 2) for p in found.near]
    (0.178885, 0.164924, [0.56, 0.44])
    """
    found = clique.project(weights=np.array(weights, dtype=float))
    return Weighted(float(found.upper[0]), float(np.linalg.norm(found.pulls[0])), tuple(found.near[0].tolist()))


def canonical(clique: Clique) -> float:
    """Return the residual in which quotes of one proposition, its equals and complements share one weight of 1.

    Declaring a complement or a paraphrase more then changes nothing; disagreement among them still counts.
    """
    multiplicity = _multiplicities(clique)
    if max(multiplicity) == 1:
        return float(clique.project().upper[0])
    return float(clique.project(weights=1 / np.array(multiplicity)).upper[0])


def _multiplicities(clique: Clique) -> list[int]:
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for relation in clique.relations:
        if not isinstance(relation.content, Linear):
            for a, b, _ in tied_literals(relation.content):
                parent[root(b)] = root(a)
    classes = [root(quote.proposition) for quote in clique.quotes]
    counts: dict[str, int] = {}
    for name in classes:
        counts[name] = counts.get(name, 0) + 1
    return [counts[name] for name in classes]


def noise(clique: Clique, found: Projections) -> float | str:
    """Return what sampling noise adds to the squared residual on average, or why that is not known.

    With Σ the variances of the quotes and N the projector on the normal space of the active face it is tr(N Σ), which is
    a'Σa / |a|² for a single facet with normal a. Without samples the variance is p(1-p) / (K-1), the largest that K
    values in [0, 1] with mean p can show: the debiased residual is then a low estimate for verbalised quotes.
    """
    variances = [_variance(quote) for quote in clique.quotes]
    known = np.array([v for v in variances if v is not None])
    if len(known) < len(variances):
        return NOISE_UNKNOWN
    points = clique.points
    if points is None or points.shape[1] > MAX_FACE:
        return "the active face is not known: conditional quotes or too many worlds"
    heights = points @ found.pulls[0]
    face = points[heights <= heights.min() + 1e-9]
    _, singular, directions = np.linalg.svd(face - face[0], full_matrices=False)
    along = (directions[singular > 1e-9] ** 2).sum(axis=0)
    return float(known @ (1 - along))


def _variance(quote: Quote) -> float | None:
    if quote.samples is not None and len(quote.samples) > 1:
        return float(np.var(quote.samples, ddof=1)) / len(quote.samples)
    if quote.n_samples is None or quote.n_samples < 2:
        return None
    return quote.p * (1 - quote.p) / (quote.n_samples - 1)


def log_distance(clique: Clique) -> float:
    """Return the least sum of Bernoulli divergences KL(r, q) over coherent r, in nats; infinite where a quote of 0 or 1 bars it.

    It is the largest gain in log score that is sure in every world (Paleka et al. 2024, arXiv 2412.18544).
    """
    import cvxpy as cp

    points = clique.points
    if points is None:
        raise ValueError("the log distance needs plain quotes and worlds that can be listed")
    q = clique.values
    shares = cp.Variable(len(points), nonneg=True)
    r = points.T @ shares
    divergence = cp.sum(cp.kl_div(r, q) + cp.kl_div(1 - r, 1 - q))  # type: ignore[attr-defined]
    problem = cp.Problem(cp.Minimize(divergence), [cp.sum(shares) == 1])  # type: ignore[attr-defined]
    value = problem.solve(solver=cp.CLARABEL)  # type: ignore[no-untyped-call]
    return max(0.0, float(value)) if value is not None and math.isfinite(value) else math.inf


class Ratio(NamedTuple):
    """The distance with P(b if a) as a ratio: bounds, and the repaired quotes. Not convex; `upper` is the best found."""

    lower: float
    upper: float
    near: tuple[float, ...]


def ratio_form(clique: Clique, *, n_starts: int = 40) -> Ratio | str:
    """Return the distance in which a quote of b if a is compared with P(a and b) / P(a) itself, or why it is not computed.

    For one conditioning event a: with r = P(a) fixed the problem is convex, and r is searched on a grid and then refined.
    The called-off form is never larger, and is the lower bound.
    """
    from scipy.optimize import minimize_scalar

    pairs = clique.coordinates()
    conditions = {minus for _, minus in pairs if minus >= 0}
    if len(conditions) != 1:
        return "no conditional quote" if not conditions else "more than one conditioning event"
    points = clique.witnesses()
    if points is None:
        return "too many worlds to list"
    condition = next(iter(conditions))

    def solve(p_condition: float) -> tuple[float, Floats]:
        return _with_fixed_condition(points, pairs, clique.values, condition=condition, p_condition=p_condition)

    edges = np.linspace(0.0, 1.0, n_starts + 1)[1:]
    values = [solve(float(r))[0] for r in edges]
    best = int(np.argmin(values))
    low, high = float(edges[max(best - 1, 0)]), float(edges[min(best + 1, len(edges) - 1)])
    at = minimize_scalar(lambda r: solve(float(r))[0], bounds=(low, high), method="bounded", options={"xatol": 1e-10}).x
    square, near = min((solve(float(r)) for r in (at, edges[best])), key=lambda found: found[0])
    return Ratio(float(clique.project().lower[0]), math.sqrt(square), tuple(near.tolist()))


def _with_fixed_condition(
    points: Floats, pairs: Sequence[tuple[int, int]], quotes: Floats, *, condition: int, p_condition: float
) -> tuple[float, Floats]:
    """Return the least squared distance, and its quotes, over distributions that give the condition this probability.

    The worlds with and without the condition mix in fixed shares, so the point is a sum of one of either hull.
    """
    plus, minus = (np.array([pair[k] for pair in pairs]) for k in (0, 1))
    holds = points[:, condition] == 1
    shown = points[:, plus]
    inside = np.where(minus >= 0, shown, p_condition * shown)[holds]
    outside = np.where(minus >= 0, 0.0, (1 - p_condition) * shown)[~holds]
    if not len(inside) or (not len(outside) and p_condition < 1):
        return math.inf, quotes
    outside = outside if len(outside) else np.zeros((1, len(plus)))

    def lowest(slopes: Floats) -> tuple[Floats, float]:
        vertex = inside[np.argmin(inside @ slopes)] + outside[np.argmin(outside @ slopes)]
        return vertex, float(vertex @ slopes)

    found = nearest_by_oracle(quotes, lowest, gap=1e-14)
    return float(((found.point - quotes) ** 2).sum()), found.point
