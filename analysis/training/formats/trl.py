"""TRL 1.16: supervised, preference and policy training. Parquet whose messages are JSON, so that nothing gains nulls.

Templates ask whether a message has `tool_calls`; a reader that fills the key in with null breaks them. JSON elements keep
each message as it is, and no type is guessed from the first rows.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from analysis.counterfactual.dataset import PairRow, preferred
from analysis.errors import TrainingError
from analysis.training import environment, objective
from analysis.training.formats import shapes
from analysis.training.formats.files import JSON, pairs_of, write_lines, write_parquet, write_yaml
from analysis.training.rows import Message, Row

_CHAT = pa.list_(JSON)
_TEXT = pa.string()
_MODEL = "PUT A MODEL HERE"
_ORDER = "Rows are in the order of the curriculum: sequential sampling keeps it, packing would not."
_WHOLE = "Nothing is cut: by default TRL cuts at 1,024 tokens and leaves out records whose prompt alone is longer."


def _config(folder: Path, name: str, command: str, **values: Any) -> None:
    data = [{"path": "parquet", "data_files": "train.parquet", "split": "train"}]
    comment = f"cd here, then: trl {command} --config {name}.yaml\n{_ORDER}\n{_WHOLE}"
    common = {"model_name_or_path": _MODEL, "datasets": data, "output_dir": "out", "train_sampling_strategy": "sequential"}
    write_yaml(folder / f"{name}.yaml", {**common, "max_length": None, **values}, comment=comment)


class Sft:
    """Whole conversations, trained on every assistant message."""

    takes: Literal["rows"] = "rows"
    about = "Trains on every assistant message alike: rows with masked messages are refused, weights are lost."
    _schema = pa.schema({"messages": _CHAT, "tools": _TEXT, "row_id": _TEXT, "stage": _TEXT})

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"messages": "list of JSON messages", "tools": "JSON text", "row_id": "text", "stage": "text"}

    def check(self, row: Row) -> list[str]:
        """Return why the trainer could not express the row."""
        return shapes.all_or_nothing(row, "TRL's SFT") + shapes.unanswered(row)

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files and `sft.yaml`."""
        counts = write_parquet(folder, pairs_of(rows, self._record), self._schema)
        _config(folder, "sft", "sft", assistant_only_loss=True, packing=False)
        return counts

    def _record(self, row: Row) -> dict[str, Any]:
        messages = [shapes.filled(message) for message in row.messages]
        return {"messages": messages, "tools": shapes.tools_text(row), "row_id": row.row_id, "stage": row.stage}


