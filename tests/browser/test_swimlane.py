"""The swim-lane as a person meets it: clicks, keys, folding, zoom, pictures, hostile names, ten thousand events."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect

from analysis.model import Agent, Event, Trace, encode
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.patterns import occurrence
from analysis.workspace import Snapshot, Workspace
from benchmarks.simulation import SimulationPolicy, simulate
from dashboard import swimlane

if TYPE_CHECKING:
    from tests.browser.conftest import Sink

pytestmark = pytest.mark.browser
SCRIPT = "".join(
    (Path(swimlane.__file__).parent / name).read_text(encoding="utf-8") for name in ("scene.js", "paint.js", "swim.js")
)
SLOW_MS = 30_000
MAX_NODES = 5_000
AXIS_PX, LANE_PX, RIGHT_PX = 26, 36, 12
PIXELS = "async chart => { await new Promise(requestAnimationFrame); return chart.toDataURL(); }"
N_NODES = """() => {
    const inside = (root) => [...root.querySelectorAll("*")].reduce((n, e) => n + 1 + below(e.shadowRoot), 0);
    const below = (root) => (root ? inside(root) : 0);
    return inside(document);
}"""


def team() -> Trace:
    """Lead, two workers, a helper of the first; times in whole seconds."""
    agents = [("lead", "planner", None), ("ann", "coder", "lead"), ("helper", "searcher", "ann"), ("bob", "coder", "lead")]
    events: list[tuple[str, str, str, float, float | None, tuple[str, ...]]] = [
        ("plan", "act", "lead", 0, 2, ()),
        ("to ann", "delegate", "lead", 2, 3, ("plan",)),
        ("to bob", "delegate", "lead", 3, 4, ("plan",)),
        ("code", "act", "ann", 4, 8, ("to ann",)),
        ("look up", "act", "helper", 5, 7, ("code",)),
        ("test", "act", "bob", 5, 9, ("to bob",)),
        ("join", "aggregate", "lead", 9, 11, ("code", "test")),
        ("end", "stop", "lead", 12, None, ("join",)),
    ]
    return Trace(
        trace_id="counterpoint:team",
        world="recorded",
        clock="relative",
        agents=tuple(Agent(agent_id=a, component=c, parent_id=p) for a, c, p in agents),
        events=tuple(
            Event(event_id=e, kind=kind, agent_id=a, t_start_s=t0, t_end_s=t1, parents=parents, content=f"text of {e}")  # type: ignore[arg-type]
            for e, kind, a, t0, t1, parents in events
        ),
    )


def crowd() -> Trace:
    """A lead and sixty workers of two components, without times."""
    agents = [Agent(agent_id=f"w{n:02}", component=("tester", "coder")[n % 2], parent_id="lead") for n in range(60)]
    events = [Event(event_id=f"e{n}", kind="act", agent_id=f"w{n:02}") for n in range(60)]
    lead = Agent(agent_id="lead", component="lead")
    return Trace(trace_id="counterpoint:crowd", world="recorded", agents=(lead, *agents), events=tuple(events))


def hostile(sink: str) -> Trace:
    """Whatever a name can be, is a script, a picture or a control character."""
    evil = f"\u202eevil <img src={sink}/img onerror=window.__pwn=1><script>window.__pwn=1</script>![i]({sink}/md)"
    names = [evil, f'"}};fetch("{sink}/js");window.__pwn=1;({{"', "</style><script>window.__pwn=1</script>"]
    events = [
        Event(event_id=f"{evil}{n}", kind="act", action=names[n % 3], name=evil, agent_id=names[n % 3], content=evil, error=evil)
        for n in range(6)
    ]
    agents = [Agent(agent_id=name, component=evil) for name in names]
    return Trace(trace_id=f"counterpoint:{evil} hostile", world="recorded", agents=tuple(agents), events=tuple(events))


@pytest.fixture(scope="module")
def workspace(sink: Sink, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The team, twice, with the patterns that it has in common with itself; and others that came in later."""
    folder = tmp_path_factory.mktemp("lanes")
    policy = SimulationPolicy(name="big", n_tasks=1, n_trials=1, n_bad=0, teams=("parallel",), n_events=9_050)
    twin = msgspec.structs.replace(team(), trace_id="counterpoint:twin")
    (folder / "teams.jsonl").write_bytes(b"\n".join(map(encode, [team(), twin])))
    (folder / "others.jsonl").write_bytes(b"\n".join(map(encode, [crowd(), hostile(sink.url), *simulate(policy, seed=1)])))
    workspace = Workspace(folder / "workspace", create=True)
    import_paths(workspace, [folder / "teams.jsonl"])
    analyse(workspace, only=["patterns"])
    import_paths(workspace, [folder / "others.jsonl"])
    return workspace


