"""The numbers that agents state in their texts, as claims on propositions.

Decides, in this order: a proposition that is named; one whose text the words mean; the speaker's own work. Hidden here:
what counts as speaking of one's own work, and that a text handed on is said once, by whom it came from.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from analysis.coherence.claims.linking import MIN_SCORE, Link, Texts
from analysis.coherence.claims.own import content_words, is_own_work, names_own_work, own_proposition
from analysis.coherence.claims.records import Extracted, Unlinked
from analysis.coherence.claims.team import SOLVED, Team
from analysis.coherence.claims.verbalised import Stated, stated
from analysis.model import Claim, Event, Trace

NAMED, IN_WORDS, OWN_WORK, ANSWER = "proposition-named", "proposition-in-words", "own-work", "final-answer"
SCORE_NAMED, SCORE_MENTIONED, SCORE_OWN, SCORE_TOPICLESS = 1.0, 0.9, 0.8, 0.7
MAX_SHORT = 6  # words of a sentence that can only be about the text it stands in
MAX_SHORT_TEXT = 120  # and its characters
MIN_ECHO = 4  # words of a text that two agents do not find independently

_FIRST = re.compile(r"\b(?:i|we|my|our|i['’]m)\b|我", re.I)
_NOT = re.compile(r"\b(?:not|never|cannot|no|without|neither|nor|fail\w*|wrong|incorrect)\b|n['’]t\b|不|没|未|失败|错误", re.I)
_WORDS = re.compile(r"[\w-]+")


class _Read(NamedTuple):
    event: Event
    stated: Stated
    link: Link
    rule: str


def said(trace: Trace, team: Team, texts: Texts) -> tuple[list[Extracted], list[Unlinked]]:
    """Return the claims that the agents' own words make, and the numbers that could not be linked."""
    claims, unlinked = list[Extracted](), dict[tuple[str, str, str], Unlinked]()
    given = defaultdict[str | None, dict[str, float]](dict)
    for claim in trace.claims:
        given[claim.event_id][claim.proposition] = claim.p
    stands, first = dict[tuple[str, str], tuple[float, str]](), dict[str, str]()
    for event in team.spoken:
        for read in _merged(list(_reads(event, team, texts, first))):
            component, found = team.component(event), read.stated
            here = given[event.event_id]
            if found.p in here.values():
                continue  # the number of a claim that the trace states itself
            reason = read.link.reason or _against(here.get(read.link.proposition or ""))
            if reason or found.p is None or read.link.proposition is None:
                row = _unlinked(component, read, reason or "no proposition")
                unlinked.setdefault((row.component, row.text, f"{row.p} {row.low} {row.high}"), row)
                continue
            if stands.get(key := (component, read.link.proposition)) == (found.p, found.text):
                continue  # the span around a span says the same words once more
            stands[key] = (found.p, found.text)
            claims.append(_claim(f"x:said:{len(claims)}", component, read, team))
    return claims, list(unlinked.values())


def _against(given: float | None) -> str | None:
    return None if given is None else f"the trace itself states {given:g} here"


def _reads(event: Event, team: Team, texts: Texts, first: dict[str, str]) -> Iterator[_Read]:
    text = event.content or ""
    speaker = team.component(event)
    for found in stated(text, team.names):
        origin = first.setdefault(found.text, speaker)
        if origin != speaker and (len(_WORDS.findall(found.text)) >= MIN_ECHO or origin in text[: found.span[0]]):
            continue
        link, rule = _linked(event, found, team, texts)
        if found.doubt:
            link = Link(link.proposition, link.score, found.doubt)
        yield _Read(event, found, link, rule)


