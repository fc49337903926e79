"""On how many examples a property is tried: on all in `make soak`, and on a third in `make test`, the same ones each time."""

from __future__ import annotations

import os

from hypothesis import settings

IS_SOAK = os.environ.get("COUNTERPOINT_EXAMPLES", "same") != "same"


def up_to(n: int) -> settings:
    """Return the settings of a property that is tried on `n` examples where there is time."""
    return settings(max_examples=n if IS_SOAK else n // 3, deadline=None)
