"""A pattern graph says how the work was led, and nothing of how parallel work happened to interleave."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UnknownNameError
from analysis.model import Event, Trace
from analysis.orchestration.patterns.forms import canonical_form
from analysis.orchestration.patterns.graphs import DEFAULT, LABELLINGS, Labelling, PatternGraph, labelling_named, pattern_graph
from analysis.orchestration.patterns.mining import mine
from benchmarks.simulation import SimulationPolicy, simulate
from tests.orchestration.runs import event, run, runs

Edges = Sequence[tuple[int, int, str]]


class Play:
    """A run being written down: events begin when their causes are done and take as long as luck has it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ends: dict[str, float] = {}
        self.events: list[tuple[float, Event]] = []

    def add(self, name: str, agent: str, *after: str, **fields: object) -> str:
        start = max([self.ends[cause] for cause in after], default=0.0) + self.rng.random() / 10
        self.ends[name] = start + self.rng.random() * 10
        self.events.append((start, event(name, agent, start, self.ends[name], after=after, **fields)))
        return name

    def receive(self, lead: str, spawned: str, reports: Sequence[str]) -> str:
        """Let the lead read the reports as they come in, each after the one before, as many loggers write it."""
        before = spawned
        for report in sorted(reports, key=self.ends.__getitem__):
            before = self.add(f"read {report}", lead, before, report, action="input")
        return before

    def trace(self) -> Trace:
        roles = {f"w{n}": "worker" for n in range(9)}
        return run(*[played for _, played in sorted(self.events, key=lambda pair: pair[0])], roles=roles)


def parallel(play: Play, n_workers: int = 4, n_steps: int = 2) -> str:
    workers = tuple(f"w{n}" for n in range(n_workers))
    spawned = play.add("spawn", "lead", kind="spawn", targets=workers)
    reports = []
    for worker in play.rng.sample(workers, n_workers):
        last = spawned
        for step in range(n_steps):
            last = play.add(f"{worker}.{step}", worker, last, action="model_call")
        reports.append(play.add(f"{worker}.report", worker, last, kind="communicate", targets=("lead",)))
    merged = play.add("merge", "lead", play.receive("lead", spawned, reports), kind="aggregate", merge_points=tuple(reports))
    return play.add("stop", "lead", merged, kind="stop")


def in_a_row(play: Play) -> None:
    last = play.add("spawn", "lead", kind="spawn", targets=("w0", "w1", "w2"))
    for n in range(3):
        handed = play.add(f"hand {n}", "lead", last, kind="delegate", targets=(f"w{n}",))
        last = play.add(f"report {n}", f"w{n}", handed, kind="communicate", targets=("lead",))
    play.add("stop", "lead", last, kind="stop")


def with_subleads(play: Play) -> None:
    top = play.add("spawn", "lead", kind="spawn", targets=("s0", "s1"))
    joined = []
    for n, lead in enumerate(("s0", "s1")):
        workers = (f"w{2 * n}", f"w{2 * n + 1}")
        spawned = play.add(f"{lead}.spawn", lead, top, kind="spawn", targets=workers)
        reports = [play.add(f"{worker}.report", worker, spawned, kind="communicate", targets=(lead,)) for worker in workers]
        joined.append(play.add(f"{lead}.merge", lead, play.receive(lead, spawned, reports), kind="aggregate"))
    play.add("stop", "lead", play.add("merge", "lead", play.receive("lead", top, joined), kind="aggregate"), kind="stop")


PLANS: list[Callable[[Play], object]] = [
    parallel,
    lambda play: parallel(play, n_workers=3),
    lambda play: parallel(play, n_steps=1) and play.add("again", "lead", "stop", kind="spawn", targets=("w8",)),
    in_a_row,
    with_subleads,
]


def played(plan: Callable[[Play], object], seed: int) -> PatternGraph:
    play = Play(seed)
    plan(play)
    return pattern_graph(play.trace())


def order_of(trace: Trace) -> tuple[str, ...]:
    return tuple([e.event_id for e in trace.events])


def test_two_hundred_interleavings_of_one_plan_are_one_form() -> None:
    traces = []
    for seed in range(200):
        play = Play(seed)
        parallel(play)
        traces.append(play.trace())
    assert len({order_of(trace) for trace in traces}) == 200
    for labelling in LABELLINGS.values():
        assert len({canonical_form(pattern_graph(trace, labelling)) for trace in traces}) == 1


def test_five_plans_in_forty_interleavings_each_are_five_forms() -> None:
    forms = [{canonical_form(played(plan, seed)) for seed in range(40)} for plan in PLANS]
    assert [len(found) for found in forms] == [1, 1, 1, 1, 1]
    assert len(set.union(*forms)) == 5


