"""Processes that make runs: each has a judge, agents and a ledger of its own, and leaves when the one that began it has gone.

Decides when no more runs are begun: when the budget is spent, by what was made or as a model's ledger says, and for a team
whose endpoint refuses all calls. Such a run is left, not failed: it says nothing of its team, and can be made later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from analysis.counterfactual.agents.ledger import Cap, Ledger, Spent
from analysis.counterfactual.agents.protocol import Agent
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.sandbox import Sandbox, open_sandbox
from analysis.counterfactual.teams import Team, players, simulated
from analysis.errors import BudgetSpent, EndpointError
from analysis.model import Trace, encode
from analysis.processes import leave_with_parent

if TYPE_CHECKING:
    from analysis.counterfactual.runs import Job


class Setting(NamedTuple):
    """What runs are made with.

    make : makes one of a job, as `run_job` does
    ledger : the folder of the one that all live agents share; None for teams without any
    """

    make: Callable[..., Trace]
    unsafe: bool
    records: bool
    ledger: Path | None
    cap: Cap


class Made(NamedTuple):
    """What came of a job: the line of its trace and its tokens, or what ended the run without one."""

    team: str
    line: bytes = b""
    n_tokens: int = 0
    error: BudgetSpent | EndpointError | None = None


class Tally:
    """What was made and spent so far, why runs are left, and which are not to be begun any more."""

    def __init__(self, tokens: int | None, seconds: float | None) -> None:
        self._tokens, self._seconds, self._started = tokens, seconds, time.monotonic()
        self._refused: set[str] = set()
        self._is_spent = False
        self.n_made, self.n_tokens = 0, 0
        self.why: dict[str, None] = {}

    def count(self, made: Made) -> None:
        """Take note of what came of a job."""
        self.n_made, self.n_tokens = self.n_made + bool(made.line), self.n_tokens + made.n_tokens
        if made.error is None:
            return
        self.why[str(made.error)] = None
        if isinstance(made.error, BudgetSpent):
            self._is_spent = True
        else:
            self._refused.add(made.team)

    def is_over(self) -> bool:
        """Whether no more runs are to be begun."""
        is_late = self._seconds is not None and time.monotonic() - self._started >= self._seconds
        if is_late or (self._tokens is not None and self.n_tokens >= self._tokens):
            self._is_spent = True
            self.why["the budget is spent"] = None
        return self._is_spent

    def allowed(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs without those of teams whose endpoint refuses all calls."""
        return [job for job in jobs if job.team.name not in self._refused]


def made(chunks: Sequence[Sequence[Job]], setting: Setting, tally: Tally, *, workers: int) -> Iterator[list[Made]]:
    """Yield what came of the jobs, in order, until no more are to be begun; a chunk is done by one process in one go."""
    if workers > 1:
        yield from _made_elsewhere(chunks, setting, tally, workers)
        return
    with open_sandbox(unsafe=setting.unsafe) as sandbox:
        worker = _Worker(setting, sandbox)
        for job in [job for chunk in chunks for job in chunk]:
            if tally.is_over():
                return
            yield [worker.made(one) for one in tally.allowed([job])]


def check_live(teams: Sequence[Team], setting: Setting) -> None:
    """Raise EndpointError where a live agent cannot be asked, before any run is begun."""
    if setting.ledger is not None:
        with closing(Ledger(setting.ledger)) as ledger:
            for team in {team.name: team for team in teams}.values():
                players(team, ledger)


def spent(setting: Setting) -> Spent | None:
    """Return what live agents have cost so far, as their ledger says."""
    if setting.ledger is None:
        return None
    with closing(Ledger(setting.ledger)) as ledger:
        return ledger.spent()


class _Worker:
    """Makes runs in one process."""

    def __init__(self, setting: Setting, sandbox: Sandbox) -> None:
        self._setting, self._judge = setting, Judge(sandbox)
        self._ledger = None if setting.ledger is None else Ledger(setting.ledger, cap=setting.cap)
        self._agents: dict[bytes, dict[str, Agent]] = {}

    def made(self, job: Job) -> Made:
        """Make a run, unless a live agent ends it."""
        try:
            trace = self._setting.make(job, self._judge, agents=self._players(job.team), records=self._setting.records)
        except (BudgetSpent, EndpointError) as error:
            return Made(job.team.name, error=error)
        n_tokens = sum([(event.input_tokens or 0) + (event.output_tokens or 0) for event in trace.events])
        return Made(job.team.name, encode(trace) + b"\n", n_tokens)

    def _players(self, team: Team) -> dict[str, Agent]:
        key = msgspec.json.encode(team)
        if key not in self._agents:
            self._agents[key] = simulated(team) if self._ledger is None else players(team, self._ledger)
        return self._agents[key]


def _made_elsewhere(chunks: Sequence[Sequence[Job]], setting: Setting, tally: Tally, workers: int) -> Iterator[list[Made]]:
    todo, running = deque(chunks), deque[Future[list[Made]]]()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin, initargs=(setting,)) as pool:
        while todo or running:
            while todo and len(running) <= workers and not tally.is_over():
                running.append(pool.submit(_do, tally.allowed(todo.popleft())))
            if not running:
                return
            yield running.popleft().result()


_workers: list[_Worker] = []  # of a worker process: its one, as long as it lives


def _begin(setting: Setting) -> None:
    threading.Thread(target=leave_with_parent, daemon=True).start()
    _workers.append(_Worker(setting, open_sandbox(unsafe=setting.unsafe)))


def _do(jobs: Sequence[Job]) -> list[Made]:
    return [_workers[0].made(job) for job in jobs]
