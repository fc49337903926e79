"""Live agents against a server on the loopback address: whatever it does, nothing is lost and nothing is paid twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.counterfactual.agents.ledger import Answer, Cap, Cost, Ledger
from analysis.counterfactual.agents.live import Endpoint, LiveAgent
from analysis.counterfactual.agents.prompts import messages_of, read_answer
from analysis.counterfactual.agents.protocol import Purpose, Request, Response, Seen
from analysis.counterfactual.agents.simulated import Component, Simulated
from analysis.counterfactual.clock import RealClock
from analysis.counterfactual.judging import Judge
from analysis.counterfactual.packages import FULL, package_of
from analysis.counterfactual.planning import plan_for
from analysis.counterfactual.runtime import Trial, execute
from analysis.counterfactual.tasks.bank import load_bank
from analysis.counterfactual.tasks.compose import ComposedTask, compose
from analysis.counterfactual.tasks.programs import program, sources
from analysis.counterfactual.tasks.shapes import SHAPES
from analysis.counterfactual.teams import ready_teams, team_of
from analysis.errors import BudgetSpent, EndpointError
from analysis.streams import stream
from tests.counterfactual.endpoint import INPUT_TOKENS, OUTPUT_TOKENS, free_port, serving

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-loopback-0123456789abcdef"
COST = INPUT_TOKENS + OUTPUT_TOKENS
FIT = '```json\n{"text": "Part by part.", "p": 0.75}\n```'


@pytest.fixture(scope="module")
def _client() -> None:
    pytest.importorskip("openai", reason="live agents need the package openai (extra `live`)")


needs_client = pytest.mark.usefixtures("_client")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    found = Ledger(tmp_path / "ledger")
    yield found
    found.close()


@pytest.fixture(scope="module")
def task() -> ComposedTask:
    return compose(load_bank(), SHAPES["chain-3"], rng=stream(7, "compose", "chain-3"))


def ask(prompt: str = "hello", *, trial: int = 1, attempt: int = 0) -> Request:
    return Request(
        purpose="answer", seed=1, key=("t", trial, "a", "s"), agent_id="a", component="c", task=prompt, attempt=attempt
    )  # fmt: skip


def about(task: ComposedTask, purpose: Purpose, **fields: Any) -> Request:
    given = {"package": package_of(task, task.requirements, FULL), **fields}
    return Request(purpose=purpose, seed=1, key=(task.task_id, 1), agent_id="ann", component="coder", task=task, **given)


def agent(url: str, ledger: Ledger, **fields: Any) -> LiveAgent:
    chosen = {"key_env": "LOOPBACK_KEY", "max_tokens": 20, "timeout_s": 0.5, "n_tries": 3, **fields}
    return LiveAgent(Endpoint(base_url=url, model="m", **chosen), ledger, environ={"LOOPBACK_KEY": KEY})


FAULTS = ["429", "429-date", "500", "503", "slow", "cut", "html", "bad-json", "no-choices"]
STREAM_FAULTS = ["429", "500", "slow", "cut", "cut-clean", "stream-error", "stream-garbage"]


@needs_client
@pytest.mark.parametrize(("fault", "streams"), [*[(f, False) for f in FAULTS], *[(f, True) for f in STREAM_FAULTS]])
def test_after_a_fault_the_call_is_made_again_and_its_answer_kept(ledger: Ledger, fault: str, streams: bool) -> None:
    with serving([fault]) as server:
        one = agent(server.url, ledger, stream=streams)
        response = one.act(ask())
        assert response == one.act(ask())
        assert (response.text, response.error) == ("answer to hello", None)
        assert (response.input_tokens, response.output_tokens) == (INPUT_TOKENS, OUTPUT_TOKENS)
        assert server.outcomes == [fault, "ok"]
        spent = ledger.spent()
        n_paid = sum(asked.paid for asked in server.log)
        assert (spent.n_calls, spent.n_open) == (2, n_paid - 1)  # a call that may have been paid stays at its most
        assert spent.tokens >= n_paid * COST if spent.n_open else spent.tokens == COST


@needs_client
@pytest.mark.parametrize(("fault", "least_s"), [("429", 0.6), ("429-date", 0.5), ("500", 0.2)])
def test_an_endpoint_is_left_alone_for_as_long_as_it_asks(ledger: Ledger, fault: str, least_s: float) -> None:
    with serving([fault]) as server:
        agent(server.url, ledger).act(ask())
        first, second = [asked.at_s for asked in server.log]
        assert least_s <= second - first < least_s + 2


@needs_client
def test_a_wait_beyond_patience_is_an_error_at_once(ledger: Ledger) -> None:
    with serving(["429-long"]) as server:
        response = agent(server.url, ledger).act(ask())
        assert response.error == "the endpoint asks to wait 3600 s (429: Error code: 429 - fault 429-long)"
        assert server.outcomes == ["429-long"]


@needs_client
def test_when_all_tries_fail_there_is_an_error_and_nothing_is_kept(ledger: Ledger) -> None:
    with serving(["500"] * 3) as server:
        one = agent(server.url, ledger)
        failed = one.act(ask())
        assert failed.error == "no answer in 3 tries, the last: 500: Error code: 500 - fault 500"
        assert (failed.input_tokens, failed.text, failed.duration_s > 0.3) == (None, "", True)
        assert ledger.spent()[:2] == (0, 0.0)
        assert one.act(ask()).text == "answer to hello"
        assert server.outcomes == ["500"] * 3 + ["ok"]


@needs_client
def test_where_nobody_listens_nothing_is_paid(ledger: Ledger) -> None:
    response = agent(f"http://127.0.0.1:{free_port()}/v1", ledger, n_tries=2).act(ask())
    assert "no answer in 2 tries, the last: the connection failed" in (response.error or "")
    assert (ledger.spent().tokens, ledger.spent().n_open) == (0, 0)


@needs_client
@pytest.mark.parametrize("fault", ["401", "403", "404", "no-credit"])
def test_an_endpoint_that_refuses_every_call_ends_the_run(ledger: Ledger, fault: str) -> None:
    with serving([fault]) as server:
        with pytest.raises(EndpointError, match=f"the endpoint refuses calls .*fault {fault}.* - check base_url, model"):
            agent(server.url, ledger).act(ask())
        assert server.outcomes == [fault]
        assert ledger.spent().tokens == 0


@needs_client
def test_a_call_of_the_wrong_kind_is_not_made_again(ledger: Ledger) -> None:
    with serving(["400"]) as server:
        assert "the endpoint refuses this call (400" in (agent(server.url, ledger).act(ask()).error or "")
        assert server.outcomes == ["400"]


@needs_client
def test_an_answer_of_the_wrong_form_is_asked_for_once_more(ledger: Ledger, task: ComposedTask) -> None:
    with serving(["garbage"], answer=lambda body: FIT) as server:
        one = agent(server.url, ledger)
        response = one.act(about(task, "plan"))
        assert response == one.act(about(task, "plan"))
        assert (response.text, response.claims, response.error) == ("Part by part.", (("plan_ok", 0.75),), None)
        assert (response.input_tokens, response.output_tokens) == (2 * INPUT_TOKENS, 2 * OUTPUT_TOKENS)
        assert server.outcomes == ["garbage", "ok"]
        assert server.log[1].body["messages"][-2] == {"role": "assistant", "content": "Certainly! Here you are."}
        assert server.log[1].last.startswith("That cannot be read: no JSON of the form that was asked for")


@needs_client
def test_garbage_twice_is_an_error_that_is_paid_once(ledger: Ledger, task: ComposedTask) -> None:
    with serving(["garbage"] * 2) as server:
        one = agent(server.url, ledger)
        response = one.act(about(task, "plan"))
        assert (response.error or "").startswith("the answer cannot be read: no JSON of the form that was asked for")
        assert (response.text, response.input_tokens) == ("Certainly! Here you are.", 2 * INPUT_TOKENS)
        assert one.act(about(task, "plan")) == response
        assert (server.outcomes, ledger.spent().tokens) == (["garbage"] * 2, 2 * COST)


@needs_client
def test_an_answer_without_text_is_an_answer_of_the_wrong_form(ledger: Ledger) -> None:
    with serving(["no-content"]) as server:
        assert agent(server.url, ledger).act(ask()).text == "answer to That cannot be read: it is empty. Answer with text."
        assert server.outcomes == ["no-content", "ok"]


@needs_client
def test_half_characters_and_control_characters_come_through(ledger: Ledger) -> None:
    with serving(answer=lambda body: "a\ud800b\x00\u2028") as server:
        one = agent(server.url, ledger)
        assert one.act(ask()).text == one.act(ask()).text == "a?b\x00\u2028"
        assert len(server.log) == 1


@needs_client
def test_tokens_that_are_not_said_are_not_known_and_stand_at_their_most(ledger: Ledger) -> None:
    with serving(["no-usage"]) as server:
        response = agent(server.url, ledger).act(ask())
        assert (response.input_tokens, response.output_tokens, response.error) == (None, None, None)
        assert ledger.spent()[:3] == (len("hello") + 64 + 20, 0.0, 1)


@needs_client
def test_a_budget_refuses_the_next_call_before_it_is_made(tmp_path: Path) -> None:
    most = len("hello") + 64 + 20
    with serving() as server:
        ledger = Ledger(tmp_path, cap=Cap(tokens=2 * COST + most))
        one = agent(server.url, ledger)
        for trial in (1, 2, 3):
            one.act(ask(trial=trial))
        wanted = r"budget: too little is left for the next call \(got 150 of 189 tokens spent, it may take 89\) - raise it"
        with pytest.raises(BudgetSpent, match=wanted):
            one.act(ask(trial=4))
        assert len(server.log) == 3
        assert one.act(ask(trial=2)).error is None  # what was paid for is there still
        ledger.close()
        richer = Ledger(tmp_path, cap=Cap(tokens=1000))
        assert agent(server.url, richer).act(ask(trial=4)).error is None
        assert (len(server.log), richer.spent().tokens) == (4, 4 * COST)
        other = Ledger(tmp_path, account="other", cap=Cap(tokens=0))
        assert agent(server.url, other).act(ask(trial=1)).error is None  # answers are everybody's
        with pytest.raises(BudgetSpent):
            agent(server.url, other).act(ask(trial=5))
        assert len(server.log) == 4


@needs_client
def test_a_budget_in_money_goes_by_the_prices_of_the_team_file(tmp_path: Path) -> None:
    with serving() as server:
        ledger = Ledger(tmp_path, cap=Cap(money=0.0006))
        one = agent(server.url, ledger, input_price=2.0, output_price=8.0)  # at most 138e-6 + 160e-6 a call, in fact 160e-6
        one.act(ask(trial=1))
        one.act(ask(trial=2))
        assert ledger.spent().money == pytest.approx(2 * (40 * 2 + 10 * 8) / 1e6)
        with pytest.raises(BudgetSpent, match=r"0.00032 of 0.0006 money spent, it may take 0.000298"):
            one.act(ask(trial=3))
        assert len(server.log) == 2


@needs_client
def test_threads_and_agents_that_ask_the_same_pay_once(tmp_path: Path) -> None:
    with serving(["slow:0.3"]) as server:
        agents = [agent(server.url, Ledger(tmp_path), timeout_s=5) for _ in range(4)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda n: agents[n % 4].act(ask()), range(8)))
        assert len(server.log) == 1
        assert len(set(found)) == 1


@needs_client
def test_concurrent_calls_never_exceed_the_budget(tmp_path: Path) -> None:
    with serving() as server:
        ledger = Ledger(tmp_path, cap=Cap(tokens=500))
        one = agent(server.url, ledger, timeout_s=5)

        def safely(trial: int) -> bool:
            try:
                return one.act(ask(trial=trial)).error is None
            except BudgetSpent:
                return False

        with ThreadPoolExecutor(8) as pool:
            n_answered = sum(pool.map(safely, range(20)))
        assert n_answered == len(server.log) == ledger.spent().tokens // COST
        assert COST * n_answered <= 500


@needs_client
def test_trials_and_attempts_are_samples_of_their_own(ledger: Ledger) -> None:
    with serving() as server:
        one = agent(server.url, ledger)
        for request in (ask(), ask(trial=2), ask(attempt=1), ask("other"), ask()):
            one.act(request)
        assert len(server.log) == 4


@needs_client
def test_a_rate_limit_holds_over_agents_that_share_a_ledger(tmp_path: Path) -> None:
    with serving() as server:
        agents = [agent(server.url, Ledger(tmp_path), per_minute=600, timeout_s=5) for _ in range(2)]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda n: agents[n % 2].act(ask(trial=n)), range(6)))
        times = sorted(asked.at_s for asked in server.log)
        assert times[-1] - times[0] > 0.4  # the sixth begins 0.5 s after the first


@needs_client
def test_the_key_goes_to_the_server_and_nowhere_else(tmp_path: Path) -> None:
    with serving(["echo-key"], answer=lambda body: f"your key is {KEY}") as server:
        ledger = Ledger(tmp_path)
        one = agent(server.url, ledger)
        failed, answered = one.act(ask(trial=1)), one.act(ask(trial=2))
        assert {asked.headers["authorization"] for asked in server.log} == {f"Bearer {KEY}"}
        assert "Incorrect key: Bearer [key]" in (failed.error or "")
        assert answered.text == "your key is [key]"
        kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert b"your key is [key]" in kept
        assert KEY.encode() not in kept


@needs_client
def test_without_a_key_variable_no_key_is_sent(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as server:
        agent(server.url, ledger, key_env=None).act(ask())
        assert KEY not in json.dumps(server.log[0].headers)


@needs_client
def test_a_key_that_is_not_there_is_said_before_any_call(ledger: Ledger) -> None:
    with serving() as server:
        with pytest.raises(EndpointError, match="NO_KEY: the environment variable holds no key - export NO_KEY"):
            agent(server.url, ledger, key_env="NO_KEY")
        with pytest.raises(EndpointError, match="base_url: it holds a password - name the variable") as error:
            agent("http://me:secret@127.0.0.1/v1", ledger)
        assert "secret" not in str(error.value)
        assert server.log == []


ASKER = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from analysis.counterfactual.agents.ledger import Ledger
from analysis.counterfactual.agents.live import Endpoint, LiveAgent
from analysis.counterfactual.agents.protocol import Request
url, folder, n_threads, n = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
agent = LiveAgent(Endpoint(base_url=url, model="m", max_tokens=20, timeout_s=20), Ledger(Path(folder)))
def act(trial):
    request = Request(purpose="answer", seed=1, key=("t", trial), agent_id="a", component="c", task=f"question {trial}")
    os.write(1, f"{agent.act(request).text}\\n".encode())
with ThreadPoolExecutor(n_threads) as pool:
    list(pool.map(act, range(n)))
"""


