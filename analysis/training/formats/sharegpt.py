"""LLaMA-Factory 0.9 and ms-swift 4: conversations whose tool calls are turns of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from analysis.training.formats import shapes
from analysis.training.formats.files import pairs_of, write_lines
from analysis.training.rows import Message, Row

_ASKING, _ANSWERING = ("human", "observation"), ("gpt", "function_call")
_NAMES = {"user": "human", "tool": "observation"}


class LlamaFactory:
    """ShareGPT turns that alternate strictly, with `dataset_info.json`."""

    takes: Literal["rows"] = "rows"
    about = (
        "Takes strict alternation only: what others say in a row becomes one turn, and so do texts of the agent, parted by blank "
        "lines. Rows with masked messages are refused, and text beside a tool call, which its converter would drop. It cuts at "
        "`cutoff_len` tokens, by default 2,048."
    )

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"conversations": "list of {from, value}", "system": "text", "tools": "JSON text", "row_id": "text"}

    def check(self, row: Row) -> list[str]:
        """Return why the loader would drop the row or a part of it."""
        problems = shapes.all_or_nothing(row, "LLaMA-Factory")
        if any(m.get("tool_calls") and m.get("content") for m in row.messages):
            problems.append("text beside a tool call is thrown away")
        if not all(map(_is_worded, row.tools or ())):
            problems.append("its loader stops at a tool with a parameter that is no object, or a choice that is no text")
        if shapes.late_system(row):
            problems.append("a system message after the first one")
        turns = [turn["from"] for turn in _turns(row)]
        if not turns or turns[0] not in _ASKING or turns[-1] not in _ANSWERING:
            problems.append("the conversation does not go from a question to an answer")
        elif any((a in _ASKING) == (b in _ASKING) for a, b in pairwise(turns)):
            problems.append("a tool call beside another turn of the agent")
        return problems

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files and `dataset_info.json`."""
        counts = write_lines(folder, pairs_of(rows, self._record))
        columns = {"messages": "conversations", "system": "system", "tools": "tools"}
        same = {"formatting": "sharegpt", "columns": columns}
        info = {f"counterpoint-{split}": {"file_name": f"{split}.jsonl", **same} for split in counts}
        (folder / "dataset_info.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
        return counts

    def _record(self, row: Row) -> dict[str, Any]:
        first = row.messages[0]
        system = first["content"] if first["role"] == "system" else ""
        tools = json.dumps([_with_properties(tool) for tool in row.tools or []], ensure_ascii=False)
        return {"conversations": _turns(row), "system": system, "tools": tools, "row_id": row.row_id}


class Swift:
    """Messages with `loss` and `loss_scale` on each that an agent wrote."""

    takes: Literal["rows"] = "rows"
    about = (
        "Masks are `loss`, weights `loss_scale`, a message each; it throws weights away without `--is_binary_loss_scale false`, "
        "and the mark at the end of a turn weighs 1. "
        "An agent template of the ReAct kind prints arguments as Python does: take `--agent_template hermes` or another of JSON. "
        "Its templates stop at words between a tool's result and the agent, which become part of the result. ms-swift deletes "
        "columns it does not know: keep the bundle."
    )

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"messages": "list of {role, content, loss, loss_scale}", "tools": "JSON text"}

    def check(self, row: Row) -> list[str]:
        """Return why the loader would refuse the row."""
        problems = shapes.nothing_own(row) + shapes.unanswered(row)
        return problems + (["a system message after the first one"] if shapes.late_system(row) else [])

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files."""
        return write_lines(folder, pairs_of(rows, self._record))

    def _record(self, row: Row) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        turns = [turn for n in range(len(row.messages)) for turn in _swift_turns(row, n)]
        for turn in turns:
            if turn["role"] == "user" and messages and messages[-1]["role"] == "tool_response":
                messages[-1]["content"] += f"\n\n{turn['content']}"
            else:
                messages.append(turn)
        return {"messages": messages, "tools": shapes.tools_text(row)}


def _with_properties(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool whose schema lists properties, without which the loader stops."""
    function = tool["function"]
    schema = {"type": "object", "properties": {}, **(function.get("parameters") or {})}
    return {**tool, "function": {**function, "parameters": schema}}


def _is_worded(tool: dict[str, Any]) -> bool:
    """Tell whether the loader can put the parameters of a tool into words."""
    properties = _with_properties(tool)["function"]["parameters"]["properties"]
    return isinstance(properties, dict) and all(
        isinstance(one, dict)
        and isinstance(one.get("items") or {}, dict)
        and all(isinstance(choice, str) for choice in one.get("enum") or ())
        for one in properties.values()
    )


def _turns(row: Row) -> list[dict[str, str]]:
    """Return the turns after the system message; those of others that follow each other are one, and so are the agent's texts."""
    turns: list[dict[str, str]] = []
    for message in row.messages[1:] if row.messages[0]["role"] == "system" else row.messages:
        name, text = _turn(message)
        if turns and name in _ASKING and turns[-1]["from"] in _ASKING:
            # Results and words of others that came together: an observation where one of them is a result.
            kind = "observation" if "observation" in (name, turns[-1]["from"]) else "human"
            turns[-1] = {"from": kind, "value": f"{turns[-1]['value']}\n\n{text}"}
        elif turns and name == turns[-1]["from"] == "gpt":
            turns[-1] = {"from": name, "value": f"{turns[-1]['value']}\n\n{text}"}
        else:
            turns.append({"from": name, "value": text})
    return turns


def _turn(message: Message) -> tuple[str, str]:
    calls = message.get("tool_calls")
    if calls:
        return "function_call", json.dumps([_call(call) for call in calls], ensure_ascii=False)
    return _NAMES.get(message["role"], "gpt"), message.get("content") or ""


def _call(call: dict[str, Any]) -> dict[str, Any]:
    return {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}


def _swift_turns(row: Row, n: int) -> list[dict[str, Any]]:
    message = row.messages[n]
    if message["role"] == "tool":
        return [{"role": "tool_response", "content": message.get("content") or ""}]
    if message["role"] != "assistant":
        return [{"role": message["role"], "content": message.get("content") or ""}]
    trains: dict[str, Any] = {"loss": row.keep[n], "loss_scale": row.weight[n] if row.keep[n] else 0.0}
    calls, text = message.get("tool_calls") or (), message.get("content") or ""
    said = [{"role": "assistant", "content": text, **trains}] if text or not calls else []
    return said + [{"role": "tool_call", "content": json.dumps(_call(call), ensure_ascii=False), **trains} for call in calls]
