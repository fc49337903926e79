"""The iterations of a MARBLE run, in all their dialects, as events and claims.

Decides who assigned, who answered and what caused what; hides the shapes of the dialects and how the text of a dialogue
is cut into messages. The part of the harness that assigns, merges and stops has no name in the records: here it is
`EnginePlanner`, as in MARBLE's own code. An iteration is laid out as its fields imply: assignments, each agent's
dialogues before its result, the summary of all results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from analysis.model import Claim, Event

PLANNER = "EnginePlanner"

_MAX_NAME = 512
_ROOT = "root_agent"  # in early tree records also the key of the root's result
_HEADER = re.compile(r"In Session ([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\s*")

Name = Annotated[str, Meta(min_length=1, max_length=_MAX_NAME)]
_Texts = dict[Name, Any]  # agent -> what it is told, or what it answered


class Iteration(msgspec.Struct, frozen=True):
    """One round of any dialect; `root_agent` marks a tree, `current_agent` a link of a chain."""

    task_assignments: _Texts | list[_Texts] | None = None
    task_results: _Texts | list[_Texts] | None = None
    communications: str | list[Any] | None = None
    summary: Any = None
    continue_simulation: bool | None = None
    root_agent: Name | None = None
    current_agent: Name | None = None
    result: Any = None


class _Round(NamedTuple):
    """Iteration `n`, counted from 0; `heard` is what it acts on, `asked` grows: agent -> its latest assignment."""

    n: int
    iteration: Iteration
    heard: tuple[str, ...]
    asked: dict[str, str]


class _Assignment(NamedTuple):
    """What one agent is told by `sender`; `rule` says how the sender was found where the record does not imply it."""

    agent: str
    text: str | None
    sender: str | None
    field: str
    rule: str | None = None


class _Session(NamedTuple):
    """A dialogue: its messages as (sender, receiver, lines), and the lines before the first of them."""

    session_id: str | None
    field: str
    messages: list[tuple[str, str, list[str]]]
    preamble: list[str]


def dialect(iterations: Sequence[Iteration], *, task: str) -> str | None:
    """Return which loop of the engine wrote the run: tree, chain, graph or star; None without iterations.

    A graph hands out the task as it is and lets each agent plan from there; a star's planner assigns in its own words.
    Early records differ from these in the shape of `task_results` alone.
    """
    if not iterations:
        return None
    if any(iteration.root_agent for iteration in iterations):
        return "tree"
    if any(iteration.current_agent for iteration in iterations):
        return "chain"
    first = iterations[0].task_assignments
    return "graph" if isinstance(first, dict) and first and all(text == task for text in first.values()) else "star"


def events(iterations: Sequence[Iteration], *, task: str, limit: int | None) -> Iterator[Event]:
    """Yield the events of a run in their order; turn n is the n-th iteration, from 1.

    Parameters
    ----------
    iterations : as they stand in the record
    task : the text of the task; an assignment in the same words refers to it and has no text of its own
    limit : how many iterations were allowed, if that is known
    """
    kind = dialect(iterations, task=task)
    spawned: set[str] = set()
    heard: tuple[str, ...] = ()
    for n, iteration in enumerate(iterations):
        now = _Round(n, iteration, heard, {})
        made: list[Event] = []
        for k, order in enumerate(_assignments(now, kind, before=iterations[n - 1] if n else None, task=task)):
            made += _handed_out(now, order, event_id=f"i{n}.d{k}", spawned=spawned, task=task)
        made += _answers(now)
        results = tuple(event.event_id for event in made if event.message_type == "result")
        acts_on = results or (*now.asked.values(),) or heard
        if (summary := _text(iteration.summary)) and summary.strip():
            made.append(_merge(now, summary, parents=acts_on, results=results))
            acts_on = (summary_id(n),)
        yield from (msgspec.structs.replace(event, turn=n + 1) for event in made)
        heard = acts_on[-1:]
    if iterations:
        yield _stop(iterations, heard, None if kind == "chain" else limit)  # a chain may be longer, by as much as it has agents


def claims(iterations: Sequence[Iteration]) -> Iterator[Claim]:
    """Yield the planner's verdict after each iteration, whether the run has to go on, as a claim with p 0 or 1.

    In minecraft runs the engine takes it from the measured blocks, so there it agrees with the score by construction.
    """
    for n, iteration in enumerate(iterations):
        if iteration.continue_simulation is None:
            continue
        ends_here = n == len(iterations) - 1 and not iteration.continue_simulation
        yield Claim(
            claim_id=f"i{n}.continue_simulation",
            component=PLANNER,
            proposition="continue_needed",
            p=float(iteration.continue_simulation),
            event_id="stop" if ends_here else None,
            turn=n + 1,
            kind="verdict",
        )


def summary_id(n: int) -> str:
    """Return the id of the event that carries the summary of iteration `n`, counted from 0."""
    return f"i{n}.summary"


def _is_pair(entry: _Texts) -> bool:
    return entry.keys() == {"agent_id", "result"}


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _assignments(now: _Round, kind: str | None, *, before: Iteration | None, task: str) -> Iterator[_Assignment]:
    """Yield who is told what, by whom.

    The loops of MARBLE's engine decide who assigns: the planner; in a tree the root to its children (who plans for deeper
    levels is not recorded); in a chain the agent before; in a graph, after the task was handed out, each agent for itself.
    """
    iteration, given = now.iteration, now.iteration.task_assignments or {}
    senders: list[tuple[str | None, str | None]] = [(PLANNER, None)]
    if iteration.root_agent is not None:
        yield _Assignment(iteration.root_agent, task, PLANNER, _ROOT, "root-agent")
        senders = [(iteration.root_agent, None), (None, None)]
    elif kind == "chain" and before is not None:
        senders = [(before.current_agent, "chain-hands-on")]
    for level, plan in enumerate([given] if isinstance(given, dict) else given):
        field = "task_assignments" if isinstance(given, dict) else f"task_assignments[{level}]"
        sender, rule = senders[min(level, len(senders) - 1)]
        for agent, text in plan.items():
            if kind == "graph" and before is not None:
                sender, rule = agent, "graph-agent-plans-itself"
            yield _Assignment(agent, _text(text), sender, f"{field}.{agent}", rule)


def _handed_out(now: _Round, order: _Assignment, *, event_id: str, spawned: set[str], task: str) -> Iterator[Event]:
    """Yield an assignment, and before it the spawn of an agent that was not there yet; a field of the first round states it."""
    parents = (now.asked[order.sender],) if order.sender in now.asked else now.heard
    given: dict[str, Any] = {"targets": (order.agent,), "raw_id": f"iterations[{now.n}].{order.field}"}
    if order.agent not in spawned:
        spawned.add(order.agent)
        rule = order.rule if order.field == _ROOT else "first-assignment" if now.n else None
        spawner = None if order.sender == order.agent else order.sender
        yield Event(event_id=f"{event_id}.spawn", kind="spawn", agent_id=spawner, parents=parents, **_known_by(rule), **given)
        parents += (f"{event_id}.spawn",)
    now.asked[order.agent] = event_id
    text: dict[str, Any] = {"extra": {"content_from": "task.text"}} if order.text == task else {"content": order.text}
    known_by = _known_by(order.rule)
    yield Event(event_id=event_id, kind="delegate", agent_id=order.sender, parents=parents, **known_by, **text, **given)


def _known_by(rule: str | None) -> dict[str, Any]:
    return {"basis": "derived", "rule": rule} if rule else {}


def _answers(now: _Round) -> Iterator[Event]:
    """Yield each agent's dialogues and then its result: an agent talks while it works, and opens its own dialogues."""
    opened: dict[str | None, list[list[Event]]] = {}
    for s, session in enumerate(_sessions(now.iteration.communications)):
        if talk := list(_messages(now, session, prefix=f"i{now.n}.c{s}")):
            opened.setdefault(session.messages[0][0] if session.messages else None, []).append(talk)
    root = now.iteration.root_agent
    answered: list[str] = []  # by a tree's other agents; its root answers last, and on these
    for k, (agent, result, field) in enumerate(_results(now.iteration)):
        talks = opened.pop(agent, [])
        yield from (event for talk in talks for event in talk)
        is_root = root is not None and agent == root
        heard = [*([now.asked[agent]] if agent in now.asked else []), *(talk[-1].event_id for talk in talks)]
        yield Event(
            event_id=f"i{now.n}.r{k}",
            kind="communicate",
            agent_id=agent,
            targets=(PLANNER if root is None or is_root else root,),
            parents=(*heard, *(answered if is_root else ())) or now.heard,
            content=_text(result),
            message_type="result",
            raw_id=f"iterations[{now.n}].{field}",
        )
        if is_root:
            answered.clear()
        answered.append(f"i{now.n}.r{k}")
    yield from (event for talks in opened.values() for talk in talks for event in talk)


