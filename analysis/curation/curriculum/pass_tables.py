"""Pass tables: how often models solve tasks, from a user's own file in CSV, JSON, JSONL or Parquet, also gzipped.

Decides which columns are understood; the format is seen from the content. A table is taken whole or not at all: a wrong
count would move tasks to a wrong stage without a trace.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from analysis.errors import Problem, TaskError
from analysis.readers import open_source, unpacked

#: What a value means -> the names its column may have, the first that is there counts.
COLUMNS: dict[str, tuple[str, ...]] = {
    "task": ("task_id", "task", "question_id", "problem_id", "instance_id"),
    "model": ("model", "model_id", "model_name"),
    "n": ("n", "n_samples", "n_attempts", "attempts"),
    "n_passed": ("n_passed", "n_correct", "passed", "correct", "c"),
    "rate": ("pass_rate", "rate", "pass_at_1"),
    "percent": ("pass_percent", "percent", "pass_at_1_percent", "self_repair_pass_at_1_percent"),
    "d_orch": ("d_orch",),
}
_EXPECTED = "columns task_id, model, n_samples, and n_correct or pass_rate"
_MAX_BYTES = 256 << 20


class PassRow(NamedTuple):
    """How often a model solved a task, as a table states it; `d_orch` where it has that column."""

    task_id: str
    model: str
    n: int
    n_passed: int
    d_orch: float | None = None


def read_pass_table(path: Path, *, n_attempts: int | None = None) -> list[PassRow]:
    """Return the rows of a pass table, sorted by task and model.

    Parameters
    ----------
    path : the file; which columns it may have is in `COLUMNS`
    n_attempts : attempts of each row, where the file has no column for them; a rate alone says nothing of how sure it is

    Raises
    ------
    TaskError
        If the file cannot be read, lacks a column, or a value is no count, no rate, or stands there twice. The text names
        the line or record.
    """
    found: dict[tuple[str, str], tuple[str, PassRow]] = {}
    for place, row in _rows(path):
        where = f"{path.name}:{place}"
        one = _pass_row(row, where, n_attempts)
        earlier, _ = found.setdefault((one.task_id, one.model), (place, one))
        if earlier != place:
            hint = "keep one; where they differ in a setting, put it into the name of the model"
            raise TaskError(where, f"the same task and model as in {earlier}", got=f"{one.task_id}, {one.model}", hint=hint)
    if not found:
        raise TaskError(path.name, "the table has no rows", expected=_EXPECTED)
    return [row for _, row in sorted(found.values(), key=lambda item: item[1][:2])]


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row with its place."""
    with unpacked(path, path.name) as (plain, problem):
        if problem is not None:
            raise _error(problem)
        try:
            with plain.open("rb") as stream:
                head = stream.read(4096)
            size = plain.stat().st_size
        except OSError as error:
            raise TaskError(str(path), "the file cannot be read", got=error.strerror or "") from None
        if size > _MAX_BYTES:
            raise TaskError(path.name, "the table is too large", got=f"{size >> 20} MiB", expected=f"at most {_MAX_BYTES >> 20}")
        if head.startswith(b"PAR1"):
            yield from _parquet_rows(plain, path.name)
        elif head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
            yield from _json_rows(plain, path.name)
        else:
            yield from _csv_rows(plain, path.name)


def _csv_rows(path: Path, file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        for row in reader:
            place = f"line {reader.line_num}"
            if None in row or None in row.values():
                expected = f"{len(reader.fieldnames or ())} values"
                raise TaskError(f"{file}:{place}", "the line has too many or too few values", expected=expected)
            yield place, row
    except UnicodeDecodeError:
        raise TaskError(file, "not a table", expected="CSV in UTF-8, JSON, JSONL or Parquet") from None
    except csv.Error as error:
        raise TaskError(f"{file}:line {reader.reader.line_num}", "not valid CSV", got=str(error)) from None


def _json_rows(path: Path, file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    source = open_source(path, file, max_record_bytes=_MAX_BYTES)
    if isinstance(source, Problem):
        raise _error(source)
    for row in source.rows():
        if not isinstance(row.value, dict):
            raise TaskError(f"{file}:{row.place}", "the row is no object", got=type(row.value).__name__, expected=_EXPECTED)
        yield row.place, row.value
    if lost := [problem for problem in source.problems if problem.severity != "note"]:
        raise _error(lost[0])


def _parquet_rows(path: Path, file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
    except pa.ArrowException as error:
        raise TaskError(file, "not a readable Parquet file", got=str(error).partition("\n")[0]) from None
    yield from ((f"row {n}", row) for n, row in enumerate(rows, 1))


def _pass_row(row: Mapping[str, Any], where: str, n_attempts: int | None) -> PassRow:
    given = {what: row[name] for what, names in COLUMNS.items() for name in [_column(row, names)] if name is not None}
    for what in ("task", "model"):
        if not str(given.get(what) or "").strip():
            raise TaskError(where, f"no {what}", got=f"columns {', '.join(map(str, row))}", expected=_EXPECTED)
    n = _whole(given["n"], where, "attempts") if "n" in given else n_attempts
    if n is None:
        hint = "add a column n_samples, or give --attempts: a rate alone does not say how sure it is"
        raise TaskError(where, "the number of attempts is not stated", got=f"columns {', '.join(map(str, row))}", hint=hint)
    n_passed = _passes(given, where, n)
    if not 0 <= n_passed <= n:
        raise TaskError(where, "more passes than attempts, or fewer than none", got=f"{n_passed} of {n}")
    d_orch = None if given.get("d_orch") in (None, "") else _number(given["d_orch"], where, "d_orch", 1.0)
    return PassRow(str(given["task"]).strip(), str(given["model"]).strip(), n, n_passed, d_orch)


def _column(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in row), None)


def _passes(given: Mapping[str, Any], where: str, n: int) -> int:
    if "n_passed" in given:
        return _whole(given["n_passed"], where, "passes")
    for what, scale in (("rate", 1.0), ("percent", 100.0)):
        if what in given:
            n_passed = _number(given[what], where, "pass rate", scale) / scale * n
            if abs(n_passed - round(n_passed)) > 1e-4 * max(1, n):
                hint = "the number of attempts does not fit the rate"
                raise TaskError(where, f"the rate is no whole number of {n} attempts", got=str(given[what]), hint=hint)
            return round(n_passed)
    raise TaskError(where, "neither passes nor a pass rate", expected=_EXPECTED)


def _number(value: Any, where: str, what: str, most: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= most:
        raise TaskError(where, f"{what} is no number from 0 to {most:g}", got=str(value))
    return number


def _whole(value: Any, where: str, what: str) -> int:
    number = _number(value, where, f"the number of {what}", 1e9)
    if number != int(number):
        raise TaskError(where, f"the number of {what} is not whole", got=str(value))
    return int(number)


def _error(problem: Problem) -> TaskError:
    place = ":".join(part for part in (problem.file, problem.record) if part)
    return TaskError(place, problem.message, got=problem.got, expected=problem.expected, hint=problem.hint)
