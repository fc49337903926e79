"""What the page Export and train reads: the traces that are chosen, their rows as an export would make them, exports and runs.

Hides how rows are made before there is an export, and where exports and runs lie.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import streamlit as st

from analysis.counterfactual.dataset import PairRow
from analysis.counterfactual.effects import better_of
from analysis.pipeline.curating import dataset_head
from analysis.pipeline.export_facts import WANTED, Known
from analysis.pipeline.exporting import Viewed
from analysis.redaction import Redactor
from analysis.training.bundle import MANIFEST
from analysis.training.formats import views
from analysis.training.labelling import rows_of
from analysis.training.redacting import redacted
from analysis.training.rows import Row
from analysis.training.steps import WORDS, Step, steps_of
from analysis.workspace.filters import where
from analysis.workspace.listing import metric_names
from dashboard.loading import Version, frame, snapshot

METRIC = "passed"
N_SAMPLE = 300
_CHANGE = "partition by trace_id, event_id, operator, parameters, metric, evidence, world"
_PLACE = re.compile(r"\bmessage \d+")


class Chosen(NamedTuple):
    """What would be exported: a data set, or without one the traces of a filter; and what is taken out of their texts."""

    dataset: str | None
    filter: str
    redact: bool = True
    patterns: tuple[str, ...] = ()


class Made(NamedTuple):
    """Rows as an export would make them, in training order, and how many secrets of each kind were taken out of their traces."""

    rows: list[Row]
    taken: dict[str, int]


class Refusals(NamedTuple):
    """What targets would refuse of the rows of some traces, and of the counterfactual pairs of all.

    n_rows, n_pairs : what each target that takes rows, or pairs, is given; n_masked : rows on which no loss may be taken, and
    which nobody is given; found : target, reason, n, and trace_id, row and event_id of an example
    """

    n_traces: int
    n_rows: int
    n_masked: int
    n_pairs: int
    found: pd.DataFrame


def datasets(version: Version) -> pd.DataFrame:
    """Return the data sets without policy and report, by name."""
    return frame(version, "select * exclude (policy, report) from datasets order by dataset")


def chosen_traces(version: Version, dataset: str | None, filter: str) -> pd.DataFrame:
    """Return the traces in training order: trace_id, order_key, weight, stage, and group and split where they have one."""
    if dataset is not None:
        of, parameters = "from dataset_rows where dataset = $dataset and outcome in ('kept', 'masked')", {"dataset": dataset}
        columns = "trace_id, position as order_key, coalesce(weight, 1.0) as weight, stage"
    else:
        condition, parameters = where(filter, metrics=metric_names(snapshot(version)))
        of, columns = f"from traces where {condition}", "trace_id, row_number() over (order by trace_id) - 1, 1.0::double, null"
    query = f"""with chosen(trace_id, order_key, weight, stage) as (select {columns} {of})
        select chosen.*, coalesce("group", '') as "group", coalesce(split, '') as split
        from chosen left join splits using (trace_id) order by order_key"""
    return frame(version, query, parameters)


@st.cache_resource(max_entries=64, show_spinner=False)
def rows_of_trace(version: Version, chosen: Chosen, trace_id: str) -> Made:
    """Return the rows of one of the chosen traces."""
    traces = chosen_traces(version, chosen.dataset, chosen.filter)
    return _made(version, chosen, traces[traces["trace_id"] == trace_id])


@st.cache_data(max_entries=8, show_spinner="Asking each target what it would refuse")
def refusals(version: Version, chosen: Chosen, n: int = N_SAMPLE) -> Refusals:
    """Return what each target would refuse: of rows those of `n` traces, drawn by the hash of their ids.

    A record counts by the first reason to refuse it, as an export counts it.
    """
    traces = chosen_traces(version, chosen.dataset, chosen.filter)
    drawn = traces.iloc[sorted(range(len(traces)), key=lambda k: hashlib.sha256(traces["trace_id"].iat[k].encode()).digest())[:n]]
    rows = _made(version, chosen, drawn).rows
    given: list[tuple[str, Any, dict[str, Any]]] = []
    for trace_id, mine in groupby(rows, key=lambda row: row.trace_id):
        given += [("rows", row, {"trace_id": trace_id, "row": k}) for k, row in enumerate(mine) if any(row.keep)]
    pairs = _pairs(version, traces["trace_id"].tolist())
    given += [("pairs", pair, {"trace_id": pair.trace_id, "event_id": pair.event_id}) for pair in pairs]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for (name, view), (takes, one, example) in product(views().items(), given):
        if takes == view.takes and (problems := view.check(one)):
            reason = _PLACE.sub("a message", problems[0])
            found.setdefault((name, reason), {"target": name, "reason": reason, "n": 0, **example})["n"] += 1
    table = pd.DataFrame(list(found.values()), columns=["target", "reason", "n", "trace_id", "row", "event_id"])
    ordered = table.sort_values(["n", "target"], ascending=[False, True]).reset_index(drop=True)
    n_rows = len(given) - len(pairs)
    return Refusals(len(drawn), n_rows, len(rows) - n_rows, len(pairs), ordered)


def record(target: str, row: Row) -> dict[str, list[Any]]:
    """Return what a view writes of one row: of each of its data files the records. Raises TrainingError where it cannot."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        views()[target].write(iter([row]), folder)
        files = sorted(path for path in folder.rglob("*") if path.suffix in _READ)
        return {path.relative_to(folder).as_posix(): _READ[path.suffix](path) for path in files}


