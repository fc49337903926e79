"""Where events stand in messages, and the characters they span there.

A place names what part of a message an event is; characters are counted at the end, when the messages are final.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from analysis.model import Event
from analysis.training.rows import Message, RowEvent

#: Parts of a message that are no call: all of its content, or no character at its end.
CONTENT, NOWHERE = -1, -2


class Place(NamedTuple):
    """Where an event stands: a message, and in it the content, no characters, or the call of this number.

    `is_own`: the agent wrote it in this run, rather than having been told it.
    """

    event: Event
    message: int
    part: int
    is_own: bool


class Told(NamedTuple):
    """Messages, the tools offered with them, and the events that stand in them."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None
    places: list[Place]


def placed(messages: Sequence[Message], places: Iterable[Place]) -> list[RowEvent]:
    """Return the events of a row in the order of their spans, without credit; `rows.message_text` is what spans count."""
    events = []
    for event, number, part, _ in places:
        low, high = _span(messages[number], part)
        events.append(RowEvent(event.event_id, number, event.kind, low, high, None, None, None, None))
    return sorted(events, key=lambda event: (event.message, event.char_from, event.char_to))


def _span(message: Message, part: int) -> tuple[int, int]:
    length = len(message["content"])
    sizes = [len(one["function"]["arguments"]) for one in message.get("tool_calls", ())]
    if part == CONTENT:
        return 0, length
    if part == NOWHERE:
        end = length + sum(sizes)
        return end, end
    begin = length + sum(sizes[:part])
    return begin, begin + sizes[part]
