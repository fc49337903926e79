"""What the source states as an outcome, as 0/1 quotes: the facts that the verdicts of a team are held against.

It decides when a fact is known, when it holds, and what it may be held against: a verdict, never a forecast. 0.8 said
before the tests ran is no contradiction of their 1; how far it is off is a matter of calibration, not of coherence.

Facts are of level `component`, as the ledgers' and planners' verdicts are: levels are measured apart, and at any other
one a fact would meet none of them. They hold from the last turn on (those of a candidate from its own event on), so
that "not satisfied yet" in the middle of a run is never held against its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from analysis.coherence.cliques import Quote, tie
from analysis.coherence.couplings import Coupling, relations_for
from analysis.coherence.relations import parse
from analysis.coherence.turns import usable
from analysis.model import Claim, Relation, Trace

OUTCOME, TESTS = "outcome", "tests"
_LEVEL: Literal["component"] = "component"


class Tied(NamedTuple):
    """The facts that a trace's claims are held against, and the relations that couplings add."""

    facts: tuple[Claim, ...]
    relations: tuple[Relation, ...]


def verdict_claims(trace: Trace) -> tuple[Claim, ...]:
    """Return what the source states: nothing where it states nothing.

    `passed` by `outcome`; by `tests`: `tests_ok`, for each candidate with tests `<subtask or else candidate>_tests_ok`
    (of several candidates for a subtask the latest stands), for each subtask `<subtask>_ok` where it is known whether its
    tests pass by itself. Ids enter names as they are: in a formula write one that is no identifier in quotes.

    Examples
    --------
    >>> from analysis.model import Outcome
    >>> trace = Trace(trace_id="t", world="recorded", outcome=Outcome(passed=False, n_tests_passed=7, n_tests=7))
    >>> [(claim.component, claim.proposition, claim.p) for claim in verdict_claims(trace)]
    [('outcome', 'passed', 0.0), ('tests', 'tests_ok', 1.0)]
    """
    return tuple(_facts(trace))


def comparable(facts: Sequence[Claim], claims: Sequence[Claim], relations: Sequence[Relation]) -> tuple[Claim, ...]:
    """Return the facts that a verdict of the team is tied to, by relations or as the same proposition, and no forecast is.

    A verdict is a quote of 0 or 1, a forecast one between them. A fact tied to nothing that was said says nothing about
    the team: where nobody claims anything there are still no claims, and no residual of 0.

    Parameters
    ----------
    facts : from `verdict_claims`
    claims : all other claims of the trace
    relations : all of them, the trace's own and those of couplings

    Raises
    ------
    RelationError, UnknownNameError
        If a relation cannot be read.
    """
    said = [_quote(claim) for claim in usable(claims).claims if claim.level == _LEVEL]
    spoken = set(said)
    formulas = [parse(relation.formula) for relation in relations]
    held = {
        quote.proposition
        for clique in tie([*said, *map(_quote, facts)], formulas)
        if not spoken.isdisjoint(clique.quotes) and all(quote.p in (0, 1) for quote in clique.quotes)
        for quote in clique.quotes
    }
    return tuple(fact for fact in facts if fact.proposition in held)


def tied(trace: Trace, claims: Sequence[Claim], couplings: Sequence[Coupling]) -> Tied:
    """Return what is measured beside a trace's claims and relations: the comparable facts, and the relations of couplings.

    `claims` are all of the trace, those read out of its texts included. A coupling between facts that nothing said is
    tied to is left out with them.
    """
    facts = verdict_claims(trace)
    relations = relations_for(trace, [*claims, *facts], couplings)
    kept = comparable(facts, claims, [*trace.relations, *relations])
    return Tied(kept, relations_for(trace, [*claims, *kept], couplings))


def _quote(claim: Claim) -> Quote:
    return Quote(claim.component, claim.proposition, claim.p)


def _facts(trace: Trace) -> Iterator[Claim]:
    turns = {event.event_id: event.turn for event in trace.events}
    last = max((t for t in (*turns.values(), *(claim.turn for claim in trace.claims)) if t is not None), default=None)
    outcome = trace.outcome
    if outcome.passed is not None:
        yield _fact("passed", outcome.passed, by=OUTCOME, rule="outcome-passed", turn=last, claim_id="v:passed")
    if (is_ok := _all_pass(outcome.n_tests_passed, outcome.n_tests)) is not None:
        yield _fact("tests_ok", is_ok, by=TESTS, rule="outcome-tests", turn=last, claim_id="v:tests")
    for candidate in trace.candidates:
        if (is_ok := _all_pass(candidate.n_passed, candidate.n_tests)) is not None:
            name, claim_id = f"{candidate.subtask_id or candidate.candidate_id}_tests_ok", f"v:candidate:{candidate.candidate_id}"
            turn = turns.get(candidate.event_id or "")
            turn = last if turn is None else turn
            fact = _fact(name, is_ok, by=TESTS, rule="candidate-tests", turn=turn, claim_id=claim_id)
            yield msgspec.structs.replace(fact, event_id=candidate.event_id)
    for subtask in trace.subtasks:
        if (is_ok := subtask.passes_alone) is not None:
            name, claim_id = f"{subtask.subtask_id}_ok", f"v:subtask:{subtask.subtask_id}"
            yield _fact(name, is_ok, by=TESTS, rule="subtask-passes-alone", turn=last, claim_id=claim_id)


def _all_pass(n_passed: int | None, n_tests: int | None) -> bool | None:
    """Return whether all tests pass; None where that is not known, or the counts cannot be right."""
    if n_passed is None or not n_tests or n_passed > n_tests:
        return None
    return n_passed == n_tests


def _fact(proposition: str, is_true: bool, *, by: str, rule: str, turn: int | None, claim_id: str) -> Claim:
    return Claim(
        claim_id=claim_id,
        component=by,
        proposition=proposition,
        p=float(is_true),
        turn=turn,
        level=_LEVEL,
        kind="verdict",
        basis="derived",
        rule=rule,
    )
