"""Which trace a new fragment belongs to: the known one, nothing new, or a second run under the same id.

A bundle is what one record of one file states of one trace. It joins the first of `id`, `id~2`,
`id~3`, ... with whose fragments it agrees; so the order in which files come does not matter, and
importing again, or importing one's own export, adds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import NamedTuple

import msgspec

from analysis import model
from analysis.errors import Problem
from analysis.pipeline.spill import Spilled
from analysis.readers import FAMILIES, Fragment
from analysis.readers.fragment import Assembled, source_key

#: The parts of a trace that state what a user's claim file says of it: `claims:<how many came before>:<digest>`.
USER_CLAIMS = "claims:"


class Known(NamedTuple):
    """What the workspace holds of one trace id: the family, the digest of each part, the trace's own digest."""

    family: str
    parts: dict[str, str]
    digest: str | None


class Placed(NamedTuple):
    """The fragments of one bundle that are new to the trace with this id."""

    trace_id: str
    family: str
    fragments: list[Fragment]
    problem: Problem | None


@dataclass
class _Bundle:
    """What one record of one file states of one trace."""

    family: str
    fragments: list[Fragment]

    @cached_property
    def content(self) -> str | None:
        """The digest of the trace that the fragments make by themselves; the id is no part of it."""
        return _content(self.family, self.fragments)


def place(spilled: Sequence[Spilled], known: dict[str, Known]) -> Iterator[Placed]:
    """Yield where the bundles of one source id belong; `known` is what is there of it and its `~2`, `~3`, ..."""
    known = {trace_id: Known(k.family, dict(k.parts), k.digest) for trace_id, k in known.items()}
    holders: dict[str | None, list[str]] = {}  # digest of a part, or of a whole trace -> the ids that have it
    for trace_id, k in known.items():
        for digest in (*k.parts.values(), k.digest):
            holders.setdefault(digest, []).append(trace_id)
    n_with = Counter(part for k in known.values() for part in k.parts)
    came: dict[str, list[Fragment]] = {}
    for bundle in _bundles(spilled):
        own, family = bundle.fragments[0].trace_id, bundle.family
        trace_id = next(i for i in _candidates(bundle, known, holders, n_with) if _agrees(i, bundle, known, came))
        held = known.setdefault(trace_id, Known(family, {}, None))
        new = [f for f in bundle.fragments if f.part not in held.parts] if held.family == family else []
        if not new:
            continue
        held.parts.update({f.part: f.digest for f in new})
        n_with.update(f.part for f in new)
        came.setdefault(trace_id, []).extend(new)
        for digest in [f.digest for f in new] + ([bundle.content] if trace_id != own else []):
            holders.setdefault(digest, []).append(trace_id)
        problem = None
        if trace_id != own:
            problem = Problem(code="same-id", file=new[0].file, record=new[0].record, trace_id=trace_id, got=own)
        yield Placed(trace_id, family, [msgspec.structs.replace(f, trace_id=trace_id) for f in new], problem)


def _bundles(spilled: Sequence[Spilled]) -> Iterator[_Bundle]:
    bundles: dict[tuple[int, str, str], _Bundle] = {}
    for s in spilled:
        key = (s.n_file, s.fragment.record, s.fragment.trace_id)
        bundles.setdefault(key, _Bundle(s.family, [])).fragments.append(s.fragment)
    # By name, not as they were read: what the files state must not depend on their order on the command line.
    yield from sorted(bundles.values(), key=lambda bundle: bundle.fragments[0].file)


def _candidates(
    bundle: _Bundle, known: dict[str, Known], holders: dict[str | None, list[str]], n_with: Counter[str]
) -> Iterator[str]:
    """Yield the ids that the bundle may belong to: its own, those that hold the same, those that lack its parts, new ones.

    A thousand runs under one id must not be compared each with each: whoever holds the same is looked up.
    """
    own = bundle.fragments[0].trace_id
    yield own
    yield from holders.get(bundle.fragments[0].digest, ())
    yield from holders.get(bundle.content, ())
    parts = {f.part for f in bundle.fragments}
    if any(n_with[part] < len(known) for part in parts):
        yield from [i for i, held in known.items() if i != own and not parts <= held.parts.keys()]
    yield from (trace_id for n in count(max(2, len(known))) if (trace_id := f"{source_key(own)}~{n}") not in known)


def _agrees(trace_id: str, bundle: _Bundle, known: dict[str, Known], came: dict[str, list[Fragment]]) -> bool:
    """Whether the bundle says nothing else than what is known of this id: part by part, or as a whole.

    As a whole, because the same run may come once in its own format and once as an export of this program.
    """
    held = known.get(trace_id)
    if held is None:
        return True
    if held.family == bundle.family and all(held.parts.get(f.part, f.digest) == f.digest for f in bundle.fragments):
        return True
    if held.digest is None and trace_id in came:
        held = known[trace_id] = held._replace(digest=_content(held.family, came[trace_id]))
    return held.digest is not None and held.digest == bundle.content


def _content(family: str, fragments: Sequence[Fragment]) -> str | None:
    if not any(f.primary for f in fragments):
        return None
    problems: list[Problem] = []
    return model.digest(finish(assembled(family, fragments[0].trace_id, fragments).trace, problems.append))


def assembled(family: str, trace_id: str, fragments: Sequence[Fragment]) -> Assembled:
    """Return the trace that the family makes of its fragments, with the claims that a user's files add to it."""
    added = sorted((f for f in fragments if f.part.startswith(USER_CLAIMS)), key=lambda f: f.part)
    found = FAMILIES[family].assemble(trace_id, [f for f in fragments if not f.part.startswith(USER_CLAIMS)])
    if not added:
        return found
    claims = [
        model.Claim(claim_id=f"user:{f.part.split(':')[1]}.{n}", kind="user", **row)
        for f in added
        for n, row in enumerate(msgspec.json.decode(f.data))
    ]
    return found._replace(trace=msgspec.structs.replace(found.trace, claims=(*found.trace.claims, *claims)))


def finish(trace: model.Trace, report: Callable[[Problem], None]) -> model.Trace:
    """Return the trace with every acting agent declared; report what a reader of it should know."""
    where = {"file": trace.source.file or "", "record": trace.source.record or "", "trace_id": trace.trace_id}
    event_ids = {e.event_id for e in trace.events}
    orphans = [e.event_id for e in trace.events if any(p not in event_ids for p in e.parents)]
    if orphans:
        report(Problem(code="orphan", got=", ".join(orphans[:5]), n=len(orphans), **where))
    opaque = [e.raw_type or e.event_id for e in trace.events if e.kind is None]
    if opaque:
        report(Problem(code="opaque-event", got=", ".join(sorted(set(opaque))[:5]), n=len(opaque), **where))
    outside = [c.claim_id for c in trace.claims if c.is_out_of_range]
    if outside:
        report(Problem(code="out-of-range", got=", ".join(outside[:5]), n=len(outside), **where))
    declared = {agent.agent_id for agent in trace.agents}
    acting = dict.fromkeys(a for e in trace.events for a in (e.agent_id, *e.targets) if a and a not in declared)
    if not acting:
        return trace
    report(Problem(code="unknown-agent", got=", ".join(list(acting)[:5]), n=len(acting), **where))
    added = tuple(model.Agent(agent_id=a, component=a) for a in acting)
    return msgspec.structs.replace(trace, agents=trace.agents + added)
