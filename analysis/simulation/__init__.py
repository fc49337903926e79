"""Seeded sample traces of teams that work well or fail in a known way; nothing is executed.

Every number comes from a keyed stream: a trace depends on the seed, its task, its team and its trial,
never on what else is simulated. The sentences, the moves and the odds are hidden here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from analysis.errors import CounterpointError, UnknownNameError
from analysis.model import Trace, encode
from analysis.simulation.record import trace_of
from analysis.simulation.run import Run
from analysis.simulation.subjects import DOMAINS
from analysis.simulation.tasks import Job, draw_job
from analysis.simulation.teams import TEAMS, Team
from analysis.streams import uniform

__all__ = ["SAMPLE_SEED", "TEAMS", "SimulationPolicy", "simulate", "write_samples"]

SAMPLE_SEED = 2026
#: 2 March 2026, 08:00 UTC, in seconds since 1970. Task follows task every hour, team follows team every five minutes.
_START_S = 1_772_438_400
_RANGES = {
    "n_tasks": (1, 10**7), "n_good": (0, 3), "n_bad": (0, 11), "n_trials": (1, 1000), "n_events": (1, 10_000),
    "p_part": (0, 1), "p_lost": (0, 1), "p_tool_error": (0, 1), "p_stated": (0, 1),
}  # fmt: skip


class SimulationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated. Raises `CounterpointError` where a value is out of its range.

    name : first part of every trace id
    n_tasks : tasks, taken in turn from software, research and support; 1 to 10 million
    n_good : well-led teams a task is given to, taken in turn, besides the single agent that does every task; 0 to 3
    n_bad : badly led teams a task is given to, taken in turn; 0 to 11
    n_trials : runs of each team on each task; 1 to 1,000
    n_events : events a trace aims at; where a team needs more for its decisions it has more; 1 to 10,000
    p_part : probability that a part of the easiest task comes out sound at one attempt
    p_lost : what the hardest task takes off that probability
    p_tool_error : probability that a tool call fails and is made again
    p_stated : share of runs in which the components state probabilities; the incoherent team always does
    """

    name: str = "sample"
    n_tasks: int = 10
    n_good: int = 1
    n_bad: int = 2
    n_trials: int = 3
    n_events: int = 20
    p_part: float = 0.95
    p_lost: float = 0.4
    p_tool_error: float = 0.06
    p_stated: float = 0.9

    def __post_init__(self) -> None:
        for field, (low, high) in _RANGES.items():
            if not low <= getattr(self, field) <= high:
                place = f"simulation policy, {field}"
                raise CounterpointError(place, "out of range", got=str(getattr(self, field)), expected=f"{low} to {high}")


def simulate(policy: SimulationPolicy, *, seed: int) -> Iterator[Trace]:
    """Yield the traces of the policy's tasks, task by task, team by team, trial by trial.

    >>> traces = list(simulate(SimulationPolicy(n_tasks=1, n_trials=1), seed=7))
    >>> [trace.trace_id for trace in traces]
    ['counterpoint:sample-software-1-single-1', 'counterpoint:sample-software-1-parallel-1', \
'counterpoint:sample-software-1-serial-collapse-1', 'counterpoint:sample-software-1-dominant-agent-1']
    """
    for index in range(policy.n_tasks):
        job = draw_job(seed, index)
        teams = _teams_of(index, policy)
        for team in teams:
            for trial in range(1, policy.n_trials + 1):
                yield _simulate_run(policy, seed, job, team, trial)
