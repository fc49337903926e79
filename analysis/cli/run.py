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
    from analysis.counterfactual.runs import Budget, Recipe
    from analysis.counterfactual.teams import Team

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(tokens|s)?")
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
    budget: Annotated[str | None, typer.Option(help="Begin no new run after so many tokens (50000), or seconds (90s).")] = None,
    baseline: Annotated[bool, typer.Option("--baseline/--no-baseline", help="A single agent does every task too.")] = True,
    out: Annotated[Path, typer.Option(help="Runs are appended here; those that it holds are not made again.")] = Path(
        "counterpoint-runs.jsonl"
    ),
    unsafe_exec: Annotated[
        bool, typer.Option("--unsafe-exec", help="Run programs with too little around them; rows say so.")
    ] = False,
    analyze: Annotated[bool, typer.Option("--analyze", help="Analyse the runs right after.")] = False,
    workspace: WorkspaceOption = None,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:
    """Let simulated teams do composed tasks, programs judged in the sandbox; then import the runs. Goes on where it stopped."""
    from analysis.counterfactual.runs import jobs_of, run_many

    teams, limit = _teams(team, baseline), budget_of(budget)
    jobs = jobs_of(_recipes(tasks or ["10"], seed), teams, n_trials=trials, seed=seed)
    with progress_bar(progress_file) as progress:
        report = run_many(jobs, out, workers=workers, budget=limit, unsafe=unsafe_exec, progress=progress)
    place = workspace or DEFAULT_WORKSPACE
    imported = run_import([out], place, progress_file=progress_file) if report.n_made + report.n_there else None
    stages = run_analysis(place, progress_file=progress_file) if analyze else []
    counts = {"made": report.n_made, "there": report.n_there, "left": report.n_left, "tokens": report.n_tokens}
    rows = _by_team(out, {job.trace_id: job.team.name for job in jobs})
    if json:
        print_json(
            {**counts, "out": str(out), "teams": rows, "import": imported.plain() if imported else None, "stages": plain(stages)}
        )
        return
    print_table(["team", "runs", "passed", "tokens a run"], [tuple(row.values()) for row in rows])
    say(", ".join([f"{n:,} runs {word}" for word, n in counts.items() if word != "tokens"]) + f", in {out}")
    tell(stages)
    if not analyze:
        say(f"next: `counterpoint analyze -w {place}` works out metrics and findings")


def _teams(names: Sequence[str] | None, baseline: bool) -> list[Team]:
    from analysis.counterfactual.teams import find_team, ready_teams

    ready = ready_teams()
    single = next(iter(ready))
    chosen = list(ready.values()) if names is None else [find_team(name) for name in names]
    others = [team for team in chosen if team.name != single]
    is_asked = names is not None and len(others) < len(chosen)
    return [*([ready[single]] if baseline or is_asked else []), *others]


def _recipes(wanted: Sequence[str], seed: int) -> list[Recipe]:
    from analysis.counterfactual.runs import recipes
    from analysis.counterfactual.tasks.shapes import SHAPES

    found: dict[str, Recipe] = {}
    for text in wanted:
        match = _TASKS.fullmatch(text.strip())
        if match is None:
            raise typer.BadParameter(f"{text!r} is neither a shape, nor SHAPE:N, nor a number", param_hint="--tasks")
        names = list(SHAPES)
        if match["shape"]:
            some = recipes(match["shape"], int(match["n"] or 1), seed=seed)
        else:
            some = [recipes(names[k % len(names)], 1, seed=seed, first=k // len(names))[0] for k in range(int(match["n_all"]))]
        found |= {recipe.task_id: recipe for recipe in some}
    return list(found.values())


def budget_of(text: str | None) -> Budget | None:
    """Return the budget that an option states."""
    from analysis.counterfactual.runs import Budget

    if text is None:
        return None
    match = _BUDGET.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is neither a number of tokens nor of seconds (90s)", param_hint="--budget")
    return Budget(seconds=float(match[1])) if match[2] == "s" else Budget(tokens=int(float(match[1])))


def _by_team(out: Path, wanted: dict[str, str]) -> list[dict[str, Any]]:
    """Return how each team did, of the runs in the file that were asked for."""
    from analysis.model import decode

    found: dict[str, list[tuple[bool, int]]] = {}
    for line in out.read_bytes().splitlines() if out.exists() else ():
        trace = decode(line)
        if trace.trace_id in wanted:
            tokens = sum([(event.input_tokens or 0) + (event.output_tokens or 0) for event in trace.events])
            found.setdefault(wanted[trace.trace_id], []).append((bool(trace.outcome.passed), tokens))
    return [
        {
            "team": name,
            "runs": len(runs),
            "passed": sum([passed for passed, _ in runs]),
            "tokens_mean": round(sum([tokens for _, tokens in runs]) / len(runs)),
        }
        for name, runs in found.items()
    ]
