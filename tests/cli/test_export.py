"""`counterpoint export` and `import --redact` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

from analysis.model import Agent, Event, Task, Trace
from tests.cli.conftest import Run
from tests.pipeline.corpus import write_traces


def traces(n: int) -> list[Trace]:
    """Return runs of one agent that names an address."""
    return [
        Trace(
            trace_id=f"counterpoint:t{k}", world="recorded", task=Task(task_id=f"task-{k}", text=f"Say {k}."),
            agents=(Agent(agent_id="solo", component="solo"),),
            events=(Event(event_id="m", kind="act", action="model_call", agent_id="solo", content=f"{k}, says ann@firm.com"),),
        )
        for k in range(n)
    ]  # fmt: skip


def test_an_export_says_what_it_wrote_and_writes_it_once(run: Run, tmp_path: Path) -> None:
    run("import", write_traces(tmp_path / "t.jsonl", traces(12)))
    done = run("export", "--out", "b", "--format", "csv,trl-sft", "--json")
    assert done.code == 0
    assert done.json["n_rows"] == 12 == sum(done.json["splits"].values())
    assert (done.json["redacted"], done.json["n_drops"]) == ({"email": 12}, 0)
    assert {name: sum(view["records"].values()) for name, view in done.json["views"].items()} == {"csv": 12, "trl-sft": 12}
    assert json.loads(Path(done.json["manifest"]).read_text(encoding="utf-8"))["id"] == done.json["id"]
    assert run("export", "--out", "b", "--format", "csv", "--json").json["id"] == done.json["id"]
    shown = run("export", "--out", "b", "--format", "csv")
    assert "manifest: b/manifest.json" in shown.err
    assert done.json["steps"] == [
        {"step": "chosen", "n_traces": 12, "n_rows": None}, {"step": "split", "n_traces": 0, "n_rows": None},
        {"step": "histories", "n_traces": 0, "n_rows": None}, {"step": "made", "n_traces": 12, "n_rows": 12},
        {"step": "mask", "n_traces": 0, "n_rows": 0}, {"step": "written", "n_traces": 12, "n_rows": 12},
    ]  # fmt: skip
    assert "chosen: kept or masked by curation, or fit the filter" in shown.out
    assert "12 email" in shown.err


def test_wrong_use_is_one_line(run: Run, tmp_path: Path) -> None:
    run("import", write_traces(tmp_path / "t.jsonl", traces(2)))
    for arguments, said in (
        (("--dataset", "x"), "no data set has this name"),
        (("--dataset", "x", "--filter", "t1"), "a data set states its own filter"),
        (("--format", "x"), "no such format"),
        (("--test", "0.6", "--validation", "0.5"), "nothing to train on"),
        (("--redact-pattern", "("), "not a regular expression"),
        (("--redact-pattern", "x", "--no-redact"), "takes nothing out"),
    ):
        done = run("export", "--out", "b", *arguments)
        assert (done.code, said in done.err) == (2, True), done.err


def test_an_import_takes_secrets_out_where_it_is_asked_to(run: Run, tmp_path: Path) -> None:
    file = write_traces(tmp_path / "t.jsonl", traces(2))
    assert run("import", file, "--redact-pattern", "x+").code == 2
    done = run("import", file, "--redact", "--redact-pattern", "[0-9], says", "--json")
    assert done.json["redacted"] == {"custom": 2, "email": 2}
    shown = run("show", "t1", "--json")
    assert "ann@firm.com" not in shown.out
