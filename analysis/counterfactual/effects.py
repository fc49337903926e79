"""What changing a decision did: effects of paired replays with their intervals, and which of them may be believed.

A pair is one replay with a decision changed and one without, from the same prefix with the same draws. Decides what is drawn
(tasks, or the pairs of an event), how much too few pairs say, and what is exported. Nothing here depends on the order of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from analysis.estimation import benjamini_hochberg, benjamini_yekutieli, cluster_bootstrap, mean
from analysis.orchestration.measure import METRICS
from analysis.sequential import confidence_sequence, e_benjamini_hochberg, log_paired
from analysis.streams import stream

if TYPE_CHECKING:
    import pandas as pd

#: The columns of a frame of pairs.
PAIRS = (
    "trace_id", "task", "event_id", "event_kind", "operator", "parameters", "metric", "q", "q_counterfactual", "seed_block",
    "world", "evidence", "cost",
)  # fmt: skip
#: One row an event and what was changed there; one row an operator and kind of event.
EVENT = ("trace_id", "task", "event_id", "event_kind", "operator", "parameters")
CELL = ("operator", "event_kind")

#: From so many on whole tasks are drawn; below, all ways to turn the signs are gone through.
N_DRAWN = 17
#: With fewer units there is no interval; one of 95 % by turned signs needs as many.
N_LEAST = 6
_BET = 0.3  # fixed before looking, so that evidence does not hang on the order of the pairs
_SHARES = {"passed", "tests_rate", *[name for name, meaning in METRICS.items() if meaning.unit == "share"]}
_BETTER = {"passed": "higher", "tests_rate": "higher", "score": "higher", "log_q_parallel_self": "higher"}
_WORLDS = ("metric", "world", "evidence")  # never pooled
_FOUND = (
    "n", "n_tasks", "n_missing", "unit", "delta_q", "credit", "low", "high", "how", "se", "p", "q_value", "p_sign", "log_e",
    "q_e", "zero_share", "delta_q_shrunken", "cost", "better",
)  # fmt: skip

_TEXTS = ("unit", "how", "better")

Floats = npt.NDArray[np.float64]


def effects(pairs: pd.DataFrame, *, by: Sequence[str] = EVENT, seed: int = 0, level: float = 0.95) -> pd.DataFrame:
    """Return what each change did to each metric: the mean of q_counterfactual - q, with its interval and evidence.

    Parameters
    ----------
    pairs : one row a pair and metric, with the columns of `PAIRS`; a pair of which a side is missing (NaN) is counted only
    by : what makes a row, `EVENT` or `CELL` or other columns; metrics, worlds and evidence are always kept apart
    seed : of the draws

    Returns
    -------
    The columns `by`, metric, world, evidence, then: n pairs, n_tasks, n_missing; unit, which is drawn: `tasks`, each
    counting once, or the `pairs` of a single task; delta_q and credit = -delta_q; low, high of delta_q and how they were found
    (below); se; p, of no effect, and q_value over the rows of an operator, event kind and metric (Benjamini & Hochberg 1995), or
    over all rows of a metric where each operator and event kind has one row, as with `CELL` (Benjamini & Yekutieli 2001);
    p_sign, the confidence that the sign is right; log_e against no effect and q_e over the whole table (e-BH), for
    metrics in [0, 1] alone; zero_share of pairs that changed nothing at all; delta_q_shrunken; cost; better (`higher`, `lower`
    or `neither`: where lower is better, an event with a credit above 0 was bad). NaN where absent. Sorted.

    Notes
    -----
    Interval, by the number of units. Up to 5 there is none, alike or not. Below 17 `sign-flip`: between the k-th least and
    k-th largest mean of all subsets, 1 - 2k/2^n >= level, exact for differences that lie symmetrically (Hartigan 1969, JASA
    64). From 17 tasks on `bootstrap`: whole tasks drawn, percentiles moved outwards as far as Student's t is wider
    (Hesterberg 2015); from 17 pairs on `normal`. Where all n units are `alike`, v, another value comes with at most e = 1 -
    ((1 - level)/2)^(1/n) (Clopper & Pearson 1934), and is in [-1, 1] for metrics in [0, 1]: from v - (1 + v)e to v + (1 -
    v)e; for other metrics there is none.

    p: signs turned, exact below 17 units. log_e: a fixed bet of 0.3, both sides (`analysis.sequential`).
    Shrunken: delta_q V / (V + se²) with V = max(0, mean delta_q² - mean se²) over the rows of an operator and metric, for
    effects that scatter around 0 (normal prior, empirical Bayes); a choice of the largest does not favour them.
    """
    import pandas as pd

    keys = [*by, *_WORLDS]
    rows = [
        dict(zip(keys, key, strict=True)) | _effect(group, "|".join([str(part) for part in key]), seed=seed, level=level)
        for key, group in pairs.groupby(keys, dropna=False, sort=True)
    ]
    table = pd.DataFrame(rows, columns=[*keys, *_FOUND])
    table = table.astype({name: int if name.startswith("n") else float for name in _FOUND if name not in _TEXTS})
    table["better"] = [better_of(name) for name in table["metric"]]
    if rows:
        family = [name for name in CELL if name in by]
        table = _corrected(table, family if {*by} - {*CELL} else [])
        table["delta_q_shrunken"] = _shrunken(table, ["operator", *_WORLDS] if "operator" in by else [*_WORLDS])
    return table


def better_of(metric: str) -> str:
    """Return which way of a metric is better: `higher`, `lower` or `neither`.

    >>> [better_of(name) for name in ("passed", "tokens", "n_steps")]
    ['higher', 'lower', 'neither']
    """
    return _BETTER.get(metric) or (METRICS[metric].better if metric in METRICS else "neither")


def arriving(delta_q: Iterable[float], *, alpha: float = 0.05) -> pd.DataFrame:
    """Return what is known after each difference in [-1, 1] of a stream that is looked at while it grows.

    Returns
    -------
    One row a difference, from n = 1 on: n, delta_q (mean so far), low and high (they hold the mean at all n at once with
    probability 1 - alpha, so one may stop at any), log_e against no effect, is_found (log_e has ever reached log 1/alpha).

    Notes
    -----
    The differences must have the same mean given those before: pairs of one event, or one value a task, entered when all its
    pairs are in. TraceError for a difference outside [-1, 1].

    >>> int(arriving([1.0] * 20).query("is_found")["n"].min())
    15
    """
    import pandas as pd

    d = np.asarray(list(delta_q), dtype=np.float64)
    log_e = log_paired(d, bet=_BET, two_sided=True)[1:]
    low, high = confidence_sequence((d + 1) / 2, alpha=alpha)
    n = np.arange(1, len(d) + 1)
    return pd.DataFrame(
        {
            "n": n, "delta_q": np.cumsum(d) / n, "low": np.maximum.accumulate(2 * low[1:] - 1),
            "high": np.minimum.accumulate(2 * high[1:] - 1), "log_e": log_e,
            "is_found": np.maximum.accumulate(log_e) >= -math.log(alpha),
        }
    )  # fmt: skip


def chosen(screened: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return the `n` rows of a screening that are worth fresh seeds: the largest effects for their error, of equals the cheaper.

    The error has the median error of all rows added to it, so that a few pairs that happen to be alike do not come first
    (Tusher et al. 2001, PNAS 98); a row of one pair has that alone. What changed nothing is never chosen.
    """
    usual = screened["se"].median()
    usual = usual if usual > 0 else 1.0
    size = screened["delta_q"].abs() / np.hypot(screened["se"].fillna(0.0), usual)
    ranked = screened.assign(_size=size).sort_values(["_size", "cost"], ascending=[False, True], kind="stable")
    return ranked[ranked["_size"] > 0].head(n).drop(columns="_size").sort_index()


