"""What a workspace knows of the traces that are exported: a line for each at once, the rest a few thousand at a time.

Decides which credit an event has (its strongest evidence alone, the mean of its alternatives, confirmed ones by the seeds that
confirmed them) and which level of claims speaks for a trace. Hidden here: the queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis.counterfactual.study import SCREEN
from analysis.curation.curriculum.attempts import TRACE_MODELS
from analysis.training.labelling import Credit, Facts, Segment
from analysis.workspace import Snapshot

#: How a credit and its error are made, for the manifest.
CREDIT_RULE = (
    "-delta_q of one metric: of the strongest evidence (interventional, simulated, observational), the mean of the alternatives "
    "by n; confirmed decisions by the seeds that confirmed them; credit_se from the 95 % interval, absent without one"
)
_AT_ONCE = 10_000  # of joins over more traces the memory would grow
_EVIDENCE = ("interventional", "simulated", "observational")
_Z = 1.959963984540054

#: Tables that rows are made of besides the traces, and where their content is hashed from.
TABLES = ("residuals", "attribution", "metrics", "difficulty", "family_members", "mode_members")


#: Of each trace that is exported its place in the order, what curation says of it as a whole, and its split.
WANTED = pa.schema(
    {"trace_id": pa.string(), "order_key": pa.int64(), "weight": pa.float64()}
    | dict.fromkeys(("stage", "group", "split"), pa.string())
)


class Known:
    """What a workspace knows of some traces."""

    def __init__(self, pinned: Snapshot, newest: Snapshot, wanted: pa.Table, *, dataset: str | None, metric: str) -> None:
        """Read what each trace is: `pinned` is the version the data set was made from, `newest` holds the data set.

        Parameters
        ----------
        wanted : the traces, with the columns of `WANTED`
        metric : whose effects give credit
        """
        self._pinned, self._newest, self._dataset, self._metric = pinned, newest, dataset, metric
        parts = wanted["trace_id"].combine_chunks()
        each = pa.concat_tables(
            [pinned.sql(_OF_TRACE, {"ids": parts[n : n + _AT_ONCE].to_pylist()}) for n in range(0, len(parts), _AT_ONCE)]
        )
        mine = wanted.take(pc.index_in(each["trace_id"], value_set=wanted["trace_id"]))
        self._each = pa.table({name: table[name] for table in (each, mine) for name in table.column_names})

    def facts(self, trace_ids: Sequence[str]) -> dict[str, Facts]:
        """Return what is known of each of these."""
        ids = {"ids": list(trace_ids)}
        shares = _grouped(self._pinned, _SHARES, ids)
        curated = ids | {"dataset": self._dataset}
        segments = _grouped(self._newest, _SEGMENTS, curated) if self._dataset is not None else {}
        effects = _grouped(self._newest, _EFFECTS, ids | {"metric": self._metric, "screen": SCREEN})
        places = pc.index_in(pa.array(ids["ids"], pa.string()), value_set=self._each["trace_id"])
        found = {}
        for row in self._each.take(places).to_pylist():
            name, source = row.pop("trace_id"), sha256(row.pop("digest").encode()).hexdigest()
            found[name] = Facts(
                **row, source_sha256=source, residual_share=_shares(shares.get(name, ())),
                segments=tuple([Segment(s["component"], s["event_id"] or "", s["keep"], s["weight"])
                                for s in segments.get(name, ())]),
                credits=credits_of(effects.get(name, ())),
            )  # fmt: skip
        return found


def credits_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Credit]:
    """Return the credit of each event from rows of the table `effects` of one trace and metric.

    >>> row = {"event_id": "e1", "delta_q": -0.5, "low": None, "high": None, "n": 4, "evidence": "simulated"}
    >>> credits_of([row, row | {"delta_q": 0.0, "n": 12}, row | {"evidence": "observational", "delta_q": 1.0}])
    {'e1': Credit(value=0.125, se=None, n=16, method='simulated')}
    """
    by_event: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_event.setdefault(row["event_id"], []).append(row)
    found = {}
    for event_id, alternatives in by_event.items():
        evidence = min((row["evidence"] for row in alternatives), key=_EVIDENCE.index)
        mine = [row for row in alternatives if row["evidence"] == evidence]
        n = sum(row["n"] for row in mine)
        value = 0.0 - math.fsum([row["n"] * row["delta_q"] for row in mine]) / n
        found[event_id] = Credit(value, _error(mine, n), n, evidence)
    return found


def digests(snapshot: Snapshot, tables: Sequence[str], dataset: str | None = None) -> dict[str, str]:
    """Return a hash of the rows of each table, whatever their order; of tables of data sets, of the rows of one of them."""
    mine, parameters = ("where dataset = $dataset", {"dataset": dataset}) if dataset is not None else ("", {})
    found = {}
    for table in tables:
        query = (
            f"select count(*) as n, bit_xor(md5_number(r::varchar))::varchar as digest from (select * from {table} {mine}) as r"
        )
        row = _rows(snapshot, query, parameters)[0]
        found[table] = f"{row['n']} rows, {int(row['digest'] or 0) % (1 << 128):032x}"
    return found


_OF_TRACE = f"""
    with chosen as (select unnest($ids) as trace_id),
    traces as (select * from main.traces semi join chosen using (trace_id)),
    agents as (select * from main.agents semi join chosen using (trace_id)), spoken as (
        select trace_id, residual_norm from residuals semi join chosen using (trace_id) where is_last and residual is not null
        qualify row_number() over (partition by trace_id order by level = 'team' desc, residual_norm desc nulls last, level) = 1
    ), by_whom as ({TRACE_MODELS}), hard as (
        select task_id, model, d_req, d_orch from difficulty
        qualify row_number() over (partition by task_id, model order by n desc nulls last, source) = 1
    ), measured as (
        select trace_id, max(value) as d_orch from metrics semi join chosen using (trace_id) where name = 'd_orch' group by all
    ), kin as (select trace_id, min(family_id) as family from family_members semi join chosen using (trace_id) group by all
    ), failed as (select trace_id, min(mode_id) as failure_mode from mode_members semi join chosen using (trace_id) group by all)
    select trace_id, digest, coalesce(task_id, '') as task_id, residual_norm, d_req,
        coalesce(measured.d_orch, hard.d_orch) as d_orch, kin.family, failure_mode
    from traces left join spoken using (trace_id)
        left join by_whom using (trace_id) left join hard using (task_id, model)
        left join measured using (trace_id) left join kin using (trace_id) left join failed using (trace_id)
