"""Benchmark files of a user's own: the published files beside the checkout, and rows made by hand for the others."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analysis.counterfactual.sandbox import Case
from analysis.counterfactual.tasks.benchmarks_files import BenchmarkFile, BenchmarkTask, Exchange, read_benchmark


def read(folder: Path, *rows: Any, name: str = "tasks.jsonl") -> BenchmarkFile:
    (folder / name).write_text("\n".join([row if isinstance(row, str) else json.dumps(row) for row in rows]))
    return read_benchmark(folder / name)


def one(folder: Path, row: Any) -> BenchmarkTask:
    found = read(folder, row)
    assert found.problems == ()
    return found.tasks[0]


@pytest.mark.parametrize(
    ("file", "tiers", "n_cases", "n_inputs"),
    [
        ("humaneval/HumanEval.jsonl.gz", {"values": 134, "assertions": 30}, 925, 0),
        ("evalplus/HumanEvalPlus-Mini.jsonl.gz", {"values": 163, "browse": 1}, 0, 2576),
        ("evalplus/MbppPlus.jsonl.gz", {"values": 280, "assertions": 98}, 869, 0),
        ("bigcodebench/BigCodeBench.jsonl.gz", {"browse": 1140}, 0, 0),
    ],
)
def test_published_files_are_read_whole(
    shared_benchmarks: Path, file: str, tiers: dict[str, int], n_cases: int, n_inputs: int
) -> None:
    found = read_benchmark(shared_benchmarks / file)
    assert Counter(task.tier for task in found.tasks) == tiers
    assert sum([len(task.cases) for task in found.tasks]) == n_cases
    assert sum([len(task.inputs) for task in found.tasks]) == n_inputs
    assert [problem.severity for problem in found.problems if problem.severity == "lost"] == []
    assert len({task.task_id for task in found.tasks}) == len(found.tasks)


def humaneval(test: str, **fields: Any) -> dict[str, Any]:
    row = {"task_id": "T/0", "prompt": "def f(x):\n", "entry_point": "f", "canonical_solution": "    return x\n"}
    return row | {"test": "METADATA = {}\n\n\ndef check(candidate):\n" + test} | fields


def test_a_row_of_humaneval_becomes_a_task(tmp_path: Path) -> None:
    task = one(tmp_path, humaneval("    assert candidate(1) == 1\n    assert candidate('a') == 'a', 'text'\n"))
    assert task == BenchmarkTask(
        kind="humaneval", task_id="T/0", prompt="def f(x):\n", entry_point="f", reference="def f(x):\n    return x\n",
        cases=(Case([1], 1.0), Case(["a"], "a")),
    )  # fmt: skip
    assert task.tier == "values"


@pytest.mark.parametrize(
    ("line", "case"),
    [
        ("assert candidate([1, 2], k) == 3", None),
        ("assert candidate([1, -2], None) == [3, {'a': True}]", Case([[1, -2], None], [3.0, {"a": True}])),
        ("assert abs(candidate(8) - 4.0) < 1e-6", Case([8], 4.0, 2.5e-7)),
        ("assert candidate(1) == (1, 2)", None),
        ("assert candidate((1, 2)) == 3", None),
        ("assert candidate(1) == {1, 2}", None),
        ("assert candidate(1) == {1: 2}", None),
        ("assert candidate(1)", None),
        ("assert not candidate(1)", None),
        ("assert candidate(x=1) == 1", None),
        ("assert candidate(1) != 1", None),
        ("assert sorted(candidate(1)) == [1]", None),
        ("assert candidate(__import__('os').system('true')) == 0", None),
        ("assert candidate(2) == 9007199254740993", Case([2], 9007199254740993)),
    ],
)
def test_only_literal_comparisons_become_value_cases(tmp_path: Path, line: str, case: Case | None) -> None:
    task = one(tmp_path, humaneval(f"    assert True, 'nothing'\n    {line}\n"))
    assert task.cases == (() if case is None else (case,))
    assert task.tier == ("assertions" if case is None else "values")
    assert (task.tests or "check(f)\n").endswith("check(f)\n")
    assert (task.tests is None) == (case is not None)


def test_humaneval_plus_has_inputs_whose_results_are_the_references(tmp_path: Path) -> None:
    task = one(tmp_path, humaneval("    assert g(candidate)\n", base_input=[[1]], plus_input=[[2], ["b"]], atol=1e-6))
    assert (task.kind, task.inputs, task.tolerance, task.tests) == ("humaneval+", ((1,), (2,), ("b",)), 1e-6, None)
    assert task.tier == "values"


def test_the_one_task_with_several_right_answers_keeps_its_assertions(tmp_path: Path) -> None:
    task = one(tmp_path, humaneval("    assert g(candidate)\n", task_id="HumanEval/32", base_input=[[1]], plus_input=[[2]]))
    assert (task.kind, task.inputs, task.tier) == ("humaneval+", (), "assertions")


def mbpp(assertion: str) -> dict[str, Any]:
    row = {"task_id": "Mbpp/1", "prompt": "Add.", "entry_point": "add", "canonical_solution": "def add(a, b): return a + b"}
    return row | {"assertion": assertion, "base_input": [[1, 2]], "plus_input": [[3, 4]], "atol": 0, "contract": ""}


def test_mbpp_plus_is_judged_by_its_assertions(tmp_path: Path) -> None:
    task = one(tmp_path, mbpp("\nassert add(1, 2) == 3\nassert add(0, 0) == 0\n"))
    assert (task.kind, task.cases, task.tests) == ("mbpp+", (Case([1, 2], 3.0), Case([0, 0], 0.0)), None)
    text = "assert math.isclose(add(1, 2), 3)\n"
    assert (one(tmp_path, mbpp(text)).tests, one(tmp_path, mbpp(text)).tier) == (text, "assertions")


def test_bigcodebench_is_for_reading(tmp_path: Path) -> None:
    row = {"task_id": "B/0", "entry_point": "task_func", "test": "import unittest", "canonical_solution": "    pass"}
    task = one(tmp_path, row | {"complete_prompt": "def task_func():\n", "libs": "['numpy']"})
    assert (task.kind, task.tier, task.about) == ("bigcodebench", "browse", {"libraries": "['numpy']"})
    assert task.reference == "def task_func():\n    pass"


def livecodebench(public: list[dict[str, str]], private: Any = "[]", **fields: Any) -> dict[str, Any]:
    row = {"question_id": "q1", "question_content": "Double it.", "platform": "made", "difficulty": "easy"}
    return row | {"public_test_cases": json.dumps(public), "private_test_cases": private} | fields


def test_livecodebench_programs_that_read_and_print(tmp_path: Path) -> None:
    stdin = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
    private = json.dumps([{"input": "5\n", "output": "10\n", "testtype": "stdin"}])
    task = one(tmp_path, livecodebench(stdin, private, contest_date="2024-01-06T00:00:00"))
    assert task.exchanges == (Exchange("1\n", "2\n"), Exchange("5\n", "10\n"))
    assert (task.prompt, task.cases, task.entry_point, task.tier) == ("Double it.", (), None, "values")
    assert task.about == {"platform": "made", "difficulty": "easy", "date": "2024-01-06T00:00:00"}


CALLS = [{"input": "[1, 2]\n3", "output": "[4, 5]", "testtype": "functional"}]
STARTER = "class Solution:\n    def shift(self, numbers, by):\n        "


def test_livecodebench_methods_become_functions(tmp_path: Path) -> None:
    task = one(tmp_path, livecodebench(CALLS, starter_code=STARTER, metadata='{"func_name": "shift"}'))
    assert (task.entry_point, task.cases) == ("shift", (Case([[1, 2], 3], [4.0, 5.0]),))
    scope: dict[str, Any] = {}
    exec(STARTER + "return [n + by for n in numbers]\n" + task.appended, scope)
    assert scope["shift"]([1, 2], 3) == [4, 5]


def test_livecodebench_calls_without_a_name_are_refused(tmp_path: Path) -> None:
    for metadata in ("{}", '{"func_name": "a; import os"}'):
        found = read(tmp_path, livecodebench(CALLS, starter_code=STARTER, metadata=metadata))
        assert found.tasks == ()
        assert [problem.got for problem in found.problems] == ["q1: metadata names no function"]


class _Trap:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def test_pickled_private_tests_are_refused_with_the_reason_and_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    packed = base64.b64encode(zlib.compress(pickle.dumps(_Trap(str(marker))))).decode()
    found = read(tmp_path, livecodebench([{"input": "1", "output": "2", "testtype": "stdin"}], packed))
    assert [str(problem) for problem in found.problems] == [
        "tasks.jsonl:document: private tests are a pickle, and reading one runs its code (got q1) - decode them to JSON elsewhere"
    ]
    assert [task.exchanges for task in found.tasks] == [(Exchange("1", "2"),)]
    assert not marker.exists()
    pickle.loads(zlib.decompress(base64.b64decode(packed)))
    assert marker.exists(), "the trap itself works"


SWE = {
    "instance_id": "made__made-1", "repo": "made/made", "base_commit": "abc", "problem_statement": "It breaks.",
    "patch": "--- a\n", "test_patch": "--- t\n", "FAIL_TO_PASS": '["t::a"]', "PASS_TO_PASS": '["t::b", "t::c"]', "version": "1.0",
}  # fmt: skip


def test_swe_bench_is_for_reading(tmp_path: Path) -> None:
    task = one(tmp_path, SWE)
    about = {"repository": "made/made", "commit": "abc", "version": "1.0", "must pass": "t::a", "must still pass": "t::b\nt::c"}
    assert (task.kind, task.prompt, task.reference, task.tests, task.tier) == (
        "swe-bench", "It breaks.", "--- a\n", "--- t\n", "browse",
    )  # fmt: skip
    assert task.about == about
    assert one(tmp_path, SWE | {"FAIL_TO_PASS": ["t::a"]}).about == about


def test_a_list_and_a_packed_file_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([SWE, mbpp("assert add(1, 2) == 3")]))
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress((tmp_path / "list.json").read_bytes()))
    kinds = [task.kind for task in read_benchmark(tmp_path / "list.json").tasks]
    assert kinds == ["swe-bench", "mbpp+"]
    assert read_benchmark(tmp_path / "rows.jsonl.gz").tasks == read_benchmark(tmp_path / "list.json").tasks


def test_what_is_amiss_is_a_problem_and_the_next_row_is_read_all_the_same(tmp_path: Path) -> None:
    broken = [
        {"question": "?"},
        SWE | {"patch": 3},
        SWE | {"PASS_TO_PASS": "not json"},
        livecodebench([{"input": "1", "output": "x", "testtype": "functional"}], metadata='{"func_name": "f"}'),
        livecodebench([{"input": "1"}]),
        '{"task_id": "cut',
        [1],
    ]
    found = read(tmp_path, *broken, SWE)
    assert [task.task_id for task in found.tasks] == ["made__made-1"]
    assert Counter(problem.code for problem in found.problems) == {"no-reader": 2, "wrong-shape": 4, "truncated": 1}
    assert "line 2" in {problem.record for problem in found.problems}


def test_a_file_that_is_no_data_is_one_problem(tmp_path: Path) -> None:
    found = read(tmp_path, "<html><body>Sign in</body></html>")
    assert (found.tasks, [problem.code for problem in found.problems]) == ((), ["html-page"])
    assert [problem.code for problem in read_benchmark(tmp_path / "none.jsonl").problems] == ["unreadable"]
