"""The drawings of the page Curriculum: where tasks stand, what is drawn when, how alike models are, what to compare with.

Hides how a mark that was clicked, or a row that was chosen instead, becomes the place of the address.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from analysis.curation.curriculum.pass_tables import COLUMNS
from analysis.curation.curriculum.schedule import Schedule, effective_sample_size, family_weights, kernel_weights
from analysis.curation.curriculum.stages import STAGES, Reference
from dashboard import jobs, safe, selection, tables
from dashboard import loading as every
from dashboard.figures import curriculum as figures
from dashboard.loading import Version
from dashboard.loading import curriculum as loading

LISTED = {
    "task_id": "Task", "model": "Model or condition", "stage": "Stage", "d_req": "d_req", "low": "From", "high": "To",
    "n": "Attempts", "d_partial": "d_req by tests", "d_orch": "d_orch", "joint": "Joint", "domain": "Domain", "source": "Source",
    "reason": "To know", "task_text": "Text",
}  # fmt: skip
SUMMARY = {
    "stage": "Stage", "n_tasks": "Tasks", "n_models": "Models or conditions", "d_req": "Mean d_req", "d_orch": "Mean d_orch",
    "text_length": "Characters", "unsure_share": "Unsure share", "typical": "A typical task",
}  # fmt: skip
JOINTS = {
    "linear": "linear: weighted mean", "max": "the larger of the two", "noisy-or": "noisy-or: 1 - (1 - d_req)(1 - d_orch)",
    "fitted": "fitted to failures",
}  # fmt: skip
#: What a pass table states, in words.
_STATED = {
    "task": "task", "model": "model", "n": "attempts", "n_passed": "passes", "rate": "or their share", "percent": "or in percent",
    "d_orch": "where known",
}  # fmt: skip
_N_STEPS = 51
_LINKED = 6


def draw_map(rows: pd.DataFrame, run: dict[str, Any], reference: Reference | None, model: str) -> None:
    """Draw where the tasks of a model stand (of all where it is ''), what each stage is like, and the tasks as a list."""
    mine = rows[rows["model"] == model] if model else rows
    staged = figures.places_of(mine)
    if reference is None or staged.empty:
        _say_why_empty(mine)
    else:
        st.markdown(f"**{safe.markdown(_headline(staged), 600)}**")
        left, right = st.columns([3, 2], gap="medium")
        place = selection.get("place")
        with left:
            drawn = figures.difficulty_map(staged, reference, selected=place)
            clicked = st.plotly_chart(drawn, key="curriculum.map", on_select="rerun", selection_mode="points")
            picked = [str(point["customdata"][0]) for point in clicked["selection"]["points"] if point.get("customdata")]
            _pick("figure", picked[0] if picked else None)
        with right:
            known = rows[rows["d_req"].notna()]
            st.plotly_chart(figures.stages_by_model(known, selected=model), key="curriculum.stages")
        st.caption(safe.markdown(_tested(run, reference), 900))
        _draw_place(staged[staged["place"] == place])
        st.subheader("What is in each stage?")
        tables.show(_summary(staged), key="stages", columns=SUMMARY)
    _draw_list(mine)


def draw_schedule(version: Version, rows: pd.DataFrame, model: str) -> None:
    """Draw what is drawn when under a schedule that sliders set, and the weights of families of runs."""
    mine = rows[(rows["model"] == model) if model else rows["model"].notna()]
    staged = mine[mine["joint"].notna() & mine["stage"].notna()]
    if staged.empty:
        _say_why_empty(mine)
    else:
        _draw_kernel(staged["joint"].to_numpy(dtype=float), staged["stage"].tolist())
    families = loading.family_counts(version, model)
    if families.empty:
        st.info("No family of runs has a known outcome here: nothing can be weighed.", icon=":material/info:")
        return
    counts = {row.family_id: (int(row.n_passed), int(row.n)) for row in families.itertuples()}
    weights = family_weights(counts)
    st.plotly_chart(figures.family_weights(weights, families), key="curriculum.families", config={"displayModeBar": False})
    st.caption(
        f"Effective number of families: {effective_sample_size(list(weights.values())):.1f} of {len(weights):,}. One whose runs "
        "all pass or all fail gives a learner that compares runs nothing to compare."
    )
    if len(worlds := {world for cell in families["worlds"] for world in cell.split(", ")}) > 1:
        named = ", ".join(sorted(worlds))
        st.caption(safe.markdown(f"Runs of several worlds count together here ({named}): choose one model or condition."))


def draw_models(version: Version, rows: pd.DataFrame) -> None:
    """Draw how alike models rank tasks; difficulty is a matter of the model as far as they do not."""
    tried = rows[rows["n"] > 0]
    n_models = tried.groupby("source")["model"].nunique().sort_values(ascending=False, kind="stable")
    if n_models.max() < 2 or tried.empty:
        st.info("Only one model or condition was tried, so there is none to compare it with.", icon=":material/info:")
        return
    called = {str(name): f"{name}: {n:,} models or conditions" for name, n in n_models[n_models > 1].items()}
    source = selection.choose("source", "Where attempts come from", called)
    correlations = loading.model_correlations(version, source)
    pairs = correlations.to_numpy()[np.triu_indices(len(correlations), 1)]
    pairs = pairs[~np.isnan(pairs)]
    if len(pairs):
        st.markdown(
            f"**Rank correlation of difficulty between two models or conditions: mean {pairs.mean():.2f}, least "
            f"{pairs.min():.2f}, largest {pairs.max():.2f}, over {len(pairs):,} pairs.**"
        )
        st.plotly_chart(figures.model_map(correlations), key="curriculum.models")
        st.caption(
            "Where it is far below 1, a curriculum made for one is not one for the other. Few attempts make ranks noisy, "
            "and draw it towards 0."
        )
    else:
        said = "No two models or conditions share five tasks that both tried, or each finds all of them equally hard."
        st.info(said, icon=":material/info:")
    mine = tried[tried["source"] == source]
    found = mine.groupby("model").agg(n_tasks=("task_id", "nunique"), n=("n", "sum"), d_req=("d_req", "mean")).reset_index()
    columns = {"model": "Model or condition", "n_tasks": "Tasks", "n": "Attempts", "d_req": "Mean d_req"}
    tables.show(found, key="models", columns=columns)


def draw_pass_tables(version: Version) -> None:
    """Draw the way in for pass rates of a user's own, and the way out."""
    st.markdown("##### Pass rates from a file")
    columns = "; ".join([f"{words}: {', '.join(COLUMNS[what])}" for what, words in _STATED.items()])
    st.caption(
        f"CSV, JSON, JSONL or Parquet, also gzipped; a row a task and model. Columns: {safe.markdown(columns, 900)}. "
        "Where a table states a task and model, its counts stand in place of those of the traces."
    )
    if n_rows := every.n_rows(version, "pass_rates"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"{n_rows:,} tasks and models are stated by tables taken in before.")
            if st.button("Forget them", icon=":material/delete:", key="curriculum.forget"):
                selection.go(
                    "add_data", job=jobs.start(version.location, "Forget pass tables", ["curriculum", "--forget-tables"])
                )
    with st.form("curriculum.table", border=False, clear_on_submit=True):
        uploads = st.file_uploader("Pass table", key="curriculum.file")
        n = st.number_input("Attempts behind each rate, where no column states them", 0, 1_000_000, 0, key="curriculum.attempts")
        if st.form_submit_button("Take it in", icon=":material/upload:") and uploads:
            folder = jobs.new_folder(version.location)
            file = next(jobs.keep_uploads(folder, [(uploads.name, uploads.getvalue())]).iterdir())
            command = ["curriculum", "--pass-table", str(file), *(["--attempts", str(n)] if n else [])]
            job = jobs.start(version.location, f"Pass table {uploads.name}", command, job_id=folder.name)
            selection.go("add_data", job=job)


