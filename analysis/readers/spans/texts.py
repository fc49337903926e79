"""What was said to a span and by it: chat messages in five spellings, plain inputs and outputs.

Hides where a convention puts the texts: JSON in a string, numbered attributes, events of the span. JSON in a string is
decoded once and only up to a size; where it is not valid (NaN, half a character, cut off) the text stands as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from analysis.readers.spans import names
from analysis.readers.spans.span import SpanEvent
from analysis.readers.spans.values import MAX_NESTING

_MAX_JSON: Final = 8 << 20  # characters of a text that is decoded
_MAX_STEPS: Final = 12  # of a numbered attribute's name
_NUMBERED = (*names.NUMBERED_INPUT, *names.NUMBERED_OUTPUT)

Message = dict[str, Any]


class Said(NamedTuple):
    """What came in, as messages and as one text, what came out as one text, and the answers that are more than text."""

    messages: tuple[Message, ...]
    input: str | None
    output: str | None
    answers: tuple[Message, ...]


def said(attributes: dict[str, Any], events: list[SpanEvent], *, is_model: bool) -> Said:
    """Return what a span was told and answered; the attributes that say it are taken out of `attributes`.

    Beside a model's answer its plain output is the raw response; of any other span the plain output is the last word.
    """
    numbered = _numbered(attributes)
    into = [*_listed(attributes, names.SYSTEM, "system"), *_listed(attributes, names.INPUT_MESSAGES, "user")]
    out = [*_listed(attributes, names.OUTPUT_MESSAGES, "assistant")]
    into += [m for name in names.NUMBERED_INPUT for m in numbered.get(name, ())]
    out += [m for name in names.NUMBERED_OUTPUT for m in numbered.get(name, ())]
    if events:
        told, answered = _noted(events)
        into, out = into or told, out or answered
    asked, given = text_of(taken(attributes, names.INPUT)), text_of(taken(attributes, names.OUTPUT))
    for name in names.MIME_TYPES:
        attributes.pop(name, None)
    if asked is not None and not into:
        into = [{"role": "input", "content": asked}]
    spoken = "\n".join(text for message in out if (text := _words(message)))
    first, second = (spoken, given) if is_model else (given, spoken)
    output = first or second or (_compact(out) if out else given)
    answers = tuple(message for message in out if not _is_text(message)) if spoken or given else ()
    return Said(tuple(into), asked if asked is not None else _request(into), output, answers)


def system_prompt(messages: tuple[Message, ...]) -> str | None:
    """Return the text of a first message of the role `system`, if there is one."""
    return (_words(messages[0]) or None) if messages and messages[0].get("role") == "system" else None


def taken(attributes: dict[str, Any], wanted: Iterable[str]) -> Any:
    """Take the first of the attributes that is there, and return its value."""
    for name in wanted:
        if attributes.get(name) is not None:
            return attributes.pop(name)
    return None


def text_of(value: Any) -> str | None:
    """Return a value as text: text as it stands, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return _compact(value)


def decoded(text: str) -> Any:
    """Return the JSON value that a text holds, or None where it holds none, is too long or nested too deeply.

    >>> decoded('[{"role": "user"}]'), decoded("[NaN]"), decoded("[" * 200 + "]" * 200)
    ([{'role': 'user'}], None, None)
    """
    if len(text) > _MAX_JSON or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return None
    return value if text.count("[") + text.count("{") <= MAX_NESTING or not _is_deep(value) else None


def _is_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(MAX_NESTING):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(layer)


def _listed(attributes: dict[str, Any], wanted: tuple[str, ...], role: str) -> Iterator[Message]:
    """Yield the messages of a list, or of JSON text that holds one; other text is one message of that role."""
    value = taken(attributes, wanted)
    if value is None:
        return
    if isinstance(value, str):
        read = decoded(value)
        value = {"role": role, "content": value} if read is None else read
    members = value if isinstance(value, list) else [value]
    if members and all(isinstance(m, dict) and "role" not in m for m in members) and role == "system":
        yield {"role": role, "parts": members}
        return
    for member in members:
        yield member if isinstance(member, dict) else {"role": role, "content": text_of(member)}


