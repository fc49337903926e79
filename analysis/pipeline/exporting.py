"""Export: a data set, or the traces of a filter, as a bundle and as views of it.

Decides which version is read (the one that the data set was made from), what keeps its split (the table `splits`, to which
every export adds), and what the recipe states. The same export into the same folder goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from analysis.counterfactual.dataset import PairRow
from analysis.errors import HeadConflict, TrainingError
from analysis.pipeline.curating import dataset_names
from analysis.pipeline.effects import stored_pairs
from analysis.pipeline.export_facts import CREDIT_RULE, TABLES, Wanted, digests, facts_of
from analysis.pipeline.export_runs import Run, jobs_of, make_runs, write_merged
from analysis.pipeline.stages import Progress
from analysis.redaction import Redactor
from analysis.training.bundle import Drop, begin, digest_of, read_rows
from analysis.training.formats import View, views
from analysis.training.labelling import Facts
from analysis.training.splits import RULE, SHARES, Assigned, Case, assign
from analysis.workspace import SCHEMAS, Head, Snapshot, Workspace
from analysis.workspace.filters import where
from analysis.workspace.heads import PIN
from analysis.workspace.listing import metric_names

_RUNS = ".runs"
_AT_ONCE = 5_000  # rows that become objects of Python at once
_DATASET_TABLES = ("dataset_rows", "dataset_segments", "funnel")
_REWARD = "the score on the scale that the source states, in [0, 1]; else 1 or 0 for passed; absent where neither is known"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How an export is made; all but `workers` and `tokenizer` are part of its recipe.

    filter : the traces where no data set is named; redact, patterns : whether secrets are taken out, and patterns of one's own
    metric : whose credit events have; shares : split -> share of the components; tokenizer : a folder, for token views
    """

    filter: str = ""
    redact: bool = True
    patterns: tuple[str, ...] = ()
    metric: str = "passed"
    shares: dict[str, float] = msgspec.field(default_factory=lambda: dict(SHARES))
    workers: int = 2
    tokenizer: str | None = None


class Viewed(msgspec.Struct, frozen=True):
    """What a view holds: records by split, and the rows its target would refuse, by reason."""

    records: dict[str, int]
    refused: dict[str, int]


class Exported(NamedTuple):
    """The manifest of the bundle, and what each view holds."""

    manifest: dict[str, Any]
    views: dict[str, Viewed]


class _Chosen(NamedTuple):
    """What is exported, sorted by trace_id, and the versions that it is read from."""

    pinned: Snapshot
    newest: Snapshot
    wanted: list[Wanted]
    drops: list[Drop]


def export(
    workspace: Workspace,
    dataset: str | None,
    out: Path,
    *,
    formats: Sequence[str] = (),
    pairs: Sequence[PairRow] | None = None,
    options: Options | None = None,
    progress: Progress = lambda share, text: None,
) -> Exported:
    """Write a bundle, and views of it below `views/`.

    Parameters
    ----------
    dataset : the name of a curated data set; None exports the traces of `options.filter` as they are, all with weight 1
    formats : the views that are wanted, by name
    pairs : counterfactual pairs, for the views made of them; None takes those of the studies in the workspace. Their split is
        that of their trace, and those of traces that are not exported are left out

    Raises
    ------
    TrainingError
        If there is no such data set or view, nothing to export, or the folder holds something else.
    """
    options = options or Options()
    known = views(tokenizer=options.tokenizer, metric=options.metric) if formats else {}
    if unknown := [name for name in formats if name not in known]:
        raise TrainingError("--format", "no such format", got=unknown[0], expected=", ".join(known))
    progress(0.0, "export: choosing")
    chosen = _chosen(workspace, dataset, options)
    if paired := [name for name in formats if known[name].takes == "pairs"]:
        given = stored_pairs(chosen.newest, [one.trace_id for one in chosen.wanted]) if pairs is None else pairs
        if not given:
            hint = "run `counterpoint effects` on these traces first"
            raise TrainingError("--format", "made of counterfactual pairs, and there are none", got=paired[0], hint=hint)
    recipe = _recipe(chosen, dataset, options)
    manifest = _bundle(chosen, out, recipe, dataset=dataset, options=options, progress=progress)
    splits = {one.trace_id: one.split for one in chosen.wanted}
    found = {}
    for n, name in enumerate(formats):
        progress(0.7 + 0.3 * n / len(formats), f"export: {name}")
        records = _paired(given, splits, options) if name in paired else read_rows(out)
        found[name] = _view(known[name], records, out / "views" / name)
    progress(1.0, "export: done")
    return Exported(manifest, found)


