"""`counterpoint mine` and `counterpoint patterns`: what goes in, what comes out, and one line for every mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from analysis.cli import app
from analysis.errors import CounterpointError
from analysis.pipeline import analyse, import_paths
from analysis.workspace import Snapshot, Workspace
from tests.pipeline.corpus import write_traces
from tests.pipeline.test_patterns import STAGES, teams

KEYS = {
    "pattern_id", "n_nodes", "n_edges", "support", "support_share", "closed", "maximal", "family", "lift", "q_value",
    "anti_pattern", "examples",
}  # fmt: skip
Command = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of two plans, analysed under a small number of edges."""
    folder = tmp_path_factory.mktemp("patterns")
    workspace = Workspace(folder / "store", create=True)
    import_paths(workspace, [write_traces(folder / "in.jsonl", teams())])
    analyse(workspace, only=STAGES)
    return folder


@pytest.fixture
def run(folder: Path) -> Command:
    def command(*arguments: str) -> Result:
        where = [] if "-w" in arguments else ["-w", str(folder / "store")]
        return CliRunner().invoke(app, [*arguments, *where], catch_exceptions=True)

    return command


def data(result: Result) -> Any:
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_mine_prints_one_row_a_pattern(run: Command, folder: Path) -> None:
    found = data(run("mine", "--max-edges", "3", "--json"))
    assert {key for row in found for key in row} == KEYS | {"q_metric"}
    assert max(row["n_edges"] for row in found) == 3
    assert [row["support"] for row in found] == sorted((row["support"] for row in found), reverse=True)
    lifts = Snapshot(Workspace(folder / "store")).sql("select * from lifts where kind = 'pattern'").to_pylist()
    stored = {(row["item"], row["metric"]): row for row in lifts}
    for row in found:
        assert row["support_share"] == row["support"] / 32
        assert (
            row["q_value"] == stored[row["pattern_id"], row["q_metric"]]["q_value"] if row["q_metric"] else row["q_value"] is None
        )
        for metric, lift in row["lift"].items():
            line = stored[row["pattern_id"], metric]
            assert lift == {"value": line["lift"], "low": line["low"], "high": line["high"],
                            "n": line["n_with"] + line["n_without"]}  # fmt: skip
    assert {row["q_metric"] for row in found if "passed" in row["lift"]} == {"passed"}


def test_options_are_remembered_and_listed(run: Command, folder: Path) -> None:
    data(run("mine", "--labelling", "kinds", "--min-support", "0.5", "--max-edges", "2", "--json"))
    (kept,) = Snapshot(Workspace(folder / "store")).sql("select * from pattern_runs").to_pylist()
    assert (kept["min_support"], kept["max_edges"], json.loads(kept["labelling"])["name"]) == (0.5, 2, "kinds")
    assert data(run("analyze", "--only", "patterns", "--json")) == {"stages": [{"stage": "patterns", "n_done": 0, "n_kept": 32}]}
    assert data(run("patterns", "list", "--json")) == data(
        run("mine", "--labelling", "kinds", "--min-support", "0.5", "--max-edges", "2", "--json")
    )
    data(run("mine", "--json"))
    plain = run("patterns", "list")
    assert plain.exit_code == 0
    assert "families: random halves of the runs agree" in plain.stderr


def test_families_are_listed_and_shown(run: Command) -> None:
    families = data(run("patterns", "list", "--families", "--json"))
    assert sum(family["n_members"] for family in families) == 32
    first = families[0]
    assert data(run("patterns", "show", first["family_id"], "--json")) == first
    shown = run("patterns", "show", first["family_id"][:12])
    assert shown.exit_code == 0
    assert first["name"] in shown.stdout
    assert shown.stderr.startswith("An association in logs")


def test_a_pattern_is_shown_with_its_steps_and_metrics(run: Command) -> None:
    one = data(run("patterns", "list", "--json"))[0]
    shown = data(run("patterns", "show", one["pattern_id"], "--json"))
    assert {name: shown[name] for name in one} == one
    assert (len(shown["nodes"]), len(shown["edges"])) == (one["n_nodes"], one["n_edges"])
    lines = run("patterns", "show", one["pattern_id"]).stdout
    assert all(label in lines for label in shown["nodes"])
    assert "passed" in lines