def run_asker(url: str, folder: Path, n_threads: int, n: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", ASKER, url, str(folder), str(n_threads), str(n)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


@needs_client
@pytest.mark.parametrize(
    ("n_threads", "at", "stalls"),
    [
        (1, 3, True),
        (3, 5, False),
        *[pytest.param(k, at, at % 2 == 0, marks=pytest.mark.soak) for k in (1, 3) for at in range(1, 11)],
    ],
)
def test_kill_9_loses_nothing_and_pays_again_only_what_was_in_flight(
    tmp_path: Path, n_threads: int, at: int, stalls: bool
) -> None:
    n = 10
    reached = threading.Event()

    def answer(body: dict[str, Any]) -> str:
        if len(server.log) >= at and not reached.is_set():
            reached.set()
            time.sleep(1.0 if stalls else 0.0)
        return f"answer to {body['messages'][-1]['content']}"

    with serving(answer=answer) as server:
        first = run_asker(server.url, tmp_path, n_threads, n)
        assert reached.wait(30)
        os.kill(first.pid, signal.SIGKILL)
        said = first.communicate()[0].splitlines()
        time.sleep(0.3)  # what it had sent arrives
        before = Ledger(tmp_path).spent()
        n_before = len(server.log)
        assert before.n_open <= n_threads
        second = run_asker(server.url, tmp_path, n_threads, n)
        out = second.communicate(timeout=60)[0].splitlines()
        assert second.returncode == 0
        assert sorted(out) == sorted(f"answer to question {trial}" for trial in range(n))  # nothing is lost
        assert set(said) <= set(out)
        asked = Counter(one.last for one in server.log)
        assert len(asked) == n
        n_twice = sum(count - 1 for count in asked.values())
        assert n_twice <= before.n_open <= n_threads  # nothing that was answered and kept is paid again
        assert len(server.log) - n_before == n - (n_before - n_twice)
        # One that was entered and not yet sent counts as made.
        assert 0 <= Ledger(tmp_path).spent().n_calls - len(server.log) <= before.n_open - n_twice
        third = run_asker(server.url, tmp_path, n_threads, n)
        assert sorted(third.communicate(timeout=60)[0].splitlines()) == sorted(out)
        assert len(server.log) == n + n_twice


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["settle", "strike", "leave"])), max_size=30), st.integers(0, 300))
def test_what_is_spent_never_exceeds_the_budget(tmp_path_factory: pytest.TempPathFactory, calls: list[Any], cap: int) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger"), cap=Cap(tokens=cap))
    expected = 0
    for n, (most, end) in enumerate(calls):
        if expected + most > cap:
            with pytest.raises(BudgetSpent):
                ledger.enter(f"{n:03x}", Cost(most))
            continue
        call_id = ledger.enter(f"{n:03x}", Cost(most))
        used = most // 2
        if end == "settle":
            ledger.settle(call_id, f"{n:03x}", Answer("x", "stop", used, 0, 0.1), Cost(used))
        elif end == "strike":
            ledger.strike(call_id)
        expected += {"settle": used, "strike": 0, "leave": most}[end]
        assert ledger.spent().tokens == expected <= cap
    ledger.close()


