"""A session as a whole: its lines in causal order, who acts in each of them, and what is known of the agents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from analysis.errors import Problem
from analysis.readers.claude_code.calls import MAIN, Call, Place, answers_of, calls_of, tie_agents
from analysis.readers.claude_code.chains import bridge, chains_of, ordered, start_agents, ties_of
from analysis.readers.claude_code.contents import is_use, name_of
from analysis.readers.claude_code.lines import Held, Line, ModelCall, Usage
from analysis.readers.claude_code.tally import report

SYNTHETIC = "<synthetic>"  # the model named by what the program wrote in the model's place

_UNTYPED = "subagent"  # the component of a sub-agent that nothing names the type of


@dataclass
class SubAgent:
    """An agent of the session: the main one, or one that a call started."""

    component: str
    parent: str | None = None
    model: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Message:
    """A model call over all its lines: its first text, when its last line was written, how it stopped, what it took."""

    tokens: dict[str, int]
    text_line: Line | None = None
    text_n: int = 0
    end_s: float | None = None
    is_synthetic: bool = False
    stop_reason: str | None = None
    has_calls: bool = False


class Session(NamedTuple):
    """The lines in an order in which each comes after the one it follows, and what belongs to what."""

    order: list[Line]
    cause: dict[int, Line]  # line -> the line it follows
    rules: dict[int, str]  # line -> how that was found, where the line does not state it
    owner: dict[int, str]  # line -> the agent that acts
    calls: dict[Place, Call]  # the call that stands there
    answers: dict[Place, Call]  # the call whose result stands there
    by_id: dict[str, Call]
    agents: dict[str, SubAgent]
    messages: dict[ModelCall, Message]


def link(held: Held) -> tuple[Session, list[Problem]]:
    """Return the session that the lines make, and a problem for lines and sub-agents that nothing leads to."""
    base = sorted(held.lines, key=lambda line: (line.sort_s, line.index))
    calls = dict(calls_of(base))
    by_id: dict[str, Call] = {}
    for call in calls.values():
        by_id.setdefault(call.call_id, call)
    ties, listed = ties_of(base, held.known), list(calls.values())
    base = ordered(base, ties)  # so that what is looked for among earlier lines cannot come after the line itself
    bridge(base, ties, {call_id: call.line for call_id, call in by_id.items()})
    answers = answers_of(base, ties, calls=listed, by_id=by_id, known=held.known)
    owner = tie_agents(base, chains_of(base, ties.cause), calls=listed, metas=held.metas)
    starts: dict[str, Call] = {}
    for call in listed:
        if call.agent is not None:
            starts.setdefault(call.agent, call)
    firsts = {owner[line.index]: line for line in reversed(base) if line.index in owner}
    for name in sorted(firsts.keys() - starts.keys() - {MAIN}):
        report(ties.found, "orphan", firsts[name].file, got=f"sub-agent {name}", expected="the call that started it")
    start_agents(base, owner, {name: call.line for name, call in starts.items()}, ties)
    order = ordered(base, ties)
    agents = _agents(order, owner, calls=calls, starts=starts, metas=held.metas)
    messages = _messages(order, held.usage)
    return Session(order, ties.cause, ties.rules, owner, calls, answers, by_id, agents, messages), list(ties.found.values())


def _messages(order: Sequence[Line], usage: Mapping[ModelCall, Usage]) -> dict[ModelCall, Message]:
    messages: dict[ModelCall, Message] = {}
    for line in order:
        if line.call is None:
            continue
        tokens = usage[line.call].tokens if line.call in usage else {}
        message = messages.setdefault(line.call, Message(tokens))
        message.end_s = line.time_s if line.time_s is not None else message.end_s
        message.is_synthetic |= line.message.get("model") == SYNTHETIC
        message.stop_reason = name_of(line.message.get("stop_reason")) or message.stop_reason
        for n, block in enumerate(line.blocks):
            message.has_calls |= is_use(block)
            if message.text_line is None and block.get("type") == "text":
                message.text_line, message.text_n = line, n
    return messages


def _agents(
    order: Sequence[Line],
    owner: Mapping[int, str],
    *,
    calls: Mapping[Place, Call],
    starts: Mapping[str, Call],
    metas: Mapping[str, dict[str, Any]],
) -> dict[str, SubAgent]:
    """Return all agents in the order in which they come up."""
    agents: dict[str, SubAgent] = {}
    roles: dict[str, str] = {}
    models: dict[str, set[str]] = defaultdict(set)
    for line in order:
        called = (calls[line.index, n].agent for n in range(len(line.blocks)) if (line.index, n) in calls)
        for name in (owner.get(line.index), *called):
            if name is not None:
                agents.setdefault(name, SubAgent(MAIN))
        if (name := owner.get(line.index)) is not None:
            if role := line.text("attributionAgent"):
                roles.setdefault(name, role)
            models[name].update(filter(None, [name_of(line.message.get("model"))]))
    for name, agent in agents.items():
        if len(used := models[name] - {SYNTHETIC}) == 1:
            agent.model = used.pop()
        if name != MAIN:
            _describe(agent, starts.get(name), metas.get(name, {}), owner, role=roles.get(name))
    _set_levels(agents)
    return agents


def _describe(agent: SubAgent, start: Call | None, meta: dict[str, Any], owner: Mapping[int, str], *, role: str | None) -> None:
    stated = [start.input.get("subagent_type"), start.returned.get("agentType")] if start is not None else []
    agent.component = next(filter(None, map(name_of, [*stated, meta.get("agentType"), role])), _UNTYPED)
    if start is not None:
        agent.parent = owner.get(start.line.index)
        agent.extra = {"description": start.input.get("description"), "found_by": start.rule}
    agent.extra["beside_lines"] = meta or None


def _set_levels(agents: Mapping[str, SubAgent]) -> None:
    """Count levels from the main agent down; of agents that started each other in a circle, one loses its parent."""
    level: dict[str, int | None] = {}
    for name in agents:
        path: list[str] = []
        at: str | None = name
        while at is not None and at not in level:
            level[at] = None
            path.append(at)
            at = agents[at].parent
        if at is not None and at in path:
            agents[path[-1]].parent = None
        above = None if at is None else level[at]
        for step in reversed(path):
            above = 0 if step == MAIN else None if above is None else above + 1
            level[step] = above
            agents[step].extra["level"] = above
