"""Two runs laid side by side: the laws of an alignment, and small cases that can be checked by hand."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analysis.model import Agent, Event, Trace
from analysis.orchestration.alignment import Alignment, align, differences
from analysis.orchestration.timing import timing
from benchmarks.simulation import SimulationPolicy, simulate
from tests.examples import up_to
from tests.strategies import traces as any_traces

COMPONENTS = ("lead", "coder", "tester")
DOINGS: tuple[dict[str, Any], ...] = (
    {"kind": "act", "action": "model_call"},
    {"kind": "act", "action": "tool_call", "name": "pytest"},
    {"kind": "act", "action": "tool_call", "name": "search"},
    {"kind": "communicate"},
    {"kind": "delegate"},
    {"kind": None},
)


@st.composite
def teams(draw: st.DrawFn, *, is_distinct: bool = False) -> Trace:
    """A run without a clock, causes before effects; with `is_distinct` no two events say the same."""
    agents = [Agent(agent_id=f"{c}-{n}", component=c) for c in COMPONENTS for n in range(draw(st.integers(0, 3)))]
    ids = [agent.agent_id for agent in agents]
    events: list[Event] = []
    for n in range(draw(st.integers(0, 12)) if ids else 0):
        parents = tuple(e.event_id for e in events if draw(st.integers(0, 3)) == 0)
        what = draw(st.sampled_from(DOINGS))
        targets = tuple(draw(st.lists(st.sampled_from(ids), max_size=2))) if what["kind"] in ("communicate", "delegate") else ()
        content = f"text number {n}" if is_distinct else draw(st.sampled_from((None, "ok", "a longer text of some words")))
        agent_id = draw(st.sampled_from(ids))
        events.append(
            Event(event_id=f"e{n}", agent_id=agent_id, targets=targets, parents=parents, order=n, content=content, **what)
        )
    return Trace(trace_id="t", world="recorded", agents=tuple(agents), events=tuple(events))


def with_events(trace: Trace, events: list[Event]) -> Trace:
    return msgspec.structs.replace(trace, events=tuple(events))


def without(trace: Trace, n: int) -> Trace:
    """The run without one event; what it had caused is caused by its causes."""
    gone = trace.events[n]
    kept = []
    for event in trace.events:
        if event is not gone:
            parents = [q for p in event.parents for q in (gone.parents if p == gone.event_id else (p,))]
            kept.append(msgspec.structs.replace(event, parents=tuple(dict.fromkeys(parents))))
    return with_events(trace, kept)


def interleaved(trace: Trace, rng: random.Random) -> Trace:
    """The same run, recorded in another order that keeps causes and the order of each agent's work."""
    left, done = list(trace.events), []
    while left:
        ids = {event.event_id for event in left}
        first = {event.agent_id: event for event in reversed(left)}
        event = rng.choice([e for e in first.values() if not ids & set(e.parents)])
        left.remove(event)
        done.append(msgspec.structs.replace(event, order=len(done)))
    rng.shuffle(done)
    return with_events(trace, done)


def renamed(trace: Trace) -> Trace:
    """The same run with other ids, whose order is another too."""
    agent = {a.agent_id: f"{len(trace.agents) - n:03d}" for n, a in enumerate(trace.agents)}
    event = {e.event_id: f"{len(trace.events) - n:03d}" for n, e in enumerate(trace.events)}
    agents = [msgspec.structs.replace(a, agent_id=agent[a.agent_id]) for a in trace.agents]
    events = [
        msgspec.structs.replace(
            e,
            event_id=event[e.event_id],
            agent_id=agent[e.agent_id or ""],
            targets=tuple(agent[t] for t in e.targets),
            parents=tuple(event[p] for p in e.parents),
        )
        for e in trace.events
    ]
    return msgspec.structs.replace(trace, agents=tuple(agents), events=tuple(events))


