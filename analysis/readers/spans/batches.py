"""From the spans of a file to fragments: batches of one trace each, small enough to hold, equal for equal contents.

Hides how many spans wait at a time, and which ids are made for spans that came without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from analysis.errors import Problem
from analysis.readers.fragment import Fragment, hash_of
from analysis.readers.source import Source
from analysis.readers.spans.envelopes import Packed, unpacked
from analysis.readers.spans.merging import packed
from analysis.readers.spans.span import loose_event, trace_and_span
from analysis.readers.spans.values import Reading, plain, take_attributes

_MAX_SPANS: Final = 2000  # in a batch
_MAX_BYTES: Final = 4 << 20
_MAX_WAITING: Final = 64 << 20  # bytes of all batches that are being filled


def batched(source: Source, kind: str, *, family: str) -> Iterator[Fragment | Problem]:
    """Yield the batches of a file and what is no span; at the end what had to be repaired, counted."""
    reading = Reading()
    filling: dict[str, _Batch] = {}
    resources = _Resources(reading)
    own_id: str | None = None
    n_bytes = n_spans = 0
    for item in unpacked(source, kind):
        if isinstance(item, Problem):
            yield item
            continue
        try:
            trace_id, data = _encoded(item, resources.key(item.resource), reading)
        except RecursionError:
            yield Problem(code="too-deep", file=source.file, record=item.place)
            continue
        if trace_id is None:
            reading.note("made-id", "a span without trace id")
            own_id = trace_id = own_id or hash_of(data)
        n_spans, n_bytes = n_spans + 1, n_bytes + len(data)
        batch = filling.setdefault(trace_id, _Batch(item.place))
        batch.add(data, resources.last)
        if len(batch.spans) >= _MAX_SPANS or batch.n_bytes >= _MAX_BYTES:
            n_bytes -= batch.n_bytes
            yield filling.pop(trace_id).fragment(f"{family}:{trace_id}", source.file)
        elif n_bytes >= _MAX_WAITING:
            yield from (waiting.fragment(f"{family}:{name}", source.file) for name, waiting in filling.items())
            filling, n_bytes = {}, 0
    yield from (waiting.fragment(f"{family}:{name}", source.file) for name, waiting in filling.items())
    yield from (Problem(code=code, file=source.file, got=reading.seen[code], n=n) for code, n in reading.counts.items())
    if not n_spans:
        yield Problem(code="empty-file", file=source.file, got="no spans")


def _encoded(item: Packed, resource: str | None, reading: Reading) -> tuple[str | None, bytes]:
    found = loose_event(item.span, reading) or trace_and_span(item.span, item.scope, resource, reading)
    return found[0], msgspec.json.encode(found[1], order="deterministic")


class _Resources:
    """What the last envelope says of all its spans, and its hash; envelopes of many spans are hashed once."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.seen: dict[str, Any] | None = None
        self.last: tuple[str, dict[str, Any]] | None = None

    def key(self, resource: dict[str, Any]) -> str | None:
        if resource is not self.seen:
            self.seen, self.last = resource, self._read(resource)
        return self.last[0] if self.last is not None else None

    def _read(self, resource: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        left = dict(resource)
        attributes = take_attributes(left, self.reading)
        beside = {key: plain(member, self.reading) for key, member in left.items() if member not in ("", 0, None, [])}
        value = {**beside, **attributes}
        return (hash_of(msgspec.json.encode(value, order="deterministic")), value) if value else None


class _Batch:
    """Encoded spans of one trace, and the resources they name."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.spans: list[bytes] = []
        self.resources: dict[str, dict[str, Any]] = {}
        self.n_bytes = 0

    def add(self, data: bytes, resource: tuple[str, dict[str, Any]] | None) -> None:
        self.spans.append(data)
        self.n_bytes += len(data)
        if resource is not None:
            self.resources[resource[0]] = resource[1]

    def fragment(self, trace_id: str, file: str) -> Fragment:
        data = packed(self.spans, self.resources)
        digest = hash_of(data)
        return Fragment(trace_id=trace_id, part=f"spans:{digest}", data=data, digest=digest, file=file, record=self.place)
