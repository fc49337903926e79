"""The page Curate: what a policy does is seen before it is done, every trace's way can be followed, people have the last word."""

from __future__ import annotations

import shutil
import time
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from analysis.curation.fields import toml_text
from analysis.curation.policy import find_policy, policy_of
from analysis.model import Trace
from analysis.pipeline import import_paths
from analysis.pipeline.curating import curate_workspace, reviews_of, store_review
from analysis.workspace import Snapshot, Workspace
from dashboard import drafts, jobs
from dashboard.figures.curation import batch_ratios, budget_change, diversity_curve, dose_response, funnel, share_change
from dashboard.selection import PAGES
from tests.dashboard import curated
from tests.dashboard.visiting import opened
from tests.pipeline.corpus import write_traces

FILE = PAGES["curate"].file
TORN = [f"counterpoint:torn-{n}" for n in range(3)]
#: 10 traces: 3 dropped at the first gate, of which a floor takes 1 back; 2 queued at the second; of the 6 that stay 1 is masked.
STEPS = pd.DataFrame(
    [
        (None, None, 0, "<b>hedging</b>", None, 10), (0, "<b>hedging</b>", 1, "coherence", None, 7),
        (0, "<b>hedging</b>", 2, "floor mode", None, 1), (0, "<b>hedging</b>", None, None, "dropped", 2),
        (1, "coherence", None, None, "queued", 2), (1, "coherence", 3, "quota", None, 5), (2, "floor mode", 3, "quota", None, 1),
        (3, "quota", None, None, "kept", 5), (3, "quota", None, None, "masked", 1),
    ],
    columns=["place", "gate", "next_place", "next_gate", "final", "n"],
)  # fmt: skip


def test_a_funnel_has_a_mark_a_gate_and_an_outcome_each_as_high_as_its_traces() -> None:
    figure = funnel(STEPS, selected=("1", "queued"))
    marks = figure.data[-1]
    said = dict(zip([tuple(key) for key in marks.customdata], marks.text, strict=True))
    assert said == {
        ("", ""): "all traces: 10 of 10 traces (100.0&#37;)".replace("&#37;", "%"),
        ("0", ""): "&lt;b&gt;hedging&lt;/b&gt;: 10 of 10 traces (100.0%)", ("1", ""): "coherence: 7 of 10 traces (70.0%)",
        ("2", ""): "floor mode: 1 of 10 traces (10.0%)", ("3", ""): "quota: 6 of 10 traces (60.0%)",
        ("", "kept"): "kept: 5 of 10 traces (50.0%)", ("", "masked"): "masked: 1 of 10 traces (10.0%)",
        ("0", "dropped"): "dropped: 2 of 10 traces (20.0%)", ("1", "queued"): "queued: 2 of 10 traces (20.0%)",
    }  # fmt: skip
    heights = [round(bar.y1 - bar.y0, 9) for bar in figure.layout.shapes]
    assert heights == [1.0, 1.0, 0.7, 0.1, 0.6, 0.5, 0.1, 0.2, 0.2]
    assert [bar.fillcolor for bar in figure.layout.shapes].count("#D6249F") == 1
    texts = [note.text for note in figure.layout.annotations]
    assert {"10", "7", "5", "1", "2 dropped", "2 queued", "5 kept", "1 masked", "floor<br>mode"} <= set(texts)
    bars = dict(zip(said, figure.layout.shapes, strict=True))
    assert bars["2", ""].y1 < 1 - 0.5  # the stream passes above what was taken back


def test_figures_draw_the_numbers_they_are_given() -> None:
    figure = share_change({"before": {"x": 6, "y": 2}, "after": {"y": 1}}, title="Which stay?")
    assert {bar.name: list(bar.x) for bar in figure.data} == {"after": [0.0, 1.0], "before": [0.75, 0.25]}
    block = {"components": ["a", "<i>b</i>"], "n_traces": 2, "coupling_bits": 1.0, "passes_joint": False, "share_before": 0.2,
             "share_after": 0.6}  # fmt: skip
    line, before, after = budget_change([block], 3).data
    assert ([list(line.x), list(before.x), list(after.x)]) == [[0.2, 0.6], [0.2], [0.6]]
    assert "&lt;i&gt;b" in before.text[0]
    points = [{"threshold": 0.1, "kept_share": 0.5, "n": 4, "residual_mean": 0.05, "vendi": 2.0, "ess": 3.5}]
    assert [list(trace.y) for trace in diversity_curve(points).data] == [[2.0], [3.5]]
    bins: list[dict[str, Any]] = [
        {"low": 0.0, "high": 0.1, "residual_norm": 0.05, "n": 20, "outcome": 0.9, "outcome_low": 0.7, "outcome_high": 0.97,
         "fitted": 0.9},
        {"low": 0.2, "high": 0.9, "residual_norm": 0.5, "n": 20, "outcome": 0.1, "outcome_low": None, "outcome_high": None,
         "fitted": 0.1},
    ]  # fmt: skip
    error = dose_response(bins, plateau=0.1).data[1].error_y
    assert ([round(e, 9) for e in error.array], [round(e, 9) for e in error.arrayminus]) == ([0.07, 0.0], [0.2, 0.0])
    rows = [{"batch": n, "ratio": ratio, "required": 0.5, "holds": ratio != 0.2, "n_tied": 4, "n_left": 0}
            for n, ratio in enumerate((0.75, 0.2, None))]  # fmt: skip
    figure = batch_ratios(rows)
    assert {trace.name: list(trace.x) for trace in figure.data} == {"asked for, ρ": [1, 2, 3], "holds": [1], "misses it": [2]}
    assert figure.layout.title.subtitle.text == "3 batches, 1 without tied claims"


PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text()
VALUES = st.dictionaries(
    st.text(min_size=1),
    (PLAIN | st.lists(st.text()) | st.lists(st.dictionaries(st.text(), PLAIN), min_size=1) | st.dictionaries(st.text(), PLAIN)),
)


def _stated(value: Any) -> Any:
    """The value without what TOML has no word for."""
    if isinstance(value, dict):
        return {name: _stated(part) for name, part in value.items() if part is not None}
    return [_stated(part) for part in value] if isinstance(value, list) else value


@given(VALUES)
def test_plain_values_read_back_from_their_text(values: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(_stated(values))) == _stated(values)


@given(st.text())
def test_a_text_comes_back_from_the_address_and_nonsense_does_not(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert drafts.unpack(drafts.pack(text)) == text
    assert drafts.unpack(drafts.pack(text)[:-4]) is None
    assert drafts.unpack(drafts.pack("x" * 10**6)) is None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[[gates]]\ngate = 'coherence'\nmax = 2", ("gates", "0", "max")),
        ("[[gates]]\ngate = 'coherence'", ("gates", "0")),
        ("[quotas]\nmin_per_mode = 5\nmax_per_mode = 3", ("quotas", "min_per_mode")),
        ("[order]\nfront_share = 0.9\nback_share = 0.9", ("order",)),
        ("worlds = []", ("worlds",)),
        ("[weights", ()),
    ],
)  # fmt: skip
def test_an_error_names_its_field(text: str, place: tuple[str, ...]) -> None:
    draft = drafts.read(text)
    assert (draft.place, draft.policy, bool(draft.error)) == (place, None, True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The curated workspace, which tests that write copy."""
    return Path(curated.make(tmp_path_factory.mktemp("curated")).location)


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(made))
    return Workspace(made)


@pytest.fixture
def mine(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    shutil.copytree(made, tmp_path / "w")
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "w"))
    return Workspace(tmp_path / "w")


def shown(app: AppTest, **address: str) -> AppTest:
    return opened(app, "curate", **address)


def said(elements: Any) -> str:
    return "\n".join([element.value.replace("\\", "").replace("\u2060", "") for element in elements])


def text_of(app: AppTest) -> str:
    return str(app.text_area(key="policy.text").value)


# --- Policy


def test_a_change_of_the_form_is_tried_at_once_and_says_what_it_moved(here: Workspace, app: AppTest) -> None:
    shown(app, policy=f"dataset:{curated.NAME}")
    assert {metric.label: metric.value for metric in app.metric} == {
        "Kept whole": "3",
        "Masked": "1",
        "Queued": "3",
        "Dropped": "1",
    }
    assert "all 8 traces" in said(app.caption)
    app.number_input(key="policy.gates.1.max").set_value(0.75).run()
    assert {metric.label: (metric.value, metric.delta) for metric in app.metric} == {
        "Kept whole": ("4", "+1"), "Masked": ("0", "-1"), "Queued": ("2", "-1"), "Dropped": ("2", "+1")
    }  # fmt: skip
    assert "The last change moved 2: 1 masked → dropped, 1 queued → kept." in said(app.caption)  # a batch keeps its share
    assert tomllib.loads(text_of(app))["gates"][1]["max"] == 0.75
    address = dict(app.query_params)
    again = AppTest.from_file(app._script_path, default_timeout=60)
    for name, value in address.items():
        again.query_params[name] = value
    again.switch_page(FILE).run()
    assert again.number_input(key="policy.gates.1.max").value == 0.75
    for value, found in ((0.5, {"h": 0.5}), (None, None)):  # a field that is cleared is as by default
        app.number_input(key="policy.weights.h").set_value(value).run()
        assert tomllib.loads(text_of(app)).get("weights") == found
    app.button(key="policy.undo").click().run()
    assert app.number_input(key="policy.gates.1.max").value == 0.2


def test_gates_are_added_moved_and_taken_away(here: Workspace, app: AppTest) -> None:
    shown(app, policy=f"dataset:{curated.NAME}")

    def gates() -> list[str]:
        return [gate["gate"] for gate in tomllib.loads(text_of(app))["gates"]]

    app.selectbox(key="policy.added").set_value("measure").run()
    app.button(key="policy.add").click().run()
    app.button(key="policy.up.2").click().run()
    app.button(key="policy.remove.0").click().run()
    assert gates() == ["measure", "coherence"]
    assert app.selectbox(key="policy.gates.0.name").value == "q_work"


def test_an_error_stands_at_its_field_and_under_the_text(here: Workspace, app: AppTest) -> None:
    shown(app)
    app.text_area(key="policy.text").set_value("[quotas]\nmin_per_mode = 5\nmax_per_mode = 3").run()
    wrong = "quotas.min_per_mode: asks for more than the quota allows (got min 5, max 3) - raise max_per_mode"
    assert sorted(said([error]) for error in app.error) == [f"policy: {wrong}", wrong]
    assert app.button(key="policy.start").disabled
    app.number_input(key="policy.quotas.max_per_mode").set_value(6).run()
    assert not app.error
    app.text_area(key="policy.text").set_value("[quotas").run()
    assert "this is not TOML" in said(app.error)
    assert "The form comes back once the text is TOML." in said(app.info)


def test_data_of_several_worlds_offer_each_with_its_count_and_go_on_with_the_chosen_one(
    mine: Workspace, app: AppTest, tmp_path: Path
) -> None:
    import_paths(mine, [write_traces(tmp_path / "live.jsonl", [Trace(trace_id="counterpoint:live", world="live")])])
    shown(app)
    assert said(app.info).splitlines()[0] == (
        "The stage quality has not run for 1 traces: a gate by a metric does with them what its field unknown says. "
        "The stage residuals has not run for 1 traces: they count as traces without tied claims, which the gates coherence and "
        "hedging pass."
    )
    assert "The traces are of several worlds, and a policy never mixes them silently" in said(app.info)
    assert [button.label for button in app.button if str(button.key).startswith("policy.world.")] == [
        "recorded: 8 traces", "live: 1 traces"
    ]  # fmt: skip
    assert (list(app.error), list(app.metric), app.button(key="policy.start").disabled) == ([], [], True)
    ready = text_of(app)
    app.button(key="policy.world.recorded").click().run()
    assert text_of(app) == 'worlds = ["recorded"]\n' + ready == drafts.unpack(app.query_params["toml"])
    assert app.multiselect(key="policy.worlds").value == ["recorded"]
    assert (app.metric[0].value, app.button(key="policy.start").disabled) == ("2", False)
    assert not [button for button in app.button if str(button.key).startswith("policy.world.")]


def test_several_worlds_may_be_mixed_where_the_field_names_them(mine: Workspace, app: AppTest, tmp_path: Path) -> None:
    import_paths(mine, [write_traces(tmp_path / "live.jsonl", [Trace(trace_id="counterpoint:live", world="live")])])
    shown(app)
    app.multiselect(key="policy.worlds").set_value(["live", "recorded"]).run()
    assert "all 9 traces" in said(app.caption)


def test_a_gate_with_nothing_to_go_by_says_what_to_run(here: Workspace, app: AppTest) -> None:
    shown(app, policy="orchestration-first")
    assert "No effect on passed is confirmed" in said(app.info)
    assert "Study counterfactuals" in [link.proto.label for link in app.get("page_link")]
    assert "Analyse now" in [button.label for button in app.main.button]  # no trace has a family


def test_curate_all_is_a_job_and_leads_to_the_funnel(mine: Workspace, app: AppTest) -> None:
    shown(app, toml=drafts.pack(toml_text(curated.POLICY)))
    app.text_input(key="policy.name.default").set_value("mine").run()
    app.button(key="policy.start").click().run()
    job, end = app.query_params["job"], time.monotonic() + 60
    while jobs.state(mine.location, job).state == "running" and time.monotonic() < end:
        time.sleep(0.1)
    app.run()
    assert "mine: 4 of 8 traces stay, 1 of them with masked parts; 1 dropped, 3 queued for a person." in said(app.success)
    app.button(key="policy.funnel").click().run()
    assert (app.query_params["view"], app.query_params["dataset"]) == ("funnel", "mine")


# --- a data set


def test_the_funnel_lists_the_traces_of_a_gate_and_the_way_of_one(here: Workspace, app: AppTest) -> None:
    shown(app, view="funnel", gate="2", outcome="queued", trace="torn-0")
    gates, passages, traces, way = (frame.value for frame in app.dataframe)
    assert gates["Threshold"].dropna().tolist() == [0.05, 0.2, 0.3]
    assert gates.drop(columns=["Gate", "Threshold"]).to_numpy().tolist() == [
        [8, 0, 7, 0, 0, 0, 1], [7, 0, 7, 0, 0, 0, 0], [7, 0, 3, 1, 0, 3, 0], [4, 0, 4, 0, 0, 0, 0]
    ]  # fmt: skip
    parts = ["Passed", "Masked", "Taken back", "Queued", "Dropped"]
    assert gates["Came"].tolist() == gates[parts].sum(axis=1).tolist()
    assert "Came = passed + masked + taken back + queued + dropped." in said(app.caption)
    assert passages["Traces"].groupby(passages["Gate"], sort=False).sum().to_dict() == {
        "hedging": 8, "coherence": 7, "segments": 7, "batches": 4
    }  # fmt: skip
    assert sorted(traces["Trace"]) == TORN
    assert list(way["Said"]) == ["passed", "passed", "queued"]
    assert said(app.subheader).splitlines() == ["segments: queued", f"The way of {TORN[0]}"]
    shown(app, gate="", outcome="masked", trace="counterpoint:blame-0")
    _, _, traces, _, parts = (frame.value for frame in app.dataframe)
    assert list(traces["Trace"]) == ["counterpoint:blame-0"]
    assert dict(zip(parts["Component"], parts["Trained on"], strict=True))["c"] == "no"


def test_before_and_after_says_each_number_or_why_there_is_none(here: Workspace, app: AppTest) -> None:
    shown(app, view="change", value="world")
    assert {metric.label: metric.value for metric in app.metric} == {
        "Vendi before": "1.3", "Vendi after": "1.4", "Effective n": "3"
    }  # fmt: skip
    assert "Not enough data: 7 runs of 7 tasks" in said(app.markdown)
    assert "Nothing moves: no block passes the joint test, or none fails it." in said(app.caption)
    order = app.dataframe[0].value.set_index("Measure")
    assert order.loc["last tenth, mean (tail)"].tolist() == [0.05, 0.8]
    assert len(app.get("plotly_chart")) == 5


# --- Review


def test_each_decision_is_stored_and_brings_the_next_trace(mine: Workspace, app: AppTest) -> None:
    shown(app, view="review")
    assert "3 of 3 traces wait for you." in said(app.markdown)
    assert "Queued by segments: 2 smallest repairs" in said(app.markdown)
    assert "Coherence could be restored by a (cost 0.7); or by b (cost 0.7)." in said(app.caption)
    assert [code.value for code in app.code] == ["a is sure: 0.9", "b is sure: 0.8"]
    app.text_input(key=f"review.note.{TORN[0]}").set_value("a good failure").run()
    app.button(key="review.keep").click().run()
    assert app.query_params["trace"] == TORN[1]
    assert app.multiselect(key=f"review.mask.{TORN[1]}").value == ["a"]
    app.button(key="review.edit").click().run()
    app.button(key="review.drop").click().run()
    found = {name: (review.verdict, review.mask, review.note) for name, review in reviews_of(Snapshot(mine)).items()}
    assert found == dict(zip(TORN, [("keep", (), "a good failure"), ("edit", ("a",), ""), ("drop", (), "")], strict=True))
    assert "0 of 3 traces wait for you." in said(app.markdown)
    assert list(app.dataframe[0].value["Verdict"]) == ["drop", "edit", "keep"]
    assert "Curate again, with the 3 decided" in [button.label for button in app.main.button]
    assert curate_workspace(mine, policy_of(curated.POLICY), name=curated.NAME)["counts"]["queued"] == 0


def test_a_decision_is_replaced_and_taken_back(mine: Workspace, app: AppTest) -> None:
    store_review(mine, TORN[0], "keep", author="eve")
    shown(app, view="review", trace=TORN[0])
    assert "Decided: kept by eve" in said(app.info)
    app.button(key="review.drop").click().run()
    assert reviews_of(Snapshot(mine))[TORN[0]].verdict == "drop"
    app.session_state["table.decided"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    app.run()
    app.button(key="review.undo").click().run()
    assert reviews_of(Snapshot(mine)) == {}
    assert "3 of 3 traces wait for you." in said(app.markdown)


def test_nothing_that_waits_says_which_setting_would_queue(mine: Workspace, app: AppTest) -> None:
    curate_workspace(mine, find_policy("default"), name="calm")
    shown(app, view="review", dataset="calm")
    assert "Nothing waits: this data set queues no trace." in said(app.info)
    assert 'near = "queue"' in said(app.markdown)


def test_each_kind_of_nothing_is_said_in_words(
    samples: Workspace, app: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(app)
    assert "No data set yet. A policy says which traces become training data" in said(app.markdown)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "empty"))
    shown(app)
    assert [info.value for info in app.info] == ["The workspace is empty."]
