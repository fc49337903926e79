"""One difficulty out of D_req and D_orch: linear, the larger, noisy-or, or fitted to failures.

The two may couple: a hard task can be harder than the sum when its orchestration is hard too. The fitted form tests that,
on attempts that D_req was not estimated from, with tasks as clusters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from analysis.curation.curriculum.requirement import d_req
from analysis.curation.curriculum.stages import Reference

MIN_TASKS = 20  # clusters, below which a clustered test rejects too often
MIN_OUTCOMES = 10  # passes, and failures
_MAX_STEPS = 50
_SEPARATED = 15.0  # log odds beyond which a fit has run away

Matrix = npt.NDArray[np.float64]


class Tried(NamedTuple):
    """How often a model did a task, and how hard its runs were to orchestrate."""

    task_id: str
    n: int
    n_passed: int
    d_orch: float


class JointFit(msgspec.Struct, frozen=True, kw_only=True):
    """P(fail) = sigma(b0 + b1 a + b2 b + b3 a b) of a = d_req, b = d_orch; or why it was not fitted.

    `p_interaction`: of b3 = 0, by a test with tasks as clusters. Errors of measuring d_req draw b1 and b3 towards 0.
    """

    coefficients: tuple[float, float, float, float] | None = None
    errors: tuple[float, float, float, float] | None = None
    p_interaction: float | None = None
    n_tasks: int = 0
    n_attempts: int = 0
    refusal: str | None = None


def joint_difficulty(d_req: float, d_orch: float, reference: Reference, fit: JointFit) -> float | None:
    """Return one difficulty in [0, 1] in the form that the reference names; None where it is `fitted` and there is no fit."""
    match reference.joint:
        case "max":
            return max(d_req, d_orch)
        case "noisy-or":
            return 1 - (1 - d_req) * (1 - d_orch)
        case "fitted":
            if fit.coefficients is None:
                return None
            b0, b1, b2, b3 = fit.coefficients
            return 1 / (1 + math.exp(-(b0 + b1 * d_req + b2 * d_orch + b3 * d_req * d_orch)))
        case "linear":
            return (reference.weights[0] * d_req + reference.weights[1] * d_orch) / sum(reference.weights)


def fit_joint(cells: Sequence[Tried], *, rng: np.random.Generator) -> JointFit:
    """Fit P(fail) on one half of each cell's attempts, with d_req from the other half; test b3 = 0.

    Without the halves a failure would stand on both sides, and any task would seem to be explained by itself.

    Parameters
    ----------
    cells : only those of two attempts or more count
    rng : draws the halves, through `random()` alone
    """
    used = [cell for cell in cells if cell.n >= 2]
    tasks = sorted({cell.task_id for cell in used})
    n_tasks = len(tasks)
    if n_tasks < MIN_TASKS:
        return JointFit(n_tasks=n_tasks, refusal=f"{n_tasks} tasks were tried twice or more, and at least {MIN_TASKS} are needed")
    halves = np.array([_halved(cell, rng) for cell in used])
    hard, n, n_failed = halves.T
    orch = np.array([cell.d_orch for cell in used])
    x = np.column_stack([np.ones(len(used)), hard, orch, hard * orch])
    facts = JointFit(n_tasks=n_tasks, n_attempts=int(n.sum()))
    fewest = int(min(n_failed.sum(), (n - n_failed).sum()))
    if fewest < MIN_OUTCOMES:
        return replace(facts, refusal=f"{fewest} of the rarer outcome, and at least {MIN_OUTCOMES} are needed")
    if np.linalg.matrix_rank(x) < x.shape[1]:
        return replace(facts, refusal="d_req or d_orch hardly varies, so that their effects cannot be told apart")
    b = _logistic(x, n, n_failed)
    if b is None:
        return replace(facts, refusal="the difficulties part passes from failures, so that no finite fit exists")
    place = {task: k for k, task in enumerate(tasks)}
    covariance = _clustered(x, n, n_failed, b, np.array([place[cell.task_id] for cell in used]))
    errors = np.sqrt(np.diag(covariance))
    from scipy.stats import t

    p = float(2 * t.sf(abs(b[3]) / errors[3], n_tasks - 1))
    return replace(facts, coefficients=_four(b), errors=_four(errors), p_interaction=round(p, 9))


def _halved(cell: Tried, rng: np.random.Generator) -> tuple[float, int, int]:
    """d_req of one half of the attempts; how many there are in the other, and how many of them failed."""
    n_here = cell.n // 2
    order = np.argsort(rng.random(cell.n), kind="stable")
    n_passed = int((order[:n_here] < cell.n_passed).sum())
    hard = d_req(n_passed, n_here)
    assert hard is not None
    rest = cell.n - n_here
    return hard.value, rest, rest - (cell.n_passed - n_passed)


def _logistic(x: Matrix, n: Matrix, n_failed: Matrix) -> Matrix | None:
    """The coefficients of greatest likelihood by Newton's steps; None where they run away."""
    b = np.zeros(x.shape[1])
    for _ in range(_MAX_STEPS):
        p = 1 / (1 + np.exp(-x @ b))
        step = np.linalg.lstsq(x.T @ (x * (n * p * (1 - p))[:, None]), x.T @ (n_failed - n * p), rcond=None)[0]
        b = b + step
        if np.abs(x @ b).max() > _SEPARATED:
            return None
        if np.abs(step).max() < 1e-9:
            return b
    return None


def _clustered(x: Matrix, n: Matrix, n_failed: Matrix, b: Matrix, cluster: npt.NDArray[np.intp]) -> Matrix:
    """The covariance of the coefficients with whole tasks as clusters (Liang & Zeger 1986), for few clusters G / (G - 1)."""
    p = 1 / (1 + np.exp(-x @ b))
    bread = np.linalg.inv(x.T @ (x * (n * p * (1 - p))[:, None]))
    n_clusters = int(cluster.max()) + 1
    scores = np.zeros((n_clusters, x.shape[1]))
    np.add.at(scores, cluster, x * (n_failed - n * p)[:, None])
    return bread @ (scores.T @ scores * n_clusters / (n_clusters - 1)) @ bread


def _four(values: Matrix) -> tuple[float, float, float, float]:
    a, b, c, d = (round(float(value), 9) for value in values)
    return a, b, c, d
