"""The events of a session: each line is carried by one event a block, and markers state the decisions between them.

A call of the Task or Agent tool is two events: a spawn (once a sub-agent, a marker without text) and a delegation, which
carries the prompt. Hidden here: which events a model call has heard, when results are merged, and how an agent ended.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from analysis.model import Event
from analysis.readers.claude_code.lines import STATES, Line, mapping, name_of, plain
from analysis.readers.claude_code.lines import Call as ModelCall
from analysis.readers.claude_code.session import INTERRUPT, SYNTHETIC, Call, Session, is_result, is_use, words

_NOTES = frozenset({"attachment", "progress", "system", *STATES})
_LOCAL = ("<local-command-", "<bash-")  # what a command of the program itself printed; no model is asked
_EXIT = re.compile(r"<command-name>/?(exit|quit)<")
_NOTIFIED = re.compile(r"<(task-id|tool-use-id)>([^<]{1,200})<")
_NOTIFICATION = "<task-notification>"
_RETURNED = ("status", "totalTokens", "totalDurationMs", "totalToolUseCount", "usage")
_ERROR_CHARS = 200


@dataclass
class _Message:
    """A model call: its lines in order, the place of its first text, and whether it calls tools."""

    lines: list[Line] = field(default_factory=list)
    text_at: tuple[int, int] | None = None
    text: dict[str, Any] = field(default_factory=dict)
    text_line: Line | None = None
    has_calls: bool = False


@dataclass
class _Telling:
    """What has been told so far."""

    run: Session
    messages: dict[ModelCall, _Message]
    events: list[Event] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)
    said: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))  # line -> its events
    above: dict[int, Line] = field(default_factory=dict)  # line -> the nearest line up that is no note
    heard: set[int] = field(default_factory=set)  # lines that a model call has answered
    model_event: dict[ModelCall, str] = field(default_factory=dict)
    call_event: dict[str, str] = field(default_factory=dict)  # tool call -> its event
    turns: Counter[str | None] = field(default_factory=Counter)
    started: set[str] = field(default_factory=set)
    asked: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # sub-agent -> delegations it has not read
    open: dict[str | None, set[str]] = field(default_factory=lambda: defaultdict(set))  # agent -> its tasks without result
    merging: dict[str | None, list[str]] = field(default_factory=lambda: defaultdict(list))  # agent -> results not yet merged
    last: dict[str, tuple[int, Line]] = field(default_factory=dict)  # agent -> place of its last event, and its line
