"""Runs that work alike, and patterns that occur together, as families with names.

Decides what is one family and how many there are; where halves of the runs do not agree on any division, there is one
family and a sentence that says so. Hidden here: how the answer is kept from depending on the order of the runs.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.orchestration.patterns.features import embed, joined, wl_features
from analysis.orchestration.patterns.forms import canonical_form
from analysis.orchestration.patterns.graphs import PatternGraph
from analysis.orchestration.patterns.naming import structure_name
from analysis.streams import stream

if TYPE_CHECKING:
    from analysis.orchestration.patterns.mining import Mined

#: A division into families is believed where halves of the runs agree on it at least this far ...
MIN_STABILITY = 0.7
#: ... and the squared distances within families are at most this share of those in a cloud without groups.
MAX_SPREAD = 0.9

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

_N_SPLITS = 8
_MAX_HALF = 2_000  # runs in a half
_TIE = 0.005  # divisions whose stability differs by less are equally stable
_N_EXEMPLARS = 5
_MAX_JACCARD = 0.5  # average distance up to which patterns are one family


@dataclass(frozen=True)
class Family:
    """Runs that work alike, or patterns that occur together.

    family_id : hash of the form of the medoid: the same wherever the same medoid is found
    name : in words from the structure of the medoid
    medoid : the trace or pattern nearest to all others
    members : trace or pattern ids, sorted
    exemplars : up to 5 members, the medoid first, then the nearest of other forms
    n_forms : how many different graphs the members are
    stability : how well halves of all runs agree on this family, in [0, 1] (mean Jaccard overlap with the family of a half
        nearest to it); None for the only family and for patterns
    """

    family_id: str
    name: str
    medoid: str
    members: tuple[str, ...]
    exemplars: tuple[str, ...]
    n_forms: int
    stability: float | None = None


@dataclass(frozen=True)
class Families:
    """All families, the largest first, and how the number of them was found.

    stability : for each number of families that was tried, how well two halves of the runs agree (adjusted Rand index)
    spread : for each, the squared distances within families / those in a cloud without groups divided into as many
    note : what there is to say about it, in a sentence
    """

    families: tuple[Family, ...]
    stability: dict[int, float]
    spread: dict[int, float]
    note: str

    def membership(self, ids: Sequence[str]) -> Any:
        """Return which of the ids each family holds, scipy CSR, bool, shape (n_families, n_ids)."""
        from scipy import sparse

        place = {name: n for n, name in enumerate(ids)}
        held = [(row, place[name]) for row, family in enumerate(self.families) for name in family.members if name in place]
        rows, columns = zip(*held, strict=True) if held else ((), ())
        return sparse.csr_array((np.ones(len(held), bool), (rows, columns)), shape=(len(self.families), len(ids)))


def trace_families(graphs: Sequence[PatternGraph], *, max_families: int = 12, seed: int = 0) -> Families:
    """Return the families of runs. The order of the graphs, and of their nodes and edges, changes nothing.

    Runs of one form are in one family. Forms are clustered by what surrounds their nodes (k-means on WL features, a form
    weighing as many runs as it has). How many families: random halves of the runs are clustered apart, and the number on
    which they agree best is taken, the larger of two equal ones (Lange et al. 2004). Only numbers count on which halves agree
    (adjusted Rand index of 0.7 or more), and whose families are tighter than those that one normal distribution of the same
    covariance falls into (by a tenth; after Liu et al. 2008, SigClust), because halves of a large cloud without groups
    agree too. Where no number does, there is one family.
    """
    from threadpoolctl import threadpool_limits

    runs_of: dict[str, list[str]] = defaultdict(list)
    graph_of: dict[str, PatternGraph] = {}
    for form, graph in sorted(zip(_forms(graphs), graphs, strict=True), key=lambda pair: (pair[0], pair[1].trace_id)):
        graph_of.setdefault(form, graph)
        runs_of[form].append(graph.trace_id)
    shapes = _Shapes(list(runs_of), list(runs_of.values()), list(graph_of.values()))
    if len(shapes.forms) < 2:
        note = f"all {len(graphs)} runs have one form" if graphs else "there are no runs"
        return Families(tuple(_found(shapes, np.zeros((len(graph_of), 1)), [np.zeros(len(graph_of), np.intp)])), {}, {}, note)
    points = embed(wl_features(joined(shapes.graphs)), weights=shapes.weights)
    with threadpool_limits(1):  # the points are few: threads would wait for each other
        tried = _tried(points, shapes.weights, max_families, seed)
        k, note = _how_many(tried, len(graphs))
        label = _kmeans(points, k, seed, shapes.weights).labels_.astype(np.intp)
    found = _found(shapes, points, [label, *(tried[k].halves if k > 1 else ())])
    stability, spread = {k: trial.stability for k, trial in tried.items()}, {k: trial.spread for k, trial in tried.items()}
    return Families(_sorted(_told_apart(found, shapes)), stability, spread, note)


def family_ids(graphs: Sequence[PatternGraph]) -> list[str]:
    """Return for each graph the id of a family that it is the medoid of; equal for graphs of one form.

    Raises
    ------
    ValueError
        If a graph has a cycle.
    """
    return [_id(form) for form in _forms(graphs)]


def pattern_families(mined: Mined) -> Families:
    """Return the families of patterns: those that occur in nearly the same runs.

    Average linkage over the Jaccard distances of where they occur, cut at 0.5. Patterns number a few thousand at most: time
    and memory grow with their square.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    order = sorted(range(len(mined.patterns)), key=lambda n: mined.patterns[n].pattern_id)
    patterns = [mined.patterns[n] for n in order]
    if not patterns:
        return Families((), {}, {}, "there are no patterns")
    held = mined.occurrences[order].astype(np.float32)
    size = np.asarray(held.sum(axis=1)).ravel()
    both = (held @ held.T).toarray()
    apart = 1 - both / np.maximum(size[:, None] + size[None, :] - both, 1)
    np.fill_diagonal(apart, 0)
    label = np.ones(1, int)
    if len(patterns) > 1:
        label = fcluster(linkage(squareform(apart, checks=False), "average"), _MAX_JACCARD, criterion="distance")
    found = []
    for number in np.unique(label):
        members = np.flatnonzero(label == number)
        near = members[np.argsort(apart[np.ix_(members, members)].sum(axis=1), kind="stable")]
        medoid, ids = patterns[near[0]], [patterns[n].pattern_id for n in near]
        found.append(Family(
            family_id=_id(medoid.pattern_id), name=structure_name(medoid.nodes, medoid.edges), medoid=medoid.pattern_id,
            members=tuple(sorted(ids)), exemplars=tuple(ids[:_N_EXEMPLARS]), n_forms=len(ids),
        ))  # fmt: skip
    return Families(_sorted(found), {}, {}, f"{len(found)} families of {len(patterns)} patterns, by the runs they occur in")


