"""Which event runs inside which: what an event started while it ran, and what its agent did meanwhile.

Decides what "exclusive" means. An event is suspended while something inside it runs; so an agent, which does one thing
at a time, is never counted twice in one second, and a span around other spans counts only what is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analysis.orchestration.graph import EventGraph


class Nesting(NamedTuple):
    """What runs inside what, by position in the graph.

    hosts : the events inside which each one starts: of each cause the nearest running event on the way outwards, and
        what its own agent was doing
    caller : the innermost host along the causes, None for an event that nothing running has caused
    ended : events of the same agent that had ended when each one started, each named once
    until_us : when the event and everything inside it has ended
    """

    hosts: tuple[tuple[int, ...], ...]
    caller: tuple[int | None, ...]
    ended: tuple[tuple[int, ...], ...]
    until_us: tuple[int, ...]


def nesting(graph: EventGraph) -> Nesting:
    """Return what runs inside what, on the clock of the graph. Nearly linear in events and edges."""
    hosts: list[tuple[int, ...]] = []
    callers: list[int | None] = []
    ended: list[tuple[int, ...]] = []
    outer: list[int | None] = []  # the next event outwards that may still run
    running: dict[str, list[int]] = {}
    for n, event in enumerate(graph.events):
        now = graph.start_us[n]
        found = {host for cause in graph.causes[n] if (host := _running(cause, now, outer, graph.end_us)) is not None}
        callers.append(max(found, default=None))
        mine = running.setdefault(event.agent_id, []) if event.agent_id is not None else []
        done = []
        while mine and graph.end_us[mine[-1]] <= now:
            done.append(mine.pop())
        if mine:
            found.add(mine[-1])
        mine.append(n)
        ended.append(tuple(done))
        hosts.append(tuple(sorted(found)))
        outer.append(max(found, default=None))
    return Nesting(tuple(hosts), tuple(callers), tuple(ended), _until(hosts, graph.end_us))


def not_nested(graph: EventGraph) -> Nesting:
    """Return that nothing runs inside anything, which is all that can be said without a clock."""
    none: tuple[tuple[int, ...], ...] = ((),) * len(graph.events)
    return Nesting(none, (None,) * len(none), none, ())


def _running(n: int, now: int, outer: list[int | None], end_us: Sequence[int]) -> int | None:
    """Return `n` or the nearest event around it that runs at `now`; what has ended is skipped for good."""
    passed = []
    at: int | None = n
    while at is not None and end_us[at] <= now:
        passed.append(at)
        at = outer[at]
    for each in passed:
        outer[each] = at
    return at


def _until(hosts: Sequence[tuple[int, ...]], end_us: Sequence[int]) -> tuple[int, ...]:
    until = list(end_us)
    for n in range(len(hosts) - 1, -1, -1):
        for host in hosts[n]:
            until[host] = max(until[host], until[n])
    return tuple(until)
