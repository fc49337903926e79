"""Hypothesis strategies for traces and their records: every type, every optional field, text and numbers at their worst."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from analysis import model
from analysis.model import Trace

#: Text that has broken readers, tables, terminals or pages before.
NASTY = (
    "",
    "\0",
    "a\0b",
    "\ufeff",
    "\u2028",
    "\u202e gnp.exe",
    "e\u0301",
    "😀",
    "👩\u200d💻",
    "\U0010ffff",
    "\r\n",
    "\x1b[31m",
    "\x9b",
    "\x85",
    "'; drop table traces; --",
    '"',
    "$1 ${x}",
    "%s %n",
    "=1+1",
    "<script>alert(1)</script>",
    "![x](http://x)",
    "../../x",
    "con",
    "~2",
    "a~2\n",
    "a~٣",
    "null",
    "NaN",
    "\\ud800",
    "　",
)
_CHARACTERS = st.characters(exclude_categories=["Cs"])

texts = st.sampled_from(NASTY) | st.text(_CHARACTERS, max_size=8)
ids = texts.filter(bool) | st.text(_CHARACTERS, max_size=3).map(lambda text: f"{text:é^400}")
counts = st.integers(0, 20) | st.sampled_from([2**31, 2**53])
tokens = st.integers(0, 5000) | st.just(2**40)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e16])
#: Few agents, so that those that act are declared now and then.
actors = st.sampled_from(["a", "b", "\u202ea", "a" * 512]) | ids
bases = st.sampled_from(["explicit", "derived", "synthetic"])
_wholes = st.integers(-(2**70), 2**70) | st.sampled_from([2**63, 2**64, -(2**63) - 1, 10**300])
json_values = st.recursive(
    st.none() | st.booleans() | _wholes | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
extras = st.dictionaries(texts, json_values, max_size=2)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value, or None."""
    return st.none() | strategy


