"""Cliques: quotes that relations tie to each other, and their distance to what is coherent.

It hides how quotes become coordinates: quotes of one proposition fold into one weighted coordinate (exact: the spread
among them is a constant), a quote of b if a becomes the gain of a bet that is called off unless a.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.coherence.projection import Polytope, View, has_points, is_satisfiable, points_of, polytope
from analysis.coherence.relations import Formula, Linear, Node, names_of, parse_proposition, renamed
from analysis.coherence.worlds import Shape, minimal
from analysis.errors import RelationError

Floats = npt.NDArray[np.float64]


class Quote(NamedTuple):
    """What a component says of a proposition: the probability `p`, the mean of `n_samples` where they are known."""

    component: str
    proposition: str
    p: float
    n_samples: int | None = None
    samples: tuple[float, ...] | None = None


class Projections(NamedTuple):
    """Nearest coherent quotes to B rows of quotes.

    `near` (B, n) are the repaired quotes; `pulls` (B, n) what each quote is off, in its own coordinate (near - quote for
    a plain proposition); `lower` and `upper` (B,) bound the root of the weighted sum of squared pulls.
    """

    near: Floats
    pulls: Floats
    lower: Floats
    upper: Floats
    method: str


class Clique:
    """Quotes tied by relations, directly or through others; `quotes` in the order given, `relations` as declared."""

    def __init__(self, quotes: Sequence[Quote], relations: Sequence[Formula]) -> None:
        self.quotes = tuple(quotes)
        self.relations = tuple(relations)

    @cached_property
    def values(self) -> Floats:
        """The quotes, (n,)."""
        return np.array([quote.p for quote in self.quotes])

    @cached_property
    def components(self) -> tuple[str, ...]:
        """Who quotes, sorted."""
        return tuple(sorted({quote.component for quote in self.quotes}))

    @cached_property
    def owners(self) -> npt.NDArray[np.intp]:
        """For each quote the place of its component in `components`, (n,)."""
        place = {name: n for n, name in enumerate(self.components)}
        return np.array([place[quote.component] for quote in self.quotes])

    @cached_property
    def _numbered(self) -> _Numbered:
        propositions = tuple(dict.fromkeys(quote.proposition for quote in self.quotes))
        return _number(propositions, self.relations)

    @property
    def polytope(self) -> Polytope:
        """The coherent marginals of everything that is quoted."""
        numbered = self._numbered
        kept = sorted({v for pair in numbered.coordinates.values() for v in pair if v >= 0})
        return polytope(numbered.shape, tuple(kept))

    @property
    def is_plain(self) -> bool:
        """True without conditional quotes."""
        return all(minus < 0 for _, minus in self._numbered.coordinates.values())

    def places(self) -> npt.NDArray[np.intp]:
        """Return for each quote the column of its proposition in the polytope, (n,)."""
        return np.array([place for place, _ in self.coordinates()])

    @property
    def points(self) -> Floats | None:
        """The admitted 0/1 points over the quotes (m, n), for plain quotes where they can be listed."""
        return points_of(self.polytope)[:, self.places()] if self.is_plain and has_points(self.polytope) else None

    def coordinates(self) -> list[tuple[int, int]]:
        """Return for each quote the column of its proposition, and of its condition or -1, in the polytope."""
        column = {v: n for n, v in enumerate(self.polytope.kept)} | {-1: -1}
        pairs = (self._numbered.coordinates[quote.proposition] for quote in self.quotes)
        return [(column[v], column[condition]) for v, condition in pairs]

    def witnesses(self) -> Floats | None:
        """Return the admitted 0/1 points over the columns of `coordinates`, where they can be listed."""
        return points_of(self.polytope) if has_points(self.polytope) else None

    def of(self, components: Collection[str]) -> Clique:
        """Return the clique of what some components quote, under the same relations."""
        return Clique([quote for quote in self.quotes if quote.component in components], self.relations)

    def project(self, rows: Floats | None = None, weights: Floats | None = None) -> Projections:
        """Return the nearest coherent quotes to `rows` (B, n), by default to the quotes as they are.

        `weights` (n,) multiply the squares; all 1 by default.
        """
        rows = self.values[None, :] if rows is None else np.asarray(rows, dtype=float)
        weights = np.ones(rows.shape[1]) if weights is None else np.asarray(weights, dtype=float)
        return _project(self, rows, weights) if self.is_plain else _by_row(self, rows, weights)


def tie(quotes: Sequence[Quote], relations: Sequence[Formula]) -> list[Clique]:
    """Return the cliques: groups of quotes that relations connect, each with its relations, in order of their first quote.

    A relation over propositions nobody quotes ties nothing. Quotes of one proposition are tied by it.

    >>> from analysis.coherence.relations import parse
    >>> quotes = [Quote("x", "a", 0.6), Quote("y", "b", 0.6), Quote("x", "c", 0.5)]
    >>> [[quote.proposition for quote in clique.quotes] for clique in tie(quotes, [parse("exactly_one(a, b)")])]
    [['a', 'b'], ['c']]
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = name = parent[parent[name]]
        return name

    first_name = {p: next(names_of(parse_proposition(p))) for p in {quote.proposition for quote in quotes}}
    groups = [relation.names for relation in relations]
    for names in [*groups, *(tuple(names_of(parse_proposition(p))) for p in first_name)]:
        for name in names:
            parent[root(name)] = root(names[0])
    tied: dict[str, tuple[list[Quote], list[Formula]]] = {}
    for quote in quotes:
        tied.setdefault(root(first_name[quote.proposition]), ([], []))[0].append(quote)
    for relation in relations:
        if relation.names and (group := tied.get(root(relation.names[0]))):
            group[1].append(relation)
    return [Clique(*group) for group in tied.values()]