def named(alignment: Alignment, *, swapped: bool = False) -> Counter[Any]:
    """The places by event ids, in no order."""
    rows: Counter[Any] = Counter()
    for place in alignment.places:
        a = None if place.a is None else alignment.a.events[place.a].event_id
        b = None if place.b is None else alignment.b.events[place.b].event_id
        status = {"dropped": "added", "added": "dropped"}.get(place.status, place.status) if swapped else place.status
        rows[(status, *((b, a) if swapped else (a, b)), place.differs)] += 1
    return rows


def statuses(alignment: Alignment) -> dict[str, int]:
    return {status: n for status, n in alignment.counts.items() if n}


@up_to(200)
@given(any_traces | teams())
def test_a_run_is_the_same_as_itself(trace: Trace) -> None:
    alignment = align(trace, trace)
    assert statuses(alignment) == ({"same": len(trace.events)} if trace.events else {})
    assert all(place.a == place.b for place in alignment.places)


@up_to(150)
@given(any_traces | teams(), any_traces | teams())
def test_every_event_of_both_runs_stands_in_one_place(a: Trace, b: Trace) -> None:
    alignment = align(a, b)
    assert sorted(p.a for p in alignment.places if p.a is not None) == list(range(len(a.events)))
    assert sorted(p.b for p in alignment.places if p.b is not None) == list(range(len(b.events)))
    counts = alignment.counts
    n_both = counts["same"] + counts["changed"] + counts["moved"]
    assert (n_both + counts["dropped"], n_both + counts["added"]) == (len(a.events), len(b.events))


@up_to(150)
@given(teams(), teams())
def test_swapping_the_runs_swaps_dropped_and_added(a: Trace, b: Trace) -> None:
    assert named(align(a, b)) == named(align(b, a), swapped=True)


@up_to(100)
@given(teams(), teams())
def test_other_ids_change_nothing(a: Trace, b: Trace) -> None:
    expected, found = align(a, b), align(a, renamed(b))
    assert found.places == expected.places


@up_to(150)
@given(teams(), teams(), st.randoms(use_true_random=False))
def test_how_parallel_work_interleaves_changes_nothing(a: Trace, b: Trace, rng: random.Random) -> None:
    assert statuses(align(a, interleaved(a, rng))) == ({"same": len(a.events)} if a.events else {})
    assert named(align(a, interleaved(b, rng))) == named(align(a, b))


@up_to(150)
@given(teams(is_distinct=True).filter(lambda t: t.events), st.data())
def test_a_copy_without_one_event_drops_exactly_that_one(trace: Trace, data: st.DataObject) -> None:
    """An agent without any event left is known by its name only, which must not count; so it keeps one."""
    n = data.draw(st.integers(0, len(trace.events) - 1))
    assume(sum(event.agent_id == trace.events[n].agent_id for event in trace.events) > 1)
    alignment = align(trace, without(trace, n))
    assert [(p.status, p.a) for p in alignment.places if p.status != "same"] == [("dropped", n)]
    lost = with_events(trace, [e for e in trace.events if e is not trace.events[n]])  # its effects name it as a cause still
    assert [(p.status, p.a) for p in align(trace, lost).places if p.status != "same"] == [("dropped", n)]


@up_to(100)
@given(teams().filter(lambda t: t.events), st.data())
def test_a_copy_without_one_of_several_like_events_drops_one_of_them(trace: Trace, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, len(trace.events) - 1))
    alignment = align(trace, without(trace, n))
    assert (alignment.counts["dropped"], alignment.counts["added"]) == (1, 0)
    (dropped,) = (alignment.a.events[p.a] for p in alignment.places if p.status == "dropped" and p.a is not None)
    gone = trace.events[n]
    assert (dropped.kind, dropped.action, dropped.name, dropped.content) == (gone.kind, gone.action, gone.name, gone.content)


@up_to(100)
@given(teams(is_distinct=True).filter(lambda t: t.events), st.data())
def test_another_text_is_the_only_change(trace: Trace, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, len(trace.events) - 1))
    events = list(trace.events)
    events[n] = msgspec.structs.replace(events[n], content="quite another text")
    found = [tuple(p) for p in align(trace, with_events(trace, events)).places if p.status != "same"]
    assert found == [("changed", n, n, ("content",))]


