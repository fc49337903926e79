"""The drawings of the page Failure modes: what stands and how far to trust it, one mode, two modes, what people decide.

Hides how numbers about modes are put in words, and how a selection on the map becomes a named one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from analysis.coherence.modes.clustering import MIN_PROFILES, MIN_STABILITY
from analysis.coherence.modes.decisions import Decision
from analysis.coherence.modes.profiles import LOW_Q, Source
from analysis.pipeline import modes as stage
from dashboard import loading, notes, safe, selection, tables
from dashboard.figures import modes as figures
from dashboard.loading import Version

SOURCES: dict[Source, str] = {"residual": "By residual", "orchestration": "By orchestration"}
#: What a profile of each source says of a trace, and which traces have one.
PROFILED: dict[Source, tuple[str, str]] = {
    "residual": (
        "where the claims of a trace contradict each other: by kind of relation, pair of roles and phase of the run",
        "those whose claims have a residual ε* above 0",
    ),
    "orchestration": (
        "what went wrong in a run as seen from outside: anti-patterns, how it stopped, errors, critical path, low Q's",
        f"those that failed, have a q_work below {LOW_Q['q_work']:g}, or a q_orchestration below {LOW_Q['q_orchestration']:g} "
        "and an anti-pattern",
    ),
}
LISTED = {
    "name": "Mode", "size": "Traces", "share": "Profile share", "firm": "Comes back", "words": "Profile in words",
    "mode_id": "Id",
}  # fmt: skip
CHOSEN = {
    "trace_id": "Trace", "mode": "Mode", "distance": "Distance", "domain": "Domain", "format": "Format", "passed": "Passed",
    "task_text": "Task",
}  # fmt: skip
AGREEMENTS = {
    "annotator": "Annotator", "what": "What they say", "n": "Traces", "n_modes": "Modes", "n_values": "Different values",
    "value": "Agreement", "low": "Low", "high": "High", "reason": "Why there is none",
}  # fmt: skip
_MAX_IDS = 40  # ids that an address holds; more need a tag


def told(modes: pd.DataFrame) -> pd.DataFrame:
    """Return modes with `is_firm` (None where nobody measured it) and `firm`, the same in words."""
    firm = [None if pd.isna(jaccard) else bool(jaccard >= MIN_STABILITY) for jaccard in modes["jaccard"]]
    words = {True: "yes, {:.2f}", False: "not firm, {:.2f}", None: "not measured: a person made it"}
    said = [words[is_firm].format(jaccard) for is_firm, jaccard in zip(firm, modes["jaccard"], strict=True)]
    return modes.assign(is_firm=pd.Series(firm, index=modes.index, dtype=object), firm=said)


def trust(run: Mapping[str, Any], n_modes: int) -> list[str]:
    """Return in words how far modes can be trusted: found again, held together, seen by density; with their numbers."""
    said = []
    if run["stability"] is None:
        said.append("All profiles are alike: with a single mode there is no split whose stability could be measured.")
    else:
        said.append(
            f"Found again: groups of one random half of the traces foretell those of the other with {run['stability']:.2f} "
            f"(1: the same groups; {MIN_STABILITY:g} is needed; {run['null_stability']:.2f} where cells are shuffled)."
        )
        said.append(
            f"Held together: the spread within modes is {run['spread_left']:.0%} of that within as many groups of shuffled "
            "profiles."
        )
    if run["agreement"] is not None:
        said.append(
            f"Second view: HDBSCAN finds {run['n_dense']:,.0f} groups; adjusted Rand index with the modes "
            f"{run['agreement']:.2f} (1: the same, 0: as by chance)."
        )
    elif n_modes > 1:
        said.append("Second view: HDBSCAN finds no two groups.")
    if run["n_sampled"] < run["n_profiles"]:
        said.append(f"Learned from a random {run['n_sampled']:,}; all {run['n_profiles']:,} were assigned.")
    return said


def draw_standing(version: Version, source: Source, run: Mapping[str, Any], modes: pd.DataFrame) -> None:
    """Draw the answer: how many modes in how many profiles of what, and how far to trust them; or the refusal."""
    how, whom = PROFILED[source]
    n_modes = len(modes)
    if run["refusal"]:
        _draw_refusal(source, run)
    else:
        counted = f"{n_modes} failure {'mode' if n_modes == 1 else 'modes'} in {run['n_profiles']:,} profiles."
        st.markdown(f"**{safe.markdown(counted)}** {safe.markdown(f'A profile says {how}.', 300)}")
        if run["caution"]:
            st.warning(safe.markdown(run["caution"], 400), icon=":material/warning:")
        st.caption(safe.markdown(" ".join(trust(run, n_modes)), 1200))
    counted = f"{run['n_profiles']:,} of {loading.n_traces(version):,} traces have a profile: {whom}."
    st.caption(safe.markdown(f"{counted} Labels of annotators are no part of it.", 400))


def _draw_refusal(source: Source, run: Mapping[str, Any]) -> None:
    st.info(safe.markdown(run["refusal"], 600), icon=":material/block:")
    other: Source = "orchestration" if source == "residual" else "residual"
    if run["n_profiles"] >= MIN_PROFILES:
        st.markdown(
            "Nothing is named rather than something that would not be found again. More runs may change that; until then look "
            "at single traces, or at the other source."
        )
    elif source == "residual":
        st.markdown(
            "More traces need claims that a relation ties: `counterpoint import --claims FILE` brings claims, "
            "`counterpoint analyze --couplings FILE` relations."
        )
    else:
        st.markdown("More runs that failed are needed: import them, then analyse again.")
    with st.container(horizontal=True):
        selection.link("modes", SOURCES[other], source=other)
        selection.link("coherence" if source == "residual" else "traces", "Look at single traces", **(
            {} if source == "residual" else {"filter": "passed:no"}
        ))  # fmt: skip
        selection.link("add_data", "Add data")


def draw_all(version: Version, source: Source, modes: pd.DataFrame) -> None:
    """Draw the map and the table of modes, and below them the traces chosen on the map."""
    points = loading.mode_points(version, source)
    clicked = st.plotly_chart(
        figures.mode_map(points, modes), key=f"modes.map.{source}", on_select="rerun", selection_mode=("points", "lasso")
    )
    ids = {point["customdata"][0] for point in clicked["selection"]["points"] if point.get("customdata")}
    if ids:
        _draw_chosen(version, modes, points[points["trace_id"].isin(ids)].reset_index(drop=True))
    else:
        st.caption("Draw around points, or click one: the traces are then listed here, to open, to name or to split off.")
    st.subheader("The modes")
    picked = tables.show(modes, key=f"modes-{source}", columns=LISTED, select="single-row")
    st.caption(
        "Select a row to open a mode. Comes back: mean overlap (Jaccard) with its likeness in subsamples of 80 % of the traces; "
        f"below {MIN_STABILITY:g} a mode is not firm, and hollow on the map."
    )
    if picked:
        selection.go("modes", source=source, view="mode", mode=modes["mode_id"].iloc[picked[0]])


def _draw_chosen(version: Version, modes: pd.DataFrame, rows: pd.DataFrame) -> None:
    """Draw the traces chosen on the map: the ways on, a tag that names them, a split, the rows."""
    st.subheader(f"{len(rows):,} {safe.markdown('trace' if len(rows) == 1 else 'traces')} chosen")
    ids = rows["trace_id"].tolist()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if len(ids) <= _MAX_IDS and not any('"' in trace_id for trace_id in ids):
            named = ",".join(f'"{trace_id}"' for trace_id in ids)
            selection.link("traces", "Open these in Traces", filter=f"id:{named}")
        if tag := st.session_state.get("modes.tagged"):
            selection.link("traces", f"Open the tag {tag}", filter=f'tag:"{tag}"')
            selection.link("compare", f"Compare {tag} with others", view="groups", fa=f'tag:"{tag}"', fb=f'-tag:"{tag}"')
    tagging, splitting = st.columns(2, gap="medium")
    with tagging, st.form("modes.tag", border=True):
        tag = st.text_input("Name this selection by a tag", placeholder="to review", max_chars=80).replace('"', "").strip()
        if st.form_submit_button(f"Tag {len(ids):,}", icon=":material/sell:") and tag:
            notes.decide(version, [(trace_id, "", "tag", tag) for trace_id in ids])
            st.session_state["modes.tagged"] = tag
            st.rerun()
    with splitting:
        _draw_split(version, modes, rows)
    chosen = tables.show(rows, key="modes-chosen", columns=CHOSEN, select="single-row", height=min(74 + 35 * len(rows), 400))
    if chosen:
        selection.go("trace", trace=rows["trace_id"].iloc[chosen[0]])


def _draw_split(version: Version, modes: pd.DataFrame, rows: pd.DataFrame) -> None:
    counts = rows["mode_id"].value_counts()
    sizes = modes.set_index("mode_id")["size"]
    names = {row.mode_id: row.name for row in modes.itertuples() if 0 < counts.get(row.mode_id, 0) < sizes[row.mode_id]}
    if not names:
        st.caption("These are whole modes: nothing can be split off. Two modes are merged on the page of one of them.")
        return
    with st.form("modes.split", border=True):
        of = st.selectbox(
            "Split off from", list(names), format_func=lambda i: safe.line(f"{names[i]} ({counts[i]:,} of {sizes[i]:,})", 90)
        )
        name = st.text_input("Name of the new mode", placeholder="from its profile, if left empty", max_chars=80).strip()
        if st.form_submit_button("Split off", icon=":material/call_split:"):
            mine = tuple(rows.loc[rows["mode_id"] == of, "trace_id"])
            _decide(version, Decision(what="split mode", mode_id=str(of), text=name, trace_ids=mine))


def draw_mode(version: Version, source: Source, modes: pd.DataFrame) -> None:
    """Draw one mode: what it is, where it occurs, its exemplars, and what people say and decide about it."""
    names = dict(zip(modes["mode_id"], modes["name"], strict=True))
    mode = modes.set_index("mode_id").loc[selection.choose("mode", "Mode", names)]
    mode_id = str(mode.name)
    who = "named by a person" if mode["is_named"] else "named by a rule from its profile"
    facts = f"{mode['size']:,} traces, {mode['share']:.0%} · comes back: {mode['firm']} · {who} · {mode_id}"
    st.markdown(f"**{safe.markdown(mode['name'], 200)}**  \n{safe.markdown(facts)}  \n{safe.markdown(mode['words'], 600)}")
    with st.container(horizontal=True):
        selection.link("traces", "All its traces", filter=f"mode:{mode_id}")
        selection.link("compare", "Compare them with all others", view="groups", fa=f"mode:{mode_id}", fb=f"-mode:{mode_id}")
    left, right = st.columns(2, gap="medium")
    config = {"displayModeBar": False}
    with left:
        st.plotly_chart(figures.profile(loading.mode_shares(version, source), mode_id), key="modes.profile", config=config)
    with right:
        spread = loading.mode_spread(version, source)
        st.plotly_chart(figures.spread(spread[spread["mode_id"] == mode_id]), key="modes.spread", config=config)
    st.markdown("##### Exemplars: the traces nearest to its centre")
    tasks = loading.mode_points(version, source).set_index("trace_id")["task_text"]
    for trace_id in json.loads(mode["exemplars"]):
        task = tasks.get(trace_id)
        selection.link("trace", f"{safe.line(task, 70)} · {trace_id}" if isinstance(task, str) else trace_id, trace=trace_id)
    _draw_notes(version, mode)
    _draw_changes(version, mode, names)


def _draw_notes(version: Version, mode: pd.Series) -> None:
    st.markdown("##### Notes")
    who = loading.mode_notes(version)
    for note in json.loads(mode["notes"]):
        st.text(safe.visible(note))
        st.caption(safe.markdown(who.get(note, "")))
    with st.form(f"modes.note.{mode.name}", border=False, clear_on_submit=True):
        note = st.text_input("Note on this mode", max_chars=2000).strip()
        if st.form_submit_button("Save", icon=":material/save:") and note:
            _decide(version, Decision(what="annotate mode", mode_id=str(mode.name), text=note))


def _draw_changes(version: Version, mode: pd.Series, names: Mapping[str, str]) -> None:
    """Draw the forms that rename the mode and merge another one into it."""
    mode_id = str(mode.name)
    renaming, merging = st.columns(2, gap="medium")
    with renaming, st.form(f"modes.rename.{mode_id}", border=True):
        name = st.text_input("Another name", value=safe.line(mode["name"], 200), max_chars=200).strip()
        if st.form_submit_button("Rename", icon=":material/edit:") and name and name != mode["name"]:
            _decide(version, Decision(what="rename mode", mode_id=mode_id, text=name))
    others = {i: name for i, name in names.items() if i != mode_id}
    if not others:
        return
    with merging, st.form(f"modes.merge.{mode_id}", border=True):
        other = st.selectbox("Merge into it", list(others), format_func=lambda i: safe.line(others[i], 90))
        if st.form_submit_button("Merge", icon=":material/call_merge:"):
            _decide(version, Decision(what="merge modes", mode_id=mode_id, mode_ids=(str(other),)))
    st.caption(
        "What people decide survives the next analysis and new traces. A split is made on the map: choose the traces there."
    )


def _decide(version: Version, decision: Decision) -> None:
    stage.decide(loading.snapshot(version).workspace, decision, author=notes.author())
    st.rerun()


def draw_two(version: Version, source: Source, modes: pd.DataFrame) -> None:
    """Draw two modes beside each other, cell by cell, and where each occurs."""
    names = dict(zip(modes["mode_id"], modes["name"], strict=True))
    if len(names) < 2:
        st.info("There is only one mode: nothing to compare it with.", icon=":material/info:")
        return
    left, right = st.columns(2, gap="medium")
    with left:
        a = selection.choose("a", "A", names)
    with right:
        b = selection.choose("b", "B", {i: name for i, name in names.items() if i != a})
    shares = loading.mode_shares(version, source)
    affinity = float((shares[a] * shares[b]).pow(0.5).sum())
    st.plotly_chart(figures.two_modes(shares, a, b, names=names), key="modes.two")
    st.caption(
        f"Hellinger distance of the two mean profiles: {max(0.0, 2 - 2 * affinity) ** 0.5:.2f} "
        "(0: the same, 1.41: no cell in common)."
    )
    spread = loading.mode_spread(version, source)
    for column, side, mode_id in ((left, "A", a), (right, "B", b)):
        mode = modes.set_index("mode_id").loc[mode_id]
        with column:
            st.caption(safe.markdown(f"{side}: {mode['size']:,} traces. {mode['words']}", 600))
    for column, side, mode_id in zip(st.columns(2, gap="medium"), "AB", (a, b), strict=True):
        with column:
            drawn = figures.spread(spread[spread["mode_id"] == mode_id], called=side)
            st.plotly_chart(drawn, key=f"modes.spread.{mode_id}", config={"displayModeBar": False})


def draw_labels(version: Version, source: Source) -> None:
    """Draw how far the modes and what annotators say of the same traces agree."""
    found = loading.mode_agreements(version, source)
    if not found:
        st.info(
            "No annotator states a category or a responsible agent: there is nothing to compare with.", icon=":material/info:"
        )
        return
    st.markdown(
        "**Do the modes say the same as annotators?** Adjusted mutual information: 1 if modes and labels part the traces alike, "
        "0 as by chance."
    )
    for agreement in found:
        st.markdown(f"- {safe.markdown(str(agreement), 300)}")
    rows = pd.DataFrame([{name: getattr(agreement, name) for name in AGREEMENTS} for agreement in found])
    with st.expander("The same as a table"):
        tables.show(rows, key="mode-agreements", columns=AGREEMENTS)
    st.caption(
        "The interval holds 95 % of the values over 1,000 random halves of the traces. Labels were no part of what the modes are "
        "made from. Names of agents differ from team to team, so a mode that holds one make of team agrees with its names."
    )
