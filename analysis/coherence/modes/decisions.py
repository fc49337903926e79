"""What people decide about modes, and how it outlives a new analysis: renames, merges, splits and notes.

Decisions are small records keyed by mode id, as rows of the workspace's append-only table; modes found anew take over the id of
the old mode that they are. Hidden here: when two modes count as the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from analysis.coherence.modes.clustering import Mode, Modes, described, members_of
from analysis.errors import CounterpointError

if TYPE_CHECKING:
    import pandas as pd

What = Literal["rename mode", "merge modes", "split mode", "annotate mode"]
_SAME_DISTANCE: Final = 0.3  # between centres; those of planted modes are 0.6 and more apart
_SAME_MEMBERS: Final = 0.5  # Jaccard, over the traces of both runs


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision. `text`: the new name, or the note; `mode_ids`: what is merged into it; `trace_ids`: what is split off."""

    what: What
    mode_id: str
    text: str = ""
    mode_ids: tuple[str, ...] = ()
    trace_ids: tuple[str, ...] = ()


class Decided(NamedTuple):
    """Modes after decisions, and the decisions whose mode (or traces) are no longer there."""

    modes: Modes
    unapplied: tuple[Decision, ...]


def read_decisions(rows: pd.DataFrame) -> list[Decision]:
    """Return the decisions about modes among the rows of the table `decisions`, in the order in which they were made.

    Parameters
    ----------
    rows : decision_id, what, value (the JSON of a `Decision`), made_at; rows about other things are passed over

    Raises
    ------
    CounterpointError
        If a value is not a decision.
    """
    found = []
    mine = rows[rows["what"].isin(get_args(What))].sort_values(["made_at", "decision_id"], kind="stable")
    for decision_id, value in zip(mine["decision_id"], mine["value"], strict=True):
        try:
            found.append(msgspec.json.decode(value, type=Decision))
        except msgspec.MsgspecError as error:
            raise CounterpointError(f"decision {decision_id}", "is not a decision about modes", got=str(error)) from None
    return found


def apply_decisions(modes: Modes, decisions: Sequence[Decision]) -> Decided:
    """Return the modes as people want them; decisions apply in order, and each can build on those before it.

    A merge keeps the id and, without `text`, the name of its `mode_id`. A split gives the traces named, those of them that
    are in the mode, an id of their own, made from the decision. Neither has a bootstrap Jaccard: nobody measured it.
    """
    unapplied = []
    for decision in decisions:
        changed = _CHANGES[decision.what](modes, decision)
        if changed is None:
            unapplied.append(decision)
        else:
            modes = changed
    return Decided(modes, tuple(unapplied))


def carry_over(old: Modes, new: Modes) -> Modes:
    """Return modes found anew under the ids of the old modes that they are, so that decisions find them.

    Two modes are the same if their centres are within a Hellinger distance of 0.3, or if they share at least half of the
    traces of both runs; each old mode is at most one new one, the best match over all.
    """
    if not old.modes or not new.modes:
        return new
    from scipy.optimize import linear_sum_assignment

    distance, overlap = _distances(old, new), _overlaps(old, new)
    is_same = (distance <= _SAME_DISTANCE) | (overlap >= _SAME_MEMBERS)
    score = np.where(is_same, 4 + overlap - distance, 0.0)
    pairs = [(i, j) for i, j in zip(*linear_sum_assignment(-score), strict=True) if is_same[i, j]]
    ids = {new.modes[j].mode_id: old.modes[i].mode_id for i, j in pairs}
    taken = {mode.mode_id for mode in old.modes}
    for mode in new.modes:
        free = mode.mode_id
        while mode.mode_id not in ids and free in taken:
            free = _hash("carried", free)
        ids.setdefault(mode.mode_id, free)
    renamed = tuple(msgspec.structs.replace(mode, mode_id=ids[mode.mode_id]) for mode in new.modes)
    return replace(new, modes=renamed, members=new.members.assign(mode_id=new.members["mode_id"].map(ids)))


def _distances(old: Modes, new: Modes) -> npt.NDArray[np.float64]:
    cells = sorted({*old.profiles.cells, *new.profiles.cells})
    place = {cell: n for n, cell in enumerate(cells)}
    sides = []
    for run in (old, new):
        centres = np.zeros((run.n_modes, len(cells)))
        centres[:, [place[cell] for cell in run.profiles.cells]] = [mode.centre for mode in run.modes]
        sides.append(centres)
    found: npt.NDArray[np.float64] = np.linalg.norm(sides[0][:, None] - sides[1][None], axis=2)
    return found


