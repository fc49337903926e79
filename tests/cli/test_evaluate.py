"""`counterpoint evaluate`: pass@k worked out by hand, tiers apart, and what cannot be judged said in words."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from analysis.counterfactual.sandbox import layers
from analysis.errors import SandboxError
from tests.cli.conftest import Run

SHARED = Path(__file__).resolve().parents[3] / "shared" / "benchmarks"


def _has_sandbox() -> bool:
    try:
        return layers().is_enough
    except SandboxError:
        return False


pytestmark = pytest.mark.skipif(not _has_sandbox(), reason="programs are not run here: the sandbox's minimum does not hold")


@pytest.fixture
def evaluate(run: Run) -> Run:
    return lambda *arguments: run("evaluate", *arguments)


def jsonl(name: str, *rows: Any) -> Path:
    Path(name).write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return Path(name)


TESTS = "    assert candidate(2) == 4\n    assert candidate(0) == 0\n"


def humaneval(task_id: str, test: str = TESTS, **fields: Any) -> dict[str, Any]:
    row = {"task_id": task_id, "prompt": "def f(x):\n", "entry_point": "f", "canonical_solution": "    return 2 * x\n"}
    return row | {"test": f"def check(candidate):\n{test}"} | fields


RIGHT, WRONG, RAISES = "def f(x):\n    return 2 * x\n", "def f(x):\n    return x + 2\n", "def f(x):\n    raise ValueError('no')\n"


def tried(task_id: str, *programs: str) -> list[dict[str, str]]:
    return [{"task_id": task_id, "program": text} for text in programs]


def test_pass_at_k_is_the_mean_over_tasks_worked_out_by_hand(evaluate: Run) -> None:
    tasks = jsonl("tasks.jsonl", humaneval("A"), humaneval("B"), humaneval("C"))
    programs = jsonl(
        "programs.jsonl", *tried("A", RIGHT, WRONG, RIGHT, RAISES), *tried("B", WRONG, WRONG, RIGHT), *tried("C", RIGHT)
    )  # fmt: skip
    ran = evaluate(tasks, programs, "--k", "1", "--k", "2", "--json")
    assert (ran.code, ran.err) == (0, "")
    found = [(task["task_id"], task["n"], task["c"], task["pass_at"]) for task in ran.json["tasks"]]
    a, b, c = {"1": 0.5, "2": 5 / 6}, {"1": 1 / 3, "2": 2 / 3}, {"1": 1.0, "2": None}
    assert found == [("A", 4, 2, a), ("B", 3, 1, b), ("C", 1, 1, c)]
    assert ran.json["tasks"][1]["failure"] == "case 2: f(0) gave 2, expected 0.0"
    rates = {rate["k"]: rate for rate in ran.json["rates"]}
    assert (rates[1]["value"], rates[1]["n"]) == (round((0.5 + 1 / 3 + 1) / 3, 9), 3)
    assert (rates[2]["value"], rates[2]["n"]) == (0.75, 2)  # C has one candidate: there is no pass@2 of it, least of all 1
    assert rates[1]["low"] <= rates[1]["value"] <= rates[1]["high"]
    assert not any(task["is_unsafe"] for task in ran.json["tasks"])
    assert ran.out == evaluate(tasks, programs, "--k", "2", "--k", "1", "--json").out


def test_values_and_assertions_are_two_rates(evaluate: Run) -> None:
    tasks = jsonl("tasks.jsonl", humaneval("A"), humaneval("B", "    y = 2\n    assert candidate(y) == 4\n"), humaneval("C"))
    ran = evaluate(tasks, jsonl("p.jsonl", *tried("A", RIGHT), *tried("B", WRONG, RAISES), *tried("C", WRONG)), "--json")
    rates = [(rate["tier"], rate["value"], rate["n"]) for rate in ran.json["rates"]]
    assert rates == [("values", 0.5, 2), ("assertions", 0.5, 1)]
    assert [task["tier"] for task in ran.json["tasks"]] == ["values", "assertions", "values"]


def test_more_samples_than_there_are_give_a_reason_and_no_rate(evaluate: Run) -> None:
    ran = evaluate(jsonl("tasks.jsonl", humaneval("A")), jsonl("p.jsonl", *tried("A", RIGHT)), "--k", "5", "--json")
    assert ran.json["rates"] == [
        {"tier": "values", "k": 5, "value": None, "low": None, "high": None, "n": 0, "reason": "no task has 5 candidates"}
    ]  # fmt: skip
    text = evaluate("tasks.jsonl", "p.jsonl", "--k", "5").out
    assert "no task has 5 candidates" in text


def test_a_completion_goes_on_with_the_prompt_and_a_solution_is_a_program(evaluate: Run) -> None:
    rows = [{"completion": "    return x * 2\n"}, {"solution": RIGHT}, {"program": ""}]
    programs = jsonl("p.jsonl", *[{"task_id": "A", **row} for row in rows])
    ran = evaluate(jsonl("tasks.jsonl", humaneval("A")), programs, "--json")
    assert (ran.json["tasks"][0]["n"], ran.json["tasks"][0]["c"]) == (3, 2)


def test_inputs_are_judged_by_what_the_reference_gives(evaluate: Run) -> None:
    task = humaneval("A", base_input=[[1]], plus_input=[[5], [-3]], atol=1e-6)
    wrong = "def f(x):\n    return abs(2 * x)\n"
    programs = jsonl("p.jsonl", *tried("A", RIGHT, wrong, "def f(x):\n    return 2.0 * x\n"))
    ran = evaluate(jsonl("tasks.jsonl", task), programs, "--json")
    assert (ran.json["tasks"][0]["c"], ran.json["tasks"][0]["failure"]) == (2, "case 5: f(-3) gave 6, expected -6.0")


STDIN = [{"input": "2\n3\n", "output": "5\n", "testtype": "stdin"}, {"input": "0\n0\n", "output": "0", "testtype": "stdin"}]
READERS = [
    "print(int(input()) + int(input()))",
    "import sys\nprint(sum(map(int, sys.stdin)), ' ')",
    "import sys\nprint(sum(map(int, open(0).read().split())))\nsys.exit(0)",
    "import os\nprint(sum(map(int, os.read(0, 100).split())))",
    "import sys\nsys.stdout.buffer.write(b'%d\\n' % sum(map(int, sys.stdin.buffer.read().split())))",
]


def test_programs_that_read_and_print_are_judged_by_what_they_print(evaluate: Run) -> None:
    task = {"question_id": "q", "question_content": "Add.", "public_test_cases": json.dumps(STDIN)}
    bad = ["print(5)", "input()", "raise SystemExit", "print(open('/etc/passwd').read())"]
    ran = evaluate(jsonl("tasks.jsonl", task), jsonl("p.jsonl", *tried("q", *READERS, *bad)), "--json")
    assert (ran.code, ran.json["tasks"][0]["n"], ran.json["tasks"][0]["c"]) == (0, 9, 5)


def test_what_cannot_be_judged_is_said_and_exit_is_1(evaluate: Run) -> None:
    to_read = {"task_id": "B", "entry_point": "f", "libs": "[]", "test": "x", "canonical_solution": ""}
    tasks = jsonl("tasks.jsonl", humaneval("A"), to_read, humaneval("C"))
    programs = jsonl("p.jsonl", *tried("A", RIGHT), *tried("B", RIGHT), *tried("Z", RIGHT), {"task_id": "A"}, "{")
    ran = evaluate(tasks, programs)
    assert ran.code == 1
    assert "1 tasks have no candidate and are in no rate" in ran.err
    assert "Z: a candidate for a task that the benchmark file does not have - correct task_id" in ran.err
    assert "B: the task cannot be judged here; its candidates are in no rate (got bigcodebench)" in ran.err
    assert "p.jsonl:line 4: the record does not have the shape its format promises (got it needs one of program" in ran.err
    assert "p.jsonl:line 5: " in ran.err
    assert len(evaluate(tasks, programs, "--json").json["problems"]) == 4


@pytest.mark.parametrize(
    ("tasks", "programs", "said"),
    [
        ([humaneval("A")], tried("Z", RIGHT), "candidates: none of them is for a task that can be judged (got Z: a cand"),
        ([humaneval("A")], [], "p.jsonl: the file is empty"),
        ([{"a": 1}], tried("A", RIGHT), "tasks.jsonl: no reader knows this format: a"),
        ([humaneval("A"), humaneval("A")], tried("A", RIGHT), "benchmark: two tasks have the same id"),
    ],
)
def test_unusable_input_is_one_line_and_exit_2(evaluate: Run, tasks: list[Any], programs: list[Any], said: str) -> None:
    ran = evaluate(jsonl("tasks.jsonl", *tasks), jsonl("p.jsonl", *programs))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(said)


def test_missing_files_and_a_k_of_0_are_exit_2(evaluate: Run) -> None:
    ran = evaluate("none.jsonl", "none.jsonl")
    assert (ran.code, ran.err) == (2, "none.jsonl: the file cannot be read: No such file or directory\n")
    assert evaluate("a", "b", "--k", "0").code == 2


def test_the_references_of_humaneval_pass(evaluate: Run, tmp_path: Path) -> None:
    file = SHARED / "humaneval/HumanEval.jsonl.gz"
    if not file.is_file():
        pytest.skip(f"benchmark files are not here: {SHARED}")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    programs = jsonl("p.jsonl", *[{"task_id": row["task_id"], "completion": row["canonical_solution"]} for row in rows])
    ran = evaluate(file, programs, "--json")
    rates = [(rate["tier"], rate["value"], rate["n"]) for rate in ran.json["rates"]]
    assert rates == [("values", 1.0, 134), ("assertions", 1.0, 30)]
    assert ran.code == 0
