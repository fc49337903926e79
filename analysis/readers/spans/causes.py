"""What led to what inside each agent's run, by one rule: a model call reads all that ended since the last one.

What is no model call follows the model call that ended last before it. Siblings are tied in no other way: that two tools
ran one after the other does not say that one needed the other. Where an agent's model calls were not recorded, whatever it
starts reads as they would. What has been read is not read again, so ties grow with the spans, not with their square.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from analysis.readers.spans.handing import Handing
from analysis.readers.spans.nodes import Node

_HOLDERS: Final = {"chain", "plan", "create_agent", None}


class Merge(NamedTuple):
    """A model call that reads the results of several agents."""

    agent: str | None
    points: tuple[str, ...]


class Causes(NamedTuple):
    """By place of a span: the events it follows, the merge before it; by run (-1: outside all): what nothing there has read."""

    heard: dict[int, tuple[str, ...]]
    merges: dict[int, Merge]
    unread: dict[int, list[str]]


class _End(NamedTuple):
    end_ns: int
    n: int
    event_id: str
    what: str  # model, result, other, or silent: it ends, but nobody waits for it
    caller: str | None = None
    agent: str | None = None


def result_id(nodes: list[Node], handing: Handing) -> str | None:
    """Return the id of the event that brings the result of a delegation back, or None where none comes."""
    if not handing.returns or handing.caller is None:
        return None
    place = handing.run if handing.run >= 0 else handing.by
    if handing.run < 0 and nodes[handing.by].output is None:
        return None
    return None if _ended(nodes, handing) is None else f"{nodes[place].event_id}.result"


def causes(nodes: list[Node], handings: Iterable[Handing]) -> Causes:
    """Return how the spans of a trace follow from each other, besides from their parents."""
    starts: dict[int, list[int]] = {}
    ends: dict[int, list[_End]] = {}
    answered = _add_results(nodes, handings, ends)
    is_leaf = [True] * len(nodes)
    for node in nodes:
        if node.parent >= 0:
            is_leaf[node.parent] = False
    for n, node in enumerate(nodes):
        if node.role in _HOLDERS and not is_leaf[n]:
            continue
        scope = node.run if node.role != "agent_run" else (nodes[node.parent].run if node.parent >= 0 else -1)
        starts.setdefault(scope, []).append(n)
        if node.end_ns is not None and n not in answered:
            what = {"model_call": "model", "agent_run": "silent"}.get(node.role or "", "other")
            ends.setdefault(scope, []).append(_End(node.end_ns, n, node.event_id, what))
    made = Causes({}, {}, {})
    # Runs inside come later in the order, and what they end with is known before the run around them is looked at.
    for scope in sorted({*starts, *ends}, reverse=True):
        _sweep(nodes, scope, starts.pop(scope, []), sorted(ends.pop(scope, [])), made)
    return made


def _ended(nodes: list[Node], handing: Handing) -> int | None:
    end = nodes[handing.run].end_ns if handing.run >= 0 else None
    return end if end is not None or handing.by < 0 else nodes[handing.by].end_ns


def _add_results(nodes: list[Node], handings: Iterable[Handing], ends: dict[int, list[_End]]) -> set[int]:
    """Add the ends of delegations that bring a result; return the spans which those results stand for."""
    answered = set()
    for handing in handings:
        result, end = result_id(nodes, handing), _ended(nodes, handing)
        if result is None or end is None:
            continue
        n = max(handing.run, handing.by)
        ends.setdefault(handing.scope, []).append(_End(end, n, result, "result", handing.caller, handing.to))
        answered |= {handing.run, handing.by}
    return answered


def _sweep(nodes: list[Node], scope: int, starts: list[int], ends: list[_End], made: Causes) -> None:
    waiting: list[_End] = []
    silent: list[_End] = []
    results: dict[str | None, dict[str | None, str]] = {}  # caller -> agent -> its latest result since the last merge
    model: _End | None = None
    latest: _End | None = None
    is_blind = scope >= 0 and not any(nodes[n].role == "model_call" for n in starts)
    at = 0
    for n in [*starts, -1]:
        since = nodes[n].since_ns if n >= 0 else None
        while at < len(ends) and (since is None or ends[at].end_ns <= since):
            end = latest = ends[at]
            at += 1
            if end.what == "model":
                model = end
            elif end.what == "silent":
                silent.append(end)
            else:
                waiting.append(end)
        if n < 0:
            break
        heard = [model.event_id] if model is not None else []
        if is_blind and latest is not None:
            heard = [end.event_id for end in waiting] or [latest.event_id]
            waiting = []
        elif nodes[n].role == "model_call":
            heard += _read(nodes, n, waiting, results, made)
            waiting = []
        if heard:
            made.heard[n] = tuple(heard)
    tails = [made.unread.get(end.n, [end.event_id])[-1] for end in silent]
    left = [*([model.event_id] if model is not None else []), *(end.event_id for end in waiting), *tails]
    if left:
        made.unread[scope] = left


def _read(
    nodes: list[Node], n: int, waiting: list[_End], results: dict[str | None, dict[str | None, str]], made: Causes
) -> list[str]:
    """Return what a model call reads: all that waits, results of several agents by way of a merge."""
    reader = nodes[n].actor
    mine = [end for end in waiting if end.what == "result" and end.caller == reader]
    fresh = {end.agent: end.event_id for end in mine}
    latest = results.setdefault(reader, {})
    earlier = [event_id for agent, event_id in latest.items() if agent not in fresh]
    latest |= fresh
    if not mine or len(mine) + len(earlier) < 2:
        return [end.event_id for end in waiting]
    made.merges[n] = Merge(reader, (*earlier, *(end.event_id for end in mine)))
    results.pop(reader)
    return [end.event_id for end in waiting if end.what != "result" or end.caller != reader]
