"""One span in one form, whatever envelope it came in: ids in hex, times in nanoseconds, attributes as one dict.

Hides what its fields are called: camel and snake case, flat, nested in a context, as a log record. What has no field of
its own is kept under `extra`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from analysis.readers.fragment import hash_of
from analysis.readers.spans import names
from analysis.readers.spans.values import Reading, hex_id, plain, take_attributes, take_time

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "trace_id": ("trace_id", "traceId"),
    "span_id": ("span_id", "spanId"),
    "parent_id": ("parent_span_id", "parentSpanId", "parent_id", "parentId"),
    "name": ("name", "spanName", "span_name"),
    "kind": ("kind", "spanKind"),
    "start": ("start_time_unix_nano", "startTimeUnixNano", "start_time", "startTime"),
    "end": ("end_time_unix_nano", "endTimeUnixNano", "end_time", "endTime"),
    "status": ("status", "status_code", "statusCode"),
    "events": ("events", "span_events", "spanEvents"),
    "time": ("time_unix_nano", "timeUnixNano", "timestamp", "time"),
}
_SPAN_KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}
_CONTEXTS = ("context", "spanContext", "span_context")
# What exporters write out although nothing is said by it.
_DEFAULTS = {
    "traceState", "trace_state", "droppedAttributesCount", "droppedEventsCount", "droppedLinksCount", "schemaUrl", "links",
}  # fmt: skip
_PLAIN_FLAGS = (0, 1, 256, 257)  # sampled or not, parent local


class SpanEvent(msgspec.Struct, omit_defaults=True, gc=False):
    """Something noted at one moment of a span."""

    name: str | None = None
    time_ns: int | None = None
    attributes: dict[str, Any] = {}


class Span(msgspec.Struct, omit_defaults=True, gc=False):
    """A span. `resource` is a key of the batch's resources; a span without name and times is a bearer of events only."""

    span_id: str
    parent_id: str | None = None
    name: str | None = None
    kind: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    is_naive: bool = False
    attributes: dict[str, Any] = {}
    status: str | None = None
    status_message: str | None = None
    events: list[SpanEvent] = []
    scope: str | None = None
    resource: str | None = None
    extra: dict[str, Any] = {}


def looks_like_span(value: Any) -> bool:
    """Return whether a JSON value has the marks of a span: ids of its own, or name and attributes side by side.

    >>> looks_like_span({"traceId": "a", "spanId": "b", "name": "n"}), looks_like_span({"trace_id": "a", "object": "trace.span"})
    (True, False)
    """
    if not isinstance(value, dict):
        return False
    if any(isinstance(value.get(name), dict) and _ids_of(value[name]) for name in _CONTEXTS):
        return True
    if {"spanName", "attributes"} <= value.keys():
        return True
    return _ids_of(value)


def trace_and_span(raw: dict[str, Any], scope: Any, resource: str | None, reading: Reading) -> tuple[str | None, Span]:
    """Return the trace id of a span as its envelope has it, if any, and the span; nothing of it is dropped."""
    left = dict(raw)
    left.pop("resource", None)
    left.pop("scope", None)
    context: dict[str, Any] = next((left.pop(name) for name in _CONTEXTS if isinstance(left.get(name), dict)), {})
    trace_id = hex_id(_take(left, "trace_id") or _take(context, "trace_id"), 16)
    span_id = hex_id(_take(left, "span_id") or _take(context, "span_id"), 8)
    parent = left.pop("parentSpanContext", None)
    parent_id = hex_id(_take(left, "parent_id") or (_take(parent, "span_id") if isinstance(parent, dict) else None), 8)
    start_ns, is_naive = take_time(left, _FIELDS["start"], reading)
    end_ns, is_end_naive = take_time(left, _FIELDS["end"], reading)
    name = _take(left, "name")
    status, message = _status(left)
    span = Span(
        span_id=span_id or "",
        parent_id=parent_id,
        name=None if name is None else str(name),
        kind=_span_kind(_take(left, "kind")),
        start_ns=start_ns,
        end_ns=end_ns,
        is_naive=is_naive or is_end_naive,
        attributes=take_attributes(left, reading),
        status=status,
        status_message=message,
        events=_events(left, reading),
        scope=_scope(scope or left.pop("scopeName", None)),
        resource=resource,
    )
    _keep(span, {**context, **left}, reading)
    if not span_id:
        span.span_id = hash_of(msgspec.json.encode(span, order="deterministic"))
        reading.note("made-id", span.name)
    return trace_id, span