def test_what_is_exported_is_matched_elsewhere(run: Command, tmp_path: Path) -> None:
    file, other = tmp_path / "library.json", tmp_path / "other"
    patterns = data(run("patterns", "list", "--json"))
    report = data(run("patterns", "export", str(file), "--json"))
    assert report["n_patterns"] == len(patterns)
    import_paths(Workspace(other, create=True), [write_traces(tmp_path / "in.jsonl", teams()[:16])])
    found = data(run("patterns", "import", str(file), "-w", str(other), "--json"))
    counts = {row["id"]: row["n_traces"] for row in found if row["kind"] == "pattern"}
    held = {row["pattern_id"]: sum("fan" in example for example in row["examples"]) for row in patterns}
    assert counts.keys() == held.keys()
    assert {name for name, n in counts.items() if n} >= {name for name, n in held.items() if n}
    assert max(counts.values()) == 16
    plain = run("patterns", "import", str(file), "-w", str(other))
    assert f"of {len(found)} patterns and families occur here, looked for under the labelling roles" in plain.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mine", "--labelling", "colours"), "labelling: there is none of this name (got colours, expected roles, kinds"),
        (("patterns", "show", "x"), "pattern: no pattern or family has this id (got x) - `counterpoint patterns list` shows"),
        (("patterns", "show", ""), "pattern: no pattern or family has this id"),
        (("patterns", "show", "p"), "ids begin so (got p"),
        (("patterns", "import", "{bad}"), "bad.json: not a pattern library (got JSON is malformed"),
        (("patterns", "list", "-w", "gone"), "gone: no workspace here"),
    ],
)
def test_what_cannot_be_used_is_one_line(run: Command, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "bad.json").write_text("{oops")
    ran = run(*(argument.replace("{bad}", str(tmp_path / "bad.json")) for argument in arguments))
    assert isinstance(ran.exception, CounterpointError)
    assert message in str(ran.exception)
    assert "\n" not in str(ran.exception)


@pytest.mark.parametrize(
    "option", [("--min-support", "0"), ("--min-support", "1.5"), ("--max-edges", "0"), ("--max-edges", "21")]
)
def test_options_that_cannot_be_are_refused_before_they_are_remembered(
    run: Command, folder: Path, option: tuple[str, str]
) -> None:
    before = Workspace(folder / "store").head()
    ran = run("mine", *option)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert f"Invalid value for '{option[0]}'" in ran.stderr
    assert Workspace(folder / "store").head() == before


def test_patterns_in_order_of_time_are_not_exported(run: Command, tmp_path: Path) -> None:
    assert all(row["pattern_id"].startswith("o") for row in data(run("mine", "--ordered", "--max-edges", "2", "--json")))
    ran = run("patterns", "export", str(tmp_path / "library.json"))
    assert "patterns in order of time cannot be looked for elsewhere" in str(ran.exception)
    assert not (tmp_path / "library.json").exists()
    data(run("mine", "--json"))


def test_before_mining_and_without_traces_the_answer_is_a_sentence(run: Command, tmp_path: Path) -> None:
    store = str(tmp_path / "empty")
    Workspace(store, create=True)
    assert "no patterns yet - run `counterpoint mine`" in run("patterns", "list", "-w", store).stderr
    assert data(run("patterns", "list", "-w", store, "--json")) == []
    ran = run("mine", "-w", store)
    assert ran.exit_code == 0
    assert "There are no traces, so there are no patterns." in ran.stderr
    assert "families of 0 runs: there are no runs" in ran.stderr


def test_the_progress_file_of_a_job_ends_whole(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    data(run("mine", "--max-edges", "1", "--json", "--progress-file", str(file)))
    assert json.loads(file.read_text())["share"] >= 0.9
    data(run("mine", "--json"))
