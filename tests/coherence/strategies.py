"""Random small cliques: propositions a, b, c, ..., relations over them that some world satisfies, quotes in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from hypothesis import strategies as st

from analysis.coherence.relations import parse

NAMES = "abcde"
TEMPLATES = (
    "implies({0}, {1})", "{0} ^ {1}", "equal({0}, {1})", "at_most_one({0}, {1}, {2})", "exactly_one({0}, {1}, {2})",
    "at_least_one({0}, {1}, {2})", "iff({0}, {1} & {2})", "iff({0}, {1} | ~{2})", "iff({0}, {1} ^ {2})", "~({0} & {1} & {2})",
    "implies({0} | {1}, {2})", "{0} | {1}",
)  # fmt: skip

#: What each operation means, written again without the module under test.
PYTHON: dict[str, Callable[..., bool]] = {
    "implies": lambda a, b: not a or b,
    "iff": lambda a, b: a == b,
    "equal": lambda *parts: len(set(parts)) == 1,
    "exactly_one": lambda *parts: sum(parts) == 1,
    "at_most_one": lambda *parts: sum(parts) <= 1,
    "at_least_one": lambda *parts: sum(parts) >= 1,
}


class Bit:
    """A truth value on which ~ & | ^ are the logical operations, so that Python itself can evaluate a formula."""

    def __init__(self, value: bool) -> None:
        self.value = bool(value)

    def __bool__(self) -> bool:
        return self.value

    def __invert__(self) -> Bit:
        return Bit(not self.value)

    def __and__(self, other: Bit) -> Bit:
        return Bit(self.value and other.value)

    def __or__(self, other: Bit) -> Bit:
        return Bit(self.value or other.value)

    def __xor__(self, other: Bit) -> Bit:
        return Bit(self.value != other.value)


def brute_force_worlds(texts: list[str], names: str = NAMES) -> np.ndarray:
    """All 0/1 rows over `names` that satisfy the formulas, by trying each."""
    functions = {name: lambda *parts, f=f: Bit(f(*map(bool, parts))) for name, f in PYTHON.items()}
    code = [compile(text, "formula", "eval") for text in texts]
    rows = [
        row
        for row in product((0, 1), repeat=len(names))
        if all(eval(c, {**functions, **dict(zip(names, map(Bit, row), strict=True))}) for c in code)
    ]
    return np.array(rows, dtype=float).reshape(-1, len(names))


quotes = st.floats(0, 1, allow_subnormal=False) | st.sampled_from([0.0, 1.0, 0.5, 0.3])
formulas = st.builds(lambda template, names: template.format(*names[:3]), st.sampled_from(TEMPLATES), st.permutations(NAMES))
relation_sets = st.lists(formulas, min_size=1, max_size=4).filter(lambda texts: len(brute_force_worlds(texts)) > 0)
quote_rows = st.lists(quotes, min_size=len(NAMES), max_size=len(NAMES))


def parsed(texts: list[str]) -> list:
    """The formulas, read."""
    return [parse(text) for text in texts]
