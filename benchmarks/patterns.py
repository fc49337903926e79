"""How fast and how complete the pattern miner is, side by side with what a user would take instead.

`python benchmarks/patterns.py [--quick] [--json]`: CPU seconds, children included. The peers come with the extra `bench`;
one that is not installed is left out. All mine the same undirected graphs at the same support: fewer patterns are no speed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from rows import Row, command_line, row, seconds, show
from simulation import SimulationPolicy, simulate

from analysis.orchestration.patterns import engines
from analysis.orchestration.patterns.canonical import is_connected, pattern_id
from analysis.orchestration.patterns.corpus import corpus_of
from analysis.orchestration.patterns.forms import canonical_form
from analysis.orchestration.patterns.graphs import PatternGraph, pattern_graph
from analysis.orchestration.patterns.mining import mine
from analysis.orchestration.patterns.search import Limits, search

Planted = tuple[list[int], list[tuple[int, int, int]]]  # labels, edges (from, to, kind)


class Corpus(NamedTuple):
    """A set of random graphs and what is asked of it."""

    name: str
    n_graphs: int
    sizes: tuple[int, int]
    share: float
    max_edges: int
    n_labels: int = 20
    n_kinds: int = 5
    hub: float = 0.15


CORPORA = (
    Corpus("rich labels", 1000, (20, 90), 0.3, 6),
    Corpus("rich labels", 1000, (20, 90), 0.05, 6),
    Corpus("poor labels", 1000, (20, 90), 0.2, 6, n_labels=5, n_kinds=2),
    Corpus("poor labels, dense hubs", 1000, (100, 400), 0.8, 4, n_labels=5, n_kinds=2, hub=0.5),
)
LARGE = Corpus("large", 100_000, (10, 75), 0.05, 6)


def cpu_s() -> float:
    """CPU seconds of this process and its children so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what peers print, also from C++, off the standard output."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def random_pattern(rng: np.random.Generator, n_edges: int, n_labels: int, n_kinds: int) -> Planted:
    """A connected pattern without cycles."""
    labels = rng.integers(n_labels, size=n_edges + 1).tolist()
    return labels, [(int(rng.integers(max(0, v - 3), v)), v, int(rng.integers(n_kinds))) for v in range(1, n_edges + 1)]


