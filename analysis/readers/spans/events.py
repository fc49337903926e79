"""The events of a trace: one for each span, under its id, and markers for decisions that no span states by itself.

Markers are derived and name their rule: a spawn before an agent's first run, a delegation where only the place of a run
shows it, the result that comes back, the merge before a model call, the stop at the end of the root. They stand at the
start or end of the span they are read from. Spans of the actions `agent_run`, `chain` and `plan` hold others: their time
and texts are those of what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from analysis.model import Event
from analysis.readers.spans import names
from analysis.readers.spans.causes import Causes, causes, result_id
from analysis.readers.spans.handing import Handing, handings
from analysis.readers.spans.nodes import Node

#: How the ids of markers end; each begins with the id of the span it is about.
MARKERS: Final = (".spawn", ".delegate", ".aggregate", ".result", ".stop")

_SECOND: Final = 10**9  # whole: dividing whole numbers rounds once, to the nearest
_TOKENS: Final = {*names.INPUT_TOKENS, *names.OUTPUT_TOKENS}
_LAST: Final = (2**128, 2, 0, 0)  # after any time that can be written

_Key = tuple[int, int, int, int]  # time, end before start, place of the span, order around it
_Placed = tuple[_Key, dict[str, Any]]


def events(nodes: Sequence[Node]) -> tuple[Event, ...]:
    """Return the events of settled nodes in their order; each cause comes before its effect."""
    nodes = list(nodes)
    handed = handings(nodes)
    tied = causes(nodes, handed)
    by_span: dict[int, list[Handing]] = {}
    by_run: dict[int, Handing] = {}
    for one in handed:
        if one.by >= 0:
            by_span.setdefault(one.by, []).append(one)
        if one.run >= 0:
            by_run[one.run] = one
    before = _markers(nodes, by_run, tied)
    markers = [*(marker for some in before.values() for marker in some), *_results(nodes, handed, tied), *_stop(nodes, tied)]
    # Only markers are laid out before they are in order: a large trace has few of them beside its spans.
    placed: list[tuple[_Key, int]] = [((node.since_ns, 1, n, 3), -1) for n, node in enumerate(nodes)]
    placed += [(key, m) for m, (key, _) in enumerate(markers)]
    placed.sort()
    order = {(nodes[key[2]].event_id if m < 0 else markers[m][1]["event_id"]): at for at, (key, m) in enumerate(placed)}
    made = []
    for at, ((_, _, n, _), m) in enumerate(placed):
        if m >= 0:
            fields = markers[m][1]
        else:
            led = [marker["event_id"] for _, marker in before.get(n, ())]
            handing = by_run.get(n)
            started = [nodes[handing.by].event_id] if handing is not None and handing.by >= 0 else []
            # What the caller had heard led to the delegation; the run follows from that alone.
            heard = tied.heard.get(n, ()) if handing is None else ()
            fields = _span_event(nodes[n], by_span.get(n, []))
            fields["parents"] = [nodes[n].parent_id_in(nodes), *heard, *led, *started]
        made.append(_event(at, fields, order))
    return tuple(made)


def _event(at: int, fields: dict[str, Any], order: dict[str, int]) -> Event:
    # The parent of an orphan is not here; it stays named, so that the missing part can join later.
    parents = [p for p in dict.fromkeys(fields.pop("parents")) if p is not None and order.get(p, -1) < at]
    return Event(order=at, parents=tuple(parents), **fields)


def _span_event(node: Node, handed: list[Handing]) -> dict[str, Any]:
    """Return the fields of the event that a span is."""
    attributes = node.attributes
    if node.input_tokens is not None or node.output_tokens is not None:
        attributes = {name: value for name, value in attributes.items() if name not in _TOKENS}
    fields: dict[str, Any] = {
        "event_id": node.event_id,
        "name": node.thing,
        "agent_id": node.actor,
        "t_start_s": _seconds(node.start_ns),
        "t_end_s": _seconds(node.end_ns),
        "input_tokens": node.input_tokens,
        "output_tokens": node.output_tokens,
        "content": node.output,
        "messages": node.messages,
        "error": node.error,
        "raw_id": node.span_id,
        "raw_type": node.raw_type,
        "extra": {**node.extra, "attributes": attributes} if attributes else node.extra,
    }
    return fields | _decision(node, handed, fields)


def _decision(node: Node, handed: list[Handing], fields: dict[str, Any]) -> dict[str, Any]:
    if handed:
        # What is handed over is the text of a delegation; what comes back is that of the result.
        rest = {} if node.output is None or handed[0].returns else {"output": node.output}
        messages = () if [*node.messages] == [{"role": "input", "content": node.input}] else node.messages
        return {
            "kind": "delegate",
            "targets": tuple(dict.fromkeys(handing.to for handing in handed if handing.to is not None)),
            "content": node.input,
            "messages": messages,
            "basis": handed[0].basis,
            "rule": handed[0].rule,
            "extra": {**fields["extra"], **rest},
        }
    if node.role == "create_agent":
        return {"kind": "spawn", "targets": (node.agent,) if node.agent is not None else ()}
    return {"kind": "act", "action": node.role} if node.role is not None else {"kind": None}


def _markers(nodes: list[Node], by_run: dict[int, Handing], tied: Causes) -> dict[int, list[_Placed]]:
    """Return by place the markers that come right before a span: spawn, delegation, merge."""
    before: dict[int, list[_Placed]] = {}
    present = {node.agent for node in nodes if node.role == "create_agent"}
    fields: dict[str, Any]
    for n, node in enumerate(nodes):
        if node.role != "agent_run":
            present.add(node.actor)
            if (merge := tied.merges.get(n)) is not None:
                fields = {"agent_id": merge.agent, "merge_points": merge.points, "parents": merge.points}
                before.setdefault(n, []).append(_marker(node, n, 2, "aggregate", rule="results-before-model-call", **fields))
            continue
        handing = by_run.get(n)
        first = handing.by if handing is not None and handing.by >= 0 else n
        caller = handing.caller if handing is not None else None
        # The first to act is nobody's decision in this trace.
        if node.agent not in present and (handing is not None or any(name is not None for name in present)):
            fields = {"agent_id": caller, "targets": (node.agent,), "parents": _known_then(nodes, first, tied)}
            before.setdefault(first, []).append(_marker(nodes[first], first, 0, "spawn", rule="first-run", about=node, **fields))
        present |= {node.agent, caller}
        if handing is not None and handing.by < 0:
            fields = {"agent_id": caller, "targets": (node.agent,), "parents": _known_then(nodes, n, tied), "content": node.input}
            fields["basis"] = handing.basis
            before.setdefault(n, []).append(_marker(node, n, 1, "delegate", rule=handing.rule, **fields))
    return before


def _known_then(nodes: list[Node], n: int, tied: Causes) -> list[str | None]:
    return [nodes[n].parent_id_in(nodes), *tied.heard.get(n, ())]


def _marker(at: Node, n: int, tier: int, kind: str, *, rule: str | None, about: Node | None = None, **fields: Any) -> _Placed:
    moment = _seconds(at.start_ns)
    event_id = f"{(about or at).event_id}.{kind}"
    derived = {"basis": "derived", "rule": rule, "t_start_s": moment, "t_end_s": moment}
    return (at.since_ns, 1, n, tier), {"event_id": event_id, "kind": kind, **derived, **fields}


def _results(nodes: list[Node], handed: list[Handing], tied: Causes) -> Iterator[_Placed]:
    """Yield what comes back from each delegation that returns: the answer of the tool, else of the run."""
    last_of = {handing.by: handing.run for handing in sorted(handed, key=lambda h: h.run)}
    for handing in handed:
        event_id = result_id(nodes, handing)
        if event_id is None:
            continue
        answering = [nodes[handing.run]] if handing.run >= 0 else []
        if handing.by >= 0 and last_of[handing.by] == handing.run:
            answering.insert(0, nodes[handing.by])
        ended = nodes[handing.run if handing.run >= 0 and nodes[handing.run].end_ns is not None else handing.by]
        n = max(handing.run, handing.by)
        end_ns = ended.end_ns or 0
        key = max((end_ns, 0, n, 0), (nodes[n].since_ns, 1, n, 4))
        yield (
            key,
            {
                "event_id": event_id,
                "kind": "communicate",
                "agent_id": handing.to,
                "targets": (handing.caller,),
                "parents": [nodes[n].event_id, *(tied.unread.get(n, ()) if n == handing.run else ())],
                "t_start_s": _seconds(end_ns),
                "t_end_s": _seconds(end_ns),
                "content": next((node.output for node in answering if node.output is not None), None),
                "error": ended.error,
                "message_type": "result",
                "basis": "derived",
                "rule": "tool-result" if handing.by >= 0 else "end-of-run",
            },
        )


def _stop(nodes: list[Node], tied: Causes) -> Iterator[_Placed]:
    """Yield the stop of the run: the end of the root that ends last. Without an end nothing says that it stopped."""
    roots = [(node.end_ns, n) for n, node in enumerate(nodes) if node.parent < 0 and node.end_ns is not None]
    if not roots:
        return
    end_ns, n = max(roots)
    root = nodes[n]
    unread = [*tied.unread.get(-1, ()), *(tied.unread.get(n, ()) if root.role == "agent_run" else ())]
    yield (
        _LAST,
        {
            "event_id": f"{root.event_id}.stop",
            "kind": "stop",
            "agent_id": root.actor,
            "parents": [root.event_id, *unread],
            "t_start_s": _seconds(end_ns),
            "t_end_s": _seconds(end_ns),
            "condition": root.status,
            "error": root.error,
            "basis": "derived",
            "rule": "end-of-root",
        },
    )


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / _SECOND