def _forms(graphs: Sequence[PatternGraph]) -> list[str]:
    known: dict[Any, str] = {}
    for graph in graphs:
        drawn = graph.labels, graph.edges
        if drawn not in known:
            known[drawn] = canonical_form(graph)
    return [known[graph.labels, graph.edges] for graph in graphs]


class _Shapes(NamedTuple):
    """The forms of a corpus, sorted: the runs of each, sorted, and the graph of its first run."""

    forms: list[str]
    runs: list[list[str]]
    graphs: list[PatternGraph]

    @property
    def weights(self) -> Ints:
        return np.array([len(runs) for runs in self.runs], np.intp)


class _Trial(NamedTuple):
    """One number of families: how well halves agree, how tight the families are, and every form's label by each half."""

    stability: float
    spread: float
    halves: list[Ints]


def _kmeans(points: Floats, k: int, seed: int, weights: Ints | None = None, n_init: int = 10) -> Any:
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=n_init, random_state=seed).fit(points, sample_weight=weights)


def _tried(points: Floats, weights: Ints, max_families: int, seed: int) -> dict[int, _Trial]:
    rng = stream(seed, "families", "halves")
    run = np.repeat(np.arange(len(points)), weights)
    draws = [run[np.argsort(rng.random(len(run)), kind="stable")][: 2 * _MAX_HALF] for _ in range(_N_SPLITS)]
    halves = [(drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]) for drawn in draws]
    n_told = min(len(np.unique(points[half], axis=0)) for pair in halves for half in pair if len(half))
    cloud = _cloud(points[draws[0]], seed)
    found = {}
    for k in range(2, min(max_families, n_told) + 1):
        pairs = [[_kmeans(points[half], k, seed, n_init=3).predict(points).astype(np.intp) for half in pair] for pair in halves]
        inside, outside = (_kmeans(sample, k, seed, n_init=3).inertia_ for sample in (points[draws[0]], cloud))
        stability = float(np.mean([_agreement(a[run], b[run]) for a, b in pairs]))
        found[k] = _Trial(stability, float(inside / outside) if outside else 0.0, [label for pair in pairs for label in pair])
    return found


