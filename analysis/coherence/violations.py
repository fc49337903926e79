"""How much each relation is to blame: ε*² less what it would be without the relation, for the worst state of each phase.

A run has three phases, early, middle and late: thirds of the turns in which something was quoted, the last one always
late. It hides that quotes of one proposition are a tie too, which no relation states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from analysis.coherence.cliques import Quote, tie
from analysis.coherence.relations import Formula, Node
from analysis.coherence.residual import MAX_RELATIONS, Measured, rounded, violated

PHASES = ("early", "middle", "late")
SHARED = "shared"


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """One relation of one state. `kind` is the coupling it comes from, or its operation; `drop` ≥ 0 is in units of ε*².

    `is_violated`: it is in the minimal violated subset. `turn` is the turn of the state, None without turns.
    """

    turn: int | None
    phase: str
    relation: str
    kind: str
    text: str
    drop: float
    is_violated: bool


def drops(state: Measured, *, kinds: Mapping[str, str], turn: int | None = None, phase: str = "late") -> list[Drop]:
    """Return the drop of every relation that ties quotes of an incoherent clique; none where all is coherent.

    Where relations are redundant every drop can be 0 although ε* is not: then `is_violated` says which to look at.
    `kinds` maps the text of a formula to the name of the coupling it comes from.

    >>> from analysis.coherence.relations import parse
    >>> said = [Quote("x", "a", 0.6), Quote("y", "b", 0.6), Quote("z", "b", 0.8)]
    >>> found = drops(Measured(said, [parse("exactly_one(a, b)")]), kinds={})
    >>> [(row.kind, row.drop, row.is_violated) for row in found]
    [('exactly_one', 0.06, True), ('shared', 0.02, True)]
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
            found.append((relation.text, kind, max(0.0, square - rest), relation.text in worst))
        spread, names = _spread(clique.quotes), [text for text in worst if text.startswith("equal(") and text not in kinds]
        if spread > 0:
            found.append((names[0] if len(names) == 1 else SHARED, SHARED, spread, True))
    return [
        Drop(turn=turn, phase=phase, relation=r, kind=k, text=worst.get(r, ""), drop=rounded(d), is_violated=v)
        for r, k, d, v in found
    ]


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


def _spread(quotes: Sequence[Quote]) -> float:
    """The squared distance of quotes of one proposition from their mean: it vanishes if they need not agree."""
    said: dict[str, list[float]] = {}
    for quote in quotes:
        said.setdefault(quote.proposition, []).append(quote.p)
    return float(sum(len(values) * np.var(values) for values in said.values()))