def _numbered(attributes: dict[str, Any]) -> dict[str, list[Message]]:
    """Take out `llm.input_messages.0.message.role` and the like, and return the messages they make, by prefix."""
    keys = [key for key in attributes if key.startswith(_NUMBERED)]
    trees: dict[str, dict[str, Any]] = {}
    for key in keys:
        prefix = next(name for name in _NUMBERED if key.startswith(name))
        if not key[len(prefix) : len(prefix) + 1].isdigit():  # gen_ai.prompt.name is another thing
            continue
        steps = key[len(prefix) :].split(".", _MAX_STEPS)
        node = trees.setdefault(prefix, {})
        for step in steps[:-1]:
            inner = node.setdefault(step, {})
            node = inner if isinstance(inner, dict) else node
        node[steps[-1]] = attributes.pop(key)
    return {prefix: [_message(n, tree[n]) for n in _in_number(tree)] for prefix, tree in trees.items()}


def _in_number(tree: dict[str, Any]) -> list[str]:
    return sorted(tree, key=lambda step: (not step.isdecimal(), len(step), step))


def _message(number: str, node: Any) -> Message:
    if isinstance(node, dict):
        node = node.get("message", node) if len(node) == 1 else node
    if isinstance(node, dict):
        return {key: _relisted(member) for key, member in node.items()}
    return {"role": number, "content": text_of(node)}


def _relisted(node: Any) -> Any:
    """Turn the numbered members of a tree back into lists; its depth is bounded by the steps of a name."""
    if not isinstance(node, dict):
        return node
    if node and all(step.isdecimal() for step in node):
        return [_relisted(node[step]) for step in _in_number(node)]
    if len(node) == 1 and next(iter(node)) in ("tool_call", "message_content"):
        return _relisted(next(iter(node.values())))
    return {step: _relisted(inner) for step, inner in node.items()}


def _noted(events: list[SpanEvent]) -> tuple[list[Message], list[Message]]:
    """Return the messages that stand in the events of a span: one an event, or all in one, or in its body."""
    into: list[Message] = []
    out: list[Message] = []
    for event in events:
        held = dict(event.attributes)
        if event.name in names.INPUT_EVENTS:
            role = (event.name or "").removeprefix("gen_ai.").removesuffix(".message")
            into.append({"role": role, **_opened(held)})
        elif event.name == names.OUTPUT_EVENT:
            out.append({"role": "assistant", **_opened(held)})
        elif event.name in names.DETAIL_EVENTS:
            into += [*_listed(held, names.SYSTEM, "system"), *_listed(held, names.INPUT_MESSAGES, "user")]
            out += _listed(held, names.OUTPUT_MESSAGES, "assistant")
        if isinstance(body := held.get(names.EVENT_BODY), dict):
            into += _body(body.get("input"))
            out += _body(body.get("output"))
    return into, out


def _opened(held: dict[str, Any]) -> dict[str, Any]:
    opened = {}
    for key, value in held.items():
        read = decoded(value) if isinstance(value, str) else None
        opened["content" if key == "message" and "content" not in held else key] = value if read is None else read
    return opened


def _body(value: Any) -> list[Message]:
    messages = value.get("messages") if isinstance(value, dict) else None
    return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []


def _words(message: Message) -> str:
    """Return the text of a message: its content, or the text parts of it."""
    for key in ("content", "parts", "contents"):
        value = message.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return "\n".join(text for part in value if (text := _part(part)))
        if isinstance(value, dict) and (text := _part(value)):
            return text
    return ""


def _part(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type") not in (None, "text", "output_text", "input_text"):
        return None
    return next((part[key] for key in ("text", "content", "message") if isinstance(part.get(key), str)), None)


def _is_text(message: Message) -> bool:
    """Whether its role and text are all there is to it."""
    beside = message.keys() - {"role", "content", "parts", "contents", "finish_reason", "index"}
    parts: list[Any] = next((message[key] for key in ("parts", "contents", "content") if isinstance(message.get(key), list)), [])
    return not beside and all(_part(part) is not None for part in parts)


def _request(messages: list[Message]) -> str | None:
    """Return the last words of a user, or the one message there is, for a span that has no input but messages."""
    if len(messages) == 1:
        return _words(messages[0]) or text_of(messages[0].get("content"))
    return next((text for m in reversed(messages) if m.get("role") == "user" and (text := _words(m))), None)


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()
