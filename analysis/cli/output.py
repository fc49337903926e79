"""What several commands share: the workspace option, JSON, tables and progress on a terminal."""

from __future__ import annotations

import json
import re
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
_UNSEEN = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]")
DEFAULT_WORKSPACE = "counterpoint-workspace"


def print_json(value: Any) -> None:
    """Print one JSON value."""
    print_json_text(json.dumps(value, ensure_ascii=False, indent=1))


def print_json_text(text: str) -> None:
    """Print JSON; characters that a screen obeys or hides are written as escapes, which say the same."""
    typer.echo(_UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], text))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; text of strangers is made printable, numbers are aligned right.

    Where it is too wide, the first column, which names the row, is folded; the others share the rest and are cut.
    """
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    cells = [[_cell(value) for value in row] for row in rows]
    longest = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    is_tight = sum(longest) + 2 * len(columns) > console.width
    share = max(4, (console.width - min(longest[0], console.width // 2)) // max(1, len(columns) - 1) - 2)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for n, column in enumerate(columns):
        is_number = any(isinstance(row[n], int | float) for row in rows)
        how: dict[str, Any] = {"overflow": "ellipsis", "no_wrap": True, "max_width": share if is_tight else None}
        table.add_column(column, justify="right" if is_number else "left", **(how if n else {"overflow": "fold"}))
    for row_cells in cells:
        table.add_row(*map(Text, row_cells))
    console.print(table)


def say(text: str) -> None:
    """Print a message for the person, on stderr; what strangers wrote in it is made printable."""
    typer.echo("\n".join(printable(line, 2000) for line in text.split("\n")), err=True)


def named_values(given: Sequence[str], option: str) -> dict[str, Any]:
    """Return what an option states as name=value, each value read as JSON where it is JSON, else as text."""
    found: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{text!r} is not of the form name=value", param_hint=option)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


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
