"""Rows of many traces, made in processes: each takes traces that lie together on the disk and leaves a sorted run.

Decides how much is in memory at once. A run is an Arrow file in the order of the export (of Parquet each open file would hold
8 MB). One that is there is not made again, so that an export that was killed goes on.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from importlib.abc import MetaPathFinder
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from analysis.model import Trace
from analysis.processes import leave_with_parent
from analysis.redaction import Redactor
from analysis.training.bundle import Drop
from analysis.training.labelling import Facts, rows_of
from analysis.training.redacting import redacted
from analysis.training.rows import SCHEMA, Row, rows_to_table
from analysis.workspace import SCHEMAS, File, Snapshot, Workspace
from analysis.workspace.tables import MEMBERS, traces_from

TRACES_A_RUN = 2_000
_TRACES_AT_ONCE = 100
_GROUP = 250  # rows; of every run a few groups are in memory at once
_AHEAD = 3  # jobs that wait, so that no process does
#: What rows are made of; claims, labels and the like are left where they are.
_NEEDED = ("traces", "texts", "agents", "events")
_NO_WORDS, _MASKED = "no agent wrote anything that is recorded", "every message is masked"

Places = npt.NDArray[np.intp]


class Job(msgspec.Struct, frozen=True):
    """One run: which traces, sorted by id, and the files of each table that hold them."""

    trace_ids: tuple[str, ...]
    files: dict[str, tuple[str, ...]]
    patterns: tuple[str, ...] | None  # None: nothing is taken out
    out: str


class Run(msgspec.Struct, frozen=True):
    """What came of a job besides its rows: traces with a row, what gave none, and secrets that were taken out, by kind."""

    n_traces: int
    drops: tuple[Drop, ...]
    redacted: dict[str, int]


def jobs_of(snapshot: Snapshot, trace_ids: Collection[str], folder: Path, *, patterns: tuple[str, ...] | None) -> list[Job]:
    """Return jobs over some traces of a version: those whose rows were written together, so that each file is read once."""
    workspace, tables = snapshot.workspace, snapshot.head.tables
    groups = [_ids_in(workspace, file) for file in tables.get("traces", ())]
    group_of = {trace_id: n for n, ids in enumerate(groups) for trace_id in ids}
    holders: dict[str, list[tuple[str, set[int]]]] = {}
    for name in _NEEDED:
        files = tables.get(name, ())
        held = [{group_of[trace_id] for trace_id in _ids_in(workspace, file)} for file in files]
        holders[name] = list(zip(workspace.paths(files), held, strict=True))
    jobs: list[Job] = []
    for n, ids in enumerate(groups):
        mine = sorted(ids.intersection(trace_ids))
        paths = {name: tuple(path for path, held in holders[name] if n in held) for name in _NEEDED}
        for begin in range(0, len(mine), TRACES_A_RUN):
            some = tuple(mine[begin : begin + TRACES_A_RUN])
            # Another cut of the traces, after files were merged, must not take up what is left of this one.
            cut = hashlib.sha256("\n".join(some).encode()).hexdigest()[:12]
            jobs.append(Job(some, paths, patterns, str(folder / f"{len(jobs):05d}-{cut}.arrow")))
    return jobs


def make_runs(
    jobs: Sequence[Job], know: Callable[[Sequence[str]], dict[str, Facts]], pool: Executor, progress: Callable[[float], None]
) -> list[Run]:
    """Make the runs that are not there yet; return all, in the order of the jobs.

    Parameters
    ----------
    know : gives what is known of some traces, by id; asked here, shortly before a job begins
    progress : is told which share is done
    """
    due = [job for job in jobs if not _report(job).exists()]
    begun: deque[Future[None]] = deque()
    for n, job in enumerate(due):
        begun.append(pool.submit(_make, job, know(job.trace_ids)))
        if len(begun) > _AHEAD:
            begun.popleft().result()
        progress((n + 1 + len(jobs) - len(due) - len(begun)) / len(jobs))
    for future in begun:
        future.result()
    return [msgspec.json.decode(_report(job).read_bytes(), type=Run) for job in jobs]


@contextlib.contextmanager
def workers(n: int, n_traces: int) -> Iterator[Executor]:
    """Give processes that make runs and shards, and begin at once; one worker, or what one would do at once, works here."""
    if n == 1 or n_traces <= TRACES_A_RUN:
        yield _Here()
        return
    # No fork: the threads of DuckDB and Arrow do not survive one.
    pool = ProcessPoolExecutor(n, mp_context=get_context("spawn"), initializer=_begin)
    try:
        for _ in range(n):
            pool.submit(_ready)
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Here(Executor):
    """Does at once what it is given."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return what came of the work."""
        future: Future[Any] = Future()
        future.set_result(work(*args, **kwargs))
        return future


