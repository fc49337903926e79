"""The residuals of one trace: its claims by level, over the turns, and the attribution of what stands at the end.

The level `team` holds all claims together, where relations tie those of one level to those of another: workers who are
unsure of their parts, and a final answer that is sure of the whole. It hides when that says more than the levels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args, get_type_hints

import msgspec
import numpy as np

from analysis.coherence.attribution import Attribution, attribute
from analysis.coherence.cliques import Quote, tie
from analysis.coherence.relations import Formula, parse
from analysis.coherence.residual import Measured, Residual, residual_of
from analysis.coherence.turns import TurnResidual, residuals_by_turn, states, usable
from analysis.model import Claim, Relation

LEVELS: tuple[str, ...] = get_args(get_type_hints(Claim)["level"])
TEAM = "team"


class LevelResidual(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one level of claims: ε* after each turn, everything about the last state, who it comes from."""

    level: str
    turns: tuple[TurnResidual, ...]
    final: Residual
    attribution: Attribution
    n_placeholders: int
    n_out_of_range: int


def residuals(claims: Sequence[Claim], relations: Sequence[Relation], rng: np.random.Generator) -> list[LevelResidual]:
    """Return the residuals of each level at which something was claimed; nothing for a trace without claims.

    A level whose claims are all placeholders or no probabilities has no residual, and says so in `final.reasons`.
    `rng` orders the components where more than 12 of them share a clique.

    Raises
    ------
    RelationError, UnknownNameError
        If a relation cannot be read, or the relations contradict each other.

    Examples
    --------
    >>> said = [Claim(claim_id=name, component=name, proposition=name, p=0.6) for name in "ab"]
    >>> tie = Relation(relation_id="r", formula="exactly_one(a, b)")
    >>> [(row.level, row.final.residual) for row in residuals(said, [tie], np.random.default_rng(0))]
    [('component', 0.141421356)]
    """
    formulas = [parse(relation.formula) for relation in relations]
    found = []
    for level, said in by_level(claims, formulas).items():
        kept = usable(said)
        turns = states(kept.claims)
        last = Measured(turns[-1][1] if turns else [], formulas)
        row = LevelResidual(
            level=level,
            turns=tuple(residuals_by_turn(turns, formulas)),
            final=residual_of(last),
            attribution=attribute(last, rng),
            n_placeholders=kept.n_placeholders,
            n_out_of_range=kept.n_out_of_range,
        )
        found.append(row)
    return found


def by_level(claims: Sequence[Claim], relations: Sequence[Formula]) -> dict[str, list[Claim]]:
    """Return the claims of each level at which something was claimed, and all of them as `team` where levels are tied."""
    found = {level: said for level in LEVELS if (said := [claim for claim in claims if claim.level == level])}
    levels: dict[tuple[str, str], set[str]] = {}
    for claim in usable(claims).claims:
        levels.setdefault((claim.component, claim.proposition), set()).add(claim.level)
    cliques = tie([Quote(component, proposition, 0.0) for component, proposition in levels], relations)
    mixed = [set().union(*(levels[q.component, q.proposition] for q in clique.quotes)) for clique in cliques]
    return found | ({TEAM: list(claims)} if any(len(of_clique) > 1 for of_clique in mixed) else {})