def random_graphs(shape: Corpus, planted: Sequence[Planted], *, seed: int, p: float = 0.3, chain: bool = False) -> tuple[
    list[PatternGraph], np.ndarray[Any, Any]
]:  # fmt: skip
    """Graphs that grow like runs, edges forward in time, a few more edges across; and which has which pattern planted.

    Edges lead from one of the last six nodes, or from one of few hubs, to the next one; in a `chain` always from the last.
    """
    rng = np.random.default_rng(seed)
    n, (least, most) = shape.n_graphs, shape.sizes
    sizes = np.exp(rng.uniform(np.log(least), np.log(most), n)).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    graph = np.repeat(np.arange(n), sizes)
    place = np.arange(sizes.sum()) - starts[graph]
    skew = rng.dirichlet(np.full(shape.n_labels, 0.6))
    labels = rng.choice(shape.n_labels, len(graph), p=skew)
    child = np.flatnonzero(place > 0)
    back = 1 if chain else 1 + (rng.random(len(child)) * np.minimum(place[child], 6)).astype(np.int64)
    near, far = place[child] - back, place[child] // 20 * 20
    is_hub = (rng.random(len(child)) < shape.hub) & (far < place[child]) & (not chain)
    ends = rng.random((2, len(child) // 4))
    across = rng.choice(len(child), len(child) // 4, replace=False)
    pair = np.sort((ends * sizes[graph[child[across]]]).astype(np.int64), axis=0)
    pair[1] += pair[0] == pair[1]
    pair[:, pair[1] >= sizes[graph[child[across]]]] = np.array([[0], [1]])
    frame = [
        np.concatenate([graph[child], graph[child[across]]]), np.concatenate([np.where(is_hub, far, near), pair[0]]),
        np.concatenate([place[child], pair[1]]),
    ]  # fmt: skip
    weights = np.array([0.5, 0.15, 0.15, 0.15, 0.05])[: shape.n_kinds]
    kinds = rng.choice(shape.n_kinds, len(frame[0]), p=weights / weights.sum())
    order = np.argsort(frame[0], kind="stable")
    bounds = np.searchsorted(frame[0][order], np.arange(n + 1))
    sources, targets, kinds = frame[1][order], frame[2][order], kinds[order]
    has = rng.random((len(planted), n)) < p
    names, words = [f"n{v:02}" for v in range(shape.n_labels)], [f"k{v}" for v in range(shape.n_kinds)]
    graphs = []
    for g in range(n):
        part = slice(bounds[g], bounds[g + 1])
        triples = zip(sources[part].tolist(), targets[part].tolist(), kinds[part].tolist(), strict=True)
        edges = {(a, b): words[kind] for a, b, kind in triples}
        mine_labels = [names[v] for v in labels[starts[g] : starts[g] + sizes[g]].tolist()]
        for k in np.flatnonzero(has[:, g]).tolist():
            begin = len(mine_labels)
            edges[int(rng.integers(begin)), begin] = words[0]
            mine_labels += [names[v] for v in planted[k][0]]
            edges |= {(a + begin, b + begin): words[kind] for a, b, kind in planted[k][1]}
        graphs.append(PatternGraph(f"t{g}", tuple(mine_labels), tuple([(a, b, w) for (a, b), w in edges.items()]), ()))
    return graphs, has


def graphs_of(shape: Corpus, seed: int = 3) -> list[PatternGraph]:
    """The graphs of a corpus, with ten patterns of three to six edges planted."""
    rng = np.random.default_rng(seed)
    planted = [random_pattern(rng, int(rng.integers(3, 7)), shape.n_labels, shape.n_kinds) for _ in range(10)]
    return random_graphs(shape, planted, seed=seed)[0]


def as_text(graphs: Sequence[PatternGraph]) -> str:
    """The format of gSpan; numbers for labels."""
    lines = []
    for g, graph in enumerate(graphs):
        lines.append(f"t # {g}")
        lines += [f"v {n} {int(label[1:]) + 1}" for n, label in enumerate(graph.labels)]
        lines += [f"e {a} {b} {int(kind[1:]) + 1}" for a, b, kind in graph.edges]
    return "\n".join([*lines, "t # -1", ""])


def gspan_mining(path: Path, min_support: int, n_nodes: int, *, directed: bool = False) -> tuple[int, float]:
    """Number of patterns and CPU seconds without reading. Its report ends in a call that pandas 2 no longer has, left out."""
    from gspan_mining.gspan import gSpan

    class Counting(gSpan):  # type: ignore[misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.reports: list[Any] = []

        def _report(self, projected: Any) -> None:
            graph = self._DFScode.to_graph(gid=len(self.reports), is_undirected=self._is_undirected)
            self.reports.append((graph.display(), self._support, sorted({one.gid for one in projected})))

        def _report_size1(self, g: object, support: int) -> None:
            pass

    reader, miner = (Counting(str(path), min_support, 1, n_nodes, is_undirected=not directed) for _ in range(2))
    with quiet():
        reading_s = seconds(reader._read_graphs, clock=cpu_s)
        mining_s = seconds(miner.run, clock=cpu_s) - reading_s
    return len(miner.reports), mining_s


def submine(path: Path, min_support: int, n_nodes: int, *, directed: bool = False) -> tuple[int, float]:
    """Number of patterns and CPU seconds, reading of the text included."""
    from submine.algorithms import gspan_cpp

    text, started = path.read_text(), cpu_s()
    with quiet():
        found = gspan_cpp.mine_from_string(text, minsup=min_support, maxpat_min=2, maxpat_max=n_nodes, directed=directed)
    return len(found), cpu_s() - started


def fast_gspan(path: Path, min_support: int, n_nodes: int) -> tuple[int, float]:
    """Number of patterns of two nodes or more and CPU seconds of its process, reading and parsing included; one thread."""
    from fast_gspan import FastgSpan

    miner = FastgSpan(min_support=min_support, min_num_vertices=2, max_num_vertices=n_nodes, num_threads=1)
    started = cpu_s()
    with quiet():
        found = miner.run_from_file(str(path))
    return len(found), cpu_s() - started


def has(name: str) -> bool:
    """Whether a peer is installed."""
    return importlib.util.find_spec(name) is not None


def against_peers(shape: Corpus, folder: Path, *, is_quick: bool) -> list[Row]:
    """The same undirected patterns, ours and theirs."""
    graphs = graphs_of(shape)
    min_support, n_nodes = round(shape.share * len(graphs)), shape.max_edges + 1
    found: list[Any] = []
    corpus = corpus_of(graphs, min_support=min_support, directed=False)
    limits = Limits(min_support, shape.max_edges, 20_000)
    core_s = seconds(lambda: found.append(list(search(corpus, limits, engines.compiled()))), 3, clock=cpu_s)
    read_s = core_s + seconds(lambda: corpus_of(graphs, min_support=min_support, directed=False), 3, clock=cpu_s)
    n = len(found[0])
    is_exact = not any(one.is_cut for one in found[0])
    path = folder / "graphs.txt"
    path.write_text(as_text(graphs))
    what = f"{shape.name}, {len(graphs)} graphs, {shape.share:.0%}, <= {shape.max_edges} edges, undirected: {n} patterns"
    rows = []
    if has("gspan_mining"):
        n_sample = (25 if shape.hub > 0.2 else 400 if shape.n_labels < 20 else len(graphs)) if is_quick else len(graphs)
        sample, support = folder / "sample.txt", round(shape.share * n_sample)
        sample.write_text(as_text(graphs[:n_sample]))
        n_theirs, theirs = gspan_mining(sample, support, n_nodes)
        theirs *= len(graphs) / n_sample
        is_met = is_exact and theirs / core_s >= 40 and (n_theirs == n or n_sample < len(graphs))
        how = "reading left out on both sides" + (f"; the first {n_sample} graphs, scaled" if n_sample < len(graphs) else "")
        peer = f"gspan-mining ({n_theirs} patterns; {how})"
        rows.append(row(what, core_s, peer=peer, theirs=theirs, unit="s", goal=">= 40 x", met=is_met))
    for name, run in (("submine", submine), ("fast_gspan", fast_gspan)):
        if has(name):
            n_theirs, theirs = run(path, min_support, n_nodes)
            is_met = is_exact and theirs / read_s >= 2 and n_theirs <= n
            peer = f"{name}, C++ ({n_theirs} patterns; building and reading included)"
            rows.append(row(what, read_s, peer=peer, theirs=theirs, unit="s", goal=">= 2 x", met=is_met))
    return rows


def by_brute_force(graphs: Sequence[PatternGraph], min_support: int, n_most: int) -> set[str]:
    """The least forms of all frequent connected directed patterns, by looking at all sets of edges of every graph."""
    support: dict[str, int] = {}
    for graph in graphs:
        forms = set()
        for edges in (chosen for k in range(1, n_most + 1) for chosen in combinations(graph.edges, k)):
            nodes = sorted({node for edge in edges for node in edge[:2]})
            place = {node: n for n, node in enumerate(nodes)}
            if is_connected([(place[a], place[b]) for a, b, _ in edges], len(nodes)):
                forms.add(least_form([graph.labels[node] for node in nodes], nodes, edges))
        for form in forms:
            support[form] = support.get(form, 0) + 1
    return {form for form, n in support.items() if n >= min_support}


def least_form(labels: Sequence[str], nodes: Sequence[int], edges: Sequence[tuple[int, int, str]]) -> str:
    """The least text of a small graph over all orders of its nodes."""
    texts = []
    for order in permutations(range(len(nodes))):
        at = dict(zip(nodes, order, strict=True))
        placed = sorted(zip(order, labels, strict=True))
        texts.append(f"{placed} {sorted((at[a], at[b], kind) for a, b, kind in edges)}")
    return min(texts)


def completeness(n_graphs: int, folder: Path) -> list[Row]:
    """Share of the frequent directed patterns of up to three edges that are found; what there is says brute force."""
    shape = Corpus("small", n_graphs, (10, 16), 0.1, 3, n_labels=5, n_kinds=2)
    rng = np.random.default_rng(5)
    graphs, _ = random_graphs(shape, [random_pattern(rng, 2, 5, 2) for _ in range(3)], seed=5)
    min_support = round(shape.share * n_graphs)
    truth = by_brute_force(graphs, min_support, 3)
    mined = mine(graphs, min_support=min_support, max_edges=3).patterns
    found = {least_form(p.nodes, range(p.n_nodes), p.edges) for p in mined}
    ours = len(found & truth) / len(truth) if found <= truth and len(found) == len(mined) else 0.0
    path = folder / "small.txt"
    path.write_text(as_text(graphs))
    trees = sum([pattern.n_nodes <= 4 for pattern in mine(graphs, min_support=min_support, max_edges=6).patterns])
    what = f"directed completeness, {n_graphs} graphs, {len(truth)} patterns of <= 3 edges by brute force"
    rows = [row(what, ours, peer="brute force", theirs=1.0, unit="share", goal="1.00", met=ours == 1)]
    for name, run in (("gspan_mining", gspan_mining), ("submine", submine)):
        if has(name):
            share = run(path, min_support, 4, directed=True)[0] / trees
            peer = f"{name}, directed, <= 4 nodes: at most this share of our {trees}"
            rows.append(row(what, ours, peer=peer, theirs=share, unit="share", goal="1.00", met=ours == 1))
    return rows


def planted_recall(n_graphs: int) -> list[Row]:
    """How many planted patterns are found in all graphs that hold them, in an easy and in a hard corpus."""
    rows = []
    for name, n_labels, is_hard in (("easy", 20, False), ("hard: long chains of 3 labels, near duplicates", 3, True)):
        shape = Corpus(name, n_graphs, (40, 90) if is_hard else (20, 90), 0.1, 6, n_labels=n_labels, n_kinds=3, hub=0.1)
        rng = np.random.default_rng(11)
        planted = [random_pattern(rng, int(rng.integers(3, 7)), n_labels, 3) for _ in range(8)]
        if is_hard:
            planted += [near_duplicate(pattern, rng, n_labels) for pattern in planted]
        graphs, held = random_graphs(shape, planted, seed=12, p=0.2, chain=is_hard)
        mined = mine(graphs, min_support=shape.share, max_edges=6)
        number = {pattern.pattern_id: n for n, pattern in enumerate(mined.patterns)}
        n_found = 0
        for pattern, graphs_with in zip(planted, held, strict=True):
            labels = [f"n{v:02}" for v in pattern[0]]
            n = number.get(pattern_id(labels, [(a, b, f"k{kind}") for a, b, kind in pattern[1]]))
            n_found += n is not None and bool(mined.occurrences[[n]].toarray()[0][graphs_with].all())
        recall = n_found / len(planted)
        what = f"recall of {len(planted)} planted patterns, {name}: {n_graphs} graphs, {len(mined.patterns)} patterns"
        what += ", approximate" * mined.is_approximate
        rows.append(row(what, recall, peer="-", theirs=None, unit="share", goal="1.00", met=recall == 1))
    return rows


def near_duplicate(pattern: Planted, rng: np.random.Generator, n_labels: int) -> Planted:
    """The pattern with one label changed, or with one edge turned round."""
    labels, edges = list(pattern[0]), list(pattern[1])
    if rng.random() < 0.5:
        n = int(rng.integers(len(labels)))
        labels[n] = (labels[n] + 1) % n_labels
    else:
        n = int(rng.integers(len(edges)))
        edges[n] = (edges[n][1], edges[n][0], edges[n][2])
    return labels, edges


def large() -> list[Row]:
    """A corpus of 100,000 graphs in a process of its own."""
    run = subprocess.run([sys.executable, __file__, "--large"], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    what = f"100,000 graphs, {found['n_edges'] / 1e6:.1f} M edges, 5 %, <= {LARGE.max_edges} edges: {found['n']} patterns"
    return [
        row(f"{what}, mining", found["s"], peer="-", theirs=None, unit="CPU s", goal="<= 10 s", met=found["s"] <= 10),
        row(f"{what}, peak memory", found["gib"], peer="-", theirs=None, unit="GiB", goal="<= 1.5", met=found["gib"] <= 1.5),
    ]


def mine_large() -> None:
    """Mine the large corpus and print what it took, building of the arrays and closed patterns included."""
    graphs = graphs_of(LARGE)
    small = graphs[:50]
    list(search(corpus_of(small, min_support=25, directed=True), Limits(25, 2, 1000), engines.compiled()))
    found = []
    cpu = seconds(lambda: found.append(mine(graphs, min_support=LARGE.share, max_edges=LARGE.max_edges)), clock=cpu_s)
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"s": cpu, "gib": gib, "n": len(found[0].patterns), "n_edges": sum([len(g.edges) for g in graphs])}))


def forms(n_traces: int) -> Row:
    """Traces of 50 events to pattern graphs and to the families of equal canonical forms."""
    policy = SimulationPolicy(n_tasks=25, n_trials=2, n_events=50)
    traces = list(simulate(policy, seed=1))
    n_rounds = -(-n_traces // len(traces))
    started = cpu_s()
    found = [canonical_form(pattern_graph(trace)) for _ in range(n_rounds) for trace in traces]
    cpu = cpu_s() - started
    n_events = sum([len(trace.events) for trace in traces]) / len(traces)
    what = f"{len(found)} traces of {n_events:.0f} events to graphs and {len(set(found))} exact families, CPU"
    return row(what, cpu, peer="-", theirs=None, unit="s", goal="<= 60 s", met=cpu <= 60)


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, quick="smaller samples of the slowest peer")
    parser.add_argument("--large", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    if given.large:
        mine_large()
        return
    with tempfile.TemporaryDirectory() as folder:
        peers = [row for shape in CORPORA for row in against_peers(shape, Path(folder), is_quick=given.quick)]
        rows = [*peers, *completeness(60 if given.quick else 300, Path(folder))]
    rows += [*planted_recall(1000), *large(), forms(2_000 if given.quick else 10_000)]
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
