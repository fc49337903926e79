"""The review by keyboard: each key presses its button, the next trace comes, and nothing happens while somebody types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from analysis.pipeline.curating import reviews_of, take_back_review
from analysis.workspace import Snapshot, Workspace
from tests.browser.test_pages import SLOW_MS, open_page
from tests.dashboard import curated

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return curated.make(tmp_path_factory.mktemp("curated"))


def test_the_queue_is_worked_off_by_keyboard(page: Page, url: str, workspace: Workspace) -> None:
    for trace_id in reviews_of(Snapshot(workspace)):  # where this runs again
        take_back_review(workspace, trace_id, author="test")
    page.set_viewport_size({"width": 1280, "height": 1000})
    open_page(page, f"{url}/curate?view=review", "Curate")
    expect(page.get_by_text("Task torn-0")).to_be_visible(timeout=SLOW_MS)
    page.wait_for_timeout(2000)  # the listener has no picture that says it is there
    note = page.get_by_label("Note", exact=True)
    note.click()
    note.press_sequentially("kd")
    expect(note).to_have_value("kd")
    page.keyboard.press("Escape")
    shown = ("Task torn-1", "Task torn-2", "Task torn-0", "Task torn-2", "0 of 3 traces wait for you.")
    for key, text in zip("jenkd", shown, strict=True):
        page.keyboard.press(key)
        expect(page.get_by_text(text)).to_be_visible(timeout=SLOW_MS)
    found = {name.removeprefix("counterpoint:"): (r.verdict, r.note) for name, r in reviews_of(Snapshot(workspace)).items()}
    assert found == {"torn-0": ("keep", "kd"), "torn-1": ("edit", ""), "torn-2": ("drop", "")}


def test_a_click_on_a_gate_lists_its_traces_and_stays_in_the_address(page: Page, url: str) -> None:
    open_page(page, f"{url}/curate?view=funnel", "Curate")
    name = page.locator(".js-plotly-plot .annotation-text", has_text="coherence")
    expect(name).to_be_visible(timeout=SLOW_MS)
    box = name.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] + 60)
    expect(page.get_by_role("heading", name="coherence: came to it")).to_be_visible(timeout=SLOW_MS)
    page.reload()
    expect(page.get_by_role("heading", name="coherence: came to it")).to_be_visible(timeout=SLOW_MS)