def loose_event(raw: dict[str, Any], reading: Reading) -> tuple[str | None, Span] | None:
    """Return the trace id and bearer of a log record that names its span, as ADOT and the GenAI events have it, or None."""
    if "body" not in raw and not {"eventName", "event_name"} & raw.keys():
        return None
    if any(name in raw for field in ("start", "end", "name") for name in _FIELDS[field]):
        return None
    left = {key: value for key, value in raw.items() if key not in ("resource", "scope")}
    trace_id, span_id = hex_id(_take(left, "trace_id"), 16), hex_id(_take(left, "span_id"), 8)
    event = _event(left, reading)
    if event.name is None:
        event.name = event.attributes.get(names.EVENT_NAME)
    return (trace_id, Span(span_id=span_id, events=[event])) if span_id else None


def _events(left: dict[str, Any], reading: Reading) -> list[SpanEvent]:
    values: list[Any] = next((left.pop(name) for name in _FIELDS["events"] if isinstance(left.get(name), list)), [])
    found = []
    for value in values:
        if isinstance(value, dict):
            found.append(_event(value, reading))
        else:
            found.append(SpanEvent(attributes={"value": plain(value, reading)}))
    return found


def _event(value: dict[str, Any], reading: Reading) -> SpanEvent:
    """Return an event of a span, or a log record that belongs to one, with its body among the attributes."""
    left = dict(value)
    name = left.pop("name", None) or left.pop("event_name", None) or left.pop("eventName", None)
    time_ns, _ = take_time(left, _FIELDS["time"], reading)
    attributes = take_attributes(left, reading)
    left = {key: member for key, member in left.items() if member and key != "droppedAttributesCount"}
    attributes |= {key: plain(member, reading) for key, member in left.items()}
    return SpanEvent(None if name is None else str(name), time_ns, attributes)


def _status(left: dict[str, Any]) -> tuple[str | None, str | None]:
    value = _take(left, "status")
    message = None
    if isinstance(value, dict):
        said = value.get("message") or value.get("description")
        message = str(said) if said else None
        value = value.get("code", value.get("status_code"))
    word = str(value).upper().removeprefix("STATUS_CODE_").removeprefix("STATUSCODE.")
    code = {"2": "error", "ERROR": "error", "1": "ok", "OK": "ok"}.get(word)
    return code, message


def _span_kind(value: Any) -> str | None:
    if isinstance(value, int):
        return _SPAN_KINDS.get(value)
    word = str(value or "").lower().removeprefix("span_kind_").removeprefix("spankind.")
    return word if word not in ("", "unspecified") else None


def _scope(value: Any) -> str | None:
    if isinstance(value, dict):
        parts = [str(value[key]) for key in ("name", "version") if value.get(key)]
        return " ".join(parts) or None
    return str(value) if value else None


def _take(left: dict[str, Any], field: str) -> Any:
    for name in _FIELDS[field]:
        if name in left:
            return left.pop(name)
    return None


def _keep(span: Span, left: dict[str, Any], reading: Reading) -> None:
    """Put what has no field of its own under `extra`, without the defaults that some exporters write out."""
    for key, value in left.items():
        if (key in _DEFAULTS and value in (None, "", "[]", 0, [], {})) or (key == "flags" and value in _PLAIN_FLAGS):
            continue
        if value is not None and value != "" and value != []:
            span.extra[str(key)] = plain(value, reading)


def _ids_of(value: dict[str, Any]) -> bool:
    return any(name in value for name in _FIELDS["trace_id"]) and any(name in value for name in _FIELDS["span_id"])
