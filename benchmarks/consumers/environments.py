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
_TORCH = ("torch==2.13.0", "accelerate==1.15.0", "pandas==3.1.1", "pyarrow==26.0.1")


@dataclass(frozen=True)
class Consumer:
    """Its script, what its environment holds (nothing: that of `counterpoint train`), and what is put in without its needs."""

    script: str
    requirements: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()


CONSUMERS = {
    "trl": Consumer("trl"),
    "datasets-5": Consumer("hugging_face"),
    "datasets-4": Consumer("hugging_face", ("datasets==4.0.0", "pandas==3.1.1", "pyarrow==26.0.1")),
    "mlcroissant": Consumer("mlcroissant", ("mlcroissant==1.1.1", "pandas==3.1.1", "pyarrow==26.0.1")),
    "verifiers": Consumer("verifiers", ("verifiers==0.4.0",)),
    "verl": Consumer(
        "verl",
        (
            *_TORCH, "transformers==5.9.0", "datasets==5.2.0", "peft==0.21.2", "ray==2.55.0", "tensordict==0.10.0",
            "torchdata==0.11.0", "hydra-core==1.3.8", "omegaconf==2.3.1", "codetiming==1.4.0", "pillow==13.0.0",
            "pylatexenc==2.11",
        ),
        ("verl==0.9.1",),
    ),
    "llama-factory": Consumer(
        "llama_factory",
        (
            "torch==2.13.0", "accelerate==1.11.0", "transformers==5.5.4", "datasets==4.0.0", "peft==0.18.1", "trl==0.24.0",
            "omegaconf==2.4.0", "fire==0.7.1", "sentencepiece==0.2.3", "protobuf==7.36.2", "pydantic==2.14.4",
        ),
        ("llamafactory==0.9.5",),
    ),
    "ms-swift": Consumer(
        "ms_swift",
        (
            *_TORCH, "transformers==5.15.0", "datasets==4.8.4", "peft==0.20.0", "trl==0.24.0", "modelscope==1.40.2",
            "json_repair==0.64.6", "pillow==13.0.0",
        ),
        ("ms-swift==4.6.0",),
    ),
    "axolotl": Consumer(
        "axolotl",
        (
            "torch==2.13.0", "accelerate==1.13.0", "transformers==5.16.1", "datasets==4.8.4", "peft==0.20.0", "addict==2.4.0",
            "colorama==0.4.6", "pydantic==2.12.5",
        ),
        ("axolotl==0.19.0",),
    ),
    "openrlhf": Consumer(
        "openrlhf",
        (*_TORCH, "transformers==5.15.0", "datasets==5.2.0", "sympy==1.14.0", "pylatexenc==2.11"),
        ("openrlhf==0.11.2",),
    ),
}  # fmt: skip


def python(name: str) -> Path:
    """Return the interpreter of a consumer, after its environment was made; CalledProcessError says why it could not be."""
    consumer = CONSUMERS[name]
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
