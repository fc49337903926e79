"""What Axolotl's strategy `chat_template` makes of its view, by the `axolotl.yaml` beside it.

usage: python -P axolotl.py VIEWS MODEL   (prints JSON: version, and for each split the records and the texts that train)
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import yaml
from axolotl.prompt_strategies.chat_template import load
from axolotl.utils.dict import DictDefault
from datasets import load_dataset
from transformers import AutoTokenizer


def main(views: Path, model: str) -> None:
    """Read both splits."""
    tokenizer, read = AutoTokenizer.from_pretrained(model), {}
    config = yaml.safe_load((views / "axolotl" / "axolotl.yaml").read_text(encoding="utf-8"))
    (dataset,) = config["datasets"]
    whole = DictDefault(config)
    strategy = load(tokenizer, whole, DictDefault(dataset))
    for file in sorted((views / "axolotl").glob("*.jsonl")):
        rows = load_dataset(dataset["ds_type"], data_files=str(file), split="train")
        made = [strategy.tokenize_prompt(row) for row in rows]
        trains = [[tokenizer.decode([token for token in one["labels"] if token >= 0])] for one in made]
        read[f"axolotl/{file.stem}"] = {"n": len(made), "trains": trains}
    print(json.dumps({"version": f"Axolotl {version('axolotl')}", "read": read}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