def test_receives_hang_on_the_spawn_and_the_merge_hangs_on_all_of_them() -> None:
    trace = run(
        event("s", "lead", kind="spawn", targets=("a", "b")),
        event("a1", "a", kind="communicate", after=["s"], targets=("lead",)),
        event("b1", "b", kind="communicate", after=["s"], targets=("lead",)),
        event("r1", "lead", after=["s", "a1"]),
        event("r2", "lead", after=["r1", "b1"]),
        event("m", "lead", kind="aggregate", after=["r2"]),
    )
    graph = pattern_graph(trace)
    names = [events[0] for events in graph.event_ids]
    assert {(names[a], names[b], kind) for a, b, kind in graph.edges} == {
        ("s", "a1", "delegation"), ("s", "b1", "delegation"), ("a1", "r1", "return"), ("b1", "r2", "return"),
        ("s", "r1", "own"), ("s", "r2", "own"), ("r1", "m", "aggregation"), ("r2", "m", "aggregation"),
    }  # fmt: skip


def test_events_of_one_agent_are_joined_only_where_the_later_uses_the_earlier() -> None:
    trace = run(event("1", "a"), event("2", "a"), event("3", "a", after=["1"]), event("4", "b", after=["2"]))
    actions = pattern_graph(trace, LABELLINGS["actions"])
    assert actions.edges == ((0, 2, "own"), (1, 3, "message"))


def test_own_work_in_a_row_is_one_node_until_something_joins_or_leaves_it() -> None:
    trace = run(event("1", "a"), event("2", "a", after=["1"]), event("3", "a", after=["2"]), event("4", "b", after=["2"]))
    assert pattern_graph(trace).event_ids == (("1", "2"), ("3",), ("4",))
    assert pattern_graph(trace).edges == ((0, 1, "own"), (0, 2, "message"))


def test_siblings_are_counted_as_one_two_or_many() -> None:
    def shape(n: int) -> tuple[str, ...]:
        workers = [event(f"w{k}", f"w{k}", after=["s"]) for k in range(n)]
        return pattern_graph(run(event("s", "lead", kind="spawn"), *workers), Labelling(name="x", folds_siblings=True)).labels

    assert [shape(n)[1] for n in (1, 2, 3, 30)] == ["act · peer", "act · peer · x2", "act · peer · xmany", "act · peer · xmany"]
    assert shape(3) == shape(30)


def test_a_run_without_any_cause_is_read_by_whom_events_address() -> None:
    trace = run(
        event("s", "lead", kind="spawn", targets=("a", "b")), event("b1", "b"), event("a1", "a"),
        event("b2", "b", kind="communicate", targets=("lead",)), event("a2", "a", kind="communicate", targets=("lead",)),
        event("m", "lead", kind="aggregate"),
    )  # fmt: skip
    graph = pattern_graph(trace)
    names = [events[0] for events in graph.event_ids]
    assert {(names[a], names[b], kind) for a, b, kind in graph.edges} == {
        ("s", "a1", "delegation"), ("s", "b1", "delegation"), ("a1", "a2", "own"), ("b1", "b2", "own"),
        ("a2", "m", "aggregation"), ("b2", "m", "aggregation"),
    }  # fmt: skip


def test_roles_are_what_agents_do_to_each_other() -> None:
    trace = run(
        event("0", "top", kind="spawn", targets=("mid",)), event("1", "mid", kind="delegate", targets=("low",)),
        event("2", "low"), event("3", "aside"), event("4", None),
    )  # fmt: skip
    roles = [label.split(" · ")[1] for label in pattern_graph(trace).labels]
    assert roles == ["lead", "sublead", "worker", "peer", "outside"]
    assert pattern_graph(run(event("0", "me"))).labels == ("act · solo",)


def test_a_labelling_is_saved_and_read_as_json() -> None:
    for labelling in LABELLINGS.values():
        assert msgspec.json.decode(msgspec.json.encode(labelling), type=Labelling) == labelling
    assert labelling_named("roles") is DEFAULT
    with pytest.raises(UnknownNameError, match=r"labelling: there is none of this name \(got rolls, expected roles, kinds,"):
        labelling_named("rolls")


@given(runs(wild=True), st.sampled_from(sorted(LABELLINGS)))
def test_odd_runs_give_graphs_without_cycles_that_hold_every_event_once(trace: Trace, name: str) -> None:
    graph = pattern_graph(trace, LABELLINGS[name])
    assert all(source < target for source, target, _ in graph.edges)
    assert len(set(graph.edges)) == len(graph.edges)
    assert Counter([e for events in graph.event_ids for e in events]) == Counter([e.event_id for e in trace.events])
    assert canonical_form(graph)[0] == "f"
    assert not mine([graph, graph], min_support=2, max_edges=2).is_approximate


