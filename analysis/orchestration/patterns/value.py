"""What runs with a pattern are worth beside those without it: every metric, with intervals, and what chance would give.

Decides what is compared with what, what is drawn anew (tasks, not runs) and when there is nothing to say. Logs only: whoever
uses a pattern may differ in much else. Hidden here: how all patterns share one set of draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.estimation import MIN_FINITE_SHARE, benjamini_hochberg
from analysis.orchestration.groups import MIN_TASKS, PASSED
from analysis.orchestration.measure import METRICS
from analysis.orchestration.patterns.chance import ALPHA, Chance, Flags, Floats, Ints, Sparse, westfall_young
from analysis.streams import stream

if TYPE_CHECKING:
    import pandas as pd

#: What every picture and table of lifts says.
ASSOCIATION = (
    "An association in logs: runs with the pattern differ from runs without it by this much, for whatever reason; "
    "it is not known that using the pattern makes the difference."
)
#: The columns of a table of runs that say what belongs together; all others are metrics.
GROUPING = ("task", "condition")

_N_DRAWS = 1_000
_CHUNK = 8_000_000  # numbers drawn at a time
_COLUMNS = (
    "item", "metric", "better", "n_with", "n_without", "n_tasks_with", "n_tasks_without", "with_mean", "without_mean",
    "lift", "low", "high", "ratio", "ratio_low", "ratio_high", "p", "p_adjusted", "p_threshold", "q_value", "n_tested",
    "matched", "matched_low", "matched_high", "n_pairs", "matched_by", "evidence", "reason",
)  # fmt: skip


def metric_table(traces: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the table of runs that `lifts` takes, from the rows of a workspace.

    Parameters
    ----------
    traces : trace_id, task_id, condition, passed, score
    metrics : trace_id, name, variant, value; a metric that has values in several variants becomes a column each,
        `name (variant)`

    Returns
    -------
    One row a trace, by trace_id: task, condition, passed, score and the metrics that some run has; NaN where unknown.
    """
    import pandas as pd

    runs = traces.set_index("trace_id").sort_index()
    table = pd.DataFrame({"task": runs["task_id"], "condition": runs["condition"]})
    table = table.assign(**{name: pd.to_numeric(runs[name].astype("Float64")).astype(float) for name in (PASSED, "score")})
    known = metrics.dropna(subset=["value"])
    variants = known.groupby("name")["variant"].nunique()
    column = known["name"].where(known["name"].map(variants) == 1, known["name"] + " (" + known["variant"] + ")")
    wide = known.assign(column=column).pivot(index="trace_id", columns="column", values="value").astype(float)
    known_of_some = table.join(wide).dropna(axis=1, how="all")
    return known_of_some.reindex(columns=list(dict.fromkeys([*GROUPING, *known_of_some])))


def lifts(
    items: Sequence[str], occurrences: Sparse, *, table: pd.DataFrame, seed: int = 0, n_permutations: int = 1_000
) -> pd.DataFrame:
    """Return what the runs with each item differ in from those without it, for every item and metric.

    Parameters
    ----------
    items : the ids of patterns or families
    occurrences : scipy.sparse CSR, bool, shape (n_items, n_traces): which trace holds which item
    table : one row a trace, in the order of the columns of `occurrences`, its index the trace ids: numeric columns, NaN where
        unknown (`passed` as 0 and 1), and optionally `task` and `condition`; a run without a task is a task of its own

    Returns
    -------
    One row an item and metric, `better` being "higher", "lower" or "neither":
    with_mean, without_mean : means over the runs that have a value
    lift, low, high : the difference, in the metric's unit, with its 95 % interval; ratio (of the means): for `passed` only
    p, p_adjusted, q_value : two-sided; Westfall-Young over all items of the metric, and Benjamini-Hochberg over them.
        p_threshold: the p at which p_adjusted is 5 %, where p is exact; n_tested: the runs that p rests on, those of strata
        that hold runs of both kinds
    matched, matched_low, matched_high, n_pairs, matched_by : the mean of the differences within cells of equal task and
        condition that hold runs of both kinds; of equal task where no such cell is
    evidence : "observational"
    reason : why something is missing, in a sentence, else empty

    Notes
    -----
    Intervals: percentiles of 1,000 draws of whole tasks, moved outwards for few tasks as in `groups.compare_groups`; none
    with fewer than 5 tasks on a side. p: values are shuffled within the tasks that have several runs, and among all tasks that
    have one, see `chance.westfall_young`. The order of traces, and of items, changes nothing.
    """
    import pandas as pd

    held = occurrences.tocsr()
    if held.shape != (len(items), len(table)):
        raise ValueError(f"occurrences of shape {held.shape} for {len(items)} items and {len(table)} runs")
    order = np.argsort(table.index.to_numpy().astype(str), kind="stable")
    table, held = table.iloc[order], held[:, order].astype(bool)
    held.sort_indices()
    unique, which = _distinct(held)
    runs = _runs(table)
    blocks = [
        _block(unique, metric, values, runs=runs, chance=chance, seed=seed)
        for metric, values, chance in _tested(unique, table, runs, seed, n_permutations)
    ]
    rows = [block.iloc[which].assign(item=list(items)) for block in blocks]
    return pd.concat([_with_q(found) for found in rows], ignore_index=True) if rows else pd.DataFrame(columns=_COLUMNS)


