"""What went wrong in one run: anti-patterns with exact predicates, each with its events.

A finding says that the predicate holds for these events, not that it made the run fail. Where a predicate cannot be
decided (no clock, no outcome, ...) there is no finding and `undecided` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from analysis.model import Trace
from analysis.orchestration import calls, endings, teamwork
from analysis.orchestration.evidence import Evidence, Finding, Found
from analysis.orchestration.timing import Timing, timing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FINDINGS", "Finding", "findings", "findings_df", "undecided"]


class _Kind(NamedTuple):
    definition: str
    detect: Callable[[Evidence], Found]


_KINDS: dict[str, _Kind] = {
    "serial collapse": _Kind(
        "Three or more agents were spawned in one go and worked strictly one after the other, although at least one of them "
        "needed nothing from the one before it: no cause that does not pass their leader, no stated need. Loss: the time "
        "that side by side would have saved.", teamwork.serial_collapse),
    "dominant agent": _Kind(
        "At least 80 % of the delegations went to one agent, where three or more of its component were to be had; or, "
        "where there are fewer, three or more sub-agents and ten or more delegations. Loss: its share beyond an even split.",
        teamwork.dominant_agent),
    "over-communication": _Kind(
        "Of the messages of agents that do own work, three or more, and at least half, follow another message to the same "
        "agents with nothing done in between. Loss: their time.", calls.over_communication),
    "aggregation leakage": _Kind(
        "The merge of two or more different results is a copy of one: at least 90 % of either stands in the other as one "
        "stretch, and of no other result. Not where alternatives are merged. Loss: the share of results left out.",
        endings.aggregation_leakage),
    "pseudo-parallelism": _Kind(
        "Two or more agents worked on the same requirement units while others were covered by nobody; or, where no subtasks "
        "are stated, have one component, were told the same words in one go and are not merged as alternatives. Loss: all "
        "their work but the largest.", teamwork.pseudo_parallelism),
    "verifier echo": _Kind(
        "A verdict, or a message of an agent whose role is to check, stands by more than half, as one stretch, in what it was "
        "to check, and its agent did no own work right before. Loss: its time.", endings.verifier_echo),
    "stopped too early": _Kind(
        "The run stopped while delegations were unanswered that their leader had made in its last go and merged without once "
        "at most, and it is not known to have passed. Loss: their share of all.",
        endings.stopped_too_early),
    "stopped too late": _Kind(
        "After the best tested result for the whole task, something that it caused was spawned, delegated or merged "
        "again. Loss: the work from then on.", endings.stopped_too_late),
    "claimed success on failure": _Kind(
        "The last stop states a final state that means success, and the outcome is a failure. Loss: the share of tests "
        "that fail.", endings.false_success),
    "cyclic delegation": _Kind(
        "A chain of delegations, each caused by the one before and made by its target, comes back to an agent that had "
        "made one. Loss: the time of the hand-overs.", teamwork.cyclic_delegation),
    "repetitive delegation": _Kind(
        "The same agent was told the same words three times or more. Loss: how often it was repeated.",
        teamwork.repetitive_delegation),
    "sub-agent explosion": _Kind(
        "Ten or more agents were spawned, and of at least half of them no event reached the end of the run without "
        "failing. Loss: their work.", teamwork.sub_agent_explosion),
    "redundant tool calls": _Kind(
        "One agent made the same call three times or more, none failed, and all answers are alike. Loss: the repeats.",
        calls.redundant_tool_calls),
    "retry storm": _Kind(
        "Four or more calls of one tool by one agent failed in a row. Loss: the time from the first to the last.",
        calls.retry_storm),
    "stuck call": _Kind(
        "A call took ten times the median of five or more of its kind, and at least 30 s; or a tool call has no result, "
        "where others have one, and its agent did nothing more. Loss: the time beyond the median.", calls.stuck_call),
    "context cliff": _Kind(
        "The input tokens of one agent fell by more than half from one call to the next, from 10,000 or more, and stayed "
        "there for a second call where there is one. Loss: the tokens that fell away.", calls.context_cliff),
}  # fmt: skip

#: Every kind of finding and its definition, in the order in which `findings` gives them.
FINDINGS: dict[str, str] = {name: kind.definition for name, kind in _KINDS.items()}


def findings(trace: Trace, *, timed: Timing | None = None) -> tuple[Finding, ...]:
    """Return the anti-patterns of a run, by kind in the order of `FINDINGS`, then by their first event.

    Parameters
    ----------
    trace : the run
    timed : its timing, where it is at hand
    """
    evidence = Evidence(trace, timed or timing(trace))
    place = evidence.graph.position
    found: list[Finding] = []
    for kind in _KINDS.values():
        some = kind.detect(evidence)
        if not isinstance(some, str):
            found += sorted(some, key=lambda finding: [place[event_id] for event_id in finding.event_ids])
    return tuple(found)


def undecided(trace: Trace, *, timed: Timing | None = None) -> dict[str, str]:
    """Return the kinds of finding that cannot be decided for a run, each with the reason."""
    evidence = Evidence(trace, timed or timing(trace))
    reasons = {name: kind.detect(evidence) for name, kind in _KINDS.items()}
    return {name: reason for name, reason in reasons.items() if isinstance(reason, str)}


def findings_df(traces: Iterable[Trace]) -> pd.DataFrame:
    """Return the findings of several traces, one row each: trace_id and the fields of `Finding`."""
    import pandas as pd

    fields = Finding.__struct_fields__
    rows = [(trace.trace_id, *[getattr(f, field) for field in fields]) for trace in traces for f in findings(trace)]
    return pd.DataFrame(rows, columns=["trace_id", *fields]).astype({"loss": float})
