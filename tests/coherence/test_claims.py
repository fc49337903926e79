"""What is read out of texts, log-probabilities, free questions and repeated trials, and what is left for review."""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.coherence import Measured, Quote, parse
from analysis.coherence.claims import (
    Extracted,
    Extraction,
    Trial,
    Unlinked,
    extract,
    is_placeholder,
    over_trials,
    own_proposition,
)
from analysis.coherence.claims.verbalised import MAX_STATED, MAX_TEXT, stated
from analysis.model import Agent, Claim, Event, Relation, Trace, decode
from analysis.readers import composition, spans, whowhen
from analysis.readers.source import Source, open_source
from benchmarks.simulation import SimulationPolicy, simulate


def numbers(text: str, *names: str) -> list[float | None]:
    return [found.p for found in stated(text, names)]


def run(*events: Event, relations: tuple[str, ...] = (), texts: dict[str, str] | None = None, **fields: Any) -> Trace:
    agents = [Agent(agent_id="lead", component="lead"), Agent(agent_id="w1", component="worker:parser", parent_id="lead")]
    return Trace(
        trace_id="t:1",
        world="recorded",
        agents=(*agents, Agent(agent_id="w2", component="tester", parent_id="lead")),
        events=tuple(msgspec.structs.replace(event, order=n) for n, event in enumerate(events)),
        relations=tuple(Relation(relation_id=f"r{n}", formula=text) for n, text in enumerate(relations)),
        extra={"propositions": texts} if texts else {},
        **fields,
    )


def said(agent_id: str, content: str, event_id: str = "e", **fields: Any) -> Event:
    return Event(event_id=event_id, **({"kind": "act", "action": "model_call"} | fields), agent_id=agent_id, content=content)


def stop(content: str | None = None) -> Event:
    return Event(event_id="stop", kind="stop", agent_id="lead", condition="done", content=content)


def links(found: Extraction) -> list[tuple[str, str, float, str]]:
    return [(x.claim.component, x.claim.proposition, x.claim.p, x.claim.level) for x in found.claims]


def reasons(found: Extraction) -> list[str]:
    return [row.reason for row in found.unlinked]


# --- numbers in texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "p"),
    [
        ("I am 90% confident.", 0.9),
        ("I'm about 80 percent sure that it works", 0.8),
        ("80% certain", 0.8),
        ("confidence: 0.85", 0.85),
        ("Confidence level: 85%", 0.85),
        ("**Confidence**: 0.85", 0.85),
        ("confidence of 0.4", 0.4),
        ("my confidence in this plan is 0.7", 0.7),
        ("the probability that the build passes is 0.3", 0.3),
        ("P(build_ok) = 0.4", 0.4),
        ("P(success)=.7", 0.7),
        ("ready, P=0.9", 0.9),
        ("likelihood 70 percent", 0.7),
        ("a 65% chance of success", 0.65),
        ("I estimate 75% success.", 0.75),
        ("9 out of 10 confident", 0.9),
        ("confidence: 8/10", 0.8),
        ('{"answer": "x", "confidence": 0.8}', 0.8),
        ('{"p_solved": .7}', 0.7),
        ("{'success_probability': 0.25}", 0.25),
        ("confidence: 1.7", 1.7),
        ("150% sure", 1.5),
        ("confidence: -0.2", -0.2),
        ("置信度 0.9", 0.9),
        ("置信度：０．９", 0.9),
        ("把握 80%", 0.8),
        ("概率为0.3", 0.3),
        ("我有八成把握", 0.8),
        ("八成半的把握", 0.85),
        ("有百分之八十的信心", 0.8),
        ("百分之九十五点五的可能性", 0.955),
    ],
)
def test_a_stated_probability_is_read_as_it_was_stated(text: str, p: float) -> None:
    (found,) = stated(text)
    assert (found.p, found.low, found.high, found.doubt) == (p, None, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "coverage 85%, CPU load 90%, progress 40%, accuracy 0.93",
        "80% of rows were read, a 30% discount, growth of 12%",
        "a success rate of 80%; 80% success rate",
        "a 95% confidence interval",
        "at the 95% confidence level, 95% confidence upper limits",
        "confidence_threshold: 0.8",
        "log-likelihood: -3.2 and logprob: -0.5",
        "98% of certain queries, at 80% certain indexes fail",
        "10% more likely",
        "Make sure 3 blocks are placed; 2 likely causes",
        "Provide a confidence between 0 and 1.",
        "Please give a probability, such as 0.7",
        "What is the probability of 0.3?",
        "in 2026 the chances are low",
        "p = 0.03, t = 2.1",
        "成功率80%，覆盖率90%",
        "可能需要3天",
    ],
)
def test_what_is_no_probability_statement_gives_nothing(text: str) -> None:
    assert list(stated(text)) == []


