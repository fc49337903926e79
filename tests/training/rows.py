"""Rows and pairs by hand, for the tests of views and bundles."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from analysis.counterfactual.dataset import PairRow
from analysis.training.rows import SCHEMA_VERSION, Row, RowEvent, signed

CALL = {"id": "c1", "type": "function", "function": {"name": "delegate", "arguments": '{"to": "coder"}'}}
TOOL = {
    "type": "function",
    "function": {
        "name": "delegate", "description": "Hand a part out.",
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
    },
}  # fmt: skip
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You lead a team."},
    {"role": "user", "content": "Join the parts."},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "part 1 is written"},
    {"role": "assistant", "content": "Joined."},
]
_ROW = Row(
    row_id="counterpoint:t1#planner#0", trace_id="counterpoint:t1", rollout_id="counterpoint:t1", task_id="task-1",
    group="task-1", world="simulated", agent="planner", component="planner", turn_from=0, turn_to=2, messages=CHAT, tools=[TOOL],
    events=[
        RowEvent("e1", 2, "delegate", 0, 0, 0.5, 0.1, 20, "interventional"),
        RowEvent("e2", 4, "stop", 0, 7, -0.1, 0.2, 20, "interventional"),
    ],
    keep=[False, False, True, False, True], weight=[1.0, 1.0, 2.0, 1.0, 0.5], reward=1.0, residual_norm=0.25,
    residual_share={"planner": 1.0}, d_req=0.4, d_orch=0.3, stage="orchestration", order_key=0, family="f1", failure_mode=None,
    split="train", source_sha256="0" * 64, row_sha256="", schema_version=SCHEMA_VERSION,
)  # fmt: skip


def row(**changed: Any) -> Row:
    """Return the row of a planner that delegates and stops, with fields changed."""
    return signed(msgspec.structs.replace(_ROW, **changed))


def plain(n: int = 1, *, split: str = "train") -> Row:
    """Return a row without tools: a question and an answer."""
    chat = [{"role": "user", "content": f"What is {n} + {n}?"}, {"role": "assistant", "content": str(2 * n)}]
    return row(
        row_id=f"counterpoint:p{n}#solver#0", trace_id=f"counterpoint:p{n}", rollout_id=f"counterpoint:p{n}", task_id=f"sum-{n}",
        group=f"sum-{n}", agent="solver", component="solver", messages=chat, tools=None, events=[], keep=[False, True],
        weight=[1.0, 1.0], split=split, order_key=n,
    )  # fmt: skip


def canonical(value: Any) -> str:
    """Return JSON that is the same for the same values."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)


_PAIR = PairRow(
    pair_id="p1", trace_id="counterpoint:t1", task_id="task-1", event_id="e2", event_kind="stop", operator="stop-later",
    parameters='{"x": 1}', metric="passed", agent="planner", prompt=CHAT[:2],
    original=[{"role": "assistant", "content": '{"decision": "stop"}'}],
    counterfactual=[{"role": "assistant", "content": '{"decision": "check again"}'}],
    delta_q=0.4, credit=-0.4, better="higher", low=0.2, high=0.6, n=20, evidence="interventional", world="simulated",
    seed_block="confirm", confirmed=True, split="train",
)  # fmt: skip


def pair(**changed: Any) -> PairRow:
    """Return a counterfactual whose alternative was better, with fields changed."""
    return msgspec.structs.replace(_PAIR, **changed)
