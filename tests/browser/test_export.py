"""Rows, an export that is taken away as one file, and a run that is planned, by mouse."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from analysis.training.bundle import read_manifest
from analysis.training.plan import read_plan
from analysis.workspace import Workspace
from tests.browser.test_pages import SLOW_MS, open_page
from tests.dashboard import exported

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return exported.make(tmp_path_factory.mktemp("exported"))


def test_a_row_shows_its_texts_and_the_next_one_stands_in_the_address(page: Page, url: str) -> None:
    open_page(page, f"{url}/export?trace=counterpoint:alpha", "Export and train")
    first = page.locator(".cp-message").nth(1)
    expect(first.locator("pre")).to_have_text('<img src=x onerror="alert(1)"> **Do** it, [redacted:email]', timeout=SLOW_MS)
    expect(first.locator("pre .cp-credit")).to_have_css("border-bottom-color", "rgb(0, 158, 115)")
    assert page.locator(".cp-message img").count() == 0
    page.get_by_role("button", name="Next row").click()
    expect(page).to_have_url(re.compile("row=2"), timeout=SLOW_MS)
    expect(page.get_by_role("heading", name="coder, row 2 of 2 of its trace")).to_be_visible(timeout=SLOW_MS)


def test_an_export_is_made_taken_away_and_trained_on(page: Page, url: str, workspace: Workspace, tmp_path: Path) -> None:
    open_page(page, f"{url}/export?view=export&target=trl-sft,hf", "Export and train")
    page.get_by_role("button", name="Export", exact=True).click()
    expect(page.get_by_text("Export mine: done.")).to_be_visible(timeout=2 * SLOW_MS)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download all as zip").click()
    download.value.save_as(tmp_path / "mine.zip")
    (folder,) = (Path(workspace.location) / "exports").iterdir()
    assert download.value.suggested_filename == f"{folder.name}.zip"
    with zipfile.ZipFile(tmp_path / "mine.zip") as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read(f"{folder.name}/manifest.json")) == read_manifest(folder)
        there = {f"{folder.name}/{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_file()}
        assert set(archive.namelist()) == there
    page.get_by_role("button", name="Train on it").click()
    expect(page).to_have_url(re.compile("view=train"), timeout=SLOW_MS)
    model = page.get_by_role("textbox", name="Model: a folder, or its name at a hub")
    model.fill("org/model")
    model.press("Tab")
    page.get_by_role("button", name="Plan only").click()
    expect(page.get_by_text("planned: trl-sft on org/model")).to_be_visible(timeout=SLOW_MS)
    assert "run=trl-sft-1" in page.url
    assert read_plan(Path(workspace.location) / "runs" / "trl-sft-1").target == "trl-sft"
