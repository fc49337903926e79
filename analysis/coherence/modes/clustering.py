"""Modes of failure: groups of alike profiles that come back when half of the traces is left out, or the refusal to name any.

Profiles are compared by Hellinger distance. Hidden here: how many modes there are, and what they must stand up to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.coherence.modes import partition
from analysis.coherence.modes.naming import TopCell, distinct, in_words, name_of
from analysis.coherence.modes.partition import k_means, nearest, settled, shuffled
from analysis.coherence.modes.profiles import Profiles, Source

if TYPE_CHECKING:
    import pandas as pd

MIN_STABILITY: Final = 0.6  # clear and blurred planted modes reach 0.8 and more, structureless profiles 0.2
MIN_PROFILES: Final = 20  # of which each half has ten
_MOST_LEFT: Final = 0.9  # spread within groups, as a part of that with shuffled cells: planted 0.65-0.9, shuffled 0.93-1.02
_ALIKE: Final = 0.9  # mean affinity (1 - Hellinger distance² / 2) to the common profile of profiles that are all of one kind
_MIN_AGREEMENT: Final = 0.3  # planted modes reach 0.6 and more, a cloud that is long in one direction 0 to 0.45
_NEAR_BEST: Final = 0.1  # ks within this of the most stable one are as good; which holds together best then decides
_MAX_K: Final = 12
_MIN_SIZE: Final = (5, 0.02)  # traces, and share of all: what is rarer is an odd trace, no mode
_MAX_TRIED: Final = 5_000  # rows for stability, null and bootstrap, which group dozens of times
_N_SPLITS, _N_NULLS, _N_DRAWS, _N_STARTS = 8, 3, 20, 8
_N_EXEMPLARS, _N_TOP = 5, 8

Floats = npt.NDArray[np.floating]


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """A mode of failure.

    mode_id : hash of its rounded top cells, so that the same mode found again has the same id
    size : traces in it;  jaccard : mean overlap with its likeness in subsamples of 80 %; below 0.6 it is not firm
    exemplars : the traces nearest to the centre;  top_cells : its largest cells
    centre : mean of the square roots of its profiles, one number a cell;  radius : 95 % of its traces lie within
    is_named : whether a person gave the name;  notes : what people wrote about it
    """

    mode_id: str
    name: str
    words: str
    size: int
    jaccard: float | None
    exemplars: tuple[str, ...]
    top_cells: tuple[TopCell, ...]
    centre: tuple[float, ...]
    radius: float
    is_named: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_firm(self) -> bool | None:
        """Whether the mode comes back in subsamples; None where that was not measured."""
        return None if self.jaccard is None else self.jaccard >= MIN_STABILITY


@dataclass(frozen=True, eq=False)
class Modes:
    """The modes of a set of profiles, largest first, or why there are none (`refusal`).

    profiles : what was grouped, sorted by trace
    members : trace_id, mode_id, distance (Hellinger, to the centre); every trace, sorted; empty after a refusal
    stability : split-half, at the number of modes; None for a single mode;  null_stability : the same where cells are shuffled
    spread_left : spread within the modes / that within as many groups of shuffled profiles
    by_k : stability for each number of groups that was tried
    agreement : adjusted Rand index with the second view (HDBSCAN after PCA), over the traces it puts into its `n_dense` groups
    n_sampled : profiles that the modes were learned from
    """

    profiles: Profiles
    modes: tuple[Mode, ...]
    members: pd.DataFrame
    refusal: str = ""
    stability: float | None = None
    null_stability: float | None = None
    spread_left: float | None = None
    by_k: tuple[tuple[int, float], ...] = ()
    agreement: float | None = None
    n_dense: int | None = None
    n_sampled: int = 0

    @property
    def n_modes(self) -> int:
        """How many modes there are; 0 after a refusal."""
        return len(self.modes)

    @property
    def caution(self) -> str:
        """What a reader should know about several modes that the second view does not see; empty where it does."""
        if self.n_modes < 2 or (self.agreement is not None and self.agreement >= _MIN_AGREEMENT):
            return ""
        said = "finds no groups" if self.agreement is None else f"agrees little (adjusted Rand index {self.agreement:.2f})"
        return f"The second view, by density, {said}: these modes may cut one gradual range into pieces."


class _Choice(NamedTuple):
    k: int  # 0: no number of groups stands
    stability: float | None
    null_stability: float | None
    spread_left: float | None
    by_k: tuple[tuple[int, float], ...]
    centres: Floats


def find_modes(profiles: Profiles, *, rng: np.random.Generator, max_sample: int = 20_000) -> Modes:
    """Return the failure modes of profiles, or the sentence that says why none are named.

    The number of modes is the one whose groups, found in one random half, foretell the groups of the other best; of those
    nearly as stable, the one that holds together best beside shuffled profiles. Refused where the stability stays below
    0.6, or where groups hold together hardly better than with shuffled cells. One mode is allowed: all profiles alike.

    Parameters
    ----------
    profiles : at least 20, else refused; their order does not matter
    rng : draws samples and starts
    max_sample : profiles that modes are learned from; all are assigned

    Notes
    -----
    Stability: Tibshirani & Walther 2005. Spread beside a reference: Tibshirani, Walther & Hastie 2001. Bootstrap Jaccard:
    Hennig 2007. Stability, null and bootstrap rest on at most 5,000 of the sample.
    """
    order = np.argsort(np.array(profiles.trace_ids, dtype=str), kind="stable")
    given = profiles.take(order)
    n = len(order)
    if n < MIN_PROFILES:
        return _refused(given, f"No modes: {n} {'profile' if n == 1 else 'profiles'}, and at least {MIN_PROFILES} are needed.")
    sample = _drawn(n, max_sample, rng)
    tried = sample[np.sort(_drawn(len(sample), _MAX_TRIED, rng))]
    choice = _choose(given.matrix[tried], rng)
    if not choice.k:
        return _refused(given, _why(choice), choice, len(sample))
    points = np.sqrt(given.matrix)
    centres = settled(points[sample], choice.centres)
    centres = centres[np.unique(nearest(points, centres)[0])]
    stable = partition.jaccards(points[tried], centres, rng, n_draws=_N_DRAWS)
    dense = partition.dense_groups(points[sample]) if choice.k > 1 else np.zeros(len(sample), np.intp)
    labels, _ = nearest(points, centres)
    inside = dense >= 0
    n_dense = len(np.unique(dense[inside]))
    agreement = partition.adjusted_rand(labels[sample][inside], dense[inside]) if choice.k > 1 and n_dense > 1 else None
    return assembled(
        given, labels, stable.tolist(), stability=choice.stability, null_stability=choice.null_stability,
        spread_left=choice.spread_left, by_k=choice.by_k, agreement=agreement, n_dense=n_dense, n_sampled=len(sample),
    )  # fmt: skip


def assembled(profiles: Profiles, labels: npt.NDArray[np.intp], jaccard: Sequence[float | None], **facts: object) -> Modes:
    """Return modes from the group of each profile, numbered from 0; `facts` are the other fields of `Modes`."""
    import pandas as pd

    groups = [np.flatnonzero(labels == group) for group in range(len(jaccard))]
    place = sorted(range(len(groups)), key=lambda group: (-len(groups[group]), group))
    modes = [described(profiles, groups[group], jaccard=jaccard[group]) for group in place]
    names = distinct([mode.name for mode in modes])
    ids = distinct([mode.mode_id for mode in modes], "-{}")
    modes = [msgspec.structs.replace(m, name=name, mode_id=i) for m, name, i in zip(modes, names, ids, strict=True)]
    members = pd.concat([members_of(profiles, groups[group], mode) for group, mode in zip(place, modes, strict=True)])
    members = members.sort_values("trace_id", kind="stable").reset_index(drop=True)
    return Modes(profiles, tuple(modes), members, **facts)  # type: ignore[arg-type]


def described(profiles: Profiles, rows: npt.NDArray[np.intp], *, jaccard: float | None = None) -> Mode:
    """Return the mode that some profiles make up, named by rule."""
    mine = profiles.matrix[rows].astype(np.float64)
    centre = np.sqrt(mine).mean(axis=0)
    distance = np.linalg.norm(np.sqrt(mine) - centre, axis=1)
    shares, overall = mine.mean(axis=0), profiles.matrix.mean(axis=0, dtype=np.float64)
    cells = [TopCell(c, float(s), float(a)) for c, s, a in zip(profiles.cells, shares.round(6), overall.round(6), strict=True)]
    ranked = sorted(cells, key=lambda cell: (-cell.share, cell.cell))
    present = [cell for cell in ranked if cell.share > 0]
    near = np.lexsort((np.array(profiles.trace_ids, dtype=str)[rows], distance.round(9)))[:_N_EXEMPLARS]
    return Mode(
        mode_id=_identity(profiles.source, ranked),
        name=name_of(present, profiles.source),
        words=in_words(present),
        size=len(rows),
        jaccard=None if jaccard is None else round(float(jaccard), 4),
        exemplars=tuple(profiles.trace_ids[rows[n]] for n in near),
        top_cells=tuple(present[:_N_TOP]),
        centre=tuple(centre.round(9).tolist()),
        radius=round(float(np.quantile(distance, 0.95)), 9),
    )


def members_of(profiles: Profiles, rows: npt.NDArray[np.intp], mode: Mode) -> pd.DataFrame:
    """Return the rows of `Modes.members` of one mode."""
    import pandas as pd

    distance = np.linalg.norm(np.sqrt(profiles.matrix[rows].astype(np.float64)) - np.array(mode.centre), axis=1)
    trace_ids = pd.Series([profiles.trace_ids[row] for row in rows], dtype=str)
    return pd.DataFrame({"trace_id": trace_ids, "mode_id": mode.mode_id, "distance": distance.round(9)})


def _choose(profiles: Floats, rng: np.random.Generator) -> _Choice:
    """Return how many groups stand up to split halves and to shuffled cells."""
    points = np.sqrt(profiles)
    n_distinct = len(np.unique(points, axis=0))
    if n_distinct == 1:
        return _Choice(1, None, None, None, (), points[:1])
    n_least = max(_MIN_SIZE[0], _MIN_SIZE[1] * len(points))
    ks = range(2, min(_MAX_K, n_distinct, len(points) // 10) + 1)
    stable = partition.stabilities(points, ks, rng, n_splits=_N_SPLITS)
    fits = {k: k_means(points, k, rng, n_starts=_N_STARTS) for k in ks}
    nulls = [np.sqrt(shuffled(profiles, rng)) for _ in range(_N_NULLS)]
    null = partition.stabilities(nulls[0], ks, rng, n_splits=_N_SPLITS // 2)
    left = {
        k: _spread(points, fits[k]) / max(float(np.mean([_spread(p, k_means(p, k, rng, n_starts=2)) for p in nulls])), 1e-9)
        for k in ks
    }
    by_k = tuple((k, round(stable[k], 4)) for k in ks)
    standing = [k for k in ks if stable[k] >= MIN_STABILITY and left[k] <= _MOST_LEFT and _smallest(points, fits[k]) >= n_least]
    if standing:
        best = max(stable[k] for k in standing)
        k = min([k for k in standing if stable[k] >= best - _NEAR_BEST], key=lambda k: left[k])
        return _Choice(k, round(stable[k], 4), round(null[k], 4), round(left[k], 4), by_k, fits[k])
    k = max(ks, key=lambda k: stable[k])
    common = points.mean(axis=0, keepdims=True)
    if float(np.linalg.norm(common)) >= _ALIKE:
        return _Choice(1, None, None, None, by_k, common)
    return _Choice(0, round(stable[k], 4), round(null[k], 4), round(left[k], 4), by_k, common)


def _spread(points: Floats, centres: Floats) -> float:
    """Return the part of the squared distances to the mean that is left to the nearest centres."""
    total = float(((points - points.mean(axis=0)) ** 2).sum(dtype=np.float64))
    return float((nearest(points, centres)[1] ** 2).sum()) / total if total else 1.0


def _smallest(points: Floats, centres: Floats) -> int:
    return int(np.bincount(nearest(points, centres)[0], minlength=len(centres)).min())


def _why(choice: _Choice) -> str:
    k = max(dict(choice.by_k), key=dict(choice.by_k).__getitem__)
    if choice.stability is not None and choice.stability < MIN_STABILITY:
        return (
            f"No modes: groups found in one half of the traces do not come back in the other (stability {choice.stability:.2f} "
            f"at best, with {k} groups; at least {MIN_STABILITY} is needed; with shuffled cells {choice.null_stability:.2f})."
        )
    if choice.spread_left is not None and choice.spread_left <= _MOST_LEFT:
        n, share = _MIN_SIZE
        return f"No modes: groups come back, but the smallest holds fewer than {n} profiles or {share:.0%} of them: odd traces."
    return (
        f"No modes: groups come back (stability {choice.stability:.2f}, {k} groups; with shuffled cells "
        f"{choice.null_stability:.2f}), but hardly hold together better than with shuffled cells ({choice.spread_left:.2f} of "
        f"their spread; at most {_MOST_LEFT} is needed): single cells differ, not what goes together."
    )


def _refused(profiles: Profiles, sentence: str, choice: _Choice | None = None, n_sampled: int = 0) -> Modes:
    import pandas as pd

    columns = {"trace_id": str, "mode_id": str, "distance": float}
    members = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in columns.items()})
    facts = {name: getattr(choice, name) for name in ("stability", "null_stability", "spread_left", "by_k")} if choice else {}
    return Modes(profiles, (), members, sentence, n_sampled=n_sampled, **facts)


def _identity(source: Source, ranked: Sequence[TopCell]) -> str:
    """Return the hash of the six largest cells, their shares rounded to twentieths."""
    top = sorted((-round(cell.share * 20), cell.cell) for cell in ranked if round(cell.share * 20))[:6]
    text = "\n".join([source, *(f"{-share} {cell}" for share, cell in top)])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _drawn(n: int, most: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return at most so many of n places, drawn without replacement and sorted."""
    return np.sort(np.argsort(rng.random(n), kind="stable")[:most])
