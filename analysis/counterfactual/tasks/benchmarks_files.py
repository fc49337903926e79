"""Benchmark files of a user's own: HumanEval(+), MBPP+, BigCodeBench, LiveCodeBench and SWE-bench, as JSON, JSONL or gzip.

Decides what of a row is a task and by what it can be judged; hides the six formats. Everything is data here: nothing is
run, imported or unpickled. Literal assertions become value cases, which a program cannot fool; other tests stay text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from analysis.counterfactual.sandbox import Case
from analysis.errors import Problem, SandboxError
from analysis.readers import open_source, unpacked

Kind = Literal["humaneval", "humaneval+", "mbpp+", "bigcodebench", "livecodebench", "swe-bench"]

_EXACT = 1 << 53  # whole numbers up to here are the same as floats
_METHOD = "\n\ndef {name}(*arguments):\n    return Solution().{name}(*arguments)\n"
_SEVERAL_ANSWERS = {"HumanEval/32"}  # any root of the polynomial will do, so that the reference's is not to be expected


class Exchange(msgspec.Struct, frozen=True):
    """What a program reads from standard input, and what it must print."""

    stdin: str
    stdout: str


class BenchmarkTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a benchmark.

    reference : a whole program that solves it; of SWE-bench the patch
    cases : calls of `entry_point` and what they must return
    inputs : arguments without results: those of the reference are expected, within `tolerance`
    tests : source text to run after the program, where the tests are no plain values; of SWE-bench the test patch
    exchanges : for programs that read and print
    appended : source to add to a program, so that `entry_point` is one of its functions
    about : what else the row says in a word or two: difficulty, date, platform, repository, commit
    """

    kind: Kind
    task_id: str
    prompt: str
    entry_point: str | None = None
    reference: str | None = None
    cases: tuple[Case, ...] = ()
    inputs: tuple[tuple[Any, ...], ...] = ()
    tolerance: float = 0.0
    tests: str | None = None
    exchanges: tuple[Exchange, ...] = ()
    appended: str = ""
    about: dict[str, str] = {}

    @property
    def tier(self) -> Literal["values", "assertions", "browse"]:
        """How a program can be judged; rates of two tiers are never mixed. BigCodeBench and SWE-bench are for reading."""
        if self.kind in ("bigcodebench", "swe-bench") or not (self.cases or self.inputs or self.exchanges or self.tests):
            return "browse"
        return "assertions" if self.tests is not None else "values"


class BenchmarkFile(msgspec.Struct, frozen=True):
    """The tasks of a file, and what of it was lost or repaired."""

    tasks: tuple[BenchmarkTask, ...]
    problems: tuple[Problem, ...]


def read_benchmark(path: Path) -> BenchmarkFile:
    """Read a file; its kind is seen row by row from the fields. Whatever is wrong with a row becomes a problem."""
    with unpacked(path, path.name) as (unpacked_path, problem):
        source = problem or open_source(unpacked_path, path.name)
        if isinstance(source, Problem):
            return BenchmarkFile((), (source,))
        found = [item for row in source.rows() for item in _tasks_of(row.value, path.name, row.place)]
        tasks = tuple([item for item in found if isinstance(item, BenchmarkTask)])
        return BenchmarkFile(tasks, (*source.problems, *[item for item in found if isinstance(item, Problem)]))


def _tasks_of(value: Any, file: str, place: str) -> Iterator[BenchmarkTask | Problem]:
    fields = value.keys() if isinstance(value, dict) else set()
    kind = next(((shape, read) for needed, shape, read in _KINDS if needed <= fields), None)
    if kind is None:
        got = ", ".join(sorted(fields)) or type(value).__name__
        yield Problem(code="no-reader", file=file, record=place, got=got, expected="a row of a known benchmark")
        return
    shape, read = kind
    try:
        for item in read(msgspec.convert(value, shape)):
            yield item if isinstance(item, BenchmarkTask) else Problem(code=item[0], file=file, record=place, got=item[1])
    except (msgspec.MsgspecError, SandboxError) as error:
        yield Problem(code="wrong-shape", file=file, record=place, got=str(error))


_Read = Iterator[BenchmarkTask | tuple[str, str]]  # of a problem: its code, and what was there


