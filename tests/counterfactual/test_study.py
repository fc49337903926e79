"""A study finds what was planted, says nothing of what was not, keeps its signs, fails its controls where they are wrong."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from analysis.counterfactual.controls import GAIN, IDENTITY, LOSS, PERMUTED, REPLAYED, UNUSED, control_pair, judged
from analysis.counterfactual.effects import arriving, effects
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import Pair, Replayer, pair_frame, q_of
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Budget, Job, recipes, run_job
from analysis.counterfactual.study import CONFIRM, SCREEN, Design, Study, pairs_so_far, study
from analysis.counterfactual.tasks.programs import program
from analysis.counterfactual.teams import Team, ready_teams
from analysis.errors import ReplayError
from analysis.model import Event, Source, Trace, encode
from analysis.pipeline.effects import cell_rows, effect_rows
from tests.counterfactual.players import PERFECT, team

ROOT = Path(__file__).resolve().parents[2]
TEAMS = ready_teams()
#: One who writes a part right with 0.9 if told what it builds on, else with 0.8; wrong sources end quickly.
CODER = {**PERFECT, "competence": 0.9, "faults": {"performance": 0.0}, "effects": {"blind": math.log(4 / 9)}}
TOLD = team({"coder": CODER}, upstream="told")
#: One who is always right if told, and right with 1/2 if not.
SURE = 1 - 2.0**-40
FRAIL = team({"coder": {**CODER, "competence": SURE, "effects": {"blind": -math.log(SURE / (1 - SURE))}}}, upstream="told")
#: The second of three parts is then written by one who was not told.
SILENCE = Intervention("remove-message", "tell:p1:p2")
SMALL = Design(k=3, n_pairs=2, n_confirm=3, n_chosen=3)


def ran(of: Team, judge: Judge, shape: str = "chain-3", number: int = 0) -> Trace:
    """Return a run of a team that can be replayed."""
    return run_job(Job(recipes(shape, 1, seed=7, first=number)[0], of, 1, 7), judge)


def pairs_of(replayer: Replayer, one: Intervention, n: int, *, block: str = SCREEN, first: int = 0) -> list[Pair]:
    """Return pairs of one decision."""
    return [replayer.pair(one, seed=3, block=block, number=number) for number in range(first, first + n)]


def deltas(pairs: list[Pair], metric: str = "passed") -> np.ndarray:
    """Return what each pair did to a metric."""
    return np.array([pair.q_counterfactual[metric] - pair.q[metric] for pair in pairs])


@pytest.mark.parametrize("name", TEAMS)
def test_an_unchanged_plan_gives_the_same_bytes_and_an_unused_branch_the_same_values(name: str, judge: Judge) -> None:
    replayer = Replayer(ran(TEAMS[name], judge), judge)
    pairs = [control_pair(replayer, judge, control, seed=1, number=n) for n in range(2) for control in (IDENTITY, UNUSED)]
    assert [pair.n_changed for pair in pairs] == [0, 1, 0, 1]
    assert all(pair.q == pair.q_counterfactual for pair in pairs)
    assert len({pair.q["makespan_s"] for pair in pairs}) == 2


def passed(replayer: Replayer, one: Intervention, n: int, *, first: int = 0) -> np.ndarray:
    """Return the integrated pass of both runs of each pair, which is quicker than all metrics."""
    arms = [replayer.arms(one, seed) for seed in range(first, first + n)]
    return np.array([[bool(run.outcome.passed) for run in (pair.control, pair.counterfactual)] for pair in arms], dtype=float)


def truth(judge: Judge) -> float:
    """Return what silence does to frail agents, from the programs with each wrong source for the second part."""
    task = recipes("chain-3", 1, seed=7)[0].task()
    right = {node.part: node.function.reference for node in task.nodes}
    wrong = [v.source for v in task.node("p2").function.variants if v.fault != "performance"]
    fails = [not judge.whole(task, program(task, {**right, "p2": source})).passed for source in wrong]
    return -0.5 * sum(fails) / len(fails)


def test_a_planted_effect_has_its_sign_and_its_size(judge: Judge) -> None:
    q, other = passed(Replayer(ran(FRAIL, judge), judge), SILENCE, 200).T
    assert set(q) == {1.0}
    assert truth(judge) < -0.2
    assert float((other - q).mean()) == pytest.approx(truth(judge), abs=3 * 0.5 / math.sqrt(200))


def test_keyed_draws_need_at_most_a_third_of_the_pairs_that_others_need(judge: Judge) -> None:
    q, other = passed(Replayer(ran(TOLD, judge), judge), SILENCE, 200).T
    assert set(other - q) == {-1.0, 0.0}  # what is less likely right is never right instead
    assert (other - q).var() <= (np.roll(other, 1) - q).var() / 3


def _covers(replayer: Replayer, wanted: float, repeats: int, n: int) -> float:
    covered = 0
    for repeat in range(repeats):
        q = passed(replayer, SILENCE, n, first=repeat * n)
        row = effects(_frame(q)).iloc[0]
        covered += bool(row["low"] <= wanted <= row["high"])
    return covered / repeats


def _frame(q: np.ndarray) -> pd.DataFrame:
    keys = {"trace_id": "t", "task": "t", "event_id": "e", "event_kind": "communicate", "operator": "remove-message"}
    rest = {"parameters": "{}", "metric": "passed", "seed_block": SCREEN, "world": "simulated", "evidence": "interventional"}
    return pd.DataFrame({"q": q[:, 0], "q_counterfactual": q[:, 1]}).assign(**keys, **rest, cost=0.0)


def test_intervals_hold_the_planted_effect(judge: Judge) -> None:
    assert _covers(Replayer(ran(FRAIL, judge), judge), truth(judge), 15, 30) >= 12 / 15


@pytest.mark.soak
def test_intervals_hold_the_planted_effect_as_often_as_they_say(judge: Judge) -> None:
    assert 0.93 <= _covers(Replayer(ran(FRAIL, judge), judge), truth(judge), 500, 40) <= 0.97


def _rejects(judge: Judge, repeats: int, n: int) -> float:
    """How often a change between equals is found to do something by one who looks after every pair."""
    replayer = Replayer(ran(msgspec.structs.replace(FRAIL, upstream="blind"), judge), judge)
    q = passed(replayer, Intervention("assign", "give:p2", {"to": "coder-3"}), repeats * n)
    delta_q = (q[:, 1] - q[:, 0]).reshape(repeats, n)
    assert set(delta_q.ravel()) == {-1.0, 0.0, 1.0}
    return float(np.mean([arriving(row)["is_found"].iloc[-1] for row in delta_q]))


def test_looking_after_every_pair_finds_nothing_between_equals(judge: Judge) -> None:
    assert _rejects(judge, 50, 15) <= 0.05


@pytest.mark.soak
def test_looking_after_every_pair_finds_nothing_between_equals_in_500_repeats(judge: Judge) -> None:
    assert _rejects(judge, 500, 40) <= 0.05


def test_a_useless_verifier_can_go_and_a_useful_one_cannot(judge: Judge) -> None:
    weak = {**CODER, "competence": 0.6}
    earlier = Intervention("stop-earlier", "merge")
    found = {}
    for how in ("echo", "tests"):
        checked = team({"coder": weak, "tester": PERFECT}, upstream="blind", verifier="tester", checks=how, n_repairs=1)
        traces = [ran(checked, judge, number=number) for number in range(4)]
        found[how] = [pair for trace in traces for pair in pairs_of(Replayer(trace, judge), earlier, 4)]
    assert set(deltas(found["echo"])) == {0.0}
    assert (deltas(found["echo"], "makespan_s") < 0).all()
    assert set(deltas(found["tests"])) == {-1.0, 0.0}


def test_a_merge_that_does_without_a_result_loses_what_the_run_had(judge: Judge) -> None:
    for pair in pairs_of(Replayer(ran(TOLD, judge), judge), Intervention("advance", "merge", {"without": "write:p3"}), 5):
        assert pair.q_counterfactual["passed"] == 0.0
        assert (pair.event_kind, pair.evidence, pair.world) == ("aggregate", "interventional", "simulated")
        assert 0 < pair.cost_tokens < pair.q["tokens"] + pair.q_counterfactual["tokens"]  # the prefix costs nothing


def test_credit_has_the_other_sign_of_delta_q(judge: Judge) -> None:
    pairs = pairs_of(Replayer(ran(TOLD, judge), judge), SILENCE, 60)
    rows = {row["metric"]: row for row in effect_rows(pair_frame(pairs), seed=0)}
    assert rows["passed"]["delta_q"] < 0 < rows["passed"]["credit"]  # the message was worth something
    assert rows["tokens"]["delta_q"] < 0 < rows["tokens"]["credit"]
    assert all(row["credit"] == -row["delta_q"] for row in rows.values())
    cells = cell_rows(pair_frame(pairs), seed=0)
    assert all(cell["credit"] == -cell["delta_q"] for cell in cells)


def test_a_study_goes_on_where_its_budget_ended_and_nothing_is_made_twice(judge: Judge, tmp_path: Path) -> None:
    traces = [ran(TEAMS["parallel"], judge)]
    whole, halved = tmp_path / "whole.jsonl", tmp_path / "halved.jsonl"
    once = study(traces, whole, design=SMALL)
    assert (once.n_there, once.n_left, once.is_sound) == (0, 0, True)
    n_stops = 0
    while (part := study(traces, halved, design=msgspec.structs.replace(SMALL, budget=Budget(tokens=30_000)))).n_left:
        n_stops += 1
        with halved.open("ab") as file:
            file.write(b'{"seed": 0, "key": ["cou')  # as a crash leaves it
    assert n_stops > 0
    assert halved.read_bytes() == whole.read_bytes()
    assert part.pairs == once.pairs
    again = study(traces, whole, design=SMALL)
    assert (again.n_made, again.n_there, again.n_tokens) == (0, once.n_made, 0)
    assert again.controls == once.controls


RACE = Design(k=6, n_pairs=3, n_confirm=4, n_chosen=2, allocation="racing")


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def test_a_race_goes_on_where_its_budget_ended_and_ends_like_one_that_went_through(judge: Judge, tmp_path: Path) -> None:
    traces = [ran(TEAMS[name], judge) for name in ("parallel", "stops-too-early")]
    whole, halved = tmp_path / "whole.jsonl", tmp_path / "halved.jsonl"
    once = study(traces, whole, design=RACE)
    assert (once.n_left, once.is_sound) == (0, True)
    part, left = study(traces, halved, design=msgspec.structs.replace(RACE, budget=Budget(tokens=90_000))), list[int]()
    while part.n_left:
        left.append(part.n_left)
        with halved.open("ab") as file:
            file.write(b'{"seed": 0, "key": ["cou')  # as a crash leaves it
        part = study(traces, halved, design=msgspec.structs.replace(RACE, budget=Budget(tokens=90_000)))
    assert left == sorted(left, reverse=True)
    assert len(left) > 1
    assert halved.read_bytes() == whole.read_bytes()
    assert (part.pairs, part.controls, part.notes) == (once.pairs, once.controls, once.notes)


def test_a_race_confirms_on_fresh_seeds_what_matters_and_says_how_its_pairs_were_chosen(judge: Judge, tmp_path: Path) -> None:
    traces = [ran(TOLD, judge), ran(TEAMS["stops-too-early"], judge)]
    done = study(traces, tmp_path / "p.jsonl", design=msgspec.structs.replace(RACE, operators=("advance", "aggregate", "assign")))
    screened = [line for line in lines_of(tmp_path / "p.jsonl") if line["key"][4] == SCREEN]
    assert all(0 < line["p_chosen"] <= 1 and line["why"] in ("floor", "open", "turn", "lot") for line in screened)
    assert not any("p_chosen" in line for line in lines_of(tmp_path / "p.jsonl") if line["key"][4] != SCREEN)
    confirmed = {(pair.operator, pair.parameters) for pair in done.pairs if pair.seed_block == CONFIRM}
    assert confirmed <= {("advance", json.dumps({"without": f"write:p{n}"})) for n in (1, 2, 3)}
    assert len(confirmed) == 2
    seeds = [{(pair.trace_id, pair.q["makespan_s"]) for pair in done.pairs if pair.seed_block == b} for b in (SCREEN, CONFIRM)]
    assert not seeds[0] & seeds[1]
    assert "a race allotted the pairs" in done.notes[-1]
    assert done.notes[0].endswith("decisions were left out: they change nothing, or the same as another")


def test_of_a_race_no_screening_has_an_interval_and_a_cell_counts_each_decision_once(judge: Judge, tmp_path: Path) -> None:
    design = msgspec.structs.replace(RACE, operators=("advance",), n_pairs=8, n_confirm=8)
    done = study([ran(TOLD, judge)], tmp_path / "p.jsonl", design=design)
    frame = pair_frame(done.pairs)
    rows = effect_rows(frame, seed=0, allocation="racing")
    blocks = {block: [row for row in rows if row["seed_block"] == block] for block in (SCREEN, CONFIRM)}
    assert all(row["low"] is row["high"] is row["q_value"] is None for row in blocks[SCREEN])
    assert any(row["low"] is not None for row in blocks[CONFIRM])
    (cell,) = [cell for cell in cell_rows(frame, seed=0, allocation="racing") if cell["metric"] == "passed"]
    n_decisions = len({(pair.event_id, pair.parameters) for pair in done.pairs})
    assert (cell["n"], cell["delta_q"]) == (n_decisions, -1.0)
    assert cell["n"] < len(frame[(frame["metric"] == "passed") & (frame["seed_block"] == SCREEN)])


RACER = """
import sys
from pathlib import Path
from analysis.counterfactual.study import Design, study
from analysis.model import decode
if __name__ == "__main__":
    traces = [decode(line) for line in Path(sys.argv[1]).read_bytes().splitlines()]
    design = Design(k=6, n_pairs=3, n_confirm=4, n_chosen=2, allocation="racing")
    study(traces, Path(sys.argv[2]), design=design, workers=int(sys.argv[3]))
