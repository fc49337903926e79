"""The dashboard as an ASGI app: the page script behind headers that keep a page from talking to anyone else.

Whatever untrusted text makes a renderer fetch, the browser refuses it. `streamlit run dashboard/asgi.py`
serves this; `streamlit run dashboard/app.py` works too, without the headers and without large downloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import dashboard.loading  # noqa: F401 - here, while the server starts, so that the first page does not wait for it
from dashboard import downloads

# unsafe-inline: the script of the graph frame, which inherits this policy; wasm-unsafe-eval: Graphviz; blob: components.
_POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' 'wasm-unsafe-eval' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "media-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "frame-src": "'self' data: blob:",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'self'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in _POLICY.items()),
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class SecurityHeaders:
    """ASGI middleware that sets `HEADERS` on every response and leaves bodies and sockets alone."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def secure_app(script: str | Path, *, routes: Sequence[BaseRoute] = ()) -> st.App:
    """Return a page script as an app behind the headers, with `routes` beside its pages."""
    return st.App(script, routes=routes, middleware=[Middleware(SecurityHeaders)])


# Written out because `streamlit run` takes a file for an app only where it reads this very call.
app = st.App(Path(__file__).with_name("app.py"), routes=[downloads.route()], middleware=[Middleware(SecurityHeaders)])
