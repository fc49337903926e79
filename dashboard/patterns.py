"""The drawings of the page Patterns: families, patterns, what is significantly worse, two families, libraries.

Hides how a bar that was clicked, or a row that was chosen instead, becomes the family or pattern of the address.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

from analysis.errors import CounterpointError
from analysis.orchestration.findings import FINDINGS
from analysis.orchestration.patterns.value import ASSOCIATION
from dashboard import jobs, loading, network, safe, selection, tables
from dashboard.figures import patterns as figures
from dashboard.loading import Version

FAMILIES = {
    "name": "Family", "n_members": "Runs", "member_share": "Run share", "n_forms": "Forms", "stability": "Stability",
    "lift": "Lift", "low": "From", "high": "To", "with_mean": "Mean of the family", "without_mean": "Mean of the others",
    "n_with": "With a value", "n_without": "Others with one", "p_adjusted": "Adjusted p", "q_value": "q", "reason": "Why not",
    "family_id": "Id",
}  # fmt: skip
PATTERNS = {
    "name": "Pattern", "n_edges": "Edges", "support": "Runs", "support_share": "Run share", "maximal": "Maximal", "lift": "Lift",
    "low": "From", "high": "To", "p_adjusted": "Adjusted p", "q_value": "q", "anti_pattern": "Worse in some metric",
    "family": "Family of patterns", "is_approximate": "Approximate", "reason": "Why not", "pattern_id": "Id",
}  # fmt: skip
WORSE = {
    "name": "Pattern", "n_edges": "Edges", "support": "Runs", "lift": "Lift", "low": "From", "high": "To",
    "with_mean": "Mean with it", "without_mean": "Mean without", "p_adjusted": "Adjusted p", "q_value": "q",
    "matched": "Matched difference", "n_pairs": "Matched cells", "matched_by": "Matched by", "pattern_id": "Id",
}  # fmt: skip
LIFTS = {
    "metric": "Metric", "lift": "Lift", "low": "From", "high": "To", "with_mean": "Mean with it", "without_mean": "Mean without",
    "n_with": "Runs with it", "n_without": "Runs without", "p_adjusted": "Adjusted p", "q_value": "q",
    "n_tested": "Runs p rests on", "matched": "Matched difference", "matched_low": "Matched from", "matched_high": "Matched to",
    "n_pairs": "Matched cells", "matched_by": "Matched by", "evidence": "Evidence", "reason": "Why not",
}  # fmt: skip
LEAVES = {
    "rule": "Where", "lift": "Lift", "low": "From", "high": "To", "n_with": "Runs of it", "n_without": "Other runs",
    "with_mean": "Did well, of it", "without_mean": "Did well, others",
}  # fmt: skip
DOMAINS = {
    "domain": "Domain", "metric": "Metric", "holds": "Holds there", "lift": "Lift", "low": "From", "high": "To",
    "n_with": "Runs of it", "n_without": "Other runs", "reason": "Why not",
}  # fmt: skip
MATCHES = {
    "name": "Name", "kind": "What", "n_traces": "Traces here", "share": "Share here", "share_there": "Share there",
    "n_nodes": "Steps", "n_edges": "Edges", "n_undecided": "Given up", "id": "Id",
}  # fmt: skip
_FIRST = ("passed", "score", "q_orchestration", "q_work", "residual")  # which metrics are offered first
_MATCHING = "Look for a pattern library"


def draw_families(version: Version, run: dict[str, Any]) -> None:
    """Draw all families by size and lift, and the one that is selected, at first the largest."""
    families, lifts = loading.families(version), loading.lifts(version, "family")
    if families.empty:
        st.info("No run was mined, so there are no families.", icon=":material/info:")
        return
    st.markdown(f"**{safe.markdown(_sentence(run['families_note']), 600)}**")
    metric = _choose_metric(lifts)
    rows = _with_lift(families, "family_id", lifts, metric)
    chosen = selection.get("family")
    family_id = chosen if chosen in set(rows["family_id"]) else str(rows["family_id"].iloc[0])
    drawn = figures.family_overview(rows, metric=metric or "no metric", selected=family_id)
    clicked = st.plotly_chart(drawn, key="patterns.families", on_select="rerun", selection_mode="points")
    picked = [str(point["customdata"][0]) for point in clicked["selection"]["points"] if point.get("customdata")]
    with st.expander("The same as a table; a row can be chosen with the keyboard"):
        at = tables.show(rows, key="families", columns=FAMILIES, select="single-row")
    _pick("figure", "family", picked[0] if picked else None)
    _pick("table", "family", rows["family_id"].iloc[at[0]] if at else None)
    _draw_family(version, rows[rows["family_id"] == family_id].iloc[0], lifts[lifts["item"] == family_id])


def draw_patterns(version: Version, run: dict[str, Any]) -> None:
    """Draw the list of patterns, and the one that is selected."""
    patterns, lifts = loading.patterns(version), loading.lifts(version, "pattern")
    if patterns.empty:
        st.info(safe.markdown(" ".join(json.loads(run["notes"])) or "No pattern was found.", 600), icon=":material/info:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric = _choose_metric(lifts)
        which = selection.choose("rows", "Which", {"all": "All closed patterns", "maximal": "Maximal ones only"})
    rows = _with_lift(patterns, "pattern_id", lifts, metric)
    rows = rows[rows["maximal"]].reset_index(drop=True) if which == "maximal" else rows
    st.caption(
        f"{len(rows):,} patterns · closed: no larger one occurs as often; maximal: no larger one is frequent; a family of "
        "patterns occurs in nearly the same runs. Choose a row to see the pattern."
    )
    at = tables.show(rows, key="patterns", columns=PATTERNS, select="single-row", height=_height(rows, 300))
    _pick("table", "pattern", rows["pattern_id"].iloc[at[0]] if at else None)
    pattern_id = selection.get("pattern") or str(rows["pattern_id"].iloc[0])
    found = patterns[patterns["pattern_id"] == pattern_id]
    if found.empty:
        st.warning(safe.markdown(f"No pattern has the id {pattern_id}; it was mined under other options, perhaps."))
        return
    _draw_pattern(version, found.iloc[0], lifts[lifts["item"] == pattern_id], run["n_graphs"])


def draw_worse(version: Version) -> None:
    """Draw the patterns that are significantly worse, and the anti-patterns that a single run can show."""
    mined, single = st.columns([3, 2], gap="medium")
    with mined:
        st.markdown("##### Patterns whose runs are significantly worse")
        rows = loading.worse_patterns(version)
        if rows.empty:
            st.info("None: no pattern is worse in any metric beyond what chance gives over all of them.", icon=":material/check:")
        else:
            counts = rows["metric"].value_counts()
            metric = selection.choose("metric", "Metric", {name: f"{name}: {counts[name]:,}" for name in _ordered(counts.index)})
            here = rows[rows["metric"] == metric].reset_index(drop=True)
            at = tables.show(here, key="worse", columns=WORSE, select="single-row", height=_height(here))
            if at:
                selection.go("patterns", view="patterns", pattern=here["pattern_id"].iloc[at[0]], metric=metric)
        st.caption(
            "Worse: adjusted p (Westfall and Young, over all patterns) of at most 5 %, on the bad side of a metric that has one, "
            "and matched runs do not say otherwise. A pattern that holds a worse one is often worse too. " + ASSOCIATION
        )
    with single:
        st.markdown("##### What a single run can show")
        findings = loading.findings(version)
        if findings.empty:
            st.info("No run shows any, or the runs are not analysed yet.", icon=":material/info:")
        else:
            shown = findings.assign(meaning=findings["name"].map(FINDINGS))
            columns = {"name": "Anti-pattern", "n_traces": "Runs", "n_failed": "Failed", "n_recovered": "Passed all the same",
                       "lost_share": "Lost share", "meaning": "What it means"}  # fmt: skip
            at = tables.show(shown, key="findings", columns=columns, select="single-row", height=_height(shown))
            name = str(findings["name"].iloc[at[0] if at else 0])
            st.text(safe.visible(f"{name}: {FINDINGS.get(name, '')}"))
            selection.link("traces", f"Its runs: {name}", filter=f'finding:"{name}"')
        st.caption(
            "Lost share: of the run's own time, tokens or steps, on average. A finding says what happened in a run, not that it "
            "made the run fail."
        )


def draw_two(version: Version) -> None:
    """Draw two families beside each other: their lifts, what sets them apart, their typical runs."""
    families, lifts = loading.families(version), loading.lifts(version, "family")
    if len(families) < 2:
        st.info("There are not two families to compare.", icon=":material/info:")
        return
    names = dict(zip(families["family_id"], families["name"], strict=True))
    for_a, for_b = st.columns(2, gap="medium")
    with for_a:
        a = selection.choose("a", "Family A", {key: f"A: {name}" for key, name in names.items()})
    with for_b:
        b = selection.choose("b", "Family B", {key: f"B: {name}" for key, name in names.items() if key != a})
    sides = {side: families[families["family_id"] == key].iloc[0] for side, key in (("A", a), ("B", b))}
    with st.container(horizontal=True):
        selection.link("compare", "Compare their runs, A against B", view="groups", fa=f"family:{a}", fb=f"family:{b}")
        selection.link("compare", "Align the typical runs", a=sides["A"]["medoid"], b=sides["B"]["medoid"])
    overall = lifts[lifts["domain"].isna()]
    pair = [overall[overall["item"] == key] for key in (a, b)]
    if any(rows["low"].notna().any() for rows in pair):
        st.plotly_chart(figures.two_families(*pair), key="patterns.two", config={"displayModeBar": False})
        st.caption(ASSOCIATION)
    else:
        st.info("Neither family has a lift with an interval; each one's table says why.", icon=":material/data_alert:")
    st.markdown("##### The typical run of each")
    for side, family in sides.items():
        said = f"{side}: {_counted(family['n_members'], 'run')} of {_counted(family['n_forms'], 'form')}"
        _draw_motif(family["nodes"], family["edges"], said, height_px=260)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("##### Steps of the typical runs")
        steps = _counts(sides["A"]["nodes"], sides["B"]["nodes"])
        tables.show(steps, key="steps", columns={"step": "Step", "a": "In A", "b": "In B"}, height=_height(steps))
    with right:
        st.markdown("##### Patterns that set them apart")
        rows = loading.apart(version, a, b)
        columns = {"name": "Pattern", "n_edges": "Edges", "a_share": "A's run share", "b_share": "B's run share"}
        at = tables.show(rows, key="apart", columns=columns, select="single-row", height=_height(rows))
        if at:
            selection.go("patterns", view="patterns", pattern=rows["pattern_id"].iloc[at[0]])


def draw_library(version: Version, run: dict[str, Any]) -> None:
    """Draw the way out for the patterns of this workspace, and the way in for those of another."""
    out, into = st.columns(2, gap="medium")
    with out:
        st.markdown("##### Take these patterns along")
        st.caption("A file with all patterns and families, what they were worth here, and where they come from.")
        try:
            data = loading.pattern_library(version)
            st.download_button(
                f"Download ({len(data) / 1e6:.1f} MB)", data, "patterns.json", "application/json", key="patterns.download",
                icon=":material/download:", on_click="ignore", disabled=not run["n_closed"],
            )  # fmt: skip
        except CounterpointError as error:
            st.info(safe.markdown(str(error)), icon=":material/info:")
    with into, st.form("patterns.import", border=False, clear_on_submit=True):
        st.markdown("##### Look for those of another workspace here")
        uploads = st.file_uploader("A file that was downloaded there", key="patterns.file", type="json")
        if st.form_submit_button("Look for them", icon=":material/search:") and uploads:
            folder = jobs.new_folder(version.location)
            file = next(jobs.keep_uploads(folder, [(uploads.name, uploads.getvalue())]).iterdir())
            command = ["patterns", "import", str(file)]
            selection.put(job=jobs.start(version.location, f"{_MATCHING}: {uploads.name}", command, job_id=folder.name))
            st.rerun()
    found = [job for job in jobs.all_jobs(version.location) if job.title.startswith(_MATCHING)]
    if found:
        wanted = selection.get("job")
        _draw_matches(version.location, next((job for job in found if job.job_id == wanted), found[0]))
    for job in found[:5]:
        selection.link("patterns", f"{job.title} · {job.state}", view="library", job=job.job_id)


def _draw_matches(location: str, job: jobs.Job) -> None:
    if job.state == "running":
        _wait(location, job.job_id)
    elif job.state != "done":
        st.error(safe.markdown(job.text, 600), icon=":material/error:")
    else:
        rows = pd.DataFrame(job.result, columns=list(MATCHES) if not job.result else None)
        st.markdown(f"##### {safe.markdown(job.title)}")
        n_found = int((rows["n_traces"] > 0).sum())
        st.caption(
            f"{n_found:,} of {len(rows):,} patterns and families occur here. A family of runs counts where a run has the very "
            "form of its typical run."
        )
        tables.show(rows, key="matches", columns=MATCHES, height=_height(rows))


@st.fragment(run_every="0.5s")
def _wait(location: str, job_id: str) -> None:
    job = jobs.state(location, job_id)
    if job.state != "running":
        st.rerun()
    st.progress(job.share, text=safe.markdown(job.text))


def _draw_family(version: Version, family: pd.Series, lifts: pd.DataFrame) -> None:
    st.subheader(safe.markdown(family["name"], 160))
    facts = [f"**{family['n_members']:,}** runs, {family['member_share']:.0%} of all", _counted(family["n_forms"], "form")]
    facts += [] if pd.isna(family["stability"]) else [f"halves of the runs agree on it to {family['stability']:.2f}"]
    st.markdown(" · ".join(facts))
    family_id = family["family_id"]
    with st.container(horizontal=True):
        selection.link("traces", f"Its {family['n_members']:,} runs", filter=f"family:{family_id}")
        selection.link("patterns", "Beside another family", view="two", a=family_id)
        for n, trace_id in enumerate(json.loads(family["exemplars"])[:4]):
            said = f"Typical run {trace_id}" if n == 0 else f"Another form {trace_id}"
            selection.link("trace", said, trace=trace_id, filter=f"family:{family_id}")
    _draw_motif(family["nodes"], family["edges"], "The typical run", height_px=280)
    left, right = st.columns(2, gap="medium")
    with left:
        _draw_lifts(lifts[lifts["domain"].isna()], "What goes with this family?", key=family_id)
    with right:
        _draw_conditions(family)
        _draw_domains(lifts[lifts["domain"].notna()])


def _draw_pattern(version: Version, pattern: pd.Series, lifts: pd.DataFrame, n_runs: int) -> None:
    pattern_id = pattern["pattern_id"]
    st.subheader(safe.markdown(pattern["name"], 160))
    facts = [
        f"in **{pattern['support']:,}** of {n_runs:,} runs",
        f"{_counted(pattern['n_nodes'], 'step')}, {_counted(pattern['n_edges'], 'edge')}",
    ]
    facts += ["maximal"] if pattern["maximal"] else []
    facts += ["approximate: it fits some runs in too many ways to look at all"] if pattern["is_approximate"] else []
    st.markdown(" · ".join([*facts, f"`{safe.line(pattern_id)}`"]))
    with st.container(horizontal=True):
        selection.link("traces", f"The {pattern['support']:,} runs that hold it", filter=f"pattern:{pattern_id}")
        for trace_id in json.loads(pattern["examples"])[:4]:
            selection.link("trace", f"Ringed in {trace_id}", trace=trace_id, view="lanes", pattern=pattern_id)
    left, right = st.columns(2, gap="medium")
    with left:
        _draw_motif(pattern["nodes"], pattern["edges"], "The pattern")
        st.markdown("##### In which families of runs")
        rows = loading.frame(
            version,
            """select name, count(*) as n_holding, count(*) / any_value(n_members) as holding_share from occurrences
            join family_members using (trace_id) join families using (family_id) where pattern_id = $id
            group by family_id, name order by n_holding desc, name""",
            {"id": pattern_id},
        )
        columns = {"name": "Family of runs", "n_holding": "Runs that hold it", "holding_share": "Holding share"}
        tables.show(rows, key="holding", columns=columns)
    with right:
        _draw_lifts(lifts[lifts["domain"].isna()], "What goes with this pattern?", key=pattern_id)


def _draw_motif(nodes: str | None, edges: str | None, said: str, *, height_px: int = 340) -> None:
    """Draw a graph that stands as JSON in two cells; none where it was too large to be kept."""
    if not isinstance(nodes, str) or not isinstance(edges, str):
        st.info("The typical run has more than 200 steps, too many to draw; open it as a trace.", icon=":material/info:")
        return
    drawn = network.motif(json.loads(nodes), [(a, b, label) for a, b, label in json.loads(edges)])
    html = network.orchestration_html(drawn.nodes, drawn.edges, dark=st.context.theme.type == "dark", height_px=height_px)
    st.iframe(network.data_url(html), height=height_px + 20, alt=safe.line(f"{said}: {drawn.caption}"))
    st.caption(safe.markdown(f"{said}: {drawn.caption}."))


def _draw_lifts(lifts: pd.DataFrame, title: str, *, key: str) -> None:
    if lifts.empty:
        st.info(
            "What it is worth was not worked out: no metric is known, or too many patterns are more frequent.",
            icon=":material/info:",
        )
        return
    if lifts["low"].notna().any():
        st.plotly_chart(figures.forest(lifts, title=title), key=f"patterns.forest.{key}", config={"displayModeBar": False})
    else:
        st.info("No metric has a lift with an interval; the table says why.", icon=":material/data_alert:")
    st.caption(f"Evidence: observational. {safe.markdown(ASSOCIATION)}")
    with st.expander("All metrics as a table"):
        tables.show(lifts.reset_index(drop=True), key="lifts", columns=LIFTS)


def _draw_conditions(family: pd.Series) -> None:
    st.markdown("##### When it pays")
    st.text(safe.visible(_sentence(family["conditions_note"])))
    leaves = pd.DataFrame(_list(family["conditions"]))
    if len(leaves):
        leaves["rule"] = leaves["rule"].replace("", "everywhere")
        tables.show(leaves, key="conditions", columns=LEAVES)


def _draw_domains(rows: pd.DataFrame) -> None:
    st.markdown("##### Does it hold in every domain?")
    known = rows[(rows["n_with"] > 0) & (rows["n_without"] > 0)]
    if known.empty:
        st.caption("Not to be seen: in no domain do runs of this family and others both have a value.")
        return
    counts = known["holds"].value_counts()
    st.caption(safe.markdown(", ".join(f"{word}: {counts[word]:,}" for word in counts.index)))
    tables.show(known.reset_index(drop=True), key="domains", columns=DOMAINS)


def _choose_metric(lifts: pd.DataFrame) -> str | None:
    """Draw the choice of the metric that lifts are of, those first that have any; say what is missing of the outcome."""
    overall = lifts[lifts["domain"].isna()]
    if overall.empty:
        st.info("No metric and no outcome is known of any run: nothing can be said of what helps.", icon=":material/data_alert:")
        return None
    has_lift = overall.groupby("metric")["lift"].count() > 0
    names = _ordered(has_lift.index[has_lift]) + _ordered(has_lift.index[~has_lift])
    metric = selection.choose("metric", "Metric", {name: f"lift in {name}" for name in names})
    of_it = overall[overall["metric"] == metric]
    if "passed" not in has_lift.index:
        st.info("No run has an outcome, so nothing can be said of what makes runs pass.", icon=":material/data_alert:")
    if not has_lift[metric]:
        st.info(safe.markdown(f"{metric}: {of_it['reason'].mode().iloc[0]}."), icon=":material/data_alert:")
    elif of_it["reason"].nunique() == 1 and of_it["reason"].iloc[0]:
        st.info(safe.markdown(f"{metric}: {of_it['reason'].iloc[0]}."), icon=":material/data_alert:")
    return metric


def _ordered(names: Any) -> list[str]:
    ranked = {name: next((n for n, first in enumerate(_FIRST) if str(name).startswith(first)), len(_FIRST)) for name in names}
    return sorted(ranked, key=lambda name: (ranked[name], name))


def _with_lift(items: pd.DataFrame, name: str, lifts: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """Return families or patterns with the lift of one metric."""
    of_metric = lifts[lifts["domain"].isna() & (lifts["metric"] == metric)].drop(columns=["kind", "domain", "holds"])
    return items.merge(of_metric, left_on=name, right_on="item", how="left")


def _counts(first: object, second: object) -> pd.DataFrame:
    """Return how often each step is in two typical runs, what differs most on top."""
    sides = [pd.Series(_list(cell), dtype=object).value_counts() for cell in (first, second)]
    rows = pd.concat(sides, axis=1, keys=["a", "b"]).fillna(0).astype(int).rename_axis("step").reset_index()
    return rows.iloc[(rows["a"] - rows["b"]).abs().sort_values(ascending=False, kind="stable").index].reset_index(drop=True)


def _list(cell: object) -> list[Any]:
    """What a cell of JSON holds; a missing one holds nothing."""
    return list(json.loads(cell)) if isinstance(cell, str) else []


def _pick(source: str, name: str, value: str | None) -> None:
    """Put what was picked into the address, once: a table and a figure go on reporting what was picked before."""
    key = f"patterns.picked.{source}.{name}"
    is_new = value is not None and st.session_state.get(key) != value
    st.session_state[key] = value
    if is_new:
        selection.put(**{name: value})
        st.rerun()


def _height(rows: pd.DataFrame, most: int = 430) -> int:
    return min(38 + 35 * max(1, len(rows)), most)


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
