"""The events of a session: its lines are carried by events, and markers without text state the decisions between them.

A call of the Task or Agent tool is two events: a spawn, once a sub-agent, which is a marker, and a delegation with the
prompt. Hidden here: what a model call has heard, when results are merged, and how an agent ended.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import msgspec

from analysis.model import Event
from analysis.readers.claude_code.calls import INTERRUPT, Call
from analysis.readers.claude_code.contents import Block, blocks_of, is_result, is_use, mapping, name_of, plain, words
from analysis.readers.claude_code.lines import STATES, Line, ModelCall
from analysis.readers.claude_code.session import SYNTHETIC, Message, Session
from analysis.readers.fragment import hash_of

_NOTED = {"attachment": "attachment", "progress": "data"}  # the field that says what is noted
_LOCAL = ("<local-command-", "<bash-")  # what a command of the program printed; no model is asked
_EXIT = re.compile(r"<command-name>/?(exit|quit)<")
_NOTIFICATION = "<task-notification>"
_NOTIFIED = re.compile(r"<(task-id|tool-use-id)>([^<]{1,200})<")
_RETURNED = ("status", "totalTokens", "totalDurationMs", "totalToolUseCount", "usage")
_HEAD = 200  # characters of a text that serve as an error or a condition


@dataclass
class _Told:
    """What has been told so far; `events` are the fields of each."""

    run: Session
    events: list[dict[str, Any]] = field(default_factory=list)
    ids: Counter[str] = field(default_factory=Counter)
    said: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))  # line -> events that may be followed
    above: dict[int, Line] = field(default_factory=dict)  # line -> the nearest one it follows that is no note
    heard: set[int] = field(default_factory=set)  # lines that a model call has heard
    models: dict[ModelCall, str] = field(default_factory=dict)  # model call -> its event
    calls: dict[str, str] = field(default_factory=dict)  # tool call -> its event
    turns: Counter[str | None] = field(default_factory=Counter)
    started: set[str] = field(default_factory=set)
    asked: dict[str | None, list[str]] = field(default_factory=dict)  # sub-agent -> delegations that it has not read
    open: defaultdict[str | None, set[str]] = field(default_factory=lambda: defaultdict(set))  # agent -> who works for it
    merging: dict[str | None, list[str]] = field(default_factory=dict)  # agent -> results that it has not merged
    returned: dict[str, str] = field(default_factory=dict)  # sub-agent -> how its call ended
    last: dict[str, tuple[int, str, Line]] = field(default_factory=dict)  # agent -> where it is told last


def tell(run: Session) -> list[Event]:
    """Return the events in their order."""
    told = _Told(run)
    for line in run.order:
        cause = run.cause.get(line.index)
        above = cause if cause is None or cause.is_said else told.above.get(cause.index)
        if above is not None:
            told.above[line.index] = above
        if not line.is_said:
            _tell_note(told, line)
            continue
        if line.type == "assistant":
            _tell_assistant(told, line)
        else:
            _tell_user(told, line)
        if (owner := run.owner.get(line.index)) is not None:
            told.last[owner] = len(told.events), told.said[line.index][-1], line
    return [Event(order=order, **fields) for order, fields in enumerate(_with_stops(told))]


def _add(told: _Told, line: Line, event_id: str, *, is_followed: bool = True, **fields: Any) -> str:
    """Tell one event of a line and return its id, numbered where the file has it twice."""
    event_id = _unique(told, event_id)
    owner = told.run.owner.get(line.index)
    stated = {"agent_id": owner, "t_start_s": line.time_s, "raw_id": line.uuid, "raw_type": line.type} | fields
    stated["turn"] = told.turns[stated["agent_id"]] if stated["agent_id"] else None
    stated["extra"] = {name: value for name, value in fields.get("extra", {}).items() if value is not None}
    told.events.append({"event_id": event_id, **stated})
    if is_followed:
        told.said[line.index].append(event_id)
    return event_id


def _unique(told: _Told, wish: str) -> str:
    event_id = wish
    while event_id in told.ids:
        told.ids[wish] += 1
        event_id = f"{wish}~{told.ids[wish]}"
    told.ids[event_id] = 1
    return event_id


def _id(line: Line, n: int = 0) -> str:
    name = line.uuid or f"line-{hash_of(msgspec.json.encode(line.raw, order='deterministic'))}"
    return f"{name}.{n}" if n else name


def _before(told: _Told, line: Line) -> tuple[str, ...]:
    """Return the event that a line follows: notes in between are passed over, unless there is nothing above them."""
    at = told.above.get(line.index) or told.run.cause.get(line.index)
    return () if at is None else tuple(told.said[at.index][-1:])


def _parent_rule(told: _Told, line: Line) -> str | None:
    """Return how the parents were found, where the line does not state them."""
    above, cause = told.above.get(line.index), told.run.cause.get(line.index)
    return told.run.rules.get(line.index) or ("over-notes" if above is not None and above is not cause else None)


def _heard(told: _Told, line: Line) -> tuple[str, ...]:
    """Return all that was said to an agent since its last model call, results that came together included."""
    found: list[str] = []
    at = told.above.get(line.index)
    while at is not None and at.type == "user" and at.index not in told.heard:
        told.heard.add(at.index)
        found += reversed(told.said[at.index])
        at = told.above.get(at.index)
    return tuple(reversed(found)) or _before(told, line)


def _tell_assistant(told: _Told, line: Line) -> None:
    call = line.call or ("", "")
    message = told.run.messages[call]
    if not message.is_synthetic and call not in told.models:
        told.models[call] = _tell_model_call(told, line, message)
    parents = (told.models[call],) if call in told.models else _before(told, line)
    for n in range(len(line.blocks)):
        if message.is_synthetic or line is not message.text_line or n != message.text_n:
            _tell_block(told, line, n, parents)
    if not told.said[line.index]:  # what it says is told by the model call, or it says nothing
        told.said[line.index] += parents or (_add(told, line, _id(line), is_followed=False, kind="act", action="note"),)


def _tell_model_call(told: _Told, line: Line, message: Message) -> str:
    """Tell a model call with its first text and with its tokens; its other blocks are events of their own, without tokens.

    Its lines are written as its blocks are complete. So it had begun before the first, and lasted at least to the last.
    """
    owner, heard = told.run.owner.get(line.index), _heard(told, line)
    told.turns[owner] += 1
    text_line = message.text_line or line
    event_id = _id(text_line, message.text_n) if message.text_line else f"{_id(line)}.call"
    if message.text_line is not None and told.merging.get(owner) and not told.open[owner]:
        heard += (_tell_merge(told, line, f"{event_id}.aggregate", tuple(told.merging.pop(owner))),)
    tokens = dict(message.tokens)
    end_s = message.end_s if message.end_s is not None and line.time_s is not None and message.end_s > line.time_s else None
    extra = {
        "message_id": name_of(line.message.get("id")),
        "request_id": line.call[1] if line.call and line.call[1] else None,
        "stop_reason": message.stop_reason,
        "parent_rule": _parent_rule(told, line),
        "t_end_rule": None if end_s is None else "last-line-of-message",
    }
    return _add(
        told,
        line,
        event_id,
        kind="act",
        action="model_call",
        name=name_of(line.message.get("model")),
        parents=heard,
        t_end_s=end_s,
        input_tokens=tokens.pop("input_tokens", None),
        output_tokens=tokens.pop("output_tokens", None),
        content=_text(text_line.blocks[message.text_n], "text") if message.text_line else None,
        raw_id=text_line.uuid,
        extra=extra | tokens,
    )


def _tell_merge(told: _Told, line: Line, event_id: str, points: tuple[str, ...]) -> str:
    """Tell that an agent merges what came back: it speaks for the first time since nobody works for it any more."""
    basis: dict[str, Any] = {"basis": "derived", "rule": "first-text-after-results", "raw_id": None, "raw_type": None}
    return _add(told, line, event_id, is_followed=False, kind="aggregate", parents=points, merge_points=points, **basis)


def _tell_block(told: _Told, line: Line, n: int, parents: tuple[str, ...]) -> None:
    block = line.blocks[n]
    kind = str(block.get("type"))
    fields: dict[str, Any] = {"parents": parents, "raw_type": f"{line.type}/{kind}"}
    if is_use(block):
        _tell_call(told, line, n, parents)
        return
    if is_result(block):
        _tell_result(told, line, n)
        return
    if kind in ("thinking", "redacted_thinking"):
        fields |= {"action": "note", "name": "thinking", "content": _text(block, "thinking"), "is_followed": False}
    elif kind == "text":
        is_synthetic = line.message.get("model") == SYNTHETIC
        fields |= {"action": "note", "name": SYNTHETIC if is_synthetic else "text", "content": _text(block, "text")}
        fields["error"] = _head(fields["content"]) if line.raw.get("isApiErrorMessage") is True else None
    else:
        fields["content"] = plain(block)
    _add(told, line, _id(line, n), kind="act" if "action" in fields else None, **fields)


def _tell_call(told: _Told, line: Line, n: int, parents: tuple[str, ...]) -> None:
    call = told.run.calls[line.index, n]
    fields: dict[str, Any] = {"name": call.name, "raw_type": f"{line.type}/{call.block['type']}"}
    fields["raw_id"] = name_of(call.block.get("id")) or line.uuid
    if call.agent is not None:
        event_id = _tell_delegation(told, line, _id(line, n), call=call, parents=parents, fields=fields)
    else:
        end_s = call.result.time_s if call.result is not None else None
        if end_s is not None and line.time_s is not None and end_s >= line.time_s:
            fields |= {"t_end_s": end_s, "extra": {"t_end_rule": "line-of-result"}}
        content = plain(call.block.get("input"))
        event_id = _add(told, line, _id(line, n), kind="act", action="tool_call", parents=parents, content=content, **fields)
    told.calls.setdefault(call.call_id, event_id)


def _tell_delegation(
    told: _Told, line: Line, event_id: str, *, call: Call, parents: tuple[str, ...], fields: dict[str, Any]
) -> str:
    """Tell who is started, unless it is there already, and what it is asked; the call states both."""
    agent, prompt, owner = str(call.agent), call.input.get("prompt"), told.run.owner.get(line.index)
    about = description if isinstance(description := call.input.get("description"), str) else None
    if agent not in told.started:
        told.started.add(agent)
        share = {agent: about} if about is not None else {}
        spawn = {"kind": "spawn", "targets": (agent,), "task_split": about, "assignment": share, **fields}
        parents = (_add(told, line, f"{event_id}.spawn", parents=parents, is_followed=False, **spawn),)
    is_told = isinstance(prompt, str)
    rest = {name: value for name, value in call.input.items() if name != "prompt"} if is_told else {}
    event_id = _add(
        told,
        line,
        event_id,
        kind="delegate",
        targets=(agent,),
        parents=parents,
        content=prompt if is_told else plain(call.block.get("input")),
        **fields,
        extra={"input": rest or None},
    )
    told.asked.setdefault(agent, []).append(event_id)
    told.open[owner].add(agent)
    return event_id


def _tell_result(told: _Told, line: Line, n: int) -> None:
    block, call = line.blocks[n], told.run.answers.get((line.index, n))
    text, others = words(blocks_of(block.get("content")))
    fields: dict[str, Any] = {
        "content": text,
        "error": (_head(text) or "error") if block.get("is_error") is True else None,
        "raw_type": f"{line.type}/{block['type']}",
    }
    extra: dict[str, Any] = {"blocks": others or None}
    if call is not None and call.agent is not None and not call.is_launch:
        extra |= {name: call.returned.get(name) for name in _RETURNED}
        _tell_message(told, line, _id(line, n), sender=call.agent, asked=told.calls.get(call.call_id), extra=extra, **fields)
        return
    asked = told.calls.get(call.call_id) if call is not None else None
    parents = (asked,) if asked is not None else _before(told, line)
    name = call.name if call is not None else None
    _add(told, line, _id(line, n), kind="act", action="tool_result", name=name, parents=parents, extra=extra, **fields)


def _tell_message(told: _Told, line: Line, event_id: str, *, sender: str, asked: str | None, **fields: Any) -> None:
    """Tell what a sub-agent sends to the agent of this line: its result, or the notification of it."""
    receiver = told.run.owner.get(line.index)
    before = told.last[sender][1] if sender in told.last else asked
    event_id = _add(
        told,
        line,
        event_id,
        **{"message_type": "result", **fields},
        kind="communicate",
        agent_id=sender,
        targets=(receiver,) if receiver is not None else (),
        parents=(before,) if before is not None else (),
    )
    told.open[receiver].discard(sender)
    text, is_error = fields["content"] or "", fields.get("error") is not None
    told.returned[sender] = text[:_HEAD] if text.startswith(INTERRUPT) else "failed" if is_error else "completed"
    if not is_error:
        told.merging.setdefault(receiver, []).append(event_id)


def _tell_user(told: _Told, line: Line) -> None:
    for n, block in enumerate(line.blocks):
        if is_result(block):
            _tell_result(told, line, n)
    rest = [block for block in line.blocks if not is_result(block)]
    if rest or not line.blocks:
        _tell_input(told, line, rest, _id(line, len(line.blocks) - len(rest)))


def _tell_input(told: _Told, line: Line, blocks: list[Block], event_id: str) -> None:
    """Tell what came to an agent from outside, or from the program in the user's name."""
    text, others = words(blocks)
    start = text or ""
    if start.startswith(_NOTIFICATION):
        said = dict(_NOTIFIED.findall(start[:2000]))
        call = told.run.by_id.get(said.get("tool-use-id", ""))
        sender = call.agent if call is not None else said.get("task-id")
        if sender is not None and sender in told.run.agents:
            asked = told.calls.get(call.call_id) if call is not None else None
            _tell_message(told, line, event_id, sender=sender, asked=asked, message_type="notification", content=text)
            return
    parents = tuple(told.asked.pop(told.run.owner.get(line.index), ())) or _before(told, line)
    marks = {"compact-summary": line.raw.get("isCompactSummary") is True, "meta": line.raw.get("isMeta") is True}
    marks |= {"local-command": start.startswith(_LOCAL), "task-notification": start.startswith(_NOTIFICATION)}
    note = next((name for name, is_so in marks.items() if is_so), None)
    extra = {"blocks": others or None, "parent_rule": _parent_rule(told, line)}
    action = "input" if note is None else "note"
    _add(told, line, event_id, kind="act", action=action, name=note, parents=parents, content=text, extra=extra)


