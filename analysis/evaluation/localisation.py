"""How often the first suspect is the agent and the step that a person named, beside simple guesses.

Decides what an annotator's verdict is and how weights are learnt: only across folds of tasks, so that no task is both
learnt from and judged on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import minimize
from scipy.special import logsumexp

from analysis.errors import CounterpointError
from analysis.estimation import cluster_bootstrap, wilson
from analysis.evaluation.case import Case, Clue
from analysis.evaluation.signals import CONTEXT, SIGNALS, signals
from analysis.evaluation.suspects import BY_HAND, Weights, ranked
from analysis.model import Label, Trace
from analysis.orchestration.timing import timing

#: As reported: best agent-level and best step-level accuracy of model-based judges on Who&When (Zhang et al. 2025,
#: arXiv 2505.00212), on all 184 runs.
PUBLISHED: dict[str, float] = {"agent": 0.535, "step": 0.142}
#: What a measure asks for; `within n` allows the step named to be up to n steps away.
MEASURES = ("agent", "step", "within 1", "within 3")

#: The strength of the pull towards 0 (half of it times the sum of squares). Chosen once, not per fold.
_PULL = 2.0
_NAMES = tuple(SIGNALS)
_COLUMNS = ("trace_id", "task", "condition", "annotator", "fold", "method", "measure", "hit")

Floats = npt.NDArray[np.float64]


class Truth(NamedTuple):
    """Whom and which step an annotator blames; steps count from 0 and are None where none is named."""

    annotator: str
    agent_id: str
    step: int | None


class _Sample(NamedTuple):
    trace: Trace
    truth: Truth
    case: Case
    clues: list[Clue]
    values: Floats  # suspects × signals

    @property
    def task(self) -> str:
        return self.trace.groups.task or self.trace.task.task_id or self.trace.trace_id


def truths(trace: Trace) -> list[Truth]:
    """Return the verdict of each annotator who blames an agent, annotators by name.

    A verdict is the root cause, or the only label that names an agent; of several without one root cause there is none.
    A step is the place of the event meant, else the annotator's own count less its base.
    """
    steps = {event.event_id: k for k, event in enumerate(Case(trace, timing(trace)).steps)}
    found = []
    for annotator in sorted({label.annotator for label in trace.labels}):
        blames = [label for label in trace.labels if label.annotator == annotator and label.agent_id is not None]
        chosen = blames if len(blames) == 1 else [label for label in blames if label.is_root_cause]
        if len(chosen) == 1:
            found.append(Truth(annotator, chosen[0].agent_id or "", _step_of(chosen[0], steps)))
    return found


def _step_of(label: Label, steps: Mapping[str, int]) -> int | None:
    if label.event_id is not None:
        return steps.get(label.event_id)
    return None if label.step is None or label.step_base is None else label.step - label.step_base


def fit(traces: Sequence[Trace], verdicts: Sequence[Truth]) -> Weights:
    """Return the weights under which the steps that annotators blame are most likely.

    Parameters
    ----------
    traces, verdicts : pairs; verdicts whose step is none of the run's suspects say nothing here

    Notes
    -----
    Conditional logit (McFadden 1974) with a Gaussian prior around 0. Signals that are reasons to suspect get no weight
    below 0, those of `CONTEXT` may; those of `BY_HAND` keep their weights. A convex problem: one answer, no randomness.

    Raises
    ------
    CounterpointError
        If no verdict names a step that can be learnt from.
    """
    return _fit(_samples(traces, verdicts))


def localise_df(traces: Sequence[Trace], verdicts: Sequence[Truth], *, folds: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return how the first suspect, and simple guesses, agree with each verdict; weights are learnt on other tasks.

    Parameters
    ----------
    traces, verdicts : pairs; a trace stands once for each annotator
    folds : into how many parts the tasks are dealt; 2 or more
    rng : deals the tasks

    Returns
    -------
    One row for each pair, method and measure: trace_id, task, condition, annotator, fold, method, measure (`MEASURES`),
    hit (1 or 0; for `random` the exact expectation). Where a verdict names no step there are no rows of the step.

    Notes
    -----
    Methods: `ours`; `random` (any agent, any step, of those that can be suspected); `first speaker`, `last speaker` and
    their step; `most active speaker` and its first step; `first result`, the first own work that was handed in.
    """
    samples = _samples(traces, verdicts)
    fold = folds_of([sample.task for sample in samples], folds, rng)
    rows: list[tuple[object, ...]] = []
    for n in range(folds):
        held_out = [sample for sample in samples if fold[sample.task] == n]
        weights = _fit([sample for sample in samples if fold[sample.task] != n]) if held_out else None
        for sample in held_out:
            told = (sample.trace.trace_id, sample.task, sample.trace.groups.condition, sample.truth.annotator, n)
            guesses = {"ours": _ours(sample, weights), **_guesses(sample.case)}
            for method, (agent, step) in guesses.items():
                rows += [(*told, method, *hit) for hit in _hits(sample, agent, step)]
            rows += [(*told, "random", *hit) for hit in _random_hits(sample)]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def folds_of(tasks: Sequence[str], folds: int, rng: np.random.Generator) -> dict[str, int]:
    """Return task -> fold, as even as can be.

    >>> sorted(folds_of(["a", "b", "a", "c"], 2, np.random.default_rng(0)).values())
    [0, 0, 1]
    """
    names = sorted(set(tasks))
    if not 2 <= folds <= len(names):
        raise CounterpointError("folds", "out of range", got=str(folds), expected=f"2 to {len(names)}, the number of tasks")
    return {names[place]: n % folds for n, place in enumerate(rng.permutation(len(names)))}


