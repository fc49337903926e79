"""What is known of a trace, put on its histories: rows with split, credit, masks, weights, reward and difficulty.

Decides what a mask and a weight apply to (whole messages that the agent wrote, never text; a mask on any event of a message
masks it), that credit stands raw and only where the event was written, and what a reward is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from analysis.model import Outcome, Trace
from analysis.training.histories import History, histories
from analysis.training.rows import SCHEMA_VERSION, Row, RowEvent, signed


class Credit(NamedTuple):
    """What an event was worth, in units of the metric: -delta_q, its standard error, of n replays, and the evidence."""

    value: float
    se: float | None
    n: int
    method: str


class Segment(NamedTuple):
    """What curation says of a component, or of the one event that is named, whose weight then stands instead.

    `keep` false: no loss is taken on what it wrote.
    """

    component: str
    event_id: str
    keep: bool
    weight: float


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a workspace knows of one trace that is exported.

    `source_sha256` identifies the trace as it was imported: the hash of its digest; `weight` is its sampling weight.
    """

    group: str
    split: str
    order_key: int
    source_sha256: str = ""
    task_id: str = ""
    weight: float = 1.0
    stage: str | None = None
    segments: tuple[Segment, ...] = ()
    credits: dict[str, Credit] = {}
    residual_norm: float | None = None
    residual_share: dict[str, float] = {}
    d_req: float | None = None
    d_orch: float | None = None
    family: str | None = None
    failure_mode: str | None = None


def rows_of(trace: Trace, facts: Facts) -> Iterator[Row]:
    """Yield the rows of a trace: one for each history, in the order of its agents."""
    number: dict[str, int] = {}
    for history in histories(trace):
        n = number[history.agent] = number.get(history.agent, -1) + 1
        keep, weight = _masks(history, facts)
        turns = history.turns or (None, None)
        yield signed(Row(
            row_id=f"{trace.trace_id}#{history.agent}#{n}", trace_id=trace.trace_id, rollout_id=trace.trace_id,
            task_id=facts.task_id, group=facts.group, world=trace.world, agent=history.agent, component=history.component,
            turn_from=turns[0], turn_to=turns[1], messages=history.messages, tools=history.tools,
            events=_credited(history, facts.credits), keep=keep, weight=weight,
            reward=reward_of(trace.outcome), residual_norm=facts.residual_norm, residual_share=facts.residual_share,
            d_req=facts.d_req, d_orch=facts.d_orch, stage=facts.stage, order_key=facts.order_key, family=facts.family,
            failure_mode=facts.failure_mode, split=facts.split, source_sha256=facts.source_sha256, row_sha256="",
            schema_version=SCHEMA_VERSION,
        ))  # fmt: skip


def reward_of(outcome: Outcome) -> float | None:
    """Return how well a run ended, in [0, 1]: its score on the scale that the source states, else whether it passed.

    >>> reward_of(Outcome(passed=False, score=3.0, score_scale=(1.0, 5.0))), reward_of(Outcome(passed=True)), reward_of(Outcome())
    (0.5, 1.0, None)
    """
    if outcome.score is not None and outcome.score_scale is not None and outcome.score_scale[0] < outcome.score_scale[1]:
        low, high = outcome.score_scale
        return min(1.0, max(0.0, (outcome.score - low) / (high - low)))
    return None if outcome.passed is None else float(outcome.passed)


def _masks(history: History, facts: Facts) -> tuple[list[bool], list[float]]:
    """Return for each message whether a loss is taken, and its weight: the mean of those of the events written in it."""
    if not facts.segments:
        return [n in history.spoken for n in range(len(history.messages))], [facts.weight] * len(history.messages)
    usual = Segment(history.component, "", True, 1.0)
    whole = next((s for s in facts.segments if not s.event_id and s.component == history.component), usual)
    single = {s.event_id: s for s in facts.segments if s.event_id}
    keep, weight = [False] * len(history.messages), [facts.weight * whole.weight] * len(history.messages)
    written: dict[int, list[Segment]] = {n: [] for n in history.spoken}
    for event in history.events:
        if event.event_id in history.written and event.message in written:
            written[event.message].append(single.get(event.event_id, whole))
    for n, mine in written.items():
        keep[n] = whole.keep and all(segment.keep for segment in mine)
        weight[n] = facts.weight * math.fsum([segment.weight for segment in mine]) / len(mine)
    return keep, weight


def _credited(history: History, credits: dict[str, Credit]) -> list[RowEvent]:
    if not credits:
        return history.events
    own = {event_id: credit for event_id, credit in credits.items() if event_id in history.written}
    return [
        msgspec.structs.replace(event, credit=own[event.event_id].value, credit_se=own[event.event_id].se,
                                n=own[event.event_id].n, method=own[event.event_id].method)
        if event.event_id in own else event
        for event in history.events
    ]  # fmt: skip
