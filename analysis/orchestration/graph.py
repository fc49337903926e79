"""The event graph of a trace: what caused what, what each agent did in which order, and what had to be mended.

Decides which edges exist and in which order the run is read. Hidden here: how times become whole microseconds,
how cycles are cut, and where an event without a time stands.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from analysis.model import Event, Trace

#: name -> what was found, and what was done about it.
REPAIRS: dict[str, str] = {
    "repeated": "its id had come before in the source and was given a number; references mean the first event of that id",
    "self-parent": "names itself as its cause; the edge is left out",
    "orphaned": "names a cause that is not in the trace; the edge is left out",
    "cyclic": "lies on a circle of causes; the edge that closes the circle is left out",
    "skewed": "begins before its cause does, so two clocks disagree; the edge is left out",
    "negative": "ends before it begins; its start is kept and it has no duration",
    "open-ended": "has only one of start and end; it stands there and has no duration",
    "untimed": "has no time though the trace has a clock; it stands where its causes and effects put it, without a duration",
    "out-of-range": "has a time more than 30,000 years from zero, or no number; that time is left out",
}

_MAX_S = 1e12
_RENAMED = re.compile(r"(.+)~[0-9]+")

_Causes = list[dict[int, None]]  # an ordered set of positions for each event


class Repair(NamedTuple):
    """One thing that was mended so that the run could be read: at which event, and over against which cause.

    `amount_s` is by how much the times disagree, where times do.
    """

    name: str
    event_id: str
    parent_id: str | None = None
    amount_s: float | None = None

    @property
    def message(self) -> str:
        """What was found and what was done, in words."""
        return REPAIRS[self.name]


@dataclass(frozen=True)
class EventGraph:
    """The events in an order in which causes come first, and the edges between them; positions count in `events`.

    events : by start where there is a clock, else by their `order`
    causes : for each event the positions of those that caused it (its parents and what it merges), ascending
    before : for each event the position of the one that its agent did before it, None for the agent's first
    start_us, end_us : whole microseconds since the first time of the trace, for every event where the trace has any
        time, else empty; an event without a duration starts and ends at once
    is_timed : whether the event's duration is known
    repairs : everything that was mended, by kind and then by position
    """

    events: tuple[Event, ...]
    causes: tuple[tuple[int, ...], ...]
    before: tuple[int | None, ...]
    start_us: tuple[int, ...]
    end_us: tuple[int, ...]
    is_timed: tuple[bool, ...]
    repairs: tuple[Repair, ...]

    @cached_property
    def position(self) -> dict[str, int]:
        """Where each event id stands."""
        return {event.event_id: n for n, event in enumerate(self.events)}

    @cached_property
    def effects(self) -> tuple[tuple[int, ...], ...]:
        """For each event the positions of those it caused, ascending."""
        found: list[list[int]] = [[] for _ in self.events]
        for n, causes in enumerate(self.causes):
            for cause in causes:
                found[cause].append(n)
        return tuple([tuple(effects) for effects in found])

    @cached_property
    def by_agent(self) -> dict[str, tuple[int, ...]]:
        """The positions of each agent's events, agents in the order of their first event."""
        found: dict[str, list[int]] = {}
        for n, event in enumerate(self.events):
            if event.agent_id is not None:
                found.setdefault(event.agent_id, []).append(n)
        return {agent: tuple(places) for agent, places in found.items()}


class _Time(NamedTuple):
    start_us: int
    end_us: int
    is_timed: bool


