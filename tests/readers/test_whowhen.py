from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import model
from analysis.errors import Problem
from analysis.model import Event, Label, Trace
from analysis.readers import ledger, whowhen
from analysis.readers.fragment import Assembled, Fragment
from analysis.readers.source import Source, open_source

QUESTION = "00000000-1111-2222-3333-444444444444"
LEDGER = json.dumps(
    {
        "is_request_satisfied": {"reason": "-", "answer": False},
        "is_in_loop": {"reason": "-", "answer": False},
        "is_progress_being_made": {"reason": "-", "answer": True},
        "next_speaker": {"reason": "-", "answer": "Web"},
    }
)


class Read(NamedTuple):
    kind: str | None
    fragments: list[Fragment]
    problems: list[Problem]


def source_of(path: Path, file: str = "") -> Source:
    source = open_source(path, file or path.name)
    assert isinstance(source, Source), source
    return source


def read(path: Path, file: str = "") -> Read:
    source = source_of(path, file)
    kind = whowhen.detect(source)
    found = list(whowhen.read(source, kind)) if kind else []
    problems = [item for item in found if isinstance(item, Problem)] + source.problems
    return Read(kind, [item for item in found if isinstance(item, Fragment)], problems)


def read_value(folder: Path, value: Any, name: str = "made.json") -> Read:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return read(path)


def by_trace(fragments: Iterable[Fragment]) -> dict[str, list[Fragment]]:
    parts = defaultdict(list)
    for part in fragments:
        parts[part.trace_id].append(part)
    return dict(parts)


def trace_of(folder: Path, value: Any) -> Trace:
    ((trace_id, parts),) = by_trace(read_value(folder, value).fragments).items()
    return whowhen.assemble(trace_id, parts).trace


def hand(*entries: tuple[str, str], **fields: Any) -> dict[str, Any]:
    history = [{"content": content, "role": role} for role, content in entries]
    return {"history": history, "question": "Q?", "ground_truth": "A", "is_corrected": False, "question_ID": "q", **fields}


def chat(*entries: tuple[str, str], **fields: Any) -> dict[str, Any]:
    history = [{"content": content, "name": name, "role": "user"} for name, content in entries]
    stated = {"is_correct": False, "question": "Q?", "question_ID": "q", "level": "2", "ground_truth": "A"}
    return {**stated, "history": history, "system_prompt": {"Ann": "You are Ann.", "Bob": "You are Bob."}, **fields}


def labelled(agent: str, step: int | str) -> dict[str, Any]:
    return {"mistake_agent": agent, "mistake_step": step, "mistake_reason": "wrong"}


def entry_events(trace: Trace) -> list[Event]:
    return [event for event in trace.events if event.raw_id is not None]


def only(trace: Trace, kind: str) -> Event:
    (event,) = [event for event in trace.events if event.kind == kind]
    return event


THREE_AGENTS = hand(
    ("human", "Q?"),
    ("Orchestrator (thought)", "Initial plan: ask"),
    ("Orchestrator (thought)", f"Updated Ledger:\n{LEDGER}"),
    ("Orchestrator (-> Web)", "look it up"),
    ("Orchestrator (thought)", "Next speaker Web"),
    ("Web", "found it"),
    ("Orchestrator (thought)", f"Updated Ledger:\n{LEDGER}"),
    ("Orchestrator (-> File)", "open it"),
    ("File", "it says 7"),
    ("Orchestrator (thought)", "Request satisfied."),
    ("Orchestrator (termination condition)", "No agent selected.\nFINAL ANSWER: 7\nSCENARIO.PY COMPLETE !#!#"),
)


@pytest.fixture(scope="module")
def real(shared_traces: Path) -> dict[str, Read]:
    files = sorted(path for folder in ("whowhen", "agentrx") for path in (shared_traces / folder).rglob("*.json"))
    return {path.relative_to(shared_traces).as_posix(): read(path) for path in files}


@pytest.fixture(scope="module")
def parts(real: dict[str, Read]) -> dict[str, list[Fragment]]:
    return by_trace(part for found in real.values() for part in found.fragments)


@pytest.fixture(scope="module")
def assembled(parts: dict[str, list[Fragment]]) -> dict[str, Assembled]:
    return {trace_id: whowhen.assemble(trace_id, of_trace) for trace_id, of_trace in parts.items()}


@pytest.fixture(scope="module")
def traces(assembled: dict[str, Assembled]) -> list[Trace]:
    return [found.trace for found in assembled.values()]


# The shared files


def test_each_shared_file_is_recognised_by_what_is_in_it_and_tau_retail_is_left_to_others(real: dict[str, Read]) -> None:
    assert Counter(found.kind for found in real.values()) == {
        "whowhen-algorithm": 90,
        "whowhen-hand": 42,
        "agentrx-history": 42,
        "agentrx-annotation": 1,
        None: 2,
    }
    assert sorted(file for file, found in real.items() if found.kind is None) == [
        "agentrx/tau_retail.tasks000-059.json",
        "agentrx/tau_retail_ground_truth.filtered.json",
    ]


