"""Programs that attack or cheat come to nothing, whoever runs them and whatever this machine lets the sandbox do."""

from __future__ import annotations

import functools
import gzip
import json
import os
import pickle
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.counterfactual.sandbox import (
    Case,
    Job,
    Limits,
    Sandbox,
    assert_suite,
    judge,
    judge_many,
    layers,
    open_sandbox,
    tier_of,
)
from analysis.counterfactual.sandbox.attempts import attempt_all
from analysis.counterfactual.sandbox.launcher import MINIMUM, Run
from analysis.counterfactual.sandbox.verdict import is_same
from analysis.errors import SandboxError
from tests.counterfactual.attacks import ATTACKS, CHEATS

TIGHT = Limits(wall_s=2.5, cpu_s=1)
ORDINARY_USER = 61234
ADD = "def add(a, b):\n    return a + b"
ADDED = [Case([1, 2], 3), Case([0, 0], 0), Case(["a", "b"], "ab")]
HAS_BUBBLEWRAP = shutil.which("bwrap") is not None
#: name -> (the layers that are refused, what has to hold all the same; None: nothing may run)
REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...] | None]] = {
    "nothing refused": ((), ("rlimits", "seccomp", "landlock")),
    "namespaces refused": (("namespaces",), ("rlimits", "seccomp", "landlock")),
    "landlock refused": (("landlock",), ("rlimits", "seccomp", "bubblewrap")),
    "namespaces of our own and landlock refused": (("namespaces", "landlock"), ("rlimits", "seccomp", "bubblewrap")),
    "landlock and bubblewrap refused": (("landlock", "bubblewrap"), None),
    "seccomp refused": (("seccomp",), None),
}
MACHINE = layers() if sys.platform == "linux" else None
pytestmark = pytest.mark.skipif(MACHINE is None or not MACHINE.is_enough, reason="this machine cannot hold programs")


class World(NamedTuple):
    """What attacks are aimed at, and what they came to."""

    runs: dict[str, Run]
    verdicts: dict[str, Any]
    harm: list[str]


def as_user(user: int, work: Callable[[], Any]) -> Any:
    """Do the work in a child that has become the user, for good, and return what it returns."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if user != os.getuid():
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            with os.fdopen(writable, "wb") as file:
                pickle.dump(work(), file)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(writable)
    with os.fdopen(readable, "rb") as file:
        found = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return pickle.loads(found)


@functools.cache
def check_reach(user: int) -> None:
    """Skip what another user does where this checkout lies in a folder that the user may not enter."""
    if user != os.getuid() and not as_user(user, functools.partial(os.access, __file__, os.R_OK)):
        pytest.skip(f"the checkout lies where user {user} may not read")


def users() -> dict[str, int]:
    return {"root": 0, "ordinary user": ORDINARY_USER} if os.getuid() == 0 else {"ordinary user": os.getuid()}


def interpreter(user: int) -> str | None:
    """An interpreter that the user can reach: this one may lie in a folder of root's."""
    return None if user in (0, os.getuid()) else shutil.which("python3", path="/usr/bin")


@functools.cache
def attacked(user: int, without: tuple[str, ...]) -> World:
    check_reach(user)
    if user != os.getuid() and interpreter(user) is None:
        pytest.skip("no interpreter that another user may read")
    return as_user(user, functools.partial(attack, without, interpreter(user)))  # type: ignore[no-any-return]


