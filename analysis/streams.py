"""Keyed randomness: a draw depends on the seed and on what it is for, never on what was drawn before.

So two runs that differ in one step still draw alike everywhere else, and any part of a result can be
made again by itself. How keys become numbers is hidden here; the numbers are the same on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

_T = TypeVar("_T")


def uniform(seed: int, *key: str | int) -> float:
    """Return the one number in [0, 1) that belongs to `seed` and `key`; a multiple of 2^-53.

    Parts of a key keep their borders and their types.

    >>> uniform(7, "coder", "duration", 3)
    0.7419887338595178
    >>> len({uniform(7, "a", "bc"), uniform(7, "ab", "c"), uniform(7, 1), uniform(7, "1"), uniform(8, 1)})
    5
    """
    return (int.from_bytes(_digest(seed, key, 8), "little") >> 11) * 2.0**-53


def stream(seed: int, *key: str | int) -> np.random.Generator:
    """Return the generator that belongs to `seed` and `key`, for many draws of one purpose.

    Only `random()` gives the same numbers under every version of numpy; derive others with `pick` and `whole`.

    >>> first = stream(7, "bootstrap", "software-1").random(3)
    >>> _ = stream(7, "anything else").random(100)
    >>> bool((stream(7, "bootstrap", "software-1").random(3) == first).all())
    True
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_digest(seed, key, 16), "little")))


def pick(u: float, options: Sequence[_T]) -> _T:
    """Return the option that a number `u` in [0, 1) falls on, all equally likely.

    >>> [pick(u, "abc") for u in (0.0, 0.4, 0.999)]
    ['a', 'b', 'c']
    """
    return options[int(u * len(options))]


def whole(u: float, low: int, high: int) -> int:
    """Return the whole number from `low` to `high`, both included, that a number `u` in [0, 1) falls on.

    >>> [whole(u, 3, 5) for u in (0.0, 0.4, 0.999)]
    [3, 4, 5]
    """
    return low + int(u * (high - low + 1))


def _digest(seed: int, key: tuple[str | int, ...], n_bytes: int) -> bytes:
    # The length before each text keeps ("a", "bc") apart from ("ab", "c"), the letter keeps 1 apart from "1".
    text = f"i{seed:d};" + "".join([f"s{len(part)}:{part}" if isinstance(part, str) else f"i{part:d};" for part in key])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=n_bytes).digest()