def exports(root: Path) -> list[Path]:
    """Return the folders of the exports that are whole, the newest first."""
    whole = [(path.stat().st_mtime, path.parent) for path in (root / "exports").glob(f"*/{MANIFEST}")]
    return [folder for _, folder in sorted(whole, reverse=True)]


def runs(root: Path) -> list[Path]:
    """Return the folders of training runs, the newest first."""
    planned = [(path.stat().st_mtime, path.parent) for path in (root / "runs").glob("*/plan.json")]
    return [folder for _, folder in sorted(planned, reverse=True)]


def viewed(export: Path) -> dict[str, Viewed]:
    """Return the views of an export that are whole."""
    found = {path.stem: msgspec.json.decode(path.read_bytes(), type=Viewed) for path in (export / "views").glob("*.json")}
    return {name: found[name] for name in views() if name in found}


@st.cache_data(max_entries=8, show_spinner=False)
def steps(export: str, manifest_id: str) -> pd.DataFrame:
    """Return what became of the traces of an export at each step, in words, in their order: step, n_traces, n_rows."""
    found = pd.DataFrame(steps_of(Path(export)), columns=Step._fields)
    return found.assign(step=found["step"].map(WORDS), n_rows=found["n_rows"].astype("Int64"))


@st.cache_data(max_entries=8, show_spinner=False)
def drops(export: str, manifest_id: str) -> pd.DataFrame:
    """Return what an export left out: stage, reason, n and the id of an example, the most frequent reasons first."""
    rows = pq.read_table(Path(export) / "drops.parquet").to_pandas()
    counts = rows.groupby(["stage", "reason"]).agg(n=("id", "size"), example=("id", "first")).reset_index()
    return counts.sort_values(["n", "stage", "reason"], ascending=[False, True, True]).reset_index(drop=True)


def _made(version: Version, chosen: Chosen, traces: pd.DataFrame) -> Made:
    """Make rows of the version that a data set was made from, without giving a split to traces that have none yet."""
    newest = snapshot(version)
    pinned = newest
    if chosen.dataset is not None:
        pinned = snapshot(Version(version.location, dataset_head(newest.workspace, chosen.dataset).number))
    wanted = pa.Table.from_pandas(traces, schema=WANTED, preserve_index=False)
    facts = Known(pinned, newest, wanted, dataset=chosen.dataset, metric=METRIC).facts(wanted["trace_id"].to_pylist())
    redactor = Redactor(chosen.patterns)
    rows: list[Row] = []
    traces = pinned.traces(list(facts))
    for trace in redacted(traces, redactor) if chosen.redact else traces:
        rows += rows_of(trace, facts[trace.trace_id])
    return Made(sorted(rows, key=lambda row: row.order_key), dict(sorted(redactor.counts.items())))


def _pairs(version: Version, ids: list[str]) -> list[PairRow]:
    """Return the effects that `stored_pairs` makes pairs of, with their numbers alone; their texts take runs to make."""
    effects = frame(
        version,
        f"""with mine as (
            select * from sound_effects where isfinite(delta_q) and event_id is not null and trace_id in (select unnest($ids))
            qualify study = first_value(study) over ({_CHANGE} order by confirmed desc, n desc, study)
        )
        select * from mine qualify row_number() over ({_CHANGE} order by seed_block = 'confirm' desc) = 1 order by all""",
        {"ids": ids},
    )
    named = ["trace_id", "event_id", "event_kind", "operator", "parameters", "metric", "delta_q", "n", "evidence", "world"]
    rows = effects.astype(object).where(effects.notna(), None).to_dict("records")
    return [
        PairRow(
            **{name: row[name] for name in named}, pair_id="", task_id=row["task"], agent="", prompt=[], original=[],
            counterfactual=[{"role": "assistant"}], credit=-row["delta_q"], better=better_of(row["metric"]), low=row["low"],
            high=row["high"], seed_block=row["seed_block"], confirmed=row["confirmed"], split="",
        )
        for row in rows
    ]  # fmt: skip


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _cells(path: Path) -> list[Any]:
    table = pq.read_table(path)
    return [{field.name: _decoded(row[field.name], field.type) for field in table.schema} for row in table.to_pylist()]


def _decoded(value: Any, kind: pa.DataType) -> Any:
    """Return a cell with what its type says is JSON as what it says."""
    if pa.types.is_list(kind):
        return [_decoded(item, kind.value_type) for item in value or ()]
    return json.loads(value) if isinstance(kind, pa.JsonType) and value is not None else value


_READ: dict[str, Callable[[Path], list[Any]]] = {
    ".jsonl": _lines, ".parquet": _cells, ".csv": lambda path: path.read_text(encoding="utf-8-sig").splitlines()
}  # fmt: skip
