"""How hard a run was to orchestrate: D_orch from four pinned features of who led whom and who depended on whom.

The half-saturations are pinned, so that a number never changes with the runs it is shown beside. None of the features
depends on ids, on the order of the list, or on how work that ran side by side interleaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis.model import Trace
from analysis.orchestration.graph import EventGraph, in_one_go
from analysis.orchestration.measure import Metric, absent
from analysis.orchestration.timing import Timing

HALF = (2.0, 4.0, 4.0, 4.0)
WEIGHTS = (0.25, 0.25, 0.25, 0.25)

_LEADS = frozenset({"spawn", "delegate"})


class Features(NamedTuple):
    """What D_orch is made of.

    depth : edges on the longest chain of spawning and delegating; agents that delegate in a circle count as one
    branching : most agents that one agent spawned or delegated to in one go, without doing or learning anything in between
    cross_dep : causal edges between events of two agents of which neither led the other
    comm_rounds : most rounds of messages on one path through the run; a round ends where own work (`act`) comes between
    """

    depth: int
    branching: int
    cross_dep: int
    comm_rounds: int


def features(trace: Trace, timed: Timing) -> Features:
    """Return the four features of a run."""
    led = _led(trace, timed.graph)
    return Features(_depth(led), _branching(timed.graph), _cross_dep(timed.graph, led), _comm_rounds(timed.graph))


def d_orch(features: Sequence[float], *, weights: Sequence[float] = WEIGHTS) -> float:
    """Return the saturating difficulty, sum of w x / (x + half), in [0, sum of weights); 0 for a single agent.

    >>> round(d_orch((1, 4, 0, 0)), 4), round(d_orch((2, 3, 2, 3)), 4)
    (0.2083, 0.4226)
    """
    return sum(w * x / (x + half) for w, x, half in zip(weights, features, HALF, strict=True))


def d_orch_raw(features: Sequence[float], *, weights: Sequence[float] = WEIGHTS) -> float:
    """Return the linear difficulty, sum of w x; its units are those of the features and do not compare.

    >>> d_orch_raw((1, 4, 0, 0)), d_orch_raw((1, 4, 0, 0), weights=(1, 1, 1, 1))
    (1.25, 5)
    """
    return sum(w * x for w, x in zip(weights, features, strict=True))


def difficulty_metrics(trace: Trace, timed: Timing) -> Iterator[Metric]:
    """Yield D_orch, its features, and the two that could stand in for branching and rounds."""
    names = ("d_orch", "d_orch_raw", *Features._fields, "width", "n_messages")
    if not timed.busy:
        yield from (absent(name, "no event names its agent", n=0) for name in names)
        return
    found = features(trace, timed)
    n = len(timed.graph.events)
    yield Metric("d_orch", d_orch(found), f"half at {', '.join(f'{half:g}' for half in HALF)}; weights 1/4", n)
    yield Metric("d_orch_raw", d_orch_raw(found), "weights 1/4", n)
    for name, value in found._asdict().items():
        yield Metric(name, float(value), n=n)
    yield Metric("width", float(_width(timed)), timed.basis_of_time, n)
    yield Metric("n_messages", float(sum([event.kind == "communicate" for event in timed.graph.events])), n=n)


def _led(trace: Trace, graph: EventGraph) -> dict[str, set[str]]:
    """Who spawned or delegated to whom."""
    led: dict[str, set[str]] = {}
    for event in graph.events:
        if event.kind in _LEADS and event.agent_id is not None:
            led.setdefault(event.agent_id, set()).update(event.targets)
    for agent in trace.agents:
        if agent.parent_id is not None:
            led.setdefault(agent.parent_id, set()).add(agent.agent_id)
    return {leader: others - {leader} for leader, others in led.items()}


def _depth(led: dict[str, set[str]]) -> int:
    import networkx as nx

    edges = nx.DiGraph((leader, other) for leader in sorted(led) for other in sorted(led[leader]))
    return int(nx.dag_longest_path_length(nx.condensation(edges))) if edges else 0


def _branching(graph: EventGraph) -> int:
    events = graph.events
    goes = [{target for n in go for target in events[n].targets} - {events[go[0]].agent_id} for go in in_one_go(graph)]
    return max([len(targets) for targets in goes], default=0)


def _cross_dep(graph: EventGraph, led: dict[str, set[str]]) -> int:
    n = 0
    for effect, causes in enumerate(graph.causes):
        mine = graph.events[effect].agent_id
        for cause in causes:
            other = graph.events[cause].agent_id
            is_led = mine in led.get(other or "", ()) or other in led.get(mine or "", ())
            n += mine is not None and other is not None and mine != other and not is_led
    return n


def _comm_rounds(graph: EventGraph) -> int:
    """Follow causes and each agent's order; keep for each event the most rounds of a path on which one is on, and is over."""
    on, over = [0] * len(graph.events), [0] * len(graph.events)
    for n, event in enumerate(graph.events):
        before = graph.before[n]
        came = graph.causes[n] if before is None else (*graph.causes[n], before)
        most_on, most_over = max([on[k] for k in came], default=0), max([over[k] for k in came], default=0)
        if event.kind == "communicate":
            on[n] = max(most_on, most_over + 1)
        elif event.kind == "act":
            over[n] = max(most_on, most_over)
        else:
            on[n], over[n] = most_on, most_over
    return max([*on, *over], default=0)


def _width(timed: Timing) -> int:
    """Most sub-agents alive at one moment; one that ends as another begins does not overlap it."""
    targets = {target for event in timed.graph.events if event.kind in _LEADS for target in event.targets}
    spans = [span for agent, span in timed.alive.items() if agent in targets]
    changes = sorted([(span.start, 1) for span in spans] + [(span.end, -1) for span in spans])
    alive = most = 0
    for _, change in changes:
        alive += change
        most = max(most, alive)
    return most
