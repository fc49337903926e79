"""One span in one form, whatever envelope it came in: ids in hex, times in nanoseconds, attributes as one dict.

Hides the spellings: camel and snake case, key/value lists, base64, units of time. What has no field is kept under `extra`.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from analysis.readers.fragment import hash_of
from analysis.readers.spans import names

MAX_NESTING = 32  # of a value; what is deeper is kept as JSON text

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "trace_id": ("trace_id", "traceId"),
    "span_id": ("span_id", "spanId"),
    "parent_id": ("parent_span_id", "parentSpanId", "parent_id", "parentId"),
    "name": ("name", "spanName", "span_name"),
    "kind": ("kind", "spanKind"),
    "start": ("start_time_unix_nano", "startTimeUnixNano", "start_time", "startTime"),
    "end": ("end_time_unix_nano", "endTimeUnixNano", "end_time", "endTime"),
    "attributes": ("attributes",),
    "status": ("status", "status_code", "statusCode"),
    "events": ("events", "span_events", "spanEvents"),
    "time": ("time_unix_nano", "timeUnixNano", "timestamp", "time"),
}
_SPAN_KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}
_CONTEXTS = ("context", "spanContext", "span_context")
_VALUE_KINDS = {
    "stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue", "bytesValue",
    "string_value", "int_value", "double_value", "bool_value", "array_value", "kvlist_value", "bytes_value",
}  # fmt: skip
_DEFAULTS = {"traceState", "trace_state", "droppedAttributesCount", "droppedEventsCount", "droppedLinksCount", "schemaUrl", "links"}
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,18}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?")
_SECOND: Final = 10**9
# A count of seconds in these bounds is a date from 2000 to 2100; the same digits as nanoseconds are early in 1970.
_RECENT = (946_684_800, 4_102_444_800)


class SpanEvent(msgspec.Struct, omit_defaults=True):
    """Something noted at one moment of a span."""

    name: str | None = None
    time_ns: int | None = None
    attributes: dict[str, Any] = {}


class Span(msgspec.Struct, omit_defaults=True):
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


class Reading:
    """What had to be repaired while spans were read; counts by problem code, with the first value seen."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.seen: dict[str, str] = {}

    def note(self, code: str, got: Any) -> None:
        """Count one repair."""
        self.counts[code] = self.counts.get(code, 0) + 1
        self.seen.setdefault(code, str(got)[:200])


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
    context = next((left.pop(name) for name in _CONTEXTS if isinstance(left.get(name), dict)), {})
    trace_id = hex_id(_take(left, "trace_id") or _take(context, "trace_id"), 16)
    span_id = hex_id(_take(left, "span_id") or _take(context, "span_id"), 8)
    parent = left.pop("parentSpanContext", None)
    parent_id = hex_id(_take(left, "parent_id") or (_take(parent, "span_id") if isinstance(parent, dict) else None), 8)
    start_ns, is_naive = _time(left, "start", reading)
    end_ns, is_end_naive = _time(left, "end", reading)
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
        attributes=_attributes(left, reading),
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
    event = span_event(left, reading)
    if event.name is None:
        event.name = event.attributes.get(names.EVENT_NAME)
    return (trace_id, Span(span_id=span_id, events=[event])) if span_id else None


def hex_id(value: Any, n_bytes: int) -> str | None:
    """Return an id as lower-case hex digits, where it is hex or base64 of `n_bytes` bytes, else as it stands; zeros are no id.

    >>> hex_id("0xABCDEF0102030405", 8), hex_id("q83vAQIDBAU=", 8), hex_id("llm-1", 8), hex_id("0000000000000000", 8)
    ('abcdef0102030405', 'abcdef0102030405', 'llm-1', None)
    """
    if value is None or value is False:
        return None
    text = str(value).strip()
    if _HEX.fullmatch(text):
        digits = text.lower().removeprefix("0x")
        return shortened(digits) if digits.strip("0") else None
    if len(text) == 4 * ((n_bytes + 2) // 3) and text.endswith("="):
        try:
            data = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
        except binascii.Error:
            return shortened(text)
        return data.hex() if any(data) else None
    return shortened(text) or None


def plain(value: Any, reading: Reading, depth: int = 0) -> Any:
    """Return an attribute's value as plain JSON, the wrappers of OTLP taken off.

    >>> plain({"arrayValue": {"values": [{"intValue": "3"}, {"doubleValue": "NaN"}]}}, Reading())
    [3, None]
    """
    if isinstance(value, dict):
        if depth > MAX_NESTING:
            return _as_text(value)
        if len(value) == 1:
            ((kind, inner),) = value.items()
            if kind in _VALUE_KINDS:
                return _unwrapped(kind, inner, reading, depth)
            if kind == "values" and _is_wrapped(inner):
                return plain(inner, reading, depth + 1)
        return {str(key): plain(member, reading, depth + 1) for key, member in value.items()}
    if isinstance(value, list):
        return [plain(member, reading, depth + 1) for member in value] if depth <= MAX_NESTING else _as_text(value)
    return value


def _is_wrapped(values: Any) -> bool:
    """Some exporters take the outer wrapper of a list off and leave those of its members."""
    return isinstance(values, list) and all(isinstance(v, dict) and len(v) == 1 and v.keys() <= _VALUE_KINDS for v in values)


def _unwrapped(kind: str, inner: Any, reading: Reading, depth: int) -> Any:
    if kind in ("stringValue", "string_value", "bytesValue", "bytes_value", "boolValue", "bool_value"):
        return inner
    if kind in ("intValue", "int_value", "doubleValue", "double_value"):
        return _number(inner, reading) if isinstance(inner, str) else inner
    if kind in ("arrayValue", "array_value"):
        values = inner.get("values", []) if isinstance(inner, dict) else inner
        return plain(values, reading, depth + 1)
    pairs = inner.get("values", []) if isinstance(inner, dict) else inner
    return _pairs(pairs, reading, depth + 1) if _is_pairs(pairs) else plain(pairs, reading, depth + 1)


def _number(text: str, reading: Reading) -> int | float | str | None:
    try:
        number = float(text)
        if number in (float("inf"), float("-inf")) or number != number:
            reading.note("bad-number", text)
            return None
        return int(text) if len(text) <= 40 and re.fullmatch(r"[+-]?\d+", text) else number
    except ValueError:
        return text


def _is_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(pair, dict) and "key" in pair for pair in value)


