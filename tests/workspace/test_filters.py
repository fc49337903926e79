"""The filter language: each field on a workspace made by hand, negation as the complement, text of strangers as data."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import Problem, UnknownNameError
from analysis.model import Agent, Claim, Event, Groups, Label, Outcome, Source, Task, Trace
from analysis.workspace import SCHEMAS, Snapshot, Workspace, problem_table, trace_tables
from analysis.workspace.filters import DAY_FIELDS, MANY_FIELDS, NUMBER_FIELDS, TEXT_FIELDS, WORD_FIELDS, where
from analysis.workspace.listing import count, list_rows, page
from tests.strategies import NASTY

A = Trace(
    trace_id="whowhen:Hand-1",
    world="recorded",
    source=Source(format="whowhen"),
    task=Task(task_id="Q1", text='Say "log in", then 50% off; é', domain="web"),
    agents=(
        Agent(agent_id="1", component="WebSurfer", model="Big-1", system_prompt="You SURF."),
        Agent(agent_id="2", component="Coder"),
    ),
    events=(
        Event(event_id="e1", kind="delegate", content="Please LOG in", t_start_s=1.0, input_tokens=30, output_tokens=5),
        Event(event_id="e2", kind="act", error="no page", t_start_s=4.0, basis="derived", rule="r"),
    ),
    labels=(Label(annotator="me", name="mistake", category="Wrong, plan"),),
    outcome=Outcome(passed=False, score=0.25),
    groups=Groups(condition="Unguided", trial="1"),
    clock="relative",
)
B = Trace(
    trace_id="counterpoint:b",
    world="simulated",
    source=Source(format="counterpoint"),
    task=Task(task_id="a,b", text="another task"),
    agents=(Agent(agent_id="1", component="lead"),),
    events=(Event(event_id="e1", kind="stop", output_tokens=7, t_start_s=1_772_495_999.0),),  # 2 March 2026, 23:59:59 UTC
    claims=(Claim(claim_id="c", component="lead", proposition="ok", p=0.5),),
    outcome=Outcome(passed=True, score=3.0),
    groups=Groups(trial="2"),
    clock="unix",
)
C = Trace(trace_id="counterpoint:'; drop table traces; --", world="live", source=Source(format="counterpoint"))


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    workspace = Workspace(tmp_path_factory.mktemp("filters"), create=True)
    rows = trace_tables([(trace, trace.source.format) for trace in (B, C, A)])
    problems = problem_table([Problem(code="orphan", trace_id=A.trace_id), Problem(code="bad-json")], stage="assemble")
    decisions = [
        ("1", A.trace_id, "", "tag", "Seen", "2026-01-01"),
        ("2", A.trace_id, "", "tag", "odd", "2026-01-01"),
        ("3", A.trace_id, "", "untag", "odd", "2026-01-02"),
        ("4", B.trace_id, "e1", "tag", "seen", "2026-01-01"),  # on an event, not on the trace
    ]
    names = ("decision_id", "trace_id", "event_id", "what", "value", "made_at")
    decided = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in decisions], schema=SCHEMAS["decisions"])
    worked_out = {
        "occurrences": {"trace_id": A.trace_id, "pattern_id": "P1"},
        "family_members": {"trace_id": B.trace_id, "family_id": "f1"},
        "mode_members": {"trace_id": A.trace_id, "source": "residual", "mode_id": "m1"},
    }
    stages = {name: pa.Table.from_pylist([row], schema=SCHEMAS[name]) for name, row in worked_out.items()}
    tables = rows | {"problems": problems, "decisions": decided} | stages
    workspace.commit(workspace.head(), {name: [workspace.write(name, data)] for name, data in tables.items()})
    return Snapshot(workspace)


def found(snapshot: Snapshot, text: str) -> str:
    """Which of the three traces fit, as letters."""
    ids: list[str] = page(snapshot, text)["trace_id"].to_pylist()
    letters = {A.trace_id: "A", B.trace_id: "B", C.trace_id: "C"}
    assert count(snapshot, text) == len(ids)
    return "".join(sorted(letters[trace_id] for trace_id in ids))


CASES = {
    "": "ABC", "id:whowhen:hand-1": "A", "id:x": "", "format:whowhen": "A", "format:WHOWHEN": "A",
    "format:whowhen,counterpoint": "ABC", "world:simulated": "B", "world:live,recorded": "AC", "task:q1": "A",
    'task:"a,b"': "B", 'task:q1,"a,b"': "AB", "task:a,b": "", "domain:web": "A", "condition:unguided": "A", "trial:2": "B",
    "passed:yes": "B", "passed:no": "A", "passed:unknown": "C", "agent:websurfer": "A", "agent:lead,coder": "AB",
    "annotator:me": "A", 'category:"wrong, plan"': "A", "category:wrong": "", "problem:orphan": "A", "problem:bad-json": "",
    "finding:none": "", "pattern:p1": "A", "family:f1,f2": "B",
    "mode:m1": "A", "-mode:m1": "BC",
    "tag:seen": "A", "tag:odd": "", "agents>1": "A", "agents>=1": "AB", "agents<1": "C", "agents=0": "C",
    "events=1": "B", "claims>0": "B", "labels>0": "A", "errors>0": "A", "explicit<1": "A", "explicit>=0.5": "AB",
    "score>0.25": "B", "score<=0.25": "A", "tokens>0": "AB", "tokens=35": "A", "tokens<10": "B", "seconds>=3": "A",
    "seconds<1e9": "AB", "text:log": "A", 'text:"please log"': "A", "text:drop": "", "model:big-1": "A", "prompt:surf": "A",
    "prompt:log": "", "date=2026-03-02": "B", "date>2026-03-01": "B", "date<=2026-03-01": "", "-date<2026-03-03": "AC",
    "hand": "A", "HAND": "A", "task": "B", '"another task"': "B", '"log in"': "A", "50%": "A", "é": "A", "É": "A", "drop": "C",
    "x": "", "-passed:yes": "AC", "-agent:websurfer": "BC", "-score>0.25": "AC", "-tag:seen": "BC", "-task": "AC",
    "format:counterpoint -passed:yes": "C", "counter events>0": "B", "a,b": "",
    'id:"counterpoint:\'; drop table traces; --"': "C", "format:,": "", "score>nan": "",
    "events<inf": "ABC", "-": "AC",
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_a_filter_finds_exactly_these_traces(snapshot: Snapshot, text: str) -> None:
    assert found(snapshot, text) == CASES[text]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "world:simulatd",
            "filter: `world` is never that (got simulatd, expected live, simulated, recorded) - did you mean simulated?",
        ),
        ("passed:yes,maybe", "filter: `passed` is never that (got maybe, expected yes, no, unknown) - write passed:yes"),
    ],
)
def test_a_value_that_a_field_never_has_is_told(text: str, said: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        where(text)
    assert str(error.value) == said


def test_every_field_is_tried() -> None:
    tried = {text.lstrip("-").split(operator)[0] for text in CASES for operator in ":<>=" if operator in text}
    assert tried >= {*TEXT_FIELDS, *MANY_FIELDS, *NUMBER_FIELDS, *WORD_FIELDS, *DAY_FIELDS}


VALUES = st.sampled_from([*NASTY, "1", "0.5", "whowhen", "seen", "lead", "yes", "%", "_", "a,b", "\udcff"]) | st.text(max_size=8)
FREE = [*sorted({*TEXT_FIELDS} - {"world", "passed"}), *MANY_FIELDS, *WORD_FIELDS]
TERMS = st.one_of(
    st.builds(lambda name, value: f'{name}:"{value}"', st.sampled_from(FREE), VALUES),
    st.builds(lambda n, o, v: f"{n}{o}{v}", st.sampled_from(sorted(NUMBER_FIELDS)), st.sampled_from([">", "<", ">=", "<=", "="]),
              st.floats() | st.integers()),
    VALUES.map(lambda value: f'"{value}"'),
)  # fmt: skip


@settings(max_examples=35, deadline=None)
@given(term=TERMS)
def test_a_term_and_its_negation_part_the_traces(snapshot: Snapshot, term: str) -> None:
    if term.count('"') > 2 or term == '""':  # a quote within quotes ends the term: there are two terms then
        return
    fitting, others = found(snapshot, term), found(snapshot, f"-{term}")
    assert sorted(fitting + others) == ["A", "B", "C"]


@settings(max_examples=35, deadline=None)
@given(text=st.lists(TERMS | VALUES, max_size=4).map(" ".join))
def test_whatever_is_typed_is_a_filter_or_one_line_of_advice(snapshot: Snapshot, text: str) -> None:
    try:
        found(snapshot, text)
    except UnknownNameError as error:
        advice = str(error)
    else:
        advice = "filter: "
    assert advice.startswith("filter: ")
    assert advice.isprintable()


@settings(max_examples=50, deadline=None)
@given(value=VALUES)
def test_a_value_never_stands_in_the_query(value: str) -> None:
    plain = value.replace('"', "")
    assert where(f'task:"{plain}"')[0] == where("task:x")[0]
    assert where(f'"{plain}."')[0] == where("x")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour:red", "filter: unknown field (got colour, expected one of agent, agents, annotator, "),
        ("formt:x", "did you mean format?"),
        ("zzz:x", "put text that holds : < > = in quotes"),
        ("events:3", "filter: `events` is a number (got events:) - write events>3"),
        ("format>3", "filter: `format` is a text (got format>) - write format:value"),
        ("date>=soon", "filter: `date` takes a day (got soon) - write date>=2026-03-01"),
        ("date:2026-03-01", "filter: `date` is a day (got date:) - write date>=2026-03-01"),
        ("events>many", "filter: `events` takes a number (got many) - write events>3"),
        (" ".join(["x"] * 101), "filter: too many terms (got 101, expected at most 100)"),
    ],
)
def test_a_mistake_in_a_filter_is_named(text: str, message: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        where(text)
    assert message in str(caught.value)


def test_pages_are_ordered_with_the_unknown_last_and_ties_by_id(snapshot: Snapshot) -> None:
    def ids(**options: object) -> list[str]:
        return page(snapshot, **options)["trace_id"].to_pylist()  # type: ignore[arg-type]

    assert ids() == sorted([A.trace_id, B.trace_id, C.trace_id])
    assert ids(order="score") == [A.trace_id, B.trace_id, C.trace_id]
    assert ids(order="score", descending=True) == [B.trace_id, A.trace_id, C.trace_id]
    assert ids(order="format", limit=1, offset=1) == [B.trace_id]
    with pytest.raises(UnknownNameError, match=r"order: unknown column \(got trace_id; drop table x,"):
        page(snapshot, order="trace_id; drop table x")


def test_a_page_names_annotators_and_standing_tags(snapshot: Snapshot) -> None:
    rows = page(snapshot).to_pylist()
    assert {row["trace_id"]: (row["annotators"], row["tags"]) for row in rows} == {
        A.trace_id: ("me", "Seen"), B.trace_id: ("", ""), C.trace_id: ("", ""),
    }  # fmt: skip


def test_list_rows_say_what_the_command_prints(snapshot: Snapshot) -> None:
    (row,) = list_rows(snapshot, "hand")
    expected = {
        "trace_id": "whowhen:Hand-1", "format": "whowhen", "world": "recorded", "n_agents": 2, "n_events": 2,
        "explicit_share": 0.5, "n_claims": 0, "task_id": "Q1", "condition": "Unguided",
        "outcome": {"passed": False, "score": 0.25},
        "labels": [{"annotator": "me", "name": "mistake", "category": "Wrong, plan", "basis": "explicit"}], "tags": "Seen",
        "metrics": {},
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert len(list_rows(snapshot, limit=2)) == 2


def test_an_empty_workspace_fits_no_filter(tmp_path: Path) -> None:
    empty = Snapshot(Workspace(tmp_path, create=True))
    for text in ("", "tag:x", "agent:x -events>2", "text:a", "problem:orphan"):
        assert count(empty, text) == 0
        assert list_rows(empty, text) == []
