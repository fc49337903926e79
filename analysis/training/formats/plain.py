"""Views for no trainer in particular: a data set folder of Hugging Face, the counterfactuals themselves, a table for people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from analysis.counterfactual.dataset import PairRow
from analysis.training.formats import shapes
from analysis.training.formats.files import pairs_of, write_csv, write_parquet
from analysis.training.rows import Row

_TEXT, _REAL = pa.string(), pa.float64()
_encode = msgspec.json.Encoder().encode


class HuggingFace:
    """A folder that `load_dataset` reads, under every version: messages and tools are text."""

    takes: Literal["rows"] = "rows"
    about = "Messages and tools are JSON text: the one encoding that every reader leaves as it is."
    _schema = pa.schema(
        dict.fromkeys(("row_id", "trace_id", "task_id", "group", "agent", "component", "world", "stage", "family"), _TEXT)
        | {"failure_mode": _TEXT, "messages": _TEXT, "tools": _TEXT, "keep": pa.list_(pa.bool_()), "weight": pa.list_(_REAL)}
        | dict.fromkeys(("reward", "residual_norm", "d_req", "d_orch"), _REAL)
    )

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {field.name: str(field.type) for field in self._schema}

    def check(self, row: Row) -> list[str]:
        """Return nothing: every row is taken."""
        return []

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write `data/` and the card that names its files."""
        counts = write_parquet(folder / "data", pairs_of(rows, self._record), self._schema)
        files = "".join(f"  - split: {split}\n    path: data/{split}.parquet\n" for split in counts)
        card = f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n\n# Curated by Counterpoint\n\n{self.about}\n"
        (folder / "README.md").write_text(card, encoding="utf-8")
        return counts

    def _record(self, row: Row) -> dict[str, Any]:
        plain = {name: getattr(row, name) for name in self._schema.names}
        return {**plain, "messages": _encode(row.messages).decode(), "tools": shapes.tools_text(row)}


class Counterfactuals:
    """The counterfactual data set: o, o', the event, what was done, delta_q, credit, interval, evidence, world."""

    takes: Literal["pairs"] = "pairs"
    about = "All effects, those too whose interval covers 0; credit is -delta_q, and `better` says whether more is good."
    _schema = pa.schema(
        dict.fromkeys(("pair_id", "trace_id", "task_id", "event_id", "event_kind", "operator", "parameters", "metric"), _TEXT)
        | dict.fromkeys(("agent", "prompt", "original", "counterfactual", "better", "evidence", "world", "seed_block"), _TEXT)
        | dict.fromkeys(("delta_q", "credit", "low", "high"), _REAL)
        | {"n": pa.int64(), "confirmed": pa.bool_()}
    )

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return {field.name: str(field.type) for field in self._schema}

    def check(self, row: PairRow) -> list[str]:
        """Return nothing: every effect is taken."""
        return []

    def write(self, rows: Iterable[PairRow], folder: Path) -> dict[str, int]:
        """Write the files."""
        return write_parquet(folder, pairs_of(rows, self._record), self._schema)

    def _record(self, row: PairRow) -> dict[str, Any]:
        plain = {name: getattr(row, name) for name in self._schema.names}
        return plain | {name: _encode(plain[name]).decode() for name in ("prompt", "original", "counterfactual")}


class Csv:
    """A line a row for people: what it is, what it weighs, how it begins and ends."""

    takes: Literal["rows"] = "rows"
    about = "For reading, not for training."
    _columns = (
        "row_id", "trace_id", "task_id", "agent", "component", "split", "order_key", "stage", "reward", "residual_norm", "d_req",
        "d_orch", "family", "failure_mode", "n_messages", "n_kept", "weight_mean", "first", "last",
    )  # fmt: skip

    def columns(self) -> dict[str, str]:
        """Return the columns."""
        return dict.fromkeys(self._columns, "text or number")

    def check(self, row: Row) -> list[str]:
        """Return nothing: every row is taken."""
        return []

    def write(self, rows: Iterable[Row], folder: Path) -> dict[str, int]:
        """Write the files."""
        return write_csv(folder, pairs_of(rows, self._record), self._columns)

    def _record(self, row: Row) -> dict[str, Any]:
        kept = [weight for weight, keep in zip(row.weight, row.keep, strict=True) if keep]
        told = {
            "n_messages": len(row.messages), "n_kept": len(kept), "weight_mean": sum(kept) / len(kept) if kept else None,
            "first": (row.messages[0].get("content") or "")[:300], "last": (row.messages[-1].get("content") or "")[:300],
        }  # fmt: skip
        return {name: told[name] if name in told else getattr(row, name) for name in self._columns}
