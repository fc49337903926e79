"""What the MARBLE reader makes of real records, of records made by hand in every dialect, and of broken ones."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import Problem
from analysis.model import Agent, Claim, Event, Groups, Label, Outcome, Trace, decode, encode
from analysis.readers import marble
from analysis.readers.fragment import Assembled, Fragment
from analysis.readers.source import Source, open_source

PLANNER = "EnginePlanner"
UUIDS = ("00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b")

GRAPH: dict[str, Any] = {
    "task": "build it",
    "coordination_mode": "graph",
    "iterations": [
        {
            "iteration": 1,
            "task_assignments": {"a": "build it", "b": "build it"},
            "task_results": [{"agent_id": "a", "result": '{"success": true}'}, {"agent_id": "b", "result": "B1"}],
            "summary": "S1",
            "continue_simulation": True,
            "communications": [f"In Session {UUIDS[0]} \nFrom b to a: hi\nFrom here to there: a line\nFrom a to b: yes: ok"],
        },
        {
            "iteration": 2,
            "task_assignments": {"a": "do x"},
            "task_results": [{"a": "A2"}],
            "summary": "S2",
            "continue_simulation": False,
            "communications": [],
            "total_milestones": 0,
            "agent_kpis": {},
        },
    ],
    "planning_scores": [4, -1, 2],
    "communication_scores": [-1, -1, -1],
    "token_usage": 321,
    "agent_kpis": {"a": 2},
    "total_milestones": 2,
    "code_quality": {"quality": 4, "consistency": 2, "executability": 3, "instruction_following": 5},
    "agent_profiles": "agent_id: a, profile: good at a,\nand more\nagent_id: b, profile: good at b",
    "relationship": "a - b: collaborate with\nb - a: report to",
    "yaml_file": "t_0.yaml",
}
TREE: dict[str, Any] = {
    "task": "think",
    "coordination_mode": "tree",
    "iterations": [
        {
            "iteration": 1,
            "root_agent": "r",
            "result": None,
            "continue_simulation": True,
            "summary": "S",
            "communications": f"In Session {UUIDS[0]}\nFrom c to d: x\nIn Session {UUIDS[1]}\nFrom r to c: y",
            "task_assignments": [{"c": "c's part"}, {"d": "d's part"}],
            "task_results": [
                {"agent_id": "r", "result": "R"},
                {"agent_id": "c", "result": "C"},
                {"agent_id": "d", "result": "D"},
            ],
        }
    ],
}
EARLY_TREE: dict[str, Any] = {
    "task": "think",
    "coordination_mode": "tree",
    "iterations": [
        {
            "iteration": 1,
            "root_agent": "r",
            "result": "R",
            "continue_simulation": True,
            "summary": "S",
            "communications": None,
            "task_assignments": [{}],
            "task_results": [{"root_agent": "R"}],
        }
    ],
}
CHAIN: dict[str, Any] = {
    "task": "write",
    "coordination_mode": "chain",
    "iterations": [
        {
            "chain_length": n + 1,
            "current_agent": agent,
            "result": result,
            "continue_simulation": True,
            "task_assignments": {agent: text},
            "communications": None,
            "summary": f"S{n}",
        }
        for n, (agent, text, result) in enumerate([("a", "write", "A"), ("b", "go on", {"done": 1})])
    ],
}
EARLY: dict[str, Any] = {
    "task": "talk",
    "coordination_mode": "star",
    "iterations": [
        {"iteration": 1, "task_assignments": {"a": "you first"}, "task_results": {"a": "A"}, "summary": ""},
        {
            "iteration": 2,
            "task_assignments": {"a": "again", "b": "you"},
            "task_results": [{"a": "A2"}, {"b": "B"}],
            "summary": "S",
        },
    ],
}
DIALECTS = {"graph": GRAPH, "tree": TREE, "chain": CHAIN, "star": EARLY}


def written(tmp_path: Path, text: str, name: str = "records.jsonl") -> Path:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def opened(path: Path, file: str | None = None) -> Source:
    source = open_source(path, file or path.name)
    assert isinstance(source, Source), str(source)
    return source


def items(path: Path, file: str | None = None) -> list[Fragment | Problem]:
    source = opened(path, file)
    kind = marble.detect(source)
    assert kind == "marble"
    return [*marble.read(source, kind), *source.problems]


def assembled(item: Fragment | Problem) -> Assembled:
    assert isinstance(item, Fragment), str(item)
    return marble.assemble(item.trace_id, [item])


def one(tmp_path: Path, record: Any, name: str = "run.json") -> Assembled:
    (item,) = items(written(tmp_path, json.dumps(record), name), name)
    return assembled(item)


def assert_sound(trace: Trace) -> None:
    order = {event.event_id: event.order for event in trace.events}
    assert list(order.values()) == list(range(len(order)))
    for event in trace.events:
        assert all(order[p] < event.order for p in (*event.parents, *event.merge_points))
    agents = {a.agent_id for a in trace.agents}
    assert {e.agent_id for e in trace.events} | {t for e in trace.events for t in e.targets} <= agents | {None}
    assert {c.event_id for c in trace.claims} | {label.event_id for label in trace.labels} <= order.keys() | {None}
    assert decode(encode(trace)) == trace


# --- the real files ---


@pytest.fixture(scope="module")
def real(shared_traces: Path) -> list[tuple[Fragment, Assembled]]:
    began = time.process_time()
    root = shared_traces / "marble"
    found = [
        item for path in sorted(root.rglob("*.json*")) for item in items(path, f"marble/{path.relative_to(root).as_posix()}")
    ]
    results = [(item, assembled(item)) for item in found if isinstance(item, Fragment)]
    assert len(results) == len(found) == 467  # one fragment a record, nothing lost
    assert time.process_time() - began < 10
    return results


@pytest.fixture(scope="module")
def runs(real: list[tuple[Fragment, Assembled]]) -> list[Trace]:
    return [result.trace for _, result in real]


def named(traces: list[Trace], *parts: str) -> list[Trace]:
    return [t for t in traces if all(part in str(t.source.file) for part in parts)]


def pairs(traces: list[Trace]) -> dict[str | None, dict[str | None, list[Trace]]]:
    found: dict[str | None, dict[str | None, list[Trace]]] = defaultdict(lambda: defaultdict(list))
    for trace in traces:
        found[trace.groups.task][trace.groups.condition].append(trace)
    return found


def test_no_other_real_file_is_taken_for_marble(shared_traces: Path) -> None:
    others = [p for p in sorted(shared_traces.rglob("*")) if p.is_file() and "marble" not in p.parts]
    sources = [source for path in others if isinstance(source := open_source(path, path.name), Source)]
    assert len(sources) > 200
    assert [source.file for source in sources if marble.detect(source) is not None] == []


def test_467_records_are_466_traces_and_one_empty_record_that_stands_in_two_files(
    real: list[tuple[Fragment, Assembled]],
) -> None:
    places = defaultdict(list)
    for part, result in real:
        places[part.trace_id].append((part.file.rpartition("/")[2], part.record, len(result.trace.events)))
    assert len(places) == 466
    assert [found for found in places.values() if len(found) > 1] == [
        [("chain_research_gpt3.5.jsonl", "line 39", 0), ("tree_research_gpt3.5.jsonl", "line 39", 0)]
    ]
    assert {len(trace_id) for trace_id in places} == {len("marble:") + 16}


def test_events_of_the_real_runs(runs: list[Trace]) -> None:
    counts = Counter((e.kind, e.basis, e.rule) for t in runs for e in t.events)
    assert counts == {
        ("spawn", "explicit", None): 1610,  # the agents that the first iterations assign to
        ("spawn", "derived", "root-agent"): 2,
        ("delegate", "explicit", None): 1610,
        ("delegate", "derived", "graph-agent-plans-itself"): 3562,  # 1610 + 3562 = the 5172 assignments of the files
        ("delegate", "derived", "root-agent"): 2,
        ("communicate", "explicit", None): 4622,  # results
        ("communicate", "derived", "session-line"): 3422,
        ("aggregate", "explicit", None): 1496,  # iterations
        ("stop", "explicit", None): 239,
        ("stop", "derived", "iteration-limit"): 56,
        ("stop", "derived", "last-iteration"): 168,
    }
    assert Counter(t.extra.get("dialect") for t in runs) == {"graph": 461, "tree": 2, None: 4}


def test_the_dialogues_are_555_sessions_of_two_agents_each(runs: list[Trace]) -> None:
    sessions = defaultdict(list)
    for trace in runs:
        for event in trace.events:
            if event.message_type == "dialogue":
                sessions[trace.trace_id, event.event_id.rpartition(".")[0]].append(event)
    assert len(sessions) == 555
    assert all(len({name for e in said for name in (e.agent_id, *e.targets)}) <= 2 for said in sessions.values())
    assert all(e.parents == (before.event_id,) for said in sessions.values() for before, e in pairwise(said))
    assert {event.raw_type for said in sessions.values() for event in said} == {"session"}


def test_the_task_is_stored_once_and_referred_to(runs: list[Trace]) -> None:
    orders = [event for trace in runs for event in trace.events if event.kind == "delegate"]
    assert sum(event.extra == {"content_from": "task.text"} for event in orders) == 1612
    assert not any(event.content == trace.task.text for trace in runs for event in trace.events)


def test_records_without_iterations_are_empty_traces_with_what_they_and_their_names_say(runs: list[Trace]) -> None:
    empty = [t for t in runs if not t.events]
    assert [(t.agents, t.claims, t.labels, t.outcome, t.task.domain) for t in empty] == [((), (), (), Outcome(), "research")] * 4
    assert [t.groups.condition for t in empty] == [
        f"topology={mode}, model=gpt-3.5" for mode in ("chain", "chain", "tree", "tree")
    ]


def test_the_iteration_table_of_the_six_files_is_reproduced(runs: list[Trace]) -> None:
    ablation = named(runs, "minecraft_iteration_ablation")
    limits = (1, 3, 5, 7, 10, 20)
    by_limit = {n: [t for t in ablation if t.groups.condition == f"topology=graph, model=gpt-4o-mini, limit={n}"] for n in limits}
    assert [len(traces) for traces in by_limit.values()] == [10] * 6
    scores = [mean(t.outcome.score for t in traces if t.outcome.score is not None) for traces in by_limit.values()]
    assert [round(score, 2) for score in scores] == [0.0, 0.99, 2.16, 3.19, 1.40, 3.62]
    tokens = [mean(t.extra["token_usage"] for t in traces) for traces in by_limit.values()]
    assert [round(n / 1000) for n in tokens] == [4, 18, 46, 91, 135, 430]
    assert {t.outcome.score_scale for t in ablation} == {(0.0, 5.0)}


def test_the_same_ten_tasks_stand_under_all_six_limits(runs: list[Trace]) -> None:
    found = pairs(named(runs, "minecraft_iteration_ablation"))
    assert [[len(trials) for trials in conditions.values()] for conditions in found.values()] == [[1] * 6] * 10


def test_chain_and_tree_have_49_tasks_in_common_and_the_judges_barely_tell_them_apart(runs: list[Trace]) -> None:
    found = pairs(named(runs, "research_gpt3.5"))
    both = [conditions for conditions in found.values() if len(conditions) == 2]
    assert (len(found), len(both)) == (49, 49)
    trials = [[t.groups.trial for t in traces] for conditions in both for traces in conditions.values()]
    assert sorted(trials) == [["1"]] * 96 + [["1", "2"]] * 2
    for topology, innovation, feasibility in (("chain", 4.61, 3.80), ("tree", 4.67, 3.92)):  # formats.md, finding 8
        labels = [label for t in named(runs, f"{topology}_research_gpt3.5") for label in t.labels]
        means = [mean(x.value for x in labels if x.name == name and x.value) for name in ("innovation", "feasibility")]
        assert [round(value, 2) for value in means] == [innovation, feasibility]


def test_database_runs_are_told_apart_by_what_was_broken_and_judged_by_their_final_decision(runs: list[Trace]) -> None:
    database = [t for t in runs if t.task.domain == "database"]
    assert [sorted(map(len, conditions.values())) for conditions in pairs(database).values()] == [[1, 1, 1]] * 10
    assert Counter(t.outcome.passed for t in database) == {True: 6, False: 24}
    assert Counter(t.outcome.score for t in database) == Counter(
        [sum(cause in decision_of(t) for cause in str(t.task.reference).split(", ")) / 2 for t in database]
    )
    assert all("derived" in str(t.outcome.source) for t in database)
    # The task allows three causes, so a passage that names three is a decision and no discussion.
    assert Counter(len(causes_in(decision_of(t))) for t in database) == {3: 29, 4: 1}


def decision_of(trace: Trace) -> str:
    """The end of the answer from the last line that announces a decision, found by other means than the reader's."""
    answer = str(trace.outcome.answer)
    starts = [answer.lower().rfind(mark) for mark in ("most likely", "final answer", "top three")]
    return answer[answer.rfind("\n", 0, max(starts)) + 1 :]


