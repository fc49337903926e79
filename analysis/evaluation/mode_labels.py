"""Do failure modes say the same as annotators? Adjusted mutual information of modes and verdicts, which modes never saw.

Decides what the verdict of an annotator on a run is, and hides how an interval of it is drawn.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
import numpy as np
import pandas as pd

from analysis.estimation import MIN_FINITE_SHARE

N_DRAWS: Final = 1_000
MIN_LABELLED: Final = 10
#: What is held beside the modes -> its column in the labels.
VERDICTS: Final = {"category": "category", "responsible agent": "agent_id"}


class LabelAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far the modes and what an annotator says of the same traces agree.

    what : a key of `VERDICTS`;  n : traces that have a mode and one such verdict;  n_modes, n_values : different ones there
    value : adjusted mutual information, 1 the same partition, 0 as by chance;  low, high : 95 % interval; none where more than
    5 % of the halves hold one mode or one verdict only
    reason : why there is no value
    """

    annotator: str
    what: Literal["category", "responsible agent"]
    n: int
    n_modes: int
    n_values: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        beside = f"modes and the {self.what} by {self.annotator}"
        if self.value is None:
            return f"{beside}: {self.reason}"
        if self.low is None or self.high is None:
            return f"{beside}: {self.value:.2f} ({self.n} traces, too few of a kind for an interval)"
        tells = "above chance" if self.low > 0 else "below chance" if self.high < 0 else "not told from chance"
        return f"{beside}: {self.value:.2f} ({self.low:.2f} to {self.high:.2f}, {self.n} traces), {tells}"


def label_agreement(members: pd.DataFrame, labels: pd.DataFrame, rng: np.random.Generator) -> list[LabelAgreement]:
    """Return the agreement of modes with each annotator, for the category and the responsible agent where one is stated.

    Parameters
    ----------
    members : trace_id, mode_id; each trace once
    labels : trace_id, annotator, category, agent_id, is_root_cause. An annotator's verdict on a trace is its root cause, or
        the one thing that all of its labels say; where they differ there is none.
    rng : used through `random()` alone

    Notes
    -----
    Adjusted for chance under fixed margins (Vinh, Epps & Bailey 2010). The interval holds 95 % of the values of 1,000 random
    halves of the traces, which spread as samples of this size do (Shao & Wu 1989). Draws with replacement would not serve:
    a trace drawn twice agrees with itself, which lifts independent partitions to 0.2 and above.

    Examples
    --------
    >>> members = pd.DataFrame({"trace_id": [f"t{n}" for n in range(20)], "mode_id": ["m"] * 10 + ["n"] * 10})
    >>> labels = members.assign(annotator="eve", category=members["mode_id"], agent_id=None, is_root_cause=None)
    >>> print(*label_agreement(members, labels, np.random.default_rng(0)))
    modes and the category by eve: 1.00 (1.00 to 1.00, 20 traces), above chance
    """
    found = []
    for annotator in sorted(labels["annotator"].dropna().unique()):
        mine = labels[labels["annotator"] == annotator]
        for what, column in VERDICTS.items():
            if mine[column].isna().all():
                continue
            both = members[["trace_id", "mode_id"]].merge(_verdicts(mine, column), on="trace_id").sort_values("trace_id")
            facts = {"n": len(both), "n_modes": both["mode_id"].nunique(), "n_values": both["verdict"].nunique()}
            found.append(LabelAgreement(annotator=annotator, what=what, **facts, **_agreement(both, rng)))  # type: ignore[arg-type]
    return found


def _verdicts(labels: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return trace_id, verdict: without case, one a trace that has one."""
    stated = labels[labels[column].notna()]
    is_root = stated["is_root_cause"].eq(True).fillna(False).astype(bool)
    chosen = stated[is_root | ~is_root.groupby(stated["trace_id"]).transform("any").astype(bool)]
    said = pd.DataFrame({"trace_id": chosen["trace_id"], "verdict": chosen[column].astype(str).str.casefold()}).drop_duplicates()
    return said[~said["trace_id"].duplicated(keep=False)]


def _agreement(both: pd.DataFrame, rng: np.random.Generator) -> dict[str, Any]:
    if len(both) < MIN_LABELLED:
        return {"reason": f"{len(both)} {'trace has' if len(both) == 1 else 'traces have'} both, "
                f"and at least {MIN_LABELLED} are needed"}  # fmt: skip
    for column, name in (("mode_id", "mode"), ("verdict", "value")):
        if both[column].nunique() == 1:
            return {"reason": f"all {len(both)} traces have one {name}: nothing can agree or differ"}
    from sklearn.metrics import adjusted_mutual_info_score

    modes, verdicts = (pd.factorize(both[column], sort=True)[0] for column in ("mode_id", "verdict"))
    value = float(adjusted_mutual_info_score(modes, verdicts))
    halves = (np.argsort(rng.random(len(both)), kind="stable")[: len(both) // 2] for _ in range(N_DRAWS))
    drawn = [adjusted_mutual_info_score(modes[h], verdicts[h]) for h in halves if np.ptp(modes[h]) and np.ptp(verdicts[h])]
    if len(drawn) < MIN_FINITE_SHARE * N_DRAWS:
        return {"value": round(value, 6)}
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {name: round(float(v), 6) for name, v in (("value", value), ("low", low), ("high", high))}
