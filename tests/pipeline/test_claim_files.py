"""Claims that a user brings along join the traces they are about, by id, and nothing of them is lost in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import TraceError
from analysis.model import Claim, Trace
from analysis.pipeline import import_claims, import_paths
from analysis.workspace import Snapshot, Workspace
from tests.pipeline.corpus import write_run, write_traces

HEADER = "trace_id,component,proposition,p,turn,n_samples\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Two native traces and one run of another format."""
    store = Workspace(tmp_path / "w", create=True)
    own = Claim(claim_id="c", component="planner", proposition="plan_ok", p=0.5)
    traces = [Trace(trace_id=f"counterpoint:{name}", world="recorded", claims=(own,)) for name in ("run-1", "run-2")]
    import_paths(store, [write_traces(tmp_path / "t.jsonl", traces), write_run(tmp_path, 7)])
    return store


def claims(workspace: Workspace, trace_id: str) -> list[tuple[Any, ...]]:
    found = Snapshot(workspace).trace(trace_id).claims
    return [
        (c.claim_id, c.component, c.proposition, c.p, c.turn, c.n_samples, c.kind, c.basis) for c in found if c.claim_id != "c"
    ]


def test_rows_of_a_csv_join_their_traces_by_id_as_a_new_data_version(workspace: Workspace, tmp_path: Path) -> None:
    before = workspace.head().data_version
    file = tmp_path / "claims.csv"
    file.write_text(HEADER + "run-2,coder,code_ok,0.9,3,8\ncounterpoint:run-1,coder,code_ok,0.4,,\n")
    report = import_claims(workspace, file)
    assert (report.updated, report.added, report.n_lost) == (["counterpoint:run-1", "counterpoint:run-2"], [], 0)
    assert claims(workspace, "run-1") == [("user:0001.0", "coder", "code_ok", 0.4, None, None, "user", "explicit")]
    assert claims(workspace, "run-2") == [("user:0001.0", "coder", "code_ok", 0.9, 3, 8, "user", "explicit")]
    assert workspace.head().data_version != before


def test_shuffling_the_rows_changes_nothing_but_their_numbers(workspace: Workspace, tmp_path: Path) -> None:
    rows = [{"trace_id": f"run-{n}", "component": c, "proposition": "x", "p": n / 10} for n in (1, 2) for c in "ab"]
    file = tmp_path / "claims.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in (rows[3], rows[0], rows[2], rows[1])))
    import_claims(workspace, file)
    found = {n: sorted(row[1:4] for row in claims(workspace, f"run-{n}")) for n in (1, 2)}
    assert found == {n: [("a", "x", n / 10), ("b", "x", n / 10)] for n in (1, 2)}


def test_the_same_file_again_adds_nothing_and_another_one_adds_to_it(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "claims.csv"
    file.write_text(HEADER + "run-1,coder,code_ok,0.9,3,8\n")
    import_claims(workspace, file)
    version = workspace.head().number
    again = import_claims(workspace, file)
    assert (again.updated, again.unchanged, workspace.head().number) == ([], ["counterpoint:run-1"], version)
    file.write_text(HEADER + "run-1,coder,code_ok,0.7,4,8\n")
    import_claims(workspace, file)
    assert [(row[0], row[3]) for row in claims(workspace, "run-1")] == [("user:0001.0", 0.9), ("user:0002.0", 0.7)]


def test_claims_stay_with_runs_of_any_format_when_those_are_imported_again(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "claims.csv"
    file.write_text(HEADER + "00000007-0000-0000-0000-000000000000,WebSurfer,page_found,1.7,,\n")
    assert import_claims(workspace, file).updated == ["whowhen:hand-00000007-0000-0000-0000-000000000000"]
    again = import_paths(workspace, [write_run(tmp_path, 7)])
    assert (again.added, again.updated) == ([], [])
    trace = Snapshot(workspace).trace("00000007-0000-0000-0000-000000000000")
    assert [(c.p, c.is_out_of_range) for c in trace.claims] == [(1.7, True)]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("run-9,coder,x,0.5,,", "claims.csv:line 2: no trace has this id (got run-9) - import the trace first"),
        ("run-1,coder,x,much,,", "line 2: a value is not what the field takes (got Expected `float`, got `str` - at `$.p`"),
        ("run-1,coder,x,nan,,", "line 2: a value is not what the field takes (got p nan, expected a number from 0 to 1)"),
        ("run-1,coder,,0.5,,", "missing required field `proposition`"),
        ("run-1,coder,x,0.5,-1,", "Expected `int` >= 0"),
        ("run-1,coder,x,0.5,1,2,more", "unknown field `behind the last column`"),
    ],
)
def test_a_row_that_is_no_claim_is_named_and_the_others_come_in(
    workspace: Workspace, tmp_path: Path, row: str, said: str
) -> None:
    file = tmp_path / "claims.csv"
    file.write_text(f"{HEADER}{row}\nrun-2,coder,x,0.5,,\n")
    report = import_claims(workspace, file)
    assert report.updated == ["counterpoint:run-2"]
    assert report.n_lost == 1
    assert said in str(report.files[0].problems[0])


def test_a_file_without_its_columns_is_refused_with_their_names(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "claims.csv"
    file.write_text("trace,component,proposition,p\nrun-1,coder,x,0.5\n")
    with pytest.raises(
        TraceError, match="no column trace_id \\(got trace, component, proposition, p, expected trace_id, component"
    ):
        import_claims(workspace, file)
    with pytest.raises(TraceError, match="the file cannot be read"):
        import_claims(workspace, tmp_path / "none.csv")


def test_a_line_that_is_no_json_is_named(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "claims.jsonl"
    file.write_text('{"trace_id": "run-1", "component": "a", "proposition": "x", "p": 0.5}\n{"trace_id": \n')
    report = import_claims(workspace, file)
    assert (report.updated, report.n_lost) == (["counterpoint:run-1"], 1)
    assert "claims.jsonl:line 2: not valid JSON" in str(report.files[0].problems[0])
