"""Clues from the texts of a failed run: what was assumed, claimed, vouched for, contradicted, and ended up in the answer.

Decides which words count, in English; a text in another language gives no clues of this kind. Texts are data: they are
searched, never followed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from analysis.evaluation.case import Case, Clue
from analysis.orchestration.evidence import plain

_ASSUMED = re.compile(
    r"\b(?:assum\w*|hypothetical\w*|simulat\w*|placeholder\w*|mock|dummy|for example|suppose|typical\w*|generally|manual\w*"
    r"|approximat\w*|likely|estimate\w*)\b", re.IGNORECASE
)  # fmt: skip
_FAULT = re.compile(
    r"\b(?:errors?|incorrect(?:ly)?|mistakes?|wrong|issues?|fix|corrected|failed|fails|did not|didn't|unable|not found"
    r"|discrepanc\w+|problem with|oversight)\b", re.IGNORECASE
)  # fmt: skip
_VOUCHED = re.compile(r"\b(?:verified|confirm\w*|correct|accurate|completed?|conclude\w*|terminate)\b", re.IGNORECASE)
_BROKEN = re.compile(
    r"\b(?:traceback|error code|exception|exit ?code: [1-9]|execution failed|responsibleaipolicy\w*)\b", re.IGNORECASE
)
_CHECKER = re.compile(r"verif|valid|check|review|critic|audit|test", re.IGNORECASE)
_WORD = re.compile(r"\w{4,}")
_PART = re.compile(r"\d[\d,.]*|\b[A-Z][\w'-]{3,}")
_CODE = "```"
#: Where somebody takes up what was said before: its first sentences; where somebody sums up: the last.
_HEAD, _TAIL = 300, 400
_MANY = 3  # words of assuming; more of them say no more
_OFF = 0.6  # share of the task's words below which another task was handed out
_LONG = 10.0  # natural logarithm of the length of a long text, in characters


def said(case: Case) -> Iterator[Clue]:
    """Yield what each suspect's own text says of it."""
    coded = [k for k in case.suspects if _CODE in case.texts[k]]
    for place, k in enumerate(case.suspects):
        text = case.texts[k]
        yield case.clue("length", k, min(1.0, math.log1p(len(text)) / _LONG), "")
        if _CODE in text and place:
            yield case.clue("code", k, 1.0, "")
        if coded[:1] == [k] and place:
            yield case.clue("first code", k, 1.0, "{e} holds the first code of the run; later code follows its approach.")
        if place and (assumed := _ASSUMED.findall(text)):
            words = ", ".join(dict.fromkeys([word.lower() for word in assumed[:_MANY]]))
            value = min(_MANY, len(assumed)) / _MANY
            yield case.clue("assumes", k, value, "{e} rests on assumptions ({0}): check them.", words)
        if re.search(r"\d", text) is None:
            yield case.clue("no figures", k, 1.0, "")
        if place and _CODE not in text and _VOUCHED.search(text[-_TAIL:]):
            yield case.clue("vouches", k, 1.0, "{e} declares the work right or done and shows no check of its own.")
        if k in case.results and case.leaders and (broken := _BROKEN.search(text)):
            yield case.clue("broken", k, 1.0, "{e} hands in an error instead of a result ({0}).", broken[0].lower())


def roles(case: Case) -> Iterator[Clue]:
    """Yield who was to check the others' work."""
    seen: set[str] = set()
    for k in case.suspects[1:]:
        agent = case.steps[k].agent_id or ""
        if _CHECKER.search(agent):
            yield case.clue("checker", k, 1.0, "")
            if agent not in seen:
                yield case.clue("first check", k, 1.0, "{e} is the first word of {a}, whose role is to check.")
        seen.add(agent)


def opening(case: Case) -> Iterator[Clue]:
    """Yield how the task was handed out: with a ready-made solution, or as another task than the one given."""
    if case.leaders or not case.suspects:
        return
    first = case.suspects[0]
    text = case.texts[first]
    if _CODE in text:
        yield case.clue("opens with code", first, 1.0, "{e} opens the run with ready-made code, which the team then follows.")
    asked = set(_WORD.findall(plain(case.trace.task.text)))
    kept = asked & set(_WORD.findall(plain(text)))
    if len(kept) < _OFF * len(asked):
        reason = "{e} hands out another task: {0:.0%} of the task's words are in it."
        yield case.clue("another task", first, 1.0, reason, len(kept) / len(asked))


def replies(case: Case) -> Iterator[Clue]:
    """Yield what the next speaker makes of each suspect's step: a fault, found by the same agent or by another."""
    for k, after in case.following.items():
        if k == case.suspects[0] or not (fault := _FAULT.search(case.texts[after][:_HEAD])):
            continue
        then, word = case.steps[after], fault[0].lower()
        if then.agent_id == case.steps[k].agent_id:
            yield case.clue("mended", k, 1.0, "{e} had to be mended by {a} itself: {0} sets out with '{1}'.", then.event_id, word)
        else:
            reason = "{e} is contradicted or mended by {0}: {1} sets out with '{2}'."
            yield case.clue("contradicted", k, 1.0, reason, then.agent_id, then.event_id, word)


def answer(case: Case) -> Iterator[Clue]:
    """Yield where the parts of the final answer, figures and capitalised words that are not the task's, first came up."""
    given = case.trace.outcome.answer
    talks = [k for k in case.suspects if plain(case.texts[k]).strip("* ") != "terminate"]
    final = given or (case.texts[talks[-1]] if talks else "")
    wanted = _parts(final) - _parts(case.trace.task.text or "") - {"TERMINATE"}
    whole = re.compile(rf"(?<!\w){re.escape(plain(given))}(?!\w)") if given else None
    source: Counter[int] = Counter()
    for k, text in enumerate(case.texts):
        found = wanted & _parts(text)
        source[k] += len(found)
        wanted -= found
    total = sum(source.values())
    for place, k in enumerate(case.suspects):
        if place and source[k]:
            share = source[k] / total
            yield case.clue("answer's source", k, share, "{e} is where {0:.0%} of the final answer's parts first come up.", share)
        if whole is not None and k in case.results and whole.search(plain(case.texts[k])):
            yield case.clue("answer in full", k, 1.0, "{e} holds the final answer, word for word.")


def _parts(text: str) -> set[str]:
    return {part.rstrip(".,").replace(",", "") for part in _PART.findall(text)}
