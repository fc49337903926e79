"""Many runs: teams × tasks × trials, in processes, appended to one file, which a later call goes on with.

A run is found again by its trace id; the file is in the order of the jobs, so that an interrupted and resumed call leaves the
same bytes as one that went through. What a trace needs to be run again stands in its `extra["run"]`. What models answered is
kept in a ledger beside the file, for all processes and calls, so that a run that is taken up again pays for nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from analysis.counterfactual.agents.decisions import Recorder, Row, ordered, rows_of
from analysis.counterfactual.agents.ledger import Cap, Spent
from analysis.counterfactual.agents.protocol import Agent
from analysis.counterfactual.clock import RealClock
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.plan import Plan
from analysis.counterfactual.planning import PLANNED, plan_for
from analysis.counterfactual.record import plain
from analysis.counterfactual.runtime import Trial, execute
from analysis.counterfactual.tasks.bank import load_bank
from analysis.counterfactual.tasks.compose import ComposedTask, compose
from analysis.counterfactual.tasks.shapes import SHAPES
from analysis.counterfactual.teams import Team, simulated, team_of
from analysis.counterfactual.workers import Setting, Tally, check_live, made, spent
from analysis.errors import TaskError, TeamError, UnknownNameError
from analysis.model import Trace
from analysis.processes import alone
from analysis.streams import stream

_N_AT_ONCE = 16  # runs; about a second


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
    """After how many tokens, or seconds, no new run is begun.

    Live agents never go beyond the tokens, nor beyond the calls; theirs count over all calls of `run_many` on a file.
    """

    tokens: int | None = None
    seconds: float | None = None
    calls: int | None = None


class RunReport(msgspec.Struct, frozen=True):
    """What became of the runs.

    n_made, n_there, n_left : made now; in the file already; left for a later call
    n_tokens : of those that were made, whoever spent them
    why : why runs were left, each reason once
    spent : what live agents have cost so far, over all calls on the file; None for teams without any
    """

    n_made: int
    n_there: int
    n_left: int
    n_tokens: int
    why: tuple[str, ...] = ()
    spent: Spent | None = None


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


def run_job(job: Job, judge: Judge, *, agents: Mapping[str, Agent] | None = None, records: bool = False) -> Trace:
    """Make one run; where no agents are given, the team's own, none of whom may be live.

    With `records` the choices of all agents stand in `extra["run"]["decisions"]`, as `fit` takes them. A run with a live agent
    has real times and the world `live`. Raises BudgetSpent and EndpointError where live agents do.
    """
    task, trial = job.recipe.task(), Trial(job.seed, job.trial)
    asked, recorders = _recorded(agents or simulated(job.team), records)
    clock = RealClock() if job.team.live else None  # begins before the lead is asked how to go about the task
    plan = plan_for(job.team, task, trial=trial, agents=asked)
    trace = execute(plan, task, asked, trial=trial, judge=judge, clock=clock)
    return _with_origin(trace, job.recipe, job.team, _choices(recorders))


def replay(
    trace: Trace, judge: Judge, *, plan: Plan | None = None, trial: Trial | None = None, agents: Mapping[str, Agent] | None = None
) -> Trace:
    """Run a trace again from what it says of itself, or with another plan, luck or agents in place of its own.

    Without any of them a run without live agents comes out byte for byte the same. Raises TeamError where the trace does not
    say how it was made or a model would have to be asked, TaskError where its task cannot be made again.
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
    asked, recorders = _recorded(agents or simulated(team), "decisions" in said)
    clock = RealClock() if team.live else None
    again = execute(plan or own_plan, recipe.task(), asked, trial=trial or own_trial, judge=judge, clock=clock)
    before = [row for row in rows_of(trace) if row.purpose in PLANNED]  # the plan is given, and so nobody is asked for it
    return _with_origin(again, recipe, team, _choices(recorders, before))


def run_many(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int = 1,
    budget: Budget | None = None,
    unsafe: bool = False,
    records: bool = False,
    progress: Callable[[float, str], None] | None = None,
) -> RunReport:
    """Make the runs that the file does not hold yet and append them to it, in the order of the jobs.

    The budget is what this call may spend, but for live agents, whose tokens and calls count over all calls; `records` as in
    `run_job`. When a model has no budget left no more runs are begun; when its endpoint refuses all calls, none of its team.
    Raises BusyError where another call writes to the file, TeamError where it holds runs of another team of the same name,
    SandboxError where programs are not run here, EndpointError where a key or the client is missing.
    """
    limit, is_live = budget or Budget(), any(job.team.live for job in jobs)
    ledger = out.with_suffix(".ledger") if is_live else None
    setting = Setting(run_job, unsafe=unsafe, records=records, ledger=ledger, cap=Cap(limit.tokens, calls=limit.calls))
    if not out.exists():
        check_live([job.team for job in jobs], setting)  # while no file is begun
    tally = Tally(limit.tokens, limit.seconds)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.touch()
    with alone(out), out.open("ab") as file:
        there = _there(out, {job.trace_id: job.team for job in jobs})
        todo = [job for job in jobs if job.trace_id not in there]
        check_live([job.team for job in todo], setting)
        chunks = [[job] for job in todo] if is_live or budget is not None else _by_task(todo)
        for batch in made(chunks, setting, tally, workers=workers):
            for one in batch:
                tally.count(one)
                file.write(one.line)
            file.flush()
            if progress is not None:
                progress(tally.n_made / len(todo), f"{tally.n_made} of {len(todo)} runs")
    n_left = len(todo) - tally.n_made
    return RunReport(tally.n_made, len(there), n_left, tally.n_tokens, tuple(tally.why), spent(setting))


def _recorded(agents: Mapping[str, Agent], records: bool) -> tuple[Mapping[str, Agent], list[Recorder] | None]:
    """Return the agents as they are, or each with a recorder around it."""
    if not records:
        return agents, None
    recorders = {name: Recorder(agent) for name, agent in agents.items()}
    return recorders, list(recorders.values())


def _choices(recorders: Sequence[Recorder] | None, before: Sequence[Row] = ()) -> list[Row] | None:
    return None if recorders is None else ordered([*before, *[row for one in recorders for row in one.rows()]])


def _with_origin(trace: Trace, recipe: Recipe, team: Team, choices: Sequence[Row] | None) -> Trace:
    origin = {"task": plain(recipe), "team": plain(team)}
    if choices is not None:
        origin["decisions"] = msgspec.json.decode(msgspec.json.encode(choices))
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
        if team_of(head.extra.get("run", {}).get("team", {}), f"{out}:{n}") != teams[head.trace_id]:
            hint = "rename the team, or write to another file"
            raise TeamError(f"{out}:{n}", "a run of another team of the same name", got=teams[head.trace_id].name, hint=hint)
        found.add(head.trace_id)
    return found


def _by_task(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return what a process does in one go where no budget may end it: runs of one task, which share programs, but not so
    many that much is lost where a person ends it.
    """
    chunks: list[list[Job]] = []
    for job in jobs:
        if not chunks or chunks[-1][0].recipe != job.recipe or len(chunks[-1]) == _N_AT_ONCE:
            chunks.append([])
        chunks[-1].append(job)
    return chunks
