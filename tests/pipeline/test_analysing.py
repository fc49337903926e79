"""Analysis is incremental: what is up to date stays, what changed is worked out anew, nothing is left of what is gone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from analysis import model
from analysis.errors import UnknownNameError
from analysis.model import Event, Groups, Outcome, Trace
from analysis.orchestration import FINDINGS, METRICS
from analysis.orchestration.cost import baselines
from analysis.orchestration.findings import findings
from analysis.orchestration.metrics import metrics
from analysis.pipeline import StageReport, analyse, import_paths
from analysis.workspace import Snapshot, Workspace
from analysis.workspace.listing import count, findings_of, list_rows, metrics_of


def run(trace_id: str, *, agents: int = 2, passed: bool = True, task: str = "t") -> Trace:
    events = tuple(
        Event(event_id=f"e{n}", kind="act", action="tool_call", agent_id=f"a{n % agents}", order=n, t_start_s=n, t_end_s=n + 1.0)
        for n in range(4)
    )
    return Trace(
        trace_id=f"counterpoint:{trace_id}", world="recorded", clock="relative", events=events,
        outcome=Outcome(passed=passed), groups=Groups(task=task),
    )  # fmt: skip


def write(folder: Path, name: str, *traces: Trace) -> Path:
    file = folder / f"{name}.jsonl"
    file.write_bytes(b"\n".join(model.encode(trace) for trace in traces))
    return file


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "w", create=True)


def test_a_second_analysis_does_nothing_and_makes_no_version(workspace: Workspace, tmp_path: Path) -> None:
    import_paths(workspace, [write(tmp_path, "two", run("a"), run("b"))])
    before = workspace.head().data_version
    assert analyse(workspace, only=["quality"]) == [StageReport("quality", 2, 0)]
    head = workspace.head()
    assert analyse(workspace, only=["quality"]) == [StageReport("quality", 0, 2)]
    assert workspace.head() == head
    assert head.data_version == before


def test_stored_metrics_and_findings_are_those_of_the_functions(analysed_samples: Path) -> None:
    snapshot = Snapshot(Workspace(analysed_samples))
    ids = snapshot.sql("select trace_id from traces order by trace_id")["trace_id"].to_pylist()
    traces = snapshot.traces(ids)
    known = baselines(traces)
    stored = metrics_of(snapshot, ids)
    for trace in traces[::7]:
        worked_out = {m.name: msgspec.structs.asdict(m) for m in metrics(trace, baseline=known)}
        assert stored[trace.trace_id] == {name: {k: v for k, v in m.items() if k != "name"} for name, m in worked_out.items()}
        assert list(stored[trace.trace_id]) == list(METRICS)
        assert findings_of(snapshot, trace.trace_id) == msgspec.json.decode(msgspec.json.encode(findings(trace)))


def test_only_the_new_trace_is_worked_on(workspace: Workspace, tmp_path: Path) -> None:
    import_paths(workspace, [write(tmp_path, "one", run("a", task="x"))])
    analyse(workspace, only=["quality"])
    import_paths(workspace, [write(tmp_path, "more", run("b", task="y"))])
    assert analyse(workspace, only=["quality"]) == [StageReport("quality", 1, 1)]
    assert set(metrics_of(Snapshot(workspace), ["counterpoint:a", "counterpoint:b"])) == {"counterpoint:a", "counterpoint:b"}


def test_a_new_baseline_changes_the_gains_of_its_task_and_of_no_other(workspace: Workspace, tmp_path: Path) -> None:
    import_paths(workspace, [write(tmp_path, "teams", run("a", task="x"), run("b", task="y"))])
    analyse(workspace, only=["quality"])
    import_paths(workspace, [write(tmp_path, "alone", run("c", agents=1, passed=False, task="x"))])
    assert analyse(workspace, only=["quality"]) == [StageReport("quality", 2, 1)]
    gains = metrics_of(Snapshot(workspace), ["counterpoint:a", "counterpoint:b"])
    assert gains["counterpoint:a"]["gain_passed"]["value"] == 1.0
    assert gains["counterpoint:b"]["gain_passed"]["value"] is None


def test_an_analysis_that_stopped_half_way_goes_on(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.pipeline.analysing._TRACES_A_BATCH", 2)
    monkeypatch.setattr("analysis.pipeline.analysing._BATCHES_A_COMMIT", 1)
    import_paths(workspace, [write(tmp_path, "seven", *(run(str(n)) for n in range(7)))])

    def stop(share: float, text: str) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyse(workspace, only=["quality"], progress=stop)
    assert analyse(workspace, only=["quality"]) == [StageReport("quality", 5, 2)]
    assert workspace.head().n_rows("metrics") == 7 * len(METRICS)


def test_metrics_and_findings_can_be_filtered_by(analysed_samples: Path) -> None:
    snapshot = Snapshot(Workspace(analysed_samples))
    low = {row["trace_id"] for row in list_rows(snapshot, "q_work<0.7")}
    values = {row["trace_id"]: row["metrics"]["q_work"]["value"] for row in list_rows(snapshot)}
    assert low == {trace_id for trace_id, value in values.items() if value is not None and value < 0.7}
    assert 0 < len(low) < count(snapshot)
    collapsed = 'finding:"serial collapse"'
    assert count(snapshot, collapsed) == count(snapshot, f"{collapsed} condition:serial-collapse") == 9
    with pytest.raises(UnknownNameError, match="did you mean q_work"):
        count(snapshot, "q_werk<1")
    with pytest.raises(UnknownNameError, match="`q_work` is a number"):
        count(snapshot, "q_work:high")
    assert {row["name"] for row in snapshot.sql("select distinct name from findings").to_pylist()} <= set(FINDINGS)


def test_an_unknown_stage_is_named(workspace: Workspace) -> None:
    with pytest.raises(UnknownNameError, match=r"no stage is called so \(got qualty, expected quality, claims, residuals"):
        analyse(workspace, only=["quality", "qualty"])
