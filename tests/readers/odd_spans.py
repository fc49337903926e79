"""Span traces with one thing wrong with each, as OTLP JSON: what other tools were seen to drop, crash on or show wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

T0: Final = 1_790_000_000_000_000_000
MS: Final = 1_000_000

Span = dict[str, Any]


def bare(n: int, parent: int | None = None, name: str = "n", *, a: float = 0, b: float | None = 10, **attributes: Any) -> Span:
    """Return a span that starts and ends `a` and `b` milliseconds after T0; `b` None: it has no end."""
    made: Span = {
        "traceId": "", "spanId": f"{n:016x}", "name": name,
        "startTimeUnixNano": str(T0 + round(a * MS)),
        "attributes": [{"key": key, "value": _value(value)} for key, value in attributes.items()],
    }  # fmt: skip
    if parent is not None:
        made["parentSpanId"] = f"{parent:016x}"
    if b is not None:
        made["endTimeUnixNano"] = str(T0 + round(b * MS))
    return made


def span(n: int, parent: int | None = None, name: str = "n", *, a: float = 0, b: float | None = 10, **attributes: Any) -> Span:
    """Return a span of an agent that was told something."""
    return bare(n, parent, name, a=a, b=b, **{"openinference.span.kind": "AGENT", "input.value": "x", **attributes})


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def request(spans: list[Span], *, trace_id: str = f"{0xABC:032x}") -> dict[str, Any]:
    """Return spans as one OTLP request of one trace."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "odd"}}]},
                "scopeSpans": [{"scope": {"name": "odd"}, "spans": [{**one, "traceId": trace_id} for one in spans]}],
            }
        ]
    }


def text(spans: list[Span]) -> str:
    """Return a request as JSON text; NaN stands in it as Python writes it."""
    return json.dumps(request(spans))


def chain(n: int) -> list[Span]:
    """Each span inside the one before."""
    return [span(1000 + i, 999 + i if i else None, f"d{i}", a=i, b=2 * n - i) for i in range(n)]


def fan(n: int) -> list[Span]:
    """One root and spans side by side that overlap."""
    return [span(5000, name="root", b=9000), *(span(5001 + i, 5000, "w", a=i % 7, b=9 + i % 5) for i in range(n))]


def _timed(n: int, start: int | str, end: int | str, **fields: Any) -> Span:
    return {**span(n, name="root"), "startTimeUnixNano": start, "endTimeUnixNano": end, **fields}


#: name -> how to make the spans, and the codes of the problems that must name what is odd.
CASES: Final[dict[str, tuple[Callable[[], list[Span]], set[str]]]] = {
    "plain": (lambda: [span(1, name="root"), span(2, 1)], set()),
    "self-parent": (lambda: [span(3, name="root"), span(4, 4, "selfish")], {"cycle"}),
    "two-cycle-no-root": (lambda: [span(5, 6, a=1), span(6, 5)], {"cycle"}),
    "cycle-beside-root": (lambda: [span(7, name="root"), span(8, 9), span(9, 8)], {"cycle"}),
    "orphan-only": (lambda: [span(10, 0xDEAD, "orphan")], {"orphan"}),
    "missing-middle": (lambda: [span(11, name="root"), span(12, 0xBEEF, "leaf")], {"orphan"}),
    "two-roots": (lambda: [span(13, name="r1"), span(14, name="r2", a=20, b=30)], set()),
    "end-before-start": (lambda: [span(15, name="root", a=10, b=-5)], {"end-before-start"}),
    "no-end": (lambda: [span(16, name="running", b=None)], {"no-time"}),
    "child-outlives-root": (lambda: [span(17, name="root"), span(18, 17, b=5000)], set()),
    "two-spans-one-id": (lambda: [span(19, name="root"), span(20, 19, "a"), span(20, 19, "b")], {"duplicate-event"}),
    "nan-attributes": (lambda: [span(21, name="root", score=float("nan"), hi=float("inf"))], {"bad-number"}),
    "nan-in-json-text": (lambda: [span(22, name="root", **{"output.value": '{"y": NaN, "z": Infinity}'})], set()),
    "nul-and-controls": (lambda: [span(23, name="a\0b", **{"input.value": "p\0q\x1b[31m"})], set()),
    "surrogate-in-json-text": (lambda: [span(24, name="root", **{"input.value": '{"t":"\\ud83d"}'})], set()),
    "surrogate": (lambda: [span(24, name="half \ud83d")], {"surrogate"}),
    "bidi-and-cjk": (lambda: [span(25, name="编排\u202eevil\u200d👩‍👩‍👧", **{"input.value": "Zażółć 编排 עברית"})], set()),
    "markup": (lambda: [span(26, name="<img src=x onerror=alert(1)>", **{"output.value": "[a](javascript:alert(1))"})], set()),
    "empty-name": (lambda: [span(27, name="")], set()),
    "two-megabytes": (lambda: [span(28, name="root", **{"input.value": "x" * 2_000_000})], set()),
    "chain-3000": (lambda: chain(3000), set()),
    "fan-3000": (lambda: fan(3000), set()),
    "tokens-on-parent-and-child": (
        lambda: [
            span(30, name="invoke_agent a", **{"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 100}),
            span(31, 30, "chat", **{"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 100}),
        ],
        set(),
    ),
    "year-1970": (lambda: [_timed(32, 1, 10 * MS)], set()),
    "year-2200": (lambda: [_timed(33, 7_258_118_400 * 10**9, 7_258_118_401 * 10**9)], set()),
    "start-zero": (lambda: [_timed(34, "0", str(T0))], {"no-time"}),
    "milliseconds-named-nanoseconds": (lambda: [_timed(35, T0 // MS, T0 // MS + 5)], {"time-unit"}),
    "time-is-words": (lambda: [_timed(36, "yesterday", str(T0))], {"bad-time", "no-time"}),
    "unknown-kind": (lambda: [span(37, name="x", **{"openinference.span.kind": "TELEPATHY"})], {"opaque-event"}),
    "attributes-are-text": (lambda: [{**span(38, name="root"), "attributes": "none"}], {"bad-attributes", "opaque-event"}),
    "no-ids": (lambda: [{**span(39, name="root"), "spanId": ""}], {"made-id"}),
    "ids-like-markers": (lambda: [{**span(40), "spanId": name} for name in ("a", "a.stop", "a.stop~", "a.spawn")], set()),
    "span-is-a-number": (lambda: [span(41), {**span(42), "events": [7, None], "links": "?", "status": 9, "name": 5}], set()),
    "child-before-parent": (lambda: [span(43, name="root", a=240_000, b=250_000), span(44, 43, a=0, b=9)], set()),
}  # fmt: skip
