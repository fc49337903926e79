"""Whether a program is right, decided outside its process: it sees inputs, never what is expected of them.

Two tiers that never share one rate: "values" compares plain values here; "assertions" believes a suite that ran beside the
program, which a program can fool.
"""

from __future__ import annotations

import json
import math
import reprlib
import signal
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Literal

import msgspec

from analysis.counterfactual.sandbox.launcher import Layers, Limits, Run, Sandbox, open_sandbox
from analysis.errors import SandboxError, printable

Tier = Literal["values", "assertions"]
Reason = Literal["wrong", "raised", "not-plain", "broken", "crashed", "memory", "timeout", "output", "files", "threads"]
_SHORT = reprlib.Repr()  # words for values of any depth and size
_SHORT.maxlist = _SHORT.maxdict = 12
_SHORT.maxstring = _SHORT.maxlong = 80


class Case(msgspec.Struct, frozen=True):
    """The arguments of one call and the value it must return, both plain: what JSON can say.

    Floats may differ by `tolerance`, absolute for values up to 1 and relative beyond; 0 asks for the same number.
    Raises SandboxError for values that are not plain.
    """

    inputs: Sequence[Any]
    expected: Any
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("inputs", self.inputs), ("expected", self.expected)):
            try:
                is_plain = is_same(json.loads(json.dumps(value)), value)
            except (TypeError, ValueError, RecursionError):
                is_plain = False
            if not is_plain:
                raise SandboxError(f"case: {name}", "not plain", got=type(value).__name__, expected="what JSON can say")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A program and what it is measured by: a function of it with cases, or the source text of tests."""

    program: str
    entry_point: str | None = None
    cases: Sequence[Case] = ()
    tests: str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one program came to. A suite of assertions counts as one case. `failure` tells the first failing case in words."""

    passed: bool
    n_passed: int
    n_cases: int
    tier: Tier
    reason: Reason | None
    failure: str
    cpu_s: float
    layers: Layers

    @property
    def backend(self) -> str:
        """How the program was held: by the own layers or by bubblewrap around them."""
        return self.layers.backend

    @property
    def is_unsafe(self) -> bool:
        """Whether the program ran with less than the minimum around it."""
        return not self.layers.is_enough


def judge(
    program: str, entry_point: str, cases: Sequence[Case], *, limits: Limits | None = None, sandbox: Sandbox | None = None
) -> Verdict:
    """Call `entry_point` of the program with the inputs of each case, all in one process, and compare what it returns.

    Values are compared by `is_same`. A crash or a limit fails the case it meets and all later ones. Without `sandbox`, one
    is opened for this call. Raises SandboxError where programs cannot be run.

    >>> judge("def add(a, b): return a + b", "add", [Case([1, 2], 3), Case([1, 1], 3)]).failure
    'case 2: add(1, 1) gave 2, expected 3'
    """
    return judge_many([Job(program=program, entry_point=entry_point, cases=cases)], workers=1, limits=limits, sandbox=sandbox)[0]


def assert_suite(program: str, test_text: str, *, limits: Limits | None = None, sandbox: Sandbox | None = None) -> Verdict:
    """Run the program and then its tests in the same process; it passes where nothing is raised and the tests end.

    >>> assert_suite("def add(a, b): return a - b", "assert add(2, 1) == 3, 'two and one'").failure
    'the tests raised AssertionError: two and one'
    """
    return judge_many([Job(program=program, tests=test_text)], workers=1, limits=limits, sandbox=sandbox)[0]


def judge_many(
    jobs: Sequence[Job], *, workers: int = 4, limits: Limits | None = None, sandbox: Sandbox | None = None
) -> list[Verdict]:
    """Judge programs, `workers` at a time, and return a verdict each, in order."""
    for job in jobs:
        if (job.tests is None) == (job.entry_point is None) or bool(job.cases) != (job.tests is None):
            raise SandboxError("job", "it needs either a function and at least one case, or tests", got=job.program)
    with nullcontext(sandbox) if sandbox else open_sandbox() as box, ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda job: _judged(job, box, limits), jobs))


def tier_of(verdicts: Iterable[Verdict]) -> Tier:
    """Return the tier that all have in common; a rate over two tiers has no meaning, and raises SandboxError."""
    tiers = {verdict.tier for verdict in verdicts}
    if len(tiers) != 1:
        raise SandboxError("verdicts", "they are not of one tier", got=", ".join(sorted(tiers)) or "none", expected="one tier")
    return tiers.pop()


