"""A trace as a labelled graph whose identity is how the work was led, not how parallel work happened to interleave.

Decides which events are nodes, what an edge is and what is told apart. Hidden here: what an agent's receives between
two decisions hang on, and what is read out of a run that states no causes. Unlike the graph of the timing, it does not
say in which order an agent did what is unrelated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from analysis.errors import UnknownNameError, printable
from analysis.model import Event, Trace
from analysis.orchestration.graph import EventGraph, event_graph, in_one_go
from analysis.orchestration.patterns.folding import Drawn, fold_siblings, fold_work

Attribute = Literal["kind", "action", "component", "role"]
Extra = Literal["mode", "strategy", "condition"]

#: What an edge says: who is told to work; who says what to whom; who hands back work to the one who asked for it; whose
#: results are merged; what an agent made that it uses itself.
EDGES = ("delegation", "message", "return", "aggregation", "own")

_DECISIONS = ("spawn", "delegate")
_MAX_EDGES = 500_000


class Labelling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is told apart in a pattern graph; named, and saved as JSON beside what was mined with it.

    node : what makes the label of a node; `role` is what the agent does in this run: it is a lead (tells others what to
        do), a sublead (and is told), a worker (is told), a peer (neither), solo (there is nobody else) or outside
    has_edge_kinds : whether edges of different kinds (`EDGES`) differ
    extras : what is added to it where an event has it: whether others are set to work in `parallel` or `sequential`, the
        strategy of a merge, the condition of a stop
    folds_work : an agent's own work in a row, which nothing joins or leaves, is one node
    folds_siblings : branches that differ in nothing but their number are one, marked `x2` or `xmany`
    """

    name: str
    node: tuple[Attribute, ...] = ("kind", "role")
    has_edge_kinds: bool = True
    extras: tuple[Extra, ...] = ()
    folds_work: bool = True
    folds_siblings: bool = False


LABELLINGS: dict[str, Labelling] = {
    labelling.name: labelling
    for labelling in (
        Labelling(name="roles"),
        Labelling(name="kinds", node=("kind",)),
        Labelling(name="components", node=("kind", "component")),
        Labelling(name="actions", node=("kind", "action", "role"), folds_work=False),
        Labelling(name="decisions", extras=("mode", "strategy", "condition")),
        Labelling(name="shapes", extras=("mode",), folds_siblings=True),
    )
}
DEFAULT = LABELLINGS["roles"]


@dataclass(frozen=True)
class PatternGraph:
    """A trace as a directed graph without cycles.

    labels : of each node
    edges : (source, target, label), positions in `labels`, no edge twice, in the order of the run
    event_ids : for each node the events it stands for, in the order of the run
    note : a sentence on what was left out, empty where nothing was
    """

    trace_id: str
    labels: tuple[str, ...]
    edges: tuple[tuple[int, int, str], ...]
    event_ids: tuple[tuple[str, ...], ...]
    note: str = ""


def labelling_named(name: str) -> Labelling:
    """Return the labelling of this name.

    Raises
    ------
    UnknownNameError
        If there is none; the text names those there are.
    """
    if name not in LABELLINGS:
        raise UnknownNameError("labelling", "there is none of this name", got=name, expected=", ".join(LABELLINGS))
    return LABELLINGS[name]


def pattern_graph(trace: Trace, labelling: Labelling = DEFAULT) -> PatternGraph:
    """Return the graph of a trace in which patterns are looked for. Nearly linear in events and causes.

    An event uses what it names as its cause. What one agent receives from others in a row is unordered: each hangs on what
    the agent did before the first of them, and what comes after hangs on all of them. Where a run states no cause at all, an
    event uses what others have told its agent since, else what its agent did before.

    >>> from analysis.model import Agent
    >>> agents = tuple([Agent(agent_id=name, component=name) for name in ("lead", "a", "b")])
    >>> events = [Event(event_id="s", kind="spawn", agent_id="lead", targets=("a", "b"), order=0)]
    >>> events += [Event(event_id=n, kind="act", agent_id=n, parents=("s",), order=k) for k, n in enumerate("ab", 1)]
    >>> events += [Event(event_id="m", kind="aggregate", agent_id="lead", merge_points=("a", "b"), order=3)]
    >>> trace = Trace(trace_id="t", world="recorded", agents=agents, events=tuple(events))
    >>> pattern_graph(trace).labels
    ('spawn · lead', 'act · worker', 'act · worker', 'aggregate · lead')
    >>> pattern_graph(trace).edges[0], pattern_graph(trace).edges[2]
    ((0, 1, 'delegation'), (1, 3, 'aggregation'))
    >>> pattern_graph(trace, LABELLINGS["shapes"]).labels
    ('spawn · lead · parallel', 'act · worker · x2', 'aggregate · lead')
    """
    graph = event_graph(trace)
    roles = _roles(graph)
    causes, note = _uses(graph)
    kind_of = _edge_kind(graph, roles.told) if labelling.has_edge_kinds else lambda cause, n: ""
    drawn = Drawn(
        labels=_labels(trace, graph, labelling, roles),
        edges=[(cause, n, kind_of(cause, n)) for n, named in enumerate(causes) for cause in named],
        members=[[n] for n in range(len(graph.events))],
    )
    if labelling.folds_work:
        drawn = fold_work(drawn, [_is_own_work(event) for event in graph.events], [event.agent_id for event in graph.events])
    if labelling.folds_siblings:
        drawn = fold_siblings(drawn)
    return PatternGraph(
        trace_id=trace.trace_id,
        labels=tuple(drawn.labels),
        edges=tuple(drawn.edges),
        event_ids=tuple([tuple([graph.events[n].event_id for n in sorted(events)]) for events in drawn.members]),
        note=f"{trace.trace_id}: {note}" if note else "",
    )


