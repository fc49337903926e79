"""Fixtures of all tests: the real traces beside the checkout, where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """Real traces of others; never part of the repository."""
    if not (SHARED / "traces").is_dir():
        pytest.skip(f"real traces are not here: {SHARED / 'traces'}")
    return SHARED / "traces"
