"""What the traces of a curation consist of: their components and events, what mends them, what their decisions were worth.

Decides when a residual has a cause at all: not where sampling noise alone explains it. Hidden here: the queries.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from analysis.coherence.projection import POSITIVE
from analysis.counterfactual.effects import better_of
from analysis.curation.mixture import Tied, stored
from analysis.curation.policy import Policy
from analysis.curation.segments import Parts, event_credits, repairs_of
from analysis.pipeline.curation_frame import Scope
from analysis.workspace import Snapshot

#: Residuals that more than the noise of few samples explains.
_CAUSED = f"coalesce(residual_debiased, residual) > {POSITIVE}"


def parts_of(snapshot: Snapshot, policy: Policy, taken: Scope) -> dict[str, Parts]:
    """Return what the traces that are taken consist of, by id; a trace without events is left out."""
    n_events: dict[str, dict[str, int]] = defaultdict(dict)
    for row in _rows(snapshot, taken, _EVENTS):
        n_events[row["trace_id"]][row["component"]] = row["n"]
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    if policy.segments.share != "none":
        for row in _rows(snapshot, taken, _SHARES.format(share=policy.segments.share)):
            shares[row["trace_id"]][row["component"]] = row["share"]
    repairs = {row["trace_id"]: repairs_of(row["minimal_repairs"]) for row in _rows(snapshot, taken, _REPAIRS)}
    credits = _credits(snapshot, policy, taken)
    return {
        trace_id: Parts(counts, shares.get(trace_id, {}), repairs.get(trace_id, ()), credits.get(trace_id, ()))
        for trace_id, counts in n_events.items()
    }


def ties_of(snapshot: Snapshot, taken: Scope) -> list[Tied]:
    """Return what ties the components of the traces that are taken."""
    return stored(_rows(snapshot, taken, _CLIQUES))


_EVENTS = """select trace_id, component, count(*) as n from events join agents using (trace_id, agent_id)
    semi join chosen using (trace_id) group by all order by all"""
_SHARES = f"""select trace_id, component, {{share}} as share from attribution join spoken using (trace_id, level)
    where attribution.is_last and {_CAUSED} and {{share}} is not null order by all"""
_REPAIRS = f"select trace_id, minimal_repairs from spoken where {_CAUSED} order by all"
_CREDITS = """select trace_id, event_id, component, metric, delta_q, low, high, n, evidence, confirmed, seed_block
    from sound_effects join events using (trace_id, event_id) join agents using (trace_id, agent_id)
    semi join chosen using (trace_id)
    where metric = $metric order by all"""
_CLIQUES = "select trace_id, level, components, coupling_bits from cliques semi join chosen using (trace_id) order by all"


def _rows(snapshot: Snapshot, taken: Scope, query: str, **more: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = snapshot.sql(f"with {taken.sql} {query}", taken.parameters | more).to_pylist()
    return rows


def _credits(snapshot: Snapshot, policy: Policy, taken: Scope) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    better: Any = better_of(policy.segments.metric)
    for row in _rows(snapshot, taken, _CREDITS, metric=policy.segments.metric):
        found[row["trace_id"]] += event_credits([row], {row["event_id"]: row["component"]}, better=better)
    return found
