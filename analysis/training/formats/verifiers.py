"""verifiers 0.4, record version 1: an episode a run, a trace an agent, a node a message with its typed causes.

No token ids are written, since nobody recorded them; masks and credit stand a message each under `info.counterpoint`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from analysis.training.formats import shapes
from analysis.training.formats.files import write_lines
from analysis.training.rows import Message, Row

_VERSION = 1


class Verifiers:
    """Episodes, JSON lines."""

    takes: Literal["rows"] = "rows"
    about = "Rows of one run are one episode; token ids, log-probabilities and per-token advantages are left to its renderer."

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"id": "text", "task": "object", "group": "object", "traces": "list of traces", "ok": "bool"}

    def check(self, row: Row) -> list[str]:
        """Return why the record would not be read."""
        return shapes.nothing_own(row) + shapes.unanswered(row)

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files; rows of one run follow each other."""
        return write_lines(folder, self._episodes(rows))

    def _episodes(self, rows: Iterable[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
        for rollout_id, members in groupby(rows, key=lambda row: row.rollout_id):
            own = list(members)
            task = _task(own[0])
            yield own[0].split or "train", {
                "id": _hash(rollout_id), "task": task, "group": {"id": own[0].group}, "ok": bool(own[0].reward),
                "traces": [_trace(row, task) for row in own],
            }  # fmt: skip


def _task(row: Row) -> dict[str, Any]:
    return {"type": "counterpoint", "data": {}, "key": row.task_id}


def _trace(row: Row, task: dict[str, Any]) -> dict[str, Any]:
    nodes = [_node(row, n) for n in range(len(row.messages))]
    paid = [event for event in row.events if event.credit is not None]
    credit = {event.event_id: {"message": event.message, "credit": event.credit, "se": event.credit_se} for event in paid}
    info: dict[str, Any] = {"trace_id": row.trace_id, "keep": row.keep, "weight": row.weight, "credit": credit}
    info["residual_norm"] = row.residual_norm
    rewards = {} if row.reward is None else {"outcome": {"score": row.reward, "weight": 1.0}}
    return {
        "version": _VERSION, "id": _hash(row.row_id), "task": task, "agent": {"config": {}, "name": row.agent}, "nodes": nodes,
        "rewards": rewards, "info": {"counterpoint": info}, "ok": bool(row.reward), "is_completed": True,
    }  # fmt: skip


def _node(row: Row, n: int) -> dict[str, Any]:
    # Times are not those of the run: a fixed one keeps equal inputs equal bytes.
    return {
        "parent": n - 1 if n else None, "message": _message(row.messages[n]), "timestamp": 0.0,
        "sampled": row.messages[n]["role"] == "assistant",
    }  # fmt: skip


def _message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message["role"], "content": message.get("content") or ""}
    if calls := message.get("tool_calls"):
        found["tool_calls"] = [{"id": call["id"], "type": "function", **call["function"]} for call in calls]
    if message["role"] == "tool":
        found["tool_call_id"] = message["tool_call_id"]
    return found


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
