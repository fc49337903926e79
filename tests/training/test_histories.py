"""Traces become histories: who says what, where each event stands, and that no text is made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from analysis.model import Agent, Event, Source, Task, Trace
from analysis.pipeline import import_paths
from analysis.training.histories import histories
from analysis.training.labelling import Credit, Facts, Segment, rows_of
from analysis.training.rows import Row, message_text, rows_from_table, rows_to_table, signed
from analysis.workspace import Snapshot, Workspace
from tests.strategies import traces

FACTS = Facts(group="task:t", split="train", order_key=0)


def team(*events: dict[str, Any], format: str = "counterpoint") -> Trace:
    """Return a run of a lead and the coder it made; events get their order and are acts unless they say otherwise."""
    return Trace(
        trace_id="counterpoint:t", world="recorded", source=Source(format=format), task=Task(text="Sort a list."),
        agents=(Agent(agent_id="lead", component="planner"), Agent(agent_id="coder", component="coder", parent_id="lead")),
        events=tuple([Event(**({"kind": "act"} | event), order=n) for n, event in enumerate(events)]),
    )  # fmt: skip


def said(trace: Trace) -> dict[str, list[tuple[str, str]]]:
    return {h.agent: [(m["role"], m["content"]) for m in h.messages] for h in histories(trace)}


def stands(trace: Trace, agent: str) -> dict[str, tuple[int, str]]:
    """Return the message of each event of an agent's first history, and the characters it spans there."""
    history = next(h for h in histories(trace) if h.agent == agent)
    texts = [message_text(message) for message in history.messages]
    return {e.event_id: (e.message, texts[e.message][e.char_from : e.char_to]) for e in history.events}


RUN = team(
    {"event_id": "s", "kind": "spawn", "agent_id": "lead", "targets": ("coder",)},
    {"event_id": "d", "kind": "delegate", "agent_id": "lead", "targets": ("coder",), "content": "Write sort.", "parents": ("s",)},
    {"event_id": "m", "action": "model_call", "agent_id": "coder", "content": "I test it.", "parents": ("d",)},
    {"event_id": "c", "action": "tool_call", "name": "run", "agent_id": "coder", "content": '{"n":null}', "parents": ("m",)},
    {"event_id": "r", "action": "tool_result", "name": "run", "agent_id": "coder", "content": "ok", "parents": ("c",)},
    {"event_id": "w", "kind": "communicate", "agent_id": "coder", "targets": ("lead",), "content": "Done.", "parents": ("r",)},
    {"event_id": "a", "kind": "aggregate", "agent_id": "lead", "content": "Sorted.", "parents": ("w",)},
    {"event_id": "e", "kind": "stop", "agent_id": "lead", "condition": "solved", "parents": ("a",)},
)


def test_what_an_agent_wrote_is_the_assistants_and_what_reached_it_the_users() -> None:
    assert said(RUN) == {
        "lead": [("user", "Sort a list."), ("assistant", "Write sort."), ("user", "Done."), ("assistant", "Sorted.")],
        "coder": [("user", "Write sort."), ("assistant", "I test it."), ("tool", "ok"), ("assistant", "Done.")],
    }


def test_every_event_has_its_characters_and_one_without_words_an_empty_span() -> None:
    assert stands(RUN, "lead") == {"s": (1, ""), "d": (1, "Write sort."), "w": (2, "Done."), "a": (3, "Sorted."), "e": (3, "")}
    assert stands(RUN, "coder") == {
        "d": (0, "Write sort."), "m": (1, "I test it."), "c": (1, '{"n":null}'), "r": (2, "ok"), "w": (3, "Done.")
    }  # fmt: skip


def test_a_call_joins_the_message_that_led_to_it_and_its_result_names_it() -> None:
    message, result = next(h for h in histories(RUN) if h.agent == "coder").messages[1:3]
    assert message["tool_calls"] == [{"id": "c", "type": "function", "function": {"name": "run", "arguments": '{"n":null}'}}]
    assert (result["tool_call_id"], result["name"]) == ("c", "run")


def test_a_stated_decision_without_words_is_its_payload_unless_a_message_led_to_it() -> None:
    split = {"kind": "spawn", "agent_id": "lead", "targets": ("coder",), "task_split": "by part"}
    assert said(team({"event_id": "s", **split}))["lead"][-1] == (
        "assistant", '{"decision":"spawn","targets":["coder"],"task_split":"by part"}',
    )  # fmt: skip
    assert said(team({"event_id": "s", **split, "basis": "derived"})) == {}
    thought = {"event_id": "m", "action": "model_call", "agent_id": "lead", "content": "Two parts."}
    led = team(thought, {"event_id": "s", **split, "parents": ("m",)})
    assert said(led)["lead"] == [("user", "Sort a list."), ("assistant", "Two parts.")]
    assert stands(led, "lead")["s"] == (1, "")


def test_a_compaction_ends_a_history() -> None:
    trace = team(
        {"event_id": "i", "action": "input", "agent_id": "lead", "content": "Sort."},
        {"event_id": "m", "action": "model_call", "agent_id": "lead", "content": "First."},
        {"event_id": "b", "action": "note", "name": "compact_boundary", "agent_id": "lead", "content": "compacted"},
        {"event_id": "u", "action": "note", "agent_id": "lead", "content": "So far: first.", "raw_type": "user"},
        {"event_id": "n", "action": "model_call", "agent_id": "lead", "content": "Second."},
        {"event_id": "h", "action": "note", "agent_id": "lead", "content": '{"hook":1}', "raw_type": "attachment/hook"},
        format="claude-code",
    )
    assert [[m["content"] for m in h.messages] for h in histories(trace)] == [["Sort.", "First."], ["So far: first.", "Second."]]


