"""How a value of a span is written: OTLP's wrappers, attributes as list or object, ids in hex or base64, times in any unit.

Hides the spellings; whoever reads gets plain JSON, hex digits and nanoseconds. Nesting is bounded: what is deeper than any
attribute needs stays as JSON text.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from analysis.readers.fragment import hash_of

MAX_NESTING: Final = 32

_VALUE_KINDS: Final = {
    "stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue", "bytesValue",
    "string_value", "int_value", "double_value", "bool_value", "array_value", "kvlist_value", "bytes_value",
}  # fmt: skip
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,18}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?")
_SECOND: Final = 10**9
# A count of seconds in these bounds is a date from 2000 to 2100; the same digits as nanoseconds are early in 1970.
_RECENT: Final = (946_684_800, 4_102_444_800)


class Reading:
    """What had to be repaired while spans were read; counts by problem code, with the first value seen."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.seen: dict[str, str] = {}

    def note(self, code: str, got: Any) -> None:
        """Count one repair."""
        self.counts[code] = self.counts.get(code, 0) + 1
        self.seen.setdefault(code, str(got)[:200])


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


def shortened(text: str) -> str:
    """Return an id or name of at most 400 characters: the records take 512, and copies get an ending."""
    return text if len(text) <= 400 else f"{text[:380]}-{hash_of(text.encode())}"


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


def take_attributes(left: dict[str, Any], reading: Reading) -> dict[str, Any]:
    """Take `attributes` out of a span or event and return them by name; what is neither list nor object stays where it is."""
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


def take_time(left: dict[str, Any], fields: tuple[str, ...], reading: Reading) -> tuple[int | None, bool]:
    """Take a time out of a span or event: nanoseconds since 1970 UTC, and whether it stood without a zone. 0 is no time."""
    name = next((name for name in fields if name in left), None)
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
