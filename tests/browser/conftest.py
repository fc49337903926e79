"""What browser tests stand on: a Chromium, dashboards served on free ports, and a sink that counts who calls it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from analysis.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)
START_S = 60
ASGI = ROOT / "dashboard" / "asgi.py"
_SECURE = """
import sys
from dashboard.asgi import secure_app
secure_app(sys.argv[1]).run(config={"server.port": int(sys.argv[2]), "server.headless": True})
"""


class Serve(Protocol):
    """Starts a page script, or an ASGI file, and says where it answers."""

    def __call__(self, script: Path, *, env: Mapping[str, str] | None = None, secure: bool = False) -> str:
        """Return the URL of `script` run by `streamlit run`; `secure` wraps it in `dashboard.asgi.secure_app`."""


class Sink:
    """A server on the loopback address that answers everything and remembers the paths asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                sink.paths.append(self.path)
                self.send_response(200)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.end_headers()

            do_POST = do_GET

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def find_browser() -> str | None:
    """Return the path of a Chromium: the one `COUNTERPOINT_BROWSER` names, or the first with a usual name."""
    if named := os.environ.get("COUNTERPOINT_BROWSER"):
        return named
    return next((path for name in NAMES if (path := shutil.which(name))), None)


# Not for the whole run: Playwright keeps an event loop running in this thread, and `asyncio.run` refuses to start beside it.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One headless Chromium a file; without one the test is skipped, and fails where CI=true."""
    path = find_browser()
    if path is None:
        reason = "no Chromium found: `apt-get install chromium`, or set COUNTERPOINT_BROWSER to one"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    sandbox = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *sandbox])
        yield chromium
        chromium.close()


def new_context(browser: Browser) -> BrowserContext:
    """Open a profile: 1280 px wide, tall enough that nothing waits for being scrolled into view, and nothing fades or slides."""
    return browser.new_context(viewport={"width": 1280, "height": 5000}, reduced_motion="reduce")


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One profile a file, so that the scripts of Streamlit are loaded once and not for each page."""
    context = new_context(browser)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A fresh page; what it leaves in the browser is removed."""
    page = context.new_page()
    yield page
    if page.url.startswith("http"):
        page.evaluate("localStorage.clear()")
    page.close()
    context.clear_cookies()


class _Server(NamedTuple):
    process: subprocess.Popen[bytes]
    url: str
    log: Path


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Serve scripts until the end of the run; each is started once per environment."""
    running: dict[object, _Server] = {}
    logs = tmp_path_factory.mktemp("servers")

    def start(script: Path, *, env: Mapping[str, str] | None = None, secure: bool = False) -> str:
        key = (script, tuple(sorted((env or {}).items())), secure)
        if key not in running:
            running[key] = _start(script, dict(env or {}), secure, logs / f"{len(running)}.log")
        server = running[key]
        if not _is_up(server):
            log = server.log.read_text(errors="replace")[-2000:]
            pytest.fail(f"{script.name} is not served (exit {server.process.poll()}):\n{log}", pytrace=False)
        return server.url

    yield start
    for server in running.values():
        if server.process.poll() is None:
            os.killpg(server.process.pid, signal.SIGTERM)
            server.process.wait(10)


@pytest.fixture(scope="session")
def sink() -> Iterator[Sink]:
    """Where a leak arrives; a test clears `paths` before it looks."""
    sink = Sink()
    threading.Thread(target=sink.server.serve_forever, daemon=True).start()
    yield sink
    sink.server.shutdown()
    sink.server.server_close()


def _start(script: Path, env: dict[str, str], secure: bool, log: Path) -> _Server:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--server.port", str(port), "--server.headless", "true"]
    plain = [sys.executable, "-m", "streamlit", "run", str(script), *options]
    command = [sys.executable, "-c", _SECURE, str(script), str(port)] if secure else plain
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | env
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True)
    return _Server(process, f"http://127.0.0.1:{port}", log)


def _is_up(server: _Server) -> bool:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.process.poll() is None:
        try:
            urllib.request.urlopen(f"{server.url}/_stcore/health", timeout=1).close()
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.1)
        else:
            return True
    return False


@pytest.fixture(scope="module")
def url(serve: Serve, workspace: Workspace) -> str:
    """Serve the dashboard on the workspace of a file of tests, and return where it answers."""
    return serve(ASGI, env={"COUNTERPOINT_WORKSPACE": workspace.location})
