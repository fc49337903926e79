"""How a policy file that does not fit its records is refused: which field, what stands there, what is allowed, what is near.

Hides how the place and the kind of a mistake are read off what msgspec says, which names neither the allowed words nor the value.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from analysis.curation.curriculum.stages import STAGES
from analysis.curation.fields import BOUNDS, Field, fields_of
from analysis.curation.gates import Gate
from analysis.errors import PolicyError, nearest

_SAID = re.compile(r"(?P<problem>.*?)(?: - at `(?:key` in `)?\$(?P<path>[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_WORD = re.compile(r"Invalid (?:enum )?value '?(.*?)'?", re.DOTALL)
_KINDS = {
    "number": "a number", "whole": "a whole number", "text": "a text", "yes-no": "true or false", "list": "a list of texts",
    "table": f"a table of stages ({', '.join(STAGES)}) with numbers from 0 to 1",
}  # fmt: skip
_GATES = {str(gate.__struct_config__.tag): gate for gate in typing.get_args(Gate)}
_HINT = "`counterpoint curate --explain` shows every field"


class _Place(NamedTuple):
    """What a path in a policy leads to: the record there or around it, the field if it is none of its own, and the value."""

    record: type[msgspec.Struct] | None
    field: Field | None
    value: Any


def refusal(record: type[msgspec.Struct], values: Mapping[str, Any], error: msgspec.ValidationError, place: str) -> PolicyError:
    """Return the error about plain values that are no `record`, from what msgspec says of them."""
    said = _SAID.fullmatch(str(error))
    problem, path = (said["problem"], said["path"] or "") if said else (str(error), "")
    parts = re.findall(r"\w+|\.\.\.", path)
    found = _at(record, values, parts)
    where = f"{place}: {path.strip('.') or 'the file'}"
    if unknown := _UNKNOWN.fullmatch(problem):
        return _choice(where, "no such field", unknown[1], _names(found.record))
    if missing := _MISSING.fullmatch(problem):
        return PolicyError(where, f"the field `{missing[1]}` is missing", expected=_needed(found.record, missing[1]), hint=_HINT)
    if word := _WORD.fullmatch(problem):
        return _choice(where, "this value is not allowed", word[1], _words(found, parts))
    if problem.startswith("Expected"):
        got = json.dumps(found.value, default=str, ensure_ascii=False)
        return PolicyError(where, "a field does not have its shape", got=got, expected=_shape(found, parts), hint=_HINT)
    return PolicyError(where, "a field does not have its shape", got=problem, hint=_HINT)


def _choice(where: str, problem: str, got: str, allowed: Sequence[str]) -> PolicyError:
    expected = ("one of " if len(allowed) > 1 else "") + ", ".join(allowed)
    return PolicyError(where, problem, got=got, expected=expected, hint=nearest(got, allowed, _HINT))


def _at(record: type[msgspec.Struct], value: Any, parts: Sequence[str]) -> _Place:
    place = _Place(record, None, value)
    for part in parts:
        if part.isdigit() and isinstance(place.value, list):
            inner = place.value[int(part)]
            is_gate = place.field is not None and place.field.name == "gates"
            gate = _GATES.get(str(inner.get("gate"))) if is_gate and isinstance(inner, dict) else None
            place = _Place(gate, None, inner) if is_gate else place._replace(value=inner)
        elif isinstance(place.value, Mapping) and part in place.value:
            hint = typing.get_type_hints(place.record).get(part) if place.record is not None else None
            is_section = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
            field = None if is_section else _field(place.record, part)
            place = _Place(hint if is_section else place.record, field, place.value[part])
    return place


def _names(record: type[msgspec.Struct] | None) -> list[str]:
    """The fields that a record can have; of a gate also the one that says which gate it is."""
    names = [field.name for field in fields_of(record)] if record is not None else []
    return ["gate", *names] if record in _GATES.values() else names


def _needed(record: type[msgspec.Struct] | None, name: str) -> str:
    if name == "gate":
        return f"one of {', '.join(_GATES)}"
    field = _field(record, name)
    return "" if field is None else field.meaning


def _field(record: type[msgspec.Struct] | None, name: str) -> Field | None:
    return next((field for field in (fields_of(record) if record is not None else ()) if field.name == name), None)


def _words(place: _Place, parts: Sequence[str]) -> Sequence[str]:
    if parts[-1] == "gate":
        return list(_GATES)
    return place.field.options if place.field is not None and place.field.options else STAGES


def _shape(place: _Place, parts: Sequence[str]) -> str:
    """What belongs at a place, in words."""
    if place.field is None:
        return f"one of {', '.join(_GATES)}" if parts[-1:] == ["gate"] else "a table"
    field = place.field
    if field.name == "gates":
        return "tables that begin with [[gates]]"
    kind = "a text" if parts[-1].isdigit() else _KINDS[field.kind]
    kind = "a whole number" if field.options and all(map(str.isdigit, field.options)) else kind
    bounds = [f"{sign} {field.bounds[name]:g}" for name, sign in BOUNDS if name in field.bounds]
    words = [f"among {', '.join(field.options)}"] if field.options else []
    return " ".join([f"{kind}{' ' if bounds else ''}{', '.join(bounds)}", *words])
