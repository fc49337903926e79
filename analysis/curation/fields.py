"""What the fields of a policy mean: each carries its meaning and unit, from which texts and forms are made.

Hides how meaning, bounds and choices are read off the annotations of a record, and how a record becomes TOML.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
_BARE = re.compile("[A-Za-z0-9_-]+")
#: Of the bounds of a field: what msgspec calls each, and its sign.
BOUNDS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))


class Field(NamedTuple):
    """One field: what it means, in which unit, what is allowed, what it is when nobody sets it.

    `bounds`: such as {"ge": 0, "le": 1}; `options`: the words it can be, where they are few; `default`: a plain value, None
    where it can be left out; `is_required`: it has no default; `kind`: number, whole, text, yes-no, list or table.
    """

    name: str
    meaning: str
    unit: str
    kind: str
    default: Any
    is_required: bool
    options: tuple[str, ...]
    bounds: dict[str, float]


def means(meaning: str, unit: str = "") -> Meta:
    """Return the annotation that says what a field means and in which unit it is."""
    return Meta(description=meaning, extra={"unit": unit})


def fields_of(record: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the fields of a record of a policy, in their order.

    >>> class Gate(msgspec.Struct):
    ...     most: Annotated[Share, means("the largest that passes", "share")] = 0.5
    >>> fields_of(Gate)[0].meaning, fields_of(Gate)[0].bounds
    ('the largest that passes', {'ge': 0, 'le': 1})
    """
    hints = typing.get_type_hints(record, include_extras=True)
    return tuple([_field(field, hints[field.name]) for field in msgspec.structs.fields(record)])


def toml_of(record: msgspec.Struct, *, is_explained: bool = False) -> str:
    """Return a record as TOML that reads back as the same record; where `is_explained`, every field is preceded by its meaning.

    A field that is None has no place in TOML: it stands as a comment where explained, and is left out else.
    """
    return "\n".join(_lines(record, "", is_explained)).strip() + "\n"


def toml_text(values: Mapping[str, Any]) -> str:
    """Return plain values as TOML that reads back as the same, whether or not they make a record.

    >>> print(toml_text({"gates": [{"gate": "outcome"}], "seed": 3}), end="")
    seed = 3
    <BLANKLINE>
    [[gates]]
    gate = "outcome"
    """
    lines = [f"{_key(name)} = {_value(value)}" for name, value in values.items() if not _rows(value)]
    for name, value in values.items():
        head = f"[{_key(name)}]" if isinstance(value, Mapping) else f"[[{_key(name)}]]"
        for row in _rows(value):
            lines += ["", head, *(f"{_key(part)} = {_value(content)}" for part, content in row.items())]
    return "\n".join(lines).strip() + "\n"


def _rows(value: Any) -> list[Mapping[str, Any]]:
    """The tables that a value is; none where it is none."""
    rows = value if isinstance(value, list) else [value]
    return rows if all(isinstance(row, Mapping) for row in rows) else []


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _field(field: Any, hint: Any) -> Field:
    metas = list(_metas(hint))
    meaning = next((meta.description for meta in metas if meta.description), "")
    unit = next((meta.extra["unit"] for meta in metas if meta.extra and "unit" in meta.extra), "")
    bounds = {name: getattr(meta, name) for meta in metas for name, _ in BOUNDS if getattr(meta, name) is not None}
    options = tuple([str(word) for part in _parts(hint) if typing.get_origin(part) is Literal for word in typing.get_args(part)])
    default = None if field.required else field.default_factory() if _has_factory(field) else field.default
    return Field(field.name, meaning, unit, _kind(hint), msgspec.to_builtins(default), field.required, options, bounds)


def _has_factory(field: Any) -> bool:
    return field.default_factory is not msgspec.NODEFAULT


def _metas(hint: Any) -> Iterator[Meta]:
    """The annotations of a field, the outer ones first, and of its parts."""
    if typing.get_origin(hint) is Annotated:
        yield from (note for note in hint.__metadata__ if isinstance(note, Meta))
        yield from _metas(hint.__origin__)
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for option in typing.get_args(hint):
            yield from _metas(option)


def _parts(hint: Any) -> list[Any]:
    """What a field can be, seen through annotations, `| None` and the members of a list."""
    if typing.get_origin(hint) is Annotated:
        return _parts(hint.__origin__)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [part for option in typing.get_args(hint) if option is not type(None) for part in _parts(option)]
    return [hint, *(part for member in typing.get_args(hint) if typing.get_origin(hint) is tuple for part in _parts(member))]


def _kind(hint: Any) -> str:
    part = _parts(hint)[0]
    if typing.get_origin(part) is tuple:
        return "list"
    if typing.get_origin(part) is Literal:
        return "text"
    return {bool: "yes-no", int: "whole", float: "number", str: "text"}.get(part, "table")


def _lines(record: msgspec.Struct, path: str, is_explained: bool) -> Iterator[str]:
    tables: list[tuple[str, Any]] = []
    for field in fields_of(type(record)):
        value = getattr(record, field.name)
        if _is_tables(value):
            tables.append((f"{path}.{field.name}".strip("."), value))
            continue
        if is_explained:
            yield from _explanation(field)
        if value is not None:
            yield f"{field.name} = {_value(msgspec.to_builtins(value))}"
        elif is_explained:
            yield f"#   {field.name} = …"
    for name, value in tables:
        for part in value if isinstance(value, tuple) else (value,):
            yield from ("", f"[[{name}]]" if isinstance(value, tuple) else f"[{name}]")
            if tag := type(part).__struct_config__.tag:
                yield f'{type(part).__struct_config__.tag_field} = "{tag}"'
            yield from _lines(part, name, is_explained)


def _is_tables(value: Any) -> bool:
    return isinstance(value, msgspec.Struct) or (
        isinstance(value, tuple) and bool(value) and isinstance(value[0], msgspec.Struct)
    )


def _explanation(field: Field) -> Iterator[str]:
    default = "none" if field.is_required else "left out" if field.default is None else _value(field.default)
    allowed = " | ".join(field.options) or ", ".join(
        f"{sign} {field.bounds[name]:g}" for name, sign in BOUNDS if name in field.bounds
    )
    facts = [f"unit: {field.unit}" if field.unit else "", allowed, f"default: {default}"]
    yield f"# {field.meaning} ({'; '.join(filter(None, facts))})"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_value(str(key))} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value)