def anti_patterns(rows: pd.DataFrame, *, metric: str | None = None) -> pd.DataFrame:
    """Return the rows of `lifts` that are significantly worse (p_adjusted <= 5 %), the surest first.

    Only metrics of which one direction is better count, or `metric` alone; a row whose matched difference points the other
    way is left out.
    """
    if rows.empty:
        return rows
    sign = rows["better"].map({"higher": 1.0, "lower": -1.0})
    worse = (rows["p_adjusted"] <= ALPHA) & (sign * rows["lift"] < 0) & ~(sign * rows["matched"] > 0)
    chosen = rows[worse if metric is None else worse & (rows["metric"] == metric)]
    return chosen.sort_values(["p_adjusted", "p", "item", "metric"], kind="stable").reset_index(drop=True)


def better(metric: str) -> str:
    """Return which way is better for a column of the table of runs.

    >>> better("passed"), better("span_s (clock)"), better("residual_norm"), better("anything")
    ('higher', 'lower', 'lower', 'neither')
    """
    name = metric.split(" (")[0]
    if name in (PASSED, "score"):
        return "higher"
    if name.startswith("residual"):
        return "lower"
    return METRICS[name].better if name in METRICS else "neither"


def tasks(table: pd.DataFrame) -> Ints:
    """Return a number for the task of each run of a table; a run without a task is a task of its own."""
    names = table["task"].tolist() if "task" in table else [None] * len(table)
    own = [(name is None or name != name, str(run if name is None or name != name else name))
           for run, name in zip(table.index, names, strict=True)]  # fmt: skip
    number = {name: n for n, name in enumerate(sorted(set(own)))}
    return np.array([number[name] for name in own], np.intp)


class _Runs(NamedTuple):
    """How the runs of a table belong together, as numbers, shape (n_traces,)."""

    task: Ints
    cells: dict[str, Ints]  # what is equal within a cell -> the cell of each run


def _runs(table: pd.DataFrame) -> _Runs:
    task = tasks(table)
    condition = table["condition"].astype(object).fillna("").astype(str).tolist() if "condition" in table else [""] * len(table)
    number: dict[tuple[int, str], int] = {}
    both = [number.setdefault(cell, len(number)) for cell in zip(task.tolist(), condition, strict=True)]
    return _Runs(task, {"task and condition": np.array(both, np.intp), "task": task})


def _tested(
    held: Sparse, table: pd.DataFrame, runs: _Runs, seed: int, n_permutations: int
) -> Iterator[tuple[str, Floats, Chance]]:
    """Yield every metric with its values and how surprising they are; metrics known of the same runs share the shuffles."""
    metrics = [name for name in table if name not in GROUPING]
    values = table[metrics].to_numpy(dtype=np.float64)
    known = np.isfinite(values)
    masks = np.unique(known, axis=1, return_inverse=True)[1].ravel() if metrics else np.zeros(0, np.intp)
    chances: dict[int, Chance] = {}
    for mask in np.unique(masks).tolist():
        columns = np.flatnonzero(masks == mask)
        has = known[:, columns[0]]
        strata = _strata(runs.task[has])
        rng = stream(seed, "lift", "shuffles")
        found = westfall_young(held[:, has], values[np.ix_(has, columns)], strata=strata, rng=rng, n_permutations=n_permutations)
        chances |= dict(zip(columns.tolist(), found, strict=True))
    for k, name in enumerate(metrics):
        yield name, values[:, k], chances[k]


def _strata(task: Ints) -> Ints:
    """Return the task of a run where it has several runs, else one stratum for all tasks with one run."""
    codes, n_runs = np.unique(task, return_inverse=True, return_counts=True)[1:]
    return np.where(n_runs[codes] > 1, codes + 1, 0)


def _distinct(held: Sparse) -> tuple[Sparse, list[int]]:
    """Return the rows that differ, and for each row which of them it is: patterns that occur together are computed once."""
    first: dict[bytes, int] = {}
    kept, which = [], []
    for item in range(held.shape[0]):
        key = held.indices[held.indptr[item] : held.indptr[item + 1]].tobytes()
        if key not in first:
            kept.append(item)
        which.append(first.setdefault(key, len(first)))
    return held[kept], which


