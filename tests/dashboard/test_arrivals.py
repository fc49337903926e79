"""Add data: a team that is let run comes back as traces, and a form that cannot be run says why."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis.workspace import Snapshot, Workspace
from dashboard import jobs
from dashboard.selection import PAGES
from tests.counterfactual.endpoint import serving


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


def _read(text: str) -> str:
    """A message as a person reads it."""
    return re.sub(r"[\\\u2060]", "", text)


def _finished(location: str, job_id: str) -> jobs.Job:
    end = time.monotonic() + 120
    while jobs.state(location, job_id).state == "running" and time.monotonic() < end:
        time.sleep(0.5)
    return jobs.state(location, job_id)


def _team_file(url: str, key_env: str | None = "LOOPBACK_KEY") -> bytes:
    key = f"key_env = '{key_env}'\n" if key_env else ""
    text = f"layout = 'single'\nlead = 'solo'\n[live.solo]\nbase_url = '{url}'\nmodel = 'm <b>'\nmax_tokens = 50\n{key}"
    return f"about = 'A model.'\n{text}".encode()


def test_a_team_of_ones_own_with_a_model_runs_within_its_budget_and_goes_on_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest
) -> None:
    pytest.importorskip("openai", reason="live agents need the package openai (extra `live`)")
    location = str(Workspace(tmp_path / "w", create=True).location)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", location)
    monkeypatch.setenv("LOOPBACK_KEY", "sk-1")
    with serving(answer=lambda body: '{"text": "No.", "choice": "stop", "program": "x = 1"}') as server:
        app.switch_page(PAGES["add_data"].file).run()
        app.file_uploader(key="add_data.team_files").set_value([("model.toml", _team_file(server.url), "application/toml")]).run()
        app.multiselect(key="add_data.teams").set_value([])
        app.selectbox(key="add_data.shape").set_value("chain-3")
        app.number_input(key="add_data.n_tasks").set_value(1)
        app.number_input(key="add_data.n_trials").set_value(1)
        app.number_input(key="add_data.n_tokens").set_value(1)
        next(button for button in app.button if button.label == "Run").click().run()
        (job,) = jobs.all_jobs(location)
        assert _finished(location, job.job_id).state == "done"
        app.query_params["job"] = job.job_id
        app.run()
        assert not app.exception
        assert server.log == []
        assert any("1 runs are left: budget: too little is left" in _read(warning.value) for warning in app.warning)
        app.number_input(key="add_data.more_tokens").set_value(100_000)
        app.button(key="add_data.go_on").click().run()
        assert _finished(location, job.job_id).state == "done"
        assert len(server.log) == 6
    app.run()
    assert app.success[0].value == "1 runs made, 0 were there, 0 left; 300 tokens."
    assert any(caption.value == "Models so far: 6 calls, 300 tokens." for caption in app.caption)
    rows = Snapshot(Workspace(location)).sql("select condition, world from traces").to_pylist()
    assert rows == [{"condition": "model", "world": "live"}]


def test_the_form_says_where_a_key_must_be_and_what_is_wrong_with_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest
) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "w"))
    monkeypatch.setenv("HERE_KEY", "sk-secret")
    app.switch_page(PAGES["add_data"].file).run()
    files = {
        "here.toml": _team_file("https://h/v1", "HERE_KEY"), "gone.toml": _team_file("https://h/v1", "GONE_KEY"),
        "open.toml": _team_file("http://127.0.0.1:1/v1", None), "odd.toml": b"about = 3", "a b.toml": b"about = 'x'",
        "trained.toml": b"about = 'x'\nlayout = 'single'\nlead = 'solo'\n[trained]\nsolo = 'policy.json'",
        "policy.json": b'{"format": "counterpoint-policy/1", "purposes": ["write"]}',
    }  # fmt: skip
    app.file_uploader(key="add_data.team_files").set_value([(n, data, "text/plain") for n, data in files.items()]).run()
    assert not app.exception
    infos, warnings, errors = ([_read(one.value) for one in kind] for kind in (app.info, app.warning, app.error))
    assert any("here: solo is the model m" in text and "HERE_KEY of this server, and is sent there" in text for text in infos)
    assert any("open: solo" in text and "No key is sent to it." in text for text in infos)
    assert any("start the server with it in the environment variable GONE_KEY" in text for text in warnings)
    assert any(text.startswith("odd.toml: about: a field does not have its shape") for text in errors)
    assert any(text.startswith("a b.toml: rename it") for text in errors)
    assert len(errors) == 2
    assert "sk-secret" not in str(app)


def test_without_a_team_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "w"))
    app.switch_page(PAGES["add_data"].file).run()
    app.multiselect(key="add_data.teams").set_value([])
    next(button for button in app.button if button.label == "Run").click().run()
    assert [error.value for error in app.error] == ["Choose at least one team."]
    assert jobs.all_jobs(str(tmp_path / "w")) == []
