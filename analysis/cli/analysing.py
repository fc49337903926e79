"""`counterpoint analyze`: bring what is worked out from the traces up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from analysis.pipeline import StageReport


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(analyze)


def analyze(
    only: Annotated[str | None, typer.Option(help="One stage, such as quality.")] = None,
    workspace: WorkspaceOption = None,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:
    """Work out metrics and findings of the traces that are new; what is up to date stays."""
    reports = run_analysis(workspace or DEFAULT_WORKSPACE, only=only, progress_file=progress_file)
    if json:
        print_json({"stages": plain(reports)})
        return
    print_table(["stage", "traces worked on", "up to date"], [tuple(report) for report in reports])


def run_analysis(workspace: str, *, only: str | None = None, progress_file: Path | None = None) -> list[StageReport]:
    """Run the stages with a progress bar."""
    from analysis.pipeline import analyse
    from analysis.workspace import Workspace

    with progress_bar(progress_file) as progress:
        return analyse(Workspace(workspace), only=only, progress=progress)


def plain(reports: list[StageReport]) -> list[dict[str, Any]]:
    """Return the reports as plain values."""
    return [report._asdict() for report in reports]


def tell(reports: list[StageReport]) -> None:
    """Say on stderr what was worked out."""
    for report in reports:
        say(f"{report.stage}: {report.n_done:,} traces worked on, {report.n_kept:,} up to date")
