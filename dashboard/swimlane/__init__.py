"""The swim-lane: one lane an agent, one mark an event, ties from causes to effects; a canvas in the page.

`rows` says what is drawn, `payload` packs it, `draw` puts it on the page. Hides how the canvas (`scene.js` lays out,
`paint.js` draws, `swim.js` listens) is told what is selected without being sent the drawing again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import streamlit as st

from analysis.model import Event, Trace
from dashboard import safe
from dashboard.figures import KIND_COLORS, KIND_SHAPES, NO_AGENT, SELECTED, kind_of
from dashboard.swimlane.tree import lane_tree

PREVIEW = 200  # characters of an event's text in its hover card
_DIGEST = 16
_PLAIN = "#8C8C8C"  # of the kinds, where colour says something else
_HERE = Path(__file__).parent
# One component for both messages, so that they meet in one script: the drawing, and what is selected in it.
_canvas = st.components.v2.component(
    "counterpoint.swimlane",
    css=(_HERE / "swim.css").read_text(encoding="utf-8"),
    js="".join([(_HERE / name).read_text(encoding="utf-8") for name in ("scene.js", "paint.js", "swim.js")]),
)


class Credit(NamedTuple):
    """What events were worth, in place of the colours of their kinds.

    metric : what they were worth it for
    by_event : event id -> its colour and what to say of it; other events are drawn as not measured
    legend : colour -> what it means
    """

    metric: str
    by_event: Mapping[str, tuple[str, str]]
    legend: Mapping[str, str]


def rows(
    trace: Trace, *, critical: Sequence[str] = (), drag_s: Mapping[str, float] | None = None, credit: Credit | None = None
) -> dict[str, Any]:
    """Return what the canvas draws of a trace, as columns of plain values; events are known by their position.

    Parameters
    ----------
    critical : ids of the events on the critical path
    drag_s : event id -> seconds by which the run would be shorter if the event took no time

    Returns
    -------
    `lanes`: the columns of `tree.lane_tree`. `kind`, `lane`: positions in `kinds` and `lanes`. `start`, `end`: seconds
    since the run began, None where none is stated; an end before its start is drawn as the start and named in `odd`.
    `ties`: cause, effect, cause, effect, … `head`, `label`: what the event is, long and short, as positions in `words`.
    `credit`: position of an event -> colour, words; None where colours are those of kinds. `swatches`: what colours mean,
    None standing for what was not measured. `notes`: what a reader should know of the whole.
    """
    events = trace.events
    position = {event.event_id: n for n, event in enumerate(events)}
    lanes, lane_of = lane_tree(trace)
    heads, labels, words = _words(events)
    starts, ends, odd = _times(trace)
    kinds = list(KIND_COLORS)
    return {
        "title": safe.line(trace.trace_id + (f", credit in {credit.metric}" if credit else ""), 120),
        "file": f"{safe.file_slug(trace.trace_id)}.png",
        "selected_color": SELECTED,
        "kinds": [[kind, _PLAIN if credit else KIND_COLORS[kind], KIND_SHAPES[kind]] for kind in kinds],
        "credit": _credit(credit, position) if credit else None,
        "swatches": [*credit.legend.items(), (None, "not measured")] if credit else [],
        "lanes": lanes,
        "kind": [kinds.index(kind_of(event.kind)) for event in events],
        "lane": [lane_of[event.agent_id or NO_AGENT] for event in events],
        "start": starts,
        "end": ends,
        "odd": odd,
        "head": heads,
        "label": labels,
        "words": words,
        "input_tokens": [event.input_tokens for event in events],
        "output_tokens": [event.output_tokens for event in events],
        "text": [safe.line(_text(event), PREVIEW) for event in events],
        "error": {n: safe.line(event.error, PREVIEW) for n, event in enumerate(events) if event.error is not None},
        "ties": [m for n, event in enumerate(events) for p in event.parents if p in position for m in (position[p], n)],
        "critical": sorted(position[event_id] for event_id in critical if event_id in position),
        "drag_s": {position[event_id]: drag for event_id, drag in (drag_s or {}).items() if event_id in position},
        "notes": _notes(starts, odd, lanes),
    }


def payload(rows: Mapping[str, Any]) -> bytes:
    """Return `rows` as the canvas takes them: a digest, which names the drawing, and JSON."""
    body = msgspec.json.encode(rows)
    return hashlib.blake2b(body, digest_size=_DIGEST // 2).hexdigest().encode() + body


def draw(
    drawing: bytes,
    *,
    selected: int | None,
    axis: str,
    shown: tuple[float, float] | None,
    marked: Sequence[int] = (),
    on_pick: Callable[[int | None], None],
    on_show: Callable[[tuple[float, float] | None], None],
) -> None:
    """Draw a `payload`. What a person does there is told before the next run of the page.

    Parameters
    ----------
    selected : position of the selected event
    axis : "time" or "order"; a trace without times is drawn in order
    shown : the part of the axis that is shown, in seconds or event numbers; None for all of it
    marked : positions of events to ring; while none is selected the others are faint
    on_pick : learns which event was selected, None for none
    on_show : learns which part of the axis is shown, None for all of it
    """
    digest = drawing[:_DIGEST].decode()
    key = f"swimlane.{digest}"

    def picked() -> None:
        value = st.session_state[key]["picked"]
        on_pick(value if isinstance(value, int) and value >= 0 else None)

    def ranged() -> None:
        match st.session_state[key]["range"]:
            case [int() | float() as first, int() | float() as last]:
                on_show((first, last))
            case _:
                on_show(None)

    with st.container(gap=None):
        _canvas(key=key, data=drawing, on_picked_change=picked, on_range_change=ranged)
        _canvas(
            key=f"{key}.cursor", data={"of": digest, "selected": selected, "axis": axis, "range": shown, "marked": list(marked)}
        )


def run_start_s(trace: Trace) -> float | None:
    """Return when the run began on the trace's clock: its first start, or its first end where no start is stated."""
    starts = [event.t_start_s for event in trace.events if event.t_start_s is not None]
    ends = [event.t_end_s for event in trace.events if event.t_end_s is not None]
    return min(starts or ends, default=None)


