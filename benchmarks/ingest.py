"""How fast traces come in, beside what a user would write: a loop of `json.loads` into Parquet, and pandas.

python benchmarks/ingest.py [--quick] [--json] [--events 1000000]

Each measurement runs in a process of its own; CPU seconds and peak memory are that process's. With --quick the
peers run on a stated share of the data and are scaled by item; our side always runs in full.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
QUICK_SHARE = 0.2


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="peers on a sample of the data, scaled")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part[0]](*map(Path, options.part[1:]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), options.events, QUICK_SHARE if options.quick else 1.0)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        met = {True: "met", False: "MISSED", None: ""}[row["met"]]
        numbers = f"ours {row['ours']:.4g}, peer {row['peer']}, {row['unit']}, ratio {row['ratio']}"
        print(f"{row['measure']}: {numbers}, goal {row['goal']} {met}")


def measure(folder: Path, n_events: int, peer_share: float) -> list[dict[str, Any]]:
    """Return one row a measure: measure, ours, peer, unit, ratio, goal, met."""
    corpus = folder / "corpus.jsonl"
    made = run_corpus(corpus, n_events // 54)
    sample = take(corpus, folder / "sample.jsonl", peer_share)
    ours, peer = part("ours", corpus, folder / "store"), part("loop", sample, folder / "loop")
    n_ours, n_peer = made["events"], peer["n_events"]
    speed, peer_speed = n_ours / ours["cpu_s"], n_peer / peer["cpu_s"]
    peer_memory = peer["peak_mib"] * n_ours / n_peer
    page, pandas = part("page", folder / "store"), part("pandas", folder / "store")
    few, one = folder / "few.jsonl", folder / "one.jsonl"
    spans(few, 200, 50)
    spans(one, 1, 100_000)
    many, deep = part("ours", few, folder / "few"), part("ours", one, folder / "one")
    note = "" if peer_share == 1 else f" (peer on {peer_share:.0%} of the data, scaled)"
    rates, sizes = speed / peer_speed, ours["peak_mib"] / peer_memory
    pages, growth = pandas["ms"] / page["ms"], deep["cpu_s"] / many["cpu_s"]
    return [
        row("validated ingest over a json loop" + note, speed, peer_speed, "events/CPU s", rates, goal=">= 2", met=rates >= 2),
        row("peak memory of it", ours["peak_mib"], peer_memory, "MiB", sizes, goal="<= 0.25", met=sizes <= 0.25),
        row("filter and group for a page, median", page["ms"], pandas["ms"], "ms", pages,
            goal=">= 3 and < 100 ms", met=pages >= 3 and page["ms"] < 100),
        row("10,000 spans of 200 traces to the store", many["cpu_s"], None, "CPU s", None, goal="<= 2", met=many["cpu_s"] <= 2),
        row("one trace of 100,000 spans to the store", deep["cpu_s"], many["cpu_s"], "CPU s", growth,
            goal="<= 12", met=growth <= 12),
        row("peak memory of it", deep["peak_mib"], None, "MiB", None, goal="<= 1024", met=deep["peak_mib"] <= 1024),
    ]  # fmt: skip


def row(measure: str, ours: float, peer: float | None, unit: str, ratio: float | None, *, goal: str, met: bool) -> dict[str, Any]:
    """Return one measure as it is printed."""
    rounded = {"ours": round(ours, 4), "peer": peer and round(peer, 4), "ratio": ratio and round(ratio, 3)}
    return {"measure": measure, "unit": unit, "goal": goal, "met": met, **rounded}


def part(name: str, *arguments: Path) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, __file__, "--part", name, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def run_corpus(target: Path, n_traces: int) -> dict[str, Any]:
    """Write a corpus of simulated traces; return what it says of it."""
    command = [
        sys.executable,
        str(ROOT / "benchmarks/corpus.py"),
        "--traces",
        str(n_traces),
        "--seed",
        "1",
        "--json",
        "--out",
        str(target),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    made: dict[str, Any] = json.loads(result.stdout)
    return made


def take(source: Path, target: Path, share: float) -> Path:
    """Write the first lines of a corpus, whose traces are drawn independently; all of it for a share of 1."""
    if share == 1:
        return source
    size = 0
    with source.open("rb") as lines, target.open("wb") as out:
        for line in lines:
            if (size := size + len(line)) > share * source.stat().st_size:
                break
            out.write(line)
    return target


def spans(target: Path, n_traces: int, n_spans: int) -> None:
    """Write OTLP JSON, at most 1,000 spans a request: agents with model and tool calls below them, twelve at a time."""
    start = 1_790_000_000_000_000_000
    with target.open("w", encoding="utf-8") as out:
        for t in range(n_traces):
            for first in range(0, n_spans, 1000):
                batch = [_span(t, n, start) for n in range(first, min(first + 1000, n_spans))]
                out.write(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": batch}]}]}) + "\n")


def _span(t: int, n: int, start: int) -> dict[str, Any]:
    parent = 0 if n == 0 else (n - 1) // 12 * 12 if n % 12 == 0 else n // 12 * 12
    kind = "AGENT" if n % 12 == 0 else "LLM" if n % 3 else "TOOL"
    values = {"openinference.span.kind": kind, "input.value": f"question {n} " * 8, "output.value": f"answer {n} " * 8}
    values |= {"agent.name": f"agent-{n // 12 % 5}"} if kind == "AGENT" else {}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
    if kind == "LLM":
        attributes += [{"key": f"llm.token_count.{side}", "value": {"intValue": "100"}} for side in ("prompt", "completion")]
    return {
        "traceId": f"{t + 1:032x}", "spanId": f"{n + 1:016x}", "parentSpanId": f"{parent + 1:016x}" if n else "",
        "name": f"{kind.lower()} {n}", "attributes": attributes,
        "startTimeUnixNano": str(start + n * 1_000_000), "endTimeUnixNano": str(start + (n + 9) * 1_000_000),
    }  # fmt: skip


def ours(source: Path, store: Path) -> dict[str, Any]:
    """Import through the product: validated, assembled, durable."""
    from analysis.pipeline import import_paths
    from analysis.workspace import Workspace

    import_paths(Workspace(store, create=True), [source])
    return _cost()


def loop(source: Path, target: Path) -> dict[str, Any]:
    """What a user writes: json.loads a line, rows of events, texts and traces in lists, three Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    events: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    traces: list[dict[str, Any]] = []
    with source.open("rb") as lines:
        for line in lines:
            trace = json.loads(line)
            for n, event in enumerate(trace["events"]):
                texts.append({"trace_id": trace["trace_id"], "position": n, "content": event.pop("content", None)})
                events.append({"trace_id": trace["trace_id"], "position": n, **{k: _flat(v) for k, v in event.items()}})
            rest = {k: _flat(v) for k, v in trace.items() if k != "events"}
            traces.append(rest | {"n_events": len(trace["events"])})
    names = sorted({name for event in events for name in event})
    target.mkdir()
    for name, rows in (("events", [{k: e.get(k) for k in names} for e in events]), ("texts", texts), ("traces", traces)):
        pq.write_table(pa.Table.from_pylist(rows), target / f"{name}.parquet", compression="zstd", row_group_size=10_000)
    return _cost() | {"n_events": len(events)}


