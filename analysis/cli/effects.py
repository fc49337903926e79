"""`counterpoint replay`: one decision of a run, changed. `counterpoint effects`: many, with what each of them did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.cli.output import (
    DEFAULT_WORKSPACE,
    JsonOption,
    WorkspaceOption,
    named_values,
    print_json,
    print_table,
    progress_bar,
    say,
)
from analysis.cli.run import budget_of

if TYPE_CHECKING:
    import pandas as pd

    from analysis.counterfactual.recorded import Intervention
    from analysis.counterfactual.study import Study
    from analysis.model import Trace
    from analysis.workspace import Workspace

UnsafeOption = Annotated[bool, typer.Option("--unsafe-exec", help="Run programs with too little around them.")]
_SHOWN = ("metric", "n", "delta_q", "low", "high", "credit", "how")
_N_SHOWN = 20
_USUAL = ("passed", "makespan_s", "tokens")
_EXACT = "exact, of what is recorded; nothing was executed (evidence: simulated)"
_COUPLED = "executed again, both runs from the same prefix with the same draws after it (evidence: interventional)"
_BUDGET_HELP = (
    "Begin no new pair after so many tokens (50000), or seconds (90s); a race then decides which decisions are worth them. "
    "Models never go beyond the tokens, or beyond so many calls (200calls), counted over all that went into --out."
)
_REPLAYS = Path("counterpoint-replay.ledger")  # what models answered to `replay`, and what that cost


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(replay)
    app.command("effects")(effects_)


def replay(
    trace_id: Annotated[str, typer.Argument(help="A trace id, or any suffix that only one has.")],
    event: Annotated[str, typer.Option(help="The id of the event whose decision is changed; `show` lists them.")],
    operator: Annotated[str, typer.Option(help="delay, advance, aggregate, insert-message, remove-message, assign, stop-earlier, "
                                               "stop-later; of a recording also serialise, parallelise.")],
    parameter: Annotated[list[str] | None, typer.Option(help="Such as x=5, strategy=vote, to=coder-2.")] = None,
    pairs: Annotated[int, typer.Option(min=1, max=100_000, help="Pairs of replays.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same replays.")] = 0,
    unsafe_exec: UnsafeOption = False,
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Change one decision of a run and say what that does; a run that cannot be executed again is replayed as recorded."""
    from analysis.counterfactual.interventions import step_of
    from analysis.counterfactual.pairing import replayable
    from analysis.counterfactual.recorded import Intervention
    from analysis.errors import ReplayError
    from analysis.workspace import Snapshot, Workspace

    trace = Snapshot(Workspace(workspace or DEFAULT_WORKSPACE)).trace(trace_id)
    one = Intervention(operator, event, named_values(parameter or (), "--parameter"))
    try:
        plan = replayable(trace)
    except ReplayError:
        found = _as_recorded(trace, one)
    else:
        step = step_of(plan, event)
        one = one if step is None else Intervention(operator, step.step_id, one.parameters)
        found = _executed(trace, one, n_pairs=pairs, seed=seed, unsafe=unsafe_exec)
    if json:
        print_json(found)
        return
    print_table(["what", ""], [(name, found[name]) for name in ("trace_id", "event_id", "operator", "keeps")])
    typer.echo("")
    print_table(_SHOWN, [[row[name] for name in _SHOWN] for row in found["effects"]])
    say(found["known"])
    say(f"{len(found['changed'])} events differ: {', '.join(found['changed'][:10])}" if found["changed"] else "no event differs")
    for note in found["notes"]:
        say(note)