def attack(without: tuple[str, ...], python: str | None, *, unsafe: bool = False) -> World:
    """Run every attack and every cheat against a folder, sockets and a process of this user's, and look at them after."""
    os.environ["COUNTERPOINT_SECRET"] = "s"
    folder, mark = tempfile.mkdtemp(), f"86{os.getpid()}.5"
    opened = Path(folder) / "open"
    opened.mkdir()
    (opened / "old").write_text("untouched")
    victim = subprocess.Popen(["sleep", "600"])
    elsewhere = [Path(place, mark) for place in ("/", "/tmp", "/var/tmp", "/dev/shm")]
    tcp, abstract, by_path = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0{mark}")
    by_path.bind(f"{folder}/socket")
    listening = [tcp, abstract, by_path]
    for line in listening:
        line.listen(8)
        line.setblocking(False)
    (Path(folder) / "socket").rename(opened / "socket")
    before = [(path.name, path.stat()[:9]) for path in sorted(opened.iterdir())]
    words = {"folder": folder, "port": tcp.getsockname()[1], "name": mark, "mark": mark, "victim": victim.pid}
    programs = dict(ATTACKS)
    for word, value in words.items():
        programs = {name: text.replace(f"{{{word}}}", str(value)) for name, text in programs.items()}
    try:
        with open_sandbox(without=without, python=python, unsafe=unsafe) as sandbox, ThreadPoolExecutor(4) as pool:
            runs = dict(zip(programs, pool.map(lambda text: sandbox.run(text, limits=TIGHT), programs.values()), strict=True))
            verdicts = {name: judge(text, "add", ADDED, limits=TIGHT, sandbox=sandbox) for name, text in CHEATS.items()}
        harm = ["a socket was reached" for line in listening if accepts(line)]
        harm += ["a file of the host changed"] * (before != [(p.name, p.stat()[:9]) for p in sorted(opened.iterdir())])
        harm += ["the victim was killed"] * (victim.poll() is not None) + survivors(mark)
        harm += [
            f"{path} was written" for path in (f"/var/tmp/{mark}", f"/dev/shm/{mark}", f"/tmp/{mark}") if Path(path).exists()
        ]
        return World(runs, verdicts, harm)
    finally:
        victim.kill()
        for line in listening:
            line.close()
        for path in elsewhere:
            path.unlink(missing_ok=True)
        shutil.rmtree(folder)


