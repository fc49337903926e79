"""All metrics together: order, tables, what they must not depend on, how fast they are, and what real runs have of them."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analysis import readers
from analysis.model import Agent, Event, Outcome, Task, Trace, decode, encode
from analysis.orchestration import METRICS, Metric
from analysis.orchestration.findings import findings
from analysis.orchestration.graph import event_graph
from analysis.orchestration.metrics import coverage_df, metrics, metrics_df
from analysis.orchestration.timing import timing
from benchmarks.simulation import SimulationPolicy, simulate
from tests.orchestration.runs import event, run, runs
from tests.strategies import traces

COLUMNS = ["trace_id", "name", "value", "variant", "n", "low", "high", "reason"]
SECONDS = {"work_s", "span_s", "makespan_s"}


def named(trace: Trace) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics(trace)}


def with_events(trace: Trace, events: list[Event]) -> Trace:
    return msgspec.structs.replace(trace, events=tuple(events))


def same(first: Trace, second: Trace, *, but: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Both have the same metrics, up to the last bits of a float."""
    other = named(second)
    for name, metric in named(first).items():
        if name not in but:
            assert (other[name].value, other[name].variant, other[name].n) == (
                None if metric.value is None else pytest.approx(metric.value, rel=1e-6, abs=1e-9), metric.variant, metric.n,
            ), name  # fmt: skip


@given(traces)
def test_any_trace_has_every_metric_once_with_a_value_or_a_reason(trace: Trace) -> None:
    found = metrics(trace)
    assert [metric.name for metric in found] == list(METRICS)
    for metric in found:
        assert (metric.value is None) == bool(metric.reason)
        assert metric.value is None or abs(metric.value) < float("inf")
        assert metric.low is None or metric.low <= metric.value <= metric.high  # type: ignore[operator]


@given(runs(wild=True))
def test_shares_lie_between_zero_and_one(trace: Trace) -> None:
    for name, metric in named(trace).items():
        if METRICS[name].unit == "share" and metric.value is not None:
            assert 0 <= metric.value <= 1 + 1e-9, name


def test_meanings_say_unit_and_direction() -> None:
    assert {meaning.better for meaning in METRICS.values()} == {"higher", "lower", "neither"}
    assert all(meaning.unit and meaning.meaning for meaning in METRICS.values())
    assert all((meaning.unit == "s") == name.endswith("_s") for name, meaning in METRICS.items())


# What the numbers must not depend on


@given(runs(wild=True), st.sampled_from([-5_000, 3600, 1_772_438_400]))
def test_when_the_run_began_changes_nothing(trace: Trace, shift: int) -> None:
    moved = [
        msgspec.structs.replace(e, **{f: None if (t := getattr(e, f)) is None else t + shift for f in ("t_start_s", "t_end_s")})
        for e in trace.events
    ]
    same(trace, with_events(trace, moved))
    assert findings(with_events(trace, moved)) == findings(trace)


@given(runs(wild=True), st.sampled_from([0.001, 60, 1000]))
def test_the_unit_of_time_changes_the_seconds_alone(trace: Trace, scale: float) -> None:
    scaled = [
        msgspec.structs.replace(e, **{f: None if (t := getattr(e, f)) is None else t * scale for f in ("t_start_s", "t_end_s")})
        for e in trace.events
    ]
    same(trace, with_events(trace, scaled), but=SECONDS)
    before, after = named(trace), named(with_events(trace, scaled))
    for name in SECONDS:
        value = before[name].value
        assert after[name].value == (None if value is None else pytest.approx(value * scale))


@given(runs(wild=True), st.randoms(use_true_random=False))
def test_names_of_agents_and_events_change_nothing(trace: Trace, rng: random.Random) -> None:
    agents = [a.agent_id for a in trace.agents]
    called = dict(zip(agents, rng.sample([f"agent {k}" for k in range(9)], len(agents)), strict=True))
    new = {e.event_id: f"x{n}" for n, e in zip(rng.sample(range(99), len(trace.events)), trace.events, strict=True)}
    renamed = [
        msgspec.structs.replace(
            e, event_id=new[e.event_id], parents=tuple(new.get(p, p) for p in e.parents),
            agent_id=e.agent_id and called[e.agent_id], targets=tuple(called[t] for t in e.targets),
        )
        for e in trace.events
    ]  # fmt: skip
    people = tuple(Agent(agent_id=called[a.agent_id], component=called[a.agent_id]) for a in trace.agents)
    other = msgspec.structs.replace(trace, events=tuple(renamed), agents=people)
    same(trace, other)
    found = [(f.name, [new[i] for i in f.event_ids], f.message, f.loss) for f in findings(trace)]
    assert [(f.name, list(f.event_ids), f.message, f.loss) for f in findings(other)] == found


