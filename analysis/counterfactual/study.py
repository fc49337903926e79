"""A study: pairs of replays for many decisions of many runs, screened on one block of seeds and confirmed on another.

Decides the order of the pairs, so that a file can be gone on with and a spent budget leaves all decisions equally often
replayed, and what is worth confirming. Controls come first. Hidden here: processes, of which each keeps its verdicts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import msgspec

from analysis.counterfactual.controls import REPLAYED, Control, control_pair, judged
from analysis.counterfactual.effects import chosen, effects
from analysis.counterfactual.interventions import OPERATORS, interventions
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import METRICS, Pair, Replayer, pair_frame, replayable
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Budget
from analysis.counterfactual.sandbox import open_sandbox
from analysis.errors import ReplayError
from analysis.model import Trace, decode, encode
from analysis.streams import stream

SCREEN, CONFIRM = "screen", "confirm"
_N_CONTROLLED = 5  # traces that the controls are run on, each twice


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """What a study does.

    operators : operators or families of them
    k : decisions of each trace, drawn evenly from the families; None for all
    n_pairs, n_confirm : pairs of each decision while screening, and of each that is confirmed
    n_chosen : how many decisions are confirmed
    budget : after what no new pair is begun
    """

    operators: tuple[str, ...] = tuple(OPERATORS)
    k: int | None = 5
    n_pairs: int = 4
    n_confirm: int = 16
    n_chosen: int = 20
    seed: int = 0
    budget: Budget | None = None


class Study(NamedTuple):
    """What a study came to so far.

    pairs : without those of the controls
    refused : traces that were not replayed, with the reason; and changes that reached further than they may
    n_made, n_there, n_left : pairs made now, before, and not at all for want of budget
    n_tokens : what this call spent
    """

    pairs: tuple[Pair, ...]
    controls: tuple[Control, ...]
    refused: dict[str, str]
    n_made: int
    n_there: int
    n_left: int
    n_tokens: int

    @property
    def is_sound(self) -> bool:
        """Whether all controls came out right; so it is where nothing was executed, which needs none."""
        return all(control.ok for control in self.controls)


class _Job(NamedTuple):
    trace_id: str
    one: Intervention
    block: str
    number: int

    @property
    def key(self) -> tuple[str, ...]:
        return (self.trace_id, self.one.event_id, self.one.operator, self.one.key, self.block, str(self.number))


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the file: the seed it belongs to, and a pair or why there is none."""

    seed: int
    key: tuple[str, ...]
    pair: Pair | None = None
    refused: str = ""


