"""An environment for each consumer, since their pins exclude each other: made once, named by the hash of what it holds."""

from __future__ import annotations

import hashlib
import os
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

from analysis.training import environment

_DONE = ".installed"


@dataclass(frozen=True)
class Consumer:
    """Its script here, what its environment holds (nothing: that of `counterpoint train`), and what is put in without its needs."""

    script: str
    requirements: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()


def python(name: str, consumer: Consumer) -> Path:
    """Return the interpreter of a consumer, after its environment was made; CalledProcessError says why it could not be."""
    if not consumer.requirements:
        return environment.install()
    folder = _folder(name, consumer)
    interpreter = folder / "bin" / "python"
    if not (folder / _DONE).exists():
        venv.create(folder, with_pip=True, clear=True)
        _install(interpreter, *consumer.requirements)
        if consumer.bare:
            _install(interpreter, "--no-deps", *consumer.bare)
        (folder / _DONE).touch()
    return interpreter


def _folder(name: str, consumer: Consumer) -> Path:
    held = "\n".join([*consumer.requirements, *consumer.bare])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.blake2b(held.encode(), digest_size=6).hexdigest()
    return cache / "counterpoint" / "consumers" / f"{name}-{digest}"


def _install(interpreter: Path, *what: str) -> None:
    command = [str(interpreter), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *what]
    subprocess.run(command, check=True, capture_output=True, text=True)
