"""From the batches of one trace to its spans: each once, in whatever files, batches and order they came.

Decides when two spans with one id are the same one: exactly equal, or one says nothing that the other does not
(exporters round times to microseconds and leave out scopes). Two that differ are both kept, the lesser one renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from analysis.readers.fragment import Fragment
from analysis.readers.spans.span import Span, SpanEvent

_ROUNDING_NS = 1000


class Batch(msgspec.Struct, omit_defaults=True):
    """What one fragment holds: spans of one trace, and the resources they name, by hash."""

    spans: list[Span]
    resources: dict[str, dict[str, Any]] = {}


class Merged(NamedTuple):
    """The spans of a trace by event id, which is their own id but for renamed ones; what was folded and what renamed."""

    spans: dict[str, Span]
    resources: dict[str, dict[str, Any]]
    n_same: int
    renamed: list[str]


_decoder = msgspec.json.Decoder(Batch)


def packed(spans: Iterable[bytes], resources: dict[str, dict[str, Any]]) -> bytes:
    """Return encoded spans as the bytes of a batch; they depend on what is in it, not on its order."""
    named = msgspec.json.encode(resources, order="deterministic")
    return b'{"spans":[' + b",".join(sorted(spans)) + b'],"resources":' + named + b"}"


def merged(fragments: Sequence[Fragment]) -> Merged:
    """Return the spans of all fragments; their order makes no difference."""
    spans: dict[str, Span] = {}
    more: dict[str, list[Span]] = {}
    resources: dict[str, dict[str, Any]] = {}
    n_same = 0
    for fragment in fragments:
        batch = _decoder.decode(fragment.data)
        resources |= batch.resources
        for span in batch.spans:
            first = spans.setdefault(span.span_id, span)
            if first is span:
                continue
            if first == span:
                n_same += 1
            else:
                more.setdefault(span.span_id, []).append(span)
    renamed: list[str] = []
    for span_id, others in sorted(more.items()):
        n_same += _place(span_id, [spans[span_id], *others], spans, renamed)
    return Merged(spans, resources, n_same, renamed)


def _place(span_id: str, candidates: list[Span], spans: dict[str, Span], renamed: list[str]) -> int:
    """Put the different spans among those of one id where they belong; return how many said nothing new."""
    bearers = [span for span in candidates if _is_bearer(span)]
    full = {msgspec.json.encode(span, order="deterministic"): span for span in candidates if not _is_bearer(span)}
    ranked = [full[data] for _, data in sorted(((_said(span), data) for data, span in full.items()), reverse=True)]
    fullest = ranked[0] if ranked else bearers[0]
    different = [span for span in ranked[1:] if not _says_no_more(span, fullest)]
    _join_events(fullest, bearers)
    spans[span_id] = fullest
    n = 2
    for span in different:
        while f"{span_id}~{n}" in spans:
            n += 1
        spans[f"{span_id}~{n}"] = span
        renamed.append(span_id)
    return max(len(candidates) - len(bearers) - 1 - len(different), 0)


def _is_bearer(span: Span) -> bool:
    return span.name is None and span.start_ns is None and not span.attributes and bool(span.events)


def _join_events(span: Span, bearers: list[Span]) -> None:
    """Give a span the events that came apart from it, in time."""
    events = {msgspec.json.encode(e, order="deterministic"): e for one in (span, *bearers) for e in one.events}
    if bearers:
        span.events = [events[key] for key in sorted(events, key=lambda key: (events[key].time_ns or 0, key))]


def _said(span: Span) -> tuple[int, int]:
    """How much a span says: its fields that are filled, its attributes, events and end; how exact its start is."""
    filled = sum(getattr(span, field) not in (None, {}, [], False) for field in span.__struct_fields__)
    exact = (span.start_ns or 0) % _ROUNDING_NS != 0
    return filled + len(span.attributes) + len(span.events) + len(span.extra), exact


def _says_no_more(span: Span, other: Span) -> bool:
    for field in ("parent_id", "name", "kind", "status", "status_message", "scope", "resource"):
        if (value := getattr(span, field)) is not None and value != getattr(other, field):
            return False
    if not (_close(span.start_ns, other.start_ns) and _close(span.end_ns, other.end_ns)):
        return False
    return (
        _within(span.attributes, other.attributes)
        and _within(span.extra, other.extra)
        and _events_within(span.events, other.events)
    )


def _within(part: dict[str, Any], whole: dict[str, Any]) -> bool:
    return all(key in whole and whole[key] == value for key, value in part.items())


def _events_within(part: list[SpanEvent], whole: list[SpanEvent]) -> bool:
    if not part:
        return True
    pairs = zip(part, whole, strict=False)
    return len(part) == len(whole) and all(
        a.name == b.name and a.attributes == b.attributes and _close(a.time_ns, b.time_ns) for a, b in pairs
    )


def _close(time: int | None, other: int | None) -> bool:
    return time is None or (other is not None and abs(time - other) <= _ROUNDING_NS)