def small_team(events: list[Event]) -> Trace:
    agents = [Agent(agent_id=f"{c}{n}", component=c) for c, ns in (("lead", [""]), ("coder", [1, 2])) for n in ns]
    return Trace(trace_id="t", world="recorded", agents=tuple(agents), events=tuple(events), clock="relative")


def step(event_id: str, agent_id: str, parents: str = "", **given: Any) -> Event:
    return Event(event_id=event_id, agent_id=agent_id, kind=given.pop("kind", "act"), parents=tuple(parents.split()), **given)


def side_by_side(worker_of_b: str = "coder2", wait: str = "") -> Trace:
    return small_team(
        [
            step("s", "lead", kind="spawn", targets=("coder1", "coder2"), order=0),
            step("a", "coder1", "s", order=1, content="write the parser"),
            step("b", worker_of_b, f"s {wait}", order=2, content="write the tests"),
            step("x", "lead", "a b", kind="stop", order=3, content="all in"),
        ]
    )


def test_work_given_to_another_instance_is_moved() -> None:
    found = [tuple(p) for p in align(side_by_side(), side_by_side(worker_of_b="coder1")).places if p.status != "same"]
    assert found == [("moved", 2, 2, ("agent",))]


def test_work_that_waits_for_other_work_is_moved() -> None:
    found = align(side_by_side(), side_by_side(wait="a"))
    # The end waits for both in either run, even if only the tests come right before it in the second.
    assert [tuple(p) for p in found.places if p.status != "same"] == [("moved", 2, 2, ("causes",))]


def test_what_an_agent_does_in_another_order_is_moved_once() -> None:
    texts = ["one", "two", "three", "four"]
    first = small_team([step(t, "lead", order=n, content=t) for n, t in enumerate(texts)])
    second = small_team([step(t, "lead", order=n, content=t) for n, t in enumerate(["four", "one", "two", "three"])])
    assert [tuple(p) for p in align(first, second).places if p.status != "same"] == [("moved", 3, 0, ("order",))]


def test_a_moved_event_may_go_to_another_component() -> None:
    first = small_team([step("e", "lead", action="tool_call", name="pytest", content="run all the tests")])
    second = small_team([step("f", "coder1", action="tool_call", name="pytest", content="run all the tests")])
    assert [tuple(p) for p in align(first, second).places] == [("moved", 0, 0, ("agent",))]


def test_another_model_is_a_change_but_another_tool_is_another_event() -> None:
    def run(action: str, name: str) -> Trace:
        return small_team([step("e", "lead", action=action, name=name, content="the same words")])

    assert [tuple(p) for p in align(run("model_call", "large"), run("model_call", "small")).places] == [
        ("changed", 0, 0, ("name",))
    ]
    assert statuses(align(run("tool_call", "pytest"), run("tool_call", "search"))) == {"dropped": 1, "added": 1}


def test_workers_are_paired_by_their_part_and_not_by_their_number() -> None:
    """The second run gives the parts to the workers the other way round."""
    first = side_by_side()
    second = small_team(
        [
            step("s", "lead", kind="spawn", targets=("coder1", "coder2"), order=0),
            step("b", "coder1", "s", order=1, content="write the tests"),
            step("a", "coder2", "s", order=2, content="write the parser"),
            step("x", "lead", "a b", kind="stop", order=3, content="all in"),
        ]
    )
    alignment = align(first, second)
    assert alignment.agents == (("lead", "lead"), ("coder1", "coder2"), ("coder2", "coder1"))
    assert statuses(alignment) == {"same": 4}


def test_a_worker_more_is_added_with_all_it_does() -> None:
    first = side_by_side()
    third = Agent(agent_id="coder3", component="coder")
    events = [
        msgspec.structs.replace(first.events[0], targets=("coder1", "coder2", "coder3")),
        *first.events[1:3],
        step("c", "coder3", "s", order=3, content="write the manual"),
        msgspec.structs.replace(first.events[3], parents=("a", "b", "c"), order=4),
    ]
    second = msgspec.structs.replace(first, agents=(*first.agents, third), events=tuple(events))
    alignment = align(first, second)
    assert [tuple(p) for p in alignment.places if p.status != "same"] == [("changed", 0, 0, ("targets",)), ("added", None, 3, ())]
    assert (None, "coder3") in alignment.agents