def test_a_copy_under_another_name_is_recognised_just_the_same(shared_traces: Path, tmp_path: Path) -> None:
    for file in ("whowhen/algorithm-generated/1.json", "agentrx/magentic_one_ground_truth.filtered.json"):
        copy = tmp_path / "notes.txt"
        copy.write_bytes((shared_traces / file).read_bytes())
        assert read(copy).kind == read(shared_traces / file).kind is not None


def test_175_files_make_132_runs_and_copies_and_annotations_add_none(parts: dict[str, list[Fragment]]) -> None:
    assert Counter(trace_id.split("-")[0] for trace_id in parts) == {"whowhen:algo": 90, "whowhen:hand": 42}
    questions = Counter(trace_id.split("-", 1)[1] for trace_id in parts)
    assert sum(n == 2 for n in questions.values()) == 34
    assert sum(part.part == "label:agentrx" for of_trace in parts.values() for part in of_trace) == 34
    assert not any(part.primary for of_trace in parts.values() for part in of_trace if part.part.startswith("label:"))


def test_the_only_notes_while_reading_are_ids_taken_from_42_file_names(real: dict[str, Read]) -> None:
    assert Counter(problem.code for found in real.values() for problem in found.problems) == {"id-from-name": 42}


def test_the_history_is_byte_identical_in_the_whowhen_and_the_agentrx_file(parts: dict[str, list[Fragment]]) -> None:
    for trace_id, of_trace in parts.items():
        histories = [part for part in of_trace if part.part == "history"]
        assert len(histories) == (2 if trace_id.startswith("whowhen:hand-") else 1)
        assert len({(part.digest, part.data) for part in histories}) == 1


def test_every_history_entry_is_exactly_one_event_with_its_full_text(
    parts: dict[str, list[Fragment]], traces: list[Trace]
) -> None:
    for trace in traces:
        (history,) = {part.data for part in parts[trace.trace_id] if part.part == "history"}
        entries = json.loads(history)
        events = entry_events(trace)
        assert [event.raw_id for event in events] == [f"history[{n}]" for n in range(len(entries))]
        assert [(event.content, event.raw_type) for event in events] == [(entry["content"], entry["role"]) for entry in entries]
        assert all(event.content is None for event in trace.events if event.raw_id is None)


def test_events_of_the_hand_crafted_runs_by_kind_and_rule(traces: list[Trace]) -> None:
    led = [event for trace in traces if trace.groups.condition == "hand-crafted" for event in trace.events]
    assert Counter((event.kind, event.action, event.rule) for event in led) == {
        ("act", "input", None): 42,
        ("act", "note", None): 631,
        ("act", "ledger", None): 594,
        ("spawn", None, "first-delegation"): 67,
        ("delegate", None, None): 541,
        ("communicate", None, "reply-to-delegation"): 517,
        ("aggregate", None, "final-answer"): 15,
        ("stop", None, None): 21,
        ("stop", None, "last-message"): 21,
    }
    assert all((event.basis == "derived") == (event.rule is not None) for event in led)
    assert Counter(event.condition for event in led if event.kind == "stop") == {
        "No agent selected.": 14,
        "Max rounds (30) reached.": 5,
        "Max time (1500s) reached.": 2,
        "Error processing publish message": 21,
    }


def test_events_of_the_group_chats_by_kind_and_rule(traces: list[Trace]) -> None:
    chats = [event for trace in traces if trace.groups.condition == "algorithm-generated" for event in trace.events]
    assert Counter((event.kind, event.rule, event.error) for event in chats) == {
        ("spawn", "system-prompt", None): 249,
        ("delegate", "manager-task", None): 90,
        ("communicate", "group-chat-message", None): 445,
        ("act", "computer-terminal", None): 154,
        ("act", "computer-terminal", "exitcode: 1"): 61,
        ("stop", "terminate-text", None): 47,
        ("stop", "last-message", None): 43,
    }
    assert {event.basis for event in chats} == {"derived"}


def test_parents_and_targets_are_events_and_agents_of_the_trace_and_come_before(traces: list[Trace]) -> None:
    for trace in traces:
        order = {event.event_id: event.order for event in trace.events}
        agents = {agent.agent_id for agent in trace.agents}
        assert list(order.values()) == list(range(len(order)))
        for event in trace.events:
            assert all(order[parent] < event.order for parent in (*event.parents, *event.merge_points))
            assert agents >= {*event.targets, *filter(None, [event.agent_id])}
            assert event.t_start_s is event.t_end_s is event.input_tokens is None
        assert trace.clock is None


