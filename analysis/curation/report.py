"""What a curation did, as one JSON value that explains itself: counts, distributions before and after, diversity, the gist.

Every part carries its unit or its n; the pages and the manifest show it as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from analysis.curation.diversity import curve, effective_size, features, vendi
from analysis.curation.dose import dose_response
from analysis.curation.ordering import order_metrics
from analysis.curation.policy import Policy
from analysis.curation.quotas import GROUPS
from analysis.streams import stream

if TYPE_CHECKING:
    import pandas as pd

    from analysis.curation.mixture import Block

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
#: What the likeness of two runs goes by, beside the metrics that the gates look at.
_LIKENESS = ("mode", "family", "d_orch", "q_orchestration", "n_agents", "n_events")
_BINS = np.linspace(0.0, 1.0, 21)
_SOURCES = {
    "mode": "run `counterpoint analyze`", "family": "run `counterpoint analyze`", "task": "import traces that name their task",
}  # fmt: skip
_MAX_NAMES = 50  # of a distribution over names: the most frequent, the rest together
_REMEDIES = {
    "coherence": "raise its `max`", "hedging": "lower its `min_sharpness`", "outcome": "leave it out",
    "measure": "move its bounds", "credit": "lower its `min`", "labels": "lower its `min`", "review": "look at the review queue",
    "without": 'set `quotas.without_claims` to "keep"', "quota": "raise the quota", "stage": "take more stages",
    "segments": 'set `segments.ambiguous` to "keep"', "batches": "lower `batches.ratio_first` and `ratio_last`",
}  # fmt: skip


def distributions(frame: pd.DataFrame, residual: Floats, is_after: Bools) -> dict[str, Any]:
    """Return how traces are distributed, `before` over all of them and `after` over those that stay.

    residual_norm: counts in 20 bins of [0, 1], with n, mean and quartiles; passed, stage, family, mode, format: counts by name.
    """
    found: dict[str, Any] = {"residual_norm": {"edges": [round(float(x), 2) for x in _BINS]}}
    for name, rows in (("before", np.ones(len(frame), bool)), ("after", is_after)):
        found["residual_norm"][name] = _numbers(residual[rows])
    passed = frame["passed"].map({1.0: "passed", 0.0: "failed"})
    for name, column in {"passed": passed, **{n: frame[n] for n in ("stage", "family", "mode", "format")}}.items():
        found[name] = {"before": _names(column), "after": _names(column[is_after])}
    return found


def diversity(
    frame: pd.DataFrame, *, residual: Floats, weights: Floats, is_after: Bools, final: Floats, seed: int
) -> dict[str, Any]:
    """Return how many different runs there are before and after, and the curve of coherence against diversity.

    Parameters
    ----------
    residual, weights : normalised residual and sampling weight of each row of the frame, before any gate
    is_after, final : the rows that stay, and the sampling weights of those
    """
    columns = [name for name in _LIKENESS if name in frame]
    vectors = features(frame, columns)
    score = {name: vendi(vectors[rows], rng=stream(seed, "vendi", name))
             for name, rows in (("before", np.ones(len(frame), bool)), ("after", is_after))}  # fmt: skip
    return {
        "vendi": {name: value if value is None else round(value, 6) for name, value in score.items()},
        "vendi_means": "effective number of different runs, two being alike by the share of these features that agree",
        "features": columns, "n": {"before": len(frame), "after": int(is_after.sum())},
        "ess": effective_size(final), "ess_means": "equally weighted rows that the sampling weights come to, (Σw)² / Σw²",
        "curve": curve(residual, weights, vectors, rng=stream(seed, "vendi", "curve")),
    }  # fmt: skip


def order_change(before: Sequence[float | None], after: Sequence[float | None], score: str) -> dict[str, Any]:
    """Return the measures of the order before and after, in the unit of the score; None where no row has one."""
    found = {"before": order_metrics(before), "after": order_metrics(after)}
    return {"score": score, **{name: m and {k: round(v, 9) for k, v in m._asdict().items()} for name, m in found.items()}}


def blocks(found: Sequence[Block]) -> dict[str, Any]:
    """Return the blocks of components with their shares of the budget, the most tightly coupled first, at most 50."""
    return {
        "means": "share of the budget of synthesis, replay and scrutiny, before and after it moves to coupled blocks",
        "n_blocks": len(found), "blocks": [block._asdict() for block in found[:_MAX_NAMES]],
    }  # fmt: skip


def dose(frame: pd.DataFrame, residual: Floats, *, seed: int) -> dict[str, Any]:
    """Return how the outcome depends on the residual, over all traces of the input: how much coherence is enough."""
    tasks = frame["task_id"].astype(object).where(frame["task_id"].notna(), None).tolist()
    found = dose_response(residual.tolist(), frame["passed"].tolist(), tasks, rng=stream(seed, "dose"))
    return {**found._asdict(), "bins": found.bins.astype(object).where(found.bins.notna(), None).to_dict("records")}


def missing(frame: pd.DataFrame, policy: Policy) -> list[str]:
    """Return a sentence for each part of a policy that has nothing to go by in the data, and what to do."""
    found = []
    for name, column in GROUPS.items():
        is_asked = getattr(policy.quotas, f"min_per_{name}") or getattr(policy.quotas, f"max_per_{name}")
        if is_asked and len(frame) and not frame[column].notna().any():
            found.append(f"No trace has a {name}, so the quotas by {name} decide nothing: {_SOURCES[name]}.")
    score = policy.order.score
    if policy.order.method != "none" and len(frame) and not frame[score].notna().any():
        found.append(f"No trace has a {score}, so the traces stand in the order of their ids: run `counterpoint analyze`.")
    there = set(frame["stage"].dropna())
    if absent := [stage for stage in policy.curriculum.shares if stage not in there]:
        found.append(f"No trace is of the stage {absent[0]}, so its share goes to the others: change `curriculum.shares`.")
    return found


def gist(counts: dict[str, int], gates: Sequence[dict[str, Any]]) -> str:
    """Return one sentence: what stays; where nothing does, the gate that took most and what to change."""
    n, stays = counts["input"], counts["kept"] + counts["masked"]
    if not n:
        return "No trace fits the sources and worlds of the policy: widen `sources.filter`, `sources.formats` or `worlds`."
    if stays:
        masked = f", {counts['masked']:,} of them with masked parts" if counts["masked"] else ""
        queued = f", {counts['queued']:,} queued for a person" if counts["queued"] else ""
        return f"{stays:,} of {n:,} traces stay{masked}; {counts['dropped']:,} dropped{queued}."
    worst = max(gates, key=lambda gate: gate["dropped"] + gate["queued"], default=None)
    if worst is None or not worst["dropped"] + worst["queued"]:
        return f"Nothing stays of {n:,} traces."
    did = "dropped" if worst["dropped"] >= worst["queued"] else "queued"
    remedy = _REMEDIES.get(worst["gate"].split()[0], "change it")
    if did == "queued":
        remedy += ", or decide the queue"
    why = max((row for row in worst["reasons"] if row["outcome"] == did), key=lambda row: row["n"])["reason"]
    threshold = "" if worst["threshold"] is None else f", threshold {worst['threshold']:g}"
    took = f"the gate `{worst['gate']}` {did} {worst[did]:,} of the {worst['entered']:,} that came to it ({why}{threshold})"
    return f"Nothing stays of {n:,} traces: {took} - {remedy}."


def _numbers(values: Floats) -> dict[str, Any]:
    known = values[np.isfinite(values)]
    counts, _ = np.histogram(known, _BINS)
    quartiles = np.quantile(known, [0.25, 0.5, 0.75]).round(9).tolist() if len(known) else None
    mean = round(float(known.mean()), 9) if len(known) else None
    return {
        "n": len(known),
        "n_absent": len(values) - len(known),
        "mean": mean,
        "quartiles": quartiles,
        "counts": counts.tolist(),
    }


def _names(column: pd.Series[Any]) -> dict[str, int]:
    """Counts by name, the most frequent first; what is absent as `unknown`, what is rare together as `others`."""
    counts = Counter(["unknown" if value is None or value != value else str(value) for value in column.tolist()])
    ranked = sorted(((n, name) for name, n in counts.items()), key=lambda pair: (-pair[0], pair[1]))
    shown = {name: n for n, name in ranked[:_MAX_NAMES]}
    rest = sum(n for n, _ in ranked[_MAX_NAMES:])
    return {**shown, "others": rest} if rest else shown
