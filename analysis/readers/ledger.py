"""Histories of a team led by an orchestrator who keeps a ledger (Magentic-One), as events and claims.

Decides what each role string such as `Orchestrator (-> WebSurfer)` means, which entries caused which, and which
answers of a ledger are verdicts; hides how the ledger's JSON is cut out of the prose around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from analysis.errors import Problem
from analysis.model import Claim, Event

# The ledger's boolean questions -> the propositions of the claims; coupling files name these.
_PROPOSITIONS = {
    "is_request_satisfied": "request_satisfied",
    "is_in_loop": "in_loop",
    "is_progress_being_made": "progress_being_made",
}

_KEY = "is_request_satisfied"
_MAX_OPENINGS = 8  # a ledger has five members, each at most one object; more would let hostile text cost quadratic time
_ANSWER, _AFTER_ANSWER = "FINAL ANSWER:", "\nSCENARIO.PY COMPLETE"
_CRASH = "Error processing publish message"
_decoder = json.JSONDecoder()


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a history, as the file has it."""

    role: Annotated[str, Meta(min_length=1, max_length=256)]
    content: str | None = None
    name: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class _Step(NamedTuple):
    """An entry at its place, and what its role says: who speaks, as what (`tag`)."""

    n: int
    speaker: str
    tag: str | None
    entry: Entry

    @property
    def target(self) -> str:
        return self.tag[2:].strip() if self.tag is not None and self.tag.startswith("->") else ""