def open_lanes(page: Page, url: str, trace: str, **parameters: str) -> Locator:
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.goto(f"{url}/trace?trace={trace}" + "".join(f"&{name}={value}" for name, value in parameters.items()))
    lanes = page.locator(".swim[data-drawn]")
    expect(lanes).to_be_visible(timeout=SLOW_MS)
    expect(page.get_by_text(re.compile(r"^event \d"))).to_be_visible(timeout=SLOW_MS)
    return lanes


def state(lanes: Locator) -> dict[str, float]:
    # After the next frame, so that what was just done is drawn.
    read = "async lanes => { await new Promise(requestAnimationFrame); return {...lanes.dataset}; }"
    found: dict[str, str] = lanes.evaluate(read)
    return {name: float(value) for name, value in found.items()}


def spot(lanes: Locator, time: float, lane: int) -> dict[str, Any]:
    """Where an event of a lane of one row is on the canvas."""
    now, box = state(lanes), lanes.locator(".chart").bounding_box()
    assert box is not None
    width = box["width"] - now["gutter"] - RIGHT_PX
    x = now["gutter"] + (time - now["x0"]) / (now["x1"] - now["x0"]) * width
    return {"x": x, "y": AXIS_PX + (lane + 0.5) * LANE_PX}


def expect_event(page: Page, number: int, event_id: str | None) -> None:
    expect(page.get_by_text(f"event {number} of")).to_be_visible(timeout=SLOW_MS)
    value = None if event_id is None else event_id.replace(" ", "+")
    assert re.search(r"[?&]event=([^&]*)", page.url + "&event=")[1] == (value or "")  # type: ignore[index]


def test_a_click_on_a_mark_opens_that_event_and_stands_in_the_address(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "team")
    expect(lanes.locator(".note")).to_contain_text("8 of 8 events drawn")
    for time, lane, number, event_id in [(6, 1, 4, "code"), (6, 2, 5, "look up"), (7, 3, 6, "test"), (12, 0, 8, "end")]:
        lanes.locator(".chart").click(position=spot(lanes, time, lane))
        expect_event(page, number, event_id)
        assert state(lanes)["selected"] == number - 1
    page.reload()
    expect_event(page, 8, "end")
    expect(page.locator('.swim[data-selected="7"]')).to_be_visible(timeout=SLOW_MS)


def test_what_is_selected_elsewhere_on_the_page_is_selected_in_the_lanes(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "team", event="code")
    page.get_by_role("button", name="Next", exact=True).click()
    expect(page.locator('.swim[data-selected="4"]')).to_be_visible(timeout=SLOW_MS)
    expect(lanes.locator(".live")).to_have_text(re.compile("^act, no. 5 of 8, by helper .searcher., 5 s to 7 s .2 s."))


def test_keys_walk_along_and_across_the_lanes_and_the_focus_is_to_be_seen(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "team")
    chart = lanes.locator(".chart")
    chart.focus()
    for keys, number in [
        (["ArrowRight"], 1), (["ArrowRight", "ArrowRight"], 3), (["ArrowDown"], 4), (["ArrowDown"], 5), (["ArrowDown"], 6),
        (["ArrowUp", "ArrowUp", "ArrowUp", "End"], 8), (["Home"], 1), (["n", "n"], 5), (["p"], 4),
    ]:  # fmt: skip
        for key in keys:
            chart.press(key)
        expect(page.locator(f'.swim[data-selected="{number - 1}"]')).to_be_visible()
        expect(page.get_by_text(f"event {number} of")).to_be_visible(timeout=SLOW_MS)
    chart.press("Escape")
    expect(page.get_by_text("Nothing is selected")).to_be_visible(timeout=SLOW_MS)
    expect_event(page, 1, None)
    assert chart.evaluate("chart => chart.getRootNode().activeElement === chart")
    assert chart.evaluate("chart => getComputedStyle(chart).outlineStyle + getComputedStyle(chart).outlineWidth") == "solid2px"


