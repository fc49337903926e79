"""A workspace with studies: one of runs that were executed again, one of a recorded schedule; small enough to make for a test."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import pair_frame
from analysis.counterfactual.runs import Job, recipes, run_job
from analysis.counterfactual.sandbox import open_sandbox
from analysis.counterfactual.scheduled import recorded_rows
from analysis.counterfactual.study import Design, Study, study
from analysis.counterfactual.teams import ready_teams
from analysis.model import Agent, Event, Groups, Trace, encode
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.effects import effect_rows, run_row, store_effects
from analysis.streams import stream
from analysis.workspace import Workspace

EXECUTED, RECORDED = "executed", "recorded"
DESIGN = Design(operators=("aggregation", "stop"), k=3, n_pairs=2, n_confirm=6, n_chosen=2)
TEAM = "hierarchical"


class Studied(NamedTuple):
    """Where the workspace is, the run in it that can be executed again, and the study of that."""

    location: str
    run: Trace
    study: Study


def recorded_runs() -> list[Trace]:
    """Return two runs of one task with a clock, in which a join waits for two workers, under two topologies."""
    rows = [("plan", (), 0.0, 1.0), ("a", ("plan",), 1.0, 11.0), ("b", ("plan",), 1.0, 3.0), ("join", ("a", "b"), 11.0, 12.0)]
    events = [Event(event_id=n, agent_id=n, kind="act", parents=p, t_start_s=s, t_end_s=e) for n, p, s, e in rows]
    team = tuple([Agent(agent_id=name, component=name) for name, *_ in rows])
    return [
        Trace(
            trace_id=f"counterpoint:recorded-{name}", world="recorded", agents=team, events=tuple(events), clock="relative",
            groups=Groups(task="t", condition=f"topology={name}"),
        )
        for name in ("tree", "chain")
    ]  # fmt: skip


def make(folder: Path) -> Studied:
    """Make the workspace below a folder."""
    with open_sandbox() as sandbox:
        judge = Judge(sandbox)
        run = run_job(Job(recipes("chain-3", 1, seed=7, first=1)[0], ready_teams()[TEAM], 1, 7), judge)
    recorded = recorded_runs()
    (folder / "runs.jsonl").write_bytes(b"".join([encode(trace) + b"\n" for trace in (run, *recorded)]))
    workspace = Workspace(folder / "w", create=True)
    import_paths(workspace, [folder / "runs.jsonl"])
    analyse(workspace, only=["quality"])
    done = study([run], folder / "pairs.jsonl", design=DESIGN)
    frame = pair_frame(done.pairs)
    store_effects(workspace, EXECUTED, effect_rows(frame, seed=0), run_row(done, frame, seed=0))
    found = [recorded_rows(trace, operators=("timing",), k=None, rng=stream(0)) for trace in recorded]
    frame = pd.DataFrame([row for one in found for row in one.rows]).assign(number=0)
    refused = {"event x of t": "delay cannot be replayed: nobody knows"}
    nothing = Study((), (), refused, 0, 0, 0, 0, ("2 of 2 traces cannot be executed again; their schedules and candidates were",))
    store_effects(workspace, RECORDED, effect_rows(frame, seed=0), run_row(nothing, frame, seed=0))
    return Studied(workspace.location, run, done)