def test_a_range_stays_a_range() -> None:
    for text in ("80-90% confident", "confidence: 0.8 to 0.9", "概率在80%到90%"):
        (found,) = stated(text)
        assert (found.p, found.low, found.high, found.doubt) == (None, 0.8, 0.9, "a range")
    (found,) = stated("I am at least 80% sure")
    assert (found.p, found.low, found.high, found.doubt) == (None, 0.8, None, "a range")


def test_a_number_on_an_unknown_scale_is_no_probability() -> None:
    assert [(s.p, s.doubt) for text in ("confidence: 8", "confidence: 85", "confidence: 1") for s in stated(text)] == [
        (None, "scale not stated")
    ] * 3
    assert numbers("probability: 1") == [1.0]


def test_what_is_denied_or_supposed_says_so() -> None:
    assert [s.doubt for s in stated("I'm not 100% sure")] == ["denied"]
    assert [s.doubt for s in stated("if the probability were 0.3, we would stop")] == ["hypothetical"]
    assert [s.doubt for s in stated("如果概率为0.3")] == ["hypothetical"]


def test_a_word_announces_one_number_only() -> None:
    assert numbers("90% confidence 0.3 seconds later") == [0.9]
    assert numbers("confidence 0.8, probability 0.3") == [0.8, 0.3]


def test_identifiers_that_a_trace_knows_are_read_without_a_word_for_probability() -> None:
    assert numbers('{"tests_ok": 0.4, "n_rows": 0.5}', "tests_ok") == [0.4]
    assert numbers('{"tests_ok": 0.4}') == []


def test_a_line_of_two_million_letters_takes_less_than_a_second() -> None:
    for text in ("a" * 2_000_000, "p_" * 1_000_000, "概" * 2_000_000):
        start = time.process_time()
        assert list(stated(text, ("x",))) == []
        assert time.process_time() - start < 1


def test_no_text_gives_more_than_a_thousand_numbers() -> None:
    assert len(list(stated("confidence 0.8 " * 20_000))) == MAX_STATED


# --- whose work, which proposition ------------------------------------------------------------------------------------


def test_a_certainty_without_a_topic_is_about_the_speakers_own_work() -> None:
    found = extract(
        run(said("w1", "The parser is ready. I am 90% confident."), said("w2", "probability that the patch is right: 0.35", "f"))
    )
    assert links(found) == [
        ("worker:parser", "worker_parser_ok", 0.9, "component"),
        ("tester", "tester_ok", 0.35, "component"),
    ]
    assert [(x.claim.kind, x.claim.basis, x.claim.rule, x.score) for x in found.claims] == [
        ("verbalised", "derived", "own-work", 0.7),
        ("verbalised", "derived", "own-work", 0.8),
    ]


@pytest.mark.parametrize(
    ("text", "p"),
    [
        ("Divided into two. P(success)=0.65", 0.65),
        ("solver finished, confidence 0.55", 0.55),
        ("draft v2. I am 85% confident.", 0.85),
        ("Probability that the change is correct: 0.45", 0.45),
        ("The result is final. P(correct)=0.75", 0.75),
        ("Fine by me: done, probability 0.9 TERMINATE", 0.9),
        ("I add it up. P(result is correct)=0.96", 0.96),
        ("checks pass; all tests pass with probability 0.55", 0.55),
        ("Overall success probability 85%", 0.85),
        ("17 (confidence 0.92)", 0.92),
        ("finished; confidence 0.75", 0.75),
        ("Thought: hand over. I estimate 85% success.", 0.85),
        ("我对这个方案有九成的把握", 0.9),
        ("代码写完了，置信度0.8", 0.8),
    ],
)
def test_sentences_as_teams_write_them_are_claims_of_their_speaker(text: str, p: float) -> None:
    assert links(extract(run(said("w2", text)))) == [("tester", "tester_ok", p, "component")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("There is a 70% chance of rain in Bergen", "about the subject matter"),
        ("The drug halves mortality with probability 0.97 in older patients", "about the subject matter"),
        ("I am 90% confident that the lake is deeper than the fjord", "about the subject matter"),
        ("I'm not 90% sure", "denied"),
        ("The fix does not work, confidence 0.9", "denied"),
        ("My patch fails on every machine that I have tried so far: confidence 0.9", "denied"),
        ("if it passes, confidence 0.9", "hypothetical"),
        ("lead says: confidence 0.9", "speaks of another agent"),
        ("80-90% confident", "a range"),
        ("confidence: 8", "scale not stated"),
    ],
)
def test_what_is_not_surely_about_a_proposition_goes_to_the_review_list(text: str, reason: str) -> None:
    found = extract(run(said("w2", text)))
    assert (found.claims, reasons(found)) == ((), [reason])


