"""Curation: from a frame of traces and a policy to the rows, segments and funnel of a data set, and a report.

Decides the sequence: gates, stages of the curriculum, what people decided, masks, floors, caps, order, batches, weights. Nothing
here reads a workspace, and nothing is random but by the seed of the policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.curation import report
from analysis.curation.flow import Flow
from analysis.curation.funnel import Review, by_gate, rows_of
from analysis.curation.mixture import Tied, mixture
from analysis.curation.policy import Policy
from analysis.curation.segments import Parts
from analysis.errors import PolicyError

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
_SEGMENTS = ("trace_id", "component", "event_id", "keep", "weight", "reason")


class Curated(NamedTuple):
    """A data set: rows, segments and funnel as in the tables of a workspace without the data set's name, and the report.

    rows : trace_id, outcome (kept, masked, dropped, queued), position, weight, stage; one row a trace of the input
    segments : trace_id, component, event_id, keep, weight, reason; only what is masked or weighed other than 1
    funnel : trace_id, place, gate, outcome, reason, value, threshold
    report : JSON, see `report`
    """

    rows: pd.DataFrame
    segments: pd.DataFrame
    funnel: pd.DataFrame
    report: dict[str, Any]


def curate(
    frame: pd.DataFrame,
    policy: Policy,
    *,
    parts: Mapping[str, Parts] | None = None,
    ties: Sequence[Tied] = (),
    reviews: Mapping[str, Review] | None = None,
) -> Curated:
    """Return the data set that a policy makes of traces. Same input, same bytes.

    Parameters
    ----------
    frame : one row a trace, any order: trace_id, task_id, format, mode, family, stage (text, None where absent); passed (1, 0),
        residual, residual_norm, residual_max, residual_debiased, sharpness, coupling_bits, d_req, d_orch, joint, agreement
        (numbers, NaN where absent); is_tied: whether some claims could contradict each other; a column for each further gate
        (`gates.column_of`)
    parts : what traces consist of, by id; masks and weights of parts need it, a trace that is not there is one whole
    ties : what ties components, for the budget of the mixture
    reviews : what people decided, by trace id

    Raises
    ------
    PolicyError
        If the weights come to nothing.

    Notes
    -----
    A trace that a person kept passes whatever gates, quotas and batches say; one that a person dropped never comes back.
    """
    frame = frame.sort_values("trace_id", ignore_index=True)
    flow = Flow(frame, policy, reviews or {})
    for gate in policy.gates:
        flow.pass_gate(gate)
    flow.keep_stages()
    flow.apply_reviews()
    flow.rule_parts(parts or {})
    flow.apply_floors()
    flow.apply_caps()
    arranged = flow.arranged(parts or {})
    ordered, batches = flow.fill_batches(arranged)
    weights = _weights(flow)
    told = _report(flow, weights, ordered, batches, ties)
    return Curated(_rows(flow, ordered, weights), _segments(flow, parts or {}), rows_of(flow.passages, flow.ids), told)


def _weights(flow: Flow) -> Floats:
    """The sampling weight of each row that stays, mean 1 over them; 0 elsewhere."""
    weights, stays = flow.weights, flow.stays
    is_tied = stays & np.isfinite(flow.residual)
    if is_tied.any():
        weights[is_tied] /= _positive(weights[is_tied].mean(), "weights.h", "raise h, or set it to 0")
    if shares := flow.policy.curriculum.shares:
        stage = flow.frame["stage"]
        for name in [*shares, None]:
            mine = stays & (~stage.isin(list(shares)) if name is None else stage == name).to_numpy(bool)
            share = max(0.0, 1 - sum(shares.values())) if name is None else shares[name]
            weights[mine] *= share / max(weights[mine].sum(), np.finfo(float).tiny)
    weights[~stays] = 0.0
    if stays.any():
        weights /= _positive(weights[stays].mean(), "curriculum.shares", "give a share to a stage that there is")
    return weights.round(9)


def _positive(mean: float, field: str, hint: str) -> float:
    if not mean > 0:
        raise PolicyError(f"policy: {field}", "every sampling weight is 0", hint=hint)
    return float(mean)


def _rows(flow: Flow, ordered: Indices, weights: Floats) -> pd.DataFrame:
    import pandas as pd

    position, weight = np.full((2, len(flow.ids)), None, object)
    position[ordered] = range(len(ordered))
    weight[flow.stays] = weights[flow.stays]
    outcome = np.select([~flow.is_alive, flow.is_queued, flow.is_masked], ["dropped", "queued", "masked"], "kept").astype(object)
    columns = {"trace_id": flow.ids, "outcome": outcome, "stage": flow.frame["stage"], "position": position, "weight": weight}
    return pd.DataFrame(columns)


def _segments(flow: Flow, parts: Mapping[str, Parts]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([(name, *segment) for name, segment in flow.segments(parts)], columns=list(_SEGMENTS))


def _report(flow: Flow, weights: Floats, ordered: Indices, batches: Sequence[Any], ties: Sequence[Tied]) -> dict[str, Any]:
    stays, policy = flow.stays, flow.policy
    counts = {
        "input": len(flow.ids), "kept": int((stays & ~flow.is_masked).sum()), "masked": int((stays & flow.is_masked).sum()),
        "dropped": int((~flow.is_alive).sum()), "queued": int((flow.is_alive & flow.is_queued).sum()),
    }  # fmt: skip
    gates = list(by_gate(flow.passages))
    notes = [gate["note"] for gate in gates if gate["note"]] + report.missing(flow.frame, policy)
    return {
        "gist": report.gist(counts, gates), "counts": counts, "notes": notes, "by_gate": gates,
        "distributions": report.distributions(flow.frame, flow.residual, stays),
        "batches": list(batches),
        "order": report.order_change(flow.scores[stays].tolist(), flow.scores[ordered].tolist(), policy.order.score),
        "diversity": report.diversity(flow.frame, residual=flow.residual, weights=flow.weights, is_after=stays,
                                      final=weights[stays], seed=policy.seed),
        "mixture": report.blocks(mixture(flow.ids[stays].tolist(), ties, policy.mixture) if stays.any() else []),
        "dose_response": report.dose(flow.frame, flow.residual, seed=policy.seed),
    }  # fmt: skip
