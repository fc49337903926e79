"""What LLaMA-Factory's loader, converter and tokenisation make of its view, by the `dataset_info.json` beside it.

usage: python -P llama_factory.py VIEWS MODEL   (prints JSON: version, and for each split the records and the texts that train)
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from types import ModuleType


def main(views: Path, model: str) -> None:
    """Read each data set of the view."""
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    # It is imported for rows with sound; what a registry has of it is built for another torch than a CPU takes.
    sys.modules["torchaudio"] = ModuleType("torchaudio")
    sys.modules["torchaudio"].__spec__ = ModuleSpec("torchaudio", None)
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from llamafactory.model import load_tokenizer

    folder, read = views / "llama-factory", {}
    for name in json.loads((folder / "dataset_info.json").read_text(encoding="utf-8")):
        given = {
            "model_name_or_path": model, "stage": "sft", "do_train": True, "finetuning_type": "full", "template": "chatml",
            "dataset": name, "dataset_dir": str(folder), "cutoff_len": 100_000, "output_dir": str(views / "llama-factory-out"),
            "overwrite_cache": True, "use_cpu": True, "report_to": "none",
        }  # fmt: skip
        model_args, data_args, training_args, _, _ = get_train_args(given)
        tokenizer = load_tokenizer(model_args)["tokenizer"]
        template = get_template_and_fix_tokenizer(tokenizer, data_args)
        rows = get_dataset(template, model_args, data_args, training_args, stage="sft", tokenizer=tokenizer)["train_dataset"]
        trains = [[tokenizer.decode([token for token in row["labels"] if token >= 0])] for row in rows]
        read[f"llama-factory/{name.removeprefix('counterpoint-')}"] = {"n": len(rows), "trains": trains}
    print(json.dumps({"version": f"LLaMA-Factory {version('llamafactory')}", "read": read}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
