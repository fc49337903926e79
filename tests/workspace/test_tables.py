"""Traces to rows and back: equal, whatever stands in them; and the totals of a trace's row, by hand."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import Problem
from analysis.model import Agent, Claim, Event, Groups, Label, Outcome, Source, Task, Trace, digest, encode
from analysis.workspace import SCHEMAS, problem_table, trace_tables
from analysis.workspace.tables import MEMBERS, traces_from
from tests.examples import up_to
from tests.strategies import traces

SEVERAL = st.lists(traces, max_size=3, unique_by=lambda trace: trace.trace_id)
RUN = Trace(
    trace_id="x:1",
    world="recorded",
    source=Source(format="x"),
    task=Task(task_id="t", text="do it", domain="d"),
    agents=(Agent(agent_id="a", component="lead"), Agent(agent_id="b", component="coder")),
    events=(
        Event(event_id="e1", kind="spawn", targets=("b",), t_start_s=5.0),
        Event(event_id="e2", kind="delegate", basis="derived", rule="r", t_start_s=1.5, t_end_s=2.0, input_tokens=3),
        Event(event_id="e3", kind="act", error="no file", content="", input_tokens=4),
        Event(event_id="e4"),
    ),
    claims=(Claim(claim_id="c", component="lead", proposition="ok", p=0.5),),
    outcome=Outcome(passed=False, score=0.25),
    labels=(Label(annotator="me", name="mistake"),),
    groups=Groups(condition="unguided", trial="2"),
    clock="relative",
)
BARE = Trace(trace_id="x:0", world="live", source=Source(format="x"))


@up_to(40)
@given(SEVERAL)
def test_traces_come_back_from_their_rows_equal_and_with_the_same_bytes(run: list[Trace]) -> None:
    back = traces_from(trace_tables([(trace, "counterpoint") for trace in run]))
    expected = sorted(run, key=lambda trace: trace.trace_id)
    assert back == expected
    assert [encode(trace) for trace in back] == [encode(trace) for trace in expected]


@settings(max_examples=20, deadline=None)
@given(SEVERAL)
def test_the_order_of_rows_does_not_matter(run: list[Trace]) -> None:
    tables = trace_tables([(trace, "counterpoint") for trace in run])
    turned = {name: rows.take(pa.array(range(rows.num_rows)[::-1], pa.int64())) for name, rows in tables.items()}
    assert traces_from(turned) == traces_from(tables)


def test_every_table_has_its_schema_with_and_without_rows() -> None:
    for tables in (trace_tables([]), trace_tables([(RUN, "x"), (BARE, "x")])):
        assert {name: rows.schema for name, rows in tables.items()} == {
            name: SCHEMAS[name] for name in ("traces", "texts", *MEMBERS)
        }
        assert all(rows.schema.names[0] == "trace_id" for rows in tables.values())


def test_the_row_of_a_trace_holds_its_totals() -> None:
    full, bare = trace_tables([(RUN, "x"), (BARE, "y")])["traces"].to_pylist()
    totals = {
        "family": "x",
        "format": "x",
        "task_id": "t",
        "task_text": "do it",
        "domain": "d",
        "condition": "unguided",
        "trial": "2",
        "passed": False,
        "score": 0.25,
        "n_agents": 2,
        "n_events": 4,
        "n_claims": 1,
        "n_labels": 1,
        "n_spawn": 1,
        "n_delegate": 1,
        "n_communicate": 0,
        "n_aggregate": 0,
        "n_stop": 0,
        "n_act": 1,
        "n_errors": 1,
        "explicit_share": 0.75,  # all but e2
        "input_tokens": 7,
        "output_tokens": None,
        "makespan_s": 3.5,  # from 1.5 to 5: an event without an end still happened
        "digest": digest(RUN),
    }
    assert {name: full[name] for name in totals} == totals
    unknown = ("passed", "score", "task_id", "condition", "explicit_share", "input_tokens", "output_tokens", "makespan_s")
    assert [bare[name] for name in unknown] == [None] * len(unknown)
    assert (bare["n_events"], bare["family"]) == (0, "y")


def test_the_group_names_the_task_where_it_differs_from_the_tasks_own_id() -> None:
    grouped = Trace(
        trace_id="x:2", world="live", source=Source(format="x"), task=Task(task_id="own"), groups=Groups(task="shared")
    )
    assert trace_tables([(grouped, "x")])["traces"]["task_id"].to_pylist() == ["shared"]


def test_texts_stand_apart_and_an_empty_text_is_not_a_missing_one() -> None:
    tables = trace_tables([(RUN, "x")])
    assert tables["texts"].to_pylist() == [
        {"trace_id": "x:1", "position": 2, "event_id": "e3", "content": "", "messages": None},
    ]
    assert "content" not in tables["events"].schema.names
    assert [event.content for event in traces_from(tables)[0].events] == [None, None, "", None]


def test_token_totals_fit_64_bits() -> None:
    events = tuple(Event(event_id=str(n), input_tokens=2**40) for n in range(3000))
    trace = Trace(trace_id="x:1", world="live", source=Source(format="x"), events=events)
    assert trace_tables([(trace, "x")])["traces"]["input_tokens"].to_pylist() == [3000 * 2**40]


def test_problems_become_rows_in_words() -> None:
    problem = Problem(code="bad-json", file="f.jsonl", record="line 3", got="x", n=4)
    assert problem_table([problem], stage="read").to_pylist() == [
        {
            "trace_id": "",
            "file": "f.jsonl",
            "record": "line 3",
            "code": "bad-json",
            "severity": "lost",
            "message": "not valid JSON",
            "got": "x",
            "expected": "",
            "hint": "mend or remove this record",
            "n": 4,
            "stage": "read",
        }
    ]
    assert problem_table([], stage="assemble").schema == SCHEMAS["problems"]
    assert isinstance(problem_table([], stage="assemble"), pa.Table)
