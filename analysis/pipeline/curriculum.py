"""The stage `curriculum`: how hard each task is for each model, and its stage, from runs and from pass tables of a user.

Hidden here: which of several sources counts for a task and model, what is filled in from elsewhere, and that the thresholds
of the first run stay until a person asks for others.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from analysis.curation.curriculum.attempts import Attempts, attempts_of, features_of
from analysis.curation.curriculum.joint import JointFit, Tried, fit_joint, joint_difficulty
from analysis.curation.curriculum.pass_tables import PassRow
from analysis.curation.curriculum.predictor import Prediction, predict_difficulty
from analysis.curation.curriculum.requirement import d_req
from analysis.curation.curriculum.stages import MIN_CELLS, Reference, median_reference, stage_of
from analysis.errors import HeadConflict
from analysis.pipeline.stages import CorpusStage, Progress, Rows
from analysis.streams import stream
from analysis.workspace import SCHEMAS, Snapshot, Workspace

#: Changes when the same data give other rows.
VERSION = "1"
NAME = "curriculum"
TABLES = ("difficulty", "difficulty_runs")
_TABLE, _PREDICTED = "pass table", "predicted"  # sources besides attempts of a world


class _Known(NamedTuple):
    """A task and model with all that is known of them, before they are put into a stage."""

    cell: Attempts
    source: str
    d_req: float | None
    low: float | None
    high: float | None


def add_pass_table(workspace: Workspace, rows: Sequence[PassRow]) -> None:
    """Keep the rows of a pass table, in place of earlier ones of the same task and model; the stage runs anew next time."""
    new = {(row.task_id, row.model): row for row in rows}

    def merged(snapshot: Snapshot) -> list[dict[str, Any]]:
        kept = {(row.task_id, row.model): row for row in _pass_rows(snapshot)} | new
        return [row._asdict() for _, row in sorted(kept.items())]

    _replace(workspace, "pass_rates", merged)


def forget_pass_tables(workspace: Workspace) -> None:
    """Drop the rows of all pass tables; the stage runs anew next time."""
    _replace(workspace, "pass_rates", lambda snapshot: [])


def set_reference(workspace: Workspace, reference: Reference | None) -> None:
    """Compare difficulty with this reference from now on; None has it worked out anew, from the data as it is then."""
    rows: list[dict[str, Any]] = [] if reference is None else [{"reference": _json(reference)}]
    _replace(workspace, "difficulty_runs", lambda snapshot: rows)


def stored_reference(snapshot: Snapshot) -> Reference | None:
    """Return what difficulty is compared with; None where there was never enough to take medians of."""
    stored = [text for text in snapshot.sql("select reference from difficulty_runs")["reference"].to_pylist() if text]
    return msgspec.json.decode(stored[0], type=Reference) if stored else None


def _replace(workspace: Workspace, table: str, rows: Callable[[Snapshot], list[dict[str, Any]]]) -> None:
    """Replace the rows of a table, as a version of its own in which the stage is out of date."""
    while True:
        head = workspace.head()
        made = pa.Table.from_pylist(rows(Snapshot(workspace, head)), schema=SCHEMAS[table])
        files = [workspace.write(table, made)] if made.num_rows else []
        try:
            workspace.commit(head, {table: files}, keys={NAME: ""})
            return
        except HeadConflict:
            continue


def _pass_rows(snapshot: Snapshot) -> list[PassRow]:
    rows = snapshot.sql("select task_id, model, n, n_passed, d_orch from pass_rates order by task_id, model").to_pylist()
    return [PassRow(**row) for row in rows]


def _run(snapshot: Snapshot, progress: Progress) -> Rows:
    progress(0.1, "counting attempts")
    cells = _with_d_orch(_merged(attempts_of(snapshot), _pass_rows(snapshot)))
    progress(0.4, "features of tasks")
    predictions = _predictions(snapshot, cells)
    known = [_known(cell, predictions.get(cell.source)) for cell in cells]
    progress(0.7, "stages")
    source = _main_source(known)
    repeated = [one for one in known if one.source == source and one.cell.n > 1 and one.cell.d_orch is not None]
    reference = stored_reference(snapshot) or median_reference(
        [(one.d_req, one.cell.d_orch) for one in repeated if one.d_req is not None and one.cell.d_orch is not None],
        of=f"tasks and models, {source}", version=snapshot.head.data_version,
    )  # fmt: skip
    tried = [Tried(*one.cell[:1], *one.cell[2:4], one.cell.d_orch) for one in repeated if one.cell.d_orch is not None]
    fit = fit_joint(tried, rng=stream(0, NAME, "joint"))
    rows = [_row(one, reference, fit) for one in known]
    said = {name: msgspec.structs.replace(found, d_req={}) for name, found in predictions.items()}
    return {
        "difficulty": rows,
        "difficulty_runs": [{
            "reference": None if reference is None else _json(reference),
            "fit": _json({"joint": fit, "source": source, "predicted": said}),
            "notes": _json(_notes(rows, reference)),
        }],
    }  # fmt: skip


def _merged(tried: Iterable[Attempts], stated: Iterable[PassRow]) -> list[Attempts]:
    """The cells of both, sorted; where a table states a task and model, its counts stand alone."""
    cells = {(cell.task_id, cell.model): cell for cell in tried}
    for row in stated:
        cell = cells.get((row.task_id, row.model))
        notes = (f"{cell.n:,} {cell.source} are left out",) if cell is not None and cell.n else ()
        d_orch = cell.d_orch if row.d_orch is None and cell is not None else row.d_orch
        cells[row.task_id, row.model] = Attempts(*row[:4], _TABLE, d_orch=d_orch, notes=notes)
    return [cell for _, cell in sorted(cells.items())]


def _with_d_orch(cells: Sequence[Attempts]) -> list[Attempts]:
    """Give a cell without a run of its own the median over the other models that did the task."""
    by_task: dict[str, list[float]] = {}
    for cell in cells:
        if cell.d_orch is not None:
            by_task.setdefault(cell.task_id, []).append(cell.d_orch)
    return [
        cell._replace(
            d_orch=statistics.median(by_task[cell.task_id]), notes=(*cell.notes, "d_orch is that of other models' runs")
        )
        if cell.d_orch is None and cell.task_id in by_task else cell
        for cell in cells
    ]  # fmt: skip


def _predictions(snapshot: Snapshot, cells: Sequence[Attempts]) -> dict[str, Prediction]:
    """For each source of which some cell has runs but no outcome: what its other cells foretell."""
    wanted = {cell.source for cell in cells if not cell.n and cell.source != _TABLE}
    features = features_of(snapshot) if wanted else {}
    return {
        source: predict_difficulty(
            [cell for cell in cells if cell.source == source],
            [(cell.task_id, cell.model) for cell in cells if cell.source == source and not cell.n],
            features=features, rng=stream(0, NAME, "predictor", source),
        )
        for source in sorted(wanted)
    }  # fmt: skip


def _known(cell: Attempts, prediction: Prediction | None) -> _Known:
    cell = cell._replace(d_orch=None if cell.d_orch is None else round(cell.d_orch, 9))
    found = d_req(cell.n_passed, cell.n)
    if found is not None:
        assert found.low is not None
        assert found.high is not None
        return _Known(cell, cell.source, round(found.value, 9), round(found.low, 9), round(found.high, 9))
    predicted = prediction.d_req.get((cell.task_id, cell.model)) if prediction is not None else None
    return _Known(cell, cell.source if predicted is None else _PREDICTED, predicted, None, None)


def _main_source(known: Sequence[_Known]) -> str:
    """What most repeated attempts come from: thresholds and the fit are of one source, never of two mixed."""
    counts = Counter([one.source for one in known if one.cell.n > 1 and one.cell.d_orch is not None])
    return min(counts, key=lambda source: (-counts[source], source), default="no attempts")


def _row(one: _Known, reference: Reference | None, fit: JointFit) -> dict[str, Any]:
    cell, hard, orch = one.cell, one.d_req, one.cell.d_orch
    stage = joint = None
    if reference is not None and hard is not None and orch is not None:
        stage = stage_of(hard, orch, tau_r=reference.tau_r, tau_o=reference.tau_o)
        joint = joint_difficulty(hard, orch, reference, fit)
    reasons = [*_missing(one, reference), *cell.notes]
    if reference is not None and one.low is not None and one.high is not None and one.low <= reference.tau_r < one.high:
        reasons.append("the interval of d_req holds its threshold")
    return {
        "task_id": cell.task_id, "model": cell.model, "source": one.source, "stage": stage, "n": cell.n,
        "n_passed": cell.n_passed, "d_req": hard, "low": one.low, "high": one.high, "d_orch": orch,
        "d_partial": None if cell.d_partial is None else round(cell.d_partial, 9),
        "joint": None if joint is None else round(joint, 9), "reason": "; ".join(reasons) or None,
    }  # fmt: skip


def _missing(one: _Known, reference: Reference | None) -> list[str]:
    """Why a task and model has no stage, or less than it seems."""
    said = []
    if one.d_req is None:
        said.append(f"no outcome is known of its {one.cell.n_runs:,} runs")
    if one.source == _PREDICTED:
        said.append("predicted from features of the task, without an interval")
    if one.cell.d_orch is None:
        said.append("no run of the task has a d_orch")
    elif one.d_req is not None and reference is None:
        said.append(f"no thresholds: fewer than {MIN_CELLS} tasks and models were tried more than once")
    return said


def _notes(rows: Sequence[dict[str, Any]], reference: Reference | None) -> list[str]:
    n_repeated = sum([row["n"] > 1 for row in rows])
    n_staged = sum([row["stage"] is not None for row in rows])
    said = [f"{len(rows):,} tasks and models: {n_repeated:,} tried more than once, {n_staged:,} in a stage"]
    if reference is not None:
        weights = f", weights {reference.weights[0]:g} and {reference.weights[1]:g}" if reference.joint == "linear" else ""
        said.append(
            f"hard above d_req {reference.tau_r:.4g}, d_orch {reference.tau_o:.4g} ({reference.name}); joint: "
            f"{reference.joint}{weights}"
        )
    return said


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


CURRICULUM = CorpusStage(NAME, VERSION, TABLES, ("quality",), _run)
