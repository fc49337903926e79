"""Couplings: relations that are stated once, in a TOML file, and hold in every trace that they match.

It decides which traces a coupling is about and which of its relations tie anything there; it hides the file format and
the files that ship with the package, whose couplings follow from the meaning of the words of a format.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

from analysis.coherence.cliques import check_satisfiable
from analysis.coherence.relations import COUNTS, Formula, Linear, Node, names_of, parse, parse_proposition
from analysis.coherence.templates import check, expand
from analysis.coherence.turns import usable
from analysis.errors import RelationError, TraceError, UnknownNameError
from analysis.model import Claim, Id, Relation, Trace

_KEYS = ("name", "why", "match", "relations", "template", "arguments")
_SHAPE = 'write [[coupling]] tables: name = "…", why = "…", relations = ["iff(a, b)"] or template and arguments'
_ORDERLESS = {"and", "or", "xor", "equal", *COUNTS}


class Match(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which traces: patterns such as `tau*`. Empty is all; of each field that is given one pattern must match.

    `component` matches where an agent of the trace has it.
    """

    format: tuple[Id, ...] = ()
    task: tuple[Id, ...] = ()
    domain: tuple[Id, ...] = ()
    component: tuple[Id, ...] = ()


class Coupling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Relations, written out or by a template, for the traces that match; `why` tells the reader what they follow from."""

    name: Id
    why: Id
    match: Match = Match()
    relations: tuple[Id, ...] = ()
    template: Id | None = None
    arguments: dict[str, tuple[Id, ...]] = {}
    basis: Literal["derived"] = "derived"
    source: str = ""


def read_couplings(path: str | Path) -> tuple[Coupling, ...]:
    """Return the couplings of a TOML file, in its order.

    Raises
    ------
    TraceError
        If the file cannot be read, is no TOML, or has a table of another shape; it names the file and the coupling.
    RelationError
        If a formula or a template cannot be read, or the relations of a coupling contradict each other.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        problem, hint = "the coupling file cannot be read", "check that it exists and its permissions"
        raise TraceError(str(path), problem, got=error.strerror or str(error), hint=hint) from None
    except UnicodeDecodeError:
        raise TraceError(str(path), "the coupling file is not UTF-8 text", hint="save it as UTF-8") from None
    return _read(text, str(path))


@lru_cache(maxsize=1)
def default_couplings() -> tuple[Coupling, ...]:
    """Return the couplings that ship with the package, in the order of their files.

    >>> sorted({coupling.source for coupling in default_couplings()})[-1]
    'defaults/whowhen.toml'
    """
    folder = files("analysis.coherence") / "defaults"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return tuple(one for file in found for one in _read(file.read_text(encoding="utf-8"), f"defaults/{file.name}"))


def relations_for(trace: Trace, claims: Sequence[Claim], couplings: Sequence[Coupling]) -> tuple[Relation, ...]:
    """Return the relations that couplings add to a trace, by name of the coupling; the order of `couplings` is no matter.

    A formula applies if all its propositions are quoted by usable claims, one of a template if two are: the others would
    tie nothing. What the trace itself states is not stated again.

    Raises
    ------
    RelationError, UnknownNameError
        If a relation of the trace itself cannot be read.

    Examples
    --------
    >>> from analysis.model import Source
    >>> trace = Trace(trace_id="t", world="recorded", source=Source(format="whowhen"))
    >>> said = [Claim(claim_id=name, component="x", proposition=name, p=1.0) for name in ("in_loop", "progress_being_made")]
    >>> [(tie.relation_id, tie.formula) for tie in relations_for(trace, said, default_couplings())]
    [('coupling:ledger-loop:1', 'implies(in_loop, ~progress_being_made)')]
    """
    quoted = {name for claim in usable(claims).claims for name in names_of(parse_proposition(claim.proposition))}
    known = {_meaning(parse(relation.formula)) for relation in trace.relations}
    n_of: Counter[str] = Counter()
    found = []
    for coupling in sorted(couplings, key=lambda one: (one.name, one.source)):
        if not _is_about(coupling.match, trace):
            continue
        for text in _formulas(coupling, quoted):
            if (meaning := _meaning(parse(text))) in known:
                continue
            known.add(meaning)
            n_of[coupling.name] += 1
            relation_id = f"coupling:{coupling.name}:{n_of[coupling.name]}"
            found.append(Relation(relation_id=relation_id, formula=text, basis=coupling.basis, rule=coupling.name))
    return tuple(found)


