"""How fast programs run in the sandbox, side by side with a plain subprocess that holds nothing.

`python benchmarks/sandbox.py [--quick] [--json]`: wall seconds, since what counts is how long a person waits. The programs are
those of HumanEval where they lie beside the checkout, else one small function.
"""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from rows import Row, command_line, row, seconds, show

from analysis.counterfactual.sandbox import Case, Job, Sandbox, judge, judge_many, open_sandbox
from analysis.counterfactual.sandbox.attempts import attempt_all
from analysis.errors import SandboxError

HUMAN_EVAL = Path(__file__).resolve().parents[2] / "shared/benchmarks/humaneval/HumanEval.jsonl.gz"
WORKERS = 4
N_PER_S = {"own": 30, "bubblewrap": 10}  # bubblewrap starts Python anew for each program
wall_s = partial(seconds, clock=time.perf_counter)
PEER = "plain subprocess, holds nothing"


def suites() -> list[Job]:
    """The references of HumanEval with their tests."""
    if not HUMAN_EVAL.is_file():
        return [Job(program="def f(x):\n    return x + 1", tests="assert f(1) == 2")] * 164
    with gzip.open(HUMAN_EVAL, "rt", encoding="utf-8") as file:
        given = [json.loads(line) for line in file]
    return [
        Job(program=task["prompt"] + task["canonical_solution"], tests=f"{task['test']}\ncheck({task['entry_point']})")
        for task in given
    ]


def plain(text: str) -> bool:
    """Run a program as one would without a sandbox."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return subprocess.run([sys.executable, "-I", "-S", file.name], capture_output=True, timeout=30).returncode == 0


def backends() -> dict[str, dict[str, Any]]:
    """The ways to run a program that work here, fastest first."""
    ways: dict[str, dict[str, Any]] = {
        "own layers": {"backend": "own"},
        "own layers, namespaces refused": {"backend": "own", "without": ["namespaces"]},
        "bubblewrap around them": {"backend": "bubblewrap"},
    }
    found = {}
    for name, way in ways.items():
        try:
            open_sandbox(**way).close()
        except SandboxError:
            continue
        found[name] = way
    return found


def throughput(sandbox: Sandbox, name: str, jobs: list[Job]) -> Row:
    """Programs a second, several at once, against as many plain subprocesses at once."""
    judge_many(jobs[:4], workers=WORKERS, sandbox=sandbox)
    verdicts: list[Any] = []
    ours = len(jobs) / wall_s(lambda: verdicts.extend(judge_many(jobs, workers=WORKERS, sandbox=sandbox)))
    texts = [f"{job.program}\n{job.tests}" for job in jobs]
    with ThreadPoolExecutor(WORKERS) as pool:
        theirs = len(jobs) / wall_s(lambda: list(pool.map(plain, texts)))
    n_passed = sum(verdict.passed for verdict in verdicts)
    what = f"programs with their tests, {name}, {WORKERS} at a time; {n_passed} of {len(jobs)} pass"
    goal = N_PER_S[sandbox.layers.backend]
    is_met = ours >= goal and n_passed == len(jobs)
    return row(what, ours, peer=PEER, theirs=theirs, unit="programs/s", goal=f">= {goal} a second", met=is_met)


def start_up(sandbox: Sandbox, name: str, n: int) -> Row:
    """Median time of one small verdict in an open sandbox, against the start of a plain subprocess."""
    program, cases = "def f(x): return x", [Case([1], 1)]
    judge(program, "f", cases, sandbox=sandbox)
    ours = statistics.median(wall_s(lambda: judge(program, "f", cases, sandbox=sandbox)) for _ in range(n))
    theirs = statistics.median(wall_s(lambda: plain(program)) for _ in range(n))
    goal = 0.25
    return row(f"one verdict, {name}", ours, peer=PEER, theirs=theirs, unit="s", goal=f"<= {goal} s", met=ours <= goal)


def opening(name: str, way: dict[str, Any], n: int) -> Row:
    """Median time to start a launcher and find which layers hold."""
    ours = statistics.median(wall_s(lambda: open_sandbox(**way).close()) for _ in range(n))
    return row(f"start the launcher, {name}", ours, peer="-", theirs=None, unit="s", goal="<= 1 s", met=ours <= 1)


def holding() -> Row:
    """Small attacks that get through the whole sandbox."""
    through = sum(attempt.outcome == "got through" for attempt in attempt_all())
    return row("small attacks that get through", through, peer="-", theirs=None, unit="attacks", goal="0", met=through == 0)


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, quick="fewer repeats")
    given = parser.parse_args()
    jobs, n = suites(), 10 if given.quick else 40
    rows = [holding()]
    for name, way in backends().items():
        with open_sandbox(**way) as sandbox:
            rows += [throughput(sandbox, name, jobs), start_up(sandbox, name, n)]
        rows.append(opening(name, way, n // 4))
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
