"""Composition-incoherence records: probability quotes of specialists for the outcomes of one partition.

Each record is one trace. That exactly one outcome comes true is implicit in the format, so the relation is derived.
A quote is tied to an outcome only where the question asks for "the probability that <outcome>" in the outcome's own
words; every other question is a proposition of its own (`question_<n>`), and linking it is the work of a later stage.
Hidden here: both record shapes, the harness's placeholders, and which answers the planner knew at which call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.json import decode, encode

from analysis.errors import Problem
from analysis.model import Agent, Claim, Count, Event, Groups, Id, Label, Relation, Task, Trace
from analysis.model import Source as Origin
from analysis.readers.fragment import Assembled, Fragment, Kind, hash_of
from analysis.readers.source import Source

FORMAT = "composition"
VERSION = "1"

_MARKS = {
    "composition-deployed": ("label", "outcomes", "final_probs", "trace"),
    "composition-quotes": ("label", "outcomes", "assigned_specialists", "per_outcome_means", "per_outcome_samples"),
}
KINDS = tuple(Kind(name, f"records with {', '.join(f'`{mark}`' for mark in marks)}") for name, marks in _MARKS.items())

_DELEGATE, _SUBMIT = "delegate_to_specialist", "submit_final_partition_quote"
_PLANNER = "planner"
_UNNAMED = "unnamed"  # the component of an answer whose call does not say who was asked

_Outcomes = Annotated[list[str], Meta(min_length=1, max_length=1000)]  # the names of 1,000 fit into a formula


class _Call(msgspec.Struct):
    turn: Count  # one model call of the planner; the tool calls of a turn are issued together
    tool: str
    args: dict[str, Any] = {}
    result: Any = None
    error: str | None = None


class _Answer(msgspec.Struct):
    probability: float | None = None
    n_samples: Count | None = None


class _Deployed(msgspec.Struct):
    label: str
    outcomes: _Outcomes
    final_probs: list[float | None]
    trace: Annotated[list[_Call], Meta(max_length=2000)]  # each names the answers before it: the links grow as the square
    condition: str | None = None
    planner: str | None = None
    eps_star: float | None = None

    def __post_init__(self) -> None:
        _check_lengths(self, "final_probs")


class _Quotes(msgspec.Struct):
    label: str
    outcomes: _Outcomes
    assigned_specialists: list[Id]
    per_outcome_means: list[float | None]
    per_outcome_samples: list[list[float | None]]
    eps_star: float | None = None

    def __post_init__(self) -> None:
        _check_lengths(self, "assigned_specialists", "per_outcome_means", "per_outcome_samples")


class _Parts(NamedTuple):
    """What the two shapes state differently. `questions` are the texts of the propositions that are no outcomes."""

    record: _Deployed | _Quotes
    agents: list[Agent]
    events: list[Event]
    claims: list[Claim]
    questions: dict[str, str]
    condition: str | None = None
    problems: Sequence[Problem] = ()


def detect(source: Source) -> str | None:
    """Recognise either kind by the fields of the first record."""
    return _kind(source.first)


def read(source: Source, kind: str) -> Iterator[Fragment | Problem]:
    """Yield one fragment a record; a record that makes no trace is a problem that names the field."""
    for row in source.rows():
        yield _fragment(row.value, kind, file=source.file, record=row.place)


def assemble(trace_id: str, fragments: Sequence[Fragment]) -> Assembled:
    """Return the trace of one record; copies of it elsewhere say the same."""
    part = min(fragments, key=lambda copy: (copy.file, copy.record))
    value = decode(part.data)
    is_deployed = _kind(value) == "composition-deployed"
    parts = _deployed(msgspec.convert(value, _Deployed)) if is_deployed else _quotes(msgspec.convert(value, _Quotes))
    record = parts.record
    outcomes = _propositions(record.outcomes)
    formula = f"exactly_one({', '.join(outcomes)})"
    rest = {name: member for name, member in value.items() if name not in record.__struct_fields__}
    trace = Trace(
        trace_id=trace_id,
        world="recorded",
        source=Origin(format=FORMAT, file=part.file, record=part.record, reader_version=VERSION),
        task=Task(task_id=record.label, text="\n- ".join([record.label, *record.outcomes])),
        agents=tuple(parts.agents),
        events=tuple(msgspec.structs.replace(event, order=n) for n, event in enumerate(parts.events)),
        claims=tuple(parts.claims),
        relations=(Relation(relation_id="partition", formula=formula, basis="derived", rule="partition-over-outcomes"),),
        labels=_residual(parts),
        groups=Groups(task=record.label, condition=parts.condition),
        extra={**rest, "propositions": {**outcomes, **parts.questions}},
    )
    found = [*parts.problems, *_claim_problems(parts.claims)]
    place = {"file": part.file, "trace_id": trace_id}
    return Assembled(trace, [msgspec.structs.replace(p, record=f"{part.record}, {p.record}", **place) for p in found])


def _kind(value: Any) -> str | None:
    fields = value.keys() if isinstance(value, dict) else set()
    return next((kind for kind, marks in _MARKS.items() if fields >= set(marks)), None)


def _check_lengths(record: _Deployed | _Quotes, *fields: str) -> None:
    for field in fields:
        if (n := len(getattr(record, field))) != len(record.outcomes):
            raise ValueError(f"`{field}` has length {n}, `outcomes` {len(record.outcomes)}")


def _fragment(value: Any, kind: str, *, file: str, record: str) -> Fragment | Problem:
    """Return the record under the hash of its content. It is assembled here once, so that it can be ever after."""
    if _kind(value) is None:
        seen = f"keys {', '.join(sorted(value)[:8])}" if isinstance(value, dict) else type(value).__name__
        return Problem(code="wrong-shape", file=file, record=record, got=seen, expected=", ".join(_MARKS[kind]))
    try:
        data = encode(value, order="deterministic")
        digest = hash_of(data)
        part = Fragment(trace_id=f"{FORMAT}:{digest[:12]}", part="record", data=data, digest=digest, file=file, record=record)
        assemble(part.trace_id, [part])
    except RecursionError:
        return Problem(code="too-deep", file=file, record=record)
    except ValueError as error:
        return Problem(code="wrong-shape", file=file, record=record, got=str(error))
    return part


def _propositions(outcomes: list[str]) -> dict[str, str]:
    return {f"outcome_{n}": text for n, text in enumerate(outcomes, 1)}


def _residual(parts: _Parts) -> tuple[Label, ...]:
    if (value := parts.record.eps_star) is None:
        return ()
    n = sum(claim.is_placeholder and claim.level != "component" for claim in parts.claims)
    field = "final_probs" if isinstance(parts.record, _Deployed) else "per_outcome_means"
    text = f"published residual of `{field}`" + (f", placeholders included: {n}" if n else "")
    return (Label(annotator="composition-incoherence", name="residual", value=value, text=text),)


def _claim_problems(claims: list[Claim]) -> Iterator[Problem]:
    asked = [c for c in claims if c.is_placeholder and c.n_samples == 0]
    filled_in = [c for c in claims if c.is_placeholder and c.n_samples is None]
    outside = [c for c in claims if c.is_out_of_range]
    rows = ("sentinel", " from 0 samples", asked), ("sentinel", ", never submitted", filled_in), ("out-of-range", "", outside)
    for code, why, found in rows:
        if found:
            yield Problem(code=code, record=found[0].claim_id, got=f"{found[0].p:g}{why}", n=len(found))


def _deployed(record: _Deployed) -> _Parts:
    """Read a planner that asks specialists, then submits. Its name is a model, which a specialist may bear too: no role."""
    submit = _submission(record)
    quotes, questions = _specialist_claims(record)
    names = dict.fromkeys([_PLANNER, *(name for call in record.trace if (name := _specialist(call)) is not None)])
    condition = filter(None, (record.condition, record.planner and f"planner={record.planner}"))
    return _Parts(
        record=record,
        agents=[Agent(agent_id=name, component=name, model=record.planner if name == _PLANNER else None) for name in names],
        events=list(_events(record.trace, submit)),
        claims=[*quotes, *_final_claims(record, submit)],
        questions=questions,
        condition=", ".join(condition) or None,
        problems=list(_call_problems(record.trace)),
    )


def _specialist(call: _Call) -> str | None:
    name = call.args.get("specialist_id") if call.tool == _DELEGATE else None
    return name if isinstance(name, str) and 0 < len(name) <= 512 else None


def _question(call: _Call) -> str | None:
    text = call.args.get("question_text")
    return text if isinstance(text, str) else None


def _answer(call: _Call) -> _Answer | None:
    """Return the numbers that a delegation brought back; None without a result, or where it is of another shape."""
    try:
        return msgspec.convert(call.result, _Answer) if call.tool == _DELEGATE else None
    except msgspec.ValidationError:
        return None


def _submission(record: _Deployed) -> int | None:
    """Return the place of the call that submitted `final_probs`, the last one where there are several."""
    calls = [n for n, call in enumerate(record.trace) if call.tool == _SUBMIT]
    return next((n for n in reversed(calls) if record.trace[n].args.get("probabilities") == record.final_probs), None)


def _final_claims(record: _Deployed, submit: int | None) -> list[Claim]:
    """Return the final quotes. 1/n for each of n outcomes that nobody submitted is what the harness fills in."""
    outcomes = _propositions(record.outcomes)
    is_filled_in = submit is None and set(record.final_probs) == {1 / len(outcomes)}
    event_id, turn = (None, None) if submit is None else (f"trace[{submit}]", record.trace[submit].turn)
    return [
        Claim(
            claim_id=f"final_probs[{n}]",
            component=_PLANNER,
            proposition=name,
            p=p,
            event_id=event_id,
            turn=turn,
            level="final",
            is_placeholder=is_filled_in,
        )
        for n, (name, p) in enumerate(zip(outcomes, record.final_probs, strict=True))
        if p is not None
    ]


def _specialist_claims(record: _Deployed) -> tuple[list[Claim], dict[str, str]]:
    """Return the specialists' quotes, and the texts of the questions that are propositions of their own.

    Questions in the same words are one proposition, whoever is asked.
    """
    outcomes = {name: _normalised(text) for name, text in _propositions(record.outcomes).items()}
    claims, names, texts = [], dict[str, str](), dict[str, str]()
    for n, call in enumerate(record.trace):
        if (answer := _answer(call)) is None or answer.probability is None:
            continue
        words = _normalised(_question(call) or "")
        name = outcome = _outcome_asked(words, outcomes)
        if name is None:
            name = names.setdefault(words or f"trace[{n}]", f"question_{len(names) + 1}")
            texts.setdefault(name, _question(call) or "")
        claims.append(
            Claim(
                claim_id=f"trace[{n}].quote",
                component=_specialist(call) or _UNNAMED,
                proposition=name,
                p=answer.probability,
                event_id=f"trace[{n}].result",
                turn=call.turn,
                n_samples=answer.n_samples,
                is_placeholder=answer.n_samples == 0,
                basis="derived" if outcome else "explicit",
                rule="outcome-asked-verbatim" if outcome else None,
            )
        )
    return claims, texts


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())


def _outcome_asked(question: str, outcomes: dict[str, str]) -> str | None:
    """Return the outcome whose probability is asked for in its own words, where no other one is named.

    To contain the words is not enough: the second question below is about everyone else.

    >>> _outcome_asked("what is the probability that c wins the cup?", {"outcome_3": "c wins the cup"})
    'outcome_3'
    >>> _outcome_asked("what is the probability that one other than a or c wins the cup?", {"outcome_3": "c wins the cup"})
    """
    named = [name for name, text in outcomes.items() if text and text in question]
    if len(named) != 1:
        return None
    asked = rf"(?:^|\bprobability (?:that )?){re.escape(outcomes[named[0]])}(?= ?[?.,;:(]|$)"
    return named[0] if re.search(asked, question) else None


def _events(calls: list[_Call], submit: int | None) -> Iterator[Event]:
    """Yield the calls and answers in file order. What causes a call are the answers of the latest earlier turn."""
    heard: dict[int, list[str]] = {}
    spawned: set[str] = set()
    for n, call in enumerate(calls):
        earlier = [turn for turn in sorted(heard) if turn < call.turn]
        known = tuple(heard[earlier[-1]]) if earlier else ()
        given: dict[str, Any] = {"agent_id": _PLANNER, "turn": call.turn, "parents": known}
        if (specialist := _specialist(call)) is not None and specialist not in spawned:
            spawned.add(specialist)
            yield _derived(f"trace[{n}].spawn", "spawn", "first-delegation", targets=(specialist,), **given)
            given["parents"] = (*known, f"trace[{n}].spawn")
        yield _call_event(n, call, given, merged=(answer for turn in earlier for answer in heard[turn]))
        if call.tool == _DELEGATE and call.result is not None:
            heard.setdefault(call.turn, []).append(f"trace[{n}].result")
            yield _result_event(n, call)
    if calls:  # why a planner ended without submitting is not recorded
        parents = heard.get(max(heard, default=-1), []) if submit is None else [f"trace[{submit}]"]
        rule, condition = ("last-call", "nothing submitted") if submit is None else ("submit", "submitted")
        end = {"turn": calls[-1].turn, "parents": tuple(parents), "condition": condition}
        yield _derived("stop", "stop", rule, agent_id=_PLANNER, **end)


def _derived(event_id: str, kind: Literal["spawn", "delegate", "communicate", "stop"], rule: str, **fields: Any) -> Event:
    return Event(event_id=event_id, kind=kind, basis="derived", rule=rule, **fields)


def _call_event(n: int, call: _Call, given: dict[str, Any], *, merged: Iterable[str]) -> Event:
    """Return a call as a decision of the planner; a tool that the format does not know gives an opaque event."""
    given = {**given, "event_id": f"trace[{n}]", "raw_id": f"trace[{n}]", "raw_type": call.tool, "error": call.error}
    if call.tool == _SUBMIT:
        content = encode(call.args.get("probabilities")).decode()
        return Event(kind="aggregate", merge_kind="partition-quote", merge_points=tuple(merged), content=content, **given)
    if call.tool != _DELEGATE:
        return Event(content=encode(call.args).decode(), **given)
    specialist, question = _specialist(call), _question(call)
    is_told = specialist is not None and question is not None and len(call.args) == 2
    targets = () if specialist is None else (specialist,)
    return Event(kind="delegate", targets=targets, content=question, extra={} if is_told else {"args": call.args}, **given)


def _result_event(n: int, call: _Call) -> Event:
    return Event(
        event_id=f"trace[{n}].result",
        kind="communicate",
        agent_id=_specialist(call),
        targets=(_PLANNER,),
        parents=(f"trace[{n}]",),
        turn=call.turn,
        content=encode(call.result).decode(),
        message_type="quote",
        raw_id=f"trace[{n}].result",
    )


def _call_problems(calls: list[_Call]) -> Iterator[Problem]:
    for n, call in enumerate(calls):
        if call.tool == _DELEGATE and _specialist(call) is None:
            yield Problem(code="no-target", record=f"trace[{n}]", got=", ".join(sorted(call.args)), expected="specialist_id")
        if call.tool == _DELEGATE and call.result is not None and _answer(call) is None:
            yield Problem(code="bad-value", record=f"trace[{n}]", got=str(call.result), expected="probability, n_samples")


def _quotes(record: _Quotes) -> _Parts:
    """Read one specialist an outcome, with nobody above them.

    The record states no events: an assignment is read as a delegation and samples as the answer to it, both derived.
    The level is `pre-aggregation`: the quotes stand side by side as they were given, and nothing merged them.
    """
    assigned, means = record.assigned_specialists, record.per_outcome_means
    samples = [[p for p in given if p is not None] for given in record.per_outcome_samples]
    return _Parts(
        record=record,
        agents=[Agent(agent_id=name, component=name) for name in dict.fromkeys(assigned)],
        events=[
            event
            for n, (name, outcome, given) in enumerate(zip(assigned, record.outcomes, samples, strict=True))
            for event in _assignment_events(n, name, outcome=outcome, samples=given)
        ],
        claims=[
            Claim(
                claim_id=f"per_outcome_means[{n}]",
                component=assigned[n],
                proposition=name,
                p=p,
                level="pre-aggregation",
                event_id=f"per_outcome_samples[{n}]" if samples[n] else None,
                n_samples=len(samples[n]),
                is_placeholder=not samples[n],
            )
            for n, (name, p) in enumerate(zip(_propositions(record.outcomes), means, strict=True))
            if p is not None
        ],
        questions={},
    )


def _assignment_events(n: int, specialist: str, *, outcome: str, samples: list[float]) -> Iterator[Event]:
    asked, answered = f"assigned_specialists[{n}]", f"per_outcome_samples[{n}]"
    yield _derived(asked, "delegate", "assigned-specialist", targets=(specialist,), content=outcome, raw_id=asked)
    if samples:  # without samples the mean is the harness's own 0.5, and the specialist said nothing
        quote = {"parents": (asked,), "content": encode(samples).decode(), "message_type": "quote", "raw_id": answered}
        yield _derived(answered, "communicate", "per-outcome-samples", agent_id=specialist, **quote)