def test_who_writes_sees_only_what_was_handed_over(task: ComposedTask) -> None:
    node = task.nodes[1]
    options = ("reference", *[variant.variant_id for variant in node.function.variants])
    bare = about(task, "write", part=node.part, options=options, package=package_of(task, [node.part], ["nl"]))
    text = "\n".join(message["content"] for message in messages_of(bare))
    assert node.function.statement in text
    assert f"`{node.function.function_id}`" in text
    assert node.function.signature not in text
    assert task.nodes[0].function.statement not in text
    full = "\n".join(message["content"] for message in messages_of(about(task, "write", part=node.part, options=options)))
    assert node.function.signature in full


@pytest.mark.parametrize("purpose", ["plan", "assign", "write", "verify", "message", "aggregate", "stop", "answer"])
def test_no_prompt_shows_references_variants_or_hidden_tests(task: ComposedTask, purpose: Purpose) -> None:
    options = {"verify": (*task.requirements, "whole"), "stop": ("stop", "go on"), "message": ("status",)}.get(purpose, ())
    if purpose == "write":
        options = ("reference", *[variant.variant_id for variant in task.nodes[0].function.variants])
    for json_mode in (False, True):
        request = about(task, purpose, part="p1", options=options)
        text = "\n".join(message["content"] for message in messages_of(request, json_mode=json_mode))
        for node in task.nodes:
            assert node.function.reference not in text
            assert not any(variant.variant_id in text or variant.source in text for variant in node.function.variants)
        assert "reference" not in text


