"""A run on this machine: a process whose log, metrics and state stand in its folder, to be followed, stopped and gone on with."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from analysis.errors import TrainingError
from analysis.processes import born, is_alive
from analysis.training import environment
from analysis.training.plan import Plan, read_plan

_STATE, _LOG, _METRICS = "state.json", "log.txt", "metrics.jsonl"
State = Literal["planned", "running", "done", "failed", "cancelled"]
Progress = Callable[[int, dict[str, float]], None]  # how many entries the trainer logged, and the last of them


class Status(NamedTuple):
    """How far a run is. `metrics` are the trainer's own, an entry each time it logged; `last` is the last line of its log."""

    state: State
    n_logged: int
    metrics: list[dict[str, float]]
    last: str


def run(folder: Path, *, resume: bool = False, progress: Progress | None = None) -> Status:
    """Train in the folder until the trainer ends; a run that is done is not done again.

    `resume` goes on from the last checkpoint. Raises TrainingError where the command is not to be found here, or another
    process trains in the folder.
    """
    plan, now = read_plan(folder), status(folder)
    if now.state == "running":
        raise TrainingError(str(folder), "another process trains there", hint=f"follow {folder / _LOG}")
    if now.state == "done" and not resume:
        return now
    command = _command(plan, folder, resume=resume)
    if not resume:
        for name in (_LOG, _METRICS):
            (folder / name).unlink(missing_ok=True)
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "PYTHONPATH": "."}
    with (folder / _LOG).open("a", encoding="utf-8") as log, (folder / _METRICS).open("a", encoding="utf-8") as metrics:
        # A session of its own: what the trainer starts keeps its output open, and has to end with it.
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        _write(folder, {"pid": process.pid, "born": born(process.pid)})
        try:
            _follow(process, log, metrics, progress)
        finally:
            _end(process.pid)
    _write(folder, {"code": process.wait()})
    return status(folder)


def _follow(process: subprocess.Popen[str], log: TextIO, metrics: TextIO, progress: Progress | None) -> None:
    assert process.stdout is not None
    n = 0
    for line in process.stdout:
        log.write(line)
        log.flush()
        if (values := logged(line)) is not None:
            n += 1
            metrics.write(json.dumps(values) + "\n")
            metrics.flush()
            if progress is not None:
                progress(n, values)


def status(folder: Path) -> Status:
    """Return how far the run of a folder is."""
    facts = _read(folder / _STATE)
    log = folder / _LOG
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    rows = folder / _METRICS
    metrics = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()] if rows.exists() else []
    return Status(_state(facts), len(metrics), metrics, lines[-1] if lines else "")


def cancel(folder: Path) -> bool:
    """Stop the trainer of a folder; return whether there was one. Its checkpoints stay."""
    facts = _read(folder / _STATE)
    if _state(facts) != "running":
        return False
    _write(folder, {**facts, "cancelled": True})
    _end(facts["pid"])
    return True


def logged(line: str) -> dict[str, float] | None:
    """Return the numbers that a trainer printed as a dictionary on a line of its log; None of any other line.

    >>> logged("{'loss': '6.15', 'grad_norm': 1.2, 'epoch': 0.5}"), logged("Training completed.")
    ({'loss': 6.15, 'grad_norm': 1.2, 'epoch': 0.5}, None)
    """
    text = line.strip()
    start = text.rfind("{'")
    if start < 0 or not text.endswith("}"):
        return None
    try:
        values = ast.literal_eval(text[start:])
    except (ValueError, SyntaxError):
        return None
    found = {}
    for name, value in values.items() if isinstance(values, dict) else ():
        with contextlib.suppress(TypeError, ValueError):
            found[str(name)] = float(value)
    return found or None


def _command(plan: Plan, folder: Path, *, resume: bool) -> list[str]:
    """Return the command with its program found, in the training environment where the plan names it."""
    name, *rest = plan.command
    interpreter = environment.python() if plan.environment_digest else None
    place = str(interpreter.parent / name) if interpreter is not None else shutil.which(name)
    if place is None or not Path(place).exists():
        own = plan.environment_digest
        hint = "install it with `counterpoint train --setup`" if own else f"start {name} where it is installed: see slurm.sh"
        raise TrainingError(name, "the trainer is not installed here", expected=", ".join(plan.environment), hint=hint)
    found = _last_checkpoint(folder) if resume else None
    if found is not None and name == "python":
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps({**config, "resume": found}, indent=1) + "\n", encoding="utf-8")
    return [place, *rest, *(["--resume_from_checkpoint", found] if found is not None and name == "trl" else [])]


def _last_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint, from the folder; None before the first one, when a run begins again."""
    steps = [int(n) for path in (folder / "out").glob("checkpoint-*") if (n := path.name.rpartition("-")[2]).isdigit()]
    return f"out/checkpoint-{max(steps)}" if steps else None


def _state(facts: dict[str, Any]) -> State:
    if not facts:
        return "planned"
    if facts.get("cancelled") and not _is_alive(facts):
        return "cancelled"
    if "code" in facts:
        return "done" if facts["code"] == 0 else "failed"
    return "running" if _is_alive(facts) else "failed"


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)


def _is_alive(facts: dict[str, Any]) -> bool:
    return "pid" in facts and is_alive(facts["pid"], facts["born"])


def _write(folder: Path, facts: dict[str, Any]) -> None:
    was = _read(folder / _STATE)
    kept = {"cancelled": True} if was.get("cancelled") and "pid" not in facts else {}
    part = folder / f"{_STATE}.part"
    part.write_text(json.dumps({**facts, **kept}), encoding="utf-8")
    part.replace(folder / _STATE)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