def draw_reference(version: Version, reference: Reference | None) -> None:
    """Draw what difficulty is compared with, to be changed; a job does it, and later runs keep to it."""
    if reference is not None:
        st.caption(safe.markdown(f"Now: {reference.name}. It stays as it is when data come in.", 300))
    with st.form("curriculum.reference", border=False):
        at: dict[str, Any] = {"format": "%.4f", "step": 0.05}
        tau_r = st.number_input("Hard above d_req", 0.0, 1.0, reference.tau_r if reference else 0.5, **at)
        tau_o = st.number_input("Hard to lead above d_orch", 0.0, 1.0, reference.tau_o if reference else 0.5, **at)
        names = list(JOINTS)
        joint = st.selectbox(
            "Joint difficulty", names, index=names.index(reference.joint) if reference else 0, format_func=JOINTS.__getitem__
        )
        anew = st.checkbox("Take the thresholds anew: medians of what is here now")
        if st.form_submit_button("Apply", icon=":material/check:"):
            changed = reference is None or (tau_r, tau_o) != (round(reference.tau_r, 4), round(reference.tau_o, 4))
            given = ["--renew"] if anew else ["--tau-req", f"{tau_r:g}", "--tau-orch", f"{tau_o:g}"] if changed else []
            job = jobs.start(version.location, "Stages of the curriculum", ["curriculum", *given, "--joint", joint])
            selection.go("add_data", job=job)