class PromptCompletion:
    """A record for each message that trains: what stood before it, and itself. Expresses every mask."""

    takes: Literal["rows"] = "rows"
    about = "A record for each message that trains, so masks are exact; weights are lost and prompts repeat."
    _schema = pa.schema({"prompt": _CHAT, "completion": _CHAT, "tools": _TEXT, "row_id": _TEXT, "stage": _TEXT})

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        chats = dict.fromkeys(("prompt", "completion"), "list of JSON messages")
        return {**chats, "tools": "JSON text", "row_id": "text", "stage": "text"}

    def check(self, row: Row) -> list[str]:
        """Return why the trainer could not use the row."""
        return shapes.nothing_own(row) + shapes.unprompted(row)

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files and `sft.yaml`."""
        counts = write_parquet(folder, self._records(rows), self._schema)
        _config(folder, "sft", "sft", packing=False)
        return counts

    def _records(self, rows: Iterable[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
        for row in rows:
            for n, before, message in shapes.kept_turns(row):
                same = {"tools": shapes.tools_text(row), "row_id": f"{row.row_id}/{n}", "stage": row.stage}
                yield row.split or "train", {"prompt": before, "completion": [message], **same}


class Tokenized:
    """Token rows with labels and a weight for each token: all that a mask, a weight or a credit can say."""

    takes: Literal["rows"] = "rows"
    about = "Needs the tokenizer of the model; masks, weights and credit are exact to the token."

    def __init__(self, tokenizer: str | None = None, *, better: str = "higher") -> None:
        self.tokenizer, self.better = tokenizer, better

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"input_ids": "list of int", "labels": "list of int", "loss_weights": "list of float",
                "advantages": "list of float", "row_id": "text"}  # fmt: skip

    def check(self, row: Row) -> list[str]:
        """Return why the trainer could not use the row."""
        return shapes.nothing_own(row)

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write `SPLIT.parquet` of tokens; rows whose template does not keep prefixes are left in `refused.jsonl`.

        Raises TrainingError without a tokenizer or the training environment.
        """
        if self.tokenizer is None:
            raise TrainingError("trl-tokenized", "tokens need a tokenizer", hint="give its folder with --tokenizer")
        interpreter = environment.python()
        if interpreter is None:
            hint = "install it with `counterpoint train --setup`"
            raise TrainingError("trl-tokenized", "tokens are made in the training environment, which is not there", hint=hint)
        write_lines(folder, pairs_of(rows, partial(_trajectory, better=self.better)))
        place = str(Path(objective.__file__).resolve().parents[1])
        command = [str(interpreter), "-m", "objective.tokenizing", self.tokenizer, str(folder)]
        done = subprocess.run(
            command, env={"PYTHONPATH": place, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise TrainingError(
                self.tokenizer, "the rows could not be tokenized", got=(done.stderr.strip() or "?").splitlines()[-1]
            )
        counts: dict[str, int] = json.loads(done.stdout)
        return counts


class Dpo:
    """Preference pairs out of counterfactuals: the better event against the other one, after the same prompt."""

    takes: Literal["pairs"] = "pairs"
    about = "A pair for each counterfactual that fresh seeds confirmed with an interval without 0; `margin` is |delta_q|."
    name, command = "dpo", "dpo"
    _schema = pa.schema(
        {"prompt": _CHAT, "chosen": _CHAT, "rejected": _CHAT, "margin": pa.float64(), "pair_id": _TEXT, "evidence": _TEXT}
    )

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        chats = dict.fromkeys(("prompt", "chosen", "rejected"), "list of JSON messages")
        return {**chats, "margin": "float", "pair_id": "text", "evidence": "text"}

    def check(self, row: PairRow) -> list[str]:
        """Return why the pair prefers neither arm, or has nothing to compare."""
        return pair_problems(row)

    def write(self, rows: Iterable[PairRow], folder: Path) -> dict[str, int]:
        """Write the files and the configuration."""
        counts = write_parquet(folder, pairs_of(rows, preference), self._schema)
        _config(folder, self.name, self.command)
        return counts


class Reward(Dpo):
    """The same pairs for a reward model, whose loss takes the margin."""

    name, command = "reward", "reward"


class Kto:
    """Both arms of each counterfactual by themselves: the better one desirable, the other one not."""

    takes: Literal["pairs"] = "pairs"
    about = "Two records for each counterfactual that fresh seeds confirmed with an interval without 0, one of them desirable."
    _schema = pa.schema({"prompt": _CHAT, "completion": _CHAT, "label": pa.bool_(), "pair_id": _TEXT})

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"prompt": "list of JSON messages", "completion": "list of JSON messages", "label": "bool", "pair_id": "text"}

    def check(self, row: PairRow) -> list[str]:
        """Return why the pair prefers neither arm."""
        return pair_problems(row)

    def write(self, rows: Iterable[PairRow], folder: Path) -> dict[str, int]:
        """Write the files and `kto.yaml`."""
        counts = write_parquet(folder, self._records(rows), self._schema)
        _config(folder, "kto", "kto")
        return counts

    def _records(self, rows: Iterable[PairRow]) -> Iterator[tuple[str, dict[str, Any]]]:
        for row in rows:
            found = preference(row)
            for label, arm in ((True, "chosen"), (False, "rejected")):
                record = {"prompt": found["prompt"], "completion": found[arm], "label": label, "pair_id": row.pair_id}
                yield row.split or "train", record


class Grpo:
    """Prompts for new rollouts, and recorded trajectories with credit for `objective.trl_grpo`."""

    takes: Literal["rows"] = "rows"
    about = (
        "`SPLIT.parquet` holds each prompt once; `trajectories/` what was recorded, for GRPO with event credit. A reward that is "
        "constant for a prompt does nothing in GRPO: a prompt needs trajectories of different outcome."
    )
    _schema = pa.schema({"prompt": _CHAT, "task_id": _TEXT, "stage": _TEXT, "d_req": pa.float64()})

    def __init__(self, *, better: str = "higher") -> None:
        self.better = better

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {"prompt": "list of JSON messages", "task_id": "text", "stage": "text", "d_req": "float"}

    def check(self, row: Row) -> list[str]:
        """Return why the trainer could not use the row."""
        problems = shapes.nothing_own(row) + shapes.unprompted(row)
        return problems + ([] if row.reward is not None else ["the run has no outcome, so no reward"])

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write prompts, trajectories and `grpo.json`, the configuration of the objective."""
        prompts: dict[tuple[str, str], dict[str, Any]] = {}

        def seen() -> Iterator[Row]:
            for row in rows:
                first = shapes.prompt(row)
                record = {"prompt": first, "task_id": row.task_id, "stage": row.stage, "d_req": row.d_req}
                prompts.setdefault((row.split or "train", json.dumps(first, sort_keys=True)), record)
                yield row

        write_lines(folder / "trajectories", pairs_of(seen(), partial(_trajectory, better=self.better)))
        counts = write_parquet(folder, ((split, record) for (split, _), record in prompts.items()), self._schema)
        config = {
            "model": _MODEL, "data": "trajectories/train.jsonl", "orch_weight": 0.3, "orch_until": 1.0,
            "arguments": {"output_dir": "out", "num_generations": 2, "shuffle_dataset": False, "max_completion_length": 2048},
        }  # fmt: skip
        (folder / "grpo.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        return counts


def pair_problems(row: PairRow) -> list[str]:
    """Return why a counterfactual is no preference."""
    if row.better == "neither":
        return [f"neither more nor less {row.metric} is better"]
    if row.low is None or row.high is None:
        return ["delta_q has no interval"]
    if preferred(row) is None:
        return ["the interval of delta_q covers 0"]
    if not row.confirmed:
        return ["fresh seeds did not confirm it"]
    return [] if row.original != row.counterfactual else ["both arms read alike"]


def preference(row: PairRow) -> dict[str, Any]:
    """Return a counterfactual as prompt, chosen, rejected and margin."""
    arms: list[list[Message]] = [[shapes.filled(m) for m in arm] for arm in (row.original, row.counterfactual)]
    chosen, rejected = arms[::-1] if preferred(row) else arms
    return {
        "prompt": [shapes.filled(m) for m in row.prompt], "chosen": chosen, "rejected": rejected,
        "margin": abs(row.delta_q), "pair_id": row.pair_id, "evidence": row.evidence,
    }  # fmt: skip


def _trajectory(row: Row, better: str) -> dict[str, Any]:
    """Return what `objective.encoding` reads; credit above 0 helped."""
    events = [
        {"message": e.message, "char_from": e.char_from, "char_to": e.char_to, "credit": credit}
        for e in row.events
        if (credit := shapes.sure_credit(e, better=better))
    ]
    return {
        "row_id": row.row_id, "prompt": shapes.prompt(row), "messages": [shapes.filled(m) for m in row.messages],
        "tools": row.tools or [], "keep": row.keep, "weight": row.weight, "events": events, "reward": row.reward,
    }  # fmt: skip
