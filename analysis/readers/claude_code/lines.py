"""What the lines of a session say by themselves: fields, times, tokens; copies are dropped, and growth is followed.

Hidden here: what makes two lines the same, and which of a model call's several token figures counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import msgspec

from analysis.errors import Problem
from analysis.readers.claude_code.contents import Block, blocks_of, mapping, name_of
from analysis.readers.claude_code.tally import Found, report
from analysis.readers.fragment import Fragment, hash_of

#: Lines about the session and not of it: no agent acts in them.
STATES = frozenset(
    {
        "agent-name", "ai-title", "atis-latch", "bridge-session", "custom-title", "file-history-snapshot", "frame-link",
        "last-prompt", "mode", "permission-mode", "pr-link", "queue-operation", "relocated", "summary", "worktree-state",
    }
)  # fmt: skip

#: What a copy of a line in another file, of a resumed session say, may have other values for.
_ENVELOPE = frozenset(
    {
        "agentId", "cwd", "entrypoint", "gitBranch", "isSidechain", "logicalParentUuid", "parentUuid", "requestId", "sessionId",
        "sessionKind", "session_id", "slug", "userType", "version",
    }
)  # fmt: skip
_PLACED = _ENVELOPE | {"timestamp", "type", "uuid"}
_TOKENS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

ModelCall = tuple[str, str]  # a model call: message id and request id


@dataclass(frozen=True, eq=False)
class Line:
    """One line. `index` is its place among all lines, by file and line; `agent` the id it gives of a sub-agent."""

    index: int
    raw: dict[str, Any]
    file: str
    agent: str | None
    call: ModelCall | None
    time_s: float | None
    sort_s: float  # its time; without one, that of the line before it in its file
    blocks: tuple[Block, ...]

    @property
    def type(self) -> str:
        """What kind of line it is."""
        return self.text("type") or "?"

    @property
    def uuid(self) -> str | None:
        """Its own id."""
        return name_of(self.raw.get("uuid"))

    @property
    def message(self) -> dict[str, Any]:
        """What was said, and by which model."""
        return mapping(self.raw.get("message"))

    @property
    def is_said(self) -> bool:
        """Whether it belongs to the conversation; all other lines are notes about it."""
        return self.type in ("user", "assistant") and "content" in self.message

    @property
    def is_side(self) -> bool:
        """Whether it is a sub-agent's."""
        return self.raw.get("isSidechain") is True

    @property
    def payload(self) -> dict[str, Any]:
        """The record without what says where it belongs."""
        return {name: value for name, value in self.raw.items() if name not in _PLACED}

    def text(self, name: str) -> str | None:
        """Return the text of a field, or None."""
        return value if isinstance(value := self.raw.get(name), str) else None


class Usage(NamedTuple):
    """The last token figures of a model call; the newest statement compares as the largest."""

    sort_s: float
    n_output: int
    tokens: dict[str, int]


@dataclass
class Held:
    """The lines of a session, each once; `known` finds them by uuid, also by those of dropped copies."""

    origin: Fragment  # where the session begins
    clock: Literal["unix", "naive"] | None
    lines: list[Line] = field(default_factory=list)
    known: dict[str, Line] = field(default_factory=dict)
    usage: dict[ModelCall, Usage] = field(default_factory=dict)
    metas: dict[str, dict[str, Any]] = field(default_factory=dict)  # sub-agent -> what stands beside its lines


class _Row(NamedTuple):
    file: str
    named_agent: str | None
    raw: dict[str, Any]


class _Time(NamedTuple):
    seconds: float
    has_zone: bool


def is_sub(raw: dict[str, Any]) -> bool:
    """Whether the record may be a sub-agent's: a main one says that it is none, and one without id is nobody's."""
    return raw.get("isSidechain") is not False and ("uuid" in raw or "message" in raw)


def load(fragments: Sequence[Fragment]) -> tuple[Held, list[Problem]]:
    """Return the lines of all fragments, and what had to be repaired."""
    found: Found = {}
    rows = list(_rows(fragments))
    times = [_time(row, found) for row in rows]
    stated = {time.has_zone for time in times if time is not None}
    lines = list(_lines(rows, times, _requests(rows), found))
    mains = {line.file for line in lines if not line.is_side}
    origin = min((part for part in fragments if part.primary), key=lambda part: (part.file not in mains, _place(part)))
    held = Held(origin, "unix" if True in stated else "naive" if stated else None, metas=_metas(fragments))
    kept: dict[tuple[str, ...], Line] = {}
    # A sub-agent's file may repeat its parent's lines; they are the parent's.
    for line in sorted(lines, key=lambda line: line.is_side):
        _count_tokens(held.usage, line, found)
        if (first := kept.setdefault(_identity(line), line)) is not line:
            report(found, "duplicate-record", line.file, got=line.uuid or line.type)
        if line.uuid is not None and held.known.setdefault(line.uuid, first) is not first:
            report(found, "duplicate-event", line.file, got=line.uuid)
    held.lines = sorted(kept.values(), key=lambda line: line.index)
    return held, list(found.values())


