"""Polytopes whose worlds are too many to list, or that linear couplings cut.

Small treewidth: one sparse quadratic program over the junction tree, then Wolfe's search with dynamic programming as its
oracle where the program would be large; else the same search with an integer program. All return a proven interval.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.coherence.encoding import linear_rows, narrow
from analysis.coherence.projection import Found, View
from analysis.coherence.tree import Tree, junction_tree, lowest, marginals
from analysis.coherence.wolfe import nearest_by_oracle
from analysis.coherence.worlds import Shape
from analysis.errors import RelationError

MAX_STATES = 500_000  # of the quadratic program
MAX_BAG_STATES = 512  # beyond which a bag makes the program dense, and the search is faster
MAX_STEPS = 400  # of the search with an integer program

Floats = npt.NDArray[np.float64]
#: slopes over the variables -> (world, proven lower bound of slopes . v)
Oracle = Callable[[Floats], tuple[Floats, float]]


class Cut(NamedTuple):
    """Linear couplings: rows @ z <= bounds, the first `n_equal` rows with equality."""

    rows: Floats
    bounds: Floats
    n_equal: int


class TreeBody(NamedTuple):
    """A polytope given by a junction tree, cut by couplings."""

    kept: tuple[int, ...]
    tree: Tree
    cut: Cut
    n_worlds: int | None = None

    def project(self, view: View, targets: Floats) -> Found:
        """Project each row by a quadratic program, and prove it by one exact minimum over the worlds."""
        wide = _widened(view, self.kept)
        rows = [_solve(self.tree, self.cut, wide, target) for target in targets]
        found = np.array([row[0][list(self.kept)] for row in rows])
        method = "quadratic program over a junction tree (clarabel)"
        return Found(found, np.array([row[1] for row in rows]), np.array([row[2] for row in rows]), method)


class SearchBody(NamedTuple):
    """A polytope known through an oracle for linear minima."""

    kept: tuple[int, ...]
    n: int
    oracle: Oracle
    method: str
    gap: float
    n_worlds: int | None = None

    def project(self, view: View, targets: Floats) -> Found:
        """Project each row by Wolfe's search."""
        wide = _widened(view, self.kept)
        found = np.empty((len(targets), len(self.kept)))
        lower, upper = np.empty(len(targets)), np.empty(len(targets))
        for row, target in enumerate(targets):
            world_of: dict[bytes, Floats] = {}

            def seen(slopes: Floats, world_of: dict[bytes, Floats] = world_of) -> tuple[Floats, float]:
                world, bound = self.oracle(wide.slopes(slopes, self.n))
                vertex = wide.coordinates(world[None, :])[0]
                world_of[vertex.tobytes()] = world
                return vertex, bound

            hull = nearest_by_oracle(target, seen, gap=self.gap, max_steps=MAX_STEPS)
            worlds = np.array([world_of[vertex.tobytes()] for vertex in hull.vertices])
            found[row] = (hull.weights @ worlds)[list(self.kept)]
            lower[row], upper[row] = hull.lower, float(np.linalg.norm(hull.point - target))
        return Found(found, lower, upper, self.method)


def large_polytope(shape: Shape, kept: tuple[int, ...]) -> TreeBody | SearchBody:
    """Return the polytope of a shape by the first route that fits.

    Raises
    ------
    RelationError
        If no world is admitted, or if linear couplings meet relations of a treewidth beyond 16.
    """
    tree, cut = junction_tree(shape._replace(couplings=())), _cut(shape)
    if tree is not None and not tree.bags:
        raise RelationError("relations", "no world satisfies all of them")
    is_small = tree is not None and tree.n_states <= MAX_STATES and max(len(b.states) for b in tree.bags) <= MAX_BAG_STATES
    if tree is not None and (is_small or shape.couplings):
        return TreeBody(kept, tree, cut)
    if shape.couplings:
        raise RelationError("relations", "linear couplings over relations this entangled are not supported", hint="split them")
    if tree is not None:
        return SearchBody(kept, tree.n, lambda g: lowest(tree, g), "Wolfe with dynamic programming as oracle", 1e-12)
    wide = narrow(shape)
    return SearchBody(kept, wide.n, _integer_oracle(wide), "Wolfe with an integer program as oracle (HiGHS)", 1e-9)


