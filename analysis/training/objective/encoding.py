"""Chat rows as tokens: which the policy wrote, which train and how much, and the credit of the event each belongs to.

Works with any fast tokenizer and chat template: what an assistant wrote is what follows the prompt that would have asked
for it. A template that rewrites earlier messages when later ones come has no such part and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .credits import Span, spread

IGNORED = -100  # the label without loss


class Encoded(NamedTuple):
    """A row as tokens, all lists of one length.

    policy : 1 where an assistant wrote the token; labels : the token where it trains, else -100
    weights : of the loss, 0 where nothing trains; credit : of the event, spread over its tokens
    n_prompt : tokens before the first one that an assistant wrote
    """

    input_ids: list[int]
    policy: list[int]
    labels: list[int]
    weights: list[float]
    credit: list[float]
    n_prompt: int


def encode(tokenizer: Any, row: Mapping[str, Any]) -> Encoded:
    """Return a row (messages, tools, keep, weight, events) as tokens.

    Raises ValueError where the template is not prefix-preserving or a token lies across the border of a message; the text
    names the message.
    """
    messages, tools = [_plain(message) for message in row["messages"]], row.get("tools") or None
    parts = _parts(tokenizer, messages, tools)
    whole = parts[-1].text
    coded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = coded["input_ids"], coded["offset_mapping"]
    places = _Places(offsets)
    policy, weights = [0] * len(ids), [0.0] * len(ids)
    for n, part in enumerate(parts):
        if part.first is None:
            continue
        first, past = places.inside(part.first, part.past, n)
        policy[first:past] = [1] * (past - first)
        if row["keep"][n]:
            weights[first:past] = [float(row["weight"][n])] * (past - first)
    spans = [span for event in row.get("events", ()) if (span := _span(event, parts, places, messages)) is not None]
    labels = [token if weight else IGNORED for token, weight in zip(ids, weights, strict=True)]
    n_prompt = policy.index(1) if 1 in policy else len(ids)
    return Encoded(ids, policy, labels, weights, spread(policy, spans), n_prompt)


class _Part(NamedTuple):
    """The text up to and with a message; where the message begins, and what an assistant wrote of it (`first` to `past`)."""

    text: str
    begins: int
    first: int | None
    past: int


def _parts(tokenizer: Any, messages: Sequence[dict[str, Any]], tools: Any) -> list[_Part]:
    whole = _text(tokenizer, messages, tools)
    parts: list[_Part] = []
    for n, message in enumerate(messages):
        begins = len(parts[-1].text) if parts else 0
        text = _text(tokenizer, messages[: n + 1], tools)
        is_own = message["role"] == "assistant"
        asked = _asked(tokenizer, messages[:n], tools, text) if is_own else text[:begins]
        if not whole.startswith(text) or not text.startswith(asked):
            raise ValueError(f"message {n}: the chat template rewrites earlier messages; take one that keeps prefixes")
        parts.append(_Part(text, begins, len(asked) if is_own else None, len(text.rstrip("\n"))))
    return parts


def _asked(tokenizer: Any, messages: Sequence[dict[str, Any]], tools: Any, text: str) -> str:
    """Return the text up to where an answer to the messages begins, of which there are none where an agent speaks first."""
    if messages:
        return _text(tokenizer, messages, tools, ask=True)
    # Few templates render a chat without messages: what opens an answer is seen after a question.
    question = [{"role": "user", "content": "?"}]
    opening = _text(tokenizer, question, None, ask=True).removeprefix(_text(tokenizer, question, None))
    before, found, _ = text.partition(opening)
    if not found:
        raise ValueError("message 0: the chat template does not show where an agent that speaks first begins")
    return before + found


def _text(tokenizer: Any, messages: Sequence[dict[str, Any]], tools: Any, *, ask: bool = False) -> str:
    return str(tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=ask))


class _Places:
    """From places in the text to places among the tokens."""

    def __init__(self, offsets: Sequence[tuple[int, int]]) -> None:
        self.offsets = offsets

    def touching(self, first: int, past: int) -> tuple[int, int]:
        """Return the tokens that hold some of the text."""
        found = [n for n, (a, b) in enumerate(self.offsets) if a < past and b > first]
        return (found[0], found[-1] + 1) if found else (0, 0)

    def inside(self, first: int, past: int, message: int) -> tuple[int, int]:
        """Return the tokens that make up the text."""
        a, b = self.touching(first, past)
        if a < b and (self.offsets[a][0] < first or self.offsets[b - 1][1] > past):
            raise ValueError(f"message {message}: a token lies across its border, so that it cannot be masked by itself")
        return a, b


def _span(event: Mapping[str, Any], parts: Sequence[_Part], places: _Places, messages: Sequence[dict[str, Any]]) -> Span | None:
    """Return the tokens of an event with credit; an event whose text the template changed has those of its message."""
    if event.get("credit") is None:
        return None
    part, content = parts[event["message"]], messages[event["message"]].get("content") or ""
    written = content[event["char_from"] : event["char_to"]]
    place = part.text.find(content, part.begins) + event["char_from"]
    if not written or part.text[place : place + len(written)] != written or place < part.begins:
        place, written = part.begins, part.text[part.begins :]
    return Span(*places.touching(place, place + len(written)), event["credit"])


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with the arguments of its calls as objects, as templates document them."""
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    return {**message, "tool_calls": [{**call, "function": _function(call["function"])} for call in calls]}


def _function(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function["arguments"]
    return {**function, "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments}
