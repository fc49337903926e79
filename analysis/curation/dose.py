"""How much coherence is enough: the outcome of runs by their residual, and up to where it is no worse.

Decides how runs are binned and what counts as worse. An association over recorded runs, not an effect: hard tasks can be
both incoherent and failed. Runs of one task are kept together in the test.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.estimation import Estimate, mean, wilson

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

MIN_RUNS = 40  # two bins of 20, from where on a normal interval of a mean holds
MIN_TASKS = 8  # of fewer, what happened to one decides
_MIN_BIN = 20
_MAX_DRAWS, _MIN_DRAWS = 999, 199
_N_DRAWN = 20_000_000  # numbers to draw in all, where that leaves enough draws
_BATCH = 1_000_000  # numbers drawn at a time; bounds memory
_COLUMNS = (
    "low", "high", "residual_norm", "n", "outcome", "outcome_low", "outcome_high", "fitted", "p", "is_plateau",
)  # fmt: skip


class Dose(NamedTuple):
    """What outcome does as residual_norm grows.

    bins : one row a bin from the lowest residual on: low, high and mean residual_norm; n; outcome, outcome_low,
        outcome_high; fitted, the least-squares falling curve; p of no worsening over this bin and
        all below, where it was tested; is_plateau
    plateau : the largest residual_norm of the lowest bins over which no worsening is seen; None where nothing can be said
    worsens : whether outcome worsens beyond; None where nothing can be said
    """

    bins: pd.DataFrame
    plateau: float | None
    worsens: bool | None
    n: int
    n_tasks: int
    sentence: str


def dose_response(
    residual_norm: Sequence[float | None], outcome: Sequence[float | bool | None], tasks: Sequence[Hashable], *,
    rng: np.random.Generator, n_bins: int = 10, alpha: float = 0.05,
) -> Dose:  # fmt: skip
    """Return how outcome depends on residual_norm, and up to which value of it outcome is no worse than below.

    Parameters
    ----------
    residual_norm, outcome : of each run, both in [0, 1], outcome higher = better; runs that lack either are left out
    tasks : the task of each run; None is a task of its own
    rng : of the permutations, used through `random()`
    n_bins : at most so many bins of equally many runs, each of 20 or more; runs of equal residual are in one bin
    alpha : chance of calling outcome worse over bins in which it is not

    Notes
    -----
    Outcomes that are all 0 or 1 have Wilson's interval, others the normal one; both take runs for independent. The fitted
    curve is the isotonic regression (Barlow et al. 1972). The test is for a trend over the ranks of the bins (Cochran 1954,
    Armitage 1955), one-sided; p by permutation of blocks (Winkler et al. 2015, NeuroImage 123), 999 times, for much data
    199: the means of tasks are exchanged between tasks, and within each the runs are turned in a circle. It is exact where
    tasks have equally many runs, and counts runs of a task that are alike as one. The plateau is found by leaving out the
    highest bin until no trend is left (Tukey, Ciminera & Heyse 1985, Biometrics 41): the hypotheses are nested and tested
    from the widest on, each at alpha, so that with probability 1 - alpha no bin of the true plateau is cut off. That no
    worsening is seen does not say that there is none.

    >>> rng = np.random.default_rng(0)
    >>> dose_response([0.1, 0.2], [1, 0], ["a", "b"], rng=rng).sentence
    'Not enough data: 2 runs of 2 tasks have both a residual and an outcome; 40 runs of 8 tasks are needed.'
    """
    x, y = np.array(residual_norm, dtype=np.float64), np.array(outcome, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(x) & ~np.isnan(y))
    known = known[np.argsort(x[known], kind="stable")]
    x, y = x[known], y[known]
    numbers: dict[Hashable, int] = {}
    names = [("run", n) if tasks[n] is None else ("task", tasks[n]) for n in known.tolist()]
    task = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.intp)
    starts = _bin_starts(x, n_bins)
    bins = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(x))))
    if refusal := _refusal(y, len(starts), len(numbers)):
        return Dose(_table(x, y, bins, {}, 0), None, None, len(x), len(numbers), refusal)
    n_alike, p_of = len(starts), dict[int, float]()
    while n_alike > 1:
        used = bins < n_alike
        p_of[n_alike - 1] = _trend(bins[used], y[used], task[used], rng)
        if p_of[n_alike - 1] > alpha:
            break
        n_alike -= 1
    is_alike = bins < n_alike
    sentence = _sentence(x, y, is_alike, len(numbers), p_of[min(n_alike, len(starts) - 1)])
    table = _table(x, y, bins, p_of, n_alike)
    return Dose(table, float(x[is_alike][-1]), not is_alike.all(), len(x), len(numbers), sentence)


def _bin_starts(x: Floats, n_bins: int) -> list[int]:
    """Return where each bin of sorted values starts; ties make bins larger, and the last takes in what is left over."""
    target = max(_MIN_BIN, math.ceil(len(x) / n_bins))
    starts, size = [0], 0
    for first, n in zip(*np.unique(x, return_index=True, return_counts=True)[1:], strict=True):
        if size >= target:
            starts.append(int(first))
            size = 0
        size += int(n)
    return starts[:-1] if size < target and len(starts) > 1 else starts


def _refusal(y: Floats, n_bins: int, n_tasks: int) -> str:
    if len(y) < MIN_RUNS or n_tasks < MIN_TASKS:
        return (
            f"Not enough data: {len(y)} runs of {n_tasks} tasks have both a residual and an outcome; "
            f"{MIN_RUNS} runs of {MIN_TASKS} tasks are needed."
        )
    if y.min() == y.max():
        return f"Nothing to learn from: all {len(y)} runs have the same outcome."
    if n_bins < 2:
        return f"Nothing to compare: nearly all of {len(y)} runs have the same residual_norm."
    return ""


def _trend(bins: Indices, y: Floats, task: Indices, rng: np.random.Generator) -> float:
    """Return p of no worsening over the bins: draws in which outcome falls with them at least as much as here."""
    _, task, n_of = np.unique(task, return_inverse=True, return_counts=True)
    order = np.argsort(task, kind="stable")
    task, z, y = task[order], (bins - bins.mean())[order], y[order]
    means = np.bincount(task, y) / n_of
    off, z_of = y - means[task], np.bincount(task, z)
    first = np.cumsum(n_of) - n_of
    place = np.arange(len(y)) - first[task]
    found = float(z @ y) + 1e-9
    n_draws = min(_MAX_DRAWS, max(_MIN_DRAWS, _N_DRAWN // len(y)))
    n_as_low, size = 0, max(1, _BATCH // len(y))
    for start in range(0, n_draws, size):
        n = min(size, n_draws - start)
        between = means[np.argsort(rng.random((n, len(n_of))), axis=1)] @ z_of
        shift = (rng.random((n, len(n_of))) * n_of).astype(np.intp)[:, task]
        within = off[first[task] + (place + shift) % n_of[task]] @ z
        n_as_low += int((between + within <= found).sum())
    return (n_as_low + 1) / (n_draws + 1)


def _table(x: Floats, y: Floats, bins: Indices, p_of: Mapping[int, float], n_alike: int) -> pd.DataFrame:
    import pandas as pd
    from scipy.optimize import isotonic_regression

    rows = []
    for k in range(int(bins.max(initial=-1)) + 1):
        mine = bins == k
        found = _estimate(y[mine], y)
        rows.append(
            {"low": x[mine][0], "high": x[mine][-1], "residual_norm": x[mine].mean(), "n": found.n, "outcome": found.value}
            | {"outcome_low": found.low, "outcome_high": found.high, "p": p_of.get(k)}
            | {"is_plateau": k < n_alike if p_of else None}
        )
    table = pd.DataFrame(rows, columns=_COLUMNS)
    if rows:
        table["fitted"] = isotonic_regression(table["outcome"], weights=table["n"], increasing=False).x
    return table


def _estimate(part: Floats, y: Floats) -> Estimate:
    """Return the mean outcome of some of all runs `y`, by Wilson where these are all 0 or 1."""
    found = wilson(int(part.sum()), len(part)) if np.isin(y, (0, 1)).all() else mean(part.tolist())
    assert found is not None
    return found


def _sentence(x: Floats, y: Floats, is_alike: Bools, n_tasks: int, p: float) -> str:
    basis = f"{len(x):,} runs of {n_tasks:,} tasks, one-sided p = {p:.2g}"
    if is_alike.all():
        return f"No worsening of the outcome is seen up to the largest residual_norm, {x[-1]:.3g} ({basis})."
    below, above = (_worded(_estimate(y[part], y)) for part in (is_alike, ~is_alike))
    return f"Outcome worsens beyond a residual_norm of {x[is_alike][-1]:.3g}: {below} up to there, {above} above ({basis})."


def _worded(found: Estimate) -> str:
    if found.low is None:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
