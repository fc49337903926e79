"""Measures the export: `python benchmarks/export.py [--quick] [--json]`.

60,000 simulated traces of about 15 events, curated in a shuffled order, become a bundle in two processes, twice: seconds,
memory, and whether the bytes are the same. Secrets are looked for.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from corpus import write_corpus
from rows import Row, command_line, row, show

from analysis.pipeline import import_paths
from analysis.pipeline.exporting import export
from analysis.workspace import SCHEMAS, Snapshot, Workspace

N_TRACES, N_EVENTS = 60_000, 12
MOST_S = 20.0
NAME = "shuffled"


def main() -> None:
    """Read the command line, measure, print."""
    parser = command_line(__doc__, quick="6,000 traces, without a goal for the time")
    parser.add_argument("--workspace", type=Path, help="a workspace to use again, or to make there")
    given = parser.parse_args()
    n = 6_000 if given.quick else N_TRACES
    with tempfile.TemporaryDirectory() as folder:
        show(measure(Path(folder), given.workspace or Path(folder) / "w", n), as_json=given.json)


def measure(folder: Path, place: Path, n: int) -> list[Row]:
    """Return the rows; `place` is filled unless a workspace is there."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # whose memory is not that of the export
        pool.submit(corpus, folder, place, n).result()
    workspace = Workspace(place)
    found = []
    for name in ("a", "b"):
        started, cpu = time.perf_counter(), sum(os.times()[:4])
        peak, manifest = with_peak(lambda name=name: export(workspace, NAME, folder / name).manifest)
        found.append((time.perf_counter() - started, sum(os.times()[:4]) - cpu, peak, manifest))
    wall, cpu, peak, manifest = min(found, key=lambda one: one[0])
    goal = f"< {MOST_S:g} s" if n == N_TRACES else None  # fewer traces would measure how long processes take to start
    same = digest(folder / "a") == digest(folder / "b")
    rate = manifest["n_rows"] / wall
    return [
        row(
            f"export of {n:,} traces", wall, peer="CPU of all", theirs=cpu, unit="s", goal=goal, met=goal is None or wall < MOST_S
        ),
        row("rows written", rate, peer="", theirs=None, unit="rows/s", goal=None, met=True),
        row("memory of the largest process", peak.one, peer="", theirs=None, unit="MB", goal="< 200 MB", met=peak.one < 200),
        row("memory of all processes", peak.all, peer="", theirs=None, unit="MB", goal=None, met=True),
        row("twice the same bytes", float(same), peer="", theirs=None, unit="share", goal="1", met=same),
    ]


def corpus(folder: Path, place: Path, n: int) -> None:
    """Make a workspace of `n` traces and a data set of all of them in another order than they are stored, if it is not there."""
    if not (place / "heads").is_dir():
        write_corpus(folder / "corpus.jsonl", n_traces=n, n_events=N_EVENTS, seed=0)
        import_paths(Workspace(place, create=True), [folder / "corpus.jsonl"])
        (folder / "corpus.jsonl").unlink()
    workspace = Workspace(place)
    snapshot = Snapshot(workspace)
    if snapshot.head.n_rows("dataset_rows"):
        return
    ids = snapshot.sql("select trace_id from traces order by trace_id")["trace_id"].to_pylist()
    order = np.random.default_rng(0).permutation(len(ids)).tolist()
    data: dict[str, list[dict[str, Any]]] = {
        "datasets": [{"dataset": NAME, "policy": "", "policy_digest": "", "seed": 0}],
        "dataset_rows": [
            {"dataset": NAME, "trace_id": i, "outcome": "kept", "position": n, "weight": 1.0}
            for i, n in zip(ids, order, strict=True)
        ],
    }
    tables = {name: [workspace.write(name, pa.Table.from_pylist(rows, schema=SCHEMAS[name]))] for name, rows in data.items()}
    workspace.commit(snapshot.head, tables)


class Peak(NamedTuple):
    """Memory in MB: the most that any one process held, and that all did at once, pages that they share counted once."""

    one: float = 0.0
    all: float = 0.0


def with_peak(work: Callable[[], Any]) -> tuple[Peak, Any]:
    """Return the most memory that this process and those below it held while working, and what came of it."""
    most, done = [Peak()], threading.Event()

    def watch() -> None:
        n = 0
        while not done.wait(0.1):
            pids = family(os.getpid())
            held = 0.0 if n % 10 else sum(map(proportional, pids))  # the kernel takes milliseconds to count these
            most[0] = Peak(max(most[0].one, *map(resident, pids)), max(most[0].all, held))
            n += 1

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found = work()
    finally:
        done.set()
        watcher.join()
    return most[0], found


def family(pid: int) -> list[int]:
    """Return a process and all below it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        others = [Path(task, "children").read_text(encoding="utf-8").split() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    return [pid, *(one for child in {*children, *(c for more in others for c in more)} for one in family(int(child)))]


def resident(pid: int) -> float:
    """Return the memory that a process holds, in MB."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
    except OSError:
        return 0.0


def proportional(pid: int) -> float:
    """Return the memory that a process holds, in MB; pages that others use too count in part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("Pss:")), 0.0)


def digest(folder: Path) -> str:
    """Return the hash of all files below a folder, and remove it."""
    hasher = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            hasher.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    shutil.rmtree(folder)
    return hasher.hexdigest()


if __name__ == "__main__":
    main()
