"""Many runs: teams × tasks × trials, in processes, appended to one file, which a later call goes on with.

A run is found again by its trace id; the file is in the order of the jobs, so that an interrupted and resumed call leaves the
same bytes as one that went through. What a trace needs to be run again stands in its `extra["run"]`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from analysis.counterfactual.agents.protocol import Agent
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.plan import Plan
from analysis.counterfactual.planning import plan_for
from analysis.counterfactual.runtime import Trial, execute
from analysis.counterfactual.sandbox import open_sandbox
from analysis.counterfactual.tasks.bank import load_bank
from analysis.counterfactual.tasks.compose import ComposedTask, compose
from analysis.counterfactual.tasks.shapes import SHAPES
from analysis.counterfactual.teams import Team, simulated, team_of
from analysis.errors import TaskError, TeamError, UnknownNameError
from analysis.model import Trace, encode
from analysis.streams import stream


class Recipe(msgspec.Struct, frozen=True):
    """How a composed task is made again of the built-in bank; `task_id` holds the hash of what came out."""

    shape: str
    number: int
    seed: int
    task_id: str

    def task(self) -> ComposedTask:
        """Return the task; raises TaskError where the bank now gives another one."""
        task = _composed(self.shape, self.number, self.seed)
        if task.task_id != self.task_id:
            hint = "the task bank has changed since the run; take the version that made it"
            raise TaskError(self.task_id, "the recipe now gives another task", got=task.task_id, hint=hint)
        return task


class Job(msgspec.Struct, frozen=True):
    """One run that is to be."""

    recipe: Recipe
    team: Team
    trial: int
    seed: int

    @property
    def trace_id(self) -> str:
        """The id that its trace will have."""
        return f"counterpoint:{self.recipe.task_id}-{self.team.name}-s{self.seed}-{self.trial}"


class Budget(msgspec.Struct, frozen=True):
    """After how many tokens, or seconds, no new run is begun."""

    tokens: int | None = None
    seconds: float | None = None


class RunReport(msgspec.Struct, frozen=True):
    """How many runs were made, were there already, and were not begun for want of budget; and what the made ones spent."""

    n_made: int
    n_there: int
    n_left: int
    n_tokens: int


def recipes(shape: str, n: int, *, seed: int, first: int = 0) -> list[Recipe]:
    """Return the recipes of n tasks of a shape. Raises UnknownNameError.

    >>> [recipe.task_id == recipe.task().task_id for recipe in recipes("chain-3", 2, seed=7)]
    [True, True]
    """
    if shape not in SHAPES:
        raise UnknownNameError("tasks", "no such shape", got=shape, expected=", ".join(SHAPES))
    return [Recipe(shape, k, seed, _composed(shape, k, seed).task_id) for k in range(first, first + n)]


def jobs_of(tasks: Sequence[Recipe], teams: Sequence[Team], *, n_trials: int, seed: int) -> list[Job]:
    """Return the runs of all teams on all tasks, task by task."""
    names = [team.name for team in teams]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TeamError("teams", "two teams have the same name", got=twice[0])
    return [Job(task, team, trial, seed) for task in tasks for team in teams for trial in range(1, n_trials + 1)]


def run_job(job: Job, judge: Judge, *, agents: Mapping[str, Agent] | None = None) -> Trace:
    """Make one run, by simulated agents where no others are given."""
    task, trial, players = job.recipe.task(), Trial(job.seed, job.trial), agents or simulated(job.team)
    plan = plan_for(job.team, task, trial=trial, agents=players)
    return _with_origin(execute(plan, task, players, trial=trial, judge=judge), job.recipe, job.team)


def replay(
    trace: Trace, judge: Judge, *, plan: Plan | None = None, trial: Trial | None = None, agents: Mapping[str, Agent] | None = None
) -> Trace:
    """Run a trace again from what it says of itself, or with another plan, luck or agents in place of its own.

    Without any of them a simulated run comes out byte for byte the same. Raises TeamError where the trace does not say how it
    was made, TaskError where its task cannot be made again.
    """
    said = trace.extra.get("run")
    if not isinstance(said, dict) or not {"seed", "trial", "plan", "task", "team"} <= said.keys():
        hint = "only runs that `counterpoint run` made can be run again"
        raise TeamError(trace.trace_id, "the trace does not say how it was made", hint=hint)
    try:
        recipe = msgspec.convert(said["task"], Recipe)
        own_plan = msgspec.convert(said["plan"], Plan)
        own_trial = msgspec.convert((said["seed"], said["trial"]), Trial)
    except msgspec.ValidationError as error:
        raise TeamError(f"{trace.trace_id}: extra.run", "a field does not have its shape", got=str(error)) from None
    team = team_of(said["team"], f"{trace.trace_id}: extra.run.team")
    task, players = recipe.task(), agents or simulated(team)
    made = execute(plan or own_plan, task, players, trial=trial or own_trial, judge=judge)
    return _with_origin(made, recipe, team)


def run_many(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int = 1,
    budget: Budget | None = None,
    unsafe: bool = False,
    progress: Callable[[float, str], None] | None = None,
) -> RunReport:
    """Make the runs that the file does not hold yet and append them to it, in the order of the jobs.

    The budget is what this call may spend. Raises TeamError where the file holds runs of another team of the same name,
    SandboxError where programs are not run here.
    """
    there = _there(out, {job.trace_id: job.team for job in jobs})
    todo = [job for job in jobs if job.trace_id not in there]
    is_whole, spent, started = budget is None, 0, time.monotonic()
    n_made = 0

    def is_over() -> bool:
        tokens, seconds = (budget.tokens, budget.seconds) if budget else (None, None)
        return (tokens is not None and spent >= tokens) or (seconds is not None and time.monotonic() - started >= seconds)

    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("ab") as file:
        for lines in _made(_chunks(todo, is_whole), workers, unsafe, is_over):
            for line, n_tokens in lines:
                file.write(line + b"\n")
                spent, n_made = spent + n_tokens, n_made + 1
            file.flush()
            if progress is not None:
                progress(n_made / len(todo), f"{n_made} of {len(todo)} runs")
    return RunReport(n_made, len(there), len(todo) - n_made, spent)


def _with_origin(trace: Trace, recipe: Recipe, team: Team) -> Trace:
    origin = {"task": msgspec.to_builtins(recipe), "team": msgspec.json.decode(msgspec.json.encode(team))}
    return msgspec.structs.replace(trace, extra={"run": {**trace.extra["run"], **origin}})


@cache
def _composed(shape: str, number: int, seed: int) -> ComposedTask:
    return compose(load_bank(), SHAPES[shape], rng=stream(seed, "task", shape, number))


class _Head(msgspec.Struct):
    trace_id: str
    extra: dict[str, Any] = {}


def _there(out: Path, teams: Mapping[str, Team]) -> set[str]:
    """Return which of the traces the file holds; what a crash left of a last line is taken off."""
    if not out.exists():
        return set()
    data = out.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        out.write_bytes(whole)
    found: set[str] = set()
    for n, line in enumerate(whole.splitlines(), 1):
        try:
            head = msgspec.json.decode(line, type=_Head)
        except msgspec.MsgspecError as error:
            raise TeamError(f"{out}:{n}", "the line is no trace; runs are not appended here", got=str(error)) from None
        if head.trace_id not in teams:
            continue
        if head.extra.get("run", {}).get("team") != msgspec.json.decode(msgspec.json.encode(teams[head.trace_id])):
            hint = "rename the team, or write to another file"
            raise TeamError(f"{out}:{n}", "a run of another team of the same name", got=teams[head.trace_id].name, hint=hint)
        found.add(head.trace_id)
    return found


def _chunks(jobs: Sequence[Job], is_whole: bool) -> list[list[Job]]:
    """Return what a process does in one go: all runs of a task, which share programs; with a budget, one run."""
    if not is_whole:
        return [[job] for job in jobs]
    chunks: dict[str, list[Job]] = {}
    for job in jobs:
        chunks.setdefault(job.recipe.task_id, []).append(job)
    return list(chunks.values())


def _made(
    chunks: Sequence[list[Job]], workers: int, unsafe: bool, is_over: Callable[[], bool]
) -> Iterator[list[tuple[bytes, int]]]:
    """Yield the lines of each chunk and their tokens, in order, until the budget is spent."""
    if workers == 1:
        with open_sandbox(unsafe=unsafe) as sandbox:
            judge = Judge(sandbox)
            for chunk in chunks:
                if is_over():
                    return
                for job in chunk:
                    yield [_line(job, judge)]
        return
    todo = deque(chunks)
    running: deque[Future[list[tuple[bytes, int]]]] = deque()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin, initargs=(unsafe,)) as pool:
        while todo or running:
            while todo and len(running) <= workers and not is_over():
                running.append(pool.submit(_do, todo.popleft()))
            if not running:
                return
            yield running.popleft().result()


def _line(job: Job, judge: Judge) -> tuple[bytes, int]:
    trace = run_job(job, judge)
    return encode(trace), sum([(event.input_tokens or 0) + (event.output_tokens or 0) for event in trace.events])


_judges: list[Judge] = []  # of a worker process: its one judge, as long as it lives


def _begin(unsafe: bool) -> None:
    _judges.append(Judge(open_sandbox(unsafe=unsafe)))


def _do(jobs: list[Job]) -> list[tuple[bytes, int]]:
    return [_line(job, _judges[0]) for job in jobs]