def test_a_lane_folds_by_click_and_by_key_and_keeps_its_events(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "team", event="look up")
    assert state(lanes)["lanes"] == 4
    chart = lanes.locator(".chart")
    chart.click(position={"x": 15, "y": AXIS_PX + 1.5 * LANE_PX})
    expect(page.locator('.swim[data-lanes="3"][data-drawn="8"][data-selected="4"]')).to_be_visible()
    chart.press("Escape")
    chart.press("ArrowRight")
    expect(page.locator('.swim[data-lanes="4"]')).to_be_visible()
    chart.press("ArrowUp")
    chart.press("ArrowLeft")
    expect(page.locator('.swim[data-lanes="1"][data-drawn="8"]')).to_be_visible()


def test_many_lanes_start_folded_and_say_how_many_agents_they_hold(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "crowd")
    assert (state(lanes)["lanes"], state(lanes)["drawn"]) == (3, 60)
    expect(lanes.locator(".note")).to_contain_text("61 agents; lanes of one component start folded")
    expect(lanes.locator(".note")).to_contain_text("the source has no times")
    chart = lanes.locator(".chart")
    chart.hover(position={"x": 40, "y": AXIS_PX + 1.5 * LANE_PX})
    expect(lanes.locator(".tip")).to_have_text(re.compile("tester\n30 agents · 30 events"))
    chart.click(position={"x": 25, "y": AXIS_PX + 1.5 * LANE_PX})
    expect(page.locator('.swim[data-lanes="33"]')).to_be_visible()


def test_a_kind_can_be_hidden_and_is_said_to_be(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "team")
    button = lanes.get_by_role("button", name="act 4")
    button.click()
    expect(page.locator('.swim[data-drawn="4"]')).to_be_visible()
    expect(lanes.locator(".note")).to_contain_text("4 of 8 events drawn · hidden: act")
    expect(button).to_have_attribute("aria-pressed", "false")
    button.click()
    expect(page.locator('.swim[data-drawn="8"]')).to_be_visible()
    path = lanes.get_by_role("button", name="critical path")
    before = lanes.locator(".chart").evaluate(PIXELS)
    path.click()
    expect(path).to_have_attribute("aria-pressed", "false")
    assert lanes.locator(".chart").evaluate(PIXELS) != before


def test_zoom_keeps_the_selection_and_comes_back_on_reload(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "team", event="code")
    whole, chart = state(lanes), lanes.locator(".chart")
    place = spot(lanes, 6, 1)
    chart.hover(position=place)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_url(re.compile("t0="), timeout=SLOW_MS)
    zoomed = state(lanes)
    assert zoomed["x1"] - zoomed["x0"] < 0.5 * (whole["x1"] - whole["x0"])
    assert zoomed["selected"] == 3
    assert spot(lanes, 6, 1)["x"] == pytest.approx(place["x"], abs=1)
    page.reload()
    expect(page.locator('.swim[data-selected="3"]')).to_be_visible(timeout=SLOW_MS)
    again = state(lanes)
    assert (again["x0"], again["x1"]) == (pytest.approx(zoomed["x0"], abs=1e-5), pytest.approx(zoomed["x1"], abs=1e-5))
    lanes.get_by_role("button", name="Show the whole run").click()
    page.wait_for_url(lambda address: "t0=" not in address, timeout=SLOW_MS)
    assert state(lanes)["x0"] == whole["x0"]


def test_dragging_moves_along_and_selects_nothing(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "team")
    chart = lanes.locator(".chart")
    lanes.get_by_role("button", name="Zoom in").click()
    lanes.get_by_role("button", name="Zoom in").click()
    page.wait_for_url(re.compile("t0="), timeout=SLOW_MS)
    before, box = state(lanes), chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 60, steps=4)
    page.mouse.up()
    after = state(lanes)
    shift = 100 / (box["width"] - before["gutter"] - RIGHT_PX) * (before["x1"] - before["x0"])
    assert after["x0"] - before["x0"] == pytest.approx(shift, rel=0.02)
    assert after["selected"] == -1
    strip = lanes.locator(".map")
    size = strip.bounding_box()
    assert size is not None
    strip.click(position={"x": size["width"] - RIGHT_PX - 2, "y": 10})
    assert state(lanes)["x1"] == pytest.approx(12.24)


