"""Simulated traces: the same everywhere, sound as records, and with the planted truth in them."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import CounterpointError, UnknownNameError
from analysis.model import Event, Trace, decode, encode
from benchmarks.simulation import TEAMS, SimulationPolicy, simulate

ROOT = Path(__file__).resolve().parents[1]
EVERY_TEAM = {"n_good": 3, "n_bad": 11}
GOOD = [name for name, team in TEAMS.items() if team.is_good]
BAD = [name for name, team in TEAMS.items() if not team.is_good]
QUOTE = re.compile(r" ?p\(\w+\) = [\d.]+\.")


def _traces(seed: int, **policy: Any) -> list[Trace]:
    return list(simulate(SimulationPolicy(**policy), seed=seed))


@pytest.fixture(scope="module")
def many() -> list[Trace]:
    """Every team on six tasks, two trials each, for ten seeds: 1,800 traces."""
    return [trace for seed in range(10) for trace in _traces(seed, n_tasks=6, n_trials=2, **EVERY_TEAM)]


def _of(traces: Iterable[Trace], team: str) -> list[Trace]:
    return [trace for trace in traces if trace.groups.condition == team]


# What a seed gives


@given(st.integers(0, 2**64))
@settings(max_examples=10, deadline=None)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(seed: int) -> None:
    first, again, other = ([encode(t) for t in _traces(s, n_tasks=3, n_trials=1)] for s in (seed, seed, seed + 1))
    assert first == again
    assert not set(first) & set(other)


@given(st.integers(0, 2**64))
@settings(max_examples=10, deadline=None)
def test_a_larger_policy_only_adds_traces(seed: int) -> None:
    few = {t.trace_id: t for t in _traces(seed, n_tasks=2, n_trials=1)}
    for more in ({"n_tasks": 5}, {"n_tasks": 2, "n_trials": 3}, {"n_tasks": 2, "n_trials": 1, **EVERY_TEAM}):
        larger = {t.trace_id: t for t in _traces(seed, **more)}
        assert {trace_id: larger[trace_id] for trace_id in few} == few


def test_a_team_does_not_depend_on_which_others_take_part() -> None:
    alone = list(simulate(SimulationPolicy(teams=("parallel",), n_tasks=4), seed=3))
    among = _of(_traces(3, n_tasks=4, **EVERY_TEAM), "parallel")
    assert alone == among
    assert len(alone) == 12


def test_trials_of_one_team_on_one_task_vary(many: list[Trace]) -> None:
    ends: dict[tuple[object, ...], set[bool | None]] = {}
    for trace in many:
        if trace.groups.condition == "parallel":
            ends.setdefault((trace.extra["seed"], trace.groups.task), set()).add(trace.outcome.passed)
    assert {True, False} in ends.values()
    assert {True} in ends.values()


# Sound as records


def test_every_trace_is_read_back_as_it_was(many: list[Trace]) -> None:
    assert all(decode(encode(trace)) == trace for trace in many)


def test_trace_ids_are_unique_and_say_what_they_are() -> None:
    ids = [trace.trace_id for trace in _traces(5, n_tasks=20, **EVERY_TEAM)]
    assert len(set(ids)) == len(ids) == 20 * 15 * 3
    assert all(re.fullmatch(r"counterpoint:sample-(software|research|support)-\d+-[a-z-]+-[123]", i) for i in ids)


def test_everything_is_marked_as_made_up(many: list[Trace]) -> None:
    for trace in many:
        assert (trace.world, trace.source.format, trace.outcome.source) == ("simulated", "counterpoint", "simulation")
        for records in (trace.events, trace.claims, trace.relations, trace.labels):
            assert {record.basis for record in records} <= {"synthetic"}


def test_parents_exist_come_earlier_and_end_before_the_child_starts(many: list[Trace]) -> None:
    for trace in many:
        events = {event.event_id: event for event in trace.events}
        assert [event.order for event in trace.events] == list(range(len(events)))
        assert sum(not event.parents for event in trace.events) == 1
        for event in trace.events:
            for parent in (events[parent] for parent in event.parents):
                assert parent.order < event.order
                assert _span(parent)[1] < _span(event)[0]


def test_an_agent_does_one_thing_at_a_time(many: list[Trace]) -> None:
    for trace in many:
        for agent in trace.agents:
            spans = sorted(_span(event) for event in trace.events if event.agent_id == agent.agent_id)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_times_are_whole_milliseconds_of_2026(many: list[Trace]) -> None:
    for trace in many:
        assert trace.clock == "unix"
        for t_s in (t for event in trace.events for t in _span(event)):
            assert round(t_s * 1000) / 1000 == t_s
            assert 1_767_225_600 < t_s < 1_798_761_600


def test_whoever_is_named_takes_part_and_was_spawned_by_its_parent(many: list[Trace]) -> None:
    for trace in many:
        agents = {agent.agent_id: agent for agent in trace.agents}
        spawned = {(target, event.agent_id) for event in trace.events if event.kind == "spawn" for target in event.targets}
        assert spawned == {(agent.agent_id, agent.parent_id) for agent in trace.agents if agent.parent_id}
        named = {event.agent_id for event in trace.events} | {target for event in trace.events for target in event.targets}
        assert named == set(agents)
        assert {subtask.agent_id for subtask in trace.subtasks} <= set(agents)
        assert {claim.component for claim in trace.claims} <= {agent.component for agent in trace.agents}


def test_runs_end_with_one_stop(many: list[Trace]) -> None:
    for trace in many:
        assert [event.kind for event in trace.events].count("stop") == 1
        assert trace.events[-1].kind == "stop"
        assert trace.events[-1].condition
        assert trace.events[-1].final_state


def test_the_outcome_counts_the_tests_of_the_candidates(many: list[Trace]) -> None:
    for trace in many:
        outcome, n_tests = trace.outcome, 2 * len(trace.task.requirements) + 1
        assert (outcome.n_tests, outcome.score_scale) == (n_tests, (0.0, 1.0))
        assert outcome.passed == (outcome.n_tests_passed == n_tests)
        assert outcome.score == round((outcome.n_tests_passed or 0) / n_tests, 4)
        whole = [c for c in trace.candidates if c.candidate_id == "whole"]
        assert all((c.n_passed, c.n_tests) == (outcome.n_tests_passed, n_tests) for c in whole)
        assert bool(whole) == (trace.groups.condition != "stopped-early")


def test_a_tester_reports_what_the_tests_show(many: list[Trace]) -> None:
    for trace in (trace for team in GOOD for trace in _of(many, team)):
        last = [e for e in trace.events if e.action == "tool_result" and e.error is None][-1]
        assert [int(n) for n in re.findall(r"\d+", last.content or "")] in (
            [trace.outcome.n_tests_passed, trace.outcome.n_tests],
            [trace.outcome.n_tests, trace.outcome.n_tests_passed],
        )
        assert (trace.events[-1].final_state == "solved") == trace.outcome.passed


def test_claims_stand_where_their_span_says(many: list[Trace]) -> None:
    for trace in many:
        content = {event.event_id: event.content or "" for event in trace.events}
        turn = {event.event_id: event.turn for event in trace.events}
        for claim in trace.claims:
            assert claim.span is not None
            assert claim.event_id is not None
            assert float(content[claim.event_id][slice(*claim.span)]) == claim.p
            assert claim.turn == turn[claim.event_id]
            assert 0 < claim.p < 1


def test_relations_tie_the_propositions_that_are_claimed(many: list[Trace]) -> None:
    for trace in many:
        names = {node.id for r in trace.relations for node in ast.walk(ast.parse(r.formula)) if isinstance(node, ast.Name)}
        assert {claim.proposition for claim in trace.claims} <= names
        assert bool(trace.claims) == bool(trace.relations)


def test_some_components_state_no_probabilities(many: list[Trace]) -> None:
    silent = [not trace.claims for trace in many if trace.groups.condition != "incoherent"]
    assert 0.2 < sum(silent) / len(silent) < 0.3


def test_errors_are_followed_by_another_call_to_the_same_tool(many: list[Trace]) -> None:
    n_errors = 0
    for trace in (t for t in many if t.groups.condition != "retry-storm"):
        for event in (e for e in trace.events if e.error is not None):
            after = [e for e in trace.events if event.event_id in e.parents]
            assert [(e.action, e.name, e.agent_id) for e in after] == [("tool_call", event.name, event.agent_id)]
            n_errors += 1
    assert n_errors > 100


def test_texts_are_plain_and_chinese_in_one_domain_of_three(many: list[Trace]) -> None:
    for trace in many:
        texts = [trace.task.text or "", *[event.content or "" for event in trace.events]]
        assert all(text.isprintable() and not re.search(r"[<>]\w|\{|\}", text) for text in texts)
        assert any(re.search(r"[\u4e00-\u9fff]", text) for text in texts) == (trace.task.domain == "support")


# The planted truth


def test_the_label_says_what_was_planted(many: list[Trace]) -> None:
    for trace in many:
        (label,) = trace.labels
        assert (label.annotator, label.name, label.category) == ("simulation", "planted", trace.groups.condition)
        acting = {event.event_id: event.agent_id for event in trace.events}
        if label.category in BAD:
            assert label.is_root_cause
            assert acting[label.event_id or ""] == label.agent_id
        else:
            assert (label.event_id, label.is_root_cause) == (None, None)


def test_parallel_workers_overlap_in_time_and_collapsed_ones_do_not(many: list[Trace]) -> None:
    assert all(_overlaps(trace) for team in ("parallel", "hierarchical") for trace in _of(many, team))
    assert not any(_overlaps(trace) for team in ("serial-collapse", "pipeline", "single") for trace in _of(many, team))


def _collapses(trace: Trace) -> bool:
    return len(_workers(trace)) > 1 and _split(trace) == "by part" and not _overlaps(trace) and len(_busy(trace)) > 1


def _leaks(trace: Trace) -> bool:
    content = {event.event_id: event.content for event in trace.events}
    merges = [event for event in trace.events if event.kind == "aggregate" and len(event.merge_points) > 1]
    return any(event.content in [content[point] for point in event.merge_points] for event in merges)


def _contradicts(trace: Trace) -> bool:
    """Sure of two things and unsure of both together: p(a & b) < p(a) + p(b) - 1, by more than a third."""
    return _excess(trace) > 1 / 3


def _echoes(trace: Trace) -> bool:
    verdicts = [event for event in trace.events if event.message_type == "verdict"]
    reports = {QUOTE.sub("", event.content or "") for event in trace.events if event.action == "return"}
    return any(QUOTE.sub("", event.content or "") in reports for event in verdicts)


def _stops_early(trace: Trace) -> bool:
    return any(not any(c.subtask_id == subtask.subtask_id for c in trace.candidates) for subtask in trace.subtasks)


def _claims_success_wrongly(trace: Trace) -> bool:
    return trace.events[-1].final_state == "solved" and not trace.outcome.passed


def _repeats_itself(trace: Trace) -> bool:
    return any(set(a.covers) & set(b.covers) for a, b in combinations(trace.subtasks, 2))


def _chatters(trace: Trace) -> bool:
    return sum(event.message_type == "status" for event in trace.events) > 2 * len(_workers(trace))


def _has_dominant(trace: Trace) -> bool:
    reports = [event.agent_id for event in trace.events if event.action == "return"]
    return len(_workers(trace)) > 1 and len(reports) > 1 and len(set(reports)) == 1


def _storms(trace: Trace) -> bool:
    """At least five errors in a row, and a longer wait after each than after the one before."""
    events = {event.event_id: event for event in trace.events}
    retries = [(events[e.parents[0]], e) for e in trace.events if e.action == "tool_call" and events[e.parents[0]].error]
    waits = [_span(call)[0] - _span(error)[1] for error, call in retries if error.error != "timeout after 30 s"]
    return len(waits) >= 4 and all(later > 1.5 * earlier for earlier, later in pairwise(waits))


def _circles(trace: Trace) -> bool:
    edges = [(event.agent_id, target) for event in trace.events if event.kind == "delegate" for target in event.targets]
    return not nx.is_directed_acyclic_graph(nx.DiGraph(edges))


PLANTED: dict[str, Callable[[Trace], bool]] = {
    "serial-collapse": _collapses,
    "aggregation-leakage": _leaks,
    "incoherent": _contradicts,
    "verifier-echo": _echoes,
    "stopped-early": _stops_early,
    "false-success": _claims_success_wrongly,
    "pseudo-parallelism": _repeats_itself,
    "over-communication": _chatters,
    "dominant-agent": _has_dominant,
    "retry-storm": _storms,
    "cyclic-delegation": _circles,
}


def test_every_failure_has_a_witness() -> None:
    assert list(PLANTED) == BAD


@pytest.mark.parametrize("failure", BAD)
def test_a_planted_failure_is_in_every_run_of_its_team_and_in_no_other(failure: str, many: list[Trace]) -> None:
    shown = {team: [PLANTED[failure](trace) for trace in _of(many, team)] for team in TEAMS}
    assert {team for team, seen in shown.items() if any(seen)} == {failure}
    assert all(shown[failure])


def test_a_part_that_is_missing_when_a_run_stops_early_was_needed(many: list[Trace]) -> None:
    for trace in _of(many, "stopped-early"):
        passing = {c.subtask_id for c in trace.candidates if c.n_passed == c.n_tests}
        assert {part for part in trace.task.requirements if part not in passing}
        assert trace.outcome.passed is False


def test_each_component_of_an_incoherent_team_is_consistent_alone(many: list[Trace]) -> None:
    """No component but the planner states propositions that are tied, and the planner's agree with each other."""
    for trace in _of(many, "incoherent"):
        owner = {claim.proposition: claim.component for claim in trace.claims}
        solved, product, verdict = _tied(trace)
        assert len(owner) == len(trace.claims)
        assert len({owner[solved], owner[product], owner[verdict]}) == 3
        assert owner[product] not in {owner[f"{part}_ok"] for part in trace.task.requirements}
        planner = {claim.proposition: claim.p for claim in trace.claims if claim.component == "planner"}
        assert planner.pop("solved") <= planner.pop("plan_ok")
        assert sum(planner.values()) <= 1  # two rivals that exclude each other


