"""The records: one trace is one recorded run of a team on a task, and everything known about it.

All records are frozen and typed, and are checked once, where they enter (`decode`, or a constructor
called by a reader). What is not known is absent: no guessed time, no 0 tokens, no 0.5 quote.
Units stand in the names: `n_*` counts, `*_s` seconds, `*_tokens`, `p*` probabilities.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from analysis.errors import TraceError

FORMAT = "counterpoint/1"

Kind = Literal["spawn", "delegate", "communicate", "aggregate", "stop", "act"]
Basis = Literal["explicit", "derived", "synthetic"]
World = Literal["live", "simulated", "recorded"]
Id = Annotated[str, Meta(min_length=1, max_length=512)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Tokens = Annotated[int, Meta(ge=0, le=2**40)]  # so that the sum over the events of a trace fits 64 bits

#: The fields that only events of one kind carry.
PAYLOAD: dict[str, tuple[str, ...]] = {
    "spawn": ("task_split", "assignment"),
    "delegate": ("context_package",),
    "communicate": ("message_type",),
    "aggregate": ("strategy", "merge_kind", "merge_points"),
    "stop": ("condition", "final_state"),
    "act": ("action",),
}
_OWNERS = {field: kind for kind, fields in PAYLOAD.items() for field in fields}
_UNSET: dict[str, Any] = {**dict.fromkeys(_OWNERS), "assignment": {}, "merge_points": ()}
#: kind -> the fields it does not carry: their names, how to read them at once, what they are when they are not set.
_FOREIGN: dict[str | None, tuple[list[str], Any, tuple[Any, ...]]] = {}
for _kind in (*PAYLOAD, None):
    _names = [field for field, owner in _OWNERS.items() if owner != _kind]
    _FOREIGN[_kind] = (_names, attrgetter(*_names), tuple(_UNSET[name] for name in _names))

MAX_DEPTH = 100


def _check_depth(*values: Any) -> None:
    # Without this a value read near the interpreter's recursion limit could not be written again.
    level, todo = 0, [value for value in values if value]
    while todo:
        if (level := level + 1) > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        todo = [
            inner
            for outer in todo
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list | tuple)
        ]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What all records share: frozen, keywords only, defaults left out of the JSON, unknown fields refused.

    They hold plain values only and so no cycles, which the garbage collector need not look for.
    """


class Agent(Record, frozen=True):
    """Who acts in this run (`agent_id`) and the role it plays across runs (`component`)."""

    agent_id: Id
    component: Id
    parent_id: str | None = None  # the agent that spawned it
    model: str | None = None
    system_prompt: str | None = None
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        _check_depth(self.extra)


class Task(Record, frozen=True):
    """What the team was asked to do. `requirements` are the units that subtasks cover."""

    task_id: str | None = None
    text: str | None = None
    domain: str | None = None
    requirements: tuple[str, ...] = ()
    reference: str | None = None  # the expected answer
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        _check_depth(self.extra)


class ContextPackage(Record, frozen=True):
    """What a delegation hands over besides its text."""

    nl: str | None = None
    scenarios: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    domain_model: str | None = None


