"""Numbered heads over immutable files: one version at a time, races lost in words, old files kept while anyone may read them."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.errors import HeadConflict, UnknownNameError, WorkspaceError
from analysis.model import Source, Trace
from analysis.workspace import SCHEMAS, File, Head, Snapshot, Workspace, trace_tables


def rows(*names: str) -> pa.Table:
    """Rows of the table of decisions, one a name."""
    schema = SCHEMAS["decisions"]
    return pa.Table.from_pylist([dict.fromkeys(schema.names, "") | {"trace_id": name} for name in names], schema=schema)


def ids(store: Workspace, head: Head | None = None) -> list[str]:
    found: list[str] = Snapshot(store, head).sql("select trace_id from decisions order by 1")["trace_id"].to_pylist()
    return found


def parquet_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}


def age(path: Path, seconds: float) -> None:
    old = time.time() - seconds
    os.utime(path, (old, old))


def test_a_new_workspace_is_version_0_and_has_every_table(tmp_path: Path) -> None:
    store = Workspace(tmp_path / "new", create=True)
    assert store.head() == Head()
    snapshot = Snapshot(store)
    for name, schema in SCHEMAS.items():
        assert snapshot.sql(f"select * from {name}").cast(schema).num_rows == 0
    assert snapshot.traces(["x"]) == []


def test_a_commit_makes_the_next_version_and_older_ones_stay_as_they_were(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    one = store.commit(
        store.head(), {"decisions": [store.write("decisions", rows("a"))]}, data_version="v1", keys={"stage": "k1"}
    )
    two = store.commit(one, {"decisions": [*one.tables["decisions"], store.write("decisions", rows("b", "c"))]})
    assert (one.number, two.number, store.head()) == (1, 2, two)
    assert (two.data_version, two.keys, two.n_rows("decisions"), two.n_rows("traces")) == ("v1", {"stage": "k1"}, 3, 0)
    assert ids(store) == ["a", "b", "c"]
    assert ids(store, one) == ids(store, store.head_at(1)) == ["a"]
    written = json.loads((tmp_path / "heads" / "00000002.json").read_bytes())
    assert written["tables"] == {"decisions": [[one.tables["decisions"][0].name, 1], [two.tables["decisions"][1].name, 2]]}
    assert sorted(path.name for path in (tmp_path / "heads").iterdir()) == ["00000001.json", "00000002.json"]


def test_files_are_sorted_rows_in_zstd_and_events_in_groups_of_10_000(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    events = pa.table({"trace_id": ["x"] * 25_000, "position": range(25_000)})
    about = pq.ParquetFile(tmp_path / store.write("events", events).name).metadata
    assert [about.row_group(n).num_rows for n in range(about.num_row_groups)] == [10_000, 10_000, 5_000]
    assert about.row_group(0).column(0).compression == "ZSTD"


def test_whoever_commits_second_on_one_version_loses_and_leaves_no_trace_of_it(tmp_path: Path) -> None:
    store, rival = Workspace(tmp_path, create=True), Workspace(tmp_path)
    base = store.head()
    first = store.commit(base, {"decisions": [store.write("decisions", rows("first"))]})
    with pytest.raises(HeadConflict, match=r"another writer committed first - try again"):
        rival.commit(base, {"decisions": [rival.write("decisions", rows("second"))]})
    assert store.head() == first
    assert ids(rival) == ["first"]
    assert [path.name for path in (tmp_path / "heads").iterdir()] == ["00000001.json"]


def test_rows_appended_by_many_at_once_all_arrive(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)

    def work(name: str) -> None:
        for n in range(8):
            Workspace(tmp_path).append("decisions", rows(f"{name}{n}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(store) == sorted(f"{name}{n}" for name in "abc" for n in range(8))
    assert store.head().number == 24


def test_without_rewrites_only_the_files_that_hold_the_traces(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    files = [store.write("decisions", rows(*names)) for names in (("a", "b"), ("c",), ("b",), ("d", "e"))]
    head = store.commit(store.head(), {"decisions": files})
    kept = store.without(head, "decisions", {"b", "e", "zzz"})
    assert [file.n_rows for file in kept] == [1, 1, 1]
    assert kept[1] == files[1]
    assert ids(store, msgspec.structs.replace(head, tables={"decisions": tuple(kept)})) == ["a", "c", "d"]
    assert ids(store) == ["a", "b", "b", "c", "d", "e"]
    assert store.without(head, "events", {"a"}) == []


def test_more_than_200_files_become_few_and_say_the_same(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    files = [store.write("decisions", rows(f"{n:03d}")) for n in range(200)]
    assert store.compacted("decisions", files) == files
    files.append(store.write("decisions", rows("200", "201")))
    merged = store.compacted("decisions", files)
    assert [file.n_rows for file in merged] == [202]
    store.commit(store.head(), {"decisions": merged})
    assert ids(store) == [f"{n:03d}" for n in range(202)]


def test_merging_keeps_each_large_file_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Workspace(tmp_path, create=True)
    monkeypatch.setattr("analysis.workspace.heads._FILES_BEFORE_COMPACTION", 3)
    monkeypatch.setattr("analysis.workspace.heads._ROWS_A_COMPACTED_FILE", 4)
    files = [store.write("decisions", rows(*names)) for names in ("abcde", "f", "g", "hijkl", "m")]
    merged = store.compacted("decisions", files)
    assert files[0] in merged
    assert files[3] in merged
    assert [file.n_rows for file in merged] == [5, 2, 5, 1]
    store.commit(store.head(), {"decisions": merged})
    assert ids(store) == list("abcdefghijklm")


# --- vacuum


def test_vacuum_removes_what_no_version_names_once_it_is_old(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    named = store.append("decisions", rows("a")).tables["decisions"][0].name
    orphan = store.write("decisions", rows("x")).name
    torn = [tmp_path / name for name in ("decisions/b.parquet#1", "heads/00000002.json.0abc", "heads/00000002.json.0abc#1")]
    mine = tmp_path / "notes.txt"
    for path in (*torn, mine):
        path.write_bytes(b"{")
    assert store.vacuum() == 0
    for path in (*torn, mine, tmp_path / orphan, tmp_path / named):
        age(path, 7200)
    assert store.head().number == 1
    assert store.vacuum() == 4
    assert parquet_files(tmp_path) == {named}
    assert not any(path.exists() for path in torn)
    assert mine.exists()
    assert ids(store) == ["a"]


def test_vacuum_keeps_the_last_20_versions_whole_however_old(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    for n in range(25):
        store.commit(store.head(), {"decisions": [store.write("decisions", rows(f"{n:02d}"))]})
    assert store.vacuum() == 0
    assert store.vacuum(grace_s=0) == 10  # five heads and their files
    for number in range(6, 26):
        assert ids(store, store.head_at(number)) == [f"{number - 1:02d}"]
    with pytest.raises(WorkspaceError, match=r"head 5: no such version - open the newest one"):
        store.head_at(5)


def test_a_snapshot_that_was_opened_in_time_outlives_a_vacuum(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    store.append("decisions", rows("first"))
    unread, used = Snapshot(store), Snapshot(store)
    used.sql("select 1")
    for n in range(30):
        store.commit(store.head(), {"decisions": [store.write("decisions", rows(str(n)))]})
    assert store.vacuum() == 0
    for snapshot in (unread, used):
        assert snapshot.sql("select trace_id from decisions")["trace_id"].to_pylist() == ["first"]


# --- what is no workspace, or no longer one


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the head is damaged (got Input data was truncated)"),
        (b'{"number": 1, "tab', "the head is damaged (got Input data was truncated)"),
        (b'{"number": "one"}', "the head is damaged (got Expected `int`, got `str` - at `$.number`)"),
        (b'{"number": 1, "schema": 99}', "made by a newer version (got 99, expected 1) - install the newer counterpoint"),
    ],
)
def test_a_head_that_cannot_be_read_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    store = Workspace(tmp_path, create=True)
    (tmp_path / "heads" / "00000001.json").write_bytes(data)
    with pytest.raises(WorkspaceError) as caught:
        store.head()
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_other_files_among_the_heads_are_no_versions(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    for name in ("00000009.json.1f", "notes.json", "readme", "٣.json"):
        (tmp_path / "heads" / name).write_bytes(b"{}")
    assert store.head().number == 0


def test_a_place_without_a_workspace_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "gone", tmp_path, tmp_path / "file"):
        with pytest.raises(WorkspaceError, match=r"no workspace here - `counterpoint open PATH` imports traces into a new one"):
            Workspace(place)
    assert not (tmp_path / "gone").exists()
    with pytest.raises(WorkspaceError, match=r"the folder cannot be made \(got Not a directory\)"):
        Workspace(tmp_path / "file", create=True)
    with pytest.raises(
        WorkspaceError, match=r"the path holds characters of a file pattern \(got \* \[\) - choose another folder"
    ):
        Workspace(tmp_path / "a[b*", create=True)


def test_a_store_that_takes_no_more_is_one_line(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    (tmp_path / "decisions").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"nothing can be written here \(got .*\) - check space and permissions") as caught:
        store.append("decisions", rows("a"))
    assert "\n" not in str(caught.value)
    (tmp_path / "heads").rmdir()
    (tmp_path / "heads").write_text("in the way")
    with pytest.raises(WorkspaceError, match="nothing can be written here"):
        store.commit(Head(), {})


@pytest.mark.parametrize("url", ["foo://bar", "s3://", "://", "file:///nowhere/at/all"])
def test_a_url_that_names_no_store_is_one_line(url: str) -> None:
    with pytest.raises(
        WorkspaceError, match=r"the store does not answer \(got .*\) - check the URL and the credentials"
    ) as caught:
        Workspace(url, create=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a b", "a#b", "a%20b", "ünï", "it's", 'say "x"', "a\\b", "new\nline", "‮x", "{0}", "$HOME", "~"])
def test_a_workspace_may_have_an_odd_name(tmp_path: Path, name: str) -> None:
    store = Workspace(tmp_path / name, create=True)
    trace = Trace(trace_id="x:1", world="live", source=Source(format="x"))
    tables = {table: [store.write(table, data)] for table, data in trace_tables([(trace, "x")]).items()}
    store.commit(store.head(), tables)
    assert Snapshot(Workspace(tmp_path / name)).trace("x:1") == trace
    assert store.vacuum(grace_s=0) == 0


def test_an_object_store_is_read_and_written_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "store").mkdir()
    store, rival = Workspace(f"file://{tmp_path}/store"), Workspace(f"file://{tmp_path}/store")
    base = store.head()
    store.append("decisions", rows("a"))
    with pytest.raises(HeadConflict, match="another writer committed first"):
        rival.commit(base, {})
    rival.append("decisions", rows("b"))
    assert ids(store) == ids(Workspace(tmp_path / "store")) == ["a", "b"]
    assert len(parquet_files(tmp_path / "cache")) == 2
    head = store.head()
    kept = store.without(head, "decisions", {"a"})
    store.commit(head, {"decisions": kept})
    assert ids(rival) == ["b"]


# --- traces by id


@pytest.fixture
def named(tmp_path: Path) -> Snapshot:
    store = Workspace(tmp_path, create=True)
    names = ("whowhen:hand-1", "whowhen:algo-1", "counterpoint:1", "x:‮1", "x:a", "x:b a")
    traces = [(Trace(trace_id=name, world="live", source=Source(format="x")), "x") for name in names]
    store.commit(store.head(), {name: [store.write(name, data)] for name, data in trace_tables(traces).items()})
    return Snapshot(store)


@pytest.mark.parametrize(
    ("suffix", "full"),
    [
        ("whowhen:hand-1", "whowhen:hand-1"),
        ("hand-1", "whowhen:hand-1"),
        ("algo-1", "whowhen:algo-1"),
        (":1", "counterpoint:1"),
        ("b a", "x:b a"),
    ],
)
def test_any_suffix_that_one_trace_has_names_it(named: Snapshot, suffix: str, full: str) -> None:
    assert named.resolve(suffix) == named.trace(suffix).trace_id == full


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        ("-1", "trace: 2 traces end so (got -1, expected whowhen:algo-1, whowhen:hand-1) - give more of the id"),
        ("1", "trace: 4 traces end so (got 1, expected counterpoint:1, whowhen:algo-1, whowhen:hand-1) - give more of the id"),
        ("", "trace: 6 traces end so (expected counterpoint:1, whowhen:algo-1, whowhen:hand-1) - give more of the id"),
        ("whowhen:hand-2", "trace: no trace has this id (got whowhen:hand-2) - did you mean whowhen:hand-1?"),
        ("zzz", "trace: no trace has this id (got zzz) - `counterpoint list` shows what is here"),
        ("' or 1=1 --", "trace: no trace has this id (got ' or 1=1 --) - `counterpoint list` shows what is here"),
        ("\udcff%_", "trace: no trace has this id (got ?%_) - `counterpoint list` shows what is here"),
    ],
)  # fmt: skip
def test_a_suffix_that_names_none_or_several_is_answered_in_words(named: Snapshot, suffix: str, message: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        named.resolve(suffix)
    assert str(caught.value) == message


def test_traces_come_sorted_and_unknown_ids_are_left_out(named: Snapshot) -> None:
    assert [trace.trace_id for trace in named.traces(["x:b a", "nobody", "x:a"])] == ["x:a", "x:b a"]
    assert named.rows("traces", ["nobody"]).num_rows == 0
    assert named.rows("labels", ["x:a"]).schema == SCHEMAS["labels"]


def test_a_version_whose_file_is_gone_says_so(tmp_path: Path) -> None:
    store = Workspace(tmp_path, create=True)
    store.commit(store.head(), {"decisions": [File("decisions/gone.parquet", 1)]})
    with pytest.raises(WorkspaceError, match=r"version 1: a file is missing or damaged .*gone.*open the newest version"):
        Snapshot(store).sql("select * from decisions")