def test_the_last_words_of_the_agent_that_ends_the_run_are_about_the_whole() -> None:
    before, last = said("lead", "Plan made. I am 60% confident.", "e1"), said("lead", "All done, confidence 0.9.", "e2")
    assert links(extract(run(before, last, stop()))) == [
        ("lead", "lead_ok", 0.6, "component"),
        ("lead", "solved", 0.9, "final"),
    ]
    assert links(extract(run(before, stop("All done, confidence 0.9.")))) == [
        ("lead", "lead_ok", 0.6, "component"),
        ("lead", "solved", 0.9, "final"),
    ]


def test_without_a_stop_the_one_root_that_aggregates_ends_the_run() -> None:
    merge = Event(event_id="m", kind="aggregate", agent_id="lead", content="Merged. p(parts_ok) = 0.7. I am 80% confident.")
    found = extract(run(merge, relations=("implies(solved, parts_ok)",)))
    assert links(found) == [("lead", "parts_ok", 0.7, "pre-aggregation"), ("lead", "solved", 0.8, "final")]


def test_a_named_proposition_goes_before_everything_else() -> None:
    relations = ("iff(solved, code_ok & tests_ok)",)
    text = 'P(code_ok) = 0.8. {"p_tests_ok": 0.7}. p(tests_ok|code_ok) = 0.6. The probability of solved is 0.5.'
    found = extract(run(said("w2", text), relations=relations))
    assert [(x.claim.proposition, x.claim.p, x.claim.rule) for x in found.claims] == [
        ("code_ok", 0.8, "proposition-named"),
        ("tests_ok", 0.7, "proposition-named"),
        ("given(tests_ok, code_ok)", 0.6, "proposition-named"),
        ("solved", 0.5, "proposition-named"),
    ]


def test_words_are_compared_with_the_texts_of_the_propositions() -> None:
    texts = {"x": "the northern bridge is closed", "y": "the southern ferry is cancelled"}
    trace = run(
        said("w2", "I put the probability that the ferry in the south gets cancelled at 0.3."), relations=("x | y",), texts=texts
    )
    assert [(x.claim.proposition, x.claim.p, x.claim.rule) for x in extract(trace).claims] == [("y", 0.3, "proposition-in-words")]


def test_what_the_trace_states_itself_is_not_read_again() -> None:
    own = Claim(claim_id="c", component="tester", proposition="tests_ok", p=0.7, event_id="e")
    assert extract(run(said("w2", "p(tests_ok) = 0.7"), claims=(own,))) == Extraction((), ())
    found = extract(run(said("w2", "p(tests_ok) = 0.8"), claims=(own,)))
    assert (found.claims, reasons(found)) == ((), ["the trace itself states 0.7 here"])


def test_one_event_makes_one_claim_on_a_proposition() -> None:
    found = extract(run(said("w2", "p(code_ok) = 0.5. After a look: p(code_ok) = 0.8."), relations=("code_ok",)))
    assert ([x.claim.p for x in found.claims], [(row.p, row.reason) for row in found.unlinked]) == (
        [0.8],
        [(0.5, "a later number of the same text replaces it")],
    )
    found = extract(run(said("w2", "First: done, confidence 0.9\nSecond: done, confidence 0.4")))
    assert (found.claims, reasons(found)) == ((), ["several numbers in one text"] * 2)


def test_words_that_are_handed_on_are_said_once_by_whom_they_came_from() -> None:
    words = "all tests pass, probability 0.6"
    found = extract(
        run(said("w2", words, "a"), said("w2", words, "b"), said("lead", f"Log:\n{words}\nend", "c"), stop("done, P=0.9"))
    )
    assert links(found) == [("tester", "tester_ok", 0.6, "component"), ("lead", "solved", 0.9, "final")]
    assert found.unlinked == ()


