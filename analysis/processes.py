"""Whether a process that was started once still runs, as the kernel counts: a number used again is not taken for it."""

from __future__ import annotations

from pathlib import Path


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
