"""How fast and how exact the coherence engine is, side by side with what a user would take instead.

`python benchmarks/coherence.py [--quick] [--json]`: CPU seconds, peers on a stated random sample scaled per item.
Peers beyond cvxpy, clarabel, OSQP and scipy come with the extra `bench`; which ran stands in `peer`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import cvxpy as cp
import numpy as np
from rows import Row, command_line, row, seconds, show
from scipy import sparse
from scipy.optimize import nnls

from analysis.coherence import games, wolfe
from analysis.coherence.cliques import Clique, Quote, tie
from analysis.coherence.projection import POSITIVE
from analysis.coherence.relations import bounds, parse
from analysis.coherence.table import QuoteTable, project_table

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = (
    ("ab", ["a ^ b"]), ("ab", ["implies(a, b)"]), ("abc", ["exactly_one(a, b, c)"]), ("abc", ["iff(c, a & b)"]),
    ("abc", ["iff(c, a | b)"]), ("abcde", ["exactly_one(a, b, c, d, e)"]),
    ("abcdef", ["iff(c, a & b)", "implies(c, d)", "exactly_one(d, e, f)"]),
    ("abcdefgh", ["exactly_one(a, b, c, d)", "exactly_one(e, f, g, h)", "implies(a, e)", "implies(b, f)"]),
)  # fmt: skip
FIRST_ANSWER = (
    "import time; t = time.perf_counter(); from analysis.coherence import measure, parse, Quote; "
    "measure([Quote(n, n, .6) for n in 'abcd'], [parse('iff(a, b & c)'), parse('b ^ d')]); print(time.perf_counter() - t)"
)


def template(names: str, texts: list[str]) -> Clique:
    """A clique with one quote a proposition, in order."""
    return Clique([Quote(name, name, 0.5) for name in names], [parse(text) for text in texts])


def end_to_end(n_cliques: int, n_sample: int) -> list[Row]:
    """A shuffled long table of quotes in, residual and energy of every clique out, against loops over cvxpy."""
    rng = np.random.default_rng(0)
    templates = [template(*given) for given in TEMPLATES]
    kind = rng.integers(len(templates), size=n_cliques)
    size = np.array([len(t.quotes) for t in templates])[kind]
    clique = np.repeat(np.arange(n_cliques), size)
    slot = np.arange(len(clique)) - np.repeat(np.cumsum(size) - size, size)
    order = rng.permutation(len(clique))
    columns = (clique, kind[clique], slot, rng.integers(5, size=len(clique)), rng.random(len(clique)))
    table = QuoteTable(*(column[order] for column in columns))
    wolfe.nearest_rows_compiled(np.eye(3), np.eye(3))
    project_table(table, templates)
    found = project_table(table, templates)
    ours = seconds(lambda: project_table(table, templates), 3) / n_cliques
    sample = rng.choice(n_cliques, n_sample, replace=False)
    starts = np.cumsum(size) - size
    rows = [(int(kind[c]), columns[4][starts[c] : starts[c] + size[c]]) for c in sample]
    points = [t.points for t in templates]
    worst = 0.0

    def plain() -> None:
        nonlocal worst
        for c, (k, q) in zip(sample, rows, strict=True):
            worst = max(worst, abs(plain_cvxpy(points[k], q) - found.upper[c]))

    cached: dict[int, Callable[[np.ndarray], float]] = {}

    def dpp() -> None:
        for k, q in rows:
            cached.setdefault(k, dpp_cvxpy(points[k]))(q)

    peers = [("cvxpy, a problem each", seconds(plain) / n_sample, 3000), ("cvxpy, DPP-cached", seconds(dpp) / n_sample, 1000)]
    what = f"residual and energy, table of {n_cliques} cliques, CPU a clique (largest difference {worst:.1e})"
    return [
        row(
            what,
            ours,
            peer=f"{name}; {n_sample} sampled",
            theirs=theirs,
            unit="s",
            goal=f">= {goal} x",
            met=theirs / ours >= goal,
        )
        for name, theirs, goal in peers
    ]


def plain_cvxpy(points: np.ndarray, q: np.ndarray) -> float:
    """The distance as a user would write it down."""
    shares = cp.Variable(len(points), nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(points.T @ shares - q)), [cp.sum(shares) == 1])
    return float(np.sqrt(max(problem.solve(solver=cp.CLARABEL), 0)))


def dpp_cvxpy(points: np.ndarray) -> Callable[[np.ndarray], float]:
    """The same with the problem compiled once."""
    shares, near, q = cp.Variable(len(points), nonneg=True), cp.Variable(points.shape[1]), cp.Parameter(points.shape[1])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(near - q)), [cp.sum(shares) == 1, near == points.T @ shares])

    def solve(value: np.ndarray) -> float:
        q.value = value
        return float(np.sqrt(max(problem.solve(solver=cp.CLARABEL), 0)))

    return solve


def random_points(n: int, rng: np.random.Generator) -> np.ndarray:
    """The worlds of a chain of random relations over n propositions, with a few implications across."""
    cube = ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1).astype(bool)
    columns = {f"p{i}": cube[:, i] for i in range(n)}
    while True:
        texts = [f"implies(p{a}, p{b})" for a, b in (rng.choice(n, 2, replace=False) for _ in range(n // 6))]
        i = 0
        while i < n - 1:
            p = [f"p{j}" for j in range(i, min(i + int(rng.integers(2, 5)), n))]
            wide = [f"exactly_one({', '.join(p)})", f"iff({p[0]}, {' & '.join(p[1:])})", f"iff({p[0]}, {' | '.join(p[1:])})"]
            texts.append(str(rng.choice(wide)) if len(p) > 2 else f"implies({p[0]}, {p[1]})")
            i += len(p) - 1
        stays = np.logical_and.reduce([bounds(parse(text).content, columns)[0] for text in texts])
        if stays.sum() >= 3 and (points := cube[stays].astype(float)).std(axis=0).all():
            return points


def peers(points: np.ndarray) -> dict[str, Callable[[np.ndarray], Any]]:
    """General solvers, set up once where they allow it, each as a function of the quote."""
    import clarabel
    import osqp

    m, n = points.shape
    squares = sparse.block_diag([sparse.csc_matrix((m, m)), sparse.eye(n)], format="csc")
    equal = sparse.vstack(
        [sparse.hstack([points.T, -sparse.eye(n)]), sparse.csc_matrix(np.append(np.ones(m), np.zeros(n))[None, :])]
    )
    free = sparse.hstack([sparse.eye(m), sparse.csc_matrix((m, n))])
    right = np.append(np.zeros(n), 1.0)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(n + 1), clarabel.NonnegativeConeT(m)]
    all_rows, all_bounds = sparse.vstack([equal, -free], format="csc"), np.append(right, np.zeros(m))
    solver = osqp.OSQP()
    low, high = np.append(right, np.zeros(m)), np.append(right, np.ones(m))
    rows = sparse.vstack([equal, free], format="csc")
    solver.setup(squares, np.zeros(m + n), rows, low, high, verbose=False, eps_abs=1e-7, eps_rel=1e-7, polishing=True)

    def by_osqp(q: np.ndarray) -> None:
        solver.update(q=np.append(np.zeros(m), -q))
        solver.solve()

    heavy = np.vstack([points.T, np.full(m, 1e3)])
    return {
        "clarabel": lambda q: clarabel.DefaultSolver(
            squares, np.append(np.zeros(m), -q), all_rows, all_bounds, cones, settings
        ).solve(),
        "osqp": by_osqp,
        "scipy NNLS": lambda q: nnls(heavy, np.append(q, 1e3)),
        **_optional_peers(points),
    }


def _optional_peers(points: np.ndarray) -> dict[str, Callable[[np.ndarray], Any]]:
    m = len(points)
    squares = points @ points.T + 1e-9 * np.eye(m)  # the active-set solvers need a definite matrix
    found: dict[str, Callable[[np.ndarray], Any]] = {}
    if importlib.util.find_spec("quadprog"):
        import quadprog

        rows, least = np.hstack([np.ones((m, 1)), np.eye(m)]), np.append(1.0, np.zeros(m))
        found["quadprog"] = lambda q: quadprog.solve_qp(squares, points @ q, rows, least, 1)
    if importlib.util.find_spec("daqp"):
        import daqp

        one, high, low = np.ones((1, m)), np.append(np.ones(m), 1.0), np.append(np.zeros(m), 1.0)
        sense = np.append(np.zeros(m, np.int32), np.int32(5))
        found["daqp"] = lambda q: daqp.solve(squares, -(points @ q), one, high, low, sense)
    if importlib.util.find_spec("piqp"):
        import piqp

        solver, one = piqp.DenseSolver(), np.ones((1, m))
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
        solver.setup(squares, np.zeros(m), one, np.ones(1), None, None, None, np.zeros(m), np.ones(m))

        def by_piqp(q: np.ndarray) -> None:
            solver.update(c=-(points @ q))
            solver.solve()

        found["piqp"] = by_piqp
    return found


def kernel(sizes: tuple[int, ...], n_rows: int, n_sample: int) -> list[Row]:
    """One projection in a batch against the fastest of the general solvers, at each number of propositions."""
    found = []
    for n in sizes:
        rng = np.random.default_rng(n)
        points = random_points(n, rng)
        quotes = rng.random((n_rows, n))
        ours = seconds(lambda points=points, quotes=quotes: wolfe.nearest_rows_compiled(points, quotes), 3) / n_rows
        timed = {}
        for name, solve in peers(points).items():
            solve(quotes[0])
            timed[name] = seconds(lambda solve=solve, quotes=quotes: [solve(q) for q in quotes[:n_sample]], 2) / n_sample
        best = min(timed, key=timed.__getitem__)
        what = f"projection, n = {n} ({len(points)} worlds), CPU a clique in a batch"
        peer = f"{best}, fastest of {', '.join(timed)}; {n_sample} sampled"
        found.append(row(what, ours, peer=peer, theirs=timed[best], unit="s", goal=">= 8 x", met=timed[best] / ours >= 8))
    return found


def large(n: int) -> Row:
    """A chain of relations of treewidth at most 4, tree building included."""
    rng = np.random.default_rng(1)
    texts, i = [], 0
    while i < n - 1:
        p = [f"p{j}" for j in range(i, min(i + int(rng.integers(2, 5)), n))]
        wide = [f"exactly_one({', '.join(p)})", f"iff({p[0]}, {' & '.join(p[1:])})", f"iff({p[0]}, {' | '.join(p[1:])})"]
        texts.append(str(rng.choice(wide)) if len(p) > 2 else f"implies({p[0]}, {p[1]})")
        i += len(p) - 1
    (clique,) = tie([Quote("x", f"p{k}", float(v)) for k, v in enumerate(rng.random(n))], [parse(text) for text in texts])
    template("ab", ["linear(a + b <= 0.5)"]).project()  # loads the solver
    started = time.process_time()
    found = clique.project()
    ours = time.process_time() - started
    width = float(found.upper[0] - found.lower[0])
    what = f"one clique of {n} propositions, treewidth <= 4, CPU; interval {width:.0e} wide"
    is_met = ours <= 1 and width <= 1e-6
    return row(what, ours, peer="naive cvxpy over 2^n worlds ends at n = 15", theirs=None, unit="s", goal="<= 1 s", met=is_met)


def shapley(n_sample: int) -> list[Row]:
    """Exact shares of 12 components with 18 quotes, against as many cvxpy solves as there are coalitions."""
    rng = np.random.default_rng(2)
    texts = [f"implies(p{i}, p{i + 1})" for i in range(0, 12, 3)] + [f"exactly_one(p{i}, p{i + 1}, p{i + 2})" for i in (1, 4, 7)]
    texts += ["iff(p11, p9 & p10)", "at_most_one(p0, p12, p13)", "implies(p13, p5)"]
    quotes = [Quote(f"c{k:02}", f"p{k}", float(rng.random())) for k in range(12)]
    quotes += [Quote(f"c{int(rng.integers(12)):02}", f"p{k}", float(rng.random())) for k in (12, 13)]
    quotes += [Quote(f"c{(k + 5) % 12:02}", f"p{k}", float(rng.random())) for k in (0, 3, 6, 9)]
    clique = max(tie(quotes, [parse(text) for text in texts]), key=lambda part: len(part.quotes))
    near, points = clique.project().near[0], clique.points
    k = len(clique.components)
    theirs = seconds(lambda: [plain_cvxpy(points, rng.random(points.shape[1])) for _ in range(n_sample)]) / n_sample * 2**k
    found = []
    for name, game, goal in (("replace", games.replace_game(clique, near), 1000), ("free", games.free_game(clique), None)):
        games.table(game, k)
        ours = seconds(lambda game=game: games.shares_of(games.table(game, k)), 3)
        total = games.shares_of(games.table(game, k)).sum()
        error = abs(abs(total) - clique.project().upper[0] ** 2)
        size = f"{k} components, {len(clique.quotes)} quotes, {len(points)} worlds"
        what = f"exact Shapley, {name} game, {size}, efficiency {error:.0e}"
        is_met = error <= 1e-9 and (goal is None or theirs / ours >= goal) and k == 12
        text = f">= {goal} x" if goal else "shown beside"
        peer = f"{2**k} cvxpy solves; {n_sample} sampled"
        found.append(row(what, ours, peer=peer, theirs=theirs, unit="s", goal=text, met=is_met))
    return found


def false_verdicts(n_cliques: int) -> Row:
    """Random cyclic cliques: how often is one called coherent that is not, by brute force over 2^n worlds and NNLS."""
    rng = np.random.default_rng(4)
    wrong = 0
    cube = ((np.arange(64)[:, None] >> np.arange(6)) & 1).astype(bool)
    columns = {name: cube[:, i] for i, name in enumerate("abcdef")}
    done = 0
    while done < n_cliques:
        kinds = rng.choice(["implies({0}, {1})", "at_most_one({0}, {1})", "iff({0}, {1} & {2})", "{0} | {1}", "{0} ^ {1}"], 7)
        texts = [kind.format(*(("abcdef"[(i + s) % 6]) for s in (0, 1, 3))) for i, kind in enumerate(kinds)]
        stays = np.logical_and.reduce([bounds(parse(text).content, columns)[0] for text in texts])
        points = cube[stays].astype(float)
        if len(points) < 2:
            continue
        clique = template("abcdef", texts)
        rows = rng.random((50, 6)) * 0.5 + 0.25
        rows[:25] = rng.dirichlet(np.ones(len(points)), 25) @ points + rng.choice([0, 1e-5, 1e-3], (25, 1)) * rng.random((25, 6))
        upper = clique.project(np.clip(rows, 0, 1)).upper
        heavy = np.vstack([points.T, np.full(len(points), 1e4)])
        for q, mine in zip(np.clip(rows, 0, 1), upper, strict=True):
            shares, _ = nnls(heavy, np.append(q, 1e4))
            truth = np.linalg.norm(points.T @ (shares / shares.sum()) - q)
            wrong += bool(mine <= POSITIVE and truth > POSITIVE * 1.01)
        done += len(rows)
    what = f"false 'coherent' among {done} cyclic cliques"
    return row(what, float(wrong), peer="brute force, NNLS", theirs=None, unit="cliques", goal="0", met=wrong == 0)


def first_answer() -> list[Row]:
    """Wall seconds from import to the first residual in a new process, with an empty and with the usual compiler cache."""
    found = []
    with tempfile.TemporaryDirectory() as empty:
        for name, extra in (("nothing compiled", {"NUMBA_CACHE_DIR": empty}), ("compiled before", {})):
            command = [sys.executable, "-c", FIRST_ANSWER]
            runs = [
                subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, **extra})
                for _ in range(3)
            ]
            ours = min(float(run.stdout) for run in runs)
            found.append(row(f"first answer, {name}", ours, peer="-", theirs=None, unit="s", goal="<= 1 s", met=ours <= 1))
    return found


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, quick="smaller samples of the peers")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    n_sample = 60 if given.quick else 300
    rows = [
        *end_to_end(200_000, n_sample),
        *kernel((3, 4, 6, 8, 10, 12, 14, 16), 5_000 if given.quick else 20_000, 30 if given.quick else 200),
        large(8_000),
        *shapley(n_sample),
        false_verdicts(10_000),
        *first_answer(),
    ]
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
