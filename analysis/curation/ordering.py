"""The order of training rows: a published curriculum over one score, then refinements of our own, then local shuffling.

Decides in which sequence the parts apply, from the widest to the most local, and what is measured of an order. A row that
lacks what a part goes by (a score, coupling bits, a mode) keeps its place in that part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from analysis.curation import published, scheduling
from analysis.curation.fields import Count, Positive, Share, means
from analysis.curation.published import Indices

Id = TypeVar("Id", bound=Hashable)
Floats = npt.NDArray[np.float64]

#: Layers, sections and radius of each method as published.
_DEFAULTS = {"fo": (5, 1, 0.0), "zig": (5, 1, 0.0), "str": (3, 2, 0.225), "saw": (2, 3, 0.075)}


class Ordering(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the rows of a data set are ordered: `method`, cycles, boundaries, continuity, diversity, jitter, in this sequence."""

    method: Annotated[
        Literal["none", "sorted", "fo", "zig", "seg", "str", "saw"],
        means("order by the score: as given, sorted, or folded, zigzag, drawn ends, STR, SAW (arXiv 2605.30334)"),
    ] = "saw"
    score: Annotated[Literal["residual_norm", "coupling_bits", "d_req", "d_orch", "joint"], means("what rows are ordered by")] = (
        "residual_norm"
    )
    direction: Annotated[
        Literal["ascending", "descending"], means("whether a low or a high score comes first; `low` below means first")
    ] = "ascending"
    layers: Annotated[
        Annotated[int, Meta(ge=1)] | None, means("layers of fo, zig (5 where left out), str (3) and saw (2)", "layers")
    ] = None
    sections: Annotated[
        Annotated[int, Meta(ge=1)] | None, means("sections of str (2 where left out) and saw (3)", "sections")
    ] = None
    radius: Annotated[
        Share | None, means("how far around each border str (0.225 where left out) and saw (0.075) reach", "share of rows")
    ] = None
    front_share: Annotated[Share, means("size of the front that seg draws", "share of rows")] = 0.1
    back_share: Annotated[Share, means("size of the back that seg draws", "share of rows")] = 0.1
    sides: Annotated[
        Literal["low-high", "high-low", "low-low", "high-high"], means("the ends that seg draws front and back from")
    ] = "low-high"
    n_cycles: Annotated[Count, means("times that the rows go from loose to tight coupling; 0 and 1: off", "cycles")] = 0
    boundary_share: Annotated[
        Annotated[float, Meta(ge=0, le=0.5)],
        means("first and last part of each interface's rows that get its lowest and highest scores; 0: off", "share of rows"),
    ] = 0.0
    interface_share: Annotated[
        Annotated[float, Meta(gt=0, le=0.5)],
        means("least share of the squared residual that the second of two components has at an interface", "share"),
    ] = 0.25
    max_jump: Annotated[
        Positive | None, means("largest difference of the score between neighbours; off where left out", "unit of the score")
    ] = None
    diversity_window: Annotated[
        Count, means("rows in which no failure mode has more than its share + 1; 0 and 1: off", "rows")
    ] = 0
    jitter_window: Annotated[Count, means("rows that are shuffled among themselves, last of all; 0 and 1: off", "rows")] = 0

    def __post_init__(self) -> None:
        if self.front_share + self.back_share > 1:
            raise ValueError(f"front_share + back_share is {self.front_share + self.back_share:g}, more than all rows")


class Marks(NamedTuple):
    """What the refinements go by, one value a row, None where there is none: coupling bits, interface, failure mode."""

    bits: Sequence[float | None] | None = None
    interfaces: Sequence[str | None] | None = None
    modes: Sequence[str | None] | None = None


class OrderMetrics(NamedTuple):
    """What an order looks like, in the unit of the score; rows without a score are passed over.

    `max_jump`, `total_variation`: largest and summed difference of neighbours. `head`, `tail`: means of the first and last
    tenth. `window_variance`: mean variance within consecutive whole windows.
    """

    max_jump: float
    total_variation: float
    head: float
    tail: float
    window_variance: float


