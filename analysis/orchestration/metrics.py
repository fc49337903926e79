"""All metrics of a trace, in one fixed order, and the tables of them.

A table has one row a trace and metric, absent ones included, so that what is missing can be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from analysis.model import Trace
from analysis.orchestration.cost import Baseline, BaselineKey, baseline_key, baselines, cost_metrics
from analysis.orchestration.difficulty import difficulty_metrics
from analysis.orchestration.measure import METRICS, Meaning, Metric, absent
from analysis.orchestration.quality import merge_metrics, orchestration_quality, parallel_metrics, split_metrics, work_metrics
from analysis.orchestration.timing import Timing, timing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["METRICS", "Baseline", "Meaning", "Metric", "baselines", "coverage_df", "metrics", "metrics_df"]

_COLUMNS = ("name", "value", "variant", "n", "low", "high", "reason")


def metrics(
    trace: Trace, *, baseline: Mapping[BaselineKey, Baseline] | None = None, timed: Timing | None = None
) -> tuple[Metric, ...]:
    """Return every metric of a trace, each name of `METRICS` once and in that order.

    Parameters
    ----------
    trace : the run
    baseline : what single agents did, by world and task (see `baselines`); without it gains are absent
    timed : the run's timing, where it is at hand

    Examples
    --------
    >>> from analysis.model import Source
    >>> empty = Trace(trace_id="t", world="recorded", source=Source(format="x"))
    >>> [m.reason for m in metrics(empty)][:2], [m.name for m in metrics(empty)] == list(METRICS)
    (['no tests of own subtasks and no `act` events', 'no events'], True)
    """
    timed = timed or timing(trace)
    found = {metric.name: metric for metric in _all(trace, timed, (baseline or {}).get(baseline_key(trace)))}
    found["q_orchestration"] = orchestration_quality(timed, found)
    return tuple([found[name] for name in METRICS])


def _all(trace: Trace, timed: Timing, baseline: Baseline | None) -> Iterator[Metric]:
    yield from work_metrics(trace, timed)
    yield from parallel_metrics(timed)
    yield from split_metrics(trace)
    yield from merge_metrics(trace, timed)
    yield from cost_metrics(trace, timed, baseline)
    yield from _time_metrics(timed)
    yield from difficulty_metrics(trace, timed)
    yield Metric("n_repairs", float(len(timed.graph.repairs)), n=len(timed.graph.events))


def _time_metrics(timed: Timing) -> Iterator[Metric]:
    events = timed.graph.events
    if not events:
        yield from (absent(name, "no events", n=0) for name in _TIMES)
        return
    basis, n = timed.basis_of_time, timed.n_known
    clockless = f"no clock: {sum(timed.graph.is_timed)} of {len(events)} events have a duration"
    for name in ("work_s", "span_s", "makespan_s"):
        value = getattr(timed, name)
        yield absent(name, clockless, n=0) if value is None else Metric(name, value, "clock", n)
    idle = "nothing took any time"
    best = max(timed.work / len(timed.busy), timed.span_causal) if timed.busy else None
    nobody = f"{timed.n_nameless} of {len(events)} events name no agent" if timed.n_nameless else ""
    values = {
        "parallelism": (timed.work / timed.span_causal if timed.span_causal else None, ""),
        "schedule_quality": (best / timed.makespan if best and timed.makespan and not timed.n_nameless else None, nobody),
        "utilisation_time": (timed.utilisation_time, nobody),
        "utilisation_slot": (timed.utilisation_slot, nobody),
        "imbalance": (timed.imbalance, nobody),
    }
    for name, (value, reason) in values.items():
        yield absent(name, reason or idle, variant=basis, n=n) if value is None else Metric(name, value, basis, n)
    done = timed.sub_agent_acts
    reason = timed.useful_reason if done else "no `act` event by an agent that another one spawned or delegated to"
    act = timed.utilisation_act
    yield absent("utilisation_act", reason, n=len(done)) if act is None else Metric("utilisation_act", act, "events", len(done))


_TIMES = (
    "work_s", "span_s", "makespan_s", "parallelism", "schedule_quality", "utilisation_time", "utilisation_slot", "imbalance",
    "utilisation_act",
)  # fmt: skip


def metrics_df(traces: Iterable[Trace], *, baseline: Mapping[BaselineKey, Baseline] | None = None) -> pd.DataFrame:
    """Return the metrics of several traces: trace_id, name, value, variant, n, low, high, reason; one row each.

    Without `baseline` the single-agent runs among `traces` are taken.
    """
    import pandas as pd

    traces = list(traces)
    known = baselines(traces) if baseline is None else baseline
    rows = [(t.trace_id, *[getattr(m, column) for column in _COLUMNS]) for t in traces for m in metrics(t, baseline=known)]
    frame = pd.DataFrame(rows, columns=["trace_id", *_COLUMNS])
    return frame.astype({"value": float, "n": "Int64", "low": float, "high": float})


def coverage_df(traces: Iterable[Trace], *, baseline: Mapping[BaselineKey, Baseline] | None = None) -> pd.DataFrame:
    """Return how many traces of each format have each metric, and why the others do not.

    Returns
    -------
    format, name, reason, n_traces: reason is empty in the row of those that have it; counts in reasons are left out, so
    that alike ones add up. The rows of one format and name add up to the format's traces. Sorted, most frequent reason first.
    """
    import re

    import pandas as pd

    traces = list(traces)
    known = baselines(traces) if baseline is None else baseline
    counts = Counter[tuple[str, str, str]]()
    for trace in traces:
        for metric in metrics(trace, baseline=known):
            reason = "" if metric.value is not None else re.sub(r"\d+(\.\d+)?", "…", metric.reason)
            counts[trace.source.format, metric.name, reason] += 1
    order = list(METRICS)
    keys = sorted(counts, key=lambda key: (key[0], order.index(key[1]), key[2] != "", -counts[key], key[2]))
    return pd.DataFrame([(*key, counts[key]) for key in keys], columns=["format", "name", "reason", "n_traces"])
