"""Few classes for the many words of traces, by named rules, so that a profile's cells mean the same in every trace.

The rules read names only. What they cannot place is `other`; what is missing stays missing.
"""

from __future__ import annotations

import re
from typing import Final

#: Role -> how words of such a component's name begin, in the order in which they are tried.
ROLES: Final[dict[str, str]] = {
    "user": r"user|human|customer|client",
    "tool": r"tool|terminal|shell|interpreter|sandbox|environment|retriever|api\b",
    "verifier": r"verif|valid|critic|review|check|test|judge|audit|evaluat|qa\b",
    "planner": r"plan|strateg|architect|decompos",
    "aggregator": r"orchestrat|aggregat|manager|coordinat|lead|supervis|merge|moderat|synthes|main\b|host\b",
    "worker": r"execut|work|code|coding|develop|engineer|program|debug|solv|research|writ|analy|expert|speciali|assistant|"
    r"agent|surf|sub|general\b",
}
#: How a run ended -> what its stated condition says, in the order in which they are tried.
STOPS: Final[dict[str, str]] = {
    "nothing handed in": r"nothing|no answer|empty",
    "nobody to go on": r"no agent|no speaker|nobody",
    "limit reached": r"limit|max|budget|time.?out|timed out|exhaust|too many",
    "cancelled": r"kill|interrupt|cancel|abort",
    "error": r"error|exception|fail|crash",
    "finished": r"terminat|end_turn|submit|ok\b|done|complet|finish|success|solved|stop|final|converge|is false|passed",
}
OTHER: Final = "other"
_ROLES = [(role, re.compile(rf"\b(?:{words})")) for role, words in ROLES.items()]
_STOPS = [(reason, re.compile(rf"\b(?:{words})")) for reason, words in STOPS.items()]
_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^0-9A-Za-z]+|(?<=[A-Za-z])(?=[0-9])")


def role_of(component: str) -> str:
    """Return the role class of a component, by the words of its name: a key of `ROLES`, or `other`.

    >>> [role_of(name) for name in ("EnginePlanner", "code_executor", "DataVerification_Expert", "human", "gpt-mini")]
    ['planner', 'worker', 'verifier', 'user', 'other']
    """
    return _first(_ROLES, _BORDER.sub(" ", component).lower())


def stop_reason(condition: str | None, final_state: str | None = None) -> str | None:
    """Return why a run stopped, a key of `STOPS` or `other`, by its stated condition, else its final state; None without both.

    >>> [stop_reason(text) for text in ("Max rounds (30) reached.", "TERMINATE", "killed", "tea time", None)]
    ['limit reached', 'finished', 'cancelled', 'other', None]
    """
    text = condition or final_state
    return _first(_STOPS, text.lower()) if text else None


def _first(rules: list[tuple[str, re.Pattern[str]]], text: str) -> str:
    return next((name for name, words in rules if words.search(text)), OTHER)
