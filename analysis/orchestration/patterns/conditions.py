"""When a family pays: for which tasks and teams its runs do better than others, and whether they do in every domain.

Decides what counts as doing well, and when a rule is better than none. Logs only, as in `value`. Hidden here: how a tree that
predicts outcomes is made to look for differences instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.estimation import cluster_bootstrap
from analysis.orchestration.patterns.value import better, lifts, tasks
from analysis.streams import stream

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]

_N_FOLDS = 5
_MIN_LEAF = 10  # runs with the family, and without it, in every leaf
_MIN_GAIN = 2.0  # standard errors by which a rule must predict better than none
_MAX_CATEGORIES = 20


class Leaf(NamedTuple):
    """Runs that a rule holds for, and what the family is worth among them.

    rule : "" where it is all runs
    with_mean, without_mean, lift : share of runs that did well, with the family, without it, and the difference
    low, high : 95 % interval of the lift, whole tasks drawn anew; None for fewer than 2 tasks
    """

    rule: str
    n_with: int
    n_without: int
    with_mean: float
    without_mean: float
    lift: float
    low: float | None
    high: float | None


class Conditions(NamedTuple):
    """Under which conditions a family pays.

    leaves : what the rules divide the runs into, the largest lift first; one leaf, without a rule, where no rule is better
    gain : by how many standard errors the rules explain tasks left out better than no rule does; None where it was not tried
    note : the answer in a sentence
    """

    leaves: tuple[Leaf, ...]
    gain: float | None
    note: str


def conditions(
    has_family: Flags, table: pd.DataFrame, features: pd.DataFrame, *, metric: str = "passed", seed: int = 0
) -> Conditions:
    """Return the rules over task and team features that tell where a family pays from where it does not.

    Parameters
    ----------
    has_family : which runs are of the family, shape (n_traces,)
    table : one row a run, as for `lifts`; `task` says which runs are kept together
    features : numbers, flags or words known before the run, one row a run in the order of `table`; NaN where unknown
    metric : the column that says how well a run did; more than its median is well (less, where lower is better), of `passed`
        a pass

    Notes
    -----
    What the features say of doing well, and of being in the family, is taken out first (trees of depth 3, on other tasks); a
    tree of depth 2 or less then splits where the lift differs, not where tasks are easy or the family common (R-learner, Nie
    & Wager 2021). A rule is believed if, on tasks left out (5 folds), it explains more than one lift for all does, by 2
    standard errors over tasks. Leaves hold at least 10 runs of each kind.
    """
    values = table[metric].to_numpy(dtype=np.float64)
    known = np.isfinite(values)
    has, values = has_family[known], values[known]
    columns = _columns(features[known])
    task = np.unique(tasks(table)[known], return_inverse=True)[1]
    well = _did_well(values, better(metric))
    if min(has.sum(), (~has).sum()) < 2 * _MIN_LEAF:
        note = f"too few runs: {has.sum()} with the family, {(~has).sum()} without it have a value of {metric}"
        return Conditions((), None, f"{note}; {2 * _MIN_LEAF} of each are needed for a rule")
    if well.all() or not well.any():
        return Conditions((), None, f"all runs did alike in {metric}; there is no difference to look for")
    every = np.ones(len(well), dtype=bool)
    everywhere = _leaf("", every, has, well, task=task, seed=seed)
    if not columns:
        return Conditions((everywhere,), None, "no rule: no feature differs between runs")
    matrix = np.column_stack(list(columns.values()))
    n_tasks = int(task.max()) + 1
    fold = (np.argsort(np.argsort(stream(seed, "conditions", "folds").random(n_tasks), kind="stable")) % _N_FOLDS)[task]
    if len(np.unique(fold)) < 2:
        return Conditions((everywhere,), None, "no rule: there is only one task, and none to try a rule on")
    rest = _residuals(matrix, has, well, fold)
    gain, tree = _gain(matrix, has, rest, task=task, fold=fold), _tree(matrix, has, rest)
    if tree is None:
        return Conditions((everywhere,), gain, f"no rule: no feature divides the runs so that each part holds {_MIN_LEAF} "
                                               "runs of both kinds")  # fmt: skip
    if gain <= _MIN_GAIN:
        return Conditions((everywhere,), gain, f"no rule: on tasks left out, rules over {len(columns)} features explain "
                                               f"no more than one lift for all ({gain:.1f} standard errors)")  # fmt: skip
    reached = tree.apply(matrix)
    leaves = [_leaf(rule, reached == n, has, well, task=task, seed=seed) for n, rule in _rules(tree.tree_, list(columns), matrix)]
    note = f"on tasks left out, the rules explain more than one lift for all does, by {gain:.1f} standard errors"
    return Conditions(tuple(sorted(leaves, key=lambda leaf: -leaf.lift)), gain, note)


def across_domains(
    items: Sequence[str], occurrences: Any, *, table: pd.DataFrame, domains: Sequence[str | None], seed: int = 0
) -> pd.DataFrame:
    """Return the lifts within each domain, and whether they hold there.

    Parameters
    ----------
    items, occurrences, table : as for `lifts`; keep only the metrics that are asked about
    domains : of each run, in the order of `table`; None where unknown

    Returns
    -------
    The rows of `lifts` of every domain, with domain and holds: "yes" (the interval lies on the side of the lift over all
    runs), "contrary" (on the other), "not shown" (it holds zero, or there is none).
    """
    import pandas as pd

    names = sorted({domain for domain in domains if isinstance(domain, str)})
    kept = {name: np.array([domain == name for domain in domains]) for name in names}
    held = occurrences.tocsr()
    parts = [lifts(items, held[:, mask], table=table[mask], seed=seed).assign(domain=name) for name, mask in kept.items()]
    overall = lifts(items, held, table=table, seed=seed).set_index(["item", "metric"])["lift"]
    if not parts:
        return lifts(items, held, table=table, seed=seed).iloc[:0].assign(domain="", holds="")
    rows = pd.concat(parts, ignore_index=True)
    sign = np.sign(overall.reindex(pd.MultiIndex.from_frame(rows[["item", "metric"]])).to_numpy())
    side = np.where(rows["low"] > 0, 1, np.where(rows["high"] < 0, -1, 0))
    holds = np.where((side == 0) | (sign == 0), "not shown", np.where(side == sign, "yes", "contrary"))
    return rows.assign(holds=holds)


def _did_well(values: Floats, direction: str) -> Flags:
    if set(np.unique(values)) <= {0.0, 1.0}:
        return (values < 1) if direction == "lower" else (values > 0)
    middle = np.median(values)
    return (values < middle) if direction == "lower" else (values > middle)


def _columns(features: pd.DataFrame) -> dict[str, Floats]:
    """Return what a tree can split: numbers as they are, a flag a word, `name = word`; what never differs is left out."""
    found: dict[str, Floats] = {}
    for name, column in features.items():
        if column.dtype.kind in "biuf":
            found[str(name)] = column.to_numpy(dtype=np.float64)
        else:
            words = column.dropna().astype(str)
            for word in sorted(words.value_counts().index[:_MAX_CATEGORIES]):
                found[f"{name} = {word}"] = (column.astype(object) == word).to_numpy(dtype=np.float64)
    return {name: values for name, values in found.items() if len(np.unique(values)) > 1}


class _Residuals(NamedTuple):
    """What the features do not explain, by runs of other tasks: of doing well, and of being in the family."""

    well: Floats
    has: Floats


def _residuals(matrix: Floats, has: Flags, well: Flags, fold: Ints) -> _Residuals:
    from sklearn.tree import DecisionTreeClassifier

    expected = np.zeros((2, len(has)))
    for number in np.unique(fold):
        out = fold == number
        for row, seen in enumerate((well, has)):
            tree = DecisionTreeClassifier(max_depth=3, min_samples_leaf=2 * _MIN_LEAF, random_state=0)
            shares = tree.fit(matrix[~out], seen[~out]).predict_proba(matrix[out])
            expected[row, out] = shares @ tree.classes_.astype(np.float64)
    return _Residuals(well - expected[0], has - np.clip(expected[1], 0.05, 0.95))


def _tree(matrix: Floats, has: Flags, rest: _Residuals) -> Any | None:
    """Return the tree of lifts, less deep where a leaf would have too few runs of either kind; None where nothing splits."""
    from sklearn.tree import DecisionTreeRegressor

    for depth in (2, 1):
        # A leaf with runs of one kind only weighs next to nothing: what it has is what its features say.
        least = min(0.5, _MIN_LEAF / 2 / max(1e-9, float(rest.has @ rest.has)))
        tree = DecisionTreeRegressor(
            max_depth=depth, min_samples_leaf=2 * _MIN_LEAF, min_weight_fraction_leaf=least, random_state=0
        )
        tree.fit(matrix, rest.well / rest.has, sample_weight=rest.has**2)
        leaves, reached = np.unique(tree.apply(matrix), return_inverse=True)
        n_each = [np.bincount(reached[kind], minlength=len(leaves)).min() for kind in (has, ~has)]
        if len(leaves) > 1 and min(n_each) >= _MIN_LEAF:
            return tree
    return None


def _gain(matrix: Floats, has: Flags, rest: _Residuals, *, task: Ints, fold: Ints) -> float:
    """Return by how many standard errors over tasks the tree explains those left out better than one lift for all."""
    gained = np.zeros(len(has))
    for number in np.unique(fold):
        out = fold == number
        learned = _Residuals(rest.well[~out], rest.has[~out])
        tree = _tree(matrix[~out], has[~out], learned)
        if tree is not None:
            everywhere = (learned.well @ learned.has) / (learned.has @ learned.has)
            missed = [(rest.well[out] - rest.has[out] * lift) ** 2 for lift in (everywhere, tree.predict(matrix[out]))]
            gained[out] = missed[0] - missed[1]
    by_task = np.bincount(task, gained)
    error = by_task.std(ddof=1) / np.sqrt(len(by_task)) if len(by_task) > 1 else 0.0
    return float(by_task.mean() / error) if error > 0 else 0.0


def _leaf(rule: str, inside: Flags, has: Flags, well: Flags, *, task: Ints, seed: int) -> Leaf:
    with_, without = well[inside & has], well[inside & ~has]
    kind, passed = has[inside].astype(np.float64), well[inside].astype(np.float64)
    rng = stream(seed, "conditions", rule)

    def difference(weights: Floats) -> float:
        n_with, n_without = weights @ kind, weights @ (1 - kind)
        if min(n_with, n_without) == 0:
            return float("nan")
        return float((weights @ (kind * passed)) / n_with - (weights @ ((1 - kind) * passed)) / n_without)

    found = cluster_bootstrap(difference, task[inside].tolist(), rng=rng)
    low, high = (found.low, found.high) if found else (None, None)
    means = float(with_.mean()), float(without.mean())
    return Leaf(rule, len(with_), len(without), *means, means[0] - means[1], low, high)


def _rules(tree: Any, names: Sequence[str], matrix: Floats) -> list[tuple[int, str]]:
    """Return every leaf with what leads to it, in words."""
    has_unknown = np.isnan(matrix).sum(axis=0) > 0
    found: list[tuple[int, str]] = []
    todo: list[tuple[int, list[str]]] = [(0, [])]
    while todo:
        node, path = todo.pop()
        if tree.children_left[node] == -1:
            found.append((node, _joined(path)))
            continue
        column = tree.feature[node]
        unknown_left = bool(tree.missing_go_to_left[node])
        for child, is_left in ((tree.children_right[node], False), (tree.children_left[node], True)):
            word = _test(names[column], float(tree.threshold[node]), is_left)
            todo.append((child, [*path, word + (" or unknown" if has_unknown[column] and is_left == unknown_left else "")]))
    return found


def _test(name: str, threshold: float, is_left: bool) -> str:
    if " = " in name:
        return name.replace(" = ", " is not ") if is_left else name
    return f"{name} {'<=' if is_left else '>'} {threshold:g}"


def _joined(tests: Sequence[str]) -> str:
    """Return tests as one; what a feature is not goes without saying where it is said what it is."""
    stated = {test.split(" = ")[0] for test in tests if " = " in test}
    return " and ".join([test for test in tests if test.split(" is not ")[0] not in stated or " is not " not in test])
