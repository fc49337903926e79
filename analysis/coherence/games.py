"""Games over the components of one clique, and how their value is shared out (Shapley 1953).

A game gives every coalition of components a squared distance. Up to 12 components all coalitions are computed; above,
pairs of opposite orders are sampled, and the shares come with an interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.coherence import closed, wolfe
from analysis.coherence.cliques import Clique
from analysis.coherence.projection import Closed

MAX_EXACT = 12
N_PAIRS = 100  # pairs of opposite orders that are sampled

Floats = npt.NDArray[np.float64]
Coalitions = npt.NDArray[np.bool_]  # (S, k): who is in
Game = Callable[[Coalitions], Floats]


class Shares(NamedTuple):
    """Shares (k,) of a game's value; `radius` is half of the 95 % interval, None where the shares are exact."""

    values: Floats
    radius: Floats | None


def free_game(clique: Clique) -> Game:
    """Return v(S): the squared distance of the quotes of S alone, the others free. 0 for nobody, ε*² for all."""
    points, body = clique.points, clique.polytope
    is_repeated = len({quote.proposition for quote in clique.quotes}) < len(clique.quotes)

    def by_parts(coalitions: Coalitions) -> Floats:
        squares = np.zeros(len(coalitions))
        for number, row in enumerate(coalitions):
            inside = {name for name, is_in in zip(clique.components, row, strict=True) if is_in}
            if inside:
                squares[number] = clique.of(inside).project().upper[0] ** 2
        return squares

    def value(coalitions: Coalitions) -> Floats:
        members = coalitions[:, clique.owners]
        if isinstance(body, Closed) and not is_repeated:
            flipped = body.body.flipped[clique.places()]
            return closed.subset_squares(closed.Body(body.body.kind, flipped), clique.values, members)
        return by_parts(coalitions) if points is None else wolfe.subset_squares(points, clique.values, members)

    return value


def replace_game(clique: Clique, near: Floats) -> Game:
    """Return w(S): ε*² after the quotes of S are set to the projection `near` (n,). ε*² for nobody, 0 for all."""
    return mixed_game(clique, inside=np.where(np.isnan(near), clique.values, near), outside=clique.values)


def mixed_game(clique: Clique, *, inside: Floats, outside: Floats) -> Game:
    """Return the squared residual where the components of S quote `inside` (n,) and the others `outside` (n,)."""

    def value(coalitions: Coalitions) -> Floats:
        rows = np.where(coalitions[:, clique.owners], inside, outside)
        return np.asarray(clique.project(rows).upper ** 2)

    return value


def table(game: Game, k: int) -> Floats:
    """Return the value of all 2^k coalitions; bit i of the index says whether component i is in.

    Coalitions are visited in Gray order, so that one follows another that differs in a single component.
    """
    gray = np.arange(1 << k) ^ (np.arange(1 << k) >> 1)
    values = np.empty(1 << k)
    values[gray] = game(((gray[:, None] >> np.arange(k)) & 1).astype(bool))
    return values


def shares_of(values: Floats) -> Floats:
    """Return the Shapley shares (k,) of a table of 2^k values: the mean marginal contribution over all orders.

    >>> shares_of(np.array([0.0, 0.0, 0.0, 0.02])).tolist()
    [0.01, 0.01]
    """
    k = len(values).bit_length() - 1
    size = np.array([coalition.bit_count() for coalition in range(1 << k)])
    weight = np.array([math.factorial(s) * math.factorial(k - s - 1) / math.factorial(k) for s in range(k)])
    return np.array([weight[size[without]] @ marginal for without, marginal in (_marginals(values, i) for i in range(k))])


def order_range(values: Floats) -> Floats:
    """Return the least and the largest marginal contribution of each component over all orders, (k, 2)."""
    k = len(values).bit_length() - 1
    return np.array([(marginal.min(), marginal.max()) for _, marginal in (_marginals(values, i) for i in range(k))])


def shapley(game: Game, k: int, rng: np.random.Generator) -> Shares:
    """Return the Shapley shares of a game: exact up to 12 components, else from sampled pairs of opposite orders."""
    if k <= MAX_EXACT:
        return Shares(shares_of(table(game, k)), None)
    orders = np.argsort(rng.random((N_PAIRS, k)), axis=1)
    orders = np.concatenate([orders, orders[:, ::-1]])
    place = np.argsort(orders, axis=1)
    prefixes = place[:, None, :] < np.arange(k + 1)[None, :, None]
    values = game(prefixes.reshape(-1, k)).reshape(len(orders), k + 1)
    marginals = np.empty((len(orders), k))
    np.put_along_axis(marginals, orders, np.diff(values, axis=1), axis=1)
    pairs = (marginals[:N_PAIRS] + marginals[N_PAIRS:]) / 2
    return Shares(pairs.mean(axis=0), 1.96 * pairs.std(axis=0, ddof=1) / math.sqrt(N_PAIRS))


def _marginals(values: Floats, i: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """Return the coalitions without i, and what i adds to each."""
    coalitions = np.arange(len(values))
    without = coalitions[(coalitions >> i) & 1 == 0]
    return without, values[without | (1 << i)] - values[without]
