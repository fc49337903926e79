"""The launcher's own process: started once, it forks a supervisor a run, which is faster than starting Python each time.

It never holds a program, an input or a result; those go past it, through a socket of each run.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import tempfile

from analysis.counterfactual.sandbox import namespaces, supervisor

# Loaded once, for all programs to come.
_PRELOADED = (
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq",
    "itertools", "math", "operator", "random", "re", "statistics", "string", "typing",
)  # fmt: skip


def main(control_number: int) -> None:
    """Fork a supervisor for every socket that comes through the control socket, until its other side closes."""
    control = socket.socket(fileno=control_number)
    for name in _PRELOADED:
        __import__(name)
    base = tempfile.mkdtemp(prefix="counterpoint-")
    tempfile.tempdir = None  # programs look for their own
    may_enter = _may_enter()
    gc.freeze()  # what is loaded stays shared with the forked
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, jobs, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            break
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            supervisor.supervise(socket.socket(fileno=jobs[0]), base, may_enter=may_enter)
            os._exit(0)
        os.close(jobs[0])
    _wait_for_all()
    shutil.rmtree(base, ignore_errors=True)  # empty, but for what a killed supervisor left


def _may_enter() -> bool:
    """Whether namespaces can be had, tried by a child, since there is no way back."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if namespaces.enter() else 1)
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _wait_for_all() -> None:
    try:
        os.wait()
    except ChildProcessError:
        return