def _cloud(points: Floats, seed: int) -> Floats:
    """Return as many points of one normal distribution with the same mean and covariance."""
    from scipy.special import ndtri

    mean = points.mean(axis=0)
    variance, axes = np.linalg.eigh(np.atleast_2d(np.cov(points.T)))
    drawn = ndtri(np.maximum(stream(seed, "families", "cloud").random(points.shape), 2.0**-53))
    cloud: Floats = mean + (drawn * np.sqrt(np.maximum(variance, 0))) @ axes.T
    return cloud


def _how_many(tried: dict[int, _Trial], n_runs: int) -> tuple[int, str]:
    if not tried:
        return 1, f"one family: {n_runs} runs are too few, or too much alike, to divide them"
    believed = {k: trial for k, trial in tried.items() if trial.stability >= MIN_STABILITY and trial.spread <= MAX_SPREAD}
    if not believed:
        k, best = max(tried.items(), key=lambda item: item[1].stability)
        return 1, (f"no structure: on no number of families do random halves of the runs agree to {MIN_STABILITY} while the "
                   f"families are tighter than {MAX_SPREAD} times those of a cloud without groups; {k} come nearest, with "
                   f"{best.stability:.2f} and {best.spread:.2f}")  # fmt: skip
    most = max(trial.stability for trial in believed.values())
    k = max(k for k, trial in believed.items() if trial.stability >= most - _TIE)
    return k, (f"{k} families: random halves of the runs agree on them to {tried[k].stability:.2f} (adjusted Rand index), and "
               f"they spread {tried[k].spread:.2f} times as far as those of a cloud without groups")  # fmt: skip


def _agreement(a: Ints, b: Ints) -> float:
    """Return the adjusted Rand index of two divisions (Hubert & Arabie 1985)."""

    def n_pairs(counts: Any) -> float:
        return float((counts * (counts - 1) / 2).sum())

    table = np.zeros((int(a.max()) + 1, int(b.max()) + 1))
    np.add.at(table, (a, b), 1)
    both, in_a, in_b, total = n_pairs(table), n_pairs(table.sum(axis=1)), n_pairs(table.sum(axis=0)), n_pairs(table.sum())
    by_chance = in_a * in_b / total if total else 0.0
    most = (in_a + in_b) / 2
    return (both - by_chance) / (most - by_chance) if most != by_chance else 1.0


def _found(shapes: _Shapes, points: Floats, labels: Sequence[Ints]) -> list[Family]:
    """Return the families; `labels` are of each form, those of all runs first, then those that halves gave."""
    label, *halves = labels
    found = []
    for number in np.unique(label):
        inside = np.flatnonzero(label == number)
        centre = np.average(points[inside], axis=0, weights=shapes.weights[inside])
        near = inside[np.argsort(((points[inside] - centre) ** 2).sum(axis=1).round(12), kind="stable")].tolist()
        medoid = shapes.graphs[near[0]]
        overlap = [_overlap(label == number, half, shapes.weights) for half in halves]
        found.append(Family(
            family_id=_id(shapes.forms[near[0]]), name=structure_name(medoid.labels, medoid.edges), medoid=medoid.trace_id,
            members=tuple(sorted([run for n in near for run in shapes.runs[n]])),
            exemplars=tuple([shapes.graphs[n].trace_id for n in near[:_N_EXEMPLARS]]), n_forms=len(near),
            stability=float(np.mean(overlap)) if overlap else None,
        ))  # fmt: skip
    return found


def _overlap(inside: npt.NDArray[np.bool_], half: Ints, weights: Ints) -> float:
    both = np.bincount(half[inside], weights[inside], minlength=int(half.max()) + 1)
    size = np.bincount(half, weights, minlength=len(both))
    return float((both / (size + weights[inside].sum() - both)).max())


def _told_apart(families: Sequence[Family], shapes: _Shapes) -> list[Family]:
    """Return families of one name with the length of their medoids added to it, and their id where that is equal too."""
    n_steps = {graph.trace_id: len(graph.labels) for graph in shapes.graphs}
    shared = Counter(family.name for family in families)
    longer = [f"{f.name} ({n_steps[f.medoid]} steps)" if shared[f.name] > 1 else f.name for f in families]
    again = Counter(longer)
    return [
        replace(family, name=f"{name[:-1]}, {family.family_id})" if again[name] > 1 else name)
        for family, name in zip(families, longer, strict=True)
    ]


def _sorted(families: Sequence[Family]) -> tuple[Family, ...]:
    return tuple(sorted(families, key=lambda family: (-len(family.members), family.family_id)))


def _id(form: str) -> str:
    return "f" + hashlib.blake2b(form.encode(), digest_size=8).hexdigest()
