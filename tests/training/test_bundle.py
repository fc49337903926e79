"""The bundle: equal inputs give equal bytes, what was interrupted goes on, and nothing in it is lost or added."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from analysis.errors import TrainingError
from analysis.training.bundle import Drop, begin, digest_of, finish, read_manifest, read_rows, write_bundle, write_shard
from analysis.training.rows import SCHEMA, Row, rows_to_table
from analysis.training.steps import steps_of
from tests.training.rows import plain, row

RECIPE = {"policy": "gates = []"}
DROPS = [Drop("t9", "coherence", "residual above the threshold", 0.5, 0.3), Drop("t8", "review", "a person dropped it")]


def rows(n: int = 25) -> list[Row]:
    return [plain(k, split="test" if k % 5 == 0 else "train") for k in range(n)]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_rows_come_back_in_their_order_split_by_split(tmp_path: Path) -> None:
    manifest = write_bundle(rows(), tmp_path / "b", RECIPE, drops=DROPS, shard_rows=8)
    assert list(read_rows(tmp_path / "b")) == sorted(rows(), key=lambda one: (one.split, one.order_key))
    sizes = {name: [file["n_rows"] for file in split["files"]] for name, split in manifest["splits"].items()}
    assert sizes == {"test": [5], "train": [8, 8, 4]}
    assert sorted(path.name for path in (tmp_path / "b" / "data").iterdir()) == [
        "test-00000.parquet", "train-00000.parquet", "train-00001.parquet", "train-00002.parquet"
    ]  # fmt: skip
    assert manifest == read_manifest(tmp_path / "b")


def test_the_steps_add_up_from_the_traces_that_are_chosen_to_the_rows_that_are_written(tmp_path: Path) -> None:
    """p0 to p3 are written, p1 also has a masked row; all rows of p0#1 are masked; curation's own drops do not count."""
    left = [
        Drop("s", "split", "would join two splits"), Drop("h", "histories", "no words"), Drop("h2", "histories", "no words"),
        Drop("counterpoint:p1#a#b#0", "mask", "all masked"), Drop("counterpoint:p0#1#solver#0", "mask", "all masked"),
        Drop("counterpoint:p0#1#solver#1", "mask", "all masked"), *DROPS,
    ]  # fmt: skip
    out = tmp_path / "b"
    begin(out, digest_of(RECIPE))
    shards = [
        write_shard([rows_to_table([one for one in rows(4) if one.split == split])], out, split, 0) for split in ("test", "train")
    ]
    finish(out, RECIPE, shards, drops=left, about={"n_traces": {"chosen": 8, "written": 4}})
    (out / "data" / "train-00000.parquet").unlink()  # is not asked
    assert steps_of(tmp_path / "b") == [
        ("chosen", 8, None), ("split", 1, None), ("histories", 2, None), ("made", 5, 7), ("mask", 1, 3), ("written", 4, 4)
    ]  # fmt: skip


def test_a_bundle_that_states_no_traces_has_no_steps(tmp_path: Path) -> None:
    write_bundle(rows(4), tmp_path / "b", RECIPE)
    assert steps_of(tmp_path / "b") == []


def test_the_same_rows_give_the_same_bytes_wherever_they_are_written(tmp_path: Path) -> None:
    for name in ("a", "elsewhere/b"):
        write_bundle(iter(rows()), tmp_path / name, RECIPE, drops=DROPS)
    assert files(tmp_path / "a") == files(tmp_path / "elsewhere/b")
    assert str(tmp_path).encode() not in b"".join(files(tmp_path / "a").values())


def test_an_interrupted_bundle_keeps_its_whole_shards(tmp_path: Path) -> None:
    write_bundle(rows(), tmp_path / "whole", RECIPE, drops=DROPS, shard_rows=8)
    begin(tmp_path / "b", digest_of(RECIPE))
    train = [one for one in rows() if one.split == "train"]
    write_shard([rows_to_table(train[8:16])], tmp_path / "b", "train", 1)
    (tmp_path / "b" / "data" / "train-00000.part").write_bytes(b"half")
    written = (tmp_path / "b" / "data" / "train-00001.parquet").stat().st_mtime_ns
    assert not (tmp_path / "b" / "manifest.json").exists()
    write_bundle(rows(), tmp_path / "b", RECIPE, drops=DROPS, shard_rows=8)
    assert files(tmp_path / "b") == files(tmp_path / "whole")
    assert (tmp_path / "b" / "data" / "train-00001.parquet").stat().st_mtime_ns == written


