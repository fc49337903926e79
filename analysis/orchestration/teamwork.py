"""Findings about who led whom: work that could have gone side by side, one agent for all, circles and crowds.

Each detector returns its findings, or the reason why it cannot tell. The thresholds stand here with their reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from analysis.orchestration.evidence import Evidence, Found, plain
from analysis.orchestration.graph import in_one_go

#: Two workers one after the other may be chance; three are a habit.
_MIN_SERIAL = 3
#: The share of delegations that makes an agent dominant, and how many there must be to choose from.
_DOMINANT_SHARE, _MIN_AVAILABLE = 0.8, 3
#: Between agents of different roles a handful of delegations to the same one, repairs mostly, say nothing.
_MIN_DELEGATIONS = 10
#: Saying the same to the same agent twice happens after a failure; the third time it is no longer that.
_MIN_REPEATS = 3
#: Teams below ten are looked over by eye; from there on agents without use go unnoticed.
_MIN_CROWD, _IDLE_SHARE = 10, 0.5
#: A circle of more hand-overs is not looked for, so that the search stays linear.
_MAX_CIRCLE = 100


def serial_collapse(evidence: Evidence) -> Found:
    """Three or more agents spawned in one go work strictly one after the other, though not all of them had to."""
    goes = [go for go in in_one_go(evidence.graph) if any(evidence.events[n].kind == "spawn" for n in go)]
    if not goes:
        return "no spawn event"
    found = []
    for go in goes:
        leader = evidence.events[go[0]].agent_id
        spawned = dict.fromkeys([t for n in go if evidence.events[n].kind == "spawn" for t in evidence.events[n].targets])
        workers = _in_time(evidence, [agent for agent in spawned if agent != leader])
        lengths = [end - start for _, start, end in workers]
        if len(workers) < _MIN_SERIAL or any(later[1] < sooner[2] for sooner, later in pairwise(workers)):
            continue
        names = [agent for agent, _, _ in workers]
        saved = sum(lengths) - _longest_chain(lengths, _dependencies(evidence, names, leader or ""))
        if saved > 0:
            places = [n for agent in names for n in evidence.graph.by_agent[agent]]
            message = f"{len(names)} agents were spawned in one go and worked one after the other; side by side was possible"
            unit = evidence.timed.unit
            found.append(evidence.finding("serial collapse", [*go, *places], message, loss=saved, loss_unit=f"{unit} of waiting"))
    return found


def _in_time(evidence: Evidence, agents: Sequence[str]) -> list[tuple[str, float, float]]:
    """Return the agents with own work, from when to when they did it, in time."""
    spans = []
    for agent in agents:
        acts = [n for n in evidence.graph.by_agent.get(agent, ()) if evidence.events[n].kind == "act"]
        if acts:
            schedule = evidence.timed.schedule
            spans.append((agent, min([schedule[n].start for n in acts]), max([schedule[n].end for n in acts])))
    return sorted(spans, key=lambda span: span[1:])


def _dependencies(evidence: Evidence, agents: Sequence[str], leader: str) -> set[tuple[int, int]]:
    """Return which agents needed which before them: by causes that do not pass the leader, or as their subtasks state."""
    bit = {agent: 1 << k for k, agent in enumerate(agents)}
    after = [0] * len(evidence.events)
    needed = dict.fromkeys(agents, 0)
    for n, event in enumerate(evidence.events):
        mine = event.agent_id or ""
        if mine != leader:
            for cause in evidence.graph.causes[n]:
                after[n] |= after[cause] | bit.get(evidence.events[cause].agent_id or "", 0)
            if mine in needed and event.kind == "act":
                needed[mine] |= after[n]
    owners: dict[str, int] = {}
    for subtask in evidence.trace.subtasks:
        for unit in (subtask.subtask_id, *subtask.covers):
            owners[unit] = owners.get(unit, 0) | bit.get(subtask.agent_id or "", 0)
    for subtask in evidence.trace.subtasks:
        if subtask.agent_id in needed:
            for unit in subtask.needs:
                needed[subtask.agent_id] |= owners.get(unit, 0)
    return {(j, k) for k, agent in enumerate(agents) for j in range(k) if needed[agent] >> j & 1}


def _longest_chain(lengths: Sequence[float], dependencies: set[tuple[int, int]]) -> float:
    ends: list[float] = []
    for k, length in enumerate(lengths):
        ends.append(length + max([ends[j] for j in range(k) if (j, k) in dependencies], default=0.0))
    return max(ends)


def dominant_agent(evidence: Evidence) -> Found:
    """One agent gets at least 80 % of the delegations that three or more could have had."""
    places: dict[str, list[int]] = {}
    for n, event in enumerate(evidence.events):
        for target in event.targets if event.kind == "delegate" else ():
            if target != event.agent_id:
                places.setdefault(target, []).append(n)
    if not places:
        return "no delegation names another agent"
    chosen = max(places, key=lambda agent: (len(places[agent]), -places[agent][0]))
    role = evidence.components.get(chosen)
    peers = [agent for agent in evidence.sub_agents if role is not None and evidence.components.get(agent) == role]
    if len(peers) < _MIN_AVAILABLE:
        peers = list(evidence.sub_agents)
        if sum([len(places.get(agent, ())) for agent in peers]) < _MIN_DELEGATIONS:
            return []
    share = len(places[chosen]) / sum([len(places.get(agent, ())) for agent in peers]) if chosen in peers else 0.0
    if len(peers) < _MIN_AVAILABLE or share < _DOMINANT_SHARE:
        return []
    message = f"{share:.0%} of the delegations went to one of {len(peers)} agents that could have had them"
    loss, unit = share - 1 / len(peers), "share of delegations beyond an even split"
    return [evidence.finding("dominant agent", places[chosen], message, loss=loss, loss_unit=unit)]


def pseudo_parallelism(evidence: Evidence) -> Found:
    """Agents work side by side on the same: same requirement units while others stay open, or the same words to one role."""
    subtasks = [s for s in evidence.trace.subtasks if s.covers and s.agent_id in evidence.graph.by_agent]
    if subtasks:
        units = set(evidence.trace.task.requirements)
        if units <= {unit for subtask in subtasks for unit in subtask.covers}:
            return []
        same: dict[tuple[str, ...], dict[str, None]] = {}
        for subtask in subtasks:
            same.setdefault(tuple(sorted(subtask.covers)), {})[subtask.agent_id or ""] = None
        return _doubled(evidence, [list(agents) for agents in same.values()], "on the same part, while others stay open")
    events = evidence.events
    goes = [[n for n in go if events[n].kind == "delegate" and events[n].content] for go in in_one_go(evidence.graph)]
    if not any(goes):
        return "neither subtasks nor the words of delegations say who was to do what"
    if any(event.merge_kind == "alternatives" for event in evidence.events):
        return []  # several tries at one thing, of which one is kept, are meant
    told: list[list[str]] = []
    for go in goes:
        by_text: dict[tuple[str, str], dict[str, None]] = {}
        for n in go:
            for target in events[n].targets:
                role = evidence.components.get(target, target)
                by_text.setdefault((role, plain(events[n].content)), {})[target] = None
        told += [list(agents) for agents in by_text.values()]
    return _doubled(evidence, told, "on the same words, told to them in one go")


def _doubled(evidence: Evidence, groups: Sequence[Sequence[str]], what: str) -> Found:
    found = []
    for agents in groups:
        acting = [agent for agent in agents if agent in evidence.graph.by_agent]
        if len(acting) < 2:
            continue
        work = {agent: evidence.work(evidence.graph.by_agent[agent]) for agent in acting}
        repeated = sum(work.values()) - max(work.values())
        places = [n for agent in acting for n in evidence.graph.by_agent[agent]]
        unit = f"{evidence.timed.unit} of repeated work"
        message = f"{len(acting)} agents worked {what}"
        found.append(evidence.finding("pseudo-parallelism", places, message, loss=repeated, loss_unit=unit))
    return found


def cyclic_delegation(evidence: Evidence) -> Found:
    """A task is handed on and on, each hand-over caused by the one before, back to an agent that had it, with no own work."""
    if all(event.kind != "delegate" or not set(event.targets) - {event.agent_id} for event in evidence.events):
        return "no delegation names another agent"
    handed: dict[int, int | None] = {}  # hand-over -> the one that caused it
    circles: list[set[int]] = []
    at: dict[int, set[int]] = {}
    for n, event in enumerate(evidence.events):
        if event.kind != "delegate" or event.agent_id is None:
            continue
        causes = [k for k in evidence.graph.causes[n] if k in handed and event.agent_id in evidence.events[k].targets]
        handed[n] = causes[0] if causes else None
        places = _circle(evidence, n, handed)
        if places:
            circle = next((at[k] for k in places if k in at), set[int]())
            circles += [] if circle else [circle]
            circle.update(places)
            at.update(dict.fromkeys(places, circle))
    message = "hand-overs in a circle before anybody did any work"
    return [evidence.finding("cyclic delegation", places, f"{len(places)} {message}") for places in circles]


def _circle(evidence: Evidence, n: int, handed: Mapping[int, int | None]) -> list[int]:
    """Return the hand-overs from the one by an agent that gets the task back at `n`, up to `n`; empty where nobody does."""
    back = set(evidence.events[n].targets) - {evidence.events[n].agent_id}
    places, at = [n], handed[n]
    while at is not None and len(places) < _MAX_CIRCLE:
        places.append(at)
        if evidence.events[at].agent_id in back:
            return places
        at = handed[at]
    return []


def repetitive_delegation(evidence: Evidence) -> Found:
    """The same agent is told the same three times or more."""
    told: dict[tuple[str, str], list[int]] = {}
    for n, event in enumerate(evidence.events):
        for target in event.targets if event.kind == "delegate" and event.content else ():
            told.setdefault((target, plain(event.content)), []).append(n)
    if not told:
        return "no delegation states both its target and its words"
    return [
        evidence.finding(
            "repetitive delegation", places, f"the same was delegated to the same agent {len(places)} times",
            loss=float(len(places) - 1), loss_unit="repeated delegations",
        )
        for places in told.values() if len(places) >= _MIN_REPEATS
    ]  # fmt: skip


def sub_agent_explosion(evidence: Evidence) -> Found:
    """Ten or more agents are spawned, and of at least half of them nothing reached the result."""
    spawns = [n for n, event in enumerate(evidence.events) if event.kind == "spawn"]
    spawned = dict.fromkeys([target for n in spawns for target in evidence.events[n].targets])
    if not spawns:
        return "no spawn event"
    if len(spawned) < _MIN_CROWD:
        return []
    if evidence.timed.useful is None:
        return evidence.timed.useful_reason
    used = Counter([evidence.events[n].agent_id for n in evidence.timed.useful])
    idle = [agent for agent in spawned if not used[agent]]
    if len(idle) < _IDLE_SHARE * len(spawned):
        return []
    places = [n for agent in idle for n in evidence.graph.by_agent.get(agent, ())]
    message = f"of {len(spawned)} agents spawned, {len(idle)} had no part in the result"
    unit = f"{evidence.timed.unit} of work without use"
    return [evidence.finding("sub-agent explosion", [*spawns, *places], message, loss=evidence.work(places), loss_unit=unit)]
