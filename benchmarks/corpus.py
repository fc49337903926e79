"""Writes a large simulated corpus, the food of the other measurements: `python benchmarks/corpus.py --traces 10000 --out FILE`.

`simulation` makes the traces; memory stays bounded because each trace is written as it comes.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import islice
from pathlib import Path

from simulation import SimulationPolicy, simulate

from analysis.model import encode


def write_corpus(out: Path, *, n_traces: int, n_events: int, seed: int) -> dict[str, float]:
    """Write `n_traces` traces of about `n_events` events, one a line; return counts, bytes and seconds."""
    policy = SimulationPolicy(name="corpus", n_tasks=n_traces, n_events=n_events)
    started = time.perf_counter()
    events = size = 0
    with out.open("wb") as file:
        for trace in islice(simulate(policy, seed=seed), n_traces):
            events += len(trace.events)
            size += file.write(encode(trace) + b"\n")
    seconds = time.perf_counter() - started
    return {
        "traces": n_traces, "events": events, "bytes": size, "seconds": round(seconds, 3), "events_per_s": round(events / seconds)
    }  # fmt: skip


def main() -> None:
    """Read the command line, write the corpus, say what was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, required=True, help="how many traces")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="the JSONL file to write")
    parser.add_argument("--events-per-trace", type=int, default=50, help="about how many events a trace has")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    given = parser.parse_args()
    summary = write_corpus(given.out, n_traces=given.traces, n_events=given.events_per_trace, seed=given.seed)
    print(json.dumps(summary) if given.json else ", ".join(f"{name} {value:,}" for name, value in summary.items()))


if __name__ == "__main__":
    main()
