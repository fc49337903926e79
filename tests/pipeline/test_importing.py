"""Import: exact, idempotent, in any order; what waits joins, what differs is kept apart, what is wrong is counted."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings

from analysis.errors import Problem, UnknownNameError
from analysis.model import Agent, Event, Label, Source, Trace, encode
from analysis.pipeline import FileReport, ImportReport, import_paths
from analysis.workspace import SCHEMAS, Snapshot, Workspace
from analysis.workspace.heads import Head
from benchmarks.simulation import SimulationPolicy, simulate
from tests.pipeline.corpus import (
    all_traces,
    contents,
    files_of,
    named_files,
    question,
    stated,
    write,
    write_annotation,
    write_run,
    write_traces,
)
from tests.strategies import imported_traces


def trace(trace_id: str = "counterpoint:a", **fields: Any) -> Trace:
    return Trace(trace_id=trace_id, world="live", source=Source(format="x"), **fields)


def workspace(folder: Path) -> Workspace:
    return Workspace(folder / "workspace", create=True)


def counts(report: ImportReport) -> tuple[int, int, int, int]:
    return len(report.added), len(report.updated), len(report.unchanged), len(report.waiting)


def problems(store: Workspace) -> list[tuple[str, str, str, str]]:
    rows = Snapshot(store).sql("select code, file, record, trace_id from problems order by all").to_pylist()
    return [(row["code"], row["file"], row["record"], row["trace_id"]) for row in rows]


def export(store: Workspace, path: Path) -> Path:
    return write_traces(path, all_traces(store))


# --- exact


@settings(max_examples=6, deadline=None)
@given(run=imported_traces)
def test_import_of_export_is_the_same_trace(tmp_path_factory: pytest.TempPathFactory, run: list[Trace]) -> None:
    folder = tmp_path_factory.mktemp("exact")
    first, second = Workspace(folder / "1", create=True), Workspace(folder / "2", create=True)
    report = import_paths(first, [write_traces(folder / "in.jsonl", run)])
    assert report.added == sorted(trace.trace_id for trace in run)
    assert report.n_lost == 0
    assert all(Snapshot(first).trace(trace.trace_id) == trace for trace in run)
    import_paths(second, [export(first, folder / "out.jsonl")])
    assert list(map(encode, all_traces(second))) == list(map(encode, all_traces(first)))
    assert all_traces(second) == sorted(run, key=lambda trace: trace.trace_id)


@settings(max_examples=5, deadline=None)
@given(run=imported_traces)
def test_importing_again_and_importing_ones_own_export_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, run: list[Trace]
) -> None:
    folder = tmp_path_factory.mktemp("again")
    store, file = workspace(folder), write_traces(folder / "in.jsonl", run)
    import_paths(store, [file])
    held, before = contents(store), files_of(store)
    for path in (file, export(store, folder / "out.jsonl")):
        report = import_paths(store, [path])
        assert counts(report) == (0, 0, len(run), 0)
        assert (report.version, contents(store), files_of(store)) == (1, held, before)


def test_ones_own_export_is_known_where_the_import_had_to_change_the_trace(tmp_path: Path) -> None:
    undeclared = trace(events=(Event(event_id="e", agent_id="ghost", targets=("other",)),))
    store = workspace(tmp_path)
    file = write_traces(tmp_path / "in.jsonl", [undeclared, trace(extra={"n": 2}), trace(extra={"n": 3})])
    report = import_paths(store, [file])
    assert report.added == ["counterpoint:a", "counterpoint:a~2", "counterpoint:a~3"]
    (first, second, third) = all_traces(store)
    assert first == msgspec.structs.replace(undeclared, agents=tuple(Agent(agent_id=a, component=a) for a in ("ghost", "other")))
    assert [second.extra, third.extra] == [{"n": 2}, {"n": 3}]
    out = export(store, tmp_path / "out.jsonl")
    for paths in ([out], [file, out], [out, file]):
        assert counts(import_paths(store, paths)) == (0, 0, 3, 0)
    fresh = Workspace(tmp_path / "fresh", create=True)
    assert import_paths(fresh, [out, file]).added == report.added
    assert all_traces(fresh) == all_traces(store)


REAL = (
    "whowhen/hand-crafted",
    "agentrx/magentic",
    "compositional/real_agent_results.json",
    "compositional/deployed_agent_haiku.json",
)


@pytest.fixture(scope="module")
def real(shared_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, list[Path], ImportReport]:
    """A few files of each real format, as one workspace."""
    runs = sorted((shared_traces / "whowhen").rglob("*.json*"))
    histories = sorted((shared_traces / "agentrx" / "magentic").iterdir())[:4]
    notes = shared_traces / "agentrx" / "magentic_one_ground_truth.filtered.json"
    quotes = [shared_traces / "compositional" / name for name in ("real_agent_results.json", "deployed_agent_haiku.json")]
    store = Workspace(tmp_path_factory.mktemp("real"), create=True)
    paths = [*runs[:4], *runs[-4:], *histories, notes, *quotes]
    return store, paths, import_paths(store, paths)


def test_real_traces_come_back_from_an_export_equal(real: tuple[Workspace, list[Path], ImportReport], tmp_path: Path) -> None:
    store, _, report = real
    second = workspace(tmp_path)
    assert len(report.added) > 10
    assert {trace_id.partition(":")[0] for trace_id in report.added} == {"whowhen", "composition"}
    assert import_paths(second, [export(store, tmp_path / "out.jsonl")]).added == report.added
    assert list(map(encode, all_traces(second))) == list(map(encode, all_traces(store)))


def test_real_traces_and_their_export_are_found_again(real: tuple[Workspace, list[Path], ImportReport], tmp_path: Path) -> None:
    store, paths, report = real
    held, out = contents(store), export(store, tmp_path / "out.jsonl")
    for again in (paths, [out], [*paths, out]):
        later = import_paths(store, again)
        assert (later.added, later.updated, later.version) == ([], [], report.version)
        assert contents(store) == held


def test_real_files_give_the_same_traces_in_any_order(real: tuple[Workspace, list[Path], ImportReport], tmp_path: Path) -> None:
    store, paths, report = real
    turned, one_by_one = workspace(tmp_path), Workspace(tmp_path / "single", create=True)
    assert import_paths(turned, paths[::-1]).added == report.added
    for path in paths[::-1]:
        import_paths(one_by_one, [path])
    assert all_traces(turned) == all_traces(one_by_one) == all_traces(store)
    assert stated(turned) == stated(one_by_one) == stated(store)


# --- again


def test_a_second_import_adds_nothing_changes_nothing_and_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    write(folder / "a.jsonl", [encode(trace()), b"{oops", encode(trace(extra={"n": 1})), encode(trace())])
    write(folder / "b.txt", [b"no json"])
    write_run(folder, 1)
    write_annotation(folder, 1)
    write_annotation(folder, 2)
    store = workspace(tmp_path)
    first = import_paths(store, [folder])
    held, before = contents(store), files_of(store)
    second = import_paths(store, [folder])
    assert (counts(first), first.version) == ((3, 0, 0, 1), 1)
    assert (counts(second), second.version) == ((0, 0, 3, 1), 1)
    assert (contents(store), files_of(store)) == (held, before)


def test_a_new_problem_alone_makes_a_new_version_once(tmp_path: Path) -> None:
    store, file = workspace(tmp_path), tmp_path / "a.jsonl"
    import_paths(store, [write(file, [encode(trace())])])
    data_version = store.head().data_version
    write(file, [encode(trace()), b"{oops"])
    assert [import_paths(store, [file]).version for _ in range(2)] == [2, 2]
    assert problems(store) == [("bad-json", "a.jsonl", "line 2", "")]
    assert store.head().data_version == data_version
    write(file, [encode(trace())])
    assert [import_paths(store, [file]).version for _ in range(2)] == [3, 3]
    assert problems(store) == []


def test_problems_of_other_files_stay(tmp_path: Path) -> None:
    store = workspace(tmp_path)
    import_paths(store, [write(tmp_path / "a.jsonl", [encode(trace()), b"{oops"]), write(tmp_path / "b.txt", [b"x"])])
    import_paths(store, [write(tmp_path / "c.jsonl", [encode(trace("counterpoint:c")), b"{"])])
    assert [(code, file) for code, file, _, _ in problems(store)] == [
        ("bad-json", "a.jsonl"), ("not-json", "b.txt"), ("truncated", "c.jsonl"),
    ]  # fmt: skip
    import_paths(store, [write(tmp_path / "b.txt", [encode(trace("counterpoint:b"))])])
    assert [file for _, file, _, _ in problems(store)] == ["a.jsonl", "c.jsonl"]


# --- in any order


def test_annotations_wait_for_their_run_and_join_it(tmp_path: Path) -> None:
    store, name = workspace(tmp_path), f"whowhen:hand-{question(1)}"
    note, run = write_annotation(tmp_path, 1), write_run(tmp_path, 1)
    first = import_paths(store, [note])
    assert (first.waiting, first.added, all_traces(store)) == ([name], [], [])
    assert problems(store) == [("waiting", "note-1.json", "document", name)]
    again = import_paths(store, [note])
    assert (again.waiting, again.version) == ([name], 1)
    joined = import_paths(store, [run])
    assert (joined.added, joined.waiting) == ([name], [])
    (held,) = all_traces(store)
    assert [(label.annotator, label.event_id, label.consistency) for label in held.labels] == [
        ("agentrx", "h2", "consistent"), ("agentrx", None, None),
    ]  # fmt: skip
    assert problems(store) == [("id-from-name", run.name, "", name)]
    assert counts(import_paths(store, [note, run])) == (0, 0, 1, 0)


def test_a_label_that_comes_later_updates_the_run_and_keeps_what_reading_found(tmp_path: Path) -> None:
    store, name = workspace(tmp_path), f"whowhen:hand-{question(1)}"
    run = write_run(tmp_path, 1)
    import_paths(store, [run])
    before = all_traces(store)[0]
    report = import_paths(store, [write_annotation(tmp_path, 1)])
    assert (report.updated, report.added) == ([name], [])
    (after,) = all_traces(store)
    assert (before.labels, len(after.labels)) == ((), 2)
    assert msgspec.structs.replace(after, labels=()) == before
    assert problems(store) == [("id-from-name", run.name, "", name)]
    assert import_paths(store, [run]).version == report.version


def test_any_order_of_files_gives_the_same_workspace(tmp_path: Path) -> None:
    files = [write_run(tmp_path, 1), write_annotation(tmp_path, 1), write_annotation(tmp_path, 2), write_run(tmp_path, 3)]
    files.append(write(tmp_path / "more.jsonl", [encode(trace()), encode(trace(extra={"n": 1}))]))
    states = []
    for n, order in enumerate(list(itertools.permutations(files))[::24]):
        together, apart = Workspace(tmp_path / f"t{n}", create=True), Workspace(tmp_path / f"a{n}", create=True)
        import_paths(together, list(order))
        for file in order:
            import_paths(apart, [file])
        states += [contents(together), contents(apart)]
    assert len(states) == 10
    assert all(state == states[0] for state in states)
    assert len(states[0]["traces"]) == 4


# --- the same id


def test_other_content_under_the_same_id_is_kept_apart_and_found_again(tmp_path: Path) -> None:
    store = workspace(tmp_path)
    runs = [trace(extra={"n": n}) for n in (1, 2, 3)]
    file = write_traces(tmp_path / "a.jsonl", [*runs, runs[1]])
    report = import_paths(store, [file])
    assert report.added == ["counterpoint:a", "counterpoint:a~2", "counterpoint:a~3"]
    assert [held.extra["n"] for held in all_traces(store)] == [1, 2, 3]
    assert problems(store) == [
        ("duplicate-record", "a.jsonl", "line 4", ""),
        ("same-id", "a.jsonl", "line 2", "counterpoint:a~2"),
        ("same-id", "a.jsonl", "line 3", "counterpoint:a~3"),
    ]
    assert report.files[0].counts() == {"duplicate-record": 1, "same-id": 2}
    turned = write_traces(tmp_path / "b.jsonl", runs[::-1])
    assert counts(import_paths(store, [file, turned])) == (0, 0, 3, 0)
    assert len(problems(store)) == 3


def test_files_of_one_name_in_two_folders_are_two_files(tmp_path: Path) -> None:
    store = workspace(tmp_path)
    one = write_traces(tmp_path / "1" / "run.jsonl", [trace(extra={"n": 1})])
    two = write_traces(tmp_path / "2" / "run.jsonl", [trace(extra={"n": 2})])
    report = import_paths(store, [one, two])
    assert report.added == ["counterpoint:a", "counterpoint:a~2"]
    assert [held.extra["n"] for held in all_traces(store)] == [1, 2]


@pytest.mark.parametrize("trace_id", ["x:a~2", "x:a~2\n", "x:a~٣", "x:~2", "x:a~2~2", "x:\0~2", "x:" + "é" * 498, "x" * 487])
def test_ids_that_look_like_a_second_run_are_found_again(tmp_path: Path, trace_id: str) -> None:
    store = workspace(tmp_path)
    file = write_traces(tmp_path / "a.jsonl", [trace(trace_id), trace(trace_id, extra={"n": 1})])
    report = import_paths(store, [file])
    assert len(report.added) == 2
    assert any(added.endswith(trace_id) for added in report.added)
    assert counts(import_paths(store, [file, export(store, tmp_path / "out.jsonl")])) == (0, 0, 2, 0)
    fresh = Workspace(tmp_path / "fresh", create=True)
    import_paths(fresh, [tmp_path / "out.jsonl"])
    assert all_traces(fresh) == all_traces(store)


# --- what is reported


def test_a_folder_of_everything_is_reported_file_by_file(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    write(folder / "a.jsonl", [encode(trace()), b"{oops", encode(trace("x:b"))])
    write_run(folder, 1)
    write_annotation(folder, 2)
    write(folder / "b.html", [b"<html>"])
    write(folder / "c.json", [b'{"tasks": []}'])
    (folder / "empty").mkdir()
    report = import_paths(workspace(tmp_path), [folder])
    plain = report.plain()
    files = plain.pop("files")
    assert plain == {
        "traces": 3,
        "updated": 0,
        "unchanged": 0,
        "waiting": 1,
        "by_format": {"counterpoint": 1, "whowhen": 1, "x": 1},
        "skipped": [
            {"file": "runs/b.html", "reason": "this is an HTML page, not data: <html>\n"},
            {"file": "runs/c.json", "reason": "no reader knows this format: JSON document, first record: object with keys tasks"},
        ],
        "version": 1,
    }
    assert [(f["file"], f["format"], f["traces"], f["records"], f["counts"]) for f in files] == [
        (f"runs/{question(1)}.json", "agentrx-history", 1, 1, {"id-from-name": 1}),
        ("runs/a.jsonl", "counterpoint", 2, 2, {"bad-json": 1}),
        ("runs/note-2.json", "agentrx-annotation", 1, 1, {"waiting": 1}),
    ]
    assert files[1]["problems"] == [
        {
            "code": "bad-json", "severity": "lost", "record": "line 2", "trace_id": "", "message": "not valid JSON",
            "got": "Expecting property name enclosed in double quotes at character 1", "expected": "",
            "hint": "mend or remove this record", "n": 1,
        }
    ]  # fmt: skip
    assert report.n_lost == 3
    assert json.loads(json.dumps(plain)) == plain


def test_100_000_bad_lines_are_twenty_rows_and_the_right_number(tmp_path: Path) -> None:
    store = workspace(tmp_path)
    file = write(tmp_path / "a.jsonl", [encode(trace()), *[b"{oops"] * 100_000, *[b'{"a": 1}'] * 3])
    report = import_paths(store, [file])
    assert report.added == ["counterpoint:a"]
    assert report.files[0].counts() == {"bad-json": 100_000, "mixed-format": 3}
    rows = (
        Snapshot(store)
        .sql("select code, count(*) as n_rows, sum(n)::bigint as n from problems group by 1 order by 1")
        .to_pylist()
    )
    assert rows == [{"code": "bad-json", "n_rows": 20, "n": 100_000}, {"code": "mixed-format", "n_rows": 3, "n": 3}]
    assert report.n_lost == 100_003


def test_a_report_counts_every_problem_and_shows_twenty_of_a_kind() -> None:
    report = FileReport(file="f", format="x")
    for n in range(30):
        report.add(Problem(code="bad-json", record=f"line {n}", n=2))
        report.add(Problem(code="orphan", got="x" * 1000))
    assert report.counts() == {"bad-json": 60, "orphan": 30}
    assert [(p.record, p.n) for p in report.problems if p.code == "bad-json"][18:] == [("line 18", 2), ("line 19", 22)]
    assert {len(p.got) for p in report.problems if p.code == "orphan"} == {500}


def test_what_a_reader_of_a_trace_should_know_is_said_once_a_trace(tmp_path: Path) -> None:
    events = (
        Event(event_id="e1", kind="delegate", agent_id="lead", targets=("w1", "w2"), parents=("gone",)),
        Event(event_id="e2", raw_type="mystery"),
        Event(event_id="e3", raw_type="mystery"),
    )
    store = workspace(tmp_path)
    run = msgspec.structs.replace(
        trace(events=events, agents=(Agent(agent_id="lead", component="lead"),)),
        source=Source(format="x", file="of the source", record="7"),
    )
    import_paths(store, [write_traces(tmp_path / "a.jsonl", [run])])
    rows = Snapshot(store).sql("select code, n, got, file, record, trace_id, stage from problems order by code").to_pylist()
    assert [(row["code"], row["n"], row["got"]) for row in rows] == [
        ("opaque-event", 2, "mystery"), ("orphan", 1, "e1"), ("unknown-agent", 2, "w1, w2"),
    ]  # fmt: skip
    assert {(row["file"], row["record"], row["trace_id"], row["stage"]) for row in rows} == {
        ("of the source", "7", "counterpoint:a", "assemble")
    }
    assert [agent.agent_id for agent in all_traces(store)[0].agents] == ["lead", "w1", "w2"]


def test_progress_never_runs_backwards_and_ends_at_one(tmp_path: Path) -> None:
    for n in range(5):
        write_traces(tmp_path / "runs" / f"{n}.jsonl", [trace(f"x:{n}")])
    seen: list[float] = []
    import_paths(workspace(tmp_path), [tmp_path / "runs"], progress=lambda share, text: seen.append(share))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", "gone: no such file or folder - check the path"),
        ("x" * 300, "cannot be read (got File name too long) - check the path"),
    ],
)
def test_a_path_that_is_not_there_is_named_and_nothing_is_written(tmp_path: Path, name: str, message: str) -> None:
    store = workspace(tmp_path)
    with pytest.raises(UnknownNameError) as caught:
        import_paths(store, [write_traces(tmp_path / "a.jsonl", [trace()]), tmp_path / name])
    assert str(caught.value).endswith(message)
    assert files_of(store) == []


def test_a_workspace_below_the_imported_folder_is_no_input(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    write_traces(folder / "a.jsonl", [trace()])
    for name in ("store", "deep/er/store"):
        store = Workspace(folder / name, create=True)
        reports = [import_paths(store, [folder]) for _ in range(3)]
        assert [(len(report.added), len(report.files), report.skipped, report.version) for report in reports] == [
            (1, 1, [], 1), (0, 1, [], 1), (0, 1, [], 1),
        ]  # fmt: skip
    write_traces(folder / "store" / "inbox" / "b.jsonl", [trace("x:b")])
    assert import_paths(store, [folder / "store" / "inbox"]).added == ["x:b"]
    assert import_paths(store, [folder / "store" / "inbox" / "b.jsonl"]).unchanged == ["x:b"]


def test_what_is_neither_a_file_nor_a_folder_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(UnknownNameError, match="neither a file nor a folder - write its content to a file first"):
            import_paths(workspace(tmp_path), [path])


def test_thousands_of_runs_under_one_id_are_kept_apart(tmp_path: Path) -> None:
    store = workspace(tmp_path)
    file = write_traces(tmp_path / "a.jsonl", [trace(extra={"n": n}) for n in range(4000)])
    report = import_paths(store, [file])
    assert len(report.added) == 4000
    assert sorted(held.extra["n"] for held in all_traces(store)) == list(range(4000))
    assert Snapshot(store).trace("counterpoint:a~4000").extra == {"n": 3999}
    assert counts(import_paths(store, [file])) == (0, 0, 4000, 0)


def test_an_empty_folder_is_no_version(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    report = import_paths(workspace(tmp_path), [tmp_path / "runs"])
    assert (counts(report), report.version, report.files) == ((0, 0, 0, 0), 0, [])


# --- versions


def test_the_data_version_changes_with_the_traces_alone(tmp_path: Path) -> None:
    store = workspace(tmp_path)
    versions = [store.head().data_version]
    for n in (1, 2):
        import_paths(store, [write_traces(tmp_path / f"{n}.jsonl", [trace(f"x:{n}")])])
        versions.append(store.head().data_version)
    row = {
        "decision_id": "d",
        "trace_id": "x:1",
        "event_id": "",
        "what": "tag",
        "value": "odd",
        "author": "me",
        "made_at": "2026",
    }
    store.append("decisions", pa.Table.from_pylist([row], schema=SCHEMAS["decisions"]))
    assert len(set(versions)) == 3
    assert store.head().data_version == versions[-1]
    other = Workspace(tmp_path / "other", create=True)
    import_paths(other, [tmp_path / "2.jsonl", tmp_path / "1.jsonl"])
    assert other.head().data_version == versions[-1]


def test_decisions_of_people_survive_a_later_import(tmp_path: Path) -> None:
    store = workspace(tmp_path)
    import_paths(store, [write_run(tmp_path, 1)])
    row = {"decision_id": "d", "trace_id": "x", "event_id": "", "what": "note", "value": "!", "author": "me", "made_at": "2026"}
    store.append("decisions", pa.Table.from_pylist([row], schema=SCHEMAS["decisions"]))
    import_paths(store, [write_annotation(tmp_path, 1)])
    assert Snapshot(store).sql("select * from decisions").to_pylist() == [row]


class _Overtaken(Workspace):
    """A workspace in which another writer commits just before the first commit of this one."""

    def __init__(self, folder: Path, other: list[Path]) -> None:
        super().__init__(folder, create=True)
        self.other = other

    def commit(self, base: Head, tables: Any, **given: Any) -> Head:
        other, self.other = self.other, []
        if other:
            import_paths(Workspace(self.location), other)
        return super().commit(base, tables, **given)


def test_who_loses_the_race_joins_what_the_winner_wrote(tmp_path: Path) -> None:
    ours = write_traces(tmp_path / "ours.jsonl", [trace("x:1"), trace("x:2"), trace("x:2", extra={"n": 2})])
    theirs = write_traces(tmp_path / "theirs.jsonl", [trace("x:2"), trace("x:3")])
    store = _Overtaken(tmp_path / "workspace", [theirs])
    said: list[str] = []
    report = import_paths(store, [ours], progress=lambda share, text: said.append(text))
    assert "another writer was first; joining what it wrote" in said
    assert (report.added, report.unchanged, report.version) == (["x:1", "x:2~2"], ["x:2"], 2)
    assert [held.trace_id for held in all_traces(store)] == ["x:1", "x:2", "x:2~2", "x:3"]
    alone = Workspace(tmp_path / "alone", create=True)
    import_paths(alone, [theirs, ours])
    assert stated(alone) == stated(store)
    assert set(files_of(store)) > named_files(store)  # the files of the lost race are still there
    assert store.vacuum(grace_s=0) > 0
    assert all_traces(store) == all_traces(alone)


def test_labels_of_the_native_format_come_back_in_their_order(tmp_path: Path) -> None:
    labels = tuple(Label(annotator=f"a{n % 3}", name=f"l{n}") for n in range(20))
    store = workspace(tmp_path)
    import_paths(store, [write_traces(tmp_path / "a.jsonl", [trace(labels=labels)])])
    assert all_traces(store)[0].labels == labels


# --- bounded memory


MEASURED = """
import sys
from analysis.cli import main
try:
    main()
