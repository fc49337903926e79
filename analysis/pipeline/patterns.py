"""The stage `patterns`: which ways of working recur in the workspace, in which families, and what runs with them are worth.

Patterns are kept where they say most (closed ones); lifts are over few metrics, those that say how well a run did and what
it cost. Hidden here: how graphs of all traces are held without their traces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from analysis.errors import CounterpointError
from analysis.orchestration.patterns.conditions import across_domains, conditions
from analysis.orchestration.patterns.families import Families, Family, pattern_families, trace_families
from analysis.orchestration.patterns.graphs import DEFAULT, Labelling, PatternGraph, pattern_graph
from analysis.orchestration.patterns.library import Entry, FamilyEntry, Library, Worth
from analysis.orchestration.patterns.matching import embedding, match, match_families
from analysis.orchestration.patterns.mining import Mined, Pattern, mine
from analysis.orchestration.patterns.naming import structure_name
from analysis.orchestration.patterns.value import anti_patterns, lifts, metric_table
from analysis.pipeline.stages import CorpusStage, Progress, Rows
from analysis.workspace import Snapshot

if TYPE_CHECKING:
    import pandas as pd

#: Changes when the same traces give other rows.
VERSION = "3"
TABLES = ("patterns", "occurrences", "families", "family_members", "lifts", "pattern_runs")
#: The metrics that patterns and families are compared by; `PRIMARY` is the one that conditions are looked for in.
METRICS = ("q_orchestration", "q_parallel_self", "q_work", "tokens", "makespan_s", "n_steps")
PRIMARY = "passed"
_TRACES_A_BATCH = 500
_MAX_VALUED = 500  # patterns whose worth is worked out, the most frequent first
_N_EXAMPLES = 5


class Mining(msgspec.Struct, frozen=True, kw_only=True):
    """What is mined for. `min_support`: a share of the traces; `max_edges`: of a pattern."""

    labelling: Labelling = DEFAULT
    min_support: float = 0.1
    max_edges: int = 5
    ordered: bool = False


def patterns_stage(options: Mining) -> CorpusStage:
    """Return the stage under some options; they are part of its key."""
    key = msgspec.json.encode(options, order="deterministic").decode()

    def run(snapshot: Snapshot, progress: Progress) -> Rows:
        return _run(snapshot, options, progress)

    return CorpusStage("patterns", f"{VERSION}:{key}", TABLES, ("quality", "residuals"), run)


def graphs_of(snapshot: Snapshot, labelling: Labelling, progress: Progress = lambda share, text: None) -> list[PatternGraph]:
    """Return the pattern graph of every trace, by id; traces are read in batches and not kept."""
    ids: list[str] = snapshot.sql("select trace_id from traces order by trace_id")["trace_id"].to_pylist()
    found: list[PatternGraph] = []
    for first in range(0, len(ids), _TRACES_A_BATCH):
        found += [pattern_graph(trace, labelling) for trace in snapshot.traces(ids[first : first + _TRACES_A_BATCH])]
        progress(0.4 * len(found) / len(ids), f"{len(found):,} of {len(ids):,} graphs")
    return found


def run_table(snapshot: Snapshot) -> pd.DataFrame:
    """Return one row a trace: task, condition, outcome, the metrics of `METRICS` and the residual of each level."""
    traces = snapshot.sql("select trace_id, task_id, condition, passed, score from traces order by trace_id").to_pandas()
    rows = snapshot.sql(
        """select trace_id, name, variant, value from metrics where name in (select unnest($names))
        union all select trace_id, 'residual', level, residual from residuals where is_last and level != 'all'
        order by all""",
        {"names": list(METRICS)},
    ).to_pandas()
    return metric_table(traces, rows)


def library_of(snapshot: Snapshot) -> Library:
    """Return the patterns and families of the last run as a library to take along.

    Raises
    ------
    CounterpointError
        If they are patterns in order of time: `match` does not look at the order.
    """
    if any(snapshot.sql("select ordered from pattern_runs")["ordered"].to_pylist()):
        raise CounterpointError(
            "pattern library", "patterns in order of time cannot be looked for elsewhere", hint="mine without --ordered first"
        )
    worth: dict[str, dict[str, Worth]] = {}
    for row in snapshot.sql("select * from lifts where domain is null order by item, metric").to_pylist():
        fields = {name: row[name] for name in Worth.__struct_fields__ if name != "value"}
        worth.setdefault(row["item"], {})[row["metric"]] = Worth(value=row["lift"], **fields)
    rows = snapshot.sql("select * from patterns order by support desc, pattern_id").to_pylist()
    patterns = [_entry(row, worth.get(row["pattern_id"], {})) for row in rows]
    families = [
        FamilyEntry(
            family_id=row["family_id"], name=row["name"], nodes=tuple(msgspec.json.decode(row["nodes"])),
            edges=_edges(row["edges"]), n_members=row["n_members"], n_forms=row["n_forms"], lift=worth.get(row["family_id"], {}),
        )
        for row in snapshot.sql("select * from families where nodes is not null order by n_members desc, family_id").to_pylist()
    ]  # fmt: skip
    provenance = {"data_version": snapshot.head.data_version, "n_traces": str(snapshot.head.n_rows("traces"))}
    return Library(labelling=_labelling(snapshot), provenance=provenance, patterns=tuple(patterns), families=tuple(families))


def _labelling(snapshot: Snapshot) -> Labelling:
    """The labelling of the last run."""
    stored: list[str] = snapshot.sql("select labelling from pattern_runs")["labelling"].to_pylist()
    return msgspec.json.decode(stored[0], type=Labelling) if stored else DEFAULT


def _entry(row: dict[str, Any], worth: dict[str, Worth]) -> Entry:
    return Entry(
        pattern_id=row["pattern_id"], name=row["name"], nodes=tuple(msgspec.json.decode(row["nodes"])),
        edges=_edges(row["edges"]), support=row["support"], support_share=row["support_share"], family=row["family"], lift=worth,
    )  # fmt: skip


def _edges(cell: str) -> tuple[tuple[int, int, str], ...]:
    return msgspec.json.decode(cell, type=tuple[tuple[int, int, str], ...])


def _run(snapshot: Snapshot, options: Mining, progress: Progress) -> Rows:
    graphs = graphs_of(snapshot, options.labelling, progress)
    progress(0.4, "mining")
    mined = mine(graphs, min_support=options.min_support, max_edges=options.max_edges, ordered=options.ordered)
    progress(0.5, "families")
    alike, together = trace_families(graphs), pattern_families(mined)
    progress(0.7, "what they are worth")
    table = run_table(snapshot)
    valued = [n for n, pattern in enumerate(mined.patterns) if pattern.closed][:_MAX_VALUED]
    worth = lifts([mined.patterns[n].pattern_id for n in valued], mined.occurrences[valued], table=table)
    membership = alike.membership(mined.trace_ids)
    family_worth = lifts([family.family_id for family in alike.families], membership, table=table)
    progress(0.9, "where they pay")
    domains = across_domains(
        [family.family_id for family in alike.families], membership, table=table[_asked(table)], domains=_domains(snapshot)
    )
    return {
        "patterns": list(_pattern_rows(mined, together, _worse(worth))),
        "occurrences": list(_occurrence_rows(mined)),
        "families": list(_family_rows(snapshot, alike, graphs, table)),
        "family_members": [{"family_id": f.family_id, "trace_id": t} for f in alike.families for t in f.members],
        "lifts": [*_lift_rows(worth, "pattern"), *_lift_rows(family_worth, "family"), *_lift_rows(domains, "family")],
        "pattern_runs": [_run_row(options, mined, alike)],
    }


def _worse(worth: pd.DataFrame) -> set[str]:
    """The patterns whose runs do worse in what a run is for: its outcome and its coherence, not its cost."""
    is_asked = [str(metric).startswith((PRIMARY, "score", "residual")) for metric in worth["metric"]]
    return set(anti_patterns(worth.loc[is_asked])["item"])


def _asked(table: pd.DataFrame) -> list[str]:
    return [name for name in ("task", "condition", PRIMARY, "q_orchestration") if name in table]


def _domains(snapshot: Snapshot) -> list[str | None]:
    """The domain of each trace by id; the format, where no trace has a domain."""
    rows = snapshot.sql("select domain, format from traces order by trace_id")
    domains: list[str | None] = rows["domain"].to_pylist()
    return domains if any(domains) else rows["format"].to_pylist()


def _pattern_rows(mined: Mined, together: Families, worse: set[str]) -> Iterator[dict[str, Any]]:
    family_of = {name: family.family_id for family in together.families for name in family.members}
    for n, pattern in enumerate(mined.patterns):
        if pattern.closed:
            yield {
                "pattern_id": pattern.pattern_id, "name": structure_name(pattern.nodes, pattern.edges),
                "nodes": _json(pattern.nodes), "edges": _json(pattern.edges), "n_nodes": pattern.n_nodes,
                "n_edges": pattern.n_edges, "support": pattern.support, "support_share": pattern.support_share,
                "closed": True, "maximal": pattern.maximal, "is_approximate": pattern.is_approximate,
                "family": family_of.get(pattern.pattern_id), "anti_pattern": pattern.pattern_id in worse,
                "examples": _json(_holders(mined, n)[:_N_EXAMPLES]),
            }  # fmt: skip


def _holders(mined: Mined, n: int) -> list[str]:
    row = mined.occurrences.indices[mined.occurrences.indptr[n] : mined.occurrences.indptr[n + 1]]
    return [mined.trace_ids[at] for at in row.tolist()]


def _rows_of(held: Any) -> list[list[int]]:
    """The columns of each row of a CSR matrix, ascending."""
    return [sorted(held.indices[first:last].tolist()) for first, last in pairwise(held.indptr.tolist())]


def _occurrence_rows(mined: Mined) -> Iterator[dict[str, Any]]:
    for n, pattern in enumerate(mined.patterns):
        if pattern.closed:
            yield from ({"trace_id": trace_id, "pattern_id": pattern.pattern_id} for trace_id in _holders(mined, n))


def _family_rows(
    snapshot: Snapshot, alike: Families, graphs: Sequence[PatternGraph], table: pd.DataFrame
) -> Iterator[dict[str, Any]]:
    features = snapshot.sql(
        "select domain, format, n_agents, length(task_text) as task_length, length(condition) > 0 as has_condition "
        "from traces order by trace_id"
    ).to_pandas()
    graph_of = {graph.trace_id: graph for graph in graphs}
    membership = alike.membership(table.index.tolist())
    for n, family in enumerate(alike.families):
        found = None
        if PRIMARY in table:
            found = conditions(membership[[n]].toarray()[0], table, features, metric=PRIMARY)
        yield _family_row(family, graph_of[family.medoid]) | {
            "conditions": _json([leaf._asdict() for leaf in found.leaves]) if found else None,
            "conditions_note": found.note if found else "no run of the workspace has an outcome",
        }


def _family_row(family: Family, medoid: PatternGraph) -> dict[str, Any]:
    is_small = len(medoid.labels) <= 200  # a larger one can neither be drawn nor matched
    return {
        "family_id": family.family_id, "name": family.name, "medoid": family.medoid, "n_members": len(family.members),
        "n_forms": family.n_forms, "stability": family.stability, "exemplars": _json(family.exemplars),
        "nodes": _json(medoid.labels) if is_small else None, "edges": _json(medoid.edges) if is_small else None,
    }  # fmt: skip


def _lift_rows(found: pd.DataFrame, kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        found.assign(kind=kind).astype(object).where(found.assign(kind=kind).notna(), None).to_dict("records")
    )
    return rows


def _run_row(options: Mining, mined: Mined, alike: Families) -> dict[str, Any]:
    return {
        "labelling": _json(options.labelling), "min_support": options.min_support, "max_edges": options.max_edges,
        "ordered": options.ordered, "n_graphs": len(mined.trace_ids), "n_patterns": len(mined.patterns),
        "n_closed": sum(pattern.closed for pattern in mined.patterns), "is_approximate": mined.is_approximate,
        "notes": _json(mined.notes), "families_note": alike.note, "stability": _json(list(alike.stability.items())),
        "spread": _json(list(alike.spread.items())),
    }  # fmt: skip


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def occurrence(snapshot: Snapshot, trace_id: str, pattern_id: str) -> tuple[str, ...]:
    """Return the events of a trace that one occurrence of a pattern stands for; none where it was not found there."""
    rows = snapshot.sql("select * from patterns where pattern_id = $id", {"id": pattern_id}).to_pylist()
    if not rows:
        return ()
    graph = pattern_graph(snapshot.trace(trace_id), _labelling(snapshot))
    placed = embedding(_entry(rows[0], {}), graph) or ()
    return tuple(dict.fromkeys(event_id for node in placed for event_id in graph.event_ids[node]))


def matches_of(snapshot: Snapshot, library: Library, progress: Progress = lambda share, text: None) -> list[dict[str, Any]]:
    """Return in how many traces here each pattern of a library occurs, and each family of runs has its form; those first that
    occur most.

    Returns
    -------
    kind ("pattern" or "family"), id, name, n_nodes, n_edges, n_traces and share (of the traces here), share_there, lift_there
    (metric -> what it was worth where it was found), n_undecided (traces in which the search was given up), examples
    """
    graphs = graphs_of(snapshot, library.labelling, progress)
    progress(0.5, "matching")
    found = match(library, graphs)
    n_undecided = Counter([name for name, _ in found.undecided])
    stated = library.provenance.get("n_traces", "")
    n_there = int(stated) if stated.isdecimal() else 0
    there: list[tuple[str, Entry | FamilyEntry, float | None]] = [
        *(("pattern", one, one.support_share) for one in library.patterns),
        *(("family", one, one.n_members / n_there if n_there else None) for one in library.families),
    ]
    held = [*_rows_of(found.occurrences), *_rows_of(match_families(library, graphs))]
    rows = [
        {
            "kind": kind, "id": one.pattern_id if isinstance(one, Entry) else one.family_id, "name": one.name,
            "n_nodes": len(one.nodes), "n_edges": len(one.edges), "n_traces": len(at),
            "share": len(at) / len(graphs) if graphs else None, "share_there": share,
            "lift_there": msgspec.to_builtins(one.lift),
            "n_undecided": n_undecided[one.pattern_id] if isinstance(one, Entry) else 0,
            "examples": [graphs[n].trace_id for n in at[:_N_EXAMPLES]],
        }
        for (kind, one, share), at in zip(there, held, strict=True)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row["kind"] != "pattern", -row["n_traces"], row["id"]))


__all__ = ["Mining", "Pattern", "graphs_of", "library_of", "matches_of", "occurrence", "patterns_stage", "run_table"]
