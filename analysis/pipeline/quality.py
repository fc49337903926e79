"""The stage `quality`: metrics, findings and components of each trace, beside what single agents did on its task."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from analysis.model import Trace
from analysis.orchestration import Baseline, baselines
from analysis.orchestration.cost import baseline_key
from analysis.orchestration.findings import findings
from analysis.orchestration.metrics import metrics
from analysis.orchestration.timing import Timing, timing
from analysis.pipeline.stages import Rows, Stage
from analysis.workspace import Snapshot

#: Changes when the same trace gives other rows.
VERSION = "2"


def _context(snapshot: Snapshot) -> Mapping[str, dict[str, Any]]:
    """What single agents did on the task of each trace in its world, where any did."""
    alone = snapshot.sql("select trace_id from traces where n_agents = 1 and task_id is not null order by trace_id")
    known = baselines(snapshot.traces(alone["trace_id"].to_pylist()))
    tasks = snapshot.sql("select trace_id, world, task_id from traces where task_id is not null")
    rows = zip(*tasks.to_pydict().values(), strict=True)
    return {trace_id: msgspec.to_builtins(known[key]) for trace_id, *of in rows if (key := tuple(of)) in known}


def _run(trace: Trace, context: dict[str, Any] | None) -> Rows:
    baseline = {baseline_key(trace): msgspec.convert(context, Baseline)} if context else None
    timed = timing(trace)
    found = [msgspec.structs.asdict(finding) for finding in findings(trace, timed=timed)]
    for row in found:
        row |= {name: msgspec.json.encode(row[name]).decode() for name in ("event_ids", "agents")}
    return {
        "metrics": [msgspec.structs.asdict(metric) for metric in metrics(trace, baseline=baseline, timed=timed)],
        "findings": found,
        "components": _components(trace, timed),
    }


def _components(trace: Trace, timed: Timing) -> list[dict[str, Any]]:
    """The part of each component: its events, its errors, and its share of the time (or steps) on the critical path."""
    own = {event.event_id: own for event, own in zip(timed.graph.events, timed.own, strict=True)}
    of_agent = {agent.agent_id: agent.component for agent in trace.agents}
    of_event = {event.event_id: of_agent.get(event.agent_id or "") for event in trace.events}
    n_events = Counter(of_event.values())
    n_errors = Counter(of_event[event.event_id] for event in trace.events if event.error is not None)
    critical = defaultdict[str | None, float](float)
    total = sum(own[event_id] for event_id in timed.critical_path)
    for event_id in timed.critical_path if total else ():
        critical[of_event[event_id]] += own[event_id] / total
    return [
        {"component": name, "n_events": n_events[name], "n_errors": n_errors[name], "critical_share": critical[name]}
        for name in sorted(set(of_agent.values()))
    ]


QUALITY = Stage("quality", VERSION, ("metrics", "findings", "components"), _context, _run)
