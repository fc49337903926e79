"""What the composition reader makes of real records, of records made by hand, and of broken ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import Problem
from analysis.model import Agent, Claim, Event, Groups, Label, Relation, Trace, decode, encode
from analysis.readers import composition
from analysis.readers.fragment import Assembled, Fragment
from analysis.readers.source import Source, open_source

FILES = {
    "deployed_agent_results.json": "composition-deployed",
    "deployed_agent_haiku.json": "composition-deployed",
    "real_agent_results.json": "composition-quotes",
}

ASK = "delegate_to_specialist"


def asked(turn: int, args: dict[str, Any], p: float, n_samples: int) -> dict[str, Any]:
    return {"turn": turn, "tool": ASK, "args": args, "result": {"probability": p, "n_samples": n_samples}}


DEPLOYED: dict[str, Any] = {
    "label": "who wins the cup",
    "outcomes": ["A wins the cup", "B wins the cup", "C wins the cup"],
    "condition": "unguided",
    "planner": "small",
    "final_probs": [0.5, 0.25, 0.5],
    "sum": 1.25,
    "eps_star": 0.14433756729740643,
    "elapsed_s": 2.5,
    "trace": [
        asked(0, {"specialist_id": "x", "question_text": "What is the  probability that a wins the cup?"}, 0.625, 8),
        asked(0, {"specialist_id": "y", "question_text": "Will someone other than A or C wins the cup?"}, 0.25, 4),
        asked(1, {"specialialist_id": "x", "question_text": "will someone other than a or C wins the cup?"}, 0.5, 0),
        {"turn": 2, "tool": "submit_final_partition_quote", "args": {"probabilities": [0.5, 0.25, 0.5]}},
    ],
}
QUOTES: dict[str, Any] = {
    "label": "who wins the cup",
    "outcomes": ["A wins", "B wins"],
    "assigned_specialists": ["x", "x"],
    "per_outcome_means": [0.75, 0.5],
    "per_outcome_samples": [[0.5, 1.0], []],
    "sum": 1.25,
    "eps_star": 0.17677669529663687,
}


def opened(path: Path) -> Source:
    source = open_source(path, path.name)
    assert isinstance(source, Source)
    return source


def items(path: Path, kind: str | None = None) -> list[Fragment | Problem]:
    source = opened(path)
    kind = kind or composition.detect(source)
    assert kind is not None
    return list(composition.read(source, kind))


def assembled(item: Fragment | Problem) -> Assembled:
    assert isinstance(item, Fragment), str(item)
    return composition.assemble(item.trace_id, [item])


def one(tmp_path: Path, record: Any, kind: str | None = None) -> Assembled:
    (item,) = items(written(tmp_path, [record]), kind)
    return assembled(item)


def written(tmp_path: Path, records: Any) -> Path:
    path = tmp_path / "records.json"
    path.write_text(json.dumps(records))
    return path


@pytest.fixture(scope="module")
def real(shared_traces: Path) -> dict[str, list[Assembled]]:
    return {name: [assembled(item) for item in items(shared_traces / "compositional" / name)] for name in FILES}


def events(results: list[Assembled], kind: str) -> list[Event]:
    return [event for result in results for event in result.trace.events if event.kind == kind]


def distance_to_simplex(p: list[float]) -> float:
    """Distance of p to {r >= 0, sum r = 1}; coherence.md 1.3, by sorting."""
    quotes = np.array(p)
    falling = np.sort(quotes)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(p) + 1)
    theta = excess[falling > excess][-1]
    return float(np.linalg.norm(quotes - np.maximum(quotes - theta, 0)))


# --- the real files ---


@pytest.mark.parametrize(("name", "kind"), FILES.items())
def test_each_real_file_is_recognised_by_content(shared_traces: Path, name: str, kind: str) -> None:
    assert composition.detect(opened(shared_traces / "compositional" / name)) == kind


def test_derived_tables_beside_them_are_not_taken(shared_traces: Path) -> None:
    others = sorted(p for p in (shared_traces / "compositional").rglob("*.json") if p.name not in FILES)
    assert len(others) == 9
    assert [composition.detect(opened(path)) for path in others] == [None] * 9


def test_every_record_is_a_trace_of_its_own(real: dict[str, list[Assembled]]) -> None:
    assert [len(results) for results in real.values()] == [60, 200, 100]
    traces = [result.trace for results in real.values() for result in results]
    assert len({trace.trace_id for trace in traces}) == 360
    assert {len(trace.trace_id) for trace in traces} == {len("composition:") + 12}


def test_events_of_the_deployed_runs(real: dict[str, list[Assembled]]) -> None:
    counts = {name: Counter((e.kind, e.basis) for r in real[name] for e in r.trace.events) for name in list(FILES)[:2]}
    assert counts == {
        "deployed_agent_results.json": {
            ("spawn", "derived"): 300,
            ("delegate", "explicit"): 1310,
            ("communicate", "explicit"): 1310,
            ("aggregate", "explicit"): 54,
            ("stop", "derived"): 60,
        },
        "deployed_agent_haiku.json": {
            ("spawn", "derived"): 987,
            ("delegate", "explicit"): 3061,
            ("communicate", "explicit"): 3061,
            ("aggregate", "explicit"): 200,
            ("stop", "derived"): 200,
        },
    }


def test_answers_without_samples_are_placeholders(real: dict[str, list[Assembled]]) -> None:
    placeholders = {
        name: [c.p for r in results for c in r.trace.claims if c.is_placeholder and c.n_samples == 0]
        for name, results in real.items()
    }
    assert {name: len(found) for name, found in placeholders.items()} == dict(zip(FILES, (9, 1, 11), strict=True))
    assert {p for found in placeholders.values() for p in found} == {0.5}
    counted = Counter(
        {n: sum(p.n for r in rs for p in r.problems if p.code == "sentinel" and "samples" in p.got) for n, rs in real.items()}
    )
    assert counted == dict(zip(FILES, (9, 1, 11), strict=True))


def test_the_two_misspelt_calls_are_named(real: dict[str, list[Assembled]]) -> None:
    misspelt = [p for results in real.values() for r in results for p in r.problems if p.code == "no-target"]
    assert [str(p) for p in misspelt] == [
        f"deployed_agent_results.json:record 46, trace[{n}]: a delegation does not say to whom; kept without a target "
        "(got question_text, specialialist_id, expected specialist_id) - check the argument that names the agent"
        for n in (15, 16)
    ]
    calls = [e for e in events(real["deployed_agent_results.json"], "delegate") if not e.targets]
    assert [(e.raw_id, e.extra["args"]["specialialist_id"]) for e in calls] == [
        ("trace[15]", "gpt-nano"),
        ("trace[16]", "gpt-nano"),
    ]


def test_six_runs_never_submit_and_five_of_them_carry_the_default_of_the_harness(real: dict[str, list[Assembled]]) -> None:
    stops = events([r for results in real.values() for r in results], "stop")
    assert Counter((e.rule, e.condition) for e in stops) == {("submit", "submitted"): 254, ("last-call", "nothing submitted"): 6}
    defaults = [r.trace for results in real.values() for r in results if any(p.got.endswith("submitted") for p in r.problems)]
    assert len(defaults) == 5
    assert all(len({c.p for c in t.claims if c.level == "final" and c.is_placeholder}) == 1 for t in defaults)


def test_only_questions_in_an_outcomes_own_words_are_tied_to_it(real: dict[str, list[Assembled]]) -> None:
    tied = [
        Counter(c.proposition.split("_")[0] for r in real[name] for c in r.trace.claims if c.level == "component")
        for name in list(FILES)[:2]
    ]
    assert tied == [{"outcome": 40, "question": 1270}, {"outcome": 1066, "question": 1995}]


def test_questions_about_everyone_else_are_not_tied_to_the_last_one_named(real: dict[str, list[Assembled]]) -> None:
    questions = [
        (claim.proposition, event.content or "")
        for r in real["deployed_agent_haiku.json"]
        for claim in r.trace.claims
        if claim.level == "component"
        for event in r.trace.events
        if event.event_id == str(claim.event_id).removesuffix(".result")
    ]
    others = [proposition for proposition, text in questions if "other than Carlos Alcaraz" in text]
    assert len(others) == 16
    assert all(proposition.startswith("question_") for proposition in others)


@pytest.mark.parametrize("name", FILES)
def test_published_residuals_are_the_distance_of_the_quotes_to_the_simplex(real: dict[str, list[Assembled]], name: str) -> None:
    level = "final" if name.startswith("deployed") else "pre-aggregation"
    traces = [r.trace for r in real[name]]
    published = [[label.value for label in t.labels if label.name == "residual"] for t in traces]
    ours = [[distance_to_simplex([c.p for c in t.claims if c.level == level])] for t in traces]
    assert np.abs(np.array(published, float) - np.array(ours)).max() <= 1e-9


@pytest.mark.parametrize("name", FILES)
def test_traces_survive_the_native_format(real: dict[str, list[Assembled]], name: str) -> None:
    assert all(decode(encode(r.trace)) == r.trace for r in real[name])


@pytest.mark.parametrize("name", FILES)
def test_links_point_to_earlier_events_of_the_trace_and_propositions_are_spelt_out(
    real: dict[str, list[Assembled]], name: str
) -> None:
    for trace in (r.trace for r in real[name]):
        assert_sound(trace)


def assert_sound(trace: Trace) -> None:
    order = {event.event_id: event.order for event in trace.events}
    assert list(order.values()) == list(range(len(order)))
    for event in trace.events:
        assert all(order[p] < event.order for p in (*event.parents, *event.merge_points))
    agents = {a.agent_id for a in trace.agents}
    assert {e.agent_id for e in trace.events} | {t for e in trace.events for t in e.targets} <= agents | {None}
    assert {c.event_id for c in trace.claims} <= order.keys() | {None}
    propositions = trace.extra["propositions"]
    assert {c.proposition for c in trace.claims} <= propositions.keys()
    assert all(name.isidentifier() for name in propositions)


# --- records made by hand ---


def test_a_planner_run_is_read_call_by_call(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, DEPLOYED)
    told: dict[str, Any] = {"kind": "delegate", "agent_id": "planner", "raw_type": ASK}
    answer: dict[str, Any] = {"kind": "communicate", "targets": ("planner",), "message_type": "quote"}
    derived: dict[str, Any] = {"agent_id": "planner", "basis": "derived"}
    question, again = (DEPLOYED["trace"][n]["args"]["question_text"] for n in (1, 2))
    misspelt = {"args": DEPLOYED["trace"][2]["args"]}
    first = ("trace[0].result", "trace[1].result")
    assert trace.events == (
        Event(event_id="trace[0].spawn", kind="spawn", targets=("x",), turn=0, rule="first-delegation", **derived),
        Event(
            event_id="trace[0]", targets=("x",), parents=("trace[0].spawn",), order=1, turn=0, raw_id="trace[0]",
            content="What is the  probability that a wins the cup?", **told,
        ),
        Event(
            event_id="trace[0].result", agent_id="x", parents=("trace[0]",), order=2, turn=0, raw_id="trace[0].result",
            content='{"n_samples":8,"probability":0.625}', **answer,
        ),
        Event(event_id="trace[1].spawn", kind="spawn", targets=("y",), order=3, turn=0, rule="first-delegation", **derived),
        Event(
            event_id="trace[1]", targets=("y",), parents=("trace[1].spawn",), order=4, turn=0, raw_id="trace[1]",
            content=question, **told,
        ),
        Event(
            event_id="trace[1].result", agent_id="y", parents=("trace[1]",), order=5, turn=0, raw_id="trace[1].result",
            content='{"n_samples":4,"probability":0.25}', **answer,
        ),
        Event(
            event_id="trace[2]", parents=first, order=6, turn=1, raw_id="trace[2]", content=again, extra=misspelt, **told,
        ),
        Event(
            event_id="trace[2].result", parents=("trace[2]",), order=7, turn=1, raw_id="trace[2].result",
            content='{"n_samples":0,"probability":0.5}', **answer,
        ),
        Event(
            event_id="trace[3]", kind="aggregate", agent_id="planner", parents=("trace[2].result",), order=8, turn=2,
            merge_kind="partition-quote", merge_points=(*first, "trace[2].result"), content="[0.5,0.25,0.5]",
            raw_id="trace[3]", raw_type="submit_final_partition_quote",
        ),
        Event(
            event_id="stop", kind="stop", parents=("trace[3]",), order=9, turn=2, condition="submitted", rule="submit", **derived,
        ),
    )  # fmt: skip


def test_the_quotes_of_a_planner_run_keep_their_number_question_and_level(tmp_path: Path) -> None:
    trace, problems = one(tmp_path, DEPLOYED)
    assert trace.claims == (
        Claim(
            claim_id="trace[0].quote", component="x", proposition="outcome_1", p=0.625, event_id="trace[0].result", turn=0,
            n_samples=8, basis="derived", rule="outcome-asked-verbatim",
        ),
        Claim(
            claim_id="trace[1].quote", component="y", proposition="question_1", p=0.25, event_id="trace[1].result", turn=0,
            n_samples=4,
        ),
        Claim(
            claim_id="trace[2].quote", component="unnamed", proposition="question_1", p=0.5, event_id="trace[2].result",
            turn=1, n_samples=0, is_placeholder=True,
        ),
        *(
            Claim(
                claim_id=f"final_probs[{n}]", component="planner", proposition=f"outcome_{n + 1}", p=p, event_id="trace[3]",
                turn=2, level="final",
            )
            for n, p in enumerate([0.5, 0.25, 0.5])
        ),
    )  # fmt: skip
    assert [(p.code, p.record, p.got, p.n) for p in problems] == [
        ("no-target", "record 0, trace[2]", "question_text, specialialist_id", 1),
        ("sentinel", "record 0, trace[2].quote", "0.5 from 0 samples", 1),
    ]


def test_what_a_planner_run_says_besides(tmp_path: Path) -> None:
    trace, _ = one(tmp_path, DEPLOYED)
    assert trace.agents == (
        Agent(agent_id="planner", component="planner", model="small"),
        Agent(agent_id="x", component="x"),
        Agent(agent_id="y", component="y"),
    )
    assert trace.relations == (
        Relation(
            relation_id="partition",
            formula="exactly_one(outcome_1, outcome_2, outcome_3)",
            basis="derived",
            rule="partition-over-outcomes",
        ),
    )
    assert trace.labels == (
        Label(
            annotator="composition-incoherence",
            name="residual",
            value=0.14433756729740643,
            text="published residual of `final_probs`",
        ),
    )
    assert trace.groups == Groups(task="who wins the cup", condition="unguided, planner=small")
    assert trace.task.text == "who wins the cup\n- A wins the cup\n- B wins the cup\n- C wins the cup"
    assert trace.extra == {
        "sum": 1.25,
        "elapsed_s": 2.5,
        "propositions": {
            "outcome_1": "A wins the cup",
            "outcome_2": "B wins the cup",
            "outcome_3": "C wins the cup",
            "question_1": "Will someone other than A or C wins the cup?",
        },
    }
    assert (trace.world, trace.clock, trace.outcome.passed, trace.source.record) == ("recorded", None, None, "record 0")


def test_assigned_specialists_are_derived_delegations_and_a_mean_of_nothing_is_a_placeholder(tmp_path: Path) -> None:
    trace, problems = one(tmp_path, QUOTES)
    told: dict[str, Any] = {"kind": "delegate", "targets": ("x",), "basis": "derived", "rule": "assigned-specialist"}
    asked = [f"assigned_specialists[{n}]" for n in range(2)]
    assert trace.events == (
        Event(event_id=asked[0], content="A wins", raw_id=asked[0], **told),
        Event(
            event_id="per_outcome_samples[0]", kind="communicate", agent_id="x", parents=(asked[0],), order=1,
            content="[0.5,1.0]", message_type="quote", basis="derived", rule="per-outcome-samples",
            raw_id="per_outcome_samples[0]",
        ),
        Event(event_id=asked[1], content="B wins", order=2, raw_id=asked[1], **told),
    )  # fmt: skip
    quoted: dict[str, Any] = {"component": "x", "level": "pre-aggregation"}
    assert trace.claims == (
        Claim(
            claim_id="per_outcome_means[0]", proposition="outcome_1", p=0.75, n_samples=2, event_id="per_outcome_samples[0]",
            **quoted,
        ),
        Claim(claim_id="per_outcome_means[1]", proposition="outcome_2", p=0.5, n_samples=0, is_placeholder=True, **quoted),
    )  # fmt: skip
    assert trace.agents == (Agent(agent_id="x", component="x"),)
    assert trace.labels[0].text == "published residual of `per_outcome_means`, placeholders included: 1"
    assert [(p.code, p.record, p.got) for p in problems] == [("sentinel", "record 0, per_outcome_means[1]", "0.5 from 0 samples")]


def test_the_calls_of_one_turn_do_not_know_each_others_answers(tmp_path: Path) -> None:
    calls = [{**DEPLOYED["trace"][0], "turn": turn} for turn in (0, 0, 2, 2)]
    trace, _ = one(tmp_path, {**DEPLOYED, "trace": calls})
    parents = [e.parents for e in trace.events if e.kind == "delegate"]
    assert parents == [("trace[0].spawn",), (), *[("trace[0].result", "trace[1].result")] * 2]
    assert trace.events[-1].parents == ("trace[2].result", "trace[3].result")


@pytest.mark.parametrize(
    ("final", "is_placeholder"), [([1 / 3] * 3, True), ([0.5, 0.25, 0.25], False), ([1 / 3, 1 / 3, None], False)]
)
def test_final_quotes_that_nobody_submitted(tmp_path: Path, final: list[float | None], is_placeholder: bool) -> None:
    trace, problems = one(tmp_path, {**DEPLOYED, "final_probs": final, "trace": []})
    assert [(c.p, c.is_placeholder, c.event_id) for c in trace.claims] == [
        (p, is_placeholder, None) for p in final if p is not None
    ]
    assert [p.got for p in problems] == ["0.333333, never submitted"] * is_placeholder


def test_equal_final_quotes_that_were_submitted_are_no_placeholders(tmp_path: Path) -> None:
    submit = {"turn": 0, "tool": "submit_final_partition_quote", "args": {"probabilities": [1 / 3] * 3}}
    trace, problems = one(tmp_path, {**DEPLOYED, "final_probs": [1 / 3] * 3, "trace": [submit]})
    assert [(c.is_placeholder, c.event_id) for c in trace.claims] == [(False, "trace[0]")] * 3
    assert problems == []


@pytest.mark.parametrize(
    ("question", "proposition"),
    [
        ("What is the probability that B  WINS the cup?", "outcome_2"),
        ("As of May: probability B wins the cup (and not A).", "outcome_2"),
        ("B wins the cup. What is your estimate?", "outcome_2"),
        ("probability that B wins the cup", "outcome_2"),
        ("What is the probability that B wins the cups?", "question_1"),
        ("What is the probability that B wins the cup or nobody does?", "question_1"),
        ("What is the probability that anyone but B wins the cup?", "question_1"),
        ("Outcomes: (a) B wins the cup; (b) others. What is the probability of each?", "question_1"),
        ("What is the probability that A wins the cup, rather than: C wins the cup?", "question_1"),
        ("How likely is B?", "question_1"),
    ],
)
def test_a_question_is_tied_only_to_the_one_outcome_it_asks_for_word_for_word(
    tmp_path: Path, question: str, proposition: str
) -> None:
    call = {**DEPLOYED["trace"][0], "args": {"specialist_id": "x", "question_text": question}}
    trace, _ = one(tmp_path, {**DEPLOYED, "trace": [call]})
    assert trace.claims[0].proposition == proposition


def test_probabilities_outside_the_unit_interval_are_kept_and_flagged(tmp_path: Path) -> None:
    trace, problems = one(tmp_path, {**DEPLOYED, "final_probs": [1.5, -0.5, 0], "trace": []})
    assert [(c.p, c.is_out_of_range) for c in trace.claims] == [(1.5, True), (-0.5, True), (0.0, False)]
    assert [(str(p), p.n) for p in problems] == [
        (
            "records.json:record 0, final_probs[0]: a probability outside [0, 1], kept and flagged "
            "(got 1.5) - check the scale of the source",
            2,
        )
    ]


@pytest.mark.parametrize(
    ("call", "event", "problem"),
    [
        (
            {"tool": "search", "args": {"q": "cup"}, "error": "unknown tool"},
            {"kind": None, "content": '{"q":"cup"}', "error": "unknown tool", "raw_type": "search"},
            None,
        ),
        (
            {"tool": ASK, "args": {"specialist_id": "x", "question_text": "?"}, "result": {"probability": "high"}},
            {"kind": "delegate", "targets": ("x",), "content": "?", "raw_type": ASK},
            ("bad-value", "{'probability': 'high'}", "probability, n_samples"),
        ),
        (
            {"tool": ASK, "args": {"specialist_id": 7}},
            {"kind": "delegate", "extra": {"args": {"specialist_id": 7}}, "raw_type": ASK},
            ("no-target", "specialist_id", "specialist_id"),
        ),
    ],
)
def test_odd_calls_stay_as_events_and_are_named(
    tmp_path: Path, call: dict[str, Any], event: dict[str, Any], problem: tuple[str, str, str] | None
) -> None:
    trace, problems = one(tmp_path, {**DEPLOYED, "trace": [{"turn": 0, **call}]})
    found = next(e for e in trace.events if e.event_id == "trace[0]")
    parents = ("trace[0].spawn",) if "targets" in event else ()
    assert found == Event(
        event_id="trace[0]", agent_id="planner", parents=parents, order=len(parents), turn=0, raw_id="trace[0]", **event
    )
    assert [(p.code, p.got, p.expected) for p in problems] == ([problem] if problem else [])
    assert [c.level for c in trace.claims] == ["final"] * 3


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({**DEPLOYED, "outcomes": "A"}, "Expected `array`, got `str` - at `$.outcomes`"),
        ({**DEPLOYED, "outcomes": []}, "Expected `array` of length >= 1 - at `$.outcomes`"),
        ({**DEPLOYED, "final_probs": [0.5, 0.5]}, "`final_probs` has length 2, `outcomes` 3"),
        ({**DEPLOYED, "final_probs": [0.5, "half", 0]}, "Expected `float | null`, got `str` - at `$.final_probs[1]`"),
        ({**DEPLOYED, "trace": [{"tool": ASK}]}, "Object missing required field `turn` - at `$.trace[0]`"),
        ({**DEPLOYED, "trace": [{"turn": -1, "tool": ASK}]}, "Expected `int` >= 0 - at `$.trace[0].turn`"),
        ({**DEPLOYED, "trace": [DEPLOYED["trace"][0]] * 2001}, "Expected `array` of length <= 2000 - at `$.trace`"),
        ({**QUOTES, "assigned_specialists": ["x"]}, "`assigned_specialists` has length 1, `outcomes` 2"),
        ({**QUOTES, "per_outcome_means": [0.5]}, "`per_outcome_means` has length 1, `outcomes` 2"),
        ({**QUOTES, "per_outcome_samples": [[], [], []]}, "`per_outcome_samples` has length 3, `outcomes` 2"),
        ({**QUOTES, "assigned_specialists": ["x", ""]}, "Expected `str` of length >= 1 - at `$.assigned_specialists[1]`"),
        ({"label": "cup", "condition": "unguided", "error": "timeout"}, "keys condition, error, label"),
        ([1], "list"),
    ],
)
def test_a_record_of_another_shape_is_lost_by_name_and_the_next_one_is_read(tmp_path: Path, record: Any, text: str) -> None:
    problem, fragment = items(written(tmp_path, [record, DEPLOYED]), "composition-deployed")
    assert isinstance(problem, Problem)
    assert (problem.code, problem.severity, problem.record, problem.got) == ("wrong-shape", "lost", "record 0", text)
    assert assembled(fragment).trace.source.record == "record 1"


def test_a_record_nested_too_deeply_is_refused_when_read(tmp_path: Path) -> None:
    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    (problem,) = items(written(tmp_path, [{**DEPLOYED, "note": deep}]))
    assert isinstance(problem, Problem)
    assert (problem.code, problem.got) == ("wrong-shape", "nested deeper than 100 levels")


def test_a_record_that_only_a_shallower_caller_could_write_again_is_too_deep(tmp_path: Path) -> None:
    deep = "[" * 800 + "]" * 800
    path = tmp_path / "deep.json"
    path.write_text(f'[{json.dumps(DEPLOYED)[:-1]}, "note": {deep}}}]')
    source = opened(path)

    def read_below(n_frames: int) -> list[Fragment | Problem]:
        return read_below(n_frames - 1) if n_frames else list(composition.read(source, "composition-deployed"))

    assert [str(item) for item in read_below(200)] == [
        "deep.json:record 0: the record is nested too deeply - flatten the record; no trace needs this depth"
    ]


def test_the_trace_depends_on_the_content_alone(tmp_path: Path) -> None:
    turned = json.loads(json.dumps(DEPLOYED, sort_keys=True), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    here, there = items(written(tmp_path, [DEPLOYED, turned]))
    assert isinstance(here, Fragment)
    assert isinstance(there, Fragment)
    assert (here.trace_id, here.digest, here.data) == (there.trace_id, there.digest, there.data)
    assert composition.assemble(here.trace_id, [here, there]) == composition.assemble(here.trace_id, [there, here])
    other = one(tmp_path, {**DEPLOYED, "elapsed_s": 3})
    assert other.trace.trace_id != here.trace_id


def test_a_trace_takes_the_id_it_is_stored_under(tmp_path: Path) -> None:
    (fragment,) = items(written(tmp_path, [QUOTES]))
    assert isinstance(fragment, Fragment)
    result = composition.assemble("composition:other~2", [fragment])
    assert result.trace.trace_id == "composition:other~2"
    assert {p.trace_id for p in result.problems} == {"composition:other~2"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in members for place in places(inner, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    members = dict(value) if isinstance(value, dict) else list(value)
    members[path[0]] = replaced(members[path[0]], path[1:], new)
    return members


@settings(max_examples=200, deadline=None)
@given(data=st.data(), record=st.sampled_from([DEPLOYED, QUOTES]))
def test_whatever_stands_in_a_record_it_is_a_sound_trace_or_a_named_problem(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, record: dict[str, Any]
) -> None:
    path = data.draw(st.sampled_from(places(record)))
    broken = replaced(record, path, data.draw(JSON))
    found = items(written(tmp_path_factory.getbasetemp(), [broken]), "composition-deployed")
    assert len(found) == 1
    if isinstance(found[0], Problem):
        assert found[0].code == "wrong-shape"
        return
    trace = assembled(found[0]).trace
    assert decode(encode(trace)) == trace
    assert_sound(trace)
