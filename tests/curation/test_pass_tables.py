"""Pass tables: the same rows from every format, and one sentence for whatever cannot be a count."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.curation.curriculum.pass_tables import PassRow, read_pass_table
from analysis.errors import TaskError

ROWS = [
    {"model": "b", "task_id": "t1", "n_samples": 8, "n_correct": 3},
    {"model": "a", "task_id": "t1", "n_samples": 4, "n_correct": 0},
]
EXPECTED = [PassRow("t1", "a", 4, 0), PassRow("t1", "b", 8, 3)]
CSV = "model,task_id,n_samples,n_correct\nb,t1,8,3\na,t1,4,0\n"


def test_every_format_gives_the_same_rows_whatever_the_file_is_called(tmp_path: Path) -> None:
    contents = {
        "csv": CSV.encode(), "csv-mark": CSV.replace("\n", "\r\n").encode("utf-8-sig"), "csv-gz": gzip.compress(CSV.encode()),
        "json": json.dumps(ROWS).encode(), "jsonl": "\n".join(map(json.dumps, ROWS)).encode(),
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert read_pass_table(tmp_path / name) == EXPECTED, name
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "parquet")
    assert read_pass_table(tmp_path / "parquet") == EXPECTED


def test_rates_become_counts_where_the_attempts_are_known(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("question_id,model,self_repair_pass_at_1_percent,d_orch\nq,m,30.0,0.25\nr,m,100.0,\n")
    assert read_pass_table(file, n_attempts=10) == [PassRow("q", "m", 10, 3, 0.25), PassRow("r", "m", 10, 10)]
    file.write_text("task,model,n,pass_rate\nq,m,3,0.33333333\n")
    assert read_pass_table(file) == [PassRow("q", "m", 3, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv: the table has no rows (expected columns task_id, model, n_samples, and n_correct or pass_rate)"),
        ("task_id,n,c\nq,4,1\n", "t.csv:line 2: no model (got columns task_id, n, c, expected columns task_id, model"),
        ("task_id,model,c\nq,m,1\n", "t.csv:line 2: the number of attempts is not stated (got columns task_id, model, c) - add"),
        ("task_id,model,n\nq,m,4\n", "t.csv:line 2: neither passes nor a pass rate"),
        ("task_id,model,n,c\nq,m,4,1\nq,n,4,5\n", "t.csv:line 3: more passes than attempts, or fewer than none (got 5 of 4)"),
        ("task_id,model,n,c\nq,m,4,1.5\n", "t.csv:line 2: the number of passes is not whole (got 1.5)"),
        ("task_id,model,n,c\nq,m,4,nan\n", "t.csv:line 2: the number of passes is no number from 0 to 1e+09 (got nan)"),
        ("task_id,model,n,rate\nq,m,4,0.3\n", "t.csv:line 2: the rate is no whole number of 4 attempts (got 0.3) - the number"),
        ("task_id,model,n,rate\nq,m,4,30\n", "t.csv:line 2: pass rate is no number from 0 to 1 (got 30)"),
        ("task_id,model,n,c\nq,m,4,1\nq,m,4,2\n", "t.csv:line 3: the same task and model as in line 2 (got q, m) - keep one"),
        ("task_id,model,n,c\nq,m,4\n", "t.csv:line 2: the line has too many or too few values (expected 4 values)"),
        ('task_id,model,n,c\n"q,m,4\n', "t.csv:line 2: not valid CSV (got unexpected end of data)"),
        ("[1, 2]", "t.csv:record 0: the row is no object (got int, expected columns"),
        ('{"task_id": "q", "model": "m", "n": 4, "c": 1}\n{"task_id": ', "t.csv:line 2: the record ends in the middle"),
        ("\x00\x81", "t.csv: not a table (expected CSV in UTF-8, JSON, JSONL or Parquet)"),
        ("PAR1 and no more", "t.csv: not a readable Parquet file (got "),
    ],
)
def test_what_is_no_table_is_one_sentence_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(TaskError) as raised:
        read_pass_table(tmp_path / "t.csv")
    assert str(raised.value).startswith(message)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"gone\.csv: the file cannot be read \(got No such file or directory\)"):
        read_pass_table(tmp_path / "gone.csv")
