"""From traces to rows: how many of them an export was given, what it left out at each step, and what it wrote.

Hides that a bundle holds this as its rows and its list of what is left out, where curation's reasons stand beside the export's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
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
    """Return the steps of the bundle in a folder, in their order. Raises TrainingError where there is none."""
    manifest = read_manifest(out)
    drops = pq.read_table(out / "drops.parquet", columns=["id", "stage"]).to_pydict()
    n = Counter(drops["stage"])
    masked = [name for name, stage in zip(drops["id"], drops["stage"], strict=True) if stage == "mask"]
    written: set[str] = set()
    for split in manifest["splits"].values():
        for file in split["files"]:
            column = pq.read_table(out / file["path"], columns=["trace_id"], partitioning=None)["trace_id"]
            written.update(column.unique().to_pylist())
    made = written | {_trace_of(name, written) for name in masked}
    return [
        Step("chosen", n["split"] + n["histories"] + len(made), None),
        Step("split", n["split"], None),
        Step("histories", n["histories"], None),
        Step("made", len(made), len(masked) + manifest["n_rows"]),
        Step("mask", len(made) - len(written), len(masked)),
        Step("written", len(written), manifest["n_rows"]),
    ]


def _trace_of(row_id: str, written: Collection[str]) -> str:
    """The trace of a row, `trace#agent#number`; both names may hold the sign, so those that are known come first."""
    parts = row_id.split("#")
    names = ["#".join(parts[:n]) for n in range(1, len(parts) - 1)]
    return next((name for name in names if name in written), names[-1])
