"""What spans come packed in: OTLP requests as JSON or protobuf, flat lists, one a line, the console form, log records.

Decides which kind of file is one of spans; hides where in it the spans, their resource and their scope stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from analysis.errors import Problem
from analysis.readers.source import Source
from analysis.readers.spans.span import looks_like_span

_RESOURCE_SPANS = ("resourceSpans", "resource_spans")
_SCOPE_SPANS = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")
_SCOPE = ("scope", "instrumentationLibrary", "instrumentation_library")


class Packed(NamedTuple):
    """A span as its envelope has it, with what the envelope says of it, and the record it stands in."""

    span: dict[str, Any]
    resource: dict[str, Any]
    scope: Any
    place: str


def kind_of(source: Source) -> str | None:
    """Return which kind of span file this is, judged by its first record."""
    first = source.first
    if source.shape == "binary":
        return "otlp-protobuf"
    if isinstance(first, list) and first:
        first = first[0]
    if not isinstance(first, dict):
        return None
    if any(isinstance(first.get(name), list) for name in _RESOURCE_SPANS):
        return "otlp-json"
    if isinstance(spans := first.get("spans"), list) and spans and looks_like_span(spans[0]):
        return "span-list"
    if not looks_like_span(first):
        return None
    return "span-console" if isinstance(first.get("context"), dict) else "span-list"


def unpacked(source: Source, kind: str) -> Iterator[Packed | Problem]:
    """Yield the spans of a file in its order; what is no span becomes a problem at its place."""
    if kind == "otlp-protobuf":
        for place, request in _requests(source):
            yield from (request,) if isinstance(request, Problem) else _members(request, place, source.file)
        return
    for row in source.rows():
        for value in row.value if isinstance(row.value, list) else (row.value,):
            yield from _members(value, row.place, source.file)


def _members(value: Any, place: str, file: str) -> Iterator[Packed | Problem]:
    if not isinstance(value, dict):
        yield _no_span(value, place, file)
    elif any(name in value for name in _RESOURCE_SPANS):
        yield from _request(value, place, file)
    elif isinstance(value.get("spans"), list) and not looks_like_span(value):
        wrapper = {key: member for key, member in value.items() if key != "spans"}
        for span in value["spans"]:
            yield _packed(span, wrapper, None, place) or _no_span(span, place, file)
    else:
        yield _packed(value, {}, None, place) or _no_span(value, place, file)


def _request(value: dict[str, Any], place: str, file: str) -> Iterator[Packed | Problem]:
    for batch in _lists(value, _RESOURCE_SPANS):
        if not isinstance(batch, dict):
            yield _no_span(batch, place, file)
            continue
        resource = batch.get("resource")
        for scoped in _lists(batch, _SCOPE_SPANS):
            if not isinstance(scoped, dict):
                yield _no_span(scoped, place, file)
                continue
            scope = next((scoped[name] for name in _SCOPE if name in scoped), None)
            for span in _lists(scoped, ("spans",)):
                # Inside a request a span without ids is one all the same: it is accounted for under made ones.
                if isinstance(span, dict):
                    yield Packed(span, resource if isinstance(resource, dict) else {}, scope, place)
                else:
                    yield _no_span(span, place, file)


def _packed(span: Any, wrapper: dict[str, Any], scope: Any, place: str) -> Packed | None:
    if not isinstance(span, dict) or not looks_like_span(span):
        return None
    own = span.get("resource")
    resource = {**wrapper, **own} if isinstance(own, dict) else wrapper
    return Packed(span, resource, scope if scope is not None else span.get("scope"), place)


def _lists(value: dict[str, Any], keys: tuple[str, ...]) -> list[Any]:
    return next((value[key] for key in keys if isinstance(value.get(key), list)), [])


def _no_span(value: Any, place: str, file: str) -> Problem:
    if isinstance(value, dict) and not looks_like_span(value) and len(value) < 20 and _is_other_signal(value):
        return Problem(code="mixed-format", file=file, record=place, got=f"keys {', '.join(sorted(map(str, value))[:6])}")
    seen = f"keys {', '.join(sorted(map(str, value))[:6])}" if isinstance(value, dict) else type(value).__name__
    return Problem(code="wrong-shape", file=file, record=place, got=seen, expected="a span with trace_id and span_id")


def _is_other_signal(value: dict[str, Any]) -> bool:
    return bool({"resourceLogs", "resourceMetrics", "resource_logs", "resource_metrics"} & value.keys())


def _requests(source: Source) -> Iterator[tuple[str, dict[str, Any] | Problem]]:
    """Read protobuf: one message, or several with the length of each in four bytes before it, as the collector writes them."""
    try:
        from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
    except ImportError as error:
        yield "document", Problem(code="no-library", file=source.file, got=str(error), expected="opentelemetry-proto")
        return
    for n, data in enumerate(_messages(source.data()), 1):
        place = f"message {n}"
        try:
            yield place, MessageToDict(TracesData.FromString(data))
        except (DecodeError, RecursionError) as error:
            yield place, Problem(code="wrong-shape", file=source.file, record=place, got=str(error), expected="OTLP TracesData")


def _messages(data: bytes) -> Iterator[bytes]:
    if data.startswith(b"\n"):
        yield data
        return
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 4 + size]
        at += 4 + size
