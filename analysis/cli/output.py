"""What several commands share: the workspace option, JSON, tables and progress on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from analysis.errors import printable

WorkspaceOption = Annotated[
    str | None,
    typer.Option("--workspace", "-w", help="Workspace: a folder or an object-store URL.", envvar="COUNTERPOINT_WORKSPACE"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DEFAULT_WORKSPACE = "counterpoint-workspace"


def print_json(value: Any) -> None:
    """Print one JSON value, characters as they are."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=1))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; text of strangers is made printable, numbers are aligned right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for n, column in enumerate(columns):
        is_number = any(isinstance(row[n], int | float) for row in rows)
        table.add_column(
            column, justify="right" if is_number else "left", overflow="fold" if n == 0 else "ellipsis", no_wrap=n > 0
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False).print(table)


def say(text: str) -> None:
    """Print a message for the person, on stderr."""
    typer.echo(text, err=True)


@contextmanager
def progress_bar(file: Path | None) -> Iterator[Callable[[float, str], None]]:
    """Give a function that shows progress: a bar on a terminal, and a JSON file that is replaced whole, for jobs."""
    console = Console(stderr=True)
    with Progress(
        BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}", markup=False), console=console,
        transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=1.0)

        def show(share: float, text: str) -> None:
            bar.update(task, completed=share, description=printable(text, 60))
            if file is not None:
                part = file.with_suffix(".part")
                part.write_text(json.dumps({"share": round(share, 4), "text": text}), encoding="utf-8")
                part.replace(file)

        yield show


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}"
    return printable(str(value), 100)
