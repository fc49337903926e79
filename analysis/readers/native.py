"""The native format: JSONL, one trace a line, `{"format": "counterpoint/1", ...}`.

Reading is exact: what `model.encode` wrote comes back equal. What a person wrote by hand is read
with repairs that are named: unknown fields move to `extra["unknown"]`, repeated event ids are renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import msgspec

from analysis import model
from analysis.errors import Problem, TraceError
from analysis.model import Trace
from analysis.readers.fragment import Assembled, Fragment, Kind, hash_of, source_key
from analysis.readers.source import Source, parse

FORMAT = "counterpoint"
VERSION = "1"
KINDS = (Kind("counterpoint", 'JSON lines with "format": "counterpoint/1"'),)

_MAX_ID = 500  # leaves room, within `model.Id`, for the `~2` of a second run
_MEMBERS: dict[str, type[model.Record]] = {
    "task": model.Task,
    "source": model.Source,
    "outcome": model.Outcome,
    "groups": model.Groups,
    "counterfactual": model.Counterfactual,
    "context_package": model.ContextPackage,
    "agents": model.Agent,
    "events": model.Event,
    "subtasks": model.Subtask,
    "candidates": model.Candidate,
    "claims": model.Claim,
    "relations": model.Relation,
    "labels": model.Label,
}


def detect(source: Source) -> str | None:
    """Recognise the format by its mark in the first record."""
    first = source.first
    return FORMAT if isinstance(first, dict) and str(first.get("format", "")).startswith("counterpoint/") else None


def read(source: Source, kind: str) -> Iterator[Fragment | Problem]:
    """Yield one fragment a line; a line that breaks a rule of the records is a problem that names the field."""
    if source.shape == "lines":
        records: Iterator[tuple[str, bytes]] = source.lines()
    else:
        records = ((row.place, row.data or msgspec.json.encode(row.value)) for row in source.rows())
    for place, data in records:
        yield from _read_record(data, place, source)


def assemble(trace_id: str, fragments: Sequence[Fragment]) -> Assembled:
    """Return the one trace that the fragment states, under the id it is stored as."""
    trace = model.decode(fragments[0].data)
    return Assembled(trace if trace.trace_id == trace_id else msgspec.structs.replace(trace, trace_id=trace_id), [])


def _read_record(data: bytes, place: str, source: Source) -> Iterator[Fragment | Problem]:
    try:
        trace = model.decode(data)
    except TraceError:
        row = parse(data, place, source.file, source.problems)
        if row is None:
            return
        trace_or_problem = _repaired(row.value, place, source)
        if isinstance(trace_or_problem, Problem):
            yield trace_or_problem
            return
        trace = trace_or_problem
    if ":" not in trace.trace_id:
        trace = msgspec.structs.replace(trace, trace_id=f"{FORMAT}:{trace.trace_id}")
    if (length := len(source_key(trace.trace_id))) > _MAX_ID:
        got, expected = f"trace_id of {length} characters, its format included", f"at most {_MAX_ID}"
        yield Problem(code="bad-value", file=source.file, record=place, got=got, expected=expected)
        return
    same = hash_of(msgspec.json.encode(trace, order="deterministic"))
    yield Fragment(trace_id=trace.trace_id, part="trace", data=model.encode(trace), digest=same, file=source.file, record=place)


def _repaired(value: Any, place: str, source: Source) -> Trace | Problem:
    if not isinstance(value, dict):
        return Problem(code="wrong-shape", file=source.file, record=place, got=type(value).__name__, expected="object")
    if not str(value.get("format", "")).startswith("counterpoint/"):
        return Problem(code="mixed-format", file=source.file, record=place, got=f"keys {', '.join(sorted(value)[:6])}")
    unknown: dict[str, Any] = {}
    known = _known(value, Trace, "", unknown)
    renamed = _rename_repeated(known)
    extra = known.get("extra", {})
    if unknown and isinstance(extra, dict):
        known["extra"] = {**extra, "unknown": _joined(extra.get("unknown", {}), unknown)}
    try:
        trace = msgspec.convert(known, Trace)
    except (msgspec.ValidationError, RecursionError) as error:
        return Problem(code="bad-value", file=source.file, record=place, got=str(error))
    where = {"file": source.file, "record": place, "trace_id": trace.trace_id}
    if unknown:
        source.problems.append(Problem(code="unknown-field", got=", ".join(list(unknown)[:8]), n=len(unknown), **where))
    if renamed:
        source.problems.append(Problem(code="duplicate-event", got=", ".join(renamed[:8]), n=len(renamed), **where))
    return trace


def _joined(old: Any, unknown: dict[str, Any]) -> dict[str, Any]:
    """Return unknown fields together with those of an earlier reading."""
    return {**(old if isinstance(old, dict) else {"extra.unknown": old}), **unknown}


def _known(value: dict[str, Any], record: type[model.Record], path: str, unknown: dict[str, Any]) -> dict[str, Any]:
    """Return `value` without the fields that `record` does not have; those go to `unknown` by their path."""
    fields = set(record.__struct_fields__) | ({"format"} if record is Trace else set())
    unknown.update({path + name: value[name] for name in value if name not in fields})
    known = {name: member for name, member in value.items() if name in fields}
    for name, inner in known.items():
        if name not in _MEMBERS:
            continue
        if isinstance(inner, dict):
            known[name] = _known(inner, _MEMBERS[name], f"{path}{name}.", unknown)
        if isinstance(inner, list):
            known[name] = [
                _known(m, _MEMBERS[name], f"{path}{name}[{n}].", unknown) if isinstance(m, dict) else m
                for n, m in enumerate(inner)
            ]
    return known


def _rename_repeated(value: dict[str, Any]) -> list[str]:
    """Give the second event of one id the first free id of `<id>~2`, `<id>~3`, ...; return the ids that were repeated."""
    events = value.get("events")
    named = [e for e in events if isinstance(e, dict) and isinstance(e.get("event_id"), str)] if isinstance(events, list) else []
    taken = {event["event_id"] for event in named}
    seen: dict[str, int] = {}
    repeated = []
    for event in named:
        name = event["event_id"]
        if name in seen:
            repeated.append(name)
            seen[name] = next(n for n in count(seen[name] + 1) if f"{name}~{n}" not in taken)
            event["event_id"] = f"{name}~{seen[name]}"
        else:
            seen[name] = 1
    return repeated
