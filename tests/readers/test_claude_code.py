"""What the Claude Code reader makes of real sessions, and of small ones made by hand, one for each known trap."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import Problem
from analysis.model import Event, Trace, decode, encode
from analysis.readers import claude_code
from analysis.readers.fragment import Assembled, Fragment
from analysis.readers.source import Source, open_source
from tests.examples import up_to

VIEWER = "claude-code-viewer/5c0375b4-57a5-4f26-b12d-d022ee4e51b7.jsonl"
SUBAGENT = "agent-sessions/subagent/0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f"
KINDS = {
    "agent-sessions/small.jsonl": "claude-code-session",
    f"{SUBAGENT}.jsonl": "claude-code-session",
    f"{SUBAGENT}/subagents/agent-a0ad4f44468bdf20d.jsonl": "claude-code-session",
    f"{SUBAGENT}/subagents/agent-a0ad4f44468bdf20d.meta.json": "claude-code-agent",
    "claude-code-log/representative_messages.jsonl": "claude-code-session",
    "claude-code-log/session_b.jsonl": "claude-code-session",
    "claude-code-transcripts/sample_session.jsonl": "claude-code-session",
    "claude-code-viewer/1af7fc5e-8455-4414-9ccd-011d40f70b2a.jsonl": "claude-code-session",
    VIEWER: "claude-code-session",
    "claude-code-viewer/agent-test-hash-123.jsonl": "claude-code-session",
    "happy/1-continue-run-ls-tool.jsonl": "claude-code-session",
    "happy/duplicate-assistant-response.jsonl": "claude-code-session",
    "happy/sync_trace_0.json": "claude-code-sync",
    "happy/sync_trace_2.json": "claude-code-sync",
    "happy/task_non_sdk.jsonl": "claude-code-session",
    "inspect_scout/agent-atest01.jsonl": "claude-code-session",
    "inspect_scout/agent_session.jsonl": "claude-code-session",
    "inspect_scout/simple_conversation.jsonl": "claude-code-session",
    "inspect_scout/slug_session_1.jsonl": "claude-code-session",
    "inspect_scout/slug_session_2.jsonl": "claude-code-session",
    "inspect_scout/tool_call_conversation.jsonl": "claude-code-session",
}
PARALLEL = "claude-code:f655555d-0faa-4e8f-a432-40ff245c1251"  # three sub-agents at once, of sync_trace_0.json
MARKERS = {"spawn", "aggregate", "stop"}


class Read(NamedTuple):
    kind: str | None
    fragments: list[Fragment]
    problems: list[Problem]


def source_of(path: Path, file: str) -> Source:
    source = open_source(path, file)
    assert isinstance(source, Source), source
    return source


def read(path: Path, file: str) -> Read:
    source = source_of(path, file)
    kind = claude_code.detect(source)
    found = list(claude_code.read(source, kind)) if kind else []
    problems = [item for item in found if isinstance(item, Problem)] + source.problems
    return Read(kind, [item for item in found if isinstance(item, Fragment)], problems)


def by_trace(fragments: Iterable[Fragment]) -> dict[str, list[Fragment]]:
    parts = defaultdict(list)
    for part in fragments:
        parts[part.trace_id].append(part)
    return dict(parts)


def read_files(folder: Path, files: dict[str, list[Any]]) -> list[Fragment]:
    """Write lines (values, or text as it stands) to files below a folder, and read them."""
    fragments = []
    for file, lines in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(v if isinstance(v, str) else json.dumps(v) for v in lines), encoding="utf-8")
        fragments += read(path, file).fragments
    return fragments


def assembled(fragments: Iterable[Fragment]) -> Assembled:
    ((trace_id, parts),) = by_trace(fragments).items()
    return claude_code.assemble(trace_id, parts)


def one(folder: Path, *lines: Any) -> Assembled:
    return assembled(read_files(folder, {"s1.jsonl": list(lines)}))


def line(uuid: str, kind: str, parent: str | None, content: Any = None, *, at: float | None = None, **fields: Any) -> Any:
    """Return a line; `at` are seconds after twelve."""
    stated = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s1", "isSidechain": False}
    if at is not None:
        stated["timestamp"] = f"2025-09-07T12:{int(at) // 60:02}:{at % 60:06.3f}Z"
    return stated | fields


def user(uuid: str, parent: str | None, content: Any, **fields: Any) -> Any:
    return line(uuid, "user", parent, **fields) | {"message": {"role": "user", "content": content}}


def said(
    uuid: str, parent: str | None, *blocks: Any, id: str | None = None, tokens: Any = None, stop: str | None = None, **f: Any
) -> Any:
    usage = None if tokens is None else {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    message = {"role": "assistant", "content": list(blocks), "id": id, "model": "claude", "usage": usage, "stop_reason": stop}
    return line(uuid, "assistant", parent, **f) | {"message": {k: v for k, v in message.items() if v is not None}}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def use(call_id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def task(call_id: str, prompt: str, role: str = "Explore", **arguments: Any) -> dict[str, Any]:
    return use(call_id, "Task", prompt=prompt, subagent_type=role, description=f"do {prompt}", **arguments)


def result(call_id: str, content: Any = "done", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def sub(agent: str, value: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a line as the file of a sub-agent has it."""
    return {**value, "isSidechain": True, "agentId": agent, **fields}


def side(value: dict[str, Any]) -> dict[str, Any]:
    """Return a line as old versions wrote it: into the session file, without an id of the sub-agent."""
    return {**value, "isSidechain": True}


def kinds(trace: Trace) -> list[tuple[str | None, str | None]]:
    return [(event.kind or event.raw_type, event.agent_id) for event in trace.events if event.kind != "act"]


def event(trace: Trace, event_id: str) -> Event:
    return next(event for event in trace.events if event.event_id == event_id)


def of_kind(trace: Trace, kind: str) -> list[Event]:
    return [event for event in trace.events if event.kind == kind]


def acts(trace: Trace, action: str) -> list[Event]:
    return [event for event in trace.events if event.action == action]


def tokens(trace: Trace) -> tuple[int, int]:
    counts = [(event.input_tokens or 0, event.output_tokens or 0) for event in trace.events]
    return sum(n for n, _ in counts), sum(n for _, n in counts)


