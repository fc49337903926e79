"""A training run as a folder that any machine can start: the view's files, the objective, the command, and what it needs.

Decides which command trains which view. Nothing here imports a trainer; the folder names no place outside itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, Literal

import msgspec

from analysis.errors import TrainingError, UnknownNameError
from analysis.training import environment, manifests, objective
from analysis.training.formats.lines import OPENRLHF_ARGUMENTS

_PLAN = "plan.json"
#: As Hugging Face's client checks a name before it asks (`huggingface_hub.utils.validate_repo_id`), together with what
#: `_located` forbids.
_HUB_NAME = re.compile(r"(\b[\w\-.]{1,96}\b/)?\b[\w\-.]{1,96}\b", re.ASCII)
Argument = str | int | float | bool


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained on what, and how.

    target : the view; data_digest : hash of its files; model : a folder or the name at a hub
    command : what to run in the folder; its first word is looked up in the training environment, else on the path
    environment : what that has to hold; environment_digest : hash of it, empty where the target brings its own
    orch_weight, orch_until : λ and the progress at which it has faded to 0, of targets with event credit
    arguments : of the trainer
    """

    target: str
    data_digest: str
    model: str
    command: tuple[str, ...]
    environment: tuple[str, ...] = ()
    environment_digest: str = ""
    orch_weight: float = 0.0
    orch_until: float = 1.0
    arguments: dict[str, Argument] = {}


class _Target(msgspec.Struct, frozen=True):
    """How a view is trained: by TRL's command with a configuration, by a file of the objective, or by another program."""

    how: Literal["trl", "objective", "other"]
    words: tuple[str, ...]
    model_option: str = "--model_name_or_path"


_LLAMA_DATA = ("--dataset_dir", ".", "--dataset", "counterpoint-train", "--output_dir", "out")
_SWIFT_DATA = ("--dataset", "train.jsonl", "--is_binary_loss_scale", "false", "--output_dir", "out")
_OPENRLHF = ("deepspeed", "--module", "openrlhf.cli.train_sft")
_TARGETS = {
    "trl-sft": _Target("trl", ("sft", "sft.yaml")),
    "trl-prompt-completion": _Target("trl", ("sft", "sft.yaml")),
    "trl-dpo": _Target("trl", ("dpo", "dpo.yaml")),
    "trl-kto": _Target("trl", ("kto", "kto.yaml")),
    "trl-reward": _Target("trl", ("reward", "reward.yaml")),
    "trl-tokenized": _Target("objective", ("trl_sft",)),
    "trl-grpo": _Target("objective", ("trl_grpo",)),
    "axolotl": _Target("other", ("axolotl", "train", "axolotl.yaml"), "--base-model"),
    "llama-factory": _Target("other", ("llamafactory-cli", "train", "--stage", "sft", "--do_train", "true", *_LLAMA_DATA)),
    "ms-swift": _Target("other", ("swift", "sft", *_SWIFT_DATA), "--model"),
    "openrlhf": _Target("other", (*_OPENRLHF, *OPENRLHF_ARGUMENTS), "--model.model_name_or_path"),
}


def trainable() -> list[str]:
    """Return the views that a command trains as they are."""
    return list(_TARGETS)


def prepare(
    export: Path, target: str, folder: Path, *, model: str, orch_weight: float = 0.3, orch_until: float = 1.0,
    arguments: dict[str, Argument] | None = None,
) -> Plan:  # fmt: skip
    """Write the folder of a run: the files of an exported view, the plan, the objective, and manifests for clusters.

    Raises UnknownNameError for a view that no command trains, TrainingError where there is no export, it does not hold the
    view, the model is neither a folder nor can be a name at a hub, or the folder holds another plan.
    """
    if target not in _TARGETS:
        raise UnknownNameError("target", "no command trains this view", got=target, expected=", ".join(_TARGETS))
    model = _located(model)
    if not export.is_dir():
        raise TrainingError(str(export), "no export there", hint="write one with `counterpoint export --out DIR`")
    view = export / "views" / target
    if not any(view.glob("train.*")) and not (view / "trajectories" / "train.jsonl").exists():
        hint = f"export it with `counterpoint export --format {target}`; an empty view has lost every row to its checks"
        raise TrainingError(str(view), "no rows to train on", hint=hint)
    given = arguments or {}
    plan = Plan(
        target=target, data_digest=_digest(view), model=model, command=_command(target, model, given), arguments=given,
        orch_weight=orch_weight if target == "trl-grpo" else 0.0, orch_until=orch_until,
        **_needs(_TARGETS[target]),
    )  # fmt: skip
    if (folder / _PLAN).exists() and read_plan(folder) != plan:
        raise TrainingError(str(folder), "the folder holds another run", hint="take an empty one, or resume that run")
    _lay_out(view, plan, folder)
    return plan