def test_rival_answers_add_up_to_one_unless_the_team_is_incoherent(many: list[Trace]) -> None:
    for trace in (t for t in many if t.task.domain == "research" and t.claims):
        (formula,) = [r.formula for r in trace.relations if r.formula.startswith("exactly_one")]
        rivals = formula.removeprefix("exactly_one(").removesuffix(")").split(", ")
        total = sum(claim.p for claim in trace.claims if claim.proposition in rivals)
        if trace.groups.condition == "incoherent":
            assert 1.35 <= round(total, 6) <= 1.5
        else:
            assert round(total, 6) == 1


def test_well_led_teams_contradict_themselves_by_a_slip_at_most(many: list[Trace]) -> None:
    assert max(_excess(trace) for team in GOOD for trace in _of(many, team)) == pytest.approx(0.03)


# Quality


def test_well_led_teams_pass_more_often_under_every_seed() -> None:
    for seed in range(20):
        traces = _traces(seed, n_tasks=6, n_trials=2, **EVERY_TEAM)
        good, bad = (_pass_rate(trace for team in teams for trace in _of(traces, team)) for teams in (GOOD, BAD))
        assert good > bad + 0.2


@pytest.fixture(scope="module")
def well_led() -> list[Trace]:
    """The four well-led teams, two trials each on 300 tasks."""
    return _traces(1, n_tasks=300, n_trials=2, n_good=3, n_bad=0)


