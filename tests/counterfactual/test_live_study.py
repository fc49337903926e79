"""Decisions of live runs: models are asked again from the decision on and never for what came before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from analysis.counterfactual.agents.ledger import Ledger
from analysis.counterfactual.dataset import pair_rows_of
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import Replayer, pair_frame, replayable
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Budget, Job, recipes, run_job
from analysis.counterfactual.study import Design, study
from analysis.counterfactual.teams import players, team_of
from analysis.errors import ReplayError
from analysis.model import Trace
from analysis.pipeline.effects import effect_rows
from tests.counterfactual.endpoint import Endpoint, serving
from tests.counterfactual.test_live import solver

pytest.importorskip("openai", reason="live agents need the package openai (extra `live`)")
RECIPE = recipes("chain-3", 1, seed=7)[0]
LATE = Intervention("delay", "merge", {"x": 4})


@contextmanager
def live_run(folder: Path, judge: Judge, **fields: object) -> Iterator[tuple[Trace, Endpoint]]:
    """Yield a run of a team of models, and the server behind them, which has answered for it."""
    with serving(answer=solver(RECIPE.task())) as server, closing(Ledger(folder / "run.ledger")) as ledger:
        end = {"base_url": server.url, "model": "m", "max_tokens": 2000, "timeout_s": 5, "n_tries": 2, **fields}
        team = team_of({"name": "live", "about": "", "live": {"planner": end, "coder": end}}, "live")
        yield run_job(Job(RECIPE, team, 1, 7), judge, agents=players(team, ledger)), server


def asked(server: Endpoint, n_before: int) -> list[str]:
    """Return what was asked since, by its first words."""
    steps = {"Say how to go": "plan", "Write the Python": "write", "Put the parts": "merge", "Decide whether": "stop"}
    return [next(name for words, name in steps.items() if words in one.last) for one in server.log[n_before:]]


def test_the_prefix_is_never_paid_again_and_what_both_runs_are_told_is_paid_once(judge: Judge, tmp_path: Path) -> None:
    with live_run(tmp_path, judge) as (trace, server), closing(Ledger(tmp_path / "study.ledger")) as ledger:
        assert asked(server, 0) == ["plan", "write", "write", "write", "merge", "stop"]
        replayer = Replayer(trace, judge, agents=players(team_of(trace.extra["run"]["team"], "t"), ledger))
        late = replayer.pair(LATE, seed=1, block="screen", number=0)
        assert asked(server, 6) == ["merge", "stop"]  # before it nobody is asked, after it both runs are told the same
        assert (late.world, late.evidence) == ("live", "interventional")
        assert late.q_counterfactual["makespan_s"] - late.q["makespan_s"] == pytest.approx(4)
        assert late.q_counterfactual["tokens"] == late.q["tokens"] == 6 * 50
        moved = replayer.pair(Intervention("assign", "give:p2", {"to": "coder-3"}), seed=1, block="screen", number=0)
        # Who was told by another is told something else; what is the same was paid for with the first pair, or in the other run.
        assert set(asked(server, 8)) == {"write", "merge"}
        assert len({str(one.body["messages"]) for one in server.log[6:]}) == len(server.log[6:])
        assert moved.cost_tokens > 50 * len(server.log[8:])
        n = len(server.log)
        again = replayer.pair(LATE, seed=1, block="screen", number=0)
        assert (again, len(server.log)) == (late, n)
        replayer.pair(LATE, seed=1, block="screen", number=1)
        assert asked(server, n) == ["merge", "stop"]  # another seed is another sample


def test_a_study_of_a_live_run_pays_once_and_its_rows_pay_nothing(judge: Judge, tmp_path: Path) -> None:
    design = Design(k=2, n_pairs=1, n_confirm=1, n_chosen=1)
    with live_run(tmp_path, judge) as (trace, server):
        done = study([trace], tmp_path / "p.jsonl", design=design)
        assert (done.n_left, done.refused, done.is_sound) == (0, {}, True)
        assert {(pair.world, pair.evidence) for pair in done.pairs} == {("live", "interventional")}
        n = len(server.log)
        assert study([trace], tmp_path / "again.jsonl", design=design).pairs != done.pairs  # of another file, with its own ledger
        assert len(server.log) > n
        n = len(server.log)
        (tmp_path / "p.jsonl").unlink()
        assert study([trace], tmp_path / "p.jsonl", design=design) == done  # made again of what the ledger holds
        rows = [row | {"confirmed": True} for row in effect_rows(pair_frame(done.pairs), seed=0)]
        with closing(Ledger(tmp_path / "p.ledger")) as ledger:
            found = pair_rows_of([trace], rows, judge=judge, seed=0, ledger=ledger)
        assert {row.world for row in found} == {"live"}
        assert len(server.log) == n
        said: list[str] = []
        assert pair_rows_of([trace], rows, judge=judge, seed=0, told=said.append) == []
        assert said[0].endswith("its models would have to be asked again, and there is no ledger of what they said")


def test_a_model_that_gives_no_answer_loses_the_pair_until_the_next_call(judge: Judge, tmp_path: Path) -> None:
    design = Design(operators=("delay",), k=1, n_pairs=1, n_chosen=0)
    with live_run(tmp_path, judge) as (trace, server):
        study([trace], tmp_path / "p.jsonl", design=msgspec.structs.replace(design, n_pairs=0))  # the controls
        server.faults += ["500"] * 2
        lost = study([trace], tmp_path / "p.jsonl", design=design)
        assert lost.pairs == ()
        (why,) = lost.refused.values()
        assert "a model gave no answer (got no answer in 2 tries" in why
        server.faults += ["401"]
        (why,) = study([trace], tmp_path / "p.jsonl", design=design).refused.values()
        assert "the endpoint refuses calls (got 401" in why
        back = study([trace], tmp_path / "p.jsonl", design=design)
        assert (len(back.pairs), back.refused) == (1, {})


def test_a_budget_of_calls_is_never_exceeded_and_the_rest_is_left(judge: Judge, tmp_path: Path) -> None:
    with live_run(tmp_path, judge) as (trace, server):
        done = study([trace], tmp_path / "p.jsonl", design=Design(k=2, n_pairs=1, budget=Budget(calls=9), allocation="racing"))
        assert len(server.log) - 6 == 9
        assert done.n_left > 0
        assert "budget: too little is left for the next call (got 9 of 9 calls spent" in " ".join(done.notes)


def test_a_run_whose_models_cannot_be_asked_is_refused_with_the_reason(judge: Judge, tmp_path: Path) -> None:
    with live_run(tmp_path, judge) as (trace, _):
        with pytest.raises(ReplayError, match=r"its models would have to be asked again - study them with `counterpoint ef"):
            Replayer(trace, judge)
        run = trace.extra["run"]
        locked = {**run["team"], "live": {n: {**end, "key_env": "NO_SUCH_KEY"} for n, end in run["team"]["live"].items()}}
        shut = msgspec.structs.replace(trace, extra={"run": {**run, "team": locked}})
        done = study([shut], tmp_path / "p.jsonl", design=Design(n_pairs=1))
        assert done.refused == {
            trace.trace_id: "NO_SUCH_KEY: the environment variable holds no key - export NO_SUCH_KEY=… before the run"
        }
        silent = msgspec.structs.replace(trace, extra={"run": {k: v for k, v in run.items() if k != "answers"}})
        with pytest.raises(ReplayError, match="its agents would have to be asked again"):
            replayable(silent)