def test_spans_speak_when_they_end() -> None:
    outer = said("lead", "Log: all tests pass, probability 0.6", "outer", t_start_s=0.0, t_end_s=9.0)
    inner = said("w2", "Log: all tests pass, probability 0.6", "inner", t_start_s=1.0, t_end_s=2.0)
    assert [x.claim.component for x in extract(run(outer, inner, clock="relative")).claims] == ["tester"]


def test_what_tools_and_users_say_is_no_claim_of_the_agent() -> None:
    for action in ("tool_call", "tool_result", "input", "retrieval"):
        assert extract(run(said("w2", "done, confidence 0.9", action=action))) == Extraction((), ())


def test_out_of_range_is_kept_and_flagged() -> None:
    (found,) = extract(run(said("w2", "done, confidence: 1.7"))).claims
    assert (found.claim.p, found.claim.is_out_of_range) == (1.7, True)


def test_the_span_is_where_the_number_stands_and_the_text_is_short() -> None:
    content = "Ready. " + "x" * 300 + " so I am 90% confident."
    (found,) = extract(run(said("w2", content, turn=3))).claims
    assert content[slice(*(found.claim.span or ()))] == "90%"
    assert (found.claim.turn, found.claim.event_id) == (3, "e")
    assert len(found.text) <= MAX_TEXT


def test_own_work_of_an_odd_name_is_an_identifier() -> None:
    assert own_proposition("worker:parser") == "worker_parser_ok"
    assert parse(f"implies(solved, {own_proposition('3 + class')})").names == ("solved", "agent_3_class_ok")


WORDS = st.sampled_from([
    "confidence", "0.8", "is", "probability", "of", "tests_ok", "P(", ")", "=", ":", "90%", "sure", "I am", "not", "if", "\n",
    ". ", "8", "80-90%", "把握", "八成", "百分之", "的", "概率", "，", "?", "{", '"', "p_", "answer", "done", "1e5", "/10", "10",
    "-", "lead",
])  # fmt: skip
TEXTS = st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=40).map(" ".join), st.lists(WORDS, max_size=40).map("".join))


@given(TEXTS)
def test_any_text_is_read_and_a_span_contains_its_number(text: str) -> None:
    for found in stated(text, ("tests_ok",)):
        number = text[slice(*found.span)]
        assert any(sign.isnumeric() for sign in number)
        assert found.text == found.text.strip()
        assert len(found.text) <= MAX_TEXT
        assert (found.p is None) <= (found.doubt is not None)


@given(st.lists(TEXTS, max_size=4))
def test_what_is_stated_is_linked_or_left_for_review_and_reading_is_a_pure_function(contents: list[str]) -> None:
    events = [said(("lead", "w1", "w2")[n % 3], text, f"e{n}") for n, text in enumerate(contents) if text]
    trace = run(*events, relations=("implies(solved, tests_ok)",))
    found = extract(trace)
    assert extract(decode(msgspec.json.encode(trace))) == found
    kept = {x.claim.p for x in found.claims} | {row.p for row in found.unlinked}
    assert {s.p for event in events for s in stated(event.content or "", ("solved", "tests_ok"))} <= kept
    ids = [x.claim.claim_id for x in found.claims]
    assert len(set(ids)) == len(ids)
    assert all(name.startswith("x:") for name in ids)
    assert len({(x.claim.event_id, x.claim.proposition) for x in found.claims}) == len(ids)


# --- placeholders, questions, log-probabilities, trials ---------------------------------------------------------------


def test_placeholders_are_no_samples_or_the_same_half_over_and_over() -> None:
    assert [is_placeholder(s) for s in ([], [0.5] * 8, [0.5], [0.5, 0.51], [0.25] * 4)] == [True, True, False, False, False]
    assert is_placeholder([0.25] * 4, n_outcomes=4)


def test_samples_that_are_all_a_half_mark_the_claim_that_stands_on_them() -> None:
    event = Event(event_id="s", kind="communicate", agent_id="w2", content="[0.5,0.5,0.5]")
    claim = Claim(claim_id="c", component="tester", proposition="a", p=0.5, event_id="s", n_samples=3)
    (found,) = extract(run(event, claims=(claim,))).claims
    assert (found.replaces, found.claim.is_placeholder, found.claim.rule, found.claim.claim_id) == (
        "c",
        True,
        "samples-all-alike",
        "x:c",
    )
    assert extract(run(event, claims=(msgspec.structs.replace(claim, n_samples=4),))) == Extraction((), ())


