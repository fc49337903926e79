"""The process that stands over one run: it makes the room, starts the program's process, reads, and kills at a limit.

It lives outside the room, trusts nothing that comes out of it, and reports to whoever asked for the run.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from analysis.counterfactual.sandbox import inside, namespaces, work_folder

_LOOK_EVERY_MS = 20
_N_OWN = 3  # bubblewrap, its first process, the program's
_SHARED = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime")


class _Room(NamedTuple):
    """Where a program runs: its folder, the layers around it so far, and whether files in it must be counted."""

    folder: str
    held: set[str]
    is_counted: bool


class _Pipes(NamedTuple):
    """Our ends of the three pipes."""

    results: int
    printed: int
    status: int


def supervise(job: socket.socket, base: str, *, may_enter: bool) -> None:
    """Read a request from `job`, run it, and write the report; `base` is an empty folder for rooms."""
    namespaces.die_with_parent()
    namespaces.adopt_orphans()
    os.setsid()
    request = json.loads(b"".join(iter(lambda: job.recv(1 << 20), b"")))
    room = _prepared(request, base, may_enter and "namespaces" not in request["without"])
    started = time.monotonic()
    child, pipes = _start(request, room)
    killed_for, read = _watch(child, pipes, request["limits"], room, job)
    _, status = os.waitpid(child, 0)
    wall_s = time.monotonic() - started
    _bury()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of all, also those that came as orphans
    if room.is_counted:
        work_folder.remove(room.folder)
    if killed_for == "abandoned":
        return
    code = os.waitstatus_to_exitcode(status)
    report = {
        "held": json.loads(read[pipes.status] or b"[]"),
        "killed_for": killed_for,
        "exit_code": 128 - code if code > 128 else code,  # the room's first process says 128 + signal for the program's end
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": wall_s,
        "printed": read[pipes.printed].decode("utf-8", "replace"),
        "results": read[pipes.results].decode("utf-8", "replace"),
    }
    job.sendall(json.dumps(report).encode())


def _prepared(request: dict[str, Any], base: str, may_enter: bool) -> _Room:
    limits, held = request["limits"], set[str]()
    is_own = request["backend"] == "own"
    if may_enter and namespaces.enter(is_for_mounts_only=not is_own):  # bubblewrap makes the other namespaces itself
        held |= {"namespaces"} if is_own else set()
        is_protected = not is_own or namespaces.protect_files()
        if is_protected and namespaces.mount_work(base, n_bytes=limits["folder_mb"] << 20, n_files=limits["n_files"]):
            return _Room(base, {*held, "memory-folder"}, is_counted=False)
    folder = f"{base}/{os.getpid()}"
    Path(folder).mkdir(mode=0o700)
    return _Room(folder, held, is_counted=True)


def _start(request: dict[str, Any], room: _Room) -> tuple[int, _Pipes]:
    """Start the program's process behind three pipes; in the new one, this never returns."""
    pairs = [os.pipe() for _ in _Pipes._fields]
    child = os.fork()
    if child:
        for mine, theirs in pairs:
            os.close(theirs)
            os.set_blocking(mine, False)
        return child, _Pipes(*(mine for mine, _ in pairs))
    namespaces.die_with_parent()
    os.setsid()
    results, printed, status = (theirs for _, theirs in pairs)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number, target in ((nothing, 0), (printed, 1), (printed, 2)):
        os.dup2(number, target)
    _close_all_but({0, 1, 2, results, status})
    if "namespaces" in room.held:
        _be_first_process()
    if request["backend"] == "bubblewrap":
        _enter_bubblewrap(request, room, results, status)
    inside.run(request, room.held, room.folder, results=results, status=status)
    raise AssertionError("the program's process has ended")


def _close_all_but(kept: set[int]) -> None:
    numbers = sorted(kept)
    for before, after in zip(numbers, [*numbers[1:], 1 << 16], strict=True):
        os.closerange(before + 1, after)


