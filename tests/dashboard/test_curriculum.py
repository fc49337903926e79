"""The page Curriculum: figures say what their frames say, each view leads on, is empty in words, and keeps its address."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.curation.curriculum.pass_tables import PassRow
from analysis.curation.curriculum.stages import STAGES, Reference
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.curriculum import add_pass_table
from analysis.workspace import Workspace
from dashboard.figures.curriculum import (
    MAX_MODELS,
    difficulty_map,
    effective_tasks,
    family_weights,
    mass_by_stage,
    model_map,
    places_of,
    stages_by_model,
)
from dashboard.selection import PAGES
from tests.pipeline.corpus import write_traces
from tests.pipeline.test_curriculum import OUTCOMES, WORKERS
from tests.pipeline.trials import trials

FILE = PAGES["curriculum"].file
REFERENCE = Reference(name="medians", version="v", tau_r=0.6, tau_o=0.1)
ROWS = pd.DataFrame({
    "task_id": ["<b>t1</b>", "t2", "t3", "t4"], "model": ["m", "m", "n", "o"], "stage": ["warmup", "warmup", "integrated", None],
    "d_req": [0.3, 0.3, 0.9, 0.5], "low": [0.1, 0.1, None, 0.2], "high": [0.6, 0.6, None, 0.8], "n": [4, 4, 0, 4],
    "d_orch": [0.0, 0.0, 0.4, None], "source": ["live attempts", "live attempts", "predicted", "pass table"],
})  # fmt: skip


def test_tasks_with_the_same_numbers_are_one_mark_and_a_selected_one_has_its_interval() -> None:
    places = places_of(ROWS)
    figure = difficulty_map(places, REFERENCE, selected="0.000000|0.300000|4")
    marks = {trace.name: trace for trace in figure.data}
    assert list(marks) == ["warmup", "integrated, predicted", "95 % interval"]
    assert (list(marks["warmup"].x), list(marks["warmup"].y)) == ([0.0], [0.3])
    assert marks["warmup"].customdata.tolist() == [["0.000000|0.300000|4"]]
    assert marks["warmup"].text[0] == (
        "d_req 0.300 (0.10 to 0.60; 4 attempts), d_orch 0.000<br>&lt;b&gt;t1&lt;/b&gt;, m<br>t2, m"
    )
    assert marks["integrated, predicted"].marker.symbol == "triangle-up-open"
    error = marks["95 % interval"].error_y
    assert (list(error.array), list(error.arrayminus)) == ([pytest.approx(0.3)], [pytest.approx(0.2)])
    lines = {(shape.x0, shape.y0) for shape in figure.layout.shapes}
    assert (REFERENCE.tau_o, 0) in lines
    assert (0, REFERENCE.tau_r) in lines
    assert [note.text.split("</b>")[0][3:] for note in figure.layout.annotations] == list(STAGES)


def test_stages_by_model_are_shares_of_the_models_that_have_some() -> None:
    figure = stages_by_model(ROWS, selected="n")
    assert {bar.name: list(bar.x) for bar in figure.data} == {"warmup": [1.0, 0.0], "integrated": [0.0, 1.0]}
    assert list(figure.layout.yaxis.ticktext) == ["m", "<b>n</b>"]
    assert figure.layout.title.subtitle.text == "colours as beside · 2 of 3 models or conditions"
    many = pd.DataFrame({"model": [f"m{n:03d}" for n in range(MAX_MODELS + 5)], "stage": "warmup"})
    assert len(stages_by_model(many).data[0].x) == MAX_MODELS


def test_mass_and_sizes_draw_what_they_are_given() -> None:
    mass = pd.DataFrame({stage: [0.25, n / 4] for n, stage in enumerate(STAGES)}, index=[0.0, 1.0])
    assert {area.name: list(area.y) for area in mass_by_stage(mass).data} == {s: [0.25, n / 4] for n, s in enumerate(STAGES)}
    figure = effective_tasks(pd.Series([2.0, 3.0], index=[0.0, 1.0]), 4)
    assert (list(figure.data[0].y), figure.layout.shapes[0].y0) == ([2.0, 3.0], 4)


def test_families_are_ordered_by_weight_with_their_passes() -> None:
    families = pd.DataFrame({"family_id": ["f", "g"], "name": ["first", "second"], "n_passed": [0, 2], "n": [4, 4]})
    figure = family_weights({"f": 0.3, "g": 0.7}, families)
    assert (list(figure.data[0].x), list(figure.data[0].text)) == ([0.7, 0.3], ["2 of 4 pass", "0 of 4 pass"])
    assert list(figure.layout.yaxis.ticktext) == ["second", "first"]


def test_models_without_any_correlation_are_left_out_of_their_map() -> None:
    names = ["a", "b", "c"]
    values = np.array([[1.0, 0.4, np.nan], [0.4, 1.0, np.nan], [np.nan, np.nan, 1.0]])
    figure = model_map(pd.DataFrame(values, index=names, columns=names))
    assert [list(line) for line in figure.data[0].z] == [[1.0, 0.4], [0.4, 1.0]]
    assert figure.layout.title.subtitle.text.endswith("2 of 3 models or conditions")


@pytest.fixture(scope="module")
def tried_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four tasks tried four times by two teams, and a table of two models with six tasks of its own."""
    folder = tmp_path_factory.mktemp("tried")
    workspace = Workspace(folder / "w", create=True)
    import_paths(workspace, [write_traces(folder / "runs.jsonl", trials(OUTCOMES, workers=WORKERS))])
    analyse(workspace)
    add_pass_table(workspace, [PassRow(f"p{n}", model, 10, n + k) for n in range(6) for k, model in enumerate(("x", "y"))])
    analyse(workspace, only=["curriculum"])
    return workspace.location