def simulated(name: str) -> Trace:
    """The run of the first simulated task that a team and a trial name."""
    return next(t for t in simulate(SimulationPolicy(n_tasks=1), seed=7) if t.trace_id.endswith(f"software-1-{name}"))


def test_in_a_serial_collapse_the_delegations_wait_for_results() -> None:
    alignment = align(simulated("parallel-1"), simulated("serial-collapse-1"))
    moved = {alignment.a.events[p.a or 0].event_id for p in alignment.places if "causes" in p.differs}
    assert {"planner.4", "planner.5"} <= moved
    assert "planner.3" not in moved
    gone = {alignment.a.events[p.a or 0].agent_id for p in alignment.places if p.status == "dropped"}
    assert {"integrator", "tester"} <= gone


def test_a_round_of_repair_that_one_run_needed_is_dropped_as_a_whole() -> None:
    alignment = align(simulated("parallel-1"), simulated("parallel-3"))
    dropped = [alignment.a.events[p.a or 0].event_id for p in alignment.places if p.status == "dropped"]
    assert dropped == [
        "planner.6", "coder-3.5", "coder-3.6", "coder-3.7", "integrator.2", "tester.4", "tester.5", "tester.6",
    ]  # fmt: skip
    assert alignment.counts["added"] == alignment.counts["moved"] == 0


def test_differences_stand_on_their_events() -> None:
    def run(seconds: float, tokens: int | None, error: str | None) -> Trace:
        return small_team(
            [
                step("e", "lead", order=0, t_start_s=0.0, t_end_s=seconds, output_tokens=tokens, error=error, content="go"),
                step("f", "coder1", "e", order=1, t_start_s=seconds, t_end_s=seconds + 1.0),
            ]
        )

    a, b = run(2.0, 10, None), run(5.0, None, "timeout")
    b = with_events(b, [*b.events, step("g", "lead", "f", kind="stop", order=2, t_start_s=6.0, t_end_s=6.5)])
    rows = differences(align(a, b), timing(a), timing(b))
    assert rows["status"].tolist() == ["changed", "same", "added"]
    assert rows["differs"].tolist() == ["error", "", ""]
    assert rows["duration_s_delta"].tolist()[:2] == [3.0, 0.0]
    assert rows["drag_s_b"].tolist() == [5.0, 1.0, 0.5]
    assert rows["output_tokens_a"].tolist()[0] == 10
    assert rows["output_tokens_delta"].isna().all()
    assert rows["duration_s_delta"].isna().tolist() == [False, False, True]
    assert rows["event_id_a"].tolist()[:2] == rows["event_id_b"].tolist()[:2] == ["e", "f"]
    assert rows["error_b"].tolist()[0] == "timeout"


def test_two_empty_runs_have_no_differences() -> None:
    empty = Trace(trace_id="t", world="recorded")
    assert differences(align(empty, empty), timing(empty), timing(empty)).empty


@pytest.mark.parametrize("n_agents", [1, 100, 5000])
def test_five_thousand_events_a_side_take_seconds(n_agents: int) -> None:
    def run(seed: int) -> Trace:
        rng = random.Random(seed)
        agents = [Agent(agent_id=f"w{k}", component="worker") for k in range(n_agents)]
        events = [
            step(f"e{n}", f"w{n % n_agents}", action=rng.choice(("model_call", "note")), order=n, content=f"text {rng.random()}")
            for n in range(5000)
        ]
        return Trace(trace_id="t", world="recorded", agents=tuple(agents), events=tuple(events))

    a, b = run(1), run(2)
    start = time.perf_counter()
    assert sum(align(a, b).counts.values()) >= 5000
    assert time.perf_counter() - start < 10
