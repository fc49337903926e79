"""Which decision a study replays next when its budget may not reach for all: a race of all decisions against one threshold.

Decisions take turns, those with the larger prior first. One that may have an effect of `DELTA` is pulled again at once, until
it is clear, and left once it seems so: then fresh seeds decide, since means of pulls that were chosen for results are biased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from analysis.counterfactual.racing import Arm, posterior
from analysis.streams import uniform

#: An effect of this size is looked for: what a confirmation of 16 pairs finds about every second time.
DELTA = 0.3
_P_OPEN = 0.25  # as probable an effect of DELTA must be for the next pull to come at once
_P_SUGGESTED = 0.8  # and this, to be worth fresh seeds; where no pull is left, as probable as not is enough


class Pick(NamedTuple):
    """One pull that is to be: the n-th of its arm (from 0), how probable it was that the arm was chosen, and why.

    why : `floor`, its cell was short of pulls; `open`, it may matter; `turn`, it was next; `lot`, it was drawn
    """

    arm: Arm
    n: int
    p_chosen: float
    why: str


def picks(
    arms: Sequence[Arm], deltas: Mapping[str, Sequence[float]], *, most: int, n: int = 8, floor: int = 2, explore: float = 0.1,
    seed: int = 0,
) -> list[Pick]:  # fmt: skip
    """Return the next pulls of a race, each of another arm; none once every arm is suggested or has been pulled `most` times.

    Parameters
    ----------
    deltas : what the pulls of each arm gave so far, by key; the same deltas and seed give the same picks
    most : pulls of an arm at most
    n : how many pulls are chosen before their results are looked at
    floor : pulls that every cell has before arms are compared
    explore : chance of each pull to go to any arm alike, so that none is out of reach

    Notes
    -----
    Racing (Maron & Moore 1994), with the posterior of `racing` in place of anytime intervals, since what it suggests is
    confirmed anyway. Chosen by measuring (`benchmarks/counterfactual.py`): with 464 pairs for 464 decisions, of which 18
    matter, it takes 42 pairs for each effect that fresh seeds confirm, top-two sampling 73, even pulls 81, successive halving
    105: where few matter, most is spent on finding them, not on which of them is the largest.
    """
    left = [arm for arm in arms if len(deltas[arm.key]) < most and not is_suggested(deltas[arm.key], most)]
    left.sort(key=lambda arm: (not _is_open(deltas[arm.key]), len(deltas[arm.key]), -arm.prior, arm.key))
    n_cell = Counter({arm.cell: 0 for arm in arms})
    for arm in arms:
        n_cell[arm.cell] += len(deltas[arm.key])
    n_before = sum(n_cell.values())
    found: list[Pick] = []
    while left and len(found) < n:
        first = next((arm for arm in left if n_cell[arm.cell] < floor), left[0])
        u = uniform(seed, "race", "lot", n_before + len(found))
        arm = left[int(u / explore * len(left))] if u < explore else first
        p = explore / len(left) + (1 - explore) * (arm is first)
        why = "lot" if u < explore else "floor" if n_cell[arm.cell] < floor else "open" if _is_open(deltas[arm.key]) else "turn"
        found.append(Pick(arm, len(deltas[arm.key]), p, why))
        n_cell[arm.cell] += 1
        left.remove(arm)
    return found


def is_suggested(deltas: Sequence[float], most: int) -> bool:
    """Tell whether differences of an arm are worth fresh seeds: probably an effect of `DELTA`, in the direction they point.

    >>> [is_suggested(deltas, 4) for deltas in ([-1.0], [-1.0, -1.0], [0.0, -1.0, 0.0], [0.0, -1.0, 0.0, -1.0])]
    [False, True, False, True]
    """
    p_up, p_down = _chances(tuple(deltas))
    return len(deltas) > 1 and max(p_up, p_down) >= (_P_SUGGESTED if len(deltas) < most else 0.5)


def _is_open(deltas: Sequence[float]) -> bool:
    return len(deltas) > 0 and sum(_chances(tuple(deltas))) >= _P_OPEN


@lru_cache(maxsize=65536)
def _chances(deltas: tuple[float, ...]) -> tuple[float, float]:
    """Return how probable a mean above DELTA is, and one below -DELTA."""
    from scipy.special import stdtr

    centre, scale, nu = posterior(deltas, 0.0)
    return float(stdtr(nu, (centre - DELTA) / scale)), float(stdtr(nu, (-DELTA - centre) / scale))
