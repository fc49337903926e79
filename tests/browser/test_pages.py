"""What a person does: import, look around, open a run, step through it, note something, come back by the address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from playwright.sync_api import Page, expect

from analysis import data_folder
from analysis.pipeline import import_paths
from analysis.workspace import Snapshot, Workspace
from dashboard.asgi import HEADERS
from tests.browser.conftest import ASGI

if TYPE_CHECKING:
    from tests.browser.conftest import Serve

pytestmark = pytest.mark.browser
SLOW_MS = 30_000


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("samples")
    workspace = Workspace(folder, create=True)
    import_paths(workspace, [data_folder() / "samples"])
    return workspace


@pytest.fixture
def trace_id(workspace: Workspace) -> str:
    rows = Snapshot(workspace).sql("select trace_id from traces where condition = 'hierarchical' order by trace_id limit 1")
    found: str = rows["trace_id"][0].as_py()
    return found


def open_page(page: Page, address: str, title: str) -> None:
    page.goto(address)
    expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible(timeout=SLOW_MS)
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0, timeout=SLOW_MS)


def test_an_empty_workspace_opens_at_add_data_and_the_samples_come_in(page: Page, serve: Serve, tmp_path: Path) -> None:
    url = serve(ASGI, env={"COUNTERPOINT_WORKSPACE": str(tmp_path / "new")})
    open_page(page, url, "Add data")
    page.get_by_role("button", name="Import the samples").click()
    expect(page.get_by_text("See what stands out")).to_be_visible(timeout=3 * SLOW_MS)  # the import and all stages
    n_samples = sum(path.read_bytes().count(b"\n") for path in (data_folder() / "samples").glob("*.jsonl"))
    expect(page.get_by_test_id("stMetricValue").first).to_have_text(str(n_samples))
    assert "job=" in page.url
    page.get_by_text("See what stands out").click()
    expect(page.get_by_role("heading", name="Where to look first")).to_be_visible(timeout=SLOW_MS)


def test_an_uploaded_file_comes_in_and_a_bad_one_is_named(page: Page, serve: Serve, tmp_path: Path) -> None:
    url = serve(ASGI, env={"COUNTERPOINT_WORKSPACE": str(tmp_path / "uploads")})
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.json"
    good.write_text('{"format": "counterpoint/1", "trace_id": "one", "world": "recorded"}\n', encoding="utf-8")
    bad.write_text("<html>not signed in</html>", encoding="utf-8")
    open_page(page, f"{url}/add_data", "Add data")
    page.get_by_test_id("stFileUploaderDropzoneInput").first.set_input_files([good, bad])
    expect(page.get_by_text("bad.json")).to_be_visible(timeout=SLOW_MS)
    page.get_by_role("button", name="Import").nth(1).click()
    expect(page.get_by_text("What to know about them")).to_be_visible(timeout=SLOW_MS)
    values = page.get_by_test_id("stMetricValue")
    expect(values.first).to_have_text("1", timeout=SLOW_MS)
    expect(values.last).to_have_text("1", timeout=SLOW_MS)
    assert Snapshot(Workspace(tmp_path / "uploads")).trace("one").trace_id == "counterpoint:one"


def test_a_filter_stands_in_the_address_and_comes_back_on_reload(page: Page, url: str) -> None:
    open_page(page, f"{url}/traces?filter=condition:hierarchical", "Traces")
    caption = page.get_by_text(re.compile(r"^6 of \d+ traces"))
    expect(caption).to_be_visible(timeout=SLOW_MS)
    page.reload()
    expect(caption).to_be_visible(timeout=SLOW_MS)
    box = page.get_by_label("Filter", exact=True)
    box.fill("colour:red")
    box.press("Enter")
    expect(page.get_by_text("unknown field")).to_be_visible(timeout=SLOW_MS)
    box.fill("condition:nothing-like-it")
    box.press("Enter")
    expect(page.get_by_text("fits this filter")).to_be_visible(timeout=SLOW_MS)


def test_a_table_downloads_exactly_the_filtered_rows(page: Page, url: str, tmp_path: Path) -> None:
    open_page(page, f"{url}/traces?filter=condition:hierarchical", "Traces")
    expect(page.get_by_text(re.compile(r"^6 of"))).to_be_visible(timeout=SLOW_MS)
    for name, read in (("CSV", pd.read_csv), ("Parquet", pd.read_parquet)):
        with page.expect_download(timeout=SLOW_MS) as download:
            page.get_by_role("button", name=name).click()
        download.value.save_as(tmp_path / name)
        rows = read(tmp_path / name)
        assert len(rows) == 6
        assert set(rows["condition"]) == {"hierarchical"}


def test_an_event_is_reached_by_stepping_and_by_keys_in_its_lane(page: Page, url: str, trace_id: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 1000})
    open_page(page, f"{url}/trace?trace={trace_id}", "Trace")
    expect(page.get_by_text("event 1 of")).to_be_visible(timeout=SLOW_MS)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("event 2 of")).to_be_visible(timeout=SLOW_MS)
    stepped = page.url
    assert "event=" in stepped
    chart = page.locator(".swim canvas.chart")
    chart.focus()
    chart.press("End")
    expect(page.get_by_text("event 2 of")).not_to_be_visible(timeout=SLOW_MS)
    walked = page.url
    assert walked != stepped
    page.reload()
    expect(page.get_by_text(re.compile(r"event \d+ of"))).to_be_visible(timeout=SLOW_MS)
    assert page.url == walked


def test_keys_press_the_buttons_that_are_there_and_never_while_typing(page: Page, url: str, trace_id: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 1000})
    open_page(page, f"{url}/trace?trace={trace_id}", "Trace")
    expect(page.get_by_text("event 1 of")).to_be_visible(timeout=SLOW_MS)
    page.wait_for_timeout(2000)  # the listener has no picture that says it is there
    for key, shown in (("j", "event 2 of"), ("j", "event 3 of"), ("k", "event 2 of")):
        page.keyboard.press(key)
        expect(page.get_by_text(shown)).to_be_visible(timeout=SLOW_MS)
    note = page.get_by_label("Note on this event")
    note.fill("")
    note.press_sequentially("jj?")
    expect(note).to_have_value("jj?")
    expect(page.get_by_text("event 2 of")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile("hierarchical-s7-2"), timeout=SLOW_MS)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next and previous event", timeout=SLOW_MS)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0, timeout=SLOW_MS)
    page.keyboard.press("/")
    expect(page.get_by_role("heading", name="Traces", exact=True)).to_be_visible(timeout=SLOW_MS)
    expect(page.get_by_label("Filter", exact=True)).to_be_visible(timeout=SLOW_MS)
    page.wait_for_timeout(2000)  # the page that is drawn anew takes the focus back
    page.keyboard.press("/")
    expect(page.get_by_label("Filter", exact=True)).to_be_focused(timeout=SLOW_MS)


def test_a_note_and_a_tag_stay_and_the_tag_can_be_filtered_by(page: Page, url: str, trace_id: str) -> None:
    open_page(page, f"{url}/trace?trace={trace_id}&view=claims", "Trace")
    page.get_by_label("Note on this trace").fill("the second lead waits <b>too long</b>")
    page.get_by_label("Tag", exact=True).fill("waiting")
    page.get_by_role("button", name="Save").last.click()
    expect(page.get_by_text("the second lead waits <b>too long</b>")).to_be_visible(timeout=SLOW_MS)
    open_page(page, f"{url}/traces?filter=tag:waiting", "Traces")
    expect(page.get_by_text(re.compile(r"^1 of"))).to_be_visible(timeout=SLOW_MS)


def test_each_view_draws_and_asks_no_other_host(page: Page, url: str, trace_id: str) -> None:
    elsewhere: list[str] = []
    page.on(
        "request",
        lambda r: elsewhere.append(r.url) if not r.url.startswith((url, url.replace("http", "ws"), "data:", "blob:")) else None,
    )
    for view, shown in {
        "lanes": "events drawn",
        "graph": "causal links",
        "events": "CSV",
        "claims": "Labels, by annotator",
        "record": "Load problems",
    }.items():
        open_page(page, f"{url}/trace?trace={trace_id}&view={view}", "Trace")
        expect(page.get_by_text(shown).first).to_be_visible(timeout=SLOW_MS)
    frame = page.goto(f"{url}/trace?trace={trace_id}&view=graph")
    assert frame is not None
    assert {name: frame.headers[name.lower()] for name in HEADERS} == HEADERS
    expect(page.frame_locator("iframe").locator("canvas")).to_be_visible(timeout=SLOW_MS)
    assert elsewhere == []


def test_a_link_to_a_trace_that_is_not_there_says_so_and_offers_the_search(page: Page, url: str) -> None:
    open_page(page, f"{url}/trace?trace=nobody", "Trace")
    expect(page.get_by_text("no trace has this id")).to_be_visible(timeout=SLOW_MS)
    expect(page.get_by_text("Find a trace")).to_be_visible()
