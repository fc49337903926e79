"""Patterns taken along: written to a file with what they were worth and where, and read again.

Decides the file format and what makes a file unusable. What a pattern was worth where it was found is kept as it was;
`matching` looks for it elsewhere.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from analysis.errors import CounterpointError
from analysis.orchestration.patterns.canonical import is_connected, pattern_id
from analysis.orchestration.patterns.families import Family, family_ids
from analysis.orchestration.patterns.graphs import Labelling, PatternGraph
from analysis.orchestration.patterns.mining import Pattern
from analysis.orchestration.patterns.naming import structure_name

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "counterpoint-patterns/1"

_MAX_CHECKED = 10  # edges of a pattern whose id is worked out again; for a star of 20 that takes minutes
_MAX_BYTES = 64 * 2**20

Edge = tuple[int, int, str]


class Worth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What runs with a pattern differed in, where it was found; None where it was not known."""

    value: float | None
    low: float | None
    high: float | None
    n_with: int
    n_without: int
    p_adjusted: float | None
    evidence: str


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern with what it was worth: metric -> lift. `family` is the family of patterns that held it."""

    pattern_id: str
    name: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    support: int
    support_share: float
    family: str | None = None
    lift: dict[str, Worth] = {}


class FamilyEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A family of runs: the graph of its medoid, how many runs and forms it had, and what it was worth."""

    family_id: str
    name: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    n_members: int
    n_forms: int
    lift: dict[str, Worth] = {}


class Library(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Patterns and families of one corpus under one labelling.

    provenance : where they come from (workspace, data version, number of traces, options of the miner, ...), as text
    """

    labelling: Labelling
    provenance: dict[str, str]
    patterns: tuple[Entry, ...]
    families: tuple[FamilyEntry, ...] = ()
    format: str = FORMAT


def entries(patterns: Sequence[Pattern], lifts: pd.DataFrame, *, families: Sequence[Family] = ()) -> tuple[Entry, ...]:
    """Return patterns as entries of a library, with their names in words and their rows of `value.lifts`.

    families : of patterns; an entry names the family that holds it
    """
    worth = _worth(lifts)
    family_of = {member: family.family_id for family in families for member in family.members}
    return tuple([
        Entry(
            pattern_id=pattern.pattern_id, name=structure_name(pattern.nodes, pattern.edges), nodes=pattern.nodes,
            edges=pattern.edges, support=pattern.support, support_share=pattern.support_share,
            family=family_of.get(pattern.pattern_id), lift=worth.get(pattern.pattern_id, {}),
        )
        for pattern in patterns
    ])  # fmt: skip


def family_entries(families: Sequence[Family], graphs: Sequence[PatternGraph], *, lifts: pd.DataFrame) -> tuple[FamilyEntry, ...]:
    """Return families of runs as entries of a library; `graphs` hold the medoids, `lifts` their rows of `value.lifts`."""
    worth = _worth(lifts)
    graph_of = {graph.trace_id: graph for graph in graphs}
    return tuple([
        FamilyEntry(
            family_id=family.family_id, name=family.name, nodes=graph_of[family.medoid].labels,
            edges=graph_of[family.medoid].edges, n_members=len(family.members), n_forms=family.n_forms,
            lift=worth.get(family.family_id, {}),
        )
        for family in families
    ])  # fmt: skip


def export_library(library: Library) -> bytes:
    """Return a library as JSON, the same bytes for the same library."""
    return msgspec.json.format(msgspec.json.encode(library, order="sorted"), indent=1) + b"\n"


def import_library(data: bytes, *, place: str = "pattern library") -> Library:
    """Return the library in a file; `import_library(export_library(x)) == x`.

    Raises
    ------
    CounterpointError
        If it is no JSON, of another version, or a graph in it cannot be or has the id of another. The text says where.
        Ids of patterns with more than 10 edges are believed.
    """
    if len(data) > _MAX_BYTES:
        raise CounterpointError(place, "too large for a pattern library", got=f"{len(data)} bytes", expected=f"<= {_MAX_BYTES}")
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version != FORMAT:
            raise CounterpointError(place, "not a pattern library of this version", got=version, expected=FORMAT)
        library = msgspec.json.decode(data, type=Library)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CounterpointError(place, "not a pattern library", got=str(error), expected=FORMAT, hint="export it again") from None
    stated = [(f"patterns[{n}]", entry.pattern_id, _id_of(entry, f"{place}: patterns[{n}]"))
              for n, entry in enumerate(_sound(library.patterns, place))]  # fmt: skip
    stated += [(f"families[{n}]", entry.family_id, _id_of_family(entry, f"{place}: families[{n}]"))
               for n, entry in enumerate(_sound(library.families, place))]  # fmt: skip
    seen: set[str] = set()
    for where, name, its_id in stated:
        if name != its_id:
            raise CounterpointError(f"{place}: {where}", "the id belongs to another graph", got=name, expected=its_id,
                                    hint="the file was changed by hand; export it again")  # fmt: skip
        if name in seen:
            raise CounterpointError(f"{place}: {where}", "it stands there twice", got=name, hint="remove one of them")
        seen.add(name)
    return library


class _Version(msgspec.Struct):
    format: str


def _worth(lifts: pd.DataFrame) -> dict[str, dict[str, Worth]]:
    worth: dict[str, dict[str, Worth]] = defaultdict(dict)
    for row in lifts[lifts["n_with"] > 0].to_dict("records"):
        value, low, high, p = (
            float(row[name]) if math.isfinite(row[name]) else None for name in ("lift", "low", "high", "p_adjusted")
        )
        worth[row["item"]][row["metric"]] = Worth(
            value=value, low=low, high=high, n_with=int(row["n_with"]), n_without=int(row["n_without"]), p_adjusted=p,
            evidence=row["evidence"],
        )  # fmt: skip
    return worth


_Any = TypeVar("_Any", Entry, FamilyEntry)


def _sound(found: Sequence[_Any], place: str) -> Sequence[_Any]:
    """Return the entries after a look at their numbers."""
    for n, entry in enumerate(found):
        where = f"{place}: {'patterns' if isinstance(entry, Entry) else 'families'}[{n}]"
        for source, target, _ in entry.edges:
            if not (0 <= source < len(entry.nodes) and 0 <= target < len(entry.nodes)):
                raise CounterpointError(where, "an edge leads to a node that is not there", got=f"{source} to {target}",
                                        expected=f"0 to {len(entry.nodes) - 1}")  # fmt: skip
        if isinstance(entry, Entry) and not (0 <= entry.support_share <= 1 and entry.support >= 0):
            got = f"{entry.support}, {entry.support_share}"
            raise CounterpointError(where, "a support that cannot be", got=got, expected="a count and a share in [0, 1]")
    return found


def _id_of(entry: Entry, place: str) -> str:
    ends = [edge[:2] for edge in entry.edges]
    if not entry.edges or any(a == b for a, b in ends) or not is_connected(ends, len(entry.nodes)):
        raise CounterpointError(place, "this is no pattern", expected="connected, one edge at least, none from a node to itself")
    return pattern_id(entry.nodes, entry.edges) if len(entry.edges) <= _MAX_CHECKED else entry.pattern_id


def _id_of_family(entry: FamilyEntry, place: str) -> str:
    try:
        return family_ids([PatternGraph("", entry.nodes, entry.edges, ())])[0]
    except ValueError as error:
        raise CounterpointError(place, "no run can have this graph", got=str(error)) from None