def causes_in(text: str) -> set[str]:
    causes = "INSERT_LARGE_DATA MISSING_INDEXES LOCK_CONTENTION VACUUM REDUNDANT_INDEX FETCH_LARGE_DATA POOR_JOIN_PERFORMANCE"
    return {cause for cause in causes.split() if cause in text}


def test_what_is_not_scored_is_counted_and_is_a_score_nowhere(real: list[tuple[Fragment, Assembled]]) -> None:
    sentinels = [[p for p in result.problems if p.code == "sentinel"] for _, result in real]
    assert max(map(len, sentinels)) == 1
    assert sum(p.n for found in sentinels for p in found) == 784 + 1413  # of planning and communication
    traces = [result.trace for _, result in real]
    labels = [label for t in traces for label in t.labels]
    assert Counter(label.name for label in labels if label.step is not None) == {
        "planning": 1768 - 784,
        "communication": 1768 - 1413,
    }
    assert min(label.value for label in labels if label.value is not None) == 1
    assert min(t.outcome.score for t in traces if t.outcome.score is not None) == 0
    assert not any(
        t.extra.keys() & {"planning_scores", "communication_scores", "task_evaluation", "code_quality"} for t in traces
    )


def test_a_mode_that_the_file_name_contradicts_is_kept_and_named(real: list[tuple[Fragment, Assembled]]) -> None:
    found = [(p.got, p.expected) for _, result in real for p in result.problems if p.code == "name-differs"]
    assert Counter(found) == {
        ("topology chain", "coordination_mode graph"): 50,
        ("topology tree", "coordination_mode graph"): 53,
    }
    chain = named([result.trace for _, result in real], "chain_research")[0]
    assert (chain.extra["coordination_mode"], chain.extra["topology_from"]) == ("graph", "file name")
    assert chain.extra["from_file_name"] == {"domain": "research", "topology": "chain", "model": "gpt-3.5"}
    assert chain.groups.condition == "topology=chain, model=gpt-3.5"


