"""What the page Curate reads, cached: policies, what one would make of a sample, data sets and their funnels, what waits.

Hides the queries, and which events of a trace its residual comes from.
"""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import streamlit as st

from analysis.curation.curate import Curated
from analysis.curation.funnel import Review
from analysis.curation.policy import Policy, policy_of, ready_policies
from analysis.pipeline import curating
from analysis.pipeline.curation_frame import worlds_of
from dashboard.loading import Version, claims_in_use, frame, metric_names, snapshot

#: Where the way of a trace ends: at the gate that dropped or queued it for good, else behind the last one.
_ENDS = """ends as (
    select trace_id, rows.outcome as final,
        coalesce(max(place) filter (funnel.outcome = final and final in ('dropped', 'queued')), max(place)) as last_place
    from funnel join dataset_rows as rows using (dataset, trace_id) where dataset = $dataset group by all
)"""


@st.cache_data(max_entries=1, show_spinner=False)
def ready() -> dict[str, str]:
    """Return the policies that ship, by name, as their text."""
    return {name: path.read_text(encoding="utf-8") for name, path in ready_policies().items()}


def saved(version: Version) -> dict[str, str]:
    """Return the policy of each data set as its text."""
    found = frame(version, "select dataset, policy from datasets order by dataset")
    return dict(zip(found["dataset"], found["policy"], strict=True))


@st.cache_data(max_entries=4, show_spinner=False)
def known_names(version: Version) -> dict[str, list[str]]:
    """Return for fields of a policy the names that the data know: metrics, formats, models."""
    formats = frame(version, "select distinct format from traces where format is not null order by format")["format"].tolist()
    models = frame(version, "select distinct model from difficulty order by model")["model"].tolist()
    metrics = metric_names(version)
    return {"name": metrics, "metric": metrics, "formats": formats, "model": ["", *models]}


@st.cache_data(max_entries=16, show_spinner="Trying the policy on a sample")
def preview(version: Version, toml: str) -> Curated:
    """Return what a policy makes of a sample. Raises PolicyError where it does not fit the data."""
    return curating.preview(snapshot(version), policy_of(tomllib.loads(toml)))


@st.cache_data(max_entries=16, show_spinner=False)
def worlds_to_choose(version: Version, toml: str) -> dict[str, int]:
    """Return how many traces of each world there are, the most frequent first, where the policy has to say which it takes.

    Empty where it says so, or there is one. Raises CounterpointError where its sources do not fit the data.
    """
    wanted = policy_of(tomllib.loads(toml))
    found = worlds_of(snapshot(version), wanted) if wanted.worlds is None else {}
    return dict(sorted(found.items(), key=lambda pair: -pair[1])) if len(found) > 1 else {}


@st.cache_data(max_entries=8, show_spinner=False)
def dataset(version: Version, name: str) -> dict[str, Any]:
    """Return the row of a data set with its report as plain values."""
    row: dict[str, Any] = frame(version, "select * from datasets where dataset = $name", {"name": name}).iloc[0].to_dict()
    return row | {"report": msgspec.json.decode(row["report"])}


def data_version(version: Version) -> str:
    """Return what the traces are now; a data set names those it was made of."""
    return snapshot(version).head.data_version


def policy(version: Version, name: str) -> Policy:
    """Return the policy that a data set was made by."""
    return policy_of(tomllib.loads(saved(version)[name]))


def steps(version: Version, dataset: str) -> pd.DataFrame:
    """Return how many traces went from where to where, from `in` to what became of them.

    Columns: place and gate (missing at the start), next_place and next_gate (missing at the end), final (there), n
    """
    return frame(
        version,
        f"""with {_ENDS}, ways as (
            select trace_id, place, gate, lead(place) over way as next_place, lead(gate) over way as next_gate, final,
                row_number() over way as number
            from funnel join ends using (trace_id) where dataset = $dataset and place <= last_place
            window way as (partition by trace_id order by place)
        )
        select null::bigint as place, null as gate, place as next_place, gate as next_gate, null as final, count(*) as n
        from ways where number = 1 group by all
        union all
        select place, gate, next_place, next_gate, case when next_place is null then final end, count(*) from ways group by all
        order by all""",
        {"dataset": dataset},
    )


