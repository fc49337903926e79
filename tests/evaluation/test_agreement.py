"""Agreement of annotators: counted by hand, the same whoever comes first, and known for the real annotators."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.evaluation.agreement import Agreement, agreements
from analysis.pipeline import import_paths
from analysis.workspace import Snapshot, Workspace

COLUMNS = ["trace_id", "annotator", "agent_id", "event_id", "is_root_cause"]
Row = tuple[str, str, str | None, str | None, bool | None]


def agreed(*rows: Row) -> list[tuple[str, str, int, int, int]]:
    found = agreements(pd.DataFrame(list(rows), columns=COLUMNS))
    return [(a.first, a.second, a.n_traces, a.n_same_agent, a.n_same_step) for a in found]


def test_same_agent_and_same_step_are_counted_over_the_runs_both_blame() -> None:
    rows: list[Row] = [
        ("t1", "a", "Web", "e1", None), ("t1", "b", "web", "e1", None),  # agent and step; case does not matter
        ("t2", "a", "Web", "e1", None), ("t2", "b", "Web", "e2", None),  # agent only
        ("t3", "a", "Web", "e3", None), ("t3", "b", "Coder", "e3", None),  # step only
        ("t4", "a", "Web", None, None), ("t4", "b", "Web", None, None),  # agent; that neither names a step is no agreement
        ("t5", "a", "Web", "e1", None),  # by one only
        ("t6", "b", "Web", "e1", None),
    ]  # fmt: skip
    assert agreed(*rows) == [("a", "b", 4, 3, 2)]


def test_of_several_labels_the_root_cause_counts() -> None:
    three: list[Row] = [("t", "b", "X", "e1", False), ("t", "b", "Y", "e2", True), ("t", "b", "Z", "e3", None)]
    assert agreed(("t", "a", "Y", "e2", None), *three) == [("a", "b", 1, 1, 1)]
    assert agreed(("t", "a", "Z", "e3", None), *three) == [("a", "b", 1, 0, 0)]


@pytest.mark.parametrize("causes", [(False, False), (None, None), (True, True)])
def test_several_labels_without_one_root_cause_are_no_verdict(causes: tuple[bool | None, bool | None]) -> None:
    two: list[Row] = [("t", "b", "X", "e1", causes[0]), ("t", "b", "Y", "e2", causes[1])]
    assert agreed(("t", "a", "X", "e1", None), *two) == []


def test_labels_that_name_no_agent_say_nothing_here() -> None:
    assert agreed(("t", "a", None, "e1", True), ("t", "b", "X", "e1", None)) == []
    assert agreed(("t", "a", "X", "e1", None), ("t", "b", "X", "e1", None), ("t", "b", None, None, None)) == [("a", "b", 1, 1, 1)]
    assert agreed() == []


def test_each_pair_of_annotators_is_compared_once_in_the_order_of_their_names() -> None:
    rows: list[Row] = [("t", name, "X", "e", None) for name in ("c", "a", "b")]
    assert agreed(*rows) == [("a", "b", 1, 1, 1), ("a", "c", 1, 1, 1), ("b", "c", 1, 1, 1)]


def test_an_agreement_is_worded_in_one_line() -> None:
    assert str(Agreement(first="a", second="b", n_traces=4, n_same_agent=3, n_same_step=2)) == (
        "a and b: same agent in 3 of 4 runs, same step in 2 of 4 runs"
    )


ROWS = st.tuples(
    st.sampled_from(["t1", "t2", "t3"]), st.sampled_from(["a", "b"]), st.sampled_from(["X", "x", "Y", None]),
    st.sampled_from(["e1", "e2", None]), st.sampled_from([True, False, None]),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(ROWS, max_size=6))
def test_counts_are_bounded_and_neither_order_nor_names_matter(rows: list[Row]) -> None:
    found = agreed(*rows)
    assert all(0 <= same <= n <= 3 for _, _, n, *both in found for same in both)
    assert agreed(*rows[::-1]) == found
    swapped = agreed(*((t, {"a": "b", "b": "a"}[annotator], *rest) for t, annotator, *rest in rows))
    assert swapped == found


def test_an_annotator_agrees_with_a_copy_of_itself() -> None:
    mine: list[Row] = [(f"t{n}", "a", "X", f"e{n}", None) for n in range(5)]
    copy = [(t, "b", *rest) for t, _, *rest in mine]
    for rows in list(permutations([*mine[:2], *copy[:2]]))[:6]:
        assert agreed(*rows) == [("a", "b", 2, 2, 2)]
    assert agreed(*mine, *copy) == [("a", "b", 5, 5, 5)]


def test_the_two_annotators_of_magentic_one_agree_on_the_agent_more_often_than_on_the_step(
    shared_traces: Path, tmp_path: Path
) -> None:
    store = Workspace(tmp_path, create=True)
    import_paths(store, [shared_traces / "whowhen", shared_traces / "agentrx"])
    labels = Snapshot(store).sql(f"select {', '.join(COLUMNS)} from labels").to_pandas()
    (found,) = agreements(labels)
    assert (found.first, found.second, found.n_traces) == ("agentrx", "whowhen", 34)
    assert 34 >= found.n_same_agent >= found.n_same_step > 0
    print(found)