def test_minecraft_teams_are_stopped_exactly_when_the_building_is_complete(runs: list[Trace]) -> None:
    minecraft = [t for t in runs if t.task.domain == "minecraft"]
    verdicts = Counter((t.claims[-1].p, t.outcome.score == 5, t.events[-1].agent_id == PLANNER) for t in minecraft)
    assert verdicts == {(0.0, True, True): 8, (1.0, False, False): 72}


def test_a_verdict_to_stop_that_the_engine_overruled_is_a_claim_and_no_stop(runs: list[Trace]) -> None:
    overruled = [c for t in runs for c in t.claims[:-1] if c.p == 0]
    assert [(c.turn, c.event_id) for c in overruled] == [(1, None)] * 21
    assert all([e.kind for e in t.events].count("stop") == (1 if t.events else 0) for t in runs)
    assert {(c.component, c.proposition, c.kind) for t in runs for c in t.claims} == {(PLANNER, "continue_needed", "verdict")}


def test_every_real_trace_is_sound_and_survives_the_native_format(runs: list[Trace]) -> None:
    for trace in runs:
        assert_sound(trace)


# --- the dialects, by hand ---


def test_a_graph_run_is_read_event_by_event(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, GRAPH)
    task: dict[str, Any] = {"content_from": "task.text"}
    session: dict[str, Any] = {
        "kind": "communicate", "message_type": "dialogue", "basis": "derived", "rule": "session-line",
        "raw_id": "iterations[0].communications[0]", "raw_type": "session", "extra": {"session": UUIDS[0]}, "turn": 1,
    }  # fmt: skip
    result: dict[str, Any] = {"kind": "communicate", "message_type": "result", "targets": (PLANNER,)}
    assert trace.events == (
        Event(
            event_id="i0.d0.spawn", kind="spawn", agent_id=PLANNER, targets=("a",), order=0, turn=1,
            raw_id="iterations[0].task_assignments.a",
        ),
        Event(
            event_id="i0.d0", kind="delegate", agent_id=PLANNER, targets=("a",), parents=("i0.d0.spawn",), order=1, turn=1,
            raw_id="iterations[0].task_assignments.a", extra=task,
        ),
        Event(
            event_id="i0.d1.spawn", kind="spawn", agent_id=PLANNER, targets=("b",), order=2, turn=1,
            raw_id="iterations[0].task_assignments.b",
        ),
        Event(
            event_id="i0.d1", kind="delegate", agent_id=PLANNER, targets=("b",), parents=("i0.d1.spawn",), order=3, turn=1,
            raw_id="iterations[0].task_assignments.b", extra=task,
        ),
        Event(
            event_id="i0.r0", agent_id="a", parents=("i0.d0",), order=4, turn=1, content='{"success": true}',
            raw_id="iterations[0].task_results[0]", **result,
        ),
        Event(
            event_id="i0.c0.m0", agent_id="b", targets=("a",), parents=("i0.d1",), order=5,
            content="hi\nFrom here to there: a line", **session,
        ),
        Event(event_id="i0.c0.m1", agent_id="a", targets=("b",), parents=("i0.c0.m0",), order=6, content="yes: ok", **session),
        Event(
            event_id="i0.r1", agent_id="b", parents=("i0.d1", "i0.c0.m1"), order=7, turn=1, content="B1",
            raw_id="iterations[0].task_results[1]", **result,
        ),
        Event(
            event_id="i0.summary", kind="aggregate", agent_id=PLANNER, parents=("i0.r0", "i0.r1"), order=8, turn=1,
            merge_points=("i0.r0", "i0.r1"), content="S1", raw_id="iterations[0].summary",
        ),
        Event(
            event_id="i1.d0", kind="delegate", agent_id="a", targets=("a",), parents=("i0.summary",), order=9, turn=2,
            content="do x", basis="derived", rule="graph-agent-plans-itself", raw_id="iterations[1].task_assignments.a",
        ),
        Event(
            event_id="i1.r0", agent_id="a", parents=("i1.d0",), order=10, turn=2, content="A2",
            raw_id="iterations[1].task_results[0].a", **result,
        ),
        Event(
            event_id="i1.summary", kind="aggregate", agent_id=PLANNER, parents=("i1.r0",), order=11, turn=2,
            merge_points=("i1.r0",), content="S2", raw_id="iterations[1].summary",
        ),
        Event(
            event_id="stop", kind="stop", agent_id=PLANNER, parents=("i1.summary",), order=12, turn=2,
            condition="continue_simulation is false", raw_id="iterations[1].continue_simulation",
        ),
    )  # fmt: skip


