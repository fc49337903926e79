"""What pages read, cached. The only folder with caches: bounded, keyed by the workspace version and parameters.

A version never changes, so nothing here expires by time; a new import or note is a new version.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import msgspec
import pandas as pd
import streamlit as st

from analysis.coherence.modes import breakdown
from analysis.coherence.modes.decisions import Decision
from analysis.coherence.modes.profiles import Source
from analysis.coherence.monitor import Monitored, Reading, monitor
from analysis.counterfactual.tasks.shapes import SHAPES
from analysis.counterfactual.teams import ready_teams
from analysis.evaluation.agreement import agreements
from analysis.evaluation.comparison import Suggestion, cautions, comparable_runs, group_values, metric_differences, suggestions
from analysis.evaluation.mode_labels import LabelAgreement, label_agreement
from analysis.model import Claim, Relation, Trace
from analysis.orchestration.alignment import Alignment, align, differences
from analysis.orchestration.groups import compare_groups
from analysis.orchestration.patterns.library import export_library
from analysis.orchestration.patterns.value import anti_patterns
from analysis.orchestration.quality import work_by_agent as quality_of_agents
from analysis.orchestration.timing import Timing, timing
from analysis.pipeline import patterns as mining
from analysis.pipeline.coherence import claims_and_relations
from analysis.pipeline.modes import stored_modes
from analysis.streams import stream
from analysis.workspace import SCHEMAS, Snapshot, Workspace, listing, standing
from dashboard import swimlane


class Version(NamedTuple):
    """Which workspace, and which of its versions."""

    location: str
    number: int


def version() -> Version:
    """Return the newest version of the workspace that the server was started on."""
    location = os.environ.get("COUNTERPOINT_WORKSPACE", "counterpoint-workspace")
    return Version(location, Workspace(location, create=True).head().number)


@st.cache_resource(max_entries=4, show_spinner=False)
def snapshot(version: Version) -> Snapshot:
    """Open a version."""
    workspace = Workspace(version.location, create=True)
    return Snapshot(workspace, workspace.head_at(version.number) if version.number else None)


@st.cache_data(max_entries=64, show_spinner=False)
def frame(version: Version, query: str, parameters: dict[str, Any] | None = None) -> pd.DataFrame:
    """Return the rows of a query."""
    return snapshot(version).sql(query, parameters or {}).to_pandas()


@st.cache_data(max_entries=64, show_spinner=False)
def traces_page(version: Version, filter: str, order: str, descending: bool, limit: int | None, offset: int) -> pd.DataFrame:
    """Return one page of the list of traces."""
    return listing.page(snapshot(version), filter, order=order, descending=descending, limit=limit, offset=offset).to_pandas()


@st.cache_data(max_entries=64, show_spinner=False)
def n_traces(version: Version, filter: str = "") -> int:
    """Return how many traces fit a filter."""
    return listing.count(snapshot(version), filter)


@st.cache_data(max_entries=64, show_spinner=False)
def neighbours(version: Version, trace_id: str, filter: str) -> tuple[str | None, str | None]:
    """Return the traces before and after one in the filtered list."""
    return listing.neighbours(snapshot(version), trace_id, filter)


def quality(version: Version, trace_id: str) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Return the metrics of a trace, by name, and its findings; both empty before analysis."""
    opened = snapshot(version)
    return listing.metrics_of(opened, [trace_id])[trace_id], listing.findings_of(opened, trace_id)


def suspects(version: Version, trace_id: str) -> list[dict[str, Any]]:
    """Return who and when, for a failed trace; none before analysis."""
    return listing.suspects_of(snapshot(version), trace_id)


@st.cache_data(max_entries=16, show_spinner=False)
def work_by_agent(version: Version, trace_id: str) -> pd.DataFrame:
    """Return the q_work of each agent of a trace, with what it rests on."""
    run = trace(version, trace_id)
    found = quality_of_agents(run, timing(run))
    columns = ["agent", "value", "variant", "n", "low", "high", "reason"]
    return pd.DataFrame([(agent, *[getattr(m, name) for name in columns[1:]]) for agent, m in found.items()], columns=columns)


