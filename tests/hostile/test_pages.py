"""Odd traces are accounted for and shown: no page fails on any of them, however deep, wide, large or wrong."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from streamlit.testing.v1 import AppTest

from analysis import model
from analysis.pipeline import analyse, import_paths
from analysis.workspace import Snapshot, Workspace
from dashboard import check
from dashboard.selection import PAGES

APP = Path(check.__file__).with_name("app.py")
VIEWS = ("lanes", "graph", "events", "quality", "claims", "record")


def odd_spans() -> ModuleType:
    spec = importlib.util.spec_from_file_location("odd_spans", Path(__file__).parents[1] / "readers" / "odd_spans.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def open_views(trace_id: str, views: tuple[str, ...]) -> None:
    app = AppTest.from_file(str(APP), default_timeout=60)
    for view in views:
        app.query_params["trace"], app.query_params["view"] = trace_id, view
        app.switch_page(PAGES["trace"].file).run()
        assert not app.exception, (trace_id, view)
        assert not app.error, (trace_id, view)


@pytest.mark.parametrize("n_large", [1_200, pytest.param(3_000, marks=pytest.mark.soak)])
def test_every_odd_span_trace_is_imported_analysed_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_large: int
) -> None:
    odd = odd_spans()
    large = {"chain-3000": lambda: odd.chain(n_large), "fan-3000": lambda: odd.fan(n_large)}
    n_spans = {}
    for number, (name, spans) in enumerate(({name: spans for name, (spans, _) in odd.CASES.items()} | large).items()):
        made = spans()
        trace_id = f"{number + 1:032x}"
        n_spans[f"spans:{trace_id}"] = len({one.get("spanId") or n for n, one in enumerate(made)})
        (tmp_path / f"{name}.json").write_text(json.dumps(odd.request(made, trace_id=trace_id)), encoding="utf-8")
    workspace = Workspace(tmp_path / "w", create=True)
    report = import_paths(workspace, sorted(tmp_path.glob("*.json")))
    assert set(report.added) == set(n_spans)
    assert import_paths(workspace, sorted(tmp_path.glob("*.json"))).added == []
    analyse(workspace)
    snapshot = Snapshot(workspace)
    raw_ids = snapshot.sql("select trace_id, count(distinct raw_id) as n from events where raw_id is not null group by trace_id")
    for row in raw_ids.to_pylist():
        assert row["n"] >= n_spans[row["trace_id"]], row
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    assert check.failures() == {}
    for trace_id in n_spans:
        open_views(trace_id, ("lanes",))
    largest = snapshot.sql("select trace_id from traces order by n_events desc limit 2")["trace_id"].to_pylist()
    for trace_id in largest:
        open_views(trace_id, VIEWS)


@pytest.mark.parametrize("megabytes", [8, pytest.param(50, marks=pytest.mark.soak)])
def test_a_line_of_many_megabytes_loads_and_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int) -> None:
    event = model.Event(event_id="e", kind="act", action="note", agent_id="a", content="0123456789 " * (96_000 * megabytes))
    line = model.encode(model.Trace(trace_id="counterpoint:long", world="recorded", events=(event,)))
    assert len(line) > megabytes * 1024 * 1024
    (tmp_path / "long.jsonl").write_bytes(line)
    workspace = Workspace(tmp_path / "w", create=True)
    assert import_paths(workspace, [tmp_path / "long.jsonl"]).added == ["counterpoint:long"]
    analyse(workspace)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    open_views("counterpoint:long", VIEWS)


@pytest.mark.soak  # a chain deeper than Python recurses is among the odd traces
@pytest.mark.parametrize("n", [5_000, 20_000])
def test_a_long_chain_of_spans_is_imported_analysed_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    odd = odd_spans()
    (tmp_path / "chain.json").write_text(json.dumps(odd.request(odd.chain(n))), encoding="utf-8")
    workspace = Workspace(tmp_path / "w", create=True)
    (trace_id,) = import_paths(workspace, [tmp_path / "chain.json"]).added
    assert Snapshot(workspace).sql("select count(*) as n from events where raw_id is not null")["n"][0].as_py() >= n
    analyse(workspace)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    open_views(trace_id, ("lanes", "graph", "events"))
