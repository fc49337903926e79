"""What all tests stand on: the real traces beside the checkout, the same examples each time, patience with browsers."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from streamlit.components.v2 import manifest_scanner

from analysis import data_folder
from analysis.pipeline import analyse, import_paths
from analysis.workspace import Workspace
from tests.pipeline.corpus import write_traces
from tests.pipeline.teams import failing_teams

collect_ignore_glob = ["training/in_trainer/*"]  # for the interpreter of the training environment
SHARED = Path(__file__).resolve().parents[2] / "shared"

# `make test` tries the same examples each time, so that it says something about the change; `make soak` tries others, and
# twice as many where a test does not say how many.
# How long an example takes says how busy the machine is, no more.
EXAMPLES = os.environ.get("COUNTERPOINT_EXAMPLES", "same")
settings.register_profile("same", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("other", deadline=None)
settings.load_profile(EXAMPLES)
if EXAMPLES == "same":
    # Hypothesis also draws constants out of the modules that are loaded, which differ from worker to worker.
    providers._get_local_constants = providers.Constants

# For each page that is tested, Streamlit reads what all installed packages say of themselves; it stays the same.
manifest_scanner.scan_component_manifests = functools.cache(manifest_scanner.scan_component_manifests)  # type: ignore[assignment]

#: Files of tests that start processes, which on a busy machine may be late.
PATIENT = (
    "test_kill.py", "test_jobs.py", "test_sandbox.py", "test_live.py", "test_arrivals.py", "test_runtime.py", "test_study.py",
    "test_run.py", "test_effects.py", "test_samples.py", "test_trained.py", "test_live_teams.py", "test_live_study.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of browsers and processes run again, where what they wait for may come late."""
    for item in items:
        if item.get_closest_marker("browser") or item.path.name in PATIENT:
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.fixture(autouse=True)
def _main_stays() -> Iterator[None]:
    """A page that is run in a test leaves itself as the main module, which processes that a later test starts would run."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """Real traces of others; never part of the repository."""
    if not (SHARED / "traces").is_dir():
        pytest.skip(f"real traces are not here: {SHARED / 'traces'}")
    return SHARED / "traces"


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of three kinds of failing team, analysed; tests that write copy it."""
    folder = tmp_path_factory.mktemp("failing")
    workspace = Workspace(folder / "w", create=True)
    import_paths(workspace, [write_traces(folder / "teams.jsonl", failing_teams(14))])
    analyse(workspace)
    return folder / "w"


@pytest.fixture(scope="session")
def analysed_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of the samples, analysed; tests that write copy it. The first worker that needs it makes it for all."""
    own = tmp_path_factory.getbasetemp()
    place = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "analysed-samples"
    if not place.exists():
        made = tmp_path_factory.mktemp("samples") / "w"
        workspace = Workspace(made, create=True)
        import_paths(workspace, [data_folder() / "samples"])
        analyse(workspace)
        with contextlib.suppress(OSError):  # another worker was first
            made.rename(place)
    return place
