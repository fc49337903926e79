"""What a curation judges, read from a version of a workspace: one row a trace.

Decides which level of claims speaks for a trace, what counts as hedging, and when a policy does not fit the data. Hidden here:
the queries; of traces that the policy does not take nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from analysis.coherence.cliques import Clique, Quote
from analysis.coherence.projection import POSITIVE
from analysis.coherence.relations import parse
from analysis.counterfactual.effects import better_of
from analysis.counterfactual.study import SCREEN
from analysis.curation.gates import Coherence, Credit, Labels, Measure, column_of
from analysis.curation.policy import Policy
from analysis.errors import PolicyError, nearest
from analysis.orchestration.metrics import METRICS
from analysis.workspace import Snapshot
from analysis.workspace.filters import where
from analysis.workspace.listing import metric_names

if TYPE_CHECKING:
    import pandas as pd

_MAX_SHAPES = 5_000  # kinds of clique whose worlds are listed; of the rarer ones claims are compared with 1/2 alone
#: Columns that every frame has, and where they stand in the query.
_COLUMNS = {
    "trace_id": "chosen.trace_id", "task_id": "task_id", "format": "format", "mode": "mode", "family": "family_name",
    "stage": "stage", "passed": "passed::double", "n_agents": "n_agents::double", "n_events": "n_events::double",
    "is_tied": "spoken.trace_id is not null", "residual": "residual", "residual_norm": "residual_norm",
    "residual_max": "residual_max", "residual_debiased": "residual_debiased", "coupling_bits": "coupling_bits",
    "sharpness": "sharpness", "d_req": "d_req", "d_orch": "coalesce(hard.d_orch, measured.d_orch)", "joint": "joint",
    "agreement": "agreement",
}  # fmt: skip
_ALWAYS = ("d_orch", "q_orchestration")
_HARD = ("d_req", "joint")


class Scope(NamedTuple):
    """The traces that a policy takes, as two tables at the head of a query, and the parameters of that text.

    `chosen` holds their ids; `spoken` the last residual of the level that speaks for each, where its claims are tied.
    """

    sql: str
    parameters: dict[str, Any]


def scope(snapshot: Snapshot, policy: Policy, *, n: int | None = None) -> Scope:
    """Return the traces that a policy takes, or `n` of them, drawn by the hash of their ids.

    Raises
    ------
    PolicyError
        If the data hold several worlds and the policy does not say which, or it names a world or format that is not there.
    """
    condition, parameters = _sources(snapshot, policy)
    worlds = _worlds(policy, worlds_of(snapshot, policy))
    levels = [gate.level for gate in policy.gates if isinstance(gate, Coherence) and gate.level != "whole"]
    condition, parameters = f"({condition}) and world in (select unnest($worlds))", parameters | {"worlds": worlds}
    if n is not None:
        drawn = snapshot.sql(
            f"select trace_id from traces where {condition} order by hash(trace_id), trace_id limit {n}", parameters
        )
        condition, parameters = "trace_id in (select unnest($ids))", {"ids": drawn["trace_id"].to_pylist()}
    of_level = "and level = $level" if levels else ""
    text = f"""chosen as materialized (
        select trace_id from traces where {condition}
    ), spoken as materialized (
        select r.* from residuals as r semi join chosen using (trace_id)
        where is_last and residual is not null and coalesce(residual_max > {POSITIVE}, true) {of_level}
        qualify row_number() over (partition by trace_id order by level = 'team' desc, residual_norm desc nulls last, level) = 1
    )"""
    return Scope(text, parameters | ({"level": levels[0]} if levels else {}))


def worlds_of(snapshot: Snapshot, policy: Policy) -> dict[str, int]:
    """Return how many traces of each world the sources of a policy hold, whichever worlds it takes. Raises PolicyError."""
    condition, parameters = _sources(snapshot, policy)
    found = snapshot.sql(f"select world, count(*) as n from traces where {condition} group by world order by world", parameters)
    return dict(zip(*found.to_pydict().values(), strict=True))


def frame_of(snapshot: Snapshot, policy: Policy, taken: Scope) -> pd.DataFrame:
    """Return the frame of `curate`: one row for each trace that is taken, and a column for each gate.

    Raises
    ------
    PolicyError
        If a gate goes by a metric that does not exist, or the policy needs difficulties that are not there.
    """
    names = _measured(snapshot, policy)
    credits = {column_of(gate): gate for gate in policy.gates if isinstance(gate, Credit)}
    has_labels = any(isinstance(gate, Labels) for gate in policy.gates)
    rates = _base_rates(snapshot, taken)
    parameters = taken.parameters | {"names": names, "model": _model(snapshot, policy), **rates}
    for n, gate in enumerate(credits.values()):
        parameters |= {f"metric{n}": gate.metric, f"evidence{n}": list(gate.evidence)}
    measured = ", ".join(f"max(value) filter (name = $names[{n + 1}]) as {_quoted(name)}" for n, name in enumerate(names))
    earned = ", ".join([_credit(n, column, gate) for n, (column, gate) in enumerate(credits.items())] or ["null as nothing"])
    columns = _COLUMNS | {name: f"measured.{_quoted(name)}" for name in names if name not in _COLUMNS}
    columns |= {name: f"earned.{_quoted(name)}" for name in credits}
    found = snapshot.sql(
        f"""with {taken.sql}, {_SAID}, {_AGREED if has_labels else _NOT_ASKED}, measured as (
            select trace_id, {measured} from measures semi join chosen using (trace_id)
            where name in (select unnest($names)) group by trace_id
        ), earned as (
            select trace_id, {earned} from sound_effects semi join chosen using (trace_id)
            where confirmed and seed_block != '{SCREEN}' group by trace_id
        ), placed as (
            select trace_id, arg_min(mode_id, (source != 'residual', mode_id)) as mode from mode_members group by trace_id
        ), grouped as (select trace_id, min(family_id) as family_name from family_members group by trace_id
        ), hard as (select task_id as task, stage, d_req, d_orch, joint from difficulty where model = $model)
        select {", ".join(f"{sql} as {_quoted(name)}" for name, sql in columns.items())}
        from chosen join traces using (trace_id) left join spoken using (trace_id) left join sharp using (trace_id)
            left join agreed using (trace_id) left join measured using (trace_id) left join earned using (trace_id)
            left join placed using (trace_id) left join grouped using (trace_id) left join hard on traces.task_id = hard.task
        order by chosen.trace_id""",
        parameters,
    ).to_pandas()
    numbers = [
        name for name in found.columns if name not in ("trace_id", "task_id", "format", "mode", "family", "stage", "is_tied")
    ]
    found[numbers] = found[numbers].astype(np.float64)
    return found


#: How far the claims of a trace lie from 1/2, and from their share of the worlds that its relations admit: the smaller mean.
_SAID = """said as (
    select trace_id, level, proposition, p from claims anti join extracted_claims as e on claims.trace_id = e.trace_id
        and claims.claim_id = e.replaces where not coalesce(is_placeholder, false) and p between 0 and 1
    union all
    select trace_id, level, proposition, p from extracted_claims where not coalesce(is_placeholder, false) and p between 0 and 1
), rates as (
    select unnest($propositions) as propositions, unnest($relations) as relations, unnest($proposition) as proposition,
        unnest($rate) as rate
), expected as (
    select cliques.trace_id, rates.proposition, any_value(rate) as rate from cliques join spoken using (trace_id, level)
    join rates on cliques.propositions = rates.propositions and cliques.relations = rates.relations group by all
), sharp as (
    select said.trace_id, least(avg(abs(p - 0.5)), avg(abs(p - coalesce(rate, 0.5)))) as sharpness
    from said join spoken on said.trace_id = spoken.trace_id and spoken.level in (said.level, 'team')
    left join expected on said.trace_id = expected.trace_id and said.proposition = expected.proposition group by said.trace_id
)"""

#: The share of pairs of annotators who blame the same agent; a verdict is the root cause, or the only label that names an agent.
_AGREED = """blames as (
    select trace_id, annotator, case when count(*) = 1 then any_value(lower(agent_id))
        when count(*) filter (is_root_cause) = 1 then any_value(lower(agent_id)) filter (is_root_cause) end as agent
    from labels semi join chosen using (trace_id) where agent_id is not null group by all
), agreed as (
    select a.trace_id, avg((a.agent = b.agent)::int) as agreement from blames as a join blames as b
    on a.trace_id = b.trace_id and a.annotator < b.annotator where a.agent is not null and b.agent is not null group by all
)"""

_NOT_ASKED = "agreed as (select '' as trace_id, null::double as agreement limit 0)"


def _sources(snapshot: Snapshot, policy: Policy) -> tuple[str, dict[str, Any]]:
    """The condition on `traces` that the sources of a policy state, and its parameters."""
    condition, parameters = where(policy.sources.filter, metrics=metric_names(snapshot))
    if not policy.sources.formats:
        return condition, parameters
    known = snapshot.sql("select distinct format from traces order by format")["format"].to_pylist()
    if unknown := sorted(set(policy.sources.formats) - set(known)):
        got, hint = unknown[0], nearest(unknown[0], known)
        raise PolicyError("policy: sources.formats", "no trace has this format", got=got, expected=", ".join(known), hint=hint)
    formats = list(policy.sources.formats)
    return f"({condition}) and format in (select unnest($formats))", parameters | {"formats": formats}


def _worlds(policy: Policy, there: dict[str, int]) -> list[str]:
    if policy.worlds is None:
        if len(there) > 1:
            got = ", ".join(f"{world} ({n:,} traces)" for world, n in there.items())
            most = max(there, key=lambda world: there[world])
            hint = f'write worlds = ["{most}"] at the top of the policy, or name several to mix them'
            raise PolicyError(
                "policy: worlds", "the data hold several worlds, and the policy does not say which", got=got, hint=hint
            )
        return list(there)
    if missing := [world for world in policy.worlds if there and world not in there]:
        raise PolicyError("policy: worlds", "no trace of the sources is of this world", got=missing[0], expected=", ".join(there))
    return list(policy.worlds)


def _measured(snapshot: Snapshot, policy: Policy) -> list[str]:
    """The metrics that the frame has a column of."""
    wanted = [gate.name for gate in policy.gates if isinstance(gate, Measure)]
    has_value = set(metric_names(snapshot))
    for name in wanted:
        if name not in has_value and name not in METRICS and name not in _HARD:
            hint = nearest(name, [*has_value, *METRICS], "`counterpoint list --json` shows the metrics")
            raise PolicyError(f"policy: gates measure {name}", "no metric has this name", got=name, hint=hint)
    return sorted({*_ALWAYS, *(name for name in wanted if name not in _COLUMNS)})


def _model(snapshot: Snapshot, policy: Policy) -> str:
    """The model whose difficulties count; empty where there is none and none is needed."""
    models: list[str] = snapshot.sql("select distinct model from difficulty order by model")["model"].to_pylist()
    staging, score = policy.curriculum, policy.order.score
    needs = "curriculum" if staging.stages or staging.shares else f"order.score {score}" if score in _HARD else ""
    if staging.model and staging.model not in models:
        expected = ", ".join(models) or "none is known"
        problem, hint = "nothing is known of this model or condition", nearest(staging.model, models)
        raise PolicyError("policy: curriculum.model", problem, got=staging.model, expected=expected, hint=hint)
    if needs and not models:
        hint = f"run `counterpoint curriculum`, or take {needs} out of the policy"
        raise PolicyError(f"policy: {needs}", "no task has a stage or a difficulty yet", hint=hint)
    if needs and not staging.model and len(models) > 1:
        problem = "several models or conditions have difficulties"
        raise PolicyError("policy: curriculum.model", problem, got=", ".join(models), hint="name one")
    return staging.model or (models[0] if len(models) == 1 else "")


def _credit(n: int, column: str, gate: Credit) -> str:
    """The mean credit of the confirmed decisions of a trace, turned so that more is better."""
    better = better_of(gate.metric)
    if better == "neither":
        good = [name for name in ("passed", *METRICS) if better_of(name) != "neither"]
        problem, hint = "neither more nor less of this metric is better", nearest(gate.metric, good)
        expected = f"one of {', '.join(good)}"
        raise PolicyError(f"policy: gates {column}", problem, got=gate.metric, expected=expected, hint=hint)
    sign = "" if better == "higher" else "-"
    return f"avg({sign}credit) filter (metric = $metric{n} and evidence in (select unnest($evidence{n}))) as {_quoted(column)}"


def _base_rates(snapshot: Snapshot, taken: Scope) -> dict[str, list[Any]]:
    """Of each proposition of each kind of clique the share of the admitted worlds in which it is true."""
    shapes = snapshot.sql(
        f"""with {taken.sql} select propositions, relations, count(*) as n from cliques join spoken using (trace_id, level)
        group by all order by n desc, propositions, relations limit {_MAX_SHAPES}""",
        taken.parameters,
    ).to_pylist()
    found: dict[str, list[Any]] = {"propositions": [], "relations": [], "proposition": [], "rate": []}
    for shape in shapes:
        for proposition, rate in _rates(msgspec.json.decode(shape["propositions"]), msgspec.json.decode(shape["relations"])):
            for name, value in (("proposition", proposition), ("rate", rate)):
                found[name].append(value)
            for name in ("propositions", "relations"):
                found[name].append(shape[name])
    return found


def _rates(propositions: Sequence[str], relations: Sequence[str]) -> Iterator[tuple[str, float]]:
    clique = Clique([Quote("", proposition, 0.5) for proposition in propositions], [parse(text) for text in relations])
    points = clique.points
    if points is not None:
        yield from zip(propositions, points.mean(axis=0).round(9).tolist(), strict=True)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