def test_what_a_graph_run_says_besides(tmp_path: Path) -> None:
    trace, problems = one(tmp_path, GRAPH, "some_iterations/star_gpt_4o_2.json")
    assert trace.agents == (
        Agent(agent_id=PLANNER, component=PLANNER, extra={"name_from": "rule engine-planner"}),
        Agent(
            agent_id="a",
            component="a",
            parent_id=PLANNER,
            extra={"profile": "good at a,\nand more", "relationships": {"b": "collaborate with"}},
        ),
        Agent(
            agent_id="b", component="b", parent_id=PLANNER, extra={"profile": "good at b", "relationships": {"a": "report to"}}
        ),
    )
    verdict: dict[str, Any] = {"component": PLANNER, "proposition": "continue_needed", "kind": "verdict"}
    assert trace.claims == (
        Claim(claim_id="i0.continue_simulation", p=1.0, turn=1, **verdict),
        Claim(claim_id="i1.continue_simulation", p=0.0, turn=2, event_id="stop", **verdict),
    )
    quality = {"consistency": 2.0, "executability": 3.0, "instruction_following": 5.0, "quality": 4.0}
    judge = "marble-evaluator"
    assert trace.labels == (
        *(Label(annotator=judge, name=name, value=value) for name, value in quality.items()),
        Label(annotator=judge, name="planning", value=4.0, step=1, step_base=1, event_id="i0.summary"),
        Label(annotator=judge, name="planning", value=2.0, step=3, step_base=1),  # of an iteration that is not recorded
    )
    assert trace.outcome == Outcome(
        score=3.5,  # (5 + 3 + 2 + 4) / 4
        score_scale=(1.0, 5.0),
        source="mean of code_quality.{instruction_following, executability, consistency, quality}",
    )
    assert trace.groups == Groups(task=trace.task.task_id, condition="topology=star, model=gpt-4o, limit=2", trial="1")
    assert (trace.task.text, trace.task.domain, trace.task.extra) == ("build it", "coding", {"yaml_file": "t_0.yaml"})
    assert trace.extra == {
        "coordination_mode": "graph",
        "token_usage": 321,
        "agent_kpis": {"a": 2},
        "total_milestones": 2,
        "dialect": "graph",
        "topology_from": "file name",
        "from_file_name": {"topology": "star", "model": "gpt-4o", "limit": 2},
        "iterations": [{"iteration": 1}, {"iteration": 2, "total_milestones": 0, "agent_kpis": {}}],
    }
    assert [(p.code, p.record, p.trace_id, p.n) for p in problems] == [
        ("sentinel", "document", trace.trace_id, 4),
        ("name-differs", "document", trace.trace_id, 1),
    ]
    assert str(problems[1]) == (
        "some_iterations/star_gpt_4o_2.json:document: the file name and the record say different things; the name is used "
        "(got topology star, expected coordination_mode graph) - check which one is true"
    )


