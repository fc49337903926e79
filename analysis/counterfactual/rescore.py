"""What a recorded run would have returned, had it merged by another rule or stopped earlier: from the candidates it holds.

Decides which candidates a merge saw and what the system would have returned at a point. Nothing is executed: a candidate has
the verdict that was recorded for it, and where that does not answer the question the replay is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from analysis.counterfactual.recorded import Intervention, Replayed, check_operator, counterfactual_of, in_both, refuse
from analysis.model import Candidate, Event, Outcome, Trace
from analysis.orchestration.metrics import metrics
from analysis.orchestration.timing import Timing, timing

OPERATORS = ("aggregate", "stop-earlier")
STRATEGIES = ("best-by-tests", "vote", "first", "last")

#: Of these an event after a merge may be, without its agent having had to answer what was merged.
_PASSING_ON = frozenset({"return", "tool_result", "note"})
_COSTS = ("tokens", "n_steps", "makespan_s", "work_s", "n_messages")


def aggregate(event_id: str, strategy: str) -> Intervention:
    """Let a merge of alternatives return another one: `best-by-tests`, `vote`, `first` or `last`."""
    return Intervention("aggregate", event_id, {"strategy": strategy})


def stop_earlier(event_id: str) -> Intervention:
    """Let the run end after an event, with the latest result for the whole task that the event's agent knows of then."""
    return Intervention("stop-earlier", event_id)


def rescore(trace: Trace, intervention: Intervention, *, timed: Timing | None = None) -> Replayed:
    """Return the run with another outcome: that of a candidate it holds.

    Parameters
    ----------
    intervention : made by `aggregate` or `stop_earlier`
    timed : the run's timing, where it is at hand

    Returns
    -------
    With `passed` and `tests_rate` (tests passed / all) where recorded; a run that stops earlier also has its costs, of the
    events that have begun by then.

    Raises
    ------
    ReplayError
        Where the candidates do not say: none are there, they were tested otherwise than the run, the parts would have to be
        put together and tested again, or an agent worked on with what was merged. Its text gives the reason.

    Notes
    -----
    `best-by-tests` picks by the recorded verdicts, by which it is judged as well: what a system can reach at best. A system
    that stops returns its latest whole result, not its best; where the recorded run did not, a stop is refused.
    """
    check_operator(trace, intervention, OPERATORS)
    timed = timed or timing(trace)
    if intervention.operator == "aggregate":
        return _merged(trace, intervention, timed)
    return _stopped(trace, intervention, timed)


def stop_points(trace: Trace, *, timed: Timing | None = None) -> tuple[str, ...]:
    """Return the events, in the order of the run, at which it had a tested result for the whole task and could have stopped."""
    graph = (timed or timing(trace)).graph
    at = {graph.position[c.event_id or ""] for c in _wholes(trace, graph.position)}
    return tuple([graph.events[n].event_id for n in sorted(at)])


def _merged(trace: Trace, one: Intervention, timed: Timing) -> Replayed:
    event = timed.graph.events[timed.graph.position[one.event_id]]
    after = _passed_on(trace, one, timed)
    seen = _seen(trace, timed, event)
    whole = next((c for c in trace.candidates if c.event_id == one.event_id), None)
    known = _comparable(trace, one, seen, whole)
    chosen = _chosen(trace, one, seen)
    changed = msgspec.structs.replace(event, strategy=one.parameters["strategy"])
    made = counterfactual_of(
        trace, one, outcome=_outcome(chosen, trace.outcome),
        candidates=tuple([_instead(c, chosen) if c is whole else c for c in trace.candidates]),
        events=tuple([changed if e.event_id == one.event_id else e for e in trace.events]),
    )  # fmt: skip
    q = (_scores(known), _scores(_verdict(chosen)))
    return _replayed(one, made, q, downstream=after, notes=_NOTES.get(one.parameters["strategy"], ()))


def _passed_on(trace: Trace, one: Intervention, timed: Timing) -> tuple[str, ...]:
    """Return the events that a merge's result reaches; refuse where one is more than the end of the run."""
    graph, strategy = timed.graph, one.parameters.get("strategy")
    at = graph.position[one.event_id]
    event, effects = graph.events[at], [graph.events[n] for n in sorted(_effects(graph.effects, at))]
    if strategy not in STRATEGIES:
        refuse(trace, one, f"the strategy is none of {', '.join(STRATEGIES)}", got=str(strategy))
    if event.kind != "aggregate":
        refuse(trace, one, "the event merges nothing", got=event.kind or "an opaque event")
    if event.merge_kind == "composition":
        refuse(trace, one, "it merges parts of a whole, which would have to be put together and tested again")
    if working := [after.event_id for after in effects if after.kind != "stop" and after.action not in _PASSING_ON]:
        refuse(trace, one, f"{working[0]} works on with the result, and nobody recorded its answer to another one")
    return tuple([after.event_id for after in effects])


