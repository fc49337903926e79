"""Modes that leave their workspace: saved as a file, recognised in other traces, and how well that goes across domains.

The file is JSON, `counterpoint-modes/1`. Hidden here: how profiles with other cells are laid beside the library's.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from analysis.coherence.modes.clustering import Modes, find_modes
from analysis.coherence.modes.partition import nearest, shuffled
from analysis.coherence.modes.profiles import Profiles, Source
from analysis.errors import CounterpointError, UnknownNameError
from analysis.estimation import wilson

if TYPE_CHECKING:
    import pandas as pd

_HELD_OUT = 0.2  # of a domain's own profiles, on which recognition at home is measured


class KnownMode(msgspec.Struct, frozen=True, kw_only=True):
    """A mode as a library keeps it; see `Mode`."""

    mode_id: str
    name: str
    words: str
    size: int
    centre: tuple[float, ...]
    radius: float
    notes: tuple[str, ...] = ()


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """Modes of one source over named cells."""

    format: Literal["counterpoint-modes/1"]
    source: Source
    cells: tuple[str, ...]
    modes: tuple[KnownMode, ...]


def library_of(modes: Modes) -> Library:
    """Return the modes as a library; traces stay behind.

    Raises
    ------
    CounterpointError
        If no modes were named.
    """
    if not modes.modes:
        raise CounterpointError("mode library", "there are no modes to save", got=modes.refusal)
    fields = KnownMode.__struct_fields__
    known = tuple(KnownMode(**{field: getattr(mode, field) for field in fields}) for mode in modes.modes)
    return Library(format="counterpoint-modes/1", source=modes.profiles.source, cells=modes.profiles.cells, modes=known)


def save(library: Library, path: str | Path) -> None:
    """Write a library; the same library gives the same bytes.

    Raises
    ------
    CounterpointError
        If the file cannot be written.
    """
    try:
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(library), indent=1) + b"\n")
    except OSError as error:
        raise CounterpointError(str(path), "the mode library cannot be written", got=error.strerror or "") from None


def load(path: str | Path) -> Library:
    """Return the library in a file.

    Raises
    ------
    CounterpointError
        If the file cannot be read, is not JSON, or is not a mode library.
    """
    hint = "save one with `counterpoint modes export`"
    try:
        library = msgspec.json.decode(Path(path).read_bytes(), type=Library)
    except OSError as error:
        raise CounterpointError(str(path), "the mode library cannot be read", got=error.strerror or "", hint=hint) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CounterpointError(str(path), "not a mode library", got=str(error), hint=hint) from None
    for mode in library.modes:
        is_sound = len(mode.centre) == len(library.cells) and all(map(math.isfinite, (*mode.centre, mode.radius)))
        if not is_sound:
            expected = f"{len(library.cells)} finite numbers"
            raise CounterpointError(str(path), "the centre of a mode does not fit the cells", got=mode.name, expected=expected)
    if not library.modes or len(set(library.cells)) < len(library.cells):
        raise CounterpointError(str(path), "not a mode library", got="no modes, or a cell twice", hint=hint)
    return library


def match(profiles: Profiles, library: Library) -> pd.DataFrame:
    """Return the library's mode that is nearest to each profile, and whether it lies as near as that mode's own traces.

    Returns
    -------
    trace_id, mode_id, name, distance (Hellinger, over the cells of both), is_match (within the radius that holds 95 % of
    the mode's own traces); one row a profile, in their order. What lies in cells unknown to the library adds to the distance.

    Raises
    ------
    UnknownNameError
        If profiles and library are of different sources.
    """
    import pandas as pd

    if profiles.source != library.source:
        raise UnknownNameError("mode library", "made from another source", got=library.source, expected=profiles.source)
    place = {cell: n for n, cell in enumerate(library.cells)}
    known = [n for n, cell in enumerate(profiles.cells) if cell in place]
    points = np.zeros((len(profiles.trace_ids), len(library.cells)))
    points[:, [place[profiles.cells[n]] for n in known]] = np.sqrt(profiles.matrix[:, known])
    outside = np.clip(1.0 - profiles.matrix[:, known].sum(axis=1, dtype=np.float64), 0.0, 1.0)
    label, distance = nearest(points, np.array([mode.centre for mode in library.modes]))
    distance = np.sqrt(distance**2 + outside).round(9)
    radius = np.array([mode.radius for mode in library.modes])[label]
    columns = {
        "trace_id": pd.Series(profiles.trace_ids, dtype=str),
        "mode_id": [library.modes[n].mode_id for n in label],
        "name": [library.modes[n].name for n in label],
        "distance": distance,
        "is_match": distance <= radius + 1e-6,
    }
    return pd.DataFrame(columns)


def transfer(profiles: Profiles, domains: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return how many profiles of each domain are recognised by the modes learned in each.

    Modes are learned from 80 % of a domain; the other 20 % say how well they are recognised at home, all profiles of every
    other domain how far they carry. A profile is recognised if it lies within the radius of a mode.

    Parameters
    ----------
    domains : trace_id, domain; traces without a domain are left out

    Returns
    -------
    learned_in, recognised_in, n_modes, n, n_recognised, share, low, high (95 % Wilson), null_share (the same with the cells
    of the profiles shuffled), reason (why no modes were learned); a row for each pair of domains, sorted
    """
    import pandas as pd

    known = dict(zip(domains["trace_id"], domains["domain"], strict=True))
    of = np.array([known.get(trace_id) if pd.notna(known.get(trace_id)) else "" for trace_id in profiles.trace_ids], dtype=str)
    names = [str(name) for name in np.unique(of) if name]
    rows: list[tuple[object, ...]] = []
    for learned in names:
        own = np.flatnonzero(of == learned)
        own = own[np.argsort(rng.random(len(own)), kind="stable")]
        held = own[: int(_HELD_OUT * len(own))]
        modes = find_modes(profiles.take(own[len(held) :]), rng=rng)
        for name in names:
            seen = profiles.take(held if name == learned else np.flatnonzero(of == name))
            rows.append((learned, name, modes.n_modes, *_recognised(seen, modes, rng), modes.refusal))
    columns = ["learned_in", "recognised_in", "n_modes", "n", "n_recognised", "share", "low", "high", "null_share", "reason"]
    return pd.DataFrame(rows, columns=columns)


def _recognised(seen: Profiles, modes: Modes, rng: np.random.Generator) -> tuple[object, ...]:
    n = len(seen.trace_ids)
    if not modes.modes or not n:
        return n, None, None, None, None, None
    library = library_of(modes)
    n_hits = int(match(seen, library)["is_match"].sum())
    null = Profiles(seen.trace_ids, seen.cells, shuffled(seen.matrix, rng).astype(np.float32), seen.source)
    estimate = wilson(n_hits, n)
    assert estimate is not None  # n > 0
    return n, n_hits, estimate.value, estimate.low, estimate.high, float(match(null, library)["is_match"].mean())
