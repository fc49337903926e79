"""Claude Code sessions, 1.0.x to 2.1.x: sub-agents inside the session file (old) or in files of their own (new).

All files of one session are one trace. Hidden here, each in its own module: which session a file's lines belong to
(`files`), what a line says and which are copies (`lines`), what it follows (`chains`), what answers and who was started
(`calls`), who acts (`session`), and the events (`events`).

Tokens: `input_tokens` is the source's own figure and leaves the cache out; what was written to the cache and read from it
stands in `extra` under the source's names. Each model call counts once, with the last figures its lines state.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from analysis.model import Agent, Event, Task, Trace
from analysis.model import Source as Origin
from analysis.readers.claude_code import events, lines, session
from analysis.readers.claude_code.calls import MAIN
from analysis.readers.claude_code.files import FORMAT, KINDS, detect, read
from analysis.readers.fragment import Assembled, Fragment

__all__ = ["FORMAT", "KINDS", "VERSION", "assemble", "detect", "read"]

VERSION = "1"

_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}  # the most telling first
_STATED = ("version", "cwd", "gitBranch")


def assemble(trace_id: str, fragments: Sequence[Fragment]) -> Assembled:
    """Return the session that all its lines make; a line that occurs again is counted once."""
    held, problems = lines.load(fragments)
    run, orphans = session.link(held)
    told, agents = events.tell(run), _agents(run)
    trace = Trace(
        trace_id=trace_id,
        world="recorded",
        source=Origin(format=FORMAT, file=held.origin.file, record=held.origin.record, reader_version=VERSION),
        task=_task(run, told),
        agents=agents,
        events=tuple(told),
        clock=held.clock,
        extra={name: values for name in _STATED if (values := sorted({v for line in run.order if (v := line.text(name))}))},
    )
    return Assembled(trace, [msgspec.structs.replace(problem, trace_id=trace_id) for problem in [*problems, *orphans]])


def _task(run: session.Session, told: Sequence[Event]) -> Task:
    """Return the first input as the task, the main agent's where it is there, and the title that was given last."""
    inputs = sorted((e for e in told if e.action == "input" and e.content), key=lambda event: event.agent_id != MAIN)
    text = inputs[0].content if inputs else None
    titles = {line.type: title for line in run.order if (title := line.text(_TITLES.get(line.type, "")))}
    title = next((titles[name] for name in _TITLES if name in titles), None)
    return Task(text=text, extra={"title": title} if title else {})


def _agents(run: session.Session) -> tuple[Agent, ...]:
    return tuple(
        Agent(
            agent_id=name,
            component=agent.component,
            parent_id=agent.parent,
            model=agent.model,
            extra={k: v for k, v in agent.extra.items() if v is not None},
        )
        for name, agent in run.agents.items()
    )
