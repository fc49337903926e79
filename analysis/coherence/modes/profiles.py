"""Failure profiles: for each trace, how its trouble is spread over a few kinds of cells; every row sums to 1.

Two sources, never mixed. `residual`: where ε*² lies, by relation, pair of roles and phase of the run. `orchestration`: how
a failed run looks from outside, with or without claims. Hidden here: how shares are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt

from analysis.coherence.modes.categories import role_of, stop_reason
from analysis.errors import UnknownNameError

if TYPE_CHECKING:
    import pandas as pd

Source = Literal["residual", "orchestration"]
BORDER: Final = " | "  # between the parts of a cell's name
#: A run with a Q below this is profiled as a failed one is. A team at work one after the other has a low q_orchestration by
#: itself (1 / agents), so its bound is lower, and it counts only beside an anti-pattern that was found.
LOW_Q: Final = {"q_work": 0.5, "q_orchestration": 0.25}
QUALITIES: Final = ("q_work", "q_parallel_useful", "q_split", "q_aggregate", "q_orchestration")
NOBODY: Final = "not attributed"
_STATE = ["trace_id", "level", "turn_phase"]


@dataclass(frozen=True, eq=False)
class Profiles:
    """Profiles of traces, from one source: `matrix` has a row for each trace id and a column for each cell."""

    trace_ids: tuple[str, ...]
    cells: tuple[str, ...]
    matrix: npt.NDArray[np.float32]
    source: Source

    def take(self, rows: Sequence[int] | npt.NDArray[np.integer]) -> Profiles:
        """Return the profiles of some rows, in the order given."""
        return Profiles(tuple([self.trace_ids[row] for row in rows]), self.cells, self.matrix[np.asarray(rows, int)], self.source)


def residual_profiles(violations: pd.DataFrame, attribution: pd.DataFrame) -> Profiles:
    """Return where the ε*² of each incoherent trace lies: cells (kind of relation, pair of roles, phase).

    The states of a trace (level × phase) weigh as their ε*². Within a state a relation weighs as its drop; where all drops
    are 0 (each violation is doubled by another), the violated ones weigh alike. A relation's share goes to its pairs of
    components as the product of their energies, a component's pair with itself included, each pair once.

    Parameters
    ----------
    violations : trace_id, level, turn_phase, kind, drop (ε*² less ε*² without the relation, >= 0), is_violated, residual
        (ε* of the state); where a column `components` (lists) says who quotes the relation, only those share it,
        else all of its state
    attribution : trace_id, level, turn_phase, component, energy

    Returns
    -------
    Traces without a positive residual, or in which nothing is known to be violated, have no profile. A share whose state
    has no attribution is kept in the pair `not attributed`.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"trace_id": "t", "level": "final", "turn_phase": "late"}
    >>> found = residual_profiles(
    ...     pd.DataFrame([row | {"kind": "implies", "drop": 0.04, "is_violated": True, "residual": 0.2}]),
    ...     pd.DataFrame([row | {"component": "planner", "energy": 0.03}, row | {"component": "coder", "energy": 0.01}]),
    ... )
    >>> for cell, share in zip(found.cells, found.matrix[0]):  # 9 : 3 : 1
    ...     print(cell, f"{share:.4f}")
    implies | planner alone | late 0.6923
    implies | planner–worker | late 0.2308
    implies | worker alone | late 0.0769
    """
    _need(violations, "violations", (*_STATE, "kind", "drop", "is_violated", "residual"))
    _need(attribution, "attribution", (*_STATE, "component", "energy"))
    rows = violations.reset_index(drop=True)
    rows = rows.assign(row=rows.index, violated=rows["is_violated"].eq(True).fillna(False).astype(float))
    state = rows.groupby(_STATE, sort=False)
    drops, n_violated = state["drop"].transform("sum"), state["violated"].transform("sum")
    shares = (rows["drop"] / drops).where(drops > 0, rows["violated"] / n_violated).fillna(0.0)
    rows = rows.assign(weight=shares * rows["residual"] ** 2)
    pairs = _pairs(_ends(rows[rows["weight"] > 0], attribution))
    parts = ["kind", "pair", "turn_phase"]
    summed = pairs.groupby(["trace_id", *parts], observed=True, sort=False)["weight"].sum().reset_index()
    return _tabled(summed.assign(cell=_cells(summed[parts])), "residual")


def _ends(rows: pd.DataFrame, attribution: pd.DataFrame) -> pd.DataFrame:
    """Return who may share each relation: one row a relation and component, with the energy."""
    if "components" in rows:
        ends = rows.explode("components").rename(columns={"components": "component"})
        ends = ends.astype({"component": attribution["component"].dtype})  # an empty column has no type to join by
        ends = ends.merge(attribution, how="left", on=[*_STATE, "component"])
    else:
        ends = rows.merge(attribution, how="left", on=_STATE)
    return ends.assign(component=ends["component"].astype("category"), energy=ends["energy"].fillna(0.0).astype(float))


def _pairs(ends: pd.DataFrame) -> pd.DataFrame:
    """Return the weight of each relation's pairs: trace_id, kind, turn_phase, pair, weight."""
    import pandas as pd

    names = ends["component"].cat.categories
    roles, of = np.unique([*(role_of(str(name)) for name in names), NOBODY], return_inverse=True)
    slim = pd.DataFrame({"row": ends["row"], "who": ends["component"].cat.codes.astype(np.int64), "energy": ends["energy"]})
    both = slim.merge(slim, on="row", suffixes=("", "_other"))
    both = both[both["who"] <= both["who_other"]]
    product = both["energy"] * both["energy_other"]
    by_row = product.groupby(both["row"])
    total = by_row.transform("sum")
    share = (product / total).where(total > 0, 1.0 / by_row.transform("size"))
    one, other = of[both["who"]], of[both["who_other"]]
    is_alone = (both["who"] == both["who_other"]).to_numpy()
    code = np.where(is_alone, -1 - one, np.minimum(one, other) * len(roles) + np.maximum(one, other))
    codes, place = np.unique(code, return_inverse=True)
    pair = pd.Categorical.from_codes(place, [_pair_name(int(c), roles.tolist()) for c in codes])
    facts = ends.drop_duplicates("row").set_index("row")[["trace_id", "kind", "turn_phase", "weight"]]
    found = facts.astype({"trace_id": "category", "kind": "category", "turn_phase": "category"}).loc[both["row"]]
    return found.reset_index(drop=True).assign(pair=pair, weight=found["weight"].to_numpy() * share.to_numpy())