def test_the_hover_card_tells_of_the_event(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "team")
    for time, lane, told in [
        (6, 3, ["act", "no. 6 of 8", "by bob (coder)", "5 s to 9 s (4 s)", "on the critical path",
                "drag 1 s: so much sooner would the run end without it", "text of test"]),
        (12, 0, ["stop", "no. 8 of 8", "by lead (planner)", "12 s, no duration stated", "text of end"]),
    ]:  # fmt: skip
        lanes.locator(".chart").hover(position=spot(lanes, time, lane))
        assert lanes.locator(".tip").inner_text().split("\n") == told


def test_the_other_axis_draws_the_same_events_by_number(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "team", event="join", t0="3", t1="11")
    assert (state(lanes)["x0"], state(lanes)["x1"]) == (3, 11)
    page.get_by_text("By order").click()
    page.wait_for_url(lambda address: "axis=order" in address and "t0=" not in address, timeout=SLOW_MS)
    expect(page.locator('.swim[data-x0="0.4"][data-x1="8.6"][data-drawn="8"][data-selected="6"]')).to_be_visible(timeout=SLOW_MS)
    lanes.locator(".chart").click(position=spot(lanes, 6, 3))
    expect_event(page, 6, "test")


def test_dark_and_light_are_different_pictures(page: Page, url: str) -> None:
    corners, grounds = [], []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        lanes = open_lanes(page, url, "team")
        corners.append(lanes.locator(".chart").evaluate("c => [...c.getContext('2d').getImageData(2, 2, 1, 1).data]"))
        grounds.append(page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"))
    assert corners == [[255, 255, 255, 255], [20, 24, 28, 255]]
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 24, 28)"]