def test_hard_tasks_are_passed_less_often(well_led: list[Trace]) -> None:
    easy, hard = ([t for t in well_led if (t.task.extra["difficulty"] < 0.4) is is_easy] for is_easy in (True, False))
    assert min(len(easy), len(hard)) > 800
    assert _pass_rate(easy) > _pass_rate(hard) + 0.1


def test_difficulty_grows_with_depth_branching_and_cross_dependencies(well_led: list[Trace]) -> None:
    for name in ("depth", "branching", "cross_dependencies"):
        values = sorted({trace.task.extra[name] for trace in well_led})
        means = [_mean(t.task.extra["difficulty"] for t in well_led if t.task.extra[name] == v) for v in (values[0], values[-1])]
        assert means[0] < means[1]


def test_parts_that_build_on_others_hide_dependencies_from_teams_that_do_not_talk(many: list[Trace]) -> None:
    hidden = [s for t in many for s in t.subtasks if s.passes_alone is False and s.passes_upstream]
    assert hidden
    assert all(subtask.needs for subtask in hidden)


def test_every_domain_meets_every_well_led_team() -> None:
    met = {(t.task.domain, t.groups.condition) for t in _traces(0, n_tasks=9)}
    assert {(domain, team) for domain in ("software", "research", "support") for team in GOOD} <= met