def _pairs(pairs: list[dict[str, Any]], reading: Reading, depth: int = 0) -> dict[str, Any]:
    if depth > MAX_NESTING:
        return {"text": _as_text(pairs)}
    found = {}
    for pair in pairs:
        value = pair.get("value")
        # The usual case without a call: most attributes are text.
        if type(value) is dict and len(value) == 1 and "stringValue" in value:
            found[str(pair["key"])] = value["stringValue"]
        else:
            found[str(pair["key"])] = plain(value, reading, depth)
    return found


def _as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _attributes(left: dict[str, Any], reading: Reading) -> dict[str, Any]:
    value = left.get("attributes")
    if isinstance(value, dict):
        del left["attributes"]
        return {
            str(key): member if type(member) is str or type(member) is int else plain(member, reading)
            for key, member in value.items()
            if member is not None
        }
    if value is None or _is_pairs(value):
        left.pop("attributes", None)
        return _pairs(value or [], reading)
    reading.note("bad-attributes", type(value).__name__)
    return {}


def _events(left: dict[str, Any], reading: Reading) -> list[SpanEvent]:
    values = next((left.pop(name) for name in _FIELDS["events"] if isinstance(left.get(name), list)), [])
    found = []
    for value in values:
        if isinstance(value, dict):
            found.append(span_event(value, reading))
        else:
            found.append(SpanEvent(attributes={"value": plain(value, reading)}))
    return found


def span_event(value: dict[str, Any], reading: Reading) -> SpanEvent:
    """Return an event of a span, or a log record that belongs to one, with its body among the attributes."""
    left = dict(value)
    name = left.pop("name", None) or left.pop("event_name", None) or left.pop("eventName", None)
    time_ns, _ = _time(left, "time", reading)
    attributes = _attributes(left, reading)
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
        if key in _DEFAULTS and value in (None, "", "[]", 0, [], {}):
            continue
        if value is not None and value != "" and value != []:
            span.extra[str(key)] = plain(value, reading)


def _time(left: dict[str, Any], field: str, reading: Reading) -> tuple[int | None, bool]:
    """Return a time in nanoseconds since 1970 UTC, and whether it stood without a zone. 0 is no time."""
    name = next((name for name in _FIELDS[field] if name in left), None)
    if name is None:
        return None, False
    value = left.pop(name)
    if value in (None, "", 0, "0"):
        return None, False
    if type(value) is int or (isinstance(value, str) and value.isdecimal() and len(value) <= 25):
        read = _by_size(int(value), "nano" in name.lower(), reading)
    else:
        read = _other_time(value)
    if read is None:
        left[name] = value
        reading.note("bad-time", value)
    return read or (None, False)


def _by_size(value: int, is_nano: bool, reading: Reading) -> tuple[int, bool] | None:
    """Return nanoseconds; a field that says so is believed, unless only another unit gives a date of this century.

    >>> _by_size(1_790_000_000_000, False, Reading()), _by_size(10_000_000, True, Reading())
    ((1790000000000000000, False), (10000000, False))
    """
    if not 0 <= value < 2**64:
        return None
    for unit in (1, 10**3, 10**6):
        if _RECENT[0] * unit <= value <= _RECENT[1] * unit:
            if is_nano:
                reading.note("time-unit", value)
            return value * (_SECOND // unit), False
    if is_nano or value >= 10**17:
        return value, False
    return value * (_SECOND if value < 10**11 else 10**6 if value < 10**14 else 10**3), False


def _other_time(value: Any) -> tuple[int, bool] | None:
    """Read seconds with a fraction, the pair [seconds, nanoseconds], or an ISO date."""
    if isinstance(value, list) and len(value) == 2 and all(type(part) is int and 0 <= part < 2**63 for part in value):
        return value[0] * _SECOND + value[1], False
    if isinstance(value, float) and 0 < value < 2**64:
        unit = 1 if value < 10**11 else 10**3 if value < 10**14 else 10**6 if value < 10**17 else _SECOND
        return round(value * (_SECOND // unit)), False
    if not isinstance(value, str) or (found := _ISO.fullmatch(value.strip())) is None:
        return None
    try:
        whole = datetime.fromisoformat(found[1] + (found[3] or "").replace("UTC", "Z"))
    except ValueError:
        return None
    since = (whole if whole.tzinfo else whole.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    fraction = int((found[2] or "0").ljust(9, "0")[:9])
    return (since.days * 86400 + since.seconds) * _SECOND + fraction, whole.tzinfo is None


def _ids_of(value: dict[str, Any]) -> bool:
    return any(name in value for name in _FIELDS["trace_id"]) and any(name in value for name in _FIELDS["span_id"])


def shortened(text: str) -> str:
    """Return an id or name of at most 400 characters: the records take 512, and copies get an ending."""
    return text if len(text) <= 400 else f"{text[:380]}-{hash_of(text.encode())}"

