"""The stage `modes`: failure modes of the whole workspace, from two sources of profiles, and what people decide about them.

Modes keep their ids from one run to the next, so that names, merges, splits and notes survive. Labels of annotators are
no part of a profile: modes are compared with them afterwards.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from analysis.coherence.modes import (
    Mode,
    Modes,
    apply_decisions,
    carry_over,
    find_modes,
    orchestration_profiles,
    residual_profiles,
)
from analysis.coherence.modes.decisions import Decision, read_decisions
from analysis.coherence.modes.naming import TopCell
from analysis.coherence.modes.profiles import Profiles, Source
from analysis.coherence.projection import POSITIVE
from analysis.errors import HeadConflict, UnknownNameError
from analysis.pipeline.stages import CorpusStage, Progress, Rows
from analysis.streams import stream
from analysis.workspace import SCHEMAS, Snapshot, Workspace

if TYPE_CHECKING:
    import pandas as pd

#: Changes when the same profiles give other modes.
VERSION = "2"
SOURCES: tuple[Source, ...] = ("residual", "orchestration")
TABLES = ("modes", "mode_members", "mode_runs")
_JSON = ("exemplars", "top_cells", "centre", "notes")
_MAX_MAPPED = 5_000  # profiles that the two axes of the map are learned from


def profiles_of(snapshot: Snapshot, source: Source) -> Profiles:
    """Return the profiles of one source; those of `orchestration` without labels."""
    return _residual(snapshot) if source == "residual" else _orchestration(snapshot)


def stored_modes(snapshot: Snapshot, source: Source) -> Modes | None:
    """Return the modes of the last run as they stand after decisions, with their profiles; None before a run."""
    runs = snapshot.sql("select * from mode_runs where source = $source", {"source": source}).to_pylist()
    if not runs:
        return None
    facts: dict[str, Any] = {
        name: runs[0][name] for name in ("refusal", "stability", "null_stability", "spread_left", "agreement", "n_dense")
    }
    facts |= {"by_k": tuple(map(tuple, msgspec.json.decode(runs[0]["by_k"]))), "n_sampled": runs[0]["n_sampled"]}
    rows = snapshot.sql("select * from modes where source = $source order by size desc, mode_id", {"source": source}).to_pylist()
    members = snapshot.sql(
        "select trace_id, mode_id, distance from mode_members where source = $source order by trace_id", {"source": source}
    ).to_pandas()
    cells = tuple(msgspec.json.decode(runs[0]["cells"]))
    return Modes(
        _on(profiles_of(snapshot, source), cells, members["trace_id"].tolist()), tuple(map(_mode, rows)), members, **facts
    )


def found_modes(snapshot: Snapshot, source: Source) -> Modes | None:
    """Return the modes of the last run as they were found, before anybody's decisions: ids, centres and members.

    A merge hides the modes it joins; the next run must find those again to carry their ids over.
    """
    runs = snapshot.sql("select cells, found from mode_runs where source = $source", {"source": source}).to_pylist()
    if not runs:
        return None
    members = snapshot.sql(
        "select trace_id, found_id as mode_id, distance from mode_members where source = $source order by trace_id",
        {"source": source},
    ).to_pandas()
    cells = tuple(msgspec.json.decode(runs[0]["cells"]))
    modes = [
        Mode(mode_id=i, name=i, words="", size=0, jaccard=None, exemplars=(), top_cells=(), centre=tuple(centre), radius=0.0)
        for i, centre in msgspec.json.decode(runs[0]["found"])
    ]
    nothing = Profiles((), cells, np.zeros((0, len(cells)), np.float32), source)
    return Modes(nothing, tuple(modes), members)


def decide(workspace: Workspace, decision: Decision, *, author: str) -> None:
    """Note what a person decided about a mode, and carry it out, as one new version.

    Raises
    ------
    UnknownNameError
        If no mode has the id, or the decision would change nothing.
    """
    row = {"decision_id": uuid.uuid4().hex, "trace_id": "", "event_id": "", "what": decision.what, "author": author}
    row |= {"value": msgspec.json.encode(decision).decode(), "made_at": datetime.now(UTC).isoformat(timespec="milliseconds")}
    note = workspace.write("decisions", pa.Table.from_pylist([row], schema=SCHEMAS["decisions"]))
    while True:
        head = workspace.head()
        snapshot = Snapshot(workspace, head)
        sources = dict(zip(*snapshot.sql("select mode_id, source from modes order by all").to_pydict().values(), strict=True))
        if (source := sources.get(decision.mode_id)) is None:
            raise UnknownNameError("mode", "no mode has this id", got=decision.mode_id, expected=", ".join(sources))
        modes = stored_modes(snapshot, source)
        assert modes is not None
        decided = apply_decisions(modes, [decision])
        if decided.unapplied:
            raise UnknownNameError(
                "mode", f"{decision.what}: it would change nothing", got=decision.mode_id, hint="check the ids"
            )
        rows = _kept(snapshot, source)
        as_found = found_modes(snapshot, source)
        assert as_found is not None
        for name, new in _rows(decided.modes, as_found).items():
            rows[name] += new
        files = {name: [workspace.write(name, pa.Table.from_pylist(new, schema=SCHEMAS[name]))] if new else []
                 for name, new in rows.items()}  # fmt: skip
        try:
            workspace.commit(head, files | {"decisions": [*head.tables.get("decisions", ()), note]})
            return
        except HeadConflict:
            continue


def _kept(snapshot: Snapshot, source: str) -> Rows:
    """The rows of the other sources."""
    query = "select * from {} where source != $source"
    return {name: snapshot.sql(query.format(name), {"source": source}).to_pylist() for name in TABLES}


def _run(snapshot: Snapshot, progress: Progress) -> Rows:
    rows: Rows = {name: [] for name in TABLES}
    decisions = read_decisions(snapshot.sql("select * from decisions").to_pandas())
    for n, source in enumerate(SOURCES):
        progress(n / len(SOURCES), f"{source} profiles")
        found = find_modes(profiles_of(snapshot, source), rng=stream(0, "modes", source))
        if (old := found_modes(snapshot, source)) is not None:
            found = carry_over(old, found)
        for name, new in _rows(apply_decisions(found, decisions).modes, found).items():
            rows[name] += new
    return rows


def _rows(found: Modes, as_found: Modes) -> Rows:
    """The rows of modes after decisions, and beside them what they were found as."""
    source = found.profiles.source
    was = as_found.members[["trace_id", "mode_id"]].rename(columns={"mode_id": "found_id"})
    modes = [msgspec.structs.asdict(mode) | {"source": source} for mode in found.modes]
    for row in modes:
        row |= {name: msgspec.json.encode(row[name]).decode() for name in _JSON}
    members = found.members.merge(_map(found.profiles), on="trace_id").merge(was, on="trace_id") if found.modes else None
    run = {name: getattr(found, name) for name in ("refusal", "caution", "stability", "null_stability", "spread_left")}
    run |= {name: getattr(found, name) for name in ("agreement", "n_dense", "n_sampled")}
    run |= {"source": source, "n_profiles": len(found.profiles.trace_ids), "by_k": msgspec.json.encode(found.by_k).decode()}
    run["found"] = msgspec.json.encode([(mode.mode_id, mode.centre) for mode in as_found.modes]).decode()
    run["cells"] = msgspec.json.encode(found.profiles.cells).decode()
    return {
        "modes": modes,
        "mode_members": [] if members is None else members.assign(source=source).to_dict("records"),
        "mode_runs": [run],
    }


def _map(profiles: Profiles) -> pd.DataFrame:
    """Where each profile stands on the two axes along which profiles differ most."""
    import pandas as pd

    points = np.sqrt(profiles.matrix.astype(np.float64))
    middle = points.mean(axis=0)
    step = max(1, len(points) // _MAX_MAPPED)
    _, _, axes = np.linalg.svd(points[::step] - middle, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2].sum(axis=1, keepdims=True) + 1e-12)  # a direction has no sign of its own
    at = np.zeros((len(points), 2))
    at[:, : len(axes)] = (points - middle) @ axes.T
    return pd.DataFrame({"trace_id": profiles.trace_ids, "x": at[:, 0].round(6), "y": at[:, 1].round(6)})


def _mode(row: dict[str, Any]) -> Mode:
    fields = {name: row[name] for name in Mode.__struct_fields__}
    fields |= {name: tuple(msgspec.json.decode(row[name])) for name in _JSON}
    return Mode(**(fields | {"top_cells": tuple(TopCell(*cell) for cell in fields["top_cells"])}))


def _on(profiles: Profiles, cells: tuple[str, ...], trace_ids: list[str]) -> Profiles:
    """Return the profiles of some traces over the given cells; a cell or trace that is gone has none of anything."""
    column = {cell: n for n, cell in enumerate(profiles.cells)}
    row = {trace_id: n for n, trace_id in enumerate(profiles.trace_ids)}
    matrix = np.zeros((len(trace_ids), len(cells)), np.float32)
    known = [(n, row[t]) for n, t in enumerate(trace_ids) if t in row]
    shared = [(n, column[cell]) for n, cell in enumerate(cells) if cell in column]
    if known and shared:
        to, at = np.array(known).T, np.array(shared).T
        matrix[np.ix_(to[0], at[0])] = profiles.matrix[np.ix_(to[1], at[1])]
    return Profiles(tuple(trace_ids), cells, matrix, profiles.source)


def _residual(snapshot: Snapshot) -> Profiles:
    """Of each trace the level `team` where there is one, which holds the others; else all its levels."""
    top = f"""with top as (
        select trace_id, level from residuals where is_last and residual > {POSITIVE}
        qualify level = 'team' or not bool_or(level = 'team') over (partition by trace_id)
    )"""
    violations = snapshot.sql(
        f"""{top} select v.trace_id, v.level, v.phase as turn_phase, v.kind, v."drop", v.is_violated, r.residual, v.components
        from violations v semi join top using (trace_id, level) join residuals r
        on v.trace_id = r.trace_id and v.level = r.level and v.turn is not distinct from r.turn
        order by v.trace_id, v.level, v.turn, v.relation"""
    ).to_pandas()
    violations["components"] = [msgspec.json.decode(cell) for cell in violations["components"]]
    attribution = snapshot.sql(
        f"""{top}, phases as (select distinct trace_id, level, turn, phase from violations)
        select a.trace_id, a.level, p.phase as turn_phase, a.component, a.energy
        from attribution a semi join top using (trace_id, level) join phases p
        on a.trace_id = p.trace_id and a.level = p.level and a.turn is not distinct from p.turn order by all"""
    ).to_pandas()
    return residual_profiles(violations, attribution)


def _orchestration(snapshot: Snapshot) -> Profiles:
    endings = snapshot.sql(
        """with ends as (
            select trace_id, arg_max(condition, "order") as condition, arg_max(final_state, "order") as final_state
            from events where kind = 'stop' group by trace_id
        ) select trace_id, passed, ends.condition, final_state from traces left join ends using (trace_id)
        semi join keys_quality using (trace_id) order by trace_id"""
    ).to_pandas()
    parts = {
        name: snapshot.sql(f"select * from {name} order by all").to_pandas() for name in ("findings", "components", "metrics")
    }
    labels = snapshot.sql("select trace_id, category, is_root_cause from labels where false").to_pandas()
    return orchestration_profiles(
        parts["findings"], endings, components=parts["components"], metrics=parts["metrics"], labels=labels
    )


MODES = CorpusStage("modes", VERSION, TABLES, ("quality", "residuals"), _run)
