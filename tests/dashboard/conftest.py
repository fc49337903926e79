"""Workspaces for the pages, and the app run without a browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analysis import data_folder
from analysis.pipeline import import_paths
from analysis.workspace import Workspace

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"


@pytest.fixture(scope="session")
def sample_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A workspace with the samples; tests that write use one of their own."""
    workspace = Workspace(tmp_path_factory.mktemp("dashboard-samples"), create=True)
    import_paths(workspace, [data_folder() / "samples"])
    return workspace.location


@pytest.fixture(scope="session")
def analysed_folder(analysed_samples: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same, analysed."""
    return str(shutil.copytree(analysed_samples, tmp_path_factory.mktemp("dashboard") / "analysed"))


@pytest.fixture
def analysed(analysed_folder: str, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", analysed_folder)
    return Workspace(analysed_folder)


@pytest.fixture
def samples(sample_folder: str, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", sample_folder)
    return Workspace(sample_folder)


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_file(str(APP), default_timeout=60)