def _formulas(coupling: Coupling, quoted: set[str]) -> Iterator[str]:
    yield from (text for text in coupling.relations if quoted >= set(parse(text).names))
    if coupling.template is not None:
        yield from expand(coupling.template, coupling.arguments, quoted)


def _is_about(match: Match, trace: Trace) -> bool:
    fields: list[tuple[Sequence[str], list[str | None]]] = [
        (match.format, [trace.source.format]),
        (match.task, [trace.task.task_id]),
        (match.domain, [trace.task.domain]),
        (match.component, [agent.component for agent in trace.agents]),
    ]
    return all(
        any(fnmatchcase(value, pattern) for value in values if value is not None for pattern in patterns)
        for patterns, values in fields
        if patterns
    )


def _meaning(formula: Formula) -> Node | Linear:
    content = formula.content
    return content if isinstance(content, Linear) else _ordered(content)


def _ordered(node: Node) -> Node:
    if node.op == "name":
        return node
    parts = tuple(_ordered(part) for part in node.parts)
    return Node(node.op, tuple(sorted(parts, key=repr)) if node.op in _ORDERLESS else parts)


def _read(text: str, source: str) -> tuple[Coupling, ...]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TraceError(source, "not a TOML file", got=str(error), hint=_SHAPE) from None
    _check_keys(document, ("coupling",), place=source, what="table")
    tables = document.get("coupling")
    if not isinstance(tables, list) or not tables:
        raise TraceError(source, "no couplings", got=type(tables).__name__ if tables else "nothing", hint=_SHAPE)
    found: dict[str, Coupling] = {}
    for n, table in enumerate(tables, 1):
        coupling = _coupling(table, source, n)
        if coupling.name in found:
            raise TraceError(f"{source}: coupling {n}", "a name occurs twice", got=coupling.name, hint="rename one of them")
        found[coupling.name] = coupling
    return tuple(found.values())


def _coupling(table: Any, source: str, n: int) -> Coupling:
    if not isinstance(table, dict):
        raise TraceError(f"{source}: coupling {n}", "not a table", got=type(table).__name__, hint=_SHAPE)
    name = table.get("name")
    place = f"{source}: coupling {name if isinstance(name, str) and name else n}"
    _check_keys(table, _KEYS, place=place, what="key")
    if isinstance(match := table.get("match"), dict):
        _check_keys(match, Match.__struct_fields__, place=place, what="key of match")
    if isinstance(arguments := table.get("arguments"), dict):
        table = table | {"arguments": {k: [v] if isinstance(v, str) else v for k, v in arguments.items()}}
    try:
        coupling = msgspec.convert(table | {"source": source}, Coupling)
    except msgspec.ValidationError as error:
        raise TraceError(place, f"a value does not fit: {error}", hint=_SHAPE) from None
    _check_content(coupling, place)
    return coupling


def _check_keys(table: dict[str, Any], known: Sequence[str], *, place: str, what: str) -> None:
    if unknown := sorted(table.keys() - set(known)):
        raise TraceError(place, f"unknown {what}", got=", ".join(unknown), expected=", ".join(known), hint="correct or remove it")


def _check_content(coupling: Coupling, place: str) -> None:
    if not coupling.relations and coupling.template is None:
        raise TraceError(place, "no relations and no template", hint=_SHAPE)
    if coupling.template is not None:
        check(coupling.template, coupling.arguments, place=place)
    elif coupling.arguments:
        raise TraceError(place, "arguments without a template", got=", ".join(coupling.arguments), hint="name the template")
    try:
        check_satisfiable([parse(text) for text in coupling.relations])
    except (RelationError, UnknownNameError) as error:
        raise RelationError(place, str(error)) from None
