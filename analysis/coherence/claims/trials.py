"""Frequencies over repeated trials: of n runs of one task under one condition, in which share a verdict was positive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from analysis.coherence.claims.records import Extracted
from analysis.model import Claim

RULE = "share-of-trials"
SUFFIX = "_over_trials"


class Trial(NamedTuple):
    """One run and its last verdicts: (component, proposition) -> whether it held. The outcome is ("outcome", "passed")."""

    trace_id: str
    task: str | None
    condition: str | None
    verdicts: Mapping[tuple[str, str], bool]


def over_trials(traces: Iterable[Trial]) -> dict[str, tuple[Extracted, ...]]:
    """Return trace_id -> the frequencies of its group: those runs of its task and condition that state the verdict.

    A verdict that fewer than two runs of the group state has no frequency; every run of a group is given the same ones.
    Runs are told apart by their id: the same run given twice counts once, as given last. Runs without a task have no group.

    >>> runs = [Trial(f"r{n}", "t", None, {("outcome", "passed"): n > 0}) for n in range(4)]
    >>> [(found.claim.proposition, found.claim.p, found.claim.n_samples) for found in over_trials(runs)["r0"]]
    [('passed_over_trials', 0.75, 4)]
    """
    groups = defaultdict[tuple[str, str | None], list[Trial]](list)
    for run in {run.trace_id: run for run in traces}.values():
        if run.task is not None:
            groups[run.task, run.condition].append(run)
    found = {}
    for runs in groups.values():
        claims = _frequencies(runs)
        found.update({run.trace_id: claims for run in runs if claims})
    return dict(sorted(found.items()))


def _frequencies(runs: list[Trial]) -> tuple[Extracted, ...]:
    said = defaultdict[tuple[str, str], list[bool]](list)
    for run in runs:
        for key, verdict in run.verdicts.items():
            said[key].append(verdict)
    repeated = [(key, verdicts) for key, verdicts in sorted(said.items()) if len(verdicts) >= 2]
    return tuple(_frequency(n, *key, verdicts) for n, (key, verdicts) in enumerate(repeated))


def _frequency(n: int, component: str, proposition: str, verdicts: list[bool]) -> Extracted:
    claim = Claim(
        claim_id=f"x:trials:{n}",
        component=component,
        proposition=f"{proposition[: 512 - len(SUFFIX)]}{SUFFIX}",
        p=sum(verdicts) / len(verdicts),
        kind="frequency",
        n_samples=len(verdicts),
        basis="derived",
        rule=RULE,
    )
    return Extracted(claim=claim, score=1.0, text=f"{proposition[:120]} in {sum(verdicts)} of {len(verdicts)} trials")
