"""Who and when: how often the first suspect is the agent and the step that people blame, beside guesses and models.

`python benchmarks/whowhen.py [--quick] [--json]` on the real traces in ../shared/traces. Weights are learnt on other
tasks than they are judged on. The figures of model-based judges are quoted as reported, on a larger set (184 runs).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from analysis.evaluation.agreement import agreements
from analysis.evaluation.localisation import MEASURES, PUBLISHED, accuracy, localise_df, truths
from analysis.pipeline import import_paths
from analysis.workspace import Snapshot, Workspace

TRACES = Path(__file__).resolve().parents[1] / "../shared/traces"
GUESSES = ("random", "first speaker", "last speaker", "most active speaker", "first result")

Row = dict[str, Any]


def row(measure: str, ours: float, *, peer: str, theirs: float, goal: str, met: bool) -> Row:
    """One line of the result; the ratio is ours over theirs."""
    ratio = round(ours / theirs, 2) if theirs else None
    values = {"measure": measure, "ours": round(ours, 4), "peer": peer, "peer_value": round(theirs, 4), "unit": "share of runs"}
    return {**values, "ratio": ratio, "goal": goal, "met": met}


def loaded() -> Snapshot:
    """A workspace of the annotated runs."""
    store = Workspace(Path(tempfile.mkdtemp()), create=True)
    import_paths(store, [TRACES / "whowhen", TRACES / "agentrx"])
    return Snapshot(store)


def shares(snapshot: Snapshot, folds: int, n_deals: int) -> pd.DataFrame:
    """The shares of hits and their intervals, as means over several ways of dealing the tasks."""
    traces = list(snapshot.traces(sorted(snapshot.sql("select trace_id from traces").to_pandas()["trace_id"])))
    pairs = [(trace, truth) for trace in traces for truth in truths(trace)]
    deals = []
    for seed in range(n_deals):
        rng = np.random.default_rng(seed)
        hits = localise_df([trace for trace, _ in pairs], [truth for _, truth in pairs], folds=folds, rng=rng)
        deals.append(accuracy(hits, rng=rng))
    return deals[0].assign(**{name: sum([deal[name] for deal in deals]) / n_deals for name in ("value", "low", "high")})


def rows(found: pd.DataFrame) -> list[Row]:
    """Ours against each guess and what was published, by condition and annotator."""
    table = []
    for (condition, annotator), group in found.groupby(["condition", "annotator"], sort=False):
        values = group.set_index(["method", "measure"])
        for measure in MEASURES:
            ours, low, high, n = values.loc[("ours", measure), ["value", "low", "high", "n"]]
            what = f"{measure}, {condition}, by {annotator}: {ours:.1%} [{low:.1%}, {high:.1%}], n = {n:.0f}"
            for guess in GUESSES:
                theirs = float(values.loc[(guess, measure), "value"])
                table.append(row(what, ours, peer=guess, theirs=theirs, goal="more", met=bool(ours > theirs)))
            if measure in PUBLISHED and condition == "all":
                theirs = PUBLISHED[measure]
                peer = "model-based, as reported"
                table.append(row(what, ours, peer=peer, theirs=theirs, goal=f">= {theirs:.1%}", met=bool(ours >= theirs)))
    return table


def people(snapshot: Snapshot) -> list[Row]:
    """How often two groups of people agree on the same runs: what no method can be expected to exceed by much."""
    labels = snapshot.sql("select trace_id, annotator, name, agent_id, event_id, is_root_cause from labels").to_pandas()
    (found,) = agreements(labels)
    return [
        row(f"{what}: two groups of people", n_same / found.n_traces, peer=f"{n_same} of {found.n_traces} runs",
            theirs=n_same / found.n_traces, goal="shown beside", met=True)
        for what, n_same in (("agent", found.n_same_agent), ("step", found.n_same_step))
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="deal the tasks once instead of ten times")
    parser.add_argument("--json", action="store_true", help="print the rows as one JSON list")
    given = parser.parse_args()
    snapshot = loaded()
    found = [*rows(shares(snapshot, 10, 1 if given.quick else 10)), *people(snapshot)]
    if given.json:
        print(json.dumps(found, indent=1))
        return
    for r in found:
        verdict = "met " if r["met"] else "MISS"
        print(f"{verdict} {r['measure']} against {r['peer_value']:.1%} ({r['peer']}; goal: {r['goal']})")


if __name__ == "__main__":
    main()