class _HumanEval(msgspec.Struct):
    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str | None = None
    base_input: list[list[Any]] = []
    plus_input: list[list[Any]] = []
    atol: float = 0.0


def _humaneval(row: _HumanEval) -> _Read:
    cases = _literal_cases(row.test, "candidate") if row.test else None
    many = [] if row.task_id in _SEVERAL_ANSWERS else [*row.base_input, *row.plus_input]
    inputs = tuple([tuple(given) for given in many])
    tests = f"{row.test}\n\ncheck({row.entry_point})\n" if row.test and cases is None and not inputs else None
    yield BenchmarkTask(
        kind="humaneval+" if row.base_input else "humaneval", task_id=row.task_id, prompt=row.prompt, entry_point=row.entry_point,
        reference=row.prompt + row.canonical_solution, cases=cases or (), inputs=inputs, tolerance=row.atol, tests=tests,
    )  # fmt: skip


class _Mbpp(msgspec.Struct):
    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    assertion: str
    atol: float = 0.0


def _mbpp(row: _Mbpp) -> _Read:
    """The inputs are left out: as JSON they have lost which of them were tuples and sets, and references mind."""
    cases = _literal_cases(row.assertion, row.entry_point)
    yield BenchmarkTask(
        kind="mbpp+", task_id=row.task_id, prompt=row.prompt, entry_point=row.entry_point, reference=row.canonical_solution,
        cases=cases or (), tests=row.assertion if cases is None else None, tolerance=row.atol,
    )  # fmt: skip


class _BigCodeBench(msgspec.Struct):
    task_id: str
    entry_point: str
    test: str
    canonical_solution: str
    prompt: str = ""
    complete_prompt: str = ""
    libs: Any = ()


def _bigcodebench(row: _BigCodeBench) -> _Read:
    prompt = row.complete_prompt or row.prompt
    libraries = row.libs if isinstance(row.libs, str) else ", ".join(map(str, row.libs))
    yield BenchmarkTask(
        kind="bigcodebench", task_id=row.task_id, prompt=prompt, entry_point=row.entry_point,
        reference=prompt + row.canonical_solution, tests=row.test, about={"libraries": libraries},
    )  # fmt: skip


class _LiveCodeBench(msgspec.Struct):
    question_id: str
    question_content: str
    public_test_cases: str | list[Any]
    private_test_cases: str | list[Any] = ""
    starter_code: str = ""
    metadata: str | dict[str, Any] = ""  # JSON as text, as it is published, or as it stands
    platform: str = ""
    difficulty: str = ""
    contest_date: str = ""


class _LiveMetadata(msgspec.Struct):
    func_name: str | None = None


class _LiveTest(msgspec.Struct):
    input: str
    output: str
    testtype: Literal["stdin", "functional"] = "stdin"


def _livecodebench(row: _LiveCodeBench) -> _Read:
    tests = msgspec.convert(_json(row.public_test_cases), list[_LiveTest])
    if _is_pickle(row.private_test_cases):
        yield "pickled-tests", row.question_id
    else:
        tests += msgspec.convert(_json(row.private_test_cases or "[]"), list[_LiveTest])
    name = msgspec.convert(_json(row.metadata or "{}"), _LiveMetadata).func_name
    calls = tuple([_call(test) for test in tests if test.testtype == "functional"])
    if calls and not (name or "").isidentifier():
        yield "wrong-shape", f"{row.question_id}: metadata names no function"
        return
    about = {"platform": row.platform, "difficulty": row.difficulty, "date": row.contest_date}
    yield BenchmarkTask(
        kind="livecodebench", task_id=row.question_id, entry_point=name, cases=calls,
        prompt="\n\n".join(filter(None, [row.question_content, row.starter_code])),
        exchanges=tuple([Exchange(test.input, test.output) for test in tests if test.testtype == "stdin"]),
        appended=_METHOD.format(name=name) if calls and "class Solution" in row.starter_code else "",
        about={key: text for key, text in about.items() if text},
    )  # fmt: skip


def _is_pickle(tests: str | list[Any]) -> bool:
    """Published private tests are a pickle, packed and written in base64; JSON of a list begins with a bracket."""
    return isinstance(tests, str) and bool(tests.strip()) and not tests.lstrip().startswith("[")


