"""The load report: what an import did, file by file, and what of it did not come in and why.

Decides how much of many equal problems is kept: the first few of a kind, then their number.
"""

from __future__ import annotations

from typing import Any

import msgspec

from analysis.errors import Problem

_PROBLEMS_SHOWN = 20
_GOT_SHOWN = 500


class FileReport(msgspec.Struct, kw_only=True):
    """What one file gave, and what it did not give and why."""

    file: str
    format: str
    traces: int = 0
    records: int = 0
    problems: list[Problem] = []

    def add(self, problem: Problem) -> None:
        """Count a problem; after the first few of a kind only its number grows."""
        same = [n for n, p in enumerate(self.problems) if p.code == problem.code]
        if len(same) < _PROBLEMS_SHOWN:
            self.problems.append(shortened(problem))
            return
        last = self.problems[same[-1]]
        self.problems[same[-1]] = msgspec.structs.replace(last, n=last.n + problem.n)

    def counts(self) -> dict[str, int]:
        """Return how often each kind of problem occurred."""
        return {code: sum(p.n for p in self.problems if p.code == code) for code in sorted({p.code for p in self.problems})}


class ImportReport(msgspec.Struct, kw_only=True):
    """What an import did: trace ids by what happened to them, one report a file, the version it made."""

    added: list[str] = []
    updated: list[str] = []
    unchanged: list[str] = []
    waiting: list[str] = []
    files: list[FileReport] = []
    skipped: list[Problem] = []
    version: int = 0
    redacted: dict[str, int] = {}  # how many secrets of each kind were taken out

    @property
    def n_lost(self) -> int:
        """How many records or files did not come in."""
        lost = sum(p.n for file in self.files for p in file.problems if p.severity == "lost")
        return lost + len(self.skipped)

    def joined(self, later: ImportReport) -> ImportReport:
        """Return what both imports did together: a trace that is new stays so when claims come to it."""
        updated = {*self.updated, *later.updated} - {*self.added}
        return ImportReport(
            added=[*self.added, *later.added],
            updated=sorted(updated),
            unchanged=sorted({*self.unchanged, *later.unchanged} - updated - {*self.added}),
            waiting=[*self.waiting, *later.waiting],
            files=[*self.files, *later.files],
            skipped=[*self.skipped, *later.skipped],
            version=later.version,
            redacted=self.redacted,
        )

    def plain(self) -> dict[str, Any]:
        """Return the report as `import --json` prints it."""
        by_format: dict[str, int] = {}
        for trace_id in self.added:
            family = trace_id.partition(":")[0]
            by_format[family] = by_format.get(family, 0) + 1
        return {
            "traces": len(self.added),
            "updated": len(self.updated),
            "unchanged": len(self.unchanged),
            "waiting": len(self.waiting),
            "by_format": dict(sorted(by_format.items())),
            "files": [
                {"file": f.file, "format": f.format, "traces": f.traces, "records": f.records, "counts": f.counts()}
                | {"problems": [_plain(p) for p in f.problems]}
                for f in self.files
            ],
            "skipped": [{"file": p.file, "reason": f"{p.message}: {p.got}" if p.got else p.message} for p in self.skipped],
            "version": self.version,
            **({"redacted": self.redacted} if self.redacted else {}),
        }


def shortened(problem: Problem) -> Problem:
    """A stranger's value can be as long as a record; what was got needs no more than its beginning."""
    got = problem.got if len(problem.got) <= _GOT_SHOWN else problem.got[: _GOT_SHOWN - 1] + "…"
    return msgspec.structs.replace(problem, got=got)


def _plain(problem: Problem) -> dict[str, Any]:
    fields = ("code", "severity", "record", "trace_id", "message", "got", "expected", "hint", "n")
    return {name: getattr(problem, name) for name in fields}
