"""Teams with live and trained agents: whole tasks through faults, kill -9, a refusal, a budget; nothing lost or paid twice."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analysis.counterfactual.agents.ledger import Cap, Cost, Ledger
from analysis.counterfactual.agents.trainable import Policy, save
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.runs import Budget, Job, jobs_of, recipes, replay, run_job, run_many
from analysis.counterfactual.tasks.compose import ComposedTask
from analysis.counterfactual.tasks.programs import program, sources
from analysis.counterfactual.teams import Team, read_team, simulated
from analysis.errors import BudgetSpent, CounterpointError, EndpointError, TeamError
from analysis.model import Trace, decode, encode
from tests.counterfactual.endpoint import INPUT_TOKENS, OUTPUT_TOKENS, serving
from tests.counterfactual.players import played, task_of

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-loopback-0123456789abcdef"
COST = INPUT_TOKENS + OUTPUT_TOKENS
N_CALLS = 6  # of the team below on a task of three parts: plan, three parts, merge, stop


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai", reason="live agents need the package openai (extra `live`)")
    monkeypatch.setenv("LOOPBACK_KEY", KEY)


def solver(task: ComposedTask) -> Callable[[dict[str, Any]], str]:
    """A model that does everything right, by what it is asked, and says more than it should."""

    def answer(body: dict[str, Any]) -> str:
        asked = str(body["messages"][-1]["content"])
        name = re.search(r"Write the Python function `(\w+)`", asked)
        whole = program(task, sources(task))
        source = next((node.function.reference for node in task.nodes if name and node.function.function_id == name[1]), whole)
        fields = {"text": "Done.", "p": 0.875, "rejected": [], "choice": "stop"}
        return f"Of course!\n```json\n{json.dumps(fields)}\n```\nAnd here it is:\n```python\n{source}\n```\nAnything else?"

    return answer


def team_file(folder: Path, url: str, *, name: str = "models", lead: str = "live", **fields: Any) -> Path:
    """Write the file of a team whose coder is live, and whose lead is live or simulated."""
    end = {"base_url": url, "model": "m", "key_env": "LOOPBACK_KEY", "max_tokens": 2000, "timeout_s": 2.0, "n_tries": 3, **fields}
    entries = "\n".join(f"{key} = {json.dumps(value)}" for key, value in end.items())
    seconds = "{ plan = 0.1, aggregate = 0.1, stop = 0.1 }"
    leads = {"live": f"[live.planner]\n{entries}\n", "simulated": f"[components.planner]\nseconds = {seconds}\n"}
    path = folder / f"{name}.toml"
    path.write_text(f"about = 'Models.'\n{leads[lead]}[live.coder]\n{entries}\n", encoding="utf-8")
    return path


def jobs(team: Team, *, n_trials: int = 1) -> list[Job]:
    return jobs_of(recipes("chain-3", 1, seed=7), [team], n_trials=n_trials, seed=7)


def traces(out: Path) -> list[Trace]:
    return [decode(line) for line in out.read_bytes().splitlines()]


def n_answers(out: Path) -> int:
    """How many different questions the ledger has answers to."""
    with sqlite3.connect(out.with_suffix(".ledger") / "ledger.sqlite") as store:
        return int(store.execute("select count(*) from answers").fetchone()[0])


def test_a_live_team_does_a_whole_task_through_faults_and_its_trace_says_all_that_it_cost(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    with serving(["500", "429", "slow:1.5", "garbage", "cut", "bad-json"], answer=solver(task_of("chain-3"))) as server:
        team = read_team(team_file(tmp_path, server.url, n_tries=6, timeout_s=1.0))
        report = run_many(jobs(team), out, records=True)
        assert (report.n_made, report.n_left, report.why) == (1, 0, ())
        n_asked = len(server.log)
        run_many(jobs(team), out)
        assert len(server.log) == n_asked
    (trace,) = traces(out)
    assert (trace.world, trace.clock, trace.outcome.passed) == ("live", "relative", True)
    assert [event.error for event in trace.events if event.error] == []
    n_answered = N_CALLS + 1  # garbage is an answer too, and was asked for once more
    assert n_answers(out) == n_answered
    assert report.n_tokens == n_answered * COST
    assert report.spent is not None
    assert report.spent.n_calls == n_asked == n_answered + 5
    assert report.spent.n_open == 3  # slow, cut and bad JSON may have been paid, and stand at their most
    assert trace.events[0].t_start_s == 0
    assert all((event.t_start_s or 0) <= (event.t_end_s or 0) < 30 for event in trace.events)
    assert abs(trace.extra["run"]["began_s"] - time.time()) < 60
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".toml")
    assert b"LOOPBACK_KEY" in kept
    assert KEY.encode() not in kept


def test_a_mixed_team_is_live_and_its_simulated_lead_keeps_its_pace(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    with serving(answer=solver(task_of("chain-3"))) as server:
        team = read_team(team_file(tmp_path, server.url, lead="simulated"))
        assert run_many(jobs(team), out).n_made == 1
        assert len(server.log) == 3
    (trace,) = traces(out)
    assert (trace.world, trace.outcome.passed) == ("live", True)
    assert (trace.events[0].t_end_s or 0) >= 0.05


def test_an_agent_that_fails_for_good_leaves_its_error_on_its_event_and_the_batch_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    with serving(["400"], answer=solver(task_of("chain-3"))) as server:
        team = read_team(team_file(tmp_path, server.url, lead="simulated"))
        report = run_many(jobs(team, n_trials=2), out)
        assert (report.n_made, report.n_left) == (2, 0)
    first, second = traces(out)
    assert sum(event.error is not None for event in first.events) == 1
    assert all("the endpoint refuses this call (400" in event.error for event in first.events if event.error)
    assert (first.outcome.passed, second.outcome.passed) == (False, True)


def test_an_endpoint_that_refuses_all_calls_leaves_the_runs_of_its_team_for_later_and_no_others(tmp_path: Path) -> None:
    out, task = tmp_path / "runs.jsonl", task_of("chain-3")
    with serving(["401"] * 3, answer=solver(task)) as refusing, serving(answer=solver(task)) as server:
        teams = [
            read_team(team_file(tmp_path, refusing.url, name="refused", lead="simulated")),
            read_team(team_file(tmp_path, server.url, name="taken", lead="simulated")),
        ]
        todo = jobs_of(recipes("chain-3", 1, seed=7), teams, n_trials=2, seed=7)
        report = run_many(todo, out)
        assert (report.n_made, report.n_left) == (2, 2)
        assert len(refusing.log) == 1
        assert [trace.groups.condition for trace in traces(out)] == ["taken", "taken"]
        assert "the endpoint refuses calls" in report.why[0]
        refusing.faults.clear()
        again = run_many(todo, out)
        assert (again.n_made, again.n_there, again.n_left) == (2, 2, 0)
        assert len(server.log) == 6
        assert all(trace.outcome.passed for trace in traces(out))


def test_over_the_cap_the_run_stops_and_with_more_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    with serving(answer=solver(task_of("chain-3"))) as server:
        team = read_team(team_file(tmp_path, server.url))
        todo = jobs(team, n_trials=3)
        report = run_many(todo, out, budget=Budget(calls=N_CALLS + 2))
        assert (report.n_made, report.n_left, len(server.log)) == (1, 2, N_CALLS + 2)
        assert "calls spent, it may take 1) - raise it and run again" in report.why[0]
        assert run_many(todo, out, budget=Budget(calls=N_CALLS + 2)).n_made == 0
        assert len(server.log) == N_CALLS + 2
        assert run_many(todo, out, budget=Budget(calls=3 * N_CALLS)).n_left == 0
        assert len(server.log) == 3 * N_CALLS == n_answers(out)
        report = run_many(jobs(team, n_trials=4), out, budget=Budget(tokens=3 * N_CALLS * COST + 1))
        assert (report.n_made, report.n_left, len(server.log)) == (0, 1, 3 * N_CALLS)


def test_what_is_missing_is_said_before_any_run_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        team = read_team(team_file(tmp_path, server.url))
        monkeypatch.delenv("LOOPBACK_KEY")
        with pytest.raises(EndpointError, match="LOOPBACK_KEY: the environment variable holds no key"):
            run_many(jobs(team), tmp_path / "runs.jsonl")
        assert server.log == []
        assert not (tmp_path / "runs.jsonl").exists()


def test_a_live_run_is_not_made_again_without_agents_that_answer_for_it(tmp_path: Path, judge: Judge) -> None:
    with serving(answer=solver(task_of("chain-3"))) as server:
        team = read_team(team_file(tmp_path, server.url))
        run_many(jobs(team), tmp_path / "runs.jsonl")
        (trace,) = traces(tmp_path / "runs.jsonl")
        with pytest.raises(TeamError, match=r"team models: live.coder: a model would have to be asked - give agents"):
            replay(trace, judge)
        with pytest.raises(TeamError, match="a model would have to be asked"):
            run_job(jobs(team)[0], judge)


RUNNER = """
import sys
from pathlib import Path
from analysis.counterfactual.runs import jobs_of, recipes, run_many
from analysis.counterfactual.teams import read_team
todo = jobs_of(recipes("chain-3", 1, seed=7), [read_team(Path("models.toml"))], n_trials=4, seed=7)
report = run_many(todo, Path("runs.jsonl"), workers=2)
print(report.n_made + report.n_there, report.n_left)
"""


def start_run(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", RUNNER], cwd=folder, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip


@pytest.mark.parametrize("at", [9, *[pytest.param(at, marks=pytest.mark.soak) for at in (1, 5, 14, 20)]])
def test_kill_9_of_two_workers_loses_nothing_and_pays_again_only_what_was_in_flight(tmp_path: Path, at: int) -> None:
    task, reached, out = task_of("chain-3"), threading.Event(), tmp_path / "runs.jsonl"
    solve = solver(task)

    def answer(body: dict[str, Any]) -> str:
        if len(server.log) >= at and not reached.is_set():
            reached.set()
            time.sleep(0.5)
        return solve(body)

    with serving(answer=answer) as server:
        team_file(tmp_path, server.url, timeout_s=20.0)
        first = start_run(tmp_path)
        assert reached.wait(60)
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()  # ends when the workers have let go of what they inherited
        time.sleep(0.3)  # what they had sent arrives
        n_before = len(server.log)
        time.sleep(0.5)
        assert len(server.log) == n_before
        with closing(Ledger(out.with_suffix(".ledger"))) as ledger:
            before = ledger.spent()
        lines = out.read_bytes().splitlines(keepends=True) if out.exists() else []
        said, problems = start_run(tmp_path).communicate(timeout=120)
        assert said.split() == ["4", "0"], problems
        assert [trace.trace_id[-1] for trace in traces(out)] == ["1", "2", "3", "4"]
        assert out.read_bytes().startswith(b"".join(line for line in lines if line.endswith(b"\n")))
        assert all(trace.outcome.passed for trace in traces(out))
        assert n_answers(out) == 4 * N_CALLS
        n_twice = len(server.log) - 4 * N_CALLS
        assert 0 <= n_twice <= before.n_open <= 6  # of each worker at most three at once
        assert sum(e.output_tokens or 0 for trace in traces(out) for e in trace.events) == 4 * N_CALLS * OUTPUT_TOKENS


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    found = Policy(purposes=("plan",), weights={"plan/same part/always": 50.0})
    save(found, tmp_path / "policy.json")
    return found


TRAINED = "about = 'Trained.'\nsplit = 'asked'\n[components.coder]\n[trained]\nplanner = 'policy.json'\n"


def test_a_policy_takes_its_decisions_and_its_component_the_others(tmp_path: Path, policy: Policy, judge: Judge) -> None:
    path = tmp_path / "trained.toml"
    path.write_text(TRAINED + "[components.planner]\nsplits = { 'missing part' = 1.0 }\n")
    team = read_team(path)
    assert team.trained == {"planner": policy}
    trace = played(team, task_of("fan-4"), judge, agents=simulated(team))
    assert (trace.world, [s.covers for s in trace.subtasks]) == ("simulated", [("p1",)] * 4)
    assert trace.events[0].content == "I choose same part."
    assert [event.error for event in trace.events if event.error] == []
    path.write_text(TRAINED)
    bare = played(read_team(path), task_of("fan-4"), judge, agents=simulated(read_team(path)))
    assert [s.covers for s in bare.subtasks] == [("p1",)] * 4
    assert {event.event_id: event.error for event in bare.events if event.error} == {
        "merge": "the policy does not know how to aggregate, and nobody is described who does",
        "stop": "the policy does not know how to stop, and nobody is described who does",
    }


def test_a_run_of_a_trained_team_is_made_again_when_the_policy_is_gone(tmp_path: Path, policy: Policy, judge: Judge) -> None:
    path = tmp_path / "trained.toml"
    path.write_text(TRAINED + "[components.planner]\n")
    line = encode(run_job(jobs(read_team(path))[0], judge, records=True))
    (tmp_path / "policy.json").unlink()
    assert encode(replay(decode(line), judge)) == line
    assert msgspec.convert(decode(line).extra["run"]["team"]["trained"]["planner"], Policy) == policy


def test_the_example_of_the_teams_readme_is_a_team(tmp_path: Path, policy: Policy) -> None:
    text = (ROOT / "data" / "teams" / "README.md").read_text(encoding="utf-8")
    for n, example in enumerate(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)):
        (tmp_path / f"example-{n}.toml").write_text(example)
    plain, mixed = read_team(tmp_path / "example-0.toml"), read_team(tmp_path / "example-1.toml")
    assert (plain.live, mixed.live["coder"].key_env, mixed.trained) == ({}, "MY_KEY", {"planner": policy})


@pytest.mark.parametrize("kind", [BudgetSpent, EndpointError, TeamError])
def test_an_error_comes_back_from_another_process_as_it_was(kind: type[CounterpointError]) -> None:
    error = kind("budget", "too little is left", got="5", hint="raise it")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (kind, "budget: too little is left (got 5) - raise it")


def test_a_cap_of_calls_counts_refused_ones_too(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path, cap=Cap(calls=2))) as ledger:
        for key in ("a", "b"):
            ledger.strike(ledger.enter(key, Cost(5)))
        with pytest.raises(BudgetSpent, match=r"2 of 2 calls spent, it may take 1"):
            ledger.enter("c", Cost(5))
