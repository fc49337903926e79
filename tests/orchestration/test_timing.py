"""Timing against runs worked out by hand (cases C1 to C9 of the reference) and against slow, obvious recomputation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.model import Event, Trace
from analysis.orchestration.nesting import nesting, not_nested
from analysis.orchestration.paths import Network, clock_network, longest_paths, step_network
from analysis.orchestration.timing import Timing, timing
from tests.examples import up_to
from tests.orchestration.runs import event, planned, run, runs

FORK = {"r": 1.0, "w1": 6.0, "w2": 6.0, "w3": 6.0, "w4": 6.0, "g": 2.0}
FORK_EDGES = [("r", f"w{k}") for k in range(1, 5)] + [(f"w{k}", "g") for k in range(1, 5)]
ORCHESTRATOR = {"r": "lead", "g": "lead"} | {f"w{k}": f"w{k}" for k in range(1, 5)}


def speed_up(timed: Timing) -> float:
    return timed.work / timed.makespan


def test_c1_fork_join() -> None:
    timed = timing(planned(FORK, FORK_EDGES, ORCHESTRATOR))
    assert (timed.basis_of_time, timed.unit) == ("clock", "s")
    assert (timed.work_s, timed.span_s, timed.makespan_s) == (27, 9, 9)
    assert speed_up(timed) == 3 == min(5, timed.work / timed.span_causal)
    assert timed.utilisation_slot == pytest.approx(0.6)
    assert timed.drag_s == {"r": 1, "w1": 0, "w2": 0, "w3": 0, "w4": 0, "g": 2}
    assert set(timed.slack_s.values()) == {0}
    assert timed.critical_path == ("r", "w1", "g")
    assert timed.imbalance == pytest.approx(6 / (27 / 5))


def test_c1_time_alive_begins_when_the_spawning_ends() -> None:
    trace = planned(FORK, FORK_EDGES, ORCHESTRATOR)
    spawn = msgspec.structs.replace(trace.events[0], kind="spawn", targets=("w1", "w2", "w3", "w4"))
    timed = timing(msgspec.structs.replace(trace, events=(spawn, *trace.events[1:])))
    assert {agent: (span.start, span.end) for agent, span in timed.alive.items()} == {
        "lead": (0, 9), "w1": (1, 7), "w2": (1, 7), "w3": (1, 7), "w4": (1, 7),
    }  # fmt: skip
    assert timed.utilisation_time == pytest.approx(27 / 33)


def test_an_agent_that_waits_for_its_first_task_is_alive_meanwhile() -> None:
    timed = timing(run(event("s", "lead", 0, 1, kind="spawn", targets=("w",)), event("w", "w", 3, 6, after=["s"])))
    assert timed.alive["w"] == (1, 6)
    assert timed.utilisation_time == pytest.approx(4 / 6)


def test_c2_chain_with_handoff_gaps() -> None:
    rows = [event(f"e{k}", f"a{k}", 6 * k, 6 * k + 5, after=[f"e{k - 1}"] if k else []) for k in range(4)]
    timed = timing(run(*rows))
    assert (timed.work_s, timed.span_s, timed.makespan_s) == (20, 20, 23)
    assert speed_up(timed) == pytest.approx(0.8696, abs=5e-5)


def straggler(delay: float = 0.0) -> Timing:
    ends = {"a": (1 + delay, 3 + delay), "b": (1, 3), "c": (1, 3), "s": (1, 11)}
    rows = [event("r", "r", 0, 1), *[event(n, n, a, b, after=["r"]) for n, (a, b) in ends.items()]]
    last = max(b for _, b in ends.values())
    return timing(run(*rows, event("g", "g", last, last + 1, after=list(ends))))


def test_c3_straggler() -> None:
    timed = straggler()
    assert (timed.work_s, timed.span_s, speed_up(timed)) == (18, 12, 1.5)
    assert timed.slack_s == {"r": 0, "a": 8, "b": 8, "c": 8, "s": 0, "g": 0}
    assert timed.drag_s == {"r": 1, "a": 0, "b": 0, "c": 0, "s": 8, "g": 1}


def test_c3_a_delay_within_the_slack_changes_nothing_and_one_beyond_it_does() -> None:
    assert straggler(8).makespan_s == straggler().makespan_s == 12
    late = straggler(9)
    assert (late.makespan_s, speed_up(late)) == (13, pytest.approx(1.3846, abs=5e-5))
    assert math.log(speed_up(late)) - math.log(speed_up(straggler())) == pytest.approx(-0.0800, abs=5e-5)


def test_c4_eight_independent_tasks_on_three_agents() -> None:
    rows = [event(f"t{k}", f"p{k % 3}", 3 * (k // 3), 3 * (k // 3) + 3) for k in range(8)]
    timed = timing(run(*rows))
    assert (timed.work_s, timed.span_causal, timed.makespan_s) == (24, 3, 9)
    assert timed.span_s == 9  # an agent does one thing at a time
    assert speed_up(timed) == pytest.approx(2.667, abs=5e-4)
    p = len(timed.busy)
    assert max(timed.work / p, timed.span_causal) == 8
    assert timed.makespan <= timed.work / p + timed.span_causal * (1 - 1 / p) == 10
    assert max(timed.work / p, timed.span_causal) / timed.makespan == pytest.approx(0.8889, abs=5e-5)


def test_c5_critical_events_without_drag() -> None:
    edges = [("a", "c"), ("a", "d"), ("b", "d"), ("c", "e"), ("d", "e")]
    timed = timing(planned({"a": 3, "b": 5, "c": 4, "d": 2, "e": 1}, edges, {"a": "p", "c": "p", "e": "p", "b": "q", "d": "q"}))
    assert (timed.work_s, timed.span_s, speed_up(timed)) == (15, 8, 1.875)
    assert timed.slack_s == dict.fromkeys("abcde", 0)
    assert timed.drag_s == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 1}


def test_c6_dataflow_is_shorter_than_a_barrier() -> None:
    edges = [("m", "x1"), ("m", "y1"), ("x1", "x2"), ("y1", "y2")]
    timed = timing(
        planned({"m": 1, "x1": 5, "y1": 1, "x2": 1, "y2": 5}, edges, {"x1": "x", "x2": "x", "y1": "y", "y2": "y", "m": "m"})
    )
    assert (timed.span_s, timed.work_s) == (7, 13)
    barrier = (1 + max(5, 1)) + (0 + max(1, 5))
    assert (barrier, barrier - timed.span_s) == (11, 4)


def padded() -> Trace:
    """One useful worker of 6 s beside two whose work goes nowhere."""
    workers = [event(f"w{k}", f"w{k}", 0, 6, after=["spawn"]) for k in range(3)]
    spawn = event("spawn", "lead", 0, 0, kind="spawn", targets=("w0", "w1", "w2"))
    return run(spawn, *workers, event("stop", "lead", 6, 6, kind="stop", after=["w0"]))


def test_c7_padding_raises_the_speed_up_but_not_the_useful_one() -> None:
    timed = timing(padded())
    assert (timed.work_s, timed.makespan_s, speed_up(timed)) == (18, 6, 3)
    assert timed.useful is not None
    assert sum(timed.own[n] for n in timed.useful) / timed.makespan == 1
    assert timed.utilisation_act == pytest.approx(1 / 3)


def nested(scale: float = 1.0) -> Timing:
    root = event("root", "root", 0, 10 * scale)
    return timing(run(root, event("A", "A", scale, 6 * scale, after=["root"]), event("B", "B", scale, 8 * scale, after=["root"])))


def test_c8_nested_spans_count_what_is_their_own() -> None:
    timed = nested()
    assert dict(zip("rAB", timed.own, strict=True)) == {"r": 3, "A": 5, "B": 7}
    assert (timed.work_s, timed.makespan_s, speed_up(timed)) == (15, 10, 1.5)
    assert timed.span_s == 10  # 1 before, 7 in B, 2 after
    assert timed.critical_path == ("root", "B")
    assert timed.slack_s == {"root": 0, "A": 2, "B": 0}
    assert timed.drag_s == {"root": 3, "A": 0, "B": 2}
    assert timed.nesting.caller == (None, 0, 0)


def shape(timed: Timing) -> tuple[object, ...]:
    """All that has no unit of time."""
    eta = max(timed.work / len(timed.busy), timed.span_causal) / timed.makespan
    numbers = (speed_up(timed), eta, timed.utilisation_slot, timed.utilisation_time, timed.imbalance)
    return (*[pytest.approx(x) for x in numbers], timed.critical_path)


def test_c9_milliseconds_change_no_ratio() -> None:
    assert shape(nested(1000)) == shape(nested())
    fork = planned({n: 1000 * d for n, d in FORK.items()}, FORK_EDGES, ORCHESTRATOR)
    assert shape(timing(fork)) == shape(timing(planned(FORK, FORK_EDGES, ORCHESTRATOR)))


def test_c9_an_event_without_duration_and_a_turned_list_change_nothing() -> None:
    trace = planned(FORK, FORK_EDGES, ORCHESTRATOR)
    extra = event("z", "w2", 7, 7, after=["w2"], order=9)
    for events in ((*trace.events, extra), trace.events[::-1]):
        assert shape(timing(msgspec.structs.replace(trace, events=events))) == shape(timing(trace))


@given(st.data())
def test_c9_removing_a_dependency_never_lengthens_the_span(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=2, max_size=7))
    pairs = [(a, b) for b in range(len(lengths)) for a in range(b)]
    edges = data.draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    gone = data.draw(st.sampled_from(edges))

    def spans(kept: Sequence[tuple[int, int]]) -> tuple[float, float]:
        names = {f"e{k}": float(length) for k, length in enumerate(lengths)}
        timed = timing(planned(names, [(f"e{a}", f"e{b}") for a, b in kept], {n: n for n in names}))
        return timed.span, timed.work

    fewer, more = spans([edge for edge in edges if edge != gone]), spans(edges)
    assert fewer[0] <= more[0]
    assert fewer[1] == more[1]


# What runs inside what.


def test_a_child_that_outlives_its_span_takes_it_only_while_both_run() -> None:
    timed = timing(run(event("root", "r", 0, 4), event("child", "c", 1, 9, after=["root"])))
    assert timed.own == (1, 8)
    assert (timed.work, timed.span, timed.makespan) == (9, 9, 9)


def test_a_grandchild_that_outlives_its_parent_still_suspends_the_span_around_both() -> None:
    rows = [event("root", "r", 0, 10), event("c", "c", 1, 3, after=["root"]), event("g", "g", 2, 6, after=["c"])]
    timed = timing(run(*rows))
    assert timed.own == (1 + 4, 1, 4)
    assert timed.span == 10


def test_an_event_caused_by_an_ended_child_runs_inside_the_span_around_it() -> None:
    rows = [event("root", "r", 0, 10), event("c1", "a", 1, 3, after=["root"]), event("c2", "b", 4, 6, after=["c1"])]
    timed = timing(run(*rows))
    assert timed.own == (1 + 1 + 4, 2, 2)
    assert timed.nesting.caller == (None, 0, 0)
    assert timed.span == 10


def test_one_after_the_other_under_one_span_is_no_parallelism() -> None:
    """A supervisor that calls two agents in turn: nothing but its own span ties them, and that is enough."""
    rows = [event("root", "r", 0, 9), event("a", "a", 0, 4, after=["root"]), event("b", "b", 4, 8, after=["root"])]
    timed = timing(run(*rows))
    assert (timed.work, timed.span, timed.span_causal) == (9, 9, 9)
    assert timed.slack == {"root": 0, "a": 0, "b": 0}


def test_the_own_time_of_an_opaque_span_is_no_work() -> None:
    rows = [event("wrapper", None, 0, 10, kind=None), event("a", "a", 1, 4, after=["wrapper"])]
    timed = timing(run(*rows))
    assert (timed.own, timed.work, timed.span, timed.makespan) == ((0, 3), 3, 3, 10)
    assert timed.critical_path == ("wrapper", "a")


def test_an_agent_is_never_counted_twice_in_one_second() -> None:
    rows = [event("call 1", "x", 0, 5), event("call 2", "x", 0, 5), event("call 3", "x", 3, 9)]
    timed = timing(run(*rows))
    assert timed.own == (0, 3, 6)
    assert (timed.busy, timed.span, timed.utilisation_slot) == ({"x": 9}, 9, 1)


def test_two_agents_share_no_such_limit() -> None:
    timed = timing(run(event("a", "x", 0, 5), event("b", "y", 0, 5)))
    assert (timed.work, timed.span) == (10, 5)


# The basis of time.


def test_without_a_clock_each_event_counts_one_and_opaque_ones_nothing() -> None:
    rows = [
        event("p", "lead"),
        event("a", "a", after=["p"]),
        event("b", "b", after=["p"]),
        event("o", "b", kind=None, after=["b"]),
        event("m", "lead", after=["a", "b"]),
    ]
    timed = timing(run(*rows))
    assert (timed.basis_of_time, timed.unit, timed.n_known) == ("events", "events", 4)
    assert (timed.work, timed.span, timed.makespan) == (4, 3, 3)
    assert timed.critical_path == ("p", "a", "m")
    assert (timed.work_s, timed.span_s, timed.makespan_s, timed.slack_s, timed.drag_s) == (None, None, None, {}, {})
    assert timed.slack == {"p": 0, "a": 0, "b": 0, "o": 1, "m": 0}
    assert timed.drag == {"p": 1, "a": 0, "b": 0, "o": 0, "m": 1}


def test_without_a_clock_but_with_tokens_those_count() -> None:
    rows = [
        event("p", "lead", output_tokens=10),
        event("a", "a", after=["p"], output_tokens=50),
        event("b", "b", after=["p"], output_tokens=20),
        event("t", "b", after=["b"]),
    ]
    timed = timing(run(*rows))
    assert (timed.basis_of_time, timed.work, timed.span, timed.n_known) == ("tokens", 80, 60, 3)


@pytest.mark.parametrize(("n_timed", "n", "basis"), [(4, 4, "clock"), (2, 4, "clock"), (2, 5, "events"), (1, 4, "events")])
def test_the_clock_counts_where_half_of_the_events_have_a_duration(n_timed: int, n: int, basis: str) -> None:
    rows = [event(f"e{k}", "x", k, k + 1 if k < n_timed else None) for k in range(n)]
    timed = timing(run(*rows))
    assert (timed.basis_of_time, timed.work) == (basis, n_timed if basis == "clock" else n)


def test_an_event_with_a_missing_end_gets_no_guessed_duration() -> None:
    timed = timing(run(event("a", "x", 0, 4), event("b", "y", 1), event("c", "x", 5, 6)))
    assert timed.own == (4, 0, 1)
    assert (timed.n_known, len(timed.graph.events)) == (2, 3)


def test_events_without_an_agent_have_no_order_and_are_nobodys_time() -> None:
    timed = timing(run(event("a", None, 0, 5), event("b", None, 0, 5), event("c", "x", 5, 6), event("d", "y", 5, 6)))
    assert (timed.work, timed.span, timed.n_nameless) == (12, 5, 2)
    assert timed.busy == {"x": 1, "y": 1}
    assert (timed.utilisation_slot, timed.utilisation_time, timed.imbalance) == (2 / 12, 1, 1)


def test_where_most_events_name_no_agent_there_is_no_utilisation() -> None:
    timed = timing(run(event("a", None, 0, 5), event("b", None, 0, 5), event("c", "x", 5, 6)))
    assert (timed.utilisation_slot, timed.utilisation_time, timed.imbalance) == (None, None, None)


def test_no_events() -> None:
    timed = timing(run())
    assert (timed.work, timed.span, timed.makespan, timed.critical_path, timed.imbalance) == (0, 0, 0, (), None)
    assert (timed.utilisation_slot, timed.utilisation_time, timed.utilisation_act) == (None, None, None)


# What was useful.


def useful(*events: Event) -> tuple[set[str] | None, str]:
    timed = timing(run(*events))
    found = None if timed.useful is None else {timed.graph.events[n].event_id for n in timed.useful}
    return found, timed.useful_reason


def test_a_failed_call_and_its_error_are_work_but_not_useful() -> None:
    found, _ = useful(
        event("call", "x", action="tool_call"), event("error", "x", action="tool_result", after=["call"], error="timeout"),
        event("again", "x", action="tool_call", after=["error"]), event("answer", "x", action="tool_result", after=["again"]),
        event("stop", "x", kind="stop", after=["answer"]),
    )  # fmt: skip
    assert found == {"again", "answer", "stop"}


def test_the_last_merge_ends_a_run_without_a_stop() -> None:
    rows = [
        event("a", "x"),
        event("b", "y"),
        event("m", "x", kind="aggregate", merge_points=("a",)),
        event("late", "y", after=["b"]),
    ]
    assert useful(*rows)[0] == {"a", "m"}


def test_what_a_useful_span_called_returned_to_it() -> None:
    rows = [
        event("root", "r", 0, 9),
        event("call", "c", 1, 3, after=["root"]),
        event("stop", "r", 9, 9, kind="stop", after=["root"]),
    ]
    assert useful(*rows)[0] == {"root", "call", "stop"}


def test_use_cannot_be_told_without_an_end_or_without_its_causes() -> None:
    assert useful(event("a", "x")) == (None, "no stop or aggregate event says what the run came to")
    assert useful(event("a", "x"), event("s", "x", kind="stop")) == (None, "the event that ends the run names no causes")


# Against slow recomputation.


def length(network: Network, without: frozenset[int] = frozenset()) -> int:
    ends: dict[int, int] = {}
    for node in network.order:
        start = max([ends[c] for c in (*network.causal[node], *network.serial[node])], default=0)
        ends[node] = start + (0 if node in without else network.weights[node])
    return max(ends.values(), default=0)


def slow_slack(network: Network, nodes: Sequence[int], span: int) -> int:
    """The longest delay of one of the nodes that leaves the span: the span minus the longest path through it."""
    through = []
    for node in nodes:
        weights = list(network.weights)
        weights[node] += 10_000_000_000
        stretched = Network(weights, network.owners, network.causal, network.serial, network.order)
        through.append(length(stretched) - 10_000_000_000)
    return span - max(through)


@up_to(200)
@given(runs(wild=True, max_events=9))
def test_slack_and_drag_are_those_of_slow_recomputation(trace: Trace) -> None:
    timed = timing(trace)
    graph = timed.graph
    on_clock = timed.basis_of_time == "clock"
    weights = [int(x) for x in timed.own]
    network = clock_network(graph, nesting(graph)) if on_clock else step_network(graph, weights)
    assert sorted(network.order) == list(range(len(network.weights)))
    paths = longest_paths(network, len(graph.events))
    assert paths.span == length(network)
    for n in range(len(graph.events)):
        mine = [node for node, owner in enumerate(network.owners) if owner == n]
        working = [node for node in mine if network.weights[node]] or mine
        assert paths.drag[n] == paths.span - length(network, frozenset(mine))
        assert paths.slack[n] == slow_slack(network, working, paths.span)


@up_to(200)
@given(runs(wild=True))
def test_no_path_is_longer_than_the_run_and_no_agent_busier_than_it_lasts(trace: Trace) -> None:
    timed = timing(trace)
    assert timed.span_causal <= timed.span
    if timed.basis_of_time == "clock":
        assert timed.span <= timed.makespan
    assert all(busy <= timed.makespan for busy in timed.busy.values())
    assert timed.work == pytest.approx(sum(timed.own))
    assert all(0 <= timed.drag[e] <= timed.own[n] for e, n in timed.graph.position.items() if e in timed.drag)
    assert all(timed.slack[e] == 0 for e in timed.critical_path)
    on_path = sum(timed.own[timed.graph.position[e]] for e in timed.critical_path)
    assert on_path >= timed.span - 1e-9


@given(runs())
def test_speed_up_is_at_most_the_number_of_agents_and_the_parallelism(trace: Trace) -> None:
    timed = timing(trace)
    if timed.makespan:
        assert speed_up(timed) <= len(timed.busy) + 1e-9
        if timed.span_causal:  # 0 where no event takes any time
            assert speed_up(timed) <= timed.work / timed.span_causal + 1e-9
        assert timed.utilisation_slot is not None
        assert timed.utilisation_slot <= 1 + 1e-9
        assert timed.utilisation_time is not None


def test_own_times_partition_the_hull_of_each_agent() -> None:
    rows = [event("a", "x", 0, 10), event("b", "x", 2, 5), event("c", "x", 4, 12), event("d", "x", 20, 21)]
    assert timing(run(*rows)).busy == {"x": 13}


def test_drag_of_enclosing_events_is_worked_out_for_as_many_as_time_allows() -> None:
    depth = 1500
    rows = [event(f"e{k}", f"a{k % 7}", k, 2 * depth - k, after=[f"e{k - 1}"] if k else []) for k in range(depth)]
    timed = timing(run(*rows))
    assert timed.span == timed.makespan == 2 * depth
    assert timed.n_without_drag == depth - len(timed.drag) > 0
    assert set(timed.drag.values()) == {2.0}


@pytest.mark.parametrize("clock", [True, False])
def test_a_chain_of_20000_events(clock: bool) -> None:
    n = 20_000
    rows = [
        event(f"e{k}", f"a{k % 3}", k if clock else None, k + 1 if clock else None, after=[f"e{k - 1}"] if k else [])
        for k in range(n)
    ]
    timed = timing(run(*rows))
    assert timed.span == timed.work == n
    assert len(timed.critical_path) == n
    assert set(timed.drag.values()) == {1.0}


def test_without_a_clock_nothing_is_nested() -> None:
    timed = timing(run(event("a", "x"), event("b", "x", after=["a"])))
    assert timed.nesting == not_nested(timed.graph)
    assert timed.nesting.hosts == ((), ())