class Event(Record, frozen=True):
    """A step of the run: one of the five decisions, or `act` (own work). `kind` is None for an opaque event.

    `targets` are whom it concerns: the spawned agents, the one a task is delegated to, the receivers.
    `parents` are the events that caused it; `order` is its place in the run. Times are seconds on the
    trace's `clock`. `rule` names how a derived event was found; `raw_id` and `raw_type` are the source's own.
    """

    event_id: Id
    kind: Kind | None = None
    action: str | None = None  # of `act`: model_call, tool_call, tool_result, return, input, note, ...
    name: str | None = None  # the tool, model or span that acted
    agent_id: Id | None = None
    targets: tuple[Id, ...] = ()
    parents: tuple[str, ...] = ()
    order: Count = 0
    turn: Count | None = None
    t_start_s: float | None = None
    t_end_s: float | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    content: str | None = None
    messages: tuple[dict[str, Any], ...] = ()
    error: str | None = None
    task_split: str | None = None
    assignment: dict[str, str] = {}  # agent_id -> what it is to do
    context_package: ContextPackage | None = None
    message_type: str | None = None
    strategy: str | None = None
    merge_kind: str | None = None
    merge_points: tuple[str, ...] = ()  # the events whose results are merged
    condition: str | None = None
    final_state: str | None = None
    basis: Basis = "explicit"
    rule: str | None = None
    raw_id: str | None = None
    raw_type: str | None = None
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        names, read, unset = _FOREIGN[self.kind]
        if (values := read(self)) != unset:
            field = next(name for name, value, default in zip(names, values, unset, strict=True) if value != default)
            raise ValueError(f"event {self.event_id!r}: `{field}` belongs to {_OWNERS[field]}, not to {self.kind}")
        if self.extra or self.messages:
            _check_depth(self.extra, *self.messages)

    @property
    def payload(self) -> dict[str, Any]:
        """The kind-specific fields that are set, as plain values."""
        fields = PAYLOAD.get(self.kind or "", ())
        return {f: v for f in fields if (v := msgspec.to_builtins(getattr(self, f))) not in (None, (), {})}


class Subtask(Record, frozen=True):
    """A part of the task. `passes_alone`: its tests pass by itself; `passes_upstream`: with its true inputs."""

    subtask_id: Id
    agent_id: str | None = None
    text: str | None = None
    covers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    passes_alone: bool | None = None
    passes_upstream: bool | None = None


class Candidate(Record, frozen=True):
    """A program or text that an agent offered as a solution, and how many of the tests it passed."""

    candidate_id: Id
    event_id: str | None = None
    agent_id: str | None = None
    subtask_id: str | None = None
    program: str | None = None
    text: str | None = None
    n_passed: Count | None = None
    n_tests: Count | None = None


class Claim(Record, frozen=True):
    """A probability statement of a component on a proposition. `p` outside [0, 1] is kept and flagged.

    `span` is where it stands in the event's content (first, past the last character).
    """

    claim_id: Id
    component: Id
    proposition: Id
    p: float
    event_id: str | None = None
    turn: Count | None = None
    level: Literal["component", "pre-aggregation", "final"] = "component"
    kind: Literal["field", "verbalised", "verdict", "frequency", "logprob", "user"] = "field"
    n_samples: Count | None = None
    is_placeholder: bool = False
    span: tuple[int, int] | None = None
    basis: Basis = "explicit"
    rule: str | None = None

    @property
    def is_out_of_range(self) -> bool:
        """True when `p` is no probability."""
        return not 0 <= self.p <= 1


class Relation(Record, frozen=True):
    """A logical tie between propositions, as a formula such as `exactly_one(a, b, c)`."""

    relation_id: Id
    formula: Annotated[str, Meta(min_length=1, max_length=100_000)]
    basis: Basis = "explicit"
    rule: str | None = None


class Outcome(Record, frozen=True):
    """How the run ended, as its source says. `score` lies on `score_scale` (lowest, highest)."""

    passed: bool | None = None
    score: float | None = None
    score_scale: tuple[float, float] | None = None
    n_tests_passed: Count | None = None
    n_tests: Count | None = None
    answer: str | None = None
    source: str | None = None


class Label(Record, frozen=True):
    """What one annotator says of the run: a mistake, a failure, a published number.

    `step` is the annotator's own count and starts at `step_base`; `event_id` is the event it means.
    `consistency` says whether the agent named is the one who acted there.
    """

    annotator: Id
    name: Id
    value: float | None = None
    text: str | None = None
    category: str | None = None
    agent_id: str | None = None
    event_id: str | None = None
    step: Count | None = None
    step_base: Literal[0, 1] | None = None
    consistency: Literal["consistent", "one-based", "inconsistent"] | None = None
    is_root_cause: bool | None = None
    basis: Basis = "explicit"
    rule: str | None = None


class Source(Record, frozen=True):
    """Where a trace comes from: format, file as given, place of the record, version of the reader."""

    format: str
    file: str | None = None
    record: str | None = None
    reader_version: str | None = None


