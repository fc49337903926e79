"""The sample traces: ready teams do tasks of the built-in bank, and the sandbox judges what they wrote.

`python -m analysis.counterfactual.samples FOLDER` makes them again; the same bytes wherever programs are run. Decides which team
does which task; `data/README.md` says what came out.
"""

from __future__ import annotations

import sys
from pathlib import Path

from analysis.counterfactual.judging import Judge
from analysis.counterfactual.runs import Job, jobs_of, recipes, run_job
from analysis.counterfactual.sandbox import open_sandbox
from analysis.counterfactual.teams import find_team
from analysis.model import encode

SAMPLE_SEED = 7
_N_TRIALS = 3
#: Which task of a shape is done, and who does it: the baseline, teams that are well led, and teams that are not.
_WHO_DOES: dict[str, tuple[int, tuple[str, ...]]] = {
    "chain-3": (1, (
        "single", "parallel", "best-of-three",
        "chatty", "dominant-agent", "echoing-verifier", "late-aggregation", "pseudo-parallelism",
    )),
    "relay-3": (0, (
        "single", "parallel", "hierarchical",
        "chatty", "dominant-agent", "overconfident-planner", "pseudo-parallelism", "stops-too-early",
    )),
    "fan-4": (1, (
        "single", "parallel", "best-of-three",
        "late-aggregation", "overconfident-planner", "serial-collapse", "stops-too-early",
    )),
    "gather-3": (1, (
        "single", "parallel", "hierarchical",
        "dominant-agent", "echoing-verifier", "overconfident-planner", "pseudo-parallelism", "serial-collapse",
    )),
    "tree-2x3-crossed-2": (1, ("single", "parallel", "overconfident-planner", "serial-collapse", "stops-too-early")),
}  # fmt: skip


def sample_jobs() -> dict[str, list[Job]]:
    """Return the runs that the samples are, by the shape of their task.

    >>> {shape: len(jobs) for shape, jobs in sample_jobs().items()}
    {'chain-3': 24, 'relay-3': 24, 'fan-4': 21, 'gather-3': 24, 'tree-2x3-crossed-2': 15}
    """
    found = {}
    for shape, (number, names) in _WHO_DOES.items():
        tasks, teams = recipes(shape, 1, seed=SAMPLE_SEED, first=number), [find_team(name) for name in names]
        found[shape] = jobs_of(tasks, teams, n_trials=_N_TRIALS, seed=SAMPLE_SEED)
    return found


def write_samples(folder: Path) -> dict[str, int]:
    """Make all runs anew, write them into one file a task, and return file name -> runs.

    Raises SandboxError where programs are not run here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, int] = {}
    with open_sandbox() as sandbox:
        judge = Judge(sandbox)
        for shape, jobs in sample_jobs().items():
            lines = [encode(run_job(job, judge)) + b"\n" for job in jobs]
            (folder / f"{shape}.jsonl").write_bytes(b"".join(lines))
            written[f"{shape}.jsonl"] = len(lines)
    return written


def main(arguments: list[str]) -> int:
    """Write the samples into the one folder named, and say what was written."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m analysis.counterfactual.samples FOLDER\n")
        return 2
    for name, n_traces in write_samples(Path(arguments[0])).items():
        sys.stdout.write(f"{Path(arguments[0]) / name}: {n_traces} traces\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
