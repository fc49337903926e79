"""Jobs run beside the server, are found again, cancelled, and say why they failed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from analysis import data_folder
from analysis.errors import UnknownNameError
from analysis.workspace import Workspace
from dashboard import jobs


def wait(location: str, job_id: str) -> jobs.Job:
    end = time.monotonic() + 60
    while (job := jobs.state(location, job_id)).state == "running":
        assert time.monotonic() < end
        time.sleep(0.05)
    return job


def test_a_job_ends_with_the_result_that_its_command_printed(tmp_path: Path) -> None:
    samples = data_folder() / "samples"
    job = wait(str(tmp_path), jobs.start(str(tmp_path), "Import", ["import", str(samples)]))
    assert (job.state, job.share) == ("done", 1.0)
    assert job.result is not None
    assert job.result["traces"] == Workspace(tmp_path).head().n_rows("traces") > 0
    assert [j.job_id for j in jobs.all_jobs(str(tmp_path))] == [job.job_id]


def test_a_failed_job_says_the_last_line_of_its_errors(tmp_path: Path) -> None:
    job = wait(str(tmp_path), jobs.start(str(tmp_path), "Import", ["import", str(tmp_path / "absent")]))
    assert job.state == "failed"
    assert job.text == f"{tmp_path / 'absent'}: no such file or folder - check the path"


def test_a_cancelled_job_adds_nothing(tmp_path: Path) -> None:
    line = b'{"format":"counterpoint/1","trace_id":"counterpoint:%d","world":"recorded","task":{"text":"%s"}}\n'
    (tmp_path / "many.jsonl").write_bytes(b"".join(line % (n, b"x" * 2000) for n in range(40_000)))
    location = str(tmp_path / "w")
    Workspace(location, create=True)
    job_id = jobs.start(location, "Import", ["import", str(tmp_path / "many.jsonl")])
    while jobs.state(location, job_id).share == 0 and jobs.state(location, job_id).state == "running":
        time.sleep(0.02)
    jobs.cancel(location, job_id)
    assert wait(location, job_id).state == "cancelled"
    assert Workspace(location).head().number == 0
    jobs.cancel(location, job_id)


@pytest.mark.parametrize("job_id", ["nobody", "../../etc", "", "a b"])
def test_an_unknown_job_is_named(tmp_path: Path, job_id: str) -> None:
    with pytest.raises(UnknownNameError, match="no job has this id"):
        jobs.state(str(tmp_path), job_id)
