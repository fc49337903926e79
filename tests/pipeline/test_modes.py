"""The stage `modes`: what it finds is found again, and what people decide outlives analysis and import."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from analysis.coherence.modes.decisions import Decision
from analysis.errors import UnknownNameError
from analysis.pipeline import analyse, import_paths
from analysis.pipeline.modes import SOURCES, TABLES, decide, profiles_of, stored_modes
from analysis.workspace import Snapshot, Workspace
from tests.pipeline.corpus import contents, write_traces
from tests.pipeline.teams import KINDS, failing_teams

Modes = dict[str, set[str]]


def kinds(source: str, workspace: Workspace) -> Modes:
    """Mode id -> the kinds of team in it."""
    rows = Snapshot(workspace).sql("select mode_id, trace_id from mode_members where source = $s", {"s": source}).to_pylist()
    found: Modes = {}
    for row in rows:
        found.setdefault(row["mode_id"], set()).add(row["trace_id"].removeprefix("counterpoint:").partition("-")[0].strip("x"))
    return found


def mode_of(kind: str, workspace: Workspace, source: str = "residual") -> str:
    (mode_id,) = [mode_id for mode_id, inside in kinds(source, workspace).items() if kind in inside]
    return mode_id


def row_of(mode_id: str, workspace: Workspace) -> dict[str, object]:
    (row,) = Snapshot(workspace).sql("select * from modes where mode_id = $id", {"id": mode_id}).to_pylist()
    return row


def analysed_again(workspace: Workspace) -> None:
    """Run the stage anew, as after a change of its version."""
    workspace.commit(workspace.head(), {}, keys={"modes": "another"})
    assert [report.n_done > 0 for report in analyse(workspace, only=["modes"])] == [True]


def more_teams(workspace: Workspace, folder: Path, n_each: int = 8) -> None:
    report = import_paths(workspace, [write_traces(folder / "more.jsonl", failing_teams(n_each, prefix="x", seed=5))])
    assert len(report.added) == 3 * n_each
    analyse(workspace)


@pytest.fixture
def store(failing: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(failing, tmp_path / "w")
    return Workspace(tmp_path / "w")


@pytest.mark.parametrize("source", SOURCES)
def test_three_kinds_of_team_are_three_modes_in_either_source(store: Workspace, source: str) -> None:
    assert sorted(map(tuple, kinds(source, store).values())) == [(kind,) for kind in sorted(KINDS)]
    (run,) = Snapshot(store).sql("select * from mode_runs where source = $s", {"s": source}).to_pylist()
    assert (run["refusal"], run["n_profiles"], run["n_sampled"]) == ("", 42, 42)
    assert run["stability"] >= 0.8 > run["null_stability"]


def test_boundaries_have_their_names(store: Workspace) -> None:
    names = {kind: row_of(mode_of(kind, store), store)["name"] for kind in ("plan", "merge")}
    assert names == {"plan": "plan–execution boundary", "merge": "loss in merging"}


def test_stored_modes_are_the_rows_again_and_labels_are_no_part_of_profiles(store: Workspace) -> None:
    snapshot = Snapshot(store)
    for source in SOURCES:
        modes = stored_modes(snapshot, source)
        assert modes is not None
        assert {mode.mode_id: mode.size for mode in modes.modes} == dict.fromkeys(kinds(source, store), 14)
        assert modes.profiles.trace_ids == tuple(modes.members["trace_id"])
        assert modes.profiles.matrix.sum(axis=1) == pytest.approx(1, abs=1e-5)
        assert not any("label" in cell or "bad plan" in cell for cell in profiles_of(snapshot, source).cells)
    assert stored_modes(snapshot, "residual") is not None


def test_another_workspace_of_the_same_traces_has_the_same_rows(store: Workspace, tmp_path: Path) -> None:
    other = Workspace(tmp_path / "other", create=True)
    shuffled = sorted(failing_teams(14), key=lambda trace: trace.trace_id[::-1])
    import_paths(other, [write_traces(tmp_path / "shuffled.jsonl", shuffled)])
    analyse(other)
    assert contents(other, TABLES) == contents(store, TABLES)


def test_nothing_is_done_twice(store: Workspace) -> None:
    before = store.head()
    assert [(report.stage, report.n_done) for report in analyse(store, only=["modes"])] == [("modes", 0)]
    assert store.head().number == before.number


def test_running_again_changes_nothing(store: Workspace) -> None:
    before = contents(store, TABLES)
    analysed_again(store)
    assert contents(store, TABLES) == before


def test_decisions_outlive_an_analysis_and_new_traces(store: Workspace, tmp_path: Path) -> None:
    plan, check, merge = (mode_of(kind, store) for kind in ("plan", "check", "merge"))
    off = tuple(f"counterpoint:merge-{n:02d}" for n in range(4))
    decide(store, Decision(what="rename mode", mode_id=plan, text="plan lost"), author="eve")
    decide(store, Decision(what="annotate mode", mode_id=check, text="seen since May"), author="eve")
    decide(store, Decision(what="merge modes", mode_id=plan, mode_ids=(check,)), author="eve")
    decide(store, Decision(what="split mode", mode_id=merge, text="odd ones", trace_ids=off), author="eve")

    def stands(n_each: int) -> None:
        whole = row_of(plan, store)
        assert (whole["name"], whole["is_named"], whole["size"]) == ("plan lost", True, 2 * n_each)
        assert (msgspec.json.decode(str(whole["notes"])), whole["jaccard"]) == (["seen since May"], None)
        assert kinds("residual", store)[plan] == {"plan", "check"}
        assert row_of(merge, store)["size"] == n_each - 4
        members = Snapshot(store).sql(
            "select trace_id from mode_members join modes using (source, mode_id) where name = 'odd ones' order by trace_id"
        )
        assert tuple(members["trace_id"].to_pylist()) == off
        assert len(kinds("residual", store)) == 3

    stands(14)
    analysed_again(store)
    stands(14)
    more_teams(store, tmp_path)
    stands(22)
    analysed_again(store)
    stands(22)


def test_a_merge_into_the_smaller_mode_keeps_its_id_through_two_runs(store: Workspace, tmp_path: Path) -> None:
    """What is merged outnumbers what keeps its id: matched by its look, the whole would take the other one's id."""
    import_paths(store, [write_traces(tmp_path / "more.jsonl", failing_teams(20, kinds=("check",), prefix="x", seed=3))])
    analyse(store)
    plan, check = mode_of("plan", store), mode_of("check", store)
    decide(store, Decision(what="merge modes", mode_id=plan, mode_ids=(check,)), author="eve")
    for _ in range(2):
        analysed_again(store)
        assert kinds("residual", store)[plan] == {"plan", "check"}
        assert check not in kinds("residual", store)
        assert row_of(plan, store)["size"] == 48


