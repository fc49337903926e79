"""Analysis: per-trace stages over a workspace, each run only for the traces that are new to it.

A stage's rows of a trace stand beside a key: the trace's content, what else the stage looked at, and the
stage's version. Where the key is still right, nothing is done; a run that was killed goes on where it stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from analysis.errors import HeadConflict, UnknownNameError
from analysis.pipeline.stages import Rows, Stage
from analysis.workspace import SCHEMAS, File, Head, Snapshot, Workspace

Progress = Callable[[float, str], None]
_TRACES_A_BATCH = 500
_BATCHES_A_COMMIT = 20


class StageReport(NamedTuple):
    """How many traces a stage worked on, and how many were up to date."""

    stage: str
    n_done: int
    n_kept: int


def analyse(workspace: Workspace, *, only: str | None = None, progress: Progress = lambda share, text: None) -> list[StageReport]:
    """Bring the stage tables up to date.

    Parameters
    ----------
    workspace : what to analyse
    only : the name of one stage; None runs all
    progress : is told the share done, in [0, 1], and in words what is being done

    Raises
    ------
    UnknownNameError
        If no stage is called `only`.
    """
    stages = _stages()
    if only is not None and only not in stages:
        raise UnknownNameError("stage", "no stage is called so", got=only, expected=", ".join(stages))
    chosen = [stage for name, stage in stages.items() if only in (None, name)]
    return [_run(workspace, stage, progress) for stage in chosen]


def _stages() -> dict[str, Stage]:
    # The stages import pandas or compiled code; `counterpoint --help` must not.
    from analysis.pipeline.quality import QUALITY

    return {stage.name: stage for stage in (QUALITY,)}


def _run(workspace: Workspace, stage: Stage, progress: Progress) -> StageReport:
    snapshot = Snapshot(workspace)
    context = stage.context(snapshot)
    due = _due(snapshot, stage, context)
    stale = [trace_id for trace_id, key in due.items() if key is not None]
    n_done = 0
    for batch in _batches(due, _TRACES_A_BATCH * _BATCHES_A_COMMIT):
        files: dict[str, list[File]] = {name: [] for name in (*stage.tables, _keys_table(stage))}
        for ids in _batches([i for i in batch if due[i] is not None], _TRACES_A_BATCH):
            rows = _work(snapshot, stage, context, ids)
            rows[_keys_table(stage)] = [{"trace_id": i, "key": due[i]} for i in sorted(ids)]
            for name, new in rows.items():
                if new:
                    files[name].append(workspace.write(name, pa.Table.from_pylist(new, schema=SCHEMAS[name])))
            n_done += len(ids)
            progress(n_done / max(1, len(stale)), f"{stage.name}: {n_done:,} of {len(stale):,} traces")
        _commit(workspace, files, batch)
    return StageReport(stage.name, n_done, snapshot.head.n_rows("traces") - n_done)


def _due(snapshot: Snapshot, stage: Stage, context: Mapping[str, Any]) -> dict[str, str | None]:
    """The traces to work on, with their new keys; None for those that are gone."""
    traces = snapshot.sql("select trace_id, digest from traces order by trace_id").to_pylist()
    wanted = {row["trace_id"]: _key(stage, row["digest"], context.get(row["trace_id"])) for row in traces}
    stored = {row["trace_id"]: row["key"] for row in snapshot.sql(f"select * from {_keys_table(stage)}").to_pylist()}
    due: dict[str, str | None] = {trace_id: key for trace_id, key in wanted.items() if stored.get(trace_id) != key}
    return due | {trace_id: None for trace_id in sorted(stored) if trace_id not in wanted}


def _work(snapshot: Snapshot, stage: Stage, context: Mapping[str, Any], ids: Sequence[str]) -> Rows:
    rows: Rows = {name: [] for name in stage.tables}
    for trace in snapshot.traces(ids):
        for name, new in stage.run(trace, context.get(trace.trace_id)).items():
            rows[name] += [{"trace_id": trace.trace_id, **row} for row in new]
    return rows


def _commit(workspace: Workspace, files: Mapping[str, Sequence[File]], replaced: Iterable[str]) -> Head:
    """Add the rows and take out the former ones; whatever others wrote meanwhile stays."""
    gone = set(replaced)
    while True:
        base = workspace.head()
        tables = {name: workspace.compacted(name, [*workspace.without(base, name, gone), *new]) for name, new in files.items()}
        try:
            return workspace.commit(base, tables)
        except HeadConflict:
            continue


def _key(stage: Stage, digest: str, context: Any) -> str:
    return hashlib.blake2b(f"{digest}\n{stage.name}\n{stage.version}\n{context!r}".encode(), digest_size=12).hexdigest()


def _keys_table(stage: Stage) -> str:
    return f"keys_{stage.name}"


def _batches(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(ids)
    while batch := list(islice(rest, size)):
        yield batch
