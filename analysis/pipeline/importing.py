"""Import: files of strangers to one new version of the workspace, in bounded memory.

Files are read into fragments, fragments are assembled per trace, and one commit makes all of it
visible. Killed at any point, the last version stays; run again, the result is the same.
"""

from __future__ import annotations

import gc
import hashlib
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import zstandard

from analysis import model
from analysis.errors import HeadConflict, Problem, UnknownNameError
from analysis.model import Trace
from analysis.pipeline.cleaning import without_secrets
from analysis.pipeline.load_report import FileReport, ImportReport, shortened
from analysis.pipeline.resolving import Known, Placed, assembled, finish, place
from analysis.pipeline.spill import Spill, Spilled
from analysis.readers import MEBIBYTE, Fragment, Source, files_below, native, open_source, read, recognise, unpacked
from analysis.readers.fragment import source_key
from analysis.redaction import Redactor
from analysis.workspace import SCHEMAS, File, Snapshot, Workspace, is_head, problem_table, trace_tables

Progress = Callable[[float, str], None]
_EVENTS_A_FILE = 100_000
_BYTES_A_FILE = 16 * MEBIBYTE


def import_paths(
    workspace: Workspace,
    paths: Sequence[str | Path],
    *,
    max_record_bytes: int = 64 * MEBIBYTE,
    redactor: Redactor | None = None,
    progress: Progress = lambda share, text: None,
) -> ImportReport:
    """Read files and folders into the workspace, as one new version.

    Parameters
    ----------
    workspace : where to
    paths : files or folders; a folder is read with all below it
    max_record_bytes : longest record that is read
    redactor : takes secrets out of every record before it is stored; traces that are there already stay as they are
    progress : is told the share done, in [0, 1], and in words what is being done

    Returns
    -------
    ImportReport
        Known traces are found again: importing the same files twice adds and changes nothing.

    Raises
    ------
    UnknownNameError
        If a path does not exist.
    """
    files = [found for path in paths for found in _existing(Path(path))]
    report = ImportReport()
    with Spill() as spill, _few_collections():
        total = sum(size for _, _, size in files) or 1
        done = 0
        for n, (path, name, size) in enumerate(files):
            progress(0.6 * done / total, f"reading {name}")
            with unpacked(path, name) as (content, damage):
                source = open_source(content, name, max_record_bytes=max_record_bytes)
                if damage is not None and isinstance(source, Source):
                    source.problems.append(damage)
                _read_file(source if damage is None or isinstance(source, Source) else damage, n, spill, report, redactor)
            done += size
        write(workspace, spill, report, progress)
    report.redacted = dict(sorted(redactor.counts.items())) if redactor is not None else {}
    progress(1.0, "done")
    return report


def write(workspace: Workspace, spill: Spill, report: ImportReport, progress: Progress) -> None:
    """Make what was spilled the next version, whatever other writers do meanwhile."""
    while True:
        try:
            return _commit(workspace, spill, report, progress)
        except HeadConflict:
            progress(0.6, "another writer was first; joining what it wrote")


