"""Programs judged by the sandbox, each once: the same source for the same place of a task has one verdict as long as this lives.

So hundreds of replays of a task cost little more than one. What a part's tests are, and what is alone with true inputs, is
decided here; the store is hidden.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from analysis.counterfactual.sandbox import Case, Job, Limits, Sandbox, Verdict, judge_many
from analysis.counterfactual.tasks.compose import ENTRY_POINT, ComposedTask
from analysis.counterfactual.tasks.programs import program

#: Right sources of the bank need some hundredths of a second and slow ones half a minute, so that one second tells them apart.
LIMITS = Limits(cpu_s=1.0)
#: Beyond so many verdicts the oldest go.
_N_KEPT = 100_000


class Judge:
    """Judges programs in a sandbox and remembers the verdicts; several threads may ask at once."""

    def __init__(self, sandbox: Sandbox, *, limits: Limits = LIMITS) -> None:
        self._sandbox, self._limits = sandbox, limits
        self._known: dict[tuple[str, ...], Verdict] = {}
        self._lock = threading.Lock()

    @property
    def n_known(self) -> int:
        """How many programs were run and are remembered."""
        return len(self._known)

    def part(self, task: ComposedTask, part: str, source: str) -> Verdict:
        """Judge a source for a part: by the function's own tests, and by its true inputs in the task."""
        node = task.node(part)

        def job() -> Job:
            cases = _distinct([*node.function.cases, *node.cases])
            return Job(program=source, entry_point=node.function.function_id, cases=cases)

        return self._verdict(("part", task.task_id, part, source), job)

    def whole(self, task: ComposedTask, text: str) -> Verdict:
        """Judge a whole program by the integrated tests."""
        return self._verdict(
            ("whole", task.task_id, text), lambda: Job(program=text, entry_point=ENTRY_POINT, cases=task.cases())
        )

    def alone(self, task: ComposedTask, part: str, own: Mapping[str, str], needs: Sequence[str]) -> Verdict:
        """Judge a part by itself: own sources, and true results of what it is said to need.

        A need that is not stated has no stand-in, so that the program fails where the part would have taken its result.
        """
        takes = {place.name: place.takes for place in task.shape.parts}
        stated, todo = set[str](), list(needs)
        while todo:
            stated.add(name := todo.pop())
            todo += takes.get(name, ())
        stubs = {node.part: node.function.reference for node in task.nodes if node.part in stated}
        text = program(task, {**stubs, **own}, result=part)
        return self._verdict(
            ("alone", task.task_id, part, text), lambda: Job(program=text, entry_point=ENTRY_POINT, cases=task.cases(part))
        )

    def _verdict(self, key: tuple[str, ...], job: Callable[[], Job]) -> Verdict:
        with self._lock:
            if key not in self._known:
                verdict = judge_many([job()], workers=1, limits=self._limits, sandbox=self._sandbox)[0]
                if len(self._known) >= _N_KEPT:
                    del self._known[next(iter(self._known))]
                self._known[key] = verdict
            return self._known[key]


def _distinct(cases: Sequence[Case]) -> tuple[Case, ...]:
    return tuple({msgspec.json.encode(case.inputs): case for case in cases}.values())
