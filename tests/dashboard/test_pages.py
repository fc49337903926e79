"""Every page answers its question, on a full, an empty and a wrong workspace."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis import model
from analysis.pipeline import import_paths
from analysis.workspace import Snapshot, Workspace
from benchmarks.simulation import SimulationPolicy, simulate
from dashboard import check
from dashboard.selection import PAGES


def test_every_page_file_is_in_the_navigation() -> None:
    files = {path.name for path in (Path(check.__file__).parent / "app_pages").glob("*.py")} - {"__init__.py"}
    assert files == {Path(info.file).name for info in PAGES.values()}


def test_every_page_runs_on_the_samples(samples: Workspace) -> None:
    assert check.failures() == {}


def test_every_page_runs_on_an_empty_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "empty"))
    assert check.failures() == {}


def test_an_empty_workspace_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "empty"))
    app.run()
    assert [info.value[:22] for info in app.info] == ["The workspace is empty"]
    assert app.title[0].value == "Add data"
    assert "Import the samples" in [button.label for button in app.main.button]


def test_a_workspace_that_cannot_be_opened_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "what[ever]"))
    app.run()
    assert len(app.error) == 1
    assert "characters of a file pattern" in app.error[0].value
    assert not app.exception


def test_the_overview_counts_what_is_there(samples: Workspace, app: AppTest) -> None:
    app.switch_page(PAGES["overview"].file).run()
    totals = (
        Snapshot(samples)
        .sql(
            """select count(*) as n, sum(n_events) as events, count(*) filter (not passed) as failed,
        count(passed) as judged from traces"""
        )
        .to_pylist()[0]
    )
    shown = {metric.label: metric.value for metric in app.metric}
    assert shown["Traces"] == f"{totals['n']:,}"
    assert shown["Events"] == f"{int(totals['events']):,}"
    assert shown["Failed"] == f"{totals['failed']:,} of {totals['judged']:,}"


def test_the_trace_page_shows_the_event_of_the_address(samples: Workspace, app: AppTest) -> None:
    trace_id = Snapshot(samples).sql("select trace_id from traces order by trace_id limit 1")["trace_id"][0].as_py()
    trace = Snapshot(samples).trace(trace_id)
    third = trace.events[2]
    app.query_params["trace"], app.query_params["event"], app.query_params["view"] = trace_id, third.event_id, "events"
    app.switch_page(PAGES["trace"].file).run()
    assert any(caption.value == f"event 3 of {len(trace.events)}" for caption in app.caption)
    assert not app.exception


def test_selecting_a_row_of_the_events_shows_that_event(samples: Workspace, app: AppTest) -> None:
    trace_id = Snapshot(samples).sql("select trace_id from traces order by trace_id limit 1")["trace_id"][0].as_py()
    app.query_params["trace"], app.query_params["view"] = trace_id, "events"
    app.switch_page(PAGES["trace"].file).run()
    app.session_state["table.events"] = {"selection": {"rows": [4], "columns": [], "cells": []}}
    app.run()
    assert any(caption.value.startswith("event 5 of") for caption in app.caption)


def test_an_event_that_is_not_there_is_named(samples: Workspace, app: AppTest) -> None:
    trace_id = Snapshot(samples).sql("select trace_id from traces limit 1")["trace_id"][0].as_py()
    app.query_params["trace"], app.query_params["event"] = trace_id, "no-such-event"
    app.switch_page(PAGES["trace"].file).run()
    assert "no event" in app.warning[0].value


def test_a_label_says_who_and_leads_to_its_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    trace = next(t for t in simulate(SimulationPolicy(n_tasks=1), seed=7) if t.groups.condition == "serial-collapse")
    (label,) = trace.labels
    (tmp_path / "one.jsonl").write_bytes(model.encode(trace) + b"\n")
    workspace = Workspace(tmp_path / "w", create=True)
    import_paths(workspace, [tmp_path / "one.jsonl"])
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    app.query_params["trace"], app.query_params["view"] = trace.trace_id, "claims"
    app.switch_page(PAGES["trace"].file).run()
    assert app.markdown[-1].value == "**simulation** · planted\\: planner"
    assert app.text[-1].value == label.text
    app.button(key="trace.label.0").click().run()
    assert app.query_params["event"] == label.event_id == "planner.2"


def test_a_trace_without_events_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    file = tmp_path / "bare.jsonl"
    file.write_bytes(model.encode(model.Trace(trace_id="counterpoint:bare", world="recorded")) + b"\n")
    workspace = Workspace(tmp_path / "w", create=True)
    import_paths(workspace, [file])
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    for view in ("lanes", "graph", "events", "claims", "record"):
        app.query_params["trace"], app.query_params["view"] = "counterpoint:bare", view
        app.switch_page(PAGES["trace"].file).run()
        assert not app.exception, view
    assert not app.error


def test_a_long_text_is_shown_in_parts_and_says_how_long_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest
) -> None:
    event = model.Event(event_id="e1", kind="act", agent_id="a", content="word " * 20_000)
    trace = model.Trace(trace_id="counterpoint:long", world="recorded", events=(event,))
    (tmp_path / "long.jsonl").write_bytes(model.encode(trace))
    workspace = Workspace(tmp_path / "w", create=True)
    import_paths(workspace, [tmp_path / "long.jsonl"])
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    app.query_params["trace"], app.query_params["view"] = trace.trace_id, "events"
    app.switch_page(PAGES["trace"].file).run()
    assert any("of 100,000" in caption.value for caption in app.caption)
    assert len(app.code[0].value) == 20_000


def test_tags_can_be_set_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    traces = [model.Trace(trace_id=f"counterpoint:t{n}", world="recorded") for n in range(3)]
    (tmp_path / "three.jsonl").write_bytes(b"\n".join(model.encode(trace) for trace in traces))
    workspace = Workspace(tmp_path / "w", create=True)
    import_paths(workspace, [tmp_path / "three.jsonl"])
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    app.switch_page(PAGES["traces"].file).run()
    app.session_state["table.traces"] = {"selection": {"rows": [0, 2], "columns": [], "cells": []}}
    app.run()
    app.text_input(key="traces.tag").set_value("to review").run()
    app.button(key="traces.tag_them").click().run()
    tagged = Snapshot(workspace).sql("select trace_id, tag from current_tags order by trace_id").to_pylist()
    assert tagged == [{"trace_id": f"counterpoint:t{n}", "tag": "to review"} for n in (0, 2)]
    before = workspace.head().data_version
    app.query_params["trace"] = "counterpoint:t0"
    app.switch_page(PAGES["trace"].file).run()
    app.button_group(key="notes.counterpoint:t0..tags").set_value([]).run()
    assert Snapshot(workspace).sql("select trace_id from current_tags")["trace_id"].to_pylist() == ["counterpoint:t2"]
    assert workspace.head().data_version == before
    assert len(workspace.head().tables["decisions"]) == 2
