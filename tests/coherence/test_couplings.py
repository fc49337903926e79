"""Coupling files and templates: what applies to which trace, what it says, what is refused in which words."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.coherence import parse, residuals
from analysis.coherence.claims import own_proposition
from analysis.coherence.couplings import Coupling, Match, default_couplings, read_couplings, relations_for
from analysis.coherence.templates import TEMPLATES, expand
from analysis.errors import CounterpointError, RelationError, TraceError
from analysis.model import Agent, Claim, Outcome, Relation, Source, Task, Trace
from analysis.readers import ledger, marble_dialects

SHAPE = ' - write [[coupling]] tables: name = "…", why = "…", relations = ["iff(a, b)"] or template and arguments'


def said(**quotes: float) -> tuple[Claim, ...]:
    return quoted(quotes)


def quoted(quotes: dict[str, float]) -> tuple[Claim, ...]:
    return tuple(Claim(claim_id=name, component=f"says {name}", proposition=name, p=p) for name, p in quotes.items())


def trace(**fields: object) -> Trace:
    return Trace(trace_id="t", world="recorded", **fields)  # type: ignore[arg-type]


def residual_of(claims: tuple[Claim, ...], coupling: Coupling) -> float | None:
    (level,) = residuals(claims, relations_for(trace(), claims, [coupling]), np.random.default_rng(0))
    return level.final.residual


def formulas(claims: tuple[Claim, ...], *couplings: Coupling, of: Trace | None = None) -> list[str]:
    return [relation.formula for relation in relations_for(of or trace(), claims, couplings)]


def stated(*relations: str, name: str = "c", **fields: object) -> Coupling:
    return Coupling(name=name, why="-", relations=relations, **fields)  # type: ignore[arg-type]


CASES = {
    "negation": ({"proposition": "a", "opposite": "b"}, {"a": 0.6, "b": 0.6}, 0.141421),  # O-01
    "equal": ({"propositions": ["a", "b", "c"]}, {"a": 0.2, "b": 0.5, "c": 0.9}, 0.496655),  # O-19
    "implies": ({"premise": "a", "conclusion": "b"}, {"a": 0.7, "b": 0.4}, 0.212132),  # O-17
    "mutex": ({"propositions": ["a", "b"]}, {"a": 0.7, "b": 0.6}, 0.212132),  # O-20
    "partition": ({"propositions": ["o*"]}, {"o1": 0.9, "o2": 0.8, "o3": 0.05}, 0.497494),  # O-06
    "conjunction": ({"whole": "ab", "parts": ["a", "b"]}, {"a": 0.3, "b": 0.8, "ab": 0.5}, 0.141421),  # O-09
    "disjunction": ({"whole": "ab", "parts": ["a", "b"]}, {"a": 0.02, "b": 0.74, "ab": 0.03}, 0.502046),  # O-16
    "parts-whole": ({"whole": "all_ok", "parts": ["*_ok"]}, {"a_ok": 0.9, "b_ok": 0.8, "all_ok": 0.4}, 0.173205),  # O-11
    # whole <= a does not bind, whole <= b is off by .3: .3 / sqrt 2
    "needs": ({"whole": "w", "parts": ["a", "b"]}, {"w": 0.7, "a": 0.9, "b": 0.4}, 0.212132),
    # coherence.md 6.2, a + b - c <= 1 off by .5: .5 / sqrt 3
    "agreement": ({"agree": "same", "parts": ["v_ok", "p_ok"]}, {"v_ok": 0.9, "p_ok": 0.9, "same": 0.3}, 0.288675),
    "plan-execute": ({"stages": ["plan", "exec", "check"]}, {"plan": 0.9, "exec": 0.7, "check": 0.95}, 0.141421),  # O-29d
    # 1 and 0 meet at .5
    "verifier": ({"verdict": "verified_*", "part": "*_ok"}, {"verified_io": 1.0, "io_ok": 0.0}, 0.707107),
    "shared-state": ({"propositions": ["*"]}, {"db@coder": 0.7, "db@tester": 0.4, "ui@coder": 0.1}, 0.212132),  # O-18
}


def in_a_file(folder: Path, text: str) -> Path:
    path = folder / "c.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_template_has_a_case() -> None:
    assert CASES.keys() == TEMPLATES.keys()


@pytest.mark.parametrize("template", CASES)
def test_a_template_written_in_a_file_gives_the_residual_worked_out_by_hand(template: str, tmp_path: Path) -> None:
    arguments, quotes, expected = CASES[template]
    toml = ", ".join(f"{name} = {value!r}" for name, value in arguments.items())
    path = in_a_file(tmp_path, f'[[coupling]]\nname = "c"\nwhy = "-"\ntemplate = "{template}"\narguments = {{ {toml} }}\n')
    (coupling,) = read_couplings(path)
    assert residual_of(quoted(quotes), coupling) == pytest.approx(expected, abs=1e-6)


def test_a_ledger_that_claims_success_of_a_failed_run_is_off_by_half_of_the_square_root_of_two() -> None:
    assert residual_of(said(satisfied=1.0, passed=0.0), stated("iff(satisfied, passed)")) == pytest.approx(0.707107, abs=1e-6)


def test_a_file_gives_its_couplings_in_order_with_where_they_stand(tmp_path: Path) -> None:
    text = """
    [[coupling]]
    name = "b"
    why = "By definition."
    match = { format = ["tau*"], domain = ["retail"] }
    relations = ["iff(x, y)", "implies(x, z)"]
    [[coupling]]
    name = "a"
    why = "One answer is right."
    template = "partition"
    arguments = { propositions = "answer_*" }
    """
    path = in_a_file(tmp_path, text)
    assert read_couplings(path) == (
        Coupling(
            name="b",
            why="By definition.",
            match=Match(format=("tau*",), domain=("retail",)),
            relations=("iff(x, y)", "implies(x, z)"),
            source=str(path),
        ),
        Coupling(
            name="a",
            why="One answer is right.",
            template="partition",
            arguments={"propositions": ("answer_*",)},
            source=str(path),
        ),
    )


def test_all_fields_that_are_given_must_match_and_one_pattern_of_each_is_enough() -> None:
    it = trace(
        source=Source(format="tau2"),
        task=Task(task_id="retail-7", domain="retail"),
        agents=(Agent(agent_id="1", component="user"), Agent(agent_id="2", component="clerk")),
    )
    claims = said(a=1.0, b=1.0)

    def applies(**match: tuple[str, ...]) -> bool:
        return formulas(claims, stated("iff(a, b)", match=Match(**match)), of=it) == ["iff(a, b)"]

    assert applies()
    assert applies(format=("tau*",))
    assert applies(format=("marble", "tau?"), task=("retail-*",), domain=("retail",), component=("cl*",))
    assert not applies(format=("tau",))
    assert not applies(format=("Tau*",))
    assert not applies(format=("tau*",), domain=("airline",))
    assert not applies(component=("planner",))
    assert not formulas(claims, stated("iff(a, b)", match=Match(domain=("*",))))  # a domain that is not known matches nothing


def test_a_relation_applies_only_if_all_its_propositions_are_quoted() -> None:
    coupling = stated("iff(a, b)", "implies(a, c)", "linear(a + b <= 1)")
    assert formulas(said(a=1.0, b=0.0), coupling) == ["iff(a, b)", "linear(a + b <= 1)"]
    assert formulas(said(a=1.0), coupling) == []
    assert formulas((), coupling) == []


def test_placeholders_and_what_is_no_probability_quote_nothing() -> None:
    b = {"claim_id": "b", "component": "x", "proposition": "b"}
    for claim in (Claim(**b, p=0.5, is_placeholder=True), Claim(**b, p=1.7), Claim(**b, p=float("nan"))):
        assert formulas((*said(a=1.0), claim), stated("iff(a, b)")) == []


def test_a_conditional_quote_quotes_both_of_its_propositions() -> None:
    assert formulas(quoted({"given(b, a)": 0.5}), stated("implies(a, b)")) == ["implies(a, b)"]


def test_a_template_applies_where_two_of_its_propositions_are_quoted() -> None:
    coupling = Coupling(name="c", why="-", template="partition", arguments={"propositions": ("a", "b", "c")})
    assert formulas(said(a=0.6, b=0.6), coupling) == ["exactly_one(a, b, c)"]
    assert formulas(said(a=0.6, z=0.6), coupling) == []


def test_the_traces_own_relations_are_not_stated_again_in_whatever_order() -> None:
    own = (Relation(relation_id="r", formula="iff(b & a, c)"),)
    claims = said(a=1.0, b=1.0, c=1.0)
    coupling = stated("equal(c, a&b)", "implies(a, b)", "implies(b, a)")
    assert formulas(claims, coupling, of=trace(relations=own)) == ["implies(a, b)", "implies(b, a)"]


def test_relations_are_named_after_their_coupling_and_do_not_depend_on_the_order_of_couplings_or_claims() -> None:
    two = stated("implies(a, b)", "iff(a, c)", name="y")
    couplings = [two, stated("iff(c, a)", name="x"), stated("a | b", name="y", source="z")]
    claims = list(said(a=1.0, b=1.0, c=1.0))
    expected = (
        Relation(relation_id="coupling:x:1", formula="iff(c, a)", basis="derived", rule="x"),
        Relation(relation_id="coupling:y:1", formula="implies(a, b)", basis="derived", rule="y"),
        Relation(relation_id="coupling:y:2", formula="a | b", basis="derived", rule="y"),
    )
    for seed in range(6):
        shuffle = random.Random(seed).shuffle
        shuffle(couplings)
        shuffle(claims)
        assert relations_for(trace(), claims, couplings) == expected


def test_patterns_stand_for_what_is_quoted_but_for_the_whole() -> None:
    quoted_names = ["all_ok", "b_ok", "a_ok", "_ok", "ok"]
    assert expand("parts-whole", {"whole": ["all_ok"], "parts": ["*_ok"]}, quoted_names) == ["iff(all_ok, _ok & a_ok & b_ok)"]
    assert expand("needs", {"whole": ["all_ok"], "parts": ["a_ok", "*_ok"]}, quoted_names) == [
        "implies(all_ok, a_ok)", "implies(all_ok, _ok)", "implies(all_ok, b_ok)",
    ]  # fmt: skip
    assert expand("mutex", {"propositions": ["x*x"]}, ["x", "xx", "xyx"]) == ["at_most_one(xx, xyx)"]
    assert expand("equal", {"propositions": ["x*"]}, ["x1"]) == []


def test_a_stage_nobody_speaks_of_passes_on_what_it_is_tied_to() -> None:
    stages = {"stages": ["plan_ok", "exec_ok", "*_ok"]}
    assert expand("plan-execute", stages, ["plan_ok", "check_ok"]) == ["implies(plan_ok, check_ok)"]
    assert expand("plan-execute", stages, ["plan_ok", "check_ok", "exec_ok"]) == [
        "implies(plan_ok, exec_ok)", "implies(exec_ok, check_ok)",
    ]  # fmt: skip


def test_each_verdict_of_a_verifier_is_tied_to_the_part_it_names() -> None:
    names = ["verified_io", "io_ok", "verified_parser", "parser_ok", "verified_none"]
    assert expand("verifier", {"verdict": ["verified_*"], "part": ["*_ok"]}, names) == [
        "equal(verified_io, io_ok)", "equal(verified_parser, parser_ok)",
    ]  # fmt: skip
    assert expand("verifier", {"verdict": ["review"], "part": ["io_ok"]}, ["io_ok", "review"]) == ["equal(review, io_ok)"]


def test_copies_of_a_state_are_tied_to_each_other_and_to_the_state() -> None:
    names = ["db@a", "db@b", "db", "ui@a", "ui@b", "log@a"]
    assert expand("shared-state", {"propositions": ["db", "log"]}, names) == ["equal(db, 'db@a', 'db@b')"]
    assert expand("shared-state", {"propositions": ["*"]}, names) == ["equal(db, 'db@a', 'db@b')", "equal('ui@a', 'ui@b')"]


def test_thousands_of_parts_fit_into_one_formula() -> None:
    names = [f"p{n}_ok" for n in range(10_000)]
    (formula,) = expand("parts-whole", {"whole": ["w"], "parts": ["*_ok"]}, [*names, "w"])
    assert set(parse(formula).names) == {*names, "w"}


@given(st.sets(st.text(min_size=1, max_size=20), min_size=2, max_size=6).filter(lambda s: not any("*" in x for x in s)))
def test_any_proposition_is_found_again_in_the_formula(names: set[str]) -> None:
    """Spaces, quotes, line ends, any script."""
    (formula,) = expand("mutex", {"propositions": sorted(names)}, names)
    assert set(parse(formula).names) == names


def test_letters_that_python_folds_keywords_and_half_characters_stay_what_they_are() -> None:
    names = ["ﬁ", "fi", "not", "None", "\ud800", "订单_ok"]
    (formula,) = expand("mutex", {"propositions": names}, names)
    assert formula == "at_most_one('ﬁ', fi, 'not', 'None', '\\ud800', 订单_ok)"
    assert list(parse(formula).names) == names


HEAD = '[[coupling]]\nname = "c"\nwhy = "-"\n'
STRUCTURE = [
    ("a = ", "{f}: not a TOML file (got Invalid value (at end of document))" + SHAPE),
    ("", "{f}: no couplings (got nothing)" + SHAPE),
    ("coupling = 3", "{f}: no couplings (got int)" + SHAPE),
    ("coupling = [3]", "{f}: coupling 1: not a table (got int)" + SHAPE),
    ("[[couplings]]\n", "{f}: unknown table (got couplings, expected coupling) - correct or remove it"),
    (
        HEAD + 'relation = ["iff(a, b)"]',
        "{f}: coupling c: unknown key (got relation, expected name, why, match, relations, template, arguments)"
        " - correct or remove it",
    ),
    (
        HEAD + 'match = { agent = ["x"] }',
        "{f}: coupling c: unknown key of match (got agent, expected format, task, domain, component) - correct or remove it",
    ),
    (HEAD, "{f}: coupling c: no relations and no template" + SHAPE),
    (
        HEAD + 'relations = "iff(a, b)"',
        "{f}: coupling c: a value does not fit: Expected `array`, got `str` - at `$.relations`" + SHAPE,
    ),
    (HEAD + "template = 3", "{f}: coupling c: a value does not fit: Expected `str | null`, got `int` - at `$.template`" + SHAPE),
    ('[[coupling]]\nwhy = "-"\n', "{f}: coupling 1: a value does not fit: Object missing required field `name`" + SHAPE),
    ('[[coupling]]\nname = "c"\n', "{f}: coupling c: a value does not fit: Object missing required field `why`" + SHAPE),
    ((HEAD + 'relations = ["a"]\n') * 2, "{f}: coupling 2: a name occurs twice (got c) - rename one of them"),
    (
        HEAD + 'relations = ["a"]\narguments = { x = "a" }',
        "{f}: coupling c: arguments without a template (got x) - name the template",
    ),
]
FUNCTIONS = "iff, implies, given, equal, exactly_one, at_most_one, at_least_one, linear"
CONTENT = [
    ('relations = ["iff(a)"]', "relation iff(a): wrong number of arguments of `iff` (got 1, expected 2)"),
    (
        'relations = ["a", "iff(a,"]',
        f"relation iff(a,: not a formula (got '(' was never closed) - write {FUNCTIONS}, ~ & | ^",
    ),
    ('relations = ["xor(a, b)"]', f"relation xor(a, b): unknown function (got xor, expected {FUNCTIONS})"),
    ('relations = ["a & b", "~a"]', "relations: they contradict each other: a & b; ~a - remove or correct one of them"),
    ('template = "chain"', f"unknown template (got chain, expected {', '.join(TEMPLATES)})"),
    (
        'template = "mutex"\narguments = { propositions = "a*", x = "b" }',
        "unknown argument of mutex (got x, expected propositions)",
    ),
    (
        'template = "implies"\narguments = { premise = "a" }',
        "implies lacks an argument (got no conclusion, expected premise, conclusion)",
    ),
    (
        'template = "implies"\narguments = { premise = "a*", conclusion = "b" }',
        "argument `premise` of implies does not fit (got a*, expected one proposition)",
    ),
    (
        'template = "mutex"\narguments = { propositions = "a" }',
        "argument `propositions` of mutex does not fit (got a, expected two propositions or more, or a pattern with one *)",
    ),
    (
        'template = "mutex"\narguments = { propositions = "a*b*" }',
        "argument `propositions` of mutex does not fit (got a*b*, expected two propositions or more, or a pattern with one *)",
    ),
    (
        'template = "plan-execute"\narguments = { stages = ["*_ok"] }',
        "argument `stages` of plan-execute does not fit (got *_ok, expected two or more in order, each a proposition or a pattern"
        " with one *)",
    ),
    (
        'template = "shared-state"\narguments = { propositions = [] }',
        "argument `propositions` of shared-state does not fit (got nothing, expected a proposition or more, or a pattern with"
        " one *)",
    ),
    (
        'template = "verifier"\narguments = { verdict = "v_*", part = "p" }',
        "verifier: a * in one pattern only (got v_* and p) - write it in both",
    ),
]


@pytest.mark.parametrize(("text", "expected"), STRUCTURE)
def test_a_file_of_another_shape_is_one_line_that_says_where(text: str, expected: str, tmp_path: Path) -> None:
    path = in_a_file(tmp_path, text)
    with pytest.raises(TraceError) as error:
        read_couplings(path)
    assert str(error.value) == expected.replace("{f}", str(path))


@pytest.mark.parametrize(("text", "expected"), CONTENT)
def test_a_formula_or_template_that_cannot_be_read_names_its_coupling(text: str, expected: str, tmp_path: Path) -> None:
    path = in_a_file(tmp_path, HEAD + text)
    with pytest.raises(RelationError) as error:
        read_couplings(path)
    assert str(error.value) == f"{path}: coupling c: {expected}"


def test_a_file_that_is_not_there_or_no_text_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none.toml: the coupling file cannot be read \(got No such file or directory\) -"):
        read_couplings(tmp_path / "none.toml")
    with pytest.raises(TraceError, match=r"the coupling file cannot be read \(got Is a directory\)"):
        read_couplings(tmp_path)
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="the coupling file is not UTF-8 text - save it as UTF-8"):
        read_couplings(tmp_path / "x")


@given(st.text(max_size=200))
def test_whatever_stands_behind_a_coupling_it_is_refused_in_words_that_name_the_file(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = in_a_file(Path(folder), HEAD + text)  # it has no relations, and random text gives it none
        with pytest.raises(CounterpointError) as error:
            read_couplings(path)
        assert str(error.value).startswith(f"{path}: ")


def test_deep_nesting_in_a_file_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not a TOML file"):
        read_couplings(in_a_file(tmp_path, f"a = {'[' * 100_000}"))


def test_default_couplings_have_names_of_their_own_and_say_why() -> None:
    found = default_couplings()
    assert len({coupling.name for coupling in found}) == len(found)
    assert {coupling.source for coupling in found} == {
        f"defaults/{name}.toml" for name in ("marble", "tau", "team", "tests", "whowhen")
    }
    assert all(coupling.why.endswith(".") for coupling in found)


def test_default_couplings_speak_of_what_readers_and_outcomes_state() -> None:
    ledgers = set(ledger.verdicts('{"is_request_satisfied": true, "is_in_loop": true, "is_progress_being_made": true}') or {})
    flags = {claim.proposition for claim in marble_dialects.claims([marble_dialects.Iteration(continue_simulation=True)])}
    known = ledgers | flags | {"passed", "tests_ok"}
    own_work = {"solved", "plan_ok", "exec_ok", "verify_ok", own_proposition("planner"), own_proposition("executor")}
    written = [text for coupling in default_couplings() for text in coupling.relations]
    made = [text for one in default_couplings() if one.template for text in expand(one.template, one.arguments, own_work)]
    assert {name for text in written for name in parse(text).names} == known
    assert {name for text in made for name in parse(text).names} == own_work


def test_which_default_coupling_wins_where_two_say_the_same() -> None:
    claims = said(passed=1.0, tests_ok=0.0)
    of = trace(source=Source(format="tau2"), outcome=Outcome(passed=True))
    (relation,) = relations_for(of, claims, default_couplings())
    assert (relation.rule, relation.formula) == ("reward", "iff(passed, tests_ok)")
    (relation,) = relations_for(trace(), claims, default_couplings())
    assert relation.relation_id == "coupling:test-report:1"
