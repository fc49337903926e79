"""Log-probabilities of a verdict: the answer is yes or no, and the model's own probability of that answer is recorded.

Hidden here: where chat completions, responses, completions and ATIF keep them, and that "no" is no quote of 1 - p unless
the alternatives of its one token say how likely "yes" was.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from analysis.coherence.claims.linking import MAX_READ, MIN_SCORE, Link, Texts
from analysis.coherence.claims.own import is_own_work, own_proposition
from analysis.coherence.claims.records import Extracted, Unlinked
from analysis.coherence.claims.team import SOLVED, Team
from analysis.coherence.claims.verbalised import MAX_TEXT
from analysis.model import Claim, Event, Trace

RULE = "verdict-token"
SCORE_OWN = 0.8

_MAX_LEVELS = 8
_POSITIVE = frozenset(("yes", "true", "correct", "pass", "passed", "solved", "approved", "是", "对", "正确", "通过"))
_NEGATIVE = frozenset(("no", "false", "incorrect", "wrong", "fail", "failed", "unsolved", "rejected", "否", "错", "不通过"))
_OF_WORK = (_POSITIVE | _NEGATIVE) - {"yes", "no", "true", "false", "是", "否", "对", "错"}
_SENTENCE_END = re.compile(r"(?<=[.!?。！？\n])\s*(?=\S)")
_WHOLE = re.compile(r"\W*(?:(?P<label>[^\W\d]\w{0,63})\W{1,4})?(?P<word>\w{1,12})\W*")


class Verdict(NamedTuple):
    """How probable the model held a positive answer: from `low` to `high`, which are equal where it is known exactly.

    `label` is the identifier before the answer (`solved: yes`), `word` the answer, `span` its place in the event's content.
    """

    low: float
    high: float
    label: str | None
    word: str
    span: tuple[int, int] | None


class _Token(NamedTuple):
    text: str
    logprob: float
    others: tuple[tuple[str, float], ...] = ()


def verdict(event: Event) -> Verdict | None:
    """Return the verdict that an event's whole answer is, with its probability; None without one or without numbers.

    >>> said = {"role": "assistant", "logprobs": {"content": [{"token": "Yes", "logprob": -0.5}]}}
    >>> found = verdict(Event(event_id="e", content="Yes", messages=(said,)))
    >>> round(found.low, 6), found.high == found.low, found.word
    (0.606531, True, 'yes')
    """
    for value in _kept(event):
        tokens = _tokens(value, event.content or "")
        if tokens and (found := _verdict(tokens)):
            return found._replace(span=_span(event.content, found.word))
    return None


def _kept(event: Event) -> Iterator[Any]:
    """Yield whatever stands under `logprobs` in what the reader kept of an event, the last answer first."""
    layer: list[Any] = [*reversed(event.messages), event.extra]
    for _ in range(_MAX_LEVELS):
        yield from (value["logprobs"] for value in layer if isinstance(value, dict) and value.get("logprobs"))
        yield from (value for value in layer if isinstance(value, dict) and isinstance(value.get("token_logprobs"), list))
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]


def _tokens(value: Any, content: str) -> list[_Token]:
    if isinstance(value, dict) and isinstance(value.get("content"), list):  # chat completions
        return _listed(value["content"])
    if isinstance(value, dict) and isinstance(value.get("token_logprobs"), list):  # completions
        texts = value.get("tokens")
        return _listed(_pairs(texts, value["token_logprobs"])) if isinstance(texts, list) else []
    if not isinstance(value, list):
        return []
    if all(isinstance(item, dict) for item in value):  # responses
        return _listed(value)
    if not all(_is_logprob(item) for item in value):
        return []
    return [_Token(content, math.fsum(value))]  # ATIF: numbers of all tokens together, without their texts


def _pairs(texts: list[Any], numbers: list[Any]) -> list[dict[str, Any]]:
    if len(texts) != len(numbers):
        return []
    return [{"token": text, "logprob": number} for text, number in zip(texts, numbers, strict=True)]


def _listed(items: Iterable[Any]) -> list[_Token]:
    """Return the tokens of a list, or nothing where one of them is no token: a part of a probability is none."""
    tokens = [token for item in items if (token := _token(item))]
    return tokens if tokens and len(tokens) == sum(1 for _ in items) else []


def _token(item: Any) -> _Token | None:
    if not isinstance(item, dict) or not isinstance(item.get("token"), str) or not _is_logprob(item.get("logprob")):
        return None
    top = item.get("top_logprobs")
    others = [_token(other) for other in top] if isinstance(top, list) else []
    return _Token(item["token"], float(item["logprob"]), tuple((other.text, other.logprob) for other in others if other))


def _is_logprob(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e6 < value <= 1e-6


def _verdict(tokens: list[_Token]) -> Verdict | None:
    if len(tokens) > 64:
        return None
    text = "".join(token.text for token in tokens)
    match = _WHOLE.fullmatch(text)
    word = match["word"].casefold() if match else ""
    if not match or word not in _POSITIVE | _NEGATIVE:
        return None
    used, place = [], 0
    for token in tokens:
        if place < match.end("word") and place + len(token.text) > match.start("word"):
            used.append(token)
        place += len(token.text)
    p = min(1.0, math.exp(math.fsum(token.logprob for token in used)))
    low, high = (p, p) if word in _POSITIVE else _from_no(used, p)
    return Verdict(low, high, match["label"] or None, word, None)


def _from_no(used: list[_Token], p_no: float) -> tuple[float, float]:
    """Return how probable yes was, where the answer was no: exactly where the alternatives name it, else its bounds."""
    others = used[0].others if len(used) == 1 else ()
    likely = [logprob for text, logprob in others if text.strip().casefold() in _POSITIVE]
    if not likely:
        return 0.0, 1.0 - p_no
    p = min(1.0, math.fsum(math.exp(logprob) for logprob in likely))
    return p, p


def _span(content: str | None, word: str) -> tuple[int, int] | None:
    place = (content or "").casefold().rfind(word)
    if place < 0 or len((content or "").casefold()) != len(content or ""):
        return None
    return place, place + len(word)


def verdicts_of(trace: Trace, team: Team, texts: Texts) -> tuple[list[Extracted], list[Unlinked]]:
    """Return the claims that verdicts with log-probabilities make, and those that could not be linked or are ranges."""
    claims, unlinked = list[Extracted](), list[Unlinked]()
    for event in team.spoken:
        if not (found := verdict(event)):
            continue
        link, text, component = _linked(event, found, team, texts), (event.content or "")[:MAX_TEXT], team.component(event)
        reason = link.reason or (None if found.low == found.high else "a range: how likely the other answer was is not recorded")
        if reason is None and link.proposition is not None:
            claim = Claim(
                claim_id=f"x:logprob:{len(claims)}",
                component=component,
                proposition=link.proposition,
                p=found.low,
                event_id=event.event_id,
                turn=event.turn,
                level=team.level(event, link.proposition),
                kind="logprob",
                span=found.span,
                basis="derived",
                rule=RULE,
            )
            claims.append(Extracted(claim=claim, score=link.score, text=text))
            continue
        p, low, high = (found.low, None, None) if found.low == found.high else (None, found.low, found.high)
        row = Unlinked(
            event_id=event.event_id,
            component=component,
            text=text,
            p=p,
            low=low,
            high=high,
            reason=reason or "no proposition",
            nearest=link.proposition,
            score=link.score,
        )
        unlinked.append(row)
    return claims, unlinked


def _linked(event: Event, found: Verdict, team: Team, texts: Texts) -> Link:
    if found.label in team.names:
        return Link(found.label, 1.0)
    asked = [m["content"] for m in event.messages if m.get("role") != "assistant" and isinstance(m.get("content"), str)]
    question = asked[-1][-MAX_READ:] if asked else ""
    in_words = texts.meant(question)
    if in_words.reason is None or in_words.score >= MIN_SCORE:
        return in_words
    sentence = _SENTENCE_END.split(question.strip())[-1] if question else ""
    if found.word in _OF_WORK or (sentence and is_own_work(sentence)):
        return Link(SOLVED if team.is_final(event, event.content or "") else own_proposition(team.component(event)), SCORE_OWN)
    return Link(in_words.proposition, in_words.score, "the question is not about a proposition or the speaker's own work")
