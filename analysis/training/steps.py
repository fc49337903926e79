"""From traces to rows: how many of them an export was given, what it left out at each step, and what it wrote.

Hides that a bundle holds this as its rows and its list of what is left out, where curation's reasons stand beside the export's.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from analysis.training.bundle import read_manifest

#: What each step is called where people read it; `split`, `histories` and `mask` are the stages of an export's own drops.
WORDS = {
    "chosen": "chosen: kept or masked by curation, or fit the filter", "split": "left out: would join two splits",
    "histories": "left out: no agent wrote a word", "made": "made into rows", "mask": "left out: everything in it is masked",
    "written": "written",
}  # fmt: skip


class Step(NamedTuple):
    """A step, a key of `WORDS`, with its traces and rows; None where there are no rows yet.

    chosen = split + histories + made, and made = mask + written, in traces and in rows. A trace counts as masked where all of
    its rows are.
    """

    step: str
    n_traces: int
    n_rows: int | None


def steps_of(out: Path) -> list[Step]:
    """Return the steps of the bundle in a folder, in their order; none where an older version wrote it, which states none.

    Raises TrainingError where there is none.
    """
    manifest = read_manifest(out)
    n_rows, n_traces = manifest["n_rows"], manifest.get("n_traces")
    if n_traces is None:
        return []
    n = Counter(pq.read_table(out / "drops.parquet", columns=["stage"])["stage"].to_pylist())
    n_made = n_traces["chosen"] - n["split"] - n["histories"]
    return [
        Step("chosen", n_traces["chosen"], None),
        Step("split", n["split"], None),
        Step("histories", n["histories"], None),
        Step("made", n_made, n["mask"] + n_rows),
        Step("mask", n_made - n_traces["written"], n["mask"]),
        Step("written", n_traces["written"], n_rows),
    ]
