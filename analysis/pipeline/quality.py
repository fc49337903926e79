"""The stage `quality`: metrics and findings of each trace, beside what single agents did on its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from analysis.model import Trace
from analysis.orchestration import Baseline, baselines
from analysis.orchestration.findings import findings
from analysis.orchestration.metrics import metrics
from analysis.orchestration.timing import timing
from analysis.pipeline.stages import Rows, Stage
from analysis.workspace import Snapshot

#: Changes when the same trace gives other rows.
VERSION = "1"


def _context(snapshot: Snapshot) -> Mapping[str, dict[str, Any]]:
    """What single agents did on the task of each trace, where any did."""
    alone = snapshot.sql("select trace_id from traces where n_agents = 1 and task_id is not null order by trace_id")
    known = baselines(snapshot.traces(alone["trace_id"].to_pylist()))
    tasks = snapshot.sql("select trace_id, task_id from traces where task_id is not null")
    pairs = zip(tasks["trace_id"].to_pylist(), tasks["task_id"].to_pylist(), strict=True)
    return {trace_id: {task: msgspec.to_builtins(known[task])} for trace_id, task in pairs if task in known}


def _run(trace: Trace, context: dict[str, Any] | None) -> Rows:
    baseline = {task: msgspec.convert(row, Baseline) for task, row in (context or {}).items()}
    timed = timing(trace)
    found = [msgspec.structs.asdict(finding) for finding in findings(trace, timed=timed)]
    for row in found:
        row |= {name: msgspec.json.encode(row[name]).decode() for name in ("event_ids", "agents")}
    return {
        "metrics": [msgspec.structs.asdict(metric) for metric in metrics(trace, baseline=baseline, timed=timed)],
        "findings": found,
    }


QUALITY = Stage("quality", VERSION, ("metrics", "findings"), _context, _run)
