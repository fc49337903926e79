"""The projection: against cvxpy and brute force, the same by every route, and the laws that any projection obeys."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.coherence import closed, wolfe
from analysis.coherence.cliques import Clique, Quote, plain_view, tie
from analysis.coherence.encoding import linear_rows, narrow
from analysis.coherence.large import SearchBody, TreeBody, large_polytope
from analysis.coherence.projection import POSITIVE, Listed
from analysis.coherence.relations import parse
from analysis.coherence.residual import Measured, measure
from analysis.coherence.tree import junction_tree, lowest
from analysis.coherence.worlds import Shape, worlds
from tests.coherence.strategies import NAMES, brute_force_worlds, parsed, quote_rows, relation_sets

CLIQUES = settings(max_examples=30, deadline=None)


def by_cvxpy(points: np.ndarray, row: np.ndarray) -> float:
    shares = cp.Variable(len(points), nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(points.T @ shares - row)), [cp.sum(shares) == 1])
    return float(np.sqrt(max(problem.solve(solver=cp.CLARABEL), 0)))


def distance(texts: list[str], row: list[float]) -> float:
    return Measured([Quote(f"c{n}", name, p) for n, (name, p) in enumerate(zip(NAMES, row, strict=True))], parsed(texts)).upper


def one_clique(texts: list[str], row: list[float]) -> Clique:
    return Clique([Quote(f"c{n}", name, p) for n, (name, p) in enumerate(zip(NAMES, row, strict=True))], parsed(texts))


@given(relation_sets, quote_rows)
@CLIQUES
def test_the_residual_is_the_distance_to_the_hull_of_all_worlds(texts: list[str], row: list[float]) -> None:
    state = Measured([Quote(f"c{n}", name, p) for n, (name, p) in enumerate(zip(NAMES, row, strict=True))], parsed(texts))
    expected = by_cvxpy(brute_force_worlds(texts), np.array(row))
    lower = np.sqrt(sum(p.lower[0] ** 2 for p in state.projections))
    assert expected**2 == pytest.approx(state.upper**2, abs=1e-7)  # cvxpy's own tolerance
    assert state.upper - lower <= 1e-7


@given(relation_sets, st.data())
@CLIQUES
def test_all_routes_agree_and_prove_it(texts: list[str], data: st.DataObject) -> None:
    rules = tuple(rule for rule in one_clique(texts, [0.5] * 5)._numbered.shape.rules)
    kept = tuple(sorted(data.draw(st.sets(st.integers(0, 4), min_size=1))))
    rows = np.array([data.draw(st.lists(st.floats(0, 1), min_size=len(kept), max_size=len(kept)))])
    shape = Shape(5, rules)
    view = plain_view(np.ones(len(kept)))
    listed = Listed(kept, worlds(shape, kept).astype(float)).project(view, rows)
    tree = junction_tree(shape)
    bodies = [large_polytope(shape, kept), SearchBody(kept, tree.n, lambda g: lowest(tree, g), "", 1e-12)]
    assert isinstance(bodies[0], TreeBody)
    for body in bodies:
        found = body.project(view, rows)
        assert found.lower <= listed.upper + 1e-9
        assert found.upper >= listed.lower - 1e-9
        assert found.upper - found.lower <= 1e-6


@given(relation_sets)
@CLIQUES
def test_narrow_rules_and_linear_rows_admit_the_same_worlds(texts: list[str]) -> None:
    wide = "implies(exactly_one(a, b, c, d, e), equal(a & b, c | d, ~e))"
    for rules in (texts, [*texts, wide], [*texts, "at_most_one(a, b, c, d, e)"], [*texts, "~exactly_one(a, b, c, d, e)"]):
        shape = one_clique(rules, [0.5] * 5)._numbered.shape
        encoded = narrow(shape)
        before = worlds(Shape(5, shape.rules), range(5))
        assert np.array_equal(before, worlds(encoded, range(5)))
        assert len(worlds(encoded, range(encoded.n))) == len(before)  # the new variables are fixed by the old ones
        cube = ((np.arange(32)[:, None] >> np.arange(5)) & 1).astype(float)
        stays = np.ones(32, bool)
        for coefficients, low, high in (row for rule in shape.rules if rule.op != "implies" for row in linear_rows(rule)):
            value = sum(c * cube[:, v] for v, c in coefficients.items())
            stays &= (value >= low) & (value <= high)
        others = tuple(rule for rule in shape.rules if rule.op != "implies")
        assert {tuple(row) for row in cube[stays]} == {tuple(row) for row in worlds(Shape(5, others), range(5)).astype(float)}


@given(st.sampled_from(["exactly_one", "at_most_one", "at_least_one", "equal", "box"]), st.data())
@settings(max_examples=100, deadline=None)
def test_closed_forms_equal_the_search_over_their_points(kind: str, data: st.DataObject) -> None:
    d = data.draw(st.integers(1, 5))
    flips = np.array(data.draw(st.lists(st.booleans(), min_size=d, max_size=d)))
    weights = np.array(data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=d, max_size=d)))
    q = np.array(data.draw(st.lists(st.floats(0, 1), min_size=d, max_size=d)))
    body = closed.Body(kind, flips)
    points = closed.points(body)
    assert len(points) == body.n_worlds
    near = closed.project(body, q[None, :], weights)[0]
    expected = wolfe.nearest_listed(points * np.sqrt(weights), q * np.sqrt(weights))
    assert near * np.sqrt(weights) == pytest.approx(expected.point, abs=1e-9)
    slopes = near - q
    assert closed.lowest(body, slopes[None, :])[0] == pytest.approx((points @ slopes).min(), abs=1e-12)
    members = ((np.arange(2**d)[:, None] >> np.arange(d)) & 1).astype(bool)
    alone = closed.subset_squares(body, q, members)
    assert alone == pytest.approx(wolfe.subset_squares(points, q, members), abs=1e-12)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 4), (5, 12), (8, 24), (12, 60), (16, 250)])
def test_numpy_and_the_compiled_kernels_agree_to_1e_12(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    vertices = np.unique(rng.integers(0, 2, (m, n)).astype(float), axis=0) * np.sqrt(rng.integers(1, 3, n))
    rows = rng.random((200, n))
    slow, fast = wolfe.nearest_rows_numpy(vertices, rows), wolfe.nearest_rows_compiled(vertices, rows)
    assert np.abs(slow.points - fast.points).max() <= 1e-12
    assert max(slow.gaps.max(), fast.gaps.max()) <= 1e-12
    chained = wolfe.nearest_rows_compiled(vertices, np.repeat(rows[:50], 5, axis=0))
    assert np.abs(chained.points - np.repeat(fast.points[:50], 5, axis=0)).max() <= 1e-12


def test_degenerate_vertices_do_not_confuse_the_search() -> None:
    """Repeated vertices, points inside, on an edge, and at a vertex of the hull."""
    square = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [0, 0.0]])
    rows = np.array([[0.5, 0.5], [0.3, 0.9], [0, 0.5], [1, 1], [0, 0], [0.5, 1]])
    for engine in (wolfe.nearest_rows_numpy, wolfe.nearest_rows_compiled):
        assert engine(square, rows).points == pytest.approx(rows, abs=1e-12)


# --- the metamorphic list of the reference, 9.13 ---


@given(relation_sets, quote_rows, st.permutations(NAMES))
@CLIQUES
def test_the_names_of_propositions_do_not_matter(texts: list[str], row: list[float], names: list[str]) -> None:
    swap = dict(zip(NAMES, names, strict=True))
    renamed = ["".join(swap.get(c, c) if is_name(text, n) else c for n, c in enumerate(text)) for text in texts]
    permuted = [row[NAMES.index(next(old for old, new in swap.items() if new == name))] for name in NAMES]
    assert distance(renamed, permuted) == pytest.approx(distance(texts, row), abs=1e-9)


def is_name(text: str, n: int) -> bool:
    """Whether the letter at n stands alone, and is no part of a function's name."""
    around = text[max(n - 1, 0) : n] + text[n + 1 : n + 2]
    return text[n] in NAMES and not any(c.isalpha() or c == "_" for c in around)


