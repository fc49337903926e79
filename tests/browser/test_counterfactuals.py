"""Counterfactuals by mouse: a mark opens its decisions, an event its changes, a study runs while it is watched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ASGI
from tests.browser.test_pages import SLOW_MS, open_page
from tests.dashboard import studied

if TYPE_CHECKING:
    from tests.browser.conftest import Serve

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> studied.Studied:
    return studied.make(tmp_path_factory.mktemp("studied"))


@pytest.fixture(scope="module")
def url(serve: Serve, made: studied.Studied) -> str:
    return serve(ASGI, env={"COUNTERPOINT_WORKSPACE": made.location})


def test_a_click_on_a_mark_lists_its_decisions_and_stays_in_the_address(page: Page, url: str) -> None:
    open_page(page, f"{url}/counterfactuals?study=executed&metric=tokens", "Counterfactuals")
    mark = page.locator(".js-plotly-plot .scatterlayer .point").first
    expect(mark).to_be_visible(timeout=SLOW_MS)
    box = mark.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page).to_have_url(re.compile(r"operator=stop-earlier.*kind=act"), timeout=SLOW_MS)
    expect(page.get_by_role("heading", name="Single decisions: stop-earlier at act")).to_be_visible(timeout=SLOW_MS)
    page.reload()
    expect(page.get_by_role("heading", name="Single decisions: stop-earlier at act")).to_be_visible(timeout=SLOW_MS)


def test_the_lanes_say_what_colours_mean_and_an_event_leads_to_what_was_tried(
    page: Page, url: str, made: studied.Studied
) -> None:
    trace_id = made.run.trace_id
    open_page(page, f"{url}/counterfactuals?view=trace&study=executed&metric=passed&trace={trace_id}", "Counterfactuals")
    swim = page.locator(".swim")
    expect(swim.locator(".swatch")).to_have_text(["helped", "hurt", "no effect", "not measured"], timeout=SLOW_MS)
    swim.locator(".chart").focus()
    page.keyboard.press("End")
    expect(page).to_have_url(re.compile("event="), timeout=SLOW_MS)
    expect(page.get_by_text("No change was tried at the event")).to_be_visible(timeout=SLOW_MS)


def test_a_study_is_started_watched_and_stored(page: Page, url: str, made: studied.Studied) -> None:
    open_page(page, f"{url}/counterfactuals?view=new&filter=world:recorded", "Counterfactuals")
    name = page.get_by_role("textbox", name="Name", exact=True)
    expect(name).to_be_visible(timeout=SLOW_MS)
    name.fill("mine")
    name.press("Tab")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("button", name="See what mine found").click(timeout=SLOW_MS)
    expect(page).to_have_url(re.compile("study=mine"), timeout=SLOW_MS)
    expect(page.get_by_text("nothing was executed, so there is nothing to control")).to_be_visible(timeout=SLOW_MS)
