"""What reading the claims of a trace gives: the claims that are linked, and the list of what a person should look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from analysis.model import Claim


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was read out of a trace: how surely it is linked to its proposition (0 to 1), and from which words.

    `replaces` is the input claim that it stands for: the same quote, linked to the proposition that was asked about.
    """

    claim: Claim
    score: float
    text: str
    replaces: str | None = None


class Unlinked(msgspec.Struct, frozen=True, kw_only=True):
    """A number that was stated but is no claim on a proposition of the trace, and why; `p` is None for a range.

    `nearest` is the proposition that came nearest, with its score.
    """

    event_id: str | None
    component: str
    text: str
    p: float | None
    low: float | None = None
    high: float | None = None
    reason: str
    nearest: str | None = None
    score: float = 0.0


class Extraction(NamedTuple):
    """The claims read out of one trace, and the review list."""

    claims: tuple[Extracted, ...]
    unlinked: tuple[Unlinked, ...]


def is_placeholder(samples: Sequence[float], *, n_outcomes: int = 2) -> bool:
    """Return whether samples say that nothing was quoted: there are none, or several that are all 0.5 or all 1/n_outcomes.

    One sample of 0.5 is a quote: an agent may well mean it.

    >>> is_placeholder([]), is_placeholder([0.5] * 8), is_placeholder([1 / 3] * 3, n_outcomes=3)
    (True, True, True)
    >>> is_placeholder([0.5]), is_placeholder([0.5, 0.6])
    (False, False)
    """
    if not samples:
        return True
    return len(samples) > 1 and set(samples) in ({0.5}, {1 / n_outcomes})
