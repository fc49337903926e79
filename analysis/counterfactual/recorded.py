"""One decision of a recorded run, changed without asking anybody: what was changed, what came of it, what cannot be.

Decides what every such replay states: both values of every metric, the event changed, those that changed with it. What
would need an agent's answer is refused here, for all operators at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, NoReturn

import msgspec

from analysis.errors import ReplayError
from analysis.model import Counterfactual, Source, Trace

#: What nobody can tell from a recording alone -> why.
NEEDS_ANSWERS = {
    "insert-message": "nobody recorded what its receivers would have answered",
    "remove-message": "nobody recorded what its receivers would have done without it",
    "assign": "nobody recorded what another agent would have handed in",
    "stop-later": "nobody recorded what the agents would have done next",
}


class Intervention(msgspec.Struct, frozen=True):
    """What is changed: by which operator, at which event, and how."""

    operator: str
    event_id: str
    parameters: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """The parameters as one text, the same for the same parameters."""
        return json.dumps(self.parameters, sort_keys=True, ensure_ascii=False)


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A run with one decision changed.

    trace : the changed run; its world is `simulated`
    q, q_counterfactual : by metric, before and after; the same names in both
    differs_at : the event that was changed
    downstream : all other events that differ, or are gone, in the order of the run
    n_without_duration : events whose duration nobody knows; they count as points in time
    notes : what to know before believing it, in sentences
    """

    intervention: Intervention
    trace: Trace
    q: dict[str, float]
    q_counterfactual: dict[str, float]
    downstream: tuple[str, ...] = ()
    n_without_duration: int = 0
    notes: tuple[str, ...] = ()

    @property
    def differs_at(self) -> str:
        """The event that was changed."""
        return self.intervention.event_id

    @property
    def delta_q(self) -> dict[str, float]:
        """The changed run minus the recorded one, by metric."""
        return {name: self.q_counterfactual[name] - value for name, value in self.q.items()}


def refuse(trace: Trace, intervention: Intervention, why: str, *, got: str = "", hint: str = "") -> NoReturn:
    """Raise the error that says why an intervention cannot be replayed."""
    place = f"event {intervention.event_id} of {trace.trace_id}"
    raise ReplayError(place, f"{intervention.operator} cannot be replayed: {why}", got=got, hint=hint)


def check_operator(trace: Trace, intervention: Intervention, known: tuple[str, ...]) -> None:
    """Raise ReplayError unless the operator is one of those known, and the event one of the trace's."""
    if why := NEEDS_ANSWERS.get(intervention.operator):
        refuse(trace, intervention, why, hint="execute it again with the agents")
    if intervention.operator not in known:
        raise ReplayError("operator", "not one of those replayed here", got=intervention.operator, expected=", ".join(known))
    if all(event.event_id != intervention.event_id for event in trace.events):
        refuse(trace, intervention, "the trace has no such event")


def counterfactual_of(trace: Trace, intervention: Intervention, **changed: Any) -> Trace:
    """Return the trace with fields changed, under an id of its own that says of what it was made and how."""
    text = "\n".join([trace.trace_id, intervention.operator, intervention.event_id, intervention.key])
    name = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    made = Counterfactual(
        parent_trace_id=trace.trace_id, event_id=intervention.event_id, operator=intervention.operator,
        parameters=intervention.parameters, arm="counterfactual", seed_block="recorded",
    )  # fmt: skip
    fields = {"source": Source(format="counterpoint"), "world": "simulated", **changed}
    return msgspec.structs.replace(trace, trace_id=f"counterpoint:cf-{name}", counterfactual=made, **fields)


def pair_rows(parent: Trace, replayed: Replayed) -> list[dict[str, Any]]:
    """Return a replay as rows of pairs, one a metric, as `effects` takes them; it cost nothing and is exact, not drawn."""
    event = next(event for event in parent.events if event.event_id == replayed.differs_at)
    same = {
        "trace_id": parent.trace_id,
        "task": parent.groups.task or parent.task.task_id or parent.trace_id,
        "event_id": event.event_id,
        "event_kind": event.kind or "opaque",
        "operator": replayed.intervention.operator,
        "parameters": replayed.intervention.key,
    }
    rest = {"seed_block": "recorded", "world": parent.world, "evidence": "simulated", "cost": 0.0}
    pairs = ((name, q, replayed.q_counterfactual[name]) for name, q in replayed.q.items())
    return [{**same, "metric": name, "q": q, "q_counterfactual": other, **rest} for name, q, other in pairs]


def in_both(before: dict[str, float | None], after: dict[str, float | None]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the finite values of the names that have one both times."""
    names = [name for name in before if _finite(before[name]) and _finite(after.get(name))]
    return {n: v for n in names if (v := before[n]) is not None}, {n: v for n in names if (v := after[n]) is not None}


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