def tuples(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """None to three values."""
    return st.lists(strategy, max_size=3).map(tuple)


def _several(record: type[Any], key: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """None to three records with different ids."""
    records = st.builds(record, **{key: ids}, **fields)
    return st.lists(records, max_size=3, unique_by=lambda r: getattr(r, key)).map(tuple)


agents = _several(
    model.Agent,
    "agent_id",
    component=ids,
    parent_id=maybe(texts),
    model=maybe(texts),
    system_prompt=maybe(texts),
    extra=extras,
)
tasks = st.builds(
    model.Task,
    task_id=maybe(texts),
    text=maybe(texts),
    domain=maybe(texts),
    requirements=tuples(texts),
    reference=maybe(texts),
    extra=extras,
)
packages = st.builds(
    model.ContextPackage, nl=maybe(texts), scenarios=tuples(texts), signatures=tuples(texts), domain_model=maybe(texts)
)
subtasks = _several(
    model.Subtask,
    "subtask_id",
    agent_id=maybe(texts),
    text=maybe(texts),
    covers=tuples(texts),
    needs=tuples(texts),
    passes_alone=maybe(st.booleans()),
    passes_upstream=maybe(st.booleans()),
)
candidates = _several(
    model.Candidate,
    "candidate_id",
    event_id=maybe(texts),
    agent_id=maybe(texts),
    subtask_id=maybe(texts),
    program=maybe(texts),
    text=maybe(texts),
    n_passed=maybe(counts),
    n_tests=maybe(counts),
)
claims = _several(
    model.Claim,
    "claim_id",
    component=ids,
    proposition=ids,
    p=floats,
    event_id=maybe(texts),
    turn=maybe(counts),
    level=st.sampled_from(["component", "pre-aggregation", "final"]),
    kind=st.sampled_from(["field", "verbalised", "verdict", "frequency", "logprob", "user"]),
    n_samples=maybe(counts),
    is_placeholder=st.booleans(),
    span=maybe(st.tuples(st.integers(), st.integers())),
    basis=bases,
    rule=maybe(texts),
)
relations = _several(model.Relation, "relation_id", formula=ids, basis=bases, rule=maybe(texts))
outcomes = st.builds(
    model.Outcome,
    passed=maybe(st.booleans()),
    score=maybe(floats),
    score_scale=maybe(st.tuples(floats, floats)),
    n_tests_passed=maybe(counts),
    n_tests=maybe(counts),
    answer=maybe(texts),
    source=maybe(texts),
)
labels = tuples(
    st.builds(
        model.Label,
        annotator=ids,
        name=ids,
        value=maybe(floats),
        text=maybe(texts),
        category=maybe(texts),
        agent_id=maybe(texts),
        event_id=maybe(texts),
        step=maybe(counts),
        step_base=st.sampled_from([None, 0, 1]),
        consistency=st.sampled_from([None, "consistent", "one-based", "inconsistent"]),
        is_root_cause=maybe(st.booleans()),
        basis=bases,
        rule=maybe(texts),
    )
)
sources = st.builds(model.Source, format=texts, file=maybe(texts), record=maybe(texts), reader_version=maybe(texts))
groups = st.builds(model.Groups, task=maybe(texts), condition=maybe(texts), trial=maybe(texts))
counterfactuals = st.builds(
    model.Counterfactual,
    parent_trace_id=ids,
    event_id=ids,
    operator=ids,
    parameters=extras,
    arm=maybe(texts),
    seed_block=maybe(texts),
)
_payloads: dict[str | None, dict[str, st.SearchStrategy[Any]]] = {
    None: {},
    "spawn": {"task_split": maybe(texts), "assignment": st.dictionaries(texts, texts, max_size=3)},
    "delegate": {"context_package": maybe(packages)},
    "communicate": {"message_type": maybe(texts)},
    "aggregate": {"strategy": maybe(texts), "merge_kind": maybe(texts), "merge_points": tuples(texts)},
    "stop": {"condition": maybe(texts), "final_state": maybe(texts)},
    "act": {"action": maybe(texts)},
}
_shared: dict[str, st.SearchStrategy[Any]] = {
    "event_id": ids,
    "name": maybe(texts),
    "agent_id": maybe(actors),
    "targets": tuples(actors),
    "parents": tuples(texts),
    "order": counts,
    "turn": maybe(counts),
    "t_start_s": maybe(floats),
    "t_end_s": maybe(floats),
    "input_tokens": maybe(tokens),
    "output_tokens": maybe(tokens),
    "content": maybe(texts),
    "messages": tuples(extras),
    "error": maybe(texts),
    "basis": bases,
    "rule": maybe(texts),
    "raw_id": maybe(texts),
    "raw_type": maybe(texts),
    "extra": extras,
}
_builders = [st.builds(model.Event, kind=st.just(kind), **_shared, **fields) for kind, fields in _payloads.items()]


@st.composite
def _event(draw: st.DrawFn) -> model.Event:
    return draw(draw(st.sampled_from(_builders)))


events = st.lists(_event(), max_size=3, unique_by=lambda event: event.event_id).map(tuple)
_parts: dict[str, st.SearchStrategy[Any]] = {
    "trace_id": ids,
    "world": st.sampled_from(["live", "simulated", "recorded"]),
    "source": sources,
    "task": tasks,
    "agents": agents,
    "events": events,
    "subtasks": subtasks,
    "candidates": candidates,
    "claims": claims,
    "relations": relations,
    "outcome": outcomes,
    "labels": labels,
    "groups": groups,
    "clock": st.sampled_from([None, "unix", "naive", "relative"]),
    "baseline_of": maybe(texts),
    "counterfactual": maybe(counterfactuals),
    "extra": extras,
}


def _whole(parts: dict[str, Any]) -> Trace:
    """Declare every agent that acts, as an import would, and give times a clock."""
    acting = dict.fromkeys(a for e in parts["events"] for a in (e.agent_id, *e.targets) if a)
    declared = {agent.agent_id for agent in parts["agents"]}
    added = tuple(model.Agent(agent_id=a, component=a) for a in acting if a not in declared)
    has_times = any(e.t_start_s is not None or e.t_end_s is not None for e in parts["events"])
    return Trace(**parts | {"agents": parts["agents"] + added, "clock": parts["clock"] or ("unix" if has_times else None)})


#: Whole traces; an import has nothing to add to them.
traces = st.fixed_dictionaries(_parts).map(_whole)
#: One to three traces with different ids of the native format, which an import keeps as they are.
imported_traces = st.lists(
    traces.map(lambda t: msgspec.structs.replace(t, trace_id=f"counterpoint:{t.trace_id}")),
    min_size=1,
    max_size=3,
    unique_by=lambda t: t.trace_id,
)
