"""The tool calls of a session, their results, and the sub-agents that calls of the Task or Agent tool started.

Hidden here: the ways in which a sub-agent is tied to its call, of which each version of the program leaves out others.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.readers.claude_code.chains import Chain, Ties
from analysis.readers.claude_code.contents import Block, is_result, is_use, mapping, name_of, words
from analysis.readers.claude_code.lines import Line
from analysis.readers.claude_code.tally import report

MAIN = "main"
INTERRUPT = "[Request interrupted by user"

_TASK_TOOLS = ("Task", "Agent")

Place = tuple[int, int]  # line and block


@dataclass(eq=False)
class Call:
    """A tool call, with its result where there is one; `agent` is the sub-agent it started or spoke to."""

    call_id: str
    line: Line
    block: Block
    result: Line | None = None
    result_block: Block = field(default_factory=dict)
    agent: str | None = None
    rule: str | None = None  # how the sub-agent was found

    @property
    def name(self) -> str | None:
        """The tool."""
        return name_of(self.block.get("name"))

    @property
    def input(self) -> dict[str, Any]:
        """The arguments of the tool."""
        return mapping(self.block.get("input"))

    @property
    def returned(self) -> dict[str, Any]:
        """What the program noted about the result, where its line holds no other one."""
        if self.result is None or len(self.result.blocks) != 1:
            return {}
        return mapping(self.result.raw.get("toolUseResult"))

    @property
    def is_launch(self) -> bool:
        """Whether the result only says that the sub-agent now works in the background."""
        return self.returned.get("status") in ("async_launched", "remote_launched") or self.returned.get("isAsync") is True


def calls_of(base: Sequence[Line]) -> Iterator[tuple[Place, Call]]:
    """Yield the tool calls with their places."""
    for line in base:
        for n, block in enumerate(line.blocks if line.type == "assistant" else ()):
            if is_use(block):
                yield (line.index, n), Call(name_of(block.get("id")) or f"{line.uuid or line.index}.{n}", line, block)


def answers_of(
    base: Sequence[Line], ties: Ties, *, calls: Sequence[Call], by_id: Mapping[str, Call], known: Mapping[str, Line]
) -> dict[Place, Call]:
    """Return which call each result answers: by its id, without one the first open call of the line it follows."""
    answers: dict[Place, Call] = {}
    waiting: dict[int, deque[Call]] = defaultdict(deque)
    for call in calls:
        waiting[call.line.index].append(call)
    for line in base:
        for n, block in enumerate(line.blocks):
            if not is_result(block):
                continue
            call_id = name_of(block.get("tool_use_id"))
            asker = known.get(line.text("sourceToolAssistantUUID") or "") or ties.cause.get(line.index)
            open_calls = waiting.get(asker.index) if call_id is None and asker is not None else None
            answered = open_calls.popleft() if open_calls else by_id.get(call_id or "")
            if answered is None:
                report(ties.found, "orphan", line.file, got=f"a result in {line.uuid}", expected="the call that it answers")
                continue
            answers[line.index, n] = answered
            if answered.result is None:
                answered.result, answered.result_block = line, block
    return answers


def tie_agents(
    base: Sequence[Line], chains: Mapping[int, Chain], *, calls: Sequence[Call], metas: Mapping[str, dict[str, Any]]
) -> dict[int, str]:
    """Return line -> agent id, and tie each sub-agent to the calls that started it.

    In this order: the sub-agent's id in the result, beside its lines, or in a progress line; the same prompt; the only call
    of its type, where one of each is left. A call that failed and has no lines started nobody.
    """
    tasks = [call for call in calls if call.name in _TASK_TOOLS]
    firsts: dict[Chain, Line] = {}
    for line in base:
        if line.index in chains and line.is_said:
            firsts.setdefault(chains[line.index], line)
    _tie_stated(base, tasks, metas)
    names = {chain: _own_name(chain, firsts.get(chain)) for chain in dict.fromkeys(chains.values())}
    _tie_by_prompt(firsts, names, chains=chains, tasks=tasks)
    owner = {index: names[chain] for index, chain in chains.items()}
    _tie_by_type(base, owner, tasks=tasks, metas=metas)
    for call in tasks:
        is_refused = call.result_block.get("is_error") is True and INTERRUPT not in str(call.result_block.get("content"))
        if call.agent is None and not is_refused:
            call.agent = _sub_name(call.call_id)
    return owner


def _own_name(chain: Chain, first: Line | None) -> str:
    kind, name = chain
    if kind == "main":
        return MAIN
    return _sub_name((first.uuid if kind == "root" and first is not None else None) or name)


def _sub_name(name: str) -> str:
    return f"agent-{MAIN}" if name == MAIN else name


def _tie_stated(base: Sequence[Line], tasks: Sequence[Call], metas: Mapping[str, dict[str, Any]]) -> None:
    stated: dict[str | None, tuple[str, str]] = {}
    for line in base:
        if line.type == "progress" and (agent := name_of(mapping(line.raw.get("data")).get("agentId"))):
            stated[name_of(line.raw.get("parentToolUseID"))] = agent, "id-in-progress"
    for agent, meta in metas.items():
        stated[name_of(meta.get("toolUseId"))] = agent, "call-beside-lines"
    for call in tasks:
        if (name := name_of(call.returned.get("agentId"))) is not None:
            stated[call.call_id] = name, "id-in-result"
        if call.call_id in stated:
            call.agent, call.rule = _sub_name(stated[call.call_id][0]), stated[call.call_id][1]


def _tie_by_prompt(
    firsts: Mapping[Chain, Line], names: dict[Chain, str], *, chains: Mapping[int, Chain], tasks: Sequence[Call]
) -> None:
    """Tie sub-agents whose first text is the prompt of a call; of equal ones the earlier to the earlier."""
    with_lines = {name for chain, name in names.items() if chain[0] == "agent"}
    free: dict[str, deque[Call]] = defaultdict(deque)
    for call in tasks:
        if call.agent not in with_lines and isinstance(prompt := call.input.get("prompt"), str):
            free[prompt.strip()].append(call)
    tied = {MAIN, *(call.agent for call in tasks)}
    for chain, first in firsts.items():
        queue = free.get((words(first.blocks)[0] or "").strip())
        if names[chain] in tied or not queue or chains[queue[0].line.index] == chain:
            continue
        call = queue.popleft()
        if chain[0] == "agent":
            call.agent = names[chain]
        else:
            names[chain] = call.agent = call.agent or _sub_name(call.call_id)
        call.rule = "equal-prompt"


def _tie_by_type(
    base: Sequence[Line], owner: Mapping[int, str], *, tasks: Sequence[Call], metas: Mapping[str, dict[str, Any]]
) -> None:
    tied = {MAIN, *(call.agent for call in tasks)}
    types: dict[str, str] = {}
    for line in base:
        name = owner.get(line.index)
        if name is None or name in tied:
            continue
        role = name_of(metas.get(name, {}).get("agentType")) or name_of(line.raw.get("attributionAgent"))
        if role is not None:
            types.setdefault(name, role)
    agents, calls = defaultdict[str, list[str]](list), defaultdict[str | None, list[Call]](list)
    for name, role in types.items():
        agents[role].append(name)
    for call in tasks:
        if call.agent is None:
            calls[name_of(call.input.get("subagent_type"))].append(call)
    for role, names in agents.items():
        if len(names) == len(calls[role]) == 1:
            calls[role][0].agent, calls[role][0].rule = names[0], "only-one-of-its-type"
