"""Who acts in each span: the agent it names, or the nearest one above it.

A span of kind AGENT is the run of an agent where it has an agent's name, or where its instrumentation marks nothing but
agents that way. LangChain marks every runnable with "agent" in its name: there the outermost one above a model call is it.
"""

from __future__ import annotations

from typing import Any

from analysis.readers.spans import names
from analysis.readers.spans.nodes import Node
from analysis.readers.spans.texts import decoded

_BARRIERS = {"agent_run", "tool_call", "handoff"}


def settle(nodes: list[Node]) -> None:
    """Decide role, agent, run and enclosing tool of each node (nodes in tree order, parents first)."""
    above_model, wraps_model, above_tokens = _below(nodes)
    for n, node in enumerate(nodes):
        parent = nodes[node.parent] if node.parent >= 0 else None
        if node.role == "model_call" and wraps_model[n]:
            node.role = "chain"  # two instrumentations recorded one call, or a wrapper repeats what it wraps
        if node.role == "agent_run":
            _settle_run(nodes, n, parent, is_above_model=above_model[n])
        elif node.node_id is not None and node.role in ("chain", None) and node.agent is not None:
            node.role = "agent_run"  # a node of an explicit graph
        _place(nodes, n, parent)
        if node.role != "model_call" and above_tokens[n]:
            node.input_tokens = node.output_tokens = None  # totals over what stands below
    only = _only_agent(nodes)
    if only is not None:
        _fill_in(nodes, only)
    _count_once(nodes)


def plain_name(name: str) -> str:
    """Return a name as names are compared: lower case, words joined by one underscore.

    >>> plain_name("Research Specialist"), plain_name("transfer-to--researchSpecialist")
    ('research_specialist', 'transfer_to_researchspecialist')
    """
    return "_".join("".join(c if c.isalnum() else " " for c in name.casefold()).split())


def named_in_arguments(text: str | None) -> str | None:
    """Return the agent that the arguments of a tool call name, if any."""
    if text is None or len(text) > 1 << 16 or not any(name in text for name in names.TARGET_ARGUMENTS):
        return None
    arguments: Any = decoded(text)
    if not isinstance(arguments, dict):
        return None
    return next((str(value) for name in names.TARGET_ARGUMENTS if isinstance(value := arguments.get(name), str) and value), None)


def _below(nodes: list[Node]) -> tuple[list[bool], list[bool], list[bool]]:
    """Return for each node whether a model call stands below it, whether one does with no other actor between, and tokens."""
    above_model, wraps_model, above_tokens = ([False] * len(nodes) for _ in range(3))
    for n in range(len(nodes) - 1, -1, -1):
        node = nodes[n]
        if node.parent < 0:
            continue
        is_model = node.role == "model_call"
        above_model[node.parent] |= is_model or above_model[n]
        wraps_model[node.parent] |= is_model or (wraps_model[n] and node.role not in _BARRIERS)
        above_tokens[node.parent] |= above_tokens[n] or node.input_tokens is not None or node.output_tokens is not None
    return above_model, wraps_model, above_tokens


def _settle_run(nodes: list[Node], n: int, parent: Node | None, *, is_above_model: bool) -> None:
    """Keep the role of a span that is an agent's run; the others only hold something."""
    node = nodes[n]
    if not node.is_named:
        rule = next((rule for part, rule in names.UNNAMED_AGENTS.items() if part in (node.scope or "")), None)
        is_inside = parent is not None and parent.run >= 0
        if rule == "wrapper" or (rule == "outermost" and (is_inside or not is_above_model)) or node.agent is None:
            node.role, node.agent = "chain", None
            return
    tool = nodes[parent.tool] if parent is not None and parent.tool >= 0 else None
    if tool is not None and tool.thing is not None and plain_name(tool.thing) == plain_name(node.agent or ""):
        # The run bears the name of the tool that starts any agent; which one it is stands in the arguments.
        node.agent = named_in_arguments(tool.input) or node.agent
    elif tool is None and parent is not None and parent.run >= 0 and nodes[parent.run].agent == node.agent:
        node.role = "chain"  # a second instrumentation shows the same run once more


def _place(nodes: list[Node], n: int, parent: Node | None) -> None:
    node = nodes[n]
    node.run, node.tool = (parent.run, parent.tool) if parent is not None else (-1, -1)
    inherited = parent.actor if parent is not None else None
    if node.role == "agent_run":
        node.run, node.tool, node.actor = n, -1, node.agent
    elif node.role in ("create_agent", "handoff"):
        node.actor = node.handoff[0] or inherited
    else:
        node.actor = node.agent or inherited
    if node.role in ("tool_call", "handoff"):
        node.tool = n


def _only_agent(nodes: list[Node]) -> str | None:
    acting = {node.actor for node in nodes if node.actor is not None}
    return acting.pop() if len(acting) == 1 else None


def _fill_in(nodes: list[Node], only: str) -> None:
    """Give the trace's only agent to the spans that lost the way up to it; what stands above a run of it is not its work."""
    holds_run = [False] * len(nodes)
    for n in range(len(nodes) - 1, -1, -1):
        if nodes[n].parent >= 0:
            holds_run[nodes[n].parent] |= holds_run[n] or nodes[n].role == "agent_run"
    lost = [False] * len(nodes)
    for n, node in enumerate(nodes):
        lost[n] = node.parent_id is not None if node.parent < 0 else lost[node.parent]
        if lost[n] and node.actor is None and not holds_run[n]:
            node.actor = only


def _count_once(nodes: list[Node]) -> None:
    """Leave the tokens of a model's answer with the last span that reports it."""
    counted = [node for node in nodes if node.response_id is not None and node.input_tokens is not None]
    last = {node.response_id: node for node in counted}
    for node in counted:
        if last[node.response_id] is not node:
            node.input_tokens = node.output_tokens = None
