"""The formula language: what is read, what is refused and how it is said, what a formula means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.coherence.cliques import Quote, check_satisfiable
from analysis.coherence.relations import Linear, bounds, check_names, in_words, parse, parse_proposition, tied_literals
from analysis.coherence.residual import measure
from analysis.errors import RelationError, UnknownNameError
from tests.coherence.strategies import NAMES, brute_force_worlds, formulas


@given(formulas)
@settings(max_examples=60, deadline=None)
def test_a_formula_means_what_python_would_make_of_it(text: str) -> None:
    cube = np.array([[i >> n & 1 for n in range(len(NAMES))] for i in range(1 << len(NAMES))])
    low, high = bounds(parse(text).content, dict(zip(NAMES, cube.T.astype(bool), strict=True)))
    assert np.array_equal(low, high)
    assert sorted(map(tuple, cube[low])) == sorted(map(tuple, brute_force_worlds([text])))


@given(formulas, st.sets(st.sampled_from(NAMES)))
@settings(max_examples=60, deadline=None)
def test_open_names_leave_what_may_still_hold(text: str, known: set[str]) -> None:
    """A row is refuted only if no completion satisfies the formula, and certain only if all do."""
    formula = parse(text)
    rows = np.array([[i >> n & 1 for n in range(len(NAMES))] for i in range(1 << len(NAMES))])
    low, high = (
        np.broadcast_to(part, len(rows)) for part in bounds(formula.content, {n: rows[:, NAMES.index(n)] == 1 for n in known})
    )
    truth = np.isin(rows @ (1 << np.arange(5)), brute_force_worlds([text]) @ (1 << np.arange(5)))
    assert (low <= truth).all()
    assert (truth <= high).all()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a formula"),
        ("implies(a", "not a formula"),
        ("a = b", "not a formula"),
        ("x\0", "not a formula"),
        ("a and b", r"not a part of the formula language \(got a and b\)"),
        ("a + b", r"not a part of the formula language \(got a \+ b\)"),
        ("__import__('os').system('true')", "not a part of the formula language"),
        ("(lambda: a)()", "not a part of the formula language"),
        ("a.b", r"got a\.b"),
        ("implies(a, b, strict=True)", "not a part of the formula language"),
        ("implies(*a)", "wrong number of arguments of `implies`"),
        ("implies(a)", r"wrong number of arguments of `implies` \(got 1, expected 2\)"),
        ("equal(a)", r"got 1, expected at least 2"),
        ("given(b, a)", "`given` is a quantity, not a statement"),
        ("implies(c, given(b, a))", "`given` inside a statement"),
        ("implies(a, linear(b <= 1))", "`linear` inside a statement"),
        ("linear(a)", "not a linear coupling"),
        ("linear(a < 0.5)", "not a linear coupling"),
        ("linear(0.1 <= a <= 0.5)", "not a linear coupling"),
        ("linear(a*b <= 0.5)", "not linear"),
        ("linear(1/a <= 0.5)", "not linear"),
        ("linear(a/0 <= 0.5)", "division by 0"),
        ("linear(0.2 <= 0.5)", "no proposition"),
        ("linear(a - a <= 0.5)", "no proposition"),
        ("linear(1e999*a <= 1)", "not a part of the formula language"),
        ("linear(True*a <= 1)", "not a part of the formula language"),
        ("linear(given(b, a) - c <= 0)", "`given` beside other terms"),
        ("~" * 60 + "a", "nested deeper than 50 levels"),
        ("~" * 100_000 + "a", "not a formula"),
        ("a" + " + a" * 2_000, "not a part of the formula language"),
    ],
)
def test_what_is_no_formula_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(RelationError, match=problem):
        parse(text)


def test_an_unknown_function_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown function \(got xor, expected iff, implies, given, equal, .*linear\)"):
        parse("xor(a, b)")


def test_an_unknown_proposition_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"relation implies\(a, c\): unknown proposition \(got c, expected a, b\)"):
        check_names([parse("implies(a, b)"), parse("implies(a, c)")], ["b", "a"])


def test_names_that_python_would_not_read_stand_in_quotes() -> None:
    assert parse("implies('login works', \"tests-ok\")").names == ("login works", "tests-ok")


def test_a_long_chain_of_one_operator_is_no_deep_formula() -> None:
    assert len(parse(" | ".join(f"p{n}" for n in range(400))).names) == 400


def test_linear_couplings_are_brought_to_one_form() -> None:
    content = parse("linear(0.3 + b >= 2*a - c/4)").content
    assert isinstance(content, Linear)
    assert {node.parts[0]: c for c, node in content.terms} == {"a": 2, "b": -1, "c": -0.25}
    assert (content.bound, content.is_equality) == (0.3, False)
    assert parse("linear(a == 1 - b)").content.is_equality


def test_a_bound_on_a_conditional_is_linear_after_all() -> None:
    """P(b if a) <= 0.3 is P(a and b) - 0.3 P(a) <= 0."""
    content = parse("linear(given(b, a) <= 0.3)").content
    assert [c for c, _ in content.terms] == [1, -0.3]
    assert in_words(content) == "P(b and a) - 0.3 P(a) is at most 0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("iff(solved, code_ok & tests_ok)", "solved exactly when code_ok and tests_ok"),
        ("a ^ b", "either a or b, not both"),
        ("at_most_one(a, b | c)", "at most one of a and (b or c)"),
        ("equal(a, b, c)", "all or none of a, b and c"),
        ("a ^ b ^ c", "an odd number of a, b and c"),
        ("linear(a - 2*b == 0.5)", "P(a) - 2 P(b) is 0.5"),
        ("exactly_one(" + ", ".join(f"p{n}" for n in range(20)) + ")", "exactly one of p0, p1, p2, … and p19 (20 propositions)"),
    ],
)
def test_relations_are_told_in_words(text: str, words: str) -> None:
    assert in_words(parse(text).content) == words


def test_a_conditional_proposition_is_told_in_words() -> None:
    assert in_words(parse_proposition("given(b, a & c)")) == "b if a and c"


def test_contradicting_relations_name_a_smallest_set() -> None:
    relations = [parse(t) for t in ("implies(x, y)", "implies(a, b)", "a", "at_most_one(a, c)", "~b", "b | d")]
    with pytest.raises(RelationError, match=r"they contradict each other: implies\(a, b\); a; ~b - remove or correct"):
        check_satisfiable(relations)


def test_contradicting_couplings_name_a_smallest_set() -> None:
    relations = [parse(t) for t in ("linear(a >= 0.9)", "linear(a + b <= 1)", "linear(b >= 0.2)", "a | b")]
    with pytest.raises(RelationError) as error:
        measure([Quote("x", "a", 0.5)], relations)
    assert "contradict each other: linear(a >= 0.9); linear(a + b <= 1); linear(b >= 0.2) -" in str(error.value)


def test_a_contradiction_among_hundreds_of_relations_is_found() -> None:
    links = [parse(f"implies(p{n}, p{n + 1})") for n in range(300)]
    with pytest.raises(RelationError) as error:
        check_satisfiable([*links, parse("p7"), parse("~p9")])
    assert "contradict each other: implies(p7, p8); implies(p8, p9); p7; ~p9 -" in str(error.value)


def test_pairs_that_a_relation_ties_are_found() -> None:
    found = [tied_literals(parse(text).content) for text in ("a ^ b", "iff(a, ~b)", "iff(a, b)", "implies(a, b)", "a & ~b")]
    assert found == [[("a", "b", False)], [("a", "b", False)], [("a", "b", True)], [], []]