def _credit(credit: Credit, position: Mapping[str, int]) -> dict[int, tuple[str, str]]:
    found = {position[name]: said for name, said in credit.by_event.items() if name in position}
    return {n: (color, safe.line(words, PREVIEW)) for n, (color, words) in sorted(found.items())}


def _times(trace: Trace) -> tuple[list[float | None], list[float | None], list[int]]:
    """Return starts (the end, where only that is stated), ends, and the positions of those that end before they start."""
    began = run_start_s(trace)
    starts: list[float | None] = []
    ends: list[float | None] = []
    odd = []
    for n, event in enumerate(trace.events):
        start = _since(began, event.t_end_s if event.t_start_s is None else event.t_start_s)
        end = None if start is None or event.t_start_s is None else _since(began, event.t_end_s)
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
    """Return for each event what it is, long and short, as positions in the list of words."""
    place: dict[str, int] = {}
    known: dict[tuple[Any, ...], tuple[int, int]] = {}
    found = []
    for event in events:
        what = (event.kind, event.action, event.name, event.targets)
        if what not in known:
            names = safe.line(_head(event), 160), safe.line(event.name or event.action or kind_of(event.kind), 40)
            known[what] = (place.setdefault(names[0], len(place)), place.setdefault(names[1], len(place)))
        found.append(known[what])
    return [head for head, _ in found], [label for _, label in found], list(place)


def _head(event: Event) -> str:
    what = ": ".join(filter(None, (kind_of(event.kind), event.action)))
    to = f"→ {', '.join(event.targets[:9])}" if event.targets else None
    return " ".join(filter(None, (what, event.name, to)))


def _text(event: Event) -> str:
    said = [event.content, *(message.get("content") for message in event.messages)]
    return next((text for text in said if isinstance(text, str) and text), "")


def _notes(starts: Sequence[float | None], odd: Sequence[int], lanes: Mapping[str, list[Any]]) -> list[str]:
    notes = []
    n_timeless = sum(start is None for start in starts)
    if n_timeless and n_timeless == len(starts):
        notes.append("the source has no times, so events stand in their order")
    elif n_timeless:
        notes.append(f"{n_timeless:,} without a time; by order they are drawn too")
    if odd:
        notes.append(f"{len(odd):,} end before they start and are drawn as points")
    if any(lanes["is_folded"]):
        notes.append(f"{lanes['is_group'].count(False):,} agents; lanes of one component start folded")
    return notes
