"""Benchmark files beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "shared" / "benchmarks"


@pytest.fixture(scope="session")
def shared_benchmarks() -> Path:
    """HumanEval, MBPP+ and others as they are published; never part of the repository."""
    if not BENCHMARKS.is_dir():
        pytest.skip(f"benchmark files are not here: {BENCHMARKS}")
    return BENCHMARKS
