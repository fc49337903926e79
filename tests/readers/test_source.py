"""Bytes to JSON records: encodings, line ends, limits, shapes, and every kind of damage with its name."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import Problem
from analysis.readers import files_below
from analysis.readers import source as source_module
from analysis.readers.source import MEBIBYTE, Source, open_source, parse
from tests.strategies import json_values


def opened(folder: Path, data: bytes, *, limit: int = 64 * MEBIBYTE) -> Source | Problem:
    path = folder / "f.x"
    path.write_bytes(data)
    return open_source(path, "f.x", max_record_bytes=limit)


def rows(folder: Path, data: bytes, *, limit: int = 64 * MEBIBYTE) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The values by their place, and the problems as (code, place)."""
    source = opened(folder, data, limit=limit)
    assert isinstance(source, Source), source
    values = {row.place: row.value for row in source.rows()}
    return values, [(problem.code, problem.record) for problem in source.problems]


A, B = b'{"a": 1}', b'{"b": "x"}'
ONE, TWO = {"a": 1}, {"b": "x"}

LINES: dict[str, tuple[bytes, dict[str, Any], list[tuple[str, str]]]] = {
    "plain": (A + b"\n" + B + b"\n", {"line 1": ONE, "line 2": TWO}, []),
    "no-last-end": (A + b"\n" + B, {"line 1": ONE, "line 2": TWO}, []),
    "crlf": (A + b"\r\n" + B + b"\r\n", {"line 1": ONE, "line 2": TWO}, []),
    "blank-lines": (b"\n\n" + A + b"\n \t\n" + B + b"\n\n", {"line 3": ONE, "line 5": TWO}, []),
    "thirty-blank-lines-first": (b"\n" * 30 + A + b"\n" + B, {"line 31": ONE, "line 32": TWO}, []),
    "bom": (b"\xef\xbb\xbf" + A + b"\n" + B, {"line 1": ONE, "line 2": TWO}, [("encoding", "")]),
    "utf-16-le": ((A + b"\n" + B).decode().encode("utf-16-le"), {"line 1": ONE, "line 2": TWO}, [("encoding", "")]),
    "utf-16-be": ((A + b"\n" + B).decode().encode("utf-16-be"), {"line 1": ONE, "line 2": TWO}, [("encoding", "")]),
    "utf-16-bom": ((A + b"\n" + B).decode().encode("utf-16"), {"line 1": ONE, "line 2": TWO}, [("encoding", "")]),
    "nul-padded": (b"\0\0" + A + b"\0\n" + B + b"\0\0\0", {"line 1": ONE, "line 2": TWO}, []),
    "line-separators-inside": (
        '{"a": "x\u2028y\u2029z\u0085"}\n{"b": "x"}'.encode(), {"line 1": {"a": "x\u2028y\u2029z\u0085"}, "line 2": TWO}, [],
    ),
    "form-feed-inside": (b'{"a": "x\x0cy"}\n' + B, {"line 1": {"a": "x\x0cy"}, "line 2": TWO}, [("control-character", "line 1")]),
    "bad-line-between": (A + b"\n{oops}\n" + B, {"line 1": ONE, "line 3": TWO}, [("bad-json", "line 2")]),
    "cut-at-the-end": (A + b"\n" + B[:-3], {"line 1": ONE}, [("truncated", "line 2")]),
    "cut-at-the-front": (b'oken": 3}\n' + A + b"\n" + B, {"line 2": ONE, "line 3": TWO}, [("bad-json", "line 1")]),
    "bad-first-line": (b'{"a": \n' + A + b"\n" + B, {"line 2": ONE, "line 3": TWO}, [("truncated", "line 1")]),
    "other-values": (A + b"\n3\nnull\n[1]", {"line 1": ONE, "line 2": 3, "line 3": None, "line 4": [1]}, []),
    "deep-line-between": (A + b"\n" + b"[" * 100_000 + b"\n" + B, {"line 1": ONE, "line 3": TWO}, [("too-deep", "line 2")]),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_lines_are_read_one_by_one(tmp_path: Path, name: str) -> None:
    data, values, problems = LINES[name]
    assert rows(tmp_path, data) == (values, problems)


DOCUMENTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "object": (A, {"document": ONE}),
    "one-line-with-end": (A + b"\n\n", {"document": ONE}),
    "pretty": (b'{\n "a":\n 1\n}\n', {"document": ONE}),
    "list": (b"[" + A + b", " + B + b"]", {"record 0": ONE, "record 1": TWO}),
    "a-member-a-line": (b"[\n" + A + b",\n" + B + b"\n]", {"record 0": ONE, "record 1": TWO}),
    "first-member-beside-bracket": (b"[" + A + b",\n" + B + b"]", {"record 0": ONE, "record 1": TWO}),
    "members-within-an-object": (b'{"all": [\n' + A + b",\n" + B + b"\n]}", {"document": {"all": [ONE, TWO]}}),
    "empty-list": (b"[]", {}),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_one_value_or_the_members_of_its_list(tmp_path: Path, name: str) -> None:
    data, values = DOCUMENTS[name]
    assert rows(tmp_path, data) == (values, [])
    source = opened(tmp_path, data)
    assert isinstance(source, Source)
    assert (source.shape, source.document()) == ("document", json.loads(data))


CUT, LARGE = "f.x:document: the record ends in the middle", "f.x:document: the record is larger than the limit"
REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "f.x: the file is empty - check that the export finished"),
    "white-space": (b" \r\n\t\n", "f.x: the file is empty (got white space) - check that the export finished"),
    "much-white-space": (b" " * 70_000, "f.x: not a JSON file (got white space) - export the traces as JSON or JSONL"),
    "bom-only": (b"\xef\xbb\xbf", "f.x: the file is empty (got white space) - check that the export finished"),
    "utf-16-bom-only": (b"\xff\xfe", "f.x: the file is empty - check that the export finished"),
    "html": (b"\n<!DOCTYPE html><p>Sign in", "f.x: this is an HTML page, not data (got <!DOCTYPE html><p>Sign in)"),
    "utf-16-html": ("<html>".encode("utf-16"), "f.x: this is an HTML page, not data (got <html>)"),
    "prose": (b"Dear all", "f.x: not a JSON file (got Dear all, expected { or [) - export"),
    "number": (b"42", "f.x: not a JSON file (got 42, expected { or [)"),
    "text": (b'"a"', 'f.x: not a JSON file (got "a", expected { or [)'),
    "nuls": (b"\0" * 100, "f.x: the file is not text (got NUL bytes) - export it as JSON or JSONL"),
    "program": (b"\x7fELF\x02\x01\0\0", "f.x: the file is not text (got NUL bytes)"),
    "zip": (b"PK\x03\x04rest", "f.x: no reader knows this format (got a zip archive) - see `counterpoint formats`"),
    "gzip": (b"\x1f\x8b\x08", "f.x: no reader knows this format (got a gzip file inside a gzip file)"),
    "sqlite": (b"SQLite format 3\0", "f.x: no reader knows this format (got an SQLite database)"),
    "picture": (b"\x89PNG\r\n", "f.x: no reader knows this format (got a picture)"),
    "cut-document": (b'[\n {"a": 1},\n {"b":', f"{CUT} (got Expecting value at character 19) - export the file again"),
    "cut-list-of-lines": (b'[\n{"a": 1},\n{"b": 2}\n', CUT),
    "bad-document": (b'{\n "a": 1,,\n}', "f.x:document: not valid JSON (got Expecting property name enclosed in"),
    "deep-document": (b"[" * 100_000 + b"]" * 100_000, "f.x:document: the record is nested too deeply"),
    "huge-document": (b"{\n" + b" " * 3000 + b"}", f"{LARGE} (got 0.00286 MiB, expected at most 0.00195 MiB) - raise"),
    "huge-utf-16": (("{" + " " * 3000 + "}").encode("utf-16"), f"{LARGE} (got 0.00573 MiB, expected"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_read_is_one_problem_in_words(tmp_path: Path, name: str) -> None:
    data, message = REFUSED[name]
    problem = opened(tmp_path, data, limit=2048 if name.startswith("huge") else MEBIBYTE)
    assert isinstance(problem, Problem)
    assert str(problem).startswith(message)
    assert problem.severity == "lost"


def test_a_missing_file_and_a_folder_are_unreadable(tmp_path: Path) -> None:
    missing = open_source(tmp_path / "gone", "gone")
    folder = open_source(tmp_path, "folder")
    assert str(missing).startswith("gone: the file cannot be read (got No such file or directory)")
    assert str(folder).startswith("folder: the file cannot be read (got Is a directory)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "f.x"
    path.write_bytes(A)
    path.chmod(0)
    assert str(open_source(path, "f.x")).startswith("f.x: the file cannot be read (got Permission denied)")


REPAIRED: dict[str, tuple[bytes, Any, list[str]]] = {
    "nan": (b'{"p": NaN, "q": [Infinity, -Infinity]}', {"p": None, "q": [None, None]}, ["bad-number"]),
    "1e999": (b'{"p": 1e999, "q": -1e999, "r": 1e308}', {"p": None, "q": None, "r": 1e308}, ["bad-number"]),
    "5000-digits": (b'{"p": ' + b"7" * 5000 + b"}", {"p": None}, ["bad-number"]),
    "2^64": (b'{"p": 18446744073709551616}', {"p": 2**64}, []),
    "lone-surrogate": (b'{"t\\udc00": "a\\ud83d"}', {"t\ufffd": "a\ufffd"}, ["surrogate"]),
    "surrogate-pair": (b'{"t": "\\ud83d\\ude00"}', {"t": "😀"}, []),
    "bad-utf-8": (b'{"t": "a\xff"}', {"t": "a\ufffd"}, ["encoding"]),
    "bad-utf-8-beside-a-good-replacement": (b'{"t": "\xef\xbf\xbd\xff"}', {"t": "\ufffd\ufffd"}, ["encoding"]),
    "escaped-nul": (b'{"t": "a\\u0000b"}', {"t": "a\0b"}, []),
    "raw-nul": (b'{"t": "a\0b"}', {"t": "a\0b"}, ["control-character"]),
    "raw-escape": (b'{"t": "\x1b[31m"}', {"t": "\x1b[31m"}, ["control-character"]),
    "everything": (b'{"t": "\\ud800\xff", "p": NaN}', {"t": "\ufffd\ufffd", "p": None}, ["bad-number", "encoding", "surrogate"]),
    "same-key-twice": (b'{"a": 1, "a": 2}', {"a": 2}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", REPAIRED)
def test_what_json_does_not_allow_is_repaired_and_named(name: str) -> None:
    data, value, codes = REPAIRED[name]
    found: list[Problem] = []
    row = parse(data, "line 1", "f.x", found)
    assert row is not None
    assert row.value == value
    assert json.loads(row.data) == value
    assert [(p.code, p.file, p.record) for p in found] == [(code, "f.x", "line 1") for code in codes]


@given(value=json_values)
def test_sound_json_is_read_as_it_is(value: Any) -> None:
    found: list[Problem] = []
    row = parse(json.dumps(value, ensure_ascii=False).encode(), "line 1", "f.x", found)
    assert row is not None
    assert row.value == value
    assert found == []


@given(data=st.binary(max_size=60) | st.text(alphabet='{}[]",:\\u0d8 1eNa', max_size=40).map(str.encode))
def test_any_bytes_are_a_value_or_a_named_problem(data: bytes) -> None:
    found: list[Problem] = []
    row = parse(data, "line 1", "f.x", found)
    assert (row is not None) or [p.severity for p in found] == ["lost"]
    if row is not None:
        assert {p.severity for p in found} <= {"repaired"}
        json.dumps(row.value, allow_nan=False, ensure_ascii=False).encode()


@given(lines=st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=8), chunk=st.integers(1, 7))
def test_lines_do_not_depend_on_how_the_file_is_cut_into_chunks(lines: list[bytes], chunk: int) -> None:
    expected = [(n, line.strip(b"\0 \t\r") if len(line) <= 20 else None, len(line)) for n, line in enumerate(lines, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "_CHUNK", chunk)
        found = list(source_module._split(io.BytesIO(b"\n".join(lines)), 20))
    assert found == (expected[:-1] if expected and not lines[-1] else expected)


def test_a_line_over_the_limit_is_one_problem_and_its_neighbours_come_in(tmp_path: Path) -> None:
    data = A + b'\n{"t": "' + b"x" * 3 * MEBIBYTE + b'"}\n' + B + b"\n"
    source = opened(tmp_path, data, limit=MEBIBYTE)
    assert isinstance(source, Source)
    assert [row.value for row in source.rows()] == [ONE, TWO]
    assert [str(problem) for problem in source.problems] == [
        "f.x:line 2: the record is larger than the limit (got 3 MiB, expected at most 1 MiB) - raise --max-record-mb"
    ]


def test_a_first_line_over_the_limit_hides_no_other(tmp_path: Path) -> None:
    data = b'{"t": "' + b"x" * 3000 + b'"}\n' + A + b"\n" + B
    assert rows(tmp_path, data, limit=2048) == ({"line 2": ONE, "line 3": TWO}, [("too-large", "line 1")])


def test_files_below_a_folder_come_sorted_without_hidden_ones_and_links(tmp_path: Path) -> None:
    for name in ("b.json", "a/z.jsonl", "a/.hidden.json", ".git/x.json", "d.json/inner.json", "con", "ü\n.json"):
        path = tmp_path / "runs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(A)
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    (tmp_path / "runs" / "self").symlink_to(tmp_path / "runs" / "self")
    (tmp_path / "runs" / "link.json").symlink_to(tmp_path / "runs" / "b.json")
    assert [name for _, name in files_below(tmp_path / "runs")] == [
        "runs/a/z.jsonl", "runs/b.json", "runs/con", "runs/d.json/inner.json", "runs/ü\n.json",
    ]  # fmt: skip
    assert list(files_below(tmp_path / "runs" / "b.json")) == [(tmp_path / "runs" / "b.json", "b.json")]


def test_this_folder_goes_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "inner").mkdir(parents=True)
    (tmp_path / "runs" / "a.json").write_bytes(A)
    monkeypatch.chdir(tmp_path / "runs")
    assert [name for _, name in files_below(Path())] == ["runs/a.json"]
    assert [name for _, name in files_below(Path("inner/.."))] == ["runs/a.json"]
    assert [name for _, name in files_below(Path("../runs/"))] == ["runs/a.json"]


def test_a_file_name_that_is_no_text_has_a_printable_stand_in(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.json"))
    path.write_bytes(A)
    assert [name for _, name in files_below(tmp_path)] == [f"{tmp_path.name}/bad?.json"]
    assert [name for _, name in files_below(path)] == ["bad?.json"]
