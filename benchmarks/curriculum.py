"""How hard real tasks are for real models, how sure that is, and how alike models rank tasks, from two public pass tables.

`python benchmarks/curriculum.py [--quick] [--json]`. The tables lie in ../shared/benchmarks/pass-rates: EvalPerf's pass
counts (Apache-2.0) and LiveCodeBench's self-repair pass rates (CC BY-SA 4.0, 10 samples each). Peers are
scipy's Beta quantiles, and its `spearmanr` on the raw pass rates, pair by pair.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from rows import Row, command_line, row, show
from scipy.stats import beta, spearmanr

from analysis.curation.curriculum.joint import Tried, fit_joint
from analysis.curation.curriculum.pass_tables import PassRow, read_pass_table
from analysis.curation.curriculum.requirement import d_req, rank_correlations
from analysis.curation.curriculum.schedule import Schedule, effective_sample_size, kernel_weights

FOLDER = Path(__file__).resolve().parents[2] / "shared/benchmarks/pass-rates"
#: file, attempts where no column states them, tasks, models, and as `orchestration.md` 2.3 reports them the share of
#: cells with 0.2 <= p <= 0.8 and the mean, least and largest Spearman
TABLES = {
    "EvalPerf": ("evalperf_task_pass_counts.csv.gz", None, 118, 34, 0.21, (0.54, 0.16, 0.87)),
    "LiveCodeBench self-repair": ("lcb_self_repair_pass_at_1.csv.gz", 10, 713, 17, 0.095, (0.72, 0.40, None)),
}


def table(name: str) -> list[Row]:
    """Intervals, rank correlations and the informative band of one pass table."""
    file, n_attempts, n_tasks, n_models, band, reported = TABLES[name]
    started = time.process_time()
    rows = read_pass_table(FOLDER / file, n_attempts=n_attempts)
    found = [d_req(one.n_passed, one.n) for one in rows]
    ours = time.process_time() - started
    intervals = np.array([(one.value, one.low, one.high) for one in found if one is not None])
    frame = pd.DataFrame(rows).assign(d_req=intervals[:, 0])
    size = f"{frame['task_id'].nunique()} tasks x {frame['model'].nunique()} models"
    is_whole = (frame["task_id"].nunique(), frame["model"].nunique()) == (n_tasks, n_models)
    width = float((intervals[:, 2] - intervals[:, 1]).mean())
    taught = float((frame["n_passed"] / frame["n"]).between(0.2, 0.8).mean())
    return [
        row(f"{name}: {size}, with intervals", ours, peer="-", theirs=None, unit="s", goal="< 5 s", met=ours < 5 and is_whole),
        row(
            f"{name}: mean width of the 95 % interval of d_req", width, peer="scipy's Beta quantiles",
            theirs=float(_jeffreys(rows).mean()), unit="d_req", goal="the same", met=abs(width - _jeffreys(rows).mean()) < 1e-9,
        ),
        row(
            f"{name}: cells with 0.2 <= p <= 0.8, where a task can teach", taught, peer="-",
            theirs=None, unit="share", goal=f"reported {band}", met=abs(taught - band) < 0.005,
        ),
        *_correlations(name, frame, reported),
    ]  # fmt: skip


def _jeffreys(rows: list[PassRow]) -> np.ndarray:
    n, c = np.array([(one.n, one.n_passed) for one in rows], dtype=float).T
    return beta.ppf(0.975, c + 0.5, n - c + 0.5) - beta.ppf(0.025, c + 0.5, n - c + 0.5)


def _correlations(name: str, frame: pd.DataFrame, reported: tuple[float | None, ...]) -> list[Row]:
    """Mean, least and largest rank correlation between models, beside pair-by-pair `spearmanr` of the raw rates."""
    found = rank_correlations(frame).to_numpy()
    pairs = found[np.triu_indices_from(found, 1)]
    rates = frame.assign(p=frame["n_passed"] / frame["n"]).pivot(index="task_id", columns="model", values="p").to_numpy()
    theirs = []
    for a, b in zip(*np.triu_indices(rates.shape[1], 1), strict=True):
        both = ~np.isnan(rates[:, [a, b]]).any(axis=1)
        theirs.append(spearmanr(rates[both, a], rates[both, b]).statistic)
    words = (("mean", np.mean), ("least", np.min), ("largest", np.max))
    return [
        row(
            f"{name}: {word} rank correlation of difficulty between models", float(of(pairs)), peer="spearmanr on pass rates",
            theirs=float(of(theirs)), unit="rank correlation", goal="shown" if goal is None else f"reported {goal}",
            met=goal is None or abs(float(of(pairs)) - goal) < 0.01,
        )
        for (word, of), goal in zip(words, reported, strict=True)
    ]  # fmt: skip


def interaction(n_corpora: int) -> Row:
    """How often the test of b3 = 0 rejects where it holds, tasks being unlike each other beyond their difficulty."""
    n_rejected = 0
    for seed in range(n_corpora):
        rng = np.random.default_rng(1_000 + seed)
        cells = []
        for task in range(24):
            hard, luck = rng.random(), rng.normal(0, 0.8)
            for _ in range(6):
                orch = rng.random()
                p_fail = 1 / (1 + np.exp(-(-2 + 2.5 * hard + 1.5 * orch + luck)))
                cells.append(Tried(f"t{task}", 8, int((rng.random(8) >= p_fail).sum()), float(orch)))
        n_rejected += (fit_joint(cells, rng=rng).p_interaction or 1.0) < 0.05
    share = n_rejected / n_corpora
    most = 0.05 + 3 * (0.05 * 0.95 / n_corpora) ** 0.5
    what = f"interaction test, no interaction: rejected at 5 %, of {n_corpora} corpora"
    return row(what, share, peer="-", theirs=None, unit="share", goal=f"<= {most:.3f}", met=share <= most)


def schedule(n: int) -> Row:
    """Seconds for the weights of many tasks at 101 points of progress, with their effective sample sizes."""
    difficulty = np.random.default_rng(3).random(n)
    started = time.process_time()
    sizes = [effective_sample_size(kernel_weights(difficulty, u / 100, Schedule())) for u in range(101)]
    ours = time.process_time() - started
    what = f"weights of {n:,} tasks at 101 points; least effective sample size {min(sizes):,.0f}"
    return row(what, ours, peer="-", theirs=None, unit="s", goal="< 2 s", met=ours < 2)


def main() -> None:
    """Measure and print."""
    given = command_line(__doc__, quick="fewer corpora").parse_args()
    rows = [one for name in TABLES if (FOLDER / TABLES[name][0]).exists() for one in table(name)]
    rows += [interaction(200 if given.quick else 1_000), schedule(100_000)]
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
