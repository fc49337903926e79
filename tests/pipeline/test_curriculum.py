"""The stage `curriculum`: what is counted as an attempt, which source counts, and thresholds that stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from analysis.curation.curriculum.attempts import TaskFeatures, features_of
from analysis.curation.curriculum.pass_tables import PassRow
from analysis.curation.curriculum.stages import Reference
from analysis.model import Agent, Counterfactual
from analysis.pipeline import StageReport, analyse, import_paths
from analysis.pipeline.curriculum import add_pass_table, forget_pass_tables, set_reference, stored_reference
from analysis.workspace import Snapshot, Workspace
from tests.pipeline.corpus import write_traces
from tests.pipeline.trials import trials

#: Four tasks by two teams; d_req of four attempts: 0.1, 0.3, 0.5, 0.7, 0.9. One worker: d_orch (1/3 + 1/5) / 4.
OUTCOMES = {
    ("t1", "solo"): "1111", ("t2", "solo"): "1110", ("t3", "solo"): "1100", ("t4", "solo"): "0000",
    ("t1", "duo"): "1110", ("t2", "duo"): "1000", ("t3", "duo"): "0000", ("t4", "duo"): "0000",
}  # fmt: skip
WORKERS = {"duo": 1}
D_ORCH = {"solo": 0.0, "duo": 0.133333333}


def workspace_of(folder: Path, *groups: Any) -> Workspace:
    workspace = Workspace(folder / "w", create=True)
    files = [write_traces(folder / f"g{n}.jsonl", group) for n, group in enumerate(groups)]
    import_paths(workspace, files)
    analyse(workspace, only=["quality", "curriculum"])
    return workspace


def difficulty(workspace: Workspace) -> dict[tuple[str, str], dict[str, Any]]:
    rows = Snapshot(workspace).sql("select * from difficulty").to_pylist()
    return {(row["task_id"], row["model"]): row for row in rows}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_of(tmp_path, trials(OUTCOMES, workers=WORKERS))


def test_repeated_runs_give_difficulty_and_stage(workspace: Workspace) -> None:
    rows = difficulty(workspace)
    assert {key: row["d_req"] for key, row in rows.items()} == {
        key: round(1 - (letters.count("1") + 0.5) / 5, 9) for key, letters in OUTCOMES.items()
    }
    assert {key: row["d_orch"] for key, row in rows.items()} == {key: D_ORCH[key[1]] for key in OUTCOMES}
    reference = stored_reference(Snapshot(workspace))
    assert reference is not None
    assert (reference.name, reference.tau_r) == ("medians of 8 tasks and models, simulated attempts", 0.6)
    assert reference.tau_o == pytest.approx(D_ORCH["duo"] / 2)
    assert reference.version == workspace.head().data_version
    stages = {key: row["stage"] for key, row in rows.items()}
    assert stages == {
        ("t1", "solo"): "warmup", ("t2", "solo"): "warmup", ("t3", "solo"): "warmup", ("t4", "solo"): "individual",
        ("t1", "duo"): "orchestration", ("t2", "duo"): "integrated", ("t3", "duo"): "integrated", ("t4", "duo"): "integrated",
    }  # fmt: skip
    row = rows["t3", "duo"]
    assert (row["n"], row["n_passed"], row["source"]) == (4, 0, "simulated attempts")
    assert row["joint"] == pytest.approx((0.9 + D_ORCH["duo"]) / 2)
    assert row["reason"] == "the interval of d_req holds its threshold"


def test_a_second_run_does_nothing_and_the_same_data_give_the_same_rows(workspace: Workspace, tmp_path: Path) -> None:
    assert analyse(workspace, only=["curriculum"]) == [StageReport("curriculum", 0, 32)]
    (tmp_path / "again").mkdir()
    other = workspace_of(tmp_path / "again", trials(OUTCOMES, workers=WORKERS))
    assert difficulty(other) == difficulty(workspace)


def test_thresholds_stay_when_data_come_in_until_they_are_renewed(workspace: Workspace, tmp_path: Path) -> None:
    before = stored_reference(Snapshot(workspace))
    harder = trials({(f"u{n}", "duo"): "0000" for n in range(12)}, workers=WORKERS)
    import_paths(workspace, [write_traces(tmp_path / "more.jsonl", harder)])
    analyse(workspace, only=["quality", "curriculum"])
    assert len(difficulty(workspace)) == 20
    assert stored_reference(Snapshot(workspace)) == before
    set_reference(workspace, None)
    analyse(workspace, only=["curriculum"])
    renewed = stored_reference(Snapshot(workspace))
    assert renewed is not None
    assert (renewed.tau_r, renewed.name) == (0.9, "medians of 20 tasks and models, simulated attempts")
    set_reference(workspace, Reference(name="set by hand", version="", tau_r=0.2, tau_o=0.0, joint="max"))
    analyse(workspace, only=["curriculum"])
    row = difficulty(workspace)["t2", "solo"]
    assert (row["stage"], row["joint"]) == ("individual", 0.3)


def test_the_model_is_what_agents_state_and_worlds_are_never_counted_together(tmp_path: Path) -> None:
    stated = list(trials({("t", "solo"): "11", ("t", "duo"): "0"}, world="recorded", model="gpt"))
    live = list(trials({("t", "solo"): "0000"}, world="live", model="gpt"))
    second = Agent(agent_id="b", component="b", model="abc")
    mixed = [
        msgspec.structs.replace(trace, agents=(*trace.agents, second))
        for trace in trials({("u", "solo"): "1"}, world="live", model="gpt")
    ]
    changed = [
        msgspec.structs.replace(
            trace, trace_id=f"{trace.trace_id}-arm",
            counterfactual=Counterfactual(parent_trace_id=trace.trace_id, event_id="do-lead", operator="stop", arm="changed"),
        )
        for trace in live
    ]  # fmt: skip
    rows = difficulty(workspace_of(tmp_path, stated, live, mixed, changed))
    assert set(rows) == {("t", "gpt"), ("u", "abc + gpt")}
    row = rows["t", "gpt"]
    assert (row["n"], row["n_passed"], row["source"]) == (4, 0, "live attempts")
    assert row["reason"].endswith("3 recorded attempts are left out")


def test_conditions_of_one_model_are_counted_together_and_it_is_said(tmp_path: Path) -> None:
    rows = difficulty(workspace_of(tmp_path, trials({("t", "a"): "10", ("t", "b"): "11"}, model="m")))
    assert (rows["t", "m"]["n"], rows["t", "m"]["n_passed"]) == (4, 3)
    assert "counted over 2 conditions" in rows["t", "m"]["reason"]


def test_what_is_missing_is_missing_with_its_reason(tmp_path: Path) -> None:
    rows = difficulty(workspace_of(tmp_path, trials({("t", "a"): "??", ("u", "a"): "0?", ("v", "a"): "00"}, tests=(3, 4))))
    assert [rows["t", "a"][name] for name in ("n", "d_req", "low", "stage", "joint")] == [0, None, None, None, None]
    assert rows["t", "a"]["reason"] == "no outcome is known of its 2 runs"
    assert rows["u", "a"]["reason"] == "no thresholds: fewer than 8 tasks and models were tried more than once"
    assert (rows["u", "a"]["n"], rows["u", "a"]["d_req"], rows["u", "a"]["d_partial"]) == (1, 0.75, 0.25)
    workspace = Workspace(tmp_path / "w")
    assert stored_reference(Snapshot(workspace)) is None
    (notes,) = Snapshot(workspace).sql("select notes from difficulty_runs")["notes"].to_pylist()
    assert msgspec.json.decode(notes) == ["3 tasks and models: 1 tried more than once, 0 in a stage"]


def test_a_pass_table_stands_in_place_of_runs_survives_imports_and_can_be_dropped(workspace: Workspace, tmp_path: Path) -> None:
    counted = difficulty(workspace)["t4", "solo"]
    add_pass_table(workspace, [PassRow("t4", "solo", 100, 90), PassRow("t4", "new", 8, 3), PassRow("far", "new", 8, 3, 0.9)])
    add_pass_table(workspace, [PassRow("t4", "new", 8, 8)])
    import_paths(workspace, [write_traces(tmp_path / "more.jsonl", trials({("t9", "solo"): "11"}))])
    analyse(workspace, only=["quality", "curriculum"])
    rows = difficulty(workspace)
    row = rows["t4", "solo"]
    assert (row["n"], row["n_passed"], row["source"], row["stage"]) == (100, 90, "pass table", "warmup")
    assert row["reason"] == "4 simulated attempts are left out"
    assert (rows["t4", "new"]["n_passed"], rows["t4", "new"]["d_orch"]) == (8, pytest.approx(D_ORCH["duo"] / 2))
    assert rows["t4", "new"]["reason"] == "d_orch is that of other models' runs"
    assert (rows["far", "new"]["d_orch"], rows["far", "new"]["stage"]) == (0.9, "integrated")
    forget_pass_tables(workspace)
    analyse(workspace, only=["curriculum"])
    assert difficulty(workspace)["t4", "solo"] == counted
    assert ("far", "new") not in difficulty(workspace)


def test_a_pass_table_that_comes_in_while_the_stage_runs_is_not_lost(workspace: Workspace) -> None:
    workspace.commit(workspace.head(), {}, keys={"curriculum": "due"})
    todo = [[PassRow("late", "m", 8, 3)]]

    def interrupt(share: float, text: str) -> None:
        if todo and "stages" in text:
            add_pass_table(workspace, todo.pop())

    analyse(workspace, only=["curriculum"], progress=interrupt)
    assert difficulty(workspace)["late", "m"]["n"] == 8


def test_features_of_a_task_are_its_text_and_the_shape_of_its_finest_split(tmp_path: Path) -> None:
    runs = [*trials({("t", "solo"): "1", ("t", "trio"): "1"}, workers={"trio": 3}), *trials({("u", "solo"): "1"})]
    found = features_of(Snapshot(workspace_of(tmp_path, runs)))
    length = len(runs[0].task.text or "")
    assert found == {"t": TaskFeatures(length, 2, 1, 2), "u": TaskFeatures(length, None, None, None)}


def test_outcomes_that_nobody_knows_are_predicted_where_features_tell_them(tmp_path: Path) -> None:
    """The longer the name, up to six letters, the longer the text and the harder the task."""
    names = [f"{'x' * (n % 6 + 1)}{n:02d}"[-6:] for n in range(36)]
    outcomes = {(name, "a"): "00" if "xxx" in name else "11" for name in dict.fromkeys(names)}
    asked = {("x0", "a"): "?", ("xxxxx1", "a"): "??"}
    rows = difficulty(workspace_of(tmp_path, trials(outcomes), trials(asked)))
    easy, hard = rows["x0", "a"], rows["xxxxx1", "a"]
    assert (easy["source"], hard["source"], easy["low"], hard["n"]) == ("predicted", "predicted", None, 0)
    assert easy["d_req"] < 0.5 < hard["d_req"]
    assert easy["reason"].endswith("predicted from features of the task, without an interval")
