"""Which proposition a text is about: its words against the texts of the propositions.

Hidden here: how a question is cut down to what it asks for, what counts as the same word, and when words do not suffice.
When in doubt nothing is linked: a quote on the wrong proposition does more harm than one left for review.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

MIN_SCORE = 0.6  # of the best text: below it the words in common do not tell what is meant
MIN_MARGIN = 0.25  # over the second best: below it two propositions are meant equally well
MIN_PLAIN = 0.6  # share of the words to be found, where nothing but "not" and "other" tells the propositions apart
MAX_READ = 2000  # characters of a text that are read
N_STEM = 7  # letters of a word that count, so that "Democrats" are "Democratic"

_SEVERAL = re.compile(
    r"\b(?:distribution|probabilities|vector|respectively|for each|in order)\b|\bsum(?:s|ming)? (?:to )?(?:1|one|100)\b"
    r"|\([abcd1-4]\).*\([abcd1-4]\)|\b[A-D][=:)].*\b[A-D][=:)]|\bvs\b.{1,200}\bvs\b|\boutcomes? [abcd1-4] (?:and|or|vs) ",
    re.I | re.S,
)
_CONDITION = re.compile(
    r"\bif (?!known|relevant|available|applicable|any|needed|possible|tied)|\b(?:given that|assuming|conditional|provided that)\b"
    r"|\||如果|假如|假设",
    re.I,
)
_ASIDE = re.compile(r"\([^()]{0,400}\)")
_AS_OF = re.compile(r"\bas of [^,:;.?]{0,30}", re.I)
_ARGUMENT = re.compile(r"\bP ?\(")
_CUE = re.compile(r"\b(?:probability|chances?|likelihood|odds)(?: (?:that|of|for))?\b|[,:] (?:will|is|does)\b|概率|可能性", re.I)
_CONTRAST = re.compile(
    r"(?P<other>\b(?:other than|besides|except(?:ing)?(?: for)?|outside(?: of)?|excluding|apart from|distinct from)\b)"
    r"|\b(?:rather than|as opposed to|instead of|versus|and not|alternatives?)\b|\bvs\.?(?=\s)|,\s*(?:and )?not\b",
    re.I,
)
_CONTRAST_END = re.compile(
    r"[.?!;:](?=\s|$)|\b(?:will|would|wins?|is|are|be|has|have|holds?|finish(?:es)?|takes?|leads?|tops?)\b", re.I
)
_SENTENCE = re.compile(r"(?<=[.?!;])\s+|[。？！；\n]+")
_BESIDE = re.compile(
    r"\W*(?:consider|note|assum|account|recent|give|include|context|mutually|take|use|think|answer|based on|current|background"
    r"|outcomes|options|which|who|when|return|classif|opposite|this is)",
    re.I,
)
_NUMBER = re.compile(r"(?:(?<=\s)|(?<=\()|^)[+-]?\d+(?:[.,]\d+)*|\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[^\W\d_\u3000-\u9fff]+")
_HAN = re.compile(r"[\u4e00-\u9fff]+")
_SAME = {
    **dict.fromkeys(("another", "other", "else", "different", "others"), "other"),
    **dict.fromkeys(("not", "no", "non", "never", "without", "neither", "nor", "t", "fail", "fails", "failed"), "not"),
}
_STOP = frozenset((
    "a", "an", "the", "of", "in", "on", "at", "to", "by", "for", "and", "or", "be", "is", "are", "was", "will", "that",
    "this", "it", "its", "with", "as", "from", "than", "any", "some", "s",
))  # fmt: skip


class Link(NamedTuple):
    """A proposition and how surely it is meant, from 0 to 1. With a `reason` it is not meant, only the nearest one."""

    proposition: str | None
    score: float
    reason: str | None = None


_NOTHING = Link(None, 0.0, "no word in common with a proposition")


def words(text: str) -> frozenset[str]:
    """Return what of a text carries meaning: the beginnings of its words, numbers with their sign, pairs of Han characters.

    >>> sorted(words("the SP500 returns between -5% and +5.0%"))
    ['+5', '-5', '500', 'between', 'return', 'sp']
    """
    plain = text.casefold()
    han = {run[n : n + 2] for run in _HAN.findall(plain) for n in range(max(1, len(run) - 1))}
    numbers = {_plain_number(number) for number in _NUMBER.findall(plain)}
    return frozenset({_stem(word) for word in _WORD.findall(plain) if word not in _STOP} | numbers | han)


def _plain_number(number: str) -> str:
    number = re.sub(r",(?=\d{3}(?!\d))", "", number)
    return number.rstrip("0").rstrip(".") if number.count(".") == 1 else number


def _stem(word: str) -> str:
    if word in _SAME:
        return _SAME[word]
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)][:N_STEM]
    return word[:N_STEM]


def _differ(links: list[Link]) -> bool:
    return len({link.proposition for link in links if link.reason is None}) > 1


def _asked(sentence: str) -> tuple[str, str]:
    """Return how much a sentence tells of what is asked for (asked, question, said, beside), and the part that tells it."""
    plain = _without_contrast(_AS_OF.sub(" ", sentence))
    cues = [cue.end() for cue in _CUE.finditer(plain)]
    after = next((plain[end:] for end in reversed(cues) if len(words(plain[end:])) >= 3), None)
    if after is not None:
        return "asked", after
    if _BESIDE.match(sentence):
        return "beside", plain
    return ("question" if sentence.rstrip().endswith("?") else "said"), plain


def _without_contrast(text: str) -> str:
    """Return a text without what stands in brackets, or is named only to say that it is not meant."""
    text = _ASIDE.sub(" ", text)
    kept, place = list[str](), 0
    for start in _CONTRAST.finditer(text):
        if start.start() >= place:
            end = _CONTRAST_END.search(text, start.end())
            kept += [text[place : start.start()], " other " if start["other"] else " "]
            place = end.start() if end else len(text)
    return "".join([*kept, text[place:]])


class Texts:
    """The texts of some propositions, and what each word is worth for telling them apart."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.own = {name: words(_without_contrast(text)) for name, text in sorted(texts.items())}
        n_with = {word: sum(word in own for own in self.own.values()) for word in frozenset[str]().union(*self.own.values())}
        self.weights = {word: math.log(len(self.own) / n) for word, n in n_with.items() if n < len(self.own)}
        self.numbers = {word for word in n_with if word[-1].isdigit()}

    def meant(self, text: str) -> Link:
        """Return the proposition that the words of `text` mean, or the nearest one with the reason why it is not meant.

        Words are weighted by rarity, log(n texts / n texts that have it), so what all texts share counts nothing. The score
        of a proposition is the harmonic mean of two shares of weight: of its own words those that are said, and of what is
        said that which is its own.

        >>> cup = Texts({"a": "Ajax wins the cup", "b": "Benfica wins the cup", "c": "another club wins the cup"})
        >>> cup.meant("What is the probability that Benfica will win the cup (and not Ajax)?")
        Link(proposition='b', score=1.0, reason=None)
        >>> cup.meant("Give the distribution over Ajax, Benfica, another club.").reason
        'asks for several propositions at once'
        >>> cup.meant("What is the probability that Benfica does not win the cup?").reason
        'denied in one of the two texts'
        """
        read = _ARGUMENT.sub("probability that ", text[:MAX_READ])
        found = [(tier, self._link(part, sentence)) for sentence in _SENTENCE.split(read) for tier, part in [_asked(sentence)]]
        best = max((link for _, link in found), key=lambda link: link.score, default=_NOTHING)
        tiers = [[link for tier, link in found if tier == name and link.proposition] for name in ("asked", "question", "said")]
        if best.proposition and (_differ([*tiers[0], *tiers[1]]) or _SEVERAL.search(read)):
            return Link(best.proposition, best.score, "asks for several propositions at once")
        first = next((tier for tier in tiers if tier), [best])
        chosen = max(first, key=lambda link: (link.reason is None, link.score))
        return Link(chosen.proposition, chosen.score, "names several propositions") if _differ(first) else chosen

    def _weight(self, some: frozenset[str]) -> float:
        return math.fsum(self.weights.get(word, 0.0) for word in some)  # exact, so the order of the set does not show

    def _link(self, asked: str, sentence: str) -> Link:
        said = words(asked)
        total = self._weight(said)
        scores = [
            (2 * self._weight(said & own) / both if (both := total + self._weight(own)) else 0.0, name)
            for name, own in self.own.items()
        ]
        if not scores or max(scores)[0] == 0:
            return _NOTHING
        (score, name), *others = sorted(scores, key=lambda pair: (-pair[0], pair[1]))
        second = others[0][0] if others else 0.0
        doubt = self._weak(score, second) or self._other_meaning(sentence, said, name)
        return Link(name, round(score, 6), doubt)

    @staticmethod
    def _weak(score: float, second: float) -> str | None:
        if score < MIN_SCORE:
            return "too few words in common"
        return "the second best proposition is as near" if score - second < MIN_MARGIN else None

    def _other_meaning(self, sentence: str, said: frozenset[str], name: str) -> str | None:
        own = self.own[name]
        if ("not" in said) != ("not" in own):
            return "denied in one of the two texts"
        if _CONDITION.search(_ASIDE.sub(" ", sentence)):
            return "asked under a condition"
        if {word for word in said if word[-1].isdigit()} - self.numbers:
            return "speaks of another number"
        telling = {word for word in said & own if word in self.weights}
        if (self.numbers & own & self.weights.keys()) - said:
            return "without the number of the proposition"
        if telling <= {"not", "other"} and len(said & own) < MIN_PLAIN * len(said):
            return "too few words in common"
        return None
