"""What a per-trace stage is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from analysis.model import Trace
from analysis.workspace import Snapshot

Rows = dict[str, list[dict[str, Any]]]


class Stage(NamedTuple):
    """What a stage is called, its version and tables, what it looks at besides the trace, and what it does.

    `context` gives what else matters for a trace, by trace_id, as plain values; `run` gives the rows of each table
    without their trace_id.
    """

    name: str
    version: str
    tables: tuple[str, ...]
    context: Callable[[Snapshot], Mapping[str, Any]]
    run: Callable[[Trace, Any], Rows]
