"""What a study of counterfactual replays costs, and how many pairs it takes to find an effect.

`python benchmarks/counterfactual.py [--quick] [--json]`: wall seconds on the workers given. Draws that belong to steps stand
against independent seeds, a race of arms against even pulls, event credit against the outcome of the run it stands in.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.counterfactual.credit import fidelity
from analysis.counterfactual.effects import arriving
from analysis.counterfactual.interventions import interventions
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import Pair, Replayer
from analysis.counterfactual.racing import Arm, top_two
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Job, recipes, run_job
from analysis.counterfactual.sandbox import open_sandbox
from analysis.counterfactual.study import Design, Study, study
from analysis.counterfactual.tasks.shapes import SHAPES
from analysis.counterfactual.teams import ready_teams, team_of
from analysis.model import Trace
from analysis.streams import stream

TEAMS = ("parallel", "hierarchical", "stops-too-early", "echoing-verifier", "pseudo-parallelism")
N_ESTIMATED = 4  # pairs of a decision that its credit is estimated from; the others are held out
_SURE: dict[str, Any] = {"competence": 1.0, "sensitivity": 1.0, "specificity": 1.0, "fidelity": 1.0}

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]


def row(measure: str, ours: float, *, peer: str, theirs: float | None, unit: str, goal: str, met: bool) -> Row:
    """One line of the result; the ratio says how many times better ours is."""
    is_more_better = unit.endswith("/s") or unit == "rank correlation"
    ratio = None if theirs is None or not ours or not theirs else round(ours / theirs if is_more_better else theirs / ours, 2)
    values = {"measure": measure, "ours": round(ours, 4), "peer": peer, "peer_value": theirs and round(theirs, 4), "unit": unit}
    return {**values, "ratio": ratio, "goal": goal, "met": met}


def runs(n_tasks: int, judge: Judge) -> list[Trace]:
    """Runs of several teams, each on a task of its own, over all shapes in turn."""
    shapes, teams = list(SHAPES), ready_teams()
    return [
        run_job(
            Job(recipes(shapes[n % len(shapes)], 1, seed=7, first=n // len(shapes))[0], teams[TEAMS[n % len(TEAMS)]], 1, 7), judge
        )
        for n in range(n_tasks)
    ]


def whole_study(traces: Sequence[Trace], n_pairs: int, workers: int) -> tuple[Row, Row, Study]:
    """A study of five decisions a trace, one of each family, with all its controls."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        done = study(traces, Path(folder) / "pairs.jsonl", design=Design(k=5, n_pairs=n_pairs, n_chosen=0), workers=workers)
        took_s = time.perf_counter() - started
    what = f"{len(traces)} tasks x 5 decisions x {n_pairs} pairs, {workers} processes; controls {'right' if done.is_sound else 'WRONG'}"
    speed = 2 * done.n_made / took_s
    return (
        row(what, took_s / 60, peer="-", theirs=None, unit="minutes", goal="<= 10", met=took_s <= 600 and done.is_sound),
        row("replays, judged and measured", speed, peer="-", theirs=None, unit="replays/s", goal=">= 30", met=speed >= 30),
        done,
    )


def keyed(judge: Judge, n: int) -> Row:
    """Pairs needed to find a planted effect near 0.1 at 5 % with power 80 %, from the variance of the difference."""
    coder = {**_SURE, "competence": 0.9, "faults": {"performance": 0.0}, "effects": {"blind": math.log(4 / 9)}}
    team = team_of(
        {"name": "planted", "about": "", "upstream": "told", "components": {"planner": _SURE, "coder": coder}}, "planted"
    )
    replayer = Replayer(run_job(Job(recipes("chain-3", 1, seed=7)[0], team, 1, 7), judge), judge)
    silence = Intervention("remove-message", "tell:p1:p2")
    pairs = [replayer.pair(silence, seed=1, block="bench", number=k) for k in range(n)]
    q, other = np.array([[pair.q["passed"], pair.q_counterfactual["passed"]] for pair in pairs]).T
    needed = [(1.96 + 0.8416) ** 2 * float((side - q).var()) / 0.1**2 for side in (other, np.roll(other, 1))]
    return row("pairs for an effect of 0.1, a message less", needed[0], peer="independent seeds", theirs=needed[1], unit="pairs",
               goal="at most a third", met=needed[0] <= needed[1] / 3)  # fmt: skip


