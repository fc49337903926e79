"""What a run cost, and what single agents did on the same task: tokens, steps, overhead, gain.

A gain is shown beside the single-agent baseline it is a gain over, and says where the run did worse work than it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from analysis.estimation import cluster_bootstrap
from analysis.model import Trace
from analysis.orchestration.measure import Metric, absent, ratio
from analysis.orchestration.timing import Timing, timing

_DECISIONS = frozenset({"spawn", "delegate", "communicate", "aggregate", "stop"})
_NO_STEP = frozenset({"tool_result", "input"})


BaselineKey = tuple[str, str]  # world, task: a simulated agent is no measure for models, nor for what was recorded


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What single agents did on one task in one world, as means over their runs.

    p_passed : share of the `n_outcomes` runs with a known outcome that passed
    makespan : by basis of time; compared with runs of the same basis only
    """

    n_runs: int
    n_outcomes: int
    p_passed: float | None
    makespan: dict[str, float]
    tokens: float | None
    n_steps: float


def task_key(trace: Trace) -> str | None:
    """Return what runs of one task share: the group they are paired by, else the id of the task."""
    return trace.groups.task or trace.task.task_id


def baseline_key(trace: Trace) -> BaselineKey:
    """Return what a run shares with its baseline: world and task, which is empty where it has none."""
    return trace.world, task_key(trace) or ""


def baselines(traces: Iterable[Trace]) -> dict[BaselineKey, Baseline]:
    """Return what single agents did, by world and task: of all runs of a task in which exactly one agent acts."""
    runs: dict[BaselineKey, list[tuple[Trace, Timing]]] = {}
    for trace in traces:
        acting = {event.agent_id for event in trace.events}
        if len(acting) == 1 and None not in acting and task_key(trace) is not None:
            runs.setdefault(baseline_key(trace), []).append((trace, timing(trace)))
    return {key: _baseline(runs[key]) for key in sorted(runs)}


def _baseline(runs: Sequence[tuple[Trace, Timing]]) -> Baseline:
    outcomes = [trace.outcome.passed for trace, _ in runs if trace.outcome.passed is not None]
    spent = [tokens for _, timed in runs if (tokens := n_tokens(timed)) is not None]
    by_basis: dict[str, list[float]] = {}
    for _, timed in runs:
        by_basis.setdefault(timed.basis_of_time, []).append(timed.makespan)
    return Baseline(
        n_runs=len(runs),
        n_outcomes=len(outcomes),
        p_passed=sum(outcomes) / len(outcomes) if outcomes else None,
        makespan={basis: math.fsum(values) / len(values) for basis, values in sorted(by_basis.items())},
        tokens=sum(spent) / len(spent) if spent else None,
        n_steps=sum([_n_steps(timed) for _, timed in runs]) / len(runs),
    )


def own_tokens(timed: Timing) -> tuple[int | None, ...]:
    """Return input and output tokens of each event, by position in the graph; None where neither is known.

    A span that states at least as many tokens as the events it called includes theirs; those are taken off, so that no
    token counts twice.
    """
    events, callers = timed.graph.events, timed.nesting.caller
    parts = [[tokens for tokens in (event.input_tokens, event.output_tokens) if tokens is not None] for event in events]
    stated = [sum(known) if known else None for known in parts]
    below = [0] * len(events)
    own = list(stated)
    for n in range(len(events) - 1, -1, -1):
        tokens = stated[n]
        includes = tokens is not None and tokens >= below[n]
        if tokens is not None and includes:
            own[n] = tokens - below[n]
        caller = callers[n]
        if caller is not None:
            below[caller] += (tokens or 0) + (0 if includes else below[n])
    return tuple(own)


def n_tokens(timed: Timing) -> int | None:
    """Return all tokens of the run, None where no event states any."""
    known = [tokens for tokens in own_tokens(timed) if tokens is not None]
    return sum(known) if known else None


def _n_steps(timed: Timing) -> int:
    """Return how many steps agents took: all events but tool results, inputs and opaque ones."""
    return sum([event.kind is not None and event.action not in _NO_STEP for event in timed.graph.events])


def unanswered(timed: Timing) -> tuple[int, ...]:
    """Return the positions of delegations that never were answered, leaving out those that failed or name nobody else.

    Answered: afterwards the target says something to another agent or causes something that another agent does, or
    works within the delegating event until that ends.
    """
    return tuple([n for n, is_answered in _delegations(timed) if not is_answered])


def _delegations(timed: Timing) -> list[tuple[int, bool]]:
    graph = timed.graph
    answers: dict[str, int] = {}
    within: set[int] = set()
    for n, event in enumerate(graph.events):
        if event.agent_id is None:
            continue
        others = [graph.events[effect].agent_id for effect in graph.effects[n]]
        if any(agent != event.agent_id for agent in (*event.targets, *others)):
            answers[event.agent_id] = n
        caller = timed.nesting.caller[n]
        if caller is not None and event.agent_id in graph.events[caller].targets and graph.end_us[n] <= graph.end_us[caller]:
            within.add(caller)
    return [
        (n, n in within or any(answers.get(target, -1) > n for target in event.targets if target != event.agent_id))
        for n, event in enumerate(graph.events)
        if event.kind == "delegate" and set(event.targets) - {event.agent_id} and event.error is None
    ]


