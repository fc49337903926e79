"""A bundle's rows as trainers read them: one small class a target, which also says what its target would refuse."""

from __future__ import annotations

from analysis.training.formats.view import View

__all__ = ["View", "views"]


def views(*, tokenizer: str | None = None, metric: str = "passed") -> dict[str, View]:
    """Return all views by the name that `--format` takes; `tokenizer` is the folder of one, for those made of
    tokens; `metric` that whose credit events have, which says what of it helped.

    >>> list(views())[:3]
    ['trl-sft', 'trl-prompt-completion', 'trl-tokenized']
    """
    from analysis.counterfactual.effects import better_of
    from analysis.training.formats import lines, plain, sharegpt, trl, verifiers, verl

    better = better_of(metric)
    return {
        "trl-sft": trl.Sft(),
        "trl-prompt-completion": trl.PromptCompletion(),
        "trl-tokenized": trl.Tokenized(tokenizer, better=better),
        "trl-dpo": trl.Dpo(),
        "trl-kto": trl.Kto(),
        "trl-reward": trl.Reward(),
        "trl-grpo": trl.Grpo(better=better),
        "verl-rl": verl.Rl(),
        "verl-sft": verl.Sft(),
        "openrlhf": lines.OpenRlhf(),
        "llama-factory": sharegpt.LlamaFactory(),
        "ms-swift": sharegpt.Swift(),
        "axolotl": lines.Axolotl(),
        "agent-lightning": lines.AgentLightning(),
        "verifiers": verifiers.Verifiers(),
        "hf": plain.HuggingFace(),
        "counterfactual": plain.Counterfactuals(),
        "csv": plain.Csv(),
    }
