"""What each line follows, and the chains that the lines of one agent make.

Hidden here: the rules that bridge broken chains. What a line follows comes before it in the end: the causes make no circle,
whatever the file says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analysis.readers.claude_code.contents import name_of
from analysis.readers.claude_code.lines import Line, ModelCall
from analysis.readers.claude_code.tally import Found, report

Chain = tuple[str, str]  # main; agent and its id; root and the first line of an old sub-agent, which has no id
MAIN_CHAIN: Chain = ("main", "")


class Ties(NamedTuple):
    """What each line follows, and by which rule that was found where the line does not state it."""

    cause: dict[int, Line]
    rules: dict[int, str]
    found: Found


def ties_of(base: Sequence[Line], known: Mapping[str, Line]) -> Ties:
    """Return what each line says it follows; `known` finds lines by uuid."""
    ties = Ties({}, {}, {})
    for line in base:
        for name, rule in (("parentUuid", None), ("logicalParentUuid", "logical-parent")):
            cause = known.get(line.text(name) or "")
            if cause is None or cause is line:
                continue
            ties.cause[line.index] = cause
            if rule is not None:
                ties.rules[line.index] = rule
            break
    return ties


def bridge(order: Sequence[Line], ties: Ties, askers: Mapping[str, Line]) -> None:
    """Tie lines whose stated one is not there, and lines behind a break; `askers` finds lines by their tool calls.

    A line that says it follows none is the first of an old sub-agent; elsewhere it only comes after a break.
    """
    earlier: set[int] = set()
    latest: dict[Chain, Line] = {}
    said: dict[ModelCall, Line] = {}
    for line in order:
        earlier.add(line.index)
        if (chain := _chain(line)) is None:
            continue
        is_missing = line.raw.get("parentUuid") is not None
        is_first = chain[0] == "side" and "parentUuid" in line.raw and not is_missing
        if line.index not in ties.cause and not is_first:
            cause, rule = latest.get(chain), "nearest-earlier"
            if is_missing:
                cause, rule = _instead(line, askers, said) or (cause, rule)
            if cause is not None and cause.index in earlier:
                ties.cause[line.index], ties.rules[line.index] = cause, rule
            elif is_missing:
                report(ties.found, "orphan", line.file, got=str(line.uuid), expected="the line that it follows")
        latest[chain] = line
        if line.call is not None:
            said[line.call] = line


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


def _instead(line: Line, askers: Mapping[str, Line], said: Mapping[ModelCall, Line]) -> tuple[Line, str] | None:
    """Return the line that called for this result, or the one before in this message, with the rule."""
    for block in line.blocks:
        asker = askers.get(name_of(block.get("tool_use_id")) or "")
        if asker is not None and asker is not line:
            return asker, "call-of-result"
    if line.call is not None and line.call in said:
        return said[line.call], "same-message"
    return None
