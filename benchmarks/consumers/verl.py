"""What verl's data sets for policy training and for supervised training make of their views.

usage: python -P verl.py VIEWS MODEL   (prints JSON: version, and for each view and split the records and the texts that train)
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset

RL = {"max_prompt_length": 100_000, "filter_overlong_prompts_workers": 1}
SFT = {"max_length": 100_000, "truncation": "error", "pad_mode": "no_padding"}


def main(views: Path, model: str) -> None:
    """Read both views."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    read: dict[str, Any] = {}
    for file in sorted((views / "verl-rl").glob("*.parquet")):
        config = OmegaConf.create({**RL, "cache_dir": str(views / "verl-cache")})
        rows = RLHFDataset([str(file)], tokenizer, config)
        truths = [json.loads(row["reward_model"]["ground_truth"]) for row in rows if row["raw_prompt"]]
        read[f"verl-rl/{file.stem}"] = {"n": sum("reward" in truth for truth in truths)}
    for split in ("test", "train"):
        files = sorted(map(str, (views / "verl-sft").glob(f"{split}-*.parquet")))
        rows = MultiTurnSFTDataset(files, tokenizer, OmegaConf.create(SFT))
        read[f"verl-sft/{split}"] = {"n": len(rows), "trains": [[trained(tokenizer, rows[n])] for n in range(len(rows))]}
    print(json.dumps({"version": f"verl {version('verl')}", "read": read}))


def trained(tokenizer: Any, row: dict[str, Any]) -> str:
    """Return the text that a loss is taken on."""
    marked = zip(row["input_ids"].tolist(), row["loss_mask"].tolist(), strict=True)
    return str(tokenizer.decode([token for token, counts in marked if counts]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
