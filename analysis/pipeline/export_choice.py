"""Which traces are exported, from which version of the workspace, and in which split each stands.

Decides that a data set is read from the version it was made from, and that a split, once given, is kept: every export adds to
the table `splits`. Hidden here: what is read for it. Of many traces few are objects of Python at once.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from analysis.errors import HeadConflict, TrainingError
from analysis.pipeline.curating import dataset_names
from analysis.pipeline.export_facts import WANTED
from analysis.training.bundle import Drop
from analysis.training.splits import SHARES, Assigned, Case, assign
from analysis.workspace import SCHEMAS, Head, Snapshot, Workspace
from analysis.workspace.filters import where
from analysis.workspace.heads import PIN
from analysis.workspace.listing import metric_names

_AT_ONCE = 5_000  # rows that become objects of Python at once


class Chosen(NamedTuple):
    """What is exported: a table with the columns of `WANTED` by trace_id, the versions it is read from, what is left out."""

    pinned: Snapshot
    newest: Snapshot
    wanted: pa.Table
    drops: list[Drop]


def choose(workspace: Workspace, dataset: str | None, filter: str, *, shares: Mapping[str, float] = SHARES) -> Chosen:
    """Return the traces of a data set, or without one those of a filter, after their splits are stored for all later exports.

    Raises
    ------
    TrainingError
        If there is no such data set, or no trace is left.
    """
    while True:
        newest = Snapshot(workspace)
        head = _pinned(workspace, newest, dataset)
        pinned = newest if head.number == newest.head.number else Snapshot(workspace, head)
        plain = _of_dataset(newest, dataset) if dataset is not None else _of_filter(newest, filter)
        ids = [sys.intern(name) for name in plain["trace_id"].to_pylist()]
        known = _known(newest)
        found, left_out = assign(_cases(pinned, {*ids, *known}), known=known, shares=shares)
        fresh = {name: found[name] for name in ids if name in found and name not in known}
        if not _stored(workspace, newest.head, fresh):
            continue
        given = [found.get(name) for name in ids]
        wanted = _with_splits(plain, given)
        if not wanted.num_rows:
            raise TrainingError(dataset or "filter", "no trace is left to export", hint="loosen the policy or the filter")
        mine = set(left_out).intersection(ids)
        drops = [Drop(name, "split", "its task, prompt or ancestor would join two splits") for name in sorted(mine)]
        return Chosen(pinned, newest, wanted, drops + (_dropped(newest, dataset) if dataset is not None else []))


def _with_splits(plain: pa.Table, given: list[Assigned | None]) -> pa.Table:
    """Return the rows that have a split, with it."""
    for name in ("group", "split"):
        plain = plain.append_column(name, pa.array([getattr(one, name, None) for one in given], pa.string()))
    return plain.filter(plain["split"].is_valid()).cast(WANTED)


def _stored(workspace: Workspace, head: Head, fresh: Mapping[str, Assigned]) -> bool:
    """Add to the table of splits; not if somebody else was first, whose splits then hold."""
    if not fresh:
        return True
    columns = {"trace_id": list(fresh), **{name: [getattr(one, name) for one in fresh.values()] for name in ("group", "split")}}
    file = workspace.write("splits", pa.table(columns, schema=SCHEMAS["splits"]))
    with contextlib.suppress(HeadConflict):
        workspace.commit(head, {"splits": [*head.tables.get("splits", ()), file]})
        return True
    return False


def _pinned(workspace: Workspace, newest: Snapshot, dataset: str | None) -> Head:
    """Return the version that a data set was made from."""
    if dataset is None:
        return newest.head
    if dataset not in (names := dataset_names(newest)):
        known = ", ".join(names) or "none: `counterpoint curate` makes one"
        raise TrainingError("--dataset", "no data set has this name", got=dataset, expected=known)
    number = newest.head.keys.get(f"{PIN}{dataset}")
    return workspace.head_at(int(number)) if number else newest.head


def _of_dataset(snapshot: Snapshot, dataset: str) -> pa.Table:
    query = """select trace_id, position as order_key, coalesce(weight, 1.0) as weight, stage from dataset_rows
        where dataset = $dataset and outcome in ('kept', 'masked') order by trace_id"""
    return snapshot.sql(query, {"dataset": dataset})


def _of_filter(snapshot: Snapshot, filter: str) -> pa.Table:
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    query = f"""select trace_id, row_number() over (order by trace_id) - 1 as order_key, 1.0::double as weight,
        null::varchar as stage from traces where {condition} order by trace_id"""
    return snapshot.sql(query, parameters)


def _known(snapshot: Snapshot) -> dict[str, Assigned]:
    """Return the splits that traces have from earlier exports; traces of one component share the object."""
    same: dict[tuple[str, str], Assigned] = {}
    rows = _each(snapshot.sql('select trace_id, "group", split from splits'))
    return {trace_id: same.setdefault((group, split), Assigned(group, split)) for trace_id, group, split in rows}


def _cases(snapshot: Snapshot, ids: Collection[str]) -> list[Case]:
    """Return what decides the splits of some traces; equal tasks and prompts are one object."""
    rows = snapshot.sql(
        """select trace_id, task_id, task_text, baseline_of, counterfactual ->> '$.parent_trace_id' as parent
        from traces order by trace_id"""
    )
    same: dict[str | None, str | None] = {}
    found = []
    for trace_id, task, prompt, *kin in _each(rows):
        if trace_id in ids:
            named = tuple([name for name in kin if name])
            found.append(Case(trace_id, same.setdefault(task, task), same.setdefault(prompt, prompt), named))
    return found


def _each(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table; few of them are objects of Python at once, and equal ids in the first column are one."""
    for batch in table.to_batches(max_chunksize=_AT_ONCE):
        ids, *others = batch.to_pydict().values()
        yield from zip(map(sys.intern, ids), *others, strict=True)


def _dropped(snapshot: Snapshot, dataset: str) -> list[Drop]:
    """Return what curation left out, each with the gate that decided."""
    query = """with decided as (
            select * from funnel where dataset = $dataset and outcome in ('dropped', 'queued')
            qualify row_number() over (partition by trace_id order by place desc) = 1
        )
        select r.trace_id, coalesce(gate, r.outcome) as gate, coalesce(reason, r.outcome) as reason, value, threshold
        from dataset_rows as r left join decided using (dataset, trace_id)
        where r.dataset = $dataset and r.outcome in ('dropped', 'queued') order by r.trace_id"""
    return [Drop(*row.values()) for row in snapshot.sql(query, {"dataset": dataset}).to_pylist()]
