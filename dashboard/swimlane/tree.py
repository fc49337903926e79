"""Which lanes the swim-lane has: the tree of the agents, who comes first, and what is folded where there are many.

Hides how agents whose parents go round in a circle, or who are declared nowhere, still get one lane each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from analysis.model import Agent, Trace
from dashboard import safe
from dashboard.figures import NO_AGENT

MAX_LANES = 40  # where there are more, those of one component start folded


class _Lane(NamedTuple):
    name: str
    component: str
    parent: int = -1
    is_group: bool = False


def lane_tree(trace: Trace) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """Return the lanes from top to bottom, and agent_id -> the position of its lane.

    The lanes are columns: name, role (empty where it is the name), parent (a position above, -1 for none), is_group (no
    agent, but several of one component), is_folded. An agent stands below the one that spawned it; among siblings, who
    enters first stands first. More than `MAX_LANES` agents: siblings of one component are grouped.
    """
    agents = {agent.agent_id: agent for agent in trace.agents}
    for event in trace.events:
        name = event.agent_id or NO_AGENT
        agents.setdefault(name, Agent(agent_id=name, component=name))
    place = {name: n for n, name in enumerate(agents)}
    lanes = _without_cycles([_Lane(a.agent_id, a.component, place.get(a.parent_id or "", -1)) for a in agents.values()])
    if len(lanes) > MAX_LANES:
        lanes = _grouped(lanes)
    enters = {place[event.agent_id or NO_AGENT]: n for n, event in reversed(list(enumerate(trace.events)))}
    walked = _walk(lanes, enters)
    drawn = {lane: n for n, (lane, _) in enumerate(walked)}
    ordered = [lanes[lane]._replace(parent=drawn.get(lanes[lane].parent, -1)) for lane, _ in walked]
    columns: dict[str, list[Any]] = {
        "name": [safe.line(lane.name, 80) for lane in ordered],
        "role": ["" if lane.component == lane.name else safe.line(lane.component, 80) for lane in ordered],
        "parent": [lane.parent for lane in ordered],
        "is_group": [lane.is_group for lane in ordered],
        "is_folded": _folded(ordered, [depth for _, depth in walked]),
    }
    return columns, {name: drawn[n] for name, n in place.items()}


def _without_cycles(lanes: list[_Lane]) -> list[_Lane]:
    """Put a lane at the top where following the parents would come back to it."""
    lanes, seen = list(lanes), [0] * len(lanes)
    for first in range(len(lanes)):
        at = first
        while at >= 0 and not seen[at]:
            seen[at] = first + 1
            if (parent := lanes[at].parent) >= 0 and seen[parent] == first + 1:
                lanes[at] = lanes[at]._replace(parent=-1)
            at = lanes[at].parent
    return lanes


def _grouped(lanes: list[_Lane]) -> list[_Lane]:
    """Put siblings of one component, where there are several, below a lane of their own."""
    siblings: dict[tuple[int, str], list[int]] = {}
    for n, lane in enumerate(lanes):
        siblings.setdefault((lane.parent, lane.component), []).append(n)
    lanes = list(lanes)
    for (parent, component), members in siblings.items():
        if len(members) > 1:
            for member in members:
                lanes[member] = lanes[member]._replace(parent=len(lanes))
            lanes.append(_Lane(component, component, parent, is_group=True))
    return lanes


def _walk(lanes: Sequence[_Lane], enters: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return (lane, depth) from top to bottom; a lane enters when it or one below it does."""
    children: dict[int, list[int]] = {}
    for n, lane in enumerate(lanes):
        children.setdefault(lane.parent, []).append(n)
    first = [enters.get(n, math.inf) for n in range(len(lanes))]
    for n, _ in reversed(_preorder(children)):
        if (parent := lanes[n].parent) >= 0:
            first[parent] = min(first[parent], first[n])
    for siblings in children.values():
        siblings.sort(key=lambda n: first[n])
    return _preorder(children)


def _preorder(children: Mapping[int, Sequence[int]]) -> list[tuple[int, int]]:
    walked, todo = [], [(n, 0) for n in reversed(children.get(-1, ()))]
    while todo:
        n, depth = todo.pop()
        walked.append((n, depth))
        todo += [(child, depth + 1) for child in reversed(children.get(n, ()))]
    return walked


def _folded(lanes: Sequence[_Lane], depths: Sequence[int]) -> list[bool]:
    """Fold all groups, and what lies deeper than the level down to which `MAX_LANES` are enough."""
    is_inside: list[bool] = []
    for lane in lanes:
        is_inside.append(lane.parent >= 0 and (is_inside[lane.parent] or lanes[lane.parent].is_group))
    n_at = Counter(depth for depth, inside in zip(depths, is_inside, strict=True) if not inside)
    level, n_shown = 0, n_at[0]
    while n_at[level + 1] and n_shown + n_at[level + 1] <= MAX_LANES:
        level += 1
        n_shown += n_at[level]
    has_children = {lane.parent for lane in lanes}
    is_deep = [depth >= level and bool(n_at[level + 1]) for depth in depths]
    return [lane.is_group or (is_deep[n] and n in has_children) for n, lane in enumerate(lanes)]