def is_same(value: Any, expected: Any, *, tolerance: float = 0.0) -> bool:
    """Compare two plain values by type and value.

    Lists and tuples are one type, as in JSON. A whole number is a float where a float is expected, not the other way
    round; true and false are no numbers. NaN is the same as NaN only.

    >>> is_same([1, (2, 3)], [1, [2, 3]]), is_same(True, 1), is_same(1, 1.0), is_same(1.0, 1)
    (True, False, True, False)
    """
    if isinstance(expected, list | tuple):
        is_sequence = isinstance(value, list | tuple) and len(value) == len(expected)
        return is_sequence and all(is_same(v, e, tolerance=tolerance) for v, e in zip(value, expected, strict=True))
    if isinstance(expected, dict):
        has_keys = isinstance(value, dict) and value.keys() == expected.keys()
        return has_keys and all(is_same(value[key], expected[key], tolerance=tolerance) for key in expected)
    if isinstance(expected, float) and isinstance(value, int | float) and not isinstance(value, bool):
        return _is_near(value, expected, tolerance)
    return type(value) is type(expected) and bool(value == expected)


def _is_near(value: float, expected: float, tolerance: float) -> bool:
    if value == expected:
        return True
    if abs(value) > sys.float_info.max and isinstance(value, int):
        return False  # no float is near so large a whole number
    if not (math.isfinite(value) and math.isfinite(expected)):
        return math.isnan(value) and math.isnan(expected)
    return abs(value - expected) <= tolerance * max(1.0, abs(expected))


def _judged(job: Job, sandbox: Sandbox, limits: Limits | None) -> Verdict:
    inputs = [list(case.inputs) for case in job.cases]
    run = sandbox.run(job.program, entry_point=job.entry_point, inputs=inputs, tests=job.tests, limits=limits)
    answers = [_answer(line) for line in run.results]
    n_cases = len(job.cases) if job.tests is None else 1
    verdicts = [_of_case(job, n, answer) for n, answer in enumerate(answers[:n_cases])]
    failures = [found for found in verdicts if found]
    if failures:
        reason, failure = failures[0]
    elif run.killed_for or run.exit_code or len(answers) != n_cases:
        reason = _ended(run, limits or Limits())
        failure = f"{_place(job, len(answers))}the program ended ({reason}, exit code {run.exit_code})"
    else:
        reason, failure = None, ""
    return Verdict(
        passed=reason is None, n_passed=len(verdicts) - len(failures), n_cases=n_cases, reason=reason, failure=failure,
        tier="values" if job.tests is None else "assertions", cpu_s=run.cpu_s, layers=run.layers,
    )  # fmt: skip


def _answer(line: str) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _of_case(job: Job, n: int, answer: dict[str, Any]) -> tuple[Reason, str] | None:
    """Why the answer fails its case, and in words; None where it passes."""
    error = next((str(answer[key]) for key in ("broke", "raised", "not_plain") if key in answer), None)
    if "broke" in answer:
        return "broken", printable(f"the program cannot be loaded: {error}", 300)
    if error is not None:
        reason: Reason = "not-plain" if "not_plain" in answer else "memory" if error == "MemoryError" else "raised"
        what = f"returned no plain value: {error}" if reason == "not-plain" else f"raised {error}"
        return reason, printable(f"{_place(job, n)}{_call(job, n)} {what}", 300)
    if job.tests is not None:
        return None if answer == {"done": True} else ("wrong", "the tests did not end")
    case = job.cases[n]
    if "value" not in answer:
        return "wrong", f"{_place(job, n)}no result"
    if is_same(answer["value"], case.expected, tolerance=case.tolerance):
        return None
    return "wrong", printable(
        f"{_place(job, n)}{_call(job, n)} gave {_SHORT.repr(answer['value'])}, expected {_SHORT.repr(case.expected)}", 300
    )


def _place(job: Job, n: int) -> str:
    return "" if job.tests is not None else f"case {n + 1}: "


def _call(job: Job, n: int) -> str:
    if job.tests is not None:
        return "the tests"
    return f"{job.entry_point}({', '.join(map(_SHORT.repr, job.cases[n].inputs))})"


def _ended(run: Run, limits: Limits) -> Reason:
    if run.killed_for:
        return run.killed_for
    is_out_of_cpu = run.exit_code == -signal.SIGXCPU or (run.exit_code == -signal.SIGKILL and run.cpu_s >= limits.cpu_s)
    return "timeout" if is_out_of_cpu else "crashed"
