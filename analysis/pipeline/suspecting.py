"""The stage `suspects`: who and when, for each run that failed."""

from __future__ import annotations

import msgspec

from analysis.coherence.levels import LevelResidual, residuals
from analysis.errors import CounterpointError
from analysis.evaluation.suspects import suspects
from analysis.model import Trace
from analysis.pipeline.coherence import Found, found_claims, joined
from analysis.pipeline.stages import Rows, Stage
from analysis.streams import stream

#: Changes when the same trace gives other rows.
VERSION = "1"
_SUSPECTS_A_TRACE = 10


def _run(trace: Trace, context: Found | None) -> Rows:
    if trace.outcome.passed is not False:
        return {"suspects": []}
    rows = [msgspec.structs.asdict(found) for found in suspects(trace, residuals=_residuals(trace, context))[:_SUSPECTS_A_TRACE]]
    for row in rows:
        row |= {name: msgspec.json.encode(row[name]).decode() for name in ("reasons", "signals")}
    return {"suspects": rows}


def _residuals(trace: Trace, context: Found | None) -> list[LevelResidual] | None:
    claims, relations = joined(trace, context)
    try:
        return residuals(claims, relations, stream(0, "residuals", trace.trace_id))
    except CounterpointError:  # a relation cannot be read; the stage `residuals` says so
        return None


SUSPECTS = Stage("suspects", VERSION, ("suspects",), found_claims, _run)