def test_a_run_without_events_or_with_one_has_a_graph() -> None:
    assert pattern_graph(run()).labels == ()
    one = pattern_graph(run(event("1", "a")))
    assert (one.labels, one.edges) == (("act · solo",), ())
    assert canonical_form(one) != canonical_form(pattern_graph(run()))
    assert mine([one, one], min_support=2).notes == ("No two connected events recur in 2 of 2 traces.",)


def relabelled(labels: Sequence[str], edges: Edges, rng: random.Random) -> PatternGraph:
    order = rng.sample(range(len(labels)), len(labels))
    moved = [labels[order.index(n)] for n in range(len(labels))]
    placed = [(order[a], order[b], kind) for a, b, kind in edges]
    return PatternGraph("g", tuple(moved), tuple(rng.sample(placed, len(placed))), ())


def dags(draw: st.DrawFn, n: int) -> tuple[list[str], list[tuple[int, int, str]]]:
    pairs = [(a, b) for b in range(n) for a in range(b)]
    return ["a"] * n, [(a, b, "x") for a, b in draw(st.lists(st.sampled_from(pairs), unique=True))]


@given(st.data())
def test_forms_are_equal_exactly_for_equal_graphs(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 7))
    first, second = (data.draw(st.composite(dags)(n)) for _ in range(2))
    forms = [canonical_form(relabelled(*drawn, random.Random(seed))) for seed, drawn in enumerate((first, first, second))]
    assert forms[0] == forms[1]
    graphs = [nx.DiGraph([(a, b) for a, b, _ in edges]) for _, edges in (first, second)]
    for graph in graphs:
        graph.add_nodes_from(range(n))
    assert (forms[0] == forms[2]) == nx.is_isomorphic(*graphs)


def test_forms_tell_apart_what_walks_do_not() -> None:
    ring = [(n, 6 + n, "x") for n in range(6)] + [(n, 6 + (n + 1) % 6, "x") for n in range(6)]
    two = [(3 * k + n, 6 + 3 * k + m, "x") for k in range(2) for n in range(3) for m in (n, (n + 1) % 3)]
    labels = ["a"] * 12
    forms = {canonical_form(relabelled(labels, edges, random.Random(seed))) for edges in (ring, two) for seed in range(5)}
    assert len(forms) == 2


def test_a_cycle_has_no_form() -> None:
    with pytest.raises(ValueError, match="the graph has a cycle"):
        canonical_form(PatternGraph("g", ("a", "b"), ((0, 1, "x"), (1, 0, "x")), ()))


def test_a_simulated_team_repeats_itself_and_teams_differ() -> None:
    policy = SimulationPolicy(n_tasks=6, n_good=3, n_bad=3, n_trials=3)
    by_team: dict[str, list[PatternGraph]] = {}
    for trace in simulate(policy, seed=1):
        by_team.setdefault(str(trace.groups.condition), []).append(pattern_graph(trace, LABELLINGS["shapes"]))
    forms = {team: {canonical_form(graph) for graph in graphs} for team, graphs in by_team.items()}
    assert len(by_team["parallel"]) > len(forms["parallel"])
    assert not forms["parallel"] & forms["pipeline"]
    mined = mine([graph for graphs in by_team.values() for graph in graphs], min_support=0.3, max_edges=3)
    team = ("act · lead", "spawn · lead · parallel", "delegate · lead · parallel · xmany")
    assert team in [pattern.nodes for pattern in mined.patterns if pattern.maximal]
    assert not mined.is_approximate


def chain_of_receives(n: int) -> Trace:
    """One lead reads the reports of n workers in a row, then merges."""
    events = [event("s", "lead", kind="spawn")]
    for k in range(n):
        events.append(event(f"w{k}", f"w{k}", kind="communicate", after=["s"], targets=("lead",)))
        events.append(event(f"r{k}", "lead", after=[f"w{k}", f"r{k - 1}" if k else "s"]))
    return run(*events, event("m", "lead", kind="aggregate", after=[f"r{n - 1}"]))


def test_a_trace_of_fifty_thousand_events_takes_bounded_time_and_says_what_was_cut() -> None:
    trace = chain_of_receives(25_000)
    started = time.process_time()
    graph = pattern_graph(trace)
    assert (len(graph.labels), len(graph.edges)) == (50_002, 100_000)
    assert canonical_form(graph)[0] == "f"
    mined = mine([graph, graph], min_support=2, max_edges=3)
    assert mined.is_approximate
    assert len(mined.notes) == 1
    assert "patterns fit one trace in more than 20,000 ways" in mined.notes[0]
    assert time.process_time() - started < 60