def accepts(line: socket.socket) -> bool:
    try:
        line.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def survivors(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [f"{path} survives"] if mark.encode() in path.read_bytes() and b"sleep" in path.read_bytes() else []
        except OSError:
            continue
    return found


CONFIGURATIONS = [
    pytest.param(user, refused, id=f"{name}, {refused}")
    for name, user in users().items()
    for refused, (_, holds) in REFUSED.items()
    if holds is not None
]


def stand(user: int, refused: str) -> World:
    without, holds = REFUSED[refused]
    if "bubblewrap" in (holds or ()) and not HAS_BUBBLEWRAP:
        pytest.skip("bubblewrap is not installed; then nothing runs, see the test of refusals")
    return attacked(user, without)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize(("user", "refused"), CONFIGURATIONS)
def test_attacks_are_stopped(user: int, refused: str, name: str) -> None:
    run = stand(user, refused).runs[name]
    assert "THROUGH" not in run.printed, run.printed
    assert set(REFUSED[refused][1] or ()) <= set(run.layers.held)
    assert run.wall_s < TIGHT.wall_s + 2
    assert len(run.printed) <= (TIGHT.printed_kb << 10) + 1
    endings = {"infinite_output": "output", "sleep_forever": "timeout"}
    if name in endings:
        assert run.killed_for == endings[name]
    if name == "infinite_loop":
        assert run.exit_code == -signal.SIGKILL
        assert run.cpu_s < TIGHT.cpu_s + 1.5


@pytest.mark.parametrize(("user", "refused"), CONFIGURATIONS)
def test_attacks_leave_no_trace_on_the_host(user: int, refused: str) -> None:
    assert stand(user, refused).harm == []


def test_the_attacks_are_real_where_nothing_holds() -> None:
    refused = ("seccomp", "landlock", "namespaces", "bubblewrap")
    world = as_user(os.getuid(), functools.partial(attack, refused, None, unsafe=True))
    through = {name for name, run in world.runs.items() if "THROUGH" in run.printed}
    real = {"write_outside", "network", "read_files", "signal_parent", "symlink", "exec_shell", "memory_files"}
    assert through >= real
    assert {"a socket was reached", "a file of the host changed", "the victim was killed"} <= set(world.harm)
    assert not any("survives" in harm for harm in world.harm)  # the supervisor ends what is left, even so
    assert all(verdict.is_unsafe and not verdict.passed for verdict in world.verdicts.values())


@pytest.mark.parametrize("name", CHEATS)
@pytest.mark.parametrize(("user", "refused"), CONFIGURATIONS)
def test_cheats_do_not_pass(user: int, refused: str, name: str) -> None:
    verdict = stand(user, refused).verdicts[name]
    assert (verdict.passed, verdict.tier, verdict.n_cases, verdict.is_unsafe) == (False, "values", 3, False)
    assert verdict.reason is not None
    assert verdict.failure


@pytest.mark.parametrize("user", users().values(), ids=users())
@pytest.mark.parametrize("refused", [name for name, (_, holds) in REFUSED.items() if holds is None])
def test_nothing_runs_below_the_minimum(user: int, refused: str) -> None:
    check_reach(user)
    python = interpreter(user)

    def refuse() -> str:
        with pytest.raises(SandboxError) as caught, open_sandbox(without=REFUSED[refused][0], python=python):
            pass
        return str(caught.value)

    error = as_user(user, refuse)
    assert error.startswith("sandbox: programs are not run here, too little would hold them (got rlimits")
    assert "expected rlimits + seccomp + landlock or rlimits + seccomp + bubblewrap) - install bubblewrap" in error
    assert error.endswith("or accept that programs can harm this machine: --unsafe-exec")


def test_below_the_minimum_a_program_does_not_even_start(tmp_path: Path) -> None:
    with open_sandbox(without=["landlock", "seccomp", "namespaces", "bubblewrap"], unsafe=True) as sandbox:
        sandbox._request["is_unsafe"] = False  # what held when the sandbox was opened no longer holds
        with pytest.raises(SandboxError, match="programs are not run here"):
            sandbox.run(f"open('{tmp_path}/written', 'w')")
    assert list(tmp_path.iterdir()) == []


def test_unsafe_runs_say_so() -> None:
    with open_sandbox(without=["landlock", "bubblewrap"], unsafe=True) as sandbox:
        verdict = judge(ADD, "add", ADDED, sandbox=sandbox)
    assert (verdict.passed, verdict.is_unsafe, "landlock" in verdict.layers.held) == (True, True, False)
    with open_sandbox(unsafe=True) as sandbox:
        assert not judge(ADD, "add", ADDED, sandbox=sandbox).is_unsafe


def test_a_folder_in_memory_holds_so_many_files_and_bytes_and_no_more() -> None:
    with open_sandbox() as sandbox:
        if "memory-folder" not in sandbox.layers.held:
            pytest.skip("no folder in memory here")
        text = "n = 0\ntry:\n    while n < 999:\n        open(f'f{n}', 'x').close()\n        n += 1\nexcept OSError: print(n)"
        assert sandbox.run(text, limits=Limits(n_files=40)).printed == "40\n"
        fill = "with open('f', 'wb', 0) as f:\n        for n in range(99): f.write(bytes(1 << 20))"
        text = f"try:\n    {fill}\nexcept OSError: print(n)"
        assert sandbox.run(text, limits=Limits(folder_mb=5, file_mb=50)).printed == "5\n"
        assert sandbox.run(text, limits=Limits(folder_mb=50, file_mb=3)).printed == "3\n"
        assert sandbox.run("import os; print(os.listdir('.'))").printed == "[]\n"


def test_each_layer_stops_its_attack_alone_and_each_attack_is_real() -> None:
    assert MACHINE is not None
    found = {attempt.layer: attempt for attempt in attempt_all()}
    assert {layer: attempt.outcome for layer, attempt in found.items()} == dict.fromkeys(found, "stopped")
    assert {layer for layer, attempt in found.items() if attempt.works_here} >= {"supervisor", *MACHINE.held}
    without = {attempt.layer: attempt for attempt in attempt_all(without=["seccomp", "landlock", "namespaces", "bubblewrap"])}
    assert {attempt.outcome for attempt in without.values()} == {"refused"}
    assert {layer for layer, attempt in without.items() if attempt.works_here} <= {"supervisor", "rlimits", "bubblewrap"}


# --- verdicts


@pytest.fixture(scope="module")
def sandbox() -> Any:
    with open_sandbox() as opened:
        yield opened


def outcome(sandbox: Sandbox, program: str, cases: list[Case], **limits: Any) -> tuple[bool, int, str | None, str]:
    verdict = judge(program, "f", cases, limits=Limits(**limits), sandbox=sandbox)
    return verdict.passed, verdict.n_passed, verdict.reason, verdict.failure


def test_a_right_program_passes(sandbox: Sandbox) -> None:
    verdict = judge(ADD, "add", ADDED, sandbox=sandbox)
    assert (verdict.passed, verdict.n_passed, verdict.n_cases, verdict.tier) == (True, 3, 3, "values")
    assert (verdict.reason, verdict.failure, verdict.is_unsafe, verdict.backend) == (None, "", False, sandbox.layers.backend)
    assert 0 < verdict.cpu_s < 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x + 1", (False, 1, "wrong", "case 2: f(2) gave 3, expected 4")),
        ("return [2][x - 1]", (False, 1, "raised", "case 2: f(2) raised IndexError: list index out of range")),
        ("return 2 if x == 1 else {1, 2}", (False, 1, "not-plain", "case 2: f(2) returned no plain value: TypeError: a set")),
        ("return 2 if x == 1 else {1: 2}", (
            False, 1, "not-plain", "case 2: f(2) returned no plain value: TypeError: a dict with keys that are not text",
        )),
        ("return 2 if x == 1 else bytearray(1 << 30)", (False, 1, "memory", "case 2: f(2) raised MemoryError")),
        ("return 2 if x == 1 else print('x' * 1000000)", (
            False, 1, "output", "case 2: the program ended (output, exit code -9)",
        )),
        ("return 2 if x == 1 else 'x' * 10000000", (False, 1, "output", "case 2: the program ended (output, exit code -9)")),
        ("while x == 2: pass\n    return 2", (False, 1, "timeout", "case 2: the program ended (timeout, exit code -24)")),
        ("import time; time.sleep(5 * x - 5); return 2", (
            False, 1, "timeout", "case 2: the program ended (timeout, exit code -9)",
        )),
        ("import os; x == 1 or os.abort(); return 2", (False, 1, "crashed", "case 2: the program ended (crashed, exit code -6)")),
        ("import os; x == 1 or os._exit(7); return 2", (False, 1, "crashed", "case 2: the program ended (crashed, exit code 7)")),
        ("return 2 * x\nraise", (False, 0, "broken", "the program cannot be loaded: RuntimeError: No active exception")),
        ("return 2 * x\ng(", (False, 0, "broken", "the program cannot be loaded: SyntaxError: '(' was never closed")),
        ("return 2 * x\ndel f", (False, 0, "raised", "case 1: f(1) raised KeyError: 'f'")),
        ("return '\\x1b[31m' + chr(0x202e)", (False, 0, "wrong", "case 1: f(1) gave '\\x1b[31m\\u202e', expected 2")),
    ],
)  # fmt: skip
def test_a_failure_is_told_in_words(sandbox: Sandbox, body: str, expected: tuple[Any, ...]) -> None:
    found = outcome(sandbox, f"def f(x):\n    {body}", [Case([1], 2), Case([2], 4)], wall_s=2.5, cpu_s=1)
    if expected[2] == "broken":
        assert found[:3] == expected[:3]
        assert found[3].startswith(expected[3])
    else:
        assert found == expected


