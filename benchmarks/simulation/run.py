"""A run while it is being played: a book of events, each at a time that its causes and its agent allow.

Times are whole milliseconds and durations use plain arithmetic only, so the bytes are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from analysis.model import Agent, Candidate, Claim, Event, Kind, Subtask

from .tasks import Job

Level = Literal["component", "pre-aggregation", "final"]
Draw = Callable[..., float]  # the keyed number in [0, 1)

HANDOVER_MS = 40
#: What a step takes at its quickest is half of this; the median is about the same, the slowest four times as long.
_BASE_MS = {"spawn": 400, "delegate": 350, "communicate": 600, "aggregate": 2500, "stop": 300,
            "model_call": 4000, "tool_call": 1500, "tool_result": 20, "return": 4000}  # fmt: skip


class Step(NamedTuple):
    """What later steps need to know of an earlier one."""

    agent_id: str
    turn: int
    end_ms: int
    n_tokens: int


@dataclass
class Run:
    """The state of one run; moves add to it, and `record.trace_of` reads it off at the end."""

    job: Job
    own: Draw  # draws of this team's run
    luck: Draw  # draws that all teams share on this task and trial, so that they differ by how they work
    p_part: float  # chance that a part comes out sound at one attempt
    n_calls: int  # tool calls that the workers make in all
    start_ms: int
    states: bool  # whether components state probabilities
    is_candid: bool  # whether workers doubt their poor results
    is_full: bool  # whether a delegation hands over scenarios, signatures and the domain model
    shares: bool = False  # whether a part gets to know what it builds on
    fits: bool = True  # whether the parts work together
    checked: bool = False
    agents: dict[str, Agent] = field(default_factory=dict)
    free_ms: dict[str, int] = field(default_factory=dict)
    n_events: dict[str, int] = field(default_factory=dict)
    context: dict[str, int] = field(default_factory=dict)  # tokens that the agent has before it
    steps: dict[str, Step] = field(default_factory=dict)
    events: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    quoted: dict[str, int] = field(default_factory=dict)  # proposition -> hundredths, the latest
    said: dict[str, str] = field(default_factory=dict)  # part -> the worker's last report, without the quote
    subtasks: dict[str, Subtask] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)
    sound: dict[str, bool] = field(default_factory=dict)  # part -> whether what was handed in is sound
    doomed: set[str] = field(default_factory=set)  # parts that come out poor whatever is drawn
    merged: str | None = None  # the event that made the whole
    blame: str | None = None  # the event at which the planted failure shows

    def next_id(self, agent_id: str) -> str:
        """Return the id that the agent's next event will have."""
        return f"{agent_id}.{self.n_events[agent_id] + 1}"

    def add(
        self, agent_id: str, kind: Kind, *, after: Sequence[str], content: str | None = None, wait_s: int = 0, **fields: Any
    ) -> str:
        """Put down the agent's next event, after the events that caused it, and return its id.

        Its turn is the number of handovers between agents on the longest way to it.
        """
        event_id = self.next_id(agent_id)
        causes = [self.steps[e] for e in after]
        start_ms = max([self.free_ms[agent_id], *[c.end_ms for c in causes]]) + HANDOVER_MS + 1000 * wait_s
        action = fields.get("action")
        u = self.own(event_id, "duration")
        end_ms = start_ms + int(_BASE_MS[action or kind] * (0.5 + u / (1.3 - u)))
        turn = max([c.turn + (c.agent_id != agent_id) for c in causes], default=0)
        n_tokens = 8 + len((content or "").encode()) // 4
        self.context[agent_id] += sum([c.n_tokens for c in causes if c.agent_id != agent_id])
        if action not in ("tool_call", "tool_result"):
            fields["input_tokens"] = self.context[agent_id]
            fields["output_tokens"] = n_tokens
        fields.update(event_id=event_id, kind=kind, agent_id=agent_id, content=content, parents=tuple(after), turn=turn,
                      t_start_s=start_ms / 1000, t_end_s=end_ms / 1000, basis="synthetic")  # fmt: skip
        self.events.append((start_ms, fields))
        self.steps[event_id] = Step(agent_id, turn, end_ms, n_tokens)
        self.context[agent_id] += n_tokens
        self.free_ms[agent_id] = end_ms
        self.n_events[agent_id] += 1
        return event_id

    def say(self, agent_id: str, text: str, *, quotes: dict[str, int], level: Level = "component") -> str:
        """Return `text` with the quotes (hundredths) at its end; they are claims of the agent's next event."""
        if not self.states:
            return text
        for proposition, hundredths in quotes.items():
            text += f"{self.job.phrases.space}p({proposition}) = "
            first, text = len(text), f"{text}{hundredths / 100:.2f}."
            self.quoted[proposition] = hundredths
            self.claims.append({
                "claim_id": f"q{len(self.claims) + 1}", "component": self.agents[agent_id].component, "proposition": proposition,
                "p": hundredths / 100, "event_id": self.next_id(agent_id), "level": level, "kind": "verbalised",
                "span": (first, len(text) - 1), "basis": "synthetic",
            })  # fmt: skip
        return text

    def ordered(self) -> tuple[Event, ...]:
        """Return the events in the order in which they began."""
        return tuple([Event(order=n, **fields) for n, (_, fields) in enumerate(sorted(self.events, key=lambda e: e[0]))])

    def dated_claims(self) -> tuple[Claim, ...]:
        """Return the claims with the turn of the event they were made in."""
        return tuple([Claim(turn=self.steps[claim["event_id"]].turn, **claim) for claim in self.claims])

    def broken(self) -> list[str]:
        """Return the parts that no sound result was handed in for."""
        return [part.name for part in self.job.parts if not self.sound.get(part.name)]

    def n_passed(self) -> int:
        """Return how many tests of the whole pass; all of them exactly if every part is sound and they fit."""
        broken = self.broken()
        tried = [name for name in broken if name in self.sound]
        n_lucky = sum([self.luck("one of two", name) < 0.5 for name in tried])
        return 2 * (len(self.job.parts) - len(broken)) + n_lucky + (self.fits and not broken)
