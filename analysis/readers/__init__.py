"""Any known format in, fragments of traces out; which reader takes a file is judged by its content.

One module a format family (see `fragment.Family`); adding one is one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from analysis.errors import Problem
from analysis.readers import claude_code, composition, marble, native, spans, whowhen
from analysis.readers.fragment import Family, Fragment
from analysis.readers.packed import unpacked
from analysis.readers.source import MEBIBYTE, Source, open_source

__all__ = ["FAMILIES", "MEBIBYTE", "Fragment", "Source", "files_below", "native", "open_source", "read", "recognise", "unpacked"]

FAMILIES: dict[str, Family] = {
    module.FORMAT: module for module in cast("tuple[Family, ...]", (native, whowhen, composition, marble, claude_code, spans))
}


def recognise(source: Source) -> tuple[Family, str] | Problem:
    """Return the family and kind of a file, or the problem that no reader takes it."""
    for family in FAMILIES.values():
        if (kind := family.detect(source)) is not None:
            return family, kind
    seen = _shape(source)
    code = "unread-format" if (later := _not_read_yet(source.first)) else "no-reader"
    return Problem(code=code, file=source.file, got=f"{later}: {seen}" if later else seen)


def read(source: Source, family: Family, kind: str) -> Iterator[Fragment | Problem]:
    """Yield what a file states, its problems in between, those of its bytes included."""
    for item in family.read(source, kind):
        while source.problems:
            yield source.problems.pop(0)
        yield item
    yield from source.problems
    source.problems.clear()


def _not_read_yet(first: Any) -> str | None:
    """Formats that are known by sight and wait for their reader."""
    if not isinstance(first, dict):
        return None
    if {"task_id", "reward", "traj"} <= first.keys():
        return "tau-bench results"
    return "AgentRx annotations of tau-bench runs" if {"trajectory_id", "failures"} <= first.keys() else None


def _shape(source: Source) -> str:
    first = source.first
    what = f"object with keys {', '.join(sorted(map(str, first))[:8])}" if isinstance(first, dict) else type(first).__name__
    return f"JSON {source.shape}, first record: {what}"


def files_below(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file at or below `path` in sorted order, with its name relative to the folder's parent, as text.

    Hidden files and folders are passed over, and so is what a symbolic link points to.
    """
    if path.is_file():
        yield path, _as_text(path.name)
        return
    top = path.resolve().name if path.name in ("", "..") else path.name
    for found in sorted(path.rglob("*")):
        relative = found.relative_to(path)
        if found.is_file() and not found.is_symlink() and not any(part.startswith(".") for part in relative.parts):
            yield found, _as_text(f"{top}/{relative.as_posix()}")


def _as_text(name: str) -> str:
    """Bytes of a file name that are no text, which Python carries as lone surrogates, become `?`."""
    return name.encode("utf-8", "replace").decode()
