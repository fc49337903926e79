"""Run sources of the bank in a child process that counts their steps: what a wrong variant does, even one that never ends.

A step is a line that Python begins; a call that needs more than N_STEPS has failed, however fast the machine. For the
project's own sources only: strangers' programs go to the sandbox.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

#: No reference needs as many on any test; every performance variant needs at least 10^9 on one of its own.
N_STEPS = 250_000
_WALL_S = 60


def outcomes(jobs: Sequence[tuple[str, str, Sequence[Sequence[Any]]]]) -> list[list[Any]]:
    """For each (source, entry point, list of arguments): what each call came to, `["value", v]`, `["raised"]` or `["steps"]`."""
    text = json.dumps([list(job) for job in jobs])
    command = [sys.executable, "-I", __file__]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_WALL_S, check=True)
    found: list[list[Any]] = json.loads(done.stdout)
    return found


class _OutOfSteps(BaseException):
    pass


def _call(function: Any, arguments: list[Any]) -> list[Any]:
    n_steps = 0

    def trace(_: FrameType, event: str, __: Any) -> Any:
        nonlocal n_steps
        n_steps += event == "line"
        if n_steps > N_STEPS:
            raise _OutOfSteps
        return trace

    sys.settrace(trace)
    try:
        value = function(*arguments)
    except _OutOfSteps:
        return ["steps"]
    except Exception:
        return ["raised"]
    finally:
        sys.settrace(None)
    return ["value", value]


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (_WALL_S, _WALL_S))
    found = []
    for source, entry_point, calls in json.load(sys.stdin):
        scope: dict[str, Any] = {"__name__": "program"}
        exec(compile(source, entry_point, "exec", dont_inherit=True), scope)
        found.append([_call(scope[entry_point], arguments) for arguments in calls])
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main()
