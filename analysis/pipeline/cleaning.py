"""Records without secrets, before they are stored: what `import --redact` does to each.

Decides what happens where two names differed in nothing but what was taken out: the record does not come in.
"""

from __future__ import annotations

import msgspec

from analysis import model
from analysis.errors import Problem, TraceError
from analysis.readers import Fragment, native
from analysis.redaction import Redactor


def without_secrets(item: Fragment | Problem, format: str, redactor: Redactor) -> Fragment | Problem:
    """Return a record, or what was got instead of one, without secrets; its digest stays, by which it is found again."""
    if isinstance(item, Problem):
        return msgspec.structs.replace(item, got=redactor.text(item.got))
    clean = msgspec.structs.replace(item, data=redactor.text(item.data.decode()).encode())
    if format == native.FORMAT:
        try:
            model.decode(clean.data)
        except TraceError as error:
            got = f"without secrets: {error}"
            return Problem(code="bad-value", file=item.file, record=item.record, trace_id=item.trace_id, got=got)
    return clean
