"""Polytopes whose projection has a closed form: one counting relation over literals, with a weight for each coordinate.

Every function works on rows: quotes are (B, d) in [0, 1], weights (d,) positive, in the norm sum of weight times square.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.coherence.relations import Node

Kind = Literal["box", "exactly_one", "at_most_one", "at_least_one", "equal"]
Floats = npt.NDArray[np.float64]


class Body(NamedTuple):
    """All points of one kind; where `flipped`, the coordinate stands for the complement of the literal counted."""

    kind: Kind
    flipped: npt.NDArray[np.bool_]

    @property
    def n_worlds(self) -> int:
        """How many 0/1 points the body has."""
        d = len(self.flipped)
        counts: dict[Kind, int] = {
            "exactly_one": d,
            "at_most_one": d + 1,
            "equal": 2,
            "box": 1 << d,
            "at_least_one": (1 << d) - 1,
        }
        return counts[self.kind]


def body_of(rules: Sequence[Node], quoted: Sequence[int]) -> Body | None:
    """Return the body of the coordinates `quoted` where the relations have a closed form, else None.

    >>> a, b, c = (Node("name", (i,)) for i in range(3))
    >>> body_of([Node("exactly_one", (a, b, c))], [0, 1]).kind  # the third is free to take the rest
    'at_most_one'
    """
    if not rules:
        return Body("box", np.zeros(len(quoted), bool)) if len(quoted) == 1 else None
    if len(rules) > 1 or (counted := _counted(rules[0])) is None:
        return None
    kind, literals = counted
    signs = dict(literals)
    if len(signs) < len(literals) or not set(quoted) <= set(signs):
        return None
    if set(quoted) < set(signs):
        weaker: dict[Kind, Kind] = {"exactly_one": "at_most_one", "at_least_one": "box"}
        kind = weaker.get(kind, kind)
    return Body(kind, np.array([signs[v] for v in quoted], bool))


def _counted(rule: Node) -> tuple[Kind, list[tuple[int, bool]]] | None:
    kind: Kind
    parts = rule.parts
    match rule.op:
        case "exactly_one" | "at_most_one" | "at_least_one" | "equal":
            kind = rule.op
        case "or":
            kind = "at_least_one"
        case "xor" if len(parts) == 2:
            kind = "exactly_one"
        case "implies":
            kind, parts = "at_least_one", (Node("not", (parts[0],)), parts[1])
        case _:
            return None
    literals = [_literal(part) for part in parts]
    return None if None in literals else (kind, [literal for literal in literals if literal is not None])


def _literal(node: Node) -> tuple[int, bool] | None:
    is_flipped = False
    while node.op == "not":
        node, is_flipped = node.parts[0], not is_flipped
    return (node.parts[0], is_flipped) if node.op == "name" else None


def project(body: Body, quotes: Floats, weights: Floats) -> Floats:
    """Return the nearest points of the body, (B, d).

    >>> simplex = Body("exactly_one", np.zeros(3, bool))
    >>> project(simplex, np.array([[0.9, 0.8, 0.05]]), np.ones(3)).round(6).tolist()
    [[0.55, 0.45, 0.0]]
    """
    literal = np.where(body.flipped, 1 - quotes, quotes)
    total = literal.sum(axis=1, keepdims=True)
    match body.kind:
        case "box":
            near = literal
        case "exactly_one":
            near = _simplex(literal, weights)
        case "at_most_one":
            near = np.where(total <= 1, literal, _simplex(literal, weights))
        case "at_least_one":
            # Quotes are not negative, so none reaches 1 before the sum does.
            near = literal + np.maximum(1 - total, 0) / weights / (1 / weights).sum()
        case "equal":
            near = np.repeat(literal @ weights[:, None] / weights.sum(), literal.shape[1], axis=1)
    return np.where(body.flipped, 1 - near, near)


def _simplex(literal: Floats, weights: Floats) -> Floats:
    """Project on {r >= 0, sum r = 1}: r = max(q - t/w, 0), the threshold t found by sorting (Held, Wolfe, Crowder 1974)."""
    order = np.argsort(-literal * weights, axis=1, kind="stable")
    sorted_quotes = np.take_along_axis(literal, order, axis=1)
    sorted_weights = weights[order]
    thresholds = (np.cumsum(sorted_quotes, axis=1) - 1) / np.cumsum(1 / sorted_weights, axis=1)
    n_positive = (sorted_quotes * sorted_weights > thresholds).sum(axis=1)
    threshold = np.take_along_axis(thresholds, n_positive[:, None] - 1, axis=1)
    return np.maximum(literal - threshold / weights, 0.0)


def lowest(body: Body, slopes: Floats) -> Floats:
    """Return the least value of `slopes . v` over the 0/1 points v of the body, (B,): the certificate's other half."""
    signed = np.where(body.flipped, -slopes, slopes)
    constant = np.where(body.flipped, slopes, 0.0).sum(axis=1)
    least = signed.min(axis=1)
    negative = np.minimum(signed, 0.0).sum(axis=1)
    match body.kind:
        case "box":
            value = negative
        case "exactly_one":
            value = least
        case "at_most_one":
            value = np.minimum(least, 0.0)
        case "at_least_one":
            value = np.where(least < 0, negative, least)
        case "equal":
            value = np.minimum(signed.sum(axis=1), 0.0)
    return np.asarray(value + constant)


def points(body: Body) -> Floats:
    """Return the 0/1 points of the body, (m, d)."""
    d = len(body.flipped)
    match body.kind:
        case "exactly_one":
            literal = np.eye(d)
        case "at_most_one":
            literal = np.vstack([np.zeros(d), np.eye(d)])
        case "equal":
            literal = np.array([[0.0] * d, [1.0] * d])
        case _:
            literal = ((np.arange(2**d)[:, None] >> np.arange(d)) & 1).astype(float)[body.kind == "at_least_one" :]
    return np.where(body.flipped, 1 - literal, literal)


def subset_squares(body: Body, quote: Floats, members: npt.NDArray[np.bool_]) -> Floats:
    """Return the squared distance of some quotes alone (rows of `members`, (S, d)), the others free; weights are 1."""
    literal = np.where(body.flipped, 1 - quote, quote)
    is_whole = members.all(axis=1)
    ones = np.ones(len(literal))
    if body.kind == "equal":
        n = np.maximum(members.sum(axis=1), 1)
        return np.asarray((members @ literal**2) - (members @ literal) ** 2 / n)
    if body.kind in ("box", "at_least_one"):
        weaker = np.zeros(len(members))
    else:  # who does not speak may take 0: at most one of the rest
        rows = np.where(members, literal, 0.0)
        near = project(Body("at_most_one", np.zeros(len(literal), bool)), rows, ones)
        weaker = ((near - rows) ** 2).sum(axis=1)
    whole = float(((project(body, quote[None, :], ones) - quote) ** 2).sum())
    return np.where(is_whole, whole, weaker)
