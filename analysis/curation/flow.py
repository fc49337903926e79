"""What becomes of each row on its way through a curation: passed, masked, queued, dropped, taken back; step by step.

Decides who is best where not all can stay, when a row is mended instead of dropped, and that a person has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from analysis.curation.batches import filled
from analysis.curation.funnel import DROPPED, MASKED, PASSED, QUEUED, RETURNED, Passage, Review
from analysis.curation.gates import DROP, MEND, QUEUE, Coherence, Gate, Hedging, judge, name_of, residual_and_noise
from analysis.curation.ordering import Marks, order
from analysis.curation.policy import Policy
from analysis.curation.quotas import caps, floors
from analysis.curation.scheduling import interface
from analysis.curation.segments import Parts, Ruling, Segment, ruling, segments
from analysis.streams import stream

if TYPE_CHECKING:
    import pandas as pd

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Outcomes = npt.NDArray[np.int8]
_NOTHING = Parts({})
_OF_RULING = {"kept": PASSED, "masked": MASKED, "dropped": DROPPED, "queued": QUEUED}


class Flow:
    """The rows of a frame, and what has become of each so far; every method is one step, in the order of `curate`."""

    def __init__(self, frame: pd.DataFrame, policy: Policy, reviews: Mapping[str, Review]) -> None:
        """Start with all rows alive; `reviews` are by trace id."""
        n = len(frame)
        self.frame, self.policy = frame, policy
        self.ids = frame["trace_id"].to_numpy(object)
        self.residual = np.where(frame["is_tied"].to_numpy(bool), residual_and_noise(frame)[0], np.nan)
        self.reviews = {row: reviews[name] for row, name in enumerate(self.ids) if name in reviews}
        self.is_alive, self.is_queued, self.is_masked = np.ones(n, bool), np.zeros(n, bool), np.zeros(n, bool)
        self.to_mend, self.is_held = np.zeros(n, bool), np.zeros(n, bool)
        self.may_return, self.is_barred = np.zeros(n, bool), np.zeros(n, bool)
        self.rulings: dict[int, Ruling] = {}
        self.passages: list[Passage] = []

    @property
    def stays(self) -> Bools:
        """The rows that are in the data set as things stand."""
        return self.is_alive & ~self.is_queued

    @property
    def weights(self) -> Floats:
        """How often each row is drawn, exp(-(residual_norm/h)²), 1 on average; 1 without tied claims."""
        h = self.policy.weights.h
        return np.ones(len(self.ids)) if not h else np.nan_to_num(np.exp(-((self.residual / h) ** 2)), nan=1.0)

    @property
    def rank(self) -> Indices:
        """A number for each row, the best first: passed before unknown before failed, then coherent, then as drawn."""
        passed = np.nan_to_num(self.frame["passed"].to_numpy(np.float64), nan=0.5)
        middle = float(np.nanmean(self.residual)) if np.isfinite(self.residual).any() else 0.0
        drawn = stream(self.policy.seed, "rank").random(len(self.ids))
        rank = np.empty(len(self.ids), np.intp)
        rank[np.lexsort((drawn, np.nan_to_num(self.residual, nan=middle), -passed))] = np.arange(len(self.ids))
        return rank

    def pass_gate(self, gate: Gate) -> None:
        """Let a gate judge every row that is left."""
        judged = judge(gate, self.frame)
        rows = np.flatnonzero(self.is_alive)
        verdict = judged.verdict[rows]
        outcome = np.select([verdict == DROP, verdict == QUEUE], [DROPPED, QUEUED], PASSED).astype(np.int8)
        self.to_mend[rows[verdict == MEND]] = True
        self.may_return[rows[verdict == DROP]] = True
        if isinstance(gate, Hedging):  # it is always coherent, and would be the best of what was dropped
            self.is_barred |= judged.verdict == DROP
        self._apply(Passage(name_of(gate), rows, outcome, judged.value[rows], judged.threshold[rows], judged.reason[rows],
                            judged.reasons, judged.note))  # fmt: skip

    def keep_stages(self) -> None:
        """Drop the rows whose task is of no stage that is wanted."""
        staging, stage = self.policy.curriculum, self.frame["stage"]
        if not staging.stages:
            return
        reason = np.select([stage.isna(), ~stage.isin(staging.stages)], [0, 1], 2)
        goes = (reason == 1) | ((reason == 0) & (staging.unknown == "drop"))
        self.is_barred |= goes
        rows = np.flatnonzero(self.is_alive)
        reasons = ("the task has no stage", "of another stage", "of a stage that is wanted")
        self._apply(_valueless("stage", rows, np.where(goes[rows], DROPPED, PASSED), reason[rows], reasons))

    def apply_reviews(self) -> None:
        """Let people overrule the gates; what they kept, no later step takes."""
        if not self.reviews:
            return
        rows = np.array(sorted(self.reviews), np.intp)
        said = [self.reviews[int(row)] for row in rows]
        is_dropped = np.array([review.verdict == "drop" for review in said])
        self.is_held[rows[~is_dropped]] = True
        self.is_barred[rows] = True
        reasons = tuple([review.reason for review in said])
        self._apply(_valueless("review", rows, np.where(is_dropped, DROPPED, RETURNED), np.arange(len(rows)), reasons))

    def rule_parts(self, parts: Mapping[str, Parts]) -> None:
        """Decide for every row that is left which of its components carry no loss, and whether it stays at all."""
        rows = np.flatnonzero(self.is_alive)
        masks_all = not any(isinstance(gate, Coherence) for gate in self.policy.gates)
        self.rulings = {row: self._ruled(row, parts.get(self.ids[row], _NOTHING), masks_all) for row in rows.tolist()}
        outcome = np.array([_OF_RULING[ruled.outcome] for ruled in self.rulings.values()], np.int8)
        number: dict[str, int] = {}
        reason = np.array([number.setdefault(ruled.reason, len(number)) for ruled in self.rulings.values()], np.intp)
        self.may_return[rows] = self.to_mend[rows] & (outcome == DROPPED)
        self._apply(_valueless("segments", rows, outcome, reason, tuple(number)))

    def apply_floors(self) -> None:
        """Take back the best of what gates dropped, where too few of a kind are left."""
        may_return = self.may_return & ~self.is_alive & ~self.is_barred
        for step in floors(self.policy.quotas, self.frame, is_in=self.stays, may_return=may_return, rank=self.rank):
            self.rulings |= dict.fromkeys(step.rows.tolist(), Ruling("kept", (), step.reason))
            same = np.zeros(len(step.rows), np.intp)
            back = _valueless(step.gate, step.rows, same + RETURNED, same, (step.reason,))
            self._apply(back._replace(threshold=np.full(len(same), float(step.limit))))

    def _ruled(self, row: int, parts: Parts, masks_all: bool) -> Ruling:
        """What is masked of a row: what a person said; else what its repairs say, where the coherence gate asks or is none."""
        review = self.reviews.get(row)
        if review is not None and review.verdict != "drop":
            return Ruling("masked" if review.mask else "kept", review.mask, "as a person decided")
        if not (self.to_mend[row] or masks_all):
            return Ruling("kept", (), "coherent enough as it is")
        ruled = ruling(parts, self.policy.segments)
        if self.to_mend[row] and ruled.outcome == "kept":
            return Ruling("dropped", (), f"too incoherent, and no mask mends it: {ruled.reason}")
        return ruled

    def apply_caps(self) -> None:
        """Let go of what is more than the quotas allow."""
        for step in caps(self.policy.quotas, self.frame, is_in=self.stays, is_held=self.is_held, rank=self.rank):
            rows = np.flatnonzero(self.stays)
            goes = np.isin(rows, step.rows)
            passed = _valueless(step.gate, rows, np.where(goes, DROPPED, PASSED), goes, ("within the quota", step.reason))
            self._apply(passed._replace(threshold=np.full(len(rows), float(step.limit))))

    def arranged(self, parts: Mapping[str, Parts]) -> Indices:
        """Return the rows that are left in the order of training."""
        rows, policy = np.flatnonzero(self.stays), self.policy.order
        interfaces = None
        if policy.boundary_share > 0:
            interfaces = [interface(parts.get(self.ids[row], _NOTHING).shares, policy.interface_share) for row in rows]
        bits = self.frame["coupling_bits"].to_numpy(np.float64)[rows].tolist()
        mode = self.frame["mode"].astype(object)
        marks = Marks(bits, interfaces, mode.where(mode.notna(), None).iloc[rows].tolist())
        found = order(rows.tolist(), self.scores[rows].tolist(), policy, rng=stream(self.policy.seed, "order"), marks=marks)
        return np.array(found, np.intp)

    @property
    def scores(self) -> Floats:
        """What the rows are ordered by, NaN where absent."""
        name = self.policy.order.score
        return self.residual if name == "residual_norm" else self.frame[name].to_numpy(np.float64)

    def fill_batches(self, ordered: Indices) -> tuple[Indices, tuple[dict[str, Any], ...]]:
        """Return the order without the rows that leave so that every batch holds, and a row for each batch."""
        found = filled(self.policy.batches, self.residual[ordered], self.is_held[ordered])
        if self.policy.batches.size:
            reasons = ("its batch holds enough coherent traces", "the most incoherent of a batch with too few coherent traces")
            rows = np.sort(ordered)
            goes = ~found.stays[np.argsort(ordered)]
            most = np.full(len(rows), self.policy.batches.tau)
            self._apply(Passage("batches", rows, np.where(goes, DROPPED, PASSED).astype(np.int8), self.residual[rows], most,
                                goes.astype(np.intp), reasons))  # fmt: skip
        return ordered[found.stays], found.batches

    def segments(self, parts: Mapping[str, Parts]) -> Iterator[tuple[str, Segment]]:
        """Yield the parts of the rows that stay which are masked or weigh other than 1, with the trace's id."""
        for row in np.flatnonzero(self.stays).tolist():
            mine = parts.get(self.ids[row], _NOTHING)
            yield from ((self.ids[row], segment) for segment in segments(mine, self.policy.segments, self.rulings[row]))

    def _apply(self, passed: Passage) -> None:
        """Take over what a gate did."""
        self.passages.append(passed)
        self.is_alive[passed.rows[passed.outcome == DROPPED]] = False
        self.is_queued[passed.rows[passed.outcome == QUEUED]] = True
        self.is_masked[passed.rows[passed.outcome == MASKED]] = True
        back = passed.rows[passed.outcome == RETURNED]
        self.is_alive[back], self.is_queued[back], self.to_mend[back] = True, False, False


def _valueless(gate: str, rows: Indices, outcome: Any, reason: Any, reasons: tuple[str, ...]) -> Passage:
    absent = np.full(len(rows), np.nan)
    return Passage(gate, rows, outcome.astype(np.int8), absent, absent, reason.astype(np.intp), reasons)
