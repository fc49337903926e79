"""Trainable agents: policies that choose among named options by named features, fitted to choices with weights.

A policy decides and another agent does the rest: says it, prices it, takes the decisions that are not the policy's. Draws
belong to the option, so that other options, or their order, change no draw (see `chosen`). Hides how the optimum is found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from analysis.counterfactual.agents.decisions import EACH_PART, Features, Row, options_of
from analysis.counterfactual.agents.protocol import Agent, Purpose, Request, Response
from analysis.counterfactual.agents.simulated import chosen
from analysis.counterfactual.tasks.programs import program
from analysis.errors import TeamError

_DIGITS = 9
_ROUNDS = 100


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Chances proportional to exp(weights · features / temperature).

    At temperature 0 the option that weighs most is taken, of equals the first by name.

    purposes : the decisions it takes
    weights : by feature; others weigh nothing
    """

    format: Literal["counterpoint-policy/1"] = "counterpoint-policy/1"
    purposes: tuple[Purpose, ...]
    weights: dict[str, float] = {}
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 1.0

    def chances(self, options: Mapping[str, Features]) -> dict[str, float]:
        """Return the chance of each option, by name.

        >>> policy = Policy(purposes=("stop",), weights={"late": 2.0})
        >>> {name: round(p, 4) for name, p in policy.chances({"stop": {"late": 1.0}, "go on": {}}).items()}
        {'go on': 0.1192, 'stop': 0.8808}
        """
        scores = {name: self._score(options[name]) for name in sorted(options)}
        best = max(scores.values())
        if self.temperature == 0:
            first = next(name for name, score in scores.items() if score == best)
            return {name: float(name == first) for name in scores}
        powers = {name: math.exp((score - best) / self.temperature) for name, score in scores.items()}
        total = math.fsum(powers.values())
        return {name: power / total for name, power in powers.items()}

    def log_likelihood(self, rows: Sequence[Row], weights: Sequence[float] | None = None) -> float:
        """Return the weighted sum of the log-chances of what was chosen."""
        weighted = zip(rows, weights or [1.0] * len(rows), strict=True)
        chances = [(self.chances(row.options)[row.choice], w) for row, w in weighted if w > 0]
        return math.fsum([w * math.log(p) for p, w in chances]) if all(p > 0 for p, _ in chances) else -math.inf

    def fit(self, rows: Sequence[Row], weights: Sequence[float] | None = None, *, l2: float = 1.0) -> Policy:
        """Return the policy that makes the weighted choices likeliest: max Σ w log p - l2/2 |change of weights|².

        Parameters
        ----------
        rows : for the decisions this policy takes; others are left out, as are rows of weight 0. Their order does not matter
        weights : from 0 up, one a row; all 1 by default
        l2 : how much holds a weight where it is; above 0, so that there is one optimum

        The fit is at temperature 1, whatever the policy's own is. Raises ValueError for weights, l2 or choices that cannot be.
        """
        given = weights if weights is not None else [1.0] * len(rows)
        if len(given) != len(rows) or not all(math.isfinite(w) and w >= 0 for w in given) or not l2 > 0:
            raise ValueError("a fit needs a weight from 0 up for each row, and l2 above 0")
        if unknown := [row.choice for row in rows if row.choice not in row.options]:
            raise ValueError(f"the choice {unknown[0]!r} is none of its options")
        taken = [(row, w) for row, w in zip(rows, given, strict=True) if w > 0 and row.purpose in self.purposes]
        names = sorted(set(self.weights).union(*[features for row, _ in taken for features in row.options.values()]))
        start = np.array([self.weights.get(name, 0.0) for name in names])
        found = _optimum(_Choices.of(taken, names), start, l2) if taken and names else start
        rounded = {name: round(float(x), _DIGITS) + 0.0 for name, x in zip(names, found, strict=True)}
        return msgspec.structs.replace(self, weights=rounded)

    def _score(self, features: Features) -> float:
        return math.fsum([self.weights.get(name, 0.0) * value for name, value in features.items()])


class Trained:
    """An agent whose decisions a policy takes; `other` does the rest, and decides what the policy does not.

    Without another one it says nothing of its choices, and whatever else it is asked is an error.
    """

    def __init__(self, policy: Policy, other: Agent | None = None) -> None:
        self._policy, self._other = policy, other

    def act(self, request: Request) -> Response:
        """Answer a request; the same request has the same choices."""
        options = options_of(request) if request.purpose in self._policy.purposes else {}
        if self._other is None and not options:
            return Response(error=f"the policy does not know how to {request.purpose}, and nobody is described who does")
        response = Response() if self._other is None else self._other.act(request)
        if not options or response.error is not None:
            return response
        return _with_choices(request, response, {about: self._choose(request, about, o) for about, o in options.items()})

    def _choose(self, request: Request, about: str, options: Mapping[str, Features]) -> str:
        return chosen(request, self._policy.chances(options), "policy", about)


def save(policy: Policy, path: Path) -> None:
    """Write a policy as JSON; the same policy gives the same bytes."""
    ordered = msgspec.structs.replace(policy, weights=dict(sorted(policy.weights.items())))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")


