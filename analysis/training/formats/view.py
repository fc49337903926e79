"""What a view is: the rows of a bundle as one trainer reads them, and what that trainer would refuse."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Protocol


class View(Protocol):
    """One target. `takes` says whether it is made of `Row`s or of counterfactual `PairRow`s; `about` what it cannot express.

    `columns` are those of its files, each with its type; `check` gives the target's own reasons to refuse a row, in words,
    none where it takes it; `write` writes rows that were checked, in their order, a file for each split, with the target's own
    configuration, and returns the number of records of each split.
    """

    @property
    def takes(self) -> Literal["rows", "pairs"]: ...  # noqa: D102
    @property
    def about(self) -> str: ...  # noqa: D102
    def columns(self) -> dict[str, str]: ...  # noqa: D102
    def check(self, row: Any) -> list[str]: ...  # noqa: D102
    def write(self, rows: Iterable[Any], folder: Path) -> dict[str, int]: ...  # noqa: D102