def event_graph(trace: Trace) -> EventGraph:
    """Return the graph of a trace's events.

    Linear in events and edges, up to the sorting; nothing recurses. On a clock an effect never begins before its cause:
    edges that say so are left out as skewed, after circles have been cut. The same repairs are made whatever order the
    list of events has, as long as `order` or the times tell them apart.

    >>> from analysis.model import Source
    >>> events = (Event(event_id="b", parents=("a", "lost"), order=1), Event(event_id="a", order=0))
    >>> graph = event_graph(Trace(trace_id="t", world="recorded", source=Source(format="x"), events=events))
    >>> [event.event_id for event in graph.events], graph.causes, graph.repairs[0].name
    (['a', 'b'], ((), (0,)), 'orphaned')
    """
    events = sorted(trace.events, key=lambda event: event.order)
    repairs: list[Repair] = list(_repeated(events))
    times = _times(events, repairs)
    causes = _causes(events, repairs)
    order = _topological(causes)
    if len(order) < len(events):
        _cut_circles(events, causes, times=times, left=set(range(len(events))) - set(order), repairs=repairs)
        order = _topological(causes)
    _cut_skew(events, causes, times, repairs)
    placed = _placed(causes, times, order)
    if None in times:
        _cut_skew(events, causes, placed, repairs)  # what an event without a time stands between may disagree too
    if placed:
        rank = {n: k for k, n in enumerate(order)}
        order.sort(key=lambda n: (placed[n].start_us, rank[n]))
    return _graph(events, causes, placed, order, repairs)


def in_one_go(graph: EventGraph) -> Iterator[tuple[int, ...]]:
    """Yield the positions of the spawns and delegations that one agent made in one go.

    A go ends where the agent does anything else, or where something that others did causes a decision and caused none of
    the go before. How work that ran side by side interleaves makes no difference.
    """
    for places in graph.by_agent.values():
        go: list[int] = []
        known: set[int] = set()
        for n in places:
            is_decision = graph.events[n].kind in ("spawn", "delegate")
            causes = graph.causes[n] if is_decision else ()
            heard = {cause for cause in causes if graph.events[cause].agent_id != graph.events[n].agent_id}
            if go and (not is_decision or heard - known):
                yield tuple(go)
                go, known = [], set()
            if is_decision:
                go.append(n)
                known |= heard
        if go:
            yield tuple(go)


def _repeated(events: Sequence[Event]) -> Iterator[Repair]:
    ids = {event.event_id for event in events}
    for event in events:
        if (match := _RENAMED.fullmatch(event.event_id)) and match[1] in ids:
            yield Repair("repeated", event.event_id)


def _times(events: Sequence[Event], repairs: list[Repair]) -> list[_Time | None]:
    """Return start and end of each event; None where it has neither."""
    known = [_in_range(event, repairs) for event in events]
    origin = min([t for pair in known for t in pair if t is not None], default=None)
    if origin is None:
        return [None] * len(events)
    times: list[_Time | None] = []
    for event, (start_s, end_s) in zip(events, known, strict=True):
        start_us, end_us = (None if t is None else round((t - origin) * 1e6) for t in (start_s, end_s))
        if start_us is None or end_us is None:
            point = start_us if end_us is None else end_us
            repairs.append(Repair("untimed" if point is None else "open-ended", event.event_id))
            times.append(None if point is None else _Time(point, point, False))
        elif end_us < start_us:
            repairs.append(Repair("negative", event.event_id, None, (start_us - end_us) / 1e6))
            times.append(_Time(start_us, start_us, False))
        else:
            times.append(_Time(start_us, end_us, True))
    return times


def _in_range(event: Event, repairs: list[Repair]) -> tuple[float | None, float | None]:
    given = (event.t_start_s, event.t_end_s)
    kept = tuple([t if t is not None and abs(t) <= _MAX_S else None for t in given])  # NaN is not <= anything
    if kept != given:
        repairs.append(Repair("out-of-range", event.event_id))
    return kept[0], kept[1]


def _causes(events: Sequence[Event], repairs: list[Repair]) -> _Causes:
    position = {event.event_id: n for n, event in enumerate(events)}
    causes: _Causes = []
    for n, event in enumerate(events):
        named: dict[int, None] = {}
        for parent_id in dict.fromkeys((*event.parents, *event.merge_points)):
            cause = position.get(parent_id)
            if cause is None:
                repairs.append(Repair("orphaned", event.event_id, parent_id))
            elif cause == n:
                repairs.append(Repair("self-parent", event.event_id, parent_id))
            else:
                named[cause] = None
        causes.append(named)
    return causes


