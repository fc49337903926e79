"""The JSON values of a stranger's line: each may be of any type, and what does not fit counts as absent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

Block = dict[str, Any]  # a part of what a line says: text, a tool's call, its result, ...


def name_of(value: Any) -> str | None:
    """Return a value that can serve as an id, or None."""
    return value if isinstance(value, str) and 0 < len(value) <= 400 else None


def mapping(value: Any) -> dict[str, Any]:
    """Return the value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def plain(value: Any) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()


def blocks_of(content: Any) -> tuple[Block, ...]:
    """Return the blocks of a content, which may be a bare text."""
    members = content if isinstance(content, list) else [] if content is None else [content]
    return tuple(m if isinstance(m, dict) else {"type": "text", "text": m if isinstance(m, str) else plain(m)} for m in members)


def words(blocks: Iterable[Block]) -> tuple[str | None, list[str]]:
    """Return the text of blocks, and the types of those that are no text.

    >>> words([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}])
    ('a\\n\\nb', ['image'])
    """
    texts, others = [], []
    for block in blocks:
        if block.get("type") == "text" and isinstance(text := block.get("text"), str):
            texts.append(text)
        else:
            others.append(str(block.get("type")))
    return "\n\n".join(texts) if texts else None, others


def is_result(block: Block) -> bool:
    """Whether the block is the result of a tool."""
    return str(block.get("type")).endswith("tool_result")


def is_use(block: Block) -> bool:
    """Whether the block calls a tool."""
    return str(block.get("type")).endswith("tool_use")
