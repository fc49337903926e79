"""Benchmark files beside the checkout, and one judge of programs for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.counterfactual.judging import Judge
from analysis.counterfactual.sandbox import open_sandbox
from analysis.errors import SandboxError

BENCHMARKS = Path(__file__).resolve().parents[3] / "shared" / "benchmarks"


@pytest.fixture(scope="session")
def shared_benchmarks() -> Path:
    """HumanEval, MBPP+ and others as they are published; never part of the repository."""
    if not BENCHMARKS.is_dir():
        pytest.skip(f"benchmark files are not here: {BENCHMARKS}")
    return BENCHMARKS


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """What judges programs; every test may use what others have had judged."""
    try:
        sandbox = open_sandbox()
    except SandboxError as error:
        pytest.skip(str(error))
    with sandbox:
        yield Judge(sandbox)
