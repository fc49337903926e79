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
    cuts, parents = _merged(order)
    states = _states(wide, cuts, {v: n for n, cut in enumerate(cuts) for v in cut.eliminated})
    bags = _bags(cuts, parents, states)
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


class _Codes:
    """The values that states show on some columns, as numbers; bags that look alike are worked out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[int, ...]], tuple[States, Indices, frozenset[int]]] = {}
        self._matched: dict[tuple[int, tuple[int, ...], int, tuple[int, ...]], tuple[Indices, Indices, int]] = {}

    def of(self, states: States, columns: tuple[int, ...]) -> tuple[Indices, frozenset[int]]:
        """Return the code of each state, and the set of them."""
        key = (id(states), columns)
        if key not in self._known:
            codes = states[:, list(columns)] @ (1 << np.arange(len(columns)))
            self._known[key] = (states, codes, frozenset(codes.tolist()))  # the states stay alive, so their id stays theirs
        return self._known[key][1:]

    def matched(
        self, states: States, here: tuple[int, ...], parent: States, there: tuple[int, ...]
    ) -> tuple[Indices, Indices, int]:
        """Return labels of the states and of the parent's, equal where they agree, and how many there are."""
        key = (id(states), here, id(parent), there)
        if key not in self._matched:
            values, labels = np.unique(self.of(states, here)[0], return_inverse=True)
            self._matched[key] = (labels, np.searchsorted(values, self.of(parent, there)[0]), len(values))
        return self._matched[key]


def _shared(bags: list[tuple[int, ...]], parents: list[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return for each bag the columns shared with its parent, here and there."""
    found = []
    for bag, parent in zip(bags, parents, strict=True):
        there = {v: n for n, v in enumerate(bags[parent])} if parent >= 0 else {}
        both = [(n, there[v]) for n, v in enumerate(bag) if v in there]
        found.append((tuple(n for n, _ in both), tuple(n for _, n in both)))
    return found


def _bags(cuts: list[_Cut], parents: list[int], states: list[States]) -> tuple[Bag, ...]:
    """Drop states that no state of a neighbour fits, leaves to root and back, and label the rest; empty where none is left."""
    variables = [cut.variables for cut in cuts]
    shared, codes = _shared(variables, parents), _Codes()
    for number in range(len(cuts) - 1, 0, -1):
        _fit(codes, states, parents[number], shared[number][::-1], number)
    for number in range(1, len(cuts)):
        _fit(codes, states, number, shared[number], parents[number])
    if any(len(own) == 0 for own in states):
        return ()
    found = []
    for number, (cut, (here, there)) in enumerate(zip(cuts, shared, strict=True)):
        own, parent = states[number], states[parents[number]]
        labels, above, n_labels = codes.matched(own, here, parent, there)
        column = {v: n for n, v in enumerate(cut.variables)}
        owned = tuple((v, column[v]) for v in cut.eliminated)
        found.append(Bag(cut.variables, parents[number], own, labels, above, n_labels, owned))
    return tuple(found)


def _fit(codes: _Codes, states: list[States], number: int, shared: tuple[tuple[int, ...], tuple[int, ...]], other: int) -> None:
    """Keep those states of a bag that some state of another one fits."""
    own, wanted = codes.of(states[number], shared[0]), codes.of(states[other], shared[1])[1]
    if not own[1] <= wanted:
        states[number] = states[number][[code in wanted for code in own[0].tolist()]]
