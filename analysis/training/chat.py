"""Chat messages in the spellings of strangers, as the one form of training rows; and the tools that were offered.

Decides what a message keeps: role, text, tool calls with their arguments as JSON text, which call a result answers.
Hides OpenAI's, Anthropic's and OpenTelemetry's spellings. Parts that are no text (images, reasoning) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from analysis.model import Event
from analysis.training.rows import Message

_ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant", "ai": "assistant",
    "model": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
_CALLS = ("tool_call", "tool_use", "function_call")
_RESULTS = ("tool_call_response", "tool_result", "function_call_output")
_DEFINITIONS = ("gen_ai.tool.definitions", "ai.prompt.tools")
_SCHEMAS = ("parameters", "input_schema", "inputSchema")

_encode = msgspec.json.Encoder().encode


def chat(values: Iterable[dict[str, Any]]) -> list[Message]:
    """Return messages in the form of training rows; what has no role of a chat is left out.

    An assistant's message of calls alone joins the one before it, as one answer is often told in pieces.

    >>> said = {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "add", "arguments": {"a": 1}}]}
    >>> chat([{"role": "human", "content": "1?"}, said])[1]["tool_calls"][0]["function"]
    {'name': 'add', 'arguments': '{"a":1}'}
    """
    messages: list[Message] = []
    for message in (m for value in values for m in _messages(value)):
        before = messages[-1] if messages else None
        if before and before["role"] == message["role"] == "assistant" and not message["content"] and "tool_calls" in message:
            messages[-1] = before | {"tool_calls": [*before.get("tool_calls", ()), *message["tool_calls"]]}
        else:
            messages.append(message)
    return messages


def answer_of(event: Event) -> Message | None:
    """Return what a model call answered, with its tool calls; None where nothing is recorded."""
    answers = event.extra.get("answers")
    said = chat([m for m in answers if isinstance(m, dict)]) if isinstance(answers, list) else _answers_in(event.content)
    if spoken := [m for m in said if m["role"] == "assistant"]:
        return spoken[0]
    return {"role": "assistant", "content": event.content} if event.content else None


def arguments_text(value: Any) -> str:
    """Return the arguments of a call as the JSON text of an object; a text that is none becomes its `input`.

    >>> arguments_text({"a": None}), arguments_text('{"b": 2}'), arguments_text("ls -l"), arguments_text(None)
    ('{"a":null}', '{"b": 2}', '{"input":"ls -l"}', '{}')
    """
    if value is None or value == "":
        return "{}"
    if isinstance(value, str) and isinstance(_decoded(value), dict):
        return value
    return _encode(value if isinstance(value, dict) else {"input": value}).decode()


def call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    """Return one tool call."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments_text(arguments)}}


def same(one: Message, other: Message) -> bool:
    """Tell whether two messages say the same: ids of calls and the spacing of arguments do not matter."""
    if one["role"] != other["role"] or one["content"] != other["content"]:
        return False
    calls, others = one.get("tool_calls", ()), other.get("tool_calls", ())
    return len(calls) == len(others) and all(
        a["name"] == b["name"] and _decoded(a["arguments"]) == _decoded(b["arguments"])
        for a, b in zip((one["function"] for one in calls), (one["function"] for one in others), strict=True)
    )


def tools_of(event: Event) -> list[dict[str, Any]] | None:
    """Return the tools a model call was offered, in OpenAI's form; None where none are recorded."""
    attributes = event.extra.get("attributes")
    if not isinstance(attributes, dict):
        return None
    given: list[Any] = [value for name, value in attributes.items() if name.startswith("llm.tools.")]
    for name in _DEFINITIONS:
        listed = _decoded(attributes.get(name))
        given += listed if isinstance(listed, list) else []
    tools = [tool for value in given if (tool := _tool(_decoded(value))) is not None]
    return tools or None


def _messages(value: dict[str, Any]) -> Iterator[Message]:
    role = _ROLES.get(str(value.get("role", "")).lower())
    if role is None:
        return
    content = value.get("parts") or value.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    results = [part for part in parts if part.get("type") in _RESULTS]
    for part in results:
        given = next((part[name] for name in ("response", "result", "content", "output") if name in part), None)
        yield {
            "role": "tool",
            "tool_call_id": _first(part, "id", "tool_call_id", "tool_use_id", "call_id"),
            "content": _text(given),
        }
    text = _text(content)
    if role == "tool":
        if not results:
            yield {"role": "tool", "tool_call_id": _first(value, "tool_call_id", "id"), "content": text}
        return
    calls = [*_calls(value.get("tool_calls") or ()), *_calls([part for part in parts if part.get("type") in _CALLS])]
    if text or calls or not results:
        yield {"role": role, "content": text} | ({"tool_calls": calls} if calls and role == "assistant" else {})


def _calls(values: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for value in values:
        if not isinstance(value, dict):
            continue
        inner = value["function"] if isinstance(value.get("function"), dict) else value
        given = next((inner[name] for name in ("arguments", "input", "args") if name in inner), None)
        yield call(_first(value, "id", "call_id"), _first(inner, "name"), given)


def _first(value: dict[str, Any], *names: str) -> str:
    """Return the first of the fields that is set, as text."""
    return next((str(value[name]) for name in names if value.get(name)), "")


def _text(value: Any) -> str:
    """Return the words of a content: text as it stands, the texts of a list of parts, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(part, dict) and "type" in part for part in value):
        texts = [part.get("text", part.get("content")) for part in value if part["type"] in ("text", "input_text", "output_text")]
        return "\n".join([text for text in texts if isinstance(text, str)])
    return _encode(value).decode()


def _answers_in(content: str | None) -> list[Message]:
    """Return the messages that a content holds as JSON, which is how an answer of calls alone is kept."""
    listed = _decoded(content) if content and content.startswith("[{") else None
    return chat(m for m in listed if isinstance(m, dict)) if isinstance(listed, list) else []


def _tool(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    if not isinstance(inner.get("name"), str):
        return None
    schema = next((inner[name] for name in _SCHEMAS if isinstance(inner.get(name), dict)), {"type": "object", "properties": {}})
    about = {"description": inner["description"]} if isinstance(inner.get("description"), str) else {}
    return {"type": "function", "function": {"name": inner["name"], **about, "parameters": schema}}


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return None
