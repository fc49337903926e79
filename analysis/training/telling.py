"""Histories of agents whose prompts are not recorded: their events and what reached them, told in order.

Decides who says what: what an agent wrote is the assistant's; delegations and messages to it, and what it acted on that
names no receiver, are the user's; a result of its own call is the tool's. A compaction ends a history and begins one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from analysis.model import Agent, Event, Trace
from analysis.training.chat import call
from analysis.training.placing import CONTENT, NOWHERE, Place, Told
from analysis.training.rows import Message

#: Formats whose notes are the harness's bookkeeping, but for those that stood in the conversation.
_BOOKKEEPING = frozenset({"claude-code"})
_COMPACTION = "compact_boundary"
#: Acts of others that reach whom they cause to act; they name no receiver.
_OVERHEARD = frozenset({"input", "tool_result"})
_WRITTEN = frozenset({"model_call", "return", "ledger", "note"})


def told(trace: Trace, events: Sequence[Event], agents: Iterable[Agent]) -> dict[str, list[Told]]:
    """Return the histories of some agents of a trace; `events` are the trace's, in order."""
    openings = _openings(trace)
    tellers = {agent.agent_id: _Teller(agent, openings[agent.agent_id], trace.source.format) for agent in agents}
    heard_by = _overheard(events)
    for event in events:
        if (own := tellers.get(event.agent_id or "")) is not None:
            own.tell(event)
        receivers = event.targets if event.kind in ("delegate", "communicate") else heard_by.get(event.event_id, ())
        for agent_id in receivers:
            if agent_id in tellers and agent_id != event.agent_id:
                tellers[agent_id].hear(event, _words(event, trace))
    return {agent_id: teller.finish() for agent_id, teller in tellers.items()}


def _overheard(events: Sequence[Event]) -> Mapping[str, list[str]]:
    """Return of each input or result the agents that acted on it without being the one it is recorded of."""
    by_id = {event.event_id: event for event in events if event.action in _OVERHEARD}
    heard: dict[str, list[str]] = {}
    for event in events:
        for parent in (by_id[name] for name in event.parents if name in by_id):
            if event.agent_id is not None and event.agent_id not in (parent.agent_id, *heard.get(parent.event_id, ())):
                heard.setdefault(parent.event_id, []).append(event.agent_id)
    return heard


def _openings(trace: Trace) -> dict[str, str | None]:
    """Return of each agent what it was asked if it speaks before it is told anything: its assignment; of a root the task."""
    assigned: dict[str, str] = {}
    made = {agent.agent_id for agent in trace.agents if agent.parent_id is not None}
    for event in trace.events:
        assigned = {**event.assignment, **assigned} if event.assignment else assigned
        if event.kind in ("spawn", "delegate") and event.agent_id is not None:
            made.update(event.targets)
    names = [agent.agent_id for agent in trace.agents]
    return {name: assigned.get(name, None if name in made else trace.task.text) for name in names}


def _words(event: Event, trace: Trace) -> str:
    """Return what an event says to those it reaches; a delegation may refer to the text of the task."""
    if not event.content and event.extra.get("content_from") == "task.text":
        return trace.task.text or ""
    return event.content or (event.error if event.action == "tool_result" else None) or ""


