"""`counterpoint curriculum`: how hard each task is for each model, and in which stage of a curriculum it stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, progress_bar, say
from analysis.errors import TaskError, UnknownNameError

if TYPE_CHECKING:
    from analysis.curation.curriculum.stages import Reference
    from analysis.workspace import Snapshot, Workspace

Form = Literal["linear", "max", "noisy-or", "fitted"]
_COLUMNS = ("task", "model", "d_req", "low", "high", "n", "d_orch", "stage", "joint", "source", "reason")
_PRINTED = _COLUMNS[:-1]
_HEADINGS = ["model or condition" if name == "model" else name for name in _PRINTED]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(curriculum)


def curriculum(
    pass_table: Annotated[
        list[Path] | None, typer.Option(help="Pass rates of models on tasks (CSV, JSON, JSONL, Parquet); kept for later runs.")
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(min=1, help="Attempts behind each rate of --pass-table, where no column states them.")
    ] = None,
    forget_tables: Annotated[bool, typer.Option("--forget-tables", help="Drop the pass tables given before.")] = False,
    tau_req: Annotated[float | None, typer.Option(min=0, max=1, help="d_req above which a task is hard; kept.")] = None,
    tau_orch: Annotated[float | None, typer.Option(min=0, max=1, help="d_orch above which a task is hard; kept.")] = None,
    joint: Annotated[Form | None, typer.Option(help="How d_req and d_orch make one difficulty; kept.")] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Take the thresholds anew: medians of what is here now.")] = False,
    model: Annotated[str | None, typer.Option(help="Only the tasks of this model or condition.")] = None,
    workspace: WorkspaceOption = None,
    progress_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: JsonOption = False,
) -> None:
    """Show d_req with its interval, d_orch and the stage of each task and model, from repeated runs and from pass tables.

    Model or condition: the models that the agents of a run state; where they state none, what the run was made under, such as
    a team or a subset.
    """
    from analysis.curation.curriculum.pass_tables import read_pass_table
    from analysis.pipeline import analyse
    from analysis.pipeline.curriculum import add_pass_table, forget_pass_tables, set_reference
    from analysis.workspace import Snapshot, Workspace

    tables = [read_pass_table(file, n_attempts=attempts) for file in pass_table or ()]
    store = Workspace(workspace or DEFAULT_WORKSPACE, create=bool(tables))
    if forget_tables:
        forget_pass_tables(store)
    for table in tables:
        add_pass_table(store, table)
    with progress_bar(progress_file) as progress:
        if renew:
            set_reference(store, None)
        if any(given is not None for given in (tau_req, tau_orch, joint)):
            _change_reference(store, tau_req, tau_orch, joint)
        analyse(store, only=["curriculum"], progress=progress)
    snapshot = Snapshot(store)
    rows = _rows(snapshot, model)
    if json:
        print_json(rows)
        return
    known = [row for row in rows if row["d_req"] is not None]
    print_table(_HEADINGS, [[row[name] for name in _PRINTED] for row in known])
    if len(known) < len(rows):
        say(f"{len(rows) - len(known):,} more have runs, but no known outcome")
    _say_what_there_is_to_know(snapshot)


def _change_reference(store: Workspace, tau_r: float | None, tau_o: float | None, joint: Form | None) -> None:
    """Keep what was given; thresholds that were not are those before, or medians of what is here."""
    from analysis.curation.curriculum.stages import Reference
    from analysis.pipeline import analyse
    from analysis.pipeline.curriculum import set_reference, stored_reference
    from analysis.workspace import Snapshot

    analyse(store, only=["curriculum"])
    before = stored_reference(Snapshot(store))
    if before is None:
        if tau_r is None or tau_o is None:
            hint = "give --tau-req and --tau-orch, or more runs: `counterpoint run --trials 4`"
            raise TaskError("curriculum", "too few tasks were tried more than once to take thresholds from", hint=hint)
        before = Reference(name="set by hand", version="", tau_r=tau_r, tau_o=tau_o)
    set_reference(store, _changed(before, tau_r, tau_o, joint))


def _changed(before: Reference, tau_r: float | None, tau_o: float | None, joint: Form | None) -> Reference:
    given = {name: value for name, value in (("tau_r", tau_r), ("tau_o", tau_o)) if value is not None}
    named = {"name": "set by hand", "version": ""} if given else {}
    return msgspec.structs.replace(before, **named, **given, joint=joint or before.joint)


def _rows(snapshot: Snapshot, model: str | None) -> list[dict[str, Any]]:
    known: list[str] = snapshot.sql("select distinct model from difficulty order by model")["model"].to_pylist()
    if model is not None and model not in known:
        hint = "" if known else "no run has both a task and a model or condition"
        expected = ", ".join(known[:12])
        raise UnknownNameError("curriculum", "no model or condition is called so", got=model, expected=expected, hint=hint)
    query = (
        "select task_id as task, * exclude (task_id) from difficulty where $model is null or model = $model order by model, task"
    )
    rows = snapshot.sql(query, {"model": model}).to_pylist()
    return [{name: row[name] for name in _COLUMNS} for row in rows]


def _say_what_there_is_to_know(snapshot: Snapshot) -> None:
    from analysis.workspace.standing import n_not_analysed

    run = snapshot.sql("select notes, fit from difficulty_runs").to_pylist()[0]
    for note in msgspec.json.decode(run["notes"]):
        say(note)
    if n_waiting := n_not_analysed(snapshot):
        say(f"{n_waiting:,} traces have no d_orch yet: run `counterpoint analyze`")
    fit = msgspec.json.decode(run["fit"])["joint"]
    if fit["refusal"]:
        say(f"whether d_req and d_orch interact is not tested: {fit['refusal']}")
    else:
        say(f"interaction of d_req and d_orch: b3 = {fit['coefficients'][3]:.3g}, p = {fit['p_interaction']:.3g}")
    if not snapshot.sql("select 1 from difficulty where n > 1 limit 1").num_rows:
        say("no task was tried more than once: `counterpoint run --trials 4` makes such runs, --pass-table brings rates")
