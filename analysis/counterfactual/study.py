"""A study: pairs of replays for many decisions of many runs, screened on one block of seeds and confirmed on another.

Decides the order of the pairs: all decisions equally often, or as a race allots a budget (`allotting`). Either way the budget
only ends it, so that a call that goes on, also after a crash, leaves the bytes of one that went through. Controls come first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from analysis.counterfactual.agents.ledger import Cap, Ledger
from analysis.counterfactual.allotting import is_suggested, picks
from analysis.counterfactual.controls import REPLAYED, Control, judged
from analysis.counterfactual.effects import chosen, effects
from analysis.counterfactual.interventions import OPERATORS, interventions, plan_of
from analysis.counterfactual.making import CONTROL, Hands, Job, Line, Setting, agents_for, chunks
from analysis.counterfactual.pairing import METRICS, Pair, kind_of, pair_frame, replayable, team_in
from analysis.counterfactual.pruning import prune_plan
from analysis.counterfactual.racing import Arm, cheap_prior
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.runs import Budget
from analysis.errors import BudgetSpent, EndpointError, ReplayError, TeamError
from analysis.model import Trace, encode
from analysis.orchestration.timing import timing
from analysis.processes import alone
from analysis.streams import stream

SCREEN, CONFIRM = "screen", "confirm"
Allocation = Literal["uniform", "racing"]
_N_CONTROLLED = 5  # traces that the controls are run on, each twice

_RACED = "a race allotted the pairs: means of the screening are biased, since what seemed to matter had more; others are not"
Decision = tuple[str, Intervention]


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """What a study does.

    operators : operators or families of them
    k : decisions of each trace, drawn evenly from the families; None for all
    n_pairs, n_confirm : pairs of each decision while screening, and of each that is confirmed; of a race, at most
    n_chosen : how many decisions are confirmed
    budget : after what no new pair is begun; what models cost counts over all calls on a file
    allocation : `uniform`, all decisions equally often; `racing`, without those that exactly change nothing, and by what they
        did so far; what seems to matter is confirmed at once
    """

    operators: tuple[str, ...] = tuple(OPERATORS)
    k: int | None = 5
    n_pairs: int = 4
    n_confirm: int = 16
    n_chosen: int = 20
    seed: int = 0
    budget: Budget | None = None
    allocation: Allocation = "uniform"


class Study(NamedTuple):
    """What a study came to so far.

    pairs : without those of the controls
    refused : traces that were not replayed, with the reason; and changes that reached further than they may
    n_made, n_there, n_left : pairs made now, before, and not at all for want of budget; a race may end with fewer
    n_tokens : what this call spent
    notes : what to know of it, in sentences
    """

    pairs: tuple[Pair, ...]
    controls: tuple[Control, ...]
    refused: dict[str, str]
    n_made: int
    n_there: int
    n_left: int
    n_tokens: int
    notes: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether all controls came out right; so it is where nothing was executed, which needs none."""
        return all(control.ok for control in self.controls)


