"""Runs of one task that differ in one named factor alone: pairs that nobody made, with counts and intervals.

Decides what such a pair is. Its evidence is observational: nothing was changed, and whatever else differs between the runs,
and is not named, differs too. What all runs with one level have over all with another is never taken for an effect.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from analysis.counterfactual.effects import PAIRS, effects

if TYPE_CHECKING:
    import pandas as pd


def observed_pairs(runs: pd.DataFrame, *, factors: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """Return every pair of levels of a factor that a task was run with while all other factors were the same.

    Parameters
    ----------
    runs : one row a run: task, the factors (None where nobody states it), the metrics (None or NaN where absent), and `world`
        where runs of several worlds are there
    factors : what runs are told apart by, such as topology, model, limit

    Returns
    -------
    Pairs as `effects` takes them, evidence `observational`: operator is the factor, parameters its two levels, q and
    q_counterfactual the means over the runs of each. Also `context`: the levels of the other factors. A factor that nobody
    states for either run is taken to be the same in both, but is never what a pair differs in.
    """
    import pandas as pd

    known = runs.assign(**{name: [_level(value) for value in runs[name]] for name in factors})
    if "world" not in known:
        known = known.assign(world="recorded")
    means = known.groupby(["world", "task", *factors], dropna=False, sort=True)[list(metrics)].mean().reset_index()
    rows: list[dict[str, Any]] = []
    for factor in factors:
        others = [name for name in factors if name != factor]
        stated = means[means[factor] != ""]
        for held, group in stated.groupby(["world", "task", *others], sort=True):
            same = {"task": held[1], "world": held[0], "context": _text(zip(others, held[2:], strict=True))}
            levels = group.sort_values(factor, key=lambda names: names.map(_by_number)).to_dict("records")
            for first, second in itertools.combinations(levels, 2):
                pair = same | {"operator": factor, "parameters": json.dumps({"from": first[factor], "to": second[factor]})}
                rows += [pair | {"metric": m, "q": first[m], "q_counterfactual": second[m]} for m in metrics]
    fixed = {"trace_id": None, "event_id": None, "event_kind": None, "seed_block": "observed", "evidence": "observational"}
    return pd.DataFrame(rows, columns=[*PAIRS, "context"]).assign(**fixed, cost=float("nan"))


def observed_effects(runs: pd.DataFrame, *, factors: Sequence[str], metrics: Sequence[str], seed: int = 0) -> pd.DataFrame:
    """Return what goes along with each change of level, over all tasks and contexts that were run with both levels.

    Returns
    -------
    factor, level_a, level_b (numbers ascending, else by name), n_contexts, and the columns of `effects`, whose delta_q is b
    minus a; no row where no task was run with both.

    >>> import pandas as pd
    >>> rows = [(f"t{n}", model, n + gain) for n in range(6) for model, gain in (("small", 0.0), ("large", 1.0 + n / 10))]
    >>> found = observed_effects(pd.DataFrame(rows, columns=["task", "model", "score"]), factors=["model"], metrics=["score"])
    >>> found[["factor", "level_a", "level_b", "n", "delta_q", "low", "high"]].round(3).values.tolist()
    [['model', 'large', 'small', 6, -1.25, -1.5, -1.0]]
    """
    import pandas as pd

    pairs = observed_pairs(runs, factors=factors, metrics=metrics)
    table = effects(pairs, by=("operator", "parameters"), seed=seed)
    contexts = pairs.groupby(["operator", "parameters", "metric", "world"])["context"].nunique().rename("n_contexts")
    table = table.join(contexts, on=["operator", "parameters", "metric", "world"]).rename(columns={"operator": "factor"})
    levels = pd.DataFrame([json.loads(text) for text in table["parameters"]], columns=["from", "to"], index=table.index)
    table = table.assign(level_a=levels["from"], level_b=levels["to"])
    first = ["factor", "level_a", "level_b", "metric", "world", "evidence", "n_contexts"]
    rest = [name for name in table.columns if name not in (*first, "parameters")]
    order = [table["factor"], table["level_a"].map(_by_number), table["level_b"].map(_by_number), table["metric"], table["world"]]
    return table[[*first, *rest]].iloc[sorted(range(len(table)), key=lambda n: tuple([key.iloc[n] for key in order]))]


def stated_factors(conditions: Iterable[str | None]) -> pd.DataFrame:
    """Return the factors that conditions such as `topology=graph, model=gpt-4o` state, one column each, None where not stated.

    >>> stated_factors(["topology=tree, limit=5", None]).to_dict("list")
    {'topology': ['tree', None], 'limit': ['5', None]}
    """
    import pandas as pd

    said = [dict(re.findall(r"([^=,\s]+)=([^,]*)", condition or "")) for condition in conditions]
    names = dict.fromkeys([name for found in said for name in found])
    return pd.DataFrame({name: pd.Series([found.get(name) for found in said], dtype=object) for name in names})


def _level(value: Any) -> str:
    """Return a level as text, empty where it is not stated."""
    return "" if value is None or value != value else str(value)


def _by_number(level: str) -> tuple[float, str]:
    try:
        return (float(level), "")
    except ValueError:
        return (float("inf"), level)


def _text(levels: Iterable[tuple[Hashable, Hashable]]) -> str:
    return ", ".join([f"{name}={level}" for name, level in levels if level])
