"""Counterfactuals: what would other decisions have changed, and how far can that be believed?"""

from __future__ import annotations

import streamlit as st

from dashboard import effects, jobs, loading, safe, selection, studying
from dashboard.loading import effects as studies

VIEWS = {
    "effects": "Effects", "trace": "On a trace", "stop": "Stopping", "budget": "Budget and controls",
    "observed": "Observed pairs", "new": "New study",
}  # fmt: skip
version = loading.version()
if not loading.n_traces(version):
    st.info("The workspace is empty.", icon=":material/info:")
    selection.link("add_data", "Add data")
    st.stop()


def draw_new() -> None:
    """The study of the address, while it runs and when it is done, and the form for another one."""
    if job_id := selection.get("job"):
        studying.draw_job(version.location, jobs.state(version.location, job_id))
    studying.draw_form(version)


known = studies.studies(version)
if known.empty:
    view = selection.choose("view", "View", {name: VIEWS[name] for name in ("new", "observed")})
    if view == "new" and not selection.get("job"):
        studying.draw_nothing_yet()
else:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        view = selection.choose("view", "View", VIEWS)
        names = {name: f"study {name}" for name in known["study"]}
        name = selection.choose("study", "Study", names) if view not in ("observed", "new") else None
if view != "new":
    for job in studying.running(version.location):
        if st.button(safe.markdown(f"Under way: {job.title}", 120), icon=":material/pending:", key=f"study.{job.job_id}"):
            selection.stay(view="new", job=job.job_id)
if view == "new":
    draw_new()
elif view == "observed":
    effects.draw_observed(version)
else:
    study = known.set_index("study", drop=False).loc[name]
    effects.draw_study(study)
    if view == "trace":
        effects.draw_trace(version, study)
    elif view == "budget":
        effects.draw_budget(version, study)
    else:
        {"effects": effects.draw_effects, "stop": effects.draw_stop}[view](version, study["study"])
