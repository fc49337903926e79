"""`counterpoint list` and `counterpoint show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_json_text, print_table, say

if TYPE_CHECKING:
    from analysis.workspace import Snapshot


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list")(list_)
    app.command()(show)
    app.command()(stats)


def list_(
    filter: Annotated[str, typer.Option("--filter", "-f", help='Such as: format:whowhen passed:no events>20 "log in".')] = "",
    limit: Annotated[int | None, typer.Option(help="At most so many traces.", min=1)] = None,
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
) -> None:
    """List the traces of the workspace."""
    from analysis.workspace import Snapshot, Workspace
    from analysis.workspace.listing import list_rows

    snapshot = Snapshot(Workspace(workspace or DEFAULT_WORKSPACE))
    rows = list_rows(snapshot, filter, limit=limit)
    if json:
        print_json(rows)
        return
    columns = ["trace_id", "format", "n_agents", "n_events", "explicit_share", "outcome", "labels"]
    print_table(columns, [[*(row[c] for c in columns[:5]), _outcome(row["outcome"]), _annotators(row["labels"])] for row in rows])
    if not rows:
        say("no trace fits the filter" if filter else "the workspace is empty - `counterpoint import PATH` fills it")


def show(
    trace_id: Annotated[str, typer.Argument(help="A trace id, or any suffix that only one has.")],
    metrics: Annotated[bool, typer.Option("--metrics", help="Show its metrics and findings instead.")] = False,
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
) -> None:
    """Show one trace; with --json its native record, with --metrics what was worked out from it."""
    from analysis import model
    from analysis.workspace import Snapshot, Workspace

    snapshot = Snapshot(Workspace(workspace or DEFAULT_WORKSPACE))
    if metrics:
        _show_metrics(snapshot, snapshot.resolve(trace_id), json)
        return
    trace = snapshot.trace(trace_id)
    if json:
        print_json_text(model.encode(trace).decode())
        return
    facts = [
        ("trace", trace.trace_id),
        ("task", trace.task.text),
        ("world", trace.world),
        ("source", ", ".join(filter(None, (trace.source.format, trace.source.file, trace.source.record)))),
        ("outcome", _outcome(msgspec.to_builtins(trace.outcome))),
        ("agents", ", ".join(agent.agent_id for agent in trace.agents)),
    ]
    print_table(["what", ""], facts)
    typer.echo("")
    print_table(
        ["#", "event_id", "kind", "agent", "to", "basis", "tokens", "content"],
        [
            (e.order, e.event_id, e.kind or "opaque", e.agent_id, ", ".join(e.targets), e.basis, _tokens(e),
             (e.content or "")[:300])
            for e in trace.events
        ],
    )  # fmt: skip
    for label in trace.labels:
        typer.echo("")
        print_table(["label", ""], [(k, v) for k, v in msgspec.to_builtins(label).items()])


def stats(workspace: WorkspaceOption = None, json: JsonOption = False) -> None:
    """Count what is there, and say how many traces of each format have each metric and why the others do not."""
    from analysis.workspace import Snapshot, Workspace, standing

    snapshot = Snapshot(Workspace(workspace or DEFAULT_WORKSPACE))
    counts = snapshot.sql(
        """select format, count(*) as n_traces, sum(n_events)::bigint as n_events, count(*) filter (passed) as n_passed,
        count(*) filter (not passed) as n_failed, count(makespan_s) as n_timed, count(input_tokens) as n_with_tokens
        from traces group by format order by format"""
    ).to_pylist()
    findings, coverage = (table.to_pylist() for table in (standing.ranked_findings(snapshot), standing.coverage(snapshot)))
    if json:
        print_json({"formats": counts, "findings": findings, "coverage": coverage})
        return
    for rows in (counts, findings, coverage):
        if rows:
            print_table(list(rows[0]), [list(row.values()) for row in rows])
            typer.echo("")
    if not coverage:
        say("no metrics yet - run `counterpoint analyze`")


def _show_metrics(snapshot: Snapshot, trace_id: str, as_json: bool) -> None:
    from analysis.workspace.listing import findings_of, metrics_of

    metrics, findings = metrics_of(snapshot, [trace_id])[trace_id], findings_of(snapshot, trace_id)
    if as_json:
        print_json({"trace_id": trace_id, "metrics": metrics, "findings": findings})
        return
    print_table(
        ["metric", "value", "variant", "n", "low", "high", "why there is none"],
        [(name, m["value"], m["variant"], m["n"], m["low"], m["high"], m["reason"]) for name, m in metrics.items()],
    )
    if not metrics:
        say("this trace is not analysed yet - run `counterpoint analyze`")
    for finding in findings:
        typer.echo("")
        print_table(["finding", ""], [(name, value) for name, value in finding.items()])


def _outcome(outcome: dict[str, Any]) -> str | None:
    if (passed := outcome.get("passed")) is not None:
        return "passed" if passed else "failed"
    return f"score {outcome['score']:g}" if outcome.get("score") is not None else None


def _annotators(labels: list[dict[str, Any]]) -> str:
    return ", ".join(sorted({label["annotator"] for label in labels}))


def _tokens(event: Any) -> str | None:
    if event.input_tokens is None and event.output_tokens is None:
        return None
    return "+".join("–" if n is None else str(n) for n in (event.input_tokens, event.output_tokens))
