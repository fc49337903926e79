"""`counterpoint export`: a curated data set as a bundle of files, and as trainers read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from analysis.pipeline.exporting import Exported


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export_)


def export_(
    out: Annotated[Path, typer.Option(help="An empty folder, or that of the same export, which then goes on.")],
    dataset: Annotated[str | None, typer.Option(help="A curated data set; without one, traces as they are.")] = None,
    format: Annotated[list[str] | None, typer.Option(help="Views besides the bundle, such as trl-sft,hf.")] = None,
    filter: Annotated[str, typer.Option("--filter", "-f", help="Which traces, as for `list`, where no data set is named.")] = "",
    redact: Annotated[bool, typer.Option("--redact/--no-redact", help="Take keys, passwords, e-mail and home paths out.")] = True,
    redact_pattern: Annotated[list[str] | None, typer.Option(help="A regular expression of what else is taken out.")] = None,
    metric: Annotated[str, typer.Option(help="The metric whose credit events have.")] = "passed",
    validation: Annotated[float, typer.Option(min=0, max=0.9, help="Share of the groups for validation.")] = 0.0,
    test: Annotated[float, typer.Option(min=0, max=0.9, help="Share of the groups for testing.")] = 0.1,
    tokenizer: Annotated[str | None, typer.Option(help="Folder of a tokenizer, for views made of tokens.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes.")] = 2,
    workspace: WorkspaceOption = None,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Write training rows with manifest, data card and reasons for what is left out; goes on where it stopped."""
    from analysis.pipeline.exporting import Options, export
    from analysis.workspace import Workspace

    if dataset is not None and filter:
        raise typer.BadParameter("a data set states its own filter; name one of the two", param_hint="--filter")
    if validation + test >= 1:
        raise typer.BadParameter("the shares leave nothing to train on", param_hint="--test")
    if redact_pattern and not redact:
        raise typer.BadParameter("--no-redact takes nothing out", param_hint="--redact-pattern")
    shares = {"train": 1 - validation - test, "validation": validation, "test": test}
    options = Options(
        filter=filter, redact=redact, patterns=tuple(redact_pattern or ()), metric=metric, tokenizer=tokenizer, workers=workers,
        shares={name: round(share, 9) for name, share in shares.items() if share > 0},
    )  # fmt: skip
    formats = [name for text in format or () for name in text.split(",") if name]
    with progress_bar(progress_file) as progress:
        done = export(
            Workspace(workspace or DEFAULT_WORKSPACE), dataset, out, formats=formats, options=options, progress=progress
        )
    if json:
        print_json(_plain(done, out))
        return
    _show(done, out)


def _plain(done: Exported, out: Path) -> dict[str, Any]:
    from analysis.training.steps import steps_of

    manifest = done.manifest
    views = {name: {"records": view.records, "refused": view.refused} for name, view in done.views.items()}
    splits = {name: split["n_rows"] for name, split in manifest["splits"].items()}
    counts = {name: manifest.get(name) for name in ("id", "n_rows", "n_drops", "redacted")}
    steps = [step._asdict() for step in steps_of(out)]
    return {"manifest": str(out / "manifest.json"), **counts, "steps": steps, "splits": splits, "views": views}


def _show(done: Exported, out: Path) -> None:
    from analysis.training.steps import WORDS, steps_of

    manifest = done.manifest
    rows: list[tuple[Any, ...]] = [("bundle", name, split["n_rows"], None) for name, split in manifest["splits"].items()]
    for name, view in done.views.items():
        rows += [(name, split, n, None) for split, n in view.records.items()]
        rows += [(name, "refused", None, n) for n in [sum(view.refused.values())] if n]
    if steps := [(WORDS[name], n_traces, n_rows) for name, n_traces, n_rows in steps_of(out)]:
        print_table(["step", "traces", "rows"], steps)
    print_table(["view", "split", "rows", "refused"], rows)
    for name, view in done.views.items():
        for reason, n in sorted(view.refused.items(), key=lambda item: (-item[1], item[0])):
            say(f"{name}: {n:,} refused: {reason}")
    taken = manifest.get("redacted")
    if taken is not None:
        say("taken out: " + (", ".join(f"{n:,} {kind}" for kind, n in taken.items()) or "no secret was found"))
    say(f"{manifest['n_drops']:,} left out, with reasons in {out / 'drops.parquet'}; manifest: {out / 'manifest.json'}")