def study(
    traces: Sequence[Trace], out: Path, *, design: Design, workers: int = 1, unsafe: bool = False,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> Study:  # fmt: skip
    """Make the pairs that the file does not hold yet, append them, and return all that belong to the design.

    Traces that hold no plan, or are no runs of simulated agents, are refused with the reason. The confirmation begins when
    the screening is whole. Raises ReplayError where the file holds something else, SandboxError where nothing is run here.
    """
    with ExitStack() as stack:
        return _study(traces, _Running(design, out, _Hands(workers, unsafe, stack), progress))


def _study(traces: Sequence[Trace], running: _Running) -> Study:
    design = running.design
    plans: dict[str, list[Intervention]] = {}
    for trace in sorted(traces, key=lambda trace: trace.trace_id):
        try:
            plan = replayable(trace)
        except ReplayError as error:
            running.refused[trace.trace_id] = str(error)
            continue
        running.traces[trace.trace_id] = encode(trace)
        rng = stream(design.seed, "interventions", trace.trace_id)
        plans[trace.trace_id] = interventions(plan, operators=design.operators, k=design.k, rng=rng)
    ids = list(plans)
    running.do([
        _Job(name, Intervention(control, "control"), "control", n)
        for n in range(2) for name in ids[:_N_CONTROLLED] for control in REPLAYED
    ])  # fmt: skip
    running.do([_Job(name, one, SCREEN, n) for n in range(design.n_pairs) for name in ids for one in plans[name]])
    if not running.n_left:
        running.do([_Job(name, one, CONFIRM, n) for n in range(design.n_confirm) for name, one in running.suggested()])
    return running.result()


class _Running:
    """A study under way: what the file holds, and what this call has spent."""

    def __init__(self, design: Design, out: Path, hands: _Hands, progress: Callable[[float, str], None]) -> None:
        self.design, self.out, self.hands, self.progress = design, out, hands, progress
        self.traces: dict[str, bytes] = {}
        self.refused: dict[str, str] = {}
        self.there = _there(out, design.seed)
        self.wanted: list[tuple[str, ...]] = []
        self.n_made = self.n_left = self.n_tokens = self.n_old = 0
        self.started = time.monotonic()

    def is_over(self) -> bool:
        """Whether the budget is spent."""
        tokens, seconds = (self.design.budget.tokens, self.design.budget.seconds) if self.design.budget else (None, None)
        is_late = seconds is not None and time.monotonic() - self.started >= seconds
        return is_late or (tokens is not None and self.n_tokens >= tokens)

    def do(self, jobs: Sequence[_Job]) -> None:
        """Make what is not there of these jobs, in their order."""
        self.wanted += [job.key for job in jobs]
        todo = [job for job in jobs if job.key not in self.there]
        self.n_old += len(jobs) - len(todo)
        n_before = self.n_made
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("ab") as file:
            work = [(self.traces[jobs[0].trace_id], jobs, self.design.seed) for jobs in _chunks(todo)]
            for lines in self.hands.made(work, self.is_over):
                for line in lines:
                    file.write(msgspec.json.encode(line) + b"\n")
                    self.there[line.key] = line
                    self.n_tokens += line.pair.cost_tokens if line.pair else 0
                    self.n_made += 1
                file.flush()
                n_done = self.n_made - n_before
                self.progress(n_done / len(todo), f"{todo[0].block}: {n_done:,} of {len(todo):,} pairs")
        self.n_left += len(todo) - (self.n_made - n_before)

    def pairs(self, *, controls: bool = False) -> list[Pair]:
        """Return the pairs of the design that are there."""
        lines = [self.there[key] for key in dict.fromkeys(self.wanted) if key in self.there]
        return [line.pair for line in lines if line.pair and (line.pair.seed_block == "control") == controls]

    def suggested(self) -> list[tuple[str, Intervention]]:
        """Return the decisions whose screening is worth fresh seeds, by what they did to the integrated pass."""
        frame = pair_frame(self.pairs())
        found = chosen(effects(frame[frame["metric"] == METRICS[0]], seed=self.design.seed), self.design.n_chosen)
        return [
            (row.trace_id, Intervention(row.operator, row.event_id, msgspec.json.decode(row.parameters)))
            for row in found.itertuples(index=False)
        ]

    def result(self) -> Study:
        """Return what there is."""
        pairs = self.pairs()
        refused = self.refused | {" ".join(key[:3]): line.refused for key in self.wanted
                                  if (line := self.there.get(key)) is not None and line.refused}  # fmt: skip
        controls = judged([*self.pairs(controls=True), *pairs], seed=self.design.seed) if self.traces else []
        return Study(tuple(pairs), tuple(controls), refused, self.n_made, self.n_old, self.n_left, self.n_tokens)


_Work = tuple[bytes, list[_Job], int]


class _Hands:
    """Who makes the pairs: this process or others, which start when there is something to do and stay until the stack ends."""

    def __init__(self, n: int, unsafe: bool, stack: ExitStack) -> None:
        self._n, self._unsafe, self._stack = n, unsafe, stack
        self._own: list[_Worker] = []
        self._pools: list[ProcessPoolExecutor] = []
        self._place: dict[str, int] = {}  # a trace is always done by the same process, which knows its verdicts

    def made(self, work: Sequence[_Work], is_over: Callable[[], bool]) -> Iterator[list[_Line]]:
        """Yield the lines of each piece of work in order, until no more is to be begun."""
        if work and self._n == 1 and not self._own:
            self._own.append(_Worker(Judge(self._stack.enter_context(open_sandbox(unsafe=self._unsafe)))))
        if self._n > 1:
            yield from self._made_elsewhere(work, is_over)
            return
        for one in work:
            if is_over():
                return
            yield self._own[0].lines(*one)

    def _made_elsewhere(self, work: Sequence[_Work], is_over: Callable[[], bool]) -> Iterator[list[_Line]]:
        todo, running = deque(work), deque[Future[list[_Line]]]()
        while todo or running:
            while todo and len(running) < 4 * self._n and not is_over():
                name = todo[0][1][0].trace_id
                place = self._place.setdefault(name, len(self._place) % self._n)
                running.append(self._pool(place).submit(_do, *todo.popleft()))
            if not running:
                return
            yield running.popleft().result()

    def _pool(self, place: int) -> ProcessPoolExecutor:
        while len(self._pools) <= place:
            pool = ProcessPoolExecutor(1, get_context("spawn"), _begin, (self._unsafe,))
            self._pools.append(self._stack.enter_context(pool))
        return self._pools[place]


class _Worker:
    """Makes pairs, and keeps what it knows of each trace."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._known = judge, dict[str, Replayer]()

    def lines(self, data: bytes, jobs: Sequence[_Job], seed: int) -> list[_Line]:
        """Return the lines of jobs on one trace."""
        name = jobs[0].trace_id
        if name not in self._known:
            self._known[name] = Replayer(decode(data), self._judge)
        return [self._line(self._known[name], job, seed) for job in jobs]

    def _line(self, replayer: Replayer, job: _Job, seed: int) -> _Line:
        try:
            if job.block == "control":
                pair = control_pair(replayer, self._judge, job.one.operator, seed=seed, number=job.number)
            else:
                pair = replayer.pair(job.one, seed=seed, block=job.block, number=job.number)
        except ReplayError as error:
            return _Line(seed=seed, key=job.key, refused=str(error))
        return _Line(seed=seed, key=job.key, pair=pair)


def _chunks(jobs: Sequence[_Job]) -> list[list[_Job]]:
    """Return what is done in one go: the pairs of a trace with one seed, which share their controls."""
    chunks: dict[tuple[str, int], list[_Job]] = {}
    for job in jobs:
        chunks.setdefault((job.trace_id, job.number), []).append(job)
    return list(chunks.values())


def _there(out: Path, seed: int) -> dict[tuple[str, ...], _Line]:
    """Return the lines of the file that belong to a seed; what a crash left of a last line is taken off."""
    if not out.exists():
        return {}
    data = out.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        out.write_bytes(whole)
    found = {}
    for n, text in enumerate(whole.splitlines(), 1):
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.MsgspecError as error:
            raise ReplayError(f"{out}:{n}", "the line is no pair; pairs are not appended here", got=str(error)) from None
        if line.seed == seed:
            found[line.key] = line
    return found


_workers: list[_Worker] = []  # of a worker process: its one, as long as it lives


def _begin(unsafe: bool) -> None:
    _workers.append(_Worker(Judge(open_sandbox(unsafe=unsafe))))


def _do(data: bytes, jobs: list[_Job], seed: int) -> list[_Line]:
    return _workers[0].lines(data, jobs, seed)
