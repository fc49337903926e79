"""Who a residual comes from, by several named rules, and where they disagree.

There is no one answer: games differ, orders differ, several repairs may be minimal. The module gives each with its name,
and says when exactly one repair is smallest (`unique`), which is the only case in which blame is warranted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.coherence import games
from analysis.coherence.cliques import Clique
from analysis.coherence.projection import POSITIVE
from analysis.coherence.residual import Measured, energy, rounded
from analysis.coherence.wolfe import nearest_listed
from analysis.errors import UnknownNameError

MAX_REPAIRS = 32
_FIXED = 1e6  # weight of the quotes that may not move, while the worlds of a repair are looked for

Floats = npt.NDArray[np.float64]


class Repair(msgspec.Struct, frozen=True):
    """Components that can restore coherence by changing only their quotes, and by how much at least (None: not computed)."""

    components: tuple[str, ...]
    cost: float | None


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of ε*² by component. `energy`, `shapley` (free game) and `shapley_replace` each sum to ε*².

    `shapley_interval`: 95 % intervals where orders were sampled. `order_range`: least and largest contribution over all
    orders of the free game. `unique`: exactly one minimal repair has the fewest components. `interaction_only`: every
    component is coherent alone. `spread`: largest total variation between two of the rules, 0 to 1.
    """

    energy: dict[str, float] | None = None
    shapley: dict[str, float] | None = None
    shapley_interval: dict[str, tuple[float, float]] | None = None
    shapley_replace: dict[str, float] | None = None
    order_range: dict[str, tuple[float, float]] | None = None
    minimal_repairs: tuple[Repair, ...] | None = None
    unique: bool | None = None
    interaction_only: bool | None = None
    spread: float | None = None
    reasons: dict[str, str] = {}


def attribute(state: Measured, rng: np.random.Generator) -> Attribution:
    """Return who the residual of a state comes from; `rng` is used only above 12 components in one clique.

    >>> from analysis.coherence.cliques import Quote
    >>> from analysis.coherence.relations import parse
    >>> quotes = [Quote("x", "a", 0.9), Quote("y", "b", 0.3), Quote("z", "c", 0.3)]
    >>> found = attribute(Measured(quotes, [parse("exactly_one(a, b, c)")]), np.random.default_rng(0))
    >>> found.shapley, found.unique, found.minimal_repairs[0]
    ({'x': 0.034444444, 'y': 0.024444444, 'z': 0.024444444}, True, Repair(components=('x',), cost=0.5))
    """
    if not state.quotes:
        absent = [name for name in Attribution.__struct_fields__ if name != "reasons"]
        return Attribution(reasons=dict.fromkeys(absent, "no claims: nobody to attribute to"))
    names = tuple(energy(state))
    reasons: dict[str, str] = {}
    rules, interval = _shapley_rules(state, rng, reasons)
    fields: dict[str, Any] = {"energy": energy(state), **rules, "shapley_interval": interval}
    fields["spread"] = _spread([fields[rule] for rule in ("energy", "shapley", "shapley_replace")], reasons)
    found = _total_table(state)
    if isinstance(found, str):
        reasons |= dict.fromkeys(("order_range", "minimal_repairs", "unique"), found)
        alone = [games.free_game(clique)(np.eye(len(clique.components), dtype=bool)) for clique, _ in state.incoherent]
        fields["interaction_only"] = bool(alone) and all(float(values.max()) <= POSITIVE**2 for values in alone)
    else:
        involved, values = found
        ranges = dict(zip(involved, map(tuple, games.order_range(values)), strict=True)) if involved else {}
        fields["order_range"] = {name: ranges.get(name, (0.0, 0.0)) for name in names}
        single = [values[1 << i] for i in range(len(involved))]
        fields["interaction_only"] = bool(involved) and float(max(single)) <= POSITIVE**2
        fields |= _repairs(state, involved, values, reasons)
    return Attribution(**rounded(fields), reasons=reasons)


def reference_shares(state: Measured, reference: Mapping[str, float]) -> dict[str, float]:
    """Return the Shapley shares of the game in which components outside a coalition quote a coherent `reference`.

    It identifies an outlier as well as the reference is right (a resolved outcome, a trusted forecast); a coherent
    reference makes the shares sum to ε*².

    Raises
    ------
    UnknownNameError
        If the reference lacks a proposition that is quoted.
    """
    total = dict.fromkeys(energy(state), 0.0)
    for clique in state.cliques:
        for quote in clique.quotes:
            if quote.proposition not in reference:
                raise UnknownNameError(
                    "reference", "no value for a proposition", got=quote.proposition, expected=", ".join(sorted(reference))
                )
        outside = np.array([reference[quote.proposition] for quote in clique.quotes], dtype=float)
        game = games.mixed_game(clique, inside=clique.values, outside=outside)
        shares = games.shapley(game, len(clique.components), np.random.default_rng(0))
        for name, share in zip(clique.components, shares.values, strict=True):
            total[name] += float(share)
    return rounded(total)


def bootstrap_top(state: Measured, rng: np.random.Generator, *, n_draws: int = 1_000) -> dict[str, float] | None:
    """Return how often each component has the most energy when the samples behind the quotes are drawn anew.

    None where a quote has no samples: how sure it is cannot be known.
    """
    if any(not quote.samples for quote in state.quotes):
        return None
    total = {name: np.zeros(n_draws) for name in energy(state)}
    for clique in state.cliques:
        given = [np.array(quote.samples) for quote in clique.quotes]
        draws = [samples[(rng.random((n_draws, len(samples))) * len(samples)).astype(int)] for samples in given]
        pulls = clique.project(np.stack([drawn.mean(axis=1) for drawn in draws], axis=1)).pulls
        for quote, pull in zip(clique.quotes, pulls.T, strict=True):
            total[quote.component] += pull**2
    top = np.argmax(np.stack(list(total.values())), axis=0)
    return {name: float((top == n).mean()) for n, name in enumerate(total)}


