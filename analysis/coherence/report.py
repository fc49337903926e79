"""All that is known about one set of claims and relations, as plain values: what `counterpoint residual` prints.

Every key is always there; a value that could not be had is None, with the cause under `reasons`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from analysis.coherence.attribution import Attribution, attribute, bootstrap_top, reference_shares
from analysis.coherence.cliques import Quote
from analysis.coherence.relations import Formula
from analysis.coherence.residual import Measured, Residual, residual_of, rounded
from analysis.coherence.turns import TurnResidual, residuals_by_turn
from analysis.coherence.variants import ratio_form
from analysis.streams import stream

_PREFIXED = ("canonical", "debiased", "norm", "max", "local", "composed")
SEED = 0  # of the orders sampled above 12 components


def report(
    turns: Sequence[tuple[int | None, Sequence[Quote]]],
    relations: Sequence[Formula],
    *,
    reference: Mapping[str, float] | None = None,
    with_ratio: bool = False,
) -> dict[str, Any]:
    """Return the report on the state after the last of the turns (see `turns.states`), with all turns under `by_turn`.

    `with_ratio` has quotes of b if a compared with P(a and b) / P(a) too, under `residual_ratio`; ε* itself always takes
    them as bets that are called off, which `conditionals` says.

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
    plain["bootstrap_top"] = rounded(bootstrap_top(state, stream(SEED, "bootstrap"))) if quotes else None
    is_conditional = any(not clique.is_plain for clique in state.cliques)
    plain["conditionals"] = "called-off" if is_conditional else None
    ratio = _ratio(state) if with_ratio and is_conditional else "not asked for" if is_conditional else "no conditional quote"
    plain["residual_ratio"] = None if isinstance(ratio, str) else ratio
    plain["by_turn"] = [{"turn": row.turn, "residual": row.residual, "delta": row.delta} for row in rows] or None
    plain["summary"] = summary(found, shares)
    reasons = {_key(name): text for name, text in found.reasons.items()} | shares.reasons | _more_reasons(rows, reference)
    reasons |= {"residual_ratio": ratio} if isinstance(ratio, str) else {}
    reasons |= {} if is_conditional else {"conditionals": "no conditional quote"}
    reasons |= {} if plain["bootstrap_top"] else {"bootstrap_top": "the samples behind the quotes are not known"}
    return {**plain, "reasons": reasons}


def _ratio(state: Measured) -> dict[str, float] | str:
    """Return bounds of ε* with conditional quotes as ratios, or why they are not computed."""
    lower = upper = 0.0
    for clique, projection in zip(state.cliques, state.projections, strict=True):
        found = (projection.lower[0], projection.upper[0]) if clique.is_plain else ratio_form(clique)
        if isinstance(found, str):
            return found
        lower, upper = lower + float(found[0]) ** 2, upper + float(found[1]) ** 2
    return rounded({"lower": math.sqrt(lower), "upper": math.sqrt(upper)})


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
    if shares.unique and len(first.components) == len(shares.energy or ()) > 1:
        return f"{alone} Only all {len(first.components)} components together can restore coherence."
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
