"""The filter language of lists and pages: `format:whowhen passed:no events>20 -tag:seen "log in"`.

A term is a word of the id or the task, `field:value[,value]`, `field>number` or `field>day`; a minus negates it,
and a trace must satisfy all of them. It compiles to SQL over the traces table, values as parameters.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date
from typing import Any, NamedTuple, get_args

from analysis.errors import UnknownNameError, nearest
from analysis.model import World


class Field(NamedTuple):
    """One name that a filter can use: its SQL, and in words what it is."""

    sql: str
    meaning: str


#: Fields compared with `:` to one or several values (case does not matter).
TEXT_FIELDS: dict[str, Field] = {
    "id": Field("traces.trace_id", "trace id"),
    "format": Field("format", "format the trace came from"),
    "world": Field("world", "live, simulated or recorded"),
    "task": Field("task_id", "task id"),
    "domain": Field("domain", "domain of the task"),
    "condition": Field("condition", "condition the task was run under"),
    "trial": Field("trial", "trial of the task"),
    "passed": Field("case when passed is null then 'unknown' when passed then 'yes' else 'no' end", "yes, no or unknown"),
}
#: The values of fields that have few.
_CLOSED: dict[str, tuple[str, ...]] = {"world": get_args(World), "passed": ("yes", "no", "unknown")}
#: Fields that many rows of another table state; `:` asks whether one of them does.
MANY_FIELDS: dict[str, Field] = {
    "agent": Field("agents where lower(agents.component)", "component of one of its agents"),
    "annotator": Field("labels where lower(labels.annotator)", "who labelled it"),
    "category": Field("labels where lower(labels.category)", "category of a label"),
    "family": Field("family_members where lower(family_members.family_id)", "id of the family of runs it belongs to"),
    "finding": Field("findings where lower(findings.name)", "anti-pattern found in it"),
    "mode": Field("mode_members where lower(mode_members.mode_id)", "id of its failure mode"),
    "model": Field("agents where lower(agents.model)", "model of one of its agents"),
    "pattern": Field("occurrences where lower(occurrences.pattern_id)", "id of a pattern that occurs in it"),
    "problem": Field("problems where lower(problems.code)", "code of a load problem"),
    "tag": Field("current_tags where lower(current_tags.tag)", "tag that a person set"),
}
#: Fields compared with `>`, `<`, `>=`, `<=` or `=` to a number.
NUMBER_FIELDS: dict[str, Field] = {
    "agents": Field("n_agents", "number of agents"),
    "events": Field("n_events", "number of events"),
    "claims": Field("n_claims", "number of claims"),
    "labels": Field("n_labels", "number of labels"),
    "errors": Field("n_errors", "number of events with an error"),
    "explicit": Field("explicit_share", "share of events the source states, 0 to 1"),
    "score": Field("score", "score of the outcome, on its own scale"),
    "tokens": Field("coalesce(input_tokens + output_tokens, input_tokens, output_tokens)", "tokens in and out"),
    "seconds": Field("makespan_s", "seconds from first to last event"),
}
#: Fields whose words are looked for, with `:`, in texts of another table.
WORD_FIELDS: dict[str, Field] = {
    "prompt": Field("agents where contains(lower(system_prompt)", "words in the system prompt of one of its agents"),
    "text": Field("texts where contains(lower(content)", "words in what the agents said"),
}
#: Fields compared with `>`, `<`, `>=`, `<=` or `=` to a day.
DAY_FIELDS: dict[str, Field] = {
    "date": Field(
        """(select floor(min(coalesce(t_start_s, t_end_s)) / 86400) from events
        where events.trace_id = traces.trace_id and traces.clock in ('unix', 'naive'))""",
        "day on which it began, in UTC where the source states the zone",
    ),
}

#: The tags that stand: the last decision on each (trace, tag) wins.
TAGS = """
    select trace_id, value as tag from decisions where what in ('tag', 'untag') and event_id = ''
    qualify row_number() over (partition by trace_id, value order by made_at desc, decision_id desc) = 1 and what = 'tag'
"""

#: Every number that analysis gave a trace, by name: its metrics and, of each level of claims, its residuals.
MEASURES = """
    select trace_id, name, value from metrics where value is not null
    union all select trace_id, name, value from (
        unpivot (select trace_id, residual, residual_norm, residual_canonical, residual_debiased, residual_composed, coupling_bits
            from residuals where is_last) on columns(* exclude trace_id) into name name value value)
