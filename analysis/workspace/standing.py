"""What stands out in a workspace: the findings of all traces, ranked by how often, how much and whether it was mended.

rank = traces with the finding that failed x mean share of the run that was lost. A run whose outcome is not known
counts as neither recovered nor failed.
"""

from __future__ import annotations

from typing import get_args, get_type_hints

import pyarrow as pa

from analysis.model import Claim
from analysis.workspace.filters import where
from analysis.workspace.listing import metric_names
from analysis.workspace.snapshot import Snapshot

POSITIVE = 1e-6  # the residual above which claims count as incoherent, as in `coherence`


def ranked_findings(snapshot: Snapshot, *, limit: int = 100) -> pa.Table:
    """Return the kinds of finding, what is worth looking at first on top.

    Returns
    -------
    name, n_traces, n_findings, n_failed, n_recovered, lost_share, rank, example : `lost_share` is the mean loss as a share
        of the run's own time, tokens or steps, in [0, 1]; traces with unknown outcome are the rest of `n_traces`.
        `example` is the trace that lost most.
    """
    return snapshot.sql(
        """
        with size as (
            select trace_id, max(value) filter (name = 'work_s') as work_s, max(value) filter (name = 'tokens') as tokens,
                max(value) filter (name = 'n_steps') as n_steps
            from metrics where name in ('work_s', 'tokens', 'n_steps') group by trace_id
        ), summed as (
            select name, trace_id, count(*) as n, bool_and(recovered) as recovered, sum(
                case when starts_with(loss_unit, 'share') then loss
                    when loss_unit = 's' or starts_with(loss_unit, 's ') then loss / nullif(work_s, 0)
                    when starts_with(loss_unit, 'tokens') then loss / nullif(tokens, 0)
                    else loss / nullif(n_steps, 0) end) as total
            from findings left join size using (trace_id) group by name, trace_id
        ), lost as (
            select *, case when total is not null then least(1, greatest(0, total)) end as share from summed
        )
        select name, count(*) as n_traces, sum(n)::bigint as n_findings,
            count(*) filter (not recovered) as n_failed, count(*) filter (recovered) as n_recovered,
            avg(share) as lost_share, count(*) filter (not recovered) * coalesce(avg(share), 0) as rank,
            arg_max(trace_id, coalesce(share, 0)) as example
        from lost group by name order by rank desc, n_traces desc, name limit $limit
        """,
        {"limit": limit},
    )


def quality_points(snapshot: Snapshot, *, limit: int = 5000) -> pa.Table:
    """Return the two axes of quality of the traces that have both, at most `limit`, chosen by the hash of their ids.

    Returns
    -------
    trace_id, task_text, condition, passed, q_work, q_orchestration, variant (of q_orchestration), n_all: of how many
    """
    return snapshot.sql(
        """
        with axes as (
            select trace_id, max(value) filter (name = 'q_work') as q_work,
                max(value) filter (name = 'q_orchestration') as q_orchestration,
                max(variant) filter (name = 'q_orchestration') as variant
            from metrics where name in ('q_work', 'q_orchestration') group by trace_id
        ), with_both as (select * from axes where q_work is not null and q_orchestration is not null)
        select trace_id, task_text, condition, passed, q_work, q_orchestration, variant, (select count(*) from with_both) as n_all
        from with_both join traces using (trace_id) order by hash(trace_id), trace_id limit $limit
        """,
        {"limit": limit},
    )


def n_not_analysed(snapshot: Snapshot) -> int:
    """Return how many traces no metrics have been worked out for."""
    return n_without(snapshot, "quality")


def n_without(snapshot: Snapshot, stage: str) -> int:
    """Return for how many traces a per-trace stage of `analyze` has not run."""
    found = snapshot.sql(f"select count(*) as n from traces anti join keys_{stage} using (trace_id)")
    n: int = found["n"][0].as_py()
    return n


def coverage(snapshot: Snapshot) -> pa.Table:
    """Return how many traces of each format have each metric, and why the others do not.

    Returns
    -------
    format, name, n_with, n_all, reason : `reason` is the most frequent one of those without, its counts left out
    """
    return snapshot.sql(
        r"""
        with reasons as (
            select format, name, regexp_replace(reason, '[0-9]+(\.[0-9]+)?', '…', 'g') as reason, count(*) as n
            from metrics join traces using (trace_id) where value is null group by all
        ), without as (select format, name, arg_max(reason, (n, reason)) as reason from reasons group by format, name)
        select format, name, count(value) as n_with, count(*) as n_all, coalesce(any_value(without.reason), '') as reason
        from metrics join traces using (trace_id) left join without using (format, name)
        group by format, name order by format, name
        """
    )