def test_no_expected_value_is_in_the_process(sandbox: Sandbox) -> None:
    needle = "the answer that nobody told it"
    search = """
import gc
def f():
    return sum("the answer that " + "nobody told it" in str(x) for x in gc.get_objects() if isinstance(x, (dict, list)))
"""
    assert outcome(sandbox, search, [Case([], needle)])[3] == f"case 1: f() gave 0, expected {needle!r}"


def test_results_that_a_program_forges_do_not_pass(sandbox: Sandbox) -> None:
    four = "\n".join(["{'value': 3}"] * 4)
    deep = [f"{{'value': {'[' * n}{']' * n}}}" for n in range(900, 1000, 9)]
    for line in ("{'value': 3}", "[", "[1]", "null", four, "[" * 100000, *deep):
        text = json.dumps(line.replace("'", '"') + "\n")
        forge = f"    for n in range(3, 64):\n        try: os.write(n, {text}.encode())\n        except OSError: pass\n"
        program = f"import os\ndef f(a, b):\n{forge}    os._exit(0)"
        assert not judge(program, "f", ADDED, sandbox=sandbox).passed


def test_runs_share_nothing(sandbox: Sandbox) -> None:
    leave = "import builtins, random\nbuiltins.kept = 1\nopen('kept', 'w').write('x')\nprint(random.random())"
    look = "import builtins, os, random\nprint(hasattr(builtins, 'kept'), os.listdir('.'), hash('a'))\nprint(random.random())"
    first, second, third = sandbox.run(leave).printed, sandbox.run(look).printed, sandbox.run(look).printed
    assert second.splitlines()[0].startswith("False []")
    assert second == third
    assert first == second.splitlines()[1] + "\n"