@pytest.mark.parametrize("json_mode", [False, True])
@pytest.mark.parametrize("purpose", ["plan", "assign", "write", "verify", "message", "aggregate", "stop", "answer"])
def test_who_repeats_the_form_has_not_answered(task: ComposedTask, purpose: Purpose, json_mode: bool) -> None:
    request = about(task, purpose, part="p1", options=() if purpose == "plan" else ("p1", "p2"))
    asked = messages_of(request, json_mode=json_mode)[1]["content"]
    assert isinstance(read_answer(request, asked), str)
    assert isinstance(read_answer(request, asked[asked.rindex("Answer with one") :].partition(": ")[2]), str)


def test_what_was_seen_stands_in_the_prompt(task: ComposedTask) -> None:
    seen = (
        Seen(kind="candidate", event_id="e1", agent_id="bob", part="p1", program="def f(): pass", n_passed=2, n_tests=5),
        Seen(kind="verdict", event_id="e2", agent_id="eve", text="No.", rejected=("p1",), claims=(("checks_pass", 0.1),)),
    )
    text = messages_of(about(task, "aggregate", seen=seen, options=("p1",)))[1]["content"]
    assert "From bob: candidate, part p1.\n```python\ndef f(): pass\n```\n2 of 5 tests pass." in text
    assert "From eve: verdict, the whole.\nNo.\nRejected: p1.\nIt states checks_pass with probability 0.1." in text


