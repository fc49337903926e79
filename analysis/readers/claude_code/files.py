"""Which files hold session lines, and which session each of their lines belongs to.

A line says so itself; where it does not, the lines around it do, and only then the names of file and folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from analysis.errors import Problem
from analysis.model import MAX_DEPTH
from analysis.readers.claude_code.contents import name_of
from analysis.readers.claude_code.lines import STATES, is_sub
from analysis.readers.fragment import Fragment, Kind, fragment, hash_of, is_too_deep
from analysis.readers.source import MEBIBYTE, Row, Source

FORMAT = "claude-code"
KINDS = (
    Kind("claude-code-session", "one of the first 20 lines has `sessionId` and a `message` or `isSidechain`, or is a `summary`"),
    Kind("claude-code-sync", "a list of records with `content.content.data` like a line of a session (export of happy)"),
    Kind("claude-code-agent", "one object with `agentType`, beside the lines of a sub-agent: `agent-<id>.meta.json`"),
)
_SESSION, _SYNC, _AGENT = (kind.name for kind in KINDS)

_SIGHT = 20
_CHUNK = 500
_AGENT_FILE = re.compile(r"(?:^|/)agent-([^/]{1,200})\.(?:jsonl|meta\.json)$")
_AGENT_FOLDER = re.compile(r"([^/]{1,200})/subagents/")


class _Names(NamedTuple):
    """What a file's name and folder say: the session, and the sub-agent if it is one's."""

    session: str | None
    agent: str | None


class _Item(NamedTuple):
    place: str
    data: bytes


def detect(source: Source) -> str | None:
    """Recognise a session by any of its first lines: the first may be a summary, or damaged."""
    if source.shape == "document" and _is_meta(source.first) and _AGENT_FILE.search(source.file):
        return _AGENT
    for value in _top(source):
        if _is_line(value):
            return _SESSION
        if isinstance(value, dict) and _is_line(_wrapped(value)):
            return _SYNC
    return None


def read(source: Source, kind: str) -> Iterator[Fragment | Problem]:
    """Yield the lines of each session of the file in chunks: a grown file gives the same chunks but for its last one."""
    names = _names(source.file)
    if kind == _AGENT:
        yield from _read_meta(source, names)
        return
    chunks: dict[str, list[_Item]] = {}
    unnamed: list[_Item] = []
    current: str | None = None
    told: set[str] = set()
    agent: str | None = None
    for row in source.rows():
        value = _unwrapped(row.value) if kind == _SYNC else row.value
        if isinstance(item := _item(value, row, source.file), Problem):
            yield item
            continue
        stated, notes = _session(value, names, source.file)
        yield from (note for note in notes if note.code not in told)
        told.update(note.code for note in notes)
        agent = names.agent if "agent-from-name" in told else None
        if (current := stated or current) is None:
            unnamed.append(item)
            continue
        chunk = chunks.setdefault(current, [])
        chunk += [*unnamed, item]
        unnamed.clear()
        while len(chunk) >= _CHUNK:
            yield _fragment(current, chunk[:_CHUNK], agent, source.file)
            del chunk[:_CHUNK]
    if unnamed:
        current = names.session or PurePath(source.file).stem[:200]
        yield Problem(code="id-from-name", file=source.file, trace_id=f"{FORMAT}:{current}", got=current)
        chunks[current] = unnamed
    for session, chunk in chunks.items():
        yield from (_fragment(session, chunk[n : n + _CHUNK], agent, source.file) for n in range(0, len(chunk), _CHUNK))


def _top(source: Source) -> Iterator[Any]:
    """Yield the first values; the problems among them are left to `read`, which meets them again."""
    n_problems, n_bytes = len(source.problems), 0
    try:
        for row in islice(source.rows(), _SIGHT):
            yield row.value
            if (n_bytes := n_bytes + len(row.data)) > MEBIBYTE:
                return
    finally:
        del source.problems[n_problems:]


def _is_line(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] == "summary":
        return isinstance(value.get("summary"), str) and "leafUuid" in value
    if name_of(value.get("sessionId")) is None:
        return False
    message = value.get("message")
    if isinstance(message, dict):
        return message.get("role") == value["type"] and "content" in message
    return "isSidechain" in value or value["type"] in STATES


def _is_meta(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("agentType"), str) and "type" not in value


def _wrapped(value: dict[str, Any]) -> Any:
    """Return the session line inside a record of the sync export, or None."""
    for name in ("content", "content", "data"):
        value = inner if isinstance(inner := value.get(name), dict) else {}
    return value or None


def _unwrapped(value: Any) -> Any:
    """Return the session line of a record of the sync export; what the user typed has the shape of a message only."""
    if not isinstance(value, dict):
        return value
    message = value.get("content")
    if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), dict):
        return {"type": "user", "message": {"role": "user", "content": [message["content"]]}}
    return _wrapped(value) or value


def _names(file: str) -> _Names:
    folder, agent = _AGENT_FOLDER.search(file), _AGENT_FILE.search(file)
    return _Names(folder[1] if folder else None, agent[1] if agent else None)


def _session(line: dict[str, Any], names: _Names, file: str) -> tuple[str | None, list[Problem]]:
    """Return the session that a line names, and a note where the names of file and folder had to help.

    A sub-agent's line may give its own id as the session; then the folder names the one it worked for.
    """
    session, agent = name_of(line.get("sessionId")), name_of(line.get("agentId"))
    notes = []
    if session is not None and session in (agent, f"agent-{agent}") and names.session:
        session = names.session
        notes.append(Problem(code="id-from-name", file=file, trace_id=f"{FORMAT}:{session}", got=session))
    if names.agent and agent is None and is_sub(line):
        notes.append(Problem(code="agent-from-name", file=file, got=names.agent))
    return session, notes


def _item(value: Any, row: Row, file: str) -> _Item | Problem:
    if not isinstance(value, dict):
        return Problem(code="wrong-shape", file=file, record=row.place, got=type(value).__name__, expected="object")
    try:
        data = msgspec.json.encode(value, order="deterministic")
    except RecursionError:
        return Problem(code="too-deep", file=file, record=row.place)
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and is_too_deep(value):
        return Problem(code="too-deep", file=file, record=row.place)
    return _Item(row.place, data)


def _fragment(session: str, chunk: list[_Item], agent: str | None, file: str) -> Fragment:
    """Return a chunk of lines. Where only the file name says whose they are, the name of the part keeps that."""
    data = b"[" + b",".join(item.data for item in chunk) + b"]"
    digest = hash_of(data)
    part = f"lines:{digest}:{agent}" if agent else f"lines:{digest}"
    record = f"{chunk[0].place} to {chunk[-1].place}" if len(chunk) > 1 else chunk[0].place
    return Fragment(trace_id=f"{FORMAT}:{session}", part=part, data=data, digest=digest, file=file, record=record)


def _read_meta(source: Source, names: _Names) -> Iterator[Fragment | Problem]:
    """Yield what stands beside a sub-agent's lines; whose it is, only the names of file and folder say."""
    session = names.session or f"agent-{names.agent}"
    yield Problem(code="id-from-name", file=source.file, trace_id=f"{FORMAT}:{session}", got=session)
    value = source.document()
    if is_too_deep(value):
        yield Problem(code="too-deep", file=source.file, record="document")
        return
    part = f"meta:{names.agent}"
    yield fragment(f"{FORMAT}:{session}", part, value, file=source.file, record="document", primary=False)