class _Teller:
    """The history of one agent while it is being told."""

    def __init__(self, agent: Agent, opening: str | None, format: str) -> None:
        self.agent, self.opening, self.format = agent, opening, format
        self.done: list[Told] = []
        self._begin()

    def _begin(self) -> None:
        prompt = self.agent.system_prompt
        self.messages: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
        self.places: list[Place] = []
        self.calls: dict[str, tuple[str, str]] = {}  # event -> id and name of a call that has no result yet
        self.ahead: list[Event] = []  # without words; they belong to the next message of the assistant
        self.said: set[str] = set()  # what the agent itself did in this history

    def finish(self) -> list[Told]:
        """Return all histories."""
        spoken = [n for n, message in enumerate(self.messages) if message["role"] == "assistant"]
        self.places += [Place(event, spoken[-1], NOWHERE, True) for event in self.ahead if spoken]
        self.done.append(Told(self.messages, None, self.places))
        return self.done

    def tell(self, event: Event) -> None:
        """Add an event of the agent itself."""
        if event.name == _COMPACTION:
            self.finish()
            self._begin()
            self.opening = None
        elif event.action == "tool_call":
            self._call(event)
        elif event.action == "tool_result":
            self._result(event)
        elif event.action == "input" or (event.action == "note" and self.format in _BOOKKEEPING and event.raw_type == "user"):
            self.hear(event, event.content or "")
        elif event.kind not in (None, "act") or (event.action in _WRITTEN and not self._is_bookkeeping(event)):
            self._say(event)

    def hear(self, event: Event, text: str) -> None:
        """Add what reached the agent."""
        if not text:
            return
        if not self._is_last("user", text):
            is_named = event.agent_id not in (None, self.agent.agent_id)
            self.messages.append({"role": "user", "content": text} | ({"name": event.agent_id} if is_named else {}))
        self._place(event, CONTENT, is_own=False)

    def _say(self, event: Event) -> None:
        self._open()
        text = event.content or self._decision(event)
        self.said.add(event.event_id)
        if not text:
            is_next = event.action == "model_call" or not self._is_last("assistant")
            if is_next:
                self.ahead.append(event)
            else:
                self._place(event, NOWHERE)
            return
        if not self._is_last("assistant", text) or "tool_calls" in self.messages[-1]:
            self._answer({"role": "assistant", "content": text})
        self._place(event, CONTENT)

    def _decision(self, event: Event) -> str | None:
        """Return a decision without content as JSON, if the source states it and no message of the agent led to it."""
        if event.kind == "act" or event.basis == "derived" or not event.payload or self.said.intersection(event.parents):
            return None
        return msgspec.json.encode({"decision": event.kind, "targets": event.targets, **event.payload}).decode()

    def _call(self, event: Event) -> None:
        self._open()
        into = [message.get("content") for message in event.messages if message.get("role") == "input"]
        one = call(event.raw_id or event.event_id, event.name or "", into[0] if into else event.content)
        last = {place.event.event_id for place in self.places if place.message == len(self.messages) - 1}
        if not self._is_last("assistant") or not ("tool_calls" in self.messages[-1] or last.intersection(event.parents)):
            self._answer({"role": "assistant", "content": ""})
        calls = [*self.messages[-1].get("tool_calls", ()), one]
        self.messages[-1] = self.messages[-1] | {"tool_calls": calls}
        self.calls[event.event_id] = (one["id"], event.name or "")
        self.said.add(event.event_id)
        self._place(event, len(calls) - 1)
        if into:  # the span of a call holds its result too
            del self.calls[event.event_id]
            self.messages.append(_result(one["id"], event.name, event.content or event.error or ""))

    def _result(self, event: Event) -> None:
        named = [name for name, (_, tool) in self.calls.items() if tool == (event.name or "")]
        answered = [name for name in event.parents if name in self.calls] or named
        text = event.content or event.error or ""
        if not answered:
            self.hear(event, text)
            return
        call_id, _ = self.calls.pop(answered[0])
        self.messages.append(_result(call_id, event.name, text))
        self._place(event, CONTENT, is_own=False)

    def _open(self) -> None:
        """An agent that acts before it is told anything has read what it was asked."""
        if self.opening and all(before["role"] == "system" for before in self.messages):
            self.messages.append({"role": "user", "content": self.opening})

    def _answer(self, message: Message) -> None:
        self.messages.append(message)
        self.places += [Place(event, len(self.messages) - 1, NOWHERE, True) for event in self.ahead]
        self.ahead = []

    def _place(self, event: Event, part: int, *, is_own: bool = True) -> None:
        self.places.append(Place(event, len(self.messages) - 1, part, is_own))

    def _is_last(self, role: str, text: str | None = None) -> bool:
        last: dict[str, Any] = self.messages[-1] if self.messages else {}
        return last.get("role") == role and text in (None, last.get("content"))

    def _is_bookkeeping(self, event: Event) -> bool:
        return event.action == "note" and self.format in _BOOKKEEPING and event.raw_type != "assistant/text"


def _result(call_id: str, name: str | None, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, **({"name": name} if name else {}), "content": text}
