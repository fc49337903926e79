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
        return None if name is None else self.by_node_id.get(name) or self.by_name.get(plain_name(name))

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
    return [*found, *_inside_runs(nodes, taken)]


def is_transfer(tool: str | None) -> bool:
    """Return whether a tool's name says that control moves for good."""
    return plain_name(tool or "").startswith(names.TRANSFERRING)


def _without_ending(name: str) -> str:
    return next((name[: -len(end)] for end in names.AGENT_ENDINGS if name.endswith(end) and name != end), name)


def _around_runs(nodes: list[Node], agents: _Directory) -> Iterator[Handing]:
    """Yield what an explicit graph states, and the tool calls that have a run inside."""
    for n, node in enumerate(nodes):
        if node.role != "agent_run":
            continue
        parent = nodes[node.parent] if node.parent >= 0 else None
        tool = parent.tool if parent is not None else -1
        scope = parent.run if parent is not None else -1
        before = agents.named(node.node_parent)
        is_stated = before is not None and before != node.agent
        if tool >= 0 and (not is_stated or nodes[tool].actor == before):
            basis: Basis = "explicit" if is_stated or any(nodes[tool].handoff) else "derived"
            rule = None if basis == "explicit" else "run-inside-tool"
            yield Handing(nodes[tool].actor, node.agent, scope, tool, n, nodes[tool].role == "tool_call", basis, rule)
        elif is_stated:
            returns = parent is not None and parent.actor == before
            yield Handing(before, node.agent, scope, -1, n, returns, "explicit", "graph-node-parent")


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
    return Handing(node.actor, to, node.run, n, run, returns, "derived", "tool-names-agent")


def _inside_runs(nodes: list[Node], taken: set[int]) -> Iterator[Handing]:
    for n, node in enumerate(nodes):
        if node.role != "agent_run" or n in taken or node.parent < 0:
            continue
        parent = nodes[node.parent]
        if parent.actor is not None and parent.actor != node.agent:
            yield Handing(parent.actor, node.agent, parent.run, -1, n, True, "derived", "run-inside-run")
