"""What the swim-lane is told to draw: lanes as a tree, times since the run began, ties, and what is folded."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.model import Agent, Event, Trace
from dashboard import swimlane
from dashboard.figures import KIND_COLORS, NO_AGENT
from dashboard.swimlane.tree import MAX_LANES, lane_tree
from tests.strategies import traces

KINDS = list(KIND_COLORS)


def trace_of(*events: Event, agents: tuple[Agent, ...] = (), clock: Any = "relative") -> Trace:
    times = any(e.t_start_s is not None or e.t_end_s is not None for e in events)
    return Trace(trace_id="counterpoint:t", world="recorded", events=events, agents=agents, clock=clock if times else None)


def event(event_id: str, agent_id: str | None = "a", **fields: Any) -> Event:
    return Event(event_id=event_id, agent_id=agent_id, **({"kind": "act"} | fields))


def agent(name: str, component: str | None = None, parent: str | None = None) -> Agent:
    return Agent(agent_id=name, component=component or name, parent_id=parent)


def shown(lanes: dict[str, list[Any]]) -> list[str]:
    """The names of the lanes that are not inside a folded one, indented by depth."""
    names, depth, hidden = [], [], []
    for name, parent, _ in zip(lanes["name"], lanes["parent"], lanes["is_folded"], strict=True):
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
        hidden.append(parent >= 0 and (hidden[parent] or lanes["is_folded"][parent]))
        if not hidden[-1]:
            names.append(f"{'  ' * depth[-1]}{name}")
    return names


def test_every_event_stands_in_the_lane_of_its_agent_with_seconds_since_the_run_began() -> None:
    drawn = swimlane.rows(
        trace_of(
            event("e1", "lead", kind="spawn", targets=("w",), t_start_s=100.0, t_end_s=101.5, input_tokens=7),
            event("e2", "w", action="tool_call", name="grep", parents=("e1", "lost"), t_start_s=102.0, content="look\nhere"),
            event("e3", None, kind=None, parents=("e1", "e2"), t_end_s=104.0, error="no such file"),
            agents=(agent("lead"), agent("w", "worker", "lead")),
        ),
        critical=["e3", "e1", "nobody"],
        drag_s={"e1": 1.5, "nobody": 2.0},
    )
    assert drawn["lanes"] == {
        "name": ["lead", "w", NO_AGENT],
        "role": ["", "worker", ""],
        "parent": [-1, 0, -1],
        "is_group": [False] * 3,
        "is_folded": [False] * 3,
    }
    assert drawn["lane"] == [0, 1, 2]
    assert [KINDS[kind] for kind in drawn["kind"]] == ["spawn", "act", "opaque"]
    assert drawn["start"] == [0.0, 2.0, 4.0]
    assert drawn["end"] == [1.5, None, None]
    assert drawn["ties"] == [0, 1, 0, 2, 1, 2]
    assert [drawn["words"][n] for n in drawn["head"]] == ["spawn → w", "act: tool_call grep", "opaque"]
    assert [drawn["words"][n] for n in drawn["label"]] == ["spawn", "grep", "opaque"]
    assert drawn["text"] == ["", "look here", ""]
    assert drawn["error"] == {2: "no such file"}
    assert (drawn["input_tokens"], drawn["output_tokens"]) == ([7, None, None], [None, None, None])
    assert drawn["critical"] == [0, 2]
    assert drawn["drag_s"] == {0: 1.5}
    assert drawn["notes"] == []


def test_credit_takes_the_place_of_the_colours_of_kinds_and_leaves_blank_what_was_not_measured() -> None:
    credit = swimlane.Credit(
        "passed", {"e2": ("#009e73", "credit +1\nin passed"), "lost": ("#d55e00", "x")}, {"#009e73": "helped"}
    )
    drawn = swimlane.rows(trace_of(event("e1"), event("e2", kind="stop")), credit=credit)
    assert drawn["credit"] == {1: ("#009e73", "credit +1 in passed")}
    assert drawn["swatches"] == [("#009e73", "helped"), (None, "not measured")]
    assert {color for _, color, _ in drawn["kinds"]} == {"#8C8C8C"}
    assert drawn["title"] == "counterpoint:t, credit in passed"
    plain = swimlane.rows(trace_of(event("e1")))
    assert (plain["credit"], plain["swatches"]) == (None, [])


def test_an_end_before_its_start_is_a_point_and_is_counted() -> None:
    drawn = swimlane.rows(trace_of(event("e1", t_start_s=5.0, t_end_s=3.0), event("e2", t_start_s=6.0, t_end_s=6.0)))
    assert (drawn["start"], drawn["end"], drawn["odd"]) == ([0.0, 1.0], [0.0, 1.0], [0])
    assert drawn["notes"] == ["1 end before they start and are drawn as points"]


def test_without_a_clock_no_time_is_made_up() -> None:
    drawn = swimlane.rows(trace_of(event("e1"), event("e2")))
    assert (drawn["start"], drawn["end"]) == ([None, None], [None, None])
    assert drawn["notes"] == ["the source has no times, so events stand in their order"]


def test_events_without_a_time_among_others_are_counted() -> None:
    drawn = swimlane.rows(trace_of(event("e1", t_start_s=0.0), event("e2"), event("e3")))
    assert drawn["start"] == [0.0, None, None]
    assert drawn["notes"] == ["2 without a time; by order they are drawn too"]


def test_times_beyond_all_reckoning_are_missing() -> None:
    drawn = swimlane.rows(trace_of(event("e1", t_start_s=-1e308), event("e2", t_start_s=1e308)))
    assert drawn["start"] == [0.0, None]


def test_a_run_begins_with_its_first_start_or_where_none_is_stated_with_its_first_end() -> None:
    assert swimlane.run_start_s(trace_of(event("e1", t_end_s=1.0), event("e2", t_start_s=4.0))) == 4.0
    assert swimlane.run_start_s(trace_of(event("e1", t_end_s=7.0), event("e2", t_end_s=5.0))) == 5.0
    assert swimlane.run_start_s(trace_of(event("e1"))) is None


def test_a_trace_without_events_has_the_lanes_of_its_agents_only() -> None:
    drawn = swimlane.rows(trace_of(agents=(agent("a"),)))
    assert drawn["lanes"]["name"] == ["a"]
    assert [drawn[name] for name in ("kind", "lane", "start", "end", "ties", "notes")] == [[], [], [], [], [], []]


def test_lanes_stand_below_their_parent_in_the_order_in_which_they_enter() -> None:
    agents = tuple(agent(name, None, parent) for name, parent in [("a", None), ("b", "a"), ("c", None), ("d", "a"), ("e", "c")])
    lanes, lane_of = lane_tree(trace_of(event("1", "e"), event("2", "d"), event("3", "b"), event("4", "a"), agents=agents))
    assert shown(lanes) == ["c", "  e", "a", "  d", "  b"]
    assert lane_of == {"a": 2, "b": 4, "c": 0, "d": 3, "e": 1}


def test_agents_whose_parents_go_round_or_are_unknown_still_have_one_lane_each() -> None:
    parents = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "d"), ("e", "nobody"), ("f", "a")]
    lanes, _ = lane_tree(trace_of(agents=tuple(agent(name, None, parent) for name, parent in parents)))
    assert sorted(lanes["name"]) == ["a", "b", "c", "d", "e", "f"]
    assert all(parent < n for n, parent in enumerate(lanes["parent"]))


def test_up_to_forty_lanes_nothing_is_folded() -> None:
    lanes, _ = lane_tree(trace_of(agents=tuple(agent(f"w{n}", "worker") for n in range(MAX_LANES))))
    assert (len(lanes["name"]), any(lanes["is_folded"]), any(lanes["is_group"])) == (40, False, False)


def test_more_lanes_start_folded_by_component() -> None:
    agents = (agent("lead"), *(agent(f"w{n:02}", f"worker {n % 2}", "lead") for n in range(50)))
    lanes, lane_of = lane_tree(trace_of(event("1", "w01"), agents=agents))
    assert shown(lanes) == ["lead", "  worker 1", "  worker 0"]
    assert len(lane_of) == 51
    drawn = swimlane.rows(trace_of(event("1", "w01"), agents=agents))
    assert drawn["notes"][-1] == "51 agents; lanes of one component start folded"


def test_where_components_do_not_help_the_deepest_levels_fold_first() -> None:
    agents = (agent("lead"), agent("sub", None, "lead"), *(agent(f"w{n}", None, "sub") for n in range(50)))
    assert shown(lane_tree(trace_of(agents=agents))[0]) == ["lead", "  sub"]


@pytest.mark.parametrize("n", [3_000, 20_000])
def test_a_chain_of_thousands_of_agents_is_no_recursion(n: int) -> None:
    agents = tuple(agent(f"a{k}", None, f"a{k - 1}") for k in range(n))
    lanes, _ = lane_tree(trace_of(agents=agents))
    assert lanes["parent"] == list(range(-1, n - 1))
    assert len(shown(lanes)) <= MAX_LANES


def test_hostile_names_arrive_visible_on_one_line_and_short() -> None:
    name = "ad\u202emin\x1b[2J\n" + "x" * 500
    drawn = swimlane.rows(trace_of(event("e1", name, name=name, content=name, error=name), agents=(agent(name, name + "!"),)))
    texts = [*drawn["lanes"]["name"], *drawn["lanes"]["role"], *drawn["words"], *drawn["text"], *drawn["error"].values()]
    assert all("ad⟦U+202E⟧min⟦U+001B⟧[2J x" in text for text in texts)
    assert max(len(text) for text in texts) == swimlane.PREVIEW


def test_the_same_rows_make_the_same_payload_and_others_another_one() -> None:
    one, other = (swimlane.payload(swimlane.rows(trace_of(event(name)))) for name in ("e1", "e2"))
    assert one == other  # ids of events are not part of what is drawn
    different = swimlane.payload(swimlane.rows(trace_of(event("e1", content="x"))))
    assert different[:16] != one[:16]
    assert json.loads(one[16:])["lanes"]["name"] == ["a"]


def test_a_start_too_far_from_the_first_for_a_number_is_no_start_and_has_no_end() -> None:
    trace = trace_of(event("first", t_start_s=-9.9792015476736e291), event("far", t_start_s=sys.float_info.max, t_end_s=0.0))
    drawn = swimlane.rows(trace)
    assert (drawn["start"], drawn["end"]) == ([0.0, None], [None, None])
    assert drawn["notes"] == ["1 without a time; by order they are drawn too"]


@settings(deadline=None, max_examples=40)
@given(traces)
def test_any_trace_is_drawn_with_every_event_and_every_agent(trace: Trace) -> None:
    drawn = json.loads(swimlane.payload(swimlane.rows(trace))[16:])
    n = len(trace.events)
    columns = ("kind", "lane", "start", "end", "head", "label", "input_tokens", "output_tokens", "text")
    assert {len(drawn[name]) for name in columns} == {n}
    agents = {a.agent_id for a in trace.agents} | {e.agent_id or NO_AGENT for e in trace.events}
    assert drawn["lanes"]["is_group"].count(False) == len(agents)
    assert all(0 <= lane < len(drawn["lanes"]["name"]) for lane in drawn["lane"])
    assert all(-1 <= parent < k for k, parent in enumerate(drawn["lanes"]["parent"]))
    assert all(0 <= position < n for position in drawn["ties"])
    assert all(end is None or end >= start for start, end in zip(drawn["start"], drawn["end"], strict=True))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1))
def test_the_first_start_is_zero_and_differences_are_kept(spans: list[tuple[float, float]]) -> None:
    drawn = swimlane.rows(trace_of(*(event(str(n), t_start_s=a, t_end_s=b) for n, (a, b) in enumerate(spans))))
    assert min(drawn["start"]) == 0
    first = min(a for a, _ in spans)
    assert drawn["start"] == [round(a - first, 6) for a, _ in spans]
    assert drawn["odd"] == [n for n, (a, b) in enumerate(spans) if round(b - first, 6) < round(a - first, 6)]
