"""An export holds what a data set keeps, in its order, with its masks, weights, credit and reasons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.counterfactual.dataset import PairRow
from analysis.errors import BusyError, TrainingError
from analysis.model import Agent, Counterfactual, Event, Outcome, Task, Trace
from analysis.pipeline import export_runs, import_paths
from analysis.pipeline.exporting import Options, export
from analysis.processes import alone
from analysis.training import bundle
from analysis.training.bundle import read_rows
from analysis.training.rows import Row
from analysis.workspace import SCHEMAS, Snapshot, Workspace
from tests.pipeline.corpus import write_traces

HERE = Options(workers=1)


def run(name: str, task: str, *, text: str | None = None, **fields: Any) -> Trace:
    """Return a run of a lead that hands a task to a coder, who writes its address into the answer."""
    events = (
        Event(event_id="d", kind="delegate", agent_id="lead", targets=("coder",), content=f"Do {task}.", order=0),
        Event(event_id="w", kind="communicate", agent_id="coder", targets=("lead",), content=f"{task}: ann@firm.com", order=1),
        Event(event_id="s", kind="stop", agent_id="lead", content="Done.", parents=("w",), order=2),
    )
    agents = (
        Agent(agent_id="lead", component="planner", model="m"),
        Agent(agent_id="coder", component="coder", parent_id="lead"),
    )
    return Trace(
        trace_id=f"counterpoint:{name}", world="simulated", task=Task(task_id=task, text=text or f"Please do {task}."),
        agents=agents, events=events, outcome=Outcome(passed=True), **fields,
    )  # fmt: skip


TRACES = [run(f"r{n}", f"task-{'abcdefgh'[n % 8]}{n % 8}") for n in range(24)]


def workspace_of(folder: Path, traces: Sequence[Trace]) -> Workspace:
    workspace = Workspace(folder / "w", create=True)
    import_paths(workspace, [write_traces(folder / f"{len(traces)}.jsonl", traces)])
    return workspace


def store(workspace: Workspace, **tables: list[dict[str, Any]]) -> None:
    for name, rows in tables.items():
        workspace.append(name, pa.Table.from_pylist(rows, schema=SCHEMAS[name]))


@pytest.fixture
def curated(tmp_path: Path) -> Workspace:
    """24 runs, of which a data set keeps 22 in the reverse order, masks one and drops two."""
    workspace = workspace_of(tmp_path, TRACES)
    ids = [trace.trace_id for trace in reversed(TRACES)]
    kept = {"outcome": "kept", "weight": 0.5, "stage": "individual"}
    rows = [{"trace_id": i, "position": n, **kept} for n, i in enumerate(ids[:22])]
    rows += [{"trace_id": ids[22], "outcome": "dropped"}, {"trace_id": ids[23], "outcome": "queued"}]
    effect = {
        "study": "e", "metric": "passed", "operator": "stop-later", "world": "simulated", "evidence": "simulated",
        "confirmed": False, "trace_id": ids[0], "event_id": "s", "seed_block": "screen",
    }  # fmt: skip
    failed = {"gate": "coherence", "outcome": "dropped", "reason": "above", "value": 0.5, "threshold": 0.3}
    last = {"trace_id": ids[0], "level": "component", "is_last": True}
    store(
        workspace,
        datasets=[{"dataset": "d", "policy": "gates = []", "policy_digest": "x", "seed": 1}],
        dataset_rows=[{"dataset": "d", **row} for row in rows],
        dataset_segments=[
            {"dataset": "d", "trace_id": ids[0], "component": "coder", "event_id": "", "keep": False, "weight": 0.0},
            {"dataset": "d", "trace_id": ids[1], "component": "planner", "event_id": "s", "keep": True, "weight": 3.0},
        ],
        funnel=[{"dataset": "d", "trace_id": ids[22], "place": 0, **failed}],
        effects=[
            effect | {"delta_q": -0.5, "low": -0.9, "high": -0.1, "n": 4}, effect | {"operator": "x", "delta_q": 0.0, "n": 12},
            effect | {"evidence": "observational", "delta_q": 9.0, "n": 1},
            effect | {"study": "unsound", "evidence": "interventional", "delta_q": 9.0, "n": 99},
        ],
        effect_runs=[{"study": "e", "is_sound": True}, {"study": "unsound", "is_sound": False}],
        residuals=[{**last, "residual": 0.2, "residual_norm": 0.4}],
        attribution=[{**last, "component": "coder", "energy": 0.03}, {**last, "component": "planner", "energy": 0.01}],
        difficulty=[{"task_id": "task-h7", "model": "m", "source": "runs", "n": 8, "d_req": 0.25, "d_orch": 0.5},
                    {"task_id": "task-h7", "model": "other", "source": "runs", "n": 90, "d_req": 0.9, "d_orch": 0.9}],
        family_members=[{"trace_id": ids[0], "family_id": "f1"}],
    )  # fmt: skip
    return workspace


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def by_id(out: Path) -> dict[str, Row]:
    return {row.row_id: row for row in read_rows(out)}


def test_rows_are_in_the_order_of_the_data_set_with_all_that_is_known(curated: Workspace, tmp_path: Path) -> None:
    manifest = export(curated, "d", tmp_path / "b", options=HERE).manifest
    rows = by_id(tmp_path / "b")
    assert (manifest["n_rows"], manifest["n_drops"]) == (43, 3)  # two rows a trace, one of them masked whole
    for split in ("train", "test"):
        keys = [row.order_key for row in read_rows(tmp_path / "b", split=split)]
        assert keys == sorted(keys)
    first = rows["counterpoint:r23#lead#0"]
    assert "counterpoint:r23#coder#0" not in rows
    assert [(e.event_id, e.credit, e.credit_se, e.n, e.method) for e in first.events if e.event_id == "s"] == [
        ("s", 0.125, None, 16, "simulated")
    ]
    assert (first.residual_norm, first.residual_share) == (0.4, {"coder": 0.75, "planner": 0.25})
    assert (first.d_req, first.d_orch) == (0.25, 0.5)
    assert (first.order_key, first.stage, first.family, first.reward, first.task_id) == (0, "individual", "f1", 1.0, "task-h7")
    assert rows["counterpoint:r22#lead#0"].weight == [0.5, 0.5, 0.5, 1.5]
    assert first.weight == [0.5] * 4


def test_everything_that_is_left_out_says_why(curated: Workspace, tmp_path: Path) -> None:
    export(curated, "d", tmp_path / "b", options=HERE)
    assert [tuple(row.values()) for row in pq.read_table(tmp_path / "b" / "drops.parquet").to_pylist()] == [
        ("counterpoint:r0", "queued", "queued", None, None),
        ("counterpoint:r1", "coherence", "above", 0.5, 0.3),
        ("counterpoint:r23#coder#0", "mask", "every message is masked", None, None),
    ]


def test_secrets_are_taken_out_unless_they_are_wanted(curated: Workspace, tmp_path: Path) -> None:
    assert export(curated, "d", tmp_path / "a", options=HERE).manifest["redacted"] == {"email": 22}
    export(curated, "d", tmp_path / "b", options=Options(workers=1, redact=False))
    clean, plain = by_id(tmp_path / "a")["counterpoint:r9#coder#0"], by_id(tmp_path / "b")["counterpoint:r9#coder#0"]
    assert clean.messages[-1]["content"] == "task-b1: [redacted:email]"
    assert plain.messages[-1]["content"] == "task-b1: ann@firm.com"
    assert clean.source_sha256 == plain.source_sha256
    (event,) = [e for e in clean.events if e.event_id == "w"]
    assert (event.char_from, event.char_to) == (0, len(clean.messages[-1]["content"]))


def test_the_same_export_gives_the_same_bytes_cut_into_however_many_runs(
    curated: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(curated, "d", tmp_path / "a", formats=["csv"], options=HERE)
    monkeypatch.setattr(export_runs, "TRACES_A_RUN", 3)
    monkeypatch.setattr(export_runs, "_GROUP", 2)
    export(curated, "d", tmp_path / "b", formats=["csv"], options=HERE)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_two_processes_write_what_one_writes(curated: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_runs, "TRACES_A_RUN", 5)
    monkeypatch.setattr(bundle, "SHARD_ROWS", 7)
    for n in (1, 2):
        export(curated, "d", tmp_path / str(n), options=Options(workers=n))
    assert files(tmp_path / "1") == files(tmp_path / "2")


def test_shards_hold_the_rows_of_a_split_in_their_order(
    curated: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(curated, "d", tmp_path / "whole", options=HERE)
    for module, name, value in ((export_runs, "TRACES_A_RUN", 3), (bundle, "SHARD_ROWS", 7), (bundle, "GROUP_ROWS", 2)):
        monkeypatch.setattr(module, name, value)
    splits = export(curated, "d", tmp_path / "b", options=HERE).manifest["splits"]
    sizes = {split: [file["n_rows"] for file in about["files"]] for split, about in splits.items()}
    assert list(read_rows(tmp_path / "b")) == list(read_rows(tmp_path / "whole"))
    assert sum(map(sum, sizes.values())) == 43
    assert all(n == 7 for split in sizes.values() for n in split[:-1])
    assert max(map(len, sizes.values())) > 2


def test_a_folder_is_exported_into_by_one_alone_and_keeps_nothing_of_what_was_killed(curated: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "b"
    export(curated, "d", tmp_path / "whole", options=HERE)
    out.mkdir()
    (out / ".begun.part").write_text("ha", encoding="utf-8")  # killed as it began
    with alone(out), pytest.raises(BusyError, match="another process, it is not known which, writes here - wait until it ends"):
        export(curated, "d", out, options=HERE)
    export(curated, "d", out, options=HERE)
    (out / ".runs").mkdir()  # killed after its last file
    export(curated, "d", out, options=HERE)
    assert files(out) == files(tmp_path / "whole")
    assert not (out / ".runs").exists()


def test_an_export_that_was_stopped_goes_on(curated: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_runs, "TRACES_A_RUN", 3)
    export(curated, "d", tmp_path / "whole", options=HERE)

    def stop(share: float, text: str) -> None:
        if share > 0.3:
            raise KeyboardInterrupt

    for _ in range(2):  # while runs are made, and before shards are written
        with pytest.raises(KeyboardInterrupt):
            export(curated, "d", tmp_path / "b", options=HERE, progress=stop)
    export(curated, "d", tmp_path / "b", options=HERE)
    assert files(tmp_path / "b") == files(tmp_path / "whole")


def test_growth_changes_no_split_and_no_group_has_two(tmp_path: Path) -> None:
    shares = Options(workers=1, shares={"train": 0.5, "test": 0.5})
    workspace = workspace_of(tmp_path, TRACES)
    export(workspace, None, tmp_path / "before", options=shares)
    child = Counterfactual(parent_trace_id="counterpoint:r0", event_id="s", operator="stop-later")
    joins = [run(f"j{n}", f"task-{'abcdefgh'[n]}{n}", text=f"Please do task-{'hgfedcba'[n]}{7 - n}.") for n in range(8)]
    more = [*joins, run("child", "task-new", counterfactual=child), *(run(f"n{n}", f"other-{n}") for n in range(4))]
    import_paths(workspace, [write_traces(tmp_path / "more.jsonl", more)])
    export(workspace, None, tmp_path / "after", options=shares)
    before, after = by_id(tmp_path / "before"), by_id(tmp_path / "after")
    assert {i: row.split for i, row in before.items()} == {i: after[i].split for i in before}
    assert len({(row.group, row.split) for row in after.values()}) == len({row.group for row in after.values()})
    assert after["counterpoint:child#lead#0"].split == before["counterpoint:r0#lead#0"].split
    left_out = pq.read_table(tmp_path / "after" / "drops.parquet").to_pylist()
    assert {row["stage"] for row in left_out} == {"split"}


def test_pairs_go_where_their_trace_goes(curated: Workspace, tmp_path: Path) -> None:
    def pair(trace_id: str) -> PairRow:
        said = [{"role": "assistant", "content": "ask ann@firm.com"}]
        return PairRow(
            pair_id=trace_id, trace_id=trace_id, task_id="t", event_id="s", event_kind="stop", operator="stop-later",
            parameters="{}", metric="passed", agent="lead", prompt=[], original=said, counterfactual=said, delta_q=0.5,
            credit=-0.5, better="higher", low=0.1, high=0.9, n=8, evidence="interventional", world="simulated",
            seed_block="confirm", confirmed=True, split="",
        )  # fmt: skip

    given = [pair("counterpoint:r9"), pair("counterpoint:r0")]
    found = export(curated, "d", tmp_path / "b", formats=["counterfactual"], pairs=given, options=HERE)
    assert sum(found.views["counterfactual"].records.values()) == 1
    assert b"ann@firm.com" not in b"".join(files(tmp_path / "b" / "views").values())


@pytest.mark.parametrize(
    ("dataset", "formats", "filter", "said"),
    [
        ("x", [], "", "no data set has this name \\(got x, expected d\\)"),
        ("d", ["trl"], "", "no such format \\(got trl, expected trl-sft, "),
        (None, ["trl-dpo"], "task:task-b1", "made of counterfactual pairs, and there are none"),
        (None, [], "passed:no", "no trace is left to export"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_words(
    curated: Workspace, tmp_path: Path, dataset: str | None, formats: list[str], filter: str, said: str
) -> None:
    with pytest.raises(TrainingError, match=said):
        export(curated, dataset, tmp_path / "b", formats=formats, options=msgspec.structs.replace(HERE, filter=filter))


def test_a_data_set_is_read_from_the_version_it_was_made_of(curated: Workspace, tmp_path: Path) -> None:
    head = Snapshot(curated).head
    curated.commit(head, {}, keys={"pin:d": str(head.number)})
    changed = [msgspec.structs.replace(trace, outcome=Outcome(passed=False)) for trace in TRACES[9:10]]
    import_paths(curated, [write_traces(tmp_path / "changed.jsonl", changed)])
    export(curated, "d", tmp_path / "b", options=HERE)
    assert by_id(tmp_path / "b")["counterpoint:r9#lead#0"].reward == 1.0