@st.cache_resource(max_entries=16, show_spinner=False)
def trace(version: Version, trace_id: str) -> Trace:
    """Return one trace, frozen."""
    return snapshot(version).trace(trace_id)


@st.cache_resource(max_entries=16, show_spinner=False)
def times(version: Version, trace_id: str) -> Timing:
    """Return the critical path, drag and slack of one trace, frozen."""
    return timing(trace(version, trace_id))


@st.cache_resource(max_entries=16, show_spinner=False)
def lanes(version: Version, trace_id: str) -> bytes:
    """Return the drawing of one trace's lanes."""
    timed = times(version, trace_id)
    return swimlane.payload(swimlane.rows(trace(version, trace_id), critical=timed.critical_path, drag_s=timed.drag_s))


@st.cache_data(max_entries=8, show_spinner=False)
def metric_names(version: Version) -> list[str]:
    """Return the names of the metrics that some trace has."""
    return listing.metric_names(snapshot(version))


@st.cache_data(max_entries=8, show_spinner=False)
def findings(version: Version) -> pd.DataFrame:
    """Return the kinds of finding, what is worth looking at first on top."""
    return standing.ranked_findings(snapshot(version)).to_pandas()


@st.cache_data(max_entries=8, show_spinner=False)
def quality_points(version: Version) -> pd.DataFrame:
    """Return where traces stand on the two axes of quality."""
    return standing.quality_points(snapshot(version)).to_pandas()


@st.cache_data(max_entries=8, show_spinner=False)
def n_not_analysed(version: Version) -> int:
    """Return how many traces wait to be analysed."""
    return standing.n_not_analysed(snapshot(version))


@st.cache_data(max_entries=16, show_spinner=False)
def n_without(version: Version, stage: str) -> int:
    """Return for how many traces a per-trace stage of the analysis has not run."""
    return standing.n_without(snapshot(version), stage)


@st.cache_resource(max_entries=8, show_spinner="Aligning the two runs")
def comparison(version: Version, a: str, b: str) -> tuple[Alignment, pd.DataFrame]:
    """Return two traces side by side, and the rows of it."""
    found = align(trace(version, a), trace(version, b))
    return found, differences(found, times(version, a), times(version, b))


@st.cache_data(max_entries=16, show_spinner=False)
def comparable(version: Version, trace_id: str | None) -> pd.DataFrame:
    """Return runs to put beside a trace, those of its task where there are any."""
    return comparable_runs(snapshot(version), trace_id)


@st.cache_data(max_entries=16, show_spinner=False)
def two_metrics(version: Version, a: str, b: str) -> pd.DataFrame:
    """Return the metrics of two traces side by side."""
    return metric_differences(snapshot(version), a, b)


@st.cache_data(max_entries=16, show_spinner="Comparing the two groups")
def groups(version: Version, first: str, second: str) -> pd.DataFrame:
    """Return the differences between the runs that fit two filters."""
    return compare_groups(group_values(snapshot(version), first, second))


@st.cache_data(max_entries=16, show_spinner=False)
def group_cautions(version: Version, first: str, second: str) -> list[str]:
    """Return what to know about two groups of runs."""
    return cautions(snapshot(version), first, second)


@st.cache_data(max_entries=4, show_spinner=False)
def group_suggestions(version: Version) -> list[Suggestion]:
    """Return which groups suggest themselves."""
    return suggestions(snapshot(version))


def rows(version: Version, table: str, trace_id: str) -> pd.DataFrame:
    """Return one table's rows of one trace."""
    if table not in snapshot(version).head.tables:
        return pd.DataFrame()
    order = " order by position" if "position" in SCHEMAS[table].names else ""
    return frame(version, f"select * from {table} where trace_id = $id{order}", {"id": trace_id})


@st.cache_data(max_entries=8, show_spinner=False)
def raw(version: Version, trace_id: str) -> list[dict[str, Any]]:
    """Return the source records of one trace, their bytes under `data`."""
    return snapshot(version).raw([trace_id])


@st.cache_data(max_entries=4, show_spinner=False)
def annotator_agreements(version: Version) -> list[str]:
    """Return in words how far annotators of the same runs agree."""
    labels = frame(version, "select trace_id, annotator, agent_id, event_id, is_root_cause from labels")
    return [str(agreement) for agreement in agreements(labels)]


