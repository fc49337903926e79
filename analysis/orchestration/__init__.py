"""How a team was led: the event graph of a run, its timing, the quality and difficulty of its decisions, what went wrong.

graph      events to a DAG, repairs         timing     work, span, slack, drag (with nesting, paths)
metrics    all metrics of a trace, tables   findings   anti-patterns with their events
Where own work ends and decisions begin stands in `quality`; what single agents do beside it in `cost`.
"""

from __future__ import annotations

from analysis.orchestration.cost import Baseline, baselines
from analysis.orchestration.evidence import Finding
from analysis.orchestration.findings import FINDINGS
from analysis.orchestration.measure import METRICS, Metric

__all__ = ["FINDINGS", "METRICS", "Baseline", "Finding", "Metric", "baselines"]
