"""`counterpoint analyze`: bring what is worked out from the traces up to date."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from analysis.coherence.couplings import Coupling
    from analysis.pipeline import StageReport


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(analyze)


def analyze(
    only: Annotated[
        str | None,
        typer.Option(help="Of quality,claims,residuals,suspects,patterns,modes,curriculum: those, with commas between."),
    ] = None,
    couplings: Annotated[
        list[Path] | None, typer.Option(help="Coupling file (TOML); may be given again. Replaces those of the last time.")
    ] = None,
    default_couplings: Annotated[
        bool | None, typer.Option("--default-couplings/--no-default-couplings", help="Match the couplings that ship as well.")
    ] = None,
    workspace: WorkspaceOption = None,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:
    """Work out metrics, findings, claims, residuals, patterns, failure modes and difficulty; what is up to date stays."""
    chosen = _couplings(couplings, default_couplings)
    names = None if only is None else [name.strip() for name in only.split(",")]
    reports = run_analysis(workspace or DEFAULT_WORKSPACE, only=names, couplings=chosen, progress_file=progress_file)
    if json:
        print_json({"stages": plain(reports)})
        return
    print_table(["stage", "traces worked on", "up to date"], [tuple(report) for report in reports])
    if chosen is not None and any(report.stage == "claims" for report in reports):
        _say_matched(workspace or DEFAULT_WORKSPACE, chosen)


def _couplings(files: list[Path] | None, with_default: bool | None) -> list[Coupling] | None:
    """Return the couplings that the options name; None where none of them was given."""
    if files is None and with_default is None:
        return None
    from analysis.coherence.couplings import default_couplings, read_couplings

    given = [coupling for file in files or () for coupling in read_couplings(file)]
    return [*(() if with_default is False else default_couplings()), *given]


def _say_matched(workspace: str, couplings: Sequence[Coupling]) -> None:
    """Say on stderr how many traces each coupling ties claims of: one that ties none is often misspelt."""
    from analysis.workspace import Snapshot, Workspace

    rows = Snapshot(Workspace(workspace)).sql("select rule, count(distinct trace_id) as n from couplings group by rule")
    n_traces = {row["rule"]: row["n"] for row in rows.to_pylist()}
    for name in dict.fromkeys(coupling.name for coupling in couplings):
        say(f"coupling {name}: traces in which it ties claims: {n_traces.get(name, 0):,}")


def run_analysis(
    workspace: str,
    *,
    only: Sequence[str] | None = None,
    couplings: Sequence[Coupling] | None = None,
    progress_file: Path | None = None,
) -> list[StageReport]:
    """Run the stages with a progress bar."""
    from analysis.pipeline import analyse
    from analysis.workspace import Workspace

    with progress_bar(progress_file) as progress:
        return analyse(Workspace(workspace), only=only, couplings=couplings, progress=progress)


def plain(reports: list[StageReport]) -> list[dict[str, Any]]:
    """Return the reports as plain values."""
    return [report._asdict() for report in reports]


def tell(reports: list[StageReport]) -> None:
    """Say on stderr what was worked out."""
    for report in reports:
        say(f"{report.stage}: {report.n_done:,} traces worked on, {report.n_kept:,} up to date")
