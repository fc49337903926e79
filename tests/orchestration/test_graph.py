"""The event graph: its order, its edges, and every repair by a run made for it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.model import Event, Source, Trace
from analysis.orchestration.graph import REPAIRS, EventGraph, Repair, event_graph, in_one_go
from tests.orchestration.runs import event, run, runs
from tests.strategies import traces


def ids(graph: EventGraph) -> list[str]:
    return [e.event_id for e in graph.events]


def causes(graph: EventGraph) -> dict[str, list[str]]:
    names = ids(graph)
    return {names[n]: [names[c] for c in found] for n, found in enumerate(graph.causes)}


def test_causes_are_parents_and_what_is_merged() -> None:
    graph = event_graph(run(event("a"), event("b"), event("m", kind="aggregate", after=["b"], merge_points=("a", "b"))))
    assert causes(graph) == {"a": [], "b": [], "m": ["a", "b"]}
    assert graph.effects == ((2,), (2,), ())
    assert graph.repairs == ()


def test_each_agent_has_its_own_order() -> None:
    graph = event_graph(run(event("a", "x"), event("b", "y"), event("c", "x"), event("d"), event("e", "y"), event("f")))
    assert graph.before == (None, None, 0, None, 1, None)
    assert graph.by_agent == {"x": (0, 2), "y": (1, 4)}


def test_without_a_clock_order_decides_and_causes_come_first() -> None:
    assert ids(event_graph(run(event("late", after=["early"]), event("early"), event("other")))) == ["early", "late", "other"]


def test_with_a_clock_the_start_decides() -> None:
    graph = event_graph(run(event("b", "x", 5, 6), event("a", "y", 1, 9)))
    assert ids(graph) == ["a", "b"]
    assert (graph.start_us, graph.end_us, graph.is_timed) == ((0, 4_000_000), (8_000_000, 5_000_000), (True, True))


def test_the_order_of_the_list_makes_no_difference() -> None:
    events = [
        event("a", "x", 0, 1),
        event("b", "y", 1, 2, after=["a"]),
        event("c", "y", 1, 2, after=["b", "lost"]),
        event("d", "x", 1, 1),
    ]
    trace = run(*events)
    turned = msgspec.structs.replace(trace, events=trace.events[::-1])
    assert event_graph(turned) == event_graph(trace)


def repaired(*events: Event) -> tuple[Repair, ...]:
    return event_graph(run(*events)).repairs


def test_negative_duration() -> None:
    graph = event_graph(run(event("a", "x", 5, 4.985)))
    assert graph.repairs == (Repair("negative", "a", None, 0.015),)
    assert graph.start_us == graph.end_us == (15_000,)
    assert graph.is_timed == (False,)


def test_an_event_may_last_no_time() -> None:
    graph = event_graph(run(event("a", "x", 5, 5)))
    assert (graph.repairs, graph.is_timed) == ((), (True,))


@pytest.mark.parametrize(("start", "end", "place"), [(3, None, 2_000_000), (None, 4, 3_000_000)])
def test_open_ended(start: float | None, end: float | None, place: int) -> None:
    graph = event_graph(run(event("first", "x", 1, 2), event("a", "x", start, end)))
    assert graph.repairs == (Repair("open-ended", "a"),)
    assert (graph.start_us[1], graph.end_us[1], graph.is_timed[1]) == (place, place, False)


def test_an_event_without_a_time_stands_just_before_its_first_effect() -> None:
    graph = event_graph(run(event("a", "x", 0, 4), event("u", "y", after=["a"]), event("b", "z", 3, 5, after=["u"])))
    assert graph.repairs == (Repair("untimed", "u"),)
    assert (ids(graph), graph.start_us) == (["a", "u", "b"], (0, 3_000_000, 3_000_000))


def test_an_event_without_time_and_effects_stands_after_its_causes() -> None:
    graph = event_graph(run(event("a", "x", 0, 4), event("u", "y", after=["a"]), event("v", "y", after=["u"])))
    assert graph.start_us == (0, 4_000_000, 4_000_000)


def test_without_any_time_nothing_is_repaired_or_placed() -> None:
    graph = event_graph(run(event("a"), event("b", after=["a"])))
    assert (graph.repairs, graph.start_us) == ((), ())


@pytest.mark.parametrize("time", [1e13, float("nan"), float("inf"), -1.7e308])
def test_a_time_out_of_range_is_left_out(time: float) -> None:
    graph = event_graph(run(event("a", "x", 0, 1), event("b", "x", time, 2)))
    assert graph.repairs == (Repair("open-ended", "b"), Repair("out-of-range", "b"))


def test_skewed_clocks() -> None:
    graph = event_graph(run(event("parent", "x", 240, 250), event("child", "y", 0, 5, after=["parent"])))
    assert graph.repairs == (Repair("skewed", "child", "parent", 240.0),)
    assert causes(graph) == {"child": [], "parent": []}


def test_an_effect_that_begins_while_its_cause_runs_is_not_skewed() -> None:
    assert repaired(event("parent", "x", 0, 9), event("child", "y", 0, 5, after=["parent"])) == ()


def test_skew_shows_through_an_event_without_a_time() -> None:
    graph = event_graph(run(event("a", "x", 10, 11), event("u", "y", after=["a"]), event("b", "z", 2, 3, after=["u"])))
    assert graph.repairs == (Repair("skewed", "b", "u", 8.0), Repair("untimed", "u"))
    assert causes(graph) == {"b": [], "a": [], "u": ["a"]}


def test_orphaned_parent() -> None:
    graph = event_graph(run(event("a"), event("b", after=["lost", "a", "gone"])))
    assert graph.repairs == (Repair("orphaned", "b", "gone"), Repair("orphaned", "b", "lost"))
    assert causes(graph) == {"a": [], "b": ["a"]}


def test_self_parent() -> None:
    assert repaired(event("a", after=["a"])) == (Repair("self-parent", "a", "a"),)


def test_circle_of_two_loses_the_edge_that_points_back() -> None:
    graph = event_graph(run(event("root"), event("a", after=["root", "b"]), event("b", after=["a"])))
    assert graph.repairs == (Repair("cyclic", "a", "b"),)
    assert causes(graph) == {"root": [], "a": ["root"], "b": ["a"]}


def test_circle_without_a_root_is_cut_once_whichever_way_it_runs() -> None:
    assert repaired(event("a", after=["c"]), event("b", after=["a"]), event("c", after=["b"])) == (Repair("cyclic", "a", "c"),)
    assert repaired(event("a", after=["b"]), event("b", after=["c"]), event("c", after=["a"])) == (Repair("cyclic", "a", "b"),)


def test_a_circle_on_a_clock_is_cut_before_its_earliest_event() -> None:
    graph = event_graph(run(event("late", "x", 5, 6, after=["early"]), event("early", "y", 1, 2, after=["late"])))
    assert graph.repairs == (Repair("cyclic", "early", "late"),)


def test_what_hangs_behind_a_circle_keeps_its_edges() -> None:
    graph = event_graph(run(event("a", after=["b"]), event("b", after=["a"]), event("c", after=["b"]), event("d", after=["c"])))
    assert [repair.name for repair in graph.repairs] == ["cyclic"]
    assert causes(graph) == {"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}


def test_repeated_id_that_the_reader_renamed() -> None:
    assert repaired(event("a"), event("a~2"), event("b~2")) == (Repair("repeated", "a~2"),)


def test_every_repair_is_worded_and_repairs_come_by_kind() -> None:
    graph = event_graph(
        run(
            event("a~2", "x", 3, 1),
            event("a", "x", 0, 1, after=["a", "lost"]),
            event("b", "y", 2),
            event("c", "y"),
            event("d", "y", -1e13, 2),
        )
    )
    assert [repair.name for repair in graph.repairs] == [
        "repeated", "self-parent", "orphaned", "negative", "open-ended", "open-ended", "untimed", "out-of-range",
    ]  # fmt: skip
    assert all(repair.message == REPAIRS[repair.name] for repair in graph.repairs)


def test_a_chain_of_20000_and_a_circle_of_20000() -> None:
    chain = [event(f"e{n}", "x", after=[f"e{n - 1}"] if n else []) for n in range(20_000)]
    graph = event_graph(run(*chain))
    assert graph.causes[-1] == (19_998,)
    circle = [event(f"e{n}", "x", after=[f"e{(n + 1) % 20_000}"]) for n in range(20_000)]
    assert event_graph(run(*circle)).repairs == (Repair("cyclic", "e0", "e1"),)


def goes(*events: Event) -> list[list[str]]:
    graph = event_graph(run(*events))
    return [[graph.events[n].event_id for n in go] for go in in_one_go(graph)]


def test_a_go_ends_with_own_work_and_with_news() -> None:
    assert goes(
        event("spawn", "lead", kind="spawn", targets=("a", "b")),
        event("to a", "lead", kind="delegate", targets=("a",), after=["spawn"]),
        event("from a", "a", after=["to a"]),
        event("to b", "lead", kind="delegate", targets=("b",), after=["from a"]),
        event("to c", "lead", kind="delegate", targets=("c",), after=["from a"]),
        event("thinks", "lead"),
        event("to d", "lead", kind="delegate", targets=("d",)),
    ) == [["spawn", "to a"], ["to b", "to c"], ["to d"]]


@given(traces)
def test_any_trace_gives_a_graph_with_causes_first(trace: Trace) -> None:
    graph = event_graph(trace)
    assert sorted(ids(graph)) == sorted(e.event_id for e in trace.events)
    assert all(cause < n for n, found in enumerate(graph.causes) for cause in found)
    assert {repair.event_id for repair in graph.repairs} <= set(ids(graph))


@given(runs(wild=True))
def test_on_a_clock_no_effect_begins_before_its_cause_and_each_agent_goes_forward(trace: Trace) -> None:
    graph = event_graph(trace)
    if graph.start_us:
        assert all(graph.start_us[cause] <= graph.start_us[n] for n, found in enumerate(graph.causes) for cause in found)
        assert list(graph.start_us) == sorted(graph.start_us)
    stated = sum(len({*e.parents}) for e in trace.events)
    lost = sum(repair.name in ("orphaned", "self-parent", "cyclic", "skewed") for repair in graph.repairs)
    assert sum(map(len, graph.causes)) == stated - lost


@given(runs(wild=True), st.sampled_from([-1_000_000, 86_400 * 365, 1_772_438_400]))
def test_repairs_do_not_depend_on_when_the_run_began(trace: Trace, shift: int) -> None:
    moved = [
        msgspec.structs.replace(e, **{f: None if (t := getattr(e, f)) is None else t + shift for f in ("t_start_s", "t_end_s")})
        for e in trace.events
    ]
    assert event_graph(msgspec.structs.replace(trace, events=tuple(moved))).repairs == event_graph(trace).repairs


def test_no_events_no_graph() -> None:
    graph = event_graph(Trace(trace_id="t", world="recorded", source=Source(format="test")))
    assert (graph.events, graph.causes, graph.repairs, graph.by_agent) == ((), (), (), {})