@given(relation_sets, quote_rows, st.sampled_from(NAMES))
@CLIQUES
def test_speaking_of_the_complement_changes_nothing(texts: list[str], row: list[float], name: str) -> None:
    flipped = ["".join(f"~{c}" if c == name and is_name(text, n) else c for n, c in enumerate(text)) for text in texts]
    values = [1 - p if n == name else p for n, p in zip(NAMES, row, strict=True)]
    assert distance(flipped, values) == pytest.approx(distance(texts, row), abs=1e-9)


@given(relation_sets, quote_rows, st.floats(0, 1))
@CLIQUES
def test_a_proposition_that_nothing_ties_changes_nothing(texts: list[str], row: list[float], p: float) -> None:
    quotes = [Quote("x", name, q) for name, q in zip(NAMES, row, strict=True)]
    assert Measured([*quotes, Quote("y", "free", p)], parsed(texts)).upper == pytest.approx(distance(texts, row), abs=1e-12)


@given(relation_sets, quote_rows, quote_rows)
@CLIQUES
def test_projection_is_idempotent_and_never_expands(texts: list[str], first: list[float], second: list[float]) -> None:
    found = one_clique(texts, first).project(np.array([first, second]))
    again = one_clique(texts, first).project(np.clip(found.near, 0, 1))
    assert again.upper.max() <= 1e-7
    apart = np.linalg.norm(np.subtract(first, second))
    assert np.linalg.norm(found.near[0] - found.near[1]) <= apart + 1e-7


