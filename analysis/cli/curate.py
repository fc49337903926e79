"""`counterpoint curate`: what becomes training data, by a policy file, and why each trace was kept or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, progress_bar, say

_SHOWN = ("gate", "entered", "waiting", "passed", "masked", "returned", "queued", "dropped", "threshold")
_SUMS = (
    "entered = passed + masked + returned + queued + dropped; of those that entered, an earlier gate had queued `waiting`: they "
    "still come to later gates, but not to quotas and batches"
)
_N_REASONS = 4  # of a gate, the most frequent


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(curate)


def curate(
    policy: Annotated[str | None, typer.Option(help="A policy file (*.toml), or a ready policy; `default` if none.")] = None,
    name: Annotated[str, typer.Option(help="Of the data set; one of the same name is replaced.")] = "curated",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the data set of that name, and nothing else.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print a policy with every field explained, and stop.")] = False,
    workspace: WorkspaceOption = None,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:
    """Keep, mask, weigh and order traces by a policy, and store them as a data set with the reason for each."""
    from analysis.curation.policy import DEFAULT, find_policy, ready_policies
    from analysis.curation.policy import explain as explained

    if explain:
        typer.echo(explained(), nl=False)
        return
    from analysis.pipeline.curating import curate_workspace, remove_dataset
    from analysis.workspace import Workspace

    if remove:
        remove_dataset(Workspace(workspace or DEFAULT_WORKSPACE), name)
        say(f"{name} is removed; its traces stay")
        return
    if policy is None:
        say(
            f"no --policy given: the ready policy `{DEFAULT}` is used; `counterpoint curate --explain` shows what else there is; "
            f"to change it, copy {ready_policies()[DEFAULT]}"
        )
    chosen = find_policy(policy or DEFAULT)
    with progress_bar(progress_file) as progress:
        report = curate_workspace(Workspace(workspace or DEFAULT_WORKSPACE), chosen, name=name, progress=progress)
    counts = report["counts"]
    if json:
        print_json({"dataset": name, **counts, "by_gate": report["by_gate"], "notes": report["notes"], "gist": report["gist"]})
    else:
        print_table(_SHOWN, [[gate[column] for column in _SHOWN] for gate in report["by_gate"]])
        say(_SUMS)
        for gate in report["by_gate"]:
            why = [f"{one['n']:,} {one['outcome']}, {one['reason']}" for one in gate["reasons"]]
            rest = [f"{len(why) - _N_REASONS} reasons more, see --json"] if len(why) > _N_REASONS else []
            say(f"{gate['gate']}: " + "; ".join([*why[:_N_REASONS], *rest]))
    for note in (*report["notes"], report["gist"]):
        say(note)
    if not counts["kept"] + counts["masked"]:
        raise typer.Exit(1)