def _merged(reads: list[_Read]) -> Iterator[_Read]:
    """Yield one statement a proposition: the last one. Several numbers for own work without a name are several matters."""
    by_proposition: dict[str, list[_Read]] = {}
    for read in reads:
        if read.link.reason or read.link.proposition is None:
            yield read
        else:
            by_proposition.setdefault(read.link.proposition, []).append(read)
    for group in by_proposition.values():
        is_unclear = group[-1].rule in (OWN_WORK, ANSWER) and len({read.stated.p for read in group}) > 1
        reason = "several numbers in one text" if is_unclear else "a later number of the same text replaces it"
        for read in group if is_unclear else group[:-1]:
            if is_unclear or read.stated.p != group[-1].stated.p:
                yield read._replace(link=read.link._replace(reason=reason))
        if not is_unclear:
            yield group[-1]


def _linked(event: Event, found: Stated, team: Team, texts: Texts) -> tuple[Link, str]:
    if named := _named(found, team):
        return named, NAMED
    in_words = texts.meant(found.topic or found.sentence)
    if in_words.reason is None or in_words.score >= MIN_SCORE:
        return in_words, IN_WORDS
    reason, score = _not_own(event, found, team)
    is_final = team.is_final(event, found.text)
    own = SOLVED if is_final else own_proposition(team.component(event))
    if reason is None:
        return Link(own, score), ANSWER if is_final else OWN_WORK
    return (in_words if in_words.proposition else Link(own, 0.0, reason)), OWN_WORK


def _named(found: Stated, team: Team) -> Link | None:
    for name in found.names:
        if name in team.names:
            return Link(name, SCORE_NAMED)
        what, bar, condition = (part.strip() for part in name.partition("|"))
        if bar and {what, condition} <= team.names:
            return Link(f"given({what}, {condition})", SCORE_NAMED)
    words = set(re.findall(r"\w+", found.topic or found.sentence))
    mentioned = sorted(name for name in words & team.names if len(name) > 2 and (found.topic or "_" in name))
    if len(mentioned) != 1:
        return None
    return Link(mentioned[0], SCORE_MENTIONED, "denied" if _NOT.search(found.topic or found.sentence) else None)


def _not_own(event: Event, found: Stated, team: Team) -> tuple[str | None, float]:
    """Return why a statement is not about the speaker's own work, or None and how surely it is."""
    tokens = _WORDS.findall(found.sentence.casefold())
    mine = {team.component(event).casefold(), (event.agent_id or "").casefold()}
    if event.kind in ("delegate", "spawn"):
        return "said in an order to others", 0.0
    if team.members.intersection(tokens) - mine:
        return "speaks of another agent", 0.0
    if _NOT.search(found.sentence):
        return "denied", 0.0
    if found.topic is not None:
        return (None, SCORE_OWN) if is_own_work(found.topic) else ("about the subject matter", 0.0)
    is_short = len(content_words(found.sentence)) <= MAX_SHORT and len(found.sentence) <= MAX_SHORT_TEXT
    if found.is_certainty:
        return (None, SCORE_TOPICLESS) if is_short or _FIRST.search(found.sentence) else ("about the subject matter", 0.0)
    return (None, SCORE_TOPICLESS) if is_short and names_own_work(found.sentence) else ("about the subject matter", 0.0)


def _claim(claim_id: str, component: str, read: _Read, team: Team) -> Extracted:
    assert read.link.proposition is not None
    assert read.stated.p is not None
    claim = Claim(
        claim_id=claim_id,
        component=component,
        proposition=read.link.proposition,
        p=read.stated.p,
        event_id=read.event.event_id,
        turn=read.event.turn,
        level=team.level(read.event, read.link.proposition),
        kind="verbalised",
        span=read.stated.span,
        basis="derived",
        rule=read.rule,
    )
    return Extracted(claim=claim, score=read.link.score, text=read.stated.text)


def _unlinked(component: str, read: _Read, reason: str) -> Unlinked:
    found, nearest = read.stated, read.link.proposition if read.link.score > 0 else None
    return Unlinked(
        event_id=read.event.event_id,
        component=component,
        text=found.text,
        p=found.p,
        low=found.low,
        high=found.high,
        reason=reason,
        nearest=nearest,
        score=read.link.score,
    )
