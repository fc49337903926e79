"""What OpenRLHF's data set for supervised training makes of its view, with the arguments that lie beside it.

usage: python -P openrlhf.py VIEWS MODEL   (prints JSON: version, and for each split the records and the texts that train)
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

from datasets import load_dataset
from openrlhf.datasets import SFTDataset
from transformers import AutoTokenizer


def main(views: Path, model: str) -> None:
    """Read both splits."""
    tokenizer, read = AutoTokenizer.from_pretrained(model), {}
    strategy = SimpleNamespace(args=SimpleNamespace(data=SimpleNamespace(input_key="messages", apply_chat_template=True)))
    for file in sorted((views / "openrlhf").glob("*.jsonl")):
        rows = load_dataset("json", data_files=str(file), split="train")
        given = SFTDataset(rows, tokenizer, 100_000, strategy, num_processors=1, multiturn=True)
        trains = []
        for n in range(len(given)):
            ids, _, mask = given[n]
            # The loss of a place is that of the token after it.
            trains.append([tokenizer.decode([token for token, counts in zip(ids[0][1:], mask[0][:-1], strict=True) if counts])])
        read[f"openrlhf/{file.stem}"] = {"n": len(given), "trains": trains}
    print(json.dumps({"version": f"OpenRLHF {version('openrlhf')}", "read": read}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
