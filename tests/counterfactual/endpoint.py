"""A chat-completions server on the loopback address that fails as it is told, and keeps its own log of what it was asked."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INPUT_TOKENS, OUTPUT_TOKENS = 40, 10


@dataclass
class Asked:
    """One request as it arrived. `outcome` is what the server did with it; `paid` if it made a whole answer for it."""

    body: dict[str, Any]
    headers: dict[str, str]
    at_s: float
    outcome: str
    paid: bool

    @property
    def last(self) -> str:
        """The last message."""
        return str(self.body["messages"][-1]["content"])


@dataclass
class Endpoint:
    """The server: `faults` are taken one a request, then all is well; `answer` makes the text of an answer."""

    url: str = ""
    faults: list[str] = field(default_factory=list)
    answer: Callable[[dict[str, Any]], str] = lambda body: f"answer to {body['messages'][-1]['content']}"
    log: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def outcomes(self) -> list[str]:
        """What was done with each request, in order."""
        return [asked.outcome for asked in self.log]


@contextmanager
def serving(faults: Sequence[str] = (), answer: Callable[[dict[str, Any]], str] | None = None) -> Iterator[Endpoint]:
    """Run a server until the block ends."""
    endpoint = Endpoint(faults=list(faults))
    if answer is not None:
        endpoint.answer = answer
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(endpoint))
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def free_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the terminal."""

        def do_POST(self) -> None:
            data = self.rfile.read(n_bytes := int(self.headers["Content-Length"]))
            if len(data) < n_bytes:
                return  # the client was killed while it sent
            body = json.loads(data)
            with endpoint.lock:
                fault = endpoint.faults.pop(0) if endpoint.faults else "ok"
                is_paid = fault not in ("429", "429-date", "429-long", "500", "503", "401", "400", "no-credit", "echo-key")
                endpoint.log.append(
                    Asked(body, {name.lower(): value for name, value in self.headers.items()}, time.time(), fault, is_paid)
                )
            _reply(self, endpoint, fault, body)

    return Handler


def _reply(handler: BaseHTTPRequestHandler, endpoint: Endpoint, fault: str, body: dict[str, Any]) -> None:
    if fault[:3].isdigit() or fault in ("no-credit", "echo-key"):
        _refuse(handler, fault)
        return
    if fault.startswith("slow"):
        time.sleep(float(fault.partition(":")[2] or 1.5))
    text = {"garbage": "Certainly! Here you are.", "no-content": None}.get(fault, "")
    text = endpoint.answer(body) if text == "" else text
    tokens = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS}
    usage = None if fault == "no-usage" else tokens
    if body.get("stream"):
        _stream(handler, fault, text or "", usage)
        return
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    data, kind = json.dumps(reply).encode(), "application/json"
    if fault == "html":
        data, kind = b"<html><body>Bad gateway</body></html>", "text/html"
    if fault == "bad-json":
        data = data[: len(data) // 2]
    if fault == "no-choices":
        data = json.dumps({**reply, "choices": []}).encode()
    _send(handler, 200, data, kind, claimed=len(data) * (2 if fault == "cut" else 1))


def _refuse(handler: BaseHTTPRequestHandler, fault: str) -> None:
    error: dict[str, Any] = {"message": f"fault {fault}", "type": "made", "code": None}
    headers = {"429": {"Retry-After": "0.6"}, "429-long": {"Retry-After": "3600"}}.get(fault, {})
    if fault == "429-date":
        headers = {"Retry-After": formatdate(time.time() + 2, usegmt=True)}
    if fault == "no-credit":
        error["code"] = "insufficient_quota"
    if fault == "echo-key":
        error["message"] = f"Incorrect key: {handler.headers['Authorization']}"
    status = {"no-credit": 429, "echo-key": 400}.get(fault) or int(fault[:3])
    _send(handler, status, json.dumps({"error": error}).encode(), "application/json", headers=headers)


def _send(
    handler: BaseHTTPRequestHandler, status: int, data: bytes, kind: str, *, claimed: int | None = None,
    headers: dict[str, str] | None = None,
) -> None:  # fmt: skip
    try:
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(claimed or len(data)), **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)
    except OSError:
        pass  # the client has gone
    if claimed not in (None, len(data)):
        handler.close_connection = True


def _stream(handler: BaseHTTPRequestHandler, fault: str, text: str, usage: dict[str, int] | None) -> None:
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in (text[:3], text[3:])]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": usage})
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    lines = [f"data: {json.dumps({**head, **chunk})}\n\n" for chunk in chunks]
    lines.append("data: [DONE]\n\n")
    if fault in ("cut", "cut-clean"):
        lines = lines[:1]
    if fault == "stream-error":
        lines = [lines[0], 'data: {"error": {"message": "worker died"}}\n\n']
    if fault == "stream-garbage":
        lines = [lines[0], "data: {not json\n\n"]
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for line in lines:
        handler.wfile.write(f"{len(line.encode()):x}\r\n{line}\r\n".encode())
    if fault != "cut":
        handler.wfile.write(b"0\r\n\r\n")
    handler.close_connection = True
