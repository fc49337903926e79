"""A work folder on disk, where there is none in memory: how much is in it, and how to empty it whatever is in it."""

from __future__ import annotations

import os


def usage(folder: str) -> tuple[int, int]:
    """Return how many files and how many bytes lie in and below `folder`; one that cannot be read counts without end."""
    n_files, n_bytes, left = 0, 0, [folder]
    try:
        while left:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    n_files += 1
                    n_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
    except FileNotFoundError:
        return n_files, n_bytes  # it went while we looked
    except OSError:
        return 1 << 62, n_bytes
    return n_files, n_bytes


def remove(folder: str) -> None:
    """Remove `folder` and all in it. Folders in it are moved beside it one by one: the path to a deep one may be too long."""
    n_moved, left = 0, [folder]
    while left:
        here = left.pop()
        with os.scandir(here) as entries:
            for entry in list(entries):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)  # noqa: PTH108
                    continue
                n_moved += 1
                left.append(f"{folder}.{n_moved}")
                os.chmod(entry.path, 0o700)  # noqa: PTH101 - it may be locked
                os.rename(entry.path, left[-1])  # noqa: PTH104
        os.rmdir(here)  # noqa: PTH106
