"""Reading one version of a workspace: SQL over its tables, traces by id.

DuckDB reads the Parquet files of one head. A snapshot never changes, so whatever is computed from it
can be kept for as long as the head number stays the same.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import zstandard

from analysis.errors import UnknownNameError, WorkspaceError
from analysis.model import Trace
from analysis.workspace.filters import MEASURES, TAGS
from analysis.workspace.heads import Head, Workspace
from analysis.workspace.tables import MEMBERS, SCHEMAS, traces_from

_INPUTS = {"traces", "texts", "raw", "problems", "decisions", *MEMBERS}
#: The effects that may be believed: those of studies whose controls held.
_SOUND = "select * from effects semi join (select study from effect_runs where is_sound) using (study)"
_SQL_TYPES = {"string": "varchar", "int64": "bigint", "double": "double", "bool": "boolean", "binary": "blob"}


class Snapshot:
    """All tables of one workspace at one version."""

    def __init__(self, workspace: Workspace, head: Head | None = None) -> None:
        """Open the version `head`, or the newest one."""
        self.workspace = workspace
        self.head = workspace.head() if head is None else head
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def sql(self, query: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> pa.Table:
        """Return the rows of one query; every input and stage table is there by its name.

        Values of strangers go in as parameters, never into the text of the query.

        Raises
        ------
        WorkspaceError
            If a file of this version is gone, which happens to old versions only.
        """
        try:
            return self._cursor().sql(query, params=parameters or None).to_arrow_table()
        except duckdb.IOException as error:
            place, got = f"{self.workspace.location} version {self.head.number}", str(error).partition("\n")[0]
            raise WorkspaceError(place, "a file is missing or damaged", got=got, hint="open the newest version") from None

    def resolve(self, trace_id: str) -> str:
        """Return the full id that `trace_id` is or ends: any suffix that fits one trace only.

        Raises
        ------
        UnknownNameError
            If no trace, or more than one, has an id that ends so.
        """
        trace_id = trace_id.encode("utf-8", "replace").decode()
        fits = "trace_id = $id or ends_with(trace_id, $id)"
        found = self.sql(f"select trace_id from traces where {fits} order by trace_id = $id desc, trace_id", {"id": trace_id})
        ids: list[str] = found["trace_id"].to_pylist()
        if ids and (ids[0] == trace_id or len(ids) == 1):
            return ids[0]
        if ids:
            problem = f"{len(ids)} traces end so"
            raise UnknownNameError("trace", problem, got=trace_id, expected=", ".join(ids[:3]), hint="give more of the id")
        near = difflib.get_close_matches(trace_id, self.sql("select trace_id from traces limit 20000")["trace_id"].to_pylist(), 3)
        hint = f"did you mean {near[0]}?" if near else "`counterpoint list` shows what is here"
        raise UnknownNameError("trace", "no trace has this id", got=trace_id, hint=hint)

    def trace(self, trace_id: str) -> Trace:
        """Return one trace, equal to the one that was imported. `trace_id` may be any unique suffix."""
        return self.traces([self.resolve(trace_id)])[0]

    def traces(self, trace_ids: Sequence[str]) -> list[Trace]:
        """Return the traces with these ids, sorted by id; unknown ids are left out."""
        tables = {name: self.rows(name, trace_ids) for name in ("traces", "texts", *MEMBERS)}
        return traces_from(tables)

    def rows(self, table: str, trace_ids: Sequence[str]) -> pa.Table:
        """Return one table's rows of some traces."""
        if not self.head.n_rows(table):
            return SCHEMAS[table].empty_table()
        if len(trace_ids) == 1:  # compared with one value, row groups that cannot hold it are not read
            return self.sql(f"select * from {table} where trace_id = $id", {"id": trace_ids[0]})
        return self.sql(f"select * from {table} where trace_id in (select unnest($ids))", {"ids": list(trace_ids)})

    def raw(self, trace_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the source records of some traces: columns of the table `raw`, `data` as the bytes that were read."""
        rows = self.rows("raw", trace_ids).sort_by([("trace_id", "ascending"), ("part", "ascending")]).to_pylist()
        decompressor = zstandard.ZstdDecompressor()
        return [row | {"data": decompressor.decompress(row["data"], max_output_size=row["n_bytes"])} for row in rows]

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection.cursor()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:")
        connection.execute("set threads = 2; set memory_limit = '2GB'; set parquet_metadata_cache = true")
        statements = []
        for name in sorted({*SCHEMAS, *self.head.tables}):
            paths = self.workspace.paths(self.head.tables.get(name, ()))
            files = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
            columns = ", ".join(f'"{column.name}" {_SQL_TYPES[str(column.type)]}' for column in SCHEMAS.get(name, ()))
            if not paths:
                statements.append(f'create table "{name}" ({columns})')
            elif name in _INPUTS or not columns:
                statements.append(f'create view "{name}" as select * from read_parquet([{files}])')
            else:  # an older version may have written some of the files: columns that they lack are null
                rows = f"select * from read_parquet([{files}], union_by_name = true)"
                statements.append(f'create table "{name} columns" ({columns})')
                statements.append(f'create view "{name}" as select * from "{name} columns" union all by name {rows}')
        statements += [f"create view current_tags as {TAGS}", f"create view measures as {MEASURES}"]
        statements.append(f"create view sound_effects as {_SOUND}")
        connection.execute("; ".join(statements))
        return connection
