"""A failed run as the search for its culprit sees it: its steps, who may be blamed for them, and clues.

Decides which events are steps (a person reading the run would count them) and which of these are suspects; hides how
replies, results and openings are recognised in led teams and in group chats alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from analysis.model import Event, Trace
from analysis.orchestration.timing import Timing

#: What is read of one text: a page of a hundred thousand characters says nothing more about who is to blame.
_MAX_READ = 100_000
#: The harness's answer to a message without code; it says nothing about the message.
_NOTHING_RUN = "There is no code from the last"


class Clue(NamedTuple):
    """What one signal says of one event: `value` from 0 to 1, and a sentence that names the event."""

    signal: str
    event_id: str
    value: float
    reason: str


@dataclass(frozen=True)
class Case:
    """A run and its timing. Steps count from 0 in the order of the graph; `suspects` and all other places count steps."""

    trace: Trace
    timed: Timing

    @cached_property
    def steps(self) -> tuple[Event, ...]:
        """The events that a reader would count: all but markers, which a reader of the source put in without a text."""
        return tuple([e for e in self.timed.graph.events if e.content is not None or e.error or e.basis == "explicit"])

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """What is read of each step's text."""
        return tuple([(step.content or "")[:_MAX_READ] for step in self.steps])

    @cached_property
    def suspects(self) -> tuple[int, ...]:
        """The steps that somebody decided on: they name an agent and are neither an input nor the result of a tool."""
        return tuple([k for k, e in enumerate(self.steps) if e.agent_id and e.action not in ("input", "tool_result")])

    @cached_property
    def leaders(self) -> frozenset[str]:
        """The agents that delegate to one other agent at a time; a group chat, in which all hear all, has none."""
        return frozenset([e.agent_id for e in self.steps if e.agent_id and _addressee(e)])

    @cached_property
    def results(self) -> tuple[int, ...]:
        """The suspects that hand in own work: replies to a leader, or whatever is said in a chat after its opening."""
        if self.leaders:
            return tuple([k for k in self.suspects if self.steps[k].kind == "communicate" or self.steps[k].action == "return"])
        return self.suspects[1:]

    @cached_property
    def following(self) -> dict[int, int]:
        """For each suspect but the last the next one."""
        return dict(zip(self.suspects, self.suspects[1:], strict=False))

    def answered(self, k: int) -> Event | None:
        """Return the result of the tool that step `k` called or whose code it holds, where it follows at once."""
        after = self.steps[k + 1] if k + 1 < len(self.steps) else None
        if after is None or after.action != "tool_result" or self.texts[k + 1].startswith(_NOTHING_RUN):
            return None
        return after

    def clue(self, signal: str, k: int, value: float, reason: str, *details: object) -> Clue:
        """Return a clue on step `k`; `{e}` in the reason is its event, `{a}` its agent, `{0}`, `{1}` are the details."""
        step = self.steps[k]
        return Clue(signal, step.event_id, float(value), reason.format(*details, e=step.event_id, a=step.agent_id))


def _addressee(event: Event) -> str | None:
    others = set(event.targets) - {event.agent_id}
    return others.pop() if event.kind == "delegate" and len(others) == 1 else None
