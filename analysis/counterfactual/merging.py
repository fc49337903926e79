"""What merging takes and how: sources offered for parts, in which pairs they are put together, which of several is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analysis.counterfactual.agents.protocol import Seen
from analysis.counterfactual.plan import Strategy


class Offered(NamedTuple):
    """A source for a part: the event at which it was handed in, by whom, for which subtask, and how sure they were."""

    part: str
    source: str
    event_id: str
    agent_id: str
    subtask_id: str | None = None
    claims: tuple[tuple[str, float], ...] = ()

    def seen(self, n_passed: int | None = None, n_tests: int | None = None) -> Seen:
        """Return it as a candidate that somebody sees, with its tests where they ran."""
        return Seen(
            kind="candidate", event_id=self.event_id, agent_id=self.agent_id, part=self.part, program=self.source,
            n_passed=n_passed, n_tests=n_tests, claims=self.claims,
        )  # fmt: skip


def gathered(offers: Iterable[Sequence[Offered]]) -> list[Offered]:
    """Return all offers in order, each once."""
    return list(dict.fromkeys([offered for group in offers for offered in group]))


def latest(groups: Sequence[tuple[str, list[Offered]]]) -> list[tuple[str, list[Offered]]]:
    """Return the groups without what a later one replaces, and without those of which nothing is left."""
    last = {one.part: one for _, group in groups for one in group}
    kept = [(event_id, [one for one in group if last[one.part] == one]) for event_id, group in groups]
    return [(event_id, group) for event_id, group in kept if group]


def preferred(ones: Sequence[Offered], scores: Mapping[str, int]) -> Offered:
    """Return the alternative with the best score, else the one whose source most agree on; the earlier one of equals.

    >>> ones = [Offered("p1", source, f"e{n}", "a") for n, source in enumerate("xyy")]
    >>> preferred(ones, {}).event_id, preferred(ones, {"e0": 3, "e1": 2, "e2": 2}).event_id
    ('e1', 'e0')
    """
    votes = Counter([one.source for one in ones])
    return max(ones, key=lambda one: scores.get(one.event_id, 0) if scores else votes[one.source])


def folds(strategy: Strategy, n: int) -> list[tuple[int, ...]]:
    """Return which results are put together in each merge; the results are numbered, and so is what each merge makes.

    >>> folds("parallel", 4), folds("sequential", 4), folds("hierarchical", 4)
    ([(0, 1, 2, 3)], [(0, 1), (4, 2), (5, 3)], [(0, 1), (2, 3), (4, 5)])
    """
    if strategy not in ("sequential", "hierarchical") or n < 2:
        return [tuple(range(n))]
    pairs: list[tuple[int, ...]] = []
    todo = list(range(n))
    while len(todo) > 1:
        pairs.append((todo.pop(0), todo.pop(0)))
        made = n + len(pairs) - 1
        todo = [made, *todo] if strategy == "sequential" else [*todo, made]
    return pairs