@contextmanager
def _few_collections() -> Iterator[None]:
    """Records make millions of objects and no cycles; looking for some after every 700 new ones took a third of the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _existing(path: Path) -> list[tuple[Path, str, int]]:
    """The files at or below a path with their names and sizes, workspaces left out: `counterpoint open .` makes one here."""
    try:
        mode = path.stat().st_mode
        files = [(found, name, found.stat().st_size) for found, name in files_below(path)]
    except OSError as error:
        problem = "no such file or folder" if isinstance(error, FileNotFoundError) else "cannot be read"
        got = "" if isinstance(error, FileNotFoundError) else error.strerror or ""
        raise UnknownNameError(str(path), problem, got=got, hint="check the path") from None
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise UnknownNameError(str(path), "neither a file nor a folder", hint="write its content to a file first")
    stores = {found.parent.parent for found, _, _ in files if is_head(found)}
    return [file for file in files if stat.S_ISREG(mode) or stores.isdisjoint(file[0].parents)]


def _read_file(
    source: Source | Problem, n_file: int, spill: Spill, report: ImportReport, redactor: Redactor | None = None
) -> None:
    if isinstance(source, Problem):
        report.skipped.append(shortened(source))
        return
    if isinstance(found := recognise(source), Problem):
        report.skipped.append(shortened(found))
        return
    family, kind = found
    file = FileReport(file=source.file, format=kind)
    traces: set[str] = set()
    stated: set[tuple[str, str, str]] = set()
    is_new: dict[str, bool] = {}
    for said in read(source, family, kind):
        item = said if redactor is None else without_secrets(said, family.FORMAT, redactor)
        if isinstance(item, Problem):
            file.add(item)
            continue
        spill.add(Spilled(family.FORMAT, n_file, item))
        content = (item.trace_id, item.part, item.digest)
        is_new[item.record] = is_new.get(item.record, False) or content not in stated
        stated.add(content)
        traces.add(item.trace_id)
    for record in (record for record, new in is_new.items() if not new):
        file.add(Problem(code="duplicate-record", file=file.file, record=record))
    file.traces, file.records = len(traces), len(is_new)
    report.files.append(file)


class _Changes:
    """The new version being written: files of rows as they fill up, and which traces they replace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.files: dict[str, list[File]] = {}
        self.traces: list[tuple[Trace, str]] = []
        self.raw: list[dict[str, Any]] = []
        self.problems: list[Problem] = []
        self.assembled: set[str] = set()
        self.added: list[str] = []
        self.updated: list[str] = []
        self.unchanged: list[str] = []
        self.waiting: list[str] = []
        self.n_events = 0
        self.n_bytes = 0
        self._compressor = zstandard.ZstdCompressor(level=3)

    def add(self, trace: Trace, family: str) -> None:
        self.traces.append((trace, family))
        self.n_events += len(trace.events)
        if self.n_events >= _EVENTS_A_FILE or self.n_bytes >= _BYTES_A_FILE:
            self.flush()

    def add_raw(self, family: str, fragments: list[Fragment]) -> None:
        self.raw += [
            {"trace_id": f.trace_id, "family": family, "part": f.part, "digest": f.digest, "file": f.file, "record": f.record}
            | {"is_primary": f.primary, "n_bytes": len(f.data), "data": self._compressor.compress(f.data)}
            for f in fragments
        ]
        self.n_bytes += sum(len(f.data) for f in fragments)

    def flush(self) -> None:
        self.traces.sort(key=lambda pair: pair[0].trace_id)
        self.raw.sort(key=lambda row: (row["trace_id"], row["part"]))
        tables = trace_tables(self.traces) | {"raw": pa.Table.from_pylist(self.raw, schema=SCHEMAS["raw"])}
        for name, rows in tables.items():
            if rows.num_rows:
                self.files.setdefault(name, []).append(self.workspace.write(name, rows))
        self.traces, self.raw, self.n_events, self.n_bytes = [], [], 0, 0


def _commit(workspace: Workspace, spill: Spill, report: ImportReport, progress: Progress) -> None:
    """Assemble everything spilled against the newest version and make the next one, if anything is new."""
    snapshot = Snapshot(workspace)
    changes = _Changes(workspace)
    for n, bucket in enumerate(spill.buckets()):
        progress(0.6 + 0.38 * n / 64, "assembling traces")
        _assemble_bucket(snapshot, bucket, changes)
    changes.flush()
    problems = _all_problems(snapshot, changes, report)
    version = snapshot.head.number
    if changes.files or not problems.equals(snapshot.sql("select * from problems").cast(problems.schema)):
        version = _write_version(workspace, snapshot, changes, problems)
    for problem in changes.problems:
        next((f for f in report.files if f.file == problem.file), FileReport(file="", format="")).add(problem)
    report.added, report.updated = sorted(changes.added), sorted(changes.updated)
    report.unchanged, report.waiting = sorted(changes.unchanged), sorted(changes.waiting)
    report.version = version


def _write_version(workspace: Workspace, snapshot: Snapshot, changes: _Changes, problems: pa.Table) -> int:
    tables: dict[str, Sequence[File]] = {}
    for name in trace_tables([]):
        kept = workspace.without(snapshot.head, name, changes.updated) if changes.updated else snapshot.head.tables.get(name, ())
        tables[name] = workspace.compacted(name, [*kept, *changes.files.get(name, [])])
    tables["raw"] = workspace.compacted("raw", [*snapshot.head.tables.get("raw", ()), *changes.files.get("raw", [])])
    tables["problems"] = [workspace.write("problems", problems)] if problems.num_rows else []
    data_version = _data_version(workspace, tables["traces"])
    number = workspace.commit(snapshot.head, tables, data_version=data_version).number
    workspace.vacuum()
    return number