@st.cache_data(max_entries=16, show_spinner=False)
def residual_rows(version: Version, filter: str = "") -> pd.DataFrame:
    """Return the residual of each trace and level of claims that fits a filter."""
    return standing.residual_rows(snapshot(version), filter).to_pandas()


def n_rows(version: Version, table: str) -> int:
    """Return how many rows a table has."""
    return snapshot(version).head.n_rows(table)


@st.cache_data(max_entries=8, show_spinner=False)
def unlinked_claims(version: Version, filter: str = "") -> pd.DataFrame:
    """Return what traces that fit a filter stated but could not be linked to a proposition."""
    return standing.unlinked_rows(snapshot(version), filter).to_pandas()


@st.cache_data(max_entries=4, show_spinner=False)
def claim_coverage(version: Version) -> pd.DataFrame:
    """Return for each format how many traces have claims and cliques."""
    return standing.claim_coverage(snapshot(version)).to_pandas()


@st.cache_data(max_entries=16, show_spinner=False)
def claims_in_use(version: Version, trace_id: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the claims and relations that the residuals of a trace are measured on."""
    claims, relations = claims_and_relations(trace(version, trace_id), snapshot(version))
    return (
        pd.DataFrame([msgspec.structs.asdict(claim) for claim in claims], columns=list(Claim.__struct_fields__)),
        pd.DataFrame([msgspec.structs.asdict(tie) for tie in relations], columns=list(Relation.__struct_fields__)),
    )


@st.cache_data(max_entries=16, show_spinner=False)
def monitored(version: Version, filter: str, level: str, order: str, mu0: float) -> Monitored:
    """Return the evidence that a stream of traces is less coherent than tolerated; `order` as in `standing.stream_rows`."""
    rows = standing.stream_rows(snapshot(version), filter, level=level, order=order).to_pylist()
    return monitor([Reading(**row) for row in rows], mu0=mu0, alpha=0.05)


def mode_run(version: Version, source: Source) -> dict[str, Any]:
    """Return what the last search for modes found out besides them; what is missing is None."""
    run = frame(version, "select * exclude (cells, found) from mode_runs where source = $source", {"source": source})
    return {name: None if pd.isna(value) else value for name, value in run.iloc[0].items()}


def modes(version: Version, source: Source) -> pd.DataFrame:
    """Return the modes, largest first: mode_id, name, words, size, share, jaccard, is_named, exemplars, notes (JSON lists)."""
    return frame(
        version,
        """select mode_id, name, words, size, size / sum(size) over () as share, jaccard, is_named, exemplars, notes
        from modes where source = $source order by size desc, mode_id""",
        {"source": source},
    )


def mode_points(version: Version, source: Source) -> pd.DataFrame:
    """Return the traces that are in modes: trace_id, mode_id, mode (its name), distance, x, y and what is known of them."""
    return frame(
        version,
        """select m.trace_id, m.mode_id, modes.name as mode, distance, x, y, format, domain, passed, task_text
        from mode_members as m join modes using (source, mode_id) join traces using (trace_id)
        where source = $source order by m.trace_id""",
        {"source": source},
    )


def mode_notes(version: Version) -> dict[str, str]:
    """Return what people noted about modes -> who and when, of equal notes the last."""
    rows = frame(version, "select value, author, made_at from decisions where what = 'annotate mode' order by made_at")
    return {
        msgspec.json.decode(value, type=Decision).text: f"{author}, {made_at[:16].replace('T', ' ')} UTC"
        for value, author, made_at in rows.itertuples(index=False)
    }


@st.cache_data(max_entries=8, show_spinner="Reading profiles")
def mode_shares(version: Version, source: Source) -> pd.DataFrame:
    """Return the mean profile of each mode and of `all`: a row a cell, a column a mode id."""
    found = stored_modes(snapshot(version), source)
    if found is None:
        return pd.DataFrame()
    profiles = pd.DataFrame(found.profiles.matrix, columns=found.profiles.cells).astype(float)
    return profiles.groupby(found.members["mode_id"].to_numpy()).mean().T.assign(all=profiles.mean())


@st.cache_data(max_entries=8, show_spinner=False)
def mode_spread(version: Version, source: Source) -> pd.DataFrame:
    """Return how the traces of each mode spread over domain, outcome and format: as `breakdown`, with `share_of_all`."""
    points = mode_points(version, source)
    outcomes = points["passed"].map({True: "passed", False: "failed"})
    facts = points[["trace_id", "domain", "format"]].assign(outcome=outcomes)
    of_all = breakdown(points.assign(mode_id="all"), facts)[["fact", "value", "share"]].rename(columns={"share": "share_of_all"})
    return breakdown(points, facts).merge(of_all, on=["fact", "value"])


@st.cache_data(max_entries=8, show_spinner="Comparing modes with what annotators say")
def mode_agreements(version: Version, source: Source) -> list[LabelAgreement]:
    """Return how far modes agree with each annotator."""
    labels = frame(version, "select trace_id, annotator, category, agent_id, is_root_cause from labels order by all")
    return label_agreement(mode_points(version, source), labels, stream(0, "mode labels", source))


def pattern_run(version: Version) -> dict[str, Any] | None:
    """Return what was mined for last, and what there is to say of it; None before the first time."""
    runs: list[dict[str, Any]] = frame(version, "select * from pattern_runs").to_dict("records")
    return runs[0] if runs else None


def families(version: Version) -> pd.DataFrame:
    """Return the families of runs, the largest first, each with its share of all runs."""
    return frame(
        version,
        """select *, n_members / nullif((select count(*) from family_members), 0) as member_share
        from families order by n_members desc, family_id""",
    )


def patterns(version: Version) -> pd.DataFrame:
    """Return the patterns, the most frequent first."""
    return frame(version, "select * from patterns order by support desc, n_edges, pattern_id")


def lifts(version: Version, kind: str) -> pd.DataFrame:
    """Return what runs with each `pattern` or each `family` differ in, over all domains, and by domain."""
    return frame(version, "select * from lifts where kind = $kind order by item, metric, domain", {"kind": kind})


@st.cache_data(max_entries=8, show_spinner=False)
def worse_patterns(version: Version) -> pd.DataFrame:
    """Return the rows of patterns that are significantly worse in a metric, the surest first, with their names."""
    rows = lifts(version, "pattern")
    named = patterns(version)[["pattern_id", "name", "n_edges", "support"]]
    return anti_patterns(rows).merge(named, left_on="item", right_on="pattern_id") if len(rows) else pd.DataFrame()


@st.cache_data(max_entries=64, show_spinner=False)
def occurrence(version: Version, trace_id: str, pattern_id: str) -> tuple[str, ...]:
    """Return the events of a trace that one occurrence of a pattern stands for."""
    return mining.occurrence(snapshot(version), trace_id, pattern_id)


@st.cache_data(max_entries=2, show_spinner=False)
def pattern_library(version: Version) -> bytes:
    """Return the patterns and families as a file to take along."""
    return export_library(mining.library_of(snapshot(version)))


def apart(version: Version, a: str, b: str) -> pd.DataFrame:
    """Return the patterns that differ most in which share of either family's runs holds them: a_share, b_share, difference."""
    return frame(
        version,
        """with held as (
            select pattern_id, count(*) filter (family_id = $a) as n_a, count(*) filter (family_id = $b) as n_b
            from occurrences join family_members using (trace_id) group by pattern_id
        )
        select pattern_id, p.name, n_edges, n_a / a.n_members as a_share, n_b / b.n_members as b_share,
            a_share - b_share as difference from held join patterns as p using (pattern_id)
        join families as a on a.family_id = $a join families as b on b.family_id = $b
        where difference != 0 order by abs(difference) desc, n_edges, pattern_id limit 40""",
        {"a": a, "b": b},
    )


@st.cache_data(max_entries=1, show_spinner=False)
def shapes_and_teams() -> tuple[list[str], dict[str, str]]:
    """Return the shapes of composed tasks, and the ready teams with what they do."""
    return list(SHAPES), {name: team.about for name, team in ready_teams().items()}
