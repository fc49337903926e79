"""gzip files: unpacked into a temporary file, in bounded chunks and to a bounded size.

A trace export packs 5 to 50 times smaller; what unpacks to more than 200 times its size is no export.
"""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from analysis.errors import Problem

_MAGIC = b"\x1f\x8b"
_MAX_RATIO = 200
_MIN_BOUND = 64 << 20
_CHUNK = 1 << 20


@contextmanager
def unpacked(path: Path, file: str) -> Iterator[tuple[Path, Problem | None]]:
    """Give the path of what a file holds, and what went wrong: the file itself, or of a gzip file its unpacked content.

    Parameters
    ----------
    path : the file
    file : its name in reports
    """
    if not _is_gzip(path):
        yield path, None
        return
    with tempfile.NamedTemporaryFile(prefix="counterpoint-") as target:
        problem = _unpack(path, file, target)
        target.flush()
        yield Path(target.name), problem


def _is_gzip(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(2) == _MAGIC
    except OSError:
        return False  # whoever opens it next says why


def _unpack(path: Path, file: str, target: IO[bytes]) -> Problem | None:
    bound = max(_MIN_BOUND, _MAX_RATIO * path.stat().st_size)
    try:
        with gzip.open(path) as stream:
            while chunk := stream.read1(_CHUNK):
                if target.tell() + len(chunk) > bound:
                    target.truncate(0)
                    return Problem(
                        code="bomb", file=file, got=f"more than {bound >> 20} MiB", expected=f"{_MAX_RATIO} times its size"
                    )
                target.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return Problem(code="truncated", file=file, got=f"gzip: {error}")
    return None