def study(
    traces: Sequence[Trace], out: Path, *, design: Design, workers: int = 1, unsafe: bool = False,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> Study:  # fmt: skip
    """Make the pairs that the file does not hold yet, append them, and return all that belong to the design.

    Traces that hold no plan, or whose agents cannot be asked again, are refused with the reason; models are asked through a
    ledger beside the file. Raises ReplayError where the file holds something else, SandboxError where nothing is run here.
    """
    limit = design.budget or Budget()
    setting = Setting(unsafe, out.with_suffix(".ledger"), Cap(limit.tokens, calls=limit.calls))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.touch()
    with ExitStack() as stack:
        stack.enter_context(alone(out))
        running = _Running(design, out, Hands(workers, setting, stack), progress)
        plans = _planned(traces, running, setting.ledger)
        running.do([
            Job(name, Intervention(control, CONTROL), CONTROL, n)
            for n in range(2) for name in list(plans)[:_N_CONTROLLED] for control in REPLAYED
        ])  # fmt: skip
        if design.allocation == "racing":
            _race(running, plans, {trace.trace_id: trace for trace in traces})
        else:
            running.do([Job(name, one, SCREEN, n) for n in range(design.n_pairs) for name in plans for one in plans[name]])
            if not running.n_left:
                running.confirm(running.suggested())
        return running.result()


def pairs_so_far(out: Path, seed: int) -> list[Pair]:
    """Return the pairs in the file of a study that may be under way, without its controls, in the order in which they came in.

    A last line that is not whole yet is left out. Raises ReplayError where the file holds something else.
    """
    lines = _lines(out, out.read_bytes()) if out.exists() else []
    return [line.pair for line in lines if line.seed == seed and line.pair and line.pair.seed_block != CONTROL]


def _planned(traces: Sequence[Trace], running: _Running, ledger: Path) -> dict[str, list[Intervention]]:
    """Return which decisions are changed in each trace that can be replayed."""
    design, plans = running.design, dict[str, list[Intervention]]()
    for trace in sorted(traces, key=lambda trace: trace.trace_id):
        try:
            plan = replayable(trace)
            team_in(trace)
            if trace.world == "live":
                with closing(Ledger(ledger)) as open_ledger:
                    agents_for(trace, open_ledger)
        except (ReplayError, TeamError, EndpointError) as error:
            running.refused[trace.trace_id] = str(error)
            continue
        running.traces[trace.trace_id] = encode(trace)
        rng = stream(design.seed, "interventions", trace.trace_id)
        plans[trace.trace_id] = interventions(plan, operators=design.operators, k=design.k, rng=rng)
    return plans


def _race(running: _Running, plans: dict[str, list[Intervention]], traces: dict[str, Trace]) -> None:
    """Let all decisions race, and confirm those that seem to matter, until nothing is left to be pulled."""
    design = running.design
    arms, decisions, n_pruned = _entered(plans, traces)
    running.notes += [f"{n_pruned:,} decisions were left out: they change nothing, or the same as another"] * (n_pruned > 0)
    running.notes.append(_RACED)
    deltas: dict[str, list[float]] = {arm.key: [] for arm in arms}
    taken: dict[str, None] = {}
    while True:
        fresh = [arm.key for arm in arms if arm.key not in taken and is_suggested(deltas[arm.key], design.n_pairs)]
        fresh = fresh[: design.n_chosen - len(taken)]
        taken |= dict.fromkeys(fresh)
        batch = picks(arms, deltas, most=design.n_pairs, seed=design.seed)
        if not fresh and not batch:
            break
        screening = [Job(*decisions[pick.arm.key], SCREEN, pick.n, pick.p_chosen, pick.why) for pick in batch]
        n_open = sum([design.n_pairs - len(d) for d in deltas.values() if not is_suggested(d, design.n_pairs)])
        running.do([*running.confirming([decisions[key] for key in fresh]), *screening], n_later=n_open - len(batch))
        if running.n_left:
            return
        for pick, job in zip(batch, screening, strict=True):
            if (delta := running.delta(job)) is not None:
                deltas[pick.arm.key].append(delta)
            else:
                del deltas[pick.arm.key]
        arms = [arm for arm in arms if arm.key in deltas]
    known = [decisions[key] for key in taken]
    running.confirm([one for one in running.suggested() if one not in known][: design.n_chosen - len(known)])


def _entered(plans: dict[str, list[Intervention]], traces: dict[str, Trace]) -> tuple[list[Arm], dict[str, Decision], int]:
    """Return the decisions that race, by the key of their arm, and how many need not."""
    arms, decisions, n_pruned = list[Arm](), dict[str, Decision](), 0
    for name, ones in plans.items():
        plan, prior = plan_of(traces[name]), cheap_prior(timing(traces[name]))
        kept = prune_plan(plan, ones).kept
        n_pruned += len(ones) - len(kept)
        for one in kept:
            key = Job(name, one, "", 0).key
            arms.append(Arm("\n".join(key[:4]), (one.operator, kind_of(plan, one.event_id)), prior.get(one.event_id, 0.0)))
            decisions[arms[-1].key] = (name, one)
    return arms, decisions, n_pruned


class _Running:
    """A study under way: what the file holds, and what this call has spent."""

    def __init__(self, design: Design, out: Path, hands: Hands, progress: Callable[[float, str], None]) -> None:
        self.design, self.out, self.hands, self.progress = design, out, hands, progress
        self.traces: dict[str, bytes] = {}
        self.refused: dict[str, str] = {}
        self.there = _there(out, design.seed)
        self.wanted: list[tuple[str, ...]] = []
        self.notes: list[str] = []
        self.n_made = self.n_left = self.n_tokens = self.n_old = 0
        self.is_ended = False
        self.started = time.monotonic()

    def is_over(self) -> bool:
        """Whether no more pairs are to be begun."""
        return self.is_ended or self.spent() >= 1

    def spent(self) -> float:
        """Return the share of the budget that is spent, 0 without one."""
        limit = self.design.budget or Budget()
        of_seconds = 0.0 if limit.seconds is None else (time.monotonic() - self.started) / max(limit.seconds, 1e-9)
        return max(of_seconds, 0.0 if limit.tokens is None else self.n_tokens / max(limit.tokens, 1))

    def do(self, jobs: Sequence[Job], *, n_later: int = 0) -> None:
        """Make what is not there of these jobs, in their order; `n_later` more are left as well where some are."""
        self.wanted += [job.key for job in jobs]
        todo = [job for job in jobs if job.key not in self.there]
        self.n_old += len(jobs) - len(todo)
        n_before = self.n_made
        with self.out.open("ab") as file:
            work = [(self.traces[jobs[0].trace_id], jobs, self.design.seed) for jobs in chunks(todo)]
            try:
                for lines in self.hands.made(work, self.is_over):
                    file.write(b"".join([msgspec.json.encode(line) + b"\n" for line in lines]))
                    file.flush()
                    self.take(lines)
                    self.tell(todo[0].block, self.n_made - n_before, len(todo))
            except BudgetSpent as error:  # what models have answered is kept
                self.is_ended = True
                self.notes.append(str(error))
        n_missing = len(todo) - (self.n_made - n_before)
        self.n_left += n_missing + (n_later if n_missing else 0)

    def take(self, lines: Sequence[Line]) -> None:
        """Take note of lines that were made."""
        for line in lines:
            self.there[line.key] = line
            self.n_tokens += line.pair.cost_tokens if line.pair else 0
            self.n_made += 1

    def tell(self, block: str, n_done: int, n_todo: int) -> None:
        """Say how far it is: of a race, how much of the budget is spent."""
        if self.design.allocation == "racing" and block != CONTROL:
            self.progress(min(1.0, self.spent()), f"race: {self.n_made:,} pairs")
        else:
            self.progress(n_done / n_todo, f"{block}: {n_done:,} of {n_todo:,} pairs")

    def confirming(self, decisions: Sequence[Decision]) -> list[Job]:
        """Return the pairs on fresh seeds of decisions."""
        return [Job(name, one, CONFIRM, n) for n in range(self.design.n_confirm) for name, one in decisions]

    def confirm(self, decisions: Sequence[Decision]) -> None:
        """Make the pairs on fresh seeds of decisions."""
        self.do(self.confirming(decisions))

    def delta(self, job: Job) -> float | None:
        """Return what a pair did to the integrated pass; None where there is no such pair."""
        line = self.there.get(job.key)
        if line is None or line.pair is None or METRICS[0] not in line.pair.q.keys() & line.pair.q_counterfactual.keys():
            return None
        return line.pair.q_counterfactual[METRICS[0]] - line.pair.q[METRICS[0]]

    def pairs(self, *, controls: bool = False) -> list[Pair]:
        """Return the pairs of the design that are there."""
        lines = [self.there[key] for key in dict.fromkeys(self.wanted) if key in self.there]
        return [line.pair for line in lines if line.pair and (line.pair.seed_block == CONTROL) == controls]

    def suggested(self) -> list[Decision]:
        """Return the decisions whose screening is worth fresh seeds, by what they did to the integrated pass."""
        frame = pair_frame([pair for pair in self.pairs() if pair.seed_block == SCREEN])
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
        counts = (self.n_made, self.n_old, self.n_left, self.n_tokens)
        return Study(tuple(pairs), tuple(controls), refused, *counts, tuple(self.notes))


def _there(out: Path, seed: int) -> dict[tuple[str, ...], Line]:
    """Return the lines of the file that belong to a seed; what a crash left of a last line is taken off."""
    if not out.exists():
        return {}
    data = out.read_bytes()
    lines = _lines(out, data)
    if not data.endswith(b"\n"):
        out.write_bytes(data[: data.rfind(b"\n") + 1])
    return {line.key: line for line in lines if line.seed == seed and not line.lost}


def _lines(out: Path, data: bytes) -> list[Line]:
    """Return the lines that are whole."""
    found = []
    for n, text in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            found.append(msgspec.json.decode(text, type=Line))
        except msgspec.MsgspecError as error:
            raise ReplayError(f"{out}:{n}", "the line is no pair; pairs are not appended here", got=str(error)) from None
    return found
