"""`counterpoint modes`: each sub-command on a workspace of three kinds of failing team, and one line for every mistake."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from analysis.coherence.modes.decisions import Decision
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.modes import decide
from analysis.workspace import Snapshot, Workspace
from tests.cli.conftest import Run
from tests.pipeline.corpus import write_traces
from tests.pipeline.teams import failing_teams

COMMANDS = ("list", "show", "rename", "export", "match", "transfer")


@pytest.fixture
def modes(run: Run, failing: Path, tmp_path: Path) -> Run:
    shutil.copytree(failing, tmp_path / "store")
    return lambda *arguments: run("modes", *arguments)


def named(modes: Run) -> dict[str, str]:
    """Name -> id of the modes by residual."""
    (found,) = modes("list", "--source", "residual", "--json").json
    return {mode["name"]: mode["mode_id"] for mode in found["modes"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(modes: Run, command: str) -> None:
    ran = modes(command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: counterpoint modes {command}")
    assert "--json" in ran.out


def test_without_a_command_the_help_is_shown(modes: Run) -> None:
    ran = modes()
    assert ran.code == 2
    assert all(f"  {command} " in ran.out + ran.err for command in COMMANDS)


def test_list_names_both_sources_with_their_standing(modes: Run) -> None:
    ran = modes("list")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "residual: 42 profiles"
    assert lines[1].startswith("stability 1.00 (")
    assert "with shuffled cells); agreement with the second view (adjusted Rand index, 3 groups by density): 1.00" in lines[1]
    assert "orchestration: 42 profiles" in lines
    found = modes("list", "--json").json
    assert [(one["source"], one["n_profiles"], len(one["modes"])) for one in found] == [
        ("residual", 42, 3), ("orchestration", 42, 3)
    ]  # fmt: skip
    assert set(found[0]["modes"][0]) == {
        "mode_id", "name", "size", "jaccard", "words", "is_named", "radius", "exemplars", "top_cells", "notes"
    }  # fmt: skip


def test_show_takes_the_beginning_of_an_id(modes: Run) -> None:
    mode_id = named(modes)["plan–execution boundary"]
    shown = modes("show", mode_id[:6], "--json").json
    assert (shown["mode_id"], shown["source"], shown["size"], len(shown["exemplars"])) == (mode_id, "residual", 14, 5)
    assert [(row["fact"], row["value"], row["n"], row["share"]) for row in shown["occurs"]] == [
        ("domain", "coding", 14, 1.0), ("format", "counterpoint", 14, 1.0), ("outcome", "failed", 14, 1.0)
    ]  # fmt: skip
    text = modes("show", mode_id).out
    assert all(part in text for part in ("plan–execution boundary", "implies | planner–worker", shown["exemplars"][0]))


def test_a_new_name_stays(modes: Run, tmp_path: Path) -> None:
    mode_id = named(modes)["loss in merging"]
    ran = modes("rename", mode_id, "  merged away  ")
    assert (ran.code, ran.out, ran.err) == (0, "", f"{mode_id}: loss in merging is now called merged away\n")
    assert named(modes)["merged away"] == mode_id
    store = Workspace(tmp_path / "store")
    store.commit(store.head(), {}, keys={"modes": "another"})
    analyse(store, only=["modes"])
    assert named(modes)["merged away"] == mode_id
    (row,) = Snapshot(store).sql("select what, author from decisions").to_pylist()
    assert row["what"] == "rename mode"
    assert row["author"]
    assert modes("rename", mode_id, "last one", "--json").json == {
        "mode_id": mode_id, "was": "merged away", "name": "last one"
    }  # fmt: skip


def test_a_library_recognises_its_own_kinds_in_another_workspace_and_no_others(modes: Run, tmp_path: Path) -> None:
    exported = modes("export", "known.json", "--source", "residual")
    assert (exported.code, exported.out) == (0, "")
    assert exported.err.startswith("known.json: 3 modes of the source residual - ")
    assert modes("export", "twice.json", "--source", "residual", "--json").json == {
        "file": "twice.json", "source": "residual", "n_modes": 3
    }  # fmt: skip
    assert (tmp_path / "known.json").read_bytes() == (tmp_path / "twice.json").read_bytes()
    assert "counterpoint:" not in (tmp_path / "known.json").read_text("utf-8")
    other = Workspace(tmp_path / "other", create=True)
    import_paths(other, [write_traces(tmp_path / "new.jsonl", failing_teams(12, kinds=("check",), prefix="x", seed=9))])
    analyse(other, only=["quality", "claims", "residuals"])
    found = modes("match", "known.json", "-w", "other", "--json").json
    assert (found["source"], found["n_profiles"]) == ("residual", 12)
    counts = {mode["name"]: (mode["n_nearest"], mode["n_recognised"]) for mode in found["modes"]}
    assert counts == {
        "plan–execution boundary": (0, 0), "loss in merging": (0, 0), "shared-state conflict": (12, found["n_recognised"])
    }  # fmt: skip
    assert found["n_recognised"] >= 9
    near = {mode["name"]: mode["distance_median"] for mode in found["modes"]}
    assert near["loss in merging"] is None
    assert 0 < near["shared-state conflict"] < 0.3
    said = modes("match", "known.json", "-w", "other").err
    assert said.startswith(f"{found['n_recognised']} of 12 profiles here lie within the radius that holds 95 %")


def test_transfer_counts_who_is_recognised_in_the_other_domain(modes: Run) -> None:
    rows = modes("transfer", "--source", "residual", "--json").json
    assert {(row["learned_in"], row["recognised_in"]) for row in rows} == {
        (one, other) for one in ("coding", "research") for other in ("coding", "research")
    }
    by_pair = {(row["learned_in"], row["recognised_in"]): row for row in rows}
    away = by_pair["coding", "research"]
    assert (away["n"], away["n_recognised"], away["share"], away["low"]) == (14, 0, 0.0, 0.0)
    assert 0.1 < away["high"] < 0.3
    home = by_pair["coding", "coding"]
    assert (home["n_modes"], home["n"]) == (2, 5)
    assert by_pair["research", "coding"]["reason"] == "No modes: 12 profiles, and at least 20 are needed."
    assert by_pair["research", "coding"]["share"] is None
    assert "learned_in" in modes("transfer").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nothing"), "mode: no mode has this id (got nothing, expected "),
        (("show", ""), "mode: no mode has this id (expected "),
        (("rename", "nothing", "x"), "mode: no mode has this id (got nothing, expected "),
        (("export", "x.json"), "mode library: both sources have modes (expected --source residual or orchestration)"),
        (("export", "no/folder.json", "--source", "residual"), "no/folder.json: the mode library cannot be written (got No such"),
        (("match", "gone.json"), "gone.json: the mode library cannot be read (got No such file or directory) - save one with"),
        (("list", "-w", "gone"), "gone: no workspace here - "),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_2(modes: Run, arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    ran = modes(*arguments)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.removeprefix(f"{tmp_path}/").startswith(message)


def test_an_id_that_several_modes_begin_with_is_answered_with_them(modes: Run, tmp_path: Path) -> None:
    """Of 19 modes two begin with the same of 16 digits."""
    plan = named(modes)["plan–execution boundary"]
    for n in range(13):
        off = Decision(what="split mode", mode_id=plan, trace_ids=(f"counterpoint:plan-{n:02d}",))
        decide(Workspace(tmp_path / "store"), off, author="eve")
    ids = sorted(mode["mode_id"] for source in modes("list", "--json").json for mode in source["modes"])
    digit, n = Counter(mode_id[0] for mode_id in ids).most_common(1)[0]
    ran = modes("show", digit)
    assert ran.code == 2
    assert ran.err.startswith(f"mode: {n} modes begin so (got {digit}, expected ")
    assert sum(mode_id in ran.err for mode_id in ids) == n > 1


def test_an_empty_name_and_a_file_that_is_no_library_are_named(modes: Run, tmp_path: Path) -> None:
    assert modes("rename", named(modes)["loss in merging"], "  ").err == "mode: the name is empty - give a word or two\n"
    (tmp_path / "odd.json").write_text(json.dumps({"format": "odd"}))
    assert modes("match", "odd.json").err.startswith("odd.json: not a mode library (got Invalid enum value 'odd'")


def test_before_the_analysis_each_command_says_what_to_do(run: Run, tmp_path: Path) -> None:
    store = Workspace(tmp_path / "store", create=True)
    import_paths(store, [write_traces(tmp_path / "few.jsonl", failing_teams(1))])
    assert run("modes", "list") == (0, "", "modes are not worked out yet - run `counterpoint analyze`\n")
    assert run("modes", "list", "--json").json == []
    assert run("modes", "show", "x").err == "mode: no mode has this id (got x) - there are no modes; run `counterpoint analyze`\n"
    assert run("modes", "export", "x.json").err == "mode library: modes are not worked out yet - run `counterpoint analyze`\n"
    assert run("modes", "transfer").err.startswith("no trace has a profile; if they are not analysed yet, run")
    analyse(store)
    refusal = "No modes: 3 profiles, and at least 20 are needed."
    assert run("modes", "list").out.splitlines()[:2] == ["residual: 3 profiles", refusal]
    assert run("modes", "export", "x.json").err == f"mode library: there are no modes to save (got {refusal})\n"
