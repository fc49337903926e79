"""How often each model did each task, counted over the runs of a workspace, and what is known of the tasks themselves.

Decides what counts as the model of a run, and that runs of two worlds are never counted together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from analysis.workspace import Snapshot

#: SQL that gives each trace its model: the names its agents state, joined; else its condition, which for a simulated
#: run is its team. Null where neither is stated.
TRACE_MODELS = """
    select trace_id, coalesce(named.model, condition) as model from traces left join (
        select trace_id, string_agg(distinct model, ' + ' order by model) as model from agents where model is not null
        group by trace_id
    ) as named using (trace_id)
"""
_WORLDS = ("live", "recorded", "simulated")  # of equally many attempts the first counts


class Attempts(NamedTuple):
    """How a model did on a task.

    n, n_passed : attempts whose outcome is known, and those that passed
    source : what they are: attempts of one world, or a user's table
    d_partial : 1 - mean share of tests passed, where no attempt passed and every attempt states it
    d_orch : median over the runs of this task and model
    n_runs, n_conditions : of traces, with and without a known outcome; how many conditions they were run under
    notes : what a reader should know
    """

    task_id: str
    model: str
    n: int
    n_passed: int
    source: str
    d_partial: float | None = None
    d_orch: float | None = None
    n_runs: int = 0
    notes: tuple[str, ...] = ()


class TaskFeatures(NamedTuple):
    """What of a task may foretell its difficulty; the shape is that of its subtasks, None where no run states any."""

    text_length: int
    depth: int | None
    branching: int | None
    cross_dep: int | None


def attempts_of(snapshot: Snapshot) -> list[Attempts]:
    """Return the attempts of each task and model, sorted; of several worlds only the one with the most attempts.

    Runs with a changed decision (`counterfactual`) are no attempts of the model.
    """
    rows = snapshot.sql(
        f"""with runs as (
            select task_id, model, world, condition, passed, difficulty.value as d_orch,
                1 - (outcome->>'n_tests_passed')::double / nullif((outcome->>'n_tests')::double, 0) as d_partial
            from traces join ({TRACE_MODELS}) using (trace_id)
            left join (select trace_id, value from metrics where name = 'd_orch') as difficulty using (trace_id)
            where task_id is not null and model is not null and counterfactual is null
        )
        select task_id, model, world, count(*) as n_runs, count(passed) as n, count(*) filter (passed) as n_passed,
            count(distinct condition) as n_conditions, median(d_orch) as d_orch,
            case when count(*) filter (passed) = 0 and count(d_partial) filter (passed is not null) = count(passed)
                then avg(d_partial) filter (passed is not null) end as d_partial
        from runs group by task_id, model, world order by task_id, model, world"""
    ).to_pylist()
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["task_id"], row["model"]), []).append(row)
    return [_one_world(worlds) for worlds in cells.values()]


def features_of(snapshot: Snapshot) -> dict[str, TaskFeatures]:
    """Return the features of each task that some run has the text of; its shape by the run that splits it finest."""
    texts = snapshot.sql(
        "select task_id, max(length(task_text)) as n from traces where task_id is not null and task_text is not null group by all"
    ).to_pylist()
    splits = snapshot.sql(
        """with sizes as (select trace_id, count(*) as n from subtasks group by trace_id),
        finest as (
            select task_id, trace_id from traces join sizes using (trace_id) where task_id is not null
            qualify row_number() over (partition by task_id order by n desc, trace_id) = 1
        )
        select task_id, subtask_id, needs from finest join subtasks using (trace_id) order by all"""
    ).to_pylist()
    needs: dict[str, dict[str, list[str]]] = {}
    for row in splits:
        needs.setdefault(row["task_id"], {})[row["subtask_id"]] = msgspec.json.decode(row["needs"] or "[]")
    return {row["task_id"]: TaskFeatures(row["n"], *_shape(needs.get(row["task_id"]))) for row in texts}


def _one_world(worlds: Sequence[dict[str, Any]]) -> Attempts:
    kept, *others = sorted(worlds, key=lambda row: (-row["n"], _WORLDS.index(row["world"])))
    notes = [f"{row['n']:,} {row['world']} attempts are left out" for row in others if row["n"]]
    if kept["n_conditions"] > 1:
        notes.append(f"counted over {kept['n_conditions']:,} conditions")
    fields = {name: kept[name] for name in ("task_id", "model", "n", "n_passed", "d_partial", "d_orch", "n_runs")}
    return Attempts(**fields, source=f"{kept['world']} attempts", notes=tuple(notes))


def _shape(needs: dict[str, list[str]] | None) -> tuple[int, int, int] | tuple[None, None, None]:
    """Edges on the longest chain of subtasks, most subtasks that need the same one, and edges in all."""
    if needs is None:
        return None, None, None
    import networkx as nx

    graph = nx.DiGraph((before, after) for after, befores in needs.items() for before in befores if before in needs)
    depth = int(nx.dag_longest_path_length(nx.condensation(graph))) if graph else 0
    return depth, max([n for _, n in graph.out_degree()], default=0), graph.number_of_edges()
