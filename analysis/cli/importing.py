"""`counterpoint import` and `counterpoint formats`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.cli.analysing import plain, run_analysis, tell
from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, progress_bar, say
from analysis.errors import Problem
from analysis.readers import FAMILIES, MEBIBYTE

if TYPE_CHECKING:
    from analysis.pipeline import ImportReport

PathsArgument = Annotated[list[Path] | None, typer.Argument(help="Files or folders with traces.", show_default=False)]
ClaimsOption = Annotated[
    list[Path] | None,
    typer.Option("--claims", help="CSV or JSONL of claims about traces: trace_id, component, proposition, p, turn, n_samples."),
]
LimitOption = Annotated[float, typer.Option("--max-record-mb", help="Longest record that is read, in MiB.", min=0.001, max=1e6)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("import")(import_)
    app.command()(formats)


def import_(
    paths: PathsArgument = None,
    claims: ClaimsOption = None,
    workspace: WorkspaceOption = None,
    max_record_mb: LimitOption = 64,
    redact: Annotated[bool, typer.Option("--redact", help="Take keys, passwords, e-mail and home paths out.")] = False,
    redact_pattern: Annotated[list[str] | None, typer.Option(help="With --redact: what else, a regular expression.")] = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Analyse what came in right after.")] = False,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:
    """Import traces of any known format; importing again adds nothing."""
    if not paths and not claims:
        raise typer.BadParameter("give files or folders with traces, or --claims FILE")
    place = workspace or DEFAULT_WORKSPACE
    if redact_pattern and not redact:
        raise typer.BadParameter("give --redact too", param_hint="--redact-pattern")
    report = run_import(
        paths or [], place, claims=claims or [], max_record_mb=max_record_mb, redact=redact_pattern or () if redact else None,
        progress_file=progress_file,
    )  # fmt: skip
    stages = run_analysis(place, progress_file=progress_file) if analyze else []
    if json:
        print_json(report.plain() | ({"stages": plain(stages)} if analyze else {}))
    else:
        print_report(report, place)
        tell(stages)
        if not analyze and (report.added or report.updated):
            there = f" -w {place}" if workspace else ""
            say(f"next: `counterpoint analyze{there}` works out metrics and findings, `counterpoint dashboard{there}` shows them")
    raise typer.Exit(1 if report.n_lost else 0)


def run_import(
    paths: list[Path],
    workspace: str,
    *,
    claims: Sequence[Path] = (),
    max_record_mb: float = 64,
    redact: Sequence[str] | None = None,
    progress_file: Path | None = None,
) -> ImportReport:
    """Import traces with a progress bar, then the claims about them; return the load report of both.

    `redact` are patterns of what is taken out besides the known kinds of secret; None takes nothing out.
    """
    from analysis.pipeline import import_claims, import_paths
    from analysis.redaction import Redactor
    from analysis.workspace import Workspace

    redactor = None if redact is None else Redactor(redact)
    store = Workspace(workspace, create=True)
    limit = int(max_record_mb * MEBIBYTE)
    with progress_bar(progress_file) as progress:
        report = import_paths(store, paths, max_record_bytes=limit, redactor=redactor, progress=progress)
    for file in claims:
        report = report.joined(import_claims(store, file))
    return report


def print_report(report: ImportReport, workspace: str) -> None:
    """Print what came in on stdout, and on stderr what a person should know about it."""
    from analysis.evaluation.agreement import agreements
    from analysis.workspace import Snapshot, Workspace

    counted = report.plain()
    for lines in _by_kind([problem for file in report.files for problem in file.problems]):
        say(lines)
    for problem in report.skipped:
        say(f"skipped: {problem}")
    counts = {"new": counted["traces"], "updated": counted["updated"], "unchanged": counted["unchanged"]}
    if report.waiting:
        counts["waiting for their runs"] = counted["waiting"]
    counts |= {"files read": len(report.files), "files skipped": len(report.skipped)}
    print_table(["traces", "n"], list(counts.items()))
    if counted["by_format"]:
        say("new by format: " + ", ".join(f"{n} {name}" for name, n in counted["by_format"].items()))
    if report.redacted:
        say("taken out: " + ", ".join(f"{n:,} {kind}" for kind, n in report.redacted.items()))
    for file in report.files:
        if file.format == "claims":
            say(f"{file.file}: claims read: {file.records:,}, traces they are about: {file.traces:,}")
    labels = Snapshot(Workspace(workspace)).sql("select trace_id, annotator, agent_id, event_id, is_root_cause from labels")
    for agreement in agreements(labels.to_pandas()):
        say(f"annotators {agreement}")
    say(f"workspace {workspace} is at version {report.version}")


def _by_kind(problems: list[Problem]) -> Iterator[str]:
    """Yield the problems worst first: what was lost line by line, of everything else one example and its number."""
    for severity in ("lost", "repaired", "note"):
        of_severity = [problem for problem in problems if problem.severity == severity]
        for code in dict.fromkeys(problem.code for problem in of_severity):
            same = [problem for problem in of_severity if problem.code == code]
            shown = same if severity == "lost" else same[:1]
            n_hidden = sum(problem.n for problem in same) - len(shown)
            for n, problem in enumerate(shown):
                more = f" [and {n_hidden:,} more like it]" if n_hidden and n == len(shown) - 1 else ""
                yield f"{severity}: {problem}{more}"


def formats(json: JsonOption = False) -> None:
    """List the formats that are read, and what each is recognised by."""
    rows = [
        {"format": family.FORMAT, "kind": kind.name, "recognised_by": kind.recognised_by, "reader_version": family.VERSION}
        for family in FAMILIES.values()
        for kind in family.KINDS
    ]
    if json:
        print_json(rows)
        return
    print_table(["format", "kind of file", "recognised by"], [(r["format"], r["kind"], r["recognised_by"]) for r in rows])
