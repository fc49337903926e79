"""Who handed work to whom: the delegations of a trace, each with the span that states it or the rule that finds it.

An explicit graph or handoff comes first, then a tool call around the agent's run, then a tool call that names the agent
(instrumentations exist that put the run beside the tool, not below it), then the place of a run inside another agent's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from analysis.readers.spans import names
from analysis.readers.spans.agents import named_in_arguments, plain_name
from analysis.readers.spans.nodes import Node

Basis = Literal["explicit", "derived"]


class Handing(NamedTuple):
    """One delegation: from whom to whom, in whose run, by which span (-1: none states it), to which run (-1: none seen)."""

    caller: str | None
    to: str | None
    scope: int
    by: int
    run: int
    returns: bool
    basis: Basis
    rule: str | None


class _Directory:
    """The agents of a trace by what they may be called, and their runs that nobody has been found to start yet."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.by_node_id = {node.node_id: node.agent for node in nodes if node.role == "agent_run" and node.node_id and node.agent}
        agents = {name for node in nodes for name in (node.actor, *node.handoff) if name is not None}
        self.by_name: dict[str, str] = {}
        for agent in sorted(agents):
            self.by_name.setdefault(_without_ending(plain_name(agent)), agent)
        for agent in sorted(agents):
            self.by_name[plain_name(agent)] = agent
        self.runs: dict[str | None, list[int]] = {}
        for n, node in enumerate(nodes):
            if node.role == "agent_run":
                self.runs.setdefault(node.agent, []).append(n)
                self.runs.setdefault(None, []).append(n)
        self._next: dict[str | None, int] = {}

    def named(self, name: str | None) -> str | None:
        """Return the agent of that name or node id."""
        return None if name is None else self.by_node_id.get(name) or self.by_name.get(plain_name(name))

    def before(self, run: Node) -> str | None:
        """Return the agent that an explicit graph puts before a run, if it is one of the trace and not the same."""
        agent = self.named(run.node_parent)
        return agent if agent != run.agent else None

    def target(self, tool: Node) -> str | None:
        """Return the agent that a tool call is for, by the tool's name or by an argument."""
        plain = plain_name(tool.thing or "")
        for prefix in ("", *names.TRANSFERRING, *names.ASKING):
            if plain.startswith(prefix) and (short := plain[len(prefix) :]):
                found = self.by_name.get(short) or self.by_name.get(_without_ending(short))
                if found is not None:
                    return found
        argument = named_in_arguments(tool.input)
        return self.by_name.get(plain_name(argument)) if argument is not None else None

    def next_run(self, agent: str | None, since_ns: int, taken: set[int]) -> int:
        """Return the first run of an agent (None: of any) from a time on that is not taken yet; asked in the order of time."""
        runs = self.runs.get(agent, [])
        at = self._next.get(agent, 0)
        while at < len(runs) and (runs[at] in taken or self.nodes[runs[at]].since_ns < since_ns):
            at += 1
        self._next[agent] = at
        return runs[at] if at < len(runs) else -1


def handings(nodes: list[Node]) -> list[Handing]:
    """Return the delegations in a trace, in no particular order but always the same."""
    agents = _Directory(nodes)
    found = list(_around_runs(nodes, agents))
    taken = {handing.run for handing in found}
    around = {handing.by for handing in found}
    for n, node in enumerate(nodes):
        if node.role not in ("handoff", "tool_call") or n in around:
            continue
        handing = _handoff(nodes, n, agents, taken) if node.role == "handoff" else _call(nodes, n, agents, taken)
        if handing is not None:
            found.append(handing)
            taken.add(handing.run)
    return [*found, *_without_call(nodes, agents, taken)]


def is_transfer(tool: str | None) -> bool:
    """Return whether a tool's name says that control moves for good."""
    return plain_name(tool or "").startswith(names.TRANSFERRING)


def _without_ending(name: str) -> str:
    return next((name[: -len(end)] for end in names.AGENT_ENDINGS if name.endswith(end) and name != end), name)


def _around_runs(nodes: list[Node], agents: _Directory) -> Iterator[Handing]:
    """Yield the tool calls that have a run inside, unless an explicit graph says that somebody else started it."""
    for n, node in enumerate(nodes):
        parent = nodes[node.parent] if node.role == "agent_run" and node.parent >= 0 else None
        if parent is None or parent.tool < 0:
            continue
        tool = nodes[parent.tool]
        before = agents.before(node)
        if before is None or before == tool.actor:
            basis, rule = _stated(before is not None or any(tool.handoff), "run-inside-tool")
            yield Handing(tool.actor, node.agent, parent.run, parent.tool, n, tool.role == "tool_call", basis, rule)


def _stated(is_explicit: bool, rule: str) -> tuple[Basis, str | None]:
    return ("explicit", None) if is_explicit else ("derived", rule)


def _handoff(nodes: list[Node], n: int, agents: _Directory, taken: set[int]) -> Handing:
    node = nodes[n]
    to = agents.named(node.handoff[1]) or node.handoff[1]
    run = agents.next_run(to, node.since_ns, taken)
    if to is not None:
        return Handing(node.actor, to, node.run, n, run, False, "explicit", None)
    # The attribute is often "unknown"; what is known is which agent runs next.
    return Handing(node.actor, nodes[run].agent if run >= 0 else None, node.run, n, run, False, "derived", "next-run")


def _call(nodes: list[Node], n: int, agents: _Directory, taken: set[int]) -> Handing | None:
    node = nodes[n]
    to = agents.target(node)
    if to is None or to == node.actor:
        return None
    run = agents.next_run(to, node.since_ns, taken)
    returns = not is_transfer(node.thing)
    if run >= 0 and (end := nodes[run].end_ns) is not None and node.end_ns is not None:
        returns = returns and node.end_ns >= end
    basis, rule = _stated(run >= 0 and agents.before(nodes[run]) == node.actor is not None, "tool-names-agent")
    return Handing(node.actor, to, node.run, n, run, returns, basis, rule)


def _without_call(nodes: list[Node], agents: _Directory, taken: set[int]) -> Iterator[Handing]:
    """Yield what an explicit graph states of the runs that no span starts, else what their place in another run shows."""
    for n, node in enumerate(nodes):
        if node.role != "agent_run" or n in taken:
            continue
        parent = nodes[node.parent] if node.parent >= 0 else None
        around = parent.actor if parent is not None else None
        scope = parent.run if parent is not None else -1
        if (before := agents.before(node)) is not None:
            yield Handing(before, node.agent, scope, -1, n, around == before, "explicit", "graph-node-parent")
        elif around is not None and around != node.agent:
            yield Handing(around, node.agent, scope, -1, n, True, "derived", "run-inside-run")