def test_593_of_594_ledgers_give_claims_and_11_say_satisfied(traces: list[Trace], assembled: dict[str, Assembled]) -> None:
    claims = [claim for trace in traces for claim in trace.claims]
    assert Counter(claim.proposition for claim in claims) == {
        "request_satisfied": 593,
        "in_loop": 593,
        "progress_being_made": 593,
    }
    assert sum(claim.p for claim in claims if claim.proposition == "request_satisfied") == 11
    assert {claim.p for claim in claims} == {0.0, 1.0}
    assert {(c.component, c.kind, c.level, c.basis) for c in claims} == {("Orchestrator", "verdict", "component", "explicit")}
    unread = [problem for found in assembled.values() for problem in found.problems if problem.code == "unread-ledger"]
    assert [(problem.record, problem.file) for problem in unread] == [("history[2]", "10.json")]
    assert not any(trace.relations for trace in traces)


def test_a_satisfied_verdict_is_the_newest_quote_of_a_run_that_failed(traces: list[Trace]) -> None:
    satisfied = [t for t in traces if any(c.proposition == "request_satisfied" and c.p == 1.0 for c in t.claims)]
    assert len(satisfied) == 11
    for trace in satisfied:
        newest = max((c for c in trace.claims if c.proposition == "request_satisfied"), key=lambda c: c.turn or 0)
        assert (newest.p, trace.outcome.passed) == (1.0, False)


def test_whowhen_labels_fit_their_agent_in_127_runs_one_based_in_2_and_not_in_3(
    traces: list[Trace], assembled: dict[str, Assembled]
) -> None:
    labels = [label for trace in traces for label in trace.labels if label.annotator == "whowhen"]
    assert Counter(label.consistency for label in labels) == {"consistent": 127, "one-based": 2, "inconsistent": 3}
    assert all((label.event_id is not None) == (label.consistency == "consistent") for label in labels)
    codes = Counter(p.code for found in assembled.values() for p in found.problems if "ground_truth" not in p.file)
    assert codes == {"label-one-based": 2, "label-misfit": 3, "unread-ledger": 1}


def test_agentrx_labels_go_to_the_34_hand_crafted_runs_and_never_to_a_group_chat(traces: list[Trace]) -> None:
    marked = {t.trace_id: [label for label in t.labels if label.annotator == "agentrx"] for t in traces}
    assert sum(bool(labels) for labels in marked.values()) == 34
    assert not any(labels for trace_id, labels in marked.items() if trace_id.startswith("whowhen:algo-"))
    failures = [label for labels in marked.values() for label in labels if label.name == "failure"]
    assert Counter(label.consistency for label in failures) == {"consistent": 235, "inconsistent": 29}
    assert sum(label.is_root_cause is True for label in failures) == 34
    assert {label.agent_id for label in failures} == {"WebSurfer", "Orchestrator", "FileSurfer", "Assistant"}
    assert len({label.category for label in failures}) == 6


def test_both_annotators_name_the_same_agent_in_20_and_the_same_event_in_13_of_34_runs(traces: list[Trace]) -> None:
    pairs: list[tuple[Label, Label]] = []
    for trace in traces:
        roots = [label for label in trace.labels if label.is_root_cause]
        pairs += [(label, root) for label in trace.labels if label.annotator == "whowhen" for root in roots]
    assert len(pairs) == 34
    assert sum(mistake.agent_id == root.agent_id for mistake, root in pairs) == 20
    assert sum(mistake.event_id == root.event_id is not None for mistake, root in pairs) == 13


def test_all_runs_failed_and_the_led_ones_say_what_they_answered(traces: list[Trace]) -> None:
    assert {trace.outcome.passed for trace in traces} == {False}
    answered = [trace for trace in traces if trace.outcome.answer is not None]
    assert {trace.groups.condition for trace in answered} == {"hand-crafted"}
    assert len(answered) == 42
    for trace in answered:
        last = max(int(event.event_id[1:]) for event in entry_events(trace))
        assert trace.outcome.source == f"passed: is_corrected; answer: history[{last}]"


def test_every_trace_survives_the_native_format(traces: list[Trace]) -> None:
    assert len(traces) == 132
    for trace in traces:
        assert model.decode(model.encode(trace)) == trace


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_fragments_in_any_order_give_the_same_trace_and_problems(parts: dict[str, list[Fragment]], seed: int) -> None:
    rng = random.Random(seed)
    trace_id = rng.choice(sorted(parts))
    shuffled = rng.sample(parts[trace_id], len(parts[trace_id]))
    assert whowhen.assemble(trace_id, shuffled) == whowhen.assemble(trace_id, parts[trace_id])


# Orchestrated runs, by hand