def order(
    ids: Sequence[Id], scores: Sequence[float | None], policy: Ordering, *, rng: np.random.Generator, marks: Marks | None = None
) -> list[Id]:
    """Return the ids in the order that a policy asks for; equal scores keep the order in which they come.

    Parameters
    ----------
    ids, scores : of the rows; None and NaN are rows without a score, which keep their places
    rng : of the shuffles of `seg` and of the jitter alone; used through `random()`

    >>> order("abcdefghij", range(10), Ordering(method="fo", layers=2), rng=np.random.default_rng(0))
    ['a', 'c', 'e', 'g', 'i', 'b', 'd', 'f', 'h', 'j']
    """
    given, marks = np.array(scores, dtype=np.float64), marks or Marks()
    found = scheduling.among(np.arange(len(ids)), ~np.isnan(given), lambda rows: _published(rows, given, policy, rng))
    if marks.bits is not None and policy.n_cycles > 1:
        found = scheduling.cyclic(found, np.array(marks.bits, dtype=np.float64), policy.n_cycles)
    if marks.interfaces is not None and policy.boundary_share > 0:
        found = scheduling.sharpened(found, _key(given, policy), marks.interfaces, share=policy.boundary_share)
    if policy.max_jump is not None:
        found = scheduling.continuous(found, given, policy.max_jump)
    if marks.modes is not None and policy.diversity_window > 1:
        found = scheduling.diverse(found, marks.modes, policy.diversity_window)
    ordered = [ids[row] for row in published.jitter(found, policy.jitter_window, rng=rng).tolist()]
    if not is_permutation(ids, ordered):
        raise AssertionError("an order lost or repeated a row")
    return ordered


def is_permutation(before: Sequence[Hashable], after: Sequence[Hashable]) -> bool:
    """Return whether both hold the same ids equally often. Equal lengths alone, as the published check asks, prove nothing.

    >>> is_permutation("aab", "aba"), is_permutation("aab", "abb")
    (True, False)
    """
    return Counter(before) == Counter(after)


def order_metrics(scores: Sequence[float | None], *, window: int = 50) -> OrderMetrics | None:
    """Return the measures of scores in their order; None where no row has one.

    >>> order_metrics(range(20), window=5)
    OrderMetrics(max_jump=1.0, total_variation=19.0, head=0.5, tail=18.5, window_variance=2.0)
    """
    given = np.array(scores, dtype=np.float64)
    given = given[~np.isnan(given)]
    if not len(given):
        return None
    jumps = np.abs(np.diff(given, prepend=given[0]))
    n_end, width = max(1, round(len(given) / 10)), min(window, len(given))
    windows = given[: len(given) // width * width].reshape(-1, width)
    means = (given[:n_end].mean(), given[-n_end:].mean(), windows.var(axis=1).mean())
    return OrderMetrics(float(jumps.max()), float(jumps.sum()), *map(float, means))


def _key(scores: Floats, policy: Ordering) -> Floats:
    return scores if policy.direction == "ascending" else -scores


def _published(rows: Indices, scores: Floats, policy: Ordering, rng: np.random.Generator) -> Indices:
    if policy.method == "none":
        return rows
    found = rows[np.argsort(_key(scores, policy)[rows], kind="stable")]
    if policy.method == "sorted":
        return found
    if policy.method == "seg":
        return published.ends(found, (policy.front_share, policy.back_share), policy.sides, rng=rng)
    layers, n_sections, radius = _DEFAULTS[policy.method]
    layers = policy.layers or layers
    if policy.method in ("fo", "zig"):
        return (published.fold if policy.method == "fo" else published.zigzag)(found, layers)
    n_sections = policy.sections or n_sections
    radius = radius if policy.radius is None else policy.radius
    return published.sections(found, n_sections, radius, layers, returns=policy.method == "saw")