def _located(model: str) -> str:
    """Return the model as the run, whose folder is another, can name it; whether a hub or another machine has it is not asked."""
    here = Path(model).expanduser()
    if model and here.is_dir():
        return str(here.resolve())
    if model.startswith(("./", "../", "~")):
        raise TrainingError("model", "there is no such folder", got=model, hint="correct the path")
    is_name = _HUB_NAME.fullmatch(model) and "--" not in model and ".." not in model and not model.endswith(".git")
    if not is_name and not here.is_absolute():
        expected = "a folder, or owner/name or name of letters, digits, `-`, `_` and `.`, at most 96 each"
        raise TrainingError("model", "neither a folder nor a name at a hub", got=model, expected=expected)
    return model


def read_plan(folder: Path) -> Plan:
    """Return the plan of a folder. Raises TrainingError."""
    try:
        return msgspec.json.decode((folder / _PLAN).read_bytes(), type=Plan)
    except FileNotFoundError:
        raise TrainingError(str(folder), "no run there", hint="make one with `counterpoint train --export DIR`") from None
    except msgspec.MsgspecError as error:
        raise TrainingError(str(folder / _PLAN), "not a plan", got=str(error)) from None


def _needs(target: _Target) -> dict[str, Any]:
    if target.how == "other":
        return {"environment": (target.words[0],)}
    return {"environment": tuple(environment.requirements()), "environment_digest": environment.digest()}


def _command(target: str, model: str, arguments: dict[str, Argument]) -> tuple[str, ...]:
    how, words, model_option = msgspec.structs.astuple(_TARGETS[target])
    options = [part for name, value in sorted(arguments.items()) for part in (f"--{name}", _worded(value))]
    if how == "objective":
        return ("python", "-m", f"objective.{words[0]}", "config.json")
    if how == "trl":
        return ("trl", words[0], "--config", words[1], model_option, model, "--output_dir", "out", *options)
    return (*words, model_option, model, *options)


def _worded(value: Argument) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lay_out(view: Path, plan: Plan, folder: Path) -> None:
    for path in sorted(view.rglob("*.*")):
        place = folder / path.relative_to(view)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        try:
            os.link(path, place)
        except OSError:  # another file system
            shutil.copyfile(path, place)
    if plan.command[0] == "python":
        source = Path(objective.__file__).parent
        shutil.copytree(source, folder / "objective", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "config.json").write_text(json.dumps(_config(view, plan), indent=1) + "\n", encoding="utf-8")
    for name, text in manifests.texts(plan.command, plan.environment).items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / _PLAN).write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")


def _config(view: Path, plan: Plan) -> dict[str, Any]:
    """Return what a file of the objective reads."""
    written: dict[str, Any] = {"data": "train.parquet", "arguments": {"output_dir": "out"}}
    with contextlib.suppress(FileNotFoundError):
        written = json.loads((view / "grpo.json").read_text(encoding="utf-8"))
    weights = {"orch_weight": plan.orch_weight, "orch_until": plan.orch_until} if plan.target == "trl-grpo" else {}
    return {**written, **weights, "model": plan.model, "arguments": {**written["arguments"], **plan.arguments}}


def _digest(view: Path) -> str:
    hasher = hashlib.sha256()
    for path in sorted(view.rglob("*.*")):
        with path.open("rb") as file:
            hasher.update(f"{path.relative_to(view)}\n{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return hasher.hexdigest()