def test_delegation_reply_merge_and_stop_are_linked_as_the_roles_say(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, THREE_AGENTS)
    assert [(e.event_id, e.kind, e.action, e.agent_id, e.targets, e.parents, e.turn) for e in trace.events] == [
        ("h0", "act", "input", "human", (), (), 0),
        ("h1", "act", "note", "Orchestrator", (), ("h0",), 0),
        ("h2", "act", "ledger", "Orchestrator", (), ("h1",), 1),
        ("h3.spawn", "spawn", None, "Orchestrator", ("Web",), ("h2",), 1),
        ("h3", "delegate", None, "Orchestrator", ("Web",), ("h2", "h3.spawn"), 1),
        ("h4", "act", "note", "Orchestrator", (), ("h3",), 1),
        ("h5", "communicate", None, "Web", ("Orchestrator",), ("h3",), 1),
        ("h6", "act", "ledger", "Orchestrator", (), ("h4", "h5"), 2),
        ("h7.spawn", "spawn", None, "Orchestrator", ("File",), ("h6",), 2),
        ("h7", "delegate", None, "Orchestrator", ("File",), ("h6", "h7.spawn"), 2),
        ("h8", "communicate", None, "File", ("Orchestrator",), ("h7",), 2),
        ("h9", "act", "note", "Orchestrator", (), ("h7", "h8"), 2),
        ("h10.aggregate", "aggregate", None, "Orchestrator", (), ("h9",), 2),
        ("h10", "stop", None, "Orchestrator", (), ("h9", "h10.aggregate"), 2),
    ]
    assert only(trace, "aggregate").merge_points == ("h5", "h8")
    assert only(trace, "stop").condition == "No agent selected."
    assert [(agent.agent_id, agent.parent_id) for agent in trace.agents] == [
        ("human", None),
        ("Orchestrator", None),
        ("Web", "Orchestrator"),
        ("File", "Orchestrator"),
    ]
    assert trace.outcome == model.Outcome(passed=False, answer="7", source="passed: is_corrected; answer: history[10]")


def test_task_groups_and_source_come_from_the_record(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, {**THREE_AGENTS, "level": 2})
    assert trace.task == model.Task(task_id="q", text="Q?", reference="A", extra={"level": 2})
    assert trace.groups == model.Groups(task="q", condition="hand-crafted")
    assert trace.source == model.Source(format="whowhen", file="made.json", record="document", reader_version="1")
    assert (trace.trace_id, trace.world) == ("whowhen:hand-q", "recorded")


def test_an_unanswered_delegation_does_not_take_the_reply_to_the_next_one(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        hand(("Orchestrator (-> Web)", "try"), ("Orchestrator (-> Web)", "again"), ("Web", "done"), ("Web", "and more")),
    )
    first, second = (event for event in trace.events if event.kind == "communicate")
    assert (first.parents, first.rule) == (("h1",), "reply-to-delegation")
    assert (second.parents, second.targets, second.rule) == ((), (), "unaddressed-message")
    assert sum(event.kind == "spawn" for event in trace.events) == 1


def test_who_has_spoken_before_is_not_spawned_by_a_delegation(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path, hand(("Orchestrator (-> Web)", "try"), ("Web (-> Orchestrator)", "no, you"), ("Web (-> Web)", "I"))
    )
    assert [event.event_id for event in trace.events if event.kind == "spawn"] == ["h0.spawn"]
    assert [(agent.agent_id, agent.parent_id) for agent in trace.agents] == [("Orchestrator", None), ("Web", "Orchestrator")]


def test_one_replying_agent_is_nothing_to_merge(tmp_path: Path) -> None:
    end = ("Orchestrator (termination condition)", "Max rounds (30) reached.\nFINAL ANSWER: 7")
    trace = trace_of(tmp_path, hand(("Orchestrator (-> Web)", "try"), ("Web", "7"), end))
    assert [event.kind for event in trace.events] == ["spawn", "delegate", "communicate", "stop"]
    assert trace.outcome.answer == "7"


def test_a_history_that_just_ends_is_stopped_by_nobody(tmp_path: Path) -> None:
    stop = only(trace_of(tmp_path, hand(("human", "Q?"), ("Orchestrator (thought)", "plan"))), "stop")
    assert stop == Event(event_id="end", kind="stop", parents=("h1",), order=2, turn=0, basis="derived", rule="last-message")


