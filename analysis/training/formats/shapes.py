"""Shapes of a chat that several targets share, and the reasons they share to refuse one."""

from __future__ import annotations

import json
from collections.abc import Iterator

from analysis.training.objective.credits import counted
from analysis.training.rows import Message, Row, RowEvent

_Z = 1.96  # of the interval of 95 %


def own(row: Row) -> list[int]:
    """Return the places of what the agent wrote."""
    return [n for n, message in enumerate(row.messages) if message["role"] == "assistant"]


def masked(row: Row) -> list[int]:
    """Return the places of what the agent wrote and no loss may be taken on."""
    return [n for n in own(row) if not row.keep[n]]


def tools_text(row: Row) -> str:
    """Return the tools as JSON text, `[]` where there are none: a column that begins with nulls has no type."""
    return json.dumps(row.tools or [], ensure_ascii=False)


def filled(message: Message) -> Message:
    """Return the message with a text where it has none."""
    return {**message, "content": message.get("content") or ""}


def kept_turns(row: Row) -> Iterator[tuple[int, list[Message], Message]]:
    """Yield each message that trains: its place, those before it, and itself."""
    for n in own(row):
        if row.keep[n]:
            yield n, [filled(m) for m in row.messages[:n]], filled(row.messages[n])


def prompt(row: Row) -> list[Message]:
    """Return what stands before the first message that the agent wrote."""
    places = own(row)
    return [filled(m) for m in row.messages[: places[0]]] if places else []


def sure_credit(event: RowEvent, *, better: str = "higher") -> float:
    """Return the credit of an event, above 0 for what helped; 0 where there is none or its interval of 95 % covers 0.

    `better` is that of the metric whose credit events have: of tokens, a decision that saved some has a credit below 0.
    """
    if event.credit is None or event.credit_se is None:
        return 0.0
    delta_q, margin = -event.credit, _Z * event.credit_se
    return counted(event.credit, delta_q - margin, delta_q + margin, better=better)


def nothing_own(row: Row) -> list[str]:
    """Return why a row without anything to learn is refused."""
    return [] if any(row.keep) else ["no message of the agent trains"]


def unprompted(row: Row) -> list[str]:
    """Return why a row is refused in which nothing stands before what the agent wrote."""
    return [] if prompt(row) else ["the agent speaks first: there is no prompt"]


def late_system(row: Row) -> bool:
    """Tell whether a system message stands after the first message."""
    return any(message["role"] == "system" for message in row.messages[1:])


def all_or_nothing(row: Row, name: str) -> list[str]:
    """Return why a target that trains on every assistant message refuses a row."""
    problems = nothing_own(row)
    if not problems and (places := masked(row)):
        problems = [f"{name} trains on every assistant message, and message {places[0]} is masked"]
    return problems


def unanswered(row: Row) -> list[str]:
    """Return why a row is refused whose tool results belong to no call, or that names a call without its result."""
    open_calls: set[str] = set()
    for n, message in enumerate(row.messages):
        if message["role"] == "tool" and message.get("tool_call_id") not in open_calls:
            return [f"message {n}: the result of no call before it"]
        open_calls |= {call["id"] for call in message.get("tool_calls") or ()}
    return []
