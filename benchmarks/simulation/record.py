"""How a run that was played becomes a trace, with what was planted in it as a label."""

from __future__ import annotations

from analysis.model import Candidate, Groups, Label, Outcome, Relation, Source, Trace

from .run import Run
from .teams import Team


def trace_of(run: Run, team: Team, *, trace_id: str, trial: int, seed: int) -> Trace:
    """Return the trace of a run that has stopped."""
    n_tests, n_passed = run.job.n_checks, run.n_passed()
    whole = Candidate(candidate_id="whole", event_id=run.merged, n_passed=n_passed, n_tests=n_tests) if run.merged else None
    return Trace(
        trace_id=trace_id,
        world="simulated",
        source=Source(format="counterpoint"),
        task=run.job.task,
        agents=tuple(run.agents.values()),
        events=run.ordered(),
        subtasks=tuple(run.subtasks.values()),
        candidates=(*run.candidates, whole) if whole else tuple(run.candidates),
        claims=run.dated_claims(),
        relations=_relations(run) if run.claims else (),
        outcome=Outcome(passed=n_passed == n_tests, score=round(n_passed / n_tests, 4), score_scale=(0.0, 1.0),
                        n_tests_passed=n_passed, n_tests=n_tests, source="simulation"),
        labels=(_planted(run, team),),
        groups=Groups(task=run.job.task_id, condition=team.name, trial=str(trial)),
        clock="unix",
        extra={"seed": seed},
    )  # fmt: skip


def _relations(run: Run) -> tuple[Relation, ...]:
    domain = run.job.domain
    parts = " & ".join([f"{part.name}_ok" for part in run.job.parts])
    formulas = {
        "parts": f"iff({domain.product}, {parts})",
        "whole": f"iff(solved, {domain.product} & {domain.verdict})",
        "plan": "implies(solved, plan_ok)",
    }
    if run.job.subject.rivals:
        formulas["answer"] = f"exactly_one({', '.join(run.job.subject.rivals)})"
    return tuple([Relation(relation_id=name, formula=formula, basis="synthetic") for name, formula in formulas.items()])


def _planted(run: Run, team: Team) -> Label:
    agent_id = run.steps[run.blame].agent_id if run.blame else None
    return Label(annotator="simulation", name="planted", category=team.name, text=team.about, agent_id=agent_id,
                 event_id=run.blame, is_root_cause=True if run.blame else None, basis="synthetic")  # fmt: skip
