"""verl 0.9: Parquet for policy training and for supervised training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.training.formats import shapes
from analysis.training.formats.files import pairs_of, write_parquet
from analysis.training.rows import Row

_TEXT = pa.string()
_CALL = pa.struct({"id": _TEXT, "type": _TEXT, "function": pa.struct({"name": _TEXT, "arguments": _TEXT})})


class Rl:
    """Prompts with what the outcome was, for a reward function of one's own; credit enters by `objective.verl_orch`."""

    takes: Literal["rows"] = "rows"
    about = (
        "`reward_model.ground_truth` is JSON text of the recorded reward and task: your reward function reads it. Tools are not "
        "in the prompt. Event credit enters by the estimator `grpo_orch` of `objective/verl_orch.py`. verl leaves out prompts of "
        "more than `data.max_prompt_length` tokens, by default 1,024."
    )
    _schema = pa.schema(
        {
            "data_source": _TEXT, "prompt": pa.list_(pa.struct({"role": _TEXT, "content": _TEXT})), "ability": _TEXT,
            "reward_model": pa.struct({"style": _TEXT, "ground_truth": _TEXT}),
            "extra_info": pa.struct({"index": pa.int64(), "split": _TEXT, "task_id": _TEXT, "stage": _TEXT, "row_id": _TEXT}),
        }
    )  # fmt: skip

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {field.name: str(field.type) for field in self._schema}

    def check(self, row: Row) -> list[str]:
        """Return why the trainer could not use the row."""
        problems = shapes.unprompted(row)
        if any(message.get("tool_calls") or message["role"] == "tool" for message in shapes.prompt(row)):
            problems.append("the prompt holds tool calls, which verl's prompts do not")
        return problems + ([] if row.reward is not None else ["the run has no outcome"])

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write each prompt once, with the first outcome that was recorded."""
        return write_parquet(folder, self._records(rows), self._schema)

    def _records(self, rows: Iterable[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
        seen: dict[str, set[bytes]] = {}
        for row in rows:
            split = row.split or "train"
            known = seen.setdefault(split, set())
            prompt = [{"role": m["role"], "content": m["content"]} for m in shapes.prompt(row)]
            key = hashlib.sha256(json.dumps(prompt).encode()).digest()
            if key in known:
                continue
            known.add(key)
            truth = json.dumps({"reward": row.reward, "task_id": row.task_id, "trace_id": row.trace_id})
            info = {"index": len(known) - 1, "split": split, "task_id": row.task_id, "stage": row.stage, "row_id": row.row_id}
            yield split, {
                "data_source": "counterpoint", "prompt": prompt, "ability": row.component,
                "reward_model": {"style": "rule", "ground_truth": truth}, "extra_info": info,
            }  # fmt: skip


class Sft:
    """Whole conversations, a file for each set of tools: `SPLIT-TOOLS.parquet`."""

    takes: Literal["rows"] = "rows"
    about = (
        "Trains on every assistant message alike: rows with masked messages are refused, weights are lost. verl wants tools as "
        "objects, which Parquet merges: a file for each set of tools, all of which go into `data.train_files`, and sets whose "
        "schemas would gain nulls are refused. Keys that a message lacks are null: a template that asks whether a key is there "
        "(Llama 3.1's) stops. Above `data.max_length`, by default 1,024 tokens, verl stops."
    )

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"messages": "list of structs, arguments as JSON text", "tools": "list of structs", "row_id": "text"}

    def check(self, row: Row) -> list[str]:
        """Return why the trainer could not use the row as it is."""
        problems = shapes.all_or_nothing(row, "verl's SFT") + shapes.unanswered(row)
        if row.tools and pa.array(row.tools).to_pylist() != row.tools:
            problems.append("its tools differ in shape, and verl's reader would fill them up with nulls")
        return problems

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files; of each set of tools those that belong together."""
        staged = folder / ".parts"
        counts = write_parquet(staged, self._staged(rows), _staged_schema())
        for part in sorted(staged.glob("*.parquet")):
            table = pq.read_table(part)
            tools = json.loads(table["tools"][0].as_py())
            column = pa.array([tools] * table.num_rows, pa.array([tools]).type)  # a list even where empty: verl stops at null
            pq.write_table(table.set_column(table.schema.get_field_index("tools"), "tools", column), folder / part.name)
            part.unlink()
        staged.rmdir()
        found: dict[str, int] = {}
        for name, n in counts.items():
            split = name.rpartition("-")[0]
            found[split] = found.get(split, 0) + n
        return found

    def _staged(self, rows: Iterable[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
        for split, record in pairs_of(rows, self._record):
            yield f"{split}-{hashlib.sha256(record['tools'].encode()).hexdigest()[:8]}", record

    def _record(self, row: Row) -> dict[str, Any]:
        messages = [shapes.filled(message) for message in row.messages]
        fields = ("role", "content", "tool_calls", "tool_call_id", "name")
        shaped = [{name: message.get(name) for name in fields} for message in messages]
        return {"messages": shaped, "tools": shapes.tools_text(row), "row_id": row.row_id}


def _staged_schema() -> pa.Schema:
    message = pa.struct({"role": _TEXT, "content": _TEXT, "tool_calls": pa.list_(_CALL), "tool_call_id": _TEXT, "name": _TEXT})
    return pa.schema({"messages": pa.list_(message), "tools": _TEXT, "row_id": _TEXT})
