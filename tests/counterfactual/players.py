"""Teams and agents whose every trait a test sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from analysis.counterfactual.agents.protocol import Agent, Request, Response
from analysis.counterfactual.agents.simulated import Component, Simulated
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.plan import Plan
from analysis.counterfactual.planning import plan_for
from analysis.counterfactual.runs import recipes
from analysis.counterfactual.runtime import Trial, execute
from analysis.counterfactual.tasks.compose import ComposedTask
from analysis.counterfactual.teams import Team, team_of
from analysis.model import Trace

FIRST = Trial(7)
PERFECT: dict[str, Any] = {"competence": 1.0, "sensitivity": 1.0, "specificity": 1.0, "fidelity": 1.0}


def task_of(shape: str, number: int = 0) -> ComposedTask:
    """Return a task of a shape, the same each time."""
    return recipes(shape, 1, seed=7, first=number)[0].task()


def team(components: Mapping[str, Mapping[str, Any]] | None = None, **fields: Any) -> Team:
    """Return a team; components that nothing is said of make no mistakes."""
    described = {"planner": PERFECT, "coder": PERFECT, **(components or {})}
    if fields.get("layout") == "single":
        described.pop("coder")
    return team_of({"name": "test", "about": "", **fields, "components": described}, "test")


def played(
    team: Team, task: ComposedTask, judge: Judge, *, trial: Trial = FIRST, agents: Mapping[str, Agent] | None = None
) -> Trace:
    """Return the trace of a team's run."""
    players = agents or agents_of(team)
    return execute(plan_for(team, task, trial=trial, agents=players), task, players, trial=trial, judge=judge)


def agents_of(team: Team) -> dict[str, Agent]:
    """Return the simulated agents of a team."""
    return {name: Simulated(component) for name, component in team.components.items()}


def planned(team: Team, task: ComposedTask, trial: Trial = FIRST) -> Plan:
    """Return a team's plan."""
    return plan_for(team, task, trial=trial, agents=agents_of(team))


class Wrong:
    """Writes one part wrong, the others right."""

    def __init__(self, part: str) -> None:
        self.part = part

    def act(self, request: Request) -> Response:
        """Answer as a coder without mistakes does, but for the one part."""
        right = Simulated(msgspec.convert(PERFECT, Component)).act(request)
        if request.part != self.part or isinstance(request.task, str):
            return right
        function = request.task.node(self.part).function
        variant = next(v for v in function.variants if v.fault != "performance")
        return msgspec.structs.replace(right, choice=variant.variant_id, program=variant.source)
