"""Races under a budget: worked value C32, what is pulled and how often, what is logged, and whether the right arm wins."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.counterfactual.racing import Arm, Race, cheap_prior, halving_plan, successive_halving, top_two
from analysis.orchestration.timing import timing
from analysis.streams import uniform
from tests.orchestration.runs import event, planned, run

ARMS = [Arm(f"a{n:02}", ("delay" if n % 4 else "stop", "delegate")) for n in range(16)]


def world(effects: dict[str, float], seed: int = 0, cost: float = 1.0) -> Callable[[Arm, int], tuple[float, float]]:
    """Differences of -1, 0 or 1 that belong to arm, number and seed; 0.2 of the pairs differ by chance alone."""

    def replay(arm: Arm, n: int) -> tuple[float, float]:
        mean, u = effects.get(arm.key, 0.0), uniform(seed, arm.key, n)
        up, down = 0.1 + max(0.0, mean), 0.1 + max(0.0, -mean)
        return (1.0 if u < up else -1.0 if u > 1 - down else 0.0), cost

    return replay


def counts(race: Race) -> Counter[str]:
    return Counter([pull.arm for pull in race.pulls])


def test_c32_sixteen_arms_and_160_pulls() -> None:
    assert halving_plan(16, 160) == [(16, 2), (8, 5), (4, 10), (2, 20)]
    race = successive_halving(ARMS, world({}), n_pulls=160)
    assert (len(race.pulls), race.cost) == (152, 152.0)
    assert sorted(counts(race).values()) == [2] * 8 + [7] * 4 + [17] * 2 + [37] * 2
    assert Counter([pull.why for pull in race.pulls]) == {"round 1": 32, "round 2": 40, "round 3": 40, "round 4": 40}


@given(st.integers(0, 40), st.integers(0, 300))
def test_no_plan_spends_more_than_there_is_and_every_round_pulls(n_arms: int, n_pulls: int) -> None:
    plan = halving_plan(n_arms, n_pulls)
    assert sum(n_left * n_each for n_left, n_each in plan) <= n_pulls
    assert all(n_each >= 1 for _, n_each in plan)
    assert bool(plan) == (n_arms > 0 and n_pulls > 0)


def test_with_too_few_pulls_the_best_priors_enter() -> None:
    arms = [arm._replace(prior=n / 16) for n, arm in enumerate(ARMS)]
    race = successive_halving(arms, world({}), n_pulls=10)
    assert halving_plan(16, 10) == [(4, 1), (2, 2)]
    assert set(counts(race)) == {"a12", "a13", "a14", "a15"}
    assert race.ranking[4:] == tuple([arm.key for arm in arms[11::-1]])


@pytest.mark.parametrize("effect", [0.6, -0.6])
def test_the_largest_effect_of_either_sign_wins(effect: float) -> None:
    halved = [successive_halving(ARMS, world({"a05": effect}, seed), n_pulls=160) for seed in range(20)]
    sampled = [top_two(ARMS, world({"a05": effect}, seed), n_pulls=100, seed=seed) for seed in range(20)]
    # Chance alone is 1 of 16. Over 40 seeds it is 0.83 to 0.90 for halving with 160 pulls, 0.90 to 0.98 for top two with 100.
    assert sum(race.ranking[0] == "a05" for race in halved) >= 14
    assert sum(race.ranking[0] == "a05" for race in sampled) >= 15
    assert statistics.mean(counts(race)["a05"] for race in sampled) > 3 * 100 / 16


def test_pulls_of_an_arm_are_numbered_so_that_all_arms_share_their_seeds() -> None:
    for race in (successive_halving(ARMS, world({}), n_pulls=160), top_two(ARMS, world({}), n_pulls=60)):
        for arm in ARMS:
            assert [pull.n for pull in race.pulls if pull.arm == arm.key] == list(range(counts(race)[arm.key]))


def test_every_cell_has_its_floor_before_anything_is_compared() -> None:
    race = top_two(ARMS, world({"a05": 0.6}), n_pulls=40, floor=6)
    assert [pull.why for pull in race.pulls] == ["floor"] * 12 + ["top two"] * 28
    cell = {arm.key: arm.cell for arm in ARMS}
    assert Counter([cell[pull.arm] for pull in race.pulls[:12]]) == {("stop", "delegate"): 6, ("delay", "delegate"): 6}
    stops = Counter([pull.arm for pull in race.pulls[:12] if cell[pull.arm][0] == "stop"])
    assert sorted(stops.values()) == [1, 1, 2, 2]
    assert race.pulls[0].p_chosen == 1 / 12


def test_no_arm_is_ever_out_of_reach_and_what_is_logged_is_the_chance_it_had() -> None:
    pulls = [pull for seed in range(12) for pull in top_two(ARMS[:6], world({"a03": 0.5}, seed), n_pulls=60, seed=seed).pulls]
    chances = [pull.p_chosen for pull in pulls if pull.why == "top two"]
    assert all(0.1 / 6 <= p <= 1 for p in chances)
    # The mean of 1/p over what was chosen is the number of arms, whatever the chances were.
    assert statistics.mean(1 / p for p in chances) == pytest.approx(6, rel=0.12)


def test_the_same_seed_gives_the_same_race_in_whatever_order_the_arms_come() -> None:
    first = top_two(ARMS, world({"a05": 0.4}), n_pulls=50, seed=3)
    assert top_two(ARMS[::-1], world({"a05": 0.4}), n_pulls=50, seed=3) == first
    assert top_two(ARMS, world({"a05": 0.4}), n_pulls=50, seed=4).pulls != first.pulls
    assert top_two(ARMS, world({"a05": 0.4}), n_pulls=30, seed=3).pulls == first.pulls[:30]
    assert successive_halving(ARMS[::-1], world({}), n_pulls=99) == successive_halving(ARMS, world({}), n_pulls=99)


def test_no_pull_begins_once_the_cost_is_spent() -> None:
    for race in (
        top_two(ARMS, world({}, cost=3.0), n_pulls=99, max_cost=10.0),
        successive_halving(ARMS, world({}, cost=3.0), n_pulls=160, max_cost=10.0),
    ):
        assert (len(race.pulls), race.cost) == (4, 12.0)


def test_a_race_of_nobody_and_of_one() -> None:
    assert top_two([], world({}), n_pulls=9) == successive_halving([], world({}), n_pulls=9) == Race((), (), 0.0)
    assert len(top_two(ARMS[:1], world({}), n_pulls=9).pulls) == 9
    assert len(successive_halving(ARMS[:1], world({}), n_pulls=9).pulls) == 9
    with pytest.raises(ValueError, match="two arms of a race have the same key"):
        top_two([*ARMS, ARMS[0]], world({}), n_pulls=9)


def test_a_prior_that_is_right_saves_pulls() -> None:
    hint = [arm._replace(prior=0.6) if arm.key == "a05" else arm for arm in ARMS]
    n_with = [counts(top_two(hint, world({"a05": 0.6}, seed), n_pulls=40, seed=seed))["a05"] for seed in range(10)]
    n_without = [counts(top_two(ARMS, world({"a05": 0.6}, seed), n_pulls=40, seed=seed))["a05"] for seed in range(10)]
    assert sum(n_with) > sum(n_without)


def test_cheap_priors_by_hand() -> None:
    # Drag 1, 8, 0, 1 of a span of 12 (the second worker has 2 s less); led to 3, 1, 1, 0 of 3; edges between agents 2 of 2.
    trace = planned({"r": 1.0, "w1": 10.0, "w2": 2.0, "g": 1.0}, [("r", "w1"), ("r", "w2"), ("w1", "g"), ("w2", "g")])
    found = cheap_prior(timing(trace))
    assert found == pytest.approx(
        {"r": (1 / 12 + 1 + 1) / 3, "w1": (8 / 12 + 1 / 3 + 1) / 3, "w2": (1 / 3 + 1) / 3, "g": (1 / 12 + 1) / 3}
    )
    assert cheap_prior(timing(run(event("a", "x")))) == {"a": pytest.approx(1 / 3)}
    assert cheap_prior(timing(run())) == {}
