"""Run programs of strangers: a launcher is started once, then each program has a fresh, confined process with limits.

It hides how the launcher is talked to and which of two ways is taken: the own layers, or bubblewrap around them. Linux only.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from analysis.errors import SandboxError

Backend = Literal["own", "bubblewrap"]
#: A program runs where all of one of these hold.
MINIMUM = (("rlimits", "seccomp", "landlock"), ("rlimits", "seccomp", "bubblewrap"))
LAYERS = ("rlimits", "seccomp", "landlock", "namespaces", "memory-folder", "bubblewrap")
_HERE = Path(__file__).parent
_PATIENCE_S = 30.0
#: Only these modules are loaded by the launcher, not the packages around them: it has the standard library and no more.
_BOOT = f"""
import importlib, sys, types
for depth, name in enumerate(("analysis", "analysis.counterfactual", "analysis.counterfactual.sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [{[str(_HERE.parents[1]), str(_HERE.parent), str(_HERE)]!r}[depth]]
importlib.import_module("analysis.counterfactual.sandbox." + sys.argv[1]).main(*map(int, sys.argv[2:]))
"""
#: Everything a program finds in its environment, besides HOME and TMPDIR.
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1",
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one run may use; at the first limit it meets, it is killed or the call fails."""

    wall_s: float = 10.0
    cpu_s: float = 5.0
    memory_mb: int = 512
    file_mb: int = 16
    folder_mb: int = 64
    n_files: int = 256
    n_open: int = 64
    n_threads: int = 32
    printed_kb: int = 256
    results_kb: int = 4096


class Layers(msgspec.Struct, frozen=True):
    """What holds a program: the way it is run and the layers that were tried and hold, in the order of `LAYERS`."""

    backend: Backend
    held: tuple[str, ...]

    @property
    def is_enough(self) -> bool:
        """Whether these are at least the minimum."""
        return any(set(self.held).issuperset(layers) for layers in MINIMUM)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How one run went. `exit_code` is negative for a signal; `printed` and `results` are what the program says, unproven."""

    layers: Layers
    killed_for: Literal["timeout", "output", "files", "threads"] | None
    exit_code: int
    cpu_s: float
    wall_s: float
    printed: str
    results: tuple[str, ...]


class Sandbox:
    """A running launcher: runs programs, several at once from several threads, until it is closed."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, request: Mapping[str, Any]) -> None:
        self._process, self._control, self._request = process, control, dict(request)
        self.layers = Layers("own", ())

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the launcher, once what it still runs has ended."""
        self._control.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(
        self,
        program: str,
        *,
        entry_point: str | None = None,
        inputs: Sequence[Sequence[Any]] = (),
        tests: str | None = None,
        limits: Limits | None = None,
    ) -> Run:
        """Run Python source text in a fresh process and return how it went.

        With `entry_point`, that function is called with each of the inputs (plain JSON values) and the results have a line
        each; with `tests`, their source text runs after the program's, in the same process; with neither, the program is a
        script. Hashes and random numbers are the same in every run. Raises SandboxError where the layers that hold are
        below the minimum and the sandbox is not unsafe.
        """
        chosen = limits or Limits()
        wanted = {"program": program, "entry_point": entry_point, "inputs": inputs, "tests": tests}
        request = {**self._request, **wanted, "limits": msgspec.to_builtins(chosen)}
        report = self._asked(json.dumps(request).encode(), chosen.wall_s + _PATIENCE_S)
        held = tuple(layer for layer in LAYERS if layer in report["held"])
        layers = Layers(self._request["backend"], held)
        if not (layers.is_enough or self._request["is_unsafe"]):
            raise _refused(layers)
        results = tuple(report["results"].split("\n")[:-1])  # what stands after the last line end was cut off
        return msgspec.convert({**report, "layers": layers, "results": results}, Run)

    def _asked(self, request: bytes, patience_s: float) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(patience_s)
            try:
                with theirs:
                    socket.send_fds(self._control, [b"1"], [theirs.fileno()])
                ours.sendall(request)
                ours.shutdown(socket.SHUT_WR)
                report = b"".join(iter(lambda: ours.recv(1 << 20), b""))
            except OSError as error:
                raise SandboxError("sandbox", "the launcher does not answer", got=str(error)) from error
        if not report:
            raise SandboxError("sandbox", "the launcher ended before it had reported")
        answer: dict[str, Any] = json.loads(report)
        return answer

    def settle(self, backend: Backend) -> Layers:
        """Take this way from now on, and find by running an empty program which layers hold."""
        trial = {**self._request, "backend": backend, "is_unsafe": True}
        self._request["backend"] = backend
        empty = {"program": "", "entry_point": None, "inputs": (), "tests": None, "limits": msgspec.to_builtins(Limits())}
        held = self._asked(json.dumps({**trial, **empty}).encode(), _PATIENCE_S)["held"]
        self.layers = Layers(backend, tuple(layer for layer in LAYERS if layer in held))
        return self.layers


def open_sandbox(
    *, backend: Backend | None = None, without: Collection[str] = (), unsafe: bool = False, python: str | None = None
) -> Sandbox:
    """Start a launcher; close it after use, or open it in a `with`.

    Without `backend`, the own layers are taken where they are enough, else bubblewrap where it is installed and works.
    `without` names layers to do without; `python` is the interpreter, this one by default.
    Raises SandboxError where what holds is below the minimum, unless `unsafe`; then every run and verdict says so.

    >>> with open_sandbox(unsafe=True) as sandbox:
    ...     sandbox.run("print('hello')").printed
    'hello\\n'
    """
    if sys.platform != "linux":
        raise SandboxError("sandbox", "programs can be run on Linux only", got=sys.platform)
    sandbox = _started(os.path.realpath(python or sys.executable), without, unsafe)
    has_bubblewrap = "bubblewrap" not in without and shutil.which("bwrap") is not None
    ways: list[Backend] = [backend] if backend else ["own", "bubblewrap"] if has_bubblewrap else ["own"]
    found = []
    for way in ways:
        found.append(sandbox.settle(way))
        if found[-1].is_enough:
            return sandbox
    if unsafe:
        sandbox.settle(ways[0])
        return sandbox
    sandbox.close()
    raise _refused(found[0])


def layers(*, without: Collection[str] = (), python: str | None = None) -> Layers:
    """Return what would hold a program here, found by trying; some 0.1 s, so keep it.

    >>> layers(without=("landlock", "bubblewrap")).is_enough
    False
    """
    with open_sandbox(without=without, unsafe=True, python=python) as sandbox:
        return sandbox.layers


def _refused(found: Layers) -> SandboxError:
    wanted = " or ".join(" + ".join(names) for names in MINIMUM)
    hint = "install bubblewrap, or accept that programs can harm this machine: --unsafe-exec"
    return SandboxError(
        "sandbox", "programs are not run here, too little would hold them", got=" + ".join(found.held) or "nothing",
        expected=wanted, hint=hint,
    )  # fmt: skip


def _started(python: str, without: Collection[str], unsafe: bool) -> Sandbox:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [python, "-s", "-P", "-S", "-c", _BOOT, "zygote", str(theirs.fileno())]
    environment = {**_ENVIRONMENT, "TMPDIR": tempfile.gettempdir()}
    with theirs:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/", env=environment,
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise SandboxError("sandbox", "the interpreter cannot be started", got=str(error)) from error
    request = {"backend": "own", "without": sorted(without), "is_unsafe": unsafe, "minimum": MINIMUM}
    request["bubblewrap"] = shutil.which("bwrap") or "bwrap"
    return Sandbox(process, ours, request)
