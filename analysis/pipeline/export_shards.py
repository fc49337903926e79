"""Sorted runs of rows, merged into the shards of a bundle.

Decides which rows stand in which shard: those of a split in the order of `order_key`, `SHARD_ROWS` each. As that is known
before any row is read, shards are written in several processes; each reads the runs a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc as ipc

from analysis.training import bundle
from analysis.training.rows import SCHEMA

_GROUPS_AT_ONCE = 4  # taking few rows out of each run costs nearly as much as taking many

Places = npt.NDArray[np.int64]


class _Due(msgspec.Struct, frozen=True):
    """A shard to be written: of each row, in order, the run it lies in and its place there."""

    split: str
    number: int
    run: Places
    place: Places


class _Index(msgspec.Struct, frozen=True):
    """Of a run the keys and splits of its rows, and where each of its batches begins."""

    keys: Places
    splits: npt.NDArray[np.object_]
    begins: Places


def write_shards(runs: Sequence[Path], out: Path, pool: Executor, progress: Callable[[float], None]) -> list[bundle.Shard]:
    """Write the shards of some runs, as far as they are not there; return all, split by split in their order.

    Rows of one key lie in one run, in their order. `progress` is told which share is done.
    """
    indexes = [_index(run) for run in runs]
    begins = [index.begins for index in indexes]
    pending = [pool.submit(_write, runs, begins, out, due) for due in _plan(indexes)]
    shards = []
    for n, future in enumerate(pending):
        shards.append(future.result())
        progress((n + 1) / len(pending))
    return shards


def _plan(indexes: Sequence[_Index]) -> Iterator[_Due]:
    sizes = [len(index.keys) for index in indexes]
    run = np.repeat(np.arange(len(sizes)), sizes)
    place = np.concatenate([np.empty(0, np.int64), *map(np.arange, sizes)])
    order = np.argsort(np.concatenate([np.empty(0, np.int64), *[index.keys for index in indexes]]), kind="stable")
    splits = np.concatenate([np.empty(0, object), *[index.splits for index in indexes]])[order]
    for split in sorted(set(splits)):
        mine = order[splits == split]
        for number, start in enumerate(range(0, len(mine), bundle.SHARD_ROWS)):
            part = mine[start : start + bundle.SHARD_ROWS]
            yield _Due(split, number, run[part], place[part])


def _index(run: Path) -> _Index:
    batches = list(_batches(run, ["order_key", "split"]))
    keys = [batch["order_key"].to_numpy() for batch in batches]
    splits = [batch["split"].dictionary_encode() for batch in batches]
    names = [np.array(one.dictionary.to_pylist(), object)[one.indices.to_numpy()] for one in splits]
    begins = np.cumsum([0, *map(len, keys)])
    return _Index(np.concatenate([np.empty(0, np.int64), *keys]), np.concatenate([np.empty(0, object), *names]), begins)


def _write(runs: Sequence[Path], begins: Sequence[Places], out: Path, due: _Due) -> bundle.Shard:
    return bundle.write_shard(_groups(runs, begins, due), out, due.split, due.number)


def _groups(runs: Sequence[Path], begins: Sequence[Places], due: _Due) -> Iterator[pa.Table]:
    """Yield the rows of a shard in their order, as many at a time as a row group has."""
    readers = [_Reader(run, begin) for run, begin in zip(runs, begins, strict=True)]
    at_once = _GROUPS_AT_ONCE * bundle.GROUP_ROWS
    for start in range(0, len(due.run), at_once):
        run, place = (rows[start : start + at_once] for rows in (due.run, due.place))
        table = pa.Table.from_batches([part for n in np.unique(run) for part in readers[n].take(place[run == n])])
        # The rows stand run by run now; undo that.
        back = np.empty(len(run), np.int64)
        back[np.argsort(run, kind="stable")] = np.arange(len(run))
        table = table.take(pa.array(back))
        yield from (table[n : n + bundle.GROUP_ROWS] for n in range(0, len(table), bundle.GROUP_ROWS))


class _Reader:
    """A run, of which rows are taken in their order; it holds the batches that the last ones lay in."""

    def __init__(self, run: Path, begins: Places) -> None:
        self._run, self._begins = run, begins
        self._held: dict[int, pa.RecordBatch] = {}

    def take(self, places: Places) -> list[pa.RecordBatch]:
        """Return the rows at these places, which ascend."""
        batches = np.searchsorted(self._begins, places, side="right") - 1
        due = np.unique(batches).tolist()
        with ipc.open_file(pa.OSFile(str(self._run)), options=ipc.IpcReadOptions(use_threads=False)) as run:
            self._held = {n: self._held[n] if n in self._held else run.get_batch(n) for n in due}
        return [self._held[n].take(pa.array(places[batches == n] - self._begins[n])) for n in due]


def _batches(run: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    fields = [SCHEMA.get_field_index(name) for name in columns]
    with ipc.open_file(pa.OSFile(str(run)), options=ipc.IpcReadOptions(included_fields=fields, use_threads=False)) as file:
        yield from map(file.get_batch, range(file.num_record_batches))
