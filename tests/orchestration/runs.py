"""Hand-made runs for the tests of orchestration: events in a line or two, and random runs of every shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from analysis.model import Agent, Event, Source, Trace


def event(
    event_id: str, agent: str | None = None, start: float | None = None, end: float | None = None, /, **fields: Any
) -> Event:
    """An event of an agent, `act` unless said otherwise; `after` names its causes."""
    fields = {"kind": "act", "parents": tuple(fields.pop("after", ())), **fields}
    start, end = fields.pop("start", start), fields.pop("end", end)
    return Event(event_id=event_id, agent_id=agent, t_start_s=start, t_end_s=end, **fields)


def run(*events: Event, is_ordered: bool = True, **fields: Any) -> Trace:
    """A trace of these events, numbered as they stand, on a clock where one of them has a time; agents are those that act."""
    numbered = [Event(**{**_fields(e), "order": n}) for n, e in enumerate(events)] if is_ordered else list(events)
    has_time = any(e.t_start_s is not None or e.t_end_s is not None for e in events)
    roles = fields.pop("roles", {})
    names = dict.fromkeys([*(e.agent_id for e in events if e.agent_id), *(t for e in events for t in e.targets)])
    agents = tuple([Agent(agent_id=name, component=roles.get(name, name)) for name in names])
    given = {"trace_id": "t", "world": "recorded", "source": Source(format="test"), "agents": agents}
    return Trace(**{**given, "events": tuple(numbered), "clock": "relative" if has_time else None, **fields})


def planned(durations: Mapping[str, float], edges: Sequence[tuple[str, str]], agents: Mapping[str, str] | None = None) -> Trace:
    """A run in which every event starts as soon as its causes are done; each has an agent of its own unless `agents` says so."""
    causes: dict[str, list[str]] = {name: [a for a, b in edges if b == name] for name in durations}
    ends: dict[str, float] = {}
    events = []
    for name, duration in durations.items():
        start = max([ends[cause] for cause in causes[name]], default=0.0)
        ends[name] = start + duration
        events.append(event(name, (agents or {}).get(name, name), start, ends[name], after=causes[name]))
    return run(*events)


def _fields(record: Event) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@st.composite
def runs(draw: st.DrawFn, *, clock: bool = True, wild: bool = False, max_events: int = 12) -> Trace:
    """A random run. Not `wild`: every event has a time and an agent, causes come before. `wild`: anything goes."""
    n = draw(st.integers(1, max_events))
    kinds = ["act", "communicate", "delegate", "spawn", "aggregate", "stop"]
    agents = ["lead", "a", "b", "c"]
    events = []
    for k in range(n):
        kind = draw(st.sampled_from([*kinds, None] if wild else kinds))
        start = draw(st.integers(0, 30)) if clock else None
        end = None if start is None else start + draw(st.integers(-3 if wild else 0, 15))
        if wild:
            start, end = (None if draw(st.integers(0, 5)) == 0 else t for t in (start, end))
        causes = draw(st.lists(st.integers(0, n if wild else max(0, k - 1)), max_size=3, unique=True)) if k or wild else []
        events.append(
            event(
                f"e{k}", draw(st.sampled_from([*agents, None] if wild else agents)), start, end, kind=kind,
                after=[f"e{c}" for c in causes], targets=tuple(draw(st.lists(st.sampled_from(agents), max_size=2, unique=True))),
                input_tokens=draw(st.none() | st.integers(0, 30_000)), output_tokens=draw(st.none() | st.integers(0, 50)),
                content=draw(st.none() | st.sampled_from(["look this up", "the answer is ready now", "x"])),
                error=draw(st.none() | st.just("timeout")),
            )
        )  # fmt: skip
    return run(*events)
