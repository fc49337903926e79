"""Killed at any moment, by any rival: the last version stays whole, and a run that ends gives what an undisturbed one gives."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from analysis.pipeline import import_paths
from analysis.workspace import Snapshot, Workspace
from tests.pipeline.corpus import contents, files_of, named_files, stated, write_corpus

ROOT = Path(__file__).resolve().parents[2]
#: For each table, how many rows the traces table says that it has.
TOTALS = {"events": "n_events", "agents": "n_agents", "claims": "n_claims", "labels": "n_labels"}


#: How far an import gets, by its own account, before it is killed a moment later; None: until it writes its files.
SHARES = (None, 0.1, None, 0.7, None, 0.0, None, 0.97)


def start_import(store: Workspace, *paths: Path, progress: Path | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "analysis.cli", "import", *map(str, paths), "-w", store.location]
    command += ["--progress-file", str(progress)] if progress else []
    # What a shell runs in the background ignores interrupts, and so would its children.
    heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=heard)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors.decode()


def unnamed(store: Workspace) -> set[str]:
    """The files that no version names: what a writer is at, or what a killed one left."""
    return set(files_of(store)) - named_files(store)


def is_writing(store: Workspace, before: set[str]) -> bool:
    return bool(unnamed(store) - before) or store.head().number > 1


def has_done(progress: Path, share: float) -> bool:
    return progress.exists() and bool(json.loads(progress.read_bytes())["share"] >= share)


def kill_at(process: subprocess.Popen[bytes], is_time: Callable[[], bool], *, after_s: float) -> None:
    """Wait for the moment, and a little longer; then kill the process."""
    while process.poll() is None and not is_time():
        time.sleep(0.002)
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    ended(process)


def check_whole(store: Workspace) -> int:
    """Read the newest version and hold its tables against one another; return its number."""
    snapshot = Snapshot(store)
    sums = ", ".join(f"coalesce(sum({column}), 0)::bigint as {table}" for table, column in TOTALS.items())
    (said,) = snapshot.sql(f"select {sums} from traces").to_pylist()
    assert said == {table: snapshot.sql(f"select * from {table}").num_rows for table in TOTALS}
    missing = """select trace_id from traces anti join raw using (trace_id) union all
        select trace_id from events anti join traces using (trace_id) union all
        select trace_id from texts anti join events using (trace_id, position)"""
    assert snapshot.sql(missing).num_rows == 0
    assert (
        snapshot.sql("select count(*) from traces").num_rows
        == snapshot.sql("select count(distinct trace_id) from traces").num_rows
    )
    assert {name: snapshot.sql(f"select * from {name}").num_rows for name in snapshot.head.tables} == {
        name: snapshot.head.n_rows(name) for name in snapshot.head.tables
    }
    return snapshot.head.number


@contextmanager
def reader_beside(store: Workspace) -> Iterator[list[int]]:
    """Read the newest version over and over; gives the numbers read, and raises at the end what a read raised."""
    seen: list[int] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def loop() -> None:
        try:
            while not done.is_set():
                seen.append(check_whole(Workspace(store.location)))
                done.wait(0.1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
    if errors:
        raise errors[0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """450 traces in two folders, damage and waiting labels among them."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder / "runs", n_tasks=50)
    (folder / "first").mkdir()
    for path in sorted((folder / "runs").glob("part-0*.jsonl"))[:4]:
        path.rename(folder / "first" / path.name)
    (folder / "runs" / "annotations").rename(folder / "first" / "annotations")
    return folder


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What an undisturbed import of the two folders gives."""
    store = Workspace(tmp_path_factory.mktemp("undisturbed"), create=True)
    import_paths(store, [corpus / "first"])
    code, errors = ended(start_import(store, corpus / "runs"))
    assert code == 1, errors  # it ran, and a line in each file is broken
    return contents(store)


@pytest.mark.parametrize("n_kills", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_a_killed_import_leaves_the_last_version_and_a_rerun_ends_with_equal_content(
    corpus: Path, undisturbed: dict[str, list[str]], tmp_path: Path, n_kills: int
) -> None:
    rng = random.Random(n_kills)
    store, n_reads, n_torn = Workspace(tmp_path / "0", create=True), 0, 0
    import_paths(store, [corpus / "first"])
    for n in range(n_kills):
        if store.head().number > 1:  # the kill came too late
            assert contents(store) == undisturbed
            store = Workspace(tmp_path / str(n + 1), create=True)
            import_paths(store, [corpus / "first"])
        with reader_beside(store) as seen:
            progress, share, before = tmp_path / f"progress-{n}", SHARES[n % len(SHARES)], unnamed(store)
            is_time = partial(is_writing, store, before) if share is None else partial(has_done, progress, share)
            process = start_import(store, corpus / "runs", progress=progress)
            kill_at(process, is_time, after_s=rng.uniform(0, 0.15))
        n_reads += len(seen)
        n_torn += bool(unnamed(store) - before)
        assert check_whole(store) in (1, 2)
    assert n_reads > n_kills
    assert n_torn > 0
    code, errors = ended(start_import(store, corpus / "runs"))
    assert code == 1, errors
    assert contents(store) == undisturbed
    store.vacuum(grace_s=0)
    assert set(files_of(store)) == named_files(store)
    assert contents(store) == undisturbed
    print(f"{n_kills} kills, {n_torn} left unnamed files, {n_reads} reads meanwhile")


def test_two_importers_of_overlapping_files_both_end_well_without_duplicates(tmp_path: Path) -> None:
    write_corpus(tmp_path / "runs", n_tasks=30, is_damaged=False)
    parts = sorted((tmp_path / "runs").glob("*.jsonl"))
    first = [*parts[:5], tmp_path / "runs" / "annotations"]
    second = [*parts[2:], tmp_path / "runs" / "histories"]
    store, alone = Workspace(tmp_path / "two", create=True), Workspace(tmp_path / "one", create=True)
    with reader_beside(store) as seen:
        results = [ended(process) for process in [start_import(store, *first), start_import(store, *second)]]
    assert [code for code, _ in results] == [0, 0], results
    import_paths(alone, first)
    import_paths(alone, second)
    assert store.head().number == 2
    assert stated(store) == stated(alone)
    assert seen == sorted(seen)
    assert import_paths(store, [*first, *second]).version == 2


def test_an_interrupted_import_ends_without_a_traceback_and_without_a_version(corpus: Path, tmp_path: Path) -> None:
    # On a fast machine the import may be over; then it is interrupted earlier.
    for delay_s in (1.0, 0.8, 0.6):
        store = Workspace(tmp_path / str(delay_s), create=True)
        process = start_import(store, corpus)
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        code, errors = ended(process)
        if store.head().number == 0:
            break
    assert (code, errors.strip()) == (130, "stopped: what was finished is kept, and the same command does the rest")
    assert store.head().number == 0