def _headline(staged: pd.DataFrame) -> str:
    counts = staged["stage"].value_counts()
    said = ", ".join(f"{counts.get(stage, 0):,} {stage}" for stage in STAGES)
    is_unsure = _is_unsure(staged)
    what = "tasks" if staged["model"].nunique() == 1 else "tasks and models"
    sources = staged["source"].value_counts()
    mixed = f" ({', '.join(f'{n:,} {source}' for source, n in sources.items())})" if len(sources) > 1 else ""
    which = "all of them" if is_unsure.all() else f"{is_unsure.sum():,} of them"
    unsure = f" For {which} the interval of d_req holds its threshold: more attempts could move them."
    return f"{len(staged):,} {what} in a stage{mixed}: {said}." + (unsure if is_unsure.any() else "")


def _is_unsure(staged: pd.DataFrame) -> pd.Series:
    return staged["reason"].fillna("").str.contains("holds its threshold", regex=False)


def _tested(run: dict[str, Any], reference: Reference) -> str:
    """What the stages are divided by, and whether the two difficulties interact."""
    fit = run["fit"]["joint"]
    said = f"Thresholds: d_req {reference.tau_r:.3g}, d_orch {reference.tau_o:.3g} ({reference.name}). Joint: {reference.joint}."
    if fit["refusal"]:
        return f"{said} Whether the two interact is not tested: {fit['refusal']}."
    b3, error = fit["coefficients"][3], fit["errors"][3]
    verdict = "they interact" if fit["p_interaction"] < 0.05 else "no interaction is seen"
    return (
        f"{said} Do the two interact? b3 = {b3:.2f} ± {error:.2f}, p = {fit['p_interaction']:.3f} over {fit['n_tasks']:,} tasks "
        f"({run['fit']['source']}, tasks as clusters): {verdict}."
    )


def _say_why_empty(rows: pd.DataFrame) -> None:
    """Say why no task is in a stage, and what brings one there."""
    if rows["d_req"].notna().any() and rows["d_orch"].isna().all():
        st.info(
            "No task has a d_orch, which a run of it gives: import runs of these tasks and analyse them, or add a column d_orch "
            "to the pass table.",
            icon=":material/info:",
        )
        return
    st.info(
        "Too few tasks were tried more than once, so there is no pass rate to call easy or hard. Import more attempts "
        "at these tasks, or pass rates of your own (the view Pass tables); `counterpoint run --trials 4` tries tasks of ours.",
        icon=":material/info:",
    )


def _draw_place(there: pd.DataFrame) -> None:
    """Draw the tasks at the chosen place, with the way to their runs."""
    if there.empty:
        st.caption("Click a mark, or choose a row below, to see its interval and its tasks.")
        return
    first = there.iloc[0]
    interval = "no interval" if pd.isna(first["low"]) else f"{first['low']:.2f} to {first['high']:.2f}"
    said = f"d_req {first['d_req']:.3f} ({interval}; {first['n']:,} attempts), d_orch {first['d_orch']:.3f}, {first['stage']}"
    st.markdown(f"##### {safe.markdown(said, 200)}")
    with st.container(horizontal=True):
        for row in there.drop_duplicates("task_id").head(_LINKED).itertuples():
            _link(row)
    if there["task_id"].nunique() > _LINKED:
        st.caption(f"and {there['task_id'].nunique() - _LINKED:,} more tasks; the list below has them all.")


def _link(row: Any) -> None:
    """Draw the link to a task's runs, as far as there are any and the filter can hold its id."""
    if pd.notna(row.n_runs) and '"' not in row.task_id:
        selection.link("traces", f"{row.n_runs:.0f} runs of {row.task_id}", filter=f'task:"{row.task_id}"')


