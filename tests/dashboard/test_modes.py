"""The page Failure modes: figures say what their frames say, each state says what to do, and decisions are written."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.coherence.modes.decisions import Decision
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.modes import profiles_of
from analysis.workspace import Snapshot, Workspace
from dashboard import modes as drawing
from dashboard.figures.modes import MAX_CELLS, MAX_POINTS, MAX_VALUES, drawn, mode_map, profile, spread, two_modes
from dashboard.selection import PAGES
from tests.dashboard.visiting import opened
from tests.pipeline.corpus import write_traces
from tests.pipeline.teams import failing_teams

FILE = PAGES["modes"].file
MODES = pd.DataFrame(
    {"mode_id": ["m", "n"], "name": ["<b>first</b>", "second"], "jaccard": [0.9, 0.5], "size": [2, 1], "is_firm": [True, False]}
)
POINTS = pd.DataFrame({
    "trace_id": ["t1", "t2", "t3"], "mode_id": ["m", "n", "m"], "x": [0.1, 0.2, 0.3], "y": [1.0, 2.0, 3.0],
    "passed": [False, None, True], "domain": ["coding", None, None],
})  # fmt: skip
SHARES = pd.DataFrame(
    {"m": [0.5, 0.1, 0.4, 0.0], "n": [0.1, 0.5, 0.4, 0.0], "all": [0.3, 0.3, 0.3, 0.1]},
    index=["stop | error", "stop | finished", "errors | tool", "errors | none"],
)


def test_the_map_draws_each_mode_by_colour_and_shape_and_gives_trace_ids() -> None:
    first, second = mode_map(POINTS, MODES).data
    assert (list(first.x), list(first.y), first.customdata.tolist()) == ([0.1, 0.3], [1.0, 3.0], [["t1"], ["t3"]])
    assert (first.name, second.name) == ("&lt;b&gt;first&lt;/b&gt;", "second (not firm)")
    assert first.marker.color != second.marker.color
    assert (first.marker.symbol, second.marker.symbol) == ("circle", "square-open")
    assert first.text[0].endswith("failed, coding")
    assert list(second.text) == ["t2<br>second<br>no outcome, no domain"]


def test_of_many_traces_those_are_drawn_whose_ids_hash_lowest() -> None:
    many = pd.DataFrame({"trace_id": [f"t{n}" for n in range(MAX_POINTS + 500)], "mode_id": "m", "x": 0.0, "y": 0.0})
    kept = drawn(many)["trace_id"].tolist()
    assert len(set(kept)) == MAX_POINTS
    assert kept == drawn(many.iloc[::-1])["trace_id"].tolist()[::-1]
    assert kept == sorted(kept, key=lambda trace_id: int(trace_id[1:]))
    figure = mode_map(many.assign(passed=None, domain=None), MODES[:1])
    assert figure.layout.title.subtitle.text == f"{MAX_POINTS:,} of {MAX_POINTS + 500:,} traces, drawn by the hash of their id"


def test_a_profile_stands_beside_that_of_all_what_differs_most_on_top() -> None:
    figure = profile(SHARES, "m")
    everybody, mine = figure.data
    assert list(figure.layout.yaxis.ticktext) == ["stop, error", "stop, finished", "errors, tool", "errors, none"]
    assert (list(mine.x), list(everybody.x)) == ([0.5, 0.1, 0.4, 0.0], [0.3, 0.3, 0.3, 0.1])
    assert mine.hovertext[0] == "stop, error<br>this mode: 50.0%"


def test_of_many_cells_the_telling_ones_are_drawn_and_counted() -> None:
    many = pd.DataFrame({"m": [n / 100 for n in range(40)], "all": 0.0}, index=[f"errors | {n}" for n in range(40)])
    figure = profile(many, "m")
    assert list(figure.layout.yaxis.ticktext)[:2] == ["errors, 39", "errors, 38"]
    assert len(figure.data[0].x) == MAX_CELLS
    assert f"{MAX_CELLS} of 40 cells" in figure.layout.title.subtitle.text


def test_two_modes_are_drawn_cell_by_cell() -> None:
    figure = two_modes(SHARES, "m", "n", names={"m": "one", "n": "other"})
    marks = {trace.name: list(trace.x) for trace in figure.data if trace.mode == "markers"}
    assert marks == {"A: one": [0.5, 0.1, 0.4], "B: other": [0.1, 0.5, 0.4]}  # what neither has is left out
    assert [list(trace.x) for trace in figure.data if trace.mode == "lines"] == [[0.5, 0.1], [0.1, 0.5], [0.4, 0.4]]


def test_where_a_mode_occurs_has_counts_and_intervals_and_leaves_out_what_nobody_knows() -> None:
    rows = pd.DataFrame(
        [("format", "spans", 3, 4, 0.75, 0.3, 0.95, 0.5), ("format", "x", 1, 4, 0.25, 0.05, 0.7, 0.5),
         ("domain", "not known", 4, 4, 1.0, 0.5, 1.0, 1.0)],
        columns=["fact", "value", "n", "n_mode", "share", "low", "high", "share_of_all"],
    )  # fmt: skip
    figure = spread(rows)
    bar, everybody = figure.data
    assert (list(bar.x), list(bar.text), list(everybody.x)) == ([0.75, 0.25], ["3", "1"], [0.5, 0.5])
    assert list(bar.error_x.array) == pytest.approx([0.2, 0.45])
    assert bar.hovertext[0] == "format: spans: 3 of 4, 75% (30% to 95%); of all 50%"
    assert figure.layout.title.subtitle.text.endswith("· domain not known")
    many = pd.concat([rows[:1].assign(value=f"v{n}") for n in range(20)])
    assert len(spread(many).data[0].x) == MAX_VALUES
    assert f"{MAX_VALUES} of 20 values" in spread(many).layout.title.subtitle.text


def test_trust_is_said_in_words_with_its_numbers() -> None:
    run = {"stability": 0.86, "null_stability": 0.51, "spread_left": 0.3, "agreement": 0.45, "n_dense": 5,
           "n_sampled": 100, "n_profiles": 400}  # fmt: skip
    again, together, second, sample = drawing.trust(run, 4)
    assert "with 0.86 (1: the same groups; 0.6 is needed; 0.51 where cells are shuffled)" in again
    assert "30% of that" in together
    assert "finds 5 groups; adjusted Rand index with the modes 0.45" in second
    assert sample == "Learned from a random 100; all 400 were assigned."
    single = dict.fromkeys(run) | {"n_sampled": 4, "n_profiles": 4}
    assert drawing.trust(single, 1) == [
        "All profiles are alike: with a single mode there is no split whose stability could be measured."
    ]
    assert drawing.trust(run | {"agreement": None}, 2)[2] == "Second view: HDBSCAN finds no two groups."


def test_firmness_is_said_in_words() -> None:
    found = drawing.told(pd.DataFrame({"jaccard": [0.6, 0.59, None]}))
    assert found["is_firm"].tolist() == [True, False, None]
    assert found["firm"].tolist() == ["yes, 0.60", "not firm, 0.59", "not measured: a person made it"]


# --- the page


@pytest.fixture
def store(failing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    shutil.copytree(failing, tmp_path / "w")
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "w"))
    return Workspace(tmp_path / "w")


def shown(app: AppTest, **address: str) -> AppTest:
    opened(app, "modes", **address)
    assert not app.error
    return app


def ids_by_name(store: Workspace, source: str = "residual") -> dict[str, str]:
    rows = Snapshot(store).sql("select name, mode_id from modes where source = $s", {"s": source}).to_pylist()
    return {row["name"]: row["mode_id"] for row in rows}


def lasso(app: AppTest, *trace_ids: str) -> None:
    points = [{"customdata": [trace_id], "point_index": n} for n, trace_id in enumerate(trace_ids)]
    chosen = {"points": points, "point_indices": list(range(len(points))), "box": [], "lasso": []}
    app.session_state["modes.map.residual"] = {"selection": chosen}
    app.run()
    assert not app.exception


def submit(app: AppTest, label: str) -> None:
    next(button for button in app.main.button if button.label == label).click().run()
    assert not app.exception
    assert not app.error


def decisions(store: Workspace) -> list[Decision]:
    rows = Snapshot(store).sql("select value from decisions where contains(what, 'mode') order by made_at")
    return [msgspec.json.decode(value, type=Decision) for value in rows["value"].to_pylist()]


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.markdown, *app.caption)).replace("\\", "").replace("\u2060", "")


def test_an_empty_workspace_leads_to_add_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "empty"))
    assert [info.value for info in shown(app).info] == ["The workspace is empty."]


def test_before_the_analysis_the_page_offers_it(samples: Workspace, app: AppTest) -> None:
    assert [info.value for info in shown(app).info] == ["Failure modes are not worked out yet."]
    assert "Analyse now" in [button.label for button in app.main.button]


@pytest.mark.parametrize("source", ["residual", "orchestration"])
def test_a_refusal_is_the_answer_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest, source: str
) -> None:
    workspace = Workspace(tmp_path / "w", create=True)
    import_paths(workspace, [write_traces(tmp_path / "few.jsonl", failing_teams(3))])
    analyse(workspace)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    for view in ("map", "mode", "compare", "labels"):
        shown(app, source=source, view=view)
        said = app.info[0].value.replace("\\", "").replace("\u2060", "")
        assert said == "No modes: 9 profiles, and at least 20 are needed."
        assert ("import --claims" if source == "residual" else "More runs that failed are needed") in texts(app)
        assert "9 of 9 traces have a profile" in texts(app)
    assert not app.dataframe


@pytest.mark.parametrize("source", ["residual", "orchestration"])
def test_all_modes_are_listed_with_their_standing(store: Workspace, app: AppTest, source: str) -> None:
    shown(app, source=source)
    table = app.dataframe[0].value
    assert set(table["Mode"]) == set(ids_by_name(store, source))
    assert table["Traces"].tolist() == [14, 14, 14]
    assert all(said.startswith("yes, ") for said in table["Comes back"])
    assert "3 failure modes in 42 profiles." in texts(app)
    assert all(part in texts(app) for part in ("Found again: ", "Held together: ", "Second view: HDBSCAN finds "))
    assert not app.info


def test_choosing_a_mode_from_the_table_opens_it(store: Workspace, app: AppTest) -> None:
    shown(app)
    first = app.dataframe[0].value["Id"].iloc[0]
    app.session_state["table.modes-residual"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    app.run()
    assert (app.query_params["view"], app.query_params["mode"]) == ("mode", first)
    assert f"14 traces, 33% · comes back: yes, 1.00 · named by a rule from its profile · {first}" in texts(app)


def test_traces_chosen_on_the_map_are_listed_and_can_be_named_by_a_tag(store: Workspace, app: AppTest) -> None:
    shown(app)
    lasso(app, "counterpoint:plan-00", "counterpoint:check-01")
    assert "2 traces chosen" in [heading.value for heading in app.subheader]
    assert app.dataframe[0].value["Trace"].tolist() == ["counterpoint:check-01", "counterpoint:plan-00"]
    app.text_input[0].set_value('to "see"')
    submit(app, "Tag 2")
    tagged = Snapshot(store).sql("select trace_id, tag from current_tags order by trace_id").to_pylist()
    assert tagged == [{"trace_id": i, "tag": "to see"} for i in ("counterpoint:check-01", "counterpoint:plan-00")]


def test_traces_chosen_on_the_map_can_be_split_off(store: Workspace, app: AppTest) -> None:
    shown(app)
    off = tuple(f"counterpoint:plan-{n:02d}" for n in range(4))
    lasso(app, *off, "counterpoint:check-01")
    plan = ids_by_name(store)["plan–execution boundary"]
    app.selectbox[0].set_value(plan)
    next(field for field in app.text_input if field.label == "Name of the new mode").set_value("odd ones")
    submit(app, "Split off")
    assert decisions(store) == [Decision(what="split mode", mode_id=plan, text="odd ones", trace_ids=off)]
    listed = next(frame.value for frame in app.dataframe if "Comes back" in frame.value)
    assert dict(zip(listed["Mode"], listed["Traces"], strict=True))["odd ones"] == 4
    assert listed.set_index("Mode")["Comes back"]["odd ones"] == "not measured: a person made it"


def test_a_whole_mode_cannot_be_split_off(store: Workspace, app: AppTest) -> None:
    shown(app)
    lasso(app, *(f"counterpoint:plan-{n:02d}" for n in range(14)))
    assert "These are whole modes: nothing can be split off." in texts(app)
    assert "Split off" not in [button.label for button in app.main.button]


def test_one_mode_shows_its_exemplars_and_what_people_noted(store: Workspace, app: AppTest) -> None:
    plan = ids_by_name(store)["plan–execution boundary"]
    shown(app, view="mode", mode=plan)
    assert "named by a rule" in texts(app)
    next(field for field in app.text_input if field.label == "Note on this mode").set_value("seen since *May*")
    submit(app, "Save")
    assert decisions(store) == [Decision(what="annotate mode", mode_id=plan, text="seen since *May*")]
    assert "seen since *May*" in [text.value for text in app.text]
    assert " UTC" in texts(app)


def test_a_mode_is_renamed_and_another_merged_into_it(store: Workspace, app: AppTest) -> None:
    ids = ids_by_name(store)
    plan, merge = ids["plan–execution boundary"], ids["loss in merging"]
    shown(app, view="mode", mode=plan)
    next(field for field in app.text_input if field.label == "Another name").set_value("plan lost")
    submit(app, "Rename")
    assert "14 traces, 33% · comes back: yes, 1.00 · named by a person" in texts(app)
    next(box for box in app.selectbox if box.label == "Merge into it").set_value(merge)
    submit(app, "Merge")
    assert "28 traces, 67% · comes back: not measured: a person made it · named by a person" in texts(app)
    assert [(decision.what, decision.mode_id) for decision in decisions(store)] == [("rename mode", plan), ("merge modes", plan)]
    assert plan in ids_by_name(store).values()
    assert merge not in ids_by_name(store).values()


def test_a_name_given_by_a_person_is_shown_as_text(store: Workspace, app: AppTest) -> None:
    plan = ids_by_name(store)["plan–execution boundary"]
    shown(app, view="mode", mode=plan)
    next(field for field in app.text_input if field.label == "Another name").set_value("[x](https://e.org) *now*")
    submit(app, "Rename")
    for view in ("map", "mode", "compare"):
        shown(app, view=view, mode=plan)
        raw = "\n".join(element.value for element in (*app.markdown, *app.caption))
        assert "[x](https" not in raw


def test_two_modes_are_compared_with_their_distance(store: Workspace, app: AppTest) -> None:
    ids = ids_by_name(store)
    profiles = profiles_of(Snapshot(store), "residual")
    plan, merge = (
        np.mean([row for i, row in zip(profiles.trace_ids, profiles.matrix, strict=True) if f":{kind}-" in i], axis=0)
        for kind in ("plan", "merge")
    )
    distance = np.linalg.norm(np.sqrt(plan) - np.sqrt(merge))
    shown(app, view="compare", a=ids["plan–execution boundary"], b=ids["loss in merging"])
    assert f"Hellinger distance of the two mean profiles: {distance:.2f} (0: the same, 1.41: no cell" in texts(app)
    shown(app, view="compare", a="gone", b="gone")
    assert not app.info


def test_annotators_stand_beside_modes(store: Workspace, app: AppTest) -> None:
    shown(app, view="labels")
    assert "modes and the category by eve: 1.00 (1.00 to 1.00, 42 traces), above chance" in texts(app)
    assert app.dataframe[0].value["Agreement"].tolist() == [1.0, 1.0]


def test_without_labels_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    workspace = Workspace(tmp_path / "w", create=True)
    mute = [msgspec.structs.replace(trace, labels=()) for trace in failing_teams(14)]
    import_paths(workspace, [write_traces(tmp_path / "mute.jsonl", mute)])
    analyse(workspace)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    said = "No annotator states a category or a responsible agent: there is nothing to compare with."
    assert [info.value for info in shown(app, view="labels").info] == [said]


@pytest.mark.parametrize("source", ["residual", "orchestration"])
@pytest.mark.parametrize("view", ["map", "mode", "compare", "labels"])
def test_each_view_runs_on_the_samples(analysed: Workspace, app: AppTest, view: str, source: str) -> None:
    shown(app, view=view, source=source)


def test_traces_that_came_in_since_are_counted(store: Workspace, tmp_path: Path, app: AppTest) -> None:
    import_paths(store, [write_traces(tmp_path / "more.jsonl", failing_teams(1, prefix="x", seed=5))])
    assert [info.value for info in shown(app).info] == ["3 traces came in since: they are in no mode yet."]
    assert app.dataframe[0].value["Traces"].sum() == 42
