"""What pages read of counterfactual studies, cached: studies, effects, the credit of events, and runs made again on demand.

Hides the tables, which rows say what a decision is worth, and how a pair is made a second time.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from analysis.counterfactual.credit import fidelity as rank_correlation
from analysis.counterfactual.effects import arriving, better_of
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.observed import observed_effects, stated_factors
from analysis.counterfactual.pairing import Pair, Replayer, pair_seed, q_of
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.sandbox import open_sandbox
from analysis.counterfactual.scheduled import what_if
from analysis.counterfactual.study import CONFIRM, SCREEN
from analysis.estimation import Estimate
from analysis.model import Trace
from analysis.orchestration.alignment import Alignment, align, differences
from analysis.orchestration.timing import timing
from analysis.streams import stream
from analysis.workspace import listing
from analysis.workspace.filters import where
from dashboard import swimlane
from dashboard.figures.effects import HELPED, HURT, NEUTRAL, Verdict, color_of, verdict_of
from dashboard.loading import Version, frame, snapshot, times, trace

PASSED = "passed"
_FIRST = (PASSED, "tests_rate", "score", "q_work", "q_parallel_self", "tokens", "makespan_s")
OBSERVED = (PASSED, "score", "q_work", "q_orchestration", "q_parallel_self", "n_steps", "n_messages", "tokens", "makespan_s")
#: Of each change the fresh pairs where there are any, else those of the screening.
_FRESHEST = """select * from {effects} where delta_q is not null
    qualify row_number() over (partition by study, trace_id, event_id, operator, parameters, metric, world, evidence
        order by seed_block = 'confirm' desc) = 1"""


class Counterfactual(NamedTuple):
    """A run as it was, the same with one decision changed, how they lie side by side, and what to know of them."""

    original: Trace
    changed: Trace
    alignment: Alignment
    places: pd.DataFrame
    metrics: pd.DataFrame
    notes: tuple[str, ...]


def studies(version: Version) -> pd.DataFrame:
    """Return the studies without their cells: sound ones first, and of these those that executed most."""
    return frame(version, "select * exclude (cells) from effect_runs order by is_sound desc, cost_tokens desc, study")


def replayable(version: Version, filter: str = "") -> pd.DataFrame:
    """Return for each format and world how many traces fit a filter, and how many of them can be executed again."""
    condition, parameters = where(filter, metrics=listing.metric_names(snapshot(version)))
    query = f"""select format, world, count(*) as n_traces,
            count(*) filter (world = 'simulated' and json_exists(extra, '$.run.plan')
                or world = 'live' and json_exists(extra, '$.run.answers')) as n_executable
        from traces where {condition} group by format, world order by n_executable desc, n_traces desc, format"""
    return frame(version, query, parameters)


@st.cache_data(max_entries=8, show_spinner=False)
def cells(version: Version, study: str) -> pd.DataFrame:
    """Return what each operator did at each kind of event to each metric, as `figures.effects.forest` draws it."""
    stored = frame(version, "select cells from effect_runs where study = $study", {"study": study})["cells"]
    rows = pd.DataFrame([row for text in stored for row in json.loads(text)])
    if rows.empty:
        return rows
    if "q_value" not in rows:  # of studies by older versions, which corrected nothing here
        rows["q_value"] = None
    rows["label"] = rows["operator"] + " at " + rows["event_kind"]
    rows["key"] = [list(key) for key in zip(rows["operator"], rows["event_kind"], strict=True)]
    return rows.assign(better=rows["metric"].map(better_of))


def metric_names(rows: pd.DataFrame) -> list[str]:
    """Return the metrics of rows with a credit: those that some change moved before the others, the integrated pass first."""
    moved = rows.assign(moved=rows["credit"].fillna(0) != 0).groupby("metric")["moved"].any()
    place = {name: n for n, name in enumerate(_FIRST)}
    return sorted(moved.index, key=lambda name: (not moved[name], place.get(name, len(place)), name))


def effect_rows(version: Version, study: str, metric: str) -> pd.DataFrame:
    """Return the effects of a study on a metric, the confirmed and the largest first, with what each decision taken did."""
    rows = frame(
        version,
        """select * from effects where study = $study and metric = $metric and delta_q is not null
        order by confirmed desc, seed_block = 'confirm' desc, abs(delta_q) desc, trace_id, event_id, operator, parameters""",
        {"study": study, "metric": metric},
    )
    better = better_of(metric)
    states = rows["seed_block"].map({SCREEN: "screened", CONFIRM: "not confirmed"}).fillna("exact")
    states = states.mask(rows["confirmed"], "confirmed")
    verdicts = [verdict_of(credit, better) for credit in rows["credit"]]
    return rows.assign(better=better, verdict=verdicts, state=states, how=rows["parameters"].map(_how))


def data_set_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `effect_rows` as the counterfactual data set that is taken away."""
    names = ["trace_id", "task", "event_id", "event_kind", "operator", "parameters", "metric", "better", "delta_q", "credit", "n",
             "low", "high", "confirmed", "seed_block", "evidence", "world"]  # fmt: skip
    return rows[names]


