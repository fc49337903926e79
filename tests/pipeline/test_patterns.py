"""The stage `patterns`: the same answer each time, once; rows that say what `mine`, `lifts` and `trace_families` say."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from analysis.errors import CounterpointError
from analysis.model import Outcome, Task, Trace
from analysis.orchestration.patterns.canonical import pattern_id
from analysis.orchestration.patterns.graphs import LABELLINGS, PatternGraph, pattern_graph
from analysis.orchestration.patterns.library import Entry, export_library, import_library
from analysis.orchestration.patterns.matching import embedding
from analysis.orchestration.patterns.value import lifts
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.patterns import TABLES, Mining, library_of, matches_of, occurrence, run_table
from analysis.workspace import Snapshot, Workspace, listing
from tests.orchestration.runs import event, run
from tests.pipeline.corpus import contents, write_traces

STAGES = ("quality", "residuals", "patterns")


def fan(n: int, n_workers: int, passed: bool | None) -> Trace:
    """A lead that spawns workers, who work side by side, and merges what they found."""
    names = [f"w{k}" for k in range(n_workers)]
    events = [event("s", "lead", kind="spawn", targets=tuple(names))]
    events += [event(f"a-{name}", name, after=["s"]) for name in names]
    events += [event("m", "lead", kind="aggregate", after=[f"a-{name}" for name in names])]
    events += [event("z", "lead", kind="stop", after=["m"])]
    return run(*events, trace_id=f"test:fan-{n:02}", task=Task(task_id=f"t{n % 8}"), outcome=Outcome(passed=passed))


def chain(n: int, n_steps: int, passed: bool | None) -> Trace:
    """A lead that tells one worker after the other what to do."""
    events = []
    for k in range(n_steps):
        before = [f"r{k - 1}"] if k else []
        events += [event(f"d{k}", "lead", kind="delegate", targets=(f"w{k}",), after=before)]
        events += [event(f"r{k}", f"w{k}", action="return", after=[f"d{k}"])]
    events += [event("z", "lead", kind="stop", after=[f"r{n_steps - 1}"])]
    return run(*events, trace_id=f"test:chain-{n:02}", task=Task(task_id=f"t{n % 8}"), outcome=Outcome(passed=passed))


def teams(passed: Sequence[bool | None] = (True, False)) -> list[Trace]:
    """16 fans, of which most passed, and 16 chains, of which most did not, of 2 to 4 workers."""
    fans = [fan(n, 2 + n % 3, passed[n % 8 == 0]) for n in range(16)]
    return fans + [chain(n, 2 + n % 3, passed[n % 8 != 0]) for n in range(16)]


def mined(folder: Path, traces: Sequence[Trace], mining: Mining | None = None) -> Workspace:
    folder.mkdir(exist_ok=True)
    workspace = Workspace(folder / "store", create=True)
    if traces:
        import_paths(workspace, [write_traces(folder / "in.jsonl", traces)])
    analyse(workspace, only=STAGES, mining=mining)
    return workspace


@pytest.fixture(scope="module")
def two_ways(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return mined(tmp_path_factory.mktemp("two-ways"), teams())


def rows(workspace: Workspace, query: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = Snapshot(workspace).sql(query).to_pylist()
    return found


def only(workspace: Workspace, query: str) -> dict[str, object]:
    (row,) = rows(workspace, query)
    return row


def test_no_family_holds_runs_of_two_plans(two_ways: Workspace) -> None:
    found = rows(two_ways, "select family_id, trace_id from family_members")
    plans = {str(row["family_id"]): {str(other["trace_id"])[:8] for other in found if other["family_id"] == row["family_id"]}
             for row in found}  # fmt: skip
    assert all(len(plan) == 1 for plan in plans.values())


def test_a_pattern_of_one_plan_has_the_lift_between_the_plans(two_ways: Workspace) -> None:
    (merge, *_) = rows(two_ways, "select * from patterns where nodes like '%aggregate%' order by support desc, n_edges")
    assert merge["support"] == 16
    lift = only(two_ways, f"select * from lifts where metric = 'passed' and item = '{merge['pattern_id']}'")
    assert (lift["n_with"], lift["n_without"], lift["with_mean"], lift["without_mean"]) == (16, 16, 14 / 16, 2 / 16)
    assert (lift["lift"], lift["matched"], lift["n_pairs"], lift["matched_by"]) == (0.75, 0.75, 8, "task and condition")


def test_the_order_of_the_traces_changes_nothing(two_ways: Workspace, tmp_path: Path) -> None:
    traces = teams()
    random.Random(1).shuffle(traces)
    assert contents(mined(tmp_path, traces), TABLES) == contents(two_ways, TABLES)


def test_a_second_run_does_nothing(two_ways: Workspace) -> None:
    before = two_ways.head()
    assert [tuple(report) for report in analyse(two_ways, only=["patterns"])] == [("patterns", 0, 32)]
    assert two_ways.head() == before


def test_other_options_are_worked_out_anew_and_remembered(tmp_path: Path) -> None:
    workspace = mined(tmp_path, teams())
    options = Mining(labelling=LABELLINGS["kinds"], min_support=0.5, max_edges=2)
    assert [report.n_done for report in analyse(workspace, only=["patterns"], mining=options)] == [32]
    assert [report.n_done for report in analyse(workspace, only=["patterns"])] == [0]
    kept = only(workspace, "select min_support, max_edges, labelling from pattern_runs")
    assert (kept["min_support"], kept["max_edges"], json.loads(str(kept["labelling"]))["name"]) == (0.5, 2, "kinds")
    found = only(workspace, "select max(n_edges) as n_edges, min(support) as support from patterns")
    assert found["n_edges"] == 2
    assert int(str(found["support"])) >= 16
    import_paths(workspace, [write_traces(tmp_path / "more.jsonl", [fan(90, 2, True)])])
    assert [report.n_done for report in analyse(workspace, only=STAGES)] == [1, 1, 33]
    assert only(workspace, "select max_edges, n_graphs from pattern_runs") == {"max_edges": 2, "n_graphs": 33}


def test_stored_lifts_are_those_of_value(two_ways: Workspace) -> None:
    snapshot = Snapshot(two_ways)
    table = run_table(snapshot)
    for kind, held in (("pattern", "select pattern_id as item, trace_id from occurrences"),
                       ("family", "select family_id as item, trace_id from family_members")):  # fmt: skip
        pairs = snapshot.sql(held).to_pandas()
        items, at = np.unique(pairs["item"], return_inverse=True)
        columns = table.index.get_indexer(pairs["trace_id"])
        matrix = sparse.csr_array((np.ones(len(pairs), bool), (at, columns)), shape=(len(items), len(table)))
        expected = lifts(items.tolist(), matrix, table=table).sort_values(["item", "metric"]).reset_index(drop=True)
        query = f"select * from lifts where kind = '{kind}' and domain is null order by item, metric"
        stored = snapshot.sql(query).to_pandas()[list(expected)]
        pd.testing.assert_frame_equal(stored, expected, check_dtype=False)


def test_no_stored_number_is_infinite(two_ways: Workspace) -> None:
    table = Snapshot(two_ways).sql("select * from lifts").to_pandas().select_dtypes("float")
    assert not np.isinf(table.to_numpy()).any()


def test_families_divide_the_traces_and_exemplars_are_members(two_ways: Workspace) -> None:
    members = rows(two_ways, "select trace_id, family_id from family_members")
    assert sorted(str(row["trace_id"]) for row in members) == sorted(trace.trace_id for trace in teams())
    counts = Counter(row["family_id"] for row in members)
    for family in rows(two_ways, "select * from families"):
        assert counts[family["family_id"]] == family["n_members"]
        own = {row["trace_id"] for row in members if row["family_id"] == family["family_id"]}
        assert {family["medoid"], *json.loads(str(family["exemplars"]))} <= own
    assert Snapshot(two_ways).sql("select * from families").num_rows == len(counts)


def test_the_filters_pattern_and_family_find_the_traces_that_rows_count(two_ways: Workspace) -> None:
    snapshot = Snapshot(two_ways)
    for row in rows(two_ways, "select pattern_id, support from patterns"):
        assert listing.count(snapshot, f"pattern:{row['pattern_id']}") == row["support"]
    for row in rows(two_ways, "select family_id, n_members from families"):
        assert listing.count(snapshot, f"family:{row['family_id']}") == row["n_members"]


@pytest.mark.parametrize("options", [Mining(), Mining(ordered=True), Mining(labelling=LABELLINGS["shapes"])],
                         ids=["plain", "ordered", "folded"])  # fmt: skip
def test_an_occurrence_is_made_of_events_that_carry_the_pattern(options: Mining, tmp_path: Path) -> None:
    workspace = mined(tmp_path, teams(), options)
    snapshot = Snapshot(workspace)
    graphs = {trace.trace_id: pattern_graph(trace, options.labelling) for trace in teams()}
    named = {str(row["pattern_id"]): entry(row) for row in rows(workspace, "select * from patterns")}
    pairs = rows(workspace, "select trace_id, pattern_id from occurrences order by all")
    assert len(pairs) > 60
    for pair in pairs:
        graph, one = graphs[str(pair["trace_id"])], named[str(pair["pattern_id"])]
        placed = embedding(one, graph)
        assert placed is not None
        assert len(set(placed)) == len(placed)
        assert tuple(graph.labels[node] for node in placed) == one.nodes
        times = [graph.edges.index((placed[source], placed[target], label)) for source, target, label in one.edges]
        assert not options.ordered or times == sorted(times)
    for pair in pairs[:: len(pairs) // 40]:
        graph, one = graphs[str(pair["trace_id"])], named[str(pair["pattern_id"])]
        placed = embedding(one, graph) or ()
        events = occurrence(snapshot, str(pair["trace_id"]), str(pair["pattern_id"]))
        assert sorted(events) == sorted({event_id for node in placed for event_id in graph.event_ids[node]})
        trace = next(trace for trace in teams() if trace.trace_id == pair["trace_id"])
        assert set(events) <= {event.event_id for event in trace.events}


def entry(row: dict[str, object]) -> Entry:
    edges = tuple((a, b, label) for a, b, label in json.loads(str(row["edges"])))
    return Entry(str(row["pattern_id"]), "", tuple(json.loads(str(row["nodes"]))), edges, 1, 1.0)


def test_where_a_pattern_does_not_occur_no_event_is_named(two_ways: Workspace) -> None:
    snapshot = Snapshot(two_ways)
    (merge, *_) = [str(row["pattern_id"]) for row in rows(two_ways, "select * from patterns where nodes like '%aggregate%'")]
    assert occurrence(snapshot, "test:fan-00", merge)
    assert occurrence(snapshot, "test:chain-00", merge) == ()
    assert occurrence(snapshot, "test:fan-00", "no-such-pattern") == ()


def test_a_pattern_in_order_of_time_is_placed_in_that_order_or_not_at_all() -> None:
    graph = PatternGraph("t", ("lead", "b", "a"), ((0, 1, "x"), (0, 2, "x")), ((), (), ()))
    first_b = Entry("o1", "", ("lead", "b", "a"), ((0, 1, "x"), (0, 2, "x")), 1, 1.0)
    first_a = Entry("o2", "", ("lead", "a", "b"), ((0, 1, "x"), (0, 2, "x")), 1, 1.0)
    assert embedding(first_b, graph) == (0, 1, 2)
    assert embedding(first_a, graph) is None
    assert embedding(msgspec.structs.replace(first_a, pattern_id="p"), graph) == (0, 2, 1)


def test_an_occurrence_at_a_hub_of_thousands_of_equal_branches_is_found_at_once() -> None:
    n = 5_000
    labels, edges = ("lead", *["act"] * n), tuple((0, k + 1, "x") for k in range(n))
    star = Entry(pattern_id(("lead", *["act"] * 6), edges[:6]), "", ("lead", *["act"] * 6), edges[:6], 1, 1.0)
    begin = time.perf_counter()
    assert embedding(star, PatternGraph("hub", labels, edges, tuple(() for _ in labels))) == (0, 1, 2, 3, 4, 5, 6)
    assert time.perf_counter() - begin < 2


def test_a_library_is_found_in_its_own_workspace_as_often_as_it_was_mined(two_ways: Workspace) -> None:
    snapshot = Snapshot(two_ways)
    library = import_library(export_library(library_of(snapshot)))
    assert library == library_of(snapshot)
    found = matches_of(snapshot, library)
    support = {row["pattern_id"]: row["support"] for row in rows(two_ways, "select pattern_id, support from patterns")}
    assert {row["id"]: row["n_traces"] for row in found if row["kind"] == "pattern"} == support
    forms = {row["id"]: row["n_traces"] for row in found if row["kind"] == "family"}
    assert forms.keys() == {row["family_id"] for row in rows(two_ways, "select family_id from families")}
    assert all(0 < n <= 16 for n in forms.values())
    assert all(row["n_undecided"] == 0 and row["share"] == row["n_traces"] / 32 for row in found)


def test_patterns_in_order_of_time_are_not_taken_along(tmp_path: Path) -> None:
    workspace = mined(tmp_path, teams(), Mining(ordered=True))
    with pytest.raises(CounterpointError, match="patterns in order of time cannot be looked for elsewhere - mine without"):
        library_of(Snapshot(workspace))


# --- odd inputs


def test_without_traces_the_answer_is_a_sentence(tmp_path: Path) -> None:
    workspace = mined(tmp_path, [])
    found = only(workspace, "select notes, families_note, n_graphs from pattern_runs")
    assert found == {
        "notes": '["There are no traces, so there are no patterns."]', "families_note": "there are no runs", "n_graphs": 0,
    }  # fmt: skip
    assert [Snapshot(workspace).head.n_rows(name) for name in TABLES] == [0, 0, 0, 0, 0, 1]


def test_of_one_trace_it_is_said_that_nothing_can_recur(tmp_path: Path) -> None:
    workspace = mined(tmp_path, [fan(0, 2, True)])
    found = only(workspace, "select notes, families_note from pattern_runs")
    assert found["notes"] == '["A pattern must occur in 2 traces, and there are only 1."]'
    assert found["families_note"] == "all 1 runs have one form"
    family = only(workspace, "select n_members, n_forms, stability, conditions_note from families")
    assert (family["n_members"], family["n_forms"], family["stability"]) == (1, 1, None)
    assert str(family["conditions_note"]).startswith("too few runs: 1 with the family, 0 without it")
    assert only(workspace, "select reason from lifts where metric = 'passed' and domain is null") == {
        "reason": "only one run has a value; there is nothing to compare it with"
    }


def test_where_all_passed_it_is_said_that_there_is_no_difference(tmp_path: Path) -> None:
    workspace = mined(tmp_path, teams((True, True)))
    found = rows(workspace, "select distinct reason from lifts where metric = 'passed' and domain is null")
    assert found == [{"reason": "all 32 runs have the same value, 1"}]
    assert (
        rows(workspace, "select * from lifts where metric = 'passed' and (p_adjusted is not null or q_value is not null)") == []
    )
    assert not any(row["anti_pattern"] for row in rows(workspace, "select anti_pattern from patterns where n_edges = 1"))


def test_without_outcomes_no_lift_in_passing_is_made_up(tmp_path: Path) -> None:
    workspace = mined(tmp_path, teams((None, None)))
    assert rows(workspace, "select * from lifts where metric in ('passed', 'score')") == []
    notes = rows(workspace, "select distinct conditions, conditions_note from families")
    assert notes == [{"conditions": None, "conditions_note": "no run of the workspace has an outcome"}]
    assert Snapshot(workspace).sql("select * from patterns").num_rows > 0


def test_traces_without_events_are_one_family_and_hold_no_pattern(tmp_path: Path) -> None:
    workspace = mined(tmp_path, [Trace(trace_id=f"test:bare-{n}", world="recorded") for n in range(3)])
    assert only(workspace, "select n_members, n_forms from families") == {"n_members": 3, "n_forms": 1}
    assert only(workspace, "select notes from pattern_runs") == {"notes": '["No two connected events recur in 2 of 3 traces."]'}
