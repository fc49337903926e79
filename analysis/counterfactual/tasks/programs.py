"""Programs of composed tasks: the sources of the parts, one after another, and an entry point that wires them."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.counterfactual.tasks.compose import ENTRY_POINT, ComposedTask, wiring
from analysis.errors import UnknownNameError


def sources(task: ComposedTask, chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a source for every part: the variant whose id is chosen for it, else the reference. Raises UnknownNameError."""
    known = {node.part for node in task.nodes}
    if unknown := sorted(set(chosen or {}) - known):
        raise UnknownNameError(task.task_id, "no such part", got=unknown[0], expected=", ".join(sorted(known)))
    return {node.part: node.function.source((chosen or {}).get(node.part)) for node in task.nodes}


def program(task: ComposedTask, sources: Mapping[str, str], *, result: str | None = None) -> str:
    """Return one program with the entry point `solve`, which takes the task's inputs and returns its result.

    With `result` it returns the result of that part. A part without a source is missing in the program, which then fails
    where it is needed: so a part that was written without its upstream parts is seen to depend on them.

    >>> from analysis.counterfactual.tasks.bank import load_bank
    >>> from analysis.counterfactual.tasks.compose import compose
    >>> from analysis.counterfactual.tasks.shapes import chain
    >>> from analysis.streams import stream
    >>> task = compose(load_bank(), chain(2), rng=stream(8, "doc"))
    >>> print(program(task, {}), end="")
    def solve(p1_points: list[tuple[int, int]]) -> list[int]:
        p1 = bounding_box(p1_points)
        p2 = running_sums(p1)
        return p2
    """
    inputs = ", ".join(map(str, task.inputs))
    returns = task.node(result).function.returns if result else task.returns
    body = "\n".join([f"    {line}" for line in wiring(task, result)])
    parts = [sources[node.part].strip() for node in task.nodes if node.part in sources]
    return "\n\n\n".join([*parts, f"def {ENTRY_POINT}({inputs}) -> {returns}:\n{body}"]) + "\n"
