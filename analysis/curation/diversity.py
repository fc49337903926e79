"""How many different runs a data set really holds: the Vendi score, the effective sample size, and both against coherence.

Decides when two runs are alike: by the share of their features that agree. Hidden here: that the eigenvalues are those of a
small matrix, so that a hundred thousand rows need no sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
MAX_ROWS = 2_000  # of the kernel; more rows are drawn from only where there are as many features
_N_BINS = 4  # of a metric: its quartiles
_N_POINTS = 11  # of the curve


def vendi(vectors: Floats, *, rng: np.random.Generator) -> float | None:
    """Return the effective number of different rows; None without rows.

    exp of the entropy of the eigenvalues of K / n, with K the inner products of the rows (Friedman & Dieng 2023, TMLR).

    Parameters
    ----------
    vectors : rows of length 1, (n, d)
    rng : draws 2,000 rows where n and d are both larger; used through `random()`

    Examples
    --------
    >>> [round(vendi(rows, rng=np.random.default_rng(0)), 9) for rows in (np.ones((5, 1)), np.eye(5))]
    [1.0, 5.0]
    """
    if not len(vectors):
        return None
    if min(vectors.shape) > MAX_ROWS:
        vectors = vectors[np.sort(np.argsort(rng.random(len(vectors)), kind="stable")[:MAX_ROWS])]
    small = vectors.T @ vectors if vectors.shape[1] < len(vectors) else vectors @ vectors.T
    values = np.linalg.eigvalsh(small / len(vectors))
    values = values[values > 1e-12]
    return float(math.exp(-math.fsum(values * np.log(values))))


def effective_size(weights: Floats) -> float:
    """Return (Σw)² / Σw², to how many equally weighted rows the weights come (Kish 1965); 0 without rows.

    >>> effective_size(np.array([1.0, 1.0, 0.0])), effective_size(np.array([]))
    (2.0, 0.0)
    """
    squares = float((weights**2).sum())
    return round(float(weights.sum()) ** 2 / squares, 9) if squares else 0.0


def features(frame: pd.DataFrame, columns: Sequence[str]) -> Floats:
    """Return rows of length 1 whose inner product is the share of the columns in which two rows agree.

    Numbers agree where they lie between the same quartiles of the frame. Missing is a value of its own.
    """
    blocks = []
    for column in columns:
        codes = _codes(frame[column])
        block = np.zeros((len(frame), int(codes.max(initial=0)) + 1))
        block[np.arange(len(frame)), codes] = 1.0
        blocks.append(block)
    return np.hstack(blocks) / math.sqrt(len(blocks)) if blocks else np.ones((len(frame), 1))


def curve(residual: Floats, weights: Floats, vectors: Floats, *, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return what a threshold on the residual leaves of coherence and of diversity, from the strictest on.

    Parameters
    ----------
    residual : normalised residual of each row; rows where it is NaN are no part of the curve
    weights, vectors : sampling weight and features of each row

    Returns
    -------
    threshold, kept_share, n, residual_mean, vendi, ess : one row for each tenth of the data
    """
    known = np.isfinite(residual)
    residual, weights, vectors = residual[known], weights[known], vectors[known]
    tenths = np.linspace(0, 1, _N_POINTS)
    thresholds = np.unique(np.quantile(residual, tenths, method="inverted_cdf")) if len(residual) else residual
    rows = []
    for threshold in thresholds:
        kept = residual <= threshold
        score = vendi(vectors[kept], rng=rng)
        rows.append({
            "threshold": round(float(threshold), 9), "kept_share": round(float(kept.mean()), 9), "n": int(kept.sum()),
            "residual_mean": round(float(residual[kept].mean()), 9), "vendi": None if score is None else round(score, 6),
            "ess": effective_size(weights[kept]),
        })  # fmt: skip
    return rows


def _codes(column: pd.Series[Any]) -> npt.NDArray[np.intp]:
    """The number of the value of each row; of numbers, that of the quartile."""
    if column.dtype.kind != "f":
        names, _ = column.factorize(sort=True)
        return np.asarray(names, np.intp) + 1
    values = column.to_numpy(np.float64)
    known = values[np.isfinite(values)]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, _N_BINS + 1)[1:-1])) if len(known) else np.zeros(0)
    codes: npt.NDArray[np.intp] = np.searchsorted(edges, values, side="left") + 1
    codes[~np.isfinite(values)] = 0
    return codes
