"""Records to rows and back: which columns each table has, derived from the records themselves.

A field of one plain value is a column of its own; any other field is a column of JSON text. Rows
carry `trace_id` first and `position`, the place in the trace's tuple, so that a trace comes back equal.
The text of events stands in a table of its own, so that a page of traces never reads it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from analysis import model
from analysis.errors import Problem
from analysis.model import Trace

_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}

#: The tables whose rows are records of a trace, and the field of `Trace` they come from.
MEMBERS: dict[str, type[model.Record]] = {
    "agents": model.Agent,
    "events": model.Event,
    "subtasks": model.Subtask,
    "candidates": model.Candidate,
    "claims": model.Claim,
    "relations": model.Relation,
    "labels": model.Label,
}
_TEXT_FIELDS = ("content", "messages")
_TRACE_FIELDS = tuple(f for f in Trace.__struct_fields__ if f not in MEMBERS)


class Column(NamedTuple):
    """One field of a record as a column: its Arrow type, its type where it is JSON text, its words where it is one of few.

    Words are the very objects of the records: `encode` leaves out a default only if it is the same object.
    """

    name: str
    arrow: pa.DataType
    json: Any | None = None
    words: Mapping[str, str] | None = None


def _columns(record: type[Any]) -> list[Column]:
    hints = typing.get_type_hints(record)
    columns = []
    for name in record.__struct_fields__:
        plain = _plain(hints[name])
        words = _words(hints[name]) if plain else None
        columns.append(Column(name, _ARROW[plain], words=words) if plain else Column(name, pa.string(), hints[name]))
    return columns


def _options(hint: Any) -> list[Any]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return [option for option in typing.get_args(hint) if option is not type(None)] if is_union else [hint]


def _words(hint: Any) -> dict[str, str] | None:
    """The words of a field that is one of few."""
    literals = [option for option in _options(hint) if typing.get_origin(option) is Literal]
    return {word: msgspec.convert(word, literal) for literal in literals for word in typing.get_args(literal)} or None


def _plain(hint: Any) -> type | None:
    """The Python type of a field of one plain value, seen through `| None`, `Annotated` and `Literal`."""
    options = _options(hint)
    if options != [hint]:
        return _plain(options[0]) if len(options) == 1 else None
    if typing.get_origin(hint) is Literal:
        return type(typing.get_args(hint)[0])
    return hint if hint in _ARROW else None


_RECORD_COLUMNS = {name: _columns(record) for name, record in MEMBERS.items()}
_TRACE_COLUMNS = [column for column in _columns(Trace) if column.name in _TRACE_FIELDS]
_TEXT_COLUMNS = [column for column in _RECORD_COLUMNS["events"] if column.name in _TEXT_FIELDS]
_EVENT_COLUMNS = [column for column in _RECORD_COLUMNS["events"] if column.name not in _TEXT_FIELDS]
_RECORD_COLUMNS["events"] = _EVENT_COLUMNS

#: What a page of traces shows and filters by, so that it never scans the events.
SUMMARY: dict[str, pa.DataType] = {
    "digest": pa.string(),
    "family": pa.string(),
    "format": pa.string(),
    "task_id": pa.string(),
    "task_text": pa.string(),
    "domain": pa.string(),
    "condition": pa.string(),
    "trial": pa.string(),
    "passed": pa.bool_(),
    "score": pa.float64(),
    "n_agents": pa.int64(),
    "n_events": pa.int64(),
    "n_claims": pa.int64(),
    "n_labels": pa.int64(),
    **{f"n_{kind}": pa.int64() for kind in model.PAYLOAD},
    "n_errors": pa.int64(),
    "explicit_share": pa.float64(),
    "input_tokens": pa.int64(),
    "output_tokens": pa.int64(),
    "makespan_s": pa.float64(),
}


def _keyed(columns: Iterable[Column], *first: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([("trace_id", pa.string()), *first, *((c.name, c.arrow) for c in columns if c.name != "trace_id")])


#: The stages that work trace by trace; each has a table `keys_<stage>`.
STAGES = ("quality", "claims", "residuals", "suspects")

#: Every input table and its columns.
SCHEMAS: dict[str, pa.Schema] = {
    "traces": _keyed(_TRACE_COLUMNS, *SUMMARY.items()),
    **{name: _keyed(columns, ("position", pa.int64())) for name, columns in _RECORD_COLUMNS.items()},
    "texts": _keyed(_TEXT_COLUMNS, ("position", pa.int64()), ("event_id", pa.string())),
    "problems": pa.schema(
        [(f, pa.string()) for f in ("trace_id", "file", "record", "code", "severity", "message", "got", "expected", "hint")]
        + [("n", pa.int64()), ("stage", pa.string())]
    ),
    "raw": pa.schema(
        [(f, pa.string()) for f in ("trace_id", "family", "part", "digest", "file", "record")]
        + [("is_primary", pa.bool_()), ("n_bytes", pa.int64()), ("data", pa.binary())]
    ),
    "decisions": pa.schema(
        [(f, pa.string()) for f in ("decision_id", "trace_id", "event_id", "what", "value", "author", "made_at")]
    ),
    # Stage tables: what `analyse` worked out. `keys_*` says for which content of a trace.
    "metrics": pa.schema(
        {"trace_id": pa.string(), "name": pa.string(), "value": pa.float64(), "variant": pa.string(), "n": pa.int64()}
        | {"low": pa.float64(), "high": pa.float64(), "reason": pa.string()}
    ),
    "findings": pa.schema(
        dict.fromkeys(("trace_id", "name", "message", "event_ids", "agents"), pa.string())
        | {"recovered": pa.bool_(), "loss": pa.float64(), "loss_unit": pa.string()}
    ),
    "components": pa.schema(
        {"trace_id": pa.string(), "component": pa.string(), "n_events": pa.int64(), "n_errors": pa.int64()}
        | {"critical_share": pa.float64()}
    ),
    "modes": pa.schema(
        dict.fromkeys(("source", "mode_id", "name", "words", "exemplars", "top_cells", "centre", "notes"), pa.string())
        | {"size": pa.int64(), "jaccard": pa.float64(), "radius": pa.float64(), "is_named": pa.bool_()}
    ),
    "mode_members": pa.schema(
        dict.fromkeys(("trace_id", "source", "mode_id", "found_id"), pa.string())
        | dict.fromkeys(("distance", "x", "y"), pa.float64())
    ),
    "mode_runs": pa.schema(
        dict.fromkeys(("source", "refusal", "caution", "by_k", "cells", "found"), pa.string())
        | dict.fromkeys(("n_profiles", "n_sampled", "n_dense"), pa.int64())
        | dict.fromkeys(("stability", "null_stability", "spread_left", "agreement"), pa.float64())
    ),
    "patterns": pa.schema(
        dict.fromkeys(("pattern_id", "name", "nodes", "edges", "family", "examples"), pa.string())
        | dict.fromkeys(("n_nodes", "n_edges", "support"), pa.int64())
        | dict.fromkeys(("closed", "maximal", "is_approximate", "anti_pattern"), pa.bool_())
        | {"support_share": pa.float64()}
    ),
    "occurrences": pa.schema(dict.fromkeys(("trace_id", "pattern_id"), pa.string())),
    "families": pa.schema(
        dict.fromkeys(("family_id", "name", "medoid", "exemplars", "nodes", "edges"), pa.string())
        | dict.fromkeys(("conditions", "conditions_note"), pa.string())
        | {"n_members": pa.int64(), "n_forms": pa.int64(), "stability": pa.float64()}
    ),
    "family_members": pa.schema(dict.fromkeys(("trace_id", "family_id"), pa.string())),
    "lifts": pa.schema(
        dict.fromkeys(("item", "kind", "metric", "better", "matched_by", "evidence", "reason", "domain", "holds"), pa.string())
        | dict.fromkeys(("n_with", "n_without", "n_tasks_with", "n_tasks_without", "n_tested", "n_pairs"), pa.int64())
        | dict.fromkeys(("with_mean", "without_mean", "lift", "low", "high", "ratio", "ratio_low", "ratio_high"), pa.float64())
        | dict.fromkeys(("p", "p_adjusted", "p_threshold", "q_value", "matched", "matched_low", "matched_high"), pa.float64())
    ),
    "pattern_runs": pa.schema(
        dict.fromkeys(("labelling", "notes", "families_note", "stability", "spread"), pa.string())
        | dict.fromkeys(("max_edges", "n_graphs", "n_patterns", "n_closed"), pa.int64())
        | {"min_support": pa.float64(), "ordered": pa.bool_(), "is_approximate": pa.bool_()}
    ),
    "extracted_claims": pa.schema(
        {"trace_id": pa.string(), **{c.name: c.arrow for c in _RECORD_COLUMNS["claims"]}}
        | {"score": pa.float64(), "text": pa.string(), "replaces": pa.string()}
    ),
    "unlinked_claims": pa.schema(
        dict.fromkeys(("trace_id", "event_id", "component", "text", "reason", "nearest"), pa.string())
        | dict.fromkeys(("p", "low", "high", "score"), pa.float64())
    ),
    "couplings": pa.schema(dict.fromkeys(("trace_id", "relation_id", "formula", "rule"), pa.string())),
    "cliques": pa.schema(
        dict.fromkeys(("trace_id", "level", "kinds", "components", "propositions", "relations", "method"), pa.string())
        | dict.fromkeys(("n_claims", "n_components", "n_worlds"), pa.int64())
        | dict.fromkeys(("residual", "lower", "upper", "coupling_max", "coupling_bits"), pa.float64())
    ),
    "residuals": pa.schema(
        {"trace_id": pa.string(), "level": pa.string(), "turn": pa.int64(), "is_last": pa.bool_()}
        | dict.fromkeys(("residual", "lower", "upper", "delta", "residual_canonical", "residual_debiased"), pa.float64())
        | dict.fromkeys(("residual_norm", "residual_max", "residual_composed", "coupling_bits", "spread"), pa.float64())
        | dict.fromkeys(("n_claims", "n_cliques", "n_placeholders", "n_out_of_range"), pa.int64())
        | {"unique": pa.bool_(), "interaction_only": pa.bool_()}
        | dict.fromkeys(("method", "summary", "violated", "projection", "stakes", "minimal_repairs", "reasons"), pa.string())
    ),
    "attribution": pa.schema(
        {"trace_id": pa.string(), "level": pa.string(), "turn": pa.int64(), "is_last": pa.bool_(), "component": pa.string()}
        | dict.fromkeys(("energy", "delta", "residual_local", "shapley", "shapley_low", "shapley_high"), pa.float64())
        | dict.fromkeys(("shapley_replace", "order_low", "order_high"), pa.float64())
    ),
    "violations": pa.schema(
        {"trace_id": pa.string(), "level": pa.string(), "turn": pa.int64()}
        | dict.fromkeys(("phase", "relation", "kind", "text", "components"), pa.string())
        | {"drop": pa.float64(), "is_violated": pa.bool_()}
    ),
    "suspects": pa.schema(
        {"trace_id": pa.string(), "rank": pa.int64(), "score": pa.float64()}
        | dict.fromkeys(("agent_id", "component", "event_id", "reasons", "signals"), pa.string())
    ),
    # What studies of counterfactual replays found, replaced whole by the name of the study.
    "effects": pa.schema(
        dict.fromkeys(("study", "trace_id", "task", "event_id", "event_kind", "operator", "parameters", "metric"), pa.string())
        | {"n": pa.int64()}
        | dict.fromkeys(("delta_q", "low", "high", "credit", "e_value", "q_value", "shrunken"), pa.float64())
        | {"confirmed": pa.bool_()}
        | dict.fromkeys(("evidence", "world", "seed_block"), pa.string())
        | {"cost_tokens": pa.int64()}
    ),
    "effect_runs": pa.schema(
        dict.fromkeys(("study", "controls", "cells", "refused", "notes"), pa.string())
        | dict.fromkeys(("seed", "n_traces", "n_pairs", "n_left", "cost_tokens"), pa.int64())
        | {"is_sound": pa.bool_()}
    ),
    # How hard tasks are for a model, and in which stage of a curriculum they stand.
    "difficulty": pa.schema(
        dict.fromkeys(("task_id", "model", "source", "stage", "reason"), pa.string())
        | dict.fromkeys(("n", "n_passed"), pa.int64())
        | dict.fromkeys(("d_req", "low", "high", "d_partial", "d_orch", "joint"), pa.float64())
    ),
    "difficulty_runs": pa.schema(dict.fromkeys(("reference", "fit", "notes"), pa.string())),
    # How often models solve tasks, from pass tables of a user.
    "pass_rates": pa.schema(
        dict.fromkeys(("task_id", "model"), pa.string()) | dict.fromkeys(("n", "n_passed"), pa.int64()) | {"d_orch": pa.float64()}
    ),
    # Curated data sets, each replaced whole by its name; `report` is JSON.
    "datasets": pa.schema(
        dict.fromkeys(("dataset", "policy", "policy_digest", "data_version", "report"), pa.string())
        | dict.fromkeys(("seed", "n_input", "n_kept", "n_masked", "n_dropped", "n_queued"), pa.int64())
    ),
    "dataset_rows": pa.schema(
        dict.fromkeys(("dataset", "trace_id", "outcome", "stage"), pa.string()) | {"position": pa.int64(), "weight": pa.float64()}
    ),
    "dataset_segments": pa.schema(
        dict.fromkeys(("dataset", "trace_id", "component", "event_id", "reason"), pa.string())
        | {"keep": pa.bool_(), "weight": pa.float64()}
    ),
    "funnel": pa.schema(
        {"dataset": pa.string(), "trace_id": pa.string(), "place": pa.int64()}
        | dict.fromkeys(("gate", "outcome", "reason"), pa.string())
        | dict.fromkeys(("value", "threshold"), pa.float64())
    ),
    # The split of every trace that was ever exported, so that it never changes.
    "splits": pa.schema(dict.fromkeys(("trace_id", "group", "split"), pa.string())),
    **{f"keys_{name}": pa.schema([("trace_id", pa.string()), ("key", pa.string())]) for name in STAGES},
}


def trace_tables(traces: Sequence[tuple[Trace, str]]) -> dict[str, pa.Table]:
    """Return the rows of all input tables but problems, raw and decisions.

    Parameters
    ----------
    traces : (trace, format family that assembled it), in the order the rows are to have
    """
    tables = {"traces": _trace_rows(traces)}
    for name, columns in _RECORD_COLUMNS.items():
        members = [(t.trace_id, n, member) for t, _ in traces for n, member in enumerate(getattr(t, name))]
        tables[name] = _rows(SCHEMAS[name], columns, members)
    texts = [(t.trace_id, n, e) for t, _ in traces for n, e in enumerate(t.events) if e.content is not None or e.messages]
    tables["texts"] = _rows(SCHEMAS["texts"], [*_TEXT_COLUMNS, Column("event_id", pa.string())], texts)
    return tables


def problem_table(problems: Iterable[Problem], *, stage: Literal["read", "assemble"]) -> pa.Table:
    """Return load problems as rows, worded; `stage` says whether reading a file or assembling a trace found them."""
    names = [name for name in SCHEMAS["problems"].names if name != "stage"]
    rows = [{name: getattr(p, name) for name in names} | {"stage": stage} for p in problems]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["problems"])


def traces_from(tables: Mapping[str, pa.Table]) -> list[Trace]:
    """Return the traces that `trace_tables` made the rows of, sorted by id; the inverse of it."""
    members: dict[str, dict[str, list[Any]]] = {name: {} for name in MEMBERS}
    texts = dict(_fields(tables["texts"], _TEXT_COLUMNS))
    for name, record in MEMBERS.items():
        table = tables[name].sort_by([("trace_id", "ascending"), ("position", "ascending")])
        for key, fields in _fields(table, _RECORD_COLUMNS[name]):
            if name == "events":
                fields |= texts.get(key, {})
            members[name].setdefault(key[0], []).append(record(**fields))
    return [
        Trace(**(fields | {name: tuple(rows.get(key[0], ())) for name, rows in members.items()}))
        for key, fields in _fields(tables["traces"].sort_by("trace_id"), _TRACE_COLUMNS)
    ]


def _rows(schema: pa.Schema, columns: Sequence[Column], members: Sequence[tuple[str, int, Any]]) -> pa.Table:
    data: dict[str, Sequence[Any]] = {"trace_id": [m[0] for m in members], "position": [m[1] for m in members]}
    read = attrgetter(*(column.name for column in columns))
    fields = zip(*map(read, (m[2] for m in members)), strict=True) if members else repeat(())
    for column, values in zip(columns, fields, strict=False):
        data[column.name] = _values(values, column)
    return pa.table({name: pa.array(data[name], schema.field(name).type) for name in schema.names}, schema=schema)


def _values(values: Sequence[Any], column: Column) -> Sequence[Any]:
    if column.json is None:
        return values
    encode = msgspec.json.Encoder().encode
    return [encode(value).decode() if value else None for value in values]


def _fields(table: pa.Table, columns: Iterable[Column]) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
    """Yield of each row its trace_id and position, and the fields that are there."""
    rows: list[dict[str, Any]] = [{} for _ in range(table.num_rows)]
    for column in columns:
        cells = table[column.name]
        if cells.null_count == len(rows):
            continue
        for row, value in zip(rows, _read(cells.to_pylist(), column), strict=True):
            if value is not None:
                row[column.name] = value
    places = table["position"].to_pylist() if "position" in table.schema.names else repeat(0)
    yield from zip(zip(table["trace_id"].to_pylist(), places, strict=False), rows, strict=True)


def _read(values: list[Any], column: Column) -> Iterable[Any]:
    if column.json is not None:
        decode = msgspec.json.Decoder(column.json).decode
        return [None if value is None else decode(value) for value in values]
    return values if column.words is None else map(column.words.get, values)


def _trace_rows(traces: Sequence[tuple[Trace, str]]) -> pa.Table:
    rows = []
    for trace, family in traces:
        row = {c.name: _values([getattr(trace, c.name)], c)[0] for c in _TRACE_COLUMNS}
        rows.append(row | _summary(trace) | {"family": family})
    return pa.Table.from_pylist(rows, schema=SCHEMAS["traces"])


def _summary(trace: Trace) -> dict[str, Any]:
    kinds: list[str | None] = [event.kind for event in trace.events]
    starts = [e.t_start_s for e in trace.events if e.t_start_s is not None]
    ends = [t for e in trace.events for t in (e.t_end_s, e.t_start_s) if t is not None]
    return {
        "digest": model.digest(trace),
        "format": trace.source.format,
        "task_id": trace.groups.task or trace.task.task_id,
        "task_text": trace.task.text,
        "domain": trace.task.domain,
        "condition": trace.groups.condition,
        "trial": trace.groups.trial,
        "passed": trace.outcome.passed,
        "score": trace.outcome.score,
        "n_agents": len(trace.agents),
        "n_events": len(trace.events),
        "n_claims": len(trace.claims),
        "n_labels": len(trace.labels),
        **{f"n_{kind}": kinds.count(kind) for kind in model.PAYLOAD},
        "n_errors": sum(event.error is not None for event in trace.events),
        "explicit_share": sum(e.basis == "explicit" for e in trace.events) / len(trace.events) if trace.events else None,
        "input_tokens": _total(trace, "input_tokens"),
        "output_tokens": _total(trace, "output_tokens"),
        "makespan_s": max(ends) - min(starts) if starts and ends else None,
    }


def _total(trace: Trace, field: str) -> int | None:
    counts = [n for event in trace.events if (n := getattr(event, field)) is not None]
    return sum(counts) if counts else None