def call(event_id: str, prompt: list[dict[str, Any]], answer: str, **extra: Any) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "action": "model_call",
        "agent_id": "lead",
        "messages": tuple(prompt),
        "content": answer,
        "extra": extra,
    }


def test_prompts_that_extend_each_other_are_one_history_and_a_break_begins_the_next() -> None:
    first = [{"role": "system", "content": "Plan."}, {"role": "user", "content": "Sort."}]
    asks = {"tool_calls": [{"id": "7", "function": {"name": "run", "arguments": '{"x": 1}'}}]}
    second = [*first, {"role": "assistant", **asks}, {"role": "tool", "tool_call_id": "7", "content": "ok"}]
    trace = team(
        call("m1", first, '{"raw": 1}', answers=[{"role": "assistant", **asks}]),
        {"event_id": "t", "action": "tool_call", "name": "run", "agent_id": "lead", "raw_id": "7", "content": "ok"},
        call("m2", second, "Sorted."),
        call("m3", [{"role": "user", "content": "Anew."}], "Yes."),
    )
    whole, anew = histories(trace)
    assert [(m["role"], m["content"]) for m in whole.messages] == [
        ("system", "Plan."), ("user", "Sort."), ("assistant", ""), ("tool", "ok"), ("assistant", "Sorted."),
    ]  # fmt: skip
    assert stands(trace, "lead") == {"m1": (2, ""), "t": (2, '{"x": 1}'), "m2": (4, "Sorted.")}
    assert (whole.spoken, anew.spoken) == ({2, 4}, {1})


def test_answers_that_only_the_prompt_shows_are_no_target() -> None:
    prompt = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "one"}, {"role": "user", "content": "2?"}]
    (history,) = histories(team(call("m", prompt, "two")))
    assert history.spoken == {3}


def test_masks_and_weights_never_change_text() -> None:
    plain = list(rows_of(RUN, FACTS))
    facts = msgspec.structs.replace(
        FACTS,
        weight=2.0,
        segments=(Segment("coder", "", True, 0.5), Segment("coder", "w", False, 0.0), Segment("planner", "a", True, 3.0)),
    )
    lead, coder = list(rows_of(RUN, facts))
    assert [row.messages for row in plain] == [lead.messages, coder.messages]
    assert (lead.keep, lead.weight) == ([False, True, False, True], [2.0, 2.0, 2.0, 4.0])  # of `a` and `e`: (3 + 1) / 2
    assert (coder.keep, coder.weight) == ([False, True, False, False], [1.0, 1.0, 1.0, 0.0])


def test_credit_stands_once_raw_where_the_event_was_written() -> None:
    facts = msgspec.structs.replace(FACTS, credits={"d": Credit(0.25, 0.1, 8, "simulated")})
    found = [
        (row.agent, e.credit, e.credit_se, e.n, e.method) for row in rows_of(RUN, facts) for e in row.events if e.event_id == "d"
    ]
    assert found == [("lead", 0.25, 0.1, 8, "simulated"), ("coder", None, None, None, None)]


def recorded(trace: Trace) -> str:
    """Return everything that a trace says, as one text."""
    return json.dumps(msgspec.to_builtins(trace), ensure_ascii=False)


def is_sound(row: Row) -> None:
    assert len(row.keep) == len(row.weight) == len(row.messages)
    for event in row.events:
        assert 0 <= event.char_from <= event.char_to <= len(message_text(row.messages[event.message]))
    for keeps, message in zip(row.keep, row.messages, strict=True):
        assert isinstance(message["content"], str)
        assert message["role"] == "assistant" or not keeps
        assert all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in message.get("tool_calls", ()))
    assert signed(row) == row


@given(traces)
@settings(max_examples=30)
def test_any_trace_gives_sound_rows_that_lie_on_the_disk_as_they_are(trace: Trace) -> None:
    rows = list(rows_of(trace, FACTS))
    assert len({row.row_id for row in rows}) == len(rows)
    for row in rows:
        is_sound(row)
        for message in row.messages:
            text = message["content"]
            assert (
                not text
                or json.dumps(text, ensure_ascii=False)[1:-1] in recorded(trace)
                or '"decision"' in text
                or text[0] in "{["
            )
    assert rows_from_table(rows_to_table(rows)) == rows == list(rows_of(trace, FACTS))


@pytest.mark.parametrize(("name", "least"), [("claude-code", 0.75), ("otlp-openinference", 0.3)])
def test_real_traces_become_rows(shared_traces: Path, tmp_path: Path, name: str, least: float) -> None:
    workspace = Workspace(tmp_path / "w", create=True)
    import_paths(workspace, [shared_traces / name])
    snapshot = Snapshot(workspace)
    found = snapshot.traces(snapshot.sql("select trace_id from traces")["trace_id"].to_pylist())
    rows = [row for trace in found for row in rows_of(trace, FACTS)]
    for row in rows:
        is_sound(row)
    n_placed = len({(row.trace_id, event.event_id) for row in rows for event in row.events})
    assert n_placed >= least * sum(len(trace.events) for trace in found)
