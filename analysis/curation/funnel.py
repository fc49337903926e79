"""The funnel: every row's way through the gates, with what each said, why, of which value and against which threshold.

Hides how a passage is kept as numbers until it is written, and what is counted of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.errors import PolicyError

if TYPE_CHECKING:
    import pandas as pd

#: What a gate does with a row, by number; `returned`: a floor or a person took back what was dropped or queued.
OUTCOMES = ("passed", "dropped", "queued", "returned", "masked")
PASSED, DROPPED, QUEUED, RETURNED, MASKED = range(len(OUTCOMES))
#: What a row of the table `decisions` is that states a review, and one that takes back what was decided of a trace.
REVIEW, TAKEN_BACK = "review", "review taken back"
_MAX_REASONS = 12  # of a gate, in the report: the most frequent


class Passage(NamedTuple):
    """One gate and the rows that came to it: outcome, value, threshold (NaN where absent), and the number of the reason."""

    gate: str
    rows: npt.NDArray[np.intp]
    outcome: npt.NDArray[np.int8]
    value: npt.NDArray[np.float64]
    threshold: npt.NDArray[np.float64]
    reason: npt.NDArray[np.intp]
    reasons: tuple[str, ...]
    note: str = ""


class Review(NamedTuple):
    """What a person decided about a trace: keep, drop, or edit, which keeps it with the parts of some components masked."""

    trace_id: str
    verdict: str
    mask: tuple[str, ...]
    note: str
    author: str
    made_at: str

    @property
    def reason(self) -> str:
        """Who decided what, and when."""
        word = {"keep": "kept", "drop": "dropped", "edit": "edited"}[self.verdict]
        said = f"{word} by {self.author} at {self.made_at}"
        return f"{said}: {self.note}" if self.note else said


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a decision with what = review."""

    verdict: str
    mask: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in ("keep", "drop", "edit"):
            raise ValueError(f"a review says keep, drop or edit, not {self.verdict}")
        if (self.verdict == "edit") != bool(self.mask):
            raise ValueError("an edit, and nothing else, names the components that are masked")


def read_reviews(rows: Sequence[dict[str, Any]]) -> dict[str, Review]:
    """Return the review that stands of each trace: the last one, unless it was taken back since.

    Parameters
    ----------
    rows : of the table `decisions`; those about other things are passed over

    Raises
    ------
    PolicyError
        If a value is no review.
    """
    found: dict[str, Review] = {}
    for row in sorted(rows, key=lambda row: (row["made_at"], row["decision_id"])):
        if row["what"] == TAKEN_BACK:
            found.pop(row["trace_id"], None)
        if row["what"] != REVIEW:
            continue
        try:
            said = msgspec.json.decode(row["value"], type=Verdict)
        except msgspec.MsgspecError as error:
            raise PolicyError(f"decision {row['decision_id']}", "is no review", got=str(error)) from None
        found[row["trace_id"]] = Review(row["trace_id"], said.verdict, said.mask, said.note, row["author"], row["made_at"])
    return found


def rows_of(passages: Sequence[Passage], trace_ids: npt.NDArray[np.object_]) -> pd.DataFrame:
    """Return the rows of the table `funnel`, without the data set: trace_id, place, gate, outcome, reason, value, threshold."""
    import pandas as pd

    parts = [
        pd.DataFrame({
            "trace_id": trace_ids[p.rows], "place": place, "gate": p.gate, "outcome": np.array(OUTCOMES, object)[p.outcome],
            "reason": np.array(p.reasons, object)[p.reason], "value": p.value, "threshold": p.threshold,
        })
        for place, p in enumerate(passages) if len(p.rows)
    ]  # fmt: skip
    columns = ["trace_id", "place", "gate", "outcome", "reason", "value", "threshold"]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({name: [] for name in columns})
    return table.sort_values(["trace_id", "place"], kind="stable", ignore_index=True)


def by_gate(passages: Sequence[Passage]) -> Iterator[dict[str, Any]]:
    """Yield what each gate did: how many came to it, how many of them fared how, its threshold, its most frequent reasons.

    entered = passed + dropped + queued + returned + masked. Of those that entered, an earlier gate had queued `waiting`: a trace
    that waits for a person still comes to later gates, which may drop it, but not to quotas and batches.
    """
    is_queued = np.zeros(1 + max([int(p.rows.max()) for p in passages if len(p.rows)], default=0), bool)
    for p in passages:
        n_waiting = int(is_queued[p.rows].sum())
        is_queued[p.rows] = (is_queued[p.rows] & ~np.isin(p.outcome, (DROPPED, RETURNED))) | (p.outcome == QUEUED)
        counts = np.bincount(p.outcome, minlength=len(OUTCOMES))
        known = np.unique(p.threshold[np.isfinite(p.threshold)])
        pairs = np.bincount(p.outcome.astype(np.intp) * len(p.reasons) + p.reason, minlength=len(OUTCOMES) * len(p.reasons))
        most = np.argsort(-pairs, kind="stable")[:_MAX_REASONS]
        reasons = [{"outcome": OUTCOMES[n // len(p.reasons)], "reason": p.reasons[n % len(p.reasons)], "n": int(pairs[n])}
                   for n in most if pairs[n]]  # fmt: skip
        yield {
            "gate": p.gate, "entered": len(p.rows), "waiting": n_waiting,
            **{name: int(n) for name, n in zip(OUTCOMES, counts, strict=True)},
            "threshold": float(known[0]) if len(known) == 1 else None, "note": p.note,
            "reasons": reasons,
        }  # fmt: skip
