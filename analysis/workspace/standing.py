"""What stands out in a workspace: the findings of all traces, ranked by how often, how much and whether it was mended.

rank = traces with the finding that failed x mean share of the run that was lost. A run whose outcome is not known
counts as neither recovered nor failed.
"""

from __future__ import annotations

import pyarrow as pa

from analysis.workspace.snapshot import Snapshot


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
    found = snapshot.sql("select count(*) as n from traces anti join keys_quality using (trace_id)")
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
