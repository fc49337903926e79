"""From a trace to histories: what one agent was told and said, message after message, as its model saw it.

Where model calls carry their prompt, prompts that extend each other are one history and a break begins the next
(`prompted`); elsewhere the events are told in order (`telling`). No text is made up: an event without content becomes a
message only where the source states a decision with a payload that no message of the agent led to, as JSON of that
payload. Any other event without text stands, with an empty span, at the end of the agent's message it belongs to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from analysis.model import Event, Trace
from analysis.training.placing import Told, placed
from analysis.training.prompted import carries_prompt, prompted
from analysis.training.rows import Message, RowEvent
from analysis.training.telling import told


class History(NamedTuple):
    """One contiguous history: its messages, the events that stand in them, and which of these the agent wrote.

    `spoken` are the messages of the assistant in which it wrote something: only there a loss may be taken. `turns` are
    the first and last turn in which it wrote, where turns are known.
    """

    agent: str
    component: str
    turns: tuple[int, int] | None
    messages: list[Message]
    tools: list[dict[str, Any]] | None
    events: list[RowEvent]
    written: frozenset[str]
    spoken: frozenset[int]


def histories(trace: Trace) -> list[History]:
    """Return the histories of a trace in the order of its agents; those in which the agent wrote nothing are left out.

    Model calls of no agent have the agent and component ``""``, unless another agent's history says the same: two
    instruments may have recorded one call.
    """
    events = sorted(trace.events, key=lambda event: event.order)
    own: dict[str, list[Event]] = {}
    for event in events:
        own.setdefault(event.agent_id or "", []).append(event)
    prompting = {agent for agent, mine in own.items() if any(map(carries_prompt, mine))}
    tales = told(trace, events, [agent for agent in trace.agents if agent.agent_id not in prompting])
    found = []
    for agent in trace.agents:
        parts = prompted(own[agent.agent_id]) if agent.agent_id in prompting else tales[agent.agent_id]
        found += [_history(agent.agent_id, agent.component, part) for part in parts]
    if "" in prompting:
        nobody = [_history("", "", part) for part in prompted(own[""])]
        found += [one for one in nobody if all(one.messages != other.messages for other in found)]
    return [history for history in found if history.spoken]


def _history(agent: str, component: str, part: Told) -> History:
    mine = [place for place in part.places if place.is_own]
    turns = [place.event.turn for place in mine if place.event.turn is not None]
    spoken = frozenset(place.message for place in mine if part.messages[place.message]["role"] == "assistant")
    messages = part.messages[: max(spoken, default=-1) + 1]  # what came after its last word told it nothing any more
    return History(
        agent=agent, component=component, turns=(min(turns), max(turns)) if turns else None, messages=messages,
        tools=part.tools, events=placed(messages, [place for place in part.places if place.message < len(messages)]),
        written=frozenset(place.event.event_id for place in mine), spoken=spoken,
    )  # fmt: skip