def _be_first_process() -> None:
    """Stay as the first process of the namespace, which only waits; return in a child of it, which has usual signals."""
    child = os.fork()
    if child == 0:
        return
    os.closerange(0, 1 << 16)
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _enter_bubblewrap(request: dict[str, Any], room: _Room, results: int, status: int) -> None:
    folder, held = room.folder, {*room.held, "bubblewrap"}
    given = os.memfd_create("request", 0)
    os.write(given, json.dumps({**request, "folder": folder, "held": sorted(held)}).encode())
    os.lseek(given, 0, os.SEEK_SET)
    for number in (results, status):
        os.set_inheritable(number, True)
    own = str(Path(__file__).parent)
    shown = [path for path in dict.fromkeys((*_SHARED, sys.base_prefix, sys.executable, own)) if Path(path).exists()]
    argv = [request["bubblewrap"], "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    argv += ["--uid", str(namespaces.NOBODY), "--gid", str(namespaces.NOBODY)]
    argv += [word for path in shown for word in ("--ro-bind", path, path)]
    argv += [word for name in ("null", "zero", "urandom", "random") for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    argv += ["--bind", folder, folder, "--chdir", folder, "--remount-ro", "/", "--"]
    argv += [*sys.orig_argv[: -len(sys.argv[1:])], "inside", str(given), str(results), str(status)]
    os.execv(argv[0], argv)


def _watch(
    child: int, pipes: _Pipes, limits: dict[str, Any], room: _Room, job: socket.socket
) -> tuple[str | None, dict[int, bytearray]]:
    """Read until the child has ended, killing it at the first limit; return for what it was killed, and what was read."""
    read = {pipe: bytearray() for pipe in pipes}
    most = {pipes.results: limits["results_kb"] << 10, pipes.printed: limits["printed_kb"] << 10, pipes.status: 1 << 12}
    ending = os.pidfd_open(child)
    poll = select.poll()
    poll.register(job, 0)  # only that the other side has gone
    for number in (ending, *pipes):
        poll.register(number, select.POLLIN)
    killed_for, end, look_at = None, time.monotonic() + limits["wall_s"], 0.0
    while True:
        ready = {number for number, _ in poll.poll(_LOOK_EVERY_MS)}
        for pipe in ready & read.keys():
            if not _read(pipe, read[pipe], most[pipe]):
                poll.unregister(pipe)
        if ending in ready:
            break
        now = time.monotonic()
        killed_for = _broken(read, most, now > end, job.fileno() in ready)
        if killed_for is None and now >= look_at:
            killed_for, look_at = _crowded(limits, room), now + _LOOK_EVERY_MS / 1000
        if killed_for:
            _kill_all()
            break
    for pipe in pipes:
        _read(pipe, read[pipe], most[pipe])
    return killed_for or _broken(read, most, False, False), read


def _read(pipe: int, into: bytearray, most: int) -> bool:
    """Read what is there, one byte more than the most at the most; say whether more may come."""
    try:
        while len(into) <= most:
            data = os.read(pipe, min(1 << 16, most + 1 - len(into)))
            if not data:
                return False
            into += data
    except BlockingIOError:
        return True
    return True


def _broken(read: dict[int, bytearray], most: dict[int, int], is_late: bool, is_alone: bool) -> str | None:
    if is_alone:
        return "abandoned"
    if any(len(read[pipe]) > most[pipe] for pipe in read):
        return "output"
    return "timeout" if is_late else None


def _crowded(limits: dict[str, Any], room: _Room) -> str | None:
    """What the kernel may not count for us: threads (never for root), and files of a folder on disk."""
    if _n_threads() > limits["n_threads"] + _N_OWN:
        return "threads"
    n_files, n_bytes = work_folder.usage(room.folder) if room.is_counted else (0, 0)
    return "files" if n_files > limits["n_files"] or n_bytes > limits["folder_mb"] << 20 else None


def _descendants() -> list[int]:
    found, left = [], [os.getpid()]
    while left:
        here = left.pop()
        try:
            for thread in os.listdir(f"/proc/{here}/task"):  # noqa: PTH208
                left += map(int, Path(f"/proc/{here}/task/{thread}/children").read_text().split())
        except OSError:
            continue  # it ended while we looked
        found.append(here)
    return found[1:]


def _n_threads() -> int:
    n_threads = 0
    for pid in _descendants():
        try:
            n_threads += len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
        except OSError:
            continue  # it ended while we looked
    return n_threads


def _kill_all() -> None:
    for pid in _descendants():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _bury() -> None:
    """Kill and reap what the program left, until nothing is left; orphans have come to this process."""
    while True:
        _kill_all()
        try:
            os.wait()
        except ChildProcessError:
            return
