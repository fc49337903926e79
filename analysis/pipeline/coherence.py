"""The stages `claims` and `residuals`: what a trace claims besides its fields, what ties it, and how coherent it is.

`claims` reads claims out of texts, outcomes and repeated trials and matches couplings; `residuals` measures each trace
under its own and these relations. Inputs are never changed: what is read out stands in tables of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from analysis.coherence.claims import Extracted, Trial, extract, over_trials
from analysis.coherence.couplings import Coupling
from analysis.coherence.levels import LevelResidual, by_level, residuals
from analysis.coherence.product import coupling, coupling_max
from analysis.coherence.relations import parse
from analysis.coherence.report import summary
from analysis.coherence.residual import Measured, rounded
from analysis.coherence.turns import states, usable
from analysis.coherence.verdicts import tied
from analysis.coherence.violations import drops_by_phase
from analysis.errors import CounterpointError
from analysis.model import Claim, Relation, Trace
from analysis.pipeline.stages import Rows, Stage
from analysis.streams import stream
from analysis.workspace import Snapshot

#: Changes when the same trace gives other rows.
CLAIMS_VERSION = "1"
RESIDUALS_VERSION = "2"
_JSON_CLAIM_FIELDS = ("span",)
Found = dict[str, list[dict[str, Any]]]  # claims and ties, as rows of their tables


def claims_stage(couplings: Sequence[Coupling]) -> Stage:
    """Return the stage `claims` under some couplings; they are part of its key."""
    digest = hashlib.blake2b(msgspec.json.encode(list(couplings), order="deterministic"), digest_size=6).hexdigest()

    def run(trace: Trace, context: list[dict[str, Any]] | None) -> Rows:
        return _claims_of(trace, [msgspec.convert(row, Extracted) for row in context or []], couplings)

    tables = ("extracted_claims", "unlinked_claims", "couplings")
    return Stage("claims", f"{CLAIMS_VERSION}:{digest}", tables, _trials, run)


def _claims_of(trace: Trace, frequencies: Sequence[Extracted], couplings: Sequence[Coupling]) -> Rows:
    found = extract(trace)
    extracted = [*found.claims, *frequencies]
    try:
        facts, ties = tied(trace, _together(trace.claims, extracted), couplings)
    except CounterpointError:  # a relation of the trace's own cannot be read; the stage `residuals` says so
        facts, ties = (), ()
    extracted += [Extracted(claim=claim, score=1.0, text="") for claim in facts]
    return {
        "extracted_claims": [_extracted_row(row) for row in extracted],
        "unlinked_claims": [msgspec.structs.asdict(row) for row in found.unlinked],
        "couplings": [{n: getattr(tie, n) for n in ("relation_id", "formula", "rule")} for tie in ties],
    }


def _extracted_row(row: Extracted) -> dict[str, Any]:
    claim = msgspec.structs.asdict(row.claim)
    claim["span"] = None if row.claim.span is None else msgspec.json.encode(row.claim.span).decode()
    return claim | {"score": row.score, "text": row.text, "replaces": row.replaces}


def _trials(snapshot: Snapshot) -> Mapping[str, Any]:
    """The frequencies over the trials that each trace is one of: only traces whose task has several."""
    rows = snapshot.sql(
        """with again as (select task_id, condition from traces where task_id is not null group by all having count(*) > 1)
        select trace_id, task_id, condition, passed from traces semi join again
        on traces.task_id = again.task_id and traces.condition is not distinct from again.condition order by trace_id"""
    ).to_pylist()
    said: dict[str, dict[tuple[str, str], bool]] = {
        row["trace_id"]: {} if row["passed"] is None else {("outcome", "passed"): row["passed"]} for row in rows
    }
    verdicts = snapshot.sql(
        """select trace_id, component, proposition, arg_max(p, (coalesce(turn, -1), position)) as p from claims
        where kind = 'verdict' and p in (0, 1) group by all order by all"""
    ).to_pylist()
    for row in verdicts:
        if row["trace_id"] in said:
            said[row["trace_id"]][row["component"], row["proposition"]] = bool(row["p"])
    trials = [Trial(row["trace_id"], row["task_id"], row["condition"], said[row["trace_id"]]) for row in rows]
    return {trace_id: [msgspec.to_builtins(row) for row in found] for trace_id, found in over_trials(trials).items() if found}


def _together(given: Iterable[Claim], extracted: Iterable[Extracted]) -> list[Claim]:
    """Return all claims of a trace; an extracted one stands for the input claim that it replaces."""
    extracted = list(extracted)
    gone = {row.replaces for row in extracted}
    return [*(claim for claim in given if claim.claim_id not in gone), *(row.claim for row in extracted)]


def _stored_claims(rows: Sequence[Mapping[str, Any]]) -> list[Extracted]:
    found = []
    for row in rows:
        fields = {n: row[n] for n in Claim.__struct_fields__ if row[n] is not None}
        fields |= {n: tuple(msgspec.json.decode(fields[n])) for n in _JSON_CLAIM_FIELDS if n in fields}
        found.append(Extracted(claim=Claim(**fields), score=row["score"], text=row["text"], replaces=row["replaces"]))
    return found


def claims_and_relations(trace: Trace, snapshot: Snapshot) -> tuple[list[Claim], list[Relation]]:
    """Return what the residuals of a trace are measured on: its own claims and relations, and those the stage found."""
    extracted = snapshot.rows("extracted_claims", [trace.trace_id]).to_pylist()
    ties = snapshot.rows("couplings", [trace.trace_id]).to_pylist()
    return joined(trace, {"claims": extracted, "ties": ties})


def joined(trace: Trace, found: Found | None) -> tuple[list[Claim], list[Relation]]:
    """Return all claims and relations of a trace: its own, and those the stage `claims` found."""
    found = found or {"claims": [], "ties": []}
    ties = [Relation(relation_id=t["relation_id"], formula=t["formula"], basis="derived", rule=t["rule"]) for t in found["ties"]]
    return _together(trace.claims, _stored_claims(found["claims"])), [*trace.relations, *ties]


def found_claims(snapshot: Snapshot) -> Mapping[str, Found]:
    """Return what the stage `claims` found of each trace, without the trace id."""
    context: dict[str, Found] = {}
    for key, table in (("claims", "extracted_claims"), ("ties", "couplings")):
        order = "claim_id" if key == "claims" else "relation_id"
        for row in snapshot.sql(f"select * from {table} order by trace_id, {order}").to_pylist():
            context.setdefault(row.pop("trace_id"), {"claims": [], "ties": []})[key].append(row)
    return context


def _residuals_of(trace: Trace, context: Found | None) -> Rows:
    claims, relations = joined(trace, context)
    rows: Rows = {name: [] for name in RESIDUALS.tables}
    if not claims:
        return rows
    try:
        found = residuals(claims, relations, stream(0, "residuals", trace.trace_id))
    except CounterpointError as error:
        # The relations are the trace's own or a coupling file's: that they cannot be read is what there is to say of it.
        rows["residuals"].append({"level": "all", "is_last": True, "n_claims": len(claims), "summary": str(error)})
        return rows
    kinds = {relation.formula: relation.rule for relation in relations if relation.rule is not None}
    formulas = [parse(relation.formula) for relation in relations]
    said = by_level(claims, formulas)
    for level in found:
        kept = usable(said[level.level]).claims
        turns = states(kept)
        last = Measured(turns[-1][1], formulas) if turns else None
        rows["residuals"] += _turn_rows(level)
        rows["attribution"] += _attribution_rows(level)
        rows["cliques"] += _clique_rows(level.level, last, kept) if last is not None else []
        drops = [msgspec.structs.asdict(drop) for drop in drops_by_phase(turns, formulas, kinds=kinds)]
        rows["violations"] += [{"level": level.level, **drop, "components": _json(drop["components"])} for drop in drops]
    return rows


def _turn_rows(level: LevelResidual) -> list[dict[str, Any]]:
    """One row a turn; the last one carries everything that is known of the state it leaves."""
    found, shares = level.final, level.attribution
    rows = [
        {"level": level.level, "turn": t.turn, "is_last": False, "residual": t.residual, "lower": t.lower, "upper": t.upper}
        | {"delta": t.delta}
        for t in level.turns
    ] or [{"level": level.level, "turn": None}]
    prefixed = ("canonical", "debiased", "norm", "max", "composed")
    rows[-1] |= {"is_last": True, "summary": summary(found, shares), "method": found.method, "coupling_bits": found.coupling_bits}
    rows[-1] |= {name: getattr(found, name) for name in ("residual", "lower", "upper", "n_claims", "n_cliques")}
    rows[-1] |= {f"residual_{name}": getattr(found, name) for name in prefixed}
    rows[-1] |= {"n_placeholders": level.n_placeholders, "n_out_of_range": level.n_out_of_range}
    rows[-1] |= {name: getattr(shares, name) for name in ("unique", "interaction_only", "spread")}
    rows[-1] |= {name: _json(getattr(found, name)) for name in ("violated", "projection", "stakes")}
    rows[-1] |= {"minimal_repairs": _json(shares.minimal_repairs), "reasons": _json({**found.reasons, **shares.reasons})}
    return rows


def _attribution_rows(level: LevelResidual) -> list[dict[str, Any]]:
    shares, local = level.attribution, level.final.local or {}
    rows = []
    for n, turn in enumerate(level.turns):
        is_last = n == len(level.turns) - 1
        for name, energy in turn.energy.items():
            row = {"level": level.level, "turn": turn.turn, "is_last": is_last, "component": name, "energy": energy}
            row["delta"] = None if turn.spoken is None else turn.spoken.get(name, 0.0)
            rows.append(row | (_shares(shares, local, name) if is_last else {}))
    return rows


def _shares(shares: Any, local: Mapping[str, float], name: str) -> dict[str, Any]:
    low, high = (shares.shapley_interval or {}).get(name, (None, None))
    first, last = (shares.order_range or {}).get(name, (None, None))
    of = {rule: (getattr(shares, rule) or {}).get(name) for rule in ("shapley", "shapley_replace")}
    ranges = {"shapley_low": low, "shapley_high": high, "order_low": first, "order_high": last}
    return {"residual_local": local.get(name), **of, **ranges}


def _clique_rows(level: str, state: Measured, claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """The cliques of the last state: quotes that something ties; a quote that nothing ties is none."""
    kind_of = {(claim.component, claim.proposition): claim.kind for claim in claims}
    rows = []
    for clique, found in zip(state.cliques, state.projections, strict=True):
        if len(clique.quotes) < 2:
            continue
        lists = {
            "kinds": sorted({kind_of[quote.component, quote.proposition] for quote in clique.quotes}),
            "components": clique.components,
            "propositions": sorted({quote.proposition for quote in clique.quotes}),
            "relations": [relation.text for relation in clique.relations],
        }
        rows.append(
            {"level": level, "n_claims": len(clique.quotes), "n_components": len(clique.components)}
            | {name: _json(list(value)) for name, value in lists.items()}
            | {"residual": rounded(float(found.upper[0])), "upper": rounded(float(found.upper[0]))}
            | {"lower": rounded(float(found.lower[0])), "method": found.method, "n_worlds": _countable(clique.polytope.n_worlds)}
            | {"coupling_max": rounded(coupling_max(clique)) if clique.is_plain else None}
            | {"coupling_bits": rounded(counted.bits) if (counted := coupling(clique)) is not None else None}
        )
    return rows


def _countable(n: int | None) -> int | None:
    return n if n is not None and n < 2**53 else None


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


RESIDUALS = Stage(
    "residuals", RESIDUALS_VERSION, ("residuals", "attribution", "cliques", "violations"), found_claims, _residuals_of
)
