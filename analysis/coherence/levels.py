"""The residuals of one trace: its claims by level, over the turns, and the attribution of what stands at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args, get_type_hints

import msgspec
import numpy as np

from analysis.coherence.attribution import Attribution, attribute
from analysis.coherence.relations import parse
from analysis.coherence.residual import Measured, Residual, residual_of
from analysis.coherence.turns import TurnResidual, residuals_by_turn, states, usable
from analysis.model import Claim, Relation

LEVELS: tuple[str, ...] = get_args(get_type_hints(Claim)["level"])


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
    for level in LEVELS:
        said = [claim for claim in claims if claim.level == level]
        if not said:
            continue
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
