"""What a study of counterfactual replays found, as tables of the workspace: an effect a row, and the study with its controls.

Decides what is stored: effects of each event on each metric in each block of seeds, never pooled; all events of an operator
and kind together as JSON beside the controls. Of a race only what its choices do not bias is stored as it came out. A study
replaces what one of the same name left.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from analysis.counterfactual.dataset import PairRow, pair_rows_of
from analysis.counterfactual.effects import CELL, effects, exportable
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.sandbox import open_sandbox
from analysis.counterfactual.study import CONFIRM, SCREEN, Allocation
from analysis.errors import HeadConflict
from analysis.workspace import SCHEMAS, Snapshot, Workspace

if TYPE_CHECKING:
    import pandas as pd

    from analysis.counterfactual.judging import Judge
from analysis.counterfactual.study import Study

TABLES = ("effects", "effect_runs")
#: Fields of a table of effects -> those of the stored one.
_NAMES = {"delta_q_shrunken": "shrunken", "cost": "cost_tokens"}
#: What takes the number of pairs for given, which a race does not.
_FIXED_N = ["low", "high", "q_value"]
_CELL_FIELDS = ("n", "n_tasks", "unit", "delta_q", "credit", "low", "high", "how", "p", "q_value", "zero_share", "cost")


def effect_rows(pairs: pd.DataFrame, *, seed: int, allocation: Allocation = "uniform") -> list[dict[str, Any]]:
    """Return rows of the table `effects`, without the name of the study, of a frame of pairs.

    A decision that was confirmed has a row for either block, both marked; what a schedule decides has the block `recorded`.
    The screening of a race has neither interval nor q_value.
    """
    found = [exportable(pairs, screen=SCREEN, confirm=CONFIRM, seed=seed).assign(seed_block=SCREEN)]
    if allocation == "racing":
        found[0][_FIXED_N] = math.nan
    keys = ["trace_id", "event_id", "operator", "parameters", "metric", "world", "evidence"]
    confirmed = {tuple(row) for row in found[0][found[0]["export"] == "confirmed"][keys].itertuples(index=False)}
    for block in sorted(set(pairs["seed_block"]) - {SCREEN}):
        found.append(effects(pairs[pairs["seed_block"] == block], seed=seed).assign(seed_block=block))
    rows = []
    for table in found:
        for row in table.rename(columns=_NAMES).to_dict("records"):
            row["credit"] = 0.0 - row["delta_q"]  # of no effect 0, not -0
            row["e_value"] = math.exp(min(row["log_e"], 700.0))
            row["confirmed"] = tuple([row[key] for key in keys]) in confirmed
            rows.append({name: _known(row[name]) for name in SCHEMAS["effects"].names if name != "study"})
    return rows


def cell_rows(pairs: pd.DataFrame, *, seed: int, allocation: Allocation = "uniform") -> list[dict[str, Any]]:
    """Return what each operator did at each kind of event, over all tasks; screening only, where there is one.

    Pairs that were chosen for what a decision did before are left out, since they would favour the large effects: those of the
    confirmation, and of a race all but the first of each decision.
    """
    kept = pairs[pairs["seed_block"] != CONFIRM]
    table = effects(kept[kept["number"] == 0] if allocation == "racing" else kept, by=CELL, seed=seed)
    fields = [*CELL, "metric", "world", "evidence", *_CELL_FIELDS]
    return [{name: _known(row[name]) for name in fields} for row in table.to_dict("records")]


def run_row(study: Study, pairs: pd.DataFrame, *, seed: int, allocation: Allocation = "uniform") -> dict[str, Any]:
    """Return the row of `effect_runs` of a study, without its name; `pairs` may hold more than the study's own."""
    return {
        "seed": seed, "n_traces": int(pairs["trace_id"].nunique()), "n_left": study.n_left, "is_sound": study.is_sound,
        "n_pairs": len(pairs.drop_duplicates(["trace_id", "event_id", "operator", "parameters", "seed_block", "number"])),
        "cost_tokens": sum([pair.cost_tokens for pair in study.pairs]), "controls": _json(study.controls),
        "cells": _json(cell_rows(pairs, seed=seed, allocation=allocation)), "refused": _json(study.refused),
        "notes": _json(study.notes),
    }  # fmt: skip


def store_effects(workspace: Workspace, name: str, rows: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> None:
    """Store a study under a name, in one commit; what another one of that name left is replaced, the rest stays."""
    fresh = {"effects": [{"study": name, **row} for row in rows], "effect_runs": [{"study": name, **run}]}
    while True:
        snapshot, files = Snapshot(workspace), {}
        for table, new in fresh.items():
            kept = snapshot.sql(f"select * from {table} where study != $name order by all", {"name": name}).to_pylist()
            data = pa.Table.from_pylist([*kept, *new], schema=SCHEMAS[table])
            files[table] = [workspace.write(table, data)] if data.num_rows else []
        with contextlib.suppress(HeadConflict):
            workspace.commit(snapshot.head, files)
            return


def stored_pairs(
    snapshot: Snapshot, trace_ids: Collection[str], *, unsafe: bool = False, told: Callable[[str], None] = lambda text: None
) -> list[PairRow]:
    """Return the counterfactual data set of some traces: what was decided, what might have been, and what that did.

    Studies whose controls failed are left out; of a change that several tried, that with the most pairs counts. `told` hears
    what is left out and why. Raises SandboxError where programs are not run here.
    """
    runs = snapshot.sql("select study, seed, is_sound from effect_runs order by study").to_pylist()
    for run in [run for run in runs if not run["is_sound"]]:
        told(f"study {run['study']} fails its controls and is left out")
    sound = {run["study"]: run["seed"] for run in runs if run["is_sound"]}
    query = f"""select * from sound_effects where trace_id in (select unnest($ids))
        qualify {_MOST} order by all"""
    rows = snapshot.sql(query, {"ids": sorted(trace_ids)}).to_pylist()
    found: list[PairRow] = []
    with open_sandbox(unsafe=unsafe) as sandbox:
        judge = Judge(sandbox)
        for study, seed in sound.items():
            own = [row for row in rows if row["study"] == study]
            traces = snapshot.traces(sorted({row["trace_id"] for row in own}))
            found += pair_rows_of(traces, own, judge=judge, seed=seed, only_confirmed=False, told=told)
    return sorted(found, key=lambda pair: (pair.trace_id, pair.pair_id))


#: Whether a row is of the study that tried its change most often.
_MOST = """study = first_value(study) over (partition by trace_id, event_id, operator, parameters, metric, evidence, world
    order by confirmed desc, n desc, study)"""


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
