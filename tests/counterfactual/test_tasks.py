"""The task bank: every reference is right, every wrong variant is wrong in its own way, and a file that is amiss is named."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from analysis import data_folder
from analysis.counterfactual.sandbox import Case
from analysis.counterfactual.sandbox.verdict import is_same
from analysis.counterfactual.tasks.bank import TYPES, Fault, Function, Variant, load_bank, select
from analysis.counterfactual.tasks.references import References
from analysis.errors import TaskError, UnknownNameError
from tests.counterfactual.bounded import outcomes

BANK = load_bank()
Outcomes = dict[tuple[str, str | None], list[Any]]


def passes(outcome: list[Any], case: Case) -> bool:
    return outcome[0] == "value" and is_same(outcome[1], case.expected, tolerance=case.tolerance)


@pytest.fixture(scope="module")
def found() -> Outcomes:
    """What every source of the bank comes to on every test of its function."""
    keys = [(f, name) for f in BANK.functions for name in (None, *[variant.variant_id for variant in f.variants])]
    jobs = [(f.source(name), f.function_id, [case.inputs for case in f.cases]) for f, name in keys]
    return {(f.function_id, name): came for (f, name), came in zip(keys, outcomes(jobs), strict=True)}


def test_every_reference_passes_all_its_tests_within_the_steps(found: Outcomes) -> None:
    wrong = [
        (function.function_id, n, outcome)
        for function in BANK.functions
        for n, outcome in enumerate(found[function.function_id, None])
        if not passes(outcome, function.cases[n])
    ]
    assert wrong == []


def test_every_variant_fails_a_test(found: Outcomes) -> None:
    right = [
        (function.function_id, variant.variant_id)
        for function in BANK.functions
        for variant in function.variants
        if all(map(passes, found[function.function_id, variant.variant_id], function.cases))
    ]
    assert right == []


def test_no_two_variants_of_a_function_come_to_the_same_on_all_tests(found: Outcomes) -> None:
    same = []
    for function in BANK.functions:
        seen: dict[str, str] = {}
        for variant in function.variants:
            what = json.dumps(found[function.function_id, variant.variant_id])
            if what in seen:
                same.append((function.function_id, seen[what], variant.variant_id))
            seen[what] = variant.variant_id
    assert same == []


def test_performance_variants_are_right_but_run_out_of_steps_and_others_never_do(found: Outcomes) -> None:
    for function in BANK.functions:
        for variant in function.variants:
            came = found[function.function_id, variant.variant_id]
            is_out = [outcome == ["steps"] for outcome in came]
            name = (function.function_id, variant.variant_id)
            assert any(is_out) == (variant.fault == "performance"), name
            if variant.fault == "performance":
                ended = [(outcome, case) for outcome, case, out in zip(came, function.cases, is_out, strict=True) if not out]
                assert all(passes(outcome, case) for outcome, case in ended), name


def test_the_bank_has_the_size_it_promises() -> None:
    faults = Counter(variant.fault for function in BANK.functions for variant in function.variants)
    assert len(BANK.functions) >= 60
    assert len({function.domain for function in BANK.functions}) == 8
    assert {len(function.variants) for function in BANK.functions} <= {3, 4, 5, 6}
    assert min(len(function.cases) for function in BANK.functions) >= 8
    assert all(faults[fault] >= (10 if fault == "performance" else 30) for fault in get_args(Fault))


def test_the_card_counts_what_is_there() -> None:
    def row(name: str, functions: list[Function]) -> str:
        faults = Counter(variant.fault for function in functions for variant in function.variants)
        counts = [len(functions), sum(faults.values()), *[faults[fault] for fault in get_args(Fault)]]
        return f"| {name} | {' | '.join(map(str, counts))} |"

    functions = list(BANK.functions)
    domains = sorted({function.domain for function in functions})
    rows = [row(f"`{domain}.toml`", [f for f in functions if f.domain == domain]) for domain in domains]
    card = (data_folder() / "tasks" / "README.md").read_text()
    assert "\n".join([*rows, row("all", functions)]) in card
    assert f"{len(functions)} small typed Python functions" in card


def test_every_test_is_within_what_its_function_is_defined_for_and_leaves_its_arguments_alone() -> None:
    references = References(BANK)
    for function in BANK.functions:
        for case in function.cases:
            before = json.dumps(case.inputs)
            result = references.call(function, case.inputs)
            assert is_same(result, case.expected, tolerance=case.tolerance), (function.function_id, case)
            assert json.dumps(case.inputs) == before


def test_references_are_not_called_outside_what_they_are_defined_for() -> None:
    by_id = {function.function_id: function for function in BANK.functions}
    assert References(BANK).call(by_id["fibonacci"], [91]) is None
    assert References(BANK).call(by_id["weekday_name"], ["no day"]) is None
    assert References(BANK).call(by_id["weekday_name"], ["2024-01-01"]) == "Monday"


def test_select_takes_domains_and_difficulties() -> None:
    easy = select(BANK, domains=["money", "dates"], high=0.2).functions
    assert {f.domain for f in easy} == {"dates"}
    assert [f.function_id for f in select(BANK, low=0.65).functions] == ["matches"]
    assert select(BANK) == BANK
    with pytest.raises(UnknownNameError, match=r"no such domain \(got poetry, expected dates, dictionaries"):
        select(BANK, domains=["poetry"])


def test_a_source_is_named_by_its_variant() -> None:
    function = next(f for f in BANK.functions if f.function_id == "median")
    assert function.source() == function.reference
    assert function.source("upper-of-two") == function.variants[1].source
    with pytest.raises(UnknownNameError, match=r"median: no such variant \(got lower, expected not-sorted, upper-of-two"):
        function.source("lower")


SOURCE = "def twice(n: int) -> int:\n    return 2 * n\n"
ROW = {
    "id": "twice", "statement": "Return twice the number.", "difficulty": 0.1, "reference": SOURCE, "tests": "[[1], 2]\n",
    "variants": [{"id": "thrice", "fault": "misread-spec", "source": SOURCE.replace("2 *", "3 *")}],
}  # fmt: skip


def written(folder: Path, row: dict[str, Any]) -> Path:
    """A bank of one function; JSON strings and numbers are TOML too."""
    *fields, variants = [(key, row[key]) for key in [*(key for key in row if key != "variants"), "variants"]]
    lines = ["[[functions]]", *[f"{key} = {json.dumps(value)}" for key, value in fields]]
    for variant in variants[1]:
        lines += ["[[functions.variants]]", *[f"{key} = {json.dumps(value)}" for key, value in variant.items()]]
    (folder / "sums.toml").write_text("\n".join(lines))
    return folder


def test_a_bank_of_ones_own_is_read_but_never_run(tmp_path: Path) -> None:
    bank = load_bank(written(tmp_path, ROW))
    assert [(f.domain, f.signature, f.cases) for f in bank.functions] == [("sums", "twice(n: int) -> int", (Case((1,), 2),))]
    assert bank.functions[0].variants == (Variant("thrice", "misread-spec", SOURCE.replace("2 *", "3 *")),)
    with pytest.raises(TaskError, match="references of this bank are not the project's own code and do not run here"):
        References(bank)
    with pytest.raises(TaskError, match="do not run here"):
        References(select(bank, domains=["sums"]))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"difficulty": 2}, r"sums.toml:twice: a field does not have its shape \(got Expected `float` <= 1.0 - at `\$.diff"),
        ({"colour": "red"}, r"unknown field `colour`"),
        ({"reference": "def twice(n: int) -> int\n"}, "twice: reference: not Python"),
        ({"reference": "x = 1\n"}, "twice: reference: the source must be one function, after its imports"),
        ({"reference": "def twice(n) -> int:\n    return n\n"}, "twice: reference: a type is missing or not one of the bank's"),
        ({"reference": "def twice(n: set) -> int:\n    return n\n"}, r"not one of the bank's \(got set, expected int, float"),
        ({"reference": "def twice(n: int = 1) -> int:\n    return n\n"}, "the function may have plain parameters only"),
        ({"requires": "n >"}, "twice: requires: not an expression"),
        ({"tests": ""}, "twice: tests: no tests"),
        ({"tests": "[[1], 2]\n[[1, 2], 2]"}, r"twice: tests: line 2: not a test .*expected \[\[int\], int\] as JSON"),
        ({"tests": '[["1"], 2]'}, "Expected `int`, got `str`"),
        ({"tests": "[[1], 2.0]"}, "Expected `int`, got `float`"),
        ({"variants": [{"id": "a", "fault": "typo", "source": SOURCE}]}, r"'typo' - at `\$.variants\[0\].fault`"),
        ({"variants": [{"id": "a", "fault": "type", "source": "def twice(m: int) -> int:\n    return m\n"}]},
         "twice: a: source: the signature is not the reference's"),
        ({"variants": 2 * [{"id": "a", "fault": "type", "source": SOURCE}]}, "twice: variants: a variant has the id of another"),
    ],
)  # fmt: skip
def test_what_is_amiss_in_a_file_is_named_by_file_function_and_field(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    with pytest.raises(TaskError, match=text):
        load_bank(written(tmp_path, ROW | change))


def test_a_folder_that_is_no_bank_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no task files here \(expected \*.toml\)"):
        load_bank(tmp_path)
    (tmp_path / "a.toml").write_text("x = ")
    with pytest.raises(TaskError, match=r"a\.toml: not a TOML file"):
        load_bank(tmp_path)
    (tmp_path / "a.toml").write_text("x = 1")
    with pytest.raises(TaskError, match=r"a\.toml: no functions"):
        load_bank(tmp_path)
    (tmp_path / "a.toml").write_text((written(tmp_path, ROW) / "sums.toml").read_text())
    with pytest.raises(TaskError, match=r"a function has the name of another one \(got twice\)"):
        load_bank(tmp_path)


def test_all_types_are_in_use_and_all_names_are_different() -> None:
    used = {parameter.type for f in BANK.functions for parameter in f.parameters} | {f.returns for f in BANK.functions}
    assert used == set(TYPES)
    names = [function.function_id for function in BANK.functions]
    assert len(set(names)) == len(names)
