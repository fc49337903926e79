"""Overview: what came in, what stands out, where to look first?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard import jobs, loading, safe, selection, tables
from dashboard.figures.overview import BAD, GOOD, kinds_by_format, quality_map

version = loading.version()
totals = loading.frame(
    version,
    """select count(*) as n_traces, coalesce(sum(n_agents), 0)::bigint as n_agents,
    coalesce(sum(n_events), 0)::bigint as n_events, count(*) filter (not passed) as n_failed,
    count(passed) as n_judged, count(*) filter (n_labels > 0) as n_labelled from traces""",
).iloc[0]
if not totals["n_traces"]:
    selection.go("add_data")
with st.container(horizontal=True):
    st.metric("Traces", f"{totals['n_traces']:,}", border=True)
    st.metric("Events", f"{totals['n_events']:,}", border=True)
    st.metric("Agents", f"{totals['n_agents']:,}", border=True)
    judged = f"{totals['n_failed']:,} of {totals['n_judged']:,}"
    st.metric("Failed", judged, border=True, help="Of the traces that have an outcome")
    st.metric("Labelled", f"{totals['n_labelled']:,}", border=True)

if n_waiting := loading.n_not_analysed(version):
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(f"{n_waiting:,} traces are not analysed yet: they have no metrics and no findings.", icon=":material/pending:")
        if st.button("Analyse now", type="primary", icon=":material/play_arrow:", key="overview.analyse"):
            selection.go("add_data", job=jobs.start(version.location, "Analyse", ["analyze"]))

look, where = st.columns(2, gap="medium")
with look:
    st.subheader("Where to look first")
    for row in (findings := loading.findings(version)).head(6).itertuples():
        lost = f", {row.lost_share:.0%} of the run lost" if pd.notna(row.lost_share) else ""
        text = f"{row.n_traces:,} × {row.name}, {row.n_failed:,} of them failed{lost}"
        selection.link("traces", text, filter=f'finding:"{row.name}"')
    groups = {
        "passed:no annotator:whowhen,agentrx": "failed, and somebody says who and when",
        "passed:no": "failed",
        "errors>0": "hold an event that ended in an error",
        "problem:label-misfit,label-one-based": "have a label that misses its event",
        "problem:orphan,duplicate-event,unknown-agent,opaque-event": "hold repaired or unknown events",
        "passed:unknown": "have no outcome",
    }
    if "residual" in loading.metric_names(version):
        groups = {"residual>0.1": "claim what cannot be true together"} | groups
    if {"q_work", "q_orchestration"} <= set(loading.metric_names(version)):
        groups = {f"q_work>={GOOD} q_orchestration<{BAD}": "worked without faults, badly orchestrated"} | groups
    for filter, meaning in groups.items():
        if n := loading.n_traces(version, filter):
            selection.link("traces", f"{n:,} traces {meaning}", filter=filter)
    for page, table, meaning in (("modes", "modes", "failure modes"), ("patterns", "families", "families of runs alike")):
        if n := loading.n_rows(version, table):
            selection.link(page, f"{n:,} {meaning}")
    for sentence in loading.annotator_agreements(version):
        st.caption(f"Annotators {safe.markdown(sentence)}.")
with where:
    drawn = quality_map(loading.quality_points(version))
    clicked = st.plotly_chart(drawn, key="overview.map", on_select="rerun", selection_mode="points")
    if picked := [point["customdata"][0] for point in clicked["selection"]["points"] if point.get("customdata")]:
        selection.go("trace", trace=str(picked[0]))

if len(findings):
    st.subheader("Findings")
    headings = {"name": "Finding", "n_traces": "Traces", "n_findings": "Findings", "n_failed": "Failed",
                "n_recovered": "Recovered", "lost_share": "Lost share", "rank": "Rank", "example": "For example"}  # fmt: skip
    chosen = tables.show(findings, key="findings", columns=headings, select="single-row")
    st.caption(
        "Lost share: of the run's own time, tokens or steps, on average. Rank: failed traces × lost share. "
        "A finding says what happened, not that it made the run fail."
    )
    if chosen:
        selection.go("traces", filter=f'finding:"{findings["name"].iloc[chosen[0]]}"')

by_format = loading.frame(
    version,
    """select format, world, count(*) as n_traces, sum(n_agents)::bigint as n_agents, sum(n_events)::bigint as n_events,
    sum(explicit_share * n_events) / nullif(sum(n_events) filter (explicit_share is not null), 0) as explicit_share,
    count(*) filter (passed) as n_passed, count(*) filter (not passed) as n_failed,
    sum(n_claims)::bigint as n_claims, count(*) filter (n_labels > 0) as n_labelled,
    count(*) filter (makespan_s is not null) as n_timed, count(*) filter (input_tokens is not null) as n_with_tokens
    from traces group by format, world order by n_traces desc, format""",
)
kinds = loading.frame(
    version,
    """select format, coalesce(kind, 'opaque') as kind, count(*) as n_events from events
    join traces using (trace_id) group by all order by format, kind""",
)
st.plotly_chart(kinds_by_format(kinds), key="overview.kinds", config={"displayModeBar": False})

st.subheader("What came in")
headings = {
    "format": "Format", "world": "World", "n_traces": "Traces", "n_agents": "Agents", "n_events": "Events",
    "explicit_share": "Explicit share", "n_passed": "Passed", "n_failed": "Failed", "n_claims": "Claims",
    "n_labelled": "Labelled", "n_timed": "With a clock", "n_with_tokens": "With tokens",
}  # fmt: skip
tables.show(by_format, key="formats", columns=headings)
st.caption(
    "Explicit share: events that the source states in a field; the others were derived by a named rule or made by a simulation."
)

problems = loading.frame(
    version,
    """select severity, message, sum(n)::bigint as n, count(distinct file) as n_files, any_value(hint) as hint,
    any_value(file || ' ' || record) as example from problems group by severity, code, message
    order by severity = 'lost' desc, severity = 'repaired' desc, n desc, message""",
)
st.subheader("Load problems")
if problems.empty:
    st.caption("None: every record of every file came in as it was.")
else:
    headings = {"severity": "Severity", "message": "Problem", "n": "n", "n_files": "Files", "hint": "What to do",
                "example": "For example"}  # fmt: skip
    tables.show(pd.DataFrame(problems), key="load-problems", columns=headings)