def cost_metrics(trace: Trace, timed: Timing, baseline: Baseline | None) -> Iterator[Metric]:
    """Yield what the run cost, what single agents did on the task, and how the two compare.

    The variant says where a comparison is not at equal or better quality: the run failed and single agents do not always,
    or it is not known.
    """
    yield from _own_costs(trace, timed)
    yield from _gains(trace, timed, baseline)


def _own_costs(trace: Trace, timed: Timing) -> Iterator[Metric]:
    own = own_tokens(timed)
    n_known = sum([tokens is not None for tokens in own])
    none = "no event states tokens"
    tokens = n_tokens(timed)
    yield absent("tokens", none, n=0) if tokens is None else Metric("tokens", float(tokens), "input + output", n_known)
    spent = sum([t or 0 for t, event in zip(own, timed.graph.events, strict=True) if event.kind in _DECISIONS])
    yield ratio("overhead_rate", spent, tokens, variant="input + output tokens", n=n_known, reason=none)
    passed = trace.outcome.passed
    reason = none if tokens is None else "the outcome is not known"
    above = None if passed is None else 1000.0 * passed
    yield ratio("token_efficiency", above, tokens, variant="input + output tokens", n=n_known, reason=reason)
    yield Metric("n_steps", float(_n_steps(timed)), n=len(timed.graph.events))
    yield Metric("n_agents", float(len(timed.busy)), n=len(timed.graph.events))
    delegations = _delegations(timed)
    done = sum([is_answered for _, is_answered in delegations])
    none = "no delegation names another agent"
    yield ratio("finish_rate", done, len(delegations) or None, variant="", n=len(delegations), reason=none)


def _gains(trace: Trace, timed: Timing, baseline: Baseline | None) -> Iterator[Metric]:
    passed, name = trace.outcome.passed, "no run of the task by a single agent in this world"
    if len(timed.busy) == 1:
        baseline, name = None, "this run is itself by a single agent"
    if baseline is None:
        yield from (absent(metric, name) for metric in _GAINS)
        return
    n, p, basis = baseline.n_runs, baseline.p_passed, timed.basis_of_time
    makespan_s, base_tokens, tokens = baseline.makespan.get("clock"), baseline.tokens, n_tokens(timed)
    yield _known("baseline_passed", p, n=baseline.n_outcomes, reason="no run by a single agent has a known outcome")
    yield _known("baseline_makespan_s", makespan_s, n=n, reason="no run by a single agent has a clock")
    yield _known("baseline_tokens", base_tokens, n=n, reason="no run by a single agent states tokens")
    gain = None if passed is None or p is None else passed - p
    yield _known("gain_passed", gain, n=baseline.n_outcomes, reason="the outcome of the run, or of single agents, is not known")
    at = _quality(passed, p)
    reason = f"the runs by single agents have no {basis} time"
    yield ratio("q_parallel_baseline", baseline.makespan.get(basis), timed.makespan, variant=basis + at, n=n, reason=reason)
    extra = None if tokens is None or base_tokens is None else tokens - base_tokens
    reason = "the run, or those by single agents, state no tokens"
    yield ratio("overhead_tokens_rate", extra, base_tokens, variant="input + output tokens" + at, n=n, reason=reason)
    steps = _n_steps(timed)
    yield ratio("overhead_steps_rate", steps - baseline.n_steps, baseline.n_steps, variant="steps" + at, n=n, reason="")
    per_step = None if passed is None else passed * baseline.n_steps
    yield ratio("step_efficiency", per_step, steps, variant="steps", n=n, reason="the outcome is not known")


_GAINS = (
    "baseline_passed", "baseline_makespan_s", "baseline_tokens", "gain_passed", "q_parallel_baseline", "overhead_tokens_rate",
    "overhead_steps_rate", "step_efficiency",
)  # fmt: skip


def _known(name: str, value: float | None, *, n: int, reason: str) -> Metric:
    return absent(name, reason, n=n) if value is None else Metric(name, value, "mean over runs by single agents", n)


def _quality(passed: bool | None, p_passed: float | None) -> str:
    if passed is None or p_passed is None:
        return ", quality not known"
    return ", at lower quality" if passed < p_passed else ""


def token_efficiency(traces: Iterable[Trace], *, rng: np.random.Generator) -> Metric:
    """Return passes per 1,000 tokens over several runs, as a ratio of sums, with a bootstrap interval over tasks.

    The mean of each run's own ratio would be another number and favours cheap runs. Runs without a known outcome or
    without tokens are left out; `n` counts the runs that entered.
    """
    rows = []
    for trace in traces:
        tokens = n_tokens(timing(trace))
        if tokens and trace.outcome.passed is not None:
            rows.append((task_key(trace) or trace.trace_id, float(trace.outcome.passed), tokens / 1000))
    passed, spent = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
    found = cluster_bootstrap(lambda w: float((w @ passed) / (w @ spent)), [row[0] for row in rows], rng=rng) if rows else None
    if found is None:
        return absent("token_efficiency", "no run has both a known outcome and tokens", variant="ratio of sums", n=0)
    return Metric("token_efficiency", found.value, "ratio of sums", len(rows), found.low, found.high)