def told(trace: Trace) -> list[tuple[Any, ...]]:
    """The events in short: id, kind, from, to, text, causes, rule."""
    return [(e.event_id, e.kind, e.agent_id, *e.targets, e.content, e.parents, e.rule) for e in trace.events]


def test_in_a_tree_the_root_assigns_and_answers_last_on_what_it_was_answered(tmp_path: Path) -> None:
    trace, problems = one(tmp_path, TREE)
    assert told(trace) == [
        ("i0.d0.spawn", "spawn", PLANNER, "r", None, (), "root-agent"),
        ("i0.d0", "delegate", PLANNER, "r", None, ("i0.d0.spawn",), "root-agent"),
        ("i0.d1.spawn", "spawn", "r", "c", None, ("i0.d0",), None),
        ("i0.d1", "delegate", "r", "c", "c's part", ("i0.d0", "i0.d1.spawn"), None),
        ("i0.d2.spawn", "spawn", None, "d", None, (), None),  # who plans for the level below is not recorded
        ("i0.d2", "delegate", None, "d", "d's part", ("i0.d2.spawn",), None),
        ("i0.c0.m0", "communicate", "c", "d", "x", ("i0.d1",), "session-line"),
        ("i0.r0", "communicate", "c", "r", "C", ("i0.d1", "i0.c0.m0"), None),
        ("i0.r1", "communicate", "d", "r", "D", ("i0.d2",), None),
        ("i0.c1.m0", "communicate", "r", "c", "y", ("i0.d0",), "session-line"),
        ("i0.r2", "communicate", "r", PLANNER, "R", ("i0.d0", "i0.c1.m0", "i0.r0", "i0.r1"), None),
        ("i0.summary", "aggregate", PLANNER, "S", ("i0.r0", "i0.r1", "i0.r2"), None),
        ("stop", "stop", None, None, ("i0.summary",), "last-iteration"),
    ]
    assert {agent.agent_id: agent.parent_id for agent in trace.agents} == {PLANNER: None, "r": PLANNER, "c": "r", "d": None}
    assert problems == []


def test_an_early_tree_states_the_roots_answer_twice_and_it_is_one_event(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, EARLY_TREE)
    assert told(trace)[2:] == [
        ("i0.r0", "communicate", "r", PLANNER, "R", ("i0.d0",), None),
        ("i0.summary", "aggregate", PLANNER, "S", ("i0.r0",), None),
        ("stop", "stop", None, None, ("i0.summary",), "last-iteration"),
    ]


def test_in_a_chain_each_agent_hands_on_to_the_next(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, CHAIN, "iterations/chain_1.json")
    assert told(trace) == [
        ("i0.d0.spawn", "spawn", PLANNER, "a", None, (), None),
        ("i0.d0", "delegate", PLANNER, "a", None, ("i0.d0.spawn",), None),
        ("i0.r0", "communicate", "a", PLANNER, "A", ("i0.d0",), None),
        ("i0.summary", "aggregate", PLANNER, "S0", ("i0.r0",), None),
        ("i1.d0.spawn", "spawn", "a", "b", None, ("i0.summary",), "first-assignment"),
        ("i1.d0", "delegate", "a", "b", "go on", ("i0.summary", "i1.d0.spawn"), "chain-hands-on"),
        ("i1.r0", "communicate", "b", PLANNER, '{"done":1}', ("i1.d0",), None),
        ("i1.summary", "aggregate", PLANNER, "S1", ("i1.r0",), None),
        ("stop", "stop", None, None, ("i1.summary",), "last-iteration"),  # the limit of a chain counts rounds, not links
    ]
    assert trace.extra["iterations"] == [{"chain_length": 1}, {"chain_length": 2}]


