"""What each line follows, and the chains that the lines of one agent make.

Hidden here: the rules that bridge broken chains. What a line follows comes before it in the end: the causes make no circle,
whatever the file says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analysis.readers.claude_code.lines import Found, Line, ModelCall, name_of, report

Chain = tuple[str, str]  # main; agent and its id; root and the first line of an old sub-agent, which has no id
MAIN_CHAIN: Chain = ("main", "")


class Ties(NamedTuple):
    """What each line follows, and by which rule that was found where the line does not state it."""

    cause: dict[int, Line]
    rules: dict[int, str]
    found: Found


def ties_of(base: Sequence[Line], known: Mapping[str, Line], askers: Mapping[str, Line]) -> Ties:
    """Return what each line follows; `known` finds lines by uuid, `askers` by the tool calls that stand there."""
    ties = Ties({}, {}, {})
    latest: dict[Chain, Line] = {}
    said: dict[ModelCall, Line] = {}
    for line in base:
        if (chain := _chain(line)) is None:
            continue
        cause, rule = _stated(line, chain, known, latest)
        if rule == "missing":
            cause, rule = _bridge(line, latest.get(chain), askers, said)
            if cause is None:
                report(ties.found, "orphan", line.file, got=str(line.uuid), expected="the line that it follows")
        if cause is not None:
            ties.cause[line.index] = cause
        if cause is not None and rule is not None:
            ties.rules[line.index] = rule
        latest[chain] = line
        if line.call is not None:
            said[line.call] = line
    return ties


def chains_of(base: Sequence[Line], cause: Mapping[int, Line]) -> dict[int, Chain]:
    """Return line -> chain; the lines of an old sub-agent belong to the one that they lead up to."""
    chains: dict[int, Chain] = {}
    for line in base:
        path: list[Line] = []
        at: Line | None = line
        while at is not None and at.index not in chains and (chain := _chain(at)) is not None and chain[0] == "side":
            chains[at.index] = ("root", str(at.index))  # stands at the top, and where lines follow each other in a circle
            path.append(at)
            at = cause.get(at.index)
        if path:
            above = chains.get(at.index, MAIN_CHAIN) if at is not None else MAIN_CHAIN
            root = above if above[0] == "root" else chains[path[-1].index]
            chains.update((step.index, root) for step in path)
        elif line.index not in chains and (own := _chain(line)) is not None:
            chains[line.index] = own
    return chains


def start_agents(base: Sequence[Line], owner: Mapping[int, str], starts: Mapping[str, Line], ties: Ties) -> None:
    """Let the lines that begin a sub-agent follow the call that started it."""
    for line in base:
        name = owner.get(line.index)
        if name is None or name not in starts:
            continue
        cause = ties.cause.get(line.index)
        if cause is None or owner.get(cause.index) != name:
            ties.cause[line.index] = starts[name]
            ties.rules.pop(line.index, None)


def ordered(base: Sequence[Line], ties: Ties) -> list[Line]:
    """Return the lines by time, but each after the one it follows; where they follow each other, one loses its cause."""
    done: set[int] = set()
    order: list[Line] = []
    for line in base:
        path: list[Line] = []
        at: Line | None = line
        while at is not None and at.index not in done:
            done.add(at.index)
            path.append(at)
            at = ties.cause.get(at.index)
        order += reversed(path)
    position = {line.index: n for n, line in enumerate(order)}
    for line in order:
        cause = ties.cause.get(line.index)
        if cause is not None and position[cause.index] >= position[line.index]:
            del ties.cause[line.index]
            report(ties.found, "orphan", line.file, got=str(line.uuid), expected="a line that does not follow it")
    return order


def _chain(line: Line) -> Chain | None:
    """Return the chain that a line says it is of: an old sub-agent's only says that it is on some side."""
    if line.uuid is None and not line.is_said:
        return None
    if line.agent is not None:
        return "agent", line.agent
    return ("side", line.file) if line.is_side else MAIN_CHAIN


def _stated(line: Line, chain: Chain, known: Mapping[str, Line], latest: Mapping[Chain, Line]) -> tuple[Line | None, str | None]:
    """Return the line that this one says it follows; the rule is `missing` where that one is not there.

    A line that says it follows none is the first of an old sub-agent; elsewhere it only comes after a break.
    """
    stated = line.raw.get("parentUuid")
    if stated is not None:
        cause = known.get(stated) if isinstance(stated, str) else None
        return (None, "missing") if cause is None or cause is line else (cause, None)
    before_compaction = known.get(line.text("logicalParentUuid") or "")
    if before_compaction is not None and before_compaction is not line:
        return before_compaction, "logical-parent"
    if chain[0] == "side" and "parentUuid" in line.raw:
        return None, None
    return latest.get(chain), "nearest-earlier"


def _bridge(
    line: Line, nearest: Line | None, askers: Mapping[str, Line], said: Mapping[ModelCall, Line]
) -> tuple[Line | None, str]:
    """Return what stands in for a line that is not there: the call of a result, the same message, the line before."""
    for block in line.blocks:
        asker = askers.get(name_of(block.get("tool_use_id")) or "")
        if asker is not None and asker is not line:
            return asker, "call-of-result"
    if line.call is not None and line.call in said:
        return said[line.call], "same-message"
    return nearest, "nearest-earlier"
