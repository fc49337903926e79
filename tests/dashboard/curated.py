"""A workspace of small runs of which a policy keeps, masks, drops and queues some, with the data set it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.curation.policy import policy_of
from analysis.model import Agent, Claim, Event, Outcome, Relation, Source, Task, Trace
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.curating import curate_workspace
from analysis.workspace import Workspace
from tests.pipeline.corpus import write_traces

NAME = "small"
POLICY: dict[str, Any] = {
    "gates": [{"gate": "hedging"}, {"gate": "coherence", "max": 0.2, "above": "mask"}], "segments": {"ambiguous": "queue"},
    "batches": {"size": 2, "tau": 0.3},
}  # fmt: skip
#: Who quotes what, and what ties it: coherent; only c is to blame; a or b is to blame; nothing said; nothing tied.
RUNS: dict[str, tuple[dict[str, float], tuple[str, ...]]] = {
    "sharp-0": ({"a": 0.9, "b": 0.1}, ("exactly_one(a, b)",)),
    "sharp-1": ({"a": 0.8, "b": 0.25}, ("exactly_one(a, b)",)),
    "blame-0": ({"a": 0.9, "b": 0.1, "c": 0.1}, ("exactly_one(a, b)", "iff(a, c)")),
    "torn-0": ({"a": 0.9, "b": 0.8}, ("exactly_one(a, b)",)),
    "torn-1": ({"a": 0.9, "b": 0.9}, ("exactly_one(a, b)",)),
    "torn-2": ({"a": 1.0, "b": 0.9}, ("exactly_one(a, b)",)),
    "hedge-0": ({"a": 0.5, "b": 0.5}, ("exactly_one(a, b)",)),
    "loose-0": ({"a": 0.9, "b": 0.8}, ()),
}


def run(name: str) -> Trace:
    """Return one of `RUNS`, in which each component quotes the proposition of its own name in an event of its own."""
    quotes, relations = RUNS[name]
    events = [
        Event(event_id=f"says-{who}", kind="act", action="model_call", agent_id=who, order=n, content=f"{who} is sure: {p}")
        for n, (who, p) in enumerate(quotes.items())
    ]
    return Trace(
        trace_id=f"counterpoint:{name}", world="recorded", source=Source(format="counterpoint"),
        task=Task(task_id=name, text=f"Task {name}"), agents=tuple([Agent(agent_id=who, component=who) for who in quotes]),
        events=tuple(events), outcome=Outcome(passed=name.startswith("sharp")),
        claims=tuple([Claim(claim_id=w, component=w, proposition=w, p=p, event_id=f"says-{w}") for w, p in quotes.items()]),
        relations=tuple([Relation(relation_id=text, formula=text) for text in relations]),
    )  # fmt: skip


def make(folder: Path) -> Workspace:
    """Make the workspace below a folder."""
    workspace = Workspace(folder / "w", create=True)
    import_paths(workspace, [write_traces(folder / "runs.jsonl", map(run, RUNS))])
    analyse(workspace, only=["quality", "claims", "residuals"])
    curate_workspace(workspace, policy_of(POLICY), name=NAME)
    return workspace
