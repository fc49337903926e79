"""The counterfactual data set: signs, what a model is asked and would answer, which effects become rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analysis.counterfactual.agents.prompts import messages_of, read_answer
from analysis.counterfactual.agents.protocol import Agent, Request, Response
from analysis.counterfactual.dataset import PairRow, pair_rows_of, preferred
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.pairing import Replayer, pair_frame
from analysis.counterfactual.planning import plan_for
from analysis.counterfactual.recorded import Intervention, pair_rows
from analysis.counterfactual.runtime import Trial
from analysis.counterfactual.scheduled import what_if
from analysis.counterfactual.study import CONFIRM, SCREEN
from analysis.counterfactual.teams import Team, ready_teams, simulated
from analysis.model import Agent as Member
from analysis.model import Event, Source, Task, Trace
from analysis.pipeline.effects import effect_rows
from tests.counterfactual.players import task_of, team
from tests.counterfactual.test_study import FRAIL, SILENCE, deltas, ran

TEAMS = ready_teams()
SEED = 3


def rows_of(trace: Trace, one: Intervention, judge: Judge, *, n: int = 8, blocks: tuple[str, ...] = (CONFIRM,)) -> list[Any]:
    """Return the stored effects of one change, marked as confirmed."""
    replayer = Replayer(trace, judge)
    pairs = [replayer.pair(one, seed=SEED, block=block, number=number) for block in blocks for number in range(n)]
    return [row | {"confirmed": True} for row in effect_rows(pair_frame(pairs), seed=SEED)]


def asked(trace: Trace, one: Intervention, judge: Judge) -> PairRow:
    """Return the row of one change's effect on the integrated pass."""
    row = {row["metric"]: row for row in rows_of(trace, one, judge, n=1)}["passed"]
    (found,) = pair_rows_of([trace], [row], judge=judge, seed=SEED)
    return found


