"""Traces: which runs are there, and which of them do I want to open?"""

from __future__ import annotations

import streamlit as st

from analysis.workspace.filters import DAY_FIELDS, MANY_FIELDS, NUMBER_FIELDS, TEXT_FIELDS, WORD_FIELDS
from dashboard import loading, notes, selection, tables

PER_PAGE = 100
version = loading.version()
COLUMNS = {
    "trace_id": "Trace", "format": "Format", "task_text": "Task", "passed": "Passed", "n_findings": "Findings",
    "n_agents": "Agents", "n_events": "Events", "q_work": "q_work", "q_orchestration": "q_orchestration", "residual": "ε*",
    "score": "Score", "condition": "Condition", "n_errors": "Errors", "explicit_share": "Explicit share", "n_claims": "Claims",
    "makespan_s": "Makespan (s)", "input_tokens": "Tokens in", "output_tokens": "Tokens out",
    "annotators": "Labelled by", "tags": "Tags",
}  # fmt: skip
ORDERS = {
    "trace_id": "By id",
    "n_events": "Most events",
    "n_agents": "Most agents",
    "n_errors": "Most errors",
    "n_findings": "Most findings",
    "q_work": "Lowest q_work",
    "q_orchestration": "Lowest q_orchestration",
    "residual": "Largest residual",
    "score": "Best score",
    "makespan_s": "Longest",
}
ASCENDING = {"trace_id", "q_work", "q_orchestration"}

search, ordering = st.columns([6, 1], vertical_alignment="bottom")
filter = search.text_input(
    "Filter",
    key="filter",
    bind="query-params",
    type="search",
    placeholder='passed:no events>20 agent:websurfer -tag:seen "log in"',
)
with ordering:
    order = selection.choose("order", "Order by", ORDERS)
with st.popover("What a filter can say", icon=":material/help:"):
    fields = [f"`{name}:` {f.meaning}" for name, f in {**TEXT_FIELDS, **MANY_FIELDS, **WORD_FIELDS}.items()]
    fields += [f"`{name}<` a metric" for name in loading.metric_names(version)]
    fields += [f"`{name}>` {f.meaning}" for name, f in {**NUMBER_FIELDS, **DAY_FIELDS}.items()]
    st.markdown("A word is looked for in ids and tasks; `-` in front negates; `a,b` means a or b.\n\n" + " · ".join(fields))

n_found, n_all = loading.n_traces(version, filter or ""), loading.n_traces(version)
if not n_all:
    st.info("The workspace is empty.", icon=":material/info:")
    selection.link("add_data", "Add data")
    st.stop()
if not n_found:
    st.info(
        f"None of the {n_all:,} traces fits this filter. Take a term out, or look at them all.", icon=":material/filter_alt_off:"
    )
    selection.link("traces", "All traces")
    st.stop()
n_pages = -(-n_found // PER_PAGE)
number = st.pagination(n_pages, key="page", bind="query-params") if n_pages > 1 else 1
rows = loading.traces_page(version, filter or "", order, order not in ASCENDING, PER_PAGE, (number - 1) * PER_PAGE)
with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.caption(f"{n_found:,} of {n_all:,} traces · select a row to open or tag it, two to compare them", width="content")
    if filter:
        selection.link("compare", "Compare these with another group", view="groups", fa=filter)
actions = st.container(horizontal=True, vertical_alignment="bottom")  # above the table, where a selection shows at once
picked = tables.show(
    rows,
    key="traces",
    columns=COLUMNS,
    all_rows=lambda: loading.traces_page(version, filter or "", order, order not in ASCENDING, None, 0),
    select="multi-row",
    height=min(38 + 35 * len(rows), 640),
)
if picked:
    chosen = rows["trace_id"].iloc[picked].tolist()
    with actions:
        if st.button("Open", type="primary", icon=":material/open_in_new:", key="traces.open"):
            selection.go("trace", trace=chosen[0], **({"filter": filter} if filter else {}))
        if len(chosen) == 2 and st.button("Compare these two", icon=":material/compare_arrows:", key="traces.compare"):
            selection.go("compare", a=chosen[0], b=chosen[1])
        tag = st.text_input("Tag the selected", key="traces.tag", width=220, placeholder="to review")
        if st.button(f"Tag {len(chosen):,}", icon=":material/sell:", key="traces.tag_them", disabled=not tag):
            notes.decide(version, [(trace_id, "", "tag", tag) for trace_id in chosen])
            st.rerun()
