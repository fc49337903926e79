"""What decisions of runs teach: which of them, and how much each counts.

A decision counts as much as it is known to have brought: the pass of its run, or, where replays confirmed it, the share of
passes that it is worth itself. Nothing counts less than 0, so that a fit has one optimum: what did harm is not imitated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analysis.counterfactual.agents.decisions import Row, rows_of
from analysis.counterfactual.agents.protocol import Purpose
from analysis.errors import TraceError
from analysis.model import Trace

#: Decisions that are carried out by an event of another name than that of the question: (question, event).
_CARRIED_OUT = (("assign:", "give:"), ("plan:strategy", "merge"))


class Lesson(NamedTuple):
    """A choice and its weight; `is_credited` where that is its own credit."""

    row: Row
    weight: float
    is_credited: bool


def lessons(
    traces: Iterable[Trace],
    *,
    component: str,
    purposes: Sequence[Purpose] = (),
    credits: Mapping[tuple[str, str], float] | None = None,
) -> list[Lesson]:
    """Return the choices of a component in some runs, with their weights.

    Parameters
    ----------
    purposes : which decisions; all by default
    credits : (trace, event) -> confirmed credit on `passed`, in [-1, 1]; the run's own outcome counts for all others

    Raises TraceError where runs of several worlds have such choices, or a run's choices cannot be read.

    >>> lessons([], component="planner")
    []
    """
    found: list[Lesson] = []
    worlds: Counter[str] = Counter()
    for trace in traces:
        mine = [row for row in rows_of(trace) if row.component == component and (not purposes or row.purpose in purposes)]
        worlds[trace.world] += len(mine)
        for row in mine:
            credit = (credits or {}).get((trace.trace_id, event_of(row)))
            weight = float(bool(trace.outcome.passed)) if credit is None else max(0.0, credit)
            found.append(Lesson(row, weight, credit is not None))
    if len(+worlds) > 1:
        got = ", ".join([f"{n} decisions {world}" for world, n in sorted(worlds.items())])
        raise TraceError("runs", "they are of several worlds", got=got, hint="choose one by the filter, such as world = 'live'")
    return found


def event_of(row: Row) -> str:
    """Return the event that a choice is seen in.

    >>> key = ("a task", 1, "planner", "assign:p1", "assign")
    >>> event_of(Row(component="planner", purpose="assign", options={}, choice="coder-1", key=key))
    'give:p1'
    """
    step = str(row.key[3]) if len(row.key) > 3 else ""
    return next((event + step.removeprefix(asked) for asked, event in _CARRIED_OUT if step.startswith(asked)), step)
