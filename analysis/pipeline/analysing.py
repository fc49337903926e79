"""Analysis: stages over a workspace, each run only for what is new to it.

A stage's rows of a trace stand beside a key: the trace's content, what else the stage looked at, and the stage's version
and parameters. Where the key is still right, nothing is done; a run that was killed goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from analysis.errors import HeadConflict, UnknownNameError
from analysis.pipeline.stages import CorpusStage, Progress, Rows, Stage
from analysis.workspace import SCHEMAS, File, Head, Snapshot, Workspace

if TYPE_CHECKING:
    from analysis.coherence.couplings import Coupling
    from analysis.pipeline.patterns import Mining

_TRACES_A_BATCH = 500
_BATCHES_A_COMMIT = 20
_COUPLINGS, _MINING = "couplings", "mining"  # parameters that the workspace remembers


class StageReport(NamedTuple):
    """How many traces a stage worked on, and how many were up to date."""

    stage: str
    n_done: int
    n_kept: int


def analyse(
    workspace: Workspace,
    *,
    only: Sequence[str] | None = None,
    couplings: Sequence[Coupling] | None = None,
    mining: Mining | None = None,
    progress: Progress = lambda share, text: None,
) -> list[StageReport]:
    """Bring the stage tables up to date.

    Parameters
    ----------
    workspace : what to analyse
    only : names of stages; None runs all, always in their own order
    couplings : the couplings to match from now on; None leaves those of the last time, at first the default ones
    mining : what to mine for from now on; None leaves that of the last time
    progress : is told the share done, in [0, 1], and in words what is being done

    Raises
    ------
    UnknownNameError
        If no stage has one of the names in `only`.
    """
    stages = _stages(_couplings(workspace, couplings), _mining(workspace, mining))
    if unknown := [name for name in only or () if name not in stages]:
        raise UnknownNameError("stage", "no stage is called so", got=unknown[0], expected=", ".join(stages))
    chosen = [stage for name, stage in stages.items() if only is None or name in only]
    return [
        _run(workspace, stage, progress) if isinstance(stage, Stage) else _run_corpus(workspace, stage, progress)
        for stage in chosen
    ]


def _couplings(workspace: Workspace, given: Sequence[Coupling] | None) -> Sequence[Coupling]:
    """Return the couplings to match: those given, which the workspace remembers, or those it remembers."""
    from analysis.coherence.couplings import Coupling, default_couplings

    if given is None:
        stored = workspace.head().keys.get(_COUPLINGS)
        return default_couplings() if stored is None else msgspec.json.decode(stored, type=tuple[Coupling, ...])
    _remember(workspace, _COUPLINGS, list(given))
    return given


def _mining(workspace: Workspace, given: Mining | None) -> Mining:
    """Return what to mine for: what was given, which the workspace remembers, or what it remembers."""
    from analysis.pipeline.patterns import Mining

    if given is None:
        stored = workspace.head().keys.get(_MINING)
        return Mining() if stored is None else msgspec.json.decode(stored, type=Mining)
    _remember(workspace, _MINING, given)
    return given


def _remember(workspace: Workspace, key: str, value: Any) -> None:
    text = msgspec.json.encode(value, order="deterministic").decode()
    while workspace.head().keys.get(key) != text:
        with contextlib.suppress(HeadConflict):
            workspace.commit(workspace.head(), {}, keys={key: text})


def _stages(couplings: Sequence[Coupling], mining: Mining) -> dict[str, Stage | CorpusStage]:
    # The stages import pandas or compiled code; `counterpoint --help` must not.
    from analysis.pipeline.coherence import RESIDUALS, claims_stage
    from analysis.pipeline.curriculum import CURRICULUM
    from analysis.pipeline.modes import MODES
    from analysis.pipeline.patterns import patterns_stage
    from analysis.pipeline.quality import QUALITY
    from analysis.pipeline.suspecting import SUSPECTS

    trace_by_trace = (QUALITY, claims_stage(couplings), RESIDUALS, SUSPECTS)
    return {stage.name: stage for stage in (*trace_by_trace, patterns_stage(mining), MODES, CURRICULUM)}


def _run_corpus(workspace: Workspace, stage: CorpusStage, progress: Progress) -> StageReport:
    """Run a stage over all traces, unless nothing it looks at has changed; its tables are replaced whole."""
    while True:
        snapshot = Snapshot(workspace)
        key = _corpus_key(snapshot, stage)
        n = snapshot.head.n_rows("traces")
        if snapshot.head.keys.get(stage.name) == key:
            return StageReport(stage.name, 0, n)
        rows = stage.run(snapshot, lambda share, text: progress(share, f"{stage.name}: {text}"))
        tables = {name: pa.Table.from_pylist(rows.get(name, []), schema=SCHEMAS[name]) for name in stage.tables}
        files = {name: [workspace.write(name, table)] if table.num_rows else [] for name, table in tables.items()}
        if _is_written(workspace, snapshot, files, {stage.name: key}):
            return StageReport(stage.name, n, 0)


def _is_written(workspace: Workspace, snapshot: Snapshot, files: Mapping[str, Sequence[File]], keys: Mapping[str, str]) -> bool:
    """Make the next version; not if somebody decided or set something while the stage ran, which then has to see it."""
    while True:
        head = workspace.head()
        if any(head.tables.get(name) != snapshot.head.tables.get(name) for name in ("decisions", "pass_rates", *files)):
            return False
        with contextlib.suppress(HeadConflict):
            workspace.commit(head, files, keys=keys)
            return True


def _corpus_key(snapshot: Snapshot, stage: CorpusStage) -> str:
    hasher = hashlib.blake2b(f"{snapshot.head.data_version}\n{stage.name}\n{stage.version}".encode(), digest_size=12)
    for name in stage.needs:
        keys = snapshot.sql(f"select key from keys_{name} order by trace_id")["key"].to_pylist()
        hasher.update("\n".join([name, *keys]).encode())
    return hasher.hexdigest()


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
