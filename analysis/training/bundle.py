"""The bundle: rows as sharded Parquet, what was left out, a manifest, a card and a Croissant file.

Decides the layout and that equal inputs give equal bytes: no clock, no absolute path, no name of a machine. Shards can be
written one by one, in any order and in several processes, each under another name until it is whole; what was interrupted
writes only those that are not there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from analysis import __version__
from analysis.errors import TrainingError
from analysis.training.card import card, croissant
from analysis.training.rows import JSON_COLUMNS, SCHEMA, SCHEMA_VERSION, Row, rows_from_table, rows_to_table

SHARD_ROWS = 20_000
GROUP_ROWS = 1_000
MANIFEST = "manifest.json"
_BEGUN = ".begun"
_SPLIT = re.compile(r"\w[\w .-]*")
#: Of texts that hardly ever repeat a dictionary costs time and saves nothing.
_REPEATED = [name for name in SCHEMA.names if name not in {*JSON_COLUMNS, "row_id", "row_sha256", "events"}]
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


class Shard(NamedTuple):
    """A file of rows of one split: its place in the bundle, the hash of its bytes, and those of its rows, one after another."""

    split: str
    path: str
    n_rows: int
    sha256: str
    row_digests: bytes


def write_bundle(
    rows: Iterable[Row], out: Path, recipe: Mapping[str, Any], *, drops: Iterable[Drop] = (), shard_rows: int = SHARD_ROWS
) -> dict[str, Any]:
    """Write the bundle of some rows, in the order they are to have, and return its manifest.

    The same recipe into the same folder goes on where it stopped; when it is whole, nothing is done.

    Raises
    ------
    TrainingError
        If the folder holds something else.
    """
    if (done := begin(out, digest_of(recipe))) is not None:
        return done
    splits: dict[str, list[Row]] = {}
    for row in rows:
        splits.setdefault(row.split, []).append(row)
    shards = []
    for split, mine in sorted(splits.items()):
        for n, start in enumerate(range(0, len(mine), shard_rows)):
            part = mine[start : start + shard_rows]
            tables = (rows_to_table(part[k : k + GROUP_ROWS]) for k in range(0, len(part), GROUP_ROWS))
            shards.append(write_shard(tables, out, split, n))
    return finish(out, recipe, shards, drops=drops)


def write_shard(groups: Iterable[pa.Table], out: Path, split: str, number: int) -> Shard:
    """Write a shard of tables that become its row groups, unless it is there already. Raises TrainingError for odd names."""
    if not _SPLIT.fullmatch(split):
        raise TrainingError("split", "no name for a file", got=split, expected="letters, digits, spaces, `_`, `-` and `.`")
    path = out / "data" / f"{split}-{number:05d}.parquet"
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    if not path.exists():
        with pq.ParquetWriter(part, SCHEMA, compression="zstd", compression_level=3, use_dictionary=_REPEATED) as writer:
            for table in groups:
                writer.write_table(table.combine_chunks(), row_group_size=table.num_rows)
        part.replace(path)
    with pq.ParquetFile(path, pre_buffer=False) as file:
        digests = file.read(["row_sha256"], use_threads=False)["row_sha256"].to_pylist()
    return Shard(split, f"data/{path.name}", len(digests), _file_digest(path), bytes.fromhex("".join(digests)))


def finish(
    out: Path,
    recipe: Mapping[str, Any],
    shards: Iterable[Shard],
    *,
    drops: Iterable[Drop],
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write what belongs to the shards of a bundle, and return its manifest, which says that it is whole.

    Parameters
    ----------
    recipe : what was done to which inputs, as plain JSON: the policy whole, digests of the inputs, options
    shards : all, those of a split in the order of its rows
    drops : all that is left out
    about : further fields of the manifest, which are no part of the recipe
    """
    splits = _splits(shards)
    n_drops = _write_drops(drops, out / "drops.parquet")
    tools = {"counterpoint": __version__, "pyarrow": version("pyarrow")}
    manifest: dict[str, Any] = {
        "manifest_version": 1, "recipe": dict(recipe), "recipe_sha256": digest_of(recipe), "schema_version": SCHEMA_VERSION,
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
    if out.is_dir() and any(path.name != f"{_BEGUN}.part" for path in out.iterdir()):
        raise TrainingError(str(out), "the folder is not empty", hint="choose another --out")
    out.mkdir(parents=True, exist_ok=True)
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


def _splits(shards: Iterable[Shard]) -> dict[str, Any]:
    """Return of each split the number of rows, the hash of their hashes in order, and the files."""
    mine: dict[str, list[Shard]] = {}
    for shard in shards:
        mine.setdefault(shard.split, []).append(shard)
    return {
        split: {
            "n_rows": sum(shard.n_rows for shard in mine[split]),
            "content_sha256": hashlib.sha256(b"".join(shard.row_digests for shard in mine[split])).hexdigest(),
            "files": [{"path": shard.path, "n_rows": shard.n_rows, "sha256": shard.sha256} for shard in mine[split]],
        }
        for split in sorted(mine)
    }


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
