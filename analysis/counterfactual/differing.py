"""Where two runs differ of which one has a decision changed, and that nothing differs which the change must not reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from analysis.counterfactual.interventions import step_of
from analysis.counterfactual.plan import Communicate, Plan
from analysis.counterfactual.recorded import Intervention
from analysis.errors import ReplayError
from analysis.model import Event, Trace


class Changed(NamedTuple):
    """The events in which two runs differ, in the order of the runs, and those of them that the change must not reach."""

    events: tuple[str, ...]
    upstream: tuple[str, ...]


def compared(plan: Plan, original: Trace, other: Trace, one: Intervention) -> Changed:
    """Return where two runs differ, of which the second has one decision changed; raises ReplayError where it reached further.

    Nothing may differ that began before the step, and nothing that does not come after it: through causes and merges,
    through the order in which an agent works, or because either run was over by then. Numbers of order are not compared,
    nor what a spawn says of who is to do what, nor the address of what is sent to whoever does the step.
    """
    sides = [{event.event_id: _content(plan, event, one) for event in trace.events} for trace in (original, other)]
    where = {event.event_id: event for trace in (other, original) for event in trace.events}
    differ = [name for name in where if sides[0].get(name) != sides[1].get(name)]
    differ.sort(key=lambda name: (where[name].t_start_s or 0.0, where[name].order))
    same_steps = {step.step_id for step in plan.steps}
    of_site = {name for name in where if (step := step_of(plan, name)) is None or step.step_id == one.event_id}
    of_site |= {name for name in differ if name.partition(".")[0] not in same_steps}
    begins = [event.t_start_s or 0.0 for trace in (original, other) for event in trace.events if event.event_id in of_site]
    reached, cut = _reached((original, other), of_site), min(begins, default=float("inf"))
    over = min([max([event.t_end_s or 0.0 for event in trace.events if event.kind == "stop"], default=float("inf"))
                for trace in (original, other)])  # fmt: skip
    upstream = [
        name for name in differ if (start := where[name].t_start_s or 0.0) < cut or (name not in reached and start < over)
    ]
    if upstream:
        place = f"event {one.event_id} of {original.trace_id}"
        raise ReplayError(place, f"{one.operator} changed what does not come after it", got=", ".join(upstream[:3]))
    return Changed(tuple(differ), ())


def _content(plan: Plan, event: Event, one: Intervention) -> Event:
    step = step_of(plan, event.event_id)
    is_addressed = isinstance(step, Communicate) and f"@{one.event_id}" in step.to
    return replace(event, order=0, assignment={}, targets=() if is_addressed else event.targets)


def _reached(runs: Sequence[Trace], site: set[str]) -> set[str]:
    """Return the events of the site and all that in either run come after one, through causes or their agent's order."""
    reached, n_before = set(site), -1
    while len(reached) > n_before:  # what is reached in one run may go on in the other
        n_before = len(reached)
        for run in runs:
            latest: dict[str | None, str] = {}  # by agent
            for event in run.events:  # in the order in which they began
                if not reached.isdisjoint((*event.parents, *event.merge_points, latest.get(event.agent_id, ""))):
                    reached.add(event.event_id)
                latest[event.agent_id] = event.event_id
    return reached