def _bundle(
    chosen: _Chosen, out: Path, recipe: Mapping[str, Any], *, dataset: str | None, options: Options, progress: Progress
) -> dict[str, Any]:
    if (done := begin(out, digest_of(recipe))) is not None:
        return done
    runs = out / _RUNS
    runs.mkdir(exist_ok=True)
    wanted = {one.trace_id: one for one in chosen.wanted}
    jobs = jobs_of(chosen.pinned, wanted.keys(), runs, patterns=options.patterns if options.redact else None)

    def know(ids: Sequence[str]) -> dict[str, Facts]:
        some = [wanted[trace_id] for trace_id in ids]
        return facts_of(chosen.pinned, chosen.newest, some, dataset=dataset, metric=options.metric)

    made = make_runs(
        jobs, know, workers=options.workers, progress=lambda n: progress(0.5 * n / len(jobs), f"export: {n} of {len(jobs)} parts")
    )
    drops = sorted([*chosen.drops, *(drop for run in made for drop in run.drops)], key=lambda drop: drop[:3])
    about = {"redacted": _counts(made)} if options.redact else {}
    progress(0.5, "export: writing shards")
    manifest = write_merged(jobs, out, recipe, drops=drops, about=about, workers=options.workers)
    shutil.rmtree(runs)
    return manifest


def _chosen(workspace: Workspace, dataset: str | None, options: Options) -> _Chosen:
    """Return what is exported with its splits, after these are stored for all later exports."""
    while True:
        newest = Snapshot(workspace)
        pinned = Snapshot(workspace, _pinned(workspace, newest, dataset))
        plain = _of_dataset(newest, dataset) if dataset is not None else _of_filter(newest, options.filter)
        known = _known(newest)
        ids = {one.trace_id for one in plain}
        found, left_out = assign(_cases(pinned, ids | known.keys()), known=known, shares=options.shares)
        if not _stored(workspace, newest.head, {i: found[i] for i in sorted(ids) if i in found and i not in known}):
            continue
        wanted = [one._replace(**found[one.trace_id]._asdict()) for one in plain if one.trace_id in found]
        if not wanted:
            raise TrainingError(dataset or "filter", "no trace is left to export", hint="loosen the policy or the filter")
        drops = [Drop(i, "split", "its task, prompt or ancestor would join two splits") for i in left_out if i in ids]
        return _Chosen(pinned, newest, sorted(wanted), drops + (_dropped(newest, dataset) if dataset is not None else []))


def _stored(workspace: Workspace, head: Head, fresh: Mapping[str, Assigned]) -> bool:
    """Add to the table of splits; not if somebody else was first, whose splits then hold."""
    if not fresh:
        return True
    columns = {"trace_id": list(fresh), **{name: [getattr(one, name) for one in fresh.values()] for name in ("group", "split")}}
    file = workspace.write("splits", pa.table(columns, schema=SCHEMAS["splits"]))
    with contextlib.suppress(HeadConflict):
        workspace.commit(head, {"splits": [*head.tables.get("splits", ()), file]})
        return True
    return False


def _pinned(workspace: Workspace, newest: Snapshot, dataset: str | None) -> Head:
    """Return the version that a data set was made from."""
    if dataset is None:
        return newest.head
    if dataset not in (names := dataset_names(newest)):
        known = ", ".join(names) or "none: `counterpoint curate` makes one"
        raise TrainingError("--dataset", "no data set has this name", got=dataset, expected=known)
    number = newest.head.keys.get(f"{PIN}{dataset}")
    return workspace.head_at(int(number)) if number else newest.head


def _of_dataset(snapshot: Snapshot, dataset: str) -> list[Wanted]:
    query = """select trace_id, position, weight, stage from dataset_rows
        where dataset = $dataset and outcome in ('kept', 'masked') order by trace_id"""
    return [
        Wanted(trace_id, position, 1.0 if weight is None else weight, stage, "", "")
        for trace_id, position, weight, stage in _each(snapshot.sql(query, {"dataset": dataset}))
    ]


def _of_filter(snapshot: Snapshot, filter: str) -> list[Wanted]:
    condition, parameters = where(filter, metrics=metric_names(snapshot))
    ids = snapshot.sql(f"select trace_id from traces where {condition} order by trace_id", parameters)["trace_id"].to_pylist()
    return [Wanted(trace_id, n, 1.0, None, "", "") for n, trace_id in enumerate(ids)]


