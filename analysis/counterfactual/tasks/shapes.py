"""Shapes of composed tasks: which part takes whose result, and which part's agent leads whose.

A shape alone decides depth, branching and cross-dependency of the run in which every part has an agent of its own, as
`analysis.orchestration.difficulty` defines them. The parts without a leader are led by the agent of the whole task.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from analysis.orchestration.difficulty import Features


class Part(msgspec.Struct, frozen=True):
    """A place for one function. `takes` are parts that stand before it; `lead` is the part whose agent leads this one's."""

    name: str
    takes: tuple[str, ...] = ()
    lead: str | None = None


class Shape(msgspec.Struct, frozen=True):
    """Parts in an order in which they can be computed."""

    name: str
    parts: tuple[Part, ...]

    @property
    def ends(self) -> tuple[str, ...]:
        """The parts that no other takes: their results are the result of the task."""
        taken = {name for part in self.parts for name in part.takes}
        return tuple([part.name for part in self.parts if part.name not in taken])

    @property
    def features(self) -> Features:
        """Depth, branching and cross-dependency; rounds of messages belong to a team, and are 0 here.

        >>> SHAPES["diamond"].features, SHAPES["tree-2x3"].features
        (Features(depth=1, branching=4, cross_dep=4, comm_rounds=0), Features(depth=2, branching=3, cross_dep=0, comm_rounds=0))
        """
        lead = {part.name: part.lead for part in self.parts}
        edges = {(name, part.name) for part in self.parts for name in part.takes}
        cross = [edge for edge in edges if lead[edge[0]] != edge[1] and lead[edge[1]] != edge[0]]
        depth = max([len(_leaders(name, lead)) for name in lead])
        return Features(depth, max(Counter(lead.values()).values()), len(cross), 0)


def chain(n: int) -> Shape:
    """Return n parts, each of which takes the result of the one before it; one agent leads all."""
    return Shape(f"chain-{n}", tuple([Part(f"p{k}", (f"p{k - 1}",) if k > 1 else ()) for k in range(1, n + 1)]))


def relay(n: int) -> Shape:
    """Return a chain in which each part's agent leads the one whose result it takes."""
    parts = [Part(f"p{k}", (f"p{k - 1}",) if k > 1 else (), f"p{k + 1}" if k < n else None) for k in range(1, n + 1)]
    return Shape(f"relay-{n}", tuple(parts))


def fan(n: int) -> Shape:
    """Return n parts that have nothing to do with each other."""
    return Shape(f"fan-{n}", tuple([Part(f"p{k}") for k in range(1, n + 1)]))


def gather(n: int) -> Shape:
    """Return n parts and one more that takes all their results."""
    parts = fan(n).parts
    return Shape(f"gather-{n}", (*parts, Part("join", tuple([part.name for part in parts]))))


def tree(n_leads: int, n_workers: int, *, n_crossed: int = 0) -> Shape:
    """Return parts that each take the results of their own workers; `n_crossed` workers also take one of the team before.

    The crossed ones are the first workers of the second team, then of the third and so on.
    """
    parts: list[Part] = []
    for k in range(1, n_leads + 1):
        names = [f"t{k}w{m}" for m in range(1, n_workers + 1)]
        for m, name in enumerate(names, 1):
            is_crossed = k > 1 and (k - 2) * n_workers + m <= n_crossed
            parts.append(Part(name, (f"t{k - 1}w{m}",) if is_crossed else (), f"t{k}"))
        parts.append(Part(f"t{k}", tuple(names)))
    return Shape(f"tree-{n_leads}x{n_workers}" + (f"-crossed-{n_crossed}" if n_crossed else ""), tuple(parts))


def _ladder(n: int) -> Shape:
    """Return two chains of n parts; every part of the second also takes the result beside it in the first."""
    parts: list[Part] = []
    for k in range(1, n + 1):
        parts.append(Part(f"a{k}", (f"a{k - 1}",) if k > 1 else ()))
        parts.append(Part(f"b{k}", (f"b{k - 1}", f"a{k}") if k > 1 else (f"a{k}",)))
    return Shape(f"ladder-{n}", tuple(parts))


def _leaders(name: str, lead: dict[str, str | None]) -> list[str | None]:
    above = lead[name]
    return [above] if above is None else [above, *_leaders(above, lead)]


_DIAMOND = Shape("diamond", (Part("top"), Part("left", ("top",)), Part("right", ("top",)), Part("join", ("left", "right"))))

#: The named shapes.
SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        chain(3), chain(5), relay(3), fan(4), fan(8), gather(3), _DIAMOND,
        tree(2, 3), tree(2, 3, n_crossed=2), tree(3, 2), _ladder(3),
    )
}  # fmt: skip
