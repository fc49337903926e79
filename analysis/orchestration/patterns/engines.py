"""Where the loops of the miner run: as they stand, on lists, or compiled, on arrays. Both find the same.

Decides when the compiled ones are loaded (compiled once a machine): not before a second's work was done without them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.orchestration.patterns import kernels

#: Edges looked at in lists, after which loading the compiled loops pays.
ENOUGH = 1_000_000
_ENOUGH_CODES = 5_000


class Engine(NamedTuple):
    """The loops, and what they take: `given` makes it of an array, `room` makes a sequence of equal numbers."""

    count_growths: Callable[..., None]
    fill_growths: Callable[..., None]
    minimum_code: Callable[..., int]
    given: Callable[[npt.NDArray[np.int32]], Any]
    room: Callable[[int, int], Any]


PLAIN = Engine(
    count_growths=kernels.count,
    fill_growths=kernels.fill,
    minimum_code=kernels.minimum,
    given=lambda array: array.tolist(),
    room=lambda n, value: [value] * n,
)


def _array(n: int, value: int) -> npt.NDArray[np.int32]:
    return np.full(n, value, np.int32) if value else np.zeros(n, np.int32)


@cache
def compiled() -> Engine:
    """Return the compiled loops."""
    from numba import njit
    from numba.extending import register_jitable

    for inner in (kernels.twin, kernels.stands, kernels.first_rows, kernels.sweep):
        register_jitable(inner)
    count, fill, minimum = (
        njit(cache=True, error_model="numpy")(loop) for loop in (kernels.count, kernels.fill, kernels.minimum)
    )
    return Engine(count, fill, minimum, given=lambda array: array, room=_array)


def engine_for(n_codes: int) -> Engine:
    """Return the engine in which so many minimum codes are found sooner."""
    return compiled() if compiled.cache_info().currsize or n_codes > _ENOUGH_CODES else PLAIN
