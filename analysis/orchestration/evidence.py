"""What a finding is, and what is looked at to find one.

A finding names its events, its agents, and whether the run passed all the same; what it cost carries its unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from analysis.model import Event, Trace
from analysis.orchestration.graph import EventGraph
from analysis.orchestration.timing import Timing


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One anti-pattern in one run.

    recovered : whether the run passed all the same; None where its outcome is not known
    loss, loss_unit : what it cost, and in what; None where that cannot be told
    """

    name: str
    event_ids: tuple[str, ...]
    agents: tuple[str, ...]
    message: str
    recovered: bool | None
    loss: float | None = None
    loss_unit: str = ""


#: The findings of one kind, or the reason why it cannot be told whether there are any.
Found = list[Finding] | str


@dataclass(frozen=True)
class Evidence:
    """A run and its timing, with what several detectors ask for."""

    trace: Trace
    timed: Timing

    @property
    def graph(self) -> EventGraph:
        """The event graph."""
        return self.timed.graph

    @property
    def events(self) -> tuple[Event, ...]:
        """The events in the order of the graph."""
        return self.timed.graph.events

    @cached_property
    def components(self) -> dict[str, str]:
        """The component of each agent."""
        return {agent.agent_id: agent.component for agent in self.trace.agents}

    @cached_property
    def sub_agents(self) -> dict[str, None]:
        """The agents that another one spawned or delegated to, in order of appearance."""
        leads = [event for event in self.events if event.kind in ("spawn", "delegate")]
        return dict.fromkeys([target for event in leads for target in event.targets if target != event.agent_id])

    def finding(
        self, name: str, places: Iterable[int], message: str, *, loss: float | None = None, loss_unit: str = ""
    ) -> Finding:
        """Return a finding at the events of these positions; without a loss given it is their own work."""
        places = sorted(set(places))
        if not loss_unit:
            loss, loss_unit = self.work(places), f"{self.timed.unit} of work"
        return Finding(
            name=name,
            event_ids=tuple([self.events[n].event_id for n in places]),
            agents=tuple(dict.fromkeys([agent for n in places if (agent := self.events[n].agent_id) is not None])),
            message=message,
            recovered=self.trace.outcome.passed,
            loss=loss,
            loss_unit=loss_unit,
        )

    def work(self, places: Iterable[int]) -> float:
        """Return the own time of these events, in the unit of the timing."""
        return math.fsum([self.timed.own[n] for n in places])


def plain(text: str | None) -> str:
    """Return a text in lower case with single spaces, empty for none."""
    return " ".join((text or "").split()).casefold()


def has_run_of(text: str, other: str, share: float) -> bool:
    """Whether a stretch of at least `share` (more than a half) of `text` stands, unchanged, in `other`.

    Exact: any such stretch holds the middle of `text`, so only the places of the middle are looked at, the first hundred.

    >>> has_run_of("the answer is 42.", "He said: the answer is 42!", 0.9), has_run_of("the answer is 42.", "answer 42", 0.9)
    (True, False)
    """
    need = math.ceil(share * len(text))
    spare = len(text) - need
    middle = text[spare:need]
    for place in list(_places(middle, other))[:100] if middle else ():
        left = _common(text[:spare][::-1], other[max(0, place - spare) : place][::-1])
        right = _common(text[need:], other[place + len(middle) : place + len(middle) + spare])
        if left + len(middle) + right >= need:
            return True
    return False


def _places(part: str, whole: str) -> Iterable[int]:
    return (match.start() for match in re.finditer(f"(?={re.escape(part)})", whole))


def _common(first: str, second: str) -> int:
    """How many characters two texts begin with in common."""
    return next((n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))