@given(relation_sets, quote_rows)
@CLIQUES
def test_one_more_relation_never_lowers_the_residual(texts: list[str], row: list[float]) -> None:
    values = [distance(texts[:n], row) for n in range(len(texts) + 1)]
    assert all(a <= b + 1e-9 for a, b in pairwise(values))


@given(relation_sets, quote_rows, quote_rows, st.floats(0, 1))
@CLIQUES
def test_the_residual_is_convex_along_segments(texts: list[str], first: list[float], second: list[float], t: float) -> None:
    rows = np.array([first, second, (1 - t) * np.array(first) + t * np.array(second)])
    upper = one_clique(texts, first).project(rows).upper
    assert upper[2] <= (1 - t) * upper[0] + t * upper[1] + 1e-9


@given(relation_sets, quote_rows, st.data())
@CLIQUES
def test_repair_is_nearer_to_every_world_and_no_coherent_point_is_nearer_than_it(
    texts: list[str], row: list[float], data: st.DataObject
) -> None:
    """Pythagoras: |p - v|² <= |q - v|² - eps*² for each world v; and eps* <= |q - r| for coherent r."""
    points, q = brute_force_worlds(texts), np.array(row)
    found = one_clique(texts, row).project()
    residual = found.lower[0]
    assert (((found.near[0] - points) ** 2).sum(axis=1) <= ((q - points) ** 2).sum(axis=1) - residual**2 + 1e-6).all()
    shares = np.array(data.draw(st.lists(st.floats(0.01, 1), min_size=len(points), max_size=len(points))))
    assert residual <= np.linalg.norm(q - shares @ points / shares.sum()) + 1e-9


@given(relation_sets, quote_rows, quote_rows)
@CLIQUES
def test_quotes_of_one_proposition_fold_exactly(texts: list[str], first: list[float], second: list[float]) -> None:
    """The folded answer is that of the worlds with each proposition written down twice."""
    quotes = [Quote(who, name, p) for who, row in (("x", first), ("y", second)) for name, p in zip(NAMES, row, strict=True)]
    points = brute_force_worlds(texts)
    expected = wolfe.nearest_listed(np.hstack([points, points]), np.array([*first, *second]))
    assert Clique(quotes, parsed(texts)).project().upper[0] == pytest.approx(
        np.linalg.norm(expected.point - [*first, *second]), abs=1e-7
    )


# --- conditional quotes and linear couplings ---


