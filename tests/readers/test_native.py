"""The native format: exact for what this program wrote, forgiving and outspoken for what a person wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import Problem
from analysis.model import Event, Trace, decode, digest, encode
from analysis.readers import Fragment, native, read, recognise
from analysis.readers.source import Source, open_source
from tests.examples import up_to
from tests.strategies import imported_traces, json_values, traces

HEAD: dict[str, Any] = {"format": "counterpoint/1", "trace_id": "a", "world": "live", "source": {"format": "x"}}


def items(folder: Path, data: bytes) -> list[Fragment | Problem]:
    path = folder / "f.jsonl"
    path.write_bytes(data)
    source = open_source(path, "f.jsonl")
    assert isinstance(source, Source), source
    found = recognise(source)
    assert not isinstance(found, Problem), found
    assert found[1] == "counterpoint"
    return list(read(source, *found))


def one(folder: Path, **fields: Any) -> tuple[Trace | None, list[str]]:
    """The trace of one record, and the problems in words."""
    found = items(folder, json.dumps(HEAD | fields).encode())
    traces = [assembled(item) for item in found if isinstance(item, Fragment)]
    return traces[0] if traces else None, [str(item) for item in found if isinstance(item, Problem)]


def assembled(fragment: Fragment) -> Trace:
    trace, problems = native.assemble(fragment.trace_id, [fragment])
    assert problems == []
    return trace


@up_to(60)
@given(run=imported_traces, as_list=st.booleans())
def test_what_was_written_comes_back_equal(tmp_path_factory: pytest.TempPathFactory, run: list[Trace], as_list: bool) -> None:
    lines = [encode(trace) for trace in run]
    found = items(tmp_path_factory.mktemp("native"), b"[" + b",\n".join(lines) + b"]" if as_list else b"\n".join(lines))
    assert [assembled(item) for item in found if isinstance(item, Fragment)] == run
    assert [item for item in found if isinstance(item, Problem)] == []


@up_to(40)
@given(trace=traces, colour=json_values)
def test_an_unknown_field_is_kept_and_all_else_is_read_as_if_it_were_not_there(
    tmp_path_factory: pytest.TempPathFactory, trace: Trace, colour: Any
) -> None:
    record = json.loads(encode(trace)) | {"trace_id": "x:1"}
    found = items(tmp_path_factory.mktemp("native"), json.dumps(record | {"colour": colour}).encode())
    (problem,) = [item for item in found if isinstance(item, Problem)]
    (fragment,) = [item for item in found if isinstance(item, Fragment)]
    assert (problem.code, problem.got, problem.trace_id) == ("unknown-field", "colour", "x:1")
    kept = assembled(fragment)
    assert kept.extra["unknown"]["colour"] == colour
    assert msgspec.structs.replace(kept, extra={}) == msgspec.structs.replace(trace, trace_id="x:1", extra={})


def test_an_id_without_a_format_gets_the_native_one(tmp_path: Path) -> None:
    lines = [json.dumps(HEAD | {"trace_id": trace_id}) for trace_id in ("a", "whowhen:hand-1", "../../x", "con", "‮x")]
    found = items(tmp_path, "\n".join(lines).encode())
    assert [(item.trace_id, item.part, item.record) for item in found if isinstance(item, Fragment)] == [
        ("counterpoint:a", "trace", "line 1"),
        ("whowhen:hand-1", "trace", "line 2"),
        ("counterpoint:../../x", "trace", "line 3"),
        ("counterpoint:con", "trace", "line 4"),
        ("counterpoint:‮x", "trace", "line 5"),
    ]
    assert len(found) == 5


def test_a_trace_kept_apart_under_another_id_is_else_the_same(tmp_path: Path) -> None:
    (fragment,) = items(tmp_path, json.dumps(HEAD | {"extra": {"a": 1}}).encode())
    assert isinstance(fragment, Fragment)
    trace, _ = native.assemble("counterpoint:a~2", [fragment])
    assert trace.trace_id == "counterpoint:a~2"
    assert digest(trace) == digest(assembled(fragment))


def test_how_a_record_is_written_does_not_change_its_digest(tmp_path: Path) -> None:
    plain, spaced = items(
        tmp_path, json.dumps(HEAD).encode() + b"\n" + json.dumps(HEAD | {"events": [], "task": {}}, indent=None).encode()
    )
    turned = items(tmp_path, json.dumps(dict(reversed(HEAD.items())), indent=2).encode())[0]
    assert isinstance(plain, Fragment)
    assert isinstance(spaced, Fragment)
    assert isinstance(turned, Fragment)
    assert plain.digest == spaced.digest == turned.digest
    assert (plain.record, turned.record) == ("line 1", "document")


def test_unknown_fields_at_any_place_are_kept_by_their_path(tmp_path: Path) -> None:
    trace, problems = one(
        tmp_path,
        colour="red",
        extra={"mine": 1, "unknown": {"older": 2}},
        task={"mood": {"a": [1]}},
        events=[
            {"event_id": "e1"},
            {"event_id": "e2", "kind": "delegate", "speed": 3, "context_package": {"nl": "x", "tone": "low"}},
        ],
    )
    assert trace is not None
    assert trace.extra == {
        "mine": 1,
        "unknown": {
            "older": 2,
            "colour": "red",
            "task.mood": {"a": [1]},
            "events[1].speed": 3,
            "events[1].context_package.tone": "low",
        },
    }
    assert problems == [
        "f.jsonl:document: unknown field kept under `extra` (got colour, task.mood, events[1].speed, "
        "events[1].context_package.tone) - check the spelling if a known field was meant"
    ]
    assert decode(encode(trace)) == trace


def test_of_many_unknown_fields_the_first_are_named_and_all_are_counted(tmp_path: Path) -> None:
    found = items(tmp_path, json.dumps(HEAD | {f"f{n}": n for n in range(1000)}).encode())
    (problem,) = [item for item in found if isinstance(item, Problem)]
    assert (problem.n, problem.got) == (1000, "f0, f1, f2, f3, f4, f5, f6, f7")


def test_repeated_event_ids_get_the_next_free_number(tmp_path: Path) -> None:
    trace, problems = one(tmp_path, events=[{"event_id": name} for name in ("e", "e~2", "e", "e", "f", "e~2")])
    assert trace is not None
    assert [event.event_id for event in trace.events] == ["e", "e~2", "e~3", "e~4", "f", "e~2~2"]
    assert problems == [
        "f.jsonl:document: event id occurs twice; the later one was renamed (got e, e, e~2) - give each event its own id"
    ]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no-world": ({"world": None}, "Expected `str`, got `null` - at `$.world`"),
    "later-version": ({"format": "counterpoint/2"}, "Invalid value 'counterpoint/2' - at `$.format`"),
    "text-for-number": ({"events": [{"event_id": "e", "order": "1"}]}, "Expected `int`, got `str` - at `$.events[0].order`"),
    "object-for-list": ({"events": {"event_id": "e"}}, "Expected `array`, got `object` - at `$.events`"),
    "number-for-record": ({"agents": [3]}, "Expected `object`, got `int` - at `$.agents[0]`"),
    "list-for-extra": ({"extra": [1], "colour": 1}, "Expected `object`, got `array` - at `$.extra`"),
    "no-clock": ({"events": [{"event_id": "e", "t_end_s": 1}]}, "events have times but the trace has no `clock`"),
    "foreign-field": ({"events": [{"event_id": "e", "kind": "stop", "action": "x"}]}, "`action` belongs to act, not to stop"),
    "same-agent-twice": ({"agents": [{"agent_id": "a", "component": "c"}] * 2}, "agent id 'a' occurs twice"),
    "deep": ({"task": {"extra": json.loads('{"a":' + "[" * 500 + "]" * 500 + "}")}}, "nested deeper than 100 levels - at"),
    "long-id": ({"trace_id": "x" * 488}, "trace_id of 501 characters, its format included, expected at most 500"),
    "not-an-id": ({"trace_id": 7}, "Expected `str`, got `int` - at `$.trace_id`"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_that_breaks_a_rule_is_refused_in_words_and_its_neighbours_come_in(tmp_path: Path, name: str) -> None:
    fields, message = REFUSED[name]
    good = json.dumps(HEAD | {"trace_id": "good"})
    found = items(tmp_path, f"{good}\n{json.dumps(HEAD | fields)}\n{good}\n".encode())
    assert [item.record for item in found if isinstance(item, Fragment)] == ["line 1", "line 3"]
    (problem,) = [item for item in found if isinstance(item, Problem)]
    assert str(problem).startswith("f.jsonl:line 2: a value is not what the field takes (got ")
    assert message in str(problem)
    assert str(problem).endswith(") - mend the value")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"question_ID": 1}',
            "f.jsonl:line 2: the record is of another format than its file (got keys question_ID) - split the file",
        ),
        ("[1]", "f.jsonl:line 2: the record does not have the shape its format promises (got list, expected object)"),
        ("null", "f.jsonl:line 2: the record does not have the shape its format promises (got NoneType, expected object)"),
        ("{oops}", "f.jsonl:line 2: not valid JSON (got Expecting property name enclosed in double quotes at character 1)"),
    ],
)
def test_a_line_that_is_no_native_record_is_named(tmp_path: Path, line: str, message: str) -> None:
    first, problem, last = items(tmp_path, f"{json.dumps(HEAD)}\n{line}\n{json.dumps(HEAD)}".encode())
    assert isinstance(first, Fragment)
    assert isinstance(last, Fragment)
    assert str(problem).startswith(message)


def test_numbers_that_are_none_are_absent_and_named(tmp_path: Path) -> None:
    data = json.dumps(HEAD | {"outcome": {"score": 7}}).replace("7", "NaN").encode()
    found = items(tmp_path, data + b"\n" + data)
    assert [(item.code, item.record) for item in found if isinstance(item, Problem)] == [
        ("bad-number", "line 1"),
        ("bad-number", "line 2"),
    ]
    assert [assembled(item).outcome.score for item in found if isinstance(item, Fragment)] == [None, None]


def test_the_longest_id_still_round_trips_with_everything_that_is_put_around_it(tmp_path: Path) -> None:
    (fragment,) = items(tmp_path, json.dumps(HEAD | {"trace_id": "x" * 487}).encode())
    assert isinstance(fragment, Fragment)
    trace, _ = native.assemble(f"{fragment.trace_id}~12345", [fragment])
    assert decode(encode(trace)) == trace


@pytest.mark.parametrize("first", [b'{"format": "counterpoint"}', b'{"format": 3}', b"[]", b'{"trace_id": "a"}', b"[[1]]"])
def test_other_json_is_not_taken_for_the_native_format(tmp_path: Path, first: bytes) -> None:
    (tmp_path / "f").write_bytes(first)
    source = open_source(tmp_path / "f", "f")
    assert isinstance(source, Source)
    assert native.detect(source) is None
    problem = recognise(source)
    assert isinstance(problem, Problem)
    assert str(problem).startswith("f: no reader knows this format (got JSON document, first record: ")


@up_to(100)
@given(
    patch=st.dictionaries(st.sampled_from([*Trace.__struct_fields__, "format", "colour"]), json_values, min_size=1, max_size=3)
)
def test_whatever_stands_in_a_field_it_is_a_sound_trace_or_a_named_problem(
    tmp_path_factory: pytest.TempPathFactory, patch: dict[str, Any]
) -> None:
    good = json.dumps(HEAD | {"trace_id": "good"}).encode()
    first, *found = items(tmp_path_factory.mktemp("native"), good + b"\n" + json.dumps(HEAD | patch).encode())
    assert isinstance(first, Fragment)
    fragments = [item for item in found if isinstance(item, Fragment)]
    lost = [item for item in found if isinstance(item, Problem) and item.severity == "lost"]
    assert len(fragments) + len(lost) == 1
    for fragment in fragments:
        assert decode(encode(assembled(fragment))) == assembled(fragment)


@up_to(60)
@given(
    events=st.lists(
        st.dictionaries(st.sampled_from(Event.__struct_fields__), json_values | st.sampled_from(["e", "act"]), max_size=4)
    )
)
def test_whatever_stands_in_an_event_it_is_a_sound_trace_or_a_named_problem(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]]
) -> None:
    named = [{"event_id": "e"} | event for event in events]
    trace, problems = one(tmp_path_factory.mktemp("native"), events=named)
    assert (trace is not None) or len(problems) == 1
    if trace is not None:
        assert decode(encode(trace)) == trace
