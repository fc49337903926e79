"""Claims that a user brings along: a CSV or JSONL file, one claim a row, keyed by trace and component.

They are an input: they become parts of the traces they are about, and a new data version. Rows are joined by the trace's
id, never by their place in the file; whatever cannot be joined is a problem that names its row.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
from msgspec import Meta

from analysis import model
from analysis.errors import Problem, TraceError, UnknownNameError
from analysis.pipeline.importing import write
from analysis.pipeline.load_report import FileReport, ImportReport
from analysis.pipeline.resolving import USER_CLAIMS
from analysis.pipeline.spill import Spill, Spilled
from analysis.readers import Fragment
from analysis.readers.fragment import hash_of
from analysis.workspace import Snapshot, Workspace

COLUMNS = ("trace_id", "component", "proposition", "p", "turn", "n_samples", "level", "event_id")
_LEVELS = get_args(get_type_hints(model.Claim)["level"])


class _Row(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    trace_id: model.Id
    component: model.Id
    proposition: model.Id
    p: float
    turn: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    n_samples: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    level: str = "component"
    event_id: str | None = None


def import_claims(workspace: Workspace, path: str | Path) -> ImportReport:
    """Add the claims of a file to the traces they are about, as one new version; the same file again adds nothing.

    Parameters
    ----------
    workspace : holds the traces
    path : CSV with a header, or JSONL: trace_id (or any unique suffix), component, proposition, p, and if known turn,
        n_samples, level, event_id. `p` outside [0, 1] is kept and flagged; a row that is no claim is a problem.

    Raises
    ------
    TraceError
        If the file cannot be read, or lacks one of the first four columns.
    """
    name = Path(path).name
    report = ImportReport(files=[FileReport(file=name, format="claims")])
    file = report.files[0]
    snapshot = Snapshot(workspace)
    by_trace: dict[str, list[dict[str, Any]]] = {}
    ids: dict[str, str | None] = {}
    for place, value in _rows(Path(path)):
        row = _row(value, name, place)
        if isinstance(row, _Row):
            file.records += 1
            if (trace_id := _resolved(snapshot, row.trace_id, ids)) is not None:
                plain = {k: v for k, v in msgspec.to_builtins(row).items() if k != "trace_id"}
                by_trace.setdefault(trace_id, []).append(plain)
                continue
            row = Problem(code="no-trace", file=name, record=place, got=row.trace_id)
        file.add(row)
    file.traces = len(by_trace)
    with Spill() as spill:
        for fragment, family in _fragments(snapshot, by_trace, name):
            spill.add(Spilled(family, 0, fragment))
        write(workspace, spill, report, lambda share, text: None)
    report.unchanged = sorted(set(by_trace) - {*report.updated, *report.added})
    return report


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (place, row) of a file; a line that is no JSON is yielded as the error."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TraceError(str(path), "the file cannot be read", got=error.strerror or "", hint="check the path") from None
    except UnicodeDecodeError:
        raise TraceError(str(path), "the file is not text", hint="write CSV or JSONL in UTF-8") from None
    if text.lstrip().startswith("{"):
        for n, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield f"line {n}", _json(line)
        return
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if missing := [column for column in COLUMNS[:4] if column not in (reader.fieldnames or ())]:
        got = ", ".join(reader.fieldnames or ()) or "nothing"
        raise TraceError(str(path), f"no column {missing[0]}", got=got, expected=", ".join(COLUMNS), hint="name it in line 1")
    for row in reader:
        # What stands behind the last column comes under the key None.
        yield f"line {reader.line_num}", {k or "behind the last column": v for k, v in row.items() if v not in ("", None)}


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return error


def _row(value: Any, file: str, place: str) -> _Row | Problem:
    if isinstance(value, Exception):
        return Problem(code="bad-json", file=file, record=place, got=str(value))
    try:
        row = msgspec.convert(value, _Row, strict=False)
    except msgspec.ValidationError as error:
        return Problem(code="bad-value", file=file, record=place, got=str(error), expected=", ".join(COLUMNS))
    if row.level not in _LEVELS:
        return Problem(code="bad-value", file=file, record=place, got=f"level {row.level}", expected=", ".join(_LEVELS))
    if row.p - row.p != 0:  # NaN or infinite: no number at all
        return Problem(code="bad-value", file=file, record=place, got=f"p {row.p}", expected="a number from 0 to 1")
    return row


def _resolved(snapshot: Snapshot, trace_id: str, known: dict[str, str | None]) -> str | None:
    if trace_id not in known:
        try:
            known[trace_id] = snapshot.resolve(trace_id)
        except UnknownNameError:
            known[trace_id] = None
    return known[trace_id]


def _fragments(snapshot: Snapshot, by_trace: dict[str, list[dict[str, Any]]], file: str) -> Iterator[tuple[Fragment, str]]:
    """Yield the new part of each trace and its family; claims that a trace has from an earlier file are left out."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for row in snapshot.rows("raw", sorted(by_trace)).select(["trace_id", "family", "part"]).to_pylist():
        parts.setdefault(row["trace_id"], []).append((row["family"], row["part"]))
    for trace_id, rows in sorted(by_trace.items()):
        data = msgspec.json.encode(rows, order="deterministic")
        digest = hash_of(data)
        earlier = [part for _, part in parts[trace_id] if part.startswith(USER_CLAIMS)]
        if any(part.endswith(digest) for part in earlier):
            continue
        part = f"{USER_CLAIMS}{len(earlier) + 1:04}:{digest}"
        fragment = Fragment(trace_id=trace_id, part=part, data=data, digest=digest, file=file, record="", primary=False)
        yield fragment, parts[trace_id][0][0]