PARTS = ("p1", "p2", "whole")


@pytest.mark.parametrize(
    ("purpose", "options", "said", "found"),
    [
        ("plan", (), FIT, Response(text="Part by part.", claims=(("plan_ok", 0.75),))),
        ("plan", ("by part",), '{"choice": "by part"}', Response(choice="by part")),
        ("plan", ("by part",), '{"choice": "by hand"}', "`choice` is none of by part"),
        ("plan", ("by part",), '{"text": "well"}', "`choice` is missing"),
        ("plan", (), '{"text": " "}', "`text` is missing"),
        ("assign", ("a", "b"), 'So:\n```json\n{"choice": "b", "why": 1}\n```\n', Response(choice="b")),
        ("write", ("reference",), '```json\n{"p": 1}\n```\n```python\ndef f(): pass\n```',
         Response(program="def f(): pass\n", claims=(("p1_ok", 1.0),))),
        ("write", (), '{"program": "x = 1", "p": null}', Response(program="x = 1")),
        ("write", (), "```python\nx = 1\n```", "no JSON"),
        ("write", (), '```json\n{"p": 1.5}\n```\n```python\nx\n```', "no JSON of the form that was asked for (Expected `float`"),
        ("write", (), '{"p": 0.5}', "`program` is missing"),
        ("verify", PARTS, '{"rejected": []}', Response()),
        ("verify", PARTS, '{"rejected": ["p2"], "p": 0.2}', Response(rejected=("p2",), claims=(("checks_pass", 0.2),))),
        ("verify", PARTS, '{"rejected": ["p3"]}', "`rejected` names p3, which is none of p1, p2, whole"),
        ("verify", PARTS, '{"text": "fine"}', "`rejected` is missing"),
        ("stop", ("stop", "go on"), '```json\n{"choice": "stop"}\n```\n```json\n{"choice": "go on"}\n```',
         Response(choice="go on")),
        ("message", ("status",), '{"text": "Hello."}', Response(text="Hello.")),
        ("aggregate", ("p1",), '{"program": "x", "p": 0.5}', Response(program="x", claims=(("parts_ok", 0.5),))),
        ("answer", (), '{"program": "x", "p": 0.5}', Response(program="x")),
        ("answer", (), "[" * 100_000, "no JSON"),
        ("answer", (), '{"program": "\\ud800"}', "no JSON"),
    ],
)  # fmt: skip
def test_answers_are_read_strictly(
    task: ComposedTask, purpose: Purpose, options: tuple[str, ...], said: str, found: Response | str
) -> None:
    read = read_answer(about(task, purpose, part="p1", options=options), said)
    if isinstance(found, str):
        assert isinstance(read, str)
        assert read.startswith(found)
    else:
        assert read == found


