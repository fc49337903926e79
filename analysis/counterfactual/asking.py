"""A decision of a run as a model is asked for it, and as it would answer: with what it had before it by then.

Decides in which words. What live models are asked (who does a part, how results are merged, whether the run ends) is asked in
the words of `agents.prompts`, so that a model trained on the answers decides just that; all else as what to do next, and when.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from analysis.counterfactual.agents.live import Endpoint
from analysis.counterfactual.agents.prompts import messages_of
from analysis.counterfactual.agents.protocol import Request
from analysis.model import Event, Trace
from analysis.orchestration.timing import timing

Message = dict[str, Any]

_NEXT = "Decide what you do next, and when."
_FORM = (
    'Answer with one block\n```json\n{"decision": <spawn, delegate, communicate, aggregate, stop, none, or other work by its '
    'name>, "to": [<agents>], <what else there is to decide>, "at_s": <seconds since the run began>}\n```\nand nothing else.'
)
_DECIDED = ("task_split", "message_type", "strategy", "merge_points", "condition")
NOTHING = {"decision": "none"}


class Asked(NamedTuple):
    """Who is asked, with which messages, and what is answered in the run and with the decision changed."""

    agent: str
    prompt: list[Message]
    original: list[Message]
    counterfactual: list[Message]


def choosing(request: Request, choices: tuple[str, str], *, end: Endpoint | None = None, after: Sequence[Message] = ()) -> Asked:
    """Return a choice between a request's options as a model is asked for it; `after` is what it knows besides."""
    instructions, json_mode = (end.instructions, end.json_mode) if end else ("", False)
    first, *asked = messages_of(request, instructions=instructions, json_mode=json_mode)
    said = [[_said({"choice": choice}, is_bare=json_mode)] for choice in choices]
    return Asked(request.agent_id, [first, *after, *asked], said[0], said[1])


def deciding(
    trace: Trace, agent: str, event_id: str, decisions: tuple[dict[str, Any], dict[str, Any]], *, is_after: bool = False
) -> Asked:  # fmt: skip
    """Return any decision of an agent before an event, or right after it, with all that had reached the agent by then."""
    component = next((one.component for one in trace.agents if one.agent_id == agent), None) or "member"
    system = {"role": "system", "content": f"You are {agent}, the {component} of a team of agents."}
    times = [decision["at_s"] for decision in decisions if "at_s" in decision]
    now = f"It is {min(times):g} s since the run began. " if times else ""
    question = {"role": "user", "content": f"{now}{_NEXT} {_FORM}"}
    prompt = _joined([system, *_history(trace, agent, event_id, is_after), question])
    return Asked(agent, prompt, *[[_said(decision)] for decision in decisions])


def decision_of(event: Event | None, *, began_s: float = 0.0, words: bool = False) -> dict[str, Any]:
    """Return what an event decides, as plain values; with `words`, what it says too. Nothing where it did not happen.

    >>> decision_of(Event(event_id="e", kind="delegate", targets=("ann",), t_start_s=2.0), began_s=0.5)
    {'decision': 'delegate', 'to': ['ann'], 'at_s': 1.5}
    """
    if event is None:
        return NOTHING
    what = event.kind if event.kind not in (None, "act") else event.action or event.kind or "act"
    said: dict[str, Any] = {"decision": what, "name": event.name, "to": list(event.targets)}
    said |= {name: msgspec.to_builtins(getattr(event, name)) for name in _DECIDED}
    said |= {"text": event.content if words else None}
    said |= {"at_s": None if event.t_start_s is None else round(event.t_start_s - began_s, 3)}
    return {name: value for name, value in said.items() if value not in (None, [], ())}


def _history(trace: Trace, agent: str, event_id: str, is_after: bool) -> list[Message]:
    """Return what an agent had said, and what had reached it: the task first, where it has it whole.

    What reached it: what was addressed to it, and what caused something that it did.
    """
    graph = timing(trace).graph
    at = graph.position[event_id] + is_after
    mine = [n for n in range(min(at + 1, len(graph.events))) if graph.events[n].agent_id == agent]
    caused = {cause for n in mine for cause in graph.causes[n]}
    told: list[Message] = []
    for n, event in enumerate(graph.events[:at]):
        if event.agent_id == agent:
            told += [{"role": "assistant", "content": event.content}] if event.content else []
        elif n in caused or agent in event.targets:
            told.append({"role": "user", "content": _told(event)})
    is_handed = any(event.kind == "delegate" and agent in event.targets for event in graph.events[:at])
    task = [] if is_handed or not trace.task.text else [{"role": "user", "content": f"The task:\n{trace.task.text}"}]
    return [*task, *told]


def _told(event: Event) -> str:
    what = event.message_type or event.action or event.kind or "event"
    package = event.context_package
    pieces = [] if package is None else [package.nl, *package.scenarios, *package.signatures, package.domain_model]
    said = [text for text in (event.content, event.error, *pieces) if text]
    return "\n".join([f"From {event.agent_id or 'outside'}: {what} ({event.event_id}).", *said])


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with those of one role that follow each other as one."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {"role": message["role"], "content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(message)
    return joined


def _said(values: dict[str, Any], *, is_bare: bool = False) -> Message:
    text = json.dumps(values, ensure_ascii=False)
    return {"role": "assistant", "content": text if is_bare else f"```json\n{text}\n```"}
