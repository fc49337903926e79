"""gzip files are read as what they hold, damaged ones as far as they go, bombs not at all."""

from __future__ import annotations

import gzip
from pathlib import Path

from analysis.pipeline import import_paths
from analysis.readers import unpacked
from analysis.workspace import Workspace

LINE = b'{"format":"counterpoint/1","trace_id":"counterpoint:%d","world":"recorded"}\n'
LINES = b"".join(LINE % n for n in range(5000))


def test_a_gzip_file_is_read_as_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl.gz").write_bytes(gzip.compress(LINES))
    report = import_paths(Workspace(tmp_path / "w", create=True), [tmp_path / "runs.jsonl.gz"])
    assert (len(report.added), report.n_lost, report.files[0].file) == (5000, 0, "runs.jsonl.gz")


def test_a_cut_gzip_file_is_read_as_far_as_it_goes_and_named(tmp_path: Path) -> None:
    packed = gzip.compress(LINES)
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    report = import_paths(Workspace(tmp_path / "w", create=True), [tmp_path / "cut.jsonl.gz"])
    assert 0 < len(report.added) < 5000
    assert any(p.code == "truncated" and "gzip" in p.got for p in report.files[0].problems)


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb.json.gz", "wb", 9) as stream:
        for _ in range(300):
            stream.write(b"0" * (1 << 20))
    with unpacked(tmp_path / "bomb.json.gz", "bomb.json.gz") as (content, problem):
        assert content.stat().st_size == 0
        assert str(problem) == (
            "bomb.json.gz: the file unpacks to far more than an export would (got more than 64 MiB, expected 200 times its size)"
            " - unpack it by hand if it is what it should be"
        )
    report = import_paths(Workspace(tmp_path / "w", create=True), [tmp_path / "bomb.json.gz"])
    assert [p.code for p in report.skipped] == ["bomb"]


def test_gzip_in_gzip_is_named(tmp_path: Path) -> None:
    (tmp_path / "twice.gz").write_bytes(gzip.compress(gzip.compress(LINES)))
    report = import_paths(Workspace(tmp_path / "w", create=True), [tmp_path / "twice.gz"])
    assert [(p.code, p.got) for p in report.skipped] == [("no-reader", "a gzip file inside a gzip file")]