@given(st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_a_conditional_is_coherent_exactly_if_the_product_rule_holds(p_a: float, p_b_if_a: float, shift: float) -> None:
    def residual(p_both: float) -> float:
        said = [("a", p_a), ("given(b, a)", p_b_if_a), ("c", p_both)]
        return measure([Quote("x", name, p) for name, p in said], [parse("iff(c, a & b)")]).residual

    assert residual(p_a * p_b_if_a) <= 1e-7
    wrong = p_a * p_b_if_a + 0.2 * shift
    if wrong <= 1 and shift > 0.01:
        assert residual(wrong) > POSITIVE


def test_the_output_says_how_conditionals_were_read() -> None:
    found = measure([Quote("x", "given(b, a)", 0.5), Quote("y", "b", 0.2)], [])
    assert found.method == "Wolfe over listed worlds, conditionals as called-off bets"
    assert found.max is None
    assert found.reasons["max"] == "conditional quotes: the largest residual is not at a corner of the box"


@pytest.mark.parametrize(
    ("coupling", "row"),
    [("linear(2*a - b <= 0.3)", [0.9, 0.5]), ("linear(a + b == 1.4)", [0.5, 0.5]), ("linear(a >= 0.7)", [0.2, 0.9])],
)
def test_linear_couplings_cut_the_polytope(coupling: str, row: list[float]) -> None:
    rules = ["implies(a, c)", "at_most_one(b, c) | a", coupling]
    z = cp.Variable(2)
    points = brute_force_worlds(rules[:2], "abc")
    shares = cp.Variable(len(points), nonneg=True)
    content = parse(coupling).content
    value = sum(c * (points[:, "abc".index(node.parts[0])] @ shares) for c, node in content.terms)
    rule = value == content.bound if content.is_equality else value <= content.bound
    constraints = [cp.sum(shares) == 1, z == points[:, :2].T @ shares, rule]
    expected = cp.Problem(cp.Minimize(cp.sum_squares(z - np.array(row))), constraints).solve(solver=cp.CLARABEL)
    found = measure([Quote("x", "a", row[0]), Quote("y", "b", row[1])], parsed(rules))
    assert found.residual**2 == pytest.approx(expected, abs=1e-6)
    assert found.upper - found.lower <= 1e-6
    assert "clarabel" in found.method


# --- size ---


def chain(n: int, rng: np.random.Generator) -> list[str]:
    """Relations of two to four propositions, each sharing one with the next."""
    texts, i = [], 0
    while i < n - 1:
        p = [f"p{j}" for j in range(i, min(i + int(rng.integers(2, 5)), n))]
        wide = ["exactly_one({})".format(", ".join(p)), f"iff({p[0]}, {' & '.join(p[1:])})", f"iff({p[0]}, {' | '.join(p[1:])})"]
        texts.append(str(rng.choice(wide)) if len(p) > 2 else f"implies({p[0]}, {p[1]})")
        i += len(p) - 1
    return texts


@pytest.mark.parametrize("n_propositions", [2_500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_thousands_of_propositions_are_projected_exactly(n_propositions: int) -> None:
    rng = np.random.default_rng(0)
    quotes = [Quote(f"c{n % 40}", f"p{n}", float(p)) for n, p in enumerate(rng.random(n_propositions))]
    (clique,) = tie(quotes, parsed(chain(n_propositions, rng)))
    found = clique.project()
    assert found.upper[0] - found.lower[0] <= 1e-6
    assert found.upper[0] == pytest.approx(np.linalg.norm(found.pulls[0]))
    coherent = clique.project(np.clip(found.near, 0, 1))
    assert coherent.upper[0] <= POSITIVE


@pytest.mark.parametrize("n_outcomes", [2_500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_thousands_of_outcomes_have_a_closed_form(n_outcomes: int) -> None:
    names = [f"p{n}" for n in range(n_outcomes)]
    found = measure([Quote("x", name, 0.5) for name in names], [parse(f"exactly_one({', '.join(names)})")])
    assert found.residual == pytest.approx((n_outcomes / 2 - 1) / n_outcomes**0.5)
    assert (found.n_worlds, found.method) == (n_outcomes, "closed form (exactly_one)")
    assert found.reasons["max"] == "more than 65536 corners"


def test_worlds_beyond_any_list_and_any_tree_still_give_a_proven_interval() -> None:
    """At most one of each neighbouring pair on a random graph of 60 propositions, treewidth about 20."""
    rng = np.random.default_rng(3)
    pairs = {tuple(sorted(rng.choice(60, 2, replace=False))) for _ in range(150)}
    texts = [f"at_most_one(p{a}, p{b})" for a, b in sorted(pairs)]
    quotes = [Quote("x", f"p{n}", float(p)) for n, p in enumerate(rng.random(60))]
    cliques = tie(quotes, parsed(texts))
    largest = max(cliques, key=lambda clique: len(clique.quotes))
    found = largest.project()
    assert found.method == "Wolfe with an integer program as oracle (HiGHS)"
    assert 0 < found.lower[0] <= found.upper[0]
    assert found.upper[0] - found.lower[0] <= 1e-6


def test_local_relations_that_all_hold_do_not_hide_a_global_contradiction() -> None:
    """Cyclic cliques: every single relation is satisfied, and still no world fits; never called coherent."""
    odd = [f"p{i} ^ p{(i + 1) % 5}" for i in range(4)] + ["equal(p4, p0)"]
    found = measure([Quote("x", f"p{i}", 0.5) for i in range(5)], parsed(odd))
    assert found.is_coherent
    cut = measure([Quote("x", n, p) for n, p in zip("abc", (0.1, 0.1, 0.8), strict=True)], [parse("iff(c, a ^ b)")])
    assert cut.residual == pytest.approx(0.346410, abs=1e-6)


def test_the_first_answer_needs_no_compiler() -> None:
    code = (
        "import sys; from analysis.coherence import measure, parse, Quote; "
        "r = measure([Quote(n, n, .6) for n in 'abcd'], [parse('iff(a, b & c)'), parse('b ^ d')]); "
        "print(r.residual > 0, 'numba' in sys.modules, 'cvxpy' in sys.modules)"
    )
    started = time.process_time()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["True", "False", "False"]
    assert time.process_time() - started < 1
