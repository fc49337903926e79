"""Each command end to end: exit code, stdout, stderr, and one line in words for every mistake."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.model import Agent, Claim, Event, Groups, Label, Outcome, Source, Task, Trace, decode, encode
from analysis.pipeline import import_paths
from analysis.workspace import Workspace
from tests.cli.conftest import Run
from tests.pipeline.corpus import contents, question, write, write_annotation, write_run, write_traces

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("demo", "open", "dashboard", "import", "formats", "list", "show", "doctor")
ODD = "\x1b[31mred\x07\x9b1m‮gnp\u2028\r\n<b>&[link](x)"
RUN = Trace(
    trace_id="counterpoint:run-1",
    world="live",
    source=Source(format="counterpoint", file="f", record="line 1"),
    task=Task(task_id="t1", text="Count the ships"),
    agents=(Agent(agent_id="lead", component="planner"), Agent(agent_id="w", component="worker")),
    events=(
        Event(event_id="e1", kind="delegate", agent_id="lead", targets=("w",), content="Count!", input_tokens=3),
        Event(event_id="e2", kind="stop", agent_id="lead", order=1, basis="derived", rule="last"),
        Event(event_id="e3", order=2),
    ),
    claims=(Claim(claim_id="c", component="planner", proposition="ok", p=0.5),),
    outcome=Outcome(passed=False),
    labels=(Label(annotator="me", name="mistake", agent_id="w"), Label(annotator="you", name="mistake", agent_id="W")),
    groups=Groups(condition="fast"),
)
OTHER = Trace(trace_id="x:run-2", world="simulated", source=Source(format="x"), outcome=Outcome(score=0.25))
STRANGE = Trace(
    trace_id=f"{ODD}:3",
    world="recorded",
    source=Source(format=ODD, file=ODD),
    task=Task(text=ODD),
    agents=(Agent(agent_id=ODD, component=ODD),),
    events=(Event(event_id=ODD, kind="act", agent_id=ODD, content=ODD, error=ODD),),
    labels=(Label(annotator=ODD, name=ODD, agent_id=ODD), Label(annotator=f"{ODD}2", name=ODD, agent_id=ODD)),
)


@pytest.fixture(scope="module")
def three_traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of three traces, and a workspace that holds them."""
    folder = tmp_path_factory.mktemp("three")
    report = import_paths(Workspace(folder / "store", create=True), [write_traces(folder / "in.jsonl", [RUN, OTHER, STRANGE])])
    assert len(report.added) == 3
    return folder


@pytest.fixture
def filled(run: Run, three_traces: Path, tmp_path: Path) -> Run:
    """The same with three traces in the workspace."""
    shutil.copytree(three_traces, tmp_path, dirs_exist_ok=True)
    return run


