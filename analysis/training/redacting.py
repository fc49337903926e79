"""Traces without secrets: every text that rows are made of goes through a redactor; ids, names and numbers stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from analysis.model import ContextPackage, Event, Trace
from analysis.redaction import Redactor

_encode = msgspec.json.Encoder().encode
_EVENT_FIELDS = ("content", "messages", "error", "task_split", "assignment", "condition", "final_state", "extra")
_all_fields = attrgetter(*_EVENT_FIELDS, "context_package")


def redacted(traces: Sequence[Trace], redactor: Redactor) -> list[Trace]:
    """Return the traces with secrets taken out of their texts; one that held none is the same object."""
    holding = redactor.may_hold(["\n".join(_texts(trace)) for trace in traces])
    return [_clean(trace, redactor) if may_hold else trace for trace, may_hold in zip(traces, holding, strict=True)]


def _clean(trace: Trace, redactor: Redactor) -> Trace:
    text = redactor.value(trace.task.text)
    agents = tuple([_changed(agent, ("system_prompt",), redactor) for agent in trace.agents])
    events = tuple([_event(event, redactor) for event in trace.events])
    fields: dict[str, Any] = {}
    if text is not trace.task.text:
        fields["task"] = msgspec.structs.replace(trace.task, text=text)
    if any(new is not old for new, old in zip(agents, trace.agents, strict=True)):
        fields["agents"] = agents
    if any(new is not old for new, old in zip(events, trace.events, strict=True)):
        fields["events"] = events
    return msgspec.structs.replace(trace, **fields) if fields else trace


def _event(event: Event, redactor: Redactor) -> Event:
    clean: Event = _changed(event, _EVENT_FIELDS, redactor)
    if event.context_package is None:
        return clean
    package = redactor.value(msgspec.to_builtins(event.context_package))
    return msgspec.structs.replace(clean, context_package=msgspec.convert(package, ContextPackage))


def _changed(record: Any, names: tuple[str, ...], redactor: Redactor) -> Any:
    fields = {name: new for name in names if (old := getattr(record, name)) and (new := redactor.value(old)) is not old}
    return msgspec.structs.replace(record, **fields) if fields else record


def _texts(trace: Trace) -> Iterator[str]:
    """Yield all that could hold a secret; fields that are more than text as JSON."""
    yield trace.task.text or ""
    for agent in trace.agents:
        yield agent.system_prompt or ""
    for values in map(_all_fields, trace.events):
        for value in values:
            if value:
                yield value if isinstance(value, str) else _encode(value).decode()