def _comparable(trace: Trace, one: Intervention, seen: Sequence[Candidate], whole: Candidate | None) -> _Verdict:
    """Return what the merge came to; refuse where the candidates were not judged as it was."""
    stated, known = _stated(trace.outcome), _verdict(whole) or _stated(trace.outcome)
    if len(seen) < 2:
        refuse(trace, one, f"{len(seen)} candidates stand at the events that it merges, and a choice needs two")
    if known is None:
        refuse(trace, one, "neither what it returned nor the run was tested")
    if stated is not None and not _agree(known, stated):
        refuse(trace, one, f"it made {_worded(known)}, and the run came to {_worded(stated)}: something else was returned")
    if wrong := [c for c in seen if c.n_tests != known[1]]:
        name, got, expected = wrong[0].candidate_id, _tests(wrong[0].n_tests), _tests(known[1])
        refuse(trace, one, f"the run was judged by {expected} and candidate {name} by {got}")
    return known


_NOTES = {"best-by-tests": ("picked by the tests that judge it: at best this can be reached",)}


def _seen(trace: Trace, timed: Timing, event: Event) -> list[Candidate]:
    """Return the candidates at the events that a merge names, else at its causes, in the order of the run."""
    place = timed.graph.position
    named = [point for point in event.merge_points if point in place] or [point for point in event.parents if point in place]
    seen = [c for c in trace.candidates if c.event_id in named]
    return sorted(seen, key=lambda c: place[c.event_id or ""])


def _chosen(trace: Trace, one: Intervention, seen: Sequence[Candidate]) -> Candidate:
    """Return the one that a strategy keeps; of equals the earliest."""
    match one.parameters["strategy"]:
        case "first":
            return seen[0]
        case "last":
            return seen[-1]
        case "vote":
            texts = [c.text if c.program is None else c.program for c in seen]
            if None in texts:
                missing = seen[texts.index(None)].candidate_id
                refuse(trace, one, f"nobody recorded what candidate {missing} says, so that no two can be told to agree")
            votes = Counter(texts)
            return max(zip(seen, texts, strict=True), key=lambda pair: votes[pair[1]])[0]
    if untested := [c for c in seen if c.n_passed is None]:
        refuse(trace, one, f"candidate {untested[0].candidate_id} has no tests")
    return max(seen, key=lambda c: c.n_passed or 0)


def _stopped(trace: Trace, one: Intervention, timed: Timing) -> Replayed:
    graph = timed.graph
    at = graph.position[one.event_id]
    wholes = _wholes(trace, graph.position)
    if not wholes:
        refuse(trace, one, "no candidate for the whole task was tested")
    stops = [n for n, event in enumerate(graph.events) if event.kind == "stop"]
    if stops and at >= stops[0]:
        refuse(trace, one, f"the run stopped at {graph.events[stops[0]].event_id}, which is not later")
    returned, known = _verdict(wholes[-1]), _stated(trace.outcome)
    if known is None or not _agree(returned, known):
        got = "nothing that is stated" if known is None else _worded(known)
        last = wholes[-1].candidate_id
        refuse(trace, one, f"the run came to {got}, not to its latest whole result {last}: what it returns when is not known")
    before = _reached(graph.causes, graph.before, at)
    offered = [c for c in wholes if graph.position[c.event_id or ""] in before]
    if not offered:
        refuse(trace, one, "no tested result for the whole task was known there by then")
    # What began before the event did still ran, and was paid for; what came after it never began.
    kept = graph.events[: at + 1]
    made = _cut(trace, one, kept, offered[-1])
    gone = tuple([event.event_id for event in graph.events[at + 1 :]])
    measured = (metrics(trace, timed=timed), metrics(made))
    costs = [{metric.name: metric.value for metric in found if metric.name in _COSTS} for found in measured]
    q = (_scores(known) | costs[0], _scores(_verdict(offered[-1])) | costs[1])
    return _replayed(one, made, q, downstream=gone)