def _overlaps(old: Modes, new: Modes) -> npt.NDArray[np.float64]:
    both = old.members.merge(new.members, on="trace_id", suffixes=("_old", "_new"))
    rows, columns = ([mode.mode_id for mode in run.modes] for run in (old, new))
    table = both.groupby(["mode_id_old", "mode_id_new"]).size().unstack(fill_value=0)
    shared = table.reindex(index=rows, columns=columns, fill_value=0).to_numpy(float)
    either = shared.sum(axis=1, keepdims=True) + shared.sum(axis=0) - shared
    found: npt.NDArray[np.float64] = np.divide(shared, either, out=np.zeros_like(shared), where=either > 0)
    return found


def _renamed(modes: Modes, decision: Decision) -> Modes | None:
    return _edited(modes, decision.mode_id, name=decision.text, is_named=True) if decision.text else None


def _annotated(modes: Modes, decision: Decision) -> Modes | None:
    mode = _mode(modes, decision.mode_id)
    return _edited(modes, decision.mode_id, notes=(*mode.notes, decision.text)) if mode else None


def _merged(modes: Modes, decision: Decision) -> Modes | None:
    kept = _mode(modes, decision.mode_id)
    gone = {i for i in decision.mode_ids if i != decision.mode_id and _mode(modes, i)}
    if kept is None or not gone:
        return None
    rows = _rows(modes, modes.members["trace_id"][modes.members["mode_id"].isin([decision.mode_id, *gone])])
    notes = tuple(note for mode in modes.modes if mode.mode_id in {kept.mode_id, *gone} for note in mode.notes)
    name, is_named = (decision.text, True) if decision.text else (kept.name, kept.is_named)
    whole = msgspec.structs.replace(
        described(modes.profiles, rows), mode_id=kept.mode_id, name=name, is_named=is_named, notes=notes
    )
    return _with(modes, whole, rows, gone=gone | {kept.mode_id})


def _split(modes: Modes, decision: Decision) -> Modes | None:
    mode = _mode(modes, decision.mode_id)
    mine = modes.members["trace_id"][modes.members["mode_id"] == decision.mode_id]
    is_off = mine.isin(decision.trace_ids)
    if mode is None or not is_off.any() or is_off.all():
        return None
    off, rest = _rows(modes, mine[is_off]), _rows(modes, mine[~is_off])
    left = msgspec.structs.replace(
        described(modes.profiles, rest), mode_id=mode.mode_id, name=mode.name, is_named=mode.is_named, notes=mode.notes
    )
    new = described(modes.profiles, off)
    new_id = _hash("split", mode.mode_id, decision.text, *sorted(decision.trace_ids))
    new = msgspec.structs.replace(new, mode_id=new_id, name=decision.text or new.name, is_named=bool(decision.text))
    return _with(_with(modes, left, rest, gone={mode.mode_id}), new, off, gone=set())


def _with(modes: Modes, mode: Mode, rows: npt.NDArray[np.intp], *, gone: set[str]) -> Modes:
    """Return the modes with one mode in the place of others, its members with their new distances."""
    import pandas as pd

    kept = [other for other in modes.modes if other.mode_id not in gone]
    ordered = tuple(sorted([*kept, mode], key=lambda one: (-one.size, one.mode_id)))
    mine = members_of(modes.profiles, rows, mode)
    others = modes.members[~modes.members["trace_id"].isin(mine["trace_id"])]
    members = pd.concat([others, mine]).sort_values("trace_id", kind="stable").reset_index(drop=True)
    return replace(modes, modes=ordered, members=members)


def _edited(modes: Modes, mode_id: str, **fields: object) -> Modes | None:
    if _mode(modes, mode_id) is None:
        return None
    return replace(modes, modes=tuple(msgspec.structs.replace(m, **fields) if m.mode_id == mode_id else m for m in modes.modes))


def _mode(modes: Modes, mode_id: str) -> Mode | None:
    return next((mode for mode in modes.modes if mode.mode_id == mode_id), None)


def _rows(modes: Modes, trace_ids: pd.Series) -> npt.NDArray[np.intp]:
    # Profiles of modes are sorted by trace id.
    return np.searchsorted(np.array(modes.profiles.trace_ids, dtype=str), np.sort(trace_ids.to_numpy(dtype=str)))


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


_CHANGES = {"rename mode": _renamed, "merge modes": _merged, "split mode": _split, "annotate mode": _annotated}
