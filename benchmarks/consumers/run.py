"""Lets real consumers read what was exported: `python benchmarks/consumers/run.py [--quick] [--json] [NAME...]`.

Each has an environment of its own below ~/.cache/counterpoint/consumers, made when it is first asked for (up to 2 GB and some
minutes each). Ours are the records that `write` counted, theirs those that the consumer has after its own preparation; then of
how many it would train on exactly what they state, or reads exactly what was written. Nothing is trained. Agent Lightning, and
Axolotl from 0.20 on, need Python 3.12: the first is not asked, of the second the last version before.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from analysis.training import environment
from analysis.training.bundle import read_rows
from benchmarks.consumers.environments import CONSUMERS, python
from benchmarks.consumers.given import Given, Stated, make, of_samples
from benchmarks.rows import Row, command_line, row, show

HERE = Path(__file__).parent
TINY = HERE.parents[1] / "tests/training/in_trainer"
#: What templates put around what is said: it trains too, and says nothing.
MARKS = re.compile(
    r"""<\|[a-z_]+\|>|<call>|Action:|Action Input:|</?tool_call>|\{"name": "|", "arguments": |\}(?=\n</tool_call>)|\s"""
)


def main() -> None:
    """Read the command line, measure, print."""
    parser = command_line(__doc__, quick="fewer rows")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CONSUMERS)}; all where none is given")
    parser.add_argument("--bundle", type=Path, help="an export, whose rows are taken instead of those of the sample traces")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(CONSUMERS)):
        parser.error(f"no such consumer: {unknown[0]}; there are {', '.join(CONSUMERS)}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = tiny_model(place / "model")
        recorded = read_rows(given.bundle) if given.bundle else of_samples()
        n_by_hand, n_most = (10, 60) if given.quick else (40, None)
        written = make(place / "views", islice(recorded, n_most), n_by_hand=n_by_hand, tokenizer=str(model))
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
    n_read, n_right = Counter[str](), Counter[str]()
    for key, read in answer["read"].items():
        view, _, split = key.partition("/")
        n_read[view] += read["n"]
        if (n := n_as_stated(written[view], split, read)) is not None:
            n_right[view] += n
    for view, n in n_read.items():
        ours = sum(written[view].counts.values())
        yield row(f"{name}: {view}", ours, peer=answer["version"], theirs=n, unit="rows", goal="as many", met=n == ours)
        if view in n_right:
            n_same = n_right[view]
            yield row(f"{name}: {view}, as stated", n_same, peer="of", theirs=ours, unit="rows", goal="all", met=n_same == ours)


def asked(name: str, views: Path, model: Path) -> dict[str, Any]:
    """Return what the script of a consumer prints at its end."""
    command = [str(python(name)), "-P", str(HERE / f"{CONSUMERS[name].script}.py"), str(views), str(model)]
    quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(views / ".cache" / name), "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(command, env=os.environ | quiet, check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def n_as_stated(given: Given, split: str, read: dict[str, Any]) -> int | None:
    """Return how many records train on what they state, weighed as they state, or tell what was written."""
    if "told" in read:
        return sum(map(same, read["told"], given.records[split]))
    if "trains" not in read:
        return None
    found = map(trains_as_stated, read["trains"], given.stated[split])
    if "weights" not in read:
        return sum(found)
    return sum(a and b == c for a, b, c in zip(found, read["weights"], given.weights[split], strict=False))


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are the same; readers of JSON differ in the last digit of a number."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return math.isclose(a, b) if isinstance(a, float) and isinstance(b, float) else bool(a == b)


def trains_as_stated(texts: list[str], stated: Stated) -> bool:
    """Tell whether a loss is taken on what is stated and on nothing else, marks of the template aside."""
    return MARKS.sub("", "".join(texts)) == MARKS.sub("", "".join([part for message in stated for part in message]))


if __name__ == "__main__":
    main()
