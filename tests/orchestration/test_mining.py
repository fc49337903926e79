"""Mining finds exactly the patterns there are, however the graphs are written down and wherever the loops run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import combinations, permutations

import numpy as np
import pytest

from analysis.errors import CounterpointError
from analysis.orchestration.patterns import engines
from analysis.orchestration.patterns.canonical import pattern_id
from analysis.orchestration.patterns.corpus import corpus_of
from analysis.orchestration.patterns.graphs import PatternGraph
from analysis.orchestration.patterns.mining import Mined, Pattern, mine
from analysis.orchestration.patterns.search import Limits, search

Drawn = tuple[tuple[str, ...], tuple[tuple[int, int, str], ...]]


def graph(labels: Sequence[str], edges: Sequence[tuple[int, int, str]], name: str = "g") -> PatternGraph:
    return PatternGraph(name, tuple(labels), tuple(edges), tuple([(f"e{n}",) for n in range(len(labels))]))


def random_graphs(
    rng: random.Random, n_graphs: int, *, n_nodes: int = 6, labels: str = "ab", kinds: str = "xy"
) -> list[PatternGraph]:
    """Small graphs of every shape: cycles, edges both ways and several between two nodes, parts that do not touch."""
    found = []
    for k in range(n_graphs):
        size = rng.randint(1, n_nodes)
        pairs = [(a, b, kind) for a in range(size) for b in range(size) if a != b for kind in kinds]
        edges = rng.sample(pairs, min(len(pairs), rng.randint(0, size + 2)))
        found.append(graph(rng.choices(labels, k=size), edges, f"g{k}"))
    return found


def least_form(labels: Sequence[str], edges: Sequence[tuple[int, int, str]], *, directed: bool = True) -> Drawn:
    """The least way to write a small graph down, over all orders of its nodes."""
    forms = []
    for order in permutations(range(len(labels))):
        moved = [(order[a], order[b], kind) for a, b, kind in edges]
        if not directed:
            moved = [(min(a, b), max(a, b), kind) for a, b, kind in moved]
        placed = sorted(zip(order, labels, strict=True))
        forms.append((tuple([label for _, label in placed]), tuple(sorted(set(moved)))))
    return min(forms)


def connected_parts(one: PatternGraph, n_most: int) -> Iterator[tuple[tuple[int, int, str], ...]]:
    for n in range(1, n_most + 1):
        for edges in combinations(one.edges, n):
            groups = [{a, b} for a, b, _ in edges]
            while len(groups) > 1 and any(groups[0] & other for other in groups[1:]):
                first, rest = groups[0], groups[1:]
                groups = [first.union(*[g for g in rest if g & first]), *[g for g in rest if not g & first]]
            if len(groups) == 1:
                yield edges


def by_brute_force(graphs: Sequence[PatternGraph], min_support: int, n_most: int) -> dict[Drawn, int]:
    """Every connected pattern of up to so many edges and in how many graphs it is, by looking at all sets of edges."""
    support: dict[Drawn, int] = {}
    for one in graphs:
        forms = set()
        for edges in connected_parts(one, n_most):
            nodes = sorted({node for a, b, _ in edges for node in (a, b)})
            place = {node: n for n, node in enumerate(nodes)}
            forms.add(least_form([one.labels[n] for n in nodes], [(place[a], place[b], kind) for a, b, kind in edges]))
        for form in forms:
            support[form] = support.get(form, 0) + 1
    return {form: n for form, n in support.items() if n >= min_support}


def drawn(pattern: Pattern) -> Drawn:
    return least_form(pattern.nodes, pattern.edges)


def check_against_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    graphs = random_graphs(rng, rng.randint(2, 8), n_nodes=rng.choice([4, 6]), labels=rng.choice(["a", "ab", "abc"]))
    min_support = rng.choice([1, 2, 3])
    mined = mine(graphs, min_support=min_support, max_edges=3)
    expected = by_brute_force(graphs, min_support, 3)
    assert {drawn(pattern): pattern.support for pattern in mined.patterns} == expected
    assert len(mined.patterns) == len(expected)
    assert not mined.is_approximate


def test_all_connected_directed_patterns_are_found_with_their_supports() -> None:
    for seed in range(200):
        check_against_brute_force(seed)


def check_symmetric(seed: int) -> None:
    rng = random.Random(seed)
    trees = []
    for k in range(3):
        size = rng.randint(5, 8)
        edges = [(rng.randrange(max(1, n // 2)), n, "x") for n in range(1, size)]
        edges += [(a, b, "x") for a, b in [sorted(rng.sample(range(size), 2))] if (a, b, "x") not in edges]
        turned = [(b, a, kind) if rng.random() < 0.2 else (a, b, kind) for a, b, kind in edges]
        trees.append(graph("a" * size, turned if seed % 2 else edges, f"g{k}"))
    mined = mine(trees, min_support=2, max_edges=6)
    assert {drawn(pattern): pattern.support for pattern in mined.patterns} == by_brute_force(trees, 2, 6)


def test_patterns_with_many_symmetries_are_all_found() -> None:
    for seed in range(3):
        check_symmetric(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 40))
def test_patterns_with_many_symmetries_are_all_found_always(seed: int) -> None:
    check_symmetric(seed)


@pytest.mark.soak
def test_all_connected_directed_patterns_are_found_always() -> None:
    for seed in range(200, 2_000):
        check_against_brute_force(seed)


def same(one: Mined, other: Mined) -> bool:
    """Whether both say the same, the order of graphs and the choice of examples apart."""
    return one.patterns == other.patterns and one.notes == other.notes


def where(mined: Mined) -> list[list[str]]:
    return [sorted(np.array(mined.trace_ids)[mined.occurrences[[n]].indices]) for n in range(len(mined.patterns))]


def shuffled(one: PatternGraph, rng: random.Random) -> PatternGraph:
    order = list(range(len(one.labels)))
    rng.shuffle(order)
    labels = [label for _, label in sorted(zip(order, one.labels, strict=True))]
    edges = [(order[a], order[b], kind) for a, b, kind in one.edges]
    rng.shuffle(edges)
    return graph(labels, edges, one.trace_id)


@pytest.mark.parametrize("directed", [True, False])
def test_the_order_of_graphs_nodes_and_edges_changes_nothing(directed: bool) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        graphs = random_graphs(rng, 8, n_nodes=9, labels="abc")
        before = mine(graphs, min_support=2, max_edges=5, directed=directed)
        moved = [shuffled(one, rng) for one in graphs]
        rng.shuffle(moved)
        after = mine(moved, min_support=2, max_edges=5, directed=directed)
        assert same(before, after)
        assert where(before) == where(after)


@pytest.mark.parametrize("directed", [True, False])
def test_the_compiled_loops_and_those_on_lists_find_the_same(directed: bool) -> None:
    for seed in range(12):
        graphs = random_graphs(random.Random(seed), 10, n_nodes=10, labels="ab", kinds="x")
        for cap in (20_000, 3):
            corpus = corpus_of(graphs, min_support=2, directed=directed)
            limits = Limits(2, 5, cap)
            plain, fast = (list(search(corpus, limits, engine)) for engine in (engines.PLAIN, engines.compiled()))
            assert [(f.code, f.graphs.tolist(), f.examples.tolist(), *f[3:]) for f in plain] == [
                (f.code, f.graphs.tolist(), f.examples.tolist(), *f[3:]) for f in fast
            ]


def test_going_over_to_the_compiled_loops_on_the_way_changes_nothing() -> None:
    rng = random.Random(3)
    graphs = [graph("a" * 60, [(rng.randrange(n), n, "x") for n in range(1, 60)]) for _ in range(400)]
    corpus, limits = corpus_of(graphs, min_support=300, directed=True), Limits(300, 5, 20_000)
    whole = list(search(corpus, limits, engines.compiled()))
    engines.compiled.cache_clear()
    found = list(search(corpus, limits))
    assert engines.compiled.cache_info().currsize == 1  # it did go over
    assert [(f.code, f.graphs.tolist(), f.examples.tolist()) for f in found] == [
        (f.code, f.graphs.tolist(), f.examples.tolist()) for f in whole
    ]


def contains(larger: Pattern, smaller: Pattern) -> bool:
    """Whether leaving one edge out of the larger pattern gives the smaller."""
    for n in range(larger.n_edges):
        edges = larger.edges[:n] + larger.edges[n + 1 :]
        nodes = sorted({node for a, b, _ in edges for node in (a, b)})
        place = {node: k for k, node in enumerate(nodes)}
        labels = [larger.nodes[node] for node in nodes]
        if least_form(labels, [(place[a], place[b], kind) for a, b, kind in edges]) == drawn(smaller):
            return True
    return False


def test_closed_and_maximal_are_what_their_definitions_say() -> None:
    for seed in range(6):
        mined = mine(random_graphs(random.Random(seed), 6, n_nodes=5), min_support=2, max_edges=4)
        for pattern in mined.patterns:
            around = [p for p in mined.patterns if p.n_edges == pattern.n_edges + 1 and contains(p, pattern)]
            assert pattern.maximal == (not around)
            assert pattern.closed == all(p.support < pattern.support for p in around)


def test_an_example_is_an_embedding_in_the_graph_it_names() -> None:
    graphs = random_graphs(random.Random(5), 12, n_nodes=9)
    mined = mine(graphs, min_support=2, max_edges=4)
    for n, pattern in enumerate(mined.patterns):
        places = mined.occurrences[[n]].indices.tolist()
        assert len(places) == pattern.support == len(mined.examples[n])
        for at, example in zip(places, mined.examples[n].tolist(), strict=True):
            assert len(set(example)) == pattern.n_nodes
            assert tuple([graphs[at].labels[node] for node in example]) == pattern.nodes
            assert {(example[a], example[b], kind) for a, b, kind in pattern.edges} <= set(graphs[at].edges)
            assert mined.events(n, at, graphs[at]) == tuple([(f"e{node}",) for node in example])
    n = next(n for n, pattern in enumerate(mined.patterns) if pattern.support < len(graphs))
    at = next(at for at in range(len(graphs)) if at not in mined.occurrences[[n]].indices)
    with pytest.raises(LookupError, match=f"{mined.patterns[n].pattern_id} does not occur in g{at}"):
        mined.events(n, at, graphs[at])


def test_an_id_is_the_same_in_every_corpus_and_for_every_way_to_write_the_pattern_down() -> None:
    code = b'[[0,1,"lead","delegation>","work"]]'
    assert pattern_id(["work", "lead"], [(1, 0, "delegation")]) == "p" + blake2b(code, digest_size=8).hexdigest()
    rng = random.Random(1)
    mined = mine(random_graphs(rng, 10, n_nodes=8, labels="abcz"), min_support=2, max_edges=4)
    for pattern in mined.patterns:
        other = shuffled(graph(pattern.nodes, pattern.edges), rng)
        assert pattern_id(other.labels, other.edges) == pattern.pattern_id
    for pattern in mine(random_graphs(rng, 10, n_nodes=8), min_support=2, max_edges=4, directed=False).patterns:
        other = shuffled(graph(pattern.nodes, pattern.edges), rng)
        turned = [(b, a, kind) for a, b, kind in other.edges] + list(other.edges)
        assert pattern_id(other.labels, turned, directed=False) == pattern.pattern_id
    assert len({pattern.pattern_id for pattern in mined.patterns}) == len(mined.patterns)


def test_equal_siblings_are_counted_once_and_not_in_every_order() -> None:
    star = graph(["hub", *["leaf"] * 12], [(0, n, "x") for n in range(1, 13)])
    found = mine([star, star], min_support=2, max_edges=8)
    assert [pattern.n_edges for pattern in found.patterns] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not found.is_approximate  # 8 of 12 leaves in every order were 19,958,400 embeddings


def test_equal_branches_are_counted_once_and_not_in_every_order() -> None:
    edges = [edge for n in range(1, 9, 2) for edge in ((0, n, "x"), (n, n + 1, "x"))]
    branches = graph(["hub", *["arm", "hand"] * 4], edges)
    mined = mine([branches, branches], min_support=2, max_edges=8)
    assert len(mined.patterns) == 15  # 1 to 4 arms, of which none to all have a hand; and an arm and its hand alone
    assert same(mined, mine([shuffled(branches, random.Random(0))] * 2, min_support=2, max_edges=8))


def test_branches_of_equal_edges_and_other_shape_still_grow() -> None:
    chain, fork = [(0, 1, "x"), (1, 2, "x"), (2, 3, "x")], [(0, 4, "x"), (4, 5, "x"), (4, 6, "x")]
    tree = graph("abbbbbbb", [*chain, *fork, (4, 7, "x")])
    largest = mine([tree, tree], min_support=2, max_edges=7).patterns[-1]
    assert largest.n_edges == 7
    assert largest.pattern_id == pattern_id(tree.labels, tree.edges)


def test_undirected_patterns_forget_the_direction() -> None:
    there, back = graph("ab", [(0, 1, "x")]), graph("ab", [(1, 0, "x")])
    assert mine([there, back], min_support=2).patterns == ()
    (pattern,) = mine([there, back], min_support=2, directed=False).patterns
    assert (pattern.nodes, pattern.edges) == (("a", "b"), ((0, 1, "x"),))


def test_patterns_in_time_order_tell_orders_apart_that_others_do_not() -> None:
    first, second = graph("abc", [(0, 1, "x"), (0, 2, "x")]), graph("abc", [(0, 2, "x"), (0, 1, "x")])
    assert [p.n_edges for p in mine([first, second], min_support=2).patterns] == [1, 1, 2]
    assert [p.n_edges for p in mine([first, second], min_support=2, ordered=True).patterns] == [1, 1]
    assert [p.n_edges for p in mine([first, first], min_support=2, ordered=True).patterns] == [1, 1, 2]
    with pytest.raises(CounterpointError, match="the order in time goes with directed edges only"):
        mine([first], min_support=1, ordered=True, directed=False)


def in_order(labels: Sequence[str], edges: Sequence[tuple[int, int, str]]) -> object:
    place: dict[int, int] = {}
    rows = tuple([(place.setdefault(a, len(place)), place.setdefault(b, len(place)), kind) for a, b, kind in edges])
    return tuple([labels[node] for node in place]), rows


def ordered_by_brute_force(graphs: Sequence[PatternGraph], min_support: int, n_most: int) -> dict[object, int]:
    """Sequences of edges, each of which touches an earlier one, with nodes named in the order in which they come up."""
    support: dict[object, int] = {}
    for one in graphs:
        forms = set()
        for n in range(1, n_most + 1):
            for edges in combinations(one.edges, n):
                if all({a, b} & {x for e in edges[:k] for x in e[:2]} for k, (a, b, _) in enumerate(edges) if k):
                    forms.add(in_order(one.labels, edges))
        for form in forms:
            support[form] = support.get(form, 0) + 1
    return {form: k for form, k in support.items() if k >= min_support}


def test_all_patterns_of_ordered_edges_are_found_with_their_supports() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        graphs = random_graphs(rng, 6, n_nodes=6, labels=rng.choice(["a", "abc"]))
        mined = mine(graphs, min_support=2, max_edges=4, ordered=True)
        found: dict[object, int] = {}
        for pattern in mined.patterns:
            found[in_order(pattern.nodes, pattern.edges)] = pattern.support
        assert found == ordered_by_brute_force(graphs, 2, 4)
        assert len(found) == len(mined.patterns)


def test_no_graphs_one_graph_and_graphs_without_edges_are_said_to_have_no_patterns() -> None:
    lone = graph("a", [])
    assert mine([], min_support=0.1).notes == ("There are no traces, so there are no patterns.",)
    assert mine([lone], min_support=0.5).notes == ("A pattern must occur in 2 traces, and there are only 1.",)
    none = mine([lone, graph("", [])], min_support=1)
    assert none.notes == ("No two connected events recur in 1 of 2 traces.",)
    assert none.occurrences.shape == (0, 2)
    assert not none.is_approximate


def test_what_is_cut_is_said_and_marked() -> None:
    star = graph(["hub", *["leaf"] * 60], [(0, n, "x") for n in range(1, 61)], "t")
    mined = mine([star, star], min_support=2, max_edges=4, max_embeddings_per_graph=100)
    assert [(p.n_edges, p.is_approximate) for p in mined.patterns] == [(1, False), (2, False), (3, True), (4, True)]
    assert mined.is_approximate
    assert mined.notes == (
        "3 of 4 patterns fit one trace in more than 100 ways; the other ways were left out there, so what contains them may"
        " occur more often than counted.",
    )


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"min_support": 0}, r"min_support: out of range \(got 0, expected at least 1\)"),
        ({"min_support": 1.5}, r"no share of the traces \(got 1.5, expected above 0, at most 1\)"),
        ({"min_support": 1, "max_edges": 21}, r"max_edges: out of range \(got 21, expected 1 to 20\)"),
    ],
)
def test_numbers_that_cannot_be_are_refused(numbers: dict[str, float], said: str) -> None:
    with pytest.raises(CounterpointError, match=said):
        mine([graph("ab", [(0, 1, "x")])], **numbers)  # type: ignore[arg-type]


def test_an_edge_to_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="leads from a node to itself"):
        mine([graph("a", [(0, 0, "x")])], min_support=1)
