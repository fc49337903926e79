"""How the bytes of a stranger's file become JSON records: encodings, line ends, limits, damage.

A file is `lines` (one JSON value a line) or a `document` (one JSON value). Which one is seen from its
content. Whatever is wrong with a record becomes a `Problem`; the next record is read all the same.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from analysis.errors import Problem

MEBIBYTE = 1 << 20
_CHUNK = MEBIBYTE
_BINARY = {
    b"PK\x03\x04": "a zip archive",
    b"SQLite format 3\x00": "an SQLite database",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "a gzip file inside a gzip file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"\x89PNG": "a picture",
    b"%PDF": "a PDF file",
}


@dataclass(frozen=True)
class Row:
    """One JSON value of a file: where it stands (`line 7`, `record 3`), its bytes where it is a line, its value."""

    place: str
    value: Any
    data: bytes


@dataclass
class Source:
    """A readable file. `file` is how the user knows it; `first` is its first JSON value.

    `problems` collects what had to be repaired or was lost while reading; it grows as `rows` is consumed.
    """

    path: Path
    file: str
    shape: Literal["lines", "document", "binary"]
    first: Any
    max_record_bytes: int
    problems: list[Problem] = field(default_factory=list)
    _text: bytes | None = None  # the converted text, where the file is not UTF-8
    _document: Row | None = None

    def rows(self) -> Iterator[Row]:
        """Yield the records: each line, each member of a top-level list, or the one document."""
        if self._document is None:
            for place, line in self.lines():
                if (row := parse(line, place, self.file, self.problems)) is not None:
                    yield row
            return
        value = self._document.value
        if not isinstance(value, list):
            yield self._document
            return
        for n, member in enumerate(value):
            yield Row(f"record {n}", member, b"")

    def document(self) -> Any:
        """Return the one JSON value of a `document`, or the list of all lines' values."""
        return self._document.value if self._document is not None else [row.value for row in self.rows()]

    def data(self) -> bytes:
        """Return the bytes of a `binary` file; it has no rows, and its reader knows what they mean."""
        return self.path.read_bytes()

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """Yield (place, bytes) of each line that is not blank; too long ones become problems."""
        if self._document is not None and self.shape == "document":
            yield "document", self._document.data
            return
        with _stream(self) as stream:
            for n, line, size in _split(stream, self.max_record_bytes):
                if line is None:
                    self.problems.append(_too_large(self.file, f"line {n}", size, self.max_record_bytes))
                elif line:
                    yield f"line {n}", line