@dataclass(frozen=True)
class _Roles:
    of: dict[str | None, str]
    told: dict[str | None, set[str | None]]  # agent -> those who spawned it or delegated to it


def _roles(graph: EventGraph) -> _Roles:
    told: dict[str | None, set[str | None]] = {}
    for event in graph.events:
        if event.kind in _DECISIONS:
            for target in event.targets:
                if target != event.agent_id:
                    told.setdefault(target, set()).add(event.agent_id)
    leads = {lead for leads in told.values() for lead in leads}
    team = {event.agent_id for event in graph.events} | set(told)
    names = {(True, False): "lead", (True, True): "sublead", (False, True): "worker", (False, False): "peer"}
    of = {agent: names[agent in leads, bool(told.get(agent, set()) - {None})] for agent in team}
    if len(team - {None}) == 1:
        of = dict.fromkeys(of, "solo")
    return _Roles({**of, None: "outside"}, told)


def _labels(trace: Trace, graph: EventGraph, labelling: Labelling, roles: _Roles) -> list[str]:
    component = {agent.agent_id: agent.component for agent in trace.agents}
    read: dict[Attribute, Callable[[Event], str | None]] = {
        "kind": lambda event: event.kind or "opaque",
        "action": lambda event: event.action,
        "component": lambda event: component.get(event.agent_id or "", event.agent_id or "outside"),
        "role": lambda event: roles.of[event.agent_id],
    }
    parts = [[read[name](event) for name in labelling.node] for event in graph.events]
    if "mode" in labelling.extras:
        for n, mode in _modes(graph).items():
            parts[n].append(mode)
    if "strategy" in labelling.extras:
        for n, event in enumerate(graph.events):
            parts[n].append(event.strategy or event.merge_kind)
    if "condition" in labelling.extras:
        for n, event in enumerate(graph.events):
            parts[n].append(event.condition)
    return [" · ".join([printable(part, 80) for part in words if part]) for words in parts]


def _modes(graph: EventGraph) -> dict[int, str]:
    """Return for each event that sets others to work whether it sets several to work in one go."""
    outside = [(n,) for n, event in enumerate(graph.events) if event.kind in _DECISIONS and event.agent_id is None]
    alone = [go for go in outside if len(graph.events[go[0]].targets) > 1]  # of what nobody did, no more is known
    found = {}
    for go in (*in_one_go(graph), *alone):
        targets = {target for n in go for target in graph.events[n].targets}
        found.update(dict.fromkeys(go, "parallel" if len(targets) > 1 else "sequential"))
    return found


def _edge_kind(graph: EventGraph, told: dict[str | None, set[str | None]]) -> Callable[[int, int], str]:
    def kind_of(cause: int, n: int) -> str:
        first, then = graph.events[cause], graph.events[n]
        is_own = first.agent_id == then.agent_id
        if then.kind == "aggregate" and (not is_own or first.kind not in _DECISIONS):
            return "aggregation"
        if is_own:
            return "own"
        if first.kind in _DECISIONS:
            return "delegation"
        is_handed_back = first.action == "return" or then.agent_id in told.get(first.agent_id, ())
        return "return" if is_handed_back else "message"

    return kind_of


def _is_own_work(event: Event) -> bool:
    return event.kind in ("act", None)


def _uses(graph: EventGraph) -> tuple[Sequence[Sequence[int]], str]:
    """Return for each event the positions of those whose product it uses, ascending, and a sentence on what was left out."""
    if not any(graph.causes):
        return _told_since(graph), ""
    agents = [event.agent_id for event in graph.events]
    rows: dict[int, tuple[list[int], int]] = {}  # receive -> a list of receives, of which so many stand in a row up to it
    found: list[Sequence[int]] = []
    n_edges = 0
    for n, causes in enumerate(graph.causes):
        own = [cause for cause in causes if agents[cause] == agents[n]]
        uses = {cause for cause in causes if agents[cause] != agents[n]} | {cause for cause in own if cause not in rows}
        before = [rows[cause] for cause in own if cause in rows]
        if len(own) < len(causes) and _is_own_work(graph.events[n]):
            uses.update([base for row, _ in before for base in found[row[0]] if agents[base] == agents[n]])
            row, is_copied = _row(before)
            row.append(n)
            rows[n] = row, len(row)
            n_edges += len(row) * is_copied
        else:
            uses.update([receive for row, count in before for receive in row[:count]])
        n_edges += len(uses)
        if n_edges > _MAX_EDGES:
            return graph.causes, f"more than {_MAX_EDGES:,} edges; what an agent receives in a row stays in the order of the run"
        found.append(sorted(uses))
    return found, ""


def _row(before: Sequence[tuple[list[int], int]]) -> tuple[list[int], bool]:
    """Return the list that a further receive joins, and whether it had to be copied since others went on from it."""
    if len(before) == 1 and len(before[0][0]) == before[0][1]:
        return before[0][0], False
    return [receive for row, count in before for receive in row[:count]], True


def _told_since(graph: EventGraph) -> list[list[int]]:
    """Return what each event uses where no event names a cause."""
    heard: dict[str | None, list[int]] = {}
    found: list[list[int]] = []
    for n, event in enumerate(graph.events):
        before = graph.before[n]
        goes_on = before is not None and event.kind in _DECISIONS and graph.events[before].kind in _DECISIONS
        told = [] if goes_on else heard.pop(event.agent_id, [])
        found.append(told or ([] if before is None else [before]))
        for target in event.targets:
            if target != event.agent_id:
                heard.setdefault(target, []).append(n)
    return found
