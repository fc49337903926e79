"""The page Coherence: figures say what their frames say, and each view leads on, is empty in words, and keeps its address."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.workspace import Snapshot, Workspace, standing
from dashboard.figures.coherence import MAX_CELLS, MAX_COMPONENTS, cells_of, evidence, heat_map, repair, residual_spread, shares
from dashboard.selection import PAGES

FILE = PAGES["coherence"].file


def attribution(n_components: int, n_turns: int) -> pd.DataFrame:
    grid = [(f"c{c:03d}", float(t), float(c + t)) for c in range(n_components) for t in range(n_turns)]
    return pd.DataFrame(grid, columns=["component", "turn", "energy"])


def test_the_spread_draws_each_level_as_its_own_share_and_counts_what_is_absent() -> None:
    rows = pd.DataFrame({"level": ["final"] * 3 + ["team"], "residual": [0.0, 0.2, 0.4, np.nan]})
    figure = residual_spread(rows, "residual", name="ε*")
    (line,) = figure.data
    assert list(line.x) == [0.0, 0.0, 0.2, 0.4]
    assert list(line.y) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert line.name == "final: n 3, positive 67%, median 0.200"
    assert figure.layout.title.subtitle.text == "1 levels without a value"


def test_cells_keep_their_sum_however_many_they_are() -> None:
    for n_components, n_turns in ((2, 3), (12, 200), (60, 200), (3, 4000)):
        rows = attribution(n_components, n_turns)
        cells = cells_of(rows, "energy")
        assert cells.to_numpy().sum() == pytest.approx(rows["energy"].sum())
        assert cells.size <= MAX_CELLS
        assert len(cells) <= max(MAX_COMPONENTS, n_components if n_components * n_turns <= MAX_CELLS else 0)
    assert list(cells_of(attribution(2, 3), "energy").index) == ["c001", "c000"]


def test_a_click_on_the_heat_map_gives_component_and_turn() -> None:
    figure = heat_map(cells_of(attribution(2, 3), "energy"), title="t", subtitle="s", is_signed=False, selected=("c001", "2"))
    heat, cover = figure.data
    assert [list(row) for row in heat.z] == [[1, 2, 3], [0, 1, 2]]
    assert [list(pair) for pair in cover.customdata][:3] == [["c001", "0"], ["c001", "1"], ["c001", "2"]]
    assert list(cover.selectedpoints) == [2]


def test_shares_draw_the_rules_and_the_range_of_orders() -> None:
    rows = pd.DataFrame(
        {"component": ["a", "b"], "energy": [0.1, 0.3], "shapley": [0.2, 0.2], "shapley_replace": [None, None],
         "order_low": [0.0, 0.1], "order_high": [0.4, 0.3]}
    )  # fmt: skip
    names = {trace.name: list(trace.y) for trace in shares(rows).data}
    assert names == {name: ["b", "a"] for name in ("range over all orders", "energy", "Shapley, free game")}


def test_a_repair_shows_what_moves_most_on_top() -> None:
    quoted = {f"p{n}": 0.5 for n in range(50)}
    figure = repair(quoted, {name: 0.5 + n / 200 for n, name in enumerate(quoted)})
    marks = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    assert list(marks["repaired"].y)[:2] == ["p49", "p48"]
    assert "40 of 50 quotes" in figure.layout.title.subtitle.text


def test_evidence_draws_the_threshold() -> None:
    figure = evidence({"betting": [0.0, 1.0, 3.5]}, threshold=3.0, null="n")
    assert list(figure.data[0].x) == [1, 2, 3]
    assert figure.layout.shapes[0].y0 == 3.0


def test_before_the_analysis_the_page_offers_it(samples: Workspace, app: AppTest) -> None:
    app.switch_page(FILE).run()
    assert [info.value for info in app.info] == ["Residuals are not worked out yet."]
    assert "Analyse now" in [button.label for button in app.main.button]


def test_all_traces_are_listed_the_least_coherent_first(analysed: Workspace, app: AppTest) -> None:
    app.switch_page(FILE).run()
    rows = standing.residual_rows(Snapshot(analysed)).to_pandas()
    shown = app.dataframe[0].value
    tied = rows[rows["n_tied"] > 0]
    assert list(shown["Trace"]) == list(tied["trace_id"])
    assert shown["ε*"].is_monotonic_decreasing
    assert not app.exception


def test_choosing_a_trace_shows_where_its_residual_comes_from(analysed: Workspace, app: AppTest) -> None:
    row = standing.residual_rows(Snapshot(analysed)).to_pylist()[0]
    app.query_params["view"], app.query_params["trace"], app.query_params["level"] = "trace", row["trace_id"], row["level"]
    app.switch_page(FILE).run()
    assert not app.exception
    assert {m.label: m.value for m in app.metric}["ε*"] == f"{row['residual']:.4f}"
    app.toggle(key="coherence.as_table").set_value(True).run()
    cells = app.dataframe[0].value
    stored = Snapshot(analysed).sql(
        "select sum(energy) as total from attribution where trace_id = $id and level = $level",
        {"id": row["trace_id"], "level": row["level"]},
    )
    assert cells["ε*²"].sum() == pytest.approx(stored["total"][0].as_py())
    assert any(text.value.startswith("Incoherent: the claims lie") or "**Incoherent" in text.value for text in app.markdown)


def test_choosing_a_cell_shows_what_the_component_had_claimed(analysed: Workspace, app: AppTest) -> None:
    found = Snapshot(analysed).sql("select * from attribution where energy > 0 and turn is not null order by energy desc limit 1")
    cell = found.to_pylist()[0]
    names = ("view", "trace", "level", "component", "turn")
    values = ("trace", cell["trace_id"], cell["level"], cell["component"], str(cell["turn"]))
    for name, value in zip(names, values, strict=True):
        app.query_params[name] = value
    app.switch_page(FILE).run()
    assert any(f"what it had claimed by turn {cell['turn']}" in text.value for text in app.markdown)
    claims = next(frame.value for frame in app.dataframe if "Proposition" in frame.value)
    assert set(claims["Component"]) == {cell["component"]}


@pytest.mark.parametrize("view", ["team", "trace", "stream", "review"])
def test_each_view_runs_with_a_filter_that_fits_nothing(analysed: Workspace, app: AppTest, view: str) -> None:
    app.query_params["view"], app.query_params["filter"] = view, "condition:nothing-like-it"
    app.switch_page(FILE).run()
    assert not app.exception
    assert len(app.info) == 1


def test_a_stream_says_whether_it_is_less_coherent_than_tolerated(analysed: Workspace, app: AppTest) -> None:
    app.query_params["view"], app.query_params["mu0"] = "stream", "0.001"
    app.switch_page(FILE).run()
    assert any("Over all of them that mean is" in text.value for text in app.markdown)
    app.query_params["mu0"] = "much"
    app.run()
    assert [error.value for error in app.error] == ["Not a number\\: much"]


def test_an_empty_workspace_leads_to_add_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "empty"))
    app.switch_page(FILE).run()
    assert [info.value for info in app.info] == ["The workspace is empty."]
