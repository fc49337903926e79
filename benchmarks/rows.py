"""The one form in which benchmarks print: a row a measure, ours beside what a user would take instead.

Hides how the command line is read and what a row looks like in words and as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
_MORE_IS_BETTER = ("share", "share of runs", "ARI", "rank correlation")  # and everything a second


def row(measure: str, ours: float, *, peer: str, theirs: float | None, unit: str, goal: str | None, met: bool) -> Row:
    """Return one line of the result; the ratio says how many times better ours is."""
    ratio = None
    if ours and theirs:
        is_more_better = unit.endswith("/s") or unit in _MORE_IS_BETTER
        ratio = round(ours / theirs if is_more_better else theirs / ours, 2)
    values = {"measure": measure, "ours": round(ours, 9), "peer": peer, "peer_value": theirs and round(theirs, 9), "unit": unit}
    return {**values, "ratio": ratio, "goal": goal, "met": met}


def seconds(work: Callable[[], Any], repeats: int = 1, *, clock: Callable[[], float] = time.process_time) -> float:
    """Return the least seconds of a few runs, of this process's CPU unless another clock is given."""
    found = []
    for _ in range(repeats):
        started = clock()
        work()
        found.append(clock() - started)
    return min(found)


def command_line(doc: str | None, *, quick: str) -> argparse.ArgumentParser:
    """Return the parser with --quick and --json."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{quick}; within two minutes")
    parser.add_argument("--json", action="store_true", help="print the rows as one JSON list")
    return parser


def show(rows: Sequence[Row], *, as_json: bool) -> None:
    """Print the rows."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for r in rows:
        peer = r["peer"] if r["peer_value"] is None else f"{r['peer']} {r['peer_value']:.3g}"
        ratio = "" if r["ratio"] is None else f", ratio {r['ratio']}"
        beside = "; ".join(filter(None, (r["goal"], peer)))
        print(f"{'met ' if r['met'] else 'MISS'} {r['measure']}: {r['ours']:.3g} {r['unit']}{ratio} ({beside})")