@pytest.fixture
def tried(tried_folder: str, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", tried_folder)
    return Workspace(tried_folder)


def test_the_first_screen_counts_the_stages_and_lists_the_hardest_first(tried: Workspace, app: AppTest) -> None:
    app.switch_page(FILE).run()
    assert not app.exception
    said = [markdown.value.replace("\\", "") for markdown in app.markdown]
    assert any("8 tasks and models in a stage: 3 warmup, 1 individual, 1 orchestration, 3 integrated." in line for line in said)
    assert any(caption.value.startswith("Model or condition: the models that the agents") for caption in app.caption)
    assert {"Model or condition"} <= set(app.dataframe[-1].value.columns)
    assert any("medians of 8 tasks and models" in caption.value.replace("\\", "") for caption in app.caption)
    stages, tasks = (frame.value for frame in app.dataframe)
    assert dict(zip(stages["Stage"], stages["Tasks"], strict=True)) == {
        "warmup": 3, "individual": 1, "orchestration": 1, "integrated": 3
    }  # fmt: skip
    assert len(tasks) == 8 + 12
    assert tasks["d_req"].dropna().is_monotonic_decreasing


def test_the_address_chooses_model_stage_and_place(tried: Workspace, app: AppTest) -> None:
    for name, value in (("model", "solo"), ("stage", "individual"), ("place", "0.000000|0.900000|4")):
        app.query_params[name] = value
    app.switch_page(FILE).run()
    assert not app.exception
    assert list(app.dataframe[-1].value["Task"]) == ["t4"]
    assert any("4 attempts" in m.value and "0.56 to 1.00" in m.value.replace("\\", "") for m in app.markdown)
    links = [link.proto for link in app.get("page_link")]
    assert any("8 runs of t4" in link.label.replace("\\", "") for link in links)
    assert any("task" in link.query_string and "t4" in link.query_string for link in links)


def test_sliders_set_the_schedule_and_the_address(tried: Workspace, app: AppTest) -> None:
    app.query_params["view"], app.query_params["eps"] = "schedule", "1.0"
    app.switch_page(FILE).run()
    assert not app.exception
    assert {slider.label: slider.value for slider in app.slider} == {
        "First centre (m0)": 0.2, "Last centre (m1)": 0.8, "Width (h)": 0.2, "Replay floor (eps)": 1.0
    }  # fmt: skip
    assert any("Each of the 8 tasks keeps at least 0.12 of the draws" in caption.value for caption in app.caption)
    app.slider(key="url.eps").set_value(0.4).run()
    assert app.query_params["eps"] == "0.4"
    assert any("at least 0.05 of the draws" in caption.value for caption in app.caption)
    assert any("Effective number of families" in caption.value for caption in app.caption)


def test_models_are_compared_within_one_source_of_attempts(tried: Workspace, app: AppTest) -> None:
    app.query_params["view"], app.query_params["source"] = "models", "pass table"
    app.switch_page(FILE).run()
    assert not app.exception
    assert any("mean 1.00, least 1.00, largest 1.00, over 1 pairs" in m.value for m in app.markdown)
    assert list(app.dataframe[0].value["Model or condition"]) == ["x", "y"]
    app.query_params["source"] = "simulated attempts"
    app.run()
    assert any("No two models or conditions share five tasks" in info.value for info in app.info)


def test_pass_tables_can_be_brought_and_dropped(tried: Workspace, app: AppTest) -> None:
    app.query_params["view"] = "tables"
    app.switch_page(FILE).run()
    assert any(caption.value.startswith("12 tasks and models are stated by tables") for caption in app.caption)
    assert "Forget them" in [button.label for button in app.main.button]


def test_each_kind_of_nothing_is_said_in_words(
    samples: Workspace, app: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.switch_page(FILE).run()
    assert [info.value for info in app.info] == ["Difficulty is not worked out yet."]
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "empty"))
    app.switch_page(FILE).run()
    assert [info.value[:23] for info in app.info] == ["The workspace is empty."]
    once = Workspace(tmp_path / "once", create=True)
    import_paths(once, [write_traces(tmp_path / "runs.jsonl", trials({("t", "solo"): "1"}))])
    analyse(once)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", once.location)
    app.switch_page(FILE).run()
    assert any("Import more attempts at these tasks" in info.value for info in app.info)
    table = Workspace(tmp_path / "table", create=True)
    add_pass_table(table, [PassRow("t", "m", 8, 3)])
    analyse(table)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", table.location)
    app.switch_page(FILE).run()
    assert any("No task has a d_orch" in info.value for info in app.info)
    assert not app.exception
