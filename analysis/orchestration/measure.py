"""What a metric is, and which there are: name, unit, meaning, which way is better.

A number never comes without what it rests on. What cannot be computed is absent, with the reason in words.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from analysis.estimation import Estimate


class Metric(msgspec.Struct, frozen=True):
    """One number of one trace; `value` is None where it cannot be had, and `reason` says why.

    variant : which of several meanings, and on which basis (clock, events, tokens, tests, ...)
    n : how many of what it rests on were counted (events, tests, subtasks, runs)
    low, high : 95 % interval, where the number is an estimate
    """

    name: str
    value: float | None
    variant: str = ""
    n: int | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


class Meaning(NamedTuple):
    """What a metric measures."""

    unit: str
    meaning: str
    better: Literal["higher", "lower", "neither"]


#: Every metric of a trace, in the order in which `metrics` gives them.
METRICS: dict[str, Meaning] = {
    "q_work": Meaning("share", "own work that is good: tests of own subtasks passed, else own steps without error", "higher"),
    "q_parallel_self": Meaning("ratio", "work of the run / its makespan", "higher"),
    "q_parallel_useful": Meaning("ratio", "work that reached the result and did not fail / makespan", "higher"),
    "q_parallel_baseline": Meaning("ratio", "makespan of single agents on the task / makespan", "higher"),
    "q_split": Meaning("share", "solvable × complete", "higher"),
    "q_split_solvable": Meaning("share", "subtasks that pass their tests alone", "higher"),
    "q_split_complete": Meaning("share", "requirement units of the task that some subtask covers", "higher"),
    "q_split_redundancy": Meaning("share", "1 - units covered / units covered, repeats counted", "lower"),
    "q_split_hidden_dependency": Meaning("share", "subtasks that fail alone and pass with their true inputs", "lower"),
    "q_aggregate": Meaning("ratio", "pass@1: whole / weakest part (composition), whole / best one (alternatives)", "higher"),
    "q_aggregate_max": Meaning("ratio", "pass@1 of the whole / largest of the parts", "higher"),
    "q_aggregate_min": Meaning("ratio", "pass@1 of the whole / smallest of the parts", "higher"),
    "q_aggregate_independent": Meaning("ratio", "pass@1 of the whole / what independent parts would give", "higher"),
    "q_orchestration": Meaning("share", "mean of what is present of q_parallel (as efficiency), q_split, q_aggregate", "higher"),
    "gain_passed": Meaning("difference", "passed (1 or 0) - pass rate of single agents on the task", "higher"),
    "baseline_passed": Meaning("share", "pass rate of single agents on the task", "neither"),
    "baseline_makespan_s": Meaning("s", "mean makespan of single agents on the task", "neither"),
    "baseline_tokens": Meaning("tokens", "mean tokens of single agents on the task", "neither"),
    "overhead_tokens_rate": Meaning("ratio", "(tokens - those of single agents) / those of single agents", "lower"),
    "overhead_steps_rate": Meaning("ratio", "(steps - those of single agents) / those of single agents", "lower"),
    "token_efficiency": Meaning("1/1000 tokens", "passed (1 or 0) per 1,000 tokens", "higher"),
    "step_efficiency": Meaning("ratio", "passed (1 or 0) / (steps / those of single agents)", "higher"),
    "overhead_rate": Meaning("share", "tokens of spawn, delegate, communicate, aggregate, stop / all tokens", "lower"),
    "finish_rate": Meaning("share", "delegations that were answered", "higher"),
    "tokens": Meaning("tokens", "input and output tokens, each counted once", "lower"),
    "n_steps": Meaning("events", "events but tool results, inputs and opaque ones", "neither"),
    "n_agents": Meaning("agents", "agents that act", "neither"),
    "work_s": Meaning("s", "exclusive time of all events", "neither"),
    "span_s": Meaning("s", "longest path through causes and each agent's order", "lower"),
    "makespan_s": Meaning("s", "first start to last end", "lower"),
    "parallelism": Meaning("ratio", "work / longest path of causes: the speed-up that the structure allows", "neither"),
    "schedule_quality": Meaning("share", "the best makespan that the agents could reach / makespan", "higher"),
    "utilisation_time": Meaning("share", "busy time / time alive, summed over agents", "higher"),
    "utilisation_slot": Meaning("share", "busy time / (agents that act × makespan)", "higher"),
    "utilisation_act": Meaning("share", "own work of sub-agents that reached the result and did not fail / all of it", "higher"),
    "imbalance": Meaning("ratio", "busy time of the busiest agent / mean over agents", "lower"),
    "d_orch": Meaning("score", "difficulty of the orchestration, each feature as x / (x + half), in [0, 1)", "neither"),
    "d_orch_raw": Meaning("score", "difficulty of the orchestration, features added up by weight", "neither"),
    "depth": Meaning("edges", "longest chain of spawning and delegating", "neither"),
    "branching": Meaning("agents", "most agents that one agent spawned or delegated to in one go", "neither"),
    "cross_dep": Meaning("edges", "causal edges between agents of which neither led the other", "neither"),
    "comm_rounds": Meaning("rounds", "most rounds of messages along one chain of causes, own work between them", "neither"),
    "width": Meaning("agents", "most sub-agents alive at once", "neither"),
    "n_messages": Meaning("events", "communicate events", "neither"),
    "n_repairs": Meaning("repairs", "what had to be mended in times and causes", "lower"),
}  # fmt: skip


def absent(name: str, reason: str, *, variant: str = "", n: int | None = None) -> Metric:
    """Return a metric that cannot be had."""
    return Metric(name, None, variant, n, None, None, reason)


def share(name: str, estimate: Estimate | None, *, variant: str, reason: str) -> Metric:
    """Return an estimate as a metric, or the reason why there is none."""
    if estimate is None:
        return absent(name, reason, variant=variant, n=0)
    return Metric(name, estimate.value, variant, estimate.n, estimate.low, estimate.high)


def ratio(name: str, above: float | None, below: float | None, *, variant: str, n: int | None, reason: str) -> Metric:
    """Return `above / below` as a metric; absent for `reason` where one is not known, and where `below` is zero."""
    if above is None or below is None:
        return absent(name, reason, variant=variant, n=n)
    if below == 0:
        return absent(name, "it would divide by zero: nothing took any time or tokens", variant=variant, n=n)
    return Metric(name, above / below, variant, n)
