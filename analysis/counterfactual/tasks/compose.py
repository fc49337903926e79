"""Composed tasks: functions of the bank wired into a graph of a given shape, whose integrated tests the references give.

Decides which function may stand where: its types must fit, the references must be defined for what flows into it, and its
results must differ from case to case, so that an error can show. The search is hidden; the same stream gives the same task.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any, TypeVar

import msgspec
import numpy as np

from analysis.counterfactual.sandbox import Case
from analysis.counterfactual.tasks.bank import TYPES, Bank, Function, Parameter
from analysis.counterfactual.tasks.references import References
from analysis.counterfactual.tasks.shapes import Part, Shape
from analysis.errors import TaskError

_T = TypeVar("_T")
_N_SEARCHES = 50
_MAX_CHARS = 400  # of a value as JSON: what people can still read
ENTRY_POINT = "solve"


class Argument(msgspec.Struct, frozen=True):
    """Where a parameter's value comes from: an input of the task (`takes` is empty), one part, or several as a list."""

    parameter: Parameter
    takes: tuple[str, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """A function at its place. `cases` hold, for each integrated test, its true arguments and its true result."""

    part: str
    function: Function
    arguments: tuple[Argument, ...]
    cases: tuple[Case, ...]

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The inputs of the whole task that this node uses."""
        own = [argument.parameter for argument in self.arguments if not argument.takes]
        return tuple([Parameter(f"{self.part}_{parameter.name}", parameter.type) for parameter in own])


class ComposedTask(msgspec.Struct, frozen=True):
    """A task whose right decomposition, upstream values and difficulty are known. Each part is a requirement unit."""

    task_id: str
    shape: Shape
    nodes: tuple[Node, ...]

    @property
    def requirements(self) -> tuple[str, ...]:
        """The units that a split must cover: the names of the parts."""
        return tuple([node.part for node in self.nodes])

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The parameters of the entry point `solve`, in order."""
        return tuple([parameter for node in self.nodes for parameter in node.inputs])

    @property
    def returns(self) -> str:
        """The type of the result: that of the end, or `list` where several parts are ends."""
        ends = [node.function.returns for node in self.nodes if node.part in self.shape.ends]
        return ends[0] if len(ends) == 1 else "list"

    def node(self, part: str) -> Node:
        """Return the node of a part."""
        return next(node for node in self.nodes if node.part == part)

    def cases(self, part: str | None = None) -> tuple[Case, ...]:
        """Return the integrated tests: inputs of the task, and the true result of the whole or of one part."""
        n_cases = len(self.nodes[0].cases)
        given = [[value for node in self.nodes for value in _given(node, n)] for n in range(n_cases)]
        ends = [self.node(name) for name in ([part] if part else self.shape.ends)]
        tolerance = max([node.cases[0].tolerance for node in ends])
        results = [[node.cases[n].expected for node in ends] for n in range(n_cases)]
        return tuple([
            Case(tuple(inputs), found[0] if len(ends) == 1 else found, tolerance)
            for inputs, found in zip(given, results, strict=True)
        ])  # fmt: skip

    @property
    def text(self) -> str:
        """The task in words: the entry point, the parts, and how they are wired."""
        inputs = ", ".join(map(str, self.inputs))
        parts = [f"- {node.part}: `{node.function.signature}` {node.function.statement}" for node in self.nodes]
        return "\n".join([
            f"Write a program with the function `{ENTRY_POINT}({inputs}) -> {self.returns}`. It is made of these parts:", *parts,
            f"`{ENTRY_POINT}` works as follows:", *wiring(self),
        ])  # fmt: skip


def compose(bank: Bank, shape: Shape, *, rng: np.random.Generator, n_cases: int = 12) -> ComposedTask:
    """Return a task of a shape, each function used at most once, with `n_cases` integrated tests.

    Of every part at least four results differ (of a bool, both occur): one that hardly changes would hide errors.
    Raises TaskError where no functions fit, and where the bank is not the built-in one.

    >>> from analysis.counterfactual.tasks.bank import load_bank
    >>> from analysis.counterfactual.tasks.shapes import SHAPES
    >>> from analysis.streams import stream
    >>> task = compose(load_bank(), SHAPES["chain-3"], rng=stream(7, "compose", "chain-3"))
    >>> task.requirements, len(task.cases())
    (('p1', 'p2', 'p3'), 12)
    """
    references = References(bank)
    for _ in range(_N_SEARCHES):
        if (nodes := _wired(bank, shape, references, rng, n_cases)) is not None:
            digest = hashlib.blake2b(msgspec.json.encode(nodes), digest_size=4).hexdigest()
            return ComposedTask(f"{shape.name}-{digest}", shape, nodes)
    raise TaskError(shape.name, "no functions of the bank fit this shape", hint="take more domains or a smaller shape")


def wiring(task: ComposedTask, result: str | None = None) -> list[str]:
    """Return the lines of the entry point's body, each a statement; `result` names the part to return, else the ends are."""
    needed = _upstream(task, [result] if result else list(task.shape.ends))
    lines = [f"{node.part} = {node.function.function_id}({_call(node)})" for node in task.nodes if node.part in needed]
    ends = [result] if result else task.shape.ends
    return [*lines, f"return {ends[0]}" if len(ends) == 1 else f"return [{', '.join(ends)}]"]


def _wired(bank: Bank, shape: Shape, references: References, rng: np.random.Generator, n_cases: int) -> tuple[Node, ...] | None:
    nodes: dict[str, Node] = {}
    if (types := _planned(bank, shape, rng)) is None:
        return None
    for part in shape.parts:
        used = {node.function.function_id for node in nodes.values()}
        taken = [nodes[name] for name in part.takes]
        offered = [f for f in _shuffled(bank.functions, rng) if f.function_id not in used and _returns(f, part.name, types)]
        fits = ((function, bound) for function in offered for bound in _shuffled(list(_bindings(function, part, taken)), rng))
        found = (_node(part.name, function, bound, taken, references, n_cases) for function, bound in fits)
        node = next((node for node in found if node is not None), None)
        if node is None:
            return None
        nodes[part.name] = node
    return tuple(nodes.values())


def _planned(bank: Bank, shape: Shape, rng: np.random.Generator) -> dict[str, str] | None:
    """Choose from the ends backwards which type each part must return so that some function can take it."""
    types: dict[str, str] = {}
    for part in [part for part in reversed(shape.parts) if part.takes]:
        offered = [function for function in _shuffled(bank.functions, rng) if _returns(function, part.name, types)]
        takeable = (kinds for function in offered for kinds in _shuffled(_takeable(function, len(part.takes)), rng))
        plans = (dict(zip(part.takes, kinds, strict=True)) for kinds in takeable)
        plan = next((plan for plan in plans if all(types.get(name, kind) == kind for name, kind in plan.items())), None)
        if plan is None:
            return None
        types |= plan
    return types


def _returns(function: Function, part: str, types: dict[str, str]) -> bool:
    return function.returns == types.get(part, function.returns)


def _takeable(function: Function, n: int) -> list[tuple[str, ...]]:
    """The types of n results that a function can take together."""
    types = [parameter.type for parameter in function.parameters]
    direct = set(permutations(types, n))
    gathered = {(kind,) * n for kind in TYPES if n > 1 and f"list[{kind}]" in types}
    return sorted(direct | gathered)


def _bindings(function: Function, part: Part, taken: Sequence[Node]) -> Iterator[tuple[Argument, ...]]:
    """Yield the ways to pass what a part takes: each result to a parameter of its type, or all as one list."""
    types = [node.function.returns for node in taken]
    places = range(len(function.parameters))
    for chosen in permutations(places, len(taken)):
        if all(function.parameters[n].type == kind for n, kind in zip(chosen, types, strict=True)):
            source = dict(zip(chosen, part.takes, strict=True))
            yield tuple([Argument(function.parameters[n], (source[n],) if n in source else ()) for n in places])
    for n in places if len(taken) > 1 and len(set(types)) == 1 else ():
        if function.parameters[n].type == f"list[{types[0]}]":
            yield tuple([Argument(function.parameters[m], part.takes if m == n else ()) for m in places])


def _node(
    part: str, function: Function, bound: tuple[Argument, ...], taken: Sequence[Node], references: References, n_cases: int
) -> Node | None:
    """Return the node if the reference is defined for all cases and its results differ; inputs come from its own tests."""
    cases = []
    for n in range(n_cases):
        true = {node.part: node.cases[n].expected for node in taken}
        # Another test's inputs where these, beside what flows in, are outside what the function is defined for.
        tries = (_arguments(function, bound, true, n + later) for later in range(len(function.cases)))
        called = ((given, references.call(function, given)) for given in tries)
        given, result = next(((given, result) for given, result in called if result is not None), ([], None))
        if result is None or len(json.dumps(result)) > _MAX_CHARS:
            return None
        cases.append(Case(tuple(given), result, function.cases[0].tolerance))
    n_needed = 2 if function.returns == "bool" else min(4, n_cases)
    n_results = len({json.dumps(case.expected, sort_keys=True) for case in cases})
    return Node(part, function, bound, tuple(cases)) if n_results >= n_needed else None


def _arguments(function: Function, bound: tuple[Argument, ...], true: dict[str, Any], n: int) -> list[Any]:
    own = function.cases[n % len(function.cases)].inputs
    values = []
    for argument, value in zip(bound, own, strict=True):
        flowing = [true[name] for name in argument.takes]
        values.append(value if not flowing else flowing if _is_gathered(argument) else flowing[0])
    return values


def _given(node: Node, n: int) -> list[Any]:
    values = zip(node.arguments, node.cases[n].inputs, strict=True)
    return [value for argument, value in values if not argument.takes]


def _call(node: Node) -> str:
    texts = []
    for argument in node.arguments:
        taken = ", ".join(argument.takes)
        own = f"{node.part}_{argument.parameter.name}"
        texts.append(own if not taken else f"[{taken}]" if _is_gathered(argument) else taken)
    return ", ".join(texts)


def _is_gathered(argument: Argument) -> bool:
    return len(argument.takes) > 1


def _upstream(task: ComposedTask, parts: list[str]) -> set[str]:
    takes = {part.name: part.takes for part in task.shape.parts}
    found: set[str] = set()
    while parts:
        found.add(part := parts.pop())
        parts += [name for name in takes[part] if name not in found]
    return found


def _shuffled(options: Sequence[_T], rng: np.random.Generator) -> list[_T]:
    # Only `random()` is the same under every version of numpy, so that `permutation` is not used.
    keys = rng.random(len(options)).tolist()
    return [options[n] for n in sorted(range(len(options)), key=keys.__getitem__)]
