"""The residual ε*: how far quotes are from any coherent ones, what would repair them, and what they violate.

It hides which quotes count at which turn, and how cliques add up (squares do, residuals do not). Whatever could not be
computed is None, with the cause in `reasons`; nothing is ever taken as 0 or 0.5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.coherence import variants
from analysis.coherence.cliques import Clique, Projections, Quote, check_satisfiable, tie
from analysis.coherence.product import MAX_CORNERS, coupling
from analysis.coherence.projection import POSITIVE
from analysis.coherence.relations import Formula, in_words
from analysis.coherence.worlds import minimal

MAX_RELATIONS = 200  # of which a minimal violated subset is looked for
MAX_COUNT = 2**53
NO_CLAIMS = "no claims: there is nothing to be coherent or not"
Value = TypeVar("Value")
Floats = npt.NDArray[np.float64]


class Violation(msgspec.Struct, frozen=True):
    """A relation that the quotes violate, in the formula language and in words with the quotes."""

    relation: str
    text: str


class Residual(msgspec.Struct, frozen=True, kw_only=True):
    """ε* of one state and what goes with it; every length is in the same unit, a root of summed squared probabilities.

    `residual` is the upper bound of the certified interval. `canonical`: complements and repeated quotes share one
    weight. `debiased`: less what sampling noise alone adds on average. `max`: the largest value any quotes could have;
    `norm` = residual / max. `local`: of each component's quotes alone; `composed`: after each component repaired its own.
    """

    residual: float | None = None
    lower: float | None = None
    upper: float | None = None
    canonical: float | None = None
    debiased: float | None = None
    norm: float | None = None
    max: float | None = None
    local: dict[str, float] | None = None
    composed: float | None = None
    coupling_bits: float | None = None
    projection: dict[str, float | None] | None = None
    stakes: dict[str, float | None] | None = None
    violated: tuple[Violation, ...] | None = None
    energy: dict[str, float] | None = None
    n_claims: int = 0
    n_cliques: int = 0
    n_worlds: int | None = None
    method: str | None = None
    reasons: dict[str, str] = {}

    @property
    def is_coherent(self) -> bool | None:
        """Whether the residual is below what counts as positive; None without claims."""
        return None if self.residual is None else self.residual <= POSITIVE


class Measured:
    """The cliques of one state with their projections: what residual and attribution start from."""

    def __init__(self, quotes: Sequence[Quote], relations: Sequence[Formula]) -> None:
        check_satisfiable(relations)
        self.quotes = tuple(quotes)
        self.cliques = tie(quotes, relations)
        self.projections: list[Projections] = [clique.project() for clique in self.cliques]

    @property
    def upper(self) -> float:
        """Upper bound of ε* over all cliques."""
        return math.sqrt(sum(float(p.upper[0]) ** 2 for p in self.projections))

    @property
    def incoherent(self) -> list[tuple[Clique, Projections]]:
        """The cliques with a positive residual."""
        return [(c, p) for c, p in zip(self.cliques, self.projections, strict=True) if p.upper[0] > POSITIVE]


def rounded(value: Value) -> Value:
    """Return a value with all its floats at 9 decimals, rounded by way of 12 so that the solver's last bits never show.

    >>> rounded({"a": 0.1 + 0.2})
    {'a': 0.3}
    """
    if isinstance(value, float):
        return round(round(float(value), 12), 9) + 0.0  # type: ignore[return-value]
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}  # type: ignore[return-value]
    if isinstance(value, list | tuple):
        return type(value)(rounded(v) for v in value)
    return value


def measure(quotes: Sequence[Quote], relations: Sequence[Formula]) -> Residual:
    """Return ε* of quotes under relations: one quote for each component and proposition, in [0, 1].

    Raises
    ------
    RelationError
        If the relations contradict each other; the error names a minimal set that does.

    Examples
    --------
    >>> from analysis.coherence.relations import parse
    >>> found = measure([Quote("x", "a", 0.6), Quote("y", "b", 0.6)], [parse("exactly_one(a, b)")])
    >>> found.residual, found.projection, found.violated[0].text
    (0.141421356, {'a': 0.5, 'b': 0.5}, 'exactly one of a and b (quoted: a 0.6, b 0.6)')
    """
    return residual_of(Measured(quotes, relations))


def residual_of(state: Measured) -> Residual:
    """Return the residual of a state that was measured."""
    if not state.quotes:
        absent = [name for name in Residual.__struct_fields__ if name not in ("n_claims", "n_cliques", "reasons")]
        return Residual(reasons=dict.fromkeys(absent, NO_CLAIMS))
    reasons: dict[str, str] = {}
    upper = state.upper
    largest = _sum_of_squares("max", (_largest(clique) for clique in state.cliques), reasons)
    if largest is not None and largest <= POSITIVE:
        reasons["norm"] = "nothing can be violated: the largest possible residual is 0"
    elif largest is None:
        reasons["norm"] = reasons["max"]
    fields: dict[str, Any] = {
        "residual": upper,
        "lower": math.sqrt(sum(float(p.lower[0]) ** 2 for p in state.projections)),
        "upper": upper,
        "canonical": math.sqrt(sum(variants.canonical(clique) ** 2 for clique in state.cliques)),
        "debiased": _debiased(state, reasons),
        "max": largest,
        "norm": min(upper / largest, 1.0) if largest is not None and largest > POSITIVE else None,
        "local": _local(state),
        "composed": math.sqrt(sum(_composed(clique) ** 2 for clique in state.cliques)),
        "coupling_bits": _bits(state, reasons),
        "projection": by_proposition(state, [p.near[0] for p in state.projections]),
        "stakes": _stakes(state, reasons),
        "violated": _noted("violated", violated(state), reasons),
        "energy": energy(state),
        "n_worlds": _n_worlds(state, reasons),
    }
    method = "; ".join(dict.fromkeys(p.method for p in state.projections))
    fields |= {"n_claims": len(state.quotes), "n_cliques": len(state.cliques), "method": method}
    return Residual(**rounded(fields), reasons=reasons)


def energy(state: Measured) -> dict[str, float]:
    """Return for each component the sum of its squared pulls; over all components they make ε*².

    The split is unique, as the projection is, but it says where the quotes bend, not who is wrong.
    """
    total = dict.fromkeys(sorted({quote.component for quote in state.quotes}), 0.0)
    for clique, projection in zip(state.cliques, state.projections, strict=True):
        for quote, pull in zip(clique.quotes, projection.pulls[0], strict=True):
            total[quote.component] += float(pull) ** 2
    return total


def by_proposition(state: Measured, values: Sequence[Floats]) -> dict[str, float | None]:
    """Return a value for each quote, keyed by proposition, or `component:proposition` where several quote it.

    None stands for b if a where a became impossible.
    """
    times = Counter(quote.proposition for quote in state.quotes)
    of = {
        (quote.component, quote.proposition): None if math.isnan(value) else float(value)
        for clique, row in zip(state.cliques, values, strict=True)
        for quote, value in zip(clique.quotes, row, strict=True)
    }
    return {f"{c}:{p}" if times[p] > 1 else p: of[c, p] for c, p, *_ in state.quotes}


def _largest(clique: Clique) -> float | str:
    """Return the largest distance any quotes in [0, 1] can have, or why it is not known.

    Distance is convex, so it is attained at a corner of the box; of quotes of one proposition only how many are 1 matters.
    """
    if not clique.is_plain:
        return "conditional quotes: the largest residual is not at a corner of the box"
    places = clique.places()
    choices = [np.flatnonzero(places == column) for column in range(places.max() + 1)]
    if math.prod(len(quotes) + 1 for quotes in choices) > MAX_CORNERS:
        return f"more than {MAX_CORNERS} corners"
    rows = np.zeros((math.prod(len(quotes) + 1 for quotes in choices), len(places)))
    for row, counts in zip(rows, product(*(range(len(quotes) + 1) for quotes in choices)), strict=True):
        for quotes, n in zip(choices, counts, strict=True):
            row[quotes[:n]] = 1.0
    return float(clique.project(rows).upper.max())


def _sum_of_squares(key: str, parts: Iterable[float | str], reasons: dict[str, str]) -> float | None:
    total = 0.0
    for part in parts:
        if isinstance(part, str):
            reasons[key] = part
            return None
        total += part**2
    return math.sqrt(total)


def _debiased(state: Measured, reasons: dict[str, str]) -> float | None:
    parts = [variants.noise(c, p) for c, p in zip(state.cliques, state.projections, strict=True)]
    if unknown := [part for part in parts if isinstance(part, str)]:
        reasons["debiased"] = unknown[0]
        return None
    squares = [
        max(0.0, float(p.upper[0]) ** 2 - part)
        for p, part in zip(state.projections, parts, strict=True)
        if not isinstance(part, str)
    ]
    return math.sqrt(sum(squares))


def _parts(clique: Clique) -> list[Clique]:
    return [clique.of((name,)) for name in clique.components]


def _local(state: Measured) -> dict[str, float]:
    squares = dict.fromkeys(sorted({quote.component for quote in state.quotes}), 0.0)
    for clique in state.cliques:
        for name, part in zip(clique.components, _parts(clique), strict=True):
            squares[name] += float(part.project().upper[0]) ** 2
    return {name: math.sqrt(square) for name, square in squares.items()}


def _composed(clique: Clique) -> float:
    """Return the residual after each component has repaired its own quotes, the ε* of the paper (Kotawala, Definition 3.1)."""
    row = clique.values.copy()
    for n, part in enumerate(_parts(clique)):
        near = part.project().near[0]
        own = clique.owners == n
        row[own] = np.where(np.isnan(near), row[own], near)
    return float(clique.project(np.clip(row, 0, 1)[None, :]).upper[0])


def _bits(state: Measured, reasons: dict[str, str]) -> float | None:
    found = [coupling(clique) for clique in state.cliques]
    if None in found:
        reasons["coupling_bits"] = "the worlds were not counted: conditional quotes, linear couplings or too many worlds"
        return None
    return sum(part.bits for part in found if part is not None)


def _n_worlds(state: Measured, reasons: dict[str, str]) -> int | None:
    counts = [clique.polytope.n_worlds for clique in state.cliques]
    known = [n for n in counts if n is not None]
    n = math.prod(known)
    if len(known) < len(counts) or n > MAX_COUNT:
        reasons["n_worlds"] = "too many worlds to count"
        return None
    return n


def _stakes(state: Measured, reasons: dict[str, str]) -> dict[str, float | None] | None:
    """Return the bets of total length 1 whose gain is at least ε* in every world: the pulls over ε*."""
    if state.upper <= POSITIVE:
        reasons["stakes"] = "coherent: no bets win in every world"
        return None
    return by_proposition(state, [p.pulls[0] / state.upper for p in state.projections])


def violated(state: Measured) -> tuple[Violation, ...] | str:
    """Return an inclusion-minimal set of relations with the same ε*, found by deletion in declared order, or why not."""
    found: list[Violation] = []
    for clique, projection in state.incoherent:
        if len(clique.relations) > MAX_RELATIONS:
            return f"more than {MAX_RELATIONS} relations in one clique"
        kept = minimal(clique.relations, _has_same_residual(clique, projection))
        found += [Violation(relation.text, f"{in_words(relation.content)} {_quoted(clique, relation)}") for relation in kept]
        found += _disagreements(clique)
    return tuple(found)


def _noted(key: str, found: Value | str, reasons: dict[str, str]) -> Value | None:
    if isinstance(found, str):
        reasons[key] = found
        return None
    return found


def _has_same_residual(clique: Clique, projection: Projections) -> Callable[[Sequence[Formula]], bool]:
    slack = 1e-9 + float(projection.upper[0] - projection.lower[0])

    def is_enough(left: Sequence[Formula]) -> bool:
        square = sum(float(part.project().upper[0]) ** 2 for part in tie(clique.quotes, left))
        return math.sqrt(square) >= float(projection.upper[0]) - slack

    return is_enough


def _quoted(clique: Clique, relation: Formula) -> str:
    several = len({quote.proposition for quote in clique.quotes}) < len(clique.quotes)
    said = [
        f"{f'{quote.component}: ' if several else ''}{quote.proposition} {quote.p:g}"
        for quote in clique.quotes
        if quote.proposition in relation.names
    ]
    shown = said if len(said) <= 8 else [*said[:7], f"… {len(said)} in all"]
    return f"(quoted: {', '.join(shown)})" if said else "(nobody quotes it)"


def _disagreements(clique: Clique) -> list[Violation]:
    """Return the propositions that several components quote differently: a tie that no relation states."""
    said: dict[str, list[Quote]] = {}
    for quote in clique.quotes:
        said.setdefault(quote.proposition, []).append(quote)
    return [
        Violation(
            f"equal({', '.join(f'{q.component}:{name}' for q in quotes)})",
            f"{name} is one proposition, whoever quotes it (quoted: {', '.join(f'{q.component} {q.p:g}' for q in quotes)})",
        )
        for name, quotes in said.items()
        if max(q.p for q in quotes) - min(q.p for q in quotes) > POSITIVE
    ]