"""


def _killed_at(n_lines: int, command: list[str], out: Path) -> None:
    """Start a study and kill it, and it alone, once its file has so many lines."""
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    while process.poll() is None and (not out.exists() or out.read_bytes().count(b"\n") < n_lines):
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize(
    ("workers", "kills"), [(1, (14,)), *[pytest.param(n, tuple(range(9, 40, 6)), marks=pytest.mark.soak) for n in (1, 2)]]
)
def test_a_race_that_is_killed_leaves_the_bytes_of_one_that_went_through(
    workers: int, kills: tuple[int, ...], judge: Judge, tmp_path: Path
) -> None:
    traces = [ran(TEAMS[name], judge) for name in ("parallel", "stops-too-early")]
    (tmp_path / "runs.jsonl").write_bytes(b"".join([encode(trace) + b"\n" for trace in traces]))
    script, out, whole = tmp_path / "racer.py", tmp_path / "killed.jsonl", tmp_path / "whole.jsonl"
    script.write_text(RACER)
    command = [sys.executable, str(script), str(tmp_path / "runs.jsonl"), str(out), str(workers)]
    for n_lines in kills:
        _killed_at(n_lines, command, out)
        assert b"\n" in out.read_bytes()
    done = study(traces, out, design=RACE)
    assert done.n_there >= kills[-1]
    once = study(traces, whole, design=RACE)
    assert out.read_bytes() == whole.read_bytes()
    assert done._replace(n_made=0, n_there=0, n_tokens=0) == once._replace(n_made=0, n_there=0, n_tokens=0)


def test_the_pairs_of_a_study_under_way_can_be_read_and_its_file_is_left_alone(judge: Judge, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    assert pairs_so_far(file, 0) == []
    done: Study = study([ran(TEAMS["single"], judge)], file, design=msgspec.structs.replace(SMALL, n_confirm=0))
    torn = file.read_bytes() + b'{"seed": 0, "key": ["cou'
    file.write_bytes(torn)
    assert pairs_so_far(file, 0) == list(done.pairs)
    assert pairs_so_far(file, 1) == []
    assert file.read_bytes() == torn


def test_two_processes_find_what_one_does(judge: Judge, tmp_path: Path) -> None:
    traces = [ran(TEAMS[name], judge) for name in ("parallel", "single")]
    design = msgspec.structs.replace(SMALL, n_pairs=1, n_chosen=1, n_confirm=1)
    for n in (1, 2):
        study(traces, tmp_path / f"{n}.jsonl", design=design, workers=n)
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()


def test_a_study_refuses_what_it_cannot_execute_and_does_the_rest(judge: Judge, tmp_path: Path) -> None:
    recorded = Trace(trace_id="t", world="recorded", source=Source(format="x"), events=(Event(event_id="a", kind="act"),))
    done = study([recorded, ran(TEAMS["single"], judge)], tmp_path / "pairs.jsonl", design=SMALL)
    assert list(done.refused) == ["t"]
    assert done.refused["t"].startswith("t: the trace does not say by which plan it was made")
    assert {pair.seed_block for pair in done.pairs} <= {SCREEN, CONFIRM}
    assert done.pairs
    nothing = study([recorded], tmp_path / "nothing.jsonl", design=SMALL)
    assert (nothing.pairs, nothing.controls, nothing.is_sound) == ((), (), True)


def test_a_file_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"trace_id": "x"}\n')
    with pytest.raises(ReplayError, match=r"pairs.jsonl:1: the line is no pair; pairs are not appended here"):
        study([], file, design=SMALL)
    assert file.read_text() == '{"trace_id": "x"}\n'


def test_fresh_seeds_confirm_what_is_there_and_only_that(judge: Judge, tmp_path: Path) -> None:
    early = TEAMS["stops-too-early"]
    design = Design(operators=("advance", "delay"), k=6, n_pairs=5, n_confirm=8, n_chosen=3)
    done = study([ran(TOLD, judge), ran(early, judge)], tmp_path / "p.jsonl", design=design)
    rows = effect_rows(pair_frame(done.pairs), seed=0)
    confirmed = [row for row in rows if row["confirmed"] and row["metric"] == "passed"]
    fresh = {(row["trace_id"], row["event_id"], row["parameters"]): row for row in confirmed if row["seed_block"] == CONFIRM}
    assert fresh
    assert len(confirmed) == 2 * len(fresh)
    for row in confirmed:
        assert np.sign(row["delta_q"]) == np.sign(fresh[row["trace_id"], row["event_id"], row["parameters"]]["delta_q"])
    assert {(row["operator"], np.sign(row["delta_q"])) for row in confirmed} <= {("advance", -1.0), ("delay", 1.0)}


def test_a_batch_with_wrong_controls_is_marked(judge: Judge) -> None:
    replayer = Replayer(ran(TEAMS["single"], judge), judge)
    pairs = [control_pair(replayer, judge, name, seed=1, number=0) for name in REPLAYED]
    assert [(c.name, c.ok) for c in judged(pairs, seed=0)] == [(name, True) for name in (*REPLAYED, PERMUTED)]
    assert [deltas([pair])[0] for pair in pairs] == [0, 0, -1, 1]
    swapped = [
        msgspec.structs.replace(pair, q=pair.q_counterfactual, q_counterfactual=pair.q) if pair.operator in (LOSS, GAIN) else pair
        for pair in pairs
    ]
    assert {c.name: c.ok for c in judged(swapped, seed=0)} == {
        IDENTITY: True, UNUSED: True, LOSS: False, GAIN: False, PERMUTED: True,
    }  # fmt: skip
    shaken = [msgspec.structs.replace(pair, n_changed=1) for pair in pairs]
    assert {c.name: c.ok for c in judged(shaken, seed=0)}[IDENTITY] is False
    assert all(not control.ok for control in judged([], seed=0)[:4])


def test_a_run_without_a_metric_says_nothing_of_it(judge: Judge) -> None:
    trace = ran(TEAMS["single"], judge)
    assert "q_aggregate" not in q_of(trace)
    pairs = pairs_of(Replayer(trace, judge), Intervention("delay", "stop", {"x": 1}), 3)
    assert set(pair_frame(pairs)["metric"]) == {"passed", "q_parallel_self", "q_work", "tokens", "makespan_s"}