def test_an_unknown_role_tag_stays_as_an_opaque_event(tmp_path: Path) -> None:
    found = read_value(tmp_path, hand(("Orchestrator (shrug)", "?"), ("Orchestrator (shrug)", "??")))
    trace, _ = whowhen.assemble("whowhen:hand-q", found.fragments)
    opaque = [(event.kind, event.content, event.raw_type) for event in trace.events[:2]]
    assert opaque == [(None, "?", "Orchestrator (shrug)"), (None, "??", "Orchestrator (shrug)")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Updated Ledger:\n{LEDGER}", (0.0, 0.0, 1.0)),
        (f"For {{this}} I say:\n```json\n{LEDGER}\n```\nand {{so}} on", (0.0, 0.0, 1.0)),
        ('{"next_speaker": {"answer": "W"}, "is_request_satisfied": true}', (1.0,)),
        ('{"is_request_satisfied": {"answer": "true"}, "is_in_loop": {"answer": true}}', (1.0,)),
        (LEDGER[:-1], None),
        ("is_request_satisfied is what I ask myself", None),
        ('{"a":' * 30_000 + '"is_request_satisfied"', None),
        ('{"is_request_satisfied": ' + "[" * 30_000, None),
    ],
    ids=["prefix", "braces-in-prose", "not-first-and-bare", "no-boolean", "cut", "prose", "many-braces", "deep"],
)
def test_a_ledger_is_cut_out_of_its_prose_or_named_as_unread(
    tmp_path: Path, text: str, expected: tuple[float, ...] | None
) -> None:
    found = read_value(tmp_path, hand(("Orchestrator (thought)", text)))
    trace, problems = whowhen.assemble("whowhen:hand-q", found.fragments)
    assert (trace.events[0].action, trace.events[0].content) == ("ledger", text)
    assert tuple(claim.p for claim in trace.claims) == (expected or ())
    assert [problem.code for problem in problems] == ([] if expected else ["unread-ledger"])


def test_a_ledger_quoted_by_another_agent_is_no_verdict_of_the_team(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, hand(("Orchestrator (-> Web)", f"read {LEDGER}"), ("Web", LEDGER)))
    assert trace.claims == ()
    assert {event.turn for event in trace.events} == {0}


def test_a_final_answer_counts_at_the_start_of_a_line_of_the_last_entry_only() -> None:
    def said(text: str) -> str | None:
        return ledger.answer(ledger.Entry(role="Web", content=text))

    assert said("FINAL ANSWER: 7") == "7"
    assert said("log\nFINAL ANSWER: 7, 8\nSCENARIO.PY COMPLETE !#!#\nRUN.SH") == "7, 8"
    assert said("the page says FINAL ANSWER: 7") is None
    assert said("FINAL ANSWER:  ") is None


# Group chats, by hand


def test_a_group_chat_sends_each_message_to_all_others_and_ends_with_the_bare_word(tmp_path: Path) -> None:
    task = "You are given: (1) a task and advises from your manager with a plan"
    terminal = ("Computer_terminal", "exitcode: 1 (execution failed)\nCode output: no")
    trace = trace_of(tmp_path, chat(("Ann", task), terminal, ("Bob", "all done\n\nTERMINATE"), ("Ann", "TERMINATE")))
    assert [(e.event_id, e.kind, e.agent_id, e.targets, e.parents, e.turn, e.rule) for e in trace.events] == [
        ("spawn0", "spawn", None, ("Ann",), (), None, "system-prompt"),
        ("spawn1", "spawn", None, ("Bob",), (), None, "system-prompt"),
        ("h0", "delegate", "Ann", ("Bob",), ("spawn0", "spawn1"), 0, "manager-task"),
        ("h1", "act", "Computer_terminal", (), ("h0",), 1, "computer-terminal"),
        ("h2", "communicate", "Bob", ("Ann", "Computer_terminal"), ("h1",), 2, "group-chat-message"),
        ("h3", "stop", "Ann", (), ("h2",), 3, "terminate-text"),
    ]
    assert (trace.events[3].action, trace.events[3].error) == ("tool_result", "exitcode: 1")
    assert [(a.agent_id, a.component, a.system_prompt) for a in trace.agents] == [
        ("Ann", "Ann", "You are Ann."),
        ("Bob", "Bob", "You are Bob."),
        ("Computer_terminal", "Computer_terminal", None),
    ]
    assert trace.outcome == model.Outcome(passed=False, source="passed: is_correct")


@pytest.mark.parametrize("text", ["exitcode: 0 (execution succeeded)", "There is no code from the last 1 message"])
def test_a_terminal_that_did_not_fail_carries_no_error(tmp_path: Path, text: str) -> None:
    trace = trace_of(tmp_path, chat(("Ann", "hi"), ("Computer_terminal", text)))
    assert [event.error for event in trace.events if event.kind == "act"] == [None]


def test_the_bare_word_before_the_end_and_other_texts_at_the_end_do_not_stop_a_chat(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, chat(("Ann", "TERMINATE"), ("Bob", "**TERMINATE**")))
    assert [(event.kind, event.rule) for event in entry_events(trace)] == [("communicate", "group-chat-message")] * 2
    assert only(trace, "stop").rule == "last-message"


def test_a_chat_of_very_many_members_does_not_list_every_receiver(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, chat(*((f"agent {n}", "hi") for n in range(101)), system_prompt={}))
    assert {event.targets for event in trace.events} == {()}


# Labels, by hand


