"""A race against a threshold: who is pulled next, how probable that was, who is worth fresh seeds; and what needs no race."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.counterfactual.allotting import Pick, is_suggested, picks
from analysis.counterfactual.interventions import interventions
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import Replayer
from analysis.counterfactual.plan import Plan
from analysis.counterfactual.pruning import prune_plan
from analysis.counterfactual.racing import Arm
from analysis.counterfactual.recorded import Intervention
from analysis.counterfactual.teams import ready_teams
from analysis.streams import stream, uniform
from tests.counterfactual.players import planned, task_of, team
from tests.counterfactual.test_study import ran

TEAMS = ready_teams()
ARMS = [Arm(f"a{n}", ("delay" if n % 2 else "stop", "act"), prior=n / 10) for n in range(8)]
NONE: dict[str, list[float]] = {arm.key: [] for arm in ARMS}


def chosen(found: Sequence[Pick]) -> list[tuple[str, int, str]]:
    return [(pick.arm.key, pick.n, pick.why) for pick in found]


def next_of(deltas: Mapping[str, Sequence[float]], *, n: int = 3, floor: int = 0, most: int = 4) -> list[tuple[str, int, str]]:
    """Return the next picks where none is drawn by lot."""
    return chosen(picks(ARMS, {**NONE, **deltas}, most=most, n=n, floor=floor, explore=0.0))


def test_every_cell_has_its_floor_first_and_then_arms_take_turns_by_their_prior() -> None:
    assert next_of({}, n=5, floor=2) == [
        ("a7", 0, "floor"), ("a6", 0, "floor"), ("a5", 0, "floor"), ("a4", 0, "floor"), ("a3", 0, "turn"),
    ]  # fmt: skip
    assert next_of({"a7": [0.0], "a6": [0.0]}, n=2, floor=2) == [("a5", 0, "floor"), ("a4", 0, "floor")]
    assert next_of({"a7": [0.0], "a5": [0.0]}) == [("a6", 0, "turn"), ("a4", 0, "turn"), ("a3", 0, "turn")]


def test_who_may_matter_is_pulled_at_once_and_who_seems_to_is_left_to_fresh_seeds() -> None:
    assert next_of({"a1": [-1.0]})[0] == ("a1", 1, "open")
    assert next_of({"a1": [0.0, 1.0]})[0] == ("a1", 2, "open")
    assert next_of({"a1": [-1.0, -1.0]}) == [("a7", 0, "turn"), ("a6", 0, "turn"), ("a5", 0, "turn")]
    assert [is_suggested(d, 4) for d in ([-1.0], [-1.0, -1.0], [0.5, 0.6, 0.7], [-1.0, 1.0], [0.0] * 4)] == [
        False, True, True, False, False,
    ]  # fmt: skip


def test_a_race_ends_when_all_arms_have_had_the_most_pulls_or_are_suggested() -> None:
    over: dict[str, Sequence[float]] = {arm.key: [0.0] * 4 for arm in ARMS}
    assert next_of(over) == []
    assert next_of({**over, "a2": [0.0, 0.0], "a3": [1.0, 1.0]}) == [("a2", 2, "turn")]


@given(st.lists(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=4), min_size=8, max_size=8), st.integers(0, 99))
def test_picks_are_of_different_arms_that_may_still_be_pulled_whatever_their_order(given_: list[list[float]], seed: int) -> None:
    deltas = {arm.key: values for arm, values in zip(ARMS, given_, strict=True)}
    found = picks(ARMS, deltas, most=4, n=5, seed=seed)
    assert found == picks(ARMS[::-1], deltas, most=4, n=5, seed=seed)
    able = [arm for arm in ARMS if len(deltas[arm.key]) < 4 and not is_suggested(deltas[arm.key], 4)]
    assert len({pick.arm for pick in found}) == len(found) == min(5, len(able))
    assert {pick.arm for pick in found} <= set(able)
    assert all(pick.n == len(deltas[pick.arm.key]) for pick in found)
    assert all(0.1 / 8 <= pick.p_chosen <= 1 for pick in found)


def test_what_is_logged_is_the_chance_that_an_arm_had() -> None:
    found = [picks(ARMS, NONE, most=4, n=1, floor=0, explore=0.5, seed=seed)[0] for seed in range(2000)]
    # The mean of 1/p over what was chosen is the number of arms, whatever the chances were.
    assert statistics.mean(1 / pick.p_chosen for pick in found) == pytest.approx(8, rel=0.1)
    assert {pick.p_chosen for pick in found} == {0.5 / 8, 0.5 + 0.5 / 8}
    assert statistics.mean(pick.arm.key == "a7" for pick in found) == pytest.approx(0.5 + 0.5 / 8, abs=0.05)


def raced(effects: dict[str, float], arms: Sequence[Arm], n_pulls: int, seed: int) -> tuple[set[str], int]:
    """Return who is suggested after so many pulls of differences that are -1 with the chance stated, else 0."""
    deltas: dict[str, list[float]] = {arm.key: [] for arm in arms}
    while sum(map(len, deltas.values())) < n_pulls and (batch := picks(arms, deltas, most=4, seed=seed)):
        for pick in batch:
            deltas[pick.arm.key].append(-1.0 if uniform(seed, pick.arm.key, pick.n) < effects.get(pick.arm.key, 0.0) else 0.0)
    return {key for key, values in deltas.items() if is_suggested(values, 4)}, max(map(len, deltas.values()))


def test_few_that_matter_are_found_among_many_with_a_pull_each() -> None:
    arms = [Arm(f"b{n:03}", ("assign", "delegate")) for n in range(200)]
    effects = {f"b{n:03}": 0.9 for n in range(0, 200, 40)}
    races = [raced(effects, arms, 220, seed) for seed in range(6)]
    assert all(found <= set(effects) for found, _ in races)  # what never differs is never suggested
    # One pull each misses 1 of 10; 0.81 of 5 have both pulls, more the third: between 4 and 5 of 5.
    assert statistics.mean(len(found) for found, _ in races) >= 3.5


def test_strategies_that_merge_alike_and_places_that_idle_agents_take_are_not_tried_twice() -> None:
    plan = planned(team(n_workers=5), task_of("chain-3"))
    strategies = [Intervention("aggregate", "merge", {"strategy": s}) for s in ("sequential", "hierarchical", "vote")]
    places = [Intervention("assign", give, {"to": f"coder-{n}"}) for give in ("give:p1", "give:p2") for n in (3, 4, 5)]
    kept, dropped = prune_plan(plan, [*strategies, *places])
    assert kept == (*strategies[:2], places[0], places[3])
    assert [(one.key, why) for one, why in dropped] == [
        (one.key, "it leaves all as it is") for one in (strategies[2], places[1], places[2], places[4], places[5])
    ]
    busy = [Intervention("assign", "give:p3", {"to": f"coder-{n}"}) for n in (1, 2)]
    doubled = planned(team(assignment="one", n_workers=5), task_of("chain-3"))
    kept, dropped = prune_plan(doubled, [Intervention("assign", "give:p3", {"to": f"coder-{n}"}) for n in (2, 3)])
    assert [(one.key, why) for one, why in dropped] == [('{"to": "coder-3"}', 'the same as assign {"to": "coder-2"} at give:p3')]
    assert prune_plan(plan, busy).kept == tuple(busy)


def every(plan: Plan) -> list[Intervention]:
    return interventions(plan, rng=stream(1, "every"))


@pytest.mark.parametrize("name", ["parallel", "stops-too-early"])
def test_a_strategy_that_is_left_out_does_nothing_in_any_pair(name: str, judge: Judge) -> None:
    replayer = Replayer(ran(TEAMS[name], judge), judge)
    dropped = [one for one, _ in prune_plan(replayer.plan, every(replayer.plan)).dropped if one.operator == "aggregate"]
    assert dropped
    for one in dropped:
        pair = replayer.pair(one, seed=1, block="screen", number=0)
        assert pair.q == pair.q_counterfactual


def test_strategies_that_keep_different_alternatives_are_all_tried(judge: Judge) -> None:
    plan = Replayer(ran(TEAMS["best-of-three"], judge), judge).plan
    assert [one for one, _ in prune_plan(plan, every(plan)).dropped if one.operator == "aggregate"] == []
