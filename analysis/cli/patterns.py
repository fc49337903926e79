"""`counterpoint mine` and `counterpoint patterns`: which ways of working recur, and what runs with them are worth.

Hidden here: how rows of three tables become one row a pattern.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from analysis.cli.output import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, print_json, print_table, progress_bar, say
from analysis.errors import TraceError, UnknownNameError

if TYPE_CHECKING:
    from analysis.workspace import Snapshot

ProgressOption = Annotated[Path | None, typer.Option(hidden=True)]
_LIFTS = ("metric", "with_mean", "without_mean", "lift", "low", "high", "n_with", "n_without", "p_adjusted", "q_value", "reason")
_OUTCOME = "passed"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(mine)
    group = typer.Typer(no_args_is_help=True, help="Look at patterns and families, take them along, look for those of others.")
    group.command("list")(list_)
    group.command()(show)
    group.command()(export)
    group.command("import")(import_)
    app.add_typer(group, name="patterns")


def mine(
    labelling: Annotated[str, typer.Option(help="roles, kinds, components, actions, decisions or shapes.")] = "roles",
    min_support: Annotated[float, typer.Option(min=0.001, max=1, help="Share of the traces that a pattern is in.")] = 0.1,
    max_edges: Annotated[int, typer.Option(min=1, max=20, help="Edges of a pattern.")] = 5,
    ordered: Annotated[bool, typer.Option("--ordered", help="Tell apart in which order edges come.")] = False,
    workspace: WorkspaceOption = None,
    progress_file: ProgressOption = None,
    json: JsonOption = False,
) -> None:
    """Mine the patterns and families of all traces; `analyze` keeps to these options from then on."""
    from analysis.orchestration.patterns.graphs import labelling_named
    from analysis.pipeline import analyse
    from analysis.pipeline.patterns import Mining
    from analysis.workspace import Snapshot, Workspace

    mining = Mining(labelling=labelling_named(labelling), min_support=min_support, max_edges=max_edges, ordered=ordered)
    with progress_bar(progress_file) as progress:
        analyse(Workspace(workspace or DEFAULT_WORKSPACE), only=["patterns"], mining=mining, progress=progress)
    _print_patterns(Snapshot(Workspace(workspace or DEFAULT_WORKSPACE)), json)


def list_(
    families: Annotated[bool, typer.Option("--families", help="The families of runs instead of the patterns.")] = False,
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
) -> None:
    """List the patterns that were mined, or the families."""
    from analysis.workspace import Snapshot, Workspace

    snapshot = Snapshot(Workspace(workspace or DEFAULT_WORKSPACE))
    if not families:
        _print_patterns(snapshot, json)
        return
    rows = _families(snapshot)
    if json:
        print_json(rows)
        return
    columns = ["family_id", "name", "n_members", "n_forms", "stability", "conditions_note"]
    print_table(columns, [[row[name] for name in columns] for row in rows])
    _say_what_there_is_to_know(snapshot)


def show(
    pattern_id: Annotated[str, typer.Argument(metavar="ID", help="Of a pattern or a family, or a beginning that only one has.")],
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
) -> None:
    """Show one pattern or family: its steps, and every metric with it and without it."""
    from analysis.orchestration.patterns.value import ASSOCIATION
    from analysis.workspace import Snapshot, Workspace

    snapshot = Snapshot(Workspace(workspace or DEFAULT_WORKSPACE))
    known = {row["pattern_id"]: row for row in _patterns(snapshot)} | {row["family_id"]: row for row in _families(snapshot)}
    row = known[_resolved(pattern_id, list(known))]
    if json:
        print_json(row)
        return
    nodes, lifts = row["nodes"] or [], row["lift"]
    print_table(["what", ""], [(name, _told(value)) for name, value in row.items() if name not in ("nodes", "edges", "lift")])
    typer.echo("")
    print_table(["#", "step", "leads to"], [(n, label, _targets(row["edges"], n)) for n, label in enumerate(nodes)])
    typer.echo("")
    stored = snapshot.sql("select * from lifts where item = $id and domain is null order by metric", {"id": _id(row)}).to_pylist()
    print_table(list(_LIFTS), [[lift[name] for name in _LIFTS] for lift in stored])
    say(ASSOCIATION if lifts else "no metric is known of any run, so nothing can be said of what it is worth")


def export(
    file: Annotated[Path, typer.Argument(help="Where to write the library (JSON).")],
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
) -> None:
    """Write the patterns and families with what they were worth to a file."""
    from analysis.orchestration.patterns.library import export_library
    from analysis.pipeline.patterns import library_of
    from analysis.workspace import Snapshot, Workspace

    library = library_of(Snapshot(Workspace(workspace or DEFAULT_WORKSPACE)))
    file.write_bytes(export_library(library))
    report = {"file": str(file), "n_patterns": len(library.patterns), "n_families": len(library.families)}
    if json:
        print_json(report)
        return
    print_table(["what", ""], list(report.items()))


def import_(
    file: Annotated[Path, typer.Argument(help="A library that `patterns export` wrote.")],
    workspace: WorkspaceOption = None,
    progress_file: ProgressOption = None,
    json: JsonOption = False,
) -> None:
    """Look for the patterns and families of another workspace here, and count the traces that hold each."""
    from analysis.orchestration.patterns.library import import_library
    from analysis.pipeline.patterns import matches_of
    from analysis.workspace import Snapshot, Workspace

    try:
        data = file.read_bytes()
    except OSError as error:
        raise TraceError(str(file), "the library cannot be read", got=error.strerror or "", hint="check the path") from None
    library = import_library(data, place=file.name)
    snapshot = Snapshot(Workspace(workspace or DEFAULT_WORKSPACE))
    with progress_bar(progress_file) as progress:
        rows = matches_of(snapshot, library, progress)
    if json:
        print_json(rows)
        return
    columns = ["id", "kind", "name", "n_nodes", "n_traces", "share", "share_there", "n_undecided"]
    print_table(columns, [[row[name] for name in columns] for row in rows])
    n_found = sum(row["n_traces"] > 0 for row in rows)
    say(f"{n_found:,} of {len(rows):,} patterns and families occur here, looked for under the labelling {library.labelling.name}")
    if library.families:
        say("a family counts here where a run has the very form of its typical run; share_there counts all runs of the family")


def _print_patterns(snapshot: Snapshot, as_json: bool) -> None:
    rows = _patterns(snapshot)
    if as_json:
        unseen = ("name", "nodes", "edges")
        print_json([{name: value for name, value in row.items() if name not in unseen} for row in rows])
        return
    columns = ["pattern_id", "name", "n_edges", "support", "support_share", "maximal", "q_value", "q_metric", "anti_pattern"]
    print_table(columns, [[row[name] for name in columns] for row in rows])
    _say_what_there_is_to_know(snapshot)


def _say_what_there_is_to_know(snapshot: Snapshot) -> None:
    runs = snapshot.sql("select notes, families_note, n_graphs from pattern_runs").to_pylist()
    if not runs:
        say("no patterns yet - run `counterpoint mine`")
    for run in runs:
        for note in msgspec.json.decode(run["notes"], type=list[str]):
            say(note)
        say(f"families of {run['n_graphs']:,} runs: {run['families_note']}")


def _patterns(snapshot: Snapshot) -> list[dict[str, Any]]:
    """One row a pattern, the most frequent first."""
    columns = "pattern_id, n_nodes, n_edges, support, support_share, closed, maximal, family, anti_pattern, examples"
    query = f"select {columns}, name, nodes, edges from patterns order by support desc, n_edges, pattern_id"
    rows: list[dict[str, Any]] = snapshot.sql(query).to_pylist()
    worth, chance = _worth(snapshot), _chance(snapshot)
    for row in rows:
        row |= {name: msgspec.json.decode(row[name]) for name in ("examples", "nodes", "edges")}
        q_metric, q_value = chance.get(row["pattern_id"], (None, None))
        row |= {"lift": worth.get(row["pattern_id"], {}), "q_value": q_value, "q_metric": q_metric}
    return rows


def _families(snapshot: Snapshot) -> list[dict[str, Any]]:
    """One row a family of runs, the largest first."""
    columns = "family_id, name, n_members, n_forms, stability, medoid, exemplars, conditions, conditions_note, nodes, edges"
    query = f"select {columns} from families order by n_members desc, family_id"
    rows: list[dict[str, Any]] = snapshot.sql(query).to_pylist()
    worth = _worth(snapshot)
    for row in rows:
        row |= {name: msgspec.json.decode(row[name] or "null") for name in ("exemplars", "conditions", "nodes", "edges")}
        row["lift"] = worth.get(row["family_id"], {})
    return rows


def _worth(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Of each pattern and family: metric -> lift, interval and the runs that have a value; where there is a lift."""
    rows = snapshot.sql(
        """select item, metric, lift as value, low, high, n_with + n_without as n from lifts
        where domain is null and lift is not null order by item, metric"""
    ).to_pylist()
    worth: dict[str, dict[str, Any]] = {}
    for row in rows:
        worth.setdefault(row.pop("item"), {})[row.pop("metric")] = row
    return worth


