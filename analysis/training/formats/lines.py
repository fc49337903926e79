"""Targets that read OpenAI messages from JSON lines: Axolotl, OpenRLHF, Agent Lightning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from analysis.training.formats import shapes
from analysis.training.formats.files import pairs_of, write_lines, write_yaml
from analysis.training.rows import Row

_MOST_TOKENS = 32_768  # of a row; by default Axolotl leaves out what has more than 512, OpenRLHF what has more than 2,048

#: How OpenRLHF is told to read the view.
OPENRLHF_ARGUMENTS = (
    "--data.dataset", "train.jsonl", "--data.input_key", "messages", "--data.apply_chat_template", "--data.multiturn",
    "--data.max_len", str(_MOST_TOKENS),
)  # fmt: skip


class Axolotl:
    """Messages with `training` on each, for `type: chat_template`."""

    takes: Literal["rows"] = "rows"
    about = "Masks are `training`, a message each; weights are lost."

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"messages": "list of messages with `training`", "tools": "JSON text", "row_id": "text"}

    def check(self, row: Row) -> list[str]:
        """Return why the trainer could not use the row."""
        return shapes.nothing_own(row) + shapes.unanswered(row)

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files and `axolotl.yaml`."""
        counts = write_lines(folder, pairs_of(rows, self._record))
        data = {
            "path": "train.jsonl", "ds_type": "json", "type": "chat_template", "field_messages": "messages",
            "message_field_training": "training", "roles_to_train": [], "train_on_eos": "turn",
            # Else it looks up in the template what to keep of a message, and finds no calls unless the loop says `message`.
            "message_property_mappings": {name: name for name in ("role", "content", "tool_calls", "tool_call_id", "name")},
        }  # fmt: skip
        values = {
            "base_model": "PUT A MODEL HERE", "datasets": [data], "sample_packing": False, "sequence_len": _MOST_TOKENS,
            "excess_length_strategy": "raise", "output_dir": "out",
        }  # fmt: skip
        write_yaml(folder / "axolotl.yaml", values, comment="cd here, then: axolotl train axolotl.yaml")
        return counts

    def _record(self, row: Row) -> dict[str, Any]:
        messages = [{**shapes.filled(m), "training": keep} for m, keep in zip(row.messages, row.keep, strict=True)]
        return {"messages": messages, "tools": shapes.tools_text(row), "row_id": row.row_id}


class OpenRlhf:
    """Whole conversations for its multi-turn supervised training."""

    takes: Literal["rows"] = "rows"
    about = "Trains on every assistant message alike and passes no tools to the template: rows with either are refused."

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"messages": "list of {role, content}", "datasource": "text", "label": "float", "row_id": "text"}

    def check(self, row: Row) -> list[str]:
        """Return why the trainer could not express the row."""
        has_tools = any(m["role"] == "tool" or m.get("tool_calls") for m in row.messages)
        problems = shapes.all_or_nothing(row, "OpenRLHF") + shapes.unprompted(row)  # a template stops at a chat without messages
        return problems + (["OpenRLHF renders no tool calls"] if has_tools else [])

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files and the arguments of the command."""
        counts = write_lines(folder, pairs_of(rows, self._record))
        (folder / "arguments.txt").write_text(" ".join(OPENRLHF_ARGUMENTS) + "\n", encoding="utf-8")
        return counts

    def _record(self, row: Row) -> dict[str, Any]:
        messages = [{"role": m["role"], "content": m.get("content") or ""} for m in row.messages]
        return {"messages": messages, "datasource": row.component, "label": row.reward, "row_id": row.row_id}


class AgentLightning:
    """The stream of events of each rollout: a `model_request` for each message the agent wrote, then the reward."""

    takes: Literal["rows"] = "rows"
    about = (
        "Messages instead of token ids, which nobody recorded; one reward a rollout, the same in all its rows, since Agent "
        "Lightning refuses others. Event credit rides along as events of type `counterpoint.credit`, which it keeps."
    )

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"rollout_id": "text", "type": "text", "data": "object"}

    def check(self, row: Row) -> list[str]:
        """Return why the trainer could not use the row."""
        return shapes.nothing_own(row) + ([] if row.reward is not None else ["the run has no outcome, so no reward"])

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files."""
        return write_lines(folder, self._events(rows))

    def _events(self, rows: Iterable[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
        for row in rows:
            same = {"rollout_id": row.rollout_id}
            for n, before, message in shapes.kept_turns(row):
                data = {"agent": row.agent, "group": row.group, "tools": row.tools or [], "messages": before, "response": message}
                yield row.split or "train", {**same, "type": "model_request", "data": data}
                for event in row.events:
                    if event.message == n and event.credit is not None:
                        credit = {"event_id": event.event_id, "credit": event.credit, "se": event.credit_se, "n": event.n}
                        yield row.split or "train", {**same, "type": "counterpoint.credit", "data": credit}
            reward = {"value": row.reward, "message": row.row_id, "source": "counterpoint", "reason": "recorded outcome"}
            yield row.split or "train", {**same, "type": "reward", "data": reward}
