"""Who acts in a session's lines, what each line follows, and which call each result and sub-agent belongs to.

Hidden here: the rules that bridge broken chains, and the ways in which a sub-agent is tied to the call that started it.
What a line follows always comes before it: the causes make no circle, whatever the file says.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from analysis.errors import Problem
from analysis.readers.claude_code.lines import Found, Held, Line, Usage, mapping, name_of, report
from analysis.readers.claude_code.lines import Call as ModelCall

MAIN = "main"
INTERRUPT = "[Request interrupted by user"
SYNTHETIC = "<synthetic>"  # the model named by what the program wrote in the model's place

_TASK_TOOLS = ("Task", "Agent")
_UNTYPED = "subagent"  # the component of a sub-agent that nothing names the type of

_Chain = tuple[str, str]
_MAIN_CHAIN: _Chain = ("main", "")


@dataclass(eq=False)
class Call:
    """A tool call, with its result where there is one; `agent` is the sub-agent it started or spoke to."""

    call_id: str
    line: Line
    block: dict[str, Any]
    result: Line | None = None
    result_block: dict[str, Any] = field(default_factory=dict)
    agent: str | None = None
    rule: str | None = None  # how the sub-agent was found

    @property
    def name(self) -> str | None:
        return name_of(self.block.get("name"))

    @property
    def input(self) -> dict[str, Any]:
        return mapping(self.block.get("input"))

    @property
    def returned(self) -> dict[str, Any]:
        """What the program noted about the result, where the line holds no other one."""
        is_only = self.result is not None and len(self.result.blocks) == 1
        return mapping(self.result.raw.get("toolUseResult")) if self.result is not None and is_only else {}

    @property
    def is_launch(self) -> bool:
        """Whether the result only says that the sub-agent now works in the background."""
        return self.returned.get("status") in ("async_launched", "remote_launched") or self.returned.get("isAsync") is True


@dataclass
class SubAgent:
    """An agent of the session: the main one, or one that a call started."""

    component: str
    parent: str | None = None
    model: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Session(NamedTuple):
    """All lines in an order in which each comes after its cause, and what belongs to what."""

    order: list[Line]
    cause: dict[int, Line]  # line -> the line it follows
    rules: dict[int, str]  # line -> how that was found, where the line does not state it
    owner: dict[int, str]  # line -> the agent that acts
    calls: dict[tuple[int, int], Call]  # (line, block) -> the call that stands there
    answers: dict[tuple[int, int], Call]  # (line, block) -> the call whose result stands there
    by_id: dict[str, Call]
    agents: dict[str, SubAgent]
    usage: dict[ModelCall, Usage]


class _Ties(NamedTuple):
    cause: dict[int, Line]
    rules: dict[int, str]
    found: Found


def link(held: Held, metas: dict[str, dict[str, Any]]) -> tuple[Session, list[Problem]]:
    """Return the session that the lines make, and a problem for each line and sub-agent that nothing leads to."""
    base = sorted(held.lines, key=lambda line: (line.sort_s, line.index))
    calls = dict(_calls(base))
    by_id: dict[str, Call] = {}
    for call in calls.values():
        by_id.setdefault(call.call_id, call)
    ties = _causes(base, held.known, by_id)
    answers = _answers(base, ties, calls=calls, by_id=by_id, known=held.known)
    chains = _chains(base, ties.cause)
    tasks = [call for call in calls.values() if call.name in _TASK_TOOLS]
    names = _name_chains(base, chains, tasks=tasks, metas=metas)
    starts: dict[str, Call] = {}
    for call in calls.values():
        if call.agent is not None:
            starts.setdefault(call.agent, call)
    owner = {index: names[chain] for index, chain in chains.items()}
    _start_chains(base, owner, starts, ties)
    order = _ordered(base, ties)
    agents = _agents(order, owner, calls=calls, starts=starts, metas=metas)
    for name, agent in agents.items():
        if name != MAIN and name not in starts:
            file = next(line.file for line in order if owner.get(line.index) == name)
            report(ties.found, "orphan", file, got=f"sub-agent {name}", expected="the call that started it")
    run = Session(order, ties.cause, ties.rules, owner, calls, answers, by_id, agents, held.usage)
    return run, list(ties.found.values())


def words(line: Line) -> str | None:
    """Return the text of a line, without its results and calls."""
    texts = [text for block in line.blocks if block.get("type") == "text" and isinstance(text := block.get("text"), str)]
    return "\n\n".join(texts) if texts else None


def is_result(block: dict[str, Any]) -> bool:
    """Whether the block is the result of a tool."""
    return str(block.get("type")).endswith("tool_result")


def is_use(block: dict[str, Any]) -> bool:
    """Whether the block calls a tool."""
    return str(block.get("type")).endswith("tool_use")


def _calls(base: Sequence[Line]) -> Iterator[tuple[tuple[int, int], Call]]:
    for line in base:
        for n, block in enumerate(line.blocks if line.type == "assistant" else ()):
            if is_use(block):
                call_id = name_of(block.get("id")) or f"{line.uuid or line.index}.{n}"
                yield (line.index, n), Call(call_id, line, block)


def _chain(line: Line) -> _Chain | None:
    """Return the chain that a line says it is of; old sub-agents have no id, and theirs is found by what it follows."""
    if line.uuid is None and not line.is_said:
        return None
    if line.agent is not None:
        return "agent", line.agent
    return ("side", line.file) if line.is_side else _MAIN_CHAIN


def _causes(base: Sequence[Line], known: dict[str, Line], by_id: dict[str, Call]) -> _Ties:
    ties = _Ties({}, {}, Found())
    latest: dict[_Chain, Line] = {}
    said: dict[ModelCall, Line] = {}
    for line in base:
        if (chain := _chain(line)) is None:
            continue
        cause, rule = _cause(line, chain, known, latest)
        if rule == "missing":
            cause, rule = _bridge(line, latest.get(chain), by_id, said)
            if cause is None:
                report(ties.found, "orphan", line.file, got=f"{line.uuid} follows {line.text('parentUuid')}")
        if cause is not None:
            ties.cause[line.index] = cause
        if cause is not None and rule is not None:
            ties.rules[line.index] = rule
        latest[chain] = line
        if line.call is not None:
            said[line.call] = line
    return ties


def _cause(line: Line, chain: _Chain, known: dict[str, Line], latest: dict[_Chain, Line]) -> tuple[Line | None, str | None]:
    """Return the line that this one says it follows; the rule is `missing` where that one is not there."""
    stated = line.raw.get("parentUuid")
    if stated is not None:
        cause = known.get(stated) if isinstance(stated, str) else None
        return (None, "missing") if cause is None or cause is line else (cause, None)
    before_compaction = known.get(line.text("logicalParentUuid") or "")
    if before_compaction is not None and before_compaction is not line:
        return before_compaction, "logical-parent"
    if chain[0] == "side" and "parentUuid" in line.raw:
        return None, None  # the first line of an old sub-agent
    return latest.get(chain), "nearest-earlier"


def _bridge(line: Line, nearest: Line | None, by_id: dict[str, Call], said: dict[ModelCall, Line]) -> tuple[Line | None, str]:
    """Return what stands in for a line that is not there: the call of a result, the same message, the line before."""
    for block in line.blocks:
        call = by_id.get(name_of(block.get("tool_use_id")) or "")
        if call is not None and call.line is not line:
            return call.line, "call-of-result"
    if line.call is not None and line.call in said:
        return said[line.call], "same-message"
    return nearest, "nearest-earlier"


def _answers(
    base: Sequence[Line], ties: _Ties, *, calls: dict[tuple[int, int], Call], by_id: dict[str, Call], known: dict[str, Line]
) -> dict[tuple[int, int], Call]:
    """Return which call each result answers: by its id, without one the first open call of the line it follows."""
    answers: dict[tuple[int, int], Call] = {}
    waiting: dict[int, deque[Call]] = defaultdict(deque)
    for call in calls.values():
        waiting[call.line.index].append(call)
    for line in base:
        for n, block in enumerate(line.blocks):
            if not is_result(block):
                continue
            call_id = name_of(block.get("tool_use_id"))
            asked = known.get(line.text("sourceToolAssistantUUID") or "") or ties.cause.get(line.index)
            if call_id is None and asked is not None and waiting[asked.index]:
                answers[line.index, n] = waiting[asked.index].popleft()
            elif call_id is not None and call_id in by_id:
                answers[line.index, n] = by_id[call_id]
            else:
                report(ties.found, "orphan", line.file, got=f"result of {call_id}", expected="the call it answers")
                continue
            call = answers[line.index, n]
            if call.result is None:
                call.result, call.result_block = line, block
    return answers


def _chains(base: Sequence[Line], cause: dict[int, Line]) -> dict[int, _Chain]:
    """Return line -> chain. Lines of old sub-agents belong to the one that starts where they lead to, going up."""
    chains: dict[int, _Chain] = {}
    for line in base:
        path: list[Line] = []
        at: Line | None = line
        while at is not None and at.index not in chains and (chain := _chain(at)) is not None:
            if chain[0] != "side":
                if not path:
                    chains[at.index] = chain
                break
            chains[at.index] = ("root", str(at.index))  # stands at the top, and where lines follow each other in a circle
            path.append(at)
            at = cause.get(at.index)
        if path:
            top = chains.get(at.index) if at is not None else None
            root = top if top is not None and top[0] == "root" else ("root", str(path[-1].index))
            chains.update((step.index, root) for step in path)
    return chains


def _name_chains(
    base: Sequence[Line], chains: dict[int, _Chain], *, tasks: list[Call], metas: dict[str, dict[str, Any]]
) -> dict[_Chain, str]:
    """Return chain -> agent id, and tie each sub-agent to the calls that started it.

    In this order: the id of the sub-agent in the result, beside its lines, or in a progress line; the same prompt; the only
    call of its type that nothing else fits. A call that failed before anything was done started nobody.
    """
    firsts: dict[_Chain, Line] = {}
    for line in base:
        if line.index in chains and line.is_said:
            firsts.setdefault(chains[line.index], line)
    _tie_stated(base, tasks, metas)
    names = {chain: _own_name(chain, firsts.get(chain)) for chain in dict.fromkeys(chains.values())}
    _tie_by_prompt(firsts, names, chains=chains, tasks=tasks)
    _tie_by_type(base, {index: names[chain] for index, chain in chains.items()}, tasks=tasks, metas=metas)
    for call in tasks:
        is_refused = call.result_block.get("is_error") is True and INTERRUPT not in str(call.result_block.get("content"))
        if call.agent is None and not is_refused:
            call.agent = _sub_name(call.call_id)
    return names


def _own_name(chain: _Chain, first: Line | None) -> str:
    kind, name = chain
    if kind == "main":
        return MAIN
    return _sub_name((first.uuid if kind == "root" and first is not None else None) or name)


def _sub_name(name: str) -> str:
    return f"agent-{MAIN}" if name == MAIN else name


def _tie_stated(base: Sequence[Line], tasks: list[Call], metas: dict[str, dict[str, Any]]) -> None:
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
    firsts: dict[_Chain, Line], names: dict[_Chain, str], *, chains: dict[int, _Chain], tasks: list[Call]
) -> None:
    """Tie sub-agents whose first text is the prompt of a call; of equal ones the earlier to the earlier."""
    with_lines = {name for chain, name in names.items() if chain[0] == "agent"}
    free: dict[str, deque[Call]] = defaultdict(deque)
    for call in tasks:
        if call.agent not in with_lines and isinstance(prompt := call.input.get("prompt"), str):
            free[prompt.strip()].append(call)
    tied = {call.agent for call in tasks}
    for chain, first in firsts.items():
        queue = free.get((words(first) or "").strip())
        if chain[0] == "main" or names[chain] in tied or not queue or chains[queue[0].line.index] == chain:
            continue
        call = queue.popleft()
        if chain[0] == "agent":
            call.agent = names[chain]
        else:
            names[chain] = call.agent = call.agent or _sub_name(call.call_id)
        call.rule = "equal-prompt"


def _tie_by_type(base: Sequence[Line], owner: dict[int, str], *, tasks: list[Call], metas: dict[str, dict[str, Any]]) -> None:
    tied = {MAIN, *(call.agent for call in tasks)}
    types: dict[str, str] = {}
    for line in base:
        name = owner.get(line.index)
        if name is None or name in tied:
            continue
        role = name_of(metas.get(name, {}).get("agentType")) or name_of(line.raw.get("attributionAgent"))
        if role is not None:
            types.setdefault(name, role)
    agents, calls = defaultdict[str, list[str]](list), defaultdict[Any, list[Call]](list)
    for name, role in types.items():
        agents[role].append(name)
    for call in tasks:
        if call.agent is None:
            calls[name_of(call.input.get("subagent_type"))].append(call)
    for role, names in agents.items():
        if len(names) == len(calls[role]) == 1:
            calls[role][0].agent, calls[role][0].rule = names[0], "only-one-of-its-type"


def _start_chains(base: Sequence[Line], owner: dict[int, str], starts: dict[str, Call], ties: _Ties) -> None:
    """Let the lines that begin a sub-agent follow the call that started it."""
    for line in base:
        name = owner.get(line.index)
        if name is None or name not in starts:
            continue
        cause = ties.cause.get(line.index)
        if cause is None or owner.get(cause.index) != name:
            ties.cause[line.index] = starts[name].line
            ties.rules.pop(line.index, None)


def _ordered(base: Sequence[Line], ties: _Ties) -> list[Line]:
    """Return the lines by time, but each after the line it follows; a line that follows itself that way loses its cause."""
    done: set[int] = set()
    order: list[Line] = []
    for line in base:
        path: list[Line] = []
        at: Line | None = line
        while at is not None and at.index not in done:
            done.add(at.index)
            path.append(at)
            at = ties.cause.get(at.index)
        order += reversed(path)
    position = {line.index: n for n, line in enumerate(order)}
    for line in order:
        cause = ties.cause.get(line.index)
        if cause is not None and position[cause.index] > position[line.index]:
            del ties.cause[line.index]
            report(ties.found, "orphan", line.file, got=f"{line.uuid} follows itself")
    return order


def _agents(
    order: Sequence[Line],
    owner: dict[int, str],
    *,
    calls: dict[tuple[int, int], Call],
    starts: dict[str, Call],
    metas: dict[str, dict[str, Any]],
) -> dict[str, SubAgent]:
    """Return all agents in the order in which they come up."""
    agents: dict[str, SubAgent] = {}
    roles: dict[str, str] = {}
    models: dict[str, set[str]] = defaultdict(set)
    for line in order:
        names = [owner.get(line.index), *(calls[line.index, n].agent for n in range(len(line.blocks)) if (line.index, n) in calls)]
        agents.update((name, SubAgent(MAIN)) for name in names if name is not None and name not in agents)
        if (name := owner.get(line.index)) is not None:
            roles.setdefault(name, line.text("attributionAgent") or "")
            models[name].update(filter(None, [name_of(line.message.get("model"))]))
    for name, agent in agents.items():
        if len(used := models[name] - {SYNTHETIC}) == 1:
            agent.model = used.pop()
        if name == MAIN:
            continue
        meta, start = metas.get(name, {}), starts.get(name)
        stated = [start.input.get("subagent_type"), start.returned.get("agentType")] if start else []
        agent.component = next(filter(None, map(name_of, [*stated, meta.get("agentType"), roles.get(name)])), _UNTYPED)
        agent.parent = owner.get(start.line.index) if start else None
        agent.extra = {"description": start.input.get("description"), "found_by": start.rule} if start else {}
        agent.extra["beside_lines"] = meta or None
    _set_levels(agents)
    return agents


def _set_levels(agents: dict[str, SubAgent]) -> None:
    """Count levels from the main agent down; of agents that started each other in a circle, one loses its parent."""
    level: dict[str, int | None] = {}
    for name in agents:
        path: list[str] = []
        at: str | None = name
        while at is not None and at not in level:
            level[at] = None
            path.append(at)
            at = agents[at].parent
        if at in path:
            agents[at].parent = None
        above = None if at is None else level[at]
        for step in reversed(path):
            above = 0 if step == MAIN else None if above is None else above + 1
            level[step] = above
            agents[step].extra["level"] = above
