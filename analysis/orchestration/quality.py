"""How good the work and the decisions of a run are: q_work, and the Q's of the decisions.

Own work and decisions are two axes and are never multiplied. Decides which of several meanings each number has;
the meaning stands in its `variant`, and what cannot be told is absent with the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from analysis.estimation import wilson
from analysis.model import Candidate, Trace
from analysis.orchestration.measure import Metric, absent, ratio, share
from analysis.orchestration.timing import Timing

#: Steps that can hardly fail, and whose lack of an error says nothing: what came in, thoughts, ledgers.
_NO_WORK = frozenset({"input", "note", "ledger"})


def work_by_agent(trace: Trace, timed: Timing) -> dict[str, Metric]:
    """Return the q_work of every agent that acts or owns a subtask.

    variant : `tests`, the share of tests that the last candidates for its own subtasks pass; else `subtasks`, the share of
        its subtasks that pass alone; else `acts`, the share of its `act` events without an error, inputs, notes and
        ledgers left out
    n : tests, subtasks or events. The interval takes them as independent.
    """
    counts = _work_counts(trace, timed)
    agents = dict.fromkeys([*timed.graph.by_agent, *[agent for found in counts.values() for agent in found]])
    return {agent: _work([(variant, found.get(agent, (0, 0))) for variant, found in counts.items()]) for agent in agents}


def work_metrics(trace: Trace, timed: Timing) -> Iterator[Metric]:
    """Yield q_work of the run: all agents pooled, in the best variant that any of them has."""
    pooled = []
    for variant, found in _work_counts(trace, timed).items():
        pooled.append((variant, (sum([good for good, _ in found.values()]), sum([n for _, n in found.values()]))))
    yield _work(pooled)


def _work(counted: Sequence[tuple[str, tuple[int, int]]]) -> Metric:
    for variant, (n_good, n) in counted:
        if n:
            return share("q_work", wilson(n_good, n), variant=variant, reason="")
    return absent("q_work", "no tests of own subtasks and no `act` events", n=0)


def _work_counts(trace: Trace, timed: Timing) -> dict[str, dict[str, tuple[int, int]]]:
    """By variant and agent: how many are good, of how many."""
    place = timed.graph.position
    owner = {subtask.subtask_id: subtask.agent_id for subtask in trace.subtasks}
    last: dict[tuple[str, str | None], Candidate] = {}
    for candidate in sorted(trace.candidates, key=lambda c: place.get(c.event_id or "", -1)):
        agent = candidate.agent_id or owner.get(candidate.subtask_id or "")
        if agent is not None and candidate.n_tests and candidate.n_passed is not None:
            last[agent, candidate.subtask_id] = candidate
    tests = [(agent, c.n_passed or 0, c.n_tests or 0) for (agent, _), c in last.items()]
    known = [(s.agent_id, int(s.passes_alone), 1) for s in trace.subtasks if s.agent_id and s.passes_alone is not None]
    acts = [
        (event.agent_id, int(event.error is None), 1)
        for event in trace.events
        if event.kind == "act" and event.agent_id and event.action not in _NO_WORK
    ]
    return {"tests": _added(tests), "subtasks": _added(known), "acts": _added(acts)}


def _added(rows: Iterable[tuple[str | None, int, int]]) -> dict[str, tuple[int, int]]:
    good, of = Counter[str](), Counter[str]()
    for agent, n_good, n in rows:
        good[agent or ""] += min(n_good, n)
        of[agent or ""] += n
    return {agent: (good[agent], of[agent]) for agent in of}


def split_metrics(trace: Trace) -> Iterator[Metric]:
    """Yield q_split and its parts; a split into one subtask has the variant `trivial`."""
    subtasks, units = trace.subtasks, set(trace.task.requirements)
    if not subtasks:
        names = ("q_split", "q_split_solvable", "q_split_complete", "q_split_redundancy", "q_split_hidden_dependency")
        yield from (absent(name, "the trace states no subtasks", n=0) for name in names)
        return
    variant = "trivial" if len(subtasks) == 1 else ""
    alone = [subtask for subtask in subtasks if subtask.passes_alone is not None]
    solvable = share(
        "q_split_solvable", wilson(sum([s.passes_alone is True for s in alone]), len(alone)), variant=variant,
        reason="of no subtask is it known whether it passes alone",
    )  # fmt: skip
    covers = [set(subtask.covers) & units for subtask in subtasks]
    n_covered, n_all = len(set().union(*covers)), sum([len(cover) for cover in covers])
    no_units, n = "the task states no requirement units", len(subtasks)
    complete = ratio("q_split_complete", n_covered, len(units) or None, variant=variant, n=len(units), reason=no_units)
    if solvable.value is None or complete.value is None:
        yield absent("q_split", solvable.reason or complete.reason, variant=variant, n=n)
    else:
        yield Metric("q_split", solvable.value * complete.value, variant, n)
    yield from (solvable, complete)
    if n_all:
        yield Metric("q_split_redundancy", 1 - n_covered / n_all, variant, n)
    else:
        yield absent("q_split_redundancy", "no subtask covers a requirement unit", variant=variant, n=n)
    both = [subtask for subtask in alone if subtask.passes_upstream is not None]
    hidden = sum([subtask.passes_alone is False and subtask.passes_upstream is True for subtask in both])
    reason = "of no subtask is it known whether it passes alone and with its true inputs"
    yield share("q_split_hidden_dependency", wilson(hidden, len(both)), variant=variant, reason=reason)


def aggregate_metrics(parts: Sequence[float], whole: float, merge_kind: str | None) -> Iterator[Metric]:
    """Yield q_aggregate and its forms from the pass@1 of the parts and of the whole that was made of them.

    `composition` needs all parts: its q_aggregate divides by the smallest. `alternatives` need one: it divides by the
    largest, and values above 1 are possible and good. The form with the largest alone misleads for a composition.
    """
    least, most = min(parts), max(parts)
    free = math.prod(parts) if merge_kind == "composition" else 1 - math.prod(1 - p for p in parts)
    chosen = {"composition": ("min", least), "alternatives": ("max", most)}.get(merge_kind or "")
    stated = "not stated" if merge_kind is None else repr(merge_kind)
    unknown = f"the merge kind is {stated}, neither composition nor alternatives"
    if chosen is None:
        yield absent("q_aggregate", unknown, n=len(parts))
    else:
        yield _against("q_aggregate", whole, chosen[1], variant=f"{merge_kind}, {chosen[0]}", n=len(parts))
    yield _against("q_aggregate_max", whole, most, variant="max", n=len(parts))
    yield _against("q_aggregate_min", whole, least, variant="min", n=len(parts))
    if chosen is None:
        yield absent("q_aggregate_independent", unknown, n=len(parts))
    else:
        yield _against("q_aggregate_independent", whole, free, variant=f"{merge_kind}, independent", n=len(parts))


def _against(name: str, whole: float, parts: float, *, variant: str, n: int) -> Metric:
    if parts > 0:
        return Metric(name, whole / parts, variant, n)
    if whole > 0:
        return absent(name, f"infinite: the whole passes ({whole:g}) though its parts do not", variant=variant, n=n)
    return absent(name, "0 / 0: the whole fails as its parts do, so the merge cannot be judged", variant=variant, n=n)


def merge_metrics(trace: Trace, timed: Timing) -> Iterator[Metric]:
    """Yield q_aggregate of the run's last merge: of the latest candidate for each part that went into it, against the whole."""
    merged = _last_merge(trace, timed)
    if isinstance(merged, str):
        names = ("q_aggregate", "q_aggregate_max", "q_aggregate_min", "q_aggregate_independent")
        yield from (absent(name, merged) for name in names)
    else:
        yield from aggregate_metrics(*merged)