def exportable(
    pairs: pd.DataFrame, *, screen: str, confirm: str, by: Sequence[str] = EVENT, seed: int = 0, alpha: float = 0.05
) -> pd.DataFrame:
    """Return the effects of a screening with what fresh seeds say of those that were chosen, and which credit may be exported.

    Parameters
    ----------
    screen, confirm : two values of `seed_block`; the second holds replays only of what the first suggested
    alpha : the share of false finds allowed among the confirmed

    Returns
    -------
    The rows of `effects` on the first block, and n, delta_q, low, high and q_value on the second, with `_confirm`. `export` is
    `confirmed` where the fresh effect has the sign of the screened one and q_value_confirm <= alpha: `credit_export` is then the
    fresh one. Else it is `shrunken` where delta_q_shrunken is known, or empty where there is nothing to export.

    Raises ValueError where both blocks are the same: the largest of many effects is partly luck, and would confirm itself.
    """
    if screen == confirm:
        raise ValueError(f"effects found in the seed block {screen!r} cannot be confirmed in the same block")
    keys = [*by, *_WORLDS]
    first = effects(pairs[pairs["seed_block"] == screen], by=by, seed=seed)
    fresh = effects(pairs[pairs["seed_block"] == confirm], by=by, seed=seed)[[*keys, "n", "delta_q", "low", "high", "q_value"]]
    table = first.merge(fresh, on=keys, how="left", suffixes=("", "_confirm"))
    is_confirmed = (table["q_value_confirm"] <= alpha) & (np.sign(table["delta_q"]) == np.sign(table["delta_q_confirm"]))
    is_confirmed &= table["delta_q_confirm"] != 0
    table["export"] = np.where(is_confirmed, "confirmed", np.where(table["delta_q_shrunken"].notna(), "shrunken", ""))
    table["credit_export"] = -table["delta_q_confirm"].where(is_confirmed, table["delta_q_shrunken"])
    return table


