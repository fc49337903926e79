"""The drawings of the page Coherence: one trace by turn and component, and a stream of traces.

Hides how a cell that was clicked, or a row that was chosen instead, becomes the component and turn of the address.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd
import streamlit as st

from analysis.coherence.levels import LEVELS, TEAM
from analysis.coherence.projection import POSITIVE
from dashboard import loading, safe, selection, tables
from dashboard.figures import coherence as figures
from dashboard.loading import Version

VALUES = {
    "residual": "ε*", "residual_norm": "normalised ε*", "residual_canonical": "canonical ε*", "residual_debiased": "debiased ε*"
}  # fmt: skip
CELLS = {
    "energy": ("State", "Which component's quotes are off, after each turn?", "energy: a turn's cells sum to ε*² of its state"),
    "delta": ("Change", "Who changed the residual, in which turn?", "Δε*² put on the components that spoke in the turn"),
}
CLAIMS = {
    "turn": "Turn", "component": "Component", "proposition": "Proposition", "p": "p", "kind": "Kind", "basis": "Basis",
    "rule": "Rule", "n_samples": "Samples", "is_placeholder": "Placeholder", "event_id": "Event", "claim_id": "Claim",
}  # fmt: skip


def draw_trace(version: Version, trace_id: str) -> None:
    """Draw one trace: what its residual is, where it comes from, what it violates, what would repair it."""
    rows = loading.rows(version, "residuals", trace_id)
    ends = rows[rows["is_last"]].set_index("level") if len(rows) else rows
    if ends.empty:
        st.info(
            "No claims: there is nothing to contradict. `counterpoint import --claims FILE` adds some.", icon=":material/info:"
        )
        return
    levels = [name for name in (*LEVELS, TEAM) if name in ends.index]
    by_size = sorted(levels, key=lambda name: -ends["residual"].fillna(0.0)[name])  # where most is wrong, one looks first
    level = selection.choose("level", "Level of claims", dict(zip(by_size, by_size, strict=True)))
    end = ends.loc[level]
    st.markdown(f"**{safe.markdown(_headline(end), 1000)}**")
    _draw_numbers(end)
    of_level = loading.rows(version, "attribution", trace_id)
    of_level = of_level[of_level["level"] == level] if len(of_level) else of_level
    if of_level.empty:
        return
    _draw_cells(version, trace_id, level, of_level)
    left, right = st.columns(2, gap="medium")
    with left:
        last = of_level[of_level["is_last"]]
        st.plotly_chart(figures.shares(last), key="coherence.shares", config={"displayModeBar": False})
        st.caption(safe.markdown(_in_words(end, last["component"].nunique()), 1000))
    with right:
        _draw_repair(version, trace_id, level, end)
    _draw_violations(version, trace_id, level, end)


def _headline(end: pd.Series) -> str:
    """The finding without the violated relations, which are listed further down."""
    if pd.isna(end["residual"]) or end["residual"] <= POSITIVE:
        return str(end["summary"])
    share = "" if pd.isna(end["residual_norm"]) else f", {end['residual_norm']:.0%} of the largest possible"
    return f"Incoherent: the claims lie {end['residual']:.4g} from the nearest coherent ones{share}."


def _draw_numbers(end: pd.Series) -> None:
    reasons = json.loads(end["reasons"] or "{}")
    with st.container(horizontal=True):
        for name, label in VALUES.items():
            value = end[name]
            shown = "–" if pd.isna(value) else f"{value:.4f}"
            why = reasons.get(name.removeprefix("residual_"), "")
            st.metric(label, shown, border=True, help=safe.markdown(why, 300) or None)
    said = [f"{end['n_claims']:,.0f} quotes"]
    for name, words in (
        ("n_placeholders", "placeholders left out"),
        ("n_out_of_range", "numbers that are no probabilities left out"),
    ):
        said += [f"{end[name]:,.0f} {words}"] if end[name] else []
    if pd.notna(end["coupling_bits"]):
        bits = f"{end['coupling_bits']:.3g} bits"
        said.append(f"components coupled by {bits} (0: whoever is coherent alone is coherent together)")
    if pd.notna(end["lower"]):
        said.insert(0, f"ε* is proven to lie in [{end['lower']:.6f}, {end['upper']:.6f}]")
    st.caption(safe.markdown(f"{' · '.join(said)} · {end['method']}", 400))


@st.fragment
def _draw_cells(version: Version, trace_id: str, level: str, attribution: pd.DataFrame) -> None:
    """Draw the heat map, its rows as a table, and what stands behind the cell that is selected; a pick redraws only this."""
    value = selection.choose("cells", "What a cell shows", {name: words[0] for name, words in CELLS.items()})
    if not attribution[value].notna().any():
        st.info("One turn only: there is no change to show.", icon=":material/info:")
        return
    cells = figures.cells_of(attribution, value)
    selected = (selection.get("component") or "", selection.get("turn") or "")
    _, title, subtitle = CELLS[value]
    key = f"coherence.cells.{value}.{level}"
    # After a click the figure stays as it was, so that the browser need not draw it again.
    if st.session_state.get(f"{key}.clicked") != (trace_id, selected):
        st.session_state[f"{key}.marked"] = selected
    marked = st.session_state[f"{key}.marked"]
    drawn = figures.heat_map(cells, title=title, subtitle=subtitle, is_signed=value == "delta", selected=marked)
    st.plotly_chart(drawn, key=key, on_select=lambda: _pick(key, trace_id), selection_mode="points")
    if st.toggle("The same as a table, in which a row can be chosen with the keyboard", key="coherence.as_table"):
        long = cells.stack().rename("value").rename_axis(["component", "turn"]).reset_index()
        long = long[long["value"] != 0].reset_index(drop=True)
        columns = {"component": "Component", "turn": "Turn", "value": "ε*²"}
        if rows := tables.show(long, key="cells", columns=columns, select="single-row", height=260):
            picked = (str(long["component"].iloc[rows[0]]), str(long["turn"].iloc[rows[0]]))
            # A row counts once: afterwards the address may move on without it.
            if st.session_state.get("coherence.row") != (trace_id, level, value, picked):
                st.session_state["coherence.row"] = (trace_id, level, value, picked)
                selected = picked
                selection.put(component=picked[0], turn=picked[1])
    if selected[0] in set(cells.index):
        _draw_cell(version, trace_id, level, selected)


def _pick(key: str, trace_id: str) -> None:
    """Put the cell that was clicked into the address, before the page is drawn again."""
    points = st.session_state[key]["selection"]["points"]
    if picked := [point["customdata"] for point in points if point.get("customdata")]:
        cell = (str(picked[0][0]), str(picked[0][1]))
        st.session_state[f"{key}.clicked"] = (trace_id, cell)
        selection.put(component=cell[0], turn=cell[1])


def _draw_cell(version: Version, trace_id: str, level: str, selected: tuple[str, str]) -> None:
    claims, _ = loading.claims_in_use(version, trace_id)
    component, turn = selected
    mine = _of_level(claims, level)
    mine = mine[mine["component"] == component]
    first, _, last = turn.partition("–")
    bound = int(last or first) if (last or first).isdigit() else None
    standing = mine if bound is None else mine[mine["turn"].fillna(-1) <= bound]
    st.markdown(f"##### {safe.markdown(component, 80)}: what it had claimed by turn {safe.markdown(turn)}")
    rows = standing.sort_values(["turn", "claim_id"], ascending=[False, True]).reset_index(drop=True)
    chosen = tables.show(rows, key="cell-claims", columns=CLAIMS, select="single-row", height=240)
    if chosen and isinstance(event_id := rows["event_id"].iloc[chosen[0]], str):
        selection.link("trace", f"Open the event {event_id}", trace=trace_id, event=event_id, view="events")


def _of_level(claims: pd.DataFrame, level: str) -> pd.DataFrame:
    """Return the claims of a level; the level `team` holds all."""
    return claims if level == "team" else claims[claims["level"] == level]


def _in_words(end: pd.Series, n_components: int) -> str:
    """What attribution says and does not say."""
    if pd.isna(end["residual"]) or end["residual"] <= POSITIVE:
        return "Coherent: there is nothing to attribute."
    is_unique, is_between = (pd.notna(end[name]) and bool(end[name]) for name in ("unique", "interaction_only"))
    repairs = [repair["components"] for repair in json.loads(end["minimal_repairs"] or "[]")]
    alone = "Every component is coherent alone: the residual lies only between them. " if is_between else ""
    if not repairs:
        return f"{alone}Which components could restore coherence was not worked out for so many."
    if is_unique and len(repairs[0]) == n_components > 1:
        return f"{alone}Only all {n_components} components together can restore coherence: nobody can be singled out."
    listed = "; ".join(" and ".join(names) for names in repairs[:4])
    if is_unique:
        return f"{alone}The smallest repair is unique: {' and '.join(repairs[0])} alone can restore coherence."
    more = f"; {len(repairs) - 4} more" if len(repairs) > 4 else ""
    return f"{alone}Not unique: coherence can be restored by {listed}{more}. No component can be singled out from the quotes."


def _draw_repair(version: Version, trace_id: str, level: str, end: pd.Series) -> None:
    repaired: dict[str, Any] = {k: v for k, v in json.loads(end["projection"] or "{}").items() if v is not None}
    claims, _ = loading.claims_in_use(version, trace_id)
    quotes = _of_level(claims, level)
    quotes = quotes[~quotes["is_placeholder"] & quotes["p"].between(0, 1)]
    latest = quotes.sort_values("turn", na_position="first", kind="stable").groupby(["component", "proposition"])["p"].last()
    quoted = {}
    for (component, proposition), p in latest.items():
        for name in (f"{component}:{proposition}", str(proposition)):
            if name in repaired:
                quoted[name] = float(p)
                break
    st.plotly_chart(figures.repair(quoted, repaired), key="coherence.repair", config={"displayModeBar": False})
    st.caption("Quotes move as little as possible in sum of squares. What is coherent need not be true.")


def _draw_violations(version: Version, trace_id: str, level: str, end: pd.Series) -> None:
    st.markdown("##### Violated relations")
    violated = json.loads(end["violated"] or "[]")
    for violation in violated[:10]:
        st.text(safe.visible(violation["text"]))
    if not violated:
        st.caption("None in the last state.")
    drops = loading.rows(version, "violations", trace_id)
    drops = drops[drops["level"] == level] if len(drops) else drops
    if len(drops):
        columns = {"phase": "Phase", "turn": "Turn", "kind": "Kind", "relation": "Relation", "drop": "ε*² without it falls by",
                   "is_violated": "In the minimal violated set"}  # fmt: skip
        st.caption("In the worst state of each phase of the run:")
        tables.show(drops.reset_index(drop=True), key="violations", columns=columns, height=240)


def draw_stream(version: Version, filter: str) -> None:
    """Draw the evidence that a stream of traces is less coherent than tolerated."""
    from analysis.workspace.standing import STREAM_ORDERS

    known = set(loading.residual_rows(version, filter)["level"])
    if not known:
        st.info("No trace here has a residual: there is nothing to watch.", icon=":material/info:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        level = selection.choose("level", "Level of claims", {name: name for name in (*LEVELS, TEAM) if name in known})
        order = selection.choose("order", "Order", STREAM_ORDERS)
        tolerated = selection.write("mu0", "Tolerated mean of ε*² per quote", placeholder="0.01") or "0.01"
    try:
        mu0 = float(tolerated)
    except ValueError:
        st.error(safe.markdown(f"Not a number: {tolerated}"), icon=":material/error:")
        return
    found = loading.monitored(version, filter, level, order, mu0)
    st.markdown(f"**{safe.markdown(found.text, 2000)}**")
    series = {"betting": found.betting.log_e} | ({} if found.envelope is None else {"envelope": found.envelope.log_e})
    null = f"null: the mean of ε*² per quote is at most {mu0:g}; one may look at any time"
    st.plotly_chart(figures.evidence(series, threshold=-math.log(found.alpha), null=null), key="coherence.evidence")
    st.caption(
        f"E is what a bet against the null has made of 1: where the null holds, it ever reaches {1 / found.alpha:g} with a "
        f"probability of at most {found.alpha:g}. The envelope form asks another question, whether the quotes could "
        "be noisy means of coherent ones; it needs the number of samples behind each and rarely rejects."
    )
