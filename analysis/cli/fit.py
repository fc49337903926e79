"""`counterpoint fit`: a policy that decides as the decisions of good runs were, for the field `trained` of a team file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, say

if TYPE_CHECKING:
    from analysis.counterfactual.agents.fitting import Lesson
    from analysis.counterfactual.agents.trainable import Policy
    from analysis.model import Trace
    from analysis.workspace import Snapshot

_CREDITS = """
    select trace_id, event_id, avg(credit) as credit from sound_effects
    where confirmed and metric = 'passed' and seed_block = 'confirm' group by all order by all
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(fit)


def fit(
    component: Annotated[str, typer.Option(help="Whose decisions: planner, coder, tester, ...")],
    out: Annotated[Path, typer.Option(help="The policy, as JSON.")],
    filter: Annotated[str, typer.Option("--filter", "-f", help="Which traces, as for `list`.")] = "",
    purpose: Annotated[
        list[str] | None, typer.Option(help="plan, assign, write, verify, message, aggregate, stop, answer; all by default.")
    ] = None,
    l2: Annotated[float, typer.Option(min=1e-9, help="How much holds the weights at 0.")] = 1.0,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of the choices; 0 always takes the likeliest.")] = 1.0,
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
) -> None:
    """Fit a policy to decisions of stored runs, made by `run --record-decisions`.

    A decision counts in a run that passed, and not in others; one whose effect on passing `effects` confirmed counts as much as
    its credit, and not at all where it did harm.
    """
    from analysis.counterfactual.agents.fitting import lessons
    from analysis.counterfactual.agents.protocol import Purpose
    from analysis.counterfactual.agents.trainable import Policy, save
    from analysis.errors import UnknownNameError
    from analysis.workspace import Snapshot, Workspace
    from analysis.workspace.listing import list_rows

    if unknown := sorted(set(purpose or ()) - set(get_args(Purpose))):
        raise UnknownNameError("--purpose", "no such decision", got=unknown[0], expected=", ".join(get_args(Purpose)))
    snapshot = Snapshot(Workspace(workspace or DEFAULT_WORKSPACE))
    traces = snapshot.traces([row["trace_id"] for row in list_rows(snapshot, filter)])
    _check_component(component, traces)
    found = lessons(traces, component=component, purposes=purpose or (), credits=_credits(snapshot))  # type: ignore[arg-type]
    if not any(lesson.weight for lesson in found):
        what = f"{len(found):,} decisions of {component} in {len(traces):,} traces, and none of them counts"
        say(f"{what} - it takes runs that passed, made by `counterpoint run --record-decisions`")
        raise typer.Exit(1)
    start = Policy(purposes=tuple(sorted({lesson.row.purpose for lesson in found})), temperature=temperature)
    policy = start.fit([lesson.row for lesson in found], [lesson.weight for lesson in found], l2=l2)
    save(policy, out)
    rows = [_row(name, [lesson for lesson in found if lesson.row.purpose == name], policy) for name in policy.purposes]
    if json:
        print_json({"out": str(out), "component": component, "traces": len(traces), "purposes": rows, "weights": policy.weights})
        return
    print_table(list(rows[0]), [tuple(row.values()) for row in rows])
    say(f"{out} holds {len(policy.weights):,} weights; in a team file: [trained] {component} = {str(out)!r}")


def _check_component(component: str, traces: Sequence[Trace]) -> None:
    from analysis.counterfactual.agents.decisions import rows_of
    from analysis.errors import UnknownNameError

    known = {agent.component for trace in traces for agent in trace.agents if agent.component}
    known |= {row.component for trace in traces for row in rows_of(trace)}
    if known and component not in known:
        raise UnknownNameError("--component", "no run has this component", got=component, expected=", ".join(sorted(known)))


def _credits(snapshot: Snapshot) -> dict[tuple[str, str], float]:
    return {(row["trace_id"], row["event_id"]): row["credit"] for row in snapshot.sql(_CREDITS).to_pylist()}


def _row(purpose: str, found: Sequence[Lesson], policy: Policy) -> dict[str, Any]:
    """Return how many decisions there are of a kind, and how likely the policy makes them against taking any option."""
    rows, weights = [lesson.row for lesson in found], [lesson.weight for lesson in found]
    total = sum(weights)
    any_option = policy.__class__(purposes=policy.purposes)
    return {
        "purpose": purpose, "decisions": len(found), "credited": sum([lesson.is_credited for lesson in found]), "weight": total,
        "log p before": any_option.log_likelihood(rows, weights) / total if total else None,
        "log p after": policy.log_likelihood(rows, weights) / total if total else None,
    }  # fmt: skip
