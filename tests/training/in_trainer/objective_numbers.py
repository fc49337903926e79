"""Prints as JSON what real training steps say of the objective; `tests/training/test_objective.py` states what must hold."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
warnings.filterwarnings("ignore")

import tiny  # noqa: E402
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from objective import trl_grpo, trl_sft, verl_orch  # noqa: E402
from objective.credits import Span  # noqa: E402
from objective.encoding import encode  # noqa: E402
from trl import GRPOConfig, GRPOTrainer, SFTConfig  # noqa: E402

OUT = Path(sys.argv[1])
ROWS, CODER = tiny.rows(), tiny.tokenizer()
BASE: dict[str, Any] = {
    "output_dir": str(OUT), "logging_steps": 1, "save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False,
    "gradient_checkpointing": False, "disable_tqdm": True, "learning_rate": 1e-3, "seed": 7, "per_device_train_batch_size": 2,
}  # fmt: skip


def grpo(kind: type[Any], weight: float, until: float = 0.0, n_steps: int = 1) -> dict[str, Any]:
    torch.manual_seed(0)
    model = tiny.model(CODER)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    kind.orch_weight, kind.orch_until = weight, until
    arguments = GRPOConfig(
        max_steps=n_steps, num_generations=2, max_completion_length=256, shuffle_dataset=False, scale_rewards="none", **BASE
    )
    prompts = Dataset.from_list([{"prompt": row["prompt"]} for row in ROWS[::2]])
    trainer = kind(
        model=model, processing_class=CODER, reward_funcs=[trl_grpo.recorded_reward], args=arguments,
        rollout_func=trl_grpo.replaying(ROWS, CODER), train_dataset=prompts,
    )  # fmt: skip
    trainer.train()
    moved = sum([(value - before[name]).abs().sum().item() for name, value in model.named_parameters()])
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    names = ("loss", "grad_norm", "reward", "reward_std", "entropy", "orch/weight", "orch/paid_twice_share")
    return {name: [entry.get(name) for entry in log] for name in names} | {"moved": moved}


def masked_gradient() -> dict[str, float]:
    """The gradient at the places whose next token is masked, and at the others."""
    torch.manual_seed(0)
    model = tiny.model(CODER)
    kept = {**ROWS[0], "keep": [False, False, False, False, True]}
    row = encode(CODER, kept)._asdict()
    batch = trl_sft.collating(CODER.pad_token_id)([{**row, "loss_weights": row["weights"]}])
    seen: list[torch.Tensor] = []

    def remember(module: Any, given: Any, logits: torch.Tensor) -> None:
        logits.retain_grad()
        seen.append(logits)

    model.lm_head.register_forward_hook(remember)
    kind = trl_sft.trainer_class()
    trainer = kind(
        model=model, processing_class=CODER, train_dataset=Dataset.from_list([{**row, "loss_weights": row["weights"]}]),
        data_collator=trl_sft.collating(CODER.pad_token_id),
        args=SFTConfig(max_length=None, dataset_kwargs={"skip_prepare_dataset": True}, **BASE),
    )  # fmt: skip
    trainer.compute_loss(model, dict(batch)).backward()
    size = seen[0].grad[0].abs().sum(dim=1)[:-1]
    trains = batch["labels"][0, 1:] >= 0
    return {"masked": size[~trains].max().item(), "trained": size[trains].min().item(), "n_trained": int(trains.sum())}


def encoded() -> dict[str, Any]:
    found = encode(CODER, ROWS[0])
    text = {
        "policy": CODER.decode([t for t, own in zip(found.input_ids, found.policy, strict=True) if own]),
        "prompt": CODER.decode(found.input_ids[: found.n_prompt]),
        "paid": CODER.decode([t for t, c in zip(found.input_ids, found.credit, strict=True) if c > 0.0]),
    }
    first = encode(CODER, {"messages": ROWS[0]["messages"][2:], "keep": [True, False, True], "weight": [1.0] * 3})
    text["speaks_first"] = CODER.decode([t for t in first.labels if t >= 0])
    with_nulls = [{**message, "name": None} for message in ROWS[0]["prompt"]]
    text["replayed"] = CODER.decode(trl_grpo.replaying(ROWS, CODER)([with_nulls], None)["prompt_ids"][0])
    changed = tiny.tokenizer()
    changed.chat_template = "{% for m in messages %}{{ m.content if loop.last else m.content[:3] }}{% endfor %}"
    try:
        encode(changed, ROWS[0])
    except ValueError as error:
        text["refused"] = str(error)
    return {**text, "credit": sum(found.credit), "weights": sorted(set(found.weights)), "n": [len(part) for part in found[:5]]}


def verl() -> dict[str, Any]:
    masks = [[1, 1, 0, 1, 1, 1], [1, 1, 0, 1, 1, 0]]
    given = [verl_orch.rewards(1.0, masks[0], [Span(0, 2, 0.6)]), verl_orch.rewards(0.0, masks[1], [Span(0, 2, -0.4)])]
    found = {}
    for weight in (0.0, 0.5):
        tensors = torch.tensor(given), torch.tensor(masks)
        found[str(weight)] = verl_orch.estimator(weight)(*tensors, index=["g", "g"])[0].tolist()
    return {"rewards": given, "advantages": found}


if __name__ == "__main__":
    with_credit = trl_grpo.trainer_class()
    numbers = {
        "stock": grpo(GRPOTrainer, 0.0),
        "zero": grpo(with_credit, 0.0),
        "half": grpo(with_credit, 0.5),
        "fading": grpo(with_credit, 0.5, until=1.0, n_steps=2),
        "masked": masked_gradient(),
        "encoded": encoded(),
        "verl": verl(),
    }
    (OUT / "numbers.json").write_text(json.dumps(numbers), encoding="utf-8")
