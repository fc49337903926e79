"""`counterpoint doctor`: what works here, found by trying it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table

if TYPE_CHECKING:
    from analysis.counterfactual.sandbox.attempts import Attempt

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Check(NamedTuple):
    """One thing that was tried."""

    what: str
    ok: bool
    is_required: bool
    found: str
    hint: str


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(workspace: WorkspaceOption = None, json: JsonOption = False) -> None:
    """Try what Counterpoint needs here and say what holds."""
    attempts = _attempts()
    checks = [_python(), *_packages(), _store(), _workspace(workspace or DEFAULT_WORKSPACE), _browser()]
    if json:
        print_json([check._asdict() for check in (*checks, *map(_layer, attempts))])
    else:
        words = {(True, True): "ok", (True, False): "ok", (False, True): "FAILED", (False, False): "absent"}
        rows = [(c.what, words[c.ok, c.is_required], c.found, "" if c.ok else c.hint) for c in checks]
        print_table(["what", "state", "found", "what to do"], rows)
        _print_sandbox(attempts)
    raise typer.Exit(0 if all(c.ok or not c.is_required for c in checks) else 1)


def _python() -> Check:
    return Check("python", sys.version_info >= (3, 11), True, sys.version.split()[0], "install Python 3.11 or newer")


def _packages() -> list[Check]:
    checks = []
    for name in ("streamlit", "duckdb", "obstore", "pyarrow", "pandas", "plotly", "pyvis"):
        try:
            checks.append(Check(name, True, True, importlib.metadata.version(name), ""))
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(name, False, True, "not installed", "pip install counterpoint"))
    return checks


def _store() -> Check:
    """Commit, read and lose a race in a folder of its own."""
    import pyarrow as pa

    from analysis.errors import HeadConflict
    from analysis.workspace import SCHEMAS, Snapshot, Workspace

    with tempfile.TemporaryDirectory() as folder:
        store = Workspace(folder, create=True)
        row = dict.fromkeys(SCHEMAS["decisions"].names, "x")
        base = store.head()
        store.append("decisions", pa.Table.from_pylist([row], schema=SCHEMAS["decisions"]))
        try:
            store.commit(base, {})
            loses = False
        except HeadConflict:
            loses = True
        reads = Snapshot(store).sql("select count(*) as n from decisions")["n"][0].as_py() == 1
    return Check("store", loses and reads, True, "atomic commits" if loses else "a lost race was not seen", "use a local disk")


def _workspace(location: str) -> Check:
    from analysis.errors import CounterpointError
    from analysis.workspace import Workspace

    try:
        head = Workspace(location).head()
    except CounterpointError as error:
        return Check("workspace", False, False, str(error), "counterpoint import PATH")
    return Check("workspace", True, False, f"{location}: version {head.number}, {head.n_rows('traces')} traces", "")


def _browser() -> Check:
    named = os.environ.get("COUNTERPOINT_BROWSER")
    found = named if named and Path(named).exists() else next((path for name in BROWSERS if (path := shutil.which(name))), None)
    return Check("browser for tests", found is not None, False, found or "not found", "apt-get install chromium fonts-noto-cjk")


def _attempts() -> list[Attempt]:
    """Attack the sandbox; where there is none, there is nothing to attack."""
    from analysis.counterfactual.sandbox.attempts import attempt_all
    from analysis.errors import SandboxError

    try:
        return attempt_all()
    except SandboxError:
        return []


def _layer(attempt: Attempt) -> Check:
    found = f"{attempt.attack}: {attempt.outcome}"
    hint = "" if attempt.works_here else "another layer may do; SECURITY.md says which are needed to run programs"
    return Check(f"sandbox: {attempt.layer}", attempt.works_here, False, found, hint)


def _print_sandbox(attempts: Sequence[Attempt]) -> None:
    """Say how programs would be held: each layer attacked alone, and the whole sandbox by the same attack."""
    typer.echo()
    if not attempts:
        typer.echo("programs are not run here; everything else works")
        return
    rows = [(a.layer, "yes" if a.works_here else "no", a.attack, a.outcome) for a in attempts]
    print_table(["sandbox layer", "works here", "attack", "by the whole sandbox"], rows)
