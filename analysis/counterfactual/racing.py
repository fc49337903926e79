"""Which decision to replay next, when not all can be replayed often enough: a race of arms under a budget.

An arm is an intervention, a pull one paired replay of it. Decides who is pulled and logs with which probability, since means
of pulls that were chosen for their results are biased: confirm what wins on fresh seeds. Same seed, same race.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.orchestration.timing import Timing
from analysis.streams import stream, uniform

#: Draws from the posterior by which the probability of each arm to lead is found before every pull.
_N_DRAWS = 256
# Normal-inverse-gamma prior of an arm's mean and variance: one imagined pull, one degree of freedom, variance 0.1.
_KAPPA, _NU, _TAU2 = 1.0, 1.0, 0.1

Floats = npt.NDArray[np.float64]


class Arm(NamedTuple):
    """An intervention in a race: its name, its cell (operator, event kind), and the size of effect to expect beforehand."""

    key: str
    cell: tuple[str, str]
    prior: float = 0.0


class Pull(NamedTuple):
    """One paired replay: the n-th of its arm (from 0), what it gave and cost, how probable it was that the arm was chosen.

    why : `round r` of halving, `floor`, or `top two`
    """

    arm: str
    n: int
    delta: float
    cost: float
    p_chosen: float
    why: str


class Race(NamedTuple):
    """All pulls in order, the arms from the best down, and what it cost.

    Best is who got furthest in halving, then who has the largest |mean|, the prior counting as one pull; of equals by name.
    """

    pulls: tuple[Pull, ...]
    ranking: tuple[str, ...]
    cost: float


#: Replays an arm for the n-th time and returns the difference and its cost; the same n means the same seeds in every arm.
Replay = Callable[[Arm, int], tuple[float, float]]


def cheap_prior(timed: Timing) -> dict[str, float]:
    """Return by event id how much may hang on it, in [0, 1], from the run alone.

    The mean of three shares: its drag of the span, the events that it led to, and its causal edges between agents over the
    most that any event has. It orders arms before the first replay and is never shown as an effect.

    >>> from analysis.model import Event, Source, Trace
    >>> from analysis.orchestration.timing import timing
    >>> events = [Event(event_id="a", kind="act"), Event(event_id="b", kind="act", parents=("a",), order=1)]
    >>> run = Trace(trace_id="t", world="recorded", source=Source(format="x"), events=tuple(events))
    >>> {name: round(value, 3) for name, value in cheap_prior(timing(run)).items()}
    {'a': 0.5, 'b': 0.167}
    """
    graph, n_events = timed.graph, len(timed.graph.events)
    led_to = [0] * n_events  # as sets of bits
    for n in range(n_events - 1, -1, -1):
        for effect in graph.effects[n]:
            led_to[n] |= led_to[effect] | 1 << effect
    agents = [event.agent_id for event in graph.events]
    crossing = [sum([agents[m] != agents[n] for m in (*graph.causes[n], *graph.effects[n])]) for n in range(n_events)]
    most = max([*crossing, 1])
    found = {}
    for n, event in enumerate(graph.events):
        drag = timed.drag.get(event.event_id, 0.0) / timed.span if timed.span else 0.0
        found[event.event_id] = (drag + led_to[n].bit_count() / max(1, n_events - 1) + crossing[n] / most) / 3
    return found


def halving_plan(n_arms: int, n_pulls: int) -> list[tuple[int, int]]:
    """Return for each round of successive halving how many arms are left and how often each is pulled.

    floor(n_pulls / (arms left × ceil(log2 n_arms))) pulls an arm in each of ceil(log2 n_arms) rounds (Karnin et al. 2013).
    Where the first round could not pull every arm once, only as many arms enter as it can.

    >>> halving_plan(16, 160)
    [(16, 2), (8, 5), (4, 10), (2, 20)]
    """
    while n_arms > 1 and n_pulls < n_arms * math.ceil(math.log2(n_arms)):
        n_arms -= 1
    if n_arms < 1 or n_pulls < 1:
        return []
    n_rounds = max(1, math.ceil(math.log2(n_arms)))
    plan = []
    for _ in range(n_rounds):
        plan.append((n_arms, n_pulls // (n_arms * n_rounds)))
        n_arms = math.ceil(n_arms / 2)
    return plan


def successive_halving(arms: Sequence[Arm], replay: Replay, *, n_pulls: int, max_cost: float = math.inf) -> Race:
    """Return the race in which after every round the half with the larger |mean| goes on; those with the best priors enter.

    All pulls of an arm count, from earlier rounds too, and all arms of a round have the same seeds. No pull begins once
    `max_cost` is spent.
    """
    race = _Running(arms, replay)
    left = sorted(race.arms, key=race.rank)
    out: list[Arm] = []
    for number, (n_left, n_each) in enumerate(halving_plan(len(left), n_pulls), 1):
        left, out = left[:n_left], left[n_left:] + out
        for n in range(n_each * len(left)):
            if race.cost < max_cost:
                race.pull(left[n % len(left)], 1.0, f"round {number}")
        left.sort(key=race.rank)
    return race.done([*left, *out])


def top_two(
    arms: Sequence[Arm], replay: Replay, *, n_pulls: int, floor: int = 2, explore: float = 0.1, seed: int = 0,
    max_cost: float = math.inf,
) -> Race:  # fmt: skip
    """Return the race of top-two Thompson sampling (Russo 2016) for the arms with the largest effects of either sign.

    Parameters
    ----------
    floor : pulls that every cell has before anything is compared, evenly over its arms
    explore : share of the pulls after that which go to all arms alike, so that none has the probability 0
    n_pulls, max_cost : no pull begins once either is spent

    Notes
    -----
    A posterior draw of all means names a leader, and with probability 1/2 its challenger: the leader of another draw in which
    it does not lead. Of 256 draws the share p_i in which i leads is counted (1 / number of arms added to the count); i is then
    chosen with p_i / 2 + sum_{j != i} p_j p_i / (1 - p_j) / 2, and that is what is logged.
    """
    race = _Running(arms, replay)
    while len(race.pulls) < n_pulls and race.arms and race.cost < max_cost:
        p, why = race.below(floor), "floor"
        if p is None:
            p, why = _chances(race, seed), "top two"
            p = (1 - explore) * p + explore / len(p)
        u = uniform(seed, "top-two", "arm", len(race.pulls))
        bounds = list(accumulate(p.tolist()))
        at = next((n for n, bound in enumerate(bounds) if u * bounds[-1] < bound), len(p) - 1)
        race.pull(race.arms[at], float(p[at]), why)
    return race.done(sorted(race.arms, key=race.rank))


class _Running:
    """A race under way; its arms in the order of their names, so that the order in which they came makes no difference."""

    def __init__(self, arms: Sequence[Arm], replay: Replay) -> None:
        self.arms = sorted(arms, key=lambda arm: arm.key)
        if len({arm.key for arm in arms}) < len(arms):
            raise ValueError("two arms of a race have the same key")
        self.pulls: list[Pull] = []
        self.cost = 0.0
        self.deltas: dict[str, list[float]] = {arm.key: [] for arm in self.arms}
        self._replay = replay

    def pull(self, arm: Arm, p_chosen: float, why: str) -> None:
        n = len(self.deltas[arm.key])
        delta, cost = self._replay(arm, n)
        self.deltas[arm.key].append(delta)
        self.cost += cost
        self.pulls.append(Pull(arm.key, n, delta, cost, p_chosen, why))

    def rank(self, arm: Arm) -> tuple[float, str]:
        return (-abs(posterior(self.deltas[arm.key], arm.prior)[0]), arm.key)

    def below(self, floor: int) -> Floats | None:
        """Return the chances of the arms to be chosen while a cell is short of pulls, None once none is."""
        n_cell = dict.fromkeys([arm.cell for arm in self.arms], 0)
        for arm in self.arms:
            n_cell[arm.cell] += len(self.deltas[arm.key])
        cell = min(n_cell, key=lambda name: (n_cell[name], name))
        if n_cell[cell] >= floor:
            return None
        least = min(len(self.deltas[arm.key]) for arm in self.arms if arm.cell == cell)
        is_next = [arm.cell == cell and len(self.deltas[arm.key]) == least for arm in self.arms]
        return np.array(is_next, dtype=np.float64) / sum(is_next)

    def done(self, ranking: Sequence[Arm]) -> Race:
        return Race(tuple(self.pulls), tuple([arm.key for arm in ranking]), self.cost)


def _chances(race: _Running, seed: int) -> Floats:
    """Return the probability of each arm to be chosen by top-two sampling, from draws of the posterior."""
    from scipy.special import stdtrit

    n_arms = len(race.arms)
    if n_arms == 1:
        return np.ones(1)
    mean, scale, nu = np.array([posterior(race.deltas[arm.key], arm.prior) for arm in race.arms]).T
    u = stream(seed, "top-two", "posterior", len(race.pulls)).random((_N_DRAWS, n_arms))
    drawn = abs(mean + scale * stdtrit(nu, np.clip(u, 1e-12, None)))
    leads = (np.bincount(drawn.argmax(axis=1), minlength=n_arms) + 1 / n_arms) / (_N_DRAWS + 1)
    odds = leads / (1 - leads)
    return np.asarray(leads / 2 + leads * (odds.sum() - odds) / 2, dtype=np.float64)


def posterior(deltas: Sequence[float], prior: float) -> tuple[float, float, float]:
    """Return centre, scale and degrees of freedom of Student's t for an arm's mean, after its pulls.

    >>> [round(value, 3) for value in posterior([-1.0, -1.0], 0.0)]
    [-0.667, 0.292, 3.0]
    """
    n = len(deltas)
    kappa, nu = _KAPPA + n, _NU + n
    if not n:
        return prior, math.sqrt(_TAU2 / kappa), nu
    mean = math.fsum(deltas) / n
    squares = math.fsum([(delta - mean) ** 2 for delta in deltas])
    tau2 = (_NU * _TAU2 + squares + n * _KAPPA * (prior - mean) ** 2 / kappa) / nu
    return (_KAPPA * prior + n * mean) / kappa, math.sqrt(tau2 / kappa), nu
