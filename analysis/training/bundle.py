"""The bundle: rows as sharded Parquet, what was left out, a manifest, a card and a Croissant file.

Decides the layout and that equal inputs give equal bytes: no clock, no absolute path, no name of a machine. Shards are
written under another name and renamed when whole; what was interrupted goes on behind the last whole shard. Memory is
bounded by a few row groups a split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis import __version__
from analysis.errors import TrainingError
from analysis.training.card import card, croissant
from analysis.training.rows import JSON_COLUMNS, SCHEMA, SCHEMA_VERSION, Row, rows_from_table, rows_to_table

SHARD_ROWS = 20_000
GROUP_ROWS = 1_000
MANIFEST = "manifest.json"
_BEGUN = ".begun"
#: Texts that hardly ever repeat: a dictionary of them costs time and saves nothing.
_UNIQUE = {*JSON_COLUMNS, "row_id", "row_sha256", "events"}
DROPS = pa.schema(
    {"id": pa.string(), "stage": pa.string(), "reason": pa.string(), "value": pa.float64(), "threshold": pa.float64()}
)


class Drop(NamedTuple):
    """A trace or row that is not in the bundle, and why: which gate, in words, and the value that missed its threshold."""

    id: str
    stage: str
    reason: str
    value: float | None = None
    threshold: float | None = None


def write_bundle(
    rows: Iterable[Row] | Iterable[pa.Table],
    out: Path,
    recipe: Mapping[str, Any],
    *,
    drops: Iterable[Drop] = (),
    shard_rows: int = SHARD_ROWS,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write a bundle into a folder and return its manifest.

    Parameters
    ----------
    rows : in the order they are to have, as rows or as tables of them
    recipe : what was done to which inputs, as plain JSON: the policy whole, digests of the inputs, options
    drops : all that is left out
    about : further fields of the manifest, which are no part of the recipe

    Returns
    -------
    The manifest. The same recipe into the same folder goes on where it stopped; when it is whole, nothing is done.

    Raises
    ------
    TrainingError
        If the folder holds something else.
    """
    digest = digest_of(recipe)
    if (done := begin(out, digest)) is not None:
        return done
    splits = _shards(rows, out / "data", shard_rows)
    n_drops = _write_drops(drops, out / "drops.parquet")
    tools = {"counterpoint": __version__, "pyarrow": version("pyarrow")}
    manifest: dict[str, Any] = {
        "manifest_version": 1, "recipe": dict(recipe), "recipe_sha256": digest, "schema_version": SCHEMA_VERSION,
        "schema": [[field.name, str(field.type)] for field in SCHEMA], "credit_spread": "mean", "splits": splits,
        "n_rows": sum(split["n_rows"] for split in splits.values()), "n_drops": n_drops, "tools": tools, **(about or {}),
    }  # fmt: skip
    manifest["id"] = digest_of(manifest)
    _write(out / "README.md", card(manifest))
    _write(out / "croissant.json", croissant(manifest, {field.name: str(field.type) for field in SCHEMA}))
    _write(out / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1).decode() + "\n")
    (out / _BEGUN).unlink()
    return manifest


def begin(out: Path, digest: str) -> dict[str, Any] | None:
    """Take a folder for the bundle of a recipe; return the manifest if it is there already, whole.

    Raises
    ------
    TrainingError
        If the folder holds the bundle of another recipe, or anything else.
    """
    if (out / MANIFEST).is_file():
        if (there := read_manifest(out)).get("recipe_sha256") == digest:
            return there
        raise TrainingError(str(out), "the folder holds another bundle", hint="choose another --out")
    if (out / _BEGUN).is_file():
        if (out / _BEGUN).read_text(encoding="utf-8") == digest:
            return None
        raise TrainingError(str(out), "another export was begun here", hint="choose another --out, or remove the folder")
    if out.is_dir() and any(out.iterdir()):
        raise TrainingError(str(out), "the folder is not empty", hint="choose another --out")
    (out / "data").mkdir(parents=True)
    _write(out / _BEGUN, digest)
    return None


def read_manifest(out: Path) -> dict[str, Any]:
    """Return the manifest of a bundle. Raises TrainingError where there is none that can be read."""
    try:
        manifest: dict[str, Any] = msgspec.json.decode((out / MANIFEST).read_bytes(), type=dict[str, Any])
    except OSError:
        raise TrainingError(str(out), "no bundle here", hint="`counterpoint export` makes one") from None
    except msgspec.MsgspecError as error:
        raise TrainingError(str(out / MANIFEST), "not a manifest", got=str(error), hint="export again") from None
    return manifest


