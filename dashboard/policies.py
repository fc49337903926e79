"""The view Policy of the page Curate: which policy, what it would make of a sample at once, and the button that curates all.

Hides what the last change is compared with, and which command the button becomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from analysis.curation.curate import Curated
from analysis.curation.policy import DEFAULT, Policy
from analysis.errors import CounterpointError
from analysis.pipeline.curating import PREVIEW_ROWS
from dashboard import drafts, jobs, safe, selection, tables
from dashboard.drafts import SAVED, TITLE, Draft
from dashboard.figures import curation as figures
from dashboard.loading import Version
from dashboard.loading import curation as loading

OUTCOMES = {"kept": "Kept whole", "masked": "Masked", "queued": "Queued", "dropped": "Dropped"}


def draw(version: Version) -> None:
    """Draw the view: choose, change, see what that does, curate."""
    job_id = selection.get("job")
    if job_id is not None:
        _draw_job(version.location, jobs.state(version.location, job_id))
    elif not loading.saved(version):
        st.markdown(
            "No data set yet. A policy says which traces become training data: each gate passes, drops or queues a trace for "
            "you; parts that one component spoilt are masked and stay as context; what is left is weighed and ordered. Nothing "
            "here changes a trace."
        )
    name, draft = _choose(version)
    made, draft = _try(version, draft)
    left, right = st.columns(2, gap="medium")
    with right:
        if made is not None and draft.policy is not None:
            _draw_preview(version, draft.policy, made)
        _draw_text(draft)
    with left:
        with st.container(height=660, border=False):  # so that what a change does stays in sight
            drafts.draw_form(draft, loading.known_names(version))
        _draw_start(version, draft, name, is_usable=made is not None)


def _choose(version: Version) -> tuple[str, Draft]:
    """Draw the choice of a policy, the way in and out for files; return its name and the draft of the address."""
    ready, saved = loading.ready(), loading.saved(version)
    texts = ready | {f"{SAVED}{name}": text for name, text in saved.items()}
    words = {name: f"{name}: {_first_remark(text)}" for name, text in ready.items()}
    words |= {f"{SAVED}{name}": f"that of the data set {name}" for name in saved}
    chosen = selection.get("policy")
    name = chosen if chosen in texts else DEFAULT
    packed = selection.get("toml")
    text = drafts.unpack(packed) if packed else None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.session_state["url.policy"] = name
        st.selectbox(
            "Start from the policy", list(words), key="url.policy", format_func=lambda option: safe.line(words[option], 160),
            on_change=lambda: selection.put(policy=st.session_state["url.policy"], toml=None),
        )  # fmt: skip
        st.button(
            "Undo changes",
            icon=":material/undo:",
            key="policy.undo",
            disabled=packed is None,
            on_click=lambda: selection.put(toml=None),
        )
        with st.popover("Upload", icon=":material/upload:"):
            _draw_upload()
        st.download_button(
            "Download", text or texts[name], f"{name.removeprefix(SAVED)}.toml", "application/toml", key="policy.download",
            icon=":material/download:", on_click="ignore",
        )  # fmt: skip
    if packed and text is None:
        st.warning("The address holds a policy that cannot be read; the one it started from is shown.", icon=":material/warning:")
    return name.removeprefix(SAVED), drafts.read(texts[name] if text is None else text)


def _first_remark(text: str) -> str:
    """The first sentence of the remark at the top of a policy."""
    lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    return " ".join(lines).partition(". ")[0].rstrip(".")


def _draw_upload() -> None:
    with st.form("policy.upload", border=False, clear_on_submit=True):
        file = st.file_uploader("A policy file (*.toml)", key="policy.file", type="toml")
        if st.form_submit_button("Take it", icon=":material/upload:") and file:
            drafts.put(file.getvalue().decode("utf-8", "replace"))
            st.rerun()


def _try(version: Version, draft: Draft) -> tuple[Curated | None, Draft]:
    """Return what the draft makes of a sample; where it does not fit the data, the draft with the reason, or the question."""
    if draft.policy is None:
        return None, draft
    try:
        if worlds := loading.worlds_to_choose(version, draft.policy.toml):
            _ask_world(draft, worlds)
            return None, draft
        return loading.preview(version, draft.policy.toml), draft
    except CounterpointError as error:
        said = str(error)
        return None, draft._replace(error=said if said.startswith("policy") else f"policy: sources.filter: {said}")


def _ask_world(draft: Draft, worlds: Mapping[str, int]) -> None:
    """Draw a button for each world; the one that is chosen goes into the text of the policy, and so into the address."""
    st.info(
        "The traces are of several worlds, and a policy never mixes them silently: choose one to go on, or name several in its "
        "field `worlds`.", icon=":material/public:",
    )  # fmt: skip
    with st.container(horizontal=True):
        for world, n in worlds.items():
            text = f'worlds = ["{world}"]\n{draft.text}'
            st.button(f"{safe.markdown(world)}: {n:,} traces", key=f"policy.world.{world}", on_click=drafts.put, args=(text,))


def _draw_preview(version: Version, policy: Policy, made: Curated) -> None:
    """Draw what became of the sample, and what the last change did to it."""
    report, before = made.report, _tried_before(version, policy, made)
    counts = report["counts"]
    for column, (outcome, label) in zip(st.columns(len(OUTCOMES)), OUTCOMES.items(), strict=True):
        delta = 0 if before is None else int(counts[outcome] - (before["outcome"] == outcome).sum())
        column.metric(label, f"{counts[outcome]:,}", f"{delta:+,}" if delta else None, delta_color="off")
    n = counts["input"]
    sample = f"all {n:,} traces that the policy takes" if n < PREVIEW_ROWS else f"a sample of {n:,} traces"
    st.caption(safe.markdown(f"Tried on {sample}. {_changes(before, made.rows)}", 600))
    if not counts["kept"] + counts["masked"]:
        st.warning(safe.markdown(report["gist"], 600), icon=":material/filter_alt_off:")
    for n_note, note in enumerate(report["notes"]):
        drafts.draw_note(version, note, key=f"policy.note.{n_note}")
    found = report["distributions"]
    st.plotly_chart(figures.residual_change(found["residual_norm"]), key="policy.residual", config={"displayModeBar": False})
    st.caption(safe.markdown(_passed(found["passed"]), 600))
    with st.expander("What each gate did"):
        tables.show(pd.DataFrame(report["by_gate"]), key="by-gate", columns=drafts.BY_GATE)
        st.caption(drafts.SUMS)


def _tried_before(version: Version, policy: Policy, made: Curated) -> pd.DataFrame | None:
    """The rows of the policy that was tried before this one; None for the first."""
    tried: list[tuple[Any, pd.DataFrame]] = st.session_state.setdefault("policy.tried", [])
    if not tried or tried[-1][0] != (version, policy.digest):
        tried.append(((version, policy.digest), made.rows[["trace_id", "outcome"]]))
        del tried[:-2]
    return tried[0][1] if len(tried) > 1 else None


def _changes(before: pd.DataFrame | None, rows: pd.DataFrame) -> str:
    if before is None:
        return "Change a field to see what that does."
    both = before.merge(rows, on="trace_id", suffixes=("_before", ""))
    moved = both[both["outcome_before"] != both["outcome"]].value_counts(["outcome_before", "outcome"])
    if moved.empty:
        return "The last change moved no trace."
    most_first = sorted(moved.items(), key=lambda pair: (-pair[1], pair[0]))
    said = ", ".join([f"{n:,} {old} → {new}" for (old, new), n in most_first])
    return f"The last change moved {moved.sum():,}: {said}."


def _passed(counts: Mapping[str, Mapping[str, int]]) -> str:
    """What share passed before and after, of the traces of which it is known."""
    said = []
    for when, names in counts.items():
        n_passed, n_failed = names.get("passed", 0), names.get("failed", 0)
        n = n_passed + n_failed
        said.append(f"{n_passed:,} of {n:,} {when} ({n_passed / n:.0%})" if n else f"known of none {when}")
    return f"Passed, where the outcome is known: {', '.join(said)}."


def _draw_text(draft: Draft) -> None:
    """Draw the policy as text, which can be changed, and what is wrong with it."""
    st.session_state["policy.text"] = draft.text
    st.text_area(
        "The policy as text (TOML)", key="policy.text", height=320, on_change=lambda: drafts.put(st.session_state["policy.text"]),
        help="Ctrl+Enter applies. Changing a field of the form writes the text anew, without its remarks.",
    )  # fmt: skip
    if draft.error:
        st.error(safe.markdown(draft.error, 600), icon=":material/error:")


def _draw_start(version: Version, draft: Draft, suggested: str, *, is_usable: bool) -> None:
    """Draw the button that curates everything under a name."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.text_input("Name of the data set", suggested, key=f"policy.name.{suggested}").strip()
        if st.button(
            "Curate all", type="primary", icon=":material/play_arrow:", disabled=not (is_usable and name), key="policy.start"
        ):
            selection.put(job=drafts.start(version.location, name, draft.text))
            st.rerun()
    if name in loading.saved(version):
        st.caption(safe.markdown(f"There is a data set {name}; it is replaced.", 200))


def _draw_job(location: str, job: jobs.Job) -> None:
    """Draw a curation under way, or what became of it."""
    if not job.title.startswith(TITLE):
        return
    name = job.title.removeprefix(TITLE)
    if job.state == "running":
        _wait(location, job.job_id)
    elif job.state != "done":
        st.error(safe.markdown(f"{job.title}: {job.text}", 600), icon=":material/error:")
    elif not job.result["kept"] + job.result["masked"]:
        st.warning(safe.markdown(f"{name}: {job.result['gist']}", 600), icon=":material/filter_alt_off:")
    else:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.success(safe.markdown(f"{name}: {job.result['gist']}", 600), icon=":material/check:")
            if st.button("See its funnel", icon=":material/filter_alt:", key="policy.funnel"):
                selection.stay(view="funnel", dataset=name)


@st.fragment(run_every="0.5s")
def _wait(location: str, job_id: str) -> None:
    job = jobs.state(location, job_id)
    if job.state != "running":
        st.rerun()
    st.progress(job.share, text=safe.markdown(f"{job.title}: {job.text}"))
    if st.button("Cancel", key="policy.cancel", icon=":material/cancel:"):
        jobs.cancel(location, job_id)