def found(problems: list[Problem]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for problem in problems:
        counts[problem.code] += problem.n
    return dict(counts)


# --- the real files ---


@pytest.fixture(scope="module")
def real(shared_traces: Path) -> dict[str, Read]:
    return {file: read(shared_traces / "claude-code" / file, f"claude-code/{file}") for file in KINDS}


@pytest.fixture(scope="module")
def traces(real: dict[str, Read]) -> dict[str, Assembled]:
    parts = by_trace(fragment for result in real.values() for fragment in result.fragments)
    return {trace_id: claude_code.assemble(trace_id, fragments) for trace_id, fragments in parts.items()}


def records_of(path: Path) -> list[Any]:
    """Read a file without the reader's help; of the sync export, take the line inside each record."""
    whole = path.read_text(encoding="utf-8")
    if path.name.startswith("sync_trace"):
        rows = json.loads(whole)
        return [row["content"]["content"].get("data") or {"type": "user", "message": row["content"]} for row in rows]
    return [json.loads(row) for row in whole.split("\n") if row.strip()]


def test_every_real_file_is_recognised_by_content(shared_traces: Path, real: dict[str, Read]) -> None:
    files = {str(p.relative_to(shared_traces / "claude-code")) for p in (shared_traces / "claude-code").rglob("*") if p.is_file()}
    assert files == KINDS.keys()
    assert {file: result.kind for file, result in real.items()} == KINDS


def test_no_other_format_is_taken_for_a_session(shared_traces: Path) -> None:
    taken = []
    for path in shared_traces.rglob("*"):
        if path.is_file() and "claude-code" not in path.parts and isinstance(source := open_source(path, path.name), Source):
            n_problems = len(source.problems)
            taken += [path.name] if claude_code.detect(source) else []
            assert len(source.problems) == n_problems
    assert taken == []


def test_traces_and_agents_of_the_real_files(traces: dict[str, Assembled]) -> None:
    main = ("main", None, None)
    teams = {
        trace_id.removeprefix("claude-code:")[:16]: [(a.component, a.parent_id, a.extra.get("found_by")) for a in r.trace.agents]
        for trace_id, r in traces.items()
    }
    assert len(traces) == 20
    assert {trace_id: team for trace_id, team in teams.items() if team != [main]} == {
        "ses_stage0_small": [("subagent", None, None), main],
        "stage0-session": [],
        "0a1b2c3d-4e5f-40": [main, ("general-purpose", "main", "only-one-of-its-type")],
        "5c0375b4-57a5-4f": [("subagent", None, None), main, *[("general-purpose", "main", "equal-prompt")] * 2],
        "f655555d-0faa-4e": [main, *[("subagent", "main", "equal-prompt")] * 3],
        "6b5b91a5-5a00-46": [main, ("general-purpose", "main", None)],
        "a4e5b271-6948-45": [main, ("general-purpose", "main", "equal-prompt")],
        "test-session-004": [main, ("Explore", "main", "id-in-result")],
    }
    scout = traces["claude-code:test-session-004"].trace
    assert [(a.agent_id, a.extra["level"]) for a in scout.agents] == [("main", 0), ("atest01", 1)]


def test_decisions_of_a_session_with_two_sub_agents_of_one_role(traces: dict[str, Assembled]) -> None:
    trace = traces["claude-code:5c0375b4-57a5-4f26-b12d-d022ee4e51b7"].trace
    first, second = (agent.agent_id for agent in trace.agents[2:])
    assert kinds(trace) == [
        ("stop", "test-hash-123"),
        ("spawn", "main"),
        ("delegate", "main"),
        ("stop", first),
        ("communicate", first),
        ("spawn", "main"),
        ("delegate", "main"),
        ("stop", second),
        ("communicate", second),
        ("aggregate", "main"),
        ("stop", "main"),
    ]
    (merge,) = of_kind(trace, "aggregate")
    assert merge.merge_points == tuple(event.event_id for event in of_kind(trace, "communicate"))
    assert [e.extra["totalTokens"] for e in of_kind(trace, "communicate")] == [13751, 20218]
    refused = next(e for e in acts(trace, "tool_call") if e.name == "Task")
    answer = next(e for e in acts(trace, "tool_result") if e.parents == (refused.event_id,))
    assert (answer.error or "").startswith("<tool_use_error>InputValidationError")


def test_three_sub_agents_work_at_the_same_time(traces: dict[str, Assembled]) -> None:
    """The session of 45.6, 174.6 and 210.1 s that formats.md names is not among these files; this one is as parallel."""
    trace = traces[PARALLEL].trace
    spans = {}
    for message in of_kind(trace, "communicate"):
        mine = [event.t_start_s for event in trace.events if event.agent_id == message.agent_id and event.t_start_s]
        spans[message.agent_id] = (min(mine), round(max(mine) - min(mine), 3))
    began = datetime.fromisoformat("2025-07-27T23:39:18.028Z").timestamp()
    assert trace.clock == "unix"
    assert list(spans.values()) == [(began, 43.648), (began, 50.252), (began, 57.559)]
    (merge,) = of_kind(trace, "aggregate")
    assert len(merge.merge_points) == 3


def counted(records: list[Any]) -> dict[str, int]:
    """Count tokens as the provider bills them: the last figures of each message; written anew for this test."""
    last: dict[str, Any] = {}
    for record in sorted(records, key=lambda r: r.get("timestamp", "")):
        message = record.get("message", {})
        if record["type"] == "assistant" and "usage" in message:
            last[message["id"]] = message["usage"]
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return {name: sum(usage.get(name, 0) for usage in last.values()) for name in names}


@pytest.mark.parametrize("file", [file for file, kind in KINDS.items() if kind != "claude-code-agent"])
def test_tokens_are_counted_once_a_message_with_the_last_figures(shared_traces: Path, real: dict[str, Read], file: str) -> None:
    told: Counter[str] = Counter()
    for trace_id, fragments in by_trace(real[file].fragments).items():
        for call in acts(claude_code.assemble(trace_id, fragments).trace, "model_call"):
            told.update({"input_tokens": call.input_tokens or 0, "output_tokens": call.output_tokens or 0})
            told.update({k: v for k, v in call.extra.items() if k.startswith("cache_")})
    assert +told == +Counter(counted(records_of(shared_traces / "claude-code" / file)))


def test_token_totals_of_the_longest_sessions(traces: dict[str, Assembled]) -> None:
    assert tokens(traces[PARALLEL].trace) == (1542, 4498)
    assert tokens(traces["claude-code:5c0375b4-57a5-4f26-b12d-d022ee4e51b7"].trace) == (229, 3639)
    assert tokens(traces["claude-code:a4e5b271-6948-4581-893b-4595c9ec41ea"].trace) == (25, 1163)


def pieces(record: Any) -> Iterator[str]:
    """Yield what a line says, each part that is to be the content of one event."""
    content = record["message"]["content"]
    blocks = [text(content)] if isinstance(content, str) else [content] if isinstance(content, dict) else content
    plain = [block["text"] for block in blocks if block["type"] == "text"]
    yield from ["\n\n".join(plain)] if record["type"] == "user" and plain else plain
    for block in blocks:
        if block["type"] == "thinking":
            yield block["thinking"]
        elif block["type"] == "tool_use":
            prompt = block["input"].get("prompt") if block["name"] == "Task" else None
            yield prompt or json.dumps(block["input"], separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        elif block["type"] == "tool_result":
            inner = block["content"]
            yield inner if isinstance(inner, str) else "\n\n".join(part["text"] for part in inner)


@pytest.mark.parametrize("file", [file for file, kind in KINDS.items() if kind != "claude-code-agent"])
def test_each_line_is_told_by_one_event_a_part(shared_traces: Path, real: dict[str, Read], file: str) -> None:
    told: Counter[str] = Counter()
    n_notes = n_copies = 0
    for trace_id, fragments in by_trace(real[file].fragments).items():
        trace, problems = claude_code.assemble(trace_id, fragments)
        notes = [e for e in trace.events if not (e.raw_type or "user").startswith(("user", "assistant"))]
        n_notes += len(notes)
        n_copies += found(problems).get("duplicate-record", 0)
        for event in trace.events:
            is_json = event.kind == "delegate" or event.action == "tool_call"
            if event.kind not in (*MARKERS, None) and event.content is not None and event not in notes:
                told[canonical(event.content) if is_json else event.content] += 1
    records = records_of(shared_traces / "claude-code" / file)
    conversation = [r for r in records if r["type"] in ("user", "assistant")]
    assert n_notes == len(records) - len(conversation)
    expected = Counter(piece for record in conversation for piece in pieces(record))
    assert told - expected == Counter()
    assert (expected - told).total() == n_copies  # each copy of these files has one part


def canonical(content: str) -> str:
    try:
        return json.dumps(json.loads(content), separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    except json.JSONDecodeError:
        return content


def test_the_order_of_the_files_does_not_matter(real: dict[str, Read], traces: dict[str, Assembled]) -> None:
    fragments = [fragment for result in real.values() for fragment in result.fragments]
    for seed in range(3):
        random.Random(seed).shuffle(fragments)
        assert {i: claude_code.assemble(i, parts) for i, parts in by_trace(fragments).items()} == traces


def test_real_traces_survive_the_native_format(traces: dict[str, Assembled]) -> None:
    for result in traces.values():
        assert decode(encode(result.trace)) == result.trace


def test_every_event_follows_earlier_ones(traces: dict[str, Assembled]) -> None:
    for result in traces.values():
        order = {event.event_id: event.order for event in result.trace.events}
        assert all(order[parent] < event.order for event in result.trace.events for parent in event.parents)


def test_what_only_names_say_is_reported(real: dict[str, Read]) -> None:
    codes = {file: sorted(found(result.problems)) for file, result in real.items() if result.problems}
    assert codes == {
        f"{SUBAGENT}/subagents/agent-a0ad4f44468bdf20d.jsonl": ["id-from-name"],
        f"{SUBAGENT}/subagents/agent-a0ad4f44468bdf20d.meta.json": ["id-from-name"],
        "claude-code-viewer/agent-test-hash-123.jsonl": ["agent-from-name"],
        "inspect_scout/agent-atest01.jsonl": ["agent-from-name"],
    }


# --- the public faults, by their number in formats.md, section 6 ---


def test_trap_1_the_last_figures_of_a_message_count_and_its_other_blocks_have_none(tmp_path: Path) -> None:
    trace = one(
        tmp_path,
        user("u1", None, "go", at=0),
        said("a1", "u1", {"type": "thinking", "thinking": "hm"}, id="m1", tokens=(4, 1), at=1),
        said("a2", "a1", text("I look."), id="m1", tokens=(4, 3), at=2),
        said("a3", "a2", use("t1", command="ls"), id="m1", tokens=(4, 263), stop="tool_use", at=3),
        user("u2", "a3", [result("t1", "a.txt")], at=5),
    ).trace
    assert [(e.action, e.event_id, e.content, e.output_tokens, e.parents) for e in trace.events if e.kind == "act"] == [
        ("input", "u1", "go", None, ()),
        ("model_call", "a2", "I look.", 263, ("u1",)),
        ("note", "a1", "hm", None, ("a2",)),
        ("tool_call", "a3", '{"command":"ls"}', None, ("a2",)),
        ("tool_result", "u2", "a.txt", None, ("a3",)),
    ]
    call, tool = event(trace, "a2"), event(trace, "a3")
    assert (call.t_end_s or 0) - (call.t_start_s or 0) == 2
    assert call.extra == {"message_id": "m1", "stop_reason": "tool_use", "t_end_rule": "last-line-of-message"}
    assert ((tool.t_end_s or 0) - (tool.t_start_s or 0), tool.name, tool.extra) == (2, "Bash", {"t_end_rule": "line-of-result"})


def test_trap_2_lines_without_a_request_id_join_the_message(tmp_path: Path) -> None:
    trace = one(
        tmp_path,
        said("a1", None, text("a"), id="m1", tokens=(4, 10), at=1),
        said("a2", "a1", use("t1"), id="m1", tokens=(4, 20), at=2, requestId="r1"),
        said("a3", "a2", text("b"), id="m2", tokens=(5, 7), at=3),
    ).trace
    assert tokens(trace) == (9, 27)
    assert [e.extra.get("request_id") for e in acts(trace, "model_call")] == ["r1", None]


def test_trap_2_one_message_id_under_two_request_ids_is_two_calls(tmp_path: Path) -> None:
    lines = [said(f"a{n}", None, text(f"{n}"), id="m", tokens=(1, n), at=n, requestId=f"r{n}") for n in (1, 2)]
    assert tokens(one(tmp_path, *lines).trace) == (2, 3)


@pytest.mark.parametrize("agent_file", ["s1/subagents/agent-x1.jsonl", "agent-x1.jsonl"])
def test_traps_3_to_6_lines_that_a_sub_agent_repeats_from_its_parent_count_once(tmp_path: Path, agent_file: str) -> None:
    parent = [user("u1", None, "go", at=0), said("a1", "u1", text("on it"), task("t1", "p"), id="m1", tokens=(10, 5), at=1)]
    copies = [sub("x1", parent[0]), sub("x1", parent[1] | {"uuid": "new"})]
    own = [sub("x1", user("b1", "new", "p", at=2)), sub("x1", said("b2", "b1", text("ok"), id="m2", tokens=(1, 2), at=3))]
    trace, problems = assembled(read_files(tmp_path, {"s1.jsonl": parent, agent_file: [*copies, *own]}))
    assert tokens(trace) == (11, 7)
    assert [e.agent_id for e in acts(trace, "model_call")] == ["main", "x1"]
    assert event(trace, "b1").parents == ("a1.1",)
    assert found(problems) == {"duplicate-record": 2}


def test_trap_4_a_resumed_session_that_copies_lines_counts_them_once(tmp_path: Path) -> None:
    lines = [user("u1", None, "go", at=0), said("a1", "u1", text("yes"), id="m1", tokens=(3, 4), at=1)]
    more = [user("u2", "a1", "more", at=9), said("a2", "u2", text("done"), id="m2", tokens=(5, 6), at=10)]
    moved = [value | {"cwd": "/elsewhere", "version": "2.1.0"} for value in lines]
    trace, problems = assembled(read_files(tmp_path, {"s1.jsonl": lines, "resumed.jsonl": [*moved, *more]}))
    assert [e.event_id for e in trace.events] == ["u1", "a1", "u2", "a2", "a2.stop"]
    assert tokens(trace) == (8, 10)
    assert found(problems) == {"duplicate-record": 2}


def test_trap_4_messages_replayed_in_progress_lines_are_not_counted(tmp_path: Path) -> None:
    inner = said("b1", None, text("ok"), id="m2", tokens=(100, 100))
    trace = one(
        tmp_path,
        said("a1", None, task("t1", "p"), id="m1", tokens=(1, 1), at=1),
        line(
            "p1", "progress", "a1", at=2, parentToolUseID="t1", data={"type": "agent_progress", "agentId": "x1", "message": inner}
        ),
        user("u1", "a1", [result("t1")], at=3),
    ).trace
    assert tokens(trace) == (1, 1)
    assert [(a.agent_id, a.extra.get("found_by")) for a in trace.agents] == [("main", None), ("x1", "id-in-progress")]


def test_trap_7_equal_figures_on_each_block_count_once(tmp_path: Path) -> None:
    blocks = [use(f"t{n}") for n in range(3)]
    lines = [said(f"a{n}", f"a{n - 1}" if n else None, block, id="m", tokens=(7, 302), at=n) for n, block in enumerate(blocks)]
    trace = one(tmp_path, *lines).trace
    assert tokens(trace) == (7, 302)
    assert [e.event_id for e in trace.events if e.action] == ["a0.call", "a0", "a1", "a2"]


@pytest.mark.parametrize("is_old", [True, False])
def test_trap_8_five_levels_stay_five_levels(tmp_path: Path, is_old: bool) -> None:
    files: dict[str, list[Any]] = defaultdict(list)
    for n in range(6):
        opening = user(f"u{n}", None, f"p{n}", at=n)
        calling = said(
            f"a{n}",
            f"u{n}",
            task(f"t{n + 1}", f"p{n + 1}", role=f"role{n + 1}") if n < 5 else text("done"),
            id=f"m{n}",
            at=n + 0.5,
        )
        dress = (lambda value: value) if n == 0 else side if is_old else lambda value, n=n: sub(f"x{n}", value)
        files["s1.jsonl" if n == 0 or is_old else f"s1/subagents/agent-x{n}.jsonl"] += [dress(opening), dress(calling)]
    trace, problems = assembled(read_files(tmp_path, files))
    names = [f"t{n}" if is_old else f"x{n}" for n in range(1, 6)]
    assert [(a.agent_id, a.component, a.parent_id, a.extra["level"]) for a in trace.agents] == [
        ("main", "main", None, 0),
        *[(name, f"role{n}", parent, n) for n, (name, parent) in enumerate(zip(names, ["main", *names], strict=False), 1)],
    ]
    assert problems == []


def test_trap_9_a_sub_agent_without_any_name_is_not_the_main_agent(tmp_path: Path) -> None:
    trace, problems = one(
        tmp_path,
        user("u1", None, "go", at=0),
        side(user("b1", None, "look", at=1)),
        side(said("b2", "b1", text("ok"), id="m", at=2)),
    )
    assert [(a.agent_id, a.component, a.parent_id) for a in trace.agents] == [("main", "main", None), ("b1", "subagent", None)]
    assert event(trace, "b2").agent_id == "b1"
    assert [(p.code, p.got) for p in problems] == [("orphan", "sub-agent b1")]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(
    ("bad", "code"), [('{"type": "user", "uu', "truncated"), ('{"a": "unterminated', "truncated"), ("{nonsense}", "bad-json")]
)
def test_traps_10_and_11_a_damaged_line_costs_itself_only(tmp_path: Path, at: int, bad: str, code: str) -> None:
    lines: list[Any] = [user("u1", None, "go", at=0), said("a1", "u1", text("yes"), id="m", at=1)]
    lines.insert(at, bad)
    (tmp_path / "s1.jsonl").write_text("\n".join(v if isinstance(v, str) else json.dumps(v) for v in lines))
    result = read(tmp_path / "s1.jsonl", "s1.jsonl")
    assert [(p.code, p.record) for p in result.problems] == [(code, f"line {at + 1}")]
    assert [e.event_id for e in assembled(result.fragments).trace.events] == ["u1", "a1", "a1.stop"]


def test_trap_12_attachments_in_a_chain_do_not_break_it(tmp_path: Path) -> None:
    lines: list[Any] = [user("u0", None, "go", at=0)]
    for n in range(1, 132):
        lines.append(line(f"n{n}", ("attachment", "progress", "system")[n % 3], lines[-1]["uuid"], at=n - 0.5))
        lines.append(
            user(f"u{n}", f"n{n}", "go on", at=n) if n % 2 == 0 else said(f"u{n}", f"n{n}", text("well"), id=f"m{n}", at=n)
        )
    trace, problems = one(tmp_path, *lines)
    talk = [e for e in trace.events if e.action in ("input", "model_call")]
    assert [e.parents for e in talk] == [(), *[(f"u{n}",) for n in range(131)]]
    assert {e.extra.get("parent_rule") for e in talk[1:]} == {"over-notes"}
    assert problems == []


def test_trap_12_missing_lines_are_bridged_by_named_rules(tmp_path: Path) -> None:
    trace, problems = one(
        tmp_path,
        user("u1", "gone", "go", at=0),
        said("a1", "gone", text("I look."), id="m1", at=1),
        said("a2", "gone", use("t1"), id="m1", at=2),
        user("u2", "gone", [text("and?")], at=3),
        user("u3", "gone", [result("t1")], at=4),
    )
    assert {e.event_id: (e.parents, e.extra.get("parent_rule")) for e in trace.events if e.action} == {
        "u1": ((), None),
        "a1": (("u1",), "nearest-earlier"),
        "a2": (("a1",), None),
        "u2": (("a2",), "nearest-earlier"),
        "u3": (("a2",), None),
    }
    assert [(p.code, p.got, p.n) for p in problems] == [("orphan", "u1", 1)]


def test_trap_12_lines_of_parallel_old_sub_agents_are_bridged_to_their_own(tmp_path: Path) -> None:
    lines = [
        said("a1", None, task("t1", "p"), task("t2", "q"), id="m", at=0),
        side(user("b1", None, "p", at=1)),
        side(said("b2", "b1", text("I look."), id="m1", at=2)),
        side(user("c1", None, "q", at=3)),
        side(said("b3", "gone", use("t3"), id="m1", at=4)),
        side(said("c2", "c1", use("t4"), id="m2", at=5)),
        side(user("b4", "gone", [result("t3")], at=6)),
        side(user("c3", "gone", [result("t4")], at=7)),
        side(user("c4", "gone", [text("and?")], at=8)),
    ]
    trace, problems = one(tmp_path, *lines)
    owners = {e.event_id: e.agent_id for e in trace.events if e.agent_id in ("t1", "t2") and e.kind == "act"}
    assert owners == {"b1": "t1", "b2": "t1", "b3": "t1", "b4": "t1"} | {f"c{n}": "t2" for n in (1, 2, 3, 4)} | {"c2.call": "t2"}
    assert problems == []


def test_trap_13_one_agent_id_in_two_sessions_is_two_agents(tmp_path: Path) -> None:
    files: dict[str, list[Any]] = {}
    for session in ("s1", "s2"):
        call = said(f"{session}-a", None, task("t1", f"for {session}"), at=1, sessionId=session)
        files[f"{session}.jsonl"] = [call]
        files[f"{session}/subagents/agent-x1.jsonl"] = [
            sub("x1", user(f"{session}-b", None, f"for {session}", at=2), sessionId="agent-x1")
        ]
    parts = by_trace(read_files(tmp_path, files))
    assert sorted(parts) == ["claude-code:s1", "claude-code:s2"]
    for trace_id, fragments in parts.items():
        trace = claude_code.assemble(trace_id, fragments).trace
        assert [e.content for e in trace.events if e.agent_id == "x1" and e.action] == [f"for {trace_id[-2:]}"]


def test_trap_14_without_an_id_in_the_result_equal_prompts_link(tmp_path: Path) -> None:
    trace, problems = one(
        tmp_path,
        said("a1", None, task("t1", "p"), task("t2", "q"), task("t3", "p"), id="m", at=0),
        side(user("b1", None, "p", at=1)),
        side(user("c1", None, "q", at=1.1)),
        side(user("d1", None, "p\n", at=1.2)),
        user("u1", "a1", [result("t1", "one"), result("t2", "two"), result("t3", "three")], at=5),
    )
    asked = {e.event_id: e.parents for e in acts(trace, "input")}
    assert asked == {"b1": ("a1",), "c1": ("a1.1",), "d1": ("a1.2",)}
    assert [(e.agent_id, e.content, e.targets) for e in of_kind(trace, "communicate")] == [
        ("t1", "one", ("main",)),
        ("t2", "two", ("main",)),
        ("t3", "three", ("main",)),
    ]
    assert [a.component for a in trace.agents] == ["main", "Explore", "Explore", "Explore"]
    assert problems == []


def test_trap_14_the_only_call_and_the_only_sub_agent_of_a_type_belong_together(tmp_path: Path) -> None:
    files = {
        "s1.jsonl": [said("a1", None, *[use(f"t{n}", "Task", subagent_type=role) for n, role in enumerate("abb")], id="m", at=0)],
        "x.jsonl": [sub(f"x{n}", user(f"b{n}", None, "hi", at=1 + n), attributionAgent=role) for n, role in enumerate("abb")],
    }
    trace, problems = assembled(read_files(tmp_path, files))
    assert {a.agent_id: a.parent_id for a in trace.agents} == {
        **{"main": None, "x0": "main", "t1": "main", "t2": "main"},
        **{"x1": None, "x2": None},  # two of a kind: nothing says which is which
    }
    assert [(p.code, p.got, p.n) for p in problems] == [("orphan", "sub-agent x1", 2)]


def test_trap_14_a_sub_agent_tied_by_its_id_takes_no_other_call_of_the_same_prompt(tmp_path: Path) -> None:
    trace = one(
        tmp_path,
        said("a1", None, task("t1", "p"), task("t2", "p"), id="m", at=0),
        sub("x1", user("b1", None, "p", at=1)),
        user("u1", "a1", [result("t2")], at=2, toolUseResult={"agentId": "x1"}),
    ).trace
    assert [(a.agent_id, a.extra.get("found_by")) for a in trace.agents] == [("main", None), ("t1", None), ("x1", "id-in-result")]
    assert event(trace, "b1").parents == ("a1.1",)


# --- spawn, delegate, communicate, aggregate, stop ---


def test_one_call_is_a_spawn_and_a_delegation_and_its_result_a_message(tmp_path: Path) -> None:
    noted = {"agentId": "x1", "status": "completed", "totalTokens": 12, "content": "kept once"}
    trace = one(
        tmp_path,
        user("u1", None, "go", at=0),
        said("a1", "u1", text("I ask."), task("t1", "find it", model="small"), id="m1", at=1),
        user("u2", "a1", [result("t1", [text("found"), {"type": "image"}])], at=9, toolUseResult=noted),
        said("a2", "u2", text("It is there."), id="m2", stop="end_turn", at=10),
    ).trace
    spawn, delegate, message, merge, stop = (e for e in trace.events if e.kind != "act")
    assert (spawn.kind, spawn.targets, spawn.assignment, spawn.task_split) == (
        "spawn",
        ("x1",),
        {"x1": "do find it"},
        "do find it",
    )
    assert (spawn.content, spawn.parents, delegate.parents) == (None, ("a1",), (spawn.event_id,))
    assert (delegate.kind, delegate.content, delegate.raw_id, delegate.name) == ("delegate", "find it", "t1", "Task")
    assert delegate.extra == {"input": {"subagent_type": "Explore", "description": "do find it", "model": "small"}}
    assert (message.kind, message.agent_id, message.targets, message.parents) == ("communicate", "x1", ("main",), ("a1.1",))
    assert (message.content, message.extra) == ("found", {"blocks": ["image"], "status": "completed", "totalTokens": 12})
    assert (merge.kind, merge.merge_points, merge.basis, merge.rule) == (
        "aggregate",
        ("u2",),
        "derived",
        "first-text-after-results",
    )
    assert event(trace, "a2").parents == ("u2", merge.event_id)
    assert (stop.kind, stop.condition, stop.basis, stop.agent_id) == ("stop", "end_turn", "explicit", "main")
    assert {e.basis for e in (spawn, delegate, message)} == {"explicit"}


def test_results_are_merged_when_the_last_one_is_there(tmp_path: Path) -> None:
    trace = one(
        tmp_path,
        said("a1", None, task("t1", "p"), task("t2", "q"), id="m1", at=1),
        user("u1", "a1", [result("t1", "one")], at=2),
        said("a2", "u1", text("One is back."), id="m2", at=3),
        user("u2", "a2", [result("t2", "two")], at=4),
        said("a3", "u2", use("t3"), id="m3", at=5),
        user("u3", "a3", [result("t3")], at=6),
        said("a4", "u3", text("Both say the same."), id="m4", at=7),
    ).trace
    (merge,) = of_kind(trace, "aggregate")
    assert (merge.event_id, merge.merge_points) == ("a4.aggregate", ("u1", "u2"))


def test_a_background_sub_agent_answers_by_its_notification(tmp_path: Path) -> None:
    notification = "<task-notification>\n<task-id>x1</task-id>\n<tool-use-id>t1</tool-use-id>\n<result>found</result>"
    other = "<task-notification>\n<task-id>b7</task-id>\n<summary>a command ended</summary>"
    trace = one(
        tmp_path,
        said("a1", None, task("t1", "p", run_in_background=True), id="m1", at=1),
        user("u1", "a1", [result("t1", "launched")], at=2, toolUseResult={"status": "async_launched", "agentId": "x1"}),
        said("a2", "u1", text("It works on it."), id="m2", at=3),
        user("u2", "a2", other, at=4),
        user("u3", "u2", notification, at=5),
        said("a3", "u3", text("Found."), id="m3", at=6),
    ).trace
    assert [(e.kind, e.action, e.agent_id) for e in trace.events if e.raw_type in ("user", "user/tool_result")] == [
        ("act", "tool_result", "main"),
        ("act", "note", "main"),
        ("communicate", None, "x1"),
    ]
    assert [e.merge_points for e in of_kind(trace, "aggregate")] == [("u3",)]
    assert event(trace, "u3").message_type == "notification"


def test_a_sub_agent_that_is_asked_again_is_spawned_once(tmp_path: Path) -> None:
    files = {
        "s1.jsonl": [
            said("a1", None, task("t1", "p"), id="m1", at=1),
            user("u1", "a1", [result("t1", "one")], at=4, toolUseResult={"agentId": "x1"}),
            said("a2", "u1", task("t2", "q", resume="x1"), id="m2", at=5),
            user("u2", "a2", [result("t2", "two")], at=8, toolUseResult={"agentId": "x1"}),
        ],
        "s1/subagents/agent-x1.jsonl": [
            sub("x1", user("b1", None, "p", at=2)),
            sub("x1", said("b2", "b1", text("one"), id="m3", at=3)),
            sub("x1", user("b3", "b2", "q", at=6)),
            sub("x1", said("b4", "b3", text("two"), id="m4", at=7)),
        ],
    }
    trace, problems = assembled(read_files(tmp_path, files))
    assert [a.agent_id for a in trace.agents] == ["main", "x1"]
    assert len(of_kind(trace, "spawn")) == 1
    assert [event(trace, name).parents for name in ("b1", "b3", "u1", "u2")] == [("a1",), ("a2",), ("b2",), ("b4",)]
    assert problems == []


def test_a_call_that_failed_before_anything_ran_starts_nobody(tmp_path: Path) -> None:
    failed = result("t1", "<tool_use_error>no prompt</tool_use_error>", is_error=True)
    trace = one(
        tmp_path, said("a1", None, use("t1", "Task", subagent_type="x"), id="m", at=1), user("u1", "a1", [failed], at=2)
    ).trace
    assert [a.agent_id for a in trace.agents] == ["main"]
    assert [(e.action, e.error) for e in trace.events if e.kind == "act"] == [
        ("model_call", None),
        ("tool_call", None),
        ("tool_result", "<tool_use_error>no prompt</tool_use_error>"),
    ]


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        ([said("a", "u", text("x"), id="m", stop="end_turn")], ("end_turn", "explicit", None)),
        ([said("a", "u", text("x"), id="m", stop="max_tokens")], ("max_tokens", "explicit", None)),
        ([said("a", "u", text("x"), id="m")], (None, "derived", "answer-without-call")),
        ([said("a", "u", use("t1"), id="m", stop="tool_use")], ("killed", "derived", "open-end")),
        ([said("a", "u", use("t1"), id="m"), user("r", "a", [result("t1")])], ("killed", "derived", "open-end")),
        ([], ("killed", "derived", "open-end")),
        ([user("i", "u", [text("[Request interrupted by user]")])], ("[Request interrupted by user]", "explicit", None)),
        ([user("i", "u", "<command-name>/exit</command-name>")], ("exit", "explicit", None)),
        (
            [said("a", "u", text("x"), id="m", stop="end_turn"), line("h", "system", "a", subtype="stop_hook_summary")],
            ("end_turn", "explicit", None),
        ),
    ],
)
def test_how_a_session_ended(tmp_path: Path, lines: list[Any], ending: tuple[Any, ...]) -> None:
    (stop,) = of_kind(one(tmp_path, user("u", None, "go"), *lines).trace, "stop")
    assert (stop.condition, stop.basis, stop.rule) == ending


def test_a_cut_sub_agent_ended_with_the_result_of_its_call(tmp_path: Path) -> None:
    cut = result("t1", "[Request interrupted by user for tool use]", is_error=True)
    trace = one(
        tmp_path,
        said("a1", None, task("t1", "p"), id="m", at=1),
        side(user("b1", None, "p", at=2)),
        user("u1", "a1", [cut], at=3),
    ).trace
    assert [(e.agent_id, e.condition, e.rule) for e in of_kind(trace, "stop")] == [
        ("t1", "[Request interrupted by user for tool use]", "result-came-back"),
        ("main", "[Request interrupted by user for tool use]", None),
    ]
    assert of_kind(trace, "aggregate") == []


def test_what_was_said_is_heard_by_the_first_model_call_behind_it(tmp_path: Path) -> None:
    trace = one(
        tmp_path,
        user("u1", None, "go", at=1),
        user("u2", "u1", "and quickly", at=2),
        said("a1", "u2", text("yes"), id="m1", at=3),
        said("a2", "u2", text("yes, asked again"), id="m2", at=4),
        said("a3", "a2", text("more"), id="m3", at=5),
    ).trace
    assert [event(trace, name).parents for name in ("a1", "a2", "a3")] == [("u1", "u2"), ("u2",), ("a2",)]


def test_a_sub_agent_begins_behind_its_call_whatever_its_first_line_says_it_follows(tmp_path: Path) -> None:
    files = {
        "agent-x1.jsonl": [sub("x1", user("b1", "u1", "p"))],
        "s1.jsonl": [user("u1", None, "go"), said("a1", "u1", task("t1", "p"), id="m")],
    }
    trace = assembled(read_files(tmp_path, files)).trace
    assert event(trace, "b1").parents == ("a1",)


# --- files and fragments ---


def test_a_sub_agent_file_that_names_its_parent_joins_it(tmp_path: Path) -> None:
    result = read_files(tmp_path, {"anywhere/agent-x1.jsonl": [sub("x1", user("b1", None, "p", at=1))]})
    assert [(f.trace_id, f.primary) for f in result] == [("claude-code:s1", True)]


def test_a_lone_sub_agent_file_under_its_own_id_is_a_trace(tmp_path: Path) -> None:
    lines = [sub("x1", user("b1", None, "p", at=1), sessionId="agent-x1")]
    trace, problems = assembled(read_files(tmp_path, {"agent-x1.jsonl": lines}))
    assert (trace.trace_id, trace.task.text, trace.source.file) == ("claude-code:agent-x1", "p", "agent-x1.jsonl")
    assert [(a.agent_id, a.parent_id) for a in trace.agents] == [("x1", None)]
    assert [(p.code, p.got, p.expected) for p in problems] == [("orphan", "sub-agent x1", "the call that started it")]


def test_what_stands_beside_a_sub_agents_lines_waits_for_them_and_links_them(tmp_path: Path) -> None:
    files = {
        "s1/subagents/agent-x1.meta.json": [{"agentType": "scout", "toolUseId": "t2", "spawnDepth": 1}],
        "s1/subagents/agent-x1.jsonl": [sub("x1", user("b1", None, "reworded", at=2))],
        "s1.jsonl": [said("a1", None, use("t1", "Agent", prompt="p"), use("t2", "Agent", prompt="q"), at=1)],
    }
    fragments = read_files(tmp_path, files)
    assert [(f.part[:5], f.primary) for f in fragments] == [("meta:", False), ("lines", True), ("lines", True)]
    trace = assembled(fragments).trace
    assert [(a.agent_id, a.component, a.extra.get("found_by")) for a in trace.agents] == [
        ("main", "main", None),
        ("t1", "subagent", None),
        ("x1", "scout", "call-beside-lines"),
    ]
    assert event(trace, "b1").parents == ("a1.1",)


def test_a_role_that_only_the_sub_agents_lines_name_is_its_component(tmp_path: Path) -> None:
    call = said("a1", None, use("t1", "Agent", prompt="p"), at=1)
    lines = [user("b1", None, "p", at=2), said("b2", "b1", text("ok"), at=3, attributionAgent="scout")]
    trace = assembled(read_files(tmp_path, {"s1.jsonl": [call], "agent-x1.jsonl": [sub("x1", value) for value in lines]})).trace
    assert [(a.agent_id, a.component, a.extra.get("found_by")) for a in trace.agents] == [
        ("main", "main", None),
        ("x1", "scout", "equal-prompt"),
    ]


def test_lines_come_in_chunks_and_a_grown_file_repeats_all_but_the_last(tmp_path: Path) -> None:
    lines = [user(f"u{n}", f"u{n - 1}" if n else None, "go", at=n) for n in range(1200)]
    short = read_files(tmp_path, {"s1.jsonl": lines[:1100]})
    grown = read_files(tmp_path, {"s1.jsonl": lines})
    assert [f.record for f in grown] == ["line 1 to line 500", "line 501 to line 1000", "line 1001 to line 1200"]
    assert [f.part for f in short[:2]] == [f.part for f in grown[:2]]
    assert all(f.part == f"lines:{f.digest}" for f in grown)
    trace, problems = assembled([*short, grown[2]])
    assert len(trace.events) == 1201
    assert problems == []


def test_lines_of_several_sessions_in_one_file_are_several_traces(tmp_path: Path) -> None:
    lines = [
        {"type": "summary", "summary": "Greeting", "leafUuid": "u1"},
        user("u1", None, "hello", at=1),
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
        user("u2", "u1", "again", at=2, sessionId="s2"),
    ]
    parts = by_trace(read_files(tmp_path, {"any.jsonl": lines}))
    told = {trace_id: claude_code.assemble(trace_id, fragments) for trace_id, fragments in parts.items()}
    assert {i: [e.raw_type for e in r.trace.events if e.raw_type] for i, r in told.items()} == {
        "claude-code:s1": ["summary", "user", "file-history-snapshot"],
        "claude-code:s2": ["user"],
    }
    assert told["claude-code:s1"].trace.task.extra == {"title": "Greeting"}
    assert found(told["claude-code:s2"].problems) == {"orphan": 1}


def test_lines_that_name_no_session_take_it_from_the_file_name(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"type": "summary", "summary": "Greeting", "leafUuid": "u1"}\n')
    result = read(tmp_path / "x.jsonl", "folder/x.jsonl")
    assert [f.trace_id for f in result.fragments] == ["claude-code:x"]
    assert [(p.code, p.got) for p in result.problems] == [("id-from-name", "x")]


def test_a_session_is_recognised_behind_what_it_starts_with(tmp_path: Path) -> None:
    starts: list[Any] = ["", "{broken", {"type": "mode"}, {"type": "zork"}, {"type": "summary"}]
    assert read_files(tmp_path, {"s1.jsonl": [*starts, user("u1", None, "go")]})[0].trace_id == "claude-code:s1"


@pytest.mark.parametrize(
    "value",
    [
        {"type": "assistant", "uuid": "u", "sessionId": "s", "message": {"role": "model", "parts": []}},
        {"type": "system", "uuid": "u", "sessionId": "s", "systemPayload": {}},
        {"type": "user", "uuid": "u", "session_id": "s", "message": {"role": "user", "content": "of a stream"}},
        {"type": "summary", "summary": "of something else"},
        {"agentType": "general-purpose"},
        {"timestamp": "2025-09-07T12:00:00Z", "type": "response_item", "payload": {}},
    ],
)
def test_lines_of_other_programs_are_not_taken(tmp_path: Path, value: Any) -> None:
    (tmp_path / "x.jsonl").write_text(f"{json.dumps(value)}\n" * 2)
    assert claude_code.detect(source_of(tmp_path / "x.jsonl", "x.jsonl")) is None


def test_a_line_nested_too_deeply_is_named_and_the_rest_loads(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(120):
        deep = [deep]
    (tmp_path / "s1.jsonl").write_text("\n".join(json.dumps(v) for v in [user("u1", None, "go"), user("u2", "u1", deep)]))
    result = read(tmp_path / "s1.jsonl", "s1.jsonl")
    assert [(p.code, p.record) for p in result.problems] == [("too-deep", "line 2")]
    assert [e.event_id for e in assembled(result.fragments).trace.events] == ["u1", "u1.stop"]


# --- what lines say ---


def test_times_without_a_zone_stay_naive(tmp_path: Path) -> None:
    trace = one(tmp_path, user("u1", None, "go", timestamp="2025-09-07T12:00:00.5")).trace
    assert (trace.clock, trace.events[0].t_start_s) == ("naive", datetime.fromisoformat("2025-09-07T12:00:00.5Z").timestamp())


def test_times_that_do_not_fit_are_left_out_and_named(tmp_path: Path) -> None:
    trace, problems = one(
        tmp_path,
        user("u1", None, "go", timestamp="2025-09-07T14:00:00+02:00"),
        user("u2", "u1", "no zone", timestamp="2025-09-07T12:00:01"),
        user("u3", "u2", "no time", timestamp="yesterday"),
        user("u4", "u3", "no text", timestamp=1757246400),
    )
    assert trace.clock == "unix"
    assert [e.t_start_s for e in trace.events[:4]] == [
        datetime.fromisoformat("2025-09-07T12:00:00Z").timestamp(),
        None,
        None,
        None,
    ]
    assert {(p.code, p.expected): p.n for p in problems} == {
        ("bad-value", "a time with a zone"): 1,
        ("bad-value", "an ISO time"): 2,
    }


def test_cache_tokens_stand_apart_and_bad_counts_are_missing(tmp_path: Path) -> None:
    usage = {"input_tokens": 4, "output_tokens": -1, "cache_creation_input_tokens": 18764, "cache_read_input_tokens": 0}
    value = said("a1", None, text("x"), id="m")
    value["message"]["usage"] = usage
    trace, problems = one(tmp_path, value)
    (call,) = acts(trace, "model_call")
    assert (call.input_tokens, call.output_tokens) == (4, None)
    assert (call.extra["cache_creation_input_tokens"], call.extra["cache_read_input_tokens"]) == (18764, 0)
    assert [(p.code, p.got) for p in problems] == [("bad-value", "output_tokens -1")]


def test_unknown_lines_and_blocks_stay_opaque_and_are_named(tmp_path: Path) -> None:
    trace = one(
        tmp_path,
        user("u1", None, "go", at=1),
        line("z1", "zork", "u1", at=2, what=[1]),
        said("a1", "z1", {"type": "hologram", "x": 1}, id="m", at=3),
    ).trace
    opaque = [(e.raw_type, e.content, e.parents) for e in trace.events if e.kind is None]
    assert opaque == [("zork", '{"what":[1]}', ("u1",)), ("assistant/hologram", '{"type":"hologram","x":1}', ("a1.call",))]


def test_what_the_program_writes_in_the_models_place_is_no_model_call(tmp_path: Path) -> None:
    value = said("a1", "u1", text("API Error: 529\nbusy"), id="m", tokens=(0, 0), isApiErrorMessage=True)
    value["message"]["model"] = "<synthetic>"
    trace = one(tmp_path, user("u1", None, "go"), value).trace
    note = event(trace, "a1")
    assert (note.action, note.name, note.error, note.output_tokens) == ("note", "<synthetic>", "API Error: 529", None)
    assert trace.agents[0].model is None


def test_lines_in_the_users_name_are_notes_and_only_the_users_own_are_input(tmp_path: Path) -> None:
    trace = one(
        tmp_path,
        user("n1", None, "Caveat", isMeta=True),
        user("n2", "n1", "<local-command-stdout>Bye!</local-command-stdout>"),
        user("n3", "n2", "What went before", isCompactSummary=True),
        user("u1", "n3", [text("see"), {"type": "image", "source": {}}, text("this")]),
    ).trace
    assert [(e.action, e.name, e.content) for e in trace.events if e.action] == [
        ("note", "meta", "Caveat"),
        ("note", "local-command", "<local-command-stdout>Bye!</local-command-stdout>"),
        ("note", "compact-summary", "What went before"),
        ("input", None, "see\n\nthis"),
    ]
    assert event(trace, "u1").extra == {"blocks": ["image"]}
    assert trace.task.text == "see\n\nthis"


def test_a_session_goes_on_behind_a_compaction_and_a_break(tmp_path: Path) -> None:
    trace = one(
        tmp_path,
        user("u1", None, "go", at=1),
        said("a1", "u1", text("yes"), id="m1", at=2),
        line("c1", "system", None, at=3, subtype="compact_boundary", logicalParentUuid="a1"),
        user("u2", "c1", "summary", at=4, isCompactSummary=True),
        said("a2", "u2", text("on"), id="m2", at=5),
        user("u3", None, "after /clear", at=6),
    ).trace
    assert [(e.event_id, e.parents, e.extra.get("parent_rule")) for e in trace.events if e.kind == "act"] == [
        ("u1", (), None),
        ("a1", ("u1",), None),
        ("c1", ("a1",), "logical-parent"),
        ("u2", ("a1",), "over-notes"),
        ("a2", ("u2",), None),
        ("u3", ("a2",), "nearest-earlier"),
    ]


def test_one_uuid_with_two_contents_is_two_lines(tmp_path: Path) -> None:
    trace, problems = one(
        tmp_path, user("u1", None, "first", at=1), user("u1", None, "second", at=2), user("u1", None, "first", at=1)
    )
    assert [(e.event_id, e.content) for e in trace.events if e.action] == [("u1", "first"), ("u1~2", "second")]
    assert found(problems) == {"duplicate-event": 1, "duplicate-record": 1}


def test_results_without_an_id_answer_the_open_calls_of_their_line_in_turn(tmp_path: Path) -> None:
    calls = [{"type": "tool_use", "name": name, "input": {}} for name in ("Read", "Bash")]
    answers = [{"type": "tool_result", "content": content} for content in ("one", "two")]
    trace = one(tmp_path, said("a1", None, *calls, id="m", at=1), user("u1", "a1", answers, at=2)).trace
    assert [(e.name, e.content, e.parents) for e in acts(trace, "tool_result")] == [
        ("Read", "one", ("a1",)),
        ("Bash", "two", ("a1.1",)),
    ]


# --- hostile input ---


def test_shuffled_lines_give_the_same_events(tmp_path: Path) -> None:
    lines = [user("u0", None, "go")]
    lines += [(user if n % 2 == 0 else said)(f"u{n}", f"u{n - 1}", "go" if n % 2 == 0 else text("well")) for n in range(1, 30)]
    expected = [e.event_id for e in one(tmp_path, *lines).trace.events]
    for seed in range(5):
        mixed = random.Random(seed).sample(lines, len(lines))
        assert [e.event_id for e in one(tmp_path, *mixed).trace.events if e.kind != "stop"] == [
            i for i in expected if ".stop" not in i
        ]


def test_a_chain_of_20000_lines_loads(tmp_path: Path) -> None:
    lines = [side(user(f"u{n}", f"u{n - 1}" if n else None, "go")) for n in range(20_000)]
    trace, problems = one(tmp_path, user("m", None, "go"), *reversed(lines))
    assert len(trace.events) == 20_003
    assert [a.agent_id for a in trace.agents] == ["main", "u0"]
    assert [(p.code, p.got, p.n) for p in problems] == [("orphan", "sub-agent u0", 1)]


@pytest.mark.parametrize("parents", [["u0", "u0", "u1"], ["u2", "u0", "u1"], ["u1", "u0", "u1"]])
@pytest.mark.parametrize("dress", [dict, side])
def test_circles_of_parents_are_cut_and_named(tmp_path: Path, parents: list[str], dress: Any) -> None:
    trace, problems = one(tmp_path, *[dress(user(f"u{n}", parent, "go", at=n)) for n, parent in enumerate(parents)])
    order = {e.event_id: e.order for e in trace.events}
    assert len(acts(trace, "input")) == 3
    assert all(order[parent] < e.order for e in trace.events for parent in e.parents)
    assert "orphan" in found(problems)


def test_agents_that_start_each_other_in_a_circle_have_a_top(tmp_path: Path) -> None:
    lines = [
        sub("x1", said("a1", None, task("t1", "p"), at=1)),
        sub("x1", user("u1", "a1", [result("t1")], at=2, toolUseResult={"agentId": "x2"})),
        sub("x2", said("b1", None, task("t2", "q"), at=3)),
        sub("x2", user("v1", "b1", [result("t2")], at=4, toolUseResult={"agentId": "x1"})),
    ]
    assert sorted((a.parent_id or "") for a in one(tmp_path, *lines).trace.agents)[0] == ""


def test_a_sub_agent_called_main_is_not_the_main_agent(tmp_path: Path) -> None:
    trace = one(tmp_path, user("u1", None, "go", at=1), sub("main", user("b1", None, "p", at=2))).trace
    assert {e.event_id: e.agent_id for e in acts(trace, "input")} == {"u1": "main", "b1": "agent-main"}


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(["", "x", "main", "u1", "t1", "a1"]),
    st.just([]),
    st.just({}),
    st.just(["x"]),
)


def maybe(good: Any) -> st.SearchStrategy[Any]:
    return st.one_of(good, good, good, ODD)


BLOCKS = st.fixed_dictionaries(
    {"type": maybe(st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image"]))},
    optional={
        "text": maybe(st.just("t")),
        "id": maybe(st.sampled_from(["t1", "t2"])),
        "name": maybe(st.sampled_from(["Bash", "Task"])),
        "input": maybe(st.fixed_dictionaries({}, optional={"prompt": ODD, "subagent_type": ODD, "description": ODD})),
        "tool_use_id": maybe(st.sampled_from(["t1", "t2"])),
        "content": maybe(st.just("done")),
        "is_error": maybe(st.booleans()),
    },
)
LINES = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["user", "assistant", "system", "progress", "attachment", "summary", "zork"]),
        "sessionId": st.just("s1"),
        "message": maybe(
            st.fixed_dictionaries(
                {"content": maybe(st.lists(maybe(BLOCKS), max_size=3))},
                optional={
                    "id": maybe(st.sampled_from(["m1", "m2"])),
                    "model": ODD,
                    "usage": maybe(st.just({"output_tokens": 3})),
                    "stop_reason": ODD,
                },
            )
        ),
    },
    optional={
        "uuid": maybe(st.sampled_from(["u1", "u2", "u3", "u4"])),
        "parentUuid": maybe(st.sampled_from(["u1", "u2", "u3", "u4"])),
        "isSidechain": maybe(st.booleans()),
        "agentId": maybe(st.sampled_from(["a1", "a2"])),
        "timestamp": maybe(st.sampled_from(["2025-09-07T12:00:00Z", "2025-09-07T12:00:01", "no"])),
        "toolUseResult": maybe(st.fixed_dictionaries({}, optional={"agentId": ODD, "status": ODD})),
        "logicalParentUuid": ODD,
        "sourceToolAssistantUUID": ODD,
        "parentToolUseID": ODD,
        "data": maybe(st.just({"type": "agent_progress", "agentId": "a1"})),
    },
)


@up_to(300)
@given(lines=st.lists(LINES, min_size=1, max_size=12))
def test_whatever_lines_say_they_make_a_sound_trace(tmp_path_factory: pytest.TempPathFactory, lines: list[Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.jsonl"
    path.write_text("\n".join(json.dumps(value) for value in lines))
    source = source_of(path, "fuzzed.jsonl")
    trace, problems = assembled(f for f in claude_code.read(source, "claude-code-session") if isinstance(f, Fragment))
    order = {event.event_id: event.order for event in trace.events}
    told = sum(e.kind not in MARKERS for e in trace.events)
    assert decode(encode(trace)) == trace
    assert list(order.values()) == list(range(len(trace.events)))
    assert all(order[parent] < event.order for event in trace.events for parent in event.parents)
    assert told >= len(lines) - found(problems).get("duplicate-record", 0)
    assert {e.agent_id for e in trace.events} - {None} <= {a.agent_id for a in trace.agents}