def _cut_circles(
    events: Sequence[Event], causes: _Causes, *, times: Sequence[_Time | None], left: set[int], repairs: list[Repair]
) -> None:
    """Leave out each edge that closes a circle when the run is followed from its first event on, effects in order.

    left : the events on or behind a circle
    """
    starts = {n: time.start_us for n in left if (time := times[n]) is not None}
    place = {n: (starts[n] if len(starts) == len(left) else 0, n) for n in left}
    effects = _effects([[c for c in named if c in left] if n in left else [] for n, named in enumerate(causes)])
    todo = {n: iter(sorted(effects[n], key=place.__getitem__)) for n in left}
    entered: set[int] = set()
    for root in sorted(left, key=place.__getitem__):
        path = [root] if root not in entered else []
        on_path = set(path)
        while path:
            n = path[-1]
            entered.add(n)
            effect = next(todo[n], None)
            if effect is None:
                on_path.discard(path.pop())
            elif effect in on_path:
                del causes[effect][n]
                repairs.append(Repair("cyclic", events[effect].event_id, events[n].event_id))
            elif effect not in entered:
                path.append(effect)
                on_path.add(effect)


def _cut_skew(events: Sequence[Event], causes: _Causes, times: Sequence[_Time | None], repairs: list[Repair]) -> None:
    for n, time in enumerate(times):
        if time is None:
            continue
        early = {c: its.start_us - time.start_us for c in causes[n] if (its := times[c]) and its.start_us > time.start_us}
        for cause, amount_us in early.items():
            del causes[n][cause]
            repairs.append(Repair("skewed", events[n].event_id, events[cause].event_id, amount_us / 1e6))


def _effects(causes: Sequence[Iterable[int]]) -> list[list[int]]:
    effects: list[list[int]] = [[] for _ in causes]
    for n, named in enumerate(causes):
        for cause in named:
            effects[cause].append(n)
    return effects


def _topological(causes: _Causes) -> list[int]:
    """Return the positions with causes first, else as they stand; those on or behind a circle are missing."""
    effects = _effects(causes)
    n_missing = [len(named) for named in causes]
    ready = [n for n, missing in enumerate(n_missing) if missing == 0]
    order = []
    while ready:
        n = heapq.heappop(ready)
        order.append(n)
        for effect in effects[n]:
            n_missing[effect] -= 1
            if n_missing[effect] == 0:
                heapq.heappush(ready, effect)
    return order


def _placed(causes: _Causes, times: Sequence[_Time | None], order: Sequence[int]) -> list[_Time]:
    """Return a place in time for every event: without one of its own, just before its first effect, else after its causes.

    Empty where the trace has no time at all.
    """
    known = [time for time in times if time is not None]
    if not known or len(known) == len(times):
        return known
    effects = _effects(causes)
    latest = [time.start_us if time else None for time in times]
    for n in reversed(order):
        if times[n] is None:
            latest[n] = min([t for effect in effects[n] if (t := latest[effect]) is not None], default=None)
    placed = [time or known[0] for time in times]
    at = min([time.start_us for time in known])
    for n in order:
        if times[n] is None:
            causing = [placed[cause] for cause in causes[n]]
            wanted = latest[n]
            point = max([time.end_us for time in causing], default=at) if wanted is None else wanted
            point = max([point, *[time.start_us for time in causing]])
            placed[n] = _Time(point, point, False)
        at = placed[n].start_us
    return placed


def _graph(
    events: Sequence[Event], causes: _Causes, placed: Sequence[_Time], order: Sequence[int], repairs: Iterable[Repair]
) -> EventGraph:
    place = [0] * len(order)
    for k, n in enumerate(order):
        place[n] = k
    last: dict[str, int] = {}
    before: list[int | None] = []
    for k, n in enumerate(order):
        agent = events[n].agent_id
        before.append(last.get(agent) if agent is not None else None)
        if agent is not None:
            last[agent] = k
    where = {events[n].event_id: k for k, n in enumerate(order)}
    names = list(REPAIRS)
    return EventGraph(
        events=tuple([events[n] for n in order]),
        causes=tuple([tuple(sorted([place[cause] for cause in causes[n]])) for n in order]),
        before=tuple(before),
        start_us=tuple([placed[n].start_us for n in order] if placed else ()),
        end_us=tuple([placed[n].end_us for n in order] if placed else ()),
        is_timed=tuple([placed[n].is_timed for n in order] if placed else [False] * len(order)),
        repairs=tuple(sorted(repairs, key=lambda r: (names.index(r.name), where[r.event_id], r.parent_id or ""))),
    )
