"""Every error and problem a user can meet, and how it is worded.

An error stops what was asked for; a problem is a row about one file, record or trace while the work
goes on. Both read alike: place: problem (got …, expected …) - what to do.
"""

from __future__ import annotations

import copyreg
import difflib
from collections.abc import Iterable
from typing import Literal

import msgspec

Severity = Literal["lost", "repaired", "note"]

#: code -> (severity, problem, what to do). "lost": something did not come in; "repaired": it came in
#: changed, and how is said; "note": it came in as it stands, and a reader should know this about it.
CATALOGUE: dict[str, tuple[Severity, str, str]] = {
    "empty-file": ("lost", "the file is empty", "check that the export finished"),
    "not-text": ("lost", "the file is not text", "export it as JSON or JSONL"),
    "not-json": ("lost", "not a JSON file", "export the traces as JSON or JSONL"),
    "html-page": ("lost", "this is an HTML page, not data", "download it again, signed in; this is the error page"),
    "bad-json": ("lost", "not valid JSON", "mend or remove this record"),
    "truncated": ("lost", "the record ends in the middle", "export the file again; it was cut off"),
    "too-large": ("lost", "the record is larger than the limit", "raise --max-record-mb"),
    "bomb": ("lost", "the file unpacks to far more than an export would", "unpack it by hand if it is what it should be"),
    "too-deep": ("lost", "the record is nested too deeply", "flatten the record; no trace needs this depth"),
    "wrong-shape": ("lost", "the record does not have the shape its format promises", "check the exporter"),
    "bad-value": ("lost", "a value is not what the field takes", "mend the value"),
    "unreadable": ("lost", "the file cannot be read", "check that it exists and its permissions"),
    "no-reader": ("lost", "no reader knows this format", "see `counterpoint formats`"),
    "unread-ledger": ("lost", "a ledger is not valid JSON; its verdicts are missing", "nothing to do; the event keeps the text"),
    "unread-format": ("lost", "the format is recognised but not read yet", "see `counterpoint formats`"),
    "no-library": ("lost", "reading this file needs a package that is not installed", "pip install the package named"),
    "mixed-format": ("lost", "the record is of another format than its file", "split the file by format"),
    "encoding": ("repaired", "the text was not plain UTF-8", "nothing to do; it was converted"),
    "bad-number": ("repaired", "NaN, infinite or out-of-range number read as missing", "write null for a missing number"),
    "surrogate": ("repaired", "half a character (lone surrogate) replaced by U+FFFD", "check how the exporter cuts text"),
    "control-character": ("repaired", "a control character stood in the text as it is; kept", "escape it, as JSON demands"),
    "unknown-field": ("repaired", "unknown field kept under `extra`", "check the spelling if a known field was meant"),
    "duplicate-event": ("repaired", "event id occurs twice; the later one was renamed", "give each event its own id"),
    "same-id": ("repaired", "same id, different content: kept apart as a second trace", "give each run its own id"),
    "bad-time": ("repaired", "a time that cannot be read, kept under `extra`", "write nanoseconds since 1970 or an ISO date"),
    "time-unit": ("repaired", "a time is not in the unit that its field names; read by its size", "write nanoseconds"),
    "bad-attributes": ("repaired", "attributes of an unknown shape, kept under `extra`", "write {key, value} pairs or an object"),
    "cycle": ("repaired", "the parents go round in a circle; cut before its earliest event", "check how parent ids are made"),
    "made-id": ("note", "a record has no id; one was made from its content", "nothing to do; the same content gives the same id"),
    "no-time": ("note", "a start or an end is missing", "export again if the run had not ended"),
    "end-before-start": ("note", "an end lies before its start; both are kept", "check the clocks of the source"),
    "naive-time": ("note", "a time without a zone among others with one, read as UTC", "write the zone"),
    "orphan": ("note", "a parent event is not in the trace", "import the missing part; it joins by itself"),
    "no-target": ("note", "a delegation does not say to whom; kept without a target", "check the argument that names the agent"),
    "unknown-agent": ("repaired", "agent named by an event but not declared; added to the agents", "declare it under `agents`"),
    "opaque-event": ("note", "unknown record type kept as an opaque event", "nothing is lost; metrics leave it out"),
    "duplicate-record": ("note", "the same record again; counted once", "nothing to do"),
    "sentinel": ("note", "a placeholder value was not counted", "nothing to do"),
    "out-of-range": ("note", "a probability outside [0, 1], kept and flagged", "check the scale of the source"),
    "id-from-name": ("note", "the trace id comes from the file name; the content has none", "keep the file name"),
    "agent-from-name": ("note", "the agent id comes from the file name; the records have none", "keep the file name"),
    "name-differs": ("note", "the file name and the record say different things; the name is used", "check which one is true"),
    "no-trace": ("lost", "no trace has this id", "import the trace first, or correct the id"),
    "no-task": ("lost", "a candidate for a task that the benchmark file does not have", "correct task_id, or give that file"),
    "not-judged": ("lost", "the task cannot be judged here; its candidates are in no rate", "read it; no rate is made of it"),
    "waiting": ("note", "kept until the trace it belongs to is imported", "import the runs these annotations are about"),
    "pickled-tests": ("lost", "private tests are a pickle, and reading one runs its code", "decode them to JSON elsewhere"),
    "label-one-based": ("note", "the label fits its agent only when steps are counted from 1", "check the annotator's step base"),
    "label-misfit": ("note", "the label's agent is not the one who acted at its step", "read the label with care"),
}  # fmt: skip


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a user should know about one place; a row of the load report and the `problems` table.

    `n` is how often it occurred at this place or after it in the same file (rows are capped, counts are not).
    """

    code: str
    file: str = ""
    record: str = ""
    trace_id: str = ""
    got: str = ""
    expected: str = ""
    n: int = 1

    @property
    def severity(self) -> Severity:
        """Whether something was lost, came in repaired, or only needs to be known."""
        return CATALOGUE[self.code][0]

    @property
    def message(self) -> str:
        """What is the matter, in words."""
        return CATALOGUE[self.code][1]

    @property
    def hint(self) -> str:
        """What to do about it."""
        return CATALOGUE[self.code][2]

    def __str__(self) -> str:
        place = ":".join(part for part in (self.file, self.record or self.trace_id) if part)
        return _worded(place, self.message, got=self.got, expected=self.expected, hint=self.hint)


class CounterpointError(Exception):
    """Something a user can mend. Its text is one line: place, problem, got, expected, what to do."""

    def __init__(self, place: str, problem: str, *, got: str = "", expected: str = "", hint: str = "") -> None:
        super().__init__(_worded(place, problem, got=got, expected=expected, hint=hint))

    def __reduce__(self) -> tuple[object, ...]:  # worker processes hand on their errors, which stand here as one line
        return copyreg.__newobj__, (type(self), str(self))  # type: ignore[attr-defined]


class TraceError(CounterpointError, ValueError):
    """A trace breaks a rule of the records."""


class RelationError(CounterpointError, ValueError):
    """A relation cannot be read, or the relations contradict each other."""


class UnknownNameError(CounterpointError, LookupError):
    """A name that is not there: a trace, a format, a column; its text lists the nearest ones."""


class WorkspaceError(CounterpointError, RuntimeError):
    """The store cannot be opened, read or written."""


class HeadConflict(WorkspaceError):
    """Another writer committed first; read the new head and try again."""


class TaskError(CounterpointError, ValueError):
    """A task bank or a benchmark file cannot be used, or no task can be made of it."""


class TeamError(CounterpointError, ValueError):
    """A team file or an orchestration plan cannot be used."""


class ReplayError(CounterpointError, ValueError):
    """A decision of a recorded run cannot be changed without running it again, or not at all; the text says why."""


class UnansweredError(ReplayError):
    """A pair is lost because a model gave no answer; it can be made later."""


class SandboxError(CounterpointError, RuntimeError):
    """A program cannot be run: too little would hold it here, or its launcher has gone."""


class EndpointError(CounterpointError, RuntimeError):
    """A model's endpoint cannot be used: no client is installed, no key is set, or it refuses every call."""


