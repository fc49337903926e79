"""Quotas: how much of a mode, a family, a task may be in a data set at most, and how much of what gates dropped comes back.

A floor takes back the best of what the gates dropped, so that no way of failing or working disappears; a cap lets the rest go.
Hidden here: who counts as best.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.curation.fields import Count, Share, means

if TYPE_CHECKING:
    import pandas as pd

#: What is counted, and the column of the frame that says which one a row is of.
GROUPS = {"mode": "mode", "family": "family", "task": "task_id"}
Bools = npt.NDArray[np.bool_]


class Quotas(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At least and at most how many traces of each kind; 0 asks for nothing.

    With a single cap a stricter gate never keeps more. Several caps together can: what goes makes room in the others.
    """

    min_per_mode: Annotated[Count, means("take back the best dropped traces of a failure mode up to so many", "traces")] = 0
    min_per_family: Annotated[Count, means("the same for a family of runs", "traces")] = 0
    min_per_task: Annotated[Count, means("the same for a task", "traces")] = 0
    max_per_mode: Annotated[Count, means("at most so many traces of a failure mode; 0 for no limit", "traces")] = 0
    max_per_family: Annotated[Count, means("the same for a family of runs", "traces")] = 0
    max_per_task: Annotated[Count, means("the same for a task", "traces")] = 0
    without_claims: Annotated[Literal["keep", "drop", "quota"], means("what happens to traces without tied claims")] = "keep"
    without_claims_share: Annotated[Share, means("with quota: how much of the data set they make at most", "share")] = 0.5


class Step(NamedTuple):
    """What one quota does: the rows that come back or go, the number (or share) it goes by, and why."""

    gate: str
    rows: npt.NDArray[np.intp]
    limit: float
    reason: str


def floors(quotas: Quotas, frame: pd.DataFrame, *, is_in: Bools, may_return: Bools, rank: npt.NDArray[np.intp]) -> Iterator[Step]:
    """Yield what each floor takes back; later floors count what earlier ones took back.

    Parameters
    ----------
    is_in : rows that the gates passed
    may_return : rows that they dropped and that a floor may take back
    rank : a number for each row, the best first
    """
    is_in = is_in.copy()
    for name, column in GROUPS.items():
        if not (least := getattr(quotas, f"min_per_{name}")):
            continue
        group, n_groups = _groups(frame, column)
        missing = least - np.bincount(group[is_in & (group >= 0)], minlength=n_groups)
        waiting = np.flatnonzero(may_return & ~is_in & (group >= 0))
        place = _place_in_group(group[waiting], rank[waiting])
        back = waiting[place < missing[group[waiting]]] if len(waiting) else waiting
        is_in[back] = True
        yield Step(f"floor {name}", np.sort(back), least, f"taken back: one of at least {least} of its {name}")


def caps(quotas: Quotas, frame: pd.DataFrame, *, is_in: Bools, is_held: Bools, rank: npt.NDArray[np.intp]) -> Iterator[Step]:
    """Yield what each cap lets go, the stratum without claims first; rows that a person kept count and stay."""
    is_in = is_in.copy()
    if quotas.without_claims != "keep":
        share = quotas.without_claims_share if quotas.without_claims == "quota" else 0.0
        gone = _without_claims(share, frame["is_tied"].to_numpy(bool), is_in, is_held, rank)
        is_in[gone] = False
        yield Step("without claims", gone, share, f"no tied claims, of which at most {share:.0%} of the data are taken")
    for name, column in GROUPS.items():
        if not (most := getattr(quotas, f"max_per_{name}")):
            continue
        group, _ = _groups(frame, column)
        counted = np.flatnonzero(is_in & (group >= 0))
        place = _place_in_group(group[counted], np.where(is_held[counted], -1, rank[counted]))
        gone = counted[(place >= most) & ~is_held[counted]]
        is_in[gone] = False
        yield Step(f"quota {name}", gone, most, f"more than {most} of its {name}")


def _without_claims(
    share: float, is_tied: Bools, is_in: Bools, is_held: Bools, rank: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    n_tied = int((is_in & is_tied).sum())
    most = len(is_in) if share == 1 else int(share * n_tied / (1 - share) + 1e-9)
    mine = np.flatnonzero(is_in & ~is_tied)
    ordered = mine[np.lexsort((rank[mine], ~is_held[mine]))]
    gone = ordered[most:]
    return np.sort(gone[~is_held[gone]])


def _groups(frame: pd.DataFrame, column: str) -> tuple[npt.NDArray[np.intp], int]:
    """A number for the group of each row, -1 for a row of none."""
    codes, names = frame[column].factorize(sort=True)
    return codes.astype(np.intp), len(names)


def _place_in_group(group: npt.NDArray[np.intp], rank: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The place of each row among those of its group, from 0, by rank."""
    order = np.lexsort((rank, group))
    ordered = group[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, np.intp)
    sizes = np.diff(np.r_[starts, len(ordered)])
    place = np.empty(len(group), np.intp)
    place[order] = np.arange(len(ordered)) - np.repeat(starts, sizes)
    return place