def process(*arguments: str | bytes, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "analysis.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )


# --- help and mistakes


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=lambda c: " ".join(c) or "all")
def test_every_command_explains_itself(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(" ".join(["Usage: counterpoint", *command]))
    assert "Options:" in ran.out
    if command:
        assert "--json" in ran.out
    else:
        assert set(re.findall(r"^  ([a-z]+) ", ran.out.split("Commands:")[1], re.MULTILINE)) >= set(COMMANDS)


def test_no_command_shows_the_help_and_the_version_is_the_packages(run: Run) -> None:
    assert run().code == 2
    assert run("--version") == (0, "0.1.0\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--wrong",), "Error: No such option: --wrong"),
        (("lst",), "Error: No such command 'lst'. Did you mean 'list'?"),
        (("import",), "Error: Invalid value: give files or folders with traces, or --claims FILE"),
        (("import", "--wrong", "x"), "Error: No such option: --wrong"),
        (("show",), "Error: Missing argument 'trace_id'."),
        (("list", "--limit", "0"), "Error: Invalid value for '--limit'"),
        (("list", "--limit", "many"), "Error: Invalid value for '--limit'"),
        (("import", "x", "--max-record-mb", "nan"), "Error: Invalid value for '--max-record-mb'"),
        (("import", "x", "--max-record-mb", "inf"), "Error: Invalid value for '--max-record-mb'"),
        (("import", "x", "--max-record-mb", "0"), "Error: Invalid value for '--max-record-mb'"),
        (("dashboard", "--port", "70000"), "Error: Invalid value for '--port'"),
    ],
)
def test_wrong_use_is_one_clear_message(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1].startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("import", "gone"), "gone: no such file or folder - check the path"),
        (("import", "x" * 300), f"{'x' * 300}: cannot be read (got File name too long) - check the path"),
        (("list", "-w", "gone"), "gone: no workspace here - `counterpoint open PATH` imports traces into a new one"),
        (("show", "x", "-w", "gone"), "gone: no workspace here - `counterpoint open PATH` imports traces into a new one"),
        (("import", ".", "-w", "a[b]"), "a[b]: the path holds characters of a file pattern (got [ ]) - choose another folder"),
        (("import", ".", "-w", "file"), "file: the folder cannot be made (got Not a directory)"),
        (("list", "-w", "foo://bar"), "foo://bar: the store does not answer (got Generic URL error: Unable to recognise URL"),
        (("show", "nobody"), "trace: no trace has this id (got nobody) - `counterpoint list` shows what is here"),
        (("show", "run-3"), "trace: no trace has this id (got run-3) - did you mean x:run-2?"),
        (("show", "\x1b[31m"), r"trace: no trace has this id (got \x1b[31m) - `counterpoint list` shows what is here"),
        (("list", "-f", "colour:red"), "filter: unknown field (got colour, expected one of agent, agents, annotator, category"),
        (("list", "-f", "agent>1"), "filter: `agent` is a text (got agent>) - write agent:value"),
        (("list", "-f", "events>x"), "filter: `events` takes a number (got x) - write events>3"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_2(
    filled: Run, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    ran = filled(*arguments)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.removeprefix(f"{tmp_path}/").startswith(message)


def test_a_store_that_cannot_be_written_is_one_line(run: Run, tmp_path: Path) -> None:
    Workspace(tmp_path / "store", create=True)
    (tmp_path / "store" / "traces").write_text("in the way")
    file = write_traces(tmp_path / "in.jsonl", [RUN])
    ran = run("import", file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(f"{tmp_path}/store: nothing can be written here (got ")
    elsewhere = run("import", file, "-w", "other", "--progress-file", tmp_path / "no" / "folder.json")
    assert (elsewhere.code, elsewhere.err) == (
        2,
        f"{tmp_path}/no/folder.part: No such file or directory - make the folder it should lie in, or name another place\n",
    )


def test_a_suffix_that_several_traces_share_is_answered_with_them(filled: Run, tmp_path: Path) -> None:
    twin = Trace(trace_id="x:also-run-2", world="live", source=Source(format="x"))
    filled("import", write_traces(tmp_path / "twin.jsonl", [twin]))
    ran = filled("show", "run-2")
    assert ran == (2, "", "trace: 2 traces end so (got run-2, expected x:also-run-2, x:run-2) - give more of the id\n")
    assert filled("show", "x:run-2", "--json").json["trace_id"] == "x:run-2"


# --- import


def test_import_prints_the_load_report_and_says_what_was_lost(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    write(folder / "a.jsonl", [encode(RUN), b"{oops", b"{", encode(RUN)])
    write(folder / "b.html", [b"<html>"])
    write_annotation(folder, 1)
    there = f"-w {tmp_path}/store"
    ran = run("import", folder)
    assert ran.code == 1
    assert [line.split() for line in ran.out.splitlines()] == [
        ["traces", "n"], ["new", "1"], ["updated", "0"], ["unchanged", "0"], ["waiting", "for", "their", "runs", "1"],
        ["files", "read", "2"], ["files", "skipped", "1"],
    ]  # fmt: skip
    assert ran.err.splitlines() == [
        "lost: runs/a.jsonl:line 2: not valid JSON (got Expecting property name enclosed in double quotes at character 1)"
        " - mend or remove this record",
        "lost: runs/a.jsonl:line 3: the record ends in the middle (got Expecting property name enclosed in double quotes at"
        " character 1) - export the file again; it was cut off",
        "note: runs/a.jsonl:line 4: the same record again; counted once - nothing to do",
        "note: runs/note-1.json:document: kept until the trace it belongs to is imported"
        " - import the runs these annotations are about",
        "skipped: runs/b.html: this is an HTML page, not data (got <html>\\n)"
        " - download it again, signed in; this is the error page",
        "new by format: 1 counterpoint",
        "annotators me and you: same agent in 1 of 1 runs, same step in 0 of 1 runs",
        f"workspace {tmp_path}/store is at version 1",
        f"next: `counterpoint analyze {there}` works out metrics and findings, `counterpoint dashboard {there}` shows them",
    ]


def test_import_exits_0_when_all_came_in_and_1_when_something_is_missing(run: Run, tmp_path: Path) -> None:
    good, bad, none = (tmp_path / name for name in ("good.jsonl", "bad.jsonl", "none.txt"))
    write_traces(good, [RUN])
    write(bad, [encode(RUN), b"{oops"])
    write(none, [b"prose"])
    (tmp_path / "empty").mkdir()
    assert [run("import", path).code for path in (good, good, bad, bad, none, tmp_path / "empty")] == [0, 0, 1, 1, 1, 0]


def test_import_json_has_this_shape(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    write(folder / "a.jsonl", [encode(RUN), encode(OTHER), b"{oops"])
    write_run(folder, 1)
    write(folder / "b.txt", [b"prose"])
    ran = run("import", folder, "--json")
    assert (ran.code, ran.err) == (1, "")
    assert {name: ran.json[name] for name in ("traces", "updated", "unchanged", "by_format", "skipped")} == {
        "traces": 3,
        "updated": 0,
        "unchanged": 0,
        "by_format": {"counterpoint": 1, "whowhen": 1, "x": 1},
        "skipped": [{"file": "runs/b.txt", "reason": "not a JSON file: prose\n"}],
    }
    assert [(f["file"], f["format"], f["traces"], [p["code"] for p in f["problems"]]) for f in ran.json["files"]] == [
        (f"runs/{question(1)}.json", "agentrx-history", 1, ["id-from-name"]),
        ("runs/a.jsonl", "counterpoint", 2, ["bad-json"]),
    ]
    again = run("import", folder, "--json").json
    assert {name: again[name] for name in ("traces", "updated", "unchanged", "by_format", "version")} == {
        "traces": 0, "updated": 0, "unchanged": 3, "by_format": {}, "version": 1,
    }  # fmt: skip


def test_a_smaller_record_limit_loses_the_record_and_says_so(run: Run, tmp_path: Path) -> None:
    large = Trace(trace_id="x:large", world="live", source=Source(format="x"), extra={"text": "x" * 2_000_000})
    path = write_traces(tmp_path / "a.jsonl", [RUN, large, OTHER])
    ran = run("import", path, "--max-record-mb", "1")
    assert ran.code == 1
    assert "lost: a.jsonl:line 2: the record is larger than the limit (got 1.91 MiB, expected at most 1 MiB) - raise" in ran.err
    assert run("import", path, "--json").json["traces"] == 1


def test_the_progress_file_is_whole_json_and_ends_at_one(run: Run, tmp_path: Path) -> None:
    run("import", write_traces(tmp_path / "a.jsonl", [RUN]), "--progress-file", tmp_path / "progress.json")
    assert json.loads((tmp_path / "progress.json").read_text()) == {"share": 1.0, "text": "done"}


def test_without_a_name_the_workspace_lies_in_this_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COUNTERPOINT_WORKSPACE")
    write_traces(tmp_path / "a.jsonl", [RUN])
    run("import", "a.jsonl")
    run("import", "a.jsonl", "-w", "mine")
    assert contents(Workspace(tmp_path / "counterpoint-workspace")) == contents(Workspace(tmp_path / "mine"))


# --- list, show, formats, doctor


def test_list_json_has_a_row_a_trace(filled: Run) -> None:
    ran = filled("list", "--json")
    assert (ran.code, ran.err) == (0, "")
    rows = {row["trace_id"]: row for row in ran.json}
    assert list(rows) == sorted([RUN.trace_id, OTHER.trace_id, STRANGE.trace_id])
    expected = {
        "trace_id": "counterpoint:run-1", "format": "counterpoint", "world": "live", "n_agents": 2, "n_events": 3,
        "explicit_share": 2 / 3, "n_claims": 1, "task_id": "t1", "condition": "fast", "outcome": {"passed": False}, "tags": "",
        "labels": [
            {"annotator": "me", "name": "mistake", "agent_id": "w", "basis": "explicit"},
            {"annotator": "you", "name": "mistake", "agent_id": "W", "basis": "explicit"},
        ],
    }  # fmt: skip
    assert {name: rows["counterpoint:run-1"][name] for name in expected} == expected
    assert (rows["x:run-2"]["explicit_share"], rows["x:run-2"]["outcome"], rows["x:run-2"]["labels"]) == (
        None,
        {"score": 0.25},
        [],
    )


def test_list_filters_limits_and_says_when_nothing_fits(filled: Run) -> None:
    ran = filled("list", "--filter", "passed:no")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["trace_id", "format", "n_agents", "n_events", "explicit_share", "outcome", "labels"],
        ["counterpoint:run-1", "counterpoint", "2", "3", "0.667", "failed", "me,", "you"],
    ]
    assert "score 0.25" in filled("list", "-f", "score>0").out
    assert len(filled("list", "--limit", "2", "--json").json) == 2
    assert filled("list", "-f", "passed:yes", "--json").json == []
    nothing = filled("list", "-f", "passed:yes")
    assert (nothing.code, nothing.err) == (0, "no trace fits the filter\n")


def test_list_on_an_empty_workspace_says_what_fills_it(run: Run, tmp_path: Path) -> None:
    Workspace(tmp_path / "store", create=True)
    ran = run("list")
    assert (ran.code, ran.err) == (0, "the workspace is empty - `counterpoint import PATH` fills it\n")
    assert run("list", "--json") == (0, "[]\n", "")


@pytest.mark.parametrize("trace", [RUN, OTHER, STRANGE], ids=lambda t: t.trace_id[-5:])
def test_show_json_is_the_native_record(filled: Run, trace: Trace) -> None:
    ran = filled("show", trace.trace_id, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert decode(ran.out.encode()) == trace
    assert ran.out.count("\n") == 1


def test_show_prints_the_facts_the_events_and_the_labels(filled: Run) -> None:
    ran = filled("show", "run-1")
    assert (ran.code, ran.err) == (0, "")
    lines = [re.sub(" +", " ", line).strip() for line in ran.out.splitlines()]
    for line in (
        "trace counterpoint:run-1", "task Count the ships", "world live", "source counterpoint, f, line 1", "outcome failed",
        "agents lead, w", "# event_id kind agent to basis tokens content",
        "0 e1 delegate lead w explicit 3+– Count!", "1 e2 stop lead derived –", "2 e3 opaque – explicit –",
        "annotator me", "annotator you",
    ):  # fmt: skip
        assert line in lines


def test_formats_lists_every_kind_of_file_that_is_read(run: Run) -> None:
    rows = run("formats", "--json").json
    assert {"counterpoint", "whowhen", "composition"} <= {row["format"] for row in rows}
    assert all(row.keys() == {"format", "kind", "recognised_by", "reader_version"} for row in rows)
    assert {"agentrx-annotation", "whowhen-algorithm", "whowhen-hand"} <= {row["kind"] for row in rows}
    plain = run("formats")
    assert plain.code == 0
    assert all(row["kind"] in plain.out for row in rows)


def test_doctor_says_what_holds_here(filled: Run, tmp_path: Path) -> None:
    ran = filled("doctor", "--json")
    checks = {check["what"]: check for check in ran.json}
    assert ran.code == 0
    assert all(check.keys() == {"what", "ok", "is_required", "found", "hint"} for check in ran.json)
    assert {"python", "streamlit", "duckdb", "store", "workspace", "browser for tests"} <= checks.keys()
    assert all(check["ok"] for check in ran.json if check["is_required"])
    assert checks["store"]["found"] == "atomic commits"
    assert checks["workspace"]["found"] == f"{tmp_path}/store: version 1, 3 traces"
    absent = filled("doctor", "-w", "gone")
    head, *rows = absent.out.splitlines()
    assert head.split() == ["what", "state", "found", "what", "to", "do"]
    assert [row.split()[1] for row in rows if row.startswith("workspace ")] == ["absent"]  # not ok, and not required
    assert absent.code == 0


# --- claims, couplings, residuals


def test_claims_of_a_file_come_in_and_their_residual_is_worked_out(filled: Run, tmp_path: Path) -> None:
    claims, ties = tmp_path / "claims.csv", tmp_path / "ties.toml"
    claims.write_text("trace_id,component,proposition,p\nrun-1,worker,nok,0.9\nrun-9,worker,nok,0.9\n")
    ties.write_text('[[coupling]]\nname = "never-both"\nwhy = "w"\nrelations = ["exactly_one(ok, nok)"]\n')
    ran = filled("import", "--claims", claims, "--json")
    assert (ran.code, ran.json["updated"], ran.json["files"][0]["counts"]) == (1, 1, {"no-trace": 1})
    ran = filled("analyze", "--only", "claims,residuals", "--couplings", ties, "--json")
    assert ran.json["stages"] == [{"stage": name, "n_done": 3, "n_kept": 0} for name in ("claims", "residuals")]
    assert [row["trace_id"] for row in filled("list", "-f", "residual>0.28", "--json").json] == ["counterpoint:run-1"]
    assert [
        row["n_done"] for row in filled("analyze", "--only", "residuals", "--no-default-couplings", "--json").json["stages"]
    ] == [0]


def test_import_without_anything_to_import_is_wrong_use(run: Run) -> None:
    ran = run("import")
    assert ran.code == 2
    assert "give files or folders with traces, or --claims FILE" in ran.err


def test_a_coupling_file_that_cannot_be_read_is_one_line(filled: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('[[coupling]]\nname = "x"\nwhy = "w"\nrelations = ["a &"]\n')
    ran = filled("analyze", "--couplings", bad)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "bad.toml" in ran.err


# --- what a terminal sees


@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "--json"), ("show", ":3"), ("show", ":3", "--json"), ("import", "in.jsonl", "-w", "2")]
)
def test_no_text_of_a_stranger_steers_the_terminal(filled: Run, arguments: tuple[str, ...]) -> None:
    ran = filled(*arguments)
    assert "red" in ran.out + ran.err
    assert all(character.isprintable() or character == "\n" for character in ran.out + ran.err)


def test_a_workspace_with_a_strange_name_does_not_steer_the_terminal_either(run: Run, tmp_path: Path) -> None:
    name = "a‮\x07\x9bb"
    ran = run("import", write_traces(tmp_path / f"{name}.jsonl", [RUN]), "-w", tmp_path / name)
    assert ran.code == 0
    assert all(character.isprintable() or character == "\n" for character in ran.out + ran.err)


def test_the_command_ends_well_when_its_reader_goes_away(filled: Run, tmp_path: Path) -> None:
    big = [Trace(trace_id=f"x:{n:060d}", world="live", source=Source(format="x")) for n in range(1000)]
    filled("import", write_traces(tmp_path / "big.jsonl", big))
    command = f"{sys.executable} -m analysis.cli list | head -1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], cwd=ROOT, env={**os.environ}, capture_output=True, check=True, timeout=60)
    assert (ran.stdout.split()[0], ran.stdout.split()[-1], ran.stderr) == (b"trace_id", b"0", b"")


def test_arguments_that_are_no_text_are_answered_in_one_line(filled: Run, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    for arguments, message in (
        ((b"show", b"\xff"), b"trace: no trace has this id (got ?) - `counterpoint list` shows what is here\n"),
        ((b"list", b"-f", b"\xff"), b"no trace fits the filter\n"),
        ((b"import", b"gone\xff"), b"gone\\udcff: no such file or folder - check the path\n"),
    ):
        assert process(*arguments, folder=tmp_path, COUNTERPOINT_WORKSPACE=store).stderr == message


def test_a_terminal_without_unicode_gets_stand_ins(filled: Run, tmp_path: Path) -> None:
    ran = process("list", folder=tmp_path, COUNTERPOINT_WORKSPACE=str(tmp_path / "store"), PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"run-1" in ran.stdout
