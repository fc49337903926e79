"""Long work beside the pages: a process of its own with a progress file.

It goes on when the tab is closed, is found again by its id after the server was restarted, and can be cancelled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from analysis.errors import UnknownNameError
from analysis.processes import born, is_alive
from dashboard import safe


class Job(NamedTuple):
    """One piece of work. `share` is how much is done, in [0, 1]; `result` what the command printed as JSON."""

    job_id: str
    title: str
    started: float
    state: Literal["running", "done", "failed", "cancelled"]
    share: float
    text: str
    result: Any


def start(location: str, title: str, arguments: list[str], *, job_id: str | None = None, on_workspace: bool = True) -> str:
    """Run a `counterpoint` command with --json, detached; return the job's id.

    Parameters
    ----------
    location : the workspace
    title : what a person calls the work
    arguments : the command and its arguments, such as ["import", "/data/traces"]
    job_id : of a folder that `new_folder` made for the job's input
    on_workspace : whether the command is told the workspace; those that read none take no such option
    """
    folder = folder_of(location, job_id) if job_id else new_folder(location)
    command = [sys.executable, "-m", "analysis.cli", *arguments, "--json", "--progress-file", str(folder / "progress.json")]
    command += ["-w", location] if on_workspace else []
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
    facts = {"title": title, "started": time.time(), "pid": process.pid, "pid_born": born(process.pid)}
    (folder / "job.part").write_text(json.dumps(facts), encoding="utf-8")
    (folder / "job.part").replace(folder / "job.json")
    return folder.name


def new_folder(location: str) -> Path:
    """Make the folder of a job that is still to be started, for its input."""
    folder = _root(location) / uuid.uuid4().hex[:12]
    folder.mkdir(parents=True)
    return folder


def keep_uploads(folder: Path, uploads: Iterable[tuple[str, bytes]]) -> Path:
    """Write uploaded files (name, content) into a job's folder, under names that every system takes; return where."""
    inbox = folder / "upload"
    inbox.mkdir()
    for n, (name, content) in enumerate(uploads):
        given = Path(name)
        suffix = given.suffix if given.suffix in (".json", ".jsonl", ".gz") else ""
        target = inbox / f"{safe.file_slug(given.stem)}{suffix}"
        target = target if not target.exists() else inbox / f"{n}-{target.name}"
        target.write_bytes(content)
    return inbox


def state(location: str, job_id: str) -> Job:
    """Return how far a job is.

    Raises
    ------
    UnknownNameError
        If there is no such job.
    """
    folder = folder_of(location, job_id)
    facts = _read(folder / "job.json")
    if facts is None:
        raise UnknownNameError("job", "no job has this id", got=job_id, hint="start the import again on Add data")
    running = _is_running(facts["pid"], facts["pid_born"])
    progress = _read(folder / "progress.json") or {"share": 0.0, "text": "starting"}
    result = None if running else _json(folder / "stdout")
    how: Literal["running", "done", "failed", "cancelled"] = "running" if running else "done" if result is not None else "failed"
    text = str(progress["text"])
    if how == "failed":
        how, text = ("cancelled", "cancelled") if (folder / "cancelled").exists() else ("failed", _last_line(folder / "stderr"))
    return Job(job_id, facts["title"], facts["started"], how, float(progress["share"]), text, result)


def cancel(location: str, job_id: str) -> None:
    """Stop a job; what it did so far is not committed."""
    facts = _read(folder_of(location, job_id) / "job.json")
    if facts is None or not _is_running(facts["pid"], facts["pid_born"]):
        return
    (folder_of(location, job_id) / "cancelled").touch()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(facts["pid"], signal.SIGTERM)


def all_jobs(location: str) -> list[Job]:
    """Return the jobs of a workspace, newest first."""
    folders = [path.parent.name for path in _root(location).glob("*/job.json")]
    return sorted((state(location, name) for name in folders), key=lambda job: -job.started)


def folder_of(location: str, job_id: str) -> Path:
    """Return the folder of a job, whether or not it is there; raises UnknownNameError for what is no job's id."""
    if not (job_id.isalnum() and job_id.isascii()):
        raise UnknownNameError("job", "no job has this id", got=job_id)
    return _root(location) / job_id


def _root(location: str) -> Path:
    if "://" not in location:
        return Path(location) / "jobs"
    return Path(tempfile.gettempdir()) / f"counterpoint-jobs-{os.getuid()}" / uuid.uuid5(uuid.NAMESPACE_URL, location).hex


def _read(path: Path) -> dict[str, Any] | None:
    value = _json(path)
    return value if isinstance(value, dict) else None


def _json(path: Path) -> Any:
    """What a file holds; None where it is not there, or not whole."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _is_running(pid: int, born_at: str) -> bool:
    with contextlib.suppress(ChildProcessError):  # a child of this server, once it ended, has to be taken off the list
        os.waitpid(pid, os.WNOHANG)
    return is_alive(pid, born_at)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it stopped without a word"
