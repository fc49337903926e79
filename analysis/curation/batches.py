"""The gate of batches: of the traces with tied claims in each training batch, enough are coherent.

How much is enough follows the progress. A batch that misses it loses its worst incoherent row and takes the next one of the
order, until it holds; rows that a person kept never leave.
"""

from __future__ import annotations

import heapq
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.curation.fields import Count, Share, means


class Batches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many traces of each batch have to be coherent, over the progress of training."""

    size: Annotated[Count, means("traces of a batch; 0 makes no demand of batches", "traces")] = 0
    tau: Annotated[Share, means("the largest residual_norm that counts as coherent", "share of ε*max")] = 0.1
    ratio_first: Annotated[Share, means("least share of coherent traces in the first batch, of those with tied claims")] = 0.5
    ratio_last: Annotated[Share, means("the same in the last batch")] = 0.5
    shape: Annotated[Literal["linear", "step"], means("how the share goes from first to last: evenly, or at once at step_at")] = (
        "linear"
    )
    step_at: Annotated[Share, means("where a step happens", "share of the progress")] = 0.5

    def ratio_at(self, progress: float) -> float:
        """Return the least share of coherent traces at a progress in [0, 1].

        >>> Batches(ratio_first=0.4, ratio_last=0.8).ratio_at(0.25)
        0.5
        """
        if self.shape == "step":
            return self.ratio_last if progress >= self.step_at else self.ratio_first
        return self.ratio_first + (self.ratio_last - self.ratio_first) * progress


class Filled(NamedTuple):
    """Which rows of the order stay, and a row for each batch: what it holds, what it had to hold, how many left it."""

    stays: npt.NDArray[np.bool_]
    batches: tuple[dict[str, Any], ...]


def filled(batches: Batches, residual: npt.NDArray[np.float64], is_held: npt.NDArray[np.bool_]) -> Filled:
    """Return which rows of an order stay so that every batch holds.

    Parameters
    ----------
    residual : normalised residual of each row, in the order of training; NaN without tied claims: neither coherent nor not
    is_held : rows that never leave; where they are too many, a batch misses its share and says so

    Notes
    -----
    The progress at a batch is the place of its first row among all rows of the order.

    Examples
    --------
    >>> found = filled(Batches(size=2, tau=0.1), np.array([0.9, 0.8, 0.0, 0.0]), np.zeros(4, bool))
    >>> found.stays.tolist(), [row["ratio"] for row in found.batches]
    ([False, True, True, True], [0.5, 1.0])
    """
    stays = np.ones(len(residual), bool)
    rows: list[dict[str, Any]] = []
    cursor = 0
    while batches.size and cursor < len(residual):
        progress = cursor / len(residual)
        required = batches.ratio_at(progress)
        may_leave: list[tuple[float, int]] = []  # a heap; of equals the one that comes last is the worst
        n = n_tied = n_coherent = n_left = 0
        while True:
            while n < batches.size and cursor < len(residual):
                is_coherent = bool(residual[cursor] <= batches.tau)
                if residual[cursor] > batches.tau and not is_held[cursor]:
                    heapq.heappush(may_leave, (-residual[cursor], -cursor))
                n, n_tied, n_coherent = n + 1, n_tied + bool(residual[cursor] >= 0), n_coherent + is_coherent
                cursor += 1
            ratio = n_coherent / n_tied if n_tied else None
            holds = ratio is None or ratio >= required
            if holds or not may_leave:
                break
            stays[-heapq.heappop(may_leave)[1]] = False
            n, n_tied, n_left = n - 1, n_tied - 1, n_left + 1
        rows.append({
            "batch": len(rows), "progress": round(progress, 9), "n": n, "n_tied": n_tied, "n_left": n_left,
            "ratio": ratio if ratio is None else round(ratio, 9), "required": round(required, 9), "holds": holds,
        })  # fmt: skip
    return Filled(stays, tuple(rows))
