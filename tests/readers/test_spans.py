"""What the spans reader makes of real files, of spans made by hand, and of spans with something wrong."""

from __future__ import annotations

import base64
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import Problem
from analysis.model import Agent, Event, Trace, decode, encode
from analysis.pipeline.resolving import finish
from analysis.readers import spans
from analysis.readers.fragment import Fragment
from analysis.readers.source import Source, open_source
from tests.examples import up_to
from tests.readers.odd_spans import CASES, MS, T0, bare, chain, fan, request, span, text

TRACE = f"{0xABC:032x}"


class Loaded:
    """What an import would make of some files: each trace, finished, and the problems of all."""

    def __init__(self, *paths: Path) -> None:
        self.problems: list[Problem] = []
        self.fragments: dict[str, list[Fragment]] = {}
        self.kinds: list[str] = []
        for path in paths:
            self._read(path)
        self.traces = {trace_id: self._assembled(trace_id) for trace_id in sorted(self.fragments)}

    def _read(self, path: Path) -> None:
        source = open_source(path, path.name)
        assert isinstance(source, Source), str(source)
        kind = spans.detect(source)
        assert kind is not None
        self.kinds.append(kind)
        for item in spans.read(source, kind):
            if isinstance(item, Problem):
                self.problems.append(item)
            else:
                self.fragments.setdefault(item.trace_id, []).append(item)
        self.problems += source.problems

    def _assembled(self, trace_id: str) -> Trace:
        trace, problems = spans.assemble(trace_id, self.fragments[trace_id])
        self.problems += problems
        return finish(trace, self.problems.append)

    @property
    def trace(self) -> Trace:
        (trace,) = self.traces.values()
        return trace

    @property
    def codes(self) -> dict[str, int]:
        codes = Counter[str]()
        for problem in self.problems:
            codes[problem.code] += problem.n
        return dict(codes)


def written(tmp_path: Path, value: Any, name: str = "spans.json") -> Path:
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def loaded(tmp_path: Path, made: Sequence[dict[str, Any]]) -> Loaded:
    return Loaded(written(tmp_path, text(list(made))))


def content(trace: Trace) -> Trace:
    """The trace without the place it was read from, which is all that may differ between ways to pack it."""
    return msgspec.structs.replace(trace, source=msgspec.structs.replace(trace.source, file=None, record=None))


def graph(trace: Trace) -> list[tuple[Any, ...]]:
    return [(e.order, e.event_id, e.kind, e.action, e.name, e.agent_id, e.targets, e.parents, e.content) for e in trace.events]


def by_id(trace: Trace) -> dict[str, Event]:
    return {event.event_id: event for event in trace.events}


def of_kind(trace: Trace, kind: str) -> list[tuple[str | None, tuple[str, ...], str | None]]:
    return [(e.agent_id, e.targets, e.rule) for e in trace.events if e.kind == kind]


def assert_sound(trace: Trace, n_spans: int) -> None:
    """Each span is one event, causes come before effects, and the trace can be written and read again."""
    own = [event for event in trace.events if event.raw_id is not None]
    assert len(own) == n_spans
    order = {event.event_id: event.order for event in trace.events}
    assert [event.order for event in trace.events] == list(range(len(trace.events)))
    for event in trace.events:
        assert all(order.get(parent, -1) < event.order for parent in event.parents), event
    assert {a for e in trace.events for a in (e.agent_id, *e.targets) if a} <= {agent.agent_id for agent in trace.agents}
    assert decode(encode(trace)) == trace


# --- real files ---------------------------------------------------------------------------------------------------------

OTLP, STRANDS = "otlp-openinference", "otlp-openinference/strands-evals"
VERCEL = Counter({"chain": 5, "model_call": 4, "embedding": 1, "stop": 10})
#: file -> traces, what its events are (action of `act`, else kind), agents of all its traces.
REAL: dict[str, tuple[int, dict[str, int], list[str]]] = {
    f"{OTLP}/agent-prism/test_data_1.json": (
        1, {"agent_run": 1, "chain": 15, "model_call": 6, "tool_call": 2, "opaque": 5, "stop": 1}, ["AgentExecutor"]),
    f"{OTLP}/agent-prism/test_data_3.json": (
        1, {"chain": 11, "retrieval": 1, "model_call": 1, "opaque": 5, "stop": 1}, []),
    f"{OTLP}/langwatch/codex-B.session_task_turn.json": (1, {"opaque": 1}, []),
    f"{OTLP}/langwatch/opencode-B.doStream.json": (1, {"model_call": 1}, []),
    f"{OTLP}/open-agent-traces/test-traces.json": (2, {"opaque": 2, "stop": 2}, []),
    f"{OTLP}/openinference-vercel/all-spans.json": (10, VERCEL, []),
    f"{STRANDS}/adk_live_spans.json": (
        1, {"opaque": 1, "agent_run": 1, "chain": 2, "model_call": 2, "tool_call": 1, "stop": 1}, ["math_agent"]),
    f"{STRANDS}/autogen_live_spans.json": (
        2, {"spawn": 1, "agent_run": 1, "tool_call": 1, "stop": 2}, ["math_assistant", "math_assistant"]),
    f"{STRANDS}/claude_live_spans.json": (
        1, {"agent_run": 4, "tool_call": 3, "delegate": 3, "spawn": 2, "communicate": 3, "stop": 1},
        ["ClaudeAgentSDK.query", "research-specialist", "math-specialist"]),
    f"{STRANDS}/openai_agents_genai_live_spans.json": (
        1, {"chain": 1, "agent_run": 3, "model_call": 8, "tool_call": 3, "delegate": 2, "spawn": 2, "communicate": 2,
            "aggregate": 1, "stop": 1}, ["coordinator", "research_specialist", "math_specialist"]),
    f"{STRANDS}/openai_agents_openinference_live_spans.json": (
        1, {"chain": 8, "agent_run": 2, "model_call": 5, "tool_call": 3, "delegate": 1, "spawn": 1, "communicate": 1, "stop": 1},
        ["coordinator", "math_specialist"]),
    f"{STRANDS}/openinference_live_spans.json": (1, {"chain": 3, "model_call": 2, "tool_call": 1, "stop": 1}, []),
    f"{STRANDS}/otel_genai_convention_spans.json": (
        1, {"agent_run": 1, "model_call": 2, "tool_call": 2, "stop": 1}, ["WeatherAssistant"]),
    f"{STRANDS}/pydantic_ai_live_spans.json": (1, {"agent_run": 1, "model_call": 2, "tool_call": 1, "stop": 1}, ["agent"]),
    "generated/smolagents/otlp_hexids.json": (
        1, {"agent_run": 2, "chain": 4, "tool_call": 3, "delegate": 1, "spawn": 1, "communicate": 1, "stop": 1},
        ["manager", "tester"]),
    "generated/smolagents/console_spans.jsonl": (
        1, {"agent_run": 2, "chain": 4, "tool_call": 3, "delegate": 1, "spawn": 1, "communicate": 1, "stop": 1},
        ["manager", "tester"]),
}  # fmt: skip
#: spans of a file and the problems that an import names
N_SPANS = dict(zip(REAL, (29, 18, 1, 1, 2, 10, 7, 3, 10, 17, 19, 6, 5, 4, 9, 9), strict=True))