def _begin() -> None:
    """Hold little: threads of Arrow and its own memory pool keep more than they use."""
    threading.Thread(target=leave_with_parent, daemon=True).start()
    gc.disable()  # records hold no cycles; looking for some took a third of the time
    sys.meta_path.insert(0, _Unseen())
    pa.array([])
    del sys.meta_path[0]
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


def _ready() -> None:
    """Do nothing: a process begins with the first work it is given."""


class _Unseen(MetaPathFinder):
    """Hides pandas, which Arrow imports to see whether the first list that it is given is a series: 40 MB in each process."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Refuse pandas; leave all other modules to others."""
        if fullname == "pandas":
            raise ImportError(fullname)


def _make(job: Job, facts: dict[str, Facts]) -> None:
    """Write the run of a job, then its report, which says that the run is whole."""
    redactor = None if job.patterns is None else Redactor(job.patterns)
    drops: list[Drop] = []
    n_traces = 0
    part = Path(f"{job.out}.part")
    with pa.OSFile(str(part), "wb") as file, ipc.new_file(file, SCHEMA, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        for tables in _some(job, sorted(job.trace_ids, key=lambda trace_id: facts[trace_id].order_key)):
            rows = _rows(tables, facts, redactor, drops)
            n_traces += len(rows["trace_id"].unique())
            writer.write_table(rows, max_chunksize=_GROUP)
    part.replace(job.out)
    counts = {} if redactor is None else dict(sorted(redactor.counts.items()))
    part.write_bytes(msgspec.json.encode(Run(n_traces, tuple(drops), counts)))
    part.replace(_report(job))


def _rows(tables: dict[str, pa.Table], facts: dict[str, Facts], redactor: Redactor | None, drops: list[Drop]) -> pa.Table:
    """Return the rows of some traces in their order, and add what is left out of them."""
    traces = sorted(traces_from(tables), key=lambda trace: facts[trace.trace_id].order_key)
    rows: list[Row] = []
    for trace in traces if redactor is None else redacted(traces, redactor):
        kept, dropped = _of(trace, facts[trace.trace_id])
        rows += kept
        drops += dropped
    return rows_to_table(rows)


def _of(trace: Trace, facts: Facts) -> tuple[list[Row], list[Drop]]:
    """Return the rows of a trace on which a loss is taken, and what is left out."""
    rows = list(rows_of(trace, facts))
    if not rows:
        return [], [Drop(trace.trace_id, "histories", _NO_WORDS)]
    kept = [row for row in rows if any(row.keep)]
    return kept, [Drop(row.row_id, "mask", _MASKED) for row in rows if not any(row.keep)]


def _some(job: Job, ids: Sequence[str]) -> Iterator[dict[str, pa.Table]]:
    """Yield the tables of a few traces at a time in the order of `ids`, without what no row is made of."""
    number = {trace_id: n for n, trace_id in enumerate(ids)}
    held = {name: _table(job.files[name], name, number) for name in _NEEDED}
    without = {name: SCHEMAS[name].empty_table() for name in MEMBERS if name not in _NEEDED}
    for begin in range(0, len(ids), _TRACES_AT_ONCE):
        bounds = {name: np.searchsorted(places, (begin, begin + _TRACES_AT_ONCE)) for name, (_, places) in held.items()}
        yield without | {name: table[slice(*bounds[name])] for name, (table, _) in held.items()}


def _table(files: Sequence[str], name: str, number: dict[str, int]) -> tuple[pa.Table, Places]:
    """Return a table's rows of some traces by the number of their trace, and these numbers."""
    low, high = min(number), max(number)
    table = pa.concat_tables([SCHEMAS[name].empty_table(), *[_between(file, low, high) for file in files]])
    places = np.array([number.get(trace_id, -1) for trace_id in table["trace_id"].to_pylist()], np.intp)
    order = np.argsort(places, kind="stable")
    order = order[np.searchsorted(places[order], 0) :]
    return table.take(pa.array(order)), places[order]


def _between(file: str, low: str, high: str) -> pa.Table:
    """Return the row groups of a file that could hold traces between two ids; in few buffers, as `read_table` has many."""
    with pq.ParquetFile(file, pre_buffer=False) as source:
        column = source.schema_arrow.get_field_index("trace_id")
        bounds = [source.metadata.row_group(n).column(column).statistics for n in range(source.num_row_groups)]
        groups = [n for n, b in enumerate(bounds) if b is None or not b.has_min_max or (b.min <= high and b.max >= low)]
        return source.read_row_groups(groups, use_threads=False)


def _ids_in(workspace: Workspace, file: File) -> set[str]:
    with pq.ParquetFile(workspace.paths([file])[0], read_dictionary=["trace_id"], pre_buffer=False) as source:
        column = source.read(columns=["trace_id"], use_threads=False)["trace_id"]
    return {name for chunk in column.chunks for name in chunk.dictionary.to_pylist()}


def _report(job: Job) -> Path:
    return Path(f"{job.out}.json")
