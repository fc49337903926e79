"""Small, harmless attacks on this machine's sandbox, one a layer: which layers hold here is found by attacking them."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Collection
from typing import Literal

import msgspec

from analysis.counterfactual.sandbox.launcher import LAYERS, Limits, open_sandbox

_THROUGH = "got through"
_READS = "open({secret!r}).read()"
#: layer -> what is tried in words, and the line of Python that tries it
_ATTACKS = {
    "supervisor": ("sleep for a minute", "import time; time.sleep(60)"),
    "rlimits": ("take 2 GB of memory", "bytearray(2 << 30)"),
    "seccomp": ("start a second process", "import os; os.fork() or os._exit(0)"),
    "landlock": ("read a file of this user", _READS),
    "namespaces": ("reach a port of this machine", "import socket; socket.create_connection(('127.0.0.1', {port}), 1)"),
    "memory-folder": ("make 2,000 files", "for n in range(2000): open(str(n), 'x').close()"),
    "bubblewrap": ("read a file of this user", _READS),
}
_LIMITS = Limits(wall_s=1.5, cpu_s=1)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attack: whether its layer alone stops it here, and what the whole sandbox makes of it."""

    layer: str
    works_here: bool
    attack: str
    outcome: Literal["stopped", "got through", "refused"]


def attempt_all(*, without: Collection[str] = ()) -> list[Attempt]:
    """Attack each layer alone and the whole sandbox, both without the layers named; takes some seconds."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        tempfile.NamedTemporaryFile(mode="w") as secret,
        open_sandbox(without=without, unsafe=True) as whole,
    ):
        found = []
        for layer, (attack, line) in _ATTACKS.items():
            program = f"{line.format(secret=secret.name, port=server.getsockname()[1])}\nprint({_THROUGH!r})"
            stopped = _THROUGH not in whole.run(program, limits=_LIMITS).printed if whole.layers.is_enough else None
            outcome: Literal["stopped", "got through", "refused"] = (
                "refused" if stopped is None else "stopped" if stopped else "got through"
            )
            found.append(Attempt(layer=layer, works_here=_holds_alone(layer, program, without), attack=attack, outcome=outcome))
    return found


def _holds_alone(layer: str, program: str, without: Collection[str]) -> bool:
    kept = {"namespaces" if layer == "memory-folder" else layer} - set(without)
    backend: Literal["own", "bubblewrap"] = "bubblewrap" if layer == "bubblewrap" else "own"
    with open_sandbox(backend=backend, without=sorted(set(LAYERS) - kept), unsafe=True) as sandbox:
        run = sandbox.run(program, limits=_LIMITS)
    return _THROUGH not in run.printed and layer in {"supervisor", *run.layers.held}
