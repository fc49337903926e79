"""Supervised training on token rows with a weight for each token, in TRL: the mean of the loss, weighted.

usage: python -m objective.trl_sft CONFIG.json   (written by `counterpoint train`)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .encoding import IGNORED


def trainer_class() -> type[Any]:
    """Return TRL's SFT trainer with the loss Σ w·nll / Σ w over the tokens that train."""
    import torch
    from trl import SFTTrainer

    class WeightedSFTTrainer(SFTTrainer):  # type: ignore[misc, unused-ignore]
        def _set_signature_columns_if_needed(self) -> None:
            self._signature_columns = ["input_ids", "labels", "loss_weights"]

        def compute_loss(
            self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            weights, labels = inputs.pop("loss_weights")[:, 1:], inputs.pop("labels")[:, 1:]
            outputs = model(**inputs, use_cache=False)
            logits = outputs.logits[:, :-1].transpose(1, 2)
            nll = torch.nn.functional.cross_entropy(logits, labels.clamp(min=0), reduction="none")
            weights = weights * (labels != IGNORED)
            loss = (nll * weights).sum() / weights.sum().clamp(min=1e-6)
            return (loss, outputs) if return_outputs else loss

    return WeightedSFTTrainer


def collating(pad_token_id: int) -> Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]:
    """Return the collator that pads token rows to the longest of a batch."""
    import torch

    fills: dict[str, float] = {"input_ids": pad_token_id, "labels": IGNORED, "loss_weights": 0.0}

    def collate(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        longest = max(len(row["input_ids"]) for row in rows)
        lengths = torch.tensor([len(row["input_ids"]) for row in rows])
        padded = {
            name: torch.tensor([[*row[name], *[fill] * (longest - len(row[name]))] for row in rows])
            for name, fill in fills.items()
        }
        return {**padded, "attention_mask": (torch.arange(longest)[None, :] < lengths[:, None]).long()}

    return collate


def main(config_file: str) -> None:
    """Train as a configuration says: model, data (Parquet of token rows), arguments of TRL."""
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import SFTConfig

    config = json.loads(Path(config_file).read_text(encoding="utf-8"))
    tokenizer = AutoTokenizer.from_pretrained(config["model"])
    trainer = trainer_class()(
        model=config["model"], processing_class=tokenizer, data_collator=collating(tokenizer.pad_token_id),
        train_dataset=load_dataset("parquet", data_files=config["data"], split="train"),
        args=SFTConfig(max_length=None, dataset_kwargs={"skip_prepare_dataset": True}, **config["arguments"]),
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=config.get("resume") or None)
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1])
