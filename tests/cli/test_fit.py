"""`counterpoint fit`: decisions of stored runs become a policy that a team file takes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from analysis.counterfactual.agents.decisions import Row, rows_of
from analysis.counterfactual.agents.fitting import event_of, lessons
from analysis.counterfactual.agents.trainable import load
from analysis.counterfactual.sandbox import layers
from analysis.errors import TraceError
from analysis.model import Agent, Outcome, Source, Trace, decode
from analysis.workspace import SCHEMAS, Snapshot, Workspace
from tests.cli.conftest import Run
from tests.pipeline.corpus import write_traces

LEAD = "about = 'Splits as it likes.'\nsplit = 'asked'\n[components.coder]\ncompetence = 1\n"
WILD = "[components.planner]\nsplits = { 'same part' = 0.5 }\n"


def run_with(choice: str, *, passed: bool | None, name: str = "a", world: str = "simulated") -> Trace:
    options = {"stop": {"stop/stop/always": 1.0}, "go on": {}}
    row = Row(component="planner", purpose="stop", options=options, choice=choice, key=("t", 1, "planner", "stop:1", "stop"))
    run = {"decisions": msgspec.to_builtins([row, msgspec.structs.replace(row, component="other")])}
    return msgspec.convert(
        {"format": "counterpoint/1", "trace_id": name, "world": world, "source": Source(format="counterpoint"),
         "outcome": Outcome(passed=passed), "extra": {"run": run}}, Trace,
    )  # fmt: skip


def test_a_decision_counts_in_runs_that_passed_and_by_its_own_credit_where_that_is_known() -> None:
    runs = [
        run_with("stop", passed=True, name="a"),
        run_with("go on", passed=False, name="b"),
        run_with("stop", passed=None, name="c"),
    ]
    found = lessons(runs, component="planner")
    assert [(one.row.choice, one.weight, one.is_credited) for one in found] == [
        ("stop", 1.0, False), ("go on", 0.0, False), ("stop", 0.0, False),
    ]  # fmt: skip
    credits = {("a", "stop:1"): -0.25, ("b", "stop:1"): 0.5, ("c", "stop"): 1.0}
    assert [one[1:] for one in lessons(runs, component="planner", credits=credits)] == [(0.0, True), (0.5, True), (0.0, False)]
    assert lessons(runs, component="planner", purposes=["verify"]) == []


def test_worlds_are_not_mixed() -> None:
    runs = [run_with("stop", passed=True, name="a"), run_with("stop", passed=True, name="b", world="live")]
    with pytest.raises(
        TraceError, match=r"of several worlds \(got 1 decisions live, 1 decisions simulated\) - choose one by the f"
    ):
        lessons(runs, component="planner")
    assert len(lessons(runs[1:], component="planner")) == 1


@pytest.mark.parametrize(
    ("step", "event"), [("assign:p1", "give:p1"), ("plan:strategy", "merge"), ("stop:2", "stop:2"), ("plan", "plan")]
)
def test_a_decision_is_seen_in_the_event_that_carries_it_out(step: str, event: str) -> None:
    assert event_of(Row(component="c", purpose="stop", options={}, choice="x", key=("t", 1, "c", step, "stop"))) == event


def test_a_planner_learns_from_runs_that_passed_and_its_policy_plays_in_a_team(run: Run, tmp_path: Path) -> None:
    if not layers().is_enough:
        pytest.skip("programs are not run here: the sandbox refuses")
    (tmp_path / "wild.toml").write_text(LEAD + WILD)
    chosen = ("run", "--workers", "1", "--no-baseline", "--json")
    made = run(*chosen, "--tasks", "chain-3:2", "--team", "wild.toml", "--trials", "6", "--record-decisions")
    (wild,) = made.json["teams"]
    assert 0 < wild["passed"] < wild["n"] == 12
    said = run("fit", "--component", "planner", "--out", "policy.json", "--json")
    assert said.code == 0
    (purpose,) = [row for row in said.json["purposes"] if row["purpose"] == "plan"]
    assert (purpose["decisions"], purpose["weight"], purpose["credited"]) == (12, float(wild["passed"]), 0)
    assert purpose["log p before"] < purpose["log p after"] < 0
    weights = load(tmp_path / "policy.json").weights
    assert weights["plan/by part/always"] > 0 > weights["plan/same part/always"]
    (tmp_path / "tame.toml").write_text(f"{LEAD}{WILD}[trained]\nplanner = 'policy.json'\n")
    (tame,) = run(*chosen, "--tasks", "chain-3:2", "--team", "tame.toml", "--trials", "6", "--out", "tame.jsonl").json["teams"]
    assert tame["passed"] > wild["passed"]
    credit(tmp_path / "store", (tmp_path / "counterpoint-runs.jsonl").read_bytes())
    said = run("fit", "--component", "planner", "--purpose", "plan", "--out", "other.json")
    assert said.code == 0
    assert said.out.splitlines()[1].split()[:3] == ["plan", "12", "1"]
    assert "in a team file: [trained] planner = 'other.json'" in said.err


def credit(store: Path, runs: bytes) -> None:
    """Store that the plan of the first run was worth half a pass; of the second too, in a study whose controls failed."""
    first, second = map(decode, runs.splitlines()[:2])
    assert event_of(next(row for row in rows_of(first) if row.purpose == "plan")) == "plan"
    same = {"event_id": "plan", "metric": "passed", "credit": 0.5, "confirmed": True}
    studies = {"s": first.trace_id, "unsound": second.trace_id}
    rows = [
        {**same, "study": s, "trace_id": i, "seed_block": block} for s, i in studies.items() for block in ("screen", "confirm")
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMAS["effects"])
    study = pa.Table.from_pylist([{"study": s, "is_sound": s == "s"} for s in studies], schema=SCHEMAS["effect_runs"])
    workspace = Workspace(store)
    files = {name: [workspace.write(name, rows)] for name, rows in (("effects", table), ("effect_runs", study))}
    workspace.commit(Snapshot(workspace).head, files)


def test_an_unknown_component_is_answered_with_those_that_the_runs_have(run: Run, tmp_path: Path) -> None:
    trace = run_with("stop", passed=True, name="counterpoint:a")
    trace = msgspec.structs.replace(trace, agents=(Agent(agent_id="coder-1", component="coder"),))
    assert run("import", write_traces(tmp_path / "t.jsonl", [trace])).code == 0
    ran = run("fit", "--component", "planer", "--out", "policy.json")
    assert (ran.code, ran.out, ran.err) == (
        2, "", "--component: no run has this component (got planer, expected coder, other, planner)\n"
    )  # fmt: skip
    silent = run("fit", "--component", "coder", "--out", "policy.json")  # it is there, and decided nothing
    assert (silent.code, "0 decisions of coder in 1 traces, and none of them counts" in silent.err) == (1, True)
    assert not (tmp_path / "policy.json").exists()


def test_without_decisions_it_says_how_to_have_them(run: Run, tmp_path: Path) -> None:
    Workspace(tmp_path / "store", create=True)
    ran = run("fit", "--component", "planner", "--out", "policy.json")
    assert (ran.code, ran.out) == (1, "")
    assert "0 decisions of planner in 0 traces, and none of them counts - it takes runs that passed" in ran.err
    assert not (tmp_path / "policy.json").exists()
    wrong = run("fit", "--component", "planner", "--out", "policy.json", "--purpose", "sing")
    assert (wrong.code, "--purpose: no such decision (got sing, expected plan, assign" in wrong.err) == (2, True)
