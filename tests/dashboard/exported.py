"""A workspace with a curated data set: two runs that passed, one that failed; a mask, and credit of two decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from analysis.curation.policy import find_policy
from analysis.model import Agent, Event, Outcome, Task, Trace
from analysis.pipeline import import_paths
from analysis.pipeline.curating import curate_workspace
from analysis.workspace import SCHEMAS, Workspace
from tests.pipeline.corpus import write_traces

DATASET = "mine"
HOSTILE = '<img src=x onerror="alert(1)"> **Do** it, ann@firm.com'
#: -delta_q is 0.5 with an interval that excludes 0, and -0.25 with one that holds it.
_EFFECTS: dict[str, dict[str, Any]] = {
    "d": {"delta_q": -0.5, "low": -0.8, "high": -0.2, "credit": 0.5, "operator": "delegate-other"},
    "s": {"delta_q": 0.25, "low": -0.1, "high": 0.6, "credit": -0.25, "operator": "stop-later"},
}


def run(name: str, *, passed: bool, n_hints: int = 0) -> Trace:
    """Return a run of a lead that hands a task to a coder, tells it more, and hears the answer."""
    call = {"role": "input", "content": '{"path": "a.txt"}'}
    hints = [
        Event(event_id=f"h{n}", kind="communicate", agent_id="lead", targets=("coder",), content=f"Hint {n}.", order=n + 4)
        for n in range(n_hints)
    ]
    events = (
        Event(event_id="d", kind="delegate", agent_id="lead", targets=("coder",), content=HOSTILE, order=0),
        Event(
            event_id="c", kind="act", action="tool_call", agent_id="coder", name="read", messages=(call,), content="two", order=1
        ),
        Event(event_id="w", kind="communicate", agent_id="coder", targets=("lead",), content=f"{name} is done.", order=2),
        Event(event_id="s", kind="stop", agent_id="lead", content="Done.", parents=("w",), order=3),
        *hints,
    )
    agents = (Agent(agent_id="lead", component="planner"), Agent(agent_id="coder", component="coder", parent_id="lead"))
    task = Task(task_id=f"task-{name}", text=f"Please do {name}.")
    return Trace(
        trace_id=f"counterpoint:{name}",
        world="simulated",
        task=task,
        agents=agents,
        events=events,
        outcome=Outcome(passed=passed),
    )


def make(folder: Path) -> Workspace:
    """Make the workspace below a folder."""
    workspace = Workspace(folder / "w", create=True)
    runs = [run("alpha", passed=True), run("beta", passed=True, n_hints=30), run("gamma", passed=False)]
    import_paths(workspace, [write_traces(folder / "runs.jsonl", runs)])
    curate_workspace(workspace, find_policy("default"), name=DATASET)
    same = {"study": "s", "trace_id": "counterpoint:alpha", "metric": "passed", "parameters": "{}", "n": 8, "confirmed": True}
    same |= {"evidence": "interventional", "world": "simulated", "seed_block": "confirm", "event_kind": "delegate", "task": "t"}
    mask = {
        "dataset": DATASET,
        "trace_id": "counterpoint:beta",
        "component": "coder",
        "event_id": "",
        "keep": False,
        "weight": 1.0,
    }
    _append(workspace, "effect_runs", [{"study": "s", "seed": 0, "is_sound": True}])
    _append(workspace, "effects", [same | {"event_id": event} | effect for event, effect in _EFFECTS.items()])
    failed = {"study": "failed", "event_id": "s", "delta_q": 9.0, "credit": -9.0, "operator": "stop-earlier"}
    _append(workspace, "effect_runs", [{"study": "failed", "seed": 0, "is_sound": False}])
    _append(workspace, "effects", [same | failed])
    _append(workspace, "dataset_segments", [mask | {"reason": "masked by hand"}])
    return workspace


def _append(workspace: Workspace, table: str, rows: list[dict[str, Any]]) -> None:
    workspace.append(table, pa.Table.from_pylist(rows, schema=SCHEMAS[table]))
