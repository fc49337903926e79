"""What the page Curriculum reads, cached."""

from __future__ import annotations

from typing import Any

import msgspec
import pandas as pd
import streamlit as st

from analysis.curation.curriculum.attempts import TRACE_MODELS
from analysis.curation.curriculum.requirement import rank_correlations
from analysis.curation.curriculum.stages import Reference
from analysis.pipeline.curriculum import stored_reference
from dashboard.loading import Version, frame, snapshot


def difficulty(version: Version) -> pd.DataFrame:
    """Return a row a task and model: the columns of `difficulty` and the task's task_text, domain and n_runs (of all models)."""
    return frame(
        version,
        """with tasks as (
            select task_id, max(task_text) as task_text, max(domain) as domain, count(*) as n_runs from traces group by task_id
        )
        select difficulty.*, task_text, domain, n_runs from difficulty left join tasks using (task_id) order by model, task_id""",
    )


def difficulty_run(version: Version) -> dict[str, Any] | None:
    """Return `fit` and `notes` of the last run as plain values; None before the first one."""
    runs = frame(version, "select fit, notes from difficulty_runs where fit is not null").to_dict("records")
    return {name: msgspec.json.decode(text) for name, text in runs[0].items()} if runs else None


@st.cache_data(max_entries=4, show_spinner=False)
def reference(version: Version) -> Reference | None:
    """Return what difficulty is compared with."""
    return stored_reference(snapshot(version))


@st.cache_data(max_entries=4, show_spinner="Comparing models")
def model_correlations(version: Version, source: str) -> pd.DataFrame:
    """Return model × model: the rank correlation of difficulty, of tasks that were tried; of one source of attempts."""
    rows = difficulty(version)
    return rank_correlations(rows[(rows["n"] > 0) & (rows["source"] == source)])


def family_counts(version: Version, model: str) -> pd.DataFrame:
    """Return the families of runs with a known outcome, of one model, or of all where it is ''.

    Columns: family_id, name, n_passed, n, worlds (with commas between).
    """
    return frame(
        version,
        f"""select family_id, any_value(families.name) as name, count(*) filter (passed) as n_passed, count(*) as n,
            string_agg(distinct world, ', ' order by world) as worlds
        from family_members join families using (family_id) join traces using (trace_id)
        join ({TRACE_MODELS}) as models using (trace_id)
        where passed is not null and counterfactual is null and ($model = '' or models.model = $model)
        group by family_id order by n desc, family_id""",
        {"model": model},
    )