def test_early_results_stand_under_the_agents_name_and_a_stars_planner_assigns_in_its_own_words(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, EARLY)
    assert told(trace) == [
        ("i0.d0.spawn", "spawn", PLANNER, "a", None, (), None),
        ("i0.d0", "delegate", PLANNER, "a", "you first", ("i0.d0.spawn",), None),
        ("i0.r0", "communicate", "a", PLANNER, "A", ("i0.d0",), None),
        ("i1.d0", "delegate", PLANNER, "a", "again", ("i0.r0",), None),
        ("i1.d1.spawn", "spawn", PLANNER, "b", None, ("i0.r0",), "first-assignment"),
        ("i1.d1", "delegate", PLANNER, "b", "you", ("i0.r0", "i1.d1.spawn"), None),
        ("i1.r0", "communicate", "a", PLANNER, "A2", ("i1.d0",), None),
        ("i1.r1", "communicate", "b", PLANNER, "B", ("i1.d1",), None),
        ("i1.summary", "aggregate", PLANNER, "S", ("i1.r0", "i1.r1"), None),
        ("stop", "stop", None, None, ("i1.summary",), "last-iteration"),
    ]
    assert trace.claims == ()
    assert (trace.groups.condition, trace.extra["topology_from"]) == ("topology=star", "coordination_mode")


def test_a_run_that_used_up_its_iterations_was_stopped_by_nobody(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, EARLY, "iteration_ablation/out_2.json")
    stop = trace.events[-1]
    assert (stop.agent_id, stop.condition, stop.basis, stop.rule) == (None, "iteration limit 2", "derived", "iteration-limit")


def test_an_agent_that_comes_up_by_planning_for_itself_was_spawned_by_nobody_known(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, {**GRAPH, "iterations": [GRAPH["iterations"][0], {"task_assignments": {"c": "my plan"}}]})
    assert told(trace)[-3:] == [
        ("i1.d0.spawn", "spawn", None, "c", None, ("i0.summary",), "first-assignment"),
        ("i1.d0", "delegate", "c", "c", "my plan", ("i0.summary", "i1.d0.spawn"), "graph-agent-plans-itself"),
        ("stop", "stop", None, None, ("i1.d0",), "last-iteration"),
    ]


def test_without_a_summary_the_next_round_acts_on_the_last_result(tmp_path: Path) -> None:
    first = {"task_assignments": {"a": "x", "b": "y"}, "task_results": {"a": "A", "b": "B"}}
    trace, _ = one(tmp_path, {**EARLY, "iterations": [first, {"task_assignments": {"a": "z"}}]})
    assert [e.parents for e in trace.events if e.turn == 2] == [("i0.r1",), ("i1.d0",)]


def test_a_root_that_answers_twice_has_taken_up_the_others_answers_once(tmp_path: Path) -> None:
    results = [{"agent_id": agent, "result": f"{agent}{n}"} for n, agent in enumerate("rcr")]
    trace, _ = one(tmp_path, {**TREE, "iterations": [{**TREE["iterations"][0], "task_results": results, "communications": None}]})
    answers = [(e.content, e.parents) for e in trace.events if e.message_type == "result"]
    assert answers == [("c1", ("i0.d1",)), ("r0", ("i0.d0", "i0.r0")), ("r2", ("i0.d0", "i0.r1"))]


def test_text_of_a_dialogue_that_names_nobody_stays_as_an_opaque_event(tmp_path: Path) -> None:
    rounds = [{**EARLY["iterations"][0], "communications": ["just\ntalk", {"x": 1}, "", f"In Session {UUIDS[0]}\n\n"]}]
    trace, _ = one(tmp_path, {**EARLY, "iterations": rounds})
    opaque = [e for e in trace.events if e.kind is None]
    assert [(e.event_id, e.content, e.raw_type) for e in opaque] == [
        ("i0.c0.preamble", "just\ntalk", "session"),
        ("i0.c1.preamble", '{"x":1}', "session"),
    ]
    assert_sound(trace)


# --- scores and outcomes ---


@pytest.mark.parametrize(
    ("evaluation", "outcome", "domain"),
    [
        (2.5, Outcome(score=2.5, score_scale=(0.0, 5.0), source="task_evaluation"), "minecraft"),
        (-1, Outcome(), None),
        ({"innovation": 5, "safety": -1, "feasibility": 4}, Outcome(), "research"),  # a mean of two is not that of three
        ({"buyer": {"progress": -1}}, Outcome(), None),
        ("nothing", Outcome(), None),
    ],
)
def test_outcomes(tmp_path: Path, evaluation: Any, outcome: Outcome, domain: str | None) -> None:
    trace, problems = one(tmp_path, {**EARLY, "task_evaluation": evaluation})
    assert (trace.outcome, trace.task.domain) == (outcome, domain)
    assert [p.n for p in problems] == [1] * ("-1" in str(evaluation))


def test_scores_of_an_unknown_kind_are_kept_without_their_sentinels(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, {**EARLY, "task_evaluation": {"buyer": {"progress": -1, "tact": 4}}})
    assert trace.extra["task_evaluation"] == {"buyer": {"progress": None, "tact": 4}}


@pytest.mark.parametrize(
    ("predicted", "passed", "score"),
    [
        ("A_B and VACUUM were weighed.\nThe most likely causes are:\n1. A_B\n2. VACUUM", True, 1.0),
        ("A_B and VACUUM were weighed.\nThe MOST LIKELY causes are C_D and VACUUM.", False, 0.5),
        ("The most likely cause may be A_B, VACUUM.\nThe final answer is A_BC.", False, 0.0),
        ("It is A_B, with `VACUUM`", True, 1.0),
        ("", False, 0.0),
    ],
)
def test_a_diagnosis_is_right_if_its_final_decision_names_all_causes(
    tmp_path: Path, predicted: str, passed: bool, score: float
) -> None:
    trace, _ = one(tmp_path, {**EARLY, "task_evaluation": {"root_cause": ["A_B", "VACUUM"], "predicted": predicted}})
    assert (trace.outcome.passed, trace.outcome.score, trace.outcome.score_scale) == (passed, score, (0.0, 1.0))
    assert (trace.outcome.answer, trace.task.reference, trace.task.domain) == (predicted, "A_B, VACUUM", "database")
    assert str(trace.outcome.source).startswith("derived, rule root-causes-in-decision")