def _call(test: _LiveTest) -> Case:
    """An argument stands on each line of the input."""
    return Case([_json(line) for line in test.input.splitlines() if line.strip()], _as_equal(_json(test.output)))


def _json(text: Any) -> Any:
    return msgspec.json.decode(text) if isinstance(text, str) else text


class _SweBench(msgspec.Struct):
    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str
    patch: str
    test_patch: str
    version: str = ""
    created_at: str = ""
    FAIL_TO_PASS: str | list[str] = ""
    PASS_TO_PASS: str | list[str] = ""


def _swe_bench(row: _SweBench) -> _Read:
    fail, keep = [msgspec.convert(_json(names or "[]"), list[str]) for names in (row.FAIL_TO_PASS, row.PASS_TO_PASS)]
    about = {"repository": row.repo, "commit": row.base_commit, "version": row.version, "date": row.created_at}
    about |= {"must pass": "\n".join(fail), "must still pass": "\n".join(keep)}
    yield BenchmarkTask(
        kind="swe-bench", task_id=row.instance_id, prompt=row.problem_statement, reference=row.patch, tests=row.test_patch,
        about={key: text for key, text in about.items() if text},
    )  # fmt: skip


def _literal_cases(tests: str, name: str) -> tuple[Case, ...] | None:
    """Return the cases of tests that are nothing but `assert name(literals) == literal` and the like; None of any others."""
    try:
        statements = [node for node in ast.parse(tests).body if not _is_harmless(node)]
        if len(statements) == 1 and isinstance(statements[0], ast.FunctionDef) and statements[0].name == "check":
            statements = [node for node in statements[0].body if not _is_harmless(node)]
        cases = [_literal_case(node, name) for node in statements]
    except (SyntaxError, ValueError, TypeError, SandboxError, RecursionError):
        return None
    return tuple(cases) or None


def _is_harmless(node: ast.stmt) -> bool:
    """Metadata, docstrings and assertions of nothing."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] == ["METADATA"]
    test = node.value if isinstance(node, ast.Expr) else node.test if isinstance(node, ast.Assert) else None
    return isinstance(node, ast.Pass) or (isinstance(test, ast.Constant) and bool(test.value))


def _literal_case(node: ast.stmt, name: str) -> Case:
    """Raises ValueError where the statement is of no form that is read."""
    if not isinstance(node, ast.Assert):
        raise ValueError("no assertion")
    test, tolerance = node.test, 0.0
    match test:
        case ast.Compare(left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(op=ast.Sub(), left=call, right=value)]),
                         ops=[ast.Lt()], comparators=[limit]):  # fmt: skip
            expected, tolerance = float(ast.literal_eval(value)), float(ast.literal_eval(limit))
            tolerance /= max(1.0, abs(expected))
        case ast.Compare(left=call, ops=[ast.Eq()], comparators=[value]):
            expected = _as_equal(ast.literal_eval(value))
        case _:
            raise ValueError("no comparison")  # a bare `assert f(x)` asks for any true value, which is no value
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != name or call.keywords:
        raise ValueError("no call with plain arguments")
    if any(isinstance(part, ast.Tuple | ast.Set) for part in ast.walk(test)):
        raise ValueError("JSON has no tuples and sets")
    return Case([ast.literal_eval(argument) for argument in call.args], expected, tolerance)


def _as_equal(value: Any) -> Any:
    """Write whole numbers as floats, where a float may be returned: `==` takes 2.0 for 2, a case of 2.0 takes both."""
    if isinstance(value, list):
        return [_as_equal(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_equal(item) for key, item in value.items()}
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _EXACT
    return float(value) if is_whole else value


_KINDS: tuple[tuple[set[str], type[Any], Callable[[Any], _Read]], ...] = (
    ({"instance_id", "problem_statement", "patch"}, _SweBench, _swe_bench),
    ({"question_id", "public_test_cases"}, _LiveCodeBench, _livecodebench),
    ({"task_id", "entry_point", "assertion"}, _Mbpp, _mbpp),
    ({"task_id", "entry_point", "libs"}, _BigCodeBench, _bigcodebench),
    ({"task_id", "entry_point", "canonical_solution"}, _HumanEval, _humaneval),
)