# Wrong use


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"n_tasks": 0}, CounterpointError, r"simulation policy, n_tasks: out of range \(got 0, expected 1 to 10000000\)"),
        ({"n_trials": -1}, CounterpointError, r"simulation policy, n_trials: out of range \(got -1, expected 1 to 1000\)"),
        ({"teams": ("paralel",)}, UnknownNameError, r"teams: no such team \(got paralel, expected single, parallel, "),
        ({"teams": ("single", "single")}, CounterpointError, r"teams: a team is named twice \(got single, single\)"),
    ],
)
def test_a_wrong_policy_is_refused(wrong: dict[str, object], error: type[CounterpointError], text: str) -> None:
    with pytest.raises(error, match=text):
        SimulationPolicy(**wrong)  # type: ignore[arg-type]


# The corpus


def test_the_corpus_is_written_by_the_same_generator_and_summed_up(tmp_path: Path) -> None:
    out = tmp_path / "corpus.jsonl"
    script = [sys.executable, "benchmarks/corpus.py", "--traces", "120", "--seed", "3", "--out", str(out), "--json"]
    summary = json.loads(subprocess.run(script, cwd=ROOT, capture_output=True, check=True, text=True).stdout)
    lines = out.read_bytes().splitlines()
    same = list(simulate(SimulationPolicy(name="corpus", n_tasks=10, n_events=50), seed=3))
    assert lines == [encode(trace) for trace in same]
    n_events = sum(len(trace.events) for trace in same)
    assert (summary["traces"], summary["events"], summary["bytes"]) == (120, n_events, out.stat().st_size)


