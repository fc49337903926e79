"""MARBLE (MultiAgentBench) result records: one run of a team, one trace, whatever its dialect and domain.

Decides what identifies a task and a condition, what of a record is its outcome, and what only the name of its file says.
The topology in `groups` is the file name's where it names one: files of star, chain and tree runs say `coordination_mode:
graph` inside. Both are kept, and a difference is a problem row. -1 means "not scored" and is no score anywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec.json import decode, encode

from analysis.errors import Problem
from analysis.model import Agent, Event, Groups, Label, Outcome, Task, Trace
from analysis.model import Source as Origin
from analysis.readers import marble_dialects as dialects
from analysis.readers.fragment import Assembled, Fragment, Kind, hash_of
from analysis.readers.marble_dialects import PLANNER, Iteration
from analysis.readers.source import Row, Source

FORMAT = "marble"
VERSION = "1"

_MARKS = ("task", "coordination_mode", "iterations")
KINDS = (Kind("marble", "records with `task` as text, `coordination_mode` and a list `iterations`"),)

_EVALUATOR = "marble-evaluator"
_TRIAL = ", trial "
_SCORES = ("planning_scores", "communication_scores", "task_evaluation", "code_quality")
_CODING = ("instruction_following", "executability", "consistency", "quality")
_RESEARCH = ("innovation", "safety", "feasibility")
_WORD = re.compile(r"\w+")
# The text ends with its decision, after having weighed every cause by name; 29 of 30 name exactly the three they may.
_DECISION = re.compile(r"most likely|final answer|top three", re.IGNORECASE)

_MODELS = "gpt|llama|qwen|claude|gemini|mistral|mixtral|deepseek"
_SUFFIXES = r"\d{1,4}b|mini|nano|turbo|instruct|chat|pro|flash|preview"
_VERSION = rf"\d{{1,2}}(?:\.\d{{1,2}})?[a-z]?(?:[-_](?:{_SUFFIXES})(?![a-z0-9]))*"
_NAMED = {
    "domain": "bargaining|coding|database|minecraft|research|werewolf",
    "topology": "chain|graph|star|tree",
    "model": rf"(?:{_MODELS})[-_]?{_VERSION}|\d\.\d[-_]\d{{1,4}}b",
    "method": "cot|react|reflexion",
}
_NAME_PATTERNS = {field: re.compile(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])", re.IGNORECASE) for field, words in _NAMED.items()}
_LIMIT = re.compile(r"[-_](\d{1,4})$")
_PROFILE = re.compile(r"^agent_id: ([^,\n]{1,512}), profile: ", re.MULTILINE)


class _Record(msgspec.Struct):
    task: str
    iterations: list[Iteration]
    coordination_mode: str | None = None
    planning_scores: list[float | None] = []
    communication_scores: list[float | None] = []
    task_evaluation: Any = None
    code_quality: Any = None
    agent_profiles: Any = None
    relationship: Any = None
    yaml_file: str | None = None


_Parts = dict[str, float | None]
#: Fields that have a place in the records of a trace.
_PLACED = {"task", "iterations", "planning_scores", "communication_scores", "yaml_file"}


class _Predicted(msgspec.Struct, forbid_unknown_fields=True):
    root_cause: list[str]
    predicted: str


class _Judged(msgspec.Struct, frozen=True):
    """What the scores of a record say; `field` is where they stand, and which fields it has tells the domain."""

    field: str = ""
    domain: str | None = None
    outcome: Outcome = Outcome()
    parts: dict[str, float | None] = {}
    causes: tuple[str, ...] = ()


def detect(source: Source) -> str | None:
    """Recognise a result record by its task, its mode and its iterations."""
    return FORMAT if _is_record(source.first) else None


def read(source: Source, kind: str) -> Iterator[Fragment | Problem]:
    """Yield one fragment a record; what comes again, or makes no trace, is a problem."""
    seen: set[str] = set()
    runs: Counter[str | None] = Counter()
    for row in source.rows():
        made = _made(row, source.file)
        if isinstance(made, Problem):
            yield made
            continue
        part, task_id = made
        if part.trace_id in seen:
            yield Problem(code="duplicate-record", file=source.file, record=row.place, trace_id=part.trace_id)
            continue
        seen.add(part.trace_id)
        runs[task_id] += 1
        yield part if runs[task_id] == 1 else msgspec.structs.replace(part, record=f"{row.place}{_TRIAL}{runs[task_id]}")


def assemble(trace_id: str, fragments: Sequence[Fragment]) -> Assembled:
    """Return the trace of one record.

    A fragment holds the record and nothing else, and its id is the hash of that: a copy under another path is the same
    fragment, so it adds nothing and forks nothing. What only the name says, and which of several runs of a task this is,
    is taken from where the fragment was found; of copies in several places the first in alphabetical order counts.
    """
    part = min(fragments, key=lambda copy: (copy.file, copy.record))
    value: dict[str, Any] = decode(part.data)
    scored = value | {field: _without_sentinels(value[field]) for field in _SCORES if field in value}
    record, named = msgspec.convert(scored, _Record), _named(part.file)
    judged = _judged(record)
    made = dialects.events(record.iterations, task=record.task, limit=named.get("limit"))
    events = tuple(msgspec.structs.replace(event, order=n) for n, event in enumerate(made))
    profiles, relationships = _profiles(record.agent_profiles), _relationships(record.relationship)
    task_id = _task_id(record, judged)
    trace = Trace(
        trace_id=trace_id,
        world="recorded",
        source=Origin(format=FORMAT, file=part.file, record=part.record, reader_version=VERSION),
        task=Task(
            task_id=task_id,
            text=record.task,
            domain=judged.domain or named.get("domain"),
            reference=", ".join(judged.causes) or None,
            extra={"yaml_file": record.yaml_file} if record.yaml_file else {},
        ),
        agents=_agents(events, profiles or {}, relationships or {}),
        events=events,
        claims=tuple(dialects.claims(record.iterations)),
        outcome=judged.outcome,
        labels=tuple(_labels(record, judged, {event.event_id for event in events})),
        groups=Groups(task=task_id, condition=_condition(record, named), trial=part.record.partition(_TRIAL)[2] or "1"),
        extra=_extra(scored, record, named=named, used={judged.field} | _parsed(profiles, relationships)),
    )
    return Assembled(trace, list(_problems(value, trace)))


def _is_record(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("task"), str):
        return False
    return "coordination_mode" in value and isinstance(value.get("iterations"), list)


def _made(row: Row, file: str) -> tuple[Fragment, str | None] | Problem:
    """Return the fragment of a record and the id of its task. It is assembled here once, so that it can be ever after."""
    value = row.value
    if not _is_record(value):
        seen = f"keys {', '.join(sorted(value)[:8])}" if isinstance(value, dict) else type(value).__name__
        return Problem(code="wrong-shape", file=file, record=row.place, got=seen, expected=KINDS[0].recognised_by)
    try:
        data = encode(value, order="deterministic")
        digest = hash_of(data)
        part = Fragment(trace_id=f"{FORMAT}:{digest}", part="record", data=data, digest=digest, file=file, record=row.place)
        return part, assemble(part.trace_id, [part]).trace.groups.task
    except RecursionError:
        return Problem(code="too-deep", file=file, record=row.place)
    except ValueError as error:
        return Problem(code="wrong-shape", file=file, record=row.place, got=str(error))


def _named(file: str) -> dict[str, Any]:
    """Return what the name of a file and of its folder say of the runs in it.

    >>> _named("marble/research-exp/result/tree_research_Llama3.1_70B.jsonl")
    {'domain': 'research', 'topology': 'tree', 'model': 'llama-3.1-70b'}
    >>> _named("minecraft_iteration_ablation/discussion_output_gpt-4o-mini_10.jsonl")
    {'domain': 'minecraft', 'model': 'gpt-4o-mini', 'limit': 10}
    """
    path = PurePath(file)
    stem, folder = path.stem, path.parent.name
    hits = {field: pattern.search(stem) or pattern.search(folder) for field, pattern in _NAME_PATTERNS.items()}
    said: dict[str, Any] = {field: hit[0].lower().replace("_", "-") for field, hit in hits.items() if hit}
    if "model" in said:
        said["model"] = re.sub(r"^([a-z]+)(?=\d)", r"\1-", said["model"])
    # A number at the end is a limit only where the name speaks of iterations; elsewhere it counts files.
    if "iteration" in f"{folder} {stem}".lower() and (limit := _LIMIT.search(stem)):
        said["limit"] = int(limit[1])
    return said


def _without_sentinels(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_sentinels(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_without_sentinels(member) for member in value]
    return None if _is_sentinel(value) else value


def _n_sentinels(value: Any) -> int:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return _is_sentinel(value) + sum(map(_n_sentinels, members))


def _is_sentinel(value: Any) -> bool:
    return isinstance(value, int | float) and value == -1


def _fitted(value: Any, kind: Any) -> Any:
    """Return the value as `kind`, or None where it is something else."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _judged(record: _Record) -> _Judged:
    evaluation = record.task_evaluation
    if (score := _fitted(evaluation, float)) is not None:
        return _Judged("task_evaluation", "minecraft", Outcome(score=score, score_scale=(0.0, 5.0), source="task_evaluation"))
    if (quality := _fitted(record.code_quality, _Parts)) is not None:
        return _Judged("code_quality", "coding", _mean(quality, "code_quality", _CODING), quality)
    if (parts := _fitted(evaluation, _Parts)) is not None and {*_RESEARCH} <= parts.keys():
        return _Judged("task_evaluation", "research", _mean(parts, "task_evaluation", _RESEARCH), parts)
    if (said := _fitted(evaluation, _Predicted)) is not None:
        return _Judged("task_evaluation", "database", _diagnosis(said), {}, tuple(said.root_cause))
    return _Judged()