def traces_of(version: Version, study: str, metric: str) -> pd.DataFrame:
    """Return the traces of a study, those with the most confirmed and the largest effects first."""
    return frame(
        version,
        f"""select trace_id, any_value(task) as task, count(distinct event_id) as n_events, count(*) as n_changes,
            count(*) filter (confirmed) as n_confirmed, max(abs(delta_q)) as largest
        from ({_FRESHEST.format(effects="effects")}) where study = $study and metric = $metric
        group by trace_id order by n_confirmed desc, largest desc, trace_id""",
        {"study": study, "metric": metric},
    )


@st.cache_data(max_entries=32, show_spinner=False)
def credits(version: Version, trace_id: str) -> pd.DataFrame:
    """Return the credit of each event of a trace, by study and metric: the mean over the changes tried there, by their pairs.

    Studies whose controls failed give none. Columns study, metric, event_id, credit, n pairs, n_changes, confirmed (one of
    them), evidence, world, better, verdict.
    """
    rows = frame(
        version,
        f"""select study, metric, event_id, sum(credit * n) / sum(n) as credit, sum(n)::bigint as n, count(*) as n_changes,
            bool_or(confirmed) as confirmed, evidence, world
        from ({_FRESHEST.format(effects="sound_effects")}) where trace_id = $id group by all order by study, metric, event_id""",
        {"id": trace_id},
    )
    better = rows["metric"].map(better_of)
    return rows.assign(better=better, verdict=[verdict_of(*pair) for pair in zip(rows["credit"], better, strict=True)])


def credit_words(row: Any) -> str:
    """Return a row of `credits` as a sentence without its end."""
    tried = f"{row.n_changes} change{'' if row.n_changes == 1 else 's'} tried, {row.n:,} pair{'' if row.n == 1 else 's'}"
    sure = ", confirmed" if row.confirmed else ""
    return f"credit {row.credit:+.4g} in {row.metric}: {row.verdict} ({tried}{sure}; {row.evidence}, study {row.study})"


@st.cache_resource(max_entries=16, show_spinner=False)
def credit_lanes(version: Version, trace_id: str, study: str, metric: str) -> bytes:
    """Return the drawing of one trace's lanes, coloured by the credit of its events."""
    rows = credits(version, trace_id)
    mine = rows[(rows["study"] == study) & (rows["metric"] == metric)]
    most = mine["credit"].abs().max() or 1.0
    found = {
        row.event_id: (color_of(row.verdict, abs(row.credit) / most), credit_words(row)) for row in mine.itertuples(index=False)
    }
    is_judged = better_of(metric) != "neither"
    looks: dict[Verdict, str] = {"helped": HELPED, "hurt": HURT, "no effect": NEUTRAL} if is_judged else {"not judged": NEUTRAL}
    timed = times(version, trace_id)
    drawn = swimlane.rows(
        trace(version, trace_id), critical=timed.critical_path, drag_s=timed.drag_s,
        credit=swimlane.Credit(metric, found, {color: word for word, color in looks.items()}),
    )  # fmt: skip
    return swimlane.payload(drawn)


@st.cache_resource(max_entries=8, show_spinner="Making the pair again")
def counterfactual(version: Version, change: tuple[str, str, str, str], block: str, seed: int, number: int) -> Counterfactual:
    """Return one pair of runs, made again: executed where that can be, else by the recorded schedule and candidates.

    Parameters
    ----------
    change : trace id, event id, operator, parameters as JSON
    block, seed, number : of the pair in its study; without meaning for what is not executed

    Raises
    ------
    ReplayError
        Where it cannot be made, with the reason.
    SandboxError
        Where programs cannot be run here.
    """
    parent = trace(version, change[0])
    one = Intervention(change[2], change[1], json.loads(change[3]))
    notes: tuple[str, ...]
    if block in (SCREEN, CONFIRM):
        with open_sandbox() as sandbox:
            arms = Replayer(parent, Judge(sandbox)).arms(one, pair_seed(seed, block, number, parent))
        original, changed, q = arms.control, arms.counterfactual, (q_of(arms.control), q_of(arms.counterfactual))
        notes = ("Neither run differs anywhere from the other.",) if not arms.changed.events else ()
    else:
        replayed = what_if(parent, one, timed=times(version, change[0]))
        original, changed, q = parent, replayed.trace, (replayed.q, replayed.q_counterfactual)
        n_later = len(replayed.downstream)
        later = f"Of the other events {n_later:,} {'begins' if n_later == 1 else 'begin'} or end otherwise" if n_later else ""
        notes = tuple([f"{note[:1].upper()}{note[1:]}." for note in (*replayed.notes, later) if note])
    rows = [(name, q[0].get(name), q[1].get(name), better_of(name)) for name in dict.fromkeys((*q[0], *q[1]))]
    metrics = pd.DataFrame(rows, columns=["name", "value_a", "value_b", "better"])
    metrics["difference"] = metrics["value_b"] - metrics["value_a"]
    alignment = align(original, changed)
    places = differences(alignment, timing(original), timing(changed))
    return Counterfactual(original, changed, alignment, places, metrics, notes)