"""

_TERM = re.compile(r'(-?)(?:([a-z_]+)(:|>=|<=|>|<|=))?((?:"[^"]*"|[^\s"])+)')
_MAX_TERMS = 100
_VALUE = re.compile(r'(?:"[^"]*"|[^",])+')


def where(text: str, *, metrics: Collection[str] = ()) -> tuple[str, dict[str, Any]]:
    """Return the SQL condition and its parameters for a filter; `metrics` are the numbers that analysis gave.

    Raises
    ------
    UnknownNameError
        If a field is not known, never has that value or takes a number that is none (the text names what is near), or there
        are more than 100 terms.

    Examples
    --------
    >>> where("passed:no events>20")[1]
    {'p0': ['no'], 'p1': 20.0}
    >>> where("colour:red")
    Traceback (most recent call last):
    analysis.errors.UnknownNameError: filter: unknown field (got colour, expected one of agent, agents, ...
    """
    conditions, parameters = [], {}
    # Bytes that are no text come from a terminal as lone surrogates; the database takes none.
    terms = list(_TERM.finditer(text.encode("utf-8", "replace").decode()))
    if len(terms) > _MAX_TERMS:
        raise UnknownNameError("filter", "too many terms", got=str(len(terms)), expected=f"at most {_MAX_TERMS}")
    for n, match in enumerate(terms):
        minus, field, operator, raw = match.groups()
        if field in metrics and field not in NUMBER_FIELDS and operator != ":":
            rows = f"select trace_id from measures where name = '{field}' and value {operator} $p{n}"
            sql, value = f"traces.trace_id in ({rows})", _number(field, raw)
        else:
            sql, value = _condition(field, operator, raw, f"p{n}", metrics)
        conditions.append(f"not coalesce({sql}, false)" if minus else f"({sql})")
        parameters[f"p{n}"] = value
    return " and ".join(conditions) or "true", parameters


def _condition(field: str | None, operator: str | None, raw: str, name: str, metrics: Collection[str]) -> tuple[str, Any]:
    value = raw.replace('"', "").lower()
    if field is None:
        return f"contains(lower(traces.trace_id), ${name}) or contains(lower(coalesce(task_text, '')), ${name})", value
    if operator == ":" and field in TEXT_FIELDS:
        return f"lower({TEXT_FIELDS[field].sql}) in (select unnest(${name}))", _among(field, _values(raw))
    if operator == ":" and field in MANY_FIELDS:
        rows = f"select trace_id from {MANY_FIELDS[field].sql} in (select unnest(${name}))"
        return f"traces.trace_id in ({rows})", _values(raw)
    if operator == ":" and field in WORD_FIELDS:
        return f"traces.trace_id in (select trace_id from {WORD_FIELDS[field].sql}, ${name}))", value
    if operator != ":" and field in DAY_FIELDS:
        return f"{DAY_FIELDS[field].sql} {operator} ${name}", _day(field, value)
    if operator != ":" and field in NUMBER_FIELDS:
        return f"{NUMBER_FIELDS[field].sql} {operator} ${name}", _number(field, value)
    raise _unknown(field, operator, metrics)


def _values(raw: str) -> list[str]:
    """Split at the commas that stand outside of quotes."""
    return [part.replace('"', "").lower() for part in _VALUE.findall(raw)] or [""]


def _among(field: str, values: list[str]) -> list[str]:
    """Return the values, if they are of those that the field can have."""
    for value in values if field in _CLOSED else ():
        if value not in _CLOSED[field]:
            hint = nearest(value, _CLOSED[field], f"write {field}:{_CLOSED[field][0]}")
            expected = ", ".join(_CLOSED[field])
            raise UnknownNameError("filter", f"`{field}` is never that", got=value, expected=expected, hint=hint)
    return values


def _number(field: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UnknownNameError("filter", f"`{field}` takes a number", got=value, hint=f"write {field}>3") from None


def _day(field: str, value: str) -> float:
    try:
        return float((date.fromisoformat(value) - date(1970, 1, 1)).days)
    except ValueError:
        raise UnknownNameError("filter", f"`{field}` takes a day", got=value, hint=f"write {field}>=2026-03-01") from None


def _unknown(field: str, operator: str | None, metrics: Collection[str]) -> UnknownNameError:
    names = sorted({*TEXT_FIELDS, *MANY_FIELDS, *NUMBER_FIELDS, *WORD_FIELDS, *DAY_FIELDS, *metrics})
    if field in NUMBER_FIELDS or field in metrics:
        return UnknownNameError("filter", f"`{field}` is a number", got=f"{field}{operator}", hint=f"write {field}>3")
    if field in DAY_FIELDS:
        return UnknownNameError("filter", f"`{field}` is a day", got=f"{field}{operator}", hint=f"write {field}>=2026-03-01")
    if field in names:
        return UnknownNameError("filter", f"`{field}` is a text", got=f"{field}{operator}", hint=f"write {field}:value")
    if not metrics and operator != ":":
        hint = "metrics such as q_work can be asked for after `counterpoint analyze`"
        return UnknownNameError("filter", "unknown field", got=field, hint=hint)
    hint = nearest(field, names, "put text that holds : < > = in quotes")
    return UnknownNameError("filter", "unknown field", got=field, expected="one of " + ", ".join(names), hint=hint)