def residual_rows(snapshot: Snapshot, filter: str = "") -> pa.Table:
    """Return the residual of each trace and level of claims that fits a filter, the largest on top.

    Returns
    -------
    trace_id, level, the columns of `residuals` that are plain numbers, summary, format, task_text, condition, passed, and
        n_tied: the cliques of at least two quotes. Where that is 0 nothing could have been violated, and ε* of 0 says nothing.
    """
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    return snapshot.sql(
        f"""
        with tied as (select trace_id, level, count(*) as n_tied from cliques group by trace_id, level)
        select trace_id, level, residual, lower, upper, residual_norm, residual_canonical, residual_debiased, residual_composed,
            coupling_bits, r.n_claims as n_quotes, n_placeholders, n_out_of_range, coalesce(n_tied, 0)::bigint as n_tied,
            "unique", interaction_only, summary, format, task_text, condition, passed
        from residuals as r join traces using (trace_id) left join tied using (trace_id, level)
        where is_last and {condition} order by residual desc nulls last, trace_id, level
        """,
        parameters,
    )


def unlinked_rows(snapshot: Snapshot, filter: str = "") -> pa.Table:
    """Return the rows of `unlinked_claims` of the traces that fit a filter, best score first."""
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    chosen = f"select trace_id from traces where {condition}"
    query = f"select * from unlinked_claims where trace_id in ({chosen}) order by score desc nulls last, trace_id, event_id"
    return snapshot.sql(query, parameters)


#: Orders in which traces can be watched; none of them looks at the residuals.
STREAM_ORDERS = {"began": "by the time they began", "trial": "by condition and trial", "id": "by trace id"}


def stream_rows(snapshot: Snapshot, filter: str = "", *, level: str, order: str) -> pa.Table:
    """Return the residuals of one level as a stream in one of `STREAM_ORDERS`.

    Returns
    -------
    residual, n_quotes, n_samples (the least behind any quote of the trace), residual_norm
    """
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    keys = {"began": "began nulls last, trace_id", "trial": "condition, trial, trace_id", "id": "trace_id"}[order]
    return snapshot.sql(
        f"""
        with begun as (
            select trace_id, min(coalesce(t_start_s, t_end_s)) as began from events group by trace_id
        ), sampled as (
            select trace_id, case when count(n_samples) = count(*) then min(n_samples) end as n_samples
            from claims where $level in (level, 'team') and not is_placeholder group by trace_id
        ), tied as (select distinct trace_id from cliques where level = $level)
        select residual, r.n_claims as n_quotes, n_samples, residual_norm
        from residuals as r semi join tied using (trace_id) join traces using (trace_id) left join begun using (trace_id)
            left join sampled using (trace_id)
        where is_last and r.level = $level and {condition} order by {keys}
        """,
        parameters | {"level": level},
    )


def claim_coverage(snapshot: Snapshot) -> pa.Table:
    """Return for each format how many traces have claims, and how many at least one clique, by kind of claim.

    Returns
    -------
    format, n_traces, n_with_claims, n_with_clique, n_incoherent, then n_<kind> for each kind: traces with a clique that holds
        a claim of this kind
    """
    kinds = get_args(get_type_hints(Claim)["kind"])
    counts = ", ".join(
        f"count(distinct trace_id) filter (contains(kinds, '\"{kind}\"'))::bigint as n_{kind}" for kind in sorted(kinds)
    )
    zeros = ", ".join(f"coalesce(n_{kind}, 0) as n_{kind}" for kind in sorted(kinds))
    return snapshot.sql(
        f"""
        with claiming as (
            select trace_id from claims union select trace_id from extracted_claims
        ), by_kind as (select format, {counts}, count(distinct trace_id)::bigint as n_with_clique,
            count(distinct trace_id) filter (residual > {POSITIVE})::bigint as n_incoherent
            from cliques join traces using (trace_id) group by format
        ), totals as (
            select format, count(*)::bigint as n_traces, count(claiming.trace_id)::bigint as n_with_claims
            from traces left join claiming using (trace_id) group by format
        )
        select format, n_traces, n_with_claims, coalesce(n_with_clique, 0) as n_with_clique,
            coalesce(n_incoherent, 0) as n_incoherent, {zeros}
        from totals left join by_kind using (format) order by format
        """
    )
