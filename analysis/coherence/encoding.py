"""Wide relations as chains of narrow ones: at most `WIDTH` variables each, with new variables for what is in between.

The worlds over the old variables stay the same, and each of them fixes the new ones; it hides how counting is chained.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, product
from typing import Any

import numpy as np

from analysis.coherence.relations import Node, bounds, names_of, renamed
from analysis.coherence.worlds import Shape

WIDTH = 4

Row = tuple[dict[int, float], float, float]  # coefficients, least value, largest value


def narrow(shape: Shape) -> Shape:
    """Return a shape whose rules have at most `WIDTH` variables each; new variables come after the old ones."""
    encoder = _Encoder(shape.n)
    for rule in shape.rules:
        encoder.require(rule)
    return Shape(encoder.n, tuple(encoder.rules), shape.couplings)


def linear_rows(rule: Node) -> list[Row]:
    """Return linear rows over 0/1 variables whose solutions are the worlds of a rule; the rule has literals or is narrow.

    >>> linear_rows(Node("implies", (Node("name", (0,)), Node("name", (1,)))))
    [({0: -1.0, 1: 1.0}, 0.0, inf)]
    """
    if rule.op in ("exactly_one", "at_most_one") and all(_is_literal(part) for part in rule.parts):
        return [_sum_row(rule.parts, 1.0 if rule.op == "exactly_one" else -np.inf, 1.0)]
    names = tuple(dict.fromkeys(names_of(rule)))
    place = {name: n for n, name in enumerate(names)}
    clauses = _prime_clauses(renamed(rule, place.__getitem__), len(names))
    return [
        ({names[i]: 1.0 if is_positive else -1.0 for i, is_positive in clause}, 1.0 - sum(not p for _, p in clause), np.inf)
        for clause in clauses
    ]


def _is_literal(node: Node) -> bool:
    return node.op == "name" or (node.op == "not" and node.parts[0].op == "name")


def _sum_row(literals: Sequence[Node], low: float, high: float) -> Row:
    coefficients: dict[int, float] = {}
    n_negated = 0
    for literal in literals:
        sign = 1.0 if literal.op == "name" else -1.0
        n_negated += literal.op == "not"
        name = next(names_of(literal))
        coefficients[name] = coefficients.get(name, 0.0) + sign
    return coefficients, low - n_negated, high - n_negated


@lru_cache(maxsize=4096)
def _prime_clauses(rule: Node, n: int) -> tuple[tuple[tuple[int, bool], ...], ...]:
    """Return the shortest clauses (literals: position, sign) that together say what the rule says."""
    cube = ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1).astype(bool)
    truth = np.broadcast_to(bounds(rule, dict(enumerate(cube.T)))[0], len(cube))
    false = cube[~truth]
    true = cube[truth]
    found: list[tuple[tuple[int, bool], ...]] = []
    for size in range(1, n + 1):
        for places in combinations(range(n), size):
            for signs in product((True, False), repeat=size):
                clause = tuple(zip(places, signs, strict=True))
                if any(set(known) <= set(clause) for known in found):
                    continue
                if (true[:, places] == signs).any(axis=1).all() and not (false[:, places] == signs).any(axis=1).all():
                    found.append(clause)
    return tuple(found)


class _Encoder:
    """Collects narrow rules and hands out new variables; the same formula gets the same variable."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.rules: list[Node] = []
        self._known: dict[Any, Node] = {}

    def require(self, rule: Node) -> None:
        """Add rules that say `rule` holds."""
        if len(set(names_of(rule))) <= WIDTH:
            self.rules.append(rule)
        elif rule.op == "and":
            for part in rule.parts:
                self.require(part)
        elif rule.op in ("exactly_one", "at_most_one"):
            self._count(rule)
        elif rule.op == "equal" and all(_is_literal(part) for part in rule.parts):
            for left, right in zip(rule.parts, rule.parts[1:], strict=False):
                self.rules.append(Node("equal", (left, right)))
        else:
            self.require(self._shallow(rule))

    def _shallow(self, rule: Node) -> Node:
        """Return a rule over literals that says the same, narrow enough to be asserted."""
        if rule.op == "not":
            return Node("not", (self._literal(rule.parts[0]),))
        if rule.op == "implies" or len(rule.parts) == 2:
            return Node(rule.op, tuple(self._literal(part) for part in rule.parts))
        return self._literal(rule)

    def _count(self, rule: Node) -> None:
        """Run a variable along the parts that says whether one has come; none may come after it."""
        seen = self._literal(rule.parts[0])
        for part in rule.parts[1:]:
            literal, after = self._literal(part), self._new()
            step = Node("equal", (after, Node("or", (seen, literal))))
            self.rules.append(Node("and", (step, Node("not", (Node("and", (seen, literal)),)))))
            seen = after
        if rule.op == "exactly_one":
            self.rules.append(seen)

    def _literal(self, node: Node) -> Node:
        """Return a literal that is true exactly where the node is."""
        if _is_literal(node):
            return node
        if node not in self._known:
            self._known[node] = self._defined(node)
        return self._known[node]

    def _defined(self, node: Node) -> Node:
        if node.op == "not":
            inner = self._literal(node.parts[0])
            return inner.parts[0] if inner.op == "not" else Node("not", (inner,))
        parts = [self._literal(part) for part in node.parts]
        if node.op == "implies":
            return self._name(Node("implies", tuple(parts)))
        if node.op == "equal":
            every, some = self._chain("and", parts), self._chain("or", parts)
            return self._name(Node("implies", (some, every)))
        if node.op in ("and", "or", "xor"):
            return self._chain(node.op, parts)
        if node.op == "at_least_one":
            return self._chain("or", parts)
        return self._counted(node.op, parts)

    def _counted(self, op: str, parts: list[Node]) -> Node:
        """Return the literal of exactly_one or at_most_one inside a formula, where a second one may come."""
        one: Node = parts[0]
        two: Node | None = None
        for part in parts[1:]:
            again = Node("and", (one, part))
            two = self._name(again if two is None else Node("or", (two, again)))
            one = self._name(Node("or", (one, part)))
        if two is None:
            return one if op == "exactly_one" else self._name(Node("or", (one, Node("not", (one,)))))
        return self._name(Node("and", (one, Node("not", (two,))))) if op == "exactly_one" else self._name(Node("not", (two,)))

    def _chain(self, op: str, parts: list[Node]) -> Node:
        result = parts[0]
        for part in parts[1:]:
            result = self._name(Node(op, (result, part)))
        return result

    def _name(self, node: Node) -> Node:
        name = self._new()
        self.rules.append(Node("equal", (name, node)))
        return name

    def _new(self) -> Node:
        self.n += 1
        return Node("name", (self.n - 1,))
