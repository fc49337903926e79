"""Families of runs and patterns, their names, and the conditions under which they pay, on planted corpora."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from analysis.model import Agent, Event, Source, Trace
from analysis.orchestration.patterns.conditions import across_domains, conditions
from analysis.orchestration.patterns.families import Families, family_ids, pattern_families, trace_families
from analysis.orchestration.patterns.features import embed, joined, wl_features
from analysis.orchestration.patterns.graphs import PatternGraph, pattern_graph
from analysis.orchestration.patterns.mining import Mined, Pattern
from analysis.orchestration.patterns.naming import structure_name

Step = tuple[str, str, str, tuple[str, ...], tuple[str, ...]]  # id, kind, agent, targets, parents
Edges = Sequence[tuple[int, int, str]]


def graph(name: str, labels: str | Sequence[str], edges: Edges) -> PatternGraph:
    return PatternGraph(name, tuple(labels), tuple(edges), tuple((str(n),) for n in range(len(labels))))


def shuffled(one: PatternGraph, rng: random.Random, name: str | None = None) -> PatternGraph:
    """The same graph with its nodes and edges in another order."""
    order = list(range(len(one.labels)))
    rng.shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    edges = [(place[a], place[b], label) for a, b, label in one.edges]
    rng.shuffle(edges)
    return graph(name or one.trace_id, [one.labels[n] for n in order], edges)


def star(n_workers: int, n_steps: int = 1) -> list[Step]:
    """The lead delegates to all at once, each works a few steps with tools and reports, the lead merges."""
    workers = [f"w{n}" for n in range(n_workers)]
    steps: list[Step] = [("s", "spawn", "lead", tuple(workers), ())]
    for worker in workers:
        steps.append((f"d-{worker}", "delegate", "lead", (worker,), ("s",)))
        for k in range(n_steps):
            before = f"d-{worker}" if k == 0 else f"a{k - 1}-{worker}"
            steps.append((f"a{k}-{worker}", "act", worker, (), (before,)))
        steps.append((f"r-{worker}", "communicate", worker, ("lead",), (f"a{n_steps - 1}-{worker}",)))
    steps.append(("m", "aggregate", "lead", (), tuple(f"r-{worker}" for worker in workers)))
    return [*steps, ("e", "stop", "lead", (), ("m",))]


def chain(n_workers: int) -> list[Step]:
    """One worker after the other."""
    steps: list[Step] = [("s", "spawn", "lead", tuple(f"w{n}" for n in range(n_workers)), ())]
    last = "s"
    for n in range(n_workers):
        steps += [(f"d{n}", "delegate", "lead", (f"w{n}",), (last,)), (f"a{n}", "act", f"w{n}", (), (f"d{n}",))]
        steps.append((f"r{n}", "communicate", f"w{n}", ("lead",), (f"a{n}",)))
        last = f"r{n}"
    return [*steps, ("e", "stop", "lead", (), (last,))]


def rounds(n_rounds: int, n_workers: int) -> list[Step]:
    """All work at once, the lead merges, and they begin again."""
    workers = [f"w{n}" for n in range(n_workers)]
    steps: list[Step] = [("s", "spawn", "lead", tuple(workers), ())]
    last = "s"
    for k in range(n_rounds):
        for worker in workers:
            steps.append((f"d{k}-{worker}", "delegate", "lead", (worker,), (last,)))
            steps.append((f"r{k}-{worker}", "communicate", worker, ("lead",), (f"d{k}-{worker}",)))
        steps.append((f"m{k}", "aggregate", "lead", (), tuple(f"r{k}-{worker}" for worker in workers)))
        last = f"m{k}"
    return [*steps, ("e", "stop", "lead", (), (last,))]


def run(name: str, steps: Sequence[Step], rng: random.Random) -> Trace:
    """A run of the plan whose events come in a random order that keeps causes first."""
    waiting = {step[0]: set(step[4]) for step in steps}
    by_id = {step[0]: step for step in steps}
    events: list[Event] = []
    while waiting:
        ready = sorted(step for step, parents in waiting.items() if not parents)
        chosen = rng.choice(ready)
        del waiting[chosen]
        for parents in waiting.values():
            parents.discard(chosen)
        _, kind, agent, targets, parents_of = by_id[chosen]
        fields = {"merge_points": parents_of} if kind == "aggregate" else {"parents": parents_of}
        events.append(Event(event_id=chosen, kind=kind, agent_id=agent, targets=targets, order=len(events), **fields))  # type: ignore[arg-type]
    agents = tuple(Agent(agent_id=agent, component=agent.rstrip("0123456789")) for agent in sorted({step[2] for step in steps}))
    return Trace(trace_id=name, world="recorded", source=Source(format="x"), agents=agents, events=tuple(events))


def runs(plans: Sequence[list[Step]], n_each: int, seed: int = 0) -> list[PatternGraph]:
    rng = random.Random(seed)
    return [pattern_graph(run(f"p{p}:{n:03}", plan, rng)) for p, plan in enumerate(plans) for n in range(n_each)]


FIVE = [star(3), star(5, 2), chain(4), rounds(3, 3), star(8)]


def members(found: Families) -> set[frozenset[str]]:
    return {frozenset(family.members) for family in found.families}


def noisy(kind: int, name: str, rng: random.Random) -> PatternGraph:
    """A graph of one of three ways to grow: a hub, a chain with side steps, a binary tree; no two are alike."""
    n = rng.randint(20, 40)
    labels = [rng.choice("abcd") for _ in range(n)]
    ways: list[Callable[[int], int]] = [
        lambda v: 0 if rng.random() < 0.8 else rng.randrange(v),
        lambda v: v - 1,
        lambda v: (v - 1) // 2,
    ]
    grow = ways[kind]
    words = ["delegation", "own", "message"]
    return graph(name, labels, [(grow(v), v, words[kind] if rng.random() < 0.9 else "return") for v in range(1, n)])


def random_tree(name: str, rng: random.Random) -> PatternGraph:
    n = rng.randint(20, 40)
    return graph(name, [rng.choice("abcd") for _ in range(n)], [(rng.randrange(max(0, v - 4), v), v, "own") for v in range(1, n)])


def test_200_runs_of_one_plan_are_one_family() -> None:
    found = trace_families(runs([star(5, 2)], 200))
    (family,) = found.families
    assert (len(family.members), family.n_forms, family.stability) == (200, 1, None)
    assert (family.medoid, found.note) == ("p0:000", "all 200 runs have one form")
    assert family.name == "parallel delegation → parallel work in rounds → aggregation → stop"


def test_5_plans_with_40_runs_each_are_5_families() -> None:
    found = trace_families(runs(FIVE, 40))
    assert members(found) == {frozenset(f"p{p}:{n:03}" for n in range(40)) for p in range(5)}
    assert [family.n_forms for family in found.families] == [1] * 5
    assert all(family.stability == 1 for family in found.families)
    assert len({family.name for family in found.families}) == 5


def test_ways_to_grow_are_told_apart_though_no_two_runs_are_alike() -> None:
    rng = random.Random(1)
    graphs = [noisy(kind, f"k{kind}:{n}", rng) for kind in range(3) for n in range(60)]
    found = trace_families(graphs)
    family_of = {member: n for n, family in enumerate(found.families) for member in family.members}
    assert adjusted_rand_score([g.trace_id[:2] for g in graphs], [family_of[g.trace_id] for g in graphs]) > 0.95
    assert min(family.stability or 0 for family in found.families) > 0.9


@pytest.mark.parametrize("n", [60, pytest.param(3_000, marks=pytest.mark.soak)])
def test_runs_without_structure_are_one_family_and_that_is_said(n: int) -> None:
    rng = random.Random(2)
    found = trace_families([random_tree(f"t{k}", rng) for k in range(n)])
    (family,) = found.families
    assert (len(family.members), family.n_forms) == (n, n)
    assert found.note.startswith("no structure: ")
    assert found.stability.keys() == found.spread.keys() == set(range(2, 13))


def test_few_runs_are_not_divided() -> None:
    assert trace_families([]) == Families((), {}, {}, "there are no runs")
    (one,) = trace_families([graph("t", "a", [])]).families
    assert (one.members, one.name) == (("t",), "1 step")
    empty = trace_families([graph("a", "", []), graph("b", "", [])])
    assert len(empty.families) == 1
    two = trace_families([graph("a", "ab", [(0, 1, "own")]), graph("b", "abc", [(0, 1, "own"), (0, 2, "own")])])
    assert len(two.families) == 1
    assert two.note == "one family: 2 runs are too few, or too much alike, to divide them"


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000))
def test_the_order_of_runs_nodes_and_edges_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    graphs = runs([star(3), chain(4), rounds(2, 3)], 8) + [noisy(0, f"n{k}", random.Random(k)) for k in range(10)]
    first = trace_families(graphs)
    again = [shuffled(one, rng) for one in graphs]
    rng.shuffle(again)
    assert trace_families(again) == first


def test_the_id_of_a_family_is_that_of_its_medoid_in_any_corpus() -> None:
    found = trace_families(runs(FIVE, 40))
    (alone,) = trace_families(runs([chain(4)], 3, seed=9)).families
    assert alone.family_id in {family.family_id for family in found.families}
    assert alone.family_id == family_ids(runs([chain(4)], 1))[0]
    assert family_ids([graph("t", "ab", [(0, 1, "x")])]) == ["fd36dd3204533d960"]  # the same on every machine


def test_wl_features_count_neighbourhoods_with_directions_and_edge_labels() -> None:
    graphs = [graph("t", "aab", [(0, 2, "x"), (1, 2, "x")]), graph("u", "aab", [(2, 0, "x"), (2, 1, "x")]),
              graph("v", "aab", [(0, 2, "y"), (1, 2, "x")]), graph("w", "", [])]  # fmt: skip
    counts = wl_features(joined(graphs), n_rounds=1)
    # labels: a, b shared by three; one step wider: t has a->b twice and b; u the reverse; v one of a's with y, one as in t
    assert sorted(counts[[0]].data.tolist()) == [1, 1, 2, 2]
    assert sorted(counts[[2]].data.tolist()) == [1, 1, 1, 1, 2]
    assert counts[[3]].nnz == 0
    both = (counts @ counts.T).toarray()
    assert both[0, 0] == 4 + 1 + 4 + 1
    assert both[0, 1] == 4 + 1
    assert both[0, 2] == 4 + 1 + 2 * 1


def test_runs_that_share_all_lie_on_one_point_and_those_that_share_nothing_apart() -> None:
    graphs = [graph("t", "ab", [(0, 1, "x")]), graph("u", "ba", [(1, 0, "x")]), graph("v", "cd", [(0, 1, "x")])] * 2
    points = embed(wl_features(joined(graphs)))
    near = points @ points.T
    assert near[0, 1] == pytest.approx(1)
    assert near[0, 2] == pytest.approx(0, abs=1e-9)


def test_names_are_read_off_the_structure() -> None:
    names = {name: structure_name(one.labels, one.edges) for name, one in {
        "star": runs([star(3)], 1)[0], "chain": runs([chain(4)], 1)[0], "rounds": runs([rounds(3, 3)], 1)[0],
        "two levels": graph("t", ["delegate · lead", "delegate · sublead", "act · worker", "act · worker", "aggregate · sublead",
                                  "aggregate · lead · vote"],
                            [(0, 1, "delegation"), (1, 2, "delegation"), (1, 3, "delegation"), (2, 4, "return"),
                             (3, 4, "return"), (4, 5, "aggregation")]),
        "talk": graph("t", ["communicate · peer"] * 4, [(0, 1, "message"), (1, 2, "message"), (2, 3, "message")]),
        "folded": graph("t", ["delegate · lead · parallel", "act · worker · xmany"], [(0, 1, "delegation")]),
        "other labels": graph("t", "ab", [(0, 1, "x")]),
    }.items()}  # fmt: skip
    assert names == {
        "star": "parallel delegation → parallel work in rounds → aggregation → stop",
        "chain": "sequential delegation → sequential work → stop",
        "rounds": "parallel delegation in rounds → parallel work in rounds → aggregation in rounds → stop",
        "two levels": "sequential delegation through sub-leads → parallel work → hierarchical aggregation (vote)",
        "talk": "exchange of messages",
        "folded": "one delegation → parallel work",
        "other labels": "2 steps",
    }


def test_families_of_one_name_are_told_apart_by_their_length() -> None:
    names = [family.name for family in trace_families(runs([star(2), star(6)], 30)).families]
    assert sorted(names) == [f"parallel delegation → parallel work in rounds → aggregation → stop ({n} steps)" for n in (21, 9)]


def test_patterns_that_occur_together_are_one_family() -> None:
    rng = np.random.default_rng(0)
    origin = rng.random((4, 300)) < 0.3
    held = np.concatenate([origin & (rng.random((4, 300)) < 0.9) for _ in range(6)])
    patterns = tuple(Pattern(f"q{n:02}", ("act", "act"), ((0, 1, "own"),), int(row.sum()), row.mean(), False, False, False)
                     for n, row in enumerate(held))  # fmt: skip
    mined = Mined(tuple(str(n) for n in range(300)), patterns, sparse.csr_array(held), (), 2, False, ())
    found = pattern_families(mined)
    assert members(found) == {frozenset(f"q{n:02}" for n in range(k, 24, 4)) for k in range(4)}
    order = rng.permutation(24)
    mixed = Mined(mined.trace_ids, tuple(patterns[n] for n in order), sparse.csr_array(held[order]), (), 2, False, ())
    assert pattern_families(mixed) == found
    assert pattern_families(Mined((), (), sparse.csr_array((0, 0), dtype=bool), (), 2, False, ())).families == ()


def test_membership_says_which_runs_a_family_holds() -> None:
    found = trace_families(runs([star(3), chain(4)], 20))
    ids = ["p1:003", "p0:001", "elsewhere"]
    held = {
        family.members[0][:2]: row for family, row in zip(found.families, found.membership(ids).toarray().tolist(), strict=True)
    }
    assert held == {"p0": [False, True, False], "p1": [True, False, False]}


def team(n: int, seed: int) -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame, np.random.Generator]:
    rng = np.random.default_rng(seed)
    features = pd.DataFrame({"domain": rng.choice(["code", "web"], n), "n_agents": rng.integers(1, 9, n), "noise": rng.random(n)})
    table = pd.DataFrame({"task": rng.integers(0, n // 2, n).astype(str)}, index=[f"t{k}" for k in range(n)])
    return rng.random(n) < 0.5, table, features, rng


def test_the_condition_under_which_a_family_pays_is_found() -> None:
    has, table, features, rng = team(800, 0)
    pays = ((features["domain"] == "code") & (features["n_agents"] > 4)).to_numpy()
    chance = np.where(has & pays, 0.85, 0.35) + 0.1 * (features["domain"] == "web").to_numpy()
    found = conditions(has, table.assign(passed=(rng.random(800) < chance) * 1.0), features)
    best = found.leaves[0]
    assert set(best.rule.split(" and ")) == {"domain = code", "n_agents > 4.5"} or set(best.rule.split(" and ")) == {
        "domain is not web",
        "n_agents > 4.5",
    }
    assert (best.n_with, best.n_without) == ((has & pays).sum(), (~has & pays).sum())
    assert best.low is not None
    assert best.low > 0.2 < best.lift
    assert sum(leaf.n_with + leaf.n_without for leaf in found.leaves) == 800
    assert all(leaf.low is None or leaf.low < 0.1 for leaf in found.leaves[1:])
    assert found.note.startswith("on tasks left out, the rules explain more")


def test_easy_tasks_are_no_condition() -> None:
    has, table, features, rng = team(800, 1)
    passed = rng.random(800) < np.where(features["domain"] == "code", 0.9, 0.2)
    found = conditions(has, table.assign(passed=passed * 1.0), features)
    assert [leaf.rule for leaf in found.leaves] == [""]
    assert found.note.startswith("no rule: on tasks left out")


def test_where_a_family_is_common_is_no_condition() -> None:
    # Easy tasks nearly all use the family, hard ones nearly never, and it makes no difference in either.
    _, table, features, rng = team(800, 2)
    easy = (features["domain"] == "code").to_numpy()
    has = rng.random(800) < np.where(easy, 0.9, 0.1)
    found = conditions(has, table.assign(passed=(rng.random(800) < np.where(easy, 0.95, 0.1)) * 1.0), features)
    assert found.leaves[0].lift > 0.5  # over all runs
    assert found.note.startswith("no rule")


def test_rules_in_noise_are_refused() -> None:
    refused = 0
    for seed in range(20):
        has, table, features, rng = team(200, 100 + seed)
        refused += conditions(has, table.assign(passed=(rng.random(200) < 0.5) * 1.0), features).note.startswith("no rule")
    assert refused >= 19


def test_where_nothing_can_be_learned_a_sentence_says_why() -> None:
    has, table, features, _ = team(100, 0)
    few = conditions(np.arange(100) < 5, table.assign(passed=1.0), features)
    assert few.note == "too few runs: 5 with the family, 95 without it have a value of passed; 20 of each are needed for a rule"
    assert conditions(has, table.assign(passed=1.0), features).note.startswith("all runs did alike in passed")
    none = conditions(has, table.assign(passed=[1.0, 0.0] * 50), features[[]])
    assert (none.note, len(none.leaves)) == ("no rule: no feature differs between runs", 1)


def test_an_unknown_feature_stays_unknown_in_the_rule() -> None:
    has, table, features, rng = team(800, 3)
    size = features["n_agents"].astype(float).where(rng.random(800) < 0.7)
    chance = np.where(has & (size.to_numpy() > 4), 0.9, 0.3)
    found = conditions(has, table.assign(passed=(rng.random(800) < chance) * 1.0), pd.DataFrame({"n_agents": size}))
    assert any("or unknown" in leaf.rule for leaf in found.leaves)


def test_a_lift_that_turns_round_in_one_domain_is_called_contrary() -> None:
    rng = np.random.default_rng(0)
    has = rng.random(900) < 0.5
    domain = np.repeat(["code", "web", "maths"], 300)
    chance = 0.4 + has * np.select([domain == "code", domain == "web"], [0.4, -0.3], 0.0)
    table = pd.DataFrame({"passed": (rng.random(900) < chance) * 1.0, "task": np.arange(900).astype(str)})
    found = across_domains(["f"], sparse.csr_array(has[None, :]), table=table, domains=[*domain[:-1], None])
    assert dict(zip(found["domain"], found["holds"], strict=True)) == {"code": "yes", "maths": "not shown", "web": "contrary"}
    assert found["n_with"].sum() + found["n_without"].sum() == 899
    assert len(across_domains(["f"], sparse.csr_array(has[None, :]), table=table, domains=[None] * 900)) == 0
