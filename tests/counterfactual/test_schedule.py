"""Schedules changed by one event: worked cases C2 and C3, a slow re-simulation of random runs, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.counterfactual.pruning import prune
from analysis.counterfactual.recorded import Intervention, pair_rows
from analysis.counterfactual.schedule import advance, delay, parallelise, serialise, slacks, what_if
from analysis.counterfactual.waiting import schedule_of
from analysis.errors import ReplayError
from analysis.model import Event, Groups, Trace
from analysis.orchestration.cost import Baseline
from analysis.orchestration.metrics import metrics
from analysis.orchestration.timing import timing
from tests.orchestration.runs import event, planned, run, runs

STRAGGLER = planned(
    {"r": 1.0, "w1": 2.0, "w2": 2.0, "w3": 2.0, "w4": 10.0, "g": 1.0},
    [("r", f"w{k}") for k in range(1, 5)] + [(f"w{k}", "g") for k in range(1, 5)],
)
CHAIN = run(*[event(f"e{k}", f"a{k}", 6 * k, 6 * k + 5, after=[f"e{k - 1}"] if k else []) for k in range(4)])
CLOCKLESS = run(event("a", "lead"), event("b", "x", after=["a"]), event("c", "x", after=["a"]), event("d", "lead", after=["b"]))
TIMES = ("makespan_s", "span_s", "work_s", "q_parallel_self", "schedule_quality", "utilisation_slot", "imbalance")


@st.composite
def flat_runs(draw: st.DrawFn) -> Trace:
    """A run in which nobody does two things at once: every event begins some while after its causes and its agent's last."""
    ends: dict[str, int] = {}
    free: dict[str, int] = {}
    events = []
    for k in range(draw(st.integers(1, 12))):
        agent = draw(st.sampled_from("abc"))
        causes = draw(st.lists(st.sampled_from(sorted(ends)), max_size=3, unique=True)) if ends else []
        ready = max([ends[cause] for cause in causes] + [free.get(agent, 0)], default=0)
        start = ready + draw(st.sampled_from([0, 0, 1, 3]))
        ends[f"e{k}"] = free[agent] = start + draw(st.integers(1, 6))
        events.append(event(f"e{k}", agent, start, ends[f"e{k}"], after=causes))
    return run(*events)


def edges(trace: Trace) -> dict[str, set[str]]:
    """What every event of a flat run waits for: its causes, and what its agent did before."""
    found = {e.event_id: set(e.parents) for e in trace.events}
    before: dict[str, str] = {}
    for e in trace.events:
        if e.agent_id in before:
            found[e.event_id].add(before[e.agent_id])
        before[e.agent_id or ""] = e.event_id
    return found


def waits(trace: Trace) -> dict[str, float]:
    ends = {e.event_id: e.t_end_s or 0.0 for e in trace.events}
    return {e.event_id: (e.t_start_s or 0.0) - max([ends[c] for c in edges(trace)[e.event_id]], default=0) for e in trace.events}


