"""What consumers are given: rows by hand and of the sample traces, as views and as a bundle; and what each record states."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from analysis.counterfactual.dataset import PairRow, preferred
from analysis.model import decode
from analysis.training.bundle import write_bundle
from analysis.training.formats import views
from analysis.training.formats.files import JSON
from analysis.training.labelling import Facts, rows_of
from analysis.training.rows import Message, Row
from tests.training.rows import CALL, CHAT, TOOL, pair, plain, row

SAMPLES = Path(__file__).parents[2] / "data/samples"
BUNDLE = "bundle"  # by this name a consumer reads the bundle itself

T = TypeVar("T")
#: What a loss is taken on: a text, or the name of a tool and its arguments, for each message.
Stated = list[list[str]]


@dataclass(frozen=True)
class Given:
    """A view as it was written, all by split: records as `write` counted them, as they lie in its files, what each states.

    weights : those of the messages that train, in their order, each once; only of records that are whole rows
    """

    counts: dict[str, int]
    records: dict[str, list[dict[str, Any]]]
    stated: dict[str, list[Stated]]
    weights: dict[str, list[list[float]]]


def make(folder: Path, recorded: Iterable[Row], *, n_by_hand: int, tokenizer: str) -> dict[str, Given]:
    """Write every view below a folder, and a bundle, of rows by hand and recorded ones; return what was written, by name."""
    rows, pairs = [*by_hand(n_by_hand), *recorded], list(pairs_by_hand(n_by_hand))
    found = {}
    for name, view in views(tokenizer=tokenizer).items():
        given: list[Any] = list(pairs) if view.takes == "pairs" else list(rows)
        fit = [one for one in given if not view.check(one)]
        counts = view.write(iter(fit), folder / name)
        records = records_of(folder / name)
        if name == "verl-sft":  # a file for each set of tools
            by_id = {one.row_id: one for one in fit}
            fit = [by_id[record["row_id"]] for split in sorted(records) for record in records[split]]
        weights = _by_split(fit if view.takes == "rows" else [], _weights)
        found[name] = Given(counts, records, _by_split(fit, _STATES.get(name, _whole)), weights)
    manifest = write_bundle(rows, folder / BUNDLE, {"rows": len(rows)})
    counts = {split: told["n_rows"] for split, told in manifest["splits"].items()}
    return found | {BUNDLE: Given(counts, {}, {}, {})}


def by_hand(n: int) -> Iterator[Row]:
    """Yield rows with tools of different arguments, masks, weights, and texts that break careless readers."""
    other = {"id": "c2", "type": "function", "function": {"name": "stop", "arguments": '{"why": "做完了 ✓", "at": null}'}}
    schema = {"type": "object", "properties": {"why": {"type": "string"}, "at": {"type": "integer"}}, "required": ["why"]}
    tool = {"type": "function", "function": {"name": "stop", "description": "End it.", "parameters": schema}}
    for k in range(n):
        same = {"row_id": f"h{k}", "trace_id": f"h{k}", "rollout_id": f"h{k}", "split": "test" if k % 5 == 4 else "train"}
        asked = [CHAT[0], {"role": "user", "content": f'Join {k} parts: "a\\nb", {{}} and 部分\n\n= 1.'}]
        ended = {"role": "assistant", "content": "", "tool_calls": [other]}
        yield row(**same, messages=[*asked, *CHAT[2:]], tools=[TOOL], reward=float(k % 2))
        yield row(
            **same | {"row_id": f"h{k}b"}, messages=[*asked, *CHAT[2:4], ended], tools=[TOOL, tool][k % 2 :], events=[],
            keep=[False, False, k % 4 < 2, False, True],
        )  # fmt: skip
        yield plain(k, split=same["split"])


def of_samples() -> Iterator[Row]:
    """Yield the rows of the sample traces; every fifth trace is a test."""
    n = 0
    for path in sorted(SAMPLES.glob("*.jsonl")):
        for k, line in enumerate(path.read_bytes().splitlines()):
            trace = decode(line)
            split = "test" if k % 5 == 4 else "train"
            for found in rows_of(trace, Facts(group=f"task:{trace.trace_id}", split=split, order_key=n)):
                yield found
                n += 1


def pairs_by_hand(n: int) -> Iterator[PairRow]:
    """Yield counterfactuals of either sign, some with calls of tools, some whose interval covers 0."""
    for k in range(n):
        arms: dict[str, Any] = {}
        if k % 3 == 0:
            arms = {"prompt": CHAT[:2], "original": [{"role": "assistant", "content": "", "tool_calls": [CALL]}]}
        sign: dict[str, Any] = {} if k % 2 else {"delta_q": -0.4, "credit": 0.4, "low": -0.6, "high": -0.2 if k % 4 else 0.1}
        yield pair(pair_id=f"p{k}", split="test" if k % 5 == 4 else "train", **sign, **arms)


def records_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the records of the files of a view by split, JSON decoded."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted([*folder.glob("*.parquet"), *folder.glob("data/*.parquet"), *folder.glob("*.jsonl")]):
        split = path.stem.partition("-")[0]
        found.setdefault(split, []).extend(_lines(path) if path.suffix == ".jsonl" else _parquet(path))
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _parquet(path: Path) -> list[dict[str, Any]]:
    table = pq.read_table(path)
    coded = {f.name for f in table.schema if JSON in (f.type, getattr(f.type, "value_type", None))}
    return [
        {name: [json.loads(item) for item in value] if name in coded else value for name, value in record.items()}
        for record in table.to_pylist()
    ]


def said(message: Message) -> list[str]:
    """Return what an agent says in a message: its text, then the name and arguments of each call."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    parts = [part for call in calls for part in (call["name"], json.dumps(json.loads(call["arguments"]), ensure_ascii=False))]
    return [part for part in (message.get("content") or "", *parts) if part]


def _whole(given: Row) -> Iterator[Stated]:
    yield [said(m) for m, keep in zip(given.messages, given.keep, strict=True) if keep]


def _weights(given: Row) -> Iterator[list[float]]:
    yield [weight for weight, _ in groupby([w for w, keep in zip(given.weight, given.keep, strict=True) if keep])]


def _single(given: Row) -> Iterator[Stated]:
    for one in next(_whole(given)):
        yield [one]


def _arms(given: PairRow) -> list[Stated]:
    arms = [[said(m) for m in arm] for arm in (given.original, given.counterfactual)]
    return arms[::-1] if preferred(given) else arms


def _preference(given: PairRow) -> Iterator[Stated]:
    yield [part for arm in _arms(given) for part in arm]


def _nothing(given: Any) -> Iterator[Stated]:
    yield from ()


_STATES: dict[str, Callable[[Any], Iterator[Stated]]] = {
    "trl-prompt-completion": _single, "trl-dpo": _preference, "trl-reward": _preference,
    "trl-kto": lambda given: iter(_arms(given)), "counterfactual": _nothing, "trl-grpo": _nothing, "verl-rl": _nothing,
    "agent-lightning": _nothing, "verifiers": _nothing, "csv": _nothing, "hf": _nothing,
}  # fmt: skip


def _by_split(fit: list[Any], states: Callable[[Any], Iterator[T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for one in fit:
        found.setdefault(one.split, []).extend(states(one))
    return found
