"""`counterpoint replay` and `counterpoint effects`: what a changed decision did, how that is known, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.counterfactual.judging import Judge
from analysis.counterfactual.runs import Job, recipes, run_job
from analysis.counterfactual.sandbox import layers, open_sandbox
from analysis.counterfactual.teams import ready_teams
from analysis.model import Event, Source, Trace, encode
from analysis.pipeline.effects import store_effects
from analysis.workspace import Snapshot, Workspace
from tests.cli.conftest import Run

RECORDED = Trace(
    trace_id="counterpoint:recorded", world="recorded", source=Source(format="counterpoint"), clock="relative",
    events=(
        Event(event_id="plan", kind="delegate", agent_id="a", t_start_s=0.0, t_end_s=1.0),
        Event(event_id="work", kind="act", agent_id="b", parents=("plan",), order=1, t_start_s=3.0, t_end_s=13.0),
    ),
)  # fmt: skip


@pytest.fixture
def filled(run: Run, tmp_path: Path) -> Run:
    """The same with two simulated runs and a recorded one in the workspace."""
    if not layers().is_enough:
        pytest.skip("programs are not run here: the sandbox refuses")
    recipe, teams = recipes("chain-3", 1, seed=7)[0], ready_teams()
    with open_sandbox() as sandbox:
        made = [run_job(Job(recipe, teams[name], 1, 7), Judge(sandbox)) for name in ("parallel", "stops-too-early")]
    (tmp_path / "runs.jsonl").write_bytes(b"".join([encode(trace) + b"\n" for trace in (*made, RECORDED)]))
    assert run("import", tmp_path / "runs.jsonl").code == 0
    return run


def test_one_decision_changed_says_what_it_did_and_how_that_is_known(filled: Run) -> None:
    change = ("--event", "merge", "--operator", "advance", "--parameter", "without=write:p3")
    ran = filled("replay", "parallel-s7-1", *change, "--pairs", "4", "--json")
    assert ran.code == 0
    found = ran.json
    assert found["evidence"] == "interventional"
    assert found["known"].startswith("executed again, both runs from the same prefix")
    assert {"merge", "stop"} <= set(found["changed"])
    rows = {row["metric"]: row for row in found["effects"]}
    assert next(iter(rows)) == "passed"
    assert all(row["credit"] == -row["delta_q"] for row in rows.values() if row["n"])
    again = filled("replay", "parallel-s7-1", "--event", "merge", "--operator", "advance", "--parameter", "without=write:p3",
                "--json", "--pairs", "4")  # fmt: skip
    assert again.out == ran.out


def test_an_event_of_a_step_names_the_step(filled: Run) -> None:
    ran = filled(
        "replay", "parallel-s7-1", "--event", "write:p1.report", "--operator", "delay", "--parameter", "x=2", "--pairs", "2"
    )
    assert ran.code == 0
    assert "write:p1 " in ran.out
    assert "events differ: write:p1, write:p1.report" in ran.err


def test_a_recorded_run_is_replayed_on_its_schedule(filled: Run) -> None:
    ran = filled("replay", "recorded", "--event", "work", "--operator", "advance", "--json")
    found = ran.json
    assert found["evidence"] == "simulated"
    assert found["known"] == "exact, of what is recorded; nothing was executed (evidence: simulated)"
    rows = {row["metric"]: row for row in found["effects"]}
    assert (rows["makespan_s"]["delta_q"], rows["makespan_s"]["credit"]) == (-2.0, 2.0)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ("recorded", "--event", "work", "--operator", "assign"),
            "assign cannot be replayed: nobody recorded what",
        ),
        (("parallel-s7-1", "--event", "stop", "--operator", "assign"), "assign: the step assigns nothing (got stop)"),
        (("parallel-s7-1", "--event", "here", "--operator", "delay"), "delay: the plan has no such step"),
        (("parallel-s7-1", "--event", "stop", "--operator", "pray"), "no such operator on a plan (got pray, expected delay"),
        (("parallel-s7-1", "--event", "stop", "--operator", "delay", "--parameter", "x"), "is not of the form name=value"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_the_reason(filled: Run, arguments: tuple[str, ...], why: str) -> None:
    ran = filled("replay", *arguments)
    assert ran.code == 2
    assert why in " ".join(ran.err.replace("│", " ").split())


def test_a_study_is_stored_with_its_controls_and_goes_on_where_it_stopped(filled: Run, tmp_path: Path) -> None:
    options = ("--operators", "advance", "--operators", "stop", "--pairs", "2", "--confirm", "3", "--chosen", "2", "--json",
               "--workers", "1")  # fmt: skip
    part = filled("effects", *options, "--budget", "60000")
    assert part.code == 0
    assert part.json["left"] > 0
    assert any(note.startswith("a race allotted the pairs") for note in part.json["notes"])
    ran = filled("effects", *options)
    assert ran.json["there"] == part.json["made"] > 0
    assert ran.json["left"] == 0
    assert ran.json["is_sound"] is True
    assert [control["name"] for control in ran.json["controls"]] == [
        "identity", "unused-branch", "planted-loss", "planted-gain", "permuted-labels",
    ]  # fmt: skip
    assert ran.json["notes"] == ["1 of 3 traces cannot be executed again; their schedules and candidates were"]
    snapshot = Snapshot(Workspace(tmp_path / "store"))
    rows = snapshot.sql("select * from effects").to_pylist()
    assert {row["study"] for row in rows} == {"effects"}
    assert {(row["evidence"], row["seed_block"]) for row in rows} == {
        ("interventional", "screen"), ("interventional", "confirm"), ("simulated", "recorded"),
    }  # fmt: skip
    assert all(row["credit"] == -row["delta_q"] for row in rows if row["delta_q"] is not None)
    runs = snapshot.sql("select * from effect_runs").to_pylist()
    assert [(r["study"], r["is_sound"], r["n_traces"], r["n_left"]) for r in runs] == [("effects", True, 2, 0)]
    assert [control["ok"] for control in json.loads(runs[0]["controls"])] == [True] * 5
    told = [*ran.json["cells"], *ran.json["confirmed"]]
    assert all("q_value" in row and not {"q", "p_adjusted"} & row.keys() for row in told)
    stored = {(row["event_id"], row["operator"], row["metric"]): row["q_value"] for row in rows if row["seed_block"] == "confirm"}
    assert [row["q_value"] for row in ran.json["confirmed"]] == [
        stored[row["event_id"], row["operator"], row["metric"]] for row in ran.json["confirmed"]
    ]  # fmt: skip
    assert filled("effects", *options[:-3], "--workers", "1").out.splitlines()[0].split()[-1] == "q_value"
    again = filled("effects", *options)
    assert (again.json["made"], again.json["tokens"], again.json["cells"]) == (0, 0, ran.json["cells"])
    assert Snapshot(Workspace(tmp_path / "store")).sql("select * from effects").to_pylist() == rows


def test_a_study_that_was_stopped_takes_no_larger_ones_place(filled: Run, tmp_path: Path) -> None:
    options = (
        "--operators",
        "advance",
        "--operators",
        "stop",
        "--pairs",
        "2",
        "--confirm",
        "3",
        "--chosen",
        "2",
        "--workers",
        "1",
    )
    assert filled("effects", *options).code == 0
    runs = "select * from effect_runs"
    before = Snapshot(Workspace(tmp_path / "store")).sql(runs).to_pylist()
    stump = filled("effects", *options, "--budget", "30000", "--out", "other.jsonl")
    assert f"the study effects stays as it was, of {before[0]['n_pairs']} pairs: this one was stopped at" in stump.err
    assert Snapshot(Workspace(tmp_path / "store")).sql(runs).to_pylist() == before
    named = filled("effects", *options, "--budget", "30000", "--out", "other.jsonl", "--name", "stump")
    assert named.code == 0
    assert {row["study"] for row in Snapshot(Workspace(tmp_path / "store")).sql(runs).to_pylist()} == {"effects", "stump"}


def test_a_study_replaces_only_the_one_of_its_name(tmp_path: Path) -> None:
    store = Workspace(tmp_path / "store", create=True)
    for name, n in (("a", 1), ("b", 2), ("a", 3)):
        store_effects(store, name, [{"operator": "delay", "n": n}], {"seed": n})
    snapshot = Snapshot(store)
    for table, column in (("effects", "n"), ("effect_runs", "seed")):
        assert snapshot.sql(f"select study, {column} as x from {table} order by study").to_pylist() == [
            {"study": "a", "x": 3}, {"study": "b", "x": 2},
        ]  # fmt: skip


def test_nothing_to_replay_is_said(filled: Run) -> None:
    ran = filled("effects", "--filter", "passed:yes passed:no", "--workers", "1")
    assert ran.code == 1
    assert "no trace fits the filter" in ran.err