def _flat(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def page(store: Path) -> dict[str, Any]:
    """Filter events by kind and tokens, group by agent: as a page asks the store."""
    from analysis.workspace import Snapshot, Workspace

    snapshot = Snapshot(Workspace(store))
    query = """select agent_id, name, count(*) as n, avg(output_tokens) as mean, quantile_cont(output_tokens, 0.95) as high
        from events where kind = 'act' and output_tokens > 20 group by agent_id, name order by n desc"""
    return {"ms": _median_ms(lambda: snapshot.sql(query))}


def pandas(store: Path) -> dict[str, Any]:
    """The same with a pandas frame of plain strings, already in memory."""
    from analysis.workspace import Snapshot, Workspace

    frame = Snapshot(Workspace(store)).sql("select kind, agent_id, name, output_tokens from events").to_pandas()

    def run() -> object:
        some = frame[(frame["kind"] == "act") & (frame["output_tokens"] > 20)]
        return some.groupby(["agent_id", "name"], dropna=False)["output_tokens"].agg(["size", "mean", lambda v: v.quantile(0.95)])

    return {"ms": _median_ms(run)}


def _median_ms(run: Callable[[], object], n: int = 7) -> float:
    times = []
    for _ in range(n):
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
    return median(times)


def _cost() -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_s": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}


PARTS: dict[str, Callable[..., dict[str, Any]]] = {"ours": ours, "loop": loop, "page": page, "pandas": pandas}

if __name__ == "__main__":
    main()
