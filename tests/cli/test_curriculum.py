"""`counterpoint curriculum`: one row a task and model, pass tables and thresholds that are kept, one line for a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.pipeline import analyse, import_paths
from analysis.workspace import Workspace
from tests.cli.conftest import Run
from tests.pipeline.corpus import write_traces
from tests.pipeline.test_curriculum import OUTCOMES, WORKERS
from tests.pipeline.trials import trials

KEYS = {"task", "model", "d_req", "low", "high", "n", "d_orch", "stage", "joint", "source", "reason"}


@pytest.fixture
def store(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "store", create=True)
    import_paths(workspace, [write_traces(tmp_path / "runs.jsonl", trials(OUTCOMES, workers=WORKERS))])
    analyse(workspace, only=["quality"])
    return workspace


def test_one_row_a_task_and_model(store: Workspace, run: Run) -> None:
    rows = run("curriculum", "--json").json
    assert [(row["model"], row["task"]) for row in rows] == sorted((team, task) for task, team in OUTCOMES)
    assert all(set(row) == KEYS for row in rows)
    first = rows[0]
    assert (first["d_req"], first["n"], first["stage"]) == (0.3, 4, "orchestration")
    assert first["low"] < 0.3 < first["high"]
    ran = run("curriculum", "--model", "solo")
    assert ran.code == 0
    assert [line.split()[:2] for line in ran.out.splitlines()[1:]] == [[f"t{n}", "solo"] for n in range(1, 5)]
    assert "8 tasks and models: 8 tried more than once, 8 in a stage" in ran.err
    assert ran.out.splitlines()[0].split()[:4] == ["task", "model", "or", "condition"]
    assert "medians of 8 tasks and models, simulated attempts" in ran.err
    assert "not tested: 4 tasks were tried twice or more, and at least 20 are needed" in ran.err


def test_pass_tables_and_thresholds_are_kept(store: Workspace, run: Run, tmp_path: Path) -> None:
    assert run("curriculum").code == 0
    (tmp_path / "rates.csv").write_text("task_id,model,pass_rate\nt1,solo,0.1\n")
    ran = run("curriculum", "--pass-table", "rates.csv")
    assert ran.code == 2
    assert ran.err.startswith("rates.csv:line 2: the number of attempts is not stated")
    assert run("curriculum", "--pass-table", "rates.csv", "--attempts", "10", "--json").code == 0
    rows = {(row["task"], row["model"]): row for row in run("curriculum", "--tau-req", "0.95", "--joint", "max", "--json").json}
    row = rows["t1", "solo"]
    assert (row["n"], row["source"], row["stage"], row["joint"]) == (10, "pass table", "warmup", row["d_req"])
    assert "d_req 0.95" in run("curriculum").err
    assert "(set by hand); joint: max" in run("curriculum").err
    assert "d_req 0.6" in run("curriculum", "--renew", "--forget-tables").err


def test_a_workspace_may_begin_with_a_pass_table(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("task_id,model,n,c\nt1,m,8,3\n")
    (row,) = run("curriculum", "--pass-table", "rates.csv", "--json").json
    assert (row["task"], row["n"], row["stage"]) == ("t1", 8, None)
    assert row["reason"] == "no run of the task has a d_orch"


def test_without_repeated_runs_it_says_how_to_get_them(run: Run, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "store", create=True)
    import_paths(workspace, [write_traces(tmp_path / "runs.jsonl", trials({("t", "solo"): "1", ("u", "solo"): "?"}))])
    ran = run("curriculum")
    assert ran.code == 0
    assert "no task was tried more than once: `counterpoint run --trials 4` makes such runs" in ran.err
    assert "1 more have runs, but no known outcome" in ran.err
    assert "2 traces have no d_orch yet: run `counterpoint analyze`" in ran.err
    ran = run("curriculum", "--tau-req", "0.5")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("curriculum: too few tasks were tried more than once to take thresholds from - give --tau-req and")
    assert run("curriculum", "--tau-req", "0.5", "--tau-orch", "0.2").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "nobody"), "curriculum: no model or condition is called so (got nobody, expected duo, solo)"),
        (("--pass-table", "gone.csv"), "gone.csv: the file cannot be read (got No such file or directory)"),
        (("-w", "gone"), "gone: no workspace here"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_2(
    store: Workspace, run: Run, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    ran = run("curriculum", *arguments)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.removeprefix(f"{tmp_path}/").startswith(message)
