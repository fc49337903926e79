"""All that is known about one set of claims and relations, as plain values: what `counterpoint residual` prints.

Every key is always there; a value that could not be had is None, with the cause under `reasons`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from analysis.coherence.attribution import Attribution, attribute, reference_shares
from analysis.coherence.cliques import Quote
from analysis.coherence.relations import Formula
from analysis.coherence.residual import Measured, Residual, residual_of
from analysis.coherence.turns import TurnResidual, residuals_by_turn
from analysis.streams import stream

_PREFIXED = ("canonical", "debiased", "norm", "max", "local", "composed")
SEED = 0  # of the orders sampled above 12 components


def report(
    turns: Sequence[tuple[int | None, Sequence[Quote]]],
    relations: Sequence[Formula],
    *,
    reference: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the report on the state after the last of the turns (see `turns.states`), with all turns under `by_turn`.

    Raises
    ------
    RelationError, UnknownNameError
        If the relations contradict each other, or the reference lacks a proposition.
    """
    quotes = turns[-1][1] if turns else []
    state = Measured(quotes, relations)
    found, shares = residual_of(state), attribute(state, stream(SEED, "shapley"))
    rows = residuals_by_turn(turns, relations) if turns and turns[-1][0] is not None else []
    plain = {_key(name): msgspec.to_builtins(getattr(found, name)) for name in found.__struct_fields__ if name != "reasons"}
    plain |= {name: msgspec.to_builtins(getattr(shares, name)) for name in shares.__struct_fields__ if name != "reasons"}
    plain["shapley_reference"] = reference_shares(state, reference) if reference is not None and quotes else None
    plain["by_turn"] = [{"turn": row.turn, "residual": row.residual, "delta": row.delta} for row in rows] or None
    plain["summary"] = summary(found, shares)
    reasons = {_key(name): text for name, text in found.reasons.items()} | shares.reasons | _more_reasons(rows, reference)
    return {**plain, "reasons": reasons}


def summary(found: Residual, shares: Attribution) -> str:
    """Return what a reader should take away, in one or two sentences."""
    if found.residual is None:
        return "No claims: there is nothing to be coherent or not."
    if found.n_claims == 1 and found.is_coherent:
        return "One claim: it is coherent, there is no other it could contradict."
    if found.is_coherent:
        return f"Coherent: some probabilities fit all {found.n_claims} claims exactly."
    share = "" if found.norm is None else f", {found.norm:.0%} of the largest possible"
    texts = [] if found.violated is None else [violation.text for violation in found.violated]
    violated = f" Violated: {'; '.join(texts[:3])}{f'; {len(texts) - 3} more' if len(texts) > 3 else ''}." if texts else ""
    return f"Incoherent: the claims lie {found.residual:.4g} from the nearest coherent ones{share}.{violated}{_blame(shares)}"


def _blame(shares: Attribution) -> str:
    alone = " Every component is coherent alone: the residual lies only between them." if shares.interaction_only else ""
    if not shares.minimal_repairs:
        return alone
    first = shares.minimal_repairs[0]
    who = " and ".join(first.components)
    if shares.unique:
        return f"{alone} The smallest repair is unique: {who} alone can restore coherence."
    return f"{alone} The smallest repair is not unique, so no component can be singled out."


def _key(name: str) -> str:
    return f"residual_{name}" if name in _PREFIXED else name


def _more_reasons(rows: Sequence[TurnResidual], reference: Mapping[str, float] | None) -> dict[str, str]:
    reasons = {"by_turn": "no claim has a turn"} if not rows else {"by_turn.delta": "the first turn has none before it"}
    if reference is None:
        reasons["shapley_reference"] = "no reference was given"
    return reasons