def gates(version: Version, dataset: str) -> pd.DataFrame:
    """Return what became of the traces at each gate, in the order of gates; entered is the sum of the outcomes.

    Columns: gate, entered, waiting (of those that entered: queued by an earlier gate), passed, masked, returned, queued, dropped,
    threshold (missing where there are several)
    """
    return frame(
        version,
        """with said as (
            select *, last_value(case when outcome in ('queued', 'returned', 'dropped') then outcome end ignore nulls) over way
                as before
            from funnel where dataset = $dataset
            window way as (partition by trace_id order by place rows between unbounded preceding and 1 preceding)
        ) select gate, count(*) as entered, count(*) filter (before = 'queued') as waiting,
            count(*) filter (outcome = 'passed') as passed, count(*) filter (outcome = 'masked') as masked,
            count(*) filter (outcome = 'returned') as returned, count(*) filter (outcome = 'queued') as queued,
            count(*) filter (outcome = 'dropped') as dropped,
            case when min(threshold) = max(threshold) then min(threshold) end as threshold
        from said group by place, gate order by place""",
        {"dataset": dataset},
    )


def passages(version: Version, dataset: str) -> pd.DataFrame:
    """Return what each gate said, in the order of gates, the most frequent first.

    Columns: place, gate, outcome, reason, n, low and high (of the values), threshold (missing where there are several)
    """
    return frame(
        version,
        """select place, gate, outcome, reason, count(*) as n, min(value) as low, max(value) as high,
            case when min(threshold) = max(threshold) then min(threshold) end as threshold
        from funnel where dataset = $dataset group by all order by place, n desc, reason""",
        {"dataset": dataset},
    )


def traces_at(version: Version, dataset: str, place: str, outcome: str, reason: str) -> pd.DataFrame:
    """Return the traces that a gate said something of; without a place, those of which became `outcome` in the end.

    Columns: trace_id, gate, outcome, reason, value, threshold, final, position, weight, and what the trace was
    """
    return frame(
        version,
        """select rows.trace_id, gate, f.outcome, reason, value, threshold, rows.outcome as final, position, weight, format,
            world, passed, task_text
        from dataset_rows as rows join traces using (trace_id)
        left join funnel as f on $place != '' and f.dataset = rows.dataset and f.trace_id = rows.trace_id
            and f.place = try_cast($place as bigint)
        where rows.dataset = $dataset and ($place = '' or f.place is not null) and ($reason = '' or reason = $reason)
            and ($outcome = '' or coalesce(f.outcome, rows.outcome) = $outcome)
        order by value nulls last, trace_id""",
        {"dataset": dataset, "place": place, "outcome": outcome, "reason": reason},
    )


def way(version: Version, dataset: str, trace_id: str) -> pd.DataFrame:
    """Return what each gate said of one trace, in their order: gate, outcome, reason, value, threshold."""
    return frame(
        version,
        """select gate, outcome, reason, value, threshold from funnel
        where dataset = $dataset and trace_id = $id order by place""",
        {"dataset": dataset, "id": trace_id},
    )


def segments(version: Version, dataset: str, trace_id: str) -> pd.DataFrame:
    """Return the parts of one trace that are masked or weigh other than 1: component, event_id, keep, weight, reason."""
    return frame(
        version,
        """select component, nullif(event_id, '') as event_id, keep, weight, reason from dataset_segments
        where dataset = $dataset and trace_id = $id order by component, event_id nulls first""",
        {"dataset": dataset, "id": trace_id},
    )


def worlds(version: Version, dataset: str) -> dict[str, dict[str, int]]:
    """Return how many traces are of each world, before and after."""
    found = frame(
        version,
        """select world, count(*) as before, count(*) filter (rows.outcome in ('kept', 'masked')) as after
        from dataset_rows as rows join traces using (trace_id) where dataset = $dataset group by world order by world""",
        {"dataset": dataset},
    )
    return {when: dict(zip(found["world"], found[when].tolist(), strict=True)) for when in ("before", "after")}