def _known(snapshot: Snapshot) -> dict[str, Assigned]:
    """Return the splits that traces have from earlier exports; traces of one component share the object."""
    same: dict[tuple[str, str], Assigned] = {}
    rows = _each(snapshot.sql('select trace_id, "group", split from splits'))
    return {trace_id: same.setdefault((group, split), Assigned(group, split)) for trace_id, group, split in rows}


def _cases(snapshot: Snapshot, ids: Collection[str]) -> list[Case]:
    """Return what decides the splits of some traces; equal prompts are one object."""
    rows = snapshot.sql(
        """select trace_id, task_id, task_text, baseline_of, counterfactual ->> '$.parent_trace_id' as parent
        from traces order by trace_id"""
    )
    prompts: dict[str | None, str | None] = {}
    found = []
    for trace_id, task, prompt, *kin in _each(rows):
        if trace_id in ids:
            found.append(Case(trace_id, task, prompts.setdefault(prompt, prompt), tuple([name for name in kin if name])))
    return found


def _each(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table; few of them are objects of Python at once, and equal ids in the first column are one."""
    for batch in table.to_batches(max_chunksize=_AT_ONCE):
        ids, *others = batch.to_pydict().values()
        yield from zip(map(sys.intern, ids), *others, strict=True)


def _dropped(snapshot: Snapshot, dataset: str) -> list[Drop]:
    """Return what curation left out, each with the gate that decided."""
    query = """with decided as (
            select * from funnel where dataset = $dataset and outcome in ('dropped', 'queued')
            qualify row_number() over (partition by trace_id order by place desc) = 1
        )
        select r.trace_id, coalesce(gate, r.outcome) as gate, coalesce(reason, r.outcome) as reason, value, threshold
        from dataset_rows as r left join decided using (dataset, trace_id)
        where r.dataset = $dataset and r.outcome in ('dropped', 'queued') order by r.trace_id"""
    return [Drop(*row.values()) for row in snapshot.sql(query, {"dataset": dataset}).to_pylist()]


def _recipe(chosen: _Chosen, dataset: str | None, options: Options) -> dict[str, Any]:
    """Return what makes the bundle what it is; of patterns only a hash, as they may name what they hide."""
    policy: dict[str, Any] = {"filter": options.filter}
    inputs = {"data_version": chosen.pinned.head.data_version, **digests(chosen.pinned, TABLES)}
    inputs |= digests(chosen.newest, ("effects",))
    if dataset is not None:
        query = "select policy, policy_digest, seed from datasets where dataset = $dataset"
        policy = {"dataset": dataset, **chosen.newest.sql(query, {"dataset": dataset}).to_pylist()[0]}
        inputs |= digests(chosen.newest, _DATASET_TABLES, dataset)
    assigned = [(one.trace_id, one.group, one.split) for one in chosen.wanted]
    return {
        **policy, "inputs": inputs, "metric": options.metric, "credit_rule": CREDIT_RULE, "reward_rule": _REWARD,
        "split_rule": RULE, "split_shares": options.shares, "splits_sha256": _hash(assigned),
        "redaction": {"patterns": len(options.patterns), "patterns_sha256": _hash(options.patterns)} if options.redact else None,
    }  # fmt: skip


def _paired(pairs: Iterable[PairRow], splits: Mapping[str, str], options: Options) -> Iterator[PairRow]:
    """Yield the pairs of traces that are exported, with their split and without secrets."""
    redactor = Redactor(options.patterns)
    for pair in pairs:
        if pair.trace_id in splits:
            arms = {name: getattr(pair, name) for name in ("prompt", "original", "counterfactual")}
            clean = {name: redactor.value(arm) for name, arm in arms.items()} if options.redact else arms
            yield msgspec.structs.replace(pair, split=splits[pair.trace_id], **clean)


def _view(view: View, records: Iterable[Any], folder: Path) -> Viewed:
    """Write a view, unless it is there; its report says that it is whole."""
    report = folder.with_name(f"{folder.name}.json")
    if report.exists():
        return msgspec.json.decode(report.read_bytes(), type=Viewed)
    refused: dict[str, int] = {}

    def taken() -> Iterator[Any]:
        for record in records:
            if problems := view.check(record):
                refused[problems[0]] = refused.get(problems[0], 0) + 1
            else:
                yield record

    folder.mkdir(parents=True, exist_ok=True)
    found = Viewed(view.write(taken(), folder), refused)
    report.write_bytes(msgspec.json.format(msgspec.json.encode(found, order="deterministic"), indent=1) + b"\n")
    return found


def _counts(runs: Sequence[Run]) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in runs:
        for kind, n in run.redacted.items():
            found[kind] = found.get(kind, 0) + n
    return dict(sorted(found.items()))


def _hash(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()
