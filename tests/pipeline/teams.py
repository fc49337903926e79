"""Failing teams of three kinds, for tests of failure modes: small traces in which two of the three go wrong at a boundary."""

from __future__ import annotations

import random
from collections.abc import Iterator

from analysis.model import Agent, Claim, Event, Label, Outcome, Relation, Source, Task, Trace

#: kind -> who contradicts whom, under which relation, how the run stops, who blunders, the domain and an annotator's category
KINDS = {
    "plan": ("planner", "coder", "implies(a, b)", "max rounds reached", None, "coding", "bad plan"),
    "check": ("verifier", "coder", "iff(a, b)", "crashed", "terminal", "coding", "bad check"),
    "merge": ("aggregator", "coder", "a ^ b", "no agent to go on", None, "research", "bad merge"),
}


def failing_teams(n_each: int, *, kinds: tuple[str, ...] = tuple(KINDS), prefix: str = "", seed: int = 0) -> Iterator[Trace]:
    """Yield runs of each kind, `counterpoint:<prefix><kind>-<number>`, all failed, all labelled by the annotator `eve`."""
    rng = random.Random(seed)
    for kind in kinds:
        for n in range(n_each):
            yield _team(kind, f"{prefix}{kind}-{n:02d}", rng)


def _team(kind: str, name: str, rng: random.Random) -> Trace:
    first, second, relation, ending, blunderer, domain, category = KINDS[kind]
    quotes = ((first, "a", 0.9), (second, "b", 0.9 if kind == "merge" else 0.1), ("tester", "b", rng.uniform(0.3, 0.6)))
    claims = tuple(
        Claim(claim_id=f"c{n}", component=who, proposition=what, p=p + rng.uniform(-0.08, 0.08), turn=n)
        for n, (who, what, p) in enumerate(quotes)
    )
    names = dict.fromkeys((first, second, "tester", blunderer or first))
    acts = [
        Event(
            event_id=f"e{n}", kind="act", action="model_call", agent_id=who, order=n, t_start_s=float(n),
            t_end_s=n + rng.uniform(0.5, 1), error="it broke" if who == blunderer else None,
        )
        for n, who in enumerate(names)
    ]  # fmt: skip
    stop = Event(event_id="stop", kind="stop", agent_id=first, order=len(acts), t_start_s=float(len(acts)), condition=ending)
    return Trace(
        trace_id=f"counterpoint:{name}", world="recorded", clock="relative", source=Source(format="counterpoint"),
        task=Task(task_id=name, text=f"Task {name}", domain=domain),
        agents=tuple(Agent(agent_id=who, component=who) for who in names), events=(*acts, stop),
        claims=claims, relations=(Relation(relation_id="r", formula=relation),), outcome=Outcome(passed=False),
        labels=(Label(annotator="eve", name="mistake", category=category, agent_id=first),),
    )  # fmt: skip