def is_satisfiable_large(shape: Shape) -> bool:
    """Return whether a distribution over the worlds fulfils the relations and the couplings."""
    tree = junction_tree(shape._replace(couplings=()))
    if tree is None:
        wide = narrow(shape)
        return _integer_oracle(wide)(np.zeros(wide.n))[1] < np.inf
    if not tree.bags or not shape.couplings:
        return bool(tree.bags)
    from scipy.optimize import linprog

    parts, cut = _program(tree), _cut(shape)
    rows = np.asarray(cut.rows @ parts.marginals[: cut.rows.shape[1]])
    found = linprog(
        np.zeros(tree.n_states),
        A_ub=rows[cut.n_equal :] if cut.n_equal < len(rows) else None,
        b_ub=cut.bounds[cut.n_equal :] if cut.n_equal < len(rows) else None,
        A_eq=_stack([parts.equal, rows[: cut.n_equal]]),
        b_eq=np.append(parts.bounds, cut.bounds[: cut.n_equal]),
    )
    return bool(found.status == 0)


def _cut(shape: Shape) -> Cut:
    ordered = sorted(shape.couplings, key=lambda coupling: not coupling.is_equality)
    rows = np.zeros((len(ordered), shape.n))
    for row, coupling in zip(rows, ordered, strict=True):
        for c, node in coupling.terms:
            row[node.parts[0]] += c
    bounds = np.array([coupling.bound for coupling in ordered])
    return Cut(rows, bounds, sum(coupling.is_equality for coupling in ordered))


def _widened(view: View, kept: tuple[int, ...]) -> View:
    """Return the same view on the marginals of all variables instead of the kept ones."""
    place = np.array(kept)
    return view._replace(plus=place[view.plus], minus=np.where(view.minus < 0, -1, place[np.maximum(view.minus, 0)]))


class _Parts(NamedTuple):
    marginals: Any  # sparse (n, states): marginal of each variable
    equal: Any  # sparse: what makes masses a distribution
    bounds: Floats


@lru_cache(maxsize=16)
def _program(tree: Tree) -> _Parts:
    from scipy import sparse

    bags, offsets = tree.bags, tree.offsets
    first = np.arange(len(bags[0].states))
    rows, columns, signs, n = [first * 0], [first], [np.ones(len(first))], 1
    shown: list[tuple[int, npt.NDArray[np.intp]]] = []
    for number, bag in enumerate(bags):
        if bag.parent >= 0:
            rows += [n + bag.labels, n + bag.parent_labels]
            columns += [offsets[number] + np.arange(len(bag.labels)), offsets[bag.parent] + np.arange(len(bag.parent_labels))]
            signs += [np.ones(len(bag.labels)), -np.ones(len(bag.parent_labels))]
            n += bag.n_labels
        shown += [(v, offsets[number] + np.flatnonzero(bag.states[:, column])) for v, column in bag.owned]
    equal = sparse.csc_matrix((np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))), (n, tree.n_states))
    places = np.concatenate([at for _, at in shown])
    variables = np.repeat([v for v, _ in shown], [len(at) for _, at in shown])
    of = sparse.csr_matrix((np.ones(len(places)), (variables, places)), (tree.n, tree.n_states))
    return _Parts(of, equal, np.append(1.0, np.zeros(n - 1)))


def _solve(tree: Tree, cut: Cut, view: View, target: Floats) -> tuple[Floats, float, float]:
    """Return marginals near to the target, and proven bounds of the least distance.

    An interior point ends at a gap relative to the size of the objective, so a short distance is solved again, scaled up.
    """
    scale, best = 1.0, (np.zeros(tree.n), 0.0, np.inf)
    for _ in range(3):
        masses, prices = _quadratic_program(tree, cut, view, target, scale)
        z = marginals(tree, masses) if not len(cut.rows) else _program(tree).marginals @ masses
        away = view.coordinates(z[None, :])[0] - target
        upper = float(np.linalg.norm(away))
        lower = _proven(tree, cut, view.slopes(away, tree.n), z, prices, upper)
        if upper < best[2]:
            best = (z, max(lower, best[1]), upper)
        if upper - lower <= 1e-8 * max(1.0, upper) or upper < 1e-9:
            break
        scale = 1.0 / max(upper, 1e-7)
    return best


