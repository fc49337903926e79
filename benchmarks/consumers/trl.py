"""What TRL's own preparation makes of its views, each with the configuration that lies beside it; nothing is trained.

usage: python -P trl.py VIEWS MODEL   (prints JSON: version, and for each view and split the records and the texts that train)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import trl
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import DPOTrainer, GRPOTrainer, KTOTrainer, ModelConfig, RewardTrainer, ScriptArguments, SFTTrainer, TrlParser

VIEWS = {
    "trl-sft": ("sft.yaml", SFTTrainer, trl.SFTConfig),
    "trl-prompt-completion": ("sft.yaml", SFTTrainer, trl.SFTConfig),
    "trl-tokenized": (None, SFTTrainer, partial(trl.SFTConfig, max_length=None)),  # as `objective` trains it
    "trl-dpo": ("dpo.yaml", DPOTrainer, trl.DPOConfig),
    "trl-kto": ("kto.yaml", KTOTrainer, trl.KTOConfig),
    "trl-reward": ("reward.yaml", RewardTrainer, trl.RewardConfig),
    "trl-grpo": (None, GRPOTrainer, trl.GRPOConfig),
}
CPU = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none"}


def main(views: Path, model: str) -> None:
    """Read the views that are there."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    read: dict[str, Any] = {}
    for name, (config, kind, config_class) in VIEWS.items():
        for file in sorted((views / name).glob("*.parquet")):
            os.chdir(views / name)
            rows = load_dataset("parquet", data_files=str(file), split="train")
            args = arguments(config, config_class)
            given = {"reward_funcs": [lambda completions, **rest: [0.0] * len(completions)]} if name == "trl-grpo" else {}
            trainer = kind(model=model, processing_class=tokenizer, train_dataset=rows, args=args, **given)
            prepared = trainer.train_dataset
            read[f"{name}/{file.stem}"] = {"n": len(prepared)}
            if name != "trl-grpo":
                read[f"{name}/{file.stem}"]["trains"] = [trained(tokenizer, record) for record in prepared]
            if name == "trl-tokenized":
                read[f"{name}/{file.stem}"]["weights"] = [weights(record) for record in prepared]
    print(json.dumps({"version": f"TRL {trl.__version__}", "read": read}))


def arguments(config: str | None, config_class: Callable[..., Any]) -> Any:
    """Return the arguments that the command would take out of a configuration, on a CPU."""
    if config is None:
        return config_class(output_dir="out", **CPU)
    parser = TrlParser((ScriptArguments, config_class, ModelConfig, trl.DatasetMixtureConfig))
    options = [part for name, value in CPU.items() for part in (f"--{name}", str(value))]
    return parser.parse_args_and_config(["--config", config, *options], fail_with_unknown_args=True)[1]


def trained(tokenizer: Any, record: dict[str, Any]) -> list[str]:
    """Return the texts that a loss is taken on."""
    if "labels" in record:
        return [tokenizer.decode([token for token in record["labels"] if token >= 0])]
    if "completion_ids" in record:
        return [tokenizer.decode(record["completion_ids"])]
    arms = [record["chosen_ids"], record["rejected_ids"]]
    if "prompt_ids" not in record:  # a reward model reads prompt and answer
        asked = tokenizer.apply_chat_template(record["prompt"], add_generation_prompt=True, return_dict=True)["input_ids"]
        arms = [arm[len(asked) :] for arm in arms]
    return [tokenizer.decode(arm) for arm in arms]


def weights(record: dict[str, Any]) -> list[float]:
    """Return the weights of the tokens that train, in their order, each once."""
    marked = zip(record["loss_weights"], record["labels"], strict=True)
    return [one for one, _ in groupby([weight for weight, label in marked if label >= 0])]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
