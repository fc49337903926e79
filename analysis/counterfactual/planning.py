"""From a team file to the plan of a run: the split, who does what, and every step with its causes.

What a team leaves to its lead (split, assignment, strategy) is asked before the plan is made; what was answered is the first
event of the run, with its tokens and its time.
A step is named after what it is for, so that it has the same name in every plan in which it occurs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from msgspec.structs import replace

from analysis.counterfactual.agents.protocol import Agent, Purpose, Request, Response
from analysis.counterfactual.packages import FULL, package_of
from analysis.counterfactual.performing import Trial
from analysis.counterfactual.plan import (
    Aggregate,
    Answer,
    AnyStep,
    Communicate,
    Delegate,
    Member,
    Plan,
    Spawn,
    Split,
    Stop,
    Strategy,
    Think,
    Verify,
    When,
    Write,
)  # fmt: skip
from analysis.counterfactual.tasks.compose import ComposedTask
from analysis.counterfactual.teams import Team

#: What a lead is asked before there is a plan.
PLANNED: tuple[Purpose, ...] = ("plan", "assign")


def plan_for(team: Team, task: ComposedTask, *, trial: Trial, agents: Mapping[str, Agent]) -> Plan:
    """Return the plan by which a team does a task; agents, by component, decide what the team leaves to its lead."""
    making = _Making(team, task, trial, agents)
    if team.layout == "single":
        making.add(Think(step_id="plan", agent_id=making.root))
        _single(making)
        return making.plan()
    way: str = team.split
    if "asked" in (team.split, team.assignment, team.strategy):
        way = making.ask("plan", "plan", options=_ways(task) if team.split == "asked" else ()).choice or way
    making.split = _split(task, way)
    making.add(Think(step_id="plan", agent_id=making.root))
    _hire(making)
    if team.layout == "serial":
        _work_in_turn(making)
    else:
        _hand_out(making)
        _work(making, _talk(making))
    if team.fills_gaps:
        _fill_gaps(making)
    _finish(making)
    return making.plan()


def _ways(task: ComposedTask) -> tuple[str, ...]:
    takes = {part.name: part.takes for part in task.shape.parts}
    hidden = [f"hidden dependency:{name}" for name in task.requirements if takes[name]]
    wrong = [f"{way}:{name}" for way in ("missing part", "repeated part") for name in task.requirements]
    return ("by part", *hidden, *wrong, "same part")


def _split(task: ComposedTask, way: str) -> tuple[Split, ...]:
    """Return the subtasks of a way to split, `by part` or one that is wrong."""
    kind, _, wrong = way.partition(":")
    first = task.requirements[0]
    if kind == "same part":
        return tuple([Split(f"{first}-{n}", (first,)) for n in range(1, len(task.requirements) + 1)])
    splits = []
    for part in task.shape.parts:
        if kind == "missing part" and part.name == wrong:
            continue
        is_hidden = kind == "hidden dependency" and part.name == wrong
        splits.append(Split(part.name, (part.name,), () if is_hidden else part.takes))
        if kind == "repeated part" and part.name == wrong:
            splits.append(Split(f"{wrong}-again", (wrong,), part.takes))
    return tuple(splits)


@dataclass
class _Making:
    """A plan while it is made.

    owner : who has each subtask
    lead : which part's agent leads each part's, where that is not the root
    result : the step that hands on each subtask's result, alternatives under names of their own
    said : what the lead answered so far
    """

    team: Team
    task: ComposedTask
    trial: Trial
    agents: Mapping[str, Agent]
    split: tuple[Split, ...] = ()
    members: list[Member] = field(default_factory=list)
    steps: dict[str, AnyStep] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=dict)
    lead: dict[str, str] = field(default_factory=dict)
    result: dict[str, str] = field(default_factory=dict)
    said: list[Response] = field(default_factory=list)

    @property
    def root(self) -> str:
        return self.team.lead

    def add(self, step: AnyStep) -> str:
        self.steps[step.step_id] = step
        return step.step_id

    def plan(self) -> Plan:
        self.add(replace(self.steps["plan"], answers=tuple(self.said)))
        return Plan(
            team=self.team.name, task_id=self.task.task_id, members=(Member(self.root, self.root), *self.members),
            subtasks=self.split, steps=tuple(self.steps.values()), durations_s=self.team.durations_s,
        )  # fmt: skip

    def ask(self, purpose: Purpose, lineage: str, *, options: Sequence[str], part: str | None = None) -> Response:
        key = (self.task.task_id, self.trial.number, self.root, lineage, purpose)
        package = package_of(self.task, self.task.requirements, FULL)
        self.said.append(self.agents[self.root].act(Request(
            purpose=purpose, seed=self.trial.seed, key=key, agent_id=self.root, component=self.root, task=self.task, part=part,
            package=package, options=tuple(options),
        )))  # fmt: skip
        return self.said[-1]

    def needed(self, split: Split) -> list[str]:
        """Return the subtasks whose results this one is said to build on."""
        return [other.subtask_id for need in split.needs for other in self.split if need in other.covers]

    def led_by(self, name: str) -> list[str]:
        """Return the subtasks that the agent of this one hands out."""
        return [split.subtask_id for split in self.split if self.lead.get(split.subtask_id) == name]

    def rivals(self, name: str) -> list[str]:
        """Return the further agents that write a subtask."""
        return [f"{self.owner[name]}-{letter}" for letter in "bcdefghi"[: self.team.n_alternatives - 1]]


def _hire(making: _Making) -> None:
    """Decide who has which subtask, and who leads whom; the root spawns those that nobody else leads."""
    team, names = making.team, [split.subtask_id for split in making.split]
    if team.layout == "hierarchical" and team.n_workers is None:
        making.lead = {part.name: part.lead for part in making.task.shape.parts if part.lead in names}
    workers = [f"{team.worker}-{n}" for n in range(1, (team.n_workers or len(names)) + 1)]
    for n, split in enumerate(making.split):
        making.owner[split.subtask_id] = _owner(making, split, n, workers)
    leads = {making.owner[name]: making.owner[above] for name, above in making.lead.items()}
    rivals = dict.fromkeys([rival for name in names for rival in making.rivals(name)])
    making.members = [Member(agent, team.worker, leads.get(agent, making.root)) for agent in (*workers, *rivals)]
    mine = tuple([member.agent_id for member in making.members if member.parent_id == making.root])
    making.add(Spawn(step_id="spawn", agent_id=making.root, after=("plan",), members=mine, task_split="by part"))


def _owner(making: _Making, split: Split, n: int, workers: Sequence[str]) -> str:
    if making.team.assignment == "asked":
        choice = making.ask("assign", f"assign:{split.subtask_id}", options=workers, part=split.covers[0]).choice
        return next((worker for worker in workers if worker == choice), workers[n % len(workers)])
    return workers[0] if making.team.assignment == "one" else workers[n % len(workers)]


def _hand_out(making: _Making) -> None:
    """Delegate every subtask, leaders before those they lead."""
    todo = [split.subtask_id for split in making.split if split.subtask_id not in making.lead]
    while todo:
        name = todo.pop(0)
        above = making.lead.get(name)
        by, after = (making.root, "spawn") if above is None else (f"@give:{above}", f"spawn:{above}")
        given = Delegate(step_id=f"give:{name}", agent_id=by, to=making.owner[name], after=(after,), subtasks=(name,),
                         package=making.team.package)  # fmt: skip
        making.add(given)
        for n, rival in enumerate(making.rivals(name), 2):
            making.add(replace(given, step_id=f"give:{name}/{n}", agent_id=making.root, to=rival, after=("spawn",)))
        if led := making.led_by(name):
            members = tuple([making.owner[other] for other in led])
            making.add(Spawn(step_id=f"spawn:{name}", agent_id=f"@give:{name}", after=(f"give:{name}",), members=members,
                             task_split="by part"))  # fmt: skip
            todo += led


def _talk(making: _Making) -> dict[str, list[str]]:
    """Let workers send each other what they do before they write; return the messages that each subtask waits for."""
    heard: dict[str, list[str]] = {split.subtask_id: [] for split in making.split}
    part = {split.subtask_id: split.covers[0] for split in making.split}
    for split in making.split:
        name = split.subtask_id
        others = tuple([f"@give:{other}" for other, agent in making.owner.items() if agent != making.owner[name]])
        last = f"give:{name}"
        for n in range(1, making.team.n_status + 1 if others else 1):
            last = making.add(Communicate(step_id=f"status:{name}:{n}", agent_id=f"@give:{name}", after=(last,), to=others,
                                          message_type="status", part=part[name]))  # fmt: skip
            heard[name] = [last]
        for other in making.needed(split) if making.team.upstream == "told" else ():
            if making.owner[other] != making.owner[name]:
                heard[name].append(making.add(Communicate(
                    step_id=f"tell:{other}:{name}", agent_id=f"@give:{other}", after=(f"give:{other}",), to=(f"@give:{name}",),
                    part=part[other], message_type="interface",
                )))  # fmt: skip
    return heard


def _work(making: _Making, heard: Mapping[str, list[str]]) -> None:
    """Let every subtask be written, in an order in which the parts can be computed; who leads others merges their results."""
    waits = making.team.upstream == "waits"
    for split in making.split:
        name, needed = split.subtask_id, [making.result[other] for other in making.needed(split)] if waits else []
        led = [making.result[other] for other in making.led_by(name)]
        end = _write(making, name, split, after=[*heard[name], *needed], reports=not led)
        if led:
            end = making.add(Aggregate(step_id=f"merge:{name}", agent_id=f"@give:{name}", after=(end, *led), of=(*led, end),
                                       strategy="parallel"))  # fmt: skip
        making.result[name] = end
        for n, _ in enumerate(making.rivals(name), 2):
            making.result[f"{name}/{n}"] = _write(making, f"{name}/{n}", split, after=needed)


def _work_in_turn(making: _Making) -> None:
    """Hand out one subtask after the other has come in, with the results that it builds on."""
    before = "spawn"
    for split in making.split:
        name = split.subtask_id
        shares = tuple([making.result[other] for other in making.needed(split)]) if making.team.upstream == "waits" else ()
        making.add(Delegate(step_id=f"give:{name}", agent_id=making.root, to=making.owner[name], after=(before,), shares=shares,
                            subtasks=(name,), package=making.team.package))  # fmt: skip
        making.result[name] = before = _write(making, name, split)


def _write(
    making: _Making, lineage: str, split: Split, *, after: Sequence[str] = (), when: When | None = None, reports: bool = True
) -> str:  # fmt: skip
    """Add the work on a subtask as it was delegated under the same lineage."""
    give, n_tries = f"give:{lineage}", making.team.n_tries
    return making.add(Write(
        step_id=f"write:{lineage}", agent_id=f"@{give}", after=tuple(dict.fromkeys([give, *after])), on=give, when=when,
        part=split.covers[0], subtask_id=split.subtask_id, reports=reports, runs_tests=n_tries > 1, n_tries=n_tries,
    ))  # fmt: skip


def _fill_gaps(making: _Making) -> None:
    covered = {part for split in making.split for part in split.covers}
    for part in making.task.requirements:
        if part not in covered:
            own = Write(step_id=f"write:{part}", agent_id=making.root, after=("spawn",), part=part)
            making.result[part] = making.add(own)


def _finish(making: _Making) -> None:
    """Merge, check, repair, stop."""
    team, root = making.team, making.root
    results = [step for name, step in making.result.items() if name not in making.lead]
    awaited = tuple(results[: math.ceil(team.p_awaited * len(results))])
    last = making.add(Aggregate(step_id="merge", agent_id=root, after=awaited, of=awaited, strategy=_strategy(making),
                                delay_s=team.merge_delay_s))  # fmt: skip
    merges, merged = [last], list(awaited)
    if team.verifier is not None:
        making.members.append(Member(team.verifier, team.verifier, root))
        # Once a result is in: hired with the workers it would be one more to lead at once, after the merge it would be late.
        hired = making.add(Spawn(step_id="spawn:verifier", agent_id=root, after=awaited[:1], members=(team.verifier,)))
        last = _check(making, "check", last, after=(last, hired))
    for n in range(2, team.n_repairs + 2):
        if team.stop == "asked":
            news = When(_checked(n - 1)) if n > 2 else None
            last = making.add(Stop(step_id=f"stop:{n - 1}", agent_id=root, after=(last,), of=tuple(merges), asked=True, when=news,
                                   condition="good enough"))  # fmt: skip
        merged += _repair(making, n, after=last)
        checked = When(_checked(n))
        merges.append(making.add(Aggregate(step_id=f"merge:{n}", agent_id=root, after=(last, *merged[-len(making.split) :]),
                                           of=tuple(merged), when=checked, strategy=_strategy(making))))  # fmt: skip
        last = _check(making, f"check:{n}", merges[-1], after=(merges[-1],), when=checked)
    words = "good enough" if team.p_awaited < 1 else "checked" if team.verifier else "all parts are in"
    making.add(Stop(step_id="stop", agent_id=root, after=(last,), of=tuple(merges), condition=words))


def _strategy(making: _Making) -> Strategy:
    if making.team.strategy != "asked":
        return making.team.strategy
    strategies: tuple[Strategy, ...] = get_args(Strategy)
    choice = making.ask("plan", "plan:strategy", options=strategies).choice
    return next((strategy for strategy in strategies if strategy == choice), "parallel")


def _check(making: _Making, step_id: str, of: str, *, after: tuple[str, ...], when: When | None = None) -> str:
    return making.add(Verify(step_id=step_id, agent_id=making.team.verifier or "", after=after, of=of, when=when,
                             how=making.team.checks, to=making.root))  # fmt: skip


def _checked(n: int) -> str:
    """Return the check that decides on round `n` of the work, of which the first is not a repair."""
    return "check" if n == 2 else f"check:{n - 1}"


def _repair(making: _Making, n: int, *, after: str) -> list[str]:
    """Add a round in which what the last check rejected is written again; return the steps that do it."""
    again = []
    for split in making.split:
        name, when = split.subtask_id, When(_checked(n), split.covers[0])
        needed = [making.result[other] for other in making.needed(split)] if making.team.upstream == "waits" else []
        making.add(Delegate(step_id=f"give:{name}:{n}", agent_id=making.root, to=f"@give:{name}", after=(after,), when=when,
                            shares=(_checked(n), *needed), subtasks=(name,), package=making.team.package))  # fmt: skip
        again.append(_write(making, f"{name}:{n}", split, when=when))
    return again


def _single(making: _Making) -> None:
    """Let one agent write part after part, put them together and stop."""
    root, n_tries = making.root, making.team.n_tries
    last = "plan"
    for part in making.task.shape.parts:
        after = tuple(dict.fromkeys([last, *[making.result[name] for name in part.takes]]))
        last = making.add(Write(step_id=f"write:{part.name}", agent_id=root, after=after, part=part.name,
                                runs_tests=n_tries > 1, n_tries=n_tries))  # fmt: skip
        making.result[part.name] = last
    last = making.add(Answer(step_id="answer", agent_id=root, after=(last,), of=tuple(making.result.values())))
    making.add(Stop(step_id="stop", agent_id=root, after=(last,), of=(last,)))