"""
_SHARES = """
    with chosen as (select unnest($ids) as trace_id), spoken as (
        select trace_id, level from residuals semi join chosen using (trace_id) where is_last and residual is not null
        qualify row_number() over (partition by trace_id order by level = 'team' desc, residual_norm desc nulls last, level) = 1
    )
    select trace_id, component, energy from attribution join spoken using (trace_id, level) where is_last order by all
"""
_SEGMENTS = """
    select trace_id, component, event_id, keep, weight from dataset_segments
    where dataset = $dataset and trace_id in (select unnest($ids)) order by all
"""
_EFFECTS = """
    select trace_id, event_id, delta_q, low, high, n, evidence from sound_effects
    where trace_id in (select unnest($ids)) and metric = $metric and delta_q is not null and n > 0
        and not (confirmed and seed_block = $screen)
    order by all
"""


def _rows(snapshot: Snapshot, query: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = snapshot.sql(query, parameters).to_pylist()
    return rows


def _grouped(snapshot: Snapshot, query: str, parameters: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(snapshot, query, parameters):
        found.setdefault(row["trace_id"], []).append(row)
    return found


def _shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the part of each component in the squared residual; empty where there is none."""
    total = math.fsum([row["energy"] or 0.0 for row in rows])
    return {row["component"]: round((row["energy"] or 0.0) / total, 9) for row in rows} if total > 0 else {}


def _error(rows: Sequence[Mapping[str, Any]], n: int) -> float | None:
    if any(row["low"] is None or row["high"] is None for row in rows):
        return None
    return math.sqrt(math.fsum([(row["n"] * (row["high"] - row["low"]) / 2 / _Z) ** 2 for row in rows])) / n