class _Sums(NamedTuple):
    """Runs that have a value and totals of the values, in each group: of the runs with an item, and of all runs."""

    n: Sparse  # shape (n_items, n_groups), as is total
    total: Sparse
    n_all: Floats  # shape (n_groups,), as is total_all
    total_all: Floats


class _Pairs(NamedTuple):
    """Cells that hold runs of both kinds: how many in each task and the total of their differences, (n_items, n_tasks)."""

    n: Sparse
    total: Sparse
    by: npt.NDArray[np.object_]  # of each item: what is equal within a cell


def _sums(held: Sparse, values: Floats, group: Ints) -> _Sums:
    n_groups = int(group.max(initial=-1)) + 1
    has = np.isfinite(values)
    filled = np.where(has, values, 0)
    item, trace = held.tocoo().coords
    n, total = _grouped((held.shape[0], n_groups), item, group[trace], has[trace], filled[trace])
    n_all, total_all = (np.bincount(group, entry, minlength=n_groups).astype(np.float64) for entry in (has, filled))
    return _Sums(n, total, n_all, total_all)


def _grouped(shape: tuple[int, int], item: Ints, group: Ints, *entries: Floats) -> list[Sparse]:
    """Return matrices of the entries summed by item and group; all have the same cells, zeros among them."""
    from scipy import sparse

    cells, at = np.unique(item.astype(np.int64) * shape[1] + group, return_inverse=True)
    where = np.divmod(cells, max(1, shape[1]))
    return [sparse.csr_array((np.bincount(at, entry, minlength=len(cells)), where), shape=shape) for entry in entries]


def _pairs(held: Sparse, values: Floats, runs: _Runs) -> _Pairs:
    by = np.full(held.shape[0], "", dtype=object)
    found: list[tuple[Ints, Ints, Floats]] = []
    for name, cells in runs.cells.items():
        task = np.zeros(int(cells.max(initial=-1)) + 1, np.intp)
        task[cells] = runs.task
        sums = _sums(held, values, cells)
        item, cell = sums.n.tocoo().coords
        n, total = sums.n.data, sums.total.data
        is_pair = (n > 0) & (n < sums.n_all[cell]) & (by[item] == "")
        item, cell, n, total = item[is_pair], cell[is_pair], n[is_pair], total[is_pair]
        found.append((item, task[cell], total / n - (sums.total_all[cell] - total) / (sums.n_all[cell] - n)))
        by[item] = name
    item, of_task, apart = (np.concatenate(parts) for parts in zip(*found, strict=True))
    n_pairs, total_apart = _grouped((held.shape[0], int(runs.task.max(initial=-1)) + 1), item, of_task, np.ones(len(item)), apart)
    return _Pairs(n_pairs, total_apart, by)


