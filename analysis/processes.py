"""What processes know of each other: whether one that was started once still runs, and who writes to a file or folder.

A process is told by when it began, as the kernel counts: a number used again is not taken for it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from pathlib import Path

from analysis.errors import BusyError


def born(pid: int) -> str:
    """Return when a process began, in the kernel's own count; empty where there is none, or only its remains.

    >>> import os
    >>> born(os.getpid()) == born(os.getpid()) != "", born(2**22 + 1)
    (True, '')
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def is_alive(pid: int, born_at: str) -> bool:
    """Return whether the process that began then still runs."""
    return bool(born_at) and born(pid) == born_at


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes that ask from a file or folder, which has to be there; the system lets go of it with this process.

    Raises
    ------
    BusyError
        If another process keeps it.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "wait until it ends, or give another --out"
            raise BusyError(str(path), "another process, it is not known which, writes here", hint=hint) from None
        yield
    finally:
        os.close(handle)


def leave_with_parent() -> None:
    """End this process when the one that began it was killed: nobody takes what it makes, and models would be paid for it."""
    if parent := parent_process():
        parent.join()
        os._exit(1)
