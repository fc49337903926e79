"""Composed tasks: what is known by construction is so, and the same key gives the same task."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.counterfactual.sandbox import Case
from analysis.counterfactual.sandbox.verdict import is_same
from analysis.counterfactual.tasks.bank import load_bank, select
from analysis.counterfactual.tasks.compose import ComposedTask, compose
from analysis.counterfactual.tasks.programs import program, sources
from analysis.counterfactual.tasks.shapes import SHAPES, Part, Shape, chain, fan, gather, relay, tree
from analysis.errors import TaskError, UnknownNameError
from analysis.model import Trace
from analysis.orchestration.difficulty import features
from analysis.orchestration.timing import timing
from analysis.streams import stream
from tests.counterfactual.bounded import outcomes
from tests.orchestration.runs import event, run

BANK = load_bank()


def task_of(name: str, n: int = 0) -> ComposedTask:
    return compose(BANK, SHAPES[name], rng=stream(7, "compose", name, n))


TASKS = {name: task_of(name) for name in SHAPES}


def passes(came: list[Any], cases: tuple[Case, ...]) -> bool:
    pairs = zip(came, cases, strict=True)
    return all(outcome[0] == "value" and is_same(outcome[1], case.expected, tolerance=case.tolerance) for outcome, case in pairs)


def job(task: ComposedTask, source: str, part: str | None = None) -> tuple[str, str, list[Any]]:
    return source, "solve", [case.inputs for case in task.cases(part)]


def run_of(shape: Shape) -> Trace:
    """The run the shape describes: every part has an agent, leaders spawn their own in one go, results go straight to takers."""
    led = {lead: [part.name for part in shape.parts if part.lead == lead] for lead in {part.lead for part in shape.parts}}
    events = []
    todo: list[str | None] = [None]
    while todo:
        leader = todo.pop(0)
        above = next((part.lead for part in shape.parts if part.name == leader), None)
        after = [] if leader is None else [f"spawn {above}"]
        events.append(event(f"spawn {leader}", leader or "root", kind="spawn", targets=tuple(led[leader]), after=after))
        todo += [name for name in led[leader] if name in led]
    for part in shape.parts:
        events.append(event(part.name, part.name, after=[f"spawn {part.lead}", *part.takes]))
    return run(*events)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chain-3", (1, 3, 2, 0)),
        ("chain-5", (1, 5, 4, 0)),
        ("relay-3", (3, 1, 0, 0)),
        ("fan-4", (1, 4, 0, 0)),
        ("fan-8", (1, 8, 0, 0)),
        ("gather-3", (1, 4, 3, 0)),
        ("diamond", (1, 4, 4, 0)),
        ("tree-2x3", (2, 3, 0, 0)),
        ("tree-2x3-crossed-2", (2, 3, 2, 0)),
        ("tree-3x2", (2, 3, 0, 0)),
        ("ladder-3", (1, 6, 7, 0)),
    ],
)
def test_the_features_of_a_shape_are_those_measured_on_its_run(name: str, expected: tuple[int, ...]) -> None:
    shape = SHAPES[name]
    assert shape.features == expected
    assert features(run_of(shape), timing(run_of(shape))) == expected


def test_all_shapes_are_in_that_table() -> None:
    assert len(SHAPES) == 11


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 8))
@settings(max_examples=30, deadline=None)
def test_features_are_measured_as_constructed_at_every_size(n: int, m: int, n_crossed: int) -> None:
    for shape in (chain(n), relay(n), fan(n), gather(n), tree(n, m, n_crossed=n_crossed)):
        assert features(run_of(shape), timing(run_of(shape))) == shape.features
    assert tree(n, m, n_crossed=n_crossed).features == (2, max(n, m), min(n_crossed, (n - 1) * m), 0)


@pytest.mark.parametrize("name", SHAPES)
def test_parts_are_wired_as_the_shape_says_with_fitting_types(name: str) -> None:
    task = TASKS[name]
    assert task.requirements == tuple([part.name for part in task.shape.parts])
    assert len({node.function.function_id for node in task.nodes}) == len(task.nodes)
    for node, part in zip(task.nodes, task.shape.parts, strict=True):
        assert sorted(name for argument in node.arguments for name in argument.takes) == sorted(part.takes)
        for argument in node.arguments:
            types = [task.node(name).function.returns for name in argument.takes]
            assert not types or argument.parameter.type == (types[0] if len(types) == 1 else f"list[{types[0]}]")


def test_with_all_references_the_integrated_tests_and_the_true_upstream_values_are_right() -> None:
    wanted = [(task, part) for task in TASKS.values() for part in (None, *task.requirements)]
    came = outcomes([job(task, program(task, sources(task), result=part), part) for task, part in wanted])
    assert [(t.task_id, part) for (t, part), c in zip(wanted, came, strict=True) if not passes(c, t.cases(part))] == []
    for task in TASKS.values():
        for node in task.nodes:
            for place, argument in enumerate(node.arguments):
                for n, case in enumerate(node.cases):
                    true = [task.node(name).cases[n].expected for name in argument.takes]
                    assert not true or case.inputs[place] == (true if len(true) > 1 else true[0])


def test_three_of_four_single_faults_fail_the_integrated_tests_and_in_independent_parts_all_do() -> None:
    """A fault of one part may not matter for what flows in, or be lost in what a later part makes of it."""
    tasks = [*TASKS.values(), task_of("chain-3", 1), task_of("diamond", 1)]
    faults = [
        (task, node.part, variant.variant_id)
        for task in tasks
        for node in task.nodes
        for variant in node.function.variants
        if variant.fault != "performance"  # whether it shows depends on the size of what flows in
    ]
    came = outcomes([job(task, program(task, sources(task, {part: variant}))) for task, part, variant in faults])
    shows = [(task, not passes(c, task.cases())) for (task, _, _), c in zip(faults, came, strict=True)]
    assert sum([is_seen for _, is_seen in shows]) / len(shows) >= 0.75
    assert all(is_seen for task, is_seen in shows if task.shape.name in ("fan-4", "fan-8"))


def test_the_same_key_gives_the_same_bytes_and_another_key_another_task() -> None:
    for name in SHAPES:
        assert msgspec.json.encode(task_of(name)) == msgspec.json.encode(TASKS[name])
        assert task_of(name).text == TASKS[name].text
    assert len({task_of("diamond", n).task_id for n in range(20)}) == 20


def test_a_known_task_stays_the_same_task() -> None:
    """What is drawn must not change with versions of Python or numpy; it does change with the bank."""
    task = compose(select(BANK, domains=["lists"]), chain(2), rng=stream(7, "known"))
    assert [(node.part, node.function.function_id) for node in task.nodes] == [("p1", "running_sums"), ("p2", "median")]


def test_a_part_written_without_its_upstream_fails_alone_and_passes_with_it() -> None:
    task = TASKS["chain-3"]
    own = {"p3": sources(task)["p3"]}
    upstream = {"p1": sources(task)["p1"], "p2": sources(task)["p2"]}
    alone, together = outcomes([job(task, program(task, given, result="p3"), "p3") for given in (own, own | upstream)])
    assert alone == [["raised"]] * 12
    assert passes(together, task.cases("p3"))


def test_a_program_is_plain_source_in_the_order_of_the_parts() -> None:
    shape = Shape("two", (Part("a"), Part("b", ("a",))))
    task = compose(select(BANK, domains=["text"]), shape, rng=stream(1, "two"))
    text = program(task, {"a": "def a_source(): ...\n", "b": "def b_source(): ..."})
    a, b = task.nodes
    inputs = ", ".join(map(str, task.inputs))
    head = f"def solve({inputs}) -> {b.function.returns}:\n    a = {a.function.function_id}(a_"
    assert text.startswith(f"def a_source(): ...\n\n\ndef b_source(): ...\n\n\n{head}")
    assert text.endswith("    return b\n")
    assert f"`{a.function.signature}` {a.function.statement}" in task.text
    assert f"`solve({inputs}) -> {b.function.returns}`" in task.text


def test_several_ends_are_returned_as_a_list() -> None:
    task = TASKS["fan-4"]
    assert task.returns == "list"
    assert program(task, {}).endswith("    return [p1, p2, p3, p4]\n")
    assert list(task.cases()[0].expected) == [node.cases[0].expected for node in task.nodes]


def test_values_that_flow_stay_small_and_differ() -> None:
    for task in TASKS.values():
        for node in task.nodes:
            texts = [json.dumps(case.expected) for case in node.cases]
            assert len(texts) == 12
            assert max(map(len, texts)) <= 400
            assert len(set(texts)) >= (2 if node.function.returns == "bool" else 4)


def test_what_cannot_be_made_or_is_not_there_is_named() -> None:
    with pytest.raises(TaskError, match="fan-8: no functions of the bank fit this shape - take more domains"):
        compose(select(BANK, high=0.1), fan(8), rng=stream(1))
    task = TASKS["diamond"]
    with pytest.raises(UnknownNameError, match=r"diamond-\w+: no such part \(got middle, expected join, left, right, top\)"):
        sources(task, {"middle": "x"})
    with pytest.raises(UnknownNameError, match="no such variant"):
        sources(task, {"left": "x"})
