"""The store: a folder (or object-store URL) of Parquet files and numbered heads, and what is read from it."""

from __future__ import annotations

from analysis.workspace.heads import File, Head, Workspace, is_head
from analysis.workspace.snapshot import Snapshot
from analysis.workspace.tables import SCHEMAS, problem_table, trace_tables

__all__ = ["SCHEMAS", "File", "Head", "Snapshot", "Workspace", "is_head", "problem_table", "trace_tables"]