def test_without_a_known_cause_a_diagnosis_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, {**EARLY, "task_evaluation": {"root_cause": [], "predicted": "x"}})
    assert trace.outcome == Outcome(answer="x")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([-1, 1, 3, 5, -1.0, None]), max_size=12))
def test_minus_one_never_enters_a_mean(tmp_path_factory: pytest.TempPathFactory, scores: list[float | None]) -> None:
    trace, problems = one(tmp_path_factory.mktemp("x"), {**EARLY, "planning_scores": scores, "communication_scores": scores})
    stated = [(n + 1, score) for n, score in enumerate(scores) if score is not None and score != -1]
    for name in ("planning", "communication"):
        assert [(label.step, label.value) for label in trace.labels if label.name == name] == stated
    n_sentinels = 2 * sum(score == -1 for score in scores)
    assert [p.n for p in problems] == [n_sentinels] * (n_sentinels > 0)


# --- files, names, identity ---


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("minecraft/discussion_output_gpt-4o-mini_0.jsonl", {"domain": "minecraft", "model": "gpt-4o-mini"}),
        ("result/result_gpt-3.5-turbo/EDUCATION_VACUUM_RESULT.json", {"model": "gpt-3.5-turbo"}),
        ("0208/development_output_llama_3.1_8b.jsonl", {"model": "llama-3.1-8b"}),
        ("others/development_3.1-70B.jsonl", {"model": "3.1-70b"}),
        ("result/reflexion_config_output.jsonl", {"method": "reflexion"}),
        ("paragraph/restart_coting.jsonl", {}),
        ("", {}),
    ],
)
def test_names_of_files_say_what_they_say_and_no_more(tmp_path: Path, file: str, said: dict[str, Any]) -> None:
    (item,) = items(written(tmp_path, json.dumps(EARLY)), file or "x")
    extra = assembled(item).trace.extra
    assert extra.get("from_file_name", {}) == said
    assert extra["topology_from"] == "coordination_mode"


@pytest.mark.parametrize("shape", ["lines", "list", "pretty"])
def test_several_dialects_stand_in_one_file_of_any_shape(tmp_path: Path, shape: str) -> None:
    records = list(DIALECTS.values())
    text = {
        "lines": "\n".join(map(json.dumps, records)),
        "list": json.dumps(records),
        "pretty": json.dumps(records, indent=1),
    }[shape]
    traces = [assembled(item).trace for item in items(written(tmp_path, text))]
    assert [t.extra["dialect"] for t in traces] == list(DIALECTS)
    for trace in traces:
        assert_sound(trace)


def test_the_same_record_again_in_a_file_is_one_trace_and_a_problem(tmp_path: Path) -> None:
    reordered = dict(reversed(GRAPH.items()))
    first, again = items(written(tmp_path, json.dumps(GRAPH) + "\n" + json.dumps(reordered)))
    assert isinstance(first, Fragment)
    assert str(again) == "records.jsonl:line 2: the same record again; counted once - nothing to do"


def test_another_run_of_a_task_in_a_file_is_its_next_trial(tmp_path: Path) -> None:
    records = [GRAPH, {**GRAPH, "token_usage": 9}, EARLY, {**GRAPH, "token_usage": 8}]
    traces = [assembled(item).trace for item in items(written(tmp_path, json.dumps(records)))]
    assert [t.groups.trial for t in traces] == ["1", "2", "1", "3"]
    assert [t.source.record for t in traces] == ["record 0", "record 1, trial 2", "record 2", "record 3, trial 3"]
    assert len({t.groups.task for t in traces}) == 2


def test_a_copy_under_another_name_adds_nothing_and_does_not_fork(tmp_path: Path) -> None:
    path = written(tmp_path, "\n".join(map(json.dumps, DIALECTS.values())))
    names = ("star_gpt-4o.jsonl", "b/tree_llama3.jsonl", "copy.jsonl")
    copies = [[item for item in items(path, name) if isinstance(item, Fragment)] for name in names]
    # Equal digests under one part of one id are one fragment to an import.
    first, *others = [[(f.trace_id, f.part, f.digest, f.data) for f in found] for found in copies]
    assert len(first) == len({trace_id for trace_id, *_ in first}) == len(DIALECTS)
    assert others == [first, first]


def test_the_order_of_fragments_does_not_matter(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GRAPH))
    copies = [item for name in ("b/chain_1.json", "a/tree_1.json", "a/x.json") for item in items(path, name)]
    fragments = [item for item in copies if isinstance(item, Fragment)]
    orders = (fragments, fragments[::-1], fragments[1:] + fragments[:1])
    first, *others = [marble.assemble(fragments[0].trace_id, order) for order in orders]
    assert others == [first, first]
    assert first.trace.source.file == "a/tree_1.json"


