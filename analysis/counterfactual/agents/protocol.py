"""What the runtime asks an agent, and what an agent answers: plain records behind one method.

Everything an agent may go by stands in the request; an agent keeps no state between requests. A draw belongs to the
request's key and never to the order of calls, so that replays differ only downstream of what was changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from analysis.counterfactual.tasks.compose import ComposedTask
from analysis.model import ContextPackage
from analysis.streams import uniform

Purpose = Literal["plan", "assign", "write", "verify", "message", "aggregate", "stop", "answer"]
SeenKind = Literal["upstream", "report", "message", "candidate", "verdict"]


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that reached the agent: another step's result, report, message, verdict, or a candidate to judge.

    part : the part that a result, report or candidate is about; None for the whole
    program : source of the part, or the whole program
    n_passed, n_tests : how its tests went, where somebody ran them in sight of this agent
    message_type : of a message: interface, status, feedback, ...
    rejected : of a verdict: the parts that it rejects, or `whole`; empty where it accepts
    claims : (proposition, p) that came with it
    """

    kind: SeenKind
    event_id: str
    agent_id: str
    text: str = ""
    part: str | None = None
    program: str | None = None
    n_passed: int | None = None
    n_tests: int | None = None
    message_type: str | None = None
    rejected: tuple[str, ...] = ()
    claims: tuple[tuple[str, float], ...] = ()


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision or piece of work that is asked of an agent.

    purpose : plan (which of the `options` to split by), assign (which agent of the `options` gets the part), write (a source
        for the part), verify (which parts to reject), message (what to tell), aggregate (one program of the candidates
        seen), stop (`stop` or `go on`), answer (a whole program, or an answer to a plain prompt)
    seed, key : what draws belong to: task, trial, agent, lineage of the event, purpose
    attempt : counts from 0 how often the same thing was tried before within its event
    task : a composed task, or a plain prompt
    part : what is to be written, told about or assigned
    package : the context that the delegation handed over; of an agent that has the whole task before it, all fields
    seen : what reached the agent, in the order in which it was caused
    options : what a choice may be; empty where the answer is free
    """

    purpose: Purpose
    seed: int
    key: tuple[str | int, ...]
    agent_id: str
    component: str
    task: ComposedTask | str
    part: str | None = None
    package: ContextPackage = ContextPackage()
    seen: tuple[Seen, ...] = ()
    options: tuple[str, ...] = ()
    attempt: int = 0

    def draw(self, *what: str | int) -> float:
        """Return the one number in [0, 1) that belongs to this request and to `what` it is drawn for."""
        return uniform(self.seed, *self.key, self.attempt, *what)


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent answers; what does not belong to the purpose is left out.

    text : what it says, as it stands in the trace
    choice : one of the request's `options`; of a picker that writes, the id of its variant or `reference`
    program : source of the part (write), or the whole program (aggregate, answer)
    rejected : of verify: parts that fail, or `whole`; empty accepts
    claims : (proposition, p), p as stated
    duration_s : how long it took; a virtual clock goes by it, in whole milliseconds
    input_tokens, output_tokens : None where not known
    error : why there is no answer; the event carries it and the run goes on without
    """

    text: str = ""
    choice: str | None = None
    program: str | None = None
    rejected: tuple[str, ...] = ()
    claims: tuple[tuple[str, float], ...] = ()
    duration_s: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str | None = None


def joined(answers: Sequence[Response]) -> Response:
    """Return several answers, which one event tells of, as one: all that was said, and what the first one claimed.

    Tokens that one answer does not say all together do not say; the first error is that of all.
    """
    if len(answers) == 1:
        return answers[0]
    tokens = [[one.input_tokens for one in answers], [one.output_tokens for one in answers]]
    totals = [None if None in known else sum([n for n in known if n is not None]) for known in tokens]
    return Response(
        text="\n".join([one.text for one in answers if one.text]),
        claims=answers[0].claims,
        duration_s=math.fsum([one.duration_s for one in answers]),
        error=next((one.error for one in answers if one.error is not None), None),
        input_tokens=totals[0],
        output_tokens=totals[1],
    )


class Agent(Protocol):
    """Whoever plays a component: simulated, trained or live. Called from several threads where the clock is real."""

    def act(self, request: Request) -> Response:
        """Answer a request."""
        ...
