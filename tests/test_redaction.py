"""Secrets go, what looks alike stays, and what could be parsed can be parsed after."""

from __future__ import annotations

import json
import random
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UnknownNameError
from analysis.model import Agent, Event, Trace, encode
from analysis.pipeline import import_paths
from analysis.redaction import Redactor
from analysis.workspace import Snapshot, Workspace

DRAWN = random.Random(5)


def drawn(n: int, letters: str = string.ascii_letters + string.digits) -> str:
    return "".join(DRAWN.choices(letters, k=n - 3)) + "aB3"


SECRETS = [
    ("token", f"sk-{drawn(40)}", "{}"),
    ("token", f"ghp_{drawn(36)}", "export GITHUB_TOKEN={}"),
    ("token", f"AKIA{drawn(16, string.ascii_uppercase + string.digits).upper()}", "id {}."),
    ("token", f"eyJ{drawn(20)}.eyJ{drawn(30)}.{drawn(30)}", "cookie: {};"),
    ("token", drawn(24), "Authorization: Bearer {}"),
    ("password", "hunter22", 'password = "{}"'),
    ("password", drawn(32, "0123456789abcdef"), "API_KEY={}"),
    ("password", "s3cr3t", "postgres://ann:{}@db/x"),
    ("email", "ann.lee+x@firm.co.uk", "write to {}, please"),
    ("home-path", "ann", "/home/{}/src/a.py"),
    ("home-path", "ann", "open('/Users/{}')"),
    ("home-path", "ann", "C:\\Users\\{}\\x"),
    ("entropy", drawn(43, string.ascii_letters + string.digits + "_-"), "value {} set"),
    ("private-key", f"-----BEGIN RSA PRIVATE KEY-----\n{drawn(64)}\n{drawn(64)}\n-----END RSA PRIVATE KEY-----", "{}"),
]  # fmt: skip
HARMLESS = [
    "3f2b8c1e-9d4a-4f6b-8a7c-0e1d2f3a4b5c", "commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "a" * 64,
    "call_W83onhuRFzCvfhqM524IExyAb12Cd", "toolu_01NG5xcSVvWynFdbWxaW2SPcXy", "password = input('Password: ')",
    "api_key=os.environ['API_KEY']", "secret: Uint8Array", "token = tokens[0]", "max_tokens: 4096", "@app.route('/x')",
    "git@github.com:a/b.git", "ann@example.com", "react@18.2.0", "/home/user/x", "https://news.com/home/whats-new",
    "InternLM-XComposer2-VL-7B-on-two-3090-GPUs", "test_user_can_log_in_2_times_with_a_password", "sk-your-key-goes-here-please",
    "aVeryLongCamelCaseNameOfAFunctionThatTests2Things", "api_key: <your key>", "postgres://localhost:5432/db",
]  # fmt: skip


@pytest.mark.parametrize(("kind", "secret", "around"), SECRETS, ids=[f"{n}-{kind}" for n, (kind, _, _) in enumerate(SECRETS)])
def test_a_secret_goes_and_its_kind_is_counted(kind: str, secret: str, around: str) -> None:
    redactor = Redactor()
    assert redactor.text(around.format(secret)) == around.format(f"[redacted:{kind}]")
    assert redactor.counts == {kind: 1}


@pytest.mark.parametrize("text", HARMLESS)
def test_what_looks_alike_stays(text: str) -> None:
    assert Redactor().text(text) == text


texts = st.lists(
    st.one_of(
        st.text(st.sampled_from("ab1 \n\t\"\\'/{}[]:,.=@é\u2028"), max_size=6),
        st.sampled_from([around.format(secret) for _, secret, around in SECRETS]),
        st.sampled_from(HARMLESS),
    ),
    min_size=1,
    max_size=6,
)