def _last_merge(trace: Trace, timed: Timing) -> tuple[list[float], float, str | None] | str:
    graph = timed.graph
    merges = [n for n, event in enumerate(graph.events) if event.kind == "aggregate"]
    if not merges:
        return "no aggregate event"
    last = graph.events[merges[-1]]
    by_event: dict[str, list[Candidate]] = {}
    for candidate in trace.candidates:
        by_event.setdefault(candidate.event_id or "", []).append(candidate)
    parts = _parts(last.event_id, by_event, timed)
    if not parts:
        return "no candidate stands at an event that was merged"
    rates = [_pass_at_1(candidates) for candidates in parts.values()]
    known = [rate for rate in rates if rate is not None]
    if len(known) < len(rates):
        return f"{len(rates) - len(known)} of {len(rates)} merged parts have no tests"
    whole = _pass_at_1(by_event.get(last.event_id, ()))
    if whole is None and trace.outcome.passed is not None:
        whole = float(trace.outcome.passed)
    return "neither the whole nor the run was tested" if whole is None else (known, whole, last.merge_kind)


def _parts(merge_id: str, by_event: Mapping[str, Sequence[Candidate]], timed: Timing) -> dict[str, list[Candidate]]:
    """Return the candidates of each part that went into a merge, through merges of merges; a later attempt replaces."""
    graph = timed.graph
    reached: set[int] = set()
    todo = [graph.position[merge_id]]
    while todo:
        event = graph.events[todo.pop()]
        fresh = {graph.position[point] for point in event.merge_points if point in graph.position} - reached
        reached |= fresh
        todo += sorted(fresh)
    parts: dict[str, list[Candidate]] = {}
    for n in sorted(reached):
        event_id = graph.events[n].event_id
        at_event: dict[str, list[Candidate]] = {}
        for candidate in by_event.get(event_id, ()) if event_id != merge_id else ():
            if candidate.subtask_id is not None or graph.events[n].kind != "aggregate":
                at_event.setdefault(candidate.subtask_id or event_id, []).append(candidate)
        parts |= at_event
    return parts