def _results(iteration: Iteration) -> list[tuple[str | None, Any, str]]:
    """Return who answered what, and where it stands; the root of a tree comes last."""
    given = iteration.task_results or []
    found: list[tuple[str | None, Any, str]] = []
    for k, entry in enumerate([given] if isinstance(given, dict) else given):
        field = "task_results" if isinstance(given, dict) else f"task_results[{k}]"
        if _is_pair(entry):
            if not isinstance(entry["agent_id"], str) or not 0 < len(entry["agent_id"]) <= _MAX_NAME:
                raise ValueError(f"`{field}.agent_id` is no name")
            found.append((entry["agent_id"], entry["result"], field))
            continue
        found += [(iteration.root_agent or a if a == _ROOT else a, result, f"{field}.{a}") for a, result in entry.items()]
    if iteration.result is not None and iteration.result not in [result for _, result, _ in found]:
        found.append((iteration.current_agent or iteration.root_agent, iteration.result, "result"))
    return sorted(found, key=lambda answer: answer[0] is not None and answer[0] == iteration.root_agent)


def _sessions(communications: str | list[Any] | None) -> Iterator[_Session]:
    """Yield the dialogues; some dialects join the texts of several into one."""
    texts = [communications] if isinstance(communications, str) else communications or []
    for k, text in enumerate(texts):
        yield from _cut(_text(text) or "", "communications" if isinstance(communications, str) else f"communications[{k}]")


