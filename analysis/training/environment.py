"""The environment that trains: one of its own, since the pins of trainers exclude each other and those of everything else.

Decides where it lies (named by the hash of what it holds, so that a change of pins makes a new one) and how it is made.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from importlib.metadata import requires
from pathlib import Path

from analysis.errors import TrainingError

_NAME = "COUNTERPOINT_TRAIN_ENV"
_DONE = ".installed"


def requirements() -> list[str]:
    """Return what the extra `train` asks for, sorted."""
    wanted = [text.partition(";") for text in requires("counterpoint") or ()]
    return sorted([name.strip() for name, _, marker in wanted if marker.replace('"', "'").strip() == "extra == 'train'"])


def digest() -> str:
    """Return the hash of the requirements."""
    return hashlib.blake2b("\n".join(requirements()).encode(), digest_size=6).hexdigest()


def folder() -> Path:
    """Return where the environment lies, or would: `COUNTERPOINT_TRAIN_ENV`, else a folder of the user's cache."""
    if given := os.environ.get(_NAME):
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "counterpoint" / f"train-{digest()}"


def python() -> Path | None:
    """Return the interpreter of the environment; None where it is not installed. One that a person named is taken as it is."""
    found = folder() / "bin" / "python"
    is_there = found.exists() and (_NAME in os.environ or (folder() / _DONE).exists())
    return found if is_there else None


def install() -> Path:
    """Make the environment where it is not there yet and return its interpreter; 1.6 GB, some minutes. Raises TrainingError."""
    if (there := python()) is not None:
        return there
    if _NAME in os.environ:
        hint = f"make one that holds {', '.join(requirements())}, or unset {_NAME}"
        raise TrainingError(str(folder()), "no environment there", hint=hint)
    venv.create(folder(), with_pip=True, clear=True)
    interpreter = folder() / "bin" / "python"
    command = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise TrainingError(str(folder()), "the training environment could not be installed", got=lines[-1])
    (folder() / _DONE).touch()
    return interpreter


if __name__ == "__main__":
    sys.stdout.write(f"{install()}\n")
