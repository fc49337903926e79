"""Where synthesis, replay and scrutiny go: less to components that cannot contradict each other, more to those tightly coupled.

Decides what a block is and how its budget follows from coupling bits. The test behind the bits is joint and is that of
`coherence.product`; that every pair of components passes it proves nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import msgspec

from analysis.coherence.cliques import Clique
from analysis.coherence.levels import TEAM
from analysis.coherence.product import coupling
from analysis.curation.fields import Share, means

_UNIT = 2**-40  # shares are whole multiples of it, so that they add up to exactly 1 in any order


class Mixing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How budget moves from blocks that pass the joint product test to those that do not, in proportion to their bits."""

    relaxed: Annotated[
        Share, means("what a block that passes the joint test keeps of its budget; 1: nothing moves", "share of its budget")
    ] = 0.25


class Tied(NamedTuple):
    """What ties some components of a trace: log2(Π |V_a| / |V|) bits over their worlds; None where these were not counted."""

    trace_id: str
    components: tuple[str, ...]
    bits: float | None


class Block(NamedTuple):
    """Components that are tied together in some traces, and their part of the budget.

    coupling_bits : mean over its traces, None where no trace's worlds were counted
    passes_joint : whether they are a product in every trace: coherent components are coherent together, whatever they quote
    share_before : each trace counts 1, divided evenly among its blocks
    share_after, scrutiny : what the block gets, and how often what it had
    """

    components: tuple[str, ...]
    n_traces: int
    coupling_bits: float | None
    passes_joint: bool | None
    share_before: float
    share_after: float
    scrutiny: float


def tied(trace_id: str, cliques: Iterable[Clique]) -> list[Tied]:
    """Return what the cliques of a trace tie; those of the same components are one, their bits add up.

    No relation ties two cliques, so worlds multiply over them and the joint test of any union of cliques is theirs.

    >>> from analysis.coherence.cliques import Quote, tie
    >>> from analysis.coherence.relations import parse
    >>> quotes = [Quote(name, name, 0.5) for name in "abc"]
    >>> tied("t", tie(quotes, [parse("iff(c, a ^ b)")]))
    [Tied(trace_id='t', components=('a', 'b', 'c'), bits=1.0)]
    """
    found: dict[tuple[str, ...], float | None] = {}
    for clique in cliques:
        counted, before = coupling(clique), found.get(clique.components, 0.0)
        found[clique.components] = None if counted is None or before is None else before + counted.bits
    return [Tied(trace_id, components, found[components]) for components in sorted(found)]


def stored(cliques: Iterable[Mapping[str, Any]]) -> list[Tied]:
    """Return what is tied in each trace, from rows of the table `cliques`.

    The level that ties all others speaks for a trace where it is there; else all its levels do, and the bits of the same
    components add up.
    """
    rows = list(cliques)
    has_team = {row["trace_id"] for row in rows if row["level"] == TEAM}
    found: dict[tuple[str, tuple[str, ...]], float | None] = {}
    for row in rows:
        if row["level"] != TEAM and row["trace_id"] in has_team:
            continue
        place = (row["trace_id"], tuple(sorted(msgspec.json.decode(row["components"], type=list[str]))))
        more, before = row["coupling_bits"], found.get(place, 0.0)
        found[place] = None if more is None or before is None else before + more
    return [Tied(trace_id, components, value) for (trace_id, components), value in sorted(found.items())]


def mixture(trace_ids: Sequence[str], ties: Iterable[Tied], policy: Mixing) -> list[Block]:
    """Return the blocks of a data set with their shares of a budget before and after, the most tightly coupled first.

    Blocks that pass the joint test keep the share `relaxed` of what they had. What they give up goes to the blocks that
    fail it, in proportion to share_before · bits: scrutiny is 1 + given · bits / Σ share_before · bits, linear in the bits
    of a block. Blocks whose bits are not known, and traces in which nothing is tied (no components), keep what they had;
    so does everybody where no block fails. Either column of shares adds up to exactly 1.

    >>> ties = [Tied("t1", ("a", "b"), 0.0), Tied("t2", ("b", "c"), 1.0)]
    >>> [(block.components, block.share_after) for block in mixture(["t1", "t2"], ties, Mixing())]
    [(('b', 'c'), 0.875), (('a', 'b'), 0.125)]
    """
    members = _members(trace_ids, ties)
    n_blocks = Counter(tie.trace_id for found in members.values() for tie in found)
    before = [float(sum(Fraction(1, n_blocks[tie.trace_id]) for tie in found)) for found in members.values()]
    bits = [_mean_bits(found) for found in members.values()]
    passes = [None if value is None else value == 0 for value in bits]
    pull = [share * (value or 0.0) for share, value in zip(before, bits, strict=True)]
    given = sum(share * (1 - policy.relaxed) for share, product in zip(before, passes, strict=True) if product)
    scrutiny = [1.0] * len(bits)
    if sum(pull) > 0:
        scrutiny = [policy.relaxed if value == 0 else 1 + given * (value or 0.0) / sum(pull) for value in bits]
    after = [share * factor for share, factor in zip(before, scrutiny, strict=True)]
    found = map(Block, members, map(len, members.values()), bits, passes, _shares(before), _shares(after), scrutiny)
    return sorted(found, key=lambda block: (-(block.coupling_bits or 0.0), block.components))


def _members(trace_ids: Sequence[str], ties: Iterable[Tied]) -> dict[tuple[str, ...], list[Tied]]:
    """Return the traces of each block; those in which nothing is tied make one without components."""
    loose = dict.fromkeys(trace_ids)
    members: dict[tuple[str, ...], list[Tied]] = {}
    for tie in [tie for tie in ties if tie.trace_id in loose]:
        members.setdefault(tie.components, []).append(tie)
    for tie in [tie for found in members.values() for tie in found]:
        loose.pop(tie.trace_id, None)
    if loose:
        members[()] = [Tied(trace_id, (), None) for trace_id in loose]
    return members


def _mean_bits(ties: Sequence[Tied]) -> float | None:
    known = [tie.bits for tie in ties if tie.bits is not None]
    # Of a block that passes where it was tested, but was not tested everywhere, nothing is known.
    return None if not known or (len(known) < len(ties) and not any(known)) else math.fsum(known) / len(known)


def _shares(values: Sequence[float]) -> list[float]:
    """Return parts of 1 in proportion to the values, as whole units of which the largest remainders get one more."""
    total = math.fsum(values)
    exact = [value / total / _UNIT for value in values]
    units = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(exact)), key=lambda n: units[n] - exact[n])
    for n in by_remainder[: round(1 / _UNIT) - sum(units)]:
        units[n] += 1
    return [unit * _UNIT for unit in units]