def test_a_decision_leaves_the_other_source_and_the_data_version_as_they_were(store: Workspace) -> None:
    before, version = contents(store, TABLES), store.head().data_version
    decide(store, Decision(what="rename mode", mode_id=mode_of("plan", store), text="plan lost"), author="eve")
    after = contents(store, TABLES)
    assert before["mode_members"] == after["mode_members"]
    assert len(set(before["modes"]) - set(after["modes"])) == 1
    assert sorted(map(len, before.values())) == sorted(map(len, after.values()))
    assert store.head().data_version == version
    (row,) = Snapshot(store).sql("select what, author, trace_id, value from decisions").to_pylist()
    assert (row["what"], row["author"], row["trace_id"]) == ("rename mode", "eve", "")
    assert msgspec.json.decode(row["value"], type=Decision).text == "plan lost"


def test_a_decision_that_fits_nothing_is_refused_and_not_noted(store: Workspace) -> None:
    plan = mode_of("plan", store)
    before = store.head().number
    with pytest.raises(UnknownNameError, match=r"^mode: no mode has this id \(got nobody, expected "):
        decide(store, Decision(what="rename mode", mode_id="nobody", text="x"), author="eve")
    with pytest.raises(UnknownNameError, match=rf"^mode: split mode: it would change nothing \(got {plan}\)"):
        decide(store, Decision(what="split mode", mode_id=plan, trace_ids=("counterpoint:check-01",)), author="eve")
    with pytest.raises(UnknownNameError, match="merge modes: it would change nothing"):
        decide(store, Decision(what="merge modes", mode_id=plan, mode_ids=(plan, "gone")), author="eve")
    assert store.head().number == before


def test_too_few_traces_are_refused_in_words_and_named_once_there_are_enough(tmp_path: Path) -> None:
    store = Workspace(tmp_path / "w", create=True)
    import_paths(store, [write_traces(tmp_path / "few.jsonl", failing_teams(3))])
    analyse(store)
    rows = Snapshot(store).sql("select source, refusal, n_profiles from mode_runs order by source").to_pylist()
    refusal = "No modes: 9 profiles, and at least 20 are needed."
    assert rows == [{"source": source, "refusal": refusal, "n_profiles": 9} for source in sorted(SOURCES)]
    assert Snapshot(store).sql("select count(*) as n from modes")["n"][0].as_py() == 0
    stored = stored_modes(Snapshot(store), "residual")
    assert stored is not None
    assert (stored.refusal, stored.n_modes, len(stored.members)) == (refusal, 0, 0)
    with pytest.raises(UnknownNameError, match="no mode has this id"):
        decide(store, Decision(what="rename mode", mode_id="x", text="y"), author="eve")
    more_teams(store, tmp_path, 14)
    assert len(kinds("residual", store)) == 3


def test_before_a_run_there_are_no_modes(tmp_path: Path) -> None:
    assert stored_modes(Snapshot(Workspace(tmp_path / "w", create=True)), "residual") is None


def test_traces_that_came_in_since_stand_in_no_mode(store: Workspace, tmp_path: Path) -> None:
    import_paths(store, [write_traces(tmp_path / "more.jsonl", failing_teams(1, prefix="x", seed=5))])
    modes = stored_modes(Snapshot(store), "residual")
    assert modes is not None
    assert (len(modes.members), len(modes.profiles.trace_ids)) == (42, 42)


def test_a_name_given_while_modes_are_looked_for_is_not_lost(store: Workspace) -> None:
    mode = mode_of(min(KINDS), store)
    store.commit(store.head(), {}, keys={"modes": "another"})
    given: list[str] = []

    def name_it(share: float, text: str) -> None:
        if text.startswith("modes") and not given:
            given.append(mode)
            decide(store, Decision(what="rename mode", mode_id=mode, text="late name"), author="me")

    analyse(store, only=["modes"], progress=name_it)
    assert given == [mode]
    assert row_of(mode, store)["name"] == "late name"
