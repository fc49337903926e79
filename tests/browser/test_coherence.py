"""The heat map of component × turn: a click selects a cell, the address keeps it, and what was claimed there is shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from analysis.model import Agent, Claim, Relation, Trace, encode
from analysis.pipeline import analyse, import_paths
from analysis.workspace import Workspace
from tests.browser.conftest import ASGI
from tests.browser.test_pages import SLOW_MS, open_page

if TYPE_CHECKING:
    from tests.browser.conftest import Serve

pytestmark = pytest.mark.browser
N_TURNS, NAMES = 6, ("planner", "coder", "tester")


def run() -> Trace:
    said = [
        Claim(claim_id=f"{name}{turn}", component=name, proposition=f"{name}_ok", p=0.4 + 0.05 * turn + 0.03 * n, turn=turn)
        for turn in range(N_TURNS)
        for n, name in enumerate(NAMES)
    ]
    tie = Relation(relation_id="r", formula="exactly_one(planner_ok, coder_ok, tester_ok)")
    agents = tuple(Agent(agent_id=name, component=name) for name in NAMES)
    return Trace(trace_id="counterpoint:heat", world="recorded", agents=agents, claims=tuple(said), relations=(tie,))


@pytest.fixture(scope="module")
def url(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("heat")
    (folder / "t.jsonl").write_bytes(encode(run()))
    workspace = Workspace(folder / "w", create=True)
    import_paths(workspace, [folder / "t.jsonl"])
    analyse(workspace, only=["claims", "residuals"])
    return serve(ASGI, env={"COUNTERPOINT_WORKSPACE": workspace.location})


def test_a_click_on_a_cell_selects_it_and_stays_in_the_address(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 1400})
    open_page(page, f"{url}/coherence?view=trace&trace=heat", "Coherence")
    plot = page.locator(".js-plotly-plot").first
    expect(plot.locator(".heatmaplayer image")).to_have_count(1, timeout=SLOW_MS)
    box = plot.locator(".nsewdrag.drag").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 2.5 / N_TURNS, box["y"] + box["height"] / 6)
    expect(page).to_have_url(re.compile(r"component=coder.*turn=2|turn=2.*component=coder"), timeout=SLOW_MS)
    expect(page.get_by_role("heading", name="coder: what it had claimed by turn 2")).to_be_visible(timeout=SLOW_MS)
    page.reload()
    expect(page.get_by_role("heading", name="coder: what it had claimed by turn 2")).to_be_visible(timeout=SLOW_MS)


def test_the_page_asks_no_other_host(page: Page, url: str) -> None:
    elsewhere: list[str] = []
    page.on(
        "request",
        lambda r: elsewhere.append(r.url) if not r.url.startswith((url, url.replace("http", "ws"), "data:", "blob:")) else None,
    )
    for view in ("team", "trace", "stream", "review"):
        open_page(page, f"{url}/coherence?view={view}&trace=heat", "Coherence")
    assert Path(ASGI).exists()
    assert elsewhere == []
