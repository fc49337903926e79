"""Files of a view: a file for each split, written row by row and renamed into place when it is whole."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

Records = Iterable[tuple[str, dict[str, Any]]]  # the split, and a record of its file
JSON = pa.json_(pa.string())  # objects as text that says so: readers neither merge them nor fill in nulls

_N_ROWS_GROUP = 1_000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_LINE_ENDS = tuple([(end.encode(), f"\\u{ord(end):04x}".encode()) for end in "\x85\u2028\u2029"])
_encode = msgspec.json.Encoder().encode


class _Open(NamedTuple):
    put: Callable[[dict[str, Any]], None]
    close: Callable[[], None]


def write_lines(folder: Path, records: Records) -> dict[str, int]:
    """Write JSON lines, `SPLIT.jsonl`; return the number of records of each split."""

    def begin(path: Path) -> _Open:
        file = path.open("wb")
        return _Open(lambda record: _ignored(file.write(_line(record))), file.close)

    return _written(folder, "jsonl", records, begin)


def write_parquet(folder: Path, records: Records, schema: pa.Schema) -> dict[str, int]:
    """Write Parquet, `SPLIT.parquet`, zstd, in groups of 1,000 rows; fields of type `JSON` are encoded."""

    def begin(path: Path) -> _Open:
        writer = pq.ParquetWriter(path, schema, compression="zstd")
        waiting: list[dict[str, Any]] = []

        def flush() -> None:
            if waiting:
                writer.write_table(_table(waiting, schema))
                waiting.clear()

        def put(record: dict[str, Any]) -> None:
            waiting.append(record)
            if len(waiting) == _N_ROWS_GROUP:
                flush()

        def close() -> None:
            flush()
            writer.close()

        return _Open(put, close)

    return _written(folder, "parquet", records, begin)


def write_csv(folder: Path, records: Records, columns: Sequence[str]) -> dict[str, int]:
    """Write CSV for people, `SPLIT.csv`; a cell that a spreadsheet would take for a formula begins with an apostrophe."""

    def begin(path: Path) -> _Open:
        file: TextIO = path.open("w", encoding="utf-8-sig", newline="")
        writer = csv.writer(file)
        writer.writerow(columns)
        return _Open(lambda record: _ignored(writer.writerow([_cell(record[name]) for name in columns])), file.close)

    return _written(folder, "csv", records, begin)


def write_yaml(path: Path, values: Mapping[str, Any], *, comment: str) -> None:
    """Write a configuration as YAML, after a comment: a mapping of plain values, lists and lists of mappings."""
    path.write_text("".join([f"# {line}\n" for line in comment.splitlines()]) + _yaml(values, ""), encoding="utf-8")


def _written(folder: Path, suffix: str, records: Records, begin: Callable[[Path], _Open]) -> dict[str, int]:
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    files: dict[str, _Open] = {}
    with ExitStack() as stack:
        for split, record in records:
            if split not in files:
                files[split] = begin(folder / f"{split}.{suffix}.part")
                stack.callback(files[split].close)
            files[split].put(record)
            counts[split] = counts.get(split, 0) + 1
    for split in files:
        (folder / f"{split}.{suffix}.part").replace(folder / f"{split}.{suffix}")
    return dict(sorted(counts.items()))


def _line(record: Mapping[str, Any]) -> bytes:
    """Return a record as one line, also for readers that split at every line end that Unicode knows, as Python's do."""
    line = _encode(record)
    for end, escaped in _LINE_ENDS:
        line = line.replace(end, escaped)
    return line + b"\n"


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = {field.name: _column([row[field.name] for row in rows], field.type) for field in schema}
    return pa.table(columns, schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == JSON:
        return pa.array([None if v is None else _encode(v).decode() for v in values], pa.string()).cast(JSON)
    if pa.types.is_list(kind) and kind.value_type == JSON:
        texts = [[_encode(item).decode() for item in items] for items in values]
        return pa.array(texts, pa.list_(pa.string())).cast(kind)
    return pa.array(values, kind)


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return "" if value is None else value


def _yaml(values: Mapping[str, Any], indent: str) -> str:
    return "".join(f"{indent}{name}:{_yaml_value(value, indent)}" for name, value in values.items())


def _yaml_value(value: Any, indent: str) -> str:
    if isinstance(value, Mapping) and value:
        return "\n" + _yaml(value, indent + "  ")
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return "\n" + "".join(_yaml_item(item, indent) for item in value)
    return f" {json.dumps(value, ensure_ascii=False)}\n"


def _yaml_item(item: Mapping[str, Any], indent: str) -> str:
    text = _yaml(item, indent + "    ")
    return f"{indent}  - {text[len(indent) + 4 :]}"


def _ignored(value: object) -> None:
    """Drop what a writer returns."""


def pairs_of(records: Iterable[Any], shape: Callable[[Any], dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the split of each row and its record."""
    for row in records:
        yield row.split or "train", shape(row)