def test_a_question_is_linked_and_the_quote_stays_what_it_was() -> None:
    texts = {"o1": "Ajax wins the cup", "o2": "Benfica wins the cup", "q1": "Will Ajax be the winner?", "q2": "Who wins the cup?"}
    quote = {"component": "x", "turn": 2, "n_samples": 4, "is_placeholder": True}
    given_claims = (
        Claim(claim_id="a", proposition="q1", p=0.7, **quote),
        Claim(claim_id="b", proposition="q2", p=0.2, **quote),
        Claim(claim_id="c", proposition="o2", p=0.3, **quote),
    )
    found = extract(run(relations=("exactly_one(o1, o2)",), texts=texts, claims=given_claims))
    claim = Claim(claim_id="x:a", proposition="o1", p=0.7, basis="derived", rule="asked-in-words", **quote)
    assert found.claims == (Extracted(claim=claim, score=1.0, text="Will Ajax be the winner?", replaces="a"),)
    assert found.unlinked == (
        Unlinked(event_id=None, component="x", text="Who wins the cup?", p=0.2, reason="no word in common with a proposition"),
    )


def logprobs(*tokens: tuple[str, float], **others: float) -> dict[str, Any]:
    top = [{"token": token, "logprob": math.log(p)} for token, p in others.items()]
    return {"content": [{"token": token, "logprob": value, **({"top_logprobs": top} if top else {})} for token, value in tokens]}


def judged(content: str, question: str = "Is the answer correct?", **fields: Any) -> Extraction:
    told = {"role": "user", "content": question}
    return extract(run(said("w2", content, messages=(told, *fields.pop("messages", ())), **fields)))


def test_the_probability_of_a_verdict_is_the_product_over_its_tokens() -> None:
    spellings = (
        {"messages": ({"role": "assistant", "content": "correct", "logprobs": logprobs(("cor", -0.5), ("rect", -0.25))},)},
        {"extra": {"metrics": {"logprobs": [-0.5, -0.25]}}},
        {"extra": {"logprobs": {"tokens": ["cor", "rect"], "token_logprobs": [-0.5, -0.25]}}},
        {"extra": {"output": [{"logprobs": [{"token": "cor", "logprob": -0.5}, {"token": "rect", "logprob": -0.25}]}]}},
    )
    for fields in spellings:
        (found,) = judged("correct", **fields).claims
        assert (found.claim.kind, found.claim.proposition, found.claim.span) == ("logprob", "tester_ok", (0, 7))
        assert found.claim.p == pytest.approx(math.exp(-0.75), abs=1e-15)


def test_only_the_tokens_of_the_verdict_count_and_its_label_names_the_proposition() -> None:
    tokens = logprobs(("sol", -9.0), ("ved", -9.0), (": ", -9.0), ("yes", -0.5))
    event = said("w2", "solved: yes", extra={"logprobs": tokens})
    (found,) = extract(run(event, relations=("implies(solved, a)",))).claims
    assert (found.claim.proposition, found.claim.p) == ("solved", pytest.approx(math.exp(-0.5)))


def test_a_no_gives_the_probability_of_yes_only_where_that_is_recorded() -> None:
    (found,) = judged("No", extra={"logprobs": logprobs(("No", math.log(0.7)), No=0.7, Yes=0.2, yes=0.05)}).claims
    assert found.claim.p == pytest.approx(0.25)
    (row,) = judged("No", extra={"logprobs": logprobs(("No", math.log(0.75)))}).unlinked
    assert (row.p, row.low, row.high) == (None, 0.0, pytest.approx(0.25))


def test_a_yes_to_a_question_about_something_else_is_no_claim() -> None:
    found = judged("Yes", "Is the moon visible tonight over the harbour?", extra={"logprobs": logprobs(("Yes", -0.1))})
    assert (found.claims, len(found.unlinked)) == ((), 1)


def test_log_probabilities_that_are_none_are_left() -> None:
    for value in (
        None,
        [],
        {"content": []},
        {"content": [{"token": "yes", "logprob": 3.0}]},
        [True],
        {"content": [{"token": 1}]},
    ):
        assert judged("yes", extra={"logprobs": value}) == Extraction((), ())
    assert judged("A long text", extra={"logprobs": logprobs(("A long text", -0.1))}) == Extraction((), ())


