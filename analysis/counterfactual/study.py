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
        """Whether all controls came out right."""
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
    running = _Running(design, out, unsafe, workers, progress)
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

    def __init__(
        self, design: Design, out: Path, unsafe: bool, workers: int, progress: Callable[[float, str], None]
    ) -> None:
        self.design, self.out, self.unsafe, self.workers, self.progress = design, out, unsafe, workers, progress
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
            for lines in self._made(_chunks(todo)):
                for line in lines:
                    file.write(msgspec.json.encode(line) + b"\n")
                    self.there[line.key] = line
                    self.n_tokens += line.pair.cost_tokens if line.pair else 0
                    self.n_made += 1
                file.flush()
                n_done = self.n_made - n_before
                self.progress(n_done / len(todo), f"{todo[0].block}: {n_done:,} of {len(todo):,} pairs")
        self.n_left += len(todo) - (self.n_made - n_before)

    def _made(self, chunks: Sequence[list[_Job]]) -> Iterator[list[_Line]]:
        """Yield the lines of each chunk in order; a task is always done by the same process, which knows its verdicts."""
        if not chunks:
            return
        if self.workers == 1:
            with open_sandbox(unsafe=self.unsafe) as sandbox:
                worker = _Worker(Judge(sandbox))
                for chunk in chunks:
                    if self.is_over():
                        return
                    yield worker.lines(self.traces[chunk[0].trace_id], chunk, self.design.seed)
            return
        place = {name: n % self.workers for n, name in enumerate(self.traces)}
        todo, running = deque(chunks), deque[Future[list[_Line]]]()
        with ExitStack() as stack:
            pools = [
                stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"), _begin, (self.unsafe,)))
                for _ in range(self.workers)
            ]
            while todo or running:
                while todo and len(running) < 4 * self.workers and not self.is_over():
                    name = todo[0][0].trace_id
                    running.append(pools[place[name]].submit(_do, self.traces[name], todo.popleft(), self.design.seed))
                if not running:
                    return
                yield running.popleft().result()

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
        controls = judged([*self.pairs(controls=True), *pairs], seed=self.design.seed)
        return Study(tuple(pairs), tuple(controls), refused, self.n_made, self.n_old, self.n_left, self.n_tokens)


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
