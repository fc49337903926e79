"""The records: frozen, checked once, and exact on the way out and in again."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given

from analysis import model
from analysis.errors import TraceError
from analysis.model import Trace, decode, digest, encode
from tests.examples import up_to
from tests.strategies import traces

PLAIN: dict[str, Any] = {"trace_id": "counterpoint:a", "world": "recorded", "source": {"format": "x"}}
E1: dict[str, Any] = {"event_id": "e1"}
CLAIM: dict[str, Any] = {"claim_id": "c", "component": "x", "proposition": "a", "p": 0.5}


def line(**fields: Any) -> bytes:
    return json.dumps({"format": "counterpoint/1"} | PLAIN | fields).encode()


def nested(depth: int) -> dict[str, Any]:
    """An object of `depth` levels: itself, and lists within it."""
    inner: Any = 0
    for _ in range(depth - 1):
        inner = [inner]
    return {"a": inner}


@up_to(150)
@given(traces)
def test_every_trace_comes_back_equal_and_encodes_to_the_same_bytes(trace: Trace) -> None:
    back = decode(encode(trace))
    assert back == trace
    assert encode(back) == encode(trace)
    assert b"\n" not in encode(trace)


@up_to(50)
@given(traces)
def test_a_trace_read_by_any_other_json_parser_says_the_same(trace: Trace) -> None:
    assert decode(json.dumps(json.loads(encode(trace))).encode()) == trace


@up_to(50)
@given(traces)
def test_a_copy_made_field_by_field_encodes_to_the_same_bytes(trace: Trace) -> None:
    plain = msgspec.to_builtins(trace)
    for name, none in (("task", {}), ("outcome", {}), ("groups", {})):
        plain.setdefault(name, none)
    for event in plain.get("events", []):
        event.setdefault("basis", "".join(["exp", "licit"]))
    copy = decode(json.dumps(plain).encode())
    assert copy == trace
    assert encode(copy) == encode(trace)


def test_a_full_trace_has_this_text() -> None:
    trace = Trace(
        trace_id="counterpoint:a",
        world="live",
        source=model.Source(format="x", file="f.json"),
        agents=(model.Agent(agent_id="lead", component="planner"),),
        events=(
            model.Event(
                event_id="e1", kind="delegate", agent_id="lead", targets=("w",), context_package=model.ContextPackage(nl="do")
            ),
            model.Event(event_id="e2", kind="stop", order=1, condition="done", basis="derived", rule="last"),
        ),
        claims=(model.Claim(claim_id="c", component="planner", proposition="ok", p=-0.0),),
        outcome=model.Outcome(passed=False, score=0.0, score_scale=(0.0, 1.0)),
    )
    assert encode(trace).decode() == (
        '{"format":"counterpoint/1","trace_id":"counterpoint:a","world":"live","source":{"format":"x","file":"f.json"},'
        '"agents":[{"agent_id":"lead","component":"planner"}],'
        '"events":[{"event_id":"e1","kind":"delegate","agent_id":"lead","targets":["w"],"context_package":{"nl":"do"}},'
        '{"event_id":"e2","kind":"stop","order":1,"condition":"done","basis":"derived","rule":"last"}],'
        '"claims":[{"claim_id":"c","component":"planner","proposition":"ok","p":-0.0}],'
        '"outcome":{"passed":false,"score":0.0,"score_scale":[0.0,1.0]}}'
    )
    after_the_id = encode(trace).partition(b'"counterpoint:a"')[2]
    assert digest(trace) == "blake2b:" + hashlib.blake2b(after_the_id, digest_size=16).hexdigest()


def test_what_is_not_known_is_absent() -> None:
    trace = decode(line(events=[E1]))
    (event,) = trace.events
    assert (event.kind, event.t_start_s, event.input_tokens, trace.outcome.passed, trace.clock) == (None, None, None, None, None)
    assert trace.claims == ()


def test_records_cannot_be_changed() -> None:
    trace = decode(line(events=[E1]))
    for record, field in ((trace, "world"), (trace.events[0], "order"), (trace.source, "format"), (trace.task, "text")):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(record, field, None)


def test_the_digest_changes_with_any_part_of_the_content_and_with_nothing_else() -> None:
    versions = [line(), line(world="live"), line(events=[E1]), line(extra={"a": 1}), line(outcome={"passed": False})]
    assert len({digest(decode(version)) for version in versions}) == len(versions)
    for same in (line(groups={}, task={}, events=[], outcome={}), line(trace_id="other:\u2028id")):
        assert digest(decode(same)) == digest(decode(line()))
    assert digest(decode(line(extra={"a": 1, "b": 2}))) == digest(decode(line(extra={"b": 2, "a": 1})))


def test_the_payload_holds_the_fields_of_the_kind_that_are_set() -> None:
    spawn = model.Event(event_id="e", kind="spawn", task_split="by file", assignment={"w": "tests"}, content="go")
    merge = model.Event(event_id="e", kind="aggregate", merge_points=("a", "b"))
    handed = model.Event(event_id="e", kind="delegate", context_package=model.ContextPackage(scenarios=("s",)))
    assert spawn.payload == {"task_split": "by file", "assignment": {"w": "tests"}}
    assert merge.payload == {"merge_points": ("a", "b")}
    assert handed.payload == {"context_package": {"scenarios": ("s",)}}
    for kind in (*model.PAYLOAD, None):
        assert model.Event(event_id="e", kind=kind).payload == {}


@pytest.mark.parametrize(("p", "outside"), [(0.0, False), (1.0, False), (-1e-9, True), (1.5, True)])
def test_a_quote_outside_the_unit_interval_is_kept_and_flagged(p: float, outside: bool) -> None:
    claim = model.Claim(claim_id="c", component="x", proposition="a", p=p)
    assert (claim.p, claim.is_out_of_range) == (p, outside)


WRONG: dict[str, tuple[bytes, str]] = {
    "not-json": (b"{", "Input data was truncated"),
    "no-object": (b"[]", "Expected `object`, got `array`"),
    "other-format": (line().replace(b"counterpoint/1", b"counterpoint/2"), "Invalid value 'counterpoint/2' - at `$.format`"),
    "no-world": (b'{"trace_id": "a", "source": {"format": "x"}}', "missing required field `world`"),
    "unknown-world": (line(world="dream"), "Invalid enum value 'dream' - at `$.world`"),
    "unknown-field": (line(colour="red"), "unknown field `colour`"),
    "unknown-field-inside": (line(events=[E1 | {"colour": "red"}]), "unknown field `colour` - at `$.events[0]`"),
    "unknown-kind": (line(events=[E1 | {"kind": "ponder"}]), "Invalid enum value 'ponder'"),
    "empty-id": (line(trace_id=""), "length >= 1"),
    "long-id": (line(trace_id="x" * 513), "length <= 512"),
    "long-agent": (line(events=[E1 | {"agent_id": "x" * 513}]), "length <= 512"),
    "empty-target": (line(events=[E1 | {"targets": [""]}]), "length >= 1"),
    "negative-count": (line(events=[E1 | {"order": -1}]), ">= 0"),
    "large-count": (line(events=[E1 | {"order": 2**53 + 1}]), "<= 9007199254740992"),
    "large-tokens": (line(events=[E1 | {"input_tokens": 2**40 + 1}]), "<= 1099511627776"),
    "half-a-count": (line(events=[E1 | {"turn": 0.5}]), "Expected `int | null`, got `float`"),
    "infinite": (line(claims=[CLAIM | {"p": 1}]).replace(b'"p": 1', b'"p": 1e999'), "Number out of range"),
    "no-number": (line(claims=[CLAIM | {"p": None}]), "Expected `float`, got `null` - at `$.claims[0].p`"),
    "foreign-field": (line(events=[E1 | {"kind": "act", "strategy": "vote"}]), "`strategy` belongs to aggregate, not to act"),
    "opaque-with-payload": (line(events=[E1 | {"action": "note"}]), "`action` belongs to act, not to None"),
    "same-event-twice": (line(events=[E1, E1]), "event id 'e1' occurs twice"),
    "same-agent-twice": (line(agents=[{"agent_id": "a", "component": "a"}] * 2), "agent id 'a' occurs twice"),
    "same-claim-twice": (line(claims=[CLAIM, CLAIM]), "claim id 'c' occurs twice"),
    "no-clock": (line(events=[E1 | {"t_start_s": 1.0}]), "no `clock`"),
    "half-a-character": (line(task={"text": "?"}).replace(b'"?"', b'"\\ud83d"'), "truncated"),
    "bad-utf8": (line(task={"text": "?"}).replace(b'"?"', b'"\xff"'), "Invalid UTF-8"),
    "deep": (line(extra={"a": 0}).replace(b": 0", b": " + b"[" * 100_000), "maximum recursion depth exceeded"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_line_that_breaks_a_rule_is_refused_in_words(name: str) -> None:
    text, message = WRONG[name]
    with pytest.raises(TraceError, match=re.escape(message)) as caught:
        decode(text)
    assert str(caught.value).startswith("trace: ")
    assert str(caught.value).endswith(" - see the native format in README.md")


@pytest.mark.parametrize("place", ["trace", "event", "message", "agent", "task", "counterfactual"])
def test_free_values_may_be_nested_100_levels_and_no_more(place: str) -> None:
    def nest(depth: int) -> bytes:
        free = nested(depth)
        return {
            "trace": line(extra=free),
            "event": line(events=[E1 | {"extra": free}]),
            "message": line(events=[E1 | {"messages": [free]}]),
            "agent": line(agents=[{"agent_id": "a", "component": "a", "extra": free}]),
            "task": line(task={"extra": free}),
            "counterfactual": line(counterfactual={"parent_trace_id": "p", "event_id": "e", "operator": "o", "parameters": free}),
        }[place]

    assert decode(encode(decode(nest(100)))) == decode(nest(100))
    for depth in (101, 500):
        with pytest.raises(TraceError, match="nested deeper than 100 levels"):
            decode(nest(depth))
