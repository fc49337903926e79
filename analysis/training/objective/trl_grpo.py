"""GRPO with event credit in TRL: the advantage of a recorded trajectory, plus λ times the credit on the event's tokens.

A reward that is the same for all completions of a prompt leaves GRPO as it is, since the mean of the group takes it away;
so credit enters as advantage of shape (B, T), which `_compute_loss` takes. With λ = 0 every number is the stock trainer's.
Recorded trajectories are replayed as if the policy had just written them: honest for recent runs of the same policy only.

usage: python -m objective.trl_grpo CONFIG.json   (written by `counterpoint train`)
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .credits import faded, paid_twice
from .encoding import encode

Rollouts = Callable[[list[Any], Any], dict[str, Any]]


def trainer_class() -> type[Any]:
    """Return TRL's GRPO trainer with `orch_weight` (λ) and `orch_until`, the progress at which λ has faded to 0."""
    import torch
    from trl import GRPOTrainer

    class OrchestrationGRPOTrainer(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        orch_weight = 0.0
        orch_until = 1.0

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            found: dict[str, Any] = super()._generate_and_score_completions(inputs)
            credit = torch.zeros_like(found["completion_ids"], dtype=torch.float32)
            for row, given in zip(credit, inputs, strict=True):
                own = torch.tensor(given["token_credit"][: len(row)], dtype=torch.float32)
                row[: len(own)] = own
            own = found["advantages"]
            twice = paid_twice(own.tolist(), credit.sum(dim=1).tolist())
            for name, value in twice._asdict().items():
                if value is not None:
                    self._metrics["train"][f"orch/paid_twice_{name}"].append(value)
            weight = faded(self.orch_weight, self.state.global_step / max(1, self.state.max_steps), until=self.orch_until)
            self._metrics["train"]["orch/weight"].append(weight)
            found["advantages"] = own[:, None] + weight * credit.to(own.device)
            return found

    return OrchestrationGRPOTrainer


def replaying(rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> Rollouts:
    """Return the `rollout_func` that answers a prompt with its recorded trajectories, each in turn.

    Parameters
    ----------
    rows : trajectories with prompt, messages, tools, keep, weight, events (with the credit that counts) and reward
    """
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[_key(row["prompt"])].append(row)

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        found: dict[str, list[Any]] = defaultdict(list)
        asked: dict[str, int] = defaultdict(int)
        for prompt in prompts:
            key = _key(prompt)
            row = groups[key][asked[key] % len(groups[key])]
            asked[key] += 1
            coded = encode(tokenizer, row)
            first = coded.n_prompt
            found["prompt_ids"].append(coded.input_ids[:first])
            found["completion_ids"].append(coded.input_ids[first:])
            found["logprobs"].append([0.0] * (len(coded.input_ids) - first))
            found["env_mask"].append([int(label >= 0) for label in coded.labels[first:]])
            found["token_credit"].append(coded.credit[first:])
            found["trace_reward"].append(row["reward"])
        return dict(found)

    return rollout


def recorded_reward(completions: list[Any], trace_reward: list[float | None], **rest: Any) -> list[float | None]:
    """Return the rewards that the trajectories were recorded with."""
    return trace_reward


def main(config_file: str) -> None:
    """Train as a configuration says: model, data (JSON lines of trajectories), orch_weight, orch_until, arguments of TRL."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig

    config = json.loads(Path(config_file).read_text(encoding="utf-8"))
    with Path(config["data"]).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    tokenizer = AutoTokenizer.from_pretrained(config["model"])
    prompts = list({_key(row["prompt"]): {"prompt": row["prompt"]} for row in rows}.values())
    kind = trainer_class()
    kind.orch_weight, kind.orch_until = config["orch_weight"], config["orch_until"]
    trainer = kind(
        model=config["model"], processing_class=tokenizer, reward_funcs=[recorded_reward],
        rollout_func=replaying(rows, tokenizer), train_dataset=Dataset.from_list(prompts), args=GRPOConfig(**config["arguments"]),
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=config.get("resume") or None)
    trainer.save_model()


def _key(prompt: Any) -> str:
    # A data set fills in null where one message has a key that others lack.
    messages = [{name: value for name, value in message.items() if value is not None} for message in prompt]
    return json.dumps(messages, sort_keys=True, ensure_ascii=False)


if __name__ == "__main__":
    main(sys.argv[1])
