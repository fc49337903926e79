"""Add data: a team that is let run comes back as traces, and a form that cannot be run says why."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis.workspace import Snapshot, Workspace
from dashboard import jobs
from dashboard.selection import PAGES


def test_teams_run_from_the_form_and_their_traces_come_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    location = str(Workspace(tmp_path / "w", create=True).location)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", location)
    app.switch_page(PAGES["add_data"].file).run()
    app.multiselect(key="add_data.teams").set_value(["parallel"])
    app.selectbox(key="add_data.shape").set_value("chain-3")
    app.number_input(key="add_data.n_tasks").set_value(1)
    app.number_input(key="add_data.n_trials").set_value(1)
    next(button for button in app.button if button.label == "Run").click().run()
    (job,) = jobs.all_jobs(location)
    end = time.monotonic() + 120
    while jobs.state(location, job.job_id).state == "running" and time.monotonic() < end:
        time.sleep(0.5)
    assert jobs.state(location, job.job_id).state == "done", jobs.state(location, job.job_id).text
    app.query_params["job"] = job.job_id
    app.run()
    assert not app.exception
    assert app.success[0].value.startswith("2 runs made")
    rows = Snapshot(Workspace(location)).sql("select condition, world from traces order by condition").to_pylist()
    assert [(row["condition"], row["world"]) for row in rows] == [("parallel", "simulated"), ("single", "simulated")]


def test_without_a_team_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "w"))
    app.switch_page(PAGES["add_data"].file).run()
    app.multiselect(key="add_data.teams").set_value([])
    next(button for button in app.button if button.label == "Run").click().run()
    assert [error.value for error in app.error] == ["Choose at least one team."]
    assert jobs.all_jobs(str(tmp_path / "w")) == []
