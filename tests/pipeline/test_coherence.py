"""The stages `claims` and `residuals`: what is measured is what traces, texts, outcomes and couplings say, nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from analysis.coherence.couplings import default_couplings, read_couplings
from analysis.model import Agent, Claim, Event, Groups, Outcome, Relation, Trace
from analysis.pipeline import StageReport, analyse, import_claims, import_paths
from analysis.workspace import Snapshot, Workspace, standing
from analysis.workspace.listing import count, suspects_of
from tests.pipeline.corpus import write_traces

STAGES = ["claims", "residuals"]


def claim(n: int, component: str, proposition: str, p: float, **fields: object) -> Claim:
    return Claim(claim_id=f"c{n}", component=component, proposition=proposition, p=p, **fields)  # type: ignore[arg-type]


def pair(trace_id: str, a: float, b: float, *relations: str, **fields: object) -> Trace:
    said = (claim(1, "planner", "plan_ok", a, turn=1), claim(2, "coder", "code_ok", b, turn=2))
    ties = tuple(Relation(relation_id=f"r{n}", formula=text) for n, text in enumerate(relations))
    return Trace(trace_id=f"counterpoint:{trace_id}", world="recorded", claims=said, relations=ties, **fields)  # type: ignore[arg-type]


def built(tmp_path: Path, *traces: Trace) -> Workspace:
    store = Workspace(tmp_path / "w", create=True)
    import_paths(store, [write_traces(tmp_path / "traces.jsonl", traces)])
    return store


def last(store: Workspace) -> dict[tuple[str, str], float | None]:
    rows = Snapshot(store).sql("select trace_id, level, residual from residuals where is_last").to_pylist()
    return {(row["trace_id"].partition(":")[2], row["level"]): row["residual"] for row in rows}


def test_a_trace_is_measured_under_its_own_relations(tmp_path: Path) -> None:
    store = built(tmp_path, pair("tied", 0.9, 0.9, "at_most_one(plan_ok, code_ok)"), pair("free", 0.9, 0.9), Trace(
        trace_id="counterpoint:silent", world="recorded"))  # fmt: skip
    analyse(store, only=STAGES)
    assert last(store) == {("tied", "component"): 0.565685425, ("free", "component"): 0.0}
    rows = standing.residual_rows(Snapshot(store)).to_pylist()
    assert {row["trace_id"].partition(":")[2]: row["n_tied"] for row in rows} == {"tied": 1, "free": 0}
    assert count(Snapshot(store), "residual>0.5") == 1
    assert count(Snapshot(store), "-residual>0.5") == 2


def test_each_turn_has_its_cells_and_they_sum_to_the_square(tmp_path: Path) -> None:
    store = built(tmp_path, pair("tied", 0.9, 0.9, "at_most_one(plan_ok, code_ok)"))
    analyse(store, only=STAGES)
    found = Snapshot(store)
    turns = found.sql("select turn, residual, delta, is_last from residuals order by turn").to_pylist()
    assert [(row["turn"], row["residual"], row["delta"], row["is_last"]) for row in turns] == [
        (1, 0.0, None, False), (2, 0.565685425, 0.32, True)
    ]  # fmt: skip
    cells = found.sql("select turn, component, energy, delta from attribution order by turn, component").to_pylist()
    assert [tuple(row.values()) for row in cells] == [
        (1, "planner", 0.0, None), (2, "coder", 0.16, 0.32), (2, "planner", 0.16, 0.0)
    ]  # fmt: skip
    drops = found.sql("select phase, kind, relation, drop, is_violated from violations").to_pylist()
    assert [tuple(row.values()) for row in drops] == [("late", "at_most_one", "at_most_one(plan_ok, code_ok)", 0.32, True)]


def test_a_coupling_file_is_remembered_until_another_is_given(tmp_path: Path) -> None:
    store = built(tmp_path, pair("run", 0.9, 0.9))
    file = tmp_path / "ties.toml"
    file.write_text('[[coupling]]\nname = "one"\nwhy = "Only one can hold."\nrelations = ["at_most_one(plan_ok, code_ok)"]\n')
    analyse(store, only=STAGES, couplings=[*default_couplings(), *read_couplings(file)])
    assert last(store) == {("run", "component"): 0.565685425}
    assert Snapshot(store).sql("select kind from violations")["kind"].to_pylist() == ["one"]
    assert analyse(store, only=STAGES) == [StageReport("claims", 0, 1), StageReport("residuals", 0, 1)]
    analyse(store, only=STAGES, couplings=[])
    assert last(store) == {("run", "component"): 0.0}


def test_analysis_never_changes_the_data_version_and_claims_of_a_user_do(tmp_path: Path) -> None:
    store = built(tmp_path, pair("run", 0.9, 0.05, "at_most_one(plan_ok, code_ok)"))
    before = store.head().data_version
    analyse(store, only=STAGES)
    assert store.head().data_version == before
    file = tmp_path / "claims.csv"
    file.write_text("trace_id,component,proposition,p,turn\nrun,coder,code_ok,0.9,3\n")
    import_claims(store, file)
    assert store.head().data_version != before
    assert analyse(store, only=STAGES) == [StageReport("claims", 1, 0), StageReport("residuals", 1, 0)]
    assert last(store) == {("run", "component"): 0.565685425}


def test_a_relation_that_cannot_be_read_is_said_where_the_residual_would_stand(tmp_path: Path) -> None:
    store = built(tmp_path, pair("bad", 0.9, 0.9, "plan_ok &"), pair("torn", 0.9, 0.9, "plan_ok", "~plan_ok"), pair("good", 1, 1))
    analyse(store, only=STAGES)
    rows = (
        Snapshot(store)
        .sql("select trace_id, level, residual, summary from residuals where is_last order by trace_id")
        .to_pylist()
    )
    assert [(row["trace_id"], row["level"], row["residual"]) for row in rows] == [
        ("counterpoint:bad", "all", None), ("counterpoint:good", "component", 0.0), ("counterpoint:torn", "all", None)
    ]  # fmt: skip
    assert "plan_ok &" in rows[0]["summary"]
    assert "contradict each other" in rows[2]["summary"]


def test_trials_of_one_task_give_frequencies_to_each_of_them(tmp_path: Path) -> None:
    runs = [
        Trace(
            trace_id=f"counterpoint:{n}", world="recorded", outcome=Outcome(passed=n > 0), groups=Groups(task="t", trial=str(n))
        )
        for n in range(4)
    ]
    store = built(tmp_path, *runs)
    analyse(store, only=STAGES)
    rows = Snapshot(store).sql("select trace_id, proposition, p, n_samples, kind from extracted_claims order by 1").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (f"counterpoint:{n}", "passed_over_trials", 0.75, 4, "frequency") for n in range(4)
    ]  # fmt: skip


def test_words_of_confidence_become_claims_and_what_is_not_linked_waits_for_review(tmp_path: Path) -> None:
    said = ("I am 90% confident in my code.", "There is a 70% chance of rain in Lima.")
    events = tuple(
        Event(event_id=f"e{n}", kind="act", action="message", agent_id="a", order=n, content=text) for n, text in enumerate(said)
    )
    run = Trace(
        trace_id="counterpoint:run", world="recorded", agents=(Agent(agent_id="a", component="coder"),),
        events=events,
    )  # fmt: skip
    store = built(tmp_path, run)
    analyse(store, only=STAGES)
    found = Snapshot(store)
    claims = found.sql("select component, p, kind, text from extracted_claims").to_pylist()
    assert [(row["component"], row["p"], row["kind"]) for row in claims] == [("coder", 0.9, "verbalised")]
    assert [row["p"] for row in standing.unlinked_rows(found).to_pylist()] == [0.7]


def test_a_failed_run_has_suspects_and_a_passed_one_none(tmp_path: Path) -> None:
    events = tuple(
        Event(event_id=f"e{n}", kind="communicate", agent_id=agent, order=n, content=text)
        for n, (agent, text) in enumerate(
            (("lead", "Add 1.5 and 2.5."), ("adder", "Let us assume it is 5."), ("lead", "It is 5."))
        )
    )
    runs = [
        Trace(trace_id=f"counterpoint:{name}", world="recorded", events=events, outcome=Outcome(passed=passed))
        for name, passed in (("failed", False), ("passed", True), ("unknown", None))
    ]
    store = built(tmp_path, *runs)
    analyse(store)
    assert {row["trace_id"] for row in Snapshot(store).sql("select * from suspects").to_pylist()} == {"counterpoint:failed"}
    first = suspects_of(Snapshot(store), "counterpoint:failed")[0]
    assert (first["component"], first["event_id"]) == ("adder", "e1")
    assert first["reasons"][0] == "e1 is where 100% of the final answer's parts first come up."


@pytest.mark.parametrize(
    ("files", "n_rows", "n_clean"),
    [("compositional/real_agent_results.json", 100, 88), pytest.param("compositional", 360, 343, marks=pytest.mark.soak)],
)
def test_published_residuals_are_reproduced(shared_traces: Path, tmp_path: Path, files: str, n_rows: int, n_clean: int) -> None:
    """To 1e-9 wherever no quote is a placeholder; those that hold one are published with it, and differ."""
    store = Workspace(tmp_path / "w", create=True)
    import_paths(store, [shared_traces / files])
    analyse(store, only=STAGES)
    rows = (
        Snapshot(store)
        .sql(
            """with known as (select trace_id, value from labels where name = 'residual')
        select r.trace_id, value, residual, n_placeholders from residuals as r join known using (trace_id)
        where is_last and level in ('final', 'pre-aggregation')"""
        )
        .to_pylist()
    )
    clean = [row for row in rows if not row["n_placeholders"]]
    assert (len(rows), len(clean)) == (n_rows, n_clean)
    assert max(abs(row["value"] - row["residual"]) for row in clean) < 1e-9


@pytest.mark.soak
def test_components_stray_where_their_final_forecast_does_not(shared_traces: Path, tmp_path: Path) -> None:
    store = Workspace(tmp_path / "w", create=True)
    import_paths(store, [shared_traces / "compositional"])
    analyse(store, only=STAGES)
    strayed = Snapshot(store).sql("select level, count(*) as n from residuals where is_last and residual > 0.01 group by level")
    n_strayed = dict(zip(strayed["level"].to_pylist(), strayed["n"].to_pylist(), strict=True))
    assert n_strayed["component"] > 30 * n_strayed["final"] > 0


def test_ledgers_that_call_a_failed_run_satisfied_contradict_its_outcome(shared_traces: Path, tmp_path: Path) -> None:
    store = Workspace(tmp_path / "w", create=True)
    import_paths(store, [shared_traces / "whowhen"])
    analyse(store, only=STAGES)
    rows = (
        Snapshot(store)
        .sql("select violated from residuals where is_last and residual > 0 and contains(violated, 'request_satisfied')")
        .to_pylist()
    )
    assert len(rows) == 11
    assert msgspec.json.decode(rows[0]["violated"])[0]["text"] == (
        "if request_satisfied, then passed (quoted: request_satisfied 1, passed 0)"
    )
