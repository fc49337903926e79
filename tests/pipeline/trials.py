"""Runs of teams that try tasks again and again, for tests of difficulty: outcomes are given, orchestration grows by workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analysis.model import Agent, Event, Groups, Outcome, Source, Subtask, Task, Trace, World


def trials(
    outcomes: Mapping[tuple[str, str], str],
    *,
    world: World = "simulated",
    workers: Mapping[str, int] | None = None,
    model: str | None = None,
    tests: tuple[int, int] | None = None,
) -> Iterator[Trace]:
    """Yield a run for each letter of each (task, team): `1` passed, `0` failed, `?` without an outcome.

    Parameters
    ----------
    workers : team -> agents that a lead delegates to at once, by default none
    model : what every agent states as its model
    tests : passed and all tests of each failed run
    """  # fmt: skip
    for (task, team), letters in outcomes.items():
        for n, letter in enumerate(letters):
            yield _run(f"{task}-{team}-{world}-{n}", task, team, letter, world, (workers or {}).get(team, 0), model, tests)


def _run(
    name: str, task: str, team: str, letter: str, world: World, n_workers: int, model: str | None, tests: tuple[int, int] | None
) -> Trace:
    others = tuple(f"w{k}" for k in range(n_workers))
    events = [Event(event_id="go", kind="delegate", agent_id="lead", targets=others, order=0)] if others else []
    events += [
        Event(event_id=f"do-{who}", kind="act", action="model_call", agent_id=who, order=n)
        for n, who in enumerate(others or ("lead",), 1)
    ]
    passed = {"1": True, "0": False}.get(letter)
    counts = dict(zip(("n_tests_passed", "n_tests"), tests, strict=True)) if tests and passed is False else {}
    return Trace(
        trace_id=f"counterpoint:{name}", world=world, clock="relative", source=Source(format="counterpoint"),
        task=Task(task_id=task, text=f"Do {task}, " + "please " * (len(task) % 7), domain="software"),
        agents=tuple(Agent(agent_id=who, component=who, model=model) for who in ("lead", *others)), events=tuple(events),
        subtasks=tuple(Subtask(subtask_id=f"s{k}", needs=(f"s{k - 1}",) if k else ()) for k in range(n_workers)),
        outcome=Outcome(passed=passed, **counts), groups=Groups(task=task, condition=team, trial=str(name[-1])),
    )  # fmt: skip