def effects_(
    filter: Annotated[str, typer.Option("--filter", "-f", help="Which traces, as for `list`.")] = "",
    operators: Annotated[
        list[str] | None, typer.Option(help="timing, aggregation, communication, assignment, stop, or single operators.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=1, max=10_000, help="Pairs of each decision while screening.")] = 4,
    confirm: Annotated[int, typer.Option(min=0, max=10_000, help="Pairs of each decision that is confirmed.")] = 16,
    chosen: Annotated[int, typer.Option(min=0, max=100_000, help="How many decisions are confirmed, on fresh seeds.")] = 20,
    decisions: Annotated[int, typer.Option(min=1, max=10_000, help="Decisions of each trace.")] = 5,
    budget: Annotated[str | None, typer.Option(help=_BUDGET_HELP)] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same replays.")] = 0,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes.")] = 2,
    name: Annotated[str, typer.Option(help="Of the study; one of the same name is replaced.")] = "effects",
    out: Annotated[Path, typer.Option(help="Pairs are appended here; those that it holds are not made again.")] = Path(
        "counterpoint-effects.jsonl"
    ),
    unsafe_exec: UnsafeOption = False,
    workspace: WorkspaceOption = None,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:
    """Change decisions of many runs, screen and confirm what they do, and store it. Goes on where it stopped.

    Without a budget all decisions are replayed equally often. Models of live runs are asked again from the decision on; what
    they answer is kept beside --out.
    """
    from analysis.counterfactual.interventions import OPERATORS
    from analysis.counterfactual.study import Allocation, Design, study
    from analysis.pipeline.effects import cell_rows, effect_rows, run_row
    from analysis.workspace import Workspace

    store = Workspace(workspace or DEFAULT_WORKSPACE)
    traces = _traces(store, filter)
    limit = budget_of(budget, calls=any(trace.world == "live" for trace in traces))
    by: Allocation = "racing" if limit else "uniform"
    design = Design(operators=tuple(operators or OPERATORS), k=decisions, n_pairs=pairs, n_confirm=confirm, n_chosen=chosen,
                    seed=seed, budget=limit, allocation=by)  # fmt: skip
    with progress_bar(progress_file) as progress:
        done = study(traces, out, design=design, workers=workers, unsafe=unsafe_exec, progress=progress)
        done, frame = _with_recorded(done, traces, design.operators, k=decisions, seed=seed)
    if frame.empty:
        say(_nothing(done.n_left) if traces else "no trace fits the filter")
        raise typer.Exit(1)
    rows = effect_rows(frame, seed=seed, allocation=by)
    _keep(store, name, rows, run_row(done, frame, seed=seed, allocation=by))
    cells = cell_rows(frame, seed=seed, allocation=by)
    # A recording without clock and outcome has none of the usual metrics; then all that it has are told.
    cells = [cell for cell in cells if cell["metric"] in _USUAL] or cells
    counts = {"made": done.n_made, "there": done.n_there, "left": done.n_left, "tokens": done.n_tokens, "effects": len(rows)}
    confirmed = _confirmed(rows)
    controls = [{"name": c.name, "ok": c.ok, "n": c.n, "note": c.note} for c in done.controls]
    if json:
        print_json({**counts, "study": name, "is_sound": done.is_sound, "controls": controls, "cells": cells,
                    "confirmed": confirmed, "refused": done.refused, "notes": done.notes})  # fmt: skip
        return
    _show(cells, confirmed, controls)
    said = [f"{n:,} {word}" for word, n in {**counts, "refused": len(done.refused)}.items()]
    say(", ".join(said) + f"; pairs in {out}")
    for note in done.notes:
        say(note)
    if not done.is_sound:
        say("the batch fails its controls: do not believe it")


def _as_recorded(trace: Trace, one: Intervention) -> dict[str, Any]:
    from analysis.counterfactual.scheduled import what_if

    replayed = what_if(trace, one)
    rows = [
        {"metric": name, "n": 1, "delta_q": delta, "low": None, "high": None, "credit": 0.0 - delta, "how": "exact"}
        for name, delta in replayed.delta_q.items()
    ]
    return {
        "trace_id": trace.trace_id, "event_id": one.event_id, "operator": one.operator, "parameters": one.parameters,
        "keeps": "what every event does and how long it takes", "known": _EXACT, "evidence": "simulated", "effects": rows,
        "changed": [one.event_id, *replayed.downstream], "notes": list(replayed.notes),
    }  # fmt: skip


def _executed(trace: Trace, one: Intervention, *, n_pairs: int, seed: int, unsafe: bool) -> dict[str, Any]:
    from analysis.counterfactual.agents.ledger import Ledger
    from analysis.counterfactual.effects import effects
    from analysis.counterfactual.interventions import OPERATORS
    from analysis.counterfactual.judging import Judge
    from analysis.counterfactual.making import agents_for
    from analysis.counterfactual.pairing import METRICS, Replayer, pair_frame, pair_seed
    from analysis.counterfactual.sandbox import open_sandbox

    with open_sandbox(unsafe=unsafe) as sandbox:
        agents = agents_for(trace, Ledger(_REPLAYS)) if trace.world == "live" else None
        replayer = Replayer(trace, Judge(sandbox), agents=agents)
        made = [replayer.pair(one, seed=seed, block="replay", number=n) for n in range(n_pairs)]
        changed = replayer.arms(one, pair_seed(seed, "replay", 0, trace)).changed
    table = effects(pair_frame(made), seed=seed).set_index("metric")
    table["credit"] = 0.0 - table["delta_q"]
    rows = [_plain({"metric": name, **table.loc[name].to_dict()}) for name in METRICS if name in table.index]
    n_same = sum([pair.n_changed == 0 for pair in made])
    return {
        "trace_id": trace.trace_id, "event_id": one.event_id, "operator": one.operator, "parameters": one.parameters,
        "keeps": OPERATORS[one.operator].keeps, "known": _COUPLED, "evidence": "interventional",
        "effects": [{name: row[name] for name in (*_SHOWN, "p", "zero_share")} for row in rows],
        "changed": list(changed.events), "notes": [f"{n_same} of {n_pairs} pairs do not differ at all"] if n_same else [],
    }  # fmt: skip


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in row.items()}


