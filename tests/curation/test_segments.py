"""A component is masked only where one repair is smallest and names it alone; weights add up to the number of kept events."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.coherence.attribution import Repair, attribute
from analysis.coherence.cliques import Quote
from analysis.coherence.relations import parse
from analysis.coherence.residual import Measured
from analysis.curation.segments import (
    EventCredit,
    Parts,
    Ruling,
    Segment,
    Segmenting,
    event_credits,
    repairs_of,
    ruling,
    segments,
)  # fmt: skip

THREE = {"planner": 4, "coder": 5, "tester": 1}


def credit(event_id: str, component: str, value: float, **fields: Any) -> EventCredit:
    given = {"metric": "passed", "better": "higher", "low": value - 0.1, "high": value + 0.1, "n": 8}
    return EventCredit(
        event_id=event_id, component=component, credit=value,
        **(given | {"evidence": "interventional", "confirmed": True} | fields),
    )  # fmt: skip


def parts_of(*repairs: tuple[str, float | None], n_events: dict[str, int] = THREE, **fields: Any) -> Parts:
    return Parts(n_events, repairs=tuple(Repair(tuple(names.split()), cost) for names, cost in repairs), **fields)


# Rulings


def test_the_one_smallest_repair_of_one_component_masks_it() -> None:
    found = ruling(parts_of(("coder", 0.5), ("planner tester", 0.3)), Segmenting(ambiguous="queue"))
    assert found == Ruling("masked", ("coder",), "the smallest repair changes this component alone, at a cost of 0.5")


def test_what_attribution_says_is_unique_is_what_is_masked() -> None:
    quotes = [Quote("x", "a", 0.9), Quote("y", "b", 0.3), Quote("z", "c", 0.3)]
    found = attribute(Measured(quotes, [parse("exactly_one(a, b, c)")]), np.random.default_rng(0))
    stored = msgspec.json.encode(found.minimal_repairs).decode()
    parts = Parts(dict.fromkeys("xyz", 1), found.shapley or {}, repairs_of(stored))
    assert (found.unique, ruling(parts, Segmenting()).components) == (True, ("x",))
    assert [(segment.component, segment.keep) for segment in segments(parts, Segmenting())] == [("x", False)]


@pytest.mark.parametrize(
    ("ambiguous", "outcome", "components"),
    [("keep", "kept", ()), ("queue", "queued", ()), ("repair", "masked", ("planner",))],
)
def test_several_smallest_repairs_are_left_to_the_policy(ambiguous: str, outcome: str, components: tuple[str, ...]) -> None:
    parts = parts_of(("coder", 0.5), ("planner", 0.25), ("tester", None))
    found = ruling(parts, msgspec.convert({"ambiguous": ambiguous}, Segmenting))
    assert found[:2] == (outcome, components)
    assert found.reason.startswith("3 smallest repairs")


def test_a_repair_of_two_components_is_not_single_however_unique() -> None:
    parts = parts_of(("coder planner", 0.5))
    assert ruling(parts, Segmenting()) == Ruling("kept", (), "the smallest repair takes 2 components")
    assert ruling(parts, Segmenting(ambiguous="repair")).components == ("coder", "planner")


def test_of_equally_cheap_repairs_the_first_by_name_is_taken() -> None:
    parts = parts_of(("tester", 0.5), ("coder", 0.5))
    assert ruling(parts, Segmenting(ambiguous="repair")).components == ("coder",)


def test_fewer_components_come_before_a_lower_cost() -> None:
    parts = parts_of(("coder planner", 0.1), ("tester", 0.9))
    assert ruling(parts, Segmenting(ambiguous="repair")).components == ("tester",)


def test_what_happened_is_never_mended() -> None:
    parts = parts_of(("outcome", 0.2), ("planner", 1.0))
    assert ruling(parts, Segmenting()).components == ("planner",)
    assert ruling(parts, Segmenting(facts=())).outcome == "kept"
    alone = parts_of(("outcome", 0.2))
    assert ruling(alone, Segmenting(ambiguous="queue")) == Ruling("queued", (), "every repair changes a fact")


def test_a_coherent_trace_and_one_without_claims_are_kept() -> None:
    assert ruling(Parts(THREE, repairs=repairs_of("[]")), Segmenting(ambiguous="queue")).outcome == "kept"
    assert ruling(Parts(THREE), Segmenting(ambiguous="queue")).outcome == "kept"


def test_repairs_that_were_not_computed_cannot_be_made() -> None:
    unknown = Parts(THREE, repairs=repairs_of(None))
    assert ruling(unknown, Segmenting()).outcome == "kept"
    for ambiguous in ("repair", "queue"):
        assert ruling(unknown, msgspec.convert({"ambiguous": ambiguous}, Segmenting)).outcome == "queued"


def test_a_mask_that_leaves_nothing_to_train_on_drops_the_trace() -> None:
    parts = parts_of(("coder", 0.5), n_events={"coder": 7, "idle": 0})
    assert ruling(parts, Segmenting()).outcome == "dropped"


# Weights


def test_weights_follow_the_residual_share_with_a_floor() -> None:
    parts = Parts({"planner": 1, "coder": 1, "tester": 2}, {"planner": 0.09, "coder": 0.01, "tester": 0.0})
    # 1 - share: 0.1 -> floor 0.2, 0.9, 1; mean over four events (0.2 + 0.9 + 2) / 4 = 0.775.
    assert segments(parts, Segmenting()) == [
        Segment("coder", "", True, round(0.9 / 0.775, 9), "0.1 of the squared residual"),
        Segment("planner", "", True, round(0.2 / 0.775, 9), "0.9 of the squared residual"),
        Segment("tester", "", True, round(1 / 0.775, 9), "0 of the squared residual"),
    ]
    assert segments(parts, Segmenting(share="none")) == []


def test_a_good_decision_weighs_more_and_a_bad_one_less() -> None:
    good, bad = credit("e1", "coder", 0.5), credit("e2", "coder", -0.5)
    found = segments(Parts({"coder": 2}, credits=[good, bad]), Segmenting())
    mean = (math.exp(0.5) + math.exp(-0.5)) / 2
    assert [row.event_id for row in found] == ["", "e1", "e2"]
    assert [row.weight for row in found] == pytest.approx([1 / mean, math.exp(0.5) / mean, math.exp(-0.5) / mean])
    assert found[1].reason == "credit +0.5 on passed"


def test_a_swapped_sign_would_show() -> None:
    """Of a metric of which less is better, a positive credit was bad."""
    policy = Segmenting(metric="tokens", beta=1e-3)
    slow = credit("e1", "coder", 500.0, metric="tokens", better="lower", low=400.0, high=600.0)
    found = {row.event_id: row.weight for row in segments(Parts({"coder": 2}, credits=[slow]), policy)}
    assert found["e1"] < 1 < found[""]


def test_factors_keep_their_bounds_even_for_a_metric_in_tokens() -> None:
    policy = Segmenting(metric="score", factor_low=0.5, factor_high=3.0)
    credits = [credit("e1", "a", 1e6, metric="score", low=1.0, high=2e6), credit("e2", "a", -1e6, metric="score", high=-1.0)]
    found = {row.event_id: row.weight for row in segments(Parts({"a": 3}, credits=credits), policy)}
    assert found["e1"] / found[""] == pytest.approx(3.0)
    assert found["e2"] / found[""] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "fields",
    [
        {"confirmed": False}, {"evidence": "simulated"}, {"metric": "tokens"}, {"better": "neither"}, {"low": None},
        {"low": -0.1}, {"low": 0.0},
    ],
)  # fmt: skip
def test_credit_that_does_not_count_changes_nothing(fields: dict[str, Any]) -> None:
    assert segments(Parts({"coder": 2}, credits=[credit("e1", "coder", 0.5, **fields)]), Segmenting()) == []


def test_alternatives_to_one_decision_are_averaged_by_their_replays() -> None:
    # Oracle C25: realised 1.0, alternatives 0.4 and 0.6 replayed 1 and 3 times: credit 0.45.
    credits = [credit("e1", "a", 0.6, n=1), credit("e1", "a", 0.4, n=3)]
    found = {row.event_id: row.weight for row in segments(Parts({"a": 2}, credits=credits), Segmenting())}
    assert found["e1"] / found[""] == pytest.approx(math.exp(0.45))


def test_a_person_decides_instead_of_the_repairs() -> None:
    parts = parts_of(("coder", 0.5))
    found = segments(parts, Segmenting(), Ruling("masked", ("tester",), "review"))
    assert found == [Segment("tester", "", False, 0.0, "review")]


def test_bounds_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="factor_low is 3, above factor_high, 2"):
        msgspec.convert({"factor_low": 3.0}, Segmenting)


components = st.sampled_from(["a", "b", "c", "d"])
parts_given = st.builds(
    lambda n_events, shares, repairs, credits: Parts(
        n_events, shares, tuple(Repair(tuple(sorted(names)), cost) for names, cost in repairs),
        [credit(f"{name}{n % max(n_events.get(name, 0), 1)}", name, value) for n, (name, value) in enumerate(credits)
         if n_events.get(name)],
    ),
    st.dictionaries(components, st.integers(0, 9), min_size=1),
    st.dictionaries(components, st.floats(0, 1)),
    st.lists(st.tuples(st.sets(components, min_size=1), st.none() | st.floats(0, 1)), max_size=3),
    st.lists(st.tuples(components, st.floats(-2, 2)), max_size=5),
)  # fmt: skip


@given(parts_given, st.sampled_from(["keep", "repair", "queue"]), st.floats(0, 3), st.floats(0.01, 1))
def test_weights_of_kept_events_add_up_to_their_number(parts: Parts, ambiguous: str, beta: float, floor: float) -> None:
    policy = msgspec.convert({"ambiguous": ambiguous, "beta": beta, "share_floor": floor}, Segmenting)
    ruled = ruling(parts, policy)
    found = {(row.component, row.event_id): row for row in segments(parts, policy)}
    kept = {name: n for name, n in parts.n_events.items() if n and name not in ruled.components}
    weighed = 0.0
    for name, n in kept.items():
        whole = found.get((name, ""))
        events = [row.weight for (owner, event), row in found.items() if owner == name and event]
        weighed += sum(events) + (n - len(events)) * (whole.weight if whole else 1.0)
    assert weighed == pytest.approx(sum(kept.values()), abs=1e-7)
    assert all(row.weight > 0 if row.keep else row.weight == 0 for row in found.values())
    assert {name for name, _ in found if not found[name, _].keep} == set(ruled.components)


# Credit out of the table `effects`


def test_credit_is_minus_delta_q_and_so_is_its_interval() -> None:
    row = {"event_id": "e1", "metric": "passed", "delta_q": -0.4, "low": -0.6, "high": -0.1, "n": 9}
    row |= {"evidence": "interventional", "confirmed": True, "seed_block": "confirm"}
    assert event_credits([row], {"e1": "coder"}, better="higher") == [credit("e1", "coder", 0.4, low=0.1, high=0.6, n=9)]


def test_what_chose_a_decision_does_not_count_beside_what_confirmed_it() -> None:
    row = {"event_id": "e1", "metric": "passed", "delta_q": -0.9, "low": -1.0, "high": -0.8, "n": 4}
    row |= {"evidence": "interventional", "confirmed": True, "seed_block": "screen"}
    rows = [row, row | {"seed_block": "confirm", "delta_q": -0.2}, row | {"event_id": "gone"}]
    rows.append(row | {"event_id": "e2", "confirmed": False, "delta_q": 0.0})
    found = event_credits(rows, {"e1": "coder", "e2": "planner"}, better="higher")
    assert [(one.event_id, one.component, one.credit) for one in found] == [("e1", "coder", 0.2), ("e2", "planner", 0.0)]