@given(runs(wild=True))
def test_an_idle_agent_and_the_order_of_the_list_change_nothing(trace: Trace) -> None:
    idle = Agent(agent_id="idle", component="idle")
    other = msgspec.structs.replace(trace, agents=(*trace.agents, idle), events=trace.events[::-1])
    assert metrics(other) == metrics(trace)
    assert findings(other) == findings(trace)


@given(runs(clock=False), st.randoms(use_true_random=False))
def test_without_a_clock_the_interleaving_of_agents_changes_nothing(trace: Trace, rng: random.Random) -> None:
    """Any order that keeps causes first and each agent's own order gives the same numbers."""
    graph = event_graph(trace)
    waiting = {n: {*graph.causes[n], *({graph.before[n]} - {None})} for n in range(len(graph.events))}
    order: list[int] = []
    while waiting:
        n = rng.choice([n for n, causes in waiting.items() if causes <= set(order)])
        del waiting[n]
        order.append(n)
    # Which stop or merge is the last, and whether an answer comes after its question, is a matter of order.
    assume(sum(e.kind in ("stop", "aggregate") for e in trace.events) <= 1)
    mixed = [msgspec.structs.replace(graph.events[n], order=k) for k, n in enumerate(order)]
    same(trace, with_events(trace, mixed), but={"finish_rate", "width", "utilisation_time"})


@settings(max_examples=30)
@given(st.integers(0, 107))
def test_a_written_and_read_trace_keeps_every_metric(n: int) -> None:
    trace = sample()[n]
    assert metrics(decode(encode(trace))) == metrics(trace)


_SAMPLE: list[Trace] = []


def sample() -> list[Trace]:
    """One run of every team on nine tasks, more or less."""
    if not _SAMPLE:
        _SAMPLE.extend(simulate(SimulationPolicy(n_tasks=9, n_good=3, n_bad=8, n_trials=1), seed=1))
    return _SAMPLE


def test_identity_gives_identical_numbers() -> None:
    trace = sample()[5]
    assert metrics(trace) == metrics(msgspec.structs.replace(trace)) == metrics(trace, timed=timing(trace))


def test_well_led_teams_lead_better_than_the_others_at_the_same_tasks() -> None:
    frame = metrics_df(sample())
    style = {trace.trace_id: trace.groups.condition for trace in sample()}
    wanted = frame[frame["name"] == "q_orchestration"].assign(style=frame["trace_id"].map(style))
    by_style = wanted.groupby("style")["value"].mean()
    good = by_style[["parallel", "pipeline", "hierarchical"]].min()
    assert (
        good > by_style[["over-communication", "pseudo-parallelism", "aggregation-leakage", "stopped-early", "retry-storm"]].max()
    )
    assert pd.isna(by_style["single"])


# Tables


def test_metrics_df_has_a_row_for_every_metric_absent_ones_included() -> None:
    two = [
        run(event("a", "x", 0, 2), trace_id="1", task=Task(task_id="t")),
        run(event("a", "x"), event("b", "y"), trace_id="2", task=Task(task_id="t")),
    ]
    frame = metrics_df(two)
    assert frame.columns.tolist() == COLUMNS
    assert frame["trace_id"].tolist() == ["1"] * len(METRICS) + ["2"] * len(METRICS)
    assert frame["name"].tolist() == [*METRICS, *METRICS]
    assert (frame["value"].isna() == (frame["reason"] != "")).all()
    assert frame[frame["name"] == "baseline_makespan_s"]["value"].tolist()[1] == 2  # the first run is the second one's baseline
    assert metrics_df([]).columns.tolist() == COLUMNS


