"""Landlock: which files a process may touch, for good. It hides the kernel's three calls and their versions.

What it cannot restrict (modes, owners and times of files, sockets with a path) `seccomp` denies. Linux 5.13 and newer.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

_LIBC = ctypes.CDLL(None, use_errno=True)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_FILE, _MAKE_LINK, _MOVE, _TRUNCATE = 1 << 7, 1 << 8, 1 << 12, 1 << 13, 1 << 14
_READ = _READ_FILE | _READ_DIR
_WORK = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_FILE | _MAKE_LINK | _MOVE | _TRUNCATE
_ON_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE


def version() -> int:
    """Return the version of Landlock that this kernel offers; 0 where there is none."""
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, 0, 1)))


def restrict(readable: Iterable[str], writable: Iterable[str]) -> bool:
    """Let this process read below `readable`, read and write below `writable`, and touch no other file; say if it holds.

    Nothing may be executed. Where the kernel can, TCP, abstract sockets and signals to others are refused as well.
    The process must have given up new privileges before. What does not exist is passed over.
    """
    known = version()
    if not known:
        return False
    bits = 13 + (known >= 2) + (known >= 3) + (known >= 5)
    handled = (1 << bits) - 1
    attributes = struct.pack("Q", handled)
    if known >= 4:
        attributes += struct.pack("Q", 3)  # bind and connect of TCP: handled, and granted nowhere
    if known >= 6:
        attributes += struct.pack("Q", 3)  # abstract sockets and signals stay among processes confined alike
    ruleset = int(_LIBC.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    if ruleset < 0:
        return False
    rules = [*((path, _READ) for path in readable), *((path, _WORK) for path in writable)]
    is_set = all(_grant(ruleset, path, rights & handled) for path, rights in rules if os.path.exists(path))  # noqa: PTH110
    is_held = is_set and int(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0)) == 0
    os.close(ruleset)
    return is_held


def _grant(ruleset: int, path: str, rights: int) -> bool:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rights = rights if os.path.isdir(path) else rights & _ON_FILES  # noqa: PTH112
    granted = int(_LIBC.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, place), 0)) == 0
    os.close(place)
    return granted
