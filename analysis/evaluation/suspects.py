"""Who and when: the events of a failed run, ranked by how much speaks for each being the one that made it fail.

Decides how clues add up to a score; no model is needed, and a user's own model is one more voice, named as such. What
the clues are stands in `signals`, how well the ranking agrees with annotators in `localisation`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from analysis.coherence.levels import LevelResidual
from analysis.errors import CounterpointError, UnknownNameError
from analysis.evaluation.case import Case, Clue
from analysis.evaluation.signals import SIGNALS, signals
from analysis.model import Trace
from analysis.orchestration.timing import timing


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """One event that may have made the run fail.

    score : its share of the suspicion, 0 to 1; the scores of all suspects of a run sum to 1
    reasons : what speaks for it, a sentence each, the weightiest first; empty where only its place does
    signals : what was measured, by name; `voice <name>` for a user's own
    """

    rank: int
    agent_id: str
    component: str
    event_id: str
    score: float
    reasons: tuple[str, ...]
    signals: dict[str, float]


class Voice(Protocol):
    """A user's own judge, such as a model: it gives events of a run a score, 0 for no suspicion, any scale."""

    @property
    def name(self) -> str:
        """How the reasons call it."""

    def __call__(self, trace: Trace) -> Mapping[str, float]:
        """Return event id -> score, at least 0; events that are left out have none."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """How much each signal counts: the logarithm by which its full value multiplies the suspicion; left out is 0.

    voice : the same for the event that a voice holds most suspicious
    provenance : where the numbers come from
    """

    values: dict[str, float]
    voice: float = 3.0
    provenance: str = ""

    def __post_init__(self) -> None:
        for name in self.values:
            if name not in SIGNALS:
                raise UnknownNameError("weights", "no such signal", got=name, expected=", ".join(SIGNALS))


#: Set by hand: in the annotated runs these signals stand for too few events, or for none, to learn from.
BY_HAND: dict[str, float] = {
    "finding": 4.0, "in finding": 1.0, "residual": 3.0, "critical path": 0.5, "error": 0.5, "reversal": 0.5,
}  # fmt: skip

#: What `localisation.fit` learns from 164 verdicts of people on 132 runs: Who&When, and AgentRx on 34 of the same runs.
#: Numbers only, no text of theirs. `benchmarks/whowhen.py` says how well such weights do on tasks they have not seen.
DEFAULT = Weights(
    values={
        "opens": 0.0, "opens with code": 1.49, "another task": 1.26, "place in chat": 0.04, "end of chat": -0.39,
        "place in team": -1.66, "first result": 0.04, "last result": 0.5, "agent's first": 0.46, "result": 0.79,
        "delegation": 0.18, "ledger": -0.26, "new plan": 0.62, "stop": -0.23, "code": 0.0, "first code": 0.66,
        "call failed": 0.03, "call empty": 0.55, "call worked": 0.0, "first error": 0.59, "broken": 0.7, "length": 0.27,
        "no figures": -0.74, "assumes": 0.84, "vouches": 0.09, "checker": -0.23, "first check": 0.09, "mended": 0.89,
        "contradicted": 0.04, "asked again": 0.0, "no progress": 0.43, "answer's source": 1.21, "answer in full": 0.0,
        **BY_HAND,
    },
    provenance="learnt from 164 verdicts of annotators; findings, residuals, paths, errors and reversals by hand",
)  # fmt: skip


def suspects(
    trace: Trace, *, residuals: Sequence[LevelResidual] | None = None, weights: Weights = DEFAULT, voices: Sequence[Voice] = ()
) -> list[Suspect]:
    """Return the events of a failed run, most suspicious first; none where `unsuspected` has a reason.

    Parameters
    ----------
    trace : the run; its expected answer and its labels are not looked at
    residuals : its residuals by level, where they are at hand
    weights : how much each signal counts
    voices : a user's own judges

    Raises
    ------
    UnknownNameError
        If a voice names an event that is not in the run.
    CounterpointError
        If a voice gives a score that is negative or no number.

    Notes
    -----
    The score is the conditional logit (McFadden 1974) of the weighted sum of signals over the events of the run: the
    share of suspicion, if one event is to blame. It is no probability that the event is at fault.

    Examples
    --------
    >>> from analysis.model import Event, Outcome
    >>> chat = [("lead", "Find the sum of 1.5 and 2.5."), ("adder", "Let us assume it is 5."), ("lead", "It is 5.")]
    >>> events = [Event(event_id=f"e{n}", order=n, kind="communicate", agent_id=a, content=c) for n, (a, c) in enumerate(chat)]
    >>> run = Trace(trace_id="t", world="recorded", events=tuple(events), outcome=Outcome(passed=False))
    >>> first = suspects(run)[0]
    >>> first.agent_id, first.event_id, first.reasons[0]
    ('adder', 'e1', "e1 is where 100% of the final answer's parts first come up.")
    """
    if unsuspected(trace):
        return []
    case, clues = signals(trace, residuals)
    return ranked(case, [*clues, *_heard(case, voices)], weights)


def unsuspected(trace: Trace) -> str:
    """Return why a run has no suspects; empty where it has some.

    >>> unsuspected(Trace(trace_id="t", world="recorded"))
    'it is not known whether the run failed'
    """
    if trace.outcome.passed is None:
        return "it is not known whether the run failed"
    if trace.outcome.passed:
        return "the run passed"
    if not trace.events:
        return "the run has no events"
    return "" if Case(trace, timing(trace)).suspects else "no event names the agent that decided on it"


def ranked(case: Case, clues: Iterable[Clue], weights: Weights) -> list[Suspect]:
    """Return the suspects of a case by the sum of their weighted clues; equal sums in the order of the run."""
    by_event: dict[str, list[tuple[float, Clue]]] = {case.steps[k].event_id: [] for k in case.suspects}
    for clue in clues:
        weight = weights.values.get(clue.signal, weights.voice if clue.signal not in SIGNALS else 0.0)
        by_event[clue.event_id].append((weight * clue.value, clue))
    sums = {event_id: math.fsum([part for part, _ in parts]) for event_id, parts in by_event.items()}
    most = max(sums.values())
    total = math.fsum([math.exp(value - most) for value in sums.values()])
    components = {agent.agent_id: agent.component for agent in case.trace.agents}
    agents = {case.steps[k].event_id: case.steps[k].agent_id or "" for k in case.suspects}
    found = []
    for rank, event_id in enumerate(sorted(sums, key=lambda event_id: -sums[event_id]), 1):
        parts = sorted(by_event[event_id], key=lambda part: -part[0])
        values: dict[str, float] = {}
        for _, clue in parts:
            values[clue.signal] = max(clue.value, values.get(clue.signal, 0.0))
        found.append(
            Suspect(
                rank=rank,
                agent_id=agents[event_id],
                component=components.get(agents[event_id], agents[event_id]),
                event_id=event_id,
                score=round(math.exp(sums[event_id] - most) / total, 9),
                reasons=tuple(dict.fromkeys([clue.reason for part, clue in parts if clue.reason and part >= 0])),
                signals={name: round(values[name], 9) for name in sorted(values)},
            )
        )
    return found


def _heard(case: Case, voices: Sequence[Voice]) -> list[Clue]:
    """Return what the voices say, each on a scale on which its highest score is 1."""
    place = {case.steps[k].event_id: k for k in case.suspects}
    ids = {event.event_id for event in case.trace.events}
    found = []
    for voice in voices:
        scores = dict(voice(case.trace))
        for event_id, score in scores.items():
            if event_id not in ids:
                raise UnknownNameError(f"voice {voice.name}", "the run has no such event", got=event_id)
            if not 0 <= score < math.inf:
                raise CounterpointError(f"voice {voice.name}", "a score has to be 0 or more", got=f"{score} for {event_id}")
        highest = max(scores.values(), default=0.0)
        for event_id, score in scores.items():
            if event_id in place and score > 0:
                reason = "{e} is suspected by the voice {0}, which gives it {1:g} (its highest is {2:g})."
                clue = case.clue(f"voice {voice.name}", place[event_id], score / highest, reason, voice.name, score, highest)
                found.append(clue)
    return found
