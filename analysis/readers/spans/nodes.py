"""What one span says by itself, read with the table of names: its role, who acts, what was said, tokens, error.

Hides the attributes. What the table has no use for stays with the node under `extra`, so that nothing is dropped.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from analysis.readers.spans import names
from analysis.readers.spans.span import Span, SpanEvent
from analysis.readers.spans.texts import Message, said, system_prompt, taken, text_of
from analysis.readers.spans.values import shortened

_MAX_TOKENS: Final = 2**53
_CALLING: Final = {"model_call", "embedding", "rerank"}
_USED_EVENTS: Final = {*names.INPUT_EVENTS, *names.DETAIL_EVENTS, names.OUTPUT_EVENT}


class Node(msgspec.Struct, gc=False):
    """A span in its trace. The first fields are its own; the later ones are found by looking at the others."""

    event_id: str
    span_id: str
    parent_id: str | None
    start_ns: int | None
    end_ns: int | None
    role: str | None  # of names.ROLES, `handoff`, or None for a span of an unknown kind
    raw_type: str | None
    agent: str | None  # the agent's name on the span itself
    is_named: bool  # whether a span of role `agent_run` says which agent
    thing: str | None  # the tool, model or span that acted
    model: str | None
    system: str | None  # what the model was told to be
    messages: tuple[Message, ...]
    input: str | None
    output: str | None
    input_tokens: int | None
    output_tokens: int | None
    response_id: str | None
    error: str | None
    status: str | None
    scope: str | None
    resource: str | None
    extra: dict[str, Any]
    node_id: str | None = None
    node_parent: str | None = None
    handoff: tuple[str | None, str | None] = (None, None)

    parent: int = -1  # place of the parent span in the trace's order
    depth: int = 0
    since_ns: int = -1  # start, or that of the parent where it is later: a child never comes before its parent
    actor: str | None = None  # the agent that acts here
    run: int = -1  # place of the nearest `agent_run` of an agent, itself included
    tool: int = -1  # place of the nearest tool call above it inside that run, itself included

    attributes: dict[str, Any] = {}

    def parent_id_in(self, nodes: list[Node]) -> str | None:
        """Return the event of the parent, or the id of one that is not here; None for a root and a span that was cut loose."""
        return nodes[self.parent].event_id if self.parent >= 0 else self.parent_id


def node_of(event_id: str, span: Span) -> Node:
    """Return what a span says by itself."""
    attributes = dict(span.attributes)
    role, raw_type = _role(attributes)
    handoff = (_agent_name(taken(attributes, names.HANDOFF_FROM)), _agent_name(taken(attributes, names.HANDOFF_TO)))
    if any(handoff):
        role = "handoff"
    texts = said(attributes, span.events, is_model=role == "model_call")
    agent, is_named = _agent(role, span, attributes)
    for name in (*names.OPERATION, *names.KIND, *names.AGENT_NAME):  # what the event says already
        if attributes.get(name) in (raw_type, agent):
            attributes.pop(name, None)
    model = text_of(taken(attributes, names.MODEL))
    tool = text_of(taken(attributes, names.TOOL_NAME)) if role == "tool_call" else None
    return Node(
        event_id=event_id,
        span_id=span.span_id,
        parent_id=span.parent_id,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        role=role,
        raw_type=raw_type or span.name or None,
        agent=agent,
        is_named=is_named,
        thing=(tool if role == "tool_call" else model if role in _CALLING else None) or span.name or None,
        model=model,
        system=system_prompt(texts.messages) if role == "model_call" else None,
        messages=texts.messages,
        input=texts.input,
        output=texts.output,
        input_tokens=_count(attributes, names.INPUT_TOKENS),
        output_tokens=_count(attributes, names.OUTPUT_TOKENS),
        response_id=next((str(attributes[name]) for name in names.RESPONSE_ID if name in attributes), None),
        error=_error(span, attributes),
        status=span.status,
        scope=span.scope,
        resource=span.resource,
        extra=_extra(span, texts.answers, None if role in _CALLING else model),
        node_id=str(attributes[names.NODE_ID]) if names.NODE_ID in attributes else None,
        node_parent=str(attributes[names.NODE_PARENT]) if names.NODE_PARENT in attributes else None,
        handoff=handoff,
        attributes=attributes,
    )


def bare(name: str) -> str:
    """Return an agent's name without what instrumentations put around it.

    >>> bare("invoke_agent critic"), bare("manager.run"), bare("agent_run [critic]"), bare(".run")
    ('critic', 'manager', 'critic', '.run')
    """
    for prefix in names.NAME_PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return name[len(prefix) :].strip("[]") or name
    return next((name[: -len(end)] for end in names.NAME_SUFFIXES if name.endswith(end) and name != end), name)


def _role(attributes: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the role of a span, and the word that says so; a word that the table does not have gives none."""
    word = None
    for name in (*names.OPERATION, *names.KIND):
        if (value := attributes.get(name)) is None:
            continue
        word = word or str(value)
        if (role := names.ROLES.get(str(value).lower())) is not None:
            return role, word
    if isinstance(operation := attributes.get(names.VERCEL_OPERATION), str):
        return names.VERCEL_ROLES.get(operation.rpartition(".")[2], "chain"), word or operation
    if word is None and (_has(attributes, names.INPUT_TOKENS) or _has(attributes, names.MODEL)):
        return "model_call", None
    return None, word


