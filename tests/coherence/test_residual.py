"""The residual of a state: what each number means, what is absent and why, what a reader is told."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.coherence import Measured, Quote, measure, parse, report, residuals
from analysis.coherence.cliques import Clique
from analysis.coherence.product import coupling, coupling_max
from analysis.coherence.residual import rounded
from analysis.coherence.turns import residuals_by_turn, standing, states, usable
from analysis.model import Claim, Relation

NO_SAMPLES = "noise_unknown: the number of samples behind a quote is not known"


def quotes(**values: float) -> list[Quote]:
    return [Quote(f"c_{name}", name, p) for name, p in values.items()]


def relations(*texts: str) -> list:
    return [parse(text) for text in texts]


def test_no_claims_have_no_residual_and_never_zero() -> None:
    found = measure([], relations("implies(a, b)"))
    assert (found.residual, found.lower, found.projection, found.is_coherent) == (None, None, None, None)
    assert found.reasons["residual"] == "no claims: there is nothing to be coherent or not"
    assert report([], [])["summary"] == "No claims: there is nothing to be coherent or not."


def test_one_claim_contradicts_nothing() -> None:
    found = report([(None, quotes(a=0.3))], [])
    assert (found["residual"], found["residual_norm"]) == (0.0, None)
    assert found["reasons"]["residual_norm"] == "nothing can be violated: the largest possible residual is 0"
    assert found["summary"] == "One claim: it is coherent, there is no other it could contradict."


def test_one_claim_can_contradict_a_relation() -> None:
    assert measure(quotes(a=0.3), relations("~a")).residual == pytest.approx(0.3)


def test_complements_and_paraphrases_do_not_inflate_the_canonical_residual() -> None:
    """O-29: with the complements declared 0.2, without them 0.141421; canonical it is 0.141421 either way."""
    found = measure(quotes(a=0.6, na=0.4, b=0.6, nb=0.4), relations("a ^ na", "b ^ nb", "at_most_one(a, b)"))
    assert (found.residual, found.canonical) == pytest.approx((0.2, 0.141421), abs=1e-6)
    plain = measure(quotes(a=0.6, b=0.6), relations("at_most_one(a, b)"))
    assert plain.residual == plain.canonical == found.canonical


def test_a_question_shared_by_components_is_seen_to_be_one() -> None:
    """The expanded quote (0.7, 0.3, 0.4, 0.6) of two components that are coherent alone has eps* 0.3."""
    said = [Quote("x", "a", 0.7), Quote("x", "na", 0.3), Quote("y", "a", 0.4), Quote("y", "na", 0.6)]
    found = measure(said, relations("a ^ na"))
    assert found.residual == pytest.approx(0.3)
    assert found.local == {"x": 0.0, "y": 0.0}
    assert found.projection == pytest.approx({"x:a": 0.55, "x:na": 0.45, "y:a": 0.55, "y:na": 0.45})
    assert [v.relation for v in found.violated] == ["equal(x:a, y:a)", "equal(x:na, y:na)"]
    assert found.violated[0].text == "a is one proposition, whoever quotes it (quoted: x 0.7, y 0.4)"


@pytest.mark.parametrize(
    ("texts", "names", "largest"),
    [
        (["a ^ b"], "ab", 0.707107), (["at_most_one(a, b)"], "ab", 0.707107), (["iff(c, a & b)"], "abc", 0.816497),
        (["iff(c, a ^ b)"], "abc", 0.577350), (["implies(a, b)", "implies(b, c)"], "abc", 0.816497),
        (["exactly_one(a, b, c)"], "abc", 1.154701), (["exactly_one(a, b, c, d)"], "abcd", 1.5),
        (["exactly_one(a, b, c, d, e, f)"], "abcdef", 2.041241),
    ],
)  # fmt: skip
def test_the_largest_residual_over_the_box(texts: list[str], names: str, largest: float) -> None:
    found = measure(quotes(**dict.fromkeys(names, 0.5)), relations(*texts))
    assert found.max == pytest.approx(largest, abs=1e-6)
    assert found.norm == pytest.approx(found.residual / found.max, abs=1e-8)


def test_the_largest_residual_is_absent_beyond_two_to_the_sixteen_corners() -> None:
    names = [f"p{n}" for n in range(17)]
    found = measure(quotes(**dict.fromkeys(names, 0.5)), relations(f"exactly_one({', '.join(names)})"))
    assert (found.max, found.norm) == (None, None)
    assert found.reasons["max"] == found.reasons["norm"] == "more than 65536 corners"


@pytest.mark.parametrize(
    ("texts", "blocks", "n_worlds", "bits", "largest"),
    [
        (["a ^ c", "b ^ d"], ["ac", "bd"], 4, 0.0, 0.0),
        (["a ^ b"], ["a", "b"], 2, 1.0, 0.707107),
        (["implies(a, b)"], ["a", "b"], 3, 0.415037, 0.707107),
        (["a ^ c", "b ^ d", "at_most_one(a, b)"], ["ac", "bd"], 3, 0.415037, 1.0),
        (["iff(c, a & b)"], ["a", "b", "c"], 4, 1.0, 0.816497),
        (["iff(c, a & b)"], ["ac", "b"], 4, 0.584963, 0.707107),
        (["iff(c, a ^ b)"], ["a", "b", "c"], 4, 1.0, 0.577350),
        (["exactly_one(a, b, c)"], ["a", "b", "c"], 3, 1.415037, 1.154701),
        (["exactly_one(a, b, c, d)"], ["ab", "cd"], 4, 1.169925, 0.707107),
        (["exactly_one(a, b, c, d, e, f)"], list("abcdef"), 6, 3.415037, 2.041241),
    ],
)
def test_coupling_in_bits_and_at_worst(texts: list[str], blocks: list[str], n_worlds: int, bits: float, largest: float) -> None:
    clique = Clique([Quote(block, name, 0.5) for block in blocks for name in block], relations(*texts))
    found = coupling(clique)
    assert (found.n_worlds, found.is_product) == (n_worlds, bits == 0)
    assert found.bits == pytest.approx(bits, abs=1e-6)
    assert coupling_max(clique) == pytest.approx(largest, abs=1e-6)


def test_pairs_that_are_all_independent_prove_nothing() -> None:
    """The trap of XOR: every pair is a product (4 = 2 * 2), the three together are not (4 < 8)."""
    found = coupling(Clique(quotes(a=0.5, b=0.5, c=0.5), relations("iff(c, a ^ b)")))
    assert (found.dependent_pairs, found.is_product) == ((), False)


def test_noise_of_known_samples_is_taken_off() -> None:
    """NEG with 8 Bernoulli samples of p = 0.5 each: noise alone gives eps*² 0.03125 on average."""
    rng = np.random.default_rng(0)
    rows = rng.binomial(8, 0.5, (400, 2)) / 8
    squares, left = [], []
    for a, b in rows:
        found = measure([Quote("x", "a", a, 8), Quote("y", "b", b, 8)], relations("a ^ b"))
        squares.append(found.residual**2)
        left.append(found.residual**2 - (a * (1 - a) + b * (1 - b)) / 7 / 2)
        assert found.debiased**2 == pytest.approx(max(0, left[-1]), abs=1e-8)
    assert np.mean(squares) == pytest.approx(0.03125, rel=0.15)
    assert abs(np.mean(left)) < 0.006


def test_samples_themselves_give_their_own_variance() -> None:
    same = (0.6,) * 4
    found = measure([Quote("x", "a", 0.6, 4, same), Quote("y", "b", 0.6, 4, same)], relations("a ^ b"))
    assert found.debiased == found.residual


@pytest.mark.parametrize("n_samples", [None, 0, 1])
def test_without_a_sample_count_nothing_is_debiased(n_samples: int | None) -> None:
    found = measure([Quote("x", "a", 0.6, n_samples), Quote("y", "b", 0.6, 8)], relations("a ^ b"))
    assert (found.debiased, found.reasons["debiased"]) == (None, NO_SAMPLES)


def test_violated_is_an_inclusion_minimal_set_with_the_same_residual() -> None:
    texts = ["implies(a, b)", "implies(b, c)", "a | d", "implies(a, c)"]
    found = measure(quotes(a=0.9, b=0.5, c=0.5, d=0.5), relations(*texts))
    kept = [v.relation for v in found.violated]
    assert measure(quotes(a=0.9, b=0.5, c=0.5, d=0.5), relations(*kept)).residual == pytest.approx(found.residual)
    for text in kept:
        rest = [t for t in kept if t != text]
        assert measure(quotes(a=0.9, b=0.5, c=0.5, d=0.5), relations(*rest)).residual < found.residual - 1e-6


def test_the_violated_facet_is_named_and_not_the_first_relation() -> None:
    """An error of a published table: of c = a or b it is c <= a + b that 0.92 against 0 and 0.02 violates."""
    found = measure(quotes(a=0, b=0.02, c=0.92), relations("implies(a, c)", "implies(b, c)", "implies(c, a | b)"))
    assert [v.relation for v in found.violated] == ["implies(c, a | b)"]
    assert found.violated[0].text == "if c, then (a or b) (quoted: a 0, b 0.02, c 0.92)"


def test_a_ninth_decimal_does_not_depend_on_the_solvers_last_bit() -> None:
    tie = 0.0000015625  # half way at the ninth decimal
    assert rounded(tie * (1 + 1e-12)) == rounded(tie * (1 - 1e-12)) == 1.563e-06
    assert rounded({"a": [None, (-1e-13,)]}) == {"a": [None, (0.0,)]}


def test_forty_components_are_measured_and_their_shares_have_intervals() -> None:
    names = [f"p{n}" for n in range(40)]
    found = report([(None, quotes(**dict.fromkeys(names, 0.5)))], relations(f"exactly_one({', '.join(names)})"))
    assert found["residual"] == pytest.approx(19 / np.sqrt(40))
    assert sum(found["shapley"].values()) == pytest.approx(found["residual"] ** 2, abs=1e-6)
    assert all(low <= 9.025 / 40 + 0.02 and high >= 9.025 / 40 - 0.02 for low, high in found["shapley_interval"].values())
    assert (found["order_range"], found["minimal_repairs"], found["unique"]) == (None, None, None)
    assert found["reasons"]["unique"] == "more than 12 components: not all coalitions were computed"
    assert "only between them" in found["summary"]


# --- turns, levels, claims ---


def claim(n: int, component: str, proposition: str, p: float, **fields: object) -> Claim:
    return Claim(claim_id=str(n), component=component, proposition=proposition, p=p, **fields)


def test_placeholders_and_numbers_that_are_no_probabilities_are_left_out_and_counted() -> None:
    said = [
        claim(1, "x", "a", 0.5, is_placeholder=True),
        claim(2, "x", "b", 1.7),
        claim(3, "x", "c", float("nan")),
        claim(4, "y", "a", 0.4),
    ]
    found = usable(said)
    assert ([c.claim_id for c in found.claims], found.n_placeholders, found.n_out_of_range) == (["4"], 1, 2)
    (row,) = residuals(said[:3], [], np.random.default_rng(0))
    assert (row.final.residual, row.n_placeholders, row.n_out_of_range) == (None, 1, 2)


def test_a_later_quote_replaces_the_earlier_one_of_the_same_component_only() -> None:
    said = [
        claim(1, "x", "a", 0.5, turn=1),
        claim(2, "y", "a", 0.6, turn=1),
        claim(3, "x", "a", 0.7, turn=3),
        claim(4, "z", "b", 0.1),
    ]
    found = [(turn, sorted((q.component, q.p) for q in quotes)) for turn, quotes in states(said)]
    assert found == [(1, [("x", 0.5), ("y", 0.6), ("z", 0.1)]), (3, [("x", 0.7), ("y", 0.6), ("z", 0.1)])]


def test_the_order_of_claims_within_a_trace_changes_nothing() -> None:
    said = [claim(n, f"c{n}", name, p, turn=n % 2) for n, (name, p) in enumerate({"a": 0.9, "b": 0.3, "c": 0.3}.items())]
    tie = [Relation(relation_id="r", formula="exactly_one(a, b, c)")]
    forward, backward = (residuals(order, tie, np.random.default_rng(0)) for order in (said, said[::-1]))
    assert forward[0].turns == backward[0].turns
    assert forward[0].final.residual == backward[0].final.residual
    assert forward[0].attribution.shapley == backward[0].attribution.shapley


def test_the_cells_of_a_turn_sum_to_the_square_and_deltas_telescope() -> None:
    said = [(1, Quote("x", "a", 0.9)), (1, Quote("y", "b", 0.3)), (2, Quote("z", "c", 0.3)), (3, Quote("x", "a", 0.6))]
    said += [(3, Quote("y", "b", 0.1))]
    rows = residuals_by_turn(standing(said), relations("exactly_one(a, b, c)"))
    assert [row.turn for row in rows] == [1, 2, 3]
    for row in rows:
        assert sum(row.energy.values()) == pytest.approx(row.residual**2, abs=1e-8)
    assert sum(row.delta or 0 for row in rows) == pytest.approx(rows[-1].residual ** 2 - rows[0].residual ** 2, abs=1e-8)
    assert rows[1].spoken == {"z": pytest.approx(rows[1].delta)}
    assert sum(rows[2].spoken.values()) == pytest.approx(rows[2].delta, abs=1e-8)


def test_levels_are_kept_apart_and_then_seen_together() -> None:
    """At the level `team` a is quoted 0.9 and 0.5: off their mean 0.2 each, which is 0.2 off again, twice; so is b."""
    said = [
        claim(1, "x", "a", 0.9),
        claim(2, "y", "b", 0.9),
        claim(3, "p", "a", 0.5, level="final"),
        claim(4, "p", "b", 0.5, level="final"),
    ]
    found = residuals(said, [Relation(relation_id="r", formula="a ^ b")], np.random.default_rng(0))
    rows = [(row.level, round(row.final.residual, 6)) for row in found]
    assert rows == [("component", 0.565685), ("final", 0.0), ("team", round(np.sqrt(8 * 0.2**2), 6))]


def test_levels_that_nothing_ties_have_no_team() -> None:
    said = [claim(1, "x", "a", 0.9), claim(2, "p", "b", 0.5, level="final")]
    assert [row.level for row in residuals(said, [], np.random.default_rng(0))] == ["component", "final"]


def test_cliques_of_equal_shape_share_their_worlds_whatever_they_are_called() -> None:
    first = Measured(quotes(a=0.1, b=0.2, c=0.3), relations("iff(a, b & c)"))
    second = Measured(quotes(x=0.1, y=0.2, z=0.3), relations("iff(x, y & z)"))
    assert first.cliques[0].polytope is second.cliques[0].polytope