def _cut(trace: Trace, one: Intervention, kept: Sequence[Event], result: Candidate) -> Trace:
    """Return the run up to an event, and a stop after it that takes no time."""
    last = kept[-1]
    ids = {event.event_id for event in kept}
    name = f"{one.event_id}+stop"[-512:]
    end = Event(
        event_id=name, kind="stop", agent_id=last.agent_id, parents=(last.event_id,), t_start_s=last.t_end_s,
        t_end_s=last.t_end_s, order=max(event.order for event in kept) + 1, basis="synthetic", rule=one.operator,
    )  # fmt: skip
    return counterfactual_of(
        trace, one, outcome=_outcome(result, trace.outcome),
        events=(*[event for event in trace.events if event.event_id in ids], end),
        candidates=tuple([c for c in trace.candidates if c.event_id is None or c.event_id in ids]),
        claims=tuple([c for c in trace.claims if c.event_id is None or c.event_id in ids]),
        labels=tuple([label for label in trace.labels if label.event_id is None or label.event_id in ids]),
    )  # fmt: skip


def _wholes(trace: Trace, place: Mapping[str, int]) -> list[Candidate]:
    """Return the tested candidates for the whole task, in the order of the run."""
    found = [c for c in trace.candidates if c.subtask_id is None and c.event_id in place and _verdict(c)]
    return sorted(found, key=lambda c: place[c.event_id or ""])


_Verdict = tuple[int, int | None]  # tests passed, of how many; or 1 or 0 and None, where only that is known


def _verdict(candidate: Candidate | None) -> _Verdict | None:
    if candidate is None or candidate.n_passed is None or not candidate.n_tests:
        return None
    return candidate.n_passed, candidate.n_tests


def _stated(outcome: Outcome) -> _Verdict | None:
    if outcome.n_tests and outcome.n_tests_passed is not None:
        return outcome.n_tests_passed, outcome.n_tests
    return None if outcome.passed is None else (int(outcome.passed), None)


def _agree(returned: _Verdict | None, known: _Verdict) -> bool:
    if returned is None or None not in (returned[1], known[1]):
        return returned == known
    return [v[0] == (v[1] or 1) for v in (returned, known)] in ([True, True], [False, False])


def _scores(verdict: _Verdict | None) -> dict[str, float | None]:
    if verdict is None:
        return {}
    n_passed, n_tests = verdict
    if n_tests is None:
        return {"passed": float(n_passed)}
    return {"passed": float(n_passed == n_tests), "tests_rate": n_passed / n_tests}


def _worded(verdict: _Verdict) -> str:
    return f"{verdict[0]} of {verdict[1]} tests" if verdict[1] else ("a pass" if verdict[0] else "a failure")


def _tests(n: int | None) -> str:
    return f"{n} tests" if n else "tests that nobody counted"


def _outcome(result: Candidate, was: Outcome) -> Outcome:
    n_passed, n_tests = result.n_passed, result.n_tests
    rate = (n_passed or 0) / n_tests if n_tests else None
    return Outcome(
        passed=n_passed == n_tests, n_tests_passed=n_passed, n_tests=n_tests, source=f"candidate {result.candidate_id}",
        score=rate, score_scale=None if rate is None else (0.0, 1.0), answer=result.text if was.answer is not None else None,
    )  # fmt: skip


def _instead(whole: Candidate, chosen: Candidate) -> Candidate:
    return msgspec.structs.replace(
        whole, program=chosen.program, text=chosen.text, n_passed=chosen.n_passed, n_tests=chosen.n_tests
    )


def _effects(effects: Sequence[tuple[int, ...]], start: int) -> set[int]:
    found: set[int] = set()
    todo = [*effects[start]]
    while todo:
        n = todo.pop()
        if n not in found:
            found.add(n)
            todo += effects[n]
    return found


def _reached(causes: Sequence[tuple[int, ...]], before: Sequence[int | None], at: int) -> set[int]:
    """Return an event and all that its agent can know of: its causes, what its agent did before, and theirs."""
    found: set[int] = set()
    todo = [at]
    while todo:
        n = todo.pop()
        if n not in found:
            found.add(n)
            last = before[n]
            todo += [*causes[n], *([] if last is None else [last])]
    return found


def _replayed(
    one: Intervention,
    made: Trace,
    q: tuple[dict[str, float | None], dict[str, float | None]],
    *,
    downstream: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Replayed:
    before, after = in_both(*q)
    return Replayed(intervention=one, trace=made, q=before, q_counterfactual=after, downstream=downstream, notes=notes)