def accuracy(hits: pd.DataFrame, *, rng: np.random.Generator) -> pd.DataFrame:
    """Return the share of hits by condition, annotator, method and measure, with 95 % intervals.

    Parameters
    ----------
    hits : as `localise_df` gives them; for annotators of several conditions there are rows of `all` besides

    Returns
    -------
    Columns condition, annotator, method, measure, n (verdicts), value, low, high, sorted by the first four. Wilson's
    interval where each task occurs once; tasks are drawn whole (bootstrap) where one occurs in several runs; none for an
    expectation.
    """
    rows = []
    keys = ["condition", "annotator", "method", "measure"]
    is_several = hits.groupby("annotator")["condition"].transform("nunique") > 1
    both = pd.concat([hits, hits[is_several].assign(condition="all")])
    for key, group in both.groupby(keys, dropna=False):
        values = group["hit"].to_numpy(dtype=float)
        found = wilson(round(values.sum()), len(values))
        if group["task"].duplicated().any():
            found = cluster_bootstrap(lambda w, v=values: float(w @ v / w.sum()), list(group["task"]), rng=rng)  # type: ignore[misc]
        low, high = (found.low, found.high) if found is not None and key[2] != "random" else (None, None)
        rows.append((*key, len(values), values.mean(), low, high))
    return pd.DataFrame(rows, columns=[*keys, "n", "value", "low", "high"]).astype({"low": float, "high": float})


def _samples(traces: Sequence[Trace], verdicts: Sequence[Truth]) -> list[_Sample]:
    """Return the pairs of runs that have suspects; what speaks for them is read once a run."""
    found: list[_Sample] = []
    read: dict[str, tuple[Case, list[Clue], Floats]] = {}
    for trace, verdict in zip(traces, verdicts, strict=True):
        if trace.trace_id not in read:
            case, clues = signals(trace)
            read[trace.trace_id] = case, clues, _matrix(case, clues)
        if read[trace.trace_id][0].suspects:
            found.append(_Sample(trace, verdict, *read[trace.trace_id]))
    return found


def _matrix(case: Case, clues: Sequence[Clue]) -> Floats:
    """Sum the clues as `ranked` does: suspects in the order of the run, signals in the order of `SIGNALS`."""
    row = {case.steps[k].event_id: n for n, k in enumerate(case.suspects)}
    values = np.zeros((len(row), len(_NAMES)))
    for clue in clues:
        values[row[clue.event_id], _NAMES.index(clue.signal)] += clue.value
    return values


def _fit(samples: Sequence[_Sample]) -> Weights:
    chosen = [(s.values, s.case.suspects.index(s.truth.step)) for s in samples if s.truth.step in s.case.suspects]
    if not chosen:
        raise CounterpointError("weights", "no annotator names a step that can be learnt from")
    start = np.array([BY_HAND.get(name, 0.0) for name in _NAMES])
    bounds = [(w, w) if n in BY_HAND else (None if n in CONTEXT else 0.0, None) for n, w in zip(_NAMES, start, strict=True)]
    is_free = np.array([name not in BY_HAND for name in _NAMES])

    def loss(w: Floats) -> tuple[float, Floats]:
        value, slope = _PULL / 2 * float(w[is_free] @ w[is_free]), _PULL * w * is_free
        for rows, at in chosen:
            scores = rows @ w
            total = logsumexp(scores)
            value += total - scores[at]
            slope += np.exp(scores - total) @ rows - rows[at]
        return float(value), slope

    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    values = {name: round(float(w), 2) + 0.0 for name, w in zip(_NAMES, best, strict=True)}
    return Weights(values=values, provenance=f"learnt from {len(chosen)} verdicts of annotators")


def _ours(sample: _Sample, weights: Weights | None) -> tuple[str, int]:
    first = ranked(sample.case, sample.clues, weights or Weights(values={}))[0]
    return first.agent_id, next(k for k in sample.case.suspects if sample.case.steps[k].event_id == first.event_id)


def _guesses(case: Case) -> dict[str, tuple[str, int]]:
    agents = [case.steps[k].agent_id or "" for k in case.suspects]
    busiest = max(dict.fromkeys(agents), key=agents.count)
    first_result = case.results[0] if case.results else case.suspects[0]
    return {
        "first speaker": (agents[0], case.suspects[0]),
        "last speaker": (agents[-1], case.suspects[-1]),
        "most active speaker": (busiest, case.suspects[agents.index(busiest)]),
        "first result": (case.steps[first_result].agent_id or "", first_result),
    }


def _hits(sample: _Sample, agent: str, step: int) -> Iterator[tuple[str, float]]:
    yield "agent", float(_plain(agent) == _plain(sample.truth.agent_id))
    if sample.truth.step is not None:
        for measure, reach in zip(MEASURES[1:], (0, 1, 3), strict=True):
            yield measure, float(abs(step - sample.truth.step) <= reach)


def _random_hits(sample: _Sample) -> Iterator[tuple[str, float]]:
    case = sample.case
    agents = {case.steps[k].agent_id or "" for k in case.suspects}
    for measure in [measure for measure, _ in _hits(sample, "", 0)]:
        if measure == "agent":
            yield measure, sum([_plain(agent) == _plain(sample.truth.agent_id) for agent in agents]) / len(agents)
        else:
            near = [dict(_hits(sample, "", k))[measure] for k in case.suspects]
            yield measure, math.fsum(near) / len(near)


def _plain(name: str) -> str:
    return name.replace(" ", "").casefold()