class BudgetSpent(CounterpointError, RuntimeError):
    """The next call could cost more than what is left; it was not made, and everything paid for is kept."""


class BusyError(CounterpointError, RuntimeError):
    """Another process writes to the same file; it is free again when that process ends, however it ends."""


class PolicyError(CounterpointError, ValueError):
    """A curation policy cannot be used: it contradicts itself, or the data it is applied to; its text says what to change."""


class TrainingError(CounterpointError, RuntimeError):
    """A data set cannot be exported, or a training cannot be begun, followed or gone on with."""


def nearest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the hint that asks for the nearest of some names; another one where none is near.

    >>> nearest("simulatd", ["live", "simulated"]), nearest("x", ["live"], "write world:live")
    ('did you mean simulated?', 'write world:live')
    """
    near = difflib.get_close_matches(name, list(names), 1)
    return f"did you mean {near[0]}?" if near else otherwise


def printable(text: str, limit: int = 120) -> str:
    """Return `text` on one line, control characters made visible, at most `limit` characters long.

    For every place where text of a stranger reaches a terminal or a log.

    >>> printable("a\\x1b[31mb\\n\\u202ec")
    'a\\\\x1b[31mb\\\\n\\\\u202ec'
    """
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)


def _worded(place: str, problem: str, *, got: str, expected: str, hint: str) -> str:
    # What is expected is a list to choose from more often than not, and is of no use cut short.
    parts = (("got", got, 200), ("expected", expected, 600))
    seen = ", ".join(f"{word} {printable(text, limit)}" for word, text, limit in parts if text)
    line = f"{printable(place, 300)}: {problem}" if place else problem
    return line + (f" ({seen})" if seen else "") + (f" - {hint}" if hint else "")
