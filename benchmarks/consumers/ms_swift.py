"""What ms-swift's preprocessor and template make of its view, with the loss scales that `swift sft` is told to keep.

usage: python -P ms_swift.py VIEWS MODEL   (prints JSON: version, and for each split the records, what trains, the weights)
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from swift.dataset import load_dataset
from swift.model import get_processor
from swift.template import get_template

KEEPING = {"is_binary_loss_scale": False}


def main(views: Path, model: str) -> None:
    """Read both splits."""
    processor = get_processor(model, model_type="llama", download_model=False)
    template = get_template(processor, template_type="chatml", agent_template="hermes", max_length=100_000, **KEEPING)
    template.set_mode("train")
    ends = set(template.tokenizer.encode("".join(template.template_meta.suffix)))
    read: dict[str, Any] = {}
    for file in sorted((views / "ms-swift").glob("*.jsonl")):
        rows, _ = load_dataset([str(file)], strict=True, load_from_cache_file=False)
        made = [template.encode(row) for row in rows]
        read[f"ms-swift/{file.stem}"] = {
            "n": len(made),
            "trains": [[template.tokenizer.decode([token for token in one["labels"] if token >= 0])] for one in made],
            "weights": [weights(one, ends) for one in made],
        }
    print(json.dumps({"version": f"ms-swift {version('ms-swift')}", "read": read}))


def weights(made: dict[str, Any], ends: set[int]) -> list[float]:
    """Return the weights of the tokens that train, in their order, each once; the mark at the end of a turn always weighs 1."""
    scale = made.get("loss_scale") or [1.0] * len(made["labels"])
    marked = zip(scale, made["labels"], strict=True)
    return [one for one, _ in groupby([weight for weight, label in marked if label >= 0 and label not in ends])]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
