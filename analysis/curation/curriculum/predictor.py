"""D_req of tasks that a model has not tried, from features of the task; refused where the features tell nothing.

A logistic model with an intercept for each model. It must foretell the outcomes of tasks that it has not seen better than
each model's own pass rate does, beyond chance; otherwise nothing is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.curation.curriculum.attempts import Attempts, TaskFeatures
from analysis.estimation import cluster_bootstrap

MIN_TASKS = 20
_N_FOLDS = 5

Matrix = npt.NDArray[np.float64]


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What features foretell: (task, model) -> d_req, and how well; or why nothing is predicted.

    log_loss, base_log_loss : mean over attempts of tasks that were held out, with features and by each model's pass rate
    gain, low, high : their difference with its interval over tasks; it has to lie above 0
    """

    d_req: dict[tuple[str, str], float] = {}
    n_tasks: int = 0
    log_loss: float | None = None
    base_log_loss: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    refusal: str | None = None


class _Data(NamedTuple):
    """A row a cell: its features and its model as a column of ones, its attempts and passes, the number of its task."""

    x: Matrix
    n: Matrix
    n_passed: Matrix
    task: npt.NDArray[np.intp]


def predict_difficulty(
    tried: Sequence[Attempts],
    wanted: Sequence[tuple[str, str]],
    *,
    features: Mapping[str, TaskFeatures],
    rng: np.random.Generator,
) -> Prediction:
    """Return d_req for wanted (task, model), as far as the task has features and the model was tried on others.

    Parameters
    ----------
    tried : what is learned from; attempts of one world, for what is wanted of that world
    rng : for the interval of the gain
    """
    known = [cell for cell in tried if cell.n and cell.task_id in features]
    n_tasks = len({cell.task_id for cell in known})
    if n_tasks < MIN_TASKS:
        return Prediction(n_tasks=n_tasks, refusal=f"{n_tasks} tried tasks have features, and at least {MIN_TASKS} are needed")
    models = sorted({cell.model for cell in known})
    data = _data(known, models, features)
    if not (data.n_passed.any() and (data.n - data.n_passed).any()):
        return Prediction(n_tasks=n_tasks, refusal="all attempts ended alike")
    found = _validated(data, models, rng)
    if found.refusal is not None:
        return found
    askable = [(task, model) for task, model in wanted if task in features and model in models]
    if not askable:
        return found
    asked = _data([Attempts(task, model, 0, 0, "") for task, model in askable], models, features)
    p = _fitted(data, asked.x)
    return msgspec.structs.replace(found, d_req={pair: round(1 - float(q), 9) for pair, q in zip(askable, p, strict=True)})


def _data(cells: Sequence[Attempts], models: Sequence[str], features: Mapping[str, TaskFeatures]) -> _Data:
    numbers = {task: n for n, task in enumerate(sorted({cell.task_id for cell in cells}))}
    x = [[*_numbers(features[cell.task_id]), *(float(cell.model == model) for model in models)] for cell in cells]
    n, n_passed = (np.array([cell[at] for cell in cells], dtype=np.float64) for at in (2, 3))
    return _Data(np.array(x), n, n_passed, np.array([numbers[cell.task_id] for cell in cells]))


def _numbers(features: TaskFeatures) -> tuple[float, ...]:
    """Lengths by their logarithm; a shape that is not known is 0 beside a mark that says so."""
    shape = features[1:]
    return (math.log1p(features.text_length), float(shape[0] is not None), *(float(value or 0) for value in shape))


def _validated(data: _Data, models: Sequence[str], rng: np.random.Generator) -> Prediction:
    """Compare log-losses on tasks that were held out."""
    n_tasks = int(data.task.max()) + 1
    p, base = np.zeros(len(data.n)), np.zeros(len(data.n))
    for fold in range(_N_FOLDS):
        held = data.task % _N_FOLDS == fold
        rest = _Data(*(part[~held] for part in data))
        is_model = rest.x[:, -len(models) :]
        rates = (is_model.T @ rest.n_passed + 0.5) / (is_model.T @ rest.n + 1)
        base[held] = data.x[held][:, -len(models) :] @ rates
        is_mixed = rest.n_passed.any() and (rest.n - rest.n_passed).any()
        p[held] = _fitted(rest, data.x[held]) if is_mixed else base[held]
    loss, base_loss = (
        np.bincount(data.task, -(data.n_passed * np.log(q) + (data.n - data.n_passed) * np.log1p(-q))) for q in (p, base)
    )
    n = np.bincount(data.task, data.n)
    gain = cluster_bootstrap(lambda w: float(w @ (base_loss - loss) / (w @ n)), list(range(n_tasks)), rng=rng)
    assert gain is not None
    assert gain.low is not None
    is_better = gain.low > 0
    return Prediction(
        n_tasks=n_tasks, log_loss=round(float(loss.sum() / n.sum()), 9), base_log_loss=round(float(base_loss.sum() / n.sum()), 9),
        gain=round(gain.value, 9), low=round(gain.low, 9), high=gain.high and round(gain.high, 9),
        refusal=None if is_better else "features of the task foretell no more than each model's own pass rate",
    )  # fmt: skip


def _fitted(data: _Data, x: Matrix) -> Matrix:
    """The pass rate foretold for rows, by a ridge on standardised columns; the data hold passes and failures."""
    from sklearn.linear_model import LogisticRegression

    middle, scale = data.x.mean(axis=0), data.x.std(axis=0)
    scale[scale == 0] = 1
    failed = data.n - data.n_passed
    twice = np.vstack([(data.x - middle) / scale] * 2)
    outcome = np.repeat([1, 0], len(data.n))
    fit = LogisticRegression(C=1.0, max_iter=500).fit(twice, outcome, sample_weight=np.concatenate([data.n_passed, failed]))
    p: Matrix = fit.predict_proba((x - middle) / scale)[:, 1]
    return np.clip(p, 1e-6, 1 - 1e-6)
