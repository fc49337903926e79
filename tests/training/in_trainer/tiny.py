"""A tokenizer and a model made here, so small that a training step takes a second, and rows to train them on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for t in tools %}{{- (t | tojson) + '\\n' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' %}{%- generation %}{{- m.content or '' }}"
    "{%- for c in m.tool_calls or [] %}{{- '<call>' + c.function.name + ' ' }}"
    "{{- c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}{%- endfor %}"
    "{{- '<|im_end|>' }}{%- endgeneration %}{%- else %}{{- (m.content or '') + '<|im_end|>' }}{%- endif %}{{- '\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def rows(n: int = 8) -> list[dict[str, Any]]:
    """Return trajectories, two of each task: a delegation with a tool call, the result, an answer."""
    found = []
    for k in range(n):
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": "delegate", "arguments": json.dumps({"to": f"coder-{k % 3}"})},
        }
        messages = [
            {"role": "system", "content": "You lead a team."},
            {"role": "user", "content": f"Task {k // 2}: join the parts."},
            {"role": "assistant", "content": f"I hand part {k} out. Then I wait.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": f"part {k} is written"},
            {"role": "assistant", "content": "Joined." if k % 2 else "Joined, I think."},
        ]
        events = [
            {"message": 2, "char_from": 0, "char_to": len(f"I hand part {k} out."), "credit": 0.6},
            {"message": 4, "char_from": 0, "char_to": len(messages[4]["content"]), "credit": -0.4 if k % 2 else 0.2},
        ]
        tool = {"type": "function", "function": {"name": "delegate", "description": "Hand a part out.", "parameters": {}}}
        found.append(
            {
                "prompt": messages[:2], "messages": messages, "tools": [tool], "events": events, "reward": float(k % 2),
                "keep": [False, False, True, False, True], "weight": [1.0, 1.0, 1.0, 1.0, 0.5],
            }
        )  # fmt: skip
    return found


def tokenizer(n_tokens: int = 400) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer trained on the rows."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=n_tokens, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([json.dumps(row) for row in rows()], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<|pad|>", eos_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    return fast


def model(coder: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return a model of 2 layers with random weights; seed torch before."""
    config = LlamaConfig(
        vocab_size=len(coder), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=1024, pad_token_id=coder.pad_token_id, eos_token_id=coder.eos_token_id,
        bos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def save(folder: Path) -> Path:
    """Write model and tokenizer to a folder."""
    import torch

    torch.manual_seed(0)
    coder = tokenizer()
    model(coder).save_pretrained(folder)
    coder.save_pretrained(folder)
    return folder