# --- broken records ---


def broken(**fields: Any) -> dict[str, Any]:
    return {**EARLY, "iterations": [{**EARLY["iterations"][0], **fields}]}


@pytest.mark.parametrize(
    ("record", "got"),
    [
        ([1], "got list, expected records with `task` as text, `coordination_mode` and a list `iterations`"),
        ({"task": "x", "iterations": []}, "got keys iterations, task, expected records with `task` as text"),
        ({**EARLY, "task": 3}, "got keys coordination_mode, iterations, task, expected"),
        ({**EARLY, "iterations": ["x"]}, "got Expected `object`, got `str` - at `$.iterations[0]`"),
        (broken(task_assignments="a"), "got Expected `object | array | null`, got `str` - at `$.iterations[0].task_assignments`"),
        (
            broken(task_assignments={"": "x"}),
            "got Expected `str` of length >= 1 - at `key` in `$.iterations[0].task_assignments`",
        ),
        (broken(task_results=[{"agent_id": 3, "result": "x"}]), "got `task_results[0].agent_id` is no name"),
        (broken(task_results=[{"x" * 513: 1}]), "got Expected `str` of length <= 512"),
        (broken(continue_simulation="no"), "got Expected `bool | null`, got `str` - at `$.iterations[0].continue_simulation`"),
        (broken(communications=3), "got Expected `str | array | null`, got `int`"),
        ({**EARLY, "planning_scores": ["x"]}, "got Expected `float | null`, got `str` - at `$.planning_scores[0]`"),
        ({**EARLY, "planning_scores": 5}, "got Expected `array`, got `int` - at `$.planning_scores`"),
    ],
)
def test_a_record_of_another_shape_is_a_problem_and_the_next_one_is_read(tmp_path: Path, record: Any, got: str) -> None:
    first, problem, last = items(written(tmp_path, "\n".join(map(json.dumps, [GRAPH, record, TREE]))))
    assert isinstance(problem, Problem)
    start = "records.jsonl:line 2: the record does not have the shape its format promises (got "
    assert str(problem).startswith(start + got.removeprefix("got "))
    assert [assembled(item).trace.extra["dialect"] for item in (first, last)] == ["graph", "tree"]


def test_a_record_nested_too_deeply_is_a_problem(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    (problem,) = items(written(tmp_path, json.dumps({**EARLY, "more": deep})))
    assert isinstance(problem, Problem)
    assert (problem.code, problem.got) == ("wrong-shape", "nested deeper than 100 levels")


@pytest.mark.parametrize("field", ["agent_profiles", "relationship"])
@pytest.mark.parametrize(
    "value", ["free text", {"a": 1}, "agent_id: a, profile: x\nagent_id: a, profile: y", "a - b: x\na - b: y"]
)
def test_profiles_and_relationships_of_another_layout_are_kept_as_they_are(tmp_path: Path, field: str, value: Any) -> None:
    trace, _ = one(tmp_path, {**EARLY, field: value})
    assert trace.extra.get(field) == value


names = st.sampled_from(["a", "b", "root_agent", "agent_id", "result", PLANNER, "a.spawn", "x" * 512, "\u202e"])
sessions = f"In Session {UUIDS[0]} \nFrom a to a: \nFrom b to a: y"
words = st.sampled_from(["", "t", "talk", "From a to b: x", "From a to b:", sessions])
values: st.SearchStrategy[Any] = st.one_of(words, st.none(), st.integers(-1, 2**70), st.lists(st.integers(), max_size=2))
texts = st.dictionaries(names, values, max_size=3)


def rounds() -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        "task_assignments": st.none() | texts | st.lists(texts, max_size=2),
        "task_results": st.none() | texts | st.lists(texts | st.just({"agent_id": "a", "result": "t"}), max_size=3),
        "communications": st.none() | st.lists(values, max_size=3) | values,
        "summary": values,
        "continue_simulation": st.booleans(),
        "root_agent": st.none() | names,
        "current_agent": st.none() | names,
        "result": values,
    }
    return st.fixed_dictionaries({}, optional=fields)


@settings(max_examples=150, deadline=None)
@given(st.lists(rounds(), max_size=3), values)
def test_any_iterations_give_a_sound_trace_or_a_problem(
    tmp_path_factory: pytest.TempPathFactory, iterations: list[dict[str, Any]], evaluation: Any
) -> None:
    record = {"task": "talk", "coordination_mode": None, "iterations": iterations, "task_evaluation": evaluation}
    (item,) = items(written(tmp_path_factory.mktemp("x"), json.dumps(record)))
    if isinstance(item, Problem):
        assert item.code == "wrong-shape"
        return
    assert_sound(assembled(item).trace)


def lines(n: int) -> Iterator[str]:
    yield f"In Session {UUIDS[0]}"
    for k in range(n):
        yield f"From {'a to ' * 12}: {k}" if k % 2 else "From a to b: " + "x" * 40


def test_long_dialogues_and_many_agents_cost_linear_time(tmp_path: Path) -> None:
    many = {f"agent{k}": "talk" for k in range(10_000)}
    record = broken(task_assignments=many, task_results=many, communications="\n".join(lines(50_000)))
    began = time.process_time()
    trace, _ = one(tmp_path, record)
    assert time.process_time() - began < 20
    assert len(trace.events) == 10_000 * 3 + 25_000 + 1
