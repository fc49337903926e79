"""Seeded traces of teams that work well or fail in a known way, for size and for planted truths; nothing is executed.

Every number comes from a keyed stream: a trace depends on the seed, its task, its team and its trial,
never on what else is simulated. The sentences, the moves and the odds are hidden here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from analysis.errors import CounterpointError, UnknownNameError
from analysis.model import Trace
from analysis.streams import uniform, whole

from .record import trace_of
from .run import Run
from .subjects import DOMAINS
from .tasks import Job, draw_job
from .teams import TEAMS, Team

__all__ = ["TEAMS", "SimulationPolicy", "simulate"]

#: 2 March 2026, 08:00 UTC, in seconds since 1970. Task follows task every hour, team follows team every four minutes.
_START_S = 1_772_438_400
#: What the moves of an average run come to without tool calls, in events.
_N_MOVES = 15
_P_PART = 0.95  # chance that a part of the easiest task comes out sound at one attempt ...
_P_LOST = 0.4  # ... and what the hardest task takes off it
_P_STATED = 0.75  # share of runs in which the components state probabilities; the incoherent team always does
_RANGES = {
    "n_tasks": (1, 10**7), "n_good": (0, 3), "n_bad": (0, 11), "n_trials": (1, 1000), "n_events": (1, 10_000),
}  # fmt: skip


class SimulationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated. Raises `CounterpointError` where a value is out of its range.

    name : first part of every trace id
    n_tasks : tasks, taken in turn from software, research and support; 1 to 10 million
    teams : names of the teams that take part, see `TEAMS`; `single`, where named, does every task as the baseline
    n_good : other well-led teams that each task is given to, taken in turn; 0 to 3
    n_bad : badly led teams that each task is given to, taken in turn; 0 to 11
    n_trials : runs of each team on each task; 1 to 1,000
    n_events : about how many events a trace has; tool calls fill what the moves of the team leave open; 1 to 10,000
    """

    name: str = "sample"
    n_tasks: int = 9
    teams: tuple[str, ...] = tuple(TEAMS)
    n_good: int = 1
    n_bad: int = 2
    n_trials: int = 3
    n_events: int = 18

    def __post_init__(self) -> None:
        if unknown := [name for name in self.teams if name not in TEAMS]:
            raise UnknownNameError("simulation policy, teams", "no such team", got=unknown[0], expected=", ".join(TEAMS))
        if len(set(self.teams)) < len(self.teams):
            raise CounterpointError("simulation policy, teams", "a team is named twice", got=", ".join(self.teams))
        for field, (low, high) in _RANGES.items():
            if not low <= getattr(self, field) <= high:
                place = f"simulation policy, {field}"
                raise CounterpointError(place, "out of range", got=str(getattr(self, field)), expected=f"{low} to {high}")


def simulate(policy: SimulationPolicy, *, seed: int) -> Iterator[Trace]:
    """Yield the traces of the policy's tasks, task by task, team by team, trial by trial.

    >>> traces = list(simulate(SimulationPolicy(n_tasks=1, n_trials=1), seed=7))
    >>> [trace.trace_id for trace in traces]
    ['counterpoint:sample-software-1-single-1', 'counterpoint:sample-software-1-parallel-1', \
'counterpoint:sample-software-1-serial-collapse-1', 'counterpoint:sample-software-1-aggregation-leakage-1']
    """
    for index in range(policy.n_tasks):
        job, teams = draw_job(seed, index), _teams_of(index, policy)
        for team in teams:
            for trial in range(1, policy.n_trials + 1):
                run = _new_run(policy, job, team=team, trial=trial, seed=seed, hour=index)
                team.play(run)
                trace_id = f"counterpoint:{policy.name}-{job.task_id}-{team.name}-{trial}"
                yield trace_of(run, team, trace_id=trace_id, trial=trial, seed=seed)


def _teams_of(index: int, policy: SimulationPolicy) -> list[Team]:
    """The single agent, then the well-led teams whose turn it is at task `index`, then the badly led ones."""
    teams = [TEAMS[name] for name in policy.teams]
    good = [team for team in teams if team.is_good and team.name != "single"]
    bad = [team for team in teams if not team.is_good]
    # One place further after each round of domains, or each domain would always meet the same well-led team.
    place = index + index // len(DOMAINS)
    chosen = _take(good, place, policy.n_good) + _take(bad, index * policy.n_bad, policy.n_bad)
    return [team for team in teams if team.name == "single"] + chosen


def _take(teams: list[Team], first: int, n: int) -> list[Team]:
    """The next `n` of a circle of teams, nobody twice."""
    return [teams[(first + k) % len(teams)] for k in range(min(n, len(teams)))]


def _new_run(policy: SimulationPolicy, job: Job, *, team: Team, trial: int, seed: int, hour: int) -> Run:
    """A run before its first event."""
    own = partial(uniform, seed, job.task_id, team.name, trial)
    return Run(
        job=job,
        own=own,
        luck=partial(uniform, seed, job.task_id, "luck", trial),
        p_part=team.skill * (_P_PART - _P_LOST * job.difficulty),
        n_calls=max(0, policy.n_events - _N_MOVES) // 2,
        start_ms=1000 * (_START_S + 3600 * hour + 240 * list(TEAMS).index(team.name)) + whole(own("start"), 0, 59_999),
        states=own("states") < _P_STATED,
        is_candid=team.is_candid,
        is_full=team.is_good,
    )
