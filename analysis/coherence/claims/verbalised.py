"""Numbers that a text states as probabilities: 90% confident, P(x) = 0.4, "confidence": .8, 八成把握.

Hidden here: the words that announce such a number, in English and Chinese, and what only looks like one (a confidence
interval, a threshold, a log-likelihood). Only the sentence around such a word is read, so time grows with the length only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple

from analysis.coherence.claims.numbers import VALUE, Value, value_of

MAX_STATED = 1000  # numbers read from one text
MAX_TEXT = 200  # characters of a statement that are kept
_REACH = 240  # characters read on each side of a word that announces a number
_BEFORE, _AFTER = 140, 120  # characters beside a number in which its word stands


class Stated(NamedTuple):
    """A number as it was stated; `p` is None for a range (`low` to `high`), and where the scale is not known.

    `span` is where the number stands in the text, `text` the words around it (at most 200 characters), `sentence` all of
    them without the number. `topic` is what it is said to be the probability of, `names` the identifiers it is given to;
    `is_certainty` tells a certainty of the speaker (confident, sure) from a probability of something. With a `doubt` it
    states nothing that holds here: the doubt says why.
    """

    p: float | None
    low: float | None
    high: float | None
    span: tuple[int, int]
    text: str
    sentence: str
    topic: str | None = None
    names: tuple[str, ...] = ()
    is_certainty: bool = False
    doubt: str | None = None


class _Found(NamedTuple):
    start: int  # of the words that announce the number, and the end of all that belongs to it
    end: int
    topic: str | None = None
    names: tuple[str, ...] = ()
    is_certainty: bool = False
    is_plain: bool = True  # 0 and 1 may be meant on any scale


_WIDE = str.maketrans("０１２３４５６７８９．％：＝（），", "0123456789.%:=(),")  # one to one: places stay
_TRIGGER = re.compile(
    r"confiden|prob|likel(?:y|ihood)|certain|sure\b|chance|odds|success|\bp_|\bp ?[(=]"
    r"|置信|把握|信心|概率|机率|几率|可能|确信",
    re.I,
)
_BREAK = re.compile(r"[!?\n;。！？；]|\.(?!\d)")

_NOUN = r"confidence|probability|prob|likelihood|certainty|chances?|odds"
_HAN_NOUN = r"置信度|确信度|把握|信心|概率|机率|几率|可能性"
_CERTAIN = re.compile(r"confiden|certain|\bsure|置信|确信|把握|信心", re.I)
_NO_CLAIM = re.compile(
    r"(?:\b|_)(?:interval|threshold|limit|bound|cutoff)s?\b|log[-_ ]?(?:likelihood|prob)|\b(?:min|max|minimum|maximum|top)[_ -]"
    r"|temperature",
    re.I,
)
_STATISTIC = re.compile(
    r"[\s-]*(?:confidence|credible|certainty|probability)?[\s-]*"
    r"(?:intervals?|levels?|limits?|bounds?|bands?|regions?|upper|lower|ci)\b",
    re.I,
)

_ARGUMENT = re.compile(
    r"\bP ?\((?P<topic>[^()]{1,100}(?:\([^()]{0,40}\)[^()]{0,40})?)\)\W{0,3}(?:=|≈|~|:|is|of|为|是)\W{0,3}$", re.I
)
_BARE = re.compile(r"(?:^|[\s,(])P ?= ?$")
_KEY = re.compile(r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z_][\w-]{0,63})[\"'`*]{0,3}\s?(?:[:=]|:=|==)\s?[\"'`*]{0,3}\s?$")
_MEASURE = re.compile(r"confiden|prob|likelihood|certainty|^p_|^p$|^P$", re.I)
_STEM = re.compile(r"^(?:p|prob|probability|confidence|likelihood)_|_(?:p|prob|probability|confidence|likelihood)$", re.I)
_PLAIN_KEY = re.compile(
    rf"(?:(?:overall|my|final)_?)?(?:{_NOUN})?(?:_?(?:level|score|estimate|value|pct|percent))?|overall|my|final", re.I
)
_LINKS = (
    r"(?:\s|[=:≈~,*\"'`(]|->|→|is|are|was|were|be|of|at|about|around|roughly|approximately|approx|currently|now|only"
    r"|为|是|约|大约|大概|有|在|达到?|还){0,8}"
)
_ADJACENT = re.compile(rf"(?<![A-Za-z_-])(?:{_NOUN}|{_HAN_NOUN})(?:\s(?:level|score|estimate|rating|value))?{_LINKS}$", re.I)
_WITH_TOPIC = re.compile(
    rf"(?<![A-Za-z_-])(?:{_NOUN})(?:\s(?:level|score|estimate|rating))?\s(?P<topic>[^.;:=]{{1,90}}?)\s?"
    rf"(?:\bis|=|:|≈|\bare|\bat|\bbe|\bequals|\bwas|\bwere)\s?(?:about|around|roughly|approximately|now|currently|only|\W)?\s?$",
    re.I,
)
_HAN_TOPIC = re.compile(rf"(?P<topic>[^，,。；:：\s]{{0,30}}?)的?(?:{_HAN_NOUN})[\s:=为是有约在达到大概]{{0,6}}$")
_SURE = re.compile(
    r"[\s-]{0,2}(?:confiden(?:t|ce)|certainty|(?:sure|certain)(?=\s*(?:$|[.,;:!)\]\"'*—-]|(?:that|of|about|in|it|this|the|we|i)\b)))(?P<rest>.*)",
    re.I | re.S,
)
_CHANCE = re.compile(r"\s{0,2}(?:probability|chances?|likelihood|likely|odds)\b(?P<rest>.*)", re.I | re.S)
_SUCCESS = re.compile(r"\s{0,2}(?:chance of )?success(?! ?(?:rate|ratio|ful))\b", re.I)
_ESTIMATE = re.compile(r"\b(?:estimat|expect|predict|forecast)\w*", re.I)
_HAN_AFTER = re.compile(rf"\s?的?\s?(?:{_HAN_NOUN}|可能)(?P<rest>[^，,。；]*)")
_TOPIC = re.compile(r"\s+(?:(?:that|of|in|about|to|for|on)\b)?(?P<topic>[^,;()]{1,100})", re.I)

_IF = re.compile(
    r"(?<!check )(?<!see )(?<!verify )(?<!test )\bif\b"
    r"|\b(?:were|unless|suppos\w+|assum\w+|would (?:be|have)|e\.g|for example|for instance|such as|whenever|hypothetical\w*)\b"
    r"|如果|假如|假设|倘若|例如|比如",
    re.I,
)
_DENIED = re.compile(r"\b(?:not|never|hardly|cannot|no|without|neither|nor)\b|n['’]t\b|不是|没有|并非|未必|不太", re.I)
_ORDER = re.compile(
    r"(?:^|[:,;]\s*|\b(?:please|must|should|and|to|then)\s+)(?:give|provide|report|return|output|state|include|assign|specify|use|set|rate"
    r"|estimate|forecast|answer)\b(?!\s*[:=])"
    r"|\b(?:must|should|needs? to|has to) be\b|\brequire[sd]?\b|请(?:给出|提供|输出)",
    re.I,
)


def stated(text: str, names: Collection[str] = ()) -> Iterator[Stated]:
    """Yield the numbers that `text` states as probabilities, in order; `names` are identifiers whose numbers count as well.

    >>> [(s.p, s.topic, s.doubt) for s in stated("I am 90% confident. P(tests_ok) = 0.4; coverage is 85%.")]
    [(0.9, None, None), (0.4, 'tests_ok', None)]
    >>> [(s.p, s.low, s.high) for s in stated("把握大概有八成半，概率在70-80%")]
    [(0.85, None, None), (None, 0.7, 0.8)]
    >>> [s.doubt for s in stated("if the probability were 0.3, I would stop")]
    ['hypothetical']
    """
    yield from islice(_stated(text, text.translate(_WIDE), names), MAX_STATED)


def _stated(text: str, plain: str, names: Collection[str]) -> Iterator[Stated]:
    done = 0
    for place in _places(plain, names):
        if place >= done:
            start, end = _sentence(plain, place, done)
            yield from _of_sentence(text, plain, start, end, names)
            done = end + 1


def _places(plain: str, names: Collection[str]) -> Iterator[int]:
    if not names:
        yield from (found.start() for found in _TRIGGER.finditer(plain))
        return
    either = re.compile(rf"{_TRIGGER.pattern}|[:=]\s{{0,2}}(?=[01]?\.?\d)", re.I)
    yield from (found.start() for found in either.finditer(plain))


def _sentence(plain: str, place: int, done: int) -> tuple[int, int]:
    first = max(done, place - _REACH)
    breaks = [found.end() for found in _BREAK.finditer(plain, first, place)]
    last = _BREAK.search(plain, place, place + _REACH)
    return (breaks[-1] if breaks else first), (last.start() if last else min(len(plain), place + _REACH))


def _of_sentence(text: str, plain: str, start: int, end: int, names: Collection[str]) -> Iterator[Stated]:
    sentence, used = plain[start:end], 0
    if plain[end : end + 1] in ("?", "？"):
        return  # a question states nothing
    for match in VALUE.finditer(sentence):
        value = value_of(match)
        found = value and _announced(sentence, match.span(), used, names, is_unscaled=value.is_unscaled)
        if not value or not found or _ORDER.search(sentence[: min(found.start, match.start())]):
            continue
        used = max(match.end(), found.end)
        doubt = _doubt(sentence, found, match.start()) or _scale_doubt(value, found)
        span = (start + match.start(), start + match.end())
        yield Stated(
            p=None if value.is_unscaled and doubt == _NO_SCALE else value.p,
            low=value.low,
            high=value.high,
            span=span,
            text=_cut(text, start, end, span),
            sentence=f"{sentence[: match.start()]} {sentence[match.end() :]}",
            topic=found.topic.strip(" \t\"'`*") or None if found.topic else None,
            names=found.names,
            is_certainty=found.is_certainty,
            doubt=doubt,
        )


_NO_SCALE = "scale not stated"


def _scale_doubt(value: Value, found: _Found) -> str | None:
    if value.p is None:
        return "a range"
    return _NO_SCALE if value.is_unscaled and (found.is_plain or value.p > 1) else None


def _cut(text: str, start: int, end: int, span: tuple[int, int]) -> str:
    if end - start > MAX_TEXT:
        start = max(start, min(span[0] - MAX_TEXT // 2, end - MAX_TEXT))
        end = min(end, start + MAX_TEXT)
    return text[start:end].strip()


def _announced(sentence: str, place: tuple[int, int], used: int, names: Collection[str], *, is_unscaled: bool) -> _Found | None:
    """Return what announces the number at a place as a probability; None where nothing does."""
    start, end = place
    before = sentence[max(used, start - _BEFORE) : start]
    after = sentence[end : end + _AFTER]
    offset = start - len(before)
    if _STATISTIC.match(after) or _NO_CLAIM.search(before[-60:]):
        return None
    if found := _key(before, offset, end, names) or _word_after(before, after, start, end, is_unscaled=is_unscaled):
        return found
    if match := _ARGUMENT.search(before):
        topic = match["topic"].strip()
        return _Found(offset + match.start(), end, topic, (topic,), is_plain=False)
    if match := _BARE.search(before):
        return _Found(offset + match.start(), end, is_plain=False)
    return _word_before(before, offset, end)


def _key(before: str, offset: int, end: int, names: Collection[str]) -> _Found | None:
    if not (match := _KEY.search(before)):
        return None
    key = match["name"]
    is_measure = bool(_MEASURE.search(key)) and key.lower() != "p"
    if key not in names and not is_measure:
        return None
    stem = _STEM.sub("", key)
    is_certainty = bool(_CERTAIN.search(key))
    topic = None if _PLAIN_KEY.fullmatch(stem) and key not in names else stem.replace("_", " ")
    return _Found(offset + match.start(), end, topic, (key, stem), is_certainty, is_certainty)


def _word_after(before: str, after: str, start: int, end: int, *, is_unscaled: bool) -> _Found | None:
    if is_unscaled:
        return None  # 3 chances, 2 likely causes
    for pattern, is_certainty in ((_SURE, True), (_CHANCE, False)):
        if match := pattern.match(after):
            topic = _TOPIC.match(match["rest"])
            stop = end + match.start("rest")
            return _Found(start, stop, topic["topic"] if topic else None, (), is_certainty, is_plain=True)
    if (match := _SUCCESS.match(after)) and _ESTIMATE.search(before):
        return _Found(start, end + match.end(), "success")
    if match := _HAN_AFTER.match(after):
        rest = match["rest"].strip()
        return _Found(start, end + match.start("rest"), rest or None, (), bool(_CERTAIN.search(match[0])))
    return None


def _word_before(before: str, offset: int, end: int) -> _Found | None:
    if match := _ADJACENT.search(before):
        is_certainty = bool(_CERTAIN.search(match[0]))
        if any(han in match[0] for han in "信把概机几可确") and (longer := _HAN_TOPIC.search(before)):
            return _Found(offset + longer.start(), end, longer["topic"] or None, (), is_certainty, is_certainty)
        return _Found(offset + match.start(), end, None, (), is_certainty, is_certainty)
    if match := _WITH_TOPIC.search(before):
        is_certainty = bool(_CERTAIN.search(match[0]))
        return _Found(offset + match.start(), end, match["topic"], (), is_certainty, is_certainty)
    return None


def _doubt(sentence: str, found: _Found, start: int) -> str | None:
    if _IF.search(sentence):
        return "hypothetical"
    return "denied" if _DENIED.search(sentence[max(0, min(found.start, start) - 25) : start]) else None
