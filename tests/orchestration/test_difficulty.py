"""D_orch against C16 to C19 of the reference, and what its features must not depend on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.model import Agent, Event, Trace
from analysis.orchestration.difficulty import Features, d_orch, d_orch_raw, difficulty_metrics, features
from analysis.orchestration.timing import timing
from tests.orchestration.runs import event, run


def of(trace: Trace) -> Features:
    return features(trace, timing(trace))


def spawn(name: str, agent: str, *targets: str, after: tuple[str, ...] = ()) -> Event:
    return event(name, agent, kind="spawn", targets=targets, after=after)


def say(name: str, agent: str, *after: str) -> Event:
    return event(name, agent, kind="communicate", after=after)


FORK = run(
    spawn("r", "lead", "w1", "w2", "w3", "w4"),
    *[event(f"w{k}", f"w{k}", after=["r"]) for k in range(1, 5)],
    event("g", "lead", after=["w1", "w2", "w3", "w4"]),
)
CHAIN = run(
    spawn("r", "root", "a"), spawn("s", "a", "b", after=("r",)), spawn("t", "b", "c", after=("s",)), event("u", "c", after=["t"])
)


def tree() -> Trace:
    """Two leads with three workers each, two edges between workers of different leads, three rounds of messages."""
    rows = [spawn("r", "root", "l1", "l2")]
    for lead in ("l1", "l2"):
        workers = [f"{lead}w{k}" for k in range(3)]
        rows.append(spawn(lead, lead, *workers, after=("r",)))
        rows += [event(worker, worker, after=[lead]) for worker in workers]
    rows += [event("x1", "l2w0", after=["l1w0"]), event("x2", "l2w1", after=["l1w1"])]
    for k in range(3):
        rows += [say(f"m{k}", "l1", f"n{k - 1}" if k else "l1w2"), event(f"n{k}", "l1", after=[f"m{k}"])]
    return run(*rows)


def test_c16_fork() -> None:
    assert of(FORK) == (1, 4, 0, 0)
    assert d_orch_raw(of(FORK), weights=(1, 1, 1, 1)) == 5
    assert d_orch_raw(of(FORK)) == 1.25
    assert d_orch(of(FORK)) == pytest.approx(0.2083, abs=5e-5)


def test_c17_two_levels_with_cross_edges_and_rounds() -> None:
    assert of(tree()) == (2, 3, 2, 3)
    assert d_orch_raw(of(tree()), weights=(1, 1, 1, 1)) == 10
    assert d_orch_raw(of(tree())) == 2.5
    assert d_orch(of(tree())) == pytest.approx(0.4226, abs=5e-5)


def test_c18_single_agent() -> None:
    alone = of(run(event("a", "x"), event("b", "x", after=["a"])))
    assert (alone, d_orch_raw(alone), d_orch(alone)) == ((0, 0, 0, 0), 0, 0)


def test_c19_a_deep_chain_ranks_below_the_fork_in_both_forms() -> None:
    assert of(CHAIN) == (3, 1, 0, 0)
    assert (d_orch_raw(of(CHAIN)), d_orch(of(CHAIN))) == (1, pytest.approx(0.2))
    assert d_orch_raw(of(CHAIN)) < d_orch_raw(of(FORK))
    assert d_orch(of(CHAIN)) < d_orch(of(FORK)) < d_orch(of(CHAIN)) + 0.01


def test_agents_that_delegate_in_a_circle_count_as_one() -> None:
    circle = [event(f"d{k}", agent, kind="delegate", targets=(to,)) for k, (agent, to) in enumerate(["ab", "bc", "ca", "cd"])]
    assert of(run(*circle)).depth == 1


def test_declared_parents_count_as_leading() -> None:
    trace = run(event("a", "x"), event("b", "y", after=["a"]))
    assert of(trace) == (0, 0, 1, 0)
    declared = (Agent(agent_id="x", component="x"), Agent(agent_id="y", component="y", parent_id="x"))
    assert of(run(event("a", "x"), event("b", "y", after=["a"]), agents=declared)) == (1, 0, 0, 0)


def test_branching_counts_one_go_only() -> None:
    rows = [
        spawn("1", "lead", "a", "b"),
        event("x", "a", after=["1"]),
        spawn("2", "lead", "c", after=("x",)),
        event("y", "lead"),
        spawn("3", "lead", "d"),
    ]
    assert of(run(*rows)).branching == 2


def test_messages_side_by_side_are_one_round_and_delegating_between_them_is_no_work() -> None:
    rows = [say("1", "a"), say("2", "b"), event("d", "a", kind="delegate", targets=("c",), after=["2"]), say("3", "a", "d")]
    assert of(run(*rows)).comm_rounds == 1


def test_what_another_agent_does_meanwhile_does_not_split_a_round() -> None:
    rows = [say("1", "a"), event("w", "b"), say("2", "a", "1"), event("v", "a", after=["2"]), say("3", "a", "v")]
    assert of(run(*rows)).comm_rounds == 2


def test_width_counts_sub_agents_alive_at_once() -> None:
    rows = [
        event("r", "lead", 0, 1, kind="spawn", targets=("a", "b", "c")),
        event("a", "a", 1, 4, after=["r"]),
        event("b", "b", 2, 6, after=["r"]),
        event("c", "c", 5, 6, after=["r"]),
        event("s", "lead", 4, 4, kind="spawn", targets=("d",)),
        event("d", "d", 6, 9, after=["s"]),
    ]
    found = {m.name: m.value for m in difficulty_metrics(run(*rows), timing(run(*rows)))}
    # From their spawning on: a 1 to 4, b 1 to 6, c 1 to 6, d 4 to 9; a ends as d begins.
    assert (found["width"], found["n_messages"]) == (3, 0)


def test_without_agents_there_is_no_difficulty() -> None:
    trace = run(event("a"))
    assert {(m.value, m.reason) for m in difficulty_metrics(trace, timing(trace))} == {(None, "no event names its agent")}


counts = st.tuples(*[st.integers(0, 50)] * 4)


@given(counts, st.integers(0, 3), st.integers(1, 20))
def test_difficulty_rises_with_each_feature_and_stays_below_one(found: tuple[int, ...], which: int, more: int) -> None:
    raised = tuple(x + more * (k == which) for k, x in enumerate(found))
    assert 0 <= d_orch(found) < d_orch(raised) < 1
    assert d_orch_raw(found) < d_orch_raw(raised)
