"""Do two annotators of the same runs blame the same agent and the same step?"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import msgspec
import pandas as pd


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How often two annotators name the same, over the runs that both blame an agent for."""

    first: str
    second: str
    n_traces: int
    n_same_agent: int
    n_same_step: int

    def __str__(self) -> str:
        agent, step = (f"{n} of {self.n_traces} runs" for n in (self.n_same_agent, self.n_same_step))
        return f"{self.first} and {self.second}: same agent in {agent}, same step in {step}"


def agreements(labels: pd.DataFrame) -> list[Agreement]:
    """Return the agreement of each pair of annotators that blamed at least one run in common.

    Parameters
    ----------
    labels : columns trace_id, annotator, name, agent_id, event_id, is_root_cause. An annotator's verdict on a run is
        its root cause, or its only label that names an agent; of several without a root cause there is none.

    Notes
    -----
    Agents are compared without case, steps by the event they mean, so that step bases do not matter.

    Examples
    --------
    >>> rows = [("t", "a", "Web", "e1", None), ("t", "b", "web", "e2", True), ("t", "b", "Coder", "e3", False)]
    >>> columns = ["trace_id", "annotator", "agent_id", "event_id", "is_root_cause"]
    >>> print(agreements(pd.DataFrame(rows, columns=columns))[0])
    a and b: same agent in 1 of 1 runs, same step in 0 of 1 runs
    """
    verdicts: dict[str, dict[str, dict[str, Any]]] = {}
    blames = labels[labels["agent_id"].notna()]
    blames = blames[blames.groupby("trace_id")["annotator"].transform("nunique") > 1]
    for (trace_id, annotator), group in blames.groupby(["trace_id", "annotator"]):
        chosen = group if len(group) == 1 else group[group["is_root_cause"].eq(True)]
        if len(chosen) == 1:
            verdicts.setdefault(annotator, {})[trace_id] = chosen.iloc[0].to_dict()
    found = []
    for first, second in combinations(sorted(verdicts), 2):
        both = sorted(verdicts[first].keys() & verdicts[second].keys())
        pairs = [(verdicts[first][t], verdicts[second][t]) for t in both]
        same_agent = sum(a["agent_id"].casefold() == b["agent_id"].casefold() for a, b in pairs)
        same_step = sum(pd.notna(a["event_id"]) and a["event_id"] == b["event_id"] for a, b in pairs)
        if both:
            found.append(
                Agreement(first=first, second=second, n_traces=len(both), n_same_agent=same_agent, n_same_step=same_step)
            )
    return found
