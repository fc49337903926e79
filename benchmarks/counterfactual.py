"""What a study of counterfactual replays costs, and how many pairs it takes to find an effect.

`python benchmarks/counterfactual.py [--quick] [--json]`: wall seconds on the workers given. Draws that belong to steps stand
against independent seeds, a race of arms against even pulls, event credit against the outcome of the run it stands in.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rows import Row, command_line, row, show

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
from analysis.counterfactual.teams import Team, ready_teams, team_of
from analysis.model import Trace
from analysis.streams import stream

TEAMS = ("parallel", "hierarchical", "stops-too-early", "echoing-verifier", "pseudo-parallelism")
N_ESTIMATED = 4  # pairs of a decision that its credit is estimated from; the others are held out
_SURE: dict[str, Any] = {"competence": 1.0, "sensitivity": 1.0, "specificity": 1.0, "fidelity": 1.0}

Floats = npt.NDArray[np.float64]


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
    controls = "right" if done.is_sound else "WRONG"
    what = f"{len(traces)} tasks x 5 decisions x {n_pairs} pairs, {workers} processes; controls {controls}"
    speed = 2 * done.n_made / took_s
    return (
        row(what, took_s / 60, peer="-", theirs=None, unit="minutes", goal="<= 10", met=took_s <= 600 and done.is_sound),
        row("replays, judged and measured", speed, peer="-", theirs=None, unit="replays/s", goal=">= 30", met=speed >= 30),
        done,
    )


def planted(fidelity: float) -> Team:
    """A team that nobody checks: workers do better if told what they build on, and the lead may lose a part in a merge."""
    coder = {**_SURE, "competence": 0.9, "faults": {"performance": 0.0}, "effects": {"blind": math.log(4 / 9)}}
    components = {"planner": {**_SURE, "fidelity": fidelity}, "coder": coder}
    return team_of({"name": "planted", "about": "", "upstream": "told", "components": components}, "planted")


def keyed(judge: Judge, n: int) -> Row:
    """Pairs needed to find a planted effect near 0.1 at 5 % with power 80 %, from the variance of the difference."""
    replayer = Replayer(run_job(Job(recipes("chain-3", 1, seed=7)[0], planted(1.0), 1, 7), judge), judge)
    silence = Intervention("remove-message", "tell:p1:p2")
    pairs = [replayer.pair(silence, seed=1, block="bench", number=k) for k in range(n)]
    q, other = np.array([[pair.q["passed"], pair.q_counterfactual["passed"]] for pair in pairs]).T
    needed = [(1.96 + 0.8416) ** 2 * float((side - q).var()) / 0.1**2 for side in (other, np.roll(other, 1))]
    return row("pairs for an effect of 0.1, a message less", needed[0], peer="independent seeds", theirs=needed[1], unit="pairs",
               goal="at most a third", met=needed[0] <= needed[1] / 3)  # fmt: skip


def adaptive(judge: Judge, n_null: int, n_pool: int, n_races: int) -> Row:
    """Pairs until a first decision is found to matter, looked at after every pair: top-two sampling and even pulls.

    Four of the decisions matter, merges without one result; the others are drawn from all that the plan allows.
    """
    job = Job(recipes("diamond", 1, seed=7)[0], planted(0.8), 1, 7)
    replayer = Replayer(run_job(job, judge), judge)
    every = interventions(replayer.plan, rng=stream(5, "bench"))
    matter = [one for one in every if one.operator == "advance" and one.event_id == "merge"]
    null = interventions(
        replayer.plan, operators=("communication", "assignment", "aggregation"), k=n_null, rng=stream(5, "bench")
    )
    arms = [Arm(f"{n:02}", (one.operator, one.event_id)) for n, one in enumerate((*matter, *null))]
    pool = {arm.key: _pool(replayer, one, n_pool) for arm, one in zip(arms, (*matter, *null), strict=True)}
    even, n_pulls = [arm.key for _ in range(n_pool) for arm in arms], 20 * len(arms)
    spent: tuple[list[int], list[int]] = ([], [])
    for race in range(n_races):
        order = np.argsort(stream(race, "bench", "order").random(n_pool), kind="stable")
        drawn = {key: values[order] for key, values in pool.items()}

        def replay(arm: Arm, n: int, drawn: dict[str, Floats] = drawn) -> tuple[float, float]:
            return float(drawn[arm.key][n % n_pool]), 1.0

        pulled = [pull.arm for pull in top_two(arms, replay, n_pulls=n_pulls, floor=2, seed=race).pulls]
        for side, keys in zip(spent, (pulled, even[:n_pulls]), strict=True):
            side.append(_until_found(keys, drawn))
    ours, theirs = (float(np.median(side)) for side in spent)
    what = f"pairs until a decision is found to matter, median of {n_races} races of {len(arms)}, of which {len(matter)} matter"
    return row(what, ours, peer="even pulls", theirs=theirs, unit="pairs", goal="fewer", met=ours < theirs)


def _until_found(keys: Sequence[str], drawn: dict[str, Floats]) -> int:
    """Return after how many pulls one arm's evidence is enough; all of them where none is."""
    places: dict[str, list[int]] = {}
    for n, key in enumerate(keys, 1):
        places.setdefault(key, []).append(n)
    found = [len(keys)]
    for key, at in places.items():
        is_found = arriving(np.resize(drawn[key], len(at)))["is_found"].to_numpy()
        found += [at[n] for n in np.flatnonzero(is_found)[:1]]
    return min(found)


def _pool(replayer: Replayer, one: Intervention, n: int) -> Floats:
    pairs = [replayer.pair(one, seed=2, block="bench", number=k) for k in range(n)]
    return np.array([pair.q_counterfactual["passed"] - pair.q["passed"] for pair in pairs])


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
    what = f"credit of {len(keys)} decisions from {N_ESTIMATED} pairs, against held-out pairs"
    return row(what, values[0], peer="outcome of the run", theirs=values[1], unit="rank correlation", goal="above the peer",
               met=values[0] > values[1])  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, quick="fewer tasks and pairs")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    n_tasks, n_pairs, n = (15, 12, 150) if given.quick else (100, 12, 1000)
    with open_sandbox() as sandbox:
        judge = Judge(sandbox)
        traces = runs(n_tasks, judge)
        took, speed, done = whole_study(traces, n_pairs, given.workers)
        arms = (6, 30, 10) if given.quick else (16, 100, 40)
        rows = [took, speed, keyed(judge, n), adaptive(judge, *arms), credited(traces, done.pairs)]
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
