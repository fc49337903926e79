"""What makes events and agents of two runs alike: what they do, what they say, whom they address, what they wait for.

Ids, times and the order of parallel work do not count. Hidden here: how that becomes numbers that are cheap to compare,
and in which order agents that are equally alike are paired.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.model import Event, Trace
from analysis.orchestration.graph import EventGraph, event_graph

N_SKETCH = 8

Agent = str | None  # None acts where an event names nobody
Ints = npt.NDArray[np.int64]

_TEXT = 512  # characters of a text that its sketch looks at
_GRAM = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F)  # odd numbers without a pattern, as are the salts
_SALTS = np.array([0x2545F491, 0x4F6CDD1D, 0x9FB21C65, 0xB5297A4D, 0x68E31DA5, 0x1B56C4E9, 0x7FEB352D, 0x846CA68B], np.uint32)
_LIKE, _SAID = 2, 8  # how often these count in a bag; each number of a sketch counts once
_MAX_PAIRS = 1_000_000  # of agents of one component that are compared one by one


@dataclass(frozen=True)
class Side:
    """One of two runs that are compared. Events are named by their positions in the graph.

    component : of every agent, in the order in which agents of one component are first told what to do
    lanes : the events of each agent, in its order
    at : the place of each event in its lane
    said : what each event says, does and comes to, apart from who, whom and when
    codes : `like` (what events must share to be one), `said`, `targets` and `causes` (of other agents), by role: a number
        an event, equal in both runs where what it stands for is equal
    sketch : shape (n_events, 8); two texts agree in about that share of numbers which they have in common
    """

    graph: EventGraph
    component: dict[Agent, str]
    lanes: dict[Agent, list[int]]
    at: list[int]
    said: list[dict[str, Any]]
    codes: dict[str, Ints]
    sketch: npt.NDArray[np.uint32]

    @cached_property
    def rank(self) -> dict[Agent, int]:
        """The place of each agent in `component`."""
        return {agent: n for n, agent in enumerate(self.component)}

    def standing(self, n: int) -> tuple[str, int, int]:
        """Return where event `n` stands, as a key for sorting that the order of parallel work does not change."""
        agent = self.graph.events[n].agent_id
        return self.component[agent], self.rank[agent], self.at[n]


def sides(a: Trace, b: Trace) -> tuple[Side, Side]:
    """Return two runs ready to be compared."""
    graphs = event_graph(a), event_graph(b)
    roles = [{agent.agent_id: agent.component for agent in trace.agents} for trace in (a, b)]
    said = [[_said(event) for event in graph.events] for graph in graphs]
    keys = [_keys(*parts) for parts in zip(graphs, roles, said, strict=True)]
    codes = {name: _numbered(keys[0][name], keys[1][name]) for name in keys[0]}
    first, second = (_side(graphs[n], roles[n], said[n], {name: numbers[n] for name, numbers in codes.items()}) for n in (0, 1))
    return first, second


def agent_pairs(first: Side, second: Side) -> dict[Agent, Agent]:
    """Return which agent of the first run is which of the second: of one component, most alike first.

    The only ones of a component are a pair. Else the Dice overlap of two bags of what agents do, say and are told decides,
    where they share anything. Equal ones go by how near their places are in the order in which they are first told what to
    do, so that swapping the runs changes nothing. Where a component has more than a million pairs, agents that are entirely
    alike are paired, then the others in that order.
    """
    bags = [_bags(side) for side in (first, second)]
    members: dict[str, tuple[list[Agent], list[Agent]]] = defaultdict(lambda: ([], []))
    for n, side in enumerate((first, second)):
        for agent, component in side.component.items():
            if agent is not None:
                members[component][n].append(agent)
    pairs: dict[Agent, Agent] = {None: None}
    for mine, its in members.values():
        if len(mine) == len(its) == 1:
            pairs[mine[0]] = its[0]
            continue
        rows, columns = [bags[0][agent] for agent in mine], [bags[1][agent] for agent in its]
        ranked = _by_overlap if len(mine) * len(its) <= _MAX_PAIRS else _by_identity
        free_rows, free_columns = set(range(len(mine))), set(range(len(its)))
        for i, j in ranked(rows, columns):
            if i in free_rows and j in free_columns:
                free_rows.remove(i)
                free_columns.remove(j)
                pairs[mine[i]] = its[j]
    return pairs


def _side(graph: EventGraph, role: Mapping[str, str], said: list[dict[str, Any]], codes: dict[str, Ints]) -> Side:
    lanes: dict[Agent, list[int]] = {}
    at = []
    for n, event in enumerate(graph.events):
        lane = lanes.setdefault(event.agent_id, [])
        at.append(len(lane))
        lane.append(n)
    component = {agent: role.get(agent or "", "") for agent in dict.fromkeys([*role, *lanes])}
    told: dict[Agent, tuple[Any, ...]] = {}
    for n, event in enumerate(graph.events):
        for k, target in enumerate(event.targets):
            told[target] = min(told.get(target, (1,)), (0, component[event.agent_id], at[n], k))
    ranked = sorted(component, key=lambda agent: told.get(agent, (1,)))
    sketch = np.array([_sketch(_text(event)) for event in graph.events], np.uint32).reshape(-1, N_SKETCH)
    return Side(graph, {agent: component[agent] for agent in ranked}, lanes, at, said, codes, sketch)


def _keys(graph: EventGraph, role: Mapping[str, str], said: Sequence[Mapping[str, Any]]) -> dict[str, list[bytes]]:
    """Return for each event what its codes stand for, as text, so that it sorts alike in both runs."""
    likes = [_like(event, role) for event in graph.events]
    roles = [role.get(event.agent_id or "", "") for event in graph.events]
    causes = [
        sorted((roles[cause], *likes[cause][:3]) for cause in causes if graph.events[cause].agent_id != event.agent_id)
        for event, causes in zip(graph.events, graph.causes, strict=True)
    ]
    targets = [sorted(role.get(target, "") for target in event.targets) for event in graph.events]
    columns = {"like": likes, "said": said, "targets": targets, "causes": causes}
    return {name: [msgspec.json.encode(value, order="sorted") for value in values] for name, values in columns.items()}


def _like(event: Event, role: Mapping[str, str]) -> tuple[str, str, str, list[str]]:
    # Whom a spawn makes and which model answers may differ: these are the differences that are looked for.
    name = "" if event.action == "model_call" else event.name or ""
    addressed = set() if event.kind == "spawn" else {role.get(target, "") for target in event.targets}
    return event.kind or "", event.action or "", name, sorted(addressed)


def _said(event: Event) -> dict[str, Any]:
    said = {"content": event.content, "messages": event.messages, "error": event.error, "name": event.name, **event.payload}
    said["assignment"] = sorted(event.assignment.values())
    return {field: value for field, value in said.items() if value and field not in ("action", "merge_points")}


def _numbered(first: Sequence[bytes], second: Sequence[bytes]) -> tuple[Ints, Ints]:
    number = {value: n for n, value in enumerate(sorted({*first, *second}))}
    return np.array([number[v] for v in first], np.int64), np.array([number[v] for v in second], np.int64)


def _text(event: Event) -> str:
    return event.content or "\n".join([str(message.get("content")) for message in event.messages])


def _sketch(text: str) -> npt.NDArray[np.uint32]:
    """Return the smallest of 8 hashes over all groups of four characters; no words, so that Chinese has a likeness too.

    Broder 1997, "On the resemblance and containment of documents".
    """
    points = np.frombuffer(text[:_TEXT].ljust(4).encode("utf-32-le", "surrogatepass"), np.uint32)
    n = len(points) - 3
    grams = sum([points[k : k + n] * np.uint32(factor) for k, factor in enumerate(_GRAM)], np.zeros(n, np.uint32))
    smallest: npt.NDArray[np.uint32] = ((grams ^ (grams >> 15)) * _SALTS[:, None]).min(axis=1)
    return smallest


def _bags(side: Side) -> dict[Agent, Counter[Hashable]]:
    bags: dict[Agent, Counter[Hashable]] = {agent: Counter() for agent in side.component}
    like, said, sketch = side.codes["like"].tolist(), side.codes["said"].tolist(), side.sketch.tolist()
    for n, event in enumerate(side.graph.events):
        features: dict[Hashable, int] = {("like", like[n]): _LIKE, ("said", said[n]): _SAID}
        features |= dict.fromkeys(enumerate(sketch[n]), 1)
        bags[event.agent_id].update(features)
        for target in dict.fromkeys(event.targets):
            if target in bags:
                bags[target].update({("told", feature): count for feature, count in features.items()})
    return bags


def _by_overlap(first: Sequence[Counter[Hashable]], second: Sequence[Counter[Hashable]]) -> Iterator[tuple[int, int]]:
    """Yield the places of all bags that share something, most alike first."""
    shared = _shared(first, second)
    rows, columns = np.nonzero(shared)
    sizes = [np.array([bag.total() for bag in bags]) for bags in (first, second)]
    overlap = 2 * shared[rows, columns] / (sizes[0][rows] + sizes[1][columns])
    order = np.lexsort((rows + columns, abs(rows - columns), -overlap))
    yield from zip(rows[order].tolist(), columns[order].tolist(), strict=True)


def _shared(first: Sequence[Counter[Hashable]], second: Sequence[Counter[Hashable]]) -> Ints:
    """Return the size of the intersection of every two bags, shape (n_first, n_second)."""
    holders: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, bags in enumerate((first, second)):
        for n, bag in enumerate(bags):
            for feature, count in bag.items():
                for k in range(count):
                    holders[feature, k][side].append(n)
    held = Counter((tuple(mine), tuple(its)) for mine, its in holders.values() if mine and its)
    shared = np.zeros((len(first), len(second)), np.int64)
    for (mine, its), count in held.items():
        shared[np.ix_(mine, its)] += count
    return shared


def _by_identity(first: Sequence[Counter[Hashable]], second: Sequence[Counter[Hashable]]) -> Iterator[tuple[int, int]]:
    """Yield the places of equal bags, then of those left, each in their order."""
    groups: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, bags in enumerate((first, second)):
        for n, bag in enumerate(bags):
            groups[frozenset(bag.items())][side].append(n)
    equal = [pair for mine, its in groups.values() for pair in zip(mine, its, strict=False)]
    yield from equal
    rows, columns = {i for i, _ in equal}, {j for _, j in equal}
    left = [n for n in range(len(first)) if n not in rows], [n for n in range(len(second)) if n not in columns]
    yield from zip(*left, strict=False)
