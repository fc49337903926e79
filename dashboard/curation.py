"""The views of a data set on the page Curate: the funnel with the traces at each gate, and what curation changed.

Hides how a mark that was clicked, or a row that was chosen instead, becomes the gate of the address.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard import drafts, safe, selection, tables
from dashboard import loading as every
from dashboard.figures import curation as figures
from dashboard.loading import Version
from dashboard.loading import curation as loading

PASSAGES = {
    "gate": "Gate", "outcome": "Said", "reason": "Why", "n": "Traces", "low": "Least value", "high": "Largest",
    "threshold": "Threshold",
}  # fmt: skip
TRACES = {
    "trace_id": "Trace", "final": "In the end", "outcome": "Here", "value": "Value", "threshold": "Threshold", "reason": "Why",
    "position": "Place", "weight": "Weight", "format": "Format", "world": "World", "passed": "Passed", "task_text": "Task",
}  # fmt: skip
WAY = {"gate": "Gate", "outcome": "Said", "reason": "Why", "value": "Value", "threshold": "Threshold"}
ORDER = {"measure": "Measure", "before": "Before", "after": "After"}
#: What the measures of an order are.
_MEASURES = {
    "head": "first tenth, mean (head)", "tail": "last tenth, mean (tail)", "max_jump": "largest step (max_jump)",
    "total_variation": "sum of steps (total_variation)", "window_variance": "variance in 50 rows (window_variance)",
}  # fmt: skip
_SHARES = {
    "passed": ("Outcome", "Does curation prefer runs that passed?"), "format": ("Format", "Which formats stay?"),
    "world": ("World", "Which worlds stay?"), "stage": ("Stage", "Which stages of the curriculum stay?"),
    "family": ("Family", "Which ways of working stay?"), "mode": ("Mode", "Which failure modes stay?"),
}  # fmt: skip
_MAX_DRAWN = 2_000  # rows of a table; a browser need not hold a hundred thousand
_GATE = ("gate", "outcome", "reason")  # parameters of the address that say which traces are listed


def draw_head(version: Version, name: str) -> None:
    """Draw the gist of a data set, and what it was made of."""
    row = loading.dataset(version, name)
    st.markdown(f"**{safe.markdown(row['report']['gist'], 600)}**")
    with st.container(horizontal=True, vertical_alignment="center"):
        selection.link("curate", "Its policy", view="policy", policy=f"{drafts.SAVED}{name}")
        if row["data_version"] != loading.data_version(version):
            st.caption("Data came in or changed since it was made: curate again to take them in.")
    for n, note in enumerate(row["report"]["notes"]):
        drafts.draw_note(version, note, key=f"curate.note.{n}")


def draw_funnel(version: Version, name: str) -> None:
    """Draw the way through the gates, what each said, the traces of one answer, and the way of one trace."""
    place, outcome, reason = (selection.get(part) or "" for part in _GATE)
    drawn = figures.funnel(loading.steps(version, name), selected=(place, outcome))
    clicked = st.plotly_chart(
        drawn, key=f"curate.funnel.{name}", on_select="rerun", selection_mode="points", config={"displayModeBar": False}
    )
    picked = [point["customdata"] for point in clicked["selection"]["points"] if point.get("customdata")]
    _pick("figure", (str(picked[0][0]), str(picked[0][1]), "") if picked else None)
    tables.show(loading.gates(version, name), key="by-gate", columns=drafts.BY_GATE)
    st.caption(drafts.SUMS)
    st.markdown("###### What each gate said")
    rows = loading.passages(version, name)
    at = tables.show(rows, key="gates", columns=PASSAGES, select="single-row", height=min(38 + 35 * len(rows), 330))
    _pick("table", (str(rows["place"].iloc[at[0]]), *rows.loc[at[0], ["outcome", "reason"]]) if at else None)
    _draw_traces(version, name, rows, (place, outcome, reason))
    if trace_id := selection.get("trace"):
        _draw_way(version, name, every.trace(version, trace_id).trace_id)


def _draw_traces(version: Version, name: str, rows: pd.DataFrame, chosen: tuple[str, str, str]) -> None:
    place, outcome, reason = chosen
    gate = next(iter(rows.loc[rows["place"].astype(str) == place, "gate"]), "")
    said = f"{outcome or 'came to it'}{f', {reason}' if reason else ''}"
    st.subheader(safe.markdown(f"{gate}: {said}" if place else f"All traces {outcome}".strip(), 200))
    found = loading.traces_at(version, name, place, outcome, reason)
    if found.empty:
        st.info("None: no gate of this data set says so. A click on `all traces` lists them all.", icon=":material/search_off:")
        return
    drawn = f" The first {_MAX_DRAWN:,} are drawn; the downloads hold all." if len(found) > _MAX_DRAWN else ""
    st.caption(f"{len(found):,} traces. Choose one to see its way through all gates.{safe.markdown(drawn)}")
    at = tables.show(
        found.head(_MAX_DRAWN), key="curated-traces", columns=TRACES, select="single-row", height=300, all_rows=lambda: found
    )
    _pick("trace", (found["trace_id"].iloc[at[0]],) if at else None, names=("trace",))


def _draw_way(version: Version, name: str, trace_id: str) -> None:
    """Draw what every gate said of one trace."""
    way = loading.way(version, name, trace_id)
    st.subheader(safe.markdown(f"The way of {trace_id}", 160))
    if way.empty:
        st.info("This trace is not in the input of this data set.", icon=":material/info:")
        return
    tables.show(way, key="way", columns=WAY)
    parts = loading.segments(version, name, trace_id)
    if len(parts):
        st.caption("What of it carries no loss, or weighs other than 1:")
        columns = {"component": "Component", "event_id": "Event", "keep": "Trained on", "weight": "Weight", "reason": "Why"}
        tables.show(parts, key="segments", columns=columns)
    selection.link("trace", f"Open {trace_id}", trace=trace_id)


def draw_change(version: Version, name: str) -> None:
    """Draw what curation changed: residuals, outcomes, kinds of trace, diversity, budget, order, batches."""
    report = loading.dataset(version, name)["report"]
    by = selection.choose("value", "Shares of what", {key: words[0] for key, words in _SHARES.items()})
    left, right = st.columns(2, gap="medium")
    plain: dict[str, Any] = {"config": {"displayModeBar": False}}
    with left:
        st.plotly_chart(figures.residual_change(report["distributions"]["residual_norm"]), key="curate.residual", **plain)
        _draw_dose(report["dose_response"])
    with right:
        counts = loading.worlds(version, name) if by == "world" else report["distributions"][by]
        called = loading.group_names(version, by)
        named = {when: {called.get(key, key): n for key, n in of.items()} for when, of in counts.items()}
        st.plotly_chart(figures.share_change(named, title=_SHARES[by][1]), key="curate.shares", **plain)
    _draw_diversity(report["diversity"])
    left, right = st.columns(2, gap="medium")
    with left:
        _draw_budget(report["mixture"])
    with right:
        _draw_batches(report["batches"])
        _draw_order(report["order"])


def _draw_dose(dose: dict[str, Any]) -> None:
    """Draw how much coherence is enough, or why that cannot be said."""
    if len(dose["bins"]) > 1:
        st.plotly_chart(figures.dose_response(dose["bins"], plateau=dose["plateau"]), key="curate.dose")
    else:
        st.markdown("##### How much coherence is enough?")
    st.markdown(safe.markdown(dose["sentence"], 600))
    st.caption(
        "An association over recorded runs, not an effect: hard tasks can be both incoherent and failed. That no worsening is "
        "seen does not say that there is none."
    )


def _draw_diversity(found: dict[str, Any]) -> None:
    left, right = st.columns([2, 3], gap="medium")
    vendi, n = found["vendi"], found["n"]
    with left:
        st.markdown("##### How many different runs are there?")
        shown = {f"Vendi {when}": "–" if vendi[when] is None else f"{vendi[when]:.1f}" for when in ("before", "after")}
        shown["Effective n"] = f"{found['ess']:,.0f}"
        for column, (label, value) in zip(st.columns(len(shown)), shown.items(), strict=True):
            column.metric(label, value)
        features = ", ".join(found["features"])
        st.caption(
            safe.markdown(f"Vendi: {found['vendi_means']}: {features}. n {n['before']:,} before, {n['after']:,} after.", 400)
        )
        st.caption(safe.markdown(f"Effective n: {found['ess_means']}.", 300))
    with right:
        if found["curve"]:
            st.plotly_chart(figures.diversity_curve(found["curve"]), key="curate.curve")
        else:
            st.info("No trace has tied claims, so there is no threshold to try.", icon=":material/info:")


def _draw_budget(found: dict[str, Any]) -> None:
    if not found["blocks"]:
        st.info("Nothing stays, so there is no budget to share.", icon=":material/info:")
        return
    st.plotly_chart(
        figures.budget_change(found["blocks"], found["n_blocks"]), key="curate.budget", config={"displayModeBar": False}
    )
    moved = sum(abs(block["share_after"] - block["share_before"]) for block in found["blocks"]) / 2
    said = f"{moved:.1%} of the budget moves." if moved else "Nothing moves: no block passes the joint test, or none fails it."
    st.caption(said)
    st.caption(
        "Components that pass the joint test cannot contradict each other, whatever they quote; they give up a part of their "
        "budget to those that can, in proportion to their coupling bits."
    )


def _draw_batches(batches: list[dict[str, Any]]) -> None:
    if not batches:
        st.markdown("##### Is every batch coherent enough?")
        st.caption("The policy asks nothing of batches: `batches.size` is 0.")
        return
    st.plotly_chart(figures.batch_ratios(batches), key="curate.batches", config={"displayModeBar": False})


def _draw_order(order: dict[str, Any]) -> None:
    """Draw what an order looks like before and after, in the unit of its score."""
    st.markdown("##### In which order do they come?")
    if order["before"] is None:
        st.caption(safe.markdown(f"No trace that stays has a {order['score']}, so they stand in the order of their ids.", 300))
        return
    rows = [{"measure": words, "before": order["before"][key], "after": order["after"][key]} for key, words in _MEASURES.items()]
    tables.show(pd.DataFrame(rows), key="order", columns=ORDER)
    st.caption(safe.markdown(f"Of {order['score']}; before: in the order of ids.", 200))


def _pick(source: str, values: tuple[str, ...] | None, names: tuple[str, ...] = _GATE) -> None:
    """Put what was picked into the address, once: a table and a figure go on reporting what was picked before."""
    key = f"curate.picked.{source}"
    is_new = values is not None and st.session_state.get(key) != values
    st.session_state[key] = values
    if is_new and values is not None:
        selection.put(**dict(zip(names, values, strict=True)))
        st.rerun()
