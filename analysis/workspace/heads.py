"""The store: immutable Parquet files, and numbered heads that say which of them make up one version.

`heads/00000042.json` names for every table its files. A commit writes new files, syncs them, then
creates the next head with create-only semantics; whoever loses that race gets `HeadConflict`. So
a reader that opened one head sees one consistent state of all tables, whatever writers do, and a
killed writer leaves nothing but files that no head names; `vacuum` removes those later.
"""

from __future__ import annotations

import io
import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

import msgspec
import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, from_url

from analysis.errors import HeadConflict, WorkspaceError

_SCHEMA = 1
_ROW_GROUP = {"events": 10_000}
_FILES_BEFORE_COMPACTION = 200
_ROWS_A_COMPACTED_FILE = 500_000
_BYTES_A_COMPACTED_FILE = 1 << 25  # compressed; texts have few rows and many bytes
_KEPT_HEADS = 20
_GRACE_S = 3600.0
_TABLE_FILE = re.compile(r"[^/]+/[^/]+\.parquet")  # deeper ones are of exports and training runs
#: Keys of a head that begin so name the version that a data set was made from, which `vacuum` then leaves alone.
PIN = "pin:"


class File(msgspec.Struct, frozen=True, array_like=True):
    """One immutable Parquet file of a table."""

    name: str
    n_rows: int


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the workspace: the files of every table, and what made the stage tables."""

    number: int = 0
    schema: int = _SCHEMA
    created: float = 0.0
    data_version: str = ""
    tables: dict[str, tuple[File, ...]] = {}
    keys: dict[str, str] = {}

    def n_rows(self, table: str) -> int:
        """Return how many rows the table has at this version."""
        return sum(file.n_rows for file in self.tables.get(table, ()))


class Workspace:
    """The files and heads of one workspace: a folder, or an object-store URL such as `s3://bucket/name`."""

    def __init__(self, location: str | Path, *, create: bool = False) -> None:
        """Open a workspace.

        Raises
        ------
        WorkspaceError
            If it does not exist (and `create` is not set), or its path holds characters of a file pattern.
        """
        self.location = str(location)
        self.is_local = "://" not in self.location
        if not self.is_local:
            try:
                self._store = from_url(self.location)
            except (BaseError, ValueError) as error:
                raise _unreachable(self.location, error) from None
            return
        root = Path(location).absolute()
        self.location = str(root)
        if bad := sorted(set("[]*?") & set(self.location)):
            hint = "choose another folder"
            raise WorkspaceError(self.location, "the path holds characters of a file pattern", got=" ".join(bad), hint=hint)
        if not create and not (root / "heads").is_dir():
            raise WorkspaceError(
                self.location, "no workspace here", hint="`counterpoint open PATH` imports traces into a new one"
            )
        try:
            (root / "heads").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkspaceError(self.location, "the folder cannot be made", got=error.strerror or "") from None
        self._store = LocalStore(root)

    def head(self) -> Head:
        """Return the newest version; version 0 is the empty workspace."""
        numbers = self._numbers()
        return self.head_at(numbers[-1]) if numbers else Head()

    def head_at(self, number: int) -> Head:
        """Return the version `number`.

        Raises
        ------
        WorkspaceError
            If it is not there (`vacuum` removes old ones), damaged, or made by a newer program.
        """
        try:
            data = obstore.get(self._store, _head_name(number)).bytes().to_bytes()
        except (FileNotFoundError, NotFoundError):
            raise WorkspaceError(f"{self.location} head {number}", "no such version", hint="open the newest one") from None
        try:
            head = msgspec.json.decode(data, type=Head)
        except msgspec.MsgspecError as error:
            raise WorkspaceError(f"{self.location} head {number}", "the head is damaged", got=str(error)) from None
        if head.schema > _SCHEMA:
            hint = "install the newer counterpoint"
            raise WorkspaceError(self.location, "made by a newer version", got=str(head.schema), expected=str(_SCHEMA), hint=hint)
        return head

    def write(self, table: str, data: pa.Table) -> File:
        """Write rows as a new file, synced to the disk. No version names it yet; `commit` does.

        Raises
        ------
        WorkspaceError
            If the store takes no more, for want of space or permission.
        """
        name = f"{table}/{uuid.uuid4().hex}.parquet"
        sink = io.BytesIO()
        rows = _ROW_GROUP.get(table, 100_000)
        pq.write_table(data, sink, compression="zstd", compression_level=3, row_group_size=rows)
        try:
            obstore.put(self._store, name, sink.getvalue())
            self._sync(name)
        except (BaseError, OSError) as error:
            raise _unwritable(self.location, error) from None
        return File(name, data.num_rows)

    def commit(
        self,
        base: Head,
        tables: Mapping[str, Sequence[File]],
        *,
        data_version: str | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> Head:
        """Make the version after `base`, in which the given tables consist of the given files.

        Raises
        ------
        HeadConflict
            If another writer made that version first. Read the new head and do the work again.
        """
        head = Head(
            number=base.number + 1,
            created=round(time.time(), 3),
            data_version=base.data_version if data_version is None else data_version,
            tables={**base.tables, **{name: tuple(files) for name, files in tables.items()}},
            keys={**base.keys, **(keys or {})},
        )
        self._create(_head_name(head.number), msgspec.json.encode(head))
        return head

    def append(self, table: str, rows: pa.Table) -> Head:
        """Add rows to a table as a version of its own, whatever other writers do meanwhile."""
        file = self.write(table, rows)
        while True:
            base = self.head()
            try:
                return self.commit(base, {table: (*base.tables.get(table, ()), file)})
            except HeadConflict:
                continue

    def read(self, files: Sequence[File], columns: list[str] | None = None) -> pa.Table:
        """Return the rows of some files of one table, at least one, or these columns of them."""
        return pa.concat_tables([pq.read_table(path, columns=columns) for path in self.paths(files)])

    def without(self, head: Head, table: str, trace_ids: Iterable[str]) -> list[File]:
        """Return the table's files with the rows of some traces left out; files that hold none stay as they are."""
        gone = pa.array(sorted(trace_ids), pa.string())
        files = []
        for file in head.tables.get(table, ()):
            hit = pc.is_in(self.read([file], ["trace_id"])["trace_id"], value_set=gone)
            if not pc.any(hit).as_py():
                files.append(file)
                continue
            kept = self.read([file]).filter(pc.invert(hit))
            if kept.num_rows:
                files.append(self.write(table, kept))
        return files

    def compacted(self, table: str, files: Sequence[File]) -> Sequence[File]:
        """Return the files as they are, or merged into few large ones where they have become too many."""
        if len(files) <= _FILES_BEFORE_COMPACTION:
            return files
        batches: list[list[File]] = [[]]
        n_rows = n_bytes = 0
        for file in files:
            size: int = obstore.head(self._store, file.name)["size"]
            n_rows, n_bytes = n_rows + file.n_rows, n_bytes + size
            if batches[-1] and (n_rows > _ROWS_A_COMPACTED_FILE or n_bytes > _BYTES_A_COMPACTED_FILE):
                batches.append([])
                n_rows, n_bytes = file.n_rows, size
            batches[-1].append(file)
        return [self._merge(table, batch) if len(batch) > 1 else batch[0] for batch in batches]

    def vacuum(self, *, grace_s: float = _GRACE_S) -> int:
        """Remove old heads and the files that no head names, if older than `grace_s`; return how many.

        Versions that a data set was made from stay (see `PIN`).
        Readers that opened a version less than `grace_s` ago keep all its files.
        """
        numbers = self._numbers()
        now = time.time()
        kept = [self.head_at(n) for n in numbers]
        pinned = {number for key, number in self.head().keys.items() if key.startswith(PIN)}
        kept = [h for h in kept if h.number > numbers[-1] - _KEPT_HEADS or now - h.created < grace_s or str(h.number) in pinned]
        named = {file.name for head in kept for files in head.tables.values() for file in files}
        named |= {_head_name(head.number) for head in kept}
        stale = [
            meta["path"]
            for batch in obstore.list(self._store)
            for meta in batch
            if meta["path"] not in named
            and (_TABLE_FILE.fullmatch(meta["path"]) or meta["path"].startswith("heads/"))
            and now - meta["last_modified"].timestamp() >= grace_s
        ]
        if stale:
            obstore.delete(self._store, stale)
        return len(stale) + self._remove_half_written(now - grace_s)

    def _remove_half_written(self, before: float) -> int:
        """Remove what killed writers of a local store left under names that the store itself does not list."""
        found = Path(self.location).glob("*/*#*") if self.is_local else ()
        half = [path for path in found if path.stat().st_mtime <= before]
        for path in half:
            path.unlink(missing_ok=True)
        return len(half)

    def paths(self, files: Iterable[File]) -> list[str]:
        """Return local paths of the files; those of an object store are fetched into a cache once, they never change."""
        if self.is_local:
            return [str(Path(self.location) / file.name) for file in files]
        return [str(self._fetched(file)) for file in files]

    def _fetched(self, file: File) -> Path:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "counterpoint"
        target = cache / uuid.uuid5(uuid.NAMESPACE_URL, self.location).hex / file.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(f".{uuid.uuid4().hex}")
            part.write_bytes(obstore.get(self._store, file.name).bytes().to_bytes())
            part.rename(target)
        return target

    def _merge(self, table: str, files: Sequence[File]) -> File:
        data = self.read(files)
        order = [name for name in ("trace_id", "position") if name in data.schema.names]
        return self.write(table, data.sort_by([(name, "ascending") for name in order]))

    def _numbers(self) -> list[int]:
        try:
            listed = obstore.list_with_delimiter(self._store, "heads")["objects"]
        except BaseError as error:
            raise _unreachable(self.location, error) from None
        return sorted(int(PurePath(meta["path"]).stem) for meta in listed if is_head(PurePath(meta["path"])))

    def _create(self, name: str, data: bytes) -> None:
        try:
            if not self.is_local:
                obstore.put(self._store, name, data, mode="create")
                return
            # A hard link appears whole or not at all, after its bytes are on the disk.
            part = f"{name}.{uuid.uuid4().hex}"
            obstore.put(self._store, part, data)
            self._sync(part)
            try:
                obstore.rename(self._store, part, name, overwrite=False)
            except AlreadyExistsError:
                obstore.delete(self._store, part)
                raise
            self._sync(name)
        except AlreadyExistsError:
            raise HeadConflict(self.location, "another writer committed first", hint="try again") from None
        except (BaseError, OSError) as error:
            raise _unwritable(self.location, error) from None

    def _sync(self, name: str) -> None:
        """Object stores answer when the bytes are durable; a local file needs to be synced, and its folder."""
        if not self.is_local:
            return
        path = Path(self.location) / name
        for target in (path, path.parent):
            descriptor = os.open(target, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def is_head(path: PurePath) -> bool:
    """Tell whether a file is a head of a workspace, by its name and its folder's.

    >>> is_head(PurePath("runs/heads/00000042.json")), is_head(PurePath("runs/00000042.json"))
    (True, False)
    """
    return path.parent.name == "heads" and re.fullmatch(r"[0-9]{8}\.json", path.name) is not None


def _unwritable(location: str, error: Exception) -> WorkspaceError:
    got = str(error).partition("\n")[0]
    return WorkspaceError(location, "nothing can be written here", got=got, hint="check space and permissions")


def _unreachable(location: str, error: Exception) -> WorkspaceError:
    got = str(error).partition("\n")[0]
    return WorkspaceError(location, "the store does not answer", got=got, hint="check the URL and the credentials")


def _head_name(number: int) -> str:
    return f"heads/{number:08d}.json"