def _summary(staged: pd.DataFrame) -> pd.DataFrame:
    """A row a stage: how many tasks and models, their numbers, and the task nearest to the middle of the stage."""
    found = []
    for stage in STAGES:
        part = staged[staged["stage"] == stage]
        if part.empty:
            continue
        away = (part["d_req"] - part["d_req"].mean()).abs() + (part["d_orch"] - part["d_orch"].mean()).abs()
        middle = part.loc[away.idxmin()]
        found.append({
            "stage": stage, "n_tasks": part["task_id"].nunique(), "n_models": part["model"].nunique(),
            "d_req": part["d_req"].mean(), "d_orch": part["d_orch"].mean(), "text_length": part["task_text"].str.len().median(),
            "unsure_share": float(_is_unsure(part).mean()), "typical": middle["task_id"],
        })  # fmt: skip
    return pd.DataFrame(found)


def _draw_list(rows: pd.DataFrame) -> None:
    """Draw the tasks as a list, the hardest first; of those that no attempt solves, the ones with fewer passed tests."""
    st.subheader("Tasks")
    names = {"": "All", **{str(stage): str(stage) for stage in STAGES}, "none": "No stage"}
    stage = selection.choose("stage", "Stage", names)
    kept = rows if not stage else rows[rows["stage"].isna() if stage == "none" else rows["stage"] == stage]
    by = ["d_req", "d_partial", "task_id", "model"]
    kept = kept.sort_values(by, ascending=[False, False, True, True], na_position="last").reset_index(drop=True)
    at = tables.show(kept, key="difficulty", columns=LISTED, select="single-row", height=420)
    if not at:
        return
    row = kept.iloc[at[0]]
    with st.container(horizontal=True):
        _link(row)
    places = figures.places_of(kept.iloc[at])
    _pick("table", str(places["place"].iloc[0]) if len(places) else None)


@st.fragment
def _draw_kernel(difficulty: np.ndarray, stages: list[str]) -> None:
    """Draw the schedule; a slider redraws only this."""
    usual = Schedule()
    with st.container(horizontal=True, gap="medium"):
        m0 = _slide("m0", "First centre (m0)", usual.m0, 0.0)
        m1 = _slide("m1", "Last centre (m1)", usual.m1, 0.0)
        h = _slide("h", "Width (h)", usual.h, 0.05)
        eps = _slide("eps", "Replay floor (eps)", usual.eps, 0.0)
    steps = np.linspace(0, 1, _N_STEPS)
    weights = np.array([kernel_weights(difficulty, float(u), Schedule(m0, m1, h, eps)) for u in steps])
    mass = pd.DataFrame({stage: weights[:, np.array(stages) == stage].sum(axis=1) for stage in STAGES}, index=steps)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.plotly_chart(figures.mass_by_stage(mass), key="curriculum.mass", config={"displayModeBar": False})
    with right:
        sizes = pd.Series([effective_sample_size(w) for w in weights], index=steps)
        st.plotly_chart(figures.effective_tasks(sizes, len(stages)), key="curriculum.sizes", config={"displayModeBar": False})
    st.caption(
        "Weight of a task at progress u: eps / N + (1 - eps) K((D - m(u)) / h) / sum K, of its joint difficulty D; the centre "
        f"m moves from m0 to m1. Each of the {len(stages):,} tasks keeps at least {eps / len(stages):.2g} of the draws."
    )


def _slide(name: str, label: str, usual: float, low: float) -> float:
    """Draw a slider up to 1 that the URL holds."""
    key = f"url.{name}"
    try:
        value = float(selection.get(name) or usual)
    except ValueError:
        value = usual
    st.session_state[key] = min(1.0, max(low, value))
    return float(
        st.slider(label, low, 1.0, step=0.05, key=key, on_change=lambda: selection.put(**{name: f"{st.session_state[key]:g}"}))
    )


def _pick(source: str, place: str | None) -> None:
    """Put a picked place into the address, once: a table and a figure go on reporting what was picked before."""
    key = f"curriculum.picked.{source}"
    is_new = place is not None and st.session_state.get(key) != place
    st.session_state[key] = place
    if is_new:
        selection.put(place=place)
        st.rerun()
