"""Junction trees: relations of small treewidth as a tree of bags, each with few states.

A distribution over the worlds is then one over the states of each bag, equal on what neighbours share. It hides how the
tree is found (least degree first) and gives exact minima of linear functions by dynamic programming.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.coherence.encoding import narrow
from analysis.coherence.relations import Node, bounds, names_of, renamed
from analysis.coherence.worlds import Shape

MAX_BAG = 17

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
States = npt.NDArray[np.bool_]


class Bag(NamedTuple):
    """One node of the tree. Labels number what a state says on the variables shared with the parent bag."""

    variables: tuple[int, ...]
    parent: int  # -1 for the root, which comes first; parents come before children
    states: States  # (s, b)
    labels: Indices  # (s,)
    parent_labels: Indices  # (states of the parent,)
    n_labels: int
    owned: tuple[tuple[int, int], ...]  # (variable, its column here): each variable is owned by one bag


@dataclass(frozen=True, eq=False)
class Tree:
    """All bags; `offsets` say where the states of a bag begin in a vector over all states."""

    n: int
    bags: tuple[Bag, ...]
    offsets: Indices

    @property
    def n_states(self) -> int:
        """States of all bags together."""
        return int(self.offsets[-1])


@lru_cache(maxsize=64)
def junction_tree(shape: Shape) -> Tree | None:
    """Return the tree of a shape (without its couplings); None where some bag would have more than 17 variables.

    A tree without states says that no world is admitted.
    """
    wide = narrow(shape)
    order = _elimination(wide)
    if order is None:
        return None
    variables, parents = _merged(order)
    states = _states(wide, variables, {v: n for n, bag in enumerate(variables) for v in bag.eliminated})
    reduced = _reduced([bag.variables for bag in variables], parents, states)
    if reduced is None:
        return Tree(wide.n, (), np.zeros(1, np.intp))
    bags = _labelled([bag.variables for bag in variables], parents, reduced, [bag.eliminated for bag in variables])
    return Tree(wide.n, bags, np.cumsum([0, *(len(bag.states) for bag in bags)]))


def lowest(tree: Tree, slopes: Floats) -> tuple[Floats, float]:
    """Return the world with the least `slopes . v`, and that value: messages from the leaves, choices from the root."""
    cost = [bag.states[:, [c for _, c in bag.owned]] @ slopes[[v for v, _ in bag.owned]] for bag in tree.bags]
    for number in range(len(tree.bags) - 1, 0, -1):
        bag = tree.bags[number]
        message = np.full(bag.n_labels, np.inf)
        np.minimum.at(message, bag.labels, cost[number])
        cost[bag.parent] = cost[bag.parent] + message[bag.parent_labels]
    world = np.zeros(tree.n)
    chosen: list[int] = []
    for bag, own in zip(tree.bags, cost, strict=True):
        if bag.parent >= 0:
            own = np.where(bag.labels == bag.parent_labels[chosen[bag.parent]], own, np.inf)
        chosen.append(int(np.argmin(own)))
        for v, column in bag.owned:
            world[v] = bag.states[chosen[-1], column]
    return world, float(slopes @ world)


def marginals(tree: Tree, masses: Floats) -> Floats:
    """Return the marginals (n,) of the distribution whose conditionals, bag given parent, are those of `masses`.

    Masses that agree only roughly on what bags share thus still give a point that some distribution has.
    """
    found = np.zeros(tree.n)
    done: list[Floats] = []
    for number, bag in enumerate(tree.bags):
        own = np.maximum(masses[tree.offsets[number] : tree.offsets[number + 1]], 0.0)
        if bag.parent < 0:
            own = own / own.sum()
        else:
            wanted = np.bincount(bag.parent_labels, done[bag.parent], bag.n_labels)
            has = np.bincount(bag.labels, own, bag.n_labels)
            empty = has <= 1e-300
            own = np.where(empty[bag.labels], 1.0, own)
            has = np.where(empty, np.bincount(bag.labels, minlength=bag.n_labels), has)
            own = own * (wanted / has)[bag.labels]
        done.append(own)
        for v, column in bag.owned:
            found[v] = own @ bag.states[:, column]
    return found


class _Cut(NamedTuple):
    variables: tuple[int, ...]
    eliminated: tuple[int, ...]


def _elimination(shape: Shape) -> list[tuple[int, set[int]]] | None:
    """Return (variable, its neighbours when it goes), least degree first; ties by number."""
    near: list[set[int]] = [set() for _ in range(shape.n)]
    for rule in shape.rules:
        scope = set(names_of(rule))
        for v in scope:
            near[v] |= scope
    for v, around in enumerate(near):
        around.discard(v)
    heap = [(len(around), v) for v, around in enumerate(near)]
    heapq.heapify(heap)
    gone = [False] * shape.n
    order: list[tuple[int, set[int]]] = []
    while heap:
        degree, v = heapq.heappop(heap)
        around = near[v]
        if gone[v] or degree != len(around):
            continue
        if degree >= MAX_BAG:
            return None
        gone[v] = True
        order.append((v, around))
        for u in around:
            near[u] |= around
            near[u] -= {u, v}
            heapq.heappush(heap, (len(near[u]), u))
    return order


def _merged(order: list[tuple[int, set[int]]]) -> tuple[list[_Cut], list[int]]:
    """Return the bags and their parents, root first; a bag that its child contains is left out."""
    place = {v: n for n, (v, _) in enumerate(order)}
    above = [min((place[u] for u in around), default=-1) for _, around in order]
    holder = list(range(len(order)))  # the bag that stands for this one
    for n, (_, around) in enumerate(order):
        p = above[n]
        if p >= 0 and holder[p] == p and len(order[p][1]) + 1 == len(around):
            holder[p] = holder[n]
    tops = list(range(len(order)))
    members: dict[int, list[int]] = {}
    for n in range(len(order)):
        members.setdefault(holder[n], []).append(n)
        tops[holder[n]] = n  # the last one merged in is nearest to the root
    numbered = {h: i for i, h in enumerate(sorted(members, key=lambda h: -tops[h]))}
    bags, parents = [], []
    for h in numbered:
        v, around = order[h]
        bags.append(_Cut(tuple(sorted({v, *around})), tuple(order[n][0] for n in members[h])))
        up = above[tops[h]]
        parents.append(numbered[holder[up]] if up >= 0 else (0 if bags[1:] else -1))
    return bags, parents


def _states(shape: Shape, bags: list[_Cut], bag_of: dict[int, int]) -> list[States]:
    """Return the states of each bag that its rules admit; bags that look alike are worked out once."""
    depth = {v: n for n, v in enumerate(v for bag in reversed(bags) for v in bag.eliminated)}
    rules: list[list[tuple[Node, tuple[int, ...]]]] = [[] for _ in bags]
    for rule in shape.rules:
        scope = tuple(dict.fromkeys(names_of(rule)))
        home = bag_of[min(scope, key=depth.__getitem__)]
        column = {v: n for n, v in enumerate(bags[home].variables)}
        rules[home].append((rule, tuple(column[v] for v in scope)))
    return [
        _admitted(len(bag.variables), frozenset((_pattern(rule), columns) for rule, columns in own))
        for bag, own in zip(bags, rules, strict=True)
    ]


def _pattern(rule: Node) -> Node:
    names = {name: n for n, name in enumerate(dict.fromkeys(names_of(rule)))}
    return renamed(rule, names.__getitem__)


@lru_cache(maxsize=4096)
def _admitted(n: int, rules: frozenset[tuple[Node, tuple[int, ...]]]) -> States:
    cube = ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1).astype(bool)
    stays = np.ones(len(cube), bool)
    for rule, columns in rules:
        stays &= bounds(rule, {i: cube[:, column] for i, column in enumerate(columns)})[0]
    return cube[stays]


def _codes(states: States, columns: list[int]) -> Indices:
    return states[:, columns] @ (1 << np.arange(len(columns)))


def _shared(bags: list[tuple[int, ...]], parents: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return for each bag the columns shared with its parent, here and there."""
    found: list[tuple[list[int], list[int]]] = []
    for bag, parent in zip(bags, parents, strict=True):
        there = {v: n for n, v in enumerate(bags[parent])} if parent >= 0 else {}
        both = [v for v in bag if v in there]
        here = {v: n for n, v in enumerate(bag)}
        found.append(([here[v] for v in both], [there[v] for v in both]))
    return found