def _mean(parts: dict[str, float | None], field: str, names: tuple[str, ...]) -> Outcome:
    """Return the mean of the named parts; where one is not scored there is none, as it would be of something else."""
    scores = [score for name in names if (score := parts.get(name)) is not None]
    if len(scores) < len(names):
        return Outcome()
    return Outcome(score=sum(scores) / len(scores), score_scale=(1.0, 5.0), source=f"mean of {field}.{{{', '.join(names)}}}")


def _diagnosis(said: _Predicted) -> Outcome:
    """Return which of the root causes the final decision names, from the last line on that announces one.

    MARBLE leaves this to a model. The text before the decision weighs every cause by name, so it says nothing.
    """
    lines = said.predicted.split("\n")
    decisions = [n for n, line in enumerate(lines) if _DECISION.search(line)]
    words = set(_WORD.findall("\n".join(lines[decisions[-1] if decisions else 0 :])))
    found = [{*_WORD.findall(cause)} <= words for cause in said.root_cause]
    if not found:
        return Outcome(answer=said.predicted)
    return Outcome(
        passed=all(found),
        score=sum(found) / len(found),
        score_scale=(0.0, 1.0),
        answer=said.predicted,
        source="derived, rule root-causes-in-decision: all of task_evaluation.root_cause in .predicted; score: the share of them",
    )


