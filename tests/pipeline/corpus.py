"""A folder of traces for tests of the import, and what a workspace holds, as a value that can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from analysis.model import Trace, encode
from analysis.workspace import SCHEMAS, Snapshot, Workspace
from benchmarks.simulation import SimulationPolicy, simulate

#: What an import writes.
INPUTS = ("traces", "agents", "events", "texts", "subtasks", "candidates", "claims", "relations", "labels", "problems", "raw")


def write(path: Path, lines: Iterable[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def write_traces(path: Path, traces: Iterable[Trace]) -> Path:
    return write(path, map(encode, traces))


def write_corpus(folder: Path, *, n_tasks: int, is_damaged: bool = True) -> int:
    """Write simulated traces, nine a task, in files of 50, and runs whose labels lie in other files; damage where wanted."""
    traces = list(simulate(SimulationPolicy(n_tasks=n_tasks), seed=7))
    for first in range(0, len(traces), 50):
        lines = [encode(trace) for trace in traces[first : first + 50]]
        other = lines[0].replace(b'"world":"simulated"', b'"world":"live"')  # the same id with other content
        damage = [b"{broken", other, lines[1]] if is_damaged else []
        write(folder / f"part-{first:05d}.jsonl", [*lines, *damage])
    for n in range(20):
        write_run(folder / "histories", n)
        write_annotation(folder / "annotations", n)
    return len(traces)


def question(n: int) -> str:
    return f"{n:08x}-0000-0000-0000-000000000000"


def write_run(folder: Path, n: int) -> Path:
    """A short run in the form of AgentRx: the id is the file's name, `whowhen:hand-<question>`."""
    history = [
        {"content": f"task {n}", "role": "human"},
        {"content": "Please look", "role": "Orchestrator (-> WebSurfer)"},
        {"content": "I looked", "role": "WebSurfer"},
        {"content": "done", "role": "Orchestrator (termination condition)"},
    ]
    return write(folder / f"{question(n)}.json", [json.dumps(history).encode()])


def write_annotation(folder: Path, n: int) -> Path:
    """What a second annotator says of that run."""
    failure = {"failure_id": 1, "step_number": 3, "failed_agent": "WebSurfer", "failure_category": "Slow"}
    note = {"trajectory_id": question(n), "failures": [failure], "root_cause": {"failure_id": 1}, "failure_summary": "slow"}
    return write(folder / f"note-{n}.json", [json.dumps(note).encode()])


def contents(workspace: Workspace, tables: Iterable[str] = INPUTS) -> dict[str, list[str]]:
    """All rows of the tables as sorted text, whatever their order and their files."""
    snapshot = Snapshot(workspace)
    return {
        name: sorted(repr(list(row.values())) for row in snapshot.sql(f"select * from {name}").to_pylist()) for name in tables
    }


def stated(workspace: Workspace) -> dict[str, list[str]]:
    """The contents but for which of several equal copies of a record came first."""
    places = {"raw": ("file", "record"), "problems": ("file", "record")}
    snapshot = Snapshot(workspace)
    held = {}
    for name in INPUTS:
        kept = [column for column in SCHEMAS[name].names if column not in places.get(name, ())]
        rows = snapshot.sql(f"select * from {name}").select(kept).to_pylist()
        held[name] = sorted(repr(list(row.values())) for row in rows)
    return held


def files_of(workspace: Workspace) -> list[str]:
    """Every file below the workspace."""
    root = Path(workspace.location)
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def named_files(workspace: Workspace) -> set[str]:
    """Every file that one of the versions consists of, and the heads that say so; no version has been removed yet."""
    heads = [workspace.head_at(n) for n in range(1, workspace.head().number + 1)]
    names = {file.name for head in heads for files in head.tables.values() for file in files}
    return names | {f"heads/{head.number:08d}.json" for head in heads}


def all_traces(workspace: Workspace) -> list[Trace]:
    snapshot = Snapshot(workspace)
    ids: list[Any] = snapshot.sql("select trace_id from traces")["trace_id"].to_pylist()
    return snapshot.traces(ids)
