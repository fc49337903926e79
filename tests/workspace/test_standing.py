"""What stands out: findings ranked by how often, how much, and whether the run recovered; which metrics are there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from analysis import data_folder
from analysis.model import Outcome, Trace
from analysis.pipeline import analyse, import_paths
from analysis.workspace import SCHEMAS, Snapshot, Workspace, standing, trace_tables
from analysis.workspace.listing import neighbours


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    """Three runs of 10 s, 100 tokens and 10 steps each, with findings by hand."""
    workspace = Workspace(tmp_path, create=True)
    traces = [Trace(trace_id=f"counterpoint:{n}", world="recorded", outcome=Outcome(passed=n == "c")) for n in "abc"]
    files = {name: [workspace.write(name, rows)] for name, rows in trace_tables([(t, "counterpoint") for t in traces]).items()}
    sizes = {"work_s": 10.0, "tokens": 100.0, "n_steps": 10.0}
    metrics = [{"trace_id": t.trace_id, "name": name, "value": value} for t in traces for name, value in sizes.items()]
    metrics += [{"trace_id": "counterpoint:a", "name": "q_work", "value": None, "reason": "3 of 7 tests"}]
    findings = [
        ("a", "stuck call", False, 5.0, "s beyond the usual"),
        ("b", "stuck call", None, 2.0, "s"),
        ("c", "stuck call", True, 40.0, "tokens of context"),
        ("c", "echo", True, 0.9, "share of work"),
        ("a", "echo", False, None, ""),
        ("b", "repeats", False, 3.0, "repeated calls"),
    ]
    rows = [
        {"trace_id": f"counterpoint:{t}", "name": name, "recovered": recovered, "loss": loss, "loss_unit": unit}
        for t, name, recovered, loss, unit in findings
    ]
    files["metrics"] = [workspace.write("metrics", pa.Table.from_pylist(metrics, schema=SCHEMAS["metrics"]))]
    files["findings"] = [workspace.write("findings", pa.Table.from_pylist(rows, schema=SCHEMAS["findings"]))]
    workspace.commit(workspace.head(), files)
    return Snapshot(workspace)


def test_the_rank_is_failed_traces_times_their_lost_share(snapshot: Snapshot) -> None:
    rows = {row["name"]: row for row in standing.ranked_findings(snapshot).to_pylist()}
    # stuck call: shares 0.5, 0.2, 0.4, mean 11/30; one failed, one recovered, of one the outcome is not known
    assert rows["stuck call"]["lost_share"] == pytest.approx(11 / 30)
    assert rows["stuck call"]["rank"] == pytest.approx(11 / 30)
    assert (rows["stuck call"]["n_failed"], rows["stuck call"]["n_recovered"]) == (1, 1)
    assert rows["stuck call"]["example"] == "counterpoint:a"
    # echo: the loss of one is not known, so the mean is over the other
    assert rows["echo"]["rank"] == pytest.approx(0.9)
    assert rows["repeats"]["rank"] == pytest.approx(0.3)
    assert [row["name"] for row in standing.ranked_findings(snapshot).to_pylist()] == ["echo", "stuck call", "repeats"]


def test_coverage_adds_up_and_gives_the_reason(snapshot: Snapshot) -> None:
    rows = {row["name"]: row for row in standing.coverage(snapshot).to_pylist()}
    assert (rows["work_s"]["n_with"], rows["work_s"]["n_all"], rows["work_s"]["reason"]) == (3, 3, "")
    assert (rows["q_work"]["n_with"], rows["q_work"]["n_all"], rows["q_work"]["reason"]) == (0, 1, "… of … tests")


def test_traces_wait_until_they_are_analysed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, create=True)
    report = import_paths(workspace, [data_folder() / "samples" / "gather-3.jsonl"])
    assert standing.n_not_analysed(Snapshot(workspace)) == len(report.added)
    analyse(workspace, only=["quality"])
    left = {stage: standing.n_without(Snapshot(workspace), stage) for stage in ("quality", "residuals")}
    assert left == {"quality": 0, "residuals": len(report.added)}
    analyse(workspace)
    snapshot = Snapshot(workspace)
    assert standing.n_not_analysed(snapshot) == 0
    points = standing.quality_points(snapshot, limit=5).to_pylist()
    assert len(points) == 5
    assert all(point["n_all"] == points[0]["n_all"] > 5 for point in points)


def test_neighbours_are_the_next_ones_of_the_filtered_list(snapshot: Snapshot) -> None:
    assert neighbours(snapshot, "counterpoint:b") == ("counterpoint:a", "counterpoint:c")
    assert neighbours(snapshot, "counterpoint:b", "passed:no") == ("counterpoint:a", None)
    assert neighbours(snapshot, "counterpoint:a") == (None, "counterpoint:b")