def check_satisfiable(relations: Sequence[Formula]) -> None:
    """Refuse relations that contradict each other; the error names an inclusion-minimal set that does.

    >>> from analysis.coherence.relations import parse
    >>> check_satisfiable([parse("implies(a, b)"), parse("a & ~b"), parse("a | c")])
    Traceback (most recent call last):
    ...
    analysis.errors.RelationError: relations: they contradict each other: implies(a, b); a & ~b - remove or correct one of them
    """
    names = dict.fromkeys(name for relation in relations for name in relation.names)
    for clique in tie([Quote("", name, 0.0) for name in names], relations):
        if not _is_satisfiable(clique.relations):
            conflict = minimal(clique.relations, lambda left: not _is_satisfiable(tuple(left)))
            texts = "; ".join(relation.text for relation in conflict)
            raise RelationError("relations", f"they contradict each other: {texts}", hint="remove or correct one of them")


@lru_cache(maxsize=4096)
def _is_satisfiable(relations: tuple[Formula, ...]) -> bool:
    return is_satisfiable(_number((), relations).shape)


class _Numbered(NamedTuple):
    shape: Shape
    coordinates: dict[str, tuple[int, int]]  # proposition -> its variable, and the condition's variable or -1


def _number(propositions: Sequence[str], relations: Sequence[Formula]) -> _Numbered:
    """Number the names in the order of the relations, so that cliques that differ in names only share one shape."""
    number: dict[Any, int] = {}

    def of(name: Any) -> int:
        return number.setdefault(name, len(number))

    contents = [relation.content for relation in relations]
    rules = [renamed(content, of) for content in contents if isinstance(content, Node)]
    couplings = []
    for content in contents:
        if isinstance(content, Linear):
            terms = tuple((c, Node("name", (_variable(node, of, rules),))) for c, node in content.terms)
            couplings.append(Linear(terms, content.bound, content.is_equality))
    coordinates = {}
    for text in propositions:
        node = parse_proposition(text)
        if node.op == "given":
            event, condition = node.parts
            both = _variable(Node("and", (event, condition)), of, rules)
            coordinates[text] = (both, _variable(condition, of, rules))
        else:
            coordinates[text] = (of(text), -1)
    return _Numbered(Shape(len(number), tuple(rules), tuple(couplings)), coordinates)


def _variable(node: Node, of: Callable[[Any], int], rules: list[Node]) -> int:
    """Return the variable that stands for a formula, with a rule that says so unless it is a name."""
    if node.op == "name":
        return of(node.parts[0])
    v = of(node)
    rule = Node("equal", (Node("name", (v,)), renamed(node, of)))
    if rule not in rules:
        rules.append(rule)
    return v


def _project(clique: Clique, rows: Floats, weights: Floats) -> Projections:
    """Fold quotes of one proposition: sum w (r - q)² = W (r - mean)² + spread, with W the sum of the weights."""
    body = clique.polytope
    places = clique.places()
    n = len(body.kept)
    total = np.bincount(places, weights, n)
    if (np.bincount(places, minlength=n) == 1).all():  # nothing to fold
        means = np.empty_like(rows)
        means[:, places] = rows
        spread = np.zeros(len(rows))
    else:
        fold = np.zeros((len(places), n))
        fold[np.arange(len(places)), places] = weights / total[places]
        means = rows @ fold
        spread = (weights * (rows - means[:, places]) ** 2).sum(axis=1)
    found = body.project(plain_view(np.asarray(total, float)), means * np.sqrt(total))
    near = found.marginals[:, places]
    lower, upper = (np.sqrt(part * part + spread) for part in (found.lower, found.upper))
    return Projections(near, near - rows, lower, upper, found.method)


def plain_view(weights: Floats) -> View:
    """Return the view of quotes that are marginals themselves, in order, with their weights."""
    n = len(weights)
    return View(np.arange(n), np.full(n, -1), np.zeros(n), weights)


def _by_row(clique: Clique, rows: Floats, weights: Floats) -> Projections:
    """Project rows with conditional quotes one by one: the polytope of the called-off bets moves with the quote."""
    body, pairs = clique.polytope, clique.coordinates()
    plus, minus = (np.array([pair[k] for pair in pairs]) for k in (0, 1))
    near, pulls = np.empty_like(rows), np.empty_like(rows)
    lower, upper = np.empty(len(rows)), np.empty(len(rows))
    for b, row in enumerate(rows):
        view = View(plus, minus, row, weights)
        targets = np.where(minus < 0, row, 0.0) * np.sqrt(weights)
        found = body.project(view, targets[None, :])
        z = found.marginals[0]
        mass = np.where(minus < 0, 1.0, z[minus])
        near[b] = np.divide(z[plus], mass, out=np.full(len(row), np.nan), where=mass > 1e-12)
        pulls[b] = np.where(minus < 0, z[plus] - row, z[plus] - row * z[minus])
        lower[b], upper[b] = found.lower[0], found.upper[0]
    return Projections(near, pulls, lower, upper, found.method + ", conditionals as called-off bets")
