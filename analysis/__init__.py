"""Counterpoint's knowledge: what a team of LLM agents did, and how well. Nothing here draws.

errors      what can go wrong, in words             model       the frozen records
readers/    files of any known format to traces     workspace/  the store: Parquet files, numbered heads
counterfactual/ teams that run, tasks, the sandbox  evaluation/ agreement of annotators
pipeline/   the stages over a workspace             cli/        the `counterpoint` command
"""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"


def data_folder() -> Path:
    """Return the project's data: `data/` of a checkout, or the copy that an installed package carries."""
    packaged = Path(__file__).parent / "data"
    return packaged if packaged.is_dir() else Path(__file__).parents[1] / "data"