def _block(held: Sparse, metric: str, values: Floats, *, runs: _Runs, chance: Chance, seed: int) -> pd.DataFrame:
    """Return the rows of one metric, one an item."""
    import pandas as pd

    sums, pairs = _sums(held, values, runs.task), _pairs(held, values, runs)
    n_with, n_tasks_with = sums.n.sum(axis=1), _n_tasks(sums.n)
    n_without = sums.n_all.sum() - n_with
    n_tasks_without = (sums.n_all > 0).sum() - _n_full(sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        with_mean = sums.total.sum(axis=1) / n_with
        # A total of none is 0 only up to rounding, and that by 0 would be infinite.
        without_mean = np.where(n_without > 0, sums.total_all.sum() - sums.total.sum(axis=1), math.nan) / n_without
        matched = pairs.total.sum(axis=1) / pairs.n.sum(axis=1)
        ratio = with_mean / without_mean if metric == PASSED else np.full(len(n_with), math.nan)
    apart, ratios, within = _drawn(sums, pairs, seed)
    fewest = np.minimum(n_tasks_with, n_tasks_without)
    low, high = _interval(apart, fewest)
    ratio_low, ratio_high = _interval(ratios, np.where(np.isfinite(ratio), fewest, 0))
    matched_low, matched_high = _interval(within, _n_tasks(pairs.n))
    turned = ((with_mean < without_mean) & (matched_low > 0)) | ((with_mean > without_mean) & (matched_high < 0))
    reason = _reasons(values, n_with, n_without, chance.p, fewest, turned)
    columns = {
        "metric": metric, "better": better(metric), "n_with": n_with.astype(int), "n_without": n_without.astype(int),
        "n_tasks_with": n_tasks_with, "n_tasks_without": n_tasks_without, "with_mean": with_mean, "without_mean": without_mean,
        "lift": with_mean - without_mean, "low": low, "high": high,
        "ratio": np.where(np.isfinite(ratio), ratio, math.nan), "ratio_low": ratio_low, "ratio_high": ratio_high,
        "p": chance.p, "p_adjusted": chance.p_adjusted,
        "p_threshold": math.nan if chance.threshold is None else chance.threshold,
        "n_tested": _n_tested(held, values, runs.task), "matched": matched,
        "matched_low": matched_low, "matched_high": matched_high, "n_pairs": pairs.n.sum(axis=1).astype(int),
        "matched_by": pairs.by, "evidence": "observational", "reason": reason,
    }  # fmt: skip
    return pd.DataFrame(columns)


def _n_tasks(n: Sparse) -> Ints:
    counted: Ints = (n > 0).sum(axis=1).astype(int)
    return counted


def _n_tested(held: Sparse, values: Floats, task: Ints) -> Ints:
    """Return how many runs are in strata that hold runs of both kinds."""
    known = np.isfinite(values)
    sums = _sums(held[:, known], values[known], _strata(task[known]))
    mixed = sums.n.copy()
    n_all = sums.n_all[mixed.indices]
    mixed.data = np.where((mixed.data > 0) & (mixed.data < n_all), n_all, 0)
    found: Ints = mixed.sum(axis=1).astype(int)
    return found


def _n_full(sums: _Sums) -> Ints:
    """Return in how many tasks every run that has a value holds the item."""
    full = sums.n.copy()
    full.data = (full.data > 0) & (full.data == sums.n_all[full.indices])
    return _n_tasks(full)


def _drawn(sums: _Sums, pairs: _Pairs, seed: int) -> tuple[Floats, Floats, Floats]:
    """Return difference, ratio and matched difference for tasks drawn anew, each of shape (n_items, n_draws)."""
    n_tasks = len(sums.n_all)
    rng = stream(seed, "lift", "tasks")
    size = max(1, _CHUNK // max(1, n_tasks))
    drawn: list[tuple[Floats, Floats, Floats]] = []
    for start in range(0, _N_DRAWS, size):
        picked = (rng.random((min(size, _N_DRAWS - start), n_tasks)) * n_tasks).astype(np.intp)
        counts = np.stack([np.bincount(row, minlength=n_tasks) for row in picked], axis=1).astype(np.float64)
        n, total = sums.n @ counts, sums.total @ counts
        with np.errstate(invalid="ignore", divide="ignore"):
            with_, without = total / n, (sums.total_all @ counts - total) / (sums.n_all @ counts - n)
            drawn.append((with_ - without, with_ / without, (pairs.total @ counts) / (pairs.n @ counts)))
    apart, ratios, within = (np.concatenate(parts, axis=1) for parts in zip(*drawn, strict=True))
    return apart, ratios, within


def _interval(draws: Floats, n_tasks: Ints) -> tuple[Floats, Floats]:
    """Return the 95 % interval of each row; NaN for fewer than 5 tasks and where too many draws have no value."""
    from scipy.stats import norm, t

    low, high = np.full(len(draws), math.nan), np.full(len(draws), math.nan)
    finite = np.isfinite(draws)
    usable = (n_tasks >= MIN_TASKS) & (finite.sum(axis=1) >= MIN_FINITE_SHARE * draws.shape[1])
    n = n_tasks[usable]
    tails = norm.cdf(t.ppf(0.025, n - 1) * np.sqrt(n / (n - 1)))
    for row, tail in zip(np.flatnonzero(usable).tolist(), tails.tolist(), strict=True):
        low[row], high[row] = np.quantile(draws[row][finite[row]], [tail, 1 - tail])
    return low, high


def _reasons(values: Floats, n_with: Floats, n_without: Floats, p: Floats, fewest: Ints, turned: Flags) -> list[str]:
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return ["no run has a value"] * len(n_with)
    if len(known) == 1:
        return ["only one run has a value; there is nothing to compare it with"] * len(n_with)
    if np.ptp(known) == 0:
        return [f"all {len(known)} runs have the same value, {known[0]:g}"] * len(n_with)
    columns = [column.tolist() for column in (n_with, n_without, p, fewest, turned)]
    return [_reason(*item) for item in zip(*columns, strict=True)]


def _reason(n_with: float, n_without: float, p: float, fewest: int, is_turned: bool) -> str:
    if n_with == 0:
        return "no run that has a value has it"
    if n_without == 0:
        return "every run that has a value has it"
    if math.isnan(p):
        return "no two runs of one task differ both in having it and in the value, so there is no chance to compare with"
    if is_turned:
        return "matched runs differ the other way: which runs have it says more than having it"
    return f"on one side there are {fewest} tasks; {MIN_TASKS} are needed for an interval" if fewest < MIN_TASKS else ""


def _with_q(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(q_value=np.array(benjamini_hochberg(rows["p"].tolist()), dtype=float))[list(_COLUMNS)]
