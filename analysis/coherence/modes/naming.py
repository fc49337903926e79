"""What a mode is called and how its profile is said in words; by rules, the same cells give the same words.

Also where its traces come from and how they ended, as a table. Hidden here: which cells count for a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.coherence.modes.categories import OTHER
from analysis.coherence.modes.profiles import BORDER, Source
from analysis.estimation import wilson

if TYPE_CHECKING:
    import pandas as pd

#: A component's pair with itself takes part of every share, so the pairs across decide, where they have this much.
_MIN_ACROSS: Final = 0.2
#: The share of what lies across that a known name must cover.
_MIN_COVERED: Final = 0.5
#: A cell this far above its share over all profiles tells a mode from others.
_STANDS_OUT: Final = 0.02
#: Kinds of relation that tie quotes of one proposition by several components.
_SHARED: Final = frozenset({"equal", "shared"})
_QUIET: Final = frozenset({"none found", "none", "held", "finished"})


class TopCell(NamedTuple):
    """A cell of a mode: its mean share in the mode's profiles, and over all profiles."""

    cell: str
    share: float
    share_of_all: float


def name_of(cells: Sequence[TopCell], source: Source) -> str:
    """Return what a mode with these cells is called.

    >>> name_of([TopCell("implies | planner–worker | early", 0.6, 0.2), TopCell("xor | user alone | late", 0.4, 0.2)], "residual")
    'plan–execution boundary'
    >>> name_of([TopCell("stop | limit reached", 0.3, 0.1), TopCell("errors | tool", 0.2, 0.05)], "orchestration")
    'stopped: limit reached, errors of the tool'
    """
    return _residual_name(cells) if source == "residual" else _orchestration_name(cells)


def in_words(cells: Sequence[TopCell], *, n: int = 4) -> str:
    """Return the profile as a phrase: the cells that stand out most, each beside its share over all profiles.

    >>> in_words([TopCell("implies | planner–worker | late", 0.6, 0.25)])
    '60 % implies, planner–worker, late (25 % over all)'
    """
    out = [cell for cell in cells if cell.share - cell.share_of_all >= _STANDS_OUT]
    top = sorted(out or cells, key=lambda cell: (cell.share_of_all - cell.share if out else 0, -cell.share, cell.cell))[:n]
    return "; ".join(f"{100 * c.share:.0f} % {_said(c.cell)} ({100 * c.share_of_all:.0f} % over all)" for c in top)


def distinct(names: Sequence[str], form: str = " ({})") -> list[str]:
    """Return names of which none occurs twice: the second of a kind is numbered.

    >>> distinct(["drift", "loss", "drift"])
    ['drift', 'loss', 'drift (2)']
    """
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else name + form.format(seen[name]))
    return found


def breakdown(members: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """Return for each mode how its traces spread over each fact, such as domain and outcome.

    Parameters
    ----------
    members : trace_id, mode_id
    facts : trace_id and one column a fact; what is missing counts as `not known`

    Returns
    -------
    mode_id, fact, value, n, n_mode, share, low, high: of the mode's traces, the share with this value, 95 % Wilson interval
    """
    import pandas as pd

    joined = members[["trace_id", "mode_id"]].merge(facts, on="trace_id", how="left")
    rows = []
    for fact in facts.columns.drop("trace_id"):
        values = joined[fact].astype(object).where(joined[fact].notna(), "not known").map(str)
        counts = values.groupby([joined["mode_id"], values]).size()
        sizes = joined.groupby("mode_id").size()
        for (mode_id, value), n in counts.items():
            estimate = wilson(int(n), int(sizes[mode_id]))
            assert estimate is not None  # a group has members
            rows.append((mode_id, fact, value, int(n), int(sizes[mode_id]), estimate.value, estimate.low, estimate.high))
    return pd.DataFrame(rows, columns=["mode_id", "fact", "value", "n", "n_mode", "share", "low", "high"])


def _residual_name(cells: Sequence[TopCell]) -> str:
    across = [cell for cell in cells if "–" in _parts(cell.cell)[1]]
    total = sum(cell.share for cell in across)
    if total < _MIN_ACROSS * sum(cell.share for cell in cells):
        largest = min(cells, key=lambda cell: (-cell.share, cell.cell))
        return _parts(largest.cell)[1].replace(" alone", " contradicts itself")
    covered: dict[str, float] = {}
    for cell in across:
        name = _boundary(*_parts(cell.cell))
        covered[name] = covered.get(name, 0.0) + cell.share
    name, share = min(((n, s) for n, s in covered.items() if n), key=lambda pair: (-pair[1], pair[0]), default=("", 0.0))
    if share >= _MIN_COVERED * total:
        return name
    kind, pair, phase = _parts(min(across, key=lambda cell: (-cell.share, cell.cell)).cell)
    return f"{kind} between {pair}, {phase}"


def _boundary(kind: str, pair: str, phase: str) -> str:
    """Return the known boundary that a cell lies on, or nothing."""
    roles = set(pair.split("–"))
    if kind in _SHARED or roles == {"worker"}:
        return "shared-state conflict"
    if "verifier" in roles and phase != "early":
        return "verify–revise drift"
    if "planner" in roles and roles & {"worker", "tool"}:
        return "plan–execution boundary"
    if "aggregator" in roles:
        return "loss in merging"
    return ""


def _orchestration_name(cells: Sequence[TopCell]) -> str:
    telling = [cell for cell in cells if _last(cell.cell) not in _QUIET] or list(cells)
    ranked = sorted(telling, key=lambda cell: (cell.share_of_all - cell.share, -cell.share, cell.cell))
    kept = [cell for cell in ranked if cell.share - cell.share_of_all >= _STANDS_OUT][:3] or ranked[:1]
    return ", ".join(_phrase(cell.cell) for cell in kept)


def _phrase(cell: str) -> str:
    block, _, what = cell.partition(BORDER)
    whom = "other components" if what == OTHER else f"the {what}"
    said = {
        "stop": f"stopped: {what}",
        "errors": f"errors of {whom}",
        "critical path": f"time spent in {whom}",
        "deficit": f"low {what}",
    }
    return said.get(block, what)


def _last(cell: str) -> str:
    return cell.rpartition(BORDER)[2]


def _said(cell: str) -> str:
    return cell.replace(BORDER, ", ")


def _parts(cell: str) -> tuple[str, str, str]:
    """Return kind, pair and phase; a kind may hold the border, as `|` is an operator."""
    kind, pair, phase = cell.rsplit(BORDER, 2)
    return kind, pair, phase
