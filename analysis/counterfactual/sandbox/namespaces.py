"""Namespaces and privileges: a process that sees no other process, no network and a file system it cannot change.

It hides the kernel's calls. Each function says whether it worked; a kernel or a container may refuse any of them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_USER_AND_MOUNTS = 0x10000000 | 0x20000
_REST = 0x20000000 | 0x40000000 | 0x8000000 | 0x4000000  # processes, network, shared memory, names of the machine
_PRIVATE_BELOW, _NO_SUID_DEV_EXEC = 0x4000 | 0x40000, 0x2 | 0x4 | 0x8
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVILEGES = 1, 36, 38
_MOUNT_SETATTR, _HERE, _RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 1 | 2  # read-only, no set-user-id
NOBODY = 65534


def enter(*, is_for_mounts_only: bool = False) -> bool:
    """Give this process namespaces of its own; the next child it starts is the first process of the new one."""
    user, group = os.getuid(), os.getgid()
    if _LIBC.unshare(_USER_AND_MOUNTS | (0 if is_for_mounts_only else _REST)) != 0:
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{NOBODY} {group} 1")
    return int(_LIBC.mount(b"none", b"/", None, _PRIVATE_BELOW, None)) == 0


def protect_files() -> bool:
    """Make every file read-only for this process and its children; after `enter`."""
    attributes = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    return int(_LIBC.syscall(_MOUNT_SETATTR, _HERE, b"/", _RECURSIVE, attributes, len(attributes))) == 0


def mount_work(folder: str, *, n_bytes: int, n_files: int) -> bool:
    """Make `folder` an empty one in memory that holds so many bytes and files and no more; after `enter`."""
    options = f"size={n_bytes},nr_inodes={n_files + 1},mode=0700".encode()
    return int(_LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", _NO_SUID_DEV_EXEC, options)) == 0


def drop_privileges() -> None:
    """Give up every capability, and for good the way to gain one."""
    _LIBC.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))
    _LIBC.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Let this process be killed when the one that started it ends."""
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Let descendants whose parent ends become children of this process, so that none gets away."""
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