def _cut(text: str, field: str) -> list[_Session]:
    """Return the sessions of a text. One is between the two whom its first message names; other `From … to …` lines are text."""
    found: list[_Session] = []
    for line in text.split("\n"):
        header = _HEADER.fullmatch(line)
        if header is not None or not found:
            found.append(_Session(header[1] if header else None, field, [], []))
            if header is not None:
                continue
        session = found[-1]
        said = _message(line)
        if said is not None and (not session.messages or {*said[:2]} <= {*session.messages[0][:2]}):
            session.messages.append((said[0], said[1], [said[2]]))
        else:
            (session.messages[-1][2] if session.messages else session.preamble).append(line)
    return found


def _message(line: str) -> tuple[str, str, str] | None:
    """Return sender, receiver and text of a line that opens a message.

    >>> _message("From agent1 to agent2: hello: you")
    ('agent1', 'agent2', 'hello: you')
    """
    if not line.startswith("From "):
        return None
    head, colon, text = line.partition(":")
    sender, to, receiver = head.removeprefix("From ").partition(" to ")
    is_named = colon and to and 0 < len(sender) <= _MAX_NAME and 0 < len(receiver) <= _MAX_NAME
    return (sender, receiver, text.removeprefix(" ")) if is_named else None


def _messages(now: _Round, session: _Session, *, prefix: str) -> Iterator[Event]:
    """Yield a dialogue message by message, each caused by the one before; text that nobody is named for stays opaque."""
    opener = session.messages[0][0] if session.messages else None
    parents = (now.asked[opener],) if opener in now.asked else now.heard
    given: dict[str, Any] = {"raw_id": f"iterations[{now.n}].{session.field}", "raw_type": "session"}
    given["extra"] = {"session": session.session_id} if session.session_id else {}
    if (text := "\n".join(session.preamble)).strip():
        yield Event(event_id=f"{prefix}.preamble", parents=parents, content=text, **given)
    for k, (sender, receiver, lines) in enumerate(session.messages):
        said: dict[str, Any] = {"agent_id": sender, "targets": (receiver,), "content": "\n".join(lines), "parents": parents}
        said |= {"message_type": "dialogue", **_known_by("session-line")}
        yield Event(event_id=f"{prefix}.m{k}", kind="communicate", **said, **given)
        parents = (f"{prefix}.m{k}",)


def _merge(now: _Round, summary: str, *, parents: tuple[str, ...], results: tuple[str, ...]) -> Event:
    return Event(
        event_id=summary_id(now.n),
        kind="aggregate",
        agent_id=PLANNER,
        parents=parents,
        content=summary,
        merge_points=results,
        raw_id=f"iterations[{now.n}].summary",
    )


def _stop(iterations: Sequence[Iteration], heard: tuple[str, ...], limit: int | None) -> Event:
    """Return the end of the run. A `false` before the last iteration was overruled by the engine: a verdict, but no stop.

    An iteration limit is nobody's decision, and why a run ended without either is not recorded.
    """
    n = len(iterations)
    end = Event(event_id="stop", kind="stop", parents=heard, turn=n)
    if iterations[-1].continue_simulation is False:
        field = f"iterations[{n - 1}].continue_simulation"
        return msgspec.structs.replace(end, agent_id=PLANNER, condition="continue_simulation is false", raw_id=field)
    if limit is not None and n >= limit:
        return msgspec.structs.replace(end, condition=f"iteration limit {limit}", basis="derived", rule="iteration-limit")
    return msgspec.structs.replace(end, basis="derived", rule="last-iteration")