def _effect(group: pd.DataFrame, name: str, *, seed: int, level: float) -> dict[str, Any]:
    delta = (group["q_counterfactual"] - group["q"]).to_numpy(dtype=np.float64)
    is_known = np.isfinite(delta)
    delta, tasks = delta[is_known], group["task"].astype(str).to_numpy()[is_known]
    names = sorted(set(tasks))
    costs = group["cost"].dropna()
    found: dict[str, Any] = {"n": len(delta), "n_tasks": len(names), "n_missing": len(group) - len(delta)}
    found["cost"] = math.fsum(costs) if len(costs) else math.nan
    if not len(delta):
        return found
    if len(names) > 1:
        unit, d = "tasks", np.array([_mean(delta[tasks == task]) for task in names])
    else:
        unit, d = "pairs", _ordered(delta)
    centre = _mean(d)
    se = math.sqrt(math.fsum((d - centre) ** 2) / (len(d) - 1) / len(d)) if len(d) > 1 else math.nan
    is_bounded = group["metric"].iloc[0] in _SHARES and float(abs(d).max()) <= 1
    if len(d) > 1 and d.min() == d.max():
        is_told = is_bounded and len(d) >= N_LEAST
        low, high, how = *(_alike(float(d[0]), len(d), level) if is_told else (math.nan, math.nan)), "alike"
    else:
        low, high, how = _interval(d, unit, stream(seed, "effects", name), level=level)
    p = _p_signs(d)
    return found | {
        "unit": unit, "delta_q": centre, "credit": -centre, "low": low, "high": high, "how": how, "se": se, "p": p,
        "p_sign": 1 - p / 2, "zero_share": float((delta == 0).mean()),
        "log_e": float(log_paired(_ordered(d), bet=_BET, two_sided=True)[-1]) if is_bounded else math.nan,
    }  # fmt: skip


def _mean(values: Floats) -> float:
    return math.fsum(values) / len(values)


def _ordered(d: Floats) -> Floats:
    """Order by size, so that turning all signs gives the same sums to the last bit."""
    return d[np.lexsort((d, abs(d)))]


def _interval(d: Floats, unit: str, rng: np.random.Generator, *, level: float) -> tuple[float, float, str]:
    n = len(d)
    if n < N_DRAWN:
        n_tail = math.floor(2**n * (1 - level) / 2 + 1e-9)
        if n_tail == 0:
            return math.nan, math.nan, ""
        means = np.sort(_subset_means(d))
        return float(means[n_tail - 1]), float(means[-n_tail]), "sign-flip"
    if unit == "pairs":
        found, how = mean(d.tolist(), level=level), "normal"
    else:
        found, how = cluster_bootstrap(lambda w: float(w @ d) / n, range(n), rng=rng, level=_wider(level, n)), "bootstrap"
    if found is None or found.low is None or found.high is None:
        return math.nan, math.nan, ""
    return found.low, found.high, how


def _alike(v: float, n: int, level: float) -> tuple[float, float]:
    other = 1 - ((1 - level) / 2) ** (1 / n)
    return v - (1 + v) * other, v + (1 - v) * other


def _subset_means(d: Floats) -> Floats:
    """Return the mean of every subset that is not empty; the true centre lies between any two neighbours with equal chance."""
    totals, sizes = np.zeros(1), np.zeros(1)
    for value in d:
        totals, sizes = np.concatenate([totals, totals + value]), np.concatenate([sizes, sizes + 1])
    return np.asarray(totals[1:] / sizes[1:])


def _wider(level: float, n: int) -> float:
    """Return the level whose normal quantile is Student's of `level`, scaled to the spread that the bootstrap has."""
    from scipy.special import ndtr, stdtrit

    return float(2 * ndtr(stdtrit(n - 1, (1 + level) / 2) * math.sqrt(n / (n - 1))) - 1)


def _p_signs(d: Floats) -> float:
    """Return how often a sum is as far from 0 if the sign of every difference is a coin's."""
    total, scale = abs(math.fsum(d)), math.sqrt(math.fsum(d**2))
    if scale == 0:
        return 1.0
    if len(d) >= N_DRAWN:
        return math.erfc(total / scale / math.sqrt(2))
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return float(np.mean(abs(sums) >= total - 1e-9 * scale))


def _corrected(table: pd.DataFrame, family: Sequence[str]) -> pd.DataFrame:
    table["q_value"] = math.nan
    adjusted = benjamini_hochberg if family else benjamini_yekutieli
    for _, group in table.groupby([*family, *_WORLDS], dropna=False):
        table.loc[group.index, "q_value"] = _floats(adjusted(group["p"].tolist()))
    known = [None if math.isnan(value) else value for value in table["log_e"].astype(float)]
    return table.assign(q_e=_floats(e_benjamini_hochberg(known)))


def _floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _shrunken(table: pd.DataFrame, pool: Sequence[str]) -> pd.Series[float]:
    squares = table["delta_q"] ** 2 - table["se"] ** 2  # NaN where there is no error, and then not in the mean
    keys = [table[name] for name in pool]
    spread = squares.groupby(keys, dropna=False).transform("mean").clip(lower=0.0)
    weight = spread / (spread + table["se"] ** 2)
    return table["delta_q"] * weight.where(spread > 0, 0.0).where(table["se"].notna())
