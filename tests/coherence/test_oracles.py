"""The worked values O-01 … O-43 (reference, section 3): each small enough to check by hand."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog
from typer.testing import CliRunner

from analysis.cli import app
from analysis.coherence import Measured, Quote, attribute, measure, parse
from analysis.coherence.attribution import reference_shares
from analysis.coherence.cliques import Clique, tie
from analysis.coherence.residual import Residual
from analysis.coherence.turns import residuals_by_turn, standing
from analysis.coherence.variants import log_distance, ratio_form, weighted
from analysis.coherence.wolfe import nearest_by_oracle

THIRD = 1 / 3
NEG, PART3, PART4 = ["exactly_one(a, b)"], ["exactly_one(a, b, c)"], ["exactly_one(a, b, c, d)"]
AND, OR = ["iff(c, a & b)"], ["iff(c, a | b)"]
CHAIN = ["implies(a, b)", "implies(b, c)"]
XOR = ["iff(c, a ^ b)"]
PAIRS = ["iff(d, a & b)", "iff(e, b & c)", "iff(f, a & c)"]
#: id, relations, quotes of a, b, c, ..., projection, eps*, L1, Linf, number of worlds
TABLE = [
    ("O-01", NEG, [0.6, 0.6], [0.5, 0.5], 0.141421, 0.2, 0.1, 2),
    ("O-02", NEG, [0.7, 0.5], [0.6, 0.4], 0.141421, 0.2, 0.1, 2),
    ("O-03", NEG, [0.2, 0.5], [0.35, 0.65], 0.212132, 0.3, 0.15, 2),
    ("O-04", PART3, [0.6] * 3, [THIRD] * 3, 0.461880, 0.8, 0.266667, 3),
    ("O-05", PART4, [0.39, 0.73, 0.67, 0.71], [0.015, 0.355, 0.295, 0.335], 0.75, 1.5, 0.375, 4),
    ("O-06", PART3, [0.9, 0.8, 0.05], [0.55, 0.45, 0], 0.497494, 0.75, 0.35, 3),
    ("O-07", PART3, [0.1, 0.2, 0.3], [0.233333, 0.333333, 0.433333], 0.230940, 0.4, 0.133333, 3),
    ("O-08", PART4, [0.6, 0.6, 0.6, 0.7], [0.225, 0.225, 0.225, 0.325], 0.75, 1.5, 0.375, 4),
    ("O-09", AND, [0.3, 0.8, 0.5], [0.4, 0.8, 0.4], 0.141421, 0.2, 0.1, 4),
    ("O-10", AND, [0.2, 0.2, 0.6], [THIRD] * 3, 0.326599, 0.4, 0.2, 4),
    ("O-11", AND, [0.9, 0.8, 0.4], [0.8, 0.7, 0.5], 0.173205, 0.3, 0.1, 4),
    ("O-12", AND, [1, 1, 0], [2 * THIRD, 2 * THIRD, THIRD], 0.577350, 1, 0.333333, 4),
    ("O-13", AND, [0, 0, 1], [THIRD] * 3, 0.816497, 1, 0.5, 4),
    ("O-14", AND, [0.7, 0.6, 0.4], [0.7, 0.6, 0.4], 0, 0, 0, 4),
    ("O-15", OR, [0, 0.02, 0.92], [0.3, 0.32, 0.62], 0.519615, 0.9, 0.3, 4),
    ("O-16", OR, [0.02, 0.74, 0.03], [0.02, 0.385, 0.385], 0.502046, 0.71, 0.355, 4),
    ("O-17", ["implies(a, b)"], [0.7, 0.4], [0.55, 0.55], 0.212132, 0.3, 0.15, 3),
    ("O-18", ["equal(a, b)"], [0.7, 0.4], [0.55, 0.55], 0.212132, 0.3, 0.15, 2),
    ("O-19", ["equal(a, b, c)"], [0.2, 0.5, 0.9], [0.533333] * 3, 0.496655, 0.7, 0.35, 2),
    ("O-20", ["at_most_one(a, b)"], [0.7, 0.6], [0.55, 0.45], 0.212132, 0.3, 0.15, 3),
    ("O-21", ["at_most_one(a, b)", "at_most_one(b, c)", "at_most_one(a, c)"], [0.5] * 3, [THIRD] * 3, 0.288675, 0.5, 0.166667, 4),
    ("O-22", XOR, [1, 1, 1], [2 * THIRD] * 3, 0.577350, 1, 0.333333, 4),
    ("O-23", XOR, [0.9] * 3, [2 * THIRD] * 3, 0.404145, 0.7, 0.233333, 4),
    ("O-24", XOR, [0.5] * 3, [0.5] * 3, 0, 0, 0, 4),
    ("O-25", CHAIN, [0.8, 0.5, 0.6], [0.633333] * 3, 0.216025, 0.3, 0.15, 4),
    ("O-26", ["at_least_one(a, b, c)"], [0.1, 0.2, 0.3], [0.233333, 0.333333, 0.433333], 0.230940, 0.4, 0.133333, 7),
    ("O-27", PAIRS, [0.5, 0.5, 0.5, 0.45, 0.45, 0.05], [0.5, 0.5875, 0.5, 0.3625, 0.3625, 0.1375], 0.175, 0.35, 0.0875, 8),
    ("O-28", PAIRS, [0.5, 0.5, 0.5, 0, 0, 0], [0.416667] * 3 + [0.083333] * 3, 0.204124, 0.5, 0.083333, 8),
    ("O-29", ["a ^ b", "c ^ d", "at_most_one(a, c)"], [0.6, 0.4, 0.6, 0.4], [0.5] * 4, 0.2, 0.4, 0.1, 3),
    ("O-29b", ["at_most_one(a, b)"], [0.6, 0.6], [0.5, 0.5], 0.141421, 0.2, 0.1, 3),
    ("O-29c", ["iff(c, a ^ b)"], [0.1, 0.1, 0.8], [0.3, 0.3, 0.6], 0.346410, 0.6, 0.2, 4),
    ("O-29d", CHAIN, [0.9, 0.7, 0.95], [0.8, 0.8, 0.95], 0.141421, 0.2, 0.1, 4),
]  # fmt: skip
BY_ID = {row[0]: row for row in TABLE}


def quotes_of(values: list[float]) -> list[Quote]:
    return [Quote(f"c{n + 1}", "abcdef"[n], p) for n, p in enumerate(values)]


def measured(relations: list[str], values: list[float]) -> Residual:
    return measure(quotes_of(values), [parse(text) for text in relations])


def clique_of(relations: list[str], values: list[float]) -> Clique:
    (clique,) = tie(quotes_of(values), [parse(text) for text in relations])
    return clique


def other_distances(clique: Clique) -> tuple[float, float]:
    """The distances in the sum and in the largest difference, by linear programs over the same worlds."""
    m, d = clique.points.shape
    found = []
    for width, spread in ((d, np.eye(d)), (1, np.ones((d, 1)))):
        below, above = np.hstack([clique.points.T, -spread]), np.hstack([-clique.points.T, -spread])
        cost, one = np.append(np.zeros(m), np.ones(width)), np.append(np.ones(m), np.zeros(width))
        bounds = np.append(clique.values, -clique.values)
        found.append(linprog(cost, np.vstack([below, above]), bounds, one[None, :], [1.0]).fun)
    return found[0], found[1]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_the_table_of_worked_values(row: tuple) -> None:
    _, relations, values, projection, residual, l1, linf, n_worlds = row
    found = measured(relations, values)
    assert list(found.projection.values()) == pytest.approx(projection, abs=1e-6)
    assert (found.lower, found.upper) == pytest.approx((residual, residual), abs=1e-6)
    assert other_distances(clique_of(relations, values)) == pytest.approx((l1, linf), abs=1e-6)
    assert found.n_worlds == n_worlds


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_the_command_gives_the_worked_values(row: tuple) -> None:
    _, relations, values, projection, residual, _, _, n_worlds = row
    claims = [{"component": q.component, "proposition": q.proposition, "p": q.p} for q in quotes_of(values)]
    result = CliRunner().invoke(app, ["residual", "-", "--json"], input=json.dumps({"claims": claims, "relations": relations}))
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["residual"] == found["upper"] == pytest.approx(residual, abs=1e-6)
    assert list(found["projection"].values()) == pytest.approx(projection, abs=1e-6)
    assert found["n_worlds"] == n_worlds
    assert sum(found["energy"].values()) == pytest.approx(residual**2, abs=2e-6)
    assert sum(found["shapley"].values()) == pytest.approx(residual**2, abs=2e-6)


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_the_stakes_win_exactly_the_residual_in_the_worst_world(row: tuple) -> None:
    """max over stakes of length 1 of the guaranteed gain min_v s.(v - q) is eps*, attained at the pulls over eps*."""
    _, relations, values, _, residual, *_ = row
    found = measured(relations, values)
    if residual == 0:
        assert (found.stakes, found.reasons["stakes"]) == (None, "coherent: no bets win in every world")
        return
    stakes = np.array(list(found.stakes.values()))
    points = clique_of(relations, values).points
    assert np.linalg.norm(stakes) == pytest.approx(1)
    assert ((points - values) @ stakes).min() == pytest.approx(residual, abs=1e-6)


def test_o30_local_repair_first_gives_another_answer_than_projecting_at_once() -> None:
    quotes = [Quote("one", "p", 0.7), Quote("one", "q", 0.5), Quote("two", "r", 0.8)]
    relations = [parse("implies(p, q)"), parse("at_most_one(p, r)")]
    found = measure(quotes, relations)
    assert found.local == pytest.approx({"one": 0.141421, "two": 0}, abs=1e-6)
    assert found.composed == pytest.approx(0.282843, abs=1e-6)
    assert found.projection == pytest.approx({"p": 0.45, "q": 0.5, "r": 0.55})
    assert found.residual == pytest.approx(0.353553, abs=1e-6)
    repaired = measure([Quote("one", "p", 0.6), Quote("one", "q", 0.6), Quote("two", "r", 0.8)], relations)
    assert repaired.projection == pytest.approx({"p": 0.4, "q": 0.6, "r": 0.6})


def test_o31_a_weight_moves_the_other_quote() -> None:
    found = weighted(clique_of(NEG, [0.6, 0.6]), [4, 1])
    assert found.near == pytest.approx((0.56, 0.44))
    assert (found.distance, found.plain_distance) == pytest.approx((0.178885, 0.164924), abs=1e-6)


def test_o32_the_ratio_form_of_a_conditional() -> None:
    quotes = [Quote("x", "a", 0.5), Quote("y", "given(b, a)", 0.6), Quote("z", "c", 0.4)]
    (clique,) = tie(quotes, [parse("iff(c, a & b)")])
    found = ratio_form(clique)
    assert found.upper == pytest.approx(0.077885, abs=1e-6)
    assert found.near[:2] == pytest.approx((0.537889, 0.632235), abs=1e-5)
    assert [found.lower, measure(quotes, clique.relations).residual] == pytest.approx([0.065094] * 2, abs=1e-6)


def test_o33_coherent_labels_reward_the_repair_and_incoherent_ones_may_not() -> None:
    found = measured(OR, [0.6, 0.5, 0.3])
    near, q = np.array(list(found.projection.values())), np.array([0.6, 0.5, 0.3])
    assert near == pytest.approx([0.466667] * 3, abs=1e-6)
    assert found.residual == pytest.approx(0.216025, abs=1e-6)
    bad, good = np.array([1, 0, 0]), np.array([1, 0, 1])
    assert [((q - bad) ** 2).sum(), ((near - bad) ** 2).sum()] == pytest.approx([0.5, 0.72], abs=1e-6)
    assert [((q - good) ** 2).sum(), ((near - good) ** 2).sum()] == pytest.approx([0.9, 0.786667], abs=1e-6)


@pytest.mark.parametrize(
    ("relations", "values", "gains"), [(NEG, [0.6, 0.6], [0.02, 0.02]), (PART3, [0.9, 0.8, 0.05], [0.2475, 0.2475, 0.8475])]
)
def test_o34_the_brier_gain_world_by_world(relations: list[str], values: list[float], gains: list[float]) -> None:
    clique = clique_of(relations, values)
    near = clique.project().near[0]
    found = [((values - world) ** 2).sum() - ((near - world) ** 2).sum() for world in clique.points]
    assert sorted(found) == pytest.approx(gains)


def drawn_squares(relations: list[str], panel: list[list[float]]) -> list[float]:
    """eps*² for every choice of an owner for each coordinate, all equally likely."""
    rows = [[panel[owner][j] for j, owner in enumerate(owners)] for owners in product(range(len(panel)), repeat=len(panel[0]))]
    return list(clique_of(relations, rows[0]).project(np.array(rows)).upper ** 2)


@pytest.mark.parametrize(
    ("case", "relations", "panel", "mean"),
    [
        ("O-35 NEG", NEG, [[0.7, 0.3], [0.4, 0.6]], 0.0225),
        ("O-35 PART3", PART3, [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], 0.015),
        ("O-35 three owners", PART3, [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.2, 0.6, 0.2]], 0.02),
        ("O-36", PART3, [[0.9, 0.1, 0], [0, 0.1, 0.9]], 0.15),
        ("O-37 at the boundary", AND, [[0.4, 0.9, 0.4], [0.6, 0.9, 0.6]], 0.005833),
        ("O-37 interior", AND, [[0.4, 0.9, 0.2], [0.6, 0.9, 0.4]], 0.009167),
    ],
)
def test_the_mean_square_over_random_owners(case: str, relations: list[str], panel: list[list[float]], mean: float) -> None:
    found = drawn_squares(relations, panel)
    assert np.mean(found) == pytest.approx(mean, abs=1e-6)
    if case == "O-35 NEG":
        assert np.mean(np.array(found) > 1e-12) == 0.5
    if case == "O-35 three owners":
        assert np.mean(np.array(found) > 1e-12) == pytest.approx(5 / 9)


@pytest.mark.parametrize(
    ("relations", "values", "nats"),
    [
        (NEG, [0.6, 0.6], 0.040822),
        (PART3, [0.6] * 3, 0.433865),
        (AND, [0.3, 0.8, 0.5], 0.042639),
        (OR, [0.1, 0.2, 0.6], 0.085195),
    ],
)
def test_o38_the_log_score_arbitrage(relations: list[str], values: list[float], nats: float) -> None:
    assert log_distance(clique_of(relations, values)) == pytest.approx(nats, abs=1e-6)


def test_o40_squares_add_over_parts_that_nothing_ties() -> None:
    values = [0.6, 0.6, 0.9, 0.8, 0.05, 0.7, 0.4]
    quotes = [Quote(f"c{n}", f"p{n}", p) for n, p in enumerate(values)]
    found = measure(quotes, [parse(t) for t in ("p0 ^ p1", "exactly_one(p2, p3, p4)", "implies(p5, p6)")])
    assert found.residual**2 == pytest.approx(0.02 + 0.2475 + 0.045)
    assert (found.n_cliques, found.n_worlds) == (3, 18)


def test_o41_one_vertex_already_brackets_the_answer() -> None:
    q, world = np.array(BY_ID["O-05"][2]), np.array([0, 0, 1.0, 0])
    x = world - q
    lower = (x @ x - max(x @ (world - v) for v in np.eye(4))) / np.linalg.norm(x)
    assert (lower, np.linalg.norm(x)) == pytest.approx((0.208901, 1.139298), abs=1e-6)

    def lowest(slopes: np.ndarray) -> tuple[np.ndarray, float]:
        return np.eye(4)[np.argmin(slopes)], float(slopes.min())

    hull = nearest_by_oracle(q, lowest, max_steps=1)
    assert hull.lower <= 0.75 <= np.linalg.norm(hull.point - q)


def test_o42_an_expert_who_abstains_leaves_the_quote_to_the_other() -> None:
    quotes = [Quote("one", "a", 0.7), Quote("one", "b", 0.5), Quote("two", "a", 0.6)]
    found = measure(quotes, [parse("exactly_one(a, b)")])
    assert found.projection == pytest.approx({"one:a": 0.6, "b": 0.4, "two:a": 0.6})


def test_o43_the_square_by_turn_and_its_differences() -> None:
    states = [[0.5, 0.3, 0.2], [0.8, 0.3, 0.2], [0.8, 0.3, 0.4], [0.6, 0.3, 0.4], [0.6, 0.1, 0.3]]
    said = [(turn, quote) for turn, state in enumerate(states) for quote in quotes_of(state)]
    rows = residuals_by_turn(standing(said), [parse(text) for text in PART3])
    assert [row.residual**2 for row in rows] == pytest.approx([0, 0.03, 0.083333, 0.03, 0], abs=1e-6)
    assert rows[0].delta is None
    assert [row.delta for row in rows[1:]] == pytest.approx([0.03, 0.053333, -0.053333, -0.03], abs=1e-6)


THIRDS = [0.083333 / 3] * 3
#: relations, quotes, energy, Shapley of the free game, order range, minimal repairs with cost, unique
ATTRIBUTION = {
    "NEG": (NEG, [0.6, 0.6], [0.01, 0.01], [0.01, 0.01], [(0, 0.02)] * 2, {"1": 0.2, "2": 0.2}, False),
    "PART3 outlier": (
        PART3, [0.9, 0.3, 0.3], THIRDS, [0.034444, 0.024444, 0.024444],
        [(0, 0.083333), (0, 0.063333), (0, 0.063333)], {"1": 0.5, "23": 0.353553}, True,
    ),
    "PART3 alike": (PART3, [0.5] * 3, THIRDS, THIRDS, [(0, 0.083333)] * 3, {"1": 0.5, "2": 0.5, "3": 0.5}, False),
    "PART3 clipped": (PART3, [0.9, 0.8, 0.05], [0.1225, 0.1225, 0.0025], None, None, {"1": 0.75, "2": 0.75}, False),
    "AND": (AND, [0.3, 0.8, 0.5], [0.01, 0, 0.01], [0.01, 0, 0.01], [(0, 0.02), (0, 0), (0, 0.02)], {"1": 0.2, "3": 0.2}, False),
    "CHAIN": (
        CHAIN, [0.9, 0.7, 0.95], [0.01, 0.01, 0], [0.01, 0.01, 0],
        [(0, 0.02), (0, 0.02), (0, 0)], {"1": 0.2, "2": 0.2}, False,
    ),
    "CHAIN outlier": (CHAIN, [0.9, 0.2, 0.8], None, None, None, {"1": 0.7, "23": 0.707107}, True),
    "PART4": (PART4, BY_ID["O-05"][2], [0.140625] * 4, None, None, {"123": None, "124": None, "134": None, "234": None}, False),
}  # fmt: skip


@pytest.mark.parametrize("case", ATTRIBUTION)
def test_the_attribution_table(case: str) -> None:
    relations, values, energy, shapley, ranges, repairs, is_unique = ATTRIBUTION[case]
    found = attribute(Measured(quotes_of(values), [parse(text) for text in relations]), np.random.default_rng(0))
    if energy is not None:
        assert list(found.energy.values()) == pytest.approx(energy, abs=1e-6)
    if shapley is not None:
        assert list(found.shapley.values()) == pytest.approx(shapley, abs=1e-6)
    if ranges is not None:
        assert [x for pair in found.order_range.values() for x in pair] == pytest.approx([x for r in ranges for x in r], abs=1e-6)
    costs = {"".join(name[1:] for name in repair.components): repair.cost for repair in found.minimal_repairs}
    assert costs.keys() == repairs.keys()
    assert all(cost is None or costs[key] == pytest.approx(cost, abs=1e-6) for key, cost in repairs.items())
    assert (found.unique, found.interaction_only) == (is_unique, True)


@pytest.mark.parametrize(
    ("relations", "values", "reference", "shares"),
    [
        (PART3, [0.9, 0.3, 0.3], {"a": 0.4, "b": 0.3, "c": 0.3}, [0.083333, 0, 0]),
        (AND, [0.3, 0.8, 0.5], {"a": 0.5, "b": 0.8, "c": 0.4}, [0.0125, 0, 0.0075]),
    ],
)
def test_a_reference_identifies_the_outlier(
    relations: list[str], values: list[float], reference: dict, shares: list[float]
) -> None:
    found = reference_shares(Measured(quotes_of(values), [parse(text) for text in relations]), reference)
    assert list(found.values()) == pytest.approx(shares, abs=1e-6)


def test_attribution_adds_over_cliques() -> None:
    quotes = [
        *(Quote(f"c{n}", f"n{n}", 0.6) for n in (1, 2)),
        *(Quote(f"c{n}", f"p{n}", p) for n, p in enumerate([0.9, 0.3, 0.3], 1)),
    ]
    state = Measured(quotes, [parse("exactly_one(n1, n2)"), parse("exactly_one(p1, p2, p3)")])
    found = attribute(state, np.random.default_rng(0))
    assert math.isclose(state.upper**2, 0.103333, abs_tol=1e-6)
    assert list(found.energy.values()) == pytest.approx([0.037778, 0.037778, 0.027778], abs=1e-6)
    assert list(found.shapley.values()) == pytest.approx([0.044444, 0.034444, 0.024444], abs=1e-6)