def _reduced(bags: list[tuple[int, ...]], parents: list[int], states: list[States]) -> list[States] | None:
    """Drop states that no state of a neighbour fits, leaves to root and back; None where nothing is left."""
    states = list(states)
    shared = _shared(bags, parents)
    steps = [*range(len(bags) - 1, 0, -1), *range(1, len(bags))]
    for step, number in enumerate(steps):
        is_upward = step < len(bags) - 1
        parent = parents[number]
        here, there = shared[number]
        own, other = _codes(states[number], here), _codes(states[parent], there)
        if is_upward:
            fits = np.isin(other, own)
            states[parent] = states[parent] if fits.all() else states[parent][fits]
        else:
            fits = np.isin(own, other)
            states[number] = states[number] if fits.all() else states[number][fits]
    return None if any(len(own) == 0 for own in states) else states


def _labelled(
    bags: list[tuple[int, ...]], parents: list[int], states: list[States], eliminated: list[tuple[int, ...]]
) -> tuple[Bag, ...]:
    found = []
    for number, (here, there) in enumerate(_shared(bags, parents)):
        parent = parents[number]
        codes, labels = np.unique(_codes(states[number], here), return_inverse=True)
        above = np.searchsorted(codes, _codes(states[parent], there)) if parent >= 0 else np.zeros(0, np.intp)
        column = {v: n for n, v in enumerate(bags[number])}
        owned = tuple((v, column[v]) for v in eliminated[number])
        found.append(Bag(bags[number], parent, states[number], labels, above, len(codes), owned))
    return tuple(found)
