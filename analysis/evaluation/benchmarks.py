"""pass@k of candidate programs on a benchmark file, judged in the sandbox.

Decides how a task of each kind is judged, which candidates count, and over what a rate is taken; the two tiers never share
one. Hides how programs that read and print are called, and that equal programs run once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analysis.counterfactual.sandbox import Case, Job, Limits, Sandbox, Verdict, judge_many
from analysis.counterfactual.tasks.benchmarks_files import BenchmarkTask, Exchange
from analysis.errors import Problem, TaskError
from analysis.estimation import Estimate, cluster_bootstrap, pass_at_k, wilson
from analysis.readers import open_source, unpacked
from analysis.streams import stream

_TIERS = ("values", "assertions")
_EXACT = 1 << 53
_CHUNK = 64  # programs between two reports of progress
#: Runs a script with a text as its standard input, as a process would have it, and returns what it prints.
_EXCHANGE = """
import io, os, sys
def exchange(given):
    with open("stdin.txt", "w") as file:
        file.write(given)
    os.dup2(os.open("stdin.txt", os.O_RDONLY), 0)
    sys.stdin, sys.stdout = open(0, closefd=False), io.TextIOWrapper(io.BytesIO(), write_through=True)
    try:
        exec(compile({program!r}, "<program>", "exec", dont_inherit=True), {{"__name__": "__main__"}})
    except SystemExit:
        pass
    printed = sys.stdout.buffer.getvalue().decode(errors="replace")
    return [line.rstrip() for line in printed.rstrip().splitlines()]
"""


class Candidate(msgspec.Struct, frozen=True):
    """A program for a task: whole, or as the `completion` of the task's prompt."""

    task_id: str
    program: str | None = None
    solution: str | None = None
    completion: str | None = None

    def text(self, prompt: str) -> str:
        """Return the whole program."""
        whole = self.program if self.program is not None else self.solution
        return whole if whole is not None else prompt + (self.completion or "")


class TaskScore(msgspec.Struct, frozen=True):
    """How a task's candidates did: `n` of them, `c` passed; pass@k by k, None where there are fewer than k candidates."""

    task_id: str
    tier: str
    n: int
    c: int
    pass_at: dict[int, float | None]
    failure: str  # of the first candidate that failed
    is_unsafe: bool


class Rate(msgspec.Struct, frozen=True):
    """pass@k of a tier: the mean over `n` tasks with at least k candidates, and its interval over tasks."""

    tier: str
    k: int
    value: float | None
    low: float | None
    high: float | None
    n: int
    reason: str


class Scores(msgspec.Struct, frozen=True):
    """What the candidates of a file came to, and what could not be judged and why."""

    tasks: tuple[TaskScore, ...]
    rates: tuple[Rate, ...]
    n_without: int  # tasks that can be judged and have no candidate
    problems: tuple[Problem, ...]


def read_candidates(path: Path) -> tuple[list[Candidate], list[Problem]]:
    """Read candidates, JSON or JSONL, one a row: task_id, and `program`, `solution` or `completion`."""
    with unpacked(path, path.name) as (unpacked_path, problem):
        source = problem or open_source(unpacked_path, path.name)
        if isinstance(source, Problem):
            return [], [source]
        found, problems = [], list[Problem]()
        for row in source.rows():
            try:
                candidate = msgspec.convert(row.value, Candidate)
                n_given = [candidate.program, candidate.solution, candidate.completion].count(None)
                if n_given != 2:
                    raise msgspec.ValidationError("it needs one of program, solution and completion")
                found.append(candidate)
            except msgspec.ValidationError as error:
                problems.append(Problem(code="wrong-shape", file=path.name, record=row.place, got=str(error)))
        return found, [*source.problems, *problems]