def played(trace: Trace, awaited: Mapping[str, set[str]], waiting: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Start and end of every event, worked out one by one in whatever order it takes."""
    rows = {e.event_id: (e.t_end_s or 0.0) - (e.t_start_s or 0.0) for e in trace.events}
    found: dict[str, tuple[float, float]] = {}
    while len(found) < len(rows):
        for name, duration in rows.items():
            if name not in found and awaited[name] <= found.keys():
                start = max([found[cause][1] for cause in awaited[name]], default=0.0) + waiting[name]
                found[name] = (start, start + duration)
    return found


def times(trace: Trace) -> dict[str, tuple[float | None, float | None]]:
    return {e.event_id: (e.t_start_s, e.t_end_s) for e in trace.events}


def makespan(at: Mapping[str, tuple[float, float]], trace: Trace) -> float:
    return max(end for _, end in at.values()) - min(e.t_start_s or 0.0 for e in trace.events)


def downstream(name: str, awaited: Mapping[str, set[str]]) -> set[str]:
    found, before = {name}, set[str]()
    while before != found:
        before = set(found)
        found |= {effect for effect, causes in awaited.items() if causes & found}
    return found


def replayed_or_refused(trace: Trace, one: Intervention) -> dict[str, float] | None:
    try:
        return what_if(trace, one).delta_q
    except ReplayError:
        return None


# Worked values of the reference.


def test_c3_a_delay_within_the_slack_changes_nothing_and_one_second_more_costs_a_second() -> None:
    assert slacks(timing(STRAGGLER)) == {"r": 0, "w1": 8, "w2": 8, "w3": 8, "w4": 0, "g": 0}
    within = what_if(STRAGGLER, delay("w1", 8))
    assert (within.delta_q["makespan_s"], within.delta_q["q_parallel_self"], within.downstream) == (0, 0, ())
    beyond = what_if(STRAGGLER, delay("w1", 9))
    assert (beyond.q["q_parallel_self"], beyond.q_counterfactual["makespan_s"], beyond.downstream) == (1.5, 13, ("g",))
    assert beyond.q_counterfactual["q_parallel_self"] == pytest.approx(18 / 13)
    assert beyond.delta_q["log_q_parallel_self"] == pytest.approx(-0.0800, abs=5e-5)


def test_c2_without_its_handoff_gap_the_chain_is_a_second_shorter() -> None:
    found = what_if(CHAIN, advance("e1"))
    assert (found.q["makespan_s"], found.q_counterfactual["makespan_s"], found.delta_q["span_s"]) == (23, 22, 0)
    assert found.downstream == ("e2", "e3")
    assert times(found.trace)["e3"] == (17, 22)


# What a replay states.


def test_the_changed_run_says_what_it_was_made_of() -> None:
    found = what_if(STRAGGLER, delay("w1", 9))
    made = found.trace.counterfactual
    assert made is not None
    assert (made.parent_trace_id, made.event_id, made.operator, made.parameters) == ("t", "w1", "delay", {"x": 9, "unit": "s"})
    assert (found.differs_at, found.trace.world, found.n_without_duration, found.notes) == ("w1", "simulated", 0, ())
    assert found.trace.trace_id not in {what_if(STRAGGLER, delay("w1", 8)).trace.trace_id, "t"}


def test_a_recorded_run_and_its_change_are_held_against_the_same_single_agent() -> None:
    alone = Baseline(n_runs=3, n_outcomes=3, p_passed=1.0, makespan={"clock": 46.0}, tokens=None, n_steps=4.0)
    trace = msgspec.structs.replace(CHAIN, groups=Groups(task="t"))
    found = what_if(trace, delay("e3", 23.0), baseline={("recorded", "t"): alone, ("simulated", "t"): alone})
    assert found.trace.world == "simulated"
    only_recorded = what_if(trace, delay("e3", 23.0), baseline={("recorded", "t"): alone})
    assert (found.q["q_parallel_baseline"], found.q_counterfactual["q_parallel_baseline"]) == (2.0, 1.0)
    assert only_recorded.q_counterfactual == found.q_counterfactual


def test_a_replay_as_rows_of_pairs() -> None:
    rows = {row["metric"]: row for row in pair_rows(STRAGGLER, what_if(STRAGGLER, delay("w1", 9)))}
    assert rows["makespan_s"] == {
        "trace_id": "t", "task": "t", "event_id": "w1", "event_kind": "act", "operator": "delay",
        "parameters": '{"unit": "s", "x": 9}', "metric": "makespan_s", "q": 12.0, "q_counterfactual": 13.0,
        "seed_block": "recorded", "world": "recorded", "evidence": "simulated", "cost": 0.0,
    }  # fmt: skip


def test_what_runs_inside_an_event_carries_it_along_and_waiting_is_no_work() -> None:
    host = event("call", "lead", 0, 10, kind="delegate")
    trace = run(host, event("inner", "w", 2, 5, after=["call"]), event("next", "lead", 10, 12, after=["call"]))
    found = what_if(trace, delay("inner", 3))
    assert times(found.trace) == {"call": (0, 13), "inner": (5, 8), "next": (13, 15)}
    assert (found.delta_q["work_s"], found.delta_q["makespan_s"], found.downstream) == (0, 3, ("call", "next"))


def test_a_second_agent_takes_an_event_off_the_first() -> None:
    trace = run(event("plan", "lead", 0, 1), event("a", "w", 1, 4, after=["plan"]), event("b", "w", 4, 6, after=["plan"]),
                event("c", "w", 6, 7, after=["a"]), roles={"w": "worker"})  # fmt: skip
    found = what_if(trace, parallelise("b"))
    assert times(found.trace) == {"plan": (0, 1), "a": (1, 4), "b": (1, 3), "c": (4, 5)}
    assert [(a.agent_id, a.component) for a in found.trace.agents] == [("lead", "lead"), ("w", "worker"), ("w+b", "worker")]
    assert (found.q_counterfactual["makespan_s"], found.delta_q["utilisation_slot"]) == (5, pytest.approx(7 / 15 - 7 / 14))


def test_an_event_put_after_another_one_begins_when_that_has_ended() -> None:
    found = what_if(STRAGGLER, serialise("w1", after="w4"))
    assert times(found.trace)["w1"] == (11, 13)
    assert (found.delta_q["makespan_s"], found.delta_q["span_s"]) == (2, 2)
    assert found.trace.events[1].parents == ("r", "w4")


def test_by_steps_an_order_costs_steps() -> None:
    found = what_if(CLOCKLESS, serialise("d", after="c"))
    assert found.q["q_parallel_self"] == 4 / 3
    assert found.q_counterfactual["q_parallel_self"] == 1
    assert found.notes == ("by steps: there is no clock, and time is counted in events",)
    assert what_if(CLOCKLESS, delay("d", 1, unit="events")).q_counterfactual["q_parallel_self"] == 1


# Against a slow re-simulation.


@settings(max_examples=80, deadline=None)
@given(flat_runs(), st.data())
def test_a_delay_is_what_simulating_it_gives_and_slack_says_how_much_is_free(trace: Trace, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([e.event_id for e in trace.events]))
    x, free = data.draw(st.integers(0, 12)), slacks(timing(trace))[name]
    expected = played(trace, edges(trace), waits(trace) | {name: waits(trace)[name] + x})
    found = what_if(trace, delay(name, x))
    assert times(found.trace) == expected
    assert found.delta_q["makespan_s"] == max(0, x - free) == makespan(expected, trace) - found.q["makespan_s"]
    assert set(found.downstream) <= downstream(name, edges(trace)) - {name}


@settings(max_examples=60, deadline=None)
@given(flat_runs(), st.data())
def test_other_operators_are_what_simulating_them_gives(trace: Trace, data: st.DataObject) -> None:
    names = [e.event_id for e in trace.events]
    name, other = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
    awaited, waiting = edges(trace), waits(trace)
    mine = [e.event_id for e in trace.events if e.agent_id == next(e.agent_id for e in trace.events if e.event_id == name)]
    place = mine.index(name)
    apart = {n: set(causes) for n, causes in awaited.items()}
    apart[name] = set(next(e.parents for e in trace.events if e.event_id == name))
    if place + 1 < len(mine):
        following = next(e for e in trace.events if e.event_id == mine[place + 1])
        apart[following.event_id] = set(following.parents) | ({mine[place - 1]} if place else set())
    cases = [
        (advance(name), awaited, waiting | {name: 0.0}),
        (serialise(name, after=other), awaited | {name: awaited[name] | {other}}, waiting),
        (parallelise(name), apart, waiting),
    ]
    for one, edges_then, waits_then in cases:
        if replayed_or_refused(trace, one) is not None:
            assert times(what_if(trace, one).trace) == played(trace, edges_then, waits_then)


@settings(max_examples=60, deadline=None)
@given(flat_runs(), st.data())
def test_the_changed_run_measured_anew_has_the_metrics_that_the_replay_states(trace: Trace, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([e.event_id for e in trace.events]))
    other = data.draw(st.sampled_from([e.event_id for e in trace.events]))
    for one in (delay(name, 4), advance(name), serialise(name, after=other), parallelise(name)):
        if replayed_or_refused(trace, one) is None:
            continue
        found = what_if(trace, one)
        began = [min(e.t_start_s or 0.0 for e in t.events) for t in (trace, found.trace)]
        anew = {metric.name: metric.value for metric in metrics(found.trace)}
        for metric in TIMES if began[0] == began[1] else ():
            assert found.q_counterfactual[metric] == pytest.approx(anew[metric], abs=1e-9), (one, metric)


@settings(max_examples=80, deadline=None)
@given(runs(wild=True))
def test_the_unchanged_schedule_is_the_recorded_one_whatever_the_run(trace: Trace) -> None:
    timed = timing(trace)
    schedule = schedule_of(timed)
    starts, ends = schedule.play()
    assert min(schedule.waits, default=0) >= 0
    if timed.basis_of_time == "clock":
        assert [starts[node] for node in schedule.first] == list(timed.graph.start_us)
        assert [ends[node] for node in schedule.last] == list(timed.graph.end_us)
    assert all(slack >= 0 for slack in slacks(timed).values())


@settings(max_examples=60, deadline=None)
@given(runs(), st.data())
def test_the_identity_changes_nothing_bit_for_bit_even_where_events_nest(trace: Trace, data: st.DataObject) -> None:
    found = what_if(trace, delay(data.draw(st.sampled_from([e.event_id for e in trace.events])), 0))
    assert found.trace.events == trace.events
    assert found.q == found.q_counterfactual
    assert set(found.delta_q.values()) <= {0.0}
    assert found.downstream == ()


@settings(max_examples=80, deadline=None)
@given(runs(), st.data())
def test_slack_is_exact_where_events_nest(trace: Trace, data: st.DataObject) -> None:
    name, x = data.draw(st.sampled_from([e.event_id for e in trace.events])), data.draw(st.integers(0, 20))
    found = what_if(trace, delay(name, x))
    assert found.delta_q["makespan_s"] == max(0, x - slacks(timing(trace))[name])


@settings(max_examples=60, deadline=None)
@given(flat_runs(), st.integers(1, 6))
def test_pruning_drops_nothing_that_changes_the_makespan_otherwise(trace: Trace, x: int) -> None:
    names = [e.event_id for e in trace.events]
    wanted = [one for name in names for one in (delay(name, x), advance(name), serialise(name, after=names[0]))]
    kept, dropped = prune(trace, wanted)
    for one, reason in dropped:
        delta = replayed_or_refused(trace, one)
        if delta is None:
            continue
        alike = [replayed_or_refused(trace, msgspec.structs.replace(one, event_id=reason.rpartition(" ")[2]))]
        assert delta["makespan_s"] == (0 if reason.startswith("0, exactly") else (alike[0] or {})["makespan_s"])
    assert len(kept) + len(dropped) == len(wanted)


def test_pruning_by_slack_by_order_and_by_likeness() -> None:
    wanted = [
        delay("w1", 8),
        delay("w1", 9),
        delay("w2", 9),
        delay("w4", 1),
        advance("w3"),
        serialise("g", after="r"),
        delay("w4", 1),
    ]
    kept, dropped = prune(STRAGGLER, wanted)
    assert kept == (delay("w1", 9), delay("w4", 1))
    assert [(one.event_id, reason) for one, reason in dropped] == [
        ("w1", "0, exactly: the event has 8 s of slack"),
        ("w2", "the same as at w1"),
        ("w3", "0, exactly: the run does not wait for the event, which has 8 s of slack"),
        ("g", "0, exactly: the event waits for r as it is"),
        ("w4", "the same as at w4"),
    ]


# What is refused, and why.

UNTIMED = run(event("a", "x", 0, 2), event("b", "y", 2, None, after=["a"]), event("c", "x", 3, 4, after=["a"]))


@pytest.mark.parametrize(
    ("trace", "one", "text"),
    [
        (CLOCKLESS, delay("b", 2), "there is no clock, 0 of 4 events have a duration, and time is counted in events"),
        (CLOCKLESS, advance("b"), "the event begins as early as its causes and its agent allow"),
        (UNTIMED, delay("b", 2), "nobody knows how long the event took"),
        (UNTIMED, serialise("c", after="b"), "nobody knows how long b took"),
        (CHAIN, delay("e1", -1), r"the delay is no number from 0 up \(got -1\)"),
        (CHAIN, delay("e1", 2, unit="events"), r"there is a clock, 4 of 4 .* time is counted in s \(got events\)"),
        (CHAIN, advance("e0"), "the event names no cause, so nobody knows what else it waited for"),
        (CHAIN, serialise("e1", after="e3"), "e3 itself waits for the event, or runs inside it"),
        (CHAIN, serialise("e3", after="e1"), "the event waits for e1 as it is"),
        (CHAIN, serialise("e3", after="no"), r"the trace has no event to come after \(got no\)"),
        (CHAIN, parallelise("e1"), "its agent had nothing to do before it"),
        (CHAIN, delay("no", 1), "event no of t: delay cannot be replayed: the trace has no such event"),
        (CHAIN, Intervention("assign", "e1"), "nobody recorded what another agent would have handed in"),
        (CHAIN, Intervention("stop-later", "e1"), "nobody recorded what the agents would have done next"),
        (CHAIN, Intervention("insert-message", "e1"), "nobody recorded what its receivers would have answered"),
        (CHAIN, Intervention("dance", "e1"), r"operator: not one of those replayed here \(got dance, expected delay, advance"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_refused_with_the_reason(trace: Trace, one: Intervention, text: str) -> None:
    with pytest.raises(ReplayError, match=text):
        what_if(trace, one)


def test_an_event_inside_another_one_has_no_second_agent() -> None:
    trace = run(event("call", "lead", 0, 9), event("a", "w", 1, 3, after=["call"]), event("b", "w", 3, 5, after=["call"]))
    with pytest.raises(ReplayError, match="runs inside another one"):
        what_if(trace, parallelise("b"))


def test_an_event_without_a_cause_may_come_later_but_not_sooner() -> None:
    trace = run(Event(event_id="a", kind="act", agent_id="x", t_start_s=0, t_end_s=1), event("b", "x", 2, 3))
    assert what_if(trace, delay("b", 1)).delta_q["makespan_s"] == 1
    with pytest.raises(ReplayError, match="names no cause"):
        what_if(trace, parallelise("b"))