@pytest.mark.parametrize(
    ("agent", "step", "expected", "code"),
    [
        ("Web", "5", ("consistent", "h5"), None),
        ("web", 5, ("consistent", "h5"), None),
        ("Web", "6", ("one-based", None), "label-one-based"),
        ("Web", "1", ("inconsistent", None), "label-misfit"),
        ("Web", "99", ("inconsistent", None), "label-misfit"),
        ("Nobody", "0", ("inconsistent", None), "label-misfit"),
        ("Web", "five", (None, None), "bad-value"),
    ],
)
def test_a_whowhen_step_counts_from_zero_and_is_checked_against_who_acted(
    tmp_path: Path, agent: str, step: int | str, expected: tuple[str | None, str | None], code: str | None
) -> None:
    found = read_value(tmp_path, {**THREE_AGENTS, **labelled(agent, step), "mistake_type": "slip"})
    trace, problems = whowhen.assemble("whowhen:hand-q", found.fragments)
    (label,) = trace.labels
    assert (label.consistency, label.event_id) == expected
    assert (label.annotator, label.name, label.text, label.category) == ("whowhen", "mistake", "wrong", "slip")
    assert label.step_base == 0
    assert [problem.code for problem in problems] == ([code] if code else [])


def test_label_problems_say_who_acted_instead(tmp_path: Path) -> None:
    found = read_value(tmp_path, {**THREE_AGENTS, **labelled("Web", "6")})
    assert [str(problem) for problem in whowhen.assemble("whowhen:hand-q", found.fragments).problems] == [
        "made.json:document: the label fits its agent only when steps are counted from 1"
        " (got Web at step 6, expected Orchestrator) - check the annotator's step base"
    ]


def failure(failure_id: int, step: int, agent: str, category: str) -> dict[str, Any]:
    reason = {"step_reason": f"reason {failure_id}", "category_reason": f"reason {failure_id}"}
    return {"failure_id": failure_id, "step_number": step, "failed_agent": agent, "failure_category": category, **reason}


def annotation(root: Any) -> dict[str, Any]:
    failures = [failure(1, 6, "web", "Intent not  supported"), failure(2, 7, "Web", "Intent Not Supported")]
    cause = {"failure_id": root, "reason_for_root_cause": "it began here"}
    return {"trajectory_id": "q", "failures": failures, "root_cause": cause, "failure_summary": "in short"}


def test_an_agentrx_step_counts_from_one_and_names_its_root_cause(tmp_path: Path) -> None:
    run, labels = read_value(tmp_path, THREE_AGENTS), read_value(tmp_path, [annotation("1")], "labels.json")
    assert (labels.kind, labels.problems) == ("agentrx-annotation", [])
    trace, problems = whowhen.assemble("whowhen:hand-q", [*labels.fragments, *run.fragments])
    shared: dict[str, Any] = {"annotator": "agentrx", "name": "failure", "category": "Intent not supported", "step_base": 1}
    assert trace.labels == (
        Label(
            **shared, text="reason 1\n\nit began here", agent_id="Web", event_id="h5", step=6,
            consistency="consistent", is_root_cause=True,
        ),
        Label(**shared, text="reason 2", agent_id="Web", step=7, consistency="inconsistent", is_root_cause=False),
        Label(annotator="agentrx", name="summary", text="in short"),
    )  # fmt: skip
    assert [(problem.code, problem.file, problem.record) for problem in problems] == [("label-misfit", "labels.json", "record 0")]


def test_a_root_cause_that_is_no_failure_leaves_open_which_one_it_is(tmp_path: Path) -> None:
    run, labels = read_value(tmp_path, THREE_AGENTS), read_value(tmp_path, [annotation(7)], "labels.json")
    trace, problems = whowhen.assemble("whowhen:hand-q", [*run.fragments, *labels.fragments])
    assert [label.is_root_cause for label in trace.labels] == [None, None, None]
    assert "labels.json:record 0: a value is not what the field takes (got root cause 7, expected one of 1, 2)" in str(
        problems[0]
    )


# Shapes of files


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps([THREE_AGENTS, {**THREE_AGENTS, "question_ID": "r"}])),
        ("a.jsonl", json.dumps(THREE_AGENTS) + "\n" + json.dumps({**THREE_AGENTS, "question_ID": "r"})),
        ("a.txt", json.dumps([{**THREE_AGENTS, "question_ID": "r"}, THREE_AGENTS], indent=1)),
    ],
)
def test_a_file_is_a_list_of_records_or_a_record_a_line(tmp_path: Path, name: str, text: str) -> None:
    found = read_value(tmp_path, text, name)
    assert found.kind == "whowhen-hand"
    assert sorted(by_trace(found.fragments)) == ["whowhen:hand-q", "whowhen:hand-r"]
    assert len({part.digest for part in found.fragments if part.part == "history"}) == 1