def read_rows(out: Path, *, split: str | None = None) -> Iterator[Row]:
    """Yield the rows of a bundle, or of one of its splits, in their order; only a row group of it is in memory."""
    for name, files in sorted(read_manifest(out)["splits"].items()):
        for file in files["files"] if split in (None, name) else ():
            with pq.ParquetFile(out / file["path"]) as shard:
                for batch in shard.iter_batches(batch_size=GROUP_ROWS):
                    yield from rows_from_table(pa.Table.from_batches([batch]))


def _shards(rows: Iterable[Row] | Iterable[pa.Table], folder: Path, shard_rows: int) -> dict[str, Any]:
    splits: dict[str, _Split] = {}
    for table in _tables(rows):
        for name in sorted(pc.unique(table["split"]).to_pylist()):
            split = splits.setdefault(name, _Split(folder, name, shard_rows))
            split.add(table.filter(pc.equal(table["split"], name)))
    return {name: splits[name].finish() for name in sorted(splits)}


def _tables(rows: Iterable[Row] | Iterable[pa.Table]) -> Iterator[pa.Table]:
    waiting = iter(rows)
    for first in waiting:
        if isinstance(first, pa.Table):
            yield first
        else:
            batch: list[Any] = [first, *islice(waiting, GROUP_ROWS - 1)]
            yield rows_to_table(batch)


class _Split:
    """The shards of one split as they fill up: whole ones keep their name, one that is there already is not written again."""

    def __init__(self, folder: Path, name: str, shard_rows: int) -> None:
        self.folder, self.name, self.shard_rows = folder, name, shard_rows
        self.files: list[dict[str, Any]] = []
        self.content = hashlib.sha256()
        self.waiting: list[pa.Table] = []
        self.n_waiting = self.n_rows = self.n_shard = 0
        self.writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        for digest in table["row_sha256"].to_pylist():
            self.content.update(bytes.fromhex(digest))
        self.waiting.append(table)
        self.n_waiting += table.num_rows
        while self.n_waiting >= self._room():
            self._write_group(self._room())

    def finish(self) -> dict[str, Any]:
        """Write what is left; return the number of rows, the hash of their hashes in order, and the files."""
        self._write_group(self.n_waiting)
        self._close()
        return {"n_rows": self.n_rows, "content_sha256": self.content.hexdigest(), "files": self.files}

    def _room(self) -> int:
        return min(GROUP_ROWS, self.shard_rows - self.n_shard)

    def _path(self) -> Path:
        return self.folder / f"{self.name}-{len(self.files):05d}.parquet"

    def _write_group(self, n: int) -> None:
        if not n:
            return
        table = pa.concat_tables(self.waiting)
        self.waiting, self.n_waiting = [table[n:]], table.num_rows - n
        if not self._path().exists():
            if self.writer is None:
                self.writer = _writer(self._path().with_suffix(".part"))
            self.writer.write_table(table[:n].combine_chunks(), row_group_size=n)
        self.n_shard += n
        self.n_rows += n
        if self.n_shard == self.shard_rows:
            self._close()

    def _close(self) -> None:
        if not self.n_shard:
            return
        path = self._path()
        if self.writer is not None:
            self.writer.close()
            path.with_suffix(".part").replace(path)
        self.files.append({"path": f"data/{path.name}", "n_rows": self.n_shard, "sha256": _file_digest(path)})
        self.writer, self.n_shard = None, 0


def _writer(path: Path) -> pq.ParquetWriter:
    plain = [name for name in SCHEMA.names if name not in _UNIQUE]
    return pq.ParquetWriter(path, SCHEMA, compression="zstd", compression_level=3, use_dictionary=plain)


def _write_drops(drops: Iterable[Drop], path: Path) -> int:
    n, waiting = 0, iter(drops)
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, DROPS, compression="zstd") as writer:
        while batch := list(islice(waiting, 10_000)):
            writer.write_table(
                pa.table([pa.array(c, f.type) for c, f in zip(zip(*batch, strict=True), DROPS, strict=True)], DROPS)
            )
            n += len(batch)
    part.replace(path)
    return n


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    part.replace(path)


def digest_of(value: Mapping[str, Any]) -> str:
    """Return the hash of a recipe or manifest, as JSON with sorted names."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