@pytest.mark.parametrize("name", REAL)
def test_real_files_give_these_events_and_agents(name: str, shared_traces: Path) -> None:
    n_traces, kinds, agents = REAL[name]
    found = Loaded(shared_traces / name)
    made = [event for trace in found.traces.values() for event in trace.events]
    assert len(found.traces) == n_traces
    assert Counter(event.action or event.kind or "opaque" for event in made) == kinds
    assert [agent.agent_id for trace in found.traces.values() for agent in trace.agents] == agents
    assert sum(event.raw_id is not None for event in made) == N_SPANS[name]
    for trace in found.traces.values():
        assert_sound(trace, sum(event.raw_id is not None for event in trace.events))


def test_only_orphans_missing_times_and_made_ids_are_named_in_real_files(shared_traces: Path) -> None:
    named = {Path(name).name: codes for name in REAL if (codes := Loaded(shared_traces / name).codes)}
    assert named == {
        "test_data_1.json": {"opaque-event": 5},
        "test_data_3.json": {"opaque-event": 5},
        "codex-B.session_task_turn.json": {"made-id": 2, "no-time": 1, "opaque-event": 1},
        "opencode-B.doStream.json": {"made-id": 2, "no-time": 1},
        "test-traces.json": {"opaque-event": 2},
        "adk_live_spans.json": {"opaque-event": 1},
        "claude_live_spans.json": {"orphan": 1},
        "openai_agents_genai_live_spans.json": {"orphan": 1},
        "openai_agents_openinference_live_spans.json": {"orphan": 1},
    }


def test_no_other_real_file_is_taken_for_spans(shared_traces: Path) -> None:
    taken = set()
    for path in sorted(shared_traces.rglob("*")):
        source = open_source(path, path.name) if path.is_file() else None
        if isinstance(source, Source) and spans.detect(source) is not None:
            taken.add(path.relative_to(shared_traces).as_posix())
    assert taken == set(REAL)


def test_agents_and_delegations_are_those_of_the_truth(shared_traces: Path) -> None:
    truth = json.loads((shared_traces / "generated/truth.json").read_text())["smolagents"]
    for name in ("otlp_hexids.json", "console_spans.jsonl"):
        trace = Loaded(shared_traces / "generated/smolagents" / name).trace
        assert [agent.agent_id for agent in trace.agents] == truth["agents"]
        delegations = [[agent, *targets] for agent, targets, _ in of_kind(trace, "delegate")]
        assert delegations == truth["delegations"]


def test_two_exports_of_one_run_give_one_graph_and_import_as_one_run(shared_traces: Path) -> None:
    folder = shared_traces / "generated/smolagents"
    hex_ids, console = (Loaded(folder / name) for name in ("otlp_hexids.json", "console_spans.jsonl"))
    assert (hex_ids.kinds, console.kinds) == (["otlp-json"], ["span-console"])
    assert graph(hex_ids.trace) == graph(console.trace)
    assert hex_ids.trace.extra["resources"] == console.trace.extra["resources"]
    both = Loaded(folder / "otlp_hexids.json", folder / "console_spans.jsonl")
    assert content(both.trace) == content(hex_ids.trace)
    assert both.codes == {"duplicate-record": 9}


def test_agents_as_tools_are_found_beside_the_call_that_started_them(shared_traces: Path) -> None:
    trace = Loaded(shared_traces / STRANDS / "openai_agents_genai_live_spans.json").trace
    assert of_kind(trace, "delegate") == [
        ("coordinator", ("research_specialist",), "tool-names-agent"),
        ("coordinator", ("math_specialist",), "tool-names-agent"),
    ]
    assert of_kind(trace, "communicate") == [
        ("research_specialist", ("coordinator",), "tool-result"),
        ("math_specialist", ("coordinator",), "tool-result"),
    ]
    (merge,) = [event for event in trace.events if event.kind == "aggregate"]
    results = tuple(event.event_id for event in trace.events if event.kind == "communicate")
    assert (merge.agent_id, merge.merge_points, merge.parents) == ("coordinator", results, results)
    last = trace.events[merge.order + 1]
    assert (last.action, last.agent_id, merge.event_id in last.parents) == ("model_call", "coordinator", True)
    assert sum(event.input_tokens or 0 for event in trace.events) == 1870
    assert [agent.parent_id for agent in trace.agents] == [None, "coordinator", "coordinator"]


def test_the_kind_of_a_started_agent_is_read_from_the_call(shared_traces: Path) -> None:
    trace = Loaded(shared_traces / STRANDS / "claude_live_spans.json").trace
    targets = [targets for _, targets, _ in of_kind(trace, "delegate")]
    assert targets == [("research-specialist",), ("research-specialist",), ("math-specialist",)]


def test_a_wrapper_around_a_model_call_is_no_second_call(shared_traces: Path) -> None:
    trace = Loaded(shared_traces / STRANDS / "adk_live_spans.json").trace
    calls = [(e.input_tokens, e.output_tokens) for e in trace.events if e.action == "model_call"]
    assert calls == [(157, 51), (222, 33)]
    assert sum(event.input_tokens or 0 for event in trace.events) == 157 + 222


# --- envelopes ----------------------------------------------------------------------------------------------------------


