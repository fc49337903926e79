"""Frames for tests of curation: one row a trace, everything unknown but what a test states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

TEXTS = ("task_id", "format", "mode", "family", "stage")
NUMBERS = (
    "passed", "residual", "residual_norm", "residual_max", "residual_debiased", "sharpness", "coupling_bits", "d_req", "d_orch",
    "joint", "agreement", "n_agents", "n_events", "q_work",
)  # fmt: skip


def frame(n: int, **columns: Any) -> pd.DataFrame:
    """`n` traces `t00`, `t01`, …; a residual stated as `norm` is also ε*, of a largest possible 1."""
    if "norm" in columns:
        norm = np.array(columns.pop("norm"), float)
        columns = {"residual": norm, "residual_norm": norm, "residual_max": 1.0, "sharpness": 0.3, **columns}
        columns.setdefault("is_tied", np.isfinite(norm))
    absent = {**dict.fromkeys(TEXTS), **dict.fromkeys(NUMBERS, np.nan), "is_tied": False}
    values = {"trace_id": [f"t{k:02d}" for k in range(n)], **absent, **columns}
    made = pd.DataFrame({name: value if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) else [value] * n
                         for name, value in values.items()})  # fmt: skip
    return made.astype(dict.fromkeys(NUMBERS, float) | dict.fromkeys(TEXTS, object))


@st.composite
def frames(draw: st.DrawFn, max_rows: int = 30) -> pd.DataFrame:
    """Frames with ties, unknowns, noise and groups."""
    n = draw(st.integers(0, max_rows))
    column = lambda values: draw(st.lists(values, min_size=n, max_size=n))  # noqa: E731
    norm = np.array(column(st.one_of(st.just(np.nan), st.sampled_from([0.0, 0.1, 0.2, 0.2, 0.4, 0.9]))), float)
    debiased = np.array(column(st.sampled_from([np.nan, 0.0, 0.5, 1.0])), float) * norm
    return frame(
        n, norm=norm, residual_debiased=debiased, sharpness=column(st.sampled_from([0.0, 0.1, 0.3, 0.5])),
        passed=column(st.sampled_from([np.nan, 0.0, 1.0])), q_work=column(st.sampled_from([np.nan, 0.0, 0.5, 1.0])),
        mode=column(st.sampled_from([None, "m1", "m2"])), task_id=column(st.sampled_from(["a", "b", "c"])),
        stage=column(st.sampled_from([None, "warmup", "integrated"])), d_orch=column(st.floats(0, 1)),
    )  # fmt: skip