def _proven(tree: Tree, cut: Cut, slopes: Floats, z: Floats, prices: Floats, upper: float) -> float:
    """Return the distance of the hyperplane with these slopes that no coherent point crosses; prices pay for the couplings."""
    priced = slopes.copy()
    priced[: cut.rows.shape[1]] += prices @ cut.rows
    least = lowest(tree, priced)[1] - float(prices @ cut.bounds)
    gap = max(float(slopes @ z) - least, 0.0)
    return min(max(0.0, (upper * upper - gap) / upper), upper) if upper > 0 else 0.0


def _quadratic_program(tree: Tree, cut: Cut, view: View, target: Floats, scale: float) -> tuple[Floats, Floats]:
    """Return the masses of all bag states that come nearest, and the prices of the couplings.

    The coordinates are variables of their own, which keeps the program sparse.
    """
    import clarabel
    from scipy import sparse

    parts = _program(tree)
    shown = _matrix(view, tree.n) @ parts.marginals
    d, n = shown.shape
    rows = cut.rows @ parts.marginals[: cut.rows.shape[1]] if len(cut.rows) else np.zeros((0, n))
    left = sparse.vstack([parts.equal, shown, sparse.csr_matrix(rows), -sparse.eye(n)])
    right = sparse.vstack([sparse.csr_matrix((parts.equal.shape[0], d)), -sparse.eye(d), sparse.csr_matrix((len(rows) + n, d))])
    bounds = np.concatenate([parts.bounds, np.zeros(d), cut.bounds, np.zeros(n)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    settings.max_threads = 1
    cones = [
        clarabel.ZeroConeT(parts.equal.shape[0] + d + cut.n_equal),
        clarabel.NonnegativeConeT(len(rows) - cut.n_equal + n),
    ]
    weight = scale * scale
    squares = sparse.block_diag([sparse.csc_matrix((n, n)), weight * sparse.eye(d)], format="csc")
    linear = np.concatenate([np.zeros(n), -weight * target])
    solver = clarabel.DefaultSolver(squares, linear, sparse.hstack([left, right], format="csc"), bounds, cones, settings)
    found = solver.solve()
    first = parts.equal.shape[0] + d
    prices = np.array(found.z)[first : first + len(rows)] / weight
    prices[cut.n_equal :] = np.maximum(prices[cut.n_equal :], 0.0)
    return np.array(found.x)[:n], prices


def _matrix(view: View, n: int) -> Any:
    from scipy import sparse

    d = len(view.plus)
    scale = np.sqrt(view.weight)
    plain = sparse.csr_matrix((scale, (np.arange(d), view.plus)), (d, n))
    has = np.flatnonzero(view.minus >= 0)
    called_off = sparse.csr_matrix(((scale * view.factor)[has], (has, view.minus[has])), (d, n))
    return plain - called_off


def _integer_oracle(shape: Shape) -> Oracle:
    """Return the oracle that minimises over the 0/1 solutions of the rules' linear rows, exactly."""
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows = [row for rule in shape.rules for row in linear_rows(rule)]
    at = [(number, v, c) for number, (coefficients, _, _) in enumerate(rows) for v, c in coefficients.items()]
    numbers, variables, values = (np.array(part) for part in zip(*at, strict=True))
    matrix = sparse.csr_matrix((values, (numbers, variables)), (len(rows), shape.n))
    constraint = LinearConstraint(matrix, np.array([row[1] for row in rows]), np.array([row[2] for row in rows]))

    def oracle(slopes: Floats) -> tuple[Floats, float]:
        size = max(float(np.abs(slopes).max(initial=0.0)), 1e-300)  # the solver's tolerances are absolute
        found = milp(
            slopes / size, integrality=np.ones(shape.n), bounds=Bounds(0, 1), constraints=constraint,
            options={"mip_rel_gap": 0.0, "presolve": True},
        )  # fmt: skip
        if found.x is None:
            return np.zeros(shape.n), np.inf
        bound = found.fun if found.mip_dual_bound is None else min(found.fun, found.mip_dual_bound)
        return np.round(found.x), float(bound) * size

    return oracle


def _stack(parts: list[Any]) -> Any:
    from scipy import sparse

    return sparse.vstack([sparse.csr_matrix(part) for part in parts], format="csr")
