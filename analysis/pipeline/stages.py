"""What a stage is: one that works trace by trace, and one that works on all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from analysis.model import Trace
from analysis.workspace import Snapshot

Rows = dict[str, list[dict[str, Any]]]
Progress = Callable[[float, str], None]


class Stage(NamedTuple):
    """What a per-trace stage is called, its version and tables, what it looks at besides the trace, and what it does.

    `context` gives what else matters for a trace, by trace_id, as plain values; `run` gives the rows of each table
    without their trace_id.
    """

    name: str
    version: str
    tables: tuple[str, ...]
    context: Callable[[Snapshot], Mapping[str, Any]]
    run: Callable[[Trace, Any], Rows]


class CorpusStage(NamedTuple):
    """A stage over all traces at once, run anew whenever the data, the stages it `needs` or its version change."""

    name: str
    version: str
    tables: tuple[str, ...]
    needs: tuple[str, ...]
    run: Callable[[Snapshot, Progress], Rows]
