"""The `counterpoint` command: each command parses, makes one call, prints.

Data goes to stdout, progress and messages to stderr. Exit 0: done; 1: ran and found problems;
2: wrong use or unusable input, with one line that says what, where and what to do.
"""

from __future__ import annotations

import io
import os
import sys

import typer

from analysis import __version__
from analysis.cli import (
    analysing,
    browse,
    curate,
    curriculum,
    doctor,
    effects,
    evaluate,
    export,
    fit,
    importing,
    modes,
    patterns,
    residual,
    run,
    serve,
    train,
)
from analysis.errors import CounterpointError, printable

app = typer.Typer(
    help="Shows how a team of LLM agents worked together, and makes training data of what it finds.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (
    serve,
    importing,
    analysing,
    run,
    fit,
    effects,
    browse,
    modes,
    patterns,
    curriculum,
    curate,
    export,
    doctor,
    evaluate,
    residual,
    train,
):
    module.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version and stop."),
) -> None:
    pass


_INTERRUPTED = 130  # by Ctrl-C, in the word of shells


def main() -> None:
    """Run the command line; a mistake of the user ends in one line and exit 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of another encoding gets stand-ins, not an error
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="counterpoint")
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            typer.echo("stopped: what was finished is kept, and the same command does the rest", err=True)
        raise
    except CounterpointError as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output went away (`| head`); without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a full disk, a missing permission: no traceback would say more
        place = printable(str(error.filename or "system"))
        hint = "check space and permissions"
        if isinstance(error, IsADirectoryError | NotADirectoryError):
            hint = "name another place"
        elif isinstance(error, FileNotFoundError):
            hint = "make the folder it should lie in, or name another place"
        typer.echo(f"{place}: {error.strerror or error} - {hint}", err=True)
        sys.exit(2)
