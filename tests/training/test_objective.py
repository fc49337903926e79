"""Event credit in the loss: what it adds up to, and that real trainers do with it what is said."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.training import environment
from analysis.training.objective.credits import Span, counted, faded, paid_twice, spread
from analysis.training.objective.verl_orch import rewards

ROOT = Path(__file__).resolve().parents[2]


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30), st.floats(-5, 5), st.data())
def test_the_credit_spread_over_an_event_adds_up_to_it(policy: list[int], credit: float, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(policy) - 1))
    past = data.draw(st.integers(first + 1, len(policy)))
    found = spread(policy, [Span(first, past, credit)])
    own = sum(policy[first:past])
    assert sum(found) == pytest.approx(credit if own else 0.0)
    assert all(c == 0 for c, is_own in zip(found, policy, strict=True) if not is_own)


def test_credit_and_delta_q_are_never_exchanged() -> None:
    # The alternative was worse by 0.4: the event taken was good, and its tokens are paid for.
    assert counted(0.4, -0.5, -0.3, better="higher") == 0.4
    assert counted(-0.4, 0.3, 0.5, better="higher") == -0.4
    # Of what should be low, such as tokens, the same numbers say the opposite.
    assert counted(0.4, -0.5, -0.3, better="lower") == -0.4


def test_an_effect_that_may_be_none_pays_nothing() -> None:
    assert counted(0.4, -0.9, 0.1, better="higher") == 0.0
    assert counted(0.4, None, None, better="higher") == 0.0
    assert counted(0.4, -0.5, -0.3, better="neither") == 0.0


@given(st.floats(0, 10), st.floats(0, 1), st.floats(0.01, 1))
def test_the_weight_falls_to_0_and_stays_there(weight: float, progress: float, until: float) -> None:
    assert 0 <= faded(weight, progress, until=until) <= weight
    assert faded(weight, until, until=until) == pytest.approx(0)


def test_what_is_paid_twice_is_the_common_part() -> None:
    assert paid_twice([1.0, -1.0], [0.5, -2.0]) == pytest.approx((2.5 / (2**0.5 * 4.25**0.5), 0.6))
    assert paid_twice([0.0, 0.0], [0.0, 0.0]) == (None, None)


def test_outcome_and_credit_do_not_fall_on_one_token_in_verl() -> None:
    with pytest.raises(ValueError, match="an event begins on the last token, where the outcome stands"):
        rewards(1.0, [1, 1, 0], [Span(1, 2, 0.5)])


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    interpreter = environment.python()
    if interpreter is None:
        pytest.skip("the training environment is not installed: `make test-train` installs it")
    out = tmp_path_factory.mktemp("objective")
    scripts = Path(__file__).parent / "in_trainer"
    places = {"PYTHONPATH": f"{ROOT / 'analysis/training'}:{scripts}", "PATH": "/usr/bin:/bin", "HOME": str(out)}
    done = subprocess.run(
        [str(interpreter), str(scripts / "objective_numbers.py"), str(out)],
        env=places,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads((out / "numbers.json").read_text())
    return found


def test_without_weight_every_number_is_the_stock_trainers(numbers: dict[str, Any]) -> None:
    stock, zero = numbers["stock"], numbers["zero"]
    assert {name: zero[name] for name in ("loss", "grad_norm", "reward", "reward_std", "entropy", "moved")} == {
        name: stock[name] for name in ("loss", "grad_norm", "reward", "reward_std", "entropy", "moved")
    }
    assert stock["moved"] > 0


def test_with_weight_the_gradient_changes_and_the_reward_does_not(numbers: dict[str, Any]) -> None:
    stock, half = numbers["stock"], numbers["half"]
    assert half["grad_norm"] != stock["grad_norm"]
    assert half["reward"] == stock["reward"]
    assert half["orch/weight"] == [0.5]
    assert 0 <= half["orch/paid_twice_share"][0] <= 1


def test_the_weight_fades_over_the_steps(numbers: dict[str, Any]) -> None:
    assert numbers["fading"]["orch/weight"] == [0.5, 0.25]


def test_the_gradient_of_a_masked_segment_is_exactly_0(numbers: dict[str, Any]) -> None:
    assert numbers["masked"]["masked"] == 0.0
    assert numbers["masked"]["trained"] > 0
    assert numbers["masked"]["n_trained"] > 0


def test_tokens_say_who_wrote_them_and_whose_credit_they_carry(numbers: dict[str, Any]) -> None:
    found = numbers["encoded"]
    assert found["policy"] == (
        'I hand part 0 out. Then I wait.<call>delegate {"to": "coder-0"}<|im_end|>Joined, I think.<|im_end|>'
    )
    assert found["speaks_first"] == found["policy"]  # of an agent that nobody asked too, what opens its answer is the template's
    assert found["prompt"].endswith("<|im_start|>user\nTask 0: join the parts.<|im_end|>\n<|im_start|>assistant\n")
    assert found["replayed"] == found["prompt"]  # a prompt is found again, although a data set gave its messages null keys
    assert found["paid"] == "I hand part 0 out.Joined, I think."
    assert found["credit"] == pytest.approx(0.8)
    assert found["weights"] == [0.0, 0.5, 1.0]
    assert len(set(found["n"])) == 1
    assert "the chat template rewrites earlier messages" in found["refused"]


def test_verl_adds_the_credit_of_an_event_to_its_own_tokens(numbers: dict[str, Any]) -> None:
    found = numbers["verl"]
    assert found["rewards"] == [[0.6, 0.0, 0.0, 0.0, 0.0, 1.0], [-0.4, 0.0, 0.0, 0.0, 0.0, 0.0]]
    own = pytest.approx(0.5 / 0.5**0.5, rel=1e-4)
    assert found["advantages"]["0.0"][0] == [own, own, 0.0, own, own, own]
    added = [b - a for a, b in zip(found["advantages"]["0.0"][1], found["advantages"]["0.5"][1], strict=True)]
    assert added == pytest.approx([-0.1, -0.1, 0.0, 0.0, 0.0, 0.0])