def _labels(record: _Record, judged: _Judged, event_ids: set[str]) -> Iterator[Label]:
    """Yield every single score; those of an iteration with its number. The engine may score one more than it records."""
    for name, value in sorted(judged.parts.items()):
        if value is not None:
            yield Label(annotator=_EVALUATOR, name=name, value=value)
    for name, scores in (("planning", record.planning_scores), ("communication", record.communication_scores)):
        for n, value in enumerate(scores):
            event_id = dialects.summary_id(n) if dialects.summary_id(n) in event_ids else None
            if value is not None:
                yield Label(annotator=_EVALUATOR, name=name, value=value, step=n + 1, step_base=1, event_id=event_id)


def _task_id(record: _Record, judged: _Judged) -> str:
    """Return the same id for the same task. Database tasks share their texts: what was broken tells them apart."""
    return f"task-{hash_of(encode([record.task, sorted(judged.causes)]))[:12]}"


def _condition(record: _Record, named: dict[str, Any]) -> str | None:
    said = {"topology": record.coordination_mode, **named}
    fields = ("topology", "model", "limit", "method")
    return ", ".join(f"{field}={said[field]}" for field in fields if said.get(field) is not None) or None


def _profiles(text: Any) -> dict[str, str] | None:
    """Return agent -> profile, or None where the text is laid out in another way."""
    if not isinstance(text, str):
        return None
    start, *found = _PROFILE.split(text)
    names = found[::2]
    is_clean = not start.strip() and len(set(names)) == len(names)
    return dict(zip(names, map(str.strip, found[1::2]), strict=True)) if is_clean and names else None


