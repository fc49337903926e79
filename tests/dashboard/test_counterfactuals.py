"""The page Counterfactuals: credit keeps its sign, evidence stays apart, and each view leads on and says what it cannot show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.counterfactual.pairing import Pair
from analysis.counterfactual.study import CONFIRM, SCREEN
from analysis.pipeline.effects import store_effects
from analysis.workspace import Snapshot, Workspace
from dashboard import jobs, loading
from dashboard.figures import effects as figures
from dashboard.loading import effects as studies
from dashboard.selection import PAGES
from tests.dashboard import studied
from tests.dashboard.visiting import opened

FILE = PAGES["counterfactuals"].file
FAILED = "failed"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> studied.Studied:
    return studied.make(tmp_path_factory.mktemp("studied"))


@pytest.fixture
def there(made: studied.Studied, monkeypatch: pytest.MonkeyPatch) -> studied.Studied:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", made.location)
    return made


def row(delta_q: float, low: float | None = None, high: float | None = None, **fields: Any) -> dict[str, Any]:
    same = {"label": "delay at act", "key": ["delay", "act"], "n": 24, "n_tasks": 6, "unit": "tasks", "how": "sign-flip"}
    rest = {"evidence": "interventional", "world": "simulated", "better": "higher", "credit": -delta_q}
    return {**same, **rest, "delta_q": delta_q, "low": low, "high": high, **fields}


def pair(task: str, operator: str, delta: float, *, block: str = SCREEN, number: int = 0, trace_id: str = "") -> Pair:
    q = {"passed": 0.0 if delta > 0 else 1.0}
    return Pair(
        trace_id=trace_id or task, task=task, event_id="e", event_kind="act", operator=operator, parameters="{}",
        seed_block=block, number=number, q=q, q_counterfactual={"passed": q["passed"] + delta}, n_changed=1, cost_tokens=10,
        cost_s=1.0,
    )  # fmt: skip


def test_a_forest_keeps_evidences_in_panels_of_their_own_and_says_which_side_is_better() -> None:
    rows = [row(-0.5, -0.8, -0.2), row(0.3, 0.1, 0.5, key=["stop-later", "stop"]), row(0.1, evidence="simulated", n_tasks=4)]
    figure = figures.forest(pd.DataFrame(rows), "passed", title="t", selected=["delay", "act"])
    marks = [(trace.name, trace.xaxis, list(trace.x)) for trace in figure.data if trace.name]
    assert marks == [("better", "x", [0.3]), ("worse", "x", [-0.5]), ("no interval", "x2", [0.1])]
    assert [note.text.split(",")[0] for note in figure.layout.annotations] == ["interventional", "simulated"]
    assert figure.data[1].customdata == (["delay", "act"],)
    rings = [list(trace.x) for trace in figure.data if trace.marker.symbol == "circle-open" and trace.marker.size == 22]
    assert rings == [[-0.5], [0.1]]
    lower = figures.forest(pd.DataFrame([row(-0.5, -0.8, -0.2, better="lower")]), "tokens", title="t")
    assert lower.data[0].name == "better"
    assert "left of 0" in lower.layout.title.subtitle.text


def test_a_row_without_an_interval_says_why() -> None:
    whys = [row(0.1, 0.0, 0.2), row(0.1, n_tasks=4), row(0.0, how="alike"), row(0.2, how="alike"), row(0.1, unit="pairs", n=3)]
    assert [figures.why_no_interval(one) for one in whys] == [
        "", "no interval: 4 tasks, 6 needed", "no pair differs", "no interval: all tasks alike",
        "no interval: one task, 3 of 6 pairs",
    ]  # fmt: skip


def test_the_stop_curve_goes_through_the_run_as_it_was_and_draws_single_decisions() -> None:
    cells = pd.DataFrame([
        {"label": name, "evidence": "interventional", "world": "simulated", "n": 4, "delta_q_gain": gain, "low_gain": None,
         "high_gain": None, "delta_q_cost": cost, "low_cost": cost - 1, "high_cost": cost + 1}
        for name, gain, cost in (("stop-later at stop", 0.2, 50.0), ("stop-earlier at act", -0.5, -30.0))
    ])  # fmt: skip
    events = cells[["evidence", "world", "delta_q_gain", "delta_q_cost"]].assign(hover="x")
    single, line, *marks = figures.stop_curve(cells, events, gain="passed", cost="tokens").data
    assert list(single.x) == [50, -30]
    assert list(zip(line.x, line.y, strict=True)) == [(-30, -0.5), (0, 0), (50, 0.2)]
    assert [mark.name for mark in marks] == ["the run as it was", "stop-earlier at act: 4 pairs", "stop-later at stop: 4 pairs"]
    assert marks[1].error_y.visible is False
    assert list(marks[1].error_x.array) == [1]


def test_credit_is_the_negative_effect_over_the_changes_tried_by_their_pairs(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w", create=True)
    same = {"trace_id": "t", "task": "k", "event_kind": "act", "world": "simulated", "evidence": "interventional"}
    rows = [
        {**same, "event_id": "e", "operator": operator, "parameters": "{}", "metric": metric, "n": n, "delta_q": d, "credit": -d,
         "seed_block": block, "confirmed": block == CONFIRM, "cost_tokens": 1}
        for operator, metric, block, n, d in (
            ("assign", "passed", SCREEN, 4, 0.9), ("assign", "passed", CONFIRM, 1, -0.4), ("delay", "passed", SCREEN, 3, -0.6),
            ("delay", "tokens", SCREEN, 2, -50.0),
        )
    ]  # fmt: skip
    run = {"seed": 0, "n_traces": 1, "n_pairs": 9, "n_left": 0, "cost_tokens": 9, "is_sound": True}
    run |= dict.fromkeys(("controls", "cells", "notes"), "[]") | {"refused": "{}"}
    store_effects(workspace, "s", rows, run)
    store_effects(workspace, "unsound", [row | {"credit": 9.0, "delta_q": -9.0} for row in rows], run | {"is_sound": False})
    version = loading.Version(workspace.location, workspace.head().number)
    found = studies.credits(version, "t").set_index("metric")
    # C25: replay counts 1 and 3 on alternatives that lose 0.4 and 0.6; the screening of what was confirmed does not count.
    assert found.loc["passed", "credit"] == pytest.approx((0.4 + 3 * 0.6) / 4)
    assert found.loc["passed", ["n", "n_changes", "confirmed", "verdict"]].tolist() == [4, 2, True, "helped"]
    assert found.loc["tokens", ["credit", "verdict"]].tolist() == [50.0, "hurt"]
    shown = studies.effect_rows(version, "s", "passed")
    assert (shown["credit"] == -shown["delta_q"]).all()
    assert shown[["operator", "state", "verdict"]].values.tolist() == [
        ["assign", "confirmed", "helped"], ["assign", "screened", "hurt"], ["delay", "screened", "helped"],
    ]  # fmt: skip
    assert studies.data_set_rows(shown)["delta_q"].tolist() == [-0.4, 0.9, -0.6]
    assert {"q_value"} == {"q", "q_value", "p_adjusted"} & set(shown.columns)


def test_evidence_that_arrives_counts_each_task_once_and_only_when_it_is_whole() -> None:
    pairs = [pair("a", "delay", 0.0), pair("a", "stop", -1.0), pair("a", "stop", 0.0, trace_id="a2"), pair("b", "stop", -1.0)]
    found = studies.arriving_by_task(pairs)
    assert {name: table[["n", "delta_q"]].values.tolist() for name, table in found.items()} == {
        "delay": [[1, 0.0]], "stop": [[1, -0.5]],
    }  # fmt: skip
    more = [*pairs, pair("a", "stop", 1.0, number=1)]
    assert studies.arriving_by_task(more)["stop"]["delta_q"].tolist() == [-0.5, -0.75]
    fresh = [pair("a", "stop", -1.0, block=CONFIRM, number=n) for n in range(15)]
    decisions = studies.arriving_by_decision([*more, *fresh, pair("b", "delay", 0.0, block=CONFIRM)])
    assert decisions[["operator", "n", "is_found"]].values.tolist() == [["stop", 15, True], ["delay", 1, False]]


def shown(app: AppTest, **parameters: str) -> AppTest:
    opened(app, "counterfactuals", **parameters)
    assert not [error.value for error in app.error if "Do not believe" not in error.value]
    return app


@pytest.mark.parametrize("study", [studied.EXECUTED, studied.RECORDED])
@pytest.mark.parametrize("view", ["effects", "trace", "stop", "budget"])
def test_each_view_of_each_study_runs(there: studied.Studied, app: AppTest, view: str, study: str) -> None:
    shown(app, view=view, study=study)


def test_effects_list_what_is_confirmed_first_with_its_word_and_lead_to_the_trace(there: studied.Studied, app: AppTest) -> None:
    shown(app, study=studied.EXECUTED, operator="aggregate", kind="aggregate")
    table = next(frame.value for frame in app.dataframe if "Credit" in frame.value)
    assert set(table["Change"]) == {"aggregate"}
    assert table["State"].iloc[0] == "confirmed"
    assert (table["Credit"] == -table["ΔQ of the change"]).all()
    app.session_state["table.effects"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    app.run()
    assert [app.query_params[name] for name in ("view", "operator", "event")] == ["trace", "aggregate", "merge:2"]


def test_a_change_is_made_again_and_lies_beside_the_run_as_it_was(there: studied.Studied, app: AppTest) -> None:
    version = loading.version()
    rows = studies.effect_rows(version, studied.EXECUTED, "passed")
    first = rows[rows["operator"] == "stop-earlier"].iloc[0]
    given = {"trace": first["trace_id"], "event": first["event_id"], "operator": first["operator"], "change": "{}"}
    shown(app, view="trace", study=studied.EXECUTED, metric="passed", pair="1", **given)
    assert any("credit +0.8333; higher is better" in text.value.replace("\\", "") for text in app.markdown)
    beside = next(frame.value for frame in app.dataframe if "B - A" in frame.value).set_index("Metric")
    mine = (first["trace_id"], first["event_id"], "stop-earlier", first["seed_block"], 1)
    stored = next(p for p in there.study.pairs if (p.trace_id, p.event_id, p.operator, p.seed_block, p.number) == mine)
    assert beside["A"].to_dict() == pytest.approx(stored.q)
    assert beside["B"].dropna().to_dict() == pytest.approx(stored.q_counterfactual)


def test_a_recorded_change_is_worked_out_and_what_cannot_be_says_why(there: studied.Studied, app: AppTest) -> None:
    change = studies.effect_rows(loading.version(), studied.RECORDED, "makespan_s").iloc[0]
    given = {"trace": change["trace_id"], "event": "a", "operator": "delay", "change": change["parameters"]}
    shown(app, view="trace", study=studied.RECORDED, metric="makespan_s", **given)
    assert any("lower is better, so the decision taken helped" in text.value.replace("\\", "") for text in app.markdown)
    beside = next(frame.value for frame in app.dataframe if "B - A" in frame.value).set_index("Metric")
    assert beside.loc["makespan_s", ["A", "B"]].tolist() == [12.0, pytest.approx(13.2)]
    # A study may have been made with runs that are there no more as they were.
    row = change.to_dict() | {"event_id": "join", "operator": "advance", "parameters": "{}"}
    workspace = Workspace(there.location)
    run = Snapshot(workspace).sql("select * from effect_runs where study = 'recorded'").to_pylist()[0]
    names = [name for name in Snapshot(workspace).sql("select * from effects limit 0").column_names if name != "study"]
    store_effects(workspace, "odd", [{name: row[name] for name in names}], {k: v for k, v in run.items() if k != "study"})
    shown(app, view="trace", study="odd", event="join", operator="advance", change="{}")
    assert "begins as early as its causes and its agent allow" in app.warning[0].value.replace("\\", "")


def test_a_batch_that_fails_its_controls_is_marked_with_which(there: studied.Studied, app: AppTest) -> None:
    workspace = Workspace(there.location)
    run = Snapshot(workspace).sql("select * exclude (study) from effect_runs where study = 'executed'").to_pylist()[0]
    controls = json.loads(run["controls"])
    controls[0] |= {"ok": False, "note": "3 of 4 pairs are exactly alike"}
    store_effects(workspace, FAILED, [], run | {"is_sound": False, "controls": json.dumps(controls)})
    for view in ("effects", "budget"):
        shown(app, study=FAILED, view=view)
        assert (
            app.error[0]
            .value.replace("\\", "")
            .startswith("Do not believe it: this batch fails its controls. identity: 3 of 4 pairs are exactly alike")
        )
    table = next(frame.value for frame in app.dataframe if "What came out" in frame.value)
    assert table["State"].tolist() == ["FAILS", *["holds"] * 4]


def test_observed_pairs_say_that_nothing_was_changed(there: studied.Studied, app: AppTest) -> None:
    shown(app, view="observed", metric="makespan_s")
    table = next(frame.value for frame in app.dataframe if "Factor" in frame.value)
    assert table[["Factor", "From level", "To level", "Evidence"]].values.tolist() == [
        ["topology", "chain", "tree", "observational"]
    ]
    assert any("this is no effect of the setting" in caption.value for caption in app.caption)


def test_the_form_counts_what_can_be_executed_and_refuses_what_it_cannot_start(there: studied.Studied, app: AppTest) -> None:
    shown(app, view="new")
    assert any(text.value.startswith("**3 traces** fit. **1** were made") for text in app.markdown)
    app.text_input(key="study.name").set_value(" ")
    next(button for button in app.button if button.label == "Start").click().run()
    assert [error.value for error in app.error] == ["Give the study a name and at least one kind of change\\."]
    assert jobs.all_jobs(there.location) == []


def test_before_the_first_study_the_page_says_what_one_does(samples: Workspace, app: AppTest) -> None:
    shown(app)
    assert app.info[0].value.startswith("No study was made here yet")
    assert "Start" in [button.label for button in app.button]


def test_the_trace_page_tells_and_colours_by_credit(there: studied.Studied, app: AppTest) -> None:
    change = studies.effect_rows(loading.version(), studied.EXECUTED, "passed").iloc[0]
    app.query_params["trace"], app.query_params["event"] = change["trace_id"], change["event_id"]
    app.query_params["color"], app.query_params["study"] = "credit", studied.EXECUTED
    app.switch_page(PAGES["trace"].file).run()
    assert not app.exception
    assert any(text.value.startswith("credit +1 in passed: helped (1 change tried, 6 pairs, confirmed") for text in app.text)
    drawn = json.loads(studies.credit_lanes(loading.version(), change["trace_id"], studied.EXECUTED, "passed")[16:])
    ids = [event.event_id for event in loading.trace(loading.version(), change["trace_id"]).events]
    measured = {ids[int(n)]: color for n, (color, _) in drawn["credit"].items()}
    assert measured["merge:2"] == figures.HELPED.lower()
    assert measured["merge"] == figures.NEUTRAL.lower()
    assert "plan" not in measured
    assert [word for _, word in drawn["swatches"]] == ["helped", "hurt", "no effect", "not measured"]