def _pass_at_1(candidates: Sequence[Candidate]) -> float | None:
    """The share of candidates that pass all their tests; None where one has no tests (pass@1 = c/n, Chen et al. 2021)."""
    if not candidates or any(not c.n_tests or c.n_passed is None for c in candidates):
        return None
    return sum([c.n_passed == c.n_tests for c in candidates]) / len(candidates)


def parallel_metrics(timed: Timing) -> Iterator[Metric]:
    """Yield the speed-ups that the run itself shows; their variant is the basis of time.

    Without a clock the makespan is the longest path that causes and each agent's order leave (see `Timing`).
    """
    n, basis = len(timed.graph.events), timed.basis_of_time
    if not n:
        yield from (absent(name, "no events", n=0) for name in ("q_parallel_self", "q_parallel_useful"))
        return
    yield ratio("q_parallel_self", timed.work, timed.makespan, variant=basis, n=timed.n_known, reason="")
    useful = None if timed.useful is None else math.fsum([timed.own[k] for k in sorted(timed.useful)])
    n_useful = None if timed.useful is None else len(timed.useful)
    yield ratio("q_parallel_useful", useful, timed.makespan, variant=basis, n=n_useful, reason=timed.useful_reason)


def orchestration_quality(timed: Timing, metrics: Mapping[str, Metric]) -> Metric:
    """Return the one axis of orchestration: the mean of what is present of three qualities, each in [0, 1].

    parallel : work of named agents that reached the result (all of it, where that cannot be told) / (agents that act ×
        makespan), the efficiency S/P of the speed-up. A speed-up itself has no upper end, and padding would raise it.
    split : q_split
    aggregate : q_aggregate, at most 1 here: above 1 alternatives have only helped more

    `variant` names what entered and `n` how many did; runs with different variants compare with care. Absent for
    a single agent, who has nothing to orchestrate, and where none of the three is known. q_work never enters.
    """
    if len(timed.busy) < 2:
        return absent("q_orchestration", "fewer than two agents act", n=0)
    parts: dict[str, float] = {}
    if timed.utilisation_slot is not None:
        places = range(len(timed.graph.events)) if timed.useful is None else sorted(timed.useful)
        done = math.fsum([timed.own[n] for n in places if timed.graph.events[n].agent_id is not None])
        kind = "self" if timed.useful is None else "useful"
        parts[f"parallel ({kind}, {timed.basis_of_time})"] = done / (len(timed.busy) * timed.makespan)
    for name in ("split", "aggregate"):
        if (value := metrics[f"q_{name}"].value) is not None:
            parts[name] = min(value, 1.0)
    if not parts:
        return absent("q_orchestration", "neither q_parallel nor q_split nor q_aggregate is known", n=0)
    return Metric("q_orchestration", math.fsum(parts.values()) / len(parts), " + ".join(parts), len(parts))
