"""`counterpoint run`: teams do tasks, the runs come into the workspace, and a second call goes on where the first one stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.counterfactual.sandbox import layers
from analysis.model import decode
from analysis.workspace import Snapshot, Workspace
from tests.cli.conftest import Run


@pytest.fixture
def teams(run: Run) -> Run:
    """Let teams run, in one process."""
    if not layers().is_enough:
        pytest.skip("programs are not run here: the sandbox refuses")
    return lambda *arguments: run("run", "--workers", "1", *arguments)


def test_runs_come_into_the_workspace_with_a_single_agent_as_baseline(teams: Run, tmp_path: Path) -> None:
    ran = teams("--tasks", "chain-3", "--team", "chatty", "--trials", "2", "--json")
    assert ran.code == 0
    assert {key: ran.json[key] for key in ("made", "there", "left", "out")} == {
        "made": 4, "there": 0, "left": 0, "out": "counterpoint-runs.jsonl",
    }  # fmt: skip
    assert [(row["team"], row["runs"]) for row in ran.json["teams"]] == [("single", 2), ("chatty", 2)]
    assert ran.json["import"]["traces"] == 4
    traces = [decode(line) for line in (tmp_path / "counterpoint-runs.jsonl").read_bytes().splitlines()]
    stored = Snapshot(Workspace(str(tmp_path / "store"))).traces([trace.trace_id for trace in traces])
    assert {trace.trace_id: trace.extra["run"]["seed"] for trace in stored} == {trace.trace_id: 7 for trace in traces}
    again = teams("--tasks", "chain-3", "--team", "chatty", "--trials", "2")
    assert again.code == 0
    assert "0 runs made, 4 runs there, 0 runs left, in counterpoint-runs.jsonl" in again.err
    assert again.out.splitlines()[0].split() == ["team", "runs", "passed", "tokens", "a", "run"]


def test_more_trials_add_to_the_file_and_change_nothing_in_it(teams: Run, tmp_path: Path) -> None:
    chosen = ("--tasks", "chain-3", "--team", "serial-collapse", "--no-baseline", "--out", "a.jsonl")
    assert teams(*chosen, "--trials", "1", "--json").json["made"] == 1
    before = (tmp_path / "a.jsonl").read_bytes()
    assert teams(*chosen, "--trials", "2", "--json").json["made"] == 1
    assert (tmp_path / "a.jsonl").read_bytes().startswith(before)


def test_a_budget_leaves_runs_for_another_call(teams: Run) -> None:
    chosen = ("--tasks", "chain-3", "--tasks", "fan-4", "--team", "single", "--trials", "1", "--json")
    assert [teams(*chosen, "--budget", budget).json["made"] for budget in ("0s", "1", "1tokens")] == [0, 1, 1]
    assert teams(*chosen).json["there"] == 2


def test_a_number_of_tasks_takes_the_shapes_in_turn_and_a_team_file_is_a_team(teams: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("about = 'Mine.'\nlayout = 'single'\nlead = 'solo'\n[components.solo]\n")
    ran = teams("--tasks", "3", "--team", "mine.toml", "--no-baseline", "--trials", "1", "--json")
    assert [(row["team"], row["runs"]) for row in ran.json["teams"]] == [("mine", 3)]
    lines = (tmp_path / "counterpoint-runs.jsonl").read_bytes().splitlines()
    assert [decode(line).extra["run"]["task"]["shape"] for line in lines] == ["chain-3", "chain-5", "relay-3"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--team", "parralel"), "team: no such team (got parralel, expected a file, or single, "),
        (("--team", "gone.toml"), "gone.toml: the file cannot be read"),
        (("--tasks", "ring"), "tasks: no such shape (got ring, expected chain-3, "),
        (("--tasks", "a b"), "'a b' is neither a shape, nor SHAPE:N, nor a number"),
        (("--budget", "much"), "'much' is neither a number of tokens nor of seconds (90s)"),
        (("--team", "chatty", "--team", "chatty"), "teams: two teams have the same name (got chatty)"),
    ],
)
def test_a_mistake_is_one_line_and_exit_two(teams: Run, arguments: tuple[str, ...], words: str) -> None:
    ran = teams(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err.replace("\n", " ")
    assert "Traceback" not in ran.err
