"""`counterpoint modes`: failure modes on the command line, and the library that carries them to another workspace."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, say
from analysis.errors import CounterpointError, UnknownNameError, printable

if TYPE_CHECKING:
    import pandas as pd

    from analysis.coherence.modes import Modes
    from analysis.workspace import Snapshot

Source = Literal["residual", "orchestration"]  # as in `profiles`, which waits until it is used
SourceOption = Annotated[Source | None, typer.Option("--source", help="Which profiles; where both have modes, exports need it.")]
ModeArgument = Annotated[str, typer.Argument(help="The id of a mode, or how it begins.")]
FileArgument = Annotated[str, typer.Argument(help="A mode library (JSON).", metavar="FILE")]
_LISTS = ("exemplars", "top_cells", "notes")
_LONG = (*_LISTS, "words")
_FACTS = ("n_profiles", "stability", "null_stability", "spread_left", "n_dense", "agreement", "refusal", "caution")
_ANALYSE = "run `counterpoint analyze`"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    modes = typer.Typer(
        help="Failure modes: which there are, what they are called, whether they are known from elsewhere.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    modes.command("list")(list_)
    for command in (show, rename, export, match, transfer):
        modes.command()(command)
    app.add_typer(modes, name="modes")


def list_(source: SourceOption = None, workspace: WorkspaceOption = None, json: JsonOption = False) -> None:
    """List the failure modes of each source of profiles, or why none are named."""
    snapshot = _open(workspace)
    found = [
        {"source": run.pop("source"), **run, "modes": _modes(snapshot, name)}
        for name in _sources(source)
        for run in _runs(snapshot, name)
    ]
    if json:
        print_json(found)
        return
    columns = ["mode_id", "name", "size", "jaccard", "words"]
    for run in found:
        typer.echo(f"{run['source']}: {run['n_profiles']} profiles")
        typer.echo(run["refusal"] or _standing(run))
        if run["caution"]:
            typer.echo(run["caution"])
        if run["modes"]:
            print_table(columns, [[mode[name] for name in columns] for mode in run["modes"]])
        typer.echo("")
    if not found:
        say(f"modes are not worked out yet - {_ANALYSE}")


def show(mode_id: ModeArgument, workspace: WorkspaceOption = None, json: JsonOption = False) -> None:
    """Show one mode: its profile, its exemplars, and where it occurs."""
    from analysis.coherence.modes import breakdown

    snapshot = _open(workspace)
    mode = _mode(snapshot, mode_id)
    rows = snapshot.sql(
        """select trace_id, mode_id, domain, format, case when passed then 'passed' when not passed then 'failed' end as outcome
        from mode_members join traces using (trace_id) where mode_id = $id""",
        {"id": mode["mode_id"]},
    ).to_pandas()
    occurs = _plain(breakdown(rows[["trace_id", "mode_id"]], rows.drop(columns="mode_id")).drop(columns="mode_id"))
    if json:
        print_json({**mode, "occurs": occurs})
        return
    print_table(["what", ""], [(name, value) for name, value in mode.items() if name not in _LONG])
    for text in (mode["words"], *(f"note: {note}" for note in mode["notes"])):
        typer.echo(printable(text, 2000))
    typer.echo("")
    print_table(["cell", "share", "over all profiles"], mode["top_cells"])
    typer.echo("")
    columns = ["fact", "value", "n", "share", "low", "high"]
    print_table(columns, [[row[name] for name in columns] for row in occurs])
    typer.echo("")
    print_table(["exemplar, nearest first"], [[trace_id] for trace_id in mode["exemplars"]])


def rename(
    mode_id: ModeArgument,
    name: Annotated[str, typer.Argument(help="What it is to be called.")],
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
) -> None:
    """Give a mode a name, which survives the next analysis."""
    from analysis.coherence.modes.decisions import Decision
    from analysis.pipeline.modes import decide

    snapshot = _open(workspace)
    mode = _mode(snapshot, mode_id)
    # Bytes that are no text come from a terminal as lone surrogates; no file takes them.
    text = " ".join(name.encode("utf-8", "replace").decode().split())
    if not text:
        raise UnknownNameError("mode", "the name is empty", hint="give a word or two")
    decide(snapshot.workspace, Decision(what="rename mode", mode_id=mode["mode_id"], text=text), author=getpass.getuser())
    if json:
        print_json({"mode_id": mode["mode_id"], "was": mode["name"], "name": text})
        return
    say(f"{mode['mode_id']}: {mode['name']} is now called {text}")


def export(file: FileArgument, source: SourceOption = None, workspace: WorkspaceOption = None, json: JsonOption = False) -> None:
    """Save the modes of one source as a library that another workspace can be matched with; no trace goes with it."""
    from analysis.coherence.modes.library import library_of, save

    modes = _of_one_source(_open(workspace), source)
    save(library_of(modes), file)
    if json:
        print_json({"file": file, "source": modes.profiles.source, "n_modes": modes.n_modes})
        return
    say(f"{file}: {modes.n_modes} modes of the source {modes.profiles.source} - `counterpoint modes match {file}` elsewhere")


def match(file: FileArgument, workspace: WorkspaceOption = None, json: JsonOption = False) -> None:
    """Count which traces here are recognised by the modes of a library, and how near they lie."""
    from analysis.coherence.modes import library as shelf
    from analysis.pipeline.modes import profiles_of

    library = shelf.load(file)
    profiles = profiles_of(_open(workspace), library.source)
    rows = shelf.match(profiles, library)
    found = [
        {"mode_id": mode.mode_id, "name": mode.name, "size_there": mode.size, "radius": mode.radius}
        | {"n_nearest": len(mine), "n_recognised": int(mine["is_match"].sum())}
        | {"distance_median": float(mine["distance"].median()) if len(mine) else None}
        for mode in library.modes
        for mine in [rows[rows["mode_id"] == mode.mode_id]]
    ]
    n_recognised = int(rows["is_match"].sum())
    if json:
        print_json({"source": library.source, "n_profiles": len(rows), "n_recognised": n_recognised, "modes": found})
        return
    print_table(list(found[0]), [list(row.values()) for row in found])
    say(f"{n_recognised} of {len(rows)} profiles here lie within the radius that holds 95 % of a mode's own traces")
    if not len(rows):
        say(f"no trace here has a profile of the source {library.source}; if they are not analysed yet, {_ANALYSE}")


def transfer(source: SourceOption = None, workspace: WorkspaceOption = None, json: JsonOption = False) -> None:
    """Learn modes in each domain (a trace without one counts under its format), and count who is recognised in the others."""
    from analysis.coherence.modes.library import transfer as transferred
    from analysis.pipeline.modes import profiles_of
    from analysis.streams import stream

    snapshot = _open(workspace)
    domains = snapshot.sql("select trace_id, coalesce(domain, format) as domain from traces order by trace_id").to_pandas()
    found = []
    for name in _sources(source):
        table = transferred(profiles_of(snapshot, name), domains, stream(0, "mode transfer", name))
        found += [{"source": name, **row} for row in _plain(table)]
    if json:
        print_json(found)
        return
    if not found:
        say(f"no trace has a profile; if they are not analysed yet, {_ANALYSE}")
        return
    print_table(list(found[0]), [list(row.values()) for row in found])
    say("share: recognised, within the radius of a mode; null_share: the same with the cells of the profiles shuffled")


def _open(workspace: str | None) -> Snapshot:
    from analysis.workspace import Snapshot, Workspace

    return Snapshot(Workspace(workspace or DEFAULT_WORKSPACE))


def _sources(source: Source | None) -> Sequence[Source]:
    return ("residual", "orchestration") if source is None else (source,)


def _runs(snapshot: Snapshot, source: Source) -> list[dict[str, Any]]:
    """The last search for modes of one source: none before the first, else one."""
    query = f"select source, {', '.join(_FACTS)} from mode_runs where source = $source"
    return snapshot.sql(query, {"source": source}).to_pylist()  # type: ignore[no-any-return]


def _modes(snapshot: Snapshot, source: Source) -> list[dict[str, Any]]:
    columns = "mode_id, name, size, jaccard, words, is_named, radius, exemplars, top_cells, notes"
    query = f"select {columns} from modes where source = $source order by size desc, mode_id"
    rows = snapshot.sql(query, {"source": source}).to_pylist()
    return [{**row, **{name: msgspec.json.decode(row[name]) for name in _LISTS}} for row in rows]


def _mode(snapshot: Snapshot, mode_id: str) -> dict[str, Any]:
    """Return the one mode whose id begins so."""
    known = [{"source": name, **mode} for name in _sources(None) for mode in _modes(snapshot, name)]
    fits = [mode for mode in known if mode_id and mode["mode_id"].startswith(mode_id)]
    exact = [mode for mode in fits if mode["mode_id"] == mode_id] or fits
    if len(exact) == 1:
        return exact[0]
    problem = f"{len(exact)} modes begin so" if exact else "no mode has this id"
    ids = ", ".join(mode["mode_id"] for mode in exact or known)
    hint = "`counterpoint modes list` shows what is here" if known else f"there are no modes; {_ANALYSE}"
    raise UnknownNameError("mode", problem, got=mode_id, expected=ids, hint=hint)


def _of_one_source(snapshot: Snapshot, source: Source | None) -> Modes:
    """Return the modes of the source that is named, or of the only one that has some."""
    from analysis.pipeline.modes import stored_modes

    stored = {name: modes for name in _sources(source) if (modes := stored_modes(snapshot, name)) is not None}
    if not stored:
        raise CounterpointError("mode library", "modes are not worked out yet", hint=_ANALYSE)
    named = {name: modes for name, modes in stored.items() if modes.modes}
    if len(named) > 1:
        raise UnknownNameError("mode library", "both sources have modes", expected="--source " + " or ".join(named))
    return next(iter((named or stored).values()))


def _standing(run: dict[str, Any]) -> str:
    if run["stability"] is None:
        return "one mode: all profiles are alike"
    said = f"stability {run['stability']:.2f} ({run['null_stability']:.2f} with shuffled cells)"
    agreement = "none" if run["agreement"] is None else f"{run['agreement']:.2f}"
    return f"{said}; agreement with the second view (adjusted Rand index, {run['n_dense']} groups by density): {agreement}"


def _plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as plain values; what is missing is None."""
    rows: list[dict[str, Any]] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return rows
