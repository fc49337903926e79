"""Who makes the pairs of a study: this process or others, which start when there is something to do.

Decides what is done in one go and what a pair leaves in the file. Each process keeps the verdicts and replays of its traces;
models are asked through one ledger beside the file, so that nothing is paid twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import msgspec

from analysis.counterfactual.agents.ledger import Cap, Ledger
from analysis.counterfactual.agents.protocol import Agent
from analysis.counterfactual.controls import control_pair
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import Pair, Replayer, team_in
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.sandbox import open_sandbox
from analysis.counterfactual.teams import players
from analysis.errors import EndpointError, ReplayError, TaskError, UnansweredError
from analysis.model import Trace, decode
from analysis.processes import leave_with_parent

CONTROL = "control"
_AHEAD = 4  # pieces of work that wait for each process


class Setting(NamedTuple):
    """What pairs are made with.

    ledger : the folder of the one that all models of the traces share
    cap : what they may cost in all
    """

    unsafe: bool
    ledger: Path
    cap: Cap = Cap()


class Job(NamedTuple):
    """One pair that is to be; how probable it was that its decision was chosen, and why, where a race chose it."""

    trace_id: str
    one: Intervention
    block: str
    number: int
    p_chosen: float | None = None
    why: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from all others of a seed."""
        return (self.trace_id, self.one.event_id, self.one.operator, self.one.key, self.block, str(self.number))


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the file: the seed it belongs to, and a pair or why there is none; `lost` pairs can be made later."""

    seed: int
    key: tuple[str, ...]
    pair: Pair | None = None
    refused: str = ""
    lost: bool = False
    p_chosen: float | None = None
    why: str = ""


#: A trace, pairs of it, and the seed of the study.
Work = tuple[bytes, list[Job], int]


def chunks(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return what is done in one go: the pairs of a trace with one seed, which share their controls."""
    found: dict[tuple[str, str, int], list[Job]] = {}
    for job in jobs:
        found.setdefault((job.trace_id, job.block, job.number), []).append(job)
    return list(found.values())


def agents_for(trace: Trace, ledger: Ledger) -> dict[str, Agent] | None:
    """Return who has to be asked again to replay a live trace; None for others. Raises EndpointError where nobody can be."""
    return players(team_in(trace), ledger) if trace.world == "live" else None


class Hands:
    """Processes that make pairs, until the stack ends; a trace is always done by the same one, which knows its verdicts."""

    def __init__(self, n: int, setting: Setting, stack: ExitStack) -> None:
        self._n, self._setting, self._stack = n, setting, stack
        self._own: list[_Worker] = []
        self._pools: list[ProcessPoolExecutor] = []
        self._place: dict[str, int] = {}

    def made(self, work: Sequence[Work], is_over: Callable[[], bool]) -> Iterator[list[Line]]:
        """Yield the lines of each piece of work in order, until no more is to be begun.

        Raises BudgetSpent where models do; what they answered is kept.
        """
        if work and self._n == 1 and not self._own:
            self._own.append(_Worker(self._setting, Judge(self._stack.enter_context(open_sandbox(unsafe=self._setting.unsafe)))))
        if self._n > 1:
            yield from self._made_elsewhere(work, is_over)
            return
        for one in work:
            if is_over():
                return
            yield self._own[0].lines(*one)

    def _made_elsewhere(self, work: Sequence[Work], is_over: Callable[[], bool]) -> Iterator[list[Line]]:
        todo, running = deque(work), deque[Future[list[Line]]]()
        while todo or running:
            while todo and len(running) < _AHEAD * self._n and not is_over():
                name = todo[0][1][0].trace_id
                place = self._place.setdefault(name, len(self._place) % self._n)
                running.append(self._pool(place).submit(_do, *todo.popleft()))
            if not running:
                return
            yield running.popleft().result()

    def _pool(self, place: int) -> ProcessPoolExecutor:
        while len(self._pools) <= place:
            pool = ProcessPoolExecutor(1, get_context("spawn"), _begin, (self._setting,))
            self._pools.append(self._stack.enter_context(pool))
        return self._pools[place]


class _Worker:
    """Makes pairs, and keeps what it knows of each trace."""

    def __init__(self, setting: Setting, judge: Judge) -> None:
        self._setting, self._judge = setting, judge
        self._known: dict[str, Replayer] = {}
        self._ledgers: list[Ledger] = []  # one, once a model is asked

    def lines(self, data: bytes, jobs: list[Job], seed: int) -> list[Line]:
        """Return the lines of jobs on one trace."""
        name = jobs[0].trace_id
        if name not in self._known:
            self._known[name] = self._replayer(decode(data))
        return [self._line(self._known[name], job, seed) for job in jobs]

    def _replayer(self, trace: Trace) -> Replayer:
        if trace.world == "live" and not self._ledgers:
            self._ledgers.append(Ledger(self._setting.ledger, cap=self._setting.cap))
        return Replayer(trace, self._judge, agents=agents_for(trace, self._ledgers[0]) if trace.world == "live" else None)

    def _line(self, replayer: Replayer, job: Job, seed: int) -> Line:
        line = Line(seed=seed, key=job.key, p_chosen=job.p_chosen, why=job.why)
        try:
            if job.block == CONTROL:
                pair = control_pair(replayer, self._judge, job.one.operator, seed=seed, number=job.number)
            else:
                pair = replayer.pair(job.one, seed=seed, block=job.block, number=job.number)
        except (ReplayError, TaskError, EndpointError) as error:
            is_lost = isinstance(error, UnansweredError | EndpointError)
            return msgspec.structs.replace(line, refused=str(error), lost=is_lost)
        return msgspec.structs.replace(line, pair=pair)


_workers: list[_Worker] = []  # of a worker process: its one, as long as it lives


def _begin(setting: Setting) -> None:
    threading.Thread(target=leave_with_parent, daemon=True).start()
    _workers.append(_Worker(setting, Judge(open_sandbox(unsafe=setting.unsafe))))


def _do(data: bytes, jobs: list[Job], seed: int) -> list[Line]:
    return _workers[0].lines(data, jobs, seed)
