"""Findings about what the run came to: copied merges, echoed verdicts, stopping too early, too late or with a false claim.

Each detector returns its findings, or the reason why it cannot tell. The thresholds stand here with their reasons.
"""

from __future__ import annotations

import re

from analysis.model import Candidate
from analysis.orchestration.cost import unanswered
from analysis.orchestration.evidence import Evidence, Found, has_run_of, plain
from analysis.orchestration.graph import in_one_go

#: The share of a summary that stands verbatim in the result, and of the result in it, for the result to be a copy.
_COPIED_SHARE = 0.9
#: A verdict has words of its own, so more than half is enough for it to repeat what it was to check.
_ECHOED_SHARE = 0.51
#: Texts shorter than this, such as a number, agree without being copied.
_MIN_COPIED = 12
#: Roles that check others; matched in the component's name.
_CHECKERS = re.compile(r"verif|valid|review|critic|check|test|judge|audit|evaluat|qa\b", re.IGNORECASE)
#: A leader that merges more than once without an answer goes on without it; that is no longer a matter of stopping.
_MAX_MERGES_WITHOUT = 1
#: Final states that claim success.
_SUCCESS = frozenset(
    {"solved", "success", "successful", "succeeded", "passed", "done", "complete", "completed", "finished", "ok"}
)
_WORKING = frozenset({"spawn", "delegate", "aggregate"})


def aggregation_leakage(evidence: Evidence) -> Found:
    """The merge of two or more different results is a verbatim copy of one of them."""
    found, n_judged = [], 0
    for n, event in enumerate(evidence.events):
        if event.kind != "aggregate" or event.merge_kind == "alternatives":
            continue
        result = plain(event.content)
        merged = [k for k in evidence.graph.causes[n] if evidence.events[k].event_id in event.merge_points]
        merged = merged or [k for k in evidence.graph.causes[n] if evidence.events[k].agent_id != event.agent_id]
        texts = {k: text for k in merged if (text := plain(evidence.events[k].content))}
        if not result or len(set(texts.values())) < 2:
            continue
        n_judged += 1
        copied = [k for k, text in texts.items() if len(text) >= _MIN_COPIED and has_run_of(text, result, _COPIED_SHARE)]
        if len(copied) == 1 and has_run_of(result, texts[copied[0]], _COPIED_SHARE):
            message = f"the result of merging {len(texts)} is a verbatim copy of one"
            loss, unit = 1 - 1 / len(texts), "share of the merged results left out"
            found.append(evidence.finding("aggregation leakage", [copied[0], n], message, loss=loss, loss_unit=unit))
    return found if n_judged else "no merge of two or more different texts"


def verifier_echo(evidence: Evidence) -> Found:
    """An agent whose role is to check repeats what it was told, without any own work since it last spoke."""
    found, n_judged = [], 0
    for n, event in enumerate(evidence.events):
        role = evidence.components.get(event.agent_id or "", event.agent_id or "")
        if event.kind != "communicate" or not (event.message_type == "verdict" or _CHECKERS.search(role)):
            continue
        verdict = plain(event.content)
        if len(verdict) < _MIN_COPIED:
            continue
        n_judged += 1
        before = evidence.graph.before[n]
        if before is not None and evidence.events[before].kind == "act":
            continue
        heard = [k for k in evidence.graph.causes[n] if evidence.events[k].agent_id != event.agent_id]
        echoed = next((k for k in heard if has_run_of(verdict, plain(evidence.events[k].content), _ECHOED_SHARE)), None)
        if echoed is not None:
            message = f"a verdict repeats what it was to check and nothing was done to check it ({role})"
            loss, unit = evidence.work([n]), _work(evidence)
            found.append(evidence.finding("verifier echo", [echoed, n], message, loss=loss, loss_unit=unit))
    return found if n_judged else "no agent whose role is to check says anything"


def _work(evidence: Evidence) -> str:
    return f"{evidence.timed.unit} of work"


def stopped_too_early(evidence: Evidence) -> Found:
    """The run stops while delegations of its leaders' last go are unanswered, and is not known to have passed."""
    stops = [n for n, event in enumerate(evidence.events) if event.kind == "stop"]
    if not stops:
        return "no stop event"
    if all(event.kind != "delegate" or not set(event.targets) - {event.agent_id} for event in evidence.events):
        return "no delegation names another agent"
    last = {evidence.events[go[0]].agent_id: go for go in in_one_go(evidence.graph)}
    merges = [n for n, event in enumerate(evidence.events) if event.kind == "aggregate"]
    waiting = []
    for n in unanswered(evidence.timed):
        leader = evidence.events[n].agent_id
        n_merged = sum([k > n and evidence.events[k].agent_id == leader for k in merges])
        if n < stops[-1] and n in last.get(leader, ()) and n_merged <= _MAX_MERGES_WITHOUT:
            waiting.append(n)
    if not waiting or evidence.trace.outcome.passed:
        return []
    n_all = sum([event.kind == "delegate" for event in evidence.events])
    message = f"the run stopped while {len(waiting)} of {n_all} delegations were unanswered"
    loss, unit = len(waiting) / n_all, "share of delegations unanswered"
    return [evidence.finding("stopped too early", [*waiting, stops[-1]], message, loss=loss, loss_unit=unit)]


def stopped_too_late(evidence: Evidence) -> Found:
    """After the best tested result the team spawns, delegates or merges again, and nothing better comes of it."""
    place = evidence.graph.position
    wholes = [
        (place[c.event_id], _share(c)) for c in evidence.trace.candidates
        if c.event_id in place and c.subtask_id is None and c.n_tests and c.n_passed is not None
    ]  # fmt: skip
    if not wholes:
        return "no result for the whole task was tested"
    best = max([rate for _, rate in wholes])
    settled = min([n for n, rate in wholes if rate == best])
    # What hangs on the best result, and what simply comes later: an answer that was on its way then is not late.
    after = _caused_by(evidence, settled)
    decisions = [n for n in after if evidence.events[n].kind in _WORKING]
    if not decisions:
        return []
    late = [n for n in after if evidence.events[n].kind != "stop"]
    message = f"the best result ({best:.0%} of the tests) was there {len(late)} events before the end, and the team went on"
    return [evidence.finding("stopped too late", [settled, *late], message, loss=evidence.work(late), loss_unit=_work(evidence))]


def _share(candidate: Candidate) -> float:
    return (candidate.n_passed or 0) / (candidate.n_tests or 1)


def _caused_by(evidence: Evidence, start: int) -> list[int]:
    reached = {start}
    for n in range(start + 1, len(evidence.events)):
        if any(cause in reached for cause in evidence.graph.causes[n]):
            reached.add(n)
    return sorted(reached - {start})


def false_success(evidence: Evidence) -> Found:
    """The run stops in a state that claims success, and its outcome is a failure."""
    stops = [n for n, event in enumerate(evidence.events) if event.kind == "stop" and event.final_state is not None]
    if not stops:
        return "no stop event states the final state"
    if evidence.trace.outcome.passed is None:
        return "the outcome is not known"
    state = evidence.events[stops[-1]].final_state or ""
    if evidence.trace.outcome.passed or plain(state) not in _SUCCESS:
        return []
    outcome = evidence.trace.outcome
    missed = outcome.n_tests - outcome.n_tests_passed if outcome.n_tests and outcome.n_tests_passed is not None else None
    message = f"the run ends as {state!r}, and it failed"
    loss = None if missed is None else missed / (outcome.n_tests or 1)
    unit = "share of tests that fail"
    return [evidence.finding("claimed success on failure", stops[-1:], message, loss=loss, loss_unit=unit)]
