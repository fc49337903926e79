"""What a reader gives: fragments, the parts of a trace that one place of one file states.

A trace is a pure function of the set of its fragments, so its parts may come from many files in any
order, and importing a file again adds nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from analysis.errors import Problem
from analysis.model import MAX_DEPTH, Trace
from analysis.readers.source import Source


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """One part of one trace.

    Two fragments of one trace with the same `part` say the same thing: equal `digest`, nothing new;
    other content, another run under the same id. A trace exists once it has a `primary` fragment;
    until then the others wait.
    """

    trace_id: str
    part: str
    data: bytes  # the source record, JSON
    digest: str
    file: str
    record: str
    primary: bool = True


class Kind(NamedTuple):
    """One kind of file of a format family, and what it is recognised by, in words."""

    name: str
    recognised_by: str


class Assembled(NamedTuple):
    """A trace and what had to be repaired to make it."""

    trace: Trace
    problems: list[Problem]


class Family(Protocol):
    """A format family: a module of `readers` with these names."""

    FORMAT: str  # the part of the trace id before the colon
    VERSION: str  # changes when the same fragments give another trace
    KINDS: tuple[Kind, ...]

    def detect(self, source: Source) -> str | None:
        """Return the name of the kind of file this is, judged by content, or None."""

    def read(self, source: Source, kind: str) -> Iterator[Fragment | Problem]:
        """Yield the fragments and problems of a file in the order they stand in it."""

    def assemble(self, trace_id: str, fragments: Sequence[Fragment]) -> Assembled:
        """Return the trace that the fragments state; their order must not matter."""


def fragment(trace_id: str, part: str, value: Any, *, file: str, record: str, primary: bool = True) -> Fragment | Problem:
    """Return a JSON value as a fragment; its digest depends on the value alone, not on how it was written."""
    try:
        data = msgspec.json.encode(value, order="deterministic")
    except RecursionError:
        return Problem(code="too-deep", file=file, record=record)
    return Fragment(trace_id=trace_id, part=part, data=data, digest=hash_of(data), file=file, record=record, primary=primary)


def hash_of(data: bytes) -> str:
    """Return 16 hex digits that identify the bytes."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def source_key(trace_id: str) -> str:
    """Return the id without the `~2` that keeps apart different runs of one source id.

    >>> source_key("whowhen:hand-1~2")
    'whowhen:hand-1'
    """
    return re.sub(r"~[0-9]+\Z", "", trace_id)


def is_too_deep(value: Any) -> bool:
    """Return whether a JSON value is nested deeper than the records take."""
    layer = [value]
    for _ in range(MAX_DEPTH):
        nested = [outer.values() if isinstance(outer, dict) else outer for outer in layer if isinstance(outer, dict | list)]
        layer = [inner for members in nested for inner in members]
    return bool(layer)
