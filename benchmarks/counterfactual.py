"""What a study of counterfactual replays costs, and how many pairs it takes to find an effect.

`python benchmarks/counterfactual.py [--quick] [--json]`: wall seconds on the workers given. Draws that belong to steps stand
against independent seeds, the race of a study against other ways to spend a budget, event credit against the outcome of the run
it stands in. Races are run on the pairs of the study, drawn with replacement, so that what is true is known.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rows import Row, command_line, row, show

from analysis.counterfactual.allotting import DELTA, is_suggested, picks
from analysis.counterfactual.credit import fidelity
from analysis.counterfactual.effects import effects
from analysis.counterfactual.interventions import plan_of
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import Pair, Replayer
from analysis.counterfactual.pruning import prune_plan
from analysis.counterfactual.racing import Arm, cheap_prior, successive_halving, top_two
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Job, recipes, run_job
from analysis.counterfactual.sandbox import open_sandbox
from analysis.counterfactual.study import Design, Study, study
from analysis.counterfactual.tasks.shapes import SHAPES
from analysis.counterfactual.teams import Team, ready_teams, team_of
from analysis.model import Trace
from analysis.orchestration.timing import timing
from analysis.streams import stream

TEAMS = ("parallel", "hierarchical", "stops-too-early", "echoing-verifier", "pseudo-parallelism")
N_ESTIMATED = 4  # pairs of a decision that its credit is estimated from; the others are held out
N_SCREENED, N_CONFIRMED = 4, 16  # pairs of a decision at most, before it is confirmed and while it is
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


Screened = dict[str, list[float]]


class Pool:
    """The decisions of a study, and what each of their pairs did to the integrated pass, to be drawn from."""

    def __init__(self, traces: Sequence[Trace], pairs: Sequence[Pair]) -> None:
        self.deltas: dict[str, list[float]] = {}
        found: dict[str, Arm] = {}
        prior = {trace.trace_id: cheap_prior(timing(trace)) for trace in traces}
        ones: dict[str, dict[str, Intervention]] = {}
        for pair in pairs:
            key = " ".join([pair.trace_id, pair.event_id, pair.operator, pair.parameters])
            self.deltas.setdefault(key, []).append(pair.q_counterfactual["passed"] - pair.q["passed"])
            found[key] = Arm(key, (pair.operator, pair.event_kind), prior[pair.trace_id].get(pair.event_id, 0.0))
            one = Intervention(pair.operator, pair.event_id, json.loads(pair.parameters))
            ones.setdefault(pair.trace_id, {})[key] = one
        kept = {(trace.trace_id, one.event_id, one.operator, one.key) for trace in traces
                for one in prune_plan(plan_of(trace), ones.get(trace.trace_id, {}).values()).kept}  # fmt: skip
        self.arms = [found[key] for name, mine in ones.items() for key, one in mine.items()
                     if (name, one.event_id, one.operator, one.key) in kept]  # fmt: skip

    def drawn(self, race: int, block: str, n: int) -> dict[str, Floats]:
        """Return n differences of each decision, the same for all rules of a race."""
        return {arm.key: stream(race, "bench", block, arm.key).choice(self.deltas[arm.key], n) for arm in self.arms}

    def n_confirmed(self, race: int, screened: Screened, chosen: Sequence[str]) -> int:
        """Return how many decisions fresh pairs confirm, as a study does."""
        fresh, cell = self.drawn(race, "confirm", N_CONFIRMED), {arm.key: arm.cell for arm in self.arms}
        if not chosen:
            return 0
        same = {"parameters": "", "metric": "passed", "q": 0.0, "seed_block": "confirm", "world": "simulated", "cost": 1.0}
        rows = [
            {"trace_id": key, "task": key, "event_id": key, "operator": cell[key][0], "event_kind": cell[key][1],
             "q_counterfactual": delta, "evidence": "interventional", **same}
            for key in chosen for delta in fresh[key]
        ]  # fmt: skip
        found = effects(pd.DataFrame(rows))
        agrees = np.array([row.delta_q * sum(screened[row.trace_id]) > 0 for row in found.itertuples()])
        return int(((found["q_value"] <= 0.05) & agrees).sum())


def by_race(pool: Pool, drawn: dict[str, Floats], n_pairs: int, seed: int) -> tuple[Screened, list[str]]:
    """Spend a budget as `study` does: what seems to matter is confirmed at once."""
    screened: Screened = {arm.key: [] for arm in pool.arms}
    chosen: list[str] = []
    while sum(map(len, screened.values())) + N_CONFIRMED * len(chosen) < n_pairs:
        chosen += [key for key, d in screened.items() if key not in chosen and is_suggested(d, N_SCREENED)]
        for pick in picks(pool.arms, screened, most=N_SCREENED, seed=seed):
            screened[pick.arm.key].append(float(drawn[pick.arm.key][pick.n]))
    return screened, chosen


def by_halves(pool: Pool, drawn: dict[str, Floats], n_pairs: int, rule: str, seed: int) -> tuple[Screened, list[str]]:
    """Spend half of a budget by a rule, and confirm with the other half what comes out first."""
    screened: Screened = {arm.key: [] for arm in pool.arms}

    def replay(arm: Arm, n: int) -> tuple[float, float]:
        screened[arm.key].append(float(drawn[arm.key][n % len(drawn[arm.key])]))
        return screened[arm.key][-1], 1.0

    if rule == "even pulls":
        order = stream(seed, "bench", "order").permutation(len(pool.arms))
        for n in range(n_pairs // 2):
            replay(pool.arms[order[n % len(order)]], n // len(order))
        ranking = sorted(screened, key=lambda key: -abs(sum(screened[key])) / (len(screened[key]) + 1))
    elif rule == "successive halving":
        ranking = list(successive_halving(pool.arms, replay, n_pulls=n_pairs // 2).ranking)
    else:
        ranking = list(top_two(pool.arms, replay, n_pulls=n_pairs // 2, seed=seed).ranking)
    return screened, [key for key in ranking if sum(screened[key])][: n_pairs // 2 // N_CONFIRMED]


def raced(pool: Pool, n_races: int) -> list[Row]:
    """Pairs for each effect that is confirmed, with as many pairs in all as there are decisions; none where none matters."""
    n_matter = sum([abs(float(np.mean(pool.deltas[arm.key]))) >= DELTA for arm in pool.arms])
    if not n_matter:
        return []
    n_pairs, rules = len(pool.arms), ("even pulls", "successive halving", "top-two sampling")
    n_found = dict.fromkeys(("race", *rules), 0)
    for race in range(n_races):
        drawn = pool.drawn(race, "screen", N_SCREENED + n_pairs // 2)
        ways = {"race": by_race(pool, drawn, n_pairs, race)}
        ways |= {rule: by_halves(pool, drawn, n_pairs, rule, race) for rule in rules}
        for name, (screened, chosen) in ways.items():
            n_found[name] += pool.n_confirmed(race, screened, chosen)
    each = {name: n_races * n_pairs / n if n else math.inf for name, n in n_found.items()}
    what = (
        f"pairs for each effect confirmed, {n_pairs} pairs for {n_pairs} decisions, {n_matter} of which matter, {n_races} races"
    )
    return [
        row(what, each["race"], peer=rule, theirs=each[rule], unit="pairs", goal="fewer", met=each["race"] < each[rule])
        for rule in rules
    ]


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
        races = raced(Pool(traces, done.pairs), 2 if given.quick else 10)
        rows = [took, speed, keyed(judge, n), *races, credited(traces, done.pairs)]
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