@st.cache_data(max_entries=8, show_spinner=False)
def fidelity(version: Version, study: str, metric: str) -> tuple[Estimate | None, int]:
    """Return how well the screened credit orders the decisions that were confirmed as fresh pairs do, and how many they are."""
    rows = effect_rows(version, study, metric)
    keys = ["trace_id", "event_id", "operator", "parameters", "world"]
    sides = [rows[rows["seed_block"] == block] for block in (SCREEN, CONFIRM)]
    both = sides[0].merge(sides[1], on=keys, suffixes=("", "_fresh")).sort_values(keys)
    rng = stream(0, "fidelity", study, metric)
    return rank_correlation(both["credit"].tolist(), both["credit_fresh"].tolist(), both["task"].tolist(), rng=rng), len(both)


@st.cache_data(max_entries=4, show_spinner="Pairing runs of one task")
def observed(version: Version, format: str) -> pd.DataFrame:
    """Return what goes along with each stated factor of the runs of a format, as `figures.effects.forest` draws it."""
    measured = ", ".join([f"max(value) filter (name = '{name}') as {name}" for name in OBSERVED[2:]])
    runs = frame(
        version,
        f"""with measured as (select trace_id, {measured} from metrics group by trace_id)
        select task_id as task, world, condition, passed::int::double as passed, score, measured.* exclude trace_id
        from traces left join measured using (trace_id)
        where format = $format and condition is not null and task_id is not null order by trace_id""",
        {"format": format},
    )
    factors = stated_factors(runs["condition"])
    metrics = [name for name in OBSERVED if runs[name].notna().any()]
    rows = observed_effects(runs.join(factors), factors=list(factors), metrics=metrics)
    rows = rows[rows["n"] > 0].reset_index(drop=True)
    keys = rows[["factor", "level_a", "level_b"]].to_numpy().tolist()
    return rows.assign(key=keys, label=[f"{factor}: {a} → {b}" for factor, a, b in keys])


def blocks(version: Version, study: str) -> pd.DataFrame:
    """Return for each block of seeds how many changes had how many pairs, and what they cost."""
    return frame(
        version,
        """with changes as (
            select seed_block, evidence, world, max(n) as n, max(cost_tokens) as cost_tokens from effects where study = $study
            group by seed_block, evidence, world, trace_id, event_id, operator, parameters
        )
        select seed_block, evidence, world, count(*) as n_changes, sum(n)::bigint as n_pairs, min(n) as least, max(n) as most,
            sum(cost_tokens)::bigint as cost_tokens from changes group by all order by seed_block desc, evidence, world""",
        {"study": study},
    )


def formats_with_factors(version: Version) -> list[str]:
    """Return the formats whose runs state under what they were made, such as `topology=tree`."""
    query = "select format from traces where condition like '%=%' and task_id is not null group by format order by count(*) desc"
    return [str(name) for name in frame(version, query)["format"]]


def _how(parameters: str) -> str:
    """Say the parameters of a change, `{}` as nothing."""
    said = json.loads(parameters)
    return ", ".join([f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in said.items()])


def arriving_by_task(pairs: Sequence[Pair]) -> dict[str, pd.DataFrame]:
    """Return by operator what is known of its effect on the integrated pass, as `arriving` gives it, one value a task.

    A task's value is the mean over its decisions in the first round of a uniform screening, entered when the next task begins:
    so all values have the same mean, and none is entered twice.
    """
    first = [pair for pair in pairs if pair.seed_block == SCREEN and pair.number == 0]
    groups = [(task, list(group)) for task, group in itertools.groupby(first, key=lambda pair: pair.task)]
    is_over = any(pair.seed_block != SCREEN or pair.number for pair in pairs)
    values: dict[str, dict[str, float]] = {}
    for task, group in groups if is_over else groups[:-1]:
        for operator in sorted({pair.operator for pair in group}):
            deltas = [delta for pair in group if pair.operator == operator and (delta := _delta(pair)) is not None]
            if deltas:
                values.setdefault(operator, {}).setdefault(task, sum(deltas) / len(deltas))
    return {operator: arriving(by_task.values()) for operator, by_task in sorted(values.items())}


def arriving_by_decision(pairs: Sequence[Pair]) -> pd.DataFrame:
    """Return what is known of each decision under confirmation after its pairs so far, the surest first."""
    streams: dict[tuple[str, ...], list[float]] = {}
    for pair in pairs:
        if pair.seed_block == CONFIRM and (delta := _delta(pair)) is not None:
            streams.setdefault((pair.trace_id, pair.event_id, pair.operator, pair.parameters), []).append(delta)
    names = ["trace_id", "event_id", "operator", "parameters"]
    rows = [dict(zip(names, key, strict=True)) | arriving(values).iloc[-1].to_dict() for key, values in streams.items()]
    return pd.DataFrame(rows, columns=[*names, "n", "delta_q", "low", "high", "log_e", "is_found"]).sort_values(
        ["log_e", *names], ascending=[False, True, True, True, True], ignore_index=True
    )


def _delta(pair: Pair) -> float | None:
    q, other = pair.q.get(PASSED), pair.q_counterfactual.get(PASSED)
    return None if q is None or other is None else other - q
