"""Event credit as numbers that a loss can use: bounded, spread over tokens, faded out, and held against what is paid already.

Credit stays raw, in units of Q, until here; nothing is standardised, least of all for each event index: a baseline that
depends on when the policy stopped pays it for going on (verl#7244).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

SIGNS = {"higher": 1.0, "lower": -1.0}


class Span(NamedTuple):
    """The tokens of an event, from `first` to before `past`, and the credit to be spread over them."""

    first: int
    past: int
    credit: float


class PaidTwice(NamedTuple):
    """How far event credit repeats the trajectory's own advantage: cosine in [-1, 1], share of its mass in [0, 1]."""

    cosine: float | None
    share: float | None


def counted(credit: float, low: float | None, high: float | None, *, better: str, bound: float = math.inf) -> float:
    """Return the credit a loss uses: positive for what helped, 0 where the interval of the effect covers 0, within ±bound.

    Parameters
    ----------
    credit, low, high : credit of the event, and the interval of delta_q, which is its negative
    better : `higher` or `lower`, of the metric; where neither is better the credit is 0

    >>> counted(0.4, -0.7, -0.1, better="higher"), counted(0.4, -0.7, 0.1, better="higher")
    (0.4, 0.0)
    >>> counted(3.0, -5.0, -1.0, better="lower", bound=2)
    -2
    """
    is_sure = low is not None and high is not None and (low > 0 or high < 0)
    if better not in SIGNS or not is_sure:
        return 0.0
    return max(-bound, min(bound, SIGNS[better] * credit))


def spread(policy: Sequence[int], spans: Sequence[Span]) -> list[float]:
    """Return the credit of each token: an event's is shared alike by its tokens that the policy wrote, and adds up to it.

    `policy` is 1 where the policy wrote the token, else 0. An event without such a token pays nothing.

    >>> spread([0, 1, 1, 0, 1], [Span(0, 3, 0.6), Span(3, 5, -0.2)])
    [0.0, 0.3, 0.3, 0.0, -0.2]
    """
    found = [0.0] * len(policy)
    for first, past, credit in spans:
        own = [place for place in range(max(0, first), min(past, len(policy))) if policy[place]]
        for place in own:
            found[place] += credit / len(own)
    return found


def faded(weight: float, progress: float, *, until: float = 1.0) -> float:
    """Return λ at a progress in [0, 1]: it falls in a straight line to 0 at `until`, since what is paid to the end is farmed.

    `until` of 0 or less keeps it as it is.

    >>> faded(0.5, 0.0), faded(0.5, 0.25, until=0.5), faded(0.5, 0.9, until=0.5), faded(0.5, 0.9, until=0)
    (0.5, 0.25, 0.0, 0.5)
    """
    return weight if until <= 0 else weight * max(0.0, 1.0 - progress / until)


def paid_twice(advantages: Sequence[float], credits: Sequence[float]) -> PaidTwice:
    """Return how far the summed event credit of trajectories points where their own advantage does.

    share = sum of min(|advantage|, |credit|) over trajectories on which both have the same sign, of the sum of |credit|.
    None where nothing is paid.

    >>> paid_twice([1.0, -1.0], [0.5, 0.5])
    PaidTwice(cosine=0.0, share=0.5)
    """
    paid = sum([abs(c) for c in credits])
    size = math.hypot(*advantages) * math.hypot(*credits)
    cosine = sum([a * c for a, c in zip(advantages, credits, strict=True)]) / size if size else None
    both = sum([min(abs(a), abs(c)) for a, c in zip(advantages, credits, strict=True) if a * c > 0])
    return PaidTwice(cosine, both / paid if paid else None)
