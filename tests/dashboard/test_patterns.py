"""The page Patterns: figures say what their frames say, each view leads on, is empty in words, and keeps its address."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.model import Trace
from analysis.orchestration.patterns.value import ASSOCIATION
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.patterns import Mining, occurrence
from analysis.workspace import Snapshot, Workspace
from dashboard import jobs
from dashboard.figures.patterns import family_overview, forest, two_families
from dashboard.network import MAX_NODES, motif
from dashboard.selection import PAGES
from tests.pipeline.corpus import write_traces
from tests.pipeline.test_patterns import STAGES, fan, teams

FILE = PAGES["patterns"].file
VIEWS = ("families", "patterns", "worse", "two", "library")


def lift(metric: str, value: float, low: float, high: float, **fields: Any) -> dict[str, Any]:
    """A row of `value.lifts`."""
    given = {
        "metric": metric,
        "lift": value,
        "low": low,
        "high": high,
        "better": "higher",
        "with_mean": 0.5,
        "without_mean": 0.25,
        "n_with": 10,
        "n_without": 20,
        "p_adjusted": 0.01,
        "matched": np.nan,
        "n_pairs": 0,
        "matched_by": "",
        "reason": "",
    }
    return given | fields  # fmt: skip


def one(workspace: Workspace, query: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = Snapshot(workspace).sql(query).to_pylist()
    return found[0]


def address(app: AppTest, name: str) -> str:
    value = app.query_params[name]
    return value[0] if isinstance(value, list) else str(value)


# --- figures


def test_the_families_are_drawn_by_size_with_their_lift_or_the_reason_for_none() -> None:
    rows = pd.DataFrame(
        [
            {"family_id": "f1", "name": "work", "n_members": 30, "member_share": 0.75} | lift("passed", 0.25, 0.125, 0.5),
            {"family_id": "f2", "name": "talk", "n_members": 10, "member_share": 0.25}
            | lift("passed", np.nan, np.nan, np.nan, p_adjusted=np.nan, reason="no run that has a value has it"),
        ]
    )
    figure = family_overview(rows, metric="passed", selected="f2")
    bars, mark = figure.data
    assert (list(bars.x), list(bars.text), [list(c) for c in bars.customdata]) == (
        [30, 10],
        ["30 · 75%", "10 · 25%"],
        [["f1"], ["f2"]],
    )
    assert (mark.name, list(mark.x), list(mark.error_x.array), list(mark.error_x.arrayminus)) == (
        "better with it",
        [25],
        [25],
        [12.5],
    )
    (said,) = figure.layout.annotations
    assert (said.text, said.y) == ("no run that has a value has it", 1)
    assert figure.layout.xaxis2.title.text == "passed, percentage points"


def test_a_forest_has_one_verdict_a_row_its_numbers_beside_it_and_chance_in_the_hover() -> None:
    rows = pd.DataFrame(
        [
            lift("passed", 0.2, 0.1, 0.4),
            lift("tokens", 100.0, 50.0, 200.0, better="lower", p_adjusted=0.3),
            lift("n_steps", -3.0, -4.0, -2.0, better="neither"),
            lift("q_work", 0.1, -0.1, 0.2, p_adjusted=np.nan),
            lift("score", np.nan, np.nan, np.nan, reason="no run has a value"),
        ]
    )
    figure = forest(rows, title="t")
    drawn = {trace.name: (list(trace.x), list(trace.y), list(trace.marker.symbol)) for trace in figure.data}
    assert drawn == {
        "better with it": ([0.5], [1], ["triangle-up"]),
        "worse with it": ([0.5], [3], ["x-thin"]),
        "neither is better": ([-0.75], [0], ["diamond"]),
        "the interval holds 0": ([0.5], [2], ["circle-open"]),
    }
    assert list(figure.layout.yaxis.ticktext) == ["n_steps", "passed", "q_work", "tokens"]
    beside = {note.y: note.text for note in figure.layout.annotations}
    assert beside == {
        0: "-3 (-4 to -2)", 1: "+20 points (10 to 40)", 2: "+10 points (-10 to 20)", 3: "+100 (50 to 200)",
    }  # fmt: skip
    hover = {trace.name: trace.text[0] for trace in figure.data}
    assert "with it 0.5 (10 runs), without it 0.25 (20 runs)" in hover["better with it"].replace("<br>", " ")
    assert hover["worse with it"].endswith("adjusted p 0.3")
    assert hover["the interval holds 0"].endswith("no p: nothing to compare with")


def test_two_families_share_a_scale_for_each_metric() -> None:
    first, second = (pd.DataFrame([lift("passed", sign * 0.1, *sorted((sign * 0.05, sign * 0.2)))]) for sign in (1, -1))
    a, b = two_families(first, second.assign(low=-0.4)).data
    assert (a.name, b.name) == ("A", "B")
    assert (list(a.x), list(b.x)) == ([pytest.approx(0.25)], [pytest.approx(-0.25)])
    assert a.y[0] < 0 < b.y[0]


def test_figures_of_nothing_are_drawn_all_the_same() -> None:
    nothing = pd.DataFrame([lift("passed", np.nan, np.nan, np.nan)])
    assert len(forest(nothing, title="t").data) == len(two_families(nothing, nothing).data) == 0


def test_names_of_strangers_are_taken_apart_in_figures() -> None:
    row = {"family_id": "f1", "name": "<b>%{x}</b>", "n_members": 1, "member_share": 1.0} | lift("<i>", 1.0, 0.5, 2.0)
    figure = family_overview(pd.DataFrame([row]), metric="<i>")
    assert list(figure.layout.yaxis.ticktext) == ["&lt;b&gt;&#37;{x}&lt;/b&gt;"]
    assert "<i>" not in str(forest(pd.DataFrame([row]), title="<i>").to_json())


def test_a_motif_stands_in_the_order_of_causes_one_row_a_role() -> None:
    labels = ["communicate · worker", "delegate · lead", "aggregate · lead"]
    nodes, edges, caption = motif(labels, [(1, 0, "delegation"), (0, 2, "aggregation")])
    assert [node.label for node in nodes] == ["delegate\nlead", "communicate\nworker", "aggregate\nlead"]
    assert nodes[0].x < nodes[1].x < nodes[2].x
    assert nodes[0].y == nodes[2].y != nodes[1].y
    assert [(edge.source, edge.target, edge.kind, edge.label) for edge in edges] == [
        (0, 1, "delegate", "delegation"), (1, 2, "aggregate", "aggregation")
    ]  # fmt: skip
    assert caption == "3 steps, 2 edges; one row a role, causes to the left of effects"


def test_many_equal_branches_are_one_node_with_their_number() -> None:
    labels = ["spawn · lead", *["act · worker"] * 40, "aggregate · lead"]
    edges = [(0, k, "delegation") for k in range(1, 41)] + [(k, 41, "aggregation") for k in range(1, 41)]
    nodes, ties, caption = motif(labels, edges)
    assert [node.label for node in nodes] == ["spawn\nlead", "act\nworker × 40", "aggregate\nlead"]
    assert len(ties) == 2
    assert caption.startswith("42 steps, 80 edges; those that only their number tells apart drawn as one: 3 nodes")


def test_a_long_motif_is_cut_and_says_so() -> None:
    nodes, ties, caption = motif([f"act · {n}" for n in range(100)], [(n, n + 1, "own") for n in range(99)])
    assert (len(nodes), len(ties)) == (MAX_NODES, MAX_NODES - 1)
    assert "only the first 60 drawn" in caption
    assert motif([], []).caption == "There are no steps to draw."


# --- the page


def test_before_mining_the_page_offers_it(samples: Workspace, app: AppTest) -> None:
    app.switch_page(FILE).run()
    assert [info.value for info in app.info] == ["Patterns are not mined yet."]
    assert {"Analyse now", "Mine"} <= {button.label for button in app.main.button}


def test_families_come_with_their_lift_the_largest_opened(analysed: Workspace, app: AppTest) -> None:
    app.switch_page(FILE).run()
    assert not app.exception
    first = one(analysed, "select * from families order by n_members desc, family_id")
    assert first["name"] in [header.value.replace("\\", "").replace("\u2060", "") for header in app.subheader]
    assert any("Evidence: observational" in caption.value for caption in app.caption)
    assert ASSOCIATION[:20] in " ".join(caption.value for caption in app.caption)
    shown = next(frame.value for frame in app.dataframe if "Forms" in frame.value)
    assert list(shown["Runs"]) == [row["n_members"] for row in Snapshot(analysed).sql(
        "select n_members from families order by n_members desc, family_id").to_pylist()]  # fmt: skip


def test_the_family_of_the_address_is_opened_and_leads_to_its_runs(analysed: Workspace, app: AppTest) -> None:
    last = one(analysed, "select * from families order by n_members, family_id desc")
    app.query_params["family"] = last["family_id"]
    app.switch_page(FILE).run()
    assert not app.exception
    text = " ".join(element.value for element in app.markdown)
    assert f"**{last['n_members']:,}** runs" in text
    assert any(last["conditions_note"][1:30] in element.value for element in app.text)


def test_choosing_a_family_in_the_table_puts_it_into_the_address(analysed: Workspace, app: AppTest) -> None:
    ids = [row["family_id"] for row in Snapshot(analysed).sql(
        "select family_id from families order by n_members desc, family_id").to_pylist()]  # fmt: skip
    app.switch_page(FILE).run()
    app.session_state["table.families"] = {"selection": {"rows": [1], "columns": [], "cells": []}}
    app.run()
    assert address(app, "family") == ids[1]


def test_the_metric_of_the_address_is_the_one_of_the_lifts(analysed: Workspace, app: AppTest) -> None:
    row = one(analysed, "select * from lifts where kind = 'pattern' and lift is not null and metric != 'passed' order by metric")
    app.query_params["view"], app.query_params["metric"] = "patterns", row["metric"]
    app.switch_page(FILE).run()
    shown = next(frame.value for frame in app.dataframe if "Pattern" in frame.value)
    stored = Snapshot(analysed).sql("select item, lift from lifts where metric = $m", {"m": row["metric"]}).to_pandas()
    expected = shown["Id"].map(stored.set_index("item")["lift"])
    assert list(shown["Lift"].fillna(-9)) == pytest.approx(list(expected.fillna(-9)))


def test_a_pattern_shows_where_it_occurs(analysed: Workspace, app: AppTest) -> None:
    row = one(analysed, "select * from patterns where n_edges = 3 order by support desc, pattern_id")
    app.query_params["view"], app.query_params["pattern"] = "patterns", row["pattern_id"]
    app.switch_page(FILE).run()
    assert not app.exception
    n = Snapshot(analysed).head.n_rows("traces")
    assert any(f"in **{row['support']:,}** of {n:,} runs" in element.value for element in app.markdown)
    holding = next(frame.value for frame in app.dataframe if "Holding share" in frame.value)
    assert holding["Runs that hold it"].sum() == row["support"]


def test_maximal_patterns_can_be_listed_alone(analysed: Workspace, app: AppTest) -> None:
    app.query_params["view"], app.query_params["rows"] = "patterns", "maximal"
    app.switch_page(FILE).run()
    shown = next(frame.value for frame in app.dataframe if "Pattern" in frame.value)
    assert set(shown["Maximal"]) == {"yes"}
    assert len(shown) == one(analysed, "select count(*) as n from patterns where maximal")["n"]


def test_a_pattern_that_is_not_there_is_named(analysed: Workspace, app: AppTest) -> None:
    app.query_params["view"], app.query_params["pattern"] = "patterns", "p0"
    app.switch_page(FILE).run()
    assert "No pattern has the id p0" in app.warning[0].value


def test_an_occurrence_is_lit_in_the_trace_and_its_events_are_one_click_away(analysed: Workspace, app: AppTest) -> None:
    row = one(analysed, "select * from patterns where n_edges = 2 order by support desc, pattern_id")
    trace_id = json.loads(row["examples"])[0]
    events = occurrence(Snapshot(analysed), trace_id, row["pattern_id"])
    for name, value in (("trace", trace_id), ("view", "lanes"), ("pattern", row["pattern_id"])):
        app.query_params[name] = value
    app.switch_page(PAGES["trace"].file).run()
    assert not app.exception
    buttons = [button for button in app.main.button if str(button.key).startswith("trace.pattern.")]
    assert len(buttons) == len(events) > 0
    buttons[-1].click().run()
    assert address(app, "event") in events
    app.button(key="trace.no_pattern").click().run()
    assert not [button for button in app.main.button if str(button.key).startswith("trace.pattern.")]


def test_the_filter_of_the_list_lights_the_pattern_too(analysed: Workspace, app: AppTest) -> None:
    row = one(analysed, "select * from patterns order by support, pattern_id")
    held = one(analysed, f"select trace_id from occurrences where pattern_id = '{row['pattern_id']}' order by trace_id")
    free = one(analysed, "select trace_id from traces where trace_id not in (select trace_id from occurrences where pattern_id = "
                         f"'{row['pattern_id']}') order by trace_id")  # fmt: skip
    for trace_id, words in ((held["trace_id"], "Ringed"), (free["trace_id"], "it does not occur in this run")):
        app.query_params["trace"], app.query_params["filter"] = trace_id, f"passed:no pattern:{row['pattern_id']}"
        app.switch_page(PAGES["trace"].file).run()
        assert any(words in caption.value.replace("\\", "") for caption in app.caption), words


def test_worse_patterns_and_predicates_stand_beside_each_other(analysed: Workspace, app: AppTest) -> None:
    app.query_params["view"] = "worse"
    app.switch_page(FILE).run()
    assert not app.exception
    heads = [element.value for element in app.markdown if element.value.startswith("#####")]
    assert heads == ["##### Patterns whose runs are significantly worse", "##### What a single run can show"]
    predicates = next(frame.value for frame in app.dataframe if "Anti-pattern" in frame.value)
    assert predicates["What it means"].notna().all()


def test_two_families_are_compared_by_what_is_in_them(analysed: Workspace, app: AppTest) -> None:
    ids = [
        row["family_id"] for row in Snapshot(analysed).sql("select family_id from families order by n_members desc").to_pylist()
    ]
    app.query_params["view"], app.query_params["a"], app.query_params["b"] = "two", ids[0], ids[1]
    app.switch_page(FILE).run()
    assert not app.exception
    steps = next(frame.value for frame in app.dataframe if "In A" in frame.value)
    medoids = {key: one(analysed, f"select nodes from families where family_id = '{key}'")["nodes"] for key in ids[:2]}
    assert (steps["In A"].sum(), steps["In B"].sum()) == tuple(len(json.loads(medoids[key])) for key in ids[:2])
    apart = next(frame.value for frame in app.dataframe if "A's run share" in frame.value)
    assert apart[["A's run share", "B's run share"]].max().max() <= 1


def test_a_library_is_looked_for_as_a_job_and_its_matches_stay(
    analysed_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest
) -> None:
    folder = mined(tmp_path, teams())
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", folder)
    app.query_params["view"] = "library"
    app.switch_page(FILE).run()
    assert not app.exception
    file = tmp_path / "library.json"
    from dashboard import loading

    file.write_bytes(loading.pattern_library.__wrapped__(loading.version()))  # type: ignore[attr-defined]
    job_id = jobs.start(folder, "Look for a pattern library: library.json", ["patterns", "import", str(file)])
    while jobs.state(folder, job_id).state == "running":
        time.sleep(0.05)
    assert jobs.state(folder, job_id).state == "done", jobs.state(folder, job_id).text
    app.run()
    matches = next(frame.value for frame in app.dataframe if "Traces here" in frame.value)
    assert list(matches["Share here"][matches["What"] == "pattern"]) == list(matches["Share there"][matches["What"] == "pattern"])


def mined(folder: Path, traces: Sequence[Trace], mining: Mining | None = None) -> str:
    workspace = Workspace(folder / "store", create=True)
    import_paths(workspace, [write_traces(folder / "in.jsonl", traces)])
    analyse(workspace, only=STAGES, mining=mining)
    return workspace.location


@pytest.mark.parametrize(
    ("traces", "said"),
    [
        ([fan(0, 2, True)], "only one run has a value; there is nothing to compare it with"),
        (teams((True, True)), "all 32 runs have the same value, 1"),
        (teams((None, None)), "No run has an outcome, so nothing can be said of what makes runs pass."),
    ],
    ids=["one trace", "equal outcomes", "no outcomes"],
)
def test_what_cannot_be_said_is_answered_in_a_sentence(
    traces: list[Trace], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest
) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", mined(tmp_path, traces))
    for view in VIEWS:
        app.query_params["view"] = view
        app.switch_page(FILE).run()
        assert not app.exception, view
        assert not app.error, view
    app.query_params["view"] = "families"
    if "passed" in said or "same" in said or "only one" in said:
        app.query_params["metric"] = "passed"
    app.switch_page(FILE).run()
    told = " ".join(info.value.replace("\\", "").replace("\u2060", "") for info in app.info)
    assert said in told


def test_one_trace_says_that_nothing_can_recur(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", mined(tmp_path, [fan(0, 2, True)]))
    app.query_params["view"] = "patterns"
    app.switch_page(FILE).run()
    assert any("A pattern must occur in 2 traces" in info.value for info in app.info)
    app.query_params["view"] = "two"
    app.switch_page(FILE).run()
    assert [info.value for info in app.info] == ["There are not two families to compare."]


def test_what_came_in_after_mining_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    location = mined(tmp_path, teams())
    import_paths(Workspace(location), [write_traces(tmp_path / "more.jsonl", [fan(90, 2, True)])])
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", location)
    app.switch_page(FILE).run()
    assert [warning.value for warning in app.warning] == [
        "Mined over 32 runs, and there are 33 now. Mine again to take in the others."
    ]


def test_patterns_in_order_of_time_say_why_they_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", mined(tmp_path, teams(), Mining(ordered=True)))
    app.query_params["view"] = "library"
    app.switch_page(FILE).run()
    assert not app.exception
    assert "cannot be looked for elsewhere" in app.info[0].value


def test_an_empty_workspace_leads_to_add_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "empty"))
    app.switch_page(FILE).run()
    assert [info.value for info in app.info] == ["The workspace is empty."]
