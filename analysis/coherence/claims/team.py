"""Who speaks in a trace: which events are an agent's own words, who ends the run, about which propositions.

Hidden here: in which order things were said (spans begin before what they contain, and end after it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from analysis.coherence.relations import parse
from analysis.errors import RelationError, UnknownNameError
from analysis.model import Event, Trace

Level = Literal["component", "pre-aggregation", "final"]

SOLVED: Final = "solved"
_HEARD = ("tool_call", "tool_result", "input", "retrieval", "embedding")  # what a tool or a user said, not the agent


class Team(NamedTuple):
    """What the claims of a trace are read against.

    `names` are the propositions that its relations, claims and texts name; `targets` the texts of those that stand in a
    relation and `questions` of those that do not. `members` are the agents and components, in small letters. `spoken` are
    the events that hold an agent's own words, in the order in which they were said. `finisher` is the agent that ends the
    run, `last_words` what it said last, `last_merge` the place of its last aggregation.
    """

    components: dict[str, str]
    names: frozenset[str]
    targets: dict[str, str]
    questions: dict[str, str]
    members: frozenset[str]
    spoken: tuple[Event, ...]
    finisher: str | None
    last_words: str
    last_merge: int | None

    def component(self, event: Event) -> str:
        """Return who speaks in an event."""
        agent_id = event.agent_id or ""
        return self.components.get(agent_id, agent_id)

    def is_final(self, event: Event, words: str) -> bool:
        """Return whether `words` of this event are the last ones of the agent that ends the run."""
        is_last = event.kind == "stop" or words in self.last_words
        return event.agent_id is not None and event.agent_id == self.finisher and is_last

    def level(self, event: Event, proposition: str) -> Level:
        """Return the level of a claim on `proposition` made in an event."""
        is_finisher = event.agent_id is not None and event.agent_id == self.finisher
        is_after = self.last_merge is not None and event.order > self.last_merge
        if is_finisher and (proposition == SOLVED or is_after):
            return "final"
        return "pre-aggregation" if event.kind == "aggregate" else "component"


def team_of(trace: Trace) -> Team:
    """Return who speaks in `trace`, and about which propositions."""
    related = {name for relation in trace.relations for name in _names(relation.formula)}
    given = trace.extra.get("propositions")
    texts = {name: text for name, text in given.items() if isinstance(text, str)} if isinstance(given, dict) else {}
    spoken = tuple(sorted((event for event in trace.events if _is_spoken(event)), key=_said_at(trace)))
    finisher = _finisher(trace)
    own = [event for event in spoken if event.agent_id == finisher]
    merges = [event.order for event in trace.events if event.kind == "aggregate" and event.agent_id == finisher]
    components = {agent.agent_id: agent.component for agent in trace.agents}
    return Team(
        components=components,
        members=frozenset(name.casefold() for pair in components.items() for name in pair),
        names=frozenset(related | texts.keys() | {claim.proposition for claim in trace.claims}),
        targets={name: text for name, text in texts.items() if name in related},
        questions={name: text for name, text in texts.items() if name not in related} if related else {},
        spoken=spoken,
        finisher=finisher,
        last_words=(own[-1].content or "") if own and finisher is not None else "",
        last_merge=max(merges, default=None),
    )


def _names(formula: str) -> tuple[Any, ...]:
    try:
        return parse(formula).names
    except (RelationError, UnknownNameError):  # the residual says so; here it names nothing
        return ()


def _is_spoken(event: Event) -> bool:
    return bool(event.content) and event.agent_id is not None and event.action not in _HEARD


def _said_at(trace: Trace) -> Any:
    """Return the key by which events sort as they were said: when they end, where the trace is timed throughout."""
    is_timed = all(event.t_end_s is not None for event in trace.events if event.content)
    return lambda event: (event.t_end_s if is_timed else 0.0, event.order)


def _finisher(trace: Trace) -> str | None:
    """Return the agent that stops the run; else the only one without a parent that aggregates."""
    parents: Mapping[str, str | None] = {agent.agent_id: agent.parent_id for agent in trace.agents}
    stops = [event.agent_id for event in sorted(trace.events, key=lambda e: e.order) if event.kind == "stop" and event.agent_id]
    roots = [agent_id for agent_id in stops if parents.get(agent_id) is None]
    if stops:
        return (roots or stops)[-1]
    merging = {event.agent_id for event in trace.events if event.kind == "aggregate" and event.agent_id}
    able = sorted(agent_id for agent_id in merging if parents.get(agent_id) is None)
    return able[0] if len(able) == 1 else None
