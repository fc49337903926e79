"""`counterpoint residual`: what goes in, what comes out, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analysis.cli import app

GOOD = {
    "claims": [{"component": "x", "proposition": "a", "p": 0.6}, {"component": "y", "proposition": "b", "p": 0.6}],
    "relations": ["exactly_one(a, b)"],
}
KEYS = {
    "residual", "lower", "upper", "residual_canonical", "residual_debiased", "residual_norm", "residual_max", "residual_local",
    "residual_composed", "coupling_bits", "projection", "stakes", "violated", "energy", "shapley", "shapley_replace",
    "order_range", "minimal_repairs", "unique", "by_turn", "n_worlds", "method", "reasons",
}  # fmt: skip


def run(text: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["residual", "-", *options], input=text)


def test_the_output_has_every_key_and_a_cause_for_every_null() -> None:
    for item in (GOOD, {"claims": []}, {"claims": GOOD["claims"][:1]}):
        found = json.loads(run(json.dumps(item), "--json").stdout)
        assert found.keys() >= KEYS
        assert {key for key, value in found.items() if value is None} <= found["reasons"].keys()


def test_the_whole_answer_on_two_claims() -> None:
    found = json.loads(run(json.dumps(GOOD), "--json").stdout)
    assert found["violated"] == [{"relation": "exactly_one(a, b)", "text": "exactly one of a and b (quoted: a 0.6, b 0.6)"}]
    assert found["projection"] == {"a": 0.5, "b": 0.5}
    assert found["stakes"] == {"a": -0.707106781, "b": -0.707106781}
    assert found["energy"] == found["shapley"] == found["shapley_replace"] == {"x": 0.01, "y": 0.01}
    assert found["order_range"] == {"x": [0.0, 0.02], "y": [0.0, 0.02]}
    assert found["minimal_repairs"] == [{"components": ["x"], "cost": 0.2}, {"components": ["y"], "cost": 0.2}]
    assert (found["residual"], found["residual_max"], found["residual_norm"]) == (0.141421356, 0.707106781, 0.2)
    assert (found["unique"], found["by_turn"], found["n_worlds"]) == (False, None, 2)
    assert found["summary"] == (
        "Incoherent: the claims lie 0.1414 from the nearest coherent ones, 20% of the largest possible. "
        "Violated: exactly one of a and b (quoted: a 0.6, b 0.6). Every component is coherent alone: the residual lies only "
        "between them. The smallest repair is not unique, so no component can be singled out."
    )


def test_turns_give_the_state_after_the_last_one() -> None:
    claims = [{"component": c, "proposition": n, "p": p, "turn": t} for c, n, p, t in
              [("x", "a", 0.6, 1), ("y", "b", 0.6, 1), ("x", "a", 0.4, 2)]]  # fmt: skip
    found = json.loads(run(json.dumps({**GOOD, "claims": claims}), "--json").stdout)
    assert found["residual"] == 0.0
    assert found["by_turn"] == [
        {"turn": 1, "residual": 0.141421356, "delta": None},
        {"turn": 2, "residual": 0.0, "delta": -0.02},
    ]


def test_a_reference_adds_its_shares() -> None:
    found = json.loads(run(json.dumps({**GOOD, "reference": {"a": 0.6, "b": 0.4}}), "--json").stdout)
    assert found["shapley_reference"] == {"x": 0.0, "y": 0.02}


@pytest.mark.parametrize(
    ("item", "error"),
    [
        ({"claims": [{"component": "x", "proposition": "a", "p": 1.7}]}, "claims[0].p: not a probability (got 1.7, expected"),
        ({"claims": [{"component": "x", "proposition": "a", "p": float("nan")}]}, "claims[0].p: not a probability (got nan"),
        ({"claims": [{"component": "x", "proposition": "a", "p": "high"}]}, "item: Expected `float`, got `str`"),
        ({"claims": [{"component": "x", "proposition": "a"}]}, "item: Object missing required field `p`"),
        ({"claims": [], "relation": []}, "item: Object contains unknown field `relation`"),
        ({"relations": []}, "item: Object missing required field `claims`"),
        ({**GOOD, "relations": ["implies(a, c)"]}, "relation implies(a, c): unknown proposition (got c, expected a, b)"),
        ({**GOOD, "relations": ["a", "~a"]}, "relations: they contradict each other: a; ~a - remove or correct one of them"),
        ({**GOOD, "relations": ["a &"]}, "relation a &: not a formula"),
        (3, "item: Expected `object`, got `int`"),
    ],
)  # fmt: skip
def test_a_bad_item_is_an_error_in_its_place(item: object, error: str) -> None:
    result = run(json.dumps([GOOD, item]), "--json")
    good, bad = json.loads(result.stdout)
    assert result.exit_code == 1
    assert good["residual"] == 0.141421356
    assert bad["error"].startswith(error)
    assert run(json.dumps(item), "--json").exit_code == 2


def test_a_name_that_nobody_quotes_can_be_declared() -> None:
    """Of three outcomes two are quoted: the third may take what is left, but the two may not exceed 1."""
    item = {**GOOD, "relations": ["exactly_one(a, b, c)"], "propositions": ["c"]}
    assert json.loads(run(json.dumps(item), "--json").stdout)["residual"] == 0.141421356


def test_json_lines_and_files_are_read_alike(tmp_path: Path) -> None:
    lines = "\n".join([json.dumps(GOOD), '{"claims": [}', json.dumps({"claims": []})])
    found = json.loads(run(lines, "--json").stdout)
    assert [result.get("residual", "error") for result in found] == [0.141421356, "error", None]
    file = tmp_path / "cliques.json"
    file.write_text(json.dumps([GOOD]), encoding="utf-8")
    result = CliRunner().invoke(app, ["residual", str(file), "--json"])
    assert (result.exit_code, [r["residual"] for r in json.loads(result.stdout)]) == (0, [0.141421356])


@pytest.mark.parametrize(
    ("text", "error"), [("", "input: it is empty"), ("nonsense", "input: not valid JSON"), ('{"claims": [', "not valid JSON")]
)
def test_an_input_that_is_no_json_is_refused_in_one_line(text: str, error: str) -> None:
    result = run(text)
    assert result.exit_code != 0
    assert error in str(result.exception)


def test_a_person_gets_a_sentence_and_tables() -> None:
    result = run(json.dumps(GOOD))
    assert result.exit_code == 0
    assert result.stdout.startswith("Incoherent: the claims lie 0.1414 from the nearest coherent ones")
    assert "shapley_replace" in result.stdout


def test_conditional_quotes_are_called_off_bets_and_ratios_on_request() -> None:
    """Oracle O-32: P(a) = 0.5, P(b if a) = 0.6, P(a & b) = 0.4. The ratio form is never nearer than the called-off one."""
    quotes = {"a": 0.5, "given(b, a)": 0.6, "ab": 0.4}
    said = [{"component": "x", "proposition": name, "p": p} for name, p in quotes.items()]
    item = json.dumps({"claims": said, "relations": ["iff(ab, a & b)"]})
    plain, ratio = (json.loads(run(item, "--json", *options).stdout) for options in ((), ("--ratio",)))
    assert (plain["conditionals"], plain["residual_ratio"]) == ("called-off", None)
    assert plain["reasons"]["residual_ratio"] == "not asked for"
    assert ratio["residual_ratio"]["upper"] == pytest.approx(0.077885, abs=1e-6)
    assert 0 < ratio["residual"] <= ratio["residual_ratio"]["upper"]


def test_samples_say_how_surely_a_component_is_the_worst() -> None:
    said = [("a", [0.9, 0.9, 0.8]), ("b", [0.3, 0.3, 0.4])]
    claims = [{"component": name, "proposition": name, "p": sum(s) / 3, "samples": s} for name, s in said]
    found = json.loads(run(json.dumps({"claims": claims, "relations": ["exactly_one(a, b)"]}), "--json").stdout)
    assert sum(found["bootstrap_top"].values()) == pytest.approx(1)


def test_a_bad_line_is_named_by_its_number_and_an_empty_list_is_refused() -> None:
    found = json.loads(run(f'{json.dumps(GOOD)}\n\n{{"claims": [}}', "--json").stdout)
    assert found[1]["error"].startswith("line 3: not valid JSON")
    result = run("[]")
    assert "the list is empty" in str(result.exception)
