"""Untrusted text makes no page fetch or run anything, as seen by a server that would notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import new_context

if TYPE_CHECKING:
    from tests.browser.conftest import Serve, Sink

pytestmark = pytest.mark.browser
APP = Path(__file__).with_name("leak_app.py")
JOINER = "\u2060"

# What Streamlit draws as it stands. Pages put texts of traces there without escaping them.
PLAIN = {
    *("text", "code", "json", "dataframe", "exception", "raise", "selectopt", "multiselect", "textarea"),
    *("writeobj", "writedf", "colname", "jsoncol", "chat"),
}
MARKDOWN = {
    *("markdown", "write", "table", "caption", "error", "metric", "expander", "tabs", "selectbox", "radio", "pills", "button"),
    *("toast", "title", "status", "progress", "help", "imgcol", "download", "spinner"),
}


class Visit(NamedTuple):
    """What a page asked for: names the sink was asked for, names that reached it, other hosts; what had run."""

    asked: set[str]
    reached: set[str]
    elsewhere: set[str]
    ran: object


def visit(page: Page, url: str, part: str, sink: Sink) -> Visit:
    """Open one part of `leak_app.py`, wait until it is drawn, open its tooltips and menus."""
    sink.paths.clear()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{url}/?part={part}")
    page.get_by_text("END", exact=True).wait_for(timeout=30_000)
    for tooltip in page.get_by_test_id("stTooltipIcon").all():
        tooltip.hover()
        page.wait_for_timeout(300)
    for menu in page.get_by_role("combobox").all():
        menu.click()
        page.keyboard.press("Escape")
    page.wait_for_timeout(1500)
    asked = {address.removeprefix(f"{sink.url}/") for address in requests if address.startswith(sink.url)}
    known = (url, sink.url, "data:", "blob:", url.replace("http", "ws"))
    elsewhere = {address for address in requests if not address.startswith(known)}
    return Visit(asked, {path.strip("/") for path in sink.paths}, elsewhere, page.evaluate("window.__pwn ?? null"))


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a profile of its own: what a browser has kept, it does not ask for again."""
    context = new_context(browser)
    yield context.new_page()
    context.close()


@pytest.fixture
def plain(serve: Serve, sink: Sink) -> str:
    """The hostile app without the headers: a control, and what is left where someone serves `app.py` by itself."""
    return serve(APP, env={"COUNTERPOINT_TEST_SINK": sink.url})


@pytest.fixture
def secure(serve: Serve, sink: Sink) -> str:
    """The hostile app behind the headers."""
    return serve(APP, env={"COUNTERPOINT_TEST_SINK": sink.url}, secure=True)


def test_without_the_headers_markdown_leaks_and_plain_text_does_not(page: Page, plain: str, sink: Sink) -> None:
    seen = visit(page, plain, "matrix", sink)
    assert seen.reached == seen.asked
    assert seen.reached.isdisjoint(PLAIN)
    # Fewer would be Streamlit's merit; but then these are no longer what the next test is about.
    assert seen.reached >= MARKDOWN
    assert seen.ran is None


def test_behind_the_headers_none_of_34_variants_leaks(page: Page, secure: str, sink: Sink) -> None:
    seen = visit(page, secure, "matrix", sink)
    assert seen.asked >= MARKDOWN, "the variants must try, or the test proves nothing"
    assert seen.reached == set()
    assert seen.elsewhere == set()
    assert seen.ran is None
    assert page.locator("a[href^=javascript]").count() == 0


def test_escaped_text_asks_for_nothing_and_reads_as_it_is_without_the_headers(page: Page, plain: str, sink: Sink) -> None:
    seen = visit(page, plain, "safe", sink)
    assert seen == Visit(set(), set(), set(), None)
    assert page.locator("[data-testid=stMain] :is(a:not([href^='#']), img)").count() == 0
    as_text, as_markdown = [shown.inner_text().replace(JOINER, "") for shown in page.get_by_text("BEGIN").all()]
    assert as_markdown == as_text


def test_hostile_names_run_nothing_in_the_graph(page: Page, plain: str, sink: Sink) -> None:
    seen = visit(page, plain, "graph", sink)
    frames = [frame for frame in page.frames if frame != page.main_frame]
    assert [frame.evaluate("nodes.length") for frame in frames] == [30, 4]
    assert [frame.evaluate("window.__pwn ?? null") for frame in frames] == [None, None]
    assert seen == Visit(set(), set(), set(), None)


def test_a_script_in_the_graph_frame_reaches_neither_page_nor_network(page: Page, plain: str, sink: Sink) -> None:
    seen = visit(page, plain, "breach", sink)
    [frame] = [frame for frame in page.frames if frame != page.main_frame]
    assert frame.evaluate("window.__pwn") == 1, "the script must run, or the test proves nothing"
    assert seen.ran is None
    assert seen.reached == set()
