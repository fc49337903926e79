"""Spans of agent runs: OTLP, OpenInference, GenAI, Traceloop and their kin, in whatever they come packed.

A trace is the set of its spans, wherever they were found: files hold batches, and batches join by trace id. One event a
span, under the span's id, and derived markers for the decisions that spans do not state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from analysis.errors import Problem
from analysis.model import Agent, Event, Outcome, Task, Trace
from analysis.model import Source as Origin
from analysis.readers.fragment import Assembled, Fragment, Kind
from analysis.readers.source import Source
from analysis.readers.spans import names
from analysis.readers.spans.agents import settle
from analysis.readers.spans.batches import batched
from analysis.readers.spans.envelopes import kind_of
from analysis.readers.spans.events import MARKERS, events
from analysis.readers.spans.merging import Merged, merged
from analysis.readers.spans.nodes import Node, node_of
from analysis.readers.spans.tree import Tree, grown

FORMAT = "spans"
VERSION = f"1+{names.VERSION}"  # the table of names decides what a trace says, so it is part of the version
KINDS = (
    Kind("otlp-json", "`resourceSpans`, `scopeSpans` and `spans`, in one document, a list of them, or one a line"),
    Kind("otlp-protobuf", "the same as a protobuf message, or several, each after its length"),
    Kind("span-list", "spans with `trace_id` and `span_id` (or camel case), one a line, in a list, or under `spans`"),
    Kind("span-console", "spans with `context` {trace_id, span_id}, as the SDK prints them"),
)


def detect(source: Source) -> str | None:
    """Recognise spans by the first record: an OTLP request, or ids of a trace and a span side by side."""
    return kind_of(source)


def read(source: Source, kind: str) -> Iterator[Fragment | Problem]:
    """Yield the spans of a file in batches of one trace each, and what is no span."""
    return batched(source, kind, family=FORMAT)


def assemble(trace_id: str, fragments: Sequence[Fragment]) -> Assembled:
    """Return the trace of all spans that have come in for it, with what had to be repaired."""
    whole = merged(fragments)
    times = [span.is_naive for span in whole.spans.values() if span.start_ns is not None or span.end_ns is not None]
    tree = grown(_nodes(whole))
    settle(tree.nodes)
    made = events(tree.nodes)
    origin = min(fragments, key=lambda part: (part.file, part.record))
    place = {"file": origin.file, "record": origin.record}
    trace = Trace(
        trace_id=trace_id,
        world="recorded",
        source=Origin(format=FORMAT, **place, reader_version=VERSION),
        task=Task(text=next((node.input for node in tree.nodes if node.input is not None), None)),
        agents=_agents(tree.nodes, made),
        events=made,
        outcome=_outcome(tree.nodes),
        clock=None if not times else "naive" if all(times) else "unix",
        extra=_extra(whole, tree.nodes),
    )
    found = [*_problems(whole, tree, made), *_time_problems(tree.nodes, n_naive=sum(times) if not all(times) else 0)]
    return Assembled(trace, [msgspec.structs.replace(problem, trace_id=trace_id, **place) for problem in found])


def _nodes(whole: Merged) -> list[Node]:
    """Return the spans as nodes. An id that ends like one of our markers is made longer, so that all ids stay different."""
    taken = set(whole.spans)
    nodes = []
    while whole.spans:
        span_id, span = whole.spans.popitem()  # what was read is let go at once: a trace may be large
        event_id = span_id
        while event_id.endswith(MARKERS) or (event_id is not span_id and event_id in taken):
            event_id += "~"
        taken.add(event_id)
        nodes.append(node_of(event_id, span))
    for field in ("scope", "resource"):
        if len({getattr(node, field) for node in nodes}) > 1:
            for node in nodes:
                if (value := getattr(node, field)) is not None:
                    node.extra[field] = value
    return nodes


def _agents(nodes: Sequence[Node], made: Sequence[Event]) -> tuple[Agent, ...]:
    """Return all that act or are addressed, in the order in which they come up."""
    spawners = {name: event.agent_id for event in reversed(made) if event.kind == "spawn" for name in event.targets}
    models: dict[str | None, set[str]] = {}
    prompts: dict[str | None, str] = {}
    about: dict[str | None, dict[str, Any]] = {}
    for node in nodes:
        if node.role == "model_call":
            if node.model is not None:
                models.setdefault(node.actor, set()).add(node.model)
            if node.system is not None:
                prompts.setdefault(node.actor, node.system)
        elif node.role in ("agent_run", "create_agent"):
            stated = {name: node.attributes[key] for name, key in names.AGENT_ABOUT.items() if key in node.attributes}
            about[node.agent] = {**stated, **about.get(node.agent, {})}
    named = dict.fromkeys(name for event in made for name in (event.agent_id, *event.targets) if name is not None)
    return tuple(
        Agent(
            agent_id=name,
            component=name,
            parent_id=spawners.get(name),
            model=next(iter(models[name])) if len(models.get(name, ())) == 1 else None,
            system_prompt=prompts.get(name),
            extra=about.get(name, {}),
        )
        for name in named
    )


def _outcome(nodes: Sequence[Node]) -> Outcome:
    """Return the last words of the root that ends last. Whether they are right, spans do not say."""
    roots = [(node.end_ns, n) for n, node in enumerate(nodes) if node.parent < 0 and node.end_ns is not None]
    answer = nodes[max(roots)[1]].output if roots else None
    return Outcome(answer=answer, source="answer: output of the root" if answer is not None else None)


def _extra(whole: Merged, nodes: Sequence[Node]) -> dict[str, Any]:
    """Return what is said of the trace as a whole; where scopes or resources differ, each event names its own."""
    sessions = {str(node.attributes[key]) for node in nodes for key in names.SESSION if key in node.attributes}
    sessions |= {str(value) for resource in whole.resources.values() if (value := resource.get("session_id"))}
    scopes = sorted({node.scope for node in nodes if node.scope is not None})
    extra = {"sessions": sorted(sessions), "scopes": scopes, "resources": dict(sorted(whole.resources.items()))}
    return {name: value for name, value in extra.items() if value}


def _problems(whole: Merged, tree: Tree, made: Sequence[Event]) -> Iterator[Problem]:
    if whole.n_same:
        yield Problem(code="duplicate-record", n=whole.n_same, got="spans")
    if whole.renamed:
        yield Problem(code="duplicate-event", n=len(whole.renamed), got=", ".join(whole.renamed[:5]))
    if tree.cut:
        yield Problem(code="cycle", n=len(tree.cut), got=", ".join(tree.cut[:5]))
    untold = [event.event_id for event in made if event.kind == "delegate" and not event.targets]
    if untold:
        yield Problem(code="no-target", n=len(untold), got=", ".join(untold[:5]), expected=names.HANDOFF_TO[0])


def _time_problems(nodes: Sequence[Node], *, n_naive: int) -> Iterator[Problem]:
    missing = [node.event_id for node in nodes if node.start_ns is None or node.end_ns is None]
    backward = [n.event_id for n in nodes if n.start_ns is not None and n.end_ns is not None and n.end_ns < n.start_ns]
    for code, ids in (("no-time", missing), ("end-before-start", backward)):
        if ids:
            yield Problem(code=code, n=len(ids), got=", ".join(ids[:5]))
    if n_naive:
        yield Problem(code="naive-time", n=n_naive)
