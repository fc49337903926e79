"""How much each relation is to blame: ε*² less what it would be without the relation, for the worst state of each phase.

A run has three phases, early, middle and late: thirds of the turns in which something was quoted, the last one always
late. It hides that quotes of one proposition are a tie too, which no relation states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from analysis.coherence.cliques import Quote, tie
from analysis.coherence.relations import Formula, Node, names_of, parse_proposition
from analysis.coherence.residual import MAX_RELATIONS, Measured, rounded, violated

PHASES = ("early", "middle", "late")
SHARED = "shared"


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """One relation of one state. `kind` is the coupling it comes from, or its operation; `drop` ≥ 0 is in units of ε*².

    `is_violated`: it is in the minimal violated subset. `components` quote what it is about. `turn` is that of the state,
    None without turns.
    """

    turn: int | None
    phase: str
    relation: str
    kind: str
    text: str
    components: tuple[str, ...]
    drop: float
    is_violated: bool


def drops(state: Measured, *, kinds: Mapping[str, str], turn: int | None = None, phase: str = "late") -> list[Drop]:
    """Return the drop of every relation that ties quotes of an incoherent clique; none where all is coherent.

    Where relations are redundant every drop can be 0 although ε* is not: then `is_violated` says which to look at.
    `kinds` maps the text of a formula to the name of the coupling it comes from.

    >>> from analysis.coherence.relations import parse
    >>> said = [Quote("x", "a", 0.6), Quote("y", "b", 0.6), Quote("z", "b", 0.8)]
    >>> found = drops(Measured(said, [parse("exactly_one(a, b)")]), kinds={})
    >>> [(row.kind, row.components, row.drop) for row in found]
    [('exactly_one', ('x', 'y', 'z'), 0.06), ('shared', ('y', 'z'), 0.02)]
    """
    if not state.incoherent:
        return []
    broken = violated(state)
    worst = {} if isinstance(broken, str) else {violation.relation: violation.text for violation in broken}
    found = []
    for clique, projection in state.incoherent:
        square = float(projection.upper[0]) ** 2
        ties = clique.relations if len(clique.relations) <= MAX_RELATIONS else ()
        for n, relation in enumerate(ties):
            rest = sum(float(part.project().upper[0]) ** 2 for part in tie(clique.quotes, ties[:n] + ties[n + 1 :]))
            kind = kinds.get(relation.text) or kind_of(relation)
            who = _who(clique.quotes, set(relation.names))
            found.append((relation.text, kind, who, max(0.0, square - rest), relation.text in worst))
        spread, shared = _spread(clique.quotes)
        if spread > 0:
            names = [text for text in worst if text.startswith("equal(") and text not in kinds]
            who = _who(clique.quotes, shared)
            found.append((names[0] if len(names) == 1 else SHARED, SHARED, who, spread, True))
    return [
        Drop(
            turn=turn, phase=phase, relation=relation, kind=kind, text=worst.get(relation, ""), components=who,
            drop=rounded(drop), is_violated=is_violated,
        )
        for relation, kind, who, drop, is_violated in found
    ]  # fmt: skip


def phase_of(n: int, n_turns: int) -> str:
    """Return the phase of the n-th of the turns in which something was quoted, counted from 0.

    >>> [phase_of(n, 4) for n in range(4)], phase_of(0, 1)
    (['early', 'early', 'middle', 'late'], 'late')
    """
    return "late" if n == n_turns - 1 else PHASES[3 * n // n_turns]


def drops_by_phase(
    turns: Sequence[tuple[int | None, Sequence[Quote]]], relations: Sequence[Formula], *, kinds: Mapping[str, str]
) -> list[Drop]:
    """Return the drops in the worst state of each phase, the later one of two that are equally bad."""
    states = [(turn, phase_of(n, len(turns)), Measured(quotes, relations)) for n, (turn, quotes) in enumerate(turns)]
    found: list[Drop] = []
    for phase in PHASES:
        of_phase = [(turn, state) for turn, its_phase, state in states if its_phase == phase]
        if of_phase:
            turn, state = max(reversed(of_phase), key=lambda row: rounded(row[1].upper))
            found += drops(state, kinds=kinds, turn=turn, phase=phase)
    return found


def kind_of(relation: Formula) -> str:
    """Return the operation that stands at the top of a formula; `linear` for a coupling of numbers."""
    return relation.content.op if isinstance(relation.content, Node) else "linear"


def _who(quotes: Sequence[Quote], names: Collection[str]) -> tuple[str, ...]:
    """Return who quotes one of the names, alone or in a conditional."""
    quoted = {quote.proposition: set(names_of(parse_proposition(quote.proposition))) for quote in quotes}
    return tuple(sorted({quote.component for quote in quotes if not quoted[quote.proposition].isdisjoint(names)}))


def _spread(quotes: Sequence[Quote]) -> tuple[float, set[str]]:
    """Return the squared distance of quotes of one proposition from their mean, and the propositions that have one.

    It vanishes if they need not agree.
    """
    said: dict[str, list[float]] = {}
    for quote in quotes:
        said.setdefault(quote.proposition, []).append(quote.p)
    parts = {name: float(len(values) * np.var(values)) for name, values in said.items()}
    return sum(parts.values()), {name for name, part in parts.items() if part > 0}
