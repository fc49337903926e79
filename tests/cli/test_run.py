"""`counterpoint run`: teams do tasks, the runs come into the workspace, and a second call goes on where the first one stopped."""

from __future__ import annotations

import fcntl
import re
from pathlib import Path

import pytest

from analysis.counterfactual.sandbox import layers
from analysis.estimation import wilson
from analysis.model import decode
from analysis.workspace import Snapshot, Workspace
from tests.cli.conftest import Run
from tests.counterfactual.endpoint import serving


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
    assert [(row["team"], row["world"], row["n"]) for row in ran.json["teams"]] == [
        ("single", "simulated", 2), ("chatty", "simulated", 2),
    ]  # fmt: skip
    assert ran.json["import"]["traces"] == 4
    traces = [decode(line) for line in (tmp_path / "counterpoint-runs.jsonl").read_bytes().splitlines()]
    stored = Snapshot(Workspace(str(tmp_path / "store"))).traces([trace.trace_id for trace in traces])
    assert {trace.trace_id: trace.extra["run"]["seed"] for trace in stored} == {trace.trace_id: 7 for trace in traces}
    again = teams("--tasks", "chain-3", "--team", "chatty", "--trials", "2")
    assert again.code == 0
    assert "0 runs made, 4 runs there, 0 runs left, in counterpoint-runs.jsonl" in again.err
    head, *rows = [re.split(r"  +", line.strip()) for line in again.out.splitlines()]
    assert head == ["team", "world", "passed", "95 % interval", "tokens a run"]
    for row, said in zip(rows, ran.json["teams"], strict=True):
        share = wilson(said["passed"], 2)
        assert share is not None
        assert (said["rate"], said["low"], said["high"]) == share[:3]
        interval = f"{100 * said['low']:.0f} to {100 * said['high']:.0f} %"
        assert row[:4] == [said["team"], "simulated", f"{said['passed']} of 2 ({50 * said['passed']} %)", interval]


def test_more_trials_add_to_the_file_and_change_nothing_in_it(teams: Run, tmp_path: Path) -> None:
    chosen = ("--tasks", "chain-3", "--team", "serial-collapse", "--no-baseline", "--out", "a.jsonl")
    assert teams(*chosen, "--trials", "1", "--json").json["made"] == 1
    before = (tmp_path / "a.jsonl").read_bytes()
    assert teams(*chosen, "--trials", "2", "--json").json["made"] == 1
    assert (tmp_path / "a.jsonl").read_bytes().startswith(before)


