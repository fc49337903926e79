"""How fast a large corpus is curated, in how much memory, and whether twice the same comes out.

`python benchmarks/curate.py [--quick] [--json]`: a workspace of synthetic rows, curated by a policy that uses every part; wall
clock and peak memory of a process of its own, reading and storing included. Nobody else curates by these gates: no peer.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
from rows import Row, command_line, row, seconds, show

from analysis.curation.policy import policy_of
from analysis.pipeline.curating import TABLES, curate_workspace, preview
from analysis.workspace import SCHEMAS, Snapshot, Workspace

COMPONENTS = ("planner", "coder", "tester", "merger")
N_TRACES, N_EVENTS = 100_000, 20
METRICS = ("q_work", "q_orchestration", "d_orch", "q_parallel_self", "parallelism")
POLICY = policy_of({
    "gates": [
        {"gate": "outcome"}, {"gate": "hedging"}, {"gate": "measure", "name": "q_orchestration", "min_quantile": 0.1},
        {"gate": "coherence", "max": 0.3, "above": "mask", "near": "queue"}, {"gate": "credit"},
    ],
    "quotas": {"min_per_mode": 100, "max_per_task": 40, "without_claims": "quota", "without_claims_share": 0.4},
    "order": {"method": "saw", "n_cycles": 4, "diversity_window": 8, "jitter_window": 16},
    "batches": {"size": 64, "tau": 0.2, "ratio_first": 0.2, "ratio_last": 0.3},
})  # fmt: skip


def corpus(folder: Path, n: int) -> Workspace:
    """Write the tables of a workspace of `n` analysed traces, 70 % of them with tied claims."""
    workspace, rng = Workspace(folder, create=True), np.random.default_rng(0)
    ids = np.array([f"bench:{k:07d}" for k in range(n)], object)
    files = {}
    for name, columns in _tables(ids, rng).items():
        size = len(columns["trace_id"])
        same = {key: value if isinstance(value, list | np.ndarray) else [value] * size for key, value in columns.items()}
        data = {c.name: pa.array(same[c.name], c.type) if c.name in same else pa.nulls(size, c.type) for c in SCHEMAS[name]}
        files[name] = [workspace.write(name, pa.table(data, schema=SCHEMAS[name]))]
    workspace.commit(workspace.head(), files, data_version="bench")
    return workspace


def _tables(ids: np.ndarray, rng: np.random.Generator) -> dict[str, dict[str, Any]]:
    n, k = len(ids), len(COMPONENTS)
    tied = np.flatnonzero(rng.random(n) < 0.7)
    changed = rng.choice(n, n // 20, replace=False)
    residual, n_tied = rng.beta(1, 4, len(tied)), len(tied)
    team, who = (np.tile(np.array(COMPONENTS, object), size) for size in (n, n_tied))
    number = np.arange(n * N_EVENTS)
    names, formula = json.dumps(COMPONENTS, separators=(",", ":")), json.dumps([f"exactly_one({', '.join(COMPONENTS)})"])
    culprits = [COMPONENTS[c : c + 1] if c else COMPONENTS[:2] for c in rng.integers(k, size=n_tied)]
    repairs = [json.dumps([{"components": names, "cost": 0.3}]) for names in culprits]
    at_level = {"level": "component", "is_last": True}
    return {
        "traces": {"trace_id": ids, "digest": ids, "format": "bench", "world": "simulated", "passed": rng.random(n) < 0.6,
                   "task_id": [f"task-{t}" for t in rng.integers(n // 20, size=n)], "n_agents": k, "n_events": N_EVENTS},
        "agents": {"trace_id": np.repeat(ids, k), "agent_id": team, "component": team},
        "events": {"trace_id": np.repeat(ids, N_EVENTS), "agent_id": np.array(COMPONENTS, object)[number % k],
                   "event_id": [f"e{e}" for e in number % N_EVENTS]},
        "claims": {"trace_id": np.repeat(ids[tied], k), "component": who, "proposition": who, "claim_id": who,
                   "p": rng.random(n_tied * k).round(3), "level": "component", "is_placeholder": False},
        "cliques": {"trace_id": ids[tied], "level": "component", "components": names, "propositions": names,
                    "relations": formula},
        "residuals": {"trace_id": ids[tied], **at_level, "residual": residual, "residual_norm": residual, "residual_max": 1.0,
                      "residual_debiased": [0.9 * r if n % 2 else None for n, r in enumerate(residual)],
                      "minimal_repairs": repairs, "coupling_bits": rng.choice([0.0, 1.0, 2.0], n_tied)},
        "attribution": {"trace_id": np.repeat(ids[tied], k), **at_level, "component": who, "shapley": rng.random(n_tied * k)},
        "metrics": {"trace_id": np.repeat(ids, len(METRICS)), "name": np.tile(np.array(METRICS, object), n),
                    "value": rng.random(n * len(METRICS))},
        "mode_members": {"trace_id": ids[tied], "source": "residual",
                         "mode_id": [f"m{m}" for m in rng.integers(12, size=n_tied)]},
        "family_members": {"trace_id": ids, "family_id": [f"f{f}" for f in rng.integers(40, size=n)]},
        "effects": {"trace_id": ids[changed], "event_id": "e3", "metric": "passed",
                    "delta_q": rng.normal(-0.1, 0.2, len(changed)), "credit": rng.normal(0.1, 0.2, len(changed)), "low": -0.4,
                    "high": -0.1, "n": 16, "confirmed": True, "evidence": "interventional", "seed_block": "confirm"},
    }  # fmt: skip


def curated(folder: str, name: str) -> tuple[float, float, dict[str, int], str]:
    """Curate in this process; return seconds, peak memory in bytes, counts, and a digest of everything that was stored."""
    workspace = Workspace(folder)
    started = time.perf_counter()
    counts = curate_workspace(workspace, POLICY, name=name)["counts"]
    took_s = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    digest = hashlib.blake2b()
    for table in TABLES:
        stored = Snapshot(workspace).sql(
            f"select * exclude dataset from {table} where dataset = $name order by all", {"name": name}
        )
        digest.update(stored.to_pandas().to_csv(index=False).encode())
    return took_s, peak, counts, digest.hexdigest()


def measured(n: int) -> list[Row]:
    """Curate the same corpus twice, each time in a process of its own, and preview the policy."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = corpus(Path(folder) / "w", n)
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            first, again = (pool.apply(curated, (workspace.location, name)) for name in ("one", "two"))
        snapshot = Snapshot(workspace)
        preview(snapshot, POLICY)
        shown = seconds(lambda: preview(snapshot, POLICY), 3)
    took_s, peak, counts, digest = first
    what = f"{n:,} traces of {N_EVENTS} events curated"
    adds_up = sum(counts[name] for name in ("kept", "masked", "dropped", "queued")) == counts["input"] == n
    none: dict[str, Any] = {"peer": "-", "theirs": None}
    return [
        row(what, took_s, unit="s", goal="< 60 s", met=took_s < 60, **none),
        row(f"{what}: traces", n / took_s, unit="traces/s", goal=None, met=True, **none),
        row(f"{what}: peak memory", peak / 1e9, unit="GB", goal="< 2 GB", met=peak < 2e9, **none),
        row(
            f"{what}: rows of the funnel's ends that add up to the input",
            float(adds_up),
            unit="share",
            goal="1",
            met=adds_up,
            **none,
        ),
        row(f"{what} twice: the same rows", float(digest == again[3]), unit="share", goal="1", met=digest == again[3], **none),
        row(f"preview of a policy on 2,000 of {n:,} traces, CPU", shown, unit="s", goal="< 1 s", met=shown < 1, **none),
    ]


def main() -> None:
    """Measure and print."""
    given = command_line(__doc__, quick="the same").parse_args()
    show(measured(N_TRACES), as_json=given.json)


if __name__ == "__main__":
    main()