class Groups(Record, frozen=True):
    """What is paired with what: runs of one `task` under one `condition`, numbered by `trial`."""

    task: str | None = None
    condition: str | None = None
    trial: str | None = None


class Counterfactual(Record, frozen=True):
    """What was changed to make this trace out of another one."""

    parent_trace_id: Id
    event_id: Id
    operator: Id
    parameters: dict[str, Any] = {}
    arm: str | None = None
    seed_block: str | None = None

    def __post_init__(self) -> None:
        _check_depth(self.parameters)


_NO_TASK, _NO_OUTCOME, _NO_GROUPS = Task(), Outcome(), Groups()


class Trace(Record, frozen=True, tag_field="format", tag=FORMAT):
    """One recorded run of a team on a task.

    `clock` says what event times count from: `unix` (seconds since 1970 UTC), `naive` (the same, zone
    unstated), `relative` (seconds since the run began); None when no event has a time.
    """

    trace_id: Id
    world: World
    source: Source = Source(format="counterpoint")
    task: Task = _NO_TASK
    agents: tuple[Agent, ...] = ()
    events: tuple[Event, ...] = ()
    subtasks: tuple[Subtask, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    claims: tuple[Claim, ...] = ()
    relations: tuple[Relation, ...] = ()
    outcome: Outcome = _NO_OUTCOME
    labels: tuple[Label, ...] = ()
    groups: Groups = _NO_GROUPS
    clock: Literal["unix", "naive", "relative"] | None = None
    baseline_of: str | None = None
    counterfactual: Counterfactual | None = None
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        for name, ids in (
            ("agent", [a.agent_id for a in self.agents]),
            ("event", [e.event_id for e in self.events]),
            ("subtask", [s.subtask_id for s in self.subtasks]),
            ("candidate", [c.candidate_id for c in self.candidates]),
            ("claim", [c.claim_id for c in self.claims]),
            ("relation", [r.relation_id for r in self.relations]),
        ):
            if len(set(ids)) < len(ids):
                raise ValueError(f"{name} id {Counter(ids).most_common(1)[0][0]!r} occurs twice")
        if self.clock is None and any(e.t_start_s is not None or e.t_end_s is not None for e in self.events):
            raise ValueError("events have times but the trace has no `clock` (unix, naive or relative)")
        _check_depth(self.extra)
        # Equal traces must encode alike, and msgspec leaves out a default only if it is the same object.
        for name, default in (("task", _NO_TASK), ("outcome", _NO_OUTCOME), ("groups", _NO_GROUPS)):
            if getattr(self, name) == default:
                msgspec.structs.force_setattr(self, name, default)


_decoder = msgspec.json.Decoder(Trace)


def decode(line: bytes) -> Trace:
    """Return the trace that one line of the native format states.

    Raises
    ------
    TraceError
        If the line is not JSON or breaks a rule of the records; the text names the field.

    Examples
    --------
    >>> t = decode(b'{"trace_id": "counterpoint:a", "world": "recorded", "source": {"format": "counterpoint"}}')
    >>> encode(t).startswith(b'{"format":"counterpoint/1","trace_id":"counterpoint:a"')
    True
    >>> decode(encode(t)) == t
    True
    """
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TraceError("trace", str(error), hint="see the native format in README.md") from None


def encode(trace: Trace) -> bytes:
    """Return one line of the native format, without the line end; `decode` gives the same trace back."""
    return msgspec.json.encode(trace)


def digest(trace: Trace) -> str:
    """Return the hash of the trace's content, with the algorithm in front: `blake2b:<32 hex digits>`.

    Equal traces have equal digests. The id is no part of it: a run that is kept apart as `<id>~2` is still the run
    that its file states.
    """
    head = len(f'{{"format":"{FORMAT}","trace_id":') + len(msgspec.json.encode(trace.trace_id))
    data = msgspec.json.encode(trace, order="deterministic")
    return "blake2b:" + hashlib.blake2b(data[head:], digest_size=16).hexdigest()
