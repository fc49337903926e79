"""No component of what is exported has two splits, and growth changes none."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.training.splits import Assigned, Case, assign, bands, split_of

WORDS = "write a module that reads the export of a bank and sorts all payments by day and by the name of the payer please"


def test_shares_are_those_of_the_components() -> None:
    found = [split_of(f"task:{n}", {"train": 0.8, "validation": 0.1, "test": 0.1}) for n in range(4000)]
    shares = {split: found.count(split) / 4000 for split in ("train", "validation", "test")}
    assert all(abs(shares[name] - share) < 0.02 for name, share in {"train": 0.8, "validation": 0.1, "test": 0.1}.items())


def test_nearly_equal_prompts_meet_and_others_do_not() -> None:
    near, other = WORDS.replace("please", "now"), "draw a clock whose hands show the time in the capital of another country"
    assert set(bands(WORDS)) & set(bands(near))
    assert not set(bands(WORDS)) & set(bands(other))
    assert bands(WORDS.upper()) == bands(WORDS)
    assert bands("…") == []


def test_siblings_and_runs_of_a_task_belong_together() -> None:
    cases = [Case("a", "t", None), Case("b", None, None, ("a",)), Case("c", "t", "Sort."), Case("d", "u", "Add.")]
    found, left_out = assign(cases)
    assert (found["a"], left_out) == (found["b"], []) == (found["c"], [])
    assert found["a"].group == "task:t" != found["d"].group


def test_what_would_join_two_splits_is_left_out() -> None:
    known = {"a": Assigned("task:t", "train"), "b": Assigned("task:u", "test")}
    cases = [Case("a", "t", None), Case("b", "u", None), Case("c", "t", None, ("b",)), Case("d", "u", None)]
    found, left_out = assign(cases, known=known)
    assert left_out == ["c"]
    assert found == known | {"d": Assigned("task:u", "test")}


cases = st.lists(
    st.builds(
        Case,
        st.integers(0, 40).map(str),
        st.sampled_from([None, "t1", "t2", "t3", "t4", "t5"]),
        st.sampled_from([None, "Sort.", "Add.", WORDS, WORDS + " today"]),
        st.lists(st.integers(0, 40).map(str), max_size=1).map(tuple),
    ),
    max_size=25,
    unique_by=lambda case: case.trace_id,
)


@given(cases, st.integers(0, 25), st.integers(0, 25))
@settings(max_examples=80)
def test_growth_keeps_splits_and_no_group_has_two(data: list[Case], one: int, two: int) -> None:
    ledger: dict[str, Assigned] = {}
    half = {"train": 0.5, "test": 0.5}
    for n in (*sorted((one, two)), len(data)):
        before = dict(ledger)
        found, left_out = assign(data[:n], known=ledger, shares=half)
        assert set(found) | set(left_out) == {case.trace_id for case in data[:n]}
        assert all(found[name].split == was.split for name, was in before.items())
        ledger |= {name: new for name, new in found.items() if name not in ledger}
        splits: dict[object, set[str]] = {}
        for case in data[:n]:
            if case.trace_id in found:
                keys = (
                    f"run {case.trace_id}",
                    *[f"run {name}" for name in case.kin],
                    *(bands(case.prompt) if case.prompt else ()),
                )
                for key in (*keys, *([f"task {case.task}"] if case.task else [])):
                    splits.setdefault(key, set()).add(found[case.trace_id].split)
        assert all(len(met) == 1 for met in splits.values())


@given(cases)
@settings(max_examples=25)
def test_the_order_of_traces_does_not_matter(data: list[Case]) -> None:
    assert assign(data) == assign(data[::-1])