def open_source(path: Path, file: str, *, max_record_bytes: int = 64 * MEBIBYTE) -> Source | Problem:
    """Return the file as a `Source`, or the one problem that makes all of it unreadable.

    Parameters
    ----------
    path : the file
    file : its name in reports
    max_record_bytes : longest line or document that is read
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(65536)
        size = path.stat().st_size
    except OSError as error:
        return Problem(code="unreadable", file=file, got=error.strerror or str(error))
    if _is_messages(head, size):
        if size > max_record_bytes:
            return _too_large(file, "document", size, max_record_bytes)
        return Source(path, file, "binary", None, max_record_bytes)
    source = Source(path, file, "lines", None, max_record_bytes)
    if (problem := _refuse(head, file)) is not None:
        return problem
    if (encoding := _encoding(head)) != "utf-8":
        if encoding != "utf-8-sig" and size > max_record_bytes:
            return _too_large(file, "document", size, max_record_bytes)
        source.problems.append(Problem(code="encoding", file=file, got=encoding, expected="utf-8"))
        if encoding != "utf-8-sig":
            source._text = path.read_bytes().decode(encoding, "replace").encode()
            if (problem := _refuse(source._text[:65536], file)) is not None:
                return problem
    return _with_shape(source)


def parse(data: bytes, place: str, file: str, problems: list[Problem]) -> Row | None:
    """Return the JSON value of `data`, or None with a problem appended; repairs are appended as problems too.

    >>> found: list[Problem] = []
    >>> parse(b'{"p": NaN, "t": "\\\\ud83d"}', "line 1", "f.jsonl", found).value
    {'p': None, 't': '\\ufffd'}
    >>> [problem.code for problem in found]
    ['bad-number', 'surrogate']
    """
    try:
        return Row(place, msgspec.json.decode(data), data)
    except RecursionError:
        problems.append(Problem(code="too-deep", file=file, record=place))
        return None
    except msgspec.MsgspecError:
        return _parse_damaged(data, place, file, problems)


def _parse_damaged(data: bytes, place: str, file: str, problems: list[Problem]) -> Row | None:
    """Read with the forgiving parser of the standard library, and name each repair."""
    repairs: set[str] = set()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        repairs.add("encoding")

    def number(digits: str) -> float | int | None:
        try:
            value = float(digits) if any(c in digits for c in ".eE") else int(digits)
        except ValueError:  # more digits than the interpreter converts
            value = float("inf")
        if value in (float("inf"), float("-inf")):
            repairs.add("bad-number")
            return None
        return value

    def constant(_: str) -> None:
        repairs.add("bad-number")

    try:
        value = json.loads(text, parse_float=number, parse_int=number, parse_constant=constant, strict=False)
        value = _without_surrogates(value, repairs)
    except RecursionError:
        problems.append(Problem(code="too-deep", file=file, record=place))
        return None
    except json.JSONDecodeError as error:
        at_end = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        code = "truncated" if at_end else "bad-json"
        problems.append(Problem(code=code, file=file, record=place, got=f"{error.msg} at character {error.pos}"))
        return None
    # What only the forgiving parser takes, and is none of the above, is a control character written as it is.
    problems.extend(Problem(code=code, file=file, record=place) for code in sorted(repairs or {"control-character"}))
    return Row(place, value, msgspec.json.encode(value))


def _without_surrogates(value: Any, repairs: set[str]) -> Any:
    if isinstance(value, dict):
        return {_without_surrogates(k, repairs): _without_surrogates(v, repairs) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(member, repairs) for member in value]
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        repairs.add("surrogate")
        return "".join("�" if "\ud800" <= c <= "\udfff" else c for c in value)
    return value


def _refuse(head: bytes, file: str) -> Problem | None:
    for magic, what in _BINARY.items():
        if head.startswith(magic):
            return Problem(code="no-reader", file=file, got=what)
    if _encoding(head).startswith("utf-16"):
        return None
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\x00 \t\r\n")
    seen = start[:40].decode("utf-8", "replace")
    if not start and b"\x00" not in head:
        code = "empty-file" if len(head) < 65536 else "not-json"
        return Problem(code=code, file=file, got="white space" if head else "")
    if start.startswith(b"<"):
        return Problem(code="html-page", file=file, got=seen)
    # A file that was cut at its front begins in the middle of a record.
    if start.startswith((b"{", b"[")) or b"\n{" in start:
        return None
    if b"\x00" in head:
        return Problem(code="not-text", file=file, got="NUL bytes")
    return Problem(code="not-json", file=file, got=seen, expected="{ or [")


def _is_messages(head: bytes, size: int) -> bool:
    """Whether this is protobuf whose only field, number 1, holds messages, alone or with its length in four bytes before it.

    JSON may begin with a line end and a brace too, but never has the control character that tags a message in a message.
    """
    prefix = 4 if head[:1] == b"\x00" else 0
    body = head[prefix:]
    if body[:1] != b"\n" or b"\x12" not in head:
        return False
    length = at = 0
    for at, byte in enumerate(body[1:6], 1):
        length |= (byte & 127) << 7 * (at - 1)
        if byte < 128:
            break
    end = at + 1 + length
    return prefix + end == size or (prefix + end < size and body[end : end + 1] in (b"", b"\n", b"\x00"))


def _encoding(head: bytes) -> str:
    """UTF-8, or UTF-16 by its mark or by the NULs beside its first ASCII character."""
    if head.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    # One NUL may be padding; in UTF-16 the character after the bracket has one too.
    if head[:2] in (b"{\x00", b"[\x00") and head[3:4] in (b"", b"\x00"):
        return "utf-16-le"
    return "utf-16-be" if head[:2] in (b"\x00{", b"\x00[") and head[2:3] in (b"", b"\x00") else "utf-8"


def _with_shape(source: Source) -> Source | Problem:
    """Decide between lines and document by the first lines that are not blank; read the document where it is one."""
    with _stream(source) as stream:
        filled = list(islice((line for _, line, _ in _split(stream, source.max_record_bytes) if line is None or line), 20))
    if not filled:
        return Problem(code="empty-file", file=source.file)
    first = filled[0]
    if first is not None and (row := parse(first, "line 1", source.file, [])) is not None:
        source.first = row.value
        if len(filled) > 1:
            return source
        found: list[Problem] = []
        source._document = parse(first, "document", source.file, found)
        source.problems.extend(found)
        source.shape = "document"
        return _first_member(source)
    document = _read_document(source)
    if isinstance(document, Source) or (first is not None and (first == b"{" or first.startswith(b"["))):
        return document
    later = (line for line in filled[1:] if line is not None and line.startswith(b"{"))
    rows = (row for line in later if (row := parse(line, "", source.file, [])) is not None)
    if (row := next(rows, None)) is None:
        return document
    source.first = row.value
    return source


def _read_document(source: Source) -> Source | Problem:
    with _stream(source) as stream:
        data = stream.read(source.max_record_bytes + 1)
    if len(data) > source.max_record_bytes:
        return _too_large(source.file, "document", source.path.stat().st_size, source.max_record_bytes)
    found: list[Problem] = []
    row = parse(data.strip(b"\x00 \t\r\n"), "document", source.file, found)
    if row is None and (found[-1].got or "").startswith("Extra data"):
        row = _several(data, source.file, found)
    if row is None:
        return found[-1]
    source.problems.extend(found)
    source.shape, source._document, source.first = "document", row, row.value
    return _first_member(source)


def _several(data: bytes, file: str, problems: list[Problem]) -> Row | None:
    """Read JSON values that stand one after another, each over several lines, as the console prints spans."""
    text, at, found = data.decode("utf-8", "replace").strip("\x00 \t\r\n"), 0, list[Problem]()
    values: list[Any] = []
    while at < len(text):
        try:
            _, end = json.JSONDecoder(strict=False).raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        if (row := parse(text[at:end].encode(), f"record {len(values)}", file, found)) is None:
            return None
        values.append(row.value)
        at = next((n for n in range(end, len(text)) if not text[n].isspace()), len(text))
    problems[:] = found
    return Row("document", values, msgspec.json.encode(values))


def _first_member(source: Source) -> Source:
    value = source._document.value if source._document is not None else None
    source.first = value[0] if isinstance(value, list) and value else value
    return source


def _stream(source: Source) -> BinaryIO:
    if source._text is not None:
        return io.BytesIO(source._text)
    stream = source.path.open("rb")
    if stream.read(3) != b"\xef\xbb\xbf":
        stream.seek(0)
    return stream


def _split(stream: BinaryIO, limit: int) -> Iterator[tuple[int, bytes | None, int]]:
    """Yield (line number, line or None where it is over the limit, its size). Splits on \\n only."""
    start: list[bytes] = []
    number, size = 1, 0
    while chunk := stream.read(_CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            size += len(end)
            yield number, (b"".join([*start, end]).strip(b"\x00 \t\r") if size <= limit else None), size
            number, start, size = number + 1, [], 0
        size += len(rest)
        start = [*start, rest] if size <= limit else []
    if size:
        yield number, (b"".join(start).strip(b"\x00 \t\r") if size <= limit else None), size


def _too_large(file: str, place: str, size: int, limit: int) -> Problem:
    got, expected = f"{size / MEBIBYTE:.3g} MiB", f"at most {limit / MEBIBYTE:.3g} MiB"
    return Problem(code="too-large", file=file, record=place, got=got, expected=expected)