def test_trials_are_joined_by_key_and_never_by_row() -> None:
    passed, check = ("outcome", "passed"), ("tester", "tests_ok")
    runs = [
        Trial("a", "t", "x", {passed: True, check: True}),
        Trial("b", "t", "x", {passed: False, check: True}),
        Trial("c", "t", "x", {passed: True}),
        Trial("d", "t", "y", {passed: True}),
        Trial("e", None, "x", {passed: True}),
        Trial("f", None, "x", {passed: True}),
    ]
    found = over_trials(runs)
    assert sorted(found) == ["a", "b", "c"]
    assert found["a"] == found["b"] == found["c"]
    assert [(x.claim.component, x.claim.proposition, x.claim.p, x.claim.n_samples, x.claim.kind) for x in found["a"]] == [
        ("outcome", "passed_over_trials", pytest.approx(2 / 3), 3, "frequency"),
        ("tester", "tests_ok_over_trials", 1.0, 2, "frequency"),
    ]
    assert over_trials([*reversed(runs), runs[0]]) == found


# --- simulated and real traces -----------------------------------------------------------------------


def test_every_quote_in_simulated_texts_is_read_back_exactly() -> None:
    n = 0
    for trace in simulate(SimulationPolicy(), seed=7):
        bare = extract(msgspec.structs.replace(trace, claims=()))
        assert bare.unlinked == ()
        got, given_claims = ([facts(c) for c in claims] for claims in ([x.claim for x in bare.claims], trace.claims))
        assert sorted(got) == sorted(given_claims)
        assert extract(trace) == Extraction((), ())
        n += len(got)
    assert n > 500


def facts(claim: Claim) -> tuple[Any, ...]:
    return claim.event_id, claim.component, claim.proposition, claim.p, claim.level, claim.turn, claim.span


def loaded(reader: Any, path: Path) -> list[Trace]:
    source = open_source(path, path.name)
    assert isinstance(source, Source)
    parts = defaultdict(list)
    for part in reader.read(source, reader.detect(source)):
        if hasattr(part, "trace_id") and hasattr(part, "digest"):
            parts[part.trace_id].append(part)
    return [reader.assemble(trace_id, given)[0] for trace_id, given in sorted(parts.items())]


def test_the_claims_of_the_generated_spans_are_found_exactly(shared_traces: Path) -> None:
    truth = json.loads((shared_traces / "generated/truth.json").read_text())["smolagents"]["claims"]
    for name in ("otlp_hexids.json", "console_spans.jsonl"):
        (trace,) = loaded(spans, shared_traces / "generated/smolagents" / name)
        found = extract(trace)
        assert links(found) == [
            ("tester", "tester_ok", truth["tester"], "component"),
            ("manager", "solved", truth["manager_final"], "final"),
        ]
        assert found.unlinked == ()


def test_subject_matter_gives_no_claims_in_histories(shared_traces: Path) -> None:
    paths = sorted((shared_traces / "whowhen").rglob("*.json"))[::4]
    found = [extract(trace) for path in paths for trace in loaded(whowhen, path)]
    assert len(found) > 20
    assert sum(len(x.claims) for x in found) == 0


def incoherent(quotes: list[dict[str, Claim]], trace: Trace) -> list[bool]:
    tie = parse(trace.relations[0].formula)
    whole = [q for q in quotes if set(q) == set(tie.names)]
    return [Measured([Quote(c.component, c.proposition, c.p) for c in q.values()], [tie]).upper > 0.01 for q in whole]


def test_specialists_are_incoherent_far_more_often_than_what_the_planner_submits(shared_traces: Path) -> None:
    how, own, final = Counter[str](), list[bool](), list[bool]()
    for trace in loaded(composition, shared_traces / "compositional/deployed_agent_haiku.json"):
        found = extract(trace)
        linked = {x.replaces: x.claim for x in found.claims}
        how.update(
            "verbatim" if c.rule else "in-words" if c.claim_id in linked else "unlinked"
            for c in trace.claims
            if c.level == "component"
        )
        by_component, last = defaultdict[str, dict[str, Claim]](dict), dict[str, Claim]()
        for claim in (linked.get(c.claim_id, c) for c in trace.claims if not c.is_placeholder):
            (by_component[claim.component] if claim.level == "component" else last)[claim.proposition] = claim
        names = set(parse(trace.relations[0].formula).names)
        kept = [{name: c for name, c in said_by.items() if name in names} for said_by in by_component.values()]
        own += incoherent(kept, trace)
        final += incoherent([last], trace)
    assert how == {"verbatim": 1066, "in-words": 1767, "unlinked": 228}
    assert (sum(own), len(own)) == (729, 754)
    assert (sum(final), len(final)) == (7, 200)
