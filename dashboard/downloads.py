"""Large downloads: a folder as one zip file that is made while it is sent, so that nothing waits in memory.

The route stands beside the pages and so beside their sign-in and their check of the host. It sends only what a page of this
server has signed; the key, and with it every link, ends with the server.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

_KEY = secrets.token_bytes(32)
_PATH = "/download"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # no clock: equal folders give equal files
_CHUNK = 1 << 20
_is_served = threading.Event()


def route() -> Route:
    """Return the route, for the server that takes it."""
    _is_served.set()
    return Route(_PATH, _send)


def link(folder: Path) -> str | None:
    """Return the address that sends a folder; None where this server has no such route."""
    place = str(folder.absolute())
    return f"{_PATH}?{urlencode({'folder': place, 'key': _signature(place)})}" if _is_served.is_set() else None


def zipped(folder: Path) -> Iterator[bytes]:
    """Yield the files of a folder as one zip file, in the order of their names; Parquet, packed already, as it is."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:  # type: ignore[call-overload]  # all that it needs of a file is `write`
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            info = zipfile.ZipInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}", _EPOCH)
            info.compress_type = zipfile.ZIP_STORED if path.suffix == ".parquet" else zipfile.ZIP_DEFLATED
            with path.open("rb") as source, archive.open(info, "w", force_zip64=True) as member:
                while chunk := source.read(_CHUNK):
                    member.write(chunk)
                    yield sink.taken()
    yield sink.taken()


class _Sink:
    """A file that only takes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: what was written waits to be taken."""

    def taken(self) -> bytes:
        """Return what was written since."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def _send(request: Request) -> Response:
    folder, key = (request.query_params.get(name, "") for name in ("folder", "key"))
    if not hmac.compare_digest(key.encode(), _signature(folder).encode()):
        return PlainTextResponse("This link is of a server that has ended: open the page again.", 403)
    if not Path(folder).is_dir():
        return PlainTextResponse("The folder is gone.", 404)
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(Path(folder).name)}.zip", "Cache-Control": "no-store"}
    return StreamingResponse(zipped(Path(folder)), media_type="application/zip", headers=headers)


def _signature(place: str) -> str:
    return hmac.new(_KEY, place.encode("utf-8", "surrogateescape"), "sha256").hexdigest()
