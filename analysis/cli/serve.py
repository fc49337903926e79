"""`counterpoint demo`, `open` and `dashboard`: the browser on a workspace."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis import data_folder
from analysis.cli.analysing import run_analysis, tell
from analysis.cli.importing import LimitOption, print_report, run_import
from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, say
from analysis.errors import WorkspaceError

if TYPE_CHECKING:
    from analysis.pipeline import ImportReport

PortOption = Annotated[int | None, typer.Option(help="Port; without it 8501 or the next free one.", min=1, max=65535)]
BrowserOption = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")]
_HOST = "127.0.0.1"
_START_TIMEOUT_S = 60.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(demo)
    app.command("open")(open_)
    app.command()(dashboard)


def demo(
    workspace: Annotated[
        str, typer.Option("--workspace", "-w", help="Where the sample workspace is made.")
    ] = "counterpoint-demo",
    port: PortOption = None,
    browser: BrowserOption = True,
    check: Annotated[bool, typer.Option("--check", help="Check the server and every page, then stop.")] = False,
    json: JsonOption = False,
) -> None:
    """Build the sample workspace, analyse it and open it in the browser."""
    report = run_import([data_folder() / "samples"], workspace)
    tell(run_analysis(workspace))
    if not check:
        _serve(workspace, port, browser, report=report, as_json=json)
        return
    with running(workspace, port) as (url, _):
        pages = subprocess.run(
            [sys.executable, "-m", "dashboard.check"],
            cwd=_config_folder(),
            env=_environment(workspace),
            capture_output=True,
            text=True,
            check=False,
        )
    ok = pages.returncode == 0
    say(pages.stderr.rstrip())
    say(f"server at {url} was healthy; pages {'ok' if ok else 'FAILED'}")
    if json:
        print_json({"import": report.plain(), "url": url, "health": True, "pages_ok": ok})
    raise typer.Exit(0 if ok else 1)


def open_(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders with traces.", show_default=False)],
    workspace: WorkspaceOption = None,
    max_record_mb: LimitOption = 64,
    port: PortOption = None,
    browser: BrowserOption = True,
    json: JsonOption = False,
) -> None:
    """Import traces, analyse them and open them in the browser: the whole way in one command."""
    place = workspace or DEFAULT_WORKSPACE
    report = run_import(paths, place, max_record_mb=max_record_mb)
    tell(run_analysis(place))
    _serve(place, port, browser, report=report, as_json=json)


def dashboard(
    workspace: WorkspaceOption = None, port: PortOption = None, browser: BrowserOption = True, json: JsonOption = False
) -> None:
    """Open the workspace in the browser; with --json the address comes as JSON."""
    _serve(workspace or DEFAULT_WORKSPACE, port, browser, as_json=json)


@contextlib.contextmanager
def running(workspace: str, port: int | None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run the dashboard's server on a workspace; give its URL once it answers; stop it at the end."""
    url = f"http://{_HOST}:{_free_port(port)}"
    script = str(_config_folder() / _script())
    command = [sys.executable, "-m", "streamlit", "run", script, "--server.port", url.rpartition(":")[2]]
    options = ["--server.headless", "true"]
    server = subprocess.Popen([*command, *options], cwd=_config_folder(), env=_environment(workspace), stdout=subprocess.DEVNULL)
    try:
        _wait_until_healthy(url, server)
        yield url, server
    finally:
        server.terminate()
        server.wait()


def _serve(workspace: str, port: int | None, browser: bool, *, report: ImportReport | None = None, as_json: bool = False) -> None:
    if report is not None and not as_json:
        print_report(report, workspace)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(KeyboardInterrupt), running(workspace, port) as (url, server):
        if as_json:
            print_json({"url": url, "workspace": workspace} | ({"import": report.plain()} if report else {}))
        else:
            typer.echo(f"Counterpoint is at {url} - Ctrl+C stops it")
        sys.stdout.flush()
        if browser and sys.stdout.isatty():
            webbrowser.open(url)
        if server.wait():
            raise WorkspaceError("dashboard", "the server stopped", got=f"exit {server.returncode}", hint="start it again")


def _environment(workspace: str) -> dict[str, str]:
    place = workspace if "://" in workspace else str(Path(workspace).absolute())
    # Streamlit warns of each cache that is made before its server runs; below the level of errors nothing is for the user.
    return {"STREAMLIT_LOGGER_LEVEL": "error", **os.environ, "COUNTERPOINT_WORKSPACE": place}


def _config_folder() -> Path:
    """The folder whose `.streamlit/config.toml` is ours: the checkout, or the installed dashboard package."""
    root = Path(__file__).parents[2]
    return root if (root / ".streamlit").is_dir() else root / "dashboard"


def _script() -> str:
    return "dashboard/asgi.py" if (_config_folder() / "dashboard").is_dir() else "asgi.py"


def _free_port(wanted: int | None) -> int:
    for port in [wanted] if wanted else [*range(8501, 8600), 0]:
        with socket.socket() as probe:
            # A server that stopped a moment ago leaves closing connections behind; they are no reason not to start.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise WorkspaceError(f"port {wanted}", "the port is in use", hint="choose another with --port")


def _wait_until_healthy(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise WorkspaceError("dashboard", "the server stopped while starting", got=f"exit {server.returncode}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise WorkspaceError("dashboard", f"the server did not answer within {_START_TIMEOUT_S:.0f} s", hint="see the lines above")
