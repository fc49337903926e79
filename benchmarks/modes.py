"""Whether failure modes are found that were planted, refused where there are none, and how fast, beside plain HDBSCAN.

`python benchmarks/modes.py [--quick] [--json]`. A planted profile has 24 cells; 6 modes (30 to 7 % of the traces) have half
of their mass in one cell, a third and a fifth in two others; 15 % of the traces are diffuse noise. No seed here was used to
choose the thresholds of `analysis.coherence.modes`.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from rows import Row, command_line, row, show
from sklearn.cluster import HDBSCAN

from analysis.coherence.modes import find_modes
from analysis.coherence.modes.partition import adjusted_rand, shuffled
from analysis.coherence.modes.profiles import Profiles

N_CELLS = 24
SIZES = np.array([0.30, 0.22, 0.18, 0.13, 0.10, 0.07])
FIRST_SEED = 1_000


def profiles_of(matrix: np.ndarray) -> Profiles:
    """Profiles of named traces and cells."""
    cells = tuple(f"implies | planner–worker {n:02d} | late" for n in range(matrix.shape[1]))
    return Profiles(tuple(f"t{n:06d}" for n in range(len(matrix))), cells, matrix.astype(np.float32), "residual")


def planted(n: int, seed: int, *, spread: float = 12, noise: float = 0.15) -> tuple[np.ndarray, np.ndarray]:
    """Profiles around six sparse templates, and the mode of each; -1 for diffuse noise."""
    rng = np.random.default_rng(seed)
    templates = np.full((len(SIZES), N_CELLS), 0.02)
    for template in templates:
        template[rng.choice(N_CELLS, 3, replace=False)] = [0.5, 0.3, 0.2]
    templates /= templates.sum(axis=1, keepdims=True)
    truth = rng.choice(len(SIZES), n, p=SIZES / SIZES.sum())
    drawn = rng.standard_gamma(templates[truth] * spread)
    truth[rng.random(n) < noise] = -1
    drawn[truth < 0] = rng.standard_gamma(np.full(((truth < 0).sum(), N_CELLS), 0.25))
    return drawn / drawn.sum(axis=1, keepdims=True), truth


def recovered(name: str, n: int, seeds: range, *, spread: float, noise: float, goal: float | None) -> list[Row]:
    """Mean agreement with the planted modes, over the traces that belong to one, and the lead over plain HDBSCAN."""
    ours, theirs, ks = [], [], []
    for seed in seeds:
        matrix, truth = planted(n, seed, spread=spread, noise=noise)
        is_planted = truth >= 0
        modes = find_modes(profiles_of(matrix), rng=np.random.default_rng(seed))
        found = modes.members["mode_id"].to_numpy(dtype=str) if modes.n_modes else np.zeros(n, int)
        plain = HDBSCAN(min_cluster_size=max(10, n // 60), min_samples=5, copy=True).fit_predict(matrix)
        ours.append(adjusted_rand(truth[is_planted], found[is_planted]))
        theirs.append(adjusted_rand(truth[is_planted], plain[is_planted]))
        ks.append(modes.n_modes)
    what = f"{name} planted modes, {n} traces, {len(seeds)} corpora: adjusted Rand index"
    mean, peer = float(np.mean(ours)), float(np.mean(theirs))
    detail = f"{what}, mean (least {min(ours):.2f}, number of modes {min(ks)} to {max(ks)})"
    plain_name = "scikit-learn HDBSCAN on the profiles"
    rows = [
        row(
            detail, mean, peer=plain_name, theirs=peer, unit="ARI",
            goal=f">= {goal}" if goal else "shown beside", met=goal is None or mean >= goal,
        )
    ]  # fmt: skip
    if goal:
        rows.append(
            row(f"{what}, lead", mean - peer, peer=plain_name, theirs=None, unit="ARI", goal=">= 0.4", met=mean - peer >= 0.4)
        )
    return rows


def refused(name: str, n: int, seeds: range) -> Row:
    """How often no modes are named where there are none."""
    count = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        matrix = rng.dirichlet(np.full(N_CELLS, 0.25), n) if name == "structureless" else shuffled(planted(n, seed)[0], rng)
        count += find_modes(profiles_of(matrix), rng=rng).n_modes == 0
    least = 19 * len(seeds) // 20
    what = f"{name} profiles refused, of {len(seeds)} corpora of {n}"
    return row(what, float(count), peer="-", theirs=None, unit="corpora", goal=f">= {least}", met=count >= least)


def speed(n: int) -> Row:
    """Wall seconds from profiles to modes: k, stability, null, second view, bootstrap and the assignment of all."""
    profiles = profiles_of(planted(n, FIRST_SEED)[0])
    find_modes(profiles.take(range(200)), rng=np.random.default_rng(0))  # loads the libraries
    started = time.perf_counter()
    modes = find_modes(profiles, rng=np.random.default_rng(0))
    ours = time.perf_counter() - started
    what = f"{n} profiles into {modes.n_modes} modes, learned from {modes.n_sampled}"
    return row(what, ours, peer="-", theirs=None, unit="s", goal="< 30 s", met=ours < 30 and len(modes.members) == n)


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, quick="fewer corpora")
    given = parser.parse_args()
    three, six, twenty = (range(FIRST_SEED, FIRST_SEED + n) for n in (3, 6, 20))
    n = 600 if given.quick else 2_000
    rows = [
        *recovered("clear", 2_000, twenty, spread=12, noise=0.15, goal=0.9),
        *([] if given.quick else recovered("clear", 20_000, three, spread=12, noise=0.15, goal=0.9)),
        *recovered("blurred", n, six if given.quick else twenty, spread=5, noise=0.3, goal=None),
        refused("structureless", n, twenty),
        refused("column-permuted", n, twenty),
        speed(100_000),
    ]
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