def _cells(parts: pd.DataFrame) -> pd.Series:
    """Return the names of cells; each distinct one is put together once."""
    place, distinct = parts.groupby(parts.columns.tolist(), observed=True, sort=False).ngroup(), parts.drop_duplicates()
    names = np.array([BORDER.join(map(str, row)) for row in distinct.itertuples(index=False)], dtype=object)
    return place.map(dict(enumerate(names)))


def _pair_name(code: int, roles: Sequence[str]) -> str:
    """Return the words for a pair: -1 - role for a component with itself, else first role × number of roles + second role."""
    if code < 0:
        role = roles[-1 - code]
        return role if role == NOBODY else f"{role} alone"
    return "–".join(roles[n] for n in divmod(code, len(roles)))


def orchestration_profiles(
    findings: pd.DataFrame, endings: pd.DataFrame, *, components: pd.DataFrame, metrics: pd.DataFrame, labels: pd.DataFrame
) -> Profiles:
    """Return how each failed or low-Q trace looks from outside: cells (block, what), a few blocks of equal weight.

    Blocks: `anti-pattern` (which were found, or none), `stop` (reason), `errors` (by role, or none), `critical path` (share by
    role), `deficit` (1 - q of each known Q in [0, 1], and what was `held`), `label` (category; root causes where one is stated).
    Within a block the cells of a trace sum to 1; a block of which nothing is known is left out, and the others weigh alike.

    Parameters
    ----------
    findings : trace_id, name
    endings : trace_id, passed, condition, final_state; one row a trace, which says what there is to profile
    components : trace_id, component, n_errors, critical_share (of the critical path's time); one row a component
    metrics : trace_id, name, value
    labels : trace_id, category, is_root_cause. Give no rows where modes are to be compared with labels afterwards.

    Returns
    -------
    The traces that failed, or have a Q below `LOW_Q` (of q_orchestration: and a finding), sorted by id.
    """
    import pandas as pd

    _need(findings, "findings", ("trace_id", "name"))
    _need(endings, "endings", ("trace_id", "passed", "condition", "final_state"))
    _need(components, "components", ("trace_id", "component", "n_errors", "critical_share"))
    _need(metrics, "metrics", ("trace_id", "name", "value"))
    _need(labels, "labels", ("trace_id", "category", "is_root_cause"))
    known = metrics[metrics["name"].isin(QUALITIES) & metrics["value"].notna()].astype({"value": float})
    low = known[known["value"] < known["name"].map(LOW_Q).astype(float)]
    low = low[(low["name"] != "q_orchestration") | low["trace_id"].isin(findings["trace_id"])]["trace_id"]
    failed = endings[endings["passed"].eq(False).fillna(False) | endings["trace_id"].isin(low)]
    blocks = {
        "anti-pattern": _patterns(findings, failed["trace_id"]),
        "stop": _stops(failed),
        "errors": _errors(components),
        "critical path": _critical(components),
        "deficit": _deficits(known),
        "label": _categories(labels),
    }
    rows = pd.concat([part.assign(block=name) for name, part in blocks.items()], ignore_index=True)
    rows = rows[rows["trace_id"].isin(failed["trace_id"])]
    weight = rows["weight"] / rows.groupby(["trace_id", "block"])["weight"].transform("sum")
    return _tabled(rows.assign(cell=rows["block"] + BORDER + rows["what"].astype(str), weight=weight), "orchestration")


