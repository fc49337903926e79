"""Problems of a session, counted by what is alike: a damaged file repeats one fault many times."""

from __future__ import annotations

import msgspec

from analysis.errors import Problem

Found = dict[tuple[str, str, str], Problem]  # by code, file and what was expected


def report(found: Found, code: str, file: str, *, got: str, expected: str = "") -> None:
    """Count a problem; of those that are alike in a file the first is shown."""
    new = Problem(code=code, file=file, got=got[:100], expected=expected, n=0)
    old = found.setdefault((code, file, expected), new)
    found[code, file, expected] = msgspec.structs.replace(old, n=old.n + 1)
