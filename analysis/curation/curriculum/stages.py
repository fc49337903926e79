"""The four stages of the curriculum, and the reference whose thresholds divide them.

A reference is worked out once and then kept by name, so that more data never moves a task to another stage by itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Stage = Literal["warmup", "individual", "orchestration", "integrated"]
Joint = Literal["linear", "max", "noisy-or", "fitted"]
Share = Annotated[float, Meta(ge=0, le=1)]

#: In the order in which they are trained: both low, D_req high, D_orch high, both high.
STAGES: tuple[Stage, ...] = ("warmup", "individual", "orchestration", "integrated")
MIN_CELLS = 8  # of which medians are taken


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """What difficulty is compared with.

    name : what the thresholds are
    version : the data version that they were worked out of; empty where a person set them
    tau_r, tau_o : d_req and d_orch above which a task counts as hard
    joint : how the two make one difficulty
    weights : of d_req and d_orch in the linear form
    """

    name: str
    version: str
    tau_r: Share
    tau_o: Share
    joint: Joint = "linear"
    weights: tuple[Share, Share] = (0.5, 0.5)


def stage_of(d_req: float, d_orch: float, *, tau_r: float, tau_o: float) -> Stage:
    """Return the stage 1 + [d_req > tau_r] + 2 [d_orch > tau_o]; ties go low.

    >>> [stage_of(r, o, tau_r=0.5, tau_o=0.5) for r, o in ((0.2, 0.2), (0.8, 0.2), (0.2, 0.8), (0.8, 0.8), (0.5, 0.5))]
    ['warmup', 'individual', 'orchestration', 'integrated', 'warmup']
    """
    return STAGES[(d_req > tau_r) + 2 * (d_orch > tau_o)]


def median_reference(pairs: Iterable[tuple[float, float]], *, of: str, version: str) -> Reference | None:
    """Return the reference whose thresholds are medians of (d_req, d_orch); None for fewer than 8 pairs.

    Parameters
    ----------
    pairs : of tasks and models that were tried more than once
    of : what they are, in words, for the name
    version : of the data
    """
    found = list(pairs)
    if len(found) < MIN_CELLS:
        return None
    tau_r, tau_o = (round(statistics.median(side), 9) for side in zip(*found, strict=True))
    return Reference(name=f"medians of {len(found):,} {of}", version=version, tau_r=tau_r, tau_o=tau_o)