RIGHT = "def f():\n    return {}\n"


@pytest.mark.parametrize(
    ("purpose", "options", "said", "found"),
    [
        ("stop", ("stop", "go on"), 'Sure! {"choice": "stop"} Anything else?', Response(choice="stop")),
        ("stop", ("stop", "go on"), 'First {"choice": "stop"}, no: {"choice": "go on"}.', Response(choice="go on")),
        ("stop", ("stop", "go on"), '{"choice": "Stop."}', Response(choice="stop")),
        ("stop", ("stop", "go on"), "**Go on**", Response(choice="go on")),
        ("stop", ("stop", "go on"), "I would stop or go on.", "no JSON"),
        ("stop", ("stop",), '```\n{"choice": "stop", "p": "0.5"}\n```', Response(choice="stop", claims=(("solved", 0.5),))),
        ("verify", PARTS, '~~~ JSON\n{"rejected": ["P2", "p2"]}\n~~~', Response(rejected=("p2",))),
        ("message", ("status",), '{"text": "two\nlines"}', Response(text="two\nlines")),
        ("message", ("status",), '{"text": "a", "choice": "status", "program": "x"}', Response(text="a")),
        ("write", (), f"Here it is:\n```python\n{RIGHT}```\nDone.", Response(program=RIGHT)),
        ("write", (), f"  ```py\n  {RIGHT[:8]}\n      pass\n  ```", Response(program="def f():\n    pass\n")),
        ("write", (), f"```\n{RIGHT}```", Response(program=RIGHT)),
        ("write", (), f'{{"p": 0.5}}\n````Python title=a\n{RIGHT}````', Response(program=RIGHT, claims=(("p1_ok", 0.5),))),
        ("write", (), json.dumps({"program": f"```python\n{RIGHT}```"}), Response(program=RIGHT)),
        ("write", (), f"```json\n{{'p': 0.5}}\n```\n```python\n{RIGHT}```", Response(program=RIGHT)),
        ("write", (), f"```python\n{RIGHT}", "`program` is missing"),
        ("write", (), "def f(): return {}", "`program` is missing"),
        ("write", (), '{"p": NaN, "program": "x"}', "no JSON"),
        ("write", (), '{"a": ' * 100_000, "no JSON"),
        ("answer", (), "{" * 100_000 + '{"program": "x"}', "no JSON"),
    ],
)  # fmt: skip
def test_what_a_model_says_besides_and_how_it_fences_does_not_matter(
    task: ComposedTask, purpose: Purpose, options: tuple[str, ...], said: str, found: Response | str
) -> None:
    read = read_answer(about(task, purpose, part="p1", options=options), said)
    assert read == found if isinstance(found, Response) else isinstance(read, str) and read.startswith(found)


