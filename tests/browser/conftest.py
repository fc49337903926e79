"""What browser tests stand on: a Chromium, dashboards served on free ports, and a sink that counts who calls it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

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

            do_POST = do_GET  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def find_browser() -> str | None:
    """Return the path of a Chromium: the one `COUNTERPOINT_BROWSER` names, or the first with a usual name."""
    if named := os.environ.get("COUNTERPOINT_BROWSER"):
        return named
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless Chromium for the whole run; without one the test is skipped, and fails where CI=true."""
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


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh page, 1280 px wide and tall enough that nothing waits for being scrolled into view."""
    context = browser.new_context(viewport={"width": 1280, "height": 5000})
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Serve scripts until the end of the run; each is started once per environment."""
    running: dict[object, tuple[subprocess.Popen[bytes], str]] = {}

    def start(script: Path, *, env: Mapping[str, str] | None = None, secure: bool = False) -> str:
        key = (script, tuple(sorted((env or {}).items())), secure)
        if key not in running:
            running[key] = _start(script, dict(env or {}), secure)
        return running[key][1]

    yield start
    for process, _ in running.values():
        os.killpg(process.pid, signal.SIGTERM)
    for process, _ in running.values():
        process.wait(10)


@pytest.fixture(scope="session")
def sink() -> Iterator[Sink]:
    """Where a leak arrives; a test clears `paths` before it looks."""
    sink = Sink()
    threading.Thread(target=sink.server.serve_forever, daemon=True).start()
    yield sink
    sink.server.shutdown()
    sink.server.server_close()


def _start(script: Path, env: dict[str, str], secure: bool) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--server.port", str(port), "--server.headless", "true"]
    plain = [sys.executable, "-m", "streamlit", "run", str(script), *options]
    command = [sys.executable, "-c", _SECURE, str(script), str(port)] if secure else plain
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{port}"
        if not _is_up(url, process):
            process.kill()
            log.seek(0)
            pytest.fail(f"{script.name} did not start:\n{log.read().decode(errors='replace')[-2000:]}", pytrace=False)
    return process, url


def _is_up(url: str, process: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.1)
        else:
            return True
    return False