def test_ordinary_means_of_python_work(sandbox: Sandbox) -> None:
    program = """
import asyncio, dataclasses, json, pathlib, tempfile, threading, typing
@dataclasses.dataclass
class Point:
    x: int
    y: "int" = 2
async def later(x):
    await asyncio.sleep(0.001)
    return x
def f():
    seen = []
    thread = threading.Thread(target=seen.append, args=(1,))
    thread.start(); thread.join()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "a").write_text("text")
        seen.append(pathlib.Path(folder, "a").read_text())
    return [seen, asyncio.run(later(5)), dataclasses.asdict(Point(1)), list(typing.get_type_hints(Point)), __name__]
"""
    expected = [[1, "text"], 5, {"x": 1, "y": 2}, ["x", "y"], "program"]
    assert outcome(sandbox, program, [Case([], expected)]) == (True, 1, None, "")


def test_a_script_is_main_and_its_exit_code_comes_back(sandbox: Sandbox) -> None:
    assert [sandbox.run(text).exit_code for text in ("", "import sys; sys.exit(5)", "raise ValueError", "raise SystemExit")] == [
        0,
        5,
        1,
        0,
    ]
    assert sandbox.run("print(__name__)").printed == "__main__\n"


def test_jobs_need_exactly_one_measure() -> None:
    for job in (Job(program=""), Job(program="", entry_point="f"), Job(program="", entry_point="f", cases=ADDED, tests="")):
        with pytest.raises(SandboxError, match="job: it needs either a function and at least one case, or tests"):
            judge_many([job])


@pytest.mark.parametrize("value", [{1, 2}, {1: 2}, b"x", 1j, object, pytest.param(10**5000, id="large")])
def test_cases_are_plain(value: Any) -> None:
    with pytest.raises(SandboxError, match=r"case: expected: not plain \(got list"):
        Case([], [value])
    with pytest.raises(SandboxError, match="case: inputs: not plain"):
        Case([value], 1)


def test_many_are_judged_in_order(sandbox: Sandbox) -> None:
    jobs = [Job(program=f"def f(): return {n}", entry_point="f", cases=[Case([], n - n % 2)]) for n in range(12)]
    assert [verdict.passed for verdict in judge_many(jobs, workers=3, sandbox=sandbox)] == [n % 2 == 0 for n in range(12)]


def test_assertions_are_a_tier_of_their_own(sandbox: Sandbox) -> None:
    right = assert_suite(ADD, "assert add(1, 2) == 3", sandbox=sandbox)
    wrong = assert_suite(ADD, "assert add(1, 2) == 4, 'no'", sandbox=sandbox)
    early = assert_suite(ADD + "\nraise SystemExit(0)", "assert add(1, 2) == 4", sandbox=sandbox)
    ended = assert_suite("import os\ndef add(a, b): os._exit(0)", "assert add(1, 2) == 4", sandbox=sandbox)
    fooled = assert_suite(CHEATS["returns what equals everything"], "assert add(1, 2) == 3", sandbox=sandbox)
    values = judge(ADD, "add", ADDED, sandbox=sandbox)
    assert [v.passed for v in (right, wrong, early, ended, fooled)] == [True, False, False, False, True]
    assert (wrong.reason, wrong.failure) == ("raised", "the tests raised AssertionError: no")
    assert (early.reason, ended.reason, ended.failure) == ("broken", "crashed", "the program ended (crashed, exit code 0)")
    assert (tier_of([right, wrong]), tier_of([values])) == ("assertions", "values")
    with pytest.raises(SandboxError, match="they are not of one tier"):
        tier_of([right, values])