def score(
    tasks: Sequence[BenchmarkTask], candidates: Sequence[Candidate], *, ks: Sequence[int], sandbox: Sandbox, workers: int = 2,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> Scores:  # fmt: skip
    """Judge the candidates of tasks and return pass@k a task and a tier.

    A candidate of an unknown task and one of a task that cannot be judged here become problems. Raises TaskError where two
    tasks share an id or nothing is left to judge, SandboxError where programs cannot be run.
    """
    by_id = {task.task_id: task for task in tasks}
    if len(by_id) < len(tasks):
        raise TaskError("benchmark", "two tasks have the same id", hint="give one benchmark file")
    own: dict[str, list[str]] = {}
    problems = []
    for candidate in candidates:
        if candidate.task_id in by_id:
            own.setdefault(candidate.task_id, []).append(candidate.text(by_id[candidate.task_id].prompt))
        else:
            problems.append(Problem(code="no-task", record=candidate.task_id))
    measures: dict[str, Callable[[str], Job]] = {}
    for task_id in own:
        measure = _measure(by_id[task_id], sandbox)
        if isinstance(measure, Problem):
            problems.append(measure)
        else:
            measures[task_id] = measure
    if not measures:
        raise TaskError("candidates", "none of them is for a task that can be judged", got=_first(problems), hint="see task_id")
    verdicts = _verdicts({task_id: own[task_id] for task_id in measures}, measures, sandbox, workers, progress)
    scores = [_task_score(by_id[task_id], found, ks) for task_id, found in verdicts.items()]
    rates = [rate for tier in _TIERS for k in ks if (rate := _rate(tier, k, scores)) is not None]
    n_without = sum([task.tier != "browse" and task.task_id not in own for task in tasks])
    return Scores(tuple(scores), tuple(rates), n_without, tuple(problems))


def _first(problems: Sequence[Problem]) -> str:
    return f"{problems[0].record}: {problems[0].message}" if problems else "no candidates"


def _verdicts(
    own: dict[str, list[str]], measures: dict[str, Callable[[str], Job]], sandbox: Sandbox, workers: int,
    progress: Callable[[float, str], None],
) -> dict[str, list[Verdict]]:  # fmt: skip
    """Judge each different program of a task once, in the order in which they come."""
    todo = [(task_id, text) for task_id, texts in own.items() for text in dict.fromkeys(texts)]
    found: dict[tuple[str, str], Verdict] = {}
    for start in range(0, len(todo), _CHUNK):
        chunk = todo[start : start + _CHUNK]
        progress(start / len(todo), f"{start} of {len(todo)} programs")
        jobs = [measures[task_id](text) for task_id, text in chunk]
        found.update(zip(chunk, judge_many(jobs, workers=workers, sandbox=sandbox), strict=True))
    return {task_id: [found[task_id, text] for text in texts] for task_id, texts in own.items()}


def _measure(task: BenchmarkTask, sandbox: Sandbox) -> Callable[[str], Job] | Problem:
    """Return what makes of a program the job that judges it."""
    if task.tier == "browse":
        return Problem(code="not-judged", record=task.task_id, got=task.kind)
    if task.tier == "assertions":
        return lambda text: Job(program=text, tests=task.tests)
    if task.exchanges:
        cases = [Case([pair.stdin], _lines(pair)) for pair in task.exchanges]
        return lambda text: Job(program=_EXCHANGE.format(program=text), entry_point="exchange", cases=cases)
    cases = [*task.cases, *_expected(task, sandbox)]
    if not cases:
        return Problem(code="not-judged", record=task.task_id, got="the reference gives no plain result")
    return lambda text: Job(program=text + task.appended, entry_point=task.entry_point, cases=cases)


def _lines(pair: Exchange) -> list[str]:
    return [line.rstrip() for line in pair.stdout.rstrip().splitlines()]


def _expected(task: BenchmarkTask, sandbox: Sandbox) -> Iterator[Case]:
    """Yield a case for each input that the reference has a plain result for. Whole numbers may be returned as floats."""
    if not task.inputs or task.reference is None:
        return
    inputs = [list(given) for given in task.inputs]
    run = sandbox.run(task.reference, entry_point=task.entry_point, inputs=inputs, limits=_PATIENT)
    for given, line in zip(task.inputs, run.results, strict=False):
        answer = json.loads(line, parse_int=_as_float)
        if "value" in answer:
            yield Case(given, answer["value"], task.tolerance)


_PATIENT = Limits(wall_s=30, cpu_s=20)


def _as_float(digits: str) -> float | int:
    whole = int(digits)
    return float(whole) if abs(whole) <= _EXACT else whole


def _task_score(task: BenchmarkTask, verdicts: Sequence[Verdict], ks: Sequence[int]) -> TaskScore:
    n, c = len(verdicts), sum([verdict.passed for verdict in verdicts])
    failure = next((verdict.failure for verdict in verdicts if not verdict.passed), "")
    is_unsafe = any(verdict.is_unsafe for verdict in verdicts)
    return TaskScore(task.task_id, task.tier, n, c, {k: pass_at_k(n, c, k) for k in ks}, failure, is_unsafe)


def _rate(tier: str, k: int, scores: Sequence[TaskScore]) -> Rate | None:
    if not any(task.tier == tier for task in scores):
        return None
    values = [value for task in scores if task.tier == tier and (value := task.pass_at[k]) is not None]
    found = _estimate(values, tier, k)
    if found is None:
        return Rate(tier, k, None, None, None, 0, f"no task has {k} candidates")
    value, low, high = [None if x is None else round(x, 9) for x in found[:3]]
    return Rate(tier, k, value, low, high, found.n, "")


def _estimate(values: Sequence[float], tier: str, k: int) -> Estimate | None:
    """Tasks are drawn again; where each passes or fails as a whole, the score interval does better at the ends."""
    if set(values) <= {0.0, 1.0}:
        return wilson(round(sum(values)), len(values))
    array = np.array(values)
    return cluster_bootstrap(lambda w: float(w @ array / w.sum()), range(len(array)), rng=stream(0, "pass@k", tier, k))


def as_rows(scores: Scores) -> dict[str, Any]:
    """Return the scores as plain values for JSON."""
    return {**msgspec.to_builtins(scores), "tasks": [_row(task) for task in scores.tasks]}


def _row(task: TaskScore) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(task)
    return {**row, "pass_at": {str(k): value for k, value in task.pass_at.items()}}
