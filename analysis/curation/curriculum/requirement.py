"""D_req: how hard a task is for a model, from how often the model solved it.

Our reading of RECRL (arXiv 2605.00433), whose own formulas are not public: difficulty is one less the pass rate of the
model itself, so that the same task has as many difficulties as there are models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.estimation import Estimate

if TYPE_CHECKING:
    import pandas as pd

_PRIOR = 0.5  # Jeffreys: Beta(1/2, 1/2)
_MIN_SHARED = 5  # tasks that two models must share for their ranks to be compared


def d_req(n_passed: int, n: int, *, level: float = 0.95) -> Estimate | None:
    """Return 1 - (c + 1/2) / (n + 1) with its equal-tailed Jeffreys interval, in [0, 1]; None without attempts.

    The interval is that of Beta(n - c + 1/2, c + 1/2) (Brown, Cai & DasGupta 2001); eight attempts do not tell 0.3 from 0.8.

    >>> [round(x, 4) for x in d_req(3, 8)[:3]]
    [0.6111, 0.2948, 0.881]
    """
    if not 0 <= n_passed <= n:
        raise ValueError(f"{n_passed} passes of {n} attempts")
    if n == 0:
        return None
    from scipy.special import betaincinv

    failed, passed = n - n_passed + _PRIOR, n_passed + _PRIOR
    low, high = betaincinv(failed, passed, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Estimate(failed / (failed + passed), low, high, n)


def d_partial(test_shares: Sequence[float]) -> float | None:
    """Return 1 - the mean share of tests that attempts pass, which ranks tasks that no attempt solves; None without attempts.

    >>> d_partial([0.5, 0.75]), d_partial([])
    (0.375, None)
    """
    return 1 - sum(test_shares) / len(test_shares) if test_shares else None


def rank_correlations(rows: pd.DataFrame) -> pd.DataFrame:
    """Return Spearman's correlation of difficulty between each two models, over the tasks that both tried.

    Parameters
    ----------
    rows : task_id, model, d_req; a row a task and model

    Returns
    -------
    model × model, sorted; NaN for fewer than 5 shared tasks, and for a model to which all tasks are equally hard
    """
    by_model = rows.pivot(index="task_id", columns="model", values="d_req").sort_index(axis="columns")
    return by_model.corr(method="spearman", min_periods=_MIN_SHARED)