def group_names(version: Version, kind: str) -> dict[str, str]:
    """Return what each `family` or `mode` is called now, by its id; a name that several have goes with the id."""
    if kind not in ("family", "mode"):
        return {}
    table = {"family": "families", "mode": "modes"}[kind]
    found = frame(version, f"select {kind}_id as id, any_value(name) as name from {table} group by id order by id")
    is_alone = ~found["name"].duplicated(keep=False)
    return {i: name if alone else f"{name} {i}" for i, name, alone in zip(found["id"], found["name"], is_alone, strict=True)}


def queue(version: Version, dataset: str) -> pd.DataFrame:
    """Return the traces of a data set that wait for a person, by gate and value: trace_id, gate, reason, value, threshold."""
    return frame(
        version,
        """select trace_id, gate, reason, value, threshold from dataset_rows as rows join funnel using (dataset, trace_id)
        where dataset = $dataset and rows.outcome = 'queued' and funnel.outcome = 'queued'
        qualify row_number() over (partition by trace_id order by place desc) = 1
        order by place, value nulls last, trace_id""",
        {"dataset": dataset},
    )


@st.cache_data(max_entries=8, show_spinner=False)
def reviews(version: Version) -> list[Review]:
    """Return what people decided about traces, the newest first."""
    found = curating.reviews_of(snapshot(version)).values()
    return sorted(found, key=lambda review: (review.made_at, review.trace_id), reverse=True)


def spoken(version: Version, trace_id: str, level: str) -> dict[str, Any] | None:
    """Return the last residual of the level that speaks for a trace (`whole`: as the gate chooses); None without one."""
    found: list[dict[str, Any]] = frame(
        version,
        """select level, residual, residual_norm, residual_debiased, summary, projection, minimal_repairs from residuals
        where trace_id = $id and is_last and residual is not null and ($level = 'whole' or level = $level)
        order by level = 'team' desc, residual_norm desc nulls last, level limit 1""",
        {"id": trace_id, "level": level},
    ).to_dict("records")
    return found[0] if found else None


def components(version: Version, trace_id: str, level: str) -> pd.DataFrame:
    """Return the components of a trace, those the squared residual comes from most on top: component, n_events, share."""
    return frame(
        version,
        """with parts as (
            select component, sum(energy) as energy from attribution where trace_id = $id and level = $level and is_last
            group by component
        ), acts as (select component, count(event_id) as n_events from agents left join events using (trace_id, agent_id)
            where trace_id = $id group by component)
        select component, n_events, energy / nullif(sum(energy) over (), 0) as share
        from acts left join parts using (component) order by energy desc nulls last, component""",
        {"id": trace_id, "level": level},
    )


@st.cache_data(max_entries=16, show_spinner=False)
def moved(version: Version, trace_id: str, level: str, projection: str) -> pd.DataFrame:
    """Return the standing quotes of a trace, those first that the nearest coherent quotes differ from most.

    Columns: component, proposition, p, coherent (what it would be), event_id
    """
    coherent: dict[str, float | None] = msgspec.json.decode(projection or "{}")
    claims, _ = claims_in_use(version, trace_id)
    mine = claims if level == "team" else claims[claims["level"] == level]
    mine = mine[~mine["is_placeholder"] & mine["p"].between(0, 1)]
    last = mine.sort_values("turn", na_position="first", kind="stable").drop_duplicates(["component", "proposition"], keep="last")
    names = zip(last["component"], last["proposition"], strict=True)
    aims = [coherent.get(f"{component}:{proposition}", coherent.get(proposition)) for component, proposition in names]
    rows = last[["component", "proposition", "p", "event_id"]].assign(coherent=np.array(aims, dtype=np.float64))
    rows = rows[rows["coherent"].notna()]
    away = (rows["p"] - rows["coherent"]).abs().round(9)
    return rows.loc[away.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)
