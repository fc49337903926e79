"""Data sets of a workspace: curated from its newest version, stored whole under a name, reviewed by people.

Decides what a data set keeps alive: the version it was made from, whose files `vacuum` then leaves alone. Hidden here: how a data
set replaces the one of its name while other data sets, and other writers, stay as they are.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from analysis.curation.curate import Curated, curate
from analysis.curation.funnel import REVIEW, TAKEN_BACK, Review, Verdict, read_reviews
from analysis.curation.policy import Policy
from analysis.errors import HeadConflict, PolicyError
from analysis.pipeline.curation_frame import frame_of, scope
from analysis.pipeline.curation_parts import parts_of, ties_of
from analysis.pipeline.stages import Progress
from analysis.workspace import SCHEMAS, File, Head, Snapshot, Workspace
from analysis.workspace.heads import PIN

TABLES = ("datasets", "dataset_rows", "dataset_segments", "funnel")
PREVIEW_ROWS = 2_000
_NAME = re.compile(r"[\w][\w.-]{0,79}")


def curate_workspace(
    workspace: Workspace, policy: Policy, *, name: str, progress: Progress = lambda share, text: None
) -> dict[str, Any]:
    """Curate the newest version and store the data set under a name, in one commit; return its report.

    A data set of which nothing stays and nobody is asked is not stored, so that it never replaces another one;
    `report["gist"]` says what to change.

    Raises
    ------
    PolicyError
        If the name is none, or the policy does not fit the data.
    """
    if not _NAME.fullmatch(name):
        hint = "use letters, digits, `-`, `_` and `.`, at most 80"
        raise PolicyError("dataset", "this is no name of a data set", got=name, hint=hint)
    snapshot = Snapshot(workspace)
    progress(0.0, "curate: reading and judging traces")
    found = _curated(snapshot, policy)
    counts = found.report["counts"]
    if counts["input"] > counts["dropped"]:
        progress(0.9, "curate: storing")
        store_dataset(workspace, snapshot, name=name, policy=policy, curated=found)
    progress(1.0, "curate: done")
    return found.report


def preview(snapshot: Snapshot, policy: Policy, n: int = PREVIEW_ROWS) -> Curated:
    """Return what a policy makes of `n` traces drawn by the hash of their ids; stores nothing. Raises PolicyError."""
    return _curated(snapshot, policy, n=n)


def reviews_of(snapshot: Snapshot) -> dict[str, Review]:
    """Return what people decided about traces, by id: the last decision of each."""
    rows = snapshot.sql("select * from decisions where what in ($review, $back)", {"review": REVIEW, "back": TAKEN_BACK})
    return read_reviews(rows.to_pylist())


def _curated(snapshot: Snapshot, policy: Policy, *, n: int | None = None) -> Curated:
    taken = scope(snapshot, policy, n=n)
    return curate(
        frame_of(snapshot, policy, taken), policy, parts=parts_of(snapshot, policy, taken), ties=ties_of(snapshot, taken),
        reviews=reviews_of(snapshot),
    )  # fmt: skip


def store_dataset(workspace: Workspace, snapshot: Snapshot, *, name: str, policy: Policy, curated: Curated) -> None:
    """Store a data set made from a snapshot, in one commit; the one of that name is replaced, all others stay."""
    counts = {f"n_{key}": n for key, n in curated.report["counts"].items()}
    row: dict[str, Any] = {
        "dataset": name,
        "policy": policy.toml,
        "policy_digest": policy.digest,
        "data_version": snapshot.head.data_version,
    }
    row |= {"report": msgspec.json.encode(curated.report).decode(), "seed": policy.seed, **counts}
    tables = {"datasets": pa.Table.from_pylist([row], schema=SCHEMAS["datasets"])}
    for table, frame in (("dataset_rows", curated.rows), ("dataset_segments", curated.segments), ("funnel", curated.funnel)):
        tables[table] = pa.Table.from_pandas(frame.assign(dataset=name), schema=SCHEMAS[table], preserve_index=False)
    _replace(workspace, name, tables, {f"{PIN}{name}": str(snapshot.head.number)})


def remove_dataset(workspace: Workspace, name: str) -> None:
    """Remove a data set; what it kept alive may go with the next `vacuum`. Raises PolicyError if it is not there."""
    if name not in dataset_names(Snapshot(workspace)):
        raise PolicyError("dataset", "no data set has this name", got=name)
    _replace(workspace, name, {table: SCHEMAS[table].empty_table() for table in TABLES}, {f"{PIN}{name}": ""})


def dataset_names(snapshot: Snapshot) -> list[str]:
    """Return the names of the data sets, sorted."""
    names: list[str] = snapshot.sql("select dataset from datasets order by dataset")["dataset"].to_pylist()
    return names


def dataset_head(workspace: Workspace, name: str) -> Head:
    """Return the version that a data set was made from. Raises PolicyError if no data set has the name."""
    head = workspace.head()
    number = head.keys.get(f"{PIN}{name}")
    if not number:
        known = ", ".join(dataset_names(Snapshot(workspace, head))) or "none: `counterpoint curate` makes one"
        raise PolicyError("dataset", "no data set has this name", got=name, expected=known)
    return workspace.head_at(int(number))


def store_review(
    workspace: Workspace, trace_id: str, verdict: str, *, author: str, mask: Sequence[str] = (), note: str = ""
) -> None:
    """Note what a person decided about a trace: keep, drop, or edit, which masks components; it holds in every later curation.

    Raises
    ------
    PolicyError
        If the verdict is none of these, an edit masks nothing, or the trace has no such component.
    UnknownNameError
        If there is no such trace.
    """
    snapshot = Snapshot(workspace)
    trace_id = snapshot.resolve(trace_id)
    names: list[str] = pc.unique(snapshot.rows("agents", [trace_id])["component"]).to_pylist()
    if unknown := sorted(set(mask) - set(names)):
        raise PolicyError(f"review of {trace_id}", "no such component", got=unknown[0], expected=", ".join(sorted(names)))
    try:
        value = Verdict(verdict=verdict, mask=tuple(sorted(set(mask))), note=note)
    except ValueError as error:
        raise PolicyError(f"review of {trace_id}", str(error)) from None
    _decide(workspace, trace_id, REVIEW, msgspec.json.encode(value).decode(), author)


def take_back_review(workspace: Workspace, trace_id: str, *, author: str) -> None:
    """Note that nothing is decided about a trace any more. Raises PolicyError where nothing was."""
    if trace_id not in reviews_of(Snapshot(workspace)):
        raise PolicyError(f"review of {trace_id}", "there is none to take back")
    _decide(workspace, trace_id, TAKEN_BACK, "", author)


def _decide(workspace: Workspace, trace_id: str, what: str, value: str, author: str) -> None:
    row = {"decision_id": uuid.uuid4().hex, "trace_id": trace_id, "event_id": "", "what": what, "value": value, "author": author}
    row["made_at"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    workspace.append("decisions", pa.Table.from_pylist([row], schema=SCHEMAS["decisions"]))


def _replace(workspace: Workspace, name: str, tables: Mapping[str, pa.Table], keys: Mapping[str, str]) -> None:
    new = {table: [workspace.write(table, data)] if data.num_rows else [] for table, data in tables.items()}
    while True:
        head = workspace.head()
        files = {table: [*_of_others(workspace, head, table, name), *mine] for table, mine in new.items()}
        with contextlib.suppress(HeadConflict):
            workspace.commit(head, files, keys=keys)
            return


def _of_others(workspace: Workspace, head: Head, table: str, name: str) -> list[File]:
    """The files of a table that are of other data sets: each holds one data set only."""
    return [file for file in head.tables.get(table, ()) if workspace.read([file], ["dataset"])["dataset"][0].as_py() != name]