def _tell_note(told: _Told, line: Line) -> None:
    """Tell a line that nobody says; of a kind that is not known here, it stays opaque."""
    noted = mapping(line.raw.get(_NOTED.get(line.type, "")))
    name = name_of(noted.get("type")) if noted else line.text("subtype")
    text = line.text("summary") if line.type == "summary" else line.text("content") if line.type == "system" else None
    is_known = line.type in STATES or line.type in _NOTED or line.type == "system"
    is_error = line.type == "system" and ("error" in (name or "") or line.raw.get("level") == "error")
    _add(
        told,
        line,
        _id(line),
        kind="act" if is_known else None,
        action="note" if is_known else None,
        name=name,
        parents=_before(told, line),
        content=text or plain(noted or line.payload),
        error=name if is_error else None,
        raw_type=f"{line.type}/{name}" if name else line.type,
        extra={"parent_rule": _parent_rule(told, line)},
    )


def _with_stops(told: _Told) -> list[dict[str, Any]]:
    """Return the events with the end of each agent behind the last of them that it had a part in."""
    ends = sorted((at, agent, event_id, line) for agent, (at, event_id, line) in told.last.items())
    events: list[dict[str, Any]] = []
    done = 0
    for at, agent, event_id, line in ends:
        events += told.events[done:at]
        done = at
        stop = {"event_id": _unique(told, f"{event_id}.stop"), "kind": "stop", "agent_id": agent, "parents": (event_id,)}
        events.append({**stop, "turn": told.turns[agent], "t_start_s": line.time_s, **_ending(told, agent, line)})
    return events + told.events[done:]


