"""Curation of a frame: the laws that hold whatever the policy, and each step by hand."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.coherence.attribution import Repair
from analysis.curation.curate import Curated, curate
from analysis.curation.funnel import Review, read_reviews
from analysis.curation.policy import Policy, policy_of
from analysis.curation.segments import Parts
from analysis.errors import PolicyError
from tests.curation.frames import frame, frames


def outcomes(found: Curated) -> dict[str, str]:
    return dict(zip(found.rows["trace_id"], found.rows["outcome"], strict=True))


def review(trace_id: str, verdict: str, *mask: str) -> dict[str, Review]:
    return {trace_id: Review(trace_id, verdict, mask, "seen", "eve", "2026-05-01")}


def of(found: Curated, gate: str) -> pd.DataFrame:
    return found.funnel[found.funnel["gate"] == gate].set_index("trace_id")


def mendable(n: int, *components: str) -> dict[str, Parts]:
    """Traces of a planner and a coder that changing these components mends, one at a time."""
    repairs = tuple([Repair((name,), 0.1) for name in components])
    return {f"t{k:02d}": Parts({"planner": 2, "coder": 3}, repairs=repairs) for k in range(n)}


KEEPS = st.sampled_from(["keep", "drop", "queue"])
GATES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"gate": st.just("coherence"), "max": st.sampled_from([0.0, 0.1, 0.3]), "near": KEEPS,
                               "above": st.sampled_from(["drop", "mask"])}),
        st.fixed_dictionaries({"gate": st.just("hedging"), "min_sharpness": st.sampled_from([0.05, 0.2])}),
        st.fixed_dictionaries({"gate": st.just("outcome"), "unknown": KEEPS}),
        st.fixed_dictionaries({"gate": st.just("measure"), "name": st.just("q_work"), "min": st.sampled_from([0.0, 0.5]),
                               "unknown": KEEPS}),
    ),
    max_size=4, unique_by=lambda gate: gate["gate"],
)  # fmt: skip
FEW = st.integers(0, 4)
POLICIES = st.fixed_dictionaries(
    {
        "gates": GATES, "seed": st.integers(0, 3),
        "quotas": st.fixed_dictionaries({"max_per_task": FEW, "max_per_mode": FEW,
                                         "without_claims": st.sampled_from(["keep", "drop", "quota"])}),
        "batches": st.fixed_dictionaries({"size": FEW, "ratio_last": st.sampled_from([0.0, 0.9])}),
        "order": st.fixed_dictionaries({"jitter_window": FEW, "diversity_window": FEW}),
        "segments": st.fixed_dictionaries({"ambiguous": st.sampled_from(["keep", "repair", "queue"])}),
        "curriculum": st.sampled_from([{}, {"stages": ["warmup"]}, {"shares": {"warmup": 0.3}}]),
    }
)  # fmt: skip
PARTS = {**mendable(10, "coder"), **{f"t{k:02d}": Parts({"planner": 1, "coder": 1}, {"planner": 0.1}) for k in range(10, 20)}}
REVIEWS = review("t03", "drop") | review("t04", "keep") | review("t05", "edit", "coder")


@given(frames(), POLICIES)
@settings(max_examples=40)
def test_the_laws(rows: pd.DataFrame, values: dict[str, Any]) -> None:
    policy = policy_of(values)
    found = curate(rows, policy, parts=PARTS, reviews=REVIEWS)
    counts = found.report["counts"]
    assert counts["kept"] + counts["masked"] + counts["dropped"] + counts["queued"] == counts["input"] == len(rows)
    assert found.rows["trace_id"].tolist() == sorted(rows["trace_id"])
    stays = found.rows[found.rows["outcome"].isin(["kept", "masked"])]
    assert sorted(stays["position"]) == list(range(len(stays)))
    assert found.rows.drop(stays.index)[["position", "weight"]].isna().all(axis=None)
    if len(stays):
        assert stays["weight"].astype(float).mean() == pytest.approx(1, abs=1e-8)
        assert (stays["weight"].astype(float) >= 0).all()
    masked = set(stays.loc[stays["outcome"] == "masked", "trace_id"])
    assert set(found.segments.loc[~found.segments["keep"].astype(bool), "trace_id"]) == masked
    ends = found.funnel.groupby("trace_id")["outcome"].agg(list)
    assert set(ends.index) == set(rows["trace_id"])
    assert all(("dropped" in ends[name]) >= (outcome == "dropped") for name, outcome in outcomes(found).items())
    assert outcomes(found).get("t03", "dropped") == "dropped"
    assert outcomes(found).get("t04", "kept") == "kept"
    assert outcomes(found).get("t05", "masked") == "masked"
    for gate in found.report["by_gate"]:
        assert gate["entered"] == sum(gate[name] for name in ("passed", "dropped", "queued", "returned", "masked"))


@given(frames(), POLICIES)
@settings(max_examples=12)
def test_the_same_input_in_any_order_gives_the_same_bytes(rows: pd.DataFrame, values: dict[str, Any]) -> None:
    def stored(given: pd.DataFrame) -> list[Any]:
        found = curate(given, policy_of(values), parts=PARTS, reviews=REVIEWS)
        return [table.to_csv().encode() for table in found[:3]] + [msgspec.json.encode(found.report)]

    assert stored(rows) == stored(rows.iloc[::-1])


@given(frames(), POLICIES, st.sampled_from(["mode", "task"]), FEW, FEW, st.booleans())
@settings(max_examples=30)
def test_a_stricter_gate_never_keeps_more(
    rows: pd.DataFrame, values: dict[str, Any], group: str, cap: int, floor: int, is_hedging: bool
) -> None:
    """With one quota; several can make room for one another, which `Quotas` says."""
    kept = []
    quotas = {f"max_per_{group}": cap, f"min_per_{group}": 0 if 0 < cap < floor else floor}
    for most, least in ((0.3, 0.05), (0.3, 0.2) if is_hedging else (0.1, 0.05)):
        gates = [
            {"gate": "coherence", "max": most, "near": "queue", "above": "mask"},
            {"gate": "hedging", "min_sharpness": least},
        ]
        policy = policy_of({"gates": gates, "quotas": quotas, "segments": values["segments"]})
        counts = curate(rows, policy, parts=PARTS).report["counts"]
        kept.append(counts["kept"] + counts["masked"])
    assert kept[1] <= kept[0]


def test_one_component_to_blame_is_masked_and_the_rest_stays() -> None:
    policy = policy_of({"gates": [{"gate": "coherence", "max": 0.2, "above": "mask"}]})
    rows = frame(3, norm=[0.1, 0.5, 0.5])
    parts = mendable(2, "coder") | {
        "t02": Parts({"planner": 2, "coder": 3}, repairs=(Repair(("coder",), 0.1), Repair(("planner",), 0.1)))
    }
    found = curate(rows, policy, parts=parts)
    assert outcomes(found) == {"t00": "kept", "t01": "masked", "t02": "dropped"}
    assert found.segments[["trace_id", "component", "keep"]].to_numpy().tolist() == [["t01", "coder", False]]
    assert of(found, "segments").loc["t02", "reason"] == "too incoherent, and no mask mends it: 2 smallest repairs"
    queued = curate(
        rows,
        policy_of({"gates": [{"gate": "coherence", "max": 0.2, "above": "mask"}], "segments": {"ambiguous": "queue"}}),
        parts=parts,
    )
    assert outcomes(queued)["t02"] == "queued"


def test_each_line_of_the_funnel_adds_up_and_says_how_many_of_those_that_came_were_waiting() -> None:
    """One lies within its noise of the threshold and is queued, two have no tied claims: segments sees four, the quota three."""
    gates = [{"gate": "coherence", "max": 0.3, "near": "queue"}, {"gate": "outcome"}]
    rows = frame(5, norm=[0.5, 0.1, 0.9, np.nan, np.nan], passed=[1.0, 1.0, 1.0, 1.0, 1.0])
    rows.loc[0, "residual_debiased"] = 0.2
    found = curate(rows, policy_of({"gates": gates, "quotas": {"without_claims": "drop"}})).report["by_gate"]
    columns = ("gate", "entered", "waiting", "passed", "masked", "returned", "queued", "dropped")
    assert [tuple(row[name] for name in columns) for row in found] == [
        ("coherence", 5, 0, 3, 0, 0, 1, 1), ("outcome", 4, 1, 4, 0, 0, 0, 0), ("segments", 4, 1, 4, 0, 0, 0, 0),
        ("without claims", 3, 0, 1, 0, 0, 0, 2),
    ]  # fmt: skip


def test_a_person_has_the_last_word_and_the_funnel_says_who_and_when() -> None:
    policy = policy_of({"gates": [{"gate": "outcome"}], "quotas": {"max_per_task": 1}, "batches": {"size": 1, "ratio_first": 1}})
    rows = frame(4, passed=[0.0, 1.0, 1.0, 0.0], norm=[0.9, 0.0, 0.0, 0.9], task_id="a")
    reviews = review("t00", "keep") | review("t01", "drop") | review("t03", "edit", "coder")
    found = curate(rows, policy, parts=mendable(4), reviews=reviews)
    assert outcomes(found) == {"t00": "kept", "t01": "dropped", "t02": "dropped", "t03": "masked"}
    assert of(found, "review").loc["t00", ["outcome", "reason"]].tolist() == ["returned", "kept by eve at 2026-05-01: seen"]
    assert of(found, "review").loc["t03", "reason"] == "edited by eve at 2026-05-01: seen"


def test_the_last_review_of_a_trace_stands() -> None:
    row = {"what": "review", "trace_id": "t", "author": "eve"}
    said = [{**row, "decision_id": i, "made_at": at, "value": value}
            for i, at, value in (("a", "2", '{"verdict":"drop"}'), ("b", "1", '{"verdict":"keep"}'))]  # fmt: skip
    assert read_reviews([*said, {**row, "what": "tag", "decision_id": "c", "made_at": "3", "value": "x"}])["t"].verdict == "drop"
    with pytest.raises(PolicyError, match="decision a: is no review"):
        read_reviews([{**said[0], "value": '{"verdict":"maybe"}'}])


def test_a_floor_counts_what_a_mask_mends_and_takes_back_what_none_does() -> None:
    policy = policy_of({"gates": [{"gate": "coherence", "max": 0.1, "above": "mask"}], "quotas": {"min_per_mode": 2}})
    found = curate(frame(3, norm=[0.4, 0.5, 0.6], mode="m"), policy, parts=mendable(1, "coder"))
    assert outcomes(found) == {"t00": "masked", "t01": "kept", "t02": "dropped"}
    assert found.segments["trace_id"].tolist() == ["t00"]


def test_a_floor_takes_back_nothing_that_would_hedge_or_is_of_another_stage() -> None:
    gates = [{"gate": "outcome"}, {"gate": "hedging"}]
    rows = frame(
        3, norm=0.0 * np.arange(3), passed=0.0, sharpness=[0.0, 0.4, 0.4], stage=["warmup", "warmup", "integrated"], mode="m"
    )
    policy = policy_of({"gates": gates, "quotas": {"min_per_mode": 3}, "curriculum": {"stages": ["warmup"]}})
    assert outcomes(curate(rows, policy)) == {"t00": "dropped", "t01": "kept", "t02": "dropped"}


def test_a_floor_takes_back_the_best_but_never_hedging() -> None:
    policy = policy_of({"gates": [{"gate": "hedging"}, {"gate": "coherence", "max": 0.1}], "quotas": {"min_per_mode": 2}})
    rows = frame(4, norm=[0.0, 0.8, 0.3, 0.5], sharpness=[0.0, 0.4, 0.4, 0.4], mode="m")
    found = curate(rows, policy)
    assert outcomes(found) == {"t00": "dropped", "t01": "dropped", "t02": "kept", "t03": "kept"}
    assert of(found, "floor mode").loc["t02", "reason"] == "taken back: one of at least 2 of its mode"


def test_the_stratum_without_claims_is_kept_dropped_or_has_a_quota() -> None:
    rows = frame(6, norm=[0.0, 0.0, np.nan, np.nan, np.nan, np.nan])
    n_kept = {
        what: curate(rows, policy_of({"quotas": {"without_claims": what, "without_claims_share": 0.5}})).report["counts"]["kept"]
        for what in ("keep", "drop", "quota")
    }
    assert n_kept == {"keep": 6, "drop": 2, "quota": 4}


def test_weights_fall_with_the_residual_and_stages_have_their_shares() -> None:
    rows = frame(3, norm=[0.0, 0.3, np.nan], stage=["warmup", "integrated", None])
    weight = curate(rows, policy_of({"weights": {"h": 0.3}})).rows["weight"].tolist()
    assert weight == pytest.approx([2 / (1 + np.exp(-1)), 2 * np.exp(-1) / (1 + np.exp(-1)), 1])
    shares = {"curriculum": {"shares": {"warmup": 0.5, "integrated": 0.2}}}
    assert curate(rows, policy_of(shares)).rows["weight"].tolist() == pytest.approx([1.5, 0.6, 0.9])


def test_weights_that_come_to_nothing_are_an_error() -> None:
    with pytest.raises(PolicyError, match=r"policy: weights\.h: every sampling weight is 0 - raise h, or set it to 0"):
        curate(frame(1, norm=[1.0]), policy_of({"weights": {"h": 0.001}}))
    with pytest.raises(PolicyError, match="give a share to a stage that there is"):
        curate(frame(1, stage="integrated"), policy_of({"curriculum": {"shares": {"warmup": 1.0}}}))


def test_only_wanted_stages_stay() -> None:
    rows = frame(3, stage=["warmup", "integrated", None])
    assert outcomes(curate(rows, policy_of({"curriculum": {"stages": ["warmup"]}}))) == {
        "t00": "kept",
        "t01": "dropped",
        "t02": "dropped",
    }
    keeps = policy_of({"curriculum": {"stages": ["warmup"], "unknown": "keep"}})
    assert outcomes(curate(rows, keeps))["t02"] == "kept"


@pytest.mark.parametrize(
    ("rows", "values", "gist"),
    [
        (frame(0), {}, "No trace fits the sources and worlds of the policy: widen"),
        (frame(3, norm=[0.5, 0.6, 0.7]), {"gates": [{"gate": "coherence", "max": 0.1}]},
         "Nothing stays of 3 traces: the gate `coherence` dropped 3 of the 3 that came to it (too incoherent; noise_unknown: no "
         "sample counts, threshold 0.1) - raise its `max`."),
        (frame(2), {"gates": [{"gate": "outcome", "unknown": "queue"}]},
         "Nothing stays of 2 traces: the gate `outcome` queued 2 of the 2 that came to it (the outcome is not known, "
         "threshold 1) - leave it out, or decide the queue."),
        (frame(2, passed=[1.0, 0.0]), {"gates": [{"gate": "outcome"}]}, "1 of 2 traces stay; 1 dropped."),
    ],
)  # fmt: skip
def test_the_gist_says_what_stays_or_which_gate_took_most_and_what_to_change(
    rows: pd.DataFrame, values: dict[str, Any], gist: str
) -> None:
    assert curate(rows, policy_of(values)).report["gist"].startswith(gist)


def test_parts_of_a_policy_without_anything_to_go_by_say_so() -> None:
    values = {"quotas": {"max_per_mode": 1}, "order": {"score": "d_orch"}, "curriculum": {"shares": {"warmup": 0.5}}}
    assert curate(frame(1), policy_of(values)).report["notes"] == [
        "No trace has a mode, so the quotas by mode decide nothing: run `counterpoint analyze`.",
        "No trace has a d_orch, so the traces stand in the order of their ids: run `counterpoint analyze`.",
        "No trace is of the stage warmup, so its share goes to the others: change `curriculum.shares`.",
    ]


def test_the_report_counts_before_and_after_and_the_order_is_measured() -> None:
    rows = frame(4, norm=[0.3, 0.0, 0.9, np.nan], passed=[1.0, 1.0, 0.0, np.nan], mode=["a", "a", "b", None])
    found = curate(rows, policy_of({"gates": [{"gate": "outcome"}], "order": {"method": "sorted"}})).report
    assert found["distributions"]["passed"] == {
        "before": {"passed": 2, "failed": 1, "unknown": 1},
        "after": {"passed": 2, "unknown": 1},
    }
    norm = found["distributions"]["residual_norm"]
    assert (norm["before"]["n"], norm["before"]["n_absent"], norm["after"]["mean"], sum(norm["after"]["counts"])) == (
        3,
        1,
        0.15,
        2,
    )
    assert [found["order"][when]["max_jump"] for when in ("before", "after")] == [0.3, 0.3]
    assert found["diversity"]["n"] == {"before": 4, "after": 3}
    assert found["mixture"]["n_blocks"] == 1
    assert json.loads(json.dumps(found, allow_nan=False))["counts"] == {
        "input": 4,
        "kept": 3,
        "masked": 0,
        "dropped": 1,
        "queued": 0,
    }


def test_nothing_changes_what_it_was_given() -> None:
    rows = frame(3, norm=[0.5, 0.1, 0.2], mode=["a", None, "b"])
    before = rows.copy(deep=True)
    curate(rows, Policy(), parts=mendable(3, "coder"))
    pd.testing.assert_frame_equal(rows, before)
