"""Two groups of runs, each a filter, from a workspace: their values, what to know about them, which suggest themselves.

Hidden here: which runs count as runs of one task, and what a reader has to know before believing a difference.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis.orchestration.groups import PASSED
from analysis.orchestration.measure import METRICS
from analysis.workspace import Snapshot
from analysis.workspace.filters import where
from analysis.workspace.listing import count, metric_names, metrics_of

if TYPE_CHECKING:
    import pandas as pd

# The ids of tasks are unique in a domain at best: two benchmarks both begin at 0. A run without a task stands for itself.
_TASK = "coalesce(coalesce(domain || ' ', '') || task_id, trace_id)"


class Suggestion(NamedTuple):
    """Two filters that are worth comparing, and why."""

    first: str
    second: str
    reason: str


def group_values(snapshot: Snapshot, first: str, second: str) -> pd.DataFrame:
    """Return the outcome and the metrics of all runs of two groups, as `compare_groups` takes them.

    Parameters
    ----------
    first, second : filters; a run that fits both stands in both groups

    Returns
    -------
    One row a run and metric: trace_id, task, group ("a" or "b"), name, variant, value, reason.
    """
    import pandas as pd

    return pd.concat([_values(snapshot, filter, group) for group, filter in (("a", first), ("b", second))], ignore_index=True)


def cautions(snapshot: Snapshot, first: str, second: str) -> list[str]:
    """Return, in sentences, what to know about two groups before believing a difference between them."""
    groups = {"A": _consists_of(snapshot, first), "B": _consists_of(snapshot, second)}
    found: list[str] = []
    for name, group in groups.items():
        if len(group["worlds"]) > 1:
            found.append(f"Group {name} mixes worlds: {', '.join(group['worlds'])}. What differs may be the world.")
        if waiting := group["n_traces"] - group["n_analysed"]:
            verb = "waits to be analysed and has" if waiting == 1 else "wait to be analysed and have"
            found.append(f"{waiting:,} of {group['n_traces']:,} runs of group {name} {verb} no metrics.")
        if (n := group["n_without_task"]) == 1:
            found.append(f"1 run of group {name} does not say which task it is about and counts as a task of its own.")
        elif n:
            found.append(f"{n:,} runs of group {name} do not say which task they are about; each counts as a task of its own.")
    worlds = [group["worlds"] for group in groups.values()]
    if worlds[0] != worlds[1] and all(worlds):
        found.append(f"The groups are of different worlds: A {', '.join(worlds[0])}, B {', '.join(worlds[1])}.")
    if n_both := count(snapshot, f"{first} {second}"):
        are = "1 run is in both groups and counts" if n_both == 1 else f"{n_both:,} runs are in both groups and count"
        found.append(f"{are} in both; the difference is drawn towards zero.")
    return found


def suggestions(snapshot: Snapshot) -> list[Suggestion]:
    """Return what to compare: conditions, models, what passed and what failed; most tasks in common first.

    Each condition or model is put beside another one that was run on the same tasks, or beside all others.
    """
    tasks = f"select trace_id, condition, passed, {_TASK} as task from traces"
    named = {
        "condition": f"select distinct condition as value, task from ({tasks}) where condition is not null",
        "model": f"select distinct model as value, task from agents join ({tasks}) using (trace_id) where model is not null",
    }
    found = []
    for field, query in named.items():
        pairs = snapshot.sql(
            f"""with runs as ({query}), pairs as (
                select a.value as first, b.value as second, task from runs a join runs b using (task) where a.value <> b.value
            )
            (select first, null as second, count(distinct task) as n from pairs group by all order by n desc, first limit 2)
            union all
            (select first, second, count(*) as n from pairs where first < second
                group by all order by n desc, first, second limit 3)
            order by n desc, second is null, first, second"""
        )
        for row in pairs.to_pylist():
            first, other = _term(field, row["first"]), _term(field, row["second"] or row["first"])
            if first and other:
                found.append(
                    Suggestion(first, other if row["second"] else f"-{other}", f"{row['n']:,} task{'s' * (row['n'] > 1)} in both")
                )
    outcomes = snapshot.sql("select count(*) filter (passed) as yes, count(*) filter (not passed) as no from traces").to_pylist()[
        0
    ]
    if outcomes["yes"] and outcomes["no"]:
        found.append(Suggestion("passed:no", "passed:yes", f"{outcomes['no']:,} that failed, {outcomes['yes']:,} that passed"))
    return found


def _term(field: str, value: str) -> str:
    """Return the filter for one value, empty where no filter can say it."""
    if re.fullmatch(r"[\w.-]+", value):
        return f"{field}:{value}"
    return "" if '"' in value else f'{field}:"{value}"'


def metric_differences(snapshot: Snapshot, first: str, second: str) -> pd.DataFrame:
    """Return the metrics of two runs side by side.

    Parameters
    ----------
    first, second : trace ids

    Returns
    -------
    One row a metric and variant, what differs first, then what is alike, then what one run lacks, each in the order of
    `METRICS`: name, variant, unit, value_a, value_b, difference (second minus first), better ("A", "B" or absent), reason
    (why one is absent). Numbers of different variants are never subtracted. Empty before analysis.
    """
    import pandas as pd

    found = metrics_of(snapshot, [first, second])
    rows = []
    for name, meaning in METRICS.items():
        sides = {side: found[trace_id].get(name) for side, trace_id in (("a", first), ("b", second))}
        for variant in sorted({row["variant"] for row in sides.values() if row and row["value"] is not None}):
            values = {side: row["value"] if row and row["variant"] == variant else None for side, row in sides.items()}
            row = {"name": name, "variant": variant, "unit": meaning.unit, **{f"value_{side}": v for side, v in values.items()}}
            rows.append(row | _compared(values["a"], values["b"], meaning.better) | {"reason": _reason(sides, variant)})
    table = pd.DataFrame(rows, columns=["name", "variant", "unit", "value_a", "value_b", "difference", "better", "reason"])
    order = table["difference"].isna() * 2 + (table["difference"] == 0)
    return table.iloc[order.argsort(kind="stable")].reset_index(drop=True)


def comparable_runs(snapshot: Snapshot, trace_id: str | None = None, *, limit: int = 500) -> pd.DataFrame:
    """Return runs to put beside another one: those of its task, or, where there are none or no `trace_id`, any.

    Runs of tasks with several runs come first. Returns is_same_task and the summary columns of a list of traces.
    """
    rows: pd.DataFrame = snapshot.sql(
        f"""with runs as (select *, {_TASK} as task_key from traces),
        wanted as (select task_key from runs where trace_id = $id),
        counted as (select *, count(*) over (partition by task_key) as n_runs from runs)
        select trace_id, task_id, task_text, condition, trial, passed, score, n_agents, n_events, makespan_s,
            coalesce(task_key = (select task_key from wanted), false) as is_same_task
        from counted where trace_id is distinct from $id
        order by is_same_task desc, n_runs desc, task_key, condition, trial, trace_id limit $limit""",
        {"id": trace_id, "limit": limit},
    ).to_pandas()
    return rows[rows["is_same_task"]] if rows["is_same_task"].any() else rows


def _compared(a: float | None, b: float | None, better: str) -> dict[str, Any]:
    if a is None or b is None:
        return {}
    higher, lower = ("B", "A") if b > a else ("A", "B")
    which = {"higher": higher, "lower": lower}.get(better) if a != b else None
    return {"difference": b - a, "better": which}


def _reason(sides: dict[str, dict[str, Any] | None], variant: str) -> str:
    for side, row in sides.items():
        if row is None:
            return f"absent in {side.upper()}: not analysed"
        if row["value"] is None:
            return f"absent in {side.upper()}: {row['reason']}"
        if row["variant"] != variant:
            return f"{side.upper()} has it as: {row['variant'] or 'no variant'}"
    return ""


def _values(snapshot: Snapshot, filter: str, group: str) -> pd.DataFrame:
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    rows: pd.DataFrame = snapshot.sql(
        f"""with chosen as (select trace_id, passed, {_TASK} as task from traces where {condition})
        select trace_id, task, '{group}' as "group", '{PASSED}' as name, '' as variant, passed::double as value,
            case when passed is null then 'no outcome' else '' end as reason from chosen
        union all select trace_id, task, '{group}', name, variant, value, reason from chosen join metrics using (trace_id)
        order by name, trace_id""",
        parameters,
    ).to_pandas()
    return rows


def _consists_of(snapshot: Snapshot, filter: str) -> dict[str, Any]:
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    row: dict[str, Any] = snapshot.sql(
        f"""select count(*) as n_traces, count(*) filter (task_id is null) as n_without_task,
        count(*) filter (trace_id in (select trace_id from keys_quality)) as n_analysed,
        coalesce(list_sort(list(distinct world)), []) as worlds from traces where {condition}""",
        parameters,
    ).to_pylist()[0]
    return row
