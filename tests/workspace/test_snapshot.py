"""What a snapshot makes of files that other versions wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from analysis.workspace import SCHEMAS, Snapshot, Workspace


def test_files_of_an_older_version_lack_columns_and_say_null(tmp_path: Path) -> None:
    workspace = Workspace(str(tmp_path), create=True)
    new = pa.Table.from_pylist([{"trace_id": "b", "level": "final", "coupling_bits": 1.0}], schema=SCHEMAS["cliques"])
    old = pa.Table.from_pylist([{"trace_id": "a", "level": "final"}])
    workspace.commit(workspace.head(), {"cliques": [workspace.write("cliques", table) for table in (old, new)]})
    rows = Snapshot(workspace).sql("select trace_id, coupling_bits, residual from cliques order by trace_id").to_pylist()
    assert rows == [
        {"trace_id": "a", "coupling_bits": None, "residual": None},
        {"trace_id": "b", "coupling_bits": 1.0, "residual": None},
    ]
