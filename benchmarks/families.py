"""How fast and how right families, lifts and the search for known patterns are, beside what a user would take instead.

`python benchmarks/families.py [--quick] [--json]`: CPU seconds, peers on a stated random sample scaled per item.
"""

from __future__ import annotations

import os
import random
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import msgspec
import networkx as nx
import numpy as np
from rows import Row, command_line, row, seconds, show
from scipy import sparse, stats
from sklearn.metrics import adjusted_rand_score

from analysis.model import Agent, Event, Source, Trace
from analysis.orchestration.patterns.canonical import is_connected
from analysis.orchestration.patterns.chance import ALPHA, westfall_young
from analysis.orchestration.patterns.families import trace_families
from analysis.orchestration.patterns.features import joined, wl_features
from analysis.orchestration.patterns.graphs import LABELLINGS, PatternGraph, pattern_graph
from analysis.orchestration.patterns.library import Entry, Library
from analysis.orchestration.patterns.matching import match

#: Workers, steps of each, whether one waits for the other.
PLANS = ((3, 13, False), (6, 5, False), (12, 2, False), (4, 9, True), (10, 3, True), (2, 20, False), (16, 1, False), (7, 5, True))
EDGES = ("delegation", "message", "return", "aggregation", "own")


def random_graphs(n_graphs: int, seed: int) -> list[PatternGraph]:
    """Event graphs of 10 to 60 nodes with hubs, 20 labels and 5 kinds of edges."""
    rng = random.Random(seed)
    graphs = []
    for k in range(n_graphs):
        n = rng.randint(10, 60)
        edges = {(0 if rng.random() < 0.15 else rng.randrange(max(0, v - 6), v), v): rng.choice(EDGES) for v in range(1, n)}
        edges |= {(a, b): rng.choice(EDGES) for a, b in (sorted(rng.sample(range(n), 2)) for _ in range(n // 4))}
        labels = tuple([rng.choice("sdcae") + rng.choice("lwpo") for _ in range(n)])
        graphs.append(PatternGraph(f"t{k}", labels, tuple([(a, b, word) for (a, b), word in edges.items()]), ()))
    return graphs


def drawn(graph: PatternGraph) -> nx.DiGraph:
    """The same for networkx."""
    found = nx.DiGraph()
    found.add_nodes_from((n, {"label": label}) for n, label in enumerate(graph.labels))
    found.add_edges_from((a, b, {"label": label}) for a, b, label in graph.edges)
    return found


def features(n_graphs: int, n_sample: int) -> list[Row]:
    """Neighbourhoods of 0 to 3 steps, counted for a corpus, against networkx's hash of one graph after the other."""
    graphs = random_graphs(n_graphs, 1)
    wl_features(joined(graphs[:100]), n_rounds=3)
    ours = seconds(lambda: wl_features(joined(graphs), n_rounds=3), 3) / n_graphs
    peers = [drawn(graph) for graph in random.Random(0).sample(graphs, n_sample)]

    def hashes() -> None:
        for graph in peers:
            nx.weisfeiler_lehman_graph_hash(graph, node_attr="label", edge_attr="label", iterations=3)

    theirs = seconds(hashes) / n_sample
    what = f"WL features, {n_graphs} graphs of 10 to 60 nodes, CPU a graph (ours with, theirs without building the graph)"
    peer = f"networkx WL hash; {n_sample} sampled"
    return [row(what, ours, peer=peer, theirs=theirs, unit="s", goal=">= 10 x", met=theirs / ours >= 10)]


def planned_run(name: str, plan: int, n_more: int, rng: random.Random) -> Trace:
    """A run of about 50 events by one of the `PLANS`, its first worker with a few more steps, parallel work interleaved."""
    n_workers, n_steps, is_chain = PLANS[plan]
    lanes: list[list[Event]] = []
    for w in range(n_workers):
        me, first = f"w{w}", f"r{w - 1}" if is_chain and w else "s"
        steps = [f"a{w}-{k}" for k in range(n_steps + n_more * (w == 0))]
        lane = [Event(event_id=f"d{w}", kind="delegate", agent_id="lead", targets=(me,), parents=(first,))]
        for k, step in enumerate(steps):
            action = "tool_call" if k % 2 else "model_call"
            lane.append(Event(event_id=step, kind="act", action=action, agent_id=me, parents=(lane[-1].event_id,)))
        lane.append(Event(event_id=f"r{w}", kind="communicate", agent_id=me, targets=("lead",), parents=(lane[-1].event_id,)))
        lanes.append(lane)
    if is_chain:
        inner = [event for lane in lanes for event in lane]
    else:
        turns = [w for w, lane in enumerate(lanes) for _ in lane]
        rng.shuffle(turns)
        left = [iter(lane) for lane in lanes]
        inner = [next(left[w]) for w in turns]
    spawn = Event(event_id="s", kind="spawn", agent_id="lead", targets=tuple([f"w{w}" for w in range(n_workers)]))
    merge = Event(event_id="m", kind="aggregate", agent_id="lead", merge_points=tuple([f"r{w}" for w in range(n_workers)]))
    stop = Event(event_id="e", kind="stop", agent_id="lead", parents=("m",))
    events = [msgspec.structs.replace(event, order=n) for n, event in enumerate([spawn, *inner, merge, stop])]
    agents = tuple([Agent(agent_id=agent, component=agent[0]) for agent in ("lead", *spawn.targets)])
    return Trace(trace_id=name, world="recorded", source=Source(format="benchmark"), agents=agents, events=tuple(events))


def plans(n_traces: int) -> list[Row]:
    """Runs of 8 plans into families, from the trace on; variants are what process mining counts: distinct sequences of steps."""
    rng = random.Random(2)
    traces = [planned_run(f"t{n}", n % len(PLANS), rng.randrange(4), rng) for n in range(n_traces)]
    started = time.process_time()
    graphs = [pattern_graph(trace, LABELLINGS["actions"]) for trace in traces]
    found = trace_families(graphs)
    ours = time.process_time() - started
    family_of = {member: n for n, family in enumerate(found.families) for member in family.members}
    label = [family_of[trace.trace_id] for trace in traces]
    agreement = adjusted_rand_score([n % len(PLANS) for n in range(n_traces)], label)
    n_events = np.mean([len(trace.events) for trace in traces])
    one = [planned_run(f"u{n}", 1, 0, rng) for n in range(200)]
    n_families = len(trace_families([pattern_graph(trace, LABELLINGS["actions"]) for trace in one]).families)
    n_variants = len({tuple((event.agent_id, event.kind, event.action) for event in trace.events) for trace in one})
    return [
        row(f"{n_traces} traces of {n_events:.0f} events into families", ours, peer="-", theirs=None, unit="s", goal="<= 60 s",
            met=ours <= 60),
        row(f"families of {n_traces} runs of {len(PLANS)} plans, agreement with the plans", float(agreement), peer="-",
            theirs=None, unit="adjusted Rand index", goal=">= 0.95", met=agreement >= 0.95),
        row("families of 200 runs of one plan, interleaved at random", float(n_families), peer="variants (sequences of steps)",
            theirs=float(n_variants), unit="families", goal="1", met=n_families == 1),
    ]  # fmt: skip


def overlapping(rng: np.random.Generator, n_items: int, n_traces: int) -> sparse.csr_array:
    """Patterns that overlap as mined ones do: each is part of one of a few."""
    wide = rng.random((n_items // 4, n_traces)) < rng.uniform(0.1, 0.5, (n_items // 4, 1))
    return sparse.csr_array(wide[rng.integers(len(wide), size=n_items)] & (rng.random((n_items, n_traces)) < 0.85))


def chance(n_items: int, n_traces: int, n_shuffles: int) -> list[Row]:
    """The permutation test over all patterns: time, false finds on shuffled outcomes, and finds beside Bonferroni's."""
    rng = np.random.default_rng(3)
    held = overlapping(rng, n_items, n_traces)
    flat = np.zeros(n_traces, np.intp)
    passed = (rng.random(n_traces) < 0.5).astype(float)[:, None]
    ours = seconds(lambda: westfall_young(held, passed, strata=flat, rng=np.random.default_rng(0)), 2)
    dense = held.toarray()
    cells = [[int(passed[one].sum()), int((1 - passed[one]).sum())] for one in dense]
    tables = [[[a, b], [int(passed.sum()) - a, n_traces - int(passed.sum()) - b]] for a, b in cells]
    exact = seconds(lambda: [stats.fisher_exact(table) for table in tables[:20]]) / 20 * n_items * 1_000

    small = overlapping(rng, 60, 300)
    label, zeros, false = (rng.random((300, 1)) < 0.5).astype(float), np.zeros(300, np.intp), 0
    for k in range(n_shuffles):
        (found,) = westfall_young(small, rng.permutation(label), strata=zeros, rng=np.random.default_rng(k), n_permutations=399)
        false += bool(np.nanmin(found.p_adjusted) <= ALPHA)
    low, high = stats.binom.ppf([0.025, 0.975], n_shuffles, ALPHA)

    more = []
    for k in range(10):
        planted = np.random.default_rng(k)
        items = overlapping(planted, 200, 1_000)
        outcome = planted.random(1_000) < 0.4 + 0.15 * items[[0]].toarray()[0] - 0.15 * items[[1]].toarray()[0]
        (found,) = westfall_young(items, outcome.astype(float)[:, None], strata=np.zeros(1_000, np.intp), rng=planted)
        more.append((int((found.p_adjusted <= ALPHA).sum()), int((found.p <= ALPHA / 200).sum())))
    is_never_less = all(mine >= its for mine, its in more)
    return [
        row(f"1,000 permutations x {n_items} patterns x {n_traces} traces", ours, peer="scipy fisher_exact each; 20 scaled",
            theirs=exact, unit="s", goal="<= 2 s", met=ours <= 2),
        row(f"shuffled outcomes in which something is significant, of {n_shuffles}", float(false), peer="binomial 95 % band",
            theirs=None, unit="shuffles", goal=f"{low:.0f} to {high:.0f}", met=low <= false <= high),
        row("significant patterns on 10 planted corpora", float(sum(mine for mine, _ in more)), peer="Bonferroni",
            theirs=float(sum(its for _, its in more)), unit="patterns", goal="never fewer", met=is_never_less),
    ]  # fmt: skip


def known_patterns(n_graphs: int, n_sample: int) -> list[Row]:
    """Patterns of 4 nodes looked for in a corpus, against networkx's matcher."""
    graphs = random_graphs(n_graphs, 5)
    rng = random.Random(6)
    patterns = []
    while len(patterns) < 20:
        graph = rng.choice(graphs)
        inside = sorted(rng.sample(range(8), 4))
        edges = tuple([(inside.index(a), inside.index(b), word) for a, b, word in graph.edges if a in inside and b in inside])
        pairs = [edge[:2] for edge in edges]
        if len({node for pair in pairs for node in pair}) == 4 and is_connected(pairs, 4):
            patterns.append(Entry(f"p{len(patterns)}", "", tuple([graph.labels[n] for n in inside]), edges, 1, 0.0))
    library = Library(labelling=LABELLINGS["roles"], provenance={}, patterns=tuple(patterns))
    ours = seconds(lambda: match(library, graphs)) / n_graphs / len(patterns)
    small = [drawn(PatternGraph("", entry.nodes, entry.edges, ())) for entry in patterns]
    large = [drawn(graph) for graph in graphs[:n_sample]]
    same = {"node_match": lambda a, b: a == b, "edge_match": lambda a, b: a == b}
    found = match(library, graphs[:n_sample]).occurrences.toarray()
    wrong = 0

    def peer() -> None:
        nonlocal wrong
        for i, one in enumerate(small):
            for j, other in enumerate(large):
                matcher = nx.algorithms.isomorphism.DiGraphMatcher(other, one, **same)
                wrong += matcher.subgraph_is_monomorphic() != found[i, j]

    theirs = seconds(peer) / n_sample / len(patterns)
    what = f"20 known patterns looked for in {n_graphs} graphs, CPU a pattern and graph ({wrong} answers differ)"
    name = f"networkx DiGraphMatcher; {n_sample} graphs"
    return [
        row(what, ours, peer=name, theirs=theirs, unit="s", goal=">= 10 x, none differ", met=theirs / ours >= 10 and not wrong)
    ]


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, quick="smaller samples of the peers")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = [
        *features(10_000, 200 if given.quick else 1_000),
        *plans(10_000),
        *chance(316, 3_000, 80 if given.quick else 400),
        *known_patterns(1_000, 20 if given.quick else 200),
    ]
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
