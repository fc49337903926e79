"""Compare: two runs and two groups from their addresses; what is said where nothing is chosen or little is known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis import model
from analysis.model import Agent, Event, Groups, Outcome, Task, Trace
from analysis.orchestration.alignment import align, differences
from analysis.orchestration.groups import compare_groups
from analysis.orchestration.timing import timing
from analysis.pipeline import import_paths
from analysis.workspace import Snapshot, Workspace
from dashboard.figures.compare import MAX_LANES, MAX_PLACES, forest, side_by_side
from dashboard.selection import PAGES
from tests.dashboard.visiting import opened

FIRST, SECOND = "counterpoint:fan-4-c5d8358d-parallel-s7-1", "counterpoint:fan-4-c5d8358d-serial-collapse-s7-1"


@pytest.fixture(scope="module")
def analysed(analysed_samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(shutil.copytree(analysed_samples, tmp_path_factory.mktemp("compare") / "w"))


@pytest.fixture
def page(analysed: Workspace, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> AppTest:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", analysed.location)
    return app


def shown(app: AppTest, **address: str) -> AppTest:
    return opened(app, "compare", **address)


def pick(app: AppTest, table: str, row: int) -> None:
    app.session_state[f"table.{table}"] = {"selection": {"rows": [row], "columns": [], "cells": []}}
    app.run()


def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traces: list[Trace]) -> Workspace:
    (tmp_path / "runs.jsonl").write_bytes(b"\n".join(model.encode(trace) for trace in traces))
    workspace = Workspace(tmp_path / "w", create=True)
    import_paths(workspace, [tmp_path / "runs.jsonl"])
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", workspace.location)
    return workspace


def figures(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def links(app: AppTest) -> list[str]:
    return [f"{link.proto.page}?{link.proto.query_string}" for link in app.get("page_link")]


def address(app: AppTest, name: str) -> str:
    value = app.query_params[name]  # a list before the page ran, a text after it
    return value if isinstance(value, str) else value[0]


def texts(elements: Any) -> str:
    return "\n".join(str(element.value) for element in elements)


def test_without_a_choice_the_page_says_what_to_choose(page: AppTest) -> None:
    shown(page)
    assert page.info[0].value.startswith("Choose the first of two runs here")
    assert len(page.dataframe[0].value) == 108
    pick(page, "compare-a", 0)
    assert address(page, "a") == "counterpoint:chain-3-fdc0a821-best-of-three-s7-1"
    assert page.info[0].value == "Choose the second run; these are the other runs of this task."


def test_the_second_run_is_offered_from_the_same_task(page: AppTest) -> None:
    shown(page, a=FIRST)
    offered = page.dataframe[0].value
    assert len(offered) == 20
    assert set(offered["Condition"]) == {
        "single", "parallel", "best-of-three", "late-aggregation", "overconfident-planner", "serial-collapse", "stops-too-early",
    }  # fmt: skip


def test_two_runs_are_counted_drawn_and_listed(analysed: Workspace, page: AppTest) -> None:
    shown(page, a=FIRST, b=SECOND)
    a, b = Snapshot(analysed).traces([FIRST, SECOND])
    counts = align(a, b).counts
    sentence = next(m.value for m in page.markdown if "dropped" in m.value)
    assert sentence == " · ".join(f"**{n}** {status}" for status, n in reversed(counts.items()))
    (drawing,) = figures(page)
    points = [trace for trace in drawing["data"] if trace["mode"] == "markers"]
    assert {trace["name"]: len(trace["x"]) for trace in points} == {
        status: n * (1 if status in ("dropped", "added") else 2) for status, n in counts.items() if n
    }
    metrics, events = page.dataframe
    assert metrics.value["Metric"].iloc[0] == "q_parallel_self"
    assert len(events.value) == sum(counts.values()) - counts["same"]


def test_an_event_that_is_picked_is_shown_in_both_runs_with_the_way_to_it(page: AppTest) -> None:
    shown(page, a=FIRST, b=SECOND)
    at = page.dataframe[1].value["Event in A"].tolist().index("give:p2")
    pick(page, "compare-events", at)
    assert address(page, "place") == "3"
    assert [code.value for code in page.code] == ["coder-2, please write p2."] * 2
    assert "waits for: spawn" in texts(page.text)
    assert "waits for: write:p1.report" in texts(page.text)
    assert any("event=give%3Ap2" in link and "serial-collapse-s7-1" in link for link in links(page))
    (drawing,) = figures(page)
    assert drawing["data"][-1]["marker"]["symbol"] == "circle-open"


def test_a_dropped_event_has_no_counterpart(page: AppTest) -> None:
    shown(page, a=FIRST, b=SECOND)
    pick(page, "compare-events", page.dataframe[1].value["Status"].tolist().index("dropped"))
    assert "Run B has no such event." in texts(page.caption)


def test_a_run_beside_itself_has_no_differences(page: AppTest) -> None:
    shown(page, a=FIRST, b=FIRST)
    assert "one run beside itself" in page.warning[0].value
    assert "None: the two runs are alike" in texts(page.caption)


def test_an_id_that_is_not_there_is_one_line_and_the_address_can_be_mended(page: AppTest) -> None:
    shown(page, a="no-such-run", b=SECOND)
    assert len(page.error) == 1
    assert "no trace has this id" in page.error[0].value.replace("\\", "")
    page.text_input(key="url.a").set_value("fan-4-c5d8358d-parallel-s7-1").run()
    assert not page.error
    assert address(page, "a") == "fan-4-c5d8358d-parallel-s7-1"
    assert len(figures(page)) == 1


def test_runs_of_different_tasks_say_so(page: AppTest) -> None:
    shown(page, a=FIRST, b="relay-3-f343b3dc-single-s7-1")
    assert "different tasks" in page.warning[0].value


def test_two_groups_have_their_outcome_in_a_sentence(page: AppTest) -> None:
    shown(page, view="groups", fa="condition:single", fb="-condition:single")
    sentence = next(m.value for m in page.markdown if "passed" in m.value)
    assert sentence.startswith(
        "**A** **67%** passed, 15 runs of 5 tasks · **B** **52%** passed, 93 runs of 5 tasks · difference **-14** "
    )
    assert sentence.endswith("paired within 5 tasks")
    assert "Evidence: observational" in texts(page.caption)
    assert not page.warning
    table = page.dataframe[0].value
    assert table.iloc[0]["Metric"] == "passed"
    assert table["B - A"].isna().sum() == (table["Why no difference"] != "").sum()
    assert len(figures(page)) == 1


def test_groups_with_few_tasks_say_how_many_are_needed(page: AppTest) -> None:
    shown(page, view="groups", fa="condition:chatty", fb="condition:echoing-verifier")
    assert "not enough samples" in texts(page.markdown).replace("\\", "")
    assert "5 in both, or 5 in each, are needed" in texts(page.markdown).replace("\\", "")
    assert page.info[0].value.startswith("Not enough samples for any interval")
    assert not figures(page)


def test_without_groups_pairs_are_suggested_as_links(page: AppTest) -> None:
    shown(page, view="groups")
    assert "take one of these pairs" in page.info[0].value
    first = next(link for link in links(page) if "fa=" in link)
    assert "view=groups&fa=condition%3Aparallel&fb=condition%3Asingle" in first


@pytest.mark.parametrize(
    ("fb", "said"), [("condition:nobody", "No run fits the filter of group B"), ("", "Write a filter for each")]
)
def test_a_group_without_runs_is_said(page: AppTest, fb: str, said: str) -> None:
    shown(page, view="groups", fa="condition:single", fb=fb)
    assert page.info[0].value.startswith(said)


def test_a_wrong_filter_is_one_line(page: AppTest) -> None:
    shown(page, view="groups", fa="colour:red", fb="condition:single")
    assert len(page.error) == 1
    assert "unknown field" in page.error[0].value


def test_groups_that_mix_worlds_or_share_runs_are_cautioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest
) -> None:
    worlds: list[model.World] = ["recorded", "simulated"]
    runs = [
        Trace(trace_id=f"counterpoint:{w}{n}", world=w, task=Task(task_id=f"t{n}"), outcome=Outcome(passed=n > 2))
        for n in range(6)
        for w in worlds
    ]
    imported(tmp_path, monkeypatch, runs)
    shown(app, view="groups", fa="world:recorded", fb="events=0")
    said = [warning.value.replace("\\", "") for warning in app.warning]
    assert said[0].startswith("6 of 6 runs of group A wait to be analysed")
    assert said[1] == "Group B mixes worlds: recorded, simulated. What differs may be the world."
    assert said[3] == "The groups are of different worlds: A recorded, B recorded, simulated."
    assert said[4].startswith("6 runs are in both groups")


def test_runs_that_are_not_analysed_can_be_analysed_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest
) -> None:
    event = Event(event_id="e", kind="act", action="note", content="x")
    runs = [Trace(trace_id=f"counterpoint:{n}", world="recorded", events=(event,)) for n in "ab"]
    imported(tmp_path, monkeypatch, runs)
    shown(app, a="counterpoint:a", b="counterpoint:b")
    assert "not analysed yet" in app.info[0].value
    assert app.button(key="compare.analyse").label == "Analyse now"


def test_text_of_strangers_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: AppTest) -> None:
    evil = "<img src=x onerror=alert(1)> ![x](http://127.0.0.1:9/x) $x$ %{x}"
    agents = (Agent(agent_id=evil, component=evil),)
    event = Event(event_id=evil, kind="act", action=evil, agent_id=evil, content=evil, error=evil)
    groups = Groups(condition=evil, trial=evil, task=evil)
    one = Trace(trace_id="counterpoint:1", world="recorded", agents=agents, events=(event,), groups=groups)
    two = msgspec.structs.replace(
        one, trace_id="counterpoint:2", events=(msgspec.structs.replace(event, content=None, error="other"),)
    )
    imported(tmp_path, monkeypatch, [one, two])
    shown(app, a="counterpoint:1", b="counterpoint:2", place="0")
    drawing = app.get("plotly_chart")[0].proto.spec
    assert "<img" not in drawing
    assert "%{x}" not in drawing
    spoken = "\n".join(str(e.value) for e in (*app.markdown, *app.caption, *app.warning, *app.info))
    assert "![x]" not in spoken
    assert "<img" not in spoken
    assert all("![" not in link.proto.label for link in app.get("page_link"))
    shown(app, view="groups")
    assert all("![" not in link.proto.label for link in app.get("page_link"))


def test_two_rows_of_the_list_lead_here(page: AppTest) -> None:
    page.query_params["filter"] = "task:fan-4-c5d8358d condition:parallel"
    page.switch_page(PAGES["traces"].file).run()
    assert any("compare?view=groups&fa=task%3Afan-4" in link for link in links(page))
    page.session_state["table.traces"] = {"selection": {"rows": [0, 2], "columns": [], "cells": []}}
    page.run()
    page.button(key="traces.compare").click().run()
    assert page.title[0].value == "Compare"
    assert (address(page, "a"), address(page, "b")) == (FIRST, FIRST[:-1] + "3")


def aligned(a: Trace, b: Trace) -> tuple[pd.DataFrame, list[tuple[str | None, str | None]]]:
    alignment = align(a, b)
    return differences(alignment, timing(a), timing(b)), list(alignment.agents)


def lines_of(n: int, n_agents: int = 1, *, said: str = "step") -> Trace:
    agents = tuple(Agent(agent_id=f"w{k}", component=f"c{k}") for k in range(n_agents))
    events = tuple(
        Event(event_id=f"e{k}", kind="act", agent_id=f"w{k % n_agents}", order=k, content=f"{said} {k}") for k in range(n)
    )
    return Trace(trace_id="t", world="recorded", agents=agents, events=events)


def test_matched_events_share_a_column_and_moved_ones_do_not() -> None:
    a = lines_of(4)
    last_first = [a.events[3], *a.events[:3]]
    b = msgspec.structs.replace(a, events=tuple(msgspec.structs.replace(e, order=n) for n, e in enumerate(last_first)))
    places, agents = aligned(a, b)
    figure = side_by_side(places, agents)
    points = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    assert points["same"].x == (1, 2, 3, 1, 2, 3)
    assert points["moved"].x == (4, 0)
    dashes = {trace.legendgroup: trace.line.dash for trace in figure.data if trace.mode == "lines"}
    assert dashes == {"same": "solid", "moved": "dash"}
    assert {trace.marker.symbol for trace in points.values()} == {"circle", "square"}
    assert points["moved"].customdata[0] == [3]


def test_what_differs_is_drawn_first_where_there_is_too_much() -> None:
    a, b = lines_of(MAX_PLACES + 500), lines_of(MAX_PLACES + 500)
    b = msgspec.structs.replace(b, events=b.events[:-3])
    places, agents = aligned(a, b)
    figure = side_by_side(places, agents)
    drawn = {trace.name: len(trace.x) for trace in figure.data if trace.mode == "markers"}
    assert drawn == {"same": 2 * (MAX_PLACES - 3), "dropped": 3}
    assert "1,500 of 2,000 places drawn" in figure.layout.title.subtitle.text
    many, lanes = aligned(lines_of(200, 100), lines_of(200, 100, said="other"))
    assert len(side_by_side(many, lanes).layout.yaxis.tickvals) == MAX_LANES


def test_time_puts_events_at_their_seconds() -> None:
    def run(shift: float) -> Trace:
        times = [(0.0, 1.0), (2.0 + shift, 3.0 + shift)]
        events = [
            msgspec.structs.replace(e, t_start_s=start, t_end_s=end)
            for e, (start, end) in zip(lines_of(2).events, times, strict=True)
        ]
        return msgspec.structs.replace(lines_of(2), events=tuple(events), clock="unix")

    places, agents = aligned(run(0.0), run(5.0))
    (points,) = [trace for trace in side_by_side(places, agents, axis="time").data if trace.mode == "markers"]
    assert points.x == (0, 2, 0, 7)


def test_the_forest_says_which_way_is_better() -> None:
    rows = [
        (f"t{n}", group, name, "", float(value), "")
        for n in range(5)
        for group, name, value in (
            ("a", "passed", 0), ("b", "passed", 1), ("a", "tokens", 100), ("b", "tokens", 150 + n),
            ("a", "n_agents", 1), ("b", "n_agents", 2), ("a", "q_work", n % 2), ("b", "q_work", (n + 1) % 2),
        )
    ]  # fmt: skip
    table = compare_groups(pd.DataFrame(rows, columns=["task", "group", "name", "variant", "value", "reason"]))
    figure = forest(table)
    verdicts = {name: trace.name for trace in figure.data for name in trace.y}
    assert verdicts == {"passed": "B is better", "tokens": "B is worse", "q_work": "the interval holds 0"}
    (tokens,) = [trace for trace in figure.data if "tokens" in trace.y]
    assert tokens.x == (pytest.approx(52.0),)
    assert not forest(table.iloc[:0]).data
