"""Who&When runs in their two dialects, and the AgentRx copies and annotations of the same runs.

Every entry of a history is one event with its text; spawns, merges and stops that no entry states by itself are
markers without text. Hidden here: how four kinds of file join in one trace, and the annotators' spellings and step bases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from analysis.errors import Problem
from analysis.model import Agent, Count, Event, Groups, Label, Outcome, Task, Trace
from analysis.model import Source as Origin
from analysis.readers import ledger
from analysis.readers.fragment import Assembled, Fragment, Kind, fragment, hash_of, is_too_deep
from analysis.readers.ledger import Entry, event_of
from analysis.readers.source import Row, Source

FORMAT = "whowhen"
VERSION = "1"
KINDS = (
    Kind("whowhen-algorithm", "`question_ID`, `is_correct` or `system_prompt`, and a `history` whose speakers stand in `name`"),
    Kind("whowhen-hand", "`question_ID`, `is_corrected`, and a `history` with roles like `Orchestrator (thought)`"),
    Kind("agentrx-history", "one list of {content, role} with roles like `Orchestrator (thought)`"),
    Kind("agentrx-annotation", "`trajectory_id` as text, `failures`, `root_cause` and `failure_summary`"),
)

_ALGORITHM, _HAND = f"{FORMAT}:algo-", f"{FORMAT}:hand-"
# The ids of GAIA and of AssistantBench; any other file name says nothing about the question.
_QUESTION_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{64}")
_TERMINAL = "Computer_terminal"
_MANAGER = "You are given: (1) a task and advises from your manager"
_MAX_BROADCAST = 100  # members; to list each receiver of each message of more would cost quadratic space

_Name = Annotated[str, Meta(min_length=1, max_length=256)]


class _Run(msgspec.Struct):
    history: list[Entry]


class _Bare(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    role: _Name
    content: str | None = None


class _Question(msgspec.Struct):
    question_ID: _Name
    question: str | None = None
    ground_truth: str | int | float | None = None
    is_correct: bool | None = None
    is_corrected: bool | None = None
    system_prompt: dict[_Name, str] = {}


class _Mistake(msgspec.Struct):
    mistake_agent: _Name | None = None
    mistake_step: str | int | None = None
    mistake_reason: str | None = None
    mistake_type: str | None = None


class _Failure(msgspec.Struct):
    failure_id: int | str
    step_number: Count | None = None
    failed_agent: _Name | None = None
    failure_category: str | None = None
    step_reason: str | None = None
    category_reason: str | None = None


class _RootCause(msgspec.Struct):
    failure_id: int | str | None = None
    reason_for_root_cause: str | None = None


class _Annotation(msgspec.Struct):
    trajectory_id: _Name
    failures: list[_Failure]
    root_cause: _RootCause | None = None
    failure_summary: str | None = None


_LABELS: dict[str, type[msgspec.Struct]] = {"whowhen": _Mistake, "agentrx": _Annotation}
_MISFIT = {"one-based": "label-one-based", "inconsistent": "label-misfit"}


def detect(source: Source) -> str | None:
    """Recognise runs and annotations by the fields of the first record, a bare history by all its roles."""
    first = source.first
    if not isinstance(first, dict):
        return None
    if (dialect := _dialect(first)) is not None:
        return f"whowhen-{dialect}"
    if isinstance(first.get("trajectory_id"), str) and isinstance(first.get("failures"), list):
        return "agentrx-annotation"
    is_bare = source.shape == "document" and first.keys() == {"content", "role"}
    return "agentrx-history" if is_bare and ledger.is_orchestrated(source.document()) else None


def read(source: Source, kind: str) -> Iterator[Fragment | Problem]:
    """Yield history, task and label of each run; of an AgentRx file its history or its labels."""
    if kind == "agentrx-history":
        yield from _read_history(source)
        return
    read_row = _read_annotation if kind == "agentrx-annotation" else _read_run
    for row in source.rows():
        yield from read_row(row, source.file)


def assemble(trace_id: str, fragments: Sequence[Fragment]) -> Assembled:
    """Return the run with the labels that have come in for it."""
    parts = {f.part: f for f in sorted(fragments, key=lambda f: (f.digest, f.file, f.record), reverse=True)}
    origin = parts.get("task") or parts["history"]
    asked = _asked(trace_id, parts.get("task"))
    question = msgspec.convert(asked, _Question)
    # A second run under one id may differ from the first in its task alone, and then comes without the history.
    history = msgspec.json.decode(parts["history"].data, type=list[Entry]) if "history" in parts else []
    is_chat = trace_id.startswith(_ALGORITHM)
    made = list(_group_chat(history, list(question.system_prompt)) if is_chat else ledger.events(history))
    if history and not any(event.kind == "stop" for event in made):
        made.append(ledger.last_message(made))
    events = tuple(msgspec.structs.replace(event, order=n) for n, event in enumerate(made))
    agents = _agents(events, question.system_prompt)
    claims, unread = ledger.claims(events)
    labels, misfits = _labels(parts, events, agents)
    trace = Trace(
        trace_id=trace_id,
        world="recorded",
        source=Origin(format=FORMAT, file=origin.file, record=origin.record, reader_version=VERSION),
        task=_task(question, events, {k: v for k, v in asked.items() if k not in _Question.__struct_fields__}),
        agents=agents,
        events=events,
        claims=tuple(claims),
        outcome=_outcome(question, [] if is_chat else history),
        labels=tuple(labels),
        groups=Groups(task=question.question_ID, condition="algorithm-generated" if is_chat else "hand-crafted"),
    )
    problems = [msgspec.structs.replace(problem, file=origin.file) for problem in unread]
    return Assembled(trace, [msgspec.structs.replace(problem, trace_id=trace_id) for problem in [*problems, *misfits]])


def _dialect(record: Any) -> str | None:
    if not isinstance(record, dict) or not isinstance(history := record.get("history"), list) or "question_ID" not in record:
        return None
    if "is_correct" in record or "system_prompt" in record:
        return "algorithm"
    if "is_corrected" in record or ledger.is_orchestrated(history):
        return "hand"
    return "algorithm" if any(isinstance(entry, dict) and "name" in entry for entry in history) else None


def _read_run(row: Row, file: str) -> Iterator[Fragment | Problem]:
    record = row.value
    if (dialect := _dialect(record)) is None:
        yield _misshapen(_seen(record), "an object with `question_ID` and a list `history`", file, row.place)
        return
    try:
        run, question = msgspec.convert(record, _Run), msgspec.convert(record, _Question)
    except msgspec.ValidationError as error:
        yield _misshapen(*_got_expected(error), file, row.place)
        return
    label = {name: record[name] for name in _Mistake.__struct_fields__ if record.get(name) is not None}
    task = {name: value for name, value in record.items() if name not in ("history", *_Mistake.__struct_fields__)}
    beside = [{k: v for k, v in entry.items() if k not in Entry.__struct_fields__} for entry in record["history"]]
    if any(beside):  # the history itself has to read the same from every kind of file
        task["history"] = beside
    if is_too_deep(task):
        yield Problem(code="too-deep", file=file, record=row.place)
        return
    trace_id = (_ALGORITHM if dialect == "algorithm" else _HAND) + question.question_ID
    yield fragment(trace_id, "history", run.history, file=file, record=row.place)
    yield fragment(trace_id, "task", task, file=file, record=row.place)
    if label:
        yield _label_fragment(trace_id, "whowhen", label, file=file, record=row.place)


def _read_history(source: Source) -> Iterator[Fragment | Problem]:
    try:
        history = msgspec.convert(source.document(), list[_Bare])
    except msgspec.ValidationError as error:
        yield _misshapen(*_got_expected(error), source.file, "document")
        return
    question_id = PurePath(source.file).stem
    if _QUESTION_ID.fullmatch(question_id):
        yield Problem(code="id-from-name", file=source.file, trace_id=_HAND + question_id, got=question_id)
    else:
        question_id = hash_of(msgspec.json.encode(history[0]))
    yield fragment(_HAND + question_id, "history", history, file=source.file, record="document")


def _read_annotation(row: Row, file: str) -> Iterator[Fragment | Problem]:
    trajectory_id = row.value.get("trajectory_id") if isinstance(row.value, dict) else None
    yield _label_fragment(f"{_HAND}{trajectory_id}", "agentrx", row.value, file=file, record=row.place)


def _label_fragment(trace_id: str, annotator: str, value: Any, *, file: str, record: str) -> Fragment | Problem:
    try:
        msgspec.convert(value, _LABELS[annotator])
    except msgspec.ValidationError as error:
        return _misshapen(*_got_expected(error), file, record)
    return fragment(trace_id, f"label:{annotator}", value, file=file, record=record, primary=False)


def _misshapen(got: str, expected: str, file: str, record: str) -> Problem:
    return Problem(code="wrong-shape", file=file, record=record, got=got, expected=expected)


def _got_expected(error: msgspec.ValidationError) -> tuple[str, str]:
    """Take ``Expected `str`, got `int` - at `$.history[0].role` `` apart; other texts are what was got."""
    text, _, place = str(error).partition(" - at ")
    expected, is_pair, got = text.partition(", got ")
    where = f" at {place}" if place else ""
    return (got + where, expected.removeprefix("Expected ")) if is_pair else (text + where, "")


def _seen(value: Any) -> str:
    return f"an object with {', '.join(map(str, value))}" if isinstance(value, dict) else type(value).__name__


def _asked(trace_id: str, task: Fragment | None) -> dict[str, Any]:
    """Return the record of the question; of a bare history only the id is known."""
    if task is not None:
        value: dict[str, Any] = msgspec.json.decode(task.data)
        return value
    # A second run under one id is stored as `<id>~2`; its question is the same one.
    return {"question_ID": re.sub(r"~\d+$", "", trace_id.removeprefix(_HAND))}


def _group_chat(history: Sequence[Entry], experts: Sequence[str]) -> Iterator[Event]:
    """Yield the events of a CaptainAgent chat: its team at first, then a turn a message.

    A group chat shows each message to every other member, and its hidden manager picks who speaks next after having
    read it. So a message is sent to all, not to the next speaker, and is caused by the one before it.
    """
    members = dict.fromkeys([*experts, *(entry.name or entry.role for entry in history)])
    listed = members if len(members) <= _MAX_BROADCAST else ()
    others = {speaker: tuple(name for name in members if name != speaker) for speaker in listed}
    heard = tuple(f"spawn{n}" for n in range(len(experts)))
    for event_id, name in zip(heard, experts, strict=True):
        yield Event(event_id=event_id, kind="spawn", targets=(name,), basis="derived", rule="system-prompt")
    for n, entry in enumerate(history):
        speaker = entry.name or entry.role
        decision = _chat_decision(entry, others.get(speaker, ()), is_first=n == 0, is_last=n == len(history) - 1)
        yield event_of(n, entry, speaker, parents=heard, turn=n, basis="derived", **decision)
        heard = (f"h{n}",)


def _chat_decision(entry: Entry, others: tuple[str, ...], *, is_first: bool, is_last: bool) -> dict[str, Any]:
    text = entry.content or ""
    if entry.name == _TERMINAL:
        failed = re.match(r"exitcode: (?!0\b)-?\d{1,10}", text)
        error = failed[0] if failed else None
        return {"kind": "act", "action": "tool_result", "name": _TERMINAL, "error": error, "rule": "computer-terminal"}
    # Only the bare word ends a chat: messages that merely end in it, or set it in bold, are followed by others.
    if is_last and text.strip() == "TERMINATE":
        return {"kind": "stop", "condition": "TERMINATE", "rule": "terminate-text"}
    if is_first and text.startswith(_MANAGER):
        # The manager has no name in the file: its task stands under the first expert's, whom labels mean by it.
        return {"kind": "delegate", "targets": tuple(name for name in others if name != _TERMINAL), "rule": "manager-task"}
    return {"kind": "communicate", "targets": others, "rule": "group-chat-message"}


def _agents(events: Sequence[Event], prompts: dict[str, str]) -> tuple[Agent, ...]:
    """Return all that are declared, act or are addressed, in the order in which they come up."""
    named = (name for event in events for name in (event.agent_id, *event.targets))
    parents = {name: event.agent_id for event in events if event.kind == "spawn" for name in event.targets}
    return tuple(
        Agent(agent_id=name, component=name, parent_id=parents.get(name), system_prompt=prompts.get(name))
        for name in dict.fromkeys([*prompts, *named])
        if name is not None
    )


def _task(question: _Question, events: Sequence[Event], extra: dict[str, Any]) -> Task:
    human = next((event.content for event in events if event.action == "input"), None)
    return Task(
        task_id=question.question_ID,
        text=question.question or human,
        reference=None if question.ground_truth is None else str(question.ground_truth),
        extra=extra,
    )


def _outcome(question: _Question, history: Sequence[Entry]) -> Outcome:
    """Return what the record says of success, and the answer that a led team ended with."""
    field = "is_corrected" if question.is_correct is None else "is_correct"
    passed: bool | None = getattr(question, field)
    answer = ledger.answer(history[-1]) if history else None
    stated = {f"passed: {field}": passed, f"answer: history[{len(history) - 1}]": answer}
    source = "; ".join(place for place, value in stated.items() if value is not None)
    return Outcome(passed=passed, answer=answer, source=source or None)


def _labels(parts: dict[str, Fragment], events: Sequence[Event], agents: Sequence[Agent]) -> tuple[list[Label], list[Problem]]:
    """Return the labels of both annotators, each checked against who acted at its step."""
    acted = {event.event_id: event.agent_id for event in events}
    names = {_plain(agent.agent_id): agent.agent_id for agent in agents} | {agent.agent_id: agent.agent_id for agent in agents}
    labels: list[Label] = []
    problems: list[Problem] = []
    for name, labels_of in (("label:whowhen", _mistake), ("label:agentrx", _failures)):
        if (part := parts.get(name)) is None:
            continue
        stated, found = labels_of(part.data)
        checked = [_checked(label, acted, names) for label in stated]
        found += [_misfit(label, acted) for label in checked if label.consistency in _MISFIT]
        labels += checked
        problems += [msgspec.structs.replace(problem, file=part.file, record=part.record) for problem in found]
    return labels, problems


def _mistake(data: bytes) -> tuple[list[Label], list[Problem]]:
    said = msgspec.json.decode(data, type=_Mistake)
    written = "" if said.mistake_step is None else str(said.mistake_step)
    step = int(written) if re.fullmatch(r"[0-9]{1,15}", written) else None
    what: dict[str, Any] = {"text": said.mistake_reason, "category": said.mistake_type, "agent_id": said.mistake_agent}
    label = Label(annotator="whowhen", name="mistake", step=step, step_base=0, **what)
    is_bad = step is None and written
    return [label], [Problem(code="bad-value", got=f"mistake_step {written}", expected="a whole number")] if is_bad else []


def _failures(data: bytes) -> tuple[list[Label], list[Problem]]:
    """Return a label for each failure and one for the summary; ids are compared as text, being 1 here and "1" there."""
    said = msgspec.json.decode(data, type=_Annotation)
    cause = said.root_cause or _RootCause()
    root = None if cause.failure_id is None else str(cause.failure_id)
    ids = [str(failure.failure_id) for failure in said.failures]
    is_known = root in ids
    labels = []
    for failure, failure_id in zip(said.failures, ids, strict=True):
        is_root = failure_id == root if is_known else None
        reasons = (failure.step_reason, failure.category_reason, cause.reason_for_root_cause if is_root else None)
        labels.append(
            Label(
                annotator="agentrx",
                name="failure",
                text="\n\n".join(dict.fromkeys(filter(None, reasons))) or None,
                category=_category(failure.failure_category),
                agent_id=failure.failed_agent,
                step=failure.step_number,
                step_base=1,
                is_root_cause=is_root,
            )
        )
    if said.failure_summary:
        labels.append(Label(annotator="agentrx", name="summary", text=said.failure_summary))
    if root is None or is_known:
        return labels, []
    return labels, [Problem(code="bad-value", got=f"root cause {root}", expected=f"one of {', '.join(ids)}")]


def _category(text: str | None) -> str | None:
    """Return one spelling of a category, which annotators write with changing case: first letter large, the rest small."""
    return " ".join(text.split()).capitalize() if text else None


def _plain(name: str) -> str:
    return name.replace(" ", "").casefold()


def _checked(label: Label, acted: dict[str, str | None], names: dict[str, str]) -> Label:
    """Spell the label's agent as the history does, and say whether it is the one who acted at the label's step."""
    if label.agent_id is None:
        return label
    agent = names.get(label.agent_id) or names.get(_plain(label.agent_id), label.agent_id)
    if label.step is None or label.step_base is None:
        return msgspec.structs.replace(label, agent_id=agent)
    at = label.step - label.step_base
    if acted.get(f"h{at}") == agent:
        return msgspec.structs.replace(label, agent_id=agent, event_id=f"h{at}", consistency="consistent")
    is_one_off = label.step_base == 0 and acted.get(f"h{at - 1}") == agent
    return msgspec.structs.replace(label, agent_id=agent, consistency="one-based" if is_one_off else "inconsistent")


def _misfit(label: Label, acted: dict[str, str | None]) -> Problem:
    who = acted.get(f"h{(label.step or 0) - (label.step_base or 0)}")
    got = f"{label.agent_id} at step {label.step}"
    return Problem(code=_MISFIT[label.consistency or ""], got=got, expected=who or "a step of the run")
