"""The swim-lane: one lane an agent, one mark an event, ties from causes to effects; a canvas in the page.

`rows` says what is drawn, `payload` packs it, `draw` puts it on the page. Hides how lanes form a tree, what is
folded at first, and how the canvas (`scene.js`, `swim.js`) is told what is selected without being sent anew.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import streamlit as st

from analysis.model import Agent, Event, Trace
from dashboard import safe
from dashboard.figures import KIND_COLORS, KIND_SHAPES, NO_AGENT, SELECTED, kind_of

MAX_LANES = 40  # where there are more, those of one component start folded
PREVIEW = 200
_DIGEST = 16
_HERE = Path(__file__).parent
# One component for both messages, so that they meet in one script: the drawing, and what is selected in it.
_canvas = st.components.v2.component(
    "counterpoint.swimlane",
    css=(_HERE / "swim.css").read_text(encoding="utf-8"),
    js="".join((_HERE / name).read_text(encoding="utf-8") for name in ("scene.js", "swim.js")),
)


class _Lane(NamedTuple):
    name: str
    component: str
    parent: int = -1
    is_group: bool = False


def rows(trace: Trace, *, critical: Sequence[str] = (), drag_s: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return what the canvas draws of a trace, as columns of plain values; events are known by their position.

    Parameters
    ----------
    critical : ids of the events on the critical path
    drag_s : event id -> seconds by which the run would be shorter without the event

    Returns
    -------
    `lanes`: name, role, parent (a position, -1 at the top), is_group, is_folded; in the order they are drawn.
    `kind`, `lane`: positions. `start`, `end`: seconds since the run began, None where none is stated; an end that
    lies before its start is the start, and named in `odd`. `ties`: cause, effect, cause, effect, …
    `head`, `label`: positions in `words`. `notes`: what a reader should know of the whole.
    """
    events = trace.events
    position = {event.event_id: n for n, event in enumerate(events)}
    lanes, lane_of = _lanes(trace)
    heads, labels, words = _words(events)
    start, end, odd = _times(trace)
    ties = [n for e, event in enumerate(events) for cause in event.parents if cause in position for n in (position[cause], e)]
    kinds = list(KIND_COLORS)
    return {
        "title": safe.line(trace.trace_id, 120),
        "file": f"{safe.file_slug(trace.trace_id)}.png",
        "selected_color": SELECTED,
        "kinds": [[kind, KIND_COLORS[kind], KIND_SHAPES[kind][1]] for kind in kinds],
        "lanes": lanes,
        "kind": [kinds.index(kind_of(event.kind)) for event in events],
        "lane": [lane_of[event.agent_id or NO_AGENT] for event in events],
        "start": start,
        "end": end,
        "odd": odd,
        "head": heads,
        "label": labels,
        "words": words,
        "input_tokens": [event.input_tokens for event in events],
        "output_tokens": [event.output_tokens for event in events],
        "text": [safe.line(_text(event), PREVIEW) for event in events],
        "error": {n: safe.line(event.error, PREVIEW) for n, event in enumerate(events) if event.error is not None},
        "ties": ties,
        "critical": sorted(position[event_id] for event_id in critical if event_id in position),
        "drag_s": {position[event_id]: drag for event_id, drag in (drag_s or {}).items() if event_id in position},
        "notes": _notes(trace, start, odd, lanes),
    }


