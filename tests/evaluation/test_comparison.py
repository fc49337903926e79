"""Groups and runs put together from a workspace: which values, which cautions, which suggestions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from analysis.evaluation.comparison import (
    Suggestion,
    cautions,
    comparable_runs,
    group_values,
    metric_differences,
    suggestions,
)
from analysis.model import Agent, Groups, Outcome, Task, Trace, World
from analysis.workspace import SCHEMAS, Snapshot, Workspace, trace_tables


def run(
    name: str, task: str | None, condition: str, *, passed: bool | None = None, world: World = "recorded", **given: str
) -> Trace:
    agents = (Agent(agent_id="a", component="a", model=given.get("model")),)
    return Trace(
        trace_id=f"counterpoint:{name}",
        world=world,
        agents=agents,
        task=Task(task_id=task, domain=given.get("domain")),
        groups=Groups(condition=condition),
        outcome=Outcome(passed=passed),
    )


def snapshot_of(folder: Path, traces: list[Trace], metrics: dict[str, list[tuple[str, str, float | None, str]]]) -> Snapshot:
    """A workspace with these traces; metrics by name of the run: (metric, variant, value, reason)."""
    workspace = Workspace(folder, create=True)
    rows = trace_tables([(trace, "counterpoint") for trace in sorted(traces, key=lambda trace: trace.trace_id)])
    worked = [
        {"trace_id": f"counterpoint:{name}", "name": metric, "variant": variant, "value": value, "reason": reason}
        for name, found in metrics.items()
        for metric, variant, value, reason in found
    ]
    rows["metrics"] = pa.Table.from_pylist(worked, schema=SCHEMAS["metrics"])
    done = [{"trace_id": f"counterpoint:{name}", "key": "k"} for name in metrics]
    rows["keys_quality"] = pa.Table.from_pylist(done, schema=SCHEMAS["keys_quality"])
    workspace.commit(workspace.head(), {name: [workspace.write(name, table)] for name, table in rows.items()})
    return Snapshot(workspace)


def test_a_group_has_its_outcomes_and_metrics_one_row_each(tmp_path: Path) -> None:
    traces = [run("1", "t1", "x", passed=True, domain="d"), run("2", None, "x"), run("3", "t1", "y", passed=False)]
    snapshot = snapshot_of(tmp_path, traces, {"1": [("tokens", "input", 5.0, "")], "3": [("tokens", "", None, "no tokens")]})
    rows = group_values(snapshot, "condition:x", "condition:y").sort_values(["group", "name", "trace_id"])
    found = rows[["group", "name", "task", "variant", "value", "reason"]].astype(object).where(rows.notna(), None)
    assert [tuple(row) for row in found.itertuples(index=False)] == [
        ("a", "passed", "d t1", "", 1.0, ""),  # ids of tasks are unique in their domain only
        ("a", "passed", "counterpoint:2", "", None, "no outcome"),
        ("a", "tokens", "d t1", "input", 5.0, ""),
        ("b", "passed", "t1", "", 0.0, ""),
        ("b", "tokens", "t1", "", None, "no tokens"),
    ]


def test_what_makes_a_difference_doubtful_is_said(tmp_path: Path) -> None:
    traces = [run("1", "t1", "x"), run("2", "t1", "y", world="simulated"), run("3", None, "y")]
    snapshot = snapshot_of(tmp_path, traces, {"1": [], "2": []})
    assert cautions(snapshot, "condition:x", "condition:x -condition:y") == [
        "1 run is in both groups and counts in both; the difference is drawn towards zero."
    ]
    assert cautions(snapshot, "condition:x", "condition:y") == [
        "Group B mixes worlds: recorded, simulated. What differs may be the world.",
        "1 of 2 runs of group B waits to be analysed and has no metrics.",
        "1 run of group B does not say which task it is about and counts as a task of its own.",
        "The groups are of different worlds: A recorded, B recorded, simulated.",
    ]


def test_pairs_with_most_tasks_in_common_are_suggested_first(tmp_path: Path) -> None:
    traces = [run(f"{c}{n}", f"t{n}", c, passed=n > 0) for c, k in (("x", 3), ("y", 3), ("has space", 1)) for n in range(k)]
    traces.append(run("q", "t0", 'quote"'))
    assert suggestions(snapshot_of(tmp_path, traces, {})) == [
        Suggestion("condition:x", "condition:y", "3 tasks in both"),
        Suggestion("condition:x", "-condition:x", "3 tasks in both"),
        Suggestion("condition:y", "-condition:y", "3 tasks in both"),
        Suggestion('condition:"has space"', "condition:x", "1 task in both"),
        Suggestion("passed:no", "passed:yes", "3 that failed, 4 that passed"),
    ]


def test_runs_of_the_same_task_are_offered_and_any_where_there_are_none(tmp_path: Path) -> None:
    traces = [
        run("1", "t1", "x"),
        run("2", "t1", "y"),
        run("3", "t2", "x"),
        run("4", None, "x"),
        run("5", "t1", "x", domain="other"),
    ]
    snapshot = snapshot_of(tmp_path, traces, {})
    assert comparable_runs(snapshot, "counterpoint:1")["trace_id"].tolist() == ["counterpoint:2"]
    others = comparable_runs(snapshot, "counterpoint:3")
    assert (len(others), others["is_same_task"].any()) == (4, False)
    assert comparable_runs(snapshot)["trace_id"].tolist()[:2] == ["counterpoint:1", "counterpoint:2"]
    assert len(comparable_runs(snapshot, limit=2)) == 2


def test_metrics_of_two_runs_are_subtracted_within_a_variant_only(tmp_path: Path) -> None:
    traces = [run("1", "t", "x"), run("2", "t", "x")]
    metrics = {
        "1": [("q_work", "tests", 0.5, ""), ("tokens", "", 9.0, ""), ("n_agents", "", 2.0, ""),
              ("q_split", "", None, "no subtasks"), ("width", "", None, "none")],
        "2": [("q_work", "act", 0.75, ""), ("tokens", "", 4.0, ""), ("n_agents", "", 2.0, ""), ("q_split", "", 1.0, ""),
              ("width", "", None, "none")],
    }  # fmt: skip
    table = metric_differences(snapshot_of(tmp_path, traces, metrics), "counterpoint:1", "counterpoint:2")
    found = table.astype(object).where(table.notna(), None)
    assert [tuple(row) for row in found.itertuples(index=False)] == [
        ("tokens", "", "tokens", 9.0, 4.0, -5.0, "B", ""),
        ("n_agents", "", "agents", 2.0, 2.0, 0.0, None, ""),
        ("q_work", "act", "share", None, 0.75, None, None, "A has it as: tests"),
        ("q_work", "tests", "share", 0.5, None, None, None, "B has it as: act"),
        ("q_split", "", "share", None, 1.0, None, None, "absent in A: no subtasks"),
    ]


def test_without_analysis_there_are_no_metrics(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, [run("1", "t", "x"), run("2", "t", "x")], {})
    assert metric_differences(snapshot, "counterpoint:1", "counterpoint:2").empty


@pytest.mark.parametrize("filter", ["condition:'); drop table traces; --", 'text:"$p0"'])
def test_a_filter_is_data(tmp_path: Path, filter: str) -> None:
    assert group_values(snapshot_of(tmp_path, [run("1", "t", "x")], {}), filter, filter).empty