def _assemble_bucket(snapshot: Snapshot, bucket: dict[str, list[Spilled]], changes: _Changes) -> None:
    in_head = _known(snapshot, list(bucket))
    known = dict(in_head)
    # An export of this program is compared with the finished trace, so it comes after its original.
    for is_export in (False, True):
        placed: dict[str, list[Placed]] = {}
        for key, spilled in bucket.items():
            mine = {i: k for i, k in known.items() if source_key(i) == key}
            for p in place([s for s in spilled if (s.family == native.FORMAT) is is_export], mine):
                placed.setdefault(p.trace_id, []).append(p)
        stored = _stored(snapshot, [i for i in placed if i in in_head])
        for trace_id, news in placed.items():
            known[trace_id] = _assemble(trace_id, news, stored.get(trace_id, []), known.get(trace_id), changes)
    untouched = [i for i in in_head if i not in changes.assembled]
    changes.unchanged += [i for i in untouched if in_head[i].digest is not None]
    changes.waiting += [i for i in untouched if in_head[i].digest is None]


def _assemble(trace_id: str, news: list[Placed], stored: list[Fragment], known: Known | None, changes: _Changes) -> Known:
    """Add the trace that old and new fragments state to the changes; return what is known of it then."""
    new = [f for p in news for f in p.fragments]
    family, fragments = news[0].family, stored + new
    parts = {f.part: f.digest for f in fragments}
    changes.assembled.add(trace_id)
    changes.add_raw(family, new)
    changes.problems += [p.problem for p in news if p.problem is not None]
    if not any(f.primary for f in fragments):
        changes.waiting.append(trace_id)
        changes.problems.append(Problem(code="waiting", file=new[0].file, record=new[0].record, trace_id=trace_id))
        return Known(family, parts, None)
    trace, problems = assembled(family, trace_id, fragments)
    trace = finish(trace, problems.append)
    place = {"file": fragments[0].file, "record": fragments[0].record}  # a native trace does not say where it was read
    changes.problems += [p if p.file else msgspec.structs.replace(p, **place) for p in problems]
    changes.add(trace, family)
    (changes.updated if known is not None and known.digest is not None else changes.added).append(trace_id)
    return Known(family, parts, model.digest(trace))


def _known(snapshot: Snapshot, keys: list[str]) -> dict[str, Known]:
    if not snapshot.head.n_rows("raw"):
        return {}
    rows = snapshot.sql(
        r"""select raw.trace_id, raw.family, part, raw.digest, traces.digest as whole
        from raw left join traces using (trace_id)
        where regexp_replace(raw.trace_id, '~[0-9]+$', '') in (select unnest($keys)) order by raw.trace_id, part""",
        {"keys": keys},
    ).to_pylist()
    known: dict[str, Known] = {}
    for row in rows:
        held = known.setdefault(row["trace_id"], Known(row["family"], {}, row["whole"]))
        held.parts[row["part"]] = row["digest"]
    return known


def _stored(snapshot: Snapshot, trace_ids: list[str]) -> dict[str, list[Fragment]]:
    """The fragments that the workspace holds of traces which get new ones."""
    stored: dict[str, list[Fragment]] = {}
    for row in snapshot.raw(trace_ids) if trace_ids else []:
        fields = {name: row[name] for name in ("trace_id", "part", "data", "digest", "file", "record")}
        stored.setdefault(row["trace_id"], []).append(Fragment(**fields, primary=row["is_primary"]))
    return stored


def _all_problems(snapshot: Snapshot, changes: _Changes, report: ImportReport) -> pa.Table:
    """The problems of the new version: those of files read again and of traces assembled again are replaced."""
    read_again = {file.file for file in report.files} | {p.file for p in report.skipped}
    old = [
        row
        for row in snapshot.sql("select * from problems").to_pylist()
        if (row["file"] not in read_again if row["stage"] == "read" else row["trace_id"] not in changes.assembled)
    ]
    found = [*report.skipped, *(p for file in report.files for p in file.problems)]
    new = [*problem_table(found, stage="read").to_pylist(), *problem_table(changes.problems, stage="assemble").to_pylist()]
    unique = {str(list(row.values())): row for row in old + new}
    return pa.Table.from_pylist([unique[key] for key in sorted(unique)], schema=SCHEMAS["problems"])


def _data_version(workspace: Workspace, files: Sequence[File]) -> str:
    """A hash over the content of all traces: it changes with them and with nothing else."""
    if not files:
        return ""
    rows = workspace.read(files, ["trace_id", "digest"]).sort_by("trace_id")
    hasher = hashlib.blake2b(digest_size=8)
    for trace_id, digest in zip(rows["trace_id"].to_pylist(), rows["digest"].to_pylist(), strict=True):
        hasher.update(f"{trace_id}\n{digest}\n".encode())
    return hasher.hexdigest()
