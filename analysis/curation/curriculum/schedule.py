"""What to draw at which progress: kernel weights with a replay floor, weights of families, AdaRFT's target, forgetting.

All weights sum to 1. Nothing here draws: whoever samples brings the generator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.estimation import Estimate, cluster_bootstrap

Weights = npt.NDArray[np.float64]


class Schedule(NamedTuple):
    """Which difficulty is trained when: the centre moves from `m0` to `m1`, a Gaussian of width `h` around it is drawn
    from, and the share `eps` is spread over all tasks, so that none is ever left out."""

    m0: float = 0.2
    m1: float = 0.8
    h: float = 0.2
    eps: float = 0.2


def kernel_weights(difficulty: Sequence[float] | Weights, progress: float, schedule: Schedule) -> Weights:
    """Return the weight of each task at a progress u in [0, 1]: eps / N + (1 - eps) K((D - m(u)) / h) / sum K.

    m(u) = m0 + (m1 - m0) u, K Gaussian (`orchestration.md` 2.3). Each weight is at least eps / N.

    >>> kernel_weights([0.2, 0.8], 0.0, Schedule(m0=0.2, m1=0.8, h=0.2, eps=0.2)).round(4).tolist()
    [0.8912, 0.1088]
    """
    if not (0 <= progress <= 1 and 0 <= schedule.eps <= 1 and schedule.h > 0):
        raise ValueError(f"progress {progress} and eps {schedule.eps} lie in [0, 1], and h {schedule.h} above 0")
    d = np.asarray(difficulty, dtype=np.float64)
    if not len(d):
        return d
    exponent = -0.5 * ((d - schedule.m0 - (schedule.m1 - schedule.m0) * progress) / schedule.h) ** 2
    kernel = np.exp(exponent - exponent.max())  # however far the centre is from every task, the nearest count
    weights: Weights = schedule.eps / len(d) + (1 - schedule.eps) * kernel / kernel.sum()
    return weights


def learnability(pass_rates: Sequence[float] | Weights) -> Weights | None:
    """Return weights in proportion to p (1 - p), the variance of a group of rewards; None where every rate is 0 or 1.

    >>> learnability([0.5, 1.0, 0.5]).tolist(), learnability([0.0, 1.0])
    ([0.5, 0.0, 0.5], None)
    """
    p = np.asarray(pass_rates, dtype=np.float64)
    spread: Weights = p * (1 - p)
    return spread / spread.sum() if spread.sum() > 0 else None


def family_weights(counts: Mapping[str, tuple[int, int]], *, floor: float = 0.1) -> dict[str, float]:
    """Return the weight of each family of runs from its passes and attempts (c, n): floor / F + (1 - floor) p (1 - p) / sum.

    p = (c + 1/2) / (n + 1), so that a family without attempts has the largest weight (`orchestration.md` 5.5).

    >>> {name: round(w, 4) for name, w in family_weights({"half": (5, 10), "solved": (10, 10), "lost": (0, 10)}).items()}
    {'half': 0.7014, 'solved': 0.1493, 'lost': 0.1493}
    """
    if not counts:
        return {}
    rates = np.array([(c + 0.5) / (n + 1) for c, n in counts.values()])
    spread = rates * (1 - rates)
    weights = floor / len(rates) + (1 - floor) * spread / spread.sum()
    return dict(zip(counts, weights.tolist(), strict=True))


def next_target(
    target: float,
    reward_mean: float,
    *,
    eta: float = 50,
    alpha: float = 2,
    beta: float = 0.5,
    bounds: tuple[float, float] = (0, 100),
) -> float:
    """Return AdaRFT's next target difficulty, clip(T + eta tanh(alpha (R - beta))) (arXiv 2504.05520).

    >>> [round(next_target(50, reward), 3) for reward in (0.7, 0.2, 0.5)]
    [68.997, 23.148, 50.0]
    """
    return min(bounds[1], max(bounds[0], target + eta * math.tanh(alpha * (reward_mean - beta))))


def nearest(difficulty: Sequence[float] | Weights, target: float, size: int) -> list[int]:
    """Return the places of the `size` tasks nearest to AdaRFT's target, the nearest first; of equals the earlier.

    >>> nearest([10, 60, 40, 90], 50, 3)
    [1, 2, 0]
    """
    order = np.argsort(np.abs(np.asarray(difficulty, dtype=np.float64) - target), kind="stable")
    found: list[int] = order[:size].tolist()
    return found


def effective_sample_size(weights: Sequence[float] | Weights) -> float:
    """Return (sum w)² / sum w²: as how many equally weighted tasks these count (Kish 1965); 0 where there are none.

    >>> effective_sample_size([0.25, 0.25, 0.25, 0.25]), effective_sample_size([1.0, 0.0])
    (4.0, 1.0)
    """
    w = np.asarray(weights, dtype=np.float64)
    return float(w.sum() ** 2 / (w @ w)) if w.any() else 0.0


class Round(NamedTuple):
    """How stage 1 does in one round: the pass rate, and by how much it has changed since the first round, over shared tasks."""

    rate: Estimate | None
    change: Estimate | None


def forgetting(rounds: Sequence[Mapping[str, tuple[int, int]]], *, rng: np.random.Generator) -> list[Round]:
    """Return for each round how tasks of stage 1 do against the first round; a change below 0 is forgetting.

    Parameters
    ----------
    rounds : of each round, task -> (passes, attempts)
    rng : for intervals, which draw whole tasks, so that the two rounds stay paired
    """
    found = []
    for counts in rounds:
        shared = sorted(rounds[0].keys() & counts.keys())
        found.append(Round(_rate([counts], sorted(counts), rng), _rate([counts, rounds[0]], shared, rng)))
    return found


def _rate(arms: Sequence[Mapping[str, tuple[int, int]]], tasks: Sequence[str], rng: np.random.Generator) -> Estimate | None:
    """The pass rate over tasks of the first arm, less that of the second where there is one."""
    counts = np.array([[arm[task] for task in tasks] for arm in arms], dtype=np.float64).reshape(len(arms), len(tasks), 2)

    def statistic(weights: Weights) -> float:
        passed, n = np.einsum("t,atk->ka", weights, counts)
        return float(np.subtract.reduce(passed / n)) if n.all() else math.nan

    return cluster_bootstrap(statistic, list(tasks), rng=rng)