def test_a_killed_caller_takes_its_programs_along(tmp_path: Path) -> None:
    code = "from analysis.counterfactual.sandbox import open_sandbox\nopen_sandbox().run('import time; time.sleep(60)')"
    caller = subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    deadline = time.monotonic() + 20
    while not (started := tree(caller.pid))[2:] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(started) > 2
    caller.kill()
    caller.wait()
    while [pid for pid in started if Path(f"/proc/{pid}").exists()] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def tree(pid: int) -> list[int]:
    """The descendants of a process."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += [int(child), *tree(int(child))]
    return found


# --- the comparison

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_a_plain_value_is_the_same_as_what_comes_back_of_it(value: Any) -> None:
    assert is_same(json.loads(json.dumps(value)), value)


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "same"),
    [
        (True, 1, 0, False), (1, True, 0, False), (False, 0.0, 0, False), (1, 1.0, 0, True), (1.0, 1, 0, False),
        ("1", 1, 0, False), ([], {}, 0, False), ("", [], 0, False), ("a", "a", 0, True),
        (None, False, 0, False), ((1, 2), [1, 2], 0, True), ([1, 2], [2, 1], 0, False), ([1], [1, 2], 0, False),
        ({"a": 1}, {"a": 1, "b": 2}, 0, False), ({"b": 2, "a": 1}, {"a": 1, "b": 2}, 0, True), ({"a": True}, {"a": 1}, 0, False),
        (float("nan"), float("nan"), 0, True), (float("nan"), 1.0, 9, False), (1.0, float("nan"), 9, False),
        (float("inf"), float("inf"), 0, True), (float("inf"), 1e308, 1, False), (float("-inf"), float("inf"), 1, False),
        (0.1 + 0.2, 0.3, 0, False), (0.1 + 0.2, 0.3, 1e-9, True), (1000.5, 1000.0, 1e-3, True), (0.5, 0.0, 1e-3, False),
        (10**400, 1.0, 1, False), ([[1.0000001]], [[1.0]], 1e-6, True),
    ],
)  # fmt: skip
def test_values_are_compared_by_type_and_value(value: Any, expected: Any, tolerance: float, same: bool) -> None:
    assert is_same(value, expected, tolerance=tolerance) is same


# --- published benchmarks


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def human_eval(folder: Path) -> dict[str, Job]:
    return {
        row["task_id"]: Job(
            program=row["prompt"] + row["canonical_solution"], tests=f"{row['test']}\ncheck({row['entry_point']})"
        )
        for row in rows(folder / "humaneval/HumanEval.jsonl.gz")
    }


def mbpp(folder: Path) -> dict[str, Job]:
    return {
        row["task_id"]: Job(program=row["prompt"] + row["canonical_solution"], tests=row["assertion"])
        for row in rows(folder / "evalplus/MbppPlus.jsonl.gz")
    }


def failing(jobs: dict[str, Job], names: list[str]) -> dict[str, str]:
    verdicts = judge_many([jobs[name] for name in names])
    return {name: verdict.failure for name, verdict in zip(names, verdicts, strict=True) if not verdict.passed}


MATH_IS_NOT_IMPORTED = {"Mbpp/120": "the tests raised NameError: name 'math' is not defined"}  # a fault of its published test


def test_some_references_of_published_benchmarks_pass(shared_benchmarks: Path) -> None:
    for jobs in (human_eval(shared_benchmarks), mbpp(shared_benchmarks)):
        names = random.Random(8).sample(sorted(jobs.keys() - MATH_IS_NOT_IMPORTED), 40)
        assert failing(jobs, names) == {}


@pytest.mark.soak
def test_all_references_of_published_benchmarks_pass(shared_benchmarks: Path) -> None:
    jobs = human_eval(shared_benchmarks)
    assert (len(jobs), failing(jobs, list(jobs))) == (164, {})
    jobs = mbpp(shared_benchmarks)
    assert (len(jobs), failing(jobs, list(jobs))) == (378, MATH_IS_NOT_IMPORTED)


def test_the_minimum_is_what_the_security_note_says() -> None:
    note = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    assert all(" + ".join(names) in note for names in MINIMUM)
