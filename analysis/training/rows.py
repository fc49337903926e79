"""The canonical training row, and how it lies on disk: one agent's contiguous token history in one trace.

The Arrow schema is fixed here, never inferred from the first batch. What differs from row to row in shape
(messages, tools, shares) is JSON text, because readers merge nested objects and fill what is missing with nulls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

SCHEMA_VERSION = "counterpoint-rows/1"

Message = dict[str, Any]


class RowEvent(msgspec.Struct, frozen=True):
    """Where an event of the trace stands in the row: characters `char_from` to `char_to` of `message_text` of that message.

    The span is empty where the event has no words of its own. Credit stands only in the row of the agent that wrote the
    event, raw, with its standard error, n and evidence (`method`); without a credit all four are None.
    """

    event_id: str
    message: int
    kind: str | None
    char_from: int
    char_to: int
    credit: float | None
    credit_se: float | None
    n: int | None
    method: str | None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's contiguous history in one trace, as the messages of an OpenAI chat.

    `arguments` of tool calls are JSON text. `keep` and `weight` have one value a message; `keep` is true only on
    messages of the assistant, and says that a loss may be taken there; `weight` is the sampling weight of the trace
    times that of the segment. `task_id` is ``""`` where there is none. Group statistics go over `rollout_id` (the
    trace), never over rows: a team of nine must not count nine times.
    """

    row_id: str
    trace_id: str
    rollout_id: str
    task_id: str
    group: str
    world: str
    agent: str
    component: str
    turn_from: int | None
    turn_to: int | None
    messages: list[Message]
    tools: list[dict[str, Any]] | None
    events: list[RowEvent]
    keep: list[bool]
    weight: list[float]
    reward: float | None
    residual_norm: float | None
    residual_share: dict[str, float]
    d_req: float | None
    d_orch: float | None
    stage: str | None
    order_key: int
    family: str | None
    failure_mode: str | None
    split: str
    source_sha256: str
    row_sha256: str
    schema_version: str


_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()
_EVENT = pa.struct(
    {"event_id": _TEXT, "message": _WHOLE, "kind": _TEXT, "char_from": _WHOLE, "char_to": _WHOLE, "credit": _REAL}
    | {"credit_se": _REAL, "n": _WHOLE, "method": _TEXT}
)

#: The columns of `data/*.parquet`, in their order.
SCHEMA = pa.schema(
    dict.fromkeys(("row_id", "trace_id", "rollout_id", "task_id", "group", "world", "agent", "component"), _TEXT)
    | {"turn_from": _WHOLE, "turn_to": _WHOLE, "messages": _TEXT, "tools": _TEXT, "events": pa.list_(_EVENT)}
    | {"keep": pa.list_(pa.bool_()), "weight": pa.list_(_REAL), "reward": _REAL, "residual_norm": _REAL}
    | {"residual_share": _TEXT, "d_req": _REAL, "d_orch": _REAL, "stage": _TEXT, "order_key": _WHOLE}
    | dict.fromkeys(("family", "failure_mode", "split", "source_sha256", "row_sha256", "schema_version"), _TEXT)
)
#: The columns that hold JSON text.
JSON_COLUMNS = ("messages", "tools", "residual_share")

_encode = msgspec.json.Encoder().encode


def signed(row: Row) -> Row:
    """Return the row with `row_sha256` set: the SHA-256 of its JSON with that field empty, fields in their order."""
    bare = msgspec.structs.replace(row, row_sha256="")
    return msgspec.structs.replace(row, row_sha256=hashlib.sha256(_encode(bare)).hexdigest())


def message_text(message: Message) -> str:
    """Return the characters that spans count: the content, then the arguments of its tool calls, one after another.

    >>> call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    >>> message_text({"role": "assistant", "content": "I add.", "tool_calls": [call]})
    'I add.{"a": 1}'
    """
    calls = message.get("tool_calls") or ()
    return "".join([message["content"], *(call["function"]["arguments"] for call in calls)])


def rows_to_table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as they lie on disk; `rows_from_table` gives them back equal."""
    columns = _columns(SCHEMA.names, rows)
    for name in JSON_COLUMNS:
        columns[name] = [None if value is None else _encode(value).decode() for value in columns[name]]
    arrays = {name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names if name != "events"}
    return pa.table({**arrays, "events": _events(columns["events"])}, schema=SCHEMA)


def rows_from_table(table: pa.Table) -> list[Row]:
    """Return the rows of a shard, or of a part of it."""
    return [msgspec.convert({**row, **_decoded(row)}, Row) for row in table.to_pylist()]


def _columns(names: Sequence[str], records: Sequence[Any]) -> dict[str, Sequence[Any]]:
    values = zip(*map(attrgetter(*names), records), strict=True) if records else repeat(())
    return dict(zip(names, values, strict=False))


def _events(lists: Sequence[Sequence[RowEvent]]) -> pa.Array:
    # Arrow takes ten times as long to find the same columns in a list of objects.
    flat = [event for events in lists for event in events]
    columns = _columns([field.name for field in _EVENT], flat)
    fields = [pa.array(columns[field.name], field.type) for field in _EVENT]
    ends = accumulate((len(events) for events in lists), initial=0)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.StructArray.from_arrays(fields, fields=list(_EVENT)))


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if row[name] is None else msgspec.json.decode(row[name]) for name in JSON_COLUMNS}
