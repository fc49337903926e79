"""The residual over the turns of a run: which quotes stand after each turn, how ε*² moved, and on whose account.

It hides that a later quote of a component replaces its earlier one, and which claims are no quotes at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from analysis.coherence.cliques import Quote, tie
from analysis.coherence.games import MAX_EXACT, mixed_game, shares_of
from analysis.coherence.relations import Formula
from analysis.coherence.residual import Measured, energy, rounded
from analysis.model import Claim

_MAX_NEW = 8  # speakers whose orders are tried where what is quoted changes, and with it the cliques


class Usable(NamedTuple):
    """The claims that are quotes, and how many were left out because they are placeholders or no probabilities."""

    claims: tuple[Claim, ...]
    n_placeholders: int
    n_out_of_range: int


class TurnResidual(msgspec.Struct, frozen=True, kw_only=True):
    """ε* of the quotes that stand after a turn.

    `delta` is ε*² less its value after the turn before, None at the first. `energy` are the cells (component, turn),
    which sum to ε*². `spoken` is the other view: delta put on the components that spoke in the turn, shared by Shapley
    where several did; None where there is no delta, or more than 12 spoke, or more than 8 and some of them for the first time.
    """

    turn: int | None
    residual: float
    lower: float
    upper: float
    delta: float | None
    energy: dict[str, float]
    spoken: dict[str, float] | None


def usable(claims: Iterable[Claim]) -> Usable:
    """Return the claims that count as quotes: no placeholder, a number from 0 to 1. Nothing is clipped or imputed."""
    given = tuple(claims)
    numbers = [claim for claim in given if not claim.is_placeholder]
    kept = tuple(claim for claim in numbers if not claim.is_out_of_range)
    return Usable(kept, len(given) - len(numbers), len(numbers) - len(kept))


def states(claims: Sequence[Claim]) -> list[tuple[int | None, list[Quote]]]:
    """Return (turn, the quotes that stand after it) for each turn in which something was quoted.

    Claims without a turn stand from the start; a list without any turn gives one state, of turn None.

    >>> said = [("a", 0.5, 1), ("b", 0.4, 1), ("a", 0.6, 2)]
    >>> claims = [Claim(claim_id=str(n), component="x", proposition=a, p=p, turn=t) for n, (a, p, t) in enumerate(said)]
    >>> [(turn, [quote.p for quote in quotes]) for turn, quotes in states(claims)]
    [(1, [0.5, 0.4]), (2, [0.6, 0.4])]
    """
    quotes = [Quote(claim.component, claim.proposition, claim.p, claim.n_samples) for claim in claims]
    return standing([(claim.turn, quote) for claim, quote in zip(claims, quotes, strict=True)])


def standing(said: Sequence[tuple[int | None, Quote]]) -> list[tuple[int | None, list[Quote]]]:
    """Return the same from (turn, quote) pairs; within a turn the later of two quotes stands."""
    by_turn: dict[int | None, list[Quote]] = {}
    for turn, quote in said:
        by_turn.setdefault(turn, []).append(quote)
    stand: dict[tuple[str, str], Quote] = {}
    found: list[tuple[int | None, list[Quote]]] = []
    for turn in sorted(by_turn, key=lambda t: -1 if t is None else t):
        stand |= {(quote.component, quote.proposition): quote for quote in by_turn[turn]}
        found.append((turn, list(stand.values())))
    return found if len(found) < 2 or found[0][0] is not None else found[1:]


def residuals_by_turn(turns: Sequence[tuple[int | None, Sequence[Quote]]], relations: Sequence[Formula]) -> list[TurnResidual]:
    """Return ε* after each turn, with what moved it."""
    found: list[TurnResidual] = []
    before: Sequence[Quote] = ()
    square_before = None
    for turn, quotes in turns:
        state = Measured(quotes, relations)
        square = state.upper**2
        delta = None if square_before is None else square - square_before
        fields = {
            "residual": state.upper,
            "lower": math.sqrt(sum(float(p.lower[0]) ** 2 for p in state.projections)),
            "upper": state.upper,
            "delta": delta,
            "energy": energy(state),
            "spoken": None if delta is None else _spoken(before, quotes, relations),
        }
        found.append(TurnResidual(turn=turn, **rounded(fields)))  # type: ignore[arg-type]
        before, square_before = quotes, square
    return found


def _spoken(before: Sequence[Quote], after: Sequence[Quote], relations: Sequence[Formula]) -> dict[str, float] | None:
    """Share the change of ε*² among the components whose quotes changed: over all orders in which they may have spoken."""
    old = {(quote.component, quote.proposition): quote for quote in before}
    speakers = sorted({quote.component for quote in after if old.get((quote.component, quote.proposition)) != quote})
    if len(old) == len(after):
        return _moved(old, after, relations, speakers)
    if len(speakers) > _MAX_NEW:
        return None
    values = np.empty(1 << len(speakers))
    for coalition in range(len(values)):
        heard = {name for n, name in enumerate(speakers) if coalition >> n & 1}
        now = {(quote.component, quote.proposition): quote for quote in after if quote.component in heard}
        values[coalition] = Measured([*(old | now).values()], relations).upper ** 2
    return dict(zip(speakers, shares_of(values).tolist(), strict=True)) if speakers else {}


def _moved(
    old: Mapping[tuple[str, str], Quote], after: Sequence[Quote], relations: Sequence[Formula], speakers: Sequence[str]
) -> dict[str, float] | None:
    """The same where everything that stands was quoted before: the cliques stay, so that one batch holds all coalitions."""
    total = dict.fromkeys(speakers, 0.0)
    for clique in tie(after, relations):
        places = [n for n, name in enumerate(clique.components) if name in total]
        if len(places) > MAX_EXACT:
            return None
        said = np.array([old[quote.component, quote.proposition].p for quote in clique.quotes])
        game = mixed_game(clique, inside=clique.values, outside=said)
        coalitions = np.zeros((1 << len(places), len(clique.components)), dtype=bool)
        coalitions[:, places] = (np.arange(len(coalitions))[:, None] >> np.arange(len(places))) & 1
        for place, share in zip(places, shares_of(game(coalitions)), strict=True):
            total[clique.components[place]] += float(share)
    return total