def test_options_that_do_not_speak_for_themselves_are_explained(task: ComposedTask) -> None:
    def lines(purpose: Purpose, *options: str) -> list[str]:
        text = messages_of(about(task, purpose, options=options))[1]["content"]
        return [line for line in text.splitlines() if line.startswith("- ") and not line.startswith(("- p1:", "- p2:", "- p3:"))]

    assert [line.partition(":")[0] for line in lines("plan", "by part", "same part")] == ["- by part", "- same part"]
    assert lines("plan", "missing part:p2") == []
    assert lines("plan", "by part", "missing part:p2")[1] == "- missing part:p2: the same without this part"
    assert lines("stop", "stop", "go on") == [
        "- stop: the run ends with what there is",
        "- go on: what was rejected is written again",
    ]
    assert lines("stop", "stop") == lines("assign", "a", "b") == []


class _Prompted:
    """A model that keeps what it is told, and answers as a simulated agent does."""

    def __init__(self) -> None:
        self.told: dict[Purpose, str] = {}

    def act(self, request: Request) -> Response:
        """Answer a request."""
        self.told[request.purpose] = "\n".join(message["content"] for message in messages_of(request))
        return Simulated(Component(competence=1.0, fidelity=1.0, stops_at=0.0)).act(request)


def test_every_decision_of_a_run_is_put_before_a_model_with_all_that_it_needs(task: ComposedTask, judge: Judge) -> None:
    crew = team_of({
        "name": "x", "about": "", "split": "asked", "assignment": "asked", "strategy": "asked", "verifier": "tester",
        "n_repairs": 1, "stop": "asked", "n_status": 1, "package": ["nl", "signatures", "scenarios", "domain_model"],
        "components": {"planner": {}, "coder": {}, "tester": {}},
    }, "x")  # fmt: skip
    model = _Prompted()
    agents = dict.fromkeys(("planner", "coder", "tester"), model)
    execute(plan_for(crew, task, trial=Trial(7), agents=agents), task, agents, trial=Trial(7), judge=judge)
    solo, alone = ready_teams()["single"], _Prompted()
    execute(plan_for(solo, task, trial=Trial(7), agents={"solo": alone}), task, {"solo": alone}, trial=Trial(7), judge=judge)
    assert {**model.told, **alone.told}.keys() == {"plan", "assign", "write", "verify", "message", "aggregate", "stop", "answer"}
    node = task.nodes[-1]
    for purpose in ("plan", "assign", "verify", "aggregate", "stop"):
        assert task.text in model.told[purpose], purpose
    assert task.text in alone.told["answer"]
    for told in (model.told["write"], model.told["message"], alone.told["write"]):
        for text in (
            node.function.statement,
            node.function.signature,
            "is " + json.dumps(node.function.cases[0].expected),
            "return p3",
        ):
            assert text in told
    assert "Decide which agent" not in model.told["assign"]
    assert "Choose which agent is to write the part p" in model.told["assign"]
    assert "tests pass" in model.told["verify"]
    assert "one of p1, p2, p3" not in model.told["aggregate"]
    assert "def solve(" in model.told["verify"]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    found = read_answer(ask(), text)
    assert isinstance(found, Response) == bool(text.strip())


