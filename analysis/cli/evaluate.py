"""`counterpoint evaluate`: plain pass@k of candidate programs on a benchmark file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.cli.output import JsonOption, print_json, print_table, progress_bar, say
from analysis.errors import Problem, TaskError

if TYPE_CHECKING:
    from analysis.evaluation.benchmarks import Scores

_N_PROBLEMS = 10

BenchmarkArgument = Annotated[Path, typer.Argument(help="HumanEval(+), MBPP+ or LiveCodeBench: JSON, JSONL, gzip.")]
CandidatesArgument = Annotated[Path, typer.Argument(help='JSONL: {"task_id": …, "program": …} (or "completion").')]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(evaluate)


def evaluate(
    benchmark_file: BenchmarkArgument,
    candidates_file: CandidatesArgument,
    k: Annotated[list[int] | None, typer.Option("--k", min=1, help="pass@k for this k; may be given several times.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Programs that run at once.")] = 2,
    unsafe_exec: Annotated[bool, typer.Option("--unsafe-exec", help="Run programs even where too little holds them.")] = False,
    json: JsonOption = False,
) -> None:
    """Judge programs in the sandbox: pass@k a task and over tasks; tests by values and by assertions are kept apart."""
    from analysis.counterfactual.sandbox import open_sandbox
    from analysis.counterfactual.tasks.benchmarks_files import read_benchmark
    from analysis.evaluation.benchmarks import as_rows, read_candidates, score

    benchmark = read_benchmark(benchmark_file)
    candidates, problems = read_candidates(candidates_file)
    for path, found, lost in ((benchmark_file, benchmark.tasks, benchmark.problems), (candidates_file, candidates, problems)):
        if not found:
            raise TaskError(path.name, *_why(lost))
    ks = sorted(set(k or [1]))
    with open_sandbox(unsafe=unsafe_exec) as sandbox, progress_bar(None) as progress:
        scores = score(benchmark.tasks, candidates, ks=ks, sandbox=sandbox, workers=workers, progress=progress)
    faults = [*[problem for problem in (*benchmark.problems, *problems) if problem.severity == "lost"], *scores.problems]
    if json:
        print_json({**as_rows(scores), "problems": [str(problem) for problem in faults]})
    else:
        _print(scores, ks)
    _say_problems(faults)
    raise typer.Exit(1 if faults else 0)


def _why(problems: Sequence[Problem]) -> tuple[str]:
    return (": ".join(filter(None, (problems[0].message, problems[0].got))) if problems else "nothing in it",)


def _print(scores: Scores, ks: Sequence[int]) -> None:
    rows = [(task.task_id, task.tier, task.n, task.c, *[task.pass_at[k] for k in ks], task.failure) for task in scores.tasks]
    print_table(["task", "tier", "n", "c", *[f"pass@{k}" for k in ks], "first failure"], rows)
    typer.echo()
    rates = [(f"pass@{r.k}", r.tier, r.value, r.low, r.high, r.n, r.reason) for r in scores.rates]
    print_table(["rate", "tier", "value", "low", "high", "n tasks", "reason"], rates)
    if scores.n_without:
        say(f"{scores.n_without} tasks have no candidate and are in no rate")
    if any(task.is_unsafe for task in scores.tasks):
        say("the programs ran with less than the minimum around them (--unsafe-exec)")


def _say_problems(problems: Sequence[Problem]) -> None:
    for problem in problems[:_N_PROBLEMS]:
        say(str(problem))
    if len(problems) > _N_PROBLEMS:
        say(f"… and {len(problems) - _N_PROBLEMS} more")
