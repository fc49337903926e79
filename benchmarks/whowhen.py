"""Who and when: how often the first suspect is the agent and the step that people blame, beside guesses and models.

`python benchmarks/whowhen.py [--quick] [--json]` on the real traces in ../shared/traces. Weights are learnt on other
tasks than they are judged on. The figures of model-based judges are quoted as reported, on a larger set (184 runs).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from rows import Row, command_line, row, show

from analysis.evaluation.agreement import agreements
from analysis.evaluation.localisation import MEASURES, PUBLISHED, accuracy, localise_df, truths
from analysis.pipeline import import_paths
from analysis.workspace import Snapshot, Workspace

TRACES = Path(__file__).resolve().parents[1] / "../shared/traces"
UNIT = "share of runs"
GUESSES = ("random", "first speaker", "last speaker", "most active speaker", "first result")


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
                table.append(row(what, ours, peer=guess, theirs=theirs, unit=UNIT, goal="more", met=bool(ours > theirs)))
            if measure in PUBLISHED and condition == "all":
                theirs = PUBLISHED[measure]
                peer = "model-based, as reported"
                table.append(
                    row(what, ours, peer=peer, theirs=theirs, unit=UNIT, goal=f">= {theirs:.1%}", met=bool(ours >= theirs))
                )
    return table


def people(snapshot: Snapshot) -> list[Row]:
    """How often two groups of people agree on the same runs: what no method can be expected to exceed by much."""
    labels = snapshot.sql("select trace_id, annotator, name, agent_id, event_id, is_root_cause from labels").to_pandas()
    (found,) = agreements(labels)
    return [
        row(f"{what}: two groups of people", n_same / found.n_traces, unit=UNIT, peer=f"{n_same} of {found.n_traces} runs",
            theirs=n_same / found.n_traces, goal="shown beside", met=True)
        for what, n_same in (("agent", found.n_same_agent), ("step", found.n_same_step))
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, quick="deal the tasks once instead of ten times")
    given = parser.parse_args()
    snapshot = loaded()
    found = [*rows(shares(snapshot, 10, 1 if given.quick else 10)), *people(snapshot)]
    show(found, as_json=given.json)


if __name__ == "__main__":
    main()