def test_each_record_of_a_mixed_list_is_read_in_its_own_dialect(tmp_path: Path) -> None:
    found = read_value(tmp_path, [chat(("Ann", "hi")), THREE_AGENTS])
    assert sorted(by_trace(found.fragments)) == ["whowhen:algo-q", "whowhen:hand-q"]


@pytest.mark.parametrize(
    ("mark", "name"), [({"is_correct": False}, {}), ({"system_prompt": {"Ann": "You are Ann."}}, {}), ({}, {"name": "Ann"})]
)
def test_each_mark_of_a_group_chat_alone_tells_it(tmp_path: Path, mark: dict[str, Any], name: dict[str, str]) -> None:
    record = {"question_ID": "q", "history": [{"content": "hi", "role": "user", **name}], **mark}
    assert read_value(tmp_path, record).kind == "whowhen-algorithm"


def test_what_does_not_say_whether_it_succeeded_has_no_outcome(tmp_path: Path) -> None:
    unsaid = {name: value for name, value in THREE_AGENTS.items() if name != "is_corrected"}
    trace = trace_of(tmp_path, unsaid)
    assert trace.outcome == model.Outcome(answer="7", source="answer: history[10]")


def test_other_fields_of_records_and_entries_are_kept_and_leave_the_history_as_it_is(tmp_path: Path) -> None:
    plain = chat(("Ann", "hi"))
    rich = {**plain, "history": [{**plain["history"][0], "step": 4}], "origin": {"by": ["x"]}}
    trace = trace_of(tmp_path, rich)
    assert trace.task.extra == {"level": "2", "origin": {"by": ["x"]}, "history": [{"step": 4}]}
    histories = [read_value(tmp_path, value).fragments[0] for value in (plain, rich)]
    assert histories[0].data == histories[1].data


def test_a_bare_history_joins_the_run_of_the_question_it_is_named_after(tmp_path: Path) -> None:
    run = read_value(tmp_path, {**THREE_AGENTS, "question_ID": QUESTION})
    bare = read_value(tmp_path, THREE_AGENTS["history"], f"{QUESTION}.json")
    assert bare.kind == "agentrx-history"
    assert [str(problem) for problem in bare.problems] == [
        f"{QUESTION}.json:whowhen:hand-{QUESTION}: the trace id comes from the file name; the content has none"
        f" (got {QUESTION}) - keep the file name"
    ]
    assert bare.fragments[0].trace_id == f"whowhen:hand-{QUESTION}"
    assert bare.fragments[0].data == run.fragments[0].data
    alone = whowhen.assemble(bare.fragments[0].trace_id, bare.fragments).trace
    assert alone.task == model.Task(task_id=QUESTION, text="Q?")
    assert (alone.outcome.passed, alone.source.file) == (None, f"{QUESTION}.json")
    both = whowhen.assemble(run.fragments[0].trace_id, [*bare.fragments, *run.fragments]).trace
    assert (both.outcome.passed, both.source.file, both.events) == (False, "made.json", alone.events)


def test_a_bare_history_of_another_name_has_an_id_made_of_its_first_record(tmp_path: Path) -> None:
    short = read_value(tmp_path, THREE_AGENTS["history"][:5], "run.json")
    grown = read_value(tmp_path, THREE_AGENTS["history"], "run (1).json")
    assert short.problems == grown.problems == []
    assert short.fragments[0].trace_id == grown.fragments[0].trace_id
    assert len(short.fragments[0].trace_id) == len("whowhen:hand-") + 16


def test_of_two_copies_of_a_bare_history_the_source_is_the_same_one_in_either_order(tmp_path: Path) -> None:
    copies = [part for name in ("b.json", "a.json") for part in read_value(tmp_path, THREE_AGENTS["history"], name).fragments]
    forth, back = (whowhen.assemble(copies[0].trace_id, order) for order in (copies, copies[::-1]))
    assert forth == back
    assert forth.trace.source.file == "a.json"


def test_a_second_run_under_one_id_is_about_the_same_question(tmp_path: Path) -> None:
    bare = read_value(tmp_path, THREE_AGENTS["history"], f"{QUESTION}.json")
    assert whowhen.assemble(f"whowhen:hand-{QUESTION}~2", bare.fragments).trace.groups.task == QUESTION


@pytest.mark.parametrize(
    "value",
    [
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Orchestrator (thought)"}],
        [{"trajectory_id": 7, "failures": [], "root_cause": {}, "failure_summary": ""}],
        {"history": [{"role": "user", "content": "hi"}], "question": "Q?"},
        {"messages": [{"role": "Orchestrator (thought)", "content": "hi"}]},
        [["a"], ["b"]],
        '{"role": "human", "content": "Q?"}\n{"role": "Orchestrator (thought)", "content": "plan"}',
    ],
    ids=["chat", "tau-retail-annotation", "no-question-id", "other-field", "lists", "entries-by-line"],
)
def test_what_is_of_another_format_is_not_recognised(tmp_path: Path, value: Any) -> None:
    assert read_value(tmp_path, value).kind is None