@pytest.mark.parametrize(("n_events", "n_tasks"), [(20, 33), (50, 33), (200, 11)])
def test_traces_have_about_as_many_events_as_asked_for(n_events: int, n_tasks: int) -> None:
    traces = _traces(1, n_tasks=n_tasks, n_events=n_events)
    assert 0.8 < sum(len(trace.events) for trace in traces) / len(traces) / n_events < 1.2


def _span(event: Event) -> tuple[float, float]:
    assert event.t_start_s is not None
    assert event.t_end_s is not None
    return event.t_start_s, event.t_end_s


def _workers(trace: Trace) -> list[str]:
    return [agent.agent_id for agent in trace.agents if agent.component in ("coder", "researcher", "writer")]


def _busy(trace: Trace) -> set[str | None]:
    return {event.agent_id for event in trace.events if event.action == "return"}


def _split(trace: Trace) -> str | None:
    return next((event.task_split for event in trace.events if event.kind == "spawn"), None)


def _overlaps(trace: Trace) -> bool:
    own = [event for event in trace.events if event.agent_id in _workers(trace) and event.kind == "act"]
    return any(
        a.agent_id != b.agent_id and _span(a)[0] < _span(b)[1] and _span(b)[0] < _span(a)[1] for a, b in combinations(own, 2)
    )


def _excess(trace: Trace) -> float:
    """By how much p(solved) leaves the range that p(product) and p(verdict) allow for both together."""
    p = {claim.proposition: claim.p for claim in trace.claims}
    if not p or not p.keys() >= set(_tied(trace)):
        return 0.0
    solved, product, verdict = (p[name] for name in _tied(trace))
    return max(0.0, product + verdict - 1 - solved, solved - min(product, verdict))


def _tied(trace: Trace) -> list[str]:
    """The propositions of iff(solved, product & verdict); none where nothing is claimed."""
    return [name for r in trace.relations if r.relation_id == "whole" for name in re.findall(r"\w+", r.formula)[1:]]


def _pass_rate(traces: Iterable[Trace]) -> float:
    return _mean(bool(trace.outcome.passed) for trace in traces)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
