"""Histories of an agent whose model calls are recorded with their whole prompt: the prompt is the history.

A call whose prompt begins with all that a history holds, its last answer included, goes on with it, if the tools are the
same; any other call begins a history (compaction, a new context). Other events are found in the messages by what they
say; those that only wrap others (chains, runs of agents) are not looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from analysis.model import Event
from analysis.training.chat import answer_of, arguments_text, chat, same, tools_of
from analysis.training.placing import CONTENT, NOWHERE, Place, Told
from analysis.training.rows import Message

_SAID = frozenset({"delegate", "communicate", "aggregate", "stop"})


def carries_prompt(event: Event) -> bool:
    """Tell whether an event is a model call whose prompt is recorded."""
    return event.action == "model_call" and bool(chat(event.messages))


def prompted(events: Sequence[Event]) -> list[Told]:
    """Return the histories that the model calls among one agent's events make, in the order in which they began."""
    found: list[Told] = []
    for event in events:
        if not carries_prompt(event) or (answer := answer_of(event)) is None:
            continue
        prompt, tools = chat(event.messages), tools_of(event)
        place = Place(event, len(prompt), CONTENT, True)
        for n, (before, offered, places) in enumerate(found):
            if offered == tools and _begins(prompt, before):
                found[n] = Told([*prompt, answer], tools, [*places, place])
                break
        else:
            found.append(Told([*prompt, answer], tools, [place]))
    found = [Told(_with_ids(told.messages), told.tools, told.places) for told in found]
    for event in events:
        _find(event, found)
    return found


def _begins(prompt: Sequence[Message], before: Sequence[Message]) -> bool:
    return len(before) <= len(prompt) and same(prompt[len(before) - 1], before[-1]) and all(map(same, before, prompt))


def _with_ids(messages: Sequence[Message]) -> list[Message]:
    """Give calls without an id one, and results that name no call the first call still open."""
    mended: list[Message] = []
    open_calls: list[str] = []
    for n, message in enumerate(messages):
        if "tool_calls" in message:
            calls = [one | {"id": one["id"] or f"call_{n}_{k}"} for k, one in enumerate(message["tool_calls"])]
            open_calls += [one["id"] for one in calls]
            mended.append(message | {"tool_calls": calls})
        elif message["role"] == "tool":
            answered = message["tool_call_id"]
            if answered not in open_calls and open_calls:
                answered = open_calls[0]
            open_calls = [one for one in open_calls if one != answered]
            mended.append(message | {"tool_call_id": answered})
        else:
            mended.append(message)
    return mended


def _find(event: Event, found: Sequence[Told]) -> None:
    """Add the place of an event that is no model call to the first history it stands in."""
    for told in found:
        taken = {(place.message, place.part) for place in told.places}
        for number, part, is_own in _fitting(event, told):
            if part == NOWHERE or (number, part) not in taken:
                told.places.append(Place(event, number, part, is_own))
                return


def _fitting(event: Event, told: Told) -> Iterator[tuple[int, int, bool]]:
    if event.action == "tool_call":
        yield from _calls_of(event, told.messages)
    text = event.content
    if text and (event.kind in _SAID or event.action in ("tool_result", "input")):
        yield from ((n, CONTENT, False) for n, message in enumerate(told.messages) if message["content"] == text)
    elif event.kind in ("spawn", "stop", "delegate", "aggregate"):
        # A decision without words is what the call that caused it decided.
        yield from ((p.message, NOWHERE, True) for p in told.places if p.is_own and p.event.event_id in event.parents)


def _calls_of(event: Event, messages: Sequence[Message]) -> Iterator[tuple[int, int, bool]]:
    attributes = event.extra.get("attributes")
    ids: set[Any] = {event.raw_id, attributes.get("gen_ai.tool.call.id") if isinstance(attributes, dict) else None} - {None}
    into = [m.get("content") for m in event.messages if m.get("role") == "input"]
    arguments = arguments_text(into[0] if into else event.content)
    calls = [(n, k, one) for n, m in enumerate(messages) for k, one in enumerate(m.get("tool_calls", ()))]
    wanted = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": event.name, "arguments": arguments}}]}
    for number, k, one in calls:
        if one["id"] in ids or same(wanted, {"role": "assistant", "content": "", "tool_calls": [one]}):
            yield number, k, True
