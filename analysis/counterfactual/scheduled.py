"""What can be changed in a recorded run without asking anybody: its schedule, its merges of alternatives, an earlier end.

Decides which changes are tried; what cannot matter is left out, exactly, and what cannot be told is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from analysis.counterfactual import rescore, schedule
from analysis.counterfactual.pruning import prune
from analysis.counterfactual.recorded import Intervention, Replayed, pair_rows
from analysis.errors import ReplayError
from analysis.model import Trace
from analysis.orchestration.timing import Timing, timing

#: The operators, and what they are about.
FAMILIES = {"delay": "timing", "advance": "timing", "aggregate": "aggregation", "stop-earlier": "stop"}
_DELAY_SHARE = 0.1  # of the makespan
_N_TRIED = 4  # for each change that is wanted, so that refused ones do not use up the room


class Found(NamedTuple):
    """Rows of pairs, as `effects` takes them, and why other changes were refused."""

    rows: list[dict[str, Any]]
    refused: tuple[str, ...]


def what_if(trace: Trace, one: Intervention, *, timed: Timing | None = None) -> Replayed:
    """Return a recorded run with one decision changed; raises ReplayError, which says why it cannot be told."""
    if one.operator in rescore.OPERATORS:
        return rescore.rescore(trace, one, timed=timed)
    return schedule.what_if(trace, one, timed=timed)


def recorded_rows(trace: Trace, *, operators: Sequence[str], k: int | None, rng: np.random.Generator) -> Found:
    """Return what changes of a recorded run come to: all, or k of them at random; `operators` may name families."""
    timed = timing(trace)
    wanted = {name for name, family in FAMILIES.items() if name in operators or family in operators}
    tried = [one for one in _candidates(trace, timed) if one.operator in wanted]
    order = np.argsort(rng.random(len(tried)), kind="stable").tolist()
    rows: list[dict[str, Any]] = []
    refused: dict[str, None] = {}
    n_found = 0
    for at in order if k is None else order[: _N_TRIED * k]:
        if k is not None and n_found >= k:
            break
        try:
            rows += pair_rows(trace, what_if(trace, tried[at], timed=timed))
            n_found += 1
        except ReplayError as error:
            refused[str(error)] = None
    return Found(rows, tuple(refused))


def _candidates(trace: Trace, timed: Timing) -> list[Intervention]:
    ids = [event.event_id for event in timed.graph.events]
    x = _DELAY_SHARE * (timed.makespan or 0.0)
    later = [schedule.delay(name, x, unit=timed.unit) for name in ids if x > 0]
    kept = prune(trace, [*later, *[schedule.advance(name) for name in ids]], timed=timed).kept
    merges = [event.event_id for event in timed.graph.events if event.kind == "aggregate"]
    strategies = [rescore.aggregate(name, strategy) for name in merges for strategy in rescore.STRATEGIES]
    stops = [rescore.stop_earlier(name) for name in rescore.stop_points(trace, timed=timed)]
    return [*kept, *strategies, *stops]
