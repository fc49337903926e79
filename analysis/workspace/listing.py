"""Pages of traces: the rows of a list, filtered, ordered, with their outcome and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from analysis.errors import UnknownNameError
from analysis.workspace.filters import where
from analysis.workspace.snapshot import Snapshot
from analysis.workspace.tables import SCHEMAS, SUMMARY


def page(
    snapshot: Snapshot,
    filter: str = "",
    *,
    order: str = "trace_id",
    descending: bool = False,
    limit: int | None = None,
    offset: int = 0,
) -> pa.Table:
    """Return the summary rows of the traces that fit a filter, with their annotators and tags.

    Parameters
    ----------
    snapshot : the version to read
    filter : in the filter language (`filters.where`)
    order : a summary column, q_work, q_orchestration, residual (the largest of its levels) or n_findings; ties are broken
        by trace_id
    limit, offset : the part of the list that is wanted

    Raises
    ------
    UnknownNameError
        If the filter or the order names what is not there.
    """
    stored = ["trace_id", "world", "outcome", *SUMMARY]
    columns = [*stored, "q_work", "q_orchestration", "residual", "n_findings"]
    if order not in columns:
        raise UnknownNameError("order", "unknown column", got=order, expected=", ".join(columns))
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    direction = "desc" if descending else "asc"
    return snapshot.sql(
        f"""with worked as (
            select trace_id, max(value) filter (name = 'q_work') as q_work,
                max(value) filter (name = 'q_orchestration') as q_orchestration
            from metrics where name in ('q_work', 'q_orchestration') group by trace_id
        ), strayed as (select trace_id, max(residual) as residual from residuals where is_last group by trace_id
        ), found as (select trace_id, count(*) as n_findings from findings group by trace_id
        ), chosen as materialized (
            select {", ".join(stored)}, q_work, q_orchestration, residual,
                case when keys_quality.key is not null then coalesce(found.n_findings, 0) end as n_findings
            from traces left join worked using (trace_id) left join strayed using (trace_id) left join found using (trace_id)
                left join keys_quality using (trace_id) where {condition}
            order by {order} {direction} nulls last, traces.trace_id limit {limit or 1 << 40} offset {offset}
        ), labelled as (
            select trace_id, string_agg(distinct annotator, ', ' order by annotator) as annotators
            from labels semi join chosen using (trace_id) group by trace_id
        ), tagged as (select trace_id, string_agg(tag, ', ' order by tag) as tags from current_tags group by trace_id)
        select chosen.*, coalesce(annotators, '') as annotators, coalesce(tags, '') as tags
        from chosen left join labelled using (trace_id) left join tagged using (trace_id)
        order by {order} {direction} nulls last, chosen.trace_id""",
        parameters,
    )


def neighbours(snapshot: Snapshot, trace_id: str, filter: str = "") -> tuple[str | None, str | None]:
    """Return the traces before and after one, by id, among those that fit a filter."""
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    rows = snapshot.sql(
        f"""select (select max(trace_id) from traces where trace_id < $own and {condition}) as before,
            (select min(trace_id) from traces where trace_id > $own and {condition}) as after""",
        parameters | {"own": trace_id},
    ).to_pylist()
    return rows[0]["before"], rows[0]["after"]


def count(snapshot: Snapshot, filter: str = "") -> int:
    """Return how many traces fit a filter."""
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    n: int = snapshot.sql(f"select count(*) as n from traces where {condition}", parameters)["n"][0].as_py()
    return n


def list_rows(snapshot: Snapshot, filter: str = "", *, limit: int | None = None) -> list[dict[str, Any]]:
    """Return what `counterpoint list --json` prints: one object a trace, its outcome and labels as objects."""
    rows = page(snapshot, filter, limit=limit).to_pylist()
    labels: dict[str, list[dict[str, Any]]] = {row["trace_id"]: [] for row in rows}
    names = [name for name in SCHEMAS["labels"].names if name != "position"]
    for label in snapshot.sql(f"select {', '.join(names)} from labels order by trace_id, position").to_pylist():
        if label["trace_id"] in labels:
            labels[label.pop("trace_id")].append({name: value for name, value in label.items() if value is not None})
    metrics = metrics_of(snapshot, [row["trace_id"] for row in rows])
    shown = ["trace_id", "format", "world", "n_agents", "n_events", "explicit_share", "n_claims", "task_id", "condition"]
    return [
        {name: row[name] for name in shown}
        | {"outcome": msgspec.json.decode(row["outcome"] or "{}"), "labels": labels[row["trace_id"]], "tags": row["tags"]}
        | {"metrics": metrics[row["trace_id"]]}
        for row in rows
    ]


def metrics_of(snapshot: Snapshot, trace_ids: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the metrics of traces: trace_id -> name -> value, variant, n, low, high, reason; empty before analysis."""
    found: dict[str, dict[str, dict[str, Any]]] = {trace_id: {} for trace_id in trace_ids}
    for row in snapshot.rows("metrics", trace_ids).to_pylist():
        found[row.pop("trace_id")][row.pop("name")] = row
    return found


def metric_names(snapshot: Snapshot) -> list[str]:
    """Return the names of the metrics and residuals that some trace has a value of."""
    names: list[str] = snapshot.sql("select distinct name from measures order by name")["name"].to_pylist()
    return names


def findings_of(snapshot: Snapshot, trace_id: str) -> list[dict[str, Any]]:
    """Return the findings of one trace, their events and agents as lists."""
    rows = snapshot.rows("findings", [trace_id]).to_pylist()
    lists = ("event_ids", "agents")
    return [{k: msgspec.json.decode(v) if k in lists else v for k, v in row.items() if k != "trace_id"} for row in rows]


def suspects_of(snapshot: Snapshot, trace_id: str) -> list[dict[str, Any]]:
    """Return the suspects of one failed trace, most suspicious first, their reasons as a list."""
    rows = snapshot.rows("suspects", [trace_id]).sort_by("rank").to_pylist()
    decoded = ("reasons", "signals")
    return [{k: msgspec.json.decode(v) if k in decoded else v for k, v in row.items() if k != "trace_id"} for row in rows]
