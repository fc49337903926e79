"""Every answer carries the headers, and the settings that ship are ones Streamlit knows."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from streamlit import config
from streamlit.web.server.app_discovery import discover_asgi_app

from dashboard import asgi

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))


def sent_through(messages: list[Message], kind: str) -> list[Message]:
    """Return what reaches the client when an app behind the headers sends these messages."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    async def nothing() -> Message:
        return {}

    sent: list[Message] = []

    async def keep(message: Message) -> None:
        sent.append(message)

    asyncio.run(asgi.SecurityHeaders(app)({"type": kind}, nothing, keep))
    return sent


def test_headers_are_set_once_and_a_stream_passes_piece_by_piece() -> None:
    pieces: list[Message] = [{"type": "http.response.body", "body": bytes([n]), "more_body": n < 2} for n in range(3)]
    weak = [(b"x-frame-options", b"ALLOWALL"), (b"content-type", b"text/plain")]
    start, *rest = sent_through([{"type": "http.response.start", "status": 200, "headers": weak}, *pieces], "http")
    headers = [(name.decode(), value.decode()) for name, value in start["headers"]]
    assert sorted(headers) == sorted([("content-type", "text/plain"), *((k.lower(), v) for k, v in asgi.HEADERS.items())])
    assert rest == pieces


def test_a_websocket_passes_untouched() -> None:
    messages: list[Message] = [{"type": "websocket.accept", "headers": []}, {"type": "websocket.send", "text": "x"}]
    assert sent_through(messages, "websocket") == messages


def test_nothing_may_be_fetched_sent_or_framed_elsewhere() -> None:
    policy = dict(part.split(" ", 1) for part in asgi.HEADERS["Content-Security-Policy"].split("; "))
    sources = {source for value in policy.values() for source in value.split()}
    assert sources == {"'self'", "'none'", "'unsafe-inline'", "'wasm-unsafe-eval'", "data:", "blob:"}
    assert "data:" not in policy["script-src"] + policy["connect-src"] + policy["default-src"]
    assert {"form-action", "base-uri", "frame-ancestors", "object-src"} <= policy.keys(), "default-src does not cover these"


def test_streamlit_run_takes_the_file_for_an_app() -> None:
    found = discover_asgi_app(Path(asgi.__file__))
    assert (found.is_asgi_app, found.app_name) == (True, "app")
    assert asgi.app.script_path == ROOT / "dashboard" / "app.py"


def test_any_script_can_be_secured_with_routes_beside_it() -> None:
    route = Route("/file", lambda request: None)
    app = asgi.secure_app(ROOT / "tests" / "browser" / "leak_app.py", routes=[route])
    assert [middleware.cls for middleware in app._user_middleware] == [asgi.SecurityHeaders]
    assert app._user_routes == [route]


def keys(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in table.items():
        yield from keys(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]


def test_every_setting_is_known_to_streamlit() -> None:
    assert set(keys(SETTINGS)) - set(config.get_config_options()) == set()


def test_the_settings_keep_the_dashboard_to_this_machine() -> None:
    server, client = SETTINGS["server"], SETTINGS["client"]
    assert (server["address"], server["allowedHosts"]) == ("127.0.0.1", ["localhost", "127.0.0.1"])
    assert (server["maxUploadSize"], server["enableStaticServing"]) == (50, False)
    assert SETTINGS["browser"] == {"gatherUsageStats": False}
    assert (client["showErrorDetails"], client["showErrorLinks"]) == ("type", False)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_accent_can_be_read(theme: str) -> None:
    colors = SETTINGS["theme"][theme]
    for background in ("backgroundColor", "secondaryBackgroundColor"):
        assert contrast(colors["textColor"], colors[background]) >= 7
        assert contrast(colors["primaryColor"], colors[background]) >= 4.5
    assert not any(name.endswith("Color") for name in SETTINGS["theme"]), "a color outside the themes pins the page to light"


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2, 1 to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    red, green, blue = (int(color[n : n + 2], 16) / 255 for n in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
