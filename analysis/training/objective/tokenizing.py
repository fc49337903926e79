"""Rows as tokens: `SPLIT.jsonl` of a folder becomes `SPLIT.parquet` with labels, weights and credit for each token.

usage: python -m objective.tokenizing TOKENIZER FOLDER   (prints the number of rows of each split as JSON)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .encoding import encode

_N_ROWS = 200
_SCHEMA = pa.schema(
    {"input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int32()), "loss_weights": pa.list_(pa.float32())}
    | {"advantages": pa.list_(pa.float32()), "row_id": pa.string()}
)


def main(tokenizer: str, place: str) -> None:
    """Tokenize every file of a folder; a row whose template does not keep prefixes goes to `refused.jsonl` with the reason."""
    from transformers import AutoTokenizer

    coder, folder = AutoTokenizer.from_pretrained(tokenizer), Path(place)
    counts: dict[str, int] = {}
    with (folder / "refused.jsonl").open("w", encoding="utf-8") as refused:
        for source in sorted(folder.glob("*.jsonl")):
            if source.name == "refused.jsonl":
                continue
            target = source.with_suffix(".parquet")
            with pq.ParquetWriter(f"{target}.part", _SCHEMA, compression="zstd") as writer:
                for rows in _batches(coder, source, refused):
                    writer.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA))
                    counts[source.stem] = counts.get(source.stem, 0) + len(rows)
            Path(f"{target}.part").replace(target)
            source.unlink()
    sys.stdout.write(json.dumps(counts))


def _batches(coder: Any, source: Path, refused: Any) -> Iterator[list[dict[str, Any]]]:
    waiting = []
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            try:
                found = encode(coder, row)
            except ValueError as error:
                refused.write(json.dumps({"row_id": row["row_id"], "reason": str(error)}) + "\n")
                continue
            tokens = {"input_ids": found.input_ids, "labels": found.labels, "loss_weights": found.weights}
            waiting.append({**tokens, "advantages": found.credit, "row_id": row["row_id"]})
            if len(waiting) == _N_ROWS:
                yield waiting
                waiting = []
    if waiting:
        yield waiting


if __name__ == "__main__":
    main(*sys.argv[1:])
