"""Coherence: do the components of a team contradict each other, where, and who does it come from?"""

from __future__ import annotations

import streamlit as st

from dashboard import coherence, jobs, loading, safe, selection, tables
from dashboard.figures.coherence import residual_spread

LISTED = {
    "trace_id": "Trace", "level": "Level", "residual": "ε*", "residual_norm": "Normalised", "residual_canonical": "Canonical",
    "residual_debiased": "Debiased", "n_quotes": "Quotes", "n_tied": "Cliques", "n_placeholders": "Placeholders",
    "format": "Format", "condition": "Condition", "passed": "Passed", "unique": "Unique repair", "summary": "In words",
    "task_text": "Task",
}  # fmt: skip
UNLINKED = {
    "component": "Component", "text": "What was said", "p": "p", "low": "From", "high": "To", "reason": "Why it is not linked",
    "nearest": "Nearest proposition", "score": "Score", "event_id": "Event", "trace_id": "Trace",
}  # fmt: skip
COVERAGE = {
    "format": "Format", "n_traces": "Traces", "n_with_claims": "With claims", "n_with_clique": "With a clique",
    "n_incoherent": "Incoherent", "n_field": "Field", "n_verbalised": "Verbalised", "n_verdict": "Verdict",
    "n_frequency": "Frequency", "n_logprob": "Log-probability", "n_user": "User",
}  # fmt: skip
version = loading.version()
if not loading.n_traces(version):
    st.info("The workspace is empty.", icon=":material/info:")
    selection.link("add_data", "Add data")
    st.stop()
if not loading.n_rows(version, "keys_residuals"):
    st.info("Residuals are not worked out yet.", icon=":material/pending:")
    if st.button("Analyse now", type="primary", icon=":material/play_arrow:", key="coherence.analyse"):
        selection.go("add_data", job=jobs.start(version.location, "Analyse", ["analyze"]))
    st.stop()


def draw_team(filter: str) -> None:
    """All traces: how incoherent they are, and the list to choose one from."""
    rows = loading.residual_rows(version, filter)
    tied = rows[rows["n_tied"] > 0].reset_index(drop=True)
    coverage = loading.claim_coverage(version)
    if tied.empty:
        st.info(
            "No trace has claims that a relation ties: there is nothing that could be contradicted. Bring claims with "
            "`counterpoint import --claims FILE` and relations with `counterpoint analyze --couplings FILE`.",
            icon=":material/info:",
        )
    else:
        value = selection.choose("value", "Which residual", coherence.VALUES)
        st.plotly_chart(residual_spread(tied, value, name=coherence.VALUES[value]), key="coherence.spread")
        loose = len(rows) - len(tied)
        st.caption(f"{loose:,} levels of traces are left out: nothing ties what is claimed there, so ε* = 0 would say nothing.")
        st.subheader("Least coherent first")
        chosen = tables.show(tied, key="residuals", columns=LISTED, select="single-row", height=430)
        if chosen:
            row = tied.iloc[chosen[0]]
            selection.go("coherence", view="trace", trace=row["trace_id"], level=row["level"])
    st.subheader("Which traces have claims")
    tables.show(coverage, key="claim-coverage", columns=COVERAGE)
    st.caption("Kinds count traces with a clique of at least two quotes in which a claim of that kind stands.")


def draw_one() -> None:
    """One trace: the one of the address, or what to do to have one."""
    if (trace_id := selection.get("trace")) is None:
        st.info("No trace is chosen. Choose one from the list of all traces.", icon=":material/info:")
        selection.link("coherence", "All traces", view="team")
        return
    trace = loading.trace(version, trace_id)
    with st.container(horizontal=True):
        selection.link("trace", f"Open {trace.trace_id}", trace=trace.trace_id, view="claims")
        selection.link("coherence", "All traces", view="team")
    coherence.draw_trace(version, trace.trace_id)


def draw_review(filter: str) -> None:
    """What was stated but could not be linked to a proposition."""
    rows = loading.unlinked_claims(version, filter)
    if rows.empty:
        st.info("Nothing waits for review: every number that was stated is linked to a proposition.", icon=":material/check:")
        return
    st.caption(
        "Numbers next to words of confidence that no proposition could be found for; nothing is guessed. "
        "Bring those that matter with `counterpoint import --claims FILE`."
    )
    chosen = tables.show(rows, key="unlinked", columns=UNLINKED, select="single-row", height=560)
    if chosen:
        row = rows.iloc[chosen[0]]
        selection.link("trace", f"Open {row['event_id']}", trace=row["trace_id"], event=row["event_id"], view="events")


views = {"team": "All traces", "trace": "One trace", "stream": "Over a stream", "review": "Unlinked claims"}
view = selection.choose("view", "View", views)
if view == "trace":
    draw_one()
else:
    filter = selection.write("filter", "Filter", placeholder="format:composition passed:no", help=safe.markdown("As on Traces"))
    {"team": draw_team, "stream": lambda filter: coherence.draw_stream(version, filter), "review": draw_review}[view](filter)