@given(texts, st.integers(0, 3), st.booleans())
def test_json_in_json_stays_valid_and_holds_no_secret(parts: list[str], depth: int, is_ascii: bool) -> None:
    text = json.dumps({"text": parts}, ensure_ascii=is_ascii)
    for _ in range(depth):
        text = json.dumps({"inner": text}, ensure_ascii=is_ascii)
    clean = Redactor().text(text)
    again = Redactor()
    assert again.text(clean) == clean
    assert again.counts == {}
    for _ in range(depth):
        clean = json.loads(clean)["inner"]
    found = json.loads(clean)["text"]
    for part, after in zip(parts, found, strict=True):
        assert after == part if part in HARMLESS else all(s not in after for k, s, around in SECRETS if part == around.format(s))


@given(st.lists(texts.map("".join)))
def test_what_holds_a_secret_is_told_fast_that_it_may(several: list[str]) -> None:
    told = Redactor().may_hold(several)
    assert len(told) == len(several)
    assert all(may or Redactor().text(text) == text for may, text in zip(told, several, strict=True))


def test_plain_text_is_told_fast_to_hold_none() -> None:
    plain = ["def add(a, b): return a + b", "the plan has 4 parts", "A-Long-Word " * 9, ""]
    assert Redactor().may_hold(plain) == [False] * 4
    assert Redactor(["plan"]).may_hold(plain) == [True] * 4


def test_patterns_of_ones_own_are_taken_out_too() -> None:
    redactor = Redactor(["Project [A-Z][a-z]+"])
    assert redactor.value({"a": ["Project Falcon", 1], "b": None}) == {"a": ["[redacted:custom]", 1], "b": None}
    assert redactor.counts == {"custom": 1}
    with pytest.raises(UnknownNameError, match="not a regular expression"):
        Redactor(["("])
    with pytest.raises(UnknownNameError, match="matches the empty text"):
        Redactor(["x*"])


def test_identifiers_in_real_traces_survive(shared_traces: Path) -> None:
    """Of uuids and digests none goes; of what goes for its entropy there is less than one a 100,000 characters."""
    names = sorted((shared_traces / "whowhen").rglob("*.json"))[:60] + sorted((shared_traces / "claude-code").rglob("*.jsonl"))
    files = [path.read_text(encoding="utf-8", errors="replace") for path in names]
    redactor = Redactor()
    clean = [redactor.text(text) for text in files]
    named = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?:[0-9a-f]{40}|[0-9a-f]{64})\b")
    assert [named.findall(text) for text in clean] == [named.findall(text) for text in files]
    assert redactor.counts["entropy"] < sum(map(len, files)) / 100_000
    for path, text in zip(names, clean, strict=True):
        if path.suffix == ".json":
            json.loads(text)


def test_an_import_stores_no_secret_and_says_how_many(tmp_path: Path) -> None:
    secret = SECRETS[0][1]
    event = Event(
        event_id="e", kind="act", action="note", agent_id="a", content=f"key {secret}", extra={"raw": json.dumps({"k": secret})}
    )
    trace = Trace(trace_id="counterpoint:t", world="recorded", agents=(Agent(agent_id="a", component="a"),), events=(event,))
    (tmp_path / "t.jsonl").write_bytes(encode(trace) + b"\n")
    workspace = Workspace(tmp_path / "w", create=True)
    report = import_paths(workspace, [tmp_path / "t.jsonl"], redactor=Redactor())
    assert (report.added, report.redacted) == (["counterpoint:t"], {"token": 2})
    snapshot = Snapshot(workspace)
    assert secret.encode() not in encode(snapshot.trace("t")) + snapshot.raw(["counterpoint:t"])[0]["data"]
    assert snapshot.trace("t").events[0].content == "key [redacted:token]"
    assert import_paths(workspace, [tmp_path / "t.jsonl"], redactor=Redactor()).unchanged == ["counterpoint:t"]


def test_a_record_whose_names_are_all_secrets_does_not_come_in(tmp_path: Path) -> None:
    agents = tuple(Agent(agent_id=f"{name}@firm.com", component="c") for name in ("ann", "bob"))
    (tmp_path / "t.jsonl").write_bytes(encode(Trace(trace_id="t", world="recorded", agents=agents)) + b"\n")
    report = import_paths(Workspace(tmp_path / "w", create=True), [tmp_path / "t.jsonl"], redactor=Redactor())
    assert (report.added, report.n_lost) == ([], 1)
