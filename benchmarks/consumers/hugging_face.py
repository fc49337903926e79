"""What `datasets` reads of every file that it is meant for, in whatever version stands in this environment.

usage: python -P hugging_face.py VIEWS MODEL   (prints JSON: version, and for each view and split the records)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import datasets

#: Parquet whose messages are JSON elements: `datasets` below 4.7 cannot open it, as TRL's own pin says.
NEW = ("trl-sft", "trl-prompt-completion", "trl-dpo", "trl-kto", "trl-reward", "trl-grpo")
#: JSON lines whose messages differ in their keys: below 4.7 they are merged and filled up with nulls.
MIXED = ("axolotl", "agent-lightning", "verifiers", "ms-swift")
PLAIN = ("counterfactual", "verl-rl", "openrlhf", "llama-factory")


def main(views: Path) -> None:
    """Read the views that this version can."""
    is_new = tuple(map(int, datasets.__version__.split(".")[:2])) >= (4, 7)
    read: dict[str, Any] = {}
    for name in (*PLAIN, *(NEW + MIXED if is_new else ())):
        for file in sorted([*(views / name).glob("*.parquet"), *(views / name).glob("*.jsonl")]):
            kind = "json" if file.suffix == ".jsonl" else "parquet"
            read[f"{name}/{file.stem}"] = told(datasets.load_dataset(kind, data_files=str(file), split="train"))
    for split, rows in datasets.load_dataset(str(views / "hf")).items():
        read[f"hf/{split}"] = told(rows)
    print(json.dumps({"version": f"datasets {datasets.__version__}", "read": read}))


def told(rows: Any) -> dict[str, Any]:
    """Return the number of rows and what each tells."""
    return {"n": len(rows), "told": list(rows)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