def solver(task: ComposedTask) -> Any:
    """A model that does everything right, by what it is asked."""

    def answer(body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        name = re.search(r"Write the Python function `(\w+)`", asked)
        whole = program(task, sources(task))
        source = next((node.function.reference for node in task.nodes if name and node.function.function_id == name[1]), whole)
        fields = {"text": "Done.", "p": 0.875, "rejected": [], "choice": "stop"}
        return f"```json\n{json.dumps(fields)}\n```\n```python\n{source}\n```"

    return answer


@needs_client
def test_a_live_team_runs_through_faults_and_again_for_nothing(tmp_path: Path, task: ComposedTask, judge: Judge) -> None:
    team = ready_teams()["parallel"]
    with serving(["500", "garbage", "429"], answer=solver(task)) as server:
        ledger = Ledger(tmp_path)
        agents = {name: agent(server.url, ledger, timeout_s=5, max_tokens=2000) for name in team.roles}
        traces = []
        for _ in range(2):
            plan = plan_for(team, task, trial=Trial(7), agents=agents)
            traces.append(execute(plan, task, agents, trial=Trial(7), judge=judge, clock=RealClock()))
        first, again = traces
        n_answered = sum(outcome in ("ok", "garbage") for outcome in server.outcomes)
        n_tokens = sum((event.input_tokens or 0) + (event.output_tokens or 0) for event in first.events)
        assert (first.world, first.outcome.passed, [event.error for event in first.events if event.error]) == ("live", True, [])
        assert n_tokens == ledger.spent().tokens == n_answered * COST
        assert len(server.log) == n_answered + 2
        assert [c.program for c in again.candidates] == [c.program for c in first.candidates]
        stated = ("plan_ok", "p1_ok", "p2_ok", "p3_ok", "parts_ok", "checks_pass", "solved")
        assert {claim.proposition: claim.p for claim in first.claims} == dict.fromkeys(stated, 0.875)
