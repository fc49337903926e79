"""Lets real consumers read what was exported: `python benchmarks/consumers/run.py [--quick] [--json] [NAME...]`.

Each has an environment of its own below ~/.cache/counterpoint/consumers, made when it is first asked for (up to 2 GB and some
minutes each). Ours are the records that `write` counted, theirs those that the consumer has after its own preparation; then of
how many it would train on exactly what they state, or reads exactly what was written. Nothing is trained.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.training import environment
from benchmarks.consumers.environments import Consumer, python
from benchmarks.consumers.given import BUNDLE, SAMPLES, Given, Stated, make
from benchmarks.rows import Row, command_line, row, show

HERE = Path(__file__).parent
TINY = HERE.parents[1] / "tests/training/in_trainer"
TORCH = "torch==2.13.0"
CONSUMERS = {
    "trl": Consumer("trl"),
    "datasets-5": Consumer("hugging_face"),
    "datasets-4": Consumer("hugging_face", ("datasets==4.0.0",)),
    "mlcroissant": Consumer("mlcroissant", ("mlcroissant==1.1.1", "pyarrow==26.0.1")),
    "verifiers": Consumer("verifiers", ("verifiers==0.4.0",)),
    "verl": Consumer(
        "verl",
        (TORCH, "transformers==5.9.0", "datasets==5.2.0", "tensordict==0.10.0", "omegaconf", "pillow", "hydra-core", "codetiming"),
        ("verl==0.9.1",),
    ),
    "llama-factory": Consumer(
        "llama_factory",
        (TORCH, "transformers==5.5.4", "datasets==4.0.0", "peft==0.18.1", "trl==0.24.0", "accelerate==1.11.0", "omegaconf", "fire"),
        ("llamafactory==0.9.5",),
    ),
    "ms-swift": Consumer(
        "ms_swift",
        (TORCH, "transformers==5.15.0", "datasets==4.8.4", "peft==0.20.0", "trl==0.24.0", "modelscope", "json_repair"),
        ("ms-swift==4.6.0",),
    ),
    "axolotl": Consumer(
        "axolotl",
        (TORCH, "transformers==5.16.1", "datasets==4.8.4", "addict", "colorama", "PyYAML==6.0.3"),
        ("axolotl==0.19.0",),
    ),
    "openrlhf": Consumer(
        "openrlhf", (TORCH, "transformers==5.15.0", "datasets==5.2.0", "sympy", "pylatexenc"), ("openrlhf==0.11.2",)
    ),
}
#: What templates put around what is said: it trains too, and says nothing.
MARKS = re.compile(r"""<\|[a-z_]+\|>|<call>|Action:|Action Input:|</?tool_call>|\{"name": "|", "arguments": |\}(?=\n</tool_call>)|\s""")


def main() -> None:
    """Read the command line, measure, print."""
    parser = command_line(__doc__, quick="fewer rows")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CONSUMERS)}; all where none is given")
    parser.add_argument("--traces", type=Path, default=SAMPLES, help="a folder of traces, native JSON lines")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(CONSUMERS)):
        parser.error(f"no such consumer: {unknown[0]}; there are {', '.join(CONSUMERS)}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = tiny_model(place / "model")
        sizes = {"n_by_hand": 10, "n_most": 60} if given.quick else {"n_by_hand": 40, "n_most": 1_000}
        written = make(place / "views", given.traces, tokenizer=str(model), **sizes)
        found = [one for name in given.names or CONSUMERS for one in measure(name, place / "views", model, written)]
    show(found, as_json=given.json)
    sys.exit(not all(one["met"] for one in found))


def tiny_model(folder: Path) -> Path:
    """Write a model and its tokenizer, made in the environment that trains."""
    code = f"import sys; sys.path.insert(0, {str(TINY)!r}); import tiny, pathlib; tiny.save(pathlib.Path({str(folder)!r}))"
    subprocess.run([str(environment.install()), "-c", code], check=True, capture_output=True)
    return folder


def measure(name: str, views: Path, model: Path, written: dict[str, Given]) -> Iterator[Row]:
    """Yield the rows of one consumer: of each view how many records it has, and how many are as they should be."""
    try:
        answer = asked(name, views, model)
    except subprocess.CalledProcessError as error:
        told = (error.stderr or error.output or "no message").strip().splitlines()[-1]
        yield row(f"{name} reads", 0, peer=told, theirs=None, unit="rows", goal="reads its views", met=False)
        return
    n_read: dict[str, int] = {}
    n_right: dict[str, int] = {}
    for key, read in answer["read"].items():
        view, _, part = key.partition("/")
        n_read[view] = n_read.get(view, 0) + read["n"]
        n_right[view] = n_right.get(view, 0) + right(written[view], part, read)
    for view, n in n_read.items():
        ours = sum(written[view].counts.values())
        yield row(f"{name}: {view}", ours, peer=answer["version"], theirs=n, unit="rows", goal="as many", met=n == ours)
        n_as = n_right[view]
        yield row(f"{name}: {view}, as stated", n_as, peer="of", theirs=ours, unit="rows", goal="all", met=n_as == ours)


def asked(name: str, views: Path, model: Path) -> dict[str, Any]:
    """Return what the script of a consumer prints at its end."""
    consumer = CONSUMERS[name]
    command = [str(python(name, consumer)), "-P", str(HERE / f"{consumer.script}.py"), str(views), str(model)]
    quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(views / ".cache" / name), "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(command, env=os.environ | quiet, check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def right(given: Given, part: str, read: dict[str, Any]) -> int:
    """Return how many records of a file train on what they state, or tell what was written."""
    if "trains" in read:
        return sum(map(trains_as_stated, read["trains"], given.stated[part]))
    if "told" in read:
        return sum(map(dict.__eq__, read["told"], given.records[part]))
    return read["n"]


def trains_as_stated(texts: list[str], stated: Stated) -> bool:
    """Tell whether a loss is taken on what is stated and on nothing else, marks of the template aside."""
    return MARKS.sub("", "".join(texts)) == MARKS.sub("", "".join([part for message in stated for part in message]))


if __name__ == "__main__":
    main()
