"""What a component's own work is called as a proposition, and which words speak of one's own work."""

from __future__ import annotations

import keyword
import re

MAX_OTHER_WORDS = 1  # beside words for one's own work, in what is said to be probable
MAX_HAN = 16  # characters of the same in Chinese

_OWN = re.compile(
    r"^(?:answers?|results?|solutions?|code|patch|fix(?:e[sd])?|implementation|plans?|parts?|work(?:s|ing|ed)?|outputs?|response|reports?"
    r"|proofs?|tests?|success\w*|succeeds?|correct\w*|right|pass(?:es|ed|ing)?|done|complete\w*|lgtm|final|approach|analysis"
    r"|conclusions?|findings?|verdict|resolves?|resolved|issue|bug|task|question|problem|terminate|change|submission|decision)$"
)
_HAN_OWN = re.compile(r"结果|方案|答案|代码|计划|成功|正确|完成|通过|修复|实现|报告|结论|解答|任务|部分|测试")
_FILLER = frozenset((
    "a", "an", "the", "of", "in", "on", "at", "to", "by", "for", "and", "or", "be", "is", "are", "was", "will", "that",
    "this", "it", "its", "with", "as", "from", "my", "our", "your", "i", "we", "am", "m", "s", "re", "have", "has",
    "overall", "about", "would", "say", "confident", "confidence", "sure", "certain", "certainty", "probability", "chance",
    "likelihood", "p", "prob", "likely", "v1", "v2", "given", "current", "level", "score", "very", "quite", "estimate",
    "estimated", "all", "can", "do", "does", "should", "so", "still", "now", "here",
))  # fmt: skip
_WORDS = re.compile(r"[\w-]+")


def own_proposition(component: str) -> str:
    """Return the proposition that the own work of a component is good: its name as an identifier, with `_ok`.

    >>> [own_proposition(name) for name in ("planner", "worker:parser", "Coder 1", "7b-model", "写手")]
    ['planner_ok', 'worker_parser_ok', 'coder_1_ok', 'agent_7b_model_ok', '写手_ok']
    """
    name = re.sub(r"\W+", "_", component.casefold()).strip("_")[:500]
    name = name if name.isidentifier() and not keyword.iskeyword(name) else f"agent_{name}"
    return f"{name}_ok"


def content_words(text: str) -> list[str]:
    """Return the words of a text that are no filler, in small letters."""
    return [word for word in _WORDS.findall(text.casefold()) if word not in _FILLER]


def names_own_work(text: str) -> bool:
    """Return whether a text names an answer, a plan, a test, ... at all."""
    return bool(any(_OWN.match(word) for word in content_words(text)) or _HAN_OWN.search(text))


def is_own_work(topic: str) -> bool:
    """Return whether a topic is one's own work and nothing else.

    >>> [is_own_work(topic) for topic in ("that my patch v2 is correct", "it", "rain", "success of the climb on Everest")]
    [True, True, False, False]
    """
    if _HAN_OWN.search(topic):
        return len(topic) <= MAX_HAN
    words = content_words(topic)
    other = [word for word in words if not _OWN.match(word)]
    return len(other) <= MAX_OTHER_WORDS and len(other) < len(words) if words else bool(topic.strip())