def adaptive(judge: Judge, n_arms: int, n_pool: int, n_races: int) -> Row:
    """Pairs for each decision found to matter, looked at after every pair: top-two sampling and even pulls, equal budgets."""
    job = Job(recipes("diamond", 1, seed=7)[0], ready_teams()["parallel"], 1, 7)
    replayer = Replayer(run_job(job, judge), judge)
    found = interventions(replayer.plan, k=n_arms, rng=stream(5, "bench"))
    pool = {f"{n:02}": _pool(replayer, one, n_pool) for n, one in enumerate(found)}
    arms = [Arm(f"{n:02}", (one.operator, one.event_id)) for n, one in enumerate(found)]
    n_pulls, n_found = 12 * len(arms), [0, 0]
    for race in range(n_races):
        order = np.argsort(stream(race, "bench", "order").random(n_pool), kind="stable")
        drawn = {key: values[order] for key, values in pool.items()}

        def replay(arm: Arm, n: int, drawn: dict[str, Floats] = drawn) -> tuple[float, float]:
            return float(drawn[arm.key][n % n_pool]), 1.0

        pulled = top_two(arms, replay, n_pulls=n_pulls, floor=2, seed=race).pulls
        for side, n_each in enumerate(({a.key: sum(p.arm == a.key for p in pulled) for a in arms}, dict.fromkeys(drawn, 12))):
            n_found[side] += sum(_is_found(np.resize(drawn[key], n)) for key, n in n_each.items() if n)
    spent = [n_races * n_pulls / n if n else math.inf for n in n_found]
    best, even = spent
    what = f"pairs a decision found, {len(arms)} decisions, {n_pulls} pairs a race; found {n_found[0]} and {n_found[1]}"
    return row(what, best, peer="even pulls", theirs=even if math.isfinite(even) else None, unit="pairs", goal="fewer",
               met=best < even)  # fmt: skip


def _pool(replayer: Replayer, one: Intervention, n: int) -> Floats:
    pairs = [replayer.pair(one, seed=2, block="bench", number=k) for k in range(n)]
    return np.array([pair.q_counterfactual["passed"] - pair.q["passed"] for pair in pairs])


def _is_found(deltas: Floats) -> bool:
    return bool(arriving(deltas)["is_found"].iloc[-1])


def credited(traces: Sequence[Trace], pairs: Sequence[Pair]) -> Row:
    """How well credit of a few pairs orders decisions as held-out pairs do; against the run's outcome for all its events."""
    outcome = {trace.trace_id: float(bool(trace.outcome.passed)) for trace in traces}
    sides: tuple[dict[tuple[str, ...], list[float]], ...] = ({}, {})
    for pair in pairs:
        key = (pair.trace_id, pair.event_id, pair.operator, pair.parameters)
        sides[pair.number >= N_ESTIMATED].setdefault(key, []).append(pair.q["passed"] - pair.q_counterfactual["passed"])
    keys = sorted(sides[0].keys() & sides[1].keys())
    held_out, event = ([float(np.mean(side[key])) for key in keys] for side in (sides[1], sides[0]))
    trajectory, tasks = [outcome[key[0]] for key in keys], [key[0] for key in keys]
    values = []
    for credit in (event, trajectory):
        found = fidelity(credit, held_out, tasks, rng=stream(1, "bench", "fidelity"))
        values.append(0.0 if found is None else found.value)
    return row(f"credit of {len(keys)} decisions from {N_ESTIMATED} pairs against held-out pairs", values[0], peer="outcome of the run",
               theirs=values[1], unit="rank correlation", goal="above the peer", met=values[0] > values[1])  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer tasks and pairs; within two minutes")
    parser.add_argument("--json", action="store_true", help="print the rows as one JSON list")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    n_tasks, n_pairs, n = (15, 8, 150) if given.quick else (100, 12, 1000)
    with open_sandbox() as sandbox:
        judge = Judge(sandbox)
        traces = runs(n_tasks, judge)
        took, speed, done = whole_study(traces, n_pairs, given.workers)
        arms = (8, 30, 10) if given.quick else (16, 100, 40)
        rows = [took, speed, keyed(judge, n), adaptive(judge, *arms), credited(traces, done.pairs)]
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    for r in rows:
        verdict = "met " if r["met"] else "MISS"
        print(
            f"{verdict} {r['measure']}: {r['ours']:.3g} {r['unit']}, ratio {r['ratio']} ({r['goal']}; {r['peer']}: {r['peer_value']})"
        )


if __name__ == "__main__":
    main()
