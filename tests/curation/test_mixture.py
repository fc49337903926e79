"""Budget moves from blocks that pass the joint product test to those that do not, by bits; nothing is made or lost."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.coherence.cliques import Quote, tie
from analysis.coherence.product import coupling
from analysis.coherence.relations import parse
from analysis.curation.mixture import Mixing, Tied, mixture, stored, tied


def bits_of(relations: list[str], owners: dict[str, str]) -> float | None:
    """The bits of one block: propositions by owner."""
    quotes = [Quote(owner, name, 0.5) for names, owner in owners.items() for name in names.split()]
    return sum(found.bits or 0.0 for found in tied("t", tie(quotes, [parse(text) for text in relations])))


@pytest.mark.parametrize(
    ("relations", "owners", "bits"),
    [
        (["equal(a, b)"], {"a": "x", "b": "y"}, 1.0),
        (["implies(a, b)"], {"a": "x", "b": "y"}, 0.415037),
        (["at_most_one(a, b)"], {"a": "x", "b": "y"}, 0.415037),
        (["iff(c, a & b)"], {"a": "x", "b": "y", "c": "z"}, 1.0),
        (["iff(c, a & b)"], {"a c": "x", "b": "y"}, 0.584963),
        (["iff(c, a ^ b)"], {"a": "x", "b": "y", "c": "z"}, 1.0),
        (["implies(a, b)", "implies(b, c)"], {"a": "x", "b": "y", "c": "z"}, 1.0),
        (["exactly_one(a, b, c)"], {"a": "x", "b": "y", "c": "z"}, 1.415037),
        (["exactly_one(a, b, c, d)"], {"a": "w", "b": "x", "c": "y", "d": "z"}, 2.0),
        (["exactly_one(a, b, c, d)"], {"a b": "x", "c d": "y"}, 1.169925),
        (["exactly_one(a, b)", "exactly_one(c, d)"], {"a b": "x", "c d": "y"}, 0.0),
    ],
)
def test_bits_are_those_of_the_reference(relations: list[str], owners: dict[str, str], bits: float) -> None:
    assert bits_of(relations, owners) == pytest.approx(bits, abs=1e-6)


def test_xor_passes_in_pairs_and_fails_jointly() -> None:
    quotes = [Quote(name, name, 0.5) for name in "abc"]
    (clique,) = tie(quotes, [parse("iff(c, a ^ b)")])
    found = coupling(clique)
    assert found is not None
    assert (found.n_worlds, math.prod(found.n_worlds_of.values()), found.dependent_pairs) == (4, 8, ())
    (block,) = mixture(["t"], tied("t", [clique]), Mixing())
    assert (block.components, block.coupling_bits, block.passes_joint) == (("a", "b", "c"), 1.0, False)


def test_what_a_passing_block_gives_up_goes_to_the_others_by_their_bits() -> None:
    ties = [
        *(Tied(f"p{n}", ("a", "b"), 0.0) for n in range(4)),
        *(Tied(f"w{n}", ("b", "c"), 1.0) for n in range(2)),
        Tied("s0", ("c", "d"), 2.0), Tied("u0", ("d", "e"), None),
    ]  # fmt: skip
    # Of 8 traces: passing 4/8 gives up 3/4 of it, 0.375, by share · bits: 0.25 · 1 and 0.125 · 2, so half to each.
    found = mixture([tie.trace_id for tie in ties], ties, Mixing(relaxed=0.25))
    assert [tuple(block) for block in found] == [
        (("c", "d"), 1, 2.0, False, 0.125, 0.3125, 2.5),
        (("b", "c"), 2, 1.0, False, 0.25, 0.4375, 1.75),
        (("a", "b"), 4, 0.0, True, 0.5, 0.125, 0.25),
        (("d", "e"), 1, None, None, 0.125, 0.125, 1.0),
    ]


def test_a_trace_is_divided_evenly_among_its_blocks_and_one_without_ties_keeps_its_share() -> None:
    found = mixture(["t1", "t2"], [Tied("t1", ("a", "b"), 0.0), Tied("t1", ("b", "c"), 1.0)], Mixing(relaxed=0.0))
    assert [(block.components, block.n_traces, block.share_before, block.share_after) for block in found] == [
        (("b", "c"), 1, 0.25, 0.5), ((), 1, 0.5, 0.5), (("a", "b"), 1, 0.25, 0.0),
    ]  # fmt: skip


def test_a_block_passes_only_if_it_does_in_every_trace() -> None:
    some = [Tied("t1", ("a", "b"), 0.0), Tied("t2", ("a", "b"), 1.0)]
    assert mixture(["t1", "t2"], some, Mixing())[0][2:4] == (0.5, False)
    untested = [Tied("t1", ("a", "b"), 0.0), Tied("t2", ("a", "b"), None)]
    assert mixture(["t1", "t2"], untested, Mixing())[0][2:4] == (None, None)


def test_nothing_moves_where_no_block_fails_and_nothing_is_there_for_no_traces() -> None:
    (block,) = mixture(["t1"], [Tied("t1", ("a",), 0.0), Tied("other", ("a", "b"), 3.0)], Mixing())
    assert (block.share_after, block.scrutiny) == (1.0, 1.0)
    assert mixture([], [], Mixing()) == []


names = st.sampled_from([("a",), ("a", "b"), ("b", "c"), ("a", "b", "c")])
ties_given = st.dictionaries(
    st.tuples(st.sampled_from([f"t{n}" for n in range(7)]), names), st.none() | st.sampled_from([0.0, 0.415037, 1.0, 27.0])
)


@given(ties_given, st.floats(0, 1))
def test_shares_add_up_to_exactly_one_and_more_bits_never_get_less(ties: dict, relaxed: float) -> None:
    given_ties = [Tied(trace_id, components, bits) for (trace_id, components), bits in ties.items()]
    found = mixture([f"t{n}" for n in range(7)], given_ties, Mixing(relaxed=relaxed))
    assert sum(block.share_before for block in found) == 1
    assert sum(block.share_after for block in reversed(found)) == 1
    for block in found:
        assert block.share_after == pytest.approx(block.share_before * block.scrutiny, abs=1e-11)
    known = [block for block in found if block.coupling_bits is not None]
    for more, fewer in pairwise(known):
        assert more.scrutiny >= fewer.scrutiny
    assert all(block.scrutiny >= 1 for block in found if not block.passes_joint)
    assert all(block.scrutiny <= 1 for block in found if block.passes_joint)


def test_stored_cliques_give_bits_by_components_and_the_widest_level_speaks() -> None:
    given = [
        ("t1", "component", '["a","b"]', 1.0),
        ("t1", "final", '["a","b"]', 0.5),
        ("t1", "component", '["c"]', 0.0),
        ("t2", "component", '["a","b"]', 1.0),
        ("t2", "team", '["a","b"]', 1.5),
        ("t2", "team", '["b","p"]', None),
    ]
    cliques = [dict(zip(("trace_id", "level", "components", "coupling_bits"), row, strict=True)) for row in given]
    assert stored(cliques) == [
        Tied("t1", ("a", "b"), 1.5),
        Tied("t1", ("c",), 0.0),
        Tied("t2", ("a", "b"), 1.5),
        Tied("t2", ("b", "p"), None),
    ]