def load(path: Path) -> Policy:
    """Read a policy; raises TeamError, which names the file and what is wrong with it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Policy)
    except msgspec.MsgspecError as error:
        raise TeamError(str(path), "not a policy", got=str(error), hint="give a file that `save` wrote") from None
    except OSError as error:
        raise TeamError(str(path), "the file cannot be read", got=error.strerror or str(error)) from None


def _with_choices(request: Request, response: Response, taken: Mapping[str, str]) -> Response:
    """Return the response with these choices; where they are not its own, nor are its words and what it stated."""
    task, purpose = request.task, request.purpose
    changed = response
    if purpose in EACH_PART:
        rejected = tuple([about for about, choice in taken.items() if choice == EACH_PART[purpose][1]])
        if set(rejected) != set(response.rejected):
            words = f"I {EACH_PART[purpose][1]} {', '.join(rejected)}." if rejected else f"I {EACH_PART[purpose][0]} everything."
            changed = msgspec.structs.replace(response, rejected=rejected, text=words, claims=())
        if purpose == "aggregate" and not isinstance(task, str):
            kept = {seen.part: seen.program for seen in request.seen if seen.part and seen.program and seen.part not in rejected}
            changed = msgspec.structs.replace(changed, program=program(task, kept))
        return changed
    for choice in taken.values():
        if choice != response.choice:
            changed = msgspec.structs.replace(response, choice=choice, text=f"I choose {choice}.", claims=())
        if purpose == "write" and request.part and not isinstance(task, str):
            source = task.node(request.part).function.source(None if choice == "reference" else choice)
            changed = msgspec.structs.replace(changed, program=source, text="" if changed is not response else response.text)
    return changed


class _Choices(msgspec.Struct, frozen=True):
    """All options of all rows under one another, x (n_options, n_features): of which row each is, and which was chosen."""

    x: NDArray[np.float64]
    first: NDArray[np.intp]  # (n_rows,), where a row's options begin
    row: NDArray[np.intp]  # (n_options,)
    is_chosen: NDArray[np.bool_]
    w: NDArray[np.float64]  # (n_rows,)

    @classmethod
    def of(cls, weighted: Sequence[tuple[Row, float]], names: Sequence[str]) -> _Choices:
        """Gather rows; equal ones count together, so that neither their order nor that of their options matters."""
        together: dict[bytes, tuple[Row, list[float]]] = {}
        for row, w in weighted:
            key = msgspec.json.encode([row.options, row.choice], order="deterministic")
            together.setdefault(key, (row, []))[1].append(w)
        kept = [together[key] for key in sorted(together)]
        place = {name: n for n, name in enumerate(names)}
        options = [(n, name, row) for n, (row, _) in enumerate(kept) for name in sorted(row.options)]
        x = np.zeros((len(options), len(names)))
        for k, (_, name, row) in enumerate(options):
            for feature, value in row.options[name].items():
                x[k, place[feature]] = value
        numbers = np.array([n for n, _, _ in options], dtype=np.intp)
        is_chosen = np.array([name == row.choice for _, name, row in options])
        first = np.searchsorted(numbers, np.arange(len(kept)))
        return cls(x, first, numbers, is_chosen, np.array([math.fsum(w) for _, w in kept]))

    def loss(self, theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Return -Σ w log p of what was chosen, its gradient (n_features,) and its Hessian (n_features, n_features)."""
        score = self.x @ theta
        score -= np.maximum.reduceat(score, self.first)[self.row]
        power = np.exp(score)
        total = np.add.reduceat(power, self.first)
        p = power / total[self.row]
        value = float(self.w @ np.log(total) - self.w[self.row] @ np.where(self.is_chosen, score, 0.0))
        weighted = self.w[self.row] * p
        gradient = self.x.T @ (weighted - self.w[self.row] * self.is_chosen)
        mean = np.add.reduceat(self.x * p[:, None], self.first, axis=0)
        return value, gradient, self.x.T @ (self.x * weighted[:, None]) - mean.T @ (mean * self.w[:, None])


def _optimum(choices: _Choices, start: NDArray[np.float64], l2: float) -> NDArray[np.float64]:
    """Newton's steps, halved until the loss falls; the loss is strictly convex, so there is one optimum and they find it."""
    theta = start.copy()
    value, gradient, hessian = choices.loss(theta)
    for _ in range(_ROUNDS):
        slope = gradient + l2 * (theta - start)
        if np.abs(slope).max() <= 1e-11 * max(1.0, float(choices.w.sum())):
            break
        step = np.linalg.solve(hessian + l2 * np.eye(len(theta)), -slope)
        penalised, scale = value + l2 / 2 * float((theta - start) @ (theta - start)), 1.0
        while scale > 1e-9:
            tried = theta + scale * step
            value, gradient, hessian = choices.loss(tried)
            if value + l2 / 2 * float((tried - start) @ (tried - start)) <= penalised + 1e-14 * abs(penalised):
                break
            scale /= 2
        theta = theta + scale * step
    return theta
