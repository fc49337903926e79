"""How agents of a simulated run lead each other: plan, spawn, delegate, tell, stop.

Each move adds events to the run and returns the id of its last one, for what comes after.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.model import Agent, ContextPackage
from analysis.streams import whole

from .run import Run
from .subjects import Part

_N_PROMPT_TOKENS = 60  # what every agent has before it at the start
_LARGE = ("solo", "planner", "lead", "integrator")


def hire(run: Run, agent_id: str, *, component: str = "", parent_id: str | None = None) -> None:
    """Add an agent, at the time at which its parent is; its component is called like it unless said otherwise."""
    component = component or agent_id
    model = "sim-large" if component in _LARGE else "sim-small"
    run.agents[agent_id] = Agent(agent_id=agent_id, component=component, parent_id=parent_id, model=model)
    run.free_ms[agent_id] = run.free_ms[parent_id] if parent_id else run.start_ms
    run.n_events[agent_id] = 0
    run.context[agent_id] = _N_PROMPT_TOKENS


def plan(run: Run, agent_id: str, *, n_rivals: int = 3) -> str:
    """Split the task in words; state how sure the plan is, and `n_rivals` of the three rival answers."""
    phrases, names = run.job.phrases, [part.name for part in run.job.parts]
    wording = phrases.plan if agent_id == "planner" else phrases.plan_alone
    text = wording.format(n=len(names), names=phrases.comma.join(names))
    for name, needed in run.job.needs.items():
        text += phrases.space + phrases.needs.format(part=name, needed=needed)
    quotes = {"plan_ok": whole(run.own("plan"), 94, 98), **dict(list(rivals(run).items())[:n_rivals])}
    return run.add(agent_id, "act", action="model_call", content=run.say(agent_id, text, quotes=quotes), after=())


def rivals(run: Run) -> dict[str, int]:
    """Return the quotes, in hundredths, of the answers of which exactly one is right; they add up to 100."""
    names = run.job.subject.rivals
    if not names:
        return {}
    first = whole(run.own("first rival"), 50, 75)
    second = whole(run.own("second rival"), 5, 95 - first)
    return dict(zip(names, (first, second, 100 - first - second), strict=True))


def spawn(run: Run, agent_id: str, *, team: dict[str, str], split: str, assignment: dict[str, str], after: str) -> str:
    """Start the agents of `team` (id -> component), all at once."""
    content = run.job.phrases.spawn.format(n=len(team), names=run.job.phrases.comma.join(team))
    event = run.add(
        agent_id, "spawn", content=content, after=(after,), targets=tuple(team), task_split=split, assignment=assignment
    )
    for child, component in team.items():
        hire(run, child, component=component, parent_id=agent_id)
    return event


def delegate(run: Run, agent_id: str, *, to: str, parts: Sequence[Part], after: str, text: str = "") -> str:
    """Hand parts to one agent, in the words of `text` where given."""
    phrases = run.job.phrases
    names = phrases.comma.join([part.name for part in parts])
    package = ContextPackage(nl=phrases.space.join([part.ask for part in parts]))
    if run.is_full:
        package = ContextPackage(nl=package.nl, scenarios=tuple([part.sound for part in parts]),
                                 signatures=tuple([part.form for part in parts]), domain_model=run.job.subject.model)  # fmt: skip
    content = text or phrases.delegate.format(to=to, part=names)
    return run.add(agent_id, "delegate", content=content, after=(after,), targets=(to,), context_package=package)


def tell(run: Run, agent_id: str, *, to: Sequence[str], text: str, after: Sequence[str], message_type: str) -> str:
    """Send one message."""
    return run.add(agent_id, "communicate", content=text, after=after, targets=tuple(to), message_type=message_type)


def stop(run: Run, agent_id: str, *, after: Sequence[str], condition: str = "", final_state: str = "", text: str = "") -> str:
    """End the run; without `condition`, for the reason that the run itself gives."""
    phrases = run.job.phrases
    if not condition:
        condition, final_state, text = ("all parts are in", "unchecked", phrases.stop_unchecked)
        if run.checked and run.n_passed() == run.job.n_checks:
            condition, final_state, text = ("all checks pass", "solved", phrases.stop_passed)
        elif run.checked:
            condition, final_state, text = ("one repair at most", "failed", phrases.stop_failed)
    if "solved" not in run.quoted:
        text = run.say(agent_id, text, quotes={"solved": _sure_of_whole(run)}, level="final")
    return run.add(agent_id, "stop", content=text, after=after, condition=condition, final_state=final_state)


def _sure_of_whole(run: Run) -> int:
    """A quote that agrees with those of product, verdict and plan, up to a slip of three hundredths."""
    product, verdict = (run.quoted.get(name, 100) for name in (run.job.domain.product, run.job.domain.verdict))
    low, high = max(0, product + verdict - 100), min(product, verdict, run.quoted.get("plan_ok", 100))
    sure = high - whole(run.own("solved"), 0, (high - low) // 3) + whole(run.own("slip"), -3, 3)
    return min(99, max(1, sure))