def test_a_second_run_on_the_same_file_is_told_so_in_one_line(teams: Run, tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ran = teams("--tasks", "chain-3", "--team", "chatty", "--out", "a.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "a.jsonl: another process, it is not known which, writes here - wait until it ends, or give another --out\n"
    )


def test_a_budget_leaves_runs_for_another_call(teams: Run) -> None:
    chosen = ("--tasks", "chain-3", "--tasks", "fan-4", "--team", "single", "--trials", "1", "--json")
    for budget in ("1", "1tokens"):
        ran = teams(*chosen, "--budget", budget)
        assert (ran.code, ran.json["made"]) == (1, 1) if ran.json["left"] else (0, 1)
        assert ran.json["why"] == (["the budget is spent"] if ran.json["left"] else [])
        assert ("1 runs are left, the same command goes on with them: the budget is spent" in ran.err) == bool(ran.json["left"])
    assert teams(*chosen).json["there"] == 2


def test_a_number_of_tasks_takes_the_shapes_in_turn_and_a_team_file_is_a_team(teams: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("about = 'Mine.'\nlayout = 'single'\nlead = 'solo'\n[components.solo]\n")
    ran = teams("--tasks", "3", "--team", "mine.toml", "--no-baseline", "--trials", "1", "--json")
    assert [(row["team"], row["n"]) for row in ran.json["teams"]] == [("mine", 3)]
    lines = (tmp_path / "counterpoint-runs.jsonl").read_bytes().splitlines()
    assert [decode(line).extra["run"]["task"]["shape"] for line in lines] == ["chain-3", "chain-5", "relay-3"]


def test_a_team_that_never_passes_has_an_interval_too(teams: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        "about = 'Bad.'\nlayout = 'single'\nlead = 'solo'\n[components.solo]\ncompetence = 0\nfaults = { performance = 0 }\n"
    )
    (row,) = teams("--tasks", "chain-3:2", "--team", "bad.toml", "--no-baseline", "--trials", "2", "--json").json["teams"]
    assert (row["n"], row["passed"], row["rate"], row["low"], round(row["high"], 4)) == (4, 0, 0.0, 0.0, 0.4899)
    shown = teams("--tasks", "chain-3:2", "--team", "bad.toml", "--no-baseline", "--trials", "2")
    assert "0 of 4 (0 %)  0 to 49 %" in re.sub(r" {2,}", "  ", shown.out)


def test_a_live_team_goes_on_after_its_budget_and_has_no_simulated_baseline(
    teams: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai", reason="live agents need the package openai (extra `live`)")
    monkeypatch.setenv("LOOPBACK_KEY", "sk-1")
    chosen = ("--tasks", "chain-3", "--team", "model.toml", "--trials", "2")
    with serving(answer=lambda body: '{"text": "No.", "choice": "stop", "program": "x = 1"}') as server:
        (tmp_path / "model.toml").write_text(
            "about = 'A model.'\nlayout = 'single'\nlead = 'solo'\n[live.solo]\nkey_env = 'LOOPBACK_KEY'\nmodel = 'm'\n"
            f"base_url = '{server.url}'\nmax_tokens = 50\n"
        )
        short = teams(*chosen, "--budget", "8calls", "--json")
        assert (short.code, short.json["made"], short.json["left"], len(server.log)) == (1, 1, 1, 8)
        assert short.json["models"] == {"tokens": 400, "money": 0.0, "n_calls": 8, "n_open": 0}
        assert "1 runs are left, the same command goes on with them: budget: too little is left for the next call" in short.err
        whole = teams(*chosen, "--budget", "100calls")
        assert (whole.code, len(server.log)) == (0, 12)
        assert "models so far: 12 calls, 600 tokens" in whole.err
        assert re.sub(r" {2,}", "  ", whole.out.splitlines()[1]).strip() == "model  live  0 of 2 (0 %)  0 to 66 %  300"
        monkeypatch.delenv("LOOPBACK_KEY")
        gone = teams(*chosen, "--out", "other.jsonl")
        assert (gone.code, gone.err.count("\n")) == (2, 1)
        assert "LOOPBACK_KEY: the environment variable holds no key - export LOOPBACK_KEY" in gone.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--team", "parralel"), "team: no such team (got parralel, expected a file, or single, "),
        (("--team", "gone.toml"), "gone.toml: the file cannot be read"),
        (("--tasks", "ring"), "tasks: no such shape (got ring, expected chain-3, "),
        (("--tasks", "a b"), "'a b' is neither a shape, nor SHAPE:N, nor a number"),
        (("--tasks", "diamond:0"), "'diamond:0' is no task; give at least 1"),
        (("--tasks", "0"), "'0' is no task; give at least 1"),
        (("--budget", "much"), "'much' is neither a number of tokens nor of seconds (90s)"),
        (("--budget", "5calls"), "'5calls' is neither a number of tokens nor of seconds (90s)"),
        (("--budget", "0"), "'0' leaves nothing to spend; give more, or none for no limit"),
        (("--budget", "0s"), "'0s' leaves nothing to spend"),
        (("--team", "chatty", "--team", "chatty"), "teams: two teams have the same name (got chatty)"),
    ],
)
def test_a_mistake_is_one_line_and_exit_two(teams: Run, arguments: tuple[str, ...], words: str) -> None:
    ran = teams(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err.replace("\n", " ")
    assert "Traceback" not in ran.err