def _shapley_rules(
    state: Measured, rng: np.random.Generator, reasons: dict[str, str]
) -> tuple[dict[str, dict[str, float]], dict[str, tuple[float, float]] | None]:
    free, replace = (dict.fromkeys(energy(state), 0.0) for _ in range(2))
    variance = dict.fromkeys(free, 0.0)
    for clique, projection in state.incoherent:
        k = len(clique.components)
        shares = games.shapley(games.free_game(clique), k, rng)
        replaced = games.shapley(games.replace_game(clique, projection.near[0]), k, rng)
        for n, name in enumerate(clique.components):
            free[name] += float(shares.values[n])
            replace[name] -= float(replaced.values[n])
            variance[name] += 0.0 if shares.radius is None else float(shares.radius[n]) ** 2
    interval = None
    if any(variance.values()):
        interval = {name: (free[name] - math.sqrt(v), free[name] + math.sqrt(v)) for name, v in variance.items()}
    else:
        reasons["shapley_interval"] = "the shares are exact"
    return {"shapley": free, "shapley_replace": replace}, interval


def _spread(rules: list[dict[str, float]], reasons: dict[str, str]) -> float | None:
    total = sum(rules[0].values())
    if total <= POSITIVE**2:
        reasons["spread"] = "coherent: nothing to share out"
        return None
    pairs = [(a, b) for n, a in enumerate(rules) for b in rules[:n]]
    return max(sum(abs(a[name] - b[name]) for name in a) for a, b in pairs) / total / 2


def _total_table(state: Measured) -> tuple[tuple[str, ...], Floats] | str:
    """Return the components of incoherent cliques and the free game's values over all their coalitions; or why not."""
    involved = tuple(sorted({name for clique, _ in state.incoherent for name in clique.components}))
    if len(involved) > games.MAX_EXACT:
        return f"more than {games.MAX_EXACT} components: not all coalitions were computed"
    coalitions = np.arange(1 << len(involved))
    values = np.zeros(1 << len(involved))
    for clique, _ in state.incoherent:
        own = games.table(games.free_game(clique), len(clique.components))
        places = [involved.index(name) for name in clique.components]
        values += own[sum((((coalitions >> place) & 1) << n for n, place in enumerate(places)), np.zeros_like(coalitions))]
    return involved, values


def _repairs(state: Measured, involved: tuple[str, ...], values: Floats, reasons: dict[str, str]) -> dict[str, Any]:
    """Return the inclusion-minimal sets whose absence leaves the others coherent, fewest components first, then cheapest."""
    full = len(values) - 1
    is_enough = values[full - np.arange(len(values))] <= POSITIVE**2
    if is_enough[0]:
        return {"minimal_repairs": (), "unique": False}
    minimal = [
        mask
        for mask in range(1, len(values))
        if is_enough[mask] and not any(is_enough[mask & ~(1 << i)] for i in range(len(involved)) if mask >> i & 1)
    ]
    minimal.sort(key=int.bit_count)
    if len(minimal) > MAX_REPAIRS:
        reasons["minimal_repairs"] = f"{len(minimal)} minimal repairs; the first {MAX_REPAIRS} are listed"
    listed = [tuple(name for i, name in enumerate(involved) if mask >> i & 1) for mask in minimal[:MAX_REPAIRS]]
    repairs = rounded([(names, _cost(state, names)) for names in listed])
    repairs.sort(key=lambda repair: (len(repair[0]), math.inf if repair[1] is None else repair[1], repair[0]))
    n_fewest = sum(mask.bit_count() == minimal[0].bit_count() for mask in minimal)
    return {"minimal_repairs": tuple(Repair(*repair) for repair in repairs), "unique": n_fewest == 1}


def _cost(state: Measured, names: tuple[str, ...]) -> float | None:
    costs = [_clique_cost(clique, names) for clique, _ in state.incoherent]
    return None if None in costs else math.sqrt(sum(cost**2 for cost in costs if cost is not None))


def _clique_cost(clique: Clique, names: tuple[str, ...]) -> float | None:
    """Return the least change of the quotes of `names` that makes the clique coherent, the others fixed.

    A heavy weight on the fixed quotes finds the worlds that mix; on those worlds the problem is solved exactly.
    """
    if (points := clique.points) is None:
        return None
    moves = np.array([quote.component in names for quote in clique.quotes])
    scale = np.where(moves, 1.0, math.sqrt(_FIXED))
    chosen = list(nearest_listed(points * scale, clique.values * scale).chosen)
    fixed = np.vstack([points[chosen][:, ~moves].T, np.ones(len(chosen))])
    target = np.append(clique.values[~moves], 1.0)
    start = np.linalg.lstsq(fixed, target, rcond=None)[0]
    _, singular, directions = np.linalg.svd(fixed)
    free = directions[int((singular > 1e-10).sum()) :].T
    shown = points[chosen][:, moves].T
    shares = start + free @ np.linalg.lstsq(shown @ free, clique.values[moves] - shown @ start, rcond=None)[0]
    return float(np.linalg.norm(shown @ shares - clique.values[moves]))
