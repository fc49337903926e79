"""The files of strangers at their worst, made when they are needed, and what an import has to say of each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from analysis import model
from analysis.model import Trace, encode

GOOD = Trace(trace_id="counterpoint:good", world="live", source=model.Source(format="x"))
HEAD: dict[str, Any] = {"format": "counterpoint/1", "world": "live", "source": {"format": "x"}}
#: What a screen, a page, a spreadsheet, a shell or a query might take for more than text.
STRANGE = {
    "ansi": "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "bidi": "user\u202etxt.exe\u2066\u200b\ufeff",
    "controls": "a\0b\x7f\r\nc\td\u0085e\u2028f\u2029g",
    "markdown": "![x](http://127.0.0.1:9/i.png) [l](javascript:alert(1)) :material/bug_report: $x^2$ `c` <br>",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>&amp;</textarea></style>",
    "formula": '=HYPERLINK("http://127.0.0.1:9/","x")',
    "plotly": "<b>%{x}</b> $\\frac{1}{2}$ <a href='x'>y</a>",
    "sql": "'; drop table traces; --",
    "template": "{{7*7}} ${7*7} %s %n {0} <%= 1 %>",
    "path": "../../../../etc/passwd",
    "emoji": "👩‍💻🏳️‍🌈 e\u0301 \U0010ffff ﷽",
    "long-word": "x" * 5000,
}


class Case(NamedTuple):
    """A hostile file: its name, its bytes, how many traces it gives, its problems, a line about it, and the exit code."""

    file: str
    data: Callable[[], bytes]
    n_traces: int
    counts: dict[str, int]
    line: str
    code: int
    options: tuple[str, ...] = ()


def native(trace_id: str, **fields: Any) -> bytes:
    return json.dumps(HEAD | {"trace_id": trace_id} | fields).encode()


def lines(*records: bytes) -> bytes:
    return b"\n".join(records) + b"\n"


def everywhere(name: str, text: str) -> Trace:
    """A trace with the text in every place that takes one."""
    ident = text[:400] or "-"
    other = ident + "2"
    extra = {text: [text, {text: text}]}
    basis: dict[str, Any] = {"basis": "derived", "rule": text}
    shared: dict[str, Any] = {
        "name": text,
        "agent_id": ident,
        "targets": (other,),
        "parents": (text,),
        "content": text,
        "messages": ({"role": text, "content": text},),
        "error": text,
        "raw_id": text,
        "raw_type": text,
        "extra": extra,
        **basis,
    }
    payloads: list[dict[str, Any]] = [
        {"kind": "spawn", "task_split": text, "assignment": {ident: text}},
        {
            "kind": "delegate",
            "context_package": model.ContextPackage(nl=text, scenarios=(text,), signatures=(text,), domain_model=text),
        },
        {"kind": "communicate", "message_type": text},
        {"kind": "aggregate", "strategy": text, "merge_kind": text, "merge_points": (text,)},
        {"kind": "stop", "condition": text, "final_state": text},
        {"kind": "act", "action": text},
        {},
    ]
    return Trace(
        trace_id=f"{ident}:{name}",
        world="recorded",
        source=model.Source(format=text, file=text, record=text, reader_version=text),
        task=model.Task(task_id=text, text=text, domain=text, requirements=(text,), reference=text, extra=extra),
        agents=tuple(
            model.Agent(agent_id=i, component=i, parent_id=text, model=text, system_prompt=text, extra=extra)
            for i in (ident, other)
        ),
        events=tuple(model.Event(event_id=f"{n}{ident}", order=n, **shared, **fields) for n, fields in enumerate(payloads)),
        subtasks=(model.Subtask(subtask_id=ident, agent_id=text, text=text, covers=(text,), needs=(text,)),),
        candidates=(model.Candidate(candidate_id=ident, event_id=text, agent_id=text, subtask_id=text, program=text, text=text),),
        claims=(model.Claim(claim_id=ident, component=ident, proposition=ident, p=0.5, event_id=text, span=(0, 1), **basis),),
        relations=(model.Relation(relation_id=ident, formula=ident, **basis),),
        outcome=model.Outcome(passed=True, score=0.5, answer=text, source=text),
        labels=tuple(
            model.Label(annotator=a, name=ident, text=text, category=text, agent_id=text, event_id=text, **basis)
            for a in (ident, other)
        ),
        groups=model.Groups(task=text, condition=text, trial=text),
        baseline_of=text,
        counterfactual=model.Counterfactual(
            parent_trace_id=ident, event_id=ident, operator=ident, parameters=extra, arm=text, seed_block=text
        ),
        extra=extra,
    )


def _extremes() -> bytes:
    """Numbers at the ends of what their fields take."""
    big = 1.7976931348623157e308
    times = [(0.0, -0.0), (-big, big), (big, -big), (5e-324, None), (None, 1e18), (2e9, 1e9)]
    events = [
        {"event_id": str(n), "kind": "act", "agent_id": "a", "order": 2**53 - n, "turn": 2**53, "input_tokens": 2**40}
        | {name: t for name, t in (("t_start_s", start), ("t_end_s", end)) if t is not None}
        for n, (start, end) in enumerate(times)
    ]
    claims = [{"claim_id": str(p), "component": "a", "proposition": "ok", "p": p} for p in (-big, -1e-9, 5e-324, 1.5, big)]
    outcome = {"score": -big, "score_scale": [big, -big], "n_tests_passed": 2**53, "n_tests": 0}
    agents = [{"agent_id": "a", "component": "a"}]
    return native("extremes", clock="unix", events=events, claims=claims, outcome=outcome, agents=agents, extra={"n": 2**200})


def _crowd() -> bytes:
    """More agents and more ties than a picture can hold."""
    agents = [{"agent_id": f"agent {n}", "component": f"agent {n}", "parent_id": f"agent {n // 3}"} for n in range(400)]
    all_ids = [agent["agent_id"] for agent in agents]
    events = [
        {
            "event_id": f"e{n}",
            "kind": "communicate",
            "agent_id": f"agent {n % 400}",
            "targets": all_ids[n % 200 : n % 200 + 100],
            "parents": [f"e{n - 1}", f"e{n + 1}", f"e{n}"],
            "order": n,
        }
        for n in range(600)
    ]
    return native("crowd", agents=agents, events=events)


def _deep(depth: int) -> Any:
    return json.loads("[" * depth + "]" * depth)


_OK = lines(native("1"), native("2"))
_EVENT = {"event_id": "e"}
_HISTORY = [{"content": "x", "role": "human"}, {"content": "y", "role": "Orchestrator (-> W)"}]
_LOST_VALUE = "a value is not what the field takes (got "

CASES: dict[str, Case] = {
    # nothing, or nothing of ours
    "empty": Case("h.jsonl", lambda: b"", 0, {}, "skipped: h.jsonl: the file is empty - check that the export finished", 1),
    "white-space": Case("h.jsonl", lambda: b" \r\n\n\t", 0, {}, "skipped: h.jsonl: the file is empty (got white space)", 1),
    "html": Case("h.json", lambda: b"<!DOCTYPE html><p>504", 0, {}, "skipped: h.json: this is an HTML page, not data", 1),
    "prose": Case(
        "h.json", lambda: b"\x1b[31mhello", 0, {}, r"skipped: h.json: not a JSON file (got \x1b[31mhello, expected { or [)", 1
    ),
    "number": Case("h.json", lambda: b"1e999", 0, {}, "skipped: h.json: not a JSON file (got 1e999", 1),
    "empty-list": Case(
        "h.json", lambda: b"[]", 0, {}, "skipped: h.json: no reader knows this format (got JSON document, first record: list)", 1
    ),
    "empty-object": Case(
        "h.json", lambda: b"{}", 0, {}, "skipped: h.json: no reader knows this format (got JSON document, first record: obj", 1
    ),
    "wrong-object": Case(
        "h.json",
        lambda: b'{"\x1b[31m": 1}',
        0,
        {},
        r"skipped: h.json: no reader knows this format (got JSON document, first record: object with keys \x1b[31m)",
        1,
    ),
    "wrong-list": Case("h.json", lambda: b"[1, null, [2]]", 0, {}, "skipped: h.json: no reader knows this format", 1),
    "gzip-cut": Case(
        "h.jsonl", lambda: b"\x1f\x8b\x08\0rest", 0, {}, "skipped: h.jsonl: the record ends in the middle (got gzip: ", 1
    ),
    "gzip-twice": Case(
        "h.gz",
        lambda: gzip.compress(gzip.compress(_OK)),
        0,
        {},
        "skipped: h.gz: no reader knows this format (got a gzip file inside a gzip file)",
        1,
    ),
    "gzip-bomb": Case(
        "h.jsonl.gz",
        lambda: gzip.compress(b" " * (80 << 20), 1),
        0,
        {},
        "skipped: h.jsonl.gz: the file unpacks to far more than an export would (got more than",
        1,
    ),
    "gzip-good": Case("h.jsonl.gz", lambda: gzip.compress(_OK), 2, {}, "", 0),
    "zip": Case(
        "h.jsonl", lambda: b"PK\x03\x04rest", 0, {}, "skipped: h.jsonl: no reader knows this format (got a zip archive)", 1
    ),
    "sqlite": Case(
        "h.db", lambda: b"SQLite format 3\0rest", 0, {}, "skipped: h.db: no reader knows this format (got an SQLite data", 1
    ),
    "png": Case("h.png", lambda: b"\x89PNG\r\n\x1a\n", 0, {}, "skipped: h.png: no reader knows this format (got a picture)", 1),
    "nuls": Case("h.jsonl", lambda: b"\0" * 70_000, 0, {}, "skipped: h.jsonl: the file is not text (got NUL bytes)", 1),
    # the wrong shape
    "whowhen-wrong": Case(
        "h.json",
        lambda: json.dumps({"question_ID": "q", "is_correct": 1, "history": [3]}).encode(),
        0,
        {"wrong-shape": 1},
        "lost: h.json:document: the record does not have the shape its format promises",
        1,
    ),
    "annotation-wrong": Case(
        "h.json",
        lambda: json.dumps([{"trajectory_id": "t", "failures": [3]}]).encode(),
        0,
        {"wrong-shape": 1},
        "lost: h.json:record 0: the record does not have the shape",
        1,
    ),
    "native-wrong": Case(
        "h.jsonl",
        lambda: lines(native("1"), native("2", events=3)),
        1,
        {"bad-value": 1},
        f"lost: h.jsonl:line 2: {_LOST_VALUE}",
        1,
    ),
    "other-format-inside": Case(
        "h.jsonl",
        lambda: lines(native("1"), b'{"a": 1}', b"3"),
        1,
        {"mixed-format": 1, "wrong-shape": 1},
        "lost: h.jsonl:line 2: the record is of another format than its file",
        1,
    ),
    # cut, broken
    "cut-lines": Case("h.jsonl", lambda: _OK[:-9], 1, {"truncated": 1}, "lost: h.jsonl:line 2: the record ends in the middle", 1),
    "cut-document": Case(
        "h.json", lambda: json.dumps([HEAD], indent=1).encode()[:-9], 0, {}, "skipped: h.json:document: the record ends in", 1
    ),
    "broken-first-line": Case(
        "h.jsonl", lambda: b'{"format": "coun\n' + _OK, 2, {"truncated": 1}, "lost: h.jsonl:line 1: the record ends", 1
    ),
    "cut-at-the-front": Case(
        "h.jsonl", lambda: b'ld": "live"}\n' + _OK, 2, {"bad-json": 1}, "lost: h.jsonl:line 1: not valid JSON", 1
    ),
    "one-broken-line": Case(
        "h.jsonl", lambda: lines(native("1"), b"{oops}", native("2")), 2, {"bad-json": 1}, "lost: h.jsonl:line 2: not valid", 1
    ),
    # encodings and line ends
    "bom": Case(
        "h.jsonl",
        lambda: b"\xef\xbb\xbf" + _OK,
        2,
        {"encoding": 1},
        "repaired: h.jsonl: the text was not plain UTF-8 (got utf-8-sig",
        0,
    ),
    **{
        f"utf-16-{order}{'-bom' if bom else ''}": Case(
            "h.jsonl",
            lambda order=order, bom=bom: (("\ufeff" if bom else "") + _OK.decode()).encode(f"utf-16-{order}"),
            2,
            {"encoding": 1},
            f"repaired: h.jsonl: the text was not plain UTF-8 (got utf-16{'' if bom else '-' + order}, expected utf-8)",
            0,
        )
        for order in ("le", "be")
        for bom in (True, False)
    },
    "bad-utf-8": Case(
        "h.jsonl",
        lambda: lines(native("1", task={"text": "?"}).replace(b"?", b"\xff\xc0")),
        1,
        {"encoding": 1},
        "repaired: h.jsonl",
        0,
    ),
    "crlf-and-blanks": Case("h.jsonl", lambda: b"\r\n\n" + _OK.replace(b"\n", b"\r\n\r\n \n"), 2, {}, "", 0),
    "nul-padded": Case("h.jsonl", lambda: b"\0" + _OK.replace(b"\n", b"\0\0\n\0"), 2, {}, "", 0),
    "separators-inside": Case(
        "h.jsonl", lambda: lines(json.dumps(HEAD | {"trace_id": "a\u2028b\u0085c"}, ensure_ascii=False).encode()), 1, {}, "", 0
    ),
    "raw-controls": Case(
        "h.jsonl",
        lambda: lines(native("1", task={"text": "?"}).replace(b"?", b"\x1b[1m\0\x0b")),
        1,
        {"control-character": 1},
        "repaired: h.jsonl:document: a control character stood in the text as it is; kept",
        0,
    ),
    "escaped-nul": Case("h.jsonl", lambda: lines(native("a\0b", task={"text": "\0"})), 1, {}, "", 0),
    "lone-surrogates": Case(
        "h.jsonl",
        lambda: lines(native("\ud83d", task={"text": "\udc00", "extra": {"\ud800": 1}}), native("2")),
        2,
        {"surrogate": 1},
        "repaired: h.jsonl:line 1: half a character (lone surrogate) replaced by U+FFFD",
        0,
    ),
    # numbers
    "2^64-kept": Case("h.jsonl", lambda: lines(native("1", extra={"n": 2**64, "m": -(10**300)})), 1, {}, "", 0),
    "2^64-refused": Case(
        "h.jsonl",
        lambda: lines(native("1", events=[_EVENT | {"order": 2**64}]), native("2")),
        1,
        {"bad-value": 1},
        f"lost: h.jsonl:line 1: {_LOST_VALUE}Expected `int` <= 9007199254740992",
        1,
    ),
    "not-a-number": Case(
        "h.jsonl",
        lambda: lines(native("1", outcome={"score": float("nan")}, extra={"a": [float("inf"), float("-inf")]})),
        1,
        {"bad-number": 1},
        "repaired: h.jsonl:document: NaN, infinite or out-of-range number read as missing",
        0,
    ),
    "1e999": Case(
        "h.jsonl",
        lambda: lines(native("1", outcome={"score": 7}).replace(b"7", b"1e999")),
        1,
        {"bad-number": 1},
        "repaired: h.jsonl:document: NaN, inf",
        0,
    ),
    "5000-digits": Case(
        "h.jsonl",
        lambda: lines(native("1", extra={"n": 7}).replace(b"7", b"7" * 5000)),
        1,
        {"bad-number": 1},
        "repaired: h.jsonl:document: NaN, inf",
        0,
    ),
    "extremes": Case(
        "h.jsonl", _extremes, 1, {"out-of-range": 4}, "note: h.jsonl:document: a probability outside [0, 1], kept and flagged", 0
    ),
    # depth and size
    "deep-list": Case(
        "h.json", lambda: b"[" * 100_000 + b"]" * 100_000, 0, {}, "skipped: h.json:document: the record is nested too deeply", 1
    ),
    "deep-object": Case(
        "h.json",
        lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        0,
        {},
        "skipped: h.json:document: the record is nested too",
        1,
    ),
    "deep-line": Case(
        "h.jsonl",
        lambda: lines(native("1"), b"[" * 100_000, native("2")),
        2,
        {"too-deep": 1},
        "lost: h.jsonl:line 2: the record is nested too",
        1,
    ),
    "deep-extra": Case(
        "h.jsonl",
        lambda: lines(native("1", extra={"a": _deep(500)}), native("2")),
        1,
        {"bad-value": 1},
        f"lost: h.jsonl:line 1: {_LOST_VALUE}nested deeper than 100 levels",
        1,
    ),
    "deep-history": Case(
        "h.json",
        lambda: json.dumps({"question_ID": "q", "is_correct": True, "history": _HISTORY, "x": _deep(500)}).encode(),
        0,
        {"too-deep": 1},
        "lost: h.json:document: the record is nested too",
        1,
    ),
    "large-line": Case(
        "h.jsonl",
        lambda: lines(native("1"), native("x", extra={"a": "x" * 2**21}), native("2")),
        2,
        {"too-large": 1},
        "lost: h.jsonl:line 2: the record is larger than the limit (got 2 MiB, expected at most 1 MiB) - raise --max-record-mb",
        1,
        ("--max-record-mb", "1"),
    ),
    "large-document": Case(
        "h.json",
        lambda: b"[" + b" " * 2**21 + native("1") + b"]",
        0,
        {},
        "skipped: h.json:document: the record is larger than the limit (got 2 MiB",
        1,
        ("--max-record-mb", "1"),
    ),
    # the same twice
    "same-record": Case(
        "h.jsonl",
        lambda: lines(native("1"), native("1"), native("1")),
        1,
        {"duplicate-record": 2},
        "note: h.jsonl:line 2: the same record again; counted once - nothing to do [and 1 more like it]",
        0,
    ),
    "same-id": Case(
        "h.jsonl",
        lambda: lines(native("1"), native("1", extra={"a": 1})),
        2,
        {"same-id": 1},
        "repaired: h.jsonl:line 2: same id, different content: kept apart as a second trace (got counterpoint:1)",
        0,
    ),
    "same-key": Case("h.jsonl", lambda: lines(native("1")[:-1] + b', "trace_id": "2"}'), 1, {}, "", 0),
    "same-event": Case(
        "h.jsonl",
        lambda: lines(native("1", events=[_EVENT] * 3)),
        1,
        {"duplicate-event": 2, "opaque-event": 3},
        "repaired: h.jsonl:document: event id occurs twice; the later one was renamed (got e, e)",
        0,
    ),
    # names
    "names": Case(
        "h.jsonl",
        lambda: lines(
            *(
                native(name, agents=[{"agent_id": name, "component": name}])
                for name in ("../../x", "con", "/", ".", "nul.txt", "a" * 480)
            )
        ),
        6,
        {},
        "",
        0,
    ),
    "long-id": Case(
        "h.jsonl",
        lambda: lines(native("x" * 600), native("2")),
        1,
        {"bad-value": 1},
        f"lost: h.jsonl:line 1: {_LOST_VALUE}Expected `str` of length <= 512",
        1,
    ),
    "long-agent": Case(
        "h.jsonl",
        lambda: lines(native("1", events=[_EVENT | {"agent_id": "x" * 600}]), native("2")),
        1,
        {"bad-value": 1},
        f"lost: h.jsonl:line 1: {_LOST_VALUE}Expected `str` of length <= 512",
        1,
    ),
    "long-unknown-value": Case(
        "h.jsonl",
        lambda: lines(native("1", world="x" * 100_000), native("2")),
        1,
        {"bad-value": 1},
        f"lost: h.jsonl:line 1: {_LOST_VALUE}Invalid enum value 'xxx",
        1,
    ),
    "file-name": Case(
        "‮\x1b[31m<b>=1+1.jsonl",
        lambda: lines(native("1"), b"{oops"),
        1,
        {"bad-json": 1},
        r"lost: \u202e\x1b[31m<b>=1+1.jsonl:line 2: not valid JSON",
        1,
    ),
    "long-file-name": Case(
        "x" * 240 + ".jsonl",
        lambda: lines(native("1"), b"{oops"),
        1,
        {"bad-json": 1},
        f"lost: {'x' * 240}.jsonl:line 2: not valid JSON",
        1,
    ),
    # text that is more than text, and more of everything
    **{
        name: Case(
            "h.jsonl",
            lambda name=name, text=text: lines(encode(everywhere(name, text))),
            1,
            {"opaque-event": 1, "orphan": 7},
            "",
            0,
        )
        for name, text in STRANGE.items()
    },
    "crowd": Case("h.jsonl", _crowd, 1, {"orphan": 2}, "note: h.jsonl:document: a parent event is not in the trace", 0),
    "strange-history": Case(
        "h.json",
        lambda: json.dumps(
            [{"content": t, "role": "human" if n == 0 else f"Orchestrator (-> {t[:99]})"} for n, t in enumerate(STRANGE.values())]
        ).encode(),
        1,
        {},
        "",
        0,
    ),
}


def write_case(folder: Path, name: str) -> Path:
    """Write the file of one case, in the folder."""
    case = CASES[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / case.file).write_bytes(case.data())
    return folder / case.file


def write_all(folder: Path) -> None:
    """Write every case in a folder of its own, a good file among them."""
    for name in CASES:
        write_case(folder / name, name)
    (folder / "good.jsonl").write_bytes(lines(encode(GOOD)))
