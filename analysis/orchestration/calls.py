"""Findings about calls, messages and contexts: the same again and again, calls that never end, contexts that are cut.

Each detector returns its findings, or the reason why it cannot tell. The thresholds stand here with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from analysis.orchestration.evidence import Evidence, Finding, Found, plain

#: Asking once more is care, three like calls with like answers are waste.
_MIN_SAME_CALLS = 3
#: Where one call in ten fails, four failures in a row come about once in ten thousand calls.
_MIN_FAILURES = 4
#: A call is stuck at ten times the usual, but never below half a minute, which slow models and searches take.
_STUCK_FACTOR, _MIN_STUCK_S = 10, 30.0
#: The usual is known from five calls of the kind.
_MIN_LIKE = 5
#: Windows below this change for ordinary reasons; a cut takes more than half of what was there.
_MIN_CONTEXT_TOKENS, _CUT_SHARE = 10_000, 0.5
#: Messages without own work since the last one to the same agents, and their share of all messages.
_MIN_EMPTY, _EMPTY_SHARE = 3, 0.5


def over_communication(evidence: Evidence) -> Found:
    """Agents that do own work send message after message to the same agents without any of it in between."""
    messages = [n for n, event in enumerate(evidence.events) if event.kind == "communicate"]
    if not messages:
        return []
    working = {event.agent_id for event in evidence.events if event.kind == "act"}
    sent = [n for n in messages if evidence.events[n].agent_id in working]
    if not sent:
        return "messages are the only record of what their senders did"
    empty = []
    for n in sent:
        before = evidence.graph.before[n]
        last = evidence.events[before] if before is not None else None
        if last is not None and last.kind == "communicate" and set(last.targets) & set(evidence.events[n].targets):
            empty.append(n)
    if len(empty) < _MIN_EMPTY or len(empty) < _EMPTY_SHARE * len(sent):
        return []
    message = f"{len(empty)} of {len(sent)} messages follow another one to the same agents with no own work in between"
    return [evidence.finding("over-communication", empty, message)]


def redundant_tool_calls(evidence: Evidence) -> Found:
    """An agent makes the same call three times or more and gets the same answer each time."""
    same: dict[tuple[str, str, str, str], list[int]] = {}
    for n, event in enumerate(evidence.events):
        if event.action == "tool_call" and event.content and event.error is None:
            results = [evidence.events[k] for k in evidence.graph.effects[n] if evidence.events[k].action == "tool_result"]
            if all(result.error is None for result in results):
                answer = "\n".join([plain(result.content) for result in results])
                same.setdefault((event.agent_id or "", event.name or "", plain(event.content), answer), []).append(n)
    if not same:
        return "no tool call states what it asked for"
    return [
        evidence.finding("redundant tool calls", places, f"the same call was made {len(places)} times with the same answer",
                         loss=float(len(places) - 1), loss_unit="repeated calls")
        for places in same.values() if len(places) >= _MIN_SAME_CALLS
    ]  # fmt: skip


def retry_storm(evidence: Evidence) -> Found:
    """Calls of one tool by one agent fail four times or more in a row."""
    tools = [n for n, event in enumerate(evidence.events) if event.action in ("tool_call", "tool_result")]
    if not tools:
        return "no tool calls"
    streaks: dict[tuple[str, str], list[int]] = {}
    found: list[Finding] = []
    for n in tools:
        event = evidence.events[n]
        streak = streaks.setdefault((event.agent_id or "", event.name or ""), [])
        if event.error is not None:
            streak.append(n)
        elif event.action == "tool_result" or not _has_result(evidence, n):
            found += _storm(evidence, streak)
            streak.clear()
    return found + [finding for streak in streaks.values() for finding in _storm(evidence, streak)]


def _has_result(evidence: Evidence, n: int) -> bool:
    return any(evidence.events[k].action == "tool_result" for k in evidence.graph.effects[n])


def _storm(evidence: Evidence, streak: Sequence[int]) -> Iterator[Finding]:
    if len(streak) < _MIN_FAILURES:
        return
    calls = [k for n in streak for k in evidence.graph.causes[n] if evidence.events[k].action == "tool_call"]
    places = sorted({*streak, *calls})
    lasted = max([evidence.timed.schedule[n].end for n in places]) - min([evidence.timed.schedule[n].start for n in places])
    message = f"{len(streak)} calls of one tool failed in a row"
    unit = f"{evidence.timed.unit} from first to last failure"
    yield evidence.finding("retry storm", places, message, loss=lasted, loss_unit=unit)


def stuck_call(evidence: Evidence) -> Found:
    """A call takes ten times as long as its like and half a minute at least, or never comes back."""
    calls = [n for n, event in enumerate(evidence.events) if event.action in ("tool_call", "model_call")]
    answered = [n for n in calls if evidence.events[n].action == "tool_call" and _has_result(evidence, n)]
    has_clock = evidence.timed.basis_of_time == "clock"
    if not calls or not (has_clock or answered):
        return "no calls" if not calls else "no clock, and no tool call has a result of its own"
    found = list(_overlong(evidence, calls)) if has_clock else []
    last = {places[-1] for places in evidence.graph.by_agent.values()}
    for n in sorted(last.intersection(calls)) if answered else ():
        event = evidence.events[n]
        if event.action == "tool_call" and event.error is None and not _has_result(evidence, n):
            message = "a tool call never came back, and its agent did nothing more"
            found.append(evidence.finding("stuck call", [n], message, loss=None, loss_unit="s"))
    return found


def _overlong(evidence: Evidence, calls: Sequence[int]) -> Iterator[Finding]:
    like: dict[tuple[str, str], list[int]] = {}
    for n in calls:
        if evidence.graph.is_timed[n]:
            like.setdefault((evidence.events[n].action or "", evidence.events[n].name or ""), []).append(n)
    for places in like.values():
        usual = median([evidence.timed.own[n] for n in places])
        for n in places if len(places) >= _MIN_LIKE else ():
            took = evidence.timed.own[n]
            if took >= max(_MIN_STUCK_S, _STUCK_FACTOR * usual):
                message = f"a call took {took:,.1f} s, where {usual:,.1f} s is usual for its kind"
                yield evidence.finding("stuck call", [n], message, loss=took - usual, loss_unit="s beyond the usual")


def context_cliff(evidence: Evidence) -> Found:
    """An agent's input shrinks from 10,000 tokens or more to less than half from one call to the next, and stays so."""
    sized = {
        agent: [n for n in places if evidence.events[n].input_tokens is not None]
        for agent, places in evidence.graph.by_agent.items()
    }
    if not any(len(places) > 1 for places in sized.values()):
        return "no agent has two events with input tokens"
    found = []
    for places in sized.values():
        tokens = [evidence.events[n].input_tokens or 0 for n in places]
        for k in range(1, len(places)):
            least = _CUT_SHARE * tokens[k - 1]
            if tokens[k - 1] >= _MIN_CONTEXT_TOKENS and all(size < least for size in tokens[k : k + 2]):
                message = f"the context fell from {tokens[k - 1]:,} to {tokens[k]:,} tokens between two calls"
                lost, both = float(tokens[k - 1] - tokens[k]), [places[k - 1], places[k]]
                found.append(evidence.finding("context cliff", both, message, loss=lost, loss_unit="tokens of context"))
    return found