def _chance(snapshot: Snapshot) -> dict[str, tuple[str, float]]:
    """Of each pattern a metric and its q value: the outcome's, else the smallest, if one can be of a metric with a better way."""
    rows = snapshot.sql(
        """select item, metric, q_value from lifts where domain is null and q_value is not null
        qualify row_number() over (partition by item order by metric = $outcome desc, better = 'neither', q_value, metric) = 1""",
        {"outcome": _OUTCOME},
    ).to_pylist()
    return {row["item"]: (row["metric"], row["q_value"]) for row in rows}


def _resolved(given: str, ids: list[str]) -> str:
    found = [name for name in ids if name == given] or [name for name in ids if given and name.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownNameError("pattern", f"{len(found)} ids begin so", got=given, expected=", ".join(sorted(found)[:3]))
    hint = "`counterpoint patterns list` shows them"
    raise UnknownNameError("pattern", "no pattern or family has this id", got=given, hint=hint)


def _id(row: dict[str, Any]) -> str:
    found: str = row.get("pattern_id") or row["family_id"]
    return found


def _told(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    return f"{value:.3g}" if isinstance(value, float) else msgspec.json.encode(value).decode()


def _targets(edges: list[list[Any]], n: int) -> str:
    return ", ".join(f"{target} ({label})" if label else str(target) for source, target, label in edges if source == n)
