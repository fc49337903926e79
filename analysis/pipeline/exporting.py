"""Export: a data set, or the traces of a filter, as a bundle and as views of it.

Decides what the recipe states, and in which order what is made: runs of rows, shards, views. The same export into the same
folder goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from analysis.counterfactual.dataset import PairRow
from analysis.errors import TrainingError
from analysis.pipeline.effects import stored_pairs
from analysis.pipeline.export_choice import Chosen, choose
from analysis.pipeline.export_facts import CREDIT_RULE, TABLES, Known, digests
from analysis.pipeline.export_runs import Run, jobs_of, make_runs, workers
from analysis.pipeline.export_shards import write_shards
from analysis.pipeline.stages import Progress
from analysis.processes import alone
from analysis.redaction import Redactor
from analysis.training.bundle import begin, digest_of, finish, read_rows
from analysis.training.formats import View, views
from analysis.training.splits import RULE, SHARES
from analysis.workspace import Workspace

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
    BusyError
        If another process exports into the folder.
    """
    options = options or Options()
    known = views(tokenizer=options.tokenizer, metric=options.metric) if formats else {}
    if unknown := [name for name in formats if name not in known]:
        raise TrainingError("--format", "no such format", got=unknown[0], expected=", ".join(known))
    progress(0.0, "export: choosing")
    chosen = choose(workspace, dataset, options.filter, shares=options.shares)
    if paired := [name for name in formats if known[name].takes == "pairs"]:
        given = stored_pairs(chosen.newest, chosen.wanted["trace_id"].to_pylist()) if pairs is None else pairs
        if not given:
            hint = "run `counterpoint effects` on these traces first"
            raise TrainingError("--format", "made of counterfactual pairs, and there are none", got=paired[0], hint=hint)
    recipe = _recipe(chosen, dataset, options)
    splits = dict(zip(*(chosen.wanted[name].to_pylist() for name in ("trace_id", "split")), strict=True)) if paired else {}
    out.mkdir(parents=True, exist_ok=True)
    with alone(out):
        manifest = _bundle(chosen, out, recipe, dataset=dataset, options=options, progress=progress)
        found = {}
        for n, name in enumerate(formats):
            progress(0.7 + 0.3 * n / len(formats), f"export: {name}")
            records = _paired(given, splits, options) if name in paired else read_rows(out)
            found[name] = _view(known[name], records, out / "views" / name)
    progress(1.0, "export: done")
    return Exported(manifest, found)


def _bundle(
    chosen: Chosen, out: Path, recipe: Mapping[str, Any], *, dataset: str | None, options: Options, progress: Progress
) -> dict[str, Any]:
    runs = out / _RUNS
    if (done := begin(out, digest_of(recipe))) is not None:
        shutil.rmtree(runs, ignore_errors=True)
        return done
    runs.mkdir(exist_ok=True)
    ids = chosen.wanted["trace_id"].to_pylist()
    with workers(options.workers, len(ids)) as pool:
        jobs = jobs_of(chosen.pinned, ids, runs, patterns=options.patterns if options.redact else None)
        known = Known(chosen.pinned, chosen.newest, chosen.wanted, dataset=dataset, metric=options.metric)
        made = make_runs(jobs, known.facts, pool, lambda share: progress(0.55 * share, f"export: rows of {len(ids):,} traces"))
        files = [Path(job.out) for job in jobs]
        shards = write_shards(files, out, pool, lambda share: progress(0.55 + 0.15 * share, "export: shards"))
    drops = sorted([*chosen.drops, *(drop for run in made for drop in run.drops)], key=lambda drop: drop[:3])
    n_chosen = len(ids) + sum(drop.stage == "split" for drop in chosen.drops)
    about: dict[str, Any] = {"n_traces": {"chosen": n_chosen, "written": sum(run.n_traces for run in made)}}
    about |= {"redacted": _counts(made)} if options.redact else {}
    manifest = finish(out, recipe, shards, drops=drops, about=about)
    shutil.rmtree(runs)
    return manifest


def _recipe(chosen: Chosen, dataset: str | None, options: Options) -> dict[str, Any]:
    """Return what makes the bundle what it is; of patterns only a hash, as they may name what they hide."""
    policy: dict[str, Any] = {"filter": options.filter}
    inputs = {"data_version": chosen.pinned.head.data_version, **digests(chosen.pinned, TABLES)}
    inputs |= digests(chosen.newest, ("effects", "effect_runs"))
    if dataset is not None:
        query = "select policy, policy_digest, seed from datasets where dataset = $dataset"
        policy = {"dataset": dataset, **chosen.newest.sql(query, {"dataset": dataset}).to_pylist()[0]}
        inputs |= digests(chosen.newest, _DATASET_TABLES, dataset)
    assigned = chosen.wanted.select(["trace_id", "group", "split"])
    return {
        **policy, "inputs": inputs, "metric": options.metric, "credit_rule": CREDIT_RULE, "reward_rule": _REWARD,
        "split_rule": RULE, "split_shares": options.shares, "splits_sha256": _hash_of_rows(assigned),
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


def _hash_of_rows(table: pa.Table) -> str:
    hasher = hashlib.sha256()
    for batch in table.combine_chunks().to_batches(max_chunksize=_AT_ONCE):
        hasher.update(msgspec.json.encode(batch.to_pylist()))
    return hasher.hexdigest()
