"""Two runs laid side by side by structure: which events are the same, changed, moved, dropped or added.

Decides which event of one run is which of the other: agents are paired first (`likeness`), then the events of each two
in their order, then what is left over by what it says. Hidden here: the weights and ties of the alignment, and how
two places among the causes are compared.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from analysis.model import Trace
from analysis.orchestration.graph import EventGraph
from analysis.orchestration.likeness import Agent, Ints, Side, agent_pairs, sides
from analysis.orchestration.timing import Timing

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["dropped", "added", "moved", "changed", "same"]
#: What each status says of an event.
STATUSES: dict[Status, str] = {
    "dropped": "in the first run only",
    "added": "in the second run only",
    "moved": "in both, but by another agent, in another order or after other events",
    "changed": "in both at the same place, with another text, name, error or addressee",
    "same": "alike in both",
}

# What a pair of events is worth where it is possible; how alike the texts are adds up to `N_SKETCH`. So one pair that
# says exactly the same outweighs two that share their kind alone, and two that say much the same outweigh it.
_POSSIBLE, _EXACT, _TARGETS, _CAUSES = 4, 4, 2, 2
_CODES = ("like", "said", "targets", "causes")
#: After these repairs the graph does not show all that an event waited for.
_UNSURE = {"orphaned", "cyclic", "skewed"}


class _Waits(NamedTuple):
    """The causes of an event that both runs have, as bits: those that no other one of them comes after; all; all are shown."""

    nearest: int
    all: int
    is_known: bool


class Place(NamedTuple):
    """One event of the first run (`a`), of the second (`b`), or one that both have; positions in the events of the graphs.

    `differs` names what is not alike: fields of the event, `targets`, `agent` (another instance does it), `order` (in its
    agent's work) or `causes` (it waits for other events).
    """

    status: Status
    a: int | None
    b: int | None
    differs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alignment:
    """Two runs, event by event.

    a, b : the graphs of the first and the second run
    agents : every agent that acts, of the first run, of the second, or one that is both, in the order of their events
    places : every event of both runs exactly once, in the order of the first; what was added comes after what it
        comes after in the second
    """

    a: EventGraph
    b: EventGraph
    agents: tuple[tuple[str | None, str | None], ...]
    places: tuple[Place, ...]

    @cached_property
    def counts(self) -> dict[Status, int]:
        """How many places have each status."""
        found = Counter([place.status for place in self.places])
        return {status: found[status] for status in STATUSES}

    @property
    def n_both(self) -> int:
        """How many events both runs have."""
        return self.counts["same"] + self.counts["changed"] + self.counts["moved"]


def align(a: Trace, b: Trace) -> Alignment:
    """Return which events of two runs are the same, changed, moved, dropped and added.

    Two events can be one if they share kind, action, name (of a tool, not of a model) and the components addressed. The
    events of two agents that are paired are aligned in their order (Needleman & Wunsch 1970, gaps cost nothing), where
    texts, targets and causes decide between the pairs that are possible. What is left on both sides and says the same is
    moved, and so is a pair of which one waits for an event that the other does not wait for, not even indirectly.

    Swapping the runs swaps dropped and added, nothing else. O(n_a n_b) for each two agents, in numpy: about 1 s for 5,000
    a side in one lane, 3 s for 10,000, at a quarter byte a pair.

    >>> from analysis.model import Agent, Event
    >>> team = {"world": "recorded", "agents": (Agent(agent_id="x", component="coder"),)}
    >>> plan, code = (Event(event_id=i, kind="act", action="note", agent_id="x", content=i, order=n) for n, i in enumerate("pc"))
    >>> align(Trace(trace_id="1", events=(plan, code), **team), Trace(trace_id="2", events=(code,), **team)).counts
    {'dropped': 1, 'added': 0, 'moved': 0, 'changed': 0, 'same': 1}
    """
    first, second = sides(a, b)
    agents = agent_pairs(first, second)
    pairs: dict[int, int] = {}
    for mine, its in agents.items():
        lane = np.array(first.lanes.get(mine, []), np.int64)
        other = np.array(second.lanes.get(its, []), np.int64)
        pairs.update([(int(lane[i]), int(other[j])) for i, j in _in_order(first, second, lane, other)])
    numbers = {mine: n for n, mine in enumerate(agents)}, {its: n for n, its in enumerate(agents.values())}
    strayed = _strayed(first, second, pairs, numbers)
    places = tuple(_places(first, second, pairs | strayed, strayed, numbers))
    return Alignment(first.graph, second.graph, _acting(first, second, agents, places), places)


def differences(alignment: Alignment, first: Timing, second: Timing) -> pd.DataFrame:
    """Return the places of an alignment as rows, with what can be measured on one event, in either run and as a difference.

    Parameters
    ----------
    alignment : the result of `align`
    first, second : the timings of the same two runs

    Returns
    -------
    status, differs (names with commas between), kind, action. Then, each with `_a` and `_b` for the two runs: event_id,
    agent_id, error, content; lane (place in `agents`), order (place in the run), start_s (since the run's first time),
    duration_s (of the event itself), drag_s (how much shorter the run were if it took no time), input_tokens,
    output_tokens; the last four with `_delta` too, second minus first, absent where one is.
    """
    import pandas as pd

    places = alignment.places
    either = [alignment.b.events[p.b or 0] if p.a is None else alignment.a.events[p.a] for p in places]
    columns: dict[str, list[Any]] = {
        "status": [place.status for place in places],
        "differs": [", ".join(place.differs) for place in places],
        "kind": [event.kind or "opaque" for event in either],
        "action": [event.action for event in either],
    }
    sides = (("a", [p.a for p in places], first), ("b", [p.b for p in places], second))
    for name in ("event_id", "agent_id", "error", "content"):
        for side, events, timing in sides:
            columns[f"{name}_{side}"] = [None if n is None else getattr(timing.graph.events[n], name) for n in events]
    for which, (side, events, timing) in enumerate(sides):
        lanes = {pair[which]: n for n, pair in enumerate(alignment.agents) if pair[which] is not None or pair == (None, None)}
        columns[f"lane_{side}"] = [math.nan if n is None else lanes[timing.graph.events[n].agent_id] for n in events]
        columns[f"order_{side}"] = [math.nan if n is None else n for n in events]
    for name in ("start_s", *_DELTAS):
        for side, events, timing in sides:
            values = _measured(timing, name)
            columns[f"{name}_{side}"] = [math.nan if n is None else values[n] for n in events]
    for name in _DELTAS:
        columns[f"{name}_delta"] = [b - a for a, b in zip(columns[f"{name}_a"], columns[f"{name}_b"], strict=True)]
    return pd.DataFrame(columns)


_DELTAS = ("duration_s", "drag_s", "input_tokens", "output_tokens")


def _measured(timing: Timing, name: str) -> list[float]:
    """Return one number an event, NaN where it is not known."""
    events = timing.graph.events
    if name == "start_s":
        return [start / 1e6 for start in timing.graph.start_us] or [math.nan] * len(events)
    if name == "duration_s":
        is_timed = timing.graph.is_timed if timing.basis_of_time == "clock" else [False] * len(events)
        return [own if known else math.nan for own, known in zip(timing.own, is_timed, strict=True)]
    values = [timing.drag_s.get(event.event_id) if name == "drag_s" else getattr(event, name) for event in events]
    return [math.nan if value is None else value for value in values]


def _in_order(first: Side, second: Side, lane: Ints, other: Ints) -> Iterator[tuple[int, int]]:
    """Yield which places in two lanes belong together: most worth in all, without crossing."""
    mine = np.stack([first.codes[name][lane] for name in _CODES], axis=1).tolist()
    its = np.stack([second.codes[name][other] for name in _CODES], axis=1).tolist()
    if mine > its:  # equally good alignments are told apart by position; this order does not depend on which run is first
        yield from [(i, j) for j, i in _in_order(second, first, other, lane)]
        return
    # To pair equal ends is always best, since no pair is worth more.
    start = _n_equal(mine, its)
    end = _n_equal(mine[start:][::-1], its[start:][::-1])
    yield from [(n, n) for n in range(start)]
    yield from [(len(mine) - n, len(its) - n) for n in range(1, end + 1)]
    middle = lane[start : len(mine) - end], other[start : len(its) - end]
    yield from [(start + i, start + j) for i, j in _most_worth(first, second, *middle)]


def _n_equal(mine: Sequence[Any], its: Sequence[Any]) -> int:
    return next((n for n, (x, y) in enumerate(zip(mine, its, strict=False)) if x != y), min(len(mine), len(its)))


def _most_worth(first: Side, second: Side, lane: Ints, other: Ints) -> Iterator[tuple[int, int]]:
    """Yield the pairs of the best alignment, the last one first."""
    codes = {name: second.codes[name][other] for name in _CODES}
    possible = {like: np.flatnonzero(codes["like"] == like) for like in np.unique(codes["like"]).tolist()}
    sketches = {like: np.ascontiguousarray(second.sketch[other[at]].T) for like, at in possible.items()}
    best = np.zeros(len(other) + 1, np.int64)
    as_above, as_left = [], []  # one bit a cell: whether the table grows there
    for n in lane.tolist():
        row = best.copy()
        like = int(first.codes["like"][n])
        if like in possible:
            at = possible[like]
            worth = _POSSIBLE + (sketches[like] == first.sketch[n][:, None]).sum(axis=0)
            for name, value in (("said", _EXACT), ("targets", _TARGETS), ("causes", _CAUSES)):
                worth += value * (codes[name][at] == first.codes[name][n])
            row[at + 1] = np.maximum(row[at + 1], best[at] + worth)
            np.maximum.accumulate(row, out=row)
        as_above.append(np.packbits(row == best).tobytes())
        as_left.append(np.packbits(row[1:] == row[:-1]).tobytes())
        best = row
    i, j = len(lane), len(other)
    while i and j:
        if _bit(as_above[i - 1], j):
            i -= 1
        elif _bit(as_left[i - 1], j - 1):
            j -= 1
        else:
            i, j = i - 1, j - 1
            yield i, j


def _bit(packed: bytes, n: int) -> int:
    return packed[n >> 3] >> (7 - (n & 7)) & 1


def _strayed(
    first: Side, second: Side, pairs: Mapping[int, int], numbers: tuple[Mapping[Agent, int], Mapping[Agent, int]]
) -> dict[int, int]:
    """Return pairs of events that are left and say the same: of one agent, else of one component, else of the run."""
    left = sorted(set(range(len(first.at))) - set(pairs), key=first.standing)
    others = sorted(set(range(len(second.at))) - set(pairs.values()), key=second.standing)
    found: dict[int, int] = {}
    for scope in ("agent", "component", "run"):
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        taken = set(found.values())
        for n in reversed(others):
            if n not in taken:
                waiting[_stray_key(second, n, scope, numbers[1])].append(n)
        for n in left:
            key = _stray_key(first, n, scope, numbers[0])
            if n not in found and key is not None and waiting[key]:
                found[n] = waiting[key].pop()
    return found


def _stray_key(side: Side, n: int, scope: str, numbers: Mapping[Agent, int]) -> Hashable:
    """Return what two events left over must share within a scope; None where this one is not to be sought there."""
    event, like, said = side.graph.events[n], int(side.codes["like"][n]), int(side.codes["said"][n])
    if scope == "agent":
        return (numbers[event.agent_id], like, said) if event.agent_id in numbers else None
    if not set(side.said[n]) - {"name"}:  # what says nothing is known by its place alone
        return None
    return (side.component[event.agent_id], like, said) if scope == "component" else (event.kind, event.action, said)


def _places(
    first: Side,
    second: Side,
    pairs: Mapping[int, int],
    strayed: Mapping[int, int],
    numbers: tuple[Mapping[Agent, int], Mapping[Agent, int]],
) -> Iterator[Place]:
    """Yield all events in the order of the first run, what was added behind what it follows in the second."""
    back = {j: i for i, j in pairs.items()}
    added: dict[int, list[int]] = defaultdict(list)
    last = -1
    for j in range(len(second.at)):
        last = back.get(j, last)
        if j not in back:
            added[last].append(j)
    waits = _waits(first.graph, list(pairs)), _waits(second.graph, list(pairs.values()))
    yield from [Place("added", None, j) for j in added[-1]]
    for i in range(len(first.at)):
        if (its := pairs.get(i)) is None:
            yield Place("dropped", i, None)
        else:
            differs = _differs(first, second, i, its, numbers)
            if i in strayed and "agent" not in differs:
                differs.append("order")
            if _waits_for_others(waits[0][i], waits[1][its]):
                differs.append("causes")
            status: Status = "moved" if i in strayed or "causes" in differs else "changed" if differs else "same"
            yield Place(status, i, its, tuple(differs))
        yield from [Place("added", None, j) for j in added[i]]


def _differs(first: Side, second: Side, i: int, j: int, numbers: tuple[Mapping[Agent, int], Mapping[Agent, int]]) -> list[str]:
    said, other = first.said[i], second.said[j]
    differs = [field for field in sorted({*said, *other}) if said.get(field) != other.get(field)]
    doer, targets = zip(
        *(_who(side, n, known) for side, n, known in zip((first, second), (i, j), numbers, strict=True)), strict=True
    )
    return differs + ["targets"] * (targets[0] != targets[1]) + ["agent"] * (doer[0] != doer[1])


def _who(side: Side, n: int, numbers: Mapping[Agent, int]) -> tuple[int | str, Counter[int | str]]:
    """Return who did it and whom it addresses: by the number of the pair where the agent has a counterpart, else by component."""
    event = side.graph.events[n]
    doer, *targets = [numbers.get(agent, side.component.get(agent, "")) for agent in (event.agent_id, *event.targets)]
    return doer, Counter(targets)


def _waits(graph: EventGraph, paired: Sequence[int]) -> list[_Waits]:
    """Return what each event waits for among the events that both runs have; others are looked through."""
    bit = {n: 1 << k for k, n in enumerate(paired)}
    unsure = {repair.event_id for repair in graph.repairs if repair.name in _UNSURE}
    waits: list[_Waits] = []
    for n, causes in enumerate(graph.causes):
        found = [_Waits(bit[c], 0, True) if c in bit else waits[c] for c in causes]
        near = reduce(or_, [each.nearest for each in found], 0)
        over = reduce(or_, [waits[paired[k]].all for k in _members(near)], 0)
        is_known = graph.events[n].event_id not in unsure and all(each.is_known for each in found)
        waits.append(_Waits(near & ~over, near | over, is_known))
    return waits


def _waits_for_others(first: _Waits, second: _Waits) -> bool:
    """Whether a nearest cause in one run is no cause at all in the other."""
    is_other = first.nearest & ~second.all or second.nearest & ~first.all
    return bool(is_other) and first.is_known and second.is_known


def _members(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _acting(first: Side, second: Side, agents: Mapping[Agent, Agent], places: Sequence[Place]) -> tuple[tuple[Agent, Agent], ...]:
    back = {its: mine for mine, its in agents.items()}
    found: dict[tuple[Agent, Agent], None] = {}
    for place in places:
        if place.a is not None:
            mine = first.graph.events[place.a].agent_id
            found[mine, agents.get(mine)] = None
        if place.b is not None:
            its = second.graph.events[place.b].agent_id
            found[back.get(its), its] = None
    return tuple(found)