def test_a_whole_bundle_is_not_written_again_and_another_recipe_is_refused(tmp_path: Path) -> None:
    write_bundle(rows(), tmp_path / "b", RECIPE)
    before = files(tmp_path / "b")
    assert write_bundle([], tmp_path / "b", RECIPE) == read_manifest(tmp_path / "b")
    with pytest.raises(TrainingError, match="another bundle - choose another --out"):
        write_bundle(rows(), tmp_path / "b", {"policy": "gates = [1]"})
    assert files(tmp_path / "b") == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(TrainingError, match="not empty"):
        write_bundle(rows(), tmp_path / "full", RECIPE)


@pytest.mark.parametrize("split", ["../escaped", "a/b", ".hidden", ""])
def test_a_split_is_no_way_out_of_the_bundle(tmp_path: Path, split: str) -> None:
    with pytest.raises(TrainingError, match="split: no name for a file"):
        write_bundle([plain(1, split=split)], tmp_path / "b", RECIPE)
    assert [path.name for path in tmp_path.rglob("*")] == ["b", ".begun"]


def test_arguments_of_different_tools_gain_no_nulls(tmp_path: Path) -> None:
    calls = [
        {"id": str(n), "type": "function", "function": {"name": f"f{n}", "arguments": json.dumps(arguments)}}
        for n, arguments in enumerate([{"to": "coder"}, {"parts": ["a", None]}, {}])
    ]
    one = row(messages=[{"role": "user", "content": "Go."}, {"role": "assistant", "content": "", "tool_calls": calls}],
              keep=[False, True], weight=[1.0, 1.0], events=[])  # fmt: skip
    write_bundle([one, plain(1)], tmp_path / "b", RECIPE)
    (found,) = [other for other in read_rows(tmp_path / "b") if other.row_id == one.row_id]
    assert found.messages == one.messages
    text = pq.read_table(tmp_path / "b" / "data" / "train-00000.parquet")["messages"][0].as_py()
    assert json.loads(text)[1]["tool_calls"] == calls


def test_the_schema_is_that_of_the_code_even_where_a_column_is_all_null(tmp_path: Path) -> None:
    bare = row(tools=None, reward=None, d_req=None, family=None, events=[], turn_from=None)
    write_bundle([bare], tmp_path / "b", RECIPE)
    assert pq.read_schema(tmp_path / "b" / "data" / "train-00000.parquet").equals(SCHEMA)


def test_what_is_left_out_stands_in_the_ledger(tmp_path: Path) -> None:
    assert write_bundle(rows(), tmp_path / "b", RECIPE, drops=iter(DROPS))["n_drops"] == 2
    assert [Drop(**one) for one in pq.read_table(tmp_path / "b" / "drops.parquet").to_pylist()] == DROPS


def test_manifest_card_and_croissant_name_the_files_as_they_are(tmp_path: Path) -> None:
    manifest = write_bundle(rows(), tmp_path / "b", RECIPE, shard_rows=8)
    croissant = json.loads((tmp_path / "b" / "croissant.json").read_text(encoding="utf-8"))
    assert {f["contentUrl"]: f["sha256"] for f in croissant["distribution"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in files(tmp_path / "b").items() if name.startswith("data/")
    }
    digests = "".join(one.row_sha256 for one in rows() if one.split == "train")
    assert manifest["splits"]["train"]["content_sha256"] == hashlib.sha256(bytes.fromhex(digests)).hexdigest()
    assert manifest["credit_spread"] == "mean"
    card = (tmp_path / "b" / "README.md").read_text(encoding="utf-8")
    assert '- split: train\n    path: "data/train-*.parquet"' in card


def test_a_changed_row_has_another_hash() -> None:
    assert plain(1).row_sha256 != row(**msgspec.structs.asdict(plain(1)) | {"reward": 0.0}).row_sha256