def _has(attributes: dict[str, Any], wanted: tuple[str, ...]) -> bool:
    return any(name in attributes for name in wanted)


def _agent(role: str | None, span: Span, attributes: dict[str, Any]) -> tuple[str | None, bool]:
    """Return the agent that a span names as its own, and whether a run of an agent names it other than in its title."""
    wanted: tuple[str, ...] = names.AGENT_NAME
    if role in ("agent_run", "chain", None):
        wanted = (*names.NODE_NAME, *wanted)
    if role == "agent_run":
        wanted = (*wanted, names.ENTITY_NAME)
    for name in wanted:
        if (agent := _agent_name(attributes.get(name))) is not None:
            return (bare(agent) if name == names.ENTITY_NAME else agent), True
    if role not in ("agent_run", "create_agent") or not span.name:
        return None, False
    return _agent_name(bare(span.name)), span.name.startswith(names.NAME_PREFIXES)


def _agent_name(value: Any) -> str | None:
    text = str(value).strip() if isinstance(value, str | int) else ""
    return shortened(text) if text.lower() not in names.NOBODY else None


def _count(attributes: dict[str, Any], wanted: tuple[str, ...]) -> int | None:
    for name in wanted:
        value = attributes.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < 17:
            value = int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_TOKENS:
            value = int(value)
        if type(value) is int and 0 <= value <= _MAX_TOKENS:
            return value
    return None


def _error(span: Span, attributes: dict[str, Any]) -> str | None:
    raised = next((event for event in span.events if event.name == names.EXCEPTION), None)
    if span.status != "error" and (span.status == "ok" or raised is None):
        kind = attributes.get(names.ERROR_TYPE)
        return str(kind) if kind is not None and span.status != "ok" else None
    told = [span.status_message] if span.status_message else []
    if raised is not None and not told:
        told = [str(value) for key in names.EXCEPTION_SAYS if (value := raised.attributes.get(key))]
    return ": ".join(told) or str(attributes.get(names.ERROR_TYPE) or "error")


def _extra(span: Span, answers: tuple[Message, ...], model: str | None) -> dict[str, Any]:
    """Return what has no field of its own in an event."""
    events = [_event(event) for event in span.events if event.name not in _USED_EVENTS]
    beside = {
        "answers": list(answers),
        "model": model,
        "span_kind": span.kind if span.kind != "internal" else None,
        "span_events": events,
    }
    return {**span.extra, **{key: value for key, value in beside.items() if value}}


def _event(event: SpanEvent) -> dict[str, Any]:
    said_at = {} if event.time_ns is None else {"t_s": event.time_ns / 10**9}
    return {"name": event.name, **said_at, **({"attributes": event.attributes} if event.attributes else {})}