def payload(rows: Mapping[str, Any]) -> bytes:
    """Return `rows` as the canvas takes them: their digest, which names the drawing, and JSON."""
    body = msgspec.json.encode(rows)
    return hashlib.blake2b(body, digest_size=_DIGEST // 2).hexdigest().encode() + body


def draw(drawing: bytes, *, selected: int | None, axis: str, on_pick: Callable[[int | None], None]) -> None:
    """Draw a `payload`; before the next run of the page, `on_pick` learns which event was picked, None for none.

    Parameters
    ----------
    selected : position of the selected event
    axis : "time" or "order"; a trace without times is drawn in order
    """
    digest = drawing[:_DIGEST].decode()
    key = f"swimlane.{digest}"

    def picked() -> None:
        value = st.session_state[key]["picked"]
        on_pick(value if isinstance(value, int) and value >= 0 else None)

    with st.container(gap=None):
        _canvas(key=key, data=drawing, on_picked_change=picked)
        _canvas(key=f"{key}.cursor", data={"of": digest, "selected": selected, "axis": axis})


def run_start_s(trace: Trace) -> float | None:
    """Return when the run began on the trace's clock: its first start, or its first end where no start is stated."""
    starts = [event.t_start_s for event in trace.events if event.t_start_s is not None]
    ends = [event.t_end_s for event in trace.events if event.t_end_s is not None]
    return min(starts or ends, default=None)


def _times(trace: Trace) -> tuple[list[float | None], list[float | None], list[int]]:
    """Return starts, ends and the positions of the events that end before they start."""
    began = run_start_s(trace)
    starts: list[float | None] = []
    ends: list[float | None] = []
    odd = []
    for n, event in enumerate(trace.events):
        start = _since(began, event.t_end_s if event.t_start_s is None else event.t_start_s)
        end = _since(began, event.t_end_s if event.t_start_s is not None else None)
        if start is not None and end is not None and end < start:
            odd.append(n)
            end = start
        starts.append(start)
        ends.append(end)
    return starts, ends, odd


def _since(began: float | None, time: float | None) -> float | None:
    if began is None or time is None or not math.isfinite(time - began):
        return None
    return round(time - began, 6)


def _words(events: Sequence[Event]) -> tuple[list[int], list[int], list[str]]:
    """Return for each event what it is in full and in short, as positions in the list of words."""
    place: dict[str, int] = {}
    known: dict[tuple[Any, ...], tuple[int, int]] = {}
    found = []
    for event in events:
        what = (event.kind, event.action, event.name, event.targets)
        if what not in known:
            parts = [": ".join(filter(None, (kind_of(event.kind), event.action))), event.name]
            head = " ".join(filter(None, parts)) + (f" → {', '.join(event.targets[:9])}" if event.targets else "")
            short = event.name or event.action or kind_of(event.kind)
            known[what] = (place.setdefault(safe.line(head, 160), len(place)), place.setdefault(safe.line(short, 40), len(place)))
        found.append(known[what])
    return [head for head, _ in found], [short for _, short in found], list(place)


def _text(event: Event) -> str:
    said = [event.content, *(message.get("content") for message in event.messages)]
    return next((text for text in said if isinstance(text, str) and text), "")


def _lanes(trace: Trace) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """Return the lanes as columns, in the order they are drawn, and the lane of each agent."""
    agents = {agent.agent_id: agent for agent in trace.agents}
    for name in (event.agent_id or NO_AGENT for event in trace.events):
        agents.setdefault(name, Agent(agent_id=name, component=name))
    place = {name: n for n, name in enumerate(agents)}
    lanes = [_Lane(a.agent_id, a.component, place.get(a.parent_id or "", -1)) for a in agents.values()]
    lanes = _grouped(_cut_cycles(lanes)) if len(lanes) > MAX_LANES else _cut_cycles(lanes)
    first = dict.fromkeys(place.values(), len(trace.events))
    for n, event in enumerate(reversed(trace.events)):
        first[place[event.agent_id or NO_AGENT]] = len(trace.events) - n - 1
    order, depth = _walk(lanes, first)
    drawn = {lane: n for n, lane in enumerate(order)}
    ordered = [lanes[lane]._replace(parent=drawn.get(lanes[lane].parent, -1)) for lane in order]
    columns = {
        "name": [safe.line(lane.name, 80) for lane in ordered],
        "role": ["" if lane.component == lane.name else safe.line(lane.component, 80) for lane in ordered],
        "parent": [lane.parent for lane in ordered],
        "is_group": [lane.is_group for lane in ordered],
        "is_folded": _folded(ordered, depth),
    }
    return columns, {name: drawn[n] for name, n in place.items()}


def _cut_cycles(lanes: list[_Lane]) -> list[_Lane]:
    """Put a lane at the top where following the parents would come back to it."""
    lanes, seen = list(lanes), [0] * len(lanes)
    for first in range(len(lanes)):
        at = first
        while at >= 0 and not seen[at]:
            seen[at] = first + 1
            if (parent := lanes[at].parent) >= 0 and seen[parent] == first + 1:
                lanes[at] = lanes[at]._replace(parent=-1)
            at = lanes[at].parent
    return lanes


def _grouped(lanes: list[_Lane]) -> list[_Lane]:
    """Put siblings of one component, where there are several, below a lane of their own."""
    siblings: dict[tuple[int, str], list[int]] = {}
    for n, lane in enumerate(lanes):
        siblings.setdefault((lane.parent, lane.component), []).append(n)
    lanes = list(lanes)
    for (parent, component), members in siblings.items():
        if len(members) > 1:
            for member in members:
                lanes[member] = lanes[member]._replace(parent=len(lanes))
            lanes.append(_Lane(component, component, parent, is_group=True))
    return lanes


def _walk(lanes: Sequence[_Lane], first: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Return the lanes from top to bottom, each before those below it, by who enters first; and their depths."""
    children: dict[int, list[int]] = {}
    for n, lane in enumerate(lanes):
        children.setdefault(lane.parent, []).append(n)
    before = _preorder(children)
    enters = {n: first.get(n, math.inf) for n in range(len(lanes))}
    for n, _ in reversed(before):
        if (parent := lanes[n].parent) >= 0:
            enters[parent] = min(enters[parent], enters[n])
    for siblings in children.values():
        siblings.sort(key=lambda n: enters[n])
    walked = _preorder(children)
    return [n for n, _ in walked], [depth for _, depth in walked]


def _preorder(children: Mapping[int, Sequence[int]]) -> list[tuple[int, int]]:
    walked, todo = [], [(n, 0) for n in reversed(children.get(-1, ()))]
    while todo:
        n, depth = todo.pop()
        walked.append((n, depth))
        todo += [(child, depth + 1) for child in reversed(children.get(n, ()))]
    return walked


def _folded(lanes: Sequence[_Lane], depth: Sequence[int]) -> list[bool]:
    """Say which lanes start folded: none up to `MAX_LANES`; else all groups, then level by level from the deepest."""
    folded = [lane.is_group for lane in lanes]
    has_children = {lane.parent for lane in lanes}
    for level in range(max(depth, default=0), -1, -1):
        if _n_shown(lanes, folded) <= MAX_LANES:
            break
        folded = [fold or (depth[n] == level and n in has_children) for n, fold in enumerate(folded)]
    return folded


def _n_shown(lanes: Sequence[_Lane], folded: Sequence[bool]) -> int:
    hidden: list[bool] = []
    for lane in lanes:
        hidden.append(lane.parent >= 0 and (hidden[lane.parent] or folded[lane.parent]))
    return hidden.count(False)


def _notes(trace: Trace, starts: Iterable[float | None], odd: Sequence[int], lanes: Mapping[str, list[Any]]) -> list[str]:
    notes = []
    n_timeless = sum(start is None for start in starts)
    if trace.events and n_timeless == len(trace.events):
        notes.append("The source has no times, so events stand in their order.")
    elif n_timeless:
        notes.append(f"{n_timeless:,} events have no time; by order they are drawn too.")
    if odd:
        notes.append(f"{len(odd):,} events end before they start; they are drawn as points.")
    if any(lanes["is_folded"]):
        n_agents = lanes["is_group"].count(False)
        notes.append(f"{n_agents:,} agents: lanes of one component start folded.")
    return notes