def test_the_picture_that_is_saved_is_a_png_of_all_lanes(page: Page, url: str, tmp_path: Path) -> None:
    lanes = open_lanes(page, url, "team")
    with page.expect_download(timeout=SLOW_MS) as download:
        lanes.get_by_role("button", name="Save as a picture").click()
    assert re.fullmatch(r"counterpoint-team-[0-9a-f]{8}\.png", download.value.suggested_filename)
    download.value.save_as(tmp_path / "lanes.png")
    picture = (tmp_path / "lanes.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    _, height = struct.unpack(">II", picture[16:24])
    assert height == 2 * (58 + AXIS_PX + 4 * LANE_PX + 2 + 28)


def test_hostile_names_run_nothing_and_are_shown_as_they_are(page: Page, url: str, sink: Sink) -> None:
    sink.paths.clear()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    lanes = open_lanes(page, url, "hostile")
    chart = lanes.locator(".chart")
    for lane in range(3):
        chart.hover(position={"x": 40, "y": AXIS_PX + (lane + 0.5) * LANE_PX})
        expect(lanes.locator(".tip")).to_be_visible()
    chart.hover(position=spot(lanes, 1, 0))
    expect(lanes.locator(".tip")).to_contain_text("⟦U+202E⟧evil <img src=")
    chart.click(position=spot(lanes, 2, 1))
    expect(page.get_by_text("event 2 of 6")).to_be_visible(timeout=SLOW_MS)
    expect(lanes.locator(".live")).to_contain_text("⟦U+202E⟧evil <img src=")
    with page.expect_download(timeout=SLOW_MS) as download:
        lanes.get_by_role("button", name="Save as a picture").click()
    assert re.fullmatch(r"[a-z0-9._-]{1,64}\.png", download.value.suggested_filename)
    assert lanes.locator("img, script, style, a").count() == 0
    assert page.evaluate("window.__pwn ?? null") is None
    assert [address for address in asked if address.startswith(sink.url)] == []
    assert sink.paths == []


def in_script(page: Page, expression: str) -> Any:
    """The value of an expression over the functions of the script, without a dashboard."""
    page.goto("about:blank")
    names = "packRows, placeEvents, layOut, readScene, relatedTo, chooseTicks, sayTime"
    page.add_script_tag(content=f"{SCRIPT}\nglobalThis.lanes = {{ {names} }};", type="module")
    page.wait_for_function("globalThis.lanes")
    return page.evaluate(f"(() => {{ const {{ {names} }} = globalThis.lanes; return {expression}; }})()")


def test_what_overlaps_in_a_lane_gets_a_row_of_its_own(page: Page) -> None:
    assert in_script(page, "packRows([[0, 5], [1, 2], [2, 4], [3, 3], [4, 4], [5, 6], [5, 5]])") == [0, 1, 1, 2, 2, 0, 1]
    assert in_script(page, "packRows([[0, 9], [0, 9], [0, 9], [0, 9]], 2)") == [0, 1, 1, 1]
    assert in_script(page, "packRows([])") == []


@pytest.mark.parametrize(
    ("axis", "low", "high", "first", "step", "title"),
    [
        ("time", 0, 10, "0 s", "2 s", "seconds since the run began"),
        ("time", 0, 0.01, "0.000 s", "0.002 s", "seconds since the run began"),
        ("time", 0, 600, "0 min", "2 min", "minutes since the run began"),
        ("time", 0, 4500, "0 min", "15 min", "minutes since the run began"),
        ("time", 0, 40_000, "0 h", "3 h", "hours since the run began"),
        ("time", 0, 7.3e9, "0 d", "20000 d", "days since the run began"),
        ("order", 1, 9, "2", "4", "event number"),
        ("order", 1, 9000, "2000", "4000", "event number"),
    ],
)
def test_ticks_are_round_and_carry_their_unit(
    page: Page, axis: str, low: float, high: float, first: str, step: str, title: str
) -> None:
    found = in_script(page, f"chooseTicks('{axis}', {low}, {high}, 450)")
    assert [text for _, text in found["marks"]][:2] == [first, step]
    assert found["title"] == title
    assert len(found["marks"]) <= 12


def test_times_are_said_in_the_unit_that_is_read_best(page: Page) -> None:
    said = in_script(page, "[0, 0.0004, 0.25, 59.999, 61, 3599.7, 7500, 90061, -75].map(sayTime)")
    assert said == ["0 s", "0 s", "0.25 s", "1 min 0 s", "1 min 1 s", "1 h 0 min", "2 h 5 min", "25 h 1 min", "−1 min 15 s"]


def test_causes_and_effects_are_followed_both_ways_even_in_a_circle(page: Page) -> None:
    scene = "{ causes: [[2], [0], [1], [], [2]], effects: [[1], [2], [0, 4], [], []] }"
    found = in_script(
        page, f"(({{ ties, reached, n }}) => ({{ ties, n, reached: [...reached].sort() }}))(relatedTo({scene}, 1, 5))"
    )
    assert found["ties"] == [[0, 1, 1], [1, 2, 1], [2, 0, 2], [2, 0, 2], [2, 4, 2]]
    assert found["reached"] == [0, 1, 2, 4]
    assert found["n"] == 7


def test_ten_thousand_events_are_all_drawn_within_the_budget_of_nodes(page: Page, url: str) -> None:
    lanes = open_lanes(page, url, "big-software-1-parallel-1")
    n = int(state(lanes)["drawn"])
    assert n >= 9_900
    expect(lanes.locator(".note")).to_contain_text(f"{n:,} of {n:,} events drawn")
    lanes.locator(".chart").focus()
    lanes.locator(".chart").press("End")
    expect(page.get_by_text(f"event {n:,} of {n:,}")).to_be_visible(timeout=SLOW_MS)
    assert page.evaluate(N_NODES) <= MAX_NODES


def test_the_events_of_a_pattern_are_ringed_until_it_is_let_go(page: Page, url: str, workspace: Workspace) -> None:
    snapshot = Snapshot(workspace)
    name = snapshot.sql("select pattern_id from patterns order by n_edges, pattern_id")["pattern_id"][0].as_py()
    n_events = len(occurrence(snapshot, "counterpoint:team", name))
    assert 2 <= n_events < 8
    lanes = open_lanes(page, url, "team", pattern=name)
    expect(lanes.locator(".note")).to_contain_text(f"{n_events} ringed", timeout=SLOW_MS)
    ringed = lanes.locator(".chart").evaluate(PIXELS)
    page.get_by_role("button", name="close").click()
    expect(lanes.locator(".note")).not_to_contain_text("ringed", timeout=SLOW_MS)
    assert state(lanes)["marked"] == 0
    assert lanes.locator(".chart").evaluate(PIXELS) != ringed
