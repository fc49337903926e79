"""Hypothesis strategies for traces and their records: every type, every optional field, text and numbers at their worst."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from analysis import model
from analysis.model import Trace

#: Text that has broken readers, tables, terminals or pages before.
NASTY = (
    "", "\0", "a\0b", "\ufeff", "\u2028", "\u202e gnp.exe", "e\u0301", "😀", "👩\u200d💻", "\U0010ffff", "\r\n", "\x1b[31m", "\x9b", "\x85",
    "'; drop table traces; --", '"', "$1 ${x}", "%s %n", "=1+1", "<script>alert(1)</script>", "![x](http://x)", "../../x", "con", "~2",
    "a~2\n", "a~٣", "null", "NaN", "\\ud800", "　",
)  # fmt: skip
_CHARACTERS = st.characters(exclude_categories=["Cs"])

texts = st.sampled_from(NASTY) | st.text(_CHARACTERS, max_size=20)
ids = texts.filter(bool) | st.text(_CHARACTERS, min_size=200, max_size=220)
counts = st.integers(0, 20) | st.sampled_from([2**31, 2**53])
tokens = st.integers(0, 5000) | st.just(2**40)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e16])
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
    model.Agent, "agent_id",
    component=ids, parent_id=maybe(texts), model=maybe(texts), system_prompt=maybe(texts), extra=extras,
)  # fmt: skip
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
    model.Subtask, "subtask_id",
    agent_id=maybe(texts), text=maybe(texts), covers=tuples(texts), needs=tuples(texts),
    passes_alone=maybe(st.booleans()), passes_upstream=maybe(st.booleans()),
)  # fmt: skip
candidates = _several(
    model.Candidate, "candidate_id",
    event_id=maybe(texts), agent_id=maybe(texts), subtask_id=maybe(texts), program=maybe(texts), text=maybe(texts),
    n_passed=maybe(counts), n_tests=maybe(counts),
)  # fmt: skip
claims = _several(
    model.Claim, "claim_id",
    component=ids, proposition=ids, p=floats, event_id=maybe(texts), turn=maybe(counts),
    level=st.sampled_from(["component", "pre-aggregation", "final"]),
    kind=st.sampled_from(["field", "verbalised", "verdict", "frequency", "logprob", "user"]),
    n_samples=maybe(counts), is_placeholder=st.booleans(), span=maybe(st.tuples(st.integers(), st.integers())), basis=bases, rule=maybe(texts),
)  # fmt: skip
relations = _several(model.Relation, "relation_id", formula=ids, basis=bases, rule=maybe(texts))
outcomes = st.builds(
    model.Outcome,
    passed=maybe(st.booleans()), score=maybe(floats), score_scale=maybe(st.tuples(floats, floats)),
    n_tests_passed=maybe(counts), n_tests=maybe(counts), answer=maybe(texts), source=maybe(texts),
)  # fmt: skip
labels = tuples(
    st.builds(
        model.Label,
        annotator=ids, name=ids, value=maybe(floats), text=maybe(texts), category=maybe(texts), agent_id=maybe(texts), event_id=maybe(texts),
        step=maybe(counts), step_base=st.sampled_from([None, 0, 1]),
        consistency=st.sampled_from([None, "consistent", "one-based", "inconsistent"]),
        is_root_cause=maybe(st.booleans()), basis=bases, rule=maybe(texts),
    )  # fmt: skip
)
sources = st.builds(model.Source, format=texts, file=maybe(texts), record=maybe(texts), reader_version=maybe(texts))
groups = st.builds(model.Groups, task=maybe(texts), condition=maybe(texts), trial=maybe(texts))
counterfactuals = st.builds(
    model.Counterfactual,
    parent_trace_id=ids, event_id=ids, operator=ids, parameters=extras, arm=maybe(texts), seed_block=maybe(texts),
)  # fmt: skip
_payloads: dict[str | None, dict[str, st.SearchStrategy[Any]]] = {
    None: {},
    "spawn": {"task_split": maybe(texts), "assignment": st.dictionaries(texts, texts, max_size=3)},
    "delegate": {"context_package": maybe(packages)},
    "communicate": {"message_type": maybe(texts)},
    "aggregate": {"strategy": maybe(texts), "merge_kind": maybe(texts), "merge_points": tuples(texts)},
    "stop": {"condition": maybe(texts), "final_state": maybe(texts)},
    "act": {"action": maybe(texts)},
}


def _events(acting: list[str], has_clock: bool) -> st.SearchStrategy[tuple[model.Event, ...]]:
    """Events of the agents that are declared; with times where the trace has a clock."""
    agent = st.sampled_from(acting) if acting else st.nothing()
    shared: dict[str, st.SearchStrategy[Any]] = {
        "event_id": ids, "name": maybe(texts), "agent_id": maybe(agent), "targets": tuples(agent), "parents": tuples(texts),
        "order": counts, "turn": maybe(counts), "input_tokens": maybe(tokens), "output_tokens": maybe(tokens),
        "content": maybe(texts), "messages": tuples(extras), "error": maybe(texts),
        "basis": bases, "rule": maybe(texts), "raw_id": maybe(texts), "raw_type": maybe(texts), "extra": extras,
    }  # fmt: skip
    if has_clock:
        shared |= {"t_start_s": maybe(floats), "t_end_s": maybe(floats)}
    one = st.one_of([st.builds(model.Event, kind=st.just(kind), **shared, **fields) for kind, fields in _payloads.items()])
    return st.lists(one, max_size=4, unique_by=lambda event: event.event_id).map(tuple)


@st.composite
def traces(draw: st.DrawFn, trace_ids: st.SearchStrategy[str] = ids) -> Trace:
    """A whole trace whose acting agents are all declared, so that an import has nothing to add to it."""
    declared = draw(agents)
    clock = draw(st.sampled_from([None, "unix", "naive", "relative"]))
    parts: dict[str, st.SearchStrategy[Any]] = {
        "trace_id": trace_ids, "world": st.sampled_from(["live", "simulated", "recorded"]), "source": sources, "task": tasks,
        "events": _events([a.agent_id for a in declared], clock is not None), "subtasks": subtasks, "candidates": candidates,
        "claims": claims, "relations": relations, "outcome": outcomes, "labels": labels, "groups": groups, "baseline_of": maybe(texts),
        "counterfactual": maybe(counterfactuals), "extra": extras,
    }  # fmt: skip
    return Trace(agents=declared, clock=clock, **{name: draw(strategy) for name, strategy in parts.items()})


def imported_traces() -> st.SearchStrategy[list[Trace]]:
    """One to four traces with different ids of the native format, which an import keeps as they are."""
    full = ids.map(lambda text: f"counterpoint:{text}")
    return st.lists(traces(full), min_size=1, max_size=4, unique_by=lambda trace: trace.trace_id)