def _relationships(text: Any) -> dict[str, dict[str, str]] | None:
    """Return agent -> {other agent: what it does with it}, or None where a line is laid out in another way."""
    if not isinstance(text, str):
        return None
    found: dict[str, dict[str, str]] = {}
    for line in filter(str.strip, text.split("\n")):
        names, colon, what = line.partition(": ")
        agent, dash, other = names.partition(" - ")
        if not (colon and dash) or not 0 < len(agent) <= 512 or other in found.setdefault(agent, {}):
            return None
        found[agent][other] = what.strip()
    return found


def _parsed(profiles: Any, relationships: Any) -> set[str]:
    return {field for field, value in (("agent_profiles", profiles), ("relationship", relationships)) if value is not None}


def _agents(events: Sequence[Event], profiles: dict[str, str], relationships: dict[str, dict[str, str]]) -> tuple[Agent, ...]:
    """Return all that act, are addressed or described, in the order in which they come up."""
    named = (name for event in events for name in (event.agent_id, *event.targets))
    parents = {name: event.agent_id for event in events if event.kind == "spawn" for name in event.targets}
    agents = []
    for name in dict.fromkeys([*named, *profiles, *relationships]):
        if name is None:
            continue
        extra: dict[str, Any] = {"profile": profiles[name]} if name in profiles else {}
        extra |= {"relationships": relationships[name]} if name in relationships else {}
        extra |= {"name_from": "rule engine-planner"} if name == PLANNER else {}
        agents.append(Agent(agent_id=name, component=name, parent_id=parents.get(name), extra=extra))
    return tuple(agents)


def _extra(value: dict[str, Any], record: _Record, *, named: dict[str, Any], used: set[str]) -> dict[str, Any]:
    """Return what has no place in the records: totals of the run, fields of iterations, what the file name says."""
    rest = {name: member for name, member in value.items() if name not in _PLACED | used}
    left = [{k: v for k, v in it.items() if k not in Iteration.__struct_fields__} for it in value["iterations"]]
    found: dict[str, Any] = {
        "dialect": dialects.dialect(record.iterations, task=record.task),
        "topology_from": "file name" if "topology" in named else "coordination_mode",
        "from_file_name": named,
        "iterations": left if any(left) else [],
    }
    return rest | {name: member for name, member in found.items() if member}


def _problems(value: dict[str, Any], trace: Trace) -> Iterator[Problem]:
    place: dict[str, Any] = {"file": trace.source.file or "", "record": trace.source.record or "", "trace_id": trace.trace_id}
    if n := sum(_n_sentinels(value.get(field)) for field in _SCORES):
        yield Problem(code="sentinel", got="-1", n=n, **place)
    topology, mode = trace.extra.get("from_file_name", {}).get("topology"), value.get("coordination_mode")
    if topology and mode and topology != mode:
        yield Problem(code="name-differs", got=f"topology {topology}", expected=f"coordination_mode {mode}", **place)