def _patterns(findings: pd.DataFrame, trace_ids: pd.Series) -> pd.DataFrame:
    import pandas as pd

    found = findings[["trace_id", "name"]].drop_duplicates().rename(columns={"name": "what"})
    none = pd.DataFrame({"trace_id": trace_ids[~trace_ids.isin(found["trace_id"])], "what": "none found"})
    return pd.concat([found, none]).assign(weight=1.0)


def _stops(failed: pd.DataFrame) -> pd.DataFrame:
    stated = failed[["condition", "final_state"]].astype(object).where(failed[["condition", "final_state"]].notna(), None)
    reasons = [stop_reason(*row) for row in stated.itertuples(index=False)]
    return failed[["trace_id"]].assign(what=reasons, weight=1.0).dropna(subset="what")


def _errors(components: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    erring = components[components["n_errors"] > 0]
    rows = pd.DataFrame({"trace_id": erring["trace_id"], "what": _roles(erring), "weight": erring["n_errors"].astype(float)})
    quiet = components["trace_id"].drop_duplicates()
    none = pd.DataFrame({"trace_id": quiet[~quiet.isin(erring["trace_id"])], "what": "none", "weight": 1.0})
    return pd.concat([rows, none])


def _critical(components: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    on_path = components[components["critical_share"] > 0]
    return pd.DataFrame({"trace_id": on_path["trace_id"], "what": _roles(on_path), "weight": on_path["critical_share"]})


def _deficits(known: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    held = known["value"].clip(0, 1)
    short = pd.DataFrame({"trace_id": known["trace_id"], "what": known["name"], "weight": 1 - held})
    kept = pd.DataFrame({"trace_id": known["trace_id"], "what": "held", "weight": held})
    return pd.concat([short, kept])


def _categories(labels: pd.DataFrame) -> pd.DataFrame:
    stated = labels[labels["category"].notna()]
    is_root = stated["is_root_cause"].eq(True).fillna(False).astype(bool)
    has_root = is_root.groupby(stated["trace_id"]).transform("any").astype(bool)
    chosen = stated[is_root | ~has_root]
    return chosen[["trace_id"]].assign(what=chosen["category"], weight=1.0)


def _roles(components: pd.DataFrame) -> pd.Series:
    roles = {name: role_of(str(name)) for name in components["component"].unique()}
    return components["component"].map(roles)


def _tabled(rows: pd.DataFrame, source: Source) -> Profiles:
    """Return (trace_id, cell, weight) as a matrix whose rows sum to 1; traces and cells sorted."""
    import pandas as pd

    rows = rows[rows["weight"] > 0]
    at, trace_ids = pd.factorize(rows["trace_id"].astype(str), sort=True)
    place, cells = pd.factorize(rows["cell"].astype(str), sort=True)
    flat = np.bincount(at * len(cells) + place, weights=rows["weight"], minlength=len(trace_ids) * len(cells))
    matrix = flat.astype(np.float64).reshape(len(trace_ids), len(cells))
    matrix = matrix / matrix.sum(axis=1, keepdims=True)
    return Profiles(tuple(trace_ids.tolist()), tuple(cells.tolist()), matrix.astype(np.float32), source)


def _need(frame: pd.DataFrame, name: str, columns: Sequence[str]) -> None:
    if missing := [column for column in columns if column not in frame]:
        raise UnknownNameError(name, "a column is missing", got=", ".join(map(str, frame.columns)), expected=", ".join(missing))
