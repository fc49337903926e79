"""What happens in the process of the program: it is confined for good, then the program runs and its results leave.

Nothing of other runs and no expected value is ever in this process. It needs the standard library only.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any

from analysis.counterfactual.sandbox import landlock, namespaces, seccomp

Request = dict[str, Any]
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime")
_DEVICES = ("/dev/zero", "/dev/urandom", "/dev/random")
_STACK_BYTES = 16 << 20


class _Caught:
    """Whatever a program raises ends here: it may be of any class, so that no list of classes would do."""

    error: BaseException | None = None

    def __enter__(self) -> _Caught:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self.error = error
        return True


def confine(request: Request, held: set[str], folder: str) -> set[str]:
    """Confine this process to `folder` as far as this machine lets it; return all layers that hold."""
    without, held = set(request["without"]), set(held)
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    if _limit(request["limits"], is_alone="namespaces" in held or "bubblewrap" in held):
        held.add("rlimits")
    namespaces.drop_privileges()
    readable = [*sys.path, os.path.join(sys.base_prefix, "lib"), *_SYSTEM, *_DEVICES]  # noqa: PTH118
    if "landlock" not in without and landlock.restrict(readable, [folder, "/dev/null"]):
        held.add("landlock")
    code = seccomp.program(os.getpid())
    if "seccomp" not in without and code is not None and seccomp.install(code):
        held.add("seccomp")
    return held


def _limit(limits: dict[str, Any], *, is_alone: bool) -> bool:
    n_others = 0 if is_alone else _threads_of(os.getuid())
    cpu_s = max(1, math.ceil(limits["cpu_s"]))
    values = {
        resource.RLIMIT_AS: (limits["memory_mb"] << 20,) * 2,
        resource.RLIMIT_CPU: (cpu_s, cpu_s + 1),
        resource.RLIMIT_FSIZE: (limits["file_mb"] << 20,) * 2,
        resource.RLIMIT_NOFILE: (limits["n_open"],) * 2,
        resource.RLIMIT_NPROC: (n_others + limits["n_threads"],) * 2,
        resource.RLIMIT_STACK: (_STACK_BYTES,) * 2,
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
        resource.RLIMIT_MSGQUEUE: (0, 0),
    }
    for what, (soft, hard) in values.items():
        ceiling = resource.getrlimit(what)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        try:
            resource.setrlimit(what, (soft, hard))
        except OSError:
            return False
    return True


def _threads_of(user: int) -> int:
    """How many threads the user has: the kernel counts them all where the process has no namespace of its own."""
    n_threads = 0
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            n_threads += len(os.listdir(f"/proc/{name}/task")) if os.stat(f"/proc/{name}").st_uid == user else 0  # noqa: PTH116, PTH208
        except OSError:
            continue  # it ended while we looked
    return n_threads


def execute(request: Request, results: int) -> int:
    """Run the program of the request, write one line a result to `results`, and return the exit code."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "analysis"]:
        del sys.modules[name]
    is_script = request["entry_point"] is None and request["tests"] is None
    module = ModuleType("__main__" if is_script else "program")
    sys.modules[module.__name__] = module
    random.seed(0)
    sys.dont_write_bytecode = True
    with _Caught() as caught:
        exec(compile(request["program"], "<program>", "exec", dont_inherit=True), module.__dict__)
    if is_script:
        return _end_of_script(caught.error)
    if caught.error is not None:
        _send(results, {"broke": _worded(caught.error)})
    elif request["tests"] is not None:
        with _Caught() as caught:
            exec(compile(request["tests"], "<tests>", "exec", dont_inherit=True), module.__dict__)
        _send(results, {"done": True} if caught.error is None else {"raised": _worded(caught.error)})
    else:
        for inputs in request["inputs"]:
            _send(results, _called(module, request["entry_point"], inputs))
    return 0


def _end_of_script(error: BaseException | None) -> int:
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    with _Caught():
        traceback.print_exception(error)
    return 1


def _called(module: ModuleType, entry_point: str, inputs: list[Any]) -> dict[str, Any]:
    with _Caught() as caught:
        value = module.__dict__[entry_point](*inputs)
    if caught.error is not None:
        return {"raised": _worded(caught.error)}
    with _Caught() as caught:
        return {"value": json.loads(json.dumps(_plain(value)))}
    return {"not_plain": _worded(caught.error)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise TypeError(f"a {type(value).__name__}" + (" with keys that are not text" if isinstance(value, dict) else ""))


def _worded(error: BaseException | None) -> str:
    if isinstance(error, MemoryError):
        return "MemoryError"
    text = ""
    with _Caught():
        text = f": {error}"[:300]
    return f"{type(error).__name__}{text if len(text) > 2 else ''}"


def _send(results: int, line: dict[str, Any]) -> None:
    data = memoryview(json.dumps(line).encode() + b"\n")
    while data:
        data = data[os.write(results, data) :]


def run(request: Request, held: set[str], folder: str, *, results: int, status: int) -> None:
    """Confine this process, say on `status` what holds, run the program if that is enough, and end."""
    held = confine(request, held, folder)
    os.write(status, json.dumps(sorted(held)).encode())
    os.close(status)
    code = 0
    if request["is_unsafe"] or any(held.issuperset(layers) for layers in request["minimum"]):
        code = execute(request, results)
        with _Caught():
            sys.stdout.flush()
            sys.stderr.flush()
    os._exit(code & 0xFF)


def main(given: int, results: int, status: int) -> None:
    """Go on in the process that bubblewrap has started, with the request that lies in the file `given`."""
    with os.fdopen(given, encoding="utf-8") as file:
        request = json.load(file)
    run(request, set(request["held"]), request["folder"], results=results, status=status)