def values(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what an answer says as values."""
    (message,) = messages
    assert message["role"] == "assistant"
    found: dict[str, Any] = json.loads(message["content"].removeprefix("```json\n").removesuffix("\n```"))
    return found


def test_credit_and_delta_q_have_opposite_signs_and_the_better_arm_is_preferred(judge: Judge) -> None:
    trace = ran(FRAIL, judge)
    measured = deltas([Replayer(trace, judge).pair(SILENCE, seed=SEED, block=CONFIRM, number=n) for n in range(16)])
    assert measured.mean() < 0  # who is not told fails more often
    rows = {row.metric: row for row in pair_rows_of([trace], rows_of(trace, SILENCE, judge, n=16), judge=judge, seed=SEED)}
    passed = rows["passed"]
    assert passed.delta_q == pytest.approx(measured.mean())
    assert passed.credit == -passed.delta_q > 0  # the message that was sent was worth something
    assert (values(passed.original)["decision"], values(passed.counterfactual)) == ("communicate", {"decision": "none"})
    assert passed.high is not None
    assert passed.high < 0
    assert preferred(passed) is False
    assert rows["tokens"].delta_q < 0 < rows["tokens"].credit
    assert (rows["tokens"].better, preferred(rows["tokens"])) == ("lower", True)  # fewer, which a credit above 0 does not hide
    assert all(row.credit == -row.delta_q for row in rows.values())


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"delta_q": 0.4, "low": 0.1, "high": 0.7, "better": "higher"}, True),
        ({"delta_q": -0.4, "low": -0.7, "high": -0.1, "better": "higher"}, False),
        ({"delta_q": 0.4, "low": 0.1, "high": 0.7, "better": "lower"}, False),
        ({"delta_q": -0.4, "low": -0.7, "high": -0.1, "better": "lower"}, True),
        ({"delta_q": 0.4, "low": -0.1, "high": 0.7, "better": "higher"}, None),
        ({"delta_q": 0.4, "low": 0.0, "high": 0.7, "better": "higher"}, None),
        ({"delta_q": 0.4, "low": None, "high": None, "better": "higher"}, None),
        ({"delta_q": 0.4, "low": 0.1, "high": 0.7, "better": "neither"}, None),
    ],
)
def test_only_a_sure_difference_in_what_has_a_better_side_is_a_preference(fields: dict[str, Any], found: bool | None) -> None:
    texts = dict.fromkeys(("pair_id", "trace_id", "task_id", "event_id", "event_kind", "operator", "parameters", "metric"), "")
    texts |= dict.fromkeys(("agent", "evidence", "world", "seed_block", "split"), "")
    said: dict[str, Any] = {"prompt": [], "original": [], "counterfactual": [], "n": 1, "confirmed": True}
    assert preferred(PairRow(**texts, **said, credit=-fields["delta_q"], **fields)) is found


class _Noted:
    """Answers as another agent does, and keeps what it was asked."""

    def __init__(self, agent: Agent, requests: list[Request]) -> None:
        self.agent, self.requests = agent, requests

    def act(self, request: Request) -> Response:
        self.requests.append(request)
        return self.agent.act(request)


def planned(of: Team) -> dict[str, Request]:
    """Return what a lead is asked before there is a plan, by lineage."""
    requests: list[Request] = []
    plan_for(of, task_of("chain-3"), trial=Trial(7), agents={n: _Noted(a, requests) for n, a in simulated(of).items()})
    return {str(request.key[3]): request for request in requests}


def test_who_does_a_part_is_asked_as_a_live_lead_is_asked(judge: Judge) -> None:
    row = asked(ran(team(assignment="asked"), judge), Intervention("assign", "give:p2", {"to": "coder-3"}), judge)
    request = planned(team(assignment="asked"))["assign:p2"]
    assert row.prompt == messages_of(request)
    said = [read_answer(request, side[0]["content"]) for side in (row.original, row.counterfactual)]
    now = Replayer(ran(team(assignment="asked"), judge), judge).plan.step("give:p2").to
    assert said == [Response(choice=now), Response(choice="coder-3")]
    assert row.agent == "planner"


def test_how_results_are_merged_is_asked_as_a_live_lead_is_asked(judge: Judge) -> None:
    trace = ran(team(strategy="asked"), judge)
    (now,) = [event.strategy for event in trace.events if event.event_id == "merge"]
    other = "hierarchical" if now != "hierarchical" else "sequential"
    row = asked(trace, Intervention("aggregate", "merge", {"strategy": other}), judge)
    request = planned(team(strategy="asked"))["plan:strategy"]
    assert row.prompt == messages_of(request)
    assert [read_answer(request, side[0]["content"]) for side in (row.original, row.counterfactual)] == [
        Response(choice=now), Response(choice=other),
    ]  # fmt: skip


def test_whether_a_run_ends_is_asked_with_the_verdict_that_came_before(judge: Judge) -> None:
    checked = team({"tester": {"competence": 1.0}}, verifier="tester", n_repairs=1)
    trace = ran(checked, judge)
    earlier = asked(trace, Intervention("stop-earlier", "merge"), judge)
    later = asked(trace, Intervention("stop-later", "stop"), judge)
    assert [values(side) for side in (earlier.original, earlier.counterfactual)] == [{"choice": "go on"}, {"choice": "stop"}]
    assert [values(side) for side in (later.original, later.counterfactual)] == [{"choice": "stop"}, {"choice": "go on"}]
    for row in (earlier, later):
        assert row.agent == "planner"
        assert "Decide whether the run ends here (one of stop, go on)." in row.prompt[-1]["content"]
    assert "From tester: verdict, the whole." in later.prompt[-1]["content"]
    assert "From tester" not in earlier.prompt[-1]["content"]


def test_a_step_that_begins_later_differs_in_its_time_alone(judge: Judge) -> None:
    row = asked(ran(TEAMS["parallel"], judge), Intervention("delay", "give:p2", {"x": 4}), judge)
    o, other = values(row.original), values(row.counterfactual)
    # It waited 0.35 s for the delegation before it, which now goes by while it waits.
    assert (o["decision"], o["to"], other["at_s"] - o["at_s"]) == ("delegate", ["coder-2"], pytest.approx(4 - 0.35))
    assert {**o, "at_s": 0} == {**other, "at_s": 0}
    assert [message["role"] for message in row.prompt] == ["system", "user", "assistant", "user"]
    assert row.prompt[1]["content"].startswith("The task:\n")
    assert row.prompt[-1]["content"].startswith("It is 13.223 s since the run began. Decide what you do next, and when.")


def test_who_was_handed_a_part_has_what_was_handed_over_before_it(judge: Judge) -> None:
    trace = ran(FRAIL, judge)
    row = asked(trace, Intervention("insert-message", "give:p1", {"to": "write:p3"}), judge)
    assert values(row.original) == {"decision": "none"}
    sent = values(row.counterfactual)
    assert (sent["decision"], sent["to"], sent["message_type"]) == ("communicate", ["coder-3"], "interface")
    assert sent["text"]
    assert row.agent == "coder-1"
    assert "From planner: delegate (give:p1)." in row.prompt[1]["content"]
    assert "The task:" not in row.prompt[1]["content"]  # it has its part alone


RECORDED = Trace(
    trace_id="made:recorded", world="recorded", source=Source(format="counterpoint"), clock="relative",
    task=Task(task_id="t", text="Add two numbers."),
    agents=(Member(agent_id="a", component="lead"), Member(agent_id="b", component="coder")),
    events=(
        Event(event_id="plan", kind="act", action="model_call", agent_id="a", content="First b.", t_start_s=10.0, t_end_s=11.0),
        Event(event_id="give", kind="delegate", agent_id="a", targets=("b",), parents=("plan",), content="Do it, b.", order=1,
              t_start_s=11.0, t_end_s=12.0),
        Event(event_id="work", kind="act", agent_id="b", parents=("give",), order=2, t_start_s=14.0, t_end_s=20.0),
    ),
)  # fmt: skip


def test_a_recorded_decision_stands_after_the_texts_of_its_run(judge: Judge) -> None:
    one = Intervention("advance", "work")
    made = pair_rows(RECORDED, what_if(RECORDED, one))
    frame = pair_frame([]).reindex(columns=[*made[0], "number"])
    rows = effect_rows(frame.from_records([row | {"number": 0} for row in made]), seed=SEED)
    assert pair_rows_of([RECORDED], rows, judge=judge, seed=SEED) == []  # fresh seeds have not confirmed it
    found = {row.metric: row for row in pair_rows_of([RECORDED], rows, judge=judge, seed=SEED, only_confirmed=False)}
    row = found["makespan_s"]
    assert (row.delta_q, row.credit, row.better, row.evidence, row.n) == (-2.0, 2.0, "lower", "simulated", 1)
    assert preferred(row) is None  # one exact value has no interval
    assert (row.agent, values(row.original), values(row.counterfactual)) == (
        "b", {"decision": "act", "at_s": 4.0}, {"decision": "act", "at_s": 2.0},
    )  # fmt: skip
    assert [message["role"] for message in row.prompt] == ["system", "user"]
    assert row.prompt[1]["content"].startswith("From a: delegate (give).\nDo it, b.\n\nIt is 2 s since the run began. Decide")


def test_fresh_seeds_stand_for_the_screening_and_the_same_rows_come_in_whatever_order(judge: Judge) -> None:
    trace = ran(FRAIL, judge)
    stored = rows_of(trace, SILENCE, judge, n=2, blocks=(SCREEN, CONFIRM))
    found = pair_rows_of([trace], stored, judge=judge, seed=SEED)
    assert {row.seed_block for row in found} == {CONFIRM}
    assert [row.metric for row in found] == sorted({row["metric"] for row in stored})
    assert len({row.pair_id for row in found}) == len(found)
    assert pair_rows_of([trace], stored[::-1], judge=judge, seed=SEED) == found
    assert pair_rows_of([], stored, judge=judge, seed=SEED) == []


def test_what_cannot_be_made_again_is_left_out_with_the_reason(judge: Judge) -> None:
    trace, said = ran(TEAMS["single"], judge), list[str]()
    stored = rows_of(trace, Intervention("delay", "stop", {"x": 1}), judge, n=1)
    gone = [row | {"event_id": "nowhere"} for row in stored]
    assert pair_rows_of([trace], gone, judge=judge, seed=SEED, told=said.append) == []
    hint = "`counterpoint show TRACE_ID` lists the events"
    assert said == [f"step nowhere of the plan of single: delay: the plan has no such step - {hint}"]