def _ending(told: _Told, agent: str, line: Line) -> dict[str, Any]:
    """Return how an agent ended: as its last line states, else by what came back from it, else it was cut off."""
    results = (words(blocks_of(block.get("content")))[0] for block in line.blocks if is_result(block))
    texts = [text for text in (words(line.blocks)[0], *results) if text is not None and line.type == "user"]
    if (cut := next((text for text in texts if text.startswith(INTERRUPT)), None)) is not None:
        return {"condition": _head(cut)}
    if (left := next(filter(None, (_EXIT.search(text[:2000]) for text in texts)), None)) is not None:
        return {"condition": left[1]}
    message = told.run.messages.get(line.call) if line.call is not None else None
    if message is not None and message.stop_reason not in (None, "tool_use"):
        return {"condition": message.stop_reason}
    if message is not None and not message.has_calls:
        return {"basis": "derived", "rule": "answer-without-call"}
    if agent in told.returned:
        return {"condition": told.returned[agent], "basis": "derived", "rule": "result-came-back"}
    return {"condition": "killed", "basis": "derived", "rule": "open-end"}


def _text(block: Block, name: str) -> str | None:
    return text if isinstance(text := block.get(name), str) else None


def _head(text: str | None) -> str | None:
    return text.partition("\n")[0][:_HEAD] if text is not None else None