def _traces(store: Any, filter: str) -> list[Trace]:
    from analysis.workspace import Snapshot
    from analysis.workspace.listing import list_rows

    snapshot = Snapshot(store)
    return snapshot.traces([row["trace_id"] for row in list_rows(snapshot, filter)])


def _with_recorded(
    done: Study, traces: Sequence[Trace], operators: Sequence[str], *, k: int, seed: int
) -> tuple[Study, pd.DataFrame]:
    """Add what the schedules and candidates of the traces say that could not be executed again."""
    import pandas as pd

    from analysis.counterfactual.pairing import pair_frame
    from analysis.counterfactual.scheduled import recorded_rows
    from analysis.streams import stream

    frame, rows, refused = pair_frame(done.pairs), list[dict[str, Any]](), dict(done.refused)
    left = [trace for trace in traces if trace.trace_id in done.refused]
    for trace in left:
        found = recorded_rows(trace, operators=operators, k=k, rng=stream(seed, "recorded", trace.trace_id))
        rows += found.rows
        del refused[trace.trace_id]
        refused |= {text.partition(":")[0]: text for text in found.refused}
    said = f"{len(left):,} of {len(traces):,} traces cannot be executed again; their schedules and candidates were"
    if rows:
        more = pd.DataFrame(rows).assign(number=0)[list(frame.columns)]
        frame = more if frame.empty else pd.concat([frame, more], ignore_index=True)
    return done._replace(refused=refused, notes=(*done.notes, *([said] if left else []))), frame


def _nothing(n_left: int) -> str:
    return "the budget ended before the first pair: give more" if n_left else "no decision of these traces can be replayed"


def _keep(store: Workspace, name: str, rows: Sequence[dict[str, Any]], run: Mapping[str, Any]) -> None:
    """Store the study, unless it did not end and one of its name rests on more pairs."""
    from analysis.pipeline.effects import store_effects
    from analysis.workspace import Snapshot

    query = "select n_pairs from effect_runs where study = $name and n_pairs > $n and $left > 0"
    found = Snapshot(store).sql(query, {"name": name, "n": run["n_pairs"], "left": run["n_left"]})["n_pairs"].to_pylist()
    if found:
        larger = f"the study {name} stays as it was, of {found[0]:,} pairs"
        say(f"{larger}: this one was stopped at {run['n_pairs']:,}; go on with it, or give it another --name")
        return
    store_effects(store, name, rows, run)


def _confirmed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["confirmed"] and row["seed_block"] == "confirm"]


def _show(cells: Sequence[dict[str, Any]], confirmed: Sequence[dict[str, Any]], controls: Sequence[dict[str, Any]]) -> None:
    fields = ("operator", "event_kind", "evidence", "metric", "n", "n_tasks", "delta_q", "low", "high", "q_value")
    print_table(fields, [[cell[name] for name in fields] for cell in cells])
    if confirmed:
        typer.echo("")
        ranked = sorted(confirmed, key=lambda row: (row["metric"] != "passed", -abs(row["delta_q"])))
        columns = ("trace_id", "event_id", "operator", "parameters", "metric", "n", "delta_q", "low", "high", "credit")
        print_table(columns, [[row[name] for name in columns] for row in ranked[:_N_SHOWN]])
    if controls:
        typer.echo("")
        rows = [(c["name"], "ok" if c["ok"] else "FAILS", c["n"], c["note"]) for c in controls]
        print_table(["control", "", "n", "what came out"], rows)