finally:
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak_mib(file: Path, store: Path) -> float:
    """The most memory that an import of the file takes, as a process of its own."""
    command = [sys.executable, "-c", MEASURED, "import", str(file), "-w", str(store)]
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    return int(ran.stdout.split()[-1]) / 1024


def write_large(file: Path) -> None:
    """100 traces of one long text each."""
    write_traces(file, (trace(f"x:{n}", events=(Event(event_id="e", content=f"word {n} " * 130_000),)) for n in range(100)))


def write_many(file: Path) -> None:
    """10,000 traces of 18 events each."""
    lines = [encode(run) for run in simulate(SimulationPolicy(n_tasks=110), seed=1)]
    head = b'"trace_id":"counterpoint:'
    write(file, (line.replace(head, head + b"%d-" % n, 1) for n in range(12) for line in lines))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("write_file", [write_large, pytest.param(write_many, marks=pytest.mark.soak)])
def test_an_import_of_100_mb_takes_less_than_half_a_gigabyte(tmp_path: Path, write_file: Callable[[Path], None]) -> None:
    write_file(tmp_path / "in.jsonl")
    assert (tmp_path / "in.jsonl").stat().st_size > 100_000_000
    peak = peak_mib(tmp_path / "in.jsonl", tmp_path / "store")
    print(f"peak {peak:.0f} MiB")
    assert peak < 500