def smolagents(shared_traces: Path) -> dict[str, Any]:
    path = shared_traces / "generated/smolagents/otlp_hexids.json"
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def with_ids(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return [with_ids(member, change) for member in value]
    if not isinstance(value, dict):
        return value
    return {key: change(v) if key in ("traceId", "spanId", "parentSpanId") else with_ids(v, change) for key, v in value.items()}


def as_base64(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode()


def in_snake_case(value: Any) -> Any:
    if isinstance(value, list):
        return [in_snake_case(member) for member in value]
    if not isinstance(value, dict):
        return value
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): in_snake_case(v) for key, v in value.items()}


def flat(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The spans of a request as a flat list with dict attributes, each with its resource and scope."""
    (batch,) = value["resourceSpans"]
    (scoped,) = batch["scopeSpans"]
    rows = []
    for one in scoped["spans"]:
        attributes = {pair["key"]: plain(pair["value"]) for pair in one["attributes"]}
        times = {"start_time": int(one["startTimeUnixNano"]), "end_time": int(one["endTimeUnixNano"])}
        ids = {"trace_id": one["traceId"], "span_id": one["spanId"], "parent_span_id": one.get("parentSpanId")}
        rest = {"name": one["name"], "status": one["status"], "kind": one["kind"], "attributes": attributes}
        rows.append({**ids, **times, **rest, "resource": batch["resource"], "scope": scoped["scope"]})
    return rows


def plain(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return [plain(member) for member in inner["values"]]
    return int(inner) if kind == "intValue" else inner


def as_protobuf(value: dict[str, Any]) -> bytes:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    message = ParseDict(with_ids(value, as_base64), TracesData())
    data: bytes = message.SerializeToString()
    return data


PACKINGS: dict[str, Callable[[dict[str, Any]], str | bytes]] = {
    "base64 ids": lambda value: json.dumps(with_ids(value, as_base64)),
    "upper case ids": lambda value: json.dumps(with_ids(value, lambda digits: "0x" + digits.upper())),
    "snake case": lambda value: json.dumps(in_snake_case(value)),
    "list of requests": lambda value: json.dumps([value]),
    "printed over lines": lambda value: json.dumps(value, indent=2),
    "flat list": lambda value: json.dumps(flat(value)),
    "one a line": lambda value: "\n".join(json.dumps(row) for row in flat(value)),
    "printed one after another": lambda value: "\n".join(json.dumps(row, indent=4) for row in flat(value)),
    "mixed shapes": lambda value: "\n".join(json.dumps(row) for row in (*flat(value)[:4], value)),
    "protobuf": as_protobuf,
    "protobuf after its length": lambda value: b"".join(
        len(data).to_bytes(4, "big") + data for data in [as_protobuf(value), as_protobuf(value)]
    ),
}


@pytest.mark.parametrize("name", PACKINGS)
def test_however_it_is_packed_it_is_the_same_trace(name: str, shared_traces: Path, tmp_path: Path) -> None:
    value = smolagents(shared_traces)
    data = PACKINGS[name](value)
    path = tmp_path / "packed"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    found = Loaded(path)
    assert content(found.trace) == content(Loaded(written(tmp_path, value)).trace)
    assert found.codes.keys() <= {"duplicate-record"}


def test_a_session_around_spans_is_kept(shared_traces: Path, tmp_path: Path) -> None:
    rows = [{key: v for key, v in row.items() if key != "resource"} for row in flat(smolagents(shared_traces))]
    trace = Loaded(written(tmp_path, {"session_id": "s-1", "span_count": 9, "spans": rows})).trace
    assert trace.extra["sessions"] == ["s-1"]
    assert [*trace.extra["resources"].values()] == [{"session_id": "s-1", "span_count": 9}]


def test_a_log_record_joins_the_span_it_names(tmp_path: Path) -> None:
    body = {"output": {"messages": [{"role": "assistant", "content": {"message": "forty-two"}}]}}
    record = {"traceId": TRACE, "spanId": f"{1:016x}", "timeUnixNano": T0, "body": body, "attributes": {"event.name": "strands"}}
    made = [{**one, "traceId": TRACE} for one in [span(1, **{"openinference.span.kind": "LLM"})]]
    apart = Loaded(written(tmp_path, [record], "events.json"), written(tmp_path, made))
    event = apart.trace.events[0]
    assert (len(apart.trace.events), event.action, event.content) == (2, "model_call", "forty-two")
    assert event.extra["span_events"][0]["name"] == "strands"


def test_protobuf_without_its_package_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "spans.pb"
    path.write_bytes(as_protobuf(request([span(1)])))
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1.trace_pb2", None)
    found = Loaded(path)
    assert (found.traces, found.codes) == ({}, {"no-library": 1, "empty-file": 1})
    assert "opentelemetry-proto" in str(found.problems[0])


def test_broken_protobuf_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "spans.pb"
    path.write_bytes(b"\n\x04\x12\x02\xff\xff")
    assert Loaded(path).codes == {"wrong-shape": 1, "empty-file": 1}


def test_what_is_no_span_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    made = request([span(1, name="root")])
    made["resourceSpans"][0]["scopeSpans"] += [7, {"spans": ["x"]}]
    made["resourceSpans"].append(None)
    lines = "\n".join(json.dumps(value) for value in (made, {"resourceLogs": []}, [3], {"hello": 1}))
    found = Loaded(written(tmp_path, lines))
    assert len(found.trace.events) == 2
    assert found.codes == {"wrong-shape": 5, "mixed-format": 1}
    assert [problem.record for problem in found.problems[-2:]] == ["line 3", "line 4"]


def test_the_same_spans_are_the_same_part_in_any_order(shared_traces: Path, tmp_path: Path) -> None:
    value = smolagents(shared_traces)
    (one,) = Loaded(written(tmp_path, value)).fragments.values()
    value["resourceSpans"][0]["scopeSpans"][0]["spans"].reverse()
    (other,) = Loaded(written(tmp_path, value)).fragments.values()
    assert [(f.part, f.digest, f.data) for f in one] == [(f.part, f.digest, f.data) for f in other]


def test_where_scopes_differ_each_event_names_its_own(tmp_path: Path) -> None:
    rows = [{"trace_id": TRACE, "span_id": i, "name": "n", "scope": {"name": i, "version": "1"}} for i in ("a", "b")]
    trace = Loaded(written(tmp_path, rows)).trace
    assert trace.extra == {"scopes": ["a 1", "b 1"]}
    assert [event.extra for event in trace.events] == [{"scope": "a 1"}, {"scope": "b 1"}]


def test_a_file_without_spans_is_named(tmp_path: Path) -> None:
    assert Loaded(written(tmp_path, {"resourceSpans": []})).codes == {"empty-file": 1}


def test_batches_are_small_and_hold_one_trace_each(tmp_path: Path) -> None:
    two = [request(fan(2500), trace_id=f"{n:032x}") for n in (1, 2)]
    found = Loaded(written(tmp_path, "\n".join(map(json.dumps, two))))
    sizes = {trace_id: [len(json.loads(f.data)["spans"]) for f in parts] for trace_id, parts in found.fragments.items()}
    assert sizes == {f"spans:{1:032x}": [2000, 501], f"spans:{2:032x}": [2000, 501]}


# --- one thing wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_each_odd_case_has_its_outcome_and_every_span_is_accounted_for(name: str, tmp_path: Path) -> None:
    make, codes = CASES[name]
    made = make()
    found = loaded(tmp_path, made)
    assert found.codes.keys() == codes
    assert_sound(found.trace, len(made))


def one(tmp_path: Path, name: str) -> Event:
    event = loaded(tmp_path, CASES[name][0]()).trace.events[0]
    assert event.raw_id is not None
    return event


def test_odd_values_stay_what_they_are(tmp_path: Path) -> None:
    assert one(tmp_path, "nan-in-json-text").content == '{"y": NaN, "z": Infinity}'
    assert one(tmp_path, "surrogate-in-json-text").messages == ({"role": "input", "content": '{"t":"\\ud83d"}'},)
    assert one(tmp_path, "bidi-and-cjk").name == "编排\u202eevil\u200d👩‍👩‍👧"
    assert one(tmp_path, "nul-and-controls").name == "a\0b"
    assert one(tmp_path, "markup").content == "[a](javascript:alert(1))"
    assert one(tmp_path, "empty-name").name is None
    assert len(one(tmp_path, "two-megabytes").messages[0]["content"]) == 2_000_000
    assert one(tmp_path, "nan-attributes").extra["attributes"] == {"score": None, "hi": None}
    assert one(tmp_path, "time-is-words").extra["startTimeUnixNano"] == "yesterday"
    assert one(tmp_path, "attributes-are-text").extra["attributes"] == "none"


def test_odd_times_are_kept_as_the_source_has_them(tmp_path: Path) -> None:
    def times(name: str) -> tuple[float | None, float | None]:
        event = one(tmp_path, name)
        return event.t_start_s, event.t_end_s

    t0 = T0 / 10**9
    assert times("end-before-start") == ((T0 + 10 * MS) / 10**9, (T0 - 5 * MS) / 10**9)
    assert times("no-end") == (t0, None)
    assert times("year-1970") == (1e-9, 0.01)
    assert times("year-2200") == (7_258_118_400.0, 7_258_118_401.0)
    assert times("start-zero") == (None, t0)
    assert times("milliseconds-named-nanoseconds") == (t0, (T0 + 5 * MS) / 10**9)


def test_circles_are_cut_at_their_earliest_span_only(tmp_path: Path) -> None:
    events = by_id(loaded(tmp_path, [span(5, 6, a=1), span(6, 5, a=0), span(7, 6, a=2)]).trace)
    first, second, third = (f"{n:016x}" for n in (6, 5, 7))
    assert [events[e].parents for e in (first, second, third)] == [(), (first,), (first,)]
    assert events[first].extra["parent_span_id"] == second


def test_an_orphan_keeps_the_parent_that_is_not_there(tmp_path: Path) -> None:
    assert one(tmp_path, "orphan-only").parents == (f"{0xDEAD:016x}",)


def test_without_an_end_nothing_says_that_it_stopped(tmp_path: Path) -> None:
    assert [event.kind for event in loaded(tmp_path, CASES["no-end"][0]()).trace.events] == ["act"]


def test_the_later_of_two_spans_with_one_id_gets_a_name_of_its_own(tmp_path: Path) -> None:
    found = loaded(tmp_path, CASES["two-spans-one-id"][0]())
    twice = f"{20:016x}"
    assert {e.event_id: e.name for e in found.trace.events if e.raw_id == twice} == {twice: "b", f"{twice}~2": "a"}


def test_deep_and_wide_traces_of_any_shape_are_read(tmp_path: Path) -> None:
    made = chain(20_000)
    random.Random(7).shuffle(made)
    trace = loaded(tmp_path, made).trace
    assert_sound(trace, 20_000)
    own = [event for event in trace.events if event.raw_id is not None]
    assert [event.name for event in own] == [f"d{n}" for n in range(20_000)]
    assert own[-1].parents[0] == own[-2].event_id


def test_a_value_nested_too_deeply_stays_as_text(tmp_path: Path) -> None:
    value: dict[str, Any] = {"stringValue": "core"}
    for _ in range(60):
        value = {"arrayValue": {"values": [value]}}
    made = span(1)
    made["attributes"].append({"key": "deep", "value": value})
    trace = loaded(tmp_path, [made]).trace
    assert "core" in json.dumps(trace.events[0].extra)
    assert_sound(trace, 1)


TIMES = {
    "nanoseconds": 1_790_000_000_123_456_789, "as text": "1790000000123456789", "microseconds": 1_790_000_000_123_456,
    "milliseconds": 1_790_000_000_123, "seconds": 1_790_000_000, "seconds with a fraction": 1_790_000_000.123,
    "a pair": [1_790_000_000, 123_456_789], "UTC": "2026-09-21T14:13:20.123456789Z", "an offset": "2026-09-21T16:13:20.123+02:00",
}  # fmt: skip


@pytest.mark.parametrize("name", TIMES)
def test_times_are_read_in_the_unit_their_size_shows(name: str, tmp_path: Path) -> None:
    row = {"trace_id": TRACE, "span_id": "a", "name": "n", "start_time": TIMES[name], "end_time": None}
    event = Loaded(written(tmp_path, [row])).trace.events[0]
    assert event.t_start_s is not None
    assert abs(event.t_start_s - 1_790_000_000.123456789) <= (0.124 if name == "seconds" else 0.0005)


def test_one_file_may_write_times_in_several_ways(tmp_path: Path) -> None:
    rows = [{"trace_id": TRACE, "span_id": f"s{n}", "name": "n", "start_time": value} for n, value in enumerate(TIMES.values())]
    starts = [event.t_start_s for event in Loaded(written(tmp_path, rows)).trace.events]
    assert [start for start in starts if start is not None and 0 <= start - 1_790_000_000 < 0.124] == starts


def test_times_without_a_zone_stay_naive_unless_others_have_one(tmp_path: Path) -> None:
    rows = [{"trace_id": TRACE, "span_id": i, "name": "n", "start_time": t} for i, t in (("a", "2026-01-01T00:00:00"), ("b", 1))]
    assert Loaded(written(tmp_path, rows[:1])).trace.clock == "naive"
    mixed = Loaded(written(tmp_path, rows))
    assert (mixed.trace.clock, mixed.codes["naive-time"]) == ("unix", 1)


# --- rules --------------------------------------------------------------------------------------------------------------

INVOKE = {"gen_ai.operation.name": "invoke_agent"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
TOOL = {"gen_ai.operation.name": "execute_tool"}


def run(n: int, parent: int | None, agent: str, a: float, b: float, **more: Any) -> dict[str, Any]:
    return bare(n, parent, f"invoke_agent {agent}", a=a, b=b, **INVOKE, **{"gen_ai.agent.name": agent}, **more)


def call(n: int, parent: int | None, tool: str, a: float, b: float, **more: Any) -> dict[str, Any]:
    return bare(n, parent, tool, a=a, b=b, **TOOL, **{"gen_ai.tool.name": tool}, **more)


def chat(n: int, parent: int | None, a: float, b: float, **more: Any) -> dict[str, Any]:
    return bare(n, parent, "chat", a=a, b=b, **CHAT, **more)


def ids(*numbers: int) -> tuple[str, ...]:
    return tuple(f"{n:016x}" for n in numbers)


def test_a_team_that_fans_out_and_merges(tmp_path: Path) -> None:
    made = [
        run(1, None, "lead", 0, 100, **{"output.value": "merged"}),
        chat(2, 1, 0, 10),
        call(3, 1, "ask_coder", 11, 40, **{"input.value": "write", "output.value": "code"}),
        run(4, 3, "coder", 12, 39),
        chat(5, 4, 13, 38),
        call(6, 1, "ask_tester", 11, 60, **{"input.value": "test", "output.value": "green"}),
        run(7, 6, "tester", 12, 59),
        chat(8, 1, 61, 99),
    ]
    trace = loaded(tmp_path, made).trace
    assert_sound(trace, 8)
    events = by_id(trace)
    lead, plan, ask, coder, code, ask2, tester, last = ids(1, 2, 3, 4, 5, 6, 7, 8)
    got = [f"{coder}.result", f"{tester}.result"]
    assert [e.event_id for e in trace.events] == [
        lead, plan, f"{coder}.spawn", ask, f"{tester}.spawn", ask2, coder, tester, code, *got, f"{last}.aggregate", last,
        f"{lead}.stop",
    ]  # fmt: skip
    assert {e: events[e].parents for e in (plan, f"{coder}.spawn", ask, coder, code, got[0], f"{last}.aggregate", last)} == {
        plan: (lead,),
        f"{coder}.spawn": (lead, plan),
        ask: (lead, plan, f"{coder}.spawn"),
        coder: (ask,),
        code: (coder,),
        got[0]: (coder, code),
        f"{last}.aggregate": (*got,),
        last: (lead, plan, f"{last}.aggregate"),
    }
    assert events[f"{lead}.stop"].parents == (lead, last)
    assert (events[ask].content, events[got[0]].content, events[got[0]].message_type) == ("write", "code", "result")
    assert events[got[0]].t_start_s == (T0 + 39 * MS) / 10**9
    assert {(e.basis, e.rule) for e in trace.events if e.kind in ("act", None)} == {("explicit", None)}
    assert trace.outcome.answer == "merged"
    assert trace.agents[1] == Agent(agent_id="coder", component="coder", parent_id="lead", model="m")


def test_runs_of_one_agent_side_by_side_merge_too(tmp_path: Path) -> None:
    made = [run(1, None, "lead", 0, 100), run(2, 1, "w", 1, 20), run(3, 1, "w", 1, 30), chat(4, 1, 31, 40)]
    trace = loaded(tmp_path, made).trace
    assert [e.merge_points for e in trace.events if e.kind == "aggregate"] == [(f"{ids(2)[0]}.result", f"{ids(3)[0]}.result")]
    assert of_kind(trace, "spawn") == [("lead", ("w",), "first-run")]


def test_one_agent_asked_twice_in_turn_is_no_merge(tmp_path: Path) -> None:
    made = [run(1, None, "lead", 0, 100), run(2, 1, "w", 1, 20), chat(3, 1, 21, 25), run(4, 1, "w", 26, 30), chat(5, 1, 31, 40)]
    assert of_kind(loaded(tmp_path, made).trace, "aggregate") == []


def test_an_explicit_handoff_moves_control_and_nothing_comes_back(tmp_path: Path) -> None:
    to = {"gen_ai.handoff.from_agent": "triage", "gen_ai.handoff.to_agent": "fixer"}
    made = [run(1, None, "triage", 0, 20), bare(2, 1, "handoff", a=15, b=15, **to), run(3, None, "fixer", 21, 40)]
    trace = loaded(tmp_path, made).trace
    assert of_kind(trace, "delegate") == [("triage", ("fixer",), None)]
    assert by_id(trace)[ids(2)[0]].basis == "explicit"
    assert by_id(trace)[ids(3)[0]].parents == (f"{ids(2)[0]}",)
    assert of_kind(trace, "communicate") == []
    assert of_kind(trace, "spawn") == [("triage", ("fixer",), "first-run")]


def test_a_handoff_shown_by_a_call_and_by_the_graph_is_one(tmp_path: Path) -> None:
    made = [
        bare(1, None, "triage", b=20, **{"openinference.span.kind": "AGENT", "graph.node.id": "triage"}),
        bare(2, 1, "handoff to fixer", a=15, b=15, **{"openinference.span.kind": "TOOL"}),
        bare(3, None, "fixer", a=21, b=40,
             **{"openinference.span.kind": "AGENT", "graph.node.id": "fixer", "graph.node.parent_id": "triage"}),
    ]  # fmt: skip
    trace = loaded(tmp_path, made).trace
    assert [(e.agent_id, e.targets, e.basis, e.rule) for e in trace.events if e.kind == "delegate"] == [
        ("triage", ("fixer",), "explicit", None)
    ]
    assert of_kind(trace, "communicate") == []


def test_a_handoff_to_unknown_goes_to_who_runs_next(tmp_path: Path) -> None:
    to = {"traceloop.span.kind": "handoff", "gen_ai.handoff.to_agent": "unknown"}
    made = [run(1, None, "triage", 0, 20), bare(2, 1, "handoff", a=15, b=15, **to), run(3, None, "fixer", 21, 40)]
    found = loaded(tmp_path, made)
    assert of_kind(found.trace, "delegate") == [("triage", ("fixer",), "next-run")]
    assert found.codes == {}
    alone = loaded(tmp_path, made[:2])
    assert (of_kind(alone.trace, "delegate"), alone.codes) == ([("triage", (), "next-run")], {"no-target": 1})


def test_an_explicit_graph_comes_before_the_place_in_the_tree(tmp_path: Path) -> None:
    node = {"graph.node.id": "b7", "graph.node.name": "critic", "graph.node.parent_id": "a1"}
    made = [
        span(1, None, "team", b=50, **{"openinference.span.kind": "CHAIN"}),
        span(2, 1, "x.run", a=1, b=20, **{"graph.node.id": "a1", "graph.node.name": "writer"}),
        span(3, 1, "y.run", a=21, b=40, **node),
    ]
    trace = loaded(tmp_path, made).trace
    assert [agent.agent_id for agent in trace.agents] == ["writer", "critic"]
    assert of_kind(trace, "delegate") == [("writer", ("critic",), "graph-node-parent")]
    assert by_id(trace)[f"{ids(3)[0]}.delegate"].basis == "explicit"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("transfer_to_fixer_agent", "{}"),
        ("Fixer", "{}"),
        ("delegate_to_fixer", "{}"),
        ("Task", '{"subagent_type": "fixer", "prompt": "x"}'),
        ("transfer_to_agent", '{"agent_name": "fixer"}'),
    ],
)
def test_a_tool_call_that_names_an_agent_delegates_to_it(tool: str, arguments: str, tmp_path: Path) -> None:
    made = [
        run(1, None, "lead", 0, 50),
        call(2, 1, tool, 1, 30, **{"gen_ai.tool.call.arguments": arguments}),
        run(3, None, "fixer", 2, 29),
    ]
    trace = loaded(tmp_path, made).trace
    assert of_kind(trace, "delegate") == [("lead", ("fixer",), "tool-names-agent")]
    assert len(of_kind(trace, "communicate")) == (0 if tool.startswith("transfer") else 1)


def test_an_agent_that_is_asked_but_never_seen_to_run_answers_by_the_tool(tmp_path: Path) -> None:
    other = bare(3, None, "n", **CHAT, **{"gen_ai.agent.name": "expert"})
    made = [other, run(1, None, "lead", 20, 50), call(2, 1, "ask_expert", 21, 30, **{"output.value": "no"}), chat(4, 1, 31, 40)]
    trace = loaded(tmp_path, made).trace
    tool, last = ids(2, 4)
    (answer,) = [event for event in trace.events if event.kind == "communicate"]
    assert (answer.event_id, answer.agent_id, answer.targets, answer.content) == (f"{tool}.result", "expert", ("lead",), "no")
    assert answer.parents == (tool,)
    assert by_id(trace)[last].parents == (ids(1)[0], f"{tool}.result")


def test_work_of_an_agent_without_recorded_model_calls_follows_what_had_ended(tmp_path: Path) -> None:
    spans_of = {"a": (1, 10), "b": (2, 12), "c": (13, 20), "d": (14, 20)}
    made = [run(1, None, "solo", 0, 50), *(call(n, 1, name, a, b) for n, (name, (a, b)) in enumerate(spans_of.items(), 2))]
    events = by_id(loaded(tmp_path, made).trace)
    root, a, b, c, d = ids(1, 2, 3, 4, 5)
    assert [events[e].parents for e in (a, b, c, d)] == [(root,), (root,), (root, a, b), (root, b)]


def test_siblings_outside_any_agent_are_not_tied(tmp_path: Path) -> None:
    root = bare(1, None, "pool", b=50, **{"openinference.span.kind": "CHAIN"})
    events = by_id(loaded(tmp_path, [root, run(2, 1, "x", 1, 10), run(3, 1, "y", 11, 20)]).trace)
    assert events[ids(3)[0]].parents == (ids(1)[0], f"{ids(3)[0]}.spawn")


def test_a_tool_of_no_agent_is_own_work(tmp_path: Path) -> None:
    trace = loaded(tmp_path, [run(1, None, "lead", 0, 50), call(2, 1, "search", 1, 30)]).trace
    assert [(e.kind, e.action, e.name, e.agent_id) for e in trace.events[1:2]] == [("act", "tool_call", "search", "lead")]


def test_langchain_runnables_are_no_agents_but_the_outermost_above_a_model_call(tmp_path: Path) -> None:
    made = request([span(1, name="AgentExecutor"), span(2, 1, "RunnableAgent"), chat(3, 2, 1, 5), span(4, name="route_to_agent")])
    made["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"name": "openinference.instrumentation.langchain"}
    trace = Loaded(written(tmp_path, made)).trace
    assert [agent.agent_id for agent in trace.agents] == ["AgentExecutor"]
    assert Counter(e.action for e in trace.events if e.kind == "act") == {"agent_run": 1, "chain": 2, "model_call": 1}


def test_a_call_that_lost_its_way_up_belongs_to_the_only_agent(tmp_path: Path) -> None:
    found = loaded(tmp_path, [run(1, None, "solo", 0, 50), chat(2, 77, 1, 5)])
    assert by_id(found.trace)[ids(2)[0]].agent_id == "solo"
    two = loaded(tmp_path, [run(1, None, "a", 0, 50), run(3, None, "b", 0, 50), chat(2, 77, 1, 5)])
    assert by_id(two.trace)[ids(2)[0]].agent_id is None


def test_one_run_shown_by_two_instrumentations_is_one_run(tmp_path: Path) -> None:
    trace = loaded(tmp_path, [run(1, None, "solo", 0, 50), run(2, 1, "solo", 1, 49), chat(3, 2, 2, 5)]).trace
    assert Counter(e.action or e.kind for e in trace.events) == {"agent_run": 1, "chain": 1, "model_call": 1, "stop": 1}


def tokens(trace: Trace) -> dict[str, tuple[int | None, int | None]]:
    return {e.event_id: (e.input_tokens, e.output_tokens) for e in trace.events if e.input_tokens is not None}


def test_totals_of_parents_are_not_counted_again(tmp_path: Path) -> None:
    used = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 10}
    found = loaded(tmp_path, [run(1, None, "a", 0, 50, **used), chat(2, 1, 1, 20, **used)])
    assert tokens(found.trace) == {ids(2)[0]: (100, 10)}
    assert found.trace.events[0].extra["attributes"] == used
    assert "attributes" not in by_id(found.trace)[ids(2)[0]].extra


def test_a_model_call_that_holds_the_run_of_another_agent_keeps_its_tokens(tmp_path: Path) -> None:
    made = [
        run(1, None, "a", 0, 50),
        chat(2, 1, 1, 40, **{"llm.token_count.prompt": "7"}),
        call(3, 2, "ask_b", 5, 39),
        run(4, 3, "b", 6, 38),
        chat(5, 4, 7, 30, **{"llm.token_count.prompt": 100.0}),
    ]
    assert tokens(loaded(tmp_path, made).trace) == {ids(2)[0]: (7, None), ids(5)[0]: (100, None)}


def test_one_answer_reported_twice_is_counted_once(tmp_path: Path) -> None:
    used = {"gen_ai.usage.input_tokens": 5, "gen_ai.response.id": "r1"}
    made = [run(1, None, "a", 0, 50), chat(2, 1, 1, 20, **used), chat(3, 1, 2, 19, **used)]
    assert tokens(loaded(tmp_path, made).trace) == {ids(3)[0]: (5, None)}


@pytest.mark.parametrize("bad", ["many", -1, 2**60, 1.5, True, "9" * 30])
def test_what_is_no_count_of_tokens_is_missing(bad: Any, tmp_path: Path) -> None:
    trace = loaded(tmp_path, [chat(1, None, 0, 1, **{"gen_ai.usage.input_tokens": bad})]).trace
    assert trace.events[0].input_tokens is None


MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
PARTS = [{"role": m["role"], "parts": [{"type": "text", "content": m["content"]}]} for m in MESSAGES]
NUMBERED = {f"{n}.{key}": m[key] for n, m in enumerate(MESSAGES) for key in ("role", "content")}
SPELLINGS: dict[str, tuple[dict[str, str], list[dict[str, Any]]]] = {
    "GenAI": ({"gen_ai.input.messages": json.dumps(PARTS), "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "text", "content": "yo"}], "finish_reason": "stop"}])}, PARTS),
    "OpenInference": ({"llm.output_messages.0.message.content": "yo", "llm.output_messages.0.message.role": "assistant"}
        | {f"llm.input_messages.{key.replace('.', '.message.')}": value for key, value in NUMBERED.items()}, MESSAGES),
    "Traceloop": ({"gen_ai.completion.0.content": "yo", "gen_ai.completion.0.role": "assistant"}
        | {f"gen_ai.prompt.{key}": value for key, value in NUMBERED.items()}, MESSAGES),
    "Vercel": ({"ai.prompt.messages": json.dumps(MESSAGES), "ai.response.text": "yo"}, MESSAGES),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_messages_are_read_in_every_spelling(name: str, tmp_path: Path) -> None:
    attributes, messages = SPELLINGS[name]
    trace = loaded(tmp_path, [run(2, None, "a", 0, 9), chat(1, 2, 0, 1, **attributes)]).trace
    event = by_id(trace)[ids(1)[0]]
    assert ([*event.messages], event.content, event.extra) == (messages, "yo", {})
    assert trace.agents[0].system_prompt == "be brief"


def test_messages_are_read_from_events_of_the_span(tmp_path: Path) -> None:
    events = [
        {"name": "gen_ai.user.message", "attributes": [{"key": "content", "value": {"stringValue": '[{"text": "hi"}]'}}]},
        {"name": "gen_ai.choice", "attributes": [{"key": "message", "value": {"stringValue": '[{"text": "yo"}]'}}]},
    ]
    made = {**chat(1, None, 0, 1), "events": events}
    event = loaded(tmp_path, [made]).trace.events[0]
    assert (event.messages, event.content, event.extra) == (({"role": "user", "content": [{"text": "hi"}]},), "yo", {})


def test_tool_calls_in_an_answer_are_kept(tmp_path: Path) -> None:
    asked = {"role": "assistant", "parts": [{"type": "tool_call", "name": "f", "arguments": {"x": 1}}]}
    both = {"role": "assistant", "parts": [{"type": "text", "content": "let me see"}, *asked["parts"]]}
    for answer, text_of_it, kept in ((asked, json.dumps([asked], separators=(",", ":")), []), (both, "let me see", [both])):
        made = chat(1, None, 0, 1, **{"gen_ai.output.messages": json.dumps([answer])})
        event = loaded(tmp_path, [made]).trace.events[0]
        assert (event.content, event.extra.get("answers", [])) == (text_of_it, kept)


def test_errors_come_from_the_status_or_an_exception(tmp_path: Path) -> None:
    attributes = [
        {"key": f"exception.{key}", "value": {"stringValue": value}} for key, value in (("type", "E"), ("message", "m"))
    ]
    raised = [{"name": "exception", "timeUnixNano": str(T0 + MS), "attributes": attributes}]
    made = [
        {**span(1), "status": {"code": 2, "message": "quota"}},
        {**span(2), "status": {"code": "STATUS_CODE_ERROR"}, "events": raised},
        {**span(3), "events": raised},
        {**span(4), "status": {"code": 1}, "events": raised},
        {**span(5), "status": {"code": "ERROR"}},
        span(6, **{"error.type": "timeout"}),
    ]
    errors = [by_id(loaded(tmp_path, made).trace)[event_id].error for event_id in ids(1, 2, 3, 4, 5, 6)]
    assert errors == ["quota", "E: m", "E: m", None, "error", "timeout"]


def test_the_stop_says_how_the_root_ended(tmp_path: Path) -> None:
    stop = loaded(tmp_path, [{**run(1, None, "a", 0, 50), "status": {"code": 2, "message": "quota"}}]).trace.events[-1]
    assert (stop.kind, stop.agent_id, stop.condition, stop.error, stop.t_end_s) == (
        "stop",
        "a",
        "error",
        "quota",
        (T0 + 50 * MS) / 10**9,
    )


def test_an_agent_that_is_created_is_spawned_by_the_span_that_says_so(tmp_path: Path) -> None:
    created = bare(1, None, "create_agent bob", **{"gen_ai.operation.name": "create_agent"})
    trace = loaded(tmp_path, [created, run(2, None, "bob", 20, 30)]).trace
    assert of_kind(trace, "spawn") == [(None, ("bob",), None)]
    assert trace.events[0].basis == "explicit"


def test_the_version_of_the_table_of_names_is_recorded(tmp_path: Path) -> None:
    assert loaded(tmp_path, [span(1)]).trace.source.reader_version == f"1+{spans.names.VERSION}" == spans.VERSION


# --- properties ---------------------------------------------------------------------------------------------------------

ROLES: list[dict[str, Any]] = [
    INVOKE, {**INVOKE, "gen_ai.agent.name": "x"}, {**INVOKE, "gen_ai.agent.name": "y"}, CHAT, {**CHAT, "gen_ai.response.id": "r"},
    TOOL, {**TOOL, "gen_ai.tool.name": "ask_x"}, {**TOOL, "gen_ai.tool.name": "transfer_to_y"},
    {"openinference.span.kind": "AGENT"}, {"openinference.span.kind": "CHAIN", "graph.node.id": "x"},
    {"openinference.span.kind": "AGENT", "graph.node.id": "y", "graph.node.parent_id": "x"}, {"gen_ai.handoff.to_agent": "y"},
    {"gen_ai.operation.name": "create_agent", "gen_ai.agent.name": "z"}, {"traceloop.span.kind": "handoff"}, {},
]  # fmt: skip


@st.composite
def tangles(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Spans whose parents, times and roles are anything: missing, their own, in circles, equal, backwards, none."""
    rows = []
    for n in range(1, draw(st.integers(1, 9)) + 1):
        start, end = draw(st.integers(0, 8)), draw(st.integers(0, 8))
        row = {"trace_id": TRACE, "span_id": f"{n:016x}", "name": draw(st.sampled_from(["", "x", "x.run", "t"]))}
        row["parent_span_id"] = draw(st.sampled_from(["", *(f"{m:016x}" for m in range(1, 11))]))
        row |= {"start_time": T0 + start * MS if start else 0, "end_time": T0 + end * MS if end else 0}
        row["attributes"] = {**draw(st.sampled_from(ROLES)), "output.value": f"o{n}"}
        row["attributes"] |= draw(st.sampled_from([{}, {"gen_ai.usage.input_tokens": n}]))
        rows.append(row)
    return rows


def of_rows(tmp_path: Path, *files: Iterable[dict[str, Any]]) -> Loaded:
    return Loaded(*(written(tmp_path, list(rows), f"{n}.json") for n, rows in enumerate(files) if rows))


@up_to(300)
@given(rows=tangles(), data=st.data())
def test_order_files_and_repetition_make_no_difference(
    rows: list[dict[str, Any]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("tangle")
    whole = of_rows(tmp_path, rows)
    assert_sound(whole.trace, len(rows))
    shuffled = data.draw(st.permutations(rows))
    at = data.draw(st.integers(0, len(rows)))
    again = data.draw(st.lists(st.sampled_from(rows), max_size=3))
    other = of_rows(tmp_path, shuffled[:at], [*shuffled[at:], *again])
    assert content(other.trace) == content(whole.trace)
    encoded = [{**row, **{k: as_base64(row[k]) for k in ("trace_id", "span_id", "parent_span_id") if row[k]}} for row in rows]
    assert content(of_rows(tmp_path, encoded).trace) == content(whole.trace)


@up_to(200)
@given(rows=tangles())
def test_tokens_of_a_span_are_counted_at_most_once_on_each_path(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = of_rows(tmp_path_factory.mktemp("tangle"), rows).trace
    stated = {row["span_id"]: row["attributes"].get("gen_ai.usage.input_tokens") for row in rows}
    counted = tokens(trace)
    assert all(stated[span_id] == n for span_id, (n, _) in counted.items())
    assert bool(counted) == any(n is not None for n in stated.values())


@up_to(200)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
            ["resourceSpans", "scopeSpans", "spans", "traceId", "spanId", "attributes", "key", "value", "stringValue", "events",
             "name", "status", "code", "startTimeUnixNano", "context", "arrayValue", "values", "body", "parentSpanId", "kind"]
        ), inner, max_size=6),
        max_leaves=30,
    )
)  # fmt: skip
def test_any_json_in_the_place_of_spans_gives_traces_or_problems(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    first = {**span(1), "traceId": TRACE}
    path = written(tmp_path_factory.mktemp("any"), json.dumps([first, value, {"resourceSpans": value}, {"spans": [value]}]))
    found = Loaded(path)
    for trace in found.traces.values():
        assert decode(encode(trace)) == trace
    assert f"spans:{TRACE}" in found.traces


def test_each_kind_of_file_is_recognised_by_its_content(tmp_path: Path) -> None:
    made = request([span(1)])
    pb = tmp_path / "spans.txt"
    pb.write_bytes(as_protobuf(made))
    row = {"trace_id": TRACE, "span_id": "a", "name": "n"}
    console = {"name": "n", "context": {"trace_id": f"0x{TRACE}", "span_id": "0x1"}}
    files = [written(tmp_path, value, f"{n}.csv") for n, value in enumerate((made, row, console))]
    assert Loaded(files[0], pb, *files[1:]).kinds == [kind.name for kind in spans.KINDS]