def is_orchestrated(entries: Any) -> bool:
    """Return whether a role of a list is spelt like `Orchestrator (thought)`; plain chats have bare role names."""
    roles = [entry.get("role") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return any(isinstance(role, str) and role.startswith("Orchestrator (") for role in roles)


def event_of(n: int, entry: Entry, speaker: str, **decision: Any) -> Event:
    """Return the one event that carries the text of entry `n`; `decision` is what kind of event it is."""
    return Event(
        event_id=f"h{n}", agent_id=speaker, content=entry.content, raw_id=f"history[{n}]", raw_type=entry.role, **decision
    )


def last_message(events: Sequence[Event]) -> Event:
    """Return the stop of a run whose history just ends. Whose decision that was is not known, so it names no agent."""
    last = events[-1]
    crash = _CRASH if _CRASH in (last.content or "") else None  # the harness prints it after the text of the last speaker
    return Event(
        event_id="end",
        kind="stop",
        parents=(last.event_id,),
        turn=last.turn,
        condition=crash,
        basis="derived",
        rule="last-message",
    )


def events(entries: Sequence[Entry]) -> Iterator[Event]:
    """Yield the events of a history in their order; a turn is a round of the ledger, and round 0 is the first plan."""
    steps = [_step(n, entry) for n, entry in enumerate(entries)]
    asked = _asked(steps)
    leaders = {step.speaker for step in steps if step.tag is not None}
    present: set[str] = set()
    replies: dict[str, str] = {}  # agent -> the event of its latest reply
    turn = led = 0
    for step in steps:
        turn += _is_ledger(step)
        present.add(step.speaker)
        # A leader acts on its own last entry and on all that was said since; the others act on what they were asked.
        heard = tuple(f"h{n}" for n in range(led, step.n)) if step.speaker in leaders else ()
        if (marker := _marker(step, heard, turn, present, replies)) is not None:
            yield marker
            heard += (marker.event_id,)
        yield event_of(step.n, step.entry, step.speaker, turn=turn, **_decision(step, heard, asked))
        led = step.n if step.speaker in leaders else led
        if step.n in asked:
            replies[step.speaker] = f"h{step.n}"


def answer(entry: Entry) -> str | None:
    """Return what stands behind `FINAL ANSWER:`, which the harness prints under the last entry."""
    text = entry.content or ""
    at = text.rfind(_ANSWER)
    if at < 0 or text[at - 1 : at] not in ("", "\n"):
        return None
    return text[at + len(_ANSWER) :].partition(_AFTER_ANSWER)[0].strip() or None


def claims(team: Sequence[Event]) -> tuple[list[Claim], list[Problem]]:
    """Return the verdicts of all ledgers as claims with p 0 or 1, and the ledgers that could not be read.

    All are of level `component`, the last satisfied one too: it is the Orchestrator's own verdict, no quote put
    together from others', and without it the component's newest quote would be an outdated one.
    """
    found, problems = [], []
    for event in team:
        if event.action != "ledger":
            continue
        if (said := verdicts(event.content or "")) is None:
            problems.append(Problem(code="unread-ledger", record=event.raw_id or "", expected="JSON"))
        for proposition, is_true in (said or {}).items():
            found.append(
                Claim(
                    claim_id=f"{event.event_id}.{proposition}",
                    component=event.agent_id or "",
                    proposition=proposition,
                    p=float(is_true),
                    event_id=event.event_id,
                    turn=event.turn,
                    kind="verdict",
                )
            )
    return found, problems


def verdicts(text: str) -> dict[str, bool] | None:
    """Return proposition -> answer for the booleans of the ledger in `text`, or None where no ledger can be read.

    >>> verdicts('Updated Ledger: {"is_request_satisfied": {"reason": "-", "answer": false}, "is_in_loop": 3} and so on')
    {'request_satisfied': False}
    >>> verdicts('Updated Ledger: {"is_request_satisfied": {"reason":') is None
    True
    """
    if (ledger := _cut(text)) is None:
        return None
    answers = {name: ledger.get(key) for key, name in _PROPOSITIONS.items()}
    plain = {name: value.get("answer") if isinstance(value, dict) else value for name, value in answers.items()}
    return {name: value for name, value in plain.items() if isinstance(value, bool)}


def _cut(text: str) -> dict[str, Any] | None:
    """Try the braces before the quoted key, nearest first: prose and fences may hold braces of their own."""
    start = text.find(f'"{_KEY}"')
    for _ in range(_MAX_OPENINGS):
        if (start := text.rfind("{", 0, max(start, 0))) < 0:
            return None
        try:
            value, _end = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if _KEY in value:
            return dict(value)
    return None


def _step(n: int, entry: Entry) -> _Step:
    speaker, mark, tag = entry.role.partition(" (")
    if speaker and mark and tag.endswith(")"):
        return _Step(n, speaker, tag[:-1], entry)
    return _Step(n, entry.role, None, entry)


def _is_ledger(step: _Step) -> bool:
    return step.tag == "thought" and _KEY in (step.entry.content or "")


def _asked(steps: Sequence[_Step]) -> dict[int, _Step]:
    """Return reply -> the delegation it answers: the latest one to that speaker that has no reply yet."""
    answered: dict[int, _Step] = {}
    waiting: dict[str, _Step] = {}
    for step in steps:
        if step.target:
            waiting[step.target] = step
        elif step.tag is None and step.speaker in waiting:
            answered[step.n] = waiting.pop(step.speaker)
    return answered


def _decision(step: _Step, heard: tuple[str, ...], asked: dict[int, _Step]) -> dict[str, Any]:
    """Return kind, basis and links of an entry; an unknown tag leaves the event opaque."""
    if step.tag is None and step.speaker == "human":
        return {"kind": "act", "action": "input", "parents": heard}
    if (request := asked.get(step.n)) is not None:
        links = {"targets": (request.speaker,), "parents": (f"h{request.n}",)}
        return {"kind": "communicate", **links, "basis": "derived", "rule": "reply-to-delegation"}
    if step.tag is None:
        return {"kind": "communicate", "parents": heard, "basis": "derived", "rule": "unaddressed-message"}
    if step.target:
        return {"kind": "delegate", "targets": (step.target,), "parents": heard}
    if step.tag == "thought":
        return {"kind": "act", "action": "ledger" if _is_ledger(step) else "note", "parents": heard}
    if step.tag == "termination condition":
        # The text goes on with the harness's log; only its first line says why the run stopped.
        return {"kind": "stop", "condition": (step.entry.content or "").partition("\n")[0] or None, "parents": heard}
    return {"parents": heard}


def _marker(step: _Step, heard: tuple[str, ...], turn: int, present: set[str], replies: dict[str, str]) -> Event | None:
    """Return what the entry implies besides itself: a spawn at the first delegation, a merge at the final answer."""
    if step.target and step.target not in present:
        present.add(step.target)
        decision: dict[str, Any] = {"kind": "spawn", "targets": (step.target,), "rule": "first-delegation"}
    elif step.tag == "termination condition" and len(replies) > 1 and answer(step.entry) is not None:
        # An agent's earlier replies have gone into its later ones, by way of the ledger: the latest are what is merged.
        decision = {"kind": "aggregate", "merge_points": tuple(replies.values()), "rule": "final-answer"}
        replies.clear()
    else:
        return None
    return Event(
        event_id=f"h{step.n}.{decision['kind']}", agent_id=step.speaker, parents=heard, turn=turn, basis="derived", **decision
    )
