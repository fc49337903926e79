"""The gates: what each says of a row, by hand; what noise does; what is said where nothing is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curation.gates import (
    DROP,
    MEND,
    PASS,
    QUEUE,
    Coherence,
    Credit,
    Gate,
    Hedging,
    Labels,
    Measure,
    Outcome,
    column_of,
    judge,
    quantile,
    residual_and_noise,
)
from tests.curation.frames import frame, frames


def verdicts(gate: Gate, **columns: object) -> list[int]:
    size = max(len(value) for value in columns.values() if isinstance(value, list))
    return judge(gate, frame(size, **columns)).verdict.tolist()


def test_coherence_takes_the_debiased_residual_where_samples_are_known_and_says_where_not() -> None:
    judged = judge(Coherence(max=0.2, near="drop"), frame(3, norm=[0.5, 0.5, np.nan], residual_debiased=[0.01, np.nan, np.nan]))
    assert judged.value.tolist()[:2] == [0.01, 0.5]
    assert [judged.reasons[code] for code in judged.reason] == [
        "within its sampling noise of the threshold", "too incoherent; noise_unknown: no sample counts",
        "no tied claims: a stratum of its own",
    ]  # fmt: skip


def test_the_noise_of_a_negation_of_eight_samples_is_that_of_the_reference() -> None:
    """Reference 2.8: NEG, Bernoulli p = 0.5, K = 8 has E ε² = 0.03125; a quote with ε² = 0.04 keeps 0.00875 of it."""
    largest = np.sqrt(0.5)
    row = frame(1, residual=0.2, residual_norm=0.2 / largest, residual_max=largest, residual_debiased=np.sqrt(0.04 - 0.03125))
    value, noise = residual_and_noise(row)
    assert value[0] == pytest.approx(np.sqrt(0.00875 / 0.5), abs=1e-9)
    assert noise[0] == pytest.approx(np.sqrt(0.03125 / 0.5), abs=1e-9)


@pytest.mark.parametrize(
    ("near", "expected"), [("keep", [PASS, PASS, DROP]), ("queue", [PASS, QUEUE, DROP]), ("drop", [PASS, DROP, DROP])]
)
def test_a_row_within_its_noise_of_the_threshold_fares_as_the_policy_says(near: str, expected: list[int]) -> None:
    # residual, debiased -> noise: (0.1, 0.1) 0; (0.5, 0.3) 0.4, so 0.3 is within 0.4 of 0.2; (0.9, 0.9) 0
    rows = frame(3, norm=[0.1, 0.5, 0.9], residual_debiased=[0.1, 0.3, 0.9])
    assert judge(Coherence(max=0.2, near=near), rows).verdict.tolist() == expected  # type: ignore[arg-type]


def test_without_a_largest_residual_nothing_is_normalised_and_the_policy_decides() -> None:
    for unknown, expected in (("keep", PASS), ("drop", DROP), ("queue", QUEUE)):
        rows = frame(1, is_tied=True, residual=0.3)
        assert judge(Coherence(max=0.5, unknown=unknown), rows).verdict.tolist() == [expected]  # type: ignore[arg-type]


def test_a_quantile_follows_the_data_and_the_rest_waits_for_a_mask() -> None:
    rows = frame(5, norm=[0.0, 0.1, 0.2, 0.3, np.nan])
    judged = judge(Coherence(max_quantile=0.5, above="mask"), rows)
    assert (judged.threshold[0], judged.verdict.tolist()) == (0.1, [PASS, PASS, MEND, MEND, PASS])
    assert np.isnan(quantile(np.array([np.nan]), 0.5))


def test_hedging_passes_no_gate_however_coherent_it_is() -> None:
    assert verdicts(Hedging(min_sharpness=0.05), norm=[0.0, 0.0, np.nan], sharpness=[0.0, 0.4, 0.0]) == [DROP, PASS, PASS]
    assert "hedging" in judge(Hedging(), frame(1, norm=[0.0], sharpness=0.0)).reasons[1]


def test_outcome_measure_credit_and_labels_by_hand() -> None:
    assert verdicts(Outcome(unknown="queue"), passed=[1.0, 0.0, np.nan]) == [PASS, DROP, QUEUE]
    assert verdicts(Measure(name="q_work", min=0.5, max=0.8, unknown="drop"), q_work=[0.4, 0.5, 0.9, np.nan]) == [
        DROP,
        PASS,
        DROP,
        DROP,
    ]
    assert verdicts(Measure(name="q_work", min_quantile=0.5), q_work=[0.1, 0.2, 0.3]) == [DROP, PASS, PASS]
    credit = Credit(min=0.1)
    assert verdicts(credit, **{column_of(credit): [0.2, 0.0, np.nan]}) == [PASS, DROP, PASS]
    assert verdicts(Labels(min=0.6), agreement=[1.0, 0.5, np.nan]) == [PASS, DROP, PASS]


def test_a_measure_names_the_bound_that_a_row_is_held_against() -> None:
    judged = judge(Measure(name="q_work", min=0.2, max=0.8), frame(3, q_work=[0.1, 0.5, 0.9]))
    assert judged.threshold.tolist() == [0.2, 0.2, 0.8]


@pytest.mark.parametrize(
    ("gate", "sentence"),
    [
        (Coherence(max=0.1), "No trace has tied claims, so the gate `coherence` decides nothing: run `counterpoint analyze`"),
        (Hedging(), "No trace has tied claims, so the gate `hedging` decides nothing"),
        (Outcome(unknown="drop"),
         'No outcome is known: the gate `outcome` drops every trace (unknown = "drop"). To change that,'),
        (Measure(name="q_work", min=1), 'No trace has a value of q_work: the gate `measure q_work` keeps every trace'),
        (Credit(unknown="queue"), "No effect on passed is confirmed: the gate `credit passed` queues every trace"),
        (Labels(), "No trace has two annotators who blame an agent: the gate `labels` keeps every trace"),
    ],
)  # fmt: skip
def test_a_gate_with_nothing_to_go_by_says_so_and_what_to_do(gate: Gate, sentence: str) -> None:
    rows = frame(2, **({column_of(gate): np.nan} if isinstance(gate, Credit) else {}))
    assert judge(gate, rows).note.startswith(sentence)


LIMITS = st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0])


@given(frames(), LIMITS, LIMITS, st.sampled_from(["keep", "queue", "drop"]), st.booleans())
def test_a_stricter_gate_never_passes_more(rows, one: float, other: float, near: str, is_quantile: bool) -> None:  # type: ignore[no-untyped-def]
    low, high = sorted((one, other))
    key = "max_quantile" if is_quantile else "max"
    pairs = [
        (Coherence(near=near, **{key: low}), Coherence(near=near, **{key: high})),  # type: ignore[arg-type]
        (Hedging(min_sharpness=high / 2), Hedging(min_sharpness=low / 2)),
        (Measure(name="q_work", min=high, unknown="drop"), Measure(name="q_work", min=low, unknown="drop")),
        (Measure(name="q_work", min_quantile=high), Measure(name="q_work", min_quantile=low)),
    ]
    for strict, loose in pairs:
        passes = [judge(gate, rows).verdict == PASS for gate in (strict, loose)]
        assert not (passes[0] & ~passes[1]).any()
