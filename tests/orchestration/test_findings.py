"""Findings: each predicate by a run that just meets it and one that just does not, and the planted styles of the simulation."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

from analysis.model import Candidate, Event, Outcome, Subtask, Task, Trace
from analysis.orchestration.evidence import has_run_of
from analysis.orchestration.findings import FINDINGS, Finding, findings, findings_df, undecided
from benchmarks.simulation import TEAMS, SimulationPolicy, simulate
from tests.orchestration.runs import event, run, runs
from tests.strategies import traces

FAILED, PASSED = Outcome(passed=False), Outcome(passed=True)


def found(name: str, *events: Event, **fields: Any) -> list[Finding]:
    return [finding for finding in findings(run(*events, **fields)) if finding.name == name]


def why_not(name: str, *events: Event, **fields: Any) -> str | None:
    return undecided(run(*events, **fields)).get(name)


def spawn(name: str, agent: str, *targets: str, **fields: Any) -> Event:
    return event(name, agent, kind="spawn", targets=targets, **fields)


def delegate(name: str, agent: str, *targets: str, **fields: Any) -> Event:
    return event(name, agent, kind="delegate", targets=targets, **fields)


def call(name: str, agent: str = "x", **fields: Any) -> Event:
    return event(name, agent, action="tool_call", name="search", **fields)


def result(name: str, agent: str = "x", **fields: Any) -> Event:
    return event(name, agent, action="tool_result", name="search", **fields)


# Serial collapse


def one_after_the_other(*, overlap: float = 0.0, n: int = 3, after: dict[str, list[str]] | None = None) -> list[Event]:
    rows = [spawn("s", "lead", *[f"w{k}" for k in range(n)], start=0, end=1)]
    for k in range(n):
        causes = ["s", *(after or {}).get(f"e{k}", [])]
        rows.append(event(f"e{k}", f"w{k}", 1 + 4 * k, 5 + 4 * k + (overlap if k == 0 else 0), after=causes))
    return rows


def test_serial_collapse() -> None:
    (finding,) = found("serial collapse", *one_after_the_other(), outcome=PASSED)
    assert finding.event_ids == ("s", "e0", "e1", "e2")
    assert finding.agents == ("lead", "w0", "w1", "w2")
    assert (finding.loss, finding.loss_unit, finding.recovered) == (8, "s of waiting", True)


def test_no_serial_collapse_where_two_overlap_or_only_two_work() -> None:
    assert found("serial collapse", *one_after_the_other(overlap=0.5)) == []
    assert found("serial collapse", *one_after_the_other(n=2)) == []


def test_no_serial_collapse_where_each_needs_the_one_before() -> None:
    assert found("serial collapse", *one_after_the_other(after={"e1": ["e0"], "e2": ["e1"]})) == []
    needs = tuple(Subtask(subtask_id=f"p{k}", agent_id=f"w{k}", needs=(f"p{k - 1}",) if k else ()) for k in range(3))
    assert found("serial collapse", *one_after_the_other(), subtasks=needs) == []
    (finding,) = found("serial collapse", *one_after_the_other(), subtasks=needs[:2])
    assert finding.loss == 4


def test_waiting_for_the_leader_is_no_need() -> None:
    rows = one_after_the_other()
    rows.insert(2, delegate("d", "lead", "w1", start=5, end=5, after=["e0"]))
    rows[3] = event("e1", "w1", 5, 9, after=["d"])
    assert len(found("serial collapse", *rows)) == 1


def test_serial_collapse_without_a_clock_goes_by_causes() -> None:
    rows = [spawn("s", "lead", "a", "b", "c")]
    for k, agent in enumerate("abc"):
        rows += [delegate(f"d{k}", "lead", agent, after=["s" if k == 0 else f"e{k - 1}"]), event(f"e{k}", agent, after=[f"d{k}"])]
    (finding,) = found("serial collapse", *rows)
    assert (finding.loss, finding.loss_unit) == (2, "events of waiting")
    assert why_not("serial collapse", event("a", "x")) == "no spawn event"


# Dominant agent


def handed(to: str, *, n_agents: int = 3, roles: dict[str, str] | None = None) -> list[Finding]:
    names = [f"w{k}" for k in range(n_agents)]
    rows = [spawn("s", "lead", *names), *[delegate(f"d{k}", "lead", f"w{target}") for k, target in enumerate(to)]]
    return found("dominant agent", *rows, roles=roles or dict.fromkeys(names, "worker"))


def test_dominant_agent_among_three_of_a_kind() -> None:
    (finding,) = handed("00001")
    assert finding.event_ids == ("d0", "d1", "d2", "d3")
    assert finding.message == "80% of the delegations went to one of 3 agents that could have had them"
    assert (finding.loss, finding.loss_unit) == (pytest.approx(0.8 - 1 / 3), "share of delegations beyond an even split")


def test_no_dominant_agent_below_80_percent_or_with_two_to_choose_from() -> None:
    assert handed("0001") == []
    assert handed("0000", n_agents=2) == []


def test_between_different_roles_only_many_delegations_count() -> None:
    roles = {"w0": "coder", "w1": "tester", "w2": "critic"}
    assert handed("0" * 9, roles=roles) == []
    assert len(handed("0" * 10, roles=roles)) == 1
    assert why_not("dominant agent", delegate("d", "x", "x")) == "no delegation names another agent"


# Over-communication


def chat(n_idle: int, *, n_worked: int = 0, same: bool = True) -> list[Event]:
    rows = [event("work", "a")]
    for k in range(n_idle + 1):
        rows.append(event(f"m{k}", "a", kind="communicate", targets=("b" if same else f"b{k}",)))
    for k in range(n_worked):
        rows += [event(f"w{k}", "a"), event(f"n{k}", "a", kind="communicate", targets=("b",))]
    return rows


def test_over_communication() -> None:
    (finding,) = found("over-communication", *chat(3))
    assert finding.event_ids == ("m1", "m2", "m3")
    assert finding.message == "3 of 4 messages follow another one to the same agents with no own work in between"
    assert (finding.loss, finding.loss_unit) == (3, "events of work")


def test_no_over_communication_with_work_between_or_to_others() -> None:
    assert found("over-communication", *chat(2)) == []
    assert found("over-communication", *chat(3, n_worked=3)) == []
    assert found("over-communication", *chat(3, same=False)) == []


def test_over_communication_cannot_be_told_where_messages_are_the_only_record() -> None:
    rows = [event(f"m{k}", "a", kind="communicate", targets=("b",)) for k in range(9)]
    assert why_not("over-communication", *rows) == "messages are the only record of what their senders did"
    assert why_not("over-communication", event("a", "x")) is None


# Aggregation leakage


def merge(result_text: str, *texts: str, kind: str | None = None) -> list[Finding]:
    rows = [event(f"e{k}", f"w{k}", content=text) for k, text in enumerate(texts)]
    rows.append(
        event("m", "lead", kind="aggregate", content=result_text, merge_kind=kind, merge_points=tuple(r.event_id for r in rows))
    )
    return found("aggregation leakage", *rows)


ONE, OTHER = "the first part counts all forty-eight months", "the second part lists the fares and their dates"


def test_aggregation_leakage() -> None:
    (finding,) = merge(f"{ONE}.", ONE, OTHER)
    assert finding.event_ids == ("e0", "m")
    assert (finding.loss, finding.loss_unit) == (0.5, "share of the merged results left out")
    assert len(merge(ONE.upper() + "  \n", ONE, OTHER)) == 1


def test_no_leakage_where_both_are_joined_or_one_is_chosen_or_all_agree() -> None:
    assert merge(f"{ONE} {OTHER}", ONE, OTHER) == []
    assert merge(ONE, ONE, OTHER, kind="alternatives") == []
    assert merge(ONE, ONE, ONE) == []
    assert merge("42", "42", "17") == []
    assert merge(ONE, ONE, ONE + "!") == []
    assert merge(ONE + " and more words of the one who merged them", ONE, OTHER) == []


def test_leakage_cannot_be_told_without_two_texts() -> None:
    assert (
        why_not("aggregation leakage", event("m", "x", kind="aggregate", content=ONE))
        == "no merge of two or more different texts"
    )


# Pseudo-parallelism


def on_units(*covers: str, units: str = "12") -> list[Finding]:
    rows = [event(f"e{k}", f"w{k}", 0, 2 + k) for k in range(len(covers))]
    subtasks = tuple(Subtask(subtask_id=str(k), agent_id=f"w{k}", covers=tuple(c)) for k, c in enumerate(covers))
    return found("pseudo-parallelism", *rows, subtasks=subtasks, task=Task(requirements=tuple(units)))


def test_pseudo_parallelism() -> None:
    (finding,) = on_units("1", "1", "1")
    assert (finding.agents, finding.loss, finding.loss_unit) == (("w0", "w1", "w2"), 2 + 3, "s of repeated work")


def test_no_pseudo_parallelism_where_nothing_stays_open() -> None:
    assert on_units("1", "1", "2") == []
    assert on_units("1", "2", units="123") == []


def test_without_subtasks_the_same_words_to_one_role_are_pseudo_parallel() -> None:
    rows = [
        delegate("1", "lead", "a", content="Look it  up"),
        delegate("2", "lead", "b", content="look it up"),
        event("x", "a"),
        event("y", "b"),
    ]
    assert len(found("pseudo-parallelism", *rows, roles={"a": "worker", "b": "worker"})) == 1
    assert found("pseudo-parallelism", *rows, roles={"a": "web", "b": "files"}) == []
    keep_one = event("m", "lead", kind="aggregate", merge_kind="alternatives")
    assert found("pseudo-parallelism", *rows, keep_one, roles={"a": "worker", "b": "worker"}) == []
    assert (
        why_not("pseudo-parallelism", delegate("1", "lead", "a"))
        == "neither subtasks nor the words of delegations say who was to do what"
    )


# Verifier echo


def verdict(text: str, *, checks: bool = False, role: str = "verifier") -> list[Finding]:
    rows = [event("report", "w", content=ONE), *([event("check", "v")] if checks else [])]
    rows.append(event("verdict", "v", kind="communicate", content=text, after=["report"]))
    return found("verifier echo", *rows, roles={"v": role})


def test_verifier_echo() -> None:
    (finding,) = verdict(f"Agreed: {ONE}")
    assert (finding.event_ids, finding.agents) == (("report", "verdict"), ("w", "v"))
    assert len(verdict(f"{ONE} and {'x' * (len(ONE) - 10)}")) == 1


def test_no_echo_with_own_words_own_work_or_another_role() -> None:
    assert verdict(f"{ONE} and {'x' * len(ONE)}") == []
    assert verdict(ONE, checks=True) == []
    assert verdict(ONE, role="writer") == []
    assert why_not("verifier echo", event("a", "x")) == "no agent whose role is to check says anything"


# Stopping


def stopping(*, answered: bool, outcome: Outcome, n_merges: int = 0) -> list[Finding]:
    rows = [delegate("d", "lead", "a", "b"), event("w", "a", after=["d"], targets=("lead",) if answered else ())]
    rows += [event(f"m{k}", "lead", kind="aggregate") for k in range(n_merges)]
    return found("stopped too early", *rows, event("stop", "lead", kind="stop"), outcome=outcome)


def test_stopped_too_early() -> None:
    (finding,) = stopping(answered=False, outcome=FAILED)
    assert finding.event_ids == ("d", "stop")
    assert (finding.message, finding.recovered, finding.loss) == (
        "the run stopped while 1 of 1 delegations were unanswered",
        False,
        1,
    )
    assert stopping(answered=False, outcome=Outcome())[0].recovered is None


def test_not_too_early_when_answered_or_passed_or_gone_on_without() -> None:
    assert stopping(answered=True, outcome=FAILED) == []
    assert stopping(answered=False, outcome=PASSED) == []
    assert len(stopping(answered=False, outcome=FAILED, n_merges=1)) == 1
    assert stopping(answered=False, outcome=FAILED, n_merges=2) == []


def test_a_delegation_of_an_earlier_go_is_no_matter_of_stopping() -> None:
    rows = [
        delegate("1", "lead", "a"),
        event("think", "lead"),
        delegate("2", "lead", "b"),
        event("w", "b", after=["2"], targets=("lead",)),
    ]
    assert found("stopped too early", *rows, event("stop", "lead", kind="stop"), outcome=FAILED) == []


def test_stopping_cannot_be_judged_without_a_stop_or_a_delegation() -> None:
    assert why_not("stopped too early", delegate("d", "lead", "a")) == "no stop event"
    assert why_not("stopped too early", event("s", "lead", kind="stop")) == "no delegation names another agent"


def going_on(*n_passed: int, decide: bool = True) -> list[Finding]:
    rows, wholes = [], []
    for k, passed in enumerate(n_passed):
        if decide and k:
            rows.append(delegate(f"d{k}", "lead", "a", after=[f"m{k - 1}"]))
        rows.append(event(f"m{k}", "lead", after=[f"d{k}" if decide else f"m{k - 1}"] if k else []))
        wholes.append(Candidate(candidate_id=str(k), event_id=f"m{k}", n_passed=passed, n_tests=4))
    rows.append(event("stop", "lead", kind="stop", after=[rows[-1].event_id]))
    return found("stopped too late", *rows, candidates=tuple(wholes))


def test_stopped_too_late() -> None:
    (finding,) = going_on(3, 3)
    assert finding.event_ids == ("m0", "d1", "m1")
    assert finding.message == "the best result (75% of the tests) was there 2 events before the end, and the team went on"
    assert (finding.loss, finding.loss_unit) == (2, "events of work")
    assert len(going_on(3, 1)) == 1


def test_not_too_late_where_it_got_better_or_nothing_was_handed_out() -> None:
    assert going_on(3, 4) == []
    assert going_on(4) == []
    assert going_on(4, 4, decide=False) == []
    assert why_not("stopped too late", event("a", "x")) == "no result for the whole task was tested"


def claiming(state: str | None, outcome: Outcome) -> list[Finding]:
    return found("claimed success on failure", event("stop", "lead", kind="stop", final_state=state), outcome=outcome)


def test_claimed_success_on_failure() -> None:
    (finding,) = claiming("Solved", Outcome(passed=False, n_tests_passed=6, n_tests=9))
    assert (finding.event_ids, finding.recovered) == (("stop",), False)
    assert (finding.loss, finding.loss_unit) == (pytest.approx(1 / 3), "share of tests that fail")
    assert claiming("solved", FAILED)[0].loss is None


def test_no_false_claim_where_it_passed_or_nothing_was_claimed() -> None:
    assert claiming("solved", PASSED) == []
    assert claiming("unchecked", FAILED) == []
    assert why_not("claimed success on failure", event("s", "x", kind="stop", final_state="solved")) == "the outcome is not known"
    assert why_not("claimed success on failure", event("s", "x", kind="stop")) == "no stop event states the final state"


# Delegation


def handing_on(route: str, *, work_after: int | None = None) -> list[Finding]:
    rows: list[Event] = []
    for k, (agent, to) in enumerate(pairwise(route)):
        rows.append(delegate(f"d{k}", agent, to, after=[rows[-1].event_id] if rows else []))
        if k == work_after:
            rows.append(event("work", to, after=[f"d{k}"]))
    return found("cyclic delegation", *rows)


def test_cyclic_delegation() -> None:
    (finding,) = handing_on("abca")
    assert (finding.event_ids, finding.agents, finding.loss) == (("d0", "d1", "d2"), ("a", "b", "c"), 3)
    (back,) = handing_on("xabab")
    assert back.event_ids == ("d1", "d2", "d3")


def test_two_rounds_of_one_circle_are_one_finding() -> None:
    (finding,) = handing_on("abcabca")
    assert len(finding.event_ids) == 6


def test_no_circle_with_work_in_between_or_in_a_straight_line() -> None:
    assert handing_on("abcd") == []
    assert handing_on("aba", work_after=0) == []
    assert handing_on("aaa") == []


def test_a_branch_keeps_the_way_it_came() -> None:
    rows = [
        delegate("1", "a", "b"),
        delegate("2", "b", "c", after=["1"]),
        delegate("3", "b", "d", after=["1"]),
        delegate("4", "d", "a", after=["3"]),
    ]
    assert [f.event_ids for f in found("cyclic delegation", *rows)] == [("1", "3", "4")]


def test_repetitive_delegation() -> None:
    rows = [delegate(str(k), "lead", "a", content="Please  look it up" if k else "please look it up") for k in range(3)]
    (finding,) = found("repetitive delegation", *rows)
    assert (finding.event_ids, finding.loss, finding.loss_unit) == (("0", "1", "2"), 2, "repeated delegations")
    assert found("repetitive delegation", *rows[:2], delegate("3", "lead", "b", content="please look it up")) == []
    assert why_not("repetitive delegation", delegate("d", "lead", "a")) == "no delegation states both its target and its words"


def crowd(n: int, n_used: int) -> list[Event]:
    names = [f"w{k}" for k in range(n)]
    rows = [spawn("s", "lead", *names), *[event(name, name, after=["s"]) for name in names]]
    return [*rows, event("stop", "lead", kind="stop", after=["s", *names[:n_used]])]


def test_sub_agent_explosion() -> None:
    (finding,) = found("sub-agent explosion", *crowd(10, 5))
    assert (finding.message, finding.loss) == ("of 10 agents spawned, 5 had no part in the result", 5)
    assert found("sub-agent explosion", *crowd(10, 6)) == []
    assert found("sub-agent explosion", *crowd(9, 0)) == []
    assert why_not("sub-agent explosion", *crowd(10, 0)[:-1]) == "no stop or aggregate event says what the run came to"


# Calls


def calls(*answers: str | None, ask: str = "find x") -> list[Event]:
    rows = []
    for k, answer in enumerate(answers):
        given: dict[str, Any] = {"error": "timeout"} if answer is None else {"content": answer}
        rows += [call(f"c{k}", content=ask), result(f"r{k}", after=[f"c{k}"], **given)]
    return rows


def test_redundant_tool_calls() -> None:
    (finding,) = found("redundant tool calls", *calls("y", "y", "y"))
    assert (finding.event_ids, finding.loss, finding.loss_unit) == (("c0", "c1", "c2"), 2, "repeated calls")
    assert found("redundant tool calls", *calls("y", "y")) == []
    assert found("redundant tool calls", *calls("y", "z", "y")) == []
    assert found("redundant tool calls", *calls("y", None, "y")) == []
    assert why_not("redundant tool calls", call("c")) == "no tool call states what it asked for"


def test_retry_storm() -> None:
    (finding,) = found("retry storm", *calls("y", None, None, None, None, "y"))
    assert finding.event_ids == ("c1", "r1", "c2", "r2", "c3", "r3", "c4", "r4")
    assert (finding.message, finding.loss_unit) == ("4 calls of one tool failed in a row", "events from first to last failure")
    assert found("retry storm", *calls(None, None, None, "y", None)) == []
    assert why_not("retry storm", event("a", "x")) == "no tool calls"


def test_a_storm_with_widening_gaps_lasts_from_the_first_failure_to_the_last() -> None:
    rows = [call(f"c{k}", start=2.0**k, end=2.0**k + 0.5, error="busy") for k in range(5)]
    (finding,) = found("retry storm", *rows)
    assert (finding.loss, finding.loss_unit) == (16.5 - 1, "s from first to last failure")


def timed_calls(longest: float, *, n: int = 5) -> list[Finding]:
    rows = [call(f"c{k}", start=100 * k, end=100 * k + (longest if k == 0 else 4)) for k in range(n)]
    return found("stuck call", *rows)


def test_stuck_call() -> None:
    (finding,) = timed_calls(40)
    assert (finding.event_ids, finding.message) == (("c0",), "a call took 40.0 s, where 4.0 s is usual for its kind")
    assert (finding.loss, finding.loss_unit) == (36, "s beyond the usual")
    assert timed_calls(39.9) == []
    assert timed_calls(90, n=4) == []


def test_a_call_that_never_came_back() -> None:
    rows = [*calls("y"), call("lost", "b"), event("later", "x")]
    (finding,) = found("stuck call", *rows)
    assert (finding.event_ids, finding.loss) == (("lost",), None)
    assert found("stuck call", *rows, event("more", "b")) == []
    assert why_not("stuck call", call("c")) == "no clock, and no tool call has a result of its own"
    assert why_not("stuck call", event("a", "x")) == "no calls"


def sized(*tokens: int) -> list[Finding]:
    return found("context cliff", *[event(f"e{k}", "x", input_tokens=n) for k, n in enumerate(tokens)])


def test_context_cliff() -> None:
    (finding,) = sized(9_000, 10_000, 4_999, 4_000)
    assert (finding.event_ids, finding.loss, finding.loss_unit) == (("e1", "e2"), 5_001, "tokens of context")
    assert len(sized(10_000, 4_999)) == 1
    assert sized(10_000, 5_000) == []
    assert sized(9_999, 100) == []
    assert sized(10_000, 100, 10_500) == []  # a small call in between, not a cut
    assert (
        why_not("context cliff", event("a", "x", input_tokens=1), event("b", "y", input_tokens=1))
        == "no agent has two events with input tokens"
    )


# All of them


def test_every_finding_has_a_definition_with_its_loss() -> None:
    assert list(FINDINGS) == [
        "serial collapse", "dominant agent", "over-communication", "aggregation leakage", "pseudo-parallelism", "verifier echo",
        "stopped too early", "stopped too late", "claimed success on failure", "cyclic delegation", "repetitive delegation",
        "sub-agent explosion", "redundant tool calls", "retry storm", "stuck call", "context cliff",
    ]  # fmt: skip
    assert all(" Loss: " in definition and definition.endswith(".") for definition in FINDINGS.values())


@pytest.mark.parametrize(("share", "is_found"), [(0.9, True), (0.91, False)])
def test_a_run_of_characters_is_found_exactly(share: float, is_found: bool) -> None:
    text = "abcdefghij"
    assert has_run_of(text, "__abcdefghi__", share) is is_found
    assert has_run_of(text, "__bcdefghij__", share) is is_found


@given(runs(wild=True))
def test_findings_name_events_of_the_run_and_never_where_they_are_undecided(trace: Trace) -> None:
    names = {e.event_id for e in trace.events}
    some = findings(trace)
    assert all(finding.event_ids and set(finding.event_ids) <= names for finding in some)
    assert all(bool(finding.loss_unit) for finding in some)
    assert not {finding.name for finding in some} & undecided(trace).keys()
    assert [finding.name for finding in some] == sorted((f.name for f in some), key=list(FINDINGS).index)


@given(traces)
def test_any_trace_has_findings_or_reasons(trace: Trace) -> None:
    assert {finding.name for finding in findings(trace)} <= FINDINGS.keys() - undecided(trace).keys()


PLANTED = {
    "serial-collapse": "serial collapse", "aggregation-leakage": "aggregation leakage", "verifier-echo": "verifier echo",
    "stopped-early": "stopped too early", "false-success": "claimed success on failure",
    "pseudo-parallelism": "pseudo-parallelism", "over-communication": "over-communication", "dominant-agent": "dominant agent",
    "retry-storm": "retry storm", "cyclic-delegation": "cyclic delegation",
}  # fmt: skip


def by_style(seed: int, n_events: int) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """How many runs each team made, and how many of them have each finding."""
    policy = SimulationPolicy(n_tasks=9, n_good=3, n_bad=11, n_trials=1, n_events=n_events)
    n_runs, n_found = Counter[str](), Counter[tuple[str, str]]()
    for trace in simulate(policy, seed=seed):
        style = trace.groups.condition or ""
        n_runs[style] += 1
        n_found.update((style, name) for name in {finding.name for finding in findings(trace)})
    return n_runs, n_found


@pytest.mark.parametrize(("seed", "n_events"), [(1, 18), (2, 18), (3, 50)])
def test_planted_styles_are_found_and_little_else(seed: int, n_events: int) -> None:
    n_runs, n_found = by_style(seed, n_events)
    recall = {style: n_found[style, name] / n_runs[style] for style, name in PLANTED.items()}
    # Where each part needs the one before, working one after the other is right, and no collapse.
    assert recall.pop("serial-collapse") >= 0.6
    assert set(recall.values()) == {1.0}, recall
    right = sum(n for (style, name), n in n_found.items() if PLANTED.get(style) == name)
    precision = right / n_found.total()
    print(f"seed {seed}: precision {precision:.3f} of {n_found.total()} findings in {n_runs.total()} runs")
    assert precision >= 0.97


@pytest.mark.parametrize("seed", [4, 5])
def test_well_led_teams_are_mostly_clean(seed: int) -> None:
    n_runs, n_found = by_style(seed, 40)
    good = [name for name, team in TEAMS.items() if team.is_good]
    assert sum(n_runs[name] for name in good) == 36
    assert sum(n for (style, _), n in n_found.items() if style in good) <= 1


def test_findings_df_has_one_row_a_finding() -> None:
    rows = one_after_the_other()
    frame = findings_df([run(*rows, trace_id="1"), run(event("a", "x"), trace_id="2"), run(*rows, trace_id="3")])
    assert frame["trace_id"].tolist() == ["1", "3"]
    assert frame["loss"].tolist() == [8, 8]
    assert list(frame.columns) == ["trace_id", "name", "event_ids", "agents", "message", "recovered", "loss", "loss_unit"]
    assert findings_df([]).columns.tolist() == list(frame.columns)
