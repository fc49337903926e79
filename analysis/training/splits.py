"""Which split a trace belongs to, so that nothing a model was trained on is in what it is tested on.

Traces belong together that share a task, a nearly equal prompt or an ancestor (a counterfactual and the run it was made
of). A connected component has one split, by the hash of its name. Adding data can join two components; what has a split
keeps it (`known`), a component takes the split of what is known in it, and a new trace that would join two splits is left
out and named. So no component of what is exported has two splits, and no trace ever changes its split.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SHARES: Mapping[str, float] = {"train": 0.9, "test": 0.1}
#: What near duplicates are, in words; stands in manifests.
RULE = "same task, ancestor, or prompt: MinHash of word triples, 16 bands of 8, which links Jaccard 0.85 with probability 0.99"

_BANDS, _ROWS = 16, 8
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_DRAWN = hashlib.shake_256(b"counterpoint-minhash/1").digest(2 * 8 * _BANDS * _ROWS)  # no library may ever change them
_MULTIPLIERS = np.frombuffer(_DRAWN, "<u8").reshape(2, _BANDS * _ROWS, 1) | np.uint64(1)

Key = tuple[int, bytes] | str


class Case(NamedTuple):
    """What of a trace decides its split: `kin` are the traces it was made of."""

    trace_id: str
    task: str | None
    prompt: str | None
    kin: tuple[str, ...] = ()


class Assigned(NamedTuple):
    """The component of a trace, by name, and its split."""

    group: str
    split: str


def assign(
    cases: Sequence[Case], *, known: Mapping[str, Assigned] | None = None, shares: Mapping[str, float] = SHARES
) -> tuple[dict[str, Assigned], list[str]]:
    """Return the split of each trace, and the traces that are left out because they would join two splits.

    Parameters
    ----------
    cases : all traces to be split, and those that were split before, as far as they are still there
    known : what was assigned before, by trace; it is kept, unless a trace changed so that it joins two splits now
    shares : split -> share of the components, in (0, 1]

    Examples
    --------
    >>> found, left_out = assign([Case("a", "t1", "Sort a list."), Case("b", "t2", "Sort a list."), Case("c", "t3", "Add two.")])
    >>> found["a"] == found["b"], found["a"].group == found["c"].group, left_out
    (True, False, [])
    """
    before = known or {}
    ordered = sorted(cases)
    named = {name for case in ordered for name in case.kin}
    near = {prompt: [f"text:{prompt}", *bands(prompt)] for prompt in sorted({case.prompt for case in ordered if case.prompt})}
    forest = _Forest()
    for together in near.values():
        forest.join(together)
    sets = [forest.join(_links(case, named)) for case in ordered]
    components: dict[int, list[Case]] = {}
    for case, one in zip(ordered, sets, strict=True):
        components.setdefault(forest.top(one), []).append(case)
    found: dict[str, Assigned] = {}
    left_out: list[str] = []
    for members in components.values():
        groups = sorted({before[case.trace_id] for case in members if case.trace_id in before})
        if len({group.split for group in groups}) > 1:
            kept, refused = _one_by_one(members, near, before, shares)
            found |= kept
            left_out += refused
        else:
            group = groups[0] if groups else _begun(members, shares)
            found |= dict.fromkeys([case.trace_id for case in members], group)
    return found, sorted(left_out)


def split_of(group: str, shares: Mapping[str, float] = SHARES) -> str:
    """Return the split of a new component; it depends on its name alone, not on what else there is."""
    point = int.from_bytes(hashlib.sha256(f"counterpoint-split/1|{group}".encode()).digest()[:8], "big") / 2**64
    total = sum(shares.values())
    for split, share in shares.items():
        point -= share / total
        if point < 0:
            return split
    return list(shares)[-1]


def bands(prompt: str) -> list[Key]:
    """Return the keys by which nearly equal prompts meet; none for a prompt without words."""
    words = _WORDS.findall(prompt.casefold())
    if not words:
        return []
    shingles = {" ".join(words[n : n + 3]) for n in range(max(1, len(words) - 2))}
    hashed = np.fromiter((zlib.crc32(shingle.encode()) for shingle in shingles), np.uint64, len(shingles))
    # Multiply-shift hashing; the library for MinHash (datasketch) takes 3 to 6 times as long for as many minima.
    minima: npt.NDArray[np.uint64] = ((hashed * _MULTIPLIERS[0] + _MULTIPLIERS[1]) >> np.uint64(32)).min(axis=1)
    return [(n, band.tobytes()) for n, band in enumerate(minima.reshape(_BANDS, _ROWS))]


def _links(case: Case, named: Collection[str] = ()) -> list[str]:
    """Return what a trace shares with those it belongs together with; its own id only if a trace of `named` could have it."""
    task = [f"task:{case.task}"] if case.task is not None else []
    prompt = [f"text:{case.prompt}"] if case.prompt else []
    is_met = case.kin or case.trace_id in named or not (task or prompt)
    own = [f"run:{name}" for name in (case.trace_id, *case.kin)] if is_met else []
    return [*own, *task, *prompt]


def _begun(members: Iterable[Case], shares: Mapping[str, float]) -> Assigned:
    """Return a new component, named after a task of its members; without one after their first trace or its ancestor."""
    tasks = min((case.task for case in members if case.task is not None), default=None)
    name = min(f"run:{name}" for case in members for name in (case.trace_id, *case.kin)) if tasks is None else f"task:{tasks}"
    return Assigned(name, split_of(name, shares))


def _one_by_one(
    members: Sequence[Case], near: Mapping[str, Sequence[Key]], known: Mapping[str, Assigned], shares: Mapping[str, float]
) -> tuple[dict[str, Assigned], list[str]]:
    """Assign the members of a component in which two splits meet: known ones first, whoever would join two is left out."""
    forest, at = _Forest(), dict[int, Assigned]()
    named = {name for case in members for name in (case.trace_id, *case.kin)}
    found: dict[str, Assigned] = {}
    left_out = []
    for case in sorted(members, key=lambda case: (case.trace_id not in known, case.trace_id)):
        mine = [*_links(case, named), *near.get(case.prompt or "", ())]
        met = sorted({at[root] for root in map(forest.root, mine) if root in at})
        own = [known[case.trace_id]] if case.trace_id in known else []
        if len({group.split for group in (*met, *own)}) > 1:
            left_out.append(case.trace_id)
            continue
        found[case.trace_id] = next(iter([*own, *met])) if own or met else _begun([case], shares)
        at[forest.join(mine)] = found[case.trace_id]
    return found, left_out


class _Forest:
    """Disjoint sets of keys."""

    def __init__(self) -> None:
        self._number: dict[Key, int] = {}
        self._parent: list[int] = []

    def root(self, key: Key) -> int:
        """Return the number of the set of a key, which is in one of its own if it is new."""
        number = self._number.setdefault(key, len(self._parent))
        if number == len(self._parent):
            self._parent.append(number)
        return self.top(number)

    def top(self, number: int) -> int:
        """Return the number that the set of this number has now, after it was joined with others."""
        while self._parent[number] != number:
            self._parent[number] = number = self._parent[self._parent[number]]
        return number

    def join(self, keys: Iterable[Key]) -> int:
        """Make the sets of some keys one; return its number."""
        roots = {self.root(key) for key in keys}
        first = min(roots)
        for root in roots:
            self._parent[root] = first
        return first