def _rows(fragments: Iterable[Fragment]) -> Iterator[_Row]:
    """Yield the records by file and line, without the chunks that stand at the start of a longer one.

    A file that grew is read again, and its last chunk is longer then. In sorted order, what begins with a chunk follows it.
    """
    parts = sorted(
        (part for part in fragments if part.part.startswith("lines:")), key=lambda part: (part.data[:-1], _place(part))
    )
    longer = [b.data.startswith(a.data[:-1] + b",") for a, b in pairwise(parts)]
    newest = [part for part, is_superseded in zip(parts, [*longer, False], strict=True) if not is_superseded]
    for part in sorted(newest, key=_place):
        agent = part.part.partition(":")[2].partition(":")[2]
        for raw in msgspec.json.decode(part.data):
            yield _Row(part.file, agent or None, raw)


def _lines(rows: list[_Row], times: list[_Time | None], requests: dict[str, str], found: Found) -> Iterator[Line]:
    has_zones = any(time is not None and time.has_zone for time in times)
    sort_s: dict[str, float] = {}
    for index, (row, time) in enumerate(zip(rows, times, strict=True)):
        if time is not None and has_zones and not time.has_zone:
            report(found, "bad-value", row.file, got=str(row.raw["timestamp"]), expected="a time with a zone")
            time = None
        if time is not None:
            sort_s[row.file] = time.seconds
        yield Line(
            index=index,
            raw=row.raw,
            file=row.file,
            agent=(name_of(row.raw.get("agentId")) or row.named_agent) if is_sub(row.raw) else None,
            call=_call(index, row.raw, requests),
            time_s=None if time is None else time.seconds,
            sort_s=sort_s.get(row.file, float("-inf")),
            blocks=blocks_of(mapping(row.raw.get("message")).get("content")),
        )


def _time(row: _Row, found: Found) -> _Time | None:
    """Return the seconds since 1970 that an ISO time states; without a zone they are counted as if it were UTC."""
    if (written := row.raw.get("timestamp")) is None:
        return None
    try:
        moment = datetime.fromisoformat(written)
    except (TypeError, ValueError):
        report(found, "bad-value", row.file, got=str(written), expected="an ISO time")
        return None
    has_zone = moment.tzinfo is not None
    return _Time((moment if has_zone else moment.replace(tzinfo=UTC)).timestamp(), has_zone)


def _requests(rows: Iterable[_Row]) -> dict[str, str]:
    """Return message id -> request id, for the lines of a message that leave the latter out."""
    requests: dict[str, str] = {}
    for row in rows:
        message_id, request_id = name_of(mapping(row.raw.get("message")).get("id")), name_of(row.raw.get("requestId"))
        if message_id and request_id:
            requests.setdefault(message_id, request_id)
    return requests


def _call(index: int, raw: dict[str, Any], requests: dict[str, str]) -> ModelCall | None:
    if raw.get("type") != "assistant":
        return None
    if (message_id := name_of(mapping(raw.get("message")).get("id"))) is None:
        return "", f"line {index}"  # nothing ties the lines of such a message together
    return message_id, name_of(raw.get("requestId")) or requests.get(message_id, "")


def _identity(line: Line) -> tuple[str, ...]:
    """Return what is equal for copies of one line.

    A copy has the same uuid and the same content; a line of a model's message may come back under a new uuid, but it has
    the message's id. The tokens are no part of it: they grow from line to line, and the last ones count.
    """
    content = line.message.get("content")
    if line.call is not None and line.call[0]:
        return (*line.call, hash_of(msgspec.json.encode(content, order="deterministic")))
    body = {name: value for name, value in line.raw.items() if name not in _ENVELOPE}
    return ("", "", hash_of(msgspec.json.encode({**body, "message": content}, order="deterministic")))


def _count_tokens(usage: dict[ModelCall, Usage], line: Line, found: Found) -> None:
    """Keep the last figures stated for the line's model call; the first of a message are too low."""
    stated = mapping(line.message.get("usage"))
    if line.call is None or not stated:
        return
    tokens = {name: n for name in _TOKENS if type(n := stated.get(name)) is int and 0 <= n <= 2**53}
    for name in _TOKENS:
        if stated.get(name) is not None and name not in tokens:
            report(found, "bad-value", line.file, got=f"{name} {stated[name]}", expected="a count of tokens")
    new = Usage(line.sort_s, tokens.get("output_tokens", -1), tokens)
    if line.call not in usage or usage[line.call][:2] <= new[:2]:
        usage[line.call] = new


def _place(part: Fragment) -> tuple[str, int, str]:
    """Return what fragments are sorted by: file, first line, part."""
    digits = re.search(r"\d+", part.record)
    return part.file, int(digits[0]) if digits else 0, part.part


def _metas(fragments: Iterable[Fragment]) -> dict[str, dict[str, Any]]:
    """Return sub-agent -> what stands beside its lines."""
    parts = (part for part in sorted(fragments, key=_place) if part.part.startswith("meta:"))
    return {part.part.removeprefix("meta:"): mapping(msgspec.json.decode(part.data)) for part in parts}
