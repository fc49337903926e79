"""Pattern libraries: written and read without loss, refused where they cannot be, found where the miner finds them."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import CounterpointError
from analysis.orchestration.patterns.canonical import pattern_id
from analysis.orchestration.patterns.families import pattern_families, trace_families
from analysis.orchestration.patterns.graphs import DEFAULT, PatternGraph
from analysis.orchestration.patterns.library import (
    FORMAT,
    Entry,
    Library,
    entries,
    export_library,
    family_entries,
    import_library,
)
from analysis.orchestration.patterns.matching import match, match_families
from analysis.orchestration.patterns.mining import mine
from analysis.orchestration.patterns.value import lifts


def random_graph(name: str, rng: random.Random, n: int) -> PatternGraph:
    edges = {(rng.randrange(v), v): rng.choice("xy") for v in range(1, n)}
    edges |= {(a, b): rng.choice("xy") for a, b in (sorted(rng.sample(range(n), 2)) for _ in range(n // 3))}
    labels = tuple(rng.choice("abc") for _ in range(n))
    return PatternGraph(name, labels, tuple((a, b, label) for (a, b), label in edges.items()), tuple(() for _ in labels))


def corpus(n: int, seed: int, size: int = 9) -> list[PatternGraph]:
    rng = random.Random(seed)
    return [random_graph(f"t{k:03}", rng, rng.randint(2, size)) for k in range(n)]


def entry(nodes: str, *edges: tuple[int, int, str]) -> Entry:
    return Entry(pattern_id(tuple(nodes), edges), "", tuple(nodes), edges, 1, 0.5)


def library(*patterns: Entry) -> Library:
    return Library(labelling=DEFAULT, provenance={"workspace": "w"}, patterns=patterns)


def made(seed: int) -> tuple[Library, list[PatternGraph]]:
    """A library of everything that was mined in a corpus, with lifts and families."""
    graphs = corpus(40, seed)
    mined = mine(graphs, min_support=8, max_edges=3)
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"passed": (rng.random(40) < 0.5) * 1.0, "span_s": rng.random(40)}, index=list(mined.trace_ids))
    rows = lifts([p.pattern_id for p in mined.patterns], mined.occurrences, table=table, n_permutations=20)
    found = trace_families(graphs)
    of_families = lifts([f.family_id for f in found.families], found.membership(mined.trace_ids), table=table, n_permutations=20)
    patterns = entries(mined.patterns, rows, families=pattern_families(mined).families)
    families = family_entries(found.families, graphs, lifts=of_families)
    return Library(labelling=DEFAULT, provenance={"min_support": "8"}, patterns=patterns, families=families), graphs


@pytest.mark.parametrize("seed", range(5))
def test_what_is_exported_is_imported_the_same(seed: int) -> None:
    one, _ = made(seed)
    data = export_library(one)
    assert import_library(data) == one
    assert export_library(import_library(data)) == data
    assert json.loads(data)["format"] == FORMAT == "counterpoint-patterns/1"


def test_an_entry_keeps_what_the_pattern_was_worth_and_where() -> None:
    one, _ = made(0)
    first = one.patterns[0]
    worth = first.lift["passed"]
    assert worth.n_with == first.support
    assert worth.n_with + worth.n_without == 40
    assert worth.evidence == "observational"
    assert first.family is not None
    assert one.families[0].n_members == 40
    assert one.families[0].lift["passed"].value is None  # every run is in the family


@pytest.mark.parametrize("seed", range(5))
def test_a_library_is_found_in_its_own_corpus_where_the_miner_found_it(seed: int) -> None:
    one, graphs = made(seed)
    mined = mine(graphs, min_support=8, max_edges=3)
    found = match(one, graphs)
    assert [e.pattern_id for e in one.patterns] == [p.pattern_id for p in mined.patterns]
    assert (found.occurrences.toarray() == mined.occurrences.toarray()).all()
    assert found.undecided == ()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_a_pattern_occurs_exactly_where_networkx_finds_it(seed: int) -> None:
    rng = random.Random(seed)
    small, large = random_graph("p", rng, rng.randint(2, 5)), random_graph("g", rng, rng.randint(3, 12))
    one = library(entry("".join(small.labels), *small.edges))
    expected = nx.algorithms.isomorphism.DiGraphMatcher(
        drawn(large), drawn(small), node_match=lambda x, y: x == y, edge_match=lambda x, y: x == y
    ).subgraph_is_monomorphic()
    assert match(one, [large]).occurrences.toarray().tolist() == [[expected]]


def drawn(one: PatternGraph) -> nx.DiGraph:
    found = nx.DiGraph()
    found.add_nodes_from((n, {"label": label}) for n, label in enumerate(one.labels))
    found.add_edges_from((a, b, {"label": label}) for a, b, label in one.edges)
    return found


def test_nodes_are_placed_apart_and_directions_and_labels_count() -> None:
    two = library(entry("abb", (0, 1, "x"), (0, 2, "x")))

    def occurs(labels: str, *edges: tuple[int, int, str]) -> bool:
        (found,) = match(two, [PatternGraph("g", tuple(labels), edges, ())]).occurrences.toarray().tolist()
        return bool(found[0])

    assert occurs("abbc", (0, 1, "x"), (0, 2, "x"), (1, 3, "x"), (1, 2, "y"))
    assert not occurs("ab", (0, 1, "x"))
    assert not occurs("abab", (0, 1, "x"), (2, 3, "x"))
    assert not occurs("abb", (0, 1, "x"), (0, 2, "y"))
    assert not occurs("abb", (0, 1, "x"), (2, 0, "x"))


def test_an_endless_search_is_given_up_and_said() -> None:
    # A zigzag of 14 that ends at a `c` fits nowhere, but all its ways through 20 by 20 nodes up to there would have to be tried.
    zigzag = [(k, k + 1, "x") if k % 2 == 0 else (k + 1, k, "x") for k in range(13)]
    one = library(Entry("p", "", ("a",) * 14 + ("c",), (*zigzag, (13, 14, "y")), 1, 0.5))
    sides = [(a, b, "x") for a in range(20) for b in range(20, 40)]
    started = time.monotonic()
    found = match(one, [PatternGraph("g", (*("a",) * 41, "c"), (*sides, (40, 41, "y")), ())])
    assert time.monotonic() - started < 20
    assert found.occurrences.nnz == 0
    assert found.undecided == (("p", "g"),)


def test_a_pattern_is_looked_for_in_50_000_events_within_seconds() -> None:
    n = 50_000
    labels = tuple("ab"[k % 2] for k in range(n))
    long = PatternGraph("g", labels, tuple((k, k + 1, "x") for k in range(n - 1)), ())
    one = library(entry("aba", (0, 1, "x"), (1, 2, "x")), entry("aa", (0, 1, "x")), entry("bab", (0, 1, "x"), (1, 2, "x")))
    started = time.monotonic()
    assert match(one, [long]).occurrences.toarray().ravel().tolist() == [True, False, True]
    assert time.monotonic() - started < 10


def test_families_are_found_by_the_form_of_their_medoid() -> None:
    one, graphs = made(1)
    held = match_families(one, [*graphs[:3], next(g for g in graphs if g.labels == one.families[0].nodes)])
    assert held.shape == (1, 4)
    assert held.toarray()[0, 3]
    assert match_families(library(), graphs).shape == (0, 40)


def test_an_empty_library_and_an_empty_corpus_match_nothing() -> None:
    assert match(library(), corpus(3, 0)).occurrences.shape == (0, 3)
    assert match(library(entry("ab", (0, 1, "x"))), []).occurrences.shape == (1, 0)
    assert import_library(export_library(library())) == library()


def changed(**fields: Any) -> bytes:
    plain = json.loads(export_library(library(entry("ab", (0, 1, "x")))))
    plain["patterns"][0] |= fields
    return json.dumps(plain).encode()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", r"lib: not a pattern library \(got .*expected counterpoint-patterns/1\) - export it again"),
        (b"[1]", "lib: not a pattern library"),
        (b"\xff\xfe", "lib: not a pattern library"),
        (b"[" * 100_000, "lib: not a pattern library"),
        (
            b'{"format": "counterpoint-patterns/9"}',
            "not a pattern library of this version .got counterpoint-patterns/9",
        ),
        (b'{"format": "counterpoint-patterns/1"}', "missing required field `labelling`"),
        (changed(extra=1), "unknown field `extra`"),
        (changed(pattern_id="p0"), r"lib: patterns\[0\]: the id belongs to another graph \(got p0, expected p"),
        (changed(nodes=["a", "c"]), "the id belongs to another graph"),
        (changed(edges=[[0, 5, "x"]]), r"an edge leads to a node that is not there \(got 0 to 5, expected 0 to 1\)"),
        (changed(edges=[[0, -1, "x"]]), "an edge leads to a node that is not there"),
        (changed(edges=[]), r"lib: patterns\[0\]: this is no pattern"),
        (changed(edges=[[0, 0, "x"]]), "this is no pattern"),
        (changed(nodes=["a", "b", "c"]), "this is no pattern"),
        (changed(support_share=2.0), "a support that cannot be"),
        (export_library(library(*[entry("ab", (0, 1, "x"))] * 2)), r"lib: patterns\[1\]: it stands there twice"),
    ],
)
def test_a_file_that_cannot_be_is_refused_with_the_place(data: bytes, text: str) -> None:
    with pytest.raises(CounterpointError, match=text):
        import_library(data, place="lib")


def test_a_family_with_the_id_of_another_is_refused() -> None:
    one, _ = made(0)
    wrong = msgspec.structs.replace(one, families=(msgspec.structs.replace(one.families[0], family_id="f0"),))
    with pytest.raises(CounterpointError, match=r"families\[0\]: the id belongs to another graph"):
        import_library(export_library(wrong))


def test_a_family_that_goes_round_in_a_circle_is_refused() -> None:
    one, _ = made(0)
    wrong = msgspec.structs.replace(one.families[0], nodes=("a", "b"), edges=((0, 1, "x"), (1, 0, "x")))
    with pytest.raises(CounterpointError, match=r"families\[0\]: no run can have this graph .got the graph has a cycle"):
        import_library(export_library(msgspec.structs.replace(one, families=(wrong,))))


def test_a_star_made_to_take_for_ever_does_not() -> None:
    star = Entry("p", "", ("a",) * 30, tuple((0, n, "x") for n in range(1, 30)), 1, 0.5)
    started = time.monotonic()
    assert import_library(export_library(library(star))).patterns == (star,)
    assert time.monotonic() - started < 2
