"""The graph says what it shows, stands where it should, and its page is closed to the world."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from dashboard import network
from dashboard.network import Edge, Graph, Node, orchestration_graph, orchestration_html

Row = tuple[str, str | None, str | None, list[str], list[str]]


def frame(rows: list[Row]) -> pd.DataFrame:
    """Return an events frame of (event_id, kind, agent_id, targets, parents), in this order."""
    return pd.DataFrame(
        [
            (event_id, kind, None, agent, json.dumps(targets) if targets else None, json.dumps(parents) if parents else None, n)
            for n, (event_id, kind, agent, targets, parents) in enumerate(rows)
        ],
        columns=["event_id", "kind", "action", "agent_id", "targets", "parents", "order"],
    )


def agents(*names: str, component: str | None = None) -> pd.DataFrame:
    return pd.DataFrame({"agent_id": list(names), "component": [component or name for name in names]})


DIAMOND: list[Row] = [
    ("start", "delegate", "lead", ["a", "b"], []),
    ("left", "act", "a", [], ["start"]),
    ("right", None, "b", [], ["start", "missing", "right"]),
    ("end", "aggregate", "lead", [], ["left", "right"]),
]


def repeated(n: int, rows: list[Row]) -> list[Row]:
    return [(f"{event_id}{k}", kind, agent, targets, []) for k in range(n) for event_id, kind, agent, targets, _ in rows]


def test_few_events_stand_left_to_right_by_cause_and_one_row_an_agent() -> None:
    assert orchestration_graph(frame(DIAMOND), agents("lead", "a", "b")) == Graph(
        [
            Node("delegate\nlead", "delegate", 18, 0, 0),
            Node("act\na", "act", 18, 220, 100),
            Node("opaque\nb", "opaque", 18, 220, 200),
            Node("aggregate\nlead", "aggregate", 18, 440, 0),
        ],
        [Edge(0, 1), Edge(0, 2), Edge(1, 3), Edge(2, 3)],
        "4 events, 4 causal links; one row an agent, causes to the left of effects",
    )


def test_the_column_is_the_longest_chain_of_causes() -> None:
    rows: list[Row] = [("a", "act", "x", [], []), ("b", "act", "x", [], ["a"]), ("c", "act", "x", [], ["a", "b"])]
    assert [node.x for node in orchestration_graph(frame(rows), agents("x")).nodes] == [0, 125, 250]


def test_events_of_one_agent_and_column_stand_above_each_other() -> None:
    rows: list[Row] = [
        ("a", "act", "x", [], []),
        ("b", "act", "x", [], ["a"]),
        ("c", "act", "x", [], ["a"]),
        ("d", "act", "y", [], []),
    ]
    places = [(node.x, node.y) for node in orchestration_graph(frame(rows), agents("x", "y")).nodes]
    assert places == [(0, 0), (250, 0), (250, 100), (0, 200)]


def test_a_long_chain_goes_on_below() -> None:
    rows: list[Row] = [(str(n), "act", "x", [], [str(n - 1)] if n else []) for n in range(40)]
    nodes = orchestration_graph(frame(rows), agents("x")).nodes
    assert len({(node.x, node.y) for node in nodes}) == 40
    width, height = max(node.x for node in nodes), max(node.y for node in nodes)
    assert 1 < width / height < 5


def test_causes_in_a_circle_are_drawn_all_the_same() -> None:
    rows: list[Row] = [("a", "act", "x", [], ["b"]), ("b", "act", "y", [], ["a"])]
    graph = orchestration_graph(frame(rows), agents("x", "y"))
    assert [node.x for node in graph.nodes] == [0, 220]
    assert graph.edges == [Edge(1, 0), Edge(0, 1)]


def test_without_causes_events_stand_in_their_order() -> None:
    rows: list[Row] = [("a", "act", "x", [], []), ("b", "act", None, [], [])]
    graph = orchestration_graph(frame(rows), agents("x"))
    assert graph.caption == (
        "2 events, none names its cause, so they stand in their order; one row an agent, causes to the left of effects"
    )
    assert [(node.label, node.x) for node in graph.nodes] == [("act\nx", 0), ("act\n(no agent)", 220)]


def test_sixty_events_are_drawn_one_by_one_and_sixty_one_are_not() -> None:
    rows: list[Row] = [(str(n), "act", "x", [], []) for n in range(61)]
    assert len(orchestration_graph(frame(rows[:60]), agents("x")).nodes) == 60
    assert orchestration_graph(frame(rows), agents("x")).caption == "61 events shown as 1 agent"


def test_many_events_are_collapsed_to_their_agents_with_counts_on_the_edges() -> None:
    rows: list[Row] = [
        *repeated(20, [("d", "delegate", "lead", ["a"], []), ("s", "spawn", "lead", ["a"], []), ("w", "act", "a", [], [])]),
        ("d", "delegate", "lead", ["a"], []),
        *repeated(20, [("c", "communicate", "a", ["lead", "b"], [])]),
        ("m", "aggregate", "lead", [], ["c0", "c1", "d0"]),
        ("e", "stop", "lead", [], ["m"]),
    ]
    nodes, edges, caption = orchestration_graph(frame(rows), agents("lead", "a", "b", "idle"))
    assert caption == "83 events shown as 4 agents"
    assert [node.label for node in nodes] == ["lead\n43 events", "a\n40 events", "b\n0 events", "idle\n0 events"]
    assert edges == [
        Edge(0, 1, "delegate", "spawn 20, delegate 21", 41),
        Edge(1, 0, "communicate", "communicate 20, aggregate 2", 22),
        Edge(1, 2, "communicate", "communicate 20", 20),
    ]


def test_many_agents_are_collapsed_to_their_components() -> None:
    names = [f"w{n}" for n in range(70)]
    rows: list[Row] = [("s", "spawn", "lead", names, []), *((name, "act", name, [], []) for name in names)]
    table = pd.concat([agents("lead"), agents(*names, component="worker")])
    nodes, edges, caption = orchestration_graph(frame(rows), table)
    assert caption == "71 events of 71 agents shown as 2 components"
    assert [node.label for node in nodes] == ["lead\n1 event", "worker\n70 events"]
    assert edges == [Edge(0, 1, "spawn", "spawn 70", 70)]


def test_of_too_many_components_the_busiest_are_drawn_and_the_rest_is_counted() -> None:
    names = [f"w{n}" for n in range(70)]
    rows: list[Row] = [("x" + name, "act", name, [], []) for name in names] + [
        ("y" + name, "act", name, [], []) for name in names[10:]
    ]
    nodes, _, caption = orchestration_graph(frame(rows), agents(*names))
    assert caption == (
        "130 events of 70 agents shown as 70 components, "
        "of which only the 60 with most events are drawn; the others have 10 events"
    )
    assert {node.label for node in nodes} == {f"{name}\n2 events" for name in names[10:]}


@pytest.mark.parametrize("n_workers", [3, 30])
def test_no_two_agents_stand_on_one_place(n_workers: int) -> None:
    names = [f"w{n}" for n in range(n_workers)]
    rows: list[Row] = [("s", "spawn", "lead", names, []), *((f"{n}", "act", names[n % n_workers], [], []) for n in range(80))]
    nodes, edges, caption = orchestration_graph(frame(rows), agents("lead", *names))
    assert len({(round(node.x), round(node.y)) for node in nodes}) == n_workers + 1
    in_words = n_workers == 3
    assert {edge.label for edge in edges} == {"spawn 1" if in_words else "1"}
    assert ("an edge counts events" in caption) is not in_words


def test_no_events_say_so() -> None:
    assert orchestration_graph(pd.DataFrame(), pd.DataFrame()) == Graph([], [], "This trace has no events.")


def test_the_input_is_left_alone() -> None:
    events, table = frame(DIAMOND), agents("lead", "a", "b")
    before, table_before = events.copy(), table.copy()
    orchestration_graph(events, table)
    pd.testing.assert_frame_equal(events, before)
    pd.testing.assert_frame_equal(table, table_before)


def test_equal_input_gives_equal_bytes_and_the_theme_changes_them() -> None:
    nodes, edges, _ = orchestration_graph(frame(DIAMOND), agents("lead", "a", "b"))
    first = orchestration_html(nodes, edges, dark=False, height_px=400)
    assert orchestration_html(nodes, edges, dark=False, height_px=400) == first
    assert orchestration_html(nodes, edges, dark=True, height_px=400) != first


def test_the_page_starts_with_its_policy_and_names_no_other_host() -> None:
    html = orchestration_html([Node("a", "act", 10, 0, 0)], [], dark=False, height_px=400)
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'none';"
    assert html.startswith(
        f'<!doctype html><html>\n    <head><meta http-equiv="Content-Security-Policy" content="{policy} '
        "form-action 'none'; base-uri 'none'\">"
    )
    assert not re.search(r"<link|<script[^>]*src|<iframe|<base|@import", html)
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", html)


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"};alert(1);({"', "href='x'"]
)
def test_hostile_labels_reach_the_page_as_text_only(text: str) -> None:
    html = orchestration_html(
        [Node(text, "act", 10, 0, 0), Node("b", None, 10, 9, 9)], [Edge(0, 1, None, text)], dark=False, height_px=1
    )
    assert text not in html
    [nodes] = re.findall(r"nodes = new vis.DataSet\((.*)\);", html)
    assert [(node["id"], node["label"], "title" in node) for node in json.loads(nodes)] == [
        ("n0", text, False),
        ("n1", "b", False),
    ]
    assert 'class="popup"' not in html


def test_positions_are_rounded_to_one_decimal() -> None:
    html = orchestration_html([Node("a", None, 10.123, 1 / 3, 2 / 3)], [], dark=False, height_px=1)
    [nodes] = re.findall(r"nodes = new vis.DataSet\((.*)\);", html)
    assert [(node["x"], node["y"], node["size"]) for node in json.loads(nodes)] == [(0.3, 0.7, 10.1)]


def test_a_data_url_holds_the_whole_page() -> None:
    assert network.data_url("<p>é") == "data:text/html;charset=utf-8;base64,PHA+w6k="
