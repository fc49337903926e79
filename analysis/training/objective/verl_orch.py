"""Event credit in verl: an advantage estimator that is registered as `grpo_orch`.

verl hands an estimator the token rewards, the mask of the response and the group, and nothing else; so credit travels inside
the reward tensor. The outcome stands on the last token, an event's credit on its first one; an event reaches to the next
marker, or to where the policy's tokens end. `rewards` writes such a tensor, `grpo_orch` reads it.

usage: import objective.verl_orch; objective.verl_orch.register(weight=0.3), then `algorithm.adv_estimator=grpo_orch`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .credits import Span

_TINY = 1e-6  # verl's own, so that λ = 0 gives its GRPO


def rewards(outcome: float, response_mask: Sequence[int], spans: Sequence[Span]) -> list[float]:
    """Return the token rewards of one response: the outcome on the last policy token, credit on the first of each event.

    ValueError where both would fall on one token.
    """
    own = [place for place, is_own in enumerate(response_mask) if is_own]
    if not own:
        raise ValueError("the response has no token that the policy wrote")
    found = [0.0] * len(response_mask)
    for first, past, credit in spans:
        inside = [place for place in own if first <= place < past]
        if inside and credit:
            if inside[0] == own[-1]:
                raise ValueError("an event begins on the last token, where the outcome stands")
            found[inside[0]] = credit
    found[own[-1]] = outcome
    return found


def estimator(weight: float) -> Callable[..., tuple[Any, Any]]:
    """Return the estimator: the outcome standardised inside its group, plus weight (λ) times the credit of the token's event."""
    import torch

    def grpo_orch(
        token_level_rewards: Any, response_mask: Any, index: Any = None, config: Any = None, **rest: Any
    ) -> tuple[Any, Any]:
        with torch.no_grad():
            last = response_mask.shape[1] - 1 - response_mask.flip(1).argmax(1)
            rows = torch.arange(len(last))
            outcome, credit = token_level_rewards[rows, last], token_level_rewards.clone()
            credit[rows, last] = 0.0
            advantages = (_standardised(outcome, index)[:, None] + weight * _spread(credit, response_mask)) * response_mask
        return advantages, advantages

    return grpo_orch


def register(weight: float) -> None:
    """Register the estimator with verl."""
    from verl.trainer.ppo import core_algos

    core_algos.register_adv_est("grpo_orch")(estimator(weight))


def _standardised(outcome: Any, index: Any) -> Any:
    import torch

    found = torch.zeros_like(outcome)
    for group in dict.fromkeys(index):
        members = torch.tensor([other == group for other in index])
        values = outcome[members]
        found[members] = (values - values.mean()) / (values.std() + _TINY) if len(values) > 1 else values
    return found


def _spread(credit: Any, mask: Any) -> Any:
    """Spread each marker over the policy's tokens from it to before the next one, as far as they are not interrupted."""
    import torch

    found = torch.zeros_like(credit)
    for b in range(len(credit)):
        for first in credit[b].nonzero().flatten().tolist():
            past = first + 1
            while past < mask.shape[1] and mask[b, past] and credit[b, past] == 0:
                past += 1
            found[b, first:past] = credit[b, first] / (past - first)
    return found
