"""Counterfactuals of stored studies as an export takes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from analysis.errors import TrainingError
from analysis.pipeline.effects import store_effects, stored_pairs
from analysis.pipeline.exporting import Options, export
from analysis.workspace import Snapshot, Workspace
from tests.dashboard.studied import EXECUTED, Studied, make


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Studied:
    return make(tmp_path_factory.mktemp("studied"))


def test_every_effect_of_a_sound_study_becomes_a_pair_with_its_own_numbers(studied: Studied) -> None:
    snapshot = Snapshot(Workspace(studied.location))
    pairs = stored_pairs(snapshot, [studied.run.trace_id])
    stored = {
        (row["event_id"], row["operator"], row["parameters"], row["metric"], row["seed_block"]): row
        for row in snapshot.sql("select * from effects where study = $study", {"study": EXECUTED}).to_pylist()
    }
    assert pairs
    for pair in pairs:
        row = stored[pair.event_id, pair.operator, pair.parameters, pair.metric, pair.seed_block]
        assert (pair.delta_q, pair.credit, pair.n) == (row["delta_q"], -row["delta_q"], row["n"])
        assert pair.prompt[0]["role"] == "system"
    assert len({pair.pair_id for pair in pairs}) == len(pairs)


def test_an_export_holds_the_pairs_of_its_traces(studied: Studied, tmp_path: Path) -> None:
    workspace = Workspace(studied.location)
    done = export(workspace, None, tmp_path, formats=["counterfactual"], options=Options(workers=1))
    rows = [row for path in (tmp_path / "views/counterfactual").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert len(rows) == sum(done.views["counterfactual"].records.values()) > 0
    assert {(row["evidence"], row["world"]) for row in rows} == {("interventional", "simulated"), ("simulated", "recorded")}


def test_a_study_whose_controls_failed_is_left_out_and_named(studied: Studied, tmp_path: Path) -> None:
    workspace = Workspace(studied.location)
    snapshot, said = Snapshot(workspace), list[str]()
    run = snapshot.sql("select * exclude (study) from effect_runs where study = $s", {"s": EXECUTED}).to_pylist()[0]
    rows = snapshot.sql("select * exclude (study) from effects where study = $s", {"s": EXECUTED}).to_pylist()
    store_effects(workspace, EXECUTED, rows, run | {"is_sound": False})
    assert stored_pairs(Snapshot(workspace), [studied.run.trace_id], told=said.append) == []
    assert said == ["study executed fails its controls and is left out"]
    with pytest.raises(TrainingError, match=r"made of counterfactual pairs, and there are none .* run `counterpoint effects`"):
        export(workspace, None, tmp_path, formats=["trl-dpo"], options=Options(filter="world:simulated", workers=1))