def test_an_empty_baseline_is_not_looked_for() -> None:
    two = [
        run(event("a", "x"), trace_id="1", task=Task(task_id="t")),
        run(event("a", "x"), event("b", "y"), trace_id="2", task=Task(task_id="t")),
    ]
    frame = metrics_df(two, baseline={})
    reasons = frame[frame["name"] == "overhead_steps_rate"]["reason"].tolist()
    assert reasons[1] == "no run of the task by a single agent in this world"


def test_coverage_puts_alike_reasons_together_and_the_most_frequent_first() -> None:
    merged = event("m", "x", kind="aggregate")
    rows = [run(event("a", "x", 0, 2), merged), run(event("a", "x")), run(event("a", "x"), event("b", "y"), merged)]
    frame = coverage_df([msgspec.structs.replace(trace, trace_id=str(n)) for n, trace in enumerate(rows)])
    work = frame[frame["name"] == "work_s"]
    assert work.to_dict("records") == [
        {"format": "test", "name": "work_s", "reason": "", "n_traces": 1},
        {"format": "test", "name": "work_s", "reason": "no clock: … of … events have a duration", "n_traces": 2},
    ]
    assert frame[frame["name"] == "q_aggregate"][["reason", "n_traces"]].to_numpy().tolist() == [
        ["no candidate stands at an event that was merged", 2],
        ["no aggregate event", 1],
    ]


# Speed: the bounds are loose, because other work shares the machine


def test_100_traces_of_50_events_take_well_under_a_second() -> None:
    policy = SimulationPolicy(n_tasks=7, n_good=3, n_bad=11, n_trials=1, n_events=50)
    hundred = list(simulate(policy, seed=3))[:100]
    metrics(hundred[0])
    started = time.process_time()
    for trace in hundred:
        timed = timing(trace)
        metrics(trace, timed=timed)
        findings(trace, timed=timed)
    took = time.process_time() - started
    print(f"{sum(len(t.events) for t in hundred)} events in {took:.2f} s")
    assert took < 2


@pytest.mark.parametrize("n_events", [20_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_many_events_in_one_trace(n_events: int) -> None:
    rng = random.Random(0)
    rows = []
    for k in range(n_events):
        start = rng.randrange(0, 10**6)
        causes = [f"e{rng.randrange(k)}"] if k else []
        rows.append(event(f"e{k}", f"a{k % 200}", start, start + rng.randrange(1, 60), after=causes, output_tokens=5))
    trace = run(*rows, outcome=Outcome(passed=True))
    started = time.process_time()
    timed = timing(trace)
    found = {metric.name: metric for metric in metrics(trace, timed=timed)}
    findings(trace, timed=timed)
    took = time.process_time() - started
    print(f"{n_events:,} events in {took:.1f} s")
    assert found["n_steps"].value == n_events
    assert (found["n_repairs"].value or 0) > n_events / 10  # causes that begin later
    assert took < 60 * n_events / 100_000


# Real runs


def real(shared_traces: Path) -> list[Trace]:
    """All traces that the readers make of the shared files."""
    parts: dict[str, list[Any]] = defaultdict(list)
    families: dict[str, Any] = {}
    for path, name in readers.files_below(shared_traces):
        source = readers.open_source(path, name)
        if not isinstance(source, readers.Source):
            continue
        known = readers.recognise(source)
        if not isinstance(known, tuple):
            continue
        for item in readers.read(source, *known):
            if isinstance(item, readers.Fragment):
                parts[item.trace_id].append(item)
                families[item.trace_id] = known[0]
    return [families[i].assemble(i, found).trace for i, found in parts.items() if any(f.primary for f in found)]


def test_coverage_of_real_runs_adds_up(shared_traces: Path) -> None:
    found = real(shared_traces)
    frame = coverage_df(found)
    n_traces = Counter(trace.source.format for trace in found)
    assert len(n_traces) >= 2
    totals = frame.groupby(["format", "name"])["n_traces"].sum()
    assert totals.to_dict() == {(form, name): n for form, n in n_traces.items() for name in METRICS}
    have = frame[frame["reason"] == ""].pivot_table(index="name", columns="format", values="n_traces", fill_value=0, sort=False)
    print(have.astype(int).assign(all=sum(n_traces.values())).to_string())
    why = frame[frame["reason"] != ""].groupby(["name", "reason"], sort=False)["n_traces"].sum()
    print(why.to_string())
