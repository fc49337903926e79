"""`counterpoint run`: teams do tasks of the built-in bank, and their runs come into the workspace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli.analysing import plain, run_analysis, tell
from analysis.cli.importing import run_import
from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from analysis.counterfactual.runs import Budget, Recipe, RunReport
    from analysis.counterfactual.teams import Team

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(tokens|calls|s)?")
_BUDGET_HELP = (
    "Begin no new run after so many tokens (50000), or seconds (90s). Models never go beyond the tokens, or beyond so many calls "
    "(200calls), counted over all that was run into --out."
)
_BASELINE_HELP = "A single simulated agent does every task too; by default not beside models, for which it is no measure."
_TASKS = re.compile(r"(?P<n_all>\d+)|(?P<shape>[a-z][a-z0-9-]*)(?::(?P<n>\d+))?")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(run)


def run(
    tasks: Annotated[
        list[str] | None, typer.Option(help="A shape (diamond), so many of it (diamond:5), or so many of all in turn (20).")
    ] = None,
    team: Annotated[list[str] | None, typer.Option(help="A ready team or a team file (TOML); all ready ones by default.")] = None,
    trials: Annotated[int, typer.Option(min=1, max=10_000, help="Runs of each team on each task.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same runs.")] = 7,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes.")] = 2,
    budget: Annotated[str | None, typer.Option(help=_BUDGET_HELP)] = None,
    baseline: Annotated[bool | None, typer.Option("--baseline/--no-baseline", help=_BASELINE_HELP)] = None,
    out: Annotated[Path, typer.Option(help="Runs are appended here; those that it holds are not made again.")] = Path(
        "counterpoint-runs.jsonl"
    ),
    unsafe_exec: Annotated[
        bool, typer.Option("--unsafe-exec", help="Run programs with too little around them; rows say so.")
    ] = False,
    record_decisions: Annotated[
        bool, typer.Option("--record-decisions", help="Traces hold every choice that was made, for `fit`; they grow by half.")
    ] = False,
    analyze: Annotated[bool, typer.Option("--analyze", help="Analyse the runs right after.")] = False,
    workspace: WorkspaceOption = None,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:
    """Let teams do composed tasks, programs judged in the sandbox; then import the runs. Goes on where it stopped.

    Who is in a team its file says: simulated agents, trained policies, or models behind an endpoint, whose answers are kept
    beside --out, so that nothing is paid twice. Exit 1 where runs are left.
    """
    from analysis.counterfactual.runs import jobs_of, run_many

    teams = _teams(team, baseline)
    limit = budget_of(budget, calls=any(team.live for team in teams))
    jobs = jobs_of(_recipes(tasks or ["10"], seed), teams, n_trials=trials, seed=seed)
    with progress_bar(progress_file) as progress:
        report = run_many(
            jobs, out, workers=workers, budget=limit, unsafe=unsafe_exec, records=record_decisions, progress=progress
        )
    place = workspace or DEFAULT_WORKSPACE
    imported = run_import([out], place, progress_file=progress_file) if report.n_made + report.n_there else None
    stages = run_analysis(place, progress_file=progress_file) if analyze else []
    rows = _by_team(out, {job.trace_id: job.team.name for job in jobs})
    if json:
        print_json({**_counts(report), "why": report.why, "models": report.spent and report.spent._asdict(), "out": str(out),
                    "teams": rows, "import": imported and imported.plain(), "stages": plain(stages)})  # fmt: skip
    else:
        print_table(["team", "world", "passed", "95 % interval", "tokens a run"], [_cells(row) for row in rows])
        _tell(report, out)
        tell(stages)
        if not analyze:
            say(f"next: `counterpoint analyze -w {place}` works out metrics and findings")
    if report.n_left:
        say(f"{report.n_left:,} runs are left, the same command goes on with them: {'; '.join(report.why)}")
        raise typer.Exit(1)


def _teams(names: Sequence[str] | None, baseline: bool | None) -> list[Team]:
    from analysis.counterfactual.teams import find_team, ready_teams

    ready = ready_teams()
    single = next(iter(ready))
    chosen = list(ready.values()) if names is None else [find_team(name) for name in names]
    others = [team for team in chosen if team.name != single]
    is_asked = names is not None and len(others) < len(chosen)
    if baseline is None:
        baseline = not any(team.live for team in others)  # a simulated agent is no measure for models
    return [*([ready[single]] if baseline or is_asked else []), *others]


def _recipes(wanted: Sequence[str], seed: int) -> list[Recipe]:
    from analysis.counterfactual.runs import recipes
    from analysis.counterfactual.tasks.shapes import SHAPES

    found: dict[str, Recipe] = {}
    for text in wanted:
        match = _TASKS.fullmatch(text.strip())
        if match is None:
            raise typer.BadParameter(f"{text!r} is neither a shape, nor SHAPE:N, nor a number", param_hint="--tasks")
        if not int(match["n"] or match["n_all"] or 1):
            raise typer.BadParameter(f"{text!r} is no task; give at least 1", param_hint="--tasks")
        names = list(SHAPES)
        if match["shape"]:
            some = recipes(match["shape"], int(match["n"] or 1), seed=seed)
        else:
            some = [recipes(names[k % len(names)], 1, seed=seed, first=k // len(names))[0] for k in range(int(match["n_all"]))]
        found |= {recipe.task_id: recipe for recipe in some}
    return list(found.values())


def budget_of(text: str | None, *, calls: bool = False) -> Budget | None:
    """Return the budget that an option states; calls where there is somebody who makes them."""
    from analysis.counterfactual.runs import Budget

    if text is None:
        return None
    match, units = _BUDGET.fullmatch(text.strip()), "tokens, of calls (200calls)" if calls else "tokens"
    if match is None or (match[2] == "calls" and not calls):
        raise typer.BadParameter(f"{text!r} is neither a number of {units} nor of seconds (90s)", param_hint="--budget")
    if match[2] == "s" and float(match[1]):
        return Budget(seconds=float(match[1]))
    if not (amount := int(float(match[1]))):
        raise typer.BadParameter(f"{text!r} leaves nothing to spend; give more, or none for no limit", param_hint="--budget")
    return Budget(calls=amount) if match[2] == "calls" else Budget(tokens=amount)


def _by_team(out: Path, wanted: dict[str, str]) -> list[dict[str, Any]]:
    """Return how each team did, of the runs in the file that were asked for: how many passed, with Wilson's interval."""
    from analysis.estimation import wilson
    from analysis.model import Trace, decode

    found: dict[str, list[Trace]] = {}
    for line in out.read_bytes().splitlines() if out.exists() else ():
        trace = decode(line)
        if trace.trace_id in wanted:
            found.setdefault(wanted[trace.trace_id], []).append(trace)
    rows = []
    for name, traces in found.items():
        n, n_passed = len(traces), sum([bool(trace.outcome.passed) for trace in traces])
        n_tokens = sum([(e.input_tokens or 0) + (e.output_tokens or 0) for trace in traces for e in trace.events])
        share = wilson(n_passed, n)
        rows.append({
            "team": name, "world": traces[0].world, "n": n, "passed": n_passed, "rate": n_passed / n,
            "low": share and share.low, "high": share and share.high, "tokens_mean": round(n_tokens / n),
        })  # fmt: skip
    return rows


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    passed = f"{row['passed']} of {row['n']} ({100 * row['rate']:.0f} %)"
    return row["team"], row["world"], passed, f"{100 * row['low']:.0f} to {100 * row['high']:.0f} %", row["tokens_mean"]


def _counts(report: RunReport) -> dict[str, int]:
    return {"made": report.n_made, "there": report.n_there, "left": report.n_left, "tokens": report.n_tokens}


def _tell(report: RunReport, out: Path) -> None:
    say(", ".join([f"{n:,} runs {word}" for word, n in _counts(report).items() if word != "tokens"]) + f", in {out}")
    if (spent := report.spent) is not None:
        money = f" and {spent.money:.4g} in money" if spent.money else ""
        unknown = f"; {spent.n_open:,} ended in no answer that is known, and count at their most" if spent.n_open else ""
        say(f"models so far: {spent.n_calls:,} calls, {spent.tokens:,} tokens{money}{unknown}")