WRONG = "the record does not have the shape its format promises"


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (7, f"{WRONG} (got int, expected an object with `question_ID` and a list `history`)"),
        ({"a": 1}, f"{WRONG} (got an object with a, expected an object with `question_ID` and a list `history`)"),
        (hand(question_ID=7), f"{WRONG} (got `int` at `$.question_ID`, expected `str`)"),
        (hand(question_ID=""), f"{WRONG} (got Expected `str` of length >= 1 at `$.question_ID`)"),
        (hand(is_corrected="no"), f"{WRONG} (got `str` at `$.is_corrected`, expected `bool | null`)"),
        ({**hand(), "history": ["hi"]}, f"{WRONG} (got `str` at `$.history[0]`, expected `object`)"),
        ({**hand(), "history": [{"content": "hi"}]}, f"{WRONG} (got Object missing required field `role` at `$.history[0]`)"),
        ({**hand(), "more": json.loads("[" * 101 + "]" * 101)}, "the record is nested too deeply"),
    ],
)
def test_a_record_of_the_wrong_shape_is_named_and_the_next_one_is_read(tmp_path: Path, record: Any, line: str) -> None:
    found = read_value(tmp_path, [THREE_AGENTS, record, {**THREE_AGENTS, "question_ID": "r"}])
    assert len(found.problems) == 1
    assert str(found.problems[0]).startswith(f"made.json:record 1: {line}")
    assert sorted(by_trace(found.fragments)) == ["whowhen:hand-q", "whowhen:hand-r"]


def test_a_label_of_the_wrong_shape_does_not_cost_the_run(tmp_path: Path) -> None:
    found = read_value(tmp_path, {**THREE_AGENTS, "mistake_agent": 3})
    assert [part.part for part in found.fragments] == ["history", "task"]
    assert str(found.problems[0]).startswith(
        f"made.json:document: {WRONG} (got `int` at `$.mistake_agent`, expected `str | null`)"
    )


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ([], f"{WRONG} (got `array`, expected `object`)"),
        ({**annotation(1), "trajectory_id": 7}, f"{WRONG} (got `int` at `$.trajectory_id`, expected `str`)"),
        ({**annotation(1), "failures": [{}]}, f"{WRONG} (got Object missing required field `failure_id` at `$.failures[0]`)"),
    ],
)
def test_an_annotation_of_the_wrong_shape_is_named_and_the_next_one_is_read(tmp_path: Path, record: Any, line: str) -> None:
    found = read_value(tmp_path, [annotation(1), record, {**annotation(1), "trajectory_id": "r"}])
    assert str(found.problems[0]).startswith(f"made.json:record 1: {line}")
    assert [part.trace_id for part in found.fragments] == ["whowhen:hand-q", "whowhen:hand-r"]


def test_a_damaged_bare_history_is_named_by_the_place_of_the_damage(tmp_path: Path) -> None:
    found = read_value(tmp_path, [*THREE_AGENTS["history"], {"content": "hi", "role": "Web", "step": 3}])
    assert found.kind == "agentrx-history"
    assert found.fragments == []
    assert str(found.problems[0]).startswith(f"made.json:document: {WRONG} (got Object contains unknown field `step` at `$[11]`")


ROLES = st.sampled_from(
    ["human", "Web", "File", "Orchestrator", "Orchestrator (thought)", "Orchestrator (-> Web)", "Orchestrator (-> File)",
     "Orchestrator (->)", "Web (-> File)", "Orchestrator (termination condition)", "Orchestrator (x)", " (thought)", "a (b) c"]
)  # fmt: skip
TEXTS = st.one_of(st.none(), st.text(max_size=20), st.sampled_from(["TERMINATE", LEDGER, "FINAL ANSWER: 7", "exitcode: 2"]))
ENTRIES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": TEXTS}, optional={"name": st.text(min_size=1, max_size=9)}))


@settings(deadline=None)
@given(history=ENTRIES, dialect=st.sampled_from(["is_correct", "is_corrected"]), step=st.integers(-2, 9))
def test_any_history_makes_a_valid_trace_with_one_event_an_entry(
    tmp_path_factory: pytest.TempPathFactory, history: list[dict[str, Any]], dialect: str, step: int
) -> None:
    record = {"question_ID": "q", "history": history, dialect: True, **labelled("Web", step)}
    trace = trace_of(tmp_path_factory.getbasetemp(), record)
    assert [(event.content, event.raw_type) for event in entry_events(trace)] == [(e["content"], e["role"]) for e in history]
    assert sum(event.kind == "stop" for event in trace.events) >= bool(history)
    order = {event.event_id: event.order for event in trace.events}
    assert all(order[parent] < event.order for event in trace.events for parent in (*event.parents, *event.merge_points))
    assert model.decode(model.encode(trace)) == trace
