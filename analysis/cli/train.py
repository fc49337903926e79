"""`counterpoint train`: a training run on an exported data set; planned, started, followed, stopped, gone on with."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.cli.output import JsonOption, named_values, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from analysis.training.running import Status

_SHOWN = ("loss", "grad_norm", "reward", "orch/weight", "orch/paid_twice_share", "learning_rate")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(train)


def train(
    run: Annotated[Path | None, typer.Argument(help="The folder of the run: an empty one, or one that holds a plan.")] = None,
    export: Annotated[Path | None, typer.Option(help="What `counterpoint export` wrote; makes the plan.")] = None,
    target: Annotated[str, typer.Option("--format", help="Which of its views is trained on.")] = "trl-sft",
    model: Annotated[str | None, typer.Option(help="A folder, or the name at a hub.")] = None,
    orch_weight: Annotated[float, typer.Option(min=0.0, help="λ: how much event credit counts, of trl-grpo.")] = 0.3,
    orch_until: Annotated[float, typer.Option(help="Share of the steps after which λ has faded to 0; 0 keeps it.")] = 1.0,
    argument: Annotated[list[str] | None, typer.Option(help="Of the trainer, such as max_steps=100, learning_rate=1e-5.")] = None,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Write plan and cluster manifests; start nothing.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Start it in the background.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop it; checkpoints stay.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Only say how far it is.")] = False,
    setup: Annotated[bool, typer.Option("--setup", help="Install the training environment, 1.6 GB, first or alone.")] = False,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Train on an exported view in an environment of its own; log and metrics stand in the folder of the run."""
    from analysis.training import environment, running
    from analysis.training.plan import prepare, read_plan

    if setup:
        say(f"training environment: {environment.install()}")
        if run is None:
            return
    if run is None:
        raise typer.BadParameter("name the folder of the run", param_hint="RUN")
    if export is None or cancel:
        read_plan(run)  # what starts in the background could tell nobody that there is none
    if cancel:
        say("stopped" if running.cancel(run) else "nothing runs there")
    elif export is not None:
        if model is None:
            raise typer.BadParameter("a plan needs a model: a folder, or the name at a hub", param_hint="--model")
        given = named_values(argument or (), "--argument")
        prepare(export, target, run, model=model, orch_weight=orch_weight, orch_until=orch_until, arguments=given)
        say(f"planned in {run}: plan.json, slurm.sh, ray.sh, kubernetes.yaml")
    if detach and not (cancel or status or plan_only):
        command = [sys.executable, "-m", "analysis.cli", "train", str(run), *(["--resume"] if resume else [])]
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        say(f"started; `counterpoint train {run} --status` says how far it is")
    found = running.status(run) if cancel or status or plan_only or detach else _run(run, resume, progress_file)
    _tell(found, json=json)
    if found.state == "failed":
        raise typer.Exit(1)


def _run(run: Path, resume: bool, progress_file: Path | None) -> Status:
    from analysis.training import running
    from analysis.training.plan import read_plan

    n_steps = float(read_plan(run).arguments.get("max_steps", 0) or 0)
    signal.signal(signal.SIGTERM, lambda *_: running.cancel(run))  # a job that is cancelled takes its trainer along
    with progress_bar(progress_file) as progress:

        def show(n: int, values: dict[str, float]) -> None:
            progress(min(1.0, n / n_steps) if n_steps > 0 else 0.0, f"{n} logged, loss {values.get('loss', '–')}")

        return running.run(run, resume=resume, progress=show)


def _tell(found: Status, *, json: bool) -> None:
    if json:
        print_json({"state": found.state, "n_logged": found.n_logged, "metrics": found.metrics, "last": found.last})
        return
    names = [name for name in _SHOWN if any(name in row for row in found.metrics)]
    if names:
        print_table(["entry", *names], [[n, *[row.get(name) for name in names]] for n, row in _ends(found.metrics)])
    say(found.state + (f": {found.last}" if found.state == "failed" else ""))


def _ends(metrics: list[dict[str, float]]) -> list[tuple[int, dict[str, float]]]:
    numbered = list(enumerate(metrics, 1))
    return numbered if len(numbered) <= 10 else [*numbered[:5], *numbered[-5:]]
